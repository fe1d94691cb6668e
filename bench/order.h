/* order.h - the smaller first, for qsort: measured times, rates and ratios. */
#ifndef BENCH_ORDER_H
#define BENCH_ORDER_H

int bench_by_int64(const void *a, const void *b);
int bench_by_double(const void *a, const void *b); /* no NaN among them */

#endif
