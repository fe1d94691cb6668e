/* Decisions and hardships of the tiers: what is faster to compute is not loaded, a disk that hangs costs a deadline, other tasks pass one
 * that is being loaded for, a task that is cancelled meanwhile leaves nothing behind, what requests say goes with their records, and any
 * allocation may fail.
 * ctest: timeout=240 wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "engine/eng_model.h"
#include "engine/tier_fake.h"
#include "support/torture.h"

#include "core/err.h"

#include <deepinfer/scheduler.h>

enum { N_PROMPT = 150, RAM = 8 << 20 };

static di_model *model;
static di_model_info info;
static int32_t prompt[N_PROMPT];

static di_engine *open_with(tier_fake *disk, eng_tier_load load)
{
    di_engine *e = NULL;
    const di_engine_options o = {.chunk_tokens = 64, .n_threads = 1, .max_tokens = 256};
    assert_int_equal(di_engine_open(model, &o, &e, NULL), DI_OK);
    tier_fake_attach(e, RAM, disk, NULL);
    e->tier->load = load;
    return e;
}

/* Feeds the prompt and runs it; the logits are those of before. */
static int64_t run_prompt(di_engine *e, float *logits)
{
    di_sequence *q;
    const float *rows;
    int32_t n;
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_use_cache(q, "t", 1, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, prompt, N_PROMPT, NULL), DI_OK);
    const int64_t cached = di_sequence_cached(q);
    assert_int_equal(di_sequence_run(q, NULL), DI_OK);
    assert_int_equal(di_sequence_logits(q, &rows, &n, NULL), DI_OK);
    if (logits[0] == 0.0f) {
        memcpy(logits, rows, (size_t)info.vocab_size * sizeof *rows);
    }
    assert_memory_equal(logits, rows, (size_t)info.vocab_size * sizeof *rows);
    di_sequence_free(q);
    return cached;
}

/* A disk that has the prompt's unit and snapshot, and what the prompt gives. */
static float *filled(tier_fake *disk)
{
    float *const logits = calloc((size_t)info.vocab_size, sizeof *logits);
    assert_non_null(logits);
    tier_fake_init(disk, 1);
    di_engine *const e = open_with(disk, ENG_LOAD_ALWAYS);
    assert_int_equal(run_prompt(e, logits), 0);
    di_engine_close(e);
    assert_int_equal(disk->n, 2);
    return logits;
}

static void speeds(eng_tier *t, double token_ns, double byte_ns)
{
    t->token_ns = token_ns;
    t->byte_ns[0] = byte_ns;
}

static void what_is_faster_to_compute_is_not_loaded(void **state)
{
    (void)state;
    tier_fake disk;
    float *const logits = filled(&disk);
    di_engine *e = open_with(&disk, ENG_LOAD_AUTO);
    speeds(e->tier, 1000.0, 1000.0);
    assert_int_equal(run_prompt(e, logits), 0);
    assert_int_equal(e->tier->counters.recompute, 1);
    assert_int_equal(e->tier->counters.load, 0);
    assert_int_equal(disk.counters.reads, 0);
    di_engine_close(e);
    e = open_with(&disk, ENG_LOAD_AUTO);
    speeds(e->tier, 1e7, 0.1);
    assert_int_equal(run_prompt(e, logits), 128);
    assert_int_equal(e->tier->counters.load, 1);
    assert_int_equal(disk.counters.reads, 2);
    assert_true(e->tier->byte_ns[0] != 0.1); /* measured */
    di_engine_close(e);
    e = open_with(&disk, ENG_LOAD_AUTO); /* nothing is known yet: it is tried */
    assert_int_equal(run_prompt(e, logits), 128);
    di_engine_close(e);
    tier_fake_fini(&disk);
    free(logits);
}

static void a_disk_that_hangs_costs_a_deadline(void **state)
{
    (void)state;
    tier_fake disk;
    float *const logits = filled(&disk);
    di_engine *const e = open_with(&disk, ENG_LOAD_AUTO);
    speeds(e->tier, 1000.0, 0.001);
    disk.hangs = true;
    assert_int_equal(run_prompt(e, logits), 0);
    assert_non_null(e->tier->restores); /* still with the disk */
    disk.hangs = false;
    eng_tier_poll(e->tier);
    assert_null(e->tier->restores);
    di_engine_close(e);
    tier_fake_fini(&disk);
    free(logits);
}

/* ---- tasks ---- */

typedef struct seen {
    char order[64]; /* names of tasks as they are admitted and end */
    size_t n;
    int64_t cached[128]; /* by name */
} seen;

static void on_events(void *user, const di_task_event *events, size_t n)
{
    seen *const s = user;
    for (size_t i = 0; i < n; i++) {
        const char name = *(const char *)events[i].user;
        if (events[i].admitted) {
            s->order[s->n++] = name;
            s->cached[(size_t)name] = events[i].cached_tokens;
        }
        if (events[i].end != DI_TASK_RUNNING) {
            s->order[s->n++] = (char)(name - 'a' + 'A');
        }
    }
    s->order[s->n] = '\0';
}

static di_scheduler *open_scheduler(di_engine *e, seen *s)
{
    di_scheduler *sched = NULL;
    const di_scheduler_options o = {.on_events = on_events, .user = s};
    assert_int_equal(di_scheduler_new(e, &o, &sched, NULL), DI_OK);
    return sched;
}

static di_task *submit(di_scheduler *s, const char *name, size_t n, di_task_cache cache)
{
    di_task *task = NULL;
    di_sampling greedy;
    di_sampling_default(&greedy);
    greedy.temperature = 0;
    const di_task_options o = {.prompt = prompt,
                               .n_prompt = n,
                               .sampling = &greedy,
                               .max_tokens = 2,
                               .tenant = "t",
                               .user = (void *)(uintptr_t)name,
                               .cache = cache};
    assert_int_equal(di_task_submit(s, &o, &task, NULL), DI_OK);
    return task;
}

static void step_until_idle(di_scheduler *s)
{
    di_step_info step = {.idle = false};
    while (!step.idle) {
        assert_int_equal(di_scheduler_step(s, &step, NULL), DI_OK);
    }
}

static void others_pass_a_task_that_is_loaded_for(void **state)
{
    (void)state;
    tier_fake disk;
    float *const logits = filled(&disk);
    seen s = {.n = 0};
    di_engine *const e = open_with(&disk, ENG_LOAD_ALWAYS);
    di_scheduler *const sched = open_scheduler(e, &s);
    di_step_info step;
    disk.hangs = true;
    submit(sched, "a", N_PROMPT, (di_task_cache){.pinned = false});
    submit(sched, "b", 20, (di_task_cache){.pinned = false});
    while (strchr(s.order, 'B') == NULL) {
        assert_int_equal(di_scheduler_step(sched, &step, NULL), DI_OK);
        assert_false(step.idle);
    }
    assert_string_equal(s.order, "bB");
    disk.hangs = false;
    step_until_idle(sched);
    assert_string_equal(s.order, "bBaA");
    assert_int_equal(s.cached['a'], 128);
    di_scheduler_free(sched);
    di_engine_close(e);
    tier_fake_fini(&disk);
    free(logits);
}

static void a_cancelled_task_leaves_nothing_behind(void **state)
{
    (void)state;
    tier_fake disk;
    float *const logits = filled(&disk);
    for (int freed = 0; freed < 2; freed++) {
        seen s = {.n = 0};
        di_engine *const e = open_with(&disk, ENG_LOAD_ALWAYS);
        di_scheduler *const sched = open_scheduler(e, &s);
        di_step_info step;
        disk.hangs = true;
        di_task *const task = submit(sched, "a", N_PROMPT, (di_task_cache){.pinned = false});
        assert_int_equal(di_scheduler_step(sched, &step, NULL), DI_OK);
        if (freed == 0) {
            di_task_cancel(task);
            step_until_idle(sched);
            assert_string_equal(s.order, "A");
        }
        di_scheduler_free(sched);
        assert_non_null(e->tier->restores);
        disk.hangs = false;
        di_engine_close(e);
    }
    tier_fake_fini(&disk);
    free(logits);
}

static void what_a_task_says_goes_with_its_records(void **state)
{
    (void)state;
    tier_fake disk;
    seen s = {.n = 0};
    tier_fake_init(&disk, 1);
    di_engine *e = open_with(&disk, ENG_LOAD_ALWAYS);
    di_scheduler *sched = open_scheduler(e, &s);
    submit(sched, "a", N_PROMPT, (di_task_cache){.class_id = DI_CACHE_AGENT, .ttl_s = 60});
    step_until_idle(sched);
    di_scheduler_free(sched);
    di_engine_close(e);
    assert_int_equal(disk.n, 2);
    kv_tenant tenant;
    assert_true(kv_tenant_of((kv_salt){.data = "t", .size = 1}, &tenant));
    for (size_t i = 0; i < disk.n; i++) {
        assert_int_equal(disk.records[i].class_id, DI_CACHE_AGENT);
        assert_int_equal(disk.records[i].ttl_s, 60);
        assert_false(disk.records[i].pinned);
        assert_memory_equal(&disk.records[i].tenant, &tenant, sizeof tenant);
    }
    e = open_with(&disk, ENG_LOAD_ALWAYS); /* what a pinned task finds is pinned, too */
    sched = open_scheduler(e, &s);
    assert_int_equal(di_scheduler_pin_tenant(sched, "t", true, NULL), DI_OK);
    submit(sched, "b", N_PROMPT, (di_task_cache){.class_id = DI_CACHE_CHAT});
    step_until_idle(sched);
    di_scheduler_free(sched);
    di_engine_close(e);
    assert_int_equal(s.cached['b'], 128);
    assert_true(disk.records[0].pinned && disk.records[1].pinned);
    tier_fake_fini(&disk);
}

/* A prefix that is used on the device all the time would expire on the disk, and be gone after a restart. */
static void what_is_used_above_is_written_again_below(void **state)
{
    (void)state;
    tier_fake disk;
    float *const logits = filled(&disk);
    di_engine *const e = open_with(&disk, ENG_LOAD_ALWAYS);
    e->tier->ttl_s[0] = 40 * 3600;
    assert_int_equal(run_prompt(e, logits), 128);
    assert_int_equal(run_prompt(e, logits), 128);
    eng_tier_poll(e->tier);
    assert_int_equal(disk.counters.present, 0);
    e->tier->began_ns -= INT64_C(10) * 3600 * 1000000000; /* ten hours go by: a quarter */
    assert_int_equal(run_prompt(e, logits), 128);
    eng_tier_poll(e->tier);
    assert_int_equal(disk.counters.present, 0);
    e->tier->began_ns -= INT64_C(1) * 3600 * 1000000000;
    for (int i = 0; i < 2; i++) { /* once */
        assert_int_equal(run_prompt(e, logits), 128);
        eng_tier_poll(e->tier);
        assert_int_equal(disk.counters.present, 2);
    }
    kv_trim(e->kv, 0, 0); /* and it is no other bytes */
    assert_int_equal(run_prompt(e, logits), 128);
    di_engine_close(e);
    tier_fake_fini(&disk);
    free(logits);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    tier_fake disk;
    seen s = {.n = 0};
    di_error err;
    di_engine *e = NULL;
    di_engine_options o = {.n_threads = 1, .max_tokens = 256, .cache = {.ram_bytes = -1}};
    unit_expect_error(di_engine_open(model, &o, &e, &err), DI_E_ARGUMENT, &err, "cache.ram_bytes", NULL);
    o.cache = (di_cache_options){.ram_bytes = RAM, .load = (di_cache_load)7};
    unit_expect_error(di_engine_open(model, &o, &e, &err), DI_E_ARGUMENT, &err, "cache.load", NULL);
    o.cache = (di_cache_options){.dir = "no/such/folder/at/all"};
    assert_int_not_equal(di_engine_open(model, &o, &e, &err), DI_OK);
    tier_fake_init(&disk, 1);
    e = open_with(&disk, ENG_LOAD_ALWAYS);
    di_scheduler *const sched = open_scheduler(e, &s);
    di_task *task = NULL;
    di_task_options t = {.prompt = prompt, .n_prompt = 3, .cache = {.class_id = (di_cache_class)DI_CACHE_CLASSES}};
    unit_expect_error(di_task_submit(sched, &t, &task, &err), DI_E_ARGUMENT, &err, "cache: class 2", NULL);
    t.cache = (di_task_cache){.ttl_s = -1};
    unit_expect_error(di_task_submit(sched, &t, &task, &err), DI_E_ARGUMENT, &err, "time to live -1", NULL);
    di_scheduler_free(sched);
    di_engine_close(e);
    tier_fake_fini(&disk);
}

/* ---- memory ---- */

typedef struct hardship {
    tier_fake *disk;
    const float *logits;
} hardship;

/* The feed fails cleanly, or goes without what could not be loaded, which counts as a failure here; no block is left. */
static di_status restore(const void *arg, di_error *err)
{
    const hardship *const h = arg;
    di_sequence *q = NULL;
    torture.on = false;
    di_engine *const e = open_with(h->disk, ENG_LOAD_ALWAYS);
    torture.on = true;
    di_status status = di_sequence_new(e, &q, err);
    if (status == DI_OK) {
        status = di_sequence_use_cache(q, "t", 1, err);
    }
    if (status == DI_OK) {
        status = di_sequence_feed(q, prompt, N_PROMPT, err);
    }
    if (status == DI_OK && torture.failed) {
        status = err_set(err, DI_E_MEMORY, "out of memory: something was not loaded");
    } else if (status == DI_OK) {
        const float *rows;
        int32_t n;
        assert_int_equal(di_sequence_cached(q), 128);
        torture.on = false; /* of running there is another test */
        assert_int_equal(di_sequence_run(q, NULL), DI_OK);
        assert_int_equal(di_sequence_logits(q, &rows, &n, NULL), DI_OK);
        assert_memory_equal(h->logits, rows, (size_t)info.vocab_size * sizeof *rows);
        torture.on = true;
    }
    di_sequence_free(q);
    assert_null(kv_check(e->kv));
    assert_null(kv_ram_check(e->tier->ram));
    di_engine_close(e);
    return status;
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    tier_fake disk;
    float *const logits = filled(&disk);
    disk.refuses = 100; /* it keeps nothing more: its memory is the test's */
    torture_all("restore", restore, &(hardship){.disk = &disk, .logits = logits}, 400);
    tier_fake_fini(&disk);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_faster_to_compute_is_not_loaded),
        cmocka_unit_test(a_disk_that_hangs_costs_a_deadline),
        cmocka_unit_test(others_pass_a_task_that_is_loaded_for),
        cmocka_unit_test(a_cancelled_task_leaves_nothing_behind),
        cmocka_unit_test(what_a_task_says_goes_with_its_records),
        cmocka_unit_test(what_is_used_above_is_written_again_below),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(any_allocation_may_fail),
    };
    model = eng_model_open("tests/data/model/t6");
    di_model_get_info(model, &info);
    for (int32_t i = 0; i < N_PROMPT; i++) {
        prompt[i] = (i * 37 + 11) % info.vocab_size;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    di_model_close(model);
    return failed;
}
