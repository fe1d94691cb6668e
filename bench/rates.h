/* rates.h - what a number of threads can do at most: bytes read and multiply-adds, for benches that run whole steps. */
#ifndef BENCH_RATES_H
#define BENCH_RATES_H

#include "core/pool.h"

#include <stddef.h>
#include <stdint.h>

#define RATES_THREADS 64

/* Owner and thread: the bench's. */
typedef struct rates {
    pool *pool;
    int threads;
    int way; /* the best of ceiling_read's */
    uint8_t *data;
    size_t part; /* bytes of one reading */
    size_t parts;
    size_t at;
    double fma[RATES_THREADS];
    float sink[RATES_THREADS];
} rates;

/* A buffer of `parts` parts of `part` bytes on huge pages; each reading takes the next part. Ends the program without memory. */
void rates_open(rates *r, int threads, size_t part, size_t parts);
void rates_close(rates *r);

/* Bytes a nanosecond: the next part, each thread its share. */
double rates_read(rates *r);
/* fp32 multiply-adds a nanosecond. */
double rates_fma(rates *r);

/* One thread is measured in processor time, so that other programs count little; several in time that passes. */
int64_t rates_now_ns(int threads);

#endif
