/* eng_tier_open.c - the tiers of an engine as its options say: name space, budgets, folders; and their figures (<deepinfer/engine.h>). */
#include "engine/engine_int.h"

#include "core/core.h"
#include "kv/kv_tenant.h"

#include <string.h>
#include <unistd.h>

#define DEFAULT_BYTES ((int64_t)16 << 30)
#define MIB ((int64_t)1 << 20)
#define SEGMENTS 8 /* a folder has at least so many */
#define RECORD_ROOM ((int64_t)64 << 10) /* more than a record has beside its payload */

static const int64_t default_ttl_s[DI_CACHE_CLASSES] = {[DI_CACHE_CHAT] = 7 * 86400, [DI_CACHE_AGENT] = 3 * 86400};

static bool has_tiers(const di_cache_options *o) { return o->dir != NULL || o->shared_dir != NULL || o->ram_bytes > 0; }

/* Caches that results depend on must never be taken for those of another model, layout, numerics or approximation. Without tiers
 * nothing leaves the engine, and the model need not be read for it. */
di_status eng_tier_name_space(const di_engine *e, const di_cache_options *o, uint8_t out[KV_KEY_BYTES], di_error *err)
{
    uint8_t text[MDL_FINGERPRINT_BYTES + 1] = {0};
    if (has_tiers(o)) {
        const di_status status = mdl_fingerprint(e->runner, text, err);
        if (status != DI_OK) {
            return status;
        }
    }
    text[MDL_FINGERPRINT_BYTES] = (uint8_t)e->replay;
    return digest_sha256(text, sizeof text, out, err);
}

static di_status check(const di_cache_options *o, di_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } all[] = {{"ram_bytes", o->ram_bytes},       {"dir_bytes", o->dir_bytes},       {"shared_bytes", o->shared_bytes},
               {"tenant_bytes", o->tenant_bytes}, {"ttl_s", o->ttl_s[DI_CACHE_CHAT]}, {"ttl_s", o->ttl_s[DI_CACHE_AGENT]},
               {"admit", o->admit}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].value < 0) {
            return err_set(err, DI_E_ARGUMENT, "cache.%s is %lld: must be 0 (default) or more", all[i].name, (long long)all[i].value);
        }
    }
    if (o->load != DI_CACHE_LOAD_AUTO && o->load != DI_CACHE_LOAD_ALWAYS) {
        return err_set(err, DI_E_ARGUMENT, "cache.load is %d: must be DI_CACHE_LOAD_AUTO or DI_CACHE_LOAD_ALWAYS", (int)o->load);
    }
    return DI_OK;
}

static int64_t default_ram(void)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    const int64_t page = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page > 0 ? pages / 16 * page : 256 * MIB;
}

/* A record must fit a quarter of a segment, and there should be many segments. 0 = as the disk likes it: whole MiB of a sixteenth. */
static int64_t segment_bytes(const di_engine *e, int64_t budget)
{
    const size_t page = mdl_flat_page_bytes(e->runner);
    const size_t state = mdl_flat_state_bytes(e->runner, true);
    const int64_t need = 4 * ((int64_t)(page > state ? page : state) + RECORD_ROOM);
    return need > MIB && need > budget / 16 / MIB * MIB ? (need + MIB - 1) / MIB * MIB : 0;
}

static di_status add_disk(di_engine *e, const di_cache_options *o, bool shared, di_error *err)
{
    const int64_t asked = shared ? o->shared_bytes : o->dir_bytes;
    const int64_t bytes = asked > 0 ? asked : DEFAULT_BYTES;
    kv_disk *disk = NULL;
    kv_disk_options k = {.path = shared ? o->shared_dir : o->dir,
                         .shared = shared,
                         .max_bytes = bytes,
                         .segment_bytes = segment_bytes(e, bytes),
                         .tenant_bytes = o->tenant_bytes,
                         .admit = o->admit,
                         .wake = eng_tier_wake,
                         .wake_user = e->tier};
    if (k.segment_bytes > bytes / SEGMENTS) {
        return err_set(err, DI_E_ARGUMENT, "%s: a cache of %lld bytes is too small for this model, whose records need %lld", k.path,
                       (long long)bytes, (long long)(k.segment_bytes * SEGMENTS));
    }
    for (int i = 0; i < DI_CACHE_CLASSES; i++) {
        k.classes[i] = (kv_disk_class){.ttl_s = e->tier->ttl_s[i], .priority = i == DI_CACHE_AGENT ? 1 : 0};
    }
    const di_status status = kv_disk_open(&k, &disk, err);
    if (status == DI_OK) {
        eng_tier_add(e->tier, kv_lower_of_disk(disk));
    }
    return status;
}

di_status eng_tier_open(di_engine *e, const di_cache_options *o, const uint8_t name_space[KV_KEY_BYTES], di_error *err)
{
    di_status status = check(o, err);
    if (status != DI_OK || !has_tiers(o)) {
        return status;
    }
    eng_tier_options t = {.runner = e->runner,
                          .kv = e->kv,
                          .load = o->load == DI_CACHE_LOAD_ALWAYS ? ENG_LOAD_ALWAYS : ENG_LOAD_AUTO,
                          .ram_bytes = o->ram_bytes > 0 ? o->ram_bytes : default_ram()};
    memcpy(t.name_space, name_space, sizeof t.name_space);
    for (int i = 0; i < DI_CACHE_CLASSES; i++) {
        t.ttl_s[i] = o->ttl_s[i] > 0 ? o->ttl_s[i] : default_ttl_s[i];
    }
    status = eng_tier_new(&t, &e->tier, err);
    if (status == DI_OK && o->dir != NULL) {
        status = add_disk(e, o, false, err);
        e->has_dir = status == DI_OK;
    }
    return status == DI_OK && o->shared_dir != NULL ? add_disk(e, o, true, err) : status;
}

/* ---- figures ---- */

static void get_memory(const eng_tier *t, di_cache_tier_stats *out)
{
    kv_ram_counters k;
    kv_ram_get_counters(t->ram, &k);
    *out = (di_cache_tier_stats){.max_bytes = k.max_bytes,
                                 .bytes = k.bytes,
                                 .units = k.records[KV_DISK_UNIT],
                                 .snapshots = k.records[KV_DISK_SNAPSHOT],
                                 .stored_bytes = t->counters.kept_bytes,
                                 .written_bytes = t->counters.kept_bytes,
                                 .evicted = k.evicted,
                                 .expired = k.expired,
                                 .refused = t->counters.not_kept};
}

static void get_lower(const kv_lower *lower, di_cache_tier_stats *out)
{
    kv_disk_counters k;
    lower->table->counters(lower->store, &k);
    *out = (di_cache_tier_stats){.max_bytes = k.max_bytes,
                                 .bytes = k.bytes,
                                 .units = k.records[KV_DISK_UNIT],
                                 .snapshots = k.records[KV_DISK_SNAPSHOT],
                                 .stored_bytes = k.stored_bytes,
                                 .written_bytes = k.written_bytes,
                                 .evicted = k.evicted,
                                 .expired = k.expired,
                                 .corrupt = k.corrupt,
                                 .failed = k.reads_failed + k.put_failed,
                                 .refused = k.no_room + k.put_refused};
}

static void get_restored(const eng_tier *t, int source, di_cache_tier_stats *out)
{
    out->restored_units = t->counters.restored_units[source];
    out->restored_snapshots = t->counters.restored_snapshots[source];
    out->restored_bytes = t->counters.restored_bytes[source];
}

void di_engine_get_cache_stats(const di_engine *e, di_cache_stats *out)
{
    const eng_tier *const t = e->tier;
    *out = (di_cache_stats){.lookups = 0};
    if (t == NULL) {
        return;
    }
    get_memory(t, &out->tiers[DI_CACHE_MEMORY]);
    get_restored(t, ENG_FROM_RAM, &out->tiers[DI_CACHE_MEMORY]);
    for (int32_t i = 0; i < t->n_lowers; i++) {
        di_cache_tier_stats *const tier = &out->tiers[i == 0 && e->has_dir ? DI_CACHE_DIR : DI_CACHE_SHARED];
        get_lower(&t->lowers[i], tier);
        get_restored(t, ENG_FROM_LOWER + i, tier);
    }
    out->lookups = t->counters.lookups;
    out->loads = t->counters.load;
    out->recomputes = t->counters.recompute;
    out->late = t->counters.late;
    out->incomplete = t->counters.broken;
    out->load_ns = t->counters.load_ns;
}

size_t di_engine_get_cache_tenants(const di_engine *e, di_cache_tier tier, di_cache_tenant *out, size_t n)
{
    const eng_tier *const t = e->tier;
    const int32_t i = tier == DI_CACHE_SHARED && e->has_dir ? 1 : 0;
    const bool there = t != NULL && i < t->n_lowers && (tier == DI_CACHE_SHARED || (tier == DI_CACHE_DIR && e->has_dir));
    return there ? kv_tenants_list(&t->lowers[i], out, n) : 0;
}

void di_engine_purge_cache(di_engine *e, const void *salt, size_t n)
{
    kv_tenant tenant;
    kv_trim(e->kv, 0, 0);
    if (e->tier != NULL && (salt == NULL || kv_tenant_of((kv_salt){.data = salt, .size = n}, &tenant))) {
        eng_tier_purge(e->tier, salt != NULL ? &tenant : NULL);
    }
}
