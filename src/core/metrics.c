/* metrics.c - see metrics.h. Series never move and never go away before their registry, so a pointer to one is all that an update
 * needs. Each lies on cache lines of its own: threads that count different things do not slow each other down.
 *
 * Updates are relaxed: a page shows each number as of some moment while it is written, and nothing is ordered by them. */
#include "core/metrics.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define LINE 64
#define NS_PER_SECOND 1000000000

struct met_counter {
    _Atomic uint64_t value;
};

struct met_gauge {
    _Atomic double value;
};

struct met_histogram {
    _Atomic uint64_t sum;
    size_t n_bounds;
    int64_t bounds[MET_MAX_BOUNDS];               /* as observed: nanoseconds for MET_SECONDS */
    _Atomic uint64_t buckets[MET_MAX_BOUNDS + 1]; /* each counts its own values only; the last one is +Inf */
};

typedef enum kind { COUNTER, GAUGE, HISTOGRAM } kind;

typedef struct series {
    struct series *next;
    char *labels; /* "" = none */
    union {
        void *memory;
        met_counter *counter;
        met_gauge *gauge;
        met_histogram *histogram;
    } value; /* owned */
} series;

typedef struct family {
    struct family *next;
    char *name;
    char *alias; /* NULL = none */
    char *help;
    kind kind;
    met_unit unit;
    size_t n_bounds;
    double bounds[MET_MAX_BOUNDS]; /* as printed */
    series *first;
    series **end;
} family;

struct met_registry {
    pthread_mutex_t lock; /* of the lists; never held by an update */
    family *first;
    family **end;
};

/* --- Names and labels --------------------------------------------------------------------------------------------------- */

static size_t name_length(const char *text, bool colons)
{
    size_t n = 0;
    for (;; n++) {
        const char c = text[n];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c == ':' && colons);
        if (!letter && !(c >= '0' && c <= '9' && n > 0)) {
            return n;
        }
    }
}

static bool is_name(const char *text)
{
    const size_t n = name_length(text, true);
    return n > 0 && text[n] == '\0';
}

/* Behind the closing quote of the value that starts at `text`, or NULL. */
static const char *skip_value(const char *text)
{
    if (*text++ != '"') {
        return NULL;
    }
    for (; *text != '"'; text++) {
        if (*text == '\0' || *text == '\n' || (*text == '\\' && strchr("\\\"n", *++text) == NULL) || *text == '\0') {
            return NULL;
        }
    }
    return text + 1;
}

static bool are_labels(const char *text)
{
    while (*text != '\0') {
        const size_t n = name_length(text, false);
        if (n == 0 || text[n] != '=' || (n == 2 && memcmp(text, "le", 2) == 0)) {
            return false;
        }
        text = skip_value(text + n + 1);
        if (text == NULL || (*text != '\0' && (*text != ',' || *++text == '\0'))) {
            return false;
        }
    }
    return true;
}

bool met_label(buf *labels, const char *key, const char *value)
{
    buf_printf(labels, "%s%s=\"", labels->size > 0 ? "," : "", key);
    const uint8_t *s = (const uint8_t *)value;
    const size_t n = strlen(value);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        const int length = utf8_decode(s + i, n - i, &cp);
        if (length <= 0) {
            buf_puts(labels, "\xEF\xBF\xBD");
            i += length < 0 ? (size_t)-length : n - i;
        } else if (s[i] == '\n') {
            buf_puts(labels, "\\n");
            i++;
        } else {
            buf_append(labels, "\\", s[i] == '"' || s[i] == '\\');
            buf_append(labels, s + i, (size_t)length);
            i += (size_t)length;
        }
    }
    return buf_append(labels, "\"", 1);
}

/* --- Registry ----------------------------------------------------------------------------------------------------------- */

static void free_family(family *f)
{
    for (series *s = f->first; s != NULL;) {
        series *const next = s->next;
        free(s->value.memory);
        free(s->labels);
        free(s);
        s = next;
    }
    free(f->name);
    free(f->alias);
    free(f->help);
    free(f);
}

di_status met_registry_new(met_registry **out, di_error *err)
{
    met_registry *const r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_memory(err, "metrics", sizeof *r);
    }
    pthread_mutex_init(&r->lock, NULL);
    r->end = &r->first;
    *out = r;
    return DI_OK;
}

void met_registry_free(met_registry *r)
{
    if (r == NULL) {
        return;
    }
    for (family *f = r->first; f != NULL;) {
        family *const next = f->next;
        free_family(f);
        f = next;
    }
    pthread_mutex_destroy(&r->lock);
    free(r);
}

typedef struct wanted {
    const met_desc *desc;
    const char *labels;
    kind kind;
    const double *bounds;
    size_t n_bounds;
} wanted;

static bool has_name(const family *f, const char *name)
{
    return strcmp(f->name, name) == 0 || (f->alias != NULL && strcmp(f->alias, name) == 0);
}

static di_status check(const wanted *w, di_error *err)
{
    const met_desc *const d = w->desc;
    if (d->name == NULL || !is_name(d->name)) {
        return err_set(err, DI_E_ARGUMENT, "'%s' is no name of a metric", d->name != NULL ? d->name : "");
    }
    if (d->alias != NULL && !is_name(d->alias)) {
        return err_set(err, DI_E_ARGUMENT, "'%s' is no name of a metric", d->alias);
    }
    if (!are_labels(w->labels)) {
        return err_set(err, DI_E_ARGUMENT, "metric %s: '%s' is not a list of labels", d->name, w->labels);
    }
    if (w->kind == HISTOGRAM && (w->n_bounds == 0 || w->n_bounds > MET_MAX_BOUNDS)) {
        return err_set(err, DI_E_ARGUMENT, "metric %s: %zu bounds, must be 1..%d", d->name, w->n_bounds, MET_MAX_BOUNDS);
    }
    const double most = d->unit == MET_SECONDS ? 9e9 : 9e18; /* what an int64_t holds */
    for (size_t i = 0; i < w->n_bounds; i++) {
        if (!(fabs(w->bounds[i]) <= most) || (i > 0 && !(w->bounds[i] > w->bounds[i - 1]))) {
            return err_set(err, DI_E_ARGUMENT, "metric %s: bounds must increase", d->name);
        }
    }
    return DI_OK;
}

static bool fits(const family *f, const wanted *w)
{
    return strcmp(f->name, w->desc->name) == 0 && f->kind == w->kind && f->unit == w->desc->unit && f->n_bounds == w->n_bounds &&
           (w->n_bounds == 0 || memcmp(f->bounds, w->bounds, w->n_bounds * sizeof *w->bounds) == 0);
}

static family *new_family(const wanted *w)
{
    family *const f = calloc(1, sizeof *f);
    if (f == NULL) {
        return NULL;
    }
    f->name = strdup(w->desc->name);
    f->alias = w->desc->alias != NULL ? strdup(w->desc->alias) : NULL;
    f->help = strdup(w->desc->help != NULL ? w->desc->help : "");
    f->kind = w->kind;
    f->unit = w->desc->unit;
    f->n_bounds = w->n_bounds;
    f->end = &f->first;
    if (f->name == NULL || f->help == NULL || (f->alias == NULL && w->desc->alias != NULL)) {
        free_family(f);
        return NULL;
    }
    if (w->n_bounds > 0) {
        memcpy(f->bounds, w->bounds, w->n_bounds * sizeof *w->bounds);
    }
    return f;
}

static void *new_value(const family *f)
{
    const size_t size = f->kind == COUNTER ? sizeof(met_counter) : f->kind == GAUGE ? sizeof(met_gauge) : sizeof(met_histogram);
    void *const memory = ar_calloc_aligned(1, size, LINE);
    if (memory != NULL && f->kind == HISTOGRAM) {
        met_histogram *const h = memory;
        h->n_bounds = f->n_bounds;
        for (size_t i = 0; i < f->n_bounds; i++) {
            /* The largest whole number that is not above the bound; a nanosecond more or less is decided by rounding. */
            h->bounds[i] = f->unit == MET_SECONDS ? llround(f->bounds[i] * NS_PER_SECOND) : (int64_t)floor(f->bounds[i]);
        }
    }
    return memory;
}

static series *new_series(const family *f, const char *labels)
{
    series *const s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->labels = strdup(labels);
    s->value.memory = new_value(f);
    if (s->labels == NULL || s->value.memory == NULL) {
        free(s->value.memory);
        free(s->labels);
        free(s);
        return NULL;
    }
    return s;
}

/* The family of w, linked or new (*is_new); NULL with *err when the name is taken by something else. */
static family *find_family_locked(met_registry *r, const wanted *w, bool *is_new, di_error *err)
{
    *is_new = false;
    for (family *f = r->first; f != NULL; f = f->next) {
        if (fits(f, w)) {
            return f;
        }
        if (has_name(f, w->desc->name) || (w->desc->alias != NULL && has_name(f, w->desc->alias))) {
            err_set(err, DI_E_ARGUMENT, "metric %s: the name is taken by %s, which is another kind of metric", w->desc->name, f->name);
            return NULL;
        }
    }
    family *const f = new_family(w);
    *is_new = true;
    if (f == NULL) {
        err_memory(err, "metric", sizeof *f);
    }
    return f;
}

static di_status find_locked(met_registry *r, const wanted *w, void **out, di_error *err)
{
    bool is_new;
    family *const f = find_family_locked(r, w, &is_new, err);
    if (f == NULL) {
        return is_new ? DI_E_MEMORY : DI_E_ARGUMENT;
    }
    for (const series *s = f->first; s != NULL; s = s->next) {
        if (strcmp(s->labels, w->labels) == 0) {
            *out = s->value.memory;
            return DI_OK;
        }
    }
    series *const s = new_series(f, w->labels);
    if (s == NULL) {
        if (is_new) {
            free_family(f);
        }
        return err_memory(err, "metric", sizeof *s);
    }
    *f->end = s;
    f->end = &s->next;
    if (is_new) {
        *r->end = f;
        r->end = &f->next;
    }
    *out = s->value.memory;
    return DI_OK;
}

static di_status get(met_registry *r, wanted *w, void **out, di_error *err)
{
    w->labels = w->desc->labels != NULL ? w->desc->labels : "";
    di_status status = check(w, err);
    if (status == DI_OK) {
        pthread_mutex_lock(&r->lock);
        status = find_locked(r, w, out, err);
        pthread_mutex_unlock(&r->lock);
    }
    return status;
}

di_status met_counter_get(met_registry *r, const met_desc *desc, met_counter **out, di_error *err)
{
    wanted w = {.desc = desc, .kind = COUNTER};
    void *found = NULL;
    const di_status status = get(r, &w, &found, err);
    *out = found;
    return status;
}

di_status met_gauge_get(met_registry *r, const met_desc *desc, met_gauge **out, di_error *err)
{
    wanted w = {.desc = desc, .kind = GAUGE};
    void *found = NULL;
    const di_status status = get(r, &w, &found, err);
    *out = found;
    return status;
}

di_status met_histogram_get(met_registry *r, const met_desc *desc, const double *bounds, size_t n_bounds, met_histogram **out,
                            di_error *err)
{
    wanted w = {.desc = desc, .kind = HISTOGRAM, .bounds = bounds, .n_bounds = n_bounds};
    void *found = NULL;
    const di_status status = get(r, &w, &found, err);
    *out = found;
    return status;
}

/* --- Updates ------------------------------------------------------------------------------------------------------------ */

void met_counter_add(met_counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}

void met_counter_set(met_counter *c, uint64_t total)
{
    atomic_store_explicit(&c->value, total, memory_order_relaxed);
}

uint64_t met_counter_value(const met_counter *c)
{
    return atomic_load_explicit(&c->value, memory_order_relaxed);
}

void met_gauge_set(met_gauge *g, double value)
{
    atomic_store_explicit(&g->value, value, memory_order_relaxed);
}

void met_gauge_add(met_gauge *g, double change)
{
    double now = atomic_load_explicit(&g->value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&g->value, &now, now + change, memory_order_relaxed, memory_order_relaxed)) {
    }
}

double met_gauge_value(const met_gauge *g)
{
    return atomic_load_explicit(&g->value, memory_order_relaxed);
}

void met_observe_n(met_histogram *h, int64_t value, uint64_t n)
{
    const int64_t v = value > 0 ? value : 0;
    size_t low = 0; /* the first bound that is not below v lies in [low, high] */
    size_t high = h->n_bounds;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (h->bounds[middle] < v) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    atomic_fetch_add_explicit(&h->buckets[low], n, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, (uint64_t)v * n, memory_order_relaxed);
}

void met_observe(met_histogram *h, int64_t value)
{
    met_observe_n(h, value, 1);
}

uint64_t met_histogram_count(const met_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= h->n_bounds; i++) {
        n += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
    }
    return n;
}

/* --- The page ----------------------------------------------------------------------------------------------------------- */

static void put_double(buf *out, double value)
{
    if (isnan(value) || isinf(value)) {
        buf_puts(out, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
    } else {
        buf_real(out, value);
    }
}

/* An integer, or one of nanoseconds as seconds with no more digits than it takes. */
static void put_whole(buf *out, uint64_t value, met_unit unit)
{
    if (unit != MET_SECONDS) {
        buf_printf(out, "%" PRIu64 "\n", value);
        return;
    }
    char digits[16];
    size_t n = (size_t)snprintf(digits, sizeof digits, "%09" PRIu64, value % NS_PER_SECOND);
    while (n > 0 && digits[n - 1] == '0') {
        n--;
    }
    buf_printf(out, "%" PRIu64 "%s%.*s\n", value / NS_PER_SECOND, n > 0 ? "." : "", (int)n, digits);
}

static void put_help(buf *out, const char *help)
{
    for (const char *p = help; *p != '\0'; p++) {
        if (*p == '\n' || *p == '\\') {
            buf_puts(out, *p == '\n' ? "\\n" : "\\\\");
        } else {
            buf_append(out, p, 1);
        }
    }
}

static void put_name(buf *out, const char *name, const char *ending, const char *labels)
{
    if (labels[0] == '\0') {
        buf_printf(out, "%s%s ", name, ending);
    } else {
        buf_printf(out, "%s%s{%s} ", name, ending, labels);
    }
}

static void put_histogram(buf *out, const char *name, const family *f, const series *s)
{
    const met_histogram *const h = s->value.histogram;
    uint64_t n = 0;
    for (size_t i = 0; i <= h->n_bounds; i++) {
        n += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        buf_printf(out, "%s_bucket{%s%sle=\"", name, s->labels, s->labels[0] != '\0' ? "," : "");
        put_double(out, i < h->n_bounds ? f->bounds[i] : INFINITY);
        buf_printf(out, "\"} %" PRIu64 "\n", n);
    }
    put_name(out, name, "_sum", s->labels);
    put_whole(out, atomic_load_explicit(&h->sum, memory_order_relaxed), f->unit);
    put_name(out, name, "_count", s->labels);
    put_whole(out, n, MET_ONE);
}

static void put_family(buf *out, const char *name, const family *f)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buf_printf(out, "# HELP %s ", name);
    put_help(out, f->help);
    buf_printf(out, "\n# TYPE %s %s\n", name, kinds[f->kind]);
    for (const series *s = f->first; s != NULL; s = s->next) {
        if (f->kind == HISTOGRAM) {
            put_histogram(out, name, f, s);
            continue;
        }
        put_name(out, name, "", s->labels);
        if (f->kind == COUNTER) {
            put_whole(out, met_counter_value(s->value.counter), f->unit);
        } else {
            put_double(out, met_gauge_value(s->value.gauge));
            buf_puts(out, "\n");
        }
    }
}

void met_write(met_registry *r, buf *out)
{
    pthread_mutex_lock(&r->lock);
    for (const family *f = r->first; f != NULL; f = f->next) {
        put_family(out, f->name, f);
        if (f->alias != NULL) {
            put_family(out, f->alias, f);
        }
    }
    pthread_mutex_unlock(&r->lock);
}
