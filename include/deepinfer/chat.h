/* deepinfer/chat.h - a model as a service: requests in the words of the APIs in, responses and event streams out.
 *
 *   di_service_open(model, tokenizer, options)
 *   di_service_submit(JSON body) -> di_call; wait for its callback or in di_call_wait; di_call_read until it has ended
 *   or all at once: di_service_run(thousands of bodies)
 *
 * A service has threads of its own: some that prepare (read JSON, render the prompt, encode), one that runs the engine, one that turns
 * tokens into output. It knows nothing of HTTP but status codes. All functions may be called from any thread unless they say otherwise;
 * none waits for the engine but di_call_wait, di_service_run and di_service_close. docs/serving.md has the picture. */
#ifndef DEEPINFER_CHAT_H
#define DEEPINFER_CHAT_H

#include <deepinfer/engine.h>
#include <deepinfer/recipe.h>
#include <deepinfer/scheduler.h>
#include <deepinfer/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_service di_service;
typedef struct di_call di_call;

typedef struct di_service_options {
    di_engine_options engine;       /* backend "null": no model runs, every request gets a fixed text; to measure what is around it */
    di_scheduler_options scheduler; /* on_events, user, script and script_user are the service's own */
    di_recipe_options recipe;
    const char *model_name;      /* as responses and /v1/models spell it; also accepted in requests. NULL = "DeepSeek-V4.1-Flash" */
    int32_t n_prepare_threads;   /* 0 = 2 */
    int64_t max_calls;           /* calls that are there; a freed one counts until the running step has let go of it. 0 = 20,000 */
    size_t max_unread_bytes;     /* output of one call that waits to be read; a stream beyond it is cancelled; 0 = 1 MiB */
    bool no_cache;               /* no prefix cache */
    bool deepseek_exact;         /* as DeepSeek's own service: a JSON Schema as response format is a wish, not enforced */
    di_verify verify;            /* of drafts, for requests without a seed; those with one are coupled. What a body says wins over both */
} di_service_options;

/* Copies what it needs of the options. Model and tokenizer must outlive the service. Errors: those of di_engine_open, di_recipe_open
 * and di_scheduler_new; DI_E_MEMORY. */
DI_API di_status di_service_open(const di_model *model, const di_tokenizer *tokenizer, const di_service_options *options, di_service **out,
                                 di_error *err);
/* Cancels what runs and waits for the running step. Calls that are not freed yet have ended then; they can be read and must be freed,
 * nothing else. */
DI_API void di_service_close(di_service *service);

DI_API const char *di_service_model_name(const di_service *service);
DI_API int64_t di_service_context(const di_service *service); /* tokens of prompt and output together */

/* --- Calls ------------------------------------------------------------------------------------------------------------------ */

typedef enum di_route {
    DI_ROUTE_CHAT,         /* POST /v1/chat/completions */
    DI_ROUTE_RESPONSES,    /* POST /v1/responses */
    DI_ROUTE_MESSAGES,     /* POST /v1/messages */
    DI_ROUTE_COUNT_TOKENS, /* POST /v1/messages/count_tokens */
    DI_ROUTE_COMPLETIONS,  /* POST /v1/completions: prompt as text or ids, one or several */
    DI_ROUTE_TOKENIZE,     /* POST /tokenize: {"prompt": text} or {"messages": [...]} -> {"count", "max_model_len", "tokens"} */
    DI_ROUTE_DETOKENIZE    /* POST /detokenize: {"tokens": [...]} -> {"prompt": text} */
} di_route;

typedef struct di_call_options {
    di_route route;
    const char *body; /* [n] JSON; copied */
    size_t n;
    const char *id;     /* response id; NULL = one is made. At most 128 bytes */
    const char *tenant; /* NULL = "": who is served fairly and shares cached prefixes with nobody else */
    int32_t priority;
    int64_t queue_timeout_ms; /* must have begun by then; 0 = no limit */
    int64_t timeout_ms;       /* must have ended by then; 0 = no limit */
    void (*wake)(void *user); /* there is something new: a phase, a status, output, the end. Called on a thread of the service,
                               * after the call has changed, maybe before di_service_submit has returned; may call di_call_get,
                               * di_call_read and di_call_cancel, must not wait. NULL = none. Not called once di_call_free has
                               * returned: so who frees must hold no lock that this function takes */
    void *user;
    const char *cache; /* how its prefix is kept (docs/kv_cache.md): "class=agent; ttl=3600; pin"; NULL = unsaid. What the body says wins */
} di_call_options;

/* Hands a body over; whatever is wrong with it comes as the call's response. Errors: DI_E_ARGUMENT (options), DI_E_LIMIT (max_calls),
 * DI_E_STATE (draining), DI_E_MEMORY. */
DI_API di_status di_service_submit(di_service *service, const di_call_options *options, di_call **out, di_error *err);

typedef enum di_call_phase {
    DI_CALL_PREPARING, /* JSON, prompt, ids */
    DI_CALL_QUEUED,    /* waits for its turn */
    DI_CALL_PREFILL,   /* the prompt runs */
    DI_CALL_DECODE,    /* tokens come */
    DI_CALL_ENDED      /* no more output will come; `unread` bytes may be left */
} di_call_phase;

typedef struct di_call_info {
    di_call_phase phase;
    int http_status;  /* 0 = not known yet. A stream's is known when it is queued, any other's at the end */
    bool stream;      /* with http_status: the output is server-sent events, else one JSON text */
    size_t unread;    /* bytes that di_call_read would give now */
    bool cancelled;   /* by di_call_cancel, or because nobody read (then `error` is DI_E_LIMIT, else DI_E_CANCELLED) */
    int32_t retry_after_s; /* with http_status 429 or 503: when to try again; 0 = unsaid */
    di_usage usage;   /* so far; over all choices */
    di_status error;  /* why http_status is not 200, or why a stream ended early; DI_OK = no error */
    di_finish finish; /* of the last choice that ended */
    /* CLOCK_MONOTONIC ns, 0 = not yet */
    int64_t submitted_at;
    int64_t queued_at;
    int64_t admitted_at;
    int64_t first_token_at;
    int64_t ended_at;
} di_call_info;

DI_API void di_call_get(const di_call *call, di_call_info *out);
DI_API const char *di_call_id(const di_call *call);
/* What was ignored or weakened in the constraint of a request (docs/structured_output.md), in one line of printable ASCII; NULL = nothing.
 * Once http_status is known; borrowed from the call. */
DI_API const char *di_call_warnings(const di_call *call);

/* Takes output, in order; returns how many bytes were written, 0 when there are none now. One reader at a time. Of a call that is no
 * stream nothing comes before its end. */
DI_API size_t di_call_read(di_call *call, char *out, size_t capacity);

/* Waits until output can be read, or the call has ended, or timeout_ms have passed (-1 = no limit). True unless the time passed. */
DI_API bool di_call_wait(di_call *call, int64_t timeout_ms);

/* Stops it: its KV memory is free after the running step. Output that is there can still be read; nothing is added but what the
 * protocol says at an end: the error event of a stream, else an error body with status 499 (503 after di_service_cancel_all). On a call
 * that has ended: nothing. */
DI_API void di_call_cancel(di_call *call);
/* Cancels first; waits for nothing but a running `wake`. NULL is ignored. */
DI_API void di_call_free(di_call *call);

/* --- Many at once ------------------------------------------------------------------------------------------------------------ */

typedef struct di_batch_item {
    di_route route;
    const char *body; /* [n] */
    size_t n;
    int http_status;  /* out */
    char *reply;      /* out: [n_reply] bytes and a NUL, the caller's: di_batch_fini. NULL when the batch was stopped before */
    size_t n_reply;
} di_batch_item;

typedef struct di_batch_progress {
    size_t n_done;
    size_t n;
    int64_t prompt_tokens; /* of those done */
    int64_t completion_tokens;
} di_batch_progress;

/* Runs all items, as many together as fit, each as a non-streaming call would (a body with "stream" gives its events). `progress` is
 * called on the caller's thread, about ten times a second and at the end; false stops the batch (DI_E_CANCELLED). It may be NULL.
 * A refused item is no error: see its http_status. Errors: DI_E_MEMORY, DI_E_STATE, DI_E_CANCELLED; items that were done keep replies. */
DI_API di_status di_service_run(di_service *service, di_batch_item *items, size_t n,
                                bool (*progress)(void *user, const di_batch_progress *progress), void *user, di_error *err);
DI_API void di_batch_fini(di_batch_item *items, size_t n);

/* --- Running a service --------------------------------------------------------------------------------------------------------- */

/* From now on submits are refused (DI_E_STATE); what was accepted goes on. */
DI_API void di_service_drain(di_service *service);
/* Accepted calls that have not ended, in any phase. */
DI_API int64_t di_service_pending(const di_service *service);
/* Cancels all of them. */
DI_API void di_service_cancel_all(di_service *service);

/* Tenants, as in scheduler.h; effective with the next step. Errors: DI_E_ARGUMENT, DI_E_MEMORY. */
DI_API di_status di_service_set_tenant(di_service *service, const char *name, di_tenant_state state, di_error *err);
/* As JSON: {"tenants": [{"name", "state", "waiting", "running", "prompt_tokens", "generated_tokens"}]}. The length is returned, at most
 * capacity - 1 bytes and a NUL are written. As of the last step. */
DI_API size_t di_service_tenants(const di_service *service, char *out, size_t capacity);

/* Everything that a tenant has in the prefix cache is forgotten, or all of all tenants with NULL; with the next step. Errors: as above. */
DI_API di_status di_service_purge_cache(di_service *service, const char *tenant, di_error *err);
/* What the tenant's requests compute and find from now on is pinned, or no longer. Errors: as above. */
DI_API di_status di_service_pin_cache(di_service *service, const char *tenant, bool pinned, di_error *err);
/* The tiers of the cache as JSON: {"tiers": [{"name", "bytes", ...}], "lookups", ...}. Length and writing as in di_service_tenants. */
DI_API size_t di_service_cache(const di_service *service, char *out, size_t capacity);
/* What tenants have in the cache's folders, as JSON: {"tenants": [{"tier", "id", "name", "bytes", "units", "snapshots", "pinned_bytes"}]},
 * those with the most bytes of a folder first, at most DI_SERVICE_CACHE_TENANTS of each. `name` is null of those that the service has not
 * heard of since it was opened: a folder knows ids alone (di_cache_tenant_id). Length and writing as above. */
#define DI_SERVICE_CACHE_TENANTS 10000
DI_API size_t di_service_cache_tenants(const di_service *service, char *out, size_t capacity);

typedef struct di_service_stats {
    int64_t n_preparing; /* calls, now */
    int64_t n_waiting;
    int64_t n_running;
    int64_t n_output;    /* ended in the engine, output not finished */
    di_scheduler_stats scheduler; /* as of the last step */
    di_kv_stats kv;
    di_cache_stats cache;
    di_stream_stats stream; /* weights that are read when they are needed */
    di_weight_stats weights;
} di_service_stats;

DI_API void di_service_get_stats(const di_service *service, di_service_stats *out);

/* Metrics in Prometheus' text format: `deepinfer_...`, and the names of vLLM that dashboards use (docs/serving.md lists them). Length
 * and writing as in di_service_tenants. */
DI_API size_t di_service_metrics(const di_service *service, char *out, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
