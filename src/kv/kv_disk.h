/* kv_disk.h - the KV cache on disk: records of units and snapshots in append-only segments of one directory, found again after a
 * restart, and shared between processes where that is wanted.
 *
 * A record is named by the key of its unit (kv.h) and its kind. Whatever the disk does, a read gives the bytes that were put or
 * fails: every record carries checksums of header and payload, and a bad one is a miss (serving.md 4.5). The bytes mean nothing here.
 *
 * Nothing here waits on the caller's thread, but for kv_disk_open and kv_disk_close. An operation is a struct of the caller's that is
 * handed over, untouched by him until its `done` has run, inside kv_disk_poll. Buffers that it names are the store's for as long. An
 * operation runs its `done` exactly once, whatever happens; those that were not begun when the store is closed end as
 * DI_E_CANCELLED, inside kv_disk_close.
 *
 * Time to live runs from the last use. Expired records, and the oldest segments when the byte budget is reached, go by themselves;
 * what was used since it was last looked at, or is pinned, is written again and stays. The budget holds at every moment: what does not
 * fit is not written. */
#ifndef KV_KV_DISK_H
#define KV_KV_DISK_H

#include "kv/kv.h"

#define KV_DISK_CLASSES 4
#define KV_TENANT_BYTES 16

/* Who owns a record, for quotas and purging. Never part of an answer: who may read a record is decided by its key alone. */
typedef struct kv_tenant {
    uint8_t id[KV_TENANT_BYTES];
} kv_tenant;

bool kv_tenant_of(kv_salt salt, kv_tenant *out); /* false: no SHA-256 */

typedef enum kv_disk_kind { KV_DISK_UNIT, KV_DISK_SNAPSHOT, KV_DISK_KINDS } kv_disk_kind;

/* How records of a class are kept. Classes are numbered by the caller. */
typedef struct kv_disk_class {
    int64_t ttl_s;    /* from the last use; 0 = no end */
    int32_t priority; /* 0..3: times that a record which nobody used is spared when its segment is the oldest */
} kv_disk_class;

typedef struct io_table io_table; /* io.h */

typedef struct kv_disk_options {
    const char *path;       /* made when its parent is there. Copied, as all of the options */
    bool shared;            /* several processes use it at once; else a second one is refused */
    bool read_only;         /* finds and reads; puts fail */
    bool no_sync;           /* a put is acknowledged when the kernel has it, not the disk */
    bool no_direct;         /* through the page cache */
    int64_t max_bytes;      /* budget of the directory, all processes together, index included; >= 16 MiB */
    int64_t segment_bytes;  /* multiple of 4096, >= 1 MiB; 0 = a sixteenth of the budget within 1..256 MiB */
    int64_t max_record_bytes; /* payload; at most a quarter of a segment. 0 = that */
    int64_t tenant_bytes;   /* quota of each tenant, 0 = none: beyond it the tenant's oldest records go */
    int32_t admit;          /* a record is written when it has been put that often (remembered roughly, in memory); 0, 1 = at once */
    int32_t queue_depth;    /* reads in flight, 1..256; 0 = 32 */
    int64_t max_waiting;    /* payload bytes of puts that wait, beyond which kv_disk_put refuses; 0 = 64 MiB */
    kv_disk_class classes[KV_DISK_CLASSES]; /* all zero: 0 = 7 days, 1 = 3 days, 2 = 1 day, 3 = 1 hour */
    int64_t lease_s;        /* shared: a writer of another host that has not been heard of for so long is dead; 0 = 60 */
    const io_table *io;  /* NULL = io_uring, else threads, as the system allows */
    void (*wake)(void *user); /* an operation is ready for kv_disk_poll; called on the store's threads. NULL = none */
    void *wake_user;
} kv_disk_options;

typedef struct kv_disk kv_disk;

/* Errors: DI_E_ARGUMENT, DI_E_MEMORY, DI_E_IO, DI_E_STATE (another process has it), DI_E_UNSUPPORTED (built without LMDB). A directory
 * that was left in any state is taken on: what can't be read is not there. */
di_status kv_disk_open(const kv_disk_options *options, kv_disk **out, di_error *err);
void kv_disk_close(kv_disk *disk); /* no lease may be left; NULL is ignored */
int64_t kv_disk_max_payload(const kv_disk *disk);

/* ---- operations ---- */

typedef struct kv_disk_op kv_disk_op;

struct kv_disk_op { /* first member of each operation; the caller sets done and user, and reads status */
    void (*done)(kv_disk_op *op);
    void *user;
    di_status status;
    int what;         /* private, as what follows */
    kv_disk_op *next;
};

/* Runs `done` of what is ready, on this thread; returns how many. One thread at a time, as the functions that hand over. */
int kv_disk_poll(kv_disk *disk);

/* ---- find ---- */

typedef struct kv_segment kv_segment;

typedef struct kv_disk_place { /* where a record is; bytes == 0: nowhere */
    int64_t bytes;             /* payload */
    uint32_t tag;              /* as it was put */
    uint32_t private_length;   /* private, as what follows */
    kv_segment *segment;
    uint64_t offset;
} kv_disk_place;

typedef struct kv_disk_found { /* of one key */
    kv_disk_place unit;
    kv_disk_place snapshot;
} kv_disk_found;

/* Which records of a chain of keys are there. Units are looked up from `first` on (those before it the caller has) up to the first one
 * that is missing; snapshots of all keys up to there. What is found is leased: it stays readable, whatever is evicted or purged, until
 * kv_disk_release, which must be called for each find that ended with DI_OK. (Another process that shares the directory knows no leases
 * of ours: what it removes meanwhile is a read that fails.) */
typedef struct kv_disk_find {
    kv_disk_op op;
    const uint8_t (*keys)[KV_KEY_BYTES]; /* [n] */
    int64_t n;
    int64_t first;
    kv_disk_found *found; /* [n], written for [0, n_units) */
    int64_t n_units;      /* out: first <= n_units <= n */
} kv_disk_find;

void kv_disk_find_start(kv_disk *disk, kv_disk_find *find);
void kv_disk_release(kv_disk *disk, kv_disk_find *find); /* its reads must be over */

/* ---- read ---- */

/* Reads the payload of a place into `out`. Status: DI_OK with every byte checked; DI_E_MISMATCH (corrupt: it is forgotten, too), DI_E_IO,
 * DI_E_CANCELLED (the deadline was first); `out` is then undefined. */
typedef struct kv_disk_read {
    kv_disk_op op;
    kv_disk_place place;  /* of a find that is not released yet */
    uint8_t key[KV_KEY_BYTES];
    kv_disk_kind kind;
    void *out;            /* [place.bytes], any alignment */
    int64_t deadline_ns;  /* on the clock of clock_now_ns; 0 = none */
    void *bounce;         /* private, as what follows */
    int64_t private_start_ns;
} kv_disk_read;

void kv_disk_read_start(kv_disk *disk, kv_disk_read *read);

/* ---- put ---- */

typedef enum kv_disk_verdict {
    KV_DISK_STORED,      /* on the disk: a crash of the machine does not lose it */
    KV_DISK_PRESENT,     /* it was there already; its time to live starts anew */
    KV_DISK_NOT_ADMITTED, /* not seen often enough yet */
    KV_DISK_NO_ROOM,     /* budget or quota */
    KV_DISK_FAILED       /* op.status says why */
} kv_disk_verdict;

typedef struct kv_disk_put {
    kv_disk_op op;
    uint8_t key[KV_KEY_BYTES];
    kv_disk_kind kind;
    uint32_t tag;         /* the caller's note */
    int32_t class_id;     /* 0..KV_DISK_CLASSES - 1 */
    int64_t ttl_s;        /* 0 = that of the class */
    bool pinned;          /* neither evicted nor expired. More than half of the budget is never pinned: beyond it, as if false */
    kv_tenant tenant;
    const void *payload;  /* [bytes], unchanged until done */
    int64_t bytes;        /* 1..kv_disk_max_payload */
    kv_disk_verdict verdict; /* out; op.status is DI_OK but for KV_DISK_FAILED */
} kv_disk_put;

/* False, and nothing happens, when max_waiting bytes wait already: the record stays unwritten. */
bool kv_disk_put_start(kv_disk *disk, kv_disk_put *put);

/* ---- care ---- */

typedef enum kv_disk_care_kind {
    KV_DISK_FLUSH,   /* everything put before is durable */
    KV_DISK_PIN,     /* the records of keys[n], both kinds; n_done = records */
    KV_DISK_UNPIN,
    KV_DISK_PURGE,   /* every record of the tenant, or of all with NULL: not found from now on, bytes gone when done,
                      * those that are leased with their lease, those of other processes when they take notice */
    KV_DISK_COMPACT, /* expired and dead records leave the disk; n_done = bytes */
} kv_disk_care_kind;

typedef struct kv_disk_care {
    kv_disk_op op;
    kv_disk_care_kind kind;
    const uint8_t (*keys)[KV_KEY_BYTES];
    int64_t n;
    const kv_tenant *tenant;
    int64_t n_done; /* out */
} kv_disk_care;

void kv_disk_care_start(kv_disk *disk, kv_disk_care *care);

/* ---- checking ---- */

typedef struct kv_disk_report {
    int64_t segments;
    int64_t segments_damaged; /* that can't be read, or in part */
    int64_t records;
    int64_t bytes;            /* of their payloads */
    int64_t records_damaged;
} kv_disk_report;

/* Reads every record that was there when the store was opened, which must be read-only. Waits for the disk. Errors: DI_E_ARGUMENT,
 * DI_E_MEMORY, DI_E_IO. */
di_status kv_disk_verify(kv_disk *disk, kv_disk_report *out, di_error *err);

/* ---- counters ---- */

typedef struct kv_disk_counters {
    int64_t bytes;           /* of the directory now, as the budget counts them */
    int64_t max_bytes;
    int64_t records[KV_DISK_KINDS]; /* that can be found; expired ones count until they are met */
    int64_t live_bytes;      /* of their payloads */
    int64_t pinned_bytes;
    int64_t segments;
    int64_t waiting_bytes;   /* of puts */
    int64_t finds;           /* sums from here on */
    int64_t found[KV_DISK_KINDS];
    int64_t reads;           /* that gave the payload */
    int64_t read_bytes;
    int64_t read_ns;         /* sum of their times, from start to done; they overlap */
    int64_t read_busy_ns;    /* time with a read in flight: read_bytes / read_busy_ns is the bandwidth */
    int64_t reads_late;      /* their deadline was first */
    int64_t reads_failed;    /* by the system */
    int64_t corrupt;         /* by checksum */
    int64_t expired;
    int64_t evicted;         /* records that went for room */
    int64_t purged;
    int64_t stored;
    int64_t stored_bytes;    /* payload */
    int64_t written_bytes;   /* everything, padding, catalogues and rewriting included: / stored_bytes = amplification */
    int64_t rewritten_bytes; /* by compaction */
    int64_t present;         /* verdicts of puts */
    int64_t not_admitted;
    int64_t no_room;
    int64_t put_failed;
    int64_t put_refused;     /* by max_waiting */
    bool rebuilt;            /* the index was made anew at the start */
    int64_t open_ns;
    const char *io;          /* "io_uring", "threads", or the name of the table given */
} kv_disk_counters;

void kv_disk_get_counters(const kv_disk *disk, kv_disk_counters *out); /* any thread */

/* What a tenant has in the directory: records that can be found, expired ones until they are met. */
typedef struct kv_tenant_use {
    kv_tenant tenant;
    int64_t bytes; /* as its quota counts them, padding included */
    int64_t records[KV_DISK_KINDS];
    int64_t pinned_bytes;
} kv_tenant_use;

/* Of all tenants that have something, in no order; at most `capacity` are written. Returns how many there are. Any thread. */
size_t kv_disk_get_tenants(const kv_disk *disk, kv_tenant_use *out, size_t capacity);

#endif
