/* mdl_model.c - opening a checkpoint: configuration, shards, weights, tokenizer, Engram constants. Public API: <deepinfer/model.h>. */
#include "core/core.h"
#include "model/model_int.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static di_status open_tokenizer(const char *dir, di_tokenizer **out, di_error *err)
{
    char *path = file_path_join(dir, "tokenizer.json");
    if (path == NULL) {
        return err_memory(err, "path", strlen(dir));
    }
    di_status status = file_exists(path) ? di_tokenizer_open(path, out, err) : DI_OK;
    free(path);
    return status;
}

/* A prompt made with a tokenizer that does not fit the model would index past the embedding table. */
static di_status check_tokenizer(const di_model *m, di_error *err)
{
    if (m->tokenizer == NULL || di_tokenizer_vocab_size(m->tokenizer) <= m->config.vocab) {
        return DI_OK;
    }
    return err_set(err, DI_E_FORMAT, "tokenizer.json has %d ids, more than config.json: text_config.vocab_size %d",
                   di_tokenizer_vocab_size(m->tokenizer), m->config.vocab);
}

void di_model_options_default(di_model_options *out)
{
    *out = (di_model_options){.swiglu_limit = 0.0f};
}

di_status di_model_open(const char *dir, const di_model_options *options, di_model **out, di_error *err)
{
    di_model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return err_memory(err, "model", sizeof *m);
    }
    m->dir = strdup(dir);
    di_status status = m->dir != NULL ? mdl_config_read(dir, &m->config, err) : err_memory(err, "path", strlen(dir));
    if (status == DI_OK) {
        status = mdl_checkpoint_open(dir, &m->checkpoint, err);
    }
    if (status == DI_OK) {
        status = mdl_weights_bind(&m->config, m->checkpoint, &m->weights, err);
    }
    if (status == DI_OK) {
        status = open_tokenizer(dir, &m->tokenizer, err);
    }
    if (status == DI_OK) {
        status = check_tokenizer(m, err);
    }
    if (status == DI_OK) {
        status = mdl_engram_init(&m->config, dir, m->tokenizer, &m->engram, err);
    }
    if (status != DI_OK) {
        di_model_close(m);
        return status;
    }
    if (options != NULL && options->swiglu_limit > 0.0f) {
        m->config.swiglu_limit = options->swiglu_limit;
    }
    *out = m;
    return DI_OK;
}

void di_model_close(di_model *m)
{
    if (m == NULL) {
        return;
    }
    mdl_engram_fini(&m->engram);
    di_tokenizer_close(m->tokenizer);
    mdl_weights_free(&m->weights);
    mdl_checkpoint_close(m->checkpoint);
    free(m->dir);
    free(m->values);
    free(m);
}

const mdl_config *mdl_config_of(const di_model *model) { return &model->config; }
const di_tokenizer *di_model_tokenizer(const di_model *model) { return model->tokenizer; }

void di_model_get_info(const di_model *model, di_model_info *out)
{
    const mdl_config *c = &model->config;
    mdl_layout layout;
    mdl_layout_init(c, false, &layout);
    *out = (di_model_info){.vocab_size = c->vocab,
                           .hidden_size = c->hidden,
                           .n_layers = c->n_layers,
                           .n_draft_layers = c->draft.n_stages,
                           .n_vision_layers = c->vision.present ? c->vision.n_layers : 0,
                           .n_experts = c->n_experts,
                           .n_active_experts = c->n_active_experts,
                           .bos_token_id = c->bos_token_id,
                           .eos_token_id = c->eos_token_id,
                           .max_tokens = c->max_positions,
                           .n_tensors = (int64_t)mdl_checkpoint_count(model->checkpoint),
                           .weight_bytes = (int64_t)mdl_checkpoint_bytes(model->checkpoint),
                           .kv_bytes_per_token = mdl_layout_bytes_per_token(c),
                           .state_bytes = (int64_t)layout.state_bytes};
}

/* --- Where the demo model is ------------------------------------------------------------------------------------------- */

static bool holds_model(const char *dir)
{
    char *path = file_path_join(dir, "config.json");
    bool found = path != NULL && file_exists(path);
    free(path);
    return found;
}

/* models/demo in a folder above the program: finds it in the source tree (build/<preset>/deepinfer) and beside an unpacked archive. */
static bool beside_program(char *out, size_t capacity)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) {
        return false;
    }
    exe[n] = '\0';
    for (int up = 0; up < 4; up++) {
        char *slash = strrchr(exe, '/');
        if (slash == NULL) {
            return false;
        }
        *slash = '\0';
        int length = snprintf(out, capacity, "%s/models/demo", exe);
        if (length > 0 && (size_t)length < capacity && holds_model(out)) {
            return true;
        }
    }
    return false;
}

di_status di_model_default_path(char *path, size_t capacity, di_error *err)
{
    const char *named = getenv("DI_MODEL");
    if (named == NULL || named[0] == '\0') {
        if (beside_program(path, capacity)) {
            return DI_OK;
        }
        named = "/usr/share/deepinfer/demo";
        if (!holds_model(named)) {
            return err_set(err, DI_E_IO, "no model: give --model DIR or set DI_MODEL");
        }
    }
    int length = snprintf(path, capacity, "%s", named);
    if (length < 0 || (size_t)length >= capacity) {
        return err_set(err, DI_E_LIMIT, "the model's path has more than %zu bytes", capacity);
    }
    return DI_OK;
}
