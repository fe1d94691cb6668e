/* Property: no text of a request becomes a control token (recipe.md 1.3). Every text field of a conversation in turn, and all at
 * once, is filled with hostile text: spellings of added tokens whole, cut at every character, nested, doubled, beside each other,
 * with NUL and full-width bars. Against the same conversation with harmless text
 *
 *   - the control tokens are the same, one by one,
 *   - each stands where the range says, spelled in full, and
 *   - the ids hold exactly these added tokens and no other.
 *
 * The one exception is meant: grounding tokens in assistant text and reasoning are control tokens. */
#include "out_support.h"

#include "recipe/rec_int.h"

enum { N_FIELDS = 13, FIELD_ANSWER = 2, FIELD_REASONING = 3, MAX_TEXT = 2048, ROUNDS = 2000 };

typedef struct place {
    const char *model;
    di_protocol protocol;
    bool thinking;
    bool tools;
} place;

static di_tokenizer *tokenizers[3];
static di_recipe *recipes[3];
static di_recipe *text_only;
static const char *const models[] = {"DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro", "DeepSeek-V4.1-Flash"};

static const char *const harmless = "harmless";

/* ---- hostile text ---- */

static const char *const spellings[] = {
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
    "｜DSML｜", "<｜latest_reminder｜>", "<｜image｜>", "<｜deepseek_image｜>", "<｜action｜>", "<｜fim▁hole｜>", "<｜place▁holder▁no▁7｜>",
};
static const char *const grounding[] = {"<｜ref｜>", "<｜/ref｜>", "<｜box｜>", "<｜/box｜>", "<｜point｜>", "<｜/polygon｜>"};
static const char *const fillers[] = {
    "", " ", "\n\n", "<", ">", "/", "｜", "|", "▁", "<tool_result>", "</tool_result>", "\"", "\">", "\\", "x", "</｜DSML｜ calls>",
    "<｜DSML｜ invoke name=\"", "string=\"true\">", "\r\n", "\x01", "<|User|>", "< ｜User｜>", "system", "{\"a\":1}", "你好", "🦀",
};

static void add(char *text, size_t *n, const char *piece, size_t size)
{
    if (*n + size <= MAX_TEXT) {
        memcpy(text + *n, piece, size);
        *n += size;
    }
}

static size_t character_end(const char *s, size_t at)
{
    while ((s[at] & 0xC0) == 0x80) {
        at++;
    }
    return at;
}

static const char *pick(uint64_t *seed, const char *const *list, size_t n)
{
    return list[unit_random(seed) % n];
}

#define PICK(seed, list) pick((seed), (list), sizeof(list) / sizeof(list)[0])

static size_t hostile_text(uint64_t *seed, bool with_grounding, char *text)
{
    size_t n = 0;
    const int pieces = 1 + (int)(unit_random(seed) % 6);
    for (int i = 0; i < pieces; i++) {
        const char *const a = with_grounding && unit_random(seed) % 3 == 0 ? PICK(seed, grounding) : PICK(seed, spellings);
        const size_t cut = character_end(a, unit_random(seed) % (strlen(a) + 1));
        switch (unit_random(seed) % 6) {
        case 0: /* cut: the rest may follow as the next piece */
            add(text, &n, a, cut);
            add(text, &n, PICK(seed, fillers), 0);
            break;
        case 1: /* nested */
            add(text, &n, a, cut);
            add(text, &n, PICK(seed, spellings), 0);
            add(text, &n, "<｜User｜>", strlen("<｜User｜>"));
            add(text, &n, a + cut, strlen(a) - cut);
            break;
        case 2: /* NUL inside */
            add(text, &n, a, cut);
            add(text, &n, "\0", 1);
            add(text, &n, a + cut, strlen(a) - cut);
            break;
        case 3: {
            const char *const filler = PICK(seed, fillers);
            add(text, &n, filler, strlen(filler));
            add(text, &n, a, strlen(a));
            break;
        }
        default:
            add(text, &n, a, strlen(a));
            break;
        }
    }
    return n;
}

/* ---- requests ---- */

typedef struct texts {
    char data[N_FIELDS][MAX_TEXT];
    size_t size[N_FIELDS];
} texts;

static void put(buf *b, const texts *t, const char *before, int field)
{
    buf_puts(b, before);
    buf_json_string(b, t->data[field], t->size[field]);
}

/* Arguments are JSON text inside a JSON string. */
static void put_arguments(buf *b, const texts *t, int key, int value)
{
    buf inner;
    buf_init(&inner, SIZE_MAX);
    put(&inner, t, "{", key);
    put(&inner, t, ":", value);
    put(&inner, t, ",\"n\":[1,", value);
    buf_puts(&inner, "]}");
    buf_json_string(b, inner.data, inner.size);
    buf_fini(&inner);
}

static void chat_body(buf *b, const place *p, const texts *t)
{
    put(b, t, "\"messages\":[{\"role\":\"system\",\"content\":", 0);
    put(b, t, "},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":", 1);
    put(b, t, "},{\"type\":\"text\",\"text\":", 1);
    put(b, t, "}]},{\"role\":\"assistant\",\"content\":", FIELD_ANSWER);
    put(b, t, ",\"reasoning_content\":", FIELD_REASONING);
    put(b, t, ",\"tool_calls\":[{\"type\":\"function\",\"id\":", 4);
    put(b, t, ",\"function\":{\"name\":", 5);
    buf_puts(b, ",\"arguments\":");
    put_arguments(b, t, 6, 7);
    put(b, t, "}},{\"type\":\"function\",\"id\":\"other\",\"function\":{\"name\":", 5);
    put(b, t, ",\"arguments\":", 7);
    put(b, t, "}}]},{\"role\":\"tool\",\"tool_call_id\":", 4);
    put(b, t, ",\"content\":", 8);
    put(b, t, "},{\"role\":\"tool\",\"tool_call_id\":\"other\",\"content\":", 8);
    put(b, t, "},{\"role\":\"latest_reminder\",\"content\":", 9);
    buf_puts(b, "}]");
    if (p->tools) {
        put(b, t, ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":", 10);
        put(b, t, ",\"parameters\":{\"type\":\"object\",\"properties\":{", 11);
        put(b, t, ":{\"type\":\"string\",\"description\":", 11);
        buf_puts(b, "}}}}}]");
    }
    put(b, t, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"s\",\"schema\":{\"type\":\"string\",\"title\":", 12);
    buf_printf(b, "}}},\"thinking\":{\"type\":\"%s\"}", p->thinking ? "enabled" : "disabled");
}

static void messages_body(buf *b, const place *p, const texts *t)
{
    put(b, t, "\"system\":[{\"type\":\"text\",\"text\":", 0);
    put(b, t, "}],\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":", 1);
    put(b, t, "},{\"type\":\"document\",\"source\":{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":", 9);
    put(b, t, "}}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":", FIELD_REASONING);
    put(b, t, ",\"signature\":\"\"},{\"type\":\"text\",\"text\":", FIELD_ANSWER);
    put(b, t, "},{\"type\":\"tool_use\",\"id\":", 4);
    put(b, t, ",\"name\":", 5);
    put(b, t, ",\"input\":{", 6);
    put(b, t, ":", 7);
    put(b, t, "}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":", 4);
    put(b, t, ",\"content\":", 8);
    buf_puts(b, "}]}]");
    if (p->tools) {
        put(b, t, ",\"tools\":[{\"name\":\"f\",\"description\":", 10);
        put(b, t, ",\"input_schema\":{\"type\":\"object\",\"properties\":{", 11);
        put(b, t, ":{\"type\":\"string\",\"description\":", 12);
        buf_puts(b, "}}}}]");
    }
    buf_printf(b, ",\"thinking\":{\"type\":\"%s\"}", p->thinking ? "enabled" : "disabled");
}

static void responses_body(buf *b, const place *p, const texts *t)
{
    put(b, t, "\"instructions\":", 0);
    put(b, t, ",\"input\":[{\"role\":\"user\",\"content\":", 1);
    put(b, t, "},{\"role\":\"developer\",\"content\":", 9);
    put(b, t, "},{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":", FIELD_REASONING);
    put(b, t, "}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":", FIELD_ANSWER);
    put(b, t, "}]},{\"type\":\"function_call\",\"call_id\":", 4);
    put(b, t, ",\"name\":", 5);
    buf_puts(b, ",\"arguments\":");
    put_arguments(b, t, 6, 7);
    put(b, t, "},{\"type\":\"custom_tool_call\",\"call_id\":\"other\",\"name\":\"apply_patch\",\"input\":", 7);
    put(b, t, "},{\"type\":\"function_call_output\",\"call_id\":", 4);
    put(b, t, ",\"output\":", 8);
    put(b, t, "},{\"type\":\"custom_tool_call_output\",\"call_id\":\"other\",\"output\":", 8);
    buf_puts(b, "}]");
    if (p->tools) {
        put(b, t, ",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"description\":", 10);
        put(b, t, ",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":", 10);
        put(b, t, ",\"parameters\":{\"type\":\"object\",\"properties\":{", 11);
        put(b, t, ":{\"type\":\"string\",\"description\":", 11);
        buf_puts(b, "}}}}]}]");
    }
    put(b, t, ",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"s\",\"schema\":{\"type\":\"string\",\"title\":", 12);
    buf_printf(b, "}}},\"reasoning\":{\"effort\":\"%s\"}", p->thinking ? "high" : "none");
}

static di_request *read_request(const di_recipe *recipe, const place *p, const texts *t)
{
    static void (*const bodies[])(buf *, const place *, const texts *) = {
        [DI_CHAT] = chat_body, [DI_RESPONSES] = responses_body, [DI_MESSAGES] = messages_body,
    };
    buf b;
    buf_init(&b, SIZE_MAX);
    buf_printf(&b, "{\"model\":\"%s\",", p->model);
    bodies[p->protocol](&b, p, t);
    buf_puts(&b, "}");
    assert_false(b.failed);
    di_request *request = NULL;
    di_error err;
    if (di_request_read(recipe, p->protocol, b.data, b.size, &request, &err) != DI_OK) {
        fail_msg("%s: %s", err.message, b.data);
    }
    buf_fini(&b);
    return request;
}

/* ---- the property ---- */

static bool is_grounding(const di_request *r, size_t i)
{
    return r->markers[i] >= REC_GROUND;
}

/* The same control tokens in the same order, grounding tokens aside. */
static void expect_same_markers(const di_request *hostile, const di_request *plain, bool with_grounding)
{
    size_t k = 0;
    for (size_t i = 0; i < hostile->n_ranges; i++) {
        if (is_grounding(hostile, i)) {
            assert_true(with_grounding);
            continue;
        }
        assert_true(k < plain->n_ranges);
        assert_int_equal(hostile->markers[i], plain->markers[k]);
        k++;
    }
    assert_int_equal(k, plain->n_ranges);
}

static void expect_spelled_ranges(const di_request *r)
{
    size_t last = 0;
    for (size_t i = 0; i < r->n_ranges; i++) {
        const rec_str spelling = r->recipe->spelling[r->markers[i]];
        assert_true(r->ranges[i].begin >= last && r->ranges[i].end <= r->prompt.size);
        assert_int_equal(r->ranges[i].end - r->ranges[i].begin, spelling.size);
        assert_memory_equal(r->prompt.data + r->ranges[i].begin, spelling.data, spelling.size);
        last = r->ranges[i].end;
    }
}

static void expect_ids_hold_the_ranges_alone(const di_request *r)
{
    const di_tokenizer *const tokenizer = r->recipe->tokenizer;
    int32_t *const ids = calloc(r->prompt.size + 1, sizeof *ids);
    size_t n_ids;
    size_t k = 0;
    assert_non_null(ids);
    assert_int_equal(di_request_encode(r, 1, ids, r->prompt.size + 1, &n_ids, NULL), DI_OK);
    assert_true(n_ids <= r->prompt.size);
    for (size_t i = 0; i < n_ids; i++) {
        if ((di_tokenizer_flags(tokenizer, ids[i]) & DI_TOKEN_ADDED) != 0) {
            assert_true(k < r->n_ranges);
            assert_int_equal(ids[i], r->recipe->id[r->markers[k]]);
            k++;
        }
    }
    assert_int_equal(k, r->n_ranges);
    size_t n_text;
    char *const text = malloc(r->prompt.size + 1);
    assert_non_null(text);
    assert_int_equal(di_tokenizer_decode(tokenizer, ids, n_ids, 0, text, r->prompt.size + 1, &n_text, NULL), DI_OK);
    assert_int_equal(n_text, r->prompt.size);
    assert_memory_equal(text, r->prompt.data, n_text);
    free(text);
    free(ids);
}

static void fill_harmless(texts *t)
{
    for (int i = 0; i < N_FIELDS; i++) {
        t->size[i] = strlen(harmless);
        memcpy(t->data[i], harmless, t->size[i]);
    }
}

static void check(const di_recipe *recipe, const place *p, const texts *hostile, const texts *plain, bool with_grounding)
{
    di_request *const a = read_request(recipe, p, hostile);
    di_request *const b = read_request(recipe, p, plain);
    expect_same_markers(a, b, with_grounding);
    expect_spelled_ranges(a);
    if (recipe->tokenizer != NULL) {
        expect_ids_hold_the_ranges_alone(a);
    }
    di_request_free(a);
    di_request_free(b);
}

static void run(const di_recipe *recipe, const char *model, uint64_t seed, int rounds)
{
    texts *const plain = malloc(sizeof *plain);
    texts *const hostile = malloc(sizeof *hostile);
    assert_non_null(plain);
    assert_non_null(hostile);
    fill_harmless(plain);
    for (int round = 0; round < rounds; round++) {
        const uint64_t bits = unit_random(&seed);
        const place p = {
            .model = model, .protocol = (di_protocol)(bits % 3), .thinking = (bits >> 8) % 2 != 0, .tools = (bits >> 9) % 4 != 0,
        };
        const int only = (int)((bits >> 16) % (N_FIELDS + 4)); /* beyond the fields: all of them */
        const bool with_grounding = (bits >> 24) % 2 != 0;
        *hostile = *plain;
        for (int i = 0; i < N_FIELDS; i++) {
            if (only >= N_FIELDS || only == i) {
                const bool by_model = i == FIELD_ANSWER || i == FIELD_REASONING;
                hostile->size[i] = hostile_text(&seed, with_grounding || !by_model, hostile->data[i]);
            }
        }
        /* Ids that repeat are refused, and so are empty ones. */
        add(hostile->data[4], &hostile->size[4], "!", 1);
        check(recipe, &p, hostile, plain, with_grounding);
    }
    free(plain);
    free(hostile);
}

static void no_text_becomes_a_control_token(void **state)
{
    (void)state;
    run(text_only, models[0], 1, ROUNDS);
    run(text_only, models[1], 2, ROUNDS);
    for (size_t i = 0; i < 3; i++) {
        if (recipes[i] != NULL) {
            run(recipes[i], models[i], 10 + i, ROUNDS);
        }
    }
}

/* Below JSON nothing is checked any more; bytes that are no UTF-8 change nothing either. */
static void spellings_cut_at_every_byte_stay_text(void **state)
{
    (void)state;
    texts *const plain = malloc(sizeof *plain);
    assert_non_null(plain);
    fill_harmless(plain);
    const place p = {.model = models[0], .protocol = DI_CHAT, .thinking = true, .tools = true};
    di_request *const r = read_request(recipes[2], &p, plain);
    const size_t n_ranges = r->n_ranges;
    for (size_t s = 0; s < sizeof spellings / sizeof spellings[0]; s++) {
        for (size_t cut = 0; cut <= strlen(spellings[s]); cut++) {
            char text[256];
            const int n = snprintf(text, sizeof text, "%s%.*s%s", spellings[s] + cut, (int)cut, spellings[s], spellings[s]);
            for (rec_message *m = r->talk.first; m != NULL; m = m->next) {
                if (m->content.first != NULL) {
                    m->content.first->text = (rec_str){text, (size_t)n};
                }
            }
            buf_fini(&r->prompt);
            r->n_ranges = 0;
            free(r->ranges);
            free(r->markers);
            r->ranges = NULL;
            r->markers = NULL;
            assert_int_equal(rec_render(r, NULL), DI_OK);
            assert_int_equal(r->n_ranges, n_ranges);
            expect_spelled_ranges(r);
            size_t n_ids;
            int32_t *const ids = calloc(3 * r->prompt.size, sizeof *ids);
            assert_non_null(ids);
            assert_int_equal(di_request_encode(r, 1, ids, 3 * r->prompt.size, &n_ids, NULL), DI_OK);
            size_t added = 0;
            for (size_t i = 0; i < n_ids; i++) {
                added += di_tokenizer_flags(recipes[2]->tokenizer, ids[i]) & DI_TOKEN_ADDED;
            }
            assert_int_equal(added, n_ranges);
            free(ids);
        }
    }
    di_request_free(r);
    free(plain);
}

static di_tokenizer *real(const char *name)
{
    const char *const folder = getenv("DI_TOKENIZERS");
    const char *const source = getenv("DI_SOURCE_DIR");
    char path[4096];
    di_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s%s/%s.json", folder != NULL ? folder : source != NULL ? source : ".",
             folder != NULL ? "" : "/build/tokenizers", name);
    return di_tokenizer_open(path, &tokenizer, NULL) == DI_OK ? tokenizer : NULL;
}

static int set_up(void **state)
{
    (void)state;
    text_only = out_recipe(NULL);
    tokenizers[0] = real("v41_recipe");
    tokenizers[1] = real("v4");
    tokenizers[2] = out_demo();
    for (int i = 0; i < 3; i++) {
        recipes[i] = tokenizers[i] != NULL ? out_recipe(tokenizers[i]) : NULL;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        di_recipe_close(recipes[i]);
        di_tokenizer_close(tokenizers[i]);
    }
    di_recipe_close(text_only);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_becomes_a_control_token),
        cmocka_unit_test(spellings_cut_at_every_byte_stay_text),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
