/* How likely the confidence head's survival comes true, on the demo model's evaluation set with greedy output: on odd ids the expected
 * calibration error over ten bins is at most 2 % with the temperatures of the model's configuration. With DI_ALL_PROMPTS
 * set, even ids run too, and temperatures are fitted on them (sequential temperature scaling, dspark.md 1.8) and printed,
 * which is where the configuration has them from.
 * ctest: serial timeout=1200 */
#include "core/core.h"
#include "engine/eng_budget.h"
#include "engine/eng_model.h"
#include "engine/eng_sched.h"
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 5, BINS = 10, GRID = 49, EOS = 1, MAX_PROPOSALS = 1 << 15 };

typedef struct proposal {
    float confidence[BLOCK];
    int32_t n;
    int32_t right;
} proposal;

typedef struct proposals {
    proposal *all; /* [MAX_PROPOSALS] */
    size_t n;
} proposals;

/* ---- expected calibration error ---- */

typedef struct bins {
    double sum[BINS]; /* of what was said */
    double right[BINS];
    double n[BINS];
} bins;

static void count(bins *b, float survival, bool right)
{
    const int at = survival < 1.0f ? (int)(survival * BINS) : BINS - 1;
    b->sum[at] += (double)survival;
    b->right[at] += right ? 1.0 : 0.0;
    b->n[at] += 1.0;
}

static double error_of(const bins *b)
{
    double n = 0.0;
    double sum = 0.0;
    for (int i = 0; i < BINS; i++) {
        n += b->n[i];
        sum += fabs(b->sum[i] - b->right[i]);
    }
    return n > 0.0 ? sum / n : 0.0;
}

/* Of prefixes of first .. last drafts (from 0). */
static double error_between(const proposals *p, const float *temperature, int32_t first, int32_t last)
{
    bins b = {.n = {0.0}};
    for (size_t i = 0; i < p->n; i++) {
        const proposal *const one = &p->all[i];
        float survival[BLOCK];
        eng_survival(one->confidence, temperature, one->n, survival);
        for (int32_t j = first; j <= last && j < one->n; j++) {
            count(&b, survival[j], one->right > j);
        }
    }
    return error_of(&b);
}

/* From left to right, each so that the error of its prefixes is least; 49 steps from 1/8 to 8. */
static void fit(const proposals *p, float *temperature)
{
    for (int32_t j = 0; j < BLOCK; j++) {
        double least = 2.0;
        float best = 1.0f;
        for (int i = 0; i < GRID; i++) {
            temperature[j] = powf(2.0f, (float)(i - GRID / 2) / 8.0f);
            const double e = error_between(p, temperature, j, j);
            if (e < least) {
                least = e;
                best = temperature[j];
            }
        }
        temperature[j] = best;
    }
}

/* ---- proposals ---- */

static void on_events(void *user, const di_task_event *events, size_t n)
{
    (void)user;
    (void)events;
    (void)n;
}

/* The pass that a step has just taken in is the one that will be planned next. */
static void collect(const di_scheduler *s, proposals *p)
{
    const eng_pass *const done = s->plan;
    for (int32_t i = 0; i < done->n_parts; i++) {
        const eng_part *const part = &done->parts[i];
        if (!part->prefill && part->n > 1) {
            assert_true(p->n < MAX_PROPOSALS);
            assert_in_range(part->n - 1, 1, BLOCK);
            proposal *const one = &p->all[p->n++];
            *one = (proposal){.n = part->n - 1, .right = part->n_right};
            memcpy(one->confidence, part->confidence, (size_t)one->n * sizeof *one->confidence);
        }
    }
}

static void run(di_scheduler *s, const int32_t *prompt, size_t n, proposals *p)
{
    static const int32_t stop = EOS;
    di_sampling sampling;
    di_task *task;
    di_error err;
    di_step_info step = {.idle = false};
    di_sampling_default(&sampling);
    sampling.temperature = 0.0f;
    sampling.stop_ids = &stop;
    sampling.n_stop_ids = 1;
    if (di_task_submit(s, &(di_task_options){.prompt = prompt, .n_prompt = n, .sampling = &sampling, .no_cache = true}, &task, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    while (!step.idle) {
        assert_int_equal(di_scheduler_step(s, &step, NULL), DI_OK);
        if (step.n_tokens > 0) {
            collect(s, p);
        }
    }
}

static void one_line(di_scheduler *s, const char *line, size_t size, proposals *sides)
{
    js_doc *doc = NULL;
    di_error err;
    if (js_parse(line, size, "eval.jsonl", NULL, &doc, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    const js_value *const list = js_get(js_root(doc), "prompt_ids");
    const char *const id = js_string(js_get(js_root(doc), "id"), NULL);
    const size_t n = js_length(list);
    int32_t *const prompt = ar_calloc(n, sizeof *prompt);
    assert_non_null(prompt);
    for (size_t i = 0; i < n; i++) {
        prompt[i] = (int32_t)js_int(js_at(list, i));
    }
    run(s, prompt, n, &sides[atoi(id + strlen("eval-")) % 2]);
    free(prompt);
    js_free(doc);
}

static di_scheduler *open_scheduler(di_model **model, di_engine **engine)
{
    di_error err;
    di_scheduler *s = NULL;
    *model = eng_model_open("models/demo");
    di_status status = di_engine_open(*model, &(di_engine_options){.draft = true}, engine, &err);
    if (status == DI_OK) {
        status = di_scheduler_new(*engine, &(di_scheduler_options){.on_events = on_events}, &s, &err);
    }
    if (status != DI_OK) {
        fail_msg("%s", err.message);
    }
    return s;
}

static void check_error(const proposals *odd, const float *stored)
{
    for (int32_t j = 0; j < BLOCK; j++) {
        print_message("draft %d: error %.4f, without temperatures %.4f\n", j, error_between(odd, stored, j, j),
                      error_between(odd, NULL, j, j));
    }
    const double error = error_between(odd, stored, 0, BLOCK - 1);
    const double without = error_between(odd, NULL, 0, BLOCK - 1);
    print_message("%zu proposals: error %.4f, without temperatures %.4f\n", odd->n, error, without);
    assert_true(error <= 0.02);
    assert_true(error < without);
}

static void check_fit(const proposals *even, const float *stored)
{
    float fitted[BLOCK];
    fit(even, fitted);
    for (int32_t j = 0; j < BLOCK; j++) {
        print_message("draft %d: fitted %.6f, stored %.6f\n", j, (double)fitted[j], (double)stored[j]);
        assert_true(fabsf(log2f(fitted[j] / stored[j])) <= 0.25f); /* rounding may move the fit a step or two */
    }
}

static void survival_comes_true(void **state)
{
    (void)state;
    char path[1024];
    char *text = NULL;
    size_t size = 0;
    di_error err;
    di_model *model;
    di_engine *engine;
    const char *const data = getenv("DI_TEST_DATA");
    (void)snprintf(path, sizeof path, "%s/%sdemo_model/eval.jsonl", data != NULL ? data : getenv("DI_SOURCE_DIR"),
                   data != NULL ? "" : "tests/data/");
    if (file_read(path, (size_t)256 << 20, &text, &size, &err) != DI_OK) {
        printf("demo_model/eval.jsonl: 0 passed, 1 skipped (%s)\n", err.message);
        skip();
    }
    proposals sides[2] = {{.all = ar_calloc(MAX_PROPOSALS, sizeof(proposal))}, {.all = ar_calloc(MAX_PROPOSALS, sizeof(proposal))}};
    assert_non_null(sides[0].all);
    assert_non_null(sides[1].all);
    di_scheduler *const s = open_scheduler(&model, &engine);
    const bool all = getenv("DI_ALL_PROMPTS") != NULL;
    int i = 0;
    for (char *line = text; line < text + size; i++) {
        char *const end = memchr(line, '\n', (size_t)(text + size - line));
        const size_t n = end != NULL ? (size_t)(end - line) : (size_t)(text + size - line);
        if (n > 0 && (all || i % 2 == 1)) {
            one_line(s, line, n, sides);
        }
        line += n + 1;
    }
    check_error(&sides[1], mdl_config_of(model)->draft.temperature);
    if (all) {
        check_fit(&sides[0], mdl_config_of(model)->draft.temperature);
    }
    printf("demo_model/eval.jsonl: %zu passed, 0 skipped\n", sides[0].n + sides[1].n);
    di_scheduler_free(s);
    di_engine_close(engine);
    di_model_close(model);
    free(sides[0].all);
    free(sides[1].all);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survival_comes_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
