/* rec_read.c - typed fields of a request body, with the path of the field in every message (rec_read.h).
 *
 * A body is checked as it is read: a field of the wrong kind is refused where it is used, and a field that nobody asks for is
 * ignored, as the three APIs allow clients to send more than a server knows (recipe.md 3.1). */
#include "recipe/rec_read.h"

#include "core/utf8.h"

#include <stdarg.h>
#include <stdio.h>

#define PATH_BYTES 256

static const char bad_form[] = "invalid request body: ";

/* Appends the path at out + n; returns the new length, at most capacity - 1. */
static size_t append_path(const rec_path *path, char *out, size_t capacity, size_t n)
{
    if (path == NULL) {
        return n;
    }
    n = append_path(path->up, out, capacity, n);
    const int written = path->key != NULL ? snprintf(out + n, capacity - n, "%s%s", n > 0 ? "." : "", path->key)
                                          : snprintf(out + n, capacity - n, "[%zu]", path->index);
    const size_t end = written > 0 ? n + (size_t)written : n;
    return end < capacity ? end : capacity - 1;
}

const char *rec_path_text(const rec_path *path, char *out, size_t capacity)
{
    out[0] = '\0';
    append_path(path, out, capacity, 0);
    return out;
}

di_status rec_bad_form(const rec_path *at, const char *key, di_error *err, const char *format, ...)
{
    char where[PATH_BYTES];
    char what[PATH_BYTES];
    const rec_path field = {at, key, 0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    rec_path_text(key != NULL ? &field : at, where, sizeof where);
    where[utf8_valid_prefix((const uint8_t *)where, strlen(where))] = '\0'; /* it may have been cut inside a character */
    what[utf8_valid_prefix((const uint8_t *)what, strlen(what))] = '\0';
    return err_set(err, DI_E_FORMAT, "%s%s%s%s", bad_form, where, where[0] != '\0' ? ": " : "", what);
}

/* Paths have no spaces, unless keys do. */
void rec_bad_form_field(const char *message, char *out, size_t capacity)
{
    const size_t n = strncmp(message, bad_form, sizeof bad_form - 1) == 0 ? sizeof bad_form - 1 : strlen(message);
    const size_t length = strcspn(message + n, ": ");
    const bool named = message[n + length] == ':';
    (void)snprintf(out, capacity, "%.*s", named ? (int)length : 0, message + n);
}

/* The value of an optional field: NULL when it is absent or null. */
static const js_value *optional(const js_value *object, const char *key, bool *present)
{
    const js_value *const value = js_get(object, key);
    const bool there = js_kind_of(value) != JS_NULL;
    if (present != NULL) {
        *present = there;
    }
    return there ? value : NULL;
}

static di_status wrong_kind(const js_value *value, const rec_path *at, const char *key, const char *expected, di_error *err)
{
    return rec_bad_form(at, key, err, "invalid type: %s, expected %s", js_kind_name(js_kind_of(value)), expected);
}

di_status rec_get_string(const js_value *object, const rec_path *at, const char *key, rec_str *out, bool *present, di_error *err)
{
    const js_value *const value = optional(object, key, present);
    if (value == NULL) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_STRING) {
        return wrong_kind(value, at, key, "a string", err);
    }
    *out = rec_string(value);
    return DI_OK;
}

di_status rec_get_bool(const js_value *object, const rec_path *at, const char *key, bool *out, bool *present, di_error *err)
{
    const js_value *const value = optional(object, key, present);
    if (value == NULL) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_BOOL) {
        return wrong_kind(value, at, key, "true or false", err);
    }
    *out = js_bool(value);
    return DI_OK;
}

di_status rec_get_number(const js_value *object, const rec_path *at, const char *key, double *out, bool *present, di_error *err)
{
    const js_value *const value = optional(object, key, present);
    if (value == NULL) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_INT && js_kind_of(value) != JS_NUMBER) {
        return wrong_kind(value, at, key, "a number", err);
    }
    *out = js_number(value);
    return DI_OK;
}

di_status rec_get_int(const js_value *object, const rec_path *at, const char *key, int64_t *out, bool *present, di_error *err)
{
    const js_value *const value = optional(object, key, present);
    if (value == NULL) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_INT) {
        return wrong_kind(value, at, key, "an integer", err);
    }
    *out = js_int(value);
    return DI_OK;
}

static di_status get_container(const js_value *object, const rec_path *at, const char *key, js_kind kind, const js_value **out,
                               di_error *err)
{
    const js_value *const value = optional(object, key, NULL);
    *out = NULL;
    if (value == NULL) {
        return DI_OK;
    }
    if (js_kind_of(value) != kind) {
        return wrong_kind(value, at, key, kind == JS_OBJECT ? "an object" : "an array", err);
    }
    *out = value;
    return DI_OK;
}

di_status rec_get_object(const js_value *object, const rec_path *at, const char *key, const js_value **out, di_error *err)
{
    return get_container(object, at, key, JS_OBJECT, out, err);
}

di_status rec_get_array(const js_value *object, const rec_path *at, const char *key, const js_value **out, di_error *err)
{
    return get_container(object, at, key, JS_ARRAY, out, err);
}

di_status rec_need_string(const js_value *object, const rec_path *at, const char *key, rec_str *out, di_error *err)
{
    const js_value *const value = js_get(object, key);
    if (value == NULL) {
        return rec_bad_form(at, key, err, "missing field");
    }
    if (js_kind_of(value) != JS_STRING) {
        return wrong_kind(value, at, key, "a string", err);
    }
    *out = rec_string(value);
    return DI_OK;
}

static di_status unknown_variant(rec_str text, const rec_path *at, const char *key, const char *const *names, di_error *err)
{
    char list[PATH_BYTES] = "";
    size_t n = 0;
    for (size_t i = 0; names[i] != NULL && n < sizeof list; i++) {
        const int written = snprintf(list + n, sizeof list - n, "%s`%s`", i > 0 ? ", " : "", names[i]);
        n += written > 0 ? (size_t)written : 0;
    }
    const size_t shown = utf8_valid_prefix((const uint8_t *)text.data, text.size < 64 ? text.size : 64);
    return rec_bad_form(at, key, err, "unknown variant `%.*s`, expected %s%s", (int)shown, text.data,
                        names[1] != NULL ? "one of " : "", list);
}

di_status rec_get_variant(const js_value *object, const rec_path *at, const char *key, const char *const *names, int *out,
                          bool *present, di_error *err)
{
    rec_str text = REC_STR("");
    bool there = false;
    const di_status status = rec_get_string(object, at, key, &text, &there, err);
    if (present != NULL) {
        *present = there;
    }
    if (status != DI_OK || !there) {
        return status;
    }
    for (int i = 0; names[i] != NULL; i++) {
        if (text.size == strlen(names[i]) && memcmp(text.data, names[i], text.size) == 0) {
            *out = i;
            return DI_OK;
        }
    }
    return unknown_variant(text, at, key, names, err);
}

di_status rec_need_variant(const js_value *object, const rec_path *at, const char *key, const char *const *names, int *out, di_error *err)
{
    rec_str text;
    const di_status status = rec_need_string(object, at, key, &text, err);
    return status == DI_OK ? rec_get_variant(object, at, key, names, out, NULL, err) : status;
}
