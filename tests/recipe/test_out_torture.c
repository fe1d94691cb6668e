/* Fails each allocation of the output parser in turn (support/torture.h): a clean DI_E_MEMORY, no leak, no crash, and an
 * output that ran out of memory takes nothing more.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

#include "out_support.h"

enum { N_IDS = 200, END_THINK = 3069, DSML = 3070 }; /* of the demo model */

static const char *const stops[] = {"END", "a longer stop string"};
static const di_output_options options = {
    .tools = true, .stage = DI_STAGE_REASONING_START, .stops = stops, .n_stops = 2};

/* Every piece is looked at, so that the address sanitizer sees what it borrows. */
static size_t drain(di_output *output)
{
    di_piece p;
    size_t sum = 0;
    while (di_output_next(output, &p)) {
        for (size_t i = 0; i < p.size; i++) {
            sum += (unsigned char)p.text[i];
        }
        for (size_t i = 0; i < p.n_logprobs; i++) {
            sum += (size_t)p.logprobs[i].n_top + (p.logprobs[i].top[0].id != 0 ? 1 : 0);
        }
    }
    return sum;
}

static di_status parse_text(const void *arg, di_error *err)
{
    (void)arg;
    static const char text[] = "\nthinking\n\n</think>\n\nanswer\n\n<｜DSML｜ calls>\n"
                               "<｜DSML｜ invoke name=\"a long name of a function\">\n"
                               "<｜DSML｜ parameter name=\"key\" string=\"true\">some \"text\" that is\nescaped"
                               "</｜DSML｜ parameter>\n"
                               "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
    di_output *output = NULL;
    di_status status = di_output_new(fixture.recipe, &options, &output, err);
    for (size_t i = 0; i < sizeof text - 1 && status == DI_OK; i += 7) {
        const size_t left = sizeof text - 1 - i;
        status = di_output_push_text(output, text + i, left < 7 ? left : 7, 1, err);
        (void)drain(output);
    }
    if (status == DI_OK) {
        status = di_output_finish(output, DI_FINISH_STOP, err);
        (void)drain(output);
    } else if (output != NULL) {
        di_error later;
        assert_int_equal(di_output_push_text(output, "a", 1, 1, &later), DI_E_STATE);
        assert_non_null(strstr(later.message, "out of memory"));
    }
    di_output_free(output);
    return status;
}

/* Ids at once, whose log-probabilities make the lists grow. */
static di_status parse_ids(const void *arg, di_error *err)
{
    (void)arg;
    int32_t ids[N_IDS];
    di_token_logprob top[N_IDS];
    di_token_logprobs logprobs[N_IDS];
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = i == 50 ? END_THINK : i == 150 ? DSML : 40 + i % 50;
        top[i] = (di_token_logprob){.id = ids[i]};
        logprobs[i] = (di_token_logprobs){.id = ids[i], .n_top = 1, .top = &top[i]};
    }
    di_output *output = NULL;
    di_status status = di_output_new(fixture.recipe, &options, &output, err);
    for (int i = 0; i < N_IDS && status == DI_OK; i += N_IDS / 2) {
        status = di_output_push_ids(output, ids + i, N_IDS / 2, logprobs + i, err);
        (void)drain(output);
    }
    if (status == DI_OK) {
        status = di_output_finish(output, DI_FINISH_LENGTH, err);
    }
    di_output_free(output);
    return status;
}

static void text(void **state)
{
    (void)state;
    torture_all("text", parse_text, NULL, 1000);
}

static void ids_with_logprobs(void **state)
{
    (void)state;
    torture_all("ids", parse_ids, NULL, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),
        cmocka_unit_test(ids_with_logprobs),
    };
    return cmocka_run_group_tests(tests, out_set_up_demo, out_tear_down);
}
