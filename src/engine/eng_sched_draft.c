/* eng_sched_draft.c - drafts of running choices: proposing them behind a pass, and taking back those that were wrong.
 *
 * Runs on the executor's thread between the samples of a pass and its end, so drafts wait for the next pass, which verifies them
 * (eng_sched_verify.c). Whatever goes wrong with a proposal leaves fewer drafts and changes nothing else. */
#include "core/core.h"
#include "engine/eng_noise.h"
#include "engine/eng_sched.h"

/* Tokens that came of a part; the last of them is not in the sequence yet. */
static int32_t taken_of(const eng_pass *p, const eng_part *part)
{
    int32_t n = 0;
    while (n < part->n_results && p->results[part->first_result + n].taken) {
        n++;
    }
    return n;
}

void eng_draft_rewind(const eng_pass *p, const eng_part *part)
{
    eng_choice *const c = part->choice;
    c->n_drafts = 0;
    c->forced = false;
    if (!part->prefill) {
        const int32_t n = taken_of(p, part);
        mdl_seq_rewind(&c->seq, part->n - (n > 0 ? n : 1));
    }
}

/* The choice that wants drafts behind a part, and its last token. NULL: none. */
static eng_choice *wants_draft(const eng_pass *p, const eng_part *part, int32_t *anchor)
{
    eng_choice *const c = part->choice;
    const int32_t n = part->prefill ? part->n_results > 0 && p->results[part->first_result].choice == c : taken_of(p, part);
    if (n == 0 || c->n_drafts > 0 || c->n_out + n + 1 >= c->task->max_tokens) {
        return NULL;
    }
    const eng_result *const last = &p->results[part->first_result + n - 1];
    *anchor = last->sample.id;
    return last->taken && last->status == DI_OK && !last->sample.is_stop && c->has_cache ? c : NULL;
}

/* Enough of its context is there: what is proposed behind less is hardly ever right. */
static bool has_context(const eng_choice *c)
{
    return c->seq.draft_from == 0 || c->seq.n_tokens - c->seq.draft_from >= ENG_DRAFT_CONTEXT;
}

typedef struct proposal {
    eng_choice *choices[ENG_DRAFT_GROUP];
    const mdl_seq *seqs[ENG_DRAFT_GROUP];
    int32_t previous[ENG_DRAFT_GROUP];
    float confidence[ENG_DRAFT_GROUP];
    bool over[ENG_DRAFT_GROUP];
    int32_t n;
} proposal;

/* The next draft of a choice. Under coupling it is chosen as the token itself will be, with the same noise, so that the two agree as often
 * as can be; else it is drawn with noise of its own, and what it was drawn from is kept. */
static di_status choose_draft(eng_choice *c, const float *row, const uint32_t *mask, di_sample *out)
{
    const int64_t position = c->seq.n_tokens + 1 + c->n_drafts;
    if (c->laws == NULL) {
        return eng_sampler_choose(c->sampler, row, position, mask, out, NULL);
    }
    eng_law *const law = &c->laws[c->n_drafts];
    const di_status status = eng_sampler_law(c->sampler, row, mask, law, NULL);
    if (status == DI_OK) {
        const uint64_t noise = eng_verify_noise(eng_sampler_seed(c->sampler), position, ENG_STREAM_DRAFT, 1 + c->n_drafts);
        eng_sampler_report(c->sampler, row, eng_law_draw(law, noise), out);
    }
    return status;
}

/* Draft i of each. One that ends its text is the last: whether a draft is verified depends on those before it only. */
static void take_drafts(const di_scheduler *s, proposal *g)
{
    for (int32_t k = 0; k < g->n; k++) {
        eng_choice *const c = g->choices[k];
        di_sample sample;
        if (g->over[k]) {
            continue;
        }
        const float *const row = s->draft_logits + (size_t)k * (size_t)s->engine->c->vocab;
        const uint32_t *const mask = c->constraint != NULL ? eng_constraint_try_mask(c->constraint) : NULL;
        const bool maskless = c->constraint != NULL && mask == NULL;
        if (maskless || choose_draft(c, row, mask, &sample) != DI_OK) {
            g->over[k] = true;
            continue;
        }
        eng_sampler_accept(c->sampler, sample.id, false);
        c->confidence[c->n_drafts] = g->confidence[k];
        c->drafts[c->n_drafts++] = sample.id;
        g->previous[k] = sample.id;
        g->over[k] = sample.is_stop || (c->constraint != NULL && !eng_constraint_try(c->constraint, sample.id));
    }
}

/* A proposal that fails leaves fewer drafts: nobody depends on them. */
static void propose(di_scheduler *s, eng_pass *p, proposal *g)
{
    mdl_runner *const r = s->engine->runner;
    if (g->n == 0) {
        return;
    }
    di_status status = mdl_draft_begin(r, g->seqs, g->previous, g->n, NULL);
    for (int32_t i = 0; i < s->draft_length && status == DI_OK; i++) {
        status = mdl_draft_step(r, i, g->previous, s->draft_logits, g->confidence, NULL);
        if (status == DI_OK) {
            take_drafts(s, g);
        }
    }
    for (int32_t k = 0; k < g->n; k++) {
        const eng_choice *const c = g->choices[k];
        p->n_proposed += c->n_drafts;
        for (int32_t i = 0; i < c->n_drafts; i++) {
            eng_sampler_retract(c->sampler, c->drafts[i]);
        }
        if (c->constraint != NULL) {
            eng_constraint_take_back(c->constraint);
        }
        if (s->automatic.on) {
            eng_auto_learn(s, g->choices[k]);
        }
    }
    g->n = 0;
}

static int32_t count_wanted(const eng_pass *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        int32_t anchor = 0;
        n += wants_draft(p, &p->parts[i], &anchor) != NULL;
    }
    return n;
}

/* Where the grammar leaves no choice, its text is the draft: nearly always right, and for nothing. */
static void jump(const eng_pass *p)
{
    for (int32_t i = 0; i < p->n_parts; i++) {
        int32_t anchor = 0;
        eng_choice *const c = wants_draft(p, &p->parts[i], &anchor);
        if (c == NULL || !c->task->grammar_jumps) {
            continue;
        }
        c->n_drafts = eng_constraint_forced(c->constraint, c->drafts, ENG_MAX_DRAFT);
        c->forced = c->n_drafts > 0;
        for (int32_t j = 0; j < c->n_drafts; j++) {
            c->survival[j] = 1.0f;
        }
    }
}

int32_t eng_draft_propose(di_scheduler *s, eng_pass *p)
{
    proposal g = {.n = 0};
    const int32_t most = s->draft_group;
    jump(p);
    const int32_t wanted = s->draft_length > 0 ? count_wanted(p) : 0;
    const int32_t n = wanted == 0 || !s->automatic.on ? wanted : eng_auto_proposes(s, p, wanted);
    const int32_t first = n < wanted ? s->draft_turn % wanted : 0;
    int32_t made = 0;
    for (int32_t i = 0, at = 0; i < p->n_parts && n > 0; i++) {
        int32_t anchor = 0;
        eng_choice *const c = wants_draft(p, &p->parts[i], &anchor);
        if (c != NULL && (at++ - first + wanted) % wanted < n && has_context(c)) {
            made++;
            g.choices[g.n] = c;
            g.seqs[g.n] = &c->seq;
            g.previous[g.n] = anchor;
            g.over[g.n++] = false;
        }
        if (g.n == most) {
            propose(s, p, &g);
        }
    }
    propose(s, p, &g);
    s->draft_turn = n < wanted ? first + n : s->draft_turn;
    p->proposed = made > 0;
    return made;
}
