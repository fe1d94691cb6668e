/* eng_sched_auto.c - drafts as far as they pay (`draft_auto`): costs, whether to propose, and how many drafts a pass verifies.
 *
 * When the scheduler is made, passes and proposals of several sizes are timed behind a window of tokens, as most of them will run; from
 * then on each one that runs corrects the tables, passes without any draft their own: rows of many sequences have less in common than
 * those of few. Before a pass is handed over its drafts are cut to what eng_budget.h chooses from their survival. Before a proposal is made
 * the same account is taken with the survival that proposals had of late: when none pays, none is made, but for a trial now and then, of
 * few sequences and verified in full, to see whether it would by now. Between trials passes leave the draft model's context out as well
 * (mdl_draft_rest), but for the window before the next. What coupled choices give depends on none of this (docs/decisions/0009), so
 * measured times may decide; for others whether a draft is verified depends on what was known before it (eng_budget.h,
 * docs/decisions/0015). */
#include "core/core.h"
#include "engine/eng_sched.h"

#include <stdlib.h>
#include <string.h>

#define MEASURE_ROWS 128        /* larger passes follow from the last two points */
#define MEASURE_NS 100000000    /* no further size once a sweep over sizes has taken so long; two sizes are always timed */
#define MEASURE_SWEEPS 4        /* the least of a size counts: whatever disturbs makes it longer, and seldom all sweeps */
#define CONTEXT_ROWS 32         /* of the passes that fill the window first */
#define CONTEXT_NS 200000000    /* and for how long they may do so */
#define PROBE_PASSES 512        /* a proposal after so many passes without one, */
#define PROBE_SHARE 16          /* of one sequence in so many: their texts are alike enough, and a trial of all costs several passes */
#define WORTHWHILE 1.1          /* drafts shall promise so many times the speed without: the tables are not more exact than that */
#define REST_PASSES 8           /* after so many no context is written, until a window before the trial */
#define WHOLE_PASSES 64         /* of passes that would be cut one is not, lest the cost of large ones is never corrected */
#define MEAN_WEIGHT 0.1f        /* of one proposal in the mean */

/* ---- measuring ---- */

typedef struct measuring {
    di_scheduler *s;
    eng_cache cache;
    mdl_seq seq;
    mdl_seq start; /* as it is before each pass that is timed */
    int32_t ids[MEASURE_ROWS];
} measuring;

static di_status run_rows(measuring *m, int32_t rows, double *seconds, di_error *err)
{
    int32_t n_logits = 0;
    const mdl_item item = {.seq = &m->seq, .ids = m->ids, .n = rows, .n_logits = rows};
    const int64_t began = clock_now_ns();
    const di_status status = mdl_forward(m->s->engine->runner, &item, 1, m->s->logits, &n_logits, err);
    *seconds = (double)(clock_now_ns() - began) * 1e-9;
    return status;
}

/* Rows behind few tokens have little to attend to: a window goes before those that are timed, or as much of it as there is time for. */
static di_status run_context(measuring *m, int64_t most, di_error *err)
{
    const int64_t window = mdl_window(m->s->engine->runner);
    const int64_t began = clock_now_ns();
    di_status status = DI_OK;
    double seconds;
    while (status == DI_OK && m->seq.n_tokens < window && m->seq.n_tokens < most && clock_now_ns() - began < CONTEXT_NS) {
        const int64_t left = most - m->seq.n_tokens;
        int32_t rows = left < CONTEXT_ROWS ? (int32_t)left : CONTEXT_ROWS;
        rows = rows < m->s->step_tokens ? rows : m->s->step_tokens;
        status = run_rows(m, rows, &seconds, err);
    }
    m->start = m->seq;
    return status;
}

/* As decoding runs them: logits of every row. Every pass starts at the same place; what earlier ones left in the caches behind it is no
 * text, but takes as long. */
static di_status time_pass(measuring *m, int32_t rows, double *seconds, di_error *err)
{
    m->seq = m->start;
    return run_rows(m, rows, seconds, err);
}

/* A whole proposal of each of n sequences, behind what the last pass ran. */
static di_status time_proposal(measuring *m, int32_t n, double *seconds, di_error *err)
{
    mdl_runner *const r = m->s->engine->runner;
    const mdl_seq *seqs[ENG_DRAFT_GROUP];
    float confidence[ENG_DRAFT_GROUP];
    for (int32_t i = 0; i < n; i++) {
        seqs[i] = &m->seq;
    }
    const int64_t began = clock_now_ns();
    di_status status = mdl_draft_begin(r, seqs, m->ids, n, err);
    for (int32_t i = 0; i < m->s->draft_length && status == DI_OK; i++) {
        status = mdl_draft_step(r, i, m->ids, m->s->draft_logits, confidence, err);
    }
    *seconds = (double)(clock_now_ns() - began) * 1e-9;
    return status;
}

typedef di_status (*time_fn)(measuring *m, int32_t n, double *seconds, di_error *err);

/* The next size: 1, 2, 3, 4, 6, 8, 12, 16 ... and `most` itself. */
static int32_t larger(int32_t n, int32_t most)
{
    const bool power = (n & (n - 1)) == 0;
    const int32_t next = n < 2 ? n + 1 : power ? n + n / 2 : n / 3 * 4;
    return next < most || n >= most ? next : most;
}

static di_status measure_sizes(measuring *m, time_fn time, int32_t most, eng_cost *out, di_error *err)
{
    double least[ENG_COST_POINTS];
    int32_t sizes = ENG_COST_POINTS; /* of a sweep; the first one finds it */
    double seconds = 0.0;
    di_status status = time(m, 1, &seconds, err); /* the first one reserves memory */
    for (int sweep = 0; sweep < MEASURE_SWEEPS && status == DI_OK; sweep++) {
        const int64_t began = clock_now_ns();
        int32_t i = 0;
        for (int32_t n = 1; n <= most && i < sizes && status == DI_OK; n = larger(n, most), i++) {
            status = time(m, n, &seconds, err);
            least[i] = sweep == 0 || seconds < least[i] ? seconds : least[i];
            if (sweep == 0 && i >= 1 && clock_now_ns() - began > MEASURE_NS) {
                sizes = i + 1;
            }
        }
        sizes = i;
    }
    for (int32_t n = 1, i = 0; i < sizes && status == DI_OK; n = larger(n, most), i++) {
        (void)eng_cost_add(out, n, least[i]);
    }
    return status;
}

static di_status measure(di_scheduler *s, di_error *err)
{
    mdl_runner *const r = s->engine->runner;
    int32_t most = s->step_tokens < MEASURE_ROWS ? s->step_tokens : MEASURE_ROWS;
    most = s->engine->max_tokens < most ? (int32_t)s->engine->max_tokens : most;
    const int64_t context = s->engine->max_tokens - most < mdl_window(r) ? s->engine->max_tokens - most : mdl_window(r);
    measuring *const m = calloc(1, sizeof *m);
    if (m == NULL) {
        return err_memory(err, "measuring of passes", sizeof *m);
    }
    m->s = s;
    for (int32_t i = 0; i < MEASURE_ROWS; i++) {
        m->ids[i] = (int32_t)((int64_t)i * 7919 % s->engine->c->vocab); /* different ones, so that they reach different experts */
    }
    di_status status = eng_cache_init(&m->cache, s->engine->kv, r, &m->seq, false, err);
    if (status == DI_OK) {
        status = eng_cache_list(&m->cache, &m->seq, context + most, err);
        if (status == DI_OK) {
            status = eng_cache_reserve(&m->cache, &m->seq, context + most, err);
        }
        if (status == DI_OK) {
            status = run_context(m, context, err);
        }
        if (status == DI_OK) {
            status = measure_sizes(m, time_pass, most, &s->automatic.pass, err);
            s->automatic.plain = s->automatic.pass; /* until there are such passes */
        }
        if (status == DI_OK) {
            status = measure_sizes(m, time_proposal, s->draft_group, &s->automatic.proposal, err);
        }
        eng_cache_fini(&m->cache, &m->seq, false);
    }
    free(m);
    return status;
}

di_status eng_auto_open(di_scheduler *s, di_error *err)
{
    eng_auto *const a = &s->automatic;
    a->claims = ar_calloc((size_t)s->max_running, sizeof *a->claims);
    a->heap = ar_calloc((size_t)s->max_running, sizeof *a->heap);
    if (a->claims == NULL || a->heap == NULL) {
        return err_memory(err, "drafts of the scheduler", (size_t)s->max_running * sizeof *a->claims);
    }
    for (int32_t j = 0; j < ENG_MAX_DRAFT; j++) {
        a->mean[j] = 1.0f; /* nothing is known: it is tried */
    }
    return measure(s, err);
}

void eng_auto_close(di_scheduler *s)
{
    free(s->automatic.claims);
    free(s->automatic.heap);
}

/* ---- choosing ---- */

/* Larger groups follow one another. */
static double proposal_seconds(const di_scheduler *s, int32_t n)
{
    const int32_t whole = n / s->draft_group;
    const int32_t rest = n % s->draft_group;
    const eng_cost *const c = &s->automatic.proposal;
    return whole * eng_cost_seconds(c, s->draft_group) + (rest > 0 ? eng_cost_seconds(c, rest) : 0.0);
}

/* Decodes in this pass, and will be there when it runs. */
static bool decodes(const eng_part *part)
{
    return !part->prefill && part->choice->phase == ENG_DECODE && part->choice->cancelled == DI_TASK_RUNNING;
}

/* Drafts that rows were planned for, and for which the output has room behind a token. */
static int32_t most_drafts(const eng_part *part)
{
    const eng_choice *const c = part->choice;
    const int64_t left = c->task->max_tokens - c->n_out - 1;
    return left < part->n - 1 ? (int32_t)left : part->n - 1;
}

/* Of the choices that decode, in order. By what was said of earlier drafts each claims as many as it could have: how many there are is
 * said by the drafts. */
static int32_t make_claims(di_scheduler *s, const eng_pass *p, bool stale)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        const eng_choice *const c = p->parts[i].choice;
        if (decodes(&p->parts[i])) {
            const int32_t most = most_drafts(&p->parts[i]);
            s->automatic.claims[n++] = (eng_claim){.survival = stale ? c->stale : c->survival,
                                                   .n = stale || most < c->n_drafts ? most : c->n_drafts};
        }
    }
    return n;
}

static bool any_judged(const eng_pass *p)
{
    for (int32_t i = 0; i < p->n_parts; i++) {
        if (decodes(&p->parts[i]) && p->parts[i].choice->laws != NULL) {
            return true;
        }
    }
    return false;
}

static int32_t given(const eng_claim *claims, int32_t n)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += claims[i].length;
    }
    return sum;
}

static bool is_cut(const eng_claim *claims, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (claims[i].length < claims[i].n) {
            return true;
        }
    }
    return false;
}

void eng_auto_cut(di_scheduler *s, const eng_pass *p)
{
    eng_auto *const a = &s->automatic;
    if (a->probing) {
        a->probing = false;
        return;
    }
    const bool judged = any_judged(p);
    int32_t n = make_claims(s, p, judged);
    const eng_step_cost step = {
        .pass = &a->pass, .plain = &a->plain, .seconds = proposal_seconds(s, n), .rows = p->n_prefill, .room = s->step_tokens};
    (void)eng_budget_choose(&step, a->claims, n, a->heap);
    if (judged) {
        const int32_t budget = given(a->claims, n);
        n = make_claims(s, p, false);
        eng_budget_give(a->claims, n, a->heap, budget);
    }
    if (is_cut(a->claims, n) && ++a->n_cuts >= WHOLE_PASSES) {
        a->n_cuts = 0;
        return;
    }
    n = 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        if (decodes(&p->parts[i])) {
            p->parts[i].choice->n_drafts = a->claims[n++].length;
        }
    }
}

int32_t eng_auto_proposes(di_scheduler *s, const eng_pass *p, int32_t n)
{
    eng_auto *const a = &s->automatic;
    const eng_step_cost step = {
        .pass = &a->pass, .seconds = proposal_seconds(s, n), .rows = p->n_prefill, .room = s->step_tokens - p->n_prefill - n};
    const double without = n / eng_cost_seconds(&a->plain, p->n_prefill + n);
    const bool pays = eng_budget_even(&step, n, a->mean, s->draft_length) > WORTHWHILE * without;
    a->n_idle++;
    if (!pays && a->n_idle < PROBE_PASSES) {
        return 0;
    }
    a->probing = !pays;
    a->n_idle = 0;
    return pays ? n : (n + PROBE_SHARE - 1) / PROBE_SHARE;
}

bool eng_auto_rests(const di_scheduler *s, const eng_pass *p)
{
    const eng_auto *const a = &s->automatic;
    return a->on && p->n_prefill == 0 && a->n_idle >= REST_PASSES && a->n_idle < PROBE_PASSES - s->engine->c->window;
}

/* Where nobody wanted drafts, because texts ended, the last answer holds: else the first drafts of the next text would have no rows. */
bool eng_auto_wants_rows(const di_scheduler *s)
{
    return !s->automatic.on || s->automatic.n_idle == 0 || s->automatic.n_idle == PROBE_PASSES - 1;
}

void eng_auto_timed(di_scheduler *s, const eng_pass *p, double seconds, int32_t n_proposals, double proposing)
{
    eng_auto *const a = &s->automatic;
    if (p->n_prefill == 0) { /* rows of prompts have no logits and no samples */
        const bool drafted = p->n_rows > p->n_parts;
        const double off = eng_cost_learn(drafted ? &a->pass : &a->plain, p->n_rows, seconds);
        eng_cost_follow(drafted ? &a->plain : &a->pass, off);
    }
    if (n_proposals > 0 && n_proposals <= s->draft_group) {
        (void)eng_cost_learn(&a->proposal, n_proposals, proposing);
    }
}

void eng_auto_learn(di_scheduler *s, eng_choice *c)
{
    eng_auto *const a = &s->automatic;
    memcpy(c->stale, c->survival, sizeof c->stale);
    eng_survival(c->confidence, s->engine->c->draft.temperature, c->n_drafts, c->survival);
    for (int32_t j = 0; j < c->n_drafts; j++) { /* a proposal that ends early says nothing of the rest */
        a->mean[j] += (c->survival[j] - a->mean[j]) * MEAN_WEIGHT;
    }
    for (int32_t j = c->n_drafts; j < ENG_MAX_DRAFT; j++) {
        c->survival[j] = 1.0f;
    }
}
