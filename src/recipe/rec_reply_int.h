/* rec_reply_int.h - inside of the replies: output pieces to the events and bodies of the three APIs (recipe.md 5).
 *
 *   di_output pieces -> items (rec_reply_items.c): runs of reasoning, of text, and calls, with all their text
 *     -> the protocol's writer: what to say when an item begins, when it ends, and at the end
 *     -> the queue (rec_reply_events.c): server-sent-event frames, one behind the other in one buffer
 *
 * Text that comes in is the hot path: its frame's head and tail are made once for each item, and only the text between them is
 * written for each token. Text that meets an event of its own item which nobody has taken yet is put into that event, so that a
 * caller who only wants the body pays for the text alone.
 *
 * Writers report nothing: a buffer that has failed says so at the end of the call, and the reply is then broken. */
#ifndef RECIPE_REC_REPLY_INT_H
#define RECIPE_REC_REPLY_INT_H

#include "recipe/rec_custom_input.h"
#include "recipe/rec_int.h"

#define REC_CALL_ID_BYTES 48 /* "call_", a number of at most ten digits, "_ET_", 24 characters */

typedef enum rec_item_kind { REC_OUT_REASONING, REC_OUT_TEXT, REC_OUT_CALL, REC_OUT_CUSTOM, REC_OUT_SEARCH } rec_item_kind;

/* One run of output. Only the last item of a choice is open. */
typedef struct rec_reply_item {
    rec_item_kind kind;
    size_t index;         /* among the items of its choice */
    int32_t call;         /* number of the call, counted from 0 */
    const rec_tool *tool; /* that is called; NULL: not declared, or nothing is known of tools */
    char call_id[REC_CALL_ID_BYTES];
    buf name;             /* of the function as the model wrote it */
    buf text;             /* reasoning, text, arguments or input */
    buf logprobs;         /* JSON entries with commas between them */
    bool incomplete;      /* closed by a finish that cut it off */
    bool commentary;      /* text with a call behind it */
} rec_reply_item;

/* The frame of the text events of the open item. */
typedef struct rec_delta {
    buf head;              /* up to the text */
    buf tail;              /* behind it */
    size_t data_at;        /* where the JSON begins in head */
    const char *name;      /* of the event */
    size_t logprobs_at;    /* in tail: the value that log-probabilities replace ... */
    size_t no_logprobs;    /* ... and its length; 0: there is no such place */
    const char *around[2]; /* what stands around the entries instead */
    bool numbered;         /* behind the tail: the sequence number and "}" */
} rec_delta;

typedef struct rec_reply_choice {
    int32_t index;
    di_output *output;
    rec_reply_item *items; /* [n_items] */
    size_t n_items;
    size_t capacity;
    int32_t n_calls;
    bool reasoned;         /* some reasoning has come */
    bool open;             /* the last item is */
    rec_delta delta;       /* of the open item */
    rec_custom_input input; /* of an open custom call */
    di_finish finish;
    rec_str stop;          /* the stop string, borrowed from the output */
} rec_reply_choice;

typedef struct rec_event {
    const char *name;
    size_t at; /* of the data in `frames` */
    size_t size;
} rec_event;

typedef struct rec_queue {
    buf frames;
    rec_event *events; /* [n] */
    size_t n;
    size_t capacity;
    size_t next;       /* the first that has not been taken */
    size_t begun;      /* where the data of the event begins that is being written */
    /* The last event takes more text of this item; NULL: it doesn't. */
    const rec_reply_choice *growing;
    size_t quote_at;   /* the quote behind its text */
    int64_t number;    /* its sequence number */
} rec_queue;

struct rec_writer;

struct di_reply {
    const di_recipe *recipe;
    const di_request *request; /* NULL: nothing is echoed */
    const struct rec_writer *writer;
    di_protocol protocol;
    bool thinking;
    bool usage;         /* Chat streams show it */
    bool started;
    bool broken;        /* memory ended in the middle of a call */
    bool failed;        /* ended with an error event */
    char *id;
    char *fingerprint;  /* NULL = null */
    char *model;
    uint64_t seed;      /* of call ids */
    int64_t created;
    int64_t now;
    int64_t prompt_tokens;
    int64_t cached_tokens;
    rec_reply_choice *choices; /* [n_choices] */
    int32_t n_choices;
    int32_t n_finished;
    uint32_t *by_name;  /* [request->n_declared] sorted; NULL until the first call needs it */
    rec_queue queue;
    int64_t sequence;   /* Responses: of the next event */
    buf body;
};

/* One protocol. All write to `reply->queue` through the functions below. */
typedef struct rec_writer {
    void (*start)(di_reply *reply);                          /* before everything else */
    void (*open)(di_reply *reply, rec_reply_choice *choice); /* the last item begins; prepares choice->delta */
    void (*close)(di_reply *reply, rec_reply_choice *choice);
    void (*finish)(di_reply *reply, rec_reply_choice *choice); /* the items are closed */
    void (*fail)(di_reply *reply, int http_status, const char *message);
    void (*body)(di_reply *reply, buf *out);
} rec_writer;

extern const rec_writer rec_chat_writer;
extern const rec_writer rec_responses_writer;
extern const rec_writer rec_messages_writer;

/* ---- queue (rec_reply_events.c) ---- */

/* Begins a frame; the data is then appended to the buffer that is returned. */
buf *rec_event_begin(di_reply *reply, const char *name);
void rec_event_end(di_reply *reply, const char *name);

/* A new frame for text: head and tail are empty, the beginning of the frame is written. */
void rec_delta_begin(rec_delta *delta, const char *name);
/* Text, and the log-probabilities behind it, as the frame of the open item says. */
void rec_delta_put(di_reply *reply, rec_reply_choice *choice, const char *text, size_t size, rec_str logprobs);

void rec_queue_trim(rec_queue *queue); /* forgets what has been taken */
void rec_queue_clear(rec_queue *queue);
void rec_queue_fini(rec_queue *queue);

/* ---- items (rec_reply_items.c) ---- */

rec_reply_item *rec_last_item(const rec_reply_choice *choice);
/* A run of reasoning or text begins, as Messages does before there is any. */
void rec_item_open(di_reply *reply, rec_reply_choice *choice, rec_item_kind kind);
/* What the output has given. */
void rec_take_pieces(di_reply *reply, rec_reply_choice *choice);
void rec_choice_fini(rec_reply_choice *choice);
bool rec_choice_failed(const rec_reply_choice *choice); /* memory ended in one of its buffers */

/* ---- for all writers ---- */

void rec_put_int(buf *out, int64_t value);
void rec_put_any(buf *out, const char *text);    /* JSON string of any bytes */
void rec_put_inside(buf *out, const char *text); /* the same without its quotes */
void rec_put_buf(buf *out, const buf *text);     /* JSON string of UTF-8 */
void rec_put_error(di_protocol protocol, int http_status, const char *message, buf *out); /* the protocol's error object */
/* The arguments of a call as a JSON object, {} when they are none (rec_reply_items.c). */
void rec_put_object(buf *out, const buf *arguments);
int64_t rec_fresh_tokens(const di_reply *reply); /* of the prompt, not cached */

/* ---- Responses (rec_echo.c): what the response repeats of its request ---- */

void rec_echo_front(const di_reply *reply, buf *out); /* "instructions" ... "moderation" */
void rec_echo_back(const di_reply *reply, buf *out);  /* "parallel_tool_calls" ... "truncation" */
void rec_echo_user(const di_reply *reply, buf *out);  /* the value of "user" */

#endif
