/* chat_engine.c - the engine thread: it alone touches the scheduler and, through it, the engine.
 *
 * One round: take commands and cancellations, step, show what the step did. The thread never waits for a client, a parser or a file;
 * it sleeps when the scheduler is idle, until a command or the next deadline.
 *
 * Every call that was handed over gets one event with `last`, behind which the scheduler knows nothing of it: with it the reference of
 * the call's way goes to the output thread. */
#include "chat/chat_int.h"
#include "chat/chat_metrics.h"

#define TENANTS_EVERY_NS 20000000
#define TENANTS_SHARE 50 /* of the time at most, however many there are */
#define AFTER_NO_MEMORY_NS 1000000
#define RETRY_QUEUE_S 5
#define RETRY_DRAINING_S 10

/* --- Events ------------------------------------------------------------------------------------------------------------------------ */

static void cancel_live_tasks(di_call *c)
{
    for (size_t i = 0; i < c->n_tasks; i++) {
        if (c->tasks[i].n_live > 0) {
            di_task_cancel(c->tasks[i].task);
        }
    }
}

/* A call that has lost an event says nothing more until its last one, then it fails. Within chat_link_begin and _end. */
static void put(chat_link *l, const chat_event *event, const di_token_logprob *tops)
{
    di_call *const c = event->call;
    if (!c->is_lost && !chat_link_put(l, event, tops)) {
        c->is_lost = true;
        cancel_live_tasks(c);
    }
    if (c->is_lost && event->last) {
        chat_failure_fini(&c->failure);
        c->failure = chat_fail(503, DI_E_MEMORY, 1, NULL);
        chat_link_lose(l, c);
    }
}

static void set_failure(di_call *c, const di_task_event *e)
{
    if (c->failure.http_status != 0) {
        return;
    }
    const di_status code = e->error != NULL ? e->error->code : DI_E_INTERNAL;
    c->failure = code == DI_E_MEMORY ? chat_fail(503, code, 1, NULL)
                                     : chat_fail(500, code, 0, e->error != NULL ? e->error->message : "The generation failed.");
}

static chat_event translate(const di_task_event *e, int64_t now)
{
    const chat_task *const t = e->user;
    chat_event out = {
        .call = t->call,
        .at = now,
        .choice = t->first_choice + e->choice,
        .kind = CHAT_ENDED,
        .end = (uint8_t)e->end,
    };
    if (e->admitted) {
        out.kind = CHAT_ADMITTED;
        out.cached = e->cached_tokens;
        out.choice = (int32_t)(t - t->call->tasks);
    } else if (e->sample != NULL) {
        out.kind = CHAT_TOKEN;
        out.id = e->sample->id;
        out.logprob = e->sample->logprob;
        out.n_top = e->sample->n_top;
        out.is_stop = e->sample->is_stop;
    }
    return out;
}

void chat_engine_on_events(void *user, const di_task_event *events, size_t n)
{
    di_service *const s = user;
    const int64_t now = clock_now_ns();
    chat_link_begin(&s->link);
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        chat_task *const t = e->user;
        chat_event event = translate(e, now);
        if (e->end != DI_TASK_RUNNING) {
            t->n_live--;
            t->call->n_live--;
            event.last = t->call->n_live == 0;
            atomic_fetch_add(&s->n_flushing, event.last ? 1 : 0);
        }
        if (e->end == DI_TASK_FAILED) {
            set_failure(t->call, e);
        }
        put(&s->link, &event, t->call->logprobs && e->sample != NULL ? e->sample->top : NULL);
    }
    chat_link_end(&s->link);
}

/* --- Commands ---------------------------------------------------------------------------------------------------------------------- */

static di_status submit_task(const di_service *s, di_call *c, chat_task *t, di_error *err)
{
    const di_task_options options = {
        .prompt = t->prompt,
        .n_prompt = t->n_prompt,
        .sampling = &c->sampling,
        .n = c->choices_a_task,
        .max_tokens = c->max_tokens,
        .tenant = c->tenant,
        .no_cache = s->no_cache,
        .priority = c->priority,
        .queue_deadline = c->queue_deadline,
        .deadline = c->deadline,
        .user = t,
        .grammar = c->grammar,
        .grammar_waits = c->constraint.waits && s->think_end >= 0,
        .grammar_after = s->think_end,
        .grammar_closes = c->constraint.closes,
        .grammar_jumps = c->constraint.jumps,
        .cache = c->cache,
        .verify = c->verify,
    };
    const di_status status = di_task_submit(s->scheduler, &options, &t->task, err);
    if (status == DI_OK) {
        t->n_live = c->choices_a_task;
        c->n_live += c->choices_a_task;
        free(t->prompt);
        t->prompt = NULL;
    }
    return status;
}

/* A full queue and a prompt that never fits have the same status. */
static chat_failure submit_failure(const di_service *s, di_status status, const di_error *err)
{
    di_scheduler_stats stats;
    di_scheduler_get_stats(s->scheduler, &stats);
    if (status == DI_E_LIMIT && stats.n_waiting >= s->max_waiting) {
        return chat_fail(429, status, RETRY_QUEUE_S, "Too many requests are waiting. Please try again later.");
    }
    if (status == DI_E_LIMIT) {
        return chat_fail(400, status, 0, err->message);
    }
    if (status == DI_E_STATE) {
        return chat_fail(503, status, RETRY_DRAINING_S, "No more requests are accepted for this key now.");
    }
    return chat_fail_status(status, err);
}

static void put_one(chat_link *l, di_call *c, chat_event_kind kind, bool last)
{
    const chat_event event = {.call = c, .at = clock_now_ns(), .kind = (uint8_t)kind, .last = last};
    chat_link_begin(l);
    put(l, &event, NULL);
    chat_link_end(l);
}

static void submit(di_service *s, di_call *c)
{
    di_error err;
    di_status status = DI_OK;
    const bool cancelled = chat_call_cancelled(c) != CHAT_NOT_CANCELLED;
    for (size_t i = 0; i < c->n_tasks && status == DI_OK && !cancelled; i++) {
        status = submit_task(s, c, &c->tasks[i], &err);
    }
    if (cancelled || status != DI_OK) {
        if (!cancelled) {
            c->failure = submit_failure(s, status, &err);
        }
        cancel_live_tasks(c);
        atomic_fetch_add(&s->n_flushing, c->n_live == 0 ? 1 : 0);
        put_one(&s->link, c, CHAT_REFUSED, c->n_live == 0);
        return;
    }
    put_one(&s->link, c, CHAT_QUEUED, false);
}

/* False: no memory, to be tried again. */
static bool set_tenant(di_service *s, chat_command *command)
{
    const di_status status = command->kind == CHAT_PIN_CACHE
                                 ? di_scheduler_pin_tenant(s->scheduler, command->name, command->pinned, NULL)
                                 : di_scheduler_set_tenant(s->scheduler, command->name, command->state, NULL);
    s->engine_thread.tenants_stale = true;
    if (status == DI_E_MEMORY) {
        return false;
    }
    free(command);
    return true;
}

static bool purge_cache(di_service *s, chat_command *command)
{
    di_engine_purge_cache(s->engine, command->name, command->name != NULL ? strlen(command->name) : 0);
    free(command);
    return true;
}

/* The call of a cancelled choice, or cancelled as a whole. */
static void attend(di_call *c)
{
    if (c->n_live == 0) {
        return; /* not here yet, or gone: then its arrays are, too */
    }
    if (chat_call_cancelled(c) != CHAT_NOT_CANCELLED) {
        cancel_live_tasks(c);
        return;
    }
    for (size_t i = 0; i < c->n_tasks; i++) {
        const chat_task *const t = &c->tasks[i];
        for (int32_t k = 0; t->n_live > 0 && k < c->choices_a_task; k++) {
            if (atomic_load(&c->choices[t->first_choice + k].cancel)) {
                di_task_cancel_choice(t->task, k);
            }
        }
    }
}

/* Returns how many orders there were. */
static size_t follow(di_service *s, chat_orders *orders)
{
    size_t n = 0;
    for (chat_command *command = orders->commands; command != NULL; n++) {
        chat_command *const next = command->next;
        if (command->kind == CHAT_SUBMIT) {
            submit(s, command->call);
        } else if (!(command->kind == CHAT_PURGE_CACHE ? purge_cache(s, command) : set_tenant(s, command))) {
            chat_link_command(&s->link, command);
        }
        command = next;
    }
    for (di_call *c = orders->attention; c != NULL; n++) {
        di_call *const next = c->next_attention;
        attend(c);
        chat_call_put(c);
        c = next;
    }
    return n;
}

/* --- Showing ------------------------------------------------------------------------------------------------------------------------ */

static const char *state_name(di_tenant_state state)
{
    switch (state) {
    case DI_TENANT_OPEN:
        return "open";
    case DI_TENANT_PAUSED:
        return "paused";
    case DI_TENANT_DRAINING:
        return "draining";
    }
    return "unknown";
}

static void write_tenants(const di_tenant_info *tenants, size_t n, buf *out)
{
    buf_puts(out, "{\"tenants\":[");
    for (size_t i = 0; i < n; i++) {
        const di_tenant_info *const t = &tenants[i];
        buf_puts(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        buf_json_string(out, t->name, strlen(t->name));
        buf_printf(out, ",\"state\":\"%s\",\"waiting\":%lld,\"running\":%lld,\"prompt_tokens\":%lld,\"generated_tokens\":%lld}",
                   state_name(t->state), (long long)t->n_waiting, (long long)t->n_running, (long long)t->prompt_tokens,
                   (long long)t->generated_tokens);
    }
    buf_puts(out, "]}");
}

/* Without memory the last text stays. */
static void show_tenants(di_service *s, int64_t now)
{
    chat_engine *const e = &s->engine_thread;
    buf text;
    buf names;
    const size_t n = di_scheduler_get_tenants(s->scheduler, NULL, 0);
    di_tenant_info *const tenants = ar_calloc(n, sizeof *tenants);
    buf_init(&text, SIZE_MAX);
    buf_init(&names, SIZE_MAX);
    if (tenants != NULL) {
        const size_t all = di_scheduler_get_tenants(s->scheduler, tenants, n);
        write_tenants(tenants, all < n ? all : n, &text);
        for (size_t i = 0; i < n && i < all; i++) {
            (void)buf_append(&names, tenants[i].name, strlen(tenants[i].name) + 1);
        }
    }
    free(tenants);
    if (text.size == 0 || text.failed || names.failed) {
        buf_fini(&text);
        buf_fini(&names);
        return;
    }
    pthread_mutex_lock(&e->shown);
    char *const old = e->tenants;
    char *const old_names = e->names;
    e->tenants = text.data;
    e->n_tenants = text.size;
    e->names = names.data;
    e->n_names = names.size;
    pthread_mutex_unlock(&e->shown);
    free(old);
    free(old_names);
    const int64_t cost = clock_now_ns() - now;
    e->tenants_next = now + (cost > TENANTS_EVERY_NS / TENANTS_SHARE ? cost * TENANTS_SHARE : TENANTS_EVERY_NS);
    e->tenants_stale = false;
}

/* Figures after every step; the list of tenants, which may be long, a few dozen times a second, and when all is quiet. */
static void show(di_service *s, bool idle)
{
    chat_engine *const e = &s->engine_thread;
    di_scheduler_stats stats;
    di_kv_stats kv;
    di_cache_stats cache;
    di_stream_stats stream;
    di_scheduler_get_stats(s->scheduler, &stats);
    di_engine_get_kv_stats(s->engine, &kv);
    di_engine_get_cache_stats(s->engine, &cache);
    di_engine_get_stream_stats(s->engine, &stream);
    pthread_mutex_lock(&e->shown);
    e->stats.scheduler = stats;
    e->stats.kv = kv;
    e->stats.cache = cache;
    e->stats.stream = stream;
    pthread_mutex_unlock(&e->shown);
    if (e->tenants_stale) {
        const int64_t now = clock_now_ns();
        if (idle || now >= e->tenants_next) {
            show_tenants(s, now);
        }
    }
}

/* --- The thread -------------------------------------------------------------------------------------------------------------------- */

static void *engine_main(void *arg)
{
    di_service *const s = arg;
    chat_orders orders = {.stop = false};
    di_step_info info = {.idle = true};
    s->engine_thread.tenants_stale = true;
    show(s, true);
    for (;;) {
        chat_link_orders(&s->link, info.idle, info.next_deadline, &orders);
        const size_t n = follow(s, &orders);
        if (orders.stop && n == 0 && info.idle) {
            return NULL;
        }
        di_error err;
        if (di_scheduler_step(s->scheduler, &info, &err) != DI_OK) {
            info = (di_step_info){.idle = true, .next_deadline = clock_now_ns() + AFTER_NO_MEMORY_NS}; /* nothing was done */
            continue;
        }
        s->engine_thread.tenants_stale |= n > 0 || info.n_tokens > 0;
        if (info.n_tokens > 0) {
            chat_metrics_step(s->metrics, &info);
        }
        show(s, info.idle);
    }
}

di_status chat_engine_start(di_service *s, di_error *err)
{
    chat_engine *const e = &s->engine_thread;
    const int failed = pthread_create(&e->thread, NULL, engine_main, s);
    if (failed != 0) {
        return err_set_errno(err, failed, "cannot start the engine's thread");
    }
    e->started = true;
    return DI_OK;
}

void chat_engine_stop(di_service *s)
{
    chat_engine *const e = &s->engine_thread;
    if (e->started) {
        chat_link_stop_engine(&s->link);
        pthread_join(e->thread, NULL);
        e->started = false;
    }
}
