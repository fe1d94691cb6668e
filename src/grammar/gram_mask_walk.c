/* gram_mask_walk.c - which tokens may follow: a slice as a whole, the others by a walk over their tree.
 *
 * The walk keeps a place for every depth; a node whose byte is dead takes its subtree with it. Where the machine needs
 * the text, the way from the root is gone again with it. */
#include "grammar/gram_mask.h"

#include <stdlib.h>

/* What a walk need not visit: subtrees of these classes alone whose tokens are no longer than this. */
typedef struct skipped {
    uint16_t classes;
    uint32_t chars;
} skipped;

bool gram_walk_room(di_grammar *g, const di_vocabulary *v)
{
    const uint32_t size = v->max_depth + 2;
    if (size <= g->stack_size) {
        return true;
    }
    free(g->stack);
    free(g->rows);
    free(g->path);
    free(g->places);
    g->stack = malloc(size * sizeof *g->stack);
    g->rows = malloc(size * sizeof *g->rows);
    g->path = malloc(size);
    g->places = malloc(size * sizeof *g->places);
    const bool ok = g->stack != NULL && g->rows != NULL && g->path != NULL && g->places != NULL;
    g->stack_size = ok ? size : 0;
    return ok;
}

/* The place behind path[0, depth), with the text. False when it is dead. */
static bool exact_pos(const gram_mask_work *w, uint32_t depth, gram_pos *out)
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
static bool slow(gram_mask_work *w, uint32_t depth, uint8_t byte, gram_pos *pos)
{
    const gram_step_result result = gram_machine_step(w->m, pos, byte, NULL);
    w->textual = w->textual || result == GRAM_STEP_EXACT;
    return result == GRAM_STEP_EXACT ? exact_pos(w, depth, pos) : result == GRAM_STEP_OK;
}

static void note_exit(gram_exits *exits, gram_pos above, const gram_trie_node *node)
{
    if (exits->n == exits->capacity) {
        const uint32_t capacity = exits->capacity != 0 ? 2 * exits->capacity : 256;
        gram_exit *at = realloc(exits->at, capacity * sizeof *at);
        if (at == NULL) {
            exits->failed = true;
            return;
        }
        exits->at = at;
        exits->capacity = capacity;
    }
    exits->at[exits->n++] = (gram_exit){above.lex, above.n, node->byte, node};
}

static void walk(gram_mask_work *w, gram_pos root, const gram_trie_node *nodes, uint32_t n, skipped skip,
                 gram_exits *exits)
{
    gram_machine *m = w->m;
    gram_pos *stack = w->g->stack;
    const uint32_t **rows = w->g->rows;
    uint8_t *path = w->g->path;
    const uint16_t others = (uint16_t)~skip.classes;
    stack[0] = root;
    rows[0] = gram_machine_row(m, root.lex);
    for (uint32_t i = 1; i < n && rows[0] != NULL;) {
        const gram_trie_node *node = &nodes[i];
        const uint32_t depth = node->depth;
        const uint32_t cell = rows[depth - 1][node->byte];
        if (cell == GRAM_DEAD || ((node->classes & others) == 0 && node->chars <= skip.chars)) {
            i += node->size;
            continue;
        }
        gram_pos pos = stack[depth - 1];
        path[depth - 1] = node->byte;
        if ((cell & GRAM_SLOW) != 0) {
            if (exits != NULL) {
                note_exit(exits, pos, node);
            }
            if (exits != NULL || !slow(w, depth, node->byte, &pos)) {
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
            gram_mask_allow(w, node->token);
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

void gram_mask_tokens(gram_mask_work *w, gram_pos pos, gram_exits *exits)
{
    const gram_loops loops = gram_loops_of(w->m, pos);
    const gram_slice *slice = gram_vocab_slice(w->v, loops.classes, loops.chars, loops.exact);
    const size_t bytes = w->v->words * sizeof *w->mask;
    if (slice == NULL) {
        memset(w->mask, 0, bytes);
        walk(w, pos, w->v->nodes, w->v->n_nodes, (skipped){0, 0}, exits);
        return;
    }
    memcpy(w->mask, slice->mask, bytes);
    /* Either longer tokens are dead, or there are none. */
    const bool complete = slice->max_chars == GRAM_INF || (loops.exact && slice->max_chars == loops.chars);
    if (complete && slice->rest != NULL) {
        walk(w, pos, slice->rest, slice->n_rest, (skipped){0, 0}, exits);
    } else {
        const skipped skip = {slice->classes, complete ? GRAM_INF : slice->max_chars};
        walk(w, pos, w->v->nodes, w->v->n_nodes, skip, exits);
    }
}
