/* The output parser gives the same however its input is cut: into bytes, characters or random parts, one id at a
 * time or many, and however ordinary text is spelled by ids. Over the texts of outputs.jsonl and over generated
 * ones that are full of markers, halves of markers, newlines and stop strings. And it holds back nothing but what
 * may still become a marker. */
#include "out_support.h"

#include "support/unit.h"

enum { MAX_TEXT = 600, ROUNDS = 4000, MAX_IDS = 4 * MAX_TEXT };

static int32_t end_think_id;
static int32_t dsml_id;

/* ---- cuts ---- */

typedef enum cutting { WHOLE, BYTES, CHARACTERS, RANDOM, N_CUTTINGS } cutting;

static size_t next_cut(cutting how, const char *text, size_t n, size_t at, uint64_t *seed)
{
    size_t size = 1;
    switch (how) {
    case WHOLE:
        return n - at;
    case CHARACTERS:
        while (at + size < n && ((unsigned char)text[at + size] & 0xC0) == 0x80) {
            size++;
        }
        return size;
    case RANDOM:
        size += unit_random(seed) % (unit_random(seed) % 4 == 0 ? 40 : 6);
        return size < n - at ? size : n - at;
    default:
        return 1;
    }
}

static di_output *open_output(const di_output_options *options)
{
    di_output *output = NULL;
    assert_int_equal(di_output_new(fixture.recipe, options, &output, NULL), DI_OK);
    return output;
}

static void end_output(di_output *output, di_finish reason, out_result *r)
{
    assert_int_equal(di_output_finish(output, reason, NULL), DI_OK);
    out_take(output, r);
    assert_int_equal(r->n_finishes, 1);
    di_output_free(output);
}

static void parse_text(const di_output_options *options, const char *text, size_t n, di_finish reason, cutting how,
                       uint64_t *seed, out_result *r)
{
    di_output *const output = open_output(options);
    out_result_init(r);
    for (size_t at = 0; at < n;) {
        const size_t size = next_cut(how, text, n, at, seed);
        assert_int_equal(di_output_push_text(output, text + at, size, 1, NULL), DI_OK);
        out_take(output, r);
        at += size;
    }
    end_output(output, reason, r);
}

static void check_text(const di_output_options *options, const char *text, size_t n, di_finish reason, uint64_t *seed)
{
    out_result whole;
    parse_text(options, text, n, reason, WHOLE, seed, &whole);
    for (int how = BYTES; how < N_CUTTINGS + 2; how++) {
        out_result cut;
        parse_text(options, text, n, reason, how < N_CUTTINGS ? (cutting)how : RANDOM, seed, &cut);
        out_expect_same(&whole, &cut, text);
        out_result_fini(&cut);
    }
    out_result_fini(&whole);
}

/* ---- generated texts ---- */

static const char *const fragments[] = {
    "</think>", "<think>", "<｜DSML｜", "</｜DSML｜", "｜DSML｜", "<｜DSML｜ calls>", "</｜DSML｜ calls>", "</｜DSML｜tool_calls>",
    "<｜DSML｜ invoke name=\"f\">", "</｜DSML｜ invoke>", "<｜DSML｜invoke name=\"",
    "<｜DSML｜ parameter name=\"k\" string=\"true\">",
    "<｜DSML｜parameter name=\"k k\" string=\"false\">", "</｜DSML｜ parameter>", "parameter name=\"", "invoke name=\"",
    "true\">", "false\">",
    "\"", "\\", "\n", "\n", "\n\n", "\r", "\t", " ", "<", "</", "</th", "<｜", "<｜DS", "</｜DSM", "｜",
    "\xEF\xBD", "\x9C", "think>", "```json\n", "\n```",
    "```\n", "```", "{", "}", "[1, 2]", "{\"a\": \"b\"}", "END", "EN", "ENDE", "aab",
    "aa", "a", "b", "word ", "日本", "🦀", "é", "\x01", "\xFF",
    "\xF0\x9F", "\xEF\xBF\xBD", "<｜User｜>",
};
enum { N_FRAGMENTS = sizeof fragments / sizeof *fragments };

static size_t generate(uint64_t *seed, char *text, bool valid)
{
    const size_t limit = 1 + unit_random(seed) % (MAX_TEXT - 64);
    size_t n = 0;
    while (n < limit) {
        const char *const part = fragments[unit_random(seed) % N_FRAGMENTS];
        const unsigned char first = (unsigned char)part[0];
        const bool half = strcmp(part, "\xEF\xBD") == 0 || strcmp(part, "\xF0\x9F") == 0;
        const bool broken = first == 0xFF || first == 0x9C || half;
        if (!(valid && broken)) {
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
    }
    text[n] = '\0';
    return n;
}

static di_output_options random_options(uint64_t *seed)
{
    static const char *const lists[][3] = {
        {"END", "ENDER", "aab"}, {"aa", "aab", "\n\n"}, {"<", "</think>", "｜DSML｜"}, {"a日", "END", "\n```"}};
    const uint64_t r = unit_random(seed);
    return (di_output_options){.tools = r % 4 != 0,
                               .in_tools = r % 32 == 7,
                               .json = (r >> 8) % 5 == 0,
                               .stage = (di_output_stage)((r >> 16) % 4),
                               .stops = lists[(r >> 24) % 4], .n_stops = (r >> 32) % 2 != 0 ? 0 : (r >> 40) % 4};
}

static di_finish random_reason(uint64_t *seed)
{
    static const di_finish reasons[] = {DI_FINISH_STOP, DI_FINISH_LENGTH, DI_FINISH_FILTER, DI_FINISH_CUT};
    return reasons[unit_random(seed) % 4];
}

static void generated_text_in_any_cutting(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        char text[MAX_TEXT];
        const size_t n = generate(&seed, text, false);
        const di_output_options options = random_options(&seed);
        check_text(&options, text, n, random_reason(&seed), &seed);
    }
}

/* ---- ids ---- */

static size_t encode(const char *text, size_t n, int32_t *ids)
{
    size_t n_ids;
    assert_int_equal(di_tokenizer_encode(fixture.tokenizer, text, n, 0, ids, MAX_IDS, &n_ids, NULL), DI_OK);
    assert_true(n_ids <= MAX_IDS);
    return n_ids;
}

static bool starts_with(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* The markers as control ids, but some spelled out (`spoof` says which); what is between them in parts of random
 * size. */
static size_t spell(const char *text, size_t n, uint64_t spoof, bool parts, uint64_t *seed, int32_t *ids)
{
    size_t n_ids = 0;
    size_t from = 0;
    unsigned n_markers = 0;
    for (size_t i = 0; i <= n; i++) {
        const bool is_think = i < n && starts_with(text + i, "</think>");
        const bool is_dsml = i < n && starts_with(text + i, "｜DSML｜");
        const bool marker = (is_think || is_dsml) && (spoof >> n_markers++ % 64 & 1) == 0;
        /* Only at a character, so that ids with U+FFFD in them don't come up. */
        const bool may_cut = i < n && ((unsigned char)text[i] & 0xC0) != 0x80;
        if (i == n || marker || (parts && may_cut && unit_random(seed) % 3 == 0)) {
            n_ids += encode(text + from, i - from, ids + n_ids);
            from = i;
        }
        if (marker) {
            ids[n_ids++] = is_think ? end_think_id : dsml_id;
            i += strlen(is_think ? "</think>" : "｜DSML｜") - 1;
            from = i + 1;
        }
    }
    return n_ids;
}

static void parse_ids(const di_output_options *options, const int32_t *ids, size_t n, di_finish reason, size_t most,
                      bool logprobs, uint64_t *seed, out_result *r)
{
    di_output *const output = open_output(options);
    di_token_logprobs numbered[MAX_IDS];
    for (size_t i = 0; i < n; i++) {
        numbered[i] = (di_token_logprobs){.id = (int32_t)i};
    }
    out_result_init(r);
    for (size_t at = 0; at < n;) {
        const size_t size = 1 + unit_random(seed) % most;
        const size_t group = size < n - at ? size : n - at;
        assert_int_equal(di_output_push_ids(output, ids + at, group, logprobs ? numbered + at : NULL, NULL), DI_OK);
        out_take(output, r);
        at += group;
    }
    end_output(output, reason, r);
}

static void check_ids(const di_output_options *options, const char *text, size_t n, di_finish reason, uint64_t *seed)
{
    int32_t ids[MAX_IDS];
    const uint64_t spoof = unit_random(seed) & unit_random(seed);
    const size_t n_ids = spell(text, n, spoof, false, seed, ids);
    out_result whole;
    parse_ids(options, ids, n_ids, reason, MAX_IDS, true, seed, &whole);
    for (size_t most = 1; most < 20; most += 6) {
        out_result groups;
        parse_ids(options, ids, n_ids, reason, most, true, seed, &groups);
        out_expect_same(&whole, &groups, text);
        out_result_fini(&groups);
    }
    /* Other ids for the same text: other log-probabilities, or none. */
    out_result other;
    buf_clear(&whole.logprobs);
    const size_t n_other = spell(text, n, spoof, true, seed, ids);
    parse_ids(options, ids, n_other, reason, 3, false, seed, &other);
    out_expect_same(&whole, &other, text);
    out_result_fini(&other);
    out_result_fini(&whole);
}

static void generated_ids_in_any_grouping(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int round = 0; round < ROUNDS; round++) {
        char text[MAX_TEXT];
        const size_t n = generate(&seed, text, true);
        const di_output_options options = random_options(&seed);
        check_ids(&options, text, n, random_reason(&seed), &seed);
    }
}

/* Any ids at all: halves of characters, ids outside the vocabulary. */
static void random_ids_in_any_grouping(void **state)
{
    (void)state;
    uint64_t seed = 3;
    const int32_t n_vocabulary = di_tokenizer_vocab_size(fixture.tokenizer);
    for (int round = 0; round < ROUNDS; round++) {
        int32_t ids[100];
        for (int i = 0; i < 100; i++) {
            const uint64_t r = unit_random(&seed);
            ids[i] = r % 8 == 0   ? end_think_id
                     : r % 8 == 1 ? dsml_id
                     : r % 8 < 5  ? (int32_t)((r >> 8) % 400)
                                  : (int32_t)((r >> 8) % (uint64_t)(n_vocabulary + 20)) - 10;
        }
        const di_output_options options = random_options(&seed);
        const di_finish reason = random_reason(&seed);
        out_result whole;
        out_result groups;
        parse_ids(&options, ids, 100, reason, MAX_IDS, true, &seed, &whole);
        parse_ids(&options, ids, 100, reason, 1 + unit_random(&seed) % 9, true, &seed, &groups);
        out_expect_same(&whole, &groups, "random ids");
        out_result_fini(&groups);
        out_result_fini(&whole);
    }
}

/* ---- holding back ---- */

/* The most bytes at the end of an answer that may begin a stop string, a marker, or newlines in front of a tool
 * block. */
static size_t may_become(const char *text, size_t n, const di_output_options *options)
{
    const char *words[17];
    size_t n_words = 0;
    size_t best = 0;
    words[n_words++] = "</think>";
    for (size_t i = 0; i < options->n_stops; i++) {
        words[n_words++] = options->stops[i];
    }
    for (size_t i = 0; i < n_words; i++) {
        for (size_t k = 1; k < strlen(words[i]) && k <= n; k++) {
            best = memcmp(text + n - k, words[i], k) == 0 && k > best ? k : best;
        }
    }
    for (size_t k = 0; options->tools && k < strlen("<｜DSML｜") && k <= n; k++) {
        if (memcmp(text + n - k, "<｜DSML｜", k) == 0) {
            size_t size = k;
            while (size < n && text[n - size - 1] == '\n') {
                size++;
            }
            best = size > best ? size : best;
        }
    }
    return best;
}

static void nothing_else_is_held_back(void **state)
{
    (void)state;
    static const char *const stops[] = {"END", "aab", "\n\n\n"};
    uint64_t seed = 4;
    for (int round = 0; round < ROUNDS; round++) {
        char text[MAX_TEXT];
        const di_output_options options = {
            .tools = round % 2 == 0, .stage = DI_STAGE_CONTENT, .stops = stops, .n_stops = (size_t)round % 4};
        const size_t n = generate(&seed, text, true);
        di_output *const output = open_output(&options);
        out_result r;
        out_result_init(&r);
        for (size_t at = 0; at < n;) {
            const size_t size = next_cut(CHARACTERS, text, n, at, &seed);
            assert_int_equal(di_output_push_text(output, text + at, size, 1, NULL), DI_OK);
            out_take(output, &r);
            at += size;
            /* Until the first marker or stop string. */
            if (r.finish != DI_FINISH_NONE || memcmp(r.text.data != NULL ? r.text.data : "", text, r.text.size) != 0 ||
                r.text.size + may_become(text, at, &options) < at) {
                text[at] = '\0';
                const bool marker = strstr(text, "</think>") != NULL || strstr(text, "<｜DSML｜") != NULL;
                const bool stop = r.finish == DI_FINISH_STOP_STRING;
                if (!marker && !stop) {
                    fail_msg("\"%s\": %zu of %zu bytes were given", text, r.text.size, at);
                }
                break;
            }
        }
        out_result_fini(&r);
        di_output_free(output);
    }
}

/* ---- the vectors ---- */

static void check_vector(const js_value *root, uint64_t *seed)
{
    const char *stops[16];
    size_t sizes[16];
    const di_output_options options = out_options(js_get(root, "options"), stops, sizes);
    const js_value *const chunks = js_get(root, "chunks");
    char *const text = malloc(js_length(js_at(chunks, 0)) + 1);
    assert_non_null(text);
    size_t n;
    const char *const chunk = js_string(js_at(chunks, 0), &n);
    memcpy(text, chunk, n + 1);
    for (int reason = 0; reason < 4; reason++) {
        check_text(&options, text, n, random_reason(seed), seed);
        if (n < MAX_TEXT) {
            check_ids(&options, text, n, random_reason(seed), seed);
        }
    }
    free(text);
}

static void vector_texts_in_any_cutting(void **state)
{
    (void)state;
    size_t n_texts = 0;
    uint64_t seed = 5;
    out_lines lines;
    if (!out_lines_open(&lines, "outputs.jsonl")) {
        print_message("outputs.jsonl is not there\n");
        skip();
    }
    for (const js_value *root; (root = out_lines_next(&lines)) != NULL;) {
        const js_value *const chunks = js_get(root, "chunks");
        if (js_length(chunks) == 1 && js_kind_of(js_at(chunks, 0)) == JS_STRING) {
            check_vector(root, &seed);
            n_texts++;
        }
    }
    print_message("%zu texts\n", n_texts);
    assert_true(n_texts > 0);
}

static int open_all(void **state)
{
    (void)out_set_up_demo(state);
    end_think_id = di_tokenizer_find(fixture.tokenizer, "</think>", strlen("</think>"));
    dsml_id = di_tokenizer_find(fixture.tokenizer, "｜DSML｜", strlen("｜DSML｜"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated_text_in_any_cutting),
        cmocka_unit_test(generated_ids_in_any_grouping),
        cmocka_unit_test(random_ids_in_any_grouping),
        cmocka_unit_test(nothing_else_is_held_back),
        cmocka_unit_test(vector_texts_in_any_cutting),
    };
    return cmocka_run_group_tests(tests, open_all, out_tear_down);
}
