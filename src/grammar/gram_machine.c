/* gram_machine.c - see gram_machine.h. */
#include "grammar/gram_machine.h"

bool gram_machine_init(gram_machine *m, gram_mem *mem, gram_forms *forms, gram_lexes *lexes)
{
    *m = (gram_machine){.mem = mem, .lang = forms->lang, .forms = forms, .lexes = lexes};
    return gram_json_init(&m->json, mem, forms, lexes);
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
    } else {
        gram_js_fill(m, lex);
    }
    return gram_lex_row(gram_lex_at(m->lexes, lex));
}

/* Events that depend on the text are not kept for those who have one. */
static gram_step_result slow_step(gram_machine *m, gram_pos *pos, uint8_t byte, uint32_t hint, const gram_before *before)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos->lex);
    const bool ends_name = byte == '"' && state->kind == LX_CHAR && state->mode >= MODE_KEY;
    const uint32_t key[] = {pos->ctx, pos->lex, pos->n, byte};
    if (!(ends_name && before != NULL)) {
        const uint32_t known = gram_tuple_find(m->mem, &m->events, key, 4);
        if (known != GRAM_NONE) {
            *pos = m->event_to[known];
            return pos->lex != 0 ? GRAM_STEP_OK : GRAM_STEP_DEAD;
        }
    }
    bool textual = false;
    const gram_step_result result = gram_js_step(m, pos, byte, hint, before, &textual);
    (void)gram_spend(m->mem, 4);
    if (gram_failed(m->mem)) {
        return GRAM_STEP_DEAD;
    }
    if (result == GRAM_STEP_EXACT || (textual && before != NULL)) {
        return result;
    }
    const uint32_t id = gram_tuple(m->mem, &m->events, key, 4, NULL);
    gram_pos *to = gram_grow(m->mem, m->event_to, id, &m->event_capacity, sizeof *to);
    if (to == NULL) {
        return GRAM_STEP_DEAD;
    }
    m->event_to = to;
    to[id] = result == GRAM_STEP_OK ? *pos : (gram_pos){0, 0, 0};
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
    if (state->kind == LX_CHAR && state->mode == MODE_RAW) {
        return gram_nullable(m->lang, m->lexes->vecs[state->words[1]].ex[0]);
    }
    return gram_js_accepts(m, pos);
}
