/* kv_list.c - what is in a segment: by its catalogue, or head by head where there is none.
 *
 * A segment is without a catalogue while it is written, and for ever when its writer was killed. Then each head says where the next one
 * begins; behind a damaged one the search goes on block by block, so that one flipped bit costs one record. A head proves by segment,
 * nonce and offset that it is one (kv_record.h). */
#include "kv/kv_disk_int.h"

#include "core/arith.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW_BYTES = 1 << 20, DEPTH = 4 };

int kv_open_segment(const kv_disk *disk, const char *name, int flags)
{
    int fd = disk->direct != 0 ? disk->io->open_file(disk->io, disk->dir, name, flags | disk->direct) : -EINVAL;
    if (fd == -EINVAL || fd == -EOPNOTSUPP) {
        fd = disk->io->open_file(disk->io, disk->dir, name, flags & ~O_EXCL);
    }
    return fd;
}

typedef struct search { /* through one file */
    const kv_disk *disk;
    io_queue *io;
    const kv_segment *segment;
    int fd;
    uint64_t size;  /* of the file, whole blocks */
    uint8_t *window;
    uint64_t begin; /* the window holds [begin, end) of the file */
    uint64_t end;
    kv_listing *out;
    size_t capacity;
    int error; /* the last one; a block that can't be read is skipped */
} search;

static kv_where where_at(const search *s, uint64_t offset)
{
    return (kv_where){.segment = s->segment->id, .nonce = s->segment->nonce, .offset = offset, .limit = s->size};
}

/* A block of the file; NULL when it can't be read. `ahead`: bytes that are likely wanted next. */
static const uint8_t *block_at(search *s, uint64_t offset, uint64_t ahead)
{
    if (offset < s->begin || offset + KV_BLOCK > s->end) {
        const uint64_t n = ahead < s->size - offset ? ahead : s->size - offset;
        int error = io_whole(s->disk->io, s->io, s->fd, false, offset, s->window, (size_t)n, DEPTH);
        if (error != 0 && n > KV_BLOCK) {
            error = io_whole(s->disk->io, s->io, s->fd, false, offset, s->window, KV_BLOCK, 1);
            ahead = KV_BLOCK;
        }
        s->begin = offset;
        s->end = error == 0 ? offset + (ahead < n ? ahead : n) : offset;
        if (error != 0) {
            s->error = error;
            return NULL;
        }
    }
    return s->window + (offset - s->begin);
}

static bool add(search *s, const kv_listed *listed)
{
    if (s->out->n == s->capacity) {
        const size_t capacity = s->capacity != 0 ? 2 * s->capacity : 256;
        kv_listed *const items = realloc(s->out->items, capacity * sizeof *items);
        if (items == NULL) {
            return false;
        }
        s->out->items = items;
        s->capacity = capacity;
    }
    s->out->items[s->out->n++] = *listed;
    s->out->data_bytes += kv_record_bytes(listed->bytes);
    return true;
}

/* ---- by the catalogue ---- */

/* The head of the catalogue, when the last block says where it is. */
static bool find_catalogue(search *s, kv_head *out)
{
    if (s->size < 2 * KV_BLOCK) {
        return false;
    }
    kv_where where = where_at(s, s->size - KV_BLOCK);
    const uint8_t *block = block_at(s, where.offset, KV_BLOCK);
    kv_head trailer;
    if (block == NULL || !kv_head_read(block, &where, &trailer) || trailer.kind != KV_REC_TRAILER ||
        trailer.aux > s->size - 2 * KV_BLOCK || trailer.aux % KV_BLOCK != 0) {
        return false;
    }
    where = where_at(s, trailer.aux);
    block = block_at(s, trailer.aux, KV_BLOCK);
    return block != NULL && kv_head_read(block, &where, out) && out->kind == KV_REC_CATALOGUE && out->bytes % sizeof(kv_listed) == 0;
}

static bool read_catalogue(search *s)
{
    kv_head head;
    if (!find_catalogue(s, &head)) {
        return false;
    }
    const size_t size = (size_t)kv_record_bytes(head.bytes);
    uint8_t *const buffer = ar_calloc_aligned(1, size, KV_BLOCK);
    bool good = buffer != NULL && io_whole(s->disk->io, s->io, s->fd, false, head.offset, buffer, size, DEPTH) == 0 &&
                kv_payload_good(&head, buffer + KV_HEAD_BYTES);
    for (uint64_t at = 0; good && at < head.bytes; at += sizeof(kv_listed)) {
        kv_listed listed;
        memcpy(&listed, buffer + KV_HEAD_BYTES + at, sizeof listed);
        good = kv_listed_good(&listed, head.offset) && add(s, &listed);
    }
    free(buffer);
    if (!good) { /* what was added is found again head by head */
        s->out->n = 0;
        s->out->data_bytes = 0;
        return false;
    }
    s->out->end = head.offset;
    s->out->sealed = true;
    return true;
}

/* ---- head by head ---- */

static bool read_heads(search *s, uint64_t from, uint64_t to)
{
    bool lost = false; /* the last head was none */
    uint64_t at = from;
    s->out->end = from;
    while (at + KV_BLOCK <= to) {
        const kv_where where = where_at(s, at);
        const uint8_t *const block = block_at(s, at, lost ? WINDOW_BYTES : KV_BLOCK);
        kv_head head;
        lost = block == NULL || !kv_head_read(block, &where, &head);
        if (lost) {
            at += KV_BLOCK;
            continue;
        }
        at += kv_record_bytes(head.bytes);
        if (head.kind < KV_DISK_KINDS && at <= to) {
            const kv_listed listed = kv_listed_of(&head);
            if (!add(s, &listed)) {
                s->error = -ENOMEM;
                return false;
            }
            s->out->end = at;
        }
    }
    return true;
}

int kv_list_segment(const kv_disk *disk, io_queue *io, const kv_segment *segment, uint64_t from, uint64_t to, kv_listing *out)
{
    struct stat st;
    *out = (kv_listing){.items = NULL};
    search s = {.disk = disk, .io = io, .segment = segment, .out = out};
    s.fd = kv_open_segment(disk, segment->name, O_RDONLY);
    if (s.fd < 0) {
        return s.fd;
    }
    s.window = aligned_alloc(KV_BLOCK, WINDOW_BYTES);
    bool good = s.window != NULL && fstat(s.fd, &st) == 0 && S_ISREG(st.st_mode);
    if (good) {
        s.size = (uint64_t)st.st_size / KV_BLOCK * KV_BLOCK;
        to = to != 0 && to < s.size ? to : s.size;
        if (from != 0 || to != s.size || !read_catalogue(&s)) {
            good = read_heads(&s, from, to);
        }
    }
    if (!good || (out->n == 0 && s.error != 0)) {
        free(out->items);
        *out = (kv_listing){.items = NULL};
        good = false;
    }
    out->whole = s.error == 0;
    free(s.window);
    close(s.fd);
    return good ? 0 : s.error != 0 ? s.error : -EIO;
}

int kv_read_record(const kv_disk *disk, io_queue *io, int fd, const kv_segment *segment, const kv_listed *listed, uint8_t *buffer)
{
    const kv_where where = {.segment = segment->id,
                            .nonce = segment->nonce,
                            .offset = (uint64_t)listed->block * KV_BLOCK,
                            .limit = UINT64_MAX};
    const size_t size = (size_t)kv_record_bytes(listed->bytes);
    kv_head head;
    if ((int64_t)listed->bytes > disk->o.max_record_bytes) {
        return -EFBIG;
    }
    const int error = io_whole(disk->io, io, fd, false, where.offset, buffer, size, DEPTH);
    if (error != 0) {
        return error;
    }
    const bool good = kv_head_read(buffer, &where, &head) && head.bytes == listed->bytes && head.kind == listed->kind &&
                      memcmp(head.key, listed->key, sizeof head.key) == 0 && kv_payload_good(&head, buffer + KV_HEAD_BYTES);
    return good ? 0 : -EBADMSG;
}
