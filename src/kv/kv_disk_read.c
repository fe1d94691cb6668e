/* kv_disk_read.c - the reading thread: looks keys up, and reads records through a queue of the system's.
 *
 * A record is read whole into a buffer of ours, aligned for the disk, checked, and copied to where it is wanted. So a read that misses its
 * deadline can be given back at once: what the disk delivers later lands in our buffer and is thrown away. */
#include "kv/kv_disk_int.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_OPEN_FILES = 256 };

typedef struct flight { /* one read that is out; owner: the reading thread */
    io_request request;
    kv_disk_read *read;  /* NULL: given back already */
    kv_segment *segment; /* with a lease of its own */
    uint8_t *buffer; /* of the reader's pages */
    size_t capacity;
    size_t size;
    bool busy;
} flight;

struct kv_reader { /* lives as long as its thread */
    kv_disk *disk;
    flight *flights; /* [2 * depth]: those that are out, and those whose bytes are being checked */
    kv_pages pages;  /* their buffers */
    int depth;       /* of the queue */
    int n_out;
    kv_disk_read *first; /* waiting, first in first */
    kv_disk_op **end;
    kv_disk_op *head;
    int n_open;           /* files */
    uint64_t tick;
    int64_t next_deadline_ns; /* of a read that waits or is out; 0 = none */
    int64_t busy_since_ns;
};

/* ---- find ---- */

static void note_use(kv_disk *disk, const kv_name *name, const kv_entry *entry, int64_t now)
{
    /* Not each use of a record that is used all the time: the index is written for it. */
    if (entry->uses == 0 || now - (int64_t)entry->used_s > (int64_t)entry->ttl_s / 64) {
        kv_note_add(disk, &(kv_note){.name = *name, .segment = entry->segment, .block = entry->block});
    }
}

/* Where a record is, with a lease; false: it is not there. */
static bool find_record(kv_disk *disk, const kv_name *name, int64_t now, kv_disk_place *out)
{
    kv_entry entry;
    *out = (kv_disk_place){.bytes = 0};
    if (!kv_index_find(disk->index, name, &entry)) {
        return false;
    }
    if (entry.expiry_s != 0 && entry.expiry_s <= now && entry.pinned == 0) {
        return false; /* the sweep counts it */
    }
    if ((int64_t)entry.bytes > kv_disk_max_payload(disk)) {
        return false; /* of a process with other options */
    }
    pthread_mutex_lock(&disk->lock);
    kv_segment *const segment = kv_table_find(&disk->table, entry.segment);
    const bool there = segment != NULL && !segment->doomed;
    if (there) {
        atomic_fetch_add(&segment->leases, 1);
    }
    pthread_mutex_unlock(&disk->lock);
    if (there) {
        *out = (kv_disk_place){.bytes = entry.bytes,
                               .tag = entry.tag,
                               .segment = segment,
                               .offset = (uint64_t)entry.block * KV_BLOCK};
        note_use(disk, name, &entry, now);
    }
    return there;
}

static void find(kv_disk *disk, kv_disk_find *f)
{
    const int64_t now = kv_now_s();
    int64_t i = 0;
    f->n_units = f->first < 0 || f->first > f->n ? 0 : f->first;
    kv_count(disk, KV_SUM_FINDS, 1);
    if (f->first < 0 || f->first > f->n) {
        kv_op_done(disk, &f->op, DI_E_ARGUMENT);
        return;
    }
    if (!kv_index_look(disk->index)) {
        kv_op_done(disk, &f->op, DI_E_IO);
        return;
    }
    for (bool more = true; i < f->n && more; i++) {
        const kv_name unit = kv_name_of(f->keys[i], KV_DISK_UNIT);
        const kv_name snapshot = kv_name_of(f->keys[i], KV_DISK_SNAPSHOT);
        f->found[i] = (kv_disk_found){.unit = {.bytes = 0}};
        more = i < f->first || find_record(disk, &unit, now, &f->found[i].unit);
        if (more) {
            kv_count(disk, KV_SUM_FOUND_UNITS, i < f->first ? 0 : 1);
            kv_count(disk, KV_SUM_FOUND_SNAPSHOTS, find_record(disk, &snapshot, now, &f->found[i].snapshot) ? 1 : 0);
            f->n_units = i + 1;
        }
    }
    kv_index_look_end(disk->index);
    kv_op_done(disk, &f->op, DI_OK);
}

/* ---- files ---- */

/* Closes the file that was not read for longest. */
static void close_one(kv_reader *r)
{
    kv_segment *oldest = NULL;
    pthread_mutex_lock(&r->disk->lock);
    for (kv_segment *s = kv_table_next(&r->disk->table, NULL); s != NULL; s = kv_table_next(&r->disk->table, s)) {
        if (s->read_fd >= 0 && (oldest == NULL || s->read_tick < oldest->read_tick)) {
            oldest = s;
        }
    }
    if (oldest != NULL && oldest->read_tick < r->tick - (uint64_t)r->depth) { /* no read of it is out */
        close(oldest->read_fd);
        oldest->read_fd = -1;
    }
    pthread_mutex_unlock(&r->disk->lock);
    r->n_open--; /* of those that were removed with their segment we only learn here */
}

static int file_of(kv_reader *r, kv_segment *segment)
{
    segment->read_tick = ++r->tick;
    if (segment->read_fd < 0) {
        if (r->n_open >= MAX_OPEN_FILES) {
            close_one(r);
        }
        segment->read_fd = kv_open_segment(r->disk, segment->name, O_RDONLY);
        r->n_open += segment->read_fd >= 0 ? 1 : 0;
    }
    return segment->read_fd;
}

/* ---- reads ---- */

static void finish(kv_reader *r, kv_disk_read *read, di_status status)
{
    kv_disk *const disk = r->disk;
    if (status == DI_OK) {
        kv_count(disk, KV_SUM_READS, 1);
        kv_count(disk, KV_SUM_READ_BYTES, read->place.bytes);
        kv_count(disk, KV_SUM_READ_NS, clock_now_ns() - read->private_start_ns);
    } else if (status == DI_E_MISMATCH) {
        kv_count(disk, KV_SUM_CORRUPT, 1);
        kv_note_add(disk, &(kv_note){.name = kv_name_of(read->key, read->kind),
                                     .segment = read->place.segment->id,
                                     .block = (uint32_t)(read->place.offset / KV_BLOCK),
                                     .corrupt = true});
    } else {
        kv_count(disk, status == DI_E_CANCELLED ? KV_SUM_LATE : KV_SUM_READS_FAILED, 1);
    }
    kv_op_done(disk, &read->op, status);
}

static bool is_good(const flight *f)
{
    const kv_disk_read *const read = f->read;
    const kv_where where = {.segment = f->segment->id,
                            .nonce = f->segment->nonce,
                            .offset = read->place.offset,
                            .limit = UINT64_MAX};
    kv_head head;
    return kv_head_read(f->buffer, &where, &head) && head.kind == (uint32_t)read->kind && head.bytes == (uint64_t)read->place.bytes &&
           memcmp(head.key, read->key, sizeof head.key) == 0 && kv_payload_good(&head, f->buffer + KV_HEAD_BYTES);
}

static void land(kv_reader *r, flight *f, di_status status)
{
    kv_disk_read *const read = f->read;
    if (read != NULL && status == DI_OK) {
        status = is_good(f) ? DI_OK : DI_E_MISMATCH;
    }
    if (read != NULL && status == DI_OK) {
        memcpy(read->out, f->buffer + KV_HEAD_BYTES, (size_t)read->place.bytes);
    }
    if (read != NULL) {
        finish(r, read, status); /* while the segment is leased */
    }
    atomic_fetch_sub(&f->segment->leases, 1);
    f->busy = false;
    f->read = NULL;
}

/* What the disk is done with stays in the list; the rest of it is asked for again. */
static io_request *came_back(kv_reader *r, io_request *list)
{
    io_request *over = NULL;
    io_request **end = &over;
    for (io_request *request = list; request != NULL;) {
        io_request *const next = request->next;
        if (request->result > 0 && (size_t)request->result < request->size) {
            request->data = (uint8_t *)request->data + request->result;
            request->size -= (size_t)request->result;
            request->offset += (uint64_t)request->result;
            r->disk->io->submit(r->disk->read_io, request);
        } else if (request->result == -EINTR || request->result == -EAGAIN) {
            r->disk->io->submit(r->disk->read_io, request);
        } else {
            request->next = NULL;
            *end = request;
            end = &request->next;
            r->n_out--;
        }
        request = next;
    }
    if (over != NULL && r->n_out == 0) {
        kv_count(r->disk, KV_SUM_BUSY_NS, clock_now_ns() - r->busy_since_ns);
    }
    return over;
}

static void begin_waiting(kv_reader *r);

/* Waits for the disk. It has its next work before the bytes that it gave are looked at: they come many at once, and would else let it
 * stand still. */
static void take_answers(kv_reader *r, int64_t timeout_ns)
{
    io_request *over = came_back(r, r->disk->io->wait(r->disk->read_io, timeout_ns));
    begin_waiting(r);
    while (over != NULL) {
        io_request *const next = over->next;
        land(r, over->user, over->result > 0 ? DI_OK : DI_E_IO);
        over = next;
    }
}

/* Buffers at least double, so what is left behind is less than what is used. */
static bool grow_buffer(kv_reader *r, flight *f, size_t size)
{
    size_t capacity = KV_BLOCK;
    while (capacity < size) {
        capacity *= 2;
    }
    if (f->capacity < size) {
        f->buffer = kv_pages_take(&r->pages, capacity);
        f->capacity = f->buffer != NULL ? capacity : 0;
    }
    return f->buffer != NULL;
}

static flight *free_flight(kv_reader *r)
{
    for (int i = 0; i < 2 * r->depth; i++) {
        if (!r->flights[i].busy) {
            return &r->flights[i];
        }
    }
    return NULL;
}

static void start(kv_reader *r, flight *f, kv_disk_read *read)
{
    const size_t size = (size_t)kv_record_bytes((uint64_t)read->place.bytes);
    if (read->deadline_ns != 0 && clock_now_ns() >= read->deadline_ns) {
        finish(r, read, DI_E_CANCELLED);
        return;
    }
    if (!grow_buffer(r, f, size)) {
        finish(r, read, DI_E_MEMORY);
        return;
    }
    const int fd = file_of(r, read->place.segment);
    if (fd < 0) {
        finish(r, read, DI_E_IO);
        return;
    }
    f->read = read;
    f->segment = read->place.segment;
    f->size = size;
    f->busy = true;
    atomic_fetch_add(&f->segment->leases, 1);
    f->request = (io_request){.fd = fd, .offset = read->place.offset, .data = f->buffer, .size = size, .user = f};
    if (r->n_out++ == 0) {
        r->busy_since_ns = clock_now_ns();
    }
    r->disk->io->submit(r->disk->read_io, &f->request);
}

/* ---- deadlines ---- */

static void note_deadline(kv_reader *r, const kv_disk_read *read)
{
    if (read->deadline_ns != 0 && (r->next_deadline_ns == 0 || read->deadline_ns < r->next_deadline_ns)) {
        r->next_deadline_ns = read->deadline_ns;
    }
}

/* Gives back every read that is late, and finds the next deadline. Called when one has passed, so not often. */
static void give_back_late(kv_reader *r)
{
    const int64_t now = clock_now_ns();
    kv_disk_op *op = r->head;
    r->next_deadline_ns = 0;
    r->head = NULL;
    r->end = &r->head;
    while (op != NULL) {
        kv_disk_op *const next = op->next;
        kv_disk_read *const read = (kv_disk_read *)op;
        if (read->deadline_ns != 0 && now >= read->deadline_ns) {
            finish(r, read, DI_E_CANCELLED);
        } else {
            op->next = NULL;
            *r->end = op;
            r->end = &op->next;
            note_deadline(r, read);
        }
        op = next;
    }
    for (int i = 0; i < 2 * r->depth; i++) {
        flight *const f = &r->flights[i];
        if (f->read != NULL && f->read->deadline_ns != 0 && now >= f->read->deadline_ns) {
            finish(r, f->read, DI_E_CANCELLED);
            f->read = NULL;
        } else if (f->read != NULL) {
            note_deadline(r, f->read);
        }
    }
}

/* ---- the thread ---- */

static bool place_good(const kv_disk *disk, const kv_disk_read *read)
{
    return read->place.bytes > 0 && read->place.bytes <= kv_disk_max_payload(disk) && read->place.segment != NULL;
}

static void accept(kv_reader *r)
{
    kv_disk_op *op = kv_stack_take(&r->disk->to_reader);
    while (op != NULL) {
        kv_disk_op *const next = op->next;
        if (op->what == KV_OP_FIND) {
            find(r->disk, (kv_disk_find *)op);
        } else if (!place_good(r->disk, (kv_disk_read *)op)) {
            kv_op_done(r->disk, op, DI_E_ARGUMENT);
        } else {
            op->next = NULL;
            *r->end = op;
            r->end = &op->next;
            note_deadline(r, (kv_disk_read *)op);
        }
        op = next;
    }
}

static kv_disk_read *take_waiting(kv_reader *r)
{
    kv_disk_op *const op = r->head;
    r->head = op->next;
    if (r->head == NULL) {
        r->end = &r->head;
    }
    return (kv_disk_read *)op;
}

static void begin_waiting(kv_reader *r)
{
    while (r->head != NULL && r->n_out < r->depth) {
        flight *const f = free_flight(r);
        if (f == NULL) {
            return; /* a whole queue of answers came at once: the next turn goes on */
        }
        start(r, f, take_waiting(r));
    }
}

static void turn(kv_reader *r)
{
    accept(r);
    if (r->next_deadline_ns != 0 && clock_now_ns() >= r->next_deadline_ns) {
        give_back_late(r);
    }
    begin_waiting(r);
    while (r->head != NULL && r->depth == 0) {
        finish(r, take_waiting(r), DI_E_MEMORY);
    }
    int64_t timeout = -1;
    if (r->next_deadline_ns != 0) {
        const int64_t left = r->next_deadline_ns - clock_now_ns();
        timeout = left > 0 ? left : 0;
    }
    take_answers(r, timeout);
}

/* Nothing more is begun; what is out comes back before the buffers go. */
static void end(kv_reader *r)
{
    accept(r);
    while (r->head != NULL) {
        finish(r, take_waiting(r), DI_E_CANCELLED);
    }
    while (r->n_out > 0) {
        take_answers(r, -1);
    }
    kv_pages_fini(&r->pages);
    free(r->flights);
}

void *kv_read_main(void *arg)
{
    kv_disk *const disk = arg;
    kv_reader r = {.disk = disk, .depth = disk->o.queue_depth};
    r.end = &r.head;
    r.tick = (uint64_t)r.depth;
    r.flights = ar_calloc(2 * (size_t)r.depth, sizeof *r.flights);
    if (r.flights == NULL) {
        r.depth = 0; /* finds go on, reads fail */
    }
    while (!atomic_load(&disk->stop)) {
        turn(&r);
    }
    end(&r);
    return NULL;
}
