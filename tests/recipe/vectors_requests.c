/* requests_{chat,responses,messages}.jsonl: what the official package makes of request bodies, over the public interface alone.
 *
 * A line with `differs` is one where we do better: when the package refuses, the request must be read; when only the parser's stage
 * differs, the rest is compared; else what the sentence may speak of (prompt, limit, constraint) is left to the unit tests. */
#include "out_support.h"

#define CONTEXT 1048576

enum { T_V41_RECIPE, T_V41, T_V4, N_TOKENIZERS };

static di_tokenizer *tokenizers[N_TOKENIZERS];

typedef struct line {
    const char *id;
    const js_value *root;
    const char *differs; /* NULL = none */
    bool values_differ;
} line;

#define EXPECT(l, condition, ...)                                                                                                      \
    do {                                                                                                                               \
        if (!(condition)) {                                                                                                            \
            char text_[2048];                                                                                                          \
            (void)snprintf(text_, sizeof text_, __VA_ARGS__);                                                                          \
            fail_msg("%s: %s", (l)->id, text_);                                                                                        \
        }                                                                                                                              \
    } while (0)

/* ---- options ---- */

static di_recipe *open_recipe(const js_value *options, const di_tokenizer *tokenizer)
{
    const js_value *const aliases = js_get(options, "aliases");
    const js_value *const thinking = js_get(options, "default_thinking");
    di_model_alias alias[4];
    di_recipe_options o = {.thinking_off = js_kind_of(thinking) == JS_BOOL && !js_bool(thinking),
                           .reject_missing_reasoning = js_kind_of(js_get(options, "missing_reasoning")) == JS_STRING,
                           .reject_responses_web_search = js_kind_of(js_get(options, "responses_web_search")) == JS_STRING,
                           .drop_messages_web_search = js_kind_of(js_get(options, "messages_web_search")) == JS_STRING,
                           .max_tokens_bound = (uint32_t)js_int(js_get(options, "max_tokens_bound")),
                           .aliases = alias,
                           .n_aliases = js_length(aliases)};
    if (js_kind_of(js_get(options, "image_token")) == JS_STRING) {
        o.image_token = js_string(js_get(options, "image_token"), NULL);
    }
    assert_true(o.n_aliases <= 4);
    for (size_t i = 0; i < o.n_aliases; i++) {
        const js_value *const version = js_member(aliases, i, &alias[i].name);
        alias[i].version = strcmp(js_string(version, NULL), "v4") == 0 ? DI_V4 : DI_V41;
    }
    di_recipe *recipe = NULL;
    di_error err;
    if (di_recipe_open(tokenizer, &o, &recipe, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return recipe;
}

static const di_tokenizer *tokenizer_of(const js_value *root)
{
    if (strcmp(js_string(js_get(root, "version"), NULL), "v4") == 0) {
        return tokenizers[T_V4];
    }
    return js_get(js_get(root, "options"), "image_token") != NULL ? tokenizers[T_V41] : tokenizers[T_V41_RECIPE];
}

/* ---- refusals ---- */

static void expect_refusal(const line *l, const js_value *error, di_status status, const di_error *err)
{
    static const char *const by_library[] = {"Invalid schema for function '", "Invalid json schema: "};
    const char *const want = js_string(js_get(error, "message"), NULL);
    EXPECT(l, status != DI_OK, "read, but the package refuses it: %s", want);
    EXPECT(l, di_recipe_http_status(status) == 400, "refused with %s: %s", di_status_name(status), err->message);
    if (strcmp(js_string(js_get(error, "phase"), NULL), "parse") == 0) {
        EXPECT(l, err->message[0] != '\0', "no message");
        return;
    }
    size_t n = strlen(want);
    for (size_t i = 0; i < 2; i++) {
        const char *const named = strstr(want, "': ");
        if (strncmp(want, by_library[i], strlen(by_library[i])) == 0 && strstr(want, "got 'type: ") == NULL) {
            n = i == 0 && named != NULL ? (size_t)(named - want) + 3 : strlen(by_library[i]);
        }
    }
    const bool whole = n == strlen(want);
    n = n < sizeof err->message - 4 ? n : sizeof err->message - 4; /* longer messages are cut */
    EXPECT(l, strncmp(err->message, want, n) == 0 && (!whole || strlen(want) > n || err->message[n] == '\0'), "\"%s\", expected \"%s\"",
           err->message, want);
}

/* ---- prompts ---- */

static void expect_prompt(const line *l, const di_request *r)
{
    size_t n;
    size_t n_want;
    const char *const prompt = di_request_prompt(r, &n);
    const char *const want = js_string(js_get(l->root, "prompt"), &n_want);
    EXPECT(l, n == n_want && memcmp(prompt, want, n) == 0, "prompt is\n%.900s\nexpected\n%.900s", prompt, want);
    const js_value *const special = js_get(l->root, "special");
    const di_range *const ranges = di_request_control_ranges(r, &n);
    EXPECT(l, n == js_length(special), "%zu control ranges, expected %zu", n, js_length(special));
    for (size_t i = 0; i < n; i++) {
        EXPECT(l, ranges[i].begin == (size_t)js_int(js_at(js_at(special, i), 0)) && ranges[i].end == (size_t)js_int(js_at(js_at(special, i), 1)),
               "control range %zu is %zu-%zu", i, ranges[i].begin, ranges[i].end);
    }
}

static void expect_ids(const line *l, const di_request *r)
{
    const js_value *const want = js_get(l->root, "ids");
    size_t n_prompt;
    size_t n = 0;
    di_request_prompt(r, &n_prompt);
    int32_t *const ids = calloc(n_prompt + 1, sizeof *ids);
    di_error err;
    const di_status status = di_request_encode(r, 1, ids, n_prompt + 1, &n, &err);
    EXPECT(l, status == DI_OK, "%s", err.message);
    EXPECT(l, n == js_length(want), "%zu ids, expected %zu", n, js_length(want));
    for (size_t i = 0; i < n; i++) {
        EXPECT(l, ids[i] == js_int(js_at(want, i)), "id %zu is %d, expected %lld", i, ids[i], (long long)js_int(js_at(want, i)));
    }
    free(ids);
}

static void expect_images(const line *l, const di_request *r)
{
    static const char *const kinds[] = {"url", "data_url", "bytes"};
    static const char *const details[] = {"high", "low", "original", "auto"};
    const js_value *const want = js_get(l->root, "images");
    size_t n;
    const di_image_ref *const images = di_request_images(r, &n);
    EXPECT(l, n == js_length(want), "%zu images, expected %zu", n, js_length(want));
    for (size_t i = 0; i < n; i++) {
        const js_value *const image = js_at(want, i);
        size_t n_ref;
        const char *const ref = js_string(js_get(image, "ref"), &n_ref);
        EXPECT(l, strcmp(kinds[images[i].kind], js_string(js_get(image, "kind"), NULL)) == 0, "kind of image %zu", i);
        EXPECT(l, strcmp(details[images[i].detail], js_string(js_get(image, "detail"), NULL)) == 0, "detail of image %zu", i);
        EXPECT(l, images[i].size == n_ref && memcmp(images[i].data, ref, n_ref) == 0, "image %zu is %.80s, expected %.80s", i,
               images[i].data, ref);
    }
}

/* ---- settings ---- */

/* 32-bit floats are written with 9 digits. */
static void expect_float(const line *l, const char *name, float got, const js_value *want)
{
    EXPECT(l, got == (float)js_number(want), "%s is %.9g, expected %.9g", name, (double)got, js_number(want));
}

/* null is `absent`. */
static void expect_int(const line *l, const char *name, int64_t got, int64_t absent, const js_value *want)
{
    const int64_t value = js_kind_of(want) == JS_NULL ? absent : js_int(want);
    EXPECT(l, got == value, "%s is %lld, expected %lld", name, (long long)got, (long long)value);
}

static void expect_constraint(const line *l, const di_inference *i, const js_value *want)
{
    static const char *const names[] = {"", "json", "regex", "tool_call", "tool_call_required"};
    if (js_kind_of(want) == JS_NULL) {
        EXPECT(l, i->constraint == DI_CONSTRAINT_NONE, "a constraint: %s", i->constraint_text);
        return;
    }
    size_t n;
    const char *const text = js_string(js_at(want, 1), &n);
    EXPECT(l, strcmp(names[i->constraint], js_string(js_at(want, 0), NULL)) == 0, "constraint %s", names[i->constraint]);
    EXPECT(l, i->constraint_size == n && memcmp(i->constraint_text, text, n) == 0, "constraint is\n%.900s\nexpected\n%.900s",
           i->constraint_text, text);
}

static void expect_inference(const line *l, const di_inference *i)
{
    const js_value *const want = js_get(l->root, "inference");
    expect_float(l, "temperature", i->temperature, js_get(want, "temperature"));
    expect_float(l, "top_p", i->top_p, js_get(want, "top_p"));
    EXPECT(l, i->logprobs == js_bool(js_get(want, "logprobs")), "logprobs");
    expect_int(l, "top_logprobs", i->top_logprobs, -1, js_get(want, "top_logprobs"));
    EXPECT(l, i->has_seed == (js_kind_of(js_get(want, "seed")) != JS_NULL), "seed");
    expect_int(l, "seed", (int64_t)i->seed, 0, js_get(want, "seed"));
    if (!l->values_differ) {
        expect_constraint(l, i, js_get(want, "constraint"));
        expect_int(l, "max_tokens", i->max_tokens, -1, js_get(want, "max_tokens"));
    }
}

static void expect_output(const line *l, const di_output_options *o)
{
    static const char *const stages[] = {"", "reasoning_start", "reasoning", "content"};
    const js_value *const want = js_get(l->root, "parsing");
    const js_value *const stops = js_get(want, "stop");
    const bool stage_differs = l->differs != NULL && strcmp(l->differs, "parsing.stage is content") == 0;
    EXPECT(l, o->tools == js_bool(js_get(want, "tools")), "tools");
    EXPECT(l, o->in_tools == js_bool(js_get(want, "in_tools")), "in_tools");
    EXPECT(l, o->json == js_bool(js_get(want, "json")), "json");
    EXPECT(l, strcmp(stages[o->stage], stage_differs ? "content" : js_string(js_get(want, "stage"), NULL)) == 0, "stage %s",
           stages[o->stage]);
    EXPECT(l, o->n_stops == js_length(stops), "%zu stops", o->n_stops);
    for (size_t i = 0; i < o->n_stops; i++) {
        size_t n;
        const char *const text = js_string(js_at(stops, i), &n);
        EXPECT(l, n == o->stop_sizes[i] && memcmp(text, o->stops[i], n) == 0, "stop %zu", i);
    }
}

static void expect_limit(const line *l, const di_request *r)
{
    const js_value *const want = js_get(l->root, "max_tokens_1m");
    int64_t got = 0;
    di_error err;
    const di_status status = di_request_max_tokens(r, (int64_t)js_length(js_get(l->root, "ids")), CONTEXT, &got, &err);
    if (js_kind_of(want) == JS_INT) {
        EXPECT(l, status == DI_OK && got == js_int(want), "max_tokens of a long context is %lld", (long long)got);
    } else {
        EXPECT(l, status == DI_E_ARGUMENT && strstr(js_string(want, NULL), err.message) != NULL, "too many tokens: \"%s\"", err.message);
    }
}

/* ---- lines ---- */

static void check_line(const line *l, di_protocol protocol, bool with_ids)
{
    const js_value *const error = js_get(l->root, "error");
    di_recipe *const recipe = open_recipe(js_get(l->root, "options"), with_ids ? tokenizer_of(l->root) : NULL);
    size_t n;
    const char *const body = js_string(js_get(l->root, "request"), &n);
    di_request *r = NULL;
    di_error err = {.code = DI_OK};
    const di_status status = di_request_read(recipe, protocol, body, n, &r, &err);
    if (error != NULL && l->differs == NULL) {
        expect_refusal(l, error, status, &err);
    } else {
        EXPECT(l, status == DI_OK, "%s", err.message);
    }
    if (error == NULL) {
        EXPECT(l, di_request_version(r) == (strcmp(js_string(js_get(l->root, "version"), NULL), "v4") == 0 ? DI_V4 : DI_V41), "version");
        if (!l->values_differ) {
            expect_prompt(l, r);
            expect_images(l, r);
            expect_limit(l, r);
        }
        if (with_ids && !l->values_differ) {
            expect_ids(l, r);
        }
        expect_inference(l, di_request_inference(r));
        expect_output(l, di_request_output(r));
        EXPECT(l, di_request_stream(r) == js_bool(js_get(l->root, "stream")), "stream");
    }
    di_request_free(r);
    di_recipe_close(recipe);
}

static void check_file(const char *name, di_protocol protocol)
{
    size_t n_passed = 0;
    size_t n_without = 0;
    out_lines lines;
    if (!out_lines_open(&lines, name)) {
        printf("%s: 0 passed, 1 skipped (not there)\n", name);
        return;
    }
    for (const js_value *root; (root = out_lines_next(&lines)) != NULL;) {
        const js_value *const differs = js_get(root, "differs");
        line l = {.id = js_string(js_get(root, "id"), NULL), .root = root};
        if (differs != NULL) {
            l.differs = js_string(differs, NULL);
            l.values_differ = strcmp(l.differs, "parsing.stage is content") != 0;
        }
        const bool with_ids = tokenizer_of(root) != NULL;
        check_line(&l, protocol, with_ids);
        n_passed++;
        n_without += with_ids ? 0 : 1;
    }
    assert_true(n_passed > 0);
    printf("%s: %zu passed, 0 skipped (%zu without their tokenizer: ids not compared)\n", name, n_passed, n_without);
}

static void chat(void **state)
{
    (void)state;
    check_file("requests_chat.jsonl", DI_CHAT);
}

static void responses(void **state)
{
    (void)state;
    check_file("requests_responses.jsonl", DI_RESPONSES);
}

static void messages(void **state)
{
    (void)state;
    check_file("requests_messages.jsonl", DI_MESSAGES);
}

static int open_all(void **state)
{
    static const char *const names[N_TOKENIZERS] = {"v41_recipe", "v41", "v4"};
    (void)state;
    for (int i = 0; i < N_TOKENIZERS; i++) {
        tokenizers[i] = out_tokenizer_named(names[i]);
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < N_TOKENIZERS; i++) {
        di_tokenizer_close(tokenizers[i]);
    }
    return 0;
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
