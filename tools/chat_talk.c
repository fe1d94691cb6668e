/* chat_talk.c - see chat_talk.h. */
#include "chat_talk.h"

#include "core/core.h"

#include <inttypes.h>
#include <string.h>

#define MAX_MESSAGE_BYTES ((size_t)1 << 30)
#define MAX_TOOLS_BYTES ((size_t)64 << 20)
#define MODEL_NAME "DeepSeek-V4.1-Flash"

void chat_talk_fini(chat_talk *talk)
{
    chat_talk_cut(talk, 0);
    free(talk->messages);
    free(talk->system);
    free(talk->tools);
}

void chat_talk_cut(chat_talk *talk, size_t n_messages)
{
    while (talk->n_messages > n_messages) {
        free(talk->messages[--talk->n_messages]);
    }
}

/* --- Settings -------------------------------------------------------------------------------------------------------------- */

di_status chat_talk_set_system(chat_talk *talk, const char *text, di_error *err)
{
    char *copy = NULL;
    if (text != NULL && text[0] != '\0') {
        copy = strdup(text);
        if (copy == NULL) {
            return err_memory(err, "system prompt", strlen(text));
        }
    }
    free(talk->system);
    talk->system = copy;
    return DI_OK;
}

di_status chat_talk_set_tools(chat_talk *talk, const char *file, di_error *err)
{
    char *text = NULL;
    size_t n;
    js_doc *doc = NULL;
    if (file == NULL || file[0] == '\0') {
        free(talk->tools);
        talk->tools = NULL;
        return DI_OK;
    }
    di_status status = file_read(file, MAX_TOOLS_BYTES, &text, &n, err);
    if (status == DI_OK) {
        status = js_parse(text, n, file, NULL, &doc, err);
    }
    if (status == DI_OK && js_kind_of(js_root(doc)) != JS_ARRAY) {
        status = err_set(err, DI_E_FORMAT, "%s: expected a JSON array of tools, as in the field `tools` of a Chat request", file);
    }
    js_free(doc);
    if (status != DI_OK) {
        free(text);
        return status;
    }
    free(talk->tools);
    talk->tools = text;
    return DI_OK;
}

bool chat_talk_set_thinking(chat_talk *talk, const char *word)
{
    static const char *const efforts[] = {"low", "high", "max"};
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strcmp(word, efforts[i]) == 0) {
            talk->think = true;
            talk->effort = efforts[i];
            return true;
        }
    }
    if (strcmp(word, "on") != 0 && strcmp(word, "off") != 0) {
        return false;
    }
    talk->think = strcmp(word, "on") == 0;
    talk->effort = NULL;
    return true;
}

/* --- Messages -------------------------------------------------------------------------------------------------------------- */

/* Takes the message over, also on failure. */
static di_status add(chat_talk *talk, buf *message, di_error *err)
{
    buf_puts(message, "}");
    if (message->failed) {
        const size_t size = message->size;
        buf_fini(message);
        return err_memory(err, "message", size);
    }
    if (talk->n_messages == talk->capacity) {
        const size_t capacity = talk->capacity > 0 ? 2 * talk->capacity : 16;
        char **messages = realloc(talk->messages, capacity * sizeof *messages);
        if (messages == NULL) {
            buf_fini(message);
            return err_memory(err, "messages", capacity * sizeof *messages);
        }
        talk->messages = messages;
        talk->capacity = capacity;
    }
    talk->messages[talk->n_messages++] = message->data;
    return DI_OK;
}

di_status chat_talk_add_user(chat_talk *talk, const char *text, size_t n, di_error *err)
{
    buf message;
    buf_init(&message, MAX_MESSAGE_BYTES);
    buf_puts(&message, "{\"role\":\"user\",\"content\":");
    buf_json_string(&message, text, n);
    return add(talk, &message, err);
}

void chat_put_answer(buf *out, const chat_answer *answer)
{
    buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    buf_json_string(out, chat_text(&answer->text), answer->text.size);
    if (answer->reasoning.size > 0) {
        buf_puts(out, ",\"reasoning_content\":");
        buf_json_string(out, chat_text(&answer->reasoning), answer->reasoning.size);
    }
    for (size_t i = 0; i < answer->n_calls; i++) {
        const chat_call *call = &answer->calls[i];
        buf_puts(out, i == 0 ? ",\"tool_calls\":[" : ",");
        buf_printf(out, "{\"id\":\"call_%" PRId64 "\",\"type\":\"function\",\"function\":{\"name\":", call->number);
        buf_json_string(out, call->name, strlen(call->name));
        buf_puts(out, ",\"arguments\":");
        buf_json_string(out, chat_text(&call->arguments), call->arguments.size);
        buf_puts(out, i + 1 == answer->n_calls ? "}}]" : "}}");
    }
}

di_status chat_talk_add_answer(chat_talk *talk, chat_answer *answer, di_error *err)
{
    buf message;
    buf_init(&message, MAX_MESSAGE_BYTES);
    for (size_t i = 0; i < answer->n_calls; i++) {
        answer->calls[i].number = talk->n_calls++;
    }
    chat_put_answer(&message, answer);
    return add(talk, &message, err);
}

di_status chat_talk_add_result(chat_talk *talk, const chat_call *call, const char *text, size_t n, di_error *err)
{
    buf message;
    buf_init(&message, MAX_MESSAGE_BYTES);
    buf_printf(&message, "{\"role\":\"tool\",\"tool_call_id\":\"call_%" PRId64 "\",\"content\":", call->number);
    buf_json_string(&message, text, n);
    return add(talk, &message, err);
}

/* --- The body ---------------------------------------------------------------------------------------------------------------- */

di_status chat_talk_body(const chat_talk *talk, buf *out, di_error *err)
{
    buf_clear(out);
    buf_printf(out, "{\"model\":\"" MODEL_NAME "\",\"thinking\":{\"type\":\"%s\"}", talk->think ? "enabled" : "disabled");
    if (talk->think && talk->effort != NULL) {
        buf_printf(out, ",\"reasoning_effort\":\"%s\"", talk->effort);
    }
    for (size_t i = 0; i < talk->n_stops; i++) {
        buf_puts(out, i == 0 ? ",\"stop\":[" : ",");
        buf_json_string(out, talk->stops[i], strlen(talk->stops[i]));
        buf_puts(out, i + 1 == talk->n_stops ? "]" : "");
    }
    if (talk->tools != NULL) {
        buf_puts(out, ",\"tools\":");
        buf_puts(out, talk->tools);
    }
    buf_puts(out, ",\"messages\":[");
    if (talk->system != NULL) {
        buf_puts(out, "{\"role\":\"system\",\"content\":");
        buf_json_string(out, talk->system, strlen(talk->system));
        buf_puts(out, "}");
    }
    for (size_t i = 0; i < talk->n_messages; i++) {
        buf_puts(out, i > 0 || talk->system != NULL ? "," : "");
        buf_puts(out, talk->messages[i]);
    }
    buf_puts(out, "]}");
    return out->failed ? err_memory(err, "request body", out->size) : DI_OK;
}
