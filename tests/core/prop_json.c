/* Properties of json.c and name_index.c on generated documents: what was written is what is read, whatever the nesting, the keys and
 * the white space; and a document cut anywhere is refused. */
#include "support/unit.h"

#include "core/buf.h"
#include "core/json.h"
#include "core/name_index.h"

#include <stdlib.h>
#include <string.h>

/* A document and the checksum of what it means: every value is folded in document order. */
typedef struct sample {
    buf text;
    uint64_t random;
    uint64_t sum;
} sample;

static void fold(uint64_t *sum, uint64_t value)
{
    *sum = (*sum ^ value) * 0x100000001B3u;
}

static void fold_text(uint64_t *sum, const char *text, size_t size)
{
    fold(sum, size);
    for (size_t i = 0; i < size; i++) {
        fold(sum, (unsigned char)text[i]);
    }
}

static void put_space(sample *s)
{
    static const char *const spaces[] = {"", "", "", " ", "\n", "\t ", "\r\n"};
    buf_puts(&s->text, spaces[unit_random(&s->random) % 7]);
}

static void put_string(sample *s, const char *prefix)
{
    static const char *const parts[] = {"a", "\"", "\\", "\xC3\xA9", "\xF0\x9F\x98\x80", "\n", "\x01", "long plain text", "/"};
    char text[400];
    size_t size = strlen(prefix);
    memcpy(text, prefix, size);
    for (uint64_t n = unit_random(&s->random) % 8; n > 0; n--) {
        const char *const part = parts[unit_random(&s->random) % 9];
        memcpy(text + size, part, strlen(part));
        size += strlen(part);
    }
    buf_json_string(&s->text, text, size);
    fold_text(&s->sum, text, size);
}

static void put_value(sample *s, int depth)
{
    const uint64_t kind = unit_random(&s->random) % (depth > 0 ? 7 : 5);
    put_space(s);
    fold(&s->sum, kind);
    if (kind == 0) {
        buf_puts(&s->text, "null");
    } else if (kind == 1) {
        const bool truth = unit_random(&s->random) % 2 == 0;
        buf_puts(&s->text, truth ? "true" : "false");
        fold(&s->sum, truth);
    } else if (kind == 2) {
        const int64_t number = (int64_t)unit_random(&s->random) >> unit_random(&s->random) % 64;
        buf_printf(&s->text, "%lld", (long long)number);
        fold(&s->sum, (uint64_t)number);
    } else if (kind == 3) {
        const double number = (double)(int64_t)(unit_random(&s->random) % 2000001) / 8.0 - 100000.0;
        buf_printf(&s->text, "%.4f", number);
        fold(&s->sum, (uint64_t)(int64_t)(number * 8));
    } else if (kind == 4) {
        put_string(s, "");
    } else {
        const uint64_t n = unit_random(&s->random) % 9;
        fold(&s->sum, n);
        buf_puts(&s->text, kind == 5 ? "[" : "{");
        for (uint64_t i = 0; i < n; i++) {
            buf_puts(&s->text, i > 0 ? "," : "");
            if (kind == 6) {
                put_space(s);
                const char prefix[] = {(char)('a' + (i * 5 + 3) % 9), '\0'}; /* keys differ, and are not sorted */
                put_string(s, prefix);
                put_space(s);
                buf_puts(&s->text, ":");
            }
            put_value(s, depth - 1);
        }
        put_space(s);
        buf_puts(&s->text, kind == 5 ? "]" : "}");
    }
    put_space(s);
}

static void fold_value(uint64_t *sum, const js_value *value)
{
    static const uint64_t kinds[] = {0, 1, 2, 3, 4, 5, 6};
    const js_kind kind = js_kind_of(value);
    fold(sum, kinds[kind]);
    size_t size;
    switch (kind) {
    case JS_BOOL:
        fold(sum, js_bool(value));
        break;
    case JS_INT:
        fold(sum, (uint64_t)js_int(value));
        break;
    case JS_NUMBER:
        fold(sum, (uint64_t)(int64_t)(js_number(value) * 8));
        break;
    case JS_STRING: {
        const char *const text = js_string(value, &size);
        fold_text(sum, text, size);
        break;
    }
    case JS_ARRAY:
        fold(sum, js_length(value));
        for (size_t i = 0; i < js_length(value); i++) {
            fold_value(sum, js_at(value, i));
        }
        break;
    case JS_OBJECT:
        fold(sum, js_length(value));
        for (size_t i = 0; i < js_length(value); i++) {
            const char *key;
            const js_value *const member = js_member(value, i, &key);
            js_key(member, &size);
            fold_text(sum, key, size);
            assert_ptr_equal(js_get(value, key), member);
            fold_value(sum, member);
        }
        break;
    default:
        break;
    }
}

static void written_documents_read_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        sample s = {.random = seed, .sum = 1};
        buf_init(&s.text, 1 << 24);
        put_value(&s, (int)(seed % 6));
        assert_false(s.text.failed);
        js_doc *doc = NULL;
        di_error err;
        if (js_parse(s.text.data, s.text.size, "doc", NULL, &doc, &err) != DI_OK) {
            fail_msg("seed %d: %s", (int)seed, err.message);
        }
        uint64_t sum = 1;
        fold_value(&sum, js_root(doc));
        assert_true(sum == s.sum);
        js_free(doc);
        buf_fini(&s.text);
    }
}

static void a_document_cut_anywhere_is_refused(void **state)
{
    (void)state;
    const char *const text = "{\"key\":[1.5e3,{\"a\":\"\\u00e9\xC3\xA9 text\"},true,null],\"other\":{}}";
    for (size_t n = 0; n < strlen(text); n++) {
        js_doc *doc = NULL;
        char *const exact = malloc(n + 1); /* so that the address sanitizer sees a read beyond the end */
        assert_non_null(exact);
        memcpy(exact, text, n);
        char *const end_aligned = realloc(exact, n != 0 ? n : 1);
        assert_non_null(end_aligned);
        assert_int_equal(js_parse(end_aligned, n, "doc", NULL, &doc, NULL), DI_E_FORMAT);
        free(end_aligned);
    }
}

typedef struct word {
    char text[8];
    size_t size;
} word;

static const char *word_at(const void *words, size_t i, size_t *size)
{
    const word *const w = (const word *)words + i;
    *size = w->size;
    return w->text;
}

static void sorted_names_are_found(void **state)
{
    (void)state;
    enum { MAX_WORDS = 200 };
    uint64_t random = 5;
    for (size_t round = 0; round < 500; round++) {
        word words[MAX_WORDS];
        uint32_t order[MAX_WORDS];
        uint32_t scratch[MAX_WORDS];
        const size_t n = round % MAX_WORDS;
        for (size_t i = 0; i < n; i++) {
            words[i].size = unit_random(&random) % 4;
            for (size_t j = 0; j < words[i].size; j++) {
                words[i].text[j] = (char)(unit_random(&random) % 5 - 2);
            }
        }
        nix_sort(words, word_at, order, scratch, n);
        bool duplicate = false;
        for (size_t k = 0; k < n; k++) {
            for (size_t j = 0; j < k; j++) {
                duplicate = duplicate || (words[j].size == words[k].size && memcmp(words[j].text, words[k].text, words[k].size) == 0);
            }
            const size_t found = nix_find(words, word_at, order, n, words[k].text, words[k].size);
            assert_true(found < n);
            assert_int_equal(words[found].size, words[k].size);
            assert_memory_equal(words[found].text, words[k].text, words[k].size);
        }
        assert_int_equal(nix_duplicate(words, word_at, order, n) != 0, duplicate);
        assert_int_equal(nix_find(words, word_at, order, n, "absent", 6), n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_documents_read_back),
        cmocka_unit_test(a_document_cut_anywhere_is_refused),
        cmocka_unit_test(sorted_names_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
