/* gram_support.c - see gram_support.h. */
#include "gram_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t gram_check(di_grammar *grammar, const char *text, size_t n)
{
    di_error err;
    di_matcher *m;
    assert_int_equal(di_matcher_new(grammar, NULL, &m, &err), DI_OK);
    size_t n_accepted;
    bool complete = false;
    di_status status = di_matcher_accept_bytes(m, text, n, &n_accepted, &err);
    if (status == DI_OK) {
        status = di_matcher_is_complete(m, &complete, &err);
    }
    di_matcher_free(m);
    if (status != DI_OK) {
        assert_int_equal(status, DI_E_LIMIT);
        return GRAM_BUDGET;
    }
    if (n_accepted < n) {
        return (int64_t)n_accepted;
    }
    return complete ? GRAM_WHOLE : GRAM_PREFIX;
}

di_grammar *gram_must(di_grammar_kind kind, const char *text, const di_grammar_options *options)
{
    di_error err;
    di_grammar *g = NULL;
    if (di_grammar_compile(kind, text, strlen(text), options, &g, NULL, &err) != DI_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    return g;
}

const char *gram_first_wrong(di_grammar_kind kind, const char *grammar, const di_grammar_options *options, bool inside,
                             const char *const *texts)
{
    di_grammar *const g = gram_must(kind, grammar, options);
    const char *wrong = "";
    for (size_t i = 0; wrong[0] == '\0' && texts[i] != NULL; i++) {
        const bool whole = gram_check(g, texts[i], strlen(texts[i])) == GRAM_WHOLE;
        wrong = whole == inside ? "" : texts[i][0] == '\0' ? "(empty)" : texts[i];
    }
    di_grammar_free(g);
    return wrong;
}

static void write_container(buf *out, const js_value *value, bool spaced)
{
    const bool object = js_kind_of(value) == JS_OBJECT;
    (void)buf_puts(out, object ? "{" : "[");
    for (size_t i = 0; i < js_length(value); i++) {
        const char *key;
        const js_value *const item = object ? js_member(value, i, &key) : js_at(value, i);
        (void)buf_puts(out, i == 0 ? "" : spaced ? ", " : ",");
        if (object) {
            size_t n;
            key = js_key(item, &n);
            (void)buf_json_string(out, key, n);
            (void)buf_puts(out, spaced ? ": " : ":");
        }
        gram_write_json(out, item, spaced);
    }
    (void)buf_puts(out, object ? "}" : "]");
}

void gram_write_json(buf *out, const js_value *value, bool spaced)
{
    size_t n;
    const char *text;
    switch (js_kind_of(value)) {
    case JS_NULL:
        (void)buf_puts(out, "null");
        break;
    case JS_BOOL:
        (void)buf_puts(out, js_bool(value) ? "true" : "false");
        break;
    case JS_INT:
    case JS_NUMBER:
        text = js_spelling(value, &n);
        (void)buf_append(out, text, n);
        break;
    case JS_STRING:
        text = js_string(value, &n);
        (void)buf_json_string(out, text, n);
        break;
    case JS_ARRAY:
    case JS_OBJECT:
        write_container(out, value, spaced);
        break;
    }
}

int gram_open_demo(di_tokenizer **tokenizer, int32_t end_id, di_vocabulary **vocabulary)
{
    char path[4096];
    di_error err;
    const char *const source = getenv("DI_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/models/demo/tokenizer.json", source != NULL ? source : ".");
    if (di_tokenizer_open(path, tokenizer, &err) != DI_OK ||
        (vocabulary != NULL && di_vocabulary_new(*tokenizer, &end_id, 1, vocabulary, &err) != DI_OK)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}
