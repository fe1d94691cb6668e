/* The golden vectors: text and ids for the released vocabularies. Each file that is there is read whole; a line of another form
 * than the known ones fails. Needs the real tokenizer files (tools/tokenizer/setup_tokenizers.py). */
#include "tok_support.h"

#include "core/json.h"

typedef struct tokenizers {
    di_tokenizer *v4;
    di_tokenizer *v41;
    di_tokenizer *recipe;
} tokenizers;

static tokenizers real;

static void expect_ids(const di_tokenizer *tok, const js_value *text, unsigned flags, const js_value *want, size_t line)
{
    size_t n_text;
    size_t n;
    const char *s = js_string(text, &n_text);
    int32_t *ids = sup_encode(tok, s, n_text, flags, &n);
    bool equal = n == js_length(want);
    for (size_t i = 0; equal && i < n; i++) {
        equal = ids[i] == js_int(js_at(want, i));
    }
    if (!equal) {
        fail_msg("line %zu: other ids than the vector", line);
    }
    size_t n_back;
    char *back = sup_decode(tok, ids, n, 0, &n_back);
    if (n_back != n_text || memcmp(back, s, n_text) != 0) {
        fail_msg("line %zu: decoding does not give the text back", line);
    }
    free(back);
    free(ids);
}

static void expect_text(const js_value *ids, unsigned flags, const js_value *want, size_t line)
{
    const size_t n = js_length(ids);
    int32_t *list = malloc((n + 1) * sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < n; i++) {
        list[i] = (int32_t)js_int(js_at(ids, i));
    }
    size_t n_text;
    size_t n_want;
    const char *text = js_string(want, &n_want);
    char *got = sup_decode(real.recipe, list, n, flags, &n_text);
    if (n_text != n_want || memcmp(got, text, n_want) != 0) {
        fail_msg("line %zu: other text than the vector", line);
    }
    free(got);
    free(list);
}

static void check_plain(const js_value *v, size_t line)
{
    expect_ids(real.v41, js_get(v, "t"), DI_ENCODE_SPECIAL, js_get(v, "ids"), line);
}

static void check_v41(const js_value *v, size_t line)
{
    const js_value *text = js_get(v, "t");
    if (text == NULL) {
        assert_non_null(js_get(v, "d"));
        expect_text(js_get(v, "d"), 0, js_get(v, "text"), line);
        expect_text(js_get(v, "d"), DI_DECODE_SKIP_SPECIAL, js_get(v, "skip"), line);
        return;
    }
    const js_value *on = js_get(v, "on");
    const js_value *off = js_get(v, "off");
    const js_value *on_v4 = js_get(v, "on_v4");
    expect_ids(real.recipe, text, DI_ENCODE_SPECIAL, on, line);
    expect_ids(real.recipe, text, 0, off != NULL ? off : on, line);
    expect_ids(real.v4, text, DI_ENCODE_SPECIAL, on_v4 != NULL ? on_v4 : on, line);
}

static void check_file(const char *name, void (*check)(const js_value *, size_t))
{
    size_t size;
    size_t n_lines = 0;
    char *text = sup_data(name, &size);
    if (text == NULL || real.v41 == NULL) {
        printf("%s: 0 passed, 1 skipped (%s)\n", name, text == NULL ? "the file is not there" : "no real tokenizer");
        free(text);
        skip();
        return; /* never reached, but gcc can't know */
    }
    for (char *line = text; line < text + size;) {
        char *end = memchr(line, '\n', (size_t)(text + size - line));
        end = end != NULL ? end : text + size;
        js_doc *doc;
        di_error err;
        if (js_parse(line, (size_t)(end - line), name, NULL, &doc, &err) != DI_OK) {
            fail_msg("line %zu: %s", n_lines + 1, err.message);
        }
        check(js_root(doc), ++n_lines);
        js_free(doc);
        line = end + 1;
    }
    free(text);
    assert_true(n_lines > 0);
    printf("%s: %zu passed, 0 skipped\n", name, n_lines);
}

static void base_vectors(void **state)
{
    (void)state;
    check_file("vectors_base.jsonl", check_plain);
}

static void added_vectors(void **state)
{
    (void)state;
    check_file("vectors_added.jsonl", check_plain);
}

static void v41_vectors(void **state)
{
    (void)state;
    check_file("vectors_v41.jsonl", check_v41);
}

static int open_all(void **state)
{
    (void)state;
    real.v4 = sup_real("v4");
    real.v41 = sup_real("v41");
    real.recipe = sup_real("v41_recipe");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    di_tokenizer_close(real.v4);
    di_tokenizer_close(real.v41);
    di_tokenizer_close(real.recipe);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base_vectors),
        cmocka_unit_test(added_vectors),
        cmocka_unit_test(v41_vectors),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
