/* rec_responses_items.c - input items of a Responses request to messages (recipe.md 3.4).
 *
 * Calls gather in a group until each has its output; then they are written as one assistant turn, sorted by id, with their results
 * behind it. Another item in between ends the group early: what is still unanswered takes its output from further on, which the
 * walk then steps over. Every id is looked up in a dictionary, so any order of calls and outputs is near-linear. */
#include "recipe/rec_responses.h"

#include <stdlib.h>

typedef enum kind {
    K_MESSAGE,
    K_REASONING,
    K_CALL,
    K_CUSTOM_CALL,
    K_SEARCH_CALL,
    K_OUTPUT,
    K_CUSTOM_OUTPUT,
    K_SEARCH_OUTPUT,
    K_OTHER
} kind;

typedef struct pending { /* a call */
    rec_call call;
    size_t output;       /* index of the item that answered it; SIZE_MAX: none yet */
    rec_content result;
} pending;

typedef struct walk {
    rec_responses *x;
    rec_names call_ids;     /* -> calls, in order of their items */
    pending *calls;
    rec_names output_ids;   /* -> first output of each id */
    size_t *output_items;
    pending **group;        /* [n_group] of the calls */
    size_t n_group;
    size_t n_open;          /* of the group, without an output */
    rec_message *thinker;   /* the message whose reasoning is still in `reasoning` */
    buf reasoning;
} walk;

static kind kind_of(const rec_responses *x, const js_value *item)
{
    static const char *const names[] = {"message", "reasoning", "function_call", "custom_tool_call", "tool_search_call",
                                        "function_call_output", "custom_tool_call_output", "tool_search_output"};
    const js_value *const type = js_get(item, "type");
    if (type == NULL) {
        return K_MESSAGE;
    }
    const rec_str text = rec_string(type);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (text.size == strlen(names[i]) && memcmp(text.data, names[i], text.size) == 0) {
            const bool search = i == K_SEARCH_CALL || i == K_SEARCH_OUTPUT;
            return search && x->r->talk.version == DI_V4 ? K_OTHER : (kind)i;
        }
    }
    return K_OTHER;
}

static bool is_output(kind k)
{
    return k == K_OUTPUT || k == K_CUSTOM_OUTPUT || k == K_SEARCH_OUTPUT;
}

/* ---- messages and reasoning ---- */

static di_status settle_reasoning(walk *w, di_error *err)
{
    rec_message *const message = w->thinker;
    if (message == NULL) {
        return DI_OK;
    }
    w->thinker = NULL;
    message->reasoning = rec_from_buf(w->x->r, &w->reasoning);
    return message->reasoning.data != NULL ? DI_OK : rec_no_memory(w->x->r, err);
}

static di_status add_message(walk *w, rec_role role, rec_message **out, di_error *err)
{
    const di_status status = settle_reasoning(w, err);
    if (status != DI_OK) {
        return status;
    }
    *out = rec_add_message(w->x->r, role);
    return *out != NULL ? DI_OK : rec_no_memory(w->x->r, err);
}

/* An answer goes on in the last turn when that has no calls; an empty one adds nothing, not even a blank line. */
static di_status add_answer(walk *w, const rec_content *content, di_error *err)
{
    rec_message *last = w->x->r->talk.last;
    if (last == NULL || last->role != REC_ASSISTANT || last->n_calls > 0) {
        const di_status status = add_message(w, REC_ASSISTANT, &last, err);
        if (status != DI_OK) {
            return status;
        }
    }
    if (rec_content_empty(&last->content)) {
        last->content = *content;
    } else if (!rec_content_empty(content)) {
        last->content.last->next = content->first;
        last->content.last = content->last;
    }
    return DI_OK;
}

static di_status read_message(walk *w, const js_value *item, const rec_path *at, di_error *err)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer", NULL};
    rec_responses *const x = w->x;
    rec_content content = {NULL, NULL};
    int role = 0;
    di_status status = rec_need_variant(item, at, "role", roles, &role, err);
    if (status == DI_OK) {
        status = rec_responses_content(x, role == 1 ? REC_R_ANSWER : REC_R_MESSAGE, item, at, &content, err);
    }
    if (status != DI_OK) {
        return status;
    }
    if (role == 1) {
        return add_answer(w, &content, err);
    }
    const bool as_user = role == 0 || (role == 3 && x->r->talk.version == DI_V4);
    rec_message *message;
    status = add_message(w, as_user ? REC_USER : REC_SYSTEM, &message, err);
    if (status == DI_OK) {
        message->content = content;
    }
    return status;
}

/* Texts joined by newlines, behind what w->reasoning holds already; *any false when there is nothing to add. */
static di_status gather_reasoning(walk *w, const js_value *parts, const rec_path *at, bool go_on, bool *any, di_error *err)
{
    const rec_path list = {at, "content", 0};
    const size_t n = js_length(parts);
    *any = n > 1;
    for (size_t i = 0; i < n; i++) {
        const rec_path place = {&list, NULL, i};
        rec_str text;
        const di_status status = rec_need_string(js_at(parts, i), &place, "text", &text, err);
        if (status != DI_OK) {
            return status;
        }
        *any = *any || text.size > 0;
        if (*any) {
            buf_puts(&w->reasoning, go_on || i > 0 ? "\n" : "");
            buf_append(&w->reasoning, text.data, text.size);
        }
    }
    return DI_OK;
}

static di_status read_reasoning(walk *w, const js_value *item, const rec_path *at, di_error *err)
{
    di_request *const r = w->x->r;
    const js_value *parts;
    di_status status = rec_get_array(item, at, "content", &parts, err);
    if (status != DI_OK) {
        return status;
    }
    rec_message *last = r->talk.last;
    const bool same_turn = last != NULL && last->role == REC_ASSISTANT && rec_content_empty(&last->content);
    const bool go_on = same_turn && w->thinker == last;
    bool any;
    if (!go_on) {
        status = settle_reasoning(w, err);
        if (status != DI_OK) {
            return status;
        }
        buf_init(&w->reasoning, rec_memory_left(r));
    }
    status = gather_reasoning(w, parts, at, go_on, &any, err);
    if (status != DI_OK || !any) {
        return status;
    }
    if (!same_turn) {
        last = rec_add_message(r, REC_ASSISTANT);
        if (last == NULL) {
            return rec_no_memory(r, err);
        }
    }
    last->has_reasoning = true;
    w->thinker = last;
    return DI_OK;
}

/* ---- calls and outputs ---- */

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

static di_status read_call(walk *w, kind k, const js_value *item, const rec_path *at, rec_call *call, di_error *err)
{
    di_request *const r = w->x->r;
    rec_str text = REC_STR("");
    bool spaced = false;
    if (k == K_SEARCH_CALL) {
        call->name = REC_STR("tool_search");
        return search_arguments(r, item, at, &call->arguments, err);
    }
    di_status status = rec_need_string(item, at, "name", &call->name, err);
    if (status == DI_OK && k == K_CUSTOM_CALL) {
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

static di_status add_call(walk *w, kind k, const js_value *item, const rec_path *at, di_error *err)
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
    pending *const p = &w->calls[index];
    *p = (pending){.call = call, .output = SIZE_MAX};
    w->group[w->n_group++] = p;
    w->n_open++;
    return DI_OK;
}

/* The result of the output item i. */
static di_status read_result(walk *w, size_t i, rec_content *out, di_error *err)
{
    rec_responses *const x = w->x;
    const js_value *const item = js_at(x->items, i);
    const rec_path input = {NULL, "input", 0};
    const rec_path at = {&input, NULL, i};
    const kind k = kind_of(x, item);
    if (k == K_SEARCH_OUTPUT) {
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
    if (k == K_CUSTOM_OUTPUT && js_kind_of(js_get(item, "output")) == JS_NULL) {
        return rec_add_text(x->r, out, REC_STR("")) != NULL ? DI_OK : rec_no_memory(x->r, err);
    }
    return rec_responses_content(x, REC_R_OUTPUT, item, &at, out, err);
}

static di_status answer(walk *w, pending *p, size_t i, di_error *err)
{
    p->output = i;
    w->n_open--;
    return read_result(w, i, &p->result, err);
}

static int by_id(const void *a, const void *b)
{
    const rec_str x = (*(pending *const *)a)->call.id;
    const rec_str y = (*(pending *const *)b)->call.id;
    const int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order != 0 ? order : (x.size > y.size) - (x.size < y.size);
}

static int by_output(const void *a, const void *b)
{
    const size_t x = (*(pending *const *)a)->output;
    const size_t y = (*(pending *const *)b)->output;
    return (x > y) - (x < y);
}

/* Outputs that come after something else than calls and outputs. */
static di_status answer_late(walk *w, di_error *err)
{
    for (size_t i = 0; w->n_open > 0 && i < w->n_group; i++) {
        pending *const p = w->group[i];
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

static di_status attach_calls(walk *w, di_error *err)
{
    di_request *const r = w->x->r;
    rec_message *turn = r->talk.last;
    if (turn == NULL || turn->role != REC_ASSISTANT) {
        const di_status status = add_message(w, REC_ASSISTANT, &turn, err);
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
static di_status announce(walk *w, di_error *err)
{
    const rec_responses *const x = w->x;
    qsort(w->group, w->n_group, sizeof *w->group, by_output);
    for (size_t i = 0; x->found != NULL && i < w->n_group; i++) {
        const rec_found *const found = &x->found[w->group[i]->output];
        if (found->n_tools == 0) {
            continue;
        }
        rec_message *message;
        const di_status status = add_message(w, REC_SYSTEM, &message, err);
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

static di_status flush_group(walk *w, di_error *err)
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
        status = add_message(w, REC_TOOL, &message, err);
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

static di_status read_output(walk *w, const js_value *item, const rec_path *at, di_error *err)
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
    pending *const p = &w->calls[index];
    if (p->output == at->index) {
        return DI_OK; /* taken early */
    }
    if (p->output != SIZE_MAX) {
        return err_set(err, DI_E_ARGUMENT, "Duplicate tool output for call_id: %s.", id.data);
    }
    status = answer(w, p, at->index, err);
    return status == DI_OK && w->n_open == 0 ? flush_group(w, err) : status;
}

/* ---- the walk ---- */

static di_status read_item(walk *w, size_t i, di_error *err)
{
    const rec_path input = {NULL, "input", 0};
    const rec_path at = {&input, NULL, i};
    const js_value *const item = js_at(w->x->items, i);
    const js_value *const type = js_get(item, "type");
    if (js_kind_of(item) != JS_OBJECT || (type != NULL && js_kind_of(type) != JS_STRING)) {
        return rec_bad_form(&at, NULL, err, "not an input item");
    }
    const kind k = kind_of(w->x, item);
    if (k == K_OTHER) {
        return DI_OK;
    }
    if (is_output(k)) {
        return read_output(w, item, &at, err);
    }
    if (k != K_MESSAGE && k != K_REASONING) {
        return add_call(w, k, item, &at, err);
    }
    const di_status status = flush_group(w, err);
    if (status != DI_OK) {
        return status;
    }
    return k == K_MESSAGE ? read_message(w, item, &at, err) : read_reasoning(w, item, &at, err);
}

static di_status prepare(walk *w, di_error *err)
{
    rec_responses *const x = w->x;
    arena *const memory = &x->r->memory;
    const size_t n_items = js_length(x->items);
    size_t n_calls = 0;
    size_t n_outputs = 0;
    for (size_t i = 0; i < n_items; i++) {
        const kind k = kind_of(x, js_at(x->items, i));
        n_outputs += is_output(k) ? 1 : 0;
        n_calls += k == K_CALL || k == K_CUSTOM_CALL || k == K_SEARCH_CALL ? 1 : 0;
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
        if (is_output(kind_of(x, item))) {
            const size_t index = rec_names_add(&w->output_ids, rec_string(js_get(item, "call_id")));
            if (index != SIZE_MAX) {
                w->output_items[index] = i;
            }
        }
    }
    return DI_OK;
}

static di_status read_items(rec_responses *x, di_error *err)
{
    walk w = {.x = x};
    buf_init(&w.reasoning, 0);
    di_status status = prepare(&w, err);
    for (size_t i = 0; status == DI_OK && i < js_length(x->items); i++) {
        status = read_item(&w, i, err);
    }
    if (status == DI_OK) {
        status = flush_group(&w, err);
    }
    if (status == DI_OK) {
        status = settle_reasoning(&w, err);
    }
    buf_fini(&w.reasoning);
    return status;
}

static di_status add_text_message(di_request *r, rec_role role, rec_str text, di_error *err)
{
    rec_message *const message = rec_add_message(r, role);
    if (message == NULL || rec_add_text(r, &message->content, text) == NULL) {
        return rec_no_memory(r, err);
    }
    return DI_OK;
}

di_status rec_responses_input(rec_responses *x, di_error *err)
{
    di_request *const r = x->r;
    const js_value *const input = js_get(r->body, "input");
    rec_str instructions = REC_STR("");
    di_status status = rec_get_string(r->body, NULL, "instructions", &instructions, NULL, err);
    if (status != DI_OK) {
        return status;
    }
    if (js_kind_of(input) == JS_NULL && instructions.size == 0) {
        return err_set(err, DI_E_ARGUMENT, "Either input or instructions must be provided");
    }
    if (x->items != NULL && js_length(x->items) == 0) {
        return err_set(err, DI_E_ARGUMENT, "Input items array must not be empty");
    }
    if (instructions.size > 0) {
        status = add_text_message(r, REC_SYSTEM, instructions, err);
    }
    if (status == DI_OK && x->items != NULL) {
        status = read_items(x, err);
    } else if (status == DI_OK && js_kind_of(input) == JS_STRING) {
        status = add_text_message(r, REC_USER, rec_string(input), err);
    }
    return status;
}
