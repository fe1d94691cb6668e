/* chat_call.c - one call: its making, its references, its ends; its public side is in chat_call_public.c.
 *
 * The thread that has a call works on `draft` and `staged`, which nobody else sees; chat_publish makes both public at once. So a call's
 * mutex is held for some copies only, once a batch, and output changes hands by swapping buffers: staged to back to front. Three
 * buffers go round, and a stream that is read allocates nothing once they have grown. */
#include "chat/chat_int.h"
#include "chat/chat_metrics.h"

#include <sys/random.h>
#include <time.h>

#define RANDOM_ID_BYTES 16

static const char *const id_prefixes[] = {
    [DI_ROUTE_CHAT] = "chatcmpl-",      [DI_ROUTE_RESPONSES] = "resp_",  [DI_ROUTE_MESSAGES] = "msg_",
    [DI_ROUTE_COUNT_TOKENS] = "count_", [DI_ROUTE_COMPLETIONS] = "cmpl-", [DI_ROUTE_TOKENIZE] = "tok_",
    [DI_ROUTE_DETOKENIZE] = "detok_",
};

/* --- Making --------------------------------------------------------------------------------------------------------------------- */

di_status chat_random(void *out, size_t n, di_error *err)
{
    size_t done = 0;
    while (done < n) {
        const ssize_t got = getrandom((char *)out + done, n - done, 0);
        if (got < 0) {
            return err_set(err, DI_E_IO, "the system gives no random numbers");
        }
        done += (size_t)got;
    }
    return DI_OK;
}

static di_status make_id(di_route route, char *out, size_t capacity, di_error *err)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t noise[RANDOM_ID_BYTES];
    const di_status status = chat_random(noise, sizeof noise, err);
    const size_t n = strlen(id_prefixes[route]);
    if (status != DI_OK || n + 2 * sizeof noise + 1 > capacity) {
        return status;
    }
    memcpy(out, id_prefixes[route], n);
    for (size_t i = 0; i < sizeof noise; i++) {
        out[n + 2 * i] = digits[noise[i] >> 4];
        out[n + 2 * i + 1] = digits[noise[i] & 15];
    }
    out[n + 2 * sizeof noise] = '\0';
    return DI_OK;
}

static di_status check_options(const di_call_options *o, di_error *err)
{
    if ((int)o->route < DI_ROUTE_CHAT || o->route > DI_ROUTE_DETOKENIZE) {
        return err_set(err, DI_E_ARGUMENT, "unknown route %d", (int)o->route);
    }
    if (o->body == NULL && o->n > 0) {
        return err_set(err, DI_E_ARGUMENT, "a body of %zu bytes is missing", o->n);
    }
    if (o->id != NULL && (o->id[0] == '\0' || strlen(o->id) > CHAT_MAX_ID_BYTES)) {
        return err_set(err, DI_E_ARGUMENT, "id: must have 1 to %d bytes", CHAT_MAX_ID_BYTES);
    }
    if (o->tenant != NULL && strlen(o->tenant) > DI_MAX_TENANT_BYTES) {
        return err_set(err, DI_E_ARGUMENT, "tenant: at most %d bytes", DI_MAX_TENANT_BYTES);
    }
    if (o->cache != NULL && strlen(o->cache) > CHAT_MAX_CACHE_BYTES) {
        return err_set(err, DI_E_ARGUMENT, "cache: at most %d bytes", CHAT_MAX_CACHE_BYTES);
    }
    if (o->queue_timeout_ms < 0 || o->timeout_ms < 0) {
        return err_set(err, DI_E_ARGUMENT, "a timeout is negative");
    }
    return DI_OK;
}

int64_t chat_deadline(int64_t now, int64_t timeout_ms)
{
    int64_t ns;
    int64_t at;
    if (timeout_ms == 0 || __builtin_mul_overflow(timeout_ms, (int64_t)1000000, &ns) || __builtin_add_overflow(now, ns, &at)) {
        return 0;
    }
    return at;
}

static void init_shared(di_call *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_mutex_init(&c->wake_mutex, NULL);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    buf_init(&c->staged, SIZE_MAX);
    buf_init(&c->back, SIZE_MAX);
    buf_init(&c->front, SIZE_MAX);
}

/* Struct, id and tenant in one block. */
static di_call *alloc_call(const di_call_options *o, const char *id)
{
    const char *const tenant = o->tenant != NULL ? o->tenant : "";
    const char *const cache = o->cache != NULL ? o->cache : "";
    const size_t id_size = strlen(id) + 1;
    const size_t tenant_size = strlen(tenant) + 1;
    const size_t cache_size = strlen(cache) + 1;
    di_call *const c = calloc(1, sizeof *c + id_size + tenant_size + cache_size);
    char *const body = malloc(o->n + 1);
    if (c == NULL || body == NULL) {
        free(c);
        free(body);
        return NULL;
    }
    c->id = memcpy(c + 1, id, id_size);
    c->tenant = memcpy(c->id + id_size, tenant, tenant_size);
    c->cache_text = memcpy(c->tenant + tenant_size, cache, cache_size);
    if (o->n > 0) {
        memcpy(body, o->body, o->n);
    }
    body[o->n] = '\0';
    c->body = body;
    c->n_body = o->n;
    return c;
}

di_status chat_call_new(di_service *s, const di_call_options *options, di_call **out, di_error *err)
{
    char made[CHAT_MAX_ID_BYTES + 1];
    di_status status = check_options(options, err);
    if (status == DI_OK && options->id == NULL) {
        status = make_id(options->route, made, sizeof made, err);
    }
    if (status != DI_OK) {
        return status;
    }
    di_call *const c = options->n < SIZE_MAX ? alloc_call(options, options->id != NULL ? options->id : made) : NULL;
    if (c == NULL) {
        return err_memory(err, "call", sizeof *c + options->n);
    }
    const int64_t now = clock_now_ns();
    init_shared(c);
    chat_constraint_init(&c->constraint);
    c->service = s;
    c->route = options->route;
    c->priority = options->priority;
    c->queue_deadline = chat_deadline(now, options->queue_timeout_ms);
    c->deadline = chat_deadline(now, options->timeout_ms);
    c->created = (int64_t)time(NULL);
    c->wake = options->wake;
    c->wake_user = options->user;
    c->draft.submitted_at = c->info.submitted_at = now;
    c->submit = (chat_command){.kind = CHAT_SUBMIT, .call = c};
    atomic_init(&c->refs, 2);
    *out = c;
    return DI_OK;
}

/* --- References -------------------------------------------------------------------------------------------------------------------- */

void chat_call_get(di_call *c)
{
    atomic_fetch_add(&c->refs, 1);
}

bool chat_call_try_get(di_call *c)
{
    int32_t refs = atomic_load(&c->refs);
    while (refs > 0) {
        if (atomic_compare_exchange_weak(&c->refs, &refs, refs + 1)) {
            return true;
        }
    }
    return false;
}

/* What only the way of a call needs. */
static void free_work(di_call *c)
{
    free(c->body);
    c->body = NULL;
    if (c->writer != NULL) {
        c->writer_fns->free(c->writer);
        c->writer = NULL;
    }
    di_request_free(c->request);
    c->request = NULL;
    free(c->parameters);
    c->parameters = NULL;
    chat_constraint_fini(&c->constraint);
    di_grammar_free(c->grammar);
    c->grammar = NULL;
    for (size_t i = 0; i < c->n_tasks; i++) {
        free(c->tasks[i].prompt);
    }
    free(c->tasks);
    c->tasks = NULL;
    c->n_tasks = 0;
    free(c->choices);
    c->choices = NULL;
    chat_failure_fini(&c->failure);
    buf_fini(&c->staged);
}

static void destroy(di_call *c)
{
    buf_fini(&c->back);
    buf_fini(&c->front);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    pthread_mutex_destroy(&c->wake_mutex);
    free(c->warnings);
    free(c);
}

void chat_call_put(di_call *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1) {
        return;
    }
    di_service *const s = c->service;
    pthread_mutex_lock(&s->calls);
    if (c->previous_of_all != NULL) {
        c->previous_of_all->next_of_all = c->next_of_all;
    } else {
        s->first_call = c->next_of_all;
    }
    if (c->next_of_all != NULL) {
        c->next_of_all->previous_of_all = c->previous_of_all;
    }
    s->n_calls--;
    const bool last = s->closed && s->n_calls == 0;
    pthread_mutex_unlock(&s->calls);
    destroy(c);
    if (last) {
        chat_service_free(s);
    }
}

void chat_call_discard(di_call *c)
{
    free_work(c);
    destroy(c);
}

void chat_leave(di_call *c)
{
    di_service *const s = c->service;
    free_work(c);
    pthread_mutex_lock(&s->calls);
    if (--s->n_on_way == 0) {
        pthread_cond_broadcast(&s->left);
    }
    pthread_mutex_unlock(&s->calls);
    chat_call_put(c);
}

/* --- Publishing --------------------------------------------------------------------------------------------------------------------- */

/* Staged output goes behind what is unread. The call's mutex is held. */
static chat_published hand_over(di_call *c)
{
    const size_t n = c->staged.size;
    const bool bounded = c->draft.stream && c->draft.phase != DI_CALL_ENDED;
    if (n == 0) {
        return CHAT_PUBLISHED;
    }
    if (bounded && c->info.unread + n > c->service->max_unread_bytes) {
        return CHAT_TOO_MUCH;
    }
    if (c->back.size == 0) {
        const buf empty = c->back;
        c->back = c->staged;
        c->staged = empty;
    } else if (!buf_append(&c->back, c->staged.data, n)) {
        c->back.failed = c->back.full = false;
        return CHAT_NO_MEMORY;
    }
    c->info.unread += n;
    return CHAT_PUBLISHED;
}

static void count_phase(di_call *c, di_call_phase before, di_call_phase now)
{
    if (before != now) {
        atomic_fetch_add(&c->service->n_phase[now], 1);
        atomic_fetch_sub(&c->service->n_phase[before], 1);
    }
    if (before != DI_CALL_ENDED && now == DI_CALL_ENDED) {
        atomic_fetch_sub(&c->service->n_pending, 1);
    }
}

chat_published chat_publish(di_call *c)
{
    pthread_mutex_lock(&c->mutex);
    const bool wakes = c->wakes || c->staged.size > 0;
    const chat_published result = hand_over(c);
    if (result == CHAT_PUBLISHED) {
        const size_t unread = c->info.unread;
        count_phase(c, c->info.phase, c->draft.phase); /* here, so that figures never lag behind the call */
        c->info = c->draft;
        c->info.unread = unread;
        if (c->n_waiters > 0) {
            pthread_cond_broadcast(&c->changed);
        }
    }
    pthread_mutex_unlock(&c->mutex);
    buf_clear(&c->staged);
    if (result != CHAT_PUBLISHED) {
        return result;
    }
    c->wakes = false;
    if (wakes) {
        pthread_mutex_lock(&c->wake_mutex);
        if (c->wake != NULL) {
            c->wake(c->wake_user);
        }
        pthread_mutex_unlock(&c->wake_mutex);
    }
    return result;
}

/* --- Ends --------------------------------------------------------------------------------------------------------------------------- */

void chat_end(di_call *c)
{
    c->ended = true;
    c->wakes = true;
    c->draft.phase = DI_CALL_ENDED;
    c->draft.ended_at = clock_now_ns();
    if (c->draft.http_status == 0) {
        c->draft.http_status = 200;
    }
    chat_metrics_ended(c->service->metrics, c);
}

/* A stream says it in its own words; without memory for them it just ends. */
static void stage_failure(di_call *c, const chat_failure *failure)
{
    const char *const text = chat_failure_text(failure);
    const char *frames;
    size_t n;
    if (c->draft.http_status != 0) {
        if (c->writer_fns->fail(c->writer, failure->http_status, text, NULL) == DI_OK &&
            c->writer_fns->frames(c->writer, &frames, &n, NULL) == DI_OK) {
            buf_append(&c->staged, frames, n);
        }
        return;
    }
    c->draft.http_status = failure->http_status;
    c->draft.retry_after_s = failure->retry_after_s;
    buf_clear(&c->staged);
    if (!chat_error_body(c->route, failure->http_status, text, &failure->refusal, &c->staged)) {
        buf_clear(&c->staged);
    }
}

void chat_end_failed(di_call *c, chat_failure *failure)
{
    stage_failure(c, failure);
    c->draft.error = failure->code;
    chat_failure_fini(failure);
    chat_end(c);
}

void chat_end_cancelled(di_call *c)
{
    chat_failure failure;
    c->draft.cancelled = true;
    switch (chat_call_cancelled(c)) {
    case CHAT_CANCEL_SHUTDOWN:
        failure = chat_fail(503, DI_E_CANCELLED, 0, "The server is shutting down.");
        break;
    case CHAT_CANCEL_UNREAD:
        failure = chat_fail(499, DI_E_LIMIT, 0, "The output was not read.");
        break;
    default:
        failure = chat_fail(499, DI_E_CANCELLED, 0, "The request was cancelled.");
        break;
    }
    chat_end_failed(c, &failure);
}
