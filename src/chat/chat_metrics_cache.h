/* chat_metrics_cache.h - the part of the metrics page about the tiers of the prefix cache; see chat_metrics_cache.c. */
#ifndef CHAT_CHAT_METRICS_CACHE_H
#define CHAT_CHAT_METRICS_CACHE_H

#include "core/metrics.h"

#include <deepinfer/engine.h>

enum { CHAT_CACHE_GAUGES = 3, CHAT_CACHE_COUNTERS = 9, CHAT_CACHE_TOTALS = 6 };

typedef struct chat_cache_metrics { /* owner: the chat_metrics that it is in; series are the registry's */
    met_gauge *gauges[DI_CACHE_TIERS][CHAT_CACHE_GAUGES];
    met_counter *counters[DI_CACHE_TIERS][CHAT_CACHE_COUNTERS];
    met_counter *totals[CHAT_CACHE_TOTALS];
    met_histogram *hits;
} chat_cache_metrics;

/* `labels` are those of every series. Errors: DI_E_MEMORY. */
di_status chat_cache_metrics_init(chat_cache_metrics *m, met_registry *registry, const buf *labels, di_error *err);
void chat_cache_metrics_hit(chat_cache_metrics *m, int64_t tokens); /* a request was admitted, so many of its tokens need not run */
void chat_cache_metrics_set(chat_cache_metrics *m, const di_cache_stats *stats);

#endif
