/* Feeds bytes as a segment's file to the disk tier: lists it, whole and in part, and reads what it lists. The first byte says whether heads
 * and payloads get right checksums first, so that what lies behind these is reached too. Whatever is listed lies inside the file. */
#include "kv/kv_disk_int.h"

#include "core/core.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 1 << 18, MAX_PAYLOAD = 65536 };

static const uint64_t segment_id = (uint64_t)3 << 56 | 77;
static const uint64_t segment_nonce = 0x1122334455667788;

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

/* What a writer with bad intentions would do: names the place in each head of a block, and signs it. */
static void sign(uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at + KV_BLOCK <= size; at += KV_BLOCK) {
        const kv_where where = {.segment = segment_id, .nonce = segment_nonce, .offset = at, .limit = size};
        const kv_head right = kv_head_at(&where, 0);
        kv_head head;
        memcpy(&head, bytes + at, sizeof head);
        head.version = right.version;
        head.segment = right.segment;
        head.nonce = right.nonce;
        head.offset = right.offset;
        memcpy(head.magic, right.magic, sizeof head.magic);
        if (head.bytes <= size - at - KV_HEAD_BYTES) {
            digest_sum(bytes + at + KV_HEAD_BYTES, (size_t)head.bytes, head.payload_sum);
        }
        digest_sum(&head, offsetof(kv_head, head_sum), head.head_sum);
        memcpy(bytes + at, &head, sizeof head);
    }
}

struct io_queue { /* a queue without threads */
    io_request *over;
};

static void submit(io_queue *io, io_request *r)
{
    r->result = pread(r->fd, r->data, r->size, (off_t)r->offset);
    r->next = io->over;
    io->over = r;
}

static io_request *wait_for(io_queue *io, int64_t timeout_ns)
{
    (void)timeout_ns;
    io_request *const list = io->over;
    io->over = NULL;
    return list;
}

static int memory_file(const io_table *table, int dir, const char *name, int flags)
{
    (void)dir, (void)name, (void)flags;
    return dup(*(const int *)table->user);
}

static void list(kv_disk *disk, io_queue *io, int fd, const kv_segment *segment, uint64_t from, uint64_t to, size_t size)
{
    kv_listing listing;
    if (kv_list_segment(disk, io, segment, from, to, &listing) != 0) {
        return;
    }
    uint8_t *const buffer = aligned_alloc(KV_BLOCK, kv_record_bytes(MAX_PAYLOAD));
    for (size_t i = 0; i < listing.n && buffer != NULL; i++) {
        require(kv_listed_good(&listing.items[i], size));
        (void)kv_read_record(disk, io, fd, segment, &listing.items[i], buffer);
    }
    require(listing.end <= size || listing.n == 0);
    free(buffer);
    free(listing.items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > MAX_BYTES) {
        return 0;
    }
    int fd = memfd_create("segment", MFD_CLOEXEC);
    uint8_t *const bytes = malloc(size);
    io_queue io = {.over = NULL};
    kv_disk *const disk = calloc(1, sizeof *disk);
    kv_segment *const segment = kv_segment_new(segment_id, segment_nonce);
    require(fd >= 0 && bytes != NULL && disk != NULL && segment != NULL);
    memcpy(bytes, data + 1, size - 1);
    if ((data[0] & 1) != 0) {
        sign(bytes, size - 1);
    }
    require(write(fd, bytes, size - 1) == (ssize_t)(size - 1));
    const io_table table = {.submit = submit, .wait = wait_for, .open_file = memory_file, .user = &fd};
    disk->io = &table;
    disk->o.max_record_bytes = MAX_PAYLOAD;
    list(disk, &io, fd, segment, 0, 0, size - 1);
    list(disk, &io, fd, segment, KV_BLOCK, 0, size - 1);
    list(disk, &io, fd, segment, 0, 3 * KV_BLOCK, size - 1);
    free(segment);
    free(disk);
    free(bytes);
    close(fd);
    return 0;
}
