/* reply_gather.c - see reply_gather.h. */
#include "reply_gather.h"

#include "recipe/rec_int.h"

static void add(buf *out, const js_value *text)
{
    size_t n;
    const char *const s = js_string(text, &n);
    buf_append(out, s, n);
}

static char *compact(const js_value *value)
{
    buf out;
    buf_init(&out, SIZE_MAX);
    assert_true(rec_json_value(&out, value, REC_JSON_COMPACT));
    return out.data;
}

static void set_compact(buf *out, const js_value *value)
{
    buf_clear(out);
    rec_json_value(out, value, REC_JSON_COMPACT);
}

static void end(out_result *r, const char *words)
{
    assert_int_equal(r->n_finishes++, 0);
    buf_puts(&r->stop, words);
}

static void chat_call(out_result *r, const js_value *call)
{
    const int64_t i = js_int(js_get(call, "index"));
    if (js_get(call, "id") != NULL) {
        assert_int_equal(i, r->n_calls++);
    }
    assert_int_equal(i, r->n_calls - 1); /* one after the other */
    add(&r->names[i], js_get(js_get(call, "function"), "name"));
    add(&r->arguments[i], js_get(js_get(call, "function"), "arguments"));
}

/* The same for a chunk's delta and a body's message. */
static void chat_choice(gathered *g, const js_value *choice, const char *key)
{
    const js_value *const message = js_get(choice, key);
    const int64_t i = js_int(js_get(choice, "index"));
    assert_in_range(i, 0, GATHER_CHOICES - 1);
    out_result *const r = &g->of[i];
    add(&r->reasoning, js_get(message, "reasoning_content"));
    add(&r->text, js_get(message, "content"));
    for (size_t k = 0; k < js_length(js_get(message, "tool_calls")); k++) {
        chat_call(r, js_at(js_get(message, "tool_calls"), k));
    }
    if (js_kind_of(js_get(choice, "finish_reason")) == JS_STRING) {
        end(r, js_string(js_get(choice, "finish_reason"), NULL));
    }
}

static void responses_outcome(gathered *g, const js_value *response)
{
    buf words;
    buf_init(&words, SIZE_MAX);
    add(&words, js_get(response, "status"));
    add(&words, js_get(js_get(response, "incomplete_details"), "reason"));
    g->failed = strcmp(words.data, "failed") == 0;
    end(&g->of[0], words.data);
    buf_fini(&words);
    g->final = compact(response);
}

/* Name and, when it is shown at once, the arguments of a call item. */
static void responses_call(out_result *r, const js_value *item, bool whole)
{
    const int i = r->n_calls++;
    if (strcmp(js_string(js_get(item, "type"), NULL), "tool_search_call") == 0) {
        buf_puts(&r->names[i], "tool_search");
        set_compact(&r->arguments[i], js_get(item, "arguments"));
        return;
    }
    if (js_get(item, "namespace") != NULL) {
        add(&r->names[i], js_get(item, "namespace"));
        buf_puts(&r->names[i], "::");
    }
    add(&r->names[i], js_get(item, "name"));
    if (whole) {
        add(&r->arguments[i], js_get(item, "arguments"));
        add(&r->arguments[i], js_get(item, "input"));
    }
}

static void responses_item(out_result *r, const js_value *item)
{
    const char *const type = js_string(js_get(item, "type"), NULL);
    const js_value *const text = js_get(js_at(js_get(item, "content"), 0), "text");
    if (strcmp(type, "reasoning") == 0) {
        add(&r->reasoning, text);
    } else if (strcmp(type, "message") == 0) {
        add(&r->text, text);
    } else {
        responses_call(r, item, true);
    }
}

static void expect_text(const buf *gathered_text, const js_value *whole)
{
    size_t n;
    const char *const s = js_string(whole, &n);
    assert_int_equal(gathered_text->size, n);
    assert_true(n == 0 || memcmp(gathered_text->data, s, n) == 0);
}

static void responses_event(gathered *g, const char *name, const js_value *e)
{
    out_result *const r = &g->of[0];
    const js_value *const item = js_get(e, "item");
    const buf *const last_arguments = &r->arguments[r->n_calls > 0 ? r->n_calls - 1 : 0];
    assert_int_equal(js_int(js_get(e, "sequence_number")), g->number++);
    if (strcmp(name, "response.output_text.delta") == 0) {
        add(&r->text, js_get(e, "delta"));
    } else if (strcmp(name, "response.reasoning_text.delta") == 0) {
        add(&r->reasoning, js_get(e, "delta"));
    } else if (strcmp(name, "response.output_text.done") == 0) {
        expect_text(&r->text, js_get(e, "text"));
    } else if (strcmp(name, "response.reasoning_text.done") == 0) {
        expect_text(&r->reasoning, js_get(e, "text"));
    } else if (strcmp(name, "response.output_item.added") == 0 && js_get(item, "call_id") != NULL) {
        responses_call(r, item, false);
    } else if (strcmp(name, "response.output_item.done") == 0 && js_get(item, "execution") != NULL) {
        set_compact(&r->arguments[r->n_calls - 1], js_get(item, "arguments"));
    } else if (strstr(name, "_call") != NULL && strstr(name, ".delta") != NULL) {
        add(&r->arguments[r->n_calls - 1], js_get(e, "delta"));
    } else if (strcmp(name, "response.function_call_arguments.done") == 0) {
        expect_text(last_arguments, js_get(e, "arguments"));
    } else if (strcmp(name, "response.custom_tool_call_input.done") == 0) {
        expect_text(last_arguments, js_get(e, "input"));
    } else if (strcmp(name, "response.completed") == 0 || strcmp(name, "response.incomplete") == 0 ||
               strcmp(name, "response.failed") == 0) {
        responses_outcome(g, js_get(e, "response"));
    }
}

static void messages_outcome(out_result *r, const js_value *stop)
{
    buf words;
    buf_init(&words, SIZE_MAX);
    add(&words, js_get(stop, "stop_reason"));
    add(&words, js_get(stop, "stop_sequence"));
    end(r, words.data);
    buf_fini(&words);
}

static void messages_event(gathered *g, const char *name, const js_value *e)
{
    out_result *const r = &g->of[0];
    const js_value *const delta = js_get(e, "delta");
    if (strncmp(name, "content_block", 13) == 0) {
        assert_int_equal(js_int(js_get(e, "index")), g->block);
    }
    if (strcmp(name, "content_block_start") == 0 && js_get(js_get(e, "content_block"), "name") != NULL) {
        add(&r->names[r->n_calls++], js_get(js_get(e, "content_block"), "name"));
    } else if (strcmp(name, "content_block_stop") == 0) {
        g->block++;
    } else if (strcmp(name, "content_block_delta") == 0) {
        add(&r->text, js_get(delta, "text"));
        add(&r->reasoning, js_get(delta, "thinking"));
        if (r->n_calls > 0) {
            add(&r->arguments[r->n_calls - 1], js_get(delta, "partial_json"));
        }
    } else if (strcmp(name, "message_delta") == 0) {
        messages_outcome(r, delta);
    } else if (strcmp(name, "error") == 0) {
        g->failed = true;
        end(r, "failed");
    }
}

static void messages_block(out_result *r, const js_value *block)
{
    add(&r->text, js_get(block, "text"));
    add(&r->reasoning, js_get(block, "thinking"));
    if (js_get(block, "name") != NULL) {
        add(&r->names[r->n_calls], js_get(block, "name"));
        set_compact(&r->arguments[r->n_calls++], js_get(block, "input"));
    }
}

void gather_event(gathered *g, di_protocol protocol, const di_event *event)
{
    js_doc *doc;
    if (strcmp(event->data, "[DONE]") == 0) {
        return;
    }
    assert_int_equal(js_parse(event->data, event->size, "event", NULL, &doc, NULL), DI_OK);
    if (protocol == DI_RESPONSES) {
        responses_event(g, event->name, js_root(doc));
    } else if (protocol == DI_MESSAGES) {
        messages_event(g, event->name, js_root(doc));
    } else if (js_get(js_root(doc), "error") != NULL) {
        g->failed = true;
    } else {
        chat_choice(g, js_at(js_get(js_root(doc), "choices"), 0), "delta");
    }
    js_free(doc);
}

void gather_body(gathered *g, di_protocol protocol, const char *body, size_t n)
{
    static const char *const lists[] = {[DI_CHAT] = "choices", [DI_RESPONSES] = "output", [DI_MESSAGES] = "content"};
    js_doc *doc;
    assert_int_equal(js_parse(body, n, "body", NULL, &doc, NULL), DI_OK);
    const js_value *const list = js_get(js_root(doc), lists[protocol]);
    for (size_t i = 0; i < js_length(list); i++) {
        if (protocol == DI_CHAT) {
            chat_choice(g, js_at(list, i), "message");
        } else if (protocol == DI_RESPONSES) {
            responses_item(&g->of[0], js_at(list, i));
        } else {
            messages_block(&g->of[0], js_at(list, i));
        }
    }
    if (protocol == DI_RESPONSES) {
        responses_outcome(g, js_root(doc));
    } else if (protocol == DI_MESSAGES) {
        messages_outcome(&g->of[0], js_root(doc));
    }
    js_free(doc);
}

void gathered_init(gathered *g)
{
    *g = (gathered){.failed = false};
    for (int i = 0; i < GATHER_CHOICES; i++) {
        out_result_init(&g->of[i]);
    }
}

void gathered_fini(gathered *g)
{
    for (int i = 0; i < GATHER_CHOICES; i++) {
        out_result_fini(&g->of[i]);
    }
    free(g->final);
}
