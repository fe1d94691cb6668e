/* chat_compile.c - see chat_compile.h.
 *
 * The key of a cached grammar is the digest of everything it depends on (chat_constraint_key). The least recently used go when there are
 * too many, or when they hold too much; a grammar grows while it is used, so all are weighed whenever one is added. Calls that come with
 * the same new constraint at the same time compile it each: the first result is kept. */
#include "chat/chat_compile.h"
#include "chat/chat_metrics.h"

#include "core/digest.h"

#include <unistd.h>

#define MAX_THREADS 4
#define MAX_QUEUE 64
#define MAX_GRAMMARS 256
#define MAX_BYTES ((size_t)256 << 20)
#define RETRY_QUEUE_S 1
#define MAX_WARNING_BYTES 2000 /* it goes into a header */

typedef struct cached {
    uint8_t key[DIGEST_BYTES];
    di_grammar *grammar; /* NULL = free */
    uint64_t used;       /* at this turn */
} cached;

struct chat_compiler {
    di_service *service;
    pthread_t threads[MAX_THREADS];
    int n_threads;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t filled;
    di_call *first; /* through next_to_prepare */
    di_call *last;
    int n_waiting;
    bool stop;
    cached grammars[MAX_GRAMMARS];
    uint64_t turn;
    chat_compiler_stats stats;
};

/* ---- cache ---- */

static cached *find(chat_compiler *k, const uint8_t key[DIGEST_BYTES])
{
    for (int i = 0; i < MAX_GRAMMARS; i++) {
        if (k->grammars[i].grammar != NULL && memcmp(k->grammars[i].key, key, DIGEST_BYTES) == 0) {
            return &k->grammars[i];
        }
    }
    return NULL;
}

static size_t weigh(const cached *entry)
{
    di_grammar_stats stats;
    di_grammar_get_stats(entry->grammar, &stats);
    return stats.memory_bytes;
}

static void drop(cached *entry)
{
    di_grammar_free(entry->grammar);
    *entry = (cached){.grammar = NULL};
}

/* The entry that was used longest ago, but not `kept`. */
static cached *oldest(chat_compiler *k, const cached *kept)
{
    cached *found = NULL;
    for (int i = 0; i < MAX_GRAMMARS; i++) {
        cached *const entry = &k->grammars[i];
        if (entry->grammar != NULL && entry != kept && (found == NULL || entry->used < found->used)) {
            found = entry;
        }
    }
    return found;
}

static void bound(chat_compiler *k, const cached *kept)
{
    size_t bytes = 0;
    int64_t n = 0;
    for (int i = 0; i < MAX_GRAMMARS; i++) {
        if (k->grammars[i].grammar != NULL) {
            bytes += weigh(&k->grammars[i]);
            n++;
        }
    }
    for (cached *old = oldest(k, kept); bytes > MAX_BYTES && old != NULL; old = oldest(k, kept), n--) {
        const size_t part = weigh(old);
        bytes = bytes > part ? bytes - part : 0;
        drop(old);
    }
    k->stats.n_grammars = n;
    k->stats.n_bytes = (int64_t)bytes;
}

static void keep(chat_compiler *k, const uint8_t key[DIGEST_BYTES], di_grammar *grammar)
{
    pthread_mutex_lock(&k->lock);
    k->stats.n_compiled++;
    if (find(k, key) == NULL) {
        cached *entry = NULL;
        for (int i = 0; i < MAX_GRAMMARS && entry == NULL; i++) {
            entry = k->grammars[i].grammar == NULL ? &k->grammars[i] : NULL;
        }
        if (entry == NULL) {
            entry = oldest(k, NULL);
            drop(entry);
        }
        di_grammar_retain(grammar);
        entry->grammar = grammar;
        entry->used = ++k->turn;
        memcpy(entry->key, key, DIGEST_BYTES);
        bound(k, entry);
    }
    pthread_mutex_unlock(&k->lock);
}

static di_status make_key(const chat_constraint *o, uint8_t key[DIGEST_BYTES], di_error *err)
{
    buf text;
    buf_init(&text, SIZE_MAX);
    const di_status status =
        chat_constraint_key(o, &text) ? digest_sha256(text.data, text.size, key, err) : err_memory(err, "constraint", text.size);
    buf_fini(&text);
    return status;
}

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

/* A wrong constraint is the client's fault, a too large one too. */
static chat_failure failure_of(di_status status, const di_error *err)
{
    return chat_fail_status(status == DI_E_LIMIT ? DI_E_ARGUMENT : status, err);
}

static void end_failed(di_call *c, chat_failure *failure)
{
    chat_end_failed(c, failure);
    chat_finish(c);
}

static void go_on(di_call *c)
{
    if (!add_warnings(c)) {
        chat_failure failure = chat_fail(503, DI_E_MEMORY, RETRY_QUEUE_S, NULL);
        end_failed(c, &failure);
        return;
    }
    chat_link_command(&c->service->link, &c->submit);
}

/* Asked now and then by the compilation. */
static bool gone(void *user)
{
    const di_call *const c = user;
    return chat_call_cancelled(c) != CHAT_NOT_CANCELLED || chat_is_late(c);
}

di_status chat_compile_now(di_call *c, di_error *err)
{
    chat_constraint *const o = &c->constraint;
    di_grammar_options options = o->options;
    options.cancelled = gone;
    options.user = c;
    const di_status status =
        o->kind == DI_GRAMMAR_TOOLS
            ? di_grammar_compile_tools(&o->tools, &options, &c->grammar, NULL, err)
            : di_grammar_compile(o->kind, o->text.data != NULL ? o->text.data : "", o->text.size, &options, &c->grammar, NULL, err);
    if (status != DI_OK) {
        c->grammar = NULL;
        err_prefix(err, "%s", o->field);
    }
    return status;
}

/* An answer that nobody wanted held goes free. */
static bool can_go_free(di_call *c, di_status status, const di_error *err)
{
    if (!c->constraint.optional || status == DI_E_MEMORY || status == DI_E_CANCELLED) {
        return false;
    }
    (void)buf_printf(&c->constraint.notes, "not enforced: %s\n", err->message);
    return true;
}

static void work(chat_compiler *k, di_call *c)
{
    uint8_t key[DIGEST_BYTES];
    di_error err;
    const int64_t began = clock_now_ns();
    di_status status = make_key(&c->constraint, key, &err);
    if (status == DI_OK) {
        status = chat_compile_now(c, &err);
    }
    chat_metrics_compiled(k->service->metrics, clock_now_ns() - began);
    if (status == DI_OK) {
        keep(k, key, c->grammar);
        go_on(c);
    } else if (can_go_free(c, status, &err)) {
        go_on(c);
    } else if (chat_call_cancelled(c) != CHAT_NOT_CANCELLED) {
        chat_end_cancelled(c);
        chat_finish(c);
    } else {
        pthread_mutex_lock(&k->lock);
        k->stats.n_refused++;
        pthread_mutex_unlock(&k->lock);
        chat_failure failure = status == DI_E_CANCELLED ? chat_late_failure() : failure_of(status, &err);
        end_failed(c, &failure);
    }
}

/* Takes the grammar from the cache, or a place in the queue. */
static bool look_up(chat_compiler *k, di_call *c, const uint8_t key[DIGEST_BYTES], bool *queued)
{
    pthread_mutex_lock(&k->lock);
    cached *const entry = find(k, key);
    *queued = entry == NULL && k->n_waiting < MAX_QUEUE;
    if (entry != NULL) {
        di_grammar_retain(entry->grammar);
        c->grammar = entry->grammar;
        entry->used = ++k->turn;
        k->stats.n_hits++;
    } else if (*queued) {
        c->next_to_prepare = NULL;
        *(k->last != NULL ? &k->last->next_to_prepare : &k->first) = c;
        k->last = c;
        k->n_waiting++;
        pthread_cond_signal(&k->filled);
    } else {
        k->stats.n_refused++;
    }
    pthread_mutex_unlock(&k->lock);
    return entry != NULL;
}

void chat_compile(chat_compiler *k, di_call *c)
{
    uint8_t key[DIGEST_BYTES];
    bool queued = false;
    di_error err;
    const di_status status = make_key(&c->constraint, key, &err);
    if (status != DI_OK) {
        chat_failure failure = failure_of(status, &err);
        end_failed(c, &failure);
    } else if (look_up(k, c, key, &queued)) {
        go_on(c);
    } else if (!queued) {
        chat_failure failure = chat_fail(429, DI_E_LIMIT, RETRY_QUEUE_S, "Too many constraints are being compiled; try again later.");
        end_failed(c, &failure);
    }
}

/* ---- threads ---- */

static void *compiler_main(void *arg)
{
    chat_compiler *const k = arg;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (k->first == NULL && !k->stop) {
            pthread_cond_wait(&k->filled, &k->lock);
        }
        di_call *const c = k->first;
        if (c == NULL) {
            break;
        }
        k->first = c->next_to_prepare;
        k->last = k->first != NULL ? k->last : NULL;
        k->n_waiting--;
        pthread_mutex_unlock(&k->lock);
        work(k, c);
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
    for (int i = 0; i < MAX_GRAMMARS; i++) {
        di_grammar_free(k->grammars[i].grammar);
    }
    pthread_cond_destroy(&k->filled);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

void chat_compiler_get_stats(chat_compiler *k, chat_compiler_stats *out)
{
    pthread_mutex_lock(&k->lock);
    *out = k->stats;
    pthread_mutex_unlock(&k->lock);
}
