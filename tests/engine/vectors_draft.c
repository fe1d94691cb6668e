/* Drafts of the demo model on its evaluation set: what comes out is what the reference says without drafts, and as many drafts of each
 * proposal are right as the reference counted (bars: 97 % of the prompts alike, within 2 % on average; a prompt whose output parts from the
 * reference where two tokens are about equally likely counts as not alike). Every fourth prompt; all of them with DI_ALL_PROMPTS set. With
 * as many drafts as pay, texts are the same.
 * ctest: serial timeout=1200 */
#include "core/core.h"
#include "engine/eng_model.h"
#include "support/unit.h"

#include <deepinfer/scheduler.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 4096, EOS = 1, STRIDE = 4, AUTO_STRIDE = 16 };

typedef struct talk {
    int32_t ids[MAX_OUT];
    int32_t n;
} talk;

typedef struct sums {
    int n;
    int outputs; /* equal */
    int alike;   /* drafts, too */
    int64_t accepted;
    int64_t wanted;
} sums;

static void on_events(void *user, const di_task_event *events, size_t n)
{
    talk *const t = user;
    for (size_t i = 0; i < n; i++) {
        if (events[i].sample != NULL) {
            assert_true(t->n < MAX_OUT);
            t->ids[t->n++] = events[i].sample->id;
        }
    }
}

static int32_t *ids_of(const js_value *list, size_t *n)
{
    *n = js_length(list);
    int32_t *const ids = ar_calloc(*n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)js_int(js_at(list, i));
    }
    return ids;
}

/* Runs the prompt alone; true when each proposal had as many right drafts as `wanted` says. */
static bool run(di_scheduler *s, talk *t, const int32_t *prompt, size_t n, const js_value *wanted, sums *sum)
{
    static const int32_t stop = EOS;
    di_sampling sampling;
    di_task *task;
    di_error err;
    di_step_info step = {.idle = false};
    di_scheduler_stats before;
    di_scheduler_stats after;
    size_t i = 0;
    bool alike = true;
    di_sampling_default(&sampling);
    sampling.temperature = 0.0f;
    sampling.stop_ids = &stop;
    sampling.n_stop_ids = 1;
    t->n = 0;
    if (di_task_submit(s, &(di_task_options){.prompt = prompt, .n_prompt = n, .sampling = &sampling, .no_cache = true}, &task, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    for (di_scheduler_get_stats(s, &before); !step.idle; before = after) {
        assert_int_equal(di_scheduler_step(s, &step, NULL), DI_OK);
        di_scheduler_get_stats(s, &after);
        if (after.n_verified > before.n_verified) {
            const int64_t accepted = after.accepted_tokens - before.accepted_tokens;
            alike = alike && i < js_length(wanted) && accepted == js_int(js_at(wanted, i));
            sum->accepted += accepted;
            sum->wanted += js_int(js_at(wanted, i++));
        }
    }
    return alike && i == js_length(wanted);
}

static void one_line(di_scheduler *s, talk *t, const char *line, size_t size, sums *sum)
{
    js_doc *doc = NULL;
    di_error err;
    size_t n;
    size_t n_wanted;
    if (js_parse(line, size, "eval.jsonl", NULL, &doc, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    const js_value *const root = js_root(doc);
    int32_t *const prompt = ids_of(js_get(root, "prompt_ids"), &n);
    int32_t *const wanted = ids_of(js_get(root, "reference_output_ids"), &n_wanted);
    const bool alike = run(s, t, prompt, n, js_get(root, "draft_accepted"), sum);
    const bool equal = (size_t)t->n == n_wanted && memcmp(t->ids, wanted, n_wanted * sizeof *wanted) == 0;
    sum->n++;
    sum->outputs += equal;
    sum->alike += equal && alike;
    free(prompt);
    free(wanted);
    js_free(doc);
}

static di_scheduler *open_scheduler(talk *t, bool automatic, di_model **model, di_engine **engine)
{
    di_error err;
    di_scheduler *s = NULL;
    *model = eng_model_open("models/demo");
    di_status status = di_engine_open(*model, &(di_engine_options){.draft = true}, engine, &err);
    if (status == DI_OK) {
        status = di_scheduler_new(*engine, &(di_scheduler_options){.on_events = on_events, .user = t, .draft_auto = automatic}, &s, &err);
    }
    if (status != DI_OK) {
        fail_msg("%s", err.message);
    }
    return s;
}

/* Of the evaluation set; the test is skipped when it is not there. */
static char *read_lines(size_t *size)
{
    char path[1024];
    char *text = NULL;
    di_error err;
    const char *const data = getenv("DI_TEST_DATA");
    (void)snprintf(path, sizeof path, "%s/%sdemo_model/eval.jsonl", data != NULL ? data : getenv("DI_SOURCE_DIR"),
                   data != NULL ? "" : "tests/data/");
    if (file_read(path, (size_t)256 << 20, &text, size, &err) != DI_OK) {
        printf("demo_model/eval.jsonl: 0 passed, 1 skipped (%s)\n", err.message);
        skip();
    }
    return text;
}

/* Every stride-th line. */
static void all_lines(di_scheduler *s, talk *t, const char *text, size_t size, int stride, sums *sum)
{
    int i = 0;
    for (const char *line = text; line < text + size; i++) {
        const char *const end = memchr(line, '\n', (size_t)(text + size - line));
        const size_t n = end != NULL ? (size_t)(end - line) : (size_t)(text + size - line);
        if (n > 0 && i % stride == 0) {
            one_line(s, t, line, n, sum);
        }
        line += n + 1;
    }
}

static void texts_are_the_same_with_as_many_drafts_as_pay(void **state)
{
    (void)state;
    size_t size = 0;
    di_model *model;
    di_engine *engine;
    char *const text = read_lines(&size);
    talk *const t = calloc(1, sizeof *t);
    assert_non_null(t);
    sums sum = {.n = 0};
    di_scheduler *const s = open_scheduler(t, true, &model, &engine);
    all_lines(s, t, text, size, getenv("DI_ALL_PROMPTS") != NULL ? 1 : AUTO_STRIDE, &sum);
    di_scheduler_stats stats;
    di_scheduler_get_stats(s, &stats);
    print_message("outputs equal %d of %d; %lld drafts in %lld steps, %lld right\n", sum.outputs, sum.n, (long long)stats.drafted_tokens,
                  (long long)stats.n_steps, (long long)stats.accepted_tokens);
    assert_true(sum.outputs >= 0.97 * sum.n);
    assert_true(stats.drafted_tokens > 0);
    di_scheduler_free(s);
    di_engine_close(engine);
    di_model_close(model);
    free(t);
    free(text);
}

static void as_many_drafts_are_right_as_the_reference_counted(void **state)
{
    (void)state;
    size_t size = 0;
    di_model *model;
    di_engine *engine;
    char *const text = read_lines(&size);
    talk *const t = calloc(1, sizeof *t);
    assert_non_null(t);
    sums sum = {.n = 0};
    di_scheduler *const s = open_scheduler(t, false, &model, &engine);
    all_lines(s, t, text, size, getenv("DI_ALL_PROMPTS") != NULL ? 1 : STRIDE, &sum);
    di_scheduler_stats stats;
    di_scheduler_get_stats(s, &stats);
    print_message("outputs equal %d of %d, drafts alike %d; %.3f right of a proposal, reference %.3f\n", sum.outputs, sum.n, sum.alike,
                  (double)sum.accepted / (double)stats.n_verified, (double)sum.wanted / (double)stats.n_verified);
    printf("demo_model/eval.jsonl: %d passed, 0 skipped (%d prompts with other drafts)\n", sum.alike, sum.n - sum.alike);
    assert_true(sum.alike >= 0.97 * sum.n);
    assert_true(fabs((double)(sum.accepted - sum.wanted)) <= 0.02 * (double)sum.wanted);
    di_scheduler_free(s);
    di_engine_close(engine);
    di_model_close(model);
    free(t);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_the_same_with_as_many_drafts_as_pay),
        cmocka_unit_test(as_many_drafts_are_right_as_the_reference_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
