/* rec_messages_answer.c - a turn of the assistant in a Messages conversation (recipe.md 3.5): text and thinking, each joined, then
 * calls. What a server's tools left behind is dropped or refused as the recipe's options say. */
#include "recipe/rec_messages.h"

#include <stdio.h>

typedef struct turn {
    rec_message *message;
    buf thinking;
} turn;

static di_status tool_use(rec_turns *t, turn *a, const js_value *block, const rec_path *at, di_error *err)
{
    di_request *const r = t->x->r;
    rec_call *const call = &a->message->calls[t->n_ids];
    const js_value *const input = js_get(block, "input");
    di_status status = rec_need_string(block, at, "id", &call->id, err);
    if (status == DI_OK) {
        status = rec_need_string(block, at, "name", &call->name, err);
    }
    if (status == DI_OK && input == NULL) {
        status = rec_bad_form(at, "input", err, "missing field");
    }
    if (status != DI_OK) {
        return status;
    }
    if (rec_names_add(&t->ids, call->id) == SIZE_MAX) {
        return err_set(err, DI_E_ARGUMENT, "messages.%zu.content.%zu: `tool_use` ids must be unique", t->index, at->index);
    }
    buf b;
    buf_init(&b, rec_memory_left(r));
    rec_json_value(&b, input, REC_JSON_PYTHON_V4); /* numbers of objects are written anew when the call is rendered */
    call->arguments = rec_from_buf(r, &b);
    t->id[t->n_ids++] = call->id;
    t->n_open++;
    a->message->n_calls++;
    return call->arguments.data != NULL ? DI_OK : rec_no_memory(r, err);
}

static di_status thinking(turn *a, const js_value *block, const rec_path *at, di_error *err)
{
    rec_str text;
    rec_str unused;
    di_status status = rec_need_string(block, at, "thinking", &text, err);
    if (status == DI_OK) {
        status = rec_get_string(block, at, "signature", &unused, NULL, err);
    }
    if (status == DI_OK) {
        buf_puts(&a->thinking, a->message->has_reasoning ? "\n\n" : "");
        buf_append(&a->thinking, text.data, text.size);
        a->message->has_reasoning = true;
    }
    return status;
}

static di_status server_block(const rec_turns *t, const js_value *block, const rec_path *at, const char *id_key, di_error *err)
{
    rec_str unused;
    const di_status status = rec_need_string(block, at, id_key, &unused, err);
    if (status != DI_OK || t->x->r->recipe->options.drop_messages_web_search) {
        return status;
    }
    return err_set(err, DI_E_ARGUMENT, "Unsupported content block: server tools are not supported");
}

/* Text, or what stands for it. An empty text at the start leaves no blank line. */
static di_status said(rec_turns *t, turn *a, rec_block kind, const js_value *block, const rec_path *at, di_error *err)
{
    const rec_block_place place = {t->index, at->index, 0, false};
    rec_content *const content = &a->message->content;
    if (t->n_ids > 0) {
        char where[64];
        snprintf(where, sizeof where, "messages.%zu.%zu: ", t->index, at->index);
        return rec_turns_unanswered(t, where, err);
    }
    if (rec_content_empty(content)) {
        content->first = content->last = NULL;
    }
    const di_status status = rec_messages_part(t->x, kind, block, at, place, content, err);
    if (status == DI_OK && content->last->image != NULL) {
        return err_set(err, DI_E_ARGUMENT, "Image in assistant message is unsupported");
    }
    return status;
}

static di_status assistant_block(rec_turns *t, turn *a, const js_value *block, const rec_path *at, di_error *err)
{
    rec_block kind;
    const di_status status = rec_messages_kind(block, at, &kind, err);
    if (status != DI_OK) {
        return status;
    }
    switch (kind) {
    case REC_B_TEXT:
    case REC_B_IMAGE:
    case REC_B_DOCUMENT:
        return said(t, a, kind, block, at, err);
    case REC_B_THINKING:
        return thinking(a, block, at, err);
    case REC_B_REDACTED:
        return DI_OK; /* nobody here can read it; clients send it back all the same */
    case REC_B_USE:
        return tool_use(t, a, block, at, err);
    case REC_B_SERVER_USE:
        return server_block(t, block, at, "id", err);
    case REC_B_SERVER_RESULT:
        return server_block(t, block, at, "tool_use_id", err);
    case REC_B_RESULT:
    case REC_B_ADDITION:
        return rec_turns_misplaced(t, kind, err);
    }
    return DI_OK;
}

/* Room for the calls of the turn, and for their ids. */
static bool expect_calls(rec_turns *t, turn *a, const js_value *blocks)
{
    arena *const memory = &t->x->r->memory;
    size_t n = 0;
    for (size_t i = 0; i < js_length(blocks); i++) {
        n += rec_str_equal(rec_string(js_get(js_at(blocks, i), "type")), REC_STR("tool_use")) ? 1 : 0;
    }
    a->message->calls = arena_alloc(memory, n, sizeof *a->message->calls);
    t->id = arena_alloc(memory, n, sizeof *t->id);
    t->answered = arena_alloc(memory, n, sizeof *t->answered);
    return a->message->calls != NULL && t->id != NULL && t->answered != NULL && rec_names_init(&t->ids, t->x->r, n);
}

di_status rec_turns_answer(rec_turns *t, const js_value *blocks, const rec_path *list, di_error *err)
{
    di_request *const r = t->x->r;
    turn a = {.message = NULL};
    buf_init(&a.thinking, rec_memory_left(r));
    di_status status = rec_turns_add(t, REC_ASSISTANT, &a.message, err);
    if (status == DI_OK && !expect_calls(t, &a, blocks)) {
        status = rec_no_memory(r, err);
    }
    for (size_t i = 0; status == DI_OK && i < js_length(blocks); i++) {
        const rec_path at = {list, NULL, i};
        status = assistant_block(t, &a, js_at(blocks, i), &at, err);
    }
    if (status == DI_OK && a.message->has_reasoning) {
        a.message->reasoning = rec_from_buf(r, &a.thinking);
        status = a.message->reasoning.data != NULL ? DI_OK : rec_no_memory(r, err);
    }
    buf_fini(&a.thinking);
    return status;
}
