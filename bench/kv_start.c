/* kv_start.c - the case `start` of bench_kv: how soon a directory of 100 GB can be asked. */
#include "kv_bench.h"

#include "core/core.h"
#include "cpu_bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SEGMENT_BYTES = 256 << 20 };

/* A full segment whose records are holes. */
static void make_segment(const kv_bench *b, uint64_t born, int64_t first, size_t n)
{
    const uint64_t nonce = born * 0x9E3779B97F4A7C15u;
    char name[KV_SEGMENT_NAME_BYTES];
    char path[sizeof b->path + sizeof name + 1];
    kv_listed *const listed = bench_need(calloc(n, sizeof *listed));
    kv_where where = {.segment = born, .nonce = nonce, .offset = n * kv_record_bytes(KV_BENCH_UNIT), .limit = UINT64_MAX};
    for (size_t i = 0; i < n; i++) {
        kv_bench_key(first + (int64_t)i, listed[i].key);
        listed[i].sequence = (uint64_t)(first + (int64_t)i + 1) << 8;
        listed[i].block = (uint32_t)(i * kv_record_bytes(KV_BENCH_UNIT) / KV_BLOCK);
        listed[i].bytes = KV_BENCH_UNIT;
        listed[i].tenant[0] = (uint8_t)(i % 16);
    }
    kv_head head = kv_head_at(&where, KV_REC_CATALOGUE);
    head.bytes = n * sizeof *listed;
    kv_head_seal(&head, listed);
    kv_segment_name(born, nonce, name);
    snprintf(path, sizeof path, "%s/%s", b->path, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    const uint64_t end = where.offset + kv_record_bytes(head.bytes);
    bool good = fd >= 0 && ftruncate(fd, (off_t)(end + KV_BLOCK)) == 0 &&
                pwrite(fd, &head, sizeof head, (off_t)where.offset) == (ssize_t)sizeof head &&
                pwrite(fd, listed, head.bytes, (off_t)(where.offset + sizeof head)) == (ssize_t)head.bytes;
    where.offset = end;
    head = kv_head_at(&where, KV_REC_TRAILER);
    head.aux = end - kv_record_bytes(n * sizeof *listed);
    kv_head_seal(&head, "");
    good = good && pwrite(fd, &head, sizeof head, (off_t)end) == (ssize_t)sizeof head;
    if (!good) {
        bench_fail("a file could not be written");
    }
    close(fd);
    free(listed);
}

static void make_segments(const kv_bench *b, int64_t n_records)
{
    const int64_t per_segment = SEGMENT_BYTES / (int64_t)kv_record_bytes(KV_BENCH_UNIT) - 2;
    uint64_t born = 1;
    for (int64_t first = 0; first < n_records; first += per_segment) {
        const int64_t n = n_records - first < per_segment ? n_records - first : per_segment;
        make_segment(b, born++, first, (size_t)n);
    }
}

/* Seconds until the store is open. */
static double open_once(kv_bench *b, int64_t n_records, bool rebuilds)
{
    kv_disk_counters c;
    kv_bench_open(b, SEGMENT_BYTES, 2 * n_records * KV_BENCH_UNIT + ((int64_t)16 << 30));
    kv_disk_get_counters(b->disk, &c);
    if (c.records[KV_DISK_UNIT] != n_records || c.rebuilt != rebuilds) {
        bench_fail("not every record was found");
    }
    kv_disk_close(b->disk);
    return (double)c.open_ns / 1e9;
}

/* A file of the index is on the disk, and none of it in memory. */
static void forget_pages(const kv_bench *b, const char *name)
{
    char path[sizeof b->path + 32];
    snprintf(path, sizeof path, "%s/index-00/%s", b->path, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        bench_fail("the index is not there");
    }
    close(fd);
}

void kv_bench_start(kv_bench *b, int64_t n_records)
{
    double rebuild[KV_BENCH_TURNS];
    double warm[KV_BENCH_TURNS];
    double cold[KV_BENCH_TURNS];
    char sum[sizeof b->path + 32];
    make_segments(b, n_records);
    snprintf(sum, sizeof sum, "%s/index-00/sum", b->path);
    for (int i = 0; i < KV_BENCH_TURNS; i++) {
        (void)unlink(sum); /* as after a crash */
        rebuild[i] = open_once(b, n_records, true);
        warm[i] = open_once(b, n_records, false);
        forget_pages(b, "data.mdb");
        cold[i] = open_once(b, n_records, false);
    }
    kv_bench_report_turns(b, "start", "rebuild", rebuild, "s", NULL, NULL);
    kv_bench_report_turns(b, "start", "index", warm, "s", NULL, NULL);
    kv_bench_report_turns(b, "start", "index/cold", cold, "s", NULL, NULL);
}
