/* parse(render(message)) gives the message back: an assistant's turn is rendered in a conversation, its ids are
 * parsed as if they had been generated, and reasoning, text, names and arguments are those of the request, byte
 * for byte. Every text is full of spelled markers: only control ids count, so none of them is lost or obeyed.
 *
 * What the prompt format itself can't carry is left out: newlines where it puts its own, a `<` right before a tool
 * block (it keeps a newline from being trimmed, recipe.md 4.3), and quotes in names. */
#include "out_support.h"

#include "support/unit.h"

enum { ROUNDS = 1500, MAX_IDS = 16384, MAX_CALLS = 4 };

static const char *const fragments[] = {
    "</think>", "<think>", "<｜DSML｜", "</｜DSML｜", "｜DSML｜", "<｜DSML｜ calls>", "</｜DSML｜ calls>",
    "<｜DSML｜ invoke name=", "<｜User｜>", "<｜end▁of▁sentence｜>", "<｜Assistant｜>", "</｜DSML｜ parameter>",
    "parameter name=", "string=", "true>", "<", "</", "｜", "word ", "日本", "🦀", "é", "a", " ", "1234", "{}", "[", ",",
    ": ", "\xE2\x80\xA8", "\x7F",
};
static const char *const free_fragments[] = {"\"", "\\", "\n", "\n\n", "\r",
                                             "\t", "\x01", "true\">", "parameter name=\""};
enum { N_FRAGMENTS = sizeof fragments / sizeof *fragments, N_FREE = sizeof free_fragments / sizeof *free_fragments };

/* A text of up to n fragments; `name`: without what a name can't hold. */
static void generate(uint64_t *seed, buf *text, unsigned n, bool name)
{
    buf_clear(text);
    buf_append(text, "", 0);
    for (uint64_t left = unit_random(seed) % (n + 1); left > 0; left--) {
        const uint64_t r = unit_random(seed);
        buf_puts(text, !name && r % 4 == 0 ? free_fragments[(r >> 8) % N_FREE] : fragments[(r >> 8) % N_FRAGMENTS]);
    }
}

/* Without newlines at its ends and `<` at its end. */
static void trim(buf *text)
{
    while (text->size > 0 && (text->data[text->size - 1] == '\n' || text->data[text->size - 1] == '<')) {
        text->data[--text->size] = '\0';
    }
    size_t n = 0;
    while (n < text->size && text->data[n] == '\n') {
        n++;
    }
    if (n != 0) {
        memmove(text->data, text->data + n, text->size - n + 1);
        text->size -= n;
    }
}

/* A JSON string as the prompt's JSON has it. */
static void put_string(buf *out, const char *text, size_t n)
{
    buf_puts(out, "\"");
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (c == '"' || c == '\\') {
            buf_printf(out, "\\%c", c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            buf_puts(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        } else if ((unsigned char)c < 0x20) {
            buf_printf(out, "\\u%04x", (unsigned)c);
        } else {
            buf_append(out, &c, 1);
        }
    }
    buf_puts(out, "\"");
}

static void put_arguments(uint64_t *seed, buf *out, buf *scratch)
{
    static const char *const values[] = {"3", "-1.5", "1e+16", "true", "null", "[1, 2, {\"a\": \"</｜DSML\"}]",
                                         "{}", "[]", "\"\\n\"", "18446744073709551615"};
    buf_clear(out);
    buf_puts(out, "{");
    const uint64_t n = unit_random(seed) % 4;
    for (uint64_t i = 0; i < n; i++) {
        buf_puts(out, i == 0 ? "" : ", ");
        generate(seed, scratch, 3, true);
        buf_printf(scratch, "%d", (int)i); /* no key twice */
        put_string(out, scratch->data, scratch->size);
        buf_puts(out, ": ");
        const uint64_t r = unit_random(seed);
        if (r % 3 == 0) {
            buf_puts(out, values[(r >> 8) % (sizeof values / sizeof *values)]);
        } else {
            generate(seed, scratch, 8, false);
            put_string(out, scratch->data, scratch->size);
        }
    }
    buf_puts(out, "}");
}

/* The message, as it is expected back. */
static void generate_message(uint64_t *seed, bool with_reasoning, out_result *m, buf *scratch)
{
    out_result_init(m);
    m->n_calls = (int)(unit_random(seed) % (MAX_CALLS + 1));
    generate(seed, &m->reasoning, with_reasoning ? 10 : 0, false);
    trim(&m->reasoning);
    generate(seed, &m->text, 10, false);
    trim(&m->text);
    for (int i = 0; i < m->n_calls; i++) {
        generate(seed, &m->names[i], 3, true);
        put_arguments(seed, &m->arguments[i], scratch);
    }
    m->finish = m->n_calls > 0 ? DI_FINISH_TOOL_CALLS : DI_FINISH_STOP;
    m->n_finishes = 1;
}

static void put_member(buf *body, const char *key, const buf *text)
{
    buf_printf(body, ",\"%s\":", key);
    put_string(body, text->data, text->size);
}

static void write_body(uint64_t *seed, bool v4, bool with_reasoning, const out_result *m, buf *body, buf *scratch)
{
    buf_clear(body);
    buf_printf(body, "{\"model\":\"%s\",\"thinking\":{\"type\":\"%s\"},",
               v4 ? "DeepSeek-V4-Pro" : "DeepSeek-V4.1-Flash",
               with_reasoning ? "enabled" : "disabled");
    buf_puts(body, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
                   "\"messages\":[{\"role\":\"user\"");
    generate(seed, scratch, 10, false);
    put_member(body, "content", scratch);
    buf_puts(body, "},{\"role\":\"assistant\"");
    put_member(body, "content", &m->text);
    put_member(body, "reasoning_content", &m->reasoning);
    for (int i = 0; i < m->n_calls; i++) {
        buf_printf(body, "%s{\"id\":\"call_%d\",\"type\":\"function\",\"function\":{\"name\":",
                   i == 0 ? ",\"tool_calls\":[" : ",", i);
        put_string(body, m->names[i].data, m->names[i].size);
        put_member(body, "arguments", &m->arguments[i]);
        buf_puts(body, "}}");
    }
    buf_puts(body, m->n_calls > 0 ? "]}" : "}");
    for (int i = 0; i < m->n_calls; i++) {
        buf_printf(body, ",{\"role\":\"tool\",\"tool_call_id\":\"call_%d\"", i);
        generate(seed, scratch, 6, false);
        put_member(body, "content", scratch);
        buf_puts(body, "}");
    }
    buf_puts(body, "]}");
}

static int32_t added(const char *spelling)
{
    const int32_t id = di_tokenizer_find(fixture.tokenizer, spelling, strlen(spelling));
    assert_true(id >= 0);
    return id;
}

static size_t find_id(const int32_t *ids, size_t n, size_t from, int32_t id)
{
    while (from < n && ids[from] != id) {
        from++;
    }
    assert_true(from < n);
    return from;
}

/* The ids that the model would have generated for the assistant's turn. */
static size_t rendered_turn(const buf *body, bool with_reasoning, int32_t *ids, size_t *first)
{
    di_request *request = NULL;
    di_error err;
    size_t n;
    if (di_request_read(fixture.recipe, DI_CHAT, body->data, body->size, &request, &err) != DI_OK) {
        fail_msg("%s in %s", err.message, body->data);
    }
    assert_int_equal(di_request_encode(request, 1, ids, MAX_IDS, &n, NULL), DI_OK);
    assert_true(n <= MAX_IDS);
    *first = find_id(ids, n, 0, added("<｜Assistant｜>")) + 2;
    assert_int_equal(ids[*first - 1], added(with_reasoning ? "<think>" : "</think>"));
    const size_t end = find_id(ids, n, *first, added("<｜end▁of▁sentence｜>"));
    di_request_free(request);
    return end - *first;
}

static void a_rendered_message_is_parsed_back(void **state)
{
    (void)state;
    static int32_t ids[MAX_IDS];
    uint64_t seed = 1;
    buf body;
    buf scratch;
    buf_init(&body, SIZE_MAX);
    buf_init(&scratch, SIZE_MAX);
    for (int round = 0; round < ROUNDS; round++) {
        const bool with_reasoning = unit_random(&seed) % 4 != 0;
        size_t first;
        out_result message;
        generate_message(&seed, with_reasoning, &message, &scratch);
        write_body(&seed, round % 3 == 0, with_reasoning, &message, &body, &scratch);
        const size_t n = rendered_turn(&body, with_reasoning, ids, &first);
        const di_output_options options = {.tools = true,
                                           .stage = with_reasoning ? DI_STAGE_REASONING_START : DI_STAGE_NONE};
        di_output *output = NULL;
        out_result parsed;
        out_result_init(&parsed);
        assert_int_equal(di_output_new(fixture.recipe, &options, &output, NULL), DI_OK);
        for (size_t i = 0; i < n;) {
            const size_t group = 1 + unit_random(&seed) % 5;
            const size_t size = group < n - i ? group : n - i;
            assert_int_equal(di_output_push_ids(output, ids + first + i, size, NULL, NULL), DI_OK);
            out_take(output, &parsed);
            i += size;
        }
        assert_int_equal(di_output_finish(output, DI_FINISH_STOP, NULL), DI_OK);
        out_take(output, &parsed);
        out_expect_same(&message, &parsed, body.data);
        out_result_fini(&parsed);
        out_result_fini(&message);
        di_output_free(output);
    }
    buf_fini(&scratch);
    buf_fini(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rendered_message_is_parsed_back),
    };
    return cmocka_run_group_tests(tests, out_set_up_demo, out_tear_down);
}
