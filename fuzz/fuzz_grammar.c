/* fuzz_grammar.c - constraints of outside origin, and texts checked against them.
 *
 * The first byte says what the constraint is, a NUL byte ends it; the rest is a text. Work is kept small, so that what is slow shows. */
#include <deepinfer/grammar.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void match(di_grammar *g, const char *text, size_t n)
{
    di_error err;
    di_matcher *m;
    if (di_matcher_new(g, NULL, &m, &err) != DI_OK) {
        return;
    }
    size_t at = 0;
    size_t n_accepted = 1;
    bool complete;
    char forced[64];
    while (at < n && n_accepted == 1 && di_matcher_accept_bytes(m, text + at, 1, &n_accepted, &err) == DI_OK) {
        at += n_accepted;
    }
    size_t n_forced = 0;
    bool is_final = false;
    if (di_matcher_is_complete(m, &complete, &err) == DI_OK && di_matcher_is_final(m, &is_final, &err) == DI_OK && is_final && !complete) {
        abort(); /* final places are complete */
    }
    if (di_matcher_forced(m, forced, sizeof forced, &n_forced, &err) == DI_OK &&
        di_matcher_accept_bytes(m, forced, n_forced, &n_accepted, &err) == DI_OK && n_accepted != n_forced) {
        abort(); /* what is forced may follow */
    }
    di_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const di_grammar_kind kinds[] = {DI_GRAMMAR_SCHEMA, DI_GRAMMAR_REGEX, DI_GRAMMAR_CHOICE};
    if (size == 0) {
        return 0;
    }
    const di_grammar_options options = {
        .order = (di_grammar_order)(data[0] / 4 % 3),
        .lenient = (data[0] & 0x80) != 0,
        .integers_any = (data[0] & 0x40) != 0,
        .limits = {.compile_work = 200000, .step_work = 100000, .max_memory_bytes = (size_t)64 << 20},
    };
    const char *const text = (const char *)data + 1;
    const size_t n = strnlen(text, size - 1);
    di_error err;
    di_grammar_fault fault;
    di_grammar *g;
    if (di_grammar_compile(kinds[data[0] % 4 % 3], text, n, &options, &g, &fault, &err) == DI_OK) {
        if (n + 2 < size) {
            match(g, text + n + 1, size - n - 2);
        } else {
            match(g, "", 0);
        }
        di_grammar_free(g);
    }
    return 0;
}
