/* tok_json.c - reads tokenizer.json into a tok_source, and refuses every pipeline but the one that is implemented.
 *
 * The known fields are tables of rules below; what a rule does not allow, a field no rule names and a required field that is
 * absent are errors that name the field. Never falling back to "something similar" matters: a splitter that is almost right
 * gives ids that are almost right (tokenizer.md 9). Fields that only move offsets or that decoding ignores may have any value. */
#include "tokenizer/tok_int.h"

#include "core/err.h"
#include "core/json_scan.h"

#include <stdlib.h>

#define MAX_DEPTH 16
#define MAX_RULES 16
#define PATH_BYTES 128

/* The three regular expressions, byte for byte (tokenizer.md 4). */
#define NUMBERS "\\p{N}{1,3}"
#define CJK_RUNS "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+"
#define THE_REST \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

typedef struct reader {
    jsc scan;
    const char *name; /* of the file, for messages */
    tok_source *source;
    char path[PATH_BYTES]; /* of the field being read */
} reader;

typedef enum rule_kind {
    IS_NULL,
    IS_FALSE,
    IS_TRUE,
    IS_BOOL,   /* either */
    IS_STRING, /* equal to `text` */
    IS_OBJECT, /* members obey `members` */
    IS_ARRAY,  /* exactly n_members objects, the i-th obeying members[i].members */
    IS_READ    /* `read` consumes the value */
} rule_kind;

typedef struct rule rule;
struct rule {
    const char *key;
    rule_kind kind;
    bool optional; /* may be absent; null counts as absent for objects */
    const char *text;
    const rule *members;
    size_t n_members;
    di_status (*read)(reader *r, jsc_event event, di_error *err);
};

#define N(array) (sizeof(array) / sizeof *(array))

static di_status read_added(reader *r, jsc_event event, di_error *err);
static di_status read_vocab(reader *r, jsc_event event, di_error *err);
static di_status read_merges(reader *r, jsc_event event, di_error *err);

static const rule normalizer_rules[] = {
    {.key = "type", .kind = IS_STRING, .text = "Sequence"},
    {.key = "normalizers", .kind = IS_ARRAY},
};

#define SPLIT_RULES(name, regex) \
    static const rule name##_pattern[] = {{.key = "Regex", .kind = IS_STRING, .text = (regex)}}; \
    static const rule name##_rules[] = { \
        {.key = "type", .kind = IS_STRING, .text = "Split"}, \
        {.key = "pattern", .kind = IS_OBJECT, .members = name##_pattern, .n_members = 1}, \
        {.key = "behavior", .kind = IS_STRING, .text = "Isolated"}, \
        {.key = "invert", .kind = IS_FALSE}, \
    }

SPLIT_RULES(numbers, NUMBERS);
SPLIT_RULES(cjk_runs, CJK_RUNS);
SPLIT_RULES(the_rest, THE_REST);

static const rule byte_split_rules[] = {
    {.key = "type", .kind = IS_STRING, .text = "ByteLevel"},
    {.key = "add_prefix_space", .kind = IS_FALSE},
    {.key = "trim_offsets", .kind = IS_BOOL, .optional = true},
    {.key = "use_regex", .kind = IS_FALSE},
};

static const rule split_steps[] = {
    {.members = numbers_rules, .n_members = N(numbers_rules)},
    {.members = cjk_runs_rules, .n_members = N(cjk_runs_rules)},
    {.members = the_rest_rules, .n_members = N(the_rest_rules)},
    {.members = byte_split_rules, .n_members = N(byte_split_rules)},
};

static const rule pre_tokenizer_rules[] = {
    {.key = "type", .kind = IS_STRING, .text = "Sequence"},
    {.key = "pretokenizers", .kind = IS_ARRAY, .members = split_steps, .n_members = N(split_steps)},
};

/* As post-processor it moves offsets and as decoder it has no options, so that its flags say nothing about ids or text. */
static const rule byte_level_rules[] = {
    {.key = "type", .kind = IS_STRING, .text = "ByteLevel"},
    {.key = "add_prefix_space", .kind = IS_BOOL, .optional = true},
    {.key = "trim_offsets", .kind = IS_BOOL, .optional = true},
    {.key = "use_regex", .kind = IS_BOOL, .optional = true},
};

static const rule model_rules[] = {
    {.key = "type", .kind = IS_STRING, .text = "BPE"},
    {.key = "dropout", .kind = IS_NULL, .optional = true},
    {.key = "unk_token", .kind = IS_NULL, .optional = true},
    {.key = "continuing_subword_prefix", .kind = IS_NULL, .optional = true},
    {.key = "end_of_word_suffix", .kind = IS_NULL, .optional = true},
    {.key = "fuse_unk", .kind = IS_FALSE, .optional = true},
    {.key = "byte_fallback", .kind = IS_FALSE, .optional = true},
    {.key = "ignore_merges", .kind = IS_FALSE, .optional = true},
    {.key = "vocab", .kind = IS_READ, .read = read_vocab},
    {.key = "merges", .kind = IS_READ, .read = read_merges},
};

static const rule top_rules[] = {
    {.key = "version", .kind = IS_STRING, .text = "1.0"},
    {.key = "truncation", .kind = IS_NULL, .optional = true},
    {.key = "padding", .kind = IS_NULL, .optional = true},
    {.key = "added_tokens", .kind = IS_READ, .read = read_added},
    {.key = "normalizer", .kind = IS_OBJECT, .optional = true, .members = normalizer_rules, .n_members = N(normalizer_rules)},
    {.key = "pre_tokenizer", .kind = IS_OBJECT, .members = pre_tokenizer_rules, .n_members = N(pre_tokenizer_rules)},
    {.key = "post_processor", .kind = IS_OBJECT, .optional = true, .members = byte_level_rules, .n_members = N(byte_level_rules)},
    {.key = "decoder", .kind = IS_OBJECT, .members = byte_level_rules, .n_members = N(byte_level_rules)},
    {.key = "model", .kind = IS_OBJECT, .members = model_rules, .n_members = N(model_rules)},
};

static const char *event_name(jsc_event event)
{
    static const char *const names[] = {
        [JSC_OBJECT_BEGIN] = "an object", [JSC_ARRAY_BEGIN] = "an array", [JSC_STRING] = "another string",
        [JSC_NUMBER] = "a number",        [JSC_TRUE] = "true",            [JSC_FALSE] = "false",
        [JSC_NULL] = "null",
    };
    return (size_t)event < N(names) && names[event] != NULL ? names[event] : "something else";
}

static di_status unsupported(reader *r, jsc_event event, const char *want, di_error *err)
{
    if (event == JSC_ERROR) {
        return err != NULL ? err->code : DI_E_FORMAT;
    }
    return err_set(err, DI_E_UNSUPPORTED, "%s: field \"%s\" is %s; only %s is implemented", r->name, r->path,
                   event_name(event), want);
}

/* Appends "." and the current key to the path. Returns the old length, for leave(). */
static size_t enter(reader *r, const char *key, size_t size)
{
    const size_t old = strlen(r->path);
    const size_t room = PATH_BYTES - 1 - old;
    const size_t dot = old != 0 && room != 0 ? 1 : 0;
    const size_t copied = size < room - dot ? size : room - dot;
    if (dot != 0) {
        r->path[old] = '.';
    }
    memcpy(r->path + old + dot, key, copied);
    r->path[old + dot + copied] = '\0';
    return old;
}

static void leave(reader *r, size_t old)
{
    r->path[old] = '\0';
}

/* Unescapes the current string behind the kept text without keeping it. */
static const char *peek_string(reader *r, size_t *size)
{
    char *out = r->source->text + r->source->text_size;
    *size = jsc_unescape(&r->scan, out);
    return out;
}

static tok_slice keep_string(reader *r)
{
    size_t size;
    (void)peek_string(r, &size);
    const tok_slice slice = {.offset = (uint32_t)r->source->text_size, .size = (uint32_t)size};
    r->source->text_size += size;
    return slice;
}

static di_status check_object(reader *r, const rule *rules, size_t n_rules, di_error *err);

static di_status check_array(reader *r, const rule *items, size_t n_items, di_error *err)
{
    for (size_t i = 0;; i++) {
        const jsc_event event = jsc_next(&r->scan, err);
        if (event == JSC_ARRAY_END && i == n_items) {
            return DI_OK;
        }
        if (event == JSC_ERROR) {
            return unsupported(r, event, "", err);
        }
        if (event != JSC_OBJECT_BEGIN || i == n_items) {
            return err_set(err, DI_E_UNSUPPORTED, "%s: field \"%s\" has other elements than the %zu that are implemented", r->name,
                           r->path, n_items);
        }
        const di_status status = check_object(r, items[i].members, items[i].n_members, err);
        if (status != DI_OK) {
            return status;
        }
    }
}

static di_status check_value(reader *r, const rule *want, di_error *err)
{
    const jsc_event event = jsc_next(&r->scan, err);
    size_t size;
    switch (want->kind) {
    case IS_NULL:
        return event == JSC_NULL ? DI_OK : unsupported(r, event, "null", err);
    case IS_FALSE:
        return event == JSC_FALSE ? DI_OK : unsupported(r, event, "false", err);
    case IS_TRUE:
        return event == JSC_TRUE ? DI_OK : unsupported(r, event, "true", err);
    case IS_BOOL:
        return event == JSC_TRUE || event == JSC_FALSE ? DI_OK : unsupported(r, event, "true or false", err);
    case IS_STRING:
        if (event == JSC_STRING) {
            const char *text = peek_string(r, &size);
            if (size == strlen(want->text) && memcmp(text, want->text, size) == 0) {
                return DI_OK;
            }
        }
        return unsupported(r, event, want->text, err);
    case IS_OBJECT:
        if (event == JSC_NULL && want->optional) {
            return DI_OK;
        }
        return event == JSC_OBJECT_BEGIN ? check_object(r, want->members, want->n_members, err)
                                         : unsupported(r, event, "an object", err);
    case IS_ARRAY:
        return event == JSC_ARRAY_BEGIN ? check_array(r, want->members, want->n_members, err)
                                        : unsupported(r, event, "an array", err);
    case IS_READ:
        break;
    }
    return event == JSC_ERROR ? unsupported(r, event, "", err) : want->read(r, event, err);
}

static di_status check_member(reader *r, const rule *rules, size_t n_rules, bool seen[MAX_RULES], di_error *err)
{
    size_t size;
    const char *key = peek_string(r, &size);
    const size_t outside = enter(r, key, size);
    for (size_t i = 0; i < n_rules; i++) {
        if (strlen(rules[i].key) == size && memcmp(rules[i].key, key, size) == 0) {
            if (seen[i]) {
                return err_set(err, DI_E_FORMAT, "%s: field \"%s\" appears twice", r->name, r->path);
            }
            seen[i] = true;
            const di_status status = check_value(r, &rules[i], err);
            leave(r, outside);
            return status;
        }
    }
    return err_set(err, DI_E_UNSUPPORTED, "%s: field \"%s\" is not known", r->name, r->path);
}

/* Checks the members of the object whose beginning was just read. */
static di_status check_object(reader *r, const rule *rules, size_t n_rules, di_error *err)
{
    bool seen[MAX_RULES] = {false};
    for (;;) {
        const jsc_event event = jsc_next(&r->scan, err);
        if (event == JSC_OBJECT_END) {
            break;
        }
        if (event == JSC_ERROR) {
            return unsupported(r, event, "", err);
        }
        const di_status status = check_member(r, rules, n_rules, seen, err);
        if (status != DI_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < n_rules; i++) {
        if (!seen[i] && !rules[i].optional) {
            (void)enter(r, rules[i].key, strlen(rules[i].key));
            return err_set(err, DI_E_FORMAT, "%s: field \"%s\" is missing", r->name, r->path);
        }
    }
    return DI_OK;
}

/* Makes room for one more element of an array that doubles. */
static bool grow(void **array, size_t n, size_t *capacity, size_t element)
{
    if (n < *capacity) {
        return true;
    }
    const size_t larger = *capacity == 0 ? 1024 : 2 * *capacity;
    void *moved = realloc(*array, larger * element);
    if (moved == NULL) {
        return false;
    }
    *array = moved;
    *capacity = larger;
    return true;
}

/* A token id as the current number: digits only, below TOK_MAX_IDS. */
static di_status read_id(reader *r, jsc_event event, int32_t *id, di_error *err)
{
    int32_t value = 0;
    bool good = event == JSC_NUMBER && r->scan.token_size <= 7;
    for (size_t i = 0; good && i < r->scan.token_size; i++) {
        const char c = r->scan.token[i];
        good = c >= '0' && c <= '9';
        value = value * 10 + (c - '0');
    }
    if (event == JSC_ERROR) {
        return unsupported(r, event, "", err);
    }
    if (!good || value >= TOK_MAX_IDS) {
        return err_set(err, DI_E_FORMAT, "%s: field \"%s\": a token id must be an integer from 0 to %d", r->name, r->path,
                       TOK_MAX_IDS - 1);
    }
    *id = value;
    return DI_OK;
}

static di_status read_vocab(reader *r, jsc_event event, di_error *err)
{
    tok_source *source = r->source;
    if (event != JSC_OBJECT_BEGIN) {
        return unsupported(r, event, "an object of spellings and ids", err);
    }
    for (;;) {
        event = jsc_next(&r->scan, err);
        if (event == JSC_OBJECT_END) {
            return DI_OK;
        }
        if (event == JSC_ERROR) {
            return unsupported(r, event, "", err);
        }
        void *array = source->vocab;
        if (!grow(&array, source->n_vocab, &source->vocab_capacity, sizeof *source->vocab)) {
            return err_memory(err, "vocabulary", source->n_vocab * sizeof *source->vocab);
        }
        source->vocab = array;
        tok_source_entry *entry = &source->vocab[source->n_vocab];
        *entry = (tok_source_entry){.spelling = keep_string(r)};
        const di_status status = read_id(r, jsc_next(&r->scan, err), &entry->id, err);
        if (status != DI_OK) {
            return status;
        }
        source->n_vocab++;
    }
}

static di_status bad_merge(const reader *r, di_error *err)
{
    return err_set(err, DI_E_FORMAT, "%s: field \"%s\": merge %zu is neither \"a b\" nor [\"a\", \"b\"]", r->name, r->path,
                   r->source->n_merges);
}

/* One merge in either spelling: "a b", or ["a", "b"]. */
static di_status read_merge(reader *r, jsc_event event, tok_source_merge *merge, di_error *err)
{
    if (event == JSC_STRING) {
        const tok_slice both = keep_string(r);
        const char *text = r->source->text + both.offset;
        const char *space = memchr(text, ' ', both.size);
        const uint32_t left = space != NULL ? (uint32_t)(space - text) : 0;
        if (space == NULL || memchr(space + 1, ' ', both.size - left - 1) != NULL) {
            return bad_merge(r, err);
        }
        merge->left = (tok_slice){.offset = both.offset, .size = left};
        merge->right = (tok_slice){.offset = both.offset + left + 1, .size = both.size - left - 1};
        return DI_OK;
    }
    tok_slice *const halves[2] = {&merge->left, &merge->right};
    for (int i = 0; event == JSC_ARRAY_BEGIN && i < 2; i++) {
        const jsc_event half = jsc_next(&r->scan, err);
        if (half != JSC_STRING) {
            return half == JSC_ERROR ? unsupported(r, half, "", err) : bad_merge(r, err);
        }
        *halves[i] = keep_string(r);
    }
    if (event == JSC_ARRAY_BEGIN) {
        event = jsc_next(&r->scan, err);
        if (event == JSC_ARRAY_END) {
            return DI_OK;
        }
    }
    return event == JSC_ERROR ? unsupported(r, event, "", err) : bad_merge(r, err);
}

static di_status read_merges(reader *r, jsc_event event, di_error *err)
{
    tok_source *source = r->source;
    if (event != JSC_ARRAY_BEGIN) {
        return unsupported(r, event, "an array", err);
    }
    for (;;) {
        event = jsc_next(&r->scan, err);
        if (event == JSC_ARRAY_END) {
            return DI_OK;
        }
        void *array = source->merges;
        if (!grow(&array, source->n_merges, &source->merges_capacity, sizeof *source->merges)) {
            return err_memory(err, "merges", source->n_merges * sizeof *source->merges);
        }
        source->merges = array;
        const di_status status = read_merge(r, event, &source->merges[source->n_merges], err);
        if (status != DI_OK) {
            return status;
        }
        source->n_merges++;
    }
}

static di_status read_added_id(reader *r, jsc_event event, di_error *err)
{
    return read_id(r, event, &r->source->added[r->source->n_added].id, err);
}

static di_status read_added_content(reader *r, jsc_event event, di_error *err)
{
    if (event != JSC_STRING) {
        return unsupported(r, event, "a string", err);
    }
    r->source->added[r->source->n_added].spelling = keep_string(r);
    return DI_OK;
}

static di_status read_added_normalized(reader *r, jsc_event event, di_error *err)
{
    r->source->added[r->source->n_added].normalized = event == JSC_TRUE;
    return event == JSC_TRUE || event == JSC_FALSE ? DI_OK : unsupported(r, event, "true or false", err);
}

static di_status read_added_special(reader *r, jsc_event event, di_error *err)
{
    r->source->added[r->source->n_added].special = event == JSC_TRUE;
    return event == JSC_TRUE || event == JSC_FALSE ? DI_OK : unsupported(r, event, "true or false", err);
}

static const rule added_rules[] = {
    {.key = "id", .kind = IS_READ, .read = read_added_id},
    {.key = "content", .kind = IS_READ, .read = read_added_content},
    {.key = "single_word", .kind = IS_FALSE},
    {.key = "lstrip", .kind = IS_FALSE},
    {.key = "rstrip", .kind = IS_FALSE},
    {.key = "normalized", .kind = IS_READ, .read = read_added_normalized},
    {.key = "special", .kind = IS_READ, .read = read_added_special},
};

static di_status read_added(reader *r, jsc_event event, di_error *err)
{
    tok_source *source = r->source;
    if (event != JSC_ARRAY_BEGIN) {
        return unsupported(r, event, "an array", err);
    }
    for (;;) {
        event = jsc_next(&r->scan, err);
        if (event == JSC_ARRAY_END) {
            return DI_OK;
        }
        if (event != JSC_OBJECT_BEGIN) {
            return unsupported(r, event, "an array of objects", err);
        }
        void *array = source->added;
        if (!grow(&array, source->n_added, &source->added_capacity, sizeof *source->added)) {
            return err_memory(err, "added tokens", source->n_added * sizeof *source->added);
        }
        source->added = array;
        source->added[source->n_added] = (tok_source_entry){.id = 0};
        const di_status status = check_object(r, added_rules, N(added_rules), err);
        if (status != DI_OK) {
            return status;
        }
        source->n_added++;
    }
}

static di_status read_document(reader *r, di_error *err)
{
    jsc_event event = jsc_next(&r->scan, err);
    if (event == JSC_ERROR) {
        return unsupported(r, event, "", err);
    }
    if (event != JSC_OBJECT_BEGIN) {
        return err_set(err, DI_E_FORMAT, "%s: the document is not an object", r->name);
    }
    const di_status status = check_object(r, top_rules, N(top_rules), err);
    if (status != DI_OK) {
        return status;
    }
    event = jsc_next(&r->scan, err);
    return event == JSC_END ? DI_OK : unsupported(r, event, "", err);
}

di_status tok_source_read(const char *json, size_t size, const char *name, tok_source *out, di_error *err)
{
    memset(out, 0, sizeof *out);
    if (size > TOK_MAX_FILE) {
        return err_set(err, DI_E_LIMIT, "%s: larger than %zu MiB", name, TOK_MAX_FILE >> 20);
    }
    /* Unescaped text is never longer than its JSON, and peek_string needs no more than the string it looks at. */
    out->text = malloc(size + 1);
    if (out->text == NULL) {
        return err_memory(err, "tokenizer.json", size + 1);
    }
    reader r = {.name = name, .source = out};
    jsc_init(&r.scan, json, size, name, MAX_DEPTH);
    di_error own = {.code = DI_E_FORMAT};
    const di_status status = read_document(&r, &own);
    if (status != DI_OK) {
        tok_source_fini(out);
        if (err != NULL) {
            *err = own;
        }
    }
    return status;
}

void tok_source_fini(tok_source *source)
{
    free(source->text);
    free(source->vocab);
    free(source->merges);
    free(source->added);
    memset(source, 0, sizeof *source);
}
