/* metrics.h - counters, gauges and histograms, written as a page in Prometheus' text format (version 0.0.4).
 *
 * A registry owns families (name, help, type) and their series (one a label string). Series are found or made under a lock, once, by
 * whoever starts; updating one is an atomic add without a lock, from any thread. A page is not a snapshot of one moment, but each
 * histogram in it is whole: its count is the sum of its buckets.
 *
 * Integers stay integers: what is measured in nanoseconds is added up as such and printed as seconds, so a sum never loses a bit. */
#ifndef CORE_METRICS_H
#define CORE_METRICS_H

#include "core/buf.h"

typedef struct met_registry met_registry;
typedef struct met_counter met_counter;     /* series: borrowed from their registry, good until it is freed */
typedef struct met_gauge met_gauge;
typedef struct met_histogram met_histogram;

#define MET_MAX_BOUNDS 64

typedef enum met_unit {
    MET_ONE,    /* values are printed as they are */
    MET_SECONDS /* values of counters and histograms are nanoseconds, printed as seconds */
} met_unit;

/* What a series is called. All strings are copied. One family has one help, alias and unit: those of its first series. */
typedef struct met_desc {
    const char *name;   /* "deepinfer_requests_total" */
    const char *alias;  /* a second name under which the family is printed too, "vllm:..."; NULL = none */
    const char *help;
    const char *labels; /* `route="chat",code="200"` as met_label writes them; NULL or "" = none */
    met_unit unit;
} met_desc;

di_status met_registry_new(met_registry **out, di_error *err);
void met_registry_free(met_registry *registry); /* nobody may use its series any more; NULL is ignored */

/* The series of this name and label string, made when it is not there. Errors: DI_E_ARGUMENT (a name or label that the format does
 * not allow, a name that has another type already), DI_E_MEMORY. */
di_status met_counter_get(met_registry *registry, const met_desc *desc, met_counter **out, di_error *err);
di_status met_gauge_get(met_registry *registry, const met_desc *desc, met_gauge **out, di_error *err);

/* bounds: upper ends of the buckets as they are printed (seconds for MET_SECONDS), [n_bounds] in 1..MET_MAX_BOUNDS, increasing; +Inf is
 * added. All series of a family have the same ones. Values are whole numbers. */
di_status met_histogram_get(met_registry *registry, const met_desc *desc, const double *bounds, size_t n_bounds, met_histogram **out,
                            di_error *err);

void met_counter_add(met_counter *counter, uint64_t n);
void met_counter_set(met_counter *counter, uint64_t total); /* a total that is counted elsewhere; must not shrink */
uint64_t met_counter_value(const met_counter *counter);
void met_gauge_set(met_gauge *gauge, double value);
void met_gauge_add(met_gauge *gauge, double change);
double met_gauge_value(const met_gauge *gauge);
void met_observe(met_histogram *histogram, int64_t value); /* negative counts as 0 */
void met_observe_n(met_histogram *histogram, int64_t value, uint64_t n); /* n times the same */
uint64_t met_histogram_count(const met_histogram *histogram);

/* Appends `key="value"`, with a comma in front unless `labels` is empty. The value is escaped; invalid UTF-8 in it becomes U+FFFD. */
bool met_label(buf *labels, const char *key, const char *value);

/* Appends the page, families and series in the order in which they were made; see out->failed. */
void met_write(met_registry *registry, buf *out);

#endif
