/* gram_slice.c - slices of a vocabulary, made when a state asks for them; see gram_vocab.h. */
#include "grammar/gram_vocab.h"

#include <stdlib.h>

#define LEAST_TOKENS 1000 /* a slice with fewer is not worth its mask */

static bool in_slice(const di_vocabulary *v, int32_t id, uint16_t classes)
{
    return v->token_classes[id] != 0 && (v->token_classes[id] & (uint16_t)~classes) == 0;
}

static uint32_t count(const di_vocabulary *v, uint16_t classes)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < v->n_ids; id++) {
        n += in_slice(v, id, classes);
    }
    return n;
}

/* The tree without the tokens of the slice: nodes all of whose tokens are in it are left out. */
static bool make_rest(const di_vocabulary *v, gram_slice *slice)
{
    gram_trie_node *rest = calloc(v->tree.n, sizeof *rest);
    uint32_t *open = calloc((size_t)v->max_depth + 2, sizeof *open); /* nodes on the way to the present one */
    uint32_t n = 0;
    if (rest == NULL || open == NULL) {
        free(rest);
        free(open);
        return false;
    }
    for (uint32_t i = 0; i < v->tree.n;) {
        const gram_trie_node *node = &v->tree.nodes[i];
        if (i != 0 && (node->classes & (uint16_t)~slice->classes) == 0) {
            i += node->size;
            continue;
        }
        rest[n] = *node;
        rest[n].size = 1;
        if (node->token >= 0 && in_slice(v, node->token, slice->classes)) {
            rest[n].token = -1;
        }
        for (uint32_t depth = 0; depth < node->depth; depth++) {
            rest[open[depth]].size++;
        }
        open[node->depth] = n++;
        i++;
    }
    free(open);
    gram_trie_node *fitting = realloc(rest, n * sizeof *fitting);
    slice->rest = (gram_tree){.nodes = fitting != NULL ? fitting : rest, .n = n};
    if (!gram_tree_index(&slice->rest)) {
        gram_tree_fini(&slice->rest);
    }
    return slice->rest.nodes != NULL;
}

static gram_slice *make(const di_vocabulary *v, uint16_t classes, uint32_t max_chars, const gram_slice *unbounded)
{
    gram_slice *slice = calloc(1, sizeof *slice);
    uint32_t *mask = calloc(v->words, sizeof *mask);
    if (slice == NULL || mask == NULL) {
        free(slice);
        free(mask);
        return NULL;
    }
    *slice = (gram_slice){.classes = classes, .max_chars = max_chars, .mask = mask};
    uint32_t n = 0;
    for (int32_t id = 0; id < v->n_ids; id++) {
        if (in_slice(v, id, classes)) {
            n++;
            const uint32_t chars = v->token_chars[id] < 255 ? v->token_chars[id] : GRAM_INF; /* or more */
            slice->longest = chars > slice->longest ? chars : slice->longest;
            if (v->token_chars[id] <= max_chars) {
                mask[id / 32] |= 1u << id % 32;
            }
        }
    }
    if (unbounded != NULL) {
        slice->rest = unbounded->rest;
    } else if (n >= (uint32_t)v->n_ids / 2 && !make_rest(v, slice)) { /* with most tokens in it the rest is a small tree */
        free(mask);
        free(slice);
        return NULL;
    }
    return slice;
}

static const gram_slice *find(const di_vocabulary *v, uint32_t n, uint16_t classes, uint32_t max_chars)
{
    for (uint32_t i = 0; i < n; i++) {
        if (v->slices[i]->classes == classes && v->slices[i]->max_chars == max_chars) {
            return v->slices[i];
        }
    }
    return NULL;
}

static bool is_unworthy(const di_vocabulary *v, uint16_t classes)
{
    return (__atomic_load_n(&v->unworthy[classes / 32], __ATOMIC_RELAXED) >> classes % 32 & 1) != 0;
}

/* With the lock held. */
static const gram_slice *add(di_vocabulary *v, uint16_t classes, uint32_t max_chars, const gram_slice *unbounded)
{
    gram_slice *made = v->n_slices < GRAM_MAX_SLICES ? make(v, classes, max_chars, unbounded) : NULL;
    if (made != NULL) {
        v->slices[v->n_slices] = made;
        __atomic_store_n(&v->n_slices, v->n_slices + 1, __ATOMIC_RELEASE);
    }
    return made;
}

static const gram_slice *find_or_make(di_vocabulary *v, uint16_t classes, uint32_t max_chars, const gram_slice *unbounded)
{
    const gram_slice *slice = find(v, __atomic_load_n(&v->n_slices, __ATOMIC_ACQUIRE), classes, max_chars);
    if (slice != NULL) {
        return slice;
    }
    (void)pthread_mutex_lock(&v->lock);
    slice = find(v, v->n_slices, classes, max_chars);
    if (slice == NULL && !is_unworthy(v, classes)) {
        if (unbounded == NULL && count(v, classes) < LEAST_TOKENS) {
            __atomic_store_n(&v->unworthy[classes / 32], v->unworthy[classes / 32] | 1u << classes % 32, __ATOMIC_RELAXED);
        } else {
            slice = add(v, classes, max_chars, unbounded);
        }
    }
    (void)pthread_mutex_unlock(&v->lock);
    return slice;
}

const gram_slice *gram_vocab_slice(di_vocabulary *v, uint16_t classes, uint32_t max_chars, bool exact)
{
    if (classes == 0 || max_chars == 0 || is_unworthy(v, classes)) {
        return NULL;
    }
    const gram_slice *all = find_or_make(v, classes, GRAM_INF, NULL);
    if (all == NULL || max_chars >= all->longest) {
        return all;
    }
    if (max_chars > GRAM_SLICE_CHARS) {
        max_chars = GRAM_SLICE_CHARS;
    } else if (!exact && max_chars > 8) { /* some are enough */
        max_chars -= max_chars % 4;
    }
    return find_or_make(v, classes, max_chars, all);
}
