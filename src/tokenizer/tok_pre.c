/* tok_pre.c - cuts text into pieces in one pass (tokenizer.md 4.2 and 4.3).
 *
 * The released pipeline splits three times: numbers in threes, runs of the CJK set, then one regular expression inside
 * what is left. The third works inside a region: a stretch without numbers that lies wholly inside or outside the CJK
 * set. Where a region ends can be told from the next character alone, so that nothing is scanned ahead, every piece can
 * be found from its first byte without knowing what came before, and the whole pass is linear. */
#include "tokenizer/tok_int.h"

#define LETTERS (TOK_SET(TOK_L) | TOK_SET(TOK_M))
#define SIGNS (TOK_SET(TOK_P) | TOK_SET(TOK_S))

static inline bool ascii_letter(uint8_t c)
{
    return (uint8_t)((c | 0x20) - 'a') < 26;
}

static inline bool newline(uint8_t c)
{
    return c == '\n' || c == '\r';
}

/* ASCII punctuation and symbols: classes P and S below 0x80 are exactly the set that the regular expression lists. */
static inline bool ascii_sign(uint8_t c)
{
    return c < 0x80 && tok_in(SIGNS, tok_ascii_kind[c]);
}

/* U+4E00 to U+9FA5, all of them letters, is most of the CJK set. */
static inline bool common_ideograph(const uint8_t *s)
{
    return tok_cjk_index(s) - (0x4E00 - TOK_FIRST_CJK) <= 0x9FA5 - 0x4E00;
}

/* End of the run of characters from i whose kind is in `set`. */
static size_t run_end(const uint8_t *s, size_t n, size_t i, unsigned set)
{
    while (i < n) {
        const unsigned ascii = tok_ascii_kind[s[i]];
        if (ascii != TOK_NOT_ASCII) {
            if (!tok_in(set, ascii)) {
                break;
            }
            i++;
            continue;
        }
        if (tok_in(set, TOK_CJK | TOK_L) && n - i >= 3 && common_ideograph(s + i)) {
            i += 3;
            continue;
        }
        size_t length;
        if (!tok_in(set, tok_kind_at(s, n, i, &length))) {
            break;
        }
        i += length;
    }
    return i;
}

/* A whitespace run: up to its last newline; else whole when the region ends behind it; else all but its last character,
 * which leads the next piece. Whitespace is never in the CJK set, so a number or a CJK character ends the region. */
static size_t match_space(const uint8_t *s, size_t n, size_t i)
{
    size_t newline_end = 0;
    size_t last = i;
    size_t j = i;
    unsigned kind = TOK_W;
    while (j < n) {
        size_t length;
        kind = tok_kind_at(s, n, j, &length);
        if (kind != TOK_W) {
            break;
        }
        last = j;
        j += length;
        if (newline(s[last])) {
            newline_end = j;
        }
    }
    if (newline_end != 0) {
        return newline_end;
    }
    const bool region_ends = j == n || kind == TOK_N || (kind & TOK_CJK) != 0;
    return region_ends || last == i ? j : last;
}

/* End of the first alternative that matches the character at i (its kind and length given); i when none does. */
static size_t match(const uint8_t *s, size_t n, size_t i, unsigned kind, size_t length)
{
    const uint8_t c = s[i];
    const unsigned cjk = kind & TOK_CJK;
    const unsigned class = kind & TOK_CLASS_MASK;
    const unsigned letters = LETTERS << cjk;
    const size_t next = i + length;

    if (ascii_sign(c) && next < n && ascii_letter(s[next])) {
        size_t j = next + 1;
        while (j < n && ascii_letter(s[j])) {
            j++;
        }
        return j;
    }
    if (class == TOK_L || class == TOK_M) {
        return run_end(s, n, next, letters);
    }
    if (class != TOK_P && class != TOK_S && !newline(c)) {
        const size_t end = run_end(s, n, next, letters);
        if (end != next) {
            return end;
        }
    }
    const size_t first = c == ' ' ? next : i;
    const size_t signs_end = run_end(s, n, first, SIGNS << cjk);
    if (signs_end != first) {
        size_t j = signs_end;
        while (cjk == 0 && j < n && newline(s[j])) {
            j++;
        }
        return j;
    }
    return class == TOK_W ? match_space(s, n, i) : i;
}

/* A piece of any kind. */
static size_t general_piece(const uint8_t *s, size_t n, size_t i)
{
    size_t length;
    unsigned kind = tok_kind_at(s, n, i, &length);
    if (kind == TOK_N) {
        for (int digits = 1; digits < 3 && i + length < n; digits++) {
            i += length;
            if (tok_kind_at(s, n, i, &length) != TOK_N) {
                return i;
            }
        }
        return i + length;
    }
    /* Characters that no alternative matches form one piece, up to the next match or the region's end. */
    const size_t start = i;
    const unsigned cjk = kind & TOK_CJK;
    for (;;) {
        const size_t end = match(s, n, i, kind, length);
        if (end != i) {
            return i == start ? end : i;
        }
        i += length;
        if (i == n) {
            return i;
        }
        kind = tok_kind_at(s, n, i, &length);
        if (kind == TOK_N || (kind & TOK_CJK) != cjk) {
            return i;
        }
    }
}

/* What a first byte does to ASCII letters behind it: begin with them, lead them, or neither (numbers, newlines, not ASCII). */
enum lead { LEAD_NONE, LEAD_SELF, LEAD_SIGN, LEAD_OTHER };

static inline enum lead lead_of(uint8_t c)
{
    static const uint8_t of_kind[] = {
        [TOK_O] = LEAD_OTHER, [TOK_N] = LEAD_NONE, [TOK_L] = LEAD_SELF, [TOK_M] = LEAD_NONE,
        [TOK_P] = LEAD_SIGN,  [TOK_S] = LEAD_SIGN, [TOK_W] = LEAD_OTHER,
    };
    return c >= 0x80 || newline(c) ? LEAD_NONE : (enum lead)of_kind[tok_ascii_kind[c]];
}

/* Number of ASCII letters at the start of eight bytes: exact per-byte range tests on bytes without their high bits, none of
 * which can carry into the next byte. */
static inline unsigned letters_in(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t high = ones * 0x80;
    const uint64_t folded = (eight | ones * 0x20) & ~high;
    const uint64_t from_a = folded + ones * (0x80 - 'a');
    const uint64_t above_z = folded + ones * (0x80 - 'z' - 1);
    const uint64_t others = ~(from_a & ~above_z & ~eight) & high;
    return others != 0 ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* The commonest pieces: ASCII letters, with one ASCII character before them or without. Anything else is `general`. */
static inline size_t piece(const uint8_t *s, size_t n, size_t i)
{
    const enum lead lead = lead_of(s[i]);
    size_t j = lead == LEAD_SELF ? i : i + 1;
    if (lead == LEAD_NONE || j >= n || !ascii_letter(s[j])) {
        return general_piece(s, n, i);
    }
    uint64_t eight;
    while (n - j >= sizeof eight) {
        memcpy(&eight, s + j, sizeof eight);
        const unsigned letters = letters_in(eight);
        j += letters;
        if (letters < sizeof eight) {
            break;
        }
    }
    while (j < n && ascii_letter(s[j])) {
        j++;
    }
    /* Other letters and marks may follow; behind a sign only ASCII letters belong to the piece. */
    return j == n || s[j] < 0x80 || lead == LEAD_SIGN ? j : run_end(s, n, j, LETTERS);
}

size_t tok_piece_end(const uint8_t *s, size_t n, size_t i)
{
    return piece(s, n, i);
}

/* A run of common ideographs with its closed seams, and the letters behind it. Whether a seam is closed can't be predicted, so each is
 * stored and counted if it is. */
static size_t cut_ideographs(const di_tokenizer *tok, const uint8_t *s, size_t n, size_t begin, uint32_t *ends, size_t max)
{
    size_t count = 0;
    uint32_t left = tok_cjk_index(s + begin);
    size_t i = begin + TOK_CJK_BYTES;
    while (n - i >= TOK_CJK_BYTES && common_ideograph(s + i)) {
        const uint32_t right = tok_cjk_index(s + i);
        ends[count] = (uint32_t)i;
        count += tok_seam_closed(tok, left, right);
        if (count == max) {
            return count;
        }
        left = right;
        i += TOK_CJK_BYTES;
    }
    ends[count++] = (uint32_t)run_end(s, n, i, TOK_CJK_SET(LETTERS));
    return count;
}

size_t tok_cut_one(const di_tokenizer *tok, const uint8_t *s, size_t n, size_t begin, uint32_t *ends, size_t max)
{
    if (n - begin >= TOK_CJK_BYTES && common_ideograph(s + begin)) {
        return cut_ideographs(tok, s, n, begin, ends, max);
    }
    ends[0] = (uint32_t)piece(s, n, begin);
    return 1;
}

size_t tok_cut_plain(const di_tokenizer *tok, const uint8_t *s, size_t n, size_t begin, uint32_t *ends, size_t max)
{
    size_t count = 0;
    while (begin < n && max - count >= TOK_WINDOW) {
        count += tok_cut_one(tok, s, n, begin, ends + count, max - count);
        begin = ends[count - 1];
    }
    return count;
}
