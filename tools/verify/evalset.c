/* evalset.c - see evalset.h. Up to N_SLOTS sequences are in flight; a slot takes the next prompt when its own is done. */
#include "evalset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)256 << 20)
enum { N_SLOTS = 24 };

typedef struct prompt {
    char id[64];
    int32_t *ids; /* owned */
    size_t n_ids;
    int32_t *reference; /* owned */
    size_t n_reference;
    double golden_lead;
} prompt;

typedef struct prompts {
    prompt *all;
    size_t n;
    size_t capacity;
} prompts;

/* --- eval.jsonl ------------------------------------------------------------------------------------------------------- */

static di_status read_list(const js_value *list, const char *what, int32_t **out, size_t *n, di_error *err)
{
    *n = js_length(list);
    if (js_kind_of(list) != JS_ARRAY || *n == 0) {
        return err_set(err, DI_E_FORMAT, "%s is not a list of ids", what);
    }
    *out = ar_calloc(*n, sizeof **out);
    if (*out == NULL) {
        return err_memory(err, what, *n * sizeof **out);
    }
    for (size_t i = 0; i < *n; i++) {
        const int64_t id = js_int(js_at(list, i));
        if (js_kind_of(js_at(list, i)) != JS_INT || id < 0 || id > INT32_MAX) {
            return err_set(err, DI_E_FORMAT, "%s: element %zu is not an id", what, i);
        }
        (*out)[i] = (int32_t)id;
    }
    return DI_OK;
}

static di_status read_line(const char *line, size_t size, prompt *p, di_error *err)
{
    js_doc *doc = NULL;
    di_status status = js_parse(line, size, "eval.jsonl", NULL, &doc, err);
    if (status == DI_OK) {
        const js_value *root = js_root(doc);
        snprintf(p->id, sizeof p->id, "%s", js_string(js_get(root, "id"), NULL));
        p->golden_lead = js_number(js_get(root, "min_top1_margin"));
        status = read_list(js_get(root, "prompt_ids"), "prompt_ids", &p->ids, &p->n_ids, err);
        if (status == DI_OK) {
            status = read_list(js_get(root, "reference_output_ids"), "reference_output_ids", &p->reference, &p->n_reference, err);
        }
    }
    js_free(doc);
    return status;
}

static prompt *add_prompt(prompts *p)
{
    if (p->n == p->capacity) {
        const size_t capacity = p->capacity > 0 ? 2 * p->capacity : 64;
        prompt *larger = realloc(p->all, capacity * sizeof *larger);
        if (larger == NULL) {
            return NULL;
        }
        p->all = larger;
        p->capacity = capacity;
    }
    prompt *fresh = &p->all[p->n++];
    memset(fresh, 0, sizeof *fresh);
    return fresh;
}

static di_status read_prompts(const char *path, prompts *out, di_error *err)
{
    char *text = NULL;
    size_t size;
    size_t line = 0;
    di_status status = file_read(path, MAX_FILE_BYTES, &text, &size, err);
    for (size_t begin = 0; status == DI_OK && begin < size; line++) {
        const char *end = memchr(text + begin, '\n', size - begin);
        const size_t n = end != NULL ? (size_t)(end - (text + begin)) : size - begin;
        if (n > 0) {
            prompt *p = add_prompt(out);
            status = p != NULL ? read_line(text + begin, n, p, err) : err_memory(err, "prompts", size);
            if (status != DI_OK) {
                err_prefix(err, "eval.jsonl: line %zu", line + 1);
            }
        }
        begin += n + 1;
    }
    free(text);
    return status;
}

static void free_prompts(prompts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->all[i].ids);
        free(p->all[i].reference);
    }
    free(p->all);
}

/* --- Greedy outputs --------------------------------------------------------------------------------------------------- */

typedef struct slot {
    di_sequence *sequence; /* NULL = free */
    const prompt *prompt;
    size_t n_out;
} slot;

static di_status start(vf_runner *r, slot *s, const prompt *p, di_error *err)
{
    di_sampling greedy;
    di_sampling_default(&greedy);
    greedy.temperature = 0;
    s->prompt = p;
    s->n_out = 0;
    di_status status = di_sequence_new(r->engine, &s->sequence, err);
    if (status == DI_OK) {
        status = di_sequence_set_sampling(s->sequence, &greedy, err);
    }
    if (status == DI_OK) {
        status = di_sequence_feed(s->sequence, p->ids, p->n_ids, err);
    }
    return status;
}

/* Lead of the best over the second. */
static double lead_of(const float *row, int32_t vocab)
{
    double best = -INFINITY;
    double second = -INFINITY;
    for (int32_t k = 0; k < vocab; k++) {
        const double x = (double)row[k];
        second = fmax(second, fmin(best, x));
        best = fmax(best, x);
    }
    return best - second;
}

static void note_parting(vf_eval *out, const slot *s, int32_t ours, double lead)
{
    out->n_wide += !(lead < VF_EVAL_LEAD);
    if (out->n_partings == VF_MAX_PARTINGS) {
        return;
    }
    vf_parting *p = &out->partings[out->n_partings++];
    memcpy(p->id, s->prompt->id, sizeof p->id);
    p->position = s->n_out;
    p->ours = ours;
    p->reference = s->prompt->reference[s->n_out];
    p->lead = lead;
    p->golden_lead = s->prompt->golden_lead;
}

/* The next token of a ready sequence; *done when its prompt is decided. */
static di_status advance(const vf_runner *r, slot *s, vf_eval *out, bool *done, di_error *err)
{
    const float *row;
    int32_t n;
    di_sample sample;
    di_status status = di_sequence_logits(s->sequence, &row, &n, err);
    if (status != DI_OK) {
        return status;
    }
    const double lead = lead_of(row, r->vocab);
    status = di_sequence_sample(s->sequence, &sample, err);
    if (status != DI_OK) {
        return status;
    }
    const bool same = sample.id == s->prompt->reference[s->n_out];
    if (!same) {
        note_parting(out, s, sample.id, lead);
    }
    s->n_out++;
    *done = !same || s->n_out == s->prompt->n_reference;
    out->n_equal += *done && same;
    return DI_OK;
}

static di_status run_outputs(vf_runner *r, const prompts *p, vf_progress_fn progress, vf_eval *out, di_error *err)
{
    slot slots[N_SLOTS] = {{NULL, NULL, 0}};
    size_t next = 0;
    size_t done = 0;
    di_status status = DI_OK;
    while (status == DI_OK && done < p->n) {
        for (size_t i = 0; status == DI_OK && i < N_SLOTS && next < p->n; i++) {
            if (slots[i].sequence == NULL) {
                status = start(r, &slots[i], &p->all[next++], err);
            }
        }
        int32_t n;
        if (status == DI_OK) {
            status = di_engine_step(r->engine, &n, err);
        }
        for (size_t i = 0; status == DI_OK && i < N_SLOTS; i++) {
            bool finished = false;
            if (slots[i].sequence == NULL || !di_sequence_ready(slots[i].sequence)) {
                continue;
            }
            status = advance(r, &slots[i], out, &finished, err);
            if (finished) {
                di_sequence_free(slots[i].sequence);
                slots[i].sequence = NULL;
                progress(++done, p->n);
            }
        }
    }
    out->n_prompts = p->n;
    for (size_t i = 0; i < N_SLOTS; i++) {
        di_sequence_free(slots[i].sequence);
    }
    return status;
}

static di_status eval_outputs(vf_runner *r, const char *path, vf_progress_fn progress, vf_eval *out, di_error *err)
{
    prompts p = {NULL, 0, 0};
    di_status status = read_prompts(path, &p, err);
    if (status == DI_OK) {
        status = run_outputs(r, &p, progress, out, err);
    }
    free_prompts(&p);
    return status;
}

/* --- reference_logits.safetensors ------------------------------------------------------------------------------------- */

static void compare_row(const float *ours, const uint8_t *golden, int32_t vocab, vf_eval *out, double *difference2, double *golden2)
{
    int32_t best = 0;
    int32_t best_ours = 0;
    double second = -INFINITY;
    for (int32_t k = 0; k < vocab; k++) {
        const double g = vf_number(DI_F32, golden, (size_t)k);
        const double d = (double)ours[k] - g;
        *difference2 += d * d;
        *golden2 += g * g;
        if (k > 0 && g > vf_number(DI_F32, golden, (size_t)best)) {
            second = vf_number(DI_F32, golden, (size_t)best);
            best = k;
        } else if (k > 0) {
            second = fmax(second, g);
        }
        best_ours = ours[k] > ours[best_ours] ? k : best_ours;
    }
    const double lead = vf_number(DI_F32, golden, (size_t)best) - second;
    out->n_argmax += lead > VF_EVAL_LEAD && best != best_ours;
}

/* `id`.ids through the model, its last rows against `id`.logits. */
static di_status compare_logits(vf_runner *r, const char *id, const st_tensor *ids, const st_tensor *golden, vf_eval *out,
                                di_error *err)
{
    const size_t n_rows = (size_t)golden->dims[0];
    const size_t n = (size_t)ids->dims[0];
    const float *rows;
    int32_t n_ours;
    di_sequence *sequence = NULL;
    int32_t *copy = ar_calloc(n, sizeof *copy);
    if (copy == NULL) {
        return err_memory(err, "ids", ids->size);
    }
    memcpy(copy, ids->data, ids->size);
    di_status status = di_sequence_new(r->engine, &sequence, err);
    if (status == DI_OK) {
        status = di_sequence_feed(sequence, copy, n - n_rows, err);
    }
    if (status == DI_OK) {
        status = di_sequence_run(sequence, err);
    }
    if (status == DI_OK) {
        status = di_sequence_keep_logits(sequence, true, err);
    }
    if (status == DI_OK) {
        status = di_sequence_feed(sequence, copy + n - n_rows, n_rows, err);
    }
    if (status == DI_OK) {
        status = di_sequence_run(sequence, err);
    }
    if (status == DI_OK) {
        status = di_sequence_logits(sequence, &rows, &n_ours, err);
    }
    if (status == DI_OK) {
        double difference2 = 0;
        double golden2 = 0;
        for (size_t i = 0; i < n_rows; i++) {
            const size_t offset = i * (size_t)r->vocab;
            compare_row(rows + offset, golden->data + offset * sizeof *rows, r->vocab, out, &difference2, &golden2);
        }
        const double rel = golden2 > 0 ? sqrt(difference2 / golden2) : INFINITY;
        out->n_logits++;
        out->mean_rel_rms += rel; /* the sum, until all are in */
        if (rel > out->max_rel_rms) {
            out->max_rel_rms = rel;
            snprintf(out->max_id, sizeof out->max_id, "%s", id);
        }
    }
    di_sequence_free(sequence);
    free(copy);
    return status;
}

/* Drafts behind all of `id`.ids but the last two, of which the first is the anchor. */
static di_status compare_drafts(vf_runner *r, const st_tensor *ids, const st_tensor *golden, const st_tensor *confidence, vf_eval *out,
                                di_error *err)
{
    int32_t drafts[DI_MAX_DRAFT];
    float ours[DI_MAX_DRAFT];
    int32_t n = 0;
    int32_t anchor;
    di_sequence *sequence = NULL;
    const size_t n_context = (size_t)ids->dims[0] - 2;
    int32_t *const copy = ar_calloc(n_context, sizeof *copy);
    if (copy == NULL) {
        return err_memory(err, "ids", ids->size);
    }
    memcpy(copy, ids->data, n_context * sizeof *copy);
    memcpy(&anchor, golden->data, sizeof anchor);
    di_status status = di_sequence_new(r->engine, &sequence, err);
    if (status == DI_OK) {
        status = di_sequence_feed(sequence, copy, n_context, err);
    }
    if (status == DI_OK) {
        status = di_sequence_run(sequence, err);
    }
    if (status == DI_OK) {
        status = di_sequence_draft(sequence, anchor, drafts, ours, (int32_t)golden->dims[0] - 1, &n, err);
    }
    int32_t same = 0;
    while (same < n && drafts[same] == (int32_t)vf_number(DI_I32, golden->data, (size_t)same + 1)) {
        same++;
    }
    double difference2 = 0;
    double golden2 = 0;
    for (int32_t i = 0; i < n && i <= same; i++) { /* the confidence of a draft hangs on those before it only */
        const double g = vf_number(DI_F32, confidence->data, (size_t)i);
        difference2 += ((double)ours[i] - g) * ((double)ours[i] - g);
        golden2 += g * g;
    }
    if (status == DI_OK) {
        out->max_confidence = fmax(out->max_confidence, golden2 > 0 ? sqrt(difference2 / golden2) : INFINITY);
        out->n_drafts++;
        out->n_drafts_equal += same == golden->dims[0] - 1;
    }
    di_sequence_free(sequence);
    free(copy);
    return status;
}

static di_status eval_drafts(vf_runner *r, const st_file *file, const char *id, const st_tensor *ids, vf_eval *out, di_error *err)
{
    char name[96];
    snprintf(name, sizeof name, "%s.draft_ids", id);
    const st_tensor *const golden = st_find(file, name);
    if (golden == NULL || di_engine_draft_length(r->engine) == 0) {
        return DI_OK;
    }
    snprintf(name, sizeof name, "%s.draft_confidence", id);
    const st_tensor *const confidence = st_find(file, name);
    if (golden->dtype != ST_I32 || golden->n_dims != 1 || golden->dims[0] < 2 || golden->dims[0] > DI_MAX_DRAFT + 1 ||
        ids->dims[0] < 3 || confidence == NULL || confidence->dtype != ST_F32 || confidence->n_dims != 1 ||
        confidence->dims[0] != golden->dims[0] - 1) {
        return err_set(err, DI_E_FORMAT, "%s: tensors %s.draft_ids and %s do not fit each other", st_label(file), id, name);
    }
    return compare_drafts(r, ids, golden, confidence, out, err);
}

static di_status eval_logits(vf_runner *r, const char *path, vf_eval *out, di_error *err)
{
    static const char suffix[] = ".logits";
    st_file *file = NULL;
    di_status status = st_open(path, &file, err);
    for (size_t k = 0; status == DI_OK && k < st_count(file); k++) {
        const st_tensor *golden = st_at(file, k);
        const size_t n = strlen(golden->name);
        char id[64];
        char name[80];
        if (n < sizeof suffix || n >= sizeof id || strcmp(golden->name + n - strlen(suffix), suffix) != 0) {
            continue;
        }
        snprintf(id, sizeof id, "%.*s", (int)(n - strlen(suffix)), golden->name);
        snprintf(name, sizeof name, "%s.ids", id);
        const st_tensor *ids = st_find(file, name);
        if (ids == NULL || ids->dtype != ST_I32 || ids->n_dims != 1 || golden->dtype != ST_F32 || golden->n_dims != 2 ||
            golden->dims[1] != r->vocab || golden->dims[0] < 1 || golden->dims[0] >= ids->dims[0]) {
            status = err_set(err, DI_E_FORMAT, "%s: tensors %s and %s.ids do not fit the model", st_label(file), golden->name, id);
        } else {
            status = compare_logits(r, id, ids, golden, out, err);
        }
        if (status == DI_OK) {
            status = eval_drafts(r, file, id, ids, out, err);
        }
    }
    st_close(file);
    if (out->n_logits > 0) {
        out->mean_rel_rms /= (double)out->n_logits;
    }
    return status;
}

/* --- Both ------------------------------------------------------------------------------------------------------------- */

di_status vf_run_eval(const di_model *model, const vf_settings *settings, const char *dir, vf_progress_fn progress, vf_eval *out,
                      di_error *err)
{
    vf_runner runner;
    char *outputs = file_path_join(dir, "eval.jsonl");
    char *logits = file_path_join(dir, "reference_logits.safetensors");
    const int64_t begin = clock_now_ns();
    memset(out, 0, sizeof *out);
    di_status status = vf_runner_open(model, settings, false, &runner, err);
    if (status == DI_OK && (outputs == NULL || logits == NULL)) {
        status = err_memory(err, "path", strlen(dir));
    }
    if (status == DI_OK && !file_exists(outputs) && !file_exists(logits)) {
        status = err_set(err, DI_E_IO, "%s has neither eval.jsonl nor reference_logits.safetensors", dir);
    }
    if (status == DI_OK && file_exists(logits)) {
        status = eval_logits(&runner, logits, out, err);
    }
    if (status == DI_OK && file_exists(outputs)) {
        status = eval_outputs(&runner, outputs, progress, out, err);
    }
    if (runner.engine != NULL) {
        di_engine_stats stats;
        di_engine_get_stats(runner.engine, &stats);
        out->n_tokens = stats.n_tokens;
    }
    out->seconds = (double)(clock_now_ns() - begin) * 1e-9;
    vf_runner_close(&runner);
    free(outputs);
    free(logits);
    return status;
}

bool vf_eval_passed(const vf_eval *e)
{
    return (double)e->n_equal >= VF_EVAL_SHARE * (double)e->n_prompts && e->n_wide == 0 && e->n_argmax == 0 &&
           e->max_rel_rms <= VF_EVAL_REL_RMS && e->mean_rel_rms <= VF_EVAL_MEAN_REL_RMS &&
           e->n_drafts - e->n_drafts_equal <= VF_EVAL_DRAFT_PARTINGS && e->max_confidence <= VF_EVAL_REL_RMS;
}
