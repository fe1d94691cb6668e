/* chunkings.c - see chunkings.h. The first run (at once, one thread, traced) of a case is what its others are compared with. */
#include "chunkings.h"

#include <stdio.h>
#include <string.h>

#define AT_ONCE INT32_MAX

static const int32_t chunk_sizes[] = {AT_ONCE, 1, 7, 16, 17};
enum { N_CHUNKS = sizeof chunk_sizes / sizeof chunk_sizes[0], MAX_THREADS = 2 };

static di_status keep(const di_sequence *sequence, int32_t vocab, const char *name, vf_trace *values, di_error *err)
{
    const float *rows;
    int32_t n;
    const di_status status = di_sequence_logits(sequence, &rows, &n, err);
    if (status == DI_OK) {
        vf_trace_on(values, &(di_trace){.name = name, .dtype = DI_F32, .n_dims = 2, .dims = {n, vocab}, .data = rows});
    }
    return status;
}

/* What a run leaves: logits of the prompt (all, or the last) and of each decode step in *values, the caches in r->trace. */
static di_status run(vf_runner *r, const vf_case *c, bool traced, vf_trace *values, di_error *err)
{
    di_sequence *sequence = NULL;
    di_status status = di_sequence_new(r->engine, &sequence, err);
    if (status == DI_OK) {
        status = vf_feed_prompt(c, traced, sequence, err);
    }
    if (status == DI_OK) {
        status = keep(sequence, r->vocab, "prompt logits", values, err);
    }
    for (size_t i = 0; status == DI_OK && i < c->n_steps; i++) {
        status = di_sequence_feed(sequence, &c->steps[i], 1, err);
        if (status == DI_OK) {
            status = di_sequence_run(sequence, err);
        }
        if (status == DI_OK) {
            status = keep(sequence, r->vocab, "decode logits", values, err);
        }
    }
    vf_trace_clear(&r->trace);
    if (status == DI_OK && traced) {
        status = di_sequence_trace_caches(sequence, err);
    }
    di_sequence_free(sequence);
    return status;
}

/* Equal bit for bit; of the prompt's logits as many rows as both have, from the end. */
static bool same_values(const vf_record *a, const vf_record *b)
{
    const size_t bytes = vf_dtype_bytes(a->dtype);
    const size_t n = a->n_elements < b->n_elements ? a->n_elements : b->n_elements;
    return a->dtype == b->dtype && n > 0 &&
           memcmp(a->data + (a->n_elements - n) * bytes, b->data + (b->n_elements - n) * bytes, n * bytes) == 0;
}

/* Name of the first value of `a` that is not the same in `b`; NULL when all are. */
static const char *difference(const vf_trace *a, const vf_trace *b, const char *prefix)
{
    for (size_t i = 0; i < a->n; i++) {
        size_t rank;
        if (a->records[i].n_rows == 0 || strncmp(a->records[i].name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        const vf_record *other = vf_trace_find(b, a->records[i].name, &rank);
        const bool partial = strcmp(a->records[i].name, "prompt logits") == 0;
        if (other == NULL || (!partial && other->n_elements != a->records[i].n_elements) || !same_values(&a->records[i], other)) {
            return a->records[i].name;
        }
    }
    return NULL;
}

static void note(vf_chunkings *out, const vf_case *c, const vf_settings *s, int32_t longest, bool traced, const char *what)
{
    if (out->n_different++ == 0) {
        char chunk[32] = "at once";
        if (s->chunk_tokens < longest) {
            snprintf(chunk, sizeof chunk, "chunks of %d", s->chunk_tokens);
        }
        snprintf(out->first, sizeof out->first, "%s, %s, %d thread%s, %s: %s differs from one pass with one thread", c->name,
                 chunk, s->n_threads, s->n_threads == 1 ? "" : "s", traced ? "traced" : "rows skipped", what);
    }
}

/* What the first run of a case gave. */
typedef struct reference {
    vf_trace values;
    vf_trace caches;
} reference;

static int32_t longest_prompt(const vf_case *cases, size_t n)
{
    size_t longest = 1;
    for (size_t i = 0; i < n; i++) {
        longest = cases[i].n_ids > longest ? cases[i].n_ids : longest;
    }
    return (int32_t)longest; /* golden.c reads at most 2^20 ids */
}

/* All cases with one setting; the first call fills the references. */
static di_status run_setting(const di_model *model, const vf_settings *s, bool traced, const vf_case *cases, size_t n,
                             reference *references, bool first, vf_chunkings *out, di_error *err)
{
    vf_runner runner;
    di_status status = vf_runner_open(model, s, traced, &runner, err);
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        vf_trace values = {.n = 0};
        status = run(&runner, &cases[i], traced, &values, err);
        if (status == DI_OK && (runner.trace.status != DI_OK || values.status != DI_OK)) {
            status = err_memory(err, "trace", runner.trace.n);
        }
        out->n_runs++;
        if (status == DI_OK && first) {
            references[i] = (reference){.values = values, .caches = runner.trace};
            memset(&runner.trace, 0, sizeof runner.trace);
            continue;
        }
        const char *what = status == DI_OK ? difference(&references[i].values, &values, "") : NULL;
        if (what == NULL && status == DI_OK && traced) {
            what = difference(&references[i].caches, &runner.trace, "cache.");
        }
        if (what != NULL) {
            note(out, &cases[i], s, longest_prompt(cases, n), traced, what);
        }
        vf_trace_fini(&values);
    }
    vf_runner_close(&runner);
    return status;
}

static di_status run_settings(const di_model *model, const vf_settings *settings, const vf_case *cases, size_t n, vf_chunkings *out,
                              di_error *err)
{
    di_status status = DI_OK;
    reference *references = ar_calloc(n, sizeof *references);
    if (references == NULL) {
        return err_memory(err, "outcomes", n * sizeof *references);
    }
    for (int k = 0; status == DI_OK && k < N_CHUNKS; k++) {
        for (int threads = 1; status == DI_OK && threads <= MAX_THREADS; threads++) {
            for (int traced = 1; status == DI_OK && traced >= 0; traced--) {
                const int32_t chunk = chunk_sizes[k] == AT_ONCE ? longest_prompt(cases, n) : chunk_sizes[k];
                vf_settings s = *settings;
                s.n_threads = threads;
                s.chunk_tokens = chunk;
                const bool first = k == 0 && threads == 1 && traced == 1;
                status = run_setting(model, &s, traced == 1, cases, n, references, first, out, err);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        vf_trace_fini(&references[i].values);
        vf_trace_fini(&references[i].caches);
    }
    free(references);
    return status;
}

di_status vf_check_chunkings(const di_model *model, const vf_settings *settings, const vf_golden *g, const char *only, vf_chunkings *out,
                             di_error *err)
{
    const size_t n_all = js_length(g->cases);
    size_t n = 0;
    di_status status = DI_OK;
    memset(out, 0, sizeof *out);
    vf_case *cases = ar_calloc(n_all, sizeof *cases);
    if (cases == NULL) {
        return err_memory(err, "cases", n_all * sizeof *cases);
    }
    for (size_t i = 0; status == DI_OK && i < n_all; i++) {
        const js_value *entry = js_at(g->cases, i);
        const bool prompt = strncmp(js_string(js_get(entry, "kind"), NULL), "prefill", 7) == 0 &&
                            js_kind_of(js_get(entry, "override")) == JS_NULL;
        if (prompt && (only == NULL || strcmp(only, vf_case_name(g, i)) == 0)) {
            status = vf_case_open(g, i, &cases[n], err);
            n += status == DI_OK;
        }
    }
    if (status == DI_OK && n > 0) {
        status = run_settings(model, settings, cases, n, out, err);
    }
    out->n_cases = n;
    for (size_t i = 0; i < n; i++) {
        vf_case_close(&cases[i]);
    }
    free(cases);
    return status;
}
