/* Drafts on the GPU: blocks of a slice of the released model beside those of the reference on the processor, and texts of the demo model,
 * greedy and with a seed, many at a time and of several choices, which are the same with drafts and without.
 * ctest: serial timeout=600 */
#include "support/unit.h"

#include "core/core.h"
#include "core/json.h"
#include "cuda/cuda.h"
#include "deepinfer/model.h"
#include "deepinfer/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Blocks --------------------------------------------------------------------------------------------------------------------------- */

enum { LAYERS = 4, STAGES = 3, EXPERTS = 16, BLOCK = 5, PROMPTS = 4, VOCAB = 4096, HIDDEN = 5120 };

/* Both devices round alike but add in other orders, and a BF16 value that falls the other way moves a code of 8 bits. */
#define MOST_REL_RMS 0.1
#define MOST_CONFIDENCE 0.05 /* of values of about 1 */

static const size_t LENGTHS[PROMPTS] = {1, 5, 127, 300};

typedef struct block {
    float logits[BLOCK * VOCAB]; /* of the block, without the Markov head */
    float confidence[BLOCK];
    int32_t ids[BLOCK];
} block;

static void take_base(void *user, const di_trace *t)
{
    block *const b = user;
    if (strcmp(t->name, "base_logits") == 0) {
        assert_int_equal(t->dims[0], BLOCK);
        assert_int_equal(t->dims[1], VOCAB);
        memcpy(b->logits, t->data, sizeof b->logits);
    }
}

static void make_blocks(const di_model *model, const char *backend, block *out)
{
    static block traced;
    di_engine *engine;
    di_error err;
    const di_engine_options options = {.backend = backend, .draft = true, .kv_bytes = (int64_t)1 << 30, .trace = take_base, .trace_user = &traced};
    if (di_engine_open(model, &options, &engine, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    for (int p = 0; p < PROMPTS; p++) {
        di_sequence *s;
        int32_t n = 0;
        assert_int_equal(di_sequence_new(engine, &s, &err), DI_OK);
        for (size_t i = 0; i < LENGTHS[p]; i++) {
            const int32_t id = (int32_t)((i * 2654435761u + (size_t)p * 40503u + i * i * 7u) % 4000u);
            assert_int_equal(di_sequence_feed(s, &id, 1, &err), DI_OK);
        }
        assert_int_equal(di_sequence_run(s, &err), DI_OK);
        assert_int_equal(di_sequence_draft(s, 17 + p, traced.ids, traced.confidence, BLOCK, &n, &err), DI_OK);
        assert_int_equal(n, BLOCK);
        out[p] = traced;
        di_sequence_free(s);
    }
    di_engine_close(engine);
}

static double rel_rms(const float *got, const float *want, size_t n)
{
    double difference2 = 0.0;
    double want2 = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference2 += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        want2 += (double)want[i] * (double)want[i];
    }
    return sqrt(difference2 / want2);
}

static void blocks_of_released_shapes_are_those_of_the_processor(void **state)
{
    const di_synthetic shape = {.n_layers = LAYERS, .n_experts = EXPERTS, .n_drafts = STAGES};
    block *const ours = calloc(PROMPTS, sizeof *ours);
    block *const wanted = calloc(PROMPTS, sizeof *wanted);
    di_model *model;
    di_error err;
    (void)state;
    assert_non_null(ours);
    assert_non_null(wanted);
    assert_int_equal(di_synthetic_open(&shape, &model, &err), DI_OK);
    make_blocks(model, "cpu", wanted);
    make_blocks(model, "cuda", ours);
    for (int p = 0; p < PROMPTS; p++) {
        const double off = rel_rms(ours[p].logits, wanted[p].logits, BLOCK * VOCAB);
        double confidence = 0.0;
        int same = 0;
        while (same < BLOCK && ours[p].ids[same] == wanted[p].ids[same]) {
            same++;
        }
        for (int i = 0; i <= same && i < BLOCK; i++) {
            confidence = fmax(confidence, fabs((double)ours[p].confidence[i] - (double)wanted[p].confidence[i]));
        }
        print_message("context %zu: rel rms of logits %.5f, confidences within %.5f, first %d of %d drafts the same\n", LENGTHS[p], off, confidence,
                      same, BLOCK);
        assert_true(off <= MOST_REL_RMS);
        assert_true(confidence <= MOST_CONFIDENCE);
    }
    di_model_close(model);
    free(ours);
    free(wanted);
}

/* --- Texts ---------------------------------------------------------------------------------------------------------------------------- */

enum { TEXTS = 24, STRIDE = 16, CHOICES = 2, MAX_OUT = 64, EOS = 1 };

typedef struct text {
    int32_t ids[CHOICES][MAX_OUT];
    int32_t n[CHOICES];
} text;

static void on_events(void *user, const di_task_event *events, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        text *const t = events[i].user;
        if (events[i].sample != NULL) {
            t->ids[events[i].choice][t->n[events[i].choice]++] = events[i].sample->id;
        }
        assert_int_not_equal(events[i].end, DI_TASK_FAILED);
    }
}

/* Every STRIDE-th line: even ones greedy, odd ones sampled with a seed in two choices. */
static void submit_all(di_scheduler *s, const char *lines, size_t size, text *out)
{
    static const int32_t stop = EOS;
    int n = 0;
    int i = 0;
    for (const char *line = lines; line < lines + size && n < TEXTS; i++) {
        const char *const end = memchr(line, '\n', (size_t)(lines + size - line));
        const size_t length = (size_t)((end != NULL ? end : lines + size) - line);
        if (i % STRIDE == 0 && length > 0) {
            js_doc *doc = NULL;
            di_error err;
            di_task *task;
            di_sampling sampling;
            assert_int_equal(js_parse(line, length, "eval.jsonl", NULL, &doc, &err), DI_OK);
            const js_value *const list = js_get(js_root(doc), "prompt_ids");
            int32_t *const ids = calloc(js_length(list), sizeof *ids);
            assert_non_null(ids);
            for (size_t k = 0; k < js_length(list); k++) {
                ids[k] = (int32_t)js_int(js_at(list, k));
            }
            di_sampling_default(&sampling);
            sampling.temperature = n % 2 == 0 ? 0.0f : 1.0f;
            sampling.seed = (uint64_t)n;
            sampling.stop_ids = &stop;
            sampling.n_stop_ids = 1;
            const di_task_options options = {.prompt = ids,
                                             .n_prompt = js_length(list),
                                             .sampling = &sampling,
                                             .n = n % 2 == 0 ? 1 : CHOICES,
                                             .max_tokens = MAX_OUT,
                                             .no_cache = true,
                                             .user = &out[n]};
            assert_int_equal(di_task_submit(s, &options, &task, &err), DI_OK);
            free(ids);
            js_free(doc);
            n++;
        }
        line += length + 1;
    }
    assert_int_equal(n, TEXTS);
}

static void generate(const di_model *model, int32_t draft_tokens, bool automatic, const char *lines, size_t size, text *out,
                     di_scheduler_stats *stats)
{
    di_engine *engine;
    di_scheduler *s;
    di_error err;
    di_step_info step = {.idle = false};
    assert_int_equal(di_engine_open(model, &(di_engine_options){.backend = "cuda", .draft = true, .kv_bytes = (int64_t)1 << 30}, &engine, &err),
                     DI_OK);
    const di_scheduler_options options = {.on_events = on_events, .draft_tokens = draft_tokens, .draft_auto = automatic};
    assert_int_equal(di_scheduler_new(engine, &options, &s, &err), DI_OK);
    submit_all(s, lines, size, out);
    while (!step.idle) {
        assert_int_equal(di_scheduler_step(s, &step, &err), DI_OK);
    }
    di_scheduler_get_stats(s, stats);
    di_scheduler_free(s);
    di_engine_close(engine);
}

static void texts_are_the_same_with_drafts_and_without(void **state)
{
    static const struct {
        int32_t tokens;
        bool automatic;
    } WAYS[] = {{0, false}, {2, false}, {0, true}};
    char path[1024];
    char *lines = NULL;
    size_t size = 0;
    di_model *model;
    di_error err;
    di_scheduler_stats stats;
    const char *const root = getenv("DI_SOURCE_DIR");
    text *const wanted = calloc(TEXTS, sizeof *wanted);
    text *const ours = calloc(TEXTS, sizeof *ours);
    (void)state;
    assert_non_null(wanted);
    assert_non_null(ours);
    (void)snprintf(path, sizeof path, "%s/tests/data/demo_model/eval.jsonl", root != NULL ? root : ".");
    assert_int_equal(file_read(path, (size_t)256 << 20, &lines, &size, &err), DI_OK);
    (void)snprintf(path, sizeof path, "%s/models/demo", root != NULL ? root : ".");
    assert_int_equal(di_model_open(path, NULL, &model, &err), DI_OK);
    generate(model, -1, false, lines, size, wanted, &stats);
    assert_int_equal(stats.drafted_tokens, 0);
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        memset(ours, 0, TEXTS * sizeof *ours);
        generate(model, WAYS[i].tokens, WAYS[i].automatic, lines, size, ours, &stats);
        print_message("%lld of %lld drafts right in %lld steps\n", (long long)stats.accepted_tokens, (long long)stats.drafted_tokens,
                      (long long)stats.n_steps);
        assert_memory_equal(ours, wanted, TEXTS * sizeof *ours);
        assert_true(WAYS[i].automatic || stats.accepted_tokens * 2 > stats.drafted_tokens); /* automatic: none may pay */
    }
    free(lines);
    free(wanted);
    free(ours);
    di_model_close(model);
}

int main(void)
{
    if (!cu_available()) {
        printf("skipped: no GPU\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_released_shapes_are_those_of_the_processor),
        cmocka_unit_test(texts_are_the_same_with_drafts_and_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
