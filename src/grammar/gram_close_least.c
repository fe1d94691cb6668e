/* gram_close_least.c - how many bytes are still to come at least, as a search for the end needs to know: never more than there will be. */
#include "grammar/gram_close.h"

static uint32_t least_of(gram_machine *m, uint32_t vec)
{
    uint32_t least = GRAM_INF;
    for (uint32_t i = 0; i < m->lexes->vecs[vec].n; i++) {
        const gram_ex ex = m->lexes->vecs[vec].ex[i];
        const uint32_t min = ex == GRAM_EX_NONE ? GRAM_INF : ex == GRAM_EX_EPS && i > 0 ? 1 : gram_lengths_of(m->lang, ex).min;
        least = min < least ? min : least;
    }
    return least;
}

#define LEAST_MEMBER 4u /* "":0 */

/* Bytes of the members that an object still asks for, when it says so plainly; `writing`: but for the one that is
 * being written. */
static uint32_t members_to_come(const gram_json *j, const gram_frame *frame, bool writing)
{
    const gram_obj_view *view = j->obj_views[frame->view];
    const gram_obj_state *state = &j->obj_states[view->state];
    const gram_obj_plan *plan = &j->obj_plans[state->plan];
    uint32_t bytes = 0;
    uint32_t n = 0;
    uint32_t longest = 0;
    for (uint32_t i = 0; state->simple && state->n_required != 0 && i < plan->n_names; i++) {
        if (gram_has(state->required, i) && !gram_has(view->seen, i) && frame->slot != i + 1) {
            uint32_t length;
            (void)gram_tuple_at(&j->forms->names, plan->names[i], &length);
            longest = length + LEAST_MEMBER > longest ? length + LEAST_MEMBER : longest;
            bytes += length + LEAST_MEMBER;
            n++;
        }
    }
    if (writing && frame->slot == 0) { /* it may be any of them */
        bytes -= longest;
    }
    const uint32_t missing = state->simple && state->min > view->count ? state->min - view->count : 0;
    n += writing && n != 0 && frame->slot == 0 ? UINT32_MAX : 0;
    return bytes + (missing > n + writing ? (missing - n - writing) * LEAST_MEMBER : 0);
}

/* Brackets of the containers around a place, and what they ask for. */
static uint32_t containers_to_come(const gram_json *j, gram_pos pos, bool in_name)
{
    uint32_t bytes = 0;
    uint32_t ctx = pos.ctx;
    for (bool inner = true; j->frames[ctx].kind != FRAME_ROOT && bytes < GRAM_MAX_COMPLETION; inner = false) {
        const gram_frame *frame = &j->frames[ctx];
        bytes += 1 + (frame->kind == FRAME_OBJECT ? members_to_come(j, frame, frame->slot != 0 || (inner && in_name)) : 0);
        ctx = frame->parent;
    }
    return bytes;
}

/* Bytes up to the end of the member or item that is being written, in this frame. */
static uint32_t member_to_come(const gram_lex *state)
{
    const bool in_text = state->kind >= LX_CHAR && state->kind <= LX_LOW;
    if (in_text) {
        return state->mode >= MODE_KEY ? 3 : 1; /* quote, colon and value */
    }
    return state->kind == LX_NEXT_KEY ? LEAST_MEMBER : state->kind == LX_COLON ? 2 : state->kind == LX_VALUE;
}

uint32_t gram_least_to_come(gram_machine *m, gram_pos pos)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos.lex);
    if (state->kind == LX_CHAR && state->mode <= MODE_GRAMMAR) {
        const uint32_t least = least_of(m, state->words[1]);
        return least < GRAM_MAX_COMPLETION ? least : 0;
    }
    if (state->kind == LX_ROW || (state->kind >= LX_CHAR && state->kind <= LX_LOW && state->mode <= MODE_GRAMMAR)) {
        return 0;
    }
    const bool in_text = state->kind >= LX_CHAR && state->kind <= LX_LOW;
    const uint32_t least = state->kind == LX_CHAR && state->mode == MODE_STRING ? least_of(m, state->words[1]) : 0;
    const bool in_name = state->kind == LX_NEXT_KEY || (in_text && state->mode >= MODE_KEY);
    return containers_to_come(&m->json, pos, in_name) + member_to_come(state) + (least < GRAM_MAX_COMPLETION ? least : 0);
}
