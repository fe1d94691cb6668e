/* gram_form.h - sets of JSON values as formulas.
 *
 * A schema becomes a formula: AND, OR, NOT, exactly-ONE-of over atoms, hash-consed, so that equal formulas have one id. An atom
 * speaks about one type of value (AT_TYPE about all) and holds for values of every other type, as the keywords of JSON Schema
 * do. References are nodes of their own (FO_REF), so formulas may be recursive through the members and items of containers.
 *
 * gram_form_of(f, type) is the formula for values of one type: without types, references or atoms of other types, perhaps just true
 * or false. All that follows (gram_text.c, gram_num.c, gram_obj.c, gram_arr.c) works on those. */
#ifndef GRAMMAR_GRAM_FORM_H
#define GRAMMAR_GRAM_FORM_H

#include "grammar/gram_lang.h"

typedef uint32_t gram_form;

enum { GRAM_FALSE, GRAM_TRUE };

/* true and false are types here, with one value each. */
typedef enum gram_type { GRAM_NULL, GRAM_NO, GRAM_YES, GRAM_NUMBER, GRAM_STRING, GRAM_ARRAY, GRAM_OBJECT, GRAM_TYPES } gram_type;
#define GRAM_ALL_TYPES ((1u << GRAM_TYPES) - 1)

typedef enum gram_op {
    FO_FALSE,
    FO_TRUE,
    FO_AND,  /* kids */
    FO_OR,
    FO_ONE,  /* exactly one of the kids */
    FO_NOT,  /* of an atom, a reference or a ONE */
    FO_ATOM, /* kind, then up to four words */
    FO_REF   /* number of a definition */
} gram_op;

typedef enum gram_atom {
    AT_TYPE,     /* bits of gram_type */
    AT_INT,      /* numbers: integral by value */
    AT_CMP,      /* numbers: how (GRAM_LESS ...), decimal */
    AT_MULT,     /* numbers: a multiple of a decimal */
    AT_RE,       /* strings: gram_ex */
    AT_LEN,      /* strings: min and max characters */
    AT_ITEMS,    /* arrays: gram_items */
    AT_NITEMS,   /* arrays: min and max items */
    AT_CONTAINS, /* arrays: min to max items from some index on satisfy a formula: formula, min, max, index */
    AT_UNIQUE,   /* arrays: no two equal items */
    AT_PROPS,    /* objects: gram_props */
    AT_NAMES,    /* objects: all names, as strings, satisfy a formula */
    AT_NPROPS,   /* objects: min and max members */
    AT_REQ       /* objects: a member of this name */
} gram_atom;

enum { GRAM_LESS, GRAM_AT_MOST, GRAM_EQUAL, GRAM_AT_LEAST, GRAM_MORE };

/* ±0.d1d2...dn · 10^place; d1 and dn are not zero; zero has no digits and is positive. */
typedef struct gram_dec {
    bool negative;
    int32_t place;
    uint32_t n;
    const uint8_t *digits; /* 0..9 */
} gram_dec;

/* What every item of an array must be. */
typedef struct gram_items {
    const gram_form *prefix; /* [n_prefix] */
    uint32_t n_prefix;
    gram_form rest;
} gram_items;

/* What every member of an object must be: what its name says, and each pattern that its name matches, else `other`. */
typedef struct gram_props {
    const uint32_t *names; /* [n_names] in the order of the schema, no duplicates */
    const gram_form *forms; /* [n_names] */
    uint32_t n_names;
    const gram_ex *patterns; /* [n_patterns] */
    const gram_form *pattern_forms;
    uint32_t n_patterns;
    gram_form other;
} gram_props;

/* What is known about a formula; grows with the formulas. */
typedef struct gram_form_info {
    gram_form typed[GRAM_TYPES]; /* gram_form_of, + 1; 0 = not computed */
    uint16_t sat;   /* satisfiable with so many levels of containers; UINT16_MAX = not known to be at all */
    uint16_t unsat; /* not satisfiable with so many levels, + 1; 0 = not known */
    uint8_t busy;   /* bits: a reference loop is closing here */
    gram_form negated; /* of AND and OR, + 1; 0 = not computed */
} gram_form_info;

typedef struct gram_forms {
    gram_mem *mem;
    gram_lang *lang;
    gram_tuples nodes;
    gram_form_info *info; /* [nodes.n] */
    uint32_t info_capacity;
    uint32_t n_info;
    gram_tuples names; /* characters */
    gram_tuples decs;
    gram_dec *dec; /* [decs.n] */
    uint32_t dec_capacity;
    gram_items *items;
    uint32_t n_items;
    uint32_t item_capacity;
    gram_props *props;
    uint32_t n_props;
    uint32_t prop_capacity;
    gram_form *refs; /* what the definitions are */
    uint32_t n_refs;
    uint32_t ref_capacity;
} gram_forms;

bool gram_forms_init(gram_forms *f, gram_mem *mem, gram_lang *lang);

static inline gram_op gram_form_op(const gram_forms *f, gram_form x) { return (gram_op)f->nodes.at[x][1]; }

/* Kids of AND, OR, ONE and NOT. */
const gram_form *gram_form_kids(const gram_forms *f, gram_form x, uint32_t *n);

static inline gram_atom gram_atom_kind(const gram_forms *f, gram_form x) { return (gram_atom)f->nodes.at[x][2]; }

/* Words of an atom behind its kind. */
static inline const uint32_t *gram_atom_words(const gram_forms *f, gram_form x) { return f->nodes.at[x] + 3; }

gram_type gram_atom_type(gram_atom kind); /* GRAM_TYPES for AT_TYPE */

gram_form gram_form_atom(gram_forms *f, gram_atom kind, uint32_t a, uint32_t b, uint32_t c, uint32_t d);
gram_form gram_form_type(gram_forms *f, uint32_t types);
gram_form gram_form_and(gram_forms *f, const gram_form *kids, uint32_t n);
gram_form gram_form_and2(gram_forms *f, gram_form a, gram_form b);
gram_form gram_form_or(gram_forms *f, const gram_form *kids, uint32_t n);
gram_form gram_form_or2(gram_forms *f, gram_form a, gram_form b);
gram_form gram_form_one(gram_forms *f, const gram_form *kids, uint32_t n);
gram_form gram_form_not(gram_forms *f, gram_form a);

/* A definition to be filled in later through f->refs[number]. GRAM_NONE after a failure. */
uint32_t gram_form_define(gram_forms *f);
gram_form gram_form_ref(gram_forms *f, uint32_t number);

uint32_t gram_form_name(gram_forms *f, const char *utf8, size_t n);
gram_ex gram_form_name_ex(gram_forms *f, uint32_t name);

/* A number as JSON spells it, or GRAM_NONE when it has more than GRAM_MAX_DIGITS digits or a larger exponent. */
#define GRAM_MAX_DIGITS 1024
uint32_t gram_form_dec(gram_forms *f, const char *text, size_t n);

gram_form gram_form_items(gram_forms *f, const gram_items *items); /* arrays are copied */
gram_form gram_form_props(gram_forms *f, const gram_props *props);

typedef enum gram_truth { GRAM_NO_WAY, GRAM_SURE, GRAM_MAYBE } gram_truth;

/* The truth of a formula from that of its atoms. */
gram_truth gram_form_truth(const gram_forms *f, gram_form x, gram_truth (*atom)(void *user, gram_form atom), void *user);

/* Calls for every atom in x; nested formulas of containers are not entered. */
void gram_form_each_atom(const gram_forms *f, gram_form x, void (*atom)(void *user, gram_form atom), void *user);

/* For values of one type. A reference that leads back to itself without a container between is a failure (invalid_schema). */
gram_form gram_form_of(gram_forms *f, gram_form x, gram_type type);

#endif
