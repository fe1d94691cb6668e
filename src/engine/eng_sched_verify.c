/* eng_sched_verify.c - the tokens behind the rows of a part: which of its drafts were right, and what follows them.
 *
 * Under coupling each row is sampled as if nothing had been drafted, until a token differs from its draft. Block verification and rejection
 * (eng_verify.h) judge rows by their laws and draw one token; what they judge is counted by the sampler meanwhile, and taken back before
 * what stays is counted for good. Rows of a grammar have their masks already (eng_masks.h). */
#include "core/core.h"
#include "engine/eng_sched.h"

const float *eng_verify_logits(const di_scheduler *s, const eng_result *r)
{
    return s->logits + (size_t)r->row * (size_t)s->engine->c->vocab;
}

/* Counts the sampled token of a result. */
static void count_token(eng_result *r)
{
    eng_choice *const c = r->choice;
    bool ended = false;
    eng_sampler_accept(c->sampler, r->sample.id, false);
    if (c->constraint != NULL) {
        r->status = eng_constraint_accept(c->constraint, r->sample.id, &ended) ? DI_OK : DI_E_INTERNAL;
        r->sample.is_stop = r->sample.is_stop || ended;
    }
}

/* ---- coupling, and rows without drafts ---- */

static bool sample_one(const di_scheduler *s, eng_result *r)
{
    if (r->choice == NULL) {
        return false;
    }
    eng_choice *const c = r->choice;
    const uint32_t *mask = NULL;
    r->taken = true;
    if (c->constraint != NULL) {
        mask = eng_constraint_mask(c->constraint);
        r->status = mask != NULL ? DI_OK : DI_E_INTERNAL;
    }
    if (r->status == DI_OK) {
        r->status = eng_sampler_choose(c->sampler, eng_verify_logits(s, r), r->position, mask, &r->sample, NULL);
    }
    if (r->status == DI_OK) {
        count_token(r);
    }
    return r->status == DI_OK;
}

/* The token behind each row, as long as the row's own token was right: what is sampled does not depend on what was drafted (dspark.md 2.5).
 * Results of a prompt's end are one for each choice. */
static void sample_rows(const di_scheduler *s, eng_pass *p, eng_part *part)
{
    const int32_t *const ids = p->ids + part->ids_at;
    for (int32_t i = 0; i < part->n_results; i++) {
        eng_result *const r = &p->results[part->first_result + i];
        const bool sampled = sample_one(s, r);
        if (part->prefill) {
            continue;
        }
        const bool right = sampled && i + 1 < part->n && r->sample.id == ids[i + 1];
        part->n_right += right;
        if (!right || r->sample.is_stop) {
            break;
        }
    }
}

/* ---- block verification and rejection ---- */

typedef struct judging {
    const di_scheduler *s;
    eng_choice *choice;
    eng_result *results;   /* of the part's rows */
    const int32_t *drafts; /* behind them, but for the last */
    eng_block block;
    di_sample last;        /* the sample of block.next */
    di_status failed;      /* of the row block.row, which ends the block as a text that ends does */
} judging;

static bool text_ends(const judging *j)
{
    const eng_constraint *const g = j->choice->constraint;
    if (j->block.row == 0) {
        return false;
    }
    const di_sample *const before = &j->results[j->block.row - 1].sample;
    return before->is_stop || (g != NULL && eng_constraint_ends_with(g, before->id));
}

/* The next row, behind drafts that the sampler has counted. Its result gets the sample of the draft that follows. */
static bool judge_row(judging *j)
{
    eng_choice *const c = j->choice;
    const int32_t i = j->block.row;
    const bool last = i == j->block.n_drafts;
    const float *const logits = eng_verify_logits(j->s, &j->results[i]);
    const uint32_t *const mask = c->constraint != NULL ? eng_constraint_mask_at(c->constraint, i) : NULL;
    eng_law *const law = &c->laws[j->s->draft_length];
    j->failed = c->constraint != NULL && mask == NULL ? DI_E_INTERNAL : eng_sampler_law(c->sampler, logits, mask, law, NULL);
    if (j->failed != DI_OK) {
        eng_block_end(&j->block);
        return false;
    }
    const bool goes_on = eng_block_row(&j->block, law, last ? NULL : &c->laws[i], last ? -1 : j->drafts[i]);
    if (!last) {
        eng_sampler_report(c->sampler, logits, j->drafts[i], &j->results[i].sample);
    }
    if (j->block.next >= 0 && j->block.n_right == i) {
        eng_sampler_report(c->sampler, logits, j->block.next, &j->last);
    }
    return goes_on;
}

static void judge_rows(judging *j)
{
    int32_t counted = 0;
    for (bool goes_on = true; goes_on;) {
        if (text_ends(j)) {
            eng_block_end(&j->block);
            break;
        }
        goes_on = judge_row(j);
        if (goes_on) {
            eng_sampler_accept(j->choice->sampler, j->drafts[counted++], false);
        }
    }
    for (int32_t i = 0; i < counted; i++) {
        eng_sampler_retract(j->choice->sampler, j->drafts[i]);
    }
}

static void judge_part(const di_scheduler *s, eng_pass *p, eng_part *part)
{
    eng_choice *const c = part->choice;
    judging j = {.s = s, .choice = c, .results = &p->results[part->first_result], .drafts = p->ids + part->ids_at + 1};
    eng_block_start(&j.block, c->task->verify, eng_sampler_seed(c->sampler), j.results[0].position, part->n - 1);
    judge_rows(&j);
    eng_result *r = j.results;
    for (int32_t i = 0; i < j.block.n_right; i++, r++) {
        r->taken = true;
        part->n_right++;
        count_token(r);
        if (r->status != DI_OK || r->sample.is_stop) {
            return;
        }
    }
    r->taken = true;
    r->status = j.block.next < 0 ? j.failed : DI_OK;
    if (r->status == DI_OK) {
        r->sample = j.last;
        count_token(r);
    }
}

void eng_verify_part(const di_scheduler *s, eng_pass *p, eng_part *part)
{
    if (part->choice->laws != NULL && !part->prefill && part->n > 1) {
        judge_part(s, p, part);
    } else {
        sample_rows(s, p, part);
    }
}
