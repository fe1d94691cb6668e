/* cpu_bench.h - inside the bench of the CPU backend: lanes, cases, and who makes them. */
#ifndef BENCH_CPU_BENCH_H
#define BENCH_CPU_BENCH_H

#include "core/pool.h"
#include "ops/ops.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_BENCH_ROUNDS 7
#define CPU_BENCH_LANES 2
#define CPU_BENCH_CASES 64

/* A device and a pool with so many threads, and what they can do at most. */
typedef struct bench_lane {
    int threads;
    ops_device *dev;
    pool *pool;
    int read; /* cases of the ceilings */
    int compute;
} bench_lane;

typedef struct cpu_bench cpu_bench;

/* Does one measured piece of work and returns its amount: bytes read or multiply-adds. */
typedef double (*bench_work)(cpu_bench *b, const bench_lane *lane, const void *what);

typedef struct bench_case {
    char name[48];
    bench_lane *lane;
    bench_work work;
    const void *what;
    int ceiling;   /* case whose rate is the bound; itself for a ceiling */
    bool computes; /* multiply-adds instead of bytes */
    double rate[CPU_BENCH_ROUNDS];
} bench_case;

struct cpu_bench {
    bool json;
    char *const *words; /* names that were asked for */
    int n_words;
    bench_lane lanes[CPU_BENCH_LANES];
    uint8_t *data; /* what the read ceiling reads */
    size_t n_data;
    size_t at; /* part of `data` that comes next */
    float sink;
    bench_case cases[CPU_BENCH_CASES];
    int n_cases;
    int n_fixed; /* ceilings: they take part in every turn */
};

/* Ends the program with a message, or when p is NULL. */
_Noreturn void bench_fail(const char *what);
/* Likewise with its message, when it is one. */
void bench_must(di_status status, const di_error *err);
void *bench_need(void *p);
uint64_t bench_random(uint64_t *state);
double bench_median(const double values[CPU_BENCH_ROUNDS]);

/* n bytes of codes as trained weights have them: normally distributed, the largest of 1024 near the format's largest. */
void bench_fill_fp8(uint8_t *codes, size_t n, uint64_t *state);
void bench_fill_fp4(uint8_t *codes, size_t n, uint64_t *state);

/* A case is wanted when its name begins with one of the words, or there are none. */
bool bench_wanted(char *const *words, int n_words, const char *name);
int bench_add(cpu_bench *b, bench_lane *lane, const char *name, bench_work work, const void *what, int ceiling,
              bool computes);
/* Runs all cases in turns, reports those from `first` on and forgets all but the ceilings. */
void bench_run(cpu_bench *b, int first);

/* Ceilings of every lane (cpu_ceilings.c); products of released shapes (cpu_products.c); stages (cpu_stages.c). */
void bench_ceilings(cpu_bench *b);
void bench_products(cpu_bench *b);
void bench_stages(cpu_bench *b);

#endif
