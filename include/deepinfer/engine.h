/* deepinfer/engine.h - sequences of tokens through a model: feed, step, sample.
 *
 *   di_engine_open(model) -> di_sequence_new -> di_sequence_feed(prompt)
 *   loop: di_engine_step until di_sequence_ready; di_sequence_sample gives the next id and feeds it back
 *
 * An engine and its sequences belong to one thread at a time; engines of one model may run on different threads. Results do not
 * depend on how tokens are fed or batched, on chunk size or thread count: the same seed gives the same text.
 *
 * Several answers to one prompt: a sequence each, fed the same prompt, choice i with the seed s + i; then step them together.
 * Choice i is what a sequence alone with that seed gives. */
#ifndef DEEPINFER_ENGINE_H
#define DEEPINFER_ENGINE_H

#include <deepinfer/base.h>
#include <deepinfer/cache.h>
#include <deepinfer/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_engine di_engine;
typedef struct di_sequence di_sequence;

/* Bounded replay of windows, DeepSeek's production rules: approximations. Off, the default, is exact, and skips what no result depends
 * on. Entries of the prefix cache are never shared between settings. docs/replay.md has figures.
 *   ENCODER  behind a prefix hit, its last window runs again without the one before it, so that results depend on what was cached
 *            (dspark.md 4.2)
 *   DECODER  decoder layers run for the last window of a prompt only, and see nothing before it; results depend on the prompt alone
 *            (dspark.md 4.3). The prompt of a sequence is what it is fed first; with logits of every row it runs in full */
typedef enum di_replay {
    DI_REPLAY_OFF,
    DI_REPLAY_ENCODER,
    DI_REPLAY_DECODER,
    DI_REPLAY_BOTH
} di_replay;

/* How long what a request computes is kept below the device, from its last use on. */
typedef enum di_cache_class {
    DI_CACHE_CHAT, /* 7 days unless the options say otherwise */
    DI_CACHE_AGENT /* 3 days */
} di_cache_class;

#define DI_CACHE_CLASSES 2

typedef enum di_cache_load {
    DI_CACHE_LOAD_AUTO,  /* load what is there when that is faster than computing it, by speeds as they are measured */
    DI_CACHE_LOAD_ALWAYS
} di_cache_load;

/* Tiers of the prefix cache below kv_bytes (docs/kv_cache.md). All zero: there are none. Results do not change by a bit. */
typedef struct di_cache_options {
    int64_t ram_bytes;      /* memory tier; 0 = a sixteenth of RAM when there is a folder, else none */
    const char *dir;        /* folder of this engine alone, made when it is not there; NULL = none */
    int64_t dir_bytes;      /* its budget; 0 = 16 GiB */
    const char *shared_dir; /* folder that several engines use at once, on this machine or others; NULL = none */
    int64_t shared_bytes;   /* its budget, of all engines together; 0 = 16 GiB */
    int64_t tenant_bytes;   /* most that one tenant has of each folder; 0 = no quota */
    int64_t ttl_s[DI_CACHE_CLASSES]; /* seconds; 0 = as above */
    int32_t admit;          /* what was computed that often is written to the folders; 0, 1 = at once */
    di_cache_load load;
} di_cache_options;

typedef struct di_engine_options {
    const char *backend;  /* "auto" or NULL = the fastest one available; "ref", "cpu" ... */
    int32_t n_threads;    /* 0 = all processors of this process */
    int32_t chunk_tokens; /* most tokens of one forward pass; 0 = default (256) */
    int64_t max_tokens;   /* longest sequence; 0 = the model's limit */
    di_trace_fn trace;    /* NULL = off; with it every layer runs for every token. Called on the thread that steps */
    void *trace_user;
    int64_t kv_bytes;     /* memory for KV, taken as it is used: pages and states of sequences, the prefix cache; 0 = a quarter of RAM */
    di_replay replay;
    bool draft;           /* load the checkpoint's draft model, when it has one (di_sequence_draft) */
    const char *cpu_isa;  /* backend "cpu": avx2, avx512, avx512vnni, avx512bf16; "auto", NULL = the widest there is; same bits */
    di_cache_options cache;
    int64_t ram_budget;   /* bytes of weights in memory; 0 = all. What does not fit is read from the checkpoint's files when a token
                           * needs it: same bits, at the disk's speed (docs/streaming.md). Backends cpu and ref */
    int32_t ram_percent;  /* the same as a share of the checkpoint's bytes, 1..100, when ram_budget is 0; 0 = all */
    const char *weight_cache; /* folder, made when it is not there, in which the first start leaves weights in the form that the backend
                           * computes with and later ones map them (docs/weight_cache.md). NULL = none. Backend cpu. Nothing that is
                           * wrong with it fails a start: see di_engine_get_weight_stats */
    const char *cpu_pin;  /* backend "cpu": "on" = every worker on a core of its own, with one left for the thread that steps, weights on
                           * all memory nodes in turn; "off"; "auto" or NULL = on where there are several nodes. What cannot be is said
                           * in the placement of di_engine_get_weight_stats */
} di_engine_options;

DI_API void di_engine_options_default(di_engine_options *out); /* the same as all zero */

/* `options` may be NULL. The model must outlive the engine. Errors: DI_E_ARGUMENT, DI_E_UNSUPPORTED, DI_E_MEMORY, DI_E_DEVICE; of the
 * cache's folders DI_E_IO, DI_E_STATE (another engine has it); of a RAM budget DI_E_LIMIT
 * (too small: the message says what it takes), DI_E_IO. */
DI_API di_status di_engine_open(const di_model *model, const di_engine_options *options, di_engine **out, di_error *err);
DI_API void di_engine_close(di_engine *engine); /* frees its sequences too */

/* Name of the backend in use. Static string. */
DI_API const char *di_engine_backend(const di_engine *engine);

typedef struct di_engine_stats {
    int64_t n_steps;
    int64_t n_tokens;       /* tokens that went through the model */
    int64_t sequence_bytes; /* memory held by sequences now */
    int32_t n_threads;
} di_engine_stats;

DI_API void di_engine_get_stats(const di_engine *engine, di_engine_stats *out);

/* How weights were prepared when the engine was opened. */
typedef struct di_weight_stats {
    int64_t load_ns;       /* time that it took */
    int64_t mapped_bytes;  /* weights in forms that the weight cache had */
    int64_t written_bytes; /* of the file that was added to it */
    char note[640];        /* one line for people: where weights came from, or why not from the cache; "" without a weight cache */
    char placement[160];   /* one line: where threads and weights are, or why not where they should be; "" = the system decides */
} di_weight_stats;

DI_API void di_engine_get_weight_stats(const di_engine *engine, di_weight_stats *out);

/* How fast the device copies in its memory: bytes a second, read and written ones together. Takes two buffers of so many bytes, several
 * times its cache to say something, and gives them back. Errors: DI_E_MEMORY, DI_E_DEVICE; *rate stays then. */
DI_API di_status di_engine_measure_copy(di_engine *engine, size_t bytes, double *rate, di_error *err);

/* Weights that are read when they are needed (ram_budget); all zero when everything is in memory. */
typedef struct di_stream_stats {
    int64_t budget_bytes;
    int64_t resident_bytes; /* of weights that stay in memory */
    int64_t cache_bytes;    /* of slots for routed experts */
    int64_t experts;        /* routed ones of the model */
    int64_t slots;          /* of which so many are in memory at a time */
    int64_t hits;           /* sums from here on: experts that a layer needed and found, or that a guess was already reading */
    int64_t misses;
    int64_t guessed;        /* read because the next layer was likely to need them */
    int64_t guessed_right;
    int64_t engram_rows;    /* rows of Engram tables that were read */
    int64_t read_bytes;
    int64_t wait_ns;        /* time in which the computation waited for the disk */
} di_stream_stats;

DI_API void di_engine_get_stream_stats(const di_engine *engine, di_stream_stats *out);

typedef struct di_kv_stats {
    int64_t bytes;          /* taken from the budget so far */
    int64_t pages;          /* in the budget, of 128 tokens each */
    int64_t pages_used;     /* by sequences */
    int64_t pages_cached;   /* by the prefix cache alone: given up when pages are needed */
    int64_t states;         /* in the budget: fixed parts of sequences, snapshots of the prefix cache */
    int64_t states_used;
    int64_t states_cached;
    int64_t lookup_tokens;  /* sums over all sequences that use the prefix cache: tokens of prompts */
    int64_t matched_tokens; /* that the cache knows */
    int64_t resumed_tokens; /* that did not have to run */
    int64_t pages_evicted;
} di_kv_stats;

DI_API void di_engine_get_kv_stats(const di_engine *engine, di_kv_stats *out);

typedef enum di_cache_tier { DI_CACHE_MEMORY, DI_CACHE_DIR, DI_CACHE_SHARED, DI_CACHE_TIERS } di_cache_tier;

typedef struct di_cache_tier_stats {
    int64_t max_bytes;          /* 0 = there is no such tier */
    int64_t bytes;              /* now */
    int64_t units;              /* records of 128 tokens each, now */
    int64_t snapshots;          /* records of the state behind a unit, now */
    int64_t restored_units;     /* sums from here on: that came to the device out of this tier */
    int64_t restored_snapshots;
    int64_t restored_bytes;
    int64_t stored_bytes;       /* payload that was written */
    int64_t written_bytes;      /* everything that was written, rewriting included: over stored_bytes it is the write amplification */
    int64_t evicted;            /* records that went for room */
    int64_t expired;
    int64_t corrupt;            /* checksums that were wrong: the record counts as not there */
    int64_t failed;             /* reads and writes that the system refused */
    int64_t refused;            /* records that found no room */
} di_cache_tier_stats;

typedef struct di_cache_stats {
    di_cache_tier_stats tiers[DI_CACHE_TIERS];
    int64_t lookups;    /* requests that were looked for below the device */
    int64_t loads;      /* decisions: to load what is there */
    int64_t recomputes; /* to compute it, which is faster */
    int64_t late;       /* reads that their deadline cut */
    int64_t incomplete; /* loads that missed something on the way */
    int64_t load_ns;    /* time of loads */
} di_cache_stats;

DI_API void di_engine_get_cache_stats(const di_engine *engine, di_cache_stats *out);
/* What each tenant has in the folder of a tier, those with the most bytes first; at most n are written, how many there are is returned.
 * None of DI_CACHE_MEMORY, which keeps no accounts. Any thread. */
DI_API size_t di_engine_get_cache_tenants(const di_engine *engine, di_cache_tier tier, di_cache_tenant *out, size_t n);
/* Everything that tenant `salt` [n] has below the device is forgotten, and so is what is cached on the device, of all tenants; with NULL
 * everything of everybody. The thread of the engine, or of its scheduler. */
DI_API void di_engine_purge_cache(di_engine *engine, const void *salt, size_t n);

/* Errors: DI_E_MEMORY (no KV memory left for another one). */
DI_API di_status di_sequence_new(di_engine *engine, di_sequence **out, di_error *err);
DI_API void di_sequence_free(di_sequence *sequence); /* at any time, also with tokens queued; not after its engine was closed */

/* Queues ids behind what was fed before. Errors: DI_E_ARGUMENT (an id outside the vocabulary; nothing is queued), DI_E_LIMIT (longer than
 * max_tokens), DI_E_MEMORY. */
DI_API di_status di_sequence_feed(di_sequence *sequence, const int32_t *ids, size_t n, di_error *err);

/* The same with given embedding rows for some tokens (image spans, model.md 3.5.3, 3.9). */
typedef struct di_input {
    const int32_t *ids;        /* [n] */
    size_t n;
    const uint8_t *in_image;   /* [n] 1 = inside an image span; NULL = all text */
    const uint16_t *embed;     /* [n, hidden_size] BF16 rows used where in_image; NULL = from the table */
} di_input;

DI_API di_status di_sequence_feed_input(di_sequence *sequence, const di_input *input, di_error *err);

/* Lets the sequence use the engine's prefix cache: what the first feed has in common with earlier sequences of the same salt does not run
 * again, and what this one computes is kept for later ones while there is room. No result changes by a bit (unless the engine's
 * `replay` is on). Feed the whole prompt at once. Salt [n]: who may share, NULL and 0 = everybody without one. Sequences with images or
 * di_sequence_keep_logits go without. Before the first feed (else DI_E_STATE). Errors: DI_E_MEMORY. */
DI_API di_status di_sequence_use_cache(di_sequence *sequence, const void *salt, size_t n, di_error *err);
DI_API int64_t di_sequence_cached(const di_sequence *sequence); /* tokens of the prompt that did not have to run */

/* Wanted logits: by default those of the last fed token only. With `all` each later fed token's logits are kept. Errors: DI_E_STATE
 * while tokens are queued. */
DI_API di_status di_sequence_keep_logits(di_sequence *sequence, bool all, di_error *err);

/* One forward pass over queued tokens of all sequences, at most chunk_tokens. *n_tokens = how many it ran (0: nothing was queued).
 * Errors: DI_E_MEMORY when its results find no room, before anything ran: the step can be repeated. Any failure of the pass
 * itself makes the sequences in it unusable: everything but free then gives DI_E_STATE. Others go on. */
DI_API di_status di_engine_step(di_engine *engine, int32_t *n_tokens, di_error *err);

/* Steps until the sequence has no queued tokens; other sequences advance too. Errors: as di_engine_step. */
DI_API di_status di_sequence_run(di_sequence *sequence, di_error *err);

/* True when everything fed went through the model, so that logits and samples of the last token are there. */
DI_API bool di_sequence_ready(const di_sequence *sequence);
DI_API int64_t di_sequence_length(const di_sequence *sequence); /* tokens fed, queued ones included */

/* Logits [n, vocab_size] fp32 of the last n = *n_rows tokens that were run (1 unless keep_logits). Borrowed until the next step or feed.
 * Errors: DI_E_STATE when not ready. */
DI_API di_status di_sequence_logits(const di_sequence *sequence, const float **logits, int32_t *n_rows, di_error *err);

/* Sends the caches of a ready sequence to the engine's trace ("cache.L0.window" ...), unpacked. Errors: DI_E_STATE. */
DI_API di_status di_sequence_trace_caches(di_sequence *sequence, di_error *err);

/* --- Sampling --------------------------------------------------------------------------------------------------------- */

typedef struct di_logit_bias {
    int32_t id;
    float bias;
} di_logit_bias;

/* How the next token is chosen. Order: bias, penalties, min_tokens, temperature, min-p, top-k, top-p, then Gumbel-max with noise
 * that is a function of (seed, position, token id) alone (architecture.md 5). Start from di_sampling_default.
 * Equal logits rank by lower id. Ids with a logit of +inf share the whole probability, -inf is never chosen. */
typedef struct di_sampling {
    float temperature;         /* 0..100; 0 = greedy */
    float top_p;               /* 0..1; 1 = off; 0 = the best id only */
    float min_p;               /* 0..1, of the best id's probability; 0 = off */
    int32_t top_k;             /* 0 = off */
    float repetition_penalty;  /* 0.01..100, for ids of prompt and output; 1 = off */
    float presence_penalty;    /* -2..2, for ids of the output; 0 = off */
    float frequency_penalty;   /* -2..2, times how often the output has the id; 0 = off */
    uint64_t seed;             /* choice i of several is given seed + i */
    const di_logit_bias *bias; /* [n_bias], each -100..100, added up for an id named twice; copied */
    size_t n_bias;
    int32_t min_tokens;        /* ids in stop_ids cannot be chosen before this many tokens were sampled */
    const int32_t *stop_ids;   /* [n_stop_ids]; copied */
    size_t n_stop_ids;
    int32_t n_top_logprobs;    /* 0..20 */
} di_sampling;

DI_API void di_sampling_default(di_sampling *out); /* temperature 1, everything else off, seed 0 */

#define DI_MAX_TOP_LOGPROBS 20

typedef struct di_token_logprob {
    int32_t id;
    float logprob;
} di_token_logprob;

typedef struct di_sample {
    int32_t id;
    float logprob; /* of the raw logits (architecture.md 5) */
    bool is_stop;  /* id is in stop_ids */
    int32_t n_top;
    di_token_logprob top[DI_MAX_TOP_LOGPROBS]; /* best first, ties to the lower id */
} di_sample;

/* Copies `sampling`; before the first token is fed, once or several times (else DI_E_STATE). Without it di_sampling_default holds.
 * Errors: DI_E_ARGUMENT (names the field and its range), DI_E_MEMORY. */
DI_API di_status di_sequence_set_sampling(di_sequence *sequence, const di_sampling *sampling, di_error *err);

/* Chooses the next token of a ready sequence and feeds it. Penalties count the tokens sampled so far (repetition_penalty also those fed).
 * Errors: DI_E_STATE when not ready, DI_E_LIMIT when the context is full, DI_E_FORMAT when the logits hold NaN. */
DI_API di_status di_sequence_sample(di_sequence *sequence, di_sample *out, di_error *err);

/* The same among the ids whose bit in the mask is set (di_matcher_mask): bit id % 32 of word id / 32; bits past the vocabulary are ignored.
 * Log-probabilities are those of what is left. Errors: also DI_E_STATE when nothing is left. */
DI_API di_status di_sequence_sample_masked(di_sequence *sequence, const uint32_t *mask, di_sample *out, di_error *err);

/* --- Drafts (dspark.md) ------------------------------------------------------------------------------------------------- */

#define DI_MAX_DRAFT 64

/* How many tokens the draft model proposes at once; 0 without one. */
DI_API int32_t di_engine_draft_length(const di_engine *engine);

/* Proposes what follows behind `anchor`, the token that will be fed next, each time the likeliest: *n ids, at most `capacity`, and the raw
 * confidence in each (its sigmoid estimates how likely the draft is right when those before it are). The sequence, which must have
 * nothing queued, does not change. Errors: DI_E_UNSUPPORTED (no draft model), DI_E_STATE, DI_E_ARGUMENT, DI_E_MEMORY, DI_E_DEVICE. */
DI_API di_status di_sequence_draft(di_sequence *sequence, int32_t anchor, int32_t *ids, float *confidence, int32_t capacity, int32_t *n,
                                   di_error *err);

/* --- Stop strings ------------------------------------------------------------------------------------------------------ */

#define DI_MAX_STOP_STRINGS 16
#define DI_MAX_STOP_BYTES 1024

/* Holds back streamed text while it may still become a stop string. The string that is complete first ends the text (of several
 * that end together the longest, of equal ones the first given): neither it nor what follows comes out. How the text is cut
 * into pieces changes nothing. If strings and text are UTF-8 and pieces end between characters, so does what comes out. A
 * di_stop belongs to one thread at a time and needs no engine. */
typedef struct di_stop di_stop;

/* Copies n strings; sizes[i] is the length of strings[i] in bytes, 1..DI_MAX_STOP_BYTES (`sizes` NULL: they end with NUL). With
 * n = 0 everything passes. Errors: DI_E_ARGUMENT (more than DI_MAX_STOP_STRINGS, an empty or too long one), DI_E_MEMORY. */
DI_API di_status di_stop_new(const char *const *strings, const size_t *sizes, size_t n, di_stop **out, di_error *err);
DI_API void di_stop_free(di_stop *stop);

/* Takes n bytes; *out is what may be shown now, borrowed until the next call, maybe empty, not ended with NUL. After a match
 * text is swallowed. Errors: DI_E_MEMORY (the piece is lost), DI_E_LIMIT (a piece of over 1 GiB; nothing is taken). */
DI_API di_status di_stop_push(di_stop *stop, const char *text, size_t n, const char **out, size_t *n_out, di_error *err);

/* The text has ended: *out is what was held back, empty after a match. Errors: DI_E_MEMORY. */
DI_API di_status di_stop_finish(di_stop *stop, const char **out, size_t *n_out, di_error *err);

DI_API int di_stop_matched(const di_stop *stop); /* index of the string that ended the text; -1 = none so far */
DI_API void di_stop_reset(di_stop *stop);        /* ready for another text */

#ifdef __cplusplus
}
#endif
#endif
