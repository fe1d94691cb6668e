/* What a client puts together from the events of a reply is what the whole response says, and both are what the output parser gives:
 * for generated outputs full of markers, in every protocol, however the output is cut and whenever events are taken; with requests
 * too, whose answers have several choices, custom tools, namespaces and a tool search. Numbers and indices have no gaps. */
#include "reply_gather.h"

#include "recipe/rec_reply_int.h"

enum { MAX_TEXT = 500, ROUNDS = 3000 };

/* ---- generated outputs ---- */

static const char *const fragments[] = {
    "</think>", "\n\n</think>\n\n", "\n\n<｜DSML｜ calls>\n", "</｜DSML｜ calls>", "</｜DSML｜", "<｜DSML｜", "</think",
    "<｜DSML｜ invoke name=\"f\">\n", "<｜DSML｜ invoke name=\"apply_patch\">\n", "<｜DSML｜ invoke name=\"maps::find\">\n",
    "<｜DSML｜ invoke name=\"x::y\">\n", "<｜DSML｜ invoke name=\"tool_search\">\n", "</｜DSML｜ invoke>\n",
    "<｜DSML｜ parameter name=\"input\" string=\"true\">", "<｜DSML｜ parameter name=\"k\" string=\"false\">",
    "<｜DSML｜ parameter name=\"input\" string=\"true\">*** Begin\n+\"a\\b\"</｜DSML｜ parameter>\n",
    "<｜DSML｜ parameter name=\"n\" string=\"false\">[1, 2.50, {\"a\": null}]</｜DSML｜ parameter>\n", "</｜DSML｜ parameter>\n",
    "END", "EN", "{\"a\": 1}", "\"", "\\", "\\u00", "\n", "\t", "word ", "日本", "🦀", "\x01", "\xFF", "\xE6\x97",
};

static size_t generate(uint64_t *seed, char *text)
{
    const size_t limit = unit_random(seed) % (MAX_TEXT - 100);
    size_t n = 0;
    while (n < limit) {
        const char *const part = fragments[unit_random(seed) % (sizeof fragments / sizeof *fragments)];
        memcpy(text + n, part, strlen(part));
        n += strlen(part);
    }
    return n;
}

static di_output_options random_options(uint64_t *seed)
{
    static const char *const stops[] = {"END", "a日"};
    const uint64_t r = unit_random(seed);
    return (di_output_options){.tools = r % 4 != 0, .in_tools = r % 32 == 7, .json = (r >> 8) % 6 == 0,
                               .stage = (di_output_stage)((r >> 16) % 4), .stops = stops, .n_stops = (r >> 32) % 3};
}

/* ---- what is expected ---- */

static const char *chat_words(di_finish finish)
{
    return finish == DI_FINISH_STOP_STRING ? "stop" : out_finish_name(finish);
}

static const char *responses_words(di_finish finish)
{
    switch (finish) {
    case DI_FINISH_LENGTH:
        return "incompletemax_output_tokens";
    case DI_FINISH_FILTER:
        return "incompletecontent_filter";
    case DI_FINISH_CUT:
        return "failed";
    default:
        return "completed";
    }
}

static const char *messages_words(di_finish finish)
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
    case DI_FINISH_CUT:
        return "failed";
    default:
        return "end_turn";
    }
}

static void set_words(out_result *r, di_protocol protocol)
{
    buf words;
    buf_init(&words, SIZE_MAX);
    buf_puts(&words, protocol == DI_CHAT ? chat_words(r->finish) : protocol == DI_RESPONSES ? responses_words(r->finish)
                                                                                            : messages_words(r->finish));
    if (protocol == DI_MESSAGES) {
        buf_append(&words, r->stop.data, r->stop.size); /* empty but for a stop string */
    }
    buf_fini(&r->stop);
    r->stop = words;
}

static void make_object(buf *arguments)
{
    buf object;
    buf_init(&object, SIZE_MAX);
    rec_put_object(&object, arguments);
    buf_fini(arguments);
    *arguments = object;
}

static void make_input(buf *arguments)
{
    rec_custom_input c;
    buf input;
    rec_custom_init(&c);
    buf_init(&input, SIZE_MAX);
    assert_true(rec_custom_feed(&c, arguments->data, arguments->size, &input) && rec_custom_end(&c, &input));
    rec_custom_fini(&c);
    buf_fini(arguments);
    *arguments = input;
}

static bool is_named(const buf *name, const char *text)
{
    return name->size == strlen(text) && memcmp(name->data, text, name->size) == 0;
}

/* Arguments as Responses shows them. */
static void show_arguments(out_result *r)
{
    for (int i = 0; i < r->n_calls; i++) {
        if (is_named(&r->names[i], "apply_patch")) {
            make_input(&r->arguments[i]);
        } else if (is_named(&r->names[i], "tool_search")) {
            make_object(&r->arguments[i]);
        }
    }
}

/* ---- one reply ---- */

typedef struct job {
    const di_request *request; /* NULL: options */
    di_protocol protocol;
    di_output_options options;
    int32_t n;                 /* choices */
    char text[GATHER_CHOICES][MAX_TEXT];
    size_t size[GATHER_CHOICES];
    di_finish reason[GATHER_CHOICES];
} job;

static void parse_alone(const job *j, int32_t choice, out_result *r)
{
    di_output *output = NULL;
    assert_int_equal(di_output_new(fixture.recipe, &j->options, &output, NULL), DI_OK);
    out_result_init(r);
    assert_int_equal(di_output_push_text(output, j->text[choice], j->size[choice], 1, NULL), DI_OK);
    out_take(output, r);
    if (di_output_finished(output) == DI_FINISH_NONE) {
        assert_int_equal(di_output_finish(output, j->reason[choice], NULL), DI_OK);
        out_take(output, r);
    }
    di_output_free(output);
}

static void take_some(di_reply *reply, const job *j, gathered *g, uint64_t how)
{
    di_event event;
    for (uint64_t i = 0; i < how && di_reply_next_event(reply, &event); i++) {
        assert_int_equal(strlen(event.data), event.size);
        gather_event(g, j->protocol, &event);
    }
}

static void run(const job *j, di_reply *reply, gathered *g, uint64_t *seed)
{
    static const uint64_t amounts[] = {0, 1, 3, UINT64_MAX};
    const uint64_t most = 1 + unit_random(seed) % 60;
    const bool lazy = unit_random(seed) % 4 == 0;
    size_t at[GATHER_CHOICES] = {0};
    if (unit_random(seed) % 2 != 0) {
        assert_int_equal(di_reply_ready(reply, 10, 3, NULL), DI_OK);
    }
    for (int32_t open = j->n; open > 0;) {
        const int32_t c = (int32_t)(unit_random(seed) % (uint64_t)j->n);
        const size_t left = j->size[c] - at[c];
        const size_t size = 1 + unit_random(seed) % most < left ? 1 + unit_random(seed) % most : left;
        if (di_reply_finished(reply, c) != DI_FINISH_NONE) {
            open = di_reply_finished(reply, c) == DI_FINISH_CUT ? 0 : open;
        } else if (left == 0) {
            assert_int_equal(di_reply_finish(reply, c, j->reason[c], NULL), DI_OK);
            open--;
        } else {
            const size_t fits = size < left ? size : left;
            assert_int_equal(di_reply_push_text(reply, c, j->text[c] + at[c], fits, 1, NULL), DI_OK);
            at[c] += fits;
            open -= di_reply_finished(reply, c) != DI_FINISH_NONE ? 1 : 0;
        }
        take_some(reply, j, g, lazy ? 0 : amounts[unit_random(seed) % 4]);
    }
    take_some(reply, j, g, UINT64_MAX);
}

static void expect_gathered(const job *j, const gathered *stream, const gathered *body)
{
    for (int32_t c = 0; c < j->n && !stream->failed; c++) {
        out_result alone;
        parse_alone(j, c, &alone);
        set_words(&alone, j->protocol);
        alone.finish = DI_FINISH_NONE; /* its words are compared */
        if (j->protocol == DI_RESPONSES && j->request != NULL) {
            show_arguments(&alone);
        }
        out_expect_same(&stream->of[c], &alone, "the stream and the output");
        for (int i = 0; i < alone.n_calls && j->protocol == DI_MESSAGES; i++) {
            make_object(&alone.arguments[i]);
        }
        out_expect_same(&body->of[c], &alone, "the body and the output");
        out_result_fini(&alone);
    }
    if (!stream->failed && j->protocol == DI_RESPONSES) {
        assert_string_equal(stream->final, body->final);
    }
}

static bool some_cut(const job *j)
{
    bool cut = false;
    for (int32_t c = 0; c < j->n; c++) {
        out_result alone;
        parse_alone(j, c, &alone);
        cut = cut || alone.finish == DI_FINISH_CUT;
        out_result_fini(&alone);
    }
    return cut;
}

static void check(const job *j, uint64_t *seed)
{
    const di_reply_options options = {
        .id = "R", .model = "m", .protocol = j->protocol, .output = j->options, .no_usage = j->size[0] % 2 != 0};
    di_reply *reply = NULL;
    const char *text;
    size_t n;
    gathered stream;
    gathered body;
    gathered_init(&stream);
    gathered_init(&body);
    assert_int_equal(di_reply_new(fixture.recipe, j->request, &options, &reply, NULL), DI_OK);
    run(j, reply, &stream, seed);
    assert_int_equal(stream.failed, some_cut(j));
    assert_int_equal(di_reply_body(reply, &text, &n, NULL), stream.failed ? DI_E_STATE : DI_OK);
    if (!stream.failed) {
        gather_body(&body, j->protocol, text, n);
    }
    expect_gathered(j, &stream, &body);
    gathered_fini(&stream);
    gathered_fini(&body);
    di_reply_free(reply);
}

static void fill(job *j, uint64_t *seed)
{
    static const di_finish reasons[] = {DI_FINISH_STOP, DI_FINISH_STOP, DI_FINISH_LENGTH, DI_FINISH_FILTER, DI_FINISH_CUT};
    for (int32_t c = 0; c < j->n; c++) {
        j->size[c] = generate(seed, j->text[c]);
        j->reason[c] = reasons[unit_random(seed) % 5];
    }
}

static void replies_without_a_request(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < ROUNDS; round++) {
        job j = {.protocol = (di_protocol)(round % 3), .options = random_options(&seed), .n = 1};
        fill(&j, &seed);
        check(&j, &seed);
    }
}

static const struct {
    di_protocol protocol;
    int32_t n;
    const char *body;
} asked[] = {
    {DI_CHAT, 3, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":3,\"stop\":\"END\",\"tools\":[{\"type\":\"function\","
                 "\"function\":{\"name\":\"f\"}}]"},
    {DI_CHAT, 2, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":2,\"thinking\":{\"type\":\"disabled\"},\"stream\":true,"
                 "\"stream_options\":{\"include_usage\":true}"},
    {DI_RESPONSES, 1, "\"input\":\"x\",\"tools\":[{\"type\":\"custom\",\"name\":\"apply_patch\"},{\"type\":\"tool_search\",\"execution\":"
                      "\"client\"},{\"type\":\"namespace\",\"name\":\"maps\",\"tools\":[{\"type\":\"function\",\"name\":\"find\"}]}]"},
    {DI_MESSAGES, 1, "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stop_sequences\":[\"END\"],\"tools\":[{"
                     "\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]"},
};

static void replies_to_requests(void **state)
{
    (void)state;
    uint64_t seed = 8;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        buf body;
        di_error err;
        di_request *request = NULL;
        buf_init(&body, SIZE_MAX);
        buf_printf(&body, "{\"model\":\"DeepSeek-V4.1-Flash\",%s}", asked[i].body);
        if (di_request_read(fixture.recipe, asked[i].protocol, body.data, body.size, &request, &err) != DI_OK) {
            fail_msg("%s", err.message);
        }
        for (int round = 0; round < ROUNDS / 3; round++) {
            job j = {.request = request, .protocol = asked[i].protocol, .options = *di_request_output(request), .n = asked[i].n};
            fill(&j, &seed);
            check(&j, &seed);
        }
        di_request_free(request);
        buf_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_without_a_request),
        cmocka_unit_test(replies_to_requests),
    };
    return cmocka_run_group_tests(tests, out_set_up_text, out_tear_down);
}
