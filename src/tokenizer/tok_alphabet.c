/* tok_alphabet.c - the byte alphabet of byte-level BPE: every byte has one printable character (tokenizer.md 1).
 *
 * Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves (as code points); the other 68 are U+0100 onwards in
 * order of value. */
#include "tokenizer/tok_int.h"

#include "core/utf8.h"

static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

/* The byte that is the i-th of the 68: 0x00-0x20, then 0x7F-0xA0, then 0xAD. */
static uint8_t shifted_byte(uint32_t i)
{
    if (i <= 0x20) {
        return (uint8_t)i;
    }
    return i == 67 ? 0xAD : (uint8_t)(i - 0x21 + 0x7F);
}

static uint32_t shifted_index(uint8_t byte)
{
    if (byte <= 0x20) {
        return byte;
    }
    return byte == 0xAD ? 67 : (uint32_t)byte - 0x7F + 0x21;
}

bool tok_alphabet_decode(const uint8_t *s, size_t n, uint8_t *out, size_t *n_out)
{
    size_t written = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        const int length = utf8_decode(s + i, n - i, &cp);
        if (length <= 0) {
            return false;
        }
        if (cp >= 0x100 && cp < 0x100 + 68) {
            out[written++] = shifted_byte(cp - 0x100);
        } else if (cp <= 0xFF && stands_for_itself(cp)) {
            out[written++] = (uint8_t)cp;
        } else {
            return false;
        }
        i += (size_t)length;
    }
    *n_out = written;
    return true;
}

size_t tok_alphabet_encode(const uint8_t *s, size_t n, uint8_t *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t cp = stands_for_itself(s[i]) ? s[i] : 0x100 + shifted_index(s[i]);
        uint8_t character[4];
        const int length = utf8_encode(cp, character);
        memcpy(out + written, character, (size_t)length);
        written += (size_t)length;
    }
    return written;
}
