/* ops_exp.h - e^x of many values, the same bits on every machine.
 *
 * Attention and the experts take an exponential for every slot and channel, and the C library's function is neither a
 * loop that a compiler can vectorise nor the same in every version. This one works in double and rounds once, so it is
 * within 0.5001 ulp of the true value. */
#ifndef OPS_OPS_EXP_H
#define OPS_OPS_EXP_H

#include <stddef.h>

/* y[i] = e^x[i]; y may be x. Too large a value gives infinity, too small a one 0 or a subnormal, a NaN a NaN. */
void ops_exp(const float *x, size_t n, float *y);

#endif
