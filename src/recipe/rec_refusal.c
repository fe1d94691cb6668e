/* rec_refusal.c - what a refused body says for programs: the field, the place in its schema, a code (recipe.h); and bodies of errors.
 *
 * A place in a schema is found by the value itself, so that nobody has to carry its path along for the case that it is refused. */
#include "recipe/rec_read.h"

#include "core/utf8.h"

#include <stdio.h>

/* ---- places ---- */

/* Appends the pointer at out + n; returns the new length, at most capacity - 1. */
static size_t append_pointer(const rec_path *path, char *out, size_t capacity, size_t n)
{
    char number[24];
    if (path == NULL) {
        return n;
    }
    n = append_pointer(path->up, out, capacity, n);
    const char *step = path->key;
    if (step == NULL) {
        (void)snprintf(number, sizeof number, "%zu", path->index);
        step = number;
    }
    for (size_t i = 0; n + 2 < capacity && (i == 0 || step[i - 1] != '\0'); i++) {
        const char c = i == 0 ? '/' : step[i - 1];
        const bool escaped = i > 0 && (c == '~' || c == '/');
        out[n++] = escaped ? '~' : c;
        if (escaped) {
            out[n++] = c == '~' ? '0' : '1';
        }
    }
    return n;
}

const char *rec_path_pointer(const rec_path *path, char *out, size_t capacity)
{
    out[append_pointer(path, out, capacity, 0)] = '\0';
    out[utf8_valid_prefix((const uint8_t *)out, strlen(out))] = '\0'; /* it may have been cut inside a character */
    return out;
}

typedef const char *(*write_path)(const rec_path *path, char *out, size_t capacity);

/* Depth is that of a parsed body, which is bounded. */
static bool find(const js_value *at, const js_value *target, const rec_path *path, write_path write, char *out, size_t capacity)
{
    const js_kind kind = js_kind_of(at);
    if (at == target) {
        write(path, out, capacity);
        return true;
    }
    for (size_t i = 0; (kind == JS_ARRAY || kind == JS_OBJECT) && i < js_length(at); i++) {
        const char *key = NULL;
        const js_value *const inside = kind == JS_ARRAY ? js_at(at, i) : js_member(at, i, &key);
        const rec_path step = {path, key, i};
        if (find(inside, target, &step, write, out, capacity)) {
            return true;
        }
    }
    return false;
}

bool rec_find_field(const js_value *body, const js_value *value, char *out, size_t capacity)
{
    return value != NULL && find(body, value, NULL, rec_path_text, out, capacity);
}

bool rec_find_pointer(const js_value *schema, const js_value *value, char *out, size_t capacity)
{
    return value != NULL && find(schema, value, NULL, rec_path_pointer, out, capacity);
}

/* ---- refusals ---- */

void rec_refusal_set(rec_refusal *refusal, const char *param, const char *code)
{
    if (refusal->param[0] == '\0') {
        (void)snprintf(refusal->param, sizeof refusal->param, "%s", param);
    }
    if (refusal->code[0] == '\0') {
        (void)snprintf(refusal->code, sizeof refusal->code, "%s", code);
    }
}

void rec_refuse_schema(di_request *r, const js_value *schema, const char *otherwise)
{
    if (!rec_find_field(r->body, schema, r->refusal.param, sizeof r->refusal.param)) {
        (void)snprintf(r->refusal.param, sizeof r->refusal.param, "%s", otherwise);
    }
    rec_refusal_set(&r->refusal, "", "invalid_schema");
}

/* ---- bodies of errors ---- */

/* By HTTP status. The recipe itself refuses with 400, 413 and 500; the others are a server's, and clients tell them apart by
 * type: Anthropic's names in Messages, OpenAI's in the two other APIs. */
typedef struct error_kind {
    int http_status;
    const char *messages_type;
    const char *type;
    const char *code;
} error_kind;

static const error_kind error_kinds[] = {
    {400, "invalid_request_error", "invalid_request_error", "invalid_request_error"},
    {401, "authentication_error", "authentication_error", "invalid_api_key"},
    {403, "permission_error", "permission_error", "permission_denied"},
    {404, "not_found_error", "not_found_error", "not_found"},
    {405, "invalid_request_error", "invalid_request_error", "method_not_allowed"},
    {408, "timeout_error", "timeout_error", "request_timeout"},
    {413, "request_too_large", "invalid_request_error", "request_too_large"},
    {415, "invalid_request_error", "invalid_request_error", "unsupported_media_type"},
    {429, "rate_limit_error", "rate_limit_error", "rate_limit_exceeded"},
    {500, "api_error", "internal_error", "internal_error"},
    {503, "overloaded_error", "overloaded_error", "overloaded"},
    {504, "timeout_error", "timeout_error", "timeout"},
    {529, "overloaded_error", "overloaded_error", "overloaded"},
};

static const error_kind *kind_of_error(int http_status)
{
    const error_kind *other = &error_kinds[0];
    for (size_t i = 0; i < sizeof error_kinds / sizeof error_kinds[0]; i++) {
        if (error_kinds[i].http_status == http_status) {
            return &error_kinds[i];
        }
        if (error_kinds[i].http_status == 500 && http_status >= 500) {
            other = &error_kinds[i];
        }
    }
    return other;
}

static void put_string(buf *out, const char *text)
{
    (void)buf_json_string(out, text, strlen(text));
}

/* The place follows the message when it is not a part of it already. */
static void put_message(buf *out, const char *message, const rec_refusal *refusal)
{
    if (refusal == NULL || refusal->where[0] == '\0' || strstr(message, refusal->where) != NULL) {
        put_string(out, message);
        return;
    }
    buf text;
    buf_init(&text, SIZE_MAX);
    (void)buf_printf(&text, "%s (at %s)", message, refusal->where);
    put_string(out, text.failed ? message : text.data);
    buf_fini(&text);
}

bool rec_error_body(di_protocol protocol, int http_status, const char *message, const rec_refusal *refusal, buf *out)
{
    const error_kind *const kind = kind_of_error(http_status);
    if (protocol == DI_MESSAGES) {
        (void)buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", kind->messages_type);
        put_message(out, message, refusal);
        return buf_puts(out, "}}");
    }
    (void)buf_puts(out, "{\"error\":{\"message\":");
    put_message(out, message, refusal);
    (void)buf_printf(out, ",\"type\":\"%s\",\"param\":", kind->type);
    if (refusal != NULL && refusal->param[0] != '\0') {
        put_string(out, refusal->param);
    } else {
        (void)buf_puts(out, "null");
    }
    (void)buf_puts(out, ",\"code\":");
    put_string(out, refusal != NULL && refusal->code[0] != '\0' ? refusal->code : kind->code);
    return buf_puts(out, "}}");
}

size_t di_recipe_error_body(di_protocol protocol, int http_status, const char *message, char *out, size_t capacity)
{
    buf body;
    buf_init(&body, SIZE_MAX);
    const size_t n = rec_error_body(protocol, http_status, message, NULL, &body) ? body.size : 0;
    if (capacity > 0) {
        const size_t written = n < capacity ? n : capacity - 1;
        if (written > 0) {
            memcpy(out, body.data, written);
        }
        out[written] = '\0';
    }
    buf_fini(&body);
    return n;
}
