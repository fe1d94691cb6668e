/* order.c - see order.h. */
#include "order.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

int bench_by_int64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int bench_by_double(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_spread bench_spread_of(double *values, size_t n)
{
    const double middle = (double)n / 2;
    const double low = floor(middle - 0.98 * sqrt((double)n));
    const double high = ceil(middle + 0.98 * sqrt((double)n)) - 1;
    qsort(values, n, sizeof *values, bench_by_double);
    return (bench_spread){.median = values[n / 2],
                          .low = values[low > 0 ? (size_t)low : 0],
                          .high = values[high < (double)n ? (size_t)high : n - 1]};
}
