/* rec_reply_events.c - the queue of events (rec_reply_int.h): finished server-sent-event frames in one buffer, so that a server
 * writes them as they are; an event alone is a slice of its frame.
 *
 * A frame is "event: NAME\n" (not for Chat), "data: JSON\n\n". The first of the two newlines becomes the NUL that ends an event
 * which is taken alone. */
#include "recipe/rec_reply_int.h"

#include <stdlib.h>

/* ---- small writers ---- */

void rec_put_int(buf *out, int64_t value)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (value < 0) {
        digits[--at] = '-';
    }
    buf_append(out, digits + at, sizeof digits - at);
}

void rec_put_any(buf *out, const char *text)
{
    buf_json_string(out, text, strlen(text));
}

void rec_put_inside(buf *out, const char *text)
{
    const size_t at = out->size;
    rec_put_any(out, text);
    if (!out->failed) {
        memmove(out->data + at, out->data + at + 1, out->size - at - 2);
        out->size -= 2;
        out->data[out->size] = '\0';
    }
}

void rec_put_error(di_protocol protocol, int http_status, const char *message, buf *out)
{
    char small[1024];
    const size_t n = di_recipe_error_body(protocol, http_status, message, small, sizeof small);
    if (n < sizeof small) {
        out->failed |= n == 0;
        buf_append(out, small, n);
        return;
    }
    char *const large = malloc(n + 1);
    if (large == NULL || di_recipe_error_body(protocol, http_status, message, large, n + 1) != n) {
        out->failed = true;
    } else {
        buf_append(out, large, n);
    }
    free(large);
}

void rec_put_buf(buf *out, const buf *text)
{
    rec_json_string(out, text->data != NULL ? text->data : "", text->size);
}

/* ---- queue ---- */

static void put_prefix(buf *out, const char *name)
{
    if (name != NULL) {
        buf_puts(out, "event: ");
        buf_puts(out, name);
        buf_append(out, "\n", 1);
    }
    buf_append(out, "data: ", 6);
}

/* Ends a frame whose data begins at `at`. */
static void add_event(rec_queue *q, const char *name, size_t at)
{
    if (q->n == q->capacity) {
        const size_t wanted = q->capacity != 0 ? 2 * q->capacity : 16;
        rec_event *const larger = wanted <= SIZE_MAX / sizeof *larger ? realloc(q->events, wanted * sizeof *larger) : NULL;
        if (larger == NULL) {
            q->frames.failed = true;
            return;
        }
        q->events = larger;
        q->capacity = wanted;
    }
    q->events[q->n++] = (rec_event){.name = name, .at = at, .size = q->frames.size - at};
    buf_append(&q->frames, "\n\n", 2);
}

buf *rec_event_begin(di_reply *reply, const char *name)
{
    rec_queue *const q = &reply->queue;
    q->growing = NULL;
    put_prefix(&q->frames, name);
    q->begun = q->frames.size;
    return &q->frames;
}

void rec_event_end(di_reply *reply, const char *name)
{
    add_event(&reply->queue, name, reply->queue.begun);
}

void rec_queue_clear(rec_queue *q)
{
    buf_clear(&q->frames);
    q->n = q->next = 0;
    q->growing = NULL;
}

/* Moves the rest to the front when it is the smaller half, so that a caller who always leaves something costs no more. */
void rec_queue_trim(rec_queue *q)
{
    if (q->next == q->n) {
        rec_queue_clear(q);
        return;
    }
    const rec_event *const last_taken = q->next != 0 ? &q->events[q->next - 1] : NULL;
    const size_t taken = last_taken != NULL ? last_taken->at + last_taken->size + 2 : 0;
    if (taken <= q->frames.size / 2) {
        return;
    }
    memmove(q->frames.data, q->frames.data + taken, q->frames.size - taken + 1);
    q->frames.size -= taken;
    q->n -= q->next;
    for (size_t i = 0; i < q->n; i++) {
        q->events[i] = q->events[i + q->next];
        q->events[i].at -= taken;
    }
    q->next = 0;
    q->quote_at -= taken;
}

void rec_queue_fini(rec_queue *q)
{
    buf_fini(&q->frames);
    free(q->events);
}

/* ---- text ---- */

void rec_delta_begin(rec_delta *d, const char *name)
{
    buf_clear(&d->head);
    buf_clear(&d->tail);
    d->name = name;
    d->no_logprobs = 0;
    d->numbered = false;
    put_prefix(&d->head, name);
    d->data_at = d->head.size;
}

static void put_tail(const rec_delta *d, rec_str logprobs, int64_t number, buf *out)
{
    if (logprobs.size == 0 || d->no_logprobs == 0) {
        buf_append(out, d->tail.data, d->tail.size);
    } else {
        const size_t behind = d->logprobs_at + d->no_logprobs;
        buf_append(out, d->tail.data, d->logprobs_at);
        buf_puts(out, d->around[0]);
        buf_append(out, logprobs.data, logprobs.size);
        buf_puts(out, d->around[1]);
        buf_append(out, d->tail.data + behind, d->tail.size - behind);
    }
    if (d->numbered) {
        rec_put_int(out, number);
        buf_append(out, "}", 1);
    }
}

/* The text goes between what the last event holds and its closing quote. */
static void grow_last(rec_queue *q, const rec_delta *d, const char *text, size_t size)
{
    buf *const out = &q->frames;
    rec_event *const last = &q->events[q->n - 1];
    const size_t quote = q->quote_at;
    out->size = quote;
    rec_json_string(out, text, size);
    if (out->failed) {
        return;
    }
    memmove(out->data + quote, out->data + quote + 1, out->size - quote - 1);
    out->size--;
    q->quote_at = out->size - 1;
    put_tail(d, REC_STR(""), q->number, out);
    last->size = out->size - last->at;
    buf_append(out, "\n\n", 2);
}

void rec_delta_put(di_reply *reply, rec_reply_choice *choice, const char *text, size_t size, rec_str logprobs)
{
    rec_queue *const q = &reply->queue;
    const rec_delta *const d = &choice->delta;
    const bool shown = logprobs.size != 0 && d->no_logprobs != 0;
    if (q->growing == choice && q->next < q->n && !shown) {
        grow_last(q, d, text, size);
        return;
    }
    const size_t at = q->frames.size + d->data_at;
    const int64_t number = reply->sequence;
    reply->sequence += d->numbered ? 1 : 0;
    buf_append(&q->frames, d->head.data, d->head.size);
    rec_json_string(&q->frames, text, size);
    const size_t quote = q->frames.size - 1;
    put_tail(d, logprobs, number, &q->frames);
    add_event(q, d->name, at);
    q->growing = shown ? NULL : choice;
    q->quote_at = quote;
    q->number = number;
}
