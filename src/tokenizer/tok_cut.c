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

size_t tok_line_before(const uint8_t *s, size_t n, size_t from, size_t at)
{
    for (size_t end = at; end > from;) {
        const uint8_t *feed = memrchr(s + from, '\n', end - from);
        if (feed == NULL) {
            break;
        }
        const size_t start = (size_t)(feed - s) + 1;
        if (tok_is_cut(s, n, start)) {
            return start;
        }
        end = start - 1;
        while (end > from && s[end - 1] == '\n') { /* followed by whitespace, so no cut either */
            end--;
        }
    }
    return from;
}

size_t tok_cut_before(const uint8_t *s, size_t n, size_t from, size_t at)
{
    if (at >= n) {
        return n;
    }
    const size_t line = tok_line_before(s, n, from, at);
    if (line != from) {
        return line;
    }
    for (size_t i = at; i > from; i--) {
        if ((s[i] & 0xC0) != 0x80 && tok_is_cut(s, n, i)) {
            return i;
        }
    }
    return from;
}
