/* utf8.c - see utf8.h. The well-formed sequences are those of table 3-7 of the Unicode standard: only the second byte's
 * range depends on the first byte. */
#include "core/utf8.h"

#include <string.h>

int utf8_decode(const uint8_t *s, size_t n, uint32_t *cp)
{
    const uint8_t first = s[0];
    if (first < 0x80) {
        *cp = first;
        return 1;
    }
    int length;
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    uint32_t value;
    if (first >= 0xC2 && first <= 0xDF) {
        length = 2;
        value = first & 0x1Fu;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3;
        value = first & 0x0Fu;
        if (first == 0xE0) {
            low = 0xA0; /* below: overlong */
        } else if (first == 0xED) {
            high = 0x9F; /* above: surrogates */
        }
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        value = first & 0x07u;
        if (first == 0xF0) {
            low = 0x90; /* below: overlong */
        } else if (first == 0xF4) {
            high = 0x8F; /* above: beyond U+10FFFF */
        }
    } else {
        return -1;
    }
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n) {
            return 0;
        }
        if (s[i] < low || s[i] > high) {
            return -i;
        }
        value = value << 6 | (s[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *cp = value;
    return length;
}

int utf8_encode(uint32_t cp, uint8_t out[4])
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (uint8_t)(0xC0 | cp >> 6);
        out[1] = (uint8_t)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xE0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (cp & 0x3F));
    return 4;
}

size_t utf8_valid_prefix(const uint8_t *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        while (n - i >= sizeof eight) {
            memcpy(&eight, s + i, sizeof eight);
            if ((eight & 0x8080808080808080u) != 0) {
                break;
            }
            i += sizeof eight;
        }
        if (i == n) {
            break;
        }
        uint32_t cp;
        const int length = utf8_decode(s + i, n - i, &cp);
        if (length <= 0) {
            break;
        }
        i += (size_t)length;
    }
    return i;
}
