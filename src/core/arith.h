/* arith.h - checked integer arithmetic for values that come from outside. True means "fits", result in *out. */
#ifndef CORE_ARITH_H
#define CORE_ARITH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline bool ar_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool ar_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* Zeroed array of n elements; NULL when n * size overflows or memory is short. n == 0 gives a non-NULL pointer. */
static inline void *ar_calloc(size_t n, size_t size)
{
    size_t bytes;
    if (!ar_mul(n, size, &bytes)) {
        return NULL;
    }
    return calloc(1, bytes != 0 ? bytes : 1);
}

/* The same for types that ask for a larger alignment than malloc gives; free() it. */
static inline void *ar_calloc_aligned(size_t n, size_t size, size_t alignment)
{
    size_t bytes;
    if (!ar_mul(n, size, &bytes) || bytes > SIZE_MAX - alignment) {
        return NULL;
    }
    bytes = (bytes / alignment + 1) * alignment;
    void *p = aligned_alloc(alignment, bytes);
    if (p != NULL) {
        memset(p, 0, bytes);
    }
    return p;
}

#endif
