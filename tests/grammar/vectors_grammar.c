/* vectors_grammar.c - verdicts of JSON Schemas over two public collections, when they are there (DI_TEST_DATA/grammar).
 *
 * An instance that is valid must be accepted, one that is not must not be; a schema may be refused, but only so many. Collections say
 * themselves what is valid; where an independent validator disagrees with them the instance is named in known_wrong.txt.
 * DI_VERBOSE=1 prints what was refused. ctest: timeout=900 */
#include "gram_support.h"

#include "core/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    int schemas;
    int compiled;
    int passing;  /* compiled, all instances as they should be */
    int tests;
    int refused;  /* tests whose schema did not compile */
    int empty;    /* tests whose schema was found to have no valid instance at all */
    int unread;   /* tests whose data is no JSON to us */
    int accepted; /* though invalid */
    int rejected; /* though valid */
    int budget;   /* ran out of work */
    int known;    /* wrong, but listed */
} tally;

typedef struct schema { /* the one whose instances are being read */
    char *text;
    tally *tally;
    di_grammar *grammar;
    bool empty; /* no instance is valid, says the compiler */
    bool fine;
    bool open;
} schema;

static char *known_wrong; /* the file, newline in front and behind of each id */

static bool is_known(const char *id)
{
    char line[600];
    (void)snprintf(line, sizeof line, "\n%s\n", id);
    return known_wrong != NULL && strstr(known_wrong, line) != NULL;
}

static void end_schema(schema *s)
{
    if (s->open) {
        tally *const t = s->tally;
        t->schemas++;
        t->compiled += s->grammar != NULL || s->empty;
        t->passing += (s->grammar != NULL || s->empty) && s->fine;
    }
    di_grammar_free(s->grammar);
    free(s->text);
    *s = (schema){.fine = true};
}

static void begin_schema(schema *s, tally *t, const char *text, const char *id, di_grammar_formats formats)
{
    end_schema(s);
    di_error err;
    di_grammar_fault fault;
    const di_grammar_options options = {.order = DI_ORDER_ANY, .integers_any = true, .escapes_all = true, .formats = formats};
    s->text = strdup(text);
    s->tally = t;
    s->open = true;
    s->fine = true;
    if (di_grammar_compile(DI_GRAMMAR_SCHEMA, text, strlen(text), &options, &s->grammar, &fault, &err) != DI_OK) {
        s->grammar = NULL;
        s->empty = strcmp(fault.kind, "unsatisfiable_schema") == 0;
        if (!s->empty && getenv("DI_VERBOSE") != NULL) {
            fprintf(stderr, "refused %s: %s\n", id, err.message);
        }
    }
}

static void judge(schema *s, tally *t, const char *id, const js_value *data, bool valid, bool spaced)
{
    t->tests++;
    if (s->grammar == NULL && !s->empty) {
        t->refused++;
        return;
    }
    t->empty += s->empty;
    buf text;
    buf_init(&text, (size_t)1 << 26);
    gram_write_json(&text, data, spaced);
    const int64_t at = s->empty ? 0 : gram_check(s->grammar, text.data, text.size);
    const bool whole = at == GRAM_WHOLE;
    if (at == GRAM_BUDGET || whole != valid) {
        s->fine = s->fine && is_known(id);
        int *const count = is_known(id) ? &t->known : at == GRAM_BUDGET ? &t->budget : valid ? &t->rejected : &t->accepted;
        ++*count;
        fprintf(stderr, "%s %s%s at %lld: %.300s\n  schema %.600s\n", is_known(id) ? "known" : "WRONG",
                at == GRAM_BUDGET ? "budget " : valid ? "rejected " : "accepted ", id, (long long)at, text.data, s->text);
    }
    buf_fini(&text);
}

static void suite_line(schema *s, tally *required, tally *format, const js_value *line)
{
    size_t n;
    char id[512];
    const bool formats = strcmp(js_string(js_get(line, "part"), &n), "format") == 0;
    tally *const t = formats ? format : required;
    (void)snprintf(id, sizeof id, "%s: %s", js_string(js_get(line, "file"), &n), js_string(js_get(line, "description"), &n));
    buf text;
    buf_init(&text, (size_t)1 << 26);
    gram_write_json(&text, js_get(line, "schema"), false);
    if (!s->open || strcmp(s->text, text.data) != 0) {
        begin_schema(s, t, text.data, id, formats ? DI_FORMATS_STRICT : DI_FORMATS_ANNOTATE);
    }
    buf_fini(&text);
    judge(s, t, id, js_get(line, "data"), js_bool(js_get(line, "valid")), false);
}

static void bench_line(schema *s, tally *t, const js_value *line)
{
    size_t n;
    char id[512];
    const char *const name = js_string(js_get(line, "id"), &n);
    const js_value *const tests = js_get(line, "tests");
    buf text;
    buf_init(&text, (size_t)1 << 26);
    gram_write_json(&text, js_get(line, "schema"), false);
    begin_schema(s, t, text.data, name, DI_FORMATS_ASSERT);
    buf_fini(&text);
    for (size_t i = 0; i < js_length(tests); i++) {
        const js_value *const one = js_at(tests, i);
        (void)snprintf(id, sizeof id, "%s#%zu", name, i);
        judge(s, t, id, js_get(one, "data"), js_bool(js_get(one, "valid")), true);
    }
}

static void print_tally(const char *name, const tally *t)
{
    printf("vectors_grammar: %s: %d schemas, %d compiled, %d passing; "
           "%d tests: %d refused, %d of what nothing satisfies, %d unread, "
           "%d invalid accepted, %d valid rejected, %d out of budget, %d known wrong\n",
           name, t->schemas, t->compiled, t->passing, t->tests, t->refused, t->empty, t->unread,
           t->accepted, t->rejected, t->budget, t->known);
}

/* The file of the collection; NULL when it is not there. */
static char *read_collection(const char *name, size_t *n)
{
    char path[4096];
    char *text = NULL;
    const char *const data = getenv("DI_TEST_DATA");
    const char *const source = getenv("DI_SOURCE_DIR");
    if (data != NULL) {
        (void)snprintf(path, sizeof path, "%s/grammar/%s", data, name);
    } else {
        (void)snprintf(path, sizeof path, "%s/../shared/fixtures/grammar/%s", source != NULL ? source : ".", name);
    }
    return file_read(path, (size_t)1 << 28, &text, n, NULL) == DI_OK ? text : NULL;
}

static void read_known(void)
{
    char path[4096];
    char *text = NULL;
    size_t n;
    const char *const source = getenv("DI_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/tests/grammar/known_wrong.txt", source != NULL ? source : ".");
    if (file_read(path, (size_t)1 << 20, &text, &n, NULL) == DI_OK) {
        known_wrong = malloc(n + 3);
        assert_non_null(known_wrong);
        (void)snprintf(known_wrong, n + 3, "\n%s\n", text);
        free(text);
    }
}

typedef void line_fn(schema *s, tally *a, tally *b, const js_value *line);

static void for_lines(char *text, size_t n, schema *s, tally *a, tally *b, line_fn *each)
{
    const js_limits limits = {.max_depth = 256};
    for (char *at = text, *end; at < text + n; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + n - at));
        end = end != NULL ? end : text + n;
        js_doc *doc;
        if (js_parse(at, (size_t)(end - at), "line", &limits, &doc, NULL) != DI_OK) {
            a->unread++;
            continue;
        }
        each(s, a, b, js_root(doc));
        js_free(doc);
    }
    free(text);
}

static void one_bench_line(schema *s, tally *a, tally *b, const js_value *line)
{
    (void)b;
    bench_line(s, a, line);
}

static void the_test_suite_is_judged_as_it_says(void **state)
{
    (void)state;
    size_t n;
    char *const text = read_collection("json_schema_test_suite.jsonl", &n);
    if (text == NULL) {
        skip();
    }
    tally required = {.schemas = 0};
    tally format = {.schemas = 0};
    schema s = {.fine = true};
    for_lines(text, n, &s, &required, &format, suite_line);
    end_schema(&s);
    print_tally("test suite, required", &required);
    print_tally("test suite, format", &format);
    assert_int_equal(required.accepted + required.rejected + required.budget, 0);
    assert_int_equal(format.accepted + format.rejected + format.budget, 0);
    assert_true(required.refused * 100 <= required.tests * 8);
    assert_true((required.known + format.known) * 100 <= required.tests + format.tests);
}

static void the_sample_of_maskbench_is_judged_as_it_says(void **state)
{
    (void)state;
    size_t n;
    char *const text = read_collection("maskbench_sample.jsonl", &n);
    if (text == NULL) {
        skip();
    }
    tally t = {.schemas = 0};
    schema s = {.fine = true};
    for_lines(text, n, &s, &t, NULL, one_bench_line);
    end_schema(&s);
    print_tally("maskbench sample", &t);
    assert_int_equal(t.accepted + t.rejected + t.budget, 0);
    assert_true(t.passing * 100 >= t.schemas * 96);
    assert_true(t.known * 100 <= t.tests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_test_suite_is_judged_as_it_says),
        cmocka_unit_test(the_sample_of_maskbench_is_judged_as_it_says),
    };
    read_known();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(known_wrong);
    return failed;
}
