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
    free(g->levels);
    free(g->path);
    free(g->places);
    free(g->ways);
    g->levels = malloc(size * sizeof *g->levels);
    g->path = malloc(size);
    g->places = malloc(size * sizeof *g->places);
    g->ways = malloc(size * sizeof *g->ways);
    const bool ok = g->levels != NULL && g->path != NULL && g->places != NULL && g->ways != NULL;
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
    return result == GRAM_STEP_EXACT ? w->exactly && exact_pos(w, depth, pos) : result == GRAM_STEP_OK;
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

static void hit(di_grammar *g, int32_t token)
{
    if (g->n_hits == g->hit_capacity) {
        const uint32_t capacity = g->hit_capacity != 0 ? 2 * g->hit_capacity : 1024;
        int32_t *hits = realloc(g->hits, capacity * sizeof *hits);
        if (hits == NULL) {
            gram_fail(&g->mem, DI_E_MEMORY, "out of memory: %u tokens of a mask", capacity);
            return;
        }
        g->hits = hits;
        g->hit_capacity = capacity;
    }
    g->hits[g->n_hits++] = token;
}

/* Where a byte leads from `pos`, of whose row `cell` is the cell. */
static bool follow(gram_mask_work *w, uint32_t cell, uint32_t depth, uint8_t byte, gram_pos *pos)
{
    if ((cell & GRAM_SLOW) != 0) {
        return slow(w, depth, byte, pos);
    }
    pos->lex = cell & GRAM_ID;
    pos->n += (cell & GRAM_COUNT) != 0;
    return (cell & GRAM_CHECK) == 0 || pos->n <= gram_lex_at(w->m->lexes, pos->lex)->limit;
}

/* The tokens below a node of a tree, at which the place is `pos`, are added to the hits. */
static void walk(gram_mask_work *w, const gram_tree *tree, uint32_t from, gram_pos pos, skipped skip, gram_exits *exits)
{
    gram_walk_level *levels = w->g->levels;
    const uint16_t others = (uint16_t)~skip.classes;
    uint32_t depth = 0;
    levels[0] = (gram_walk_level){pos, gram_machine_row(w->m, pos.lex), tree->first[from], tree->first[from + 1]};
    while (levels[depth].row != NULL) { /* NULL: the machine has failed */
        gram_walk_level *level = &levels[depth];
        if (level->kid == level->end) {
            if (depth == 0) {
                return;
            }
            depth--;
            continue;
        }
        const uint32_t kid = level->kid++;
        const uint8_t byte = tree->bytes[kid];
        const uint32_t cell = level->row[byte];
        if (cell == GRAM_DEAD) {
            continue;
        }
        const gram_trie_node *node = &tree->nodes[tree->kids[kid]];
        if ((node->classes & others) == 0 && node->chars <= skip.chars) {
            continue;
        }
        if ((cell & GRAM_SLOW) != 0 && exits != NULL) {
            note_exit(exits, level->pos, node);
            continue;
        }
        w->g->path[depth] = byte;
        pos = level->pos;
        if (!follow(w, cell, depth + 1, byte, &pos)) {
            continue;
        }
        if (node->token >= 0) {
            hit(w->g, node->token);
        }
        if (node->size > 1) {
            const uint32_t i = tree->kids[kid];
            levels[++depth] = (gram_walk_level){pos, gram_machine_row(w->m, pos.lex), tree->first[i], tree->first[i + 1]};
        }
    }
}

const gram_slice *gram_mask_hits(gram_mask_work *w, gram_pos pos, gram_exits *exits)
{
    const gram_loops loops = gram_loops_of(w->m, pos);
    const gram_slice *slice = gram_vocab_slice(w->v, loops.classes, loops.chars, loops.exact);
    w->g->n_hits = 0;
    w->tree = &w->v->tree;
    if (slice == NULL) {
        walk(w, w->tree, 0, pos, (skipped){0, 0}, exits);
        return NULL;
    }
    /* Either longer tokens are dead, or there are none. */
    const bool complete = slice->max_chars == GRAM_INF || (loops.exact && slice->max_chars == loops.chars);
    if (complete && slice->rest.nodes != NULL) {
        w->tree = &slice->rest;
        walk(w, w->tree, 0, pos, (skipped){0, 0}, exits);
    } else {
        walk(w, w->tree, 0, pos, (skipped){slice->classes, complete ? GRAM_INF : slice->max_chars}, exits);
    }
    return slice;
}

void gram_mask_hits_below(gram_mask_work *w, const gram_tree *tree, const gram_trie_node *node, gram_pos pos)
{
    w->g->n_hits = 0;
    if (node->token >= 0) {
        hit(w->g, node->token);
    }
    walk(w, tree, (uint32_t)(node - tree->nodes), pos, (skipped){0, 0}, NULL);
}

void gram_mask_fill(gram_mask_work *w, const gram_slice *slice)
{
    const size_t bytes = w->v->words * sizeof *w->mask;
    if (slice != NULL) {
        memcpy(w->mask, slice->mask, bytes);
    } else {
        memset(w->mask, 0, bytes);
    }
    gram_mask_allow_all(w, w->g->hits, w->g->n_hits);
}
