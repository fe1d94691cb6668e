/* tok_parallel.c - encoding one long text with several threads; the ids are those of di_tokenizer_encode (tokenizer.md 8).
 *
 * The text is looked at in ranges of equal size. A chunk begins at a cut, where parts are known to encode like the whole: the first
 * one that tok_cut_after finds in a range; a range without one belongs to the chunk before it. So a thread finds the borders of its
 * chunk by itself, whatever the others do. Where added tokens are recognised, chunks begin at line starts only, and no spelling may
 * contain a line feed: then none lies across a cut.
 *
 * Some ranges in a row are a stripe, and as many stripes as there are threads a section. Each thread takes the ranges of its stripe,
 * then what is left of the others' (so that a slow thread holds up none), then goes to the next section. Neighbouring text has words in
 * common: a thread that stays with its stripe has met more of them than one that takes whatever comes next, and in the next call for
 * a similar text it has the same scratch again.
 *
 * Ids of a chunk wait until it is known how many come before them: in memory that scratches keep from call to call, because page
 * faults once took a tenth of the time. Where it is known from the start they are written where they belong. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#define RANGE_BYTES ((size_t)128 << 10)
#define STRIPE_RANGES 32u            /* at most */
#define MIN_BYTES ((size_t)1 << 20)  /* below, starting threads costs more than it gains */
#define MAX_THREADS 64
#define BLOCK_BYTES ((size_t)2 << 20) /* a huge page */
#define KEPT_BLOCKS 6u

/* Ids of chunks of one thread, one behind the other. */
typedef struct tok_block {
    struct tok_block *next;
    size_t capacity;
    size_t used;
    size_t n_waiting; /* chunks whose ids are here and not yet written */
    int32_t ids[];
} block;

#define BLOCK_IDS ((BLOCK_BYTES - sizeof(block)) / sizeof(int32_t))

typedef struct chunk {
    block *home; /* what holds the ids */
    const int32_t *ids;
    size_t n_ids;       /* 0 when the range has no cut */
    size_t first;       /* number of ids in the chunks before */
    bool encoded;       /* guarded by job.lock, and so is `first` until the chunk is placed */
    struct chunk *next; /* in worker.waiting */
} chunk;

/* Belongs to its thread while the pool runs, then to the caller. */
typedef struct worker {
    tok_scratch *scratch; /* NULL: there was no idle one, the thread makes it */
    block *blocks;        /* the one in use first */
    chunk *waiting;       /* encoded and not yet written */
} worker;

typedef struct job {
    const di_tokenizer *tok;
    const uint8_t *s;
    size_t n;
    unsigned flags;
    size_t n_ranges;
    size_t n_stripes;
    size_t stripe_ranges;
    chunk *chunks;         /* [n_ranges] */
    _Atomic size_t *taken; /* [n_stripes] ranges that threads have taken */
    worker *workers;
    size_t n_workers;
    pthread_mutex_t lock;
    size_t n_placed; /* guarded by lock: chunks with no unencoded one before them, whose `first` is therefore known */
    size_t n_ids;    /* in these, likewise */
    _Atomic bool invalid; /* UTF-8 */
    _Atomic bool short_of_memory;
    int32_t *ids;
    size_t capacity;
} job;

static bool spelling_has_line_feed(const di_tokenizer *tok)
{
    bool found = false;
    for (uint32_t i = 1; i < tok->added.n_nodes; i++) {
        found = found || tok->added.nodes[i].byte == '\n';
    }
    return found;
}

/* ---- borders ---- */

static size_t range_end(const job *j, size_t i)
{
    return i + 1 < j->n_ranges ? (i + 1) * RANGE_BYTES : j->n;
}

/* Where the chunk of range i begins; where the range ends when there is none. */
static size_t chunk_begin(const job *j, size_t i)
{
    const bool lines_only = (j->flags & DI_ENCODE_SPECIAL) != 0;
    return i == 0 ? 0 : tok_cut_after(j->s, j->n, i * RANGE_BYTES, range_end(j, i), lines_only);
}

/* Where the chunk that begins in range i ends: at the beginning of the next one. */
static size_t chunk_end(const job *j, size_t i)
{
    for (i++; i < j->n_ranges; i++) {
        const size_t begin = chunk_begin(j, i);
        if (begin != range_end(j, i)) {
            return begin;
        }
    }
    return j->n;
}

/* ---- memory for ids ---- */

/* A block with room for n ids more, which goes first; NULL: out of memory. */
static block *block_with_room(worker *w, size_t n)
{
    if (w->blocks != NULL && w->blocks->capacity - w->blocks->used >= n) {
        return w->blocks;
    }
    for (block **link = &w->blocks; *link != NULL; link = &(*link)->next) {
        block *const found = *link;
        if (found->n_waiting == 0 && found->capacity >= n) {
            *link = found->next;
            found->next = w->blocks;
            found->used = 0;
            return w->blocks = found;
        }
    }
    const size_t capacity = n > BLOCK_IDS ? n : BLOCK_IDS;
    block *const made = tok_alloc_huge(sizeof *made + capacity * sizeof *made->ids);
    if (made != NULL) {
        *made = (block){.next = w->blocks, .capacity = capacity};
        w->blocks = made;
    }
    return made;
}

void tok_blocks_free(struct tok_block *blocks)
{
    while (blocks != NULL) {
        block *const next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

/* Leaves some of the usual size to the next call. */
static void keep_blocks(worker *w)
{
    size_t n_kept = 0;
    while (w->blocks != NULL) {
        block *const b = w->blocks;
        w->blocks = b->next;
        const bool kept = b->capacity == BLOCK_IDS && n_kept < KEPT_BLOCKS;
        b->next = kept ? w->scratch->blocks : NULL;
        b->used = 0;
        b->n_waiting = 0;
        if (kept) {
            w->scratch->blocks = b;
            n_kept++;
        } else {
            free(b);
        }
    }
}

/* ---- placing ---- */

/* Says that the chunk of range i is encoded. Returns how many are placed. */
static size_t place(job *j, size_t i)
{
    (void)pthread_mutex_lock(&j->lock);
    j->chunks[i].encoded = true;
    while (j->n_placed < j->n_ranges && j->chunks[j->n_placed].encoded) {
        chunk *const c = &j->chunks[j->n_placed++];
        c->first = j->n_ids;
        j->n_ids += c->n_ids;
    }
    const size_t n_placed = j->n_placed;
    (void)pthread_mutex_unlock(&j->lock);
    return n_placed;
}

/* True when all chunks before range i are placed, with the number of their ids. */
static bool place_is_known(job *j, size_t i, size_t *first)
{
    (void)pthread_mutex_lock(&j->lock);
    const bool known = j->n_placed == i;
    *first = j->n_ids;
    (void)pthread_mutex_unlock(&j->lock);
    return known;
}

/* Where ids from `first` on go. */
static tok_out out_at(const job *j, size_t first)
{
    const size_t begin = first < j->capacity ? first : j->capacity;
    return (tok_out){.ids = j->capacity != 0 ? j->ids + begin : NULL, .capacity = j->capacity - begin};
}

/* Writes the ids of the worker's chunks that are placed. */
static void write_placed(const job *j, worker *w, size_t n_placed)
{
    for (chunk **link = &w->waiting; *link != NULL;) {
        chunk *const c = *link;
        if (c >= j->chunks + n_placed) {
            link = &c->next;
            continue;
        }
        const tok_out out = out_at(j, c->first);
        const size_t n = c->n_ids < out.capacity ? c->n_ids : out.capacity;
        if (n != 0) {
            memcpy(out.ids, c->ids, n * sizeof *out.ids);
        }
        c->home->n_waiting--;
        *link = c->next;
    }
}

/* ---- encoding ---- */

static bool encode_chunk(job *j, worker *w, size_t i, size_t begin, size_t end)
{
    chunk *const c = &j->chunks[i];
    size_t first;
    if (place_is_known(j, i, &first)) {
        tok_out out = out_at(j, first);
        const bool done = tok_encode_text(j->tok, w->scratch, j->s, j->n, begin, end, j->flags, &out);
        c->n_ids = out.n;
        return done;
    }
    block *const room = block_with_room(w, end - begin);
    if (room == NULL) {
        return false;
    }
    tok_out out = {.ids = room->ids + room->used, .capacity = room->capacity - room->used};
    if (!tok_encode_text(j->tok, w->scratch, j->s, j->n, begin, end, j->flags, &out)) {
        return false;
    }
    c->home = room;
    c->ids = out.ids;
    c->n_ids = out.n;
    c->next = w->waiting;
    room->used += out.n;
    room->n_waiting++;
    w->waiting = c;
    return true;
}

static void encode_range(job *j, worker *w, size_t i)
{
    const size_t begin = chunk_begin(j, i);
    if (i == 0 || begin != range_end(j, i)) {
        const size_t end = chunk_end(j, i);
        if (tok_valid_prefix(j->s + begin, end - begin) != end - begin) {
            atomic_store(&j->invalid, true);
        } else if (!encode_chunk(j, w, i, begin, end)) {
            atomic_store(&j->short_of_memory, true);
        }
    }
    write_placed(j, w, place(j, i));
}

static void encode_stripe(job *j, worker *w, size_t stripe)
{
    const size_t begin = stripe * j->stripe_ranges;
    const size_t end = j->n_ranges - begin < j->stripe_ranges ? j->n_ranges : begin + j->stripe_ranges;
    while (!atomic_load(&j->invalid) && !atomic_load(&j->short_of_memory)) {
        const size_t i = begin + atomic_fetch_add(&j->taken[stripe], 1);
        if (i >= end) {
            break;
        }
        encode_range(j, w, i);
    }
}

/* One item a thread: the items are only there to start it. */
static void encode_stripes(void *arg, size_t begin, size_t end, int thread)
{
    job *const j = arg;
    worker *const w = &j->workers[thread];
    (void)begin;
    (void)end;
    if (w->scratch == NULL && (w->scratch = tok_scratch_new()) == NULL) {
        atomic_store(&j->short_of_memory, true);
        return;
    }
    w->blocks = w->scratch->blocks;
    w->scratch->blocks = NULL;
    for (size_t section = 0; section < j->n_stripes; section += j->n_workers) {
        for (size_t k = 0; k < j->n_workers; k++) {
            const size_t stripe = section + ((size_t)thread + k) % j->n_workers;
            if (stripe < j->n_stripes) {
                encode_stripe(j, w, stripe);
            }
        }
    }
}

/* ---- a call ---- */

static void take_scratches(job *j)
{
    for (size_t i = 0; i < j->n_workers; i++) {
        j->workers[i].scratch = tok_scratch_idle(j->tok);
    }
}

/* Writes what is left, and gives scratches back so that the next call finds them in the same order. */
static void give_scratches(const job *j)
{
    for (size_t i = j->n_workers; i-- > 0;) {
        worker *const w = &j->workers[i];
        if (w->scratch != NULL) {
            write_placed(j, w, j->n_placed);
            keep_blocks(w);
            tok_scratch_give(j->tok, w->scratch);
        }
    }
}

static bool prepare(job *j)
{
    j->n_ranges = j->n / RANGE_BYTES; /* the last one is longer */
    const size_t n_sections = (j->n_ranges - 1) / (STRIPE_RANGES * j->n_workers) + 1;
    j->stripe_ranges = (j->n_ranges - 1) / (n_sections * j->n_workers) + 1;
    j->n_stripes = (j->n_ranges - 1) / j->stripe_ranges + 1;
    j->chunks = ar_calloc(j->n_ranges, sizeof *j->chunks);
    j->taken = ar_calloc(j->n_stripes, sizeof *j->taken);
    j->workers = ar_calloc(j->n_workers, sizeof *j->workers);
    return j->chunks != NULL && j->taken != NULL && j->workers != NULL;
}

static di_status encode_with(pool *threads, job *j, size_t *n_ids, di_error *err)
{
    di_status status = DI_OK;
    j->n_workers = (size_t)pool_threads(threads);
    (void)pthread_mutex_init(&j->lock, NULL);
    if (prepare(j)) {
        take_scratches(j);
        pool_run(threads, j->n_workers, encode_stripes, j);
        give_scratches(j);
        *n_ids = j->n_ids;
    } else {
        atomic_store(&j->short_of_memory, true);
    }
    if (atomic_load(&j->short_of_memory)) {
        status = err_memory(err, "encoding of text", j->n);
    }
    free(j->workers);
    free(j->taken);
    free(j->chunks);
    (void)pthread_mutex_destroy(&j->lock);
    return status;
}

di_status di_tokenizer_encode_parallel(const di_tokenizer *tokenizer, const char *text, size_t n, unsigned flags, int n_threads,
                                       int32_t *ids, size_t capacity, size_t *n_ids, di_error *err)
{
    if (n_threads < 0 || n_threads > MAX_THREADS) {
        return err_set(err, DI_E_ARGUMENT, "%d threads: must be 0 (one for each processor) or 1..%d", n_threads, MAX_THREADS);
    }
    if (n_threads == 1 || n < MIN_BYTES || n > TOK_MAX_TEXT || (flags & ~(unsigned)DI_ENCODE_SPECIAL) != 0 ||
        (flags != 0 && spelling_has_line_feed(tokenizer))) {
        return di_tokenizer_encode(tokenizer, text, n, flags, ids, capacity, n_ids, err);
    }
    pool *threads = NULL;
    job j = {
        .tok = tokenizer, .s = (const uint8_t *)text, .n = n, .flags = flags, .ids = ids, .capacity = capacity,
    };
    di_status status = pool_new(n_threads, &threads, err);
    if (status != DI_OK) {
        return status;
    }
    status = encode_with(threads, &j, n_ids, err);
    pool_free(threads);
    if (status == DI_OK && atomic_load(&j.invalid)) {
        status = di_tokenizer_encode(tokenizer, text, n, flags, ids, capacity, n_ids, err);
    }
    return status;
}
