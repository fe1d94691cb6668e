/* The whole scheduler leaves the distribution of sampled texts as it is, drafts or not: texts of many choices that run together, against the
 * exact distribution. Model and draft model are tables of logits behind the last token, which often disagree, in place of forward passes;
 * everything else is what it always is. Coupled choices run in the same passes. Chi-square over 100,000 texts a setting, two
 * triples of tokens each, fixed seeds, p-values above 0.001 / number of tests.
 * ctest: timeout=900 wrap=mdl_forward,mdl_draft_begin,mdl_draft_step */
#include "engine/eng_exact.h"
#include "engine/eng_model.h"
#include "engine/eng_sched.h"
#include "support/unit.h"

#include <deepinfer/scheduler.h>

#include <math.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TASKS = 4 };
#else
enum { TASKS = 800 };
#endif

enum { IDS = 6, CHOICES = 125, TOKENS = 4, TRIPLES = IDS * IDS * IDS, PROMPT = 5, MOST_VOCAB = EXACT_MOST };

static di_model *model;
static int32_t vocab;
static const int32_t prompt[PROMPT] = {7, 90, 33, 7, 151};
static const int32_t ids[IDS] = {12, 40, 77, 130, 201, 222};

typedef struct setting {
    const char *name;
    di_verify verify;
    di_sampling s;
    int32_t draft_tokens;
    bool automatic;
} setting;

static const setting settings[] = {
    {.name = "block", .verify = DI_VERIFY_BLOCK},
    {.name = "block, chosen lengths", .verify = DI_VERIFY_BLOCK, .automatic = true, .s.temperature = 1.4f},
    {.name = "rejection", .verify = DI_VERIFY_REJECTION, .draft_tokens = 2},
    {.name = "block, all", .verify = DI_VERIFY_BLOCK, .s.temperature = 1.3f, .s.top_k = 5, .s.top_p = 0.95f, .s.min_p = 0.02f,
     .s.repetition_penalty = 1.1f, .s.presence_penalty = 0.4f, .s.frequency_penalty = 0.3f},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

/* Behind a token of the text, and behind the prompt: of the target, of the draft model, and how sure that one is. */
static float target[IDS + 1][IDS];
static float drafter[IDS + 1][IDS];
static float sureness[IDS + 1];

static int place_of(int32_t id)
{
    int k = 0;
    while (k < IDS && ids[k] != id) {
        k++;
    }
    return k;
}

static di_sampling complete(const setting *c, uint64_t seed)
{
    di_sampling s = c->s;
    s.temperature = s.temperature != 0.0f ? s.temperature : 1.0f;
    s.top_p = s.top_p != 0.0f ? s.top_p : 1.0f;
    s.repetition_penalty = s.repetition_penalty != 0.0f ? s.repetition_penalty : 1.0f;
    s.seed = seed;
    return s;
}

/* ---- the tables as a model ---- */

static void write_row(const float *from, float *logits)
{
    for (int32_t i = 0; i < vocab; i++) {
        logits[i] = -80.0f;
    }
    for (int k = 0; k < IDS; k++) {
        logits[ids[k]] = from[k];
    }
}

di_status __wrap_mdl_forward(mdl_runner *r, const mdl_item *items, int32_t n_items, float *logits, int32_t *n_logits, di_error *err);
di_status __wrap_mdl_draft_begin(mdl_runner *r, const mdl_seq *const *seqs, const int32_t *anchors, int32_t n, di_error *err);
di_status __wrap_mdl_draft_step(mdl_runner *r, int32_t i, const int32_t *previous, float *logits, float *confidence, di_error *err);

di_status __wrap_mdl_forward(mdl_runner *r, const mdl_item *items, int32_t n_items, float *logits, int32_t *n_logits, di_error *err)
{
    (void)r;
    (void)err;
    *n_logits = 0;
    for (int32_t i = 0; i < n_items; i++) {
        const mdl_item *const item = &items[i];
        item->seq->n_tokens += item->n;
        for (int32_t k = item->n_after == 0 ? item->n - item->n_logits : item->n; k < item->n; k++) {
            write_row(target[place_of(item->ids[k])], logits + (size_t)(*n_logits)++ * (size_t)vocab);
        }
    }
    return DI_OK;
}

static int32_t n_proposing; /* the executor's thread only */

di_status __wrap_mdl_draft_begin(mdl_runner *r, const mdl_seq *const *seqs, const int32_t *anchors, int32_t n, di_error *err)
{
    (void)r;
    (void)seqs;
    (void)anchors;
    (void)err;
    n_proposing = n;
    return DI_OK;
}

di_status __wrap_mdl_draft_step(mdl_runner *r, int32_t i, const int32_t *previous, float *logits, float *confidence, di_error *err)
{
    (void)r;
    (void)i;
    (void)err;
    for (int32_t k = 0; k < n_proposing; k++) {
        const int place = place_of(previous[k]);
        write_row(drafter[place], logits + (size_t)k * (size_t)vocab);
        confidence[k] = sureness[place];
    }
    return DI_OK;
}

static void open_model(void)
{
    di_model_info info;
    model = eng_model_open("tests/data/model/t6");
    di_model_get_info(model, &info);
    vocab = info.vocab_size;
    assert_in_range(vocab, 1, MOST_VOCAB);
    uint64_t random = 31;
    for (int i = 0; i <= IDS; i++) {
        for (int k = 0; k < IDS; k++) {
            target[i][k] = (float)(unit_random(&random) % 1000) * 0.003f;
            drafter[i][k] = target[i][k] + (float)(unit_random(&random) % 1000) * 0.002f - 1.0f;
        }
        sureness[i] = (float)(unit_random(&random) % 1000) * 0.004f - 1.0f;
    }
}

static di_engine *open_engine(void)
{
    di_engine *e = NULL;
    di_error err;
    if (di_engine_open(model, &(di_engine_options){.chunk_tokens = 256, .n_threads = 1, .draft = true}, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* ---- what should come ---- */

/* Texts of n tokens as numbers in base IDS, the first token the highest digit. */
static void spell(int number, int n, int32_t *text)
{
    for (int i = n - 1; i >= 0; i--, number /= IDS) {
        text[i] = ids[number % IDS];
    }
}

/* Probabilities of the first three tokens, and of those behind the first. */
static void exact_triples(const setting *c, double *early, double *late)
{
    const di_sampling s = complete(c, 0);
    double chance[IDS * TRIPLES]; /* of a text of the length in turn */
    double next[MOST_VOCAB];
    float logits[MOST_VOCAB];
    memset(late, 0, TRIPLES * sizeof *late);
    chance[0] = 1.0;
    for (int n = 0, size = 1; n < TOKENS; n++, size *= IDS) {
        for (int i = size - 1; i >= 0; i--) { /* texts grow in place */
            int32_t text[TOKENS];
            const double before = chance[i];
            spell(i, n, text);
            const exact_text given = {.prompt = prompt, .n_prompt = PROMPT, .sampled = text, .n_sampled = (size_t)n};
            write_row(target[n > 0 ? place_of(text[n - 1]) : IDS], logits);
            exact_law(&s, &given, NULL, logits, vocab, next);
            for (int k = 0; k < IDS; k++) {
                chance[i * IDS + k] = before * next[ids[k]];
            }
        }
        if (n == 2) {
            memcpy(early, chance, TRIPLES * sizeof *early);
        }
    }
    for (int i = 0; i < IDS * TRIPLES; i++) {
        late[i % TRIPLES] += chance[i];
    }
}

/* ---- what comes ---- */

typedef struct batch {
    int32_t numbers[CHOICES]; /* texts so far, and a leading 1 as the highest digit */
    int32_t n_ended;
} batch;

typedef struct tally {
    int early[TRIPLES];
    int late[TRIPLES];
} tally;

static void on_events(void *user, const di_task_event *events, size_t n)
{
    tally *const t = user;
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        batch *const b = e->user;
        if (b == NULL || e->admitted) {
            continue;
        }
        if (e->sample != NULL) {
            int32_t *const number = &b->numbers[e->choice];
            const int length = *number < IDS ? 0 : *number < IDS * IDS ? 1 : *number < TRIPLES ? 2 : *number < IDS * TRIPLES ? 3 : 4;
            if (length < TOKENS) {
                const int place = place_of(e->sample->id);
                assert_in_range(place, 0, IDS - 1);
                *number = *number * IDS + place;
            }
            if (length == 2) {
                t->early[*number % TRIPLES]++;
            } else if (length == 3) {
                t->late[*number % TRIPLES]++;
            }
        }
        assert_true(e->end == DI_TASK_RUNNING || e->end == DI_TASK_LENGTH);
        b->n_ended += e->end != DI_TASK_RUNNING;
    }
}

/* More tokens than are counted, so that whole proposals are verified behind them too. */
static void submit(di_scheduler *sched, const setting *c, int32_t n, uint64_t seed, batch *b)
{
    const di_sampling s = complete(c, seed);
    di_task *task;
    const di_task_options o = {.prompt = prompt, .n_prompt = PROMPT, .sampling = &s, .n = n, .max_tokens = TOKENS + 2, .user = b,
                               .verify = c->verify};
    assert_int_equal(di_task_submit(sched, &o, &task, NULL), DI_OK);
}

/* Passes that cost so much that about half of the drafts pay: what forward passes take would not be repeatable. Nothing is in flight. */
static void set_costs(di_scheduler *sched)
{
    eng_auto *const a = &sched->automatic;
    for (int32_t i = 0; i < a->pass.n; i++) {
        a->pass.seconds[i] = 1.0 + 0.01 * a->pass.rows[i];
    }
    a->plain = a->pass;
    for (int32_t i = 0; i < a->proposal.n; i++) {
        a->proposal.seconds[i] = 0.01;
    }
}

static void run(const setting *c, tally *t, di_scheduler_stats *stats)
{
    const setting company = {.verify = DI_VERIFY_COUPLED, .s.temperature = 0.9f};
    di_engine *const e = open_engine();
    const di_scheduler_options o = {
        .on_events = on_events, .user = t, .max_running = CHOICES + 8, .draft_tokens = c->draft_tokens, .draft_auto = c->automatic};
    di_scheduler *sched;
    assert_int_equal(di_scheduler_new(e, &o, &sched, NULL), DI_OK);
    for (int i = 0; i < TASKS; i++) {
        batch b = {.n_ended = 0};
        for (int k = 0; k < CHOICES; k++) {
            b.numbers[k] = 1;
        }
        set_costs(sched);
        submit(sched, c, CHOICES, (uint64_t)i * 1000, &b);
        submit(sched, &company, 2, (uint64_t)i, NULL);
        for (di_step_info step = {.idle = false}; !step.idle;) {
            assert_int_equal(di_scheduler_step(sched, &step, NULL), DI_OK);
        }
        assert_int_equal(b.n_ended, CHOICES);
    }
    di_scheduler_get_stats(sched, stats);
    di_scheduler_free(sched);
    di_engine_close(e);
}

static void texts_follow_the_target(void **state)
{
    (void)state;
    open_model();
    for (int i = 0; i < N_SETTINGS; i++) {
        tally t = {{0}, {0}};
        double early[TRIPLES];
        double late[TRIPLES];
        di_scheduler_stats stats;
        run(&settings[i], &t, &stats);
        exact_triples(&settings[i], early, late);
        const double a = exact_p_value(t.early, early, TRIPLES, TASKS * CHOICES);
        const double b = exact_p_value(t.late, late, TRIPLES, TASKS * CHOICES);
        print_message("%-22s p = %.4f and %.4f; %lld of %lld drafts kept\n", settings[i].name, a, b, (long long)stats.accepted_tokens,
                      (long long)stats.drafted_tokens);
        assert_true(fmin(a, b) > 0.001 / (2 * N_SETTINGS));
        assert_true(stats.accepted_tokens > TASKS * CHOICES / 4 && stats.accepted_tokens < stats.drafted_tokens);
    }
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_follow_the_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
