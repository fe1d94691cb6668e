/* deepinfer/recipe.h - the conversation layer: three APIs in, one prompt; one output stream, three APIs out (spec: recipe.md).
 *
 *   di_recipe_open(tokenizer)                        once
 *   di_request_read(recipe, protocol, JSON body)     -> what to run: prompt text and ids, sampling, constraint, stop strings
 *   di_reply_new(recipe, request)                    -> push generated ids or text; take events or the whole response
 *
 * Nothing here knows how tokens are made, so that any engine can sit between request and reply. A caller that wants the parts of
 * the output rather than API events uses di_output alone: reasoning, text and tool calls as they stream.
 *
 * User text never becomes a control token: the prompt is text plus the list of the places that are control tokens, and only those
 * places get their ids. A di_recipe is immutable (any thread, must outlive what was made with it); a di_request may be read by
 * several threads after di_request_read; a di_output or di_reply belongs to one thread at a time. */
#ifndef DEEPINFER_RECIPE_H
#define DEEPINFER_RECIPE_H

#include <deepinfer/base.h>
#include <deepinfer/engine.h>
#include <deepinfer/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_recipe di_recipe;
typedef struct di_request di_request;
typedef struct di_output di_output;
typedef struct di_reply di_reply;

typedef enum di_protocol {
    DI_CHAT,      /* OpenAI Chat Completions, POST /v1/chat/completions */
    DI_RESPONSES, /* OpenAI Responses, POST /v1/responses */
    DI_MESSAGES   /* Anthropic Messages, POST /v1/messages */
} di_protocol;

typedef enum di_prompt_version { DI_V41, DI_V4 } di_prompt_version;

/* --- The recipe ------------------------------------------------------------------------------------------------------------ */

typedef struct di_model_alias {
    const char *name; /* as requests spell it, exact */
    di_prompt_version version;
} di_model_alias;

/* All zero is the default behaviour (recipe.md 3.1). Everything is copied. */
typedef struct di_recipe_options {
    bool thinking_off;               /* thinking mode of requests that do not say */
    bool reject_missing_reasoning;   /* 400 for a turn after the last user message without its reasoning */
    bool reject_responses_web_search; /* else such tools are left out */
    bool drop_messages_web_search;   /* else such tools are a 400 */
    bool messages_any_forces_call;   /* tool_choice "any" as Anthropic means it; else it is "auto", as DeepSeek's service does */
    uint32_t max_tokens_bound;       /* largest max_tokens; 0 = 393216 */
    const char *image_token;         /* spelling; NULL = the tokenizer's, which is one of two, else <｜image｜> */
    const di_model_alias *aliases;   /* [n_aliases] besides DeepSeek-V4.1-Flash and DeepSeek-V4-Pro */
    size_t n_aliases;
    size_t max_request_bytes;        /* memory of one request, its JSON tree included; 0 = 1 GiB */
    uint32_t max_messages;           /* messages, or items of a Responses input; 0 = 100,000, as Anthropic's service */
} di_recipe_options;

/* `tokenizer` may be NULL: then prompts have no ids and replies take text only; else it must outlive the recipe. `options` may be
 * NULL. Errors: DI_E_ARGUMENT (an alias or spelling that is empty), DI_E_UNSUPPORTED (the tokenizer lacks a control token),
 * DI_E_MEMORY. */
DI_API di_status di_recipe_open(const di_tokenizer *tokenizer, const di_recipe_options *options, di_recipe **out, di_error *err);
DI_API void di_recipe_close(di_recipe *recipe);

/* --- Requests -------------------------------------------------------------------------------------------------------------- */

/* Reads one request body of n bytes and renders its prompt. Nothing of `json` is kept.
 * Errors: DI_E_FORMAT (not JSON, or not a body of this protocol) and DI_E_ARGUMENT (a value the recipe refuses), both HTTP 400;
 * DI_E_LIMIT (more memory than max_request_bytes), HTTP 413; DI_E_MEMORY, HTTP 500. The message is the official one where there is
 * one, else it begins with the path of the field. */
DI_API di_status di_request_read(const di_recipe *recipe, di_protocol protocol, const char *json, size_t n, di_request **out,
                                 di_error *err);
DI_API void di_request_free(di_request *request);

/* HTTP status of an error of this header (400, 413, 500), and its body in the protocol's own shape, NUL-terminated; the length of
 * the whole body is returned, at most capacity - 1 bytes of it are written. */
DI_API int di_recipe_http_status(di_status status);
DI_API size_t di_recipe_error_body(di_protocol protocol, int http_status, const char *message, char *out, size_t capacity);

DI_API di_protocol di_request_protocol(const di_request *request);
DI_API di_prompt_version di_request_version(const di_request *request);
DI_API const char *di_request_model(const di_request *request); /* as the request spells it */
DI_API bool di_request_stream(const di_request *request);
DI_API bool di_request_thinking(const di_request *request);

/* The prompt: UTF-8, NUL-terminated, may hold NUL bytes of the user. */
DI_API const char *di_request_prompt(const di_request *request, size_t *n);

/* Byte ranges of the prompt that are control tokens, ascending, one token each. */
typedef struct di_range {
    size_t begin;
    size_t end;
} di_range;

DI_API const di_range *di_request_control_ranges(const di_request *request, size_t *n);

/* The prompt as ids: each range its control token, what is between them encoded without any added token. An image is one id here
 * (di_image_tokens says how many it becomes). Writes at most capacity ids, *n_ids = all; places behind the last id, up to capacity,
 * may be overwritten. n_threads as in di_tokenizer_encode_parallel; more than one pay from a megabyte on. Errors: DI_E_STATE (no
 * tokenizer), DI_E_UNSUPPORTED (an image and a tokenizer without an image token), DI_E_MEMORY, DI_E_LIMIT. */
DI_API di_status di_request_encode(const di_request *request, int n_threads, int32_t *ids, size_t capacity, size_t *n_ids,
                                   di_error *err);

typedef enum di_image_kind { DI_IMAGE_URL, DI_IMAGE_DATA_URL, DI_IMAGE_BYTES } di_image_kind;
typedef enum di_image_detail { DI_DETAIL_HIGH, DI_DETAIL_LOW, DI_DETAIL_ORIGINAL, DI_DETAIL_AUTO } di_image_detail;

typedef struct di_image_ref {
    di_image_kind kind;
    di_image_detail detail;
    const char *path; /* of the field, for messages: "messages.0.content[1]" */
    const char *data; /* URL, data URL, or the decoded bytes; not decoded further */
    size_t size;
} di_image_ref;

/* In the order of their placeholders in the prompt. */
DI_API const di_image_ref *di_request_images(const di_request *request, size_t *n);

/* Model tokens of an image of that size in pixels (vision.md 4.2, recipe.md 2.9); 0 for a size that can't be used. */
DI_API int32_t di_image_tokens(int32_t width, int32_t height);

typedef enum di_constraint_kind {
    DI_CONSTRAINT_NONE,
    DI_CONSTRAINT_JSON,          /* text: the schema, or empty for any JSON object */
    DI_CONSTRAINT_REGEX,         /* text: the pattern */
    DI_CONSTRAINT_TOOL_CALL,     /* text: the tools as a JSON array; a call may be made */
    DI_CONSTRAINT_TOOL_REQUIRED  /* the same; a call must be made */
} di_constraint_kind;

/* How to generate. Strings are borrowed from the request. */
typedef struct di_inference {
    int64_t max_tokens;   /* -1 = the request does not say: di_request_max_tokens */
    float temperature;    /* after the rules of the prompt version, recipe.md 3.1 */
    float top_p;
    bool logprobs;
    int32_t top_logprobs; /* -1 = not asked */
    bool has_seed;
    uint64_t seed;
    int32_t n;            /* choices, 1..128 (Chat) */
    float presence_penalty;
    float frequency_penalty;
    const di_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
    di_constraint_kind constraint;
    const char *constraint_text;
    size_t constraint_size;
    bool has_tools;       /* declared, whatever was chosen of them */
    int32_t cache_class;  /* of the extension field `cache` (docs/kv_cache.md): di_cache_class; -1 = the request does not say */
    int64_t cache_ttl_s;  /* 0 = likewise */
    bool cache_pinned;
    int32_t verify;       /* of the extension field `verify` (docs/serving.md): di_verify; -1 = the request does not say */
} di_inference;

DI_API const di_inference *di_request_inference(const di_request *request);

/* max_tokens for a prompt of prompt_tokens (images at their full count) in a context of `context` tokens; a request that asks for
 * more than fits is DI_E_ARGUMENT with the official message. */
DI_API di_status di_request_max_tokens(const di_request *request, int64_t prompt_tokens, int64_t context, int64_t *out, di_error *err);

/* --- Output: generated tokens to reasoning, text and tool calls -------------------------------------------------------------- */

typedef enum di_output_stage {
    DI_STAGE_NONE,            /* thinking is off */
    DI_STAGE_REASONING_START, /* the prompt ends in <think> */
    DI_STAGE_REASONING,       /* ... or in unfinished reasoning */
    DI_STAGE_CONTENT          /* an answer is continued: newlines at its start count */
} di_output_stage;

typedef struct di_output_options {
    bool tools;           /* look for tool calls */
    bool in_tools;        /* the prompt ended inside a tool block */
    bool json;            /* the answer is one JSON text */
    di_output_stage stage;
    const char *const *stops; /* [n_stops] copied */
    const size_t *stop_sizes; /* NULL: they end with NUL */
    size_t n_stops;       /* at most 16 */
} di_output_options;

/* What the request asks for; borrowed from it. */
DI_API const di_output_options *di_request_output(const di_request *request);

typedef enum di_finish {
    DI_FINISH_NONE,         /* still running */
    DI_FINISH_STOP,         /* the model ended its turn */
    DI_FINISH_LENGTH,
    DI_FINISH_FILTER,
    DI_FINISH_STOP_STRING,  /* found here, never passed in */
    DI_FINISH_TOOL_CALLS,   /* found here, never passed in */
    DI_FINISH_CUT           /* the input ended without a reason: the backend failed */
} di_finish;

typedef enum di_piece_kind {
    DI_PIECE_REASONING,
    DI_PIECE_TEXT,
    DI_PIECE_CALL,      /* a call begins: text is the function's name */
    DI_PIECE_ARGUMENTS, /* more of the JSON text of call number `call` */
    DI_PIECE_FINISH
} di_piece_kind;

typedef struct di_piece {
    di_piece_kind kind;
    const char *text; /* UTF-8, not NUL-terminated, may be empty; borrowed until the next push, finish or end */
    size_t size;
    int32_t call;     /* of CALL and ARGUMENTS, counted from 0 */
    di_finish finish; /* of FINISH */
    const char *stop; /* of FINISH by a stop string: that string (stop_size bytes), else NULL */
    size_t stop_size;
    const struct di_token_logprobs *logprobs; /* [n_logprobs] of the ids that this piece came from (text and reasoning) */
    size_t n_logprobs;
} di_piece;

typedef struct di_token_logprobs {
    int32_t id;
    float logprob;
    int32_t n_top;
    const di_token_logprob *top;
} di_token_logprobs;

/* `recipe` may be without a tokenizer when only text is pushed. */
DI_API di_status di_output_new(const di_recipe *recipe, const di_output_options *options, di_output **out, di_error *err);
DI_API void di_output_free(di_output *output);

/* Feeds text that counts n_tokens tokens; markers count by their spelling. Feeding ids is spoof-proof: markers count only as
 * control ids; `logprobs` [n] may be NULL. One output takes text or ids, not both (DI_E_STATE). End-of-sequence must not be fed.
 * Returned text is never taken back and held back only while it may still become a marker; how the input is cut changes nothing
 * but where pieces are cut. A stop string that matches gives the FINISH piece at once; later pushes are then ignored. Invalid
 * UTF-8 passes as U+FFFD. Errors: DI_E_STATE, DI_E_ARGUMENT, DI_E_MEMORY (the output takes nothing more). */
DI_API di_status di_output_push_text(di_output *output, const char *text, size_t n, int64_t n_tokens, di_error *err);
DI_API di_status di_output_push_ids(di_output *output, const int32_t *ids, size_t n, const di_token_logprobs *logprobs, di_error *err);

/* The generation has ended: STOP, LENGTH, FILTER, or CUT. Gives what was held back, then one FINISH piece: STOP becomes TOOL_CALLS
 * when there was a call; CUT becomes STOP without calls, TOOL_CALLS when every call is complete, else it stays CUT. After a stop
 * string nothing more is given. Only once (DI_E_STATE). */
DI_API di_status di_output_finish(di_output *output, di_finish reason, di_error *err);

/* Next piece of the last call; false when there is no more. */
DI_API bool di_output_next(di_output *output, di_piece *out);

DI_API di_finish di_output_finished(const di_output *output); /* not NONE after a stop string or di_output_finish */

typedef struct di_usage {
    int64_t prompt_tokens; /* images at their full count */
    int64_t cached_tokens; /* of them from the prefix cache */
    int64_t completion_tokens;
    int64_t reasoning_tokens; /* of the completion */
} di_usage;

DI_API void di_output_usage(const di_output *output, di_usage *out); /* the completion's numbers; prompt numbers are 0 */

/* --- Replies: output in the API's own words --------------------------------------------------------------------------------- */

typedef struct di_reply_options {
    const char *id;          /* response id; required */
    const char *fingerprint; /* system_fingerprint; NULL = null */
    int64_t created;         /* Unix seconds; completed_at is taken from di_reply_set_time */
    const char *model;       /* NULL = the request's; required without a request */
    /* Without a request: */
    di_protocol protocol;
    di_output_options output;
    bool no_usage;           /* Chat streams: leave the usage out */
} di_reply_options;

/* `request` NULL: nothing is echoed, and the last three options say what it would. Else it must outlive the reply.
 * A request with n choices takes pushes for choice 0..n-1 in any order. Errors: DI_E_ARGUMENT, DI_E_MEMORY. */
DI_API di_status di_reply_new(const di_recipe *recipe, const di_request *request, const di_reply_options *options, di_reply **out,
                              di_error *err);
DI_API void di_reply_free(di_reply *reply);

/* The prompt has been taken in: before the first push. Without it prompt counts are 0. */
DI_API di_status di_reply_ready(di_reply *reply, int64_t prompt_tokens, int64_t cached_tokens, di_error *err);

/* As the functions of di_output; each queues its events. Text joins the event before it when that is of the same item and has not
 * been taken yet, so that a caller who wants only the body need not take events. CUT inside a tool call ends the reply with an error
 * event. On DI_E_MEMORY the queue is emptied and only di_reply_fail may follow. What comes for a failed reply is ignored. */
DI_API di_status di_reply_push_text(di_reply *reply, int32_t choice, const char *text, size_t n, int64_t n_tokens, di_error *err);
DI_API di_status di_reply_push_ids(di_reply *reply, int32_t choice, const int32_t *ids, size_t n, const di_token_logprobs *logprobs,
                                   di_error *err);
DI_API di_status di_reply_finish(di_reply *reply, int32_t choice, di_finish reason, di_error *err);
DI_API di_finish di_reply_finished(const di_reply *reply, int32_t choice);
DI_API void di_reply_set_time(di_reply *reply, int64_t now); /* Unix seconds, for completed_at */
DI_API void di_reply_usage(const di_reply *reply, di_usage *out);

typedef struct di_event {
    const char *name; /* "response.created"; NULL for Chat, whose frames have no name */
    const char *data; /* JSON text, or [DONE]; NUL-terminated; borrowed until the next call on the reply */
    size_t size;
} di_event;

/* Next queued event; false when there is none. */
DI_API bool di_reply_next_event(di_reply *reply, di_event *out);

/* All queued events as server-sent-event frames, ready to be written. Borrowed until the next call on the reply. */
DI_API di_status di_reply_frames(di_reply *reply, const char **out, size_t *n, di_error *err);

/* The whole response as one JSON text; after every choice has finished (else DI_E_STATE). Borrowed until the next call. */
DI_API di_status di_reply_body(di_reply *reply, const char **out, size_t *n, di_error *err);

/* The stream ends with an error of the server: queues the protocol's error event instead of a finish (recipe.md 5.4; Responses:
 * response.failed). There is no body then. Errors: DI_E_STATE (it has ended), DI_E_MEMORY. */
DI_API di_status di_reply_fail(di_reply *reply, int http_status, const char *message, di_error *err);

#ifdef __cplusplus
}
#endif
#endif
