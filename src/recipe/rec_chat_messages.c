/* rec_chat_messages.c - messages of a Chat request: contents, images, calls and their results (recipe.md 3.3).
 *
 * Every call must be answered by the tool messages that follow it at once, in any order. */
#include "recipe/rec_chat.h"

#include <stdio.h>

typedef struct chat_reader {
    di_request *r;
    size_t index;      /* of the message being read */
    size_t n_messages;
    rec_names ids;     /* of the calls that wait for results */
    bool *answered;    /* [ids.n] */
    size_t n_waiting;
    bool in_answer;    /* the message is an assistant's */
    bool early_prefix; /* one that is to be continued, but is not the last */
} chat_reader;

/* ---- content ---- */

static di_status image_in_answer(di_error *err)
{
    return err_set(err, DI_E_ARGUMENT, "Image in assistant message is not supported");
}

static di_status read_image(chat_reader *x, const js_value *value, const rec_path *at, rec_content *out, di_error *err)
{
    const rec_path in = {at, "image_url", 0};
    const js_value *holder;
    di_image_detail detail;
    di_image_ref *image = NULL;
    rec_str url;
    char path[48];
    char long_path[80];
    di_status status = rec_get_object(value, at, "image_url", &holder, err);
    if (status == DI_OK && holder == NULL) {
        return rec_bad_form(at, "image_url", err, "missing field");
    }
    if (status == DI_OK) {
        status = rec_need_string(holder, &in, "url", &url, err);
    }
    if (status == DI_OK) {
        status = rec_read_detail(holder, &in, &detail, err);
    }
    if (status == DI_OK && x->r->talk.version == DI_V41) { /* V4 looks at no image */
        snprintf(path, sizeof path, ".messages[%zu]", x->index);
        snprintf(long_path, sizeof long_path, ".messages[%zu].image_url.url[%zu]", x->index, at->index);
        status = x->in_answer && url.size <= REC_MAX_URL ? image_in_answer(err)
                                                         : rec_image_url(x->r, url, detail, path, long_path, &image, err);
        if (status == DI_OK && x->in_answer) {
            status = image_in_answer(err);
        }
    }
    if (status == DI_OK && rec_add_image(x->r, out, image) == NULL) {
        status = rec_no_memory(x->r, err);
    }
    return status;
}

static di_status check_file(const chat_reader *x, bool has_data, bool has_id, di_error *err)
{
    if (has_data && has_id) {
        return err_set(err, DI_E_ARGUMENT, ".messages[%zu]: file cannot have both file_id and file_data", x->index);
    }
    if (has_id) {
        return err_set(err, DI_E_ARGUMENT, ".messages[%zu]: file_id is not supported. Pass the image as a base64 data url instead.",
                       x->index);
    }
    return has_data ? DI_OK : err_set(err, DI_E_ARGUMENT, ".messages[%zu]: file must have a file_id or file_data", x->index);
}

/* The fields stand beside `type`, as the official package has it, or in an object `file`, as OpenAI's clients send them. */
static di_status read_file(chat_reader *x, const js_value *value, const rec_path *at, rec_content *out, di_error *err)
{
    const js_value *holder;
    di_image_ref *image = NULL;
    rec_str data;
    rec_str text;
    bool has_data = false;
    bool has_id = false;
    char path[48];
    di_status status = rec_get_object(value, at, "file", &holder, err);
    holder = holder != NULL ? holder : value;
    if (status == DI_OK) {
        status = rec_get_string(holder, at, "file_data", &data, &has_data, err);
    }
    if (status == DI_OK) {
        status = rec_get_string(holder, at, "file_id", &text, &has_id, err);
    }
    if (status == DI_OK) {
        status = rec_get_string(holder, at, "filename", &text, NULL, err);
    }
    if (status == DI_OK && x->r->talk.version == DI_V41) {
        snprintf(path, sizeof path, ".messages[%zu]", x->index);
        status = check_file(x, has_data, has_id, err);
        if (status == DI_OK) {
            status = rec_image_file(x->r, data, path, &image, err);
        }
        if (status == DI_OK && x->in_answer) {
            status = image_in_answer(err);
        }
    }
    if (status == DI_OK && rec_add_image(x->r, out, image) == NULL) {
        status = rec_no_memory(x->r, err);
    }
    return status;
}

static di_status read_block(chat_reader *x, const js_value *value, const rec_path *at, rec_content *out, di_error *err)
{
    static const char *const types[] = {"text", "image_url", "file", NULL};
    rec_str text;
    int type = 0;
    if (js_kind_of(value) != JS_OBJECT) {
        return rec_bad_form(at, NULL, err, "invalid type: %s, expected an object", js_kind_name(js_kind_of(value)));
    }
    di_status status = rec_need_variant(value, at, "type", types, &type, err);
    if (status != DI_OK) {
        return status;
    }
    if (type == 1) {
        return read_image(x, value, at, out, err);
    }
    if (type == 2) {
        return read_file(x, value, at, out, err);
    }
    status = rec_need_string(value, at, "text", &text, err);
    if (status == DI_OK && rec_add_text(x->r, out, text) == NULL) {
        status = rec_no_memory(x->r, err);
    }
    return status;
}

/* A string, or blocks; no blocks are an empty text. */
static di_status read_content(chat_reader *x, const js_value *value, const rec_path *at, rec_content *out, di_error *err)
{
    const rec_path in = {at, "content", 0};
    const js_kind kind = js_kind_of(value);
    if (kind != JS_STRING && kind != JS_ARRAY) {
        return rec_bad_form(at, "content", err, "%s",
                            value == NULL ? "missing field" : "content should be a string or a list");
    }
    if (kind == JS_STRING || js_length(value) == 0) {
        return rec_add_text(x->r, out, rec_string(value)) != NULL ? DI_OK : rec_no_memory(x->r, err);
    }
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < js_length(value); i++) {
        const rec_path block = {&in, NULL, i};
        status = read_block(x, js_at(value, i), &block, out, err);
    }
    return status;
}

/* ---- calls and results ---- */

static di_status read_call(const js_value *value, const rec_path *at, rec_call *out, di_error *err)
{
    static const char *const types[] = {"function", NULL};
    const rec_path in = {at, "function", 0};
    const js_value *function;
    int type;
    if (js_kind_of(value) != JS_OBJECT) {
        return rec_bad_form(at, NULL, err, "invalid type: %s, expected an object", js_kind_name(js_kind_of(value)));
    }
    di_status status = rec_need_string(value, at, "id", &out->id, err);
    if (status == DI_OK) {
        status = rec_need_variant(value, at, "type", types, &type, err);
    }
    if (status == DI_OK) {
        status = rec_get_object(value, at, "function", &function, err);
    }
    if (status == DI_OK && function == NULL) {
        return rec_bad_form(at, "function", err, "missing field");
    }
    if (status == DI_OK) {
        status = rec_need_string(function, &in, "name", &out->name, err);
    }
    return status == DI_OK ? rec_need_string(function, &in, "arguments", &out->arguments, err) : status;
}

static di_status duplicate_id(const chat_reader *x, rec_str id, di_error *err)
{
    return err_set(err, DI_E_ARGUMENT, "Duplicate value for 'tool_call_id' of %s in message[%zu]", id.data, x->index);
}

static di_status read_calls(chat_reader *x, const js_value *list, const rec_path *at, rec_message *m, di_error *err)
{
    di_request *const r = x->r;
    const rec_path in = {at, "tool_calls", 0};
    const size_t n = js_length(list);
    if (n == 0) {
        return err_set(err, DI_E_ARGUMENT,
                       "Invalid 'messages[%zu].tool_calls': empty array. Expected an array with minimum length 1, but got an empty "
                       "array instead.",
                       x->index);
    }
    m->calls = arena_alloc(&r->memory, n, sizeof *m->calls);
    x->answered = arena_alloc(&r->memory, n, sizeof *x->answered);
    if (m->calls == NULL || x->answered == NULL || !rec_names_init(&x->ids, r, n)) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; i < n; i++) {
        const rec_path call = {&in, NULL, i};
        const di_status status = read_call(js_at(list, i), &call, &m->calls[i], err);
        if (status != DI_OK) {
            return status;
        }
        if (rec_names_add(&x->ids, m->calls[i].id) == SIZE_MAX) {
            return duplicate_id(x, m->calls[i].id, err);
        }
    }
    m->n_calls = n;
    x->n_waiting = n;
    return DI_OK;
}

static di_status insufficient(di_error *err)
{
    return err_set(err, DI_E_ARGUMENT,
                   "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
                   "(insufficient tool messages following tool_calls message)");
}

static di_status read_result(chat_reader *x, const js_value *value, const rec_path *at, di_error *err)
{
    rec_str id;
    di_status status = rec_need_string(value, at, "tool_call_id", &id, err);
    if (status != DI_OK) {
        return status;
    }
    if (x->n_waiting == 0) {
        return err_set(err, DI_E_ARGUMENT, "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'");
    }
    const size_t call = rec_names_find(&x->ids, id);
    if (call == SIZE_MAX) {
        return err_set(err, DI_E_ARGUMENT,
                       "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                       "'tool_call_id', The following tool_call_ids did not have response messages: %s",
                       id.data);
    }
    if (x->answered[call]) {
        return duplicate_id(x, id, err);
    }
    x->answered[call] = true;
    x->n_waiting--;
    rec_message *const m = rec_add_message(x->r, REC_TOOL);
    if (m == NULL) {
        return rec_no_memory(x->r, err);
    }
    m->call_id = id;
    return read_content(x, js_get(value, "content"), at, &m->content, err);
}

/* ---- roles ---- */

static di_status read_assistant(chat_reader *x, const js_value *value, const rec_path *at, di_error *err)
{
    const js_value *calls;
    const js_value *const content = js_get(value, "content");
    rec_message *const m = rec_add_message(x->r, REC_ASSISTANT);
    if (m == NULL) {
        return rec_no_memory(x->r, err);
    }
    di_status status = rec_get_array(value, at, "tool_calls", &calls, err);
    if (status == DI_OK) {
        status = rec_get_string(value, at, "reasoning_content", &m->reasoning, &m->has_reasoning, err);
    }
    if (status == DI_OK) {
        status = rec_get_bool(value, at, "prefix", &m->prefix, NULL, err);
    }
    if (status == DI_OK && js_kind_of(content) != JS_NULL) {
        x->in_answer = true;
        status = read_content(x, content, at, &m->content, err);
        x->in_answer = false;
    }
    if (status == DI_OK && calls != NULL) {
        status = read_calls(x, calls, at, m, err);
    }
    if (status == DI_OK && calls == NULL && js_kind_of(content) == JS_NULL) {
        return err_set(err, DI_E_ARGUMENT, "Invalid assistant message: content or tool_calls must be set");
    }
    x->early_prefix = x->early_prefix || (m->prefix && x->index + 1 != x->n_messages);
    return status;
}

static di_status read_plain(chat_reader *x, rec_role role, const js_value *value, const rec_path *at, di_error *err)
{
    const js_value *const content = js_get(value, "content");
    if (role == REC_REMINDER && content != NULL && js_kind_of(content) != JS_STRING) {
        return rec_bad_form(at, "content", err, "invalid type: %s, expected a string", js_kind_name(js_kind_of(content)));
    }
    rec_message *const m = rec_add_message(x->r, role);
    return m != NULL ? read_content(x, content, at, &m->content, err) : rec_no_memory(x->r, err);
}

/* An empty system text is no message. */
static di_status read_system(chat_reader *x, const js_value *value, const rec_path *at, di_error *err)
{
    rec_content content = {NULL, NULL};
    const di_status status = read_content(x, js_get(value, "content"), at, &content, err);
    if (status != DI_OK || rec_content_empty(&content)) {
        return status;
    }
    rec_message *const m = rec_add_message(x->r, REC_SYSTEM);
    if (m == NULL) {
        return rec_no_memory(x->r, err);
    }
    m->content = content;
    return DI_OK;
}

static di_status read_message(chat_reader *x, const js_value *value, const rec_path *at, di_error *err)
{
    /* `developer` is what OpenAI's clients send for `system`. */
    static const char *const roles[] = {"system", "user", "assistant", "tool", "latest_reminder", "developer", NULL};
    rec_str unused;
    int role = 0;
    if (js_kind_of(value) != JS_OBJECT) {
        return rec_bad_form(at, NULL, err, "invalid type: %s, expected an object", js_kind_name(js_kind_of(value)));
    }
    di_status status = rec_need_variant(value, at, "role", roles, &role, err);
    if (status != DI_OK) {
        return status;
    }
    if (role == REC_TOOL) {
        return read_result(x, value, at, err);
    }
    if (x->n_waiting > 0) {
        return insufficient(err);
    }
    status = rec_get_string(value, at, "name", &unused, NULL, err);
    if (status != DI_OK) {
        return status;
    }
    switch (role) {
    case REC_USER:
    case REC_REMINDER:
        return read_plain(x, (rec_role)role, value, at, err);
    case REC_ASSISTANT:
        return read_assistant(x, value, at, err);
    default:
        return read_system(x, value, at, err);
    }
}

di_status rec_chat_messages(di_request *r, di_error *err)
{
    const rec_path at = {NULL, "messages", 0};
    chat_reader x = {.r = r};
    const js_value *list;
    di_status status = rec_get_array(r->body, NULL, "messages", &list, err);
    if (status == DI_OK && list == NULL) {
        return rec_bad_form(NULL, "messages", err, "missing field");
    }
    x.n_messages = js_length(list);
    if (status == DI_OK && x.n_messages == 0) {
        return err_set(err, DI_E_ARGUMENT, "Empty input messages");
    }
    for (; status == DI_OK && x.index < x.n_messages; x.index++) {
        const rec_path message = {&at, NULL, x.index};
        status = read_message(&x, js_at(list, x.index), &message, err);
    }
    if (status == DI_OK && x.n_waiting > 0) {
        return insufficient(err);
    }
    if (status == DI_OK) {
        status = rec_check_reasoning(r, "reasoning_content", err);
    }
    if (status == DI_OK && x.early_prefix) {
        return err_set(err, DI_E_ARGUMENT,
                       "Invalid completion message: prefix set true with message which is not final message or message role is not "
                       "assistant");
    }
    return status;
}
