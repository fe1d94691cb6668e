/* cpu_dot.h - products as dot products of BF16 pairs.
 *
 * The instruction adds the product of the second values of two pairs to a sum, rounds, adds that of the first values,
 * and rounds again: two fused multiply-adds, and with pairs turned round it is the reference's order of sums (32
 * inputs, ascending). It differs in one way: values below 2^-126 count as zero. They do not come up when every value
 * is zero or of at least 2^CPU_DOT_MIN: its last bit is 2^(CPU_DOT_MIN - 7) or more, so that every product and every
 * rounded sum is a multiple of 2^(2 CPU_DOT_MIN - 14), which is above 2^-126. Rows with other values take the
 * floating-point way. */
#ifndef CPU_CPU_DOT_H
#define CPU_CPU_DOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_DOT_MIN (-55) /* values are zero, or from 2^CPU_DOT_MIN on */
#define CPU_DOT_MAX 55    /* and below 2^CPU_DOT_MAX */

/* A row of k inputs into its place in a group of g rows (cpu_group): pairs[i * g] = inputs 2i (upper half) and 2i + 1.
 * False = a value is no BF16, or outside of the limits; pairs then hold something else. k is a multiple of 32. Needs
 * AVX-512. */
bool cpu_dot_row(const float *x, size_t k, size_t g, uint32_t *pairs);

/* Does this processor's instruction add as described? Needs AVX-512 BF16. */
bool cpu_dot_is_exact(void);

#endif
