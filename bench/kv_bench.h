/* kv_bench.h - inside the bench of the disk tier: one store and what runs in it, figures, and who measures them. */
#ifndef BENCH_KV_BENCH_H
#define BENCH_KV_BENCH_H

#include "kv/kv_disk_int.h"

#include <semaphore.h>

enum { KV_BENCH_UNIT = 128 * 890, KV_BENCH_DEPTH = 32, KV_BENCH_TURNS = 9 };

typedef struct kv_bench { /* owner and thread: main's */
    bool json;
    char path[256]; /* the directory of the case */
    kv_disk *disk;
    sem_t news;
    int64_t n;      /* units */
    int64_t next;   /* to be begun */
    int64_t n_over; /* done */
    int64_t n_bad;
} kv_bench;

/* A directory of its own in TMPDIR, or where temporary files go. */
void kv_bench_make_directory(kv_bench *b);
void kv_bench_remove_directory(kv_bench *b);
void kv_bench_open(kv_bench *b, int64_t segment_bytes, int64_t max_bytes);
void kv_bench_until_over(kv_bench *b);
void kv_bench_key(int64_t i, uint8_t out[KV_KEY_BYTES]);

/* One figure; baseline NULL: it has none. */
void kv_bench_report(const kv_bench *b, const char *name, const char *metric, double value, const char *unit, const char *baseline,
                     double ratio);
/* The median of values with the one of ratios, then least and greatest ratio with the values they belong to. Sorts nothing. */
void kv_bench_report_turns(const kv_bench *b, const char *name, const char *metric, const double *values, const char *unit,
                           const char *baseline, const double *ratios);
double kv_bench_median(const double values[KV_BENCH_TURNS]);

void kv_bench_restore(kv_bench *b);                   /* kv_restore.c: the units that the store holds */
void kv_bench_start(kv_bench *b, int64_t n_records); /* kv_start.c */

#endif
