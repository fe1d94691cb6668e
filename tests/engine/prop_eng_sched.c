/* Continuous batching changes no token: tasks with shared beginnings, several choices, stop ids, cancellations, priorities and tenants,
 * submitted in random order to a scheduler with little memory, give what each choice gives alone as a sequence of its own; with tiers
 * below the device too, whose disk fails now and then. Preemptions, forks, prefix hits and restores must happen on the way. In the
 * end no page, state or promise is left. Some runs let the scheduler choose how many drafts it verifies; their steps depend on measured
 * times, so they are counted apart. All of it holds under bounded replay of the decoder too, whose results the prompt alone decides: it ends
 * where the prompt does, also for a choice that was preempted and comes back with its output.
 * ctest: timeout=900 */
#include "engine/engine_int.h"
#include "engine/eng_model.h"
#include "engine/tier_fake.h"
#include "support/unit.h"

#include <deepinfer/scheduler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 1000, MAX_NEW = 100, MAX_N = 4, MAX_SCRIPTS = 10, MAX_RUNS = 64 };

#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 1, DEMO_SCRIPTS = 0, DEMO_PROMPT = 0, RUNS = 16, REPLAYED_RUNS = 16 };
#elif defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 2, DEMO_SCRIPTS = 2, DEMO_PROMPT = 60, RUNS = 16, REPLAYED_RUNS = 24 };
#else
enum { ROUNDS = 3, DEMO_SCRIPTS = 4, DEMO_PROMPT = 400, RUNS = 48, REPLAYED_RUNS = 48 };
#endif

static di_model *model;
static di_model_info info;
static di_replay replay; /* of every engine */

/* A request, and what its choices give alone. */
typedef struct script {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt;
    int32_t n;
    int32_t max_tokens;
    int32_t stop_id;
    const char *tenant;
    di_sampling sampling;
    int32_t ids[MAX_N][MAX_NEW];
    int32_t n_ids[MAX_N];
    di_task_end end[MAX_N];
} script;

/* A task of it, and what came so far. */
typedef struct run {
    const script *s;
    di_task *task;
    int32_t n_got[MAX_N];
    di_task_end end[MAX_N];
    int32_t n_ended;
    int32_t n_cancelled; /* choices asked to end */
    int64_t cached;
    bool admitted;
    char what[80];
} run;

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

static void open_model(const char *dir)
{
    model = eng_model_open(dir);
    di_model_get_info(model, &info);
}

static di_engine *open_engine(int32_t chunk, int64_t kv_bytes, int32_t threads, bool draft)
{
    di_engine *e = NULL;
    di_error err;
    const di_engine_options o = {.chunk_tokens = chunk, .kv_bytes = kv_bytes, .n_threads = threads, .replay = replay, .draft = draft};
    if (di_engine_open(model, &o, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* ---- alone ---- */

static void run_alone(script *s, int32_t choice)
{
    di_engine *const e = open_engine(256, 0, 1, false);
    di_sequence *q;
    di_sampling sampling = s->sampling;
    sampling.seed += (uint64_t)choice;
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_set_sampling(q, &sampling, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, s->prompt, s->n_prompt, NULL), DI_OK);
    s->end[choice] = DI_TASK_LENGTH;
    for (s->n_ids[choice] = 0; s->n_ids[choice] < s->max_tokens;) {
        di_sample sample;
        assert_int_equal(di_sequence_run(q, NULL), DI_OK);
        assert_int_equal(di_sequence_sample(q, &sample, NULL), DI_OK);
        s->ids[choice][s->n_ids[choice]++] = sample.id;
        if (sample.is_stop) {
            s->end[choice] = DI_TASK_STOP;
            break;
        }
    }
    di_engine_close(e);
}

static void write_scripts(script *scripts, size_t n, size_t most, int32_t most_new, uint64_t *seed)
{
    static const char *const tenants[] = {"", "a", "b"};
    for (size_t i = 0; i < n; i++) {
        script *const s = &scripts[i];
        memset(s, 0, sizeof *s);
        s->n_prompt = 1 + below(seed, most);
        for (size_t t = 0; t < s->n_prompt; t++) {
            s->prompt[t] = (int32_t)below(seed, (size_t)info.vocab_size);
        }
        const script *const other = &scripts[below(seed, i + 1)];
        const size_t shared = below(seed, 4) > 0 ? (other->n_prompt < s->n_prompt ? other->n_prompt : s->n_prompt) : 0;
        memcpy(s->prompt, other->prompt, shared * sizeof *s->prompt);
        s->n = below(seed, 2) == 0 ? 1 : (int32_t)(1 + below(seed, MAX_N));
        s->max_tokens = (int32_t)(1 + below(seed, (size_t)most_new));
        s->tenant = tenants[below(seed, 3)];
        s->stop_id = (int32_t)below(seed, (size_t)info.vocab_size);
        di_sampling_default(&s->sampling);
        s->sampling.temperature = below(seed, 3) == 0 ? 0.0f : 1.0f;
        s->sampling.repetition_penalty = below(seed, 2) == 0 ? 1.0f : 1.25f;
        s->sampling.frequency_penalty = below(seed, 2) == 0 ? 0.0f : 0.5f;
        s->sampling.top_p = below(seed, 2) == 0 ? 1.0f : 0.9f;
        s->sampling.seed = unit_random(seed);
        s->sampling.stop_ids = &s->stop_id;
        s->sampling.n_stop_ids = 1;
        for (int32_t k = 0; k < s->n; k++) {
            run_alone(s, k);
        }
    }
}

/* ---- together ---- */

static void on_events(void *user, const di_task_event *events, size_t n)
{
    size_t *const n_events = user;
    *n_events += n;
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        run *const r = e->user;
        const script *const s = r->s;
        assert_ptr_equal(r->task, e->task);
        if (e->admitted) {
            assert_false(r->admitted);
            r->admitted = true;
            r->cached = e->cached_tokens;
            continue;
        }
        assert_in_range(e->choice, 0, s->n - 1);
        assert_int_equal(r->end[e->choice], DI_TASK_RUNNING);
        if (e->sample != NULL) {
            const int32_t at = r->n_got[e->choice]++;
            assert_true(r->admitted);
            if (at >= s->n_ids[e->choice] || e->sample->id != s->ids[e->choice][at]) {
                fail_msg("%s: token %d of choice %d of %d behind %zu tokens differs (%lld cached)", r->what, at, e->choice, s->n, s->n_prompt,
                         (long long)r->cached);
            }
        }
        if (e->end != DI_TASK_RUNNING) {
            r->end[e->choice] = e->end;
            r->n_ended++;
            if (e->end != DI_TASK_CANCELLED) {
                assert_int_equal(e->end, s->end[e->choice]);
                assert_int_equal(r->n_got[e->choice], s->n_ids[e->choice]);
            }
        }
        if (r->n_ended == s->n) {
            r->task = NULL;
        }
    }
}

static void submit(di_scheduler *sched, run *r, const script *s, uint64_t *seed)
{
    const di_task_options o = {.prompt = s->prompt,
                               .n_prompt = s->n_prompt,
                               .sampling = &s->sampling,
                               .n = s->n,
                               .max_tokens = s->max_tokens,
                               .tenant = s->tenant,
                               .no_cache = below(seed, 8) == 0,
                               .priority = (int32_t)below(seed, 3),
                               .user = r};
    di_error err;
    r->s = s;
    if (di_task_submit(sched, &o, &r->task, &err) != DI_OK) {
        fail_msg("%s: %s", r->what, err.message);
    }
}

static void cancel_some(run *runs, size_t n, uint64_t *seed)
{
    run *const r = &runs[below(seed, n)];
    if (r->task == NULL || below(seed, 12) != 0) {
        return;
    }
    if (below(seed, 2) == 0) {
        di_task_cancel(r->task);
        r->n_cancelled = r->s->n;
    } else {
        di_task_cancel_choice(r->task, (int32_t)below(seed, (size_t)r->s->n));
        r->n_cancelled++;
    }
}

static void expect_empty(const di_engine *e)
{
    kv_counters k;
    kv_get_counters(e->kv, &k);
    assert_int_equal(k.pages_used, 0);
    assert_int_equal(k.pages_promised, 0);
    assert_int_equal(k.states_used, 0);
    assert_int_equal(k.states_promised, 0);
    assert_null(kv_check(e->kv));
}

typedef struct totals {
    int64_t preempted;
    int64_t cached;
    int64_t cancelled;
    int64_t drafted;
    int64_t accepted;
    int64_t restored; /* bytes */
} totals;

static void check_figures(const di_scheduler_stats *stats)
{
    int64_t verified = 0;
    int64_t accepted = 0;
    for (int j = 0; j < DI_MAX_VERIFIED; j++) {
        assert_in_range(stats->accepted_at[j], 0, stats->verified_at[j]);
        assert_true(j == 0 || stats->verified_at[j] <= stats->verified_at[j - 1]);
        verified += stats->verified_at[j];
        accepted += stats->accepted_at[j];
    }
    assert_int_equal(verified, stats->drafted_tokens);
    assert_int_equal(accepted, stats->accepted_tokens);
    assert_true(verified <= stats->proposed_tokens && stats->draft_budget >= 0 && stats->draft_budget <= verified);
    assert_true(stats->calibration_error >= 0.0 && stats->calibration_error <= 1.0);
}

static void run_mixed(const script *scripts, size_t n_scripts, size_t n_runs, int64_t kv_bytes, tier_fake *disk, bool automatic,
                      totals *sum, uint64_t *seed)
{
    run *const runs = calloc(MAX_RUNS, sizeof *runs);
    assert_non_null(runs);
    assert_true(n_runs <= MAX_RUNS);
    size_t n_events = 0;
    const int32_t chunk = (int32_t)(1 + below(seed, 300));
    const int32_t threads = (int32_t)(1 + below(seed, 2));
    const bool draft = below(seed, 3) > 0 || automatic;
    di_engine *const e = open_engine(chunk, kv_bytes, threads, draft);
    if (disk != NULL) {
        tier_fake_attach(e, (int64_t)(1 + below(seed, 30)) * info.state_bytes, disk, NULL);
    }
    const di_scheduler_options o = {.on_events = on_events,
                                    .user = &n_events,
                                    .max_running = (int32_t)(MAX_N + below(seed, 30)),
                                    .ahead_tokens = (int32_t)(1 + below(seed, 200)),
                                    .draft_tokens = (int32_t)below(seed, 4),
                                    .draft_auto = automatic};
    di_scheduler *sched;
    di_sequence *q;
    assert_int_equal(di_scheduler_new(e, &o, &sched, NULL), DI_OK);
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_E_STATE);
    size_t started = 0;
    di_step_info step = {.idle = false};
    while (started < n_runs || !step.idle) {
        for (size_t i = below(seed, 4); i > 0 && started < n_runs; i--, started++) {
            (void)snprintf(runs[started].what, sizeof runs[started].what, "run %zu, chunk %d, %lld bytes, %d threads", started, chunk,
                           (long long)kv_bytes, threads);
            submit(sched, &runs[started], &scripts[below(seed, n_scripts)], seed);
        }
        cancel_some(runs, n_runs, seed);
        assert_int_equal(di_scheduler_step(sched, &step, NULL), DI_OK);
    }
    for (size_t i = 0; i < n_runs; i++) {
        assert_int_equal(runs[i].n_ended, runs[i].s->n);
        assert_null(runs[i].task);
        for (int32_t k = 0; k < runs[i].s->n; k++) {
            sum->cancelled += runs[i].end[k] == DI_TASK_CANCELLED;
            assert_true(runs[i].end[k] != DI_TASK_CANCELLED || runs[i].n_cancelled > 0);
        }
        sum->cached += runs[i].cached;
    }
    di_scheduler_stats stats;
    di_scheduler_get_stats(sched, &stats);
    assert_int_equal(stats.n_submitted, n_runs);
    assert_int_equal(stats.n_ended, n_runs);
    assert_int_equal(stats.n_running + stats.n_waiting + stats.n_choices, 0);
    sum->preempted += stats.n_preempted;
    sum->drafted += stats.drafted_tokens;
    sum->accepted += stats.accepted_tokens;
    check_figures(&stats);
    assert_true(draft || stats.drafted_tokens == 0);
    expect_empty(e);
    for (int i = 0; disk != NULL && i < ENG_SOURCES; i++) {
        sum->restored += e->tier->counters.restored_bytes[i];
    }
    di_scheduler_free(sched);
    di_engine_close(e);
    free(runs);
}

static void golden(const char *dir, di_replay mode, uint64_t rounds, size_t n_runs)
{
    script *const scripts = calloc(MAX_SCRIPTS, sizeof *scripts);
    assert_non_null(scripts);
    open_model(dir);
    replay = mode;
    totals sum = {.preempted = 0};
    totals chosen = {.preempted = 0};
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t seed = 991 * round + 5 + unit_seed();
        write_scripts(scripts, MAX_SCRIPTS, 150, MAX_NEW, &seed);
        /* An eighth is for states: at least as many as a task can have choices. */
        const int64_t states = (int64_t)(MAX_N + 1 + below(&seed, 8));
        const int64_t bytes = round % 3 == 2 ? 0 : states * ((int64_t)info.state_bytes * 3 / 2) * 8;
        tier_fake disk;
        run_mixed(scripts, MAX_SCRIPTS, n_runs, bytes, NULL, false, &sum, &seed);
        tier_fake_init(&disk, seed);
        for (uint64_t i = 0; i < 2; i++) { /* the second engine finds what the first one left */
            tier_fake_set_faults(&disk, round + i);
            run_mixed(scripts, MAX_SCRIPTS, n_runs / 2, bytes, &disk, false, &sum, &seed);
        }
        tier_fake_fini(&disk);
        if (round % 3 == 0) {
            run_mixed(scripts, MAX_SCRIPTS, n_runs, bytes, NULL, true, &chosen, &seed);
        }
    }
    assert_true(sum.restored > 0 || ROUNDS < 2);
    assert_true(sum.cached > 0 || ROUNDS < 2);
    assert_true(sum.cancelled > 0);
    assert_true(sum.preempted > 0);
    replay = DI_REPLAY_OFF;
    assert_true((sum.accepted > 0 && sum.accepted < sum.drafted) || ROUNDS < 2);
    print_message("%lld of %lld drafts accepted; where their number was chosen %lld of %lld\n", (long long)sum.accepted, (long long)sum.drafted,
                  (long long)chosen.accepted, (long long)chosen.drafted);
    di_model_close(model);
    free(scripts);
}

static void t6(void **state)
{
    (void)state;
    golden("tests/data/model/t6", DI_REPLAY_OFF, ROUNDS, RUNS);
}

static void t6_odd(void **state)
{
    (void)state;
    golden("tests/data/model/t6-odd", DI_REPLAY_OFF, ROUNDS, RUNS);
}

static void t6_odd_replayed(void **state)
{
    (void)state;
    golden("tests/data/model/t6-odd", DI_REPLAY_DECODER, (ROUNDS + 2) / 3, REPLAYED_RUNS);
}

static void demo(void **state)
{
    (void)state;
    if (DEMO_SCRIPTS == 0) {
        skip(); /* minutes */
    }
    script *const scripts = calloc(DEMO_SCRIPTS, sizeof *scripts);
    assert_non_null(scripts);
    open_model("models/demo");
    uint64_t seed = 11;
    totals sum = {.preempted = 0};
    write_scripts(scripts, DEMO_SCRIPTS, DEMO_PROMPT, 30, &seed);
    tier_fake disk;
    tier_fake_init(&disk, seed);
    run_mixed(scripts, DEMO_SCRIPTS, 3 * DEMO_SCRIPTS, 0, NULL, false, &sum, &seed);
    run_mixed(scripts, DEMO_SCRIPTS, 3 * DEMO_SCRIPTS, 6 * ((int64_t)info.state_bytes + 64) * 8, &disk, false, &sum, &seed);
    run_mixed(scripts, DEMO_SCRIPTS, 3 * DEMO_SCRIPTS, 6 * ((int64_t)info.state_bytes + 64) * 8, &disk, false, &sum, &seed);
    tier_fake_fini(&disk);
    run_mixed(scripts, DEMO_SCRIPTS, 2 * DEMO_SCRIPTS, 0, NULL, true, &sum, &seed);
    di_model_close(model);
    free(scripts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t6),
        cmocka_unit_test(t6_odd),
        cmocka_unit_test(t6_odd_replayed),
        cmocka_unit_test(demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
