/* cmd_verify.c - `deepinfer verify`: is what this build computes what the official code computes?
 *
 * With a checkpoint that has a golden folder: every case of the text backbone, stage by stage in the order of the forward pass; the
 * first tensor that differs is named. --all-chunkings adds the promise that grouping does not show, --eval runs a trained model over
 * an evaluation set. What counts as equal is in verify/compare.h, verify/chunkings.h and verify/evalset.h. */
#include "options.h"
#include "tools.h"
#include "verify/chunkings.h"
#include "verify/evalset.h"
#include "verify/run.h"

#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXACT_REL_RMS 1e-5 /* criterion 3 */
#define MAX_LINE_BYTES (1u << 20)

typedef struct verification {
    cli_engine_options engine;
    const char *golden;
    const char *only;
    const char *eval;
    bool all_chunkings;
    bool verbose;
    bool json;
    bool quiet;
    /* over all checkpoints */
    size_t n_passed;
    size_t n_failed;
    size_t n_skipped;
    size_t n_judged;
    size_t n_exact;
} verification;

static const char help[] =
    "Compare this build with golden values, stage by stage.\v"
    "Each DIR is a checkpoint with a folder `golden' (see tests/data/model/README.md), or, with --eval, a trained model. The exit "
    "code is 1 when something differs. JSON lines: one object a case, one a checkpoint, one at the end.";

/* --- JSON ------------------------------------------------------------------------------------------------------------- */

static void put_text(buf *line, const char *key, const char *text)
{
    buf_printf(line, ",\"%s\":", key);
    buf_json_string(line, text, strlen(text));
}

/* Prints and empties the line; output that gets lost is noticed at the end (ferror). */
static void print_line(buf *line)
{
    if (!line->failed && line->size > 0) {
        fwrite(line->data, 1, line->size, stdout);
        fflush(stdout);
    }
    buf_clear(line);
}

static void begin_line(buf *line, const char *key, const char *value)
{
    buf_init(line, MAX_LINE_BYTES);
    buf_printf(line, "{\"%s\":", key);
    buf_json_string(line, value, strlen(value));
}

static void end_line(buf *line)
{
    buf_puts(line, "}\n");
    print_line(line);
    buf_fini(line);
}

/* --- Cases ------------------------------------------------------------------------------------------------------------ */

static void print_skipped(const verification *v, const char *dir, const vf_golden *g, size_t i, const char *reason)
{
    if (v->json) {
        buf line;
        begin_line(&line, "checkpoint", dir);
        put_text(&line, "case", vf_case_name(g, i));
        put_text(&line, "verdict", "skipped");
        put_text(&line, "reason", reason);
        end_line(&line);
    } else {
        printf("%-18s skipped: %s\n", vf_case_name(g, i), reason);
    }
}

static void print_json_case(const char *dir, const vf_result *r)
{
    const vf_difference *d = &r->first;
    buf line;
    begin_line(&line, "checkpoint", dir);
    put_text(&line, "case", r->name);
    put_text(&line, "verdict", d->any ? "differs" : "ok");
    buf_printf(&line, ",\"tensors\":%zu,\"worst\":%.4g", r->n_tensors, r->worst < 1e300 ? r->worst : 1e300);
    put_text(&line, "worst_tensor", r->worst_tensor);
    if (r->logits_rel_rms >= 0) {
        buf_printf(&line, ",\"logits_rel_rms\":%.3g", r->logits_rel_rms < 1e300 ? r->logits_rel_rms : 1e300);
    }
    buf_printf(&line, ",\"judged_for_exactness\":%s", r->judged ? "true" : "false");
    if (r->moved_row >= 0) {
        buf_printf(&line, ",\"moved_row\":%" PRId64, r->moved_row);
        put_text(&line, "moved_tensor", r->moved_tensor);
    }
    if (d->any) {
        put_text(&line, "first_tensor", d->tensor);
        buf_printf(&line, ",\"row\":%" PRId64 ",\"differences\":%zu", d->row, r->n_differences);
        put_text(&line, "message", d->text);
    }
    end_line(&line);
}

/* "step2.L3.attn_out" -> 3; -1 for a value of no layer. */
static int layer_of(const char *tensor)
{
    int layer = -1;
    for (const char *at = tensor; at != NULL; at = strchr(at, '.')) {
        at += *at == '.';
        if (sscanf(at, "L%d.", &layer) == 1) {
            return layer;
        }
    }
    return -1;
}

static void print_case(const verification *v, const char *dir, const vf_result *r)
{
    const vf_difference *d = &r->first;
    if (v->json) {
        print_json_case(dir, r);
        return;
    }
    printf("%-18s %-15s %7zu  %8.3g  %-24s %s", r->name, r->kind, r->n_tensors, r->worst, r->worst_tensor,
           d->any ? "DIFFERS" : "ok");
    if (r->moved_row >= 0) {
        printf(", another selection from row %" PRId64 " (%s)", r->moved_row, r->moved_tensor);
    }
    printf("\n");
    if (d->any) {
        printf("    first: tensor %s", d->tensor);
        if (layer_of(d->tensor) >= 0) {
            printf(", layer %d", layer_of(d->tensor));
        }
        if (d->row >= 0) {
            printf(", row %" PRId64, d->row);
        }
        printf(": %s; %zu tensors differ in all\n", d->text, r->n_differences);
    }
    fflush(stdout);
}

static void print_difference(const vf_difference *d)
{
    fprintf(stderr, "  %s, row %" PRId64 ": %s\n", d->tensor, d->row, d->text);
}

/* Opens the model anew for a case with another SwiGLU limit. */
static di_status run_override(const char *dir, const vf_settings *s, const vf_case *c, vf_difference_fn listener, vf_result *out,
                              di_error *err)
{
    const di_model_options options = {.swiglu_limit = (float)c->swiglu_limit};
    di_model *model = NULL;
    vf_runner runner;
    di_status status = di_model_open(dir, &options, &model, err);
    if (status != DI_OK) {
        return status;
    }
    status = vf_runner_open(model, s, true, &runner, err);
    if (status == DI_OK) {
        status = vf_run_case(&runner, c, listener, out, err);
    }
    vf_runner_close(&runner);
    di_model_close(model);
    return status;
}

static di_status run_cases(verification *v, const char *dir, const vf_settings *s, const di_model *model, const vf_golden *g,
                           di_error *err)
{
    const vf_difference_fn listener = v->verbose ? print_difference : NULL;
    vf_runner runner;
    di_status status = vf_runner_open(model, s, true, &runner, err);
    for (size_t i = 0; status == DI_OK && i < js_length(g->cases); i++) {
        const char *reason = vf_skip_reason(g, i);
        vf_case c;
        vf_result r;
        if (v->only != NULL && strcmp(v->only, vf_case_name(g, i)) != 0) {
            continue;
        }
        if (reason != NULL) {
            v->n_skipped++;
            print_skipped(v, dir, g, i, reason);
            continue;
        }
        status = vf_case_open(g, i, &c, err);
        if (status != DI_OK) {
            break;
        }
        status = c.swiglu_limit > 0 ? run_override(dir, s, &c, listener, &r, err) : vf_run_case(&runner, &c, listener, &r, err);
        if (status == DI_OK) {
            print_case(v, dir, &r);
            v->n_passed += !r.first.any;
            v->n_failed += r.first.any;
            v->n_judged += r.judged;
            v->n_exact += r.judged && r.logits_rel_rms >= 0 && r.logits_rel_rms <= EXACT_REL_RMS;
        }
        vf_case_close(&c);
    }
    vf_runner_close(&runner);
    return status;
}

static di_status run_chunkings(verification *v, const char *dir, const di_model *model, const vf_golden *g, di_error *err)
{
    const vf_settings settings = {.backend = v->engine.backend, .cpu_isa = v->engine.cpu_isa};
    vf_chunkings c;
    const di_status status = vf_check_chunkings(model, &settings, g, v->only, &c, err);
    if (status != DI_OK || c.n_cases == 0) {
        return status;
    }
    v->n_passed += c.n_different == 0;
    v->n_failed += c.n_different > 0;
    if (v->json) {
        buf line;
        begin_line(&line, "checkpoint", dir);
        put_text(&line, "case", "chunkings");
        put_text(&line, "verdict", c.n_different == 0 ? "ok" : "differs");
        buf_printf(&line, ",\"prompts\":%zu,\"runs\":%zu,\"different\":%zu", c.n_cases, c.n_runs, c.n_different);
        put_text(&line, "message", c.first);
        end_line(&line);
    } else if (c.n_different == 0) {
        printf("%-18s %zu prompts, %zu runs: bitwise equal\n", "chunkings", c.n_cases, c.n_runs);
    } else {
        printf("%-18s %zu of %zu runs DIFFER; first: %s\n", "chunkings", c.n_different, c.n_runs, c.first);
    }
    return DI_OK;
}

/* Criterion 3 for one checkpoint, from the counts before it. */
static void judge_checkpoint(verification *v, const char *dir, size_t judged_before, size_t exact_before)
{
    const size_t judged = v->n_judged - judged_before;
    const size_t exact = v->n_exact - exact_before;
    const bool failed = judged > 0 && exact == 0;
    v->n_failed += failed;
    if (v->json) {
        buf line;
        begin_line(&line, "checkpoint", dir);
        put_text(&line, "case", "exactness");
        put_text(&line, "verdict", failed ? "differs" : "ok");
        buf_printf(&line, ",\"judged\":%zu,\"exact\":%zu", judged, exact);
        end_line(&line);
    } else {
        printf("%-18s %zu of %zu cases agree to %g%s\n", "exactness", exact, judged, EXACT_REL_RMS,
               failed ? ": DIFFERS, a rounding point is wrong" : "");
    }
}

static di_status verify_checkpoint(verification *v, const char *dir, di_error *err)
{
    const vf_settings settings = {
        .backend = v->engine.backend,
        .cpu_isa = v->engine.cpu_isa,
        .n_threads = (int32_t)v->engine.threads,
        .chunk_tokens = (int32_t)v->engine.chunk_tokens,
        .ram_budget = v->engine.ram.bytes,
        .ram_percent = v->engine.ram.percent,
        .weight_cache = v->engine.weight_cache,
        .cpu_pin = v->engine.cpu_pin,
    };
    const size_t judged = v->n_judged;
    const size_t exact = v->n_exact;
    di_model *model = NULL;
    vf_golden golden = {.dir = NULL};
    char *path = v->golden != NULL ? strdup(v->golden) : file_path_join(dir, "golden");
    di_status status = path != NULL ? DI_OK : err_memory(err, "path", strlen(dir));
    if (status == DI_OK) {
        status = di_model_open(dir, NULL, &model, err);
    }
    if (status == DI_OK) {
        status = vf_golden_open(path, &golden, err);
    }
    if (status == DI_OK && !v->json) {
        printf("%s\n%-18s %-15s %7s  %8s  %-24s %s\n", dir, "case", "kind", "tensors", "of tol.", "worst tensor", "verdict");
    }
    if (status == DI_OK) {
        status = run_cases(v, dir, &settings, model, &golden, err);
    }
    if (status == DI_OK && v->all_chunkings) {
        status = run_chunkings(v, dir, model, &golden, err);
    }
    if (status == DI_OK && v->only == NULL) {
        judge_checkpoint(v, dir, judged, exact);
    }
    vf_golden_close(&golden);
    di_model_close(model);
    free(path);
    return status;
}

static void print_end(verification *v)
{
    const bool judged = v->only == NULL && v->n_judged > 0;
    const bool inexact = judged && 4 * v->n_exact < 3 * v->n_judged;
    v->n_failed += inexact;
    if (v->json) {
        buf line;
        begin_line(&line, "verdict", v->n_failed == 0 ? "ok" : "differs");
        buf_printf(&line, ",\"passed\":%zu,\"failed\":%zu,\"skipped\":%zu,\"judged\":%zu,\"exact\":%zu", v->n_passed, v->n_failed,
                   v->n_skipped, v->n_judged, v->n_exact);
        end_line(&line);
        return;
    }
    if (inexact) {
        printf("only %zu of %zu cases agree to %g, less than three quarters: a rounding point is wrong\n", v->n_exact, v->n_judged,
               EXACT_REL_RMS);
    }
    printf("%zu passed, %zu failed, %zu skipped\n", v->n_passed, v->n_failed, v->n_skipped);
}

/* --- Evaluation sets -------------------------------------------------------------------------------------------------- */

static void show_progress(size_t done, size_t total)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, done < total ? "\r%zu of %zu prompts" : "\r\033[K", done, total);
    }
}

static void no_progress(size_t done, size_t total)
{
    (void)done;
    (void)total;
}

static void print_eval(const vf_eval *e)
{
    for (size_t i = 0; i < e->n_partings; i++) {
        const vf_parting *p = &e->partings[i];
        printf("%-10s output token %zu is %" PRId32 " instead of %" PRId32 ": lead %.3g%s, smallest golden lead %.3g\n", p->id,
               p->position, p->ours, p->reference, p->lead, p->lead < VF_EVAL_LEAD ? "" : " (NOT SMALL)", p->golden_lead);
    }
    if (e->n_prompts > 0) {
        printf("outputs    %zu of %zu equal the reference (%.2f %%; at least %g %%)\n", e->n_equal, e->n_prompts,
               100.0 * (double)e->n_equal / (double)e->n_prompts, 100 * VF_EVAL_SHARE);
    }
    if (e->n_logits > 0) {
        printf("logits     %zu prompts: rel rms %.4f on average (at most %g), %.4f at %s (at most %g), %zu clear tokens differ\n",
               e->n_logits, e->mean_rel_rms, VF_EVAL_MEAN_REL_RMS, e->max_rel_rms, e->max_id, VF_EVAL_REL_RMS, e->n_argmax);
    }
    if (e->n_drafts > 0) {
        printf("drafts     %zu of %zu blocks equal the reference (at most %d part), confidences: rel rms %.4f at most (at most %g)\n",
               e->n_drafts_equal, e->n_drafts, VF_EVAL_DRAFT_PARTINGS, e->max_confidence, VF_EVAL_REL_RMS);
    }
    printf("%s         %" PRId64 " tokens in %.1f s\n", vf_eval_passed(e) ? "ok" : "DIFFERS", e->n_tokens, e->seconds);
}

static void print_json_eval(const char *dir, const vf_eval *e)
{
    buf line;
    for (size_t i = 0; i < e->n_partings; i++) {
        const vf_parting *p = &e->partings[i];
        begin_line(&line, "checkpoint", dir);
        put_text(&line, "case", p->id);
        put_text(&line, "verdict", p->lead < VF_EVAL_LEAD ? "ok" : "differs");
        buf_printf(&line, ",\"position\":%zu,\"id\":%" PRId32 ",\"reference\":%" PRId32 ",\"lead\":%.4g,\"golden_lead\":%.4g",
                   p->position, p->ours, p->reference, p->lead, p->golden_lead);
        end_line(&line);
    }
    begin_line(&line, "checkpoint", dir);
    put_text(&line, "verdict", vf_eval_passed(e) ? "ok" : "differs");
    buf_printf(&line, ",\"prompts\":%zu,\"equal\":%zu,\"wide\":%zu", e->n_prompts, e->n_equal, e->n_wide);
    buf_printf(&line, ",\"logits\":%zu,\"argmax_differs\":%zu,\"mean_rel_rms\":%.5f,\"max_rel_rms\":%.5f", e->n_logits, e->n_argmax,
               e->mean_rel_rms < 1e300 ? e->mean_rel_rms : 1e300, e->max_rel_rms < 1e300 ? e->max_rel_rms : 1e300);
    buf_printf(&line, ",\"draft_blocks\":%zu,\"draft_blocks_equal\":%zu,\"max_confidence_rel_rms\":%.4f", e->n_drafts,
               e->n_drafts_equal, e->max_confidence < 1e300 ? e->max_confidence : 1e300);
    buf_printf(&line, ",\"tokens\":%" PRId64 ",\"seconds\":%.2f", e->n_tokens, e->seconds);
    end_line(&line);
}

static di_status verify_eval(verification *v, const char *dir, di_error *err)
{
    const vf_settings settings = {
        .backend = v->engine.backend,
        .cpu_isa = v->engine.cpu_isa,
        .n_threads = (int32_t)v->engine.threads,
        .chunk_tokens = (int32_t)v->engine.chunk_tokens,
        .ram_budget = v->engine.ram.bytes,
        .ram_percent = v->engine.ram.percent,
        .weight_cache = v->engine.weight_cache,
        .cpu_pin = v->engine.cpu_pin,
    };
    vf_eval e;
    di_model *model = NULL;
    di_status status = di_model_open(dir, NULL, &model, err);
    if (status == DI_OK) {
        status = vf_run_eval(model, &settings, v->eval, v->quiet ? no_progress : show_progress, &e, err);
    }
    di_model_close(model);
    if (status != DI_OK) {
        return status;
    }
    v->n_failed += !vf_eval_passed(&e);
    if (v->json) {
        print_json_eval(dir, &e);
    } else {
        print_eval(&e);
    }
    return DI_OK;
}

int cmd_verify(int argc, char **argv)
{
    verification v = {.golden = NULL};
    cli_parser p;
    char **dirs;
    size_t n_dirs;
    di_error err;
    di_status status = DI_OK;
    cli_parser_init(&p, "DIR...", 1, SIZE_MAX, help);
    cli_add_string(&p, "golden", "DIR", &v.golden, "golden folder (default: DIR/golden)");
    cli_add_string(&p, "case", "NAME", &v.only, "this case alone");
    cli_add_flag(&p, "all-chunkings", &v.all_chunkings, "also every prompt in other chunks and with other threads: bitwise equal?");
    cli_add_string(&p, "eval", "DIR", &v.eval, "run the evaluation set in DIR instead of golden cases");
    cli_add_flag(&p, "verbose", &v.verbose, "every tensor that differs, on standard error");
    cli_add_flag(&p, "json", &v.json, "JSON lines");
    cli_add_flag(&p, "quiet", &v.quiet, "no progress");
    cli_add_engine(&p, &v.engine);
    cli_parse(&p, argc, argv, &dirs, &n_dirs);
    if (v.golden != NULL && n_dirs > 1) {
        return cli_usage(&p, "--golden is for one checkpoint");
    }
    if (v.eval != NULL && (v.golden != NULL || v.only != NULL || v.all_chunkings)) {
        return cli_usage(&p, "--eval goes without --golden, --case and --all-chunkings");
    }
    for (size_t i = 0; status == DI_OK && i < n_dirs; i++) {
        status = v.eval != NULL ? verify_eval(&v, dirs[i], &err) : verify_checkpoint(&v, dirs[i], &err);
    }
    if (status != DI_OK) {
        return cli_fail(&err);
    }
    if (v.eval == NULL && v.n_passed + v.n_failed + v.n_skipped == 0) {
        fprintf(stderr, "deepinfer: no golden case is called %s\n", v.only != NULL ? v.only : "anything");
        return CLI_FAILED;
    }
    if (v.eval == NULL) {
        print_end(&v);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "deepinfer: standard output: write failed\n");
        return CLI_FAILED;
    }
    return v.n_failed == 0 ? CLI_OK : CLI_FAILED;
}
