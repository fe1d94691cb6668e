/* gram_token.c - added tokens that a grammar names, and the ids that they have in a vocabulary. */
#include "grammar/gram_cfg.h"
#include "grammar/gram_grammar.h"

static int32_t id_of(const di_grammar *g, const di_vocabulary *v, uint32_t token)
{
    const gram_token_name *name = &g->machine.cfg->tokens[token];
    return name->spelling != NULL ? di_tokenizer_find(v->tokenizer, name->spelling, name->n) : name->id;
}

di_status gram_tokens_check(const di_grammar *g, const di_vocabulary *v, di_error *err)
{
    const uint32_t n = g->machine.cfg != NULL && v != NULL ? g->machine.cfg->n_tokens : 0;
    for (uint32_t i = 0; i < n; i++) {
        const gram_token_name *name = &g->machine.cfg->tokens[i];
        const int32_t id = id_of(g, v, i);
        const bool text = id >= 0 && id < v->n_ids && v->token_classes[id] != 0;
        if (id >= 0 && id < v->n_ids && !text && !gram_vocab_is_end(v, id)) {
            continue;
        }
        const char *why = text ? "is no added token" : id >= 0 && id < v->n_ids ? "ends a sequence" : "is not in the vocabulary";
        if (name->spelling != NULL) {
            const int n_shown = (int)(name->n < 80 ? name->n : 80);
            return err_set(err, DI_E_ARGUMENT, "the grammar names the token %.*s, which %s", n_shown, name->spelling, why);
        }
        return err_set(err, DI_E_ARGUMENT, "the grammar names the token %d, which %s", name->id, why);
    }
    return DI_OK;
}

void gram_tokens_allow(const di_grammar *g, const di_vocabulary *v, gram_pos pos, uint32_t *mask)
{
    uint32_t token;
    for (uint32_t i = 0; g->machine.cfg != NULL && (token = gram_cfg_token_at(g->machine.cfg, pos, i)) != GRAM_NONE; i++) {
        const int32_t id = id_of(g, v, token);
        mask[id / 32] |= 1u << id % 32;
    }
}

bool gram_tokens_take(di_grammar *g, const di_vocabulary *v, int32_t id, gram_pos *pos)
{
    uint32_t token;
    for (uint32_t i = 0; g->machine.cfg != NULL && (token = gram_cfg_token_at(g->machine.cfg, *pos, i)) != GRAM_NONE; i++) {
        if (id_of(g, v, token) == id) {
            return gram_cfg_take_token(g->machine.cfg, pos, token);
        }
    }
    return false;
}

bool gram_tokens_any(const di_grammar *g, gram_pos pos)
{
    return g->machine.cfg != NULL && gram_cfg_token_at(g->machine.cfg, pos, 0) != GRAM_NONE;
}
