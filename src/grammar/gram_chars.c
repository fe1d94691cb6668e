/* gram_chars.c - from characters to bytes: the states inside of a text, filled from the derivatives of its vector.
 *
 * In plain text a character is its UTF-8. In a JSON string it is its UTF-8 (but for the quote, the backslash and controls), or
 * an escape: the short ones, \u00XX for controls that have no short one, and with escapes_all \uXXXX for every character. Either
 * way only well-formed characters can be begun, and only those that lead somewhere. */
#include "grammar/gram_lex.h"

#include "core/utf8.h"

enum { W_MODE, W_VEC, W_SPAN, W_FIRST, W_LAST, W_LEFT }; /* words of LX_TAIL and LX_SKIP */
enum { W_VALUE = 3, W_DIGITS, W_HIGH };                 /* of LX_HEX */
enum { W_SURROGATE = 3, W_BACKSLASH };                  /* of LX_LOW */

const char gram_short_escapes[9] = "\"\\/bfnrt";
const char gram_short_chars[9] = "\"\\/\b\f\n\r\t";

static bool is_json(uint32_t mode) { return mode >= MODE_STRING; }

/* Written once, before others can see the state; later it is the same. */
static void set_limit(gram_lexes *x, uint32_t id, uint32_t limit)
{
    gram_lex *state = gram_lex_at(x, id);
    if (state->limit != limit) {
        state->limit = limit;
    }
}

uint32_t gram_chars_state(gram_lexes *x, gram_mode mode, uint32_t vec, uint32_t span)
{
    if (vec == 0) {
        return 0;
    }
    const uint32_t id = gram_lex_id(x, LX_CHAR, (const uint32_t[]){mode, vec, span}, 3);
    if (span != 0 && id != 0) {
        const uint32_t max = gram_span_at(x, span).max;
        const uint32_t need = gram_lengths_of(x->lang, x->vecs[vec].ex[0]).min;
        set_limit(x, id, max == GRAM_INF ? GRAM_INF : max >= need ? max - need : 0);
    }
    return id;
}

/* Flags of a cell that leads to `id`; `ends` tells whether a character ends with it. */
static uint32_t cell(const uint32_t *w, uint32_t id, bool ends)
{
    if (id == 0) {
        return GRAM_DEAD;
    }
    const bool counted = w[W_SPAN] != 0;
    const bool checked = w[W_MODE] == MODE_KEY_CHECK;
    return id | (checked ? GRAM_SLOW : 0) | (counted ? GRAM_CHECK | (ends ? GRAM_COUNT : 0) : 0);
}

/* --- What a range of characters leads to -------------------------------------------------------------------------- */

typedef struct reach {
    uint32_t vec;  /* the one vector, when `uniform` */
    bool alive;
    bool uniform;  /* all lead to it */
    uint32_t need; /* least number of characters behind the one in the range, for counted texts */
} reach;

static reach reach_of(gram_lexes *x, uint32_t vec, uint32_t first, uint32_t last, bool counted)
{
    const gram_vec_row *row = gram_vec_row_of(x, vec);
    reach all = {.uniform = true, .need = GRAM_INF};
    uint32_t i = 0;
    for (uint32_t from = 0, to = row->n - 1; from < to;) { /* the segment of the first character */
        const uint32_t middle = from + (to - from) / 2;
        if (row->seg[middle].last < first) {
            from = middle + 1;
        } else {
            to = middle;
        }
        i = from;
    }
    for (bool begun = false; i < row->n; i++) {
        const uint32_t to = row->seg[i].to;
        all.uniform = all.uniform && (!begun || to == all.vec);
        all.vec = to;
        begun = true;
        if (to != 0) {
            all.alive = true;
            const uint32_t need = counted ? gram_lengths_of(x->lang, x->vecs[to].ex[0]).min : 0;
            all.need = need < all.need ? need : all.need;
        }
        if (row->seg[i].last >= last) {
            break;
        }
    }
    return all;
}

/* Inside of a counted text: the character that is being written counts, and `need` more must fit behind it. */
static uint32_t with_limit(gram_lexes *x, uint32_t id, uint32_t span, uint32_t need)
{
    if (span != 0 && id != 0) {
        const uint32_t max = gram_span_at(x, span).max;
        set_limit(x, id, max == GRAM_INF ? GRAM_INF : max > need ? max - need - 1 : 0);
    }
    return id;
}

/* A place inside of a character that must fit may have a count at which nothing fits at all: max = need. */
static bool can_fit(const gram_lexes *x, uint32_t span, uint32_t need)
{
    return span == 0 || gram_span_at(x, span).max > need;
}

/* --- UTF-8 -------------------------------------------------------------------------------------------------------- */

/* The state in which `left` more bytes make a character of [first, last]. */
static uint32_t tail_state(gram_lexes *x, const uint32_t *w, uint32_t first, uint32_t last, uint32_t left)
{
    const reach all = reach_of(x, w[W_VEC], first, last, w[W_SPAN] != 0);
    if (!all.alive || !can_fit(x, w[W_SPAN], all.need)) {
        return 0;
    }
    const uint32_t size = 1u << (6 * left);
    const bool whole = last - first == size - 1;
    uint32_t words[] = {w[W_MODE], w[W_VEC], w[W_SPAN], first, last, left};
    const bool skip = all.uniform && w[W_MODE] != MODE_KEY_CHECK; /* there it matters which character it is */
    if (skip) {
        words[W_VEC] = all.vec;
        words[W_FIRST] = whole ? 0 : first;
        words[W_LAST] = whole ? size - 1 : last;
    }
    return with_limit(x, gram_lex_id(x, skip ? LX_SKIP : LX_TAIL, words, 6), w[W_SPAN], all.need);
}

static uint32_t char_cell(gram_lexes *x, const uint32_t *w, uint32_t to)
{
    const uint32_t one = cell(w, gram_chars_state(x, (gram_mode)w[W_MODE], to, w[W_SPAN]), true);
    return w[W_MODE] == MODE_GRAMMAR && one != GRAM_DEAD && gram_vec_turns(x, to) ? one | GRAM_SLOW : one;
}

/* The state behind the first byte of a longer character. */
static uint32_t lead_state(gram_lexes *x, const uint32_t *w, uint32_t b)
{
    const uint32_t left = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
    const uint32_t bits = b & (0x3Fu >> left);
    uint32_t first = bits << (6 * left);
    uint32_t last = first + (1u << (6 * left)) - 1;
    first = b == 0xE0 ? 0x800 : b == 0xF0 ? 0x10000 : first; /* shorter forms exist below */
    last = b == 0xED ? 0xD7FF : b == 0xF4 ? GRAM_LAST_CHAR : last;
    return tail_state(x, w, first, last, left);
}

/* Where all of these characters lead to one vector, bytes behind which equally many follow without an exception lead to one state. Where
 * the context decides, states are made when it is asked (gram_chars_next). */
static void fill_lead_bytes(gram_lexes *x, const uint32_t *w, uint32_t *row)
{
    const reach low = reach_of(x, w[W_VEC], 0x80, 0xD7FF, false);
    const reach high = reach_of(x, w[W_VEC], 0xE000, GRAM_LAST_CHAR, false);
    const bool uniform = low.uniform && high.uniform && low.vec == high.vec;
    for (uint32_t b = 0xC2; b < 0xF5; b++) {
        const bool alike = (b > 0xC2 && b < 0xE0) || (b > 0xE1 && b < 0xF0 && b != 0xED && b != 0xEE) || (b > 0xF1 && b < 0xF4);
        if (w[W_MODE] == MODE_KEY_CHECK) {
            row[b] = GRAM_SLOW;
        } else if (uniform && alike) {
            row[b] = row[b - 1];
        } else {
            row[b] = cell(w, lead_state(x, w, b), false);
        }
    }
}

/* Some character from `first` on leads on. */
static bool leads_beyond(const gram_vec_row *row, uint32_t first)
{
    uint32_t i = row->n;
    while (i > 0 && row->seg[i - 1].last >= first && row->seg[i - 1].to == 0) {
        i--;
    }
    return i > 0 && row->seg[i - 1].last >= first;
}

/* Some character of the range has an escape. */
static bool has_escape(const gram_lexes *x, uint32_t first, uint32_t last)
{
    if (x->escapes_all) {
        return first < 0xD800 || last > 0xDFFF;
    }
    const bool quote = first <= '"' && last >= '"';
    const bool slash = first <= '/' && last >= '/';
    return first < 0x20 || quote || slash || (first <= '\\' && last >= '\\');
}

static void fill_char(gram_lexes *x, const uint32_t *w, uint32_t *row)
{
    const gram_vec_row *segs = gram_vec_row_of(x, w[W_VEC]);
    const bool json = is_json(w[W_MODE]);
    for (uint32_t i = 0, c = 0; i < segs->n && c < 0x80; i++) {
        const uint32_t to = segs->seg[i].to != 0 ? char_cell(x, w, segs->seg[i].to) : GRAM_DEAD;
        for (; c <= segs->seg[i].last && c < 0x80; c++) {
            row[c] = json && (c < 0x20 || c == '"' || c == '\\') ? GRAM_DEAD : to;
        }
    }
    if (leads_beyond(segs, 0x80)) {
        fill_lead_bytes(x, w, row);
    }
    if (!json) {
        return;
    }
    row['"'] = GRAM_SLOW;
    /* A backslash may begin any escape that fits. */
    uint32_t need = GRAM_INF;
    bool any = false;
    for (uint32_t i = 0, first = 0; i < segs->n; first = segs->seg[i].last + 1, i++) {
        const uint32_t to = segs->seg[i].to;
        if (to != 0 && has_escape(x, first, segs->seg[i].last)) {
            const uint32_t one = w[W_SPAN] != 0 ? gram_lengths_of(x->lang, x->vecs[to].ex[0]).min : 0;
            need = one < need ? one : need;
            any = true;
        }
    }
    if (any && can_fit(x, w[W_SPAN], need)) {
        const uint32_t id = with_limit(x, gram_lex_id(x, LX_ESCAPE, w, 3), w[W_SPAN], need);
        row['\\'] = cell(w, id, false);
    }
}

static void fill_tail(gram_lexes *x, const gram_lex *state, uint32_t *row)
{
    const uint32_t *w = state->words;
    const uint32_t left = w[W_LEFT];
    const uint32_t size = 1u << (6 * (left - 1));
    const uint32_t base = w[W_FIRST] & ~((size << 6) - 1);
    for (uint32_t b = 0x80; b < 0xC0; b++) {
        uint32_t first = base + (b & 0x3F) * size;
        uint32_t last = first + size - 1;
        if (last < w[W_FIRST] || first > w[W_LAST]) {
            continue;
        }
        first = first < w[W_FIRST] ? w[W_FIRST] : first;
        last = last > w[W_LAST] ? w[W_LAST] : last;
        if (state->kind == LX_TAIL) {
            row[b] = left == 1 ? char_cell(x, w, gram_vec_step(x, w[W_VEC], first))
                               : cell(w, tail_state(x, w, first, last, left - 1), false);
        } else if (left == 1) {
            row[b] = char_cell(x, w, w[W_VEC]);
        } else {
            const bool whole = last - first == size - 1;
            const uint32_t words[] = {w[W_MODE], w[W_VEC], w[W_SPAN], whole ? 0 : first, whole ? size - 1 : last, left - 1};
            const uint32_t id = gram_lex_id(x, LX_SKIP, words, 6);
            set_limit(x, id, state->limit);
            row[b] = cell(w, id, false);
        }
    }
}

/* --- Escapes ------------------------------------------------------------------------------------------------------ */

/* Characters that \u may name here. */
static bool may_name(const gram_lexes *x, uint32_t c)
{
    return x->escapes_all ? c < 0xD800 || c > 0xDFFF : c < 0x20 && memchr(gram_short_chars, (int)c, sizeof gram_short_chars - 1) == NULL;
}

/* Something in [first, last] may be named and leads on. A high surrogate stands for the characters that it begins. */
static reach named(gram_lexes *x, const uint32_t *w, uint32_t first, uint32_t last)
{
    const bool counted = w[W_SPAN] != 0;
    reach all = {.need = GRAM_INF};
    if (!x->escapes_all) {
        for (uint32_t c = first; c <= last && c < 0x20; c++) {
            const reach one = reach_of(x, w[W_VEC], c, c, counted);
            if (may_name(x, c) && one.alive) {
                all.alive = true;
                all.need = one.need < all.need ? one.need : all.need;
            }
        }
        return all;
    }
    const uint32_t parts[3][2] = {{first, last < 0xD7FF ? last : 0xD7FF}, {first > 0xE000 ? first : 0xE000, last}, {0, 0}};
    for (int i = 0; i < 2; i++) {
        if (parts[i][0] <= parts[i][1]) {
            const reach one = reach_of(x, w[W_VEC], parts[i][0], parts[i][1], counted);
            all.alive = all.alive || one.alive;
            all.need = one.alive && one.need < all.need ? one.need : all.need;
        }
    }
    const uint32_t from = first > 0xD800 ? first : 0xD800;
    const uint32_t to = last < 0xDBFF ? last : 0xDBFF;
    if (from <= to) {
        const reach one = reach_of(x, w[W_VEC], 0x10000 + ((from - 0xD800) << 10), 0x10000 + ((to - 0xD800) << 10 | 0x3FF), counted);
        all.alive = all.alive || one.alive;
        all.need = one.alive && one.need < all.need ? one.need : all.need;
    }
    return all;
}

static uint32_t hex_state(gram_lexes *x, const uint32_t *w, uint32_t value, uint32_t digits, uint32_t high)
{
    const uint32_t first = value << (4 * digits);
    const uint32_t last = first + (1u << (4 * digits)) - 1;
    reach all;
    if (high == 0) {
        all = named(x, w, first, last);
    } else {
        const uint32_t from = first > 0xDC00 ? first : 0xDC00;
        const uint32_t to = last < 0xDFFF ? last : 0xDFFF;
        const uint32_t base = 0x10000 + ((high - 0xD800) << 10);
        all = from <= to ? reach_of(x, w[W_VEC], base + (from - 0xDC00), base + (to - 0xDC00), w[W_SPAN] != 0) : (reach){.alive = false};
    }
    if (!all.alive || !can_fit(x, w[W_SPAN], all.need)) {
        return 0;
    }
    const uint32_t words[] = {w[W_MODE], w[W_VEC], w[W_SPAN], value, digits, high};
    return with_limit(x, gram_lex_id(x, LX_HEX, words, 6), w[W_SPAN], all.need);
}

static void fill_escape(gram_lexes *x, const uint32_t *w, uint32_t *row)
{
    for (size_t i = 0; i < sizeof gram_short_chars - 1; i++) {
        const uint32_t to = gram_vec_step(x, w[W_VEC], (uint32_t)gram_short_chars[i]);
        row[(uint8_t)gram_short_escapes[i]] = to != 0 ? char_cell(x, w, to) : GRAM_DEAD;
    }
    row['u'] = cell(w, hex_state(x, w, 0, 4, 0), false);
}

/* What the character `c` of an escape \u leads to: the next character, or the second half of a pair. */
static uint32_t named_cell(gram_lexes *x, const uint32_t *w, uint32_t c, uint32_t high)
{
    if (high != 0) {
        const uint32_t pair = 0x10000 + ((high - 0xD800) << 10) + (c - 0xDC00);
        return c >= 0xDC00 && c <= 0xDFFF ? char_cell(x, w, gram_vec_step(x, w[W_VEC], pair)) : GRAM_DEAD;
    }
    if (x->escapes_all && c >= 0xD800 && c <= 0xDBFF) {
        const uint32_t first = 0x10000 + ((c - 0xD800) << 10);
        const reach all = reach_of(x, w[W_VEC], first, first + 0x3FF, w[W_SPAN] != 0);
        if (!all.alive || !can_fit(x, w[W_SPAN], all.need)) {
            return GRAM_DEAD;
        }
        const uint32_t id = gram_lex_id(x, LX_LOW, (const uint32_t[]){w[W_MODE], w[W_VEC], w[W_SPAN], c, 0}, 5);
        return cell(w, with_limit(x, id, w[W_SPAN], all.need), false);
    }
    return may_name(x, c) ? char_cell(x, w, gram_vec_step(x, w[W_VEC], c)) : GRAM_DEAD;
}

static void fill_hex(gram_lexes *x, const uint32_t *w, uint32_t *row)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    for (uint32_t i = 0; i < sizeof digits - 1; i++) {
        const uint32_t value = w[W_VALUE] << 4 | (i < 16 ? i : i - 6);
        row[(uint8_t)digits[i]] = w[W_DIGITS] == 1 ? named_cell(x, w, value, w[W_HIGH])
                                                   : cell(w, hex_state(x, w, value, w[W_DIGITS] - 1, w[W_HIGH]), false);
    }
}

static void fill_low(gram_lexes *x, const gram_lex *state, uint32_t *row)
{
    const uint32_t *w = state->words;
    if (w[W_BACKSLASH] != 0) {
        row['u'] = cell(w, hex_state(x, w, 0, 4, w[W_SURROGATE]), false);
        return;
    }
    const uint32_t id = gram_lex_id(x, LX_LOW, (const uint32_t[]){w[W_MODE], w[W_VEC], w[W_SPAN], w[W_SURROGATE], 1}, 5);
    set_limit(x, id, state->limit);
    row['\\'] = cell(w, id, false);
}

void gram_chars_fill(gram_lexes *x, uint32_t id)
{
    gram_lex *state = gram_lex_at(x, id);
    uint32_t *row = gram_lex_new_row(x);
    if (row == NULL) {
        return;
    }
    switch (state->kind) {
    case LX_CHAR:
        fill_char(x, state->words, row);
        break;
    case LX_TAIL:
    case LX_SKIP:
        fill_tail(x, state, row);
        break;
    case LX_ESCAPE:
        fill_escape(x, state->words, row);
        break;
    case LX_HEX:
        fill_hex(x, state->words, row);
        break;
    default:
        fill_low(x, state, row);
        break;
    }
    if (!gram_failed(x->mem)) {
        gram_lex_publish(state, row);
    }
}

/* --- For keys that the context must look at ----------------------------------------------------------------------- */

uint32_t gram_chars_next(gram_lexes *x, uint32_t id, uint8_t byte)
{
    const gram_lex *state = gram_lex_at(x, id);
    return state->kind == LX_CHAR && byte >= 0xC2 && byte < 0xF5 ? lead_state(x, state->words, byte) : 0;
}

static uint32_t digit_value(uint8_t byte)
{
    return byte <= '9' ? byte - (uint32_t)'0' : (byte | 0x20u) - 'a' + 10;
}

uint32_t gram_chars_ended(const gram_lexes *x, uint32_t id, uint8_t byte)
{
    const gram_lex *state = gram_lex_at(x, id);
    const uint32_t *w = state->words;
    if (state->kind == LX_CHAR) {
        return byte < 0x80 && byte != '\\' ? byte : GRAM_NONE;
    }
    if (state->kind == LX_TAIL && w[W_LEFT] == 1) {
        return (w[W_FIRST] & ~0x3Fu) | (byte & 0x3Fu);
    }
    if (state->kind == LX_ESCAPE && byte != 'u') {
        const char *found = memchr(gram_short_escapes, byte, sizeof gram_short_escapes - 1);
        return found != NULL ? (uint32_t)gram_short_chars[found - gram_short_escapes] : GRAM_NONE;
    }
    if (state->kind == LX_HEX && w[W_DIGITS] == 1) {
        const uint32_t c = w[W_VALUE] << 4 | digit_value(byte);
        if (w[W_HIGH] != 0) {
            return 0x10000 + ((w[W_HIGH] - 0xD800) << 10) + (c - 0xDC00);
        }
        return c >= 0xD800 && c <= 0xDBFF ? GRAM_NONE : c;
    }
    return GRAM_NONE;
}

/* Characters of [first, last] that an escape in this state can still name: calls `accept` for runs of them. */
static bool reaches_named(gram_lexes *x, const gram_lex *state, uint32_t vec, uint32_t first, uint32_t last,
                          gram_accept_fn *accept, void *user)
{
    const uint32_t *w = state->words;
    const bool any = state->kind == LX_ESCAPE;
    const uint32_t low = any ? 0 : w[W_VALUE] << (4 * w[W_DIGITS]);
    const uint32_t high = any ? 0xFFFF : low + (1u << (4 * w[W_DIGITS])) - 1;
    for (uint32_t c = first; c <= last && c <= '\\'; c++) {
        const bool is_short = any && memchr(gram_short_chars, (int)c, sizeof gram_short_chars - 1) != NULL;
        if ((is_short || (c >= low && c <= high && may_name(x, c))) && accept(user, vec, c, c)) {
            return true;
        }
    }
    if (!x->escapes_all) {
        return false;
    }
    const uint32_t from = first > low ? first : low;
    const uint32_t to = last < high ? last : high;
    if (from <= to && accept(user, vec, from, to)) {
        return true;
    }
    /* Pairs: a high surrogate in range stands for 1024 characters. */
    const uint32_t lead = low > 0xD800 ? low : 0xD800;
    const uint32_t end = high < 0xDBFF ? high : 0xDBFF;
    if (lead > end) {
        return false;
    }
    const uint32_t pair = 0x10000 + ((lead - 0xD800) << 10);
    const uint32_t pair_end = 0x10000 + ((end - 0xD800) << 10 | 0x3FF);
    const uint32_t a = first > pair ? first : pair;
    const uint32_t b = last < pair_end ? last : pair_end;
    return a <= b && accept(user, vec, a, b);
}

bool gram_chars_reaches(gram_lexes *x, uint32_t id, gram_accept_fn *accept, void *user)
{
    const gram_lex *state = gram_lex_at(x, id);
    const uint32_t *w = state->words;
    if (state->kind == LX_CHAR) {
        return accept(user, w[W_VEC], 1, 0);
    }
    const bool low = state->kind == LX_LOW || (state->kind == LX_HEX && w[W_HIGH] != 0);
    uint32_t first = 0;
    uint32_t last = GRAM_LAST_CHAR;
    if (state->kind == LX_TAIL) {
        first = w[W_FIRST];
        last = w[W_LAST];
    } else if (low) {
        const uint32_t high = state->kind == LX_LOW ? w[W_SURROGATE] : w[W_HIGH];
        const uint32_t from = state->kind == LX_LOW ? 0xDC00 : w[W_VALUE] << (4 * w[W_DIGITS]);
        const uint32_t to = state->kind == LX_LOW ? 0xDFFF : from + (1u << (4 * w[W_DIGITS])) - 1;
        first = 0x10000 + ((high - 0xD800) << 10) + ((from > 0xDC00 ? from : 0xDC00) - 0xDC00);
        last = 0x10000 + ((high - 0xD800) << 10) + ((to < 0xDFFF ? to : 0xDFFF) - 0xDC00);
    }
    const gram_vec_row *row = gram_vec_row_of(x, w[W_VEC]);
    for (uint32_t i = 0, from = 0; i < row->n; from = row->seg[i].last + 1, i++) {
        const uint32_t a = from > first ? from : first;
        const uint32_t b = row->seg[i].last < last ? row->seg[i].last : last;
        if (row->seg[i].to == 0 || a > b) {
            continue;
        }
        const bool direct = state->kind == LX_TAIL || low;
        if (direct ? accept(user, row->seg[i].to, a, b) : reaches_named(x, state, row->seg[i].to, a, b, accept, user)) {
            return true;
        }
    }
    return false;
}
