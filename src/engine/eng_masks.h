/* eng_masks.h - helper threads that make the masks of a pass while it runs (eng_grammar.h).
 *
 * A job is one choice and the drafts of its rows. The executor takes part when it comes to its sampling and finds jobs left, so that
 * one never waits for a helper that has not begun.
 *
 * Owner: the scheduler. eng_masks_submit is for its thread, eng_masks_wait for the executor. */
#ifndef ENGINE_ENG_MASKS_H
#define ENGINE_ENG_MASKS_H

#include "engine/eng_grammar.h"

#include <pthread.h>

#define ENG_MASK_THREADS 4

typedef struct eng_mask_job {
    eng_constraint *constraint;
    const int32_t *drafts; /* [n] of the pass */
    int32_t n;
} eng_mask_job;

/* The jobs of one pass. Both counts are what was done when eng_masks_wait has returned. */
typedef struct eng_mask_list {
    eng_mask_job *jobs; /* [n] */
    int32_t n;
    int64_t n_masks;
    int64_t busy_ns;    /* of all threads */
    int64_t wait_ns;    /* of the executor, its part of the work included */
} eng_mask_list;

typedef struct eng_masks {
    pthread_t threads[ENG_MASK_THREADS];
    int32_t n_threads;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    eng_mask_list *list; /* guarded, as is what follows; NULL = nothing to do */
    int32_t next;        /* job that nobody has taken */
    int32_t n_done;
    bool quit;
} eng_masks;

/* With 0 threads the executor does all. Errors: DI_E_IO. eng_masks_stop is called in any case. */
di_status eng_masks_start(eng_masks *m, int32_t n_threads, di_error *err);
void eng_masks_stop(eng_masks *m);

/* The list stays until it was awaited. */
void eng_masks_submit(eng_masks *m, eng_mask_list *list);
void eng_masks_wait(eng_masks *m, eng_mask_list *list);

#endif
