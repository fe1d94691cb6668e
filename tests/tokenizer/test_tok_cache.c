/* The compiled cache: what is opened from it equals what is built, and nothing stale or foreign is taken. */
#include "tok_support.h"

#include "core/file.h"
#include "tokenizer/tok_cache.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct place {
    char folder[64];
    char json[96];
    char cache[96];
} place;

static int make_place(void **state)
{
    place *const p = calloc(1, sizeof *p);
    (void)snprintf(p->folder, sizeof p->folder, "%s", "tok_cache.XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    (void)snprintf(p->json, sizeof p->json, "%s/tokenizer.json", p->folder);
    (void)snprintf(p->cache, sizeof p->cache, "%s/a/b", p->folder);
    char *const text = sup_demo_json();
    assert_int_equal(file_write(p->json, text, strlen(text), NULL), DI_OK);
    free(text);
    *state = p;
    return 0;
}

static int remove_place(void **state)
{
    place *const p = *state;
    char *const file = tok_cache_path(p->cache, p->json);
    (void)unlink(file);
    free(file);
    (void)rmdir(p->cache);
    *strrchr(p->cache, '/') = '\0';
    (void)rmdir(p->cache);
    (void)unlink(p->json);
    assert_int_equal(rmdir(p->folder), 0);
    free(p);
    return 0;
}

static di_tokenizer *open_cached(const place *p)
{
    const di_tokenizer_options options = {.cache_dir = p->cache};
    di_tokenizer *tok = NULL;
    di_error err;
    if (di_tokenizer_open_with(p->json, &options, &tok, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return tok;
}

static bool is_mapped(const di_tokenizer *tok)
{
    return tok->mapped.data != NULL;
}

static void assert_same(const di_tokenizer *a, const di_tokenizer *b)
{
    uint8_t text[2048];
    uint64_t random = 11;
    assert_int_equal(a->n_ids, b->n_ids);
    assert_int_equal(a->n_base, b->n_base);
    assert_int_equal(a->max_token_bytes, b->max_token_bytes);
    for (int32_t id = 0; id < a->n_ids; id++) {
        size_t n_a;
        size_t n_b;
        const uint8_t *const bytes_a = di_tokenizer_bytes(a, id, &n_a);
        const uint8_t *const bytes_b = di_tokenizer_bytes(b, id, &n_b);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(bytes_a, bytes_b, n_a);
        assert_int_equal(di_tokenizer_flags(a, id), di_tokenizer_flags(b, id));
        assert_int_equal(di_tokenizer_find(a, (const char *)bytes_a, n_a), di_tokenizer_find(b, (const char *)bytes_a, n_a));
    }
    for (int i = 0; i < 200; i++) {
        const size_t n = sup_random_text(&random, sizeof text, text);
        size_t n_a;
        size_t n_b;
        int32_t *const ids_a = sup_encode(a, text, n, DI_ENCODE_SPECIAL, &n_a);
        int32_t *const ids_b = sup_encode(b, text, n, DI_ENCODE_SPECIAL, &n_b);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(ids_a, ids_b, n_a * sizeof *ids_a);
        free(ids_a);
        free(ids_b);
    }
}

static void cached_equals_built(void **state)
{
    di_tokenizer *const built = open_cached(*state);
    di_tokenizer *const cached = open_cached(*state);
    assert_false(is_mapped(built));
    assert_true(is_mapped(cached));
    assert_same(built, cached);
    sup_expect_ids(cached, "", 0, 0, "");
    di_tokenizer_close(built);
    di_tokenizer_close(cached);
}

/* A changed file is met by its digest at once, although its stamp is too young to be believed. */
static void change_is_seen(void **state)
{
    const place *const p = *state;
    di_tokenizer_close(open_cached(p));
    char *const text = sup_demo_json();
    const size_t n = strlen(text); /* the NUL becomes a space, which says nothing else */
    text[n] = ' ';
    assert_int_equal(file_write(p->json, text, n + 1, NULL), DI_OK);
    free(text);
    di_tokenizer *const first = open_cached(p);
    di_tokenizer *const second = open_cached(p);
    assert_false(is_mapped(first));
    assert_true(is_mapped(second));
    di_tokenizer_close(first);
    di_tokenizer_close(second);
}

/* Only a believed stamp stands for the text: the digest in the file is then not compared. */
static void stamp_spares_the_digest(void **state)
{
    const place *const p = *state;
    static const uint8_t other_digest[DIGEST_BYTES] = {1};
    di_tokenizer *const tok = sup_demo();
    char *const file = tok_cache_path(p->cache, p->json);
    tok_stamp stamp;
    assert_true(tok_stamp_take(p->json, &stamp));
    tok_stamp same = stamp;
    same.believed = stamp.believed = 1;
    assert_true(tok_stamp_same(&stamp, &same));
    same.changed_ns++;
    assert_false(tok_stamp_same(&stamp, &same));
    same = stamp;
    same.believed = 0;
    assert_false(tok_stamp_same(&same, &same));
    /* A young stamp and another digest: built from the JSON. */
    tok_cache_store(file, &same, other_digest, tok);
    di_tokenizer *const opened = open_cached(p);
    assert_false(is_mapped(opened));
    di_tokenizer_close(opened);
    di_tokenizer_close(tok);
    free(file);
}

static void useless_folders_do_no_harm(void **state)
{
    place p = *(const place *)*state;
    (void)snprintf(p.cache, sizeof p.cache, "%s", p.json); /* a file */
    di_tokenizer *tok = open_cached(&p);
    assert_false(is_mapped(tok));
    di_tokenizer_close(tok);
    p.cache[0] = '\0'; /* none */
    tok = open_cached(&p);
    assert_false(is_mapped(tok));
    di_tokenizer_close(tok);
    assert_null(tok_cache_path("", p.json));
    assert_null(tok_cache_path(NULL, "no/such/file"));
}

static void writable_by_all_is_refused(void **state)
{
    const place *const p = *state;
    di_tokenizer_close(open_cached(p));
    char *const file = tok_cache_path(p->cache, p->json);
    tok_stamp stamp;
    uint8_t digest[DIGEST_BYTES];
    di_tokenizer *const good = tok_cache_load(file, &stamp, digest);
    assert_non_null(good);
    di_tokenizer_close(good);
    assert_int_equal(chmod(file, 0666), 0);
    assert_null(tok_cache_load(file, &stamp, digest));
    assert_null(tok_cache_load(p->cache, &stamp, digest));
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cached_equals_built, make_place, remove_place),
        cmocka_unit_test_setup_teardown(change_is_seen, make_place, remove_place),
        cmocka_unit_test_setup_teardown(stamp_spares_the_digest, make_place, remove_place),
        cmocka_unit_test_setup_teardown(useless_folders_do_no_harm, make_place, remove_place),
        cmocka_unit_test_setup_teardown(writable_by_all_is_refused, make_place, remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
