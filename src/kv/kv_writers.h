/* kv_writers.h - who may write which segments of a directory.
 *
 * There are KV_WRITERS numbers. Who holds the lock on "NN.lock" owns number NN and all segments of it; nobody else changes these. The
 * kernel gives the lock up when its holder dies, however that happens, and whoever takes it next has the segments. Where hosts share a
 * file system whose locks may not reach each other, the file's contents are a lease besides: a holder of another boot counts as alive
 * until it has not renewed them for lease_s.
 *
 * Whoever has a directory for himself alone locks "mode.lock" for writing, those that share it lock it for reading: the two never meet,
 * and a purge that is told to share cannot miss a process that does not look for purges of others. Where such locks do not reach other
 * hosts, the numbers above still keep segments apart.
 *
 * A number's file also says up to where the segment that its holder writes is on the disk: others read that far, and so never half a
 * record.
 *
 * Thread: the writing one, after opening. */
#ifndef KV_KV_WRITERS_H
#define KV_KV_WRITERS_H

#include "core/io.h"

#define KV_WRITERS 64

typedef struct kv_writers { /* owner: the disk tier */
    const io_table *io;
    int dir; /* borrowed */
    int64_t lease_s;
    int fds[KV_WRITERS]; /* locked; -1 = not ours */
    uint8_t boot[16];
    int mode; /* file of the mode, locked; -1 = not ours */
} kv_writers;

void kv_writers_init(kv_writers *w, const io_table *io, int dir, int64_t lease_s);
void kv_writers_fini(kv_writers *w); /* gives every number back */

/* Before numbers are taken: to share the directory, or to have it alone. 1: agreed, 0: somebody has it otherwise, negative: -errno. */
int kv_writers_agree(kv_writers *w, bool shared);

/* 1: ours now (or was already), 0: somebody else's, negative: -errno. */
int kv_writer_take(kv_writers *w, int number);
bool kv_writer_ours(const kv_writers *w, int number);

/* Renews the lease, and publishes that segment `segment` is on the disk up to `bytes`. */
void kv_writer_publish(const kv_writers *w, int number, uint64_t segment, uint64_t bytes);

/* What the holder of the number published; false: nothing that can be read. */
bool kv_writer_published(const kv_writers *w, int number, uint64_t *segment, uint64_t *bytes);

#endif
