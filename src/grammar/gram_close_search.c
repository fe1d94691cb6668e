/* gram_close_search.c - see gram_close.h. */
#include "grammar/gram_close.h"

#include <stdlib.h>

#define MAX_PLACES 20000u
#define FEW_PLACES 512u /* to begin with; a power of two */
#define MEMORY_SHARE 8  /* of the grammar's budget, for the states that a search makes */

typedef struct place {
    gram_pos pos;
    uint32_t parent;
    gram_out by;
    uint16_t taken;
    uint16_t estimate; /* of all of the way */
    uint32_t seen_from; /* the last place whose edges reached it, + 1 */
    bool expanded;
    bool good; /* on a shortest way */
} place;

typedef struct edge {
    uint32_t from;
    uint32_t to;
    gram_out by;
} edge;

typedef struct search {
    di_grammar *g;
    gram_machine *m;
    place *places;   /* [capacity], a power of two */
    uint32_t n_places;
    uint32_t capacity;
    uint32_t *slots; /* [2 * capacity] place + 1 */
    uint32_t *heap;  /* places by estimate, then by order */
    uint32_t n_heap;
    uint32_t heap_capacity;
    edge *edges;
    size_t n_edges;
    size_t edge_capacity;
    uint8_t *path;   /* bytes of the way to the place that is expanded */
    const uint8_t *text;
    size_t n_text;
    uint32_t best;   /* length of the shortest way, GRAM_INF = not known */
    size_t max_held; /* memory of the grammar beyond which the search gives up, so that the grammar can go on */
    bool no_memory;
    bool too_far;
} search;

/* --- Places ------------------------------------------------------------------------------------------------------- */

static bool before(const search *s, uint32_t a, uint32_t b)
{
    const place *x = &s->places[a];
    const place *y = &s->places[b];
    return x->estimate != y->estimate ? x->estimate < y->estimate : x->taken != y->taken ? x->taken > y->taken : a < b;
}

static void push(search *s, uint32_t p)
{
    if (s->n_heap == s->heap_capacity) {
        const uint32_t more = s->heap_capacity == 0 ? 256 : 2 * s->heap_capacity;
        uint32_t *heap = realloc(s->heap, more * sizeof *heap);
        if (heap == NULL) {
            s->no_memory = true;
            return;
        }
        s->heap = heap;
        s->heap_capacity = more;
    }
    uint32_t i = s->n_heap++;
    for (; i > 0 && before(s, p, s->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
    }
    s->heap[i] = p;
}

static uint32_t pop(search *s)
{
    const uint32_t top = s->heap[0];
    const uint32_t last = s->heap[--s->n_heap];
    uint32_t i = 0;
    for (uint32_t kid = 1; kid < s->n_heap; kid = 2 * i + 1) {
        kid += kid + 1 < s->n_heap && before(s, s->heap[kid + 1], s->heap[kid]);
        if (!before(s, s->heap[kid], last)) {
            break;
        }
        s->heap[i] = s->heap[kid];
        i = kid;
    }
    s->heap[i] = last;
    return top;
}

/* The slot of a position: where it is, or an empty one. */
static uint32_t slot_of(const search *s, gram_pos pos)
{
    const uint64_t key = (uint64_t)pos.ctx * 0x9E3779B97F4A7C15u ^ (uint64_t)pos.lex << 32 ^ (uint64_t)pos.n << 8;
    const uint32_t last = 2 * s->capacity - 1;
    uint32_t i = (uint32_t)(key * 0xD6E8FEB86659FD93u >> 40) & last;
    for (; s->slots[i] != 0; i = (i + 1) & last) {
        const gram_pos *there = &s->places[s->slots[i] - 1].pos;
        if (there->ctx == pos.ctx && there->lex == pos.lex && there->n == pos.n) {
            break;
        }
    }
    return i;
}

/* Room for more places. */
static bool grow(search *s)
{
    const uint32_t more = s->capacity == 0 ? FEW_PLACES : 2 * s->capacity;
    place *places = realloc(s->places, more * sizeof *places);
    s->places = places != NULL ? places : s->places;
    uint32_t *slots = places != NULL ? calloc(2 * (size_t)more, sizeof *slots) : NULL;
    if (slots == NULL) {
        s->no_memory = true;
        return false;
    }
    free(s->slots);
    s->slots = slots;
    s->capacity = more;
    for (uint32_t i = 0; i < s->n_places; i++) {
        s->slots[slot_of(s, s->places[i].pos)] = i + 1;
    }
    return true;
}

/* The place of a position, made if need be; GRAM_NONE when there are too many. */
static uint32_t place_of(search *s, gram_pos pos)
{
    uint32_t i = slot_of(s, pos);
    if (s->slots[i] != 0) {
        return s->slots[i] - 1;
    }
    if (s->n_places == MAX_PLACES) {
        s->too_far = true;
        return GRAM_NONE;
    }
    if (s->n_places == s->capacity) {
        if (!grow(s)) {
            return GRAM_NONE;
        }
        i = slot_of(s, pos);
    }
    s->places[s->n_places] = (place){.pos = pos, .taken = UINT16_MAX};
    s->slots[i] = ++s->n_places;
    return s->n_places - 1;
}

static void add_edge(search *s, edge one)
{
    if (s->n_edges == s->edge_capacity) {
        const size_t more = s->edge_capacity == 0 ? 1024 : 2 * s->edge_capacity;
        edge *edges = realloc(s->edges, more * sizeof *edges);
        if (edges == NULL) {
            s->no_memory = true;
            return;
        }
        s->edges = edges;
        s->edge_capacity = more;
    }
    s->edges[s->n_edges++] = one;
}

/* A way to `pos` over a place. Of several edges between two places the first counts. */
static void reach(search *s, uint32_t from, gram_out by, gram_pos pos)
{
    const uint32_t to = place_of(s, pos);
    if (to == GRAM_NONE || s->places[to].seen_from == from + 1) {
        return;
    }
    place *p = &s->places[to];
    const uint32_t taken = s->places[from].taken + 1u;
    p->seen_from = from + 1;
    add_edge(s, (edge){from, to, by});
    if (taken < p->taken) {
        const uint32_t estimate = taken + gram_least_to_come(s->m, pos);
        p->taken = (uint16_t)taken;
        p->estimate = (uint16_t)(estimate < UINT16_MAX ? estimate : UINT16_MAX);
        p->parent = from;
        p->by = by;
        push(s, to);
    }
}

/* --- Searching ---------------------------------------------------------------------------------------------------- */

/* Bytes of the way to a place; named tokens are no text. */
static size_t way_to(search *s, uint32_t p)
{
    size_t n = 0;
    for (uint32_t at = p; s->places[at].taken != 0; at = s->places[at].parent) {
        n += s->places[at].by < 256;
    }
    size_t i = n;
    for (uint32_t at = p; s->places[at].taken != 0; at = s->places[at].parent) {
        if (s->places[at].by < 256) {
            s->path[--i] = (uint8_t)s->places[at].by;
        }
    }
    return n;
}

static void expand(search *s, uint32_t p)
{
    const gram_pos pos = s->places[p].pos;
    const size_t n = way_to(s, p);
    const gram_before so_far = {s->text, s->n_text, s->path, n};
    const uint32_t *row = gram_machine_row(s->m, pos.lex);
    s->places[p].expanded = true;
    (void)gram_spend(s->m->mem, 16);
    for (uint32_t byte = 0; row != NULL && byte < 256 && !gram_failed(s->m->mem) && !s->no_memory; byte++) {
        gram_pos to = pos;
        if (gram_cell(row, (uint8_t)byte) != GRAM_DEAD && gram_machine_step(s->m, &to, (uint8_t)byte, &so_far) == GRAM_STEP_OK) {
            reach(s, p, byte, to);
        }
    }
    uint32_t token;
    for (uint32_t i = 0; s->m->cfg != NULL && (token = gram_cfg_token_at(s->m->cfg, pos, i)) != GRAM_NONE; i++) {
        gram_pos to = pos;
        if (gram_cfg_take_token(s->m->cfg, &to, token)) {
            reach(s, p, 256 + token, to);
        }
    }
}

/* Until all places on ways as short as the shortest have been expanded. */
static void run(search *s)
{
    while (s->n_heap > 0 && !s->no_memory && !gram_failed(s->m->mem)) {
        const uint32_t p = pop(s);
        const place *one = &s->places[p];
        if (s->best != GRAM_INF && one->estimate > s->best) {
            return;
        }
        if (one->expanded) {
            continue;
        }
        if (gram_machine_accepts(s->m, one->pos) && s->best == GRAM_INF) {
            s->best = one->taken;
        }
        if (one->taken == s->best) {
            continue;
        }
        if (one->taken + 1u >= GRAM_MAX_COMPLETION || s->m->mem->fuel < s->g->step_work / 4 || s->m->mem->mem.held > s->max_held ||
            s->too_far) {
            s->too_far = true;
            return;
        }
        expand(s, p);
    }
}

static int by_way(const void *a, const void *b)
{
    const edge *x = a;
    const edge *y = b;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : (x->by > y->by) - (x->by < y->by);
}

/* Marks what is on a shortest way, from the ends; then goes along it, taking the first edge. */
static void write_way(search *s, gram_out *out)
{
    for (uint32_t i = 0; i < s->n_places; i++) {
        place *p = &s->places[i];
        p->good = p->taken == s->best && gram_machine_accepts(s->m, p->pos);
    }
    /* Edges into places that were reached with so many steps: first + 1, then the next. */
    uint32_t *seen = calloc(s->n_edges + s->best + 1, sizeof *seen);
    uint32_t *first = seen != NULL ? seen + s->n_edges : NULL;
    if (first == NULL) {
        s->no_memory = true;
        return;
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const uint32_t taken = s->places[s->edges[i].to].taken;
        if (taken == s->places[s->edges[i].from].taken + 1u && taken <= s->best) {
            seen[i] = first[taken];
            first[taken] = i + 1;
        }
    }
    for (uint32_t taken = s->best; taken > 0; taken--) {
        for (uint32_t i = first[taken]; i != 0; i = seen[i - 1]) {
            place *from = &s->places[s->edges[i - 1].from];
            from->good = from->good || s->places[s->edges[i - 1].to].good;
        }
    }
    free(seen);
    qsort(s->edges, s->n_edges, sizeof *s->edges, by_way);
    for (uint32_t taken = 0, at = 0; taken < s->best; taken++) {
        size_t i = 0;
        for (size_t to = s->n_edges; i < to;) { /* the first edge from here */
            const size_t middle = i + (to - i) / 2;
            if (s->edges[middle].from < at) {
                i = middle + 1;
            } else {
                to = middle;
            }
        }
        while (!s->places[s->edges[i].to].good || s->places[s->edges[i].to].taken != taken + 1) {
            i++;
        }
        out[taken] = s->edges[i].by;
        at = s->edges[i].to;
    }
}

di_status gram_complete(di_grammar *g, gram_pos pos, const uint8_t *text, size_t n_text, gram_out *out, size_t *n, di_error *err)
{
    search s = {.g = g, .m = &g->machine, .text = text, .n_text = n_text, .best = GRAM_INF};
    const arena *const memory = &g->mem.mem;
    s.max_held = memory->held + (memory->max - memory->held) / MEMORY_SHARE;
    *n = 0;
    s.path = malloc(GRAM_MAX_COMPLETION);
    s.no_memory = s.path == NULL;
    if (!s.no_memory && grow(&s)) {
        const uint32_t start = place_of(&s, pos);
        s.places[start].taken = 0;
        s.places[start].estimate = 0;
        push(&s, start);
        run(&s);
    }
    const bool found = !s.no_memory && !s.too_far && !gram_failed(&g->mem) && s.best != GRAM_INF;
    if (found && s.best > 0) {
        write_way(&s, out);
        *n = s.no_memory ? 0 : s.best;
    }
    free(s.places);
    free(s.slots);
    free(s.path);
    free(s.heap);
    free(s.edges);
    if (s.no_memory) {
        return err_memory(err, "search for the end of a text", MAX_PLACES * sizeof *s.places);
    }
    if (gram_failed(&g->mem)) {
        return gram_status(&g->mem, err);
    }
    return found ? DI_OK : err_set(err, DI_E_LIMIT, "the end of the text is too far away to be searched for");
}

size_t gram_least_tokens(const di_vocabulary *v, const gram_out *out, size_t n, size_t least[GRAM_MAX_COMPLETION + 1])
{
    least[n] = 0;
    for (size_t i = n; i-- > 0;) {
        least[i] = out[i] >= 256 && least[i + 1] != SIZE_MAX ? least[i + 1] + 1 : SIZE_MAX;
        uint32_t node = 0;
        for (size_t k = i; k < n && out[k] < 256 && (node = gram_kid_of(&v->tree, node, out[k])) != 0; k++) {
            if (v->tree.nodes[node].token >= 0 && least[k + 1] != SIZE_MAX && least[k + 1] + 1 < least[i]) {
                least[i] = least[k + 1] + 1;
            }
        }
    }
    return least[0];
}
