/* rec_reply_responses.c - Responses: output items as events and as the response object (recipe.md 5.2).
 *
 * Each item has the ids that follow from the response's: msg_R_k, k its place in the output. Names of declared namespaces are split
 * again, calls of custom tools show their input as text, and a client's tool search shows its arguments as an object, when it is
 * whole. */
#include "recipe/rec_reply_int.h"

/* ---- items ---- */

static void put_item_id(const di_reply *r, const rec_reply_item *item, buf *out)
{
    static const char *const prefixes[] = {
        [REC_OUT_REASONING] = "rs_", [REC_OUT_TEXT] = "msg_", [REC_OUT_CALL] = "fc_",
        [REC_OUT_CUSTOM] = "ctc_",   [REC_OUT_SEARCH] = "tsc_",
    };
    /* Made of three strings; the id may hold anything, so that it is escaped as one of them. */
    buf_append(out, "\"", 1);
    buf_puts(out, prefixes[item->kind]);
    rec_put_inside(out, r->id);
    buf_append(out, "_", 1);
    rec_put_int(out, (int64_t)item->index);
    buf_append(out, "\"", 1);
}

static void put_part(const rec_reply_item *item, bool whole, buf *out)
{
    if (item->kind == REC_OUT_REASONING) {
        buf_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
    } else {
        buf_puts(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
        if (whole) {
            buf_append(out, item->logprobs.data, item->logprobs.size);
        }
        buf_puts(out, "],\"text\":");
    }
    if (whole) {
        rec_put_buf(out, &item->text);
    } else {
        buf_puts(out, "\"\"");
    }
    buf_puts(out, "}");
}

static void put_content(const rec_reply_item *item, bool whole, buf *out)
{
    buf_puts(out, ",\"content\":[");
    if (whole) {
        put_part(item, true, out);
    }
    buf_puts(out, "]");
}

static void put_name(const rec_reply_item *item, buf *out)
{
    buf_puts(out, ",\"name\":");
    if (item->tool == NULL || item->tool->space.size == 0) {
        rec_put_buf(out, &item->name);
        return;
    }
    rec_json_string(out, item->tool->member.data, item->tool->member.size);
    buf_puts(out, ",\"namespace\":");
    rec_json_string(out, item->tool->space.data, item->tool->space.size);
}

static void put_call(const rec_reply_item *item, bool whole, buf *out)
{
    buf_printf(out, ",\"call_id\":\"%s\"", item->call_id);
    if (item->kind == REC_OUT_SEARCH) {
        buf_puts(out, ",\"execution\":\"client\",\"arguments\":");
        if (whole) {
            rec_put_object(out, &item->text);
        } else {
            buf_puts(out, "{}");
        }
        return;
    }
    put_name(item, out);
    buf_puts(out, item->kind == REC_OUT_CUSTOM ? ",\"input\":" : ",\"arguments\":");
    if (whole) {
        rec_put_buf(out, &item->text);
    } else {
        buf_puts(out, "\"\"");
    }
}

static void put_item(const di_reply *r, const rec_reply_item *item, const char *status, buf *out)
{
    static const char *const types[] = {
        [REC_OUT_REASONING] = "reasoning",      [REC_OUT_TEXT] = "message",            [REC_OUT_CALL] = "function_call",
        [REC_OUT_CUSTOM] = "custom_tool_call", [REC_OUT_SEARCH] = "tool_search_call",
    };
    const bool whole = status == NULL;
    const char *const settled = item->incomplete ? "incomplete" : "completed";
    buf_printf(out, "{\"type\":\"%s\",\"id\":", types[item->kind]);
    put_item_id(r, item, out);
    buf_printf(out, ",\"status\":\"%s\"", whole ? settled : status);
    if (item->kind == REC_OUT_TEXT) {
        buf_printf(out, ",\"role\":\"assistant\",\"phase\":\"%s\"", item->commentary ? "commentary" : "final_answer");
        put_content(item, whole, out);
    } else if (item->kind == REC_OUT_REASONING) {
        put_content(item, whole, out);
        buf_puts(out, ",\"summary\":[],\"encrypted_content\":\"");
        rec_put_inside(out, r->id);
        buf_puts(out, "-");
        rec_put_int(out, (int64_t)item->index);
        buf_puts(out, "\"");
    } else {
        put_call(item, whole, out);
    }
    buf_puts(out, "}");
}

/* ---- the response object ---- */

static void put_usage(const di_reply *r, buf *out)
{
    di_usage u;
    di_reply_usage(r, &u);
    buf_puts(out, "{\"input_tokens\":");
    rec_put_int(out, u.prompt_tokens);
    buf_puts(out, ",\"input_tokens_details\":{\"cached_tokens\":");
    rec_put_int(out, u.cached_tokens);
    buf_puts(out, "},\"output_tokens\":");
    rec_put_int(out, u.completion_tokens);
    buf_puts(out, ",\"output_tokens_details\":{\"reasoning_tokens\":");
    rec_put_int(out, r->thinking && r->recipe->tokenizer != NULL ? u.reasoning_tokens : 0);
    buf_puts(out, "},\"total_tokens\":");
    rec_put_int(out, u.prompt_tokens + u.completion_tokens);
    buf_puts(out, "}");
}

static void put_output(const di_reply *r, buf *out)
{
    const rec_reply_choice *const c = &r->choices[0];
    for (size_t i = 0; i < c->n_items; i++) {
        buf_puts(out, i != 0 ? "," : "");
        put_item(r, &c->items[i], NULL, out);
    }
}

/* What differs between the events that carry the response. */
typedef struct state {
    const char *status;
    const char *incomplete; /* reason, or NULL */
    const char *code;       /* of the error, or NULL */
    const char *message;
} state;

static void put_outcome(const state *s, buf *out)
{
    buf_puts(out, ",\"content_filters\":null,\"error\":");
    if (s->code != NULL) {
        buf_printf(out, "{\"code\":\"%s\",\"message\":", s->code);
        rec_put_any(out, s->message);
        buf_puts(out, "}");
    } else {
        buf_puts(out, "null");
    }
    buf_puts(out, ",\"frequency_penalty\":0.0,\"incomplete_details\":");
    if (s->incomplete != NULL) {
        buf_printf(out, "{\"reason\":\"%s\"}", s->incomplete);
    } else {
        buf_puts(out, "null");
    }
}

static void put_response(const di_reply *r, const state *s, buf *out)
{
    const bool ended = strcmp(s->status, "in_progress") != 0;
    buf_puts(out, "{\"id\":");
    rec_put_any(out, r->id);
    buf_puts(out, ",\"object\":\"response\",\"created_at\":");
    rec_put_int(out, r->created);
    buf_printf(out, ",\"status\":\"%s\",\"background\":false,\"completed_at\":", s->status);
    if (ended && s->code == NULL) {
        rec_put_int(out, r->now);
    } else {
        buf_puts(out, "null");
    }
    put_outcome(s, out);
    buf_puts(out, ",");
    rec_echo_front(r, out);
    buf_puts(out, ",\"output\":[");
    if (ended) {
        put_output(r, out);
    }
    buf_puts(out, "],");
    rec_echo_back(r, out);
    buf_puts(out, ",\"usage\":");
    if (ended) {
        put_usage(r, out);
    } else {
        buf_puts(out, "null");
    }
    buf_puts(out, ",\"user\":");
    rec_echo_user(r, out);
    buf_puts(out, ",\"metadata\":{}}");
}

static state final_state(const rec_reply_choice *c)
{
    switch (c->finish) {
    case DI_FINISH_LENGTH:
        return (state){.status = "incomplete", .incomplete = "max_output_tokens"};
    case DI_FINISH_FILTER:
        return (state){.status = "incomplete", .incomplete = "content_filter"};
    default:
        return (state){.status = "completed"};
    }
}

/* ---- events ---- */

static buf *begin(di_reply *r, const char *name)
{
    buf *const out = rec_event_begin(r, name);
    buf_printf(out, "{\"type\":\"%s\"", name);
    return out;
}

static void end(di_reply *r, const char *name)
{
    buf *const out = &r->queue.frames;
    buf_puts(out, ",\"sequence_number\":");
    rec_put_int(out, r->sequence++);
    buf_puts(out, "}");
    rec_event_end(r, name);
}

static void response_event(di_reply *r, const char *name, const state *s)
{
    buf *const out = begin(r, name);
    buf_puts(out, ",\"response\":");
    put_response(r, s, out);
    end(r, name);
}

static void start(di_reply *r)
{
    const state running = {.status = "in_progress"};
    response_event(r, "response.created", &running);
    response_event(r, "response.in_progress", &running);
}

static void item_event(di_reply *r, const rec_reply_item *item, const char *name, const char *status)
{
    buf *const out = begin(r, name);
    buf_puts(out, ",\"item\":");
    put_item(r, item, status, out);
    buf_puts(out, ",\"output_index\":");
    rec_put_int(out, (int64_t)item->index);
    end(r, name);
}

/* "item_id":..., "output_index":..., which most events of an item have. */
static void put_place(const di_reply *r, const rec_reply_item *item, buf *out)
{
    buf_puts(out, ",\"item_id\":");
    put_item_id(r, item, out);
    buf_puts(out, ",\"output_index\":");
    rec_put_int(out, (int64_t)item->index);
}

static void part_event(di_reply *r, const rec_reply_item *item, const char *name, bool whole)
{
    buf *const out = begin(r, name);
    buf_puts(out, ",\"content_index\":0");
    put_place(r, item, out);
    buf_puts(out, ",\"part\":");
    put_part(item, whole, out);
    end(r, name);
}

static bool is_call(const rec_reply_item *item)
{
    return item->kind >= REC_OUT_CALL;
}

static void prepare(const di_reply *r, rec_delta *d, const rec_reply_item *item)
{
    static const char *const names[] = {
        [REC_OUT_REASONING] = "response.reasoning_text.delta",
        [REC_OUT_TEXT] = "response.output_text.delta",
        [REC_OUT_CALL] = "response.function_call_arguments.delta",
        [REC_OUT_CUSTOM] = "response.custom_tool_call_input.delta",
    };
    rec_delta_begin(d, names[item->kind]);
    buf_printf(&d->head, "{\"type\":\"%s\"", names[item->kind]);
    buf_puts(&d->head, is_call(item) ? ",\"delta\":" : ",\"content_index\":0,\"delta\":");
    buf_puts(&d->tail, ",\"item_id\":");
    put_item_id(r, item, &d->tail);
    if (item->kind == REC_OUT_TEXT) {
        buf_puts(&d->tail, ",\"logprobs\":");
        d->logprobs_at = d->tail.size;
        d->no_logprobs = 2;
        d->around[0] = "[";
        d->around[1] = "]";
        buf_puts(&d->tail, "[]");
    }
    buf_puts(&d->tail, ",\"output_index\":");
    rec_put_int(&d->tail, (int64_t)item->index);
    buf_puts(&d->tail, ",\"sequence_number\":");
    d->numbered = true;
}

static void open_item(di_reply *r, rec_reply_choice *c)
{
    const rec_reply_item *const item = rec_last_item(c);
    item_event(r, item, "response.output_item.added", "in_progress");
    if (!is_call(item)) {
        part_event(r, item, "response.content_part.added", false);
    }
    if (item->kind != REC_OUT_SEARCH) {
        prepare(r, &c->delta, item);
    }
}

static void text_done(di_reply *r, const rec_reply_item *item)
{
    const bool text = item->kind == REC_OUT_TEXT;
    const char *const name = text ? "response.output_text.done" : "response.reasoning_text.done";
    buf *const out = begin(r, name);
    buf_puts(out, ",\"content_index\":0,\"item_id\":");
    put_item_id(r, item, out);
    if (text) {
        buf_puts(out, ",\"logprobs\":[");
        buf_append(out, item->logprobs.data, item->logprobs.size);
        buf_puts(out, "]");
    }
    buf_puts(out, ",\"output_index\":");
    rec_put_int(out, (int64_t)item->index);
    buf_puts(out, ",\"sequence_number\":");
    rec_put_int(out, r->sequence++);
    buf_puts(out, ",\"text\":");
    rec_put_buf(out, &item->text);
    buf_puts(out, "}");
    rec_event_end(r, name);
    part_event(r, item, "response.content_part.done", true);
}

static void call_done(di_reply *r, const rec_reply_item *item)
{
    const bool custom = item->kind == REC_OUT_CUSTOM;
    const char *const name = custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done";
    buf *const out = begin(r, name);
    buf_puts(out, custom ? ",\"input\":" : ",\"arguments\":");
    rec_put_buf(out, &item->text);
    put_place(r, item, out);
    end(r, name);
}

static void close_item(di_reply *r, rec_reply_choice *c)
{
    const rec_reply_item *const item = rec_last_item(c);
    if (!is_call(item)) {
        text_done(r, item);
    } else if (item->kind != REC_OUT_SEARCH) {
        call_done(r, item);
    }
    item_event(r, item, "response.output_item.done", NULL);
}

static void finish(di_reply *r, rec_reply_choice *c)
{
    const state s = final_state(c);
    response_event(r, s.incomplete != NULL ? "response.incomplete" : "response.completed", &s);
}

/* An open item is shown as far as it came. Clients know a response only from its first event. */
static void fail(di_reply *r, int http_status, const char *message)
{
    if (!r->started) {
        start(r);
    }
    const char *const code = http_status == 429 ? "rate_limit_exceeded" : http_status < 500 ? "invalid_prompt" : "server_error";
    const state s = {.status = "failed", .code = code, .message = message};
    if (r->choices[0].open) {
        rec_last_item(&r->choices[0])->incomplete = true;
    }
    response_event(r, "response.failed", &s);
}

static void body(di_reply *r, buf *out)
{
    const state s = final_state(&r->choices[0]);
    put_response(r, &s, out);
}

const rec_writer rec_responses_writer = {
    .start = start,
    .open = open_item,
    .close = close_item,
    .finish = finish,
    .fail = fail,
    .body = body,
};
