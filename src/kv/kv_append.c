/* kv_append.c - the segment that is written. Records are gathered in a buffer and go to the disk together: one write, one sync, then the
 * index, then the answers to those who put them. In this order nothing is found that is not on the disk, and nothing is acknowledged that
 * a crash could take back.
 *
 * A segment whose writing failed is left as it is (its records stay, it is read head by head), and no other is begun for a while, twice
 * as long each time. */
#include "kv/kv_disk_int.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 8 };

static const int64_t first_pause_ns = 100000000;
static const int64_t longest_pause_ns = 10000000000;

uint64_t kv_next_sequence(kv_disk *disk)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    const uint64_t clock = us << 8 | (uint64_t)(disk->writer & 0xff);
    const uint64_t after = disk->last_sequence + 256; /* clocks go backwards at times */
    disk->last_sequence = clock > disk->last_sequence ? clock : after;
    return disk->last_sequence;
}

/* ---- begin and end of a segment ---- */

/* Bytes of catalogue and trailer over n records. */
static uint64_t tail_bytes(size_t n)
{
    return kv_record_bytes(n * sizeof(kv_listed)) + KV_BLOCK;
}

static void pause_writing(kv_disk *disk)
{
    disk->pause_ns = disk->pause_ns == 0 ? first_pause_ns : 2 * disk->pause_ns;
    disk->pause_ns = disk->pause_ns < longest_pause_ns ? disk->pause_ns : longest_pause_ns;
    disk->pause_until_ns = clock_now_ns() + disk->pause_ns;
}

/* The segment is no longer written. */
static void let_go(kv_disk *disk, uint64_t file_bytes)
{
    kv_active *const a = &disk->active;
    a->segment->sealed = true;
    a->segment->file_bytes = file_bytes;
    close(a->fd);
    a->segment = NULL;
    a->n_listed = 0;
}

static kv_segment *new_segment(kv_disk *disk)
{
    struct timespec now;
    uint64_t nonce;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    disk->last_born = kv_segment_born(ms > disk->last_born ? ms : disk->last_born + 1);
    if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce) {
        return NULL;
    }
    return kv_segment_new((uint64_t)disk->writer << 56 | disk->last_born, nonce);
}

/* A file of the whole size, so that the disk can't be full later on; published before it is there, so that nobody takes it for one that is
 * no longer written; and in the directory after a crash. */
static int create_file(kv_disk *disk, const kv_segment *segment)
{
    kv_writer_publish(&disk->writers, disk->writer, segment->id, 0);
    const int fd = kv_open_segment(disk, segment->name, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0) {
        return fd;
    }
    int error = disk->io->allocate(disk->io, fd, (uint64_t)disk->o.segment_bytes);
    if (error == 0 && !disk->o.no_sync) {
        error = disk->io->sync(disk->io, disk->dir);
    }
    if (error != 0) {
        close(fd);
        (void)disk->io->remove(disk->io, disk->dir, segment->name);
        return error;
    }
    return fd;
}

/* Two processes never begin segments at once: each sees what the other has taken of the budget. */
static int lock_budget(const kv_disk *disk)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = openat(disk->dir, "budget.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0 && fcntl(fd, F_OFD_SETLKW, &lock) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool begin(kv_disk *disk)
{
    const int budget = disk->o.shared ? lock_budget(disk) : -1;
    kv_segment *const segment = kv_fits(disk) ? new_segment(disk) : NULL;
    const int fd = segment != NULL ? create_file(disk, segment) : -ENOSPC;
    if (budget >= 0) {
        close(budget);
    }
    if (fd < 0) {
        free(segment);
        if (segment != NULL) {
            pause_writing(disk);
        }
        return false;
    }
    segment->ours = true;
    pthread_mutex_lock(&disk->lock);
    kv_table_add(&disk->table, segment);
    pthread_mutex_unlock(&disk->lock);
    disk->active.segment = segment;
    disk->active.fd = fd;
    disk->active.at = 0;
    disk->active.n_listed = 0;
    kv_count(disk, KV_SUM_SEGMENTS, 1);
    return true;
}

bool kv_active_open(kv_disk *disk)
{
    if (disk->active.segment != NULL) {
        return true;
    }
    if (clock_now_ns() < disk->pause_until_ns) {
        return false;
    }
    if (!kv_fits(disk) && !kv_make_room(disk, false)) {
        return false;
    }
    if (!begin(disk)) {
        return false;
    }
    if (!disk->evicting) { /* so that the next one can be begun, with this one to take what survives */
        disk->evicting = true;
        (void)kv_make_room(disk, true);
        disk->evicting = false;
    }
    return disk->active.segment != NULL;
}

/* ---- records ---- */

static bool reserve_lists(kv_active *a)
{
    if (a->n_listed == a->listed_capacity) {
        const size_t capacity = a->listed_capacity != 0 ? 2 * a->listed_capacity : 256;
        kv_listed *const listed = realloc(a->listed, capacity * sizeof *listed);
        if (listed == NULL) {
            return false;
        }
        a->listed = listed;
        a->listed_capacity = capacity;
    }
    if (a->n_pending == a->pending_capacity) {
        const size_t capacity = a->pending_capacity != 0 ? 2 * a->pending_capacity : 64;
        kv_pending *const pending = realloc(a->pending, capacity * sizeof *pending);
        if (pending == NULL) {
            return false;
        }
        a->pending = pending;
        a->pending_capacity = capacity;
    }
    return true;
}

static kv_where where_next(const kv_disk *disk)
{
    const kv_active *const a = &disk->active;
    return (kv_where){.segment = a->segment->id,
                      .nonce = a->segment->nonce,
                      .offset = a->at,
                      .limit = (uint64_t)disk->o.segment_bytes};
}

/* A record at the end of the buffer, which has room for it. */
static void lay_down(kv_active *a, const kv_head *head, const void *payload)
{
    uint8_t *const to = a->buffer + a->filled;
    const size_t size = (size_t)kv_record_bytes(head->bytes);
    memcpy(to, head, KV_HEAD_BYTES);
    if (head->bytes > 0) {
        memcpy(to + KV_HEAD_BYTES, payload, (size_t)head->bytes);
    }
    memset(to + KV_HEAD_BYTES + head->bytes, 0, size - KV_HEAD_BYTES - (size_t)head->bytes);
    a->filled += size;
    a->at += size;
}

bool kv_append(kv_disk *disk, kv_listed *listed, const void *payload, kv_disk_put *put)
{
    kv_active *const a = &disk->active;
    const uint64_t size = kv_record_bytes(listed->bytes);
    if (a->filled + size > a->buffer_bytes && !kv_active_flush(disk)) {
        return false;
    }
    if (a->segment != NULL && a->at + size + tail_bytes(a->n_listed + 1) > (uint64_t)disk->o.segment_bytes) {
        kv_active_seal(disk);
    }
    if (!kv_active_open(disk) || a->at + size + tail_bytes(a->n_listed + 1) > (uint64_t)disk->o.segment_bytes ||
        (a->filled + size > a->buffer_bytes && !kv_active_flush(disk)) || a->segment == NULL || !reserve_lists(a)) {
        return false;
    }
    const kv_where where = where_next(disk);
    kv_head head = kv_head_at(&where, listed->kind);
    kv_head_describe(&head, listed);
    kv_head_seal(&head, payload);
    listed->block = (uint32_t)(a->at / KV_BLOCK);
    lay_down(a, &head, payload);
    a->segment->data_bytes += size;
    a->listed[a->n_listed++] = *listed;
    a->pending[a->n_pending++] = (kv_pending){
        .name = kv_name_of(listed->key, listed->kind), .entry = kv_entry_of(listed, a->segment->id), .put = put};
    return true;
}

/* ---- to the disk ---- */

static int write_buffer(kv_disk *disk)
{
    kv_active *const a = &disk->active;
    int error = io_whole(disk->io, disk->write_io, a->fd, true, a->at - a->filled, a->buffer, a->filled, DEPTH);
    if (error == 0 && !disk->o.no_sync) {
        error = disk->io->sync(disk->io, a->fd);
    }
    if (error == 0) {
        kv_count(disk, KV_SUM_WRITTEN_BYTES, (int64_t)a->filled);
        disk->pause_ns = 0;
    }
    return error;
}

static bool index_pending(kv_disk *disk)
{
    kv_active *const a = &disk->active;
    if (!kv_index_begin(disk->index)) {
        return false;
    }
    for (size_t i = 0; i < a->n_pending; i++) {
        const kv_pending *const p = &a->pending[i];
        kv_entry before;
        const bool known = kv_index_get(disk->index, &p->name, &before);
        if (known) {
            kv_account(disk, &p->name, &before, -1);
        }
        kv_index_put(disk->index, &p->name, &p->entry, known ? &before : NULL);
        kv_account(disk, &p->name, &p->entry, 1);
    }
    if (!kv_index_commit(disk->index)) {
        kv_recount(disk);
        return false;
    }
    return true;
}

static void answer_pending(kv_disk *disk, bool stored, di_status status)
{
    kv_active *const a = &disk->active;
    for (size_t i = 0; i < a->n_pending; i++) {
        kv_disk_put *const put = a->pending[i].put;
        const int64_t bytes = a->pending[i].entry.bytes;
        if (put == NULL) {
            kv_count(disk, KV_SUM_REWRITTEN_BYTES, stored ? bytes : 0);
            continue;
        }
        put->verdict = stored ? KV_DISK_STORED : KV_DISK_FAILED;
        kv_count(disk, stored ? KV_SUM_STORED : KV_SUM_PUT_FAILED, 1);
        kv_count(disk, KV_SUM_STORED_BYTES, stored ? bytes : 0);
        kv_count(disk, KV_SUM_WAITING, -bytes);
        kv_op_done(disk, &put->op, status);
    }
    a->n_pending = 0;
}

bool kv_active_flush(kv_disk *disk)
{
    kv_active *const a = &disk->active;
    if (a->filled == 0) {
        return true;
    }
    const int error = write_buffer(disk);
    const bool stored = error == 0 && index_pending(disk);
    if (stored) {
        kv_writer_publish(&disk->writers, disk->writer, a->segment->id, a->at);
    }
    a->segment->file_bytes = a->at;
    answer_pending(disk, stored, error != 0 ? DI_E_IO : stored ? DI_OK : DI_E_LIMIT);
    a->filled = 0;
    if (error != 0) {
        pause_writing(disk);
        let_go(disk, a->at);
    }
    return stored;
}

/* Catalogue and trailer behind what is in the buffer's segment; `fd` is left open. */
static int write_tail(kv_disk *disk, int fd, const kv_where *where, const kv_listed *listed, size_t n)
{
    const size_t size = (size_t)tail_bytes(n);
    kv_where at = *where;
    uint8_t *const tail = ar_calloc_aligned(1, size, KV_BLOCK);
    if (tail == NULL) {
        return -ENOMEM;
    }
    kv_head head = kv_head_at(&at, KV_REC_CATALOGUE);
    head.bytes = n * sizeof *listed;
    if (n > 0) {
        memcpy(tail + KV_HEAD_BYTES, listed, n * sizeof *listed);
    }
    kv_head_seal(&head, tail + KV_HEAD_BYTES);
    memcpy(tail, &head, sizeof head);
    at.offset = where->offset + size - KV_BLOCK;
    head = kv_head_at(&at, KV_REC_TRAILER);
    head.aux = where->offset;
    kv_head_seal(&head, "");
    memcpy(tail + size - KV_BLOCK, &head, sizeof head);
    int error = io_whole(disk->io, disk->write_io, fd, true, where->offset, tail, size, DEPTH);
    error = error == 0 ? disk->io->truncate(disk->io, fd, where->offset + size) : error;
    error = error == 0 && !disk->o.no_sync ? disk->io->sync(disk->io, fd) : error;
    free(tail);
    kv_count(disk, KV_SUM_WRITTEN_BYTES, error == 0 ? (int64_t)size : 0);
    return error;
}

void kv_active_seal(kv_disk *disk)
{
    kv_active *const a = &disk->active;
    (void)kv_active_flush(disk);
    if (a->segment == NULL) {
        return;
    }
    const kv_where where = where_next(disk);
    const int error = write_tail(disk, a->fd, &where, a->listed, a->n_listed);
    const uint64_t bytes = error == 0 ? a->at + tail_bytes(a->n_listed) : (uint64_t)disk->o.segment_bytes;
    kv_writer_publish(&disk->writers, disk->writer, 0, 0);
    let_go(disk, bytes);
}

void kv_seal_other(kv_disk *disk, kv_segment *segment, const kv_listing *listing)
{
    const kv_where where = {.segment = segment->id, .nonce = segment->nonce, .offset = listing->end, .limit = UINT64_MAX};
    const int fd = kv_open_segment(disk, segment->name, O_RDWR);
    if (fd < 0) {
        return; /* it is read head by head again the next time */
    }
    if (write_tail(disk, fd, &where, listing->items, listing->n) == 0) {
        segment->file_bytes = listing->end + tail_bytes(listing->n);
    }
    close(fd);
}

void kv_active_fini(kv_disk *disk)
{
    free(disk->active.listed);
    free(disk->active.pending);
}
