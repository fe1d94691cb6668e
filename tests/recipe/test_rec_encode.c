/* Ids of a prompt (recipe.md 1.3, 1.4): threads change nothing, neither does the room for the ids, and what can't be encoded is
 * refused before anything is written. */
#include "out_support.h"

#include "recipe/rec_int.h"

static di_request *read_body(const di_recipe *with, const buf *body)
{
    di_request *request = NULL;
    di_error err;
    assert_false(body->failed);
    if (di_request_read(with, DI_CHAT, body->data, body->size, &request, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return request;
}

/* A conversation of n_messages, each with the next of `sizes` bytes. */
static di_request *read_long(size_t n_messages, const size_t *sizes, size_t n_sizes)
{
    static const char words[] = "Jack walked into the village 12345 times, saw 兔子 and wrote <｜User｜> down.\\n";
    buf body;
    buf_init(&body, SIZE_MAX);
    buf_puts(&body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[");
    for (size_t i = 0; i < n_messages; i++) {
        buf_printf(&body, "%s{\"role\":\"%s\",\"content\":\"", i > 0 ? "," : "", i % 2 == 0 ? "user" : "assistant");
        for (size_t size = 0; size < sizes[i % n_sizes]; size += sizeof words - 1) {
            buf_puts(&body, words);
        }
        buf_puts(&body, "\"}");
    }
    buf_puts(&body, "]}");
    di_request *const request = read_body(fixture.recipe, &body);
    buf_fini(&body);
    return request;
}

static int32_t *encode(const di_request *request, int n_threads, size_t *n_ids)
{
    size_t n;
    di_error err;
    (void)di_request_prompt(request, &n);
    int32_t *const ids = calloc(n, sizeof *ids);
    assert_non_null(ids);
    if (di_request_encode(request, n_threads, ids, n, n_ids, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return ids;
}

static void expect_threads_agree(di_request *request)
{
    size_t n_alone;
    int32_t *const alone = encode(request, 1, &n_alone);
    for (int n_threads = 0; n_threads < 5; n_threads += n_threads == 0 ? 2 : 1) {
        size_t n;
        int32_t *const ids = encode(request, n_threads, &n);
        assert_int_equal(n, n_alone);
        assert_memory_equal(ids, alone, n * sizeof *ids);
        free(ids);
    }
    const size_t capacities[] = {0, 1, 7, n_alone / 2, n_alone - 1};
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        int32_t *const some = calloc(capacities[i] + 1, sizeof *some);
        assert_non_null(some);
        some[capacities[i]] = -7;
        for (int n_threads = 1; n_threads < 3; n_threads++) {
            size_t n;
            assert_int_equal(di_request_encode(request, n_threads, some, capacities[i], &n, NULL), DI_OK);
            assert_int_equal(n, n_alone);
            assert_memory_equal(some, alone, capacities[i] * sizeof *some);
            assert_int_equal(some[capacities[i]], -7);
        }
        free(some);
    }
    free(alone);
    di_request_free(request);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    static const size_t small[] = {100, 0, 3000};
    static const size_t mixed[] = {100, 300000, 0, 1100000, 1400000, 20};
    static const size_t one[] = {1500000};
    expect_threads_agree(read_long(3, small, 3));
    expect_threads_agree(read_long(1500, small, 3));
    expect_threads_agree(read_long(6, mixed, 6));
    expect_threads_agree(read_long(1, one, 1));
}

static void a_recipe_without_a_tokenizer_has_no_ids(void **state)
{
    (void)state;
    di_recipe *const bare = out_recipe(NULL);
    buf body;
    size_t n;
    di_error err;
    buf_init(&body, SIZE_MAX);
    buf_puts(&body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    di_request *const request = read_body(bare, &body);
    unit_expect_error(di_request_encode(request, 1, NULL, 0, &n, &err), DI_E_STATE, &err, "tokenizer", NULL);
    di_request_free(request);
    di_recipe_close(bare);
    di_request *const other = read_body(fixture.recipe, &body);
    unit_expect_error(di_request_encode(other, -1, NULL, 0, &n, &err), DI_E_ARGUMENT, &err, "-1 threads", NULL);
    unit_expect_error(di_request_encode(other, 65, NULL, 0, &n, &err), DI_E_ARGUMENT, &err, "65 threads", NULL);
    di_request_free(other);
    buf_fini(&body);
}

/* The demo model's tokenizer has neither an image token nor grounding tokens. */
static void a_missing_image_token_is_named(void **state)
{
    (void)state;
    buf body;
    size_t n;
    di_error err;
    buf_init(&body, SIZE_MAX);
    buf_puts(&body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                    "\"image_url\":{\"url\":\"https://example.com/a.png\"}}]}]}");
    di_request *const request = read_body(fixture.recipe, &body);
    unit_expect_error(di_request_encode(request, 1, NULL, 0, &n, &err), DI_E_UNSUPPORTED, &err, "<｜image｜>", NULL);
    di_request_free(request);
    buf_clear(&body);
    buf_puts(&body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"assistant\",\"content\":\"<｜box｜>\"}],"
                    "\"thinking\":{\"type\":\"disabled\"}}");
    di_request *const grounded = read_body(fixture.recipe, &body);
    (void)di_request_control_ranges(grounded, &n);
    assert_int_equal(n, 6); /* of the template alone */
    int32_t *const ids = encode(grounded, 1, &n);
    free(ids);
    di_request_free(grounded);
    buf_fini(&body);
}

static void a_recipe_checks_what_it_is_given(void **state)
{
    (void)state;
    di_recipe *out = NULL;
    di_error err;
    const di_model_alias nameless = {.name = ""};
    const di_recipe_options no_name = {.aliases = &nameless, .n_aliases = 1};
    const di_recipe_options no_spelling = {.image_token = ""};
    unit_expect_error(di_recipe_open(NULL, &no_name, &out, &err), DI_E_ARGUMENT, &err, "model name", NULL);
    unit_expect_error(di_recipe_open(NULL, &no_spelling, &out, &err), DI_E_ARGUMENT, &err, "image token", NULL);
    assert_null(out);
    di_recipe_close(NULL);
    di_request_free(NULL);
}

static void errors_have_a_status_and_a_body(void **state)
{
    (void)state;
    char body[512];
    assert_int_equal(di_recipe_http_status(DI_E_FORMAT), 400);
    assert_int_equal(di_recipe_http_status(DI_E_ARGUMENT), 400);
    assert_int_equal(di_recipe_http_status(DI_E_LIMIT), 413);
    assert_int_equal(di_recipe_http_status(DI_E_MEMORY), 500);
    const size_t n = di_recipe_error_body(DI_CHAT, 400, "a \"b\"\n", body, sizeof body);
    assert_string_equal(body, "{\"error\":{\"message\":\"a \\\"b\\\"\\n\",\"type\":\"invalid_request_error\",\"param\":null,"
                              "\"code\":\"invalid_request_error\"}}");
    assert_int_equal(n, strlen(body));
    assert_int_equal(di_recipe_error_body(DI_CHAT, 400, "a \"b\"\n", body, 11), n);
    assert_string_equal(body, "{\"error\":{");
    (void)di_recipe_error_body(DI_RESPONSES, 500, "x", body, sizeof body);
    assert_string_equal(body, "{\"error\":{\"message\":\"x\",\"type\":\"internal_error\",\"param\":null,\"code\":\"internal_error\"}}");
    (void)di_recipe_error_body(DI_MESSAGES, 400, "x", body, sizeof body);
    assert_string_equal(body, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"x\"}}");
    (void)di_recipe_error_body(DI_MESSAGES, 529, "x", body, sizeof body);
    assert_string_equal(body, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}");
    (void)di_recipe_error_body(DI_MESSAGES, 413, "x", body, sizeof body);
    assert_string_equal(body, "{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\",\"message\":\"x\"}}");
}

static void errors_of_a_server_have_types_of_their_own(void **state)
{
    (void)state;
    static const struct {
        int http_status;
        const char *messages_type;
        const char *type;
        const char *code;
    } cases[] = {
        {401, "authentication_error", "authentication_error", "invalid_api_key"},
        {403, "permission_error", "permission_error", "permission_denied"},
        {404, "not_found_error", "not_found_error", "not_found"},
        {405, "invalid_request_error", "invalid_request_error", "method_not_allowed"},
        {408, "timeout_error", "timeout_error", "request_timeout"},
        {413, "request_too_large", "invalid_request_error", "request_too_large"},
        {415, "invalid_request_error", "invalid_request_error", "unsupported_media_type"},
        {418, "invalid_request_error", "invalid_request_error", "invalid_request_error"},
        {429, "rate_limit_error", "rate_limit_error", "rate_limit_exceeded"},
        {502, "api_error", "internal_error", "internal_error"},
        {503, "overloaded_error", "overloaded_error", "overloaded"},
        {504, "timeout_error", "timeout_error", "timeout"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[512];
        char expected[512];
        snprintf(expected, sizeof expected, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"x\"}}",
                 cases[i].messages_type);
        (void)di_recipe_error_body(DI_MESSAGES, cases[i].http_status, "x", body, sizeof body);
        assert_string_equal(body, expected);
        snprintf(expected, sizeof expected, "{\"error\":{\"message\":\"x\",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}",
                 cases[i].type, cases[i].code);
        (void)di_recipe_error_body(DI_CHAT, cases[i].http_status, "x", body, sizeof body);
        assert_string_equal(body, expected);
    }
}

static void max_tokens_fit_the_context(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        int64_t prompt;
        int64_t context;
        int64_t expected; /* -1: refused */
    } cases[] = {
        {"\"thinking\":{\"type\":\"disabled\"}", 10, 1000000, 8192},
        {"\"reasoning_effort\":\"low\"", 10, 1000000, 65536},
        {"\"reasoning_effort\":\"max\"", 10, 1000000, 131072},
        {"\"max_tokens\":7", 10, 1000000, 7},
        {"\"max_tokens\":7", 993, 1000, 7},
        {"\"max_tokens\":7", 994, 1000, -1},
        {"\"stream\":true", 990, 1000, 10},
        {"\"stream\":true", 1000, 1000, 1},
        {"\"stream\":true", 1001, 1000, -1},
        {"\"stream\":true", -1, 1000, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf body;
        int64_t got = -1;
        di_error err;
        buf_init(&body, SIZE_MAX);
        buf_printf(&body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}", cases[i].fields);
        di_request *const request = read_body(fixture.recipe, &body);
        const di_status status = di_request_max_tokens(request, cases[i].prompt, cases[i].context, &got, &err);
        assert_int_equal(status, cases[i].expected < 0 ? DI_E_ARGUMENT : DI_OK);
        assert_int_equal(got, cases[i].expected);
        if (i == 5) {
            assert_string_equal(err.message,
                                "This model's maximum context length is 1000 tokens. However, you requested 1001 tokens (994 in the "
                                "messages, 7 in the completion). Please reduce the length of the messages or completion.");
        }
        di_request_free(request);
        buf_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(a_recipe_without_a_tokenizer_has_no_ids),
        cmocka_unit_test(a_missing_image_token_is_named),
        cmocka_unit_test(a_recipe_checks_what_it_is_given),
        cmocka_unit_test(errors_have_a_status_and_a_body),
        cmocka_unit_test(errors_of_a_server_have_types_of_their_own),
        cmocka_unit_test(max_tokens_fit_the_context),
    };
    return cmocka_run_group_tests(tests, out_set_up_demo, out_tear_down);
}
