/* rec_reply_messages.c - Messages: content blocks as events and as a message (recipe.md 5.3).
 *
 * With thinking on there is always a thinking block, empty or not. Its signature is the response's id: nothing here signs, but
 * clients send a block back only with one. */
#include "recipe/rec_reply_int.h"

static const char *stop_reason(di_finish finish)
{
    switch (finish) {
    case DI_FINISH_LENGTH:
        return "max_tokens";
    case DI_FINISH_FILTER:
        return "refusal";
    case DI_FINISH_STOP_STRING:
        return "stop_sequence";
    case DI_FINISH_TOOL_CALLS:
        return "tool_use";
    default:
        return "end_turn";
    }
}

static void put_usage(const di_reply *r, int64_t output_tokens, buf *out)
{
    buf_puts(out, "{\"input_tokens\":");
    rec_put_int(out, rec_fresh_tokens(r));
    buf_puts(out, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
    rec_put_int(out, r->cached_tokens);
    buf_puts(out, ",\"output_tokens\":");
    rec_put_int(out, output_tokens);
    buf_puts(out, ",\"service_tier\":\"standard\"}");
}

static int64_t output_tokens(const di_reply *r)
{
    di_usage u;
    di_reply_usage(r, &u);
    return u.completion_tokens;
}

/* "stop_reason":..., "stop_sequence":... */
static void put_stop(const rec_reply_choice *c, buf *out)
{
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c->finish));
    if (c->finish == DI_FINISH_STOP_STRING) {
        rec_json_string(out, c->stop.data, c->stop.size);
    } else {
        buf_puts(out, "null");
    }
}

/* Up to the blocks. */
static void put_head(const di_reply *r, buf *out)
{
    buf_puts(out, "{\"id\":");
    rec_put_any(out, r->id);
    buf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    rec_put_any(out, r->model);
    buf_puts(out, ",\"content\":[");
}

/* ---- events ---- */

static void start(di_reply *r)
{
    buf *const out = rec_event_begin(r, "message_start");
    buf_puts(out, "{\"type\":\"message_start\",\"message\":");
    put_head(r, out);
    buf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_usage(r, 0, out);
    buf_puts(out, "}}");
    rec_event_end(r, "message_start");
    if (r->thinking) {
        rec_item_open(r, &r->choices[0], REC_OUT_REASONING);
    }
}

static void put_empty_block(const rec_reply_item *item, buf *out)
{
    if (item->kind == REC_OUT_REASONING) {
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else if (item->kind == REC_OUT_TEXT) {
        buf_puts(out, "{\"type\":\"text\",\"text\":\"\"}");
    } else {
        buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", item->call_id);
        rec_put_buf(out, &item->name);
        buf_puts(out, ",\"input\":{}}");
    }
}

static void prepare(rec_delta *d, const rec_reply_item *item)
{
    static const char *const deltas[] = {
        [REC_OUT_REASONING] = "{\"type\":\"thinking_delta\",\"thinking\":",
        [REC_OUT_TEXT] = "{\"type\":\"text_delta\",\"text\":",
        [REC_OUT_CALL] = "{\"type\":\"input_json_delta\",\"partial_json\":",
    };
    rec_delta_begin(d, "content_block_delta");
    buf_puts(&d->head, "{\"type\":\"content_block_delta\",\"index\":");
    rec_put_int(&d->head, (int64_t)item->index);
    buf_puts(&d->head, ",\"delta\":");
    buf_puts(&d->head, deltas[item->kind]);
    buf_puts(&d->tail, "}}");
}

static void open_item(di_reply *r, rec_reply_choice *c)
{
    const rec_reply_item *const item = rec_last_item(c);
    buf *const out = rec_event_begin(r, "content_block_start");
    buf_puts(out, "{\"type\":\"content_block_start\",\"index\":");
    rec_put_int(out, (int64_t)item->index);
    buf_puts(out, ",\"content_block\":");
    put_empty_block(item, out);
    buf_puts(out, "}");
    rec_event_end(r, "content_block_start");
    if (item->index == 0) {
        buf_puts(rec_event_begin(r, "ping"), "{\"type\":\"ping\"}");
        rec_event_end(r, "ping");
    }
    prepare(&c->delta, item);
}

static void close_item(di_reply *r, rec_reply_choice *c)
{
    const rec_reply_item *const item = rec_last_item(c);
    if (item->kind == REC_OUT_REASONING) {
        buf *const out = rec_event_begin(r, "content_block_delta");
        buf_puts(out, "{\"type\":\"content_block_delta\",\"index\":");
        rec_put_int(out, (int64_t)item->index);
        buf_puts(out, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":");
        rec_put_any(out, r->id);
        buf_puts(out, "}}");
        rec_event_end(r, "content_block_delta");
    }
    buf *const out = rec_event_begin(r, "content_block_stop");
    buf_puts(out, "{\"type\":\"content_block_stop\",\"index\":");
    rec_put_int(out, (int64_t)item->index);
    buf_puts(out, "}");
    rec_event_end(r, "content_block_stop");
}

static void finish(di_reply *r, rec_reply_choice *c)
{
    buf *const out = rec_event_begin(r, "message_delta");
    buf_puts(out, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(c, out);
    buf_puts(out, "},\"usage\":");
    put_usage(r, output_tokens(r), out);
    buf_puts(out, "}");
    rec_event_end(r, "message_delta");
    buf_puts(rec_event_begin(r, "message_stop"), "{\"type\":\"message_stop\"}");
    rec_event_end(r, "message_stop");
}

static void fail(di_reply *r, int http_status, const char *message)
{
    rec_put_error(r->protocol, http_status, message, rec_event_begin(r, "error"));
    rec_event_end(r, "error");
}

/* ---- the whole message ---- */

static void put_block(const di_reply *r, const rec_reply_item *item, buf *out)
{
    switch (item->kind) {
    case REC_OUT_REASONING:
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
        rec_put_buf(out, &item->text);
        buf_puts(out, ",\"signature\":");
        rec_put_any(out, r->id);
        break;
    case REC_OUT_TEXT:
        buf_puts(out, "{\"type\":\"text\",\"text\":");
        rec_put_buf(out, &item->text);
        break;
    default:
        buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", item->call_id);
        rec_put_buf(out, &item->name);
        buf_puts(out, ",\"input\":");
        rec_put_object(out, &item->text);
        break;
    }
    buf_puts(out, "}");
}

static void body(di_reply *r, buf *out)
{
    const rec_reply_choice *const c = &r->choices[0];
    put_head(r, out);
    for (size_t i = 0; i < c->n_items; i++) {
        buf_puts(out, i != 0 ? "," : "");
        put_block(r, &c->items[i], out);
    }
    buf_puts(out, "],");
    put_stop(c, out);
    buf_puts(out, ",\"usage\":");
    put_usage(r, output_tokens(r), out);
    buf_puts(out, "}");
}

const rec_writer rec_messages_writer = {
    .start = start,
    .open = open_item,
    .close = close_item,
    .finish = finish,
    .fail = fail,
    .body = body,
};
