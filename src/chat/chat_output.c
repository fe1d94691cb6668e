/* chat_output.c - the output thread: events of the engine to tokens in writers, frames in buffers, and wake-ups.
 *
 * It takes all events that are there, works through them in order, and then makes each call that they touched public once: one lock,
 * one wake-up for each call and batch. A token costs no allocation once the buffers of its call have grown. Each token of a stream is
 * an event of its own, also when several are there together.
 *
 * A call may be over here before the engine knows: cancelled, or all its choices ended by stop strings. What still comes for it is
 * dropped; the event with `last` ends its way. */
#include "chat/chat_int.h"
#include "chat/chat_metrics.h"

typedef struct outlet {
    di_service *service;
    chat_batch batch;
    di_call *touched; /* newest first */
} outlet;

static void touch(outlet *o, di_call *c)
{
    if (!c->touched) {
        c->touched = true;
        c->next_touched = o->touched;
        o->touched = c;
    }
}

static void set_phase(di_call *c, di_call_phase phase)
{
    c->draft.phase = phase;
    c->wakes = true;
}

/* --- Ends -------------------------------------------------------------------------------------------------------------------------- */

/* The engine is told once that nobody wants more of a choice. */
static void cancel_choice(di_call *c, int32_t choice)
{
    if (!atomic_exchange(&c->choices[choice].cancel, true)) {
        chat_link_attend(&c->service->link, c);
    }
}

static void fail_call(di_call *c, chat_failure failure)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        if (!c->choices[i].done) {
            cancel_choice(c, i);
        }
    }
    chat_end_failed(c, &failure);
}

/* The writer can go on no more, which is no fault of the request. */
static void fail_writing(di_call *c, di_status status, const di_error *err)
{
    fail_call(c, status == DI_E_MEMORY ? chat_fail_status(status, err) : chat_fail(500, status, 0, err->message));
}

static bool stage(di_call *c, const char *text, size_t n)
{
    return buf_append(&c->staged, text, n);
}

static void end_answered(di_call *c)
{
    const char *body;
    size_t n;
    di_error err;
    if (!c->draft.stream) {
        di_status status = c->writer_fns->body(c->writer, &body, &n, &err);
        if (status == DI_OK && !stage(c, body, n)) {
            status = err_memory(&err, "response", n);
        }
        if (status != DI_OK) {
            fail_writing(c, status, &err);
            return;
        }
    }
    chat_end(c);
}

static chat_failure end_failure(di_call *c, di_task_end end)
{
    if (end == DI_TASK_DEADLINE && c->draft.admitted_at == 0) {
        return chat_fail(503, DI_E_LIMIT, 1, "The server is overloaded: the request waited too long for its turn.");
    }
    if (end == DI_TASK_DEADLINE) {
        return chat_fail(504, DI_E_LIMIT, 0, "The request took longer than its time limit.");
    }
    if (end == DI_TASK_FAILED && c->failure.http_status != 0) {
        const chat_failure failure = c->failure;
        c->failure = (chat_failure){.http_status = 0};
        return failure;
    }
    return chat_fail(500, DI_E_INTERNAL, 0, "The generation ended without a reason.");
}

/* --- Choices ------------------------------------------------------------------------------------------------------------------------ */

/* Frames of what the writer was just given. Of an answer in one piece nothing is taken: the writer keeps it. */
static di_status take_frames(di_call *c, di_error *err)
{
    const char *frames;
    size_t n;
    if (!c->draft.stream) {
        return DI_OK;
    }
    const di_status status = c->writer_fns->frames(c->writer, &frames, &n, err);
    return status == DI_OK && !stage(c, frames, n) ? err_memory(err, "output", n) : status;
}

static void note_finished(di_call *c, int32_t choice)
{
    const di_finish finish = c->writer_fns->finished(c->writer, choice);
    if (finish == DI_FINISH_NONE) {
        return;
    }
    c->choices[choice].done = true;
    c->draft.finish = finish;
    if (++c->n_finished == c->n_choices) {
        end_answered(c);
    }
}

/* Behind a push or a finish. */
static void settle(di_call *c, int32_t choice, di_status status, di_error *err)
{
    if (status == DI_OK) {
        status = take_frames(c, err);
    }
    if (status != DI_OK) {
        fail_writing(c, status, err);
        return;
    }
    note_finished(c, choice);
}

static void note_token(di_call *c, chat_choice *choice, int64_t at)
{
    chat_metrics_token(c->service->metrics, choice->last_token_at != 0 ? at - choice->last_token_at : -1);
    choice->last_token_at = at;
    if (c->draft.first_token_at == 0) {
        c->draft.first_token_at = at;
        set_phase(c, DI_CALL_DECODE);
        chat_metrics_first(c->service->metrics, c);
    }
}

static void push_token(outlet *o, const chat_event *e)
{
    di_call *const c = e->call;
    const di_token_logprobs token = {
        .id = e->id,
        .logprob = e->logprob,
        .n_top = e->n_top,
        .top = e->n_top > 0 ? o->batch.tops + e->first_top : NULL,
    };
    di_error err;
    const di_status status = c->writer_fns->push(c->writer, e->choice, &token, c->logprobs, &err);
    settle(c, e->choice, status, &err);
}

static void on_token(outlet *o, const chat_event *e)
{
    di_call *const c = e->call;
    note_token(c, &c->choices[e->choice], e->at);
    if (!e->is_stop && !c->choices[e->choice].done) {
        push_token(o, e);
    }
    if (c->choices[e->choice].done && e->end == DI_TASK_RUNNING) {
        cancel_choice(c, e->choice); /* a stop string */
    }
}

static void on_end(di_call *c, const chat_event *e)
{
    di_error err;
    di_status status;
    if (c->ended || c->choices[e->choice].done) {
        return;
    }
    switch ((di_task_end)e->end) {
    case DI_TASK_STOP:
    case DI_TASK_LENGTH:
        status = c->writer_fns->finish(c->writer, e->choice, e->end == DI_TASK_STOP ? DI_FINISH_STOP : DI_FINISH_LENGTH, &err);
        settle(c, e->choice, status, &err);
        return;
    default:
        break;
    }
    fail_call(c, end_failure(c, (di_task_end)e->end));
}

/* --- Calls ---------------------------------------------------------------------------------------------------------------------------- */

static void on_queued(di_call *c, const chat_event *e)
{
    c->draft.queued_at = e->at;
    set_phase(c, DI_CALL_QUEUED);
    if (c->stream) {
        c->draft.http_status = 200;
        c->draft.stream = true;
    }
}

static void on_admitted(di_call *c, const chat_event *e)
{
    di_error err;
    if (c->draft.admitted_at == 0) {
        c->draft.admitted_at = e->at;
        set_phase(c, DI_CALL_PREFILL);
    }
    chat_metrics_admitted(c->service->metrics, e->cached);
    di_status status = c->writer_fns->ready(c->writer, (int64_t)c->tasks[e->choice].n_prompt, e->cached, &err);
    if (status == DI_OK) {
        status = take_frames(c, &err);
    }
    if (status != DI_OK) {
        fail_writing(c, status, &err);
    }
}

static void handle(outlet *o, const chat_event *e)
{
    di_call *const c = e->call;
    touch(o, c);
    if (!c->ended && chat_call_cancelled(c) != CHAT_NOT_CANCELLED) {
        chat_end_cancelled(c);
    }
    if (c->ended) {
        return;
    }
    switch ((chat_event_kind)e->kind) {
    case CHAT_QUEUED:
        on_queued(c, e);
        break;
    case CHAT_REFUSED:
        chat_end_failed(c, &c->failure);
        break;
    case CHAT_ADMITTED:
        on_admitted(c, e);
        break;
    case CHAT_TOKEN:
        on_token(o, e);
        if (e->end != DI_TASK_RUNNING) {
            on_end(c, e);
        }
        break;
    case CHAT_ENDED:
        on_end(c, e);
        break;
    }
}

/* What could not be made public is dropped, and the call ends. */
static void publish(di_call *c)
{
    c->writer_fns->usage(c->writer, &c->draft.usage);
    const chat_published result = chat_publish(c);
    if (result == CHAT_PUBLISHED) {
        return;
    }
    if (result == CHAT_TOO_MUCH) {
        chat_metrics_unread(c->service->metrics);
        chat_call_cancel(c, CHAT_CANCEL_UNREAD);
        chat_end_cancelled(c);
    } else if (!c->ended) {
        fail_writing(c, DI_E_MEMORY, NULL);
        buf_clear(&c->staged);
    } else {
        c->draft.error = DI_E_MEMORY;
        c->draft.http_status = c->draft.stream ? 200 : 503;
    }
    (void)chat_publish(c);
}

static void flush(outlet *o)
{
    for (di_call *c = o->touched; c != NULL;) {
        di_call *const next = c->next_touched;
        c->touched = false;
        if (!c->is_public) {
            publish(c);
            c->is_public = c->ended;
        }
        if (c->is_left) {
            atomic_fetch_sub(&o->service->n_flushing, 1);
            chat_leave(c);
        }
        c = next;
    }
    o->touched = NULL;
}

static void *output_main(void *arg)
{
    outlet o = {.service = arg};
    while (chat_link_take(&o.service->link, &o.batch)) {
        for (size_t i = 0; i < o.batch.n; i++) {
            handle(&o, &o.batch.events[i]);
            o.batch.events[i].call->is_left |= o.batch.events[i].last;
        }
        for (di_call *c = o.batch.lost; c != NULL; c = c->next_lost) {
            touch(&o, c);
            c->is_left = true;
            if (!c->ended) {
                chat_end_failed(c, &c->failure);
            }
        }
        flush(&o);
    }
    free(o.batch.events);
    free(o.batch.tops);
    return NULL;
}

di_status chat_output_start(di_service *s, di_error *err)
{
    const int failed = pthread_create(&s->output.thread, NULL, output_main, s);
    if (failed != 0) {
        return err_set_errno(err, failed, "cannot start the output thread");
    }
    s->output.started = true;
    return DI_OK;
}

void chat_output_stop(di_service *s)
{
    if (s->output.started) {
        chat_link_stop_output(&s->link);
        pthread_join(s->output.thread, NULL);
        s->output.started = false;
    }
}
