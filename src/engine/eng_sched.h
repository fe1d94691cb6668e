/* eng_sched.h - inside the scheduler (<deepinfer/scheduler.h>): tasks, choices, passes, tenants.
 *
 *   eng_queue_*    tenants and their waiting tasks            eng_sched_queue.c
 *   eng_plan_*     admission, memory, the next pass           eng_sched_plan.c
 *   eng_exec_*     the executor's thread: pass and sampling   eng_sched_exec.c
 *   eng_verify_*   tokens behind the rows of a pass           eng_sched_verify.c
 *   eng_draft_*    proposing drafts, taking them back         eng_sched_draft.c
 *   eng_auto_*     as many drafts as pay                      eng_sched_auto.c
 *   eng_retire_*   what a pass did to its choices             eng_sched_retire.c
 *   eng_load_*     what tiers below the device have           eng_sched_tier.c
 *
 * Threads: everything belongs to the thread that calls the scheduler, but for the pass that was handed to the executor and, of the
 * choices in it, `seq.n_tokens`, `seq.recent`, state and pages; the scheduler keeps its own count in `position`. Two passes take turns:
 * one runs, the other is planned or its results are handed out. Between two passes, with the executor waiting, results are taken in:
 * units published, snapshots and forks copied, memory of ended choices freed (serving.md 9: free only after the running step). */
#ifndef ENGINE_ENG_SCHED_H
#define ENGINE_ENG_SCHED_H

#include "core/pool.h"
#include "engine/eng_budget.h"
#include "engine/eng_grammar.h"
#include "engine/eng_masks.h"
#include "engine/engine_int.h"

#include <deepinfer/scheduler.h>

#include <pthread.h>

/* More than a rewind can take back is never verified. */
#define ENG_MAX_DRAFT (OPS_REWIND - 1)
_Static_assert(ENG_MAX_DRAFT == DI_MAX_VERIFIED, "figures of the scheduler have a place for each draft");
#define ENG_DRAFT_GROUP 64 /* sequences that the draft model runs at once */
#define ENG_DRAFT_CONTEXT 32 /* rows of context that a proposal needs, when some were left out before */

typedef enum eng_phase {
    ENG_WAITING, /* its task is in the queue */
    ENG_JOINING, /* waits for the task's first sequence to have run the prompt */
    ENG_PREFILL, /* tokens up to `goal` are known */
    ENG_DECODE,  /* each next token is sampled */
    ENG_ENDED
} eng_phase;

typedef struct eng_choice {
    di_task *task;
    int32_t index;
    eng_phase phase;
    bool in_flight; /* has rows in the running pass */
    di_task_end cancelled; /* how it shall end, RUNNING = not asked for */
    bool has_cache; /* `seq` and `cache` are set up */
    mdl_seq seq;
    eng_cache cache;
    eng_sampler *sampler; /* while it runs */
    eng_constraint *constraint; /* while it runs; NULL = free */
    int64_t position;     /* tokens in passes that were planned, drafts included: at most so many */
    int64_t goal;         /* of PREFILL */
    int64_t n_coming;     /* tokens of passes that are planned or run: at least so many */
    int32_t *out;         /* [n_out] sampled so far */
    int64_t n_out;
    int64_t out_capacity;
    int64_t join_pages;   /* promised for when it joins */
    int32_t drafts[ENG_MAX_DRAFT]; /* [n_drafts] what may follow the last token; written by the executor */
    float confidence[ENG_MAX_DRAFT];
    int32_t n_drafts;
    bool forced;          /* the drafts are text of the grammar, not of the draft model */
    float survival[ENG_MAX_DRAFT]; /* with `draft_auto`: of the last proposal before anything was cut, 1 where nothing was said */
    float stale[ENG_MAX_DRAFT];    /* and of the one before it */
    eng_law *laws;        /* while it runs, [draft_length + 1] what drafts were drawn from, and scratch; NULL = drafts are coupled */
} eng_choice;

typedef struct eng_tenant eng_tenant;

struct di_task {
    di_scheduler *scheduler;
    di_task *next; /* in the queue of its tenant, among running tasks, or among ended ones */
    di_task *previous;
    eng_tenant *tenant;
    void *user;
    di_sampling sampling; /* owned (eng_settings.h); the seed is that of choice 0 */
    int32_t *prompt; /* [n_prompt] */
    int64_t n_prompt;
    di_grammar *grammar; /* retained; NULL = free */
    bool grammar_waits;
    int32_t grammar_after;
    bool grammar_closes;
    bool grammar_jumps;
    int64_t max_tokens;
    int32_t priority;
    int64_t queue_deadline;
    int64_t deadline;
    uint64_t arrival;   /* order of submits */
    uint64_t admission; /* order of first admissions, 0 = never */
    bool no_cache;
    bool waiting;       /* in the queue */
    bool preempting;    /* not planned any more, leaves when nothing of it is in flight */
    bool was_asked;     /* the tiers below the device were asked, since it was last put in the queue */
    bool is_loading;    /* in the scheduler's list: it is passed by */
    di_task *next_loading;
    eng_restore *restore; /* NULL = nothing is on its way */
    eng_keep keep;
    di_verify verify;
    bool marked;        /* in the list of tasks with something cancelled */
    di_task *next_marked;
    int32_t n;
    int32_t n_live;     /* choices that have not ended */
    eng_choice choices[];
};

struct eng_tenant {
    eng_tenant *next_hash;
    eng_tenant *next;        /* among those with waiting tasks */
    eng_tenant *previous;
    di_task *first;          /* waiting: higher priority, then earlier arrival */
    di_task *last;
    di_tenant_state state;
    double weight;
    double service;          /* virtual tokens (scheduler.h) */
    int64_t n_waiting;
    int64_t n_running;
    int64_t prompt_tokens;
    int64_t generated_tokens;
    bool pinned;             /* what its tasks keep */
    uint64_t hash;
    size_t salt_size;        /* of the name, without NUL */
    char name[];
};

/* Rows of one choice in a pass. */
typedef struct eng_part {
    eng_choice *choice;
    int32_t n;           /* a decode row and its drafts: before settling, at most so many */
    int32_t ids_at;      /* in the pass's ids */
    int64_t begin;       /* position of the first row; of decode rows known when settled */
    int64_t n_after;     /* mdl_item */
    bool prefill;
    bool joins;          /* the end of a prompt that other choices wait for */
    int32_t first_result;
    int32_t n_right;     /* drafts that were right, an id that ends among them */
    bool forced;         /* its drafts are text of the grammar */
    float confidence[ENG_MAX_DRAFT]; /* [n - 1] of decode rows: raw, in the drafts that are verified */
    int32_t n_results;   /* of its last row: one, or one for each choice that joins; of decode rows one each */
} eng_part;

typedef struct eng_result {
    eng_choice *choice;
    int32_t row;         /* of the logits */
    int64_t position;
    bool taken;          /* sampled, and not behind a draft that was wrong */
    di_status status;
    di_sample sample;
} eng_result;

typedef struct eng_pass {
    eng_part *parts;     /* [step_tokens] */
    int32_t n_parts;
    int32_t *ids;        /* [step_tokens] */
    int32_t n_ids;
    int32_t n_prefill;
    mdl_item *items;     /* [step_tokens], made when the pass is handed over */
    int32_t n_items;
    eng_result *results; /* [step_tokens + max_running] */
    int32_t n_results;
    int32_t n_rows;      /* of logits */
    di_status status;
    di_error err;        /* of the pass, or of the first result that failed */
    eng_mask_list masks; /* of choices with a grammar; jobs [max_running] */
    bool proposed;       /* drafts for the next one were made, */
    int32_t n_proposed;  /* so many */
    bool leads;          /* passes planned behind it shall have rows for drafts */
    int64_t draft_ns;
    int64_t began_ns;
    int64_t ended_ns;
} eng_pass;

typedef struct eng_executor {
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    eng_pass *pass; /* guarded: to run, NULL when it is done */
    bool quit;
    pool *sampling; /* NULL: one thread */
    eng_masks masks;
} eng_executor;

/* Drafts as far as they pay. The executor's while it runs a pass, but for the scratch, which is settling's; between passes the
 * scheduler's. */
typedef struct eng_auto {
    bool on;
    eng_cost pass;             /* with drafts, by rows */
    eng_cost plain;            /* without: rows of one sequence each, which have less in common */
    eng_cost proposal;         /* by sequences, up to a group */
    float mean[ENG_MAX_DRAFT]; /* survival of late proposals */
    int32_t n_idle;            /* passes since the last proposal */
    int32_t n_cuts;            /* passes that were cut since the last one that was not */
    bool probing;              /* the last proposal is a trial: it is verified in full */
    eng_claim *claims;         /* [max_running] */
    int32_t *heap;             /* [max_running] */
} eng_auto;

#define ENG_SURVIVAL_BINS 10

/* What was said of prefixes whose survival lies in one tenth, and what came. */
typedef struct eng_survival_bin {
    double expected;
    int64_t n_right;
    int64_t n;
} eng_survival_bin;

#define ENG_FAILURES 16 /* messages of one step that are kept apart; further ones share the last place */
#define ENG_TENANT_BUCKETS 1024

struct di_scheduler {
    di_engine *engine;
    di_task_event_fn on_events;
    void *user;
    di_script_fn script;
    void *script_user;
    di_vocabulary *vocabulary; /* NULL: no tasks with a grammar */
    int32_t step_tokens;
    int32_t max_running;
    int64_t max_waiting;
    int32_t ahead;
    float *logits; /* [step_tokens, vocab], executor */
    float *draft_logits; /* [most blocks, vocab], executor; NULL = no drafts */
    int32_t draft_length; /* of proposals; 0 = none */
    int32_t draft_group;
    int32_t draft_turn;   /* proposals of a part of the sequences begin here: each has its turn. Executor */
    eng_auto automatic;
    bool proposing;       /* rows for drafts are planned */
    eng_survival_bin bins[ENG_SURVIVAL_BINS];
    eng_executor exec;
    eng_pass passes[2];
    eng_pass *flight; /* runs; NULL = nothing */
    eng_pass *plan;
    /* queue */
    eng_tenant *buckets[ENG_TENANT_BUCKETS];
    uint64_t seed; /* of their hash */
    int64_t n_tenants;
    eng_tenant *waiting; /* tenants with waiting tasks */
    int64_t n_waiting;
    di_task *loading;      /* waiting tasks that are passed by while something is loaded for them */
    int64_t n_loading;
    int64_t next_deadline; /* no waiting task has an earlier one; INT64_MAX = none */
    double service_floor;  /* of the tenant that was served last */
    /* running: by rank */
    di_task *first;
    di_task *last;
    int64_t n_running;
    int32_t n_choices;
    int32_t n_preempting;
    int32_t turn;         /* decode rows that the last pass left out start here */
    eng_choice **ready;   /* [max_running] scratch of planning */
    uint64_t n_arrivals;
    uint64_t n_admissions;
    uint64_t freed;        /* grows with everything that gives memory back */
    uint64_t refused_at;   /* `freed` when an admission was refused; admission waits for more */
    bool refused;
    di_task *marked;
    di_task *ended;        /* to be freed behind the callback */
    di_task_event *events; /* [events_capacity] */
    size_t n_events;
    size_t events_capacity;
    di_error failures[ENG_FAILURES]; /* [n_failures] that events point to until they are handed out */
    size_t n_failures;
    size_t events_needed;  /* that one step can produce at most, with all tasks there are */
    di_scheduler_stats stats;
};

/* ---- queue ---- */

eng_tenant *eng_queue_tenant(di_scheduler *s, const char *name, bool make); /* NULL: not there, or no memory */
void eng_queue_add(di_scheduler *s, di_task *task);
void eng_queue_remove(di_scheduler *s, di_task *task);
/* The task that is next, by priority, service, arrival; NULL = none may go. */
di_task *eng_queue_next(const di_scheduler *s);
/* Calls fn for each waiting task whose deadline has passed. fn may take it out of the queue. */
void eng_queue_expire(di_scheduler *s, int64_t now, void (*fn)(di_scheduler *s, di_task *task));
void eng_queue_charge(eng_tenant *tenant, double tokens);
void eng_queue_fini(di_scheduler *s);

/* ---- what tiers below the device have; without them each does nothing ---- */

void eng_load_step(di_scheduler *s); /* once a step, before planning */
/* Looks it up below the device, unless that was done. True: something is being loaded, pass it by. */
bool eng_load_ask(di_scheduler *s, di_task *task);
/* At its admission: what came becomes units of the tree. eng_restored_fini behind the look-up. */
eng_restored eng_load_take(di_scheduler *s, di_task *task);
void eng_load_attach(const di_scheduler *s, const di_task *task, eng_cache *cache); /* it keeps what it computes */
void eng_load_pin(const di_scheduler *s, const di_task *task);   /* what it found stays, when it says so */
void eng_load_give_up(di_task *task); /* it leaves the queue, or comes back to it */
int64_t eng_load_next(const di_scheduler *s); /* when to step again, though idle, because something is being written; INT64_MAX = never */
void eng_load_note(const di_scheduler *s, const eng_pass *p);    /* the speed of a pass */

/* ---- planning ---- */

void eng_plan_next(di_scheduler *s); /* fills s->plan */
/* Takes what has ended or was preempted meanwhile out of the plan, fills in sampled ids, makes the items. False: nothing is left. */
bool eng_plan_settle(di_scheduler *s);

/* What a choice samples with, while it runs (eng_sched_open.c): the sampler has scratch as large as the vocabulary. Opening goes over what
 * was generated before a preemption. Errors: DI_E_MEMORY, those of eng_constraint_new. */
di_status eng_choice_open(di_scheduler *s, eng_choice *choice, di_error *err);
void eng_choice_close(eng_choice *choice);

/* ---- executor ---- */

di_status eng_exec_start(di_scheduler *s, di_error *err);
void eng_exec_stop(di_scheduler *s);
void eng_exec_submit(di_scheduler *s, eng_pass *pass);
void eng_exec_wait(di_scheduler *s);

/* ---- verifying and drafting: on the executor's thread, or those of its pool ---- */

/* Samples the tokens of a part. */
void eng_verify_part(const di_scheduler *s, eng_pass *p, eng_part *part);
const float *eng_verify_logits(const di_scheduler *s, const eng_result *r);
/* Most drafts that a choice of the task may have in a pass. */
static inline int32_t eng_most_drafts(const di_scheduler *s, const di_task *task)
{
    return task->grammar_jumps ? ENG_MAX_DRAFT : s->draft_length;
}
/* Drafts that were wrong leave the sequence. */
void eng_draft_rewind(const eng_pass *p, const eng_part *part);
/* Drafts for the next pass: text that a grammar forces, and the draft model's where they pay. Returns for how many choices it made some. */
int32_t eng_draft_propose(di_scheduler *s, eng_pass *p);

/* ---- as many drafts as pay ---- */

/* Times passes and proposals: up to a second or so. Errors: DI_E_MEMORY, DI_E_DEVICE. */
di_status eng_auto_open(di_scheduler *s, di_error *err);
void eng_auto_close(di_scheduler *s);
/* Leaves each decoding choice of a pass as many drafts as shall be verified. */
void eng_auto_cut(di_scheduler *s, const eng_pass *p);
/* How many of n sequences of this pass shall have drafts in the next: all, none, or a few as a trial. Executor. */
int32_t eng_auto_proposes(di_scheduler *s, const eng_pass *p, int32_t n);
/* Whether the next pass may leave the draft model's context out, for no proposal is near. Executor. */
bool eng_auto_rests(const di_scheduler *s, const eng_pass *p);
/* Whether drafts may be there for the pass behind the next. Executor. */
bool eng_auto_wants_rows(const di_scheduler *s);
/* What the pass took, and proposals for so many sequences. Executor. */
void eng_auto_timed(di_scheduler *s, const eng_pass *p, double seconds, int32_t n_proposals, double proposing);
/* The choice has a new proposal. Executor. */
void eng_auto_learn(di_scheduler *s, eng_choice *choice);

/* ---- retiring ---- */

void eng_retire_pass(di_scheduler *s, eng_pass *pass);
/* Ends a choice that is not in flight, with an event. */
void eng_retire_choice(di_scheduler *s, eng_choice *choice, di_task_end end, const di_sample *sample, const di_error *error);
/* Back into the queue, at once or when the running pass has retired. */
void eng_retire_preempt(di_scheduler *s, di_task *task);
/* Ends what was cancelled and is not in flight. */
void eng_retire_marked(di_scheduler *s);
/* Asks for an end of the choices that have not ended. */
void eng_retire_ask(di_task *task, int32_t first, int32_t n, di_task_end end);
void eng_retire_free(di_task *task);

#endif
