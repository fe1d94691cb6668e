/* gram_mem.c - see gram_mem.h. */
#include "grammar/gram_mem.h"

#include "core/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>

#define LOOK_EVERY 8192 /* units; well below a millisecond */

void gram_mem_init(gram_mem *m, size_t max_bytes)
{
    *m = (gram_mem){.fuel = INT64_MAX, .next_look = LOOK_EVERY, .fault = "", .offset = -1};
    arena_init(&m->mem, max_bytes);
    if (getrandom(&m->seed, sizeof m->seed, GRND_NONBLOCK) != (ssize_t)sizeof m->seed) {
        m->seed = (uint64_t)clock_now_ns();
    }
}

void gram_mem_fini(gram_mem *m)
{
    arena_fini(&m->mem);
}

void gram_fail_at(gram_mem *m, di_status code, const char *file, int line, const char *format, ...)
{
    if (gram_failed(m)) {
        return;
    }
    char text[sizeof m->failure.message];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)err_set_at(&m->failure, code, file, line, "%s", text);
}

void gram_fault_at(gram_mem *m, di_status code, const char *kind, int64_t offset, const char *file, int line, const char *format, ...)
{
    if (gram_failed(m)) {
        return;
    }
    char text[sizeof m->failure.message];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)err_set_at(&m->failure, code, file, line, "%s", text);
    m->fault = kind;
    m->offset = offset;
}

di_status gram_status(const gram_mem *m, di_error *err)
{
    if (err != NULL && gram_failed(m)) {
        *err = m->failure;
    }
    return m->failure.code;
}

static void look_around(gram_mem *m)
{
    m->next_look = m->spent + LOOK_EVERY;
    if (m->cancelled != NULL && m->cancelled(m->user)) {
        gram_fail(m, DI_E_CANCELLED, "the grammar was cancelled");
    } else if (m->deadline != 0 && clock_now_ns() > m->deadline) {
        gram_fail(m, DI_E_LIMIT, "the grammar took too long");
    }
}

bool gram_spend(gram_mem *m, int64_t units)
{
    if (gram_failed(m)) {
        return false;
    }
    m->spent += units;
    m->fuel -= units;
    if (m->fuel < 0) {
        gram_fail(m, DI_E_LIMIT, "the grammar is too complex: %lld units of work were not enough", (long long)m->spent);
    } else if (m->spent >= m->next_look) {
        look_around(m);
    }
    return !gram_failed(m);
}

bool gram_enter(gram_mem *m)
{
    if (m->depth >= GRAM_MAX_NESTED) {
        gram_fail(m, DI_E_LIMIT, "the grammar is too complex: nested more than %u levels deep", GRAM_MAX_NESTED);
    }
    if (gram_failed(m)) {
        return false;
    }
    m->depth++;
    return true;
}

void *gram_alloc(gram_mem *m, size_t count, size_t size)
{
    if (gram_failed(m)) {
        return NULL;
    }
    void *p = arena_alloc(&m->mem, count, size);
    if (p == NULL && m->mem.over_budget) {
        gram_fail(m, DI_E_LIMIT, "the grammar needs more memory than its budget of %zu bytes", m->mem.max);
    } else if (p == NULL) {
        (void)err_memory(&m->failure, "grammar", count * size);
    }
    return p;
}

void *gram_grow(gram_mem *m, void *array, uint32_t n, uint32_t *capacity, size_t size)
{
    if (n < *capacity) {
        return array;
    }
    const uint32_t more = *capacity < 8 ? 16 : *capacity * 2;
    if (more <= *capacity) {
        gram_fail(m, DI_E_LIMIT, "the grammar is too large");
        return NULL;
    }
    void *grown = gram_alloc(m, more, size);
    if (grown != NULL) {
        if (n != 0) {
            memcpy(grown, array, (size_t)n * size);
        }
        *capacity = more;
    }
    return grown;
}

uint32_t gram_chunks_add(gram_mem *m, gram_chunks *c, size_t size)
{
    const uint32_t chunk = c->n >> GRAM_CHUNK_LOG2;
    if (chunk == GRAM_MAX_CHUNKS) {
        gram_fail(m, DI_E_LIMIT, "the grammar has too many states");
    }
    if (gram_failed(m)) {
        return GRAM_NONE;
    }
    if (c->dir[chunk] == NULL) {
        c->dir[chunk] = gram_alloc(m, (size_t)1 << GRAM_CHUNK_LOG2, size);
        if (c->dir[chunk] == NULL) {
            return GRAM_NONE;
        }
    }
    return c->n++;
}

static uint32_t hash_words(uint64_t seed, const uint32_t *words, uint32_t n)
{
    uint64_t h = seed ^ n;
    for (uint32_t i = 0; i < n; i += 2) { /* two at once: lists of words are long */
        const uint64_t second = i + 1 < n ? words[i + 1] : 0;
        h = (h ^ words[i] ^ second << 32) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return (uint32_t)(h ^ h >> 29);
}

static uint32_t find_slot(const gram_tuples *t, uint32_t hash, const uint32_t *words, uint32_t n)
{
    uint32_t slot = hash & (t->n_slots - 1);
    for (;; slot = (slot + 1) & (t->n_slots - 1)) {
        const uint32_t id = t->slots[slot];
        if (id == 0) {
            return slot;
        }
        if (t->hashes[id - 1] == hash && t->at[id - 1][0] == n &&
            (n == 0 || memcmp(t->at[id - 1] + 1, words, (size_t)n * sizeof *words) == 0)) {
            return slot;
        }
    }
}

static bool make_room(gram_mem *m, gram_tuples *t)
{
    if (t->n_slots != 0 && t->n < t->n_slots / 2) {
        return true;
    }
    const uint32_t n_slots = t->n_slots != 0 ? t->n_slots * 2 : 32;
    uint32_t *slots = gram_alloc(m, n_slots, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (uint32_t id = 0; id < t->n; id++) {
        uint32_t slot = t->hashes[id] & (n_slots - 1);
        while (slots[slot] != 0) {
            slot = (slot + 1) & (n_slots - 1);
        }
        slots[slot] = id + 1;
    }
    t->slots = slots;
    t->n_slots = n_slots;
    return true;
}

uint32_t gram_tuple(gram_mem *m, gram_tuples *t, const uint32_t *words, uint32_t n, bool *is_new)
{
    if (is_new != NULL) {
        *is_new = false;
    }
    if (gram_failed(m) || !make_room(m, t)) {
        return 0;
    }
    const uint32_t hash = hash_words(m->seed, words, n);
    const uint32_t slot = find_slot(t, hash, words, n);
    if (t->slots[slot] != 0) {
        return t->slots[slot] - 1;
    }
    uint32_t *copy = gram_alloc(m, (size_t)n + 1, sizeof *copy);
    const uint32_t **at = gram_grow(m, t->at, t->n, &t->capacity, sizeof *at);
    t->at = at != NULL ? at : t->at;
    uint32_t *hashes = gram_grow(m, t->hashes, t->n, &t->hash_capacity, sizeof *hashes);
    t->hashes = hashes != NULL ? hashes : t->hashes;
    if (copy == NULL || at == NULL || hashes == NULL) {
        return 0;
    }
    copy[0] = n;
    if (n != 0) {
        memcpy(copy + 1, words, (size_t)n * sizeof *words);
    }
    t->at[t->n] = copy;
    t->hashes[t->n] = hash;
    t->slots[slot] = ++t->n;
    if (is_new != NULL) {
        *is_new = true;
    }
    return t->n - 1;
}

uint32_t gram_tuple_find(const gram_mem *m, const gram_tuples *t, const uint32_t *words, uint32_t n)
{
    if (t->n_slots == 0) {
        return GRAM_NONE;
    }
    const uint32_t slot = find_slot(t, hash_words(m->seed, words, n), words, n);
    return t->slots[slot] != 0 ? t->slots[slot] - 1 : GRAM_NONE;
}
