/* bench_disk.c - see bench_disk.h. */
#include "bench_disk.h"

#include "core/core.h"
#include "core/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEPTH = 64, READS = 256 };
#define PIECE ((size_t)1 << 20)

struct bench_disk { /* owner and thread: who made it */
    const io_table *io;
    io_queue *queue;
    int fd;
    uint64_t n_pieces; /* of the file */
    uint64_t seed;
    uint8_t *memory; /* [DEPTH][PIECE] */
    io_request requests[DEPTH];
};

di_status bench_disk_new(const char *path, bench_disk **out, di_error *err)
{
    bench_disk *const d = ar_calloc(1, sizeof *d);
    if (d == NULL) {
        return err_memory(err, "disk bench", sizeof *d);
    }
    file_identity file = {.size = 0};
    d->fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    di_status status = d->fd >= 0 ? DI_OK : err_set_errno(err, errno, "cannot open %s past the system's cache", path);
    if (status == DI_OK && (!file_identity_of(d->fd, &file) || file.size < PIECE)) {
        status = err_set(err, DI_E_IO, "%s is too small to measure the disk with", path);
    }
    d->n_pieces = file.size / PIECE;
    d->memory = mmap(NULL, DEPTH * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (d->memory == MAP_FAILED) {
        d->memory = NULL;
        status = status == DI_OK ? err_memory(err, "disk bench", DEPTH * PIECE) : status;
    } else {
        (void)madvise(d->memory, DEPTH * PIECE, MADV_HUGEPAGE); /* as weights have them: a transfer is one piece of memory then */
    }
    const io_table *const tables[] = {&io_by_uring, &io_by_threads};
    for (int i = 0; i < 2 && d->queue == NULL && status == DI_OK; i++) {
        d->io = tables[i];
        d->queue = d->io->open(d->io, DEPTH);
    }
    if (status == DI_OK && d->queue == NULL) {
        status = err_set(err, DI_E_IO, "cannot start transfers from the disk");
    }
    if (status != DI_OK) {
        bench_disk_free(d);
        return status;
    }
    *out = d;
    return DI_OK;
}

void bench_disk_free(bench_disk *d)
{
    if (d == NULL) {
        return;
    }
    if (d->queue != NULL) {
        d->io->close(d->queue);
    }
    if (d->fd >= 0) {
        close(d->fd);
    }
    if (d->memory != NULL) {
        (void)munmap(d->memory, DEPTH * PIECE);
    }
    free(d);
}

static void ask(bench_disk *d, io_request *r, uint8_t *memory)
{
    d->seed = d->seed * 6364136223846793005u + 1442695040888963407u;
    *r = (io_request){.fd = d->fd, .offset = (d->seed >> 20) % d->n_pieces * PIECE, .data = memory, .size = PIECE};
    d->io->submit(d->queue, r);
}

di_status bench_disk_rate(bench_disk *d, double *out, di_error *err)
{
    const int64_t begin = clock_now_ns();
    int64_t bytes = 0;
    int asked = 0;
    int error = 0;
    for (; asked < DEPTH; asked++) {
        ask(d, &d->requests[asked], d->memory + (size_t)asked * PIECE);
    }
    for (int left = READS; left > 0;) {
        for (io_request *r = d->io->wait(d->queue, -1), *next; r != NULL; r = next) {
            next = r->next;
            left--;
            error = r->result < 0 ? (int)-r->result : error;
            bytes += r->result > 0 ? r->result : 0;
            if (asked < READS) {
                asked++;
                ask(d, r, r->data);
            }
        }
    }
    *out = (double)bytes / (double)(clock_now_ns() - begin);
    return error == 0 ? DI_OK : err_set_errno(err, error, "cannot measure the disk");
}
