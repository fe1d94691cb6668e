/* gram_mask_key.c - masks inside of a member's name that the context must look at; see gram_mask.h.
 *
 * Such a name is a declared one or one of a class. Names of classes are a state of their own, the same for all contexts
 * that allow these classes, so their mask is kept. What it lacks lies along the declared names, and what it has too much
 * lies along the names that were used before: a walk along these two decides there. Where the text has left both, names
 * of classes are all there is. */
#include "grammar/gram_mask.h"

typedef gram_name_place place;

typedef struct char_bits { /* ASCII characters, or bytes; those beyond ASCII are alike */
    uint64_t bits[4];
} char_bits;

static bool has_bit(const uint64_t bits[4], uint32_t i) { return (bits[i / 64] >> i % 64 & 1) != 0; }

static void set_bit(uint64_t bits[4], uint32_t i) { bits[i / 64] |= (uint64_t)1 << i % 64; }

/* First characters of declared names and of used ones. */
static char_bits first_chars(gram_machine *m, gram_ex words, gram_used used)
{
    char_bits chars = {{0}};
    const gram_row *row = gram_row_of(m->lang, words);
    for (uint32_t i = 0, from = 0; i < row->n && from < 0x80; from = row->seg[i].last + 1, i++) {
        for (uint32_t c = from; row->seg[i].to != GRAM_EX_NONE && c < 0x80 && c <= row->seg[i].last; c++) {
            set_bit(chars.bits, c);
        }
    }
    for (uint32_t i = row->n; i > 0 && row->seg[i - 1].last >= 0x80; i--) {
        chars.bits[2] |= row->seg[i - 1].to != GRAM_EX_NONE;
    }
    gram_used_first(&m->json.used, used, chars.bits);
    chars.bits[2] = chars.bits[3] = chars.bits[2] != 0 ? UINT64_MAX : 0;
    return chars;
}

/* Letters behind a backslash that may stand for one of the characters, or begin to. */
static char_bits escape_letters(const gram_lexes *x, const char_bits *chars)
{
    char_bits letters = {{0}};
    for (size_t i = 0; gram_short_chars[i] != '\0'; i++) {
        if (has_bit(chars->bits, (uint8_t)gram_short_chars[i])) {
            set_bit(letters.bits, (uint8_t)gram_short_escapes[i]);
        }
    }
    const uint64_t any = chars->bits[0] | chars->bits[1] | chars->bits[2];
    if ((chars->bits[0] & UINT32_MAX) != 0 || (x->escapes_all && any != 0)) {
        set_bit(letters.bits, 'u');
    }
    return letters;
}

/* Bytes that characters begin with, as they are or escaped. */
static char_bits first_bytes(const gram_lexes *x, const char_bits *chars)
{
    const char_bits letters = escape_letters(x, chars);
    char_bits bytes = *chars;
    bytes.bits[0] &= ~((uint64_t)1 << '"');
    bytes.bits['\\' / 64] &= ~((uint64_t)1 << '\\' % 64);
    if ((letters.bits[0] | letters.bits[1]) != 0) {
        set_bit(bytes.bits, '\\');
    }
    return bytes;
}

/* The place at `pos`; false when it is on no way any more. */
static bool place_at(gram_machine *m, gram_pos pos, place *out)
{
    const gram_lex *state = gram_lex_at(m->lexes, pos.lex);
    const bool ended = state->kind < LX_CHAR || state->kind > LX_LOW;
    const gram_used used = !ended && state->mode == MODE_KEY_CHECK ? pos.n : GRAM_NONE_USED;
    *out = (place){.pos = pos, .used = used != GRAM_NONE_USED};
    if (state->kind == LX_COLON) { /* whatever the name, so what is dead here is so in names of classes as well */
        out->colon = gram_machine_row(m, pos.lex);
    }
    if (state->kind == LX_HEX) { /* its row would be long to make, and hardly any token goes on here */
        out->path[0] = (uint64_t)0x3FF << '0';
        out->path[1] = (uint64_t)0x3F << ('A' - 64) | (uint64_t)0x3F << ('a' - 64);
        return true;
    }
    if (state->kind != LX_CHAR && state->kind != LX_ESCAPE) {
        memset(out->path, 0xFF, sizeof out->path);
        return true;
    }
    const gram_ex words = m->lexes->vecs[state->words[1]].ex[0];
    const char_bits chars = first_chars(m, words, used);
    const char_bits bytes = state->kind == LX_CHAR ? first_bytes(m->lexes, &chars) : escape_letters(m->lexes, &chars);
    memcpy(out->path, bytes.bits, sizeof out->path);
    if (state->kind == LX_CHAR && (gram_nullable(m->lang, words) || gram_used_ends(&m->json.used, used))) {
        set_bit(out->path, '"');
    }
    return words != GRAM_EX_NONE || out->used;
}

static void forbid_all(const gram_mask_work *w, const gram_trie_node *node)
{
    for (uint32_t i = 0; i < node->size; i++) {
        gram_mask_forbid(w, node[i].token);
    }
}

static bool is_on_way(const place *p, uint8_t byte)
{
    return has_bit(p->path, byte) && (p->colon == NULL || p->colon[byte] != GRAM_DEAD);
}

/* Decides all tokens along the ways. `loose`: some of them may be allowed wrongly, but only where a name ends, since every text begins
 * one: tokens without a quote are right as they are. False when the text is needed. */
static bool walk_along(gram_mask_work *w, const place *start, bool loose)
{
    place *stack = w->g->places;
    const gram_tree *tree = &w->v->tree;
    const uint16_t wanted = loose ? GRAM_QUOTES : UINT16_MAX;
    uint32_t depth = 0;
    stack[0] = *start;
    stack[0].kid = tree->first[0];
    stack[0].end = tree->first[1];
    for (;;) {
        place *above = &stack[depth];
        while (above->kid < above->end && !is_on_way(above, tree->bytes[above->kid])) {
            above->kid++;
        }
        if (above->kid == above->end) {
            if (depth-- == 0) {
                return true;
            }
            continue;
        }
        const uint32_t i = tree->kids[above->kid];
        const uint8_t byte = tree->bytes[above->kid++];
        if ((tree->nodes[i].classes & wanted) == 0) {
            continue;
        }
        gram_pos pos = above->pos;
        const gram_step_result result = gram_machine_step(w->m, &pos, byte, NULL);
        if (result == GRAM_STEP_EXACT) {
            return false;
        }
        if (result == GRAM_STEP_DEAD) {
            if (loose || above->used) {
                forbid_all(w, &tree->nodes[i]);
            }
        } else if (place_at(w->m, pos, &stack[depth + 1])) {
            gram_mask_allow(w, tree->nodes[i].token);
            depth++;
            stack[depth].kid = tree->first[i];
            stack[depth].end = tree->first[i + 1];
        }
    }
}

/* The state whose mask to begin with; 0 = nothing is allowed. Where the only class is all names but the declared ones, it
 * may as well be all names (*loose): the difference lies along the declared names, and the state is the same for all
 * such objects. */
static uint32_t names_to_begin_with(gram_mask_work *w, gram_pos pos, bool *loose)
{
    const gram_json *j = &w->m->json;
    const gram_obj_view *view = j->obj_views[j->frames[pos.ctx].view];
    const gram_obj_plan *plan = &j->obj_plans[j->obj_states[view->state].plan];
    *loose = plan->n_patterns == 0 && plan->n_classes == 1 && view->classes != 0 && view->open;
    if (!*loose) {
        return gram_js_class_names(w->m, pos.ctx, gram_lex_at(w->m->lexes, pos.lex)->words[1]);
    }
    const uint32_t vec = gram_vec_id(w->m->lexes, (const gram_ex[]){GRAM_EX_NONE, GRAM_EX_ANY}, 2, true);
    return gram_chars_state(w->m->lexes, MODE_KEY, vec, 0);
}

bool gram_mask_by_names(gram_mask_work *w, gram_pos pos)
{
    bool loose;
    place start;
    const uint32_t names = names_to_begin_with(w, pos, &loose);
    if (gram_failed(w->m->mem)) {
        return false;
    }
    if (names == 0) {
        memset(w->mask, 0, w->v->words * sizeof *w->mask);
    } else if (!gram_mask_by_state(w, (gram_pos){pos.ctx, names, GRAM_NONE_USED})) {
        return false;
    }
    return !place_at(w->m, pos, &start) || (walk_along(w, &start, loose) && !gram_failed(w->m->mem));
}
