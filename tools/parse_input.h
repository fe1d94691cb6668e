/* parse_input.h - the input of `parse`: lines or text into one output parser or one reply.
 *
 * A line is one JSON value, taken and answered before the next is read, so that the command works inside a pipe:
 *   "text"                          a piece of text, one token
 *   [19923, 14]                     ids
 *   {"text":"..."}, {"ids":[5],"logprobs":[[-0.2,[[5,-0.2],[7,-3]]]]}
 *   {"ready":[11,4]}                tokens of the prompt, and how many of them were cached; before the first piece
 *   {"finish":"stop"}               also length and content_filter; a missing one is a generation that broke off
 * A "choice" in an object says which of several answers it belongs to. */
#ifndef TOOLS_PARSE_INPUT_H
#define TOOLS_PARSE_INPUT_H

#include <deepinfer/recipe.h>

typedef struct parse_sink {
    const di_request *request; /* NULL without one */
    bool has_tokenizer;
    di_reply *reply;           /* exactly one of these two */
    di_output *output;
    int32_t n_choices;
    bool started;
    di_status (*drain)(void *user, di_error *err); /* called after each line or piece */
    void *user;
} parse_sink;

/* Both read standard input to its end. Errors: DI_E_FORMAT with the line's number, DI_E_IO, those of pushing and of drain. */
di_status parse_lines(parse_sink *s, di_error *err);
di_status parse_text(parse_sink *s, di_error *err);

/* No effect on an answer that has ended. */
di_status parse_finish(parse_sink *s, int32_t choice, di_finish reason, di_error *err);

/* "stop", "length" ... */
const char *parse_finish_name(di_finish finish);

#endif
