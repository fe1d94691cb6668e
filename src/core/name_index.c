/* name_index.c - see name_index.h. Bottom-up merge sort: stable, no recursion, no allocation. */
#include "core/name_index.h"

#include <string.h>

static int compare(const char *a, size_t a_size, const char *b, size_t b_size)
{
    const size_t common = a_size < b_size ? a_size : b_size;
    const int order = common != 0 ? memcmp(a, b, common) : 0;
    if (order != 0) {
        return order;
    }
    return a_size < b_size ? -1 : a_size > b_size;
}

static int compare_at(const void *names, nix_name_fn name_of, uint32_t i, uint32_t j)
{
    size_t i_size;
    size_t j_size;
    const char *const a = name_of(names, i, &i_size);
    const char *const b = name_of(names, j, &j_size);
    return compare(a, i_size, b, j_size);
}

/* Merges order[begin..middle) and order[middle..end), both sorted. */
static void merge(const void *names, nix_name_fn name_of, uint32_t *order, uint32_t *scratch, size_t begin, size_t middle,
                  size_t end)
{
    if (compare_at(names, name_of, order[middle - 1], order[middle]) <= 0) {
        return;
    }
    const size_t n_left = middle - begin;
    memcpy(scratch, order + begin, n_left * sizeof *order);
    size_t left = 0;
    size_t right = middle;
    size_t out = begin;
    while (left < n_left && right < end) {
        const bool take_left = compare_at(names, name_of, scratch[left], order[right]) <= 0;
        order[out++] = take_left ? scratch[left++] : order[right++];
    }
    memcpy(order + out, scratch + left, (n_left - left) * sizeof *order);
}

void nix_sort(const void *names, nix_name_fn name_of, uint32_t *order, uint32_t *scratch, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)i;
    }
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t begin = 0; n - begin > run; begin += 2 * run) {
            const size_t middle = begin + run;
            const size_t end = n - middle > run ? middle + run : n;
            merge(names, name_of, order, scratch, begin, middle, end);
            if (end == n) {
                break;
            }
        }
    }
}

size_t nix_duplicate(const void *names, nix_name_fn name_of, const uint32_t *order, size_t n)
{
    for (size_t k = 1; k < n; k++) {
        if (compare_at(names, name_of, order[k - 1], order[k]) == 0) {
            return k;
        }
    }
    return 0;
}

size_t nix_find(const void *names, nix_name_fn name_of, const uint32_t *order, size_t n, const char *name, size_t size)
{
    size_t low = 0;
    size_t high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        size_t middle_size;
        const char *const text = name_of(names, order[middle], &middle_size);
        const int order_of = compare(name, size, text, middle_size);
        if (order_of == 0) {
            return order[middle];
        }
        if (order_of < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return n;
}
