/* chat_metrics_cache.c - figures of the prefix cache by tier (docs/kv_cache.md lists the names).
 *
 * The engine counts them itself; they are taken over when the page is written, but for the lengths of hits, which are observed at
 * admission. */
#include "chat/chat_metrics_cache.h"

#include "core/err.h"

#include <stddef.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

typedef struct family {
    const char *name;
    const char *help;
    size_t offset; /* in the struct that has the value */
    met_unit unit;
} family;

#define TIER(field) offsetof(di_cache_tier_stats, field)
#define ALL(field) offsetof(di_cache_stats, field)

static const char *const tiers[DI_CACHE_TIERS] = {"memory", "dir", "shared"};

static const family gauges[CHAT_CACHE_GAUGES] = {
    {.name = "deepinfer_cache_bytes", .help = "Bytes that a tier below the device holds.", .offset = TIER(bytes)},
    {.name = "deepinfer_cache_max_bytes", .help = "Its budget; 0 = there is no such tier.", .offset = TIER(max_bytes)},
    {.name = "deepinfer_cache_units", .help = "Units of 128 tokens that it holds.", .offset = TIER(units)},
};

static const family counters[CHAT_CACHE_COUNTERS] = {
    {.name = "deepinfer_cache_restored_bytes_total", .help = "Bytes that came back to the device.", .offset = TIER(restored_bytes)},
    {.name = "deepinfer_cache_restored_units_total", .help = "Units that came back to the device.", .offset = TIER(restored_units)},
    {.name = "deepinfer_cache_stored_bytes_total", .help = "Payload that was written to the tier.", .offset = TIER(stored_bytes)},
    {.name = "deepinfer_cache_written_bytes_total",
     .help = "Everything that was written, rewriting included; over the stored bytes it is the write amplification.",
     .offset = TIER(written_bytes)},
    {.name = "deepinfer_cache_evicted_total", .help = "Records that went for room.", .offset = TIER(evicted)},
    {.name = "deepinfer_cache_expired_total", .help = "Records whose time to live was over.", .offset = TIER(expired)},
    {.name = "deepinfer_cache_corrupt_total", .help = "Records with a wrong checksum; they count as not there.", .offset = TIER(corrupt)},
    {.name = "deepinfer_cache_failed_total", .help = "Reads and writes that the system refused.", .offset = TIER(failed)},
    {.name = "deepinfer_cache_refused_total", .help = "Records that found no room.", .offset = TIER(refused)},
};

static const family totals[CHAT_CACHE_TOTALS] = {
    {.name = "deepinfer_cache_lookups_total", .help = "Requests looked for below the device.", .offset = ALL(lookups)},
    {.name = "deepinfer_cache_loads_total", .help = "Decisions to load a prefix.", .offset = ALL(loads)},
    {.name = "deepinfer_cache_recomputes_total", .help = "Decisions to compute a prefix that could be loaded.", .offset = ALL(recomputes)},
    {.name = "deepinfer_cache_late_reads_total", .help = "Reads that their deadline cut.", .offset = ALL(late)},
    {.name = "deepinfer_cache_incomplete_loads_total", .help = "Loads that missed something on the way.", .offset = ALL(incomplete)},
    {.name = "deepinfer_cache_load_seconds_total", .help = "Time of loads; they overlap.", .offset = ALL(load_ns), .unit = MET_SECONDS},
};

static const double hit_bounds[] = {0, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576};

static int64_t value_at(const void *stats, const family *f) { return *(const int64_t *)(const void *)((const char *)stats + f->offset); }

static met_desc desc_of(const family *f, const buf *labels)
{
    return (met_desc){.name = f->name, .help = f->help, .labels = labels->data, .unit = f->unit};
}

static di_status init_tier(chat_cache_metrics *m, met_registry *registry, const buf *labels, int tier, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < CHAT_CACHE_GAUGES; i++) {
        const met_desc desc = desc_of(&gauges[i], labels);
        status = met_gauge_get(registry, &desc, &m->gauges[tier][i], err);
    }
    for (size_t i = 0; status == DI_OK && i < CHAT_CACHE_COUNTERS; i++) {
        const met_desc desc = desc_of(&counters[i], labels);
        status = met_counter_get(registry, &desc, &m->counters[tier][i], err);
    }
    return status;
}

di_status chat_cache_metrics_init(chat_cache_metrics *m, met_registry *registry, const buf *labels, di_error *err)
{
    const met_desc hits = {.name = "deepinfer_prefix_cache_hit_tokens",
                           .help = "Prompt tokens of a request that did not have to run, whatever tier they came from.",
                           .labels = labels->data};
    di_status status = met_histogram_get(registry, &hits, hit_bounds, COUNT_OF(hit_bounds), &m->hits, err);
    for (size_t i = 0; status == DI_OK && i < CHAT_CACHE_TOTALS; i++) {
        const met_desc desc = desc_of(&totals[i], labels);
        status = met_counter_get(registry, &desc, &m->totals[i], err);
    }
    for (int tier = 0; status == DI_OK && tier < DI_CACHE_TIERS; tier++) {
        buf with_tier;
        buf_init(&with_tier, SIZE_MAX);
        buf_append(&with_tier, labels->data, labels->size);
        met_label(&with_tier, "tier", tiers[tier]);
        status = with_tier.failed ? err_memory(err, "metrics", with_tier.size) : init_tier(m, registry, &with_tier, tier, err);
        buf_fini(&with_tier);
    }
    return status;
}

void chat_cache_metrics_hit(chat_cache_metrics *m, int64_t tokens) { met_observe(m->hits, tokens); }

void chat_cache_metrics_set(chat_cache_metrics *m, const di_cache_stats *stats)
{
    for (int tier = 0; tier < DI_CACHE_TIERS; tier++) {
        for (size_t i = 0; i < CHAT_CACHE_GAUGES; i++) {
            met_gauge_set(m->gauges[tier][i], (double)value_at(&stats->tiers[tier], &gauges[i]));
        }
        for (size_t i = 0; i < CHAT_CACHE_COUNTERS; i++) {
            met_counter_set(m->counters[tier][i], (uint64_t)value_at(&stats->tiers[tier], &counters[i]));
        }
    }
    for (size_t i = 0; i < CHAT_CACHE_TOTALS; i++) {
        met_counter_set(m->totals[i], (uint64_t)value_at(stats, &totals[i]));
    }
}
