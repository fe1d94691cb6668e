/* eng_sample.c - see eng_sample.h. The logits are copied once and edited in place: the mask while copying, bias and penalties
 * only at the ids they name. Log-probabilities are taken between the two. */
#include "engine/eng_sample.h"

#include "core/arith.h"
#include "core/err.h"
#include "engine/eng_filter.h"
#include "engine/eng_gumbel.h"
#include "engine/eng_logprob.h"
#include "engine/eng_mass.h"
#include "engine/eng_noise.h"
#include "engine/eng_settings.h"

#include <math.h>

/* What the penalties know of one id. */
typedef struct tally {
    int32_t n_sampled;
    bool in_prompt;
    bool listed; /* in eng_sampler.seen; stays there when its count falls back to 0 */
} tally;

/* Log-probabilities of the raw logits under the mask: what it takes to tell that of any id, and the best ones. */
typedef struct raw_view {
    float max;
    float log_sum;
    int32_t n_top;
    uint64_t top[DI_MAX_TOP_LOGPROBS];
} raw_view;

struct eng_sampler {
    di_sampling settings; /* owns its arrays */
    int32_t vocab;
    int32_t n_sampled; /* tokens sampled so far */
    float *work;       /* [vocab] logits being processed */
    raw_view view;     /* of the row in `work`, before it was edited */
    tally *tallies;    /* [vocab], NULL when no penalty is on */
    int32_t *seen;     /* [vocab] ids with a tally, [0, n_seen) used; NULL when no penalty is on */
    int32_t n_seen;
    eng_filter filter; /* unused when greedy */
};

static bool has_penalty(const di_sampling *s)
{
    return s->repetition_penalty != 1.0f || s->presence_penalty != 0.0f || s->frequency_penalty != 0.0f;
}

static di_status allocate(eng_sampler *s, di_error *err)
{
    const size_t n = (size_t)s->vocab;
    s->work = ar_calloc(n, sizeof *s->work);
    if (s->work == NULL) {
        return err_memory(err, "sampler logits", n * sizeof *s->work);
    }
    if (has_penalty(&s->settings)) {
        s->tallies = ar_calloc(n, sizeof *s->tallies);
        s->seen = ar_calloc(n, sizeof *s->seen);
        if (s->tallies == NULL || s->seen == NULL) {
            return err_memory(err, "sampler counts", n * (sizeof *s->tallies + sizeof *s->seen));
        }
    }
    return s->settings.temperature > 0.0f ? eng_filter_init(&s->filter, &s->settings, s->vocab, err) : DI_OK;
}

di_status eng_sampler_new(const di_sampling *settings, int32_t vocab, eng_sampler **out, di_error *err)
{
    if (vocab < 1 || vocab > ENG_MAX_VOCAB) {
        return err_set(err, DI_E_ARGUMENT, "vocabulary of %d ids, must be from 1 to %d", vocab, ENG_MAX_VOCAB);
    }
    eng_sampler *s = ar_calloc(1, sizeof *s);
    if (s == NULL) {
        return err_memory(err, "sampler", sizeof *s);
    }
    s->vocab = vocab;
    di_status status = eng_settings_init(&s->settings, settings, vocab, err);
    if (status != DI_OK) {
        goto out;
    }
    status = allocate(s, err);
    if (status != DI_OK) {
        goto out;
    }
    *out = s;
    s = NULL;
out:
    eng_sampler_free(s);
    return status;
}

void eng_sampler_free(eng_sampler *sampler)
{
    if (sampler == NULL) {
        return;
    }
    eng_settings_fini(&sampler->settings);
    eng_filter_fini(&sampler->filter);
    free(sampler->tallies);
    free(sampler->seen);
    free(sampler->work);
    free(sampler);
}

uint64_t eng_sampler_choice_seed(uint64_t seed, uint32_t choice)
{
    return seed + choice; /* wraps */
}

void eng_sampler_accept(eng_sampler *sampler, int32_t id, bool is_prompt)
{
    if (id < 0 || id >= sampler->vocab) {
        return;
    }
    if (!is_prompt && sampler->n_sampled < INT32_MAX) {
        sampler->n_sampled++;
    }
    if (sampler->tallies == NULL) {
        return;
    }
    tally *t = &sampler->tallies[id];
    if (!t->listed) {
        t->listed = true;
        sampler->seen[sampler->n_seen++] = id;
    }
    if (is_prompt) {
        t->in_prompt = true;
    } else if (t->n_sampled < INT32_MAX) {
        t->n_sampled++;
    }
}

void eng_sampler_retract(eng_sampler *sampler, int32_t id)
{
    if (id < 0 || id >= sampler->vocab) {
        return;
    }
    if (sampler->n_sampled > 0) {
        sampler->n_sampled--;
    }
    if (sampler->tallies != NULL && sampler->tallies[id].n_sampled > 0) {
        sampler->tallies[id].n_sampled--;
    }
}

static void add_bias(eng_sampler *s)
{
    for (size_t i = 0; i < s->settings.n_bias; i++) {
        s->work[s->settings.bias[i].id] += s->settings.bias[i].bias;
    }
}

/* Repetition (Keskar et al., "CTRL", 2019) divides positive logits and multiplies negative ones, for ids of prompt and output;
 * presence and frequency are OpenAI's, for ids of the output. */
static void add_penalties(eng_sampler *s)
{
    const di_sampling *set = &s->settings;
    for (int32_t i = 0; i < s->n_seen; i++) {
        const int32_t id = s->seen[i];
        const tally *t = &s->tallies[id];
        float l = s->work[id];
        if (t->in_prompt || t->n_sampled > 0) {
            l = l > 0.0f ? l / set->repetition_penalty : l * set->repetition_penalty;
        }
        if (t->n_sampled > 0) {
            l -= set->frequency_penalty * (float)t->n_sampled;
            l -= set->presence_penalty;
        }
        s->work[id] = l;
    }
}

static void forbid_stop_ids(eng_sampler *s)
{
    for (size_t i = 0; i < s->settings.n_stop_ids; i++) {
        s->work[s->settings.stop_ids[i]] = -INFINITY;
    }
}

static int32_t choose_greedy(const eng_sampler *s, float max)
{
    int32_t id = 0;
    while (s->work[id] != max) {
        id++;
    }
    return id;
}

/* Enters those of a block that the cut keeps and that noise can still lift to the best. */
static void enter_kept(eng_race *race, const float *logits, const float *z, int32_t base, int32_t n, const eng_cut *cut)
{
    const float cut_logit = cut->key != 0 ? eng_order_logit(cut->key) : -INFINITY;
    const float highest = eng_highest(z, n);
    if (highest < cut->z_min || highest + ENG_GUMBEL_MAX < race->best || eng_highest(logits, n) < cut_logit) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        const float l = logits[i];
        const bool behind = l < cut_logit || (l == cut_logit && eng_order_key(l, base + i) < cut->key);
        if (!behind && l > -INFINITY && z[i] >= cut->z_min && z[i] + ENG_GUMBEL_MAX >= race->best) {
            eng_race_enter(race, base + i, z[i]);
        }
    }
}

static int32_t choose_noisy(eng_sampler *s, float max, int64_t position)
{
    const eng_cut cut = eng_filter_cut(&s->filter, s->work, max);
    const bool keeps_all = cut.key == 0 && cut.z_min == -INFINITY;
    eng_race race;
    eng_race_start(&race, s->settings.seed, position, ENG_STREAM_TOKEN);
    for (int32_t base = 0; base < s->vocab; base += ENG_BLOCK) {
        const int32_t n = s->vocab - base < ENG_BLOCK ? s->vocab - base : ENG_BLOCK;
        float z[ENG_BLOCK];
        eng_scale_block(s->work + base, n, max, s->settings.temperature, z);
        if (!keeps_all) {
            enter_kept(&race, s->work + base, z, base, n, &cut);
        } else if (eng_highest(z, n) + ENG_GUMBEL_MAX >= race.best) {
            eng_race_enter_run(&race, base, z, n);
        }
    }
    return eng_race_finish(&race);
}

/* The ids that stay, with their masses. */
static bool take_law(eng_sampler *s, float max, eng_law *out)
{
    const eng_cut cut = eng_filter_cut(&s->filter, s->work, max);
    const float cut_logit = cut.key != 0 ? eng_order_logit(cut.key) : -INFINITY;
    out->n = 0;
    out->total = 0;
    for (int32_t base = 0; base < s->vocab; base += ENG_BLOCK) {
        const int32_t n = s->vocab - base < ENG_BLOCK ? s->vocab - base : ENG_BLOCK;
        const float *const logits = s->work + base;
        float z[ENG_BLOCK];
        uint64_t mass[ENG_BLOCK];
        if (eng_highest(logits, n) < cut_logit) {
            continue;
        }
        eng_scale_block(logits, n, max, s->settings.temperature, z);
        eng_mass_block(z, n, mass);
        if (!eng_law_reserve(out, out->n + n)) {
            return false;
        }
        for (int32_t i = 0; i < n; i++) {
            const bool behind = logits[i] < cut_logit || (logits[i] == cut_logit && eng_order_key(logits[i], base + i) < cut.key);
            eng_law_add(out, base + i, behind || z[i] < cut.z_min ? 0 : mass[i]);
        }
    }
    return true;
}

static void look_at_raw(const eng_sampler *s, float max, raw_view *view)
{
    view->max = max;
    view->log_sum = eng_log_sum(s->work, s->vocab, max);
    view->n_top = eng_best(s->work, s->vocab, s->settings.n_top_logprobs, view->top);
}

static float logprob_of(const raw_view *view, float logit)
{
    return eng_scale(logit, view->max, 1.0f) - view->log_sum;
}

static bool is_stop_id(const di_sampling *set, int32_t id)
{
    for (size_t i = 0; i < set->n_stop_ids; i++) {
        if (set->stop_ids[i] == id) {
            return true;
        }
    }
    return false;
}

void eng_sampler_report(const eng_sampler *s, const float *logits, int32_t id, di_sample *out)
{
    const raw_view *const view = &s->view;
    out->id = id;
    out->logprob = logprob_of(view, logits[id]);
    out->is_stop = is_stop_id(&s->settings, id);
    out->n_top = view->n_top;
    for (int32_t i = 0; i < view->n_top; i++) {
        out->top[i].id = eng_order_id(view->top[i]);
        out->top[i].logprob = logprob_of(view, eng_order_logit(view->top[i]));
    }
}

/* Looks at a row, then edits it up to the temperature. *max = the highest logit that came out, above -inf. */
static di_status process(eng_sampler *s, const float *logits, const uint32_t *mask, float *max, di_error *err)
{
    const di_status status = eng_mask_copy(s->work, logits, s->vocab, mask, err);
    if (status != DI_OK) {
        return status;
    }
    *max = eng_highest(s->work, s->vocab);
    if (*max == -INFINITY) {
        if (eng_highest(logits, s->vocab) > -INFINITY) {
            return err_set(err, DI_E_STATE, "the grammar mask leaves no id to choose");
        }
        return err_set(err, DI_E_FORMAT, "all %d logits are -inf", s->vocab);
    }
    look_at_raw(s, *max, &s->view);
    const bool too_early = s->n_sampled < s->settings.min_tokens && s->settings.n_stop_ids > 0;
    if (s->settings.n_bias > 0 || s->n_seen > 0 || too_early) {
        add_bias(s);
        add_penalties(s);
        if (too_early) {
            forbid_stop_ids(s);
        }
        *max = eng_highest(s->work, s->vocab);
        if (*max == -INFINITY) {
            return err_set(err, DI_E_STATE, "no id is left to choose: %s (token %d, min_tokens %d)",
                           too_early ? "min_tokens forbids the stop ids" : "penalties made all logits -inf", s->n_sampled,
                           s->settings.min_tokens);
        }
    }
    return DI_OK;
}

di_status eng_sampler_choose(eng_sampler *s, const float *logits, int64_t position, const uint32_t *mask, di_sample *out,
                             di_error *err)
{
    float max;
    if (position < 0) {
        return err_set(err, DI_E_ARGUMENT, "position is %lld, must not be negative", (long long)position);
    }
    const di_status status = process(s, logits, mask, &max, err);
    if (status == DI_OK) {
        const int32_t id = s->settings.temperature > 0.0f ? choose_noisy(s, max, position) : choose_greedy(s, max);
        eng_sampler_report(s, logits, id, out);
    }
    return status;
}

di_status eng_sampler_law(eng_sampler *s, const float *logits, const uint32_t *mask, eng_law *out, di_error *err)
{
    float max;
    const di_status status = process(s, logits, mask, &max, err);
    return status != DI_OK || take_law(s, max, out) ? status : err_memory(err, "law of a token", (size_t)s->vocab * sizeof *out->ids);
}

uint64_t eng_sampler_seed(const eng_sampler *sampler) { return sampler->settings.seed; }
