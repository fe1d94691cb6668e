/* chat_fields.h - reading fields of a JSON body that is none of the recipe's. An absent field or null leaves *out as it is; a value of
 * a wrong type or out of range is DI_E_ARGUMENT, and the message begins with the field's name. */
#ifndef CHAT_CHAT_FIELDS_H
#define CHAT_CHAT_FIELDS_H

#include "core/json.h"

/* A body whose root is an object. Depth and duplicates as in the recipe. */
di_status chat_parse_body(const char *text, size_t n, js_doc **out, di_error *err);

bool chat_has(const js_value *body, const char *key);
di_status chat_get_bool(const js_value *body, const char *key, bool *out, di_error *err);
di_status chat_get_int(const js_value *body, const char *key, int64_t low, int64_t high, int64_t *out, di_error *err);
di_status chat_get_float(const js_value *body, const char *key, double low, double high, float *out, di_error *err);
/* *out stays; borrowed from the document. */
di_status chat_get_string(const js_value *body, const char *key, const char **out, size_t *n, di_error *err);
/* A list of token ids below `vocabulary`. `path` is for messages. Writes js_length(list) ids. */
di_status chat_read_ids(const js_value *list, const char *path, int32_t vocabulary, int32_t *out, di_error *err);

#endif
