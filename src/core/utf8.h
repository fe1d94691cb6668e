/* utf8.h - UTF-8, strict (no surrogates, no overlong forms, at most U+10FFFF). */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at s[0..n), n > 0. Returns its length 1..4 and stores the code point; for invalid input returns minus
 * the length of the maximal invalid subpart (1..3; Unicode 3.9, WHATWG). When the bytes are a proper prefix of a valid character
 * cut off by n, returns 0. */
int utf8_decode(const uint8_t *s, size_t n, uint32_t *cp);

/* Writes cp (a scalar value) and returns its length 1..4. */
int utf8_encode(uint32_t cp, uint8_t out[4]);

/* Length of the longest valid prefix of s[0..n). */
size_t utf8_valid_prefix(const uint8_t *s, size_t n);

#endif
