/* rec_reply_chat.c - Chat Completions: chunks and the whole completion (recipe.md 5.1).
 *
 * Every chunk shows one choice. Usage, when it is shown, stands in every chunk: null, but in the last one, which is the finish of
 * the choice that ends last. Items leave no trace at their end. */
#include "recipe/rec_reply_int.h"

static const char *finish_reason(di_finish finish)
{
    switch (finish) {
    case DI_FINISH_LENGTH:
        return "length";
    case DI_FINISH_FILTER:
        return "content_filter";
    case DI_FINISH_TOOL_CALLS:
        return "tool_calls";
    default:
        return "stop";
    }
}

static void put_usage(const di_reply *r, buf *out)
{
    di_usage u;
    di_reply_usage(r, &u);
    buf_puts(out, "{\"prompt_tokens\":");
    rec_put_int(out, u.prompt_tokens);
    buf_puts(out, ",\"completion_tokens\":");
    rec_put_int(out, u.completion_tokens);
    buf_puts(out, ",\"total_tokens\":");
    rec_put_int(out, u.prompt_tokens + u.completion_tokens);
    buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    rec_put_int(out, u.cached_tokens);
    buf_puts(out, "}");
    if (r->thinking && r->recipe->tokenizer != NULL) {
        buf_puts(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":");
        rec_put_int(out, u.reasoning_tokens);
        buf_puts(out, "}");
    }
    buf_puts(out, ",\"prompt_cache_hit_tokens\":");
    rec_put_int(out, u.cached_tokens);
    buf_puts(out, ",\"prompt_cache_miss_tokens\":");
    rec_put_int(out, rec_fresh_tokens(r));
    buf_puts(out, "}");
}

static void put_fingerprint(const di_reply *r, buf *out)
{
    if (r->fingerprint != NULL) {
        rec_put_any(out, r->fingerprint);
    } else {
        buf_puts(out, "null");
    }
}

/* ---- chunks ---- */

/* Up to the value of "delta". */
static void put_head(const di_reply *r, const rec_reply_choice *c, buf *out)
{
    buf_puts(out, "{\"id\":");
    rec_put_any(out, r->id);
    buf_puts(out, ",\"object\":\"chat.completion.chunk\",\"created\":");
    rec_put_int(out, r->created);
    buf_puts(out, ",\"model\":");
    rec_put_any(out, r->model);
    buf_puts(out, ",\"system_fingerprint\":");
    put_fingerprint(r, out);
    buf_puts(out, ",\"choices\":[{\"index\":");
    rec_put_int(out, c->index);
    buf_puts(out, ",\"delta\":");
}

/* Behind the value of "logprobs" of a chunk that is not the last. */
static void put_rest(const di_reply *r, buf *out)
{
    buf_puts(out, ",\"finish_reason\":null}]");
    buf_puts(out, r->usage ? ",\"usage\":null}" : "}");
}

static void start(di_reply *r)
{
    for (int32_t i = 0; i < r->n_choices; i++) {
        buf *const out = rec_event_begin(r, NULL);
        put_head(r, &r->choices[i], out);
        buf_puts(out, r->thinking ? "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"\"}"
                                  : "{\"role\":\"assistant\",\"content\":\"\"}");
        buf_puts(out, ",\"logprobs\":null");
        put_rest(r, out);
        rec_event_end(r, NULL);
    }
}

static bool is_call(const rec_reply_item *item)
{
    return item->kind >= REC_OUT_CALL;
}

/* With empty arguments in a stream. */
static void put_call(const rec_reply_item *item, bool whole, buf *out)
{
    buf_puts(out, "{\"index\":");
    rec_put_int(out, item->call);
    buf_printf(out, ",\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", item->call_id);
    rec_put_buf(out, &item->name);
    buf_puts(out, ",\"arguments\":");
    if (whole) {
        rec_put_buf(out, &item->text);
    } else {
        buf_puts(out, "\"\"");
    }
    buf_puts(out, "}}");
}

/* Frame of the texts of an item. `before` and `behind` stand around the text inside the delta. */
static void prepare(const di_reply *r, rec_reply_choice *c, const char *before, const char *behind)
{
    rec_delta *const d = &c->delta;
    buf_puts(&d->head, before);
    buf_puts(&d->tail, behind);
    buf_puts(&d->tail, ",\"logprobs\":");
    d->logprobs_at = d->tail.size;
    d->no_logprobs = 4;
    d->around[1] = "]}";
    buf_puts(&d->tail, "null");
    put_rest(r, &d->tail);
}

static void open_call(di_reply *r, rec_reply_choice *c)
{
    const rec_reply_item *const item = rec_last_item(c);
    buf *const out = rec_event_begin(r, NULL);
    put_head(r, c, out);
    buf_puts(out, "{\"tool_calls\":[");
    put_call(item, false, out);
    buf_puts(out, "]},\"logprobs\":null");
    put_rest(r, out);
    rec_event_end(r, NULL);
    buf_puts(&c->delta.head, "{\"tool_calls\":[{\"index\":");
    rec_put_int(&c->delta.head, item->call);
    prepare(r, c, ",\"function\":{\"arguments\":", "}}]}");
}

static void open_item(di_reply *r, rec_reply_choice *c)
{
    const rec_reply_item *const item = rec_last_item(c);
    rec_delta_begin(&c->delta, NULL);
    put_head(r, c, &c->delta.head);
    if (is_call(item)) {
        open_call(r, c);
    } else if (item->kind == REC_OUT_REASONING) {
        c->delta.around[0] = "{\"reasoning_content\":[";
        prepare(r, c, "{\"content\":null,\"reasoning_content\":", "}");
    } else {
        c->delta.around[0] = "{\"content\":[";
        prepare(r, c, "{\"content\":", r->thinking ? ",\"reasoning_content\":null}" : "}");
    }
}

static void close_item(di_reply *r, rec_reply_choice *c)
{
    (void)r;
    (void)c;
}

static void finish(di_reply *r, rec_reply_choice *c)
{
    const bool last = r->n_finished == r->n_choices;
    buf *const out = rec_event_begin(r, NULL);
    put_head(r, c, out);
    buf_puts(out, r->thinking ? "{\"content\":\"\",\"reasoning_content\":null}" : "{\"content\":\"\"}");
    buf_printf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}]", finish_reason(c->finish));
    if (last) {
        buf_puts(out, ",\"usage\":");
        put_usage(r, out);
        buf_puts(out, "}");
    } else {
        buf_puts(out, r->usage ? ",\"usage\":null}" : "}");
    }
    rec_event_end(r, NULL);
    if (last) {
        buf_puts(rec_event_begin(r, NULL), "[DONE]");
        rec_event_end(r, NULL);
    }
}

/* No [DONE] behind it. */
static void fail(di_reply *r, int http_status, const char *message)
{
    buf *const out = rec_event_begin(r, NULL);
    rec_put_error(r->protocol, http_status, message, out);
    rec_event_end(r, NULL);
}

/* ---- the whole completion ---- */

/* Texts of all items of a kind as one JSON string: the parser gives one run of each at most. */
static void put_runs(const rec_reply_choice *c, rec_item_kind kind, buf *out)
{
    for (size_t i = 0; i < c->n_items; i++) {
        if (c->items[i].kind == kind) {
            rec_put_buf(out, &c->items[i].text);
            return;
        }
    }
    buf_puts(out, "\"\"");
}

static void put_calls(const rec_reply_choice *c, buf *out)
{
    buf_puts(out, ",\"tool_calls\":[");
    bool first = true;
    for (size_t i = 0; i < c->n_items; i++) {
        if (is_call(&c->items[i])) {
            buf_puts(out, first ? "" : ",");
            put_call(&c->items[i], true, out);
            first = false;
        }
    }
    buf_puts(out, "]");
}

static const buf *logprobs_of(const rec_reply_choice *c, rec_item_kind kind)
{
    for (size_t i = 0; i < c->n_items; i++) {
        if (c->items[i].kind == kind && c->items[i].logprobs.size != 0) {
            return &c->items[i].logprobs;
        }
    }
    return NULL;
}

static void put_logprobs(const rec_reply_choice *c, buf *out)
{
    const buf *const text = logprobs_of(c, REC_OUT_TEXT);
    const buf *const reasoning = logprobs_of(c, REC_OUT_REASONING);
    if (text == NULL && reasoning == NULL) {
        buf_puts(out, "null");
        return;
    }
    buf_puts(out, "{");
    if (text != NULL) {
        buf_puts(out, "\"content\":[");
        buf_append(out, text->data, text->size);
        buf_puts(out, reasoning != NULL ? "]," : "]");
    }
    if (reasoning != NULL) {
        buf_puts(out, "\"reasoning_content\":[");
        buf_append(out, reasoning->data, reasoning->size);
        buf_puts(out, "]");
    }
    buf_puts(out, "}");
}

static void put_choice(const di_reply *r, const rec_reply_choice *c, buf *out)
{
    buf_puts(out, "{\"index\":");
    rec_put_int(out, c->index);
    buf_puts(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    put_runs(c, REC_OUT_TEXT, out);
    if (r->thinking) {
        buf_puts(out, ",\"reasoning_content\":");
        put_runs(c, REC_OUT_REASONING, out);
    }
    if (c->n_calls != 0) {
        put_calls(c, out);
    }
    buf_puts(out, "},\"logprobs\":");
    put_logprobs(c, out);
    buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c->finish));
}

static void body(di_reply *r, buf *out)
{
    buf_puts(out, "{\"id\":");
    rec_put_any(out, r->id);
    buf_puts(out, ",\"object\":\"chat.completion\",\"created\":");
    rec_put_int(out, r->created);
    buf_puts(out, ",\"model\":");
    rec_put_any(out, r->model);
    buf_puts(out, ",\"choices\":[");
    for (int32_t i = 0; i < r->n_choices; i++) {
        buf_puts(out, i != 0 ? "," : "");
        put_choice(r, &r->choices[i], out);
    }
    buf_puts(out, "],\"usage\":");
    put_usage(r, out);
    buf_puts(out, ",\"system_fingerprint\":");
    put_fingerprint(r, out);
    buf_puts(out, "}");
}

const rec_writer rec_chat_writer = {
    .start = start,
    .open = open_item,
    .close = close_item,
    .finish = finish,
    .fail = fail,
    .body = body,
};
