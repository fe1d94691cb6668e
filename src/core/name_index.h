/* name_index.h - finds names in an array by binary search, and finds duplicates.
 *
 * Used for keys and tensor names of outside origin. A sorted order instead of a hash table: no input makes it slow (no hash
 * flooding), it needs four bytes a name, and names that are already sorted cost one comparison each. */
#ifndef CORE_NAME_INDEX_H
#define CORE_NAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Name i of the caller's array. */
typedef const char *(*nix_name_fn)(const void *names, size_t i, size_t *size);

/* Fills order[0..n) with 0..n-1 sorted by name, equal names by index. `scratch` has room for n. */
void nix_sort(const void *names, nix_name_fn name_of, uint32_t *order, uint32_t *scratch, size_t n);

/* First place k > 0 of `order` whose name equals the one before it, or 0 when all names differ. */
size_t nix_duplicate(const void *names, nix_name_fn name_of, const uint32_t *order, size_t n);

/* Index of the name in the caller's array, or n when absent. */
size_t nix_find(const void *names, nix_name_fn name_of, const uint32_t *order, size_t n, const char *name, size_t size);

#endif
