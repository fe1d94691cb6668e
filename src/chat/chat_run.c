/* chat_run.c - di_service_run: many bodies as calls, as many at once as keeps the engine full.
 *
 * A window of calls is open at a time, so that neither memory nor places among the calls grow with the batch. Calls that have changed
 * stand in a list that their wake-ups fill, so nobody looks through the window. */
#include "chat/chat_int.h"

#include <errno.h>
#include <time.h>

#define WINDOW 512
#define TICK_NS 100000000

typedef struct batch batch;

typedef struct slot {
    batch *owner;
    struct slot *next; /* among those changed, or free */
    bool changed;      /* guarded */
    di_call *call;     /* NULL: free */
    size_t item;
    buf reply;
} slot;

struct batch {
    di_service *service;
    di_batch_item *items;
    size_t n;
    size_t n_begun;
    di_batch_progress progress;
    slot *slots;  /* [WINDOW] */
    slot *free;
    size_t n_open;
    pthread_mutex_t mutex;
    pthread_cond_t wakes;
    slot *changed; /* guarded */
};

/* Threads of the service. */
static void wake(void *user)
{
    slot *const s = user;
    batch *const b = s->owner;
    pthread_mutex_lock(&b->mutex);
    if (!s->changed) {
        s->changed = true;
        s->next = b->changed;
        b->changed = s;
        pthread_cond_signal(&b->wakes);
    }
    pthread_mutex_unlock(&b->mutex);
}

/* A slot whose call has changed; waits for one until the time has come (0 = not at all). NULL: there is none. */
static slot *take_changed(batch *b, int64_t until)
{
    const struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int late = until == 0 ? ETIMEDOUT : 0;
    pthread_mutex_lock(&b->mutex);
    while (b->changed == NULL && late == 0) {
        late = pthread_cond_timedwait(&b->wakes, &b->mutex, &at);
    }
    slot *const s = b->changed;
    if (s != NULL) {
        b->changed = s->next;
        s->changed = false;
    }
    pthread_mutex_unlock(&b->mutex);
    return s;
}

static void close_slot(batch *b, slot *s)
{
    di_call_free(s->call); /* no wake-up touches the slot any more */
    buf_fini(&s->reply);
    pthread_mutex_lock(&b->mutex);
    for (slot **at = &b->changed; s->changed && *at != NULL; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            s->changed = false;
            break;
        }
    }
    pthread_mutex_unlock(&b->mutex);
    s->call = NULL;
    s->next = b->free;
    b->free = s;
    b->n_open--;
}

/* *full: the service has no place for another call just now. */
static di_status open_slot(batch *b, bool *full, di_error *err)
{
    slot *const s = b->free;
    const di_batch_item *const item = &b->items[b->n_begun];
    const di_call_options options = {.route = item->route, .body = item->body, .n = item->n, .wake = wake, .user = s};
    s->item = b->n_begun;
    buf_init(&s->reply, SIZE_MAX);
    b->free = s->next;
    const di_status status = di_service_submit(b->service, &options, &s->call, err);
    if (status != DI_OK) {
        s->call = NULL;
        s->next = b->free;
        b->free = s;
        *full = status == DI_E_LIMIT;
        return *full ? DI_OK : status;
    }
    b->n_begun++;
    b->n_open++;
    return DI_OK;
}

static di_status read_output(slot *s, di_error *err)
{
    char part[16384];
    size_t n;
    while ((n = di_call_read(s->call, part, sizeof part)) > 0) {
        if (!buf_append(&s->reply, part, n)) {
            return err_memory(err, "reply of a batch", s->reply.size + n);
        }
    }
    return DI_OK;
}

static di_status finish_item(batch *b, slot *s, const di_call_info *info, di_error *err)
{
    di_batch_item *const item = &b->items[s->item];
    if (!buf_append(&s->reply, "", 0)) { /* the NUL of an empty one */
        return err_memory(err, "reply of a batch", 1);
    }
    item->http_status = info->http_status;
    item->reply = s->reply.data;
    item->n_reply = s->reply.size;
    s->reply.data = NULL;
    b->progress.n_done++;
    b->progress.prompt_tokens += info->usage.prompt_tokens;
    b->progress.completion_tokens += info->usage.completion_tokens;
    return DI_OK;
}

static di_status look_at(batch *b, slot *s, di_error *err)
{
    di_call_info info;
    di_call_get(s->call, &info); /* before reading: what comes later wakes again */
    di_status status = read_output(s, err);
    if (status == DI_OK && info.phase == DI_CALL_ENDED) {
        status = finish_item(b, s, &info, err);
        close_slot(b, s);
    }
    return status;
}

static di_status fill_window(batch *b, di_error *err)
{
    bool full = false;
    di_status status = DI_OK;
    while (status == DI_OK && !full && b->free != NULL && b->n_begun < b->n) {
        status = open_slot(b, &full, err);
    }
    return status;
}

/* Waits for one changed call, and takes all that are there then. */
static di_status look_at_changed(batch *b, int64_t until, di_error *err)
{
    di_status status = DI_OK;
    for (slot *s = take_changed(b, until); s != NULL && status == DI_OK; s = take_changed(b, 0)) {
        status = look_at(b, s, err);
    }
    return status;
}

static di_status run(batch *b, bool (*progress)(void *user, const di_batch_progress *progress), void *user, di_error *err)
{
    int64_t tick = clock_now_ns() + TICK_NS;
    di_status status = DI_OK;
    while (status == DI_OK && b->progress.n_done < b->n) {
        status = fill_window(b, err);
        if (status == DI_OK) {
            status = look_at_changed(b, tick, err);
        }
        if (status == DI_OK && progress != NULL && clock_now_ns() >= tick && !progress(user, &b->progress)) {
            status = err_set(err, DI_E_CANCELLED, "stopped after %zu of %zu", b->progress.n_done, b->n);
        }
        tick = clock_now_ns() >= tick ? clock_now_ns() + TICK_NS : tick;
    }
    if (status == DI_OK && progress != NULL) {
        (void)progress(user, &b->progress); /* all is done: there is nothing to stop */
    }
    return status;
}

di_status di_service_run(di_service *service, di_batch_item *items, size_t n,
                         bool (*progress)(void *user, const di_batch_progress *progress), void *user, di_error *err)
{
    batch b = {.service = service, .items = items, .n = n, .progress = {.n = n}};
    pthread_condattr_t monotonic;
    for (size_t i = 0; i < n; i++) {
        items[i].http_status = 0;
        items[i].reply = NULL;
        items[i].n_reply = 0;
    }
    b.slots = ar_calloc(WINDOW, sizeof *b.slots);
    if (b.slots == NULL) {
        return err_memory(err, "window of a batch", WINDOW * sizeof *b.slots);
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&b.mutex, NULL);
    pthread_cond_init(&b.wakes, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (size_t i = WINDOW; i-- > 0;) {
        b.slots[i] = (slot){.owner = &b, .next = b.free};
        b.free = &b.slots[i];
    }
    const di_status status = run(&b, progress, user, err);
    for (size_t i = 0; i < WINDOW; i++) {
        if (b.slots[i].call != NULL) {
            close_slot(&b, &b.slots[i]);
        }
    }
    pthread_cond_destroy(&b.wakes);
    pthread_mutex_destroy(&b.mutex);
    free(b.slots);
    return status;
}

void di_batch_fini(di_batch_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(items[i].reply);
        items[i].reply = NULL;
        items[i].n_reply = 0;
    }
}
