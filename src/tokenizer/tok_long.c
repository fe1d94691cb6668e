/* tok_long.c - the merge loop for pieces of any length (tokenizer.md 5, tier 3).
 *
 * Merging goes product by product in rising order. The places where a product can be made form a list of its own, so that the
 * queue of products holds each once however often it occurs, and a run of a million equal characters costs a few steps a byte.
 * Making a product only opens places for higher ones, never for itself, so that a list is complete when its turn comes. Order
 * within a list matters only where a place can overlap the next, which takes a product of two equal halves; those lists are
 * sorted if need be.
 *
 * Symbols are one array with two pairs of links: neighbours in the text, and the list of the product that the symbol makes with
 * its right neighbour. Links are indices plus one, so that 0 is none. */
#include "tokenizer/tok_int.h"

#include <stdlib.h>

#define KEPT_SYMBOLS ((size_t)1 << 18) /* memory for longer pieces is returned at once */

typedef struct tok_symbol {
    int32_t id;
    int32_t product; /* of this and its right neighbour; TOK_NONE: none, the symbol is in no list */
    uint32_t left;
    uint32_t right;
    uint32_t earlier; /* in the list of `product` */
    uint32_t later;
} tok_symbol;

typedef struct tok_places {
    uint32_t first;
    uint32_t last;
    bool unsorted; /* a symbol was added behind one that stands to its right */
    bool queued;   /* the product is in the heap, which therefore never holds more than all ids */
} tok_places;

typedef struct work {
    const di_tokenizer *tok;
    tok_symbol *symbols; /* [n], used through at() */
    tok_places *lists;   /* [n_ids], all empty between calls */
    int32_t *heap;       /* products that have had places, smallest first */
    size_t n_heap;
} work;

static inline tok_symbol *at(const work *w, uint32_t link)
{
    return &w->symbols[link - 1];
}

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

static bool reserve(const di_tokenizer *tok, tok_scratch *scratch, size_t n)
{
    if (scratch->lists == NULL) {
        scratch->lists = calloc((size_t)tok->n_ids, sizeof *scratch->lists);
    }
    if (scratch->heap == NULL) {
        scratch->heap = malloc((size_t)tok->n_ids * sizeof *scratch->heap);
    }
    if (n > scratch->n_symbols) {
        const size_t capacity = n < KEPT_SYMBOLS ? KEPT_SYMBOLS : n;
        free(scratch->symbols);
        scratch->symbols = tok_alloc_huge(capacity * sizeof *scratch->symbols);
        scratch->n_symbols = scratch->symbols != NULL ? capacity : 0;
    }
    return scratch->lists != NULL && scratch->heap != NULL && n <= scratch->n_symbols;
}

static void leave_list(work *w, uint32_t link)
{
    tok_symbol *symbol = at(w, link);
    tok_places *list = &w->lists[symbol->product];
    *(symbol->earlier != 0 ? &at(w, symbol->earlier)->later : &list->first) = symbol->later;
    *(symbol->later != 0 ? &at(w, symbol->later)->earlier : &list->last) = symbol->earlier;
    symbol->product = TOK_NONE;
}

/* Looks up what the symbol makes with its right neighbour and puts it into that list. */
static inline void join_list(work *w, uint32_t link)
{
    tok_symbol *symbol = at(w, link);
    if (symbol->right == 0) {
        return;
    }
    symbol->product = tok_pairs_find(&w->tok->pairs, symbol->id, at(w, symbol->right)->id);
    if (symbol->product == TOK_NONE) {
        return;
    }
    tok_places *list = &w->lists[symbol->product];
    symbol->earlier = list->last;
    symbol->later = 0;
    if (list->last != 0) {
        at(w, list->last)->later = link;
        list->unsorted = list->unsorted || link < list->last;
    } else {
        list->first = link;
        if (!list->queued) {
            list->queued = true;
            heap_push(w, symbol->product);
        }
    }
    list->last = link;
}

/* Merges two sorted chains of `later`. */
static uint32_t merge_chains(work *w, uint32_t a, uint32_t b)
{
    uint32_t first = 0;
    uint32_t *link = &first;
    while (a != 0 && b != 0) {
        uint32_t *lower = a < b ? &a : &b;
        *link = *lower;
        link = &at(w, *lower)->later;
        *lower = *link;
    }
    *link = a != 0 ? a : b;
    return first;
}

/* Bottom-up merge sort: chains[k] is empty or holds 2^k places. */
static void sort_list(work *w, tok_places *list)
{
    uint32_t chains[32] = {0};
    for (uint32_t rest = list->first; rest != 0;) {
        uint32_t chain = rest;
        rest = at(w, rest)->later;
        at(w, chain)->later = 0;
        int k = 0;
        for (; chains[k] != 0; k++) { /* 2^31 places cannot be: TOK_MAX_TEXT */
            chain = merge_chains(w, chains[k], chain);
            chains[k] = 0;
        }
        chains[k] = chain;
    }
    uint32_t all = 0;
    for (int k = 0; k < 32; k++) {
        all = merge_chains(w, chains[k], all);
    }
    uint32_t earlier = 0;
    list->first = all;
    for (uint32_t link = all; link != 0; link = at(w, link)->later) {
        at(w, link)->earlier = earlier;
        earlier = link;
    }
    list->last = earlier;
}

/* Makes the symbol the product of itself and its right neighbour, which goes. */
static void merge_symbols(work *w, uint32_t link, int32_t product)
{
    tok_symbol *symbol = at(w, link);
    const tok_symbol *gone = at(w, symbol->right);
    if (gone->product != TOK_NONE) {
        leave_list(w, symbol->right);
    }
    symbol->id = product;
    symbol->right = gone->right;
    if (symbol->right != 0) {
        at(w, symbol->right)->left = link;
    }
    if (symbol->left != 0) {
        if (at(w, symbol->left)->product != TOK_NONE) {
            leave_list(w, symbol->left);
        }
        join_list(w, symbol->left);
    }
    join_list(w, link);
}

static void merge_product(work *w, int32_t product)
{
    tok_places *list = &w->lists[product];
    list->queued = false;
    if (list->unsorted && list->first != 0 && at(w, list->first)->id == at(w, at(w, list->first)->right)->id) {
        sort_list(w, list);
    }
    while (list->first != 0) {
        const uint32_t link = list->first;
        leave_list(w, link);
        merge_symbols(w, link, product);
    }
    list->unsorted = false;
}

static uint32_t fill_symbols(work *w, const uint8_t *s, size_t n)
{
    const bool cjk = tok_starts_in_cjk(s, n);
    uint32_t count = 0;
    for (size_t i = 0; i < n;) {
        const int32_t character = cjk ? tok_cjk_token(w->tok, s + i, n - i) : TOK_NONE;
        w->symbols[count] = (tok_symbol){
            .id = character != TOK_NONE ? character : w->tok->byte_id[s[i]],
            .product = TOK_NONE,
            .left = count,
            .right = count + 2,
        };
        count++;
        i += character != TOK_NONE ? TOK_CJK_BYTES : 1;
    }
    at(w, count)->right = 0;
    return count;
}

bool tok_long_merge(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, tok_out *out)
{
    if (!reserve(tok, scratch, n)) {
        return false;
    }
    work w = {.tok = tok, .symbols = scratch->symbols, .lists = scratch->lists, .heap = scratch->heap};
    const uint32_t count = fill_symbols(&w, s, n);
    for (uint32_t link = 1; link <= count; link++) {
        join_list(&w, link);
    }
    while (w.n_heap != 0) {
        merge_product(&w, heap_pop(&w));
    }
    for (uint32_t link = 1; link != 0; link = at(&w, link)->right) {
        tok_emit(out, at(&w, link)->id);
    }
    if (scratch->n_symbols > KEPT_SYMBOLS) {
        free(scratch->symbols);
        scratch->symbols = NULL;
        scratch->n_symbols = 0;
    }
    return true;
}
