/* Fails each allocation of opening a recipe, reading a request and encoding its prompt in turn (support/torture.h): a clean DI_E_MEMORY,
 * no leak, no crash.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

#include "out_support.h"

static di_tokenizer *tokenizer;

typedef struct body {
    di_protocol protocol;
    const char *json;
} body;

#define SCHEMA                                                                                                                   \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[\"x\",\"y\"]},\"b\":{\"anyOf\":[{\"type\":\"null\"},"    \
    "{\"$ref\":\"#/$defs/c\"}]}},\"$defs\":{\"c\":{\"type\":\"number\",\"minimum\":1.5e-7}}}"

static const body chat = {
    DI_CHAT,
    "{\"model\":\"DeepSeek-V4.1-Flash\",\"stop\":[\"END\",\"x\"],\"logit_bias\":{\"5\":1},\"messages\":[{\"role\":\"system\",\"content\":"
    "\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"user\",\"content\":\"b\"},{\"role\":"
    "\"assistant\",\"content\":\"c\",\"reasoning_content\":\"r\",\"tool_calls\":[{\"id\":\"2\",\"type\":\"function\",\"function\":"
    "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": [1, {}]}\"}},{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"g\","
    "\"arguments\":\"raw\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"one\"},{\"role\":\"tool\",\"tool_call_id\":\"2\","
    "\"content\":\"two\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":" SCHEMA
    "}},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true,\"parameters\":" SCHEMA "}}]}",
};
static const body chat_v4 = {
    DI_CHAT,
    "{\"model\":\"DeepSeek-V4-Pro\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"s\"},{\"role\":"
    "\"assistant\",\"tool_calls\":[{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"1\","
    "\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"\"},"
    "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"\"}],\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
    "\"n\",\"schema\":" SCHEMA "}}}",
};
static const body responses = {
    DI_RESPONSES,
    "{\"model\":\"DeepSeek-V4.1-Flash\",\"instructions\":\"i\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
    "\"a\"}]},{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"r\"}]},{\"type\":\"function_call\","
    "\"call_id\":\"c\",\"name\":\"f\",\"namespace\":\"n\",\"arguments\":\"{}\"},{\"type\":\"custom_tool_call\",\"call_id\":\"d\",\"name\":"
    "\"apply_patch\",\"input\":\"p\"},{\"type\":\"tool_search_call\",\"call_id\":\"e\",\"arguments\":{\"q\":1}},{\"type\":"
    "\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"d\",\"output\":\"o\"},"
    "{\"type\":\"tool_search_output\",\"call_id\":\"e\",\"tools\":[{\"type\":\"function\",\"name\":\"late\"}]},{\"role\":\"user\",\"content\":"
    "\"b\"}],\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"description\":\"d\",\"tools\":[{\"type\":\"function\",\"name\":\"f\","
    "\"parameters\":" SCHEMA "}]},{\"type\":\"custom\",\"name\":\"apply_patch\"}]}",
};
static const body messages = {
    DI_MESSAGES,
    "{\"model\":\"DeepSeek-V4.1-Flash\",\"max_tokens\":9,\"stop_sequences\":[\"E\"],\"system\":[{\"type\":\"text\",\"text\":\"s\"}],"
    "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},"
    "{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"text\",\"text\":\"c\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":"
    "{\"a\":1e5}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":\"text\",\"text\":"
    "\"r\"},{\"type\":\"tool_reference\",\"tool_name\":\"g\"}]},{\"type\":\"text\",\"text\":\"d\"}]}],\"tools\":[{\"name\":\"f\","
    "\"input_schema\":" SCHEMA "},{\"name\":\"g\",\"input_schema\":" SCHEMA ",\"defer_loading\":true}]}",
};

static di_status open_recipe(const void *arg, di_error *err)
{
    const di_model_alias aliases[] = {{"one", DI_V41}, {"two", DI_V4}};
    const di_recipe_options options = {.image_token = "<｜deepseek_image｜>", .aliases = aliases, .n_aliases = 2};
    di_recipe *recipe = NULL;
    (void)arg;
    const di_status status = di_recipe_open(tokenizer, &options, &recipe, err);
    di_recipe_close(recipe);
    return status;
}

static di_status read_and_encode(const void *arg, di_error *err)
{
    const body *const b = arg;
    di_recipe *recipe = NULL;
    di_request *request = NULL;
    int32_t ids[4096];
    size_t n;
    di_status status = di_recipe_open(tokenizer, NULL, &recipe, err);
    if (status == DI_OK) {
        status = di_request_read(recipe, b->protocol, b->json, strlen(b->json), &request, err);
    }
    if (status == DI_OK) {
        status = di_request_encode(request, 1, ids, sizeof ids / sizeof ids[0], &n, err);
    }
    di_request_free(request);
    di_recipe_close(recipe);
    return status;
}

static void opening(void **state)
{
    (void)state;
    torture_all("open", open_recipe, NULL, 100);
}

static void reading_and_encoding(void **state)
{
    (void)state;
    const body *const bodies[] = {&chat, &chat_v4, &responses, &messages};
    const char *const names[] = {"chat", "chat of V4", "responses", "messages"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        di_error err;
        if (read_and_encode(bodies[i], &err) != DI_OK) { /* the tokenizer keeps what it needs for another time */
            fail_msg("%s: %s", names[i], err.message);
        }
        torture_all(names[i], read_and_encode, bodies[i], 1000);
    }
}

static int set_up(void **state)
{
    (void)state;
    tokenizer = out_demo();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    di_tokenizer_close(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(reading_and_encoding),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
