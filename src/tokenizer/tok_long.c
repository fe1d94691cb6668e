/* tok_long.c - the merge loop for pieces of any length (tokenizer.md 5, tier 3).
 *
 * Merging goes product by product in rising order. A product's places wait in a list of its own, so that the queue holds each
 * product once however often it occurs, and a run of a million equal characters costs a few steps a byte. Merging a product
 * only makes places of higher products, never of itself, so that a list is complete when its turn comes. Within a list order
 * matters only where a place can overlap the next, which needs a product of two equal halves: those lists are sorted.
 *
 * Symbols form a doubly linked list over an array. A place whose symbols have changed since is stale and is skipped. */
#include "tokenizer/tok_int.h"

#include <stdlib.h>

/* Positions fit 32 bits (TOK_MAX_TEXT). */
typedef struct tok_symbol {
    int32_t id;     /* TOK_NONE: merged into its left neighbour */
    int32_t merged; /* product with the right neighbour as last looked up, TOK_NONE when there is none */
    uint32_t previous;
    uint32_t next;
} tok_symbol;

typedef struct tok_place {
    uint32_t at;   /* symbol */
    uint32_t next; /* place of the same product, 0 = none (place 0 is not used) */
} tok_place;

/* The waiting places of one product. Kept in the scratch for all ids, zero between calls. */
typedef struct tok_places {
    uint32_t first;
    uint32_t last;
} tok_places;

typedef struct work {
    const di_tokenizer *tok;
    tok_symbol *symbols;
    uint32_t n; /* symbols at the start */
    tok_place *places;
    uint32_t n_places;
    tok_places *lists; /* [n_ids] */
    int32_t *heap;     /* products that have places */
    size_t n_heap;
} work;

static void heap_push(work *w, int32_t product)
{
    size_t i = w->n_heap++;
    while (i != 0 && w->heap[(i - 1) / 2] > product) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = product;
}

static int32_t heap_pop(work *w)
{
    const int32_t top = w->heap[0];
    const int32_t moved = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < w->n_heap; child = 2 * i + 1) {
        child += child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child] ? 1 : 0;
        if (w->heap[child] >= moved) {
            break;
        }
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = moved;
    return top;
}

/* Room for n symbols: at most n - 1 places at the start and two for each of at most n - 1 merges. */
static bool reserve(const di_tokenizer *tok, tok_scratch *scratch, size_t n)
{
    if (scratch->lists == NULL) {
        scratch->lists = calloc((size_t)tok->n_ids, sizeof *scratch->lists);
        scratch->heap = malloc((size_t)tok->n_ids * sizeof *scratch->heap);
    }
    if (n > scratch->n_symbols) {
        const size_t capacity = n + n / 4;
        free(scratch->symbols);
        free(scratch->places);
        scratch->symbols = malloc(capacity * sizeof *scratch->symbols);
        scratch->places = malloc(capacity * 3 * sizeof *scratch->places);
        scratch->n_symbols = scratch->symbols != NULL && scratch->places != NULL ? capacity : 0;
    }
    return scratch->lists != NULL && scratch->heap != NULL && n <= scratch->n_symbols;
}

/* Looks up the merge of the symbol with its right neighbour and lets it wait. */
static inline void offer(work *w, uint32_t at)
{
    tok_symbol *symbol = &w->symbols[at];
    symbol->merged = symbol->next == w->n ? TOK_NONE : tok_pairs_find(&w->tok->pairs, symbol->id, w->symbols[symbol->next].id);
    if (symbol->merged == TOK_NONE) {
        return;
    }
    const uint32_t place = ++w->n_places;
    tok_places *list = &w->lists[symbol->merged];
    w->places[place] = (tok_place){.at = at};
    if (list->first == 0) {
        list->first = place;
        heap_push(w, symbol->merged);
    } else {
        w->places[list->last].next = place;
    }
    list->last = place;
}

/* Sorts a list by position; bottom-up merge sort over links, O(n log n) without recursion. `sorted[k]` holds 2^k places. */
static uint32_t merge_lists(tok_place *places, uint32_t a, uint32_t b)
{
    uint32_t first = 0;
    uint32_t *link = &first;
    while (a != 0 && b != 0) {
        uint32_t *lower = places[a].at <= places[b].at ? &a : &b;
        *link = *lower;
        link = &places[*lower].next;
        *lower = *link;
    }
    *link = a != 0 ? a : b;
    return first;
}

static uint32_t sort_list(tok_place *places, uint32_t first)
{
    uint32_t sorted[32] = {0};
    while (first != 0) {
        uint32_t carried = first;
        first = places[first].next;
        places[carried].next = 0;
        int k = 0;
        for (; k < 31 && sorted[k] != 0; k++) {
            carried = merge_lists(places, sorted[k], carried);
            sorted[k] = 0;
        }
        sorted[k] = k == 31 && sorted[k] != 0 ? merge_lists(places, sorted[k], carried) : carried;
    }
    uint32_t all = 0;
    for (int k = 0; k < 32; k++) {
        all = merge_lists(places, sorted[k], all);
    }
    return all;
}

static bool is_sorted(const tok_place *places, uint32_t place)
{
    for (; places[place].next != 0; place = places[place].next) {
        if (places[places[place].next].at < places[place].at) {
            return false;
        }
    }
    return true;
}

static void merge_at(work *w, uint32_t at, int32_t product)
{
    tok_symbol *left = &w->symbols[at];
    tok_symbol *right = &w->symbols[left->next];
    left->id = product;
    left->next = right->next;
    right->id = TOK_NONE;
    if (left->next != w->n) {
        w->symbols[left->next].previous = at;
    }
    if (at != 0) {
        offer(w, left->previous);
    }
    offer(w, at);
}

static void merge_product(work *w, int32_t product)
{
    uint32_t place = w->lists[product].first;
    w->lists[product] = (tok_places){.first = 0};
    if (!is_sorted(w->places, place)) {
        place = sort_list(w->places, place);
    }
    for (; place != 0; place = w->places[place].next) {
        const uint32_t at = w->places[place].at;
        if (w->symbols[at].id != TOK_NONE && w->symbols[at].merged == product) {
            merge_at(w, at, product);
        }
    }
}

bool tok_long_merge(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, tok_out *out)
{
    if (!reserve(tok, scratch, n)) {
        return false;
    }
    work w = {
        .tok = tok,
        .symbols = scratch->symbols,
        .places = scratch->places,
        .lists = scratch->lists,
        .heap = scratch->heap,
    };
    const bool cjk = tok_starts_in_cjk(s, n);
    for (size_t i = 0; i < n;) {
        const int32_t id = cjk ? tok_cjk_token(tok, s + i, n - i) : TOK_NONE;
        w.symbols[w.n] = (tok_symbol){.id = id != TOK_NONE ? id : tok->byte_id[s[i]], .previous = w.n - 1, .next = w.n + 1};
        w.n++;
        i += id != TOK_NONE ? TOK_CJK_BYTES : 1;
    }
    for (uint32_t i = 0; i < w.n; i++) {
        offer(&w, i);
    }
    while (w.n_heap != 0) {
        merge_product(&w, heap_pop(&w));
    }
    for (uint32_t i = 0; i != w.n; i = w.symbols[i].next) {
        tok_emit(out, w.symbols[i].id);
    }
    return true;
}
