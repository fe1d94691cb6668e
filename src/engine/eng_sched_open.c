/* eng_sched_open.c - what a choice samples with: its sampler, and its place in the task's grammar.
 *
 * Both follow from the settings and the tokens so far, so that a preempted choice needs neither while it waits. */
#include "core/core.h"
#include "engine/eng_sched.h"

#include <stdlib.h>

static di_status open_sampler(di_scheduler *s, eng_choice *c, di_error *err)
{
    const di_task *const task = c->task;
    di_sampling settings = task->sampling;
    settings.seed = eng_sampler_choice_seed(settings.seed, (uint32_t)c->index);
    const di_status status = eng_sampler_new(&settings, s->engine->c->vocab, &c->sampler, err);
    for (int64_t t = 0; status == DI_OK && t < task->n_prompt; t++) {
        eng_sampler_accept(c->sampler, task->prompt[t], true);
    }
    for (int64_t t = 0; status == DI_OK && t < c->n_out; t++) {
        eng_sampler_accept(c->sampler, c->out[t], false);
    }
    return status;
}

static di_status open_constraint(di_scheduler *s, eng_choice *c, di_error *err)
{
    const di_task *const task = c->task;
    const eng_constraint_options o = {.grammar = task->grammar,
                                      .vocabulary = s->vocabulary,
                                      .waits = task->grammar_waits,
                                      .begin_id = task->grammar_after,
                                      .n_drafts = eng_most_drafts(s, task),
                                      .max_tokens = task->grammar_closes ? task->max_tokens : 0};
    bool ended = false;
    di_status status = eng_constraint_new(&o, &c->constraint, err);
    for (int64_t t = 0; status == DI_OK && s->script == NULL && t < c->n_out; t++) {
        if (!eng_constraint_accept(c->constraint, c->out[t], &ended)) {
            *err = *eng_constraint_error(c->constraint);
            status = err->code;
        }
    }
    return status;
}

/* Greedy choices are the same under every rule, and coupling is the cheapest. */
static di_status open_drafts(const di_scheduler *s, eng_choice *c, di_error *err)
{
    const di_task *const task = c->task;
    for (int32_t j = 0; j < ENG_MAX_DRAFT; j++) {
        c->survival[j] = 1.0f;
    }
    if (task->verify == DI_VERIFY_COUPLED || task->grammar_jumps || task->sampling.temperature <= 0.0f || s->draft_length == 0) {
        return DI_OK;
    }
    const size_t n = 1 + (size_t)s->draft_length;
    c->laws = ar_calloc(n, sizeof *c->laws);
    return c->laws != NULL ? DI_OK : err_memory(err, "laws of drafts", n * sizeof *c->laws);
}

di_status eng_choice_open(di_scheduler *s, eng_choice *c, di_error *err)
{
    di_status status = open_sampler(s, c, err);
    if (status == DI_OK) {
        status = open_drafts(s, c, err);
    }
    return status == DI_OK && c->task->grammar != NULL ? open_constraint(s, c, err) : status;
}

static void close_drafts(eng_choice *c)
{
    for (int32_t i = 0; c->laws != NULL && i <= c->task->scheduler->draft_length; i++) {
        eng_law_fini(&c->laws[i]);
    }
    free(c->laws);
    c->laws = NULL;
}

void eng_choice_close(eng_choice *c)
{
    close_drafts(c);
    eng_sampler_free(c->sampler);
    c->sampler = NULL;
    eng_constraint_free(c->constraint);
    c->constraint = NULL;
}
