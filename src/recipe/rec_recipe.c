/* rec_recipe.c - the recipe: what all requests share. Options are copied, control tokens are looked up once (recipe.md 1.1).
 *
 * Which of the tokens a tokenizer must have: those of both prompt versions. The system token is of V4.1 only and V4's file lacks
 * it; image and grounding tokens are missing in small text-only tokenizers. For those the id is -1: grounding spellings are then
 * plain text, and encoding a prompt that needs another is refused. Added tokens alone count: a spelling that happens to be a base
 * token is no control token. */
#include "recipe/rec_int.h"

#include "core/arith.h"

#define CHECKPOINT_IMAGE "<｜deepseek_image｜>"

static const char *const spellings[REC_N_MARKERS] = {
    [REC_BOS] = "<｜begin▁of▁sentence｜>",
    [REC_EOS] = "<｜end▁of▁sentence｜>",
    [REC_M_SYSTEM] = "<｜System｜>",
    [REC_M_USER] = "<｜User｜>",
    [REC_M_ASSISTANT] = "<｜Assistant｜>",
    [REC_THINK] = "<think>",
    [REC_END_THINK] = "</think>",
    [REC_DSML] = "｜DSML｜",
    [REC_M_REMINDER] = "<｜latest_reminder｜>",
    [REC_IMAGE] = "<｜image｜>",
    [REC_GROUND] = "<｜/polygon｜>",
    [REC_GROUND + 1] = "<｜polygon｜>",
    [REC_GROUND + 2] = "<｜/point｜>",
    [REC_GROUND + 3] = "<｜point｜>",
    [REC_GROUND + 4] = "<｜/box｜>",
    [REC_GROUND + 5] = "<｜box｜>",
    [REC_GROUND + 6] = "<｜/ref｜>",
    [REC_GROUND + 7] = "<｜ref｜>",
};

static int32_t find_added(const di_tokenizer *tokenizer, const char *spelling)
{
    const int32_t id = di_tokenizer_find(tokenizer, spelling, strlen(spelling));
    return id >= 0 && (di_tokenizer_flags(tokenizer, id) & DI_TOKEN_ADDED) != 0 ? id : -1;
}

static bool may_be_missing(int marker)
{
    return marker == REC_M_SYSTEM || marker >= REC_IMAGE;
}

static di_status look_up_markers(di_recipe *recipe, di_error *err)
{
    for (int i = 0; i < REC_N_MARKERS; i++) {
        const char *spelling = spellings[i];
        if (i == REC_IMAGE && recipe->options.image_token != NULL) {
            spelling = recipe->options.image_token;
        } else if (i == REC_IMAGE && recipe->tokenizer != NULL && find_added(recipe->tokenizer, CHECKPOINT_IMAGE) >= 0) {
            spelling = CHECKPOINT_IMAGE;
        }
        recipe->spelling[i] = (rec_str){spelling, strlen(spelling)};
        recipe->id[i] = recipe->tokenizer != NULL ? find_added(recipe->tokenizer, spelling) : -1;
        if (recipe->tokenizer != NULL && recipe->id[i] < 0 && !may_be_missing(i)) {
            return err_set(err, DI_E_UNSUPPORTED, "the tokenizer has no control token %s", spelling);
        }
    }
    return DI_OK;
}

static di_status copy_text(const char *text, const char *what, char **out, di_error *err)
{
    if (text == NULL || text[0] == '\0') {
        return err_set(err, DI_E_ARGUMENT, "%s is empty", what);
    }
    *out = strdup(text);
    return *out != NULL ? DI_OK : err_memory(err, what, strlen(text) + 1);
}

static di_status copy_aliases(di_recipe *recipe, const di_model_alias *aliases, size_t n, di_error *err)
{
    recipe->options.aliases = NULL;
    recipe->options.n_aliases = 0;
    if (n == 0) {
        return DI_OK;
    }
    di_model_alias *const copy = ar_calloc(n, sizeof *copy);
    if (copy == NULL) {
        return err_memory(err, "model names", n);
    }
    recipe->options.aliases = copy;
    for (size_t i = 0; i < n; i++) {
        char *name = NULL;
        const di_status status = copy_text(aliases[i].name, "a model name", &name, err);
        if (status != DI_OK) {
            return status;
        }
        copy[i] = (di_model_alias){.name = name, .version = aliases[i].version};
        recipe->options.n_aliases = i + 1;
    }
    return DI_OK;
}

static di_status copy_options(di_recipe *recipe, const di_recipe_options *options, di_error *err)
{
    const di_recipe_options asked = options != NULL ? *options : (di_recipe_options){.thinking_off = false};
    recipe->options = asked;
    recipe->options.image_token = NULL;
    if (asked.max_tokens_bound == 0) {
        recipe->options.max_tokens_bound = REC_DEFAULT_BOUND;
    }
    if (asked.max_request_bytes == 0) {
        recipe->options.max_request_bytes = REC_DEFAULT_MEMORY;
    }
    if (asked.max_messages == 0) {
        recipe->options.max_messages = REC_DEFAULT_MESSAGES;
    }
    di_status status = copy_aliases(recipe, asked.aliases, asked.n_aliases, err);
    if (status == DI_OK && asked.image_token != NULL) {
        char *spelling = NULL;
        status = copy_text(asked.image_token, "the image token's spelling", &spelling, err);
        recipe->options.image_token = spelling;
    }
    return status;
}

di_status di_recipe_open(const di_tokenizer *tokenizer, const di_recipe_options *options, di_recipe **out, di_error *err)
{
    di_recipe *const recipe = ar_calloc(1, sizeof *recipe);
    if (recipe == NULL) {
        return err_memory(err, "recipe", sizeof *recipe);
    }
    recipe->tokenizer = tokenizer;
    di_status status = copy_options(recipe, options, err);
    if (status == DI_OK) {
        status = look_up_markers(recipe, err);
    }
    if (status != DI_OK) {
        di_recipe_close(recipe);
        return status;
    }
    *out = recipe;
    return DI_OK;
}

void di_recipe_close(di_recipe *recipe)
{
    if (recipe == NULL) {
        return;
    }
    for (size_t i = 0; i < recipe->options.n_aliases; i++) {
        free((void *)(uintptr_t)recipe->options.aliases[i].name);
    }
    free((void *)(uintptr_t)recipe->options.aliases);
    free((void *)(uintptr_t)recipe->options.image_token);
    free(recipe);
}
