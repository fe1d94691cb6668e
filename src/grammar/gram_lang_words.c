/* gram_lang_words.c - finite sets of strings: ranges of sorted lists, and what is left of them without some of their words.
 *
 * Invariant: words are taken out of a list by taking ranges of it, as long as these are few. So what may follow a beginning that no word
 * taken out shares is the same expression as before, with all that is already known of it. */
#include "grammar/gram_lang_int.h"

#include <stdlib.h>

#define MAX_RANGES 64u /* of one list; more are a list of their own */

static int by_chars(const void *a, const void *b)
{
    const gram_word *x = a;
    const gram_word *y = b;
    for (uint32_t i = 0; i < x->n && i < y->n; i++) {
        if (x->chars[i] != y->chars[i]) {
            return x->chars[i] < y->chars[i] ? -1 : 1;
        }
    }
    return (x->n > y->n) - (x->n < y->n);
}

/* Equal lists are found again through a tuple of all their characters among the sets, behind a word that no set begins with. */
enum { LIST_MARK = 0xFFFFFFFE, KEPT_MARK = 0xFFFFFFFF };

static uint32_t list_id(gram_lang *l, gram_word *words, uint32_t n, uint32_t mark, bool *is_new)
{
    const uint32_t base = l->work.n;
    (void)gram_push(l->mem, &l->work, mark);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < words[i].n; k++) {
            (void)gram_push(l->mem, &l->work, words[i].chars[k]);
        }
        (void)gram_push(l->mem, &l->work, GRAM_NONE);
    }
    (void)gram_spend(l->mem, 1 + (l->work.n - base) / 4);
    const uint32_t id = gram_tuple(l->mem, &l->sets, l->work.words + base, l->work.n - base, is_new);
    l->work.n = base;
    uint32_t length;
    const uint32_t *chars = gram_failed(l->mem) ? NULL : gram_tuple_at(&l->sets, id, &length) + 1;
    for (uint32_t i = 0; chars != NULL && *is_new && i < n; i++) { /* from now on they lie in the tuple */
        words[i].chars = chars;
        chars += words[i].n + 1;
    }
    return id;
}

static gram_ex add_words(gram_lang *l, const gram_word *words, uint32_t n, uint32_t mark)
{
    if (n == 0) {
        return GRAM_EX_NONE;
    }
    gram_word *sorted = gram_alloc(l->mem, n, sizeof *sorted);
    if (sorted == NULL) {
        return GRAM_EX_NONE;
    }
    memcpy(sorted, words, n * sizeof *sorted);
    bool in_order = true; /* parts of lists are */
    for (uint32_t i = 1; in_order && i < n; i++) {
        in_order = by_chars(&sorted[i - 1], &sorted[i]) < 0;
    }
    if (!in_order) {
        qsort(sorted, n, sizeof *sorted, by_chars);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || in_order || by_chars(&sorted[kept - 1], &sorted[i]) != 0) {
            sorted[kept++] = sorted[i];
        }
    }
    if (kept == 1 && sorted[0].n == 0 && mark == LIST_MARK) {
        return GRAM_EX_EPS;
    }
    bool is_new;
    const uint32_t id = list_id(l, sorted, kept, mark, &is_new);
    while (!gram_failed(l->mem) && l->n_lists <= id) {
        const gram_word **lists = gram_grow(l->mem, l->lists, l->n_lists, &l->list_capacity, sizeof *lists);
        l->lists = lists != NULL ? lists : l->lists;
        l->n_lists += lists != NULL;
    }
    if (gram_failed(l->mem)) {
        return GRAM_EX_NONE;
    }
    if (is_new) {
        l->lists[id] = sorted;
    }
    return gram_ex_plain(l, EX_WORDS, id, 0, kept, 0, sorted[0].n == 0);
}

gram_ex gram_ex_words(gram_lang *l, const gram_word *words, uint32_t n) { return add_words(l, words, n, LIST_MARK); }

gram_ex gram_ex_kept_words(gram_lang *l, const gram_word *words, uint32_t n) { return add_words(l, words, n, KEPT_MARK); }

gram_ex gram_ex_words_rest(gram_lang *l, uint32_t list, uint32_t from, uint32_t to, uint32_t depth)
{
    const bool nullable = l->lists[list][from].n == depth;
    const bool kept = l->sets.at[list][1] == KEPT_MARK;
    return nullable && to - from == 1 && !kept ? GRAM_EX_EPS : gram_ex_plain(l, EX_WORDS, list, from, to, depth, nullable);
}

const gram_word *gram_list_word(const gram_lang *l, uint32_t list, uint32_t i)
{
    return &l->lists[list][i];
}

bool gram_ex_is_words(const gram_lang *l, gram_ex e, uint32_t *list, uint32_t *from, uint32_t *to)
{
    const gram_node *node = &l->nodes[e];
    *list = node->a;
    *from = node->b;
    *to = node->c;
    return node->op == EX_WORDS;
}

/* --- Words taken out ------------------------------------------------------------------------------------------------- */

bool gram_ex_is_listed(const gram_lang *l, gram_ex e)
{
    const gram_node *node = &l->nodes[e];
    bool listed = node->op == EX_WORDS || node->op == EX_EPS || node->op == EX_OR;
    for (uint32_t i = 0; node->op == EX_OR && listed && i < node->a; i++) {
        const uint8_t op = l->nodes[node->kids[i]].op;
        listed = op == EX_WORDS || op == EX_EPS;
    }
    return listed;
}

static gram_word rest_of(const gram_lang *l, const gram_node *words, uint32_t i)
{
    const gram_word *word = gram_list_word(l, words->a, i);
    return (gram_word){word->chars + words->d, word->n - words->d};
}

/* Marks in gone[0, n) the words of a range that are `word`. */
static void take_out(const gram_lang *l, const gram_node *words, gram_word word, uint8_t *gone)
{
    uint32_t from = words->b;
    for (uint32_t to = words->c; from < to;) {
        const uint32_t middle = from + (to - from) / 2;
        const gram_word there = rest_of(l, words, middle);
        const int order = by_chars(&there, &word);
        if (order == 0) {
            gone[middle - words->b] = 1;
            return;
        }
        from = order < 0 ? middle + 1 : from;
        to = order < 0 ? to : middle;
    }
}

/* Marks those that are words of `e`, which is listed. */
static void take_out_listed(gram_lang *l, const gram_node *words, gram_ex e, uint8_t *gone)
{
    const gram_node *node = &l->nodes[e];
    const bool many = node->op == EX_OR;
    for (uint32_t k = 0; k < (many ? node->a : 1); k++) {
        const gram_node *one = many ? &l->nodes[node->kids[k]] : node;
        const uint32_t n = one->op == EX_EPS ? 1 : one->c - one->b;
        for (uint32_t i = 0; i < n && gram_spend(l->mem, 1); i++) {
            take_out(l, words, one->op == EX_EPS ? (gram_word){NULL, 0} : rest_of(l, one, one->b + i), gone);
        }
    }
}

/* Marks those that `e` does not hold. */
static void take_out_others(gram_lang *l, const gram_node *words, gram_ex e, uint8_t *gone)
{
    if (l->nodes[e].op == EX_NOT && gram_ex_is_listed(l, l->nodes[e].a)) {
        take_out_listed(l, words, l->nodes[e].a, gone);
        return;
    }
    for (uint32_t i = words->b; i < words->c; i++) {
        const gram_word rest = rest_of(l, words, i);
        if (gone[i - words->b] == 0 && !gram_ex_has(l, e, rest.chars, rest.n)) {
            gone[i - words->b] = 1;
        }
    }
}

/* The words that are not gone, as a list of their own. */
static gram_ex new_list(gram_lang *l, const gram_node *words, const uint8_t *gone)
{
    const uint32_t n = words->c - words->b;
    gram_word *kept = gram_alloc(l->mem, n, sizeof *kept);
    uint32_t n_kept = 0;
    for (uint32_t i = 0; kept != NULL && i < n; i++) {
        if (gone[i] == 0) {
            kept[n_kept++] = rest_of(l, words, words->b + i);
        }
    }
    return gram_ex_words(l, kept, n_kept);
}

/* The words that are not gone, as ranges. */
static gram_ex ranges(gram_lang *l, const gram_node *words, const uint8_t *gone)
{
    const uint32_t n = words->c - words->b;
    const uint32_t base = l->work.n;
    for (uint32_t i = 0; i < n;) {
        const uint32_t from = i;
        while (i < n && gone[i] == gone[from]) {
            i++;
        }
        if (gone[from] == 0) {
            const gram_ex one = gram_ex_words_rest(l, words->a, words->b + from, words->b + i, words->d);
            (void)gram_push(l->mem, &l->work, one);
        }
    }
    /* The list stays on the stack during the call; if that grows, the old memory stays as it is. */
    const gram_ex e = gram_ex_or(l, l->work.words + base, l->work.n - base);
    l->work.n = base;
    return e;
}

gram_ex gram_ex_filter_words(gram_lang *l, uint32_t base, uint32_t at)
{
    const gram_node words = l->nodes[l->work.words[at]];
    const uint32_t n = words.c - words.b;
    uint8_t *gone = gram_alloc(l->mem, n, 1);
    if (gone == NULL) {
        l->work.n = base;
        return GRAM_EX_NONE;
    }
    for (uint32_t k = base; k < l->work.n; k++) {
        if (k != at) {
            take_out_others(l, &words, l->work.words[k], gone);
        }
    }
    l->work.n = base;
    uint32_t n_ranges = gone[0] == 0;
    for (uint32_t i = 1; i < n; i++) {
        n_ranges += gone[i] == 0 && gone[i - 1] != 0;
    }
    return n_ranges <= MAX_RANGES ? ranges(l, &words, gone) : new_list(l, &words, gone);
}
