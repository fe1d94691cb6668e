/* bench_kv.c - the disk tier of the KV cache: how fast it writes, restores and starts.
 *
 *   bench_kv [--json] [--only CASE] [MEGABYTES [RECORDS]]
 *
 * write    units of the released size (113,920 bytes) put one behind the other, acknowledged by the disk
 * restore  the same units read in the order of writing, 32 in flight, against fio's sequential read of the same files: same block size
 *          (a record with its padding), queue depth and O_DIRECT. A turn is ours, fio, fio, ours, so that who comes first counts
 *          for neither; a ratio belongs to one turn
 * start    opening a directory that lists RECORDS such units (877,808: 100 GB): from the catalogues of its segments, as after a crash
 *          (rebuild), and from the index that a clean close leaves (index; cold: none of it in memory). The segments are sparse:
 *          catalogues and trailers are real, records are holes
 *
 * Figures are medians of nine turns, with the least and the greatest. The directory is made in TMPDIR, or where temporary files go, and
 * removed at the end. */
#include "kv_bench.h"

#include "core/core.h"
#include "cpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENT_BYTES = 64 << 20 };

typedef struct writing {
    kv_disk_put put;
    kv_bench *owner;
    uint8_t *payload;
} writing;

static void put_next(writing *w);

static void written(kv_disk_op *op)
{
    writing *const w = op->user;
    w->owner->n_over++;
    w->owner->n_bad += w->put.verdict == KV_DISK_STORED ? 0 : 1;
    put_next(w);
}

static void put_next(writing *w)
{
    kv_bench *const b = w->owner;
    if (b->next < b->n) {
        w->put = (kv_disk_put){.op = {.done = written, .user = w}, .payload = w->payload, .bytes = KV_BENCH_UNIT};
        kv_bench_key(b->next++, w->put.key);
        if (!kv_disk_put_start(b->disk, &w->put)) {
            bench_fail("a put was refused");
        }
    }
}

static void bench_write(kv_bench *b)
{
    writing *const writings = bench_need(calloc(KV_BENCH_DEPTH, sizeof *writings));
    b->next = b->n_over = b->n_bad = 0;
    const int64_t start = clock_now_ns();
    for (int i = 0; i < KV_BENCH_DEPTH; i++) {
        writings[i] = (writing){.owner = b, .payload = bench_need(malloc(KV_BENCH_UNIT))};
        memset(writings[i].payload, i, KV_BENCH_UNIT);
        put_next(&writings[i]);
    }
    kv_bench_until_over(b);
    const double seconds = (double)(clock_now_ns() - start) / 1e9;
    for (int i = 0; i < KV_BENCH_DEPTH; i++) {
        free(writings[i].payload);
    }
    free(writings);
    kv_disk_counters c;
    kv_disk_get_counters(b->disk, &c);
    if (b->n_bad != 0) {
        bench_fail("puts failed");
    }
    kv_bench_report(b, "write", "throughput", (double)(b->n * KV_BENCH_UNIT) / seconds / 1e6, "MB/s", NULL, 0);
    kv_bench_report(b, "write", "amplification", (double)c.written_bytes / (double)c.stored_bytes, "ratio", NULL, 0);
}

int main(int argc, char **argv)
{
    kv_bench b = {.disk = NULL};
    int64_t sizes[2] = {512, 877808};
    int n_sizes = 0;
    const char *only = "";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b.json = true;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (n_sizes < 2) {
            sizes[n_sizes++] = strtoll(argv[i], NULL, 10);
        }
    }
    if (sizes[0] < 64 || sizes[0] > 1 << 20 || sizes[1] < 1 || sizes[1] > 1 << 26) {
        bench_fail("usage: bench_kv [--json] [--only write|restore|start] [MEGABYTES [RECORDS]]");
    }
    sem_init(&b.news, 0, 0);
    if (strcmp(only, "start") != 0) {
        const int64_t room = 4 * sizes[0] * 1000000 + 16 * (int64_t)SEGMENT_BYTES;
        kv_bench_make_directory(&b);
        b.n = sizes[0] * 1000000 / KV_BENCH_UNIT;
        kv_bench_open(&b, SEGMENT_BYTES, room);
        bench_write(&b);
        kv_disk_close(b.disk); /* so that fio reads files of their real size */
        if (strcmp(only, "write") != 0) {
            kv_bench_open(&b, SEGMENT_BYTES, room);
            kv_bench_restore(&b);
            kv_disk_close(b.disk);
        }
        kv_bench_remove_directory(&b);
    }
    if (*only == '\0' || strcmp(only, "start") == 0) {
        kv_bench_make_directory(&b);
        kv_bench_start(&b, sizes[1]);
        kv_bench_remove_directory(&b);
    }
    sem_destroy(&b.news);
    return 0;
}
