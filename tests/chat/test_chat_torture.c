/* Fails each allocation of a call in turn, from its making through its preparation to the words of its answer (support/torture.h): a
 * clean DI_E_MEMORY, no leak. All on one thread; test_chat_faults.c does it to a running service.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

#include "chat/chat_compile.h"
#include "chat_support.h"

static held_script script;
static di_service *service;

typedef struct route_case {
    const char *name;
    di_route route;
    const char *body;
} route_case;

static const route_case cases[] = {
    {"chat", DI_ROUTE_CHAT, CHAT_HELLO ",\"n\":2,\"stop\":[\"a\",\"b\"],\"logprobs\":true}"},
    {"messages", DI_ROUTE_MESSAGES, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
    {"completions", DI_ROUTE_COMPLETIONS,
     "{\"model\":\"DeepSeek-V4.1-Flash\",\"prompt\":[\"a\",\"b\"],\"n\":2,\"stop\":\"zz\",\"echo\":true,\"logit_bias\":{\"7\":1}}"},
    {"completions with ids", DI_ROUTE_COMPLETIONS,
     "{\"model\":\"DeepSeek-V4.1-Flash\",\"prompt\":[1,2,3],\"stream\":true,\"logprobs\":2,\"return_token_ids\":true}"},
    {"chat with a schema", DI_ROUTE_CHAT,
     CHAT_HELLO ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"object\","
                "\"properties\":{\"a\":{\"type\":\"string\"}}}}}}"},
    {"chat with a tool", DI_ROUTE_CHAT,
     CHAT_HELLO ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]}"},
    {"completions with an old name", DI_ROUTE_COMPLETIONS,
     "{\"model\":\"DeepSeek-V4.1-Flash\",\"prompt\":[1,2,3],\"guided_regex\":\"a+\",\"guided_whitespace_pattern\":\" ?\"}"},
    {"completions of nothing", DI_ROUTE_COMPLETIONS,
     "{\"model\":\"DeepSeek-V4.1-Flash\",\"prompt\":[1,2,3],\"max_tokens\":0,\"echo\":true}"},
    {"count", DI_ROUTE_COUNT_TOKENS, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
    {"tokenize", DI_ROUTE_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
    {"detokenize", DI_ROUTE_DETOKENIZE, "{\"tokens\":[1,2,3]}"},
};

static di_status prepare(di_call *c, chat_scratch *scratch, bool *done, di_error *err)
{
    *done = true;
    switch (c->route) {
    case DI_ROUTE_COUNT_TOKENS:
        return chat_count_tokens(c, scratch, err);
    case DI_ROUTE_TOKENIZE:
        return chat_tokenize(c, scratch, err);
    case DI_ROUTE_DETOKENIZE:
        return chat_detokenize(c, scratch, err);
    case DI_ROUTE_COMPLETIONS:
        *done = false;
        return chat_prepare_completions(c, scratch, done, err);
    default:
        *done = false;
        return chat_prepare_conversation(c, scratch, err);
    }
}

/* What the output thread does with tokens. */
static di_status answer(di_call *c, di_error *err)
{
    const di_token_logprob top[2] = {{.id = 300, .logprob = -1.0f}, {.id = 301, .logprob = -2.0f}};
    const char *text;
    size_t n;
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < c->n_tasks; i++) {
        status = c->writer_fns->ready(c->writer, (int64_t)c->tasks[i].n_prompt, 0, err);
    }
    for (int32_t i = 0; status == DI_OK && i < c->n_choices; i++) {
        for (int32_t k = 0; status == DI_OK && k < 5; k++) {
            const di_token_logprobs token = {.id = 300 + k, .logprob = -3.0f, .n_top = 2, .top = top};
            status = c->writer_fns->push(c->writer, i, &token, c->logprobs, err);
        }
        if (status == DI_OK) {
            status = c->writer_fns->finish(c->writer, i, DI_FINISH_STOP, err);
        }
    }
    if (status == DI_OK) {
        status = c->stream ? c->writer_fns->frames(c->writer, &text, &n, err) : c->writer_fns->body(c->writer, &text, &n, err);
    }
    return status;
}

static di_status make_and_answer(const void *arg, di_error *err)
{
    const route_case *const x = arg;
    const di_call_options options = {.route = x->route, .body = x->body, .n = strlen(x->body), .tenant = "t"};
    chat_scratch scratch = {.ids = NULL};
    di_call *c = NULL;
    bool done;
    di_status status = chat_call_new(service, &options, &c, err);
    if (status != DI_OK) {
        return status;
    }
    status = prepare(c, &scratch, &done, err);
    if (status == DI_OK && c->constraint.field != NULL) {
        di_grammar *grammar = NULL;
        status = chat_compile_source(&c->constraint, NULL, NULL, &grammar, NULL, err);
        c->grammar = status == DI_OK ? grammar : NULL;
    }
    if (status == DI_OK && !done) {
        status = answer(c, err);
    }
    free(scratch.ids);
    chat_call_discard(c);
    return status;
}

static void memory_ends_at_every_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        torture_all(cases[i].name, make_and_answer, &cases[i], 1000);
    }
}

static int open_service(void **state)
{
    chat_setup(state);
    held_init(&script, "Hello", INT64_MAX);
    service = chat_open(&script, NULL);
    chat_prepare_stop(service); /* its threads, which allocate when they like */
    chat_engine_stop(service);
    chat_output_stop(service);
    return 0;
}

static int close_service(void **state)
{
    chat_close(service, &script);
    return chat_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_ends_at_every_place)};
    return cmocka_run_group_tests(tests, open_service, close_service);
}
