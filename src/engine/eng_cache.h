/* eng_cache.h - where a sequence keeps its KV: a state and pages of the engine's store, and its way through the prefix tree (kv.h).
 *
 * A sequence that uses the cache resumes behind the longest prefix that is known: from a snapshot, or by recomputing the dependency halo
 * (model.md 4.4); rows of matched units are read, never written again. Its own units are published as they fill, with snapshots at the last
 * unit end of the prompt, every ENG_SNAPSHOT_TOKENS of it, and at the last unit end of the output. Results are bit for bit those of a
 * sequence that had to compute everything; only bounded replay, which is asked for, is an approximation.
 *
 * Bounded replay of the decoder (dspark.md 4.3) begins one window before a prompt's end, so what precedes is the encoder's alone: snapshots
 * have no decoder windows, the last one of a prompt lies before that place, and none behind it serves. */
#ifndef ENGINE_ENG_CACHE_H
#define ENGINE_ENG_CACHE_H

#include "engine/eng_tier.h"

#define ENG_SNAPSHOT_TOKENS 2048

/* Tags of states. A snapshot in the middle of a prompt has no decoder windows: it serves a prompt that goes on long enough behind it. */
enum { ENG_STATE_PARTIAL, ENG_STATE_WHOLE };

static inline bool eng_replays_encoder(di_replay replay) { return replay == DI_REPLAY_ENCODER || replay == DI_REPLAY_BOTH; }
static inline bool eng_replays_decoder(di_replay replay) { return replay == DI_REPLAY_DECODER || replay == DI_REPLAY_BOTH; }

/* For mdl_seq, of a prompt of n tokens. */
int64_t eng_decoder_from(const mdl_runner *r, di_replay replay, int64_t n);

typedef struct eng_cache {
    kv_store *store;
    eng_tier *tier;        /* below the store; NULL = nothing is */
    eng_keep keep;         /* how it keeps what this sequence computes */
    kv_slot *state;
    kv_slot **pages;       /* [n_pages] beside the model's list */
    int32_t n_pages;
    int32_t capacity;
    int64_t promised;      /* pages that may be taken without fail */
    bool active;            /* uses the tree */
    bool publishing;        /* and adds to it */
    di_replay replay;       /* of the encoder: a hit goes on with a truncated window (dspark.md 4.2): no snapshots, no halo */
    char *salt;
    size_t salt_size;
    int32_t *ids;           /* [n_ids] fed so far, while active */
    size_t n_ids;
    size_t ids_capacity;
    int64_t n_prompt;       /* tokens that were looked up */
    kv_unit *unit;          /* pinned: the last one matched or published */
    int64_t n_units;        /* up to it */
    kv_slot *rolling;       /* state behind `unit`, while decoding */
    int64_t rolling_at;     /* its position */
    int64_t stop;           /* prefill is cut here, where a snapshot is due; 0 = nowhere */
    int64_t cached;         /* tokens that did not have to run */
} eng_cache;

/* Takes a state, one that was promised or any other. Errors: DI_E_MEMORY (not of a promised one). */
di_status eng_cache_init(eng_cache *c, kv_store *store, mdl_runner *r, mdl_seq *seq, bool promised, di_error *err);
/* `whole`: the sequence ends well, and its last snapshot may be kept. */
void eng_cache_fini(eng_cache *c, mdl_seq *seq, bool whole);

/* Before the first token. Errors: DI_E_MEMORY. */
di_status eng_cache_activate(eng_cache *c, const void *salt, size_t size, di_replay replay, di_error *err);

/* What it publishes is kept in the lower tiers too; behind eng_cache_activate. */
void eng_cache_set_tier(eng_cache *c, eng_tier *tier, const eng_keep *keep);

/* Where a sequence starts that finds n_units units, and a snapshot that serves it behind `snapshot` of them (0 = none): its tokens that
 * need not run. */
int64_t eng_cache_start_of(const mdl_runner *r, const eng_text *text, int64_t n_units, int64_t snapshot);
/* Whether a snapshot with this tag, behind `at` units, serves. */
bool eng_cache_serves(const mdl_runner *r, const eng_text *text, uint32_t tag, int64_t at);
/* The deepest unit from `last` up whose snapshot serves; *units counts up to it. NULL: none, and *units is 0. */
kv_unit *eng_cache_snapshot(const mdl_runner *r, const eng_text *text, kv_unit *last, int64_t *units);

/* Lists that never move again until more than n_tokens tokens are reserved. Errors: DI_E_MEMORY. */
di_status eng_cache_list(eng_cache *c, mdl_seq *seq, int64_t n_tokens, di_error *err);

/* Pages that n_tokens tokens take. */
int64_t eng_cache_pages(const mdl_runner *r, int64_t n_tokens);

/* Extends the promise to n_pages pages in all, those it has included. False, and nothing changes, when they can't be promised. */
bool eng_cache_promise(eng_cache *c, int64_t n_pages);

/* Pages for n_tokens tokens in all, promised ones first. Errors: DI_E_MEMORY (what was taken stays). */
di_status eng_cache_reserve(eng_cache *c, mdl_seq *seq, int64_t n_tokens, di_error *err);

/* Notes tokens that are fed, and takes the last n back. Errors: DI_E_MEMORY. */
di_status eng_cache_note(eng_cache *c, const int32_t *ids, size_t n, di_error *err);
void eng_cache_forget(eng_cache *c, size_t n);

/* Loads what the tiers below have of it first, waiting for them. */
eng_restored eng_cache_restore(const eng_cache *c, const mdl_seq *seq);

/* Looks up what was noted, the whole prompt, when the cache is in use; seq->decoder_from is set. *start = tokens that need not run.
 * Errors: DI_E_MEMORY. */
di_status eng_cache_find(eng_cache *c, mdl_seq *seq, int64_t *start, di_error *err);

/* Makes `c` and `seq` the continuation of another sequence that no pass runs: whole pages are shared, the state and a page that is not
 * full yet are copied. One state must have been promised, and `promised` pages, of which the copy takes one; the rest stays promised to
 * `c`. n_tokens as in eng_cache_list. Errors: DI_E_MEMORY (of host lists; the promises are the caller's again). */
di_status eng_cache_fork(eng_cache *c, mdl_seq *seq, const eng_cache *from, const mdl_seq *from_seq, int64_t n_tokens, int64_t promised,
                         di_error *err);

/* As before the first token: nothing matched, no pages, nothing noted. */
void eng_cache_reset(eng_cache *c, mdl_seq *seq);

/* From here on the sequence holds what has no key (images, logits of every row): it neither looks up nor publishes. */
void eng_cache_leave(eng_cache *c);

/* Where the pass must end that begins at `position` (exclusive), at most `end`. */
int64_t eng_cache_limit(const eng_cache *c, const mdl_seq *seq, int64_t position, int64_t end);

/* Up to where the tokens are known that results of a pass from `position` on are for: `goal`, or a place where a snapshot is due
 * that must have every window, which makes every layer finish there (model.md 4.2). */
int64_t eng_cache_target(const eng_cache *c, int64_t position, int64_t goal);

/* After a pass: publishes what has filled, takes snapshots that are due. `whole`: decoder windows are complete. */
void eng_cache_update(eng_cache *c, mdl_seq *seq, bool whole);

#endif
