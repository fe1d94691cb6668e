/* eng_sched_retire.c - what a pass did: tokens taken in, units published, choices ended, preempted or joined.
 *
 * Everything that touches caches of choices happens here or in planning for choices that are not in flight, never beside a pass that
 * uses them. An ended task stays allocated until its events were handed out. */
#include "core/core.h"
#include "engine/eng_sched.h"
#include "engine/eng_settings.h"

#include <stdlib.h>

static void unlink_running(di_scheduler *s, di_task *task)
{
    *(task->previous != NULL ? &task->previous->next : &s->first) = task->next;
    *(task->next != NULL ? &task->next->previous : &s->last) = task->previous;
    task->next = NULL;
    task->previous = NULL;
    task->tenant->n_running--;
    s->n_running--;
    s->n_preempting -= task->preempting;
    task->preempting = false;
}

/* Gives back what a choice has or was promised. */
static void release(di_scheduler *s, eng_choice *c, bool whole)
{
    if (c->has_cache) {
        eng_cache_fini(&c->cache, &c->seq, whole);
        c->has_cache = false;
    } else if (c->phase == ENG_JOINING) {
        kv_unreserve(s->engine->kv, c->join_pages, 1);
        c->join_pages = 0;
    }
    s->n_choices -= c->phase != ENG_WAITING;
    s->freed++;
    s->stats.n_constrained -= c->constraint != NULL;
    eng_choice_close(c);
}

static bool in_flight(const di_task *task)
{
    for (int32_t i = 0; i < task->n; i++) {
        if (task->choices[i].in_flight) {
            return true;
        }
    }
    return false;
}

static bool has_joining(const di_task *task)
{
    for (int32_t i = 0; i < task->n; i++) {
        if (task->choices[i].phase == ENG_JOINING) {
            return true;
        }
    }
    return false;
}

/* ---- ends ---- */

void eng_retire_free(di_task *task)
{
    eng_load_give_up(task);
    for (int32_t i = 0; i < task->n; i++) {
        eng_choice_close(&task->choices[i]);
        free(task->choices[i].out);
    }
    eng_settings_fini(&task->sampling);
    di_grammar_free(task->grammar);
    free(task->prompt);
    free(task);
}

static void end_task(di_scheduler *s, di_task *task)
{
    if (task->waiting) {
        eng_queue_remove(s, task);
    } else {
        unlink_running(s, task);
    }
    s->stats.n_ended++;
    task->next = s->ended;
    s->ended = task;
}

/* The caller's error is gone when the events are handed out. */
static const di_error *keep_error(di_scheduler *s, const di_error *error)
{
    if (error == NULL) {
        return NULL;
    }
    s->n_failures += s->n_failures < ENG_FAILURES ? 1 : 0;
    di_error *const kept = &s->failures[s->n_failures - 1];
    *kept = *error;
    return kept;
}

void eng_retire_choice(di_scheduler *s, eng_choice *c, di_task_end end, const di_sample *sample, const di_error *error)
{
    di_task *const task = c->task;
    if (c->phase == ENG_ENDED) {
        return;
    }
    const bool carried = c->phase == ENG_PREFILL;
    s->events[s->n_events++] = (di_task_event){
        .task = task, .user = task->user, .choice = c->index, .sample = sample, .end = end, .error = keep_error(s, error)};
    release(s, c, end != DI_TASK_FAILED);
    c->phase = ENG_ENDED;
    task->n_live--;
    if (task->n_live == 0) {
        end_task(s, task);
    } else if (carried && has_joining(task)) {
        eng_retire_preempt(s, task); /* another one has to run the prompt */
    }
}

void eng_retire_ask(di_task *task, int32_t first, int32_t n, di_task_end end)
{
    di_scheduler *const s = task->scheduler;
    if (task->n_live == 0) {
        return; /* it is being told so */
    }
    for (int32_t i = first; i < first + n; i++) {
        if (task->choices[i].phase != ENG_ENDED && task->choices[i].cancelled == DI_TASK_RUNNING) {
            task->choices[i].cancelled = end;
        }
    }
    if (!task->marked) {
        task->marked = true;
        task->next_marked = s->marked;
        s->marked = task;
    }
}

void eng_retire_marked(di_scheduler *s)
{
    di_task *task = s->marked;
    s->marked = NULL;
    while (task != NULL) {
        di_task *const next = task->next_marked;
        bool left = false;
        for (int32_t i = 0; i < task->n; i++) {
            eng_choice *const c = &task->choices[i];
            if (c->cancelled == DI_TASK_RUNNING || c->phase == ENG_ENDED) {
                continue;
            }
            if (c->in_flight) {
                left = true;
            } else {
                eng_retire_choice(s, c, c->cancelled, NULL, NULL);
            }
        }
        task->marked = left;
        if (left) {
            task->next_marked = s->marked;
            s->marked = task;
        }
        task = next;
    }
}

/* ---- preemption ---- */

static void put_back(di_scheduler *s, di_task *task)
{
    unlink_running(s, task);
    for (int32_t i = 0; i < task->n; i++) {
        eng_choice *const c = &task->choices[i];
        if (c->phase != ENG_ENDED) {
            release(s, c, true);
            c->phase = ENG_WAITING;
            c->position = 0;
            c->n_coming = 0;
            c->n_drafts = 0;
        }
    }
    s->stats.n_preempted++;
    eng_load_give_up(task);
    eng_queue_add(s, task);
}

void eng_retire_preempt(di_scheduler *s, di_task *task)
{
    if (!in_flight(task)) {
        put_back(s, task);
    } else if (!task->preempting) {
        task->preempting = true;
        s->n_preempting++;
    }
}

static void put_back_all(di_scheduler *s)
{
    for (di_task *task = s->first, *next; task != NULL && s->n_preempting > 0; task = next) {
        next = task->next;
        if (task->preempting && !in_flight(task)) {
            put_back(s, task);
        }
    }
}

/* ---- results ---- */

static di_status join_one(const eng_choice *carrier, eng_choice *c, di_error *err)
{
    const di_task *const task = c->task;
    di_status status =
        eng_cache_fork(&c->cache, &c->seq, &carrier->cache, &carrier->seq, task->n_prompt + task->max_tokens, c->join_pages, err);
    if (status != DI_OK) {
        return status; /* still joining: its promises are given back with it */
    }
    c->has_cache = true;
    c->join_pages = 0;
    c->position = task->n_prompt;
    c->goal = task->n_prompt + c->n_out;
    c->phase = c->n_out == 0 ? ENG_DECODE : ENG_PREFILL;
    return eng_cache_note(&c->cache, c->out, (size_t)c->n_out, err);
}

/* The prompt has run: the other choices of the task get sequences of their own. */
static void join(di_scheduler *s, eng_choice *carrier)
{
    di_task *const task = carrier->task;
    for (int32_t i = 0; i < task->n; i++) {
        eng_choice *const c = &task->choices[i];
        di_error err;
        if (c->phase == ENG_JOINING && c->cancelled == DI_TASK_RUNNING && join_one(carrier, c, &err) != DI_OK) {
            eng_retire_choice(s, c, DI_TASK_FAILED, NULL, &err);
        }
    }
    carrier->goal = task->n_prompt + carrier->n_out;
}

static void take_result(di_scheduler *s, eng_pass *p, const eng_result *r)
{
    eng_choice *const c = r->choice;
    if (!r->taken || c->phase == ENG_ENDED) {
        return;
    }
    if (c->cancelled != DI_TASK_RUNNING) {
        return;
    }
    if (r->status != DI_OK) {
        const di_error *const forbidden = c->constraint != NULL ? eng_constraint_error(c->constraint) : NULL;
        eng_retire_choice(s, c, DI_TASK_FAILED, NULL, forbidden != NULL ? forbidden : &p->err);
        return;
    }
    di_task *const task = c->task;
    c->out[c->n_out++] = r->sample.id;
    eng_queue_charge(task->tenant, 2.0);
    task->tenant->generated_tokens++;
    if (r->sample.is_stop || c->n_out == task->max_tokens) {
        eng_retire_choice(s, c, r->sample.is_stop ? DI_TASK_STOP : DI_TASK_LENGTH, &r->sample, NULL);
    } else {
        s->events[s->n_events++] = (di_task_event){.task = task, .user = task->user, .choice = c->index, .sample = &r->sample};
    }
}

static void fail_pass(di_scheduler *s, eng_pass *p)
{
    for (int32_t i = 0; i < p->n_parts; i++) {
        di_task *const task = p->parts[i].choice->task;
        for (int32_t k = 0; k < task->n; k++) {
            eng_choice *const c = &task->choices[k];
            if (c == p->parts[i].choice || c->phase == ENG_JOINING) {
                eng_retire_choice(s, c, DI_TASK_FAILED, NULL, &p->err);
            }
        }
    }
}

static void land(eng_pass *p)
{
    for (int32_t i = 0; i < p->n_parts; i++) {
        const eng_part *const part = &p->parts[i];
        part->choice->in_flight = false;
        part->choice->n_coming -= !part->prefill;
        for (int32_t k = 0; part->prefill && k < part->n_results; k++) {
            eng_choice *const c = p->results[part->first_result + k].choice;
            if (c != NULL) {
                c->in_flight = false;
                c->n_coming--;
            }
        }
    }
}

/* What the sequence has got of a part's rows: drafts that were wrong are out already. Without memory the rest is not published. */
static void note_decoded(const eng_pass *p, const eng_part *part)
{
    eng_choice *const c = part->choice;
    const size_t n = (size_t)(c->seq.n_tokens - part->begin);
    if (!part->prefill && eng_cache_note(&c->cache, p->ids + part->ids_at, n, NULL) != DI_OK) {
        eng_cache_leave(&c->cache);
    }
}

void eng_retire_pass(di_scheduler *s, eng_pass *p)
{
    land(p);
    if (p->status != DI_OK) {
        fail_pass(s, p);
        put_back_all(s);
        return;
    }
    for (int32_t i = 0; i < p->n_parts; i++) {
        const eng_part *const part = &p->parts[i];
        note_decoded(p, part);
        eng_cache_update(&part->choice->cache, &part->choice->seq, part->n_after == 0);
        if (part->joins) {
            join(s, part->choice);
        }
    }
    for (int32_t i = 0; i < p->n_results; i++) {
        take_result(s, p, &p->results[i]);
    }
    put_back_all(s);
}
