/* eng_sched_plan.c - what the next pass consists of: growth of memory, admission, rows.
 *
 * Runs while the pass before it runs, so it counts in planned positions, and assumes that every choice in flight goes on;
 * eng_plan_settle takes out what did not. Decode rows come first; prompts share what is left of the budget in order of rank. When decode
 * rows alone fill the budget, a quarter stays for prompts, and the rows that were left out lead the next pass.
 *
 * Memory: a choice has a promise up to `ahead` tokens in front of it, extended before a row would need more than it has. When that is
 * refused, the running task of lowest rank is preempted; the one that ranks highest can thus always go on, because no task is accepted
 * that all memory together could not hold. */
#include "core/core.h"
#include "engine/eng_sched.h"

#include <stdlib.h>
#include <string.h>

#define BACKLOG_STEPS 4 /* admission stops while admitted prompts need more passes than that: order is decided late */

static mdl_runner *runner_of(const di_scheduler *s) { return s->engine->runner; }

static int64_t worst_length(const di_task *task) { return task->n_prompt + task->max_tokens; }

/* Tokens up to which memory is promised to a choice that stands at `position`. */
static int64_t horizon(const di_scheduler *s, const di_task *task, int64_t position)
{
    const int64_t worst = worst_length(task);
    return position < worst - s->ahead ? position + s->ahead : worst;
}

/* ---- growth ---- */

static void fail_choice(di_scheduler *s, eng_choice *c, const di_error *err)
{
    eng_retire_choice(s, c, DI_TASK_FAILED, NULL, err);
}

/* The running task that ranks lowest and is not on its way out. */
static di_task *lowest(const di_scheduler *s)
{
    di_task *task = s->last;
    while (task != NULL && task->preempting) {
        task = task->previous;
    }
    return task;
}

/* Nobody is left to preempt, and even so: the machine has less memory than the budget says. */
static void starve(di_scheduler *s, eng_choice *c, int64_t end)
{
    di_error err;
    if (!c->in_flight) {
        (void)err_set(&err, DI_E_MEMORY, "out of memory: no KV memory for token %lld of the sequence", (long long)end);
        fail_choice(s, c, &err);
    }
}

static bool promise(di_scheduler *s, eng_choice *c, int64_t end)
{
    const int64_t need = eng_cache_pages(runner_of(s), end);
    return need <= c->cache.n_pages + c->cache.promised ||
           eng_cache_promise(&c->cache, eng_cache_pages(runner_of(s), horizon(s, c->task, end))) || eng_cache_promise(&c->cache, need);
}

/* Takes pages for rows up to `end`. False: not in this pass. */
static bool grow(di_scheduler *s, eng_choice *c, int64_t end)
{
    while (!promise(s, c, end)) {
        di_task *const victim = s->n_preempting == 0 ? lowest(s) : NULL; /* one at a time, they may be enough */
        if (s->first == c->task && s->last == c->task) {
            starve(s, c, end);
            return false;
        }
        if (victim == NULL) {
            return false;
        }
        eng_retire_preempt(s, victim);
        if (victim == c->task || victim->preempting) {
            return false;
        }
    }
    return eng_cache_reserve(&c->cache, &c->seq, end, NULL) == DI_OK; /* lists are long enough, pages are promised */
}

/* Room in `out` for the tokens of two passes. */
static bool grow_out(di_scheduler *s, eng_choice *c)
{
    if (c->n_out + 2 * (1 + ENG_MAX_DRAFT) <= c->out_capacity) {
        return true;
    }
    const int64_t capacity = c->out_capacity > 0 ? c->out_capacity * 2 : 64;
    int32_t *const out = realloc(c->out, (size_t)capacity * sizeof *out);
    if (out == NULL) {
        di_error err;
        (void)err_memory(&err, "generated tokens", (size_t)capacity * sizeof *out);
        if (!c->in_flight) {
            fail_choice(s, c, &err);
        }
        return false;
    }
    c->out = out;
    c->out_capacity = capacity;
    return true;
}

/* ---- admission ---- */

/* The first live choice runs the prompt for all of them. */
static eng_choice *carrier_of(di_task *task)
{
    int32_t i = 0;
    while (i < task->n - 1 && task->choices[i].phase == ENG_ENDED) {
        i++;
    }
    return &task->choices[i];
}

/* Tokens that a choice knows before it samples. */
static int64_t known(const eng_choice *c) { return c->task->n_prompt + c->n_out; }

/* Pages of the choices that join the carrier: what is behind the prompt's whole pages. */
static int64_t joining_pages(const di_scheduler *s, di_task *task, const eng_choice *carrier)
{
    int64_t sum = 0;
    const int64_t shared = eng_cache_pages(runner_of(s), 1) > 0 ? task->n_prompt / KV_UNIT_TOKENS : 0;
    for (int32_t i = 0; i < task->n; i++) {
        eng_choice *const c = &task->choices[i];
        if (c->phase != ENG_ENDED && c != carrier) {
            c->join_pages = eng_cache_pages(runner_of(s), horizon(s, task, known(c))) - shared;
            sum += c->join_pages;
        }
    }
    return sum;
}

static di_status note_known(eng_choice *c, bool with_out, di_error *err)
{
    const di_task *const task = c->task;
    di_status status = eng_cache_note(&c->cache, task->prompt, (size_t)task->n_prompt, err);
    return status == DI_OK && with_out ? eng_cache_note(&c->cache, c->out, (size_t)c->n_out, err) : status;
}

/* Sets the carrier up behind what the cache knows. The state is promised. */
static di_status open_carrier(di_scheduler *s, eng_choice *c, bool alone, int64_t *start, di_error *err)
{
    di_task *const task = c->task;
    di_status status = eng_cache_init(&c->cache, s->engine->kv, runner_of(s), &c->seq, true, err);
    if (status == DI_OK && !task->no_cache) {
        status = eng_cache_activate(&c->cache, task->tenant->name, task->tenant->salt_size, s->engine->replay, err);
    }
    c->seq.decoder_from = eng_decoder_from(runner_of(s), s->engine->replay, task->n_prompt);
    eng_load_attach(s, task, &c->cache);
    if (status == DI_OK) {
        status = eng_cache_list(&c->cache, &c->seq, worst_length(task), err);
    }
    if (status == DI_OK) {
        status = note_known(c, alone, err);
    }
    return status == DI_OK ? eng_cache_find(&c->cache, &c->seq, start, err) : status;
}

static di_status open_samplers(di_scheduler *s, di_task *task, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t i = 0; i < task->n && status == DI_OK; i++) {
        eng_choice *const c = &task->choices[i];
        status = c->phase != ENG_ENDED ? eng_choice_open(s, c, err) : DI_OK;
    }
    return status;
}

static void close_samplers(di_task *task)
{
    for (int32_t i = 0; i < task->n; i++) {
        eng_choice_close(&task->choices[i]);
    }
}

static void link_running(di_scheduler *s, di_task *task)
{
    di_task *after = s->last;
    while (after != NULL && (after->priority != task->priority ? after->priority < task->priority : after->admission > task->admission)) {
        after = after->previous;
    }
    task->previous = after;
    task->next = after != NULL ? after->next : s->first;
    *(after != NULL ? &after->next : &s->first) = task;
    *(task->next != NULL ? &task->next->previous : &s->last) = task;
    task->tenant->n_running++;
    s->n_running++;
}

static void tell_admitted(di_scheduler *s, di_task *task, int64_t cached)
{
    task->admission = ++s->n_admissions;
    task->tenant->prompt_tokens += task->n_prompt;
    s->events[s->n_events++] = (di_task_event){.task = task, .user = task->user, .admitted = true, .cached_tokens = cached};
}

static void begin(di_scheduler *s, di_task *task, eng_choice *carrier, bool alone, int64_t start)
{
    eng_queue_remove(s, task);
    s->engine->resumed_tokens += start;
    s->service_floor = task->tenant->service;
    eng_queue_charge(task->tenant, (double)(known(carrier) - start));
    for (int32_t i = 0; i < task->n; i++) {
        eng_choice *const c = &task->choices[i];
        if (c->phase != ENG_ENDED) {
            c->phase = c == carrier ? ENG_PREFILL : ENG_JOINING;
            s->n_choices++;
            s->stats.n_constrained += c->constraint != NULL;
        }
    }
    carrier->has_cache = true;
    carrier->position = start;
    carrier->goal = alone ? known(carrier) : task->n_prompt;
    if (task->admission == 0) {
        tell_admitted(s, task, carrier->cache.cached);
    }
    link_running(s, task);
}

/* Takes back what the carrier got, and the promises of those that would join it. */
static void back_out(di_scheduler *s, di_task *task, eng_choice *carrier, int64_t joining)
{
    eng_cache_fini(&carrier->cache, &carrier->seq, false);
    kv_unreserve(s->engine->kv, joining, task->n_live - 1);
    close_samplers(task);
}

static void fail_task(di_scheduler *s, di_task *task, const di_error *err)
{
    for (int32_t i = 0; i < task->n; i++) {
        fail_choice(s, &task->choices[i], err);
    }
}

/* False: it does not fit now, and nothing has changed but that a task without memory for its lists has failed. */
static bool admit(di_scheduler *s, di_task *task)
{
    kv_store *const kv = s->engine->kv;
    eng_choice *const c = carrier_of(task);
    const bool alone = task->n_live == 1;
    int64_t start = 0;
    di_error err;
    if (s->n_choices + task->n_live > s->max_running || !kv_reserve(kv, 0, task->n_live)) {
        return false;
    }
    eng_restored restored = eng_load_take(s, task);
    di_status status = open_carrier(s, c, alone, &start, &err);
    eng_restored_fini(s->engine->kv, &restored);
    if (status == DI_OK) {
        status = open_samplers(s, task, &err);
    }
    if (status != DI_OK) {
        back_out(s, task, c, 0);
        fail_task(s, task, &err);
        return false;
    }
    const int64_t joining = alone ? 0 : joining_pages(s, task, c);
    if (!kv_reserve(kv, joining, 0)) {
        back_out(s, task, c, 0);
        return false;
    }
    if (!eng_cache_promise(&c->cache, eng_cache_pages(runner_of(s), horizon(s, task, alone ? known(c) : task->n_prompt)))) {
        back_out(s, task, c, joining);
        return false;
    }
    begin(s, task, c, alone, start);
    eng_load_pin(s, task);
    return true;
}

static int64_t backlog(const di_scheduler *s)
{
    int64_t tokens = 0;
    for (const di_task *task = s->first; task != NULL; task = task->next) {
        for (int32_t i = 0; i < task->n; i++) {
            const eng_choice *const c = &task->choices[i];
            tokens += c->phase == ENG_PREFILL ? c->goal - c->position : 0;
        }
    }
    return tokens;
}

/* The queue's head does not fit. */
static void refuse(di_scheduler *s, di_task *task)
{
    di_task *const victim = s->n_preempting == 0 ? lowest(s) : NULL;
    di_error err;
    s->refused = true;
    s->refused_at = s->freed;
    if (victim != NULL && victim->priority < task->priority) {
        eng_retire_preempt(s, victim);
    } else if (s->n_running == 0 && s->flight == NULL) {
        (void)err_set(&err, DI_E_MEMORY, "out of memory: no KV memory for a prompt of %lld tokens", (long long)task->n_prompt);
        fail_task(s, task, &err);
    }
}

/* In strict order, so that a large task is not passed by small ones for ever. A refused admission is tried again only when memory was
 * given back: what is looked up twice would count twice. */
static void admit_waiting(di_scheduler *s)
{
    int64_t tokens = backlog(s);
    while (s->n_waiting > 0 && tokens < (int64_t)BACKLOG_STEPS * s->step_tokens && (!s->refused || s->refused_at != s->freed)) {
        di_task *const task = eng_queue_next(s);
        s->refused = false;
        if (task == NULL) {
            return;
        }
        if (eng_load_ask(s, task)) {
            continue;
        }
        const int64_t length = task->n_prompt;
        if (admit(s, task)) {
            tokens += length;
        } else if (task->n_live > 0) {
            refuse(s, task);
        }
    }
}

/* ---- rows ---- */

static eng_part *add_part(eng_pass *p, eng_choice *c, int32_t n)
{
    eng_part *const part = &p->parts[p->n_parts++];
    *part = (eng_part){.choice = c, .n = n, .ids_at = p->n_ids, .begin = c->position};
    p->n_ids += n;
    c->position += n;
    return part;
}

static void add_result(eng_pass *p, eng_part *part, eng_choice *c)
{
    if (part->n_results == 0) {
        part->first_result = p->n_results;
    }
    part->n_results++;
    p->results[p->n_results++] = (eng_result){.choice = c, .position = part->begin + part->n};
}

/* Rows of a choice: its last token, and the drafts that fit when all get as many. */
static int32_t rows_of(const di_scheduler *s, const eng_choice *c, int32_t n, int32_t budget)
{
    const int32_t most = n > 0 ? budget / n : 1;
    const int32_t rows = c->task->grammar_jumps || s->proposing ? 1 + eng_most_drafts(s, c->task) : 1;
    return most < 1 ? 1 : most < rows ? most : rows;
}

/* Where the rows begin is known when the pass before has ended; memory is taken for the farthest. */
static void plan_rows(di_scheduler *s, eng_choice *c, int32_t rows)
{
    const int64_t worst = worst_length(c->task);
    const int64_t end = c->position + rows < worst ? c->position + rows : worst;
    if (!grow(s, c, end) || !grow_out(s, c)) {
        return;
    }
    eng_part *const part = add_part(s->plan, c, rows);
    for (int32_t i = 0; i < rows; i++) {
        add_result(s->plan, part, c);
    }
    c->n_coming++;
}

static void plan_decode(di_scheduler *s, int32_t budget)
{
    int32_t n = 0;
    for (di_task *task = s->first; task != NULL; task = task->next) {
        for (int32_t i = 0; !task->preempting && i < task->n; i++) {
            eng_choice *const c = &task->choices[i];
            if (c->phase == ENG_DECODE && c->cancelled == DI_TASK_RUNNING && c->n_out + c->n_coming < task->max_tokens) {
                s->ready[n++] = c;
            }
        }
    }
    const int32_t first = n > budget ? s->turn % n : 0;
    int32_t taken = 0;
    for (int32_t i = 0; i < n; i++, taken++) {
        eng_choice *const c = s->ready[(first + i) % n];
        const int32_t rows = rows_of(s, c, n, budget);
        if (s->plan->n_ids + rows > budget) {
            break;
        }
        if (c->phase == ENG_DECODE && !c->task->preempting) {
            plan_rows(s, c, rows);
        }
    }
    s->turn = n > budget ? (first + taken) % n : 0;
}

/* Ids that are known: of the prompt, then sampled before a preemption. */
static void copy_ids(const eng_choice *c, int64_t from, int32_t n, int32_t *out)
{
    const di_task *const task = c->task;
    for (int32_t i = 0; i < n; i++) {
        const int64_t t = from + i;
        out[i] = t < task->n_prompt ? task->prompt[t] : c->out[t - task->n_prompt];
    }
}

static bool joined_by_any(const di_task *task)
{
    for (int32_t i = 0; i < task->n; i++) {
        if (task->choices[i].phase == ENG_JOINING) {
            return true;
        }
    }
    return false;
}

/* The last rows that are known: the choice samples, or at the end of a shared prompt all that have nothing yet. */
static void finish_prefill(di_scheduler *s, eng_part *part)
{
    eng_choice *const c = part->choice;
    di_task *const task = c->task;
    part->joins = joined_by_any(task);
    for (int32_t i = 0; i < task->n; i++) {
        eng_choice *const other = &task->choices[i];
        const bool samples = other == c ? c->goal == known(c) : other->phase == ENG_JOINING && other->n_out == 0;
        if (samples && other->cancelled == DI_TASK_RUNNING) {
            add_result(s->plan, part, other);
            other->n_coming++;
        }
    }
    if (c->goal == known(c)) {
        c->phase = ENG_DECODE;
    }
}

static void plan_prefill(di_scheduler *s, eng_choice *c)
{
    eng_pass *const p = s->plan;
    const int64_t left = c->goal - c->position;
    const int64_t room = s->step_tokens - p->n_ids;
    const int64_t from = c->position;
    const int64_t to = eng_cache_limit(&c->cache, &c->seq, from, from + (left < room ? left : room));
    if (to <= from || !grow_out(s, c) || !grow(s, c, to)) {
        return;
    }
    eng_part *const part = add_part(p, c, (int32_t)(to - from));
    const int64_t target = eng_cache_target(&c->cache, from, c->goal);
    copy_ids(c, from, part->n, p->ids + part->ids_at);
    part->prefill = true;
    part->n_after = target - to;
    p->n_prefill += part->n;
    if (to == c->goal) {
        finish_prefill(s, part);
    }
}

static bool all_out_fit(di_scheduler *s, di_task *task)
{
    for (int32_t i = 0; i < task->n; i++) {
        if (task->choices[i].phase == ENG_JOINING && !grow_out(s, &task->choices[i])) {
            return false;
        }
    }
    return true;
}

void eng_plan_next(di_scheduler *s)
{
    eng_pass *const p = s->plan;
    p->n_parts = 0;
    p->n_ids = 0;
    p->n_prefill = 0;
    p->n_results = 0;
    p->status = DI_OK;
    admit_waiting(s);
    const bool prefill = backlog(s) > 0;
    plan_decode(s, prefill && s->step_tokens >= 4 ? s->step_tokens - s->step_tokens / 4 : s->step_tokens);
    /* A task that is preempted here was the last one: behind it there is nothing that runs. */
    for (di_task *task = s->first, *next; task != NULL && !task->waiting && p->n_ids < s->step_tokens; task = next) {
        next = task->next;
        for (int32_t i = 0; i < task->n && p->n_ids < s->step_tokens; i++) {
            eng_choice *const c = &task->choices[i];
            if (c->phase == ENG_PREFILL && c->cancelled == DI_TASK_RUNNING && !task->preempting && all_out_fit(s, task)) {
                plan_prefill(s, c);
            }
        }
    }
}

/* ---- settling ---- */

/* Helpers make its masks while the pass runs. A script is not held to a grammar. */
static void add_masks(const di_scheduler *s, eng_pass *p, const eng_choice *c, const int32_t *drafts, int32_t n)
{
    if (c->constraint != NULL && s->script == NULL) {
        p->masks.jobs[p->masks.n++] = (eng_mask_job){.constraint = c->constraint, .drafts = drafts, .n = n};
    }
}

static bool goes_on(const eng_choice *c)
{
    return c->has_cache && (c->phase == ENG_PREFILL || c->phase == ENG_DECODE) && c->cancelled == DI_TASK_RUNNING;
}

/* The last token and drafts behind it: as many as were planned, and as the output may still have. */
static void settle_decode(const di_scheduler *s, eng_pass *p, eng_part *part)
{
    eng_choice *const c = part->choice;
    int32_t *const ids = p->ids + part->ids_at;
    const int64_t begin = c->task->n_prompt + c->n_out - 1;
    const int64_t left = c->task->max_tokens - c->n_out;
    int64_t n = 1 + c->n_drafts;
    n = n < part->n ? n : part->n;
    n = n < left ? n : left;
    ids[0] = c->out[c->n_out - 1];
    memcpy(ids + 1, c->drafts, (size_t)(n - 1) * sizeof *ids);
    memcpy(part->confidence, c->confidence, (size_t)(n - 1) * sizeof *c->confidence);
    part->forced = c->forced;
    part->begin = begin;
    part->n = (int32_t)n;
    c->position = begin + n;
    for (int32_t i = 0; i < part->n_results; i++) {
        eng_result *const r = &p->results[part->first_result + i];
        r->position = begin + i + 1;
        r->row = p->n_rows + i;
        r->choice = i < n ? c : NULL;
    }
    part->n_results = part->n;
    p->n_rows += part->n;
    add_masks(s, p, c, ids + 1, part->n - 1);
}

/* The row behind a prompt, for all that sample from it; one that joins has no rows, but its sampler is used. */
static void settle_prefill(const di_scheduler *s, eng_pass *p, const eng_part *part)
{
    for (int32_t i = 0; i < part->n_results; i++) {
        eng_result *const r = &p->results[part->first_result + i];
        r->row = p->n_rows;
        if (r->choice->phase == ENG_ENDED || r->choice->cancelled != DI_TASK_RUNNING) {
            r->choice = NULL;
        } else {
            r->choice->in_flight = true;
            add_masks(s, p, r->choice, NULL, 0);
        }
    }
    p->n_rows += part->n_results > 0;
}

static void settle_part(const di_scheduler *s, eng_pass *p, eng_part *part)
{
    eng_choice *const c = part->choice;
    if (part->prefill) {
        settle_prefill(s, p, part);
    } else {
        settle_decode(s, p, part);
    }
    c->in_flight = true;
    p->items[p->n_items++] = (mdl_item){.seq = &c->seq,
                                        .ids = p->ids + part->ids_at,
                                        .n = part->n,
                                        .n_after = part->n_after,
                                        .n_logits = part->prefill ? part->n_results > 0 : part->n};
}

/* Results keep their places; those of parts that leave have no choice any more. */
bool eng_plan_settle(di_scheduler *s)
{
    eng_pass *const p = s->plan;
    int32_t kept = 0;
    p->n_items = 0;
    p->n_rows = 0;
    p->masks.n = 0;
    if (s->automatic.on) {
        eng_auto_cut(s, p);
    }
    for (int32_t i = 0; i < p->n_parts; i++) {
        eng_part part = p->parts[i];
        if (goes_on(part.choice)) {
            settle_part(s, p, &part);
            p->parts[kept++] = part;
            continue;
        }
        for (int32_t r = 0; r < part.n_results; r++) {
            p->results[part.first_result + r].choice = NULL;
        }
    }
    p->n_parts = kept;
    return kept > 0;
}
