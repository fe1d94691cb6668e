/* reply_gather.h - what a client puts together from the events of a reply, and what the whole response says, in one form; both check on
 * their way that indices and sequence numbers have no gaps and that events which repeat a text repeat it whole. */
#ifndef TESTS_RECIPE_REPLY_GATHER_H
#define TESTS_RECIPE_REPLY_GATHER_H

#include "out_support.h"

enum { GATHER_CHOICES = 3 };

typedef struct gathered {
    out_result of[GATHER_CHOICES]; /* `stop` holds how it ended, in the protocol's words */
    bool failed;                   /* an error event */
    int64_t number;                /* Responses: of the next event */
    int64_t block;                 /* Messages: the open one, or the one to come */
    char *final;                   /* Responses: the last response object, compact */
} gathered;

void gathered_init(gathered *g);
void gathered_fini(gathered *g);

void gather_event(gathered *g, di_protocol protocol, const di_event *event);
void gather_body(gathered *g, di_protocol protocol, const char *body, size_t n);

#endif
