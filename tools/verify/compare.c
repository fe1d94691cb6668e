/* compare.c - see compare.h. Two passes over a phase: selections first, because they decide what the floats may be held to. */
#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* One golden tensor beside the engine's record of it. */
typedef struct pair {
    const st_tensor *golden;
    const vf_record *ours;
    di_dtype dtype;      /* of the golden one */
    const char *name;    /* in the trace */
    size_t rank;
    size_t n_rows;       /* golden rows */
    size_t row_elements; /* golden */
    size_t *rows;        /* row of `ours` for each golden row; NULL for a cache */
} pair;

void vf_result_init(vf_result *r, const vf_case *c)
{
    memset(r, 0, sizeof *r);
    r->name = c->name;
    r->kind = c->kind;
    r->moved_row = -1;
    r->logits_rel_rms = -1;
    r->judged = vf_judges_exactness(c);
}

static void report(vf_result *r, const vf_phase_values *v, const pair *p, int64_t row, const char *text)
{
    vf_difference d = {.any = true, .phase = v->phase, .rank = p->rank, .row = row};
    snprintf(d.tensor, sizeof d.tensor, "%s", p->golden->name);
    snprintf(d.text, sizeof d.text, "%s", text);
    r->n_differences++;
    if (!r->first.any || d.phase < r->first.phase || (d.phase == r->first.phase && d.rank < r->first.rank)) {
        r->first = d;
    }
    if (r->listener != NULL) {
        r->listener(&d);
    }
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text);
    const size_t m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_cache(const char *name) { return strncmp(name, "cache.", 6) == 0; }
static bool is_logits(const char *name) { return ends_with(name, "logits"); }
static bool is_candidates(const char *name) { return strcmp(name, "candidates") == 0; }

static bool is_selection(const char *name)
{
    return ends_with(name, ".topk") || ends_with(name, ".router_ids") || is_candidates(name);
}

/* --- Pairs ------------------------------------------------------------------------------------------------------------ */

static di_status pair_open(const vf_case *c, const vf_phase_values *v, const st_tensor *t, const char *name, vf_result *r,
                           pair *out, di_error *err)
{
    pair p = {.golden = t, .name = name, .rank = SIZE_MAX};
    if (t->n_dims < 1 || (t->dtype != ST_F32 && t->dtype != ST_BF16 && t->dtype != ST_I32) || t->dims[0] < 1) {
        return err_set(err, DI_E_FORMAT, "%s: tensor %s: type or shape is none of the format", st_label(c->file), t->name);
    }
    p.dtype = t->dtype == ST_BF16 ? DI_BF16 : t->dtype == ST_I32 ? DI_I32 : DI_F32;
    p.n_rows = is_cache(name) && t->n_dims == 1 ? 1 : (size_t)t->dims[0];
    p.row_elements = t->size / st_dtype_bytes(t->dtype) / p.n_rows;
    p.ours = vf_trace_find(is_logits(name) ? v->logits : v->trace, name, &p.rank);
    p.rank = is_logits(name) ? SIZE_MAX : p.rank; /* the end of a pass */
    if (p.ours == NULL && strcmp(name, "taps") == 0) {
        r->n_tensors--; /* what the draft model reads; there is nothing to compare without one */
        return DI_OK;
    }
    if (p.ours == NULL) {
        report(r, v, &p, -1, "the engine's trace does not have it");
        return DI_OK;
    }
    if ((p.ours->dtype == DI_I32) != (p.dtype == DI_I32)) {
        report(r, v, &p, -1, "the engine's trace has another type");
        p.ours = NULL;
        return DI_OK;
    }
    if (!is_cache(name)) {
        p.rows = ar_calloc(p.n_rows, sizeof *p.rows);
        if (p.rows == NULL) {
            return err_memory(err, "rows", p.n_rows * sizeof *p.rows);
        }
        const size_t n_phase = v->phase == VF_END ? p.n_rows : v->n_rows;
        if (!vf_rows(c, t, name, n_phase, p.rows)) {
            free(p.rows);
            return err_set(err, DI_E_FORMAT, "%s: tensor %s: rows do not fit the case", st_label(c->file), t->name);
        }
        /* Fewer rows are fine when they are the last ones (logits of the end of a prompt). */
        const size_t missing = n_phase - (p.ours->n_rows < n_phase ? p.ours->n_rows : n_phase);
        for (size_t i = 0; i < p.n_rows; i++) {
            if (p.rows[i] < missing) {
                report(r, v, &p, v->base + (int64_t)p.rows[i], "the engine's trace does not have this row");
                free(p.rows);
                p.ours = NULL;
                p.rows = NULL;
                return DI_OK;
            }
            p.rows[i] -= missing;
        }
    }
    *out = p;
    return DI_OK;
}

/* Position of the token behind golden row i; -1 = nothing is stored there (a ring slot not reached yet). */
static int64_t position_of(const pair *p, const vf_phase_values *v, size_t i)
{
    const int64_t n = (int64_t)p->n_rows;
    const int64_t row = (int64_t)i;
    if (!is_cache(p->name)) {
        const int64_t missing = v->phase == VF_END ? 0 : (int64_t)v->n_rows - (int64_t)p->ours->n_rows;
        return v->base + (int64_t)p->rows[i] + (missing > 0 ? missing : 0);
    }
    if (ends_with(p->name, ".window")) {
        return row >= v->n_tokens ? -1 : v->n_tokens - 1 - (v->n_tokens - 1 - row) % n;
    }
    if (p->golden->n_dims == 1) {
        return v->n_tokens - 1; /* the open group */
    }
    const int64_t ratio = v->n_tokens / n;
    return (row + 1) * (ratio > 0 ? ratio : 1) - 1;
}

static double golden_at(const pair *p, size_t i, size_t k)
{
    return vf_number(p->dtype, p->golden->data, i * p->row_elements + k);
}

/* Element k of the engine's row for golden row i. Beyond its width: what an absent entry means for that quantity. */
static double ours_at(const pair *p, size_t i, size_t k)
{
    if (p->rows == NULL) {
        return vf_number(p->ours->dtype, p->ours->data, i * p->row_elements + k);
    }
    const vf_row *row = &p->ours->rows[p->rows[i]];
    if (k >= row->n) {
        return ends_with(p->name, ".index_score") ? -INFINITY : is_candidates(p->name) ? 0 : NAN;
    }
    return vf_number(p->ours->dtype, p->ours->data, row->offset + k);
}

/* --- Integers --------------------------------------------------------------------------------------------------------- */

static bool in_golden_row(const pair *p, size_t i, int32_t id)
{
    for (size_t k = 0; k < p->row_elements; k++) {
        if ((int32_t)golden_at(p, i, k) == id) {
            return true;
        }
    }
    return false;
}

/* Sets: every id of ours is in golden, and there are as many (-1 = empty; ids of a row are distinct). */
static bool same_set(const pair *p, size_t i, int32_t *odd)
{
    size_t n_ours = 0;
    size_t n_golden = 0;
    const vf_row *row = &p->ours->rows[p->rows[i]];
    for (size_t k = 0; k < row->n; k++) {
        const int32_t id = (int32_t)vf_number(DI_I32, p->ours->data, row->offset + k);
        if (id >= 0) {
            n_ours++;
            if (!in_golden_row(p, i, id)) {
                *odd = id;
                return false;
            }
        }
    }
    for (size_t k = 0; k < p->row_elements; k++) {
        n_golden += golden_at(p, i, k) >= 0;
    }
    *odd = -1;
    return n_ours == n_golden;
}

static bool same_row(const pair *p, size_t i, int32_t *odd)
{
    for (size_t k = 0; k < p->row_elements; k++) {
        const double ours = ours_at(p, i, k);
        if (!(golden_at(p, i, k) == ours)) {
            *odd = (int32_t)k;
            return false;
        }
    }
    return is_candidates(p->name) || p->ours->rows[p->rows[i]].n == p->row_elements;
}

static void compare_integers(const vf_case *c, const vf_phase_values *v, const pair *p, vf_result *r)
{
    const bool selection = is_selection(p->name);
    const bool as_set = selection && !is_candidates(p->name);
    for (size_t i = 0; i < p->n_rows; i++) {
        int32_t odd = -1;
        if (as_set ? same_set(p, i, &odd) : same_row(p, i, &odd)) {
            continue;
        }
        const int64_t position = position_of(p, v, i);
        if (selection && (r->moved_row < 0 || position < r->moved_row)) {
            r->moved_row = position;
            snprintf(r->moved_tensor, sizeof r->moved_tensor, "%s", p->golden->name);
        }
        if (!selection || !c->may_move) {
            char text[VF_TEXT_BYTES];
            snprintf(text, sizeof text, as_set ? "selects %" PRId32 ", which the golden row does not (-1: selects fewer)"
                                               : "element %" PRId32 " differs", odd);
            report(r, v, p, position, text);
            return;
        }
    }
}

/* --- Floats ----------------------------------------------------------------------------------------------------------- */

typedef struct sums {
    double difference2;
    double golden2;
    double ours2;
    double dot;
    double max_abs;
    int64_t max_row;
    int64_t bad_row; /* where only one of the two is finite; -1 = nowhere */
    size_t n_rows;
} sums;

static void add_row(sums *s, const pair *p, size_t i, int64_t position)
{
    s->n_rows++;
    for (size_t k = 0; k < p->row_elements; k++) {
        const double golden = golden_at(p, i, k);
        const double ours = ours_at(p, i, k);
        if (!isfinite(golden) || !isfinite(ours)) {
            if (!(golden == ours) && s->bad_row < 0) {
                s->bad_row = position;
            }
            continue;
        }
        const double difference = ours - golden;
        s->difference2 += difference * difference;
        s->golden2 += golden * golden;
        s->ours2 += ours * ours;
        s->dot += golden * ours;
        if (fabs(difference) > s->max_abs) {
            s->max_abs = fabs(difference);
            s->max_row = position;
        }
    }
}

static double rel_rms(const sums *s)
{
    return s->difference2 == 0 ? 0 : s->golden2 == 0 ? INFINITY : sqrt(s->difference2 / s->golden2);
}

static double cosine(const sums *s)
{
    return s->difference2 == 0 ? 1 : s->golden2 == 0 || s->ours2 == 0 ? 0 : s->dot / sqrt(s->golden2 * s->ours2);
}

static double share(double value, double bound)
{
    return value <= 0 ? 0 : bound > 0 ? value / bound : INFINITY;
}

static void judge(const vf_phase_values *v, const pair *p, const sums *s, const vf_tolerance *t, vf_result *r)
{
    char text[VF_TEXT_BYTES];
    if (s->bad_row >= 0) {
        report(r, v, p, s->bad_row, "infinite or not a number where the other is not");
        return;
    }
    const double shares[3] = {share(s->max_abs, t->max_abs), share(rel_rms(s), t->rel_rms),
                              share(1 - cosine(s), 1 - t->min_cos)};
    const double worst = fmax(shares[0], fmax(shares[1], shares[2]));
    if (worst > r->worst) {
        r->worst = worst;
        snprintf(r->worst_tensor, sizeof r->worst_tensor, "%s", p->golden->name);
    }
    if (!(worst <= 1)) {
        snprintf(text, sizeof text, "max abs %.3g (tolerance %.3g), rel rms %.3g (%.3g), cos %.8f (%.8f)", s->max_abs, t->max_abs,
                 rel_rms(s), t->rel_rms, cosine(s), t->min_cos);
        report(r, v, p, s->max_row, text);
    }
}

/* The likeliest token, where the golden logits say clearly which it is. */
static void compare_argmax(const vf_phase_values *v, const pair *p, size_t i, int64_t position, double bound, vf_result *r)
{
    size_t best = 0;
    size_t ours = 0;
    double second = -INFINITY;
    for (size_t k = 1; k < p->row_elements; k++) {
        if (golden_at(p, i, k) > golden_at(p, i, best)) {
            second = golden_at(p, i, best);
            best = k;
        } else if (golden_at(p, i, k) > second) {
            second = golden_at(p, i, k);
        }
        if (ours_at(p, i, k) > ours_at(p, i, ours)) {
            ours = k;
        }
    }
    if (golden_at(p, i, best) - second > bound && ours != best) {
        char text[VF_TEXT_BYTES];
        snprintf(text, sizeof text, "likeliest token %zu, golden %zu with a lead of %.3g", ours, best,
                 golden_at(p, i, best) - second);
        report(r, v, p, position, text);
    }
}

static void compare_floats(const vf_case *c, const vf_phase_values *v, const pair *p, const vf_tolerance *t, vf_result *r)
{
    const bool logits = is_logits(p->name);
    sums exact = {.bad_row = -1};
    sums loose = {.bad_row = -1};
    sums all = {.bad_row = -1};
    if (p->rows == NULL && p->ours->n_elements != p->n_rows * p->row_elements) {
        report(r, v, p, -1, "another number of elements");
        return;
    }
    for (size_t i = 0; i < p->n_rows; i++) {
        const int64_t position = position_of(p, v, i);
        const bool moved = c->may_move && r->moved_row >= 0 && position >= r->moved_row;
        if (position < 0 || (moved && !logits)) {
            continue;
        }
        add_row(moved ? &loose : &exact, p, i, position);
        if (logits) {
            add_row(&all, p, i, position);
            compare_argmax(v, p, i, position, moved ? c->if_moved.max_abs : t->max_abs, r);
        }
    }
    judge(v, p, &exact, t, r);
    if (loose.n_rows > 0) {
        judge(v, p, &loose, &c->if_moved, r);
    }
    if (logits && all.n_rows > 0) {
        r->logits_rel_rms = fmax(r->logits_rel_rms, rel_rms(&all));
    }
}

/* --- A phase ---------------------------------------------------------------------------------------------------------- */

di_status vf_compare_phase(const vf_case *c, const vf_phase_values *v, vf_result *r, di_error *err)
{
    di_status status = DI_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t k = 0; status == DI_OK && k < st_count(c->file); k++) {
            const st_tensor *t = st_at(c->file, k);
            const char *name;
            pair p = {.ours = NULL};
            if (vf_phase(t->name, &name) != v->phase || (t->dtype == ST_I32) != (pass == 0)) {
                continue;
            }
            r->n_tensors++;
            status = pair_open(c, v, t, name, r, &p, err);
            if (status == DI_OK && p.ours != NULL) {
                vf_tolerance tolerance;
                if (pass == 0) {
                    compare_integers(c, v, &p, r);
                } else if ((status = vf_case_tolerance(c, t->name, &tolerance, err)) == DI_OK) {
                    compare_floats(c, v, &p, &tolerance, r);
                }
            }
            free(p.rows);
        }
    }
    return status;
}
