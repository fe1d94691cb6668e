/* kv_int.h - inside of the KV store: slots and their standing, units, and the ranks that eviction goes by.
 *
 * Every slot has one standing, derived from its references and its unit (kv_standing_of). Whoever changes what it derives from calls
 * kv_slot_settle, the only place where counters of a pool and the heap of victims follow. So
 *
 *   ready = count[KV_FREE] + count[KV_EVICTABLE],    promised <= ready, always
 *
 * and both sides are exact after every step. Slots whose memory has not been taken are not ready: a promise that needs them takes the
 * memory first. */
#ifndef KV_KV_INT_H
#define KV_KV_INT_H

#include "kv/kv.h"

/* Place of a unit or snapshot among the victims: the least (value, tick) goes first. */
typedef struct kv_rank {
    uint64_t value;
    uint64_t tick; /* of the last use */
    int64_t at;    /* 1 + index in the heap, 0 = no candidate */
} kv_rank;

typedef struct kv_heap { /* binary, least on top */
    kv_rank **items;     /* [capacity] */
    int64_t n;
    int64_t capacity;
} kv_heap;

typedef enum kv_standing {
    KV_FREE,
    KV_USED,      /* someone else than the tree holds it */
    KV_LOCKED,    /* the tree alone, but a pin protects it; pages only */
    KV_EVICTABLE, /* the tree alone */
    KV_STANDINGS
} kv_standing;

typedef struct kv_slab kv_slab;

typedef struct kv_pool { /* the slots of one size; owner: its store */
    kv_store *store;
    size_t slot_bytes;
    int64_t max;
    int64_t slab_slots; /* of a full slab; the last one may have fewer */
    int64_t n_slots;    /* in slabs */
    int64_t count[KV_STANDINGS];
    int64_t promised;
    int64_t pause; /* slots to be taken before memory is asked for again that could not be had */
    kv_slot *free;
    kv_slab *slabs;
    kv_heap victims; /* pages: evictable leaves of the tree; states: evictable snapshots */
    uint64_t clock;  /* value of the last victim (kv_evict.c) */
} kv_pool;

struct kv_slot { /* owner: its slab */
    kv_pool *pool;
    void *data;
    kv_unit *unit;      /* whose page or snapshot it is, NULL = not in the tree */
    kv_slot *next_free;
    int64_t refs;       /* the tree's included */
    uint32_t tag;
    kv_standing standing;
};

struct kv_slab {
    kv_slab *next;
    void *memory;
    int64_t n;
    kv_slot slots[];
};

/* Owner: the tree. There are no lists of children: eviction needs only their number, look-up goes by key. */
struct kv_unit {
    uint8_t key[KV_KEY_BYTES];
    uint8_t image[KV_KEY_BYTES];
    kv_store *store;
    kv_unit *parent;
    kv_unit *next; /* in its bucket */
    kv_slot *page;
    kv_slot *snapshot;
    int64_t depth; /* units of the prefix that ends here */
    int32_t n_children;
    int32_t n_pins;   /* of callers */
    int32_t n_locked; /* children with pins on or under them. Locked: n_pins + n_locked > 0 */
    int32_t hits;     /* look-ups that matched, up to a limit */
    int32_t resumes;  /* look-ups that resume from the snapshot, up to a limit */
    int32_t seen_children; /* scratch of kv_check */
    int32_t seen_locked;   /* likewise */
    uint64_t value;   /* rank.value but for the mark of held pages */
    uint64_t base;    /* clock of states when the snapshot was last used */
    kv_rank rank;
    kv_rank snapshot_rank;
    int32_t ids[KV_UNIT_TOKENS];
};

struct kv_store {
    kv_memory memory;
    kv_pool pages;
    kv_pool states;
    uint8_t name_space[KV_KEY_BYTES];
    kv_unit **buckets; /* [n_buckets], a power of two: units by the first bytes of their key */
    size_t n_buckets;
    uint64_t now; /* uses so far: the source of ticks */
    kv_counters sums; /* only the sums and `units` are kept here */
};

static inline bool kv_locked(const kv_unit *unit)
{
    return unit->n_pins > 0 || unit->n_locked > 0;
}

/* kv_store.c */
kv_standing kv_standing_of(const kv_slot *slot);
void kv_slot_settle(kv_slot *slot);           /* counters and ranks follow a change of references, unit or locks */
void kv_slot_leave_tree(kv_slot *slot);       /* the tree's reference ends */
bool kv_pool_cover(kv_pool *pool, int64_t n); /* makes n slots ready besides those promised; false: memory is short */

/* kv_tree.c */
kv_unit **kv_bucket(const kv_store *store, const uint8_t key[KV_KEY_BYTES]);
void kv_unit_remove(kv_unit *unit); /* a leaf that is not locked */
void kv_snapshot_remove(kv_unit *unit);

/* kv_evict.c */
bool kv_heap_init(kv_heap *heap, int64_t capacity);
void kv_heap_fini(kv_heap *heap);
bool kv_rank_before(const kv_rank *a, const kv_rank *b);
bool kv_unit_is_victim(const kv_unit *unit);
uint64_t kv_unit_value(const kv_unit *unit); /* what rank.value must be */
void kv_unit_use(kv_unit *unit, bool hit);
void kv_unit_rank(kv_unit *unit); /* into, through or out of the heap, as its children, locks and page ask */
void kv_unit_unrank(kv_unit *unit);
void kv_snapshot_use(kv_unit *unit, bool resume);
void kv_snapshot_rank(kv_unit *unit); /* the same as its slot asks */
void kv_evict_page(kv_store *store);  /* one slot becomes free; there must be an evictable one */
void kv_evict_state(kv_store *store);

#endif
