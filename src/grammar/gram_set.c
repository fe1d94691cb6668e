/* gram_set.c - sets of characters: interned lists of ranges, so that equal sets have one id. Surrogates belong to no set. */
#include "grammar/gram_lang.h"

#include "grammar/gram_unicode_data.h"

#define FIRST_SURROGATE 0xD800u
#define LAST_SURROGATE 0xDFFFu
#define N_RUNS (sizeof gram_category_runs / sizeof *gram_category_runs)
#define N_RINGS (sizeof gram_case_rings / sizeof *gram_case_rings)
#define N_CATEGORIES (sizeof gram_category_names / sizeof *gram_category_names)

typedef struct range {
    uint32_t first;
    uint32_t last;
} range;

static int by_first(const void *a, const void *b)
{
    const range *x = a;
    const range *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Interns the pairs on the work stack from `base` on, which are sorted and merged here, and takes them off. */
static gram_set take(gram_lang *l, uint32_t base)
{
    gram_stack *work = &l->work;
    uint32_t *words = work->words + base;
    const uint32_t n = (work->n - base) / 2;
    if (n > 1) {
        qsort(words, n, sizeof(range), by_first);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = words[2 * i];
        const uint32_t last = words[2 * i + 1];
        if (kept != 0 && first <= words[2 * kept - 1] + 1) {
            words[2 * kept - 1] = last > words[2 * kept - 1] ? last : words[2 * kept - 1];
        } else {
            words[2 * kept] = first;
            words[2 * kept + 1] = last;
            kept++;
        }
    }
    (void)gram_spend(l->mem, 1 + n / 4);
    work->n = base;
    return gram_tuple(l->mem, &l->sets, words, 2 * kept, NULL);
}

/* Pushes a range without its surrogates. */
static void put(gram_lang *l, uint32_t first, uint32_t last)
{
    last = last > GRAM_LAST_CHAR ? GRAM_LAST_CHAR : last;
    if (first < FIRST_SURROGATE && last >= FIRST_SURROGATE) {
        put(l, first, FIRST_SURROGATE - 1);
        first = FIRST_SURROGATE;
    }
    if (first >= FIRST_SURROGATE && first <= LAST_SURROGATE) {
        first = LAST_SURROGATE + 1;
    }
    if (first <= last && gram_push(l->mem, &l->work, first) && !gram_push(l->mem, &l->work, last)) {
        l->work.n--;
    }
}

gram_set gram_set_of(gram_lang *l, const uint32_t *ranges, uint32_t n)
{
    const uint32_t base = l->work.n;
    for (uint32_t i = 0; i < n; i++) {
        put(l, ranges[2 * i], ranges[2 * i + 1]);
    }
    return take(l, base);
}

const uint32_t *gram_set_ranges(const gram_lang *l, gram_set a, uint32_t *n)
{
    const uint32_t *words = gram_tuple_at(&l->sets, a, n);
    *n /= 2;
    return words;
}

gram_set gram_set_not(gram_lang *l, gram_set a)
{
    const uint32_t base = l->work.n;
    uint32_t n;
    const uint32_t *ranges = gram_set_ranges(l, a, &n);
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (ranges[2 * i] > next) {
            put(l, next, ranges[2 * i] - 1);
        }
        next = ranges[2 * i + 1] + 1;
    }
    put(l, next, GRAM_LAST_CHAR);
    return take(l, base);
}

gram_set gram_set_or(gram_lang *l, gram_set a, gram_set b)
{
    const uint32_t base = l->work.n;
    const gram_set both[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        uint32_t n;
        const uint32_t *ranges = gram_set_ranges(l, both[k], &n);
        for (uint32_t i = 0; i < n; i++) {
            put(l, ranges[2 * i], ranges[2 * i + 1]);
        }
    }
    return take(l, base);
}

gram_set gram_set_and(gram_lang *l, gram_set a, gram_set b)
{
    const uint32_t base = l->work.n;
    uint32_t n;
    uint32_t m;
    const uint32_t *x = gram_set_ranges(l, a, &n);
    const uint32_t *y = gram_set_ranges(l, b, &m);
    for (uint32_t i = 0, k = 0; i < n && k < m;) {
        const uint32_t first = x[2 * i] > y[2 * k] ? x[2 * i] : y[2 * k];
        const uint32_t last = x[2 * i + 1] < y[2 * k + 1] ? x[2 * i + 1] : y[2 * k + 1];
        if (first <= last) {
            put(l, first, last);
        }
        if (x[2 * i + 1] < y[2 * k + 1]) {
            i++;
        } else {
            k++;
        }
    }
    return take(l, base);
}

bool gram_set_has(const gram_lang *l, gram_set a, uint32_t c)
{
    uint32_t n;
    const uint32_t *ranges = gram_set_ranges(l, a, &n);
    uint32_t from = 0;
    while (from < n) {
        const uint32_t middle = from + (n - from) / 2;
        if (c > ranges[2 * middle + 1]) {
            from = middle + 1;
        } else if (c < ranges[2 * middle]) {
            n = middle;
        } else {
            return true;
        }
    }
    return false;
}

gram_set gram_set_fold(gram_lang *l, gram_set a)
{
    const uint32_t base = l->work.n;
    uint32_t n;
    const uint32_t *ranges = gram_set_ranges(l, a, &n);
    for (uint32_t i = 0; i < n; i++) {
        put(l, ranges[2 * i], ranges[2 * i + 1]);
    }
    for (size_t i = 0; i < N_RINGS; i++) {
        if (!gram_set_has(l, a, gram_case_rings[i][0])) {
            continue;
        }
        /* A ring has at most a handful of members, and each finds its own way through the table. */
        for (uint32_t c = gram_case_rings[i][1]; c != gram_case_rings[i][0];) {
            put(l, c, c);
            size_t from = 0;
            size_t to = N_RINGS - 1;
            while (from < to) {
                const size_t middle = from + (to - from) / 2;
                if (gram_case_rings[middle][0] < c) {
                    from = middle + 1;
                } else {
                    to = middle;
                }
            }
            c = gram_case_rings[from][1];
        }
    }
    return take(l, base);
}

static const struct {
    const char *longer;
    const char *shorter;
} long_names[] = {
    {"Letter", "L"}, {"Cased_Letter", "LC"}, {"Uppercase_Letter", "Lu"}, {"Lowercase_Letter", "Ll"}, {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"}, {"Other_Letter", "Lo"}, {"Mark", "M"}, {"Combining_Mark", "M"}, {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"}, {"Enclosing_Mark", "Me"}, {"Number", "N"}, {"Decimal_Number", "Nd"}, {"digit", "Nd"},
    {"Letter_Number", "Nl"}, {"Other_Number", "No"}, {"Punctuation", "P"}, {"punct", "P"}, {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"}, {"Open_Punctuation", "Ps"}, {"Close_Punctuation", "Pe"}, {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"}, {"Other_Punctuation", "Po"}, {"Symbol", "S"}, {"Math_Symbol", "Sm"}, {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"}, {"Other_Symbol", "So"}, {"Separator", "Z"}, {"Space_Separator", "Zs"}, {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"}, {"Other", "C"}, {"Control", "Cc"}, {"cntrl", "Cc"}, {"Format", "Cf"}, {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
};

static bool is_text(const char *name, size_t n, const char *text)
{
    return strlen(text) == n && memcmp(name, text, n) == 0;
}

/* One bit a category. */
static uint32_t categories_of(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof long_names / sizeof *long_names; i++) {
        if (is_text(name, n, long_names[i].longer)) {
            name = long_names[i].shorter;
            n = strlen(name);
        }
    }
    uint32_t bits = 0;
    for (size_t i = 0; i < N_CATEGORIES; i++) {
        const char *category = gram_category_names[i];
        const bool cased = is_text(name, n, "LC") && category[0] == 'L' && strchr("ult", category[1]) != NULL;
        if (cased || is_text(name, n, category) || (n == 1 && category[0] == name[0])) {
            bits |= 1u << i;
        }
    }
    return bits;
}

bool gram_set_category(gram_lang *l, const char *name, size_t n, gram_set *out)
{
    if (is_text(name, n, "Any")) {
        *out = GRAM_SET_ALL;
        return true;
    }
    if (is_text(name, n, "ASCII")) {
        *out = gram_set_of(l, (const uint32_t[]){0, 0x7F}, 1);
        return true;
    }
    const uint32_t wanted = categories_of(name, n);
    if (wanted == 0) {
        return false;
    }
    const uint32_t base = l->work.n;
    for (size_t i = 0; i < N_RUNS; i++) {
        if ((wanted >> (gram_category_runs[i] & 31) & 1) != 0) {
            put(l, gram_category_runs[i] >> 5, i + 1 < N_RUNS ? (gram_category_runs[i + 1] >> 5) - 1 : GRAM_LAST_CHAR);
        }
    }
    *out = take(l, base);
    return true;
}
