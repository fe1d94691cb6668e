/* mdl_reader.c - see mdl_reader.h. A read goes out in pieces of a mebibyte, so that a few large reads keep the disk as busy as many small
 * ones. A piece that comes back short is asked for again from where it stopped: at the end of the file it gives nothing, and that is
 * a file which was cut. */
#include "model/mdl_reader.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 96 };
#define PIECE_BYTES ((uint64_t)1 << 20)

typedef struct shard_file {
    int fd;
    const file_map *map;
    const char *label;
} shard_file;

typedef struct piece { /* of a read, on its way */
    io_request request; /* first: what wait returns is a piece */
    mdl_read *read;
    struct piece *link;
} piece;

typedef struct read_list { /* first in, first out */
    mdl_read *first;
    mdl_read *last;
} read_list;

struct mdl_reader { /* owner: the runner */
    const io_table *io;
    io_queue *queue;
    shard_file *files;
    size_t n_files;
    piece pieces[DEPTH];
    piece *idle;
    int n_out;
    read_list urgent;
    read_list others;
    read_list stillborn; /* reads of files that changed: over with the next poll */
    di_error error;      /* the first failure; code DI_OK = none */
    _Atomic int64_t bytes; /* both are read by others while a pass runs */
    _Atomic int64_t wait_ns;
};

/* ---- lists ---- */

static void append(read_list *list, mdl_read *read)
{
    read->link = NULL;
    if (list->last != NULL) {
        list->last->link = read;
    } else {
        list->first = read;
    }
    list->last = read;
}

static bool take_out(read_list *list, mdl_read *read)
{
    mdl_read *before = NULL;
    for (mdl_read *at = list->first; at != NULL; before = at, at = at->link) {
        if (at == read) {
            *(before != NULL ? &before->link : &list->first) = at->link;
            list->last = list->last == at ? before : list->last;
            return true;
        }
    }
    return false;
}

/* ---- files ---- */

static di_status open_shard(mdl_reader *r, const st_file *file, const char *dir, di_error *err)
{
    shard_file *const f = &r->files[r->n_files];
    file_identity now;
    char *const path = file_path_join(dir, st_label(file));
    if (path == NULL) {
        return err_memory(err, st_label(file), strlen(dir));
    }
    *f = (shard_file){.map = st_mapping(file), .label = st_label(file)};
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    if (f->fd < 0 && errno == EINVAL) {
        f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a file system in memory, mostly */
    }
    di_status status = DI_OK;
    if (f->fd < 0) {
        status = err_set_errno(err, errno, "cannot open %s", path);
    } else {
        r->n_files++;
        if (!file_identity_of(f->fd, &now) || !file_identity_equal(&now, &f->map->identity)) {
            status = err_set(err, DI_E_IO, "%s was changed or replaced since the model was opened", path);
        }
    }
    free(path);
    return status;
}

static di_status open_queue(mdl_reader *r, const io_table *io, di_error *err)
{
    const io_table *const tables[] = {io != NULL ? io : &io_by_uring, &io_by_threads};
    for (size_t i = 0; i < 2 && r->queue == NULL; i++) {
        r->io = tables[i];
        r->queue = r->io->open(r->io, DEPTH);
    }
    return r->queue != NULL ? DI_OK : err_set(err, DI_E_IO, "cannot start transfers from the disk: neither io_uring nor threads");
}

di_status mdl_reader_new(const mdl_checkpoint *checkpoint, const char *dir, const io_table *io, mdl_reader **out, di_error *err)
{
    const size_t n = mdl_checkpoint_n_shards(checkpoint);
    mdl_reader *const r = ar_calloc(1, sizeof *r);
    if (r == NULL) {
        return err_memory(err, "reader", sizeof *r);
    }
    r->files = ar_calloc(n, sizeof *r->files);
    di_status status = r->files != NULL ? open_queue(r, io, err) : err_memory(err, "reader", n * sizeof *r->files);
    for (size_t i = 0; i < n && status == DI_OK; i++) {
        status = open_shard(r, mdl_checkpoint_shard(checkpoint, i), dir, err);
    }
    for (size_t i = 0; i < DEPTH; i++) {
        r->pieces[i].link = r->idle;
        r->idle = &r->pieces[i];
    }
    if (status != DI_OK) {
        mdl_reader_free(r);
        return status;
    }
    *out = r;
    return DI_OK;
}

void mdl_reader_free(mdl_reader *r)
{
    if (r == NULL) {
        return;
    }
    while (r->n_out > 0) {
        for (io_request *q = r->io->wait(r->queue, -1); q != NULL; q = q->next) {
            r->n_out--;
        }
    }
    if (r->queue != NULL) {
        r->io->close(r->queue);
    }
    for (size_t i = 0; i < r->n_files; i++) {
        close(r->files[i].fd);
    }
    free(r->files);
    free(r);
}

/* ---- reads ---- */

static void fail(mdl_reader *r, mdl_read *read, int error)
{
    const char *const label = r->files[read->shard].label;
    read->failed = true;
    if (r->error.code != DI_OK) {
        return;
    }
    if (error == ESTALE) {
        (void)err_set(&r->error, DI_E_IO, "%s was changed or cut while weights are read from it: start again", label);
    } else if (error == ENODATA) {
        (void)err_set(&r->error, DI_E_IO, "%s ends before byte %llu: it was cut while weights are read from it", label,
                      (unsigned long long)(read->offset + read->size));
    } else {
        (void)err_set_errno(&r->error, error, "cannot read %s at byte %llu", label, (unsigned long long)read->offset);
    }
}

void mdl_reader_ask(mdl_reader *r, mdl_read *read, bool urgent)
{
    file_identity now;
    read->shard = 0;
    while (read->shard + 1 < r->n_files &&
           (uintptr_t)read->data - (uintptr_t)r->files[read->shard].map->data >= r->files[read->shard].map->size) {
        read->shard++;
    }
    const shard_file *const f = &r->files[read->shard];
    read->offset = (uint64_t)((uintptr_t)read->data - (uintptr_t)f->map->data);
    read->next = read->offset / MDL_READ_ALIGN * MDL_READ_ALIGN;
    read->result = NULL;
    read->n_out = 0;
    read->failed = false;
    if (file_identity_of(f->fd, &now) && file_identity_equal(&now, &f->map->identity)) {
        append(urgent ? &r->urgent : &r->others, read);
    } else {
        fail(r, read, ESTALE);
        append(&r->stillborn, read);
    }
}

void mdl_reader_hurry(mdl_reader *r, mdl_read *read)
{
    if (take_out(&r->others, read)) {
        append(&r->urgent, read);
    }
}

static uint64_t end_of(const mdl_read *read)
{
    return (read->offset + read->size + MDL_READ_ALIGN - 1) / MDL_READ_ALIGN * MDL_READ_ALIGN;
}

/* The next piece of a read; a read that is out as a whole leaves its list. */
static void send_piece(mdl_reader *r, read_list *list)
{
    mdl_read *const read = list->first;
    piece *const p = r->idle;
    const uint64_t left = end_of(read) - read->next;
    const uint64_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
    r->idle = p->link;
    p->read = read;
    p->request = (io_request){.fd = r->files[read->shard].fd,
                              .offset = read->next,
                              .data = read->memory + (read->next - read->offset / MDL_READ_ALIGN * MDL_READ_ALIGN),
                              .size = (size_t)n};
    read->next += n;
    read->n_out++;
    r->n_out++;
    if (read->next == end_of(read)) {
        (void)take_out(list, read);
    }
    r->io->submit(r->queue, &p->request);
}

static void send_some(mdl_reader *r)
{
    while (r->idle != NULL && (r->urgent.first != NULL || r->others.first != NULL)) {
        send_piece(r, r->urgent.first != NULL ? &r->urgent : &r->others);
    }
}

static void end_read(mdl_reader *r, mdl_read *read)
{
    if (read->failed) {
        (void)take_out(&r->urgent, read);
        (void)take_out(&r->others, read);
    }
    read->result = read->failed ? NULL : read->memory + read->offset % MDL_READ_ALIGN;
    read->over(read);
}

/* Is the piece over? Else it was asked for again. */
static bool settle(mdl_reader *r, piece *p)
{
    io_request *const q = &p->request;
    mdl_read *const read = p->read;
    if (q->result == -EINVAL) { /* a file system that takes O_DIRECT in open and not in read */
        const int flags = fcntl(q->fd, F_GETFL);
        if (flags >= 0 && (flags & O_DIRECT) != 0 && fcntl(q->fd, F_SETFL, flags & ~O_DIRECT) == 0) {
            r->io->submit(r->queue, q);
            return false;
        }
    }
    if (q->result == -EINTR || q->result == -EAGAIN) {
        r->io->submit(r->queue, q);
        return false;
    }
    if (q->result <= 0) {
        fail(r, read, q->result == 0 ? ENODATA : (int)-q->result);
        return true;
    }
    const size_t got = (size_t)q->result;
    atomic_fetch_add_explicit(&r->bytes, (int64_t)got, memory_order_relaxed);
    if (got < q->size && q->offset + got < read->offset + read->size) {
        q->data = (uint8_t *)q->data + got;
        q->size -= got;
        q->offset += got;
        r->io->submit(r->queue, q);
        return false;
    }
    return true;
}

/* Ends what came back. True when a read is over. */
static bool settle_list(mdl_reader *r, io_request *list)
{
    bool any = false;
    while (list != NULL) {
        piece *const p = (piece *)(void *)list;
        mdl_read *const read = p->read;
        list = list->next;
        if (!settle(r, p)) {
            continue;
        }
        p->link = r->idle;
        r->idle = p;
        r->n_out--;
        read->n_out--;
        if (read->n_out == 0 && (read->failed || read->next == end_of(read))) {
            end_read(r, read);
            any = true;
        }
    }
    return any;
}

void mdl_reader_poll(mdl_reader *r, bool wait)
{
    bool any = false;
    while (r->stillborn.first != NULL) {
        mdl_read *const read = r->stillborn.first;
        (void)take_out(&r->stillborn, read);
        end_read(r, read);
        any = true;
    }
    send_some(r);
    any = (r->n_out > 0 && settle_list(r, r->io->wait(r->queue, 0))) || any;
    send_some(r);
    const int64_t begin = wait && !any ? clock_now_ns() : 0;
    while (wait && !any && r->n_out > 0) {
        any = settle_list(r, r->io->wait(r->queue, -1));
        send_some(r);
    }
    atomic_fetch_add_explicit(&r->wait_ns, begin != 0 ? clock_now_ns() - begin : 0, memory_order_relaxed);
}

di_status mdl_reader_failure(const mdl_reader *r, di_error *err)
{
    if (r->error.code != DI_OK && err != NULL) {
        *err = r->error;
    }
    return r->error.code;
}

void mdl_reader_begin(mdl_reader *r) { r->error.code = DI_OK; }

int64_t mdl_reader_bytes(const mdl_reader *r) { return atomic_load_explicit(&r->bytes, memory_order_relaxed); }
int64_t mdl_reader_wait_ns(const mdl_reader *r) { return atomic_load_explicit(&r->wait_ns, memory_order_relaxed); }
