/* reply_support.h - what the tests of replies share: events brought into a form in which two streams can be compared, as the README
 * of the vectors says: clocks are 0, call ids "call_NN_#", sequence numbers checked and left out, neighbouring deltas of one kind
 * and item joined. */
#ifndef TESTS_RECIPE_REPLY_SUPPORT_H
#define TESTS_RECIPE_REPLY_SUPPORT_H

#include "out_support.h"

typedef struct reply_entry { /* an event, or neighbouring deltas */
    char *name;     /* "" for Chat */
    buf form;       /* JSON text without what varies; of a delta without its text */
    bool is_delta;
    buf text;       /* of a delta */
    buf logprobs;   /* of a delta: its entries, one behind the other */
} reply_entry;

typedef struct reply_list {
    reply_entry *entries; /* [n] */
    size_t n;
    size_t capacity;
    int64_t next_number;  /* of a Responses event */
    bool lenient;         /* text cut in a closing marker loses it; see reply_normal */
} reply_list;

void reply_list_free(reply_list *list);

/* One more event; name may be NULL. Empty deltas are left out. */
void reply_add(reply_list *list, const char *name, const char *data, size_t size);
/* All events that the reply has queued. */
void reply_drain(reply_list *list, di_reply *reply);
void reply_expect_same(const char *id, const reply_list *got, const reply_list *expected);

/* A body in the same form, malloc'ed. */
char *reply_normal(const char *data, size_t size, bool lenient);

#endif
