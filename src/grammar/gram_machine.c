/* gram_machine.c - see gram_machine.h. */
#include "grammar/gram_cfg.h"

bool gram_machine_init(gram_machine *m, gram_mem *mem, gram_forms *forms, gram_lexes *lexes)
{
    *m = (gram_machine){.mem = mem, .lang = forms->lang, .forms = forms, .lexes = lexes};
    m->events = gram_alloc(mem, GRAM_EVENTS, sizeof *m->events);
    return gram_json_init(&m->json, mem, forms, lexes) && m->events != NULL;
}

const uint32_t *gram_machine_row(gram_machine *m, uint32_t lex)
{
    const gram_lex *state = gram_lex_at(m->lexes, lex);
    const uint32_t *row = gram_lex_row(state);
    if (row != NULL) {
        return row;
    }
    if (state->kind >= LX_CHAR && state->kind <= LX_LOW) {
        gram_chars_fill(m->lexes, lex);
    } else if (state->kind == LX_ROW) {
        gram_cfg_fill(m->cfg, lex);
    } else {
        gram_js_fill(m, lex);
    }
    return gram_lex_row(gram_lex_at(m->lexes, lex));
}

static gram_event *event_of(const gram_machine *m, gram_pos from, uint8_t byte)
{
    const uint64_t key = (uint64_t)from.ctx * 0x9E3779B97F4A7C15u ^ (uint64_t)from.lex << 32 ^ (uint64_t)from.n << 8 ^ byte;
    return &m->events[key * 0xD6E8FEB86659FD93u >> 32 & (GRAM_EVENTS - 1)];
}

/* Steps that depend on the text are not kept for those who have one. */
static gram_step_result slow_step(gram_machine *m, gram_pos *pos, uint8_t byte, uint32_t hint, const gram_before *before)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos->lex);
    const bool of_grammar = state->kind == LX_ROW || state->mode == MODE_GRAMMAR;
    const bool looks_back = state->kind == LX_ROW || (byte == '"' && state->kind == LX_CHAR && state->mode >= MODE_KEY);
    const gram_pos from = *pos;
    gram_event *event = event_of(m, from, byte);
    if (event->byte == byte && event->from.ctx == from.ctx && event->from.lex == from.lex && event->from.n == from.n &&
        !(looks_back && before != NULL)) {
        *pos = event->to;
        return pos->lex != 0 ? GRAM_STEP_OK : GRAM_STEP_DEAD;
    }
    bool textual = false;
    gram_step_result result = of_grammar ? gram_cfg_step(m->cfg, pos, byte, hint, before, &textual)
                                         : gram_js_step(m, pos, byte, hint, before, &textual);
    if (!of_grammar && m->cfg != NULL && result == GRAM_STEP_OK && gram_js_is_done(m, *pos)) {
        result = gram_cfg_value_done(m->cfg, pos);
    }
    (void)gram_spend(m->mem, 4);
    if (gram_failed(m->mem)) {
        return GRAM_STEP_DEAD;
    }
    if (result != GRAM_STEP_EXACT && !(textual && before != NULL)) {
        *event = (gram_event){from, result == GRAM_STEP_OK ? *pos : (gram_pos){0, 0, 0}, byte};
    }
    return result;
}

gram_step_result gram_machine_step(gram_machine *m, gram_pos *pos, uint8_t byte, const gram_before *before)
{
    const uint32_t *row = gram_machine_row(m, pos->lex);
    const uint32_t cell = row != NULL ? gram_cell(row, byte) : GRAM_DEAD;
    if ((cell & GRAM_SLOW) != 0) {
        return slow_step(m, pos, byte, cell & GRAM_ID, before);
    }
    const uint32_t next = cell & GRAM_ID;
    const uint32_t n = pos->n + ((cell & GRAM_COUNT) != 0);
    if (next == 0 || ((cell & GRAM_CHECK) != 0 && n > gram_lex_at(m->lexes, next)->limit)) {
        return GRAM_STEP_DEAD;
    }
    pos->lex = next;
    pos->n = n;
    return GRAM_STEP_OK;
}

bool gram_machine_accepts(gram_machine *m, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos.lex);
    if (state->kind == LX_ROW) {
        return gram_cfg_accepts(m->cfg, pos);
    }
    if (state->kind >= LX_CHAR && state->kind <= LX_LOW && state->mode <= MODE_GRAMMAR) {
        return state->kind == LX_CHAR && gram_nullable(m->lang, m->lexes->vecs[state->words[1]].ex[0]);
    }
    return gram_js_is_done(m, pos);
}
