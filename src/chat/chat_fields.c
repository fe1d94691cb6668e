/* chat_fields.c - see chat_fields.h. */
#include "chat/chat_fields.h"

#include "core/err.h"

#define MAX_DEPTH 127
#define MAX_BYTES ((size_t)1 << 30) /* of memory */

di_status chat_parse_body(const char *text, size_t n, js_doc **out, di_error *err)
{
    const js_limits limits = {
        .max_depth = MAX_DEPTH, .last_duplicate_wins = true, .deep_is_malformed = true, .max_bytes = MAX_BYTES};
    js_doc *doc = NULL;
    const di_status status = js_parse(text, n, "invalid JSON request", &limits, &doc, err);
    if (status != DI_OK) {
        return status;
    }
    if (js_kind_of(js_root(doc)) != JS_OBJECT) {
        err_set(err, DI_E_FORMAT, "invalid request body: expected an object, not %s", js_kind_name(js_kind_of(js_root(doc))));
        js_free(doc);
        return DI_E_FORMAT;
    }
    *out = doc;
    return DI_OK;
}

static di_status wrong_type(const char *key, const char *expected, const js_value *value, di_error *err)
{
    return err_set(err, DI_E_ARGUMENT, "%s: expected %s, not %s", key, expected, js_kind_name(js_kind_of(value)));
}

bool chat_has(const js_value *body, const char *key)
{
    return js_kind_of(js_get(body, key)) != JS_NULL;
}

di_status chat_get_bool(const js_value *body, const char *key, bool *out, di_error *err)
{
    const js_value *const value = js_get(body, key);
    if (!chat_has(body, key)) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_BOOL) {
        return wrong_type(key, "a boolean", value, err);
    }
    *out = js_bool(value);
    return DI_OK;
}

di_status chat_get_int(const js_value *body, const char *key, int64_t low, int64_t high, int64_t *out, di_error *err)
{
    const js_value *const value = js_get(body, key);
    if (!chat_has(body, key)) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_INT) {
        return wrong_type(key, "an integer", value, err);
    }
    if (js_int(value) < low || js_int(value) > high) {
        return err_set(err, DI_E_ARGUMENT, "%s: must be in %lld..%lld, not %lld", key, (long long)low, (long long)high,
                       (long long)js_int(value));
    }
    *out = js_int(value);
    return DI_OK;
}

di_status chat_get_float(const js_value *body, const char *key, double low, double high, float *out, di_error *err)
{
    const js_value *const value = js_get(body, key);
    if (!chat_has(body, key)) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_INT && js_kind_of(value) != JS_NUMBER) {
        return wrong_type(key, "a number", value, err);
    }
    const double number = js_number(value);
    if (!(number >= low && number <= high)) {
        return err_set(err, DI_E_ARGUMENT, "%s: must be in %g..%g, not %g", key, low, high, number);
    }
    *out = (float)number;
    return DI_OK;
}

di_status chat_get_string(const js_value *body, const char *key, const char **out, size_t *n, di_error *err)
{
    const js_value *const value = js_get(body, key);
    if (!chat_has(body, key)) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_STRING) {
        return wrong_type(key, "a string", value, err);
    }
    *out = js_string(value, n);
    return DI_OK;
}

di_status chat_read_ids(const js_value *list, const char *path, int32_t vocabulary, int32_t *out, di_error *err)
{
    const size_t n = js_length(list);
    for (size_t i = 0; i < n; i++) {
        const js_value *const value = js_at(list, i);
        if (js_kind_of(value) != JS_INT) {
            return err_set(err, DI_E_ARGUMENT, "%s[%zu]: expected a token id, not %s", path, i, js_kind_name(js_kind_of(value)));
        }
        if (js_int(value) < 0 || js_int(value) >= vocabulary) {
            return err_set(err, DI_E_ARGUMENT, "%s[%zu]: token ids are 0..%d, not %lld", path, i, (int)vocabulary - 1,
                           (long long)js_int(value));
        }
        out[i] = (int32_t)js_int(value);
    }
    return DI_OK;
}
