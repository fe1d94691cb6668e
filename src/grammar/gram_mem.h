/* gram_mem.h - memory and work of one grammar, both bounded.
 *
 * A grammar grows while it is used: automata are built state by state, as far as texts ask for them. All of that lives in one arena
 * with a budget, and every unit of work is paid with fuel, so that no schema or expression takes the process down (10 of the
 * specification). The first failure is kept: from then on nothing is computed any more, functions return id 0, and whoever called in
 * from outside asks gram_failed before it believes a result. That keeps the code between free of error paths.
 *
 * Owner: the grammar. Thread: whoever holds the grammar's lock. */
#ifndef GRAMMAR_GRAM_MEM_H
#define GRAMMAR_GRAM_MEM_H

#include "core/arena.h"
#include "core/arith.h"
#include "core/err.h"

#define GRAM_NONE UINT32_MAX

typedef struct gram_mem {
    arena mem;
    int64_t fuel;       /* units that may still be spent */
    int64_t spent;      /* since the start */
    int64_t deadline;   /* clock_now_ns, 0 = none; looked at now and then */
    bool (*cancelled)(void *user); /* NULL = never */
    void *user;
    int64_t next_look;  /* value of `spent` at which to look at clock and caller again */
    uint32_t depth;     /* of nested calls */
    uint64_t seed;      /* of hashes, so that no input can choose its collisions */
    di_error failure;   /* code DI_OK while all is well */
    const char *fault;  /* what kind of failure, "" = the status says it all ("invalid_regex"; deepinfer/grammar.h) */
    char where[256];    /* in what was given: a JSON pointer, or "" */
    int64_t offset;     /* byte in the expression or grammar, -1 = none */
} gram_mem;

void gram_mem_init(gram_mem *m, size_t max_bytes);
void gram_mem_fini(gram_mem *m);

static inline bool gram_failed(const gram_mem *m) { return __builtin_expect(m->failure.code != DI_OK, 0); }

/* Keeps the failure if it is the first. */
#define gram_fail(m, code, ...) gram_fail_at((m), (code), __FILE__, __LINE__, __VA_ARGS__)
void gram_fail_at(gram_mem *m, di_status code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A fault of what was given, of a kind that programs can tell. `offset` as in gram_mem. */
#define gram_fault(m, code, kind, offset, ...) gram_fault_at((m), (code), (kind), (offset), __FILE__, __LINE__, __VA_ARGS__)
void gram_fault_at(gram_mem *m, di_status code, const char *kind, int64_t offset, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

/* The kept failure. */
di_status gram_status(const gram_mem *m, di_error *err);

/* Pays for work. False when something has failed, now or before. */
bool gram_spend(gram_mem *m, int64_t units);

/* Nested calls over input from outside: false when they are too deep. Each success needs a gram_leave. */
#define GRAM_MAX_NESTED 1500u
bool gram_enter(gram_mem *m);
static inline void gram_leave(gram_mem *m) { m->depth--; }

/* Zeroed memory; NULL after a failure. */
void *gram_alloc(gram_mem *m, size_t count, size_t size);

/* Room for at least one more element behind n of them: `array` itself, or a larger copy. NULL after a failure, then `array` stays. */
void *gram_grow(gram_mem *m, void *array, uint32_t n, uint32_t *capacity, size_t size);

/* --- A growing array that never moves, so that it may be read while it grows -------------------------------------- */

#define GRAM_CHUNK_LOG2 9u
#define GRAM_MAX_CHUNKS 1024u /* half a million elements */

typedef struct gram_chunks {
    void *dir[GRAM_MAX_CHUNKS];
    uint32_t n;
} gram_chunks;

static inline void *gram_chunk_at(const gram_chunks *c, uint32_t i, size_t size)
{
    return (char *)c->dir[i >> GRAM_CHUNK_LOG2] + (size_t)(i & ((1u << GRAM_CHUNK_LOG2) - 1)) * size;
}

/* Adds a zeroed element and returns its index, GRAM_NONE after a failure. */
uint32_t gram_chunks_add(gram_mem *m, gram_chunks *c, size_t size);

/* --- Interning ---------------------------------------------------------------------------------------------------- */

/* Tuples of words: equal ones have one id, ids count from 0. Everything that is compared by identity here is such a tuple. */
typedef struct gram_tuples {
    uint32_t *slots;      /* id + 1, 0 = empty; a power of two, at most half full */
    uint32_t n_slots;
    uint32_t *hashes;     /* [n] */
    const uint32_t **at;  /* [n] length, then words */
    uint32_t n;
    uint32_t capacity;
    uint32_t hash_capacity;
} gram_tuples;

/* The id of words[0, n). *is_new (may be NULL) tells whether it was added. 0 after a failure. */
uint32_t gram_tuple(gram_mem *m, gram_tuples *t, const uint32_t *words, uint32_t n, bool *is_new);

/* GRAM_NONE when it is not there. */
uint32_t gram_tuple_find(const gram_mem *m, const gram_tuples *t, const uint32_t *words, uint32_t n);

static inline const uint32_t *gram_tuple_at(const gram_tuples *t, uint32_t id, uint32_t *n)
{
    *n = t->at[id][0];
    return t->at[id] + 1;
}

/* --- A stack of words for work in progress ------------------------------------------------------------------------ */

typedef struct gram_stack {
    uint32_t *words;
    uint32_t n;
    uint32_t capacity;
} gram_stack;

static inline bool gram_push(gram_mem *m, gram_stack *s, uint32_t word)
{
    if (s->n == s->capacity) {
        uint32_t *grown = gram_grow(m, s->words, s->n, &s->capacity, sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        s->words = grown;
    }
    s->words[s->n++] = word;
    return true;
}

#endif
