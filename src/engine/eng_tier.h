/* eng_tier.h - what lies below the KV store: a tier in host memory and, below it, disks (kv_ram.h, kv_disk.h). Three things happen:
 *
 *  - Keeping. A unit that is published, and a snapshot that is attached, is copied to the memory tier at once and written from there by
 *    the disks' own threads. So evicting from the device costs nothing, and what a crash leaves is what was written by then.
 *  - Restoring (eng_restore_*). When a request is queued, the chain of its keys is looked up in all tiers, and it is decided whether
 *    loading what is there is worth it: saved tokens at the speed of prefill against bytes at the bandwidth of the tier, with a deadline.
 *    Reads land in the memory tier. At admission they become units of the tree, and the ordinary prefix hit does the rest; whatever
 *    is missing by then is recomputed.
 *  - Care: flushing, purging, figures.
 *
 * Exactness: bytes come back as they were written or not at all (checksums), keys bind them to namespace, salt and ids, and the hit goes
 * through the same code as one in memory.
 *
 * All on the engine's thread, which never waits for a tier but in eng_tier_wait, and only when it has nothing else to do. */
#ifndef ENGINE_ENG_TIER_H
#define ENGINE_ENG_TIER_H

#include "kv/kv_lower.h"
#include "kv/kv_ram.h"
#include "model/model.h"

#include <deepinfer/engine.h>

#include <pthread.h>

#define ENG_LOWERS 2 /* a local disk, a shared one */

/* How what a request computes is kept. */
typedef struct eng_keep {
    kv_tenant tenant;
    int32_t class_id;
    int64_t ttl_s; /* 0 = that of the class */
    bool pinned;
} eng_keep;

typedef enum eng_source { ENG_FROM_RAM, ENG_FROM_LOWER, ENG_SOURCES = ENG_FROM_LOWER + ENG_LOWERS } eng_source;

typedef struct eng_tier_counters { /* sums */
    int64_t kept[KV_DISK_KINDS];   /* records that went to the memory tier */
    int64_t kept_bytes;
    int64_t not_kept;              /* no room in the memory tier, or a disk had too many waiting */
    int64_t lookups;               /* requests that were looked up below the device */
    int64_t load;                  /* decisions: worth loading */
    int64_t recompute;             /* something was there, but computing it is faster */
    int64_t late;                  /* loads that were cut short by their deadline */
    int64_t broken;                /* loads that missed something on the way */
    int64_t restored_units[ENG_SOURCES];
    int64_t restored_snapshots[ENG_SOURCES];
    int64_t restored_bytes[ENG_SOURCES];
    int64_t load_ns;               /* from the decision to the end of the last read */
} eng_tier_counters;

typedef enum eng_tier_load { ENG_LOAD_AUTO, ENG_LOAD_ALWAYS } eng_tier_load;

typedef struct eng_restore eng_restore;

/* What decides where a sequence may resume. */
typedef struct eng_text {
    di_replay replay;
    int64_t n_tokens;     /* that are known */
    int64_t decoder_from; /* of its mdl_seq */
} eng_text;

typedef struct eng_tier { /* owner: the engine */
    mdl_runner *runner;
    kv_store *kv;
    uint8_t name_space[KV_KEY_BYTES]; /* that of the store */
    eng_tier_load load;
    kv_ram *ram;
    kv_lower lowers[ENG_LOWERS];
    int32_t n_lowers;
    int64_t ttl_s[KV_DISK_CLASSES];
    int64_t began_ns;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool signalled; /* guarded: a lower tier has something */
    int64_t n_puts;          /* in flight, care operations included */
    eng_restore *restores;   /* that have not ended, abandoned ones included */
    struct eng_care *purges; /* that a lower tier has not done yet */
    int64_t n_purges;        /* begun; what a restore found before one is not used behind it */
    double token_ns;    /* of prefill, smoothed; 0 = not known yet */
    double byte_ns[ENG_LOWERS]; /* of loads, likewise */
    eng_tier_counters counters;
} eng_tier;

typedef struct eng_tier_options {
    mdl_runner *runner;
    kv_store *kv;
    uint8_t name_space[KV_KEY_BYTES];
    eng_tier_load load;
    int64_t ram_bytes;
    int64_t ttl_s[KV_DISK_CLASSES]; /* 0 = for ever */
} eng_tier_options;

/* Errors: DI_E_ARGUMENT, DI_E_MEMORY. */
di_status eng_tier_new(const eng_tier_options *options, eng_tier **out, di_error *err);
/* Below those that are there already; taken over. Its wake must be eng_tier_wake. */
void eng_tier_add(eng_tier *t, kv_lower lower);
/* Writes what waits, as long as that goes on, then closes the lower tiers. */
void eng_tier_free(eng_tier *t);

void eng_tier_wake(void *tier); /* any thread: there is something to poll */
void eng_tier_poll(eng_tier *t);
/* Waits until a lower tier has something, at most so long, and polls. */
void eng_tier_wait(eng_tier *t, int64_t timeout_ns);

/* Copies are taken at once; whether they are kept is of no concern to the caller. `at` = tokens of the prefix. */
/* True: the page was kept long ago and is written again, so that what is used here does not expire there; its snapshot should be, too. */
bool eng_tier_keep_page(eng_tier *t, const eng_keep *keep, const uint8_t *key, kv_slot *page);
void eng_tier_keep_state(eng_tier *t, const eng_keep *keep, const uint8_t *key, const kv_slot *state, uint32_t tag, int64_t at);

/* A pass ran n tokens, mostly of prompts, in ns. */
void eng_tier_note_prefill(eng_tier *t, int64_t n_tokens, int64_t ns);

/* Everything of a tenant, or of all with NULL, is not found any more from now on; disks give the bytes back by and by, and are not asked
 * for that tenant meanwhile. */
void eng_tier_purge(eng_tier *t, const kv_tenant *tenant);
bool eng_tier_is_purging(const eng_tier *t, kv_salt salt);
/* What the lower tiers have of the first n_units units of a text stays until it is purged. */
void eng_tier_pin(eng_tier *t, kv_salt salt, const int32_t *ids, int64_t n_units);

/* ---- restoring (eng_restore.c) ---- */

/* Looks up what ids [text->n_tokens] (copied) have in the lower tiers. NULL: nothing to look for, all that helps is on the device; or no
 * memory. */
eng_restore *eng_restore_start(eng_tier *t, kv_salt salt, const int32_t *ids, const eng_text *text);
bool eng_restore_ready(eng_restore *r, int64_t now_ns); /* nothing more comes */

typedef struct eng_restored { /* keeps what came from being evicted before the look-up */
    kv_unit *unit;     /* pinned; NULL = none */
    kv_slot *snapshot; /* held */
} eng_restored;

/* Makes what came units of the tree, and ends the restore. */
eng_restored eng_restore_finish(eng_restore *r, kv_salt salt);
void eng_restored_fini(kv_store *kv, eng_restored *restored); /* behind the look-up */
/* All of it, waiting for the lower tiers. */
eng_restored eng_restore_run(eng_tier *t, kv_salt salt, const int32_t *ids, const eng_text *text);
void eng_restore_abandon(eng_restore *r); /* its reads end by themselves; NULL is ignored */

/* ---- between the two files ---- */

void eng_restore_advance(eng_restore *r); /* acts upon what came of the lower tiers; an abandoned one is freed with its last read */
eng_restore *eng_restore_next(const eng_restore *r);
void eng_tier_note_kept(const eng_tier *t, kv_slot *page); /* the lower tiers have its bytes */
double eng_tier_smooth(double before, double now);

#endif
