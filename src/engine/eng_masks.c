/* eng_masks.c - see eng_masks.h. */
#include "engine/eng_masks.h"

#include "core/clock.h"
#include "core/err.h"

/* Takes jobs of the list until none is left. The mutex is held, but not while one is done. */
static void work(eng_masks *m)
{
    eng_mask_list *const list = m->list;
    while (m->next < list->n) {
        const eng_mask_job *const job = &list->jobs[m->next++];
        pthread_mutex_unlock(&m->mutex);
        const int64_t began = clock_now_ns();
        const int32_t n_masks = eng_constraint_prepare(job->constraint, job->drafts, job->n);
        const int64_t took = clock_now_ns() - began;
        pthread_mutex_lock(&m->mutex);
        list->n_masks += n_masks;
        list->busy_ns += took;
        if (++m->n_done == list->n) {
            pthread_cond_broadcast(&m->changed);
        }
    }
}

static void *helper_main(void *arg)
{
    eng_masks *const m = arg;
    pthread_mutex_lock(&m->mutex);
    while (!m->quit) {
        if (m->list != NULL && m->next < m->list->n) {
            work(m);
        } else {
            pthread_cond_wait(&m->changed, &m->mutex);
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

di_status eng_masks_start(eng_masks *m, int32_t n_threads, di_error *err)
{
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->changed, NULL);
    for (int32_t i = 0; i < n_threads && i < ENG_MASK_THREADS; i++) {
        const int failed = pthread_create(&m->threads[i], NULL, helper_main, m);
        if (failed != 0) {
            return err_set_errno(err, failed, "thread for masks");
        }
        m->n_threads++;
    }
    return DI_OK;
}

void eng_masks_stop(eng_masks *m)
{
    pthread_mutex_lock(&m->mutex);
    m->quit = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    for (int32_t i = 0; i < m->n_threads; i++) {
        pthread_join(m->threads[i], NULL);
    }
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
}

void eng_masks_submit(eng_masks *m, eng_mask_list *list)
{
    list->n_masks = 0;
    list->busy_ns = 0;
    list->wait_ns = 0;
    if (list->n == 0) {
        return;
    }
    pthread_mutex_lock(&m->mutex);
    m->list = list;
    m->next = 0;
    m->n_done = 0;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
}

void eng_masks_wait(eng_masks *m, eng_mask_list *list)
{
    if (list->n == 0) {
        return;
    }
    const int64_t began = clock_now_ns();
    pthread_mutex_lock(&m->mutex);
    work(m);
    while (m->n_done < list->n) {
        pthread_cond_wait(&m->changed, &m->mutex);
    }
    m->list = NULL;
    list->wait_ns = clock_now_ns() - began;
    pthread_mutex_unlock(&m->mutex);
}
