/* eng_sched_tier.c - waiting tasks and the tiers below the device (eng_tier.h).
 *
 * A task is looked up while it waits: the first few of each tenant ahead of their turn, any other one when its turn has come. While
 * something is being loaded for it, it is passed by; when that has ended, or took too long, it stands where it stood before. What came
 * becomes units of the tree at its admission. A preempted task is looked up again: what it had may have left the device meanwhile. */
#include "core/core.h"
#include "engine/eng_sched.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD_LOADING 16 /* tasks for which something is loaded ahead of their turn */
#define AHEAD_A_TENANT 4
#define AHEAD_A_STEP 64  /* tasks that are looked at */
#define LOOK_NS 20000000 /* between looks at what is being written */
#define PAUSE_NS 1000000 /* most that a step waits when it has nothing else to do: a submit may come */

static eng_tier *tier_of(const di_scheduler *s) { return s->script == NULL ? s->engine->tier : NULL; }

static kv_salt salt_of(const di_task *task) { return (kv_salt){.data = task->tenant->name, .size = task->tenant->salt_size}; }

static void unlink_loading(di_scheduler *s, di_task *task)
{
    di_task **place = &s->loading;
    while (*place != task) {
        place = &(*place)->next_loading;
    }
    *place = task->next_loading;
    task->is_loading = false;
    s->n_loading--;
}

/* Tokens that its first choice knows, when it is the only one: prompt and output. malloc'ed; NULL without memory. */
static int32_t *known_ids(const di_task *task, int64_t *n)
{
    const eng_choice *const c = &task->choices[0];
    const int64_t n_out = task->n == 1 ? c->n_out : 0;
    int32_t *const ids = ar_calloc((size_t)(task->n_prompt + n_out), sizeof *ids);
    *n = task->n_prompt + n_out;
    if (ids != NULL) {
        memcpy(ids, task->prompt, (size_t)task->n_prompt * sizeof *ids);
        for (int64_t i = 0; i < n_out; i++) {
            ids[task->n_prompt + i] = c->out[i];
        }
    }
    return ids;
}

bool eng_load_ask(di_scheduler *s, di_task *task)
{
    eng_tier *const t = tier_of(s);
    int64_t n = 0;
    if (task->was_asked || t == NULL || task->no_cache) {
        return task->is_loading;
    }
    int32_t *const ids = known_ids(task, &n);
    const di_replay replay = s->engine->replay;
    const eng_text text = {.replay = replay, .n_tokens = n, .decoder_from = eng_decoder_from(t->runner, replay, task->n_prompt)};
    task->was_asked = true;
    task->restore = ids != NULL ? eng_restore_start(t, salt_of(task), ids, &text) : NULL;
    free(ids);
    if (task->restore == NULL || eng_restore_ready(task->restore, clock_now_ns())) {
        return false;
    }
    task->is_loading = true;
    task->next_loading = s->loading;
    s->loading = task;
    s->n_loading++;
    return true;
}

static void ask_ahead(di_scheduler *s)
{
    int looked = 0;
    for (const eng_tenant *tenant = s->waiting; tenant != NULL && looked < AHEAD_A_STEP; tenant = tenant->next) {
        di_task *task = tenant->first;
        for (int i = 0; task != NULL && i < AHEAD_A_TENANT && s->n_loading < AHEAD_LOADING; i++, looked++) {
            (void)eng_load_ask(s, task);
            task = task->next;
        }
    }
}

static void take_ready(di_scheduler *s)
{
    const int64_t now = clock_now_ns();
    for (di_task *task = s->loading, *next; task != NULL; task = next) {
        next = task->next_loading;
        if (eng_restore_ready(task->restore, now)) {
            unlink_loading(s, task);
            s->refused = s->refused && eng_queue_next(s) != task; /* else it was another one that did not fit */
        }
    }
}

void eng_load_step(di_scheduler *s)
{
    eng_tier *const t = tier_of(s);
    if (t == NULL) {
        return;
    }
    if (s->n_loading > 0 && s->flight == NULL && s->n_running == 0 && eng_queue_next(s) == NULL) {
        eng_tier_wait(t, PAUSE_NS);
    } else {
        eng_tier_poll(t);
    }
    take_ready(s);
    ask_ahead(s);
}

eng_restored eng_load_take(di_scheduler *s, di_task *task)
{
    eng_restored restored = {.unit = NULL};
    if (task->restore != NULL) {
        restored = eng_restore_finish(task->restore, salt_of(task));
        task->restore = NULL;
    }
    (void)s;
    return restored;
}

void eng_load_give_up(di_task *task)
{
    if (task->is_loading) {
        unlink_loading(task->scheduler, task);
    }
    eng_restore_abandon(task->restore);
    task->restore = NULL;
    task->was_asked = false;
}

void eng_load_attach(const di_scheduler *s, const di_task *task, eng_cache *cache)
{
    if (tier_of(s) != NULL) {
        eng_cache_set_tier(cache, tier_of(s), &task->keep);
    }
}

void eng_load_pin(const di_scheduler *s, const di_task *task)
{
    eng_tier *const t = tier_of(s);
    if (t != NULL && task->keep.pinned && !task->no_cache) {
        eng_tier_pin(t, salt_of(task), task->prompt, task->n_prompt / KV_UNIT_TOKENS);
    }
}

int64_t eng_load_next(const di_scheduler *s)
{
    const eng_tier *const t = tier_of(s);
    return t != NULL && t->n_puts > 0 ? clock_now_ns() + LOOK_NS : INT64_MAX;
}

void eng_load_note(const di_scheduler *s, const eng_pass *p)
{
    eng_tier *const t = tier_of(s);
    if (t != NULL && p->n_prefill * 2 > p->n_ids) {
        eng_tier_note_prefill(t, p->n_prefill, p->ended_ns - p->began_ns);
    }
}
