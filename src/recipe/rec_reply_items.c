/* rec_reply_items.c - pieces of the output to items: a run of reasoning, a run of text, or a call (rec_reply_int.h).
 *
 * A piece of another kind closes the open item before the new one begins. All text is kept, for the events that repeat it and for
 * the body; that and the queue are the only memory that grows with the output. */
#include "recipe/rec_reply_int.h"

#include "core/name_index.h"
#include "core/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

rec_reply_item *rec_last_item(const rec_reply_choice *choice)
{
    return &choice->items[choice->n_items - 1];
}

static void item_fini(rec_reply_item *item)
{
    buf_fini(&item->name);
    buf_fini(&item->text);
    buf_fini(&item->logprobs);
}

void rec_choice_fini(rec_reply_choice *c)
{
    for (size_t i = 0; i < c->n_items; i++) {
        item_fini(&c->items[i]);
    }
    free(c->items);
    buf_fini(&c->delta.head);
    buf_fini(&c->delta.tail);
    rec_custom_fini(&c->input);
    di_output_free(c->output);
}

bool rec_choice_failed(const rec_reply_choice *c)
{
    if (c->n_items == 0) {
        return false;
    }
    const rec_reply_item *const last = rec_last_item(c);
    return last->name.failed || last->text.failed || last->logprobs.failed || c->delta.head.failed || c->delta.tail.failed ||
           c->input.held.failed;
}

/* ---- calls ---- */

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* "call_NN_", "ET_" when thinking gave nothing (recipe.md 3.1), and 20 letters and digits and 4 digits that follow from the
 * response's id, the choice and the number. */
static void make_call_id(const di_reply *reply, const rec_reply_choice *c, rec_reply_item *item)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    const int n = snprintf(item->call_id, sizeof item->call_id, "call_%02d_%s", (int)item->call,
                           reply->thinking && !c->reasoned ? "ET_" : "");
    char *out = item->call_id + n;
    uint64_t state = mix(reply->seed + ((uint64_t)(uint32_t)c->index << 32 | (uint32_t)item->call));
    for (int i = 0; i < 24; i++) {
        state = mix(state);
        *out++ = i < 20 ? letters[state % (sizeof letters - 1)] : letters[sizeof letters - 11 + state % 10];
    }
    *out = '\0';
}

static const char *tool_name(const void *names, size_t i, size_t *size)
{
    const rec_tool *const *const tools = names;
    *size = tools[i]->name.size;
    return tools[i]->name.data;
}

/* The declared tools by name: sorted when the first call comes. */
static bool sort_tools(di_reply *reply, size_t n)
{
    uint32_t *const order = calloc(n, sizeof *order);
    uint32_t *const scratch = calloc(n, sizeof *scratch);
    const bool done = order != NULL && scratch != NULL;
    if (done) {
        nix_sort(reply->request->declared, tool_name, order, scratch, n);
        reply->by_name = order;
    } else {
        free(order);
    }
    free(scratch);
    return done;
}

static const rec_tool *find_tool(di_reply *reply, const char *name, size_t size)
{
    const size_t n = reply->request != NULL && reply->protocol == DI_RESPONSES ? reply->request->n_declared : 0;
    if (n == 0) {
        return NULL;
    }
    if (reply->by_name == NULL && !sort_tools(reply, n)) {
        reply->queue.frames.failed = true;
        return NULL;
    }
    const size_t i = nix_find(reply->request->declared, tool_name, reply->by_name, n, name, size);
    return i < n ? reply->request->declared[i] : NULL;
}

/* ---- log-probabilities ---- */

static void put_bytes(const uint8_t *bytes, size_t n, buf *out)
{
    buf_append(out, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i != 0) {
            buf_append(out, ",", 1);
        }
        rec_put_int(out, bytes[i]);
    }
    buf_append(out, "]", 1);
}

/* Bytes that are no text: every one of them as \xNN, whose backslash JSON doubles. */
static void put_escaped_bytes(const uint8_t *bytes, size_t n, buf *out)
{
    static const char digits[] = "0123456789abcdef";
    buf_append(out, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const char hex[] = {'\\', '\\', 'x', digits[bytes[i] >> 4], digits[bytes[i] & 15]};
        buf_append(out, hex, sizeof hex);
    }
    buf_append(out, "\"", 1);
}

/* The fewest digits that give the same float back; JSON has no infinity, so -9999 as other servers write. */
static void put_logprob(float value, buf *out)
{
    double best = isfinite(value) ? (double)value : -9999.0;
    for (int digits = 6; digits < 9 && isfinite(value); digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*e", digits - 1, (double)value);
        const double shorter = strtod(text, NULL);
        if ((float)shorter == value) {
            best = shorter;
            break;
        }
    }
    rec_json_double(out, best, REC_JSON_COMPACT);
}

/* Without the closing brace. */
static void put_token(const di_tokenizer *tokenizer, int32_t id, float logprob, buf *out)
{
    size_t n = 0;
    const uint8_t *const bytes = di_tokenizer_bytes(tokenizer, id, &n);
    buf_puts(out, "{\"token\":");
    if (n != 0 && utf8_valid_prefix(bytes, n) != n) {
        put_escaped_bytes(bytes, n, out);
    } else {
        rec_json_string(out, n != 0 ? (const char *)bytes : "", n);
    }
    buf_puts(out, ",\"logprob\":");
    put_logprob(logprob, out);
    buf_puts(out, ",\"bytes\":");
    put_bytes(bytes, n, out);
}

/* Entries of the ids of a piece, behind those of the item. Returns what was added, with no comma at its ends. */
static rec_str add_logprobs(const di_reply *reply, rec_reply_item *item, const di_piece *piece)
{
    const di_request *const request = reply->request;
    if (piece->n_logprobs == 0 || (request != NULL && !request->inference.logprobs)) {
        return REC_STR("");
    }
    const int32_t asked = request != NULL ? request->inference.top_logprobs : DI_MAX_TOP_LOGPROBS;
    buf *const out = &item->logprobs;
    size_t from = out->size;
    for (size_t i = 0; i < piece->n_logprobs; i++) {
        const di_token_logprobs *const l = &piece->logprobs[i];
        if (out->size != 0) {
            buf_append(out, ",", 1);
            from += i == 0 ? 1 : 0;
        }
        put_token(reply->recipe->tokenizer, l->id, l->logprob, out);
        buf_puts(out, ",\"top_logprobs\":[");
        for (int32_t k = 0; k < l->n_top && k < asked; k++) {
            if (k != 0) {
                buf_append(out, ",", 1);
            }
            put_token(reply->recipe->tokenizer, l->top[k].id, l->top[k].logprob, out);
            buf_append(out, "}", 1);
        }
        buf_puts(out, "]}");
    }
    return out->failed ? REC_STR("") : (rec_str){out->data + from, out->size - from};
}

/* ---- items ---- */

static rec_reply_item *add_item(di_reply *reply, rec_reply_choice *c, rec_item_kind kind)
{
    if (c->n_items == c->capacity) {
        const size_t wanted = c->capacity != 0 ? 2 * c->capacity : 4;
        rec_reply_item *const larger = wanted <= SIZE_MAX / sizeof *larger ? realloc(c->items, wanted * sizeof *larger) : NULL;
        if (larger == NULL) {
            reply->queue.frames.failed = true;
            return NULL;
        }
        c->items = larger;
        c->capacity = wanted;
    }
    rec_reply_item *const item = &c->items[c->n_items];
    *item = (rec_reply_item){.kind = kind, .index = c->n_items++};
    buf_init(&item->name, SIZE_MAX);
    buf_init(&item->text, SIZE_MAX);
    buf_init(&item->logprobs, SIZE_MAX);
    return item;
}

static void item_close(di_reply *reply, rec_reply_choice *c)
{
    if (!c->open) {
        return;
    }
    rec_reply_item *const item = rec_last_item(c);
    if (item->kind == REC_OUT_CUSTOM) {
        const size_t before = item->text.size;
        if (rec_custom_end(&c->input, &item->text) && item->text.size > before) {
            rec_delta_put(reply, c, item->text.data + before, item->text.size - before, REC_STR(""));
        }
        rec_custom_fini(&c->input);
    }
    reply->writer->close(reply, c);
    c->open = false;
    reply->queue.growing = NULL;
    reply->queue.frames.failed |= rec_choice_failed(c); /* nobody looks at it later */
}

void rec_item_open(di_reply *reply, rec_reply_choice *c, rec_item_kind kind)
{
    if (c->open && rec_last_item(c)->kind == kind) {
        return;
    }
    item_close(reply, c);
    if (add_item(reply, c, kind) != NULL) {
        c->open = true;
        reply->writer->open(reply, c);
    }
}

static void call_open(di_reply *reply, rec_reply_choice *c, const di_piece *piece)
{
    if (c->open) {
        rec_reply_item *const before = rec_last_item(c);
        before->commentary = before->kind == REC_OUT_TEXT;
    }
    item_close(reply, c);
    rec_reply_item *const item = add_item(reply, c, REC_OUT_CALL);
    if (item == NULL) {
        return;
    }
    item->call = c->n_calls++;
    item->tool = find_tool(reply, piece->text, piece->size);
    if (item->tool != NULL && (item->tool->custom || item->tool->search)) {
        item->kind = item->tool->custom ? REC_OUT_CUSTOM : REC_OUT_SEARCH;
    }
    buf_append(&item->name, piece->text, piece->size);
    make_call_id(reply, c, item);
    if (item->kind == REC_OUT_CUSTOM) {
        rec_custom_init(&c->input);
    }
    c->open = true;
    reply->writer->open(reply, c);
}

static void arguments(di_reply *reply, rec_reply_choice *c, const di_piece *piece)
{
    rec_reply_item *const item = rec_last_item(c);
    const size_t before = item->text.size;
    if (item->kind == REC_OUT_CUSTOM) {
        rec_custom_feed(&c->input, piece->text, piece->size, &item->text);
    } else {
        buf_append(&item->text, piece->text, piece->size);
    }
    if (item->kind != REC_OUT_SEARCH && item->text.size > before) {
        rec_delta_put(reply, c, item->text.data + before, item->text.size - before, REC_STR(""));
    }
}

static void run(di_reply *reply, rec_reply_choice *c, rec_item_kind kind, const di_piece *piece)
{
    rec_item_open(reply, c, kind);
    if (!c->open) {
        return;
    }
    rec_reply_item *const item = rec_last_item(c);
    c->reasoned = c->reasoned || kind == REC_OUT_REASONING;
    buf_append(&item->text, piece->text, piece->size);
    rec_delta_put(reply, c, piece->text, piece->size, add_logprobs(reply, item, piece));
}

static void finish(di_reply *reply, rec_reply_choice *c, const di_piece *piece)
{
    c->finish = piece->finish;
    c->stop = (rec_str){piece->stop != NULL ? piece->stop : "", piece->stop_size};
    if (piece->finish == DI_FINISH_CUT) {
        return;
    }
    if (c->open) {
        rec_last_item(c)->incomplete = piece->finish == DI_FINISH_LENGTH || piece->finish == DI_FINISH_FILTER;
    }
    item_close(reply, c);
    reply->n_finished++;
    reply->writer->finish(reply, c);
}

void rec_take_pieces(di_reply *reply, rec_reply_choice *c)
{
    di_piece piece;
    while (!reply->queue.frames.failed && di_output_next(c->output, &piece)) {
        switch (piece.kind) {
        case DI_PIECE_REASONING:
            run(reply, c, REC_OUT_REASONING, &piece);
            break;
        case DI_PIECE_TEXT:
            run(reply, c, REC_OUT_TEXT, &piece);
            break;
        case DI_PIECE_CALL:
            call_open(reply, c, &piece);
            break;
        case DI_PIECE_ARGUMENTS:
            arguments(reply, c, &piece);
            break;
        case DI_PIECE_FINISH:
            finish(reply, c, &piece);
            break;
        }
    }
}

/* ---- arguments ---- */

void rec_put_object(buf *out, const buf *text)
{
    const js_limits limits = {.max_depth = REC_MAX_DEPTH, .last_duplicate_wins = true, .deep_is_malformed = true};
    js_doc *doc = NULL;
    const di_status status = text->size != 0 ? js_parse(text->data, text->size, "arguments", &limits, &doc, NULL) : DI_E_FORMAT;
    if (status == DI_E_MEMORY) {
        out->failed = true;
    } else if (status == DI_OK && js_kind_of(js_root(doc)) == JS_OBJECT) {
        rec_json_value(out, js_root(doc), REC_JSON_COMPACT);
    } else {
        buf_append(out, "{}", 2);
    }
    js_free(doc);
}
