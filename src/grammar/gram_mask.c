/* gram_mask.c - which tokens may come next: the last masks, and who makes a new one; see gram_mask.h. */
#include "grammar/gram_mask.h"

#include "core/clock.h"

#include <stdlib.h>

#define KEPT_NS 2000 /* a mask that was made faster is as fast made again as kept and found */

gram_pos gram_mask_key(const di_grammar *g, const di_vocabulary *v, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(&g->lexes, pos.lex);
    if (state->kind < LX_CHAR || state->kind > LX_LOW || state->words[2] == 0) {
        return pos;
    }
    const gram_span span = gram_span_at(&g->lexes, state->words[2]);
    const uint32_t reach = v->max_chars + 1; /* of one token */
    if (span.min == GRAM_INF) {
        return pos;
    }
    if (state->limit != GRAM_INF && (pos.n > state->limit || state->limit - pos.n <= reach)) {
        return pos;
    }
    if (pos.n >= span.min) {
        pos.n = span.min;
    } else if (span.min - pos.n > reach) {
        pos.n = 0;
    }
    return pos;
}

/* Inside of a text that is an item of an array of unique ones: at its end the text matters. */
static bool is_unique_item(const gram_machine *m, gram_pos pos, const gram_lex *state)
{
    const gram_json *j = &m->json;
    if (state->kind != LX_CHAR || state->mode != MODE_STRING || j->frames[pos.ctx].kind != FRAME_ARRAY) {
        return false;
    }
    return j->arr_plans[j->arr_views[j->frames[pos.ctx].view]->plan].unique;
}

static void compute(gram_mask_work *w, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(w->m->lexes, pos.lex);
    const bool text = state->kind >= LX_CHAR && state->kind <= LX_LOW;
    const bool checked = text && state->mode == MODE_KEY_CHECK;
    const bool declared = text && state->mode == MODE_KEY && w->m->lexes->vecs[state->words[1]].ex[0] != GRAM_EX_NONE;
    bool done = false;
    if (state->kind == LX_CHAR && (checked || declared)) {
        done = gram_mask_by_names(w, pos);
    } else if (!checked && state->kind != LX_ROW && !is_unique_item(w->m, pos, state)) {
        done = gram_mask_by_state(w, pos);
    }
    if (!done) {
        w->exactly = true;
        w->textual = false;
        gram_mask_fill(w, gram_mask_hits(w, pos, NULL));
    }
    gram_tokens_allow(w->g, w->v, pos, w->mask);
    if (gram_machine_accepts(w->m, pos)) {
        for (size_t i = 0; i < w->v->n_end_ids; i++) {
            w->mask[w->v->end_ids[i] / 32] |= 1u << w->v->end_ids[i] % 32;
        }
    }
}

static gram_cached_mask *find_cached(di_grammar *g, const di_vocabulary *v, gram_pos pos)
{
    for (int i = 0; i < GRAM_CACHED_MASKS; i++) {
        gram_cached_mask *one = &g->cache[i];
        if (one->vocabulary == v->id && one->mask != NULL && one->pos.ctx == pos.ctx && one->pos.lex == pos.lex && one->pos.n == pos.n) {
            return one;
        }
    }
    return NULL;
}

/* The entry that was used longest ago, with memory; NULL when there is none to be had. */
static gram_cached_mask *make_cached(di_grammar *g, const di_vocabulary *v)
{
    gram_cached_mask *oldest = &g->cache[0];
    for (int i = 1; i < GRAM_CACHED_MASKS; i++) {
        oldest = g->cache[i].used < oldest->used ? &g->cache[i] : oldest;
    }
    if (oldest->mask == NULL || oldest->words != v->words) {
        free(oldest->mask);
        oldest->mask = malloc(v->words * sizeof *oldest->mask);
        oldest->used = 0;
    }
    return oldest->mask != NULL ? oldest : NULL;
}

di_status gram_mask_at(di_grammar *g, di_vocabulary *v, gram_pos pos, const uint8_t *text, size_t n_text, uint32_t *mask, bool *restricts,
                       di_error *err)
{
    const size_t bytes = v->words * sizeof *mask;
    const gram_pos key = gram_mask_key(g, v, pos);
    gram_cached_mask *cached = find_cached(g, v, key);
    g->stats.n_masks++;
    if (cached != NULL) {
        g->stats.n_mask_hits++;
        cached->used = ++g->turn;
        memcpy(mask, cached->mask, bytes);
        *restricts = cached->restricts;
        return DI_OK;
    }
    if (!gram_walk_room(g, v)) {
        return err_memory(err, "walk over the tokens", v->max_depth * sizeof(gram_pos));
    }
    const int64_t start = clock_now_ns();
    gram_mask_work w = {.g = g, .m = &g->machine, .v = v, .text = text, .n_text = n_text, .start = pos, .mask = mask};
    if (!gram_begin_step(g)) {
        return gram_status(&g->mem, err);
    }
    compute(&w, key);
    if (gram_failed(&g->mem)) {
        return gram_status(&g->mem, err);
    }
    *restricts = memcmp(mask, v->all, bytes) != 0;
    const int64_t took = clock_now_ns() - start;
    g->stats.worst_mask_ns = took > g->stats.worst_mask_ns ? took : g->stats.worst_mask_ns;
    const bool kept = !w.textual && took >= KEPT_NS;
    cached = kept ? make_cached(g, v) : NULL;
    if (cached != NULL) {
        *cached = (gram_cached_mask){v->id, v->words, key, cached->mask, *restricts, ++g->turn};
        memcpy(cached->mask, mask, bytes);
    }
    return DI_OK;
}
