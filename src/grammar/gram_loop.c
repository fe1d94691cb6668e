/* gram_loop.c - classes of characters that may follow a place in any order, for as long as a token is.
 *
 * All states that characters of some classes lead to are looked at, level by level. Where a class is dead early it is
 * left out; where it is dead late, or there are too many states, texts up to there are still fine. The result says
 * nothing about other tokens: those are walked over. */
#include "grammar/gram_mask.h"

#define PLAIN 0x7FF8u /* the classes that stand for themselves in JSON strings: not controls, quote, backslash */
#define ALL 0x7FFFu
#define MAX_STATES 48u
#define MAX_CHARS 24u /* of the tokens that it is about */
#define EARLY 4u      /* characters: texts so short are not worth a slice */

typedef struct search {
    gram_machine *m;
    bool counted;
    uint16_t classes;
    uint32_t chars;
    uint32_t least; /* characters needed behind, the least and the most seen */
    uint32_t most;
    uint32_t n;
    uint32_t vecs[MAX_STATES];
    uint8_t depth[MAX_STATES];
} search;

static void note_need(search *s, uint32_t vec)
{
    const uint32_t need = s->counted ? gram_lengths_of(s->m->lang, s->m->lexes->vecs[vec].ex[0]).min : 0;
    s->least = need < s->least ? need : s->least;
    s->most = need > s->most ? need : s->most;
}

static void add_state(search *s, uint32_t vec, uint32_t depth)
{
    note_need(s, vec);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->vecs[i] == vec) {
            return;
        }
    }
    if (s->n == MAX_STATES || depth == MAX_CHARS) {
        s->chars = depth < s->chars ? depth : s->chars;
        return;
    }
    s->vecs[s->n] = vec;
    s->depth[s->n++] = (uint8_t)depth;
}

/* Whether characters of a class all lead on; if so, the states behind them are added. */
static bool leads_on(search *s, const gram_vec_row *row, uint32_t class, uint32_t depth)
{
    const gram_char_class *ranges = &gram_char_classes[class];
    for (int add = 0; add < 2; add++) {
        for (uint32_t k = 0, i = 0; k < ranges->n; k++) {
            const uint32_t first = ranges->ranges[2 * k];
            const uint32_t last = ranges->ranges[2 * k + 1];
            while (row->seg[i].last < first) {
                i++;
            }
            for (uint32_t at = i; at < row->n && (at == i || row->seg[at - 1].last < last); at++) {
                if (row->seg[at].to == 0) {
                    return false;
                }
                if (add != 0) {
                    add_state(s, row->seg[at].to, depth + 1);
                }
            }
        }
    }
    return true;
}

static void look_at(search *s, uint32_t i)
{
    const uint32_t depth = s->depth[i];
    const gram_vec_row *row = gram_vec_row_of(s->m->lexes, s->vecs[i]);
    for (uint32_t class = 0; class < GRAM_N_CLASSES && depth < s->chars; class++) {
        if ((s->classes >> class & 1) == 0 || leads_on(s, row, class, depth)) {
            continue;
        }
        if (depth < EARLY) {
            s->classes &= (uint16_t)~(1u << class);
        } else {
            s->chars = depth;
        }
    }
}

/* Every text is the beginning of one of some expression of the vector, as far as its form tells. */
static bool is_open(const gram_machine *m, const gram_vec *vec)
{
    bool open = gram_ex_is_open(m->lang, vec->ex[0]);
    for (uint32_t i = 1; vec->any && !open && i < vec->n; i++) {
        open = gram_ex_is_open(m->lang, vec->ex[i]);
    }
    return open;
}

static void find_loops(gram_machine *m, gram_lex *state)
{
    const uint32_t vec = state->words[1];
    search s = {.m = m, .counted = state->words[2] != 0, .chars = GRAM_INF, .least = GRAM_INF};
    s.classes = state->mode <= MODE_GRAMMAR ? ALL : PLAIN;
    if (s.counted || !is_open(m, &m->lexes->vecs[vec])) {
        s.vecs[s.n++] = vec;
        for (uint32_t i = 0; i < s.n && s.classes != 0 && s.chars > EARLY && !gram_failed(m->mem); i++) {
            look_at(&s, i);
        }
    }
    const bool some = s.chars > EARLY && !gram_failed(m->mem);
    state->loops = some ? s.classes : 0;
    state->loop_chars = s.chars;
    state->loop_need = s.most;
    state->loops_alike = s.least >= s.most;
    state->looped = true;
}

gram_loops gram_loops_of(gram_machine *m, gram_pos pos)
{
    gram_lex *state = gram_lex_at(m->lexes, pos.lex);
    if (state->kind != LX_CHAR) {
        return (gram_loops){0, 0, false};
    }
    if (state->mode == MODE_KEY_CHECK) {
        return (gram_loops){m->json.obj_views[m->json.frames[pos.ctx].view]->open ? PLAIN : 0, GRAM_INF, true};
    }
    if (!state->looped) {
        find_loops(m, state);
    }
    gram_loops loops = {state->loops, state->loop_chars, state->loop_chars == GRAM_INF};
    if (state->words[2] != 0) {
        const uint32_t max = gram_span_at(m->lexes, state->words[2]).max;
        const uint64_t taken = (uint64_t)pos.n + state->loop_need;
        const uint32_t left = max == GRAM_INF ? GRAM_INF : taken < max ? (uint32_t)(max - taken) : 0;
        loops.exact = loops.exact && (max == GRAM_INF || state->loops_alike);
        loops.chars = left < loops.chars ? left : loops.chars;
    }
    return loops;
}
