/* A service whose weights do not fit its budget: the same answer, and figures of what was read on the metrics page. */
#include "chat_support.h"

#include <stdlib.h>
#include <string.h>

static const char *const body = "{\"prompt\":\"Once upon a time\",\"max_tokens\":12,\"temperature\":0,\"model\":\"DeepSeek-V4.1-Flash\"}";

static char *metrics_of(di_service *s)
{
    const size_t n = di_service_metrics(s, NULL, 0) + 4096;
    char *const page = malloc(n);
    assert_non_null(page);
    assert_true(di_service_metrics(s, page, n) < n);
    return page;
}

/* The value of a series without labels of its own. */
static double value_of(const char *page, const char *name)
{
    const char *at = page;
    const size_t n = strlen(name);
    while ((at = strstr(at, name)) != NULL) {
        if ((at == page || at[-1] == '\n') && (at[n] == '{' || at[n] == ' ')) {
            return strtod(strchr(at + (at[n] == '{' ? (size_t)(strchr(at, '}') - at) : n), ' '), NULL);
        }
        at += n;
    }
    fail_msg("the page has no %s", name);
    return -1;
}

/* The text of the only choice. free() it. */
static char *answer(int32_t ram_percent, char **page)
{
    di_service *s;
    di_error err;
    const di_service_options options = {.engine = {.max_tokens = 256, .chunk_tokens = 32, .kv_bytes = 64 << 20, .ram_percent = ram_percent}};
    if (di_service_open(chat_model(), chat_tokenizer(), &options, &s, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    char *const reply = chat_ask(s, DI_ROUTE_COMPLETIONS, body, 200);
    const char *const text = strstr(reply, "\"text\":");
    assert_non_null(text);
    char *const out = strndup(text, strcspn(text, "}"));
    *page = metrics_of(s);
    di_service_close(s);
    free(reply);
    return out;
}

static void a_service_within_a_budget(void **state)
{
    (void)state;
    char *page;
    char *const all = answer(0, &page);
    assert_true(value_of(page, "deepinfer_stream_budget_bytes") <= 0 && value_of(page, "deepinfer_stream_misses_total") <= 0);
    free(page);
    char *const part = answer(80, &page);
    assert_string_equal(all, part);
    const double budget = value_of(page, "deepinfer_stream_budget_bytes");
    assert_true(value_of(page, "deepinfer_stream_resident_bytes") + value_of(page, "deepinfer_stream_cache_bytes") <= budget);
    assert_true(value_of(page, "deepinfer_stream_misses_total") > 0 && value_of(page, "deepinfer_stream_hits_total") > 0);
    assert_true(value_of(page, "deepinfer_stream_read_bytes_total") > 1e5 && value_of(page, "deepinfer_stream_engram_rows_total") > 0);
    assert_true(value_of(page, "deepinfer_stream_guessed_right_total") <= value_of(page, "deepinfer_stream_guessed_total"));
    assert_true(value_of(page, "deepinfer_stream_wait_seconds_total") >= 0);
    free(page);
    free(all);
    free(part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_service_within_a_budget)};
    return cmocka_run_group_tests(tests, chat_setup, chat_teardown);
}
