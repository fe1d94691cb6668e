/* tok_support.c - see tok_support.h. */
#include "tok_support.h"

#include "core/file.h"
#include "core/utf8.h"

static char *path_in(const char *variable, const char *folder, const char *name)
{
    static char path[4096]; /* valid until the next call */
    const char *base = getenv(variable);
    const char *source = getenv("DI_SOURCE_DIR");
    if (base != NULL && *base != '\0') {
        (void)snprintf(path, sizeof path, "%s/%s", base, name);
    } else {
        (void)snprintf(path, sizeof path, "%s/%s/%s", source != NULL ? source : ".", folder, name);
    }
    return path;
}

static di_tokenizer *open_at(const char *path)
{
    di_tokenizer *tok = NULL;
    di_error err;
    const di_tokenizer_options uncached = {.cache_dir = ""}; /* tests are about what is built now */
    if (di_tokenizer_open_with(path, &uncached, &tok, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return tok;
}

di_tokenizer *sup_demo(void)
{
    return open_at(path_in("", "models", "demo"));
}

char *sup_demo_json(void)
{
    char *text = NULL;
    size_t size;
    di_error err;
    if (file_read(path_in("", "models/demo", "tokenizer.json"), TOK_MAX_FILE, &text, &size, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return text;
}

di_tokenizer *sup_real(const char *name)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s.json", name);
    const char *path = path_in("DI_TOKENIZERS", "build/tokenizers", file);
    if (!file_exists(path)) {
        const char *ci = getenv("CI");
        if (ci != NULL && strcmp(ci, "true") == 0) {
            fail_msg("%s is not there; tools/tokenizer/setup_tokenizers.py makes it", file);
        }
        return NULL;
    }
    return open_at(path);
}

char *sup_data(const char *name, size_t *size)
{
    char file[128];
    char *text = NULL;
    (void)snprintf(file, sizeof file, "tokenizer/%s", name);
    const char *path = path_in("DI_TEST_DATA", "tests/data", file);
    di_error err;
    if (file_exists(path) && file_read(path, TOK_MAX_FILE, &text, size, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return text;
}

int32_t *sup_encode(const di_tokenizer *tok, const void *text, size_t n, unsigned flags, size_t *n_ids)
{
    int32_t *ids = malloc((3 * n + 1) * sizeof *ids);
    assert_non_null(ids);
    di_error err;
    if (di_tokenizer_encode(tok, text, n, flags, ids, 3 * n + 1, n_ids, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(*n_ids <= 3 * n);
    return ids;
}

void sup_expect_ids(const di_tokenizer *tok, const char *text, size_t n, unsigned flags, const char *ids)
{
    char got[4096] = "";
    size_t used = 0;
    size_t n_ids;
    int32_t *encoded = sup_encode(tok, text, n, flags, &n_ids);
    for (size_t i = 0; i < n_ids; i++) {
        used += (size_t)snprintf(got + used, sizeof got - used, i == 0 ? "%d" : " %d", encoded[i]);
        assert_true(used < sizeof got);
    }
    free(encoded);
    assert_string_equal(got, ids);
}

char *sup_decode(const di_tokenizer *tok, const int32_t *ids, size_t n, unsigned flags, size_t *n_text)
{
    assert_int_equal(di_tokenizer_decode(tok, ids, n, flags, NULL, 0, n_text, NULL), DI_OK);
    char *text = malloc(*n_text + 1);
    assert_non_null(text);
    size_t again;
    assert_int_equal(di_tokenizer_decode(tok, ids, n, flags, text, *n_text, &again, NULL), DI_OK);
    assert_int_equal(again, *n_text);
    text[*n_text] = '\0';
    return text;
}

uint64_t sup_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

size_t sup_random_text(uint64_t *state, size_t max, uint8_t *out)
{
    static const uint32_t pool[] = {
        'a', 'b', 'e', 't', 'h', 'Z', ' ', ' ', ' ', '\n', '\n', '\r', '\t', '1', '2', '9', '.', ',', '-', '_', '=', '<', '>', '\'', 0, 1,
        0x7F, 0x85, 0xA0, 0xAD, 0xB2, 0xBD, 0xE9, 0xDF, 0x130, 0x300, 0x301, 0x3A3, 0x430, 0x434, 0x5D0, 0x627, 0x663, 0x915, 0x93F,
        0xE01, 0x1100, 0x1680, 0x2009, 0x200B, 0x200D, 0x2014, 0x2028, 0x202F, 0x20AC, 0x2160, 0x2211, 0x3000, 0x3002, 0x3005, 0x3040,
        0x3042, 0x3099, 0x309B, 0x30A0, 0x30AB, 0x30FB, 0x30FF, 0x3100, 0x3400, 0x4E00, 0x4F60, 0x597D, 0x7684, 0x9FA5, 0x9FA6, 0xAC00,
        0xE000, 0xFE0F, 0xFEFF, 0xFF0C, 0xFF11, 0xFF5C, 0xFFFD, 0x1F600, 0x1F1E9, 0x1D7D9, 0x20000, 0x10FFFF,
    };
    const size_t limit = sup_random(state) % (max + 1);
    size_t n = 0;
    while (n + 4 <= limit) {
        const uint64_t r = sup_random(state);
        const uint32_t cp = pool[(r >> 8) % (sizeof pool / sizeof *pool)];
        for (uint64_t repeat = r % 8 == 0 ? 1 + (r >> 40) % 9 : 1; repeat != 0 && n + 4 <= limit; repeat--) {
            n += (size_t)utf8_encode(cp, out + n);
        }
    }
    return n;
}
