/* kv_writers.c - see kv_writers.h. Locks are of open file descriptions, so that two stores of one process exclude each other as well. */
#include "kv/kv_writers.h"

#include "core/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct lock_text { /* contents of the file */
    char magic[8];
    uint8_t boot[16];
    uint64_t segment;
    uint64_t bytes;
    uint64_t pid;
    uint8_t sum[DIGEST_SUM_BYTES];
} lock_text;

_Static_assert(sizeof(lock_text) == 64, "one write of 64 bytes");

static const char magic[8] = "dikvlck";

/* The number that the kernel gives a boot; all zero where there is none, which then counts as one host. */
static void read_boot(uint8_t out[16])
{
    char text[64];
    memset(out, 0, 16);
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    const ssize_t n = read(fd, text, sizeof text);
    if (n > 0) {
        digest_sum(text, (size_t)n, out);
    }
    close(fd);
}

void kv_writers_init(kv_writers *w, const io_table *io, int dir, int64_t lease_s)
{
    *w = (kv_writers){.io = io, .dir = dir, .lease_s = lease_s, .mode = -1};
    for (int i = 0; i < KV_WRITERS; i++) {
        w->fds[i] = -1;
    }
    read_boot(w->boot);
}

void kv_writers_fini(kv_writers *w)
{
    for (int i = 0; i < KV_WRITERS; i++) {
        if (w->fds[i] >= 0) {
            (void)!ftruncate(w->fds[i], 0); /* an empty file is nobody's, without waiting for the lease */
            close(w->fds[i]);
            w->fds[i] = -1;
        }
    }
    if (w->mode >= 0) {
        close(w->mode);
        w->mode = -1;
    }
}

static void lock_name(int number, char out[16])
{
    snprintf(out, 16, "%02x.lock", (unsigned)number & 0xff);
}

static bool read_text(int fd, lock_text *out)
{
    uint8_t sum[DIGEST_SUM_BYTES];
    if (pread(fd, out, sizeof *out, 0) != (ssize_t)sizeof *out || memcmp(out->magic, magic, sizeof magic) != 0) {
        return false;
    }
    digest_sum(out, offsetof(lock_text, sum), sum);
    return memcmp(sum, out->sum, sizeof sum) == 0;
}

static void write_text(const kv_writers *w, int fd, uint64_t segment, uint64_t bytes)
{
    lock_text text = {.segment = segment, .bytes = bytes, .pid = (uint64_t)getpid()};
    memcpy(text.magic, magic, sizeof magic);
    memcpy(text.boot, w->boot, sizeof text.boot);
    digest_sum(&text, offsetof(lock_text, sum), text.sum);
    (void)!pwrite(fd, &text, sizeof text, 0); /* what can't be written is noticed at the segments */
}

/* Whether the last holder may be alive though its lock is not seen here. */
static bool lease_runs(const kv_writers *w, int fd)
{
    lock_text text;
    struct stat st;
    return read_text(fd, &text) && memcmp(text.boot, w->boot, sizeof text.boot) != 0 && fstat(fd, &st) == 0 &&
           time(NULL) - st.st_mtim.tv_sec < w->lease_s;
}

/* Opens and locks a file: its descriptor, -EAGAIN when somebody else's lock is in the way, or -errno. */
static int open_locked(const kv_writers *w, const char *name, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    const int fd = w->io->open_file(w->io, w->dir, name, O_RDWR | O_CREAT);
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        const int error = errno == EACCES ? EAGAIN : errno;
        close(fd);
        return -error;
    }
    return fd;
}

int kv_writers_agree(kv_writers *w, bool shared)
{
    const int fd = open_locked(w, "mode.lock", shared ? F_RDLCK : F_WRLCK);
    if (fd < 0) {
        return fd == -EAGAIN ? 0 : fd;
    }
    w->mode = fd;
    return 1;
}

int kv_writer_take(kv_writers *w, int number)
{
    char name[16];
    if (w->fds[number] >= 0) {
        return 1;
    }
    lock_name(number, name);
    const int fd = open_locked(w, name, F_WRLCK);
    if (fd < 0) {
        return fd == -EAGAIN ? 0 : fd;
    }
    if (lease_runs(w, fd)) {
        close(fd);
        return 0;
    }
    write_text(w, fd, 0, 0);
    w->fds[number] = fd;
    return 1;
}

bool kv_writer_ours(const kv_writers *w, int number)
{
    return w->fds[number] >= 0;
}

void kv_writer_publish(const kv_writers *w, int number, uint64_t segment, uint64_t bytes)
{
    if (w->fds[number] >= 0) {
        write_text(w, w->fds[number], segment, bytes);
    }
}

bool kv_writer_published(const kv_writers *w, int number, uint64_t *segment, uint64_t *bytes)
{
    char name[16];
    lock_text text;
    lock_name(number, name);
    const int fd = openat(w->dir, name, O_RDONLY | O_CLOEXEC);
    const bool known = fd >= 0 && read_text(fd, &text);
    if (known) {
        *segment = text.segment;
        *bytes = text.bytes;
    }
    if (fd >= 0) {
        close(fd);
    }
    return known;
}
