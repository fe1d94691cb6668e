/* tier_crowd.c - see tier_crowd.h. */
#include "engine/tier_crowd.h"

#include "engine/engine_int.h"
#include "engine/tier_script.h"
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 3, PROBE = 300, PROBE_UNITS = 2, CARE_EVERY = 6, SETTLE_NS = 100000000 };

#define TTL_S 3600     /* of requests that are to expire when a test lets time pass */
#define SLOW_BYTE_NS 1e6

struct crowd {
    const di_model *model;
    di_model_info info;
    script *scripts;
    size_t n_scripts;
    uint64_t seed;
};

typedef struct caring { /* one compaction of a folder */
    kv_disk_care care;
    bool in_flight;
    int64_t bytes;
} caring;

typedef struct running { /* a turn */
    crowd *c;
    const crowd_turn *turn;
    crowd_ways *ways;
    di_engine *engine;
    di_scheduler *sched;
    size_t n_running;
    int64_t step_hits; /* requests admitted in this step with something cached */
    kv_slot **hogged;  /* [n_hogged] pages that nobody else gets */
    size_t n_hogged;
    caring caring[ENG_LOWERS];
} running;

typedef struct request {
    running *run;
    script *s;
    int32_t n_got;
    int64_t cached;
    bool learns; /* it gives the answer that others are compared with */
} request;

/* ---- requests ---- */

static void end_request(request *r)
{
    running *const run = r->run;
    assert_true(r->learns || r->n_got == r->s->n_ids);
    if (run->turn->ended != NULL) {
        run->turn->ended(run->turn->user, (size_t)(r->s - run->c->scripts), r->cached);
    }
    run->n_running--;
    free(r);
}

static void on_events(void *user, const di_task_event *events, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        request *const r = e->user;
        script *const s = r->s;
        r->cached += e->cached_tokens;
        r->run->ways->cached_tokens += e->cached_tokens;
        r->run->step_hits += e->cached_tokens > 0;
        if (e->sample != NULL && r->learns) {
            s->ids[s->n_ids++] = e->sample->id;
        } else if (e->sample != NULL && e->sample->id != s->ids[r->n_got++]) {
            fail_msg("token %d behind %zu tokens differs, %lld were cached", r->n_got - 1, s->n, (long long)r->cached);
        }
        if (e->end != DI_TASK_RUNNING) {
            assert_int_equal(e->end, DI_TASK_LENGTH);
            end_request(r);
        }
    }
}

static void submit(running *run, script *s, bool learns, int64_t ttl_s)
{
    request *const r = calloc(1, sizeof *r);
    di_task *task;
    assert_non_null(r);
    *r = (request){.run = run, .s = s, .learns = learns};
    const di_task_options o = {.prompt = s->prompt,
                               .n_prompt = s->n,
                               .sampling = &s->sampling,
                               .max_tokens = CROWD_NEW,
                               .tenant = s->tenant,
                               .no_cache = learns,
                               .cache = {.ttl_s = ttl_s},
                               .user = r};
    assert_int_equal(di_task_submit(run->sched, &o, &task, NULL), DI_OK);
    run->n_running++;
}

/* ---- an engine ---- */

/* Takes pages away until the device has n left. */
static void hog_pages(running *run, int64_t n)
{
    kv_counters k;
    kv_get_counters(run->engine->kv, &k);
    const int64_t all = k.pages_used + k.pages_cached + k.pages_free + k.pages_absent;
    run->n_hogged = n > 0 && n < all ? (size_t)(all - n) : 0;
    run->hogged = calloc(run->n_hogged + 1, sizeof(kv_slot *));
    assert_non_null(run->hogged);
    for (size_t i = 0; i < run->n_hogged; i++) {
        run->hogged[i] = kv_take_page(run->engine->kv, false);
        assert_non_null(run->hogged[i]);
    }
}

static void open_run(running *run, const di_engine_options *o, int64_t n_pages)
{
    di_error err;
    if (di_engine_open(run->c->model, o, &run->engine, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    hog_pages(run, n_pages);
    assert_int_equal(di_scheduler_new(run->engine, &(di_scheduler_options){.on_events = on_events}, &run->sched, NULL), DI_OK);
}

static void add_cache(di_cache_stats *sum, const di_cache_stats *c)
{
    for (int i = 0; i < DI_CACHE_TIERS; i++) {
        di_cache_tier_stats *const to = &sum->tiers[i];
        const di_cache_tier_stats *const t = &c->tiers[i];
        to->restored_units += t->restored_units;
        to->restored_snapshots += t->restored_snapshots;
        to->restored_bytes += t->restored_bytes;
        to->stored_bytes += t->stored_bytes;
        to->evicted += t->evicted;
        to->expired += t->expired;
        to->corrupt += t->corrupt;
        to->failed += t->failed;
        to->refused += t->refused;
    }
    sum->lookups += c->lookups;
    sum->loads += c->loads;
    sum->recomputes += c->recomputes;
    sum->late += c->late;
    sum->incomplete += c->incomplete;
}

static void add_figures(running *run)
{
    const eng_tier *const t = run->engine->tier;
    kv_counters k;
    di_cache_stats cache;
    kv_get_counters(run->engine->kv, &k);
    di_engine_get_cache_stats(run->engine, &cache);
    run->ways->pages_evicted += k.pages_evicted;
    run->ways->states_evicted += k.states_evicted;
    add_cache(&run->ways->cache, &cache);
    for (int32_t i = 0; t != NULL && i < t->n_lowers; i++) {
        kv_disk_counters d;
        t->lowers[i].table->counters(t->lowers[i].store, &d);
        run->ways->rewritten_bytes += d.rewritten_bytes;
        run->ways->purged += d.purged;
        run->ways->rebuilt += d.rebuilt;
    }
}

static void close_run(running *run)
{
    add_figures(run);
    for (size_t i = 0; i < run->n_hogged; i++) {
        kv_drop(run->engine->kv, run->hogged[i]);
    }
    free(run->hogged);
    di_scheduler_free(run->sched);
    assert_null(kv_check(run->engine->kv));
    di_engine_close(run->engine); /* ends what care there is */
    for (int i = 0; i < ENG_LOWERS; i++) {
        run->ways->compacted_bytes += run->caring[i].bytes;
    }
}

/* ---- steps ---- */

static void compacted(kv_disk_op *op)
{
    caring *const c = op->user;
    c->in_flight = false;
    c->bytes += op->status == DI_OK ? c->care.n_done : 0;
}

static void take_care(running *run)
{
    eng_tier *const t = run->engine->tier;
    for (int32_t i = 0; i < t->n_lowers; i++) {
        caring *const c = &run->caring[i];
        if (!c->in_flight) {
            c->in_flight = true;
            c->care = (kv_disk_care){.op = {.done = compacted, .user = c}, .kind = KV_DISK_COMPACT};
            t->lowers[i].table->care(t->lowers[i].store, &c->care);
        }
    }
    di_engine_purge_cache(run->engine, "b", 1);
}

static int64_t sum(const int64_t values[ENG_SOURCES])
{
    int64_t total = 0;
    for (int i = 0; i < ENG_SOURCES; i++) {
        total += values[i];
    }
    return total;
}

static di_step_info step(running *run)
{
    eng_tier *const t = run->engine->tier;
    di_step_info info;
    const eng_tier_counters before = t != NULL ? t->counters : (eng_tier_counters){.lookups = 0};
    run->step_hits = 0;
    for (int i = 0; t != NULL && run->turn->slow && i < ENG_LOWERS; i++) {
        t->byte_ns[i] = SLOW_BYTE_NS;
    }
    assert_int_equal(di_scheduler_step(run->sched, &info, NULL), DI_OK);
    if (t != NULL) {
        const bool units = sum(t->counters.restored_units) > sum(before.restored_units);
        const bool snapshots = sum(t->counters.restored_snapshots) > sum(before.restored_snapshots);
        const bool whole = t->counters.broken == before.broken;
        run->ways->device += run->step_hits > 0 && !units && !snapshots;
        run->ways->units += units && !snapshots && whole;
        run->ways->snapshots += !units && snapshots && whole;
        run->ways->both += units && snapshots;
    }
    return info;
}

static void settle(running *run)
{
    while (run->engine->tier->n_puts > 0) {
        eng_tier_wait(run->engine->tier, SETTLE_NS);
    }
}

/* The script of request n of the turn. */
static size_t pick(running *run, size_t n)
{
    const crowd_turn *const turn = run->turn;
    if (turn->pick != NULL) {
        return turn->pick(turn->user, n);
    }
    return turn->first + (size_t)((turn->in_order ? n : unit_random(&run->c->seed)) % turn->n_scripts);
}

static void take_turn(running *run, bool learns)
{
    static const int64_t ttls[] = {0, 0, 0, 0, 0, TTL_S, TTL_S, 1};
    const crowd_turn *const turn = run->turn;
    crowd *const c = run->c;
    size_t care_at = CARE_EVERY;
    di_step_info info = {.idle = false};
    for (size_t started = 0; started < turn->n_requests || !info.idle;) {
        for (; started < turn->n_requests && run->n_running < AT_ONCE; started++) {
            const size_t i = pick(run, started);
            submit(run, &c->scripts[i], learns, ttls[unit_random(&c->seed) % 8]);
        }
        if (turn->care && started >= care_at) {
            take_care(run);
            care_at += CARE_EVERY;
        }
        info = step(run);
    }
    if (turn->settle) {
        settle(run);
    }
}

void crowd_run(crowd *c, const crowd_turn *turn, crowd_ways *ways)
{
    running run = {.c = c, .turn = turn, .ways = ways};
    open_run(&run, turn->options, turn->n_pages);
    take_turn(&run, false);
    close_run(&run);
}

crowd *crowd_new(const crowd_plan *plan)
{
    crowd *const c = calloc(1, sizeof *c);
    crowd_ways ways = {.units = 0};
    assert_non_null(c);
    *c = (crowd){.model = plan->model, .n_scripts = plan->n_scripts, .seed = plan->seed};
    di_model_get_info(plan->model, &c->info);
    c->scripts = calloc(plan->n_scripts, sizeof *c->scripts);
    assert_non_null(c->scripts);
    for (size_t i = 0; i < plan->n_scripts; i++) {
        script_write(c->scripts, plan, i, c->info.vocab_size, &c->seed);
    }
    const di_engine_options o = {.n_threads = 2};
    const crowd_turn turn = {.options = &o, .n_requests = plan->n_scripts, .n_scripts = plan->n_scripts, .in_order = true};
    running run = {.c = c, .turn = &turn, .ways = &ways};
    open_run(&run, &o, 0);
    take_turn(&run, true);
    close_run(&run);
    return c;
}

void crowd_free(crowd *c)
{
    for (size_t i = 0; i < c->n_scripts; i++) {
        free(c->scripts[i].prompt);
    }
    free(c->scripts);
    free(c);
}

/* ---- persistence ---- */

typedef struct hit {
    int64_t cached;
} hit;

static void note_hit(void *user, size_t s, int64_t cached)
{
    (void)s;
    ((hit *)user)->cached = cached;
}

static int64_t ask(running *run, script *s, bool learns)
{
    const crowd_turn *const turn = run->turn;
    submit(run, s, learns, 0);
    di_step_info info;
    do {
        info = step(run);
    } while (run->n_running > 0 || !info.idle);
    settle(run);
    return ((const hit *)turn->user)->cached;
}

/* All that was restored so far came out of one tier, or of several alike. */
static void expect_restored(const running *run, di_cache_tier tier)
{
    di_cache_stats c;
    const mdl_runner *const r = run->engine->runner;
    const int64_t bytes = PROBE_UNITS * (int64_t)mdl_flat_page_bytes(r) + (int64_t)mdl_flat_state_bytes(r, true);
    di_engine_get_cache_stats(run->engine, &c);
    assert_int_equal(c.tiers[tier].restored_units, PROBE_UNITS);
    assert_int_equal(c.tiers[tier].restored_snapshots, 1);
    assert_int_equal(c.tiers[tier].restored_bytes, bytes);
}

void crowd_check_persistence(crowd *c, const di_engine_options *options)
{
    script s = {.tenant = "a"};
    hit last = {.cached = -1};
    crowd_ways ways = {.units = 0};
    di_engine_options shared = *options;
    const crowd_turn turn = {.options = options, .ended = note_hit, .user = &last};
    running run = {.c = c, .turn = &turn, .ways = &ways};
    di_cache_stats k;
    assert_true(options->cache.dir != NULL && options->cache.shared_dir != NULL);
    script_fill(&s, PROBE, c->info.vocab_size, &c->seed);
    di_sampling_default(&s.sampling);
    open_run(&run, options, 0);
    (void)ask(&run, &s, true);
    assert_int_equal(ask(&run, &s, false), 0);
    di_engine_get_cache_stats(run.engine, &k);
    assert_int_equal(k.tiers[DI_CACHE_MEMORY].refused, 0);
    close_run(&run);
    open_run(&run, options, 0);
    assert_int_equal(ask(&run, &s, false), PROBE_UNITS * KV_UNIT_TOKENS);
    expect_restored(&run, DI_CACHE_DIR);
    kv_trim(run.engine->kv, 0, 0);
    assert_int_equal(ask(&run, &s, false), PROBE_UNITS * KV_UNIT_TOKENS);
    expect_restored(&run, DI_CACHE_MEMORY);
    close_run(&run);
    shared.cache.dir = NULL;
    open_run(&run, &shared, 0);
    assert_int_equal(ask(&run, &s, false), PROBE_UNITS * KV_UNIT_TOKENS);
    expect_restored(&run, DI_CACHE_SHARED);
    close_run(&run);
    free(s.prompt);
}
