/* Fuzzes JSON (core/json_scan.c, core/json.c, core/buf.c). What is parsed is written again and must parse to the same; the scanner alone
 * must accept whatever the document reader accepts. */
#include "core/buf.h"
#include "core/json.h"
#include "core/json_scan.h"

#include <stdlib.h>
#include <string.h>

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

static void write_value(buf *out, const js_value *value)
{
    size_t size;
    const js_kind kind = js_kind_of(value);
    if (kind == JS_STRING) {
        const char *const text = js_string(value, &size);
        buf_json_string(out, text, size);
    } else if (kind == JS_INT || kind == JS_NUMBER) {
        const char *const text = js_spelling(value, &size);
        buf_append(out, text, size);
    } else if (kind == JS_ARRAY) {
        for (size_t i = 0; i < js_length(value); i++) {
            buf_puts(out, i == 0 ? "[" : ",");
            write_value(out, js_at(value, i));
        }
        buf_puts(out, js_length(value) == 0 ? "[]" : "]");
    } else if (kind == JS_OBJECT) {
        for (size_t i = 0; i < js_length(value); i++) {
            const char *key;
            const js_value *const member = js_member(value, i, &key);
            js_key(member, &size);
            require(strlen(key) != size || js_get(value, key) == member);
            buf_puts(out, i == 0 ? "{" : ",");
            buf_json_string(out, key, size);
            buf_puts(out, ":");
            write_value(out, member);
        }
        buf_puts(out, js_length(value) == 0 ? "{}" : "}");
    } else {
        buf_puts(out, kind == JS_NULL ? "null" : js_bool(value) ? "true" : "false");
    }
}

static void scan_to_the_end(const char *text, size_t size)
{
    jsc scan;
    jsc_init(&scan, text, size, "fuzz", 64);
    jsc_event event;
    while ((event = jsc_next(&scan, NULL)) != JSC_END) {
        require(event != JSC_ERROR);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const js_limits limits = {.last_duplicate_wins = size % 2 == 0};
    js_doc *doc;
    di_error err = {.message = ""};
    if (js_parse((const char *)data, size, "fuzz", &limits, &doc, &err) != DI_OK) {
        require(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
        return 0;
    }
    scan_to_the_end((const char *)data, size);
    buf first;
    buf second;
    buf_init(&first, SIZE_MAX);
    buf_init(&second, SIZE_MAX);
    write_value(&first, js_root(doc));
    js_doc *again;
    require(js_parse(first.data, first.size, "fuzz", NULL, &again, &err) == DI_OK);
    write_value(&second, js_root(again));
    require(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    js_free(again);
    js_free(doc);
    buf_fini(&first);
    buf_fini(&second);
    return 0;
}
