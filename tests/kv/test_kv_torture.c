/* Fails each allocation of a store's life in turn (support/torture.h): a store that can't be made says so, and one that is there goes
 * on with every invariant, keeps its promises and loses nothing but later hits.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

#include "kv_fixture.h"

#include "core/err.h"

enum { N_PAGES = 100, N_STATES = 6, LENGTH = 70 };

static void *slab_alloc(void *user, size_t bytes)
{
    (void)user;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void slab_free(void *user, void *p)
{
    (void)user;
    free(p);
}

static void expect_sound(const kv_store *store)
{
    const bool on = torture.on;
    torture.on = false; /* cmocka allocates when it fails */
    const char *const broken = kv_check(store);
    if (broken != NULL) {
        fail_msg("broken: %s", broken);
    }
    torture.on = on;
}

/* One unit more and the pin moved on to it. False when it could not be published. */
static bool extend(kv_store *store, kv_unit **last, int32_t tag, kv_slot *page)
{
    int32_t ids[KV_UNIT_TOKENS];
    kv_unit *const unit = kv_publish(store, *last, fix_salt, fix_ids(tag, ids), NULL, page);
    if (unit == NULL || !kv_pin(unit)) {
        return false;
    }
    kv_unpin(store, *last);
    *last = unit;
    return true;
}

/* A sequence of LENGTH promised pages, publishing as long as it can. */
static bool run_sequence(kv_store *store, int32_t first_tag)
{
    if (!kv_reserve(store, LENGTH, 2)) {
        expect_sound(store);
        return false;
    }
    kv_slot *pages[LENGTH];
    kv_unit *last = NULL;
    bool published = true;
    kv_slot *const running = kv_take_state(store, true);
    for (int32_t i = 0; i < LENGTH; i++) {
        pages[i] = kv_take_page(store, true);
        if (pages[i] == NULL) {
            return false; /* seen as an error that no allocation explains */
        }
        published = published && extend(store, &last, first_tag + i, pages[i]);
        expect_sound(store);
    }
    kv_slot *const snapshot = kv_take_state(store, true);
    if (last != NULL) {
        kv_attach_snapshot(store, last, snapshot);
    }
    kv_drop(store, snapshot);
    kv_drop(store, running);
    kv_unpin(store, last);
    for (int32_t i = 0; i < LENGTH; i++) {
        kv_drop(store, pages[i]);
    }
    expect_sound(store);
    return published;
}

static di_status run_store(const void *arg, di_error *err)
{
    (void)arg;
    const kv_options options = {.page_bytes = 64,
                                .state_bytes = 64,
                                .max_pages = N_PAGES,
                                .max_states = N_STATES,
                                .memory = {slab_alloc, slab_free, NULL}};
    kv_store *store;
    di_status status = kv_store_new(&options, &store, err);
    if (status != DI_OK) {
        return status;
    }
    bool all = true;
    for (int32_t i = 0; i < 3; i++) {
        all = run_sequence(store, 1000 * (i % 2)) && all;
    }
    kv_counters c;
    kv_get_counters(store, &c);
    if (c.pages_used != 0 || c.states_used != 0 || c.pages_promised != 0) {
        status = err_set(err, DI_E_INTERNAL, "slots or promises are left");
    } else if (!all) {
        status = err_memory(err, "a unit or a slab", 0);
    }
    kv_store_free(store);
    return status;
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    torture_all("three sequences", run_store, NULL, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
