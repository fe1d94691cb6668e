/* gram_lex.c - states and vectors; see gram_lex.h. */
#include "grammar/gram_lex.h"

bool gram_lexes_init(gram_lexes *x, gram_mem *mem, gram_lang *lang)
{
    *x = (gram_lexes){.mem = mem, .lang = lang};
    (void)gram_lex_id(x, LX_NONE, NULL, 0);
    (void)gram_tuple(mem, &x->vec_keys, NULL, 0, NULL);
    x->vecs = gram_grow(mem, NULL, 0, &x->vec_capacity, sizeof *x->vecs);
    (void)gram_tuple(mem, &x->spans, (const uint32_t[]){0, GRAM_INF}, 2, NULL);
    return !gram_failed(mem);
}

uint32_t gram_lex_id(gram_lexes *x, gram_lex_kind kind, const uint32_t *words, uint32_t n)
{
    uint32_t key[8] = {kind};
    if (n != 0) {
        memcpy(key + 1, words, n * sizeof *words);
    }
    bool is_new;
    const uint32_t id = gram_tuple(x->mem, &x->keys, key, n + 1, &is_new);
    if (is_new) {
        if (gram_chunks_add(x->mem, &x->states, sizeof(gram_lex)) == GRAM_NONE) {
            return 0;
        }
        gram_lex *state = gram_lex_at(x, id);
        *state = (gram_lex){.kind = (uint8_t)kind, .limit = GRAM_INF, .words = x->keys.at[id] + 2};
        state->mode = kind >= LX_CHAR && kind <= LX_LOW ? (uint8_t)words[0] : MODE_RAW;
    }
    return id;
}

uint32_t *gram_lex_new_row(gram_lexes *x)
{
    (void)gram_spend(x->mem, 4);
    return gram_alloc(x->mem, 256, sizeof(uint32_t));
}

uint32_t gram_vec_id(gram_lexes *x, const gram_ex *ex, uint32_t n, bool any)
{
    gram_stack *work = &x->lang->work;
    const uint32_t base = work->n;
    bool alive = false;
    (void)gram_push(x->mem, work, any);
    for (uint32_t i = 0; i < n; i++) {
        const bool empty = gram_empty(x->lang, ex[i]);
        alive = alive || (!empty && (any || i == 0));
        (void)gram_push(x->mem, work, empty ? GRAM_EX_NONE : ex[i]);
    }
    uint32_t id = 0;
    bool is_new = false;
    if (alive && !gram_failed(x->mem)) {
        id = gram_tuple(x->mem, &x->vec_keys, work->words + base, n + 1, &is_new);
    }
    work->n = base;
    if (is_new) {
        gram_vec *vecs = gram_grow(x->mem, x->vecs, id, &x->vec_capacity, sizeof *vecs);
        if (vecs == NULL) {
            return 0;
        }
        x->vecs = vecs;
        vecs[id] = (gram_vec){.ex = x->vec_keys.at[id] + 2, .n = n, .any = any};
    }
    return id;
}

bool gram_vec_turns(const gram_lexes *x, uint32_t vec)
{
    const gram_vec *v = &x->vecs[vec];
    for (uint32_t i = 1; i < v->n; i++) {
        if (v->ex[i] == GRAM_EX_NONE || gram_nullable(x->lang, v->ex[i])) {
            return true;
        }
    }
    return false;
}

/* The rows of all expressions side by side. */
static const gram_vec_row *compute(gram_lexes *x, gram_vec vec)
{
    gram_stack *work = &x->lang->work;
    const uint32_t places = work->n;
    for (uint32_t i = 0; i < vec.n; i++) {
        (void)gram_row_of(x->lang, vec.ex[i]);
        (void)gram_push(x->mem, work, 0);
    }
    const uint32_t base = work->n;
    for (uint32_t last = 0; !gram_failed(x->mem) && last != GRAM_LAST_CHAR;) {
        last = GRAM_LAST_CHAR;
        for (uint32_t i = 0; i < vec.n; i++) {
            const uint32_t here = gram_row_of(x->lang, vec.ex[i])->seg[work->words[places + i]].last;
            last = here < last ? here : last;
        }
        const uint32_t kids = work->n;
        for (uint32_t i = 0; i < vec.n; i++) {
            const gram_seg seg = gram_row_of(x->lang, vec.ex[i])->seg[work->words[places + i]];
            (void)gram_push(x->mem, work, seg.to);
            work->words[places + i] += seg.last == last;
        }
        const uint32_t to = gram_vec_id(x, work->words + kids, vec.n, vec.any);
        work->n = kids;
        if (work->n > base && work->words[work->n - 1] == to) {
            work->words[work->n - 2] = last;
        } else {
            (void)gram_push(x->mem, work, last);
            (void)gram_push(x->mem, work, to);
        }
        (void)gram_spend(x->mem, 1 + vec.n / 8);
    }
    const uint32_t n = gram_failed(x->mem) ? 0 : (work->n - base) / 2;
    gram_vec_row *row = gram_alloc(x->mem, 1, sizeof *row + n * sizeof row->seg[0]);
    for (uint32_t i = 0; row != NULL && i < n; i++) {
        row->seg[row->n++] = (gram_seg){work->words[base + 2 * i], work->words[base + 2 * i + 1]};
    }
    work->n = places;
    return row;
}

const gram_vec_row *gram_vec_row_of(gram_lexes *x, uint32_t vec)
{
    static const gram_vec_row nothing = {1, {{GRAM_LAST_CHAR, 0}}};
    if (vec == 0) {
        return &nothing;
    }
    if (x->vecs[vec].row == NULL) {
        const gram_vec_row *row = compute(x, x->vecs[vec]);
        if (row == NULL || gram_failed(x->mem)) {
            return &nothing;
        }
        x->vecs[vec].row = row;
    }
    return x->vecs[vec].row;
}

uint32_t gram_vec_step(gram_lexes *x, uint32_t vec, uint32_t c)
{
    const gram_vec_row *row = gram_vec_row_of(x, vec);
    uint32_t i = 0;
    while (row->seg[i].last < c) {
        i++;
    }
    return row->seg[i].to;
}

uint32_t gram_span_id(gram_lexes *x, gram_span span)
{
    return gram_tuple(x->mem, &x->spans, (const uint32_t[]){span.min, span.max}, 2, NULL);
}

gram_span gram_span_at(const gram_lexes *x, uint32_t id)
{
    uint32_t n;
    const uint32_t *words = gram_tuple_at(&x->spans, id, &n);
    return (gram_span){words[0], words[1]};
}
