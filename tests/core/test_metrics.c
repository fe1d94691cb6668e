/* Tests of metrics.c: the exact page, what is refused, and many threads at once (the thread sanitizer build runs them too). */
#include "support/unit.h"

#include "core/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static met_registry *new_registry(void)
{
    met_registry *r;
    assert_int_equal(met_registry_new(&r, NULL), DI_OK);
    return r;
}

static void assert_page(met_registry *r, const char *expected)
{
    buf page;
    buf_init(&page, 1 << 20);
    met_write(r, &page);
    assert_false(page.failed);
    assert_string_equal(page.size > 0 ? page.data : "", expected);
    buf_fini(&page);
}

static met_counter *counter(met_registry *r, const met_desc *desc)
{
    met_counter *c;
    assert_int_equal(met_counter_get(r, desc, &c, NULL), DI_OK);
    return c;
}

static void an_empty_registry_is_an_empty_page(void **state)
{
    (void)state;
    met_registry *const r = new_registry();
    assert_page(r, "");
    met_registry_free(r);
    met_registry_free(NULL);
}

static void counters_of_one_family_share_their_help(void **state)
{
    (void)state;
    met_registry *const r = new_registry();
    met_desc d = {.name = "di_requests_total", .help = "Requests.\nBy \\ route.", .labels = "route=\"chat\",code=\"200\""};
    met_counter *const chat = counter(r, &d);
    met_gauge *g;
    assert_int_equal(met_gauge_get(r, &(met_desc){.name = "di_running", .help = "Running."}, &g, NULL), DI_OK);
    d.labels = "route=\"messages\"";
    met_counter *const messages = counter(r, &d);
    assert_ptr_equal(counter(r, &d), messages);
    met_counter_add(chat, 3);
    met_counter_add(chat, 4);
    met_counter_set(messages, UINT64_MAX);
    met_gauge_set(g, 0.1);
    assert_int_equal(met_counter_value(chat), 7);
    assert_page(r, "# HELP di_requests_total Requests.\\nBy \\\\ route.\n"
                   "# TYPE di_requests_total counter\n"
                   "di_requests_total{route=\"chat\",code=\"200\"} 7\n"
                   "di_requests_total{route=\"messages\"} 18446744073709551615\n"
                   "# HELP di_running Running.\n"
                   "# TYPE di_running gauge\n"
                   "di_running 0.1\n");
    met_registry_free(r);
}

static void an_alias_repeats_the_family_under_its_name(void **state)
{
    (void)state;
    met_registry *const r = new_registry();
    const met_desc d = {.name = "deepinfer_x", .alias = "vllm:x", .help = "X.", .labels = "model_name=\"m\""};
    met_gauge *g;
    assert_int_equal(met_gauge_get(r, &d, &g, NULL), DI_OK);
    met_gauge_add(g, 2.5);
    met_gauge_add(g, -1);
    assert_page(r, "# HELP deepinfer_x X.\n# TYPE deepinfer_x gauge\ndeepinfer_x{model_name=\"m\"} 1.5\n"
                   "# HELP vllm:x X.\n# TYPE vllm:x gauge\nvllm:x{model_name=\"m\"} 1.5\n");
    met_registry_free(r);
}

static void nanoseconds_are_printed_as_exact_seconds(void **state)
{
    (void)state;
    met_registry *const r = new_registry();
    met_counter *const c = counter(r, &(met_desc){.name = "busy_seconds_total", .help = "Busy.", .unit = MET_SECONDS});
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {{0, "0"}, {1, "0.000000001"}, {1500000000, "1.5"}, {20000000000, "20"}, {10000000000000000001u, "10000000000.000000001"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char page[256];
        snprintf(page, sizeof page, "# HELP busy_seconds_total Busy.\n# TYPE busy_seconds_total counter\nbusy_seconds_total %s\n",
                 cases[i].text);
        met_counter_set(c, cases[i].ns);
        assert_page(r, page);
    }
    met_registry_free(r);
}

static void a_histogram_counts_up_to_each_bound(void **state)
{
    (void)state;
    met_registry *const r = new_registry();
    static const double bounds[] = {0.001, 0.25, 1};
    met_desc d = {.name = "ttft_seconds", .help = "T.", .labels = "m=\"a\"", .unit = MET_SECONDS};
    met_histogram *h;
    assert_int_equal(met_histogram_get(r, &d, bounds, 3, &h, NULL), DI_OK);
    met_observe(h, -5);          /* a clock that went back */
    met_observe(h, 1000000);     /* on the bound: belongs below it */
    met_observe(h, 1000001);
    met_observe_n(h, 500000000, 2);
    met_observe(h, 3000000000);
    assert_int_equal(met_histogram_count(h), 6);
    assert_page(r, "# HELP ttft_seconds T.\n# TYPE ttft_seconds histogram\n"
                   "ttft_seconds_bucket{m=\"a\",le=\"0.001\"} 2\n"
                   "ttft_seconds_bucket{m=\"a\",le=\"0.25\"} 3\n"
                   "ttft_seconds_bucket{m=\"a\",le=\"1\"} 5\n"
                   "ttft_seconds_bucket{m=\"a\",le=\"+Inf\"} 6\n"
                   "ttft_seconds_sum{m=\"a\"} 4.002000001\n"
                   "ttft_seconds_count{m=\"a\"} 6\n");
    met_registry_free(r);
}

static void a_histogram_of_numbers_needs_no_labels(void **state)
{
    (void)state;
    met_registry *const r = new_registry();
    static const double bounds[] = {1, 8.5};
    met_histogram *h;
    assert_int_equal(met_histogram_get(r, &(met_desc){.name = "step_tokens", .help = "S."}, bounds, 2, &h, NULL), DI_OK);
    met_observe(h, 1);
    met_observe(h, 8);
    met_observe(h, 9);
    assert_page(r, "# HELP step_tokens S.\n# TYPE step_tokens histogram\nstep_tokens_bucket{le=\"1\"} 1\n"
                   "step_tokens_bucket{le=\"8.5\"} 2\nstep_tokens_bucket{le=\"+Inf\"} 3\nstep_tokens_sum 18\nstep_tokens_count 3\n");
    met_registry_free(r);
}

static void gauges_are_printed_shortly_and_read_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"}, {-0.5, "-0.5"}, {1e21, "1e+21"}, {1.0 / 3, "0.3333333333333333"}, {12345678901, "12345678901"},
                 {INFINITY, "+Inf"}, {-INFINITY, "-Inf"}, {NAN, "NaN"}};
    met_registry *const r = new_registry();
    met_gauge *g;
    assert_int_equal(met_gauge_get(r, &(met_desc){.name = "g", .help = ""}, &g, NULL), DI_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char page[128];
        snprintf(page, sizeof page, "# HELP g \n# TYPE g gauge\ng %s\n", cases[i].text);
        met_gauge_set(g, cases[i].value);
        assert_page(r, page);
    }
    met_registry_free(r);
}

static void labels_are_escaped(void **state)
{
    (void)state;
    buf labels;
    buf_init(&labels, 4096);
    assert_true(met_label(&labels, "route", "a\"b\\c\nd"));
    assert_true(met_label(&labels, "model", "\xC3\xA9\xFF\xE2\x82"));
    assert_string_equal(labels.data, "route=\"a\\\"b\\\\c\\nd\",model=\"\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\"");
    met_registry *const r = new_registry();
    met_counter_add(counter(r, &(met_desc){.name = "c", .help = "", .labels = labels.data}), 1);
    met_registry_free(r);
    buf_fini(&labels);
}

static void what_the_format_does_not_allow_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", "1x", "a-b", "a b", "a{", "\xC3\xA9"};
    static const char *const labels[] = {"x", "x=", "x=1", "x=\"1", "x=\"1\",", "x=\"1\"y=\"2\"", "x:y=\"1\"", "x=\"\\q\"",
                                         "x=\"\\", "x=\"\n\"", "=\"1\"", "le=\"1\"", ",x=\"1\""};
    met_registry *const r = new_registry();
    met_counter *c;
    di_error err;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unit_expect_error(met_counter_get(r, &(met_desc){.name = names[i]}, &c, &err), DI_E_ARGUMENT, &err, "no name", NULL);
        unit_expect_error(met_counter_get(r, &(met_desc){.name = "a", .alias = names[i]}, &c, &err), DI_E_ARGUMENT, &err, "no name", NULL);
    }
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        unit_expect_error(met_counter_get(r, &(met_desc){.name = "a", .labels = labels[i]}, &c, &err), DI_E_ARGUMENT, &err, "labels", NULL);
    }
    assert_page(r, "");
    met_registry_free(r);
}

static void a_name_has_one_meaning(void **state)
{
    (void)state;
    static const double bounds[] = {1, 2};
    static const double falling[] = {2, 2};
    static const double huge[] = {NAN};
    met_registry *const r = new_registry();
    met_gauge *g;
    met_histogram *h;
    di_error err;
    counter(r, &(met_desc){.name = "a", .alias = "vllm:a"});
    unit_expect_error(met_gauge_get(r, &(met_desc){.name = "a"}, &g, &err), DI_E_ARGUMENT, &err, "taken", NULL);
    unit_expect_error(met_gauge_get(r, &(met_desc){.name = "vllm:a"}, &g, &err), DI_E_ARGUMENT, &err, "taken", NULL);
    unit_expect_error(met_gauge_get(r, &(met_desc){.name = "b", .alias = "a"}, &g, &err), DI_E_ARGUMENT, &err, "taken", NULL);
    assert_int_equal(met_histogram_get(r, &(met_desc){.name = "h"}, bounds, 2, &h, NULL), DI_OK);
    unit_expect_error(met_histogram_get(r, &(met_desc){.name = "h"}, bounds, 1, &h, &err), DI_E_ARGUMENT, &err, "taken", NULL);
    unit_expect_error(met_histogram_get(r, &(met_desc){.name = "i"}, bounds, 0, &h, &err), DI_E_ARGUMENT, &err, "0 bounds", NULL);
    unit_expect_error(met_histogram_get(r, &(met_desc){.name = "i"}, falling, 2, &h, &err), DI_E_ARGUMENT, &err, "increase", NULL);
    unit_expect_error(met_histogram_get(r, &(met_desc){.name = "i"}, huge, 1, &h, &err), DI_E_ARGUMENT, &err, "increase", NULL);
    met_registry_free(r);
}

enum { N_THREADS = 4, N_ROUNDS = 2000 };

static void *count_in_a_thread(void *arg)
{
    met_registry *const r = arg;
    static const double bounds[] = {10, 100, 1000};
    met_histogram *h = NULL;
    met_gauge *g = NULL;
    met_counter *c = NULL;
    if (met_counter_get(r, &(met_desc){.name = "c"}, &c, NULL) != DI_OK || met_gauge_get(r, &(met_desc){.name = "g"}, &g, NULL) != DI_OK ||
        met_histogram_get(r, &(met_desc){.name = "h"}, bounds, 3, &h, NULL) != DI_OK) {
        return NULL;
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        met_counter_add(c, 2);
        met_gauge_add(g, 1);
        met_observe(h, i);
    }
    return arg;
}

static void threads_lose_no_update_while_pages_are_written(void **state)
{
    (void)state;
    met_registry *const r = new_registry();
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count_in_a_thread, r), 0);
    }
    buf page;
    buf_init(&page, 1 << 20);
    for (int i = 0; i < 100; i++) {
        buf_clear(&page);
        met_write(r, &page);
        assert_false(page.failed);
    }
    buf_fini(&page);
    for (int i = 0; i < N_THREADS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, r);
    }
    met_gauge *g;
    met_histogram *h;
    static const double bounds[] = {10, 100, 1000};
    assert_int_equal(met_counter_value(counter(r, &(met_desc){.name = "c"})), 2 * N_THREADS * N_ROUNDS);
    assert_int_equal(met_gauge_get(r, &(met_desc){.name = "g"}, &g, NULL), DI_OK);
    assert_true(met_gauge_value(g) == N_THREADS * N_ROUNDS);
    assert_int_equal(met_histogram_get(r, &(met_desc){.name = "h"}, bounds, 3, &h, NULL), DI_OK);
    assert_int_equal(met_histogram_count(h), N_THREADS * N_ROUNDS);
    met_registry_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_registry_is_an_empty_page),
        cmocka_unit_test(counters_of_one_family_share_their_help),
        cmocka_unit_test(an_alias_repeats_the_family_under_its_name),
        cmocka_unit_test(nanoseconds_are_printed_as_exact_seconds),
        cmocka_unit_test(a_histogram_counts_up_to_each_bound),
        cmocka_unit_test(a_histogram_of_numbers_needs_no_labels),
        cmocka_unit_test(gauges_are_printed_shortly_and_read_back),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(what_the_format_does_not_allow_is_refused),
        cmocka_unit_test(a_name_has_one_meaning),
        cmocka_unit_test(threads_lose_no_update_while_pages_are_written),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
