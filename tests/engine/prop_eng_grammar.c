/* Tasks with and without a grammar in the same passes, in random order, with and without drafts, reasoning, several choices and preemptions:
 * a task without one gives what it gives without such neighbours, one with a grammar what it gives alone, and what ended by itself
 * is a text of its grammar, whatever came before the end of the reasoning.
 * ctest: timeout=900 */
#include "engine/engine_int.h"
#include "engine/eng_model.h"
#include "support/unit.h"

#include <deepinfer/grammar.h>
#include <deepinfer/scheduler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__)
enum { N_TASKS = 8, ROUNDS = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { N_TASKS = 12, ROUNDS = 2 };
#else
enum { N_TASKS = 64, ROUNDS = 3 };
#endif

enum { MAX_PROMPT = 200, MAX_NEW = 80, MAX_N = 3, ROOM = 50 /* tokens are enough to end any of the texts */ };

static const struct {
    di_grammar_kind kind;
    const char *text;
} constraints[] = {
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":12},\"n\":{\"type\":\"integer\","
                        "\"minimum\":-5,\"maximum\":120}},\"required\":[\"city\",\"n\"],\"additionalProperties\":false}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",3,null]},\"minItems\":1,\"maxItems\":5}"},
    {DI_GRAMMAR_SCHEMA, "{\"anyOf\":[{\"type\":\"boolean\"},{\"type\":\"string\",\"pattern\":\"^[a-f]{3,9}$\"}]}"},
    {DI_GRAMMAR_REGEX, "(yes|no), because [a-z ]{4,30}\\."},
    {DI_GRAMMAR_REGEX, "[0-9]{2,4}-[0-9]{2}"},
    {DI_GRAMMAR_CHOICE, "[\"Paris\",\"London\",\"Parish\",\"\xE7\x8C\xAB\"]"},
    {DI_GRAMMAR_JSON_OBJECT, ""},
};
enum { N_CONSTRAINTS = sizeof constraints / sizeof constraints[0] };

typedef struct fixture {
    di_model *model;
    di_model_info info;
    const di_tokenizer *tokenizer;
    di_vocabulary *vocabulary;
    di_grammar *grammars[N_CONSTRAINTS];
    int32_t think_end;
} fixture;

typedef struct text {
    int32_t ids[MAX_NEW];
    int32_t n;
    di_task_end end;
} text;

typedef struct job {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt;
    di_sampling sampling;
    int32_t n;
    int constraint; /* -1 = none */
    bool thinks;
    bool closes;
    bool jumps;      /* in the last run */
    text alone[MAX_N];
    text got[MAX_N];
} job;

typedef struct figures {
    int64_t preempted;
    int64_t accepted;
    int64_t masks;
    int64_t forced; /* tokens of grammars, verified as drafts */
    int stopped;
    int closed; /* in time, on request */
    int begun; /* answers behind some reasoning */
} figures;

static fixture f;

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

static int set_up(void **state)
{
    static const char think_end[] = "</think>";
    size_t n;
    (void)state;
    f.model = eng_model_open("models/demo");
    di_model_get_info(f.model, &f.info);
    f.tokenizer = di_model_tokenizer(f.model);
    assert_int_equal(di_tokenizer_encode(f.tokenizer, think_end, sizeof think_end - 1, DI_ENCODE_SPECIAL, &f.think_end, 1, &n, NULL), DI_OK);
    assert_int_equal(n, 1);
    assert_int_equal(di_vocabulary_new(f.tokenizer, &f.info.eos_token_id, 1, &f.vocabulary, NULL), DI_OK);
    for (int i = 0; i < N_CONSTRAINTS; i++) {
        di_error err;
        const size_t size = strlen(constraints[i].text);
        if (di_grammar_compile(constraints[i].kind, constraints[i].text, size, NULL, &f.grammars[i], NULL, &err) != DI_OK) {
            fail_msg("%s: %s", constraints[i].text, err.message);
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_CONSTRAINTS; i++) {
        di_grammar_free(f.grammars[i]);
    }
    di_vocabulary_free(f.vocabulary);
    di_model_close(f.model);
    return 0;
}

/* ---- jobs ---- */

static void write_prompt(job *j, size_t i, uint64_t *seed)
{
    static const char *const questions[] = {"Which city is the capital of France?", "Hello", "Use the calculator: 12 * 7",
                                            "Translate \xE7\x8C\xAB to English.", "Continue the story: Jack walked into the village"};
    char buffer[512];
    (void)snprintf(buffer, sizeof buffer,
                   "<\xEF\xBD\x9C"
                   "begin\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C><\xEF\xBD\x9CUser\xEF\xBD\x9C>%s %zu<\xEF\xBD\x9C"
                   "Assistant\xEF\xBD\x9C>%s",
                   questions[below(seed, sizeof questions / sizeof questions[0])], i % 3, j->thinks ? "<think>" : "</think>");
    assert_int_equal(
        di_tokenizer_encode(f.tokenizer, buffer, strlen(buffer), DI_ENCODE_SPECIAL, j->prompt, MAX_PROMPT, &j->n_prompt, NULL), DI_OK);
    assert_true(j->n_prompt <= MAX_PROMPT);
}

static void write_jobs(job *jobs, uint64_t *seed)
{
    for (size_t i = 0; i < N_TASKS; i++) {
        job *const j = &jobs[i];
        memset(j, 0, sizeof *j);
        j->constraint = i % 2 == 0 ? (int)below(seed, N_CONSTRAINTS) : -1;
        j->thinks = below(seed, 2) == 0;
        j->closes = below(seed, 2) == 0;
        j->jumps = below(seed, 2) == 0;
        j->n = below(seed, 4) == 0 ? (int32_t)(1 + below(seed, MAX_N)) : 1;
        write_prompt(j, i, seed);
        di_sampling_default(&j->sampling);
        j->sampling.temperature = below(seed, 3) == 0 ? 0.0f : 1.0f;
        j->sampling.top_p = below(seed, 2) == 0 ? 1.0f : 0.9f;
        j->sampling.frequency_penalty = below(seed, 3) == 0 ? 0.5f : 0.0f;
        j->sampling.seed = unit_random(seed);
        j->sampling.stop_ids = &f.info.eos_token_id;
        j->sampling.n_stop_ids = 1;
    }
}

/* ---- runs ---- */

static void on_events(void *user, const di_task_event *events, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        job *const j = e->user;
        text *const t = &j->got[e->choice];
        if (e->end == DI_TASK_FAILED) {
            fail_msg("constraint %d: %s", j->constraint, e->error->message);
        }
        if (e->sample != NULL) {
            assert_true(t->n < MAX_NEW);
            t->ids[t->n++] = e->sample->id;
        }
        t->end = e->end != DI_TASK_RUNNING ? e->end : t->end;
    }
}

typedef struct setting {
    int64_t kv_bytes;
    int32_t chunk;
    int32_t threads;
    bool draft;
    bool automatic;
} setting;

/* Runs the jobs that `which` names: 0 = those without a grammar, 1 = those with one, 2 = all. */
static void run(job *jobs, int which, const setting *set, figures *sum, uint64_t *seed)
{
    const di_engine_options eo = {.chunk_tokens = set->chunk, .kv_bytes = set->kv_bytes, .n_threads = set->threads, .draft = set->draft};
    const di_scheduler_options so = {
        .on_events = on_events, .vocabulary = f.vocabulary, .ahead_tokens = 16, .draft_auto = set->automatic, .max_running = 24};
    di_engine *e;
    di_scheduler *s;
    di_step_info step = {.idle = false};
    size_t next = 0;
    assert_int_equal(di_engine_open(f.model, &eo, &e, NULL), DI_OK);
    assert_int_equal(di_scheduler_new(e, &so, &s, NULL), DI_OK);
    while (next < N_TASKS || !step.idle) {
        for (size_t k = below(seed, 4); k > 0 && next < N_TASKS; next++) {
            job *const j = &jobs[next];
            di_task *task;
            memset(j->got, 0, sizeof j->got);
            if (which != 2 && (j->constraint >= 0) != (which == 1)) {
                continue;
            }
            const di_task_options o = {.prompt = j->prompt,
                                       .n_prompt = j->n_prompt,
                                       .sampling = &j->sampling,
                                       .n = j->n,
                                       .max_tokens = MAX_NEW,
                                       .priority = (int32_t)below(seed, 2),
                                       .user = j,
                                       .grammar = j->constraint >= 0 ? f.grammars[j->constraint] : NULL,
                                       .grammar_waits = j->thinks,
                                       .grammar_after = f.think_end,
                                       .grammar_closes = j->closes,
                                       .grammar_jumps = j->jumps && which == 2};
            assert_int_equal(di_task_submit(s, &o, &task, NULL), DI_OK);
            k--;
        }
        assert_int_equal(di_scheduler_step(s, &step, NULL), DI_OK);
    }
    di_scheduler_stats stats;
    di_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.n_constrained, 0);
    assert_true(which != 0 || stats.n_masks == 0);
    sum->preempted += stats.n_preempted;
    sum->accepted += stats.accepted_tokens;
    sum->masks += stats.n_masks;
    sum->forced += stats.forced_right;
    di_scheduler_free(s);
    di_engine_close(e);
}

/* ---- what came ---- */

static void expect_member(const job *j, const text *t, figures *sum)
{
    char bytes[16 * MAX_NEW];
    size_t n;
    size_t n_accepted;
    bool complete = false;
    int32_t begin = 0;
    while (j->thinks && begin < t->n && t->ids[begin++] != f.think_end) {
    }
    sum->begun += j->thinks && begin > 1 && begin < t->n;
    const int32_t end = t->n - (t->end == DI_TASK_STOP);
    if (t->end == DI_TASK_STOP) {
        assert_int_equal(t->ids[end], f.info.eos_token_id);
        assert_true(begin <= end);
        sum->stopped++;
    }
    if (j->closes && begin < MAX_NEW - ROOM) {
        assert_int_equal(t->end, DI_TASK_STOP);
        sum->closed++;
    }
    begin = begin < end ? begin : end;
    di_matcher *m;
    assert_int_equal(di_tokenizer_decode(f.tokenizer, t->ids + begin, (size_t)(end - begin), 0, bytes, sizeof bytes, &n, NULL), DI_OK);
    assert_true(n <= sizeof bytes);
    assert_int_equal(di_matcher_new(f.grammars[j->constraint], NULL, &m, NULL), DI_OK);
    assert_int_equal(di_matcher_accept_bytes(m, bytes, n, &n_accepted, NULL), DI_OK);
    if (n_accepted != n) {
        fail_msg("constraint %d: byte %zu of \"%.*s\"", j->constraint, n_accepted, (int)n, bytes);
    }
    assert_int_equal(di_matcher_is_complete(m, &complete, NULL), DI_OK);
    if (t->end == DI_TASK_STOP && !complete) {
        fail_msg("constraint %d: \"%.*s\" is not complete", j->constraint, (int)n, bytes);
    }
    di_matcher_free(m);
}

static void keep_alone(job *jobs, bool constrained)
{
    for (size_t i = 0; i < N_TASKS; i++) {
        if ((jobs[i].constraint >= 0) == constrained) {
            memcpy(jobs[i].alone, jobs[i].got, sizeof jobs[i].alone);
        }
    }
}

static void compare(const job *jobs, figures *sum)
{
    for (size_t i = 0; i < N_TASKS; i++) {
        for (int32_t k = 0; k < jobs[i].n; k++) {
            const text *const t = &jobs[i].got[k];
            assert_true(t->end == DI_TASK_STOP || t->end == DI_TASK_LENGTH);
            assert_int_equal(t->end, jobs[i].alone[k].end);
            assert_int_equal(t->n, jobs[i].alone[k].n);
            assert_memory_equal(t->ids, jobs[i].alone[k].ids, (size_t)t->n * sizeof *t->ids);
            if (jobs[i].constraint >= 0) {
                expect_member(&jobs[i], t, sum);
            }
        }
    }
}

static void mixed_batches(void **state)
{
    (void)state;
    job *const jobs = calloc(N_TASKS, sizeof *jobs);
    figures sum = {.preempted = 0};
    figures alone = {.preempted = 0};
    assert_non_null(jobs);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t seed = 77 * round + 3;
        const setting quiet = {.chunk = 64, .threads = 1};
        const setting busy = {.chunk = (int32_t)(40 + below(&seed, 200)),
                              .threads = (int32_t)(1 + below(&seed, 2)),
                              .draft = round % 2 == 0,
                              .automatic = round % 4 == 2,
                              .kv_bytes = round == 1 || ROUNDS < 2 ? (int64_t)f.info.state_bytes * 12 * 8 : 0};
        write_jobs(jobs, &seed);
        run(jobs, 0, &quiet, &alone, &seed);
        keep_alone(jobs, false);
        run(jobs, 1, &quiet, &alone, &seed);
        keep_alone(jobs, true);
        run(jobs, 2, &busy, &sum, &seed);
        compare(jobs, &sum);
    }
    assert_true(sum.accepted > 0);
    assert_true(sum.preempted > 0 || N_TASKS < 64);
    assert_true(sum.masks > 0);
    assert_true(sum.forced > 0 || N_TASKS < 64);
    assert_int_equal(alone.forced, 0);
    assert_true(sum.stopped > 0);
    assert_true(sum.begun > 0);
    assert_true(sum.closed > 0);
    print_message("%d constrained texts ended, %d behind reasoning; %lld drafts accepted, %lld tokens forced, %lld preemptions, %lld masks\n",
                  sum.stopped, sum.begun,
                  (long long)sum.accepted, (long long)sum.forced, (long long)sum.preempted, (long long)sum.masks);
    free(jobs);
}

/* Returns the steps that it took. */
static int64_t run_one(job *j, const di_grammar *grammar, bool jumps, int64_t *n_right)
{
    const di_engine_options eo = {.n_threads = 1, .chunk_tokens = 64};
    const di_scheduler_options so = {.on_events = on_events, .vocabulary = f.vocabulary};
    const di_task_options o = {.prompt = j->prompt,
                               .n_prompt = j->n_prompt,
                               .sampling = &j->sampling,
                               .max_tokens = MAX_NEW,
                               .user = j,
                               .grammar = (di_grammar *)(uintptr_t)grammar,
                               .grammar_jumps = jumps};
    di_step_info step = {.idle = false};
    di_scheduler_stats stats;
    di_engine *e;
    di_scheduler *s;
    di_task *task;
    memset(j->got, 0, sizeof j->got);
    assert_int_equal(di_engine_open(f.model, &eo, &e, NULL), DI_OK);
    assert_int_equal(di_scheduler_new(e, &so, &s, NULL), DI_OK);
    assert_int_equal(di_task_submit(s, &o, &task, NULL), DI_OK);
    while (!step.idle) {
        assert_int_equal(di_scheduler_step(s, &step, NULL), DI_OK);
    }
    di_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.drafted_tokens, 0);
    assert_true(jumps || stats.forced_tokens == 0);
    *n_right = stats.forced_right;
    di_scheduler_free(s);
    di_engine_close(e);
    return stats.n_steps;
}

/* Without a draft model too. */
static void forced_text_takes_fewer_passes(void **state)
{
    (void)state;
    static const char one[] = "[\"The town of Springfield has a river and a school. The river is long and the school is old.\"]";
    uint64_t seed = 5;
    job j = {.n = 1, .constraint = 0};
    di_grammar *grammar;
    int64_t n_right;
    assert_int_equal(di_grammar_compile(DI_GRAMMAR_CHOICE, one, sizeof one - 1, NULL, &grammar, NULL, NULL), DI_OK);
    write_prompt(&j, 0, &seed);
    di_sampling_default(&j.sampling);
    j.sampling.temperature = 0.0f;
    j.sampling.stop_ids = &f.info.eos_token_id;
    j.sampling.n_stop_ids = 1;
    const int64_t slow = run_one(&j, grammar, false, &n_right);
    const text alone = j.got[0];
    const int64_t fast = run_one(&j, grammar, true, &n_right);
    assert_int_equal(alone.end, DI_TASK_STOP);
    assert_int_equal(j.got[0].n, alone.n);
    assert_memory_equal(j.got[0].ids, alone.ids, (size_t)alone.n * sizeof *alone.ids);
    print_message("%d tokens: %lld passes, %lld with jumps\n", alone.n, (long long)slow, (long long)fast);
    assert_true(n_right > 0);
    assert_true(fast < slow);
    di_grammar_free(grammar);
}

static void a_grammar_needs_a_vocabulary(void **state)
{
    (void)state;
    const di_engine_options eo = {.n_threads = 1};
    const di_scheduler_options so = {.on_events = on_events};
    const int32_t prompt = 5;
    const di_task_options o = {.prompt = &prompt, .n_prompt = 1, .grammar = f.grammars[0]};
    di_engine *e;
    di_scheduler *s;
    di_task *task;
    di_error err;
    assert_int_equal(di_engine_open(f.model, &eo, &e, NULL), DI_OK);
    assert_int_equal(di_scheduler_new(e, &so, &s, NULL), DI_OK);
    assert_int_equal(di_task_submit(s, &o, &task, &err), DI_E_ARGUMENT);
    assert_string_equal(err.message, "a task has a grammar, and the scheduler no vocabulary");
    di_scheduler_free(s);
    di_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_needs_a_vocabulary),
        cmocka_unit_test(forced_text_takes_fewer_passes),
        cmocka_unit_test(mixed_batches),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
