/* eng_sched.c - the scheduler object, submitting, and the step that ties planning, execution and results together. */
#include "engine/eng_sched.h"

#include "core/core.h"
#include "engine/eng_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_RUNNING 256
#define MAX_RUNNING 65536
#define DEFAULT_WAITING 100000
#define DEFAULT_AHEAD 1024

/* ---- opening ---- */

static di_status check_options(const di_engine *e, const di_scheduler_options *o, di_error *err)
{
    if (o->on_events == NULL) {
        return err_set(err, DI_E_ARGUMENT, "on_events is NULL: without it tokens would be lost");
    }
    if (o->step_tokens < 0 || o->step_tokens > e->chunk) {
        return err_set(err, DI_E_ARGUMENT, "step_tokens is %d: must be 0 (default) to the engine's chunk_tokens, %d", o->step_tokens,
                       e->chunk);
    }
    if (o->max_running < 0 || o->max_running > MAX_RUNNING) {
        return err_set(err, DI_E_ARGUMENT, "max_running is %d: must be 0 (default %d) to %d", o->max_running, DEFAULT_RUNNING, MAX_RUNNING);
    }
    if (o->max_waiting < 0 || o->ahead_tokens < 0) {
        return err_set(err, DI_E_ARGUMENT, "%s is negative: 0 is the default", o->max_waiting < 0 ? "max_waiting" : "ahead_tokens");
    }
    if (e->first != NULL || e->scheduled || e->traced) {
        return err_set(err, DI_E_STATE, "the engine has sequences, a scheduler or a trace: a scheduler needs one of its own");
    }
    return DI_OK;
}

static di_status alloc_pass(const di_scheduler *s, eng_pass *p, di_error *err)
{
    const size_t rows = (size_t)s->step_tokens;
    p->parts = ar_calloc(rows, sizeof *p->parts);
    p->ids = ar_calloc(rows, sizeof *p->ids);
    p->items = ar_calloc(rows, sizeof *p->items);
    p->results = ar_calloc(rows + (size_t)s->max_running, sizeof *p->results);
    p->masks.jobs = ar_calloc(s->vocabulary != NULL ? (size_t)s->max_running : 1, sizeof *p->masks.jobs);
    return p->parts != NULL && p->ids != NULL && p->items != NULL && p->results != NULL && p->masks.jobs != NULL
               ? DI_OK
               : err_memory(err, "passes of the scheduler", rows * sizeof *p->parts);
}

static di_status alloc_buffers(di_scheduler *s, di_error *err)
{
    size_t bytes = 0;
    if (!ar_mul((size_t)s->step_tokens, (size_t)s->engine->c->vocab * sizeof(float), &bytes)) {
        return err_memory(err, "logits of the scheduler", SIZE_MAX);
    }
    s->ready = ar_calloc((size_t)s->max_running, sizeof *s->ready);
    s->logits = malloc(bytes); /* of a large vocabulary mostly never touched */
    if (s->ready == NULL || s->logits == NULL) {
        return err_memory(err, "logits of the scheduler", bytes);
    }
    if (s->draft_length > 0) {
        bytes = (size_t)s->draft_group * (size_t)s->engine->c->vocab * sizeof(float);
        s->draft_logits = malloc(bytes);
        if (s->draft_logits == NULL) {
            return err_memory(err, "draft logits of the scheduler", bytes);
        }
    }
    const di_status status = alloc_pass(s, &s->passes[0], err);
    return status == DI_OK ? alloc_pass(s, &s->passes[1], err) : status;
}

/* Drafts of a proposal that are used. */
static int32_t draft_length(const di_engine *e, const di_scheduler_options *o)
{
    const int32_t block = mdl_draft_most(e->runner) > 0 && o->script == NULL ? mdl_draft_block(e->runner) : 0;
    const int32_t most = block < ENG_MAX_DRAFT ? block : ENG_MAX_DRAFT;
    const int32_t asked = o->draft_tokens > 0 ? o->draft_tokens : o->draft_tokens == 0 ? most : 0;
    return asked < most ? asked : most;
}

di_status di_scheduler_new(di_engine *engine, const di_scheduler_options *o, di_scheduler **out, di_error *err)
{
    di_status status = check_options(engine, o, err);
    if (status != DI_OK) {
        return status;
    }
    di_scheduler *const s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_memory(err, "scheduler", sizeof *s);
    }
    s->engine = engine;
    s->on_events = o->on_events;
    s->user = o->user;
    s->script = o->script;
    s->script_user = o->script_user;
    s->vocabulary = o->vocabulary;
    s->step_tokens = o->step_tokens > 0 ? o->step_tokens : engine->chunk;
    s->max_running = o->max_running > 0 ? o->max_running : DEFAULT_RUNNING;
    s->max_waiting = o->max_waiting > 0 ? o->max_waiting : DEFAULT_WAITING;
    s->ahead = o->ahead_tokens > 0 ? o->ahead_tokens : DEFAULT_AHEAD;
    s->draft_length = draft_length(engine, o);
    s->draft_group = mdl_draft_most(engine->runner) < ENG_DRAFT_GROUP ? mdl_draft_most(engine->runner) : ENG_DRAFT_GROUP;
    s->next_deadline = INT64_MAX;
    s->seed = (uint64_t)clock_now_ns() * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)(uintptr_t)s;
    s->plan = &s->passes[0];
    s->proposing = true;
    s->automatic.on = o->draft_auto && s->draft_length > 0;
    status = alloc_buffers(s, err);
    engine->scheduled = true;
    if (status == DI_OK && s->automatic.on) {
        status = eng_auto_open(s, err);
    }
    if (status == DI_OK) {
        status = eng_exec_start(s, err);
    }
    if (status != DI_OK) {
        di_scheduler_free(s);
        return status;
    }
    *out = s;
    return DI_OK;
}

static void free_pass(eng_pass *p)
{
    free(p->parts);
    free(p->ids);
    free(p->items);
    free(p->results);
    free(p->masks.jobs);
}

/* Most events of a task in one step: any task may jump. */
static size_t events_of(int32_t n) { return (size_t)n * (1 + ENG_MAX_DRAFT) + 1; }

static void free_ended(di_scheduler *s)
{
    while (s->ended != NULL) {
        di_task *const task = s->ended;
        s->ended = task->next;
        s->events_needed -= events_of(task->n);
        eng_retire_free(task);
    }
}

void di_scheduler_free(di_scheduler *s)
{
    if (s == NULL) {
        return;
    }
    if (s->flight != NULL) {
        eng_exec_wait(s);
        eng_retire_pass(s, s->flight);
    }
    while (s->first != NULL) {
        s->n_events = 0; /* nobody is told */
        eng_retire_ask(s->first, 0, s->first->n, DI_TASK_CANCELLED);
        eng_retire_marked(s);
    }
    free_ended(s);
    eng_exec_stop(s);
    eng_queue_fini(s);
    free_pass(&s->passes[0]);
    free_pass(&s->passes[1]);
    free(s->ready);
    free(s->logits);
    free(s->draft_logits);
    eng_auto_close(s);
    free(s->events);
    s->engine->scheduled = false;
    free(s);
}

/* ---- submitting ---- */

static di_status check_task(const di_scheduler *s, const di_task_options *o, di_error *err)
{
    const int32_t vocab = s->engine->c->vocab;
    const int32_t n = o->n != 0 ? o->n : 1;
    const int32_t most = DI_MAX_CHOICES < s->max_running ? DI_MAX_CHOICES : s->max_running;
    if (n < 1 || n > most) {
        return err_set(err, DI_E_ARGUMENT, "n is %d: must be from 1 to %d", n, most);
    }
    if (o->n_prompt == 0) {
        return err_set(err, DI_E_ARGUMENT, "the prompt is empty: at least one token is needed");
    }
    if (o->max_tokens < 0) {
        return err_set(err, DI_E_ARGUMENT, "max_tokens is %lld: must be at least 1", (long long)o->max_tokens);
    }
    if (o->tenant != NULL && strlen(o->tenant) > DI_MAX_TENANT_BYTES) {
        return err_set(err, DI_E_ARGUMENT, "tenant has %zu bytes: at most %d", strlen(o->tenant), DI_MAX_TENANT_BYTES);
    }
    if ((int)o->cache.class_id < 0 || o->cache.class_id >= DI_CACHE_CLASSES || o->cache.ttl_s < 0) {
        return err_set(err, DI_E_ARGUMENT, "cache: class %d, time to live %lld s: there are %d classes, from 0 on, and no times below 0",
                       (int)o->cache.class_id, (long long)o->cache.ttl_s, DI_CACHE_CLASSES);
    }
    if (o->n_prompt >= (size_t)s->engine->max_tokens) {
        return err_set(err, DI_E_LIMIT, "the prompt has %zu tokens, and the context %lld: no room is left for an answer", o->n_prompt,
                       (long long)s->engine->max_tokens);
    }
    for (size_t i = 0; i < o->n_prompt; i++) {
        if (o->prompt[i] < 0 || o->prompt[i] >= vocab) {
            return err_set(err, DI_E_ARGUMENT, "token %zu of the prompt has id %d: the vocabulary is 0..%d", i, o->prompt[i], vocab - 1);
        }
    }
    if ((int)o->verify < 0 || o->verify > DI_VERIFY_REJECTION) {
        return err_set(err, DI_E_ARGUMENT, "verify is %d: there is no such rule", (int)o->verify);
    }
    if (o->grammar != NULL && s->vocabulary == NULL) {
        return err_set(err, DI_E_ARGUMENT, "a task has a grammar, and the scheduler no vocabulary");
    }
    return s->n_waiting < s->max_waiting ? DI_OK : err_set(err, DI_E_LIMIT, "the queue is full: %lld tasks wait", (long long)s->n_waiting);
}

/* Longest output of each of n choices that the whole KV memory can hold; the prompt's whole pages are shared. */
static int64_t memory_tokens(const di_scheduler *s, int64_t n_prompt, int32_t n)
{
    kv_counters k;
    kv_get_counters(s->engine->kv, &k);
    if (k.states_used + k.states_cached + k.states_free + k.states_absent < n) {
        return 0;
    }
    if (eng_cache_pages(s->engine->runner, 1) == 0) {
        return s->engine->max_tokens - n_prompt;
    }
    const int64_t shared = n_prompt / KV_UNIT_TOKENS;
    const int64_t pages = k.pages_used + k.pages_cached + k.pages_free + k.pages_absent - shared;
    return pages > 0 ? (shared + pages / n) * KV_UNIT_TOKENS - n_prompt : 0;
}

static di_status limit_length(const di_scheduler *s, di_task *task, int64_t asked, di_error *err)
{
    const int64_t context = s->engine->max_tokens - task->n_prompt;
    const int64_t memory = memory_tokens(s, task->n_prompt, task->n);
    const int64_t most = context < memory ? context : memory;
    if (most < 1) {
        return err_set(err, DI_E_LIMIT, "KV memory is too small for %d choices behind a prompt of %lld tokens (raise kv_bytes)", task->n,
                       (long long)task->n_prompt);
    }
    task->max_tokens = asked > 0 && asked < most ? asked : most;
    return DI_OK;
}

static di_status room_for_events(di_scheduler *s, int32_t n, di_error *err)
{
    const size_t need = s->events_needed + events_of(n);
    if (need > s->events_capacity) {
        const size_t capacity = need * 2;
        di_task_event *const events = realloc(s->events, capacity * sizeof *events);
        if (events == NULL) {
            return err_memory(err, "events of the scheduler", capacity * sizeof *events);
        }
        s->events = events;
        s->events_capacity = capacity;
    }
    return DI_OK;
}

static di_status new_task(di_scheduler *s, const di_task_options *o, di_task **out, di_error *err)
{
    const int32_t n = o->n != 0 ? o->n : 1;
    di_sampling sampling;
    di_sampling_default(&sampling);
    di_task *const task = calloc(1, sizeof *task + (size_t)n * sizeof task->choices[0]);
    if (task == NULL) {
        return err_memory(err, "task", sizeof *task + (size_t)n * sizeof task->choices[0]);
    }
    *out = task;
    task->scheduler = s;
    task->user = o->user;
    task->n_prompt = (int64_t)o->n_prompt;
    task->priority = o->priority;
    task->queue_deadline = o->queue_deadline;
    task->deadline = o->deadline;
    task->no_cache = o->no_cache;
    task->grammar_waits = o->grammar_waits;
    task->grammar_after = o->grammar_after;
    task->grammar_closes = o->grammar_closes;
    task->grammar_jumps = o->grammar_jumps && o->grammar != NULL && s->script == NULL;
    if (o->grammar != NULL) {
        di_grammar_retain(o->grammar);
        task->grammar = o->grammar;
    }
    task->keep = (eng_keep){.class_id = (int32_t)o->cache.class_id, .ttl_s = o->cache.ttl_s, .pinned = o->cache.pinned};
    task->verify = o->verify;
    task->n = n;
    task->n_live = n;
    for (int32_t i = 0; i < n; i++) {
        task->choices[i].task = task;
        task->choices[i].index = i;
    }
    di_status status = eng_settings_init(&task->sampling, o->sampling != NULL ? o->sampling : &sampling, s->engine->c->vocab, err);
    if (status != DI_OK) {
        task->sampling = (di_sampling){.bias = NULL};
        return status;
    }
    task->prompt = ar_calloc(o->n_prompt, sizeof *task->prompt);
    if (task->prompt == NULL) {
        return err_memory(err, "prompt", o->n_prompt * sizeof *task->prompt);
    }
    memcpy(task->prompt, o->prompt, o->n_prompt * sizeof *task->prompt);
    return limit_length(s, task, o->max_tokens, err);
}

di_status di_task_submit(di_scheduler *s, const di_task_options *o, di_task **out, di_error *err)
{
    di_task *task = NULL;
    di_status status = check_task(s, o, err);
    if (status == DI_OK) {
        status = new_task(s, o, &task, err);
    }
    if (status != DI_OK) {
        goto out;
    }
    task->tenant = eng_queue_tenant(s, o->tenant != NULL ? o->tenant : "", true);
    if (task->tenant == NULL) {
        status = err_memory(err, "tenant", sizeof *task->tenant);
        goto out;
    }
    task->keep.pinned |= task->tenant->pinned;
    if (s->engine->tier != NULL) {
        (void)kv_tenant_of((kv_salt){.data = task->tenant->name, .size = task->tenant->salt_size}, &task->keep.tenant);
    }
    if (task->tenant->state == DI_TENANT_DRAINING) {
        status = err_set(err, DI_E_STATE, "tenant '%s' is draining: no new tasks are taken", task->tenant->name);
        goto out;
    }
    status = room_for_events(s, task->n, err);
    if (status != DI_OK) {
        goto out;
    }
    s->events_needed += events_of(task->n);
    task->arrival = ++s->n_arrivals;
    s->stats.n_submitted++;
    eng_queue_add(s, task);
    if (s->refused && eng_queue_next(s) == task) {
        s->refused = false; /* it was another one that did not fit */
    }
    *out = task;
    task = NULL;
out:
    if (task != NULL) {
        eng_retire_free(task);
    }
    return status;
}

void di_task_cancel(di_task *task) { eng_retire_ask(task, 0, task->n, DI_TASK_CANCELLED); }

void di_task_cancel_choice(di_task *task, int32_t choice)
{
    if (choice >= 0 && choice < task->n) {
        eng_retire_ask(task, choice, 1, DI_TASK_CANCELLED);
    }
}

/* ---- the step ---- */

static void expire_waiting(di_scheduler *s, di_task *task)
{
    (void)s;
    eng_retire_ask(task, 0, task->n, DI_TASK_DEADLINE);
}

static void expire(di_scheduler *s)
{
    const int64_t now = clock_now_ns();
    eng_queue_expire(s, now, expire_waiting);
    for (di_task *task = s->first; task != NULL; task = task->next) {
        if (task->deadline > 0 && task->deadline <= now) {
            eng_retire_ask(task, 0, task->n, DI_TASK_DEADLINE);
        }
    }
}

/* What was verified, by position, and what had been said of it. */
static void count_drafts(di_scheduler *s, const eng_part *part)
{
    const int32_t n = part->n - 1;
    float survival[ENG_MAX_DRAFT];
    if (part->forced) {
        s->stats.forced_tokens += n;
        s->stats.forced_right += part->n_right;
        return;
    }
    eng_survival(part->confidence, s->engine->c->draft.temperature, n, survival);
    s->stats.drafted_tokens += n;
    s->stats.accepted_tokens += part->n_right;
    s->stats.n_verified += n > 0;
    for (int32_t j = 0; j < n; j++) {
        const int32_t at = survival[j] < 1.0f ? (int32_t)(survival[j] * ENG_SURVIVAL_BINS) : ENG_SURVIVAL_BINS - 1;
        s->stats.verified_at[j]++;
        s->stats.accepted_at[j] += part->n_right > j;
        s->bins[at].expected += (double)survival[j];
        s->bins[at].n_right += part->n_right > j;
        s->bins[at].n++;
    }
}

static double calibration_error(const di_scheduler *s)
{
    double sum = 0.0;
    int64_t n = 0;
    for (int i = 0; i < ENG_SURVIVAL_BINS; i++) {
        sum += fabs(s->bins[i].expected - (double)s->bins[i].n_right);
        n += s->bins[i].n;
    }
    return n > 0 ? sum / (double)n : 0.0;
}

static void count_pass(di_scheduler *s, const eng_pass *p, di_step_info *info)
{
    const int64_t n_before = s->stats.drafted_tokens;
    for (int32_t i = 0; i < p->n_parts; i++) {
        info->n_tokens += p->parts[i].n;
        info->n_prefill += p->parts[i].prefill ? p->parts[i].n : 0;
        if (!p->parts[i].prefill) {
            count_drafts(s, &p->parts[i]);
        }
    }
    eng_load_note(s, p);
    s->stats.n_steps++;
    s->stats.n_proposing += p->proposed;
    s->stats.proposed_tokens += p->n_proposed;
    if (info->n_tokens > info->n_prefill) {
        s->stats.draft_budget = s->stats.drafted_tokens - n_before;
    }
    s->stats.prefill_tokens += info->n_prefill;
    s->stats.decode_tokens += info->n_tokens - info->n_prefill;
    s->stats.execute_ns += p->ended_ns - p->began_ns;
    s->stats.draft_ns += p->draft_ns;
    s->stats.n_masks += p->masks.n_masks;
    s->stats.mask_ns += p->masks.busy_ns;
    s->stats.mask_wait_ns += p->masks.wait_ns;
}

static void take_in(di_scheduler *s, di_step_info *info)
{
    eng_exec_wait(s);
    eng_pass *const done = s->flight;
    s->flight = NULL;
    s->proposing = done->leads;
    count_pass(s, done, info);
    eng_retire_pass(s, done);
    eng_retire_marked(s);
}

static void hand_out(di_scheduler *s)
{
    if (s->n_events > 0) {
        s->on_events(s->user, s->events, s->n_events);
        s->n_events = 0;
        s->n_failures = 0;
    }
    free_ended(s);
}

di_status di_scheduler_step(di_scheduler *s, di_step_info *info, di_error *err)
{
    const int64_t began = clock_now_ns();
    (void)err;
    *info = (di_step_info){.n_tokens = 0};
    expire(s);
    eng_retire_marked(s);
    eng_load_step(s);
    eng_plan_next(s);
    const int64_t planned = clock_now_ns();
    const eng_pass *const before = s->flight;
    if (before != NULL) {
        take_in(s, info);
    }
    if (eng_plan_settle(s)) {
        s->flight = s->plan;
        s->plan = s->plan == &s->passes[0] ? &s->passes[1] : &s->passes[0];
        eng_exec_submit(s, s->flight);
    }
    const int64_t submitted = clock_now_ns();
    hand_out(s);
    s->stats.schedule_ns += before != NULL ? submitted - (before->ended_ns > began ? before->ended_ns : began) : 0;
    s->stats.plan_ns += planned - began + clock_now_ns() - submitted;
    info->idle = s->flight == NULL && s->n_running == 0 && s->n_loading == 0 && (s->n_waiting == 0 || eng_queue_next(s) == NULL);
    const int64_t look = eng_load_next(s);
    const int64_t next = look < s->next_deadline ? look : s->next_deadline;
    info->next_deadline = next != INT64_MAX ? next : 0;
    return DI_OK;
}

void di_scheduler_get_stats(const di_scheduler *s, di_scheduler_stats *out)
{
    *out = s->stats;
    out->n_waiting = s->n_waiting;
    out->n_running = s->n_running;
    out->n_choices = s->n_choices;
    out->calibration_error = calibration_error(s);
}
