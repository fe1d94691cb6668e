/* kv_verify.c - reads every record of a directory and checks it, as `deepinfer cache verify` asks for. The store is read-only and not
 * shared, so nobody changes its table meanwhile; a queue of its own keeps out of the threads' way. */
#include "kv/kv_disk_int.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEPTH = 8 };

static void check_records(const kv_disk *disk, io_queue *io, const kv_segment *segment, const kv_listing *listing, uint8_t *buffer,
                          kv_disk_report *out)
{
    const int fd = kv_open_segment(disk, segment->name, O_RDONLY);
    for (size_t i = 0; i < listing->n; i++) {
        const bool good = fd >= 0 && kv_read_record(disk, io, fd, segment, &listing->items[i], buffer) == 0;
        out->records++;
        out->bytes += listing->items[i].bytes;
        out->records_damaged += good ? 0 : 1;
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void check_segment(const kv_disk *disk, io_queue *io, const kv_segment *segment, uint8_t *buffer, kv_disk_report *out)
{
    kv_listing listing;
    if (!segment->sealed && segment->file_bytes == 0 && !segment->unlisted) {
        return; /* begun just now by somebody else */
    }
    out->segments++;
    if (kv_list_segment(disk, io, segment, 0, segment->sealed ? 0 : segment->file_bytes, &listing) != 0) {
        out->segments_damaged++;
        return;
    }
    out->segments_damaged += listing.whole ? 0 : 1;
    check_records(disk, io, segment, &listing, buffer, out);
    free(listing.items);
}

di_status kv_disk_verify(kv_disk *disk, kv_disk_report *out, di_error *err)
{
    *out = (kv_disk_report){0};
    if (disk->writer >= 0 || disk->o.shared) {
        return err_set(err, DI_E_ARGUMENT, "%s: only a store that was opened for reading is checked", disk->path);
    }
    io_queue *const io = disk->io->open(disk->io, DEPTH);
    if (io == NULL) {
        return err_set(err, DI_E_IO, "%s: no queue for reading", disk->path);
    }
    uint8_t *const buffer = ar_calloc_aligned(1, (size_t)kv_record_bytes((uint64_t)disk->o.max_record_bytes), KV_BLOCK);
    if (buffer != NULL) {
        for (const kv_segment *s = kv_table_next(&disk->table, NULL); s != NULL; s = kv_table_next(&disk->table, s)) {
            check_segment(disk, io, s, buffer, out);
        }
    }
    disk->io->close(io);
    free(buffer);
    return buffer != NULL ? DI_OK : err_memory(err, "record", (size_t)disk->o.max_record_bytes);
}
