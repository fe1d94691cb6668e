/* kv_disk_int.h - inside of the disk tier.
 *
 * Three threads meet here. The caller's hands operations over and takes them back through lists without locks (kv_stack). The reading
 * thread (kv_disk_read.c) answers finds and reads. The writing thread (kv_disk_write.c and what it calls) owns everything that changes:
 * the active segment, the index, the budget, and what happens to segments. Reading and writing thread share the table of segments and the
 * reader's notes, under `lock`; it is never held during I/O. */
#ifndef KV_KV_DISK_INT_H
#define KV_KV_DISK_INT_H

#include "kv/kv_index.h"
#include "kv/kv_pages.h"
#include "kv/kv_writers.h"

#include "core/buf.h"
#include "core/io.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- segments ---- */

#define KV_SEGMENT_NAME_BYTES 48
#define KV_TABLE_BUCKETS 1024

/* Number of a segment: the writer in the upper 8 bits, then the time it was begun, so that the least of a writer's is its oldest. */
static inline int kv_segment_writer(uint64_t id) { return (int)(id >> 56); }
static inline uint64_t kv_segment_born(uint64_t id) { return id & 0xffffffffffffffu; }

struct kv_segment { /* owner: the table. Freed by the writing thread when it is doomed and nobody has a lease */
    kv_segment *next; /* in its bucket; under the lock */
    uint64_t id;
    uint64_t nonce;
    char name[KV_SEGMENT_NAME_BYTES];
    atomic_int leases; /* grow under the lock or by who has one; shrink on any thread */
    int read_fd;       /* the reading thread's while it has a lease or the lock; -1 = closed */
    uint64_t read_tick;
    /* The writing thread's: */
    bool ours;
    bool sealed;
    bool doomed;         /* out of the index; the file goes with the last lease */
    bool unlisted;       /* could not be read: what is in it is not known */
    bool seen;           /* scratch of kv_follow */
    uint64_t file_bytes; /* that have been listed, and of a sealed one all there are */
    uint64_t data_bytes; /* of its records, padded */
    int64_t live_bytes;  /* of those that the index knows */
    int64_t pinned_bytes;
    int64_t n_live;
};

typedef struct kv_table {
    kv_segment *buckets[KV_TABLE_BUCKETS];
    int64_t n;
} kv_table;

void kv_segment_name(uint64_t id, uint64_t nonce, char out[KV_SEGMENT_NAME_BYTES]);
bool kv_segment_parse(const char *name, uint64_t *id, uint64_t *nonce); /* false: not the name of a segment */

/* A segment that is not in the table yet, or NULL. */
kv_segment *kv_segment_new(uint64_t id, uint64_t nonce);
void kv_table_add(kv_table *table, kv_segment *segment);
void kv_table_remove(kv_table *table, kv_segment *segment); /* and frees it */
kv_segment *kv_table_find(const kv_table *table, uint64_t id);
kv_segment *kv_table_next(const kv_table *table, const kv_segment *after); /* all, in no order; NULL: the first, at the end NULL */
void kv_table_fini(kv_table *table);

/* ---- operations ---- */

typedef struct kv_stack { /* many push, one takes all */
    _Atomic(kv_disk_op *) top;
} kv_stack;

bool kv_stack_push(kv_stack *stack, kv_disk_op *op); /* true: it was empty */
kv_disk_op *kv_stack_take(kv_stack *stack);          /* everything, first in first */

enum { KV_OP_FIND, KV_OP_READ, KV_OP_PUT, KV_OP_CARE };

/* ---- sums ---- */

typedef enum kv_sum {
    KV_SUM_FINDS,
    KV_SUM_FOUND_UNITS,
    KV_SUM_FOUND_SNAPSHOTS,
    KV_SUM_READS,
    KV_SUM_READ_BYTES,
    KV_SUM_READ_NS,
    KV_SUM_BUSY_NS,
    KV_SUM_LATE,
    KV_SUM_READS_FAILED,
    KV_SUM_CORRUPT,
    KV_SUM_EXPIRED,
    KV_SUM_EVICTED,
    KV_SUM_PURGED,
    KV_SUM_STORED,
    KV_SUM_STORED_BYTES,
    KV_SUM_WRITTEN_BYTES,
    KV_SUM_REWRITTEN_BYTES,
    KV_SUM_PRESENT,
    KV_SUM_NOT_ADMITTED,
    KV_SUM_NO_ROOM,
    KV_SUM_PUT_FAILED,
    KV_SUM_PUT_REFUSED,
    KV_SUM_UNITS, /* the rest are states, not sums */
    KV_SUM_SNAPSHOTS,
    KV_SUM_LIVE_BYTES,
    KV_SUM_PINNED_BYTES,
    KV_SUM_SEGMENTS,
    KV_SUM_BYTES,
    KV_SUM_WAITING,
    KV_SUMS
} kv_sum;

/* ---- notes of the reading thread to the writing one ---- */

typedef struct kv_note {
    kv_name name;
    uint64_t segment;
    uint32_t block;
    bool corrupt; /* else it was used */
} kv_note;

enum { KV_NOTES = 4096 };

/* ---- what is written ---- */

typedef struct kv_pending { /* a record in the buffer */
    kv_name name;
    kv_entry entry;
    kv_disk_put *put; /* NULL: written again */
} kv_pending;

typedef struct kv_active { /* the segment that records are appended to; the writing thread's */
    kv_segment *segment; /* NULL = none */
    int fd;
    uint64_t at;         /* offset of the next record */
    kv_listed *listed;   /* [n_listed] */
    size_t n_listed;
    size_t listed_capacity;
    uint8_t *buffer;     /* [buffer_bytes], ends up at offset at - filled */
    size_t buffer_bytes;
    size_t filled;
    kv_pending *pending; /* [n_pending] */
    size_t n_pending;
    size_t pending_capacity;
} kv_active;

typedef struct kv_quotas { /* what each tenant has; open hash, changed by the writing thread alone */
    kv_tenant_use *places; /* bytes == 0: a free one */
    size_t n;
    size_t capacity; /* a power of two, or 0 */
} kv_quotas;

int64_t kv_quota_bytes(const kv_quotas *quotas, const kv_tenant *tenant);
bool kv_quota_add(kv_quotas *quotas, const kv_tenant_use *change); /* false: no memory, and not counted */
size_t kv_quotas_list(const kv_quotas *quotas, kv_tenant_use *out, size_t capacity); /* as kv_disk_get_tenants */
void kv_quotas_fini(kv_quotas *quotas);

enum { KV_SIGHTINGS = 1 << 16 };

typedef struct kv_sightings { /* roughly how often names were put: a slot is overwritten by another name that falls on it */
    uint32_t slots[KV_SIGHTINGS]; /* 24 bits of the name, 8 of count */
} kv_sightings;

int32_t kv_sighting(kv_sightings *sightings, const kv_name *name); /* counts one; how many so far */

typedef struct kv_reader kv_reader;

struct kv_disk { /* owner: who opened it */
    kv_disk_options o;
    char *path;
    char *index_path;
    bool index_is_temporary;
    int dir;
    const io_table *io;
    int direct; /* O_DIRECT, or 0 where it was refused or is not wanted */

    kv_stack to_reader;
    kv_stack to_writer;
    kv_stack done;
    io_queue *read_io;
    io_queue *write_io;
    pthread_t read_thread;
    pthread_t write_thread;
    bool read_started;
    bool write_started;
    atomic_bool stop;
    _Atomic int64_t sums[KV_SUMS];
    bool rebuilt;
    int64_t open_ns;

    pthread_mutex_t lock; /* of what follows */
    kv_table table;
    kv_note notes[KV_NOTES];
    int n_notes;

    /* The writing thread's: */
    kv_pages pages; /* of its buffers */
    kv_index *index;
    kv_writers writers;
    int writer; /* our number; -1: read-only */
    kv_active active;
    kv_quotas quotas; /* changed under tenants_lock, for other threads that look */
    pthread_mutex_t tenants_lock;
    kv_sightings sightings;
    uint8_t *copy;      /* [max record] for records that are written again, and lists */
    size_t copy_bytes;
    uint64_t last_sequence;
    uint64_t last_born;
    kv_name sweep_at;
    uint64_t purged_all;    /* sequence of the last purge of everything that was applied */
    bool incomplete;        /* there may be records that the index does not know: no segment is taken for empty */
    bool evicting;
    int64_t pause_until_ns; /* writing failed: not before then again */
    int64_t pause_ns;
    int64_t pinned_room;    /* pinned bytes that may be */
};

static inline void kv_count(kv_disk *disk, kv_sum what, int64_t n)
{
    atomic_fetch_add_explicit(&disk->sums[what], n, memory_order_relaxed);
}

static inline int64_t kv_counted(const kv_disk *disk, kv_sum what)
{
    return atomic_load_explicit(&disk->sums[what], memory_order_relaxed);
}

void kv_op_done(kv_disk *disk, kv_disk_op *op, di_status status); /* any thread: the caller's next poll has it */
void kv_note_add(kv_disk *disk, const kv_note *note);
void kv_notes_apply(kv_disk *disk); /* writing thread; outside a batch */
int64_t kv_now_s(void);
uint64_t kv_next_sequence(kv_disk *disk);

/* kv_disk_options.c */
void kv_options_fill_in(kv_disk_options *o);
di_status kv_options_check(const kv_disk_options *o, di_error *err); /* DI_E_ARGUMENT */

/* kv_disk_read.c, kv_disk_write.c: the threads */
void *kv_read_main(void *disk);
void *kv_write_main(void *disk);

/* kv_list.c: what is in segments. Functions take the queue of the calling thread. */
typedef struct kv_listing {
    kv_listed *items; /* owned; free */
    size_t n;
    uint64_t data_bytes;
    uint64_t end;  /* behind the last record */
    bool sealed;   /* there is a catalogue */
    bool whole;    /* every block could be read */
} kv_listing;

/* Opens a file of the directory for transfers, directly where that works; -errno. */
int kv_open_segment(const kv_disk *disk, const char *name, int flags);

/* Lists the records that begin in [from, to) (to: 0 = all there are). Heads that are damaged are left out, as is all that can't be proved
 * to be a record of this segment. Errors: -errno. */
int kv_list_segment(const kv_disk *disk, io_queue *io, const kv_segment *segment, uint64_t from, uint64_t to, kv_listing *out);

/* Reads record `listed` whole into `buffer` (aligned, room for the longest record) and checks it. 0, -errno, or -EBADMSG. */
int kv_read_record(const kv_disk *disk, io_queue *io, int fd, const kv_segment *segment, const kv_listed *listed, uint8_t *buffer);

/* kv_append.c: the active segment */
bool kv_active_open(kv_disk *disk); /* there is one, or one is begun; false: budget or disk */
/* Appends a record; durable, in the index and done after kv_active_flush. False: no room. `put` may be NULL. */
bool kv_append(kv_disk *disk, kv_listed *listed, const void *payload, kv_disk_put *put);
bool kv_active_flush(kv_disk *disk);
void kv_active_seal(kv_disk *disk); /* ends the segment with its catalogue */
void kv_active_fini(kv_disk *disk);
void kv_seal_other(kv_disk *disk, kv_segment *segment, const kv_listing *listing); /* the same for one that a dead process left */

/* kv_account.c: live bytes of segments, tenants, sums */
void kv_account(kv_disk *disk, const kv_name *name, const kv_entry *entry, int sign);
/* Counts anew from the index, and removes what points nowhere or is expired. */
void kv_recount(kv_disk *disk);
int64_t kv_directory_bytes(const kv_disk *disk);
/* Removes a record from index and accounts, in a batch. */
void kv_forget(kv_disk *disk, const kv_name *name, const kv_entry *entry, kv_sum why);

/* kv_room.c: making room */
bool kv_make_room(kv_disk *disk, bool spare); /* one segment's worth; spare: with an active segment to write survivors to */
bool kv_fits(const kv_disk *disk);            /* another segment is within the budget */
void kv_share_room(kv_disk *disk);            /* shared: our segment goes when it is the oldest of a full directory */
bool kv_quota_room(kv_disk *disk, const kv_tenant *tenant, int64_t bytes);
int64_t kv_compact(kv_disk *disk); /* bytes that left */
void kv_doom(kv_disk *disk, kv_segment *segment);
void kv_reap(kv_disk *disk);       /* removes what is doomed and not leased, and segments without a live record */
void kv_sweep(kv_disk *disk, int n); /* looks at n entries for expiry */
int64_t kv_pin_keys(kv_disk *disk, const uint8_t (*keys)[KV_KEY_BYTES], int64_t n, bool pinned);

/* kv_follow.c: what is in the directory */
di_status kv_follow_start(kv_disk *disk, bool fresh, di_error *err); /* when opening: everything */
void kv_follow(kv_disk *disk); /* news of other writers */
void kv_follow_keep(kv_disk *disk); /* when closing: what has been listed */

/* kv_purge.c: purges outlive the process that asked for them */
bool kv_purge(kv_disk *disk, const kv_tenant *tenant, int64_t *n); /* records that went; false: it could not be written down */
int64_t kv_purges_apply(kv_disk *disk); /* those in the directory; records that went */

#endif
