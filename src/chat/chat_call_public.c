/* chat_call_public.c - what callers see of a call: di_call_*.
 *
 * A reader takes the buffer that waits for it and reads on its own, so that the output thread never waits while bytes are copied. A
 * wake-up runs under a lock of its own, which di_call_free takes too: that is how "not called once di_call_free has returned" holds. */
#include "chat/chat_int.h"

#include <errno.h>
#include <time.h>

void di_call_get(const di_call *call, di_call_info *out)
{
    di_call *const c = (di_call *)(uintptr_t)call;
    pthread_mutex_lock(&c->mutex);
    *out = c->info;
    pthread_mutex_unlock(&c->mutex);
}

const char *di_call_id(const di_call *call)
{
    return call->id;
}

const char *di_call_warnings(const di_call *call)
{
    return call->warnings;
}

size_t di_call_read(di_call *c, char *out, size_t capacity)
{
    pthread_mutex_lock(&c->mutex);
    if (c->front_at == c->front.size && c->back.size > 0) {
        const buf taken = c->back;
        c->back = c->front;
        c->front = taken;
        c->front_at = 0;
        buf_clear(&c->back);
    }
    const size_t left = c->front.size - c->front_at;
    const size_t n = left < capacity ? left : capacity;
    c->info.unread -= n;
    pthread_mutex_unlock(&c->mutex);
    if (n > 0) {
        memcpy(out, c->front.data + c->front_at, n);
        c->front_at += n;
    }
    return n;
}

static bool is_ready(const di_call *c)
{
    return c->info.unread > 0 || c->info.phase == DI_CALL_ENDED;
}

bool di_call_wait(di_call *c, int64_t timeout_ms)
{
    const int64_t until = timeout_ms > 0 ? chat_deadline(clock_now_ns(), timeout_ms) : 0;
    const struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&c->mutex);
    int failed = timeout_ms == 0 ? ETIMEDOUT : 0;
    c->n_waiters++;
    while (!is_ready(c) && failed == 0) {
        failed = until == 0 ? pthread_cond_wait(&c->changed, &c->mutex) : pthread_cond_timedwait(&c->changed, &c->mutex, &at);
    }
    c->n_waiters--;
    const bool ready = is_ready(c);
    pthread_mutex_unlock(&c->mutex);
    return ready;
}

void chat_call_cancel(di_call *c, chat_cancel reason)
{
    int expected = CHAT_NOT_CANCELLED;
    pthread_mutex_lock(&c->mutex);
    const bool ended = c->info.phase == DI_CALL_ENDED;
    pthread_mutex_unlock(&c->mutex);
    if (!ended && atomic_compare_exchange_strong(&c->cancel, &expected, reason)) {
        chat_link_attend(&c->service->link, c);
    }
}

void di_call_cancel(di_call *call)
{
    chat_call_cancel(call, CHAT_CANCEL_USER);
}

void di_call_free(di_call *call)
{
    if (call == NULL) {
        return;
    }
    pthread_mutex_lock(&call->wake_mutex);
    call->wake = NULL;
    pthread_mutex_unlock(&call->wake_mutex);
    chat_call_cancel(call, CHAT_CANCEL_USER);
    chat_call_put(call);
}
