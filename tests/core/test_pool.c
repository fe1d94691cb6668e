/* Tests of pool.c; the thread sanitizer build runs them too. */
#include "support/unit.h"

#include "core/pool.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ITEMS = 1000 };

typedef struct job {
    int visits[MAX_ITEMS];
    int thread_of[MAX_ITEMS];
} job;

static void visit(void *arg, size_t begin, size_t end, int thread)
{
    job *const j = arg;
    for (size_t i = begin; i < end; i++) {
        j->visits[i]++;
        j->thread_of[i] = thread;
    }
}

/* Is this thread of the process asleep in the kernel? */
static bool thread_sleeps(const char *tid)
{
    char path[64];
    char line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.16s/stat", tid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return true; /* it has ended */
    }
    const bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *name_end = strrchr(line, ')');
    return read && name_end != NULL && strncmp(name_end, ") S", 3) == 0;
}

/* Returns when every other thread sleeps: an event that an idle pool must bring about. */
static void wait_until_workers_sleep(void)
{
    bool all = false;
    while (!all) {
        char self[16];
        snprintf(self, sizeof self, "%d", (int)gettid());
        DIR *tasks = opendir("/proc/self/task");
        assert_non_null(tasks);
        all = true;
        for (const struct dirent *d = readdir(tasks); d != NULL; d = readdir(tasks)) {
            all = all && (d->d_name[0] == '.' || strcmp(d->d_name, self) == 0 || thread_sleeps(d->d_name));
        }
        closedir(tasks);
        sched_yield();
    }
}

static void every_item_runs_once_in_contiguous_ranges(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 7, 16};
    job *const j = malloc(sizeof *j);
    assert_non_null(j);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        pool *p;
        di_error err;
        assert_int_equal(pool_new(counts[c], &p, &err), DI_OK);
        assert_int_equal(pool_threads(p), counts[c]);
        for (size_t n = 0; n < 40; n++) {
            memset(j, 0, sizeof *j);
            pool_run(p, n, visit, j);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(j->visits[i], 1);
                if (i > 0) {
                    assert_true(j->thread_of[i] >= j->thread_of[i - 1]);
                }
                /* The first n % threads ranges hold one item more. */
                const size_t threads = (size_t)counts[c];
                const size_t share = n / threads;
                const size_t longer = n % threads;
                const size_t head = longer * (share + 1);
                const size_t expected = n == 1 ? 0 : i < head ? i / (share + 1) : longer + (i - head) / share;
                assert_int_equal(j->thread_of[i], expected);
            }
            for (size_t i = n; i < 60; i++) {
                assert_int_equal(j->visits[i], 0);
            }
        }
        pool_free(p);
    }
    free(j);
}

static void no_pool_means_the_caller_alone(void **state)
{
    (void)state;
    job *const j = calloc(1, sizeof *j);
    assert_non_null(j);
    pool_run(NULL, 10, visit, j);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(j->visits[i], 1);
        assert_int_equal(j->thread_of[i], 0);
    }
    assert_int_equal(pool_threads(NULL), 1);
    pool_free(NULL);
    free(j);
}

/* Runs in which each depends on the results of the one before: a lost or late range would show in the sum. */
static void advance(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    uint64_t *const values = arg;
    for (size_t i = begin; i < end; i++) {
        values[64 + i] = values[63 - i] + 1;
    }
}

static void many_short_runs_follow_one_another(void **state)
{
    (void)state;
    pool *p;
    assert_int_equal(pool_new(4, &p, NULL), DI_OK);
    uint64_t values[128] = {0};
    for (uint64_t step = 1; step <= 20000; step++) {
        pool_run(p, 64, advance, values);
        for (size_t i = 0; i < 64; i++) {
            if (values[64 + i] != step) {
                fail_msg("step %d, item %zu", (int)step, i);
            }
            values[63 - i] = values[64 + i];
        }
    }
    pool_free(p);
}

static void runs_work_after_the_workers_fell_asleep(void **state)
{
    (void)state;
    pool *p;
    assert_int_equal(pool_new(3, &p, NULL), DI_OK);
    job *const j = calloc(1, sizeof *j);
    assert_non_null(j);
    for (int round = 1; round <= 20; round++) {
        wait_until_workers_sleep();
        pool_run(p, MAX_ITEMS, visit, j);
        for (size_t i = 0; i < MAX_ITEMS; i++) {
            assert_int_equal(j->visits[i], round);
        }
    }
    free(j);
    pool_free(p);
}

/* A worker that goes on only when the caller sleeps for it. (The caller may run the range itself; then there is nothing to wait for.) */
static void slow_range(void *arg, size_t begin, size_t end, int thread)
{
    char caller[16];
    snprintf(caller, sizeof caller, "%d", (int)getpid());
    while (gettid() != getpid() && !thread_sleeps(caller)) {
        sched_yield();
    }
    visit(arg, begin, end, thread);
}

static void the_caller_waits_for_a_slow_worker(void **state)
{
    (void)state;
    pool *p;
    assert_int_equal(pool_new(2, &p, NULL), DI_OK);
    job *const j = calloc(1, sizeof *j);
    assert_non_null(j);
    for (int round = 1; round <= 5; round++) {
        pool_run(p, 2, slow_range, j);
        assert_int_equal(j->visits[1], round);
    }
    free(j);
    pool_free(p);
}

/* Sixteen threads on few processors: most ranges are finished by whoever comes first, each exactly once. */
static void ranges_that_no_worker_started_are_finished_by_the_caller(void **state)
{
    (void)state;
    pool *p;
    job *const j = malloc(sizeof *j);
    assert_non_null(j);
    assert_int_equal(pool_new(16, &p, NULL), DI_OK);
    for (int round = 0; round < 2000; round++) {
        memset(j, 0, sizeof *j);
        pool_run(p, 64, visit, j);
        for (int i = 0; i < 64; i++) {
            assert_int_equal(j->visits[i], 1);
            assert_int_equal(j->thread_of[i], i / 4);
        }
    }
    pool_free(p);
    free(j);
}

/* A thread that sleeps in the kernel uses none: the wait ends only when all of them do. */
static void an_idle_pool_goes_to_sleep(void **state)
{
    (void)state;
    pool *p;
    job *const j = calloc(1, sizeof *j);
    assert_non_null(j);
    assert_int_equal(pool_new(4, &p, NULL), DI_OK);
    wait_until_workers_sleep();
    pool_run(p, 64, visit, j);
    wait_until_workers_sleep();
    pool_free(p);
    free(j);
}

static void bad_thread_counts_are_refused(void **state)
{
    (void)state;
    pool *p = NULL;
    di_error err;
    unit_expect_error(pool_new(-1, &p, &err), DI_E_ARGUMENT, &err, "-1 threads", NULL);
    unit_expect_error(pool_new(1025, &p, &err), DI_E_ARGUMENT, &err, "1..1024", NULL);
    assert_null(p);
    assert_int_equal(pool_new(0, &p, &err), DI_OK);
    assert_true(pool_threads(p) >= 1);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once_in_contiguous_ranges),
        cmocka_unit_test(no_pool_means_the_caller_alone),
        cmocka_unit_test(many_short_runs_follow_one_another),
        cmocka_unit_test(runs_work_after_the_workers_fell_asleep),
        cmocka_unit_test(the_caller_waits_for_a_slow_worker),
        cmocka_unit_test(ranges_that_no_worker_started_are_finished_by_the_caller),
        cmocka_unit_test(an_idle_pool_goes_to_sleep),
        cmocka_unit_test(bad_thread_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
