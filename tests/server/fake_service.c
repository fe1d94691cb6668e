/* fake_service.c - see fake_service.h. */
#include "fake_service.h"

#include "support/unit.h"

#include "core/buf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CALLS = 20000, PATIENCE_S = 60 };

/* Lock order: wake_lock, then the service's. A wake runs with the first alone. */
struct di_call {
    di_service *service;
    fake_seen seen;
    di_call_info info;
    void (*wake)(void *user);
    void *user;
    buf output;
    size_t taken;
    bool freed;
    char id[32];
    pthread_mutex_t wake_lock;
};

struct di_service {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    di_call *calls[MAX_CALLS];
    size_t n_calls;
    bool answer_all;
    bool draining;
    di_status refuse;
    char tenant[DI_MAX_TENANT_BYTES + 1];
    char cache[DI_MAX_TENANT_BYTES + 16]; /* what the admin API asked for last, and of whom */
    di_tenant_state state;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

di_service *fake_new(void)
{
    di_service *const s = calloc(1, sizeof *s);
    assert_non_null(s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return s;
}

void fake_free(di_service *s)
{
    for (size_t i = 0; i < s->n_calls; i++) {
        if (!s->calls[i]->freed) {
            fail_msg("call %zu was not freed", i);
        }
        buf_fini(&s->calls[i]->output);
        pthread_mutex_destroy(&s->calls[i]->wake_lock);
        free(s->calls[i]);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

/* Tells the server that something changed; not once the call was freed. */
static void changed(di_call *call)
{
    di_service *const s = call->service;
    pthread_mutex_lock(&call->wake_lock);
    pthread_mutex_lock(&s->lock);
    const bool freed = call->freed;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (!freed && call->wake != NULL) {
        call->wake(call->user);
    }
    pthread_mutex_unlock(&call->wake_lock);
}

static void wait_changed(di_service *s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_cond_timedwait(&s->changed, &s->lock, &until) != 0) {
        pthread_mutex_unlock(&s->lock);
        fail_msg("nothing happened for %d seconds", PATIENCE_S);
    }
}

/* --- The test's side ------------------------------------------------------------------------------------------------------- */

void fake_answer_all(di_service *s)
{
    pthread_mutex_lock(&s->lock);
    s->answer_all = true;
    pthread_mutex_unlock(&s->lock);
}

void fake_refuse(di_service *s, di_status status)
{
    pthread_mutex_lock(&s->lock);
    s->refuse = status;
    pthread_mutex_unlock(&s->lock);
}

di_call *fake_call(di_service *s, size_t i)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_calls <= i) {
        wait_changed(s);
    }
    di_call *const call = s->calls[i];
    pthread_mutex_unlock(&s->lock);
    return call;
}

size_t fake_n_calls(di_service *s)
{
    pthread_mutex_lock(&s->lock);
    const size_t n = s->n_calls;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void fake_phase(di_call *call, di_call_phase phase)
{
    pthread_mutex_lock(&call->service->lock);
    call->info.phase = phase;
    *(phase == DI_CALL_QUEUED ? &call->info.queued_at : phase == DI_CALL_PREFILL ? &call->info.admitted_at : &call->info.first_token_at) =
        now_ns();
    pthread_mutex_unlock(&call->service->lock);
    changed(call);
}

void fake_status(di_call *call, int http_status, bool stream, int32_t retry_after_s)
{
    pthread_mutex_lock(&call->service->lock);
    call->info.http_status = http_status;
    call->info.stream = stream;
    call->info.retry_after_s = retry_after_s;
    pthread_mutex_unlock(&call->service->lock);
    changed(call);
}

void fake_write(di_call *call, const char *text)
{
    pthread_mutex_lock(&call->service->lock);
    buf_puts(&call->output, text);
    call->info.unread = call->output.size - call->taken;
    pthread_mutex_unlock(&call->service->lock);
    changed(call);
}

void fake_usage(di_call *call, int64_t prompt, int64_t cached, int64_t completion)
{
    pthread_mutex_lock(&call->service->lock);
    call->info.usage = (di_usage){.prompt_tokens = prompt, .cached_tokens = cached, .completion_tokens = completion};
    pthread_mutex_unlock(&call->service->lock);
}

void fake_end(di_call *call, di_finish finish)
{
    pthread_mutex_lock(&call->service->lock);
    call->info.phase = DI_CALL_ENDED;
    call->info.finish = finish;
    call->info.ended_at = now_ns();
    pthread_mutex_unlock(&call->service->lock);
    changed(call);
}

void fake_give_up(di_call *call)
{
    pthread_mutex_lock(&call->service->lock);
    call->info.cancelled = true;
    pthread_mutex_unlock(&call->service->lock);
    fake_end(call, DI_FINISH_CUT);
}

const fake_seen *fake_seen_of(const di_call *call)
{
    return &call->seen;
}

void fake_wait_cancelled(di_call *call)
{
    pthread_mutex_lock(&call->service->lock);
    while (!call->info.cancelled) {
        wait_changed(call->service);
    }
    pthread_mutex_unlock(&call->service->lock);
}

void fake_wait_freed(di_call *call)
{
    pthread_mutex_lock(&call->service->lock);
    while (!call->freed) {
        wait_changed(call->service);
    }
    pthread_mutex_unlock(&call->service->lock);
}

bool fake_is_cancelled(di_call *call)
{
    pthread_mutex_lock(&call->service->lock);
    const bool cancelled = call->info.cancelled;
    pthread_mutex_unlock(&call->service->lock);
    return cancelled;
}

size_t fake_unread(di_call *call)
{
    pthread_mutex_lock(&call->service->lock);
    const size_t unread = call->info.unread;
    pthread_mutex_unlock(&call->service->lock);
    return unread;
}

void fake_last_tenant(di_service *s, char *name, size_t capacity, di_tenant_state *state)
{
    pthread_mutex_lock(&s->lock);
    snprintf(name, capacity, "%s", s->tenant);
    *state = s->state;
    pthread_mutex_unlock(&s->lock);
}

/* --- The server's side ------------------------------------------------------------------------------------------------------ */

static void answer_now(di_call *call)
{
    call->info.phase = DI_CALL_ENDED;
    call->info.http_status = 200;
    buf_puts(&call->output, "{\"echo\":");
    buf_json_string(&call->output, call->seen.body, strlen(call->seen.body));
    buf_puts(&call->output, "}");
    call->info.unread = call->output.size;
}

di_status di_service_submit(di_service *s, const di_call_options *options, di_call **out, di_error *err)
{
    pthread_mutex_lock(&s->lock);
    const di_status refuse = s->draining ? DI_E_STATE : s->n_calls == MAX_CALLS ? DI_E_LIMIT : s->refuse;
    pthread_mutex_unlock(&s->lock);
    di_call *const call = refuse == DI_OK ? calloc(1, sizeof *call) : NULL;
    if (call == NULL) {
        if (err != NULL) {
            snprintf(err->message, sizeof err->message, "refused by the test");
        }
        return refuse != DI_OK ? refuse : DI_E_MEMORY;
    }
    call->service = s;
    call->seen.route = options->route;
    call->seen.n_body = options->n;
    memcpy(call->seen.body, options->body, options->n < sizeof call->seen.body ? options->n : sizeof call->seen.body - 1);
    snprintf(call->seen.tenant, sizeof call->seen.tenant, "%s", options->tenant);
    snprintf(call->seen.cache, sizeof call->seen.cache, "%s", options->cache != NULL ? options->cache : "(none)");
    call->seen.priority = options->priority;
    call->seen.queue_timeout_ms = options->queue_timeout_ms;
    call->seen.timeout_ms = options->timeout_ms;
    call->info.submitted_at = now_ns();
    call->wake = options->wake;
    call->user = options->user;
    buf_init(&call->output, SIZE_MAX);
    pthread_mutex_init(&call->wake_lock, NULL);
    pthread_mutex_lock(&s->lock);
    snprintf(call->id, sizeof call->id, "fake-%zu", s->n_calls);
    s->calls[s->n_calls++] = call;
    if (s->answer_all) {
        answer_now(call);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    *out = call;
    return DI_OK;
}

void di_call_get(const di_call *call, di_call_info *out)
{
    pthread_mutex_lock(&call->service->lock);
    *out = call->info;
    pthread_mutex_unlock(&call->service->lock);
}

const char *di_call_id(const di_call *call)
{
    return call->id;
}

const char *di_call_warnings(const di_call *call)
{
    (void)call;
    return NULL;
}

size_t di_call_read(di_call *call, char *out, size_t capacity)
{
    pthread_mutex_lock(&call->service->lock);
    const size_t left = call->output.size - call->taken;
    const size_t n = left < capacity ? left : capacity;
    if (n > 0) {
        memcpy(out, call->output.data + call->taken, n);
    }
    call->taken += n;
    call->info.unread = left - n;
    pthread_cond_broadcast(&call->service->changed);
    pthread_mutex_unlock(&call->service->lock);
    return n;
}

void di_call_cancel(di_call *call)
{
    pthread_mutex_lock(&call->service->lock);
    call->info.cancelled = true;
    pthread_cond_broadcast(&call->service->changed);
    pthread_mutex_unlock(&call->service->lock);
}

void di_call_free(di_call *call)
{
    if (call != NULL) {
        pthread_mutex_lock(&call->wake_lock);
        pthread_mutex_lock(&call->service->lock);
        call->freed = true;
        pthread_cond_broadcast(&call->service->changed);
        pthread_mutex_unlock(&call->service->lock);
        pthread_mutex_unlock(&call->wake_lock);
    }
}

void di_service_drain(di_service *s)
{
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    pthread_mutex_unlock(&s->lock);
}

int64_t di_service_pending(const di_service *service)
{
    di_service *const s = (di_service *)(uintptr_t)service;
    int64_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_calls; i++) {
        n += !s->calls[i]->freed && s->calls[i]->info.phase != DI_CALL_ENDED;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

const char *di_service_model_name(const di_service *service)
{
    (void)service;
    return "fake/model";
}

int64_t di_service_context(const di_service *service)
{
    (void)service;
    return 4096;
}

di_status di_service_set_tenant(di_service *s, const char *name, di_tenant_state state, di_error *err)
{
    if (strlen(name) > DI_MAX_TENANT_BYTES) {
        snprintf(err->message, sizeof err->message, "the name is too long");
        return DI_E_ARGUMENT;
    }
    pthread_mutex_lock(&s->lock);
    snprintf(s->tenant, sizeof s->tenant, "%s", name);
    s->state = state;
    pthread_mutex_unlock(&s->lock);
    return DI_OK;
}

static di_status note_cache(di_service *s, const char *what, const char *tenant)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->cache, sizeof s->cache, "%s %s", what, tenant != NULL ? tenant : "(all)");
    pthread_mutex_unlock(&s->lock);
    return DI_OK;
}

di_status di_service_purge_cache(di_service *s, const char *tenant, di_error *err)
{
    (void)err;
    return note_cache(s, "purge", tenant);
}

di_status di_service_pin_cache(di_service *s, const char *tenant, bool pinned, di_error *err)
{
    (void)err;
    return note_cache(s, pinned ? "pin" : "unpin", tenant);
}

size_t di_service_cache(const di_service *service, char *out, size_t capacity)
{
    (void)service;
    return (size_t)snprintf(out, capacity, "{\"tiers\":[{\"name\":\"memory\"}]}");
}

size_t di_service_cache_tenants(const di_service *service, char *out, size_t capacity)
{
    (void)service;
    return (size_t)snprintf(out, capacity, "{\"tenants\":[{\"tier\":\"dir\",\"name\":\"alice\"}]}");
}

void fake_last_cache(di_service *s, char *out, size_t capacity)
{
    pthread_mutex_lock(&s->lock);
    snprintf(out, capacity, "%s", s->cache);
    pthread_mutex_unlock(&s->lock);
}

size_t di_service_tenants(const di_service *service, char *out, size_t capacity)
{
    (void)service;
    return (size_t)snprintf(out, capacity, "{\"tenants\":[{\"name\":\"a\"}]}");
}

void di_service_get_stats(const di_service *service, di_service_stats *out)
{
    *out = (di_service_stats){.n_waiting = 3, .n_running = (int64_t)fake_n_calls((di_service *)(uintptr_t)service)};
}

size_t di_service_metrics(const di_service *service, char *out, size_t capacity)
{
    (void)service;
    return (size_t)snprintf(out, capacity, "deepinfer_fake 1\n");
}
