/* golden.c - see golden.h. Rules of the format are kept in the tables and small functions here; the rest of the tool sees
 * prompts, steps and tensors. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_MANIFEST_BYTES (64u << 20)
#define MAX_ROWS (1u << 20)

/* --- Folder ----------------------------------------------------------------------------------------------------------- */

di_status vf_golden_open(const char *dir, vf_golden *out, di_error *err)
{
    vf_golden g = {.dir = strdup(dir)};
    char *text = NULL;
    size_t size;
    char *path = file_path_join(dir, "manifest.json");
    di_status status = DI_OK;
    if (g.dir == NULL || path == NULL) {
        status = err_memory(err, "path", strlen(dir));
        goto out;
    }
    status = file_read(path, MAX_MANIFEST_BYTES, &text, &size, err);
    if (status == DI_OK) {
        status = js_parse(text, size, "golden/manifest.json", NULL, &g.manifest, err);
    }
    if (status != DI_OK) {
        goto out;
    }
    g.cases = js_get(js_root(g.manifest), "cases");
    g.checkpoint = js_string(js_get(js_root(g.manifest), "checkpoint"), NULL);
    if (js_kind_of(g.cases) != JS_ARRAY) {
        status = err_set(err, DI_E_FORMAT, "golden/manifest.json: \"cases\" is not an array");
        goto out;
    }
    *out = g;
    memset(&g, 0, sizeof g);
out:
    free(text);
    free(path);
    vf_golden_close(&g);
    return status;
}

void vf_golden_close(vf_golden *g)
{
    js_free(g->manifest);
    free(g->dir);
    memset(g, 0, sizeof *g);
}

const char *vf_case_name(const vf_golden *g, size_t i)
{
    return js_string(js_get(js_at(g->cases, i), "name"), NULL);
}

const char *vf_skip_reason(const vf_golden *g, size_t i)
{
    static const char *const run[] = {"prefill", "prefill+decode", "trace", "decode-trace", "chunked", "image", "dspark"};
    static const struct {
        const char *kind; /* what the kind starts with */
        const char *reason;
    } skipped[] = {
        {"decode, unpatched", "an index-key slot that only the unpatched official code has"},
        {"vision", "the image encoder is not part of this build"},
    };
    const char *kind = js_string(js_get(js_at(g->cases, i), "kind"), NULL);
    for (size_t k = 0; k < sizeof run / sizeof run[0]; k++) {
        if (strcmp(kind, run[k]) == 0) {
            return NULL;
        }
    }
    for (size_t k = 0; k < sizeof skipped / sizeof skipped[0]; k++) {
        if (strncmp(kind, skipped[k].kind, strlen(skipped[k].kind)) == 0) {
            return skipped[k].reason;
        }
    }
    return "unknown kind of case";
}

/* --- Tensors of a case ------------------------------------------------------------------------------------------------ */

static di_status open_file(const vf_golden *g, const js_value *entry, st_file **out, di_error *err)
{
    const char *name = js_string(js_get(entry, "file"), NULL);
    if (name[0] == '\0' || strchr(name, '/') != NULL) {
        return err_set(err, DI_E_FORMAT, "golden/manifest.json: case %s: \"file\" is not the name of a file",
                       js_string(js_get(entry, "name"), NULL));
    }
    char *path = file_path_join(g->dir, name);
    if (path == NULL) {
        return err_memory(err, "path", strlen(name));
    }
    const di_status status = st_open(path, out, err);
    free(path);
    return status;
}

/* Copy of a one-dimensional I32 tensor, or *n = 0 when it is absent. */
static di_status copy_ids(const st_file *file, const char *name, int32_t **out, size_t *n, di_error *err)
{
    const st_tensor *t = st_find(file, name);
    *n = 0;
    if (t == NULL) {
        return DI_OK;
    }
    if (t->dtype != ST_I32 || t->n_dims != 1 || t->dims[0] > (int64_t)MAX_ROWS) {
        return err_set(err, DI_E_FORMAT, "%s: tensor %s is not a list of I32", st_label(file), name);
    }
    *out = ar_calloc((size_t)t->dims[0], sizeof **out);
    if (*out == NULL) {
        return err_memory(err, name, t->size);
    }
    memcpy(*out, t->data, t->size);
    *n = (size_t)t->dims[0];
    return DI_OK;
}

/* The prompt: in the case's own file, else in that of the prompt case with the same seed. */
static di_status read_prompt(vf_case *c, di_error *err)
{
    di_status status = copy_ids(c->file, "ids", &c->ids, &c->n_ids, err);
    const js_value *seed = js_get(c->entry, "prompt_seed");
    for (size_t i = 0; status == DI_OK && c->n_ids == 0 && i < js_length(c->golden->cases); i++) {
        const js_value *other = js_at(c->golden->cases, i);
        const bool same = js_kind_of(seed) == JS_INT && js_int(js_get(other, "prompt_seed")) == js_int(seed) &&
                          js_kind_of(js_get(other, "override")) == JS_NULL &&
                          strncmp(js_string(js_get(other, "kind"), NULL), "prefill", 7) == 0;
        if (same) {
            st_file *file = NULL;
            status = open_file(c->golden, other, &file, err);
            if (status == DI_OK) {
                status = copy_ids(file, "ids", &c->ids, &c->n_ids, err);
            }
            st_close(file);
        }
    }
    if (status == DI_OK && c->n_ids == 0) {
        status = err_set(err, DI_E_FORMAT, "golden case %s: no ids, and no prompt case with its prompt_seed has any", c->name);
    }
    return status;
}

static di_status read_steps(vf_case *c, di_error *err)
{
    di_status status = copy_ids(c->file, "tokens", &c->steps, &c->n_steps, err);
    if (status == DI_OK && c->n_steps == 0) {
        status = copy_ids(c->file, "decode_next", &c->steps, &c->n_steps, err);
        if (c->n_steps > 0) {
            c->n_steps--; /* the last one is what the last step chose */
        }
    }
    return status;
}

static di_status read_chunks(vf_case *c, di_error *err)
{
    const js_value *list = js_get(c->entry, "chunks");
    const size_t n = js_length(list);
    size_t sum = 0;
    c->n_chunks = n > 0 ? n : 1;
    c->chunks = ar_calloc(c->n_chunks, sizeof *c->chunks);
    if (c->chunks == NULL) {
        return err_memory(err, "chunks", n * sizeof *c->chunks);
    }
    c->chunks[0] = c->n_ids;
    for (size_t i = 0; i < n; i++) {
        const int64_t tokens = js_int(js_at(list, i));
        if (tokens < 1 || tokens > (int64_t)c->n_ids) {
            return err_set(err, DI_E_FORMAT, "golden case %s: chunk of %lld tokens", c->name, (long long)tokens);
        }
        c->chunks[i] = (size_t)tokens;
        sum += (size_t)tokens;
    }
    if (n > 0 && sum != c->n_ids) {
        return err_set(err, DI_E_FORMAT, "golden case %s: chunks of %zu tokens, prompt of %zu", c->name, sum, c->n_ids);
    }
    return DI_OK;
}

/* Rows to use in place of embeddings, and where: every position of an image span (model.md 3.5.3). */
static di_status read_image(vf_case *c, di_error *err)
{
    int32_t *types = NULL;
    size_t n;
    di_status status = copy_ids(c->file, "token_types", &types, &n, err);
    if (status != DI_OK || n == 0) {
        return status;
    }
    const st_tensor *rows = st_find(c->file, "embed");
    if (rows == NULL || rows->dtype != ST_BF16 || rows->n_dims != 2 || rows->dims[0] != (int64_t)c->n_ids || n != c->n_ids) {
        status = err_set(err, DI_E_FORMAT, "%s: token_types and embed do not fit the ids", st_label(c->file));
        goto out;
    }
    c->in_image = ar_calloc(n, 1);
    c->embed = ar_calloc(rows->size, 1);
    if (c->in_image == NULL || c->embed == NULL) {
        status = err_memory(err, "image rows", rows->size);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        c->in_image[i] = types[i] >= 0;
    }
    memcpy(c->embed, rows->data, rows->size);
out:
    free(types);
    return status;
}

static bool read_tolerance(const js_value *numbers, vf_tolerance *out)
{
    if (js_kind_of(numbers) != JS_ARRAY || js_length(numbers) < 3) {
        return false;
    }
    out->max_abs = js_number(js_at(numbers, 0));
    out->rel_rms = js_number(js_at(numbers, 1));
    out->min_cos = js_number(js_at(numbers, 2));
    return true;
}

di_status vf_case_open(const vf_golden *g, size_t i, vf_case *out, di_error *err)
{
    vf_case c = {.golden = g, .entry = js_at(g->cases, i)};
    c.name = js_string(js_get(c.entry, "name"), NULL);
    c.kind = js_string(js_get(c.entry, "kind"), NULL);
    c.drafts = strcmp(c.kind, "dspark") == 0;
    c.swiglu_limit = js_number(js_get(js_get(c.entry, "override"), "swiglu_limit"));
    c.may_move = js_bool(js_get(c.entry, "selection_changes")) &&
                 read_tolerance(js_get(js_root(g->manifest), "logits_if_a_selection_changed"), &c.if_moved);
    di_status status = open_file(g, c.entry, &c.file, err);
    if (status == DI_OK) {
        status = read_prompt(&c, err);
    }
    if (status == DI_OK) {
        status = read_steps(&c, err);
    }
    if (status == DI_OK && c.drafts && c.n_steps > 0) {
        c.n_steps--; /* the last token is an anchor only */
    }
    if (status == DI_OK) {
        status = read_chunks(&c, err);
    }
    if (status == DI_OK) {
        status = read_image(&c, err);
    }
    if (status != DI_OK) {
        vf_case_close(&c);
        return status;
    }
    *out = c;
    return DI_OK;
}

void vf_case_close(vf_case *c)
{
    st_close(c->file);
    free(c->ids);
    free(c->in_image);
    free(c->embed);
    free(c->steps);
    free(c->chunks);
    memset(c, 0, sizeof *c);
}

di_status vf_case_tolerance(const vf_case *c, const char *tensor, vf_tolerance *out, di_error *err)
{
    if (!read_tolerance(js_get(js_get(c->entry, "tensors"), tensor), out)) {
        return err_set(err, DI_E_FORMAT, "golden/manifest.json: case %s: no tolerances for tensor %s", c->name, tensor);
    }
    return DI_OK;
}

bool vf_judges_exactness(const vf_case *c)
{
    const js_value *independent = js_get(c->entry, "independent");
    bool any = false;
    if (strcmp(js_string(js_get(c->entry, "variants_exact"), NULL), "7/7") != 0) {
        return false;
    }
    for (size_t i = 0; i < js_length(independent); i++) {
        const char *key;
        const js_value *difference = js_member(independent, i, &key);
        if (strstr(key, "logits") != NULL) {
            any = true;
            if (!(js_number(js_at(difference, 1)) <= 1e-5)) {
                return false;
            }
        }
    }
    return any;
}

/* --- Names and rows --------------------------------------------------------------------------------------------------- */

int vf_phase(const char *tensor, const char **name)
{
    static const char *const inputs[] = {"ids", "token_types", "tokens", "decode_next"};
    int step;
    int used = 0;
    *name = tensor;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        if (strcmp(tensor, inputs[i]) == 0) {
            return VF_INPUT;
        }
    }
    if (strncmp(tensor, "cache.", 6) == 0 || strcmp(tensor, "decode_logits") == 0) {
        return VF_END;
    }
    if (strcmp(tensor, "prefill_logits") == 0) {
        *name = "logits";
        return 0;
    }
    if (strncmp(tensor, "prefill.", 8) == 0) {
        *name = tensor + 8;
        return 0;
    }
    if ((sscanf(tensor, "decode%d.%n", &step, &used) == 1 || sscanf(tensor, "step%d.%n", &step, &used) == 1) && used > 0 &&
        step >= 0 && step < VF_END - 1) {
        *name = tensor + used;
        return step + 1;
    }
    return 0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text);
    const size_t m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Quantities that a trace case holds at the positions of its `rows` only. */
static bool is_sampled(const char *name)
{
    static const char *const sampled[] = {".x_out", ".attn_out", ".ffn_out", ".engram_out", ".hc_attn", ".hc_ffn"};
    for (size_t i = 0; i < sizeof sampled / sizeof sampled[0]; i++) {
        if (ends_with(name, sampled[i])) {
            return true;
        }
    }
    return false;
}

bool vf_rows(const vf_case *c, const st_tensor *t, const char *name, size_t n_phase, size_t *out)
{
    const size_t n = (size_t)t->dims[0];
    const js_value *rows = js_get(c->entry, "rows");
    if ((t->n_dims < 2 && !c->drafts) || n > n_phase) {
        return false;
    }
    const bool listed = n < n_phase && n == js_length(rows) && is_sampled(name);
    for (size_t r = 0; r < n; r++) {
        const int64_t row = listed ? js_int(js_at(rows, r)) : (int64_t)(n_phase - n + r);
        if (row < 0 || row >= (int64_t)n_phase) {
            return false;
        }
        out[r] = (size_t)row;
    }
    return true;
}
