/* recipe_options.c - see recipe_options.h. */
#include "recipe_options.h"

#include "open.h"
#include "tools.h"

#include "core/core.h"

#include <string.h>

void cli_add_recipe(cli_parser *p, cli_recipe_options *o)
{
    cli_add_string(p, "api", "NAME", &o->api, "chat, responses or messages: whose bodies these are");
    cli_add_string(p, "model", "DIR", &o->model, "checkpoint folder whose tokenizer counts (default: the demo model)");
    cli_add_string(p, "tokenizer", "FILE", &o->tokenizer, "a tokenizer.json instead of the model's");
    cli_add_list(p, "alias", "NAME=VERSION", &o->aliases, "a model name that requests may use; VERSION is v41 or v4");
    cli_add_flag(p, "thinking-off", &o->recipe.thinking_off, "requests that do not say want no thinking");
    cli_add_flag(p, "reject-missing-reasoning", &o->recipe.reject_missing_reasoning,
                 "refuse a turn after the last user message that comes without its reasoning");
    cli_add_flag(p, "reject-responses-web-search", &o->recipe.reject_responses_web_search, "refuse such tools instead of leaving them out");
    cli_add_flag(p, "drop-messages-web-search", &o->recipe.drop_messages_web_search, "leave such tools out instead of refusing them");
    cli_add_flag(p, "messages-any-forces-call", &o->recipe.messages_any_forces_call, "tool_choice \"any\" forces a call");
    cli_add_int(p, "max-tokens-bound", "N", &o->max_tokens_bound, 0, UINT32_MAX, "largest max_tokens of a request (393216)");
    cli_add_string(p, "image-token", "SPELLING", &o->recipe.image_token, "how the prompt spells an image (default: as the tokenizer)");
}

/* "NAME=v41"; *length is that of NAME. The name may hold '=' itself. */
static bool read_alias(const char *text, size_t *length, di_prompt_version *version)
{
    const char *equals = strrchr(text, '=');
    if (equals == NULL || equals == text) {
        return false;
    }
    *length = (size_t)(equals - text);
    *version = strcmp(equals + 1, "v4") == 0 ? DI_V4 : DI_V41;
    return strcmp(equals + 1, "v4") == 0 || strcmp(equals + 1, "v41") == 0;
}

int cli_check_recipe(const cli_parser *p, const cli_recipe_options *o, di_protocol *protocol)
{
    static const char *const names[] = {"chat", "responses", "messages"};
    static const di_protocol protocols[] = {DI_CHAT, DI_RESPONSES, DI_MESSAGES};
    size_t i = 0;
    while (o->api != NULL && i < 3 && strcmp(o->api, names[i]) != 0) {
        i++;
    }
    if (o->api == NULL || i == 3) {
        return cli_usage(p, "--api chat, --api responses or --api messages is needed%s%s", o->api != NULL ? ", not " : "",
                         o->api != NULL ? o->api : "");
    }
    *protocol = protocols[i];
    for (i = 0; i < o->aliases.n; i++) {
        size_t length;
        di_prompt_version version;
        if (!read_alias(o->aliases.items[i], &length, &version)) {
            return cli_usage(p, "--alias: '%s' is not NAME=v41 or NAME=v4", o->aliases.items[i]);
        }
    }
    return CLI_OK;
}

static di_status open_tokenizer(const cli_recipe_options *o, cli_recipe *out, di_error *err)
{
    const di_status status = cli_open_tokenizer(o->model, o->tokenizer, &out->tokenizer, err);
    const bool named = o->model != NULL || o->tokenizer != NULL;
    return status == DI_E_IO && !named ? DI_OK : status; /* text needs none */
}

di_status cli_open_recipe(const cli_recipe_options *o, cli_recipe *out, di_error *err)
{
    di_model_alias aliases[CLI_MAX_LIST];
    char *names[CLI_MAX_LIST] = {NULL};
    di_recipe_options options = o->recipe;
    memset(out, 0, sizeof *out);
    di_status status = open_tokenizer(o, out, err);
    for (size_t i = 0; status == DI_OK && i < o->aliases.n; i++) {
        size_t length = 0;
        (void)read_alias(o->aliases.items[i], &length, &aliases[i].version);
        names[i] = strndup(o->aliases.items[i], length);
        aliases[i].name = names[i];
        status = names[i] != NULL ? DI_OK : err_memory(err, "model name", length);
    }
    if (status == DI_OK) {
        options.max_tokens_bound = (uint32_t)o->max_tokens_bound;
        options.aliases = aliases;
        options.n_aliases = o->aliases.n;
        status = di_recipe_open(out->tokenizer, &options, &out->recipe, err);
    }
    for (size_t i = 0; i < o->aliases.n; i++) {
        free(names[i]);
    }
    if (status != DI_OK) {
        cli_close_recipe(out);
    }
    return status;
}

void cli_close_recipe(cli_recipe *recipe)
{
    di_recipe_close(recipe->recipe);
    di_tokenizer_close(recipe->tokenizer);
    memset(recipe, 0, sizeof *recipe);
}

di_status cli_request_ids(const di_request *request, int n_threads, int32_t **ids, size_t *n, di_error *err)
{
    di_status status = di_request_encode(request, n_threads, NULL, 0, n, err);
    if (status != DI_OK) {
        return status;
    }
    int32_t *out = ar_calloc(*n + 1, sizeof *out);
    if (out == NULL) {
        return err_memory(err, "token ids", *n * sizeof *out);
    }
    status = di_request_encode(request, n_threads, out, *n, n, err);
    if (status != DI_OK) {
        free(out);
        return status;
    }
    *ids = out;
    return DI_OK;
}
