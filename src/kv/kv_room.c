/* kv_room.c - making room: segments go as a whole, the oldest first, and what deserves it is written again.
 *
 * Segments are the marks of a clock whose hand is the oldest one (the second chance of page replacement): a record that was used since it
 * was written, or that its class spares, moves on to the segment being written; the rest goes with the file. A segment of which half is
 * dead goes before the oldest. Survivors take at most three quarters of a segment, so that every step gains room; more than half of the
 * budget is never pinned, so that there is always a segment to take.
 *
 * A file goes after its survivors are durable and in the index; until then nothing is lost by a crash. Writing thread. */
#include "kv/kv_disk_int.h"

#include "core/arith.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum keep { KEEP_PINNED, KEEP_DESERVING, KEEP_LIVE } keep;

enum { QUOTA_STEPS = 64 };

bool kv_fits(const kv_disk *disk)
{
    /* The index grows along with a segment. */
    return kv_directory_bytes(disk) + disk->o.segment_bytes + disk->o.segment_bytes / 8 <= disk->o.max_bytes;
}

/* ---- one segment ---- */

typedef struct fate { /* of one record of the segment that goes */
    kv_entry entry;
    bool live;
    bool keeps;
} fate;

static bool deserves(const kv_disk *disk, const kv_entry *entry)
{
    return entry->uses > 0 || entry->spared < disk->o.classes[entry->class_id].priority;
}

static bool keeps(const kv_disk *disk, const kv_entry *entry, keep what, int64_t room)
{
    if (entry->pinned != 0 || what == KEEP_LIVE) {
        return true;
    }
    return what == KEEP_DESERVING && deserves(disk, entry) && kv_entry_space(entry) <= room;
}

static bool is_live(kv_disk *disk, const kv_segment *segment, const kv_listed *listed, kv_entry *entry)
{
    const kv_name name = kv_name_of(listed->key, listed->kind);
    return kv_index_get(disk->index, &name, entry) && entry->segment == segment->id && entry->block == listed->block;
}

static bool decide(kv_disk *disk, const kv_segment *segment, const kv_listing *listing, keep what, fate *fates)
{
    int64_t room = (int64_t)(segment->file_bytes / 4 * 3) - segment->pinned_bytes;
    if (!kv_index_begin(disk->index)) {
        return false;
    }
    for (size_t i = 0; i < listing->n; i++) {
        fate *const f = &fates[i];
        f->live = is_live(disk, segment, &listing->items[i], &f->entry);
        f->keeps = f->live && keeps(disk, &f->entry, what, room);
        room -= f->keeps && f->entry.pinned == 0 ? kv_entry_space(&f->entry) : 0;
    }
    kv_index_abort(disk->index);
    return true;
}

/* False: the survivor could not be written, for want of room or disk. */
static bool move_record(kv_disk *disk, int fd, const kv_segment *segment, const kv_listed *listed, const kv_entry *entry)
{
    kv_listed moved = *listed;
    if (kv_read_record(disk, disk->write_io, fd, segment, listed, disk->copy) != 0) {
        kv_count(disk, KV_SUM_CORRUPT, 1);
        return true; /* it goes */
    }
    moved.expiry_s = entry->expiry_s;
    moved.pinned = entry->pinned;
    moved.spared = entry->uses > 0 ? 0 : (uint8_t)(entry->spared + 1);
    return kv_append(disk, &moved, disk->copy + KV_HEAD_BYTES, NULL);
}

static bool move_survivors(kv_disk *disk, const kv_segment *segment, const kv_listing *listing, const fate *fates)
{
    const int fd = kv_open_segment(disk, segment->name, O_RDONLY);
    bool good = true;
    for (size_t i = 0; i < listing->n && good; i++) {
        if (fates[i].keeps) {
            good = fd >= 0 && move_record(disk, fd, segment, &listing->items[i], &fates[i].entry);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return good && kv_active_flush(disk);
}

static bool forget_rest(kv_disk *disk, const kv_segment *segment, const kv_listing *listing)
{
    const int64_t now = kv_now_s();
    if (!kv_index_begin(disk->index)) {
        return false;
    }
    for (size_t i = 0; i < listing->n; i++) {
        kv_entry entry;
        if (is_live(disk, segment, &listing->items[i], &entry)) {
            const kv_name name = kv_name_of(listing->items[i].key, listing->items[i].kind);
            const bool expired = entry.expiry_s != 0 && entry.expiry_s <= now;
            kv_forget(disk, &name, &entry, expired ? KV_SUM_EXPIRED : KV_SUM_EVICTED);
        }
    }
    if (!kv_index_commit(disk->index)) {
        kv_recount(disk);
        return false;
    }
    return true;
}

static bool any_keeps(const fate *fates, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fates[i].keeps) {
            return true;
        }
    }
    return false;
}

/* Takes the segment away, but for what is kept. False: it stays. */
static bool retire(kv_disk *disk, kv_segment *segment, keep what)
{
    kv_listing listing;
    fate *fates = NULL;
    bool good;
    if (kv_list_segment(disk, disk->write_io, segment, 0, 0, &listing) != 0) {
        good = what != KEEP_LIVE; /* it can't be read by anybody: its records go when they are met */
    } else {
        fates = ar_calloc(listing.n, sizeof *fates);
        good = fates != NULL && decide(disk, segment, &listing, what, fates) &&
               (!any_keeps(fates, listing.n) || move_survivors(disk, segment, &listing, fates)) &&
               forget_rest(disk, segment, &listing);
    }
    free(fates);
    free(listing.items);
    if (good) {
        kv_doom(disk, segment);
    }
    return good;
}

void kv_doom(kv_disk *disk, kv_segment *segment)
{
    pthread_mutex_lock(&disk->lock);
    segment->doomed = true;
    pthread_mutex_unlock(&disk->lock);
}

static bool is_empty(const kv_disk *disk, const kv_segment *segment)
{
    return !disk->incomplete && segment->ours && segment->sealed && segment->n_live == 0 && !segment->unlisted;
}

void kv_reap(kv_disk *disk)
{
    kv_segment *next;
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = next) {
        next = kv_table_next(&disk->table, s);
        if (is_empty(disk, s) && !s->doomed) {
            kv_doom(disk, s);
        }
        /* Nobody gets a lease on what is doomed, so none is none for ever. */
        if (!s->doomed || atomic_load(&s->leases) != 0) {
            continue;
        }
        const int error = s->ours ? disk->io->remove(disk->io, disk->dir, s->name) : 0;
        if (error == 0 || error == -ENOENT) {
            pthread_mutex_lock(&disk->lock);
            kv_table_remove(&disk->table, s);
            pthread_mutex_unlock(&disk->lock);
            kv_count(disk, KV_SUM_SEGMENTS, -1);
        }
    }
}

/* ---- the hand of the clock ---- */

static bool can_go(const kv_segment *s, bool spare)
{
    const int64_t pinned_limit = spare ? (int64_t)(s->file_bytes / 4 * 3) : 0;
    return s->ours && s->sealed && !s->doomed && s->pinned_bytes <= pinned_limit && atomic_load(&s->leases) == 0;
}

static kv_segment *next_victim(const kv_disk *disk, bool spare)
{
    kv_segment *oldest = NULL;
    kv_segment *emptiest = NULL;
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
        if (!can_go(s, spare)) {
            continue;
        }
        if (oldest == NULL || kv_segment_born(s->id) < kv_segment_born(oldest->id)) {
            oldest = s;
        }
        const bool half_dead = s->live_bytes <= (int64_t)(s->file_bytes / 2);
        if (half_dead && (emptiest == NULL || s->live_bytes < emptiest->live_bytes)) {
            emptiest = s;
        }
    }
    return emptiest != NULL ? emptiest : oldest;
}

bool kv_make_room(kv_disk *disk, bool spare)
{
    kv_notes_apply(disk); /* what is used now shall be seen as used */
    kv_reap(disk);
    for (int64_t tries = disk->table.n; tries >= 0 && !kv_fits(disk); tries--) {
        kv_segment *const victim = next_victim(disk, spare);
        if (victim == NULL || !retire(disk, victim, spare ? KEEP_DESERVING : KEEP_PINNED)) {
            return false;
        }
        kv_reap(disk);
    }
    return kv_fits(disk);
}

void kv_share_room(kv_disk *disk)
{
    kv_segment *oldest = NULL;
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
        if (!s->doomed && (oldest == NULL || kv_segment_born(s->id) < kv_segment_born(oldest->id))) {
            oldest = s;
        }
    }
    if (oldest != NULL && can_go(oldest, false) && !kv_fits(disk)) {
        (void)retire(disk, oldest, KEEP_PINNED);
        kv_reap(disk);
    }
}

/* ---- quotas, compaction, pins ---- */

bool kv_quota_room(kv_disk *disk, const kv_tenant *tenant, int64_t bytes)
{
    const int64_t quota = disk->o.tenant_bytes;
    if (quota == 0 || kv_quota_bytes(&disk->quotas, tenant) + (int64_t)disk->active.filled + bytes <= quota) {
        return true;
    }
    if (bytes > quota || !kv_active_flush(disk) || !kv_index_begin(disk->index)) {
        return false;
    }
    kv_name name;
    kv_entry entry;
    uint64_t sequence = 0;
    for (int i = 0; i < QUOTA_STEPS && kv_quota_bytes(&disk->quotas, tenant) + bytes > quota; i++, sequence++) {
        if (!kv_index_oldest(disk->index, tenant->id, &sequence, &name, &entry)) {
            break;
        }
        if (entry.pinned == 0) {
            kv_forget(disk, &name, &entry, KV_SUM_EVICTED);
        }
    }
    if (!kv_index_commit(disk->index)) {
        kv_recount(disk);
    }
    return kv_quota_bytes(&disk->quotas, tenant) + bytes <= quota;
}

/* Segments with dead records, as they are now; NULL without memory. */
static uint64_t *list_dirty(const kv_disk *disk, size_t *n)
{
    uint64_t *const ids = ar_calloc((size_t)disk->table.n, sizeof *ids);
    *n = 0;
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL && ids != NULL; s = kv_table_next(&disk->table, s)) {
        if (s->ours && s->sealed && !s->doomed && !s->unlisted && s->live_bytes < (int64_t)s->data_bytes) {
            ids[(*n)++] = s->id;
        }
    }
    return ids;
}

int64_t kv_compact(kv_disk *disk)
{
    size_t n;
    bool good = true;
    kv_active_seal(disk);
    const int64_t before = kv_directory_bytes(disk);
    kv_recount(disk);
    kv_reap(disk);
    uint64_t *const ids = list_dirty(disk, &n);
    disk->evicting = true;
    for (size_t i = 0; i < n && good; i++) {
        kv_segment *const segment = kv_table_find(&disk->table, ids[i]);
        good = segment == NULL || retire(disk, segment, KEEP_LIVE);
        kv_reap(disk);
    }
    disk->evicting = false;
    free(ids);
    kv_active_seal(disk);
    kv_reap(disk);
    const int64_t after = kv_directory_bytes(disk);
    return after < before ? before - after : 0;
}

/* The record is written again with another mark. */
static bool mark_record(kv_disk *disk, const kv_name *name, const kv_entry *entry, bool pinned)
{
    const kv_segment *const segment = kv_table_find(&disk->table, entry->segment);
    const int fd = segment != NULL ? kv_open_segment(disk, segment->name, O_RDONLY) : -ENOENT;
    if (fd < 0) {
        return false;
    }
    kv_listed listed = {.sequence = kv_next_sequence(disk),
                        .expiry_s = entry->ttl_s != 0 ? kv_now_s() + entry->ttl_s : 0,
                        .block = entry->block,
                        .bytes = entry->bytes,
                        .ttl_s = entry->ttl_s,
                        .tag = entry->tag,
                        .kind = name->bytes[KV_KEY_BYTES],
                        .class_id = entry->class_id,
                        .pinned = pinned};
    memcpy(listed.key, name->bytes, sizeof listed.key);
    memcpy(listed.tenant, entry->tenant, sizeof listed.tenant);
    const bool good = kv_read_record(disk, disk->write_io, fd, segment, &listed, disk->copy) == 0 &&
                      kv_append(disk, &listed, disk->copy + KV_HEAD_BYTES, NULL) && kv_active_flush(disk);
    close(fd);
    return good;
}

int64_t kv_pin_keys(kv_disk *disk, const uint8_t (*keys)[KV_KEY_BYTES], int64_t n, bool pinned)
{
    int64_t n_done = 0;
    const bool evicting = disk->evicting;
    disk->evicting = true; /* room is made without copies: the buffer for them is in use here */
    for (int64_t i = 0; i < n * KV_DISK_KINDS; i++) {
        const kv_name name = kv_name_of(keys[i / KV_DISK_KINDS], (kv_disk_kind)(i % KV_DISK_KINDS));
        kv_entry entry = {0};
        if (!kv_index_begin(disk->index)) {
            break;
        }
        const bool known = kv_index_get(disk->index, &name, &entry);
        kv_index_abort(disk->index);
        const bool allowed = !pinned || kv_counted(disk, KV_SUM_PINNED_BYTES) + kv_entry_space(&entry) <= disk->pinned_room;
        if (known && ((entry.pinned != 0) == pinned || (allowed && mark_record(disk, &name, &entry, pinned)))) {
            n_done++;
        }
    }
    disk->evicting = evicting;
    return n_done;
}
