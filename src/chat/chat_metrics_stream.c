/* chat_metrics_stream.c - figures of weights that are read when they are needed (docs/streaming.md). The engine counts them; they are taken
 * over when the page is written. */
#include "chat/chat_metrics_stream.h"

#include <stddef.h>

typedef struct family {
    const char *name;
    const char *help;
    size_t offset; /* in di_stream_stats */
    met_unit unit;
} family;

#define AT(field) offsetof(di_stream_stats, field)

static const family gauges[CHAT_STREAM_GAUGES] = {
    {.name = "deepinfer_stream_budget_bytes", .help = "Memory for weights; 0 = all are in memory.", .offset = AT(budget_bytes)},
    {.name = "deepinfer_stream_resident_bytes", .help = "Weights that stay in memory.", .offset = AT(resident_bytes)},
    {.name = "deepinfer_stream_cache_bytes", .help = "Memory for routed experts.", .offset = AT(cache_bytes)},
};

static const family counters[CHAT_STREAM_COUNTERS] = {
    {.name = "deepinfer_stream_hits_total", .help = "Experts that a layer needed and that were in memory.", .offset = AT(hits)},
    {.name = "deepinfer_stream_misses_total", .help = "Experts that a layer had to wait for.", .offset = AT(misses)},
    {.name = "deepinfer_stream_guessed_total", .help = "Experts read because a layer was likely to need them.", .offset = AT(guessed)},
    {.name = "deepinfer_stream_guessed_right_total", .help = "Those that it needed.", .offset = AT(guessed_right)},
    {.name = "deepinfer_stream_engram_rows_total", .help = "Rows of Engram tables that were read.", .offset = AT(engram_rows)},
    {.name = "deepinfer_stream_read_bytes_total", .help = "Bytes of weights read from the disk.", .offset = AT(read_bytes)},
    {.name = "deepinfer_stream_wait_seconds_total",
     .help = "Time in which the computation waited for the disk.",
     .offset = AT(wait_ns),
     .unit = MET_SECONDS},
};

static int64_t value_at(const di_stream_stats *stats, const family *f)
{
    return *(const int64_t *)(const void *)((const char *)stats + f->offset);
}

static met_desc desc_of(const family *f, const buf *labels)
{
    return (met_desc){.name = f->name, .help = f->help, .labels = labels->data, .unit = f->unit};
}

di_status chat_stream_metrics_init(chat_stream_metrics *m, met_registry *registry, const buf *labels, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < CHAT_STREAM_GAUGES; i++) {
        const met_desc desc = desc_of(&gauges[i], labels);
        status = met_gauge_get(registry, &desc, &m->gauges[i], err);
    }
    for (size_t i = 0; status == DI_OK && i < CHAT_STREAM_COUNTERS; i++) {
        const met_desc desc = desc_of(&counters[i], labels);
        status = met_counter_get(registry, &desc, &m->counters[i], err);
    }
    return status;
}

void chat_stream_metrics_set(chat_stream_metrics *m, const di_stream_stats *stats)
{
    for (size_t i = 0; i < CHAT_STREAM_GAUGES; i++) {
        met_gauge_set(m->gauges[i], (double)value_at(stats, &gauges[i]));
    }
    for (size_t i = 0; i < CHAT_STREAM_COUNTERS; i++) {
        met_counter_set(m->counters[i], (uint64_t)value_at(stats, &counters[i]));
    }
}
