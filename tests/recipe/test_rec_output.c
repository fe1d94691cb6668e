/* The output parser: each rule of recipe.md 4 with its value, as text and as ids of the demo model's tokenizer. */
#include "out_support.h"

#include "support/unit.h"

enum { END_THINK = 3069, DSML = 3070 }; /* of the demo model */

static const di_output_options plain = {.tools = false};
static const di_output_options tools = {.tools = true};
static const di_output_options thinking = {.stage = DI_STAGE_REASONING_START};
static const di_output_options thinking_tools = {.tools = true, .stage = DI_STAGE_REASONING_START};
static const di_output_options json = {.json = true};

static di_output *open_output(const di_output_options *options)
{
    di_output *output = NULL;
    di_error err;
    if (di_output_new(fixture.recipe, options, &output, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return output;
}

static void expect_line(const char *want, const out_result *r)
{
    buf line;
    buf_init(&line, SIZE_MAX);
    assert_string_equal(out_line(r, &line), want);
    buf_fini(&line);
}

/* The text at once and byte by byte. */
static void expect_reason(const di_output_options *options, const char *text, di_finish reason, const char *want)
{
    for (size_t step = strlen(text) + 1; step != 0; step = step == 1 ? 0 : 1) {
        di_output *const output = open_output(options);
        out_result r;
        out_result_init(&r);
        for (size_t i = 0; i < strlen(text); i += step) {
            const size_t left = strlen(text) - i;
            assert_int_equal(di_output_push_text(output, text + i, step < left ? step : left, 1, NULL), DI_OK);
            out_take(output, &r);
        }
        assert_int_equal(di_output_finish(output, reason, NULL), DI_OK);
        out_take(output, &r);
        assert_int_equal(r.n_finishes, 1);
        expect_line(want, &r);
        out_result_fini(&r);
        di_output_free(output);
    }
}

static void expect(const di_output_options *options, const char *text, const char *want)
{
    expect_reason(options, text, DI_FINISH_STOP, want);
}

static void newlines_at_the_start_are_dropped(void **state)
{
    (void)state;
    expect(&plain, "\n\nHello", "t:Hello|stop");
    expect(&plain, "\n", "stop");
    expect(&plain, " \nHello\n", "t: \nHello\n|stop");
    expect(&plain, "", "stop");
    const di_output_options continued = {.stage = DI_STAGE_CONTENT};
    expect(&continued, "\n\nHello", "t:\n\nHello|stop");
}

static void reasoning_ends_at_its_marker(void **state)
{
    (void)state;
    expect(&thinking, "\nthink\n\n</think>\n\nans", "r:think|t:ans|stop");
    expect(&thinking, "a\n<\n</think>b", "r:a\n<\n|t:b|stop");
    expect(&thinking, "a\r\n</think>\r\nb", "r:a\r|t:\r\nb|stop");
    expect(&thinking, "<think>a</think>b</think>\nc", "r:<think>a|t:b\nc|stop");
    expect(&thinking, "never closed\n</thin", "r:never closed\n</thin|stop");
    const di_output_options continued = {.stage = DI_STAGE_REASONING};
    expect(&continued, "\n\na</think>b", "r:\n\na|t:b|stop");
    expect(&plain, "a</think>\n\nb", "t:a\n\nb|stop");
}

static void both_dialects_of_calls_are_read(void **state)
{
    (void)state;
    expect(&thinking_tools,
           "plan\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"w\">\n"
           "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris</｜DSML｜ parameter>\n"
           "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
           "r:plan|w({\"city\": \"Paris\", \"days\": 3})|tool_calls");
    expect(&tools, "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n"
                   "<｜DSML｜parameter name=\"x\" string=\"true\"></｜DSML｜parameter>\n"
                   "<｜DSML｜parameter name=\"y\" string=\"false\">{\"k\":[1,2]}</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
                   "</｜DSML｜tool_calls>lost <｜DSML｜ calls>invoke name=\"h\"",
           "f({})|g({\"x\": \"\", \"y\": {\"k\":[1,2]}})|tool_calls");
    expect(&plain, "x\n\n<｜DSML｜ calls>", "t:x\n\n<｜DSML｜ calls>|stop");
    expect(&tools, "x <｜DSML｜oops no call", "t:x |stop");
    const di_output_options inside = {.tools = true, .in_tools = true};
    expect(&inside, "\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", "f({})|tool_calls");
}

static void values_become_json_text(void **state)
{
    (void)state;
    expect(&tools, "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"t\" string=\"true\">"
                   "l1\nsays \"hi\" \\p\t\x01\x7F <｜DSML｜tool_calls> "
                   "<b></b></｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>",
           "f({\"t\": \"l1\\nsays \\\"hi\\\" \\\\p\\t\\u0001\x7F <｜DSML｜tool_calls> <b></b>\"})|tool_calls");
    /* A name ends at its quote: blanks and markup belong to it. */
    expect(&tools, "<｜DSML｜ invoke name=\"f\">"
                   "<｜DSML｜ parameter name=\"shipping address string=\" string=\"true\">v</｜DSML｜></｜DSML｜>",
           "f({\"shipping address string=\": \"v\"})|tool_calls");
    expect(&tools, "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"false\"></｜DSML｜></｜DSML｜>",
           "f({\"a\": })|tool_calls");
}

static void stop_strings_end_the_answer(void **state)
{
    (void)state;
    const char *const stops[] = {"STOP", "xS"};
    const di_output_options two = {.stops = stops, .n_stops = 2};
    expect(&two, "abSTxSTOP tail", "t:abST|stop=xS");
    expect(&two, "abSTO", "t:abSTO|stop");
    const di_output_options reasoning = {.stops = stops, .n_stops = 2, .stage = DI_STAGE_REASONING_START};
    expect(&reasoning, "no STOP here</think>but STOP here", "r:no STOP here|t:but |stop=STOP");
    const di_output_options both = {.stops = stops, .n_stops = 2, .json = true};
    expect(&both, "STOP {\"a\":1}STOP tail", "t: {\"a\":1}|stop=STOP");
    const char *const binary[] = {"a\0b"};
    const size_t sizes[] = {3};
    const di_output_options sized = {.stops = binary, .stop_sizes = sizes, .n_stops = 1};
    expect(&sized, "xa", "t:xa|stop");
    di_output *const output = open_output(&sized);
    out_result r;
    out_result_init(&r);
    assert_int_equal(di_output_push_text(output, "xa\0by", 5, 7, NULL), DI_OK);
    out_take(output, &r);
    assert_string_equal(r.text.data, "x");
    assert_memory_equal(r.stop.data, "a\0b", 3);
    /* What comes behind is ignored, and the finish gives nothing more. */
    assert_int_equal(di_output_push_text(output, "more", 4, 1, NULL), DI_OK);
    assert_int_equal(di_output_finish(output, DI_FINISH_LENGTH, NULL), DI_OK);
    out_take(output, &r);
    assert_int_equal(r.n_finishes, 1);
    di_usage usage;
    di_output_usage(output, &usage);
    assert_int_equal(usage.completion_tokens, 7);
    out_result_fini(&r);
    di_output_free(output);
}

static void text_around_json_is_one_blank(void **state)
{
    (void)state;
    expect(&json, "pre {\"a\": 1} post", "t: {\"a\": 1} post|stop");
    expect(&json, "Here:\n```json\n{\"a\": 1}\n```\nDone", "t: {\"a\": 1} |stop");
    expect(&json, "\n\n[1]", "t:[1]|stop");
    expect(&json, "```\n{}\n```", "t:{}|stop");
}

static void what_the_end_cuts_off(void **state)
{
    (void)state;
    const char *const value = "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"t\" string=\"true\">Par</｜DSM";
    expect_reason(&tools, value, DI_FINISH_LENGTH, "f({\"t\": \"Par)|length");
    expect_reason(&tools, value, DI_FINISH_FILTER, "f({\"t\": \"Par)|content_filter");
    expect_reason(&tools, value, DI_FINISH_CUT, "f({\"t\": \"Par)|cut");
    expect_reason(&tools, value, DI_FINISH_STOP, "f({\"t\": \"Par</｜DSM)|tool_calls");
    expect_reason(&tools, "Paris.\n\n<｜DS", DI_FINISH_LENGTH, "t:Paris.\n\n<｜DS|length");
    expect_reason(&tools, "<｜DSML｜ invoke name=\"f", DI_FINISH_LENGTH, "length");
    expect_reason(&tools, "<｜DSML｜ invoke name=\"f\"></｜DSML｜", DI_FINISH_CUT, "f({})|tool_calls");
    expect_reason(&tools, "<｜DSML｜ invoke name=\"f\"></｜DSML｜ invoke>invoke name=\"", DI_FINISH_CUT, "f({})|cut");
    expect_reason(&tools, "just text", DI_FINISH_CUT, "t:just text|stop");
    expect_reason(&plain, "a\xE6\x9D", DI_FINISH_LENGTH, "t:a\xEF\xBF\xBD|length");
}

static void invalid_text_becomes_replacement_characters(void **state)
{
    (void)state;
    expect(&plain, "a\xFFz\xE6\x9D\xE6\x9D\xB1\xC0\x80",
           "t:a\xEF\xBF\xBDz\xEF\xBF\xBD\xE6\x9D\xB1\xEF\xBF\xBD\xEF\xBF\xBD|stop");
    expect(&thinking, "a\xF0\x9F</think>b", "r:a\xEF\xBF\xBD|t:b|stop");
}

static void only_a_possible_marker_is_held_back(void **state)
{
    (void)state;
    static const char *const chunks[] = {"ok <", "｜Ass", "istant｜> fine\n", "\n", "<｜DSML", "x"};
    static const char *const seen[] = {"ok ", "ok <｜Ass", "ok <｜Assistant｜> fine", "ok <｜Assistant｜> fine",
                                       "ok <｜Assistant｜> fine", "ok <｜Assistant｜> fine\n\n<｜DSMLx"};
    const di_output_options options = {.tools = true, .stage = DI_STAGE_CONTENT};
    di_output *const output = open_output(&options);
    out_result r;
    out_result_init(&r);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(di_output_push_text(output, chunks[i], strlen(chunks[i]), 1, NULL), DI_OK);
        out_take(output, &r);
        assert_string_equal(r.text.data, seen[i]);
    }
    out_result_fini(&r);
    di_output_free(output);
}

/* ---- ids ---- */

/* Feeds text whose markers are written "{D}" and "{T}" for the control ids; all else is encoded without added
 * tokens. */
static void push_spelled(di_output *output, const char *text, out_result *r)
{
    while (*text != '\0') {
        int32_t ids[256];
        size_t n = 1;
        const char *mark = text;
        while (*mark != '\0' && strncmp(mark, "{D}", 3) != 0 && strncmp(mark, "{T}", 3) != 0) {
            mark++;
        }
        if (mark == text) {
            ids[0] = text[1] == 'D' ? DSML : END_THINK;
            mark = text + 3;
        } else {
            assert_int_equal(di_tokenizer_encode(fixture.tokenizer, text, (size_t)(mark - text), 0, ids, 256, &n, NULL), DI_OK);
            assert_true(n <= 256);
        }
        assert_int_equal(di_output_push_ids(output, ids, n, NULL, NULL), DI_OK);
        out_take(output, r);
        text = mark;
    }
}

static void expect_ids(const di_output_options *options, const char *spelled, di_finish reason, const char *want)
{
    di_output *const output = open_output(options);
    out_result r;
    out_result_init(&r);
    push_spelled(output, spelled, &r);
    assert_int_equal(di_output_finish(output, reason, NULL), DI_OK);
    out_take(output, &r);
    expect_line(want, &r);
    out_result_fini(&r);
    di_output_free(output);
}

static void only_control_ids_are_markers(void **state)
{
    (void)state;
    expect_ids(&thinking, "Hello</think>Hello", DI_FINISH_STOP, "r:Hello</think>Hello|stop");
    expect_ids(&thinking, "Hello{T}\n\nHello", DI_FINISH_STOP, "r:Hello|t:Hello|stop");
    expect_ids(&thinking, "a\n<\n{T}b", DI_FINISH_STOP, "r:a\n<|t:b|stop");
    expect_ids(&tools, "\n\n<｜DSML｜ invoke name=\"f\">", DI_FINISH_STOP, "t:<｜DSML｜ invoke name=\"f\">|stop");
    expect_ids(&tools, "x\n<{D} invoke name=\"f\"><{D} parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>y"
                       "</{D} parameter></{D} invoke></{D} calls>z",
               DI_FINISH_STOP, "t:x|f({\"a\": \"x</｜DSML｜ parameter>y\"})|tool_calls");
    expect_ids(&plain, "a{D}b{T}c", DI_FINISH_STOP, "t:a｜DSML｜bc|stop");
    expect_ids(&tools, "{D}<b>{D}", DI_FINISH_STOP, "t:｜DSML｜<b>｜DSML｜|stop");
    const char *const stops[] = {"</think>"};
    const di_output_options stop = {.stops = stops, .n_stops = 1, .stage = DI_STAGE_CONTENT};
    expect_ids(&stop, "a{T}b</think>c", DI_FINISH_STOP, "t:ab|stop=</think>");
}

static void a_cut_value_loses_a_spelled_marker_too(void **state)
{
    (void)state;
    expect_ids(&tools, "<{D} invoke name=\"f\"><{D} parameter name=\"a\" string=\"false\">12</｜DSM", DI_FINISH_LENGTH,
               "f({\"a\": 12)|length");
    expect_ids(&tools, "<{D} invoke name=\"f\"><{D} parameter name=\"a\" string=\"false\">12</｜DSM", DI_FINISH_STOP,
               "f({\"a\": 12</｜DSM)|tool_calls");
}

/* Ids of the single bytes of a text. */
static size_t byte_ids(const char *text, int32_t *ids)
{
    size_t n = 0;
    for (; text[n] != '\0'; n++) {
        ids[n] = di_tokenizer_find(fixture.tokenizer, text + n, 1);
        assert_true(ids[n] >= 0);
    }
    return n;
}

static void split_characters_are_put_together(void **state)
{
    (void)state;
    int32_t ids[8];
    const size_t n = byte_ids("a\xF0\x9F\xA6\x80", ids);
    di_output *output = open_output(&plain);
    out_result r;
    out_result_init(&r);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(di_output_push_ids(output, &ids[i], 1, NULL, NULL), DI_OK);
        out_take(output, &r);
        assert_string_equal(r.text.data, i < n - 1 ? "a" : "a\xF0\x9F\xA6\x80");
    }
    const int32_t strange[] = {ids[1], -7, 1 << 30, ids[2], END_THINK, ids[1]};
    assert_int_equal(di_output_push_ids(output, strange, 6, NULL, NULL), DI_OK);
    assert_int_equal(di_output_finish(output, DI_FINISH_LENGTH, NULL), DI_OK);
    out_take(output, &r);
    di_usage usage;
    di_output_usage(output, &usage);
    assert_int_equal(usage.completion_tokens, n + 6);
    out_result_fini(&r);
    di_output_free(output);

    /* The end of the input completes what is there, and the ids count. */
    output = open_output(&plain);
    out_result_init(&r);
    assert_int_equal(di_output_push_ids(output, ids, 3, NULL, NULL), DI_OK);
    out_take(output, &r);
    assert_int_equal(di_output_finish(output, DI_FINISH_LENGTH, NULL), DI_OK);
    out_take(output, &r);
    expect_line("t:a\xEF\xBF\xBD|length", &r);
    di_output_usage(output, &usage);
    assert_int_equal(usage.completion_tokens, 3);
    out_result_fini(&r);
    di_output_free(output);
}

static void logprobs_go_with_the_text_of_their_ids(void **state)
{
    (void)state;
    int32_t ids[64];
    di_token_logprob top[64];
    di_token_logprobs logprobs[64];
    size_t n = byte_ids("\nr\n", ids);
    ids[n++] = END_THINK;
    n += byte_ids("\n\xF0\x9F\xA6\x80" "b\n<", ids + n);
    ids[n++] = DSML;
    n += byte_ids("invoke name=\"f\"", ids + n);
    for (size_t i = 0; i < n; i++) {
        top[i] = (di_token_logprob){.id = ids[i], .logprob = -2.0F};
        logprobs[i] = (di_token_logprobs){.id = (int32_t)i, .logprob = -1.0F, .n_top = 1, .top = &top[i]};
    }
    for (size_t step = 1; step <= n; step++) {
        di_output *const output = open_output(&thinking_tools);
        out_result r;
        out_result_init(&r);
        for (size_t i = 0; i < n; i += step) {
            const size_t left = n - i;
            assert_int_equal(di_output_push_ids(output, ids + i, step < left ? step : left, logprobs + i, NULL), DI_OK);
            out_take(output, &r);
        }
        assert_int_equal(di_output_finish(output, DI_FINISH_STOP, NULL), DI_OK);
        out_take(output, &r);
        expect_line("r:r|t:\xF0\x9F\xA6\x80" "b|f()|tool_calls", &r);
        assert_string_equal(r.logprobs.data, "r1 t5 t6 t7 t8 t9 ");
        out_result_fini(&r);
        di_output_free(output);
    }
}

static void alternatives_are_copied(void **state)
{
    (void)state;
    int32_t ids[2];
    byte_ids("<a", ids);
    di_output *const output = open_output(&thinking_tools);
    for (int i = 0; i < 2; i++) {
        di_token_logprob top[2] = {{.id = 10 + i, .logprob = -0.5F}, {.id = 20 + i, .logprob = -1.5F}};
        const di_token_logprobs one = {.id = ids[i], .logprob = -0.25F, .n_top = 2, .top = top};
        assert_int_equal(di_output_push_ids(output, &ids[i], 1, &one, NULL), DI_OK);
        memset(top, 0, sizeof top);
    }
    di_piece p;
    assert_true(di_output_next(output, &p));
    assert_int_equal(p.kind, DI_PIECE_REASONING);
    assert_int_equal(p.size, 2);
    assert_int_equal(p.n_logprobs, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(p.logprobs[i].id, ids[i]);
        assert_true(p.logprobs[i].logprob == -0.25F);
        assert_int_equal(p.logprobs[i].n_top, 2);
        assert_int_equal(p.logprobs[i].top[0].id, 10 + i);
        assert_int_equal(p.logprobs[i].top[1].id, 20 + i);
        assert_true(p.logprobs[i].top[1].logprob == -1.5F);
    }
    assert_false(di_output_next(output, &p));
    di_output_free(output);
}

static void reasoning_tokens_are_those_of_the_reasoning(void **state)
{
    (void)state;
    int32_t ids[16];
    size_t n = byte_ids("abc", ids);
    ids[n++] = END_THINK;
    n += byte_ids("de", ids + n);
    di_output *output = open_output(&thinking);
    di_usage usage;
    assert_int_equal(di_output_push_ids(output, ids, n, NULL, NULL), DI_OK);
    di_output_usage(output, &usage);
    assert_int_equal(usage.completion_tokens, 6);
    assert_int_equal(usage.reasoning_tokens, 4);
    di_output_free(output);
    output = open_output(&thinking);
    assert_int_equal(di_output_push_text(output, "abc", 3, 5, NULL), DI_OK);
    assert_int_equal(di_output_push_text(output, "</think>", 8, 1, NULL), DI_OK);
    assert_int_equal(di_output_push_text(output, "de", 2, 3, NULL), DI_OK);
    di_output_usage(output, &usage);
    assert_int_equal(usage.completion_tokens, 9);
    assert_int_equal(usage.reasoning_tokens, 6);
    assert_int_equal(usage.prompt_tokens, 0);
    di_output_free(output);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    di_error err;
    di_output *output = NULL;
    const char *stops[17];
    for (int i = 0; i < 17; i++) {
        stops[i] = "x";
    }
    di_output_options options = {.stops = stops, .n_stops = 17};
    unit_expect_error(di_output_new(fixture.recipe, &options, &output, &err), DI_E_ARGUMENT, &err, "17 stop strings", NULL);
    options.n_stops = 2;
    stops[1] = "";
    unit_expect_error(di_output_new(fixture.recipe, &options, &output, &err), DI_E_ARGUMENT, &err, "1 is empty", NULL);
    stops[1] = "\x80";
    unit_expect_error(di_output_new(fixture.recipe, &options, &output, &err), DI_E_ARGUMENT, &err, "1 is not UTF-8", NULL);
    assert_null(output);

    const int32_t id = 5;
    output = open_output(&plain);
    assert_int_equal(di_output_push_text(output, "a", 1, 1, &err), DI_OK);
    unit_expect_error(di_output_push_ids(output, &id, 1, NULL, &err), DI_E_STATE, &err, "text or ids", NULL);
    unit_expect_error(di_output_push_text(output, "a", 1, -1, &err), DI_E_ARGUMENT, &err, "-1 tokens", NULL);
    unit_expect_error(di_output_finish(output, DI_FINISH_TOOL_CALLS, &err), DI_E_ARGUMENT, &err, "stop, length", NULL);
    assert_int_equal(di_output_finish(output, DI_FINISH_STOP, &err), DI_OK);
    unit_expect_error(di_output_push_text(output, "a", 1, 1, &err), DI_E_STATE, &err, "finished", NULL);
    unit_expect_error(di_output_finish(output, DI_FINISH_STOP, &err), DI_E_STATE, &err, "finished", NULL);
    di_output_free(output);

    di_recipe *const bare = out_recipe(NULL);
    assert_int_equal(di_output_new(bare, &plain, &output, &err), DI_OK);
    unit_expect_error(di_output_push_ids(output, &id, 1, NULL, &err), DI_E_STATE, &err, "tokenizer", NULL);
    di_output_free(output);
    di_output_free(NULL);
    di_recipe_close(bare);
}

/* A megabyte that stays a possible match to the end costs no more than any other. */
static void long_runs_are_linear(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *const text = malloc(N + 1);
    assert_non_null(text);
    memset(text, 'a', N);
    text[N - 1] = 'b';
    text[N] = '\0';
    const char *const stops[] = {text};
    const di_output_options options = {.tools = true, .stage = DI_STAGE_CONTENT, .stops = stops, .n_stops = 1};
    di_output *output = open_output(&options);
    out_result r;
    out_result_init(&r);
    for (int i = 0; i < N + 1000; i++) {
        assert_int_equal(di_output_push_text(output, "a", 1, 1, NULL), DI_OK);
        out_take(output, &r);
    }
    assert_int_equal(r.text.size, 1001);
    assert_int_equal(di_output_push_text(output, "b", 1, 1, NULL), DI_OK);
    out_take(output, &r);
    assert_int_equal(r.finish, DI_FINISH_STOP_STRING);
    assert_int_equal(r.text.size, 1001);
    out_result_fini(&r);
    di_output_free(output);
    output = open_output(&tools);
    out_result_init(&r);
    assert_int_equal(di_output_push_text(output, "x", 1, 1, NULL), DI_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(di_output_push_text(output, "\n", 1, 1, NULL), DI_OK);
    }
    assert_int_equal(di_output_push_text(output, "y", 1, 1, NULL), DI_OK);
    out_take(output, &r);
    assert_int_equal(r.text.size, N + 1); /* "x" was in the first call, whose pieces nobody took */
    out_result_fini(&r);
    di_output_free(output);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newlines_at_the_start_are_dropped),
        cmocka_unit_test(reasoning_ends_at_its_marker),
        cmocka_unit_test(both_dialects_of_calls_are_read),
        cmocka_unit_test(values_become_json_text),
        cmocka_unit_test(stop_strings_end_the_answer),
        cmocka_unit_test(text_around_json_is_one_blank),
        cmocka_unit_test(what_the_end_cuts_off),
        cmocka_unit_test(invalid_text_becomes_replacement_characters),
        cmocka_unit_test(only_a_possible_marker_is_held_back),
        cmocka_unit_test(only_control_ids_are_markers),
        cmocka_unit_test(a_cut_value_loses_a_spelled_marker_too),
        cmocka_unit_test(split_characters_are_put_together),
        cmocka_unit_test(logprobs_go_with_the_text_of_their_ids),
        cmocka_unit_test(alternatives_are_copied),
        cmocka_unit_test(reasoning_tokens_are_those_of_the_reasoning),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(long_runs_are_linear),
    };
    return cmocka_run_group_tests(tests, out_set_up_demo, out_tear_down);
}
