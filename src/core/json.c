/* json.c - see json.h. Two passes over the text: the first checks it and counts, the second fills one block of exactly the
 * right size, so that a document costs two allocations and a failed one leaves nothing half-built.
 *
 * Values of open containers wait on a scratch stack; when a container ends, its values move together into the document, which
 * makes elements and members contiguous. Object members also get a sorted order (name_index.h) for look-up. */
#include "core/json.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/json_scan.h"
#include "core/name_index.h"

#include <locale.h>
#include <math.h>
#include <string.h>

#define DEFAULT_DEPTH 64

struct js_value {
    uint8_t kind; /* js_kind */
    bool truth;
    uint32_t at;        /* place of the key in the text, for messages */
    size_t length;      /* elements, members, or bytes of text */
    const char *text;   /* string, or spelling of a number; NUL-terminated */
    const char *key;    /* NULL for elements and the root */
    size_t key_size;
    union {
        int64_t integer;
        double real;
        struct {
            js_value *items;
            uint32_t *order; /* objects only */
        } children;
    } as;
};

struct js_doc {
    js_value *root;
    js_value *values;
    uint32_t *orders;
    char *bytes; /* strings, keys and spellings */
    size_t size; /* of the block */
};

typedef struct counts {
    size_t values;
    size_t members;
    size_t bytes;
    size_t waiting;      /* largest number of values on the stack at once */
    size_t max_children; /* of one container */
} counts;

typedef struct builder {
    jsc scan;
    const js_limits *limits;
    js_doc *doc;
    js_value *stack;
    uint32_t *scratch; /* for sorting members */
    size_t n_stack;
    size_t n_values;
    size_t n_orders;
    size_t n_bytes;
    locale_t c_locale;
} builder;

static di_status count(jsc *scan, counts *c, di_error *err)
{
    uint32_t children[JSC_MAX_DEPTH + 1]; /* so far, of each open container */
    children[0] = 0;
    size_t waiting = 0;
    for (;;) {
        const jsc_event event = jsc_next(scan, err);
        switch (event) {
        case JSC_ERROR:
            return scan->fault_limit ? DI_E_LIMIT : DI_E_FORMAT;
        case JSC_END:
            return DI_OK;
        case JSC_KEY:
            c->members++;
            c->bytes += scan->token_size + 1;
            continue;
        case JSC_OBJECT_END:
        case JSC_ARRAY_END:
            waiting -= children[scan->depth + 1];
            if (children[scan->depth + 1] > c->max_children) {
                c->max_children = children[scan->depth + 1];
            }
            continue;
        case JSC_STRING:
        case JSC_NUMBER:
            c->bytes += scan->token_size + 1;
            break;
        case JSC_OBJECT_BEGIN:
        case JSC_ARRAY_BEGIN:
            children[scan->depth] = 0;
            break;
        default:
            break;
        }
        const bool opened = event == JSC_OBJECT_BEGIN || event == JSC_ARRAY_BEGIN;
        children[scan->depth - (opened ? 1 : 0)]++;
        c->values++;
        waiting++;
        if (waiting > c->waiting) {
            c->waiting = waiting;
        }
    }
}

static const char *key_of(const void *items, size_t i, size_t *size)
{
    const js_value *const value = (const js_value *)items + i;
    *size = value->key_size;
    return value->key;
}

static size_t line_of(const builder *b, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at; i++) {
        line += b->scan.text[i] == '\n' ? 1 : 0;
    }
    return line;
}

/* Keeps the last value of every key, at the first position of that key. Returns the number of members left.
 * scratch[i] = 1 marks members to drop. */
static size_t merge_duplicates(js_value *items, uint32_t *order, uint32_t *scratch, size_t n)
{
    for (size_t k = 0; k < n;) {
        const size_t first = order[k];
        size_t last = first;
        for (k++; k < n; k++) {
            const js_value *const item = &items[order[k]];
            if (item->key_size != items[first].key_size || memcmp(item->key, items[first].key, item->key_size) != 0) {
                break;
            }
            last = order[k];
            scratch[last] = 1;
        }
        if (last != first) {
            items[first] = items[last];
        }
        scratch[first] = 0;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (scratch[i] == 0) {
            items[kept++] = items[i];
        }
    }
    return kept;
}

static di_status end_object(builder *b, js_value *object, di_error *err)
{
    js_value *const items = object->as.children.items;
    uint32_t *const order = b->doc->orders + b->n_orders;
    const size_t n = object->length;
    b->n_orders += n;
    object->as.children.order = order;
    nix_sort(items, key_of, order, b->scratch, n);
    const size_t k = nix_duplicate(items, key_of, order, n);
    if (k == 0) {
        return DI_OK;
    }
    const js_value *const again = &items[order[k]];
    if (b->limits == NULL || !b->limits->last_duplicate_wins) {
        return err_set(err, DI_E_FORMAT, "%s: line %zu: duplicate key \"%.200s\"", b->scan.name, line_of(b, again->at),
                       again->key);
    }
    object->length = merge_duplicates(items, order, b->scratch, n);
    nix_sort(items, key_of, order, b->scratch, object->length);
    return DI_OK;
}

/* Moves the values of the container that just ended from the stack into the document. */
static di_status end_container(builder *b, size_t n, di_error *err)
{
    js_value *const items = b->doc->values + b->n_values;
    b->n_stack -= n;
    b->n_values += n;
    memcpy(items, b->stack + b->n_stack, n * sizeof *items);
    js_value *const container = &b->stack[b->n_stack - 1];
    container->length = n;
    container->as.children.items = items;
    return container->kind == JS_OBJECT ? end_object(b, container, err) : DI_OK;
}

static char *copy_token(builder *b, size_t *size)
{
    char *const copy = b->doc->bytes + b->n_bytes;
    *size = jsc_unescape(&b->scan, copy);
    copy[*size] = '\0';
    b->n_bytes += *size + 1;
    return copy;
}

/* The text of an integer, sign included, as int64_t; false when it does not fit. */
static bool parse_integer(const char *text, int64_t *out)
{
    const bool negative = text[0] == '-';
    int64_t value = 0;
    for (const char *p = text + (negative ? 1 : 0); *p != '\0'; p++) {
        const int digit = *p - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            (negative ? __builtin_sub_overflow(value, digit, &value) : __builtin_add_overflow(value, digit, &value))) {
            return false;
        }
    }
    *out = value;
    return !negative || value != 0;
}

static di_status read_number(builder *b, js_value *value, di_error *err)
{
    value->text = copy_token(b, &value->length);
    if (strpbrk(value->text, ".eE") == NULL && parse_integer(value->text, &value->as.integer)) {
        value->kind = JS_INT;
        return DI_OK;
    }
    value->kind = JS_NUMBER;
    value->as.real = strtod_l(value->text, NULL, b->c_locale);
    if (!isfinite(value->as.real) && (b->limits == NULL || !b->limits->numbers_any_size)) {
        return err_set(err, DI_E_FORMAT, "%s: line %zu: the number %.40s is out of range", b->scan.name,
                       line_of(b, (size_t)(b->scan.token - b->scan.text)), value->text);
    }
    return DI_OK;
}

static di_status read_value(builder *b, jsc_event event, js_value *value, di_error *err)
{
    switch (event) {
    case JSC_OBJECT_BEGIN:
        value->kind = JS_OBJECT;
        return DI_OK;
    case JSC_ARRAY_BEGIN:
        value->kind = JS_ARRAY;
        return DI_OK;
    case JSC_STRING:
        value->kind = JS_STRING;
        value->text = copy_token(b, &value->length);
        return DI_OK;
    case JSC_NUMBER:
        return read_number(b, value, err);
    case JSC_TRUE:
    case JSC_FALSE:
        value->kind = JS_BOOL;
        value->truth = event == JSC_TRUE;
        return DI_OK;
    default:
        value->kind = JS_NULL;
        return DI_OK;
    }
}

static di_status build(builder *b, di_error *err)
{
    uint32_t children[JSC_MAX_DEPTH + 1];
    children[0] = 0;
    js_value next = {.key = NULL}; /* carries a key to the value after it */
    for (;;) {
        const jsc_event event = jsc_next(&b->scan, err);
        const size_t depth = (size_t)b->scan.depth;
        di_status status = DI_OK;
        switch (event) {
        case JSC_ERROR: /* cannot happen: the first pass has read the same text */
            return DI_E_INTERNAL;
        case JSC_END:
            b->doc->root = &b->doc->values[b->n_values];
            *b->doc->root = b->stack[0];
            return DI_OK;
        case JSC_KEY:
            next.at = (uint32_t)(b->scan.token - b->scan.text);
            next.key = copy_token(b, &next.key_size);
            continue;
        case JSC_OBJECT_END:
        case JSC_ARRAY_END:
            status = end_container(b, children[depth + 1], err);
            break;
        default:
            children[event == JSC_OBJECT_BEGIN || event == JSC_ARRAY_BEGIN ? depth - 1 : depth]++;
            children[depth] = event == JSC_OBJECT_BEGIN || event == JSC_ARRAY_BEGIN ? 0 : children[depth];
            status = read_value(b, event, &next, err);
            b->stack[b->n_stack++] = next;
            next = (js_value){.key = NULL};
            break;
        }
        if (status != DI_OK) {
            return status;
        }
    }
}

/* Bytes of one block: the document, its values, the orders of members, the bytes; and of the working space beside it.
 * Saturates, so that what does not fit can't be allocated. */
static void need_bytes(const counts *c, size_t *block, size_t *working)
{
    size_t values_bytes;
    size_t stack_bytes;
    size_t size = sizeof(js_doc) + c->bytes + c->members * sizeof(uint32_t); /* both bounded by the text's size */
    *block = *working = SIZE_MAX;
    if (ar_mul(c->values, sizeof(js_value), &values_bytes) && ar_add(size, values_bytes, &size)) {
        *block = size;
    }
    if (ar_mul(c->waiting, sizeof(js_value), &stack_bytes)) {
        (void)ar_add(stack_bytes, c->max_children * sizeof(uint32_t), working);
    }
}

static js_doc *new_doc(const counts *c, size_t size)
{
    js_doc *const doc = size < SIZE_MAX ? malloc(size) : NULL;
    if (doc == NULL) {
        return NULL;
    }
    doc->root = NULL;
    doc->size = size;
    doc->values = (js_value *)(doc + 1);
    doc->orders = (uint32_t *)(doc->values + c->values);
    doc->bytes = (char *)(doc->orders + c->members);
    return doc;
}

di_status js_parse(const char *text, size_t size, const char *name, const js_limits *limits, js_doc **out, di_error *err)
{
    if (size >= UINT32_MAX) {
        return err_set(err, DI_E_LIMIT, "%s: %zu bytes of JSON are more than this program reads", name, size);
    }
    const int max_depth = limits != NULL && limits->max_depth > 0 ? limits->max_depth : DEFAULT_DEPTH;
    builder b = {.limits = limits};
    counts c = {.values = 0};
    jsc_init(&b.scan, text, size, name, max_depth);
    di_status status = count(&b.scan, &c, err);
    if (status == DI_E_LIMIT && limits != NULL && limits->deep_is_malformed) {
        status = DI_E_FORMAT;
        if (err != NULL) {
            err->code = status;
        }
    }
    if (status != DI_OK) {
        return status;
    }
    size_t doc_bytes;
    size_t working_bytes;
    need_bytes(&c, &doc_bytes, &working_bytes);
    if (limits != NULL && limits->max_bytes != 0 &&
        (doc_bytes > limits->max_bytes || working_bytes > limits->max_bytes - doc_bytes)) {
        return err_set(err, DI_E_LIMIT, "%s: %zu bytes of JSON need more than %zu bytes of memory", name, size, limits->max_bytes);
    }
    b.doc = new_doc(&c, doc_bytes);
    b.stack = ar_calloc(c.waiting, sizeof *b.stack);
    b.scratch = ar_calloc(c.max_children, sizeof *b.scratch);
    b.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* the decimal point must not depend on the process */
    if (b.doc == NULL || b.stack == NULL || b.scratch == NULL || b.c_locale == (locale_t)0) {
        status = err_memory(err, name, doc_bytes);
        goto out;
    }
    jsc_init(&b.scan, text, size, name, max_depth);
    status = build(&b, err);
    if (status == DI_OK) {
        *out = b.doc;
        b.doc = NULL;
    }

out:
    if (b.c_locale != (locale_t)0) {
        freelocale(b.c_locale);
    }
    free(b.scratch);
    free(b.stack);
    free(b.doc);
    return status;
}

void js_free(js_doc *doc)
{
    free(doc);
}

size_t js_doc_bytes(const js_doc *doc)
{
    return doc->size;
}

const js_value *js_root(const js_doc *doc)
{
    return doc->root;
}

js_kind js_kind_of(const js_value *value)
{
    return value == NULL ? JS_NULL : (js_kind)value->kind;
}

const char *js_kind_name(js_kind kind)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    return names[kind];
}

size_t js_length(const js_value *value)
{
    const js_kind kind = js_kind_of(value);
    return kind == JS_ARRAY || kind == JS_OBJECT || kind == JS_STRING ? value->length : 0;
}

const js_value *js_get(const js_value *object, const char *key)
{
    if (js_kind_of(object) != JS_OBJECT) {
        return NULL;
    }
    const js_value *const items = object->as.children.items;
    const size_t i = nix_find(items, key_of, object->as.children.order, object->length, key, strlen(key));
    return i < object->length ? &items[i] : NULL;
}

const js_value *js_at(const js_value *array, size_t i)
{
    return js_kind_of(array) == JS_ARRAY && i < array->length ? &array->as.children.items[i] : NULL;
}

bool js_bool(const js_value *value)
{
    return js_kind_of(value) == JS_BOOL && value->truth;
}

int64_t js_int(const js_value *value)
{
    return js_kind_of(value) == JS_INT ? value->as.integer : 0;
}

double js_number(const js_value *value)
{
    const js_kind kind = js_kind_of(value);
    return kind == JS_INT ? (double)value->as.integer : kind == JS_NUMBER ? value->as.real : 0.0;
}

const char *js_string(const js_value *value, size_t *length)
{
    const bool string = js_kind_of(value) == JS_STRING;
    if (length != NULL) {
        *length = string ? value->length : 0;
    }
    return string ? value->text : "";
}

const char *js_spelling(const js_value *value, size_t *length)
{
    const js_kind kind = js_kind_of(value);
    const bool number = kind == JS_INT || kind == JS_NUMBER;
    if (length != NULL) {
        *length = number ? value->length : 0;
    }
    return number ? value->text : NULL;
}

const js_value *js_member(const js_value *object, size_t i, const char **key)
{
    if (js_kind_of(object) != JS_OBJECT || i >= object->length) {
        return NULL;
    }
    const js_value *const member = &object->as.children.items[i];
    if (key != NULL) {
        *key = member->key;
    }
    return member;
}

const char *js_key(const js_value *member, size_t *length)
{
    if (length != NULL) {
        *length = member != NULL ? member->key_size : 0;
    }
    return member != NULL ? member->key : NULL;
}
