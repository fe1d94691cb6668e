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

#include <stdio.h>
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

static const char ours[] = "structured_output";

#define COUNT_OF(list) (sizeof(list) / sizeof(list)[0])

/* ---- one source ---- */

static di_status check_form(chat_constraint *c, const source *s, const js_value *value, di_error *err)
{
    const js_kind kind = js_kind_of(value);
    const char *expected = NULL;
    switch (s->form) {
    case FORM_TEXT:
        expected = kind == JS_STRING ? NULL : "a string";
        break;
    case FORM_JSON:
        expected = kind == JS_STRING || kind == JS_OBJECT || kind == JS_BOOL ? NULL : "an object or a string";
        break;
    case FORM_LIST:
        expected = kind == JS_ARRAY ? NULL : "an array of at least one string";
        for (size_t i = 0; kind == JS_ARRAY && (i == 0 || i < js_length(value)); i++) {
            if (js_kind_of(js_at(value, i)) != JS_STRING) {
                return chat_refuse(c, s->field, "invalid_value", err, "expected an array of at least one string");
            }
        }
        break;
    case FORM_FLAG:
        expected = kind == JS_BOOL ? NULL : "a boolean";
        break;
    }
    return expected == NULL ? DI_OK : chat_refuse(c, s->field, "invalid_type", err, "expected %s, not %s", expected, js_kind_name(kind));
}

static di_status take(chat_constraint *c, const source *s, const js_value *value, di_error *err)
{
    if (js_kind_of(value) == JS_NULL || (s->form == FORM_FLAG && js_kind_of(value) == JS_BOOL && !js_bool(value))) {
        return DI_OK;
    }
    di_status status = check_form(c, s, value, err);
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

/* The status of reading holder.key, whose message begins with the key when it failed. `holder` is NULL for the body itself. */
static di_status placed(chat_constraint *c, const char *holder, const char *key, di_status status, di_error *err)
{
    char param[sizeof c->refusal.param];
    if (status == DI_E_ARGUMENT) {
        (void)snprintf(param, sizeof param, "%s%s%s", holder != NULL ? holder : "", holder != NULL ? "." : "", key);
        rec_refusal_set(&c->refusal, param, "invalid_value");
        if (holder != NULL && err != NULL) {
            const di_error inner = *err;
            (void)err_set(err, inner.code, "%s.%s", holder, inner.message);
        }
    }
    return status;
}

static di_status take_pattern(chat_constraint *c, const char *name, const js_value *holder, const char *key, di_error *err)
{
    const char *pattern = NULL;
    size_t n = 0;
    const di_status status = placed(c, name, key, chat_get_string(holder, key, &pattern, &n, err), err);
    if (status == DI_OK && pattern != NULL) {
        if (strlen(pattern) != n) {
            return placed(c, name, key, err_set(err, DI_E_ARGUMENT, "%s: holds a NUL", key), err);
        }
        (void)buf_append(&c->pattern, pattern, n);
        c->options.whitespace = DI_WHITESPACE_PATTERN;
        c->options.whitespace_pattern = c->pattern.data != NULL ? c->pattern.data : "";
    }
    return status;
}

/* *out is the index of the word that the field holds. */
static di_status take_word(chat_constraint *c, const js_value *holder, const char *key, const char *const *words, int *out, di_error *err)
{
    const char *word = NULL;
    size_t n = 0;
    const di_status status = placed(c, ours, key, chat_get_string(holder, key, &word, &n, err), err);
    if (status != DI_OK || word == NULL) {
        return status;
    }
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], word) == 0) {
            *out = i;
            return DI_OK;
        }
    }
    return placed(c, ours, key, err_set(err, DI_E_ARGUMENT, "%s: unknown word \"%.40s\"", key, word), err);
}

static di_status need_object(chat_constraint *c, const js_value *value, const char *field, di_error *err)
{
    const js_kind kind = js_kind_of(value);
    return kind == JS_NULL || kind == JS_OBJECT
               ? DI_OK
               : chat_refuse(c, field, "invalid_type", err, "expected an object, not %s", js_kind_name(kind));
}

static di_status take_limits(chat_constraint *c, const js_value *holder, di_error *err)
{
    static const struct {
        const char *key;
        int64_t most;
    } fields[] = {{"compile_ms", LARGEST_MS}, {"max_depth", LARGEST_DEPTH}, {"max_memory_bytes", LARGEST_MEMORY}};
    int64_t values[COUNT_OF(fields)] = {0};
    const js_value *const limits = js_get(holder, "limits");
    di_status status = need_object(c, limits, "structured_output.limits", err);
    for (size_t i = 0; status == DI_OK && i < COUNT_OF(fields); i++) {
        status = chat_get_int(limits, fields[i].key, 1, fields[i].most, &values[i], err);
        status = placed(c, "structured_output.limits", fields[i].key, status, err);
    }
    c->options.limits.compile_ms = values[0];
    c->options.limits.max_depth = (int32_t)values[1];
    c->options.limits.max_memory_bytes = (size_t)values[2];
    return status;
}

static di_status take_flags(chat_constraint *c, const js_value *o, di_error *err)
{
    const struct {
        const char *key;
        bool *value;
    } flags[] = {
        {"lenient", &c->options.lenient},         {"closed", &c->options.closed},
        {"integers_any", &c->options.integers_any}, {"escapes_all", &c->options.escapes_all},
        {"close_on_length", &c->closes},          {"jump_forward", &c->jumps},
    };
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < COUNT_OF(flags); i++) {
        status = placed(c, ours, flags[i].key, chat_get_bool(o, flags[i].key, flags[i].value, err), err);
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
    di_status status = take_word(c, o, "order", orders, &order, err);
    if (status == DI_OK) {
        status = take_word(c, o, "formats", formats, &format, err);
    }
    if (status == DI_OK) {
        status = take_word(c, o, "whitespace", spaces, &space, err);
    }
    c->options.order = (di_grammar_order)order;
    c->options.formats = (di_grammar_formats)format;
    c->options.whitespace = (di_grammar_whitespace)space;
    return status == DI_OK ? take_pattern(c, ours, o, "whitespace_pattern", err) : status;
}

/* ---- the holders ---- */

static di_status read_vllm(chat_constraint *c, const js_value *body, di_error *err)
{
    const js_value *const o = js_get(body, "structured_outputs");
    bool compact = false;
    di_status status = need_object(c, o, "structured_outputs", err);
    if (status == DI_OK) {
        status = take_all(c, of_vllm, COUNT_OF(of_vllm), o, err);
    }
    if (status == DI_OK) {
        status = chat_get_bool(o, "disable_any_whitespace", &compact, err);
        status = placed(c, "structured_outputs", "disable_any_whitespace", status, err);
    }
    if (status == DI_OK) {
        status = chat_get_bool(o, "disable_additional_properties", &c->options.closed, err);
        status = placed(c, "structured_outputs", "disable_additional_properties", status, err);
    }
    c->options.whitespace = compact ? DI_WHITESPACE_COMPACT : c->options.whitespace;
    return status == DI_OK ? take_pattern(c, "structured_outputs", o, "whitespace_pattern", err) : status;
}

static di_status read_old(chat_constraint *c, const js_value *body, di_error *err)
{
    const di_status status = take_all(c, of_body, COUNT_OF(of_body), body, err);
    if (chat_has(body, "guided_decoding_backend")) {
        (void)buf_puts(&c->notes, "guided_decoding_backend: there is one only; ignored\n");
    }
    return status == DI_OK ? take_pattern(c, NULL, body, "guided_whitespace_pattern", err) : status;
}

static di_status read_ours(chat_constraint *c, const js_value *body, di_error *err)
{
    const js_value *const o = js_get(body, "structured_output");
    static const char *const kinds[] = {"json_schema", "regex", "choice", "grammar", "gbnf", "lark", "structural_tag", "json_object", NULL};
    int kind = -1;
    di_status status = need_object(c, o, ours, err);
    if (status == DI_OK) {
        status = take_word(c, o, "kind", kinds, &kind, err);
    }
    if (status == DI_OK && kind >= 0 && of_ours[kind].form == FORM_FLAG) {
        status = chat_constraint_claim(c, of_ours[kind].field, of_ours[kind].kind, NULL, err);
    } else if (status == DI_OK && kind >= 0) {
        status = chat_has(o, "value") ? take(c, &of_ours[kind], js_get(o, "value"), err)
                                      : chat_refuse(c, "structured_output.value", "missing_required_parameter", err, "missing field");
    } else if (status == DI_OK && chat_has(o, "value")) {
        status = chat_refuse(c, "structured_output.kind", "missing_required_parameter", err, "missing field");
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
