/* eng_sched_exec.c - the executor: a thread that runs one pass after the other, sampling included.
 *
 * Sampled ids go into the pass's results; the scheduler puts them into the next pass. Each part depends on its own rows and choices, so
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

static void sample_range(void *arg, size_t begin, size_t end, int thread)
{
    const sampling *const all = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        eng_verify_part(all->s, all->pass, &all->pass->parts[i]);
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
            const eng_constraint *const g = r->choice->constraint;
            (void)err_set(&p->err, r->status, "no token could be chosen"); /* should it succeed now */
            (void)eng_sampler_choose(r->choice->sampler, eng_verify_logits(s, r), r->position, g != NULL ? eng_constraint_mask(g) : NULL,
                                     &r->sample, &p->err);
        }
    }
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
    p->n_proposed = 0;
    if (s->script != NULL) {
        run_script(s, p);
    } else {
        int32_t n_rows = 0;
        mdl_draft_rest(s->engine->runner, eng_auto_rests(s, p));
        p->status = mdl_forward(s->engine->runner, p->items, p->n_items, s->logits, &n_rows, &p->err);
        if (p->status == DI_OK && n_rows != p->n_rows) {
            p->status = err_set(&p->err, DI_E_INTERNAL, "a pass gave %d rows of logits in place of %d", n_rows, p->n_rows);
        }
        eng_masks_wait(&s->exec.masks, &p->masks);
        if (p->status == DI_OK) {
            sample_all(s, p);
        }
        for (int32_t i = 0; i < p->n_parts && p->status == DI_OK; i++) {
            eng_draft_rewind(p, &p->parts[i]);
        }
    }
    const int64_t sampled_ns = clock_now_ns();
    int32_t n_proposals = 0;
    if (p->status == DI_OK && s->script == NULL) {
        n_proposals = eng_draft_propose(s, p);
    }
    p->ended_ns = clock_now_ns();
    p->draft_ns = p->ended_ns - sampled_ns;
    if (p->status == DI_OK && s->automatic.on) {
        eng_auto_timed(s, p, (double)(sampled_ns - p->began_ns) * 1e-9, n_proposals, (double)p->draft_ns * 1e-9);
    }
    p->leads = eng_auto_wants_rows(s);
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

/* Masks are small work beside a pass. */
static int32_t mask_threads(const di_scheduler *s)
{
    const int32_t n = s->engine->n_threads / 8;
    return n < 1 ? 1 : n < ENG_MASK_THREADS ? n : ENG_MASK_THREADS;
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
    const di_status masks = eng_masks_start(&e->masks, s->vocabulary != NULL && s->script == NULL ? mask_threads(s) : 0, err);
    if (masks != DI_OK) {
        return masks;
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
    eng_masks_stop(&e->masks);
    pool_free(e->sampling);
}

void eng_exec_submit(di_scheduler *s, eng_pass *pass)
{
    eng_executor *const e = &s->exec;
    eng_masks_submit(&e->masks, &pass->masks);
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
