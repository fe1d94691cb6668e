/* json.h - JSON documents of outside origin.
 *
 * js_parse reads strict RFC 8259 (json_scan.h does the scanning): UTF-8 checked, lone surrogates, numbers beyond the double range,
 * duplicate keys and nesting beyond the limit refused. Key order is kept, and numbers keep their spelling.
 * A document is one block of memory, immutable after parsing, and may be read by any thread. */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include <deepinfer/base.h>

typedef struct js_doc js_doc;     /* owns all values */
typedef struct js_value js_value; /* borrowed from its document */

typedef enum js_kind { JS_NULL, JS_BOOL, JS_INT, JS_NUMBER, JS_STRING, JS_ARRAY, JS_OBJECT } js_kind;

typedef struct js_limits {
    int max_depth;             /* containers inside containers; 0 = 64, at most JSC_MAX_DEPTH */
    bool last_duplicate_wins; /* as common API servers do: the last value, at the first position; else an error */
    bool numbers_any_size;    /* numbers beyond the double range are infinite, and keep their spelling; else an error */
    bool deep_is_malformed;   /* nesting beyond max_depth is DI_E_FORMAT, as common API servers see it, not DI_E_LIMIT */
    size_t max_bytes;         /* of memory, working space included: DI_E_LIMIT beyond it; 0 = no limit */
} js_limits;

/* `name` goes into messages ("config.json: line 3: duplicate key "a""). Errors: DI_E_FORMAT, DI_E_MEMORY, DI_E_LIMIT. */
di_status js_parse(const char *text, size_t size, const char *name, const js_limits *limits, js_doc **out, di_error *err);
void js_free(js_doc *doc);
size_t js_doc_bytes(const js_doc *doc); /* memory that the document holds */
const js_value *js_root(const js_doc *doc);

/* Readers below never fail: a NULL value has kind JS_NULL, length 0. JS_INT is an integer that fits int64_t; every other
 * number is JS_NUMBER, "-0" included (js_number gives the nearest double for both). */
js_kind js_kind_of(const js_value *value);
const char *js_kind_name(js_kind kind); /* "string" */
size_t js_length(const js_value *value); /* array elements, object members or string bytes */
const js_value *js_get(const js_value *object, const char *key); /* NULL when absent or not an object */
const js_value *js_at(const js_value *array, size_t i);
bool js_bool(const js_value *value);
int64_t js_int(const js_value *value);
double js_number(const js_value *value);
const char *js_string(const js_value *value, size_t *length); /* NUL-terminated; may hold NUL inside: use length; "" for other kinds */

/* A number as the text spelled it ("1e-7"); NULL for other kinds. */
const char *js_spelling(const js_value *value, size_t *length);

/* Object members in document order: i-th key and value, O(1). js_get is O(log members). */
const js_value *js_member(const js_value *object, size_t i, const char **key);

/* Key of a value that is an object member, with its length (it may hold NUL inside); NULL otherwise. */
const char *js_key(const js_value *member, size_t *length);

#endif
