/* mdl_kept_write.c - see mdl_kept_file.h: writing.
 *
 * NAME.part is written and locked; a lock ends with its process, so that what a killed one left is simply written over. The lock holds for
 * the file that has the name: whoever waited to open it while its writer gave it the final name must not write into that one. Pages
 * of the system's cache are given back behind each form: the forms are in memory already. */
#include "model/mdl_kept_int.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH = 4 };

#define BEHIND ((uint64_t)64 << 20)

struct mdl_kept_writer {
    const io_table *io;
    io_queue *queue;
    int dir;
    int fd;
    char *name;
    char *part;
    mdl_kept_head head;
    mdl_kept_entry *entries; /* [room] */
    size_t room;
    uint64_t end;       /* of what was written */
    uint64_t forgotten; /* up to here */
};

static di_status failed(const mdl_kept_writer *w, const char *what, int error, di_error *err)
{
    return err_set_errno(err, error < 0 ? -error : error, "cannot %s %s", what, w->part);
}

static di_status open_dir(mdl_kept_writer *w, const char *path, di_error *err)
{
    if (mkdir(path, 0755) != 0 && errno != EEXIST) {
        return err_set_errno(err, errno, "cannot make folder %s", path);
    }
    w->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return w->dir >= 0 ? DI_OK : err_set_errno(err, errno, "cannot open folder %s", path);
}

static bool has_name(const mdl_kept_writer *w)
{
    struct stat by_fd;
    struct stat by_name;
    return fstat(w->fd, &by_fd) == 0 && fstatat(w->dir, w->part, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
           by_fd.st_ino == by_name.st_ino && by_fd.st_dev == by_name.st_dev;
}

static di_status open_part(mdl_kept_writer *w, uint64_t bytes, di_error *err)
{
    w->fd = w->io->open_file(w->io, w->dir, w->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW);
    if (w->fd < 0) {
        return failed(w, "write", w->fd, err);
    }
    if (flock(w->fd, LOCK_EX | LOCK_NB) != 0 || !has_name(w)) {
        close(w->fd);
        w->fd = -1; /* it is another's */
        return err_set(err, DI_E_STATE, "another process is writing %s", w->name);
    }
    const int result = w->io->allocate(w->io, w->fd, bytes);
    return result == 0 ? DI_OK : failed(w, "take space for", result, err);
}

static di_status open_queue(mdl_kept_writer *w, const io_table *io, di_error *err)
{
    const io_table *const tables[] = {io != NULL ? io : &io_by_uring, &io_by_threads};
    for (size_t i = 0; i < 2 && w->queue == NULL; i++) {
        w->io = tables[i];
        w->queue = w->io->open(w->io, DEPTH);
    }
    return w->queue != NULL ? DI_OK : err_set(err, DI_E_IO, "cannot start transfers to the disk: neither io_uring nor threads");
}

static char *part_name(const char *name)
{
    char *out = NULL;
    return asprintf(&out, "%s.part", name) >= 0 ? out : NULL;
}

di_status mdl_kept_writer_new(const io_table *io, const char *dir, const char *name, const mdl_kept_key *key, size_t n_entries,
                              size_t bytes, mdl_kept_writer **out, di_error *err)
{
    mdl_kept_writer *const w = ar_calloc(1, sizeof *w);
    if (w == NULL) {
        return err_memory(err, "writer", sizeof *w);
    }
    *w = (mdl_kept_writer){.dir = -1, .fd = -1, .room = n_entries, .name = strdup(name), .part = part_name(name)};
    w->entries = ar_calloc(n_entries, sizeof *w->entries);
    w->head = (mdl_kept_head){.magic = MDL_KEPT_MAGIC, .version = MDL_KEPT_VERSION, .key = *key};
    w->end = sizeof w->head + n_entries * sizeof *w->entries; /* the table is in memory: no overflow */
    size_t total = bytes;
    di_status status = DI_OK;
    if (w->entries == NULL || w->name == NULL || w->part == NULL || n_entries > UINT32_MAX || !ar_add(total, w->end, &total)) {
        status = err_memory(err, "table of weights", n_entries * sizeof *w->entries);
    }
    if (status == DI_OK) {
        status = open_queue(w, io, err);
    }
    if (status == DI_OK) {
        status = open_dir(w, dir, err);
    }
    if (status == DI_OK) {
        status = open_part(w, total, err);
    }
    if (status != DI_OK) {
        mdl_kept_writer_free(w);
        return status;
    }
    *out = w;
    return DI_OK;
}

/* The system's cache would hold what is in memory a second time: the disk begins with what is new, and what is some way behind is
 * waited for and given back. */
static void forget_behind(mdl_kept_writer *w, uint64_t offset, size_t size)
{
    (void)sync_file_range(w->fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
    for (; w->end - w->forgotten > 2 * BEHIND; w->forgotten += BEHIND) {
        (void)sync_file_range(w->fd, (off_t)w->forgotten, BEHIND,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        (void)posix_fadvise(w->fd, (off_t)w->forgotten, BEHIND, POSIX_FADV_DONTNEED);
    }
}

di_status mdl_kept_writer_add(mdl_kept_writer *w, const ops_matrix *shape, const void *form, size_t size, di_error *err)
{
    if (w->head.n_entries >= w->room) {
        return err_set(err, DI_E_STATE, "%s has room for %zu matrices", w->part, w->room);
    }
    mdl_kept_entry *const e = &w->entries[w->head.n_entries];
    *e = (mdl_kept_entry){.format = (uint32_t)shape->format, .n_out = shape->n_out, .n_in = shape->n_in, .size = size};
    if (size > 0) {
        e->offset = (w->end + MDL_KEPT_ALIGN - 1) / MDL_KEPT_ALIGN * MDL_KEPT_ALIGN;
        digest_sum(form, size, e->sum);
        e->piece = mdl_kept_piece(form, size);
        union {
            const void *from;
            void *to;
        } data = {.from = form}; /* a request is for both ways; writing changes nothing */
        const int result = io_whole(w->io, w->queue, w->fd, true, e->offset, data.to, size, DEPTH);
        if (result != 0) {
            return failed(w, "write", result, err);
        }
        w->end = e->offset + size;
        forget_behind(w, e->offset, size);
    }
    w->head.n_entries++;
    return DI_OK;
}

di_status mdl_kept_writer_finish(mdl_kept_writer *w, uint64_t *file_bytes, di_error *err)
{
    const size_t table = w->head.n_entries * sizeof *w->entries;
    w->head.file_bytes = w->end;
    mdl_kept_head_sum(&w->head, w->entries, w->head.sum);
    int result = io_whole(w->io, w->queue, w->fd, true, sizeof w->head, w->entries, table, DEPTH);
    if (result == 0) {
        result = io_whole(w->io, w->queue, w->fd, true, 0, &w->head, sizeof w->head, DEPTH);
    }
    if (result == 0) {
        result = w->io->truncate(w->io, w->fd, w->end);
    }
    if (result == 0) {
        result = w->io->sync(w->io, w->fd);
    }
    if (result == 0 && renameat(w->dir, w->part, w->dir, w->name) != 0) {
        result = -errno;
    }
    if (result != 0) {
        return failed(w, "write", result, err);
    }
    (void)posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED);
    close(w->fd); /* and with it the lock, only now that the name is the final one */
    w->fd = -1;
    (void)w->io->sync(w->io, w->dir); /* without it the file might be missing after a power cut: then it is made again */
    *file_bytes = w->end;
    return DI_OK;
}

void mdl_kept_writer_free(mdl_kept_writer *w)
{
    if (w == NULL) {
        return;
    }
    if (w->fd >= 0) {
        (void)w->io->remove(w->io, w->dir, w->part);
        close(w->fd);
    }
    if (w->dir >= 0) {
        close(w->dir);
    }
    if (w->queue != NULL) {
        w->io->close(w->queue);
    }
    free(w->entries);
    free(w->part);
    free(w->name);
    free(w);
}
