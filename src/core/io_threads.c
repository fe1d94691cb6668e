/* io_threads.c - I/O by a few threads that call pread and pwrite: works everywhere. And what both tables share: file functions, and
 * transfers that wait for their end.
 *
 * One lock guards a queue; it is held for list operations only. */
#include "core/io.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 16, PIECE_BYTES = 1 << 20, MAX_PIECES = 16 };

typedef struct request_list { /* first in, first out */
    io_request *first;
    io_request **end;
} request_list;

struct io_queue { /* owner: who opened it */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    pthread_cond_t news;
    request_list todo;
    request_list over;
    bool woken;
    bool closing;
    int n_threads;
    pthread_t threads[MAX_THREADS];
};

static void append(request_list *list, io_request *request)
{
    request->next = NULL;
    *list->end = request;
    list->end = &request->next;
}

static io_request *take_first(request_list *list)
{
    io_request *const first = list->first;
    list->first = first->next;
    if (list->first == NULL) {
        list->end = &list->first;
    }
    return first;
}

static int64_t transfer(const io_request *r)
{
    const ssize_t n = r->write ? pwrite(r->fd, r->data, r->size, (off_t)r->offset) : pread(r->fd, r->data, r->size, (off_t)r->offset);
    return n >= 0 ? n : -errno;
}

static void *work(void *arg)
{
    io_queue *const io = arg;
    pthread_mutex_lock(&io->lock);
    for (;;) {
        while (io->todo.first == NULL && !io->closing) {
            pthread_cond_wait(&io->work, &io->lock);
        }
        if (io->todo.first == NULL) {
            break;
        }
        io_request *const request = take_first(&io->todo);
        pthread_mutex_unlock(&io->lock);
        request->result = transfer(request);
        pthread_mutex_lock(&io->lock);
        append(&io->over, request);
        pthread_cond_signal(&io->news);
    }
    pthread_mutex_unlock(&io->lock);
    return NULL;
}

static void pool_close(io_queue *io)
{
    pthread_mutex_lock(&io->lock);
    io->closing = true;
    pthread_cond_broadcast(&io->work);
    pthread_mutex_unlock(&io->lock);
    for (int i = 0; i < io->n_threads; i++) {
        pthread_join(io->threads[i], NULL);
    }
    pthread_cond_destroy(&io->news);
    pthread_cond_destroy(&io->work);
    pthread_mutex_destroy(&io->lock);
    free(io);
}

static io_queue *pool_open(const io_table *table, int depth)
{
    (void)table;
    io_queue *const io = calloc(1, sizeof *io);
    if (io == NULL) {
        return NULL;
    }
    io->todo.end = &io->todo.first;
    io->over.end = &io->over.first;
    pthread_condattr_t monotonic;
    pthread_mutex_init(&io->lock, NULL);
    pthread_cond_init(&io->work, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&io->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int wanted = depth < MAX_THREADS ? depth : MAX_THREADS;
    while (io->n_threads < wanted && pthread_create(&io->threads[io->n_threads], NULL, work, io) == 0) {
        io->n_threads++;
    }
    if (io->n_threads == 0) {
        pool_close(io);
        return NULL;
    }
    return io;
}

static void pool_submit(io_queue *io, io_request *request)
{
    pthread_mutex_lock(&io->lock);
    append(&io->todo, request);
    pthread_cond_signal(&io->work);
    pthread_mutex_unlock(&io->lock);
}

static io_request *pool_wait(io_queue *io, int64_t timeout_ns)
{
    const int64_t until = clock_now_ns() + (timeout_ns > 0 ? timeout_ns : 0);
    const struct timespec end = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int late = timeout_ns == 0 ? ETIMEDOUT : 0;
    pthread_mutex_lock(&io->lock);
    while (io->over.first == NULL && !io->woken && late == 0) {
        late = timeout_ns < 0 ? pthread_cond_wait(&io->news, &io->lock) : pthread_cond_timedwait(&io->news, &io->lock, &end);
    }
    io_request *const list = io->over.first;
    io->over = (request_list){.end = &io->over.first};
    io->woken = false;
    pthread_mutex_unlock(&io->lock);
    return list;
}

static void pool_wake(io_queue *io)
{
    pthread_mutex_lock(&io->lock);
    io->woken = true;
    pthread_cond_signal(&io->news);
    pthread_mutex_unlock(&io->lock);
}

/* ---- files ---- */

int io_open_file(const io_table *table, int dir, const char *name, int flags)
{
    (void)table;
    const int fd = openat(dir, name, flags | O_CLOEXEC, 0644);
    return fd >= 0 ? fd : -errno;
}

int io_allocate(const io_table *table, int fd, uint64_t bytes)
{
    (void)table;
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0) {
        return 0;
    }
    if (errno != EOPNOTSUPP) {
        return -errno;
    }
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : -errno;
}

int io_truncate(const io_table *table, int fd, uint64_t bytes)
{
    (void)table;
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : -errno;
}

int io_sync(const io_table *table, int fd)
{
    (void)table;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        return fsync(fd) == 0 ? 0 : -errno;
    }
    return fdatasync(fd) == 0 ? 0 : -errno;
}

int io_remove(const io_table *table, int dir, const char *name)
{
    (void)table;
    return unlinkat(dir, name, 0) == 0 ? 0 : -errno;
}

/* ---- whole transfers ---- */

typedef struct transfers { /* pieces of one range on their way */
    io_request pieces[MAX_PIECES];
    int n_out;
    int error; /* the first one */
} transfers;

/* What a piece that came back leaves to be done is submitted again. */
static void settle(const io_table *table, io_queue *io, transfers *t, io_request *r)
{
    if (r->result > 0 && (size_t)r->result < r->size && t->error == 0) {
        r->data = (uint8_t *)r->data + r->result;
        r->size -= (size_t)r->result;
        r->offset += (uint64_t)r->result;
        table->submit(io, r);
        return;
    }
    if (r->result <= 0 && r->result != -EINTR && r->result != -EAGAIN && t->error == 0) {
        t->error = r->result == 0 ? -ENODATA : (int)r->result;
    } else if (r->result < 0 && t->error == 0) {
        table->submit(io, r);
        return;
    }
    r->size = 0; /* free */
    t->n_out--;
}

int io_whole(const io_table *table, io_queue *io, int fd, bool write, uint64_t offset, void *data, size_t size, int depth)
{
    transfers t = {.n_out = 0};
    const int limit = depth < MAX_PIECES ? depth : MAX_PIECES;
    size_t at = 0;
    while (t.n_out > 0 || (at < size && t.error == 0)) {
        for (int i = 0; i < limit && at < size && t.error == 0; i++) {
            if (t.pieces[i].size == 0) {
                const size_t n = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
                t.pieces[i] = (io_request){
                    .fd = fd, .write = write, .offset = offset + at, .data = (uint8_t *)data + at, .size = n};
                at += n;
                t.n_out++;
                table->submit(io, &t.pieces[i]);
            }
        }
        for (io_request *r = table->wait(io, -1); r != NULL;) {
            io_request *const next = r->next;
            settle(table, io, &t, r);
            r = next;
        }
    }
    return t.error;
}

const io_table io_by_threads = {
    .name = "threads",
    .open = pool_open,
    .close = pool_close,
    .submit = pool_submit,
    .wait = pool_wait,
    .wake = pool_wake,
    .open_file = io_open_file,
    .allocate = io_allocate,
    .truncate = io_truncate,
    .sync = io_sync,
    .remove = io_remove,
};
