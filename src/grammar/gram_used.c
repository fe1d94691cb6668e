/* gram_used.c - see gram_used.h. */
#include "grammar/gram_used.h"

#define ENDS 0x80000000u     /* beside the character of a root: a name ends here */
#define NO_CHAR 0x7FFFFFFFu  /* of a root where nothing but that is the case */

enum { U_CHAR, U_BELOW, U_LESS, U_MORE, U_WORDS };

static const uint32_t *node_of(const gram_used_sets *u, gram_used set) { return u->keys.at[set] + 1; }

static uint32_t char_of(const gram_used_sets *u, gram_used set) { return node_of(u, set)[U_CHAR] & ~ENDS; }

static gram_used make(gram_used_sets *u, uint32_t c, gram_used below, gram_used less, gram_used more)
{
    return gram_tuple(u->mem, &u->keys, (const uint32_t[U_WORDS]){c, below, less, more}, U_WORDS, NULL);
}

bool gram_used_init(gram_used_sets *u, gram_mem *mem)
{
    *u = (gram_used_sets){.mem = mem};
    (void)make(u, NO_CHAR, 0, 0, 0);
    return !gram_failed(mem);
}

/* The seed is the grammar's own, so no text can make the trees deep. Different characters differ here. */
static uint64_t priority(const gram_used_sets *u, uint32_t c)
{
    uint64_t h = (u->mem->seed ^ c) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    return h * 0xD6E8FEB86659FD93u;
}

/* The search tree with `below` behind the character; nested as deep as the tree is, which is logarithmic. */
static gram_used put(gram_used_sets *u, gram_used set, uint32_t c, gram_used below)
{
    if (set == GRAM_NONE_USED) {
        return make(u, c, below, 0, 0);
    }
    const uint32_t *w = node_of(u, set);
    const uint32_t here = w[U_CHAR];
    if (c == here) {
        return make(u, c, below, w[U_LESS], w[U_MORE]);
    }
    const bool less = c < here;
    const gram_used kid = put(u, less ? w[U_LESS] : w[U_MORE], c, below);
    if (gram_failed(u->mem)) {
        return GRAM_NONE_USED;
    }
    const uint32_t *k = node_of(u, kid);
    if (priority(u, k[U_CHAR]) < priority(u, here)) {
        return less ? make(u, here, w[U_BELOW], kid, w[U_MORE]) : make(u, here, w[U_BELOW], w[U_LESS], kid);
    }
    if (less) {
        const gram_used under = make(u, here, w[U_BELOW], k[U_MORE], w[U_MORE]);
        return make(u, k[U_CHAR], k[U_BELOW], k[U_LESS], under);
    }
    const gram_used under = make(u, here, w[U_BELOW], w[U_LESS], k[U_LESS]);
    return make(u, k[U_CHAR], k[U_BELOW], under, k[U_MORE]);
}

/* The same set where a name ends, or none does. */
static gram_used with_end(gram_used_sets *u, gram_used set, bool ends)
{
    const uint32_t *w = node_of(u, set);
    const uint32_t c = ends ? w[U_CHAR] | ENDS : w[U_CHAR] & ~ENDS;
    return c == NO_CHAR ? GRAM_NONE_USED : make(u, c, w[U_BELOW], w[U_LESS], w[U_MORE]);
}

/* Room for a name of n characters. */
static gram_used *room_along(gram_used_sets *u, uint32_t n)
{
    while (u->along_capacity <= n) {
        gram_used *const more = gram_grow(u->mem, u->along, u->along_capacity, &u->along_capacity, sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        u->along = more;
    }
    return u->along;
}

/* The sets along the name, then from its end back to its beginning what they become. */
gram_used gram_used_add(gram_used_sets *u, gram_used set, const uint32_t *chars, uint32_t n)
{
    gram_used *const along = room_along(u, n);
    if (along == NULL || !gram_spend(u->mem, 1 + n)) {
        return GRAM_NONE_USED;
    }
    for (uint32_t i = 0; i < n; i++) {
        along[i] = set;
        set = gram_used_step(u, set, chars[i]);
    }
    set = with_end(u, set, true);
    for (uint32_t i = n; i-- > 0 && !gram_failed(u->mem);) {
        const bool ends = gram_used_ends(u, along[i]);
        const gram_used plain = ends ? with_end(u, along[i], false) : along[i];
        set = put(u, plain, chars[i], set);
        set = ends ? with_end(u, set, true) : set;
    }
    return gram_failed(u->mem) ? GRAM_NONE_USED : set;
}

gram_used gram_used_step(const gram_used_sets *u, gram_used set, uint32_t c)
{
    while (set != GRAM_NONE_USED && char_of(u, set) != c) {
        set = node_of(u, set)[c < char_of(u, set) ? U_LESS : U_MORE];
    }
    return set != GRAM_NONE_USED ? node_of(u, set)[U_BELOW] : GRAM_NONE_USED;
}

bool gram_used_ends(const gram_used_sets *u, gram_used set) { return (node_of(u, set)[U_CHAR] & ENDS) != 0; }

void gram_used_first(const gram_used_sets *u, gram_used set, uint64_t bytes[4])
{
    while (set != GRAM_NONE_USED) {
        const uint32_t c = char_of(u, set);
        const uint32_t bit = c < 0x80 ? c : 0x80;
        bytes[bit / 64] |= c == NO_CHAR ? 0 : (uint64_t)1 << bit % 64;
        if (c < 0x80) { /* few of these; larger ones need no second look */
            gram_used_first(u, node_of(u, set)[U_MORE], bytes);
        }
        set = node_of(u, set)[U_LESS];
    }
}

/* Strings of the expression that are names so far are followed along the names. At each place one character that leads out of them, or an
 * end that is none of theirs, settles it, so no more is looked at than the names themselves. Entries of the work stack are expression
 * and set. */
bool gram_used_leaves(gram_used_sets *u, gram_lang *l, gram_ex e, gram_used set)
{
    const uint32_t base = l->work.n;
    bool leaves = false;
    (void)gram_push(l->mem, &l->work, e);
    (void)gram_push(l->mem, &l->work, set);
    while (!leaves && l->work.n > base && gram_spend(l->mem, 1)) {
        set = l->work.words[--l->work.n];
        e = l->work.words[--l->work.n];
        if (set == GRAM_NONE_USED || (gram_nullable(l, e) && !gram_used_ends(u, set))) {
            leaves = !gram_empty(l, e);
            continue;
        }
        const gram_row *row = gram_row_of(l, e);
        for (uint32_t i = 0, first = 0; i < row->n && !leaves; first = row->seg[i].last + 1, i++) {
            const gram_ex to = row->seg[i].to;
            if (to == GRAM_EX_NONE || gram_empty(l, to)) {
                continue;
            }
            for (uint32_t c = first; c <= row->seg[i].last && !leaves; c++) {
                const gram_used below = gram_used_step(u, set, c);
                leaves = below == GRAM_NONE_USED;
                (void)(gram_push(l->mem, &l->work, to) && gram_push(l->mem, &l->work, below));
            }
        }
    }
    l->work.n = base;
    return leaves && !gram_failed(l->mem);
}
