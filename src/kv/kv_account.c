/* kv_account.c - what the index says in sums: live bytes of each segment and tenant, records, and the bytes of the directory.
 *
 * The sums follow each change of the index (kv_account) and can be made anew from it at any time (kv_recount), which is done when opening
 * and after a batch that failed. Writing thread, or the opening one before there is any. */
#include "kv/kv_disk_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t kv_now_s(void)
{
    return (int64_t)time(NULL);
}

void kv_account(kv_disk *disk, const kv_name *name, const kv_entry *entry, int sign)
{
    kv_segment *const segment = kv_table_find(&disk->table, entry->segment);
    const int64_t space = sign * kv_entry_space(entry);
    const kv_disk_kind kind = name->bytes[KV_KEY_BYTES] == KV_DISK_UNIT ? KV_DISK_UNIT : KV_DISK_SNAPSHOT;
    kv_tenant_use change = {.bytes = space, .pinned_bytes = entry->pinned != 0 ? space : 0};
    memcpy(change.tenant.id, entry->tenant, sizeof change.tenant.id);
    change.records[kind] = sign;
    if (segment != NULL) {
        segment->live_bytes += space;
        segment->n_live += sign;
        segment->pinned_bytes += entry->pinned != 0 ? space : 0;
    }
    pthread_mutex_lock(&disk->tenants_lock);
    (void)kv_quota_add(&disk->quotas, &change); /* uncounted without memory: the quota is then generous */
    pthread_mutex_unlock(&disk->tenants_lock);
    kv_count(disk, kind == KV_DISK_UNIT ? KV_SUM_UNITS : KV_SUM_SNAPSHOTS, sign);
    kv_count(disk, KV_SUM_LIVE_BYTES, sign * (int64_t)entry->bytes);
    kv_count(disk, KV_SUM_PINNED_BYTES, entry->pinned != 0 ? space : 0);
}

size_t kv_disk_get_tenants(const kv_disk *disk, kv_tenant_use *out, size_t capacity)
{
    kv_disk *const d = (kv_disk *)(uintptr_t)disk;
    pthread_mutex_lock(&d->tenants_lock);
    const size_t n = kv_quotas_list(&d->quotas, out, capacity);
    pthread_mutex_unlock(&d->tenants_lock);
    return n;
}

void kv_forget(kv_disk *disk, const kv_name *name, const kv_entry *entry, kv_sum why)
{
    kv_index_remove(disk->index, name, entry);
    kv_account(disk, name, entry, -1);
    kv_count(disk, why, 1);
}

static void forget_sums(kv_disk *disk)
{
    static const kv_sum states[] = {KV_SUM_UNITS, KV_SUM_SNAPSHOTS, KV_SUM_LIVE_BYTES, KV_SUM_PINNED_BYTES};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        atomic_store_explicit(&disk->sums[states[i]], 0, memory_order_relaxed);
    }
    pthread_mutex_lock(&disk->tenants_lock);
    kv_quotas_fini(&disk->quotas);
    pthread_mutex_unlock(&disk->tenants_lock);
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
        s->live_bytes = 0;
        s->pinned_bytes = 0;
        s->n_live = 0;
    }
}

static bool is_expired(const kv_entry *entry, int64_t now)
{
    return entry->expiry_s != 0 && entry->expiry_s <= now && entry->pinned == 0;
}

/* Whether a record leads somewhere; else it is removed. */
static bool check_entry(kv_disk *disk, const kv_name *name, const kv_entry *entry, int64_t now)
{
    const kv_segment *const segment = kv_table_find(&disk->table, entry->segment);
    const bool expired = is_expired(entry, now);
    if (segment != NULL && !segment->doomed && !expired) {
        return true;
    }
    kv_count(disk, KV_SUM_EXPIRED, expired ? 1 : 0);
    kv_index_remove(disk->index, name, entry);
    return false;
}

void kv_recount(kv_disk *disk)
{
    const int64_t now = kv_now_s();
    kv_name name = {{0}};
    kv_entry entry;
    forget_sums(disk);
    if (!kv_index_begin(disk->index)) {
        return;
    }
    for (bool start = true; kv_index_next(disk->index, start, &name, &entry); start = false) {
        if (check_entry(disk, &name, &entry, now)) {
            kv_account(disk, &name, &entry, 1);
        }
    }
    (void)kv_index_commit(disk->index); /* what should have gone is met again later */
}

void kv_sweep(kv_disk *disk, int n)
{
    const int64_t now = kv_now_s();
    kv_entry entry;
    if (!kv_index_begin(disk->index)) {
        return;
    }
    while (n-- > 0) {
        if (!kv_index_next(disk->index, false, &disk->sweep_at, &entry)) {
            disk->sweep_at = (kv_name){{0}};
            break;
        }
        if (!check_entry(disk, &disk->sweep_at, &entry, now)) {
            kv_account(disk, &disk->sweep_at, &entry, -1);
        }
    }
    if (!kv_index_commit(disk->index)) {
        kv_recount(disk);
    }
}

int64_t kv_directory_bytes(const kv_disk *disk)
{
    int64_t sum = 0;
    const int fd = openat(disk->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return INT64_MAX / 2; /* unknown is full */
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char path[sizeof e->d_name + 16];
        struct stat st;
        uint64_t id;
        uint64_t nonce;
        const bool index = strncmp(e->d_name, "index-", 6) == 0;
        snprintf(path, sizeof path, index ? "%s/data.mdb" : "%s", e->d_name);
        if ((index || kv_segment_parse(e->d_name, &id, &nonce)) && fstatat(disk->dir, path, &st, 0) == 0) {
            sum += st.st_size;
        }
    }
    closedir(dir);
    return sum;
}
