/* gram_mask_key.c - masks inside of a member's name that the context must look at; see gram_mask.h.
 *
 * Such a name is a declared one or one of a class. Names of classes are a state of their own, the same for all contexts
 * that allow these classes, so their mask is kept. What it lacks lies along the declared names, and what it has too much
 * lies along the names that were used before: a walk along these two decides there. Where the text has left both, names
 * of classes are all there is. */
#include "grammar/gram_mask.h"

typedef gram_name_place place;

static void add_bytes(gram_machine *m, place *p, gram_ex ex)
{
    if (ex == GRAM_EX_NONE) {
        return;
    }
    const gram_row *row = gram_row_of(m->lang, ex);
    for (uint32_t i = 0, from = 0; i < row->n && from < 0x80; from = row->seg[i].last + 1, i++) {
        for (uint32_t c = from; row->seg[i].to != GRAM_EX_NONE && c < 0x80 && c <= row->seg[i].last; c++) {
            p->path[c / 64] |= (uint64_t)1 << c % 64;
        }
    }
    for (uint32_t i = row->n; i > 0 && row->seg[i - 1].last >= 0x80; i--) {
        if (row->seg[i - 1].to != GRAM_EX_NONE) {
            p->path[2] = p->path[3] = UINT64_MAX;
        }
    }
    p->path['\\' / 64] |= (uint64_t)1 << '\\' % 64;
    p->path['"' / 64] &= ~((uint64_t)1 << '"' % 64); /* as a character it is escaped */
}

/* The place at `pos`; false when it is on no way any more. */
static bool place_at(gram_machine *m, gram_pos pos, place *out)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos.lex);
    *out = (place){.pos = pos};
    if (state->kind < LX_CHAR || state->kind > LX_LOW) { /* the name has ended */
        memset(out->path, 0xFF, sizeof out->path);
        return true;
    }
    const gram_ex used = state->mode == MODE_KEY_CHECK ? pos.n : GRAM_EX_NONE;
    out->used = used != GRAM_EX_NONE;
    if (state->kind != LX_CHAR) {
        memset(out->path, 0xFF, sizeof out->path);
        return true;
    }
    const gram_ex words = m->lexes->vecs[state->words[1]].ex[0];
    add_bytes(m, out, words);
    add_bytes(m, out, used);
    if (gram_nullable(m->lang, words) || gram_nullable(m->lang, used)) {
        out->path['"' / 64] |= (uint64_t)1 << '"' % 64;
    }
    return words != GRAM_EX_NONE || out->used;
}

static void forbid_all(const gram_mask_work *w, const gram_trie_node *node)
{
    for (uint32_t i = 0; i < node->size; i++) {
        gram_mask_forbid(w, node[i].token);
    }
}

/* Along the ways. False when the text is needed. */
static bool walk_along(const gram_mask_work *w, place *stack)
{
    const gram_trie_node *nodes = w->v->nodes;
    for (uint32_t i = 1; i < w->v->n_nodes;) {
        const gram_trie_node *node = &nodes[i];
        const place *above = &stack[node->depth - 1];
        gram_pos pos = above->pos;
        if ((above->path[node->byte / 64] >> node->byte % 64 & 1) == 0) {
            i += node->size;
            continue;
        }
        const gram_step_result result = gram_machine_step(w->m, &pos, node->byte, NULL);
        if (result == GRAM_STEP_EXACT) {
            return false;
        }
        if (result == GRAM_STEP_DEAD && above->used) {
            forbid_all(w, node);
        }
        if (result == GRAM_STEP_DEAD || !place_at(w->m, pos, &stack[node->depth])) {
            i += node->size;
            continue;
        }
        gram_mask_allow(w, node->token);
        i++;
    }
    return true;
}

bool gram_mask_by_names(gram_mask_work *w, gram_pos pos)
{
    place *stack = w->g->places;
    const uint32_t names = gram_js_class_names(w->m, pos.ctx, gram_lex_at(w->m->lexes, pos.lex)->words[1]);
    if (gram_failed(w->m->mem)) {
        return false;
    }
    if (names == 0) {
        memset(w->mask, 0, w->v->words * sizeof *w->mask);
    } else if (!gram_mask_by_state(w, (gram_pos){pos.ctx, names, GRAM_EX_NONE})) {
        return false;
    }
    return !place_at(w->m, pos, &stack[0]) || (walk_along(w, stack) && !gram_failed(w->m->mem));
}
