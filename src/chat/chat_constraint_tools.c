/* chat_constraint_tools.c - tools on offer as a constraint: an answer and calls in the model's own form (structured_output.md 9).
 *
 * Also tools that are not strict are held to the form of a block, or pieces of one would leak into the answer; nobody asked for that, so
 * where it can't be done the answer goes free (`optional`). What was asked for - strict tools, a call that must be made, one call at most,
 * some of the tools only, a form of the answer - is an error instead. */
#include "chat/chat_constraint.h"

#include "core/arith.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define MARKER "\xEF\xBD\x9C" "DSML\xEF\xBD\x9C"

/* Whether the request wants one call at most, in the words of either API. */
static bool wants_one_call(const js_value *body)
{
    const js_value *const parallel = js_get(body, "parallel_tool_calls");
    const js_value *const disable = js_get(js_get(body, "tool_choice"), "disable_parallel_tool_use");
    return (js_kind_of(parallel) == JS_BOOL && !js_bool(parallel)) || js_bool(disable);
}

static void set_names(di_grammar_tools *t, di_prompt_version version)
{
    const bool old = version == DI_V4;
    t->marker = MARKER;
    t->block = old ? "tool_calls" : " calls";
    t->call = old ? "invoke" : " invoke";
    t->parameter = old ? "parameter" : " parameter";
    t->old_empty = old;
}

/* Names and schemas lie one behind the other in a buffer that must not move any more when they are pointed to. */
static di_status take_offers(chat_constraint *c, const rec_offer *offers, size_t n, di_error *err)
{
    di_grammar_tool *const tools = ar_calloc(n, sizeof *tools);
    if (tools == NULL) {
        return err_memory(err, "tools of a constraint", n * sizeof *tools);
    }
    c->tools.tools = tools;
    c->tools.n_tools = n;
    for (size_t i = 0; i < n; i++) {
        (void)buf_append(&c->words, offers[i].name, strlen(offers[i].name) + 1);
        const size_t begin = c->words.size;
        if (offers[i].parameters != NULL) {
            chat_put_json(&c->words, offers[i].parameters);
        }
        tools[i] = (di_grammar_tool){.n_parameters = c->words.size - begin, .strict = offers[i].strict};
    }
    if (c->words.failed) {
        return err_memory(err, "schemas of tools", c->words.size);
    }
    const char *word = c->words.data;
    for (size_t i = 0; i < n; i++) {
        tools[i].name = word;
        word += strlen(word) + 1;
        tools[i].parameters = tools[i].n_parameters > 0 ? word : NULL;
        word += tools[i].n_parameters;
    }
    return DI_OK;
}

static bool any_strict(const rec_offer *offers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (offers[i].strict) {
            return true;
        }
    }
    return false;
}

/* The constraint so far becomes that of the answer. */
static void combine(chat_constraint *c, const rec_offering *how, bool strict)
{
    c->tools.has_answer_kind = c->field != NULL;
    c->tools.answer_kind = c->kind;
    c->tools.answer = c->text.data != NULL ? c->text.data : "";
    c->tools.n_answer = c->text.size;
    c->options.closed = c->options.closed || strict;
    c->optional = c->field == NULL && !strict && !how->required && !how->narrowed && !c->tools.single;
    c->field = c->field != NULL ? c->field : "tools";
    c->kind = DI_GRAMMAR_TOOLS;
}

/* All offers of a request. */
static di_status list_offers(const di_request *request, rec_offering *how, rec_offer **out, size_t *n, di_error *err)
{
    *n = rec_request_offers(request, NULL, 0, how);
    *out = ar_calloc(*n > 0 ? *n : 1, sizeof **out);
    if (*out == NULL) {
        return err_memory(err, "tools", *n * sizeof **out);
    }
    (void)rec_request_offers(request, *out, *n, how);
    return DI_OK;
}

bool chat_constraint_tool_field(const di_request *request, size_t i, char *out, size_t capacity)
{
    rec_offering how;
    rec_offer *offers = NULL;
    size_t n;
    const bool found = list_offers(request, &how, &offers, &n, NULL) == DI_OK && i < n &&
                       rec_find_field(rec_request_body(request), offers[i].parameters, out, capacity);
    free(offers);
    return found;
}

di_status chat_constraint_offers(chat_constraint *c, const di_request *request, di_error *err)
{
    rec_offering how;
    rec_offer *offers = NULL;
    size_t n;
    di_status status = list_offers(request, &how, &offers, &n, err);
    if (status != DI_OK || (n == 0 && (!how.refused || c->field != NULL))) {
        goto out; /* a form of the answer has no place for calls */
    }
    c->tools.choice = how.required ? DI_TOOL_CHOICE_REQUIRED : how.refused ? DI_TOOL_CHOICE_NONE : DI_TOOL_CHOICE_AUTO;
    c->tools.opened = how.required;
    c->tools.single = wants_one_call(rec_request_body(request));
    set_names(&c->tools, di_request_version(request));
    status = n > 0 ? take_offers(c, offers, n, err) : DI_OK;
    if (status == DI_OK) {
        combine(c, &how, any_strict(offers, n));
    }
out:
    free(offers);
    return status;
}
