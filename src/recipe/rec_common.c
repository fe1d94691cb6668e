/* rec_common.c - fields that the three APIs share: model, limits, sampling, stop strings, effort, reasoning (recipe.md 3.1, 3.3). */
#include "recipe/rec_read.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

/* ---- model ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static di_status unknown_model(di_request *r, rec_str name, di_error *err)
{
    const di_recipe_options *const o = &r->recipe->options;
    const char **const names = arena_alloc(&r->memory, o->n_aliases + 2, sizeof *names);
    if (names == NULL) {
        return rec_no_memory(r, err);
    }
    names[0] = "DeepSeek-V4-Pro";
    names[1] = "DeepSeek-V4.1-Flash";
    for (size_t i = 0; i < o->n_aliases; i++) {
        names[2 + i] = o->aliases[i].name;
    }
    qsort(names, o->n_aliases + 2, sizeof *names, compare_names);
    buf list;
    buf_init(&list, sizeof err->message); /* longer lists are cut, as the message is */
    for (size_t i = 0; i < o->n_aliases + 2; i++) {
        buf_printf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const di_status status = err_set(err, DI_E_ARGUMENT, "The supported API model names are %s, but you passed %s.",
                                     list.data != NULL ? list.data : "", name.data);
    buf_fini(&list);
    return status;
}

di_status rec_read_model(di_request *r, di_error *err)
{
    const di_recipe_options *const o = &r->recipe->options;
    rec_str name;
    const di_status status = rec_need_string(r->body, NULL, "model", &name, err);
    if (status != DI_OK) {
        return status;
    }
    r->model = name.data;
    for (size_t i = 0; i < o->n_aliases; i++) {
        if (strlen(o->aliases[i].name) == name.size && memcmp(o->aliases[i].name, name.data, name.size) == 0) {
            r->talk.version = o->aliases[i].version;
            return DI_OK;
        }
    }
    if (rec_str_equal(name, REC_STR("DeepSeek-V4.1-Flash"))) {
        r->talk.version = DI_V41;
    } else if (rec_str_equal(name, REC_STR("DeepSeek-V4-Pro"))) {
        r->talk.version = DI_V4;
    } else {
        return unknown_model(r, name, err);
    }
    return DI_OK;
}

/* ---- limits and sampling ---- */

di_status rec_read_max_tokens(di_request *r, const char *key, bool lower, di_error *err)
{
    const int64_t bound = r->recipe->options.max_tokens_bound;
    int64_t n = 0;
    bool present;
    const di_status status = rec_get_int(r->body, NULL, key, &n, &present, err);
    if (status != DI_OK || !present) {
        return status;
    }
    if (n < 0 || n > UINT32_MAX) {
        return rec_bad_form(NULL, key, err, "invalid value: %lld, expected an integer of 32 bits without sign", (long long)n);
    }
    if (n > bound && lower) {
        n = bound;
    }
    if (n < 1 || n > bound) {
        return err_set(err, DI_E_ARGUMENT, "Invalid max_tokens value, the valid range of max_tokens is [1, %lld]", (long long)bound);
    }
    r->inference.max_tokens = n;
    return DI_OK;
}

bool rec_in_range(double value, float low, float high)
{
    const double limit = 1e9; /* what is far outside need not fit a float */
    return value > -limit && value < limit && (float)value >= low && (float)value <= high;
}

di_status rec_read_sampling(di_request *r, di_error *err)
{
    bool present;
    double value = 0.0;
    r->asked_temperature = (float)NAN;
    r->asked_top_p = (float)NAN;
    di_status status = rec_get_number(r->body, NULL, "temperature", &value, &present, err);
    if (status == DI_OK && present) {
        if (!rec_in_range(value, 0.0f, 2.0f)) {
            return err_set(err, DI_E_ARGUMENT, "Invalid temperature value, the valid range of temperature is [0, 2]");
        }
        r->asked_temperature = (float)value;
    }
    if (status == DI_OK) {
        status = rec_get_number(r->body, NULL, "top_p", &value, &present, err);
    }
    if (status == DI_OK && present) {
        if (!rec_in_range(value, 0.0f, 1.0f) || (float)value <= 0.0f) {
            return err_set(err, DI_E_ARGUMENT, "Invalid top_p value, the valid range of top_p is (0, 1.0]");
        }
        r->asked_top_p = (float)value;
    }
    return status;
}

void rec_settle_sampling(di_request *r)
{
    const bool v4 = r->talk.version == DI_V4;
    const bool tools = r->talk.n_tools > 0 && r->talk.choice != REC_CHOICE_NONE;
    const float temperature = isnan(r->asked_temperature) ? 1.0f : r->asked_temperature;
    const float top_p = isnan(r->asked_top_p) ? 1.0f : r->asked_top_p;
    r->inference.temperature = r->talk.thinking ? 1.0f : temperature;
    if (!r->talk.thinking) {
        r->inference.top_p = v4 ? top_p : 1.0f;
    } else if (v4) {
        r->inference.top_p = tools ? 0.95f : 1.0f;
    } else {
        r->inference.top_p = top_p < 0.95f ? 0.95f : top_p;
    }
}

/* ---- stop strings ---- */

static di_status empty_stop(const char *place, di_error *err)
{
    return err_set(err, DI_E_ARGUMENT,
                   "Invalid '%s': empty string. Expected a string with minimum length 1, but got an empty string instead.", place);
}

static di_status read_stop_list(di_request *r, const char *key, const js_value *list, const char **stops, size_t *sizes, di_error *err)
{
    const rec_path at = {NULL, key, 0};
    char place[32];
    for (size_t i = 0; i < js_length(list); i++) {
        const rec_path item = {&at, NULL, i};
        const js_value *const value = js_at(list, i);
        if (js_kind_of(value) != JS_STRING) {
            return rec_bad_form(&item, NULL, err, "invalid type: %s, expected a string", js_kind_name(js_kind_of(value)));
        }
        stops[i] = js_string(value, &sizes[i]);
        if (sizes[i] == 0) {
            const rec_path named = {&(rec_path){NULL, "stop", 0}, NULL, i};
            return empty_stop(rec_path_text(&named, place, sizeof place), err);
        }
    }
    r->output.stops = stops;
    r->output.stop_sizes = sizes;
    r->output.n_stops = js_length(list);
    return DI_OK;
}

di_status rec_read_stops(di_request *r, const char *key, bool allow_string, di_error *err)
{
    const js_value *const value = js_get(r->body, key);
    const js_kind kind = js_kind_of(value);
    if (kind == JS_NULL) {
        return DI_OK;
    }
    if (kind != JS_ARRAY && !(kind == JS_STRING && allow_string)) {
        return rec_bad_form(NULL, key, err, "invalid type: %s, expected %san array of strings", js_kind_name(kind),
                            allow_string ? "a string or " : "");
    }
    const size_t n = kind == JS_ARRAY ? js_length(value) : 1;
    if (n > REC_MAX_STOPS) {
        return err_set(err, DI_E_ARGUMENT, "Stop string array too long: %zu", n);
    }
    const char **const stops = arena_alloc(&r->memory, n, sizeof *stops);
    size_t *const sizes = arena_alloc(&r->memory, n, sizeof *sizes);
    if (stops == NULL || sizes == NULL) {
        return rec_no_memory(r, err);
    }
    if (kind == JS_ARRAY) {
        return read_stop_list(r, key, value, stops, sizes, err);
    }
    stops[0] = js_string(value, &sizes[0]);
    if (sizes[0] == 0) {
        return empty_stop("stop", err);
    }
    r->output.stops = stops;
    r->output.stop_sizes = sizes;
    r->output.n_stops = 1;
    return DI_OK;
}

/* ---- thinking ---- */

di_status rec_read_effort(const js_value *object, const rec_path *at, const char *key, rec_effort *out, bool *off, bool *present,
                          di_error *err)
{
    static const char *const names[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra", NULL};
    static const rec_effort efforts[] = {REC_EFFORT_ABSENT, REC_EFFORT_LOW,   REC_EFFORT_LOW, REC_EFFORT_HIGH,
                                         REC_EFFORT_HIGH,   REC_EFFORT_XHIGH, REC_EFFORT_MAX, REC_EFFORT_MAX};
    int name = 0;
    const di_status status = rec_get_variant(object, at, key, names, &name, present, err);
    if (status == DI_OK && *present) {
        *off = name == 0;
        *out = efforts[name];
    }
    return status;
}

di_status rec_read_thinking(const js_value *object, const char *key, bool *on, bool *present, di_error *err)
{
    static const char *const names[] = {"adaptive", "enabled", "disabled", NULL};
    const rec_path at = {NULL, key, 0};
    const js_value *thinking;
    int64_t budget = 0;
    int name = 0;
    *present = false;
    di_status status = rec_get_object(object, NULL, key, &thinking, err);
    if (status != DI_OK || thinking == NULL) {
        return status;
    }
    status = rec_need_variant(thinking, &at, "type", names, &name, err);
    if (status == DI_OK) {
        status = rec_get_int(thinking, &at, "budget_tokens", &budget, NULL, err);
    }
    if (status == DI_OK && budget < 0) {
        status = rec_bad_form(&at, "budget_tokens", err, "invalid value: %lld, expected an integer without sign", (long long)budget);
    }
    *present = status == DI_OK;
    *on = name != 2;
    return status;
}

/* Calls that were made without reasoning carry a mark in their ids: call_NN_ET_ (recipe.md 5). One in a turn is enough. */
static bool made_without_reasoning(const rec_message *m)
{
    for (size_t i = 0; i < m->n_calls; i++) {
        const rec_str id = m->calls[i].id;
        if (id.size >= 11 && memcmp(id.data, "call_", 5) == 0 && memcmp(id.data + 7, "_ET_", 4) == 0) {
            return true;
        }
    }
    return false;
}

di_status rec_check_reasoning(const di_request *r, const char *field, di_error *err)
{
    if (!r->talk.thinking || !r->recipe->options.reject_missing_reasoning) {
        return DI_OK;
    }
    const rec_message *from = r->talk.first;
    for (const rec_message *m = from; m != NULL; m = m->next) {
        from = m->role == REC_USER ? m : from;
    }
    for (const rec_message *m = from; m != NULL; m = m->next) {
        const bool needs = m->role == REC_ASSISTANT && (m->n_calls > 0 || r->n_declared > 0);
        if (needs && !m->has_reasoning && !made_without_reasoning(m)) {
            return err_set(err, DI_E_ARGUMENT, "The `%s` in the thinking mode must be passed back to the API.", field);
        }
    }
    return DI_OK;
}

static bool holds_json(rec_str text)
{
    const char *at = text.data;
    const char *const end = text.data + text.size;
    while (end - at >= 4) {
        if (strncasecmp(at, "json", 4) == 0) {
            return true;
        }
        at++;
    }
    return false;
}

bool rec_mentions_json(const di_request *r)
{
    for (const rec_message *m = r->talk.first; m != NULL; m = m->next) {
        for (const rec_part *part = m->content.first; part != NULL; part = part->next) {
            if (part->image == NULL && holds_json(part->text)) {
                return true;
            }
        }
    }
    return false;
}
