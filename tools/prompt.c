/* prompt.c - see prompt.h. */
#include "prompt.h"

#include "recipe_options.h"
#include "tools.h"

#include "core/core.h"

#include <string.h>
#include <unistd.h>

#define MAX_TEXT_BYTES ((size_t)1 << 30)

void cli_add_prompt(cli_parser *p, cli_prompt_options *o)
{
    cli_add_string(p, "prompt", "TEXT", &o->text, "the prompt");
    cli_add_string(p, "prompt-file", "FILE", &o->file, "read the prompt from FILE; - is standard input");
    cli_add_string(p, "prompt-ids", "IDS", &o->ids, "the prompt as token ids: 1,2,3 or @FILE");
    cli_add_flag(p, "special", &o->special, "recognise special tokens (role markers ...) written in the text");
    cli_add_flag(p, "bos", &o->bos, "put the begin-of-sequence token in front");
    cli_add_flag(p, "chat", &o->chat, "the text is one user message; ask for an answer without thinking");
}

int cli_check_prompt(const cli_parser *p, const cli_prompt_options *o)
{
    const int sources = (o->text != NULL) + (o->file != NULL) + (o->ids != NULL);
    if (sources > 1) {
        return cli_usage(p, "give one of --prompt, --prompt-file and --prompt-ids");
    }
    if (sources == 0 && isatty(STDIN_FILENO)) {
        return cli_usage(p, "no prompt: give --prompt TEXT, --prompt-file FILE or --prompt-ids IDS, or pipe text in");
    }
    if (o->chat && o->special) {
        return cli_usage(p, "--chat takes no --special: a message is text");
    }
    if (o->ids != NULL && (o->chat || o->special)) {
        return cli_usage(p, "--prompt-ids takes neither --chat nor --special: ids are used as they are");
    }
    return CLI_OK;
}

/* Text of the chosen source. *owned is what the caller frees. */
static di_status read_text(const cli_prompt_options *o, const char **text, size_t *size, char **owned, di_error *err)
{
    di_status status = DI_OK;
    if (o->text != NULL) {
        *text = o->text;
        *size = strlen(o->text);
        return DI_OK;
    }
    if (o->file != NULL && strcmp(o->file, "-") != 0) {
        status = file_read(o->file, MAX_TEXT_BYTES, owned, size, err);
    } else {
        status = file_read_stream(STDIN_FILENO, "standard input", MAX_TEXT_BYTES, owned, size, err);
    }
    *text = *owned;
    if (status == DI_OK && o->chat && *size > 0 && (*text)[*size - 1] == '\n') {
        *size -= 1; /* a message typed into a pipe ends with a newline that nobody meant */
    }
    return status;
}

/* One user message through the recipe, thinking off. */
static di_status encode_message(const di_tokenizer *tokenizer, const char *text, size_t size, cli_prompt *out, di_error *err)
{
    di_recipe *recipe = NULL;
    di_request *request = NULL;
    buf body;
    buf_init(&body, SIZE_MAX);
    buf_puts(&body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"thinking\":{\"type\":\"disabled\"},"
                    "\"messages\":[{\"role\":\"user\",\"content\":");
    buf_json_string(&body, text, size);
    buf_puts(&body, "}]}");
    di_status status = body.failed ? err_memory(err, "prompt", body.size) : di_recipe_open(tokenizer, NULL, &recipe, err);
    if (status == DI_OK) {
        status = di_request_read(recipe, DI_CHAT, body.data, body.size, &request, err);
    }
    if (status == DI_OK) {
        status = cli_request_ids(request, 0, &out->ids, &out->n, err);
    }
    di_request_free(request);
    di_recipe_close(recipe);
    buf_fini(&body);
    return status;
}

static di_status encode(const di_model *model, const cli_prompt_options *o, const char *text, size_t size, cli_prompt *out,
                        di_error *err)
{
    const di_tokenizer *tokenizer = di_model_tokenizer(model);
    const unsigned flags = o->special ? DI_ENCODE_SPECIAL : 0;
    const size_t n_before = o->bos ? 1 : 0;
    size_t n;
    if (tokenizer == NULL) {
        return err_set(err, DI_E_ARGUMENT, "the model has no tokenizer.json: give the prompt as --prompt-ids");
    }
    if (o->chat) {
        return encode_message(tokenizer, text, size, out, err);
    }
    di_status status = di_tokenizer_encode(tokenizer, text, size, flags, NULL, 0, &n, err);
    if (status != DI_OK) {
        return status;
    }
    int32_t *ids = ar_calloc(n + n_before, sizeof *ids);
    if (ids == NULL) {
        return err_memory(err, "prompt", n * sizeof *ids);
    }
    if (o->bos) {
        di_model_info info;
        di_model_get_info(model, &info);
        ids[0] = info.bos_token_id;
    }
    status = di_tokenizer_encode(tokenizer, text, size, flags, ids + n_before, n, &n, err);
    if (status != DI_OK) {
        free(ids);
        return status;
    }
    out->ids = ids;
    out->n = n_before + n;
    return DI_OK;
}

static di_status read_ids(const di_model *model, const cli_prompt_options *o, cli_prompt *out, di_error *err)
{
    int32_t *ids = NULL;
    size_t n;
    di_status status = cli_read_ids(o->ids, &ids, &n, err);
    if (status != DI_OK || !o->bos) {
        out->ids = ids;
        out->n = status == DI_OK ? n : 0;
        return status;
    }
    int32_t *longer = ar_calloc(n + 1, sizeof *longer);
    if (longer == NULL) {
        free(ids);
        return err_memory(err, "prompt", n * sizeof *ids);
    }
    di_model_info info;
    di_model_get_info(model, &info);
    longer[0] = info.bos_token_id;
    memcpy(longer + 1, ids, n * sizeof *ids);
    free(ids);
    out->ids = longer;
    out->n = n + 1;
    return DI_OK;
}

di_status cli_read_prompt(const di_model *model, const cli_prompt_options *o, cli_prompt *out, di_error *err)
{
    const char *text = NULL;
    char *owned = NULL;
    size_t size = 0;
    cli_prompt prompt = {NULL, 0};
    di_status status = DI_OK;
    if (o->ids != NULL) {
        status = read_ids(model, o, &prompt, err);
    } else {
        status = read_text(o, &text, &size, &owned, err);
        if (status == DI_OK) {
            status = encode(model, o, text, size, &prompt, err);
        }
    }
    free(owned);
    if (status == DI_OK && prompt.n == 0) {
        status = err_set(err, DI_E_ARGUMENT, "the prompt is empty: it needs at least one token (--bos gives one)");
    }
    if (status != DI_OK) {
        cli_prompt_fini(&prompt);
        return status;
    }
    *out = prompt;
    return DI_OK;
}

void cli_prompt_fini(cli_prompt *prompt)
{
    free(prompt->ids);
    prompt->ids = NULL;
    prompt->n = 0;
}
