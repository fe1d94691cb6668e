/* log.c - see log.h; the ring is log_ring.h.
 *
 * Going to sleep: the writer says so and looks into the ring once more; a producer puts its line and looks whether the writer sleeps.
 * With sequentially consistent accesses one of the two sees the other. A log that is being closed gives a reader that does not read
 * close_ms, and then loses the rest. */
#include "core/log.h"

#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"
#include "core/log_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_RING_BYTES (1u << 20)
#define MIN_RING_BYTES (4 * LOG_MAX_LINE)
#define MAX_RING_BYTES (1u << 30)
#define DEFAULT_CLOSE_MS 2000
#define BATCH_BYTES (4 * LOG_MAX_LINE)
#define PIPE_BYTES 4096 /* what a writable pipe takes without waiting */

struct log_sink {
    log_ring ring;
    /* written by producers */
    _Alignas(64) _Atomic uint64_t n_dropped;
    /* written by the writer */
    _Alignas(64) _Atomic uint64_t done; /* position in the ring: everything before it has been written or lost */
    _Atomic uint64_t n_written;
    _Atomic uint64_t n_lost;
    _Atomic uint64_t n_errors;
    _Atomic bool failing;
    /* written by both */
    _Alignas(64) _Atomic bool sleeping;
    _Atomic bool reopen;
    _Atomic bool stop;
    _Atomic int level;
    /* constant, or the writer's own */
    char *path;
    int fd;
    int report_fd;
    int wake_fd; /* eventfd: something to do */
    int stop_fd; /* eventfd: readable from log_close on */
    int64_t close_ns;
    int64_t stop_at; /* monotonic; when a close gives up, 0 = not closing */
    bool half_line;  /* the last write ended inside a line */
    uint64_t lost_before; /* n_lost when the trouble began */
    char batch[BATCH_BYTES + 1]; /* one byte in front to end half a line */
    size_t n_batch;
    pthread_t thread;
    pthread_mutex_t lock; /* of `flushed` */
    pthread_cond_t flushed;
};

/* --- Producers ---------------------------------------------------------------------------------------------------------- */

static void wake(log_sink *log)
{
    const uint64_t one = 1;
    if (write(log->wake_fd, &one, sizeof one) < 0) {
        return; /* only when the counter is at its end: then it is awake */
    }
}

bool log_line(log_sink *log, const char *line, size_t n)
{
    if (log == NULL) {
        return true;
    }
    if (n > LOG_MAX_LINE || !log_ring_put(&log->ring, line, n)) {
        atomic_fetch_add_explicit(&log->n_dropped, 1, memory_order_relaxed);
        return false;
    }
    if (atomic_load(&log->sleeping) && atomic_exchange(&log->sleeping, false)) {
        wake(log);
    }
    return true;
}

void log_reopen(log_sink *log)
{
    if (log != NULL && log->path != NULL) {
        atomic_store(&log->reopen, true);
        wake(log);
    }
}

/* --- Writer: output ----------------------------------------------------------------------------------------------------- */

/* Says something about the log itself, unless that would wait or goes where the trouble is. */
static void report(const log_sink *log, const char *what, const char *reason)
{
    struct pollfd p = {.fd = log->report_fd, .events = POLLOUT};
    char text[512];
    const int n = snprintf(text, sizeof text - 1, "deepinfer: log %.300s: %s%s", log->path != NULL ? log->path : "", what, reason);
    if (log->fd == log->report_fd || n < 0 || poll(&p, 1, 0) != 1) {
        return;
    }
    size_t size = (size_t)n < sizeof text - 2 ? (size_t)n : sizeof text - 2;
    text[size++] = '\n';
    if (write(log->report_fd, text, size) < 0) {
        return; /* nobody is left to tell */
    }
}

static void fault(log_sink *log, const char *what, int errno_value)
{
    char reason[128];
    atomic_fetch_add_explicit(&log->n_errors, 1, memory_order_relaxed);
    report(log, what, strerror_r(errno_value, reason, sizeof reason));
}

static void set_failing(log_sink *log, int errno_value)
{
    if (errno_value == 0 && atomic_load_explicit(&log->failing, memory_order_relaxed)) {
        char text[64];
        const uint64_t n = atomic_load_explicit(&log->n_lost, memory_order_relaxed) - log->lost_before;
        snprintf(text, sizeof text, "%" PRIu64 " lines were lost", n);
        atomic_store_explicit(&log->failing, false, memory_order_relaxed);
        report(log, "can be written again; ", text);
    } else if (errno_value != 0 && !atomic_load_explicit(&log->failing, memory_order_relaxed)) {
        log->lost_before = atomic_load_explicit(&log->n_lost, memory_order_relaxed);
        atomic_store_explicit(&log->failing, true, memory_order_relaxed);
        fault(log, "lines are lost until it can be written again: ", errno_value);
    } else if (errno_value != 0) {
        atomic_fetch_add_explicit(&log->n_errors, 1, memory_order_relaxed);
    }
}

/* Waits until fd takes bytes. Until log_close there is no limit: a slow reader costs dropped lines only. */
static bool wait_writable(log_sink *log)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = log->fd, .events = POLLOUT}, {.fd = log->stop_fd, .events = POLLIN}};
        int timeout = -1;
        if (log->stop_at == 0 && atomic_load(&log->stop)) {
            log->stop_at = clock_now_ns() + log->close_ns;
        }
        if (log->stop_at != 0) {
            const int64_t left = log->stop_at - clock_now_ns();
            timeout = left > 0 ? (int)((left + 999999) / 1000000) : 0;
        }
        const int n = poll(p, log->stop_at != 0 ? 1 : 2, timeout);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            errno = n == 0 ? ETIMEDOUT : errno;
            return false;
        }
        if (n > 0 && p[0].revents != 0) {
            return true; /* an error among the events is what write will say */
        }
    }
}

/* How much of the n bytes to write at once: for a pipe no more than fits without waiting, whole lines where that is possible. */
static size_t piece(const log_sink *log, const char *data, size_t n)
{
    struct stat info;
    if (n <= PIPE_BYTES || (fstat(log->fd, &info) == 0 && S_ISREG(info.st_mode))) {
        return n;
    }
    const char *end = memrchr(data, '\n', PIPE_BYTES);
    return end != NULL ? (size_t)(end - data) + 1 : PIPE_BYTES;
}

/* Returns how many of the n bytes were written; fewer than n with errno set. */
static size_t write_all(log_sink *log, const char *data, size_t n)
{
    size_t done = 0;
    while (done < n) {
        if (!wait_writable(log)) {
            return done;
        }
        const ssize_t wrote = write(log->fd, data + done, piece(log, data + done, n - done));
        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote == 0 || (errno != EINTR && errno != EAGAIN)) {
            errno = wrote == 0 ? EIO : errno;
            return done;
        }
    }
    return done;
}

static uint64_t count_lines(const char *data, size_t n)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < n; i++) {
        lines += data[i] == '\n';
    }
    return lines;
}

static void write_batch(log_sink *log)
{
    const size_t skip = log->half_line ? 0 : 1; /* a newline in front when the last write ended inside a line */
    const size_t n = log->n_batch + 1 - skip;
    const size_t wrote = write_all(log, log->batch + skip, n);
    const int error = wrote < n ? errno : 0;
    const uint64_t lines = count_lines(log->batch + 1, log->n_batch);
    const uint64_t whole = wrote + skip > 1 ? count_lines(log->batch + 1, wrote + skip - 1) : 0;
    if (wrote > 0) {
        log->half_line = log->batch[skip + wrote - 1] != '\n';
    }
    atomic_fetch_add_explicit(&log->n_written, whole, memory_order_relaxed);
    set_failing(log, error);
    atomic_fetch_add_explicit(&log->n_lost, lines - whole, memory_order_relaxed);
    log->n_batch = 0;
}

static int open_path(const char *path)
{
    /* Without O_NONBLOCK a named pipe that nobody reads would hold the program up here. */
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

static void reopen(log_sink *log)
{
    const int fd = open_path(log->path);
    if (fd < 0) {
        fault(log, "cannot be opened anew, the old file is kept: ", errno);
        return;
    }
    close(log->fd);
    log->fd = fd;
    log->half_line = false;
}

/* --- Writer: the thread ------------------------------------------------------------------------------------------------- */

static void tell_flushers(log_sink *log)
{
    atomic_store(&log->done, atomic_load_explicit(&log->ring.head, memory_order_relaxed));
    pthread_mutex_lock(&log->lock);
    pthread_cond_broadcast(&log->flushed);
    pthread_mutex_unlock(&log->lock);
}

/* True when there was something to write. */
static bool write_some(log_sink *log)
{
    size_t n;
    while ((n = log_ring_take(&log->ring, log->batch + 1 + log->n_batch, BATCH_BYTES - log->n_batch)) > 0) {
        log->n_batch += n;
    }
    if (log->n_batch == 0) {
        return false;
    }
    write_batch(log);
    tell_flushers(log);
    return true;
}

static void sleep_until_woken(log_sink *log)
{
    uint64_t count;
    atomic_store(&log->sleeping, true);
    if (!log_ring_has(&log->ring) && !atomic_load(&log->stop) && !atomic_load(&log->reopen) &&
        read(log->wake_fd, &count, sizeof count) < 0) {
        return; /* nothing but EINTR, and then we look again */
    }
    atomic_store(&log->sleeping, false);
}

static void *writer_main(void *arg)
{
    log_sink *const log = arg;
    for (;;) {
        const bool stop = atomic_load(&log->stop); /* before looking, so that nothing from before it is left */
        if (atomic_exchange(&log->reopen, false)) {
            reopen(log);
        }
        if (write_some(log)) {
            continue;
        }
        if (stop) {
            return NULL;
        }
        sleep_until_woken(log);
    }
}

/* Signals are for the program's other threads, and SIGPIPE is an error of write here. */
static int start_writer(log_sink *log)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int failed = pthread_create(&log->thread, NULL, writer_main, log);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

/* --- Opening and closing ------------------------------------------------------------------------------------------------ */

static void release(log_sink *log)
{
    const int fds[] = {log->path != NULL ? log->fd : -1, log->wake_fd, log->stop_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    pthread_cond_destroy(&log->flushed);
    pthread_mutex_destroy(&log->lock);
    free(log->path);
    log_ring_fini(&log->ring);
    free(log);
}

static di_status open_files(log_sink *log, const log_options *o, di_error *err)
{
    if (o->path != NULL) {
        log->path = strdup(o->path);
        if (log->path == NULL) {
            return err_memory(err, "log", strlen(o->path));
        }
        log->fd = open_path(o->path);
        if (log->fd < 0) {
            return err_set_errno(err, errno, "cannot open the log %s", o->path);
        }
    }
    log->wake_fd = eventfd(0, EFD_CLOEXEC);
    log->stop_fd = eventfd(0, EFD_CLOEXEC);
    return log->wake_fd >= 0 && log->stop_fd >= 0 ? DI_OK : err_set_errno(err, errno, "log: no event file");
}

static void init_lock(log_sink *log)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&log->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&log->flushed, &attributes);
    pthread_condattr_destroy(&attributes);
}

di_status log_open(const log_options *o, log_sink **out, di_error *err)
{
    if (o->ring_bytes > MAX_RING_BYTES) {
        return err_set(err, DI_E_ARGUMENT, "log: a ring of %zu bytes, at most %u", o->ring_bytes, MAX_RING_BYTES);
    }
    const size_t wanted = o->ring_bytes != 0 ? o->ring_bytes : DEFAULT_RING_BYTES;
    size_t capacity = MIN_RING_BYTES;
    while (capacity < wanted) {
        capacity *= 2;
    }
    log_sink *const log = ar_calloc_aligned(1, sizeof *log, _Alignof(log_sink));
    if (log == NULL) {
        return err_memory(err, "log", sizeof *log);
    }
    init_lock(log);
    log->fd = o->path != NULL ? -1 : o->fd;
    log->report_fd = o->report_fd != 0 ? o->report_fd : STDERR_FILENO;
    log->wake_fd = log->stop_fd = -1;
    log->close_ns = (o->close_ms > 0 ? o->close_ms : DEFAULT_CLOSE_MS) * 1000000;
    log->level = (int)o->level;
    log->batch[0] = '\n';
    di_status status = log_ring_init(&log->ring, capacity) ? open_files(log, o, err) : err_memory(err, "log", capacity);
    if (status == DI_OK) {
        const int failed = start_writer(log);
        status = failed == 0 ? DI_OK : err_set_errno(err, failed, "cannot start the writer of a log");
    }
    if (status != DI_OK) {
        release(log);
        return status;
    }
    *out = log;
    return DI_OK;
}

void log_close(log_sink *log)
{
    if (log == NULL) {
        return;
    }
    const uint64_t one = 1;
    atomic_store(&log->stop, true);
    while (write(log->stop_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    wake(log);
    pthread_join(log->thread, NULL);
    release(log);
}

bool log_flush(log_sink *log, int64_t timeout_ms)
{
    if (log == NULL) {
        return true;
    }
    const uint64_t target = atomic_load(&log->ring.tail);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = until.tv_nsec + timeout_ms % 1000 * 1000000;
    until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    int failed = 0;
    pthread_mutex_lock(&log->lock);
    while (atomic_load(&log->done) < target && failed == 0) {
        failed = pthread_cond_timedwait(&log->flushed, &log->lock, &until);
    }
    const bool all = atomic_load(&log->done) >= target;
    pthread_mutex_unlock(&log->lock);
    return all;
}

void log_set_level(log_sink *log, log_level level)
{
    atomic_store_explicit(&log->level, (int)level, memory_order_relaxed);
}

bool log_takes(const log_sink *log, log_level level)
{
    return log != NULL && (int)level <= atomic_load_explicit(&log->level, memory_order_relaxed);
}

void log_get_stats(const log_sink *log, log_stats *out)
{
    memset(out, 0, sizeof *out);
    if (log != NULL) {
        out->n_written = atomic_load_explicit(&log->n_written, memory_order_relaxed);
        out->n_dropped = atomic_load_explicit(&log->n_dropped, memory_order_relaxed);
        out->n_lost = atomic_load_explicit(&log->n_lost, memory_order_relaxed);
        out->n_errors = atomic_load_explicit(&log->n_errors, memory_order_relaxed);
        out->failing = atomic_load_explicit(&log->failing, memory_order_relaxed);
    }
}
