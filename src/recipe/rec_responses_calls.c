/* rec_responses_calls.c - calls and outputs among the input items of a Responses request (recipe.md 3.4).
 *
 * Calls gather in a group until each has its output; then they are written as one assistant turn, sorted by id, with their results
 * behind it. Another item in between ends the group early: what is still unanswered takes its output from further on, which the
 * walk then steps over. Every id is looked up in a dictionary, so any order of calls and outputs is near-linear. */
#include "recipe/rec_responses.h"

#include <stdlib.h>

static di_status need_id(const js_value *item, const rec_path *at, rec_str *id, di_error *err)
{
    const di_status status = rec_need_string(item, at, "call_id", id, err);
    if (status == DI_OK && id->size == 0) {
        return err_set(err, DI_E_ARGUMENT,
                       "Invalid 'input[%zu].call_id': empty string. Expected a string with minimum length 1, but got an empty "
                       "string instead.",
                       at->index);
    }
    return status;
}

static di_status custom_arguments(di_request *r, rec_str input, rec_str *out, di_error *err)
{
    buf b;
    buf_init(&b, rec_memory_left(r));
    buf_puts(&b, "{\"input\":");
    rec_json_string(&b, input.data, input.size);
    buf_puts(&b, "}");
    *out = rec_from_buf(r, &b);
    return out->data != NULL ? DI_OK : rec_no_memory(r, err);
}

static di_status search_arguments(di_request *r, const js_value *item, const rec_path *at, rec_str *out, di_error *err)
{
    static const char *const executions[] = {"client", "server", NULL};
    const js_value *object;
    int execution;
    di_status status = rec_get_object(item, at, "arguments", &object, err);
    if (status == DI_OK) {
        status = rec_get_variant(item, at, "execution", executions, &execution, NULL, err);
    }
    if (status == DI_OK && object == NULL) {
        status = rec_bad_form(at, "arguments", err, "missing field");
    }
    if (status != DI_OK) {
        return status;
    }
    buf b;
    buf_init(&b, rec_memory_left(r));
    rec_json_value(&b, object, REC_JSON_COMPACT);
    *out = rec_from_buf(r, &b);
    return out->data != NULL ? DI_OK : rec_no_memory(r, err);
}

static di_status read_call(rec_walk *w, rec_item k, const js_value *item, const rec_path *at, rec_call *call, di_error *err)
{
    di_request *const r = w->x->r;
    rec_str text = REC_STR("");
    bool spaced = false;
    if (k == REC_I_SEARCH_CALL) {
        call->name = REC_STR("tool_search");
        return search_arguments(r, item, at, &call->arguments, err);
    }
    di_status status = rec_need_string(item, at, "name", &call->name, err);
    if (status == DI_OK && k == REC_I_CUSTOM_CALL) {
        status = rec_need_string(item, at, "input", &text, err);
        return status == DI_OK ? custom_arguments(r, text, &call->arguments, err) : status;
    }
    if (status == DI_OK) {
        status = rec_need_string(item, at, "arguments", &call->arguments, err);
    }
    if (status == DI_OK) {
        status = rec_get_string(item, at, "namespace", &text, &spaced, err);
    }
    if (status == DI_OK && spaced) {
        status = rec_responses_call_name(w->x, text, call->name, &call->name, err);
    }
    return status;
}

di_status rec_walk_call(rec_walk *w, rec_item k, const js_value *item, const rec_path *at, di_error *err)
{
    rec_call call;
    di_status status = need_id(item, at, &call.id, err);
    if (status == DI_OK) {
        status = read_call(w, k, item, at, &call, err);
    }
    if (status != DI_OK) {
        return status;
    }
    const size_t index = rec_names_add(&w->call_ids, call.id);
    if (index == SIZE_MAX) {
        return err_set(err, DI_E_ARGUMENT, "Duplicate 'call_id': %s.", call.id.data);
    }
    rec_pending *const p = &w->calls[index];
    *p = (rec_pending){.call = call, .output = SIZE_MAX};
    w->group[w->n_group++] = p;
    w->n_open++;
    return DI_OK;
}

/* The result of the output item i. */
static di_status read_result(rec_walk *w, size_t i, rec_content *out, di_error *err)
{
    rec_responses *const x = w->x;
    const js_value *const item = js_at(x->items, i);
    const rec_path input = {NULL, "input", 0};
    const rec_path at = {&input, NULL, i};
    const rec_item k = rec_item_kind(x, item);
    if (k == REC_I_SEARCH_OUTPUT) {
        static const char *const executions[] = {"client", "server", NULL};
        const js_value *const tools = js_get(item, "tools");
        rec_str text;
        int execution;
        di_status status = tools == NULL ? rec_bad_form(&at, "tools", err, "missing field")
                                         : rec_get_variant(item, &at, "execution", executions, &execution, NULL, err);
        if (status == DI_OK) {
            status = rec_responses_found_text(x, tools, &text, err);
        }
        if (status == DI_OK && rec_add_text(x->r, out, text) == NULL) {
            status = rec_no_memory(x->r, err);
        }
        return status;
    }
    if (k == REC_I_CUSTOM_OUTPUT && js_kind_of(js_get(item, "output")) == JS_NULL) {
        return rec_add_text(x->r, out, REC_STR("")) != NULL ? DI_OK : rec_no_memory(x->r, err);
    }
    return rec_responses_content(x, REC_R_OUTPUT, item, &at, out, err);
}

static di_status answer(rec_walk *w, rec_pending *p, size_t i, di_error *err)
{
    p->output = i;
    w->n_open--;
    return read_result(w, i, &p->result, err);
}

static int by_id(const void *a, const void *b)
{
    const rec_str x = (*(rec_pending *const *)a)->call.id;
    const rec_str y = (*(rec_pending *const *)b)->call.id;
    const int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order != 0 ? order : (x.size > y.size) - (x.size < y.size);
}

static int by_output(const void *a, const void *b)
{
    const size_t x = (*(rec_pending *const *)a)->output;
    const size_t y = (*(rec_pending *const *)b)->output;
    return (x > y) - (x < y);
}

/* Outputs that come after something else than calls and outputs. */
static di_status answer_late(rec_walk *w, di_error *err)
{
    for (size_t i = 0; w->n_open > 0 && i < w->n_group; i++) {
        rec_pending *const p = w->group[i];
        if (p->output != SIZE_MAX) {
            continue;
        }
        const size_t index = rec_names_find(&w->output_ids, p->call.id);
        if (index == SIZE_MAX) {
            return err_set(err, DI_E_ARGUMENT, "No tool output found for tool call %s.", p->call.id.data);
        }
        const di_status status = answer(w, p, w->output_items[index], err);
        if (status != DI_OK) {
            return status;
        }
    }
    return DI_OK;
}

static di_status attach_calls(rec_walk *w, di_error *err)
{
    di_request *const r = w->x->r;
    rec_message *turn = r->talk.last;
    if (turn == NULL || turn->role != REC_ASSISTANT) {
        const di_status status = rec_walk_add(w, REC_ASSISTANT, &turn, err);
        if (status != DI_OK) {
            return status;
        }
    }
    turn->calls = arena_alloc(&r->memory, w->n_group, sizeof *turn->calls);
    if (turn->calls == NULL) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; i < w->n_group; i++) {
        turn->calls[turn->n_calls++] = w->group[i]->call;
    }
    return DI_OK;
}

/* The tools that the searches of the group brought along, in the order of their outputs. */
static di_status announce(rec_walk *w, di_error *err)
{
    const rec_responses *const x = w->x;
    qsort(w->group, w->n_group, sizeof *w->group, by_output);
    for (size_t i = 0; x->found != NULL && i < w->n_group; i++) {
        const rec_found *const found = &x->found[w->group[i]->output];
        if (found->n_tools == 0) {
            continue;
        }
        rec_message *message;
        const di_status status = rec_walk_add(w, REC_SYSTEM, &message, err);
        if (status != DI_OK) {
            return status;
        }
        if (rec_add_text(x->r, &message->content, REC_STR("")) == NULL) {
            return rec_no_memory(x->r, err);
        }
        message->announced = found->tools;
        message->n_announced = found->n_tools;
    }
    return DI_OK;
}

di_status rec_walk_flush(rec_walk *w, di_error *err)
{
    if (w->n_group == 0) {
        return DI_OK;
    }
    qsort(w->group, w->n_group, sizeof *w->group, by_id);
    di_status status = answer_late(w, err);
    if (status == DI_OK) {
        status = attach_calls(w, err);
    }
    for (size_t i = 0; status == DI_OK && i < w->n_group; i++) {
        rec_message *message;
        status = rec_walk_add(w, REC_TOOL, &message, err);
        if (status == DI_OK) {
            message->call_id = w->group[i]->call.id;
            message->content = w->group[i]->result;
        }
    }
    if (status == DI_OK) {
        status = announce(w, err);
    }
    w->n_group = 0;
    return status;
}

di_status rec_walk_output(rec_walk *w, const js_value *item, const rec_path *at, di_error *err)
{
    rec_str id;
    di_status status = need_id(item, at, &id, err);
    if (status != DI_OK) {
        return status;
    }
    const size_t index = rec_names_find(&w->call_ids, id);
    if (index == SIZE_MAX) {
        return err_set(err, DI_E_ARGUMENT, "No tool call found for tool output with call_id %s.", id.data);
    }
    rec_pending *const p = &w->calls[index];
    if (p->output == at->index) {
        return DI_OK; /* taken early */
    }
    if (p->output != SIZE_MAX) {
        return err_set(err, DI_E_ARGUMENT, "Duplicate tool output for call_id: %s.", id.data);
    }
    status = answer(w, p, at->index, err);
    return status == DI_OK && w->n_open == 0 ? rec_walk_flush(w, err) : status;
}

di_status rec_walk_prepare(rec_walk *w, di_error *err)
{
    rec_responses *const x = w->x;
    arena *const memory = &x->r->memory;
    const size_t n_items = js_length(x->items);
    size_t n_calls = 0;
    size_t n_outputs = 0;
    for (size_t i = 0; i < n_items; i++) {
        const rec_item k = rec_item_kind(x, js_at(x->items, i));
        n_outputs += rec_item_answers(k) ? 1 : 0;
        n_calls += k == REC_I_CALL || k == REC_I_CUSTOM_CALL || k == REC_I_SEARCH_CALL ? 1 : 0;
    }
    w->calls = arena_alloc(memory, n_calls, sizeof *w->calls);
    w->group = arena_alloc(memory, n_calls, sizeof *w->group);
    w->output_items = arena_alloc(memory, n_outputs, sizeof *w->output_items);
    if (w->calls == NULL || w->group == NULL || w->output_items == NULL || !rec_names_init(&w->call_ids, x->r, n_calls) ||
        !rec_names_init(&w->output_ids, x->r, n_outputs)) {
        return rec_no_memory(x->r, err);
    }
    for (size_t i = 0; i < n_items; i++) {
        const js_value *const item = js_at(x->items, i);
        if (rec_item_answers(rec_item_kind(x, item))) {
            const size_t index = rec_names_add(&w->output_ids, rec_string(js_get(item, "call_id")));
            if (index != SIZE_MAX) {
                w->output_items[index] = i;
            }
        }
    }
    return DI_OK;
}
