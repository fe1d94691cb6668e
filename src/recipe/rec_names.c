/* rec_names.c - a dictionary of names: open addressing at a load of at most one half.
 *
 * Names come from users, so the hash (XXH3) takes a random seed: nobody can choose names that fall on one slot. The order of
 * indexes is the order of adding and does not depend on the seed. */
#include "core/digest.h"
#include "recipe/rec_int.h"

#include <sys/random.h>

bool rec_names_init(rec_names *names, di_request *r, size_t capacity)
{
    size_t n_slots = 8;
    while (n_slots / 2 < capacity && n_slots <= UINT32_MAX / 2) {
        n_slots *= 2;
    }
    *names = (rec_names){.n_slots = n_slots};
    if (capacity > UINT32_MAX / 4) {
        return false;
    }
    if (getrandom(&names->seed, sizeof names->seed, 0) != (ssize_t)sizeof names->seed) {
        names->seed = (uint64_t)(uintptr_t)names; /* early at boot: the address varies too */
    }
    names->keys = arena_alloc(&r->memory, capacity, sizeof *names->keys);
    names->slots = arena_alloc(&r->memory, n_slots, sizeof *names->slots);
    return names->keys != NULL && names->slots != NULL;
}

/* The slot of the name, or the free one where it belongs. */
static size_t slot_of(const rec_names *names, rec_str name)
{
    const size_t mask = names->n_slots - 1;
    size_t i = (size_t)digest_hash(name.data, name.size, names->seed) & mask;
    while (names->slots[i] != 0 && !rec_str_equal(names->keys[names->slots[i] - 1], name)) {
        i = (i + 1) & mask;
    }
    return i;
}

size_t rec_names_find(const rec_names *names, rec_str name)
{
    const uint32_t entry = names->n > 0 ? names->slots[slot_of(names, name)] : 0;
    return entry != 0 ? entry - 1 : SIZE_MAX;
}

size_t rec_names_add(rec_names *names, rec_str name)
{
    const size_t slot = slot_of(names, name);
    if (names->slots[slot] != 0) {
        return SIZE_MAX;
    }
    names->keys[names->n] = name;
    names->slots[slot] = (uint32_t)++names->n;
    return names->n - 1;
}
