/* events_{chat,responses,messages}.jsonl: events and bodies of the official package (recipe.md 5), compared as reply_support.h says.
 *
 * Each line is run twice, with its events taken after every update, and all at its end. Known sentences of `differs` change what is
 * expected, lines with others are skipped. A value that the end cuts inside its closing marker is expected without it: outputs.jsonl
 * says so, the lines of these files do not. */
#include "reply_support.h"

#include "recipe/rec_int.h"

static di_recipe *text_only;

typedef struct line {
    const char *id;
    di_protocol protocol;
    const js_value *root;
    const char *differs; /* "" = not */
    bool cut;
} line;

/* ---- what is expected ---- */

static const struct {
    const char *sentence;
    const char *from;
    const char *to;
} better[] = {
    {"the finish reason is that of a tool call", "\"finish_reason\":\"stop\"", "\"finish_reason\":\"tool_calls\""},
    {"the finish reason is that of a tool call", "\"stop_reason\":\"end_turn\"", "\"stop_reason\":\"tool_use\""},
    {"input is empty", "\"{\\\"input\\\": \"", "\"\""},
};

static bool is_known(const char *sentence)
{
    for (size_t i = 0; i < sizeof better / sizeof better[0]; i++) {
        if (strcmp(better[i].sentence, sentence) == 0) {
            return true;
        }
    }
    return *sentence == '\0';
}

/* The recorded JSON text with what differs replaced; malloc'ed. */
static char *improved(const line *l, const js_value *text)
{
    char *copy = strdup(js_string(text, NULL));
    for (size_t i = 0; i < sizeof better / sizeof better[0]; i++) {
        char *const at = strcmp(better[i].sentence, l->differs) == 0 ? strstr(copy, better[i].from) : NULL;
        if (at == NULL) {
            continue;
        }
        buf b;
        buf_init(&b, SIZE_MAX);
        buf_append(&b, copy, (size_t)(at - copy));
        buf_puts(&b, better[i].to);
        buf_puts(&b, at + strlen(better[i].from));
        free(copy);
        copy = b.data;
    }
    assert_non_null(copy);
    return copy;
}

static void expected_events(const line *l, const js_value *updates, reply_list *out)
{
    out->lenient = l->cut;
    for (size_t i = 0; i < js_length(updates); i++) {
        const js_value *const events = js_at(updates, i);
        for (size_t k = 0; k < js_length(events); k++) {
            const js_value *const event = js_at(events, k);
            const bool named = js_kind_of(event) == JS_ARRAY;
            char *const data = improved(l, named ? js_at(event, 1) : event);
            reply_add(out, named ? js_string(js_at(event, 0), NULL) : NULL, data, strlen(data));
            free(data);
        }
    }
    if (l->protocol == DI_CHAT) {
        reply_add(out, NULL, "[DONE]", 6); /* not recorded */
    }
}

/* ---- running ---- */

static di_status push_with_logprobs(di_reply *reply, const js_value *chunk, di_error *err)
{
    int32_t ids[64];
    di_token_logprobs logprobs[64];
    di_token_logprob top[64][8];
    const js_value *const list = js_get(chunk, "ids");
    const size_t n = js_length(list);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        const js_value *const entry = js_at(js_get(chunk, "logprobs"), i);
        const js_value *const likely = js_at(entry, 1);
        const size_t n_top = js_length(likely);
        assert_true(n_top <= 8);
        for (size_t k = 0; k < n_top; k++) {
            top[i][k] = (di_token_logprob){.id = (int32_t)js_int(js_at(js_at(likely, k), 0)),
                                           .logprob = (float)js_number(js_at(js_at(likely, k), 1))};
        }
        ids[i] = (int32_t)js_int(js_at(list, i));
        logprobs[i] = (di_token_logprobs){
            .id = ids[i], .logprob = (float)js_number(js_at(entry, 0)), .n_top = (int32_t)n_top, .top = top[i]};
    }
    return di_reply_push_ids(reply, 0, ids, n, logprobs, err);
}

static di_status push(di_reply *reply, const js_value *chunk, di_error *err)
{
    int32_t ids[4096];
    size_t n = js_length(chunk);
    if (js_kind_of(chunk) == JS_STRING) {
        const char *const text = js_string(chunk, &n);
        return di_reply_push_text(reply, 0, text, n, 1, err);
    }
    if (js_kind_of(chunk) == JS_OBJECT) {
        return push_with_logprobs(reply, chunk, err);
    }
    assert_true(n <= 4096);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)js_int(js_at(chunk, i));
    }
    return di_reply_push_ids(reply, 0, ids, n, NULL, err);
}

static di_finish finish_of(const js_value *value)
{
    const char *const name = js_string(value, NULL);
    return strcmp(name, "stop") == 0             ? DI_FINISH_STOP
           : strcmp(name, "length") == 0         ? DI_FINISH_LENGTH
           : strcmp(name, "content_filter") == 0 ? DI_FINISH_FILTER
                                                 : DI_FINISH_CUT;
}

static di_reply *open_reply(const line *l, const di_recipe *recipe, const di_request *request)
{
    const char *stops[16];
    size_t sizes[16];
    di_error err;
    di_reply *reply;
    const bool ready = js_kind_of(js_get(l->root, "usage")) == JS_ARRAY;
    const di_reply_options options = {.id = "R",
                                      .fingerprint = ready ? "fp" : NULL, /* comes with it there */
                                      .model = "DeepSeek-V4.1-Flash",
                                      .protocol = l->protocol,
                                      .output = out_options(js_get(l->root, "options"), stops, sizes)};
    if (di_reply_new(recipe, request, &options, &reply, &err) != DI_OK) {
        fail_msg("%s: %s", l->id, err.message);
    }
    return reply;
}

static void run(const line *l, di_reply *reply, bool at_once, reply_list *out)
{
    di_error err = {.message = ""};
    const js_value *const usage = js_get(l->root, "usage");
    const js_value *const chunks = js_get(l->root, "chunks");
    di_status status = DI_OK;
    if (js_kind_of(usage) == JS_ARRAY) {
        status = di_reply_ready(reply, js_int(js_at(usage, 0)), js_int(js_at(usage, 1)), &err);
    }
    for (size_t i = 0; i < js_length(chunks) && status == DI_OK; i++) {
        if (at_once) {
            reply_drain(out, reply);
        }
        status = push(reply, js_at(chunks, i), &err);
    }
    if (at_once) {
        reply_drain(out, reply);
    }
    if (status == DI_OK && di_reply_finished(reply, 0) == DI_FINISH_NONE) {
        status = di_reply_finish(reply, 0, finish_of(js_get(l->root, "finish")), &err);
    }
    reply_drain(out, reply);
    if (status != DI_OK) {
        fail_msg("%s: %s", l->id, err.message);
    }
}

static void expect_body(const line *l, di_reply *reply)
{
    const char *text;
    size_t n;
    char *const recorded = improved(l, js_get(l->root, "response"));
    char *const expected = reply_normal(recorded, strlen(recorded), l->cut);
    assert_int_equal(di_reply_body(reply, &text, &n, NULL), DI_OK);
    char *const got = reply_normal(text, n, false);
    if (strcmp(got, expected) != 0) {
        fail_msg("%s: the response is\n  %s\nexpected\n  %s", l->id, got, expected);
    }
    free(recorded);
    free(expected);
    free(got);
}

static void check_line(const line *l, const di_recipe *recipe)
{
    di_error err;
    di_request *request = NULL;
    const js_value *const body = js_get(l->root, "request");
    buf text;
    buf_init(&text, SIZE_MAX);
    if (js_kind_of(body) == JS_STRING) {
        buf_puts(&text, js_string(body, NULL));
    } else if (js_kind_of(body) == JS_OBJECT) {
        rec_json_value(&text, body, REC_JSON_COMPACT);
    }
    if (text.size != 0 && di_request_read(recipe, l->protocol, text.data, text.size, &request, &err) != DI_OK) {
        fail_msg("%s: %s", l->id, err.message);
    }
    reply_list expected = {.n = 0};
    expected_events(l, js_get(l->root, "events"), &expected);
    for (int at_once = 0; at_once < 2; at_once++) {
        reply_list got = {.n = 0};
        di_reply *const reply = open_reply(l, recipe, request);
        run(l, reply, at_once != 0, &got);
        reply_expect_same(l->id, &got, &expected);
        expect_body(l, reply);
        di_reply_free(reply);
        reply_list_free(&got);
    }
    reply_list_free(&expected);
    di_request_free(request);
    buf_fini(&text);
}

/* ---- files ---- */

static void check_file(const char *name, di_protocol protocol)
{
    out_lines lines;
    if (!out_lines_open(&lines, name)) {
        printf("%s: 0 passed, 0 skipped (the file is not there)\n", name);
        return;
    }
    size_t n_passed = 0;
    size_t n_ids = 0;
    size_t n_sentences = 0;
    for (const js_value *root; (root = out_lines_next(&lines)) != NULL;) {
        const char *const finish = js_string(js_get(root, "finish"), NULL);
        const line l = {.id = js_string(js_get(root, "id"), NULL),
                        .protocol = protocol,
                        .root = root,
                        .differs = js_string(js_get(root, "differs"), NULL),
                        .cut = strcmp(finish, "stop") != 0};
        const bool ids = out_needs_tokenizer(js_get(root, "chunks"));
        if (!is_known(l.differs)) {
            n_sentences++;
        } else if (ids && fixture.tokenizer == NULL) {
            n_ids++;
        } else {
            check_line(&l, ids ? fixture.recipe : text_only);
            n_passed++;
        }
    }
    assert_true(n_passed > 0);
    printf("%s: %zu passed, %zu skipped (%zu without the tokenizer, %zu differ by a sentence)\n", name, n_passed,
           n_ids + n_sentences, n_ids, n_sentences);
}

static void chat(void **state)
{
    (void)state;
    check_file("events_chat.jsonl", DI_CHAT);
}

static void responses(void **state)
{
    (void)state;
    check_file("events_responses.jsonl", DI_RESPONSES);
}

static void messages(void **state)
{
    (void)state;
    check_file("events_messages.jsonl", DI_MESSAGES);
}

static int open_all(void **state)
{
    text_only = out_recipe(NULL);
    return out_set_up_real(state);
}

static int close_all(void **state)
{
    di_recipe_close(text_only);
    return out_tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),
        cmocka_unit_test(responses),
        cmocka_unit_test(messages),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
