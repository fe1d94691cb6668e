/* req_support.c - see req_support.h. */
#include "req_support.h"

char *req_body(const req_place *place, const char *body)
{
    buf b;
    buf_init(&b, SIZE_MAX);
    buf_printf(&b, "{\"model\":\"%s\",", place->model);
    for (const char *p = body; *p != '\0'; p++) {
        buf_append(&b, *p == '\'' ? "\"" : p, 1);
    }
    buf_puts(&b, "}");
    assert_false(b.failed);
    return b.data;
}

di_status req_try(const req_place *place, const char *body, req_read *out, di_error *err)
{
    const di_recipe_options quiet = {.thinking_off = true};
    char *const json = req_body(place, body);
    *out = (req_read){.recipe = NULL};
    assert_int_equal(di_recipe_open(NULL, place->options != NULL ? place->options : &quiet, &out->recipe, err), DI_OK);
    const di_status status = di_request_read(out->recipe, place->protocol, json, strlen(json), &out->request, err);
    free(json);
    return status;
}

void req_close(req_read *r)
{
    di_request_free(r->request);
    di_recipe_close(r->recipe);
}

req_read req_open(const req_place *place, const char *body)
{
    di_error err;
    req_read r;
    if (req_try(place, body, &r, &err) != DI_OK) {
        fail_msg("%s: %s", body, err.message);
    }
    return r;
}

void req_expect_tail(const req_place *place, const char *body, const char *tail)
{
    req_read r = req_open(place, body);
    size_t n;
    const char *const prompt = di_request_prompt(r.request, &n);
    const size_t n_tail = strlen(tail);
    if (n < n_tail || memcmp(prompt + n - n_tail, tail, n_tail) != 0) {
        fail_msg("%s\n  gives %.*s\n  not   %s", body, n < 1500 ? (int)n : 1500, n < 1500 ? prompt : prompt + n - 1500, tail);
    }
    req_close(&r);
}

void req_expect_tails(const req_place *place, const req_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        req_expect_tail(place, cases[i].body, cases[i].expected);
    }
}

void req_expect_schemas(const req_place *place, const char *body, const char *schemas)
{
    static const char before[] = "### Available Tool Schemas\n\n";
    static const char behind[] = "\n\nYou MUST strictly follow";
    req_read r = req_open(place, body);
    size_t n;
    const char *const start = strstr(di_request_prompt(r.request, &n), before);
    const char *const from = start != NULL ? start + strlen(before) : "";
    const char *const end = start != NULL ? strstr(from, behind) : from;
    assert_non_null(end);
    if ((size_t)(end - from) != strlen(schemas) || memcmp(from, schemas, (size_t)(end - from)) != 0) {
        fail_msg("%s\n  lists %.*s\n  not   %s", body, (int)(end - from), from, schemas);
    }
    req_close(&r);
}

void req_expect_error(const req_place *place, const char *body, di_status code, const char *message)
{
    di_error err = {.message = ""};
    req_read r;
    const di_status status = req_try(place, body, &r, &err);
    if (status != code || strcmp(err.message, message) != 0) {
        fail_msg("%s\n  gives %s: %s\n  not   %s", body, di_status_name(status), err.message, message);
    }
    assert_int_equal(err.code, code);
    req_close(&r);
}

void req_expect_errors(const req_place *place, const req_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        req_expect_error(place, cases[i].body, DI_E_ARGUMENT, cases[i].expected);
    }
}

void req_expect_bad_forms(const req_place *place, const req_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        di_error err = {.message = ""};
        req_read r;
        const di_status status = req_try(place, cases[i].body, &r, &err);
        if (status != DI_E_FORMAT || strstr(err.message, cases[i].expected) == NULL) {
            fail_msg("%s\n  gives %s: %s\n  does not name %s", cases[i].body, di_status_name(status), err.message,
                     cases[i].expected);
        }
        req_close(&r);
    }
}

void req_expect_listed(const req_place *place, const char *body, const char *names)
{
    req_read r = req_open(place, body);
    const di_inference *const inference = di_request_inference(r.request);
    js_doc *doc = NULL;
    buf b;
    buf_init(&b, SIZE_MAX);
    if (inference->constraint == DI_CONSTRAINT_TOOL_CALL || inference->constraint == DI_CONSTRAINT_TOOL_REQUIRED) {
        assert_int_equal(js_parse(inference->constraint_text, inference->constraint_size, "constraint", NULL, &doc, NULL), DI_OK);
    }
    const js_value *const tools = doc != NULL ? js_root(doc) : NULL;
    for (size_t i = 0; i < js_length(tools); i++) {
        const js_value *const tool = js_at(tools, i);
        const rec_str name = rec_string(js_get(js_get(tool, "function"), "name"));
        buf_printf(&b, "%s%s%s", i > 0 ? " " : "", name.data, js_bool(js_get(tool, "defer_loading")) ? "*" : "");
    }
    if (strcmp(b.size > 0 ? b.data : "", names) != 0) {
        fail_msg("%s\n  lists %s\n  not   %s", body, b.size > 0 ? b.data : "", names);
    }
    buf_fini(&b);
    js_free(doc);
    req_close(&r);
}

void req_expect_bounded(const req_place *place, const char *body)
{
    size_t refused = 0;
    di_status status = DI_E_LIMIT;
    for (size_t bytes = 1024; status != DI_OK; bytes += 96) {
        const di_recipe_options tight = {.thinking_off = true, .max_request_bytes = bytes};
        const req_place here = {place->protocol, place->model, &tight};
        di_error err = {.message = ""};
        req_read r;
        status = req_try(&here, body, &r, &err);
        if (status != DI_OK && status != DI_E_LIMIT) {
            fail_msg("%zu bytes: %s: %s", bytes, di_status_name(status), err.message);
        }
        refused += status != DI_OK ? 1 : 0;
        req_close(&r);
    }
    assert_true(refused > 10);
}
