/* The disk tier against a plain model, over random operations with restarts: what is read is what was put; what the model says is gone
 * (purged, never put) is not found; the budget holds; and as long as nothing had to go for room, everything else is found. */
#include "kv_disk_fixture.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

enum { NAMES = 120, TENANTS = 3, STEPS = 1500, RUNS = 4 };

typedef struct record { /* what the model knows of a name */
    bool there;
    size_t size;
    int tenant;
} record;

typedef struct world {
    dfix_dir dir;
    kv_disk_options options;
    kv_disk *disk;
    record records[NAMES][KV_DISK_KINDS];
    kv_tenant tenants[TENANTS];
    bool loses; /* the budget is small: what is not pinned may be gone */
    uint64_t random;
    int64_t hits;
} world;

static uint64_t draw(world *w, uint64_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (w->random >> 33) % n;
}

static void put(world *w, uint64_t i, kv_disk_kind kind)
{
    record *const r = &w->records[i][kind];
    const int tenant = (int)draw(w, TENANTS);
    const size_t size = r->there ? r->size : 1 + draw(w, 30000);
    const kv_disk_put like = {.kind = kind, .bytes = (int64_t)size, .tenant = w->tenants[tenant]};
    const kv_disk_verdict verdict = dfix_put_as(w->disk, i, &like);
    if (r->there && !w->loses) {
        assert_int_equal(verdict, KV_DISK_PRESENT);
    } else if (verdict == KV_DISK_STORED) {
        *r = (record){.there = true, .size = size, .tenant = tenant};
    } else {
        assert_true(verdict == KV_DISK_PRESENT && r->there);
    }
}

static void get(world *w, uint64_t i, kv_disk_kind kind)
{
    const record *const r = &w->records[i][kind];
    size_t size = 0;
    const di_status status = dfix_get(w->disk, i, kind, &size);
    if (r->there && !w->loses) {
        assert_int_equal(status, DI_OK);
    }
    if (status == DI_OK) {
        assert_true(r->there);
        assert_int_equal(size, r->size);
        w->hits++;
    } else {
        assert_int_equal(status, DI_E_STATE);
    }
}

static void purge(world *w)
{
    const int tenant = (int)draw(w, TENANTS);
    int64_t expected = 0;
    for (int i = 0; i < NAMES * KV_DISK_KINDS; i++) {
        record *const r = &w->records[i / KV_DISK_KINDS][i % KV_DISK_KINDS];
        if (r->there && r->tenant == tenant) {
            r->there = false;
            expected++;
        }
    }
    const int64_t n = dfix_care(w->disk, KV_DISK_PURGE, &w->tenants[tenant]);
    assert_true(w->loses ? n <= expected : n == expected);
}

static void restart(world *w)
{
    kv_disk_close(w->disk);
    if (draw(w, 2) == 0) {
        dfix_drop_index(&w->dir);
    }
    w->disk = dfix_open(&w->options);
}

static void check_counters(const world *w)
{
    const kv_disk_counters c = dfix_counters(w->disk);
    int64_t n = 0;
    for (int i = 0; i < NAMES * KV_DISK_KINDS; i++) {
        n += w->records[i / KV_DISK_KINDS][i % KV_DISK_KINDS].there ? 1 : 0;
    }
    const int64_t records = c.records[KV_DISK_UNIT] + c.records[KV_DISK_SNAPSHOT];
    assert_true(w->loses ? records <= n : records == n);
    assert_true(c.bytes <= w->options.max_bytes);
    assert_int_equal(c.corrupt, 0);
    assert_int_equal(c.waiting_bytes, 0);
}

static void run(uint64_t seed, bool loses)
{
    world w = {.loses = loses, .random = seed, .dir = dfix_make()};
    w.options = dfix_options(&w.dir);
    w.options.no_sync = true;
    w.options.max_bytes = loses ? 16 << 20 : 256 << 20;
    for (int i = 0; i < TENANTS; i++) {
        assert_true(kv_tenant_of((kv_salt){&i, sizeof i}, &w.tenants[i]));
    }
    w.options.tenant_bytes = loses ? 1 << 20 : 0;
    w.disk = dfix_open(&w.options);
    for (int step = 0; step < STEPS; step++) {
        const uint64_t what = draw(&w, 200);
        const uint64_t i = draw(&w, NAMES);
        const kv_disk_kind kind = (kv_disk_kind)draw(&w, KV_DISK_KINDS);
        if (what < 90) {
            put(&w, i, kind);
        } else if (what < 192) {
            get(&w, i, kind);
        } else if (what < 194) {
            purge(&w);
        } else if (what < 196) {
            (void)dfix_care(w.disk, KV_DISK_COMPACT, NULL);
        } else if (what < 198) {
            restart(&w);
        } else {
            check_counters(&w);
        }
    }
    assert_true(w.hits > STEPS / 20);
    kv_disk_close(w.disk);
    dfix_remove(&w.dir);
}

static void a_roomy_store_is_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        run(seed, false);
    }
}

static void a_tight_store_only_forgets(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        run(100 + seed, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_roomy_store_is_the_model),
        cmocka_unit_test(a_tight_store_only_forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
