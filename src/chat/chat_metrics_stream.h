/* chat_metrics_stream.h - the part of the metrics page about weights that are read when they are needed; see chat_metrics_stream.c. */
#ifndef CHAT_CHAT_METRICS_STREAM_H
#define CHAT_CHAT_METRICS_STREAM_H

#include "core/metrics.h"

#include <deepinfer/engine.h>

enum { CHAT_STREAM_GAUGES = 3, CHAT_STREAM_COUNTERS = 7 };

typedef struct chat_stream_metrics { /* owner: the chat_metrics that it is in; series are the registry's */
    met_gauge *gauges[CHAT_STREAM_GAUGES];
    met_counter *counters[CHAT_STREAM_COUNTERS];
} chat_stream_metrics;

/* `labels` are those of every series. Errors: DI_E_MEMORY. */
di_status chat_stream_metrics_init(chat_stream_metrics *m, met_registry *registry, const buf *labels, di_error *err);
void chat_stream_metrics_set(chat_stream_metrics *m, const di_stream_stats *stats);

#endif
