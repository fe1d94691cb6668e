/* chat_tokens.c - routes that need no model: counting the tokens of a Messages body, tokenize, detokenize. Preparation threads. */
#include "chat/chat_fields.h"
#include "chat/chat_int.h"

static di_status staged(const di_call *c, di_error *err)
{
    return c->staged.failed ? err_memory(err, "response", c->staged.size) : DI_OK;
}

di_status chat_count_tokens(di_call *c, chat_scratch *scratch, di_error *err)
{
    size_t n_ids;
    di_status status = chat_read_request(c, DI_MESSAGES, c->body, c->n_body, &c->request, err);
    if (status == DI_OK) {
        status = chat_encode_request(c->request, scratch, &n_ids, err);
    }
    if (status == DI_OK) {
        buf_printf(&c->staged, "{\"input_tokens\":%zu}", n_ids);
        c->draft.usage.prompt_tokens = (int64_t)n_ids;
        status = staged(c, err);
    }
    return status;
}

/* --- tokenize ------------------------------------------------------------------------------------------------------------------------ */

/* Messages without a model are messages to this one: its name goes in front, where one of the body overrides it. */
static di_status encode_messages(di_call *c, chat_scratch *scratch, size_t *n_ids, di_error *err)
{
    const char *const name = c->service->model_name;
    const char *const open = memchr(c->body, '{', c->n_body); /* the body has been read as an object */
    buf body;
    buf_init(&body, SIZE_MAX);
    buf_puts(&body, "{\"model\":");
    buf_json_string(&body, name, strlen(name));
    buf_puts(&body, ",");
    buf_append(&body, open + 1, c->n_body - (size_t)(open + 1 - c->body));
    di_status status = body.failed ? err_memory(err, "conversation", body.size) : DI_OK;
    if (status == DI_OK) {
        status = chat_read_request(c, DI_CHAT, body.data, body.size, &c->request, err);
    }
    if (status == DI_OK) {
        status = chat_encode_request(c->request, scratch, n_ids, err);
    }
    buf_fini(&body);
    return status;
}

static di_status write_tokens(di_call *c, const int32_t *ids, size_t n, di_error *err)
{
    buf *const out = &c->staged;
    buf_printf(out, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[", n, (long long)c->service->context);
    for (size_t i = 0; i < n && !out->failed; i++) {
        buf_printf(out, i > 0 ? ",%d" : "%d", (int)ids[i]);
    }
    buf_puts(out, "]}");
    c->draft.usage.prompt_tokens = (int64_t)n;
    return staged(c, err);
}

/* The tokenizer of this model family adds nothing to a text, so add_special_tokens changes nothing; its type is checked. */
static di_status tokenize(di_call *c, const js_value *body, chat_scratch *scratch, di_error *err)
{
    const char *prompt = NULL;
    size_t n = 0;
    size_t n_ids = 0;
    bool unused;
    di_status status = chat_get_string(body, "prompt", &prompt, &n, err);
    if (status == DI_OK) {
        status = chat_get_bool(body, "add_special_tokens", &unused, err);
    }
    if (status != DI_OK) {
        return status;
    }
    if ((prompt != NULL) == chat_has(body, "messages")) {
        return err_set(err, DI_E_ARGUMENT, "give one of prompt and messages");
    }
    status = prompt != NULL ? chat_encode_text(c->service, prompt, n, scratch, &n_ids, err) : encode_messages(c, scratch, &n_ids, err);
    return status == DI_OK ? write_tokens(c, scratch->ids, n_ids, err) : status;
}

di_status chat_tokenize(di_call *c, chat_scratch *scratch, di_error *err)
{
    js_doc *doc = NULL;
    di_status status = chat_parse_body(c->body, c->n_body, &doc, err);
    if (status == DI_OK) {
        status = tokenize(c, js_root(doc), scratch, err);
        js_free(doc);
    }
    return status;
}

/* --- detokenize ---------------------------------------------------------------------------------------------------------------------- */

static di_status write_text(di_call *c, const int32_t *ids, size_t n, di_error *err)
{
    char *text;
    size_t n_text;
    di_status status = chat_decode_ids(c->service, ids, n, &text, &n_text, err);
    if (status == DI_OK) {
        buf_puts(&c->staged, "{\"prompt\":");
        buf_json_string(&c->staged, text, n_text);
        buf_puts(&c->staged, "}");
        status = staged(c, err);
        free(text);
    }
    return status;
}

static di_status detokenize(di_call *c, const js_value *body, chat_scratch *scratch, di_error *err)
{
    const js_value *const list = js_get(body, "tokens");
    if (js_kind_of(list) != JS_ARRAY) {
        return err_set(err, DI_E_ARGUMENT, "tokens: expected an array of token ids, not %s", js_kind_name(js_kind_of(list)));
    }
    const size_t n = js_length(list);
    di_status status = chat_scratch_reserve(scratch, n, err);
    if (status == DI_OK) {
        status = chat_read_ids(list, "tokens", di_tokenizer_vocab_size(c->service->tokenizer), scratch->ids, err);
    }
    return status == DI_OK ? write_text(c, scratch->ids, n, err) : status;
}

di_status chat_detokenize(di_call *c, chat_scratch *scratch, di_error *err)
{
    js_doc *doc = NULL;
    di_status status = chat_parse_body(c->body, c->n_body, &doc, err);
    if (status == DI_OK) {
        status = detokenize(c, js_root(doc), scratch, err);
        js_free(doc);
    }
    return status;
}
