/* eng_sched_exec.c - the executor: a thread that runs one pass after the other, sampling included.
 *
 * Sampled ids go into the pass's results; the scheduler puts them into the next pass. Each result depends on its own row and choice, so
 * sampling is split over threads when there is enough of it. */
#include "core/core.h"
#include "engine/eng_sched.h"

#include <string.h>

#define PARALLEL_LOGITS (1 << 16) /* fewer are sampled by one thread */

/* ---- sampling ---- */

typedef struct sampling {
    di_scheduler *s;
    eng_pass *pass;
} sampling;

static const float *row_of(const di_scheduler *s, const eng_result *r)
{
    return s->logits + (size_t)r->row * (size_t)s->engine->c->vocab;
}

/* One token, which the sampler then counts. */
static bool sample_one(const di_scheduler *s, eng_result *r)
{
    if (r->choice == NULL) {
        return false;
    }
    r->taken = true;
    r->status = eng_sampler_choose(r->choice->sampler, row_of(s, r), r->position, NULL, &r->sample, NULL);
    if (r->status == DI_OK) {
        eng_sampler_accept(r->choice->sampler, r->sample.id, false);
    }
    return r->status == DI_OK;
}

/* The token behind each row, as long as the row's own token was right: what is sampled does not depend on what was drafted (the coupling of
 * dspark.md 2.5). Results of a prompt's end are one for each choice. */
static void sample_part(const di_scheduler *s, eng_pass *p, eng_part *part)
{
    const int32_t *const ids = p->ids + part->ids_at;
    for (int32_t i = 0; i < part->n_results; i++) {
        eng_result *const r = &p->results[part->first_result + i];
        const bool sampled = sample_one(s, r);
        if (part->prefill) {
            continue;
        }
        const bool right = sampled && i + 1 < part->n && r->sample.id == ids[i + 1];
        part->n_right += right;
        if (!right || r->sample.is_stop) {
            break;
        }
    }
}

static void sample_range(void *arg, size_t begin, size_t end, int thread)
{
    const sampling *const all = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        sample_part(all->s, all->pass, &all->pass->parts[i]);
    }
}

/* Messages are made by asking again: failures are rare, and threads need no place for them. */
static void sample_all(di_scheduler *s, eng_pass *p)
{
    sampling all = {.s = s, .pass = p};
    if ((size_t)p->n_rows * (size_t)s->engine->c->vocab >= PARALLEL_LOGITS) {
        pool_run(s->exec.sampling, (size_t)p->n_parts, sample_range, &all);
    } else {
        sample_range(&all, 0, (size_t)p->n_parts, 0);
    }
    for (int32_t i = 0; i < p->n_results; i++) {
        eng_result *const r = &p->results[i];
        if (r->taken && r->status != DI_OK) {
            (void)err_set(&p->err, r->status, "no token could be chosen"); /* should it succeed now */
            (void)eng_sampler_choose(r->choice->sampler, row_of(s, r), r->position, NULL, &r->sample, &p->err);
        }
    }
}

/* ---- drafts ---- */

/* Tokens that came of a part; the last of them is not in the sequence yet. */
static int32_t taken_of(const eng_pass *p, const eng_part *part)
{
    int32_t n = 0;
    while (n < part->n_results && p->results[part->first_result + n].taken) {
        n++;
    }
    return n;
}

/* Drafts that were wrong leave the sequence. */
static void rewind_part(const eng_pass *p, const eng_part *part)
{
    eng_choice *const c = part->choice;
    c->n_drafts = 0;
    if (!part->prefill) {
        const int32_t n = taken_of(p, part);
        mdl_seq_rewind(&c->seq, part->n - (n > 0 ? n : 1));
    }
}

/* The choice that wants drafts behind a part, and its last token. NULL: none. */
static eng_choice *wants_draft(const di_scheduler *s, const eng_pass *p, const eng_part *part, int32_t *anchor)
{
    eng_choice *const c = part->choice;
    const int32_t n = part->prefill ? part->n_results > 0 && p->results[part->first_result].choice == c : taken_of(p, part);
    if (s->draft_length == 0 || n == 0 || c->n_out + n + 1 >= c->task->max_tokens) {
        return NULL;
    }
    const eng_result *const last = &p->results[part->first_result + n - 1];
    *anchor = last->sample.id;
    return last->taken && last->status == DI_OK && !last->sample.is_stop && c->has_cache ? c : NULL;
}

typedef struct proposal {
    eng_choice *choices[ENG_DRAFT_GROUP];
    const mdl_seq *seqs[ENG_DRAFT_GROUP];
    int32_t previous[ENG_DRAFT_GROUP];
    float confidence[ENG_DRAFT_GROUP];
    bool over[ENG_DRAFT_GROUP];
    int32_t n;
} proposal;

/* Draft i of each: chosen as the token itself will be, with the same noise, so that the two agree as often as can be. */
static void take_drafts(const di_scheduler *s, proposal *g)
{
    for (int32_t k = 0; k < g->n; k++) {
        eng_choice *const c = g->choices[k];
        di_sample sample;
        if (g->over[k]) {
            continue;
        }
        const float *const row = s->draft_logits + (size_t)k * (size_t)s->engine->c->vocab;
        const int64_t position = c->seq.n_tokens + 1 + c->n_drafts;
        if (eng_sampler_choose(c->sampler, row, position, NULL, &sample, NULL) != DI_OK) {
            g->over[k] = true;
            continue;
        }
        eng_sampler_accept(c->sampler, sample.id, false);
        c->confidence[c->n_drafts] = g->confidence[k];
        c->drafts[c->n_drafts++] = sample.id;
        g->previous[k] = sample.id;
        g->over[k] = sample.is_stop;
    }
}

/* A proposal that fails leaves fewer drafts: nobody depends on them. */
static void propose(di_scheduler *s, proposal *g)
{
    mdl_runner *const r = s->engine->runner;
    if (g->n == 0) {
        return;
    }
    di_status status = mdl_draft_begin(r, g->seqs, g->previous, g->n, NULL);
    for (int32_t i = 0; i < s->draft_length && status == DI_OK; i++) {
        status = mdl_draft_step(r, i, g->previous, s->draft_logits, g->confidence, NULL);
        if (status == DI_OK) {
            take_drafts(s, g);
        }
    }
    for (int32_t k = 0; k < g->n; k++) {
        const eng_choice *const c = g->choices[k];
        for (int32_t i = 0; i < c->n_drafts; i++) {
            eng_sampler_retract(c->sampler, c->drafts[i]);
        }
        if (s->automatic.on) {
            eng_auto_learn(s, c->confidence, c->n_drafts);
        }
    }
    g->n = 0;
}

static int32_t count_wanted(const di_scheduler *s, const eng_pass *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        int32_t anchor = 0;
        n += wants_draft(s, p, &p->parts[i], &anchor) != NULL;
    }
    return n;
}

/* Returns for how many choices. */
static int32_t draft_all(di_scheduler *s, eng_pass *p)
{
    proposal g = {.n = 0};
    const int32_t most = s->draft_group;
    const int32_t wanted = count_wanted(s, p);
    p->proposed = wanted > 0 && (!s->automatic.on || eng_auto_proposes(s, p, wanted));
    if (!p->proposed) {
        return 0;
    }
    for (int32_t i = 0; i < p->n_parts; i++) {
        int32_t anchor = 0;
        eng_choice *const c = wants_draft(s, p, &p->parts[i], &anchor);
        if (c != NULL) {
            g.choices[g.n] = c;
            g.seqs[g.n] = &c->seq;
            g.previous[g.n] = anchor;
            g.over[g.n++] = false;
        }
        if (g.n == most) {
            propose(s, &g);
        }
    }
    propose(s, &g);
    return wanted;
}

/* ---- one pass ---- */

static void run_script(di_scheduler *s, eng_pass *p)
{
    for (int32_t i = 0; i < p->n_items; i++) {
        p->items[i].seq->n_tokens += p->items[i].n;
    }
    for (int32_t i = 0; i < p->n_results; i++) {
        eng_result *const r = &p->results[i];
        const eng_choice *const c = r->choice;
        if (c != NULL) {
            r->taken = true;
            const di_task *const task = c->task;
            r->sample = (di_sample){.id = s->script(s->script_user, task->user, c->index, r->position - task->n_prompt)};
            for (size_t k = 0; k < task->sampling.n_stop_ids; k++) {
                r->sample.is_stop = r->sample.is_stop || task->sampling.stop_ids[k] == r->sample.id;
            }
        }
    }
}

static void run_pass(di_scheduler *s, eng_pass *p)
{
    p->began_ns = clock_now_ns();
    p->proposed = false;
    if (s->script != NULL) {
        run_script(s, p);
    } else {
        int32_t n_rows = 0;
        p->status = mdl_forward(s->engine->runner, p->items, p->n_items, s->logits, &n_rows, &p->err);
        if (p->status == DI_OK && n_rows != p->n_rows) {
            p->status = err_set(&p->err, DI_E_INTERNAL, "a pass gave %d rows of logits in place of %d", n_rows, p->n_rows);
        }
        if (p->status == DI_OK) {
            sample_all(s, p);
        }
        for (int32_t i = 0; i < p->n_parts && p->status == DI_OK; i++) {
            rewind_part(p, &p->parts[i]);
        }
    }
    const int64_t sampled_ns = clock_now_ns();
    int32_t n_proposals = 0;
    if (p->status == DI_OK && s->draft_length > 0) {
        n_proposals = draft_all(s, p);
    }
    p->ended_ns = clock_now_ns();
    p->draft_ns = p->ended_ns - sampled_ns;
    if (p->status == DI_OK && s->automatic.on) {
        eng_auto_timed(s, p, (double)(sampled_ns - p->began_ns) * 1e-9, n_proposals, (double)p->draft_ns * 1e-9);
    }
    p->leads = eng_auto_wants_rows(s, p);
}

/* ---- the thread ---- */

static void *executor_main(void *arg)
{
    di_scheduler *const s = arg;
    eng_executor *const e = &s->exec;
    pthread_mutex_lock(&e->mutex);
    for (;;) {
        while (e->pass == NULL && !e->quit) {
            pthread_cond_wait(&e->changed, &e->mutex);
        }
        if (e->pass == NULL) {
            break;
        }
        eng_pass *const pass = e->pass;
        pthread_mutex_unlock(&e->mutex);
        run_pass(s, pass);
        pthread_mutex_lock(&e->mutex);
        e->pass = NULL;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

di_status eng_exec_start(di_scheduler *s, di_error *err)
{
    eng_executor *const e = &s->exec;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->changed, NULL);
    if (s->engine->n_threads > 1 && s->script == NULL) {
        const di_status status = pool_new(s->engine->n_threads, &e->sampling, err);
        if (status != DI_OK) {
            return status;
        }
    }
    const int failed = pthread_create(&e->thread, NULL, executor_main, s);
    if (failed != 0) {
        return err_set_errno(err, failed, "thread of the executor");
    }
    e->started = true;
    return DI_OK;
}

void eng_exec_stop(di_scheduler *s)
{
    eng_executor *const e = &s->exec;
    if (e->started) {
        pthread_mutex_lock(&e->mutex);
        e->quit = true;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->mutex);
        pthread_join(e->thread, NULL);
    }
    pthread_mutex_destroy(&e->mutex);
    pthread_cond_destroy(&e->changed);
    pool_free(e->sampling);
}

void eng_exec_submit(di_scheduler *s, eng_pass *pass)
{
    eng_executor *const e = &s->exec;
    pthread_mutex_lock(&e->mutex);
    e->pass = pass;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

void eng_exec_wait(di_scheduler *s)
{
    eng_executor *const e = &s->exec;
    pthread_mutex_lock(&e->mutex);
    while (e->pass != NULL) {
        pthread_cond_wait(&e->changed, &e->mutex);
    }
    pthread_mutex_unlock(&e->mutex);
}
