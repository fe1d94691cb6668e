/* rec_encode.c - the prompt as ids (recipe.md 1.3, 1.4): each control range is the one id of its token, and each maximal run of plain
 * text between two ranges is encoded without added tokens. That is the other half of what keeps user text from becoming a
 * control token: no added token can match anywhere in a plain run.
 *
 * Ranges are hard borders, so runs are independent. A long prompt is cut at ranges into spans of about SPAN_BYTES, which threads
 * take one after the other; a run that alone is long is left out of that and given to di_tokenizer_encode_parallel. */
#include "recipe/rec_int.h"

#include "core/arith.h"
#include "core/pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#define SPAN_BYTES ((size_t)256 << 10)
#define LONG_RUN ((size_t)1 << 20)
#define PARALLEL_BYTES ((size_t)1 << 20)

/* Part i of a prompt is the plain run before range i, then range i; the last part has no range. */
typedef struct span {
    size_t first; /* part */
    size_t end;
    bool lone;    /* one long run: threads work inside it, not beside it */
    int32_t *ids;
    size_t n_ids;
    di_status status;
} span;

typedef struct job {
    const di_request *r;
    span *spans;
    size_t n_spans;
    _Atomic size_t next;
    _Atomic bool failed;
} job;

static size_t run_begin(const di_request *r, size_t part)
{
    return part == 0 ? 0 : r->ranges[part - 1].end;
}

static size_t run_end(const di_request *r, size_t part)
{
    return part < r->n_ranges ? r->ranges[part].begin : r->prompt.size;
}

static void emit(int32_t id, int32_t *ids, size_t capacity, size_t *n)
{
    if (*n < capacity) {
        ids[*n] = id;
    }
    (*n)++;
}

/* Parts [first, end) to ids. */
static di_status encode_parts(const di_request *r, size_t first, size_t end, int n_threads, int32_t *ids, size_t capacity,
                              size_t *n_ids, di_error *err)
{
    const di_tokenizer *const tokenizer = r->recipe->tokenizer;
    size_t n = 0;
    for (size_t part = first; part < end; part++) {
        const size_t begin = run_begin(r, part);
        const size_t size = run_end(r, part) - begin;
        if (size > 0) {
            size_t written = 0;
            const size_t room = n < capacity ? capacity - n : 0;
            const di_status status = di_tokenizer_encode_parallel(tokenizer, r->prompt.data + begin, size, 0, n_threads,
                                                                  room > 0 ? ids + n : NULL, room, &written, err);
            if (status != DI_OK) {
                return status;
            }
            n += written;
        }
        if (part < r->n_ranges) {
            emit(r->recipe->id[r->markers[part]], ids, capacity, &n);
        }
    }
    *n_ids = n;
    return DI_OK;
}

/* Valid UTF-8 never has more ids than bytes, and a control token is longer than a byte. */
static size_t most_ids(const di_request *r, const span *s)
{
    return run_end(r, s->end - 1) - run_begin(r, s->first) + 1;
}

static void encode_span(const job *j, span *s, int n_threads, di_error *err)
{
    const size_t capacity = most_ids(j->r, s);
    int32_t *const room = ar_calloc(capacity, sizeof *room);
    if (room == NULL) {
        s->status = err_memory(err, "ids of a prompt", capacity * sizeof *room);
        return;
    }
    s->status = encode_parts(j->r, s->first, s->end, n_threads, room, capacity, &s->n_ids, err);
    int32_t *const fitting = s->status == DI_OK ? realloc(room, (s->n_ids + 1) * sizeof *room) : NULL;
    s->ids = fitting != NULL ? fitting : room;
}

/* One item a thread: the items are only there to start it. */
static void encode_spans(void *arg, size_t begin, size_t end, int thread)
{
    job *const j = arg;
    (void)begin;
    (void)end;
    (void)thread;
    for (;;) {
        const size_t i = atomic_fetch_add(&j->next, 1);
        if (i >= j->n_spans || atomic_load(&j->failed)) {
            return;
        }
        span *const s = &j->spans[i];
        if (!s->lone) {
            encode_span(j, s, 1, NULL);
        }
        if (s->status != DI_OK) {
            atomic_store(&j->failed, true);
        }
    }
}

static void make_spans(job *j)
{
    const size_t n_parts = j->r->n_ranges + 1;
    for (size_t first = 0; first < n_parts;) {
        span *const s = &j->spans[j->n_spans++];
        size_t end = first;
        s->first = first;
        s->lone = run_end(j->r, first) - run_begin(j->r, first) >= LONG_RUN;
        do {
            end++;
        } while (!s->lone && end < n_parts && run_end(j->r, end) - run_begin(j->r, end) < LONG_RUN &&
                 run_end(j->r, end) - run_begin(j->r, first) < SPAN_BYTES);
        s->end = end;
        first = end;
    }
}

static di_status join_spans(const job *j, int n_threads, int32_t *ids, size_t capacity, size_t *n_ids, di_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < j->n_spans; i++) {
        span *const s = &j->spans[i];
        if (s->lone && s->status == DI_OK) {
            encode_span(j, s, n_threads, err);
        } else if (s->status != DI_OK) {
            (void)err_set(err, s->status, "out of memory: ids of a prompt");
        }
        if (s->status != DI_OK) {
            return s->status;
        }
        if (n < capacity) {
            const size_t room = capacity - n;
            memcpy(ids + n, s->ids, (s->n_ids < room ? s->n_ids : room) * sizeof *ids);
        }
        n += s->n_ids;
    }
    *n_ids = n;
    return DI_OK;
}

static di_status encode_parallel(const di_request *r, int n_threads, int32_t *ids, size_t capacity, size_t *n_ids, di_error *err)
{
    job j = {.r = r};
    pool *threads = NULL;
    j.spans = ar_calloc(r->n_ranges + 1, sizeof *j.spans);
    if (j.spans == NULL) {
        return err_memory(err, "spans of a prompt", (r->n_ranges + 1) * sizeof *j.spans);
    }
    make_spans(&j);
    di_status status = pool_new(n_threads, &threads, err);
    if (status == DI_OK) {
        pool_run(threads, (size_t)pool_threads(threads), encode_spans, &j);
        pool_free(threads);
        status = join_spans(&j, n_threads, ids, capacity, n_ids, err);
    }
    for (size_t i = 0; i < j.n_spans; i++) {
        free(j.spans[i].ids);
    }
    free(j.spans);
    return status;
}

static di_status check_markers(const di_request *r, di_error *err)
{
    for (size_t i = 0; i < r->n_ranges; i++) {
        if (r->recipe->id[r->markers[i]] < 0) {
            return err_set(err, DI_E_UNSUPPORTED, "the tokenizer has no control token %s, which this prompt needs",
                           r->recipe->spelling[r->markers[i]].data);
        }
    }
    return DI_OK;
}

di_status di_request_encode(const di_request *request, int n_threads, int32_t *ids, size_t capacity, size_t *n_ids, di_error *err)
{
    if (request->recipe->tokenizer == NULL) {
        return err_set(err, DI_E_STATE, "the recipe was opened without a tokenizer");
    }
    if (n_threads < 0 || n_threads > REC_MAX_THREADS) {
        return err_set(err, DI_E_ARGUMENT, "%d threads: must be 0 (one for each processor) or 1..%d", n_threads, REC_MAX_THREADS);
    }
    const di_status status = check_markers(request, err);
    if (status != DI_OK) {
        return status;
    }
    if (n_threads == 1 || request->prompt.size < PARALLEL_BYTES) {
        return encode_parts(request, 0, request->n_ranges + 1, 1, ids, capacity, n_ids, err);
    }
    return encode_parallel(request, n_threads, ids, capacity, n_ids, err);
}
