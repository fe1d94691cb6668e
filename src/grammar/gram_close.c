/* gram_close.c - ending in time: completions for callers, and masks that leave out what could not be completed any
 * more. */
#include "grammar/gram_close.h"

#include <stdlib.h>

#define NEAR 64 /* masks are looked at when fewer tokens are left than this and twice what a completion needs */

static di_status ended(di_error *err)
{
    return err_set(err, DI_E_STATE, "the text has ended: nothing follows an end id");
}

/* Completion of the place that the matcher is in. */
static di_status complete_now(const di_matcher *m, gram_out *out, size_t *n, di_error *err)
{
    const gram_step_taken *now = gram_now(m);
    gram_lock(m->grammar);
    di_status status = gram_begin_step(m->grammar) ? DI_OK : gram_status(&m->grammar->mem, err);
    if (status == DI_OK) {
        status = gram_complete(m->grammar, now->pos, m->text, now->n_text, out, n, err);
    }
    gram_unlock(m->grammar);
    return status;
}

static void put(char *bytes, size_t capacity, size_t *n, const char *what, size_t n_what)
{
    for (size_t i = 0; i < n_what; i++, ++*n) {
        if (*n < capacity) {
            bytes[*n] = what[i];
        }
    }
}

static void put_token(const di_matcher *m, uint32_t token, char *bytes, size_t capacity, size_t *n)
{
    const gram_token_name *name = &m->grammar->machine.cfg->tokens[token];
    size_t n_spelling = name->n;
    const char *spelling = name->spelling;
    if (spelling == NULL && m->vocabulary != NULL) {
        spelling = (const char *)di_tokenizer_bytes(m->vocabulary->tokenizer, name->id, &n_spelling);
    }
    put(bytes, capacity, n, spelling != NULL ? spelling : "", spelling != NULL ? n_spelling : 0);
}

di_status di_matcher_completion(di_matcher *m, char *bytes, size_t capacity, size_t *n, size_t *n_tokens, di_error *err)
{
    size_t n_out;
    *n = 0;
    if (gram_now(m)->ended) {
        return ended(err);
    }
    if (n_tokens != NULL && m->vocabulary == NULL) {
        return err_set(err, DI_E_ARGUMENT, "the matcher has no vocabulary");
    }
    gram_out *out = malloc(GRAM_MAX_COMPLETION * sizeof *out);
    size_t *least = malloc((GRAM_MAX_COMPLETION + 1) * sizeof *least);
    di_status status = out != NULL && least != NULL ? complete_now(m, out, &n_out, err)
                                                    : err_memory(err, "completion", GRAM_MAX_COMPLETION * sizeof *least);
    for (size_t i = 0; status == DI_OK && i < n_out; i++) {
        if (out[i] < 256) {
            put(bytes, capacity, n, &(const char){(char)out[i]}, 1);
        } else {
            put_token(m, out[i] - 256, bytes, capacity, n);
        }
    }
    if (status == DI_OK && n_tokens != NULL) {
        *n_tokens = gram_least_tokens(m->vocabulary, out, n_out, least);
        status = *n_tokens == SIZE_MAX ? err_set(err, DI_E_LIMIT, "no tokens spell the shortest end of the text") : DI_OK;
    }
    free(out);
    free(least);
    return status;
}

/* --- Masks -------------------------------------------------------------------------------------------------------- */

typedef struct known { /* what the end needs behind a place */
    gram_pos pos;
    size_t need; /* tokens, the end id not counted; SIZE_MAX = too many */
    bool used;
} known;

#define N_KNOWN 4096u /* a power of two */

typedef struct closing {
    di_matcher *m;
    known *known;  /* [N_KNOWN] */
    uint32_t n_known;
    gram_out *out; /* [GRAM_MAX_COMPLETION] */
    size_t *least; /* [GRAM_MAX_COMPLETION + 1] */
} closing;

/* Tokens that the end needs from where the matcher is. */
static di_status need_now(closing *c, size_t *need, di_error *err)
{
    const gram_pos pos = gram_now(c->m)->pos;
    uint32_t i = (pos.ctx * 31 + pos.lex * 7 + pos.n) & (N_KNOWN - 1);
    for (; c->known[i].used; i = (i + 1) & (N_KNOWN - 1)) {
        const known *one = &c->known[i];
        if (one->pos.ctx == pos.ctx && one->pos.lex == pos.lex && one->pos.n == pos.n) {
            *need = one->need;
            return DI_OK;
        }
    }
    size_t n;
    di_error far;
    const di_status status = complete_now(c->m, c->out, &n, &far);
    *need = status == DI_OK ? gram_least_tokens(c->m->vocabulary, c->out, n, c->least) : SIZE_MAX;
    if (status != DI_OK && (status != DI_E_LIMIT || gram_failed(&c->m->grammar->mem))) {
        if (err != NULL) {
            *err = far;
        }
        return status;
    }
    if (c->n_known < N_KNOWN / 2) {
        c->known[i] = (known){pos, *need, true};
        c->n_known++;
    }
    return DI_OK;
}

/* Clears the tokens behind which more than n_left - 1 are needed, the end id included. *any: some are left. */
static di_status leave_out(closing *c, size_t n_left, uint32_t *mask, bool *any, bool *some_out, di_error *err)
{
    di_vocabulary *v = c->m->vocabulary;
    for (size_t w = 0; w < v->words; w++) {
        for (uint32_t bits = mask[w]; bits != 0; bits &= bits - 1) {
            const int32_t id = (int32_t)(w * 32 + (size_t)__builtin_ctz(bits));
            size_t need = 0;
            if (gram_vocab_is_end(v, id)) {
                *any = *any || n_left > 0;
                continue;
            }
            bool accepted;
            di_status status = di_matcher_accept(c->m, id, &accepted, err);
            if (status == DI_OK && accepted) {
                status = need_now(c, &need, err);
                c->m->n_steps--;
            }
            if (status != DI_OK) {
                return status;
            }
            const bool fits = accepted && need < SIZE_MAX && need + 2 <= n_left;
            *any = *any || fits;
            *some_out = *some_out || !fits;
            mask[w] &= ~(fits ? 0 : 1u << id % 32);
        }
    }
    return DI_OK;
}

/* The first token of the completion, as few as can be; an end id when there is nothing to complete. */
static void only_first(const closing *c, size_t n_out, uint32_t *mask)
{
    const di_vocabulary *v = c->m->vocabulary;
    memset(mask, 0, v->words * sizeof *mask);
    if (n_out == 0) {
        for (size_t i = 0; i < v->n_end_ids; i++) {
            mask[v->end_ids[i] / 32] |= 1u << v->end_ids[i] % 32;
        }
        return;
    }
    if (c->out[0] >= 256) {
        gram_tokens_allow(c->m->grammar, v, gram_now(c->m)->pos, mask);
        return;
    }
    const size_t all = gram_least_tokens(v, c->out, n_out, c->least);
    uint32_t node = 0;
    for (size_t k = 0; k < n_out && c->out[k] < 256 && (node = gram_kid_of(&v->tree, node, c->out[k])) != 0; k++) {
        const int32_t token = v->tree.nodes[node].token;
        if (token >= 0 && c->least[k + 1] + 1 == all) {
            mask[token / 32] |= 1u << token % 32;
        }
    }
}

static di_status within(closing *c, size_t n_left, uint32_t *mask, bool *some_out, di_error *err)
{
    size_t n_out;
    bool any = false;
    di_error far;
    di_status status = complete_now(c->m, c->out, &n_out, &far);
    if (status == DI_E_LIMIT && !gram_failed(&c->m->grammar->mem)) {
        return DI_OK; /* the end is not known, so nothing can be left out for its sake */
    }
    if (status != DI_OK) {
        if (err != NULL) {
            *err = far;
        }
        return status;
    }
    const size_t need = gram_least_tokens(c->m->vocabulary, c->out, n_out, c->least);
    if (need == SIZE_MAX || n_left / 2 > need + NEAR / 2) {
        return DI_OK;
    }
    if (need + 1 <= n_left) {
        status = leave_out(c, n_left, mask, &any, some_out, err);
    }
    if (status == DI_OK && !any) {
        status = complete_now(c->m, c->out, &n_out, err);
        *some_out = true;
        if (status == DI_OK) {
            only_first(c, n_out, mask);
        }
    }
    return status;
}

di_status di_matcher_mask_within(di_matcher *m, size_t n_left, uint32_t *mask, bool *restricts, bool *closing_out, di_error *err)
{
    bool some_out = false;
    closing c = {.m = m};
    di_status status = di_matcher_mask(m, mask, restricts, err);
    if (status == DI_OK && n_left <= 3 * GRAM_MAX_COMPLETION) {
        c.known = calloc(N_KNOWN, sizeof *c.known);
        c.out = malloc(GRAM_MAX_COMPLETION * sizeof *c.out);
        c.least = malloc((GRAM_MAX_COMPLETION + 1) * sizeof *c.least);
        status = c.known != NULL && c.out != NULL && c.least != NULL ? within(&c, n_left, mask, &some_out, err)
                                                  : err_memory(err, "completions", N_KNOWN * sizeof *c.known);
    }
    free(c.known);
    free(c.out);
    free(c.least);
    if (restricts != NULL && some_out) {
        *restricts = true;
    }
    if (closing_out != NULL) {
        *closing_out = some_out;
    }
    return status;
}
