/* tok_class.c - looks up character classes in the generated two-level table (tok_class_data.h). */
#include "tokenizer/tok_class.h"

#include "tokenizer/tok_class_data.h"

enum {
    O = TOK_O,
    N = TOK_N,
    L = TOK_L,
    P = TOK_P,
    S = TOK_S,
    W = TOK_W,
    X = TOK_NOT_ASCII
};

const uint8_t tok_ascii_kind[256] = {
    O, O, O, O, O, O, O, O, O, W, W, W, W, W, O, O, /* 00 */
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* 10 */
    W, P, P, P, S, P, P, P, P, P, P, S, P, P, P, P, /* 20 */
    N, N, N, N, N, N, N, N, N, N, P, P, S, S, S, P, /* 30 */
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* 40 */
    L, L, L, L, L, L, L, L, L, L, L, P, P, P, S, P, /* 50 */
    S, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* 60 */
    L, L, L, L, L, L, L, L, L, L, L, P, S, P, S, O, /* 70 */
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
};

unsigned tok_kind(uint32_t cp)
{
    if (cp > 0x10FFFF) {
        return TOK_O;
    }
    return class_kind[class_block[cp >> 7]][cp & 127];
}

/* Lengths come from the lead byte alone: callers pass valid UTF-8, and on anything else this must only stay in bounds. */
unsigned tok_wide_kind_at(const uint8_t *s, size_t n, size_t i, size_t *length)
{
    const uint32_t c = s[i];
    const size_t left = n - i;
    if (c >= 0xE0 && c < 0xF0 && left >= 3) {
        *length = 3;
        return tok_kind((c & 15) << 12 | (s[i + 1] & 63u) << 6 | (s[i + 2] & 63u));
    }
    if (c >= 0xC0 && c < 0xE0 && left >= 2) {
        *length = 2;
        return tok_kind((c & 31) << 6 | (s[i + 1] & 63u));
    }
    if (c >= 0xF0 && left >= 4) {
        *length = 4;
        return tok_kind((c & 7) << 18 | (s[i + 1] & 63u) << 12 | (s[i + 2] & 63u) << 6 | (s[i + 3] & 63u));
    }
    *length = 1;
    return TOK_O;
}
