/* tok_parallel.c - encoding one long text with several threads; the ids are those of di_tokenizer_encode (tokenizer.md 8).
 *
 * The text is cut into chunks where parts are known to encode like the whole. Threads take the next chunk until none is left, so
 * that one that is slow (rare words, another program) does not hold up the others. Where added tokens are
 * recognised, chunks end at line starts only, and no spelling may contain a line feed: then none lies across a cut.
 *
 * Ids of a chunk wait until it is known how many come before them, which is mostly at once, as chunks are taken in order. They
 * wait in memory of their thread that is used again and again: with memory for each chunk a fifth of the time went into page faults. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK_BYTES ((size_t)512 << 10)
#define MAX_THREADS 64
#define BLOCK_IDS ((size_t)2 << 20)

/* Ids of chunks of one thread, one behind the other. */
typedef struct block {
    struct block *next;
    size_t capacity;
    size_t used;
    int32_t ids[];
} block;

typedef struct chunk {
    size_t begin;
    size_t end;
    int32_t *ids;
    size_t n_ids;
    size_t first;       /* number of ids in the chunks before */
    bool encoded;       /* guarded by job.lock, and so is `first` until the chunk is placed */
    struct chunk *next; /* in worker.waiting */
} chunk;

typedef struct worker {
    block *blocks;  /* the last one first */
    chunk *waiting; /* encoded and not yet written, in order */
    chunk *last;
} worker;

typedef struct job {
    const di_tokenizer *tok;
    const uint8_t *s;
    size_t n;
    unsigned flags;
    chunk *chunks;
    size_t n_chunks;
    worker *workers;
    size_t n_workers;
    pthread_mutex_t lock;
    size_t n_placed; /* guarded by lock: chunks with no unencoded one before them, whose `first` is therefore known */
    size_t n_ids;    /* in these, likewise */
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
        if (tok_valid_prefix(j->s + from, to - from) != to - from) {
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
        begin = end;
    }
}

/* The worker's block, with room for n ids more; NULL: out of memory. */
static block *block_with_room(worker *w, size_t n)
{
    if (w->blocks == NULL || w->blocks->capacity - w->blocks->used < n) {
        const size_t capacity = n > BLOCK_IDS ? n : BLOCK_IDS;
        block *const more = tok_alloc_huge(sizeof *more + capacity * sizeof *more->ids);
        if (more == NULL) {
            return NULL;
        }
        *more = (block){.next = w->blocks, .capacity = capacity};
        w->blocks = more;
    }
    return w->blocks;
}

static void free_blocks(worker *w, block *but)
{
    while (w->blocks != but) {
        block *const next = w->blocks->next;
        free(w->blocks);
        w->blocks = next;
    }
}

static bool encode_chunk(const job *j, worker *w, tok_scratch *scratch, chunk *c)
{
    block *const room = block_with_room(w, c->end - c->begin);
    if (room == NULL) {
        return false;
    }
    tok_out out = {.ids = room->ids + room->used, .capacity = room->capacity - room->used};
    if (!tok_encode_text(j->tok, scratch, j->s, j->n, c->begin, c->end, j->flags, &out)) {
        return false;
    }
    c->ids = out.ids;
    c->n_ids = out.n;
    c->next = NULL;
    room->used += out.n;
    *(w->waiting != NULL ? &w->last->next : &w->waiting) = c;
    w->last = c;
    return true;
}

/* Says that a chunk is encoded. Returns how many chunks are placed. */
static size_t place(job *j, chunk *encoded)
{
    (void)pthread_mutex_lock(&j->lock);
    encoded->encoded = true;
    while (j->n_placed < j->n_chunks && j->chunks[j->n_placed].encoded) {
        chunk *const c = &j->chunks[j->n_placed++];
        c->first = j->n_ids;
        j->n_ids += c->n_ids;
    }
    const size_t n_placed = j->n_placed;
    (void)pthread_mutex_unlock(&j->lock);
    return n_placed;
}

/* Writes the ids of the worker's chunks that are placed. */
static void write_placed(const job *j, worker *w, size_t n_placed)
{
    for (; w->waiting != NULL && w->waiting < j->chunks + n_placed; w->waiting = w->waiting->next) {
        const chunk *const c = w->waiting;
        if (c->first < j->capacity) {
            const size_t room = j->capacity - c->first;
            memcpy(j->ids + c->first, c->ids, (c->n_ids < room ? c->n_ids : room) * sizeof *j->ids);
        }
    }
    if (w->waiting == NULL) {
        free_blocks(w, w->blocks->next == NULL ? w->blocks : NULL);
        if (w->blocks != NULL) {
            w->blocks->used = 0;
        }
    }
}

/* One item a thread: the items are only there to start it. */
static void encode_chunks(void *arg, size_t begin, size_t end, int thread)
{
    job *const j = arg;
    worker *const w = &j->workers[thread];
    (void)begin;
    (void)end;
    tok_scratch *const scratch = tok_scratch_take(j->tok);
    bool done = scratch != NULL;
    while (done) {
        const size_t i = atomic_fetch_add(&j->next, 1);
        if (i >= j->n_chunks) {
            break;
        }
        done = encode_chunk(j, w, scratch, &j->chunks[i]);
        if (done) {
            write_placed(j, w, place(j, &j->chunks[i]));
        }
    }
    if (!done) {
        atomic_store(&j->short_of_memory, true);
        atomic_store(&j->next, j->n_chunks);
    }
    if (scratch != NULL) {
        tok_scratch_give(j->tok, scratch);
    }
}

static di_status run(job *j, pool *threads, size_t *n_ids, di_error *err)
{
    pool_run(threads, (size_t)pool_threads(threads), encode_chunks, j);
    if (atomic_load(&j->short_of_memory)) {
        return err_memory(err, "encoding of text", j->n);
    }
    for (size_t i = 0; i < j->n_workers; i++) {
        if (j->workers[i].waiting != NULL) {
            write_placed(j, &j->workers[i], j->n_chunks);
        }
    }
    *n_ids = j->n_ids;
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
    (void)pthread_mutex_init(&j.lock, NULL);
    const size_t max_chunks = 3 * (n / CHUNK_BYTES + 2); /* some are shorter than CHUNK_BYTES, but no three in a row */
    pool_run(threads, n / CHUNK_BYTES + 1, validate, &j);
    if (atomic_load(&j.invalid)) {
        status = di_tokenizer_encode(tokenizer, text, n, flags, ids, capacity, n_ids, err);
    } else {
        j.chunks = ar_calloc(max_chunks, sizeof *j.chunks);
        j.workers = ar_calloc((size_t)pool_threads(threads), sizeof *j.workers);
        if (j.chunks != NULL && j.workers != NULL) {
            j.n_workers = (size_t)pool_threads(threads);
            make_chunks(&j, max_chunks);
            status = run(&j, threads, n_ids, err);
        } else {
            status = err_memory(err, "encoding of text", max_chunks * sizeof *j.chunks);
        }
    }
    for (size_t i = 0; i < j.n_workers; i++) {
        free_blocks(&j.workers[i], NULL);
    }
    free(j.workers);
    free(j.chunks);
    (void)pthread_mutex_destroy(&j.lock);
    pool_free(threads);
    return status;
}
