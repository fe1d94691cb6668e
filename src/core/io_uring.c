/* io_uring.c - I/O by io_uring.
 *
 * Waking is a read of an event counter that always stands in the ring. Containers often forbid io_uring; then, and in a build without
 * liburing, `open` finds it impossible and the caller takes threads. */
#include "core/io.h"

#if DI_LIBURING

#include <liburing.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct io_queue { /* owner: who opened it */
    struct io_uring ring;
    int event;
    uint64_t count; /* the kernel reads the event counter into it */
    bool listening; /* that read is out */
    io_request *refused; /* requests that the ring had no place for */
};

static void listen_for_wake(io_queue *io)
{
    struct io_uring_sqe *const sqe = io->listening ? NULL : io_uring_get_sqe(&io->ring);
    if (sqe != NULL) {
        io_uring_prep_read(sqe, io->event, &io->count, sizeof io->count, 0);
        io_uring_sqe_set_data(sqe, NULL);
        io->listening = true;
    }
}

static io_queue *ring_open(const io_table *table, int depth)
{
    (void)table;
    io_queue *const io = calloc(1, sizeof *io);
    if (io == NULL) {
        return NULL;
    }
    io->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (io->event < 0 || io_uring_queue_init((unsigned)depth + 2, &io->ring, 0) != 0) {
        if (io->event >= 0) {
            close(io->event);
        }
        free(io);
        return NULL;
    }
    return io;
}

static void ring_close(io_queue *io)
{
    io_uring_queue_exit(&io->ring);
    close(io->event);
    free(io);
}

static void ring_submit(io_queue *io, io_request *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&io->ring);
    if (sqe == NULL && io_uring_submit(&io->ring) >= 0) {
        sqe = io_uring_get_sqe(&io->ring);
    }
    if (sqe == NULL) {
        r->result = -EBUSY;
        r->next = io->refused;
        io->refused = r;
        return;
    }
    const unsigned size = r->size < 1u << 30 ? (unsigned)r->size : 1u << 30; /* short, and so asked for again */
    if (r->write) {
        io_uring_prep_write(sqe, r->fd, r->data, size, r->offset);
    } else {
        io_uring_prep_read(sqe, r->fd, r->data, size, r->offset);
    }
    io_uring_sqe_set_data(sqe, r);
    (void)io_uring_submit(&io->ring); /* at once: the disk has work while its answers are checked. Else the wait submits it */
}

static io_request *reap(io_queue *io)
{
    io_request *list = io->refused;
    io->refused = NULL;
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&io->ring, &cqe) == 0) {
        io_request *const r = io_uring_cqe_get_data(cqe);
        if (r != NULL) {
            r->result = cqe->res;
            r->next = list;
            list = r;
        } else {
            io->listening = false;
        }
        io_uring_cqe_seen(&io->ring, cqe);
    }
    return list;
}

static io_request *ring_wait(io_queue *io, int64_t timeout_ns)
{
    listen_for_wake(io);
    struct io_uring_cqe *cqe;
    struct __kernel_timespec time = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    if (io->refused != NULL) {
        io_uring_submit(&io->ring);
    } else {
        (void)io_uring_submit_and_wait_timeout(&io->ring, &cqe, 1, timeout_ns < 0 ? NULL : &time, NULL);
    }
    return reap(io);
}

static void ring_wake(io_queue *io)
{
    const uint64_t one = 1;
    const ssize_t n = write(io->event, &one, sizeof one);
    (void)n; /* a counter that is full wakes as well */
}

#else

static io_queue *ring_open(const io_table *table, int depth)
{
    (void)table;
    (void)depth;
    return NULL;
}

static void ring_close(io_queue *io) { (void)io; }
static void ring_wake(io_queue *io) { (void)io; }

static void ring_submit(io_queue *io, io_request *r)
{
    (void)io;
    (void)r;
}

static io_request *ring_wait(io_queue *io, int64_t timeout_ns)
{
    (void)io;
    (void)timeout_ns;
    return NULL;
}

#endif

const io_table io_by_uring = {
    .name = "io_uring",
    .open = ring_open,
    .close = ring_close,
    .submit = ring_submit,
    .wait = ring_wait,
    .wake = ring_wake,
    .open_file = io_open_file,
    .allocate = io_allocate,
    .truncate = io_truncate,
    .sync = io_sync,
    .remove = io_remove,
};
