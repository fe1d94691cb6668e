/* outputs.jsonl: what the official package makes of generated text and ids. A field `differs` replaces the fields
 * it names; a line whose `differs` is a sentence is skipped. Text must not appear later than there by more than
 * one chunk. */
#include "out_support.h"

#define FILE_NAME "outputs.jsonl"

typedef struct line {
    const char *id;
    const js_value *root;
    const js_value *differs;
    bool json;
} line;

static const js_value *field(const line *l, const char *name)
{
    const js_value *const better = js_get(l->differs, name);
    return better != NULL ? better : js_get(l->root, name);
}

static void expect_text(const line *l, const char *name, const char *got, size_t n_got, const js_value *want)
{
    size_t n;
    const char *text = js_string(want, &n);
    if (l->json && strcmp(name, "content") == 0) {
        while (n > 0 && *text == ' ') {
            text++;
            n--;
        }
        while (n > 0 && text[n - 1] == ' ') {
            n--;
        }
        while (n_got > 0 && *got == ' ') {
            got++;
            n_got--;
        }
        while (n_got > 0 && got[n_got - 1] == ' ') {
            n_got--;
        }
    }
    if (n != n_got || (n != 0 && memcmp(text, got, n) != 0)) {
        fail_msg("%s: %s is \"%.*s\", expected \"%.*s\"", l->id, name, (int)n_got, n_got != 0 ? got : "", (int)n, text);
    }
}

static void expect_buf(const line *l, const char *name, const buf *got)
{
    expect_text(l, name, got->data, got->size, field(l, name));
}

static const char *messages_reason(di_finish finish)
{
    switch (finish) {
    case DI_FINISH_LENGTH: return "max_tokens";
    case DI_FINISH_FILTER: return "refusal";
    case DI_FINISH_STOP_STRING: return "stop_sequence";
    case DI_FINISH_TOOL_CALLS: return "tool_use";
    default: return "end_turn";
    }
}

static void expect_result(const line *l, const di_output *output, const out_result *r)
{
    expect_buf(l, "reasoning", &r->reasoning);
    expect_buf(l, "content", &r->text);
    const js_value *const calls = field(l, "calls");
    assert_int_equal(r->n_calls, js_length(calls));
    for (int i = 0; i < r->n_calls; i++) {
        const js_value *const call = js_at(calls, (size_t)i);
        expect_text(l, "name", r->names[i].data, r->names[i].size, js_at(call, 0));
        expect_text(l, "arguments", r->arguments[i].data, r->arguments[i].size, js_at(call, 1));
    }
    const char *const chat = out_finish_name(r->finish);
    const char *const messages = messages_reason(r->finish);
    expect_text(l, "finish_reason", chat, strlen(chat), field(l, "finish_reason"));
    expect_text(l, "stop_reason", messages, strlen(messages), field(l, "stop_reason"));
    if (js_kind_of(field(l, "stop_sequence")) == JS_STRING) {
        expect_buf(l, "stop_sequence", &r->stop);
    }
    di_usage usage;
    di_output_usage(output, &usage);
    if (usage.completion_tokens != js_int(field(l, "completion_tokens"))) {
        fail_msg("%s: %lld completion tokens", l->id, (long long)usage.completion_tokens);
    }
    assert_true(usage.reasoning_tokens >= 0 && usage.reasoning_tokens <= usage.completion_tokens);
}

/* Bytes that the package has given of each kind. */
typedef struct progress {
    size_t reasoning;
    size_t text;
    size_t arguments;
    int calls;
} progress;

static void add_pieces(const js_value *pieces, progress *p)
{
    for (size_t i = 0; i < js_length(pieces); i++) {
        const js_value *const piece = js_at(pieces, i);
        const char *const kind = js_string(js_at(piece, 0), NULL);
        if (strcmp(kind, "r") == 0) {
            p->reasoning += js_length(js_at(piece, 1));
        } else if (strcmp(kind, "t") == 0) {
            p->text += js_length(js_at(piece, 1));
        } else if (strcmp(kind, "a") == 0) {
            p->arguments += js_length(js_at(piece, 2));
        } else if (strcmp(kind, "call") == 0) {
            p->calls++;
        }
    }
}

/* `theirs` is what they had given one chunk before. */
static void expect_not_later(const line *l, size_t chunk, const progress *theirs, const out_result *r)
{
    if (l->json || l->differs != NULL) {
        return; /* another text */
    }
    if (r->reasoning.size < theirs->reasoning || r->text.size < theirs->text || r->n_arguments < theirs->arguments ||
        r->n_calls < theirs->calls) {
        fail_msg("%s: text is late after chunk %zu", l->id, chunk);
    }
}

static di_finish reason_of(const js_value *finish)
{
    const char *const name = js_string(finish, NULL);
    return strcmp(name, "stop") == 0     ? DI_FINISH_STOP
           : strcmp(name, "length") == 0 ? DI_FINISH_LENGTH
           : *name != '\0'               ? DI_FINISH_FILTER
                                         : DI_FINISH_CUT;
}

static void check_line(const line *l)
{
    const char *stops[16];
    size_t sizes[16];
    const di_output_options options = out_options(js_get(l->root, "options"), stops, sizes);
    const js_value *const chunks = js_get(l->root, "chunks");
    const js_value *const pieces = js_get(l->root, "pieces");
    const js_value *const ended_after = js_get(l->root, "ended_after");
    di_output *output = NULL;
    out_result result;
    progress theirs = {.text = 0};
    out_result_init(&result);
    assert_int_equal(di_output_new(fixture.recipe, &options, &output, NULL), DI_OK);
    for (size_t i = 0; i < js_length(chunks); i++) {
        assert_int_equal(out_push(output, js_at(chunks, i)), DI_OK);
        out_take(output, &result);
        expect_not_later(l, i, &theirs, &result);
        add_pieces(js_at(pieces, i), &theirs);
        if (ended_after != NULL && (result.n_finishes == 1) != (i + 1 >= (size_t)js_int(ended_after))) {
            fail_msg("%s: finished by itself at another chunk than %lld", l->id, (long long)js_int(ended_after));
        }
    }
    assert_int_equal(di_output_finish(output, reason_of(js_get(l->root, "finish")), NULL), DI_OK);
    out_take(output, &result);
    assert_int_equal(result.n_finishes, 1);
    expect_result(l, output, &result);
    out_result_fini(&result);
    di_output_free(output);
}

static void outputs(void **state)
{
    (void)state;
    size_t n_passed = 0;
    size_t n_sentences = 0;
    size_t n_ids = 0;
    out_lines lines;
    if (!out_lines_open(&lines, FILE_NAME)) {
        printf(FILE_NAME ": 0 passed, 1 skipped (the file is not there)\n");
        skip();
    }
    for (const js_value *root; (root = out_lines_next(&lines)) != NULL;) {
        const line l = {.id = js_string(js_get(root, "id"), NULL),
                        .root = root,
                        .differs = js_get(root, "differs"),
                        .json = js_bool(js_get(js_get(root, "options"), "json"))};
        if (js_kind_of(l.differs) == JS_STRING) {
            n_sentences++;
        } else if (fixture.tokenizer == NULL && out_needs_tokenizer(js_get(root, "chunks"))) {
            n_ids++;
        } else {
            check_line(&l);
            n_passed++;
        }
    }
    assert_true(n_passed > 0);
    printf(FILE_NAME ": %zu passed, %zu skipped (%zu without the tokenizer, %zu differ by a sentence)\n", n_passed,
           n_ids + n_sentences, n_ids, n_sentences);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs),
    };
    return cmocka_run_group_tests(tests, out_set_up_real, out_tear_down);
}
