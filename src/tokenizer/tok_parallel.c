/* tok_parallel.c - encoding one long text with several threads; the ids are those of di_tokenizer_encode (tokenizer.md 8).
 *
 * The text is cut into chunks where parts are known to encode like the whole. Threads take the next chunk until none is left, so
 * that one that is slow (rare words, another program) does not hold up the others. Where added tokens are
 * recognised, chunks end at line starts only, and no spelling may contain a line feed: then none lies across a cut.
 *
 * Ids of a chunk wait in memory of their own until it is known how many come before them, and are then put together, again
 * by all threads. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/pool.h"
#include "core/utf8.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK_BYTES ((size_t)512 << 10)
#define MAX_THREADS 64

typedef struct chunk {
    size_t begin;
    size_t end;
    int32_t *ids;
    size_t n_ids;
    size_t first; /* number of ids in the chunks before */
} chunk;

typedef struct job {
    const di_tokenizer *tok;
    const uint8_t *s;
    size_t n;
    unsigned flags;
    chunk *chunks;
    size_t n_chunks;
    size_t longest; /* chunk, bytes */
    _Atomic size_t next;
    _Atomic bool invalid; /* UTF-8 */
    _Atomic bool short_of_memory;
    int32_t *ids;
    size_t capacity;
} job;

/* Start of the character that s[i] belongs to, or near it where the text is not valid. */
static size_t character_start(const job *j, size_t i)
{
    size_t start = i < j->n ? i : j->n;
    for (int back = 0; back < 3 && start > 0 && start < j->n && (j->s[start] & 0xC0) == 0x80; back++) {
        start--;
    }
    return start;
}

/* Items are chunks' worth of bytes. */
static void validate(void *arg, size_t begin, size_t end, int thread)
{
    job *const j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const size_t from = character_start(j, i * CHUNK_BYTES);
        const size_t to = character_start(j, (i + 1) * CHUNK_BYTES);
        if (utf8_valid_prefix(j->s + from, to - from) != to - from) {
            atomic_store(&j->invalid, true);
        }
    }
}

static bool spelling_has_line_feed(const di_tokenizer *tok)
{
    bool found = false;
    for (uint32_t i = 1; i < tok->added.n_nodes; i++) {
        found = found || tok->added.nodes[i].byte == '\n';
    }
    return found;
}

/* Without a cut a chunk grows; what was searched is not searched again. */
static size_t chunk_end(const job *j, size_t begin)
{
    for (size_t from = begin; j->n - from > CHUNK_BYTES;) {
        const size_t at = character_start(j, from + CHUNK_BYTES);
        const size_t cut = (j->flags & DI_ENCODE_SPECIAL) != 0 ? tok_line_before(j->s, j->n, from, at)
                                                               : tok_cut_before(j->s, j->n, from, at);
        if (cut != from) {
            return cut;
        }
        from = at;
    }
    return j->n;
}

static void make_chunks(job *j, size_t max)
{
    for (size_t begin = 0; begin < j->n;) {
        const size_t end = j->n_chunks + 1 < max ? chunk_end(j, begin) : j->n;
        j->chunks[j->n_chunks++] = (chunk){.begin = begin, .end = end};
        j->longest = end - begin > j->longest ? end - begin : j->longest;
        begin = end;
    }
}

static bool encode_chunk(const job *j, tok_scratch *scratch, int32_t *room, chunk *c)
{
    tok_out out = {.ids = room, .capacity = c->end - c->begin};
    if (!tok_encode_text(j->tok, scratch, j->s, j->n, c->begin, c->end, j->flags, &out)) {
        return false;
    }
    c->n_ids = out.n;
    c->ids = ar_calloc(out.n, sizeof *c->ids);
    if (c->ids == NULL) {
        return false;
    }
    memcpy(c->ids, room, out.n * sizeof *c->ids);
    return true;
}

/* One item a thread: the items are only there to start it. */
static void encode_chunks(void *arg, size_t begin, size_t end, int thread)
{
    job *const j = arg;
    (void)begin;
    (void)end;
    (void)thread;
    tok_scratch *const scratch = tok_scratch_take(j->tok);
    int32_t *const room = ar_calloc(j->longest, sizeof *room);
    bool done = scratch != NULL && room != NULL;
    while (done) {
        const size_t i = atomic_fetch_add(&j->next, 1);
        if (i >= j->n_chunks) {
            break;
        }
        done = encode_chunk(j, scratch, room, &j->chunks[i]);
    }
    if (!done) {
        atomic_store(&j->short_of_memory, true);
        atomic_store(&j->next, j->n_chunks);
    }
    free(room);
    if (scratch != NULL) {
        tok_scratch_give(j->tok, scratch);
    }
}

static void gather(void *arg, size_t begin, size_t end, int thread)
{
    const job *const j = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const chunk *const c = &j->chunks[i];
        if (c->first < j->capacity) {
            const size_t room = j->capacity - c->first;
            memcpy(j->ids + c->first, c->ids, (c->n_ids < room ? c->n_ids : room) * sizeof *j->ids);
        }
    }
}

static di_status run(job *j, pool *threads, size_t *n_ids, di_error *err)
{
    size_t total = 0;
    pool_run(threads, (size_t)pool_threads(threads), encode_chunks, j);
    if (atomic_load(&j->short_of_memory)) {
        return err_memory(err, "encoding of text", j->n);
    }
    for (size_t i = 0; i < j->n_chunks; i++) {
        j->chunks[i].first = total;
        total += j->chunks[i].n_ids;
    }
    pool_run(threads, j->n_chunks, gather, j);
    *n_ids = total;
    return DI_OK;
}

di_status di_tokenizer_encode_parallel(const di_tokenizer *tokenizer, const char *text, size_t n, unsigned flags, int n_threads,
                                       int32_t *ids, size_t capacity, size_t *n_ids, di_error *err)
{
    pool *threads = NULL;
    job j = {
        .tok = tokenizer, .s = (const uint8_t *)text, .n = n, .flags = flags, .ids = ids, .capacity = capacity,
    };
    if (n_threads < 0 || n_threads > MAX_THREADS) {
        return err_set(err, DI_E_ARGUMENT, "%d threads: must be 0 (one for each processor) or 1..%d", n_threads, MAX_THREADS);
    }
    if (n_threads == 1 || n < 2 * CHUNK_BYTES || n > TOK_MAX_TEXT || (flags & ~(unsigned)DI_ENCODE_SPECIAL) != 0 ||
        (flags != 0 && spelling_has_line_feed(tokenizer))) {
        return di_tokenizer_encode(tokenizer, text, n, flags, ids, capacity, n_ids, err);
    }
    di_status status = pool_new(n_threads, &threads, err);
    if (status != DI_OK) {
        return status;
    }
    const size_t max_chunks = 3 * (n / CHUNK_BYTES + 2); /* some are shorter than CHUNK_BYTES, but no three in a row */
    pool_run(threads, n / CHUNK_BYTES + 1, validate, &j);
    if (atomic_load(&j.invalid)) {
        status = di_tokenizer_encode(tokenizer, text, n, flags, ids, capacity, n_ids, err);
    } else if ((j.chunks = ar_calloc(max_chunks, sizeof *j.chunks)) == NULL) {
        status = err_memory(err, "encoding of text", max_chunks * sizeof *j.chunks);
    } else {
        make_chunks(&j, max_chunks);
        status = run(&j, threads, n_ids, err);
    }
    for (size_t i = 0; i < j.n_chunks; i++) {
        free(j.chunks[i].ids);
    }
    free(j.chunks);
    pool_free(threads);
    return status;
}
