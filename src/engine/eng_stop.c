/* eng_stop.c - see eng_stop.h. */
#include "engine/eng_stop.h"

#include "core/arith.h"
#include "core/err.h"

#include <string.h>

typedef struct pattern {
    char *text; /* [size] */
    size_t size;
    uint16_t *border; /* [size] border[i]: longest proper prefix of text[0..i] that also ends there */
    size_t state;     /* how many bytes of it the text seen so far ends with; < size */
} pattern;

struct eng_stop {
    pattern patterns[ENG_STOP_MAX_STRINGS];
    size_t n;
    int matched;
};

/* State after byte c. May return p->size: the string is complete. */
static size_t next_state(const pattern *p, size_t state, char c)
{
    while (state > 0 && p->text[state] != c) {
        state = p->border[state - 1];
    }
    return p->text[state] == c ? state + 1 : 0;
}

static di_status pattern_init(pattern *p, const char *text, size_t size, di_error *err)
{
    p->text = ar_calloc(size, 1);
    p->border = ar_calloc(size, sizeof *p->border);
    if (p->text == NULL || p->border == NULL) {
        return err_memory(err, "stop string", size * (1 + sizeof *p->border));
    }
    memcpy(p->text, text, size);
    p->size = size;
    for (size_t i = 1; i < size; i++) {
        p->border[i] = (uint16_t)next_state(p, p->border[i - 1], text[i]);
    }
    return DI_OK;
}

di_status eng_stop_new(const char *const *strings, const size_t *sizes, size_t n, eng_stop **out, di_error *err)
{
    if (n > ENG_STOP_MAX_STRINGS) {
        return err_set(err, DI_E_ARGUMENT, "%zu stop strings, must be at most %d", n, ENG_STOP_MAX_STRINGS);
    }
    eng_stop *stop = ar_calloc(1, sizeof *stop);
    if (stop == NULL) {
        return err_memory(err, "stop strings", sizeof *stop);
    }
    di_status status = DI_OK;
    stop->matched = -1;
    stop->n = n;
    for (size_t i = 0; i < n; i++) {
        if (sizes[i] < 1 || sizes[i] > ENG_STOP_MAX_BYTES) {
            status = err_set(err, DI_E_ARGUMENT, "stop string %zu has %zu bytes, must be from 1 to %d", i, sizes[i],
                             ENG_STOP_MAX_BYTES);
            goto out;
        }
        status = pattern_init(&stop->patterns[i], strings[i], sizes[i], err);
        if (status != DI_OK) {
            goto out;
        }
    }
    *out = stop;
    stop = NULL;
out:
    eng_stop_free(stop);
    return status;
}

void eng_stop_free(eng_stop *stop)
{
    if (stop == NULL) {
        return;
    }
    for (size_t i = 0; i < stop->n; i++) {
        free(stop->patterns[i].text);
        free(stop->patterns[i].border);
    }
    free(stop);
}

/* The pattern of which most has been seen; what is held back is that much of its beginning. NULL when there are none. */
static const pattern *longest_held(const eng_stop *stop)
{
    const pattern *best = NULL;
    for (size_t i = 0; i < stop->n; i++) {
        if (best == NULL || stop->patterns[i].state > best->state) {
            best = &stop->patterns[i];
        }
    }
    return best;
}

/* Takes one byte; returns the size of the stop string it completes, else 0. */
static size_t take_byte(eng_stop *stop, char c)
{
    size_t complete = 0;
    for (size_t i = 0; i < stop->n; i++) {
        pattern *p = &stop->patterns[i];
        p->state = next_state(p, p->state, c);
        if (p->state == p->size && p->size > complete) {
            complete = p->size;
            stop->matched = (int)i;
        }
    }
    return complete;
}

static di_status append(buf *out, const char *text, size_t size, di_error *err)
{
    if (size > 0 && !buf_append(out, text, size)) {
        return err_set(err, DI_E_LIMIT, "output buffer takes no %zu bytes more", size);
    }
    return DI_OK;
}

di_status eng_stop_push(eng_stop *stop, const char *text, size_t size, buf *out, di_error *err)
{
    if (stop->matched >= 0) {
        return DI_OK;
    }
    const pattern *old = longest_held(stop);
    const size_t n_old = old != NULL ? old->state : 0;
    size_t taken = 0;
    size_t complete = 0;
    while (taken < size && complete == 0) {
        complete = take_byte(stop, text[taken++]);
    }
    const size_t keep = complete > 0 ? complete : eng_stop_held_bytes(stop);
    /* Free to go: the first n_free bytes of (old held back text, taken text). */
    const size_t n_free = n_old + taken - keep;
    const size_t from_old = n_free < n_old ? n_free : n_old;
    di_status status = DI_OK;
    if (from_old > 0) {
        status = append(out, old->text, from_old, err);
    }
    return status == DI_OK ? append(out, text, n_free - from_old, err) : status;
}

di_status eng_stop_flush(eng_stop *stop, buf *out, di_error *err)
{
    if (stop->matched >= 0) {
        return DI_OK;
    }
    const pattern *held = longest_held(stop);
    const size_t n = held != NULL ? held->state : 0;
    for (size_t i = 0; i < stop->n; i++) {
        stop->patterns[i].state = 0;
    }
    return n > 0 ? append(out, held->text, n, err) : DI_OK;
}

int eng_stop_matched(const eng_stop *stop)
{
    return stop->matched;
}

size_t eng_stop_held_bytes(const eng_stop *stop)
{
    const pattern *held = longest_held(stop);
    return stop->matched < 0 && held != NULL ? held->state : 0;
}

void eng_stop_reset(eng_stop *stop)
{
    stop->matched = -1;
    for (size_t i = 0; i < stop->n; i++) {
        stop->patterns[i].state = 0;
    }
}
