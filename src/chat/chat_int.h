/* chat_int.h - inside of a service (<deepinfer/chat.h>): the way of a call and who owns what on it.
 *
 *   di_service_submit                     any thread                        chat_service.c, chat_call.c
 *     -> preparation: JSON, prompt, ids   one of the preparation threads    chat_prepare.c, chat_tokens.c, chat_completions.c
 *     -> compiler, if its answer has a form to keep that is new             chat_constraint.c, chat_compile.c
 *     -> link: commands                   bounded work a step
 *     -> engine: submit, step, events     the engine thread                 chat_engine.c
 *     -> link: events                     one batch a step
 *     -> output: tokens to frames         the output thread                 chat_output.c, chat_reply.c, chat_completions_reply.c
 *     -> di_call_read, di_call_wait       any thread                        chat_call_public.c
 *
 * A call is held by references: one of the user, one of the way above (wherever on it the call is), one while it stands in the list of
 * calls with something cancelled. So nobody waits for anybody to let go of a call, and no thread touches one that is gone.
 *
 * Locks: `cancelling` of the service > `calls` of it, or `mutex` of a call, or `mutex` of the link. All others are taken alone: `queue`
 * of the preparation, `shown` of the engine; `wake_mutex` of a call, under which the user's function runs. Nothing is allocated, parsed or
 * written to under a lock but for growing a buffer.
 */
#ifndef CHAT_CHAT_INT_H
#define CHAT_CHAT_INT_H

#include "chat/chat_constraint.h"
#include "core/core.h"

#include <deepinfer/chat.h>

#include <pthread.h>
#include <stdatomic.h>

#define CHAT_MAX_ID_BYTES 128
#define CHAT_MAX_CACHE_BYTES 1024
#define CHAT_MAX_CHOICES 1024     /* of one call: prompts of a completion times n */
#define CHAT_COMMANDS_A_STEP 64   /* taken between two steps: a burst of submits must not hold up the tokens of others */
#define CHAT_EVENTS_AHEAD 16384   /* with more of them waiting for the output thread the engine pauses */
#define CHAT_MAX_PREPARE_THREADS 64

typedef struct chat_task chat_task;
typedef struct chat_engine chat_engine;
typedef struct chat_output chat_output;
typedef struct chat_metrics chat_metrics;
typedef struct chat_compiler chat_compiler;

/* --- Writers ----------------------------------------------------------------------------------------------------------------- */

/* What makes the words of an API out of tokens: di_reply (chat_reply.c), or the writer of completions. Belongs to the preparation
 * thread that made it, then to the output thread. Choices count over all prompts of the call. */
typedef struct chat_writer {
    /* Once for each task, before its tokens. */
    di_status (*ready)(void *writer, int64_t prompt_tokens, int64_t cached_tokens, di_error *err);
    di_status (*push)(void *writer, int32_t choice, const di_token_logprobs *token, bool logprobs, di_error *err);
    di_status (*finish)(void *writer, int32_t choice, di_finish reason, di_error *err);
    di_finish (*finished)(const void *writer, int32_t choice);
    di_status (*fail)(void *writer, int http_status, const char *message, di_error *err);
    di_status (*frames)(void *writer, const char **out, size_t *n, di_error *err); /* what is new, as server-sent events */
    di_status (*body)(void *writer, const char **out, size_t *n, di_error *err);
    void (*usage)(const void *writer, di_usage *out);
    void (*free)(void *writer);
} chat_writer;

/* --- Calls --------------------------------------------------------------------------------------------------------------------- */

typedef enum chat_cancel {
    CHAT_NOT_CANCELLED,
    CHAT_CANCEL_USER,     /* di_call_cancel, di_call_free */
    CHAT_CANCEL_SHUTDOWN, /* di_service_cancel_all, di_service_close */
    CHAT_CANCEL_UNREAD    /* output beyond max_unread_bytes */
} chat_cancel;

/* Why a call ends without its answer. Zero: it does not. */
typedef struct chat_failure {
    int http_status;
    int32_t retry_after_s;
    di_status code;
    char *message; /* owned; NULL: there was no memory for it, chat_failure_text has a general one */
    rec_refusal refusal; /* of a body that is refused: what its message says, for programs */
} chat_failure;

typedef struct chat_choice {
    _Atomic bool cancel; /* set by the output thread (a stop string), read by the engine thread */
    bool done;           /* output: it has finished */
    int64_t last_token_at;
} chat_choice;

/* One prompt and its choices: one task of the scheduler. */
struct chat_task {
    di_call *call;
    int32_t *prompt;      /* [n_prompt] owned; freed once the scheduler has a copy */
    size_t n_prompt;
    int32_t first_choice; /* among those of the call */
    di_task *task;        /* engine: NULL before and after it runs */
    int32_t n_live;       /* engine: choices that have not ended */
};

typedef enum chat_command_kind { CHAT_SUBMIT, CHAT_SET_TENANT, CHAT_PIN_CACHE, CHAT_PURGE_CACHE } chat_command_kind;

typedef struct chat_command {
    struct chat_command *next;
    chat_command_kind kind;
    di_call *call;         /* of SUBMIT; the command lies in it */
    di_tenant_state state; /* of SET_TENANT; from here on the command is a block of its own with the name behind it */
    bool pinned;           /* of PIN_CACHE */
    const char *name;      /* of PURGE_CACHE NULL = all tenants */
} chat_command;

struct di_call {
    di_service *service;
    _Atomic int32_t refs;
    /* Constant since the submit. */
    di_route route;
    int32_t priority;
    char *id;     /* lies behind the struct, as do the tenant and the text about the cache */
    char *tenant;
    char *cache_text;
    int64_t queue_deadline; /* ns of CLOCK_MONOTONIC; 0 = none */
    int64_t deadline;
    int64_t created; /* Unix seconds */
    di_call *next_of_all; /* service.calls */
    di_call *previous_of_all;
    di_call *next_cancelled; /* of di_service_cancel_all */
    _Atomic int cancel; /* chat_cancel */

    /* Of the preparation, later constant but for what the structs say. */
    di_call *next_to_prepare;
    char *body; /* [n_body] owned, freed when it was read */
    size_t n_body;
    di_request *request;
    const chat_writer *writer_fns;
    void *writer;
    void *parameters; /* of a completion: what the sampling borrows from; freed with free() */
    bool stream;
    bool thinking;
    bool logprobs;
    di_sampling sampling;
    di_verify verify;
    int32_t choices_a_task;
    int64_t max_tokens;
    di_task_cache cache;
    chat_task *tasks;     /* [n_tasks] */
    size_t n_tasks;
    chat_choice *choices; /* [n_choices] */
    int32_t n_choices;
    int64_t n_prompt_tokens; /* over all tasks */
    chat_constraint constraint;
    di_grammar *grammar;  /* a reference; NULL = free */
    char *warnings;       /* one line; set before anything is public; freed with the call */

    /* Link. */
    chat_command submit;
    di_call *next_attention; /* link.mutex */
    bool in_attention;       /* link.mutex */
    di_call *next_lost;      /* link.mutex */

    /* Of the engine thread. */
    int32_t n_live; /* choices that the scheduler has */
    bool is_lost;   /* an event of it found no memory: it ends as a failure */
    chat_failure failure; /* set before the event that ends the call, then the output thread's */

    /* Of the thread that has the call now: preparation, then output. */
    di_call_info draft;   /* what the next chat_publish makes public */
    buf staged;           /* output for it */
    di_call *next_touched;
    bool touched;
    bool wakes;           /* the draft has something to wake for */
    bool ended;
    bool is_public;       /* its end */
    bool is_left;         /* by the engine: nothing more comes */
    int32_t n_finished;   /* choices */

    /* Shared. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t n_waiters;
    di_call_info info;
    buf back;             /* output that nobody has taken yet */

    /* Of the reader. */
    buf front;
    size_t front_at;

    pthread_mutex_t wake_mutex; /* held while wake runs */
    void (*wake)(void *user);   /* NULL once freed */
    void *wake_user;
};

/* Errors: DI_E_ARGUMENT, DI_E_MEMORY, DI_E_IO (no random numbers). The call has the references of the user and of the way. */
di_status chat_call_new(di_service *s, const di_call_options *options, di_call **out, di_error *err);
void chat_call_get(di_call *c);
bool chat_call_try_get(di_call *c); /* false: it is about to be destroyed */
void chat_call_put(di_call *c);
void chat_call_discard(di_call *c); /* one that the service has not taken */
/* Cancels it unless it was before. The caller has a reference. */
void chat_call_cancel(di_call *c, chat_cancel reason);
static inline chat_cancel chat_call_cancelled(const di_call *c) { return (chat_cancel)atomic_load(&c->cancel); }

/* When a timeout from now on is over. 0 stays 0; what is further away than the clock counts is no limit. */
int64_t chat_deadline(int64_t now, int64_t timeout_ms);

typedef enum chat_published {
    CHAT_PUBLISHED,
    CHAT_TOO_MUCH,  /* of a stream more than max_unread_bytes would be unread ... */
    CHAT_NO_MEMORY  /* ... in both cases nothing was made public, and the staged output is gone */
} chat_published;

/* Makes draft and staged output public, and wakes. Without staged output it always succeeds. Thread that has the call. */
chat_published chat_publish(di_call *c);

/* Three ways to end a call in the draft; chat_publish follows. With a failure: as an error body, or in a stream that has begun as its last
 * event; *failure is used up. As its cancellation says. With what is staged. */
void chat_end_failed(di_call *c, chat_failure *failure);
void chat_end_cancelled(di_call *c);
void chat_end(di_call *c);
/* Publishes the end, and leaves. Behind a preparation. */
void chat_finish(di_call *c);
/* Behind the end: frees what only the way needed, and gives up its reference. */
void chat_leave(di_call *c);

/* --- Failures (chat_failure.c) --------------------------------------------------------------------------------------------------- */

chat_failure chat_fail(int http_status, di_status code, int32_t retry_after_s, const char *message);
/* For an error of the preparation or of a submit, before anything was answered. */
chat_failure chat_fail_status(di_status status, const di_error *err);
const char *chat_failure_text(const chat_failure *failure);
chat_failure chat_late_failure(void);
void chat_failure_fini(chat_failure *failure);
/* The error body of the route; `refusal` may be NULL. False: no memory. */
bool chat_error_body(di_route route, int http_status, const char *message, const rec_refusal *refusal, buf *out);

/* --- Link (chat_link.c): commands one way, events the other; one mutex ------------------------------------------------------------ */

typedef enum chat_event_kind {
    CHAT_QUEUED,   /* all tasks of the call are in the scheduler */
    CHAT_REFUSED,  /* one was not taken: call->failure */
    CHAT_ADMITTED, /* a task left the queue */
    CHAT_TOKEN,
    CHAT_ENDED     /* a choice ends without another token */
} chat_event_kind;

typedef struct chat_event {
    di_call *call;
    int64_t at;         /* ns */
    int64_t cached;     /* of ADMITTED */
    int32_t choice;     /* of the call; of ADMITTED the task */
    int32_t id;
    float logprob;
    int32_t n_top;
    size_t first_top;   /* in the batch */
    uint8_t kind;       /* chat_event_kind */
    uint8_t end;        /* di_task_end */
    bool is_stop;       /* the id is one that ends: no part of the text */
    bool last;          /* nothing of this call comes any more */
} chat_event;

typedef struct chat_batch {
    chat_event *events; /* [n] */
    size_t n;
    size_t capacity;
    di_token_logprob *tops; /* [n_tops] */
    size_t n_tops;
    size_t tops_capacity;
    di_call *lost;      /* calls that have lost an event, behind all events */
} chat_batch;

typedef struct chat_link {
    pthread_mutex_t mutex;
    pthread_cond_t to_engine;
    pthread_cond_t to_output;
    chat_command *first; /* oldest command */
    chat_command *last;
    di_call *attention;  /* calls with something cancelled; each holds a reference */
    chat_batch batch;    /* events that the output thread has not taken */
    bool engine_waits;
    bool output_waits;
    bool engine_stops;
    bool output_stops;
} chat_link;

void chat_link_init(chat_link *l);
void chat_link_fini(chat_link *l);
void chat_link_command(chat_link *l, chat_command *command);
void chat_link_attend(chat_link *l, di_call *c); /* takes a reference of its own */
void chat_link_stop_engine(chat_link *l);
void chat_link_stop_output(chat_link *l);

typedef struct chat_orders {
    chat_command *commands; /* at most CHAT_COMMANDS_A_STEP */
    di_call *attention;
    bool stop;
} chat_orders;

/* Takes commands and cancellations. Waits for some while `idle`, until the deadline (0 = none); and waits for the output thread
 * while too many events lie before it. */
void chat_link_orders(chat_link *l, bool idle, int64_t deadline, chat_orders *out);

/* Events are put between begin and end. A false chat_link_put has lost the event: the call goes to chat_link_lose behind its last. */
void chat_link_begin(chat_link *l);
bool chat_link_put(chat_link *l, const chat_event *event, const di_token_logprob *tops);
void chat_link_lose(chat_link *l, di_call *c);
void chat_link_end(chat_link *l);

/* Waits for events and swaps them against the empty batch. False: the output thread is to stop. */
bool chat_link_take(chat_link *l, chat_batch *batch);

/* --- Threads ---------------------------------------------------------------------------------------------------------------------- */

typedef struct chat_preparation {
    pthread_mutex_t queue;
    pthread_cond_t filled;
    di_call *first;
    di_call *last;
    bool stop;
    pthread_t threads[CHAT_MAX_PREPARE_THREADS];
    int32_t n_threads;
} chat_preparation;

di_status chat_prepare_start(di_service *s, int32_t n_threads, di_error *err);
void chat_prepare_stop(di_service *s); /* what waits is still prepared */
void chat_prepare_add(di_service *s, di_call *c);
/* It has not begun, or not ended, in time. */
bool chat_is_late(const di_call *c);

/* Scratch of one preparation thread. */
typedef struct chat_scratch {
    int32_t *ids; /* [capacity] */
    size_t capacity;
} chat_scratch;

di_status chat_scratch_reserve(chat_scratch *scratch, size_t n, di_error *err);
void chat_scratch_trim(chat_scratch *scratch);

/* One route each: fills the call for the engine, or (of those that need none) writes the answer to call->staged and sets *done. Errors
 * become the call's failure by chat_fail_status. Preparation threads. */
di_status chat_prepare_conversation(di_call *c, chat_scratch *scratch, di_error *err);
di_status chat_prepare_completions(di_call *c, chat_scratch *scratch, bool *done, di_error *err);
di_status chat_count_tokens(di_call *c, chat_scratch *scratch, di_error *err);
di_status chat_tokenize(di_call *c, chat_scratch *scratch, di_error *err);
di_status chat_detokenize(di_call *c, chat_scratch *scratch, di_error *err);

/* Reads a body of a recipe protocol for a call, and refuses images. */
di_status chat_read_request(di_call *c, di_protocol protocol, const char *body, size_t n, di_request **out, di_error *err);
/* Encodes the request's prompt into the scratch. */
di_status chat_encode_request(const di_request *request, chat_scratch *scratch, size_t *n_ids, di_error *err);
di_status chat_encode_text(const di_service *s, const char *text, size_t n, chat_scratch *scratch, size_t *n_ids, di_error *err);
/* The text of ids [n], malloc'ed. */
di_status chat_decode_ids(const di_service *s, const int32_t *ids, size_t n, char **text, size_t *n_text, di_error *err);
/* Arrays for n_tasks prompts with n choices each. */
di_status chat_call_alloc(di_call *c, size_t n_tasks, int32_t n, di_error *err);
/* The next task's prompt, copied. */
di_status chat_call_set_prompt(di_call *c, size_t task, const int32_t *ids, size_t n, di_error *err);
di_status chat_random(void *out, size_t n, di_error *err);
/* Answers of the public functions that write text: at most capacity - 1 bytes and a NUL; n is returned. */
size_t chat_give(const char *text, size_t n, char *out, size_t capacity);

extern const chat_writer chat_reply_writer;

struct chat_engine {
    pthread_t thread;
    bool started;
    pthread_mutex_t shown;
    di_service_stats stats; /* guarded by shown, as is what follows; as of the last step */
    char *tenants;          /* JSON; NULL = none yet */
    size_t n_tenants;
    char *names;            /* of tenants, each with its NUL; NULL = none yet */
    size_t n_names;         /* bytes */
    int64_t tenants_next;   /* engine: not made again before */
    bool tenants_stale;     /* engine */
};

di_status chat_engine_start(di_service *s, di_error *err);
void chat_engine_stop(di_service *s); /* no call may be on its way */
void chat_engine_on_events(void *user, const di_task_event *events, size_t n); /* of di_scheduler_options */

struct chat_output {
    pthread_t thread;
    bool started;
};

di_status chat_output_start(di_service *s, di_error *err);
void chat_output_stop(di_service *s);

/* --- Null backend (chat_null.c) -------------------------------------------------------------------------------------------------- */

typedef struct chat_null chat_null;

di_status chat_null_new(const di_tokenizer *tokenizer, int32_t eos, chat_null **out, di_error *err);
void chat_null_free(chat_null *null);
int32_t chat_null_script(void *user, void *task_user, int32_t choice, int64_t n); /* di_script_fn over a chat_null */

/* --- The service ------------------------------------------------------------------------------------------------------------------- */

struct di_service {
    const di_model *model;
    const di_tokenizer *tokenizer;
    char *model_name;
    char **names; /* [n_names] that requests may use */
    size_t n_names;
    di_recipe *recipe;
    di_engine *engine;       /* engine thread, but for what says that any may */
    di_scheduler *scheduler; /* engine thread */
    chat_null *null;
    int64_t context;
    int32_t eos;
    int32_t think_end; /* -1 = none */
    di_vocabulary *vocabulary;
    chat_compiler *compiler;
    bool deepseek_exact;
    di_verify verify;
    int64_t max_waiting;
    int64_t max_calls;
    size_t max_unread_bytes;
    bool no_cache;
    _Atomic bool draining;
    _Atomic int64_t n_pending;  /* accepted and not ended */
    _Atomic int64_t n_phase[DI_CALL_ENDED + 1];
    _Atomic int64_t n_flushing; /* ended in the engine, not in the output */

    pthread_mutex_t cancelling; /* one di_service_cancel_all at a time */
    pthread_mutex_t calls;      /* guards: */
    pthread_cond_t left;
    di_call *first_call;        /* all that are not destroyed */
    int64_t n_calls;
    int64_t n_on_way;           /* accepted calls that have not left */
    bool closed;                /* the last call frees what is left of the service */

    chat_preparation preparation;
    chat_link link;
    chat_engine engine_thread;
    chat_output output;
    chat_metrics *metrics;
};

/* di_service_open with a script in place of the model: tests. NULL = as the options say. */
di_status chat_service_open(const di_model *model, const di_tokenizer *tokenizer, const di_service_options *options, di_script_fn script,
                            void *script_user, di_service **out, di_error *err);
/* What the scheduler gives to the script as task_user. */
static inline const di_call *chat_script_call(const void *task_user) { return ((const chat_task *)task_user)->call; }

void chat_service_free(di_service *s); /* a closed one without calls */

/* Whether requests may use this model name; the error lists those they may. */
di_status chat_check_model(const di_service *s, const char *name, size_t n, di_error *err);

#endif
