/* rec_messages_turns.c - messages of a Messages request, and the pairing of tool_use with tool_result (recipe.md 3.5).
 *
 * After a turn with tool_use blocks the next message must be the user's and begin with a result for each of them; nothing else
 * pairs. Every block of a user becomes a message of its own (2.3 joins them again), so that results and texts keep their order. */
#include "recipe/rec_messages.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct turns {
    rec_messages *x;
    size_t index;        /* of the message */
    const rec_path *at;  /* its place */
    rec_names ids;       /* tool_use ids of the turn before, when n_ids > 0 */
    rec_str *id;         /* [n_ids] */
    bool *answered;      /* [n_ids] */
    size_t n_ids;
    size_t n_open;       /* not answered */
} turns;

/* ---- faults of pairing ---- */

static int by_bytes(const void *a, const void *b)
{
    const rec_str *const x = a;
    const rec_str *const y = b;
    const int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

/* `where` is the official beginning, blank included, which differs from case to case. */
static di_status unanswered(turns *t, const char *where, di_error *err)
{
    di_request *const r = t->x->r;
    rec_str *const open = arena_alloc(&r->memory, t->n_open, sizeof *open);
    char ids[320];
    size_t n = 0;
    size_t used = 0;
    if (open == NULL) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; i < t->n_ids; i++) {
        if (!t->answered[i]) {
            open[n++] = t->id[i];
        }
    }
    qsort(open, n, sizeof *open, by_bytes);
    ids[0] = '\0';
    for (size_t i = 0; i < n && used < sizeof ids - 1; i++) {
        const int added = snprintf(ids + used, sizeof ids - used, "%s%s", i > 0 ? ", " : "", open[i].data);
        used += added > 0 ? (size_t)added : 0;
    }
    return err_set(err, DI_E_ARGUMENT,
                   "%s`tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have "
                   "a corresponding `tool_result` block in the next message.",
                   where, ids);
}

static di_status unanswered_before(turns *t, di_error *err)
{
    char where[40];
    snprintf(where, sizeof where, "messages.%zu: ", t->index);
    return unanswered(t, where, err);
}

static di_status unanswered_behind(turns *t, size_t turn, di_error *err)
{
    char where[40];
    snprintf(where, sizeof where, "messages.%zu:", turn);
    return unanswered(t, where, err);
}

static di_status misplaced(const turns *t, rec_block kind, di_error *err)
{
    const char *name = "tool_addition";
    const char *role = "system";
    switch (kind) {
    case REC_B_THINKING:
    case REC_B_REDACTED:
        return err_set(err, DI_E_ARGUMENT, "messages.%zu.content: thinking blocks may only be in `assistant` messages", t->index);
    case REC_B_USE:
    case REC_B_SERVER_USE:
        name = "tool_use";
        role = "assistant";
        break;
    case REC_B_SERVER_RESULT:
        name = "web_search_tool_result";
        role = "assistant";
        break;
    case REC_B_RESULT:
        name = "tool_result";
        role = "user";
        break;
    default:
        break;
    }
    return err_set(err, DI_E_ARGUMENT, "messages.%zu: `%s` blocks can only be in `%s` messages", t->index, name, role);
}

/* ---- the user's ---- */

static di_status add(turns *t, rec_role role, rec_message **out, di_error *err)
{
    *out = rec_add_message(t->x->r, role);
    return *out != NULL ? DI_OK : rec_no_memory(t->x->r, err);
}

static di_status user_result(turns *t, const js_value *block, const rec_path *at, rec_tool **known, size_t *n_known,
                             di_error *err)
{
    const rec_block_place place = {t->index, at->index, 0, false};
    rec_message *message;
    rec_str id;
    di_status status = rec_need_string(block, at, "tool_use_id", &id, err);
    if (status != DI_OK) {
        return status;
    }
    const size_t index = t->n_ids > 0 ? rec_names_find(&t->ids, id) : SIZE_MAX;
    if (index == SIZE_MAX) {
        return err_set(err, DI_E_ARGUMENT,
                       "unexpected `messages.%zu.content.%zu: tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` "
                       "block must have a corresponding `tool_use` block in the previous message.",
                       t->index, at->index, id.data);
    }
    if (t->answered[index]) {
        return err_set(err, DI_E_ARGUMENT,
                       "messages.%zu.content.%zu: each tool_use must have a single result. Found multiple `tool_result` blocks with "
                       "id: %s",
                       t->index, at->index, id.data);
    }
    t->answered[index] = true;
    t->n_open--;
    status = add(t, REC_TOOL, &message, err);
    if (status == DI_OK) {
        message->call_id = id;
        status = rec_messages_result(t->x, block, at, place, &message->content, known, n_known, err);
    }
    return status;
}

static di_status user_block(turns *t, const js_value *block, const rec_path *at, rec_tool **known, size_t *n_known, di_error *err)
{
    const rec_block_place place = {t->index, at->index, 0, false};
    rec_block kind;
    rec_message *message;
    di_status status = rec_messages_kind(block, at, &kind, err);
    if (status != DI_OK) {
        return status;
    }
    if (kind == REC_B_RESULT) {
        return user_result(t, block, at, known, n_known, err);
    }
    if (kind > REC_B_DOCUMENT) {
        return misplaced(t, kind, err);
    }
    if (t->n_open > 0) {
        return unanswered_before(t, err);
    }
    status = add(t, REC_USER, &message, err);
    if (status == DI_OK) {
        status = rec_messages_part(t->x, kind, block, at, place, &message->content, err);
    }
    return status;
}

/* A System message without text that announces the tools. */
static di_status announce(turns *t, rec_tool **known, size_t n_known, di_error *err)
{
    rec_message *message;
    if (n_known == 0 || t->x->r->talk.version == DI_V4) {
        return DI_OK;
    }
    const di_status status = add(t, REC_SYSTEM, &message, err);
    if (status != DI_OK) {
        return status;
    }
    message->announced = known;
    message->n_announced = n_known;
    return rec_add_text(t->x->r, &message->content, REC_STR("")) != NULL ? DI_OK : rec_no_memory(t->x->r, err);
}

static di_status user_blocks(turns *t, const js_value *blocks, const rec_path *list, di_error *err)
{
    di_request *const r = t->x->r;
    size_t room = 0;
    size_t n_known = 0;
    for (size_t i = 0; i < js_length(blocks); i++) {
        const js_value *const content = js_get(js_at(blocks, i), "content");
        room += js_kind_of(content) == JS_ARRAY ? js_length(content) : 0;
    }
    rec_tool **const known = arena_alloc(&r->memory, room, sizeof(rec_tool *));
    if (known == NULL) {
        return rec_no_memory(r, err);
    }
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < js_length(blocks); i++) {
        const rec_path at = {list, NULL, i};
        status = user_block(t, js_at(blocks, i), &at, known, &n_known, err);
    }
    if (status == DI_OK && t->n_open > 0) {
        status = unanswered_behind(t, t->index - 1, err);
    }
    return status == DI_OK ? announce(t, known, n_known, err) : status;
}

/* ---- the assistant's ---- */

typedef struct turn {
    rec_message *message;
    buf thinking;
} turn;

static di_status tool_use(turns *t, turn *a, const js_value *block, const rec_path *at, di_error *err)
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

static di_status server_block(const turns *t, const js_value *block, const rec_path *at, const char *id_key, di_error *err)
{
    rec_str unused;
    const di_status status = rec_need_string(block, at, id_key, &unused, err);
    if (status != DI_OK || t->x->r->recipe->options.drop_messages_web_search) {
        return status;
    }
    return err_set(err, DI_E_ARGUMENT, "Unsupported content block: server tools are not supported");
}

/* Text, or what stands for it. An empty text at the start leaves no blank line. */
static di_status said(turns *t, turn *a, rec_block kind, const js_value *block, const rec_path *at, di_error *err)
{
    const rec_block_place place = {t->index, at->index, 0, false};
    rec_content *const content = &a->message->content;
    if (t->n_ids > 0) {
        char where[64];
        snprintf(where, sizeof where, "messages.%zu.%zu: ", t->index, at->index);
        return unanswered(t, where, err);
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

static di_status assistant_block(turns *t, turn *a, const js_value *block, const rec_path *at, di_error *err)
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
        return misplaced(t, kind, err);
    }
    return DI_OK;
}

/* Room for the calls of the turn, and for their ids. */
static bool expect_calls(turns *t, turn *a, const js_value *blocks)
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

static di_status assistant_blocks(turns *t, const js_value *blocks, const rec_path *list, di_error *err)
{
    di_request *const r = t->x->r;
    turn a = {.message = NULL};
    buf_init(&a.thinking, rec_memory_left(r));
    di_status status = add(t, REC_ASSISTANT, &a.message, err);
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

/* ---- system ---- */

static di_status addition(turns *t, const js_value *block, const rec_path *at, rec_message *message, di_error *err)
{
    static const char *const kinds[] = {"tool_reference", NULL};
    const rec_path tool_at = {at, "tool", 0};
    const js_value *object;
    rec_str name;
    int unused;
    di_status status = rec_get_object(block, at, "tool", &object, err);
    if (status == DI_OK && object == NULL) {
        status = rec_bad_form(at, "tool", err, "missing field");
    }
    if (status == DI_OK) {
        status = rec_need_variant(object, &tool_at, "type", kinds, &unused, err);
    }
    if (status == DI_OK) {
        status = rec_need_string(object, &tool_at, "name", &name, err);
    }
    if (status != DI_OK) {
        return status;
    }
    rec_tool *const tool = rec_messages_find(t->x, name);
    if (tool == NULL) {
        return err_set(err, DI_E_ARGUMENT, "messages.%zu.content.%zu: `tool_addition` references unknown tool '%s'", t->index,
                       at->index, name.data);
    }
    if (t->x->r->talk.version != DI_V4) {
        message->announced[message->n_announced++] = tool;
    }
    return DI_OK;
}

static di_status system_blocks(turns *t, const js_value *blocks, const rec_path *list, rec_message *message, di_error *err)
{
    di_status status = DI_OK;
    message->announced = arena_alloc(&t->x->r->memory, js_length(blocks), sizeof(rec_tool *));
    if (message->announced == NULL) {
        return rec_no_memory(t->x->r, err);
    }
    for (size_t i = 0; status == DI_OK && i < js_length(blocks); i++) {
        const rec_path at = {list, NULL, i};
        const rec_block_place place = {t->index, i, 0, false};
        rec_block kind;
        status = rec_messages_kind(js_at(blocks, i), &at, &kind, err);
        if (status != DI_OK) {
            return status;
        }
        if (kind == REC_B_ADDITION) {
            status = addition(t, js_at(blocks, i), &at, message, err);
        } else if (kind <= REC_B_DOCUMENT) {
            status = rec_messages_part(t->x, kind, js_at(blocks, i), &at, place, &message->content, err);
        } else {
            status = misplaced(t, kind, err);
        }
    }
    if (status == DI_OK && message->content.first == NULL && rec_add_text(t->x->r, &message->content, REC_STR("")) == NULL) {
        status = rec_no_memory(t->x->r, err);
    }
    return status;
}

/* V4 has no system messages inside of a conversation: the user says it, marked. */
static di_status as_reminder(turns *t, const rec_content *content, di_error *err)
{
    di_request *const r = t->x->r;
    rec_message *message;
    if (rec_content_empty(content)) {
        return DI_OK;
    }
    buf b;
    buf_init(&b, rec_memory_left(r));
    buf_puts(&b, "<system-reminder>\n");
    for (const rec_part *part = content->first; part != NULL; part = part->next) {
        buf_append(&b, part->text.data, part->text.size);
        buf_puts(&b, part->next != NULL ? "\n\n" : "\n</system-reminder>");
    }
    const rec_str text = rec_from_buf(r, &b);
    if (text.data == NULL) {
        return rec_no_memory(r, err);
    }
    const di_status status = add(t, REC_USER, &message, err);
    if (status == DI_OK && rec_add_text(r, &message->content, text) == NULL) {
        return rec_no_memory(r, err);
    }
    return status;
}

static di_status read_system(turns *t, const js_value *content, const rec_path *list, di_error *err)
{
    di_request *const r = t->x->r;
    rec_message aside = {.role = REC_SYSTEM}; /* V4 */
    rec_message *message = &aside;
    di_status status = r->talk.version == DI_V4 ? DI_OK : add(t, REC_SYSTEM, &message, err);
    if (status != DI_OK) {
        return status;
    }
    if (js_kind_of(content) == JS_STRING) {
        status = rec_add_text(r, &message->content, rec_string(content)) != NULL ? DI_OK : rec_no_memory(r, err);
    } else {
        status = system_blocks(t, content, list, message, err);
    }
    return status == DI_OK && message == &aside ? as_reminder(t, &aside.content, err) : status;
}

/* ---- all ---- */

static di_status read_spoken(turns *t, bool user, const js_value *content, const rec_path *list, di_error *err)
{
    di_status status = DI_OK;
    if (js_kind_of(content) == JS_STRING) {
        rec_message *message;
        if (t->n_open > 0) {
            return unanswered_before(t, err);
        }
        status = add(t, user ? REC_USER : REC_ASSISTANT, &message, err);
        if (status == DI_OK && rec_add_text(t->x->r, &message->content, rec_string(content)) == NULL) {
            status = rec_no_memory(t->x->r, err);
        }
        t->n_ids = 0;
        return status;
    }
    if (js_length(content) == 0) {
        return err_set(err, DI_E_ARGUMENT, "messages.%zu: all messages must have non-empty content", t->index);
    }
    if (user) {
        status = user_blocks(t, content, list, err);
        t->n_ids = 0;
        return status;
    }
    t->n_ids = 0;
    return assistant_blocks(t, content, list, err);
}

static di_status read_turn(turns *t, const js_value *message, di_error *err)
{
    static const char *const roles[] = {"user", "assistant", "system", NULL};
    const js_value *const content = js_get(message, "content");
    const js_kind kind = js_kind_of(content);
    const rec_path list = {t->at, "content", 0};
    int role = 0;
    const di_status status = rec_need_variant(message, t->at, "role", roles, &role, err);
    if (status != DI_OK) {
        return status;
    }
    if (kind != JS_STRING && kind != JS_ARRAY) {
        return content == NULL ? rec_bad_form(t->at, "content", err, "missing field")
                               : rec_bad_form(t->at, "content", err, "expected a string or an array of blocks, not %s",
                                              js_kind_name(kind));
    }
    if (role != 0 && t->n_open > 0) {
        return unanswered_before(t, err);
    }
    return role == 2 ? read_system(t, content, &list, err) : read_spoken(t, role == 0, content, &list, err);
}

di_status rec_messages_turns(rec_messages *x, di_error *err)
{
    const js_value *const messages = js_get(x->r->body, "messages");
    const rec_path list = {NULL, "messages", 0};
    turns t = {.x = x};
    if (js_kind_of(messages) != JS_ARRAY) {
        return messages == NULL ? rec_bad_form(NULL, "messages", err, "missing field")
                                : rec_bad_form(NULL, "messages", err, "expected an array, not %s",
                                               js_kind_name(js_kind_of(messages)));
    }
    const size_t n = js_length(messages);
    if (n == 0) {
        return err_set(err, DI_E_ARGUMENT, "messages: at least one message is required");
    }
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        const rec_path at = {&list, NULL, i};
        t.index = i;
        t.at = &at;
        status = read_turn(&t, js_at(messages, i), err);
    }
    if (status == DI_OK && t.n_open > 0) {
        status = unanswered_behind(&t, n - 1, err);
    }
    return status;
}
