/* reply_support.c - see reply_support.h. */
#include "reply_support.h"

#include "recipe/rec_int.h"

typedef struct form {
    reply_entry *entry; /* NULL: a body */
    buf *out;
    bool lenient;
} form;

static const char closing[] = "</｜DSML｜";

void reply_list_free(reply_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->entries[i].name);
        buf_fini(&list->entries[i].form);
        buf_fini(&list->entries[i].text);
        buf_fini(&list->entries[i].logprobs);
    }
    free(list->entries);
    *list = (reply_list){.n = 0};
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool one_of(const char *key, const char *const *names)
{
    while (*names != NULL && !is(key, *names)) {
        names++;
    }
    return *names != NULL;
}

/* Length without the beginning of a closing marker at the end. */
static size_t without_marker(const char *text, size_t n)
{
    for (size_t k = sizeof closing - 2; k > 0; k--) {
        if (k <= n && memcmp(text + n - k, closing, k) == 0) {
            return n - k;
        }
    }
    return n;
}

/* ---- form ---- */

static void put_call_id(const char *text, buf *out)
{
    const char *p = text + 5;
    while (*p >= '0' && *p <= '9') {
        p++;
    }
    const bool marked = strncmp(p, "_ET_", 4) == 0;
    const char *const tail = p + (marked ? 4 : 1);
    const bool recorded = is(tail, "#");
    if (!recorded) {
        assert_int_equal(strlen(tail), 24);
        assert_int_equal(strspn(tail, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 24);
        assert_int_equal(strspn(tail + 20, "0123456789"), 4);
    }
    buf_printf(out, "\"%.*s_%s#\"", (int)(p - text), text, marked ? "ET_" : "");
}

static bool is_call_id(const char *key, const char *text)
{
    return (is(key, "id") || is(key, "call_id")) && strncmp(text, "call_", 5) == 0;
}

static void put_string(const form *f, const char *key, const js_value *value)
{
    static const char *const texts[] = {"content", "reasoning_content", "arguments", "delta", "text", "thinking", "partial_json", NULL};
    static const char *const cut[] = {"arguments", "input", NULL};
    size_t n;
    const char *const text = js_string(value, &n);
    if (f->entry != NULL && f->entry->is_delta && one_of(key, texts)) {
        buf_append(&f->entry->text, text, n);
        buf_puts(f->out, "\"#\"");
    } else if (is_call_id(key, text)) {
        put_call_id(text, f->out);
    } else {
        rec_json_string(f->out, text, f->lenient && one_of(key, cut) ? without_marker(text, n) : n);
    }
}

static void put(const form *f, const char *key, const js_value *value);

static void put_list(const form *f, const js_value *list)
{
    buf_puts(f->out, "[");
    for (size_t i = 0; i < js_length(list); i++) {
        buf_puts(f->out, i != 0 ? "," : "");
        put(f, "", js_at(list, i));
    }
    buf_puts(f->out, "]");
}

static void put_object(const form *f, const js_value *object)
{
    buf_puts(f->out, "{");
    for (size_t i = 0; i < js_length(object); i++) {
        const char *key;
        const js_value *const value = js_member(object, i, &key);
        buf_printf(f->out, "%s\"%s\":", i != 0 ? "," : "", key);
        put(f, key, value);
    }
    buf_puts(f->out, "}");
}

/* Entries of {"content": [...]}, [...] or null. */
static void gather_logprobs(buf *out, const js_value *value)
{
    const char *key;
    const js_value *const list = js_kind_of(value) == JS_OBJECT ? js_member(value, 0, &key) : value;
    for (size_t i = 0; i < js_length(list); i++) {
        rec_json_value(out, js_at(list, i), REC_JSON_COMPACT);
    }
}

static void put(const form *f, const char *key, const js_value *value)
{
    static const char *const varying[] = {"created", "created_at", "completed_at", "sequence_number", "reasoning_tokens", NULL};
    if (f->entry != NULL && f->entry->is_delta && is(key, "logprobs")) {
        gather_logprobs(&f->entry->logprobs, value);
        buf_puts(f->out, "#");
        return;
    }
    switch (js_kind_of(value)) {
    case JS_OBJECT:
        put_object(f, value);
        break;
    case JS_ARRAY:
        put_list(f, value);
        break;
    case JS_STRING:
        put_string(f, key, value);
        break;
    case JS_INT:
        if (one_of(key, varying)) {
            buf_puts(f->out, "0");
            break;
        }
        rec_json_value(f->out, value, REC_JSON_COMPACT);
        break;
    default:
        rec_json_value(f->out, value, REC_JSON_COMPACT);
        break;
    }
}

static js_doc *parse(const char *data, size_t size)
{
    js_doc *doc;
    di_error err;
    if (js_parse(data, size, "event", NULL, &doc, &err) != DI_OK) {
        fail_msg("%s in %.*s", err.message, (int)size, data);
    }
    return doc;
}

char *reply_normal(const char *data, size_t size, bool lenient)
{
    js_doc *const doc = parse(data, size);
    buf out;
    buf_init(&out, SIZE_MAX);
    put(&(form){.out = &out, .lenient = lenient}, "", js_root(doc));
    js_free(doc);
    assert_false(out.failed);
    return out.data;
}

/* ---- lists ---- */

static bool is_delta(const char *name, const js_value *event)
{
    if (is(name, "content_block_delta")) {
        return !is(js_string(js_get(js_get(event, "delta"), "type"), NULL), "signature_delta");
    }
    if (*name != '\0') {
        return strlen(name) > 6 && is(name + strlen(name) - 6, ".delta");
    }
    const js_value *const choice = js_at(js_get(event, "choices"), 0);
    const js_value *const delta = js_get(choice, "delta");
    return delta != NULL && js_kind_of(js_get(choice, "finish_reason")) == JS_NULL && js_get(delta, "role") == NULL &&
           js_get(js_at(js_get(delta, "tool_calls"), 0), "id") == NULL;
}

static bool same_text(const buf *a, const buf *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

static reply_entry *new_entry(reply_list *list, const char *name)
{
    if (list->n == list->capacity) {
        list->capacity = list->capacity != 0 ? 2 * list->capacity : 16;
        list->entries = realloc(list->entries, list->capacity * sizeof *list->entries);
        assert_non_null(list->entries);
    }
    reply_entry *const e = &list->entries[list->n++];
    *e = (reply_entry){.name = strdup(name)};
    assert_non_null(e->name);
    buf_init(&e->form, SIZE_MAX);
    buf_init(&e->text, SIZE_MAX);
    buf_init(&e->logprobs, SIZE_MAX);
    return e;
}

static void drop_last(reply_list *list)
{
    reply_entry *const e = &list->entries[--list->n];
    free(e->name);
    buf_fini(&e->form);
    buf_fini(&e->text);
    buf_fini(&e->logprobs);
}

static void join_last(reply_list *list)
{
    if (list->n < 2) {
        return;
    }
    reply_entry *const a = &list->entries[list->n - 2];
    const reply_entry *const b = &list->entries[list->n - 1];
    if (a->is_delta && b->is_delta && is(a->name, b->name) && same_text(&a->form, &b->form)) {
        buf_append(&a->text, b->text.data, b->text.size);
        buf_append(&a->logprobs, b->logprobs.data, b->logprobs.size);
        drop_last(list);
    }
}

void reply_add(reply_list *list, const char *name, const char *data, size_t size)
{
    reply_entry *const e = new_entry(list, name != NULL ? name : "");
    if (size == 6 && memcmp(data, "[DONE]", 6) == 0) {
        buf_puts(&e->form, "[DONE]");
        return;
    }
    js_doc *const doc = parse(data, size);
    const js_value *const event = js_root(doc);
    if (name != NULL) {
        assert_string_equal(js_string(js_get(event, "type"), NULL), name);
    }
    if (name != NULL && strncmp(name, "response.", 9) == 0) {
        assert_int_equal(js_int(js_get(event, "sequence_number")), list->next_number++);
    }
    e->is_delta = is_delta(e->name, event);
    put(&(form){.entry = e, .out = &e->form, .lenient = list->lenient}, "", event);
    js_free(doc);
    if (list->lenient && e->is_delta) {
        e->text.size = without_marker(e->text.data, e->text.size);
    }
    assert_false(e->form.failed || e->text.failed || e->logprobs.failed);
    if (e->is_delta && e->text.size == 0) {
        drop_last(list);
    } else {
        join_last(list);
    }
}

void reply_drain(reply_list *list, di_reply *reply)
{
    di_event event;
    while (di_reply_next_event(reply, &event)) {
        assert_int_equal(strlen(event.data), event.size);
        reply_add(list, event.name, event.data, event.size);
    }
}

void reply_expect_same(const char *id, const reply_list *got, const reply_list *expected)
{
    for (size_t i = 0; i < got->n && i < expected->n; i++) {
        const reply_entry *const a = &got->entries[i];
        const reply_entry *const b = &expected->entries[i];
        if (!is(a->name, b->name) || !same_text(&a->form, &b->form) || !same_text(&a->text, &b->text) ||
            !same_text(&a->logprobs, &b->logprobs)) {
            fail_msg("%s: event %zu is\n  %s %s\n  text %.*s\n  %.*s\nexpected\n  %s %s\n  text %.*s\n  %.*s", id, i, a->name,
                     a->form.data, (int)a->text.size, a->text.size != 0 ? a->text.data : "", (int)a->logprobs.size,
                     a->logprobs.size != 0 ? a->logprobs.data : "", b->name, b->form.data, (int)b->text.size,
                     b->text.size != 0 ? b->text.data : "", (int)b->logprobs.size, b->logprobs.size != 0 ? b->logprobs.data : "");
        }
    }
    if (got->n != expected->n) {
        fail_msg("%s: %zu events, expected %zu", id, got->n, expected->n);
    }
}
