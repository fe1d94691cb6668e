/* tok_cut.c - where plain text may be cut so that the parts encode to the same ids as the whole (tokenizer.md 8).
 *
 * Between characters x and y there is a piece boundary whatever surrounds them when x is a line feed and y is not
 * whitespace, when exactly one of them is a number, or when exactly one of them is in the CJK set. Added tokens must have
 * been recognised before cutting. */
#include "tokenizer/tok_int.h"

/* Start of the character that ends at i > 0. */
static size_t character_before(const uint8_t *s, size_t i)
{
    size_t start = i - 1;
    while (start > 0 && i - start < 4 && (s[start] & 0xC0) == 0x80) {
        start--;
    }
    return start;
}

bool tok_is_cut(const uint8_t *s, size_t n, size_t i)
{
    if (i == 0 || i >= n) {
        return true;
    }
    size_t length;
    const unsigned after = tok_kind_at(s, n, i, &length);
    const unsigned before = tok_kind_at(s, i, character_before(s, i), &length);
    if (s[i - 1] == '\n' && after != TOK_W) {
        return true;
    }
    return (before == TOK_N) != (after == TOK_N) || ((before ^ after) & TOK_CJK) != 0;
}

/* The first line start in [from, to) that is a cut, or `to`. */
static size_t line_after(const uint8_t *s, size_t n, size_t from, size_t to)
{
    for (size_t i = from > 0 ? from - 1 : 0; i + 1 < to; i++) {
        const uint8_t *const feed = memchr(s + i, '\n', to - 1 - i);
        if (feed == NULL) {
            break;
        }
        i = (size_t)(feed - s);
        if (tok_is_cut(s, n, i + 1)) {
            return i + 1;
        }
    }
    return to;
}

/* Line starts are found quickest, but in indented text they may be far between. */
#define LINE_REACH 2048u

/* False for most characters of most texts: those with no cut at either side unless their neighbour has one. */
static inline bool may_cut(uint8_t c)
{
    const unsigned kind = tok_ascii_kind[c];
    return kind == TOK_N || kind == TOK_NOT_ASCII || c == '\n';
}

size_t tok_cut_after(const uint8_t *s, size_t n, size_t from, size_t to, bool lines_only)
{
    const size_t reach = lines_only || to - from < LINE_REACH ? to : from + LINE_REACH;
    const size_t line = line_after(s, n, from, reach);
    if (line != reach || lines_only) {
        return line;
    }
    bool before = true;
    for (size_t i = from; i < to; i++) {
        const bool here = may_cut(s[i]);
        if ((before || here) && (s[i] & 0xC0) != 0x80 && tok_is_cut(s, n, i)) {
            return i;
        }
        before = here;
    }
    return to;
}
