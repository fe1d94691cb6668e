/* Random outputs, cut and taken at random, in each protocol: the stream is the same however it was cut and taken, and the texts of
 * its deltas, joined, are those of the whole response. */
#include "reply_support.h"

#include "recipe/rec_int.h"

enum { N_OUTPUTS = 3000, MAX_TEXT = 4096, MAX_TEXTS = 64 };

static const char *const parts[] = {
    "word", " ", "\n", "\n\n", "é東🦀", "\"", "\\", "\x01", "<", "</", "</think>", "END", "EN", "｜DSML｜", "<｜DSML｜",
    "\n\n<｜DSML｜ calls>\n", "<｜DSML｜ invoke name=\"f\">\n", "<｜DSML｜ invoke name=\"apply_patch\">\n",
    "<｜DSML｜ invoke name=\"maps::g\">\n", "<｜DSML｜ invoke name=\"un\"known\">\n", "<｜DSML｜ parameter name=\"input\" string=\"true\">",
    "<｜DSML｜ parameter name=\"a\" string=\"false\">", "[1, {\"b\": 2.50}]", "\\ud83d", "\\u00e9", "</｜DSML｜ parameter>\n",
    "</｜DSML｜ invoke>\n", "</｜DSML｜ calls>",
};

/* Whole calls come often, so that several follow one another. */
static const char *const calls[] = {
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x \"y\"\n</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n",
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"apply_patch\">\n<｜DSML｜ parameter name=\"input\" string=\"true\">*** \"p\"\n\\"
    "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"maps::g\">\n</｜DSML｜ invoke>\n",
};

static const char *const bodies[3][2] = {
    [DI_CHAT] =
        {"{\"model\":\"DeepSeek-V4.1-Flash\",\"stop\":\"END\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":"
         "\"function\",\"function\":{\"name\":\"f\"}}]}",
         "{\"model\":\"DeepSeek-V4.1-Flash\",\"thinking\":{\"type\":\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"},
    [DI_RESPONSES] =
        {"{\"model\":\"DeepSeek-V4.1-Flash\",\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"custom\","
         "\"name\":\"apply_patch\"},{\"type\":\"namespace\",\"name\":\"maps\",\"tools\":[{\"type\":\"function\",\"name\":\"g\"}]}]}",
         "{\"model\":\"DeepSeek-V4.1-Flash\",\"input\":\"x\",\"reasoning\":{\"effort\":\"none\"},\"tools\":[{\"type\":\"custom\","
         "\"name\":\"apply_patch\"}]}"},
    [DI_MESSAGES] =
        {"{\"model\":\"DeepSeek-V4.1-Flash\",\"stop_sequences\":[\"END\"],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":["
         "{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]}",
         "{\"model\":\"DeepSeek-V4.1-Flash\",\"thinking\":{\"type\":\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
         "\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]}"},
};

typedef struct texts {
    buf items[MAX_TEXTS];
    size_t n;
} texts;

static void add_text(texts *t, const char *text, size_t size)
{
    if (size == 0) {
        return;
    }
    assert_true(t->n < MAX_TEXTS);
    buf_init(&t->items[t->n], SIZE_MAX);
    buf_append(&t->items[t->n++], text, size);
}

static void texts_free(texts *t)
{
    for (size_t i = 0; i < t->n; i++) {
        buf_fini(&t->items[i]);
    }
}

static void add_string(texts *t, const js_value *value)
{
    size_t n;
    const char *const text = js_string(value, &n);
    add_text(t, text, n);
}

/* Compact, {} when it is no object; then it doesn't count, since it may have no text at all. */
static void add_object(texts *t, const js_value *value)
{
    buf b;
    buf_init(&b, SIZE_MAX);
    if (js_length(value) != 0 && js_kind_of(value) == JS_OBJECT) {
        rec_json_value(&b, value, REC_JSON_COMPACT);
        add_text(t, b.data, b.size);
    }
    buf_fini(&b);
}

static void texts_of_stream(const reply_list *list, texts *out)
{
    const js_limits limits = {.max_depth = REC_MAX_DEPTH, .last_duplicate_wins = true};
    for (size_t i = 0; i < list->n; i++) {
        const reply_entry *const e = &list->entries[i];
        js_doc *doc;
        if (!e->is_delta) {
            continue;
        }
        if (strstr(e->form.data, "\"partial_json\"") == NULL) {
            add_text(out, e->text.data, e->text.size);
        } else if (js_parse(e->text.data, e->text.size, "input", &limits, &doc, NULL) == DI_OK) {
            add_object(out, js_root(doc));
            js_free(doc);
        }
    }
}

static void texts_of_chat(const js_value *body, texts *out)
{
    const js_value *const message = js_get(js_at(js_get(body, "choices"), 0), "message");
    const js_value *const list = js_get(message, "tool_calls");
    add_string(out, js_get(message, "reasoning_content"));
    add_string(out, js_get(message, "content"));
    for (size_t i = 0; i < js_length(list); i++) {
        add_string(out, js_get(js_get(js_at(list, i), "function"), "arguments"));
    }
}

static void texts_of_items(const js_value *list, texts *out)
{
    static const char *const keys[] = {"text", "thinking", "arguments"};
    for (size_t i = 0; i < js_length(list); i++) {
        const js_value *const item = js_at(list, i);
        const js_value *const input = js_get(item, "input");
        add_string(out, js_get(js_at(js_get(item, "content"), 0), "text"));
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            add_string(out, js_get(item, keys[k]));
        }
        if (js_kind_of(input) == JS_OBJECT) {
            add_object(out, input);
        } else {
            add_string(out, input);
        }
    }
}

static void expect_texts(di_protocol protocol, const reply_list *list, di_reply *reply)
{
    const char *text;
    size_t n;
    js_doc *doc;
    texts streamed = {.n = 0};
    texts whole = {.n = 0};
    assert_int_equal(di_reply_body(reply, &text, &n, NULL), DI_OK);
    assert_int_equal(js_parse(text, n, "body", NULL, &doc, NULL), DI_OK);
    const js_value *const body = js_root(doc);
    if (protocol == DI_CHAT) {
        texts_of_chat(body, &whole);
    } else {
        texts_of_items(js_get(body, protocol == DI_RESPONSES ? "output" : "content"), &whole);
    }
    texts_of_stream(list, &streamed);
    for (size_t i = 0; i < whole.n && i < streamed.n; i++) {
        const buf *const a = &streamed.items[i];
        const buf *const b = &whole.items[i];
        if (a->size != b->size || memcmp(a->data, b->data, a->size) != 0) {
            fail_msg("the stream says %.*s, the body %.*s", (int)a->size, a->data, (int)b->size, b->data);
        }
    }
    assert_int_equal(streamed.n, whole.n);
    texts_free(&streamed);
    texts_free(&whole);
    js_free(doc);
}

static size_t make_output(uint64_t *seed, char *out)
{
    size_t n = 0;
    const size_t n_parts = unit_random(seed) % 24;
    for (size_t i = 0; i < n_parts; i++) {
        const uint64_t dice = unit_random(seed);
        const char *const part = dice % 8 == 0 ? calls[dice / 8 % (sizeof calls / sizeof calls[0])]
                                               : parts[dice / 8 % (sizeof parts / sizeof parts[0])];
        const size_t size = strlen(part);
        if (n + size > MAX_TEXT) {
            break;
        }
        memcpy(out + n, part, size);
        n += size;
    }
    return n;
}

/* largest == 0: all at once, taken at the end. */
static void run(di_reply *reply, uint64_t *seed, const char *text, size_t n, size_t largest, di_finish reason, reply_list *out)
{
    for (size_t i = 0; i < n;) {
        const size_t wanted = largest == 0 ? n : 1 + unit_random(seed) % largest;
        const size_t size = wanted < n - i ? wanted : n - i;
        assert_int_equal(di_reply_push_text(reply, 0, text + i, size, 0, NULL), DI_OK);
        i += size;
        di_event event;
        const uint64_t dice = unit_random(seed) % 3;
        if (largest != 0 && dice == 0) {
            reply_drain(out, reply);
        } else if (largest != 0 && dice == 1 && di_reply_next_event(reply, &event)) {
            reply_add(out, event.name, event.data, event.size);
        }
    }
    assert_int_equal(di_reply_finish(reply, 0, reason, NULL), DI_OK);
    reply_drain(out, reply);
}

static void check(di_protocol protocol, uint64_t *seed)
{
    static const di_finish reasons[] = {DI_FINISH_STOP, DI_FINISH_LENGTH, DI_FINISH_FILTER, DI_FINISH_CUT};
    char text[MAX_TEXT];
    const size_t n = make_output(seed, text);
    const char *const json = bodies[protocol][unit_random(seed) % 2];
    const di_finish reason = reasons[unit_random(seed) % 4];
    const di_reply_options options = {.id = "R"};
    di_request *request;
    reply_list lists[3] = {{.n = 0}, {.n = 0}, {.n = 0}};
    static const size_t largest[] = {0, 1, 40};
    assert_int_equal(di_request_read(fixture.recipe, protocol, json, strlen(json), &request, NULL), DI_OK);
    for (int i = 0; i < 3; i++) {
        di_reply *reply;
        assert_int_equal(di_reply_new(fixture.recipe, request, &options, &reply, NULL), DI_OK);
        run(reply, seed, text, n, largest[i], reason, &lists[i]);
        if (di_reply_finished(reply, 0) != DI_FINISH_CUT) {
            expect_texts(protocol, &lists[i], reply);
        }
        di_reply_free(reply);
    }
    reply_expect_same("one byte each", &lists[1], &lists[0]);
    reply_expect_same("random cuts", &lists[2], &lists[0]);
    for (int i = 0; i < 3; i++) {
        reply_list_free(&lists[i]);
    }
    di_request_free(request);
}

static void streams_and_bodies_say_the_same(void **state)
{
    (void)state;
    uint64_t seed = 20261202;
    for (int i = 0; i < N_OUTPUTS; i++) {
        check((di_protocol)(i % 3), &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_bodies_say_the_same),
    };
    return cmocka_run_group_tests(tests, out_set_up_text, out_tear_down);
}
