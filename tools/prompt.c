/* prompt.c - see prompt.h. The chat form is the one-turn case of the V4.1 prompt encoding (specification of the prompt encoding,
 * compared in the tests with the prompts of the demo model's evaluation set): BOS, user marker, text, assistant marker, and the
 * end-of-thinking marker that turns thinking off. Markers are put in as ids, so that user text cannot forge one. */
#include "prompt.h"

#include "tools.h"

#include "core/core.h"

#include <string.h>
#include <unistd.h>

#define MAX_TEXT_BYTES ((size_t)1 << 30)
#define N_AROUND 4 /* ids put around the text, at most */

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

static di_status marker(const di_tokenizer *tokenizer, const char *spelling, int32_t *id, di_error *err)
{
    *id = di_tokenizer_find(tokenizer, spelling, strlen(spelling));
    if (*id < 0) {
        return err_set(err, DI_E_UNSUPPORTED, "tokenizer.json has no token %s, which --chat needs", spelling);
    }
    return DI_OK;
}

/* Ids that go before and after the text. */
static di_status surroundings(const di_model *model, const cli_prompt_options *o, int32_t before[N_AROUND], size_t *n_before,
                              int32_t after[N_AROUND], size_t *n_after, di_error *err)
{
    di_model_info info;
    di_model_get_info(model, &info);
    *n_before = 0;
    *n_after = 0;
    if (o->bos || o->chat) {
        before[(*n_before)++] = info.bos_token_id;
    }
    if (!o->chat) {
        return DI_OK;
    }
    const di_tokenizer *tokenizer = di_model_tokenizer(model);
    di_status status = marker(tokenizer, "<｜User｜>", &before[(*n_before)++], err);
    if (status == DI_OK) {
        status = marker(tokenizer, "<｜Assistant｜>", &after[(*n_after)++], err);
    }
    if (status == DI_OK) {
        status = marker(tokenizer, "</think>", &after[(*n_after)++], err);
    }
    return status;
}

static di_status encode(const di_model *model, const cli_prompt_options *o, const char *text, size_t size, cli_prompt *out,
                        di_error *err)
{
    const di_tokenizer *tokenizer = di_model_tokenizer(model);
    const unsigned flags = o->special ? DI_ENCODE_SPECIAL : 0;
    int32_t before[N_AROUND];
    int32_t after[N_AROUND];
    size_t n_before;
    size_t n_after;
    if (tokenizer == NULL) {
        return err_set(err, DI_E_ARGUMENT, "the model has no tokenizer.json: give the prompt as --prompt-ids");
    }
    di_status status = surroundings(model, o, before, &n_before, after, &n_after, err);
    if (status != DI_OK) {
        return status;
    }
    size_t n;
    status = di_tokenizer_encode(tokenizer, text, size, flags, NULL, 0, &n, err);
    if (status != DI_OK) {
        return status;
    }
    int32_t *ids = ar_calloc(n + n_before + n_after, sizeof *ids);
    if (ids == NULL) {
        return err_memory(err, "prompt", n * sizeof *ids);
    }
    memcpy(ids, before, n_before * sizeof *ids);
    status = di_tokenizer_encode(tokenizer, text, size, flags, ids + n_before, n, &n, err);
    if (status != DI_OK) {
        free(ids);
        return status;
    }
    memcpy(ids + n_before + n, after, n_after * sizeof *ids);
    out->ids = ids;
    out->n = n_before + n + n_after;
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
