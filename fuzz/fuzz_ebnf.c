/* fuzz_ebnf.c - grammars and structural tags of outside origin, and texts checked against them.
 *
 * The first byte says which of them it is, a NUL byte ends it; the rest is a text. Whatever the grammar: each byte
 * that is taken leaves a place that can be completed, and the completion is taken too. */
#include <deepinfer/grammar.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes what it can of the text, then the shortest end. */
static void match(di_grammar *g, const char *text, size_t n, bool names_tokens)
{
    di_error err;
    di_matcher *m;
    char rest[512];
    size_t n_rest;
    size_t n_accepted;
    bool complete;
    if (di_matcher_new(g, NULL, &m, &err) != DI_OK) {
        return;
    }
    for (size_t i = 0; i < n && i < 200; i++) {
        if (di_matcher_accept_bytes(m, text + i, 1, &n_accepted, &err) != DI_OK) {
            di_matcher_free(m);
            return;
        }
    }
    if (!names_tokens && di_matcher_completion(m, rest, sizeof rest, &n_rest, NULL, &err) == DI_OK && n_rest <= sizeof rest) {
        const di_status status = di_matcher_accept_bytes(m, rest, n_rest, &n_accepted, &err);
        if (status == DI_OK && n_accepted == n_rest && di_matcher_is_complete(m, &complete, &err) == DI_OK && !complete) {
            abort(); /* a completion completes */
        }
    }
    di_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const di_grammar_kind kinds[] = {DI_GRAMMAR_GBNF, DI_GRAMMAR_LARK, DI_GRAMMAR_TAGS};
    if (size == 0) {
        return 0;
    }
    const di_grammar_options options = {
        .lenient = (data[0] & 0x80) != 0,
        .limits = {.compile_work = 200000, .step_work = 100000, .max_memory_bytes = (size_t)64 << 20},
    };
    const char *const text = (const char *)data + 1;
    const size_t n = strnlen(text, size - 1);
    di_error err;
    di_grammar_fault fault;
    di_grammar *g;
    if (di_grammar_compile(kinds[data[0] % 4 % 3], text, n, &options, &g, &fault, &err) == DI_OK) {
        /* Completions with named tokens in them are no texts. */
        const bool names_tokens = memchr(text, '<', n) != NULL || memmem(text, n, "token", 5) != NULL;
        match(g, n + 2 < size ? text + n + 1 : "", n + 2 < size ? size - n - 2 : 0, names_tokens);
        di_grammar_free(g);
    }
    return 0;
}
