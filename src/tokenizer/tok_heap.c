/* tok_heap.c - the merge loop for pieces of any length in O(n log n) (tokenizer.md 5, tier 3).
 *
 * Symbols form a doubly linked list over an array indexed by the byte where each begins. A heap holds the merges that are
 * possible, keyed by (product, position): the lowest product goes first and the leftmost on ties. An entry that no longer
 * describes its symbols is stale and is dropped when it comes up. */
#include "tokenizer/tok_int.h"

#include <stdlib.h>

/* Positions fit 32 bits (TOK_MAX_TEXT). */
typedef struct tok_symbol {
    int32_t id; /* TOK_NONE: merged into its left neighbour */
    int32_t merged; /* product with the right neighbour as last looked up, TOK_NONE when there is none */
    uint32_t previous;
    uint32_t next;
} tok_symbol;

typedef struct heap {
    uint64_t *keys;
    size_t n;
} heap;

static void sift_down(heap *h, size_t i, uint64_t key)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n) {
            break;
        }
        if (child + 1 < h->n && h->keys[child + 1] < h->keys[child]) {
            child++;
        }
        if (h->keys[child] >= key) {
            break;
        }
        h->keys[i] = h->keys[child];
        i = child;
    }
    h->keys[i] = key;
}

static void push(heap *h, uint64_t key)
{
    size_t i = h->n++;
    while (i != 0 && h->keys[(i - 1) / 2] > key) {
        h->keys[i] = h->keys[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->keys[i] = key;
}

static uint64_t pop(heap *h)
{
    const uint64_t top = h->keys[0];
    h->n--;
    if (h->n != 0) {
        sift_down(h, 0, h->keys[h->n]);
    }
    return top;
}

/* A piece of n bytes makes at most n - 1 entries at the start and two more for each of its at most n - 1 merges. */
static bool reserve(tok_scratch *scratch, size_t n)
{
    if (n <= scratch->n_symbols) {
        return true;
    }
    const size_t capacity = n + n / 4;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->symbols = malloc(capacity * sizeof *scratch->symbols);
    scratch->heap = malloc(capacity * 3 * sizeof *scratch->heap);
    scratch->n_symbols = capacity;
    if (scratch->symbols == NULL || scratch->heap == NULL) {
        free(scratch->symbols);
        free(scratch->heap);
        scratch->symbols = NULL;
        scratch->heap = NULL;
        scratch->n_symbols = 0;
        return false;
    }
    return true;
}

static uint64_t key_of(int32_t product, uint32_t at)
{
    return (uint64_t)(uint32_t)product << 32 | at;
}

/* Looks up the merge of the symbol at `at` with its right neighbour and queues it. */
static void offer(const di_tokenizer *tok, tok_symbol *symbols, uint32_t n, uint32_t at, heap *h)
{
    tok_symbol *symbol = &symbols[at];
    symbol->merged = symbol->next == n ? TOK_NONE : tok_pairs_find(&tok->pairs, symbol->id, symbols[symbol->next].id);
    if (symbol->merged != TOK_NONE) {
        push(h, key_of(symbol->merged, at));
    }
}

static void fill(const di_tokenizer *tok, tok_symbol *symbols, const uint8_t *s, uint32_t n, heap *h)
{
    for (uint32_t i = 0; i < n; i++) {
        const int32_t id = tok->byte_id[s[i]];
        const int32_t merged = i + 1 == n ? TOK_NONE : tok_pairs_find(&tok->pairs, id, tok->byte_id[s[i + 1]]);
        symbols[i] = (tok_symbol){.id = id, .merged = merged, .previous = i - 1, .next = i + 1};
        if (merged != TOK_NONE) {
            h->keys[h->n++] = key_of(merged, i);
        }
    }
    for (size_t i = h->n / 2; i-- != 0;) {
        sift_down(h, i, h->keys[i]);
    }
}

bool tok_heap_merge(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, tok_out *out)
{
    if (!reserve(scratch, n)) {
        return false;
    }
    tok_symbol *symbols = scratch->symbols;
    const uint32_t end = (uint32_t)n;
    heap h = {.keys = scratch->heap};
    fill(tok, symbols, s, end, &h);
    while (h.n != 0) {
        const uint64_t key = pop(&h);
        const uint32_t at = (uint32_t)key;
        const int32_t product = (int32_t)(key >> 32);
        tok_symbol *left = &symbols[at];
        if (left->id == TOK_NONE || left->merged != product) {
            continue;
        }
        tok_symbol *right = &symbols[left->next];
        left->id = product;
        left->next = right->next;
        right->id = TOK_NONE;
        if (left->next != end) {
            symbols[left->next].previous = at;
        }
        offer(tok, symbols, end, at, &h);
        if (at != 0) {
            offer(tok, symbols, end, left->previous, &h);
        }
    }
    for (uint32_t i = 0; i != end; i = symbols[i].next) {
        tok_emit(out, symbols[i].id);
    }
    return true;
}
