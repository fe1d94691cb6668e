/* rec_pattern.c - is a text well-formed as a regular expression (ECMA-262, section "Patterns")?
 *
 * Looked at are groups, classes, ranges and quantifiers: what would make every engine refuse the pattern. Escapes stand for
 * themselves, a brace that begins no quantifier is a brace. One pass; the nesting of groups is a counter, because all that a closing
 * parenthesis must know is whether a group is open. */
#include "recipe/rec_schema.h"

#include "core/utf8.h"

typedef struct reader {
    const char *at;
    const char *end;
} reader;

static bool take(reader *r, char c)
{
    if (r->at < r->end && *r->at == c) {
        r->at++;
        return true;
    }
    return false;
}

/* One character of the text. */
static uint32_t take_character(reader *r)
{
    uint32_t cp = 0;
    const int n = utf8_decode((const uint8_t *)r->at, (size_t)(r->end - r->at), &cp);
    r->at += n > 0 ? n : 1;
    return cp;
}

/* What follows "(?": "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<name>", "(?P<name>", "(?i)", "(?i:". */
static bool take_group_head(reader *r)
{
    if (take(r, ':') || take(r, '=') || take(r, '!')) {
        return true;
    }
    const bool python = take(r, 'P');
    if (take(r, '<')) {
        if (!python && (take(r, '=') || take(r, '!'))) {
            return true;
        }
        const char *const name = r->at;
        while (r->at < r->end && *r->at != '>' && *r->at != ')') {
            r->at++;
        }
        return r->at > name && take(r, '>');
    }
    const char *const flags = r->at;
    while (r->at < r->end && strchr("imsux-", *r->at) != NULL && *r->at != '\0') {
        r->at++;
    }
    if (python || r->at == flags || r->at == r->end) {
        return false;
    }
    return *r->at == ')' || take(r, ':'); /* the parenthesis closes the group as any other */
}

/* A member of a class. *set: it stands for many characters ("\d"), so that it can't begin or end a range. */
static bool take_member(reader *r, uint32_t *cp, bool *set)
{
    *set = false;
    if (!take(r, '\\')) {
        *cp = take_character(r);
        return true;
    }
    if (r->at == r->end) {
        return false;
    }
    *cp = take_character(r);
    *set = *cp < 0x80 && strchr("bBcdDfnpPrsStuvwWx0", (int)*cp) != NULL; /* or its value would have to be worked out */
    return true;
}

/* Behind "[". "[]" is the empty class. */
static bool take_class(reader *r)
{
    take(r, '^');
    while (r->at < r->end && *r->at != ']') {
        uint32_t low;
        uint32_t high;
        bool low_set;
        bool high_set;
        if (!take_member(r, &low, &low_set)) {
            return false;
        }
        if (r->end - r->at < 2 || r->at[0] != '-' || r->at[1] == ']') {
            continue;
        }
        r->at++;
        if (!take_member(r, &high, &high_set) || (!low_set && !high_set && low > high)) {
            return false;
        }
    }
    return take(r, ']');
}

/* Decimal digits; values are compared as texts because they may be of any length. */
static rec_str take_digits(reader *r)
{
    while (r->end - r->at > 1 && r->at[0] == '0' && r->at[1] >= '0' && r->at[1] <= '9') {
        r->at++;
    }
    rec_str digits = {r->at, 0};
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        r->at++;
        digits.size++;
    }
    return digits;
}

static bool in_order(rec_str low, rec_str high)
{
    return low.size < high.size || (low.size == high.size && memcmp(low.data, high.data, low.size) <= 0);
}

/* "{2}", "{2,}", "{2,5}". *found is false when a brace is just a brace. */
static bool take_counts(reader *r, bool *found)
{
    reader ahead = {r->at, r->end};
    *found = false;
    if (!take(&ahead, '{')) {
        return true;
    }
    const rec_str low = take_digits(&ahead);
    rec_str high = low;
    if (low.size > 0 && take(&ahead, ',')) {
        high = take_digits(&ahead);
    }
    if (low.size == 0 || !take(&ahead, '}')) {
        return true;
    }
    *found = true;
    *r = ahead;
    return high.size == 0 || in_order(low, high);
}

/* A quantifier, if there is one. *again: another may follow, as after "{2}" some engines allow. */
static bool take_quantifier(reader *r, bool *found, bool *again)
{
    if (!take_counts(r, found)) {
        return false;
    }
    *again = *found;
    *found = *found || take(r, '*') || take(r, '+') || take(r, '?');
    if (*found && !take(r, '?')) {
        take(r, '+');
    }
    return true;
}

/* One character, escape, class, or the head of a group; or the end of a group. */
static bool take_atom(reader *r, size_t *open)
{
    if (take(r, '\\')) {
        if (r->at == r->end) {
            return false;
        }
        (void)take_character(r);
        return true;
    }
    if (take(r, '[')) {
        return take_class(r);
    }
    if (take(r, '(')) {
        ++*open;
        return !take(r, '?') || take_group_head(r);
    }
    if (take(r, ')')) {
        return (*open)-- > 0;
    }
    (void)take_character(r);
    return true;
}

bool rec_pattern_valid(rec_str pattern)
{
    reader r = {pattern.data, pattern.data + pattern.size};
    size_t open = 0;
    bool repeatable = false; /* is there something before a quantifier? */
    while (r.at < r.end) {
        bool quantifier;
        bool again;
        if (!take_quantifier(&r, &quantifier, &again) || (quantifier && !repeatable)) {
            return false;
        }
        if (quantifier) {
            repeatable = again;
            continue;
        }
        repeatable = *r.at != '|' && *r.at != '(';
        if (!take_atom(&r, &open)) {
            return false;
        }
    }
    return open == 0;
}
