/* run.c - see run.h. */
#include "run.h"

#include "open.h"

#include <string.h>

di_status vf_runner_open(const di_model *model, const vf_settings *settings, bool traced, vf_runner *out, di_error *err)
{
    di_model_info info;
    memset(out, 0, sizeof *out);
    di_model_get_info(model, &info);
    out->vocab = info.vocab_size;
    const di_engine_options options = {
        .backend = settings->backend,
        .cpu_isa = settings->cpu_isa,
        .n_threads = settings->n_threads,
        .chunk_tokens = settings->chunk_tokens,
        .trace = traced ? vf_trace_on : NULL,
        .trace_user = traced ? &out->trace : NULL,
        .draft = true,
        .ram_budget = settings->ram_budget,
        .ram_percent = settings->ram_percent,
        .weight_cache = settings->weight_cache,
        .cpu_pin = settings->cpu_pin,
    };
    const di_status status = di_engine_open(model, &options, &out->engine, err);
    if (status == DI_OK) {
        cli_say_engine_weights(out->engine);
    }
    return status;
}

void vf_runner_close(vf_runner *r)
{
    di_engine_close(r->engine);
    vf_trace_fini(&r->trace);
    vf_trace_fini(&r->logits);
    vf_trace_fini(&r->decode);
    r->engine = NULL;
}

di_status vf_feed_prompt(const vf_case *c, bool keep_logits, di_sequence *sequence, di_error *err)
{
    size_t row = 0; /* elements of an embedding row */
    if (c->embed != NULL) {
        row = (size_t)st_find(c->file, "embed")->dims[1];
    }
    di_status status = di_sequence_keep_logits(sequence, keep_logits, err);
    size_t begin = 0;
    for (size_t i = 0; status == DI_OK && i < c->n_chunks; i++) {
        const di_input input = {
            .ids = c->ids + begin,
            .n = c->chunks[i],
            .in_image = c->in_image != NULL ? c->in_image + begin : NULL,
            .embed = c->embed != NULL ? c->embed + begin * row : NULL,
        };
        status = di_sequence_feed_input(sequence, &input, err);
        if (status == DI_OK) {
            status = di_sequence_run(sequence, err);
        }
        begin += c->chunks[i];
    }
    return status;
}

/* ---- Drafts ---- */

/* Rows of a phase with drafts: more than any of its tensors has, so that each is compared with the last rows of its record. */
#define DRAFT_ROWS 4096

static di_status bias_of_markov_head(vf_runner *r, int32_t n, di_error *err)
{
    size_t rank;
    const vf_record *const logits = vf_trace_find(&r->trace, "logits", &rank);
    const vf_record *const base = vf_trace_find(&r->trace, "base_logits", &rank);
    const size_t size = (size_t)n * (size_t)r->vocab;
    float *const bias = ar_calloc(size, sizeof *bias);
    if (bias == NULL || logits == NULL || base == NULL || logits->n_elements < size || base->n_elements != size) {
        free(bias);
        return err_set(err, DI_E_INTERNAL, "the engine's trace of a draft is not complete");
    }
    const size_t behind = logits->n_elements - size; /* those of the backbone */
    for (size_t i = 0; i < size; i++) {
        bias[i] = (float)(vf_number(DI_F32, logits->data, behind + i) - vf_number(DI_F32, base->data, i));
    }
    vf_trace_on(&r->trace, &(di_trace){.name = "markov_bias", .dtype = DI_F32, .n_dims = 2, .dims = {n, r->vocab}, .data = bias});
    free(bias);
    return DI_OK;
}

static di_status run_draft(vf_runner *r, int32_t anchor, di_sequence *sequence, di_error *err)
{
    int32_t ids[1 + DI_MAX_DRAFT] = {anchor};
    float confidence[DI_MAX_DRAFT];
    int32_t n = 0;
    di_status status = di_sequence_draft(sequence, anchor, ids + 1, confidence, DI_MAX_DRAFT, &n, err);
    if (status == DI_OK) {
        vf_trace_on(&r->trace, &(di_trace){.name = "draft_ids", .dtype = DI_I32, .n_dims = 1, .dims = {1 + n}, .data = ids});
        status = bias_of_markov_head(r, n, err);
    }
    return status == DI_OK ? di_sequence_trace_caches(sequence, err) : status;
}

/* Puts the sequence's logits into a record, so that they are compared like any other value. */
static di_status take_logits(const vf_runner *r, const di_sequence *sequence, vf_trace *into, const char *name, di_error *err)
{
    const float *rows;
    int32_t n;
    const di_status status = di_sequence_logits(sequence, &rows, &n, err);
    if (status == DI_OK) {
        vf_trace_on(into, &(di_trace){.name = name, .dtype = DI_F32, .n_dims = 2, .dims = {n, r->vocab}, .data = rows});
    }
    return status;
}

static di_status trace_complete(const vf_runner *r, di_error *err)
{
    const bool complete = r->trace.status == DI_OK && r->logits.status == DI_OK && r->decode.status == DI_OK;
    return complete ? DI_OK : err_memory(err, "trace", r->trace.n);
}

static di_status run_prompt(vf_runner *r, const vf_case *c, di_sequence *sequence, vf_result *out, di_error *err)
{
    vf_trace_clear(&r->trace);
    vf_trace_clear(&r->logits);
    vf_trace_clear(&r->decode);
    di_status status = vf_feed_prompt(c, true, sequence, err);
    if (status == DI_OK) {
        status = take_logits(r, sequence, &r->logits, "logits", err);
    }
    if (status == DI_OK && c->drafts) {
        status = di_sequence_trace_caches(sequence, err);
    }
    if (status == DI_OK) {
        status = trace_complete(r, err);
    }
    const vf_phase_values values = {.n_rows = c->drafts ? DRAFT_ROWS : c->n_ids, .n_tokens = (int64_t)c->n_ids, .trace = &r->trace,
                                    .logits = &r->logits};
    return status == DI_OK ? vf_compare_phase(c, &values, out, err) : status;
}

static di_status run_step(vf_runner *r, const vf_case *c, size_t i, di_sequence *sequence, vf_result *out, di_error *err)
{
    vf_trace_clear(&r->trace);
    vf_trace_clear(&r->logits);
    di_status status = di_sequence_feed(sequence, &c->steps[i], 1, err);
    if (status == DI_OK) {
        status = di_sequence_run(sequence, err);
    }
    if (status == DI_OK) {
        status = take_logits(r, sequence, &r->logits, "logits", err);
    }
    if (status == DI_OK) {
        status = take_logits(r, sequence, &r->decode, "decode_logits", err);
    }
    if (status == DI_OK && c->drafts) {
        status = run_draft(r, c->steps[i + 1], sequence, err);
    }
    if (status == DI_OK) {
        status = trace_complete(r, err);
    }
    const int64_t base = (int64_t)(c->n_ids + i);
    const vf_phase_values values = {.phase = (int)i + 1, .base = base, .n_rows = c->drafts ? DRAFT_ROWS : 1, .n_tokens = base + 1,
                                    .trace = &r->trace, .logits = c->drafts ? &r->trace : &r->logits};
    return status == DI_OK ? vf_compare_phase(c, &values, out, err) : status;
}

static di_status run_end(vf_runner *r, const vf_case *c, di_sequence *sequence, vf_result *out, di_error *err)
{
    vf_trace_clear(&r->trace);
    di_status status = di_sequence_trace_caches(sequence, err);
    if (status == DI_OK) {
        status = trace_complete(r, err);
    }
    const vf_phase_values values = {.phase = VF_END, .base = (int64_t)c->n_ids, .n_rows = c->n_steps,
                                    .n_tokens = (int64_t)(c->n_ids + c->n_steps), .trace = &r->trace, .logits = &r->decode};
    return status == DI_OK ? vf_compare_phase(c, &values, out, err) : status;
}

di_status vf_run_case(vf_runner *r, const vf_case *c, vf_difference_fn listener, vf_result *out, di_error *err)
{
    di_sequence *sequence = NULL;
    vf_result_init(out, c);
    out->listener = listener;
    di_status status = di_sequence_new(r->engine, &sequence, err);
    if (status == DI_OK) {
        status = run_prompt(r, c, sequence, out, err);
    }
    for (size_t i = 0; status == DI_OK && i < c->n_steps; i++) {
        status = run_step(r, c, i, sequence, out, err);
    }
    if (status == DI_OK) {
        status = run_end(r, c, sequence, out, err);
    }
    di_sequence_free(sequence);
    if (status != DI_OK) {
        err_prefix(err, "golden case %s", c->name);
    }
    return status;
}
