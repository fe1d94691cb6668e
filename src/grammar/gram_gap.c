/* gram_gap.c - white space between the structural characters of JSON text, as the options have it. A gap is one word: where in its
 * language the white space so far is. */
#include "grammar/gram_machine.h"

#define MAX_INDENT 64
#define MAX_ANY 256

enum { GAP_OFF, GAP_NONE, GAP_SPACE, GAP_LINE, GAP_ANY, GAP_PATTERN }; /* from there on: expressions */

uint32_t gram_gap_start(const gram_machine *m)
{
    switch (m->gaps.kind) {
    case DI_WHITESPACE_ANY:
        return GAP_ANY;
    case DI_WHITESPACE_PATTERN:
        return GAP_PATTERN + m->gaps.pattern;
    case DI_WHITESPACE_COMPACT:
        return GAP_OFF;
    default:
        return GAP_NONE;
    }
}

bool gram_gap_may_end(const gram_machine *m, uint32_t gap)
{
    return gap < GAP_PATTERN || gram_nullable(m->lang, gap - GAP_PATTERN);
}

bool gram_gap_is_counted(uint32_t gap) { return gap == GAP_LINE || gap == GAP_ANY; }

/* The same state in another gap. */
static uint32_t with_gap(gram_machine *m, uint32_t lex, uint32_t gap)
{
    const gram_lex *state = gram_lex_at(m->lexes, lex);
    uint32_t words[2] = {gap, 0};
    const bool has_goal = state->kind == LX_VALUE || state->kind == LX_FIRST_ITEM;
    if (has_goal) {
        words[1] = state->words[1];
    }
    const uint32_t id = gram_lex_id(m->lexes, (gram_lex_kind)state->kind, words, has_goal ? 2 : 1);
    const uint32_t limit = gap == GAP_LINE ? MAX_INDENT : gap == GAP_ANY ? MAX_ANY : GRAM_INF;
    if (id != 0 && gram_lex_at(m->lexes, id)->limit != limit) { /* once, before others can see the state */
        gram_lex_at(m->lexes, id)->limit = limit;
    }
    return id;
}

void gram_gap_fill(gram_machine *m, uint32_t lex, uint32_t *row)
{
    const uint32_t gap = gram_lex_at(m->lexes, lex)->words[0];
    if (gap == GAP_NONE) {
        row[' '] = with_gap(m, lex, GAP_SPACE);
        row['\n'] = with_gap(m, lex, GAP_LINE);
    } else if (gap == GAP_LINE) {
        row[' '] = row['\t'] = lex | GRAM_COUNT | GRAM_CHECK;
    } else if (gap == GAP_ANY) {
        row[' '] = row['\t'] = row['\n'] = row['\r'] = with_gap(m, lex, GAP_ANY) | GRAM_COUNT | GRAM_CHECK;
    } else if (gap >= GAP_PATTERN) {
        for (const char *byte = " \t\n\r"; *byte != '\0'; byte++) {
            const gram_ex to = gram_step(m->lang, gap - GAP_PATTERN, (uint8_t)*byte);
            row[(uint8_t)*byte] = gram_empty(m->lang, to) ? GRAM_DEAD : with_gap(m, lex, GAP_PATTERN + to);
        }
    }
}
