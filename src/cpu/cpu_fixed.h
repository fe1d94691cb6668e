/* cpu_fixed.h - rows of FP4 products as integers.
 *
 * Lemma. Let a block of 32 activations be integer multiples of a power of two u, none above 32767 u in magnitude. Its
 * products with E2M1 codes are multiples of u / 2, none above 12 * 32767 of them, so every partial sum of 32 is an
 * integer below 2^24 times u / 2: fp32 holds it exactly, in whatever order it is added. The sum in integers, converted
 * once, is therefore the reference's sum, bit by bit, at half the instructions. Blocks that went through Q8 are like
 * that unless a value is below 2^-15 of the largest; those take the floating-point way. */
#ifndef CPU_CPU_FIXED_H
#define CPU_CPU_FIXED_H

#include <stddef.h>
#include <stdint.h>

/* A row of k inputs into its place in a group of g rows (cpu_group):
 *   fixed [k / 2][g][2]  multiples of u: inputs i and i + 4 of each eight, as the words of packed FP4 have them
 *   unit  [k / 32][g]    u / 2; 0 = the block is not exact, and its integers are 0
 * Both point to the row's first element. k is a multiple of 32. Needs AVX-512. */
void cpu_fix_row(const float *x, size_t k, size_t g, int16_t *fixed, float *unit);

#endif
