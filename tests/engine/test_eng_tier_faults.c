/* A folder's disk that fails, fills up, becomes read-only or slow while requests run: every token stays as without a cache, figures say what
 * happened, the folder beside it goes on, and so does the one that failed when its disk is well again. What the store makes of faults is
 * tested in tests/kv/; this is about what lies above it.
 * ctest: wrap=kv_disk_open */
#include "engine/eng_model.h"
#include "engine/tier_crowd.h"
#include "kv/kv_disk.h"
#include "support/faulty.h"
#include "support/unit.h"

#include <errno.h>
#include <stdio.h>

enum { SCRIPTS = 16, BEFORE = 4, DURING = 24, PATH_BYTES = 1024 };

static faulty disk; /* under every folder that is not shared */

di_status __real_kv_disk_open(const kv_disk_options *options, kv_disk **out, di_error *err);
di_status __wrap_kv_disk_open(const kv_disk_options *options, kv_disk **out, di_error *err);

di_status __wrap_kv_disk_open(const kv_disk_options *options, kv_disk **out, di_error *err)
{
    kv_disk_options o = *options;
    o.io = o.shared ? o.io : &disk.table;
    return __real_kv_disk_open(&o, out, err);
}

/* ---- a folder on the bad disk, one beside it ---- */

typedef struct place {
    di_model *model;
    crowd *crowd;
    char *scratch;
    char dir[PATH_BYTES];
    char shared[PATH_BYTES];
} place;

static int open_place(void **state)
{
    static place p;
    p.model = eng_model_open("tests/data/model/t6");
    p.crowd = crowd_new(&(crowd_plan){.model = p.model, .n_scripts = SCRIPTS, .least = 130, .most = 250, .seed = 11});
    *state = &p;
    return 0;
}

static int close_place(void **state)
{
    place *const p = *state;
    crowd_free(p->crowd);
    di_model_close(p->model);
    return 0;
}

static void begin(place *p)
{
    faulty_init(&disk);
    p->scratch = unit_scratch_new();
    assert_true(snprintf(p->dir, sizeof p->dir, "%s/dir", p->scratch) < (int)sizeof p->dir);
    assert_true(snprintf(p->shared, sizeof p->shared, "%s/shared", p->scratch) < (int)sizeof p->shared);
}

static void end(place *p) { unit_scratch_remove(p->scratch); }

typedef struct trouble {
    void (*start)(void);
    size_t n_ended;
} trouble;

/* The disk is well when the engine opens the folder, and not any more some requests later. */
static void start_trouble(void *user, size_t script, int64_t cached)
{
    trouble *const t = user;
    (void)script;
    (void)cached;
    if (++t->n_ended == BEFORE && t->start != NULL) {
        t->start();
    }
}

typedef struct asked {
    size_t first; /* script; asked are n of them, in order and round about */
    size_t n;
    bool shared; /* the folder beside it is there */
    di_cache_load load;
} asked;

/* Requests through an engine whose device and memory have room for little; every token is compared. */
static di_cache_stats ask(place *p, asked a, void (*start)(void))
{
    di_model_info info;
    di_model_get_info(p->model, &info);
    const di_engine_options o = {.n_threads = 1,
                                 .kv_bytes = 5 * 9 * info.state_bytes,
                                 .cache = {.dir = p->dir,
                                           .dir_bytes = (int64_t)24 << 20,
                                           .shared_dir = a.shared ? p->shared : NULL,
                                           .shared_bytes = (int64_t)24 << 20,
                                           .ram_bytes = 5 * info.state_bytes,
                                           .load = a.load}};
    trouble t = {.start = start};
    crowd_ways ways = {.units = 0};
    crowd_run(p->crowd,
              &(crowd_turn){.options = &o,
                            .n_requests = BEFORE + DURING,
                            .first = a.first,
                            .n_scripts = a.n,
                            .in_order = true,
                            .n_pages = 12,
                            .settle = true,
                            .ended = start_trouble,
                            .user = &t},
              &ways);
    assert_int_equal(t.n_ended, BEFORE + DURING);
    assert_int_equal(ways.cache.tiers[DI_CACHE_DIR].corrupt + ways.cache.tiers[DI_CACHE_SHARED].corrupt, 0);
    assert_int_equal(ways.cache.tiers[DI_CACHE_SHARED].failed, 0);
    return ways.cache;
}

static const asked everything = {.n = SCRIPTS, .load = DI_CACHE_LOAD_ALWAYS};
static const asked everything_twice = {.n = SCRIPTS, .shared = true, .load = DI_CACHE_LOAD_ALWAYS};

/* ---- troubles ---- */

static void reads_fail(void) { atomic_store(&disk.read_error, EIO); }

static void a_disk_that_cannot_be_read(void **state)
{
    place *const p = *state;
    begin(p);
    (void)ask(p, everything_twice, NULL);
    const di_cache_stats alone = ask(p, everything, reads_fail);
    assert_true(alone.tiers[DI_CACHE_DIR].failed > 0);
    assert_true(alone.incomplete > 0);
    faulty_init(&disk);
    const di_cache_stats well = ask(p, everything, NULL);
    assert_true(well.tiers[DI_CACHE_DIR].restored_units > 0);
    assert_int_equal(well.tiers[DI_CACHE_DIR].failed, 0);
    end(p);
}

static void disk_is_full(void)
{
    atomic_store(&disk.allocate_error, ENOSPC);
    atomic_store(&disk.write_error, ENOSPC);
}

/* The folder beside it gets everything meanwhile. */
static void a_disk_that_is_full(void **state)
{
    place *const p = *state;
    begin(p);
    const di_cache_stats full = ask(p, everything_twice, disk_is_full);
    const di_cache_tier_stats *const dir = &full.tiers[DI_CACHE_DIR];
    const di_cache_tier_stats *const shared = &full.tiers[DI_CACHE_SHARED];
    assert_true(dir->failed > 0);
    assert_true(shared->stored_bytes > dir->stored_bytes);
    faulty_init(&disk);
    const di_cache_stats well = ask(p, everything_twice, NULL);
    assert_true(well.tiers[DI_CACHE_SHARED].restored_units + well.tiers[DI_CACHE_SHARED].restored_snapshots > 0);
    const di_cache_stats alone = ask(p, everything, NULL);
    assert_true(alone.tiers[DI_CACHE_DIR].stored_bytes > 0);
    assert_int_equal(well.tiers[DI_CACHE_DIR].failed + alone.tiers[DI_CACHE_DIR].failed, 0);
    end(p);
}

static void disk_is_read_only(void)
{
    atomic_store(&disk.create_error, EROFS);
    atomic_store(&disk.allocate_error, EROFS);
    atomic_store(&disk.write_error, EROFS);
    atomic_store(&disk.sync_error, EROFS);
    atomic_store(&disk.remove_error, EROFS);
}

/* What is there is still found; nothing new is written. */
static void a_disk_that_becomes_read_only(void **state)
{
    place *const p = *state;
    begin(p);
    (void)ask(p, (asked){.n = SCRIPTS / 2, .load = DI_CACHE_LOAD_ALWAYS}, NULL);
    const di_cache_stats locked = ask(p, everything, disk_is_read_only);
    assert_true(locked.tiers[DI_CACHE_DIR].failed > 0);
    assert_true(locked.tiers[DI_CACHE_DIR].restored_units > 0);
    faulty_init(&disk);
    const di_cache_stats well = ask(p, (asked){.first = SCRIPTS / 2, .n = SCRIPTS / 2, .load = DI_CACHE_LOAD_ALWAYS}, NULL);
    assert_true(well.tiers[DI_CACHE_DIR].stored_bytes > 0);
    assert_int_equal(well.tiers[DI_CACHE_DIR].failed, 0);
    end(p);
}

static void disk_is_slow(void) { atomic_store(&disk.delay_ms, 10); }

/* Loaded where one asks for it at any price; else computed, as soon as it shows that loading takes longer. */
static void a_disk_that_is_slow(void **state)
{
    place *const p = *state;
    begin(p);
    (void)ask(p, everything, NULL);
    const di_cache_stats patient = ask(p, everything, disk_is_slow);
    assert_true(patient.tiers[DI_CACHE_DIR].restored_units > 0);
    assert_int_equal(patient.incomplete + patient.tiers[DI_CACHE_DIR].failed, 0);
    faulty_init(&disk);
    const di_cache_stats impatient = ask(p, (asked){.n = SCRIPTS, .load = DI_CACHE_LOAD_AUTO}, disk_is_slow);
    assert_true(impatient.late + impatient.recomputes > 0);
    assert_int_equal(impatient.tiers[DI_CACHE_DIR].failed, 0);
    end(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_cannot_be_read),
        cmocka_unit_test(a_disk_that_is_full),
        cmocka_unit_test(a_disk_that_becomes_read_only),
        cmocka_unit_test(a_disk_that_is_slow),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
