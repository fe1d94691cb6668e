/* A service as a whole: its names, tenants, figures, metrics page, batches, the backend "null". */
#include "chat_support.h"

#include <stdio.h>

static void names_are_the_services_and_those_of_the_recipe(void **state)
{
    (void)state;
    static const char asked[] = "{\"model\":\"my-model\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    static const char alias[] = "{\"model\":\"other\",\"prompt\":\"a\"}";
    const di_model_alias aliases[] = {{.name = "other", .version = DI_V41}};
    const di_service_options options = {.model_name = "my-model", .recipe = {.aliases = aliases, .n_aliases = 1}};
    held_script script;
    held_init(&script, "Hello", INT64_MAX);
    di_service *const s = chat_open(&script, &options);
    assert_string_equal(di_service_model_name(s), "my-model");
    assert_int_equal(di_service_context(s), 16384);
    char *text = chat_ask(s, DI_ROUTE_CHAT, asked, 200);
    expect_part(text, "\"model\":\"my-model\"");
    free(text);
    text = chat_ask(s, DI_ROUTE_CHAT, CHAT_HELLO "}", 200);
    expect_part(text, "\"model\":\"my-model\"");
    free(text);
    free(chat_ask(s, DI_ROUTE_COMPLETIONS, alias, 200));
    text = chat_ask(s, DI_ROUTE_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", 200);
    expect_part(text, "\"count\":");
    free(text);
    chat_close(s, &script);
}

static void wrong_options_do_not_open(void **state)
{
    (void)state;
    di_error err;
    di_service *s = NULL;
    const di_model *const m = chat_model();
    const di_tokenizer *const t = chat_tokenizer();
    unit_expect_error(di_service_open(m, NULL, NULL, &s, &err), DI_E_ARGUMENT, &err, "tokenizer", NULL);
    unit_expect_error(di_service_open(m, t, &(di_service_options){.n_prepare_threads = -1}, &s, &err), DI_E_ARGUMENT, &err,
                      "n_prepare_threads", NULL);
    unit_expect_error(di_service_open(m, t, &(di_service_options){.max_calls = -1}, &s, &err), DI_E_ARGUMENT, &err, "max_calls", NULL);
    unit_expect_error(di_service_open(m, t, &(di_service_options){.model_name = ""}, &s, &err), DI_E_ARGUMENT, &err, "model_name", NULL);
    unit_expect_error(di_service_open(m, t, &(di_service_options){.engine = {.backend = "abacus"}}, &s, &err), DI_E_ARGUMENT, &err,
                      "abacus", NULL);
    unit_expect_error(di_service_open(m, t, &(di_service_options){.engine = {.backend = "null"}, .scheduler = {.step_tokens = -1}}, &s, &err),
                      DI_E_ARGUMENT, &err, "step_tokens", NULL);
    di_service_close(NULL);
    di_call_free(NULL);
}

/* --- Tenants ---------------------------------------------------------------------------------------------------------------------- */

typedef struct listing {
    di_service *service;
    const char *part;
} listing;

static bool shows(void *arg)
{
    const listing *const l = arg;
    char text[4096];
    assert_true(di_service_tenants(l->service, text, sizeof text) < sizeof text);
    return strstr(text, l->part) != NULL;
}

static void tenants_are_listed_paused_and_opened(void **state)
{
    (void)state;
    held_script script;
    held_init(&script, "Hello", INT64_MAX);
    di_service *const s = chat_open(&script, NULL);
    listing l = {.service = s, .part = "{\"name\":\"a\\\"b\",\"state\":\"paused\",\"waiting\":1,\"running\":0,"};
    assert_int_equal(di_service_set_tenant(s, "a\"b", DI_TENANT_PAUSED, NULL), DI_OK);
    di_call *const c = chat_submit_with(s, &(di_call_options){.route = DI_ROUTE_CHAT, .body = CHAT_HELLO "}",
                                                              .n = sizeof CHAT_HELLO, .tenant = "a\"b"});
    chat_until(shows, &l);
    char few[16];
    assert_true(di_service_tenants(s, few, sizeof few) > sizeof few);
    assert_string_equal(few, "{\"tenants\":[{\"n");
    free(chat_ask(s, DI_ROUTE_CHAT, CHAT_HELLO "}", 200)); /* others are served */
    assert_int_equal(chat_info(c).phase, DI_CALL_QUEUED);
    assert_int_equal(di_service_set_tenant(s, "a\"b", DI_TENANT_OPEN, NULL), DI_OK);
    free(chat_read_all(c));
    assert_int_equal(chat_info(c).http_status, 200);
    di_call_free(c);
    l.part = "\"state\":\"open\",\"waiting\":0,\"running\":0,";
    chat_until(shows, &l);
    chat_close(s, &script);
}

/* --- Figures ---------------------------------------------------------------------------------------------------------------------- */

static void metrics_count_requests_and_tokens(void **state)
{
    (void)state;
    held_script script;
    held_init(&script, "Hello", INT64_MAX);
    const int64_t n_tokens = (int64_t)script.n;
    di_service *const s = chat_open(&script, NULL);
    free(chat_ask(s, DI_ROUTE_CHAT, CHAT_HELLO "}", 200));
    free(chat_ask(s, DI_ROUTE_CHAT, CHAT_HELLO ",\"max_tokens\":1}", 200));
    free(chat_ask(s, DI_ROUTE_CHAT, "{", 400));
    const size_t n = di_service_metrics(s, NULL, 0);
    char *const page = malloc(n + 1000);
    char line[200];
    assert_non_null(page);
    assert_true(di_service_metrics(s, page, n + 1000) < n + 1000);
    expect_part(page, "deepinfer_requests_total{model_name=\"DeepSeek-V4.1-Flash\",finished_reason=\"stop\"} 1\n");
    expect_part(page, "vllm:request_success_total{model_name=\"DeepSeek-V4.1-Flash\",finished_reason=\"length\"} 1\n");
    expect_part(page, "vllm:request_success_total{model_name=\"DeepSeek-V4.1-Flash\",finished_reason=\"error\"} 0\n");
    snprintf(line, sizeof line, "vllm:generation_tokens_total{model_name=\"DeepSeek-V4.1-Flash\"} %lld\n", (long long)n_tokens + 1);
    expect_part(page, line);
    expect_part(page, "vllm:num_requests_running{model_name=\"DeepSeek-V4.1-Flash\"} 0\n");
    static const char *const names[] = {
        "vllm:num_requests_waiting{", "vllm:kv_cache_usage_perc{", "vllm:prefix_cache_queries{", "vllm:prefix_cache_hits{",
        "vllm:prefix_cache_queries_total{", "vllm:prefix_cache_hits_total{", "vllm:num_preemptions_total{", "vllm:prompt_tokens_total{",
        "vllm:time_to_first_token_seconds_bucket{", "vllm:inter_token_latency_seconds_bucket{",
        "vllm:e2e_request_latency_seconds_bucket{", "vllm:request_queue_time_seconds_bucket{",
        "vllm:request_prefill_time_seconds_bucket{", "vllm:request_decode_time_seconds_bucket{", "vllm:iteration_tokens_total_bucket{",
        "deepinfer_kv_pages_used{", "deepinfer_step_schedule_seconds_total{",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        expect_part(page, names[i]);
    }
    expect_part(page, "vllm:time_to_first_token_seconds_count{model_name=\"DeepSeek-V4.1-Flash\"} 2\n");
    free(page);
    chat_close(s, &script);
}

/* --- The backend "null" ------------------------------------------------------------------------------------------------------------- */

static void the_null_backend_tells_its_story(void **state)
{
    (void)state;
    di_service *const s = chat_open(NULL, NULL);
    char *text = chat_ask(s, DI_ROUTE_CHAT, CHAT_HELLO "}", 200);
    expect_part(text, "\"content\":\"The lighthouse stands where the river meets the sea.");
    expect_part(text, "for more than a hundred years.\"");
    expect_part(text, "\"finish_reason\":\"stop\"");
    free(text);
    text = chat_ask(s, DI_ROUTE_CHAT, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", 200);
    expect_part(text, "\"content\":\"The lighthouse");
    expect_part(text, "\"reasoning_content\":\"No model runs here");
    free(text);
    di_service_close(s);
}

/* --- Batches ------------------------------------------------------------------------------------------------------------------------ */

enum { N_ITEMS = 700 }; /* more than the window of a batch */

typedef struct watcher {
    size_t n_calls;
    size_t last;
    size_t stop_at; /* 0 = never */
} watcher;

static bool watch(void *user, const di_batch_progress *progress)
{
    watcher *const w = user;
    w->n_calls++;
    assert_true(progress->n_done >= w->last);
    assert_int_equal(progress->n, N_ITEMS);
    w->last = progress->n_done;
    return w->stop_at == 0 || w->n_calls < w->stop_at;
}

static void a_batch_answers_every_item(void **state)
{
    (void)state;
    static di_batch_item items[N_ITEMS];
    held_script script;
    di_error err;
    watcher w = {.n_calls = 0};
    held_init(&script, "Hello", INT64_MAX);
    di_service *const s = chat_open(&script, &(di_service_options){.max_calls = 100}); /* fewer than the window */
    for (size_t i = 0; i < N_ITEMS; i++) {
        const char *const body = i % 7 == 3 ? "{" : i % 7 == 5 ? CHAT_HELLO ",\"stream\":true}" : CHAT_HELLO "}";
        items[i] = (di_batch_item){.route = DI_ROUTE_CHAT, .body = body, .n = strlen(body)};
    }
    assert_int_equal(di_service_run(s, items, N_ITEMS, watch, &w, &err), DI_OK);
    for (size_t i = 0; i < N_ITEMS; i++) {
        assert_int_equal(items[i].http_status, i % 7 == 3 ? 400 : 200);
        assert_int_equal(strlen(items[i].reply), items[i].n_reply);
        expect_part(items[i].reply, i % 7 == 3 ? "invalid_request_error" : i % 7 == 5 ? "[DONE]" : "\"content\":\"Hello\"");
    }
    assert_true(w.n_calls > 0);
    assert_int_equal(w.last, N_ITEMS);
    di_batch_fini(items, N_ITEMS);
    assert_int_equal(di_service_run(s, NULL, 0, NULL, NULL, &err), DI_OK);
    assert_int_equal(di_service_pending(s), 0);
    chat_close(s, &script);
}

static void a_batch_that_is_stopped_keeps_what_is_done(void **state)
{
    (void)state;
    static di_batch_item items[N_ITEMS];
    held_script script;
    di_error err;
    watcher w = {.stop_at = 1};
    held_init(&script, "Hello", 0);
    di_service *const s = chat_open(&script, NULL);
    for (size_t i = 0; i < N_ITEMS; i++) {
        const char *const body = i == 0 ? "{" : CHAT_HELLO "}";
        items[i] = (di_batch_item){.route = DI_ROUTE_CHAT, .body = body, .n = strlen(body)};
    }
    unit_expect_error(di_service_run(s, items, N_ITEMS, watch, &w, &err), DI_E_CANCELLED, &err, "of 700", NULL);
    for (size_t i = 1; i < N_ITEMS; i++) {
        assert_null(items[i].reply);
    }
    di_batch_fini(items, N_ITEMS);
    di_service_drain(s);
    unit_expect_error(di_service_run(s, items, N_ITEMS, NULL, NULL, &err), DI_E_STATE, &err, "draining", NULL);
    chat_close(s, &script);
}

/* --- The end -------------------------------------------------------------------------------------------------------------------------- */

static void calls_outlive_their_service(void **state)
{
    (void)state;
    held_script script;
    held_init(&script, "Hello", INT64_MAX);
    di_service *const s = chat_open(&script, NULL);
    di_call *const ended = chat_submit(s, DI_ROUTE_CHAT, CHAT_HELLO "}");
    chat_wait_phase(ended, DI_CALL_ENDED);
    assert_int_equal(di_service_set_tenant(s, "t", DI_TENANT_PAUSED, NULL), DI_OK);
    const di_call_options waits = {.route = DI_ROUTE_CHAT, .body = CHAT_HELLO "}", .n = sizeof CHAT_HELLO, .tenant = "t"};
    di_call *const waiting = chat_submit_with(s, &waits);
    chat_close(s, &script);
    assert_int_equal(chat_info(waiting).http_status, 503);
    char *text = chat_read_all(ended);
    expect_part(text, "\"content\":\"Hello\"");
    free(text);
    text = chat_read_all(waiting);
    expect_part(text, "The server is shutting down.");
    free(text);
    di_call_cancel(waiting);
    di_call_free(waiting);
    di_call_free(ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_the_services_and_those_of_the_recipe),
        cmocka_unit_test(wrong_options_do_not_open),
        cmocka_unit_test(tenants_are_listed_paused_and_opened),
        cmocka_unit_test(metrics_count_requests_and_tokens),
        cmocka_unit_test(the_null_backend_tells_its_story),
        cmocka_unit_test(a_batch_answers_every_item),
        cmocka_unit_test(a_batch_that_is_stopped_keeps_what_is_done),
        cmocka_unit_test(calls_outlive_their_service),
    };
    return cmocka_run_group_tests(tests, chat_setup, chat_teardown);
}
