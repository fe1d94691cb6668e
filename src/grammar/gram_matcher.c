/* gram_matcher.c - where one sequence is in its grammar: a place for every step, and the text so far.
 *
 * Steps are kept, so that taking them back is forgetting them. The text is needed where the machine looks back (gram_machine.h). */
#include "grammar/gram_matcher.h"

#include "core/arith.h"
#include "core/err.h"

#include <stdlib.h>

#define MAX_MATCHED ((size_t)1 << 30)

static di_status push(di_matcher *m, gram_step_taken next, const uint8_t *bytes, size_t n, di_error *err)
{
    if (m->n_steps == m->capacity) {
        const size_t more = m->capacity * 2;
        gram_step_taken *steps = realloc(m->steps, more * sizeof *steps);
        if (steps == NULL) {
            return err_memory(err, "steps of a grammar", more * sizeof *steps);
        }
        m->steps = steps;
        m->capacity = more;
    }
    const size_t need = gram_now(m)->n_text + n;
    if (need > MAX_MATCHED) {
        return err_set(err, DI_E_LIMIT, "a text of more than %zu bytes is not matched", MAX_MATCHED);
    }
    if (need > m->text_capacity) {
        size_t more = m->text_capacity * 2;
        more = more < need ? need : more;
        uint8_t *text = realloc(m->text, more);
        if (text == NULL) {
            return err_memory(err, "text of a grammar", more);
        }
        m->text = text;
        m->text_capacity = more;
    }
    if (n != 0) {
        memcpy(m->text + gram_now(m)->n_text, bytes, n);
    }
    next.n_text = (uint32_t)need;
    m->steps[m->n_steps++] = next;
    return DI_OK;
}

di_status di_matcher_new(di_grammar *grammar, di_vocabulary *vocabulary, di_matcher **out, di_error *err)
{
    const di_status status = gram_tokens_check(grammar, vocabulary, err);
    if (status != DI_OK) {
        return status;
    }
    di_matcher *m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->capacity = 16;
        m->text_capacity = 64;
        m->steps = malloc(m->capacity * sizeof *m->steps);
        m->text = malloc(m->text_capacity);
    }
    if (m == NULL || m->steps == NULL || m->text == NULL) {
        if (m != NULL) {
            free(m->steps);
            free(m->text);
        }
        free(m);
        return err_memory(err, "matcher", sizeof *m);
    }
    di_grammar_retain(grammar);
    m->grammar = grammar;
    m->vocabulary = vocabulary;
    m->steps[m->n_steps++] = (gram_step_taken){.pos = grammar->machine.start};
    *out = m;
    return DI_OK;
}

void di_matcher_free(di_matcher *m)
{
    if (m == NULL) {
        return;
    }
    di_grammar_free(m->grammar);
    free(m->steps);
    free(m->text);
    free(m);
}

di_status di_matcher_fork(const di_matcher *m, di_matcher **out, di_error *err)
{
    di_matcher *copy = calloc(1, sizeof *copy);
    if (copy != NULL) {
        *copy = *m;
        copy->steps = malloc(m->capacity * sizeof *copy->steps);
        copy->text = malloc(m->text_capacity);
    }
    if (copy == NULL || copy->steps == NULL || copy->text == NULL) {
        if (copy != NULL) {
            free(copy->steps);
            free(copy->text);
        }
        free(copy);
        return err_memory(err, "matcher", m->capacity * sizeof *m->steps);
    }
    memcpy(copy->steps, m->steps, m->n_steps * sizeof *m->steps);
    memcpy(copy->text, m->text, gram_now(m)->n_text);
    di_grammar_retain(m->grammar);
    *out = copy;
    return DI_OK;
}

/* --- Steps -------------------------------------------------------------------------------------------------------- */

static di_status ended(di_error *err)
{
    return err_set(err, DI_E_STATE, "the text has ended: nothing follows an end id");
}

/* Goes over bytes from *pos on. Returns how many were taken; *pos is behind them. The lock is held. */
static size_t go(const di_matcher *m, gram_pos *pos, const uint8_t *text, size_t n_text, const uint8_t *bytes, size_t n)
{
    gram_machine *machine = &m->grammar->machine;
    for (size_t i = 0; i < n; i++) {
        const gram_before before = {text, n_text, bytes, i};
        if (gram_machine_step(machine, pos, bytes[i], &before) != GRAM_STEP_OK) {
            return i;
        }
    }
    return n;
}

/* The bytes of a token that texts are made of; NULL for others. */
static const uint8_t *token_bytes(const di_matcher *m, int32_t id, size_t *n)
{
    const di_vocabulary *v = m->vocabulary;
    *n = 0;
    if (v == NULL || id < 0 || id >= v->n_ids || v->token_classes[id] == 0) {
        return NULL;
    }
    return di_tokenizer_bytes(v->tokenizer, id, n);
}

static di_status accept_end(di_matcher *m, bool *accepted, di_error *err)
{
    gram_lock(m->grammar);
    const bool complete = gram_begin_step(m->grammar) && gram_machine_accepts(&m->grammar->machine, gram_now(m)->pos);
    const di_status status = gram_status(&m->grammar->mem, err);
    gram_unlock(m->grammar);
    *accepted = complete && status == DI_OK;
    return *accepted ? push(m, (gram_step_taken){.pos = gram_now(m)->pos, .ended = true}, NULL, 0, err) : status;
}

static di_status accept(di_matcher *m, const uint8_t *bytes, size_t n, size_t *n_accepted, di_error *err)
{
    gram_pos pos = gram_now(m)->pos;
    gram_lock(m->grammar);
    *n_accepted = gram_begin_step(m->grammar) ? go(m, &pos, m->text, gram_now(m)->n_text, bytes, n) : 0;
    const di_status status = gram_status(&m->grammar->mem, err);
    gram_unlock(m->grammar);
    if (status != DI_OK || *n_accepted < n) {
        return status;
    }
    return push(m, (gram_step_taken){.pos = pos}, bytes, n, err);
}

/* A token that is no text. */
static di_status accept_named(di_matcher *m, int32_t id, bool *accepted, di_error *err)
{
    gram_pos pos = gram_now(m)->pos;
    if (m->vocabulary == NULL || m->grammar->machine.cfg == NULL) {
        return DI_OK;
    }
    gram_lock(m->grammar);
    const bool taken = gram_begin_step(m->grammar) && gram_tokens_take(m->grammar, m->vocabulary, id, &pos);
    const di_status status = gram_status(&m->grammar->mem, err);
    gram_unlock(m->grammar);
    *accepted = taken && status == DI_OK;
    return *accepted ? push(m, (gram_step_taken){.pos = pos}, NULL, 0, err) : status;
}

di_status di_matcher_accept(di_matcher *m, int32_t id, bool *accepted, di_error *err)
{
    *accepted = false;
    if (gram_now(m)->ended) {
        return ended(err);
    }
    if (m->vocabulary != NULL && gram_vocab_is_end(m->vocabulary, id)) {
        return accept_end(m, accepted, err);
    }
    size_t n;
    size_t n_accepted;
    const uint8_t *bytes = token_bytes(m, id, &n);
    if (bytes == NULL) {
        return accept_named(m, id, accepted, err);
    }
    const di_status status = accept(m, bytes, n, &n_accepted, err);
    *accepted = status == DI_OK && n_accepted == n;
    return status;
}

di_status di_matcher_accept_bytes(di_matcher *m, const char *bytes, size_t n, size_t *n_accepted, di_error *err)
{
    *n_accepted = 0;
    return gram_now(m)->ended ? ended(err) : accept(m, (const uint8_t *)bytes, n, n_accepted, err);
}

size_t di_matcher_steps(const di_matcher *m) { return m->n_steps - 1; }

di_status di_matcher_rollback(di_matcher *m, size_t n, di_error *err)
{
    if (n >= m->n_steps) {
        return err_set(err, DI_E_ARGUMENT, "%zu steps can't be taken back: there were %zu", n, m->n_steps - 1);
    }
    m->n_steps -= n;
    return DI_OK;
}

/* --- Questions ---------------------------------------------------------------------------------------------------- */

di_status di_matcher_mask(di_matcher *m, uint32_t *mask, bool *restricts, di_error *err)
{
    bool any;
    if (m->vocabulary == NULL) {
        return err_set(err, DI_E_ARGUMENT, "the matcher has no vocabulary");
    }
    if (gram_now(m)->ended) {
        return ended(err);
    }
    gram_lock(m->grammar);
    const di_status status = gram_mask_at(m->grammar, m->vocabulary, gram_now(m)->pos, m->text, gram_now(m)->n_text, mask,
                                          restricts != NULL ? restricts : &any, err);
    gram_unlock(m->grammar);
    return status;
}

di_status di_matcher_is_complete(di_matcher *m, bool *out, di_error *err)
{
    gram_lock(m->grammar);
    *out = !gram_now(m)->ended && gram_begin_step(m->grammar) && gram_machine_accepts(&m->grammar->machine, gram_now(m)->pos);
    const di_status status = gram_status(&m->grammar->mem, err);
    gram_unlock(m->grammar);
    return status;
}

/* The bytes that may follow, up to two of them; *n is their number. The lock is held. */
static uint8_t next_bytes(const di_matcher *m, gram_pos pos, const uint8_t *tail, size_t n_tail, int *n, gram_pos *behind)
{
    uint8_t found = 0;
    *n = 0;
    const uint32_t *row = gram_machine_row(&m->grammar->machine, pos.lex);
    for (uint32_t byte = 0; row != NULL && byte < 256 && *n < 2; byte++) {
        gram_pos to = pos;
        const gram_before before = {m->text, gram_now(m)->n_text, tail, n_tail};
        if (row[byte] != GRAM_DEAD && gram_machine_step(&m->grammar->machine, &to, (uint8_t)byte, &before) == GRAM_STEP_OK) {
            found = (uint8_t)byte;
            *behind = to;
            ++*n;
        }
    }
    return found;
}

di_status di_matcher_is_final(di_matcher *m, bool *out, di_error *err)
{
    int n = 0;
    gram_pos behind;
    gram_lock(m->grammar);
    if (gram_begin_step(m->grammar) && !gram_now(m)->ended && gram_machine_accepts(&m->grammar->machine, gram_now(m)->pos)) {
        (void)next_bytes(m, gram_now(m)->pos, NULL, 0, &n, &behind);
        *out = n == 0 && !gram_tokens_any(m->grammar, gram_now(m)->pos);
    } else {
        *out = false;
    }
    const di_status status = gram_status(&m->grammar->mem, err);
    gram_unlock(m->grammar);
    return status;
}

di_status di_matcher_forced(di_matcher *m, char *bytes, size_t capacity, size_t *n, di_error *err)
{
    *n = 0;
    if (gram_now(m)->ended) {
        return ended(err);
    }
    gram_pos pos = gram_now(m)->pos;
    gram_lock(m->grammar);
    bool one = gram_begin_step(m->grammar);
    while (one && *n < capacity && !gram_machine_accepts(&m->grammar->machine, pos) && !gram_tokens_any(m->grammar, pos)) {
        int n_bytes;
        gram_pos behind = pos;
        const uint8_t byte = next_bytes(m, pos, (const uint8_t *)bytes, *n, &n_bytes, &behind);
        one = n_bytes == 1 && !gram_failed(&m->grammar->mem);
        if (one) {
            bytes[(*n)++] = (char)byte;
            pos = behind;
        }
    }
    const di_status status = gram_status(&m->grammar->mem, err);
    gram_unlock(m->grammar);
    return status;
}

/* --- Drafts ------------------------------------------------------------------------------------------------------- */

di_status di_matcher_validate(di_matcher *m, const int32_t *ids, size_t n, size_t *n_valid, di_error *err)
{
    const size_t before = m->n_steps;
    di_status status = DI_OK;
    bool accepted = true;
    *n_valid = 0;
    while (status == DI_OK && accepted && *n_valid < n && !gram_now(m)->ended) {
        status = di_matcher_accept(m, ids[*n_valid], &accepted, err);
        *n_valid += accepted;
    }
    m->n_steps = before;
    return status;
}

di_status di_matcher_mask_chain(di_matcher *m, const int32_t *ids, size_t n, uint32_t *rows, size_t *n_valid, di_error *err)
{
    const size_t before = m->n_steps;
    bool accepted = true;
    *n_valid = 0;
    di_status status = di_matcher_mask(m, rows, NULL, err);
    for (size_t i = 0; status == DI_OK && accepted && i < n && !gram_now(m)->ended; i++) {
        status = di_matcher_accept(m, ids[i], &accepted, err);
        if (status == DI_OK && accepted) {
            *n_valid = i + 1;
            if (!gram_now(m)->ended) {
                status = di_matcher_mask(m, rows + (i + 1) * m->vocabulary->words, NULL, err);
            }
        }
    }
    m->n_steps = before;
    return status;
}

/* The steps from the root to token i; false when one of them is not allowed. */
static di_status go_to_node(di_matcher *m, const int32_t *ids, const int32_t *parent, const bool *valid, int32_t i, bool *there,
                            di_error *err)
{
    int32_t up = parent[i];
    *there = up < 0 || valid[up];
    di_status status = DI_OK;
    if (*there && up >= 0) {
        status = go_to_node(m, ids, parent, valid, up, there, err);
    }
    if (status == DI_OK && *there && gram_now(m)->ended) {
        *there = false;
    } else if (status == DI_OK && *there) {
        status = di_matcher_accept(m, ids[i], there, err);
    }
    return status;
}

di_status di_matcher_mask_tree(di_matcher *m, const int32_t *ids, const int32_t *parent, size_t n, uint32_t *rows, bool *valid,
                               di_error *err)
{
    const size_t before = m->n_steps;
    di_status status = di_matcher_mask(m, rows, NULL, err);
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        if (parent[i] >= (int32_t)i) {
            status = err_set(err, DI_E_ARGUMENT, "token %zu of a tree stands before its parent", i);
            break;
        }
        status = go_to_node(m, ids, parent, valid, (int32_t)i, &valid[i], err);
        if (status == DI_OK && valid[i] && !gram_now(m)->ended) {
            status = di_matcher_mask(m, rows + (i + 1) * m->vocabulary->words, NULL, err);
        }
        m->n_steps = before;
    }
    return status;
}
