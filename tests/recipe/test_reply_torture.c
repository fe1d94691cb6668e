/* Fails each allocation of a reply in turn (support/torture.h): a clean DI_E_MEMORY, no leak, no crash; a reply that ran out of
 * memory takes nothing more, yet may still end with an error event.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

#include "out_support.h"

static di_tokenizer *tokenizer;
static di_recipe *recipe;
static di_request *requests[3];

static const char text[] = "\nthinking\n\n</think>\n\nanswer\n\n<｜DSML｜ calls>\n"
                           "<｜DSML｜ invoke name=\"a_long_name_of_a_function\">\n"
                           "<｜DSML｜ parameter name=\"key\" string=\"true\">some \"text\" that is\nescaped</｜DSML｜ parameter>\n"
                           "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"apply_patch\">\n"
                           "<｜DSML｜ parameter name=\"input\" string=\"false\">\"\\u00e9\\ud83d\\ude00\"</｜DSML｜ parameter>\n"
                           "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"tool_search\">\n</｜DSML｜ invoke>\n"
                           "<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

static const char *const bodies[3] = {
    [DI_CHAT] = "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,"
                "\"top_logprobs\":2,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
    [DI_RESPONSES] = "{\"model\":\"DeepSeek-V4.1-Flash\",\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},"
                     "{\"type\":\"custom\",\"name\":\"apply_patch\"},{\"type\":\"tool_search\",\"execution\":\"client\"}]}",
    [DI_MESSAGES] = "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":["
                    "{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]}",
};

/* Looks at every byte, so that the address sanitizer sees what is borrowed. */
static size_t drain(di_reply *reply)
{
    di_event event;
    size_t sum = 0;
    while (di_reply_next_event(reply, &event)) {
        sum += strlen(event.data);
    }
    return sum;
}

static void expect_broken(di_reply *reply)
{
    di_error later;
    const char *out;
    size_t n;
    assert_int_equal(di_reply_push_text(reply, 0, "a", 1, 1, &later), DI_E_STATE);
    assert_non_null(strstr(later.message, "out of memory"));
    assert_int_equal(drain(reply), 0);
    if (di_reply_fail(reply, 500, "no memory", NULL) == DI_OK) {
        assert_int_equal(di_reply_frames(reply, &out, &n, NULL), DI_OK);
        assert_non_null(strstr(out, "no memory"));
    }
}

static di_status end(di_reply *reply, di_status status, di_error *err)
{
    const char *out;
    size_t n;
    bool body = false;
    if (status == DI_OK) {
        status = di_reply_finish(reply, 0, DI_FINISH_STOP, err);
        (void)drain(reply);
        body = status == DI_OK;
    }
    if (body) {
        status = di_reply_body(reply, &out, &n, err);
    } else if (reply != NULL) {
        expect_broken(reply);
    }
    di_reply_free(reply);
    return status;
}

static di_status reply_by_text(const void *arg, di_error *err)
{
    const di_request *const request = *(di_request *const *)arg;
    di_reply *reply = NULL;
    di_status status = di_reply_new(recipe, request, &(di_reply_options){.id = "R", .fingerprint = "fp"}, &reply, err);
    if (status == DI_OK) {
        status = di_reply_ready(reply, 3, 1, err);
    }
    for (size_t i = 0; i < sizeof text - 1 && status == DI_OK; i += 7) {
        const size_t left = sizeof text - 1 - i;
        status = di_reply_push_text(reply, 0, text + i, left < 7 ? left : 7, 1, err);
        if (i % 2 == 0) {
            (void)drain(reply);
        }
    }
    return end(reply, status, err);
}

static di_status reply_at_once(const void *arg, di_error *err)
{
    const di_request *const request = *(di_request *const *)arg;
    di_reply *reply = NULL;
    di_status status = di_reply_new(recipe, request, &(di_reply_options){.id = "R"}, &reply, err);
    if (status == DI_OK) {
        status = di_reply_push_text(reply, 0, text, sizeof text - 1, 1, err);
    }
    return end(reply, status, err);
}

static di_status reply_by_ids(const void *arg, di_error *err)
{
    const di_request *const request = *(di_request *const *)arg;
    di_reply *reply = NULL;
    di_status status = di_reply_new(recipe, request, &(di_reply_options){.id = "R"}, &reply, err);
    for (int32_t i = 0; i < 60 && status == DI_OK; i++) {
        const int32_t id = i == 30 ? 3069 : 40 + i; /* </think> of the demo model */
        const di_token_logprob top[] = {{.id = id, .logprob = -0.5f}, {.id = 41, .logprob = -0.25f}};
        const di_token_logprobs logprobs = {.id = id, .logprob = -0.5f, .n_top = 2, .top = top};
        status = di_reply_push_ids(reply, 0, &id, 1, &logprobs, err);
    }
    return end(reply, status, err);
}

static void each_protocol(void **state)
{
    (void)state;
    static const char *const names[] = {"chat", "responses", "messages"};
    for (int p = DI_CHAT; p <= DI_MESSAGES; p++) {
        torture_all(names[p], reply_by_text, &requests[p], 1000);
        torture_all(names[p], reply_at_once, &requests[p], 1000);
    }
}

static void log_probabilities(void **state)
{
    (void)state;
    torture_all("ids", reply_by_ids, &requests[DI_CHAT], 1000);
}

static int open_all(void **state)
{
    (void)state;
    tokenizer = out_demo();
    recipe = out_recipe(tokenizer);
    for (int p = DI_CHAT; p <= DI_MESSAGES; p++) {
        di_error err;
        if (di_request_read(recipe, (di_protocol)p, bodies[p], strlen(bodies[p]), &requests[p], &err) != DI_OK) {
            fail_msg("%s", err.message);
        }
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int p = DI_CHAT; p <= DI_MESSAGES; p++) {
        di_request_free(requests[p]);
    }
    di_recipe_close(recipe);
    di_tokenizer_close(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_protocol),
        cmocka_unit_test(log_probabilities),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
