/* kv_restore.c - the case `restore` of bench_kv: units read back in the order of writing, beside fio over the same files. */
#include "kv_bench.h"

#include "core/core.h"
#include "cpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    kv_disk_read read;
    kv_bench *owner;
    const kv_disk_found *found;
    const uint8_t (*keys)[KV_KEY_BYTES];
    uint8_t *out;
} reading;

/* ---- ours ---- */

static void read_next(reading *r);

static void was_read(kv_disk_op *op)
{
    reading *const r = op->user;
    r->owner->n_over++;
    r->owner->n_bad += op->status == DI_OK ? 0 : 1;
    read_next(r);
}

static void read_next(reading *r)
{
    kv_bench *const b = r->owner;
    if (b->next < b->n) {
        const int64_t i = b->next++;
        r->read = (kv_disk_read){.op = {.done = was_read, .user = r}, .place = r->found[i].unit, .out = r->out};
        memcpy(r->read.key, r->keys[i], sizeof r->read.key);
        kv_disk_read_start(b->disk, &r->read);
    }
}

static void found_all(kv_disk_op *op)
{
    *(bool *)op->user = true;
}

/* Seconds. Twice the depth is handed over, so that the next read waits in the store. */
static double restore_once(kv_bench *b, reading *readings)
{
    b->next = b->n_over = b->n_bad = 0;
    const int64_t start = clock_now_ns();
    for (int i = 0; i < 2 * KV_BENCH_DEPTH; i++) {
        read_next(&readings[i]);
    }
    kv_bench_until_over(b);
    if (b->n_bad != 0) {
        bench_fail("reads failed");
    }
    return (double)(clock_now_ns() - start) / 1e9;
}

/* ---- fio ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The command that reads the segments in the order of their writing; to be freed. */
static char *fio_command(const kv_bench *b)
{
    const size_t n = (size_t)b->disk->table.n;
    const size_t room = 512 + n * (sizeof b->path + KV_SEGMENT_NAME_BYTES + 2);
    char *const command = bench_need(malloc(room));
    const char **const names = bench_need(calloc(n, sizeof *names));
    size_t k = 0;
    for (const kv_segment *s = kv_table_next(&b->disk->table, NULL); s != NULL; s = kv_table_next(&b->disk->table, s)) {
        names[k++] = s->name;
    }
    qsort(names, n, sizeof *names, by_name);
    size_t at = (size_t)snprintf(command, room,
                                 "fio --name=restore --rw=read --direct=1 --ioengine=io_uring --iodepth=%d --bs=%zu --readonly "
                                 "--file_service_type=sequential --output-format=terse --terse-version=3 --filename=",
                                 KV_BENCH_DEPTH, (size_t)kv_record_bytes(KV_BENCH_UNIT));
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(command + at, room - at, "%s%s/%s", i == 0 ? "" : ":", b->path, names[i]);
    }
    snprintf(command + at, room - at, " 2>/dev/null");
    free(names);
    return command;
}

/* Bytes a second; 0: fio is not there. */
static double fio_once(const char *command)
{
    enum { BANDWIDTH = 6 }; /* fields before it, in KiB/s */
    char line[4096];
    FILE *const pipe = popen(command, "re");
    const char *field = pipe != NULL ? fgets(line, sizeof line, pipe) : NULL;
    for (int i = 0; i < BANDWIDTH && field != NULL; i++) {
        field = strchr(field, ';');
        field = field != NULL ? field + 1 : NULL;
    }
    const double kib = field != NULL ? strtod(field, NULL) : 0;
    if (pipe != NULL) {
        pclose(pipe);
    }
    return kib * 1024;
}

/* ---- both ---- */

static void take_turns(kv_bench *b, reading *readings, const char *command)
{
    double ours[KV_BENCH_TURNS];
    double theirs[KV_BENCH_TURNS];
    double ratio[KV_BENCH_TURNS];
    const double bytes = (double)(b->n * KV_BENCH_UNIT);
    bool is_there = true;
    for (int i = 0; i < KV_BENCH_TURNS; i++) {
        double seconds = restore_once(b, readings);
        const double before = fio_once(command);
        const double behind = fio_once(command);
        seconds += restore_once(b, readings);
        is_there = is_there && before > 0 && behind > 0;
        ours[i] = 2 * bytes / seconds / 1e6;
        theirs[i] = is_there ? 2 / (1 / before + 1 / behind) / 1e6 : 0; /* as long as both took */
        ratio[i] = is_there ? ours[i] / theirs[i] : 0;
    }
    kv_bench_report_turns(b, "restore", "throughput", ours, "MB/s", is_there ? "fio" : NULL, ratio);
    if (is_there) {
        kv_bench_report_turns(b, "restore/fio", "throughput", theirs, "MB/s", NULL, NULL);
    } else {
        fprintf(stderr, "bench_kv: fio is not there: no baseline (packaging/apt-bench.txt)\n");
    }
}

/* Finds every unit, with leases. */
static void find_all(kv_bench *b, kv_disk_find *find)
{
    bool over = false;
    find->op = (kv_disk_op){.done = found_all, .user = &over};
    kv_disk_find_start(b->disk, find);
    while (!over) {
        sem_wait(&b->news);
        kv_disk_poll(b->disk);
    }
    if (find->n_units != b->n) {
        bench_fail("not every unit was found");
    }
}

void kv_bench_restore(kv_bench *b)
{
    uint8_t(*const keys)[KV_KEY_BYTES] = bench_need(calloc((size_t)b->n, sizeof *keys));
    kv_disk_found *const found = bench_need(calloc((size_t)b->n, sizeof *found));
    reading *const readings = bench_need(calloc(2 * KV_BENCH_DEPTH, sizeof *readings));
    for (int64_t i = 0; i < b->n; i++) {
        kv_bench_key(i, keys[i]);
    }
    kv_disk_find find = {.keys = (const uint8_t(*)[KV_KEY_BYTES])keys, .n = b->n, .found = found};
    find_all(b, &find);
    for (int i = 0; i < 2 * KV_BENCH_DEPTH; i++) {
        readings[i] = (reading){.owner = b, .found = found, .keys = find.keys, .out = bench_need(malloc(KV_BENCH_UNIT))};
    }
    char *const command = fio_command(b);
    take_turns(b, readings, command);
    free(command);
    kv_disk_release(b->disk, &find);
    for (int i = 0; i < 2 * KV_BENCH_DEPTH; i++) {
        free(readings[i].out);
    }
    free(readings);
    free(found);
    free(keys);
}
