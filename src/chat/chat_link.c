/* chat_link.c - what goes between the engine thread and the others: commands to it, events from it, under one mutex.
 *
 * The engine thread takes the mutex twice a step and is woken once; whoever listens to it takes all that is there. Commands and
 * cancellations are lists through the calls themselves and need no memory. Events lie in a batch that two sides swap.
 *
 * Bound of the batch: while more than CHAT_EVENTS_AHEAD wait, the engine pauses, so there are never more than that and one step's. This
 * waits for the processor time of the output thread alone: that one never waits for a client, whose unread output is bounded by
 * itself (chat_call.c). When a batch cannot grow, the event is lost and its call fails (chat_link_lose), for which nothing is needed. */
#include "chat/chat_int.h"

#include <time.h>

void chat_link_init(chat_link *l)
{
    pthread_condattr_t monotonic;
    memset(l, 0, sizeof *l);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->to_engine, &monotonic);
    pthread_cond_init(&l->to_output, NULL);
    pthread_condattr_destroy(&monotonic);
}

void chat_link_fini(chat_link *l)
{
    pthread_cond_destroy(&l->to_engine);
    pthread_cond_destroy(&l->to_output);
    pthread_mutex_destroy(&l->mutex);
    free(l->batch.events);
    free(l->batch.tops);
}

/* --- To the engine ---------------------------------------------------------------------------------------------------------------- */

static void wake_engine_locked(chat_link *l)
{
    if (l->engine_waits) {
        pthread_cond_signal(&l->to_engine);
    }
}

void chat_link_command(chat_link *l, chat_command *command)
{
    command->next = NULL;
    pthread_mutex_lock(&l->mutex);
    if (l->last != NULL) {
        l->last->next = command;
    } else {
        l->first = command;
    }
    l->last = command;
    wake_engine_locked(l);
    pthread_mutex_unlock(&l->mutex);
}

void chat_link_attend(chat_link *l, di_call *c)
{
    pthread_mutex_lock(&l->mutex);
    if (!c->in_attention) {
        chat_call_get(c);
        c->in_attention = true;
        c->next_attention = l->attention;
        l->attention = c;
        wake_engine_locked(l);
    }
    pthread_mutex_unlock(&l->mutex);
}

void chat_link_stop_engine(chat_link *l)
{
    pthread_mutex_lock(&l->mutex);
    l->engine_stops = true;
    wake_engine_locked(l);
    pthread_mutex_unlock(&l->mutex);
}

static void take_orders_locked(chat_link *l, chat_orders *out)
{
    chat_command *end = l->first;
    for (int i = 1; end != NULL && i < CHAT_COMMANDS_A_STEP; i++) {
        end = end->next;
    }
    out->commands = l->first;
    l->first = end != NULL ? end->next : NULL;
    if (l->first == NULL) {
        l->last = NULL;
    }
    if (end != NULL) {
        end->next = NULL;
    }
    out->attention = l->attention;
    l->attention = NULL;
    for (di_call *c = out->attention; c != NULL; c = c->next_attention) {
        c->in_attention = false;
    }
    out->stop = l->engine_stops;
}

static bool has_orders_locked(const chat_link *l)
{
    return l->first != NULL || l->attention != NULL || l->engine_stops;
}

void chat_link_orders(chat_link *l, bool idle, int64_t deadline, chat_orders *out)
{
    const struct timespec at = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    int late = 0;
    pthread_mutex_lock(&l->mutex);
    l->engine_waits = true;
    while (late == 0 && !has_orders_locked(l) && (idle || l->batch.n > CHAT_EVENTS_AHEAD)) {
        late = idle && deadline != 0 ? pthread_cond_timedwait(&l->to_engine, &l->mutex, &at)
                                     : pthread_cond_wait(&l->to_engine, &l->mutex);
    }
    l->engine_waits = false;
    take_orders_locked(l, out);
    pthread_mutex_unlock(&l->mutex);
}

/* --- From the engine -------------------------------------------------------------------------------------------------------------- */

void chat_link_begin(chat_link *l)
{
    pthread_mutex_lock(&l->mutex);
}

static bool reserve(void **items, size_t *capacity, size_t wanted, size_t size)
{
    if (wanted <= *capacity) {
        return true;
    }
    size_t larger = *capacity != 0 ? *capacity : 256;
    while (larger < wanted && larger <= SIZE_MAX / 2 / size) {
        larger *= 2;
    }
    void *const moved = larger >= wanted ? realloc(*items, larger * size) : NULL;
    if (moved == NULL) {
        return false;
    }
    *items = moved;
    *capacity = larger;
    return true;
}

bool chat_link_put(chat_link *l, const chat_event *event, const di_token_logprob *tops)
{
    chat_batch *const b = &l->batch;
    void *events = b->events;
    void *lists = b->tops;
    const size_t n_tops = tops != NULL ? (size_t)event->n_top : 0;
    const bool fits = reserve(&events, &b->capacity, b->n + 1, sizeof *b->events);
    b->events = events;
    if (!fits || !reserve(&lists, &b->tops_capacity, b->n_tops + n_tops, sizeof *b->tops)) {
        return false;
    }
    b->tops = lists;
    b->events[b->n] = *event;
    b->events[b->n].first_top = b->n_tops;
    b->events[b->n++].n_top = (int32_t)n_tops;
    if (n_tops > 0) {
        memcpy(b->tops + b->n_tops, tops, n_tops * sizeof *tops);
        b->n_tops += n_tops;
    }
    return true;
}

void chat_link_lose(chat_link *l, di_call *c)
{
    c->next_lost = l->batch.lost;
    l->batch.lost = c;
}

void chat_link_end(chat_link *l)
{
    if (l->output_waits) {
        pthread_cond_signal(&l->to_output);
    }
    pthread_mutex_unlock(&l->mutex);
}

/* --- To the output thread ----------------------------------------------------------------------------------------------------------- */

bool chat_link_take(chat_link *l, chat_batch *batch)
{
    pthread_mutex_lock(&l->mutex);
    l->output_waits = true;
    while (l->batch.n == 0 && l->batch.lost == NULL && !l->output_stops) {
        pthread_cond_wait(&l->to_output, &l->mutex);
    }
    l->output_waits = false;
    const bool some = l->batch.n > 0 || l->batch.lost != NULL;
    const chat_batch taken = l->batch;
    l->batch = *batch;
    l->batch.n = l->batch.n_tops = 0;
    l->batch.lost = NULL;
    *batch = taken;
    wake_engine_locked(l);
    pthread_mutex_unlock(&l->mutex);
    return some;
}

void chat_link_stop_output(chat_link *l)
{
    pthread_mutex_lock(&l->mutex);
    l->output_stops = true;
    pthread_cond_signal(&l->to_output);
    pthread_mutex_unlock(&l->mutex);
}
