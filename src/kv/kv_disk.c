/* kv_disk.c - the disk tier as its caller sees it: open, close, handing over and taking back, counters.
 *
 * Operations travel in stacks that are pushed with one compare-and-swap and taken with one exchange, so no caller ever waits for a thread
 * of ours; the taker turns the order round. */
#include "kv/kv_disk_int.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE_DEPTH = 8, BUFFER_BYTES = 4 << 20 };

/* ---- lists of operations ---- */

bool kv_stack_push(kv_stack *stack, kv_disk_op *op)
{
    kv_disk_op *top = atomic_load_explicit(&stack->top, memory_order_relaxed);
    do {
        op->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&stack->top, &top, op, memory_order_release, memory_order_relaxed));
    return top == NULL;
}

kv_disk_op *kv_stack_take(kv_stack *stack)
{
    kv_disk_op *op = atomic_exchange_explicit(&stack->top, NULL, memory_order_acquire);
    kv_disk_op *list = NULL;
    while (op != NULL) {
        kv_disk_op *const next = op->next;
        op->next = list;
        list = op;
        op = next;
    }
    return list;
}

static void hand_over(kv_disk *disk, kv_stack *stack, io_queue *io, kv_disk_op *op, int what)
{
    op->what = what;
    op->status = DI_OK;
    if (kv_stack_push(stack, op)) {
        disk->io->wake(io);
    }
}

void kv_op_done(kv_disk *disk, kv_disk_op *op, di_status status)
{
    op->status = status;
    if (kv_stack_push(&disk->done, op) && disk->o.wake != NULL) {
        disk->o.wake(disk->o.wake_user);
    }
}

int kv_disk_poll(kv_disk *disk)
{
    int n = 0;
    for (kv_disk_op *op = kv_stack_take(&disk->done); op != NULL; n++) {
        kv_disk_op *const next = op->next;
        op->done(op);
        op = next;
    }
    return n;
}

void kv_disk_find_start(kv_disk *disk, kv_disk_find *find)
{
    hand_over(disk, &disk->to_reader, disk->read_io, &find->op, KV_OP_FIND);
}

void kv_disk_release(kv_disk *disk, kv_disk_find *find)
{
    (void)disk;
    for (int64_t i = 0; i < find->n_units; i++) {
        kv_disk_place *const places[] = {&find->found[i].unit, &find->found[i].snapshot};
        for (size_t k = 0; k < 2; k++) {
            if (places[k]->segment != NULL) {
                atomic_fetch_sub(&places[k]->segment->leases, 1);
                places[k]->segment = NULL;
            }
        }
    }
    find->n_units = 0;
}

void kv_disk_read_start(kv_disk *disk, kv_disk_read *read)
{
    read->private_start_ns = clock_now_ns();
    hand_over(disk, &disk->to_reader, disk->read_io, &read->op, KV_OP_READ);
}

bool kv_disk_put_start(kv_disk *disk, kv_disk_put *put)
{
    if (kv_counted(disk, KV_SUM_WAITING) + put->bytes > disk->o.max_waiting) {
        kv_count(disk, KV_SUM_PUT_REFUSED, 1);
        return false;
    }
    kv_count(disk, KV_SUM_WAITING, put->bytes);
    hand_over(disk, &disk->to_writer, disk->write_io, &put->op, KV_OP_PUT);
    return true;
}

void kv_disk_care_start(kv_disk *disk, kv_disk_care *care)
{
    hand_over(disk, &disk->to_writer, disk->write_io, &care->op, KV_OP_CARE);
}

void kv_note_add(kv_disk *disk, const kv_note *note)
{
    pthread_mutex_lock(&disk->lock);
    if (disk->n_notes < KV_NOTES) { /* else it is found corrupt again, or looks less used than it is */
        disk->notes[disk->n_notes++] = *note;
    }
    pthread_mutex_unlock(&disk->lock);
}

int64_t kv_disk_max_payload(const kv_disk *disk)
{
    return disk->o.max_record_bytes;
}

/* ---- open ---- */

static di_status open_directory(kv_disk *disk, di_error *err)
{
    if (!disk->o.read_only && mkdir(disk->path, 0755) != 0 && errno != EEXIST) {
        return err_set_errno(err, errno, "%s", disk->path);
    }
    disk->dir = open(disk->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return disk->dir >= 0 ? DI_OK : err_set_errno(err, errno, "%s", disk->path);
}

static di_status open_queues(kv_disk *disk, di_error *err)
{
    const io_table *const tables[] = {disk->o.io != NULL ? disk->o.io : &io_by_uring, &io_by_threads};
    for (size_t i = 0; i < 2 && disk->write_io == NULL; i++) {
        disk->io = tables[i];
        disk->read_io = disk->io->open(disk->io, disk->o.queue_depth);
        disk->write_io = disk->read_io != NULL ? disk->io->open(disk->io, WRITE_DEPTH) : NULL;
        if (disk->write_io == NULL && disk->read_io != NULL) {
            disk->io->close(disk->read_io);
            disk->read_io = NULL;
        }
    }
    disk->direct = disk->o.no_direct ? 0 : O_DIRECT;
    return disk->write_io != NULL ? DI_OK : err_set(err, DI_E_IO, "%s: neither io_uring nor threads can be had", disk->path);
}

static di_status refused(const kv_disk *disk, int result, di_error *err)
{
    if (result == 0) {
        return err_set(err, DI_E_STATE, "%s: another process has it%s; several can share it when all are told so", disk->path,
                       disk->o.shared ? " and does not share it, or too many do" : "");
    }
    return err_set_errno(err, -result, "%s: can't be written", disk->path);
}

/* Shared: the first number that is free. Else: all numbers, those of dead processes with what they left. */
static di_status take_number(kv_disk *disk, di_error *err)
{
    disk->writer = -1;
    kv_writers_init(&disk->writers, disk->io, disk->dir, disk->o.lease_s);
    if (disk->o.read_only) {
        return DI_OK;
    }
    int result = kv_writers_agree(&disk->writers, disk->o.shared);
    if (result != 1) {
        return refused(disk, result, err);
    }
    for (int i = 0; i < KV_WRITERS && disk->writer < 0; i++) {
        result = kv_writer_take(&disk->writers, i);
        disk->writer = result == 1 ? i : -1;
        if (result < 0 || (result == 0 && !disk->o.shared)) {
            return refused(disk, result, err);
        }
    }
    if (disk->writer < 0) {
        return refused(disk, result, err);
    }
    for (int i = 1; i < KV_WRITERS && !disk->o.shared; i++) {
        char name[16];
        snprintf(name, sizeof name, "%02x.lock", (unsigned)i);
        result = faccessat(disk->dir, name, F_OK, 0) == 0 ? kv_writer_take(&disk->writers, i) : 1;
        if (result != 1) {
            return refused(disk, result, err);
        }
    }
    return DI_OK;
}

static di_status open_index(kv_disk *disk, bool *fresh, di_error *err)
{
    char name[64];
    const int64_t there = kv_directory_bytes(disk); /* the budget may have been larger once */
    uint64_t bytes = (uint64_t)(there > disk->o.max_bytes ? there : disk->o.max_bytes) / 8;
    bytes = bytes < 16 << 20 ? 16 << 20 : bytes;
    disk->index_is_temporary = disk->writer < 0;
    if (disk->index_is_temporary) {
        const char *const folder = getenv("TMPDIR");
        disk->index_path = file_path_join(folder != NULL ? folder : P_tmpdir, "deepinfer-index-XXXXXX");
        if (disk->index_path != NULL && mkdtemp(disk->index_path) == NULL) {
            return err_set_errno(err, errno, "%s", disk->index_path);
        }
    } else {
        snprintf(name, sizeof name, "index-%02x", (unsigned)disk->writer);
        disk->index_path = file_path_join(disk->path, name);
    }
    if (disk->index_path == NULL) {
        return err_memory(err, "path", strlen(disk->path));
    }
    return kv_index_open(disk->index_path, bytes, &disk->index, fresh, err);
}

static di_status take_buffers(kv_disk *disk, di_error *err)
{
    const size_t record = (size_t)kv_record_bytes((uint64_t)disk->o.max_record_bytes);
    disk->active.buffer_bytes = record < BUFFER_BYTES ? BUFFER_BYTES : record;
    disk->active.buffer = kv_pages_take(&disk->pages, disk->active.buffer_bytes);
    disk->copy_bytes = record;
    disk->copy = kv_pages_take(&disk->pages, record);
    return disk->active.buffer != NULL && disk->copy != NULL ? DI_OK : err_memory(err, "buffers of the disk tier", 2 * record);
}

static di_status start_threads(kv_disk *disk, di_error *err)
{
    disk->read_started = pthread_create(&disk->read_thread, NULL, kv_read_main, disk) == 0;
    disk->write_started = disk->read_started && pthread_create(&disk->write_thread, NULL, kv_write_main, disk) == 0;
    return disk->write_started ? DI_OK : err_set(err, DI_E_IO, "%s: no thread for the disk tier", disk->path);
}

static di_status load(kv_disk *disk, di_error *err)
{
    di_status status = open_index(disk, &disk->rebuilt, err);
    if (status == DI_OK) {
        status = kv_follow_start(disk, disk->rebuilt, err);
    }
    if (status == DI_OK) {
        (void)kv_purges_apply(disk);
        kv_recount(disk);
        kv_reap(disk);
        atomic_store(&disk->sums[KV_SUM_BYTES], kv_directory_bytes(disk));
    }
    return status;
}

di_status kv_disk_open(const kv_disk_options *options, kv_disk **out, di_error *err)
{
    const int64_t start = clock_now_ns();
    if (options->path == NULL) {
        return err_set(err, DI_E_ARGUMENT, "the disk tier needs a path");
    }
    kv_disk *const disk = calloc(1, sizeof *disk);
    if (disk == NULL) {
        return err_memory(err, "disk tier", sizeof *disk);
    }
    disk->o = *options;
    disk->dir = -1;
    disk->writer = -1;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_mutex_init(&disk->tenants_lock, NULL);
    kv_writers_init(&disk->writers, NULL, -1, 0);
    kv_options_fill_in(&disk->o);
    disk->pinned_room = disk->o.max_bytes / 2;
    di_status status = kv_options_check(&disk->o, err);
    if (status == DI_OK) {
        disk->path = strdup(options->path);
        disk->o.path = disk->path;
        status = disk->path != NULL ? open_directory(disk, err) : err_memory(err, "path", strlen(options->path));
    }
    status = status == DI_OK ? open_queues(disk, err) : status;
    status = status == DI_OK ? take_number(disk, err) : status;
    status = status == DI_OK ? take_buffers(disk, err) : status;
    status = status == DI_OK ? load(disk, err) : status;
    disk->open_ns = clock_now_ns() - start;
    status = status == DI_OK ? start_threads(disk, err) : status;
    if (status != DI_OK) {
        kv_disk_close(disk);
        return status;
    }
    *out = disk;
    return DI_OK;
}

/* ---- close ---- */

static void stop_threads(kv_disk *disk)
{
    atomic_store(&disk->stop, true);
    if (disk->read_started) {
        disk->io->wake(disk->read_io);
        pthread_join(disk->read_thread, NULL);
    }
    if (disk->write_started) {
        disk->io->wake(disk->write_io);
        pthread_join(disk->write_thread, NULL);
    }
}

static void close_index(kv_disk *disk)
{
    if (disk->index == NULL) {
        return;
    }
    kv_follow_keep(disk);
    kv_index_close(disk->index, disk->write_started && !disk->incomplete && !disk->index_is_temporary);
    if (disk->index_is_temporary) {
        static const char *const files[] = {"data.mdb", "lock.mdb"};
        for (size_t i = 0; i < 2; i++) {
            char *const path = file_path_join(disk->index_path, files[i]);
            if (path != NULL) {
                (void)unlink(path);
            }
            free(path);
        }
        (void)rmdir(disk->index_path);
    }
}

/* What no thread will take any more. */
static void cancel_all(kv_disk *disk, kv_stack *stack)
{
    kv_disk_op *op = kv_stack_take(stack);
    while (op != NULL) {
        kv_disk_op *const next = op->next;
        if (op->what == KV_OP_PUT) {
            ((kv_disk_put *)op)->verdict = KV_DISK_FAILED;
            kv_count(disk, KV_SUM_WAITING, -((kv_disk_put *)op)->bytes);
        }
        kv_op_done(disk, op, DI_E_CANCELLED);
        op = next;
    }
}

void kv_disk_close(kv_disk *disk)
{
    if (disk == NULL) {
        return;
    }
    stop_threads(disk);
    do {
        cancel_all(disk, &disk->to_reader);
        cancel_all(disk, &disk->to_writer);
    } while (kv_disk_poll(disk) > 0); /* a `done` may have handed over the next one */
    if (disk->active.segment != NULL) {
        kv_active_seal(disk);
    }
    if (disk->write_started) {
        kv_reap(disk);
    }
    close_index(disk);
    if (disk->write_io != NULL) {
        disk->io->close(disk->write_io);
        disk->io->close(disk->read_io);
    }
    kv_writers_fini(&disk->writers);
    kv_table_fini(&disk->table);
    kv_active_fini(disk);
    kv_quotas_fini(&disk->quotas);
    if (disk->dir >= 0) {
        close(disk->dir);
    }
    pthread_mutex_destroy(&disk->lock);
    pthread_mutex_destroy(&disk->tenants_lock);
    kv_pages_fini(&disk->pages);
    free(disk->index_path);
    free(disk->path);
    free(disk);
}

/* ---- counters ---- */

void kv_disk_get_counters(const kv_disk *disk, kv_disk_counters *out)
{
    *out = (kv_disk_counters){
        .bytes = kv_counted(disk, KV_SUM_BYTES),
        .max_bytes = disk->o.max_bytes,
        .records = {kv_counted(disk, KV_SUM_UNITS), kv_counted(disk, KV_SUM_SNAPSHOTS)},
        .live_bytes = kv_counted(disk, KV_SUM_LIVE_BYTES),
        .pinned_bytes = kv_counted(disk, KV_SUM_PINNED_BYTES),
        .segments = kv_counted(disk, KV_SUM_SEGMENTS),
        .waiting_bytes = kv_counted(disk, KV_SUM_WAITING),
        .finds = kv_counted(disk, KV_SUM_FINDS),
        .found = {kv_counted(disk, KV_SUM_FOUND_UNITS), kv_counted(disk, KV_SUM_FOUND_SNAPSHOTS)},
        .reads = kv_counted(disk, KV_SUM_READS),
        .read_bytes = kv_counted(disk, KV_SUM_READ_BYTES),
        .read_ns = kv_counted(disk, KV_SUM_READ_NS),
        .read_busy_ns = kv_counted(disk, KV_SUM_BUSY_NS),
        .reads_late = kv_counted(disk, KV_SUM_LATE),
        .reads_failed = kv_counted(disk, KV_SUM_READS_FAILED),
        .corrupt = kv_counted(disk, KV_SUM_CORRUPT),
        .expired = kv_counted(disk, KV_SUM_EXPIRED),
        .evicted = kv_counted(disk, KV_SUM_EVICTED),
        .purged = kv_counted(disk, KV_SUM_PURGED),
        .stored = kv_counted(disk, KV_SUM_STORED),
        .stored_bytes = kv_counted(disk, KV_SUM_STORED_BYTES),
        .written_bytes = kv_counted(disk, KV_SUM_WRITTEN_BYTES),
        .rewritten_bytes = kv_counted(disk, KV_SUM_REWRITTEN_BYTES),
        .present = kv_counted(disk, KV_SUM_PRESENT),
        .not_admitted = kv_counted(disk, KV_SUM_NOT_ADMITTED),
        .no_room = kv_counted(disk, KV_SUM_NO_ROOM),
        .put_failed = kv_counted(disk, KV_SUM_PUT_FAILED),
        .put_refused = kv_counted(disk, KV_SUM_PUT_REFUSED),
        .rebuilt = disk->rebuilt,
        .open_ns = disk->open_ns,
        .io = disk->io->name,
    };
}
