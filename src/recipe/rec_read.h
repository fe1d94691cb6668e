/* rec_read.h - what the three request readers share: typed fields with their paths in messages, and the checks of recipe.md 3.1.
 *
 * A fault of the body's form (missing field, wrong type, unknown variant) is DI_E_FORMAT with "invalid request body: <path>: ...";
 * a value that the recipe refuses is DI_E_ARGUMENT with the official text. JSON null counts as absent for optional fields. */
#ifndef RECIPE_REC_READ_H
#define RECIPE_REC_READ_H

#include "recipe/rec_int.h"

/* A place in the body, kept as a chain on the stack: nothing is formatted until there is a fault. */
typedef struct rec_path {
    const struct rec_path *up; /* NULL: the root */
    const char *key;           /* NULL: an array element */
    size_t index;
} rec_path;

/* Writes "messages[3].content[0].type" (the root is ""). Returns out. */
const char *rec_path_text(const rec_path *path, char *out, size_t capacity);

/* The same place as a JSON pointer: "/messages/3/content/0/type". */
const char *rec_path_pointer(const rec_path *path, char *out, size_t capacity);

/* DI_E_FORMAT "invalid request body: <path.key>: <text>". key may be NULL. */
di_status rec_bad_form(const rec_path *at, const char *key, di_error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The path in such a message; "" when it names none. */
void rec_bad_form_field(const char *message, char *out, size_t capacity);

/* Optional fields of an object: absent and null leave *out alone and *present (may be NULL) false. */
di_status rec_get_string(const js_value *object, const rec_path *at, const char *key, rec_str *out, bool *present, di_error *err);
di_status rec_get_bool(const js_value *object, const rec_path *at, const char *key, bool *out, bool *present, di_error *err);
di_status rec_get_number(const js_value *object, const rec_path *at, const char *key, double *out, bool *present, di_error *err);
/* 5.0 is refused. */
di_status rec_get_int(const js_value *object, const rec_path *at, const char *key, int64_t *out, bool *present, di_error *err);
/* NULL when absent. */
di_status rec_get_object(const js_value *object, const rec_path *at, const char *key, const js_value **out, di_error *err);
di_status rec_get_array(const js_value *object, const rec_path *at, const char *key, const js_value **out, di_error *err);
/* Required ones: "missing field". */
di_status rec_need_string(const js_value *object, const rec_path *at, const char *key, rec_str *out, di_error *err);

/* Index of a string in a NULL-terminated list, or DI_E_FORMAT "unknown variant `x`, expected one of ...". */
di_status rec_get_variant(const js_value *object, const rec_path *at, const char *key, const char *const *names, int *out,
                          bool *present, di_error *err);
di_status rec_need_variant(const js_value *object, const rec_path *at, const char *key, const char *const *names, int *out, di_error *err);

/* ---- fields that all protocols share (rec_common.c) ---- */

/* model, version. */
di_status rec_read_model(di_request *r, di_error *err);
/* `lower`: Messages lowers a value above the bound instead of refusing it. */
di_status rec_read_max_tokens(di_request *r, const char *key, bool lower, di_error *err);
/* Compared as a 32-bit float, which is what the value will be. */
bool rec_in_range(double value, float low, float high);
/* temperature, top_p: range checks only. */
di_status rec_read_sampling(di_request *r, di_error *err);
/* The rules of the version, once thinking and the listed tools are known (3.1). V4 in thinking mode with tools has top_p 0.95
 * whatever was asked (the vectors), without them 1. Call after the choice of tools. */
void rec_settle_sampling(di_request *r);
di_status rec_read_stops(di_request *r, const char *key, bool allow_string, di_error *err);
/* The effort names of 3.3; *off is set by "none". */
di_status rec_read_effort(const js_value *object, const rec_path *at, const char *key, rec_effort *out, bool *off, bool *present,
                          di_error *err);
/* {"type": "enabled" | "adaptive" | "disabled"}. */
di_status rec_read_thinking(const js_value *object, const char *key, bool *on, bool *present, di_error *err);

/* Missing reasoning under reject_missing_reasoning; `field` is what the message names. Of the turns after the last user message
 * those with calls must have it, the others only in a request that declares tools (r->n_declared, before the choice). */
di_status rec_check_reasoning(const di_request *r, const char *field, di_error *err);

/* True when some message text holds "json" in any case of its ASCII letters. */
bool rec_mentions_json(const di_request *r);

/* ---- tools (rec_tools.c) ---- */

/* `path` for messages: "tools[0].function.name". */
di_status rec_check_tool_name(rec_str name, const char *path, di_error *err);
/* Object schema, valid against its meta-schema, references resolvable (3.1). What is wrong is in where[capacity], a JSON pointer. */
di_status rec_check_tool_schema(rec_str name, const js_value *schema, char *where, size_t capacity, di_error *err);
di_status rec_check_response_schema(const js_value *schema, char *where, size_t capacity, di_error *err);
/* The request is refused for this schema: r->refusal.param is the field that holds it. */
void rec_refuse_schema(di_request *r, const js_value *schema, const char *otherwise);
/* With `strict` the parameters become their strict form (3.1), which is all that is asked of them; else they are checked. */
di_status rec_settle_parameters(di_request *r, rec_tool *tool, di_error *err);
/* The same for the schema of the response format: talk.schema, talk.strict -> talk.enforced. */
di_status rec_settle_format(di_request *r, di_error *err);

/* Keeps only the tool `name` and makes it required; unknown: the official 400. */
di_status rec_choose_tool(di_request *r, rec_str name, di_error *err);
/* A choice of type allowed_tools, which `holder` at `at` describes: {"mode": "auto" | "required", "tools": [...]}. Reads the mode. */
di_status rec_read_allowed(di_request *r, const js_value *holder, const rec_path *at, rec_choice *choice, di_error *err);
/* Bars the tools that are not among those allowed; all of them stay in the prompt. An element names its tool in `nested`, NULL = itself.
 * Nothing without such a choice. */
di_status rec_bar_tools(di_request *r, const rec_path *at, const char *const *types, const char *nested, di_error *err);
/* Required or named choice with thinking. */
di_status rec_check_choice(di_request *r, di_error *err);

/* After the choice: announcements of dropped tools go, and the one tool that must be called is listed (rec_announce.c). */
void rec_settle_announced(di_request *r);

/* Sets inference.constraint and output.{tools, in_tools, json, stage} from r->talk (3.1, 3.6, 2.10). Call last. */
di_status rec_settle_output(di_request *r, di_error *err);

/* ---- images (rec_image.c) ---- */

/* A reference by URL: http... or a base64 data URL of webp, png, jpeg, gif (3.2). `path` goes into messages; `long_path` into that
 * of a long link. */
di_status rec_image_url(di_request *r, rec_str url, di_image_detail detail, const char *path, const char *long_path,
                        di_image_ref **out, di_error *err);
/* Chat: file_data, an image as a base64 data URL. */
di_status rec_image_file(di_request *r, rec_str url, const char *path, di_image_ref **out, di_error *err);
/* Messages: base64 data with its media type, put together as a data URL. */
di_status rec_image_base64(di_request *r, rec_str media_type, rec_str data, const char *path, di_image_ref **out, di_error *err);
di_status rec_read_detail(const js_value *object, const rec_path *at, di_image_detail *out, di_error *err);

#endif
