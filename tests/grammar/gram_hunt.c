/* gram_hunt.c - see gram_hunt.h. */
#include "gram_hunt.h"

#include "gram_brute.h"
#include "gram_support.h"

#include <stdlib.h>
#include <string.h>

enum { WALKS = 4, MAX_TOKENS = 60, MAX_TEXT = 1 << 16 };

typedef struct hunt {
    di_vocabulary *vocabulary;
    const di_tokenizer *tokenizer;
    int32_t end_id;
    size_t n_words;
    uint32_t *mask;
    uint64_t random;
    gram_hunt_counts *counts;
} hunt;

/* An allowed id; the end id one time in eight, where it is allowed. */
static int32_t choose(hunt *h)
{
    uint32_t n = 0;
    for (size_t i = 0; i < h->n_words; i++) {
        n += (uint32_t)__builtin_popcount(h->mask[i]);
    }
    if (n == 0) {
        return -1;
    }
    const bool may_end = (h->mask[h->end_id / 32] >> h->end_id % 32 & 1) != 0;
    if (may_end && (n == 1 || unit_random(&h->random) % 8 == 0)) {
        return h->end_id;
    }
    uint32_t skip = (uint32_t)(unit_random(&h->random) % n);
    size_t i = 0;
    for (uint32_t here = 0; skip >= (here = (uint32_t)__builtin_popcount(h->mask[i])); i++) {
        skip -= here;
    }
    uint32_t word = h->mask[i];
    for (; skip > 0; skip--) {
        word &= word - 1;
    }
    return (int32_t)(i * 32) + __builtin_ctz(word);
}

/* The validator knows integers that fit, and texts whose bytes are their characters. */
static bool is_judged(const js_value *value)
{
    bool judged = js_kind_of(value) != JS_NUMBER;
    for (size_t i = 0; judged && i < js_length(value); i++) {
        const char *key;
        judged = js_kind_of(value) == JS_ARRAY ? is_judged(js_at(value, i))
                                               : js_kind_of(value) != JS_OBJECT || is_judged(js_member(value, i, &key));
    }
    return judged;
}

static void judge(hunt *h, const char *schema, const char *text, size_t n)
{
    js_doc *rule;
    js_doc *doc;
    di_error err;
    h->counts->texts++;
    if (js_parse(text, n, "text", &(const js_limits){.max_depth = 600, .numbers_any_size = true}, &doc, &err) != DI_OK) {
        fail_msg("%s: %.*s: %s", schema, (int)n, text, err.message);
    }
    bool plain = true;
    for (size_t i = 0; plain && i < n; i++) {
        plain = text[i] >= ' ' && text[i] <= '~' && text[i] != '\\';
    }
    if (plain && is_judged(js_root(doc))) {
        h->counts->judged++;
        assert_int_equal(js_parse(schema, strlen(schema), "schema", NULL, &rule, &err), DI_OK);
        if (!brute_valid(js_root(rule), js_root(doc))) {
            fail_msg("%s: %.*s is not valid", schema, (int)n, text);
        }
        js_free(rule);
    }
    js_free(doc);
}

static void walk(hunt *h, di_grammar *g, const char *schema, char *text)
{
    di_error err;
    di_matcher *m;
    size_t n = 0;
    assert_int_equal(di_matcher_new(g, h->vocabulary, &m, &err), DI_OK);
    for (int step = 0; step < MAX_TOKENS; step++) {
        bool accepted;
        size_t n_bytes;
        if (di_matcher_mask(m, h->mask, NULL, &err) != DI_OK) {
            h->counts->given_up++; /* too complex, and it says so */
            break;
        }
        const int32_t id = choose(h);
        if (id < 0) {
            fail_msg("%s: nothing is allowed behind %.*s", schema, (int)n, text);
        }
        h->counts->steps++;
        if (id == h->end_id) {
            judge(h, schema, text, n);
            break;
        }
        if (di_matcher_accept(m, id, &accepted, &err) != DI_OK) {
            h->counts->given_up++;
            break;
        }
        if (!accepted) {
            fail_msg("%s: id %d is allowed behind %.*s, and not accepted", schema, id, (int)n, text);
        }
        const uint8_t *bytes = di_tokenizer_bytes(h->tokenizer, id, &n_bytes);
        assert_true(n + n_bytes <= MAX_TEXT);
        memcpy(text + n, bytes, n_bytes);
        n += n_bytes;
    }
    di_matcher_free(m);
}

void gram_hunt(di_vocabulary *vocabulary, const di_tokenizer *tokenizer, int32_t end_id, int64_t steps, uint64_t seed, gram_hunt_counts *out)
{
    hunt h = {vocabulary, tokenizer, end_id, di_vocabulary_mask_words(vocabulary), NULL, seed, out};
    char *const text = malloc(MAX_TEXT);
    h.mask = malloc(h.n_words * sizeof *h.mask);
    assert_non_null(text);
    assert_non_null(h.mask);
    *out = (gram_hunt_counts){.steps = 0};
    while (out->steps < steps) {
        di_grammar *g;
        di_error err;
        buf schema;
        buf_init(&schema, 1 << 20);
        brute_schema(&schema, &h.random, 3);
        const di_grammar_options options = {.order = DI_ORDER_ANY};
        if (di_grammar_compile(DI_GRAMMAR_SCHEMA, schema.data, schema.size, &options, &g, NULL, &err) == DI_OK) {
            out->schemas++;
            for (int i = 0; i < WALKS; i++) {
                walk(&h, g, schema.data, text);
            }
            di_grammar_free(g);
        }
        buf_fini(&schema);
    }
    free(h.mask);
    free(text);
}
