/* gram_mask_lex.c - masks by the state of the byte automaton, kept for all contexts; see gram_mask.h.
 *
 * What is kept for a state: the tokens that are allowed whatever the context, as a mask or a list, and the exits. Exits
 * of one state and byte are one group, since the machine says the same of all of them: it is asked once, and the rests
 * of all their tokens are one tree. So a string in any member of any object costs a copy and a walk over the few texts
 * that follow quotes in tokens.
 *
 * When the text matters behind an exit the answer is given up: it takes the whole way from the root. */
#include "grammar/gram_mask.h"

#include <stdlib.h>

#define MAX_LISTED 512u           /* tokens; more are a mask */
#define MAX_RESTS 20000u          /* tokens behind exits; with more a walk over all tokens is as good */
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
} group;

struct gram_state_mask {
    uint64_t vocabulary;
    uint32_t lex;
    uint32_t n;
    bool unfit;        /* too much depends on the context */
    uint32_t *mask;    /* NULL = listed */
    int32_t *listed;   /* [n_listed] */
    uint32_t n_listed;
    group *groups;     /* [n_groups] */
    uint32_t n_groups;
    rest_node *nodes;
    int32_t *tokens;   /* of the nodes */
    size_t bytes;
};

static void free_mask(gram_state_mask *s)
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
        free_mask(masks->slots[i]);
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
    const int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order != 0 || x->n != y->n) {
        return order != 0 ? order : x->n < y->n ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
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
        size_t n;
        const uint8_t *bytes = di_tokenizer_bytes(v->tokenizer, exit[i].token, &n);
        all->at[all->n++] = (rest){bytes + exit->depth, (uint32_t)n - exit->depth, exit[i].token};
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

/* Sorts the exits and makes a group of each run of equal ones. False: out of memory. */
static bool make_groups(const di_vocabulary *v, gram_state_mask *s, gram_exits *exits)
{
    rests all = {.n = 0};
    builder b = {.s = s};
    uint32_t *ends = calloc((size_t)exits->n + 1, sizeof *ends); /* of the rests of each group */
    uint32_t n_groups = 0;
    bool ok = ends != NULL;
    if (exits->n != 0) {
        qsort(exits->at, exits->n, sizeof *exits->at, by_place);
    }
    for (uint32_t i = 0; ok && i < exits->n && !s->unfit; i++) {
        ok = add_rests(v, exits->at[i].node, &all);
        s->unfit = all.n > MAX_RESTS;
        n_groups += i == 0 || by_place(&exits->at[i - 1], &exits->at[i]) != 0;
        ends[n_groups - 1] = all.n;
    }
    ok = ok && (s->unfit || make_room(&b, n_groups, &all, v->max_depth));
    for (uint32_t i = 0, k = 0; ok && !s->unfit && i < exits->n; i++) {
        if (i != 0 && by_place(&exits->at[i - 1], &exits->at[i]) == 0) {
            continue;
        }
        const uint32_t from = k == 0 ? 0 : ends[k - 1];
        const uint32_t first = b.n_nodes;
        qsort(all.at + from, ends[k] - from, sizeof *all.at, by_bytes);
        append_tree(&b, all.at + from, ends[k] - from);
        s->groups[k++] = (group){exits->at[i].lex, exits->at[i].n, exits->at[i].byte, first, b.n_nodes - first};
    }
    s->n_groups = s->unfit ? 0 : n_groups;
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

/* The mask that was just made, as a list if it is short. False: out of memory. */
static bool keep_mask(gram_state_mask *s, const uint32_t *mask, size_t words)
{
    uint32_t n = 0;
    for (size_t i = 0; i < words; i++) {
        n += (uint32_t)__builtin_popcount(mask[i]);
    }
    if (n > MAX_LISTED) {
        s->mask = malloc(words * sizeof *mask);
        s->bytes += words * sizeof *mask;
        return s->mask != NULL && memcpy(s->mask, mask, words * sizeof *mask) != NULL;
    }
    s->listed = calloc((size_t)n + 1, sizeof *s->listed);
    s->bytes += n * sizeof *s->listed;
    for (size_t i = 0; s->listed != NULL && i < words; i++) {
        for (uint32_t left = mask[i]; left != 0; left &= left - 1) {
            s->listed[s->n_listed++] = (int32_t)(i * 32) + __builtin_ctz(left);
        }
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
    gram_mask_tokens(w, pos, &exits);
    const bool ok = !exits.failed && !gram_failed(w->m->mem) && make_groups(w->v, s, &exits) &&
                    (s->unfit || keep_mask(s, w->mask, w->v->words));
    free(exits.at);
    if (!ok) {
        free_mask(s);
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

/* --- Use ---------------------------------------------------------------------------------------------------------- */

static void allow_all(const gram_mask_work *w, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        gram_mask_allow(w, tokens[i]);
    }
}

/* One step without the text; false when the text is needed. *alive tells whether it leads on. */
static bool step(gram_machine *m, uint32_t cell, gram_pos *pos, uint8_t byte, bool *alive)
{
    if ((cell & GRAM_SLOW) != 0) {
        const gram_step_result result = gram_machine_step(m, pos, byte, NULL);
        *alive = result == GRAM_STEP_OK;
        return result != GRAM_STEP_EXACT;
    }
    pos->lex = cell & GRAM_ID;
    pos->n += (cell & GRAM_COUNT) != 0;
    *alive = pos->lex != 0 && ((cell & GRAM_CHECK) == 0 || pos->n <= gram_lex_at(m->lexes, pos->lex)->limit);
    return true;
}

/* The tokens of a group. False when the text is needed. */
static bool walk_group(const gram_mask_work *w, const gram_state_mask *s, const group *g, uint32_t ctx)
{
    gram_pos *stack = w->g->stack;
    const uint32_t **rows = w->g->rows;
    const rest_node *nodes = s->nodes + g->first_node;
    gram_pos pos = {ctx, g->lex, g->n};
    bool alive;
    if (!step(w->m, GRAM_SLOW, &pos, g->byte, &alive)) {
        return false;
    }
    if (!alive) {
        return true;
    }
    stack[0] = pos;
    rows[0] = gram_machine_row(w->m, pos.lex);
    allow_all(w, s->tokens + nodes[0].first_token, nodes[0].n_tokens);
    for (uint32_t i = 1; i < g->n_nodes && rows[0] != NULL;) {
        const rest_node *node = &nodes[i];
        const uint32_t cell = rows[node->depth - 1][node->byte];
        pos = stack[node->depth - 1];
        alive = false;
        if (cell != GRAM_DEAD && !step(w->m, cell, &pos, node->byte, &alive)) {
            return false;
        }
        if (!alive) {
            i += node->size;
            continue;
        }
        allow_all(w, s->tokens + node->first_token, node->n_tokens);
        if (node->size > 1) {
            stack[node->depth] = pos;
            rows[node->depth] = gram_machine_row(w->m, pos.lex);
            if (rows[node->depth] == NULL) {
                return false;
            }
        }
        i++;
    }
    return true;
}

bool gram_mask_by_state(gram_mask_work *w, gram_pos pos)
{
    const gram_state_mask *s = find_or_make(w, (gram_pos){0, pos.lex, pos.n});
    if (s == NULL || s->unfit) {
        return false;
    }
    if (s->mask != NULL) {
        memcpy(w->mask, s->mask, w->v->words * sizeof *w->mask);
    } else {
        memset(w->mask, 0, w->v->words * sizeof *w->mask);
        for (uint32_t i = 0; i < s->n_listed; i++) {
            w->mask[s->listed[i] / 32] |= 1u << s->listed[i] % 32;
        }
    }
    bool ok = true;
    for (uint32_t i = 0; ok && i < s->n_groups; i++) {
        ok = walk_group(w, s, &s->groups[i], pos.ctx);
    }
    return ok && !gram_failed(w->m->mem);
}
