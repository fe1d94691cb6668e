/* order.h - the smaller first, for qsort: measured times, rates and ratios; and how sure their median is. */
#ifndef BENCH_ORDER_H
#define BENCH_ORDER_H

#include <stddef.h>

int bench_by_int64(const void *a, const void *b);
int bench_by_double(const void *a, const void *b); /* no NaN among them */

typedef struct bench_spread {
    double median;
    double low; /* of the median, 95 % */
    double high;
} bench_spread;

/* The interval lies between the order statistics n / 2 -+ 0.98 sqrt(n) (normal approximation of the binomial). Sorts the values. */
bench_spread bench_spread_of(double *values, size_t n);

#endif
