/* rec_responses_items.c - input items of a Responses request to messages (recipe.md 3.4): messages, reasoning, and the walk over
 * all. Calls and their outputs are in rec_responses_calls.c. */
#include "recipe/rec_responses.h"

rec_item rec_item_kind(const rec_responses *x, const js_value *item)
{
    static const char *const names[] = {"message", "reasoning", "function_call", "custom_tool_call", "tool_search_call",
                                        "function_call_output", "custom_tool_call_output", "tool_search_output"};
    const js_value *const type = js_get(item, "type");
    if (type == NULL) {
        return REC_I_MESSAGE;
    }
    const rec_str text = rec_string(type);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (text.size == strlen(names[i]) && memcmp(text.data, names[i], text.size) == 0) {
            const bool search = i == REC_I_SEARCH_CALL || i == REC_I_SEARCH_OUTPUT;
            return search && x->r->talk.version == DI_V4 ? REC_I_OTHER : (rec_item)i;
        }
    }
    return REC_I_OTHER;
}

bool rec_item_answers(rec_item k)
{
    return k == REC_I_OUTPUT || k == REC_I_CUSTOM_OUTPUT || k == REC_I_SEARCH_OUTPUT;
}

/* ---- messages and reasoning ---- */

di_status rec_walk_settle(rec_walk *w, di_error *err)
{
    rec_message *const message = w->thinker;
    if (message == NULL) {
        return DI_OK;
    }
    w->thinker = NULL;
    message->reasoning = rec_from_buf(w->x->r, &w->reasoning);
    return message->reasoning.data != NULL ? DI_OK : rec_no_memory(w->x->r, err);
}

di_status rec_walk_add(rec_walk *w, rec_role role, rec_message **out, di_error *err)
{
    const di_status status = rec_walk_settle(w, err);
    if (status != DI_OK) {
        return status;
    }
    *out = rec_add_message(w->x->r, role);
    return *out != NULL ? DI_OK : rec_no_memory(w->x->r, err);
}

/* An answer goes on in the last turn when that has no calls; an empty one adds nothing, not even a blank line. */
static di_status add_answer(rec_walk *w, const rec_content *content, di_error *err)
{
    rec_message *last = w->x->r->talk.last;
    if (last == NULL || last->role != REC_ASSISTANT || last->n_calls > 0) {
        const di_status status = rec_walk_add(w, REC_ASSISTANT, &last, err);
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

static di_status read_message(rec_walk *w, const js_value *item, const rec_path *at, di_error *err)
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
    status = rec_walk_add(w, as_user ? REC_USER : REC_SYSTEM, &message, err);
    if (status == DI_OK) {
        message->content = content;
    }
    return status;
}

/* Texts joined by newlines, behind what w->reasoning holds already; *any false when there is nothing to add. */
static di_status gather_reasoning(rec_walk *w, const js_value *parts, const rec_path *at, bool go_on, bool *any, di_error *err)
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

static di_status read_reasoning(rec_walk *w, const js_value *item, const rec_path *at, di_error *err)
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
        status = rec_walk_settle(w, err);
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

/* ---- the walk ---- */

static di_status read_item(rec_walk *w, size_t i, di_error *err)
{
    const rec_path input = {NULL, "input", 0};
    const rec_path at = {&input, NULL, i};
    const js_value *const item = js_at(w->x->items, i);
    const js_value *const type = js_get(item, "type");
    if (js_kind_of(item) != JS_OBJECT || (type != NULL && js_kind_of(type) != JS_STRING)) {
        return rec_bad_form(&at, NULL, err, "not an input item");
    }
    const rec_item k = rec_item_kind(w->x, item);
    if (k == REC_I_OTHER) {
        return DI_OK;
    }
    if (rec_item_answers(k)) {
        return rec_walk_output(w, item, &at, err);
    }
    if (k != REC_I_MESSAGE && k != REC_I_REASONING) {
        return rec_walk_call(w, k, item, &at, err);
    }
    const di_status status = rec_walk_flush(w, err);
    if (status != DI_OK) {
        return status;
    }
    return k == REC_I_MESSAGE ? read_message(w, item, &at, err) : read_reasoning(w, item, &at, err);
}

static di_status read_items(rec_responses *x, di_error *err)
{
    rec_walk w = {.x = x};
    buf_init(&w.reasoning, 0);
    di_status status = rec_walk_prepare(&w, err);
    for (size_t i = 0; status == DI_OK && i < js_length(x->items); i++) {
        status = read_item(&w, i, err);
    }
    if (status == DI_OK) {
        status = rec_walk_flush(&w, err);
    }
    if (status == DI_OK) {
        status = rec_walk_settle(&w, err);
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
