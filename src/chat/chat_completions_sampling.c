/* chat_completions_sampling.c - how a completion is sampled: OpenAI's fields, and those of vLLM's that this sampler knows. */
#include "chat/chat_completions_read.h"
#include "chat/chat_fields.h"

#include <errno.h>

#define MAX_BIAS 100.0

static di_status read_bias(const js_value *value, const char *key, int32_t vocabulary, di_logit_bias *out, di_error *err)
{
    char *end;
    size_t size;
    js_key(value, &size);
    errno = 0;
    const long id = strtol(key, &end, 10);
    if (size == 0 || end != key + size || key[0] < '0' || key[0] > '9' || errno != 0 || id >= vocabulary) {
        return err_set(err, DI_E_ARGUMENT, "logit_bias: \"%.40s\" is no token id of this model", key);
    }
    const bool is_number = js_kind_of(value) == JS_INT || js_kind_of(value) == JS_NUMBER;
    const double bias = js_number(value);
    if (!is_number || !(bias >= -MAX_BIAS && bias <= MAX_BIAS)) {
        return err_set(err, DI_E_ARGUMENT, "logit_bias: the bias of token %ld must be a number in -100..100", id);
    }
    *out = (di_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    return DI_OK;
}

static di_status read_biases(chat_reading *r, di_sampling *o, di_error *err)
{
    const js_value *const map = js_get(r->body, "logit_bias");
    const size_t n = js_length(map);
    if (js_kind_of(map) != JS_NULL && js_kind_of(map) != JS_OBJECT) {
        return err_set(err, DI_E_ARGUMENT, "logit_bias: expected an object, not %s", js_kind_name(js_kind_of(map)));
    }
    size_t size;
    if (!ar_mul(n, sizeof(di_logit_bias), &size) || !ar_add(size, sizeof(chat_parameters), &size)) {
        return err_set(err, DI_E_LIMIT, "logit_bias: too many entries");
    }
    r->parameters = ar_calloc(1, size);
    if (r->parameters == NULL) {
        return err_memory(err, "parameters of a completion", size);
    }
    r->call->parameters = r->parameters;
    r->parameters->bias = (di_logit_bias *)(r->parameters + 1);
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        const char *key;
        const js_value *const value = js_member(map, i, &key);
        status = read_bias(value, key, r->vocabulary, &r->parameters->bias[i], err);
    }
    o->bias = r->parameters->bias;
    o->n_bias = n;
    return status;
}

static di_status read_stop_ids(chat_reading *r, di_sampling *o, di_error *err)
{
    const js_value *const list = js_get(r->body, "stop_token_ids");
    const size_t n = js_length(list);
    int32_t *const ids = r->parameters->stop_ids;
    bool ignore_eos = false;
    di_status status = chat_get_bool(r->body, "ignore_eos", &ignore_eos, err);
    if (status == DI_OK && js_kind_of(list) != JS_NULL && js_kind_of(list) != JS_ARRAY) {
        return err_set(err, DI_E_ARGUMENT, "stop_token_ids: expected an array, not %s", js_kind_name(js_kind_of(list)));
    }
    if (status == DI_OK && n > CHAT_MAX_STOP_IDS) {
        return err_set(err, DI_E_ARGUMENT, "stop_token_ids: at most %d, not %zu", CHAT_MAX_STOP_IDS, n);
    }
    if (status == DI_OK) {
        status = chat_read_ids(list, "stop_token_ids", r->vocabulary, ids, err);
    }
    o->stop_ids = ids;
    o->n_stop_ids = n;
    if (!ignore_eos) {
        ids[o->n_stop_ids++] = r->call->service->eos;
    }
    return status;
}

static di_status read_seed(chat_reading *r, di_sampling *o, di_error *err)
{
    int64_t seed = 0;
    if (!chat_has(r->body, "seed")) {
        return chat_random(&o->seed, sizeof o->seed, err);
    }
    const di_status status = chat_get_int(r->body, "seed", INT64_MIN, INT64_MAX, &seed, err);
    o->seed = (uint64_t)seed;
    return status;
}

/* Behind the seed, which has a say in it. */
static di_status read_verify(chat_reading *r, di_error *err)
{
    static const char *const rules[] = {"coupled", "block", "rejection"}; /* di_verify */
    di_call *const c = r->call;
    const char *name = NULL;
    size_t n = 0;
    const di_status status = chat_get_string(r->body, "verify", &name, &n, err);
    c->verify = chat_has(r->body, "seed") ? DI_VERIFY_COUPLED : c->service->verify;
    if (status != DI_OK || name == NULL) {
        return status;
    }
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (n == strlen(rules[i]) && memcmp(name, rules[i], n) == 0) {
            c->verify = (di_verify)i;
            return DI_OK;
        }
    }
    return err_set(err, DI_E_ARGUMENT, "verify: '%.40s' is neither coupled, block nor rejection", name);
}

/* vLLM spells "off" -1 or 0. */
static di_status read_top_k(chat_reading *r, di_sampling *o, di_error *err)
{
    int64_t top_k = 0;
    const di_status status = chat_get_int(r->body, "top_k", -1, INT32_MAX, &top_k, err);
    o->top_k = top_k > 0 ? (int32_t)top_k : 0;
    return status;
}

di_status chat_read_sampling(chat_reading *r, di_error *err)
{
    di_sampling *const o = &r->call->sampling;
    int64_t min_tokens = 0;
    di_sampling_default(o);
    const struct {
        const char *key;
        double low;
        double high;
        float *value;
    } numbers[] = {
        {"temperature", 0.0, 2.0, &o->temperature},
        {"top_p", 0.0, 1.0, &o->top_p},
        {"min_p", 0.0, 1.0, &o->min_p},
        {"presence_penalty", -2.0, 2.0, &o->presence_penalty},
        {"frequency_penalty", -2.0, 2.0, &o->frequency_penalty},
        {"repetition_penalty", 0.01, 100.0, &o->repetition_penalty},
    };
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < sizeof numbers / sizeof numbers[0]; i++) {
        status = chat_get_float(r->body, numbers[i].key, numbers[i].low, numbers[i].high, numbers[i].value, err);
    }
    if (status == DI_OK) {
        status = read_top_k(r, o, err);
    }
    if (status == DI_OK) {
        status = chat_get_int(r->body, "min_tokens", 0, INT32_MAX, &min_tokens, err);
    }
    o->min_tokens = (int32_t)min_tokens;
    if (status == DI_OK && min_tokens > r->max_tokens) {
        return err_set(err, DI_E_ARGUMENT, "min_tokens: must be at most max_tokens, which is %lld", (long long)r->max_tokens);
    }
    if (status == DI_OK) {
        status = read_biases(r, o, err);
    }
    if (status == DI_OK) {
        status = read_stop_ids(r, o, err);
    }
    o->n_top_logprobs = r->writer.logprobs > 0 ? r->writer.logprobs : 0;
    if (status == DI_OK) {
        status = read_seed(r, o, err);
    }
    return status == DI_OK ? read_verify(r, err) : status;
}
