/* deepinfer/scheduler.h - many requests over one engine: continuous batching (docs/serving.md).
 *
 *   di_scheduler_new(engine, options with a callback) -> di_task_submit for each request
 *   loop: di_scheduler_step; every step calls back once with the tokens that came out
 *
 * A step is one forward pass that mixes one token of every running choice (decode) with chunks of prompts (prefill) under a token
 * budget. While it runs on the executor's thread, the next one is planned and the tokens of the one before are handed out; so what is
 * told to a task (cancel, pause) holds one step later. Results are those of each task alone, bit for bit: neither company, arrival order,
 * preemption nor cache hits change a token.
 *
 * KV memory is promised before it is needed, so no step can run out of it. Each running choice has a promise for some way ahead; when
 * it cannot be extended, the task that ranks lowest is preempted: its memory is given back, its tokens are kept, and it goes on later
 * where it was. Rank: higher priority, then earlier admission. Waiting tasks are admitted by priority, then to the tenant that was
 * served least (virtual token counter, Sheng et al., OSDI 2024: prompt tokens count 1, generated ones 2, over the tenant's weight).
 *
 * A scheduler takes its engine over: until it is freed the engine must not be used otherwise, except for di_engine_get_kv_stats by the
 * thread of the scheduler. All calls come from one thread at a time. */
#ifndef DEEPINFER_SCHEDULER_H
#define DEEPINFER_SCHEDULER_H

#include <deepinfer/engine.h>
#include <deepinfer/grammar.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_scheduler di_scheduler;
typedef struct di_task di_task;

#define DI_MAX_CHOICES 128
#define DI_MAX_TENANT_BYTES 512
#define DI_MAX_VERIFIED 7 /* drafts of a choice that one step verifies */

typedef enum di_task_end {
    DI_TASK_RUNNING,   /* has not ended */
    DI_TASK_STOP,      /* an id of sampling.stop_ids was chosen; it comes with the event */
    DI_TASK_LENGTH,    /* max_tokens, or the context is full */
    DI_TASK_CANCELLED, /* di_task_cancel, or the scheduler was freed */
    DI_TASK_DEADLINE,  /* a deadline passed */
    DI_TASK_FAILED     /* `error` says why */
} di_task_end;

/* What one step did for one choice: a token, or an end, or both. With drafts a choice may have several in a step, in order. An ended choice
 * has no more; a task whose choices have all ended is gone, its pointer is good for this callback only. */
typedef struct di_task_event {
    di_task *task;
    void *user; /* of the task */
    int32_t choice;
    const di_sample *sample; /* the next token; NULL: it ends without another one, or `admitted` */
    di_task_end end;
    bool admitted;           /* the task left the queue (first admission only); choice is 0, and sample is NULL */
    int64_t cached_tokens;   /* of the prompt, with `admitted` */
    const di_error *error;   /* of DI_TASK_FAILED, else NULL */
} di_task_event;

/* Called by di_scheduler_step, on its thread; must not call into the scheduler but for di_task_cancel and di_task_cancel_choice. Borrowed
 * for the call. */
typedef void (*di_task_event_fn)(void *user, const di_task_event *events, size_t n);

/* Gives the id that choice `choice` of a task generates as its n-th (from 0), in place of a model: neither forward pass nor sampling
 * run, everything else does. For tests and for measuring what surrounds a model. Called on the executor's thread. */
typedef int32_t (*di_script_fn)(void *user, void *task_user, int32_t choice, int64_t n);

typedef struct di_scheduler_options {
    di_task_event_fn on_events;
    void *user;
    int32_t step_tokens;   /* most tokens of one step; 0 = the engine's chunk_tokens, which is also the most */
    int32_t max_running;   /* most choices that run together; 0 = 256 */
    int64_t max_waiting;   /* most tasks in the queue; 0 = 100,000 */
    int32_t ahead_tokens;  /* how far ahead of a choice KV memory is promised; 0 = 1024 */
    di_script_fn script;   /* NULL = the model */
    void *script_user;
    int32_t draft_tokens;  /* most drafts that a step verifies of a choice, when the engine has a draft model (dspark.md); 0 = all that are
                            * proposed; -1 = none. What comes out does not depend on it */
    bool draft_auto;       /* of them only as many as pay, by the draft model's confidence and by times that are measured when the scheduler
                            * is made (up to a second or so); none while none pays */
    di_vocabulary *vocabulary; /* for tasks with a grammar: of the model's tokenizer; outlives the scheduler. NULL = they are refused */
} di_scheduler_options;

/* The engine must have no sequences. Errors: DI_E_ARGUMENT, DI_E_STATE, DI_E_MEMORY. */
DI_API di_status di_scheduler_new(di_engine *engine, const di_scheduler_options *options, di_scheduler **out, di_error *err);
/* Waits for the running step. Tasks that are left end without an event. Before the engine is closed. */
DI_API void di_scheduler_free(di_scheduler *scheduler);

/* How what a task computes is kept below the device (di_cache_options). */
typedef struct di_task_cache {
    di_cache_class class_id;
    int64_t ttl_s; /* from the last use; 0 = that of the class */
    bool pinned;   /* kept until it is purged, what it finds of its prompt included; at most half of a folder */
} di_task_cache;

/* All three leave the distribution of the text as it is without drafts (docs/decisions/0015). */
typedef enum di_verify {
    DI_VERIFY_COUPLED,  /* draft and token are chosen with the same noise: a seed gives one text, whatever is drafted or runs beside it */
    DI_VERIFY_BLOCK,    /* keeps more drafts, all of a step judged together; what a seed gives depends on their number */
    DI_VERIFY_REJECTION /* as DI_VERIFY_BLOCK, each draft by itself: the rule that is best known, keeps less */
} di_verify;

typedef struct di_task_options {
    const int32_t *prompt; /* [n_prompt], at least one; copied */
    size_t n_prompt;
    const di_sampling *sampling; /* NULL = di_sampling_default; copied. Choice i has seed + i */
    int32_t n;             /* choices, 1..DI_MAX_CHOICES; 0 = 1. They share the prompt's KV */
    int64_t max_tokens;    /* of each choice, at least 1; 0 = what the context leaves. Cut to what the context leaves */
    const char *tenant;    /* NUL-terminated, at most DI_MAX_TENANT_BYTES; NULL = "". Tenants do not share cached prefixes */
    bool no_cache;         /* neither use nor fill the prefix cache */
    int32_t priority;      /* larger goes first; default 0 */
    int64_t queue_deadline; /* CLOCK_MONOTONIC ns by which it must be admitted; 0 = none */
    int64_t deadline;      /* ... and have ended; 0 = none */
    void *user;            /* comes back with events */
    di_grammar *grammar;   /* what each choice generates is one of its texts; retained. It then ends with DI_TASK_STOP, by one of the
                            * vocabulary's end ids. Nothing of other tasks changes. NULL = free. A script is not held to it */
    bool grammar_waits;    /* ... from behind the first `grammar_after` on, the end of the reasoning; no end id may come before it */
    int32_t grammar_after;
    bool grammar_closes;   /* near max_tokens only what still lets the text end in time, if it could when the grammar began
                            * (di_matcher_mask_within) */
    di_task_cache cache;
    di_verify verify;      /* how drafts become tokens of sampled choices (temperature > 0); with temperature 0 all are the same */
    bool grammar_jumps;    /* text that the grammar forces is verified as drafts, up to DI_MAX_VERIFIED tokens in one pass, with or without
                            * a draft model. What comes is what comes without it; drafts are verified under DI_VERIFY_COUPLED */
} di_task_options;

/* Puts a task in its tenant's queue. Errors: DI_E_ARGUMENT (names the field), DI_E_LIMIT (the prompt fills the context, KV memory as a
 * whole is too small for it, or the queue is full), DI_E_STATE (the tenant is draining), DI_E_MEMORY. */
DI_API di_status di_task_submit(di_scheduler *scheduler, const di_task_options *options, di_task **out, di_error *err);

/* Ends a task, or one of its choices: its memory is free after the running step. An event with DI_TASK_CANCELLED follows (for a whole
 * task: one for each choice that had not ended). On a choice that has ended: nothing. */
DI_API void di_task_cancel(di_task *task);
DI_API void di_task_cancel_choice(di_task *task, int32_t choice);

typedef struct di_step_info {
    int32_t n_tokens;  /* of the step that was handed out by this call; 0 = none */
    int32_t n_prefill; /* of them, of prompts */
    bool idle;         /* nothing is in flight and nothing can be planned: step again after a submit, a resume, or next_deadline */
    int64_t next_deadline; /* earliest one among waiting tasks, or when tiers of the cache want to be looked at; 0 = none */
} di_step_info;

/* Starts the next step, waits for the one before it and hands out its tokens. Errors of a pass go to its tasks as events.
 * Errors: DI_E_MEMORY (nothing was done: call again). */
DI_API di_status di_scheduler_step(di_scheduler *scheduler, di_step_info *info, di_error *err);

/* --- Tenants ----------------------------------------------------------------------------------------------------------- */

typedef enum di_tenant_state {
    DI_TENANT_OPEN,
    DI_TENANT_PAUSED,  /* waiting tasks stay in the queue; running ones go on */
    DI_TENANT_DRAINING /* new tasks are refused; the others go on */
} di_tenant_state;

typedef struct di_tenant_info {
    const char *name; /* borrowed until the next call on the scheduler */
    di_tenant_state state;
    int64_t n_waiting; /* tasks */
    int64_t n_running;
    int64_t prompt_tokens; /* sums since the tenant was first seen or was last idle for long */
    int64_t generated_tokens;
} di_tenant_info;

/* A tenant that was never seen is made. Errors: DI_E_ARGUMENT (name too long, weight not in 0.001..1000), DI_E_MEMORY. */
DI_API di_status di_scheduler_set_tenant(di_scheduler *scheduler, const char *name, di_tenant_state state, di_error *err);
DI_API di_status di_scheduler_set_weight(di_scheduler *scheduler, const char *name, double weight, di_error *err);
/* What tasks of the tenant compute and find is pinned from now on (di_task_cache), or no longer. Errors: as above. */
DI_API di_status di_scheduler_pin_tenant(di_scheduler *scheduler, const char *name, bool pinned, di_error *err);
/* Writes at most `capacity` of them, by name; returns how many there are. Idle open tenants are forgotten after a while. */
DI_API size_t di_scheduler_get_tenants(const di_scheduler *scheduler, di_tenant_info *out, size_t capacity);

typedef struct di_scheduler_stats {
    int64_t n_waiting; /* tasks in the queue, preempted ones included */
    int64_t n_running; /* tasks */
    int64_t n_choices; /* that run */
    int64_t n_submitted; /* sums from here on */
    int64_t n_ended;
    int64_t n_preempted;
    int64_t n_steps;
    int64_t prefill_tokens;
    int64_t decode_tokens;
    int64_t n_verified;      /* proposals that were verified, in whole or in part */
    int64_t drafted_tokens;  /* drafts that were verified */
    int64_t accepted_tokens; /* and were right */
    int64_t n_proposing;     /* steps that made proposals */
    int64_t verified_at[DI_MAX_VERIFIED]; /* drafted_tokens by their place in the proposal */
    int64_t accepted_at[DI_MAX_VERIFIED]; /* accepted_tokens likewise */
    double calibration_error; /* of the probability that a verified draft and all before it are right: what was said of it against what
                               * came, the mean distance over tenths */
    int64_t draft_ns;    /* of execute_ns, for proposals */
    int64_t execute_ns;  /* time that passes took on the executor */
    int64_t schedule_ns; /* between two passes, with the executor waiting: the scheduler's cost */
    int64_t plan_ns;     /* planning and handing out, beside a running pass */
    int64_t n_constrained; /* choices with a grammar that run, now */
    int64_t n_masks;     /* made for tokens and drafts, without those made while proposing */
    int64_t mask_ns;     /* time of all threads for them */
    int64_t mask_wait_ns; /* of execute_ns: masks were not ready when a pass had logits */
    int64_t forced_tokens; /* drafts that grammars forced (grammar_jumps) and that were verified; not among drafted_tokens */
    int64_t forced_right;  /* and were right: tokens without a pass of their own */
    int64_t proposed_tokens; /* drafts that the draft model made; drafted_tokens of them were verified */
    int64_t draft_budget;  /* drafts that the last step with tokens of running choices verified, of all of them together */
} di_scheduler_stats;

DI_API void di_scheduler_get_stats(const di_scheduler *scheduler, di_scheduler_stats *out);

#ifdef __cplusplus
}
#endif
#endif
