/* eng_verify.c - see eng_verify.h. Only additions, multiplications and divisions of doubles in a fixed order: the same outcome on every
 * machine. The rules are those of dspark.md 2.2; section numbers of it below. */
#include "engine/eng_verify.h"

#include "core/arith.h"
#include "engine/eng_noise.h"
#include "engine/eng_philox.h"

#include <stdlib.h>

/* ---- laws ---- */

void eng_law_fini(eng_law *law)
{
    free(law->ids);
    free(law->mass);
    *law = (eng_law){.n = 0};
}

bool eng_law_reserve(eng_law *law, int32_t n)
{
    if (n <= law->capacity) {
        return true;
    }
    const int32_t twice = law->capacity < INT32_MAX / 2 ? law->capacity * 2 : INT32_MAX;
    const int32_t capacity = n > twice ? n : twice;
    size_t bytes = 0;
    if (!ar_mul((size_t)capacity, sizeof *law->ids, &bytes)) {
        return false;
    }
    int32_t *const ids = realloc(law->ids, bytes);
    law->ids = ids != NULL ? ids : law->ids;
    float *const mass = ids != NULL ? realloc(law->mass, bytes) : NULL;
    law->mass = mass != NULL ? mass : law->mass;
    law->capacity = mass != NULL ? capacity : law->capacity;
    return mass != NULL;
}

/* A float holds a mass exactly: it has the 24 bits of the exponential it was cut from. */
void eng_law_add(eng_law *law, int32_t id, uint64_t mass)
{
    if (mass > 0) {
        law->ids[law->n] = id;
        law->mass[law->n++] = (float)mass;
        law->total += mass;
    }
}

static float mass_of(const eng_law *law, int32_t id)
{
    int32_t low = 0;
    int32_t high = law->n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (law->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < law->n && law->ids[low] == id ? law->mass[low] : 0.0f;
}

double eng_law_chance(const eng_law *law, int32_t id) { return (double)mass_of(law, id) / (double)law->total; }

int32_t eng_law_draw(const eng_law *law, uint64_t fraction)
{
    const uint64_t at = (uint64_t)(((unsigned __int128)fraction * law->total) >> 64);
    uint64_t sum = 0;
    int32_t i = 0;
    for (; i < law->n - 1; i++) {
        sum += (uint64_t)law->mass[i];
        if (sum > at) {
            break;
        }
    }
    return law->ids[i];
}

uint64_t eng_verify_noise(uint64_t seed, int64_t position, uint32_t stream, int32_t place)
{
    const uint64_t p = (uint64_t)position;
    const eng_words counter = {{(uint32_t)p, (uint32_t)(p >> 32), (uint32_t)place, stream}};
    const eng_words r = eng_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    return (uint64_t)r.w[0] << 32 | r.w[1];
}

/* ---- what is left of p when q has had its part: max(weight p - q, 0) ---- */

/* Calls for the ids of p in order; the walk through q goes along. */
typedef struct rest {
    const eng_law *p;
    const eng_law *q;
    double p_scale; /* weight / total */
    double q_scale;
    int32_t i; /* of p */
    int32_t k; /* of q */
} rest;

static rest rest_of(const eng_law *p, const eng_law *q, double weight)
{
    return (rest){.p = p, .q = q, .p_scale = weight / (double)p->total, .q_scale = 1.0 / (double)q->total};
}

static bool rest_next(rest *r, double *left)
{
    if (r->i == r->p->n) {
        return false;
    }
    const int32_t id = r->p->ids[r->i];
    while (r->k < r->q->n && r->q->ids[r->k] < id) {
        r->k++;
    }
    const bool shared = r->k < r->q->n && r->q->ids[r->k] == id;
    const double off = shared ? (double)r->q->mass[r->k] * r->q_scale : 0.0;
    const double x = (double)r->p->mass[r->i++] * r->p_scale - off;
    *left = x > 0.0 ? x : 0.0;
    return true;
}

static double rest_sum(const eng_law *p, const eng_law *q, double weight)
{
    rest r = rest_of(p, q, weight);
    double sum = 0.0;
    for (double left; rest_next(&r, &left);) {
        sum += left;
    }
    return sum;
}

/* In (0, 1]. */
static double unit_of(uint64_t fraction) { return ((double)(fraction >> 11) + 1.0) * 0x1p-53; }

/* Draws from what is left, which sums up to `sum`. Where rounding left nothing, p and q are equal, and p will do. */
static int32_t rest_draw(const eng_law *p, const eng_law *q, double weight, double sum, uint64_t fraction)
{
    rest r = rest_of(p, q, weight);
    const double at = unit_of(fraction) * sum;
    double so_far = 0.0;
    int32_t id = -1;
    for (double left; so_far < at && rest_next(&r, &left);) {
        so_far += left;
        id = left > 0.0 ? p->ids[r.i - 1] : id;
    }
    return id >= 0 ? id : eng_law_draw(p, fraction);
}

/* ---- rules ---- */

void eng_block_start(eng_block *b, di_verify rule, uint64_t seed, int64_t position, int32_t n_drafts)
{
    *b = (eng_block){.rule = rule, .seed = seed, .position = position, .n_drafts = n_drafts, .weight = 1.0, .next = -1};
}

/* Of the draft at this place. */
static double acceptance_noise(const eng_block *b, int32_t place)
{
    return unit_of(eng_verify_noise(b->seed, b->position + place - 1, ENG_STREAM_ACCEPT, place));
}

/* The first n drafts stay, and what follows them comes from max(weight p - q, 0), or from p where no draft follows. */
static void settle(eng_block *b, const eng_law *p, const eng_law *q, double sum)
{
    const int32_t n = b->row;
    const uint64_t fraction = eng_verify_noise(b->seed, b->position + n, ENG_STREAM_RESIDUAL, 0);
    b->n_right = n;
    b->next = n == b->n_drafts ? eng_law_draw(p, fraction) : rest_draw(p, q, b->weight, sum, fraction);
}

/* Token by token: only rows behind drafts that stay are looked at. */
static bool reject_row(eng_block *b, const eng_law *p, const eng_law *q, int32_t draft)
{
    if (b->row < b->n_drafts) {
        const double noise = acceptance_noise(b, b->row + 1);
        if (noise * eng_law_chance(q, draft) < eng_law_chance(p, draft)) {
            b->row++;
            return true;
        }
        settle(b, p, q, rest_sum(p, q, 1.0));
        return false;
    }
    settle(b, p, q, 0.0);
    return false;
}

/* The longest of the prefixes that pass, each with noise of its own; the empty one passes. */
static bool block_row(eng_block *b, const eng_law *p, const eng_law *q, int32_t draft)
{
    const bool last = b->row == b->n_drafts;
    const double sum = last ? 0.0 : rest_sum(p, q, b->weight);
    const double whole = sum + 1.0 - b->weight;
    const double passes = last ? b->weight : whole > 0.0 ? sum / whole : 1.0;
    if (b->row == 0 || acceptance_noise(b, b->row) <= passes) {
        settle(b, p, q, sum);
    }
    if (last) {
        return false;
    }
    const double grown = b->weight * eng_law_chance(p, draft) / eng_law_chance(q, draft);
    b->weight = grown < 1.0 ? grown : 1.0;
    b->row++;
    return b->weight > 0.0;
}

bool eng_block_row(eng_block *b, const eng_law *p, const eng_law *q, int32_t draft)
{
    return b->rule == DI_VERIFY_BLOCK ? block_row(b, p, q, draft) : reject_row(b, p, q, draft);
}

void eng_block_end(eng_block *b)
{
    if (b->rule == DI_VERIFY_REJECTION || acceptance_noise(b, b->row) <= b->weight) {
        b->n_right = b->row;
        b->next = -1;
    }
}
