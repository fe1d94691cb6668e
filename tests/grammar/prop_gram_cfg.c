/* General grammars against their languages written out: random rules over three letters, recursive in every way,
 * with repetitions and groups.
 *
 * The oracle knows nothing of parsing: texts of at most four letters are numbered, languages are sets of numbers,
 * and those of rules grow until nothing is new. The beginnings of texts are found the same way from the beginnings
 * of parts. Longer texts, made by random walks under the mask, are looked up by trying all ways to cut them. */
#include "gram_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 3, LONGEST = 4, TEXTS = 1 + 3 + 9 + 27 + 81, MAX_RULES = 5, MAX_NODES = 64, MAX_WALK = 14, END_ID = 1 };

typedef enum kind { CHARS, REF, CAT, ALT, REP } kind;

typedef struct node {
    kind kind;
    int what;     /* letters as bits; rule */
    int kids[3];
    int n_kids;
    int min;
    int max;      /* -1 = no bound */
} node;

typedef struct set {
    bool has[TEXTS];
} set;

typedef struct random_grammar {
    node nodes[MAX_NODES];
    int n_nodes;
    int bodies[MAX_RULES];
    int n_rules;
    uint64_t random;
    buf text;
    set words[MAX_RULES];
    set heads[MAX_RULES];
    bool alive[MAX_RULES]; /* has texts, of any length */
} random_grammar;

static di_tokenizer *tokenizer;
static di_vocabulary *vocabulary;
static size_t n_words;
static int concat[TEXTS][TEXTS]; /* -1 = too long */
static char spelled[TEXTS][LONGEST + 1];

static int below(random_grammar *g, int n) { return (int)(unit_random(&g->random) % (uint64_t)n); }

/* --- Random rules ------------------------------------------------------------------------------------------------- */

static int make(random_grammar *g, int depth)
{
    const int i = g->n_nodes++;
    node *n = &g->nodes[i];
    const int dice = g->n_nodes > MAX_NODES - 8 || depth > 3 ? below(g, 2) : below(g, 9);
    *n = (node){.min = 1, .max = 1};
    if (dice == 0) {
        n->kind = CHARS;
        n->what = 1 + below(g, 7);
    } else if (dice <= 3) {
        n->kind = REF;
        n->what = below(g, g->n_rules);
    } else if (dice <= 6) {
        n->kind = dice == 6 ? ALT : CAT;
        const int n_kids = dice == 6 ? 2 : below(g, 4); /* also the empty text */
        for (int k = 0; k < n_kids; k++) {
            const int kid = make(g, depth + 1);
            g->nodes[i].kids[g->nodes[i].n_kids++] = kid;
        }
    } else {
        n->kind = REP;
        n->min = below(g, 3);
        n->max = below(g, 2) == 0 ? -1 : n->min + below(g, 3);
        const int kid = make(g, depth + 1);
        g->nodes[i].kids[g->nodes[i].n_kids++] = kid;
    }
    return i;
}

static void put(random_grammar *g, const char *text) { assert_true(buf_puts(&g->text, text)); }

static void write_node(random_grammar *g, int i)
{
    const node *n = &g->nodes[i];
    char text[32];
    switch (n->kind) {
    case CHARS:
        put(g, "[");
        for (int c = 0; c < LETTERS; c++) {
            put(g, (n->what >> c & 1) == 0 ? "" : c == 0 ? "a" : c == 1 ? "b" : "c");
        }
        put(g, "]");
        break;
    case REF:
        (void)snprintf(text, sizeof text, "r%d", n->what);
        put(g, n->what == 0 ? "root" : text);
        break;
    default:
        put(g, "(");
        for (int k = 0; k < n->n_kids; k++) {
            put(g, k == 0 ? "" : n->kind == ALT ? " | " : " ");
            write_node(g, n->kids[k]);
        }
        put(g, n->n_kids == 0 ? "\"\")" : ")");
        if (n->kind == REP) {
            (void)snprintf(text, sizeof text, n->max < 0 ? "{%d,}" : "{%d,%d}", n->min, n->max);
            put(g, text);
        }
        break;
    }
}

/* --- Languages ---------------------------------------------------------------------------------------------------- */

static void add_product(set *to, const set *a, const set *b)
{
    for (int i = 0; i < TEXTS; i++) {
        for (int k = 0; a->has[i] && k < TEXTS; k++) {
            if (b->has[k] && concat[i][k] >= 0) {
                to->has[concat[i][k]] = true;
            }
        }
    }
}

static void add_all(set *to, const set *a)
{
    for (int i = 0; i < TEXTS; i++) {
        to->has[i] = to->has[i] || a->has[i];
    }
}

static bool alive(const random_grammar *g, int i)
{
    const node *n = &g->nodes[i];
    bool all = true;
    bool any = false;
    for (int k = 0; k < n->n_kids; k++) {
        all = alive(g, n->kids[k]) && all;
        any = alive(g, n->kids[k]) || any;
    }
    return n->kind == CHARS || (n->kind == REF ? g->alive[n->what] : n->kind == ALT ? any : n->kind == CAT ? all : n->min == 0 || all);
}

/* The texts of a node and their beginnings, as far as they are known for the rules. */
static void evaluate(const random_grammar *g, int i, set *words, set *heads)
{
    const node *n = &g->nodes[i];
    set kid_words;
    set kid_heads;
    memset(words, 0, sizeof *words);
    memset(heads, 0, sizeof *heads);
    switch (n->kind) {
    case CHARS:
        heads->has[0] = true;
        for (int c = 0; c < LETTERS; c++) {
            words->has[1 + c] = heads->has[1 + c] = (n->what >> c & 1) != 0;
        }
        break;
    case REF:
        *words = g->words[n->what];
        *heads = g->heads[n->what];
        break;
    case ALT:
        for (int k = 0; k < n->n_kids; k++) {
            evaluate(g, n->kids[k], &kid_words, &kid_heads);
            add_all(words, &kid_words);
            add_all(heads, &kid_heads);
        }
        break;
    default: {
        const bool rep = n->kind == REP;
        const int most = !rep ? n->n_kids : n->max < 0 ? n->min + LONGEST : n->max;
        set before = {.has = {true}};
        heads->has[0] = true;
        words->has[0] = rep ? n->min == 0 : most == 0;
        if (rep) {
            evaluate(g, n->kids[0], &kid_words, &kid_heads);
        }
        for (int k = 0; k < most && (rep || alive(g, i)); k++) {
            set next = {.has = {false}};
            if (!rep) {
                evaluate(g, n->kids[k], &kid_words, &kid_heads);
            }
            add_product(heads, &before, &kid_heads);
            add_product(&next, &before, &kid_words);
            before = next;
            if (rep ? k + 1 >= n->min : k + 1 == most) {
                add_all(words, &before);
            }
        }
        break;
    }
    }
    if (!alive(g, i)) {
        memset(heads, 0, sizeof *heads);
    }
}

static void solve(random_grammar *g)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (int r = 0; r < g->n_rules; r++) {
            const bool lives = alive(g, g->bodies[r]);
            changed = changed || lives != g->alive[r];
            g->alive[r] = lives;
        }
    }
    changed = true;
    while (changed) {
        changed = false;
        for (int r = 0; r < g->n_rules; r++) {
            set words;
            set heads;
            evaluate(g, g->bodies[r], &words, &heads);
            changed = changed || memcmp(&words, &g->words[r], sizeof words) != 0 || memcmp(&heads, &g->heads[r], sizeof heads) != 0;
            g->words[r] = words;
            g->heads[r] = heads;
        }
    }
}

/* --- Longer texts ------------------------------------------------------------------------------------------------- */

typedef struct spans {
    bool has[MAX_NODES][MAX_WALK + 1][MAX_WALK + 1];
} spans;

/* text[from, to) by kid k and those behind it; of a repetition by `k` of its kid. */
static bool cut(const random_grammar *g, const spans *s, const node *n, int k, int from, int to)
{
    const bool rep = n->kind == REP;
    if (rep ? k >= n->min : k == n->n_kids) {
        if (from == to) {
            return true;
        }
    }
    if (rep ? n->max >= 0 && k >= n->max : k >= n->n_kids) {
        return false;
    }
    for (int at = from; at <= to; at++) {
        const bool moves = !rep || at > from || k < n->min;
        if (moves && s->has[n->kids[rep ? 0 : k]][from][at] && cut(g, s, n, k + 1, at, to)) {
            return true;
        }
    }
    return false;
}

static bool member(const random_grammar *g, const char *text)
{
    spans *const s = calloc(1, sizeof *s);
    const int n = (int)strlen(text);
    assert_non_null(s);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = g->n_nodes - 1; i >= 0; i--) {
            const node *one = &g->nodes[i];
            for (int from = 0; from <= n; from++) {
                for (int to = from; to <= n; to++) {
                    bool has = false;
                    for (int k = 0; one->kind == ALT && k < one->n_kids; k++) {
                        has = has || s->has[one->kids[k]][from][to];
                    }
                    has = has || (one->kind == CHARS && to == from + 1 && (one->what >> (text[from] - 'a') & 1) != 0);
                    has = has || (one->kind == REF && s->has[g->bodies[one->what]][from][to]);
                    has = has || ((one->kind == CAT || one->kind == REP) && cut(g, s, one, 0, from, to));
                    changed = changed || has != s->has[i][from][to];
                    s->has[i][from][to] = has;
                }
            }
        }
    }
    const bool yes = s->has[g->bodies[0]][0][n];
    free(s);
    return yes;
}

/* --- Comparing ---------------------------------------------------------------------------------------------------- */

static int number_of(const char *text, size_t n)
{
    int at = 0;
    for (size_t i = 0; i < n; i++) {
        at = concat[at][1 + text[i] - 'a'];
    }
    return at;
}

static void expect_mask(const random_grammar *g, di_matcher *m, int at, const uint32_t *mask)
{
    const int32_t n_ids = di_tokenizer_vocab_size(tokenizer);
    for (int32_t id = 0; id < n_ids; id++) {
        size_t n;
        const char *bytes = (const char *)di_tokenizer_bytes(tokenizer, id, &n);
        const bool allowed = (mask[id / 32] >> id % 32 & 1) != 0;
        if (id == END_ID || n == 0 || n + strlen(spelled[at]) > LONGEST) {
            continue;
        }
        bool plain = (di_tokenizer_flags(tokenizer, id) & DI_TOKEN_ADDED) == 0;
        for (size_t i = 0; i < n; i++) {
            plain = plain && bytes[i] >= 'a' && bytes[i] < 'a' + LETTERS;
        }
        if (allowed != (plain && g->heads[0].has[concat[at][plain ? number_of(bytes, n) : 0]])) {
            fail_msg("%s: behind '%s' (%zu steps) id %d is %s", g->text.data, spelled[at], di_matcher_steps(m), id, allowed ? "allowed" : "not");
        }
    }
    assert_int_equal((mask[END_ID / 32] >> END_ID % 32 & 1) != 0, g->words[0].has[at]);
}

/* The shortest text that completes this one, when the language written out has one. */
static void expect_completion(const random_grammar *g, di_matcher *m, int at)
{
    di_error err;
    char bytes[LONGEST];
    size_t n;
    for (int i = 0; i < TEXTS; i++) { /* by length, then in the order of letters */
        if (concat[at][i] >= 0 && g->words[0].has[concat[at][i]]) {
            assert_int_equal(di_matcher_completion(m, bytes, sizeof bytes, &n, NULL, &err), DI_OK);
            if (n != strlen(spelled[i]) || memcmp(bytes, spelled[i], n) != 0) {
                fail_msg("%s: '%s' is completed by '%.*s', not '%s'", g->text.data, spelled[at], (int)n, bytes, spelled[i]);
            }
            return;
        }
    }
}

/* All texts that can be gone on from, depth first. */
static void compare(const random_grammar *g, di_matcher *m, int at, bool masks)
{
    di_error err;
    bool complete;
    assert_int_equal(di_matcher_is_complete(m, &complete, &err), DI_OK);
    if (complete != g->words[0].has[at]) {
        fail_msg("%s: '%s' is %s", g->text.data, spelled[at], complete ? "taken as a whole" : "not taken");
    }
    expect_completion(g, m, at);
    if (masks) {
        uint32_t *const mask = calloc(n_words, sizeof *mask);
        assert_non_null(mask);
        assert_int_equal(di_matcher_mask(m, mask, NULL, &err), DI_OK);
        expect_mask(g, m, at, mask);
        free(mask);
    }
    for (int c = 0; c < LETTERS && strlen(spelled[at]) < LONGEST; c++) {
        const char letter = (char)('a' + c);
        const int next = concat[at][1 + c];
        size_t n;
        assert_int_equal(di_matcher_accept_bytes(m, &letter, 1, &n, &err), DI_OK);
        if ((n == 1) != g->heads[0].has[next]) {
            fail_msg("%s: '%s' is %s", g->text.data, spelled[next], n == 1 ? "taken as a beginning" : "not taken as one");
        }
        if (n == 1) {
            compare(g, m, next, masks);
            assert_int_equal(di_matcher_rollback(m, 1, &err), DI_OK);
        }
    }
}

/* A walk over letters that ends as soon as it may, or is long; its text is a member. */
static void walk(random_grammar *g, di_matcher *m)
{
    di_error err;
    char text[MAX_WALK + 1] = "";
    for (int n = 0; n < MAX_WALK; n++) {
        bool complete;
        assert_int_equal(di_matcher_is_complete(m, &complete, &err), DI_OK);
        if (complete != member(g, text)) {
            fail_msg("%s: '%s' is %s", g->text.data, text, complete ? "taken as a whole" : "not taken");
        }
        size_t took = 0;
        const int first = below(g, LETTERS);
        for (int c = 0; c < LETTERS && took == 0; c++) {
            text[n] = (char)('a' + (first + c) % LETTERS);
            assert_int_equal(di_matcher_accept_bytes(m, text + n, 1, &took, &err), DI_OK);
        }
        if (took == 0) {
            assert_true(complete); /* there are no dead ends */
            break;
        }
    }
}

static void begin_random(random_grammar *g, uint64_t seed)
{
    memset(g, 0, sizeof *g);
    g->random = seed * 0x9E3779B97F4A7C15u + 1;
    g->n_rules = 1 + below(g, MAX_RULES);
    buf_init(&g->text, 1 << 16);
    for (int r = 0; r < g->n_rules; r++) {
        char name[16];
        (void)snprintf(name, sizeof name, r == 0 ? "root" : "r%d", r);
        g->bodies[r] = make(g, 0);
        put(g, name);
        put(g, " ::= ");
        write_node(g, g->bodies[r]);
        put(g, "\n");
    }
    solve(g);
}

static void check(uint64_t seed, bool masks, int *n_dead)
{
    random_grammar *const g = malloc(sizeof *g);
    di_grammar *compiled = NULL;
    di_grammar_fault fault;
    di_matcher *m;
    di_error err;
    assert_non_null(g);
    begin_random(g, seed);
    const di_status status = di_grammar_compile(DI_GRAMMAR_GBNF, g->text.data, g->text.size, NULL, &compiled, &fault, &err);
    if (!g->alive[0]) {
        ++*n_dead;
        assert_int_equal(status, DI_E_FORMAT);
        assert_string_equal(fault.kind, "invalid_grammar");
    } else {
        if (status != DI_OK) {
            fail_msg("%s: %s", g->text.data, err.message);
        }
        assert_int_equal(di_matcher_new(compiled, vocabulary, &m, &err), DI_OK);
        compare(g, m, 0, masks);
        walk(g, m);
        di_matcher_free(m);
        di_grammar_free(compiled);
    }
    buf_fini(&g->text);
    free(g);
}

static void texts_and_their_beginnings_are_those_of_the_language(void **state)
{
    (void)state;
    int n_dead = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        check(seed, false, &n_dead);
    }
    assert_true(n_dead < 1500);
}

static void masks_are_those_of_the_language(void **state)
{
    (void)state;
    int n_dead = 0;
    for (uint64_t seed = 10000; seed < 10060; seed++) {
        check(seed, true, &n_dead);
    }
}

static void number_texts(void)
{
    int n = 1;
    for (int from = 0, to = 1, length = 1; length <= LONGEST; length++) {
        for (int i = from; i < to; i++) {
            for (int c = 0; c < LETTERS; c++) {
                memcpy(spelled[n], spelled[i], (size_t)length - 1);
                spelled[n++][length - 1] = (char)('a' + c);
            }
        }
        from = to;
        to = n;
    }
    for (int a = 0; a < TEXTS; a++) {
        for (int b = 0; b < TEXTS; b++) {
            concat[a][b] = -1;
            for (int i = 0; i < TEXTS && strlen(spelled[a]) + strlen(spelled[b]) <= LONGEST && concat[a][b] < 0; i++) {
                const size_t n_a = strlen(spelled[a]);
                concat[a][b] = strncmp(spelled[i], spelled[a], n_a) == 0 && strcmp(spelled[i] + n_a, spelled[b]) == 0 ? i : -1;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_their_beginnings_are_those_of_the_language),
        cmocka_unit_test(masks_are_those_of_the_language),
    };
    if (gram_open_demo(&tokenizer, END_ID, &vocabulary) != 0) {
        return 1;
    }
    n_words = di_vocabulary_mask_words(vocabulary);
    number_texts();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    di_vocabulary_free(vocabulary);
    di_tokenizer_close(tokenizer);
    return failed;
}
