/* kv_disk_fixture.h - a directory for a disk tier, operations that are waited for, and records whose bytes tell whose they are. */
#ifndef TESTS_KV_DISK_FIXTURE_H
#define TESTS_KV_DISK_FIXTURE_H

#include "support/unit.h"

#include "kv/kv_disk.h"

enum { DFIX_PATH_BYTES = 256 };

typedef struct dfix_dir {
    char path[DFIX_PATH_BYTES];
} dfix_dir;

dfix_dir dfix_make(void);            /* an empty directory in TMPDIR, else in memory, else where temporary files go */
void dfix_remove(const dfix_dir *d); /* with what is in it */

kv_disk_options dfix_options(const dfix_dir *d); /* 64 MiB, segments of 1 MiB */
kv_disk *dfix_open(const kv_disk_options *options); /* with dfix_wake, unless it has a wake */
void dfix_wake(void *user);                         /* any thread, as kv_disk_options.wake */
void dfix_pause(void);                              /* until some disk wakes, or a few ms */

/* Key and payload of record i: the payload is a function of key, kind and size. */
void dfix_key(uint64_t i, uint8_t out[KV_KEY_BYTES]);
void dfix_fill(uint64_t i, kv_disk_kind kind, uint8_t *out, size_t size);

/* Puts record i and waits for the verdict. */
kv_disk_verdict dfix_put(kv_disk *disk, uint64_t i, kv_disk_kind kind, size_t size);
kv_disk_verdict dfix_put_as(kv_disk *disk, uint64_t i, const kv_disk_put *like); /* kind, bytes, class_id, ttl_s, pinned, tenant of `like` */

/* Finds and reads record i. DI_OK: every byte is as put; DI_E_STATE: not found; else the status of the read. Fails the test when a read
 * that succeeds gives other bytes. *size = bytes, may be NULL. */
di_status dfix_get(kv_disk *disk, uint64_t i, kv_disk_kind kind, size_t *size);

int64_t dfix_care(kv_disk *disk, kv_disk_care_kind kind, const kv_tenant *tenant); /* n_done; the status must be DI_OK */
kv_disk_counters dfix_counters(const kv_disk *disk);

/* Polls until *flag; gives up, and fails, after a minute. */
void dfix_wait(kv_disk *disk, const bool *flag);
void dfix_set(kv_disk_op *op); /* `done` that sets the bool that `user` points at */

/* Path of the n-th segment file in the order of names; false: there are fewer. */
bool dfix_segment(const dfix_dir *d, int n, char out[DFIX_PATH_BYTES + 64]);
int dfix_n_segments(const dfix_dir *d);
/* Removes the index, so that the next open reads the segments. */
void dfix_drop_index(const dfix_dir *d);

#endif
