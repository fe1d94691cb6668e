/* tier_requests.c - see tier_requests.h. Requests are drawn at random from a list; its answers come of tasks that use no cache. */
#include "engine/tier_requests.h"

#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { N_NEW = 4, AT_ONCE = 3 };

typedef struct script {
    int32_t *prompt; /* [n] */
    size_t n;
    di_sampling sampling;
    const char *tenant;
    int32_t ids[N_NEW]; /* [n_ids] the answer */
    int32_t n_ids;
} script;

typedef struct crowd {
    const tier_plan *plan;
    di_model_info info;
    script *scripts;
    uint64_t seed;
    tier_report report;
} crowd;

typedef struct request {
    crowd *c;
    script *s;
    int32_t n_got;
    bool learns; /* it gives the answer that others are compared with */
    size_t *n_running;
} request;

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

static void write_scripts(crowd *c)
{
    static const char *const tenants[] = {"a", "a", "a", "b"};
    c->scripts = calloc(c->plan->n_scripts, sizeof *c->scripts);
    assert_non_null(c->scripts);
    for (size_t i = 0; i < c->plan->n_scripts; i++) {
        script *const s = &c->scripts[i];
        const script *const other = &c->scripts[below(&c->seed, i + 1)];
        s->n = 1 + below(&c->seed, c->plan->most);
        s->prompt = calloc(s->n, sizeof *s->prompt);
        assert_non_null(s->prompt);
        const size_t shared = other == s || below(&c->seed, 4) == 0 ? 0 : other->n < s->n ? other->n : s->n;
        memcpy(s->prompt, other->prompt, shared * sizeof *s->prompt);
        for (size_t t = shared; t < s->n; t++) {
            s->prompt[t] = (int32_t)below(&c->seed, (size_t)c->info.vocab_size);
        }
        s->tenant = tenants[below(&c->seed, 4)];
        di_sampling_default(&s->sampling);
        s->sampling.temperature = below(&c->seed, 2) == 0 ? 0.0f : 1.0f;
        s->sampling.seed = unit_random(&c->seed);
    }
}

static void on_events(void *user, const di_task_event *events, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        request *const r = e->user;
        script *const s = r->s;
        r->c->report.cached_tokens += e->cached_tokens;
        if (e->sample != NULL && r->learns) {
            s->ids[s->n_ids++] = e->sample->id;
        } else if (e->sample != NULL && e->sample->id != s->ids[r->n_got++]) {
            fail_msg("token %d behind %zu tokens differs", r->n_got - 1, s->n);
        }
        if (e->end != DI_TASK_RUNNING) {
            assert_int_equal(e->end, DI_TASK_LENGTH);
            assert_true(r->learns || r->n_got == s->n_ids);
            --*r->n_running;
            free(r);
        }
    }
}

/* n requests through one engine: in the order of the list when they learn, else at random. */
static void run_requests(crowd *c, const di_engine_options *o, size_t n, bool learns)
{
    di_engine *e = NULL;
    di_scheduler *sched = NULL;
    di_error err;
    size_t n_running = 0;
    di_step_info step = {.idle = false};
    if (di_engine_open(c->plan->model, o, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(di_scheduler_new(e, &(di_scheduler_options){.on_events = on_events}, &sched, NULL), DI_OK);
    for (size_t started = 0; started < n || !step.idle;) {
        for (; started < n && n_running < AT_ONCE; started++, n_running++) {
            request *const r = calloc(1, sizeof *r);
            di_task *task;
            assert_non_null(r);
            *r = (request){.c = c, .s = &c->scripts[learns ? started : below(&c->seed, c->plan->n_scripts)], .learns = learns,
                           .n_running = &n_running};
            const di_task_options t = {.prompt = r->s->prompt,
                                       .n_prompt = r->s->n,
                                       .sampling = &r->s->sampling,
                                       .max_tokens = N_NEW,
                                       .tenant = r->s->tenant,
                                       .no_cache = learns,
                                       .user = r};
            assert_int_equal(di_task_submit(sched, &t, &task, NULL), DI_OK);
        }
        assert_int_equal(di_scheduler_step(sched, &step, NULL), DI_OK);
    }
    di_kv_stats kv;
    di_cache_stats cache;
    di_engine_get_kv_stats(e, &kv);
    di_engine_get_cache_stats(e, &cache);
    c->report.pages_evicted += kv.pages_evicted;
    for (int i = 0; i < DI_CACHE_TIERS; i++) {
        c->report.restored_units[i] += cache.tiers[i].restored_units;
        c->report.restored_snapshots[i] += cache.tiers[i].restored_snapshots;
        c->report.evicted[i] += cache.tiers[i].evicted;
        c->report.corrupt += cache.tiers[i].corrupt;
    }
    print_message("%zu requests %s\n", n, learns ? "without a cache" : "compared");
    di_scheduler_free(sched);
    di_engine_close(e);
}

tier_report tier_requests(const tier_plan *plan)
{
    crowd c = {.plan = plan, .seed = 5};
    char *const dir = unit_scratch_new();
    di_model_get_info(plan->model, &c.info);
    write_scripts(&c);
    run_requests(&c, &(di_engine_options){.n_threads = 2}, plan->n_scripts, true);
    c.report = (tier_report){.cached_tokens = 0};
    char *const folder = malloc(strlen(dir) + sizeof "/kv");
    assert_non_null(folder);
    strcat(strcpy(folder, dir), "/kv");
    const di_engine_options o = {.n_threads = 2,
                                 .kv_bytes = plan->n_states * c.info.state_bytes * 9,
                                 .cache = {.dir = folder,
                                           .dir_bytes = plan->dir_bytes,
                                           .ram_bytes = plan->ram_bytes,
                                           .load = DI_CACHE_LOAD_ALWAYS}};
    const size_t each = plan->n_requests / (plan->n_restarts + 1);
    for (size_t i = 0; i <= plan->n_restarts; i++) {
        run_requests(&c, &o, i < plan->n_restarts ? each : plan->n_requests - plan->n_restarts * each, false);
    }
    for (size_t i = 0; i < plan->n_scripts; i++) {
        free(c.scripts[i].prompt);
    }
    free(c.scripts);
    free(folder);
    unit_scratch_remove(dir);
    print_message("%lld tokens cached; units restored: %lld of memory, %lld of the folder; evicted: %lld pages, %lld and %lld records\n",
                  (long long)c.report.cached_tokens, (long long)c.report.restored_units[DI_CACHE_MEMORY],
                  (long long)c.report.restored_units[DI_CACHE_DIR], (long long)c.report.pages_evicted,
                  (long long)c.report.evicted[DI_CACHE_MEMORY], (long long)c.report.evicted[DI_CACHE_DIR]);
    return c.report;
}
