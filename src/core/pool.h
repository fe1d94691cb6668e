/* pool.h - a fixed set of worker threads and a static partition of loops over them.
 *
 * pool_run splits [0, n) into one contiguous range a thread, a function of n and the thread count only. The caller works
 * as thread 0. Results must not depend on the partition: every item writes its own outputs.
 * One run at a time: the pool belongs to the thread that calls pool_run (one executor a device). */
#ifndef CORE_POOL_H
#define CORE_POOL_H

#include <deepinfer/base.h>

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, size_t begin, size_t end, int thread);

/* n_threads 1..1024; 0 = one for each CPU this process may run on. */
di_status pool_new(int n_threads, pool **out, di_error *err);
void pool_free(pool *p);
int pool_threads(const pool *p);

/* From now on worker i = 1 .. threads - 1 runs on processor cpus[i % n] alone. cpus[0] is left for whoever calls pool_run, which is not the
 * pool's to bind: threads that it makes would be bound with it. False when the system does not let one of the workers. */
bool pool_pin(pool *p, const int *cpus, size_t n);

/* Calls fn on every non-empty range and returns when all are done. pool == NULL runs fn(arg, 0, n, 0). */
void pool_run(pool *p, size_t n, pool_fn fn, void *arg);

#endif
