/* gram_mask_lex.c - masks by the state of the byte automaton, kept for all contexts; see gram_mask.h.
 *
 * What is kept for a state: the tokens that are allowed whatever the context, as a mask or a list, and the exits. Exits
 * of one state and byte are one group, since the machine says the same of all of them: it is asked once, and the rests
 * of all their tokens are one tree. So a string in any member of any object costs a copy and a walk over the few texts
 * that follow quotes in tokens.
 *
 * Inside of a string that may be any text, all of that is the same in every grammar, so it is kept with the vocabulary.
 *
 * When the text matters behind an exit, the tokens there take the whole way from the root, one by one. Where these are many the answer
 * is given up: a walk over all tokens shares what they have in common. */
#include "grammar/gram_mask.h"

#include <stdlib.h>

#define MAX_LISTED 512u           /* tokens; more are a mask */
#define MAX_RESTS 1000u           /* nodes behind an exit; larger trees are used as they are */
#define MAX_EXACT 256u            /* tokens that go with the text */
#define MAX_BYTES ((size_t)8 << 20) /* of what is kept for a grammar */

typedef struct rest_node {
    uint32_t size;        /* of the subtree */
    uint32_t first_token; /* those that end here */
    uint32_t n_tokens;
    uint16_t depth;       /* 1 = the byte behind the exit's */
    uint8_t byte;
} rest_node;

typedef struct group {
    uint32_t lex;
    uint32_t n;
    uint8_t byte;
    uint32_t first_node; /* the root, which is the exit's byte */
    uint32_t n_nodes;
    const gram_trie_node *node; /* instead, of the tree itself; NULL = none */
} group;

struct gram_state_mask {
    uint64_t vocabulary;
    uint32_t lex;
    uint32_t n;
    uint32_t *mask;    /* NULL = listed */
    int32_t *listed;   /* [n_listed] */
    uint32_t n_listed;
    group *groups;     /* [n_groups] */
    uint32_t n_groups;
    rest_node *nodes;
    int32_t *tokens;   /* of the nodes */
    const gram_tree *tree; /* that exits are nodes of */
    size_t bytes;
};

void gram_state_mask_free(gram_state_mask *s)
{
    if (s != NULL) {
        free(s->mask);
        free(s->listed);
        free(s->groups);
        free(s->nodes);
        free(s->tokens);
        free(s);
    }
}

static void clear(gram_state_masks *masks)
{
    for (uint32_t i = 0; i < masks->n_slots; i++) {
        gram_state_mask_free(masks->slots[i]);
        masks->slots[i] = NULL;
    }
    masks->n = 0;
    masks->bytes = 0;
}

void gram_state_masks_free(gram_state_masks *masks)
{
    clear(masks);
    free(masks->slots);
    *masks = (gram_state_masks){.n = 0};
}

/* --- Exits to groups ---------------------------------------------------------------------------------------------- */

/* What is left of a token behind an exit. */
typedef struct rest {
    uint64_t key; /* the first eight bytes, for a quick comparison */
    const uint8_t *bytes;
    uint32_t n;
    int32_t token;
} rest;

typedef struct rests {
    rest *at;
    uint32_t n;
    uint32_t capacity;
} rests;

static int by_place(const void *a, const void *b)
{
    const gram_exit *x = a;
    const gram_exit *y = b;
    if (x->lex != y->lex) {
        return x->lex < y->lex ? -1 : 1;
    }
    if (x->n != y->n) {
        return x->n < y->n ? -1 : 1;
    }
    return (int)x->byte - (int)y->byte;
}

static int by_bytes(const void *a, const void *b)
{
    const rest *x = a;
    const rest *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    const int order = x->n > 8 && y->n > 8 ? memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n) : 0;
    if (order != 0 || x->n != y->n) {
        return order != 0 ? order : x->n < y->n ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
}

static rest make_rest(const di_vocabulary *v, int32_t token, uint32_t depth)
{
    size_t n;
    const uint8_t *bytes = di_tokenizer_bytes(v->tokenizer, token, &n);
    rest r = {0, bytes + depth, (uint32_t)n - depth, token};
    for (uint32_t i = 0; i < 8; i++) {
        r.key = r.key << 8 | (i < r.n ? r.bytes[i] : 0);
    }
    return r;
}

/* The tokens of the subtree at an exit. */
static bool add_rests(const di_vocabulary *v, const gram_trie_node *exit, rests *all)
{
    for (uint32_t i = 0; i < exit->size; i++) {
        if (exit[i].token < 0) {
            continue;
        }
        if (all->n == all->capacity) {
            const uint32_t capacity = all->capacity != 0 ? 2 * all->capacity : 512;
            rest *at = realloc(all->at, capacity * sizeof *at);
            if (at == NULL) {
                return false;
            }
            all->at = at;
            all->capacity = capacity;
        }
        all->at[all->n++] = make_rest(v, exit[i].token, exit->depth);
    }
    return true;
}

/* Where groups, nodes and tokens are built. */
typedef struct builder {
    gram_state_mask *s;
    uint32_t n_nodes;
    uint32_t n_tokens;
    uint32_t *open; /* nodes on the way to the present one */
} builder;

/* Appends the tree of sorted rests; there is room. */
static void append_tree(builder *b, const rest *at, uint32_t n)
{
    gram_state_mask *s = b->s;
    const uint32_t root = b->n_nodes++;
    s->nodes[root] = (rest_node){.size = 1, .first_token = b->n_tokens};
    b->open[0] = root;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i != 0 && shared < at[i].n && shared < at[i - 1].n && at[i].bytes[shared] == at[i - 1].bytes[shared]) {
            shared++;
        }
        for (uint32_t k = shared; k < at[i].n; k++) {
            for (uint32_t up = 0; up <= k; up++) {
                s->nodes[b->open[up]].size++;
            }
            b->open[k + 1] = b->n_nodes;
            s->nodes[b->n_nodes++] = (rest_node){
                .size = 1, .first_token = b->n_tokens, .depth = (uint16_t)(k + 1), .byte = at[i].bytes[k]};
        }
        s->nodes[b->open[at[i].n]].n_tokens++;
        s->tokens[b->n_tokens++] = at[i].token;
    }
}

static bool make_room(builder *b, uint32_t n_groups, const rests *all, uint32_t max_depth)
{
    size_t nodes = n_groups;
    for (uint32_t i = 0; i < all->n; i++) {
        nodes += all->at[i].n;
    }
    b->s->groups = calloc((size_t)n_groups + 1, sizeof *b->s->groups);
    b->s->nodes = calloc(nodes + 1, sizeof *b->s->nodes);
    b->s->tokens = calloc((size_t)all->n + 1, sizeof *b->s->tokens);
    b->open = calloc((size_t)max_depth + 2, sizeof *b->open);
    b->s->bytes += (size_t)n_groups * sizeof *b->s->groups + nodes * sizeof *b->s->nodes + all->n * sizeof *b->s->tokens;
    return b->s->groups != NULL && b->s->nodes != NULL && b->s->tokens != NULL && b->open != NULL;
}

/* An exit that has no tree of rests: there is nothing to put together, or too much. */
static bool is_alone(const gram_exits *exits, uint32_t i)
{
    const bool first = i == 0 || by_place(&exits->at[i - 1], &exits->at[i]) != 0;
    const bool last = i + 1 == exits->n || by_place(&exits->at[i], &exits->at[i + 1]) != 0;
    return (first && last) || exits->at[i].node->size > MAX_RESTS;
}

/* Sorts the exits and makes a group of each run of equal ones. False: out of memory. */
static bool make_groups(const di_vocabulary *v, gram_state_mask *s, gram_exits *exits)
{
    rests all = {.n = 0};
    builder b = {.s = s};
    uint32_t *ends = calloc((size_t)exits->n + 1, sizeof *ends); /* of the rests of each exit */
    bool ok = ends != NULL;
    if (exits->n > 1) {
        qsort(exits->at, exits->n, sizeof *exits->at, by_place);
    }
    for (uint32_t i = 0; ok && i < exits->n; i++) {
        const bool alone = is_alone(exits, i);
        s->n_groups += alone || i == 0 || by_place(&exits->at[i - 1], &exits->at[i]) != 0;
        ok = alone || add_rests(v, exits->at[i].node, &all);
        ends[i] = all.n;
    }
    ok = ok && make_room(&b, s->n_groups, &all, v->max_depth);
    s->n_groups = 0;
    for (uint32_t i = 0; ok && i < exits->n;) {
        const gram_exit *exit = &exits->at[i];
        const uint32_t from = i == 0 ? 0 : ends[i - 1];
        const uint32_t first = b.n_nodes;
        const bool alone = is_alone(exits, i);
        do {
            i++;
        } while (!alone && i < exits->n && by_place(exit, &exits->at[i]) == 0);
        if (!alone) {
            qsort(all.at + from, ends[i - 1] - from, sizeof *all.at, by_bytes);
            append_tree(&b, all.at + from, ends[i - 1] - from);
        }
        s->groups[s->n_groups++] = (group){exit->lex, exit->n, exit->byte, first, b.n_nodes - first, alone ? exit->node : NULL};
    }
    free(ends);
    free(all.at);
    free(b.open);
    return ok;
}

/* --- Keeping ------------------------------------------------------------------------------------------------------ */

static gram_state_mask **slot_of(const gram_state_masks *masks, uint64_t vocabulary, uint32_t lex, uint32_t n)
{
    uint32_t i = (uint32_t)(((uint64_t)lex << 32 | n) * 0x9E3779B97F4A7C15u >> 40) & (masks->n_slots - 1);
    for (const gram_state_mask *s = masks->slots[i]; s != NULL; s = masks->slots[i]) {
        if (s->lex == lex && s->n == n && s->vocabulary == vocabulary) {
            break;
        }
        i = (i + 1) & (masks->n_slots - 1);
    }
    return &masks->slots[i];
}

static bool grow(gram_state_masks *masks)
{
    const gram_state_masks old = *masks;
    masks->n_slots = old.n_slots != 0 ? 2 * old.n_slots : 64;
    masks->slots = calloc(masks->n_slots, sizeof *masks->slots);
    if (masks->slots == NULL) {
        *masks = old;
        return false;
    }
    for (uint32_t i = 0; i < old.n_slots; i++) {
        if (old.slots[i] != NULL) {
            *slot_of(masks, old.slots[i]->vocabulary, old.slots[i]->lex, old.slots[i]->n) = old.slots[i];
        }
    }
    free(old.slots);
    return true;
}

/* What was just found: as a list if it is short, else as a mask. False: out of memory. */
static bool keep_hits(gram_mask_work *w, gram_state_mask *s, const gram_slice *slice)
{
    const size_t bytes = w->v->words * sizeof *w->mask;
    const uint32_t n = w->g->n_hits;
    if (slice != NULL || n > MAX_LISTED) {
        gram_mask_fill(w, slice);
        s->mask = malloc(bytes);
        s->bytes += bytes;
        return s->mask != NULL && memcpy(s->mask, w->mask, bytes) != NULL;
    }
    s->listed = malloc((n + (size_t)1) * sizeof *s->listed);
    s->n_listed = n;
    s->bytes += n * sizeof *s->listed;
    if (s->listed != NULL && n != 0) {
        memcpy(s->listed, w->g->hits, n * sizeof *s->listed);
    }
    return s->listed != NULL;
}

/* Makes what is kept for a state; NULL when that failed. The mask is used for it. */
static gram_state_mask *make(gram_mask_work *w, gram_pos pos)
{
    gram_exits exits = {.n = 0};
    gram_state_mask *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    *s = (gram_state_mask){.vocabulary = w->v->id, .lex = pos.lex, .n = pos.n, .bytes = sizeof *s};
    const gram_slice *slice = gram_mask_hits(w, pos, &exits);
    s->tree = w->tree;
    const bool ok = !exits.failed && !gram_failed(w->m->mem) && make_groups(w->v, s, &exits) && keep_hits(w, s, slice);
    free(exits.at);
    if (!ok) {
        gram_state_mask_free(s);
        return NULL;
    }
    return s;
}

static const gram_state_mask *find_or_make(gram_mask_work *w, gram_pos pos)
{
    gram_state_masks *masks = &w->g->state_masks;
    if (2 * masks->n >= masks->n_slots && !grow(masks)) {
        return NULL;
    }
    gram_state_mask **slot = slot_of(masks, w->v->id, pos.lex, pos.n);
    if (*slot != NULL) {
        return *slot;
    }
    gram_state_mask *made = make(w, pos);
    if (made != NULL && masks->bytes + made->bytes > MAX_BYTES) {
        clear(masks);
        slot = slot_of(masks, w->v->id, pos.lex, pos.n);
    }
    if (made != NULL) {
        masks->n++;
        masks->bytes += made->bytes;
        *slot = made;
    }
    return made;
}

/* A state of JSON strings that every character leads back to, and that nothing counts. Its exits are quotes in this very state. */
static bool is_any_text(const gram_mask_work *w, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(w->m->lexes, pos.lex);
    if (state->kind != LX_CHAR || (state->mode != MODE_STRING && state->mode != MODE_KEY) || state->words[2] != 0 || pos.n != 0) {
        return false;
    }
    const gram_vec_row *row = gram_vec_row_of(w->m->lexes, state->words[1]);
    for (uint32_t i = 0, first = 0; i < row->n; first = row->seg[i].last + 1, i++) {
        const bool surrogates = first >= 0xD800 && row->seg[i].last <= 0xDFFF;
        if (row->seg[i].to != state->words[1] && !surrogates) {
            return false;
        }
    }
    return true;
}

/* What the vocabulary keeps for such a state, made if need be; NULL when that failed. */
static const gram_state_mask *find_or_publish(gram_mask_work *w, gram_pos pos)
{
    gram_state_mask **shared = &w->v->any_text[w->m->lexes->escapes_all];
    gram_state_mask *there = __atomic_load_n(shared, __ATOMIC_ACQUIRE);
    if (there != NULL) {
        return there;
    }
    gram_state_mask *made = make(w, pos);
    if (made != NULL && !__atomic_compare_exchange_n(shared, &there, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        gram_state_mask_free(made); /* another grammar was faster */
        made = there;
    }
    return made;
}

/* --- Use ---------------------------------------------------------------------------------------------------------- */

/* One step without the text. */
static gram_step_result step(gram_mask_work *w, uint32_t cell, gram_pos *pos, uint8_t byte)
{
    if ((cell & GRAM_SLOW) != 0) {
        return gram_machine_step(w->m, pos, byte, NULL);
    }
    pos->lex = cell & GRAM_ID;
    pos->n += (cell & GRAM_COUNT) != 0;
    const bool fits = (cell & GRAM_CHECK) == 0 || pos->n <= gram_lex_at(w->m->lexes, pos->lex)->limit;
    return pos->lex != 0 && fits ? GRAM_STEP_OK : GRAM_STEP_DEAD;
}

/* A token for which the text matters goes its way with the text, from where it leaves the way of the one before. */
static void allow_exactly(gram_mask_work *w, int32_t token)
{
    size_t n;
    const uint8_t *bytes = di_tokenizer_bytes(w->v->tokenizer, token, &n);
    gram_pos *ways = w->g->ways;
    uint32_t i = 0;
    while (i < w->n_way && i < n && bytes[i] == w->way[i]) {
        i++;
    }
    w->textual = true;
    w->n_exact++;
    if (w->way_ends && i == w->n_way && i < n && bytes[i] == w->way[i]) {
        return;
    }
    ways[0] = w->start;
    for (bool goes_on = true; goes_on && i < n; i += goes_on) {
        const gram_before before = {w->text, w->n_text, bytes, i};
        ways[i + 1] = ways[i];
        goes_on = gram_machine_step(w->m, &ways[i + 1], bytes[i], &before) == GRAM_STEP_OK;
    }
    w->way = bytes;
    w->n_way = i;
    w->way_ends = i < n;
    if (i == n) {
        gram_mask_allow(w, token);
    }
}

/* The tokens of a node of rests and below it, which stand side by side. */
static void allow_rests_exactly(gram_mask_work *w, const gram_state_mask *s, const group *g, uint32_t node)
{
    const rest_node *last = &s->nodes[g->first_node + node];
    const uint32_t from = last->first_token;
    last += last->size - 1;
    for (uint32_t i = from; i < last->first_token + last->n_tokens && w->n_exact <= MAX_EXACT; i++) {
        allow_exactly(w, s->tokens[i]);
    }
}

/* Walks over the rests of a group behind its exit. */
static void walk_rests(gram_mask_work *w, const gram_state_mask *s, const group *g, gram_pos pos)
{
    gram_walk_level *levels = w->g->levels;
    const rest_node *nodes = s->nodes + g->first_node;
    gram_mask_allow_all(w, s->tokens + nodes[0].first_token, nodes[0].n_tokens);
    levels[0] = (gram_walk_level){.pos = pos, .row = gram_machine_row(w->m, pos.lex)};
    for (uint32_t i = 1; i < g->n_nodes && levels[0].row != NULL;) {
        const rest_node *node = &nodes[i];
        const uint32_t cell = levels[node->depth - 1].row[node->byte];
        pos = levels[node->depth - 1].pos;
        const gram_step_result result = cell == GRAM_DEAD ? GRAM_STEP_DEAD : step(w, cell, &pos, node->byte);
        if (result == GRAM_STEP_EXACT) {
            allow_rests_exactly(w, s, g, i);
        }
        if (result != GRAM_STEP_OK) {
            i += node->size;
            continue;
        }
        gram_mask_allow_all(w, s->tokens + node->first_token, node->n_tokens);
        if (node->size > 1) {
            levels[node->depth] = (gram_walk_level){.pos = pos, .row = gram_machine_row(w->m, pos.lex)};
            if (levels[node->depth].row == NULL) {
                return; /* the machine has failed */
            }
        }
        i++;
    }
}

/* A group that is a subtree of the tree of tokens. */
static void walk_subtree(gram_mask_work *w, const gram_state_mask *s, const group *g, gram_pos pos, gram_step_result first)
{
    const bool textual = w->textual;
    bool exact = first == GRAM_STEP_EXACT;
    if (!exact) {
        w->textual = false;
        gram_mask_hits_below(w, s->tree, g->node, pos);
        exact = w->textual;
        w->textual = textual || exact;
    }
    if (!exact) {
        gram_mask_allow_all(w, w->g->hits, w->g->n_hits);
        return;
    }
    for (uint32_t i = 0; i < g->node->size && w->n_exact <= MAX_EXACT; i++) {
        if (g->node[i].token >= 0) {
            allow_exactly(w, g->node[i].token);
        }
    }
}

static void walk_group(gram_mask_work *w, const gram_state_mask *s, const group *g, gram_pos pos)
{
    const gram_step_result first = step(w, GRAM_SLOW, &pos, g->byte);
    if (first == GRAM_STEP_DEAD) {
        return;
    }
    if (g->node != NULL) {
        walk_subtree(w, s, g, pos, first);
    } else if (first == GRAM_STEP_EXACT) {
        allow_rests_exactly(w, s, g, 0);
    } else {
        walk_rests(w, s, g, pos);
    }
}

bool gram_mask_by_state(gram_mask_work *w, gram_pos pos)
{
    const bool any_text = is_any_text(w, pos);
    const gram_pos key = {0, pos.lex, pos.n};
    const gram_state_mask *s = any_text ? find_or_publish(w, key) : find_or_make(w, key);
    if (s == NULL) {
        return false;
    }
    if (s->mask != NULL) {
        memcpy(w->mask, s->mask, w->v->words * sizeof *w->mask);
    } else {
        memset(w->mask, 0, w->v->words * sizeof *w->mask);
        gram_mask_allow_all(w, s->listed, s->n_listed);
    }
    for (uint32_t i = 0; i < s->n_groups && w->n_exact <= MAX_EXACT; i++) {
        const group *g = &s->groups[i];
        walk_group(w, s, g, any_text ? pos : (gram_pos){pos.ctx, g->lex, g->n});
    }
    return w->n_exact <= MAX_EXACT && !gram_failed(w->m->mem);
}
