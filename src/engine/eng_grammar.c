/* eng_grammar.c - see eng_grammar.h.
 *
 * `rows` are masks along one line of tokens: row 0 behind what had been accepted when they were made, row i behind i tokens more. As long
 * as sampling goes along that line, `at` counts the steps; the first mask that is wanted afterwards begins a new line. */
#include "engine/eng_grammar.h"

#include "core/arith.h"
#include "core/err.h"
#include "grammar/gram_vocab.h"

#include <stdlib.h>
#include <string.h>

#define TAIL_TOKENS 4   /* what is forced is cut into tokens together with so many before it, as they may decide about its first */
#define TAIL_BYTES 128
#define FORCED_BYTES 96

/* What a step may change, to be taken back. */
typedef struct mark {
    bool begun;
    bool ended;
    int64_t n_taken;
    size_t n_steps;
} mark;

struct eng_constraint {
    di_matcher *matcher;
    di_vocabulary *vocabulary; /* borrowed */
    int32_t begin_id;
    bool begun;      /* the grammar holds from here on */
    bool ended;
    int64_t max_tokens; /* 0 = none */
    int64_t n_taken;    /* tokens, those before it begins included */
    bool trying;     /* drafts were taken since `before` */
    mark before;
    uint32_t *rows;  /* [capacity, words] */
    int32_t capacity;
    int32_t n_rows;  /* that are made */
    int32_t at;      /* the row for the next token */
    int32_t tail[TAIL_TOKENS]; /* [n_tail] accepted last, since it began */
    int32_t n_tail;
    di_status status; /* why there are no more rows */
    di_error err;
};

di_status eng_constraint_new(const eng_constraint_options *o, eng_constraint **out, di_error *err)
{
    eng_constraint *c = calloc(1, sizeof *c);
    size_t n = 0;
    if (c == NULL) {
        return err_memory(err, "constraint", sizeof *c);
    }
    c->vocabulary = o->vocabulary;
    c->begin_id = o->begin_id;
    c->begun = !o->waits;
    c->capacity = 1 + o->n_drafts;
    c->max_tokens = o->max_tokens;
    di_status status = di_matcher_new(o->grammar, o->vocabulary, &c->matcher, err);
    if (status != DI_OK) {
        goto out;
    }
    n = (size_t)c->capacity * o->vocabulary->words;
    c->rows = ar_calloc(n, sizeof *c->rows);
    if (c->rows == NULL) {
        status = err_memory(err, "masks of a choice", n * sizeof *c->rows);
        goto out;
    }
    *out = c;
    c = NULL;
out:
    eng_constraint_free(c);
    return status;
}

void eng_constraint_free(eng_constraint *c)
{
    if (c == NULL) {
        return;
    }
    di_matcher_free(c->matcher);
    free(c->rows);
    free(c);
}

/* ---- steps ---- */

/* *accepted is false, and nothing has changed, when the token is not allowed. */
static di_status take(eng_constraint *c, int32_t id, bool *accepted, di_error *err)
{
    const bool ends = gram_vocab_is_end(c->vocabulary, id);
    di_status status = DI_OK;
    if (c->begun) {
        status = di_matcher_accept(c->matcher, id, accepted, err);
    } else {
        *accepted = !ends;
        c->begun = id == c->begin_id;
    }
    c->ended = c->ended || (*accepted && ends);
    c->n_taken += *accepted;
    return status;
}

static void set_mark(eng_constraint *c)
{
    c->before = (mark){.begun = c->begun, .ended = c->ended, .n_taken = c->n_taken, .n_steps = di_matcher_steps(c->matcher)};
    c->trying = true;
}

void eng_constraint_take_back(eng_constraint *c)
{
    if (!c->trying) {
        return;
    }
    (void)di_matcher_rollback(c->matcher, di_matcher_steps(c->matcher) - c->before.n_steps, NULL); /* there were as many */
    c->begun = c->before.begun;
    c->ended = c->before.ended;
    c->n_taken = c->before.n_taken;
    c->trying = false;
}

/* ---- masks ---- */

static uint32_t *row_at(const eng_constraint *c, int32_t i) { return c->rows + (size_t)i * c->vocabulary->words; }

static void mask_reasoning(const eng_constraint *c, uint32_t *row)
{
    const di_vocabulary *const v = c->vocabulary;
    memset(row, 0xFF, v->words * sizeof *row);
    for (size_t i = 0; i < v->n_end_ids; i++) {
        row[v->end_ids[i] / 32] &= ~(UINT32_C(1) << v->end_ids[i] % 32);
    }
}

/* The next row, behind the tokens that were taken or tried. */
static void add_row(eng_constraint *c)
{
    uint32_t *const row = row_at(c, c->n_rows);
    if (c->begun && c->max_tokens > c->n_taken) {
        c->status = di_matcher_mask_within(c->matcher, (size_t)(c->max_tokens - c->n_taken), row, NULL, NULL, &c->err);
    } else if (c->begun) {
        c->status = di_matcher_mask(c->matcher, row, NULL, &c->err);
    } else {
        mask_reasoning(c, row);
    }
    c->n_rows += c->status == DI_OK;
}

static void begin_line(eng_constraint *c)
{
    if (c->at > 0) {
        c->at = 0;
        c->n_rows = 0;
    }
}

int32_t eng_constraint_prepare(eng_constraint *c, const int32_t *drafts, int32_t n)
{
    begin_line(c);
    const int32_t had = c->n_rows;
    bool goes_on = c->status == DI_OK && !c->ended;
    set_mark(c);
    for (int32_t i = 0; goes_on && i <= n; i++) {
        if (i == c->n_rows) {
            add_row(c);
        }
        goes_on = c->status == DI_OK && i < n;
        if (goes_on) {
            c->status = take(c, drafts[i], &goes_on, &c->err);
            goes_on = goes_on && c->status == DI_OK && !c->ended;
        }
    }
    eng_constraint_take_back(c);
    return c->n_rows - had;
}

const uint32_t *eng_constraint_mask_at(const eng_constraint *c, int32_t ahead)
{
    return c->at + ahead < c->n_rows ? row_at(c, c->at + ahead) : NULL;
}

const uint32_t *eng_constraint_mask(const eng_constraint *c) { return eng_constraint_mask_at(c, 0); }

bool eng_constraint_ends_with(const eng_constraint *c, int32_t id) { return gram_vocab_is_end(c->vocabulary, id); }

static void keep_tail(eng_constraint *c, int32_t id)
{
    if (c->n_tail == TAIL_TOKENS) {
        memmove(c->tail, c->tail + 1, (TAIL_TOKENS - 1) * sizeof *c->tail);
        c->n_tail--;
    }
    c->tail[c->n_tail++] = id;
}

bool eng_constraint_accept(eng_constraint *c, int32_t id, bool *ended)
{
    bool accepted = false;
    if (c->begun) {
        keep_tail(c, id);
    }
    c->status = take(c, id, &accepted, &c->err);
    if (c->status == DI_OK && !accepted) {
        c->status = err_set(&c->err, DI_E_INTERNAL, "token %d was chosen, which the grammar forbids there", id);
    }
    c->at++;
    *ended = c->ended;
    return c->status == DI_OK;
}

const di_error *eng_constraint_error(const eng_constraint *c) { return c->status != DI_OK ? &c->err : NULL; }

/* ---- drafts ---- */

const uint32_t *eng_constraint_try_mask(eng_constraint *c)
{
    if (!c->trying) {
        begin_line(c);
        c->n_rows = 0;
        set_mark(c);
    }
    if (c->status == DI_OK && !c->ended && c->n_rows < c->capacity) {
        const int32_t row = c->n_rows;
        add_row(c);
        return c->n_rows > row ? row_at(c, row) : NULL;
    }
    return NULL;
}

bool eng_constraint_try(eng_constraint *c, int32_t id)
{
    bool accepted = false;
    c->status = take(c, id, &accepted, &c->err);
    return c->status == DI_OK && accepted && !c->ended;
}

/* ---- what is forced ---- */

/* The end of the text, as far as whole tokens fit. Returns its length. */
static size_t put_tail(const eng_constraint *c, char out[TAIL_BYTES])
{
    const uint8_t *bytes[TAIL_TOKENS];
    size_t sizes[TAIL_TOKENS];
    size_t n = 0;
    int32_t first = c->n_tail;
    while (first > 0) {
        bytes[first - 1] = di_tokenizer_bytes(c->vocabulary->tokenizer, c->tail[first - 1], &sizes[first - 1]);
        if (bytes[first - 1] == NULL || n + sizes[first - 1] > TAIL_BYTES) {
            break;
        }
        n += sizes[--first];
    }
    for (size_t at = 0; first < c->n_tail; at += sizes[first++]) {
        memcpy(out + at, bytes[first], sizes[first]);
    }
    return n;
}

/* Tokens of text + n_before as the tokenizer cuts them behind what is before; where it would cut a token across that place, as it cuts
 * them alone. Returns how many; ids holds more than the text has bytes. */
static size_t cut(const di_tokenizer *t, const char *text, size_t n_before, size_t n, int32_t *ids)
{
    size_t n_ids = 0;
    size_t first = 0;
    size_t at = 0;
    if (di_tokenizer_encode(t, text, n_before + n, 0, ids, TAIL_BYTES + FORCED_BYTES, &n_ids, NULL) != DI_OK) {
        return 0;
    }
    while (first < n_ids && at < n_before) {
        size_t size = 0;
        (void)di_tokenizer_bytes(t, ids[first++], &size);
        at += size;
    }
    if (at != n_before) {
        first = 0;
        if (di_tokenizer_encode(t, text + n_before, n, 0, ids, TAIL_BYTES + FORCED_BYTES, &n_ids, NULL) != DI_OK) {
            return 0;
        }
    }
    memmove(ids, ids + first, (n_ids - first) * sizeof *ids);
    return n_ids - first;
}

int32_t eng_constraint_forced(eng_constraint *c, int32_t *ids, int32_t capacity)
{
    char text[TAIL_BYTES + FORCED_BYTES];
    int32_t all[TAIL_BYTES + FORCED_BYTES];
    size_t n_forced = 0;
    size_t n_valid = 0;
    if (!c->begun || c->ended || c->status != DI_OK) {
        return 0;
    }
    const size_t n_before = put_tail(c, text);
    if (di_matcher_forced(c->matcher, text + n_before, FORCED_BYTES, &n_forced, NULL) != DI_OK || n_forced == 0) {
        return 0;
    }
    size_t n = cut(c->vocabulary->tokenizer, text, n_before, n_forced, all);
    n = n < (size_t)capacity ? n : (size_t)capacity;
    if (n == 0 || di_matcher_validate(c->matcher, all, n, &n_valid, NULL) != DI_OK) {
        return 0;
    }
    memcpy(ids, all, n_valid * sizeof *ids);
    return (int32_t)n_valid;
}
