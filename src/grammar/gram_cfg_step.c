/* gram_cfg_step.c - places in a text of a general grammar: what is being read, and what a byte does to it. See
 * gram_cfg.h. */
#include "grammar/gram_cfg.h"

#include <stdlib.h>

/* --- Putting together --------------------------------------------------------------------------------------------- */

static void begin_place(gram_cfg *g)
{
    g->finals = GRAM_EX_NONE;
    g->n_comps = 0;
    g->n_values = 0;
    g->raw.n = 0;
}

static void add_comp(gram_cfg *g, gram_comp one)
{
    gram_comp *comps = gram_grow(g->mem, g->comps, g->n_comps, &g->comp_capacity, sizeof *comps);
    if (comps != NULL) {
        g->comps = comps;
        comps[g->n_comps++] = one;
    }
}

static void add_text(gram_cfg *g, gram_ex ex, uint32_t after)
{
    if (gram_cfg_is_final(g, after)) {
        g->finals = gram_ex_or2(g->lang, g->finals, ex);
    } else {
        add_comp(g, (gram_comp){0, after, ex});
    }
}

static void add_value(gram_cfg *g, gram_pos pos)
{
    gram_pos *values = gram_grow(g->mem, g->values, g->n_values, &g->value_capacity, sizeof *values);
    if (values != NULL) {
        g->values = values;
        values[g->n_values++] = pos;
    }
}

/* What the items in g->raw begin. */
static void add_row(gram_cfg *g)
{
    if (g->raw.n == 0 || gram_failed(g->mem)) {
        return;
    }
    const uint32_t id = gram_cfg_row_of(g);
    if (gram_failed(g->mem)) {
        return;
    }
    if (g->rows[id].accepts) {
        g->finals = gram_ex_or2(g->lang, g->finals, GRAM_EX_EPS);
    }
    for (uint32_t i = 0; i < g->rows[id].n_starts && gram_spend(g->mem, 1); i++) {
        const gram_start start = g->rows[id].starts[i];
        const uint32_t what = GRAM_SYM_ID(start.sym);
        gram_pos pos;
        switch (GRAM_SYM_KIND(start.sym)) {
        case SYM_TEXT:
            add_text(g, gram_ex_some(g->lang, what), start.after);
            break;
        case SYM_JSON:
            if (gram_js_start(g->m, what, start.after + 1, &pos)) {
                add_value(g, pos);
            }
            break;
        default:
            add_comp(g, (gram_comp){what + 1, start.after, GRAM_EX_EPS});
            break;
        }
    }
}

static int by_comp(const void *a, const void *b)
{
    const gram_comp *x = a;
    const gram_comp *y = b;
    return x->token != y->token ? (x->token < y->token ? -1 : 1) : (x->after > y->after) - (x->after < y->after);
}

static int by_pos(const void *a, const void *b) { return memcmp(a, b, sizeof(gram_pos)); }

/* Texts with the same things behind them are one. */
static void merge_comps(gram_cfg *g)
{
    uint32_t kept = 0;
    if (g->n_comps > 1 && gram_spend(g->mem, g->n_comps)) {
        qsort(g->comps, g->n_comps, sizeof *g->comps, by_comp);
    }
    for (uint32_t i = 0; i < g->n_comps; i++) {
        if (kept != 0 && by_comp(&g->comps[kept - 1], &g->comps[i]) == 0) {
            g->comps[kept - 1].ex = gram_ex_or2(g->lang, g->comps[kept - 1].ex, g->comps[i].ex);
        } else {
            g->comps[kept++] = g->comps[i];
        }
    }
    g->n_comps = kept;
}

/* The part of a place that is texts and tokens; lex 0 when there is none. */
static gram_pos texts_of(gram_cfg *g)
{
    gram_stack *work = &g->lang->work;
    const uint32_t base = work->n;
    merge_comps(g);
    for (uint32_t i = 0; i < g->n_comps; i++) {
        (void)gram_push(g->mem, work, g->comps[i].token);
        (void)gram_push(g->mem, work, g->comps[i].after);
    }
    const uint32_t ctx = gram_failed(g->mem) ? 0 : gram_tuple(g->mem, &g->ctxs, work->words + base, work->n - base, NULL);
    work->n = base;
    (void)gram_push(g->mem, work, g->finals);
    for (uint32_t i = 0; i < g->n_comps; i++) {
        (void)gram_push(g->mem, work, g->comps[i].ex);
    }
    const uint32_t vec = gram_failed(g->mem) ? 0 : gram_vec_id(g->m->lexes, work->words + base, work->n - base, true);
    work->n = base;
    return (gram_pos){ctx, gram_chars_state(g->m->lexes, MODE_GRAMMAR, vec, 0), 0};
}

/* A place of the JSON machine can stand for the whole, when nothing else is being read and a byte of it never ends
 * the value but surely: not at its beginning, and not in a number. */
static bool stands_alone(const gram_cfg *g, gram_pos value)
{
    const gram_lex *state = gram_lex_at(g->m->lexes, value.lex);
    return g->m->json.frames[value.ctx].kind != FRAME_ROOT || (state->kind != LX_VALUE && state->kind != LX_NUMBER);
}

static gram_pos set_of(gram_cfg *g, gram_pos texts)
{
    gram_stack *work = &g->lang->work;
    const uint32_t base = work->n;
    if (g->n_values > 1 && gram_spend(g->mem, g->n_values)) {
        qsort(g->values, g->n_values, sizeof *g->values, by_pos);
    }
    (void)gram_push(g->mem, work, texts.lex == 0 ? 0 : texts.ctx);
    (void)gram_push(g->mem, work, texts.lex);
    for (uint32_t i = 0; i < g->n_values; i++) {
        if (i == 0 || by_pos(&g->values[i], &g->values[i - 1]) != 0) {
            (void)gram_push(g->mem, work, g->values[i].ctx);
            (void)gram_push(g->mem, work, g->values[i].lex);
            (void)gram_push(g->mem, work, g->values[i].n);
        }
    }
    const uint32_t set = gram_failed(g->mem) ? 0 : gram_tuple(g->mem, &g->sets, work->words + base, work->n - base, NULL);
    work->n = base;
    return (gram_pos){0, gram_failed(g->mem) ? 0 : gram_lex_id(g->m->lexes, LX_ROW, &set, 1), 0};
}

/* The place; `texts` is that of texts that are in the middle of a character, when its lex is not 0. */
static gram_step_result put_together(gram_cfg *g, gram_pos texts, gram_pos *out)
{
    if (texts.lex == 0) {
        texts = texts_of(g);
    }
    if (gram_failed(g->mem) || (texts.lex == 0 && g->n_values == 0)) {
        return GRAM_STEP_DEAD;
    }
    const bool alone = texts.lex == 0 && g->n_values == 1 && stands_alone(g, g->values[0]);
    *out = g->n_values == 0 ? texts : alone ? g->values[0] : set_of(g, texts);
    return gram_failed(g->mem) ? GRAM_STEP_DEAD : GRAM_STEP_OK;
}

/* --- Steps -------------------------------------------------------------------------------------------------------- */

/* The texts of a context whose vector is `vec` behind a byte: those that go on are kept, those that ended go to
 * g->raw. */
static void take_texts(gram_cfg *g, uint32_t ctx, uint32_t vec)
{
    uint32_t n;
    const uint32_t *words = gram_tuple_at(&g->ctxs, ctx, &n);
    g->finals = gram_ex_or2(g->lang, g->finals, g->m->lexes->vecs[vec].ex[0]);
    for (uint32_t i = 0; i < n / 2; i++) {
        const gram_ex ex = g->m->lexes->vecs[vec].ex[i + 1];
        if (ex == GRAM_EX_NONE || words[2 * i] != 0) {
            continue;
        }
        if (gram_nullable(g->lang, ex)) {
            gram_cfg_push_after(g, words[2 * i + 1]);
        }
        if (ex != GRAM_EX_EPS) {
            add_comp(g, (gram_comp){0, words[2 * i + 1], ex});
        }
    }
}

/* A byte for the texts of a set. *texts is where they are, lex 0 when they went to the place. */
static void step_texts(gram_cfg *g, gram_pos *texts, uint8_t byte)
{
    const uint32_t *row = gram_machine_row(g->m, texts->lex);
    const uint32_t cell = row != NULL ? gram_cell(row, byte) : GRAM_DEAD;
    const uint32_t lex = cell & GRAM_ID;
    texts->lex = lex;
    if (lex != 0 && gram_lex_at(g->m->lexes, lex)->kind == LX_CHAR) {
        take_texts(g, texts->ctx, gram_lex_at(g->m->lexes, lex)->words[1]);
        texts->lex = 0;
    }
}

static uint32_t after_of(const gram_cfg *g, gram_pos value) { return g->m->json.frames[value.ctx].slot - 1; }

/* A byte for a JSON value of a set. */
static gram_step_result step_value(gram_cfg *g, gram_pos value, uint8_t byte, const gram_before *before, bool *textual)
{
    const uint32_t *row = gram_machine_row(g->m, value.lex);
    const uint32_t cell = row != NULL ? gram_cell(row, byte) : GRAM_DEAD;
    if ((cell & GRAM_SLOW) != 0) {
        const bool number = gram_lex_at(g->m->lexes, value.lex)->kind == LX_NUMBER;
        if (number && g->m->json.frames[value.ctx].kind == FRAME_ROOT) {
            return GRAM_STEP_DEAD; /* what follows the number is read beside it */
        }
        const gram_step_result result = gram_js_step(g->m, &value, byte, cell & GRAM_ID, before, textual);
        if (result != GRAM_STEP_OK) {
            return result;
        }
    } else {
        value.lex = cell & GRAM_ID;
        value.n += (cell & GRAM_COUNT) != 0;
        if (value.lex == 0 || ((cell & GRAM_CHECK) != 0 && value.n > gram_lex_at(g->m->lexes, value.lex)->limit)) {
            return GRAM_STEP_DEAD;
        }
    }
    if (gram_js_is_done(g->m, value)) {
        gram_cfg_push_after(g, after_of(g, value));
    }
    if (gram_lex_at(g->m->lexes, value.lex)->kind != LX_DONE) {
        add_value(g, value);
    }
    return GRAM_STEP_OK;
}

static gram_step_result step_set(gram_cfg *g, gram_pos *pos, uint8_t byte, const gram_before *before, bool *textual)
{
    begin_place(g);
    uint32_t n;
    const uint32_t set = gram_lex_at(g->m->lexes, pos->lex)->words[0];
    gram_pos texts = {gram_tuple_at(&g->sets, set, &n)[0], gram_tuple_at(&g->sets, set, &n)[1], 0};
    if (texts.lex != 0) {
        step_texts(g, &texts, byte);
    }
    for (uint32_t i = 2; i < n && !gram_failed(g->mem); i += 3) {
        const uint32_t *words = gram_tuple_at(&g->sets, set, &n);
        const gram_pos value = {words[i], words[i + 1], words[i + 2]};
        if (step_value(g, value, byte, before, textual) == GRAM_STEP_EXACT) {
            g->raw.n = 0;
            return GRAM_STEP_EXACT;
        }
    }
    add_row(g);
    return put_together(g, texts, pos);
}

gram_step_result gram_cfg_step(gram_cfg *g, gram_pos *pos, uint8_t byte, uint32_t hint, const gram_before *before, bool *textual)
{
    (void)gram_spend(g->mem, 8);
    if (gram_lex_at(g->m->lexes, pos->lex)->kind == LX_ROW) {
        return step_set(g, pos, byte, before, textual);
    }
    if (hint == 0) {
        return GRAM_STEP_DEAD;
    }
    begin_place(g);
    take_texts(g, pos->ctx, gram_lex_at(g->m->lexes, hint)->words[1]);
    add_row(g);
    return put_together(g, (gram_pos){0, 0, 0}, pos);
}

gram_step_result gram_cfg_value_done(gram_cfg *g, gram_pos *pos)
{
    begin_place(g);
    gram_cfg_push_after(g, after_of(g, *pos));
    add_row(g);
    return put_together(g, (gram_pos){0, 0, 0}, pos);
}

bool gram_cfg_start(gram_cfg *g, uint32_t dot, gram_pos *out)
{
    begin_place(g);
    (void)gram_push(g->mem, &g->raw, dot);
    (void)gram_push(g->mem, &g->raw, GRAM_CONT_END);
    add_row(g);
    return put_together(g, (gram_pos){0, 0, 0}, out) == GRAM_STEP_OK;
}

/* --- Questions ---------------------------------------------------------------------------------------------------- */

/* The texts of a place: lex 0 when it has none, or is in the middle of a character. */
static gram_pos texts_at(const gram_cfg *g, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(g->m->lexes, pos.lex);
    if (state->kind == LX_ROW) {
        uint32_t n;
        const uint32_t *words = gram_tuple_at(&g->sets, state->words[0], &n);
        pos = (gram_pos){words[0], words[1], 0};
        state = gram_lex_at(g->m->lexes, pos.lex);
    }
    return state->kind == LX_CHAR && state->mode == MODE_GRAMMAR ? pos : (gram_pos){0, 0, 0};
}

bool gram_cfg_accepts(const gram_cfg *g, gram_pos pos)
{
    const gram_pos texts = texts_at(g, pos);
    return texts.lex != 0 && gram_nullable(g->lang, g->m->lexes->vecs[gram_lex_at(g->m->lexes, texts.lex)->words[1]].ex[0]);
}

void gram_cfg_fill(gram_cfg *g, uint32_t lex)
{
    gram_lex *state = gram_lex_at(g->m->lexes, lex);
    uint32_t n;
    const uint32_t *words = gram_tuple_at(&g->sets, state->words[0], &n);
    uint32_t *row = gram_lex_new_row(g->m->lexes);
    for (uint32_t i = 1; row != NULL && i < n; i += i == 1 ? 2 : 3) {
        const uint32_t *part = words[i] != 0 ? gram_machine_row(g->m, words[i]) : NULL;
        for (uint32_t byte = 0; part != NULL && byte < 256; byte++) {
            row[byte] |= gram_cell(part, (uint8_t)byte) != GRAM_DEAD ? GRAM_SLOW : GRAM_DEAD;
        }
    }
    if (!gram_failed(g->mem)) {
        gram_lex_publish(state, row);
    }
}

/* --- Named tokens ------------------------------------------------------------------------------------------------- */

uint32_t gram_cfg_token_at(const gram_cfg *g, gram_pos pos, uint32_t i)
{
    const gram_pos texts = texts_at(g, pos);
    uint32_t n = 0;
    const uint32_t *words = texts.lex != 0 ? gram_tuple_at(&g->ctxs, texts.ctx, &n) : NULL;
    for (uint32_t k = 0; k < n; k += 2) {
        if (words[k] != 0 && i-- == 0) {
            return words[k] - 1;
        }
    }
    return GRAM_NONE;
}

bool gram_cfg_take_token(gram_cfg *g, gram_pos *pos, uint32_t token)
{
    const gram_pos texts = texts_at(g, *pos);
    uint32_t n = 0;
    const uint32_t *words = texts.lex != 0 ? gram_tuple_at(&g->ctxs, texts.ctx, &n) : NULL;
    bool any = false;
    begin_place(g);
    for (uint32_t k = 0; k < n; k += 2) {
        if (words[k] == token + 1) {
            gram_cfg_push_after(g, words[k + 1]);
            any = true;
        }
    }
    add_row(g);
    return any && put_together(g, (gram_pos){0, 0, 0}, pos) == GRAM_STEP_OK;
}
