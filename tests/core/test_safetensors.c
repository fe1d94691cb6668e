/* Tests of safetensors.c and safetensors_write.c: every way in which a file of hostile origin may lie. */
#include "support/unit.h"

#include "core/file.h"
#include "core/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Writes a file of the given header length field, header and number of data bytes, and opens it. */
static di_status open_raw(uint64_t length, const char *header, size_t header_size, size_t data_size, st_file **file, di_error *err)
{
    const size_t size = 8 + header_size + data_size;
    uint8_t *const bytes = calloc(1, size);
    assert_non_null(bytes);
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(length >> 8 * i);
    }
    memcpy(bytes + 8, header, header_size);
    for (size_t i = 0; i < data_size; i++) {
        bytes[8 + header_size + i] = (uint8_t)i;
    }
    unit_write(dir, "x.safetensors", bytes, size);
    free(bytes);
    char *const path = file_path_join(dir, "x.safetensors");
    assert_non_null(path);
    const di_status status = st_open(path, file, err);
    free(path);
    return status;
}

static di_status open_text(const char *header, size_t data_size, st_file **file, di_error *err)
{
    return open_raw(strlen(header), header, strlen(header), data_size, file, err);
}

static void a_good_file_opens(void **state)
{
    (void)state;
    st_file *file;
    di_error err;
    const char *const header = "{\"__metadata__\":{\"format\":\"pt\"},"
                               "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                               "\"a\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"F32\"},"
                               "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                               "\"\\u00e9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[16,17]}}   ";
    if (open_text(header, 17, &file, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(st_label(file), "x.safetensors");
    assert_int_equal(st_count(file), 4);
    assert_string_equal(st_at(file, 0)->name, "b");
    assert_null(st_at(file, 4));
    const st_tensor *const b = st_find(file, "b");
    assert_int_equal(b->dtype, ST_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dims[1], 3);
    assert_int_equal(b->size, 12);
    assert_int_equal(b->data[0], 4);
    assert_int_equal(st_find(file, "a")->n_dims, 0);
    assert_int_equal(st_find(file, "none")->size, 0);
    assert_int_equal(st_find(file, "\xC3\xA9")->data[0], 16);
    assert_null(st_find(file, "__metadata__"));
    assert_null(st_find(file, "c"));
    st_close(file);
    st_close(NULL);
}

static void an_empty_set_of_tensors_is_a_file(void **state)
{
    (void)state;
    st_file *file;
    assert_int_equal(open_text("{}", 0, &file, NULL), DI_OK);
    assert_int_equal(st_count(file), 0);
    assert_null(st_find(file, "a"));
    st_close(file);
}

/* T("x", dtype, shape, offsets): one header entry. */
#define T(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void lies_of_the_header_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_size;
        di_status code;
        const char *message;
    } cases[] = {
        /* extents */
        {"{" T("x", "U8", "[8]", "[0,8]") "}", 7, DI_E_FORMAT, "tensor \"x\": data_offsets end at byte 8, but the file holds 7"},
        {"{" T("x", "U8", "[8]", "[0,8]") "}", 9, DI_E_FORMAT, "1 bytes at the end belong to no tensor"},
        {"{}", 1, DI_E_FORMAT, "1 bytes at the end"},
        {"{" T("x", "U8", "[4]", "[0,4]") "," T("y", "U8", "[4]", "[2,6]") "}", 6, DI_E_FORMAT, "tensor \"y\" overlaps \"x\""},
        {"{" T("y", "U8", "[4]", "[2,6]") "," T("x", "U8", "[4]", "[0,4]") "}", 6, DI_E_FORMAT, "tensor \"y\" overlaps \"x\""},
        {"{" T("x", "U8", "[4]", "[0,4]") "," T("y", "U8", "[4]", "[0,4]") "}", 4, DI_E_FORMAT, "overlaps"},
        {"{" T("x", "U8", "[4]", "[0,4]") "," T("y", "U8", "[0]", "[2,2]") "}", 4, DI_E_FORMAT, "overlaps"},
        {"{" T("x", "U8", "[4]", "[0,4]") "," T("y", "U8", "[1]", "[5,6]") "}", 6, DI_E_FORMAT, "1 bytes before tensor \"y\""},
        {"{" T("x", "U8", "[4]", "[1,5]") "}", 5, DI_E_FORMAT, "1 bytes before tensor \"x\""},
        {"{" T("x", "U8", "[4]", "[4,0]") "}", 4, DI_E_FORMAT, "run backwards"},
        /* sizes */
        {"{" T("x", "F32", "[2]", "[0,4]") "}", 4, DI_E_FORMAT, "need 8 bytes, data_offsets give 4"},
        {"{" T("x", "F32", "[]", "[0,8]") "}", 8, DI_E_FORMAT, "need 4 bytes, data_offsets give 8"},
        {"{" T("x", "U8", "[9223372036854775807]", "[0,4]") "}", 4, DI_E_FORMAT, "need 9223372036854775807 bytes"},
        {"{" T("x", "U8", "[9223372036854775808]", "[0,4]") "}", 4, DI_E_FORMAT, "larger than 2^63 - 1"},
        {"{" T("x", "U8", "[4]", "[0,9223372036854775808]") "}", 4, DI_E_FORMAT, "data_offsets 9223372036854775808 is larger"},
        {"{" T("x", "U8", "[4]", "[9223372036854775803,9223372036854775807]") "}", 4, DI_E_FORMAT, "data_offsets end at byte"},
        {"{" T("x", "U8", "[99999999999999999999999]", "[0,4]") "}", 4, DI_E_FORMAT, "larger than"},
        {"{" T("x", "F32", "[4611686018427387904]", "[0,0]") "}", 0, DI_E_FORMAT, "overflows"},
        {"{" T("x", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, DI_E_FORMAT, "overflows"},
        {"{" T("x", "U8", "[4294967296,4294967296,0]", "[0,0]") "}", 0, DI_E_FORMAT, "overflows"},
        {"{" T("x", "U8", "[-4]", "[0,4]") "}", 4, DI_E_FORMAT, "shape -4 is not a whole number"},
        {"{" T("x", "U8", "[4]", "[-4,0]") "}", 4, DI_E_FORMAT, "data_offsets -4 is not a whole number"},
        {"{" T("x", "U8", "[4.0]", "[0,4]") "}", 4, DI_E_FORMAT, "not a whole number"},
        {"{" T("x", "U8", "[4e0]", "[0,4]") "}", 4, DI_E_FORMAT, "not a whole number"},
        {"{" T("x", "U8", "[-0]", "[0,0]") "}", 0, DI_E_FORMAT, "not a whole number"},
        {"{" T("x", "U8", "[\"4\"]", "[0,4]") "}", 4, DI_E_FORMAT, "shape must hold numbers only"},
        {"{" T("x", "U8", "[[4]]", "[0,4]") "}", 4, DI_E_FORMAT, "shape must hold numbers only"},
        {"{" T("x", "U8", "4", "[0,4]") "}", 4, DI_E_FORMAT, "shape must be an array"},
        {"{" T("x", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, DI_E_FORMAT, "more than 8 numbers"},
        {"{" T("x", "U8", "[4]", "[0]") "}", 4, DI_E_FORMAT, "data_offsets must hold 2 numbers, found 1"},
        {"{" T("x", "U8", "[4]", "[0,4,8]") "}", 4, DI_E_FORMAT, "data_offsets has more than 2 numbers"},
        {"{" T("x", "U8", "[4]", "{}") "}", 4, DI_E_FORMAT, "data_offsets must be an array"},
        /* dtypes */
        {"{" T("x", "F4", "[4]", "[0,4]") "}", 4, DI_E_UNSUPPORTED, "dtype \"F4\" is not supported"},
        {"{" T("x", "", "[4]", "[0,4]") "}", 4, DI_E_UNSUPPORTED, "dtype \"\" is not supported"},
        {"{" T("x", "u8", "[4]", "[0,4]") "}", 4, DI_E_UNSUPPORTED, "dtype \"u8\""},
        {"{\"x\":{\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]}}", 4, DI_E_FORMAT, "dtype must be a string"},
        /* names and fields */
        {"{" T("x", "U8", "[2]", "[0,2]") "," T("x", "U8", "[2]", "[2,4]") "}", 4, DI_E_FORMAT, "duplicate tensor \"x\""},
        {"{" T("x", "U8", "[2]", "[0,2]") "," T("\\u0078", "U8", "[2]", "[2,4]") "}", 4, DI_E_FORMAT, "duplicate tensor \"x\""},
        {"{" T("", "U8", "[2]", "[0,2]") "}", 2, DI_E_FORMAT, "name of tensor 0 is empty"},
        {"{" T("a\\u0000b", "U8", "[2]", "[0,2]") "}", 2, DI_E_FORMAT, "control characters"},
        {"{" T("a\\n", "U8", "[2]", "[0,2]") "}", 2, DI_E_FORMAT, "control characters"},
        {"{" T("\xFF", "U8", "[2]", "[0,2]") "}", 2, DI_E_FORMAT, "invalid UTF-8"},
        {"{" T("\xC0\x80", "U8", "[2]", "[0,2]") "}", 2, DI_E_FORMAT, "invalid UTF-8"},
        {"{" T("\\ud800", "U8", "[2]", "[0,2]") "}", 2, DI_E_FORMAT, "lone surrogate"},
        {"{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, DI_E_FORMAT, "duplicate field \"dtype\""},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"z\":1}}", 1, DI_E_FORMAT, "unknown field \"z\""},
        {"{\"x\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, DI_E_FORMAT, "has no dtype"},
        {"{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, DI_E_FORMAT, "has no shape"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, DI_E_FORMAT, "has no data_offsets"},
        {"{\"x\":{}}", 0, DI_E_FORMAT, "has no dtype"},
        {"{\"x\":[]}", 0, DI_E_FORMAT, "tensor \"x\": its header entry must be an object"},
        {"{\"x\":null}", 0, DI_E_FORMAT, "must be an object"},
        {"{\"__metadata__\":[]}", 0, DI_E_FORMAT, "__metadata__ must be an object of strings"},
        {"{\"__metadata__\":{\"a\":1}}", 0, DI_E_FORMAT, "__metadata__ must be"},
        {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, DI_E_FORMAT, "__metadata__ must be"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, DI_E_FORMAT, "duplicate __metadata__"},
        /* the header as a whole */
        {"[]", 0, DI_E_FORMAT, "header must be a JSON object"},
        {"7", 0, DI_E_FORMAT, "header must be a JSON object"},
        {"null", 0, DI_E_FORMAT, "header must be a JSON object"},
        {"", 0, DI_E_FORMAT, "unexpected end"},
        {"    ", 0, DI_E_FORMAT, "unexpected end"},
        {"{", 0, DI_E_FORMAT, "unexpected end"},
        {"{}{}", 0, DI_E_FORMAT, "after the document"},
        {"{" T("x", "U8", "[1]", "[0,1]") ",}", 1, DI_E_FORMAT, "where a key"},
        {"{\"x\":{\"dtype\":[[[[[[]]]]]],\"shape\":[1],\"data_offsets\":[0,1]}}", 1, DI_E_LIMIT, "nested too deeply"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        st_file *file = NULL;
        di_error err = {.message = ""};
        const di_status status = open_text(cases[i].header, cases[i].data_size, &file, &err);
        if (status != cases[i].code) {
            fail_msg("%s: status %s, message \"%s\"", cases[i].header, di_status_name(status), err.message);
        }
        unit_expect_error(status, cases[i].code, &err, "x.safetensors", cases[i].message, NULL);
        assert_null(file);
        /* The same from a header in memory. */
        di_error again = {.message = ""};
        assert_int_equal(st_open_header(cases[i].header, strlen(cases[i].header), cases[i].data_size, "x.safetensors", &file, &again),
                         status);
        assert_string_equal(again.message, err.message);
    }
}

static void lies_of_the_length_field_are_found(void **state)
{
    (void)state;
    st_file *file = NULL;
    di_error err;
    unit_expect_error(open_raw(3, "{}", 2, 0, &file, &err), DI_E_FORMAT, &err, "x.safetensors", "header has 3 bytes, but only 2", NULL);
    unit_expect_error(open_raw(UINT64_MAX, "{}", 2, 0, &file, &err), DI_E_FORMAT, &err, "18446744073709551615", "limit", NULL);
    unit_expect_error(open_raw((uint64_t)1 << 63, "{}", 2, 0, &file, &err), DI_E_FORMAT, &err, "9223372036854775808", NULL);
    unit_expect_error(open_raw(ST_MAX_HEADER_BYTES + 1, "{}", 2, 0, &file, &err), DI_E_FORMAT, &err, "104857601", "limit", NULL);
    unit_expect_error(open_raw(ST_MAX_HEADER_BYTES, "{}", 2, 0, &file, &err), DI_E_FORMAT, &err, "only 2 follow", NULL);
    unit_expect_error(open_raw(0, "{}", 2, 0, &file, &err), DI_E_FORMAT, &err, "unexpected end", NULL);
    unit_expect_error(open_raw(1, "{}", 2, 0, &file, &err), DI_E_FORMAT, &err, "unexpected end", NULL);
    unit_expect_error(st_open_header("{}", (size_t)ST_MAX_HEADER_BYTES + 1, 0, "h", &file, &err), DI_E_FORMAT, &err, "h: ", "limit", NULL);
    assert_null(file);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    const char *const header = "{" T("x", "F32", "[2]", "[0,8]") "," T("y", "U8", "[3]", "[8,11]") "}";
    uint8_t bytes[256] = {(uint8_t)strlen(header)};
    memcpy(bytes + 8, header, strlen(header));
    const size_t size = 8 + strlen(header) + 11;
    char *const path = file_path_join(dir, "cut");
    assert_non_null(path);
    st_file *file = NULL;
    for (size_t n = 0; n < size; n++) {
        unit_write(dir, "cut", bytes, n);
        di_error err;
        unit_expect_error(st_open(path, &file, &err), DI_E_FORMAT, &err, "cut: ", NULL);
    }
    unit_write(dir, "cut", bytes, size);
    assert_int_equal(st_open(path, &file, NULL), DI_OK);
    st_close(file);
    free(path);
    di_error err;
    unit_expect_error(st_open("no/such/file", &file, &err), DI_E_IO, &err, "no/such/file", NULL);
}

static void written_files_read_back(void **state)
{
    (void)state;
    static const uint8_t bytes[3] = {1, 2, 3};
    static const float floats[4] = {0.5F, 1, 2, 3};
    static const double scalar = 7.25;
    static const uint16_t halves[2] = {0x3F80, 0x4000};
    st_writer *w;
    di_error err;
    assert_int_equal(st_writer_new(&w, &err), DI_OK);
    assert_int_equal(st_writer_add(w, "bytes \"quoted\" \xC3\xA9", ST_U8, 1, (const int64_t[]){3}, bytes, &err), DI_OK);
    assert_int_equal(st_writer_add(w, "floats", ST_F32, 2, (const int64_t[]){2, 2}, floats, &err), DI_OK);
    assert_int_equal(st_writer_add(w, "empty", ST_F32, 2, (const int64_t[]){0, 2}, NULL, &err), DI_OK);
    assert_int_equal(st_writer_add(w, "halves", ST_BF16, 1, (const int64_t[]){2}, halves, &err), DI_OK);
    assert_int_equal(st_writer_add(w, "scalar", ST_F64, 0, NULL, &scalar, &err), DI_OK);
    unit_expect_error(st_writer_add(w, "floats", ST_U8, 1, (const int64_t[]){3}, bytes, &err), DI_E_ARGUMENT, &err, "twice", NULL);
    unit_expect_error(st_writer_add(w, "", ST_U8, 1, (const int64_t[]){3}, bytes, &err), DI_E_ARGUMENT, &err, "name", NULL);
    unit_expect_error(st_writer_add(w, "n", ST_U8, 1, (const int64_t[]){-3}, bytes, &err), DI_E_ARGUMENT, &err, "-3", NULL);
    unit_expect_error(st_writer_add(w, "n", ST_F64, 1, (const int64_t[]){INT64_MAX}, bytes, &err), DI_E_ARGUMENT, &err, "n", NULL);
    unit_expect_error(st_writer_add(w, "n", ST_U8, 9, (const int64_t[]){1}, bytes, &err), DI_E_ARGUMENT, &err, "0..8", NULL);
    char *const path = file_path_join(dir, "written.safetensors");
    assert_non_null(path);
    assert_int_equal(st_write(w, path, &err), DI_OK);
    st_writer_free(w);
    st_writer_free(NULL);

    st_file *file;
    if (st_open(path, &file, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(st_count(file), 5);
    static const char *const order[] = {"scalar", "floats", "empty", "halves", "bytes \"quoted\" \xC3\xA9"};
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(st_at(file, i)->name, order[i]);
    }
    assert_memory_equal(st_find(file, "floats")->data, floats, sizeof floats);
    assert_memory_equal(st_find(file, "scalar")->data, &scalar, sizeof scalar);
    assert_memory_equal(st_find(file, order[4])->data, bytes, sizeof bytes);
    assert_int_equal((uintptr_t)st_find(file, "scalar")->data % 8, 0);
    st_close(file);
    free(path);
}

static void every_dtype_has_its_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t bytes;
    } dtypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I16", 2},
                  {"BF16", 2}, {"F16", 2}, {"I32", 4}, {"F32", 4},     {"I64", 8},     {"F64", 8}};
    for (int i = 0; i < ST_N_DTYPES; i++) {
        assert_string_equal(st_dtype_name((st_dtype)i), dtypes[i].name);
        assert_int_equal(st_dtype_bytes((st_dtype)i), dtypes[i].bytes);
        char header[200];
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", dtypes[i].name,
                 3 * dtypes[i].bytes);
        st_file *file;
        assert_int_equal(st_open_header(header, strlen(header), 3 * dtypes[i].bytes, "h", &file, NULL), DI_OK);
        assert_int_equal(st_at(file, 0)->dtype, i);
        assert_null(st_at(file, 0)->data);
        st_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_opens),
        cmocka_unit_test(an_empty_set_of_tensors_is_a_file),
        cmocka_unit_test(lies_of_the_header_are_found),
        cmocka_unit_test(lies_of_the_length_field_are_found),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(written_files_read_back),
        cmocka_unit_test(every_dtype_has_its_size),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
