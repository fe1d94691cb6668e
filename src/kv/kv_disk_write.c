/* kv_disk_write.c - the writing thread: judges what is put, and looks after the directory between times.
 *
 * Everything that changes happens here, one after the other, so nothing below needs a lock. What waits is taken at once and written
 * together. */
#include "kv/kv_disk_int.h"

#include "core/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP = 1000 };

static const int64_t shared_tick_ns = 200000000;
static const int64_t local_tick_ns = 1000000000;

/* ---- puts ---- */

static void answer(kv_disk *disk, kv_disk_put *put, kv_disk_verdict verdict, di_status status)
{
    static const kv_sum sums[] = {
        [KV_DISK_PRESENT] = KV_SUM_PRESENT,
        [KV_DISK_NOT_ADMITTED] = KV_SUM_NOT_ADMITTED,
        [KV_DISK_NO_ROOM] = KV_SUM_NO_ROOM,
        [KV_DISK_FAILED] = KV_SUM_PUT_FAILED,
    };
    put->verdict = verdict;
    kv_count(disk, sums[verdict], 1);
    kv_count(disk, KV_SUM_WAITING, -put->bytes);
    kv_op_done(disk, &put->op, status);
}

static bool is_acceptable(const kv_disk *disk, const kv_disk_put *put)
{
    return put->bytes > 0 && put->bytes <= kv_disk_max_payload(disk) && put->payload != NULL &&
           put->kind < KV_DISK_KINDS && put->class_id >= 0 && put->class_id < KV_DISK_CLASSES && put->ttl_s >= 0 &&
           put->ttl_s <= UINT32_MAX;
}

/* Starts the record's time to live anew when it is there, and as pinned as it shall be. */
static bool renew(kv_disk *disk, const kv_disk_put *put, const kv_name *name, int64_t now)
{
    kv_entry entry;
    if (!kv_index_begin(disk->index)) {
        return false;
    }
    const bool known = kv_index_get(disk->index, name, &entry);
    const kv_segment *const segment = known ? kv_table_find(&disk->table, entry.segment) : NULL;
    const bool alive = entry.expiry_s == 0 || entry.expiry_s > now || entry.pinned != 0;
    if (!known || segment == NULL || segment->doomed || !alive || (put->pinned && entry.pinned == 0)) {
        kv_index_abort(disk->index);
        return false;
    }
    const kv_entry before = entry;
    entry.expiry_s = entry.ttl_s != 0 ? now + entry.ttl_s : 0;
    kv_index_put(disk->index, name, &entry, &before);
    return kv_index_commit(disk->index);
}

static kv_listed listed_of(kv_disk *disk, const kv_disk_put *put, int64_t now)
{
    const int64_t ttl = put->ttl_s != 0 ? put->ttl_s : disk->o.classes[put->class_id].ttl_s;
    kv_listed listed = {.sequence = kv_next_sequence(disk),
                        .expiry_s = ttl != 0 ? now + ttl : 0,
                        .bytes = (uint32_t)put->bytes,
                        .ttl_s = (uint32_t)ttl,
                        .tag = put->tag,
                        .kind = (uint8_t)put->kind,
                        .class_id = (uint8_t)put->class_id};
    const int64_t space = (int64_t)kv_record_bytes((uint64_t)put->bytes);
    listed.pinned = put->pinned && kv_counted(disk, KV_SUM_PINNED_BYTES) + (int64_t)disk->active.filled + space <= disk->pinned_room;
    memcpy(listed.key, put->key, sizeof listed.key);
    memcpy(listed.tenant, put->tenant.id, sizeof listed.tenant);
    return listed;
}

static void take_put(kv_disk *disk, kv_disk_put *put)
{
    const int64_t now = kv_now_s();
    const kv_name name = kv_name_of(put->key, put->kind);
    if (!is_acceptable(disk, put)) {
        answer(disk, put, KV_DISK_FAILED, DI_E_ARGUMENT);
    } else if (disk->writer < 0) {
        answer(disk, put, KV_DISK_FAILED, DI_E_STATE);
    } else if (renew(disk, put, &name, now)) {
        answer(disk, put, KV_DISK_PRESENT, DI_OK);
    } else if (!put->pinned && kv_sighting(&disk->sightings, &name) < disk->o.admit) {
        answer(disk, put, KV_DISK_NOT_ADMITTED, DI_OK);
    } else if (clock_now_ns() < disk->pause_until_ns) {
        answer(disk, put, KV_DISK_FAILED, DI_E_IO);
    } else {
        kv_listed listed = listed_of(disk, put, now);
        if (!kv_quota_room(disk, &put->tenant, (int64_t)kv_record_bytes(listed.bytes)) || !kv_append(disk, &listed, put->payload, put)) {
            const bool failed = clock_now_ns() < disk->pause_until_ns;
            answer(disk, put, failed ? KV_DISK_FAILED : KV_DISK_NO_ROOM, failed ? DI_E_IO : DI_OK);
        }
    }
}

/* ---- care ---- */

static void take_care(kv_disk *disk, kv_disk_care *care)
{
    bool good = kv_active_flush(disk);
    care->n_done = 0;
    if (care->kind != KV_DISK_FLUSH && disk->writer < 0) {
        kv_op_done(disk, &care->op, DI_E_STATE);
        return;
    }
    switch (care->kind) {
    case KV_DISK_FLUSH:
        break;
    case KV_DISK_PIN:
    case KV_DISK_UNPIN:
        care->n_done = kv_pin_keys(disk, care->keys, care->n, care->kind == KV_DISK_PIN);
        break;
    case KV_DISK_PURGE:
        good = kv_purge(disk, care->tenant, &care->n_done);
        break;
    case KV_DISK_COMPACT:
        care->n_done = kv_compact(disk);
        break;
    }
    kv_op_done(disk, &care->op, good ? DI_OK : DI_E_IO);
}

/* ---- what the reader noted ---- */

static void apply_note(kv_disk *disk, const kv_note *note, int64_t now)
{
    kv_entry entry;
    if (!kv_index_get(disk->index, &note->name, &entry) || entry.segment != note->segment || entry.block != note->block) {
        return;
    }
    if (note->corrupt) {
        kv_index_remove(disk->index, &note->name, &entry);
        kv_account(disk, &note->name, &entry, -1);
        return;
    }
    const kv_entry before = entry;
    entry.uses = entry.uses < UINT8_MAX ? (uint8_t)(entry.uses + 1) : entry.uses;
    entry.used_s = (uint32_t)now;
    entry.expiry_s = entry.ttl_s != 0 ? now + entry.ttl_s : 0;
    kv_index_put(disk->index, &note->name, &entry, &before);
}

void kv_notes_apply(kv_disk *disk)
{
    kv_note notes[64];
    const int64_t now = kv_now_s();
    for (;;) {
        pthread_mutex_lock(&disk->lock);
        const int limit = (int)(sizeof notes / sizeof notes[0]);
        const int n = disk->n_notes < limit ? disk->n_notes : limit;
        disk->n_notes -= n;
        memcpy(notes, disk->notes + disk->n_notes, (size_t)n * sizeof *notes);
        pthread_mutex_unlock(&disk->lock);
        if (n == 0 || !kv_index_begin(disk->index)) {
            return;
        }
        for (int i = 0; i < n; i++) {
            apply_note(disk, &notes[i], now);
        }
        if (!kv_index_commit(disk->index)) {
            kv_recount(disk);
        }
    }
}

/* ---- the thread ---- */

static void take_all(kv_disk *disk)
{
    kv_disk_op *op = kv_stack_take(&disk->to_writer);
    while (op != NULL) {
        kv_disk_op *const next = op->next;
        if (op->what == KV_OP_PUT) {
            take_put(disk, (kv_disk_put *)op);
        } else {
            take_care(disk, (kv_disk_care *)op);
        }
        op = next;
    }
    (void)kv_active_flush(disk);
}

static void tick(kv_disk *disk)
{
    kv_notes_apply(disk);
    if (disk->o.shared) {
        kv_follow(disk);
        kv_purges_apply(disk);
    }
    if (disk->writer >= 0) {
        kv_sweep(disk, SWEEP);
    }
    kv_reap(disk);
    if (disk->o.shared && disk->writer >= 0) {
        kv_share_room(disk);
    }
    atomic_store(&disk->sums[KV_SUM_BYTES], kv_directory_bytes(disk));
}

/* Renews the leases of all numbers that are ours. */
static void renew_leases(const kv_disk *disk)
{
    const kv_active *const a = &disk->active;
    for (int i = 0; i < KV_WRITERS; i++) {
        const bool writes = i == disk->writer && a->segment != NULL;
        kv_writer_publish(&disk->writers, i, writes ? a->segment->id : 0, writes ? a->at - a->filled : 0);
    }
}

void *kv_write_main(void *arg)
{
    kv_disk *const disk = arg;
    const int64_t period = disk->o.shared ? shared_tick_ns : local_tick_ns;
    const int64_t lease_ns = disk->o.lease_s * 1000000000 / 3;
    int64_t next_tick = clock_now_ns() + period;
    int64_t next_lease = clock_now_ns() + lease_ns;
    while (!atomic_load(&disk->stop)) {
        take_all(disk);
        const int64_t now = clock_now_ns();
        if (now >= next_tick) {
            tick(disk);
            next_tick = clock_now_ns() + period;
        }
        if (now >= next_lease) {
            renew_leases(disk);
            next_lease = now + lease_ns;
        }
        /* A call of wake may have ended a wait for the disk instead of this one. */
        const bool more = atomic_load(&disk->to_writer.top) != NULL || atomic_load(&disk->stop);
        const int64_t left = next_tick - clock_now_ns();
        if (!more && left > 0) {
            (void)disk->io->wait(disk->write_io, left);
        }
    }
    return NULL;
}
