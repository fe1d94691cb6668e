/* chat_compile.c - see chat_compile.h.
 *
 * A flight is one constraint that waits or is compiled, with the calls that wait for it; calls and flights are in order of arrival. The
 * first call gives its constraint to the flight, so that it can leave like all others. Whether some have left is looked at whenever the
 * compilation asks whether it is cancelled. A flight is closed, and found by nobody any more, in the moment in which its grammar is in
 * the cache or its last call has left. */
#include "chat/chat_compile.h"
#include "chat/chat_grammars.h"
#include "chat/chat_metrics.h"

#include <unistd.h>

#define MAX_THREADS 4
#define MAX_QUEUE 64
#define RETRY_QUEUE_S 1
#define MAX_WARNING_BYTES 2000 /* it goes into a header */

typedef struct flight {
    struct flight *next;
    uint8_t key[DIGEST_BYTES];
    chat_constraint source;
    di_call *first; /* through next_to_prepare */
    di_call **end;
    bool running;
    bool closed;
    chat_compiler *compiler;
} flight;

struct chat_compiler {
    di_service *service;
    chat_compile_fn compile;
    pthread_t threads[MAX_THREADS];
    int n_threads;
    pthread_mutex_t lock; /* guards what follows, and calls and flags of flights */
    pthread_cond_t filled;
    flight *first;        /* that are not closed */
    int n_waiting;        /* of them, for a thread */
    bool stop;
    chat_grammars grammars;
    chat_compiler_stats stats;
};

/* ---- one call ---- */

/* What a grammar leaves out is told the client. */
static bool add_warnings(di_call *c)
{
    buf *const notes = &c->constraint.notes;
    const char *line;
    for (size_t i = 0; c->grammar != NULL && (line = di_grammar_warning(c->grammar, i)) != NULL; i++) {
        (void)buf_printf(notes, "%s: %s\n", c->constraint.field, line);
    }
    if (notes->failed || notes->size == 0) {
        return !notes->failed;
    }
    c->warnings = strndup(notes->data, notes->size - 1 < MAX_WARNING_BYTES ? notes->size - 1 : MAX_WARNING_BYTES);
    for (char *at = c->warnings; at != NULL && *at != '\0'; at++) {
        *at = *at == '\n' ? ';' : *at < ' ' || *at > '~' ? '?' : *at;
    }
    return c->warnings != NULL;
}

static void end_failed(di_call *c, chat_failure failure)
{
    chat_end_failed(c, &failure);
    chat_finish(c);
}

static void go_on(di_call *c)
{
    if (add_warnings(c)) {
        chat_link_command(&c->service->link, &c->submit);
    } else {
        end_failed(c, chat_fail(503, DI_E_MEMORY, RETRY_QUEUE_S, NULL));
    }
}

/* A wrong constraint is the client's fault, a too large one too. */
static void refuse(di_call *c, di_status status, const di_grammar_fault *fault, const di_error *err)
{
    di_error told = *err;
    chat_constraint_refused(&c->constraint, c->request, fault, &told);
    chat_failure failure = chat_fail_status(status == DI_E_LIMIT ? DI_E_ARGUMENT : status, &told);
    failure.refusal = c->constraint.refusal;
    end_failed(c, failure);
}

/* An answer that nobody wanted held goes free. */
static bool can_go_free(di_call *c, di_status status, const di_error *err)
{
    if (!c->constraint.optional || status == DI_E_MEMORY) {
        return false;
    }
    (void)buf_printf(&c->constraint.notes, "not enforced: %s: %s\n", c->constraint.field, err->message);
    return true;
}

static bool is_gone(const di_call *c)
{
    return chat_call_cancelled(c) != CHAT_NOT_CANCELLED || chat_is_late(c);
}

static void end_gone(di_call *c)
{
    if (chat_call_cancelled(c) != CHAT_NOT_CANCELLED) {
        chat_end_cancelled(c);
        chat_finish(c);
    } else {
        end_failed(c, chat_late_failure());
    }
}

/* ---- flights; the lock is held where it says so ---- */

static void free_flight(flight *f)
{
    chat_constraint_fini(&f->source);
    free(f);
}

/* Held. */
static void add_call(flight *f, di_call *c)
{
    c->next_to_prepare = NULL;
    *f->end = c;
    f->end = &c->next_to_prepare;
}

/* Held. Nobody joins it any more. */
static void close_flight(chat_compiler *k, flight *f)
{
    flight **link = &k->first;
    while (*link != f) {
        link = &(*link)->next;
    }
    *link = f->next;
    f->closed = true;
}

/* Asked now and then by the compilation: calls that are gone leave. True when none is left. */
static bool let_go(void *user)
{
    flight *const f = user;
    chat_compiler *const k = f->compiler;
    di_call *gone = NULL;
    pthread_mutex_lock(&k->lock);
    for (di_call **link = &f->first; *link != NULL;) {
        di_call *const c = *link;
        if (is_gone(c)) {
            *link = c->next_to_prepare;
            c->next_to_prepare = gone;
            gone = c;
        } else {
            link = &c->next_to_prepare;
        }
        f->end = link;
    }
    const bool empty = f->first == NULL;
    if (empty && !f->closed) {
        close_flight(k, f);
    }
    pthread_mutex_unlock(&k->lock);
    while (gone != NULL) {
        di_call *const next = gone->next_to_prepare;
        end_gone(gone);
        gone = next;
    }
    return empty;
}

/* The end of a flight: its grammar is in the cache, and all that wait go on or are refused. */
static void land(chat_compiler *k, flight *f, di_status status, di_grammar *grammar, const di_grammar_fault *fault, const di_error *err)
{
    pthread_mutex_lock(&k->lock);
    if (status == DI_OK) {
        chat_grammars_keep(&k->grammars, f->key, grammar);
        k->stats.n_compiled++;
    }
    if (!f->closed) {
        close_flight(k, f);
    }
    for (const di_call *c = f->first; c != NULL && status != DI_OK; c = c->next_to_prepare) {
        k->stats.n_refused += !c->constraint.optional;
    }
    pthread_mutex_unlock(&k->lock);
    for (di_call *c = f->first, *next; c != NULL; c = next) {
        next = c->next_to_prepare;
        if (status == DI_OK) {
            di_grammar_retain(grammar);
            c->grammar = grammar;
            go_on(c);
        } else if (can_go_free(c, status, err)) {
            go_on(c);
        } else {
            refuse(c, status, fault, err);
        }
    }
}

di_status chat_compile_source(const chat_constraint *source, bool (*cancelled)(void *user), void *user, di_grammar **out,
                              di_grammar_fault *fault, di_error *err)
{
    di_grammar_options options = source->options;
    options.cancelled = cancelled;
    options.user = user;
    return source->kind == DI_GRAMMAR_TOOLS
               ? di_grammar_compile_tools(&source->tools, &options, out, fault, err)
               : di_grammar_compile(source->kind, source->text.data != NULL ? source->text.data : "", source->text.size, &options, out,
                                    fault, err);
}

static void fly(chat_compiler *k, flight *f)
{
    di_grammar_fault fault = {.offset = -1};
    di_grammar *grammar = NULL;
    di_error err;
    if (!let_go(f)) {
        const int64_t began = clock_now_ns();
        const di_status status = k->compile(&f->source, let_go, f, &grammar, &fault, &err);
        chat_metrics_compiled(k->service->metrics, clock_now_ns() - began);
        land(k, f, status, grammar, &fault, &err);
        if (status == DI_OK) {
            di_grammar_free(grammar);
        }
    }
    free_flight(f);
}

/* ---- coming in ---- */

static di_status make_key(const chat_constraint *o, uint8_t key[DIGEST_BYTES], di_error *err)
{
    buf text;
    buf_init(&text, SIZE_MAX);
    const di_status status =
        chat_constraint_key(o, &text) ? digest_sha256(text.data, text.size, key, err) : err_memory(err, "constraint", text.size);
    buf_fini(&text);
    return status;
}

/* Held. One that is not closed; NULL: there is none. */
static flight *find_flight(chat_compiler *k, const uint8_t key[DIGEST_BYTES])
{
    flight *f = k->first;
    while (f != NULL && memcmp(f->key, key, DIGEST_BYTES) != 0) {
        f = f->next;
    }
    return f;
}

/* Held. Takes the call's constraint over. */
static void add_flight(chat_compiler *k, flight *f, const uint8_t key[DIGEST_BYTES], di_call *c)
{
    flight **link = &k->first;
    memcpy(f->key, key, DIGEST_BYTES);
    f->compiler = k;
    f->end = &f->first;
    chat_constraint_give(&c->constraint, &f->source);
    add_call(f, c);
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = f;
    k->n_waiting++;
    pthread_cond_signal(&k->filled);
}

typedef enum outcome { HAS_GRAMMAR, WAITS, NO_ROOM } outcome;

/* Takes the grammar from the cache, joins a flight, or becomes a new one, which `f` is for: it is used or freed. A call that waits may be
 * gone when this returns. */
static outcome enter(chat_compiler *k, di_call *c, const uint8_t key[DIGEST_BYTES], flight *f)
{
    outcome result = WAITS;
    pthread_mutex_lock(&k->lock);
    flight *const other = find_flight(k, key);
    c->grammar = other == NULL ? chat_grammars_get(&k->grammars, key) : NULL;
    if (c->grammar != NULL) {
        k->stats.n_hits++;
        result = HAS_GRAMMAR;
    } else if (other != NULL) {
        add_call(other, c);
        k->stats.n_joined++;
    } else if (k->n_waiting < MAX_QUEUE) {
        add_flight(k, f, key, c);
        f = NULL;
    } else {
        k->stats.n_refused++;
        result = NO_ROOM;
    }
    pthread_mutex_unlock(&k->lock);
    free(f);
    return result;
}

void chat_compile(chat_compiler *k, di_call *c)
{
    uint8_t key[DIGEST_BYTES];
    di_error err;
    flight *const f = ar_calloc(1, sizeof *f);
    di_status status = f != NULL ? make_key(&c->constraint, key, &err) : err_memory(&err, "constraint", sizeof *f);
    if (status != DI_OK) {
        free(f);
        end_failed(c, chat_fail_status(status, &err));
        return;
    }
    switch (enter(k, c, key, f)) {
    case HAS_GRAMMAR:
        go_on(c);
        break;
    case WAITS:
        break;
    case NO_ROOM:
        end_failed(c, chat_fail(429, DI_E_LIMIT, RETRY_QUEUE_S, "Too many constraints are being compiled; try again later."));
        break;
    }
}

/* ---- threads ---- */

/* Held. The next one that no thread has. */
static flight *next_flight(chat_compiler *k)
{
    flight *f = k->first;
    while (f != NULL && f->running) {
        f = f->next;
    }
    return f;
}

static void *compiler_main(void *arg)
{
    chat_compiler *const k = arg;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        flight *const f = next_flight(k);
        if (f == NULL && k->stop) {
            break;
        }
        if (f == NULL) {
            pthread_cond_wait(&k->filled, &k->lock);
            continue;
        }
        f->running = true;
        k->n_waiting--;
        pthread_mutex_unlock(&k->lock);
        fly(k, f);
        pthread_mutex_lock(&k->lock);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

di_status chat_compiler_new(di_service *s, chat_compiler **out, di_error *err)
{
    const long half = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    const int n_threads = half < 1 ? 1 : half < MAX_THREADS ? (int)half : MAX_THREADS;
    chat_compiler *const k = ar_calloc(1, sizeof *k);
    if (k == NULL) {
        return err_memory(err, "compiler of constraints", sizeof *k);
    }
    *out = k;
    k->service = s;
    k->compile = chat_compile_source;
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->filled, NULL);
    for (int i = 0; i < n_threads; i++) {
        const int failed = pthread_create(&k->threads[i], NULL, compiler_main, k);
        if (failed != 0) {
            return err_set_errno(err, failed, "cannot start thread %d of %d that compile constraints", i + 1, n_threads);
        }
        k->n_threads++;
    }
    return DI_OK;
}

void chat_compiler_free(chat_compiler *k)
{
    if (k == NULL) {
        return;
    }
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_broadcast(&k->filled);
    pthread_mutex_unlock(&k->lock);
    for (int i = 0; i < k->n_threads; i++) {
        pthread_join(k->threads[i], NULL);
    }
    chat_grammars_fini(&k->grammars);
    pthread_cond_destroy(&k->filled);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

void chat_compiler_set(chat_compiler *k, chat_compile_fn fn)
{
    pthread_mutex_lock(&k->lock);
    k->compile = fn;
    pthread_mutex_unlock(&k->lock);
}

void chat_compiler_get_stats(chat_compiler *k, chat_compiler_stats *out)
{
    pthread_mutex_lock(&k->lock);
    *out = k->stats;
    out->n_grammars = k->grammars.n;
    out->n_bytes = k->grammars.n_bytes;
    pthread_mutex_unlock(&k->lock);
}
