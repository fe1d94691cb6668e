/* draft_run.c - see draft_run.h. */
#include "draft_run.h"

#include "interrupt.h"

#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_REPORT 4096 /* bytes */

struct cli_draft_run {
    di_scheduler *scheduler;
    cli_output *output;
    di_task *task;      /* NULL = it has ended */
    int64_t n_tokens;   /* of this output */
    int64_t first_ns;
    bool stopped;       /* by a stop string, or because output takes no more */
    di_task_end end;
    di_status status;   /* of the output, or of the task */
    di_error err;
    int64_t all_tokens; /* of all outputs */
};

static void take_token(cli_draft_run *r, const di_sample *sample)
{
    if (r->stopped) {
        return; /* came in the same step */
    }
    r->n_tokens++;
    r->first_ns = r->n_tokens == 1 ? clock_now_ns() : r->first_ns;
    r->status = cli_output_token(r->output, sample, &r->err);
    r->stopped = r->status != DI_OK || cli_output_stopped(r->output);
    if (r->stopped) {
        di_task_cancel(r->task);
    }
}

static void on_events(void *user, const di_task_event *events, size_t n)
{
    cli_draft_run *const r = user;
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        if (e->sample != NULL) {
            take_token(r, e->sample);
        }
        if (e->end != DI_TASK_RUNNING) {
            r->end = e->end;
            r->task = NULL;
        }
        if (e->end == DI_TASK_FAILED && r->status == DI_OK) {
            r->err = *e->error;
            r->status = r->err.code;
        }
    }
}

di_status cli_draft_run_new(di_engine *engine, const cli_draft *draft, di_vocabulary *vocabulary, cli_output *output, cli_draft_run **out,
                            di_error *err)
{
    cli_draft_run *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_memory(err, "run with drafts", sizeof *r);
    }
    r->output = output;
    const di_scheduler_options o = {.on_events = on_events,
                                    .user = r,
                                    .draft_tokens = cli_draft_tokens(draft),
                                    .draft_auto = cli_draft_auto(draft),
                                    .vocabulary = vocabulary};
    const di_status status = di_scheduler_new(engine, &o, &r->scheduler, err);
    if (status != DI_OK) {
        free(r);
        return status;
    }
    *out = r;
    return DI_OK;
}

void cli_draft_run_free(cli_draft_run *r)
{
    if (r != NULL) {
        di_scheduler_free(r->scheduler);
        free(r);
    }
}

static cli_finish finish_of(const cli_draft_run *r, const di_task_options *task)
{
    if (r->stopped || r->end == DI_TASK_STOP) {
        return CLI_STOP;
    }
    if (r->end == DI_TASK_LENGTH) {
        return task->max_tokens > 0 && r->n_tokens == task->max_tokens ? CLI_LENGTH : CLI_CONTEXT;
    }
    return CLI_CANCELLED;
}

di_status cli_draft_run_task(cli_draft_run *r, const di_task_options *task, cli_figures *figures, cli_finish *finish, bool *interrupted,
                             di_error *err)
{
    const int64_t start = clock_now_ns();
    r->n_tokens = 0;
    r->first_ns = start;
    r->stopped = false;
    r->status = DI_OK;
    di_status status = di_task_submit(r->scheduler, task, &r->task, err);
    while (status == DI_OK && r->task != NULL) {
        di_step_info step;
        if (!*interrupted && cli_take_interrupt()) {
            *interrupted = true;
            cli_block_interrupt(false);
            di_task_cancel(r->task);
        }
        status = di_scheduler_step(r->scheduler, &step, err);
    }
    if (status == DI_OK && r->status != DI_OK) {
        *err = r->err;
        status = r->status;
    }
    figures->prompt_tokens = status == DI_OK ? (int64_t)task->n_prompt : 0;
    figures->generated_tokens = r->n_tokens;
    figures->first_token_s = (double)(r->first_ns - start) * 1e-9;
    figures->prompt_s = figures->first_token_s;
    figures->generate_s = (double)(clock_now_ns() - r->first_ns) * 1e-9;
    figures->peak_bytes = cli_peak_bytes();
    *finish = finish_of(r, task);
    r->all_tokens += r->n_tokens;
    return status;
}

/* ---- figures ---- */

static double share(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : 0.0; }

static void put_places(const di_scheduler_stats *s, const char *between, buf *out)
{
    for (int j = 0; j < DI_MAX_VERIFIED && s->verified_at[j] > 0; j++) {
        buf_printf(out, "%s%.4f", j > 0 ? between : "", share(s->accepted_at[j], s->verified_at[j]));
    }
}

di_status cli_draft_run_report(const cli_draft_run *r, bool json, di_error *err)
{
    di_scheduler_stats s;
    buf line;
    di_scheduler_get_stats(r->scheduler, &s);
    buf_init(&line, MOST_REPORT);
    const int64_t wasted = s.drafted_tokens - s.accepted_tokens;
    const double a_step = share(r->all_tokens, s.n_steps);
    if (json) {
        buf_printf(&line, "{\"drafts\":{\"steps\":%" PRId64 ",\"tokens_per_step\":%.4f", s.n_steps, a_step);
        buf_printf(&line, ",\"proposals\":%" PRId64 ",\"proposed\":%" PRId64 ",\"verified\":%" PRId64, s.n_verified,
                   s.proposed_tokens, s.drafted_tokens);
        buf_printf(&line, ",\"accepted\":%" PRId64 ",\"wasted\":%" PRId64 ",\"budget\":%.4f,\"acceptance\":[", s.accepted_tokens, wasted,
                   share(s.drafted_tokens, s.n_verified));
        put_places(&s, ",", &line);
        buf_printf(&line, "],\"calibration_error\":%.4f,\"propose_s\":%.6f}}\n", s.calibration_error, (double)s.draft_ns * 1e-9);
    } else {
        buf_printf(&line, "drafts      %8" PRId64 " of %" PRId64 " right, %" PRId64 " wasted; ", s.accepted_tokens, s.drafted_tokens,
                   wasted);
        buf_printf(&line, "%.2f tokens a step, %.2f verified a proposal\n", a_step, share(s.drafted_tokens, s.n_verified));
        buf_puts(&line, "by place    ");
        put_places(&s, " ", &line);
        buf_printf(&line, "; foretold within %.1f %%, proposed in %.3f s\n", s.calibration_error * 100.0, (double)s.draft_ns * 1e-9);
    }
    di_status status = line.failed ? err_memory(err, "figures of drafts", line.size) : DI_OK;
    FILE *const to = json ? stdout : stderr;
    if (status == DI_OK && (fwrite(line.data, 1, line.size, to) != line.size || fflush(to) != 0)) {
        status = json ? err_set(err, DI_E_IO, "standard output: cannot write") : DI_OK;
    }
    buf_fini(&line);
    return status;
}
