/* Reading tokenizer.json: what is not implemented exactly is refused by name, both spellings of merges are read. */
#include "tok_support.h"

static const char head[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
    "\"added_tokens\":[{\"id\":300,\"content\":\"<x>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
    "\"normalized\":false,\"special\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+\"},\"behavior\":\"Isolated\","
    "\"invert\":false},"
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\\\p{L}"
    "\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},"
    "\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{\"a\":0,\"\\u0120b\":1},"
    "\"merges\":";

static const char list_merges[] = "[[\"a\",\"\\u0120b\"],[\"c\",\"d\"]]}}";

/* The document with `from` replaced by `to` (both NULL: as it is), read. */
static di_status read_changed(const char *merges, const char *from, const char *to, tok_source *source, di_error *err)
{
    char text[8192];
    char changed[2 * sizeof text];
    (void)snprintf(text, sizeof text, "%s%s", head, merges);
    const char *at = from != NULL ? strstr(text, from) : text;
    assert_non_null(at);
    (void)snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to != NULL ? to : "",
                   at + (from != NULL ? strlen(from) : 0));
    memset(err, 0, sizeof *err);
    return tok_source_read(changed, strlen(changed), "t.json", source, err);
}

static void expect_merges(const char *merges)
{
    tok_source source;
    di_error err;
    assert_int_equal(read_changed(merges, NULL, NULL, &source, &err), DI_OK);
    assert_int_equal(source.n_vocab, 2);
    assert_int_equal(source.n_added, 1);
    assert_int_equal(source.added[0].id, 300);
    assert_true(source.added[0].special);
    assert_false(source.added[0].normalized);
    assert_int_equal(source.n_merges, 2);
    assert_memory_equal(source.text + source.merges[0].left.offset, "a", 1);
    assert_int_equal(source.merges[0].left.size, 1);
    assert_int_equal(source.merges[0].right.size, 3);
    assert_memory_equal(source.text + source.merges[0].right.offset, "\xC4\xA0" "b", 3);
    assert_memory_equal(source.text + source.merges[1].right.offset, "d", 1);
    tok_source_fini(&source);
}

static void both_spellings_of_merges_are_read(void **state)
{
    (void)state;
    expect_merges(list_merges);
    expect_merges("[\"a \\u0120b\",\"c d\"]}}");
}

typedef struct refusal {
    const char *from;
    const char *to;
    const char *message;
} refusal;

static void other_pipelines_are_refused_by_name(void **state)
{
    (void)state;
    static const refusal refusals[] = {
        {"\"truncation\":null", "\"truncation\":{}", "field \"truncation\" is an object; only null"},
        {"\"normalizers\":[]", "\"normalizers\":[{\"type\":\"NFC\"}]", "field \"normalizer.normalizers\" has other elements"},
        {"{1,3}", "{1,2}", "field \"pre_tokenizer.pretokenizers.pattern.Regex\" is another string"},
        {"Isolated", "Removed", "field \"pre_tokenizer.pretokenizers.behavior\" is another string"},
        {"\"invert\":false", "\"invert\":true", "field \"pre_tokenizer.pretokenizers.invert\" is true; only false"},
        {"\"type\":\"ByteLevel\",\"add_prefix_space\":false", "\"type\":\"Metaspace\",\"add_prefix_space\":false",
         "field \"pre_tokenizer.pretokenizers.type\" is another string"},
        {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Fuse\"", "field \"decoder.type\" is another string"},
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "field \"model.type\" is another string; only BPE"},
        {"\"dropout\":null", "\"dropout\":0.1", "field \"model.dropout\" is a number; only null"},
        {"\"byte_fallback\":false", "\"byte_fallback\":true", "field \"model.byte_fallback\" is true"},
        {"\"fuse_unk\":false", "\"ignore_merges\":true", "field \"model.ignore_merges\" is true"},
        {"\"fuse_unk\":false", "\"new_option\":1", "field \"model.new_option\" is not known"},
        {"\"unk_token\":null", "\"unk_token\":\"<unk>\"", "field \"model.unk_token\" is another string; only null"},
        {"\"single_word\":false", "\"single_word\":true", "field \"added_tokens.single_word\" is true; only false"},
        {"\"lstrip\":false", "\"lstrip\":true", "field \"added_tokens.lstrip\" is true"},
        {"\"rstrip\":false,", "", "field \"added_tokens.rstrip\" is missing"},
        {"\"version\":\"1.0\"", "\"version\":\"2.0\"", "field \"version\" is another string; only 1.0"},
        {"\"version\":\"1.0\",", "", "field \"version\" is missing"},
        {"\"padding\":null", "\"truncation\":null", "field \"truncation\" appears twice"},
        {"\"id\":300", "\"id\":-1", "field \"added_tokens.id\": a token id must be an integer"},
        {"\"id\":300", "\"id\":1048576", "field \"added_tokens.id\": a token id must be an integer from 0 to 1048575"},
        {"\"a\":0", "\"a\":1.5", "field \"model.vocab\": a token id must be an integer"},
        {"[\"c\",\"d\"]", "[\"c\"]", "field \"model.merges\": merge 1 is neither"},
        {"[\"c\",\"d\"]", "[\"c\",\"d\",\"e\"]", "field \"model.merges\": merge 1 is neither"},
        {"[\"c\",\"d\"]", "\"c d e\"", "field \"model.merges\": merge 1 is neither"},
        {"[\"c\",\"d\"]", "\"cd\"", "field \"model.merges\": merge 1 is neither"},
        {"\"c\",\"d\"]]", "\"c\",\"d\"", "t.json: line 1"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        tok_source source;
        di_error err;
        assert_int_not_equal(read_changed(list_merges, refusals[i].from, refusals[i].to, &source, &err), DI_OK);
        if (strstr(err.message, refusals[i].message) == NULL) {
            fail_msg("\"%s\" does not hold \"%s\"", err.message, refusals[i].message);
        }
    }
}

static void every_truncation_of_the_file_is_an_error(void **state)
{
    (void)state;
    char text[8192];
    (void)snprintf(text, sizeof text, "%s%s", head, list_merges);
    for (size_t n = 0; n < strlen(text); n++) {
        tok_source source;
        assert_int_not_equal(tok_source_read(text, n, "t.json", &source, NULL), DI_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings_of_merges_are_read),
        cmocka_unit_test(other_pipelines_are_refused_by_name),
        cmocka_unit_test(every_truncation_of_the_file_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
