/* ceiling.h - what this machine can do at most: reading memory, fused multiply-adds, BF16 dot products. Benches divide
 * by these, measured in the same run. */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads n bytes, one or two streams, with or without prefetch: `way` < CEILING_READ_WAYS. Returns something that
 * depends on them. */
#define CEILING_READ_WAYS 4
uint64_t ceiling_read(const uint8_t *data, size_t n, int way);

/* n rounds of 24 independent chains over the widest vectors; multiply-adds done, 0 when the processor has no such
 * instruction. */
double ceiling_fma(size_t n, float *sink);
double ceiling_dot(size_t n, float *sink);

#endif
