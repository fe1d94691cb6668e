/* Fails each allocation of a reply in turn (support/torture.h): a clean DI_E_MEMORY, no leak, no crash, no half event, and a reply
 * that ran out of memory takes nothing more. When memory comes back it can still say to the client that it failed.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

#include "reply_support.h"

enum { N_IDS = 60, END_THINK = 3069 }; /* of the demo model */

static const char text[] = "\nthinking\n\n</think>\n\nanswer\n\n<｜DSML｜ calls>\n"
                           "<｜DSML｜ invoke name=\"apply_patch\">\n"
                           "<｜DSML｜ parameter name=\"input\" string=\"true\">some \"text\" that is\nescaped"
                           "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
                           "<｜DSML｜ invoke name=\"maps::find\">\n"
                           "<｜DSML｜ parameter name=\"key\" string=\"true\">value</｜DSML｜ parameter>\n"
                           "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

static di_tokenizer *tokenizer;
static di_recipe *recipe;

typedef struct attempt {
    di_request *request;
    bool ids;
    bool drained;
    int *n_failed; /* replies that said afterwards that they failed */
} attempt;

/* Every byte of every event is looked at, so that the address sanitizer sees what it borrows. */
static void drain(di_reply *reply)
{
    di_event e;
    while (di_reply_next_event(reply, &e)) {
        assert_int_equal(strlen(e.data), e.size);
        assert_true(e.data[0] == '{' ? e.data[e.size - 1] == '}' : strcmp(e.data, "[DONE]") == 0);
    }
}

static di_status push_ids(di_reply *reply, const attempt *a, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t i = 0; i < N_IDS && status == DI_OK; i++) {
        const int32_t id = i == 20 ? END_THINK : 40 + i;
        const di_token_logprob top[] = {{.id = id, .logprob = -0.5f}, {.id = 77, .logprob = -3.25f}};
        const di_token_logprobs logprobs = {.id = id, .logprob = -0.5f, .n_top = 2, .top = top};
        status = di_reply_push_ids(reply, 0, &id, 1, &logprobs, err);
        if (a->drained && status == DI_OK) {
            drain(reply);
        }
    }
    return status;
}

static di_status push_text(di_reply *reply, const attempt *a, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; i < sizeof text - 1 && status == DI_OK; i += 7) {
        const size_t left = sizeof text - 1 - i;
        status = di_reply_push_text(reply, 0, text + i, left < 7 ? left : 7, 1, err);
        if (a->drained && status == DI_OK) {
            drain(reply);
        }
    }
    return status;
}

static di_status take_body(di_reply *reply, di_error *err)
{
    const char *body = NULL;
    size_t n = 0;
    const di_status status = di_reply_body(reply, &body, &n, err);
    if (status == DI_OK) {
        assert_int_equal(strlen(body), n);
    }
    return status;
}

/* A reply whose memory ended: nothing is left in the queue, nothing more is taken, and an error can be said once there is memory. */
static void after_the_end(di_reply *reply, const attempt *a)
{
    di_error later;
    di_event e;
    torture.on = false;
    if (di_reply_push_text(reply, 0, "a", 1, 1, &later) == DI_E_STATE && di_reply_finished(reply, 0) == DI_FINISH_NONE) {
        assert_false(di_reply_next_event(reply, &e));
        assert_int_equal(di_reply_fail(reply, 500, "out of memory", &later), DI_OK);
        ++*a->n_failed;
        assert_true(di_reply_next_event(reply, &e));
        while (di_reply_next_event(reply, &e)) {
            assert_int_equal(strlen(e.data), e.size);
        }
    }
}

static di_status answer(const void *arg, di_error *err)
{
    const attempt *const a = arg;
    const di_reply_options options = {.id = "R", .fingerprint = "fp", .model = "m"};
    di_reply *reply = NULL;
    di_status status = di_reply_new(recipe, a->request, &options, &reply, err);
    if (status == DI_OK) {
        status = di_reply_ready(reply, 4, 1, err);
    }
    if (status == DI_OK) {
        status = a->ids ? push_ids(reply, a, err) : push_text(reply, a, err);
    }
    if (status == DI_OK) {
        status = di_reply_finish(reply, 0, DI_FINISH_LENGTH, err);
    }
    if (status == DI_OK) {
        drain(reply);
        status = take_body(reply, err);
    }
    di_reply_free(reply);
    return status;
}

/* The same up to the end of memory, which then comes back. Blocks that are allocated afterwards are not counted, so the leak
 * sanitizer watches this one. */
static di_status fail_later(const void *arg, di_error *err)
{
    const attempt *const a = arg;
    const di_reply_options options = {.id = "R", .fingerprint = "fp", .model = "m"};
    di_reply *reply = NULL;
    di_status status = di_reply_new(recipe, a->request, &options, &reply, err);
    if (status == DI_OK) {
        status = push_text(reply, a, err);
        if (status != DI_OK) {
            after_the_end(reply, a);
        }
    }
    torture.on = false;
    di_reply_free(reply);
    n_live = 0;
    return status;
}

static const char *const bodies[] = {
    "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,\"top_logprobs\":2,"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"apply_patch\"}}]}",
    "{\"model\":\"DeepSeek-V4.1-Flash\",\"input\":\"x\",\"top_logprobs\":2,\"include\":[\"message.output_text.logprobs\"],"
    "\"tools\":[{\"type\":\"custom\",\"name\":\"apply_patch\"},{\"type\":\"namespace\",\"name\":\"maps\",\"tools\":["
    "{\"type\":\"function\",\"name\":\"find\"}]}]}",
    "{\"model\":\"DeepSeek-V4.1-Flash\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
    "\"tools\":[{\"name\":\"apply_patch\",\"input_schema\":{\"type\":\"object\"}}]}",
};

static void each_protocol(void **state)
{
    (void)state;
    static const di_protocol protocols[] = {DI_CHAT, DI_RESPONSES, DI_MESSAGES};
    for (size_t p = 0; p < 3; p++) {
        di_error err = {.message = ""};
        attempt a = {.request = NULL};
        if (di_request_read(recipe, protocols[p], bodies[p], strlen(bodies[p]), &a.request, &err) != DI_OK) {
            fail_msg("%s", err.message);
        }
        for (int way = 0; way < 4; way++) {
            a.ids = (way & 1) != 0;
            a.drained = (way & 2) != 0;
            torture_all(a.ids ? "ids" : "text", answer, &a, 1000);
        }
        int n_failed = 0;
        a.drained = true;
        a.n_failed = &n_failed;
        torture_all("failing later", fail_later, &a, 1000);
        assert_true(n_failed > 10);
        di_request_free(a.request);
    }
}

static int open_all(void **state)
{
    (void)state;
    tokenizer = out_demo();
    recipe = out_recipe(tokenizer);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    di_recipe_close(recipe);
    di_tokenizer_close(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_protocol)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
