/* gram_form.c - constructors of formulas. Kids are sorted sets, constants vanish, negation is pushed down to atoms, references and ONE. */
#include "grammar/gram_form.h"

#include "core/utf8.h"

#define MAX_EXPONENT 100000

static gram_form add(gram_forms *f, const uint32_t *words, uint32_t n)
{
    const gram_form x = gram_tuple(f->mem, &f->nodes, words, n, NULL);
    while (f->n_info < f->nodes.n) {
        gram_form_info *info = gram_grow(f->mem, f->info, f->n_info, &f->info_capacity, sizeof *info);
        if (info == NULL) {
            return GRAM_FALSE;
        }
        f->info = info;
        f->info[f->n_info++] = (gram_form_info){.sat = UINT16_MAX};
    }
    return x;
}

bool gram_forms_init(gram_forms *f, gram_mem *mem, gram_lang *lang)
{
    *f = (gram_forms){.mem = mem, .lang = lang};
    (void)add(f, (const uint32_t[]){FO_FALSE}, 1);
    (void)add(f, (const uint32_t[]){FO_TRUE}, 1);
    return !gram_failed(mem);
}

const gram_form *gram_form_kids(const gram_forms *f, gram_form x, uint32_t *n)
{
    const uint32_t *words = gram_tuple_at(&f->nodes, x, n);
    *n -= 1;
    return words + 1;
}

gram_type gram_atom_type(gram_atom kind)
{
    if (kind >= AT_PROPS) {
        return GRAM_OBJECT;
    }
    if (kind >= AT_ITEMS) {
        return GRAM_ARRAY;
    }
    return kind >= AT_RE ? GRAM_STRING : kind >= AT_INT ? GRAM_NUMBER : GRAM_TYPES;
}

gram_form gram_form_atom(gram_forms *f, gram_atom kind, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return add(f, (const uint32_t[]){FO_ATOM, kind, a, b, c, d}, 6);
}

gram_form gram_form_type(gram_forms *f, uint32_t types)
{
    types &= GRAM_ALL_TYPES;
    if (types == 0 || types == GRAM_ALL_TYPES) {
        return types == 0 ? GRAM_FALSE : GRAM_TRUE;
    }
    return gram_form_atom(f, AT_TYPE, types, 0, 0, 0);
}

static bool is_type(const gram_forms *f, gram_form x)
{
    return gram_form_op(f, x) == FO_ATOM && gram_atom_kind(f, x) == AT_TYPE;
}

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the words of the stack from `base` on and drops duplicates. Mostly a set has just got one more, which is the newest. */
static void sort_from(gram_stack *s, uint32_t base)
{
    uint32_t sorted = base + 1;
    while (sorted < s->n && s->words[sorted - 1] <= s->words[sorted]) {
        sorted++;
    }
    if (sorted < s->n) {
        qsort(s->words + base, s->n - base, sizeof *s->words, ascending);
    }
    uint32_t kept = base;
    for (uint32_t i = base; i < s->n; i++) {
        if (kept == base || s->words[kept - 1] != s->words[i]) {
            s->words[kept++] = s->words[i];
        }
    }
    s->n = kept;
}

static bool holds(const gram_stack *s, uint32_t base, gram_form x)
{
    return s->n > base && bsearch(&x, s->words + base, s->n - base, sizeof x, ascending) != NULL;
}

/* Interns an operator over the stack from `base` on, which is taken off. */
static gram_form take(gram_forms *f, gram_op op, uint32_t base)
{
    gram_stack *work = &f->lang->work;
    gram_form x = GRAM_FALSE;
    if (gram_push(f->mem, work, 0)) {
        memmove(work->words + base + 1, work->words + base, (work->n - base - 1) * sizeof *work->words);
        work->words[base] = op;
        x = add(f, work->words + base, work->n - base);
    }
    (void)gram_spend(f->mem, 1 + (work->n - base) / 8);
    work->n = base;
    return x;
}

/* AND and OR; `zero` decides the whole, `one` changes nothing. */
static gram_form join(gram_forms *f, gram_op op, const gram_form *kids, uint32_t n)
{
    const gram_form zero = op == FO_AND ? GRAM_FALSE : GRAM_TRUE;
    const gram_form one = op == FO_AND ? GRAM_TRUE : GRAM_FALSE;
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    uint32_t types = op == FO_AND ? GRAM_ALL_TYPES : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = 1;
        const gram_form *inner = gram_form_op(f, kids[i]) == op ? gram_form_kids(f, kids[i], &m) : &kids[i];
        for (uint32_t k = 0; k < m; k++) {
            if (is_type(f, inner[k])) {
                const uint32_t bits = gram_atom_words(f, inner[k])[0];
                types = op == FO_AND ? types & bits : types | bits;
            } else if (inner[k] != one) {
                (void)gram_push(f->mem, work, inner[k]);
            }
        }
    }
    if (types != (op == FO_AND ? GRAM_ALL_TYPES : 0)) {
        (void)gram_push(f->mem, work, gram_form_type(f, types));
    }
    sort_from(work, base);
    bool decided = gram_failed(f->mem) || holds(work, base, zero);
    for (uint32_t i = base; !decided && i < work->n; i++) {
        decided = gram_form_op(f, work->words[i]) == FO_NOT && holds(work, base, f->nodes.at[work->words[i]][2]);
    }
    if (decided || work->n <= base + 1) {
        const gram_form x = decided ? zero : work->n == base ? one : work->words[base];
        work->n = base;
        return x;
    }
    return take(f, op, base);
}

gram_form gram_form_and(gram_forms *f, const gram_form *kids, uint32_t n) { return join(f, FO_AND, kids, n); }
gram_form gram_form_or(gram_forms *f, const gram_form *kids, uint32_t n) { return join(f, FO_OR, kids, n); }

gram_form gram_form_and2(gram_forms *f, gram_form a, gram_form b)
{
    if (a == b || a == GRAM_TRUE || b == GRAM_FALSE) {
        return b;
    }
    return b == GRAM_TRUE || a == GRAM_FALSE ? a : join(f, FO_AND, (const gram_form[]){a, b}, 2);
}

gram_form gram_form_or2(gram_forms *f, gram_form a, gram_form b)
{
    if (a == b || a == GRAM_FALSE || b == GRAM_TRUE) {
        return b;
    }
    return b == GRAM_FALSE || a == GRAM_TRUE ? a : join(f, FO_OR, (const gram_form[]){a, b}, 2);
}

gram_form gram_form_not(gram_forms *f, gram_form a)
{
    const gram_op op = gram_form_op(f, a);
    if (op == FO_FALSE || op == FO_TRUE) {
        return op == FO_TRUE ? GRAM_FALSE : GRAM_TRUE;
    }
    if (op == FO_NOT) {
        return f->nodes.at[a][2];
    }
    if (is_type(f, a)) {
        return gram_form_type(f, ~gram_atom_words(f, a)[0]);
    }
    if (op != FO_AND && op != FO_OR) {
        return add(f, (const uint32_t[]){FO_NOT, a}, 2);
    }
    if (f->info[a].negated != 0) { /* what an item of unique ones must not be is asked for again with each item */
        return f->info[a].negated - 1;
    }
    if (!gram_enter(f->mem)) {
        return GRAM_FALSE;
    }
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    uint32_t n;
    const gram_form *kids = gram_form_kids(f, a, &n);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(f->mem, work, gram_form_not(f, kids[i]));
    }
    const gram_form x = join(f, op == FO_AND ? FO_OR : FO_AND, work->words + base, work->n - base);
    work->n = base;
    gram_leave(f->mem);
    if (!gram_failed(f->mem)) {
        f->info[a].negated = x + 1;
    }
    return x;
}

gram_form gram_form_one(gram_forms *f, const gram_form *kids, uint32_t n)
{
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    gram_form also = GRAM_TRUE; /* what must hold besides */
    bool is_there = false;      /* a kid that is always true: the one */
    for (uint32_t i = 0; i < n; i++) {
        if (kids[i] == GRAM_TRUE) {
            also = is_there ? GRAM_FALSE : also;
            is_there = true;
        } else if (kids[i] != GRAM_FALSE) {
            (void)gram_push(f->mem, work, kids[i]);
        }
    }
    if (work->n > base + 1) {
        qsort(work->words + base, work->n - base, sizeof *work->words, ascending);
    }
    uint32_t kept = base;
    for (uint32_t i = base; i < work->n;) {
        uint32_t k = i + 1;
        while (k < work->n && work->words[k] == work->words[i]) {
            k++;
        }
        if (is_there || k > i + 1) { /* what stands there twice must not hold at all */
            also = gram_form_and2(f, also, gram_form_not(f, work->words[i]));
        } else {
            work->words[kept++] = work->words[i];
        }
        i = k;
    }
    work->n = kept;
    gram_form x = is_there ? GRAM_TRUE : GRAM_FALSE;
    if (kept - base == 1) {
        x = work->words[base];
    } else if (kept > base) {
        return gram_form_and2(f, also, take(f, FO_ONE, base));
    }
    work->n = base;
    return gram_failed(f->mem) ? GRAM_FALSE : gram_form_and2(f, also, x);
}

uint32_t gram_form_define(gram_forms *f)
{
    gram_form *refs = gram_grow(f->mem, f->refs, f->n_refs, &f->ref_capacity, sizeof *refs);
    if (refs == NULL) {
        return GRAM_NONE;
    }
    f->refs = refs;
    refs[f->n_refs] = GRAM_FALSE;
    return f->n_refs++;
}

gram_form gram_form_ref(gram_forms *f, uint32_t number) { return add(f, (const uint32_t[]){FO_REF, number}, 2); }

/* --- Names and numbers -------------------------------------------------------------------------------------------- */

uint32_t gram_form_name(gram_forms *f, const char *utf8, size_t n)
{
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0xFFFD;
        const int length = utf8_decode((const uint8_t *)utf8 + i, n - i, &c);
        (void)gram_push(f->mem, work, c);
        i += length > 0 ? (size_t)length : 1;
    }
    const uint32_t name = gram_tuple(f->mem, &f->names, work->words + base, work->n - base, NULL);
    work->n = base;
    return name;
}

gram_ex gram_form_name_ex(gram_forms *f, uint32_t name)
{
    uint32_t n;
    const uint32_t *chars = gram_tuple_at(&f->names, name, &n);
    return gram_ex_words(f->lang, &(const gram_word){chars, n}, 1);
}

uint32_t gram_form_dec(gram_forms *f, const char *text, size_t n)
{
    uint32_t digits[GRAM_MAX_DIGITS + 2];
    uint32_t n_digits = 0;
    size_t i = n > 0 && text[0] == '-' ? 1 : 0;
    const bool negative = i == 1;
    bool in_fraction = false;
    int64_t place = 0;
    for (; i < n && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            in_fraction = true;
            continue;
        }
        if (n_digits == 0 && text[i] == '0') {
            place -= in_fraction;
        } else if (n_digits == GRAM_MAX_DIGITS) {
            return GRAM_NONE;
        } else {
            digits[2 + n_digits++] = (uint32_t)(text[i] - '0');
            place += !in_fraction;
        }
    }
    int64_t exponent = 0;
    const bool down = i + 1 < n && text[i + 1] == '-';
    for (i += i + 1 < n && (text[i + 1] == '-' || text[i + 1] == '+') ? 2 : 1; i < n; i++) {
        exponent = exponent < MAX_EXPONENT * 10 ? exponent * 10 + (text[i] - '0') : exponent;
    }
    while (n_digits > 0 && digits[2 + n_digits - 1] == 0) {
        n_digits--;
    }
    place = n_digits == 0 ? 0 : place + (down ? -exponent : exponent);
    if (place > MAX_EXPONENT || place < -MAX_EXPONENT) {
        return GRAM_NONE;
    }
    digits[0] = negative && n_digits != 0;
    digits[1] = (uint32_t)(int32_t)place;
    bool is_new;
    const uint32_t id = gram_tuple(f->mem, &f->decs, digits, n_digits + 2, &is_new);
    if (is_new) {
        uint8_t *bytes = gram_alloc(f->mem, n_digits, 1);
        gram_dec *dec = gram_grow(f->mem, f->dec, id, &f->dec_capacity, sizeof *dec);
        if (bytes == NULL || dec == NULL) {
            return GRAM_NONE;
        }
        f->dec = dec;
        for (uint32_t k = 0; k < n_digits; k++) {
            bytes[k] = (uint8_t)digits[2 + k];
        }
        dec[id] = (gram_dec){digits[0] != 0, (int32_t)place, n_digits, bytes};
    }
    return id;
}

/* --- Containers --------------------------------------------------------------------------------------------------- */

static void *copy(gram_forms *f, const uint32_t *words, uint32_t n)
{
    uint32_t *all = gram_alloc(f->mem, n, sizeof *all);
    if (all != NULL && n != 0) {
        memcpy(all, words, n * sizeof *all);
    }
    return all;
}

gram_form gram_form_items(gram_forms *f, const gram_items *items)
{
    bool all = items->rest == GRAM_TRUE;
    for (uint32_t i = 0; i < items->n_prefix; i++) {
        all = all && items->prefix[i] == GRAM_TRUE;
    }
    if (all) {
        return GRAM_TRUE;
    }
    gram_items *list = gram_grow(f->mem, f->items, f->n_items, &f->item_capacity, sizeof *list);
    const gram_form *prefix = copy(f, items->prefix, items->n_prefix);
    if (list == NULL || prefix == NULL) {
        return GRAM_FALSE;
    }
    f->items = list;
    list[f->n_items] = (gram_items){prefix, items->n_prefix, items->rest};
    return gram_form_atom(f, AT_ITEMS, f->n_items++, 0, 0, 0);
}

gram_form gram_form_props(gram_forms *f, const gram_props *props)
{
    if (props->n_names == 0 && props->n_patterns == 0 && props->other == GRAM_TRUE) {
        return GRAM_TRUE;
    }
    gram_props *list = gram_grow(f->mem, f->props, f->n_props, &f->prop_capacity, sizeof *list);
    gram_props all = *props;
    all.names = copy(f, props->names, props->n_names);
    all.forms = copy(f, props->forms, props->n_names);
    all.patterns = copy(f, props->patterns, props->n_patterns);
    all.pattern_forms = copy(f, props->pattern_forms, props->n_patterns);
    if (list == NULL || gram_failed(f->mem)) {
        return GRAM_FALSE;
    }
    f->props = list;
    list[f->n_props] = all;
    return gram_form_atom(f, AT_PROPS, f->n_props++, 0, 0, 0);
}

/* --- Atoms -------------------------------------------------------------------------------------------------------- */

gram_truth gram_form_truth(const gram_forms *f, gram_form x, gram_truth (*atom)(void *user, gram_form atom), void *user)
{
    const gram_op op = gram_form_op(f, x);
    if (op == FO_FALSE || op == FO_TRUE) {
        return op == FO_TRUE ? GRAM_SURE : GRAM_NO_WAY;
    }
    if (op == FO_ATOM) {
        return atom(user, x);
    }
    uint32_t n;
    const gram_form *kids = gram_form_kids(f, x, &n);
    uint32_t sure = 0;
    uint32_t maybe = 0;
    for (uint32_t i = 0; i < n; i++) {
        const gram_truth one = gram_form_truth(f, kids[i], atom, user);
        if ((op == FO_OR && one == GRAM_SURE) || (op == FO_AND && one == GRAM_NO_WAY)) {
            return one;
        }
        sure += one == GRAM_SURE;
        maybe += one == GRAM_MAYBE;
    }
    if (op == FO_ONE && sure > 1) {
        return GRAM_NO_WAY;
    }
    if (maybe != 0) {
        return GRAM_MAYBE;
    }
    const bool holds = op == FO_NOT ? sure == 0 : op == FO_AND ? true : op == FO_ONE ? sure == 1 : false;
    return holds ? GRAM_SURE : GRAM_NO_WAY;
}

void gram_form_each_atom(const gram_forms *f, gram_form x, void (*atom)(void *user, gram_form atom), void *user)
{
    if (gram_form_op(f, x) == FO_ATOM) {
        atom(user, x);
    } else if (gram_form_op(f, x) > FO_TRUE && gram_form_op(f, x) != FO_REF) {
        uint32_t n;
        const gram_form *kids = gram_form_kids(f, x, &n);
        for (uint32_t i = 0; i < n; i++) {
            gram_form_each_atom(f, kids[i], atom, user);
        }
    }
}

/* --- One type ----------------------------------------------------------------------------------------------------- */

static gram_form compute(gram_forms *f, gram_form x, gram_type type)
{
    const gram_op op = gram_form_op(f, x);
    if (op == FO_FALSE || op == FO_TRUE) {
        return x;
    }
    if (op == FO_ATOM) {
        const gram_type about = gram_atom_type(gram_atom_kind(f, x));
        if (about == GRAM_TYPES) {
            return gram_atom_words(f, x)[0] >> type & 1;
        }
        return about == type ? x : GRAM_TRUE;
    }
    if (op == FO_REF) {
        return gram_form_of(f, f->refs[f->nodes.at[x][2]], type);
    }
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    uint32_t n;
    const gram_form *kids = gram_form_kids(f, x, &n);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(f->mem, work, gram_form_of(f, kids[i], type));
    }
    /* The kids stay on the stack during the call; if it grows, the old memory stays as it is. */
    const gram_form *typed = work->words + base;
    gram_form result = GRAM_FALSE;
    if (op == FO_NOT) {
        result = gram_failed(f->mem) ? GRAM_FALSE : gram_form_not(f, typed[0]);
    } else if (op == FO_ONE) {
        result = gram_form_one(f, typed, work->n - base);
    } else {
        result = join(f, op, typed, work->n - base);
    }
    work->n = base;
    return result;
}

gram_form gram_form_of(gram_forms *f, gram_form x, gram_type type)
{
    if (f->info[x].typed[type] != 0) {
        return f->info[x].typed[type] - 1;
    }
    if ((f->info[x].busy >> type & 1) != 0) {
        gram_fault(f->mem, DI_E_FORMAT, "invalid_schema", -1, "a reference leads back to itself");
    }
    if (!gram_enter(f->mem)) {
        return GRAM_FALSE;
    }
    f->info[x].busy |= (uint8_t)(1u << type);
    const gram_form result = compute(f, x, type);
    f->info[x].busy &= (uint8_t)~(1u << type);
    gram_leave(f->mem);
    if (gram_failed(f->mem)) {
        return GRAM_FALSE;
    }
    f->info[x].typed[type] = result + 1;
    return result;
}
