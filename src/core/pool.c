/* pool.c - see pool.h. Batches of tiny stages follow one another within microseconds, so both sides first spin for a moment
 * and only then sleep in the kernel (futex): an idle pool costs nothing, a busy one never pays a wake-up.
 *
 * Protocol. The caller writes the job, sets `pending`, then advances `generation`; a worker that sees a new generation claims its
 * range, runs it and counts `pending` down. The caller, done with its own range, claims those that no worker has started: a
 * worker that the system keeps from running costs nothing. Ranges stay what they are, whoever runs them.
 * Each side announces that it is about to sleep (`sleepers`, `caller_sleeps`) before it looks at the word a last time, and the
 * other side changes the word before it looks at the announcement. With sequentially consistent accesses at least one of the two
 * sees the other, so no wake-up is lost. */
#include "core/pool.h"

#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_THREADS 1024
#define SPIN_NS 300000
#define PAUSES_A_LOOK 16

typedef struct worker {
    pool *owner;
    pthread_t thread;
    int index;
    _Alignas(64) _Atomic uint32_t claimed; /* generation whose range was taken last */
} worker;

struct pool {
    int n_threads;
    int n_started;
    int64_t spin_ns; /* 0 when there are more threads than processors: spinning would keep the others from running */
    worker *workers; /* n_threads - 1 */

    pool_fn fn; /* the job: written by the caller before `generation` moves */
    void *arg;
    size_t n;

    _Alignas(64) _Atomic uint32_t generation;
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    _Alignas(64) _Atomic uint32_t pending;
    _Atomic uint32_t caller_sleeps;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void pause_briefly(void)
{
    for (int i = 0; i < PAUSES_A_LOOK; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ __volatile__("yield");
#endif
    }
}

/* Spins until *word differs from `old` or the time is up; returns the value seen last. */
static uint32_t spin_while(_Atomic uint32_t *word, uint32_t old, int64_t spin_ns)
{
    uint32_t now = atomic_load(word);
    if (now != old || spin_ns == 0) {
        return now;
    }
    const int64_t end = clock_now_ns() + spin_ns;
    do {
        pause_briefly();
        now = atomic_load(word);
    } while (now == old && clock_now_ns() < end);
    return now;
}

/* The first n % threads ranges are one item longer than the others. */
static void run_range(const pool *p, int thread)
{
    const size_t threads = (size_t)p->n_threads;
    const size_t t = (size_t)thread;
    const size_t share = p->n / threads;
    const size_t longer = p->n % threads;
    const size_t begin = t * share + (t < longer ? t : longer);
    const size_t end = begin + share + (t < longer ? 1 : 0);
    if (begin < end) {
        p->fn(p->arg, begin, end, thread);
    }
}

/* Takes the range of w in this generation; false when it was taken before. */
static bool claim(worker *w, uint32_t generation)
{
    uint32_t before = generation - 1;
    return atomic_compare_exchange_strong(&w->claimed, &before, generation);
}

static uint32_t wait_for_generation(pool *p, uint32_t seen)
{
    uint32_t now = spin_while(&p->generation, seen, p->spin_ns);
    if (now != seen) {
        return now;
    }
    atomic_fetch_add(&p->sleepers, 1);
    while ((now = atomic_load(&p->generation)) == seen) {
        futex_wait(&p->generation, seen);
    }
    atomic_fetch_sub(&p->sleepers, 1);
    return now;
}

static void *worker_main(void *arg)
{
    worker *const w = arg;
    pool *const p = w->owner;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_for_generation(p, seen);
        if (atomic_load(&p->stop)) {
            return NULL;
        }
        if (!claim(w, seen)) {
            continue;
        }
        run_range(p, w->index);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->caller_sleeps) != 0) {
            futex_wake(&p->pending);
        }
    }
}

static void run_unstarted(pool *p)
{
    const uint32_t generation = atomic_load(&p->generation);
    for (int i = 0; i < p->n_threads - 1; i++) {
        if (claim(&p->workers[i], generation)) {
            run_range(p, i + 1);
            atomic_fetch_sub(&p->pending, 1);
        }
    }
}

static void wait_for_workers(pool *p)
{
    const int64_t end = p->spin_ns == 0 ? 0 : clock_now_ns() + p->spin_ns;
    while (atomic_load(&p->pending) != 0 && p->spin_ns != 0 && clock_now_ns() < end) {
        pause_briefly();
    }
    if (atomic_load(&p->pending) == 0) {
        return;
    }
    atomic_store(&p->caller_sleeps, 1);
    uint32_t left;
    while ((left = atomic_load(&p->pending)) != 0) {
        futex_wait(&p->pending, left);
    }
    atomic_store(&p->caller_sleeps, 0);
}

static void announce(pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers) != 0) {
        futex_wake(&p->generation);
    }
}

static int available_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        const int n = CPU_COUNT(&set);
        return n < MAX_THREADS ? n : MAX_THREADS;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online < MAX_THREADS ? (int)online : MAX_THREADS;
}

di_status pool_new(int n_threads, pool **out, di_error *err)
{
    if (n_threads < 0 || n_threads > MAX_THREADS) {
        return err_set(err, DI_E_ARGUMENT, "%d threads: must be 0 (one for each processor) or 1..%d", n_threads, MAX_THREADS);
    }
    const int processors = available_processors();
    pool *p = aligned_alloc(_Alignof(pool), sizeof *p);
    if (p == NULL) {
        return err_memory(err, "thread pool", sizeof *p);
    }
    *p = (pool){.n_threads = n_threads != 0 ? n_threads : processors};
    p->spin_ns = p->n_threads <= processors ? SPIN_NS : 0;
    p->workers = ar_calloc_aligned((size_t)p->n_threads - 1, sizeof *p->workers, _Alignof(worker));
    if (p->workers == NULL) {
        const size_t bytes = ((size_t)p->n_threads - 1) * sizeof *p->workers;
        pool_free(p);
        return err_memory(err, "thread pool", bytes);
    }
    for (int i = 0; i < p->n_threads - 1; i++) {
        worker *const w = &p->workers[i];
        w->owner = p;
        w->index = i + 1;
        const int failed = pthread_create(&w->thread, NULL, worker_main, w);
        if (failed != 0) {
            const int wanted = p->n_threads;
            pool_free(p);
            return err_set_errno(err, failed, "cannot start thread %d of %d", i + 1, wanted);
        }
        p->n_started++;
    }
    *out = p;
    return DI_OK;
}

bool pool_pin(pool *p, const int *cpus, size_t n)
{
    bool all = n > 0;
    for (int i = 0; i < p->n_started && n > 0; i++) {
        const int cpu = cpus[(size_t)(i + 1) % n];
        cpu_set_t set;
        CPU_ZERO(&set);
        if (cpu >= 0 && cpu < CPU_SETSIZE) {
            CPU_SET((size_t)cpu, &set);
        }
        all = pthread_setaffinity_np(p->workers[i].thread, sizeof set, &set) == 0 && all; /* an empty set is refused */
    }
    return all;
}

void pool_free(pool *p)
{
    if (p == NULL) {
        return;
    }
    atomic_store(&p->stop, true);
    announce(p);
    for (int i = 0; i < p->n_started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    free(p->workers);
    free(p);
}

int pool_threads(const pool *p)
{
    return p == NULL ? 1 : p->n_threads;
}

void pool_run(pool *p, size_t n, pool_fn fn, void *arg)
{
    if (n == 0) {
        return;
    }
    if (p == NULL || p->n_threads == 1 || n == 1) {
        fn(arg, 0, n, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    atomic_store(&p->pending, (uint32_t)p->n_threads - 1);
    announce(p);
    run_range(p, 0);
    run_unstarted(p);
    wait_for_workers(p);
}
