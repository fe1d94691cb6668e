#!/usr/bin/env python3
"""Writes src/grammar/gram_unicode_data.h from Python's unicodedata: general categories and simple case folding.

    gen_unicode.py > src/grammar/gram_unicode_data.h

Categories are runs of equal category, one word each: first character << 5 | category. Case folding is a ring for each set of
characters that differ in case only: every member names the next one, so that following the ring meets them all."""
import sys
import unicodedata

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
LAST = 0x10FFFF


def fold(c):
    """Simple case folding: full folding where it gives one character, else lower case where that does."""
    for text in (chr(c).casefold(), chr(c).lower()):
        if len(text) == 1:
            return ord(text)
    return c


def print_words(words, per_line):
    for i in range(0, len(words), per_line):
        print("    " + " ".join(f"0x{word:X}," for word in words[i:i + per_line]))


def main():
    runs, before = [], None
    for c in range(LAST + 1):
        category = unicodedata.category(chr(c))
        if category != before:
            runs.append(c << 5 | CATEGORIES.index(category))
            before = category
    classes = {}
    for c in range(LAST + 1):
        if not 0xD800 <= c <= 0xDFFF:
            classes.setdefault(fold(c), []).append(c)
    rings = []
    for members in classes.values():
        if len(members) > 1:
            rings += [(c, members[(i + 1) % len(members)]) for i, c in enumerate(members)]
    print(f"/* gram_unicode_data.h - general categories and case rings of Unicode {unicodedata.unidata_version}.")
    print(" * Written by tools/grammar/gen_unicode.py, which explains the form. */")
    print("#ifndef GRAMMAR_GRAM_UNICODE_DATA_H\n#define GRAMMAR_GRAM_UNICODE_DATA_H\n\n#include <stdint.h>\n")
    print("static const char gram_category_names[][3] = {")
    print("    " + ", ".join(f'"{name}"' for name in CATEGORIES) + "};\n")
    print(f"static const uint32_t gram_category_runs[{len(runs)}] = {{")
    print_words(runs, 12)
    print("};\n")
    print(f"/* Sorted by the first of each pair. */\nstatic const uint32_t gram_case_rings[{len(rings)}][2] = {{")
    rings.sort()
    for i in range(0, len(rings), 8):
        print("    " + " ".join(f"{{0x{a:X}, 0x{b:X}}}," for a, b in rings[i:i + 8]))
    print("};\n\n#endif")


if __name__ == "__main__":
    sys.exit(main())
