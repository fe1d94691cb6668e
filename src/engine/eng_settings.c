/* eng_settings.c - see eng_settings.h. Ranges are those of OpenAI's API where it has the field, else the widest that makes
 * sense; a value outside is refused rather than clamped, because a silently changed setting is a changed distribution. */
#include "engine/eng_settings.h"

#include "core/arith.h"
#include "core/err.h"

#include <string.h>

#define MAX_TEMPERATURE 100.0f
#define MAX_BIAS 100.0f

void di_sampling_default(di_sampling *out)
{
    memset(out, 0, sizeof *out);
    out->temperature = 1.0f;
    out->top_p = 1.0f;
    out->repetition_penalty = 1.0f;
}

/* NaN fails both comparisons, and so is refused. */
static di_status check_float(const char *field, float value, float low, float high, di_error *err)
{
    if (value >= low && value <= high) {
        return DI_OK;
    }
    return err_set(err, DI_E_ARGUMENT, "%s is %g, must be from %g to %g", field, (double)value, (double)low, (double)high);
}

static di_status check_int(const char *field, int32_t value, int32_t low, int32_t high, di_error *err)
{
    if (value >= low && value <= high) {
        return DI_OK;
    }
    return err_set(err, DI_E_ARGUMENT, "%s is %d, must be from %d to %d", field, value, low, high);
}

static di_status check_scalars(const di_sampling *s, di_error *err)
{
    const struct {
        const char *field;
        float value;
        float low;
        float high;
    } floats[] = {
        {"temperature", s->temperature, 0.0f, MAX_TEMPERATURE},
        {"top_p", s->top_p, 0.0f, 1.0f},
        {"min_p", s->min_p, 0.0f, 1.0f},
        {"repetition_penalty", s->repetition_penalty, 0.01f, 100.0f},
        {"presence_penalty", s->presence_penalty, -2.0f, 2.0f},
        {"frequency_penalty", s->frequency_penalty, -2.0f, 2.0f},
    };
    const struct {
        const char *field;
        int32_t value;
        int32_t high;
    } ints[] = {
        {"top_k", s->top_k, INT32_MAX},
        {"min_tokens", s->min_tokens, INT32_MAX},
        {"n_top_logprobs", s->n_top_logprobs, DI_MAX_TOP_LOGPROBS},
    };
    di_status status = DI_OK;
    for (size_t i = 0; i < sizeof floats / sizeof floats[0] && status == DI_OK; i++) {
        status = check_float(floats[i].field, floats[i].value, floats[i].low, floats[i].high, err);
    }
    for (size_t i = 0; i < sizeof ints / sizeof ints[0] && status == DI_OK; i++) {
        status = check_int(ints[i].field, ints[i].value, 0, ints[i].high, err);
    }
    return status;
}

static di_status check_arrays(const di_sampling *s, int32_t vocab, di_error *err)
{
    if (s->bias == NULL && s->n_bias != 0) {
        return err_set(err, DI_E_ARGUMENT, "bias is NULL but n_bias is %zu", s->n_bias);
    }
    if (s->stop_ids == NULL && s->n_stop_ids != 0) {
        return err_set(err, DI_E_ARGUMENT, "stop_ids is NULL but n_stop_ids is %zu", s->n_stop_ids);
    }
    for (size_t i = 0; i < s->n_bias; i++) {
        di_status status = check_int("bias.id", s->bias[i].id, 0, vocab - 1, err);
        if (status == DI_OK) {
            status = check_float("bias.bias", s->bias[i].bias, -MAX_BIAS, MAX_BIAS, err);
        }
        if (status != DI_OK) {
            err_prefix(err, "entry %zu", i);
            return status;
        }
    }
    for (size_t i = 0; i < s->n_stop_ids; i++) {
        const di_status status = check_int("stop_ids", s->stop_ids[i], 0, vocab - 1, err);
        if (status != DI_OK) {
            err_prefix(err, "entry %zu", i);
            return status;
        }
    }
    return DI_OK;
}

/* NULL for an empty array is a success. */
static bool copy_array(const void *from, size_t n, size_t size, void **out)
{
    *out = NULL;
    if (n == 0) {
        return true;
    }
    *out = ar_calloc(n, size);
    if (*out == NULL) {
        return false;
    }
    memcpy(*out, from, n * size);
    return true;
}

di_status eng_settings_init(di_sampling *out, const di_sampling *in, int32_t vocab, di_error *err)
{
    di_status status = check_scalars(in, err);
    if (status == DI_OK) {
        status = check_arrays(in, vocab, err);
    }
    if (status != DI_OK) {
        return status;
    }
    void *bias;
    void *stop_ids;
    if (!copy_array(in->bias, in->n_bias, sizeof *in->bias, &bias)) {
        return err_memory(err, "logit bias", in->n_bias * sizeof *in->bias);
    }
    if (!copy_array(in->stop_ids, in->n_stop_ids, sizeof *in->stop_ids, &stop_ids)) {
        free(bias);
        return err_memory(err, "stop ids", in->n_stop_ids * sizeof *in->stop_ids);
    }
    *out = *in;
    out->bias = bias;
    out->stop_ids = stop_ids;
    return DI_OK;
}

void eng_settings_fini(di_sampling *settings)
{
    free((void *)settings->bias);
    free((void *)settings->stop_ids);
    settings->bias = NULL;
    settings->stop_ids = NULL;
}
