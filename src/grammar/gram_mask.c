/* gram_mask.c - which tokens may come next: a slice as a whole, the others by a walk over their tree.
 *
 * The walk keeps a place for every depth; a node whose byte is dead takes its subtree with it. Where the machine needs the text,
 * the way from the root is gone again with it. */
#include "grammar/gram_grammar.h"

#include "core/clock.h"

#include <stdlib.h>

typedef struct walk {
    di_grammar *g;
    gram_machine *m;
    di_vocabulary *v;
    const uint8_t *text;
    size_t n_text;
    gram_pos start; /* exactly, not as in the key */
    uint32_t *mask;
    bool textual;   /* the text made a difference: the mask holds for this text only */
} walk;

static bool make_room(di_grammar *g, const di_vocabulary *v)
{
    const uint32_t size = v->max_depth + 2;
    if (size <= g->stack_size) {
        return true;
    }
    free(g->stack);
    free(g->rows);
    free(g->path);
    g->stack = malloc(size * sizeof *g->stack);
    g->rows = malloc(size * sizeof *g->rows);
    g->path = malloc(size);
    const bool ok = g->stack != NULL && g->rows != NULL && g->path != NULL;
    g->stack_size = ok ? size : 0;
    return ok;
}

static void allow(const walk *w, int32_t token)
{
    for (; token >= 0; token = w->v->same[token]) {
        w->mask[token / 32] |= 1u << token % 32;
    }
}

#define PLAIN 0x7FF8u /* the classes that stand for themselves in JSON strings: not controls, quote, backslash */

/* Whether all characters of a class lead from a vector back to it. */
static bool is_loop(gram_machine *m, uint32_t vec, const gram_char_class *class)
{
    const gram_vec_row *row = gram_vec_row_of(m->lexes, vec);
    bool all = true;
    for (uint32_t k = 0; all && k < class->n; k++) {
        for (uint32_t s = 0, from = 0; all && s < row->n; from = row->seg[s].last + 1, s++) {
            all = row->seg[s].to == vec || row->seg[s].last < class->ranges[2 * k] || from > class->ranges[2 * k + 1];
        }
    }
    return all;
}

/* The classes of characters of which any number may follow. */
static uint16_t loops_of(gram_machine *m, gram_pos pos)
{
    gram_lex *state = gram_lex_at(m->lexes, pos.lex);
    if (state->kind != LX_CHAR) {
        return 0;
    }
    if (state->mode == MODE_KEY_CHECK) {
        return m->json.obj_views[m->json.frames[pos.ctx].view]->open ? PLAIN : 0;
    }
    if (state->slices) {
        return state->loops;
    }
    const uint32_t vec = state->words[1];
    const uint16_t wanted = state->mode <= MODE_GRAMMAR ? 0x7FFF : PLAIN;
    const bool free = state->words[2] == 0 && gram_ex_is_open(m->lang, m->lexes->vecs[vec].ex[0]);
    uint16_t loops = state->mode == MODE_KEY || free ? wanted : 0; /* every text is the beginning of one */
    for (uint32_t i = 0; loops == 0 && i < GRAM_N_CLASSES; i++) {
        if ((wanted >> i & 1) != 0 && is_loop(m, vec, &gram_char_classes[i])) {
            state->loops |= (uint16_t)(1u << i);
        }
    }
    state->loops |= loops;
    state->slices = true;
    return state->loops;
}

/* The place behind path[0, depth), with the text. False when it is dead. */
static bool exact_pos(const walk *w, uint32_t depth, gram_pos *out)
{
    gram_pos pos = w->start;
    for (uint32_t i = 0; i < depth; i++) {
        const gram_before before = {w->text, w->n_text, w->g->path, i};
        if (gram_machine_step(w->m, &pos, w->g->path[i], &before) != GRAM_STEP_OK) {
            return false;
        }
    }
    *out = pos;
    return true;
}

/* The cell that the row did not settle. */
static bool slow(walk *w, uint32_t depth, uint8_t byte, gram_pos *pos)
{
    const gram_step_result result = gram_machine_step(w->m, pos, byte, NULL);
    w->textual = w->textual || result == GRAM_STEP_EXACT;
    return result == GRAM_STEP_EXACT ? exact_pos(w, depth, pos) : result == GRAM_STEP_OK;
}

static void walk_tree(walk *w, gram_pos root, const gram_trie_node *nodes, uint32_t n, const gram_slice *slice)
{
    gram_machine *m = w->m;
    gram_pos *stack = w->g->stack;
    const uint32_t **rows = w->g->rows;
    uint8_t *path = w->g->path;
    const uint16_t others = slice != NULL ? (uint16_t)~slice->classes : 0xFFFF;
    stack[0] = root;
    rows[0] = gram_machine_row(m, root.lex);
    for (uint32_t i = 1; i < n && rows[0] != NULL;) {
        const gram_trie_node *node = &nodes[i];
        const uint32_t depth = node->depth;
        const gram_pos *above = &stack[depth - 1];
        const uint32_t cell = rows[depth - 1][node->byte];
        if (cell == GRAM_DEAD || (node->classes & others) == 0) {
            i += node->size;
            continue;
        }
        gram_pos pos = *above;
        path[depth - 1] = node->byte;
        if ((cell & GRAM_SLOW) != 0) {
            if (!slow(w, depth, node->byte, &pos)) {
                i += node->size;
                continue;
            }
        } else {
            pos.lex = cell & GRAM_ID;
            pos.n += (cell & GRAM_COUNT) != 0;
            if ((cell & GRAM_CHECK) != 0 && pos.n > gram_lex_at(m->lexes, pos.lex)->limit) {
                i += node->size;
                continue;
            }
        }
        if (node->token >= 0) {
            allow(w, node->token);
        }
        if (node->size > 1) {
            stack[depth] = pos;
            rows[depth] = gram_machine_row(m, pos.lex);
            if (rows[depth] == NULL) {
                return; /* the machine has failed */
            }
        }
        i++;
    }
}

gram_pos gram_mask_key(const di_grammar *g, const di_vocabulary *v, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(&g->lexes, pos.lex);
    if (state->kind < LX_CHAR || state->kind > LX_LOW || state->words[2] == 0) {
        return pos;
    }
    const gram_span span = gram_span_at(&g->lexes, state->words[2]);
    const uint32_t reach = v->max_chars + 1; /* of one token */
    if (span.min == GRAM_INF) {
        return pos;
    }
    if (state->limit != GRAM_INF && (pos.n > state->limit || state->limit - pos.n <= reach)) {
        return pos;
    }
    if (pos.n >= span.min) {
        pos.n = span.min;
    } else if (span.min - pos.n > reach) {
        pos.n = 0;
    }
    return pos;
}

static void compute(walk *w, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(w->m->lexes, pos.lex);
    const bool counted = state->kind == LX_CHAR && state->words[2] != 0;
    const uint32_t left = !counted || state->limit == GRAM_INF ? GRAM_INF : state->limit > pos.n ? state->limit - pos.n : 0;
    const gram_slice *slice = gram_vocab_slice(w->v, loops_of(w->m, pos), left);
    const size_t bytes = w->v->words * sizeof *w->mask;
    if (slice != NULL) {
        memcpy(w->mask, slice->mask, bytes);
    } else {
        memset(w->mask, 0, bytes);
    }
    if (slice != NULL && slice->rest != NULL) {
        walk_tree(w, pos, slice->rest, slice->n_rest, NULL);
    } else {
        walk_tree(w, pos, w->v->nodes, w->v->n_nodes, slice);
    }
    if (gram_machine_accepts(w->m, pos)) {
        for (size_t i = 0; i < w->v->n_end_ids; i++) {
            w->mask[w->v->end_ids[i] / 32] |= 1u << w->v->end_ids[i] % 32;
        }
    }
}

static gram_cached_mask *find_cached(di_grammar *g, const di_vocabulary *v, gram_pos pos)
{
    for (int i = 0; i < GRAM_CACHED_MASKS; i++) {
        gram_cached_mask *one = &g->cache[i];
        if (one->vocabulary == v->id && one->mask != NULL && one->pos.ctx == pos.ctx && one->pos.lex == pos.lex && one->pos.n == pos.n) {
            return one;
        }
    }
    return NULL;
}

/* The entry that was used longest ago, with memory; NULL when there is none to be had. */
static gram_cached_mask *make_cached(di_grammar *g, const di_vocabulary *v)
{
    gram_cached_mask *oldest = &g->cache[0];
    for (int i = 1; i < GRAM_CACHED_MASKS; i++) {
        oldest = g->cache[i].used < oldest->used ? &g->cache[i] : oldest;
    }
    if (oldest->mask == NULL || oldest->words != v->words) {
        free(oldest->mask);
        oldest->mask = malloc(v->words * sizeof *oldest->mask);
        oldest->used = 0;
    }
    return oldest->mask != NULL ? oldest : NULL;
}

di_status gram_mask_at(di_grammar *g, di_vocabulary *v, gram_pos pos, const uint8_t *text, size_t n_text, uint32_t *mask, bool *restricts,
                       di_error *err)
{
    const size_t bytes = v->words * sizeof *mask;
    const gram_pos key = gram_mask_key(g, v, pos);
    gram_cached_mask *cached = find_cached(g, v, key);
    g->stats.n_masks++;
    if (cached != NULL) {
        g->stats.n_mask_hits++;
        cached->used = ++g->turn;
        memcpy(mask, cached->mask, bytes);
        *restricts = cached->restricts;
        return DI_OK;
    }
    if (!make_room(g, v)) {
        return err_memory(err, "walk over the tokens", v->max_depth * sizeof(gram_pos));
    }
    const int64_t start = clock_now_ns();
    walk w = {g, &g->machine, v, text, n_text, pos, mask, false};
    if (!gram_begin_step(g)) {
        return gram_status(&g->mem, err);
    }
    compute(&w, key);
    if (gram_failed(&g->mem)) {
        return gram_status(&g->mem, err);
    }
    *restricts = memcmp(mask, v->all, bytes) != 0;
    const int64_t took = clock_now_ns() - start;
    g->stats.worst_mask_ns = took > g->stats.worst_mask_ns ? took : g->stats.worst_mask_ns;
    cached = w.textual ? NULL : make_cached(g, v);
    if (cached != NULL) {
        *cached = (gram_cached_mask){v->id, v->words, key, cached->mask, *restricts, ++g->turn};
        memcpy(cached->mask, mask, bytes);
    }
    return DI_OK;
}
