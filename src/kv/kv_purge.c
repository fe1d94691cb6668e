/* kv_purge.c - purges. One is a file in the directory, "purge-<tenant, or all>-<sequence>": what the tenant wrote before that sequence
 * is not there any more, for every process and after every crash, from the moment that the name is durable. The bytes go when the
 * segments are compacted, each by its owner. A purge file goes when no segment is older than it. Writing thread. */
#include "kv/kv_disk_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct purge {
    bool all;
    kv_tenant tenant;
    uint64_t sequence;
} purge;

enum { ID_HEX = 2 * KV_TENANT_BYTES, NAME_BYTES = 80 };

static void purge_name(const purge *p, char out[NAME_BYTES])
{
    char id[ID_HEX + 1] = "all";
    for (int i = 0; i < KV_TENANT_BYTES && !p->all; i++) {
        snprintf(id + (size_t)i * 2, 3, "%02x", p->tenant.id[i]);
    }
    snprintf(out, NAME_BYTES, "purge-%s-%016llx", id, (unsigned long long)p->sequence);
}

static bool parse_hex(const char *text, size_t n, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *const digits = "0123456789abcdef";
        const char *const digit = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
        if (digit == NULL) {
            return false;
        }
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

static bool parse_name(const char *name, purge *out)
{
    *out = (purge){.all = strncmp(name, "purge-all-", 10) == 0};
    if (out->all) {
        return strlen(name) == 10 + 16 && parse_hex(name + 10, 16, &out->sequence);
    }
    bool good = strncmp(name, "purge-", 6) == 0 && strlen(name) == 6 + ID_HEX + 1 + 16 && name[6 + ID_HEX] == '-' &&
                parse_hex(name + 6 + ID_HEX + 1, 16, &out->sequence);
    for (size_t i = 0; i < KV_TENANT_BYTES && good; i++) {
        uint64_t byte;
        good = parse_hex(name + 6 + 2 * i, 2, &byte);
        out->tenant.id[i] = (uint8_t)byte;
    }
    return good;
}

/* ---- what a purge takes out of the index, in a batch ---- */

static int64_t purge_tenant(kv_disk *disk, const purge *p)
{
    kv_name name;
    kv_entry entry;
    uint64_t sequence = 0;
    int64_t n = 0;
    while (kv_index_oldest(disk->index, p->tenant.id, &sequence, &name, &entry) && sequence < p->sequence) {
        kv_forget(disk, &name, &entry, KV_SUM_PURGED);
        n++;
    }
    return n;
}

static int64_t purge_all(kv_disk *disk, const purge *p)
{
    kv_name name = {{0}};
    kv_entry entry;
    int64_t n = 0;
    if (p->sequence <= disk->purged_all) {
        return 0;
    }
    for (bool start = true; kv_index_next(disk->index, start, &name, &entry); start = false) {
        if (entry.sequence < p->sequence) {
            kv_forget(disk, &name, &entry, KV_SUM_PURGED);
            n++;
        }
    }
    disk->purged_all = p->sequence;
    return n;
}

/* Whether a segment is there that was begun before the purge. */
static bool is_needed(const kv_disk *disk, const purge *p)
{
    const uint64_t ms = (p->sequence >> 8) / 1000;
    for (const kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
        if (kv_segment_born(s->id) <= ms) {
            return true;
        }
    }
    return false;
}

int64_t kv_purges_apply(kv_disk *disk)
{
    int64_t n = 0;
    purge p;
    const int fd = openat(disk->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL || !kv_index_begin(disk->index)) {
        if (dir != NULL) {
            closedir(dir);
        } else if (fd >= 0) {
            close(fd);
        }
        return 0;
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (parse_name(e->d_name, &p)) {
            n += p.all ? purge_all(disk, &p) : purge_tenant(disk, &p);
            if (disk->writer >= 0 && !is_needed(disk, &p)) {
                (void)disk->io->remove(disk->io, disk->dir, e->d_name);
            }
        }
    }
    closedir(dir);
    if (!kv_index_commit(disk->index)) {
        disk->purged_all = 0;
        kv_recount(disk);
    }
    return n;
}

bool kv_purge(kv_disk *disk, const kv_tenant *tenant, int64_t *n)
{
    char name[NAME_BYTES];
    (void)kv_active_flush(disk);
    purge p = {.all = tenant == NULL, .sequence = kv_next_sequence(disk)};
    if (tenant != NULL) {
        p.tenant = *tenant;
    }
    purge_name(&p, name);
    const int fd = disk->io->open_file(disk->io, disk->dir, name, O_WRONLY | O_CREAT);
    if (fd < 0) {
        return false;
    }
    close(fd);
    const bool durable = disk->io->sync(disk->io, disk->dir) == 0;
    kv_active_seal(disk); /* so that no segment of ours is older and goes on */
    *n = kv_purges_apply(disk);
    (void)kv_compact(disk);
    return durable;
}
