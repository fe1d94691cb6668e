/* kv.h - the KV cache in memory: slots of two sizes under a budget, and a prefix tree of content-addressed units over them.
 *
 * A *unit* is KV_UNIT_TOKENS consecutive tokens of a sequence (a page of the model's global KV): its key is SHA-256 over namespace,
 * tenant salt, parent key, token ids and image digest, so equal keys mean equal prefixes. A unit may carry a *snapshot*: the state
 * that a sequence has right behind it (window rings). Bytes are opaque here: the room knows no layer (serving.md 4.2, 4.5;
 * architecture.md 5).
 *
 * Pages and states are slots, counted by references: a running sequence holds its pages, the tree holds those of its units. A slot
 * that only the tree holds can be evicted, unless it is the page of a pinned unit or of an ancestor of one.
 *
 * Worst-case admission: kv_reserve promises slots, and taking a promised slot never fails. What could break a promise is refused
 * instead: another promise, a slot without one, and making an evictable slot unevictable (kv_hold, kv_pin).
 *
 * One thread at a time (the engine's). No function here waits for anything but `kv_memory.alloc`, and none reads slot contents. */
#ifndef KV_KV_H
#define KV_KV_H

#include <deepinfer/base.h>

#define KV_UNIT_TOKENS 128
#define KV_KEY_BYTES 32

/* Where slots come from: device or host memory, taken in slabs and given back when the store is freed. */
typedef struct kv_memory {
    void *(*alloc)(void *user, size_t bytes); /* 64-byte aligned; NULL when there is none */
    void (*free)(void *user, void *p);
    void *user;
} kv_memory;

typedef struct kv_options {
    size_t page_bytes;  /* of one unit's global KV; multiple of 64 */
    size_t state_bytes; /* of one state (running or snapshot); multiple of 64 */
    int64_t max_pages;
    int64_t max_states;               /* running states and snapshots together */
    uint8_t name_space[KV_KEY_BYTES]; /* digest of the model, layout version and approximations in use */
    kv_memory memory;
} kv_options;

typedef struct kv_store kv_store;
typedef struct kv_slot kv_slot; /* a page or a state */
typedef struct kv_unit kv_unit; /* a node of the tree */

/* Errors: DI_E_ARGUMENT, DI_E_MEMORY. */
di_status kv_store_new(const kv_options *options, kv_store **out, di_error *err);
void kv_store_free(kv_store *store); /* every reference but the tree's must have been given back; NULL is ignored */

/* ---- slots ---- */

/* Promises n_pages and n_states: they may be taken later with a promise, whatever happens meanwhile. Both or, with false, neither:
 * free and evictable slots, less what is promised already, are too few and memory for more can't be had. Evicts nothing yet. */
bool kv_reserve(kv_store *store, int64_t n_pages, int64_t n_states);
void kv_unreserve(kv_store *store, int64_t n_pages, int64_t n_states);

/* Takes a slot (reference count 1), evicting when none is free. With `promised` one promise is used up and the result is never NULL;
 * without (or when nothing is promised), NULL when all that is left is promised. Contents undefined. */
kv_slot *kv_take_page(kv_store *store, bool promised);
kv_slot *kv_take_state(kv_store *store, bool promised);
void *kv_data(const kv_slot *slot);

/* One reference more. False, and no reference, only when the slot is evictable and promised: never for a slot that a caller holds,
 * nor for the page of a pinned unit or of its ancestors. */
bool kv_hold(kv_slot *slot);
void kv_drop(kv_store *store, kv_slot *slot); /* one less; NULL is ignored */
bool kv_shared(const kv_slot *slot);          /* more than one reference: copy before writing */
void kv_set_tag(kv_slot *slot, uint32_t tag); /* a note of the slot's owner about its contents; 0 when it is taken */
uint32_t kv_tag(const kv_slot *slot);

/* ---- the tree ---- */

typedef struct kv_salt { /* who may hit: tenants with different salts never share */
    const void *data;
    size_t size;
} kv_salt;

/* Keys (kv_key.c), any thread: of what stands before the first unit, and of the unit behind `parent`; `image` NULL = all zero. `out` may
 * be `parent`. False: no SHA-256. */
bool kv_key_root(const uint8_t name_space[KV_KEY_BYTES], kv_salt salt, uint8_t out[KV_KEY_BYTES]);
bool kv_key_next(const uint8_t name_space[KV_KEY_BYTES], const uint8_t parent[KV_KEY_BYTES], const int32_t ids[KV_UNIT_TOKENS],
                 const uint8_t *image, uint8_t out[KV_KEY_BYTES]);

/* The units that match a prefix of ids[n], verified by their ids. They are borrowed until the next call that may evict (kv_take_page,
 * kv_take_state, kv_trim), so pin and hold what is needed first: kv_pin(resume), then kv_hold(kv_unit_snapshot(resume)). */
typedef struct kv_match {
    int64_t n_units;  /* matched */
    kv_unit *last;    /* the n_units-th, NULL when none */
    int64_t n_resume; /* units up to the longest snapshot inside the match; 0 = none */
    kv_unit *resume;  /* carries it */
} kv_match;

/* image[i] (32 bytes each, NULL = no images in any) is the digest that unit i's key includes: all zero for a unit without images. At
 * most `max_tokens` tokens are matched. Counts as a use of every matched unit and of the snapshot to resume from: look up once for a
 * request, not once a step. */
void kv_find(kv_store *store, kv_salt salt, const int32_t *ids, int64_t n, const uint8_t (*image)[KV_KEY_BYTES],
             int64_t max_tokens, kv_match *out);

/* The last of those of the first n_units units of a text without images that are there, NULL = none; borrowed as those of kv_find. Counts
 * as nothing. */
kv_unit *kv_peek(const kv_store *store, kv_salt salt, const int32_t *ids, int64_t n_units);
int64_t kv_depth(const kv_unit *unit); /* units of the prefix that ends there; of NULL 0 */

kv_unit *kv_parent(const kv_unit *unit); /* NULL: the first of its prefix */
const uint8_t *kv_unit_key(const kv_unit *unit);
kv_slot *kv_unit_page(const kv_unit *unit);
kv_slot *kv_unit_snapshot(const kv_unit *unit); /* NULL = none */

/* Adds the unit behind `parent` (NULL: the first, the only one that `salt` is needed for) whose page is full and will not change any
 * more; the tree takes a reference of its own. `image` is one digest, NULL = all zero. Pins and evicts nothing.
 * When an equal unit is there already, that one is returned and `page` stays only the caller's; to share, drop `page`, then hold the
 * unit's. NULL without memory or for a page that is in the tree elsewhere, which only costs a later hit. `parent` must be a unit that
 * is still there: hold it by kv_pin. */
kv_unit *kv_publish(kv_store *store, kv_unit *parent, kv_salt salt, const int32_t ids[KV_UNIT_TOKENS], const uint8_t *image,
                    kv_slot *page);

/* Gives the unit a snapshot, which must not change any more (the tree takes a reference); one that it has already stays, and a state
 * that is another unit's is ignored. The snapshot of a pinned unit may be evicted all the same. */
void kv_attach_snapshot(kv_store *store, kv_unit *unit, kv_slot *state);

/* A pinned unit and its ancestors are not evicted (a running sequence pins its last unit, and holds the pages of those it uses or
 * relies on the pin). False, and nothing is pinned, when pages that would stop being evictable are promised. NULL: true. */
bool kv_pin(kv_unit *unit);
void kv_unpin(kv_store *store, kv_unit *unit); /* NULL is ignored. Counts as the end of a use, of the ancestors too */

/* Evicts until at most that many pages and states are held by the tree alone, as far as pins allow. */
void kv_trim(kv_store *store, int64_t max_pages, int64_t max_states);

/* ---- counters ---- */

typedef struct kv_counters {
    int64_t pages_used;      /* held by someone else than the tree */
    int64_t pages_cached;    /* held by the tree alone */
    int64_t pages_evictable; /* of those, what no pin protects */
    int64_t pages_free;
    int64_t pages_absent; /* in the budget, but the memory has not been taken yet. used + cached + free + absent = max_pages */
    int64_t pages_promised;
    int64_t states_used; /* and the same for states; every cached state is evictable */
    int64_t states_cached;
    int64_t states_free;
    int64_t states_absent;
    int64_t states_promised;
    int64_t units;
    int64_t lookups; /* sums from here on */
    int64_t lookup_tokens;
    int64_t matched_tokens;
    int64_t resumed_tokens;
    int64_t pages_evicted; /* units that left the tree */
    int64_t states_evicted; /* snapshots that left the tree, alone or with their unit */
    int64_t published;
    int64_t duplicates;
    size_t bytes; /* of slabs, now */
} kv_counters;

void kv_get_counters(const kv_store *store, kv_counters *out);

/* Checks every invariant of slots, promises and tree (tests, fuzzing), in time linear in slots and units. Returns the name of the first
 * broken one, or NULL. */
const char *kv_check(const kv_store *store);

#endif
