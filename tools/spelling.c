/* spelling.c - see spelling.h. */
#include "spelling.h"

#include <string.h>

enum { MAX_NAME = 63, MAX_EDITS = 3 }; /* more edits are no misspelling; longer names have no near one */

/* '-' and '_' count as the same. */
static bool same(char a, char b)
{
    return a == b || (a == '_' && b == '-') || (a == '-' && b == '_');
}

/* Levenshtein distance of two names of at most MAX_NAME bytes, one row at a time. */
static size_t distance(const char *a, const char *b)
{
    size_t row[MAX_NAME + 1];
    const size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + !same(a[i - 1], b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

void cli_nearest_init(cli_nearest *n, const char *wanted)
{
    *n = (cli_nearest){.wanted = wanted, .distance = MAX_EDITS + 1};
}

void cli_nearest_try(cli_nearest *n, const char *name)
{
    const size_t length = strlen(n->wanted);
    if (length > MAX_NAME || strlen(name) > MAX_NAME) {
        return;
    }
    const size_t d = distance(n->wanted, name);
    if (d < n->distance && d < length) {
        n->distance = d;
        n->name = name;
    }
}
