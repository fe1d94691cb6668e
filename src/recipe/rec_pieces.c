/* rec_pieces.c - actions to pieces: neighbours of one kind within a call are one piece, whose text is contiguous
 * in one buffer (recipe.md 4.4; where a piece is cut is free).
 *
 * Around a JSON answer each stretch of other text becomes one blank, however it arrived. String arguments are
 * escaped byte by byte (2.7), so that the escaped text does not depend on the cuts either. Log-probabilities go
 * with the first piece that shows a byte of their id (5.1). */
#include "recipe/rec_output_int.h"

#include <stdlib.h>

/* Room for one more element; doubles. */
static bool grow(void **data, size_t *capacity, size_t n, size_t size)
{
    if (n < *capacity) {
        return true;
    }
    const size_t wanted = *capacity != 0 ? 2 * *capacity : 16;
    if (wanted > SIZE_MAX / size) {
        return false;
    }
    void *const larger = realloc(*data, wanted * size);
    if (larger == NULL) {
        return false;
    }
    *data = larger;
    *capacity = wanted;
    return true;
}

/* ---- log-probabilities ---- */

bool rec_span_open(di_output *o, uint64_t position, const di_token_logprobs *logprobs)
{
    rec_logprobs *const l = &o->logprobs;
    if (!grow((void **)&l->spans, &l->spans_capacity, l->n_spans, sizeof *l->spans)) {
        return false;
    }
    const size_t top = l->n_tops;
    for (int32_t i = 0; i < logprobs->n_top; i++) {
        if (!grow((void **)&l->tops, &l->tops_capacity, l->n_tops, sizeof *l->tops)) {
            return false;
        }
        l->tops[l->n_tops++] = logprobs->top[i];
    }
    l->spans[l->n_spans++] = (rec_span){.begin = position, .end = UINT64_MAX, .id = logprobs->id,
                                        .logprob = logprobs->logprob, .top = top, .n_top = logprobs->n_top};
    return true;
}

void rec_spans_close(di_output *o, size_t n, uint64_t position)
{
    rec_logprobs *const l = &o->logprobs;
    for (size_t i = n; i > l->first && l->spans[i - 1].end == UINT64_MAX; i--) {
        l->spans[i - 1].end = position;
    }
}

/* Ids that show text before `end`, which the last piece does. */
static bool attach(di_output *o, uint64_t end)
{
    rec_logprobs *const l = &o->logprobs;
    for (size_t i = l->first; i < l->n_spans && l->spans[i].begin < end; i++) {
        rec_span *const span = &l->spans[i];
        if (span->attached || span->end <= o->assigned) {
            continue;
        }
        if (!grow((void **)&l->attached, &l->attached_capacity, l->n_attached, sizeof *l->attached)) {
            return false;
        }
        span->attached = true;
        l->attached[l->n_attached++] = i;
        o->pieces.items[o->pieces.n - 1].n_logprobs++;
    }
    return true;
}

static void pass_spans(rec_logprobs *l, uint64_t assigned)
{
    while (l->first < l->n_spans && l->spans[l->first].end <= assigned) {
        l->first++;
    }
}

bool rec_logprobs_publish(di_output *o)
{
    rec_logprobs *const l = &o->logprobs;
    for (size_t i = 0; i < l->n_attached; i++) {
        if (!grow((void **)&l->public, &l->public_capacity, i, sizeof *l->public)) {
            return false;
        }
        const rec_span *const span = &l->spans[l->attached[i]];
        l->public[i] = (di_token_logprobs){.id = span->id, .logprob = span->logprob, .n_top = span->n_top,
                                           .top = span->n_top != 0 ? l->tops + span->top : NULL};
    }
    return true;
}

/* Keeps the spans whose text is still held. */
static void clear_logprobs(rec_logprobs *l)
{
    l->n_attached = 0;
    if (l->first == 0) {
        return;
    }
    const size_t top = l->first < l->n_spans ? l->spans[l->first].top : l->n_tops;
    l->n_spans -= l->first;
    l->n_tops -= top;
    if (l->n_spans != 0) {
        memmove(l->spans, l->spans + l->first, l->n_spans * sizeof *l->spans);
    }
    if (l->n_tops != 0) {
        memmove(l->tops, l->tops + top, l->n_tops * sizeof *l->tops);
    }
    for (size_t i = 0; i < l->n_spans; i++) {
        l->spans[i].top -= top;
    }
    l->first = 0;
}

/* ---- pieces ---- */

void rec_pieces_clear(di_output *o)
{
    o->pieces.n = 0;
    o->pieces.next = 0;
    buf_clear(&o->pieces.text);
    clear_logprobs(&o->logprobs);
}

void rec_pieces_fini(di_output *o)
{
    free(o->pieces.items);
    buf_fini(&o->pieces.text);
    free(o->logprobs.spans);
    free(o->logprobs.tops);
    free(o->logprobs.attached);
    free(o->logprobs.public);
}

/* The last piece when it is of this kind, else a new one. */
static rec_piece *piece_of(di_output *o, di_piece_kind kind)
{
    rec_pieces *const p = &o->pieces;
    if (p->n != 0 && p->items[p->n - 1].kind == kind && kind != DI_PIECE_CALL) {
        return &p->items[p->n - 1];
    }
    if (!grow((void **)&p->items, &p->capacity, p->n, sizeof *p->items)) {
        return NULL;
    }
    p->items[p->n] = (rec_piece){.kind = kind, .call = o->n_calls - 1, .text = p->text.size,
                                 .first_logprob = o->logprobs.n_attached};
    return &p->items[p->n++];
}

static bool put(di_output *o, di_piece_kind kind, const char *text, size_t size)
{
    rec_piece *const piece = piece_of(o, kind);
    if (piece == NULL || !buf_append(&o->pieces.text, text, size)) {
        return false;
    }
    piece->size += size;
    return true;
}

/* The escape of one byte inside a JSON string; NULL: none. */
static const char *escape_of(unsigned char c, char hex[8])
{
    static const char digits[] = "0123456789abcdef";
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
    }
    if (c >= 0x20) {
        return NULL;
    }
    memcpy(hex, "\\u00", 4);
    hex[4] = digits[c >> 4];
    hex[5] = digits[c & 15];
    hex[6] = '\0';
    return hex;
}

static bool put_escaped(di_output *o, const char *text, size_t size)
{
    size_t from = 0;
    for (size_t i = 0; i < size; i++) {
        char hex[8];
        const char *const escape = escape_of((unsigned char)text[i], hex);
        if (escape == NULL) {
            continue;
        }
        if (!put(o, DI_PIECE_ARGUMENTS, text + from, i - from) || !put(o, DI_PIECE_ARGUMENTS, escape, strlen(escape))) {
            return false;
        }
        from = i + 1;
    }
    return put(o, DI_PIECE_ARGUMENTS, text + from, size - from);
}

static bool put_space(di_output *o)
{
    if (o->spaced) {
        return true;
    }
    o->spaced = true;
    return put(o, DI_PIECE_TEXT, " ", 1);
}

static bool show(di_output *o, di_piece_kind kind, const char *text, size_t size)
{
    o->spaced = false;
    return put(o, kind, text, size) && (o->logprobs.n_spans == 0 || attach(o, o->assigned + size));
}

static bool act(di_output *o, rec_action action, const char *text, size_t size)
{
    switch (action) {
    case REC_A_TEXT: return show(o, DI_PIECE_TEXT, text, size);
    case REC_A_REASONING: return show(o, DI_PIECE_REASONING, text, size);
    case REC_A_SPACE: return put_space(o);
    case REC_A_NAME: return buf_append(&o->name, text, size);
    case REC_A_RAW: return put(o, DI_PIECE_ARGUMENTS, text, size);
    case REC_A_ESCAPED: return put_escaped(o, text, size);
    default: return true;
    }
}

bool rec_assign(di_output *o, rec_action action, const char *text, size_t size)
{
    if (size == 0) {
        return true;
    }
    const bool done = act(o, action, text, size);
    o->assigned += size;
    if (o->logprobs.n_spans != 0) {
        pass_spans(&o->logprobs, o->assigned);
    }
    return done;
}

bool rec_fire(di_output *o, const rec_pattern *pattern)
{
    switch (pattern->action) {
    case REC_A_LABEL:
        return put(o, DI_PIECE_ARGUMENTS, pattern->label, strlen(pattern->label));
    case REC_A_CALL_BEGIN:
        buf_clear(&o->name);
        return true;
    case REC_A_NAME_END:
        o->n_calls++;
        return put(o, DI_PIECE_CALL, o->name.data, o->name.size);
    case REC_A_STOP:
        o->stop = pattern->stop;
        o->finish = DI_FINISH_STOP_STRING;
        return rec_finish_piece(o);
    default:
        return true;
    }
}

bool rec_finish_piece(di_output *o)
{
    return piece_of(o, DI_PIECE_FINISH) != NULL;
}
