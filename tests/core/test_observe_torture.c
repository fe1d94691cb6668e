/* Allocation failures in turn: making metrics and writing their page, opening a log and building a line.
 *
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

#include "core/err.h"
#include "core/log.h"
#include "core/log_text.h"
#include "core/metrics.h"

static di_status write_page(met_registry *r, di_error *err)
{
    buf page;
    buf_init(&page, 1 << 16);
    met_write(r, &page);
    const di_status status = page.failed ? err_memory(err, "page", page.size) : DI_OK;
    if (status == DI_OK) {
        assert_true(page.size > 256); /* it had to grow */
    }
    buf_fini(&page);
    return status;
}

static di_status make_metrics(const void *arg, di_error *err)
{
    static const double bounds[] = {0.1, 1, 10};
    met_registry *r = NULL;
    met_counter *c;
    met_gauge *g;
    met_histogram *h;
    (void)arg;
    di_status status = met_registry_new(&r, err);
    if (status == DI_OK) {
        status = met_counter_get(r, &(met_desc){.name = "a", .alias = "vllm:a", .help = "A.", .labels = "x=\"1\""}, &c, err);
    }
    if (status == DI_OK) {
        status = met_counter_get(r, &(met_desc){.name = "a", .alias = "vllm:a", .help = "A.", .labels = "x=\"2\""}, &c, err);
    }
    if (status == DI_OK) {
        status = met_gauge_get(r, &(met_desc){.name = "b", .help = "B."}, &g, err);
    }
    if (status == DI_OK) {
        status = met_histogram_get(r, &(met_desc){.name = "c", .help = "C.", .unit = MET_SECONDS}, bounds, 3, &h, err);
    }
    if (status == DI_OK) {
        status = write_page(r, err);
    }
    met_registry_free(r);
    return status;
}

/* A refused series leaves no empty family behind. */
static void a_failed_series_leaves_no_trace_on_the_page(void **state)
{
    (void)state;
    met_registry *r;
    met_counter *c;
    buf page;
    assert_int_equal(met_registry_new(&r, NULL), DI_OK);
    torture.left = 4; /* the family, its name and help, the series */
    torture.on = true;
    assert_int_equal(met_counter_get(r, &(met_desc){.name = "a", .help = "A."}, &c, NULL), DI_E_MEMORY);
    torture.on = false;
    assert_null(c);
    buf_init(&page, 1000);
    met_write(r, &page);
    assert_int_equal(page.size, 0);
    assert_int_equal(met_counter_get(r, &(met_desc){.name = "a", .help = "A."}, &c, NULL), DI_OK);
    met_registry_free(r);
}

static di_status write_log(const void *arg, di_error *err)
{
    log_sink *log = NULL;
    buf line;
    buf_init(&line, 1000);
    di_status status = log_open(&(log_options){.path = arg}, &log, err);
    if (status == DI_OK) {
        log_json_begin(&line);
        log_json_string(&line, "id", "a text that is long enough for the buffer to grow: ................................................"
                                     ".............................................................................................");
        log_text(log, LOG_LEVEL_ERROR, "needs %s", "no memory");
        status = log_json_end(&line, log) ? DI_OK : err_memory(err, "line", line.size);
    }
    log_close(log);
    buf_fini(&line);
    return status;
}

static void metrics_survive_any_failed_allocation(void **state)
{
    (void)state;
    torture_all("metrics", make_metrics, NULL, 100);
}

static void a_log_survives_any_failed_allocation(void **state)
{
    (void)state;
    torture_all("log", write_log, "/dev/null", 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_survive_any_failed_allocation),
        cmocka_unit_test(a_failed_series_leaves_no_trace_on_the_page),
        cmocka_unit_test(a_log_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests_name("observe_torture", tests, NULL, NULL);
}
