/* mdl_reader.h - parts of a checkpoint's shards read from the disk while stages run, past the system's cache where it can be done.
 *
 * A mapping would do for files that nobody touches; but a file that is cut while it is open turns every access into a signal, and memory
 * that the system keeps for a mapping counts for nobody's budget. Here both end in an error of the read. The files must be those that the
 * model was opened from: each read looks whether they still are. Thread: the runner's; transfers go on while it computes. */
#ifndef MODEL_MDL_READER_H
#define MODEL_MDL_READER_H

#include "core/io.h"
#include "model/mdl_checkpoint.h"

#define MDL_READ_ALIGN 4096 /* of offsets, sizes and memory in direct I/O, on every file system in use */

/* Bytes of memory for any `size` bytes of a file. */
static inline size_t mdl_read_span(size_t size) { return (size + 2 * MDL_READ_ALIGN - 2) / MDL_READ_ALIGN * MDL_READ_ALIGN; }

typedef struct mdl_read mdl_read;

struct mdl_read { /* owner: who asks, again from when `over` is called */
    const uint8_t *data; /* the bytes, in the mapping of a shard: says where they are and is not followed */
    size_t size;
    uint8_t *memory; /* [mdl_read_span(size)], aligned */
    void (*over)(mdl_read *read); /* inside mdl_reader_poll */
    void *user;
    const uint8_t *result; /* in memory; NULL = it failed */
    size_t shard;    /* private from here on */
    uint64_t offset; /* of the data in the file */
    uint64_t next;   /* first byte that was not asked for */
    int n_out;
    bool failed;
    mdl_read *link;
};

typedef struct mdl_reader mdl_reader;

/* dir: the checkpoint's folder. io NULL = io_uring, else threads. Errors: DI_E_IO (also for files that are not those of the checkpoint any
 * more), DI_E_MEMORY, DI_E_UNSUPPORTED. */
di_status mdl_reader_new(const mdl_checkpoint *checkpoint, const char *dir, const io_table *io, mdl_reader **out, di_error *err);
void mdl_reader_free(mdl_reader *reader); /* waits for what is on its way; calls no `over` */

/* Queues a read: behind those that are urgent, or with all others. */
void mdl_reader_ask(mdl_reader *reader, mdl_read *read, bool urgent);
/* What was asked for without is urgent now; nothing else changes when it is on its way already. */
void mdl_reader_hurry(mdl_reader *reader, mdl_read *read);
/* Starts what can be started and ends what is over; with `wait` at least one, if there is any. */
void mdl_reader_poll(mdl_reader *reader, bool wait);

/* The first failure since mdl_reader_begin, which a pass begins with. DI_OK when there was none. */
di_status mdl_reader_failure(const mdl_reader *reader, di_error *err);
void mdl_reader_begin(mdl_reader *reader);

int64_t mdl_reader_bytes(const mdl_reader *reader);   /* that came from the disk so far */
int64_t mdl_reader_wait_ns(const mdl_reader *reader); /* spent waiting in mdl_reader_poll */

#endif
