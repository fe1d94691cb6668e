/* io.h - what those who read and write large files ask of the operating system: one small table, with io_uring, with a pool of threads, or
 * with a disk that lies (tests/support/faulty.h).
 *
 * A queue (io_queue) belongs to one thread, which submits requests and waits for them; others only wake it. File functions may block and
 * return 0 or a negative errno. */
#ifndef CORE_IO_H
#define CORE_IO_H

#include <deepinfer/base.h>

typedef struct io_queue io_queue;
typedef struct io_request io_request;

struct io_request { /* owner: who submits, again from when it is returned by wait */
    int fd;
    bool write;
    uint64_t offset;
    void *data;
    size_t size;
    int64_t result; /* bytes, fewer than size are possible, or a negative errno */
    void *user;
    io_request *next; /* private; in a list that wait returns: the next one */
};

typedef struct io_table io_table;

struct io_table {
    const char *name;
    /* A queue for at most `depth` requests at a time; NULL: not possible here. */
    io_queue *(*open)(const io_table *table, int depth);
    void (*close)(io_queue *io); /* no request may be out */
    void (*submit)(io_queue *io, io_request *request);
    /* Waits for requests that are over, a call of wake or the end of the time (< 0: none). Returns a list, or NULL. */
    io_request *(*wait)(io_queue *io, int64_t timeout_ns);
    void (*wake)(io_queue *io); /* any thread; never blocks for long. Remembered when nobody waits */

    int (*open_file)(const io_table *table, int dir, const char *name, int flags); /* of openat with mode 0644; fd or -errno */
    int (*allocate)(const io_table *table, int fd, uint64_t bytes); /* the file has so many bytes, and the disk has them too */
    int (*truncate)(const io_table *table, int fd, uint64_t bytes);
    int (*sync)(const io_table *table, int fd); /* data and size; of a directory its names */
    int (*remove)(const io_table *table, int dir, const char *name);
    void *user; /* of the table's maker */
};

/* io_uring.c; its open fails where the kernel or a filter forbids io_uring, or the library was missing in the build. */
extern const io_table io_by_uring;
extern const io_table io_by_threads; /* io_threads.c */

/* File functions of both (io_threads.c), for tables that put something in front of them. */
int io_open_file(const io_table *table, int dir, const char *name, int flags);
int io_allocate(const io_table *table, int fd, uint64_t bytes);
int io_truncate(const io_table *table, int fd, uint64_t bytes);
int io_sync(const io_table *table, int fd);
int io_remove(const io_table *table, int dir, const char *name);

/* Reads or writes all of a range and waits for it, on a queue with no other request out. 0 or a negative errno; -ENODATA: the file ends
 * before. */
int io_whole(const io_table *table, io_queue *io, int fd, bool write, uint64_t offset, void *data, size_t size, int depth);

#endif
