/* kv_follow.c - from the directory to table and index: everything when a store is opened, the news of other writers from then on.
 *
 * Another writer's segment is read up to where it says that it is on the disk (kv_writers.h), or whole when it is not the one being
 * written. Segments of writers that died are taken over with their numbers, sealed, and looked after like our own. */
#include "kv/kv_disk_int.h"
#include "kv/kv_rank.h"

#include "core/core.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 1 << 20 };

typedef struct gathering { /* records on their way into the index */
    kv_indexed *items;
    size_t n;
    size_t capacity;
    bool empty; /* the index has no record yet */
} gathering;

/* ---- records into the index ---- */

static void merge(kv_disk *disk, const kv_indexed *r)
{
    kv_entry before;
    const bool known = kv_index_get(disk->index, &r->name, &before);
    if (known && before.sequence > r->entry.sequence && kv_table_find(&disk->table, before.segment) != NULL) {
        return;
    }
    if (known) {
        kv_account(disk, &r->name, &before, -1);
    }
    kv_index_put(disk->index, &r->name, &r->entry, known ? &before : NULL);
    kv_account(disk, &r->name, &r->entry, 1);
}

static bool merge_all(kv_disk *disk, gathering *g)
{
    if (g->n == 0) {
        return true;
    }
    kv_ranked *const ranked = ar_calloc(g->n, sizeof *ranked);
    if (ranked == NULL) {
        return false;
    }
    const size_t n = kv_rank_by_name(ranked, g->items, g->n);
    bool good = kv_index_begin(disk->index);
    if (good && g->empty) {
        for (size_t i = 0; i < n; i++) {
            kv_account(disk, &ranked[i].item->name, &ranked[i].item->entry, 1);
        }
        kv_index_fill(disk->index, ranked, n);
    }
    for (size_t i = 0; i < n && good && !g->empty; i++) {
        merge(disk, ranked[i].item);
    }
    good = good && kv_index_commit(disk->index);
    free(ranked);
    g->n = 0;
    g->empty = false;
    return good;
}

static bool gather(kv_disk *disk, gathering *g, const kv_segment *segment, const kv_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++) {
        const kv_listed *const listed = &listing->items[i];
        if (g->n == BATCH && !merge_all(disk, g)) {
            return false;
        }
        if (g->n == g->capacity) {
            const size_t capacity = g->capacity != 0 ? 2 * g->capacity : 1024;
            kv_indexed *const items = realloc(g->items, capacity * sizeof *items);
            if (items == NULL) {
                return false;
            }
            g->items = items;
            g->capacity = capacity;
        }
        g->items[g->n++] = (kv_indexed){kv_name_of(listed->key, listed->kind), kv_entry_of(listed, segment->id)};
        disk->last_sequence = listed->sequence > disk->last_sequence ? listed->sequence : disk->last_sequence;
    }
    return true;
}

/* ---- segments ---- */

/* Lists what is new in [file_bytes, to), to = 0: all; nobody writes behind it then. False: no memory for it. */
static bool take_news(kv_disk *disk, kv_segment *segment, uint64_t to, gathering *g)
{
    kv_listing listing;
    const bool first = segment->file_bytes == 0;
    struct stat st;
    if (kv_list_segment(disk, disk->write_io, segment, segment->file_bytes, to, &listing) != 0) {
        segment->unlisted = true;
        segment->sealed = segment->sealed || to == 0;
        return true;
    }
    segment->unlisted = !listing.whole;
    segment->data_bytes += listing.data_bytes;
    segment->file_bytes = listing.end;
    const bool good = gather(disk, g, segment, &listing);
    if (to == 0) {
        if (fstatat(disk->dir, segment->name, &st, 0) == 0) {
            segment->file_bytes = (uint64_t)st.st_size;
        }
        if (!listing.sealed && listing.whole && first && segment->ours && listing.n > 0) {
            kv_seal_other(disk, segment, &listing);
        }
        segment->sealed = true;
    }
    free(listing.items);
    return good;
}

/* Up to where another writer's segment can be read; false: it is left alone for now. *to = 0: all of it. */
static bool readable(const kv_disk *disk, const kv_segment *segment, uint64_t *to)
{
    uint64_t active;
    *to = 0;
    if (segment->ours) {
        return true;
    }
    if (kv_writer_published(&disk->writers, kv_segment_writer(segment->id), &active, to) && active == segment->id) {
        return *to > segment->file_bytes;
    }
    *to = 0; /* it was published before it was there, and we saw it before we asked: it is no longer written */
    return true;
}

static kv_segment *meet(kv_disk *disk, const char *name)
{
    uint64_t id;
    uint64_t nonce;
    if (!kv_segment_parse(name, &id, &nonce)) {
        return NULL;
    }
    kv_segment *segment = kv_table_find(&disk->table, id);
    if (segment == NULL && (segment = kv_segment_new(id, nonce)) != NULL) {
        segment->ours = disk->writer >= 0 && kv_writer_ours(&disk->writers, kv_segment_writer(id));
        pthread_mutex_lock(&disk->lock);
        kv_table_add(&disk->table, segment);
        pthread_mutex_unlock(&disk->lock);
        kv_count(disk, KV_SUM_SEGMENTS, 1);
        if (segment->ours && kv_segment_born(id) > disk->last_born) {
            disk->last_born = kv_segment_born(id);
        }
    }
    /* Two names of one number: the first one met counts. */
    return segment != NULL && segment->nonce == nonce ? segment : NULL;
}

static DIR *open_directory(const kv_disk *disk)
{
    const int fd = openat(disk->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL && fd >= 0) {
        close(fd);
    }
    return dir;
}

/* Every segment of the directory is in the table and marked as seen. */
static bool meet_all(kv_disk *disk)
{
    DIR *const dir = open_directory(disk);
    if (dir == NULL) {
        return false;
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        kv_segment *const segment = meet(disk, e->d_name);
        if (segment != NULL) {
            segment->seen = true;
        }
    }
    closedir(dir);
    return true;
}

/* What the index knew when it was closed is not read again. */
static bool is_known(kv_disk *disk, kv_segment *segment)
{
    kv_scanned scanned;
    struct stat st;
    if (!kv_index_begin(disk->index)) {
        return false;
    }
    const bool known = kv_index_get_scanned(disk->index, segment->id, &scanned) &&
                       fstatat(disk->dir, segment->name, &st, 0) == 0 && (uint64_t)st.st_size == scanned.bytes;
    kv_index_abort(disk->index);
    if (known) {
        segment->file_bytes = scanned.bytes;
        segment->data_bytes = scanned.data_bytes;
        segment->sealed = true;
    }
    return known;
}

di_status kv_follow_start(kv_disk *disk, bool fresh, di_error *err)
{
    gathering g = {.items = NULL, .empty = fresh};
    bool good = true;
    if (!meet_all(disk)) {
        return err_set(err, DI_E_IO, "%s: the directory can't be listed", disk->path);
    }
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL && good; s = kv_table_next(&disk->table, s)) {
        uint64_t to;
        if ((fresh || !is_known(disk, s)) && readable(disk, s, &to)) {
            good = take_news(disk, s, to, &g);
        }
    }
    good = good && merge_all(disk, &g);
    free(g.items);
    if (!good) {
        disk->incomplete = true;
        return err_set(err, DI_E_MEMORY, "%s: no room for the index", disk->path);
    }
    return DI_OK;
}

/* Numbers of writers that died are ours from now on, with what they left. */
static void adopt(kv_disk *disk)
{
    bool asked[KV_WRITERS] = {false};
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL && disk->writer >= 0; s = kv_table_next(&disk->table, s)) {
        const int number = kv_segment_writer(s->id);
        const bool ask = !s->ours && !asked[number];
        asked[number] = asked[number] || ask;
        if (ask) {
            (void)kv_writer_take(&disk->writers, number);
        }
        if (!s->ours && kv_writer_ours(&disk->writers, number)) {
            s->ours = true;
            s->sealed = false; /* the rest of it is read, and it gets its catalogue, if need be at the next start */
        }
    }
}

static void forget_vanished(kv_disk *disk)
{
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
        if (!s->seen && !s->ours && !s->doomed) {
            kv_doom(disk, s);
        }
        s->seen = false;
    }
}

void kv_follow(kv_disk *disk)
{
    gathering g = {.items = NULL};
    if (!meet_all(disk)) {
        return;
    }
    adopt(disk);
    for (kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
        uint64_t to;
        if (!s->sealed && s != disk->active.segment && readable(disk, s, &to)) {
            disk->incomplete = !take_news(disk, s, to, &g) || disk->incomplete;
        }
    }
    if (!merge_all(disk, &g)) {
        disk->incomplete = true;
        kv_recount(disk);
    }
    free(g.items);
    forget_vanished(disk);
}

void kv_follow_keep(kv_disk *disk)
{
    if (!kv_index_begin(disk->index)) {
        return;
    }
    kv_index_clear_scanned(disk->index);
    for (const kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
        const kv_scanned scanned = {.bytes = s->file_bytes, .data_bytes = s->data_bytes};
        if (s->sealed && !s->doomed && !s->unlisted) {
            kv_index_put_scanned(disk->index, s->id, &scanned);
        }
    }
    (void)kv_index_commit(disk->index);
}
