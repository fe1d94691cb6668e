/* kv_io.h - what the disk tier asks of the operating system: one small table, with io_uring, with a pool of threads, or with a disk that
 * lies (tests/kv/faulty.h).
 *
 * A queue (kv_io) belongs to one thread, which submits requests and waits for them; others only wake it. File functions may block and
 * return 0 or a negative errno. */
#ifndef KV_KV_IO_H
#define KV_KV_IO_H

#include <deepinfer/base.h>

typedef struct kv_io kv_io;
typedef struct kv_io_request kv_io_request;

struct kv_io_request { /* owner: who submits, again from when it is returned by wait */
    int fd;
    bool write;
    uint64_t offset;
    void *data;
    size_t size;
    int64_t result; /* bytes, fewer than size are possible, or a negative errno */
    void *user;
    kv_io_request *next; /* private; in a list that wait returns: the next one */
};

typedef struct kv_io_table kv_io_table;

struct kv_io_table {
    const char *name;
    /* A queue for at most `depth` requests at a time; NULL: not possible here. */
    kv_io *(*open)(const kv_io_table *table, int depth);
    void (*close)(kv_io *io); /* no request may be out */
    void (*submit)(kv_io *io, kv_io_request *request);
    /* Waits for requests that are over, a call of wake or the end of the time (< 0: none). Returns a list, or NULL. */
    kv_io_request *(*wait)(kv_io *io, int64_t timeout_ns);
    void (*wake)(kv_io *io); /* any thread; never blocks for long. Remembered when nobody waits */

    int (*open_file)(const kv_io_table *table, int dir, const char *name, int flags); /* of openat with mode 0644; fd or -errno */
    int (*allocate)(const kv_io_table *table, int fd, uint64_t bytes); /* the file has so many bytes, and the disk has them too */
    int (*truncate)(const kv_io_table *table, int fd, uint64_t bytes);
    int (*sync)(const kv_io_table *table, int fd); /* data and size; of a directory its names */
    int (*remove)(const kv_io_table *table, int dir, const char *name);
    void *user; /* of the table's maker */
};

/* kv_io_uring.c; its open fails where the kernel or a filter forbids io_uring, or the library was missing in the build. */
extern const kv_io_table kv_io_uring;
extern const kv_io_table kv_io_threads; /* kv_io_threads.c */

/* File functions of both (kv_io_threads.c), for tables that put something in front of them. */
int kv_io_open_file(const kv_io_table *table, int dir, const char *name, int flags);
int kv_io_allocate(const kv_io_table *table, int fd, uint64_t bytes);
int kv_io_truncate(const kv_io_table *table, int fd, uint64_t bytes);
int kv_io_sync(const kv_io_table *table, int fd);
int kv_io_remove(const kv_io_table *table, int dir, const char *name);

/* Reads or writes all of a range and waits for it, on a queue with no other request out. 0 or a negative errno; -ENODATA: the file ends
 * before. */
int kv_io_whole(const kv_io_table *table, kv_io *io, int fd, bool write, uint64_t offset, void *data, size_t size, int depth);

#endif
