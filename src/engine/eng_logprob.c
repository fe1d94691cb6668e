/* eng_logprob.c - see eng_logprob.h. The loops work on LANES values side by side, which compilers turn into vector code; the
 * results do not depend on it (maximum and integer sums have no order). */
#include "engine/eng_logprob.h"

#include "core/err.h"
#include "engine/eng_filter.h"
#include "engine/eng_gumbel.h"
#include "engine/eng_mass.h"

#include <math.h>

#define LANES 16

static di_status check_nan(const float *x, int32_t n, di_error *err)
{
    int n_nan = 0;
    for (int32_t i = 0; i < n; i++) {
        n_nan += x[i] != x[i];
    }
    if (n_nan == 0) {
        return DI_OK;
    }
    int32_t first = 0;
    while (x[first] == x[first]) {
        first++;
    }
    return err_set(err, DI_E_FORMAT, "logits hold %d NaN, the first at id %d", n_nan, first);
}

di_status eng_mask_copy(float *out, const float *logits, int32_t vocab, const uint32_t *mask, di_error *err)
{
    const di_status status = check_nan(logits, vocab, err);
    if (status != DI_OK) {
        return status;
    }
    memcpy(out, logits, (size_t)vocab * sizeof *out);
    if (mask == NULL) {
        return DI_OK;
    }
    for (int32_t base = 0; base < vocab; base += 32) {
        const uint32_t word = mask[base / 32];
        const int32_t end = vocab - base < 32 ? vocab - base : 32;
        for (int32_t i = 0; word != UINT32_MAX && i < end; i++) {
            if ((word >> i & 1u) == 0) {
                out[base + i] = -INFINITY;
            }
        }
    }
    return DI_OK;
}

float eng_highest(const float *x, int32_t n)
{
    float lane[LANES];
    for (int j = 0; j < LANES; j++) {
        lane[j] = -INFINITY;
    }
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    for (; i < n; i++) {
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    }
    for (int j = 1; j < LANES; j++) {
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    }
    return lane[0];
}

float eng_log_sum(const float *x, int32_t n, float max)
{
    uint64_t sum = 0;
    for (int32_t base = 0; base < n; base += ENG_BLOCK) {
        const int32_t size = n - base < ENG_BLOCK ? n - base : ENG_BLOCK;
        float z[ENG_BLOCK];
        uint64_t mass[ENG_BLOCK];
        eng_scale_block(x + base, size, max, 1.0f, z);
        eng_mass_block(z, size, mass);
        for (int32_t i = 0; i < size; i++) {
            sum += mass[i];
        }
    }
    return eng_log_of_mass(sum);
}

int32_t eng_best(const float *x, int32_t n, int32_t n_top, uint64_t keys[DI_MAX_TOP_LOGPROBS])
{
    int32_t have = 0;
    float floor = -INFINITY; /* an id must be above it to enter; an equal one with a higher id does not */
    for (int32_t id = 0; n_top > 0 && id < n; id++) {
        if (!(x[id] > floor)) {
            continue;
        }
        const uint64_t key = eng_order_key(x[id], id);
        int32_t at = have < n_top ? have++ : n_top - 1;
        for (; at > 0 && keys[at - 1] < key; at--) {
            keys[at] = keys[at - 1];
        }
        keys[at] = key;
        if (have == n_top) {
            floor = eng_order_logit(keys[n_top - 1]);
        }
    }
    return have;
}
