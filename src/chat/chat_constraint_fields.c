/* chat_constraint_fields.c - constraints in the words of other servers, and in ours (structured_output.md 2):
 *
 *   vLLM        structured_outputs {json | regex | choice | grammar | json_object | structural_tag, options}; guided_* before it
 *   SGLang      json_schema, regex, ebnf, structural_tag
 *   llama.cpp   json_schema, grammar
 *   here        structured_output {kind, value, options}: everything that a grammar can be told
 *
 * Old words and those of other servers are taken with a warning. Options without a constraint hold for the one of the response format. */
#include "chat/chat_constraint.h"
#include "chat/chat_fields.h"

#include "core/err.h"

#include <string.h>

#define LARGEST_MS 2000
#define LARGEST_DEPTH 512
#define LARGEST_MEMORY ((int64_t)256 << 20)

typedef enum form { FORM_TEXT, FORM_JSON, FORM_LIST, FORM_FLAG } form; /* string; object or string; array of strings; true */

typedef struct source {
    const char *key;
    const char *field; /* for messages */
    di_grammar_kind kind;
    form form;
    const char *instead; /* what to say today; NULL = nothing else */
} source;

static const source of_vllm[] = {
    {"json", "structured_outputs.json", DI_GRAMMAR_SCHEMA, FORM_JSON, NULL},
    {"regex", "structured_outputs.regex", DI_GRAMMAR_REGEX, FORM_TEXT, NULL},
    {"choice", "structured_outputs.choice", DI_GRAMMAR_CHOICE, FORM_LIST, NULL},
    {"grammar", "structured_outputs.grammar", DI_GRAMMAR_EBNF, FORM_TEXT, NULL},
    {"json_object", "structured_outputs.json_object", DI_GRAMMAR_JSON_OBJECT, FORM_FLAG, NULL},
    {"structural_tag", "structured_outputs.structural_tag", DI_GRAMMAR_TAGS, FORM_JSON, NULL},
};

static const source of_body[] = {
    {"guided_json", "guided_json", DI_GRAMMAR_SCHEMA, FORM_JSON, "structured_outputs.json"},
    {"guided_regex", "guided_regex", DI_GRAMMAR_REGEX, FORM_TEXT, "structured_outputs.regex"},
    {"guided_choice", "guided_choice", DI_GRAMMAR_CHOICE, FORM_LIST, "structured_outputs.choice"},
    {"guided_grammar", "guided_grammar", DI_GRAMMAR_EBNF, FORM_TEXT, "structured_outputs.grammar"},
    {"json_schema", "json_schema", DI_GRAMMAR_SCHEMA, FORM_JSON, "structured_outputs.json"},
    {"regex", "regex", DI_GRAMMAR_REGEX, FORM_TEXT, "structured_outputs.regex"},
    {"ebnf", "ebnf", DI_GRAMMAR_EBNF, FORM_TEXT, "structured_outputs.grammar"},
    {"grammar", "grammar", DI_GRAMMAR_EBNF, FORM_TEXT, "structured_outputs.grammar"},
    {"structural_tag", "structural_tag", DI_GRAMMAR_TAGS, FORM_JSON, "structured_outputs.structural_tag"},
};

static const source of_ours[] = {
    {"json_schema", "structured_output.value", DI_GRAMMAR_SCHEMA, FORM_JSON, NULL},
    {"regex", "structured_output.value", DI_GRAMMAR_REGEX, FORM_TEXT, NULL},
    {"choice", "structured_output.value", DI_GRAMMAR_CHOICE, FORM_LIST, NULL},
    {"grammar", "structured_output.value", DI_GRAMMAR_EBNF, FORM_TEXT, NULL},
    {"gbnf", "structured_output.value", DI_GRAMMAR_GBNF, FORM_TEXT, NULL},
    {"lark", "structured_output.value", DI_GRAMMAR_LARK, FORM_TEXT, NULL},
    {"structural_tag", "structured_output.value", DI_GRAMMAR_TAGS, FORM_JSON, NULL},
    {"json_object", "structured_output.kind", DI_GRAMMAR_JSON_OBJECT, FORM_FLAG, NULL},
};

#define COUNT_OF(list) (sizeof(list) / sizeof(list)[0])

/* ---- one source ---- */

static di_status check_form(const source *s, const js_value *value, di_error *err)
{
    const js_kind kind = js_kind_of(value);
    switch (s->form) {
    case FORM_TEXT:
        return kind == JS_STRING ? DI_OK : err_set(err, DI_E_ARGUMENT, "%s: expected a string, not %s", s->field, js_kind_name(kind));
    case FORM_JSON:
        return kind == JS_STRING || kind == JS_OBJECT || kind == JS_BOOL
                   ? DI_OK
                   : err_set(err, DI_E_ARGUMENT, "%s: expected an object or a string, not %s", s->field, js_kind_name(kind));
    case FORM_LIST:
        for (size_t i = 0; i < js_length(value) || kind != JS_ARRAY || i == 0; i++) {
            if (kind != JS_ARRAY || js_kind_of(js_at(value, i)) != JS_STRING) {
                return err_set(err, DI_E_ARGUMENT, "%s: expected an array of at least one string", s->field);
            }
        }
        return DI_OK;
    case FORM_FLAG:
        return kind == JS_BOOL ? DI_OK : err_set(err, DI_E_ARGUMENT, "%s: expected a boolean, not %s", s->field, js_kind_name(kind));
    }
    return DI_OK;
}

static di_status take(chat_constraint *c, const source *s, const js_value *value, di_error *err)
{
    if (js_kind_of(value) == JS_NULL || (s->form == FORM_FLAG && js_kind_of(value) == JS_BOOL && !js_bool(value))) {
        return DI_OK;
    }
    di_status status = check_form(s, value, err);
    if (status == DI_OK) {
        status = chat_constraint_claim(c, s->field, s->kind, s->form == FORM_FLAG ? NULL : value, err);
    }
    if (status == DI_OK && s->instead != NULL) {
        (void)buf_printf(&c->notes, "%s: taken as %s, which is the name here\n", s->field, s->instead);
    }
    return status;
}

static di_status take_all(chat_constraint *c, const source *sources, size_t n, const js_value *holder, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        status = take(c, &sources[i], js_get(holder, sources[i].key), err);
    }
    return status;
}

/* ---- options ---- */

static di_status take_pattern(chat_constraint *c, const js_value *holder, const char *key, di_error *err)
{
    const char *pattern = NULL;
    size_t n = 0;
    const di_status status = chat_get_string(holder, key, &pattern, &n, err);
    if (status == DI_OK && pattern != NULL) {
        if (strlen(pattern) != n) {
            return err_set(err, DI_E_ARGUMENT, "%s: holds a NUL", key);
        }
        (void)buf_append(&c->pattern, pattern, n);
        c->options.whitespace = DI_WHITESPACE_PATTERN;
        c->options.whitespace_pattern = c->pattern.data != NULL ? c->pattern.data : "";
    }
    return status;
}

/* *out is the index of the word that the field holds. */
static di_status take_word(const js_value *holder, const char *key, const char *const *words, int *out, di_error *err)
{
    const char *word = NULL;
    size_t n = 0;
    const di_status status = chat_get_string(holder, key, &word, &n, err);
    if (status != DI_OK || word == NULL) {
        return status;
    }
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], word) == 0) {
            *out = i;
            return DI_OK;
        }
    }
    return err_set(err, DI_E_ARGUMENT, "structured_output.%s: unknown word \"%.40s\"", key, word);
}

static di_status take_limits(chat_constraint *c, const js_value *holder, di_error *err)
{
    const js_value *const limits = js_get(holder, "limits");
    int64_t ms = 0;
    int64_t depth = 0;
    int64_t memory = 0;
    if (js_kind_of(limits) != JS_NULL && js_kind_of(limits) != JS_OBJECT) {
        return err_set(err, DI_E_ARGUMENT, "structured_output.limits: expected an object, not %s", js_kind_name(js_kind_of(limits)));
    }
    di_status status = chat_get_int(limits, "compile_ms", 1, LARGEST_MS, &ms, err);
    if (status == DI_OK) {
        status = chat_get_int(limits, "max_depth", 1, LARGEST_DEPTH, &depth, err);
    }
    if (status == DI_OK) {
        status = chat_get_int(limits, "max_memory_bytes", 1, LARGEST_MEMORY, &memory, err);
    }
    c->options.limits.compile_ms = ms;
    c->options.limits.max_depth = (int32_t)depth;
    c->options.limits.max_memory_bytes = (size_t)memory;
    return status;
}

static di_status take_flags(chat_constraint *c, const js_value *o, di_error *err)
{
    bool jump = false;
    const struct {
        const char *key;
        bool *value;
    } flags[] = {
        {"lenient", &c->options.lenient},         {"closed", &c->options.closed},
        {"integers_any", &c->options.integers_any}, {"escapes_all", &c->options.escapes_all},
        {"close_on_length", &c->closes},          {"jump_forward", &jump},
    };
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < COUNT_OF(flags); i++) {
        status = chat_get_bool(o, flags[i].key, flags[i].value, err);
    }
    if (status == DI_OK && jump) {
        return err_set(err, DI_E_UNSUPPORTED, "structured_output.jump_forward: is not supported; leave it out");
    }
    return status;
}

static di_status take_words(chat_constraint *c, const js_value *o, di_error *err)
{
    static const char *const orders[] = {"auto", "any", "schema", NULL};
    static const char *const formats[] = {"assert", "annotate", "strict", NULL};
    static const char *const spaces[] = {"natural", "compact", "any", NULL};
    int order = (int)c->options.order;
    int format = (int)c->options.formats;
    int space = (int)c->options.whitespace;
    di_status status = take_word(o, "order", orders, &order, err);
    if (status == DI_OK) {
        status = take_word(o, "formats", formats, &format, err);
    }
    if (status == DI_OK) {
        status = take_word(o, "whitespace", spaces, &space, err);
    }
    c->options.order = (di_grammar_order)order;
    c->options.formats = (di_grammar_formats)format;
    c->options.whitespace = (di_grammar_whitespace)space;
    return status == DI_OK ? take_pattern(c, o, "whitespace_pattern", err) : status;
}

/* ---- the holders ---- */

static di_status need_object(const js_value *value, const char *key, di_error *err)
{
    return js_kind_of(value) == JS_NULL || js_kind_of(value) == JS_OBJECT
               ? DI_OK
               : err_set(err, DI_E_ARGUMENT, "%s: expected an object, not %s", key, js_kind_name(js_kind_of(value)));
}

static di_status read_vllm(chat_constraint *c, const js_value *body, di_error *err)
{
    const js_value *const o = js_get(body, "structured_outputs");
    bool compact = false;
    di_status status = need_object(o, "structured_outputs", err);
    if (status == DI_OK) {
        status = take_all(c, of_vllm, COUNT_OF(of_vllm), o, err);
    }
    if (status == DI_OK) {
        status = chat_get_bool(o, "disable_any_whitespace", &compact, err);
    }
    if (status == DI_OK) {
        status = chat_get_bool(o, "disable_additional_properties", &c->options.closed, err);
    }
    c->options.whitespace = compact ? DI_WHITESPACE_COMPACT : c->options.whitespace;
    return status == DI_OK ? take_pattern(c, o, "whitespace_pattern", err) : status;
}

static di_status read_old(chat_constraint *c, const js_value *body, di_error *err)
{
    const di_status status = take_all(c, of_body, COUNT_OF(of_body), body, err);
    if (chat_has(body, "guided_decoding_backend")) {
        (void)buf_puts(&c->notes, "guided_decoding_backend: there is one only; ignored\n");
    }
    return status == DI_OK ? take_pattern(c, body, "guided_whitespace_pattern", err) : status;
}

static di_status read_ours(chat_constraint *c, const js_value *body, di_error *err)
{
    const js_value *const o = js_get(body, "structured_output");
    static const char *const kinds[] = {"json_schema", "regex", "choice", "grammar", "gbnf", "lark", "structural_tag", "json_object", NULL};
    int kind = -1;
    di_status status = need_object(o, "structured_output", err);
    if (status == DI_OK) {
        status = take_word(o, "kind", kinds, &kind, err);
    }
    if (status == DI_OK && kind >= 0 && of_ours[kind].form == FORM_FLAG) {
        status = chat_constraint_claim(c, of_ours[kind].field, of_ours[kind].kind, NULL, err);
    } else if (status == DI_OK && kind >= 0) {
        status = chat_has(o, "value") ? take(c, &of_ours[kind], js_get(o, "value"), err)
                                      : err_set(err, DI_E_ARGUMENT, "structured_output.value: missing field");
    } else if (status == DI_OK && chat_has(o, "value")) {
        status = err_set(err, DI_E_ARGUMENT, "structured_output.kind: missing field");
    }
    if (status == DI_OK) {
        status = take_words(c, o, err);
    }
    if (status == DI_OK) {
        status = take_flags(c, o, err);
    }
    return status == DI_OK ? take_limits(c, o, err) : status;
}

di_status chat_constraint_fields(chat_constraint *c, const js_value *body, di_error *err)
{
    di_status status = read_vllm(c, body, err);
    if (status == DI_OK) {
        status = read_old(c, body, err);
    }
    return status == DI_OK ? read_ours(c, body, err) : status;
}
