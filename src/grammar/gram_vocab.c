/* gram_vocab.c - builds the tree of tokens; see gram_vocab.h. */
#include "grammar/gram_vocab.h"

#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"
#include "core/utf8.h"

#include <sys/random.h>

#define PAIRS(...) {(const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t) / 2}

const gram_char_class gram_char_classes[GRAM_N_CLASSES] = {
    PAIRS(0x00, 0x1F), PAIRS('"', '"'), PAIRS('\\', '\\'), PAIRS('0', '9'), PAIRS('a', 'z'), PAIRS('A', 'Z'), PAIRS('_', '_'),
    PAIRS('-', '-'), PAIRS(' ', ' '), PAIRS('.', '.'), PAIRS('/', '/'), PAIRS(':', ':'), PAIRS(',', ','),
    PAIRS('!', '!', '#', '+', ';', '@', '[', '[', ']', '^', '`', '`', '{', 0x7F), /* the other ASCII characters */
    PAIRS(0x80, 0xD7FF, 0xE000, 0x10FFFF),
};

static uint16_t class_of(uint32_t c)
{
    for (uint32_t i = 0; i < GRAM_N_CLASSES; i++) {
        for (uint32_t k = 0; k < gram_char_classes[i].n; k++) {
            if (c >= gram_char_classes[i].ranges[2 * k] && c <= gram_char_classes[i].ranges[2 * k + 1]) {
                return (uint16_t)(1u << i);
            }
        }
    }
    return GRAM_BROKEN;
}

static void classify(di_vocabulary *v, int32_t id, const uint8_t *bytes, size_t n)
{
    uint16_t classes = 0;
    uint32_t chars = 0;
    for (size_t i = 0; i < n; chars++) {
        uint32_t c;
        const int length = utf8_decode(bytes + i, n - i, &c);
        classes |= length > 0 ? class_of(c) : GRAM_BROKEN;
        i += length > 0 ? (size_t)length : 1;
    }
    v->token_classes[id] = classes;
    v->token_chars[id] = (uint8_t)(chars < 255 ? chars : 255);
    v->max_chars = chars > v->max_chars ? chars : v->max_chars;
    v->max_depth = n > v->max_depth ? (uint32_t)n : v->max_depth;
}

static const di_tokenizer *sort_tokenizer(const void *state) { return state; }

static int by_bytes(const void *a, const void *b, void *state)
{
    size_t n;
    size_t m;
    const int32_t x = *(const int32_t *)a;
    const int32_t y = *(const int32_t *)b;
    const uint8_t *left = di_tokenizer_bytes(sort_tokenizer(state), x, &n);
    const uint8_t *right = di_tokenizer_bytes(sort_tokenizer(state), y, &m);
    const int order = memcmp(left, right, n < m ? n : m);
    if (order != 0 || n != m) {
        return order != 0 ? order : n < m ? -1 : 1;
    }
    return (x > y) - (x < y);
}

/* Ids of the tokens that texts are made of, by their bytes. */
static di_status sort_ids(di_vocabulary *v, int32_t **out, size_t *n_out, size_t *n_bytes, di_error *err)
{
    int32_t *ids = ar_calloc((size_t)v->n_ids, sizeof *ids);
    if (ids == NULL) {
        return err_memory(err, "token ids", (size_t)v->n_ids * sizeof *ids);
    }
    size_t n_ids = 0;
    *n_bytes = 0;
    for (int32_t id = 0; id < v->n_ids; id++) {
        size_t n;
        const uint8_t *bytes = di_tokenizer_bytes(v->tokenizer, id, &n);
        if (n == 0 || n > UINT16_MAX || (di_tokenizer_flags(v->tokenizer, id) & DI_TOKEN_ADDED) != 0 || gram_vocab_is_end(v, id)) {
            continue;
        }
        classify(v, id, bytes, n);
        ids[n_ids++] = id;
        *n_bytes += n;
    }
    qsort_r(ids, n_ids, sizeof *ids, by_bytes, (void *)(uintptr_t)v->tokenizer);
    *out = ids;
    *n_out = n_ids;
    return DI_OK;
}

/* Sizes and classes from the children up: they stand behind their parents. */
static void sum_up(gram_trie_node *nodes, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) {
        nodes[i].size = 1;
        for (uint32_t k = i + 1; k < n && nodes[k].depth == nodes[i].depth + 1; k += nodes[k].size) {
            nodes[i].size += nodes[k].size;
            nodes[i].classes |= nodes[k].classes;
            nodes[i].chars = nodes[k].chars > nodes[i].chars ? nodes[k].chars : nodes[i].chars;
        }
    }
}

bool gram_tree_index(gram_tree *t)
{
    t->first = ar_calloc((size_t)t->n + 1, sizeof *t->first);
    t->bytes = ar_calloc(t->n, 1);
    t->kids = ar_calloc(t->n, sizeof *t->kids);
    if (t->first == NULL || t->bytes == NULL || t->kids == NULL) {
        return false;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        t->first[i] = at;
        for (uint32_t k = i + 1; k < i + t->nodes[i].size; k += t->nodes[k].size) {
            t->bytes[at] = t->nodes[k].byte;
            t->kids[at++] = k;
        }
    }
    t->first[t->n] = at;
    return true;
}

void gram_tree_fini(gram_tree *t)
{
    free(t->nodes);
    free(t->first);
    free(t->bytes);
    free(t->kids);
    *t = (gram_tree){.n = 0};
}

static void build_nodes(di_vocabulary *v, const int32_t *ids, size_t n_ids)
{
    const uint8_t *before = NULL;
    size_t n_before = 0;
    int32_t last = -1;
    v->tree.nodes[v->tree.n++] = (gram_trie_node){.token = -1};
    for (size_t i = 0; i < n_ids; i++) {
        size_t n;
        const uint8_t *bytes = di_tokenizer_bytes(v->tokenizer, ids[i], &n);
        size_t shared = 0;
        while (shared < n && shared < n_before && bytes[shared] == before[shared]) {
            shared++;
        }
        if (shared == n && n == n_before) {
            v->same[last] = ids[i];
        }
        for (size_t k = shared; k < n; k++) {
            v->tree.nodes[v->tree.n++] = (gram_trie_node){
                .token = k + 1 == n ? ids[i] : -1, .depth = (uint16_t)(k + 1), .byte = bytes[k],
                .classes = k + 1 == n ? v->token_classes[ids[i]] : 0, .chars = k + 1 == n ? v->token_chars[ids[i]] : 0};
        }
        last = ids[i];
        before = bytes;
        n_before = n;
    }
    sum_up(v->tree.nodes, v->tree.n);
}

static void set_bit(uint32_t *mask, int32_t id) { mask[id / 32] |= 1u << id % 32; }

static di_status build(di_vocabulary *v, di_error *err)
{
    int32_t *ids = NULL;
    size_t n_ids;
    size_t n_bytes;
    const size_t n = (size_t)v->n_ids;
    v->token_classes = ar_calloc(n, sizeof *v->token_classes);
    v->token_chars = ar_calloc(n, 1);
    v->same = ar_calloc(n, sizeof *v->same);
    v->all = ar_calloc(v->words, sizeof *v->all);
    if (v->token_classes == NULL || v->token_chars == NULL || v->same == NULL || v->all == NULL) {
        return err_memory(err, "vocabulary", n * 8);
    }
    const di_status status = sort_ids(v, &ids, &n_ids, &n_bytes, err);
    if (status != DI_OK) {
        return status;
    }
    v->tree.nodes = ar_calloc(n_bytes + 1, sizeof *v->tree.nodes);
    if (v->tree.nodes == NULL) {
        free(ids);
        return err_memory(err, "tree of tokens", n_bytes * sizeof *v->tree.nodes);
    }
    memset(v->same, -1, n * sizeof *v->same);
    build_nodes(v, ids, n_ids);
    for (size_t i = 0; i < n_ids; i++) {
        set_bit(v->all, ids[i]);
    }
    for (size_t i = 0; i < v->n_end_ids; i++) {
        set_bit(v->all, v->end_ids[i]);
    }
    free(ids);
    gram_trie_node *fitting = realloc(v->tree.nodes, v->tree.n * sizeof *fitting);
    v->tree.nodes = fitting != NULL ? fitting : v->tree.nodes;
    return gram_tree_index(&v->tree) ? DI_OK : err_memory(err, "tree of tokens", v->tree.n * sizeof *v->tree.first);
}

di_status di_vocabulary_new(const di_tokenizer *tokenizer, const int32_t *end_ids, size_t n_end_ids, di_vocabulary **out, di_error *err)
{
    const int32_t n_ids = di_tokenizer_vocab_size(tokenizer);
    for (size_t i = 0; i < n_end_ids; i++) {
        if (end_ids[i] < 0 || end_ids[i] >= n_ids) {
            return err_set(err, DI_E_ARGUMENT, "end id %d is not one of the vocabulary's %d", end_ids[i], n_ids);
        }
    }
    di_vocabulary *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return err_memory(err, "vocabulary", sizeof *v);
    }
    v->tokenizer = tokenizer;
    v->n_ids = n_ids;
    v->words = ((size_t)n_ids + 31) / 32;
    v->n_end_ids = n_end_ids;
    v->end_ids = ar_calloc(n_end_ids, sizeof *v->end_ids);
    (void)pthread_mutex_init(&v->lock, NULL);
    if (getrandom(&v->id, sizeof v->id, GRND_NONBLOCK) != (ssize_t)sizeof v->id) {
        v->id = (uint64_t)clock_now_ns() ^ (uintptr_t)v;
    }
    di_status status = DI_OK;
    if (v->end_ids == NULL) {
        status = err_memory(err, "end ids", n_end_ids * sizeof *v->end_ids);
    } else {
        if (n_end_ids != 0) {
            memcpy(v->end_ids, end_ids, n_end_ids * sizeof *end_ids);
        }
        status = build(v, err);
    }
    if (status != DI_OK) {
        di_vocabulary_free(v);
        return status;
    }
    *out = v;
    return DI_OK;
}

void di_vocabulary_free(di_vocabulary *v)
{
    if (v == NULL) {
        return;
    }
    for (uint32_t i = 0; i < v->n_slices; i++) {
        free(v->slices[i]->mask);
        if (v->slices[i]->max_chars == GRAM_INF) {
            gram_tree_fini(&v->slices[i]->rest);
        }
        free(v->slices[i]);
    }
    gram_state_mask_free(v->any_text[0]);
    gram_state_mask_free(v->any_text[1]);
    (void)pthread_mutex_destroy(&v->lock);
    free(v->end_ids);
    gram_tree_fini(&v->tree);
    free(v->same);
    free(v->token_classes);
    free(v->token_chars);
    free(v->all);
    free(v);
}

size_t di_vocabulary_mask_words(const di_vocabulary *v) { return v->words; }
