/* chat_constraint.h - what a request says about the form of its answer, in whatever words (structured_output.md 2): one constraint at most.
 *
 *   chat_constraint_request   a conversation: response_format and its like, tools and the choice among them, aliases
 *   chat_constraint_body      a completion: aliases only
 *
 * What stands here is read, not compiled (chat_compile.h), and borrows nothing of the request.
 *
 * Owner: the call, then of what a compilation reads the compiler. Thread: the preparation's, then the compiler's. */
#ifndef CHAT_CHAT_CONSTRAINT_H
#define CHAT_CHAT_CONSTRAINT_H

#include "core/buf.h"
#include "core/json.h"

#include "recipe/recipe.h"

#include <deepinfer/grammar.h>

typedef struct chat_constraint {
    const char *field;          /* of the request that asks for it, a literal; NULL = none does */
    di_grammar_kind kind;       /* of `text`; DI_GRAMMAR_TOOLS: of `tools` */
    buf text;
    buf pattern;                /* of white space */
    di_grammar_options options; /* whitespace_pattern is `pattern` */
    bool waits;                 /* it begins behind the reasoning */
    bool closes;                /* the answer ends in time */
    bool optional;              /* nobody asked for it: where it can't be made, the answer is free, with a warning */
    bool jumps;                 /* text that is forced needs no passes of its own */
    di_grammar_tools tools;     /* [n_tools] owned list; the answer is `text` of answer_kind */
    buf words;                  /* names and schemas of the tools */
    buf notes;                  /* warnings, lines */
    rec_refusal refusal;        /* of the request, set where it is refused, next to the message */
} chat_constraint;

void chat_constraint_init(chat_constraint *c);
void chat_constraint_fini(chat_constraint *c);

/* `exact`: as DeepSeek's own service, a schema of the response format is a wish. Errors: DI_E_ARGUMENT (a field of a wrong form, or two
 * constraints: the message names both), DI_E_UNSUPPORTED, DI_E_MEMORY. */
di_status chat_constraint_request(chat_constraint *c, const di_request *request, bool exact, di_error *err);
di_status chat_constraint_body(chat_constraint *c, const js_value *body, di_error *err);

/* Everything that a compiled grammar depends on, as bytes. False: no memory. */
bool chat_constraint_key(const chat_constraint *c, buf *out);

/* Gives what a compilation reads to an empty one. What the answer needs later stays. */
void chat_constraint_give(chat_constraint *from, chat_constraint *to);

/* It was not compiled: field, code and place of the fault become the refusal, and the field the beginning of the message. `request` is
 * the one of a conversation, or NULL. */
void chat_constraint_refused(chat_constraint *c, const di_request *request, const di_grammar_fault *fault, di_error *err);

/* ---- parts ---- */

/* Refuses the request for a field, "<param>: <text>". Returns DI_E_ARGUMENT. */
di_status chat_refuse(chat_constraint *c, const char *param, const char *code, di_error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The one constraint from now on. `value`: a string as it is, anything else as JSON text; NULL = no text. */
di_status chat_constraint_claim(chat_constraint *c, const char *field, di_grammar_kind kind, const js_value *value, di_error *err);
/* Numbers keep their spelling. */
void chat_put_json(buf *out, const js_value *value);
/* Fields of other servers, and ours, of any body (chat_constraint_fields.c). */
di_status chat_constraint_fields(chat_constraint *c, const js_value *body, di_error *err);
/* The field that holds the schema of an offered tool. False: there is no such tool. */
bool chat_constraint_tool_field(const di_request *request, size_t i, char *out, size_t capacity);
/* Tools on offer (chat_constraint_tools.c); last, for an answer may be the constraint so far. */
di_status chat_constraint_offers(chat_constraint *c, const di_request *request, di_error *err);

#endif
