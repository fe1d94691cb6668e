/* Tests of mdl_checkpoint.c: index and shards that contradict each other. */
#include "support/unit.h"

#include "core/buf.h"
#include "core/file.h"
#include "model/mdl_checkpoint.h"
#include "model/mdl_inventory.h"
#include "model/tiny.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *dir;

static int make_dir(void **state)
{
    (void)state;
    dir = unit_scratch_new();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unit_scratch_remove(dir);
    return 0;
}

static void expect(di_status code, const char *text1, const char *text2)
{
    mdl_checkpoint *c = NULL;
    di_error err = {.message = ""};
    unit_expect_error(mdl_checkpoint_open(dir, &c, &err), code, &err, text1, text2, NULL);
    assert_null(c);
}

/* Replaces the first `find` of a file of the checkpoint by `replace`; a shorter text is filled with spaces, so that a header
 * keeps its length. */
static void edit(const char *name, const char *find, const char *replace)
{
    char *const path = file_path_join(dir, name);
    char *data = NULL;
    size_t size = 0;
    assert_non_null(path);
    assert_int_equal(file_read(path, 1 << 24, &data, &size, NULL), DI_OK);
    char *const at = memmem(data, size, find, strlen(find));
    if (at == NULL) {
        fail_msg("no \"%s\" in %s", find, name);
    }
    assert_true(strlen(replace) <= strlen(find));
    memset(at, ' ', strlen(find));
    memcpy(at, replace, strlen(replace));
    unit_write(dir, name, data, size);
    free(data);
    free(path);
}

static void shards_are_seen_as_one_set(void **state)
{
    (void)state;
    mdl_checkpoint *c;
    di_error err;
    tiny_write(dir, NULL);
    if (mdl_checkpoint_open(dir, &c, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    mdl_config config;
    uint64_t n_tensors;
    uint64_t n_bytes;
    tiny_config(&config);
    mdl_inventory_totals(&config, &n_tensors, &n_bytes);
    assert_int_equal(mdl_checkpoint_count(c), n_tensors);
    assert_int_equal(mdl_checkpoint_bytes(c), n_bytes);
    assert_int_equal(mdl_checkpoint_n_shards(c), 2);
    assert_string_equal(st_label(mdl_checkpoint_shard(c, 1)), TINY_SHARD_2);
    assert_null(mdl_checkpoint_shard(c, 2));
    for (size_t i = 0; i < n_tensors; i++) {
        const st_tensor *const t = mdl_checkpoint_at(c, i);
        assert_int_equal(mdl_checkpoint_index(c, t->name), i);
        assert_ptr_equal(mdl_checkpoint_find(c, t->name), t);
        assert_non_null(strstr(mdl_checkpoint_shard_of(c, i), "-of-00002.safetensors"));
    }
    assert_null(mdl_checkpoint_find(c, "layers.9.attn_norm.weight"));
    assert_int_equal(mdl_checkpoint_index(c, ""), n_tensors);
    assert_null(mdl_checkpoint_at(c, n_tensors));
    mdl_checkpoint_close(c);
    mdl_checkpoint_close(NULL);
}

static void a_single_file_needs_no_index(void **state)
{
    (void)state;
    char *const single = unit_scratch_new();
    st_writer *w;
    assert_int_equal(st_writer_new(&w, NULL), DI_OK);
    assert_int_equal(st_writer_add(w, "a", ST_U8, 1, (const int64_t[]){3}, "xyz", NULL), DI_OK);
    char *const path = file_path_join(single, "model.safetensors");
    assert_int_equal(st_write(w, path, NULL), DI_OK);
    st_writer_free(w);
    mdl_checkpoint *c;
    assert_int_equal(mdl_checkpoint_open(single, &c, NULL), DI_OK);
    assert_int_equal(mdl_checkpoint_count(c), 1);
    assert_memory_equal(mdl_checkpoint_find(c, "a")->data, "xyz", 3);
    mdl_checkpoint_close(c);
    free(path);
    unit_scratch_remove(single);
}

static void a_folder_without_a_checkpoint_is_named(void **state)
{
    (void)state;
    mdl_checkpoint *c = NULL;
    di_error err;
    unit_expect_error(mdl_checkpoint_open("no/such/folder", &c, &err), DI_E_IO, &err, "no/such/folder", TINY_INDEX, NULL);
}

static void a_missing_shard_is_named(void **state)
{
    (void)state;
    tiny_write(dir, NULL);
    char *const path = file_path_join(dir, TINY_SHARD_2);
    assert_int_equal(unlink(path), 0);
    free(path);
    expect(DI_E_IO, TINY_SHARD_2, "No such file");
}

static void a_truncated_shard_is_named(void **state)
{
    (void)state;
    tiny_write(dir, NULL);
    char *const path = file_path_join(dir, TINY_SHARD_1);
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(file_read(path, 1 << 24, &data, &size, NULL), DI_OK);
    unit_write(dir, TINY_SHARD_1, data, size - 1);
    expect(DI_E_FORMAT, TINY_SHARD_1, "truncated");
    unit_write(dir, TINY_SHARD_1, data, 100);
    expect(DI_E_FORMAT, TINY_SHARD_1, "truncated");
    unit_write(dir, TINY_SHARD_1, data, 0);
    expect(DI_E_FORMAT, TINY_SHARD_1, "too few");
    free(data);
    free(path);
}

static void an_index_that_contradicts_the_shards_is_refused(void **state)
{
    (void)state;
    tiny_write(dir, NULL);
    edit(TINY_INDEX, "\"embed.weight\":\"" TINY_SHARD_1 "\"", "\"embed.weight\":\"" TINY_SHARD_2 "\"");
    expect(DI_E_FORMAT, "tensor \"embed.weight\"", "places it in " TINY_SHARD_2 ", but it is in " TINY_SHARD_1);
    tiny_write(dir, NULL);
    edit(TINY_INDEX, "\"embed.weight\":\"" TINY_SHARD_1 "\",", "");
    expect(DI_E_FORMAT, "tensor \"embed.weight\" of " TINY_SHARD_1, "is not listed");
    tiny_write(dir, NULL);
    edit(TINY_INDEX, "embed.weight", "embed.height");
    expect(DI_E_FORMAT, "tensor \"embed.height\" is missing", TINY_SHARD_1);
    tiny_write(dir, NULL);
    edit(TINY_INDEX, "\"head.weight\"", "\"norm.weight\"");
    expect(DI_E_FORMAT, TINY_INDEX, "duplicate key \"norm.weight\"");
}

static void a_tensor_in_two_shards_is_refused(void **state)
{
    (void)state;
    tiny_write(dir, NULL);
    edit(TINY_SHARD_2, "\"head.weight\"", "\"norm.weight\""); /* norm.weight lies in the first shard */
    expect(DI_E_FORMAT, "tensor \"norm.weight\" is stored twice", TINY_SHARD_1);
}

static void malformed_indexes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"", "unexpected end"},
        {"[]", "weight_map must be an object"},
        {"{}", "weight_map must be an object"},
        {"{\"weight_map\":{}}", "weight_map must be an object"},
        {"{\"weight_map\":[\"a\"]}", "weight_map must be an object"},
        {"{\"weight_map\":{\"a\":1}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":null}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\".\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"../x\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"b\\\\c\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"b\\u0000c\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"b\\nc\"}}", "weight_map entry 0"},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "duplicate key \"a\""},
        {"{\"weight_map\":{\"a\":\"x\"}", "unexpected end"},
    };
    tiny_write(dir, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unit_write(dir, TINY_INDEX, cases[i].text, strlen(cases[i].text));
        expect(DI_E_FORMAT, TINY_INDEX, cases[i].message);
        size_t n;
        di_error err = {.message = ""};
        assert_int_equal(mdl_checkpoint_check_index(cases[i].text, strlen(cases[i].text), &n, &err), DI_E_FORMAT);
    }
    size_t n = 0;
    const char *const good = "{\"weight_map\":{\"a\":\"x\",\"b\":\"y\",\"c\":\"x\"}}";
    assert_int_equal(mdl_checkpoint_check_index(good, strlen(good), &n, NULL), DI_OK);
    assert_int_equal(n, 3);
}

/* As many names as the released checkpoint has are indexed and found within a second, whatever their order. */
static void large_checkpoints_are_indexed_quickly(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    enum { N = 9608 };
#else
    enum { N = 96085 };
#endif
    buf header;
    buf_init(&header, 1 << 26);
    buf_puts(&header, "{");
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t shuffled = i * 31337u % N;
        buf_printf(&header, "%s\"layers.%u.ffn.experts.%u.w1.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
                   i > 0 ? "," : "", shuffled % 40, shuffled, i, i + 1);
    }
    buf_puts(&header, "}");
    assert_false(header.failed);
    const clock_t start = clock();
    st_file *file;
    mdl_checkpoint *c;
    assert_int_equal(st_open_header(header.data, header.size, N, "large", &file, NULL), DI_OK);
    assert_int_equal(mdl_checkpoint_of_file(file, &c, NULL), DI_OK);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(mdl_checkpoint_index(c, mdl_checkpoint_at(c, i)->name), i);
    }
    const double took = (double)(clock() - start) / CLOCKS_PER_SEC; /* of this process alone: the machine may be busy */
    print_message("%d tensors opened and found in %.0f ms\n", N, took * 1e3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(took < 1.0);
#endif
    mdl_checkpoint_close(c);
    buf_fini(&header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_seen_as_one_set),
        cmocka_unit_test(a_single_file_needs_no_index),
        cmocka_unit_test(a_folder_without_a_checkpoint_is_named),
        cmocka_unit_test(a_missing_shard_is_named),
        cmocka_unit_test(a_truncated_shard_is_named),
        cmocka_unit_test(an_index_that_contradicts_the_shards_is_refused),
        cmocka_unit_test(a_tensor_in_two_shards_is_refused),
        cmocka_unit_test(malformed_indexes_are_refused),
        cmocka_unit_test(large_checkpoints_are_indexed_quickly),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
