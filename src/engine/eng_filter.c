/* eng_filter.c - see eng_filter.h. Bins are 1/32 wide in z = (logit - best) / temperature; what lies more than 31.75 below the
 * best has no mass and shares the last bin, which only a top-k larger than the number of likely ids ever opens. */
#include "engine/eng_filter.h"

#include "core/arith.h"
#include "core/err.h"
#include "engine/eng_gumbel.h"
#include "engine/eng_logprob.h"
#include "engine/eng_mass.h"

#include <math.h>

/* Weight of an id in a selection: its mass for top-p, 1 for top-k. */
typedef struct weigher {
    float max;
    float temperature;
    bool by_mass;
} weigher;

uint64_t eng_order_key(float logit, int32_t id)
{
    const uint32_t bits = eng_bits_of(logit + 0.0f); /* -0 becomes +0 */
    const uint32_t rising = bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFu : 0x80000000u);
    return (uint64_t)rising << 32 | (uint32_t)~(uint32_t)id;
}

float eng_order_logit(uint64_t key)
{
    const uint32_t rising = (uint32_t)(key >> 32);
    return eng_float_of(rising ^ ((rising >> 31) != 0 ? 0x80000000u : 0xFFFFFFFFu));
}

int32_t eng_order_id(uint64_t key)
{
    return (int32_t)~(uint32_t)key;
}

di_status eng_filter_init(eng_filter *f, const di_sampling *settings, int32_t vocab, di_error *err)
{
    f->vocab = vocab;
    f->temperature = settings->temperature;
    f->top_k = settings->top_k;
    f->top_p = settings->top_p;
    f->z_min = -INFINITY;
    if (settings->min_p > 0.0f) {
        /* eng_log wants a normal number; anything smaller keeps every id with any mass. */
        f->z_min = eng_log(fmaxf(settings->min_p, 0x1p-126f));
    }
    f->keys = NULL;
    if (f->top_k > 0 || f->top_p < 1.0f) {
        f->keys = ar_calloc((size_t)vocab, sizeof *f->keys);
        if (f->keys == NULL) {
            return err_memory(err, "top-k and top-p scratch", (size_t)vocab * sizeof *f->keys);
        }
    }
    return DI_OK;
}

void eng_filter_fini(eng_filter *f)
{
    free(f->keys);
    f->keys = NULL;
}

static uint64_t weigh(const weigher *w, uint64_t key)
{
    return w->by_mass ? eng_mass(eng_scale(eng_order_logit(key), w->max, w->temperature)) : 1;
}

static void swap(uint64_t *a, uint64_t *b)
{
    const uint64_t t = *a;
    *a = *b;
    *b = t;
}

/* Moves keys above the pivot keys[0] to the front and the pivot behind them. Returns the pivot's place and the weight in front
 * of it. */
static size_t partition(uint64_t *keys, size_t n, const weigher *w, uint64_t *weight)
{
    size_t place = 0;
    *weight = 0;
    for (size_t i = 1; i < n; i++) {
        if (keys[i] > keys[0]) {
            *weight += weigh(w, keys[i]);
            swap(&keys[++place], &keys[i]);
        }
    }
    swap(&keys[0], &keys[place]);
    return place;
}

static uint64_t middle(uint64_t a, uint64_t b, uint64_t c)
{
    if ((a > b) != (a > c)) {
        return a;
    }
    return (b > a) != (b > c) ? b : c;
}

/* Weighted quickselect: the last key of the shortest falling prefix whose weight is at least `need` (>= 1), or the lowest key
 * when all together weigh less. Keys are distinct; n >= 1. */
static uint64_t select_cut(uint64_t *keys, size_t n, const weigher *w, uint64_t need)
{
    while (n > 1) {
        const uint64_t pivot = middle(keys[0], keys[n / 2], keys[n - 1]);
        swap(&keys[0], pivot == keys[0] ? &keys[0] : pivot == keys[n / 2] ? &keys[n / 2] : &keys[n - 1]);
        uint64_t before;
        const size_t place = partition(keys, n, w, &before);
        if (before >= need) {
            n = place;
            continue;
        }
        const uint64_t through = before + weigh(w, pivot);
        if (through >= need || place + 1 == n) {
            return pivot;
        }
        need -= through;
        keys += place + 1;
        n -= place + 1;
    }
    return keys[0];
}

static int bin_of(float z)
{
    return z > -31.75f ? (int)(z * -32.0f) : ENG_FILTER_BINS - 1;
}

static void fill_histogram(eng_filter *f, const float *logits, float max)
{
    memset(f->mass, 0, sizeof f->mass);
    memset(f->count, 0, sizeof f->count);
    for (int32_t base = 0; base < f->vocab; base += ENG_BLOCK) {
        const int32_t size = f->vocab - base < ENG_BLOCK ? f->vocab - base : ENG_BLOCK;
        float z[ENG_BLOCK];
        uint64_t mass[ENG_BLOCK];
        eng_scale_block(logits + base, size, max, f->temperature, z);
        eng_mass_block(z, size, mass);
        for (int32_t i = 0; i < size; i++) {
            if (logits[base + i] > -INFINITY && z[i] >= f->z_min) {
                const int bin = bin_of(z[i]);
                f->count[bin]++;
                f->mass[bin] += mass[i];
            }
        }
    }
}

/* Collects the keys of one bin that are not behind `cut`. */
static size_t gather(eng_filter *f, const float *logits, float max, int bin, uint64_t cut)
{
    size_t n = 0;
    for (int32_t base = 0; base < f->vocab; base += ENG_BLOCK) {
        const int32_t size = f->vocab - base < ENG_BLOCK ? f->vocab - base : ENG_BLOCK;
        float z[ENG_BLOCK];
        eng_scale_block(logits + base, size, max, f->temperature, z);
        if (bin_of(eng_highest(z, size)) > bin) {
            continue; /* nearly always, when the bin holds likely ids */
        }
        for (int32_t i = 0; i < size; i++) {
            if (bin_of(z[i]) != bin || logits[base + i] == -INFINITY || z[i] < f->z_min) {
                continue;
            }
            const uint64_t key = eng_order_key(logits[base + i], base + i);
            if (key >= cut) {
                f->keys[n++] = key;
            }
        }
    }
    return n;
}

/* Cuts behind the first k and takes what is behind out of the histogram. Returns the cut, 0 when there are at most k. */
static uint64_t cut_top_k(eng_filter *f, const float *logits, float max)
{
    int32_t left = f->top_k;
    int bin = 0;
    while (bin < ENG_FILTER_BINS && f->count[bin] < left) {
        left -= f->count[bin];
        bin++;
    }
    if (bin == ENG_FILTER_BINS) {
        return 0;
    }
    const weigher w = {max, f->temperature, false};
    const size_t n = gather(f, logits, max, bin, 0);
    const uint64_t cut = select_cut(f->keys, n, &w, (uint64_t)left);
    const weigher by_mass = {max, f->temperature, true};
    memset(&f->mass[bin], 0, sizeof f->mass[0] * (size_t)(ENG_FILTER_BINS - bin));
    for (size_t i = 0; i < n; i++) {
        if (f->keys[i] >= cut) {
            f->mass[bin] += weigh(&by_mass, f->keys[i]);
        }
    }
    return cut;
}

static uint64_t cut_top_p(eng_filter *f, const float *logits, float max, uint64_t cut)
{
    uint64_t total = 0;
    for (int bin = 0; bin < ENG_FILTER_BINS; bin++) {
        total += f->mass[bin];
    }
    /* Doubles are exact enough here and round alike everywhere; at least 1 keeps the best id. */
    uint64_t left = (uint64_t)((double)f->top_p * (double)total);
    if (left < 1) {
        left = 1;
    }
    int bin = 0;
    while (f->mass[bin] < left) {
        left -= f->mass[bin];
        bin++;
    }
    const weigher w = {max, f->temperature, true};
    const size_t n = gather(f, logits, max, bin, cut);
    return select_cut(f->keys, n, &w, left);
}

eng_cut eng_filter_cut(eng_filter *f, const float *logits, float max)
{
    eng_cut cut = {f->z_min, 0};
    if (f->keys == NULL) {
        return cut;
    }
    fill_histogram(f, logits, max);
    if (f->top_k > 0) {
        cut.key = cut_top_k(f, logits, max);
    }
    if (f->top_p < 1.0f) {
        cut.key = cut_top_p(f, logits, max, cut.key);
    }
    return cut;
}
