/* srv_metrics.c - what the HTTP side counts, beside the service's own metrics on the same page. Labels are words of ours: routes, codes,
 * reasons and phases; nothing that a client sends becomes one. Any thread. */
#include "server/srv_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/metrics.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_EVENTS = SRV_E_TIMED_OUT + 1 };

struct srv_metrics {
    met_registry *registry;
    met_counter *events[N_EVENTS]; /* NULL: a gauge of its own */
    met_gauge *connections;
    met_gauge *in_flight;
    met_counter *received;
    met_counter *sent;
    met_counter *log_written;
    met_counter *log_dropped;
    met_counter *spans[2];
};

static const double seconds_bounds[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};

static di_status open_counters(srv_metrics *m, di_error *err)
{
    const struct {
        met_counter **out;
        met_desc desc;
    } counters[] = {
        {&m->events[SRV_E_CONNECTION], {"deepinfer_http_connections_total", NULL, "Connections that were accepted.", NULL, MET_ONE}},
        {&m->events[SRV_E_CONNECTION_REFUSED],
         {"deepinfer_http_connections_refused_total", NULL, "Connections closed at once, over the limit in all or of an address.", NULL,
          MET_ONE}},
        {&m->events[SRV_E_MALFORMED],
         {"deepinfer_http_malformed_total", NULL, "Requests that were no HTTP, answered without reaching a route.", NULL, MET_ONE}},
        {&m->events[SRV_E_SIGN_OF_LIFE],
         {"deepinfer_http_keep_alives_total", NULL, "Comments and pings in streams on which nothing came.", NULL, MET_ONE}},
        {&m->events[SRV_E_DROPPED_SLOW],
         {"deepinfer_http_slow_readers_total", NULL, "Connections cut because their reader was too slow.", NULL, MET_ONE}},
        {&m->events[SRV_E_TIMED_OUT],
         {"deepinfer_http_body_timeouts_total", NULL, "Requests whose body took too long (408).", NULL, MET_ONE}},
        {&m->received, {"deepinfer_http_received_bytes_total", NULL, "Bytes of request bodies.", NULL, MET_ONE}},
        {&m->sent, {"deepinfer_http_sent_bytes_total", NULL, "Bytes of response bodies.", NULL, MET_ONE}},
        {&m->log_written, {"deepinfer_log_written_total", NULL, "Lines of the access log that were written.", NULL, MET_ONE}},
        {&m->log_dropped,
         {"deepinfer_log_dropped_total", NULL, "Lines of the access log that were not: the disk is slow, full or gone.", NULL, MET_ONE}},
        {&m->spans[0], {"deepinfer_trace_spans_total", NULL, "Spans for the trace collector by fate.", "fate=\"sent\"", MET_ONE}},
        {&m->spans[1], {"deepinfer_trace_spans_total", NULL, NULL, "fate=\"dropped\"", MET_ONE}},
    };
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        const di_status status = met_counter_get(m->registry, &counters[i].desc, counters[i].out, err);
        if (status != DI_OK) {
            return status;
        }
    }
    return DI_OK;
}

di_status srv_metrics_open(srv_metrics **out, di_error *err)
{
    srv_metrics *const m = ar_calloc(1, sizeof *m);
    if (m == NULL) {
        return err_memory(err, "metrics", sizeof *m);
    }
    const met_desc connections = {.name = "deepinfer_http_connections", .help = "Open connections."};
    const met_desc in_flight = {.name = "deepinfer_http_requests_in_flight", .help = "Requests that are read or answered now."};
    di_status status = met_registry_new(&m->registry, err);
    if (status == DI_OK) {
        status = met_gauge_get(m->registry, &connections, &m->connections, err);
    }
    if (status == DI_OK) {
        status = met_gauge_get(m->registry, &in_flight, &m->in_flight, err);
    }
    if (status == DI_OK) {
        status = open_counters(m, err);
    }
    if (status != DI_OK) {
        srv_metrics_close(m);
        return status;
    }
    *out = m;
    return DI_OK;
}

void srv_metrics_close(srv_metrics *m)
{
    if (m != NULL) {
        met_registry_free(m->registry);
        free(m);
    }
}

void srv_metrics_event(srv_metrics *m, srv_event event)
{
    if (event == SRV_E_CONNECTION) {
        met_gauge_add(m->connections, 1);
    } else if (event == SRV_E_CONNECTION_ENDED) {
        met_gauge_add(m->connections, -1);
    }
    if (m->events[event] != NULL) {
        met_counter_add(m->events[event], 1);
    }
}

/* A series that is made when it first counts; what finds no memory is not counted. */
static void count_by(srv_metrics *m, const char *name, const char *help, const char *labels)
{
    const met_desc desc = {.name = name, .help = help, .labels = labels};
    met_counter *counter;
    if (met_counter_get(m->registry, &desc, &counter, NULL) == DI_OK) {
        met_counter_add(counter, 1);
    }
}

void srv_metrics_refused(srv_metrics *m, const char *reason)
{
    char labels[64];
    snprintf(labels, sizeof labels, "reason=\"%s\"", reason);
    count_by(m, "deepinfer_http_refused_total", "Requests that were refused before they reached the service, by reason.", labels);
}

void srv_metrics_left(srv_metrics *m, const char *phase)
{
    char labels[64];
    snprintf(labels, sizeof labels, "phase=\"%s\"", phase);
    count_by(m, "deepinfer_http_disconnects_total", "Clients that left before they had everything, by the phase of their request.",
             labels);
}

void srv_metrics_begun(srv_metrics *m, int change)
{
    met_gauge_add(m->in_flight, change);
}

void srv_metrics_ended(srv_metrics *m, const srv_request *r, int64_t now)
{
    char labels[96];
    met_counter_add(m->received, r->n_received);
    met_counter_add(m->sent, r->n_sent);
    snprintf(labels, sizeof labels, "route=\"%s\",code=\"%d\"", r->route->label, r->status);
    count_by(m, "deepinfer_http_requests_total", "Requests by route and status; code 0: cut before there was one.", labels);
    snprintf(labels, sizeof labels, "route=\"%s\"", r->route->label);
    const met_desc desc = {.name = "deepinfer_http_request_seconds",
                           .help = "From the head of a request to the last byte of its answer.",
                           .labels = labels,
                           .unit = MET_SECONDS};
    met_histogram *seconds;
    if (met_histogram_get(m->registry, &desc, seconds_bounds, sizeof seconds_bounds / sizeof seconds_bounds[0], &seconds, NULL) ==
        DI_OK) {
        met_observe(seconds, now - r->started_at);
    }
}

void srv_metrics_write(srv_server *server, buf *page)
{
    srv_metrics *const m = server->metrics;
    log_stats log;
    log_get_stats(server->log, &log);
    met_counter_set(m->log_written, log.n_written);
    met_counter_set(m->log_dropped, log.n_dropped + log.n_lost);
    met_counter_set(m->spans[0], srv_otlp_sent(server->otlp));
    met_counter_set(m->spans[1], srv_otlp_dropped(server->otlp));
    const size_t n = di_service_metrics(server->service, NULL, 0);
    char *const text = malloc(n + 4096); /* it may grow between the two calls */
    if (text == NULL) {
        page->failed = true;
        return;
    }
    const size_t all = di_service_metrics(server->service, text, n + 4096);
    buf_append(page, text, all < n + 4096 ? all : n);
    free(text);
    met_write(m->registry, page);
}
