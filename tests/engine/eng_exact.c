/* eng_exact.c - see eng_exact.h. */
#include "engine/eng_exact.h"

#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int id;
    double logit;
    double p;
} entry;

static int by_order(const void *pa, const void *pb)
{
    const entry *a = pa;
    const entry *b = pb;
    if (a->logit != b->logit) {
        return a->logit > b->logit ? -1 : 1;
    }
    return a->id - b->id;
}

static int count_of(const int32_t *ids, size_t n, int id)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ids[i] == id;
    }
    return count;
}

static double processed(const di_sampling *s, const exact_text *text, const uint32_t *mask, const float *logits, int id)
{
    double l = (double)logits[id];
    for (size_t i = 0; i < s->n_bias; i++) {
        l += s->bias[i].id == id ? (double)s->bias[i].bias : 0.0;
    }
    const int n_prompt = count_of(text->prompt, text->n_prompt, id);
    const int n_sampled = count_of(text->sampled, text->n_sampled, id);
    if (n_prompt + n_sampled > 0) {
        l = l > 0 ? l / (double)s->repetition_penalty : l * (double)s->repetition_penalty;
    }
    l -= n_sampled * (double)s->frequency_penalty + (n_sampled > 0 ? (double)s->presence_penalty : 0.0);
    const bool forbidden = (mask != NULL && (mask[id / 32] >> (id % 32) & 1) == 0) ||
                           ((size_t)s->min_tokens > text->n_sampled && count_of(s->stop_ids, s->n_stop_ids, id) > 0);
    return forbidden ? -INFINITY : l;
}

static void normalise(entry *e, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += e[i].p;
    }
    for (int i = 0; i < n; i++) {
        e[i].p /= sum;
    }
}

void exact_law(const di_sampling *settings, const exact_text *text, const uint32_t *mask, const float *logits, int vocab, double *p)
{
    entry e[EXACT_MOST];
    assert_in_range(vocab, 1, EXACT_MOST);
    for (int i = 0; i < vocab; i++) {
        e[i].id = i;
        e[i].logit = processed(settings, text, mask, logits, i);
    }
    qsort(e, (size_t)vocab, sizeof e[0], by_order);
    int n = 0;
    while (n < vocab && e[n].logit > -INFINITY) {
        e[n].p = exp((e[n].logit - e[0].logit) / (double)settings->temperature);
        if (e[n].p < (double)settings->min_p) {
            break;
        }
        n++;
    }
    if (settings->top_k > 0 && n > settings->top_k) {
        n = settings->top_k;
    }
    normalise(e, n);
    double before = 0;
    for (int i = 0; i < n && settings->top_p < 1.0f; i++) {
        if (before >= (double)settings->top_p) {
            n = i;
        }
        before += e[i].p;
    }
    normalise(e, n);
    memset(p, 0, (size_t)vocab * sizeof *p);
    for (int i = 0; i < n; i++) {
        p[e[i].id] = e[i].p;
    }
}

/* P(chi-square with k degrees > x), by Wilson and Hilferty's cube root (PNAS 17, 1931). */
static double upper_tail(double x, int k)
{
    const double a = 2.0 / (9.0 * k);
    return 0.5 * erfc((cbrt(x / k) - (1.0 - a)) / sqrt(2.0 * a));
}

double exact_p_value(const int *seen, const double *p, int n, int draws)
{
    double x = 0;
    double rest_expected = 0;
    int rest_seen = 0;
    int cells = 0;
    for (int i = 0; i < n; i++) {
        const double expected = p[i] * draws;
        if (expected == 0.0 && seen[i] > 0) {
            return 0;
        }
        if (expected < 5.0) {
            rest_expected += expected;
            rest_seen += seen[i];
            continue;
        }
        x += (seen[i] - expected) * (seen[i] - expected) / expected;
        cells++;
    }
    if (rest_expected > 0.5) {
        x += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
        cells++;
    }
    return upper_tail(x, cells - 1);
}
