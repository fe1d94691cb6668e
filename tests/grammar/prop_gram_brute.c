/* Masks against plain truth: random schemas over a universe so small that all members are written down. A token is in the mask exactly
 * when some member goes on with it, an end id exactly when the text is a member, and a schema without members is refused.
 *
 * The validator (gram_brute.c) and the language are written independently of the engine. ctest: timeout=600 */
#include "gram_brute.h"
#include "gram_hunt.h"
#include "gram_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { END_ID = 1, SCHEMAS = 3000, WALKS = 2, HUNTED = 20000, MAX_RELEVANT = 4096 };

static di_tokenizer *tokenizer;
static di_vocabulary *vocabulary;
static brute_universe universe;
static int32_t relevant[MAX_RELEVANT]; /* tokens whose bytes occur in the universe */
static size_t n_relevant;
static size_t n_words;

static void find_relevant(void)
{
    bool occurs[256] = {false};
    for (size_t i = 0; i < universe.n; i++) {
        for (const char *c = universe.texts[i]; *c != '\0'; c++) {
            occurs[(uint8_t)*c] = true;
        }
    }
    for (int32_t id = 0; id < di_tokenizer_vocab_size(tokenizer); id++) {
        size_t n;
        const uint8_t *bytes = di_tokenizer_bytes(tokenizer, id, &n);
        bool all = n != 0 && id != END_ID && (di_tokenizer_flags(tokenizer, id) & DI_TOKEN_ADDED) == 0;
        for (size_t i = 0; all && i < n; i++) {
            all = occurs[bytes[i]];
        }
        if (all) {
            assert_true(n_relevant < MAX_RELEVANT);
            relevant[n_relevant++] = id;
        }
    }
}

/* The members that begin with a text. */
static size_t members_with(const bool *member, const char *text, size_t n, bool *whole)
{
    size_t found = 0;
    *whole = false;
    for (size_t i = 0; i < universe.n; i++) {
        if (member[i] && strncmp(universe.texts[i], text, n) == 0) {
            found++;
            *whole = *whole || universe.texts[i][n] == '\0';
        }
    }
    return found;
}

static bool has(const uint32_t *mask, int32_t id) { return (mask[id / 32] >> id % 32 & 1) != 0; }

/* What the mask must be behind a text; returns how many ids are allowed. */
static size_t true_mask(const bool *member, const char *text, uint32_t *mask, int32_t *allowed)
{
    char longer[128];
    bool whole;
    size_t n_allowed = 0;
    const size_t length = strlen(text);
    memset(mask, 0, n_words * sizeof *mask);
    memcpy(longer, text, length);
    for (size_t i = 0; i < n_relevant; i++) {
        size_t n;
        const uint8_t *bytes = di_tokenizer_bytes(tokenizer, relevant[i], &n);
        if (length + n >= sizeof universe.texts[0]) {
            continue;
        }
        memcpy(longer + length, bytes, n);
        if (members_with(member, longer, length + n, &whole) != 0) {
            mask[relevant[i] / 32] |= 1u << relevant[i] % 32;
            allowed[n_allowed++] = relevant[i];
        }
    }
    (void)members_with(member, text, length, &whole);
    if (whole) {
        mask[END_ID / 32] |= 1u << END_ID % 32;
        allowed[n_allowed++] = END_ID;
    }
    return n_allowed;
}

static void walk(di_grammar *g, const bool *member, const char *schema, uint64_t *random, uint32_t *masks)
{
    di_error err;
    di_matcher *m;
    int32_t allowed[MAX_RELEVANT + 1];
    char text[128] = "";
    assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
    for (;;) {
        bool accepted;
        const size_t n_allowed = true_mask(member, text, masks, allowed);
        assert_int_equal(di_matcher_mask(m, masks + n_words, NULL, &err), DI_OK);
        for (int32_t id = 0; id < di_tokenizer_vocab_size(tokenizer); id++) {
            if (has(masks, id) != has(masks + n_words, id)) {
                fail_msg("%s: behind '%s' id %d is %s", schema, text, id, has(masks, id) ? "missing" : "wrongly allowed");
            }
        }
        assert_true(n_allowed != 0);
        const int32_t id = allowed[unit_random(random) % n_allowed];
        if (id == END_ID) {
            break;
        }
        size_t n;
        const uint8_t *bytes = di_tokenizer_bytes(tokenizer, id, &n);
        (void)strncat(text, (const char *)bytes, n);
        assert_int_equal(di_matcher_accept(m, id, &accepted, &err), DI_OK);
        assert_true(accepted);
    }
    di_matcher_free(m);
}

typedef struct counts {
    int checked;
    int empty;
    int refused;
} counts;

static void one_schema(const char *schema, uint64_t random, counts *c, uint32_t *masks)
{
    bool member[BRUTE_MAX_VALUES];
    size_t n_members = 0;
    buf whole;
    js_doc *doc;
    di_error err;
    di_grammar *g = NULL;
    di_grammar_fault fault;
    buf_init(&whole, 1 << 20);
    brute_wrap(&whole, schema);
    if (js_parse(schema, strlen(schema), "schema", NULL, &doc, &err) != DI_OK) {
        fail_msg("%s: %s", schema, err.message);
    }
    for (size_t i = 0; i < universe.n; i++) {
        member[i] = brute_valid(js_root(doc), js_root(universe.docs[i]));
        n_members += member[i];
    }
    js_free(doc);
    const di_grammar_options options = {.order = DI_ORDER_ANY, .whitespace = DI_WHITESPACE_COMPACT};
    if (di_grammar_compile(DI_GRAMMAR_SCHEMA, whole.data, whole.size, &options, &g, &fault, &err) == DI_OK) {
        if (n_members == 0) {
            fail_msg("%s has no member, and was compiled", schema);
        }
        c->checked++;
        for (int i = 0; i < WALKS; i++) {
            walk(g, member, schema, &random, masks);
        }
        di_grammar_free(g);
    } else if (strcmp(fault.kind, "unsatisfiable_schema") == 0) {
        if (n_members != 0) {
            fail_msg("%s has members, but: %s", schema, err.message);
        }
        c->empty++;
    } else {
        c->refused++;
    }
    buf_fini(&whole);
}

static void masks_of_random_schemas_are_what_their_members_say(void **state)
{
    (void)state;
    counts c = {0, 0, 0};
    uint32_t *const masks = calloc(2 * n_words, sizeof *masks);
    assert_non_null(masks);
    for (uint64_t seed = 1; seed <= SCHEMAS; seed++) {
        uint64_t random = seed;
        buf schema;
        buf_init(&schema, 1 << 20);
        brute_schema(&schema, &random, 3);
        one_schema(schema.data, random, &c, masks);
        buf_fini(&schema);
    }
    printf("prop_gram_brute: %d schemas checked, %d without members, %d refused\n", c.checked, c.empty, c.refused);
    assert_true(c.checked > SCHEMAS / 2);
    assert_true(c.refused < SCHEMAS / 20);
    free(masks);
}

/* What longer runs of this test have found. */
static void schemas_that_were_wrong_once_are_right(void **state)
{
    (void)state;
    static const char *const found[] = {
        /* The items that repeat each other have to break another rule besides. */
        "{\"not\":{\"uniqueItems\":true},\"oneOf\":[{\"prefixItems\":[true,{\"type\":\"string\"}]},{\"type\":\"array\"}]}",
        /* They need not be neighbours, or the first to come. */
        "{\"minItems\":2,\"prefixItems\":[{\"const\":1}],\"not\":{\"uniqueItems\":true}}",
        /* A first item that leaves a value to the second is not all there is. */
        "{\"oneOf\":[{\"minLength\":2,\"items\":{\"pattern\":\"b$\"}},{\"uniqueItems\":true}]}",
    };
    counts c = {0, 0, 0};
    uint32_t *const masks = calloc(2 * n_words, sizeof *masks);
    assert_non_null(masks);
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            one_schema(found[i], seed, &c, masks);
        }
    }
    assert_int_equal(c.checked, 20 * sizeof found / sizeof *found);
    free(masks);
}

static void random_steps_meet_no_dead_end(void **state)
{
    (void)state;
    gram_hunt_counts hunted;
    gram_hunt(vocabulary, tokenizer, END_ID, HUNTED, 7, &hunted);
    assert_true(hunted.judged > 100);
    assert_true(hunted.given_up < hunted.schemas / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_of_random_schemas_are_what_their_members_say),
        cmocka_unit_test(schemas_that_were_wrong_once_are_right),
        cmocka_unit_test(random_steps_meet_no_dead_end),
    };
    if (gram_open_demo(&tokenizer, END_ID, &vocabulary) != 0) {
        return 1;
    }
    n_words = di_vocabulary_mask_words(vocabulary);
    brute_universe_init(&universe);
    find_relevant();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    brute_universe_fini(&universe);
    di_vocabulary_free(vocabulary);
    di_tokenizer_close(tokenizer);
    return failed;
}
