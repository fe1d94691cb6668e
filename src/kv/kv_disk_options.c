/* kv_disk_options.c - defaults of the disk tier's options, and what they may be. The limits keep every later sum of sizes far from
 * overflow: a budget of 1 PiB, segments of 4 GiB whose blocks are numbered in 32 bits, records of a quarter of that. */
#include "kv/kv_disk_int.h"

#include "core/err.h"

#include <string.h>

#define MIB ((int64_t)1 << 20)

static bool all_zero(const kv_disk_class *classes)
{
    for (int i = 0; i < KV_DISK_CLASSES; i++) {
        if (classes[i].ttl_s != 0 || classes[i].priority != 0) {
            return false;
        }
    }
    return true;
}

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value != 0 ? value : fallback;
}

void kv_options_fill_in(kv_disk_options *o)
{
    static const kv_disk_class classes[KV_DISK_CLASSES] = {{7 * 86400, 0}, {3 * 86400, 0}, {86400, 0}, {3600, 0}};
    if (o->segment_bytes == 0) {
        const int64_t part = o->max_bytes / 16 / MIB * MIB;
        o->segment_bytes = part < MIB ? MIB : part > 256 * MIB ? 256 * MIB : part;
    }
    o->max_record_bytes = or_default(o->max_record_bytes, o->segment_bytes / 4 - KV_BLOCK);
    o->queue_depth = (int32_t)or_default(o->queue_depth, 32);
    o->max_waiting = or_default(o->max_waiting, 64 * MIB);
    o->lease_s = or_default(o->lease_s, 60);
    if (all_zero(o->classes)) {
        memcpy(o->classes, classes, sizeof classes);
    }
}

static bool classes_good(const kv_disk_class *classes)
{
    for (int i = 0; i < KV_DISK_CLASSES; i++) {
        if (classes[i].ttl_s < 0 || classes[i].ttl_s > UINT32_MAX || classes[i].priority < 0 || classes[i].priority > 3) {
            return false;
        }
    }
    return true;
}

di_status kv_options_check(const kv_disk_options *o, di_error *err)
{
    if (o->max_bytes < 16 * MIB || o->max_bytes > (int64_t)1 << 50) {
        return err_set(err, DI_E_ARGUMENT, "%s: a budget of %lld bytes; 16 MiB to 1 PiB are possible", o->path, (long long)o->max_bytes);
    }
    if (o->segment_bytes < MIB || o->segment_bytes % KV_BLOCK != 0 || o->segment_bytes > o->max_bytes / 8 ||
        o->segment_bytes > (int64_t)1 << 32) {
        return err_set(err, DI_E_ARGUMENT, "%s: segments of %lld bytes; possible are multiples of 4096, 1 MiB to an eighth of the budget",
                       o->path, (long long)o->segment_bytes);
    }
    if (o->max_record_bytes < 1 || o->max_record_bytes > o->segment_bytes / 4 - KV_BLOCK || o->queue_depth < 1 || o->queue_depth > 256 ||
        o->tenant_bytes < 0 || o->admit < 0 || o->max_waiting < 0 || o->lease_s < 1 || o->lease_s > 86400 || !classes_good(o->classes)) {
        return err_set(err, DI_E_ARGUMENT, "%s: an option of the disk tier is out of its range", o->path);
    }
    return DI_OK;
}
