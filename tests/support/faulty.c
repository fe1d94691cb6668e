/* faulty.c - see faulty.h. */
#include "support/faulty.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct io_queue { /* a queue */
    faulty *disk;
    pthread_mutex_t lock;
    pthread_cond_t woken_up;
    bool woken;
    io_request *over; /* the submitting thread's: in the order in which they come back */
    int64_t began_ns;    /* of all that is over: delays are equal, so the first one's time is nearly everybody's */
};

static faulty *disk_of(const io_table *table)
{
    return table->user;
}

static io_queue *queue_open(const io_table *table, int depth)
{
    (void)depth;
    io_queue *const io = calloc(1, sizeof *io);
    if (io != NULL) {
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_mutex_init(&io->lock, NULL);
        pthread_cond_init(&io->woken_up, &monotonic);
        pthread_condattr_destroy(&monotonic);
        io->disk = disk_of(table);
    }
    return io;
}

static void queue_close(io_queue *io)
{
    pthread_cond_destroy(&io->woken_up);
    pthread_mutex_destroy(&io->lock);
    free(io);
}

static int64_t transfer(faulty *disk, const io_request *r)
{
    const size_t short_size = r->size > 4096 ? 4096 : r->size;
    const size_t size = atomic_load(&disk->is_short) ? short_size : r->size;
    if (r->write) {
        atomic_fetch_add(&disk->n_writes, 1);
        const bool fails = atomic_load(&disk->writes_left) == 0;
        if (atomic_load(&disk->writes_left) > 0) {
            atomic_fetch_sub(&disk->writes_left, 1);
        }
        const int error = atomic_load(&disk->write_error);
        if (error != 0 && (fails || atomic_load(&disk->writes_left) < 0)) {
            return -error;
        }
    } else if (atomic_load(&disk->read_error) != 0) {
        return -atomic_load(&disk->read_error);
    }
    const ssize_t n = r->write ? pwrite(r->fd, r->data, size, (off_t)r->offset) : pread(r->fd, r->data, size, (off_t)r->offset);
    return n >= 0 ? n : -errno;
}

static void queue_submit(io_queue *io, io_request *request)
{
    request->result = transfer(io->disk, request);
    io->began_ns = io->over == NULL ? clock_now_ns() : io->began_ns;
    request->next = io->over;
    io->over = request;
}

/* With the delay as it is now: what a test ends waits no longer. */
static int64_t due_ns(const io_queue *io) { return io->began_ns + (int64_t)atomic_load(&io->disk->delay_ms) * 1000000; }

static io_request *queue_wait(io_queue *io, int64_t timeout_ns)
{
    const int64_t now = clock_now_ns();
    int64_t until = timeout_ns < 0 ? now + (int64_t)3600 * 1000000000 : now + timeout_ns;
    if (io->over != NULL && due_ns(io) < until) {
        until = due_ns(io);
    }
    const struct timespec end = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int late = until <= now ? ETIMEDOUT : 0;
    pthread_mutex_lock(&io->lock);
    while (!io->woken && late == 0) {
        late = pthread_cond_timedwait(&io->woken_up, &io->lock, &end);
    }
    io->woken = false;
    pthread_mutex_unlock(&io->lock);
    if (io->over == NULL || clock_now_ns() < due_ns(io)) {
        return NULL;
    }
    io_request *const list = io->over;
    io->over = NULL;
    return list;
}

static void queue_wake(io_queue *io)
{
    pthread_mutex_lock(&io->lock);
    io->woken = true;
    pthread_cond_signal(&io->woken_up);
    pthread_mutex_unlock(&io->lock);
}

static int open_file(const io_table *table, int dir, const char *name, int flags)
{
    const int error = atomic_load(&disk_of(table)->create_error);
    return error != 0 && (flags & O_ACCMODE) != O_RDONLY ? -error : io_open_file(table, dir, name, flags);
}

static int allocate(const io_table *table, int fd, uint64_t bytes)
{
    const int error = atomic_load(&disk_of(table)->allocate_error);
    return error != 0 ? -error : io_allocate(table, fd, bytes);
}

static int sync_file(const io_table *table, int fd)
{
    const int error = atomic_load(&disk_of(table)->sync_error);
    return error != 0 ? -error : io_sync(table, fd);
}

static int remove_file(const io_table *table, int dir, const char *name)
{
    const int error = atomic_load(&disk_of(table)->remove_error);
    return error != 0 ? -error : io_remove(table, dir, name);
}

void faulty_init(faulty *f)
{
    *f = (faulty){.table = {.name = "faulty",
                            .open = queue_open,
                            .close = queue_close,
                            .submit = queue_submit,
                            .wait = queue_wait,
                            .wake = queue_wake,
                            .open_file = open_file,
                            .allocate = allocate,
                            .truncate = io_truncate,
                            .sync = sync_file,
                            .remove = remove_file,
                            .user = f}};
    atomic_store(&f->writes_left, -1);
}
