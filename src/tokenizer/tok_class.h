/* tok_class.h - the character classes of the pre-tokenizer (tokenizer.md 4.1).
 *
 * A kind is four bits: the class in the low three, and TOK_CJK when the code point lies in the CJK set, which decides
 * regions and is independent of the class. A set of kinds is a 16-bit mask, so that membership is one shift.
 * The C library's isw* functions are not used: their tables change with the system. */
#ifndef TOKENIZER_TOK_CLASS_H
#define TOKENIZER_TOK_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories: N*, L*, M*, P*, S*; the property White_Space; everything else is O. */
enum tok_class { TOK_O, TOK_N, TOK_L, TOK_M, TOK_P, TOK_S, TOK_W };

#define TOK_CLASS_MASK 7u
#define TOK_CJK 8u

#define TOK_SET(class) (1u << (class))
/* The same classes inside the CJK set. */
#define TOK_CJK_SET(set) ((set) << TOK_CJK)

static inline bool tok_in(unsigned set, unsigned kind)
{
    return ((set >> kind) & 1u) != 0;
}

/* Kind of a code point; values above U+10FFFF are O. */
unsigned tok_kind(uint32_t cp);

/* Kinds of the ASCII characters; TOK_NOT_ASCII for bytes from 0x80. */
#define TOK_NOT_ASCII 0xFFu
extern const uint8_t tok_ascii_kind[256];

/* tok_kind_at for a byte from 0x80. */
unsigned tok_wide_kind_at(const uint8_t *s, size_t n, size_t i, size_t *length);

/* Kind and length of the character at s[i], i < n. A byte that does not start a whole character before n is one O. */
static inline unsigned tok_kind_at(const uint8_t *s, size_t n, size_t i, size_t *length)
{
    if (s[i] < 0x80) {
        *length = 1;
        return tok_ascii_kind[s[i]];
    }
    return tok_wide_kind_at(s, n, i, length);
}

#endif
