/* rec_messages_turns.c - messages of a Messages request, and the pairing of tool_use with tool_result (recipe.md 3.5).
 *
 * After a turn with tool_use blocks the next message must be the user's and begin with a result for each of them; nothing else
 * pairs. Every block of a user becomes a message of its own (2.3 joins them again), so that results and texts keep their order. */
#include "recipe/rec_messages.h"

/* ---- the user's ---- */

di_status rec_turns_add(rec_turns *t, rec_role role, rec_message **out, di_error *err)
{
    *out = rec_add_message(t->x->r, role);
    return *out != NULL ? DI_OK : rec_no_memory(t->x->r, err);
}

static di_status user_result(rec_turns *t, const js_value *block, const rec_path *at, rec_tool **known, size_t *n_known,
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
                       "messages.%zu.content.%zu: each tool_use must have a single result. Found multiple `tool_result` blocks "
                       "with id: %s",
                       t->index, at->index, id.data);
    }
    t->answered[index] = true;
    t->n_open--;
    status = rec_turns_add(t, REC_TOOL, &message, err);
    if (status == DI_OK) {
        message->call_id = id;
        status = rec_messages_result(t->x, block, at, place, &message->content, known, n_known, err);
    }
    return status;
}

static di_status user_block(rec_turns *t, const js_value *block, const rec_path *at, rec_tool **known, size_t *n_known, di_error *err)
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
        return rec_turns_misplaced(t, kind, err);
    }
    if (t->n_open > 0) {
        return rec_turns_before(t, err);
    }
    status = rec_turns_add(t, REC_USER, &message, err);
    if (status == DI_OK) {
        status = rec_messages_part(t->x, kind, block, at, place, &message->content, err);
    }
    return status;
}

/* A System message without text that announces the tools. */
static di_status announce(rec_turns *t, rec_tool **known, size_t n_known, di_error *err)
{
    rec_message *message;
    if (n_known == 0 || t->x->r->talk.version == DI_V4) {
        return DI_OK;
    }
    const di_status status = rec_turns_add(t, REC_SYSTEM, &message, err);
    if (status != DI_OK) {
        return status;
    }
    message->announced = known;
    message->n_announced = n_known;
    return rec_add_text(t->x->r, &message->content, REC_STR("")) != NULL ? DI_OK : rec_no_memory(t->x->r, err);
}

static di_status user_blocks(rec_turns *t, const js_value *blocks, const rec_path *list, di_error *err)
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
        status = rec_turns_behind(t, t->index - 1, err);
    }
    return status == DI_OK ? announce(t, known, n_known, err) : status;
}

/* ---- system ---- */

static di_status addition(rec_turns *t, const js_value *block, const rec_path *at, rec_message *message, di_error *err)
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

static di_status system_blocks(rec_turns *t, const js_value *blocks, const rec_path *list, rec_message *message, di_error *err)
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
            status = rec_turns_misplaced(t, kind, err);
        }
    }
    if (status == DI_OK && message->content.first == NULL && rec_add_text(t->x->r, &message->content, REC_STR("")) == NULL) {
        status = rec_no_memory(t->x->r, err);
    }
    return status;
}

/* V4 has no system messages inside of a conversation: the user says it, marked. */
static di_status as_reminder(rec_turns *t, const rec_content *content, di_error *err)
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
    const di_status status = rec_turns_add(t, REC_USER, &message, err);
    if (status == DI_OK && rec_add_text(r, &message->content, text) == NULL) {
        return rec_no_memory(r, err);
    }
    return status;
}

static di_status read_system(rec_turns *t, const js_value *content, const rec_path *list, di_error *err)
{
    di_request *const r = t->x->r;
    rec_message aside = {.role = REC_SYSTEM}; /* V4 */
    rec_message *message = &aside;
    di_status status = r->talk.version == DI_V4 ? DI_OK : rec_turns_add(t, REC_SYSTEM, &message, err);
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

static di_status read_spoken(rec_turns *t, bool user, const js_value *content, const rec_path *list, di_error *err)
{
    di_status status = DI_OK;
    if (js_kind_of(content) == JS_STRING) {
        rec_message *message;
        if (t->n_open > 0) {
            return rec_turns_before(t, err);
        }
        status = rec_turns_add(t, user ? REC_USER : REC_ASSISTANT, &message, err);
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
    return rec_turns_answer(t, content, list, err);
}

static di_status read_turn(rec_turns *t, const js_value *message, di_error *err)
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
        return rec_turns_before(t, err);
    }
    return role == 2 ? read_system(t, content, &list, err) : read_spoken(t, role == 0, content, &list, err);
}

di_status rec_messages_turns(rec_messages *x, di_error *err)
{
    const js_value *const messages = js_get(x->r->body, "messages");
    const rec_path list = {NULL, "messages", 0};
    rec_turns t = {.x = x};
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
        status = rec_turns_behind(&t, n - 1, err);
    }
    return status;
}
