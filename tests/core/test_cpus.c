/* Which processors threads get, on machines that hwloc makes up, and pinning on this one. */
#include "support/unit.h"

#include "core/cpus.h"
#include "core/pool.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64 };

static void choose(const char *machine, size_t n, const char *want)
{
    cpus *c = NULL;
    di_error err = {.message = ""};
    int got[MOST];
    char text[512] = "";
    if (cpus_open(machine, &c, &err) != DI_OK) {
        fail_msg("%s: %s", machine, err.message);
    }
    const size_t chosen = cpus_choose(c, n, got);
    assert_int_equal(chosen, n < (size_t)cpus_processors(c) ? n : (size_t)cpus_processors(c));
    for (size_t i = 0; i < chosen; i++) {
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i > 0 ? " " : "", got[i]);
    }
    cpus_close(c);
    assert_string_equal(text, want);
}

static void threads_get_cores_of_their_own_first(void **state)
{
    (void)state;
    choose("core:4 pu:2", 1, "0");
    choose("core:4 pu:2", 3, "0 2 4");
    choose("core:4 pu:2", 4, "0 2 4 6");
    choose("core:4 pu:2", 5, "0 1 2 4 6"); /* the fifth shares a core */
    choose("core:4 pu:2", 8, "0 1 2 3 4 5 6 7");
    choose("core:4 pu:2", 20, "0 1 2 3 4 5 6 7");
    choose("pu:3", 2, "0 1");
}

static void nodes_get_equally_many_and_neighbours_stay_together(void **state)
{
    (void)state;
    choose("node:2 core:4 pu:2", 1, "0");
    choose("node:2 core:4 pu:2", 2, "0 8");
    choose("node:2 core:4 pu:2", 4, "0 2 8 10");
    choose("node:2 core:4 pu:2", 5, "0 2 4 8 10");
    choose("node:2 core:4 pu:2", 8, "0 2 4 6 8 10 12 14");
    choose("node:2 core:4 pu:2", 9, "0 1 2 4 6 8 10 12 14");
    choose("pack:2 node:2 core:2 pu:1", 4, "0 2 4 6");
    choose("pack:2 node:2 core:2 pu:1", 6, "0 1 2 3 4 6");
}

/* Processors of which the system gives numbers that are not in the order of cores, as most do with hyperthreads. */
static void numbers_are_the_systems(void **state)
{
    (void)state;
    choose("core:2 pu:2(indexes=0,2,1,3)", 2, "0 1");
    choose("node:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 4, "0 1 2 3");
    choose("node:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 6, "0 4 1 2 6 3");
}

static void sizes_are_counted(void **state)
{
    (void)state;
    cpus *c;
    assert_int_equal(cpus_open("pack:2 node:2 core:3 pu:2", &c, NULL), DI_OK);
    assert_int_equal(cpus_nodes(c), 4);
    assert_int_equal(cpus_cores(c), 12);
    assert_int_equal(cpus_processors(c), 24);
    char memory[64];
    assert_false(cpus_interleave(c, memory, sizeof memory)); /* not this machine */
    cpus_close(c);
    di_error err = {.message = ""};
    unit_expect_error(cpus_open("nothing like it", &c, &err), DI_E_ARGUMENT, &err, "describes no machine", NULL);
}

typedef struct seen {
    int cpu[MOST];
    int on_worker[MOST]; /* the range was run by a worker */
    int n;
} seen;

static void look(void *arg, size_t begin, size_t end, int thread)
{
    seen *const s = arg;
    (void)begin;
    (void)end;
    cpu_set_t set;
    s->on_worker[thread] = gettid() != getpid() ? 1 : 0;
    s->cpu[thread] = -1;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    for (size_t i = 0; CPU_COUNT(&set) == 1 && i < CPU_SETSIZE; i++) {
        s->cpu[thread] = CPU_ISSET(i, &set) ? (int)i : s->cpu[thread];
    }
}

static void workers_run_where_they_are_told_and_callers_where_they_like(void **state)
{
    (void)state;
    cpus *c;
    pool *p;
    int chosen[MOST];
    cpu_set_t before;
    cpu_set_t behind;
    seen s = {.n = 0};
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cpus_open(NULL, &c, NULL), DI_OK);
    assert_int_equal(cpus_processors(c), CPU_COUNT(&before)); /* those of this process, not of the machine */
    const size_t n = cpus_choose(c, 3, chosen);
    assert_int_equal(pool_new(3, &p, NULL), DI_OK);
    assert_true(pool_pin(p, chosen, n));
    int met = 0;
    for (int round = 0; round < 10000 && met == 0; round++) { /* the caller stands in for workers that do not come at once */
        pool_run(p, 3, look, &s);
        for (size_t i = 1; i < 3; i++) {
            assert_true(s.on_worker[i] == 0 || s.cpu[i] == chosen[i % n]);
            met += s.on_worker[i];
        }
    }
    assert_true(met > 0);
    pool_free(p);
    assert_int_equal(sched_getaffinity(0, sizeof behind, &behind), 0);
    assert_true(CPU_EQUAL(&before, &behind));
    cpus_close(c);
}

static void a_processor_that_is_not_there_is_refused(void **state)
{
    (void)state;
    const int nowhere[] = {CPU_SETSIZE - 1, CPU_SETSIZE, -1};
    pool *p;
    seen s = {.n = 0};
    assert_int_equal(pool_new(2, &p, NULL), DI_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_false(pool_pin(p, &nowhere[i], 1));
    }
    assert_false(pool_pin(p, nowhere, 0));
    pool_run(p, 2, look, &s); /* and works */
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_get_cores_of_their_own_first),
        cmocka_unit_test(nodes_get_equally_many_and_neighbours_stay_together),
        cmocka_unit_test(numbers_are_the_systems),
        cmocka_unit_test(sizes_are_counted),
        cmocka_unit_test(workers_run_where_they_are_told_and_callers_where_they_like),
        cmocka_unit_test(a_processor_that_is_not_there_is_refused),
    };
    cpus *c;
    di_error err = {.message = ""};
    if (cpus_open("pu:1", &c, &err) != DI_OK) {
        printf("skipped: %s\n", err.message);
        return 0;
    }
    cpus_close(c);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
