/* gram_json.h - JSON text that formulas accept: the stack machine behind JSON Schema.
 *
 * JSON is visibly nested: brackets alone decide what is pushed and popped, whatever a schema says. So one stack of containers follows any
 * schema deterministically, when each container knows enough about its formula. What it knows:
 *
 *  - a *goal* is what a value has to be (a formula), and which other formulas its parent wants to know of it (observed). The value, once
 *    complete, satisfies the goal; the bits of the observed formulas go to the parent.
 *  - a *plan* is a goal for objects (or arrays) taken apart: atoms, names, classes of other names with the same treatment.
 *  - a *state* says which of the plan's demands on all members have been violated so far. Nothing is guessed: a member is asked for
 *    all formulas that matter, and its bits move the state.
 *  - a *view* is a state with the names seen and their number: all that decides how the object may go on. Questions about views (may it be
 *    closed, which names may follow, with what goal) are answered by a search for one way to satisfy the formula (gram_obj_search.c),
 *    and kept. Views do not know where they are, so equal objects in different places share them.
 *  - a *frame* is a view in its place: with its parent, the member being written, and the names that are no declared ones.
 *
 * A name or value is begun only if the container can still be completed with it; so there is never a dead end.
 *
 * Owner: the grammar. Thread: the holder of its lock. */
#ifndef GRAMMAR_GRAM_JSON_H
#define GRAMMAR_GRAM_JSON_H

#include "grammar/gram_num.h"
#include "grammar/gram_text.h"
#include "grammar/gram_used.h"

#include <deepinfer/grammar.h>

#define GRAM_MAX_LOOK 100u   /* levels of containers that a value may need to satisfy a formula at all */
#define GRAM_MAX_CLASSES 64u
#define GRAM_ANON (GRAM_NONE - 1) /* a name that nobody looked at */

static inline bool gram_has(const uint32_t *bits, uint32_t i) { return (bits[i / 32] >> i % 32 & 1) != 0; }
static inline uint32_t gram_bit_words(uint32_t bits) { return (bits + 31) / 32; }

typedef struct gram_goal {
    gram_form form;
    const gram_form *observed; /* [n] */
    uint32_t n;
    uint32_t plan[GRAM_TYPES]; /* of texts, numbers, objects, arrays; + 1, 0 = not made */
} gram_goal;

/* --- Objects ------------------------------------------------------------------------------------------------------ */

typedef struct gram_class { /* names that are not declared and match the same patterns */
    gram_ex ex;
    uint64_t patterns; /* bits */
} gram_class;

/* Names of a class are never all used: smaller ones are taken apart into names. */
#define GRAM_LEAST_CLASS 4097u

typedef struct gram_obj_plan {
    gram_form goal; /* of GRAM_OBJECT, as are the observed ones */
    const gram_form *observed;
    uint32_t n_observed;
    const gram_form *layers; /* [n_layers] atoms about all members, and what they say */
    const uint32_t *props;
    uint32_t n_layers;
    const gram_form *reqs;   /* [n_reqs] atoms, and the slots of their names */
    const uint32_t *req_slots;
    uint32_t n_reqs;
    uint32_t bound;          /* numbers of members beyond it are alike */
    const uint32_t *names;   /* slot i < n_names is name i, the others are classes */
    uint32_t n_names;
    const gram_ex *patterns; /* [n_patterns] */
    uint32_t n_patterns;
    gram_class *classes;
    uint32_t n_classes;
    gram_form *forms;        /* [n_layers * slots] what a layer demands of a slot, + 1 */
    const uint32_t *word_slot; /* [n_names] slots in the order of the sorted names */
    uint32_t key_vec;        /* + 1; the names, then the classes of `key_classes` */
    uint64_t key_classes;    /* bits of those that can ever come */
    uint8_t ordered;         /* 0 = not known, 1 = any order, 2 = by slot */
} gram_obj_plan;

typedef struct gram_obj_state {
    uint32_t plan;
    const uint32_t *violated; /* bits of layers; also set for those that make no difference any more */
    bool dead;
    bool simple;      /* all of `layers`, `reqs` and the number of members, and nothing else, must hold */
    uint32_t *active; /* [n_active] layers that are not violated */
    uint32_t n_active;
    uint32_t *required; /* bits of slots; simple only */
    uint32_t n_required;
    uint32_t min;     /* members; simple only */
    uint32_t max;
    gram_form *forms; /* [slots] conjunction of the active layers, + 1 */
} gram_obj_state;

/* With which goal a member is written, and what its bits say about the layers. */
typedef struct gram_obj_choice {
    bool allowed;
    uint32_t goal;
    const uint32_t *bit; /* [n_layers] index of the bit that tells, or one of the next two */
} gram_obj_choice;
enum { GRAM_BIT_HOLDS = 0xFFFFFFFF, GRAM_BIT_FAILS = 0xFFFFFFFE };

typedef struct gram_obj_view {
    uint32_t state;
    uint32_t levels; /* that may still be opened inside */
    uint32_t count;  /* of members, 0 where it makes no difference */
    const uint32_t *seen; /* bits of slots; where the order matters one more: names that are no declared ones */
    uint8_t viable;  /* these: 0 = not known, 1 = no, 2 = yes */
    uint8_t closable;
    uint8_t more;
    uint32_t result; /* bits at the end, + 1 */
    uint8_t *allowed; /* [slots] */
    gram_obj_choice **choices; /* [slots] */
    uint32_t *words; /* allowed names, bits in sorted order; NULL = not made */
    uint64_t classes; /* classes that are allowed */
    bool open;       /* every text begins a name of some allowed class */
} gram_obj_view;

/* --- Arrays ------------------------------------------------------------------------------------------------------- */

typedef struct gram_arr_plan {
    gram_form goal; /* of GRAM_ARRAY, as are the observed ones */
    const gram_form *observed;
    uint32_t n_observed;
    const gram_form *layers; /* [n_layers] atoms about all items: AT_ITEMS, and AT_UNIQUE behind them */
    uint32_t n_layers;
    const gram_form *contains; /* [n_contains] AT_CONTAINS */
    uint32_t n_contains;
    bool unique;     /* the last layer is AT_UNIQUE */
    uint32_t steady; /* from this index on all items are treated alike */
    uint32_t bound;  /* numbers of items from there on are alike */
} gram_arr_plan;

typedef struct gram_arr_choice {
    bool allowed;
    uint32_t goal;
    const uint32_t *bit; /* [n_layers + n_contains] as in gram_obj_choice */
} gram_arr_choice;

typedef struct gram_arr_view {
    uint32_t plan;
    uint32_t levels;
    uint32_t index;           /* of the next item, at most the bound */
    gram_form used;           /* what an item must not be again, where the plan is about unique items */
    const uint32_t *violated; /* bits of layers */
    const uint32_t *counts;   /* [n_contains] items that satisfied it, up to what matters */
    uint8_t viable; /* these: 0 = not known, 1 = no, 2 = yes */
    uint8_t closable;
    uint32_t result; /* + 1 */
    gram_arr_choice *choice; /* of the next item; NULL = not known */
} gram_arr_view;

/* --- Frames ------------------------------------------------------------------------------------------------------- */

typedef enum gram_frame_kind { FRAME_ROOT, FRAME_OBJECT, FRAME_ARRAY } gram_frame_kind;

typedef struct gram_frame {
    uint8_t kind;
    bool anon;       /* one of the extra names is not known */
    uint32_t depth;
    uint32_t parent;
    uint32_t view;   /* of the container; of the root: the goal */
    uint32_t slot;   /* of the member or item being written, + 1; 0 = none; of the root: what follows it (gram_js_start) */
    uint32_t key;    /* its name, where it is no declared one */
    gram_used extras; /* the names that were no declared ones */
} gram_frame;

typedef struct gram_json {
    gram_mem *mem;
    gram_forms *forms;
    gram_lang *lang;
    gram_lexes *lexes;
    gram_nums nums;
    gram_texts texts;
    di_grammar_order order;
    uint32_t max_depth;

    gram_tuples goal_keys;
    gram_goal *goals;
    uint32_t goal_capacity;
    gram_tuples bits; /* results: words of bits */

    gram_tuples obj_plan_keys;
    gram_obj_plan *obj_plans;
    uint32_t obj_plan_capacity;
    gram_tuples obj_state_keys;
    gram_obj_state *obj_states;
    uint32_t obj_state_capacity;
    gram_tuples obj_view_keys;
    gram_obj_view **obj_views;
    uint32_t obj_view_capacity;

    gram_tuples arr_plan_keys;
    gram_arr_plan *arr_plans;
    uint32_t arr_plan_capacity;
    gram_tuples arr_view_keys;
    gram_arr_view **arr_views;
    uint32_t arr_view_capacity;

    gram_used_sets used; /* names */
    gram_tuples frame_keys;
    gram_frame *frames;
    uint32_t frame_capacity;
} gram_json;

bool gram_json_init(gram_json *j, gram_mem *mem, gram_forms *forms, gram_lexes *lexes);

/* --- gram_goal.c: goals, satisfiability --------------------------------------------------------------------------- */

uint32_t gram_goal_of(gram_json *j, gram_form form, const gram_form *observed, uint32_t n);

/* The number of a formula and what is observed beside it, among such keys. The n observed ones begin at keys->at[number] + 2. */
uint32_t gram_observed_key(gram_json *j, gram_tuples *keys, gram_form form, const gram_form *observed, uint32_t n, bool *is_new);

enum { GRAM_UNDECIDED, GRAM_HOLDS, GRAM_FAILS };

/* What a search has found about the next value: the ways that it may be, each a formula and what that says of the demands. */
typedef struct gram_demands {
    const gram_form *values; /* [n] */
    const uint8_t *says;     /* [n][stride] GRAM_UNDECIDED, _HOLDS, _FAILS, or more of the caller's */
    uint32_t n;
    uint32_t stride;
    uint32_t levels; /* of containers that a value may have */
} gram_demands;

/* GRAM_BIT_HOLDS or GRAM_BIT_FAILS when demand `which`, met by values that satisfy `form`, comes out alike in all of these ways; else the
 * number of `form` among those to be observed: lang->work from `base` on, where it is added if need be. */
uint32_t gram_demand_bit(gram_json *j, const gram_demands *d, uint32_t which, gram_form form, uint32_t base);

/* The plan of a goal for texts, numbers, arrays or objects. */
uint32_t gram_goal_plan(gram_json *j, uint32_t goal, gram_type type);

/* A value of this type can satisfy the goal, with so many levels of containers. */
bool gram_goal_sat(gram_json *j, uint32_t goal, gram_type type, uint32_t levels);
bool gram_sat(gram_json *j, gram_form form, uint32_t levels);

/* How many different values satisfy a formula, at most `cap`; GRAM_NONE when that is not known. */
uint32_t gram_values(gram_json *j, gram_form form, uint32_t cap);

/* The same for a formula about arrays or objects alone that can be satisfied; it is only known from below (gram_arr.c). */
uint32_t gram_container_values(gram_json *j, gram_form typed, gram_type type, uint32_t cap);

/* Bits of a literal (GRAM_NULL, GRAM_NO, GRAM_YES), a text or a number at its end. */
uint32_t gram_goal_bits(gram_json *j, uint32_t goal, gram_type type, uint32_t lex, uint32_t n);
bool gram_bit(const gram_json *j, uint32_t bits, uint32_t i);
uint32_t gram_bits_of(gram_json *j, const gram_form *observed, uint32_t n, gram_truth (*atom)(void *user, gram_form atom), void *user);

/* --- gram_obj_plan.c, gram_obj.c, gram_obj_search.c --------------------------------------------------------------- */

uint32_t gram_obj_plan_of(gram_json *j, gram_form goal, const gram_form *observed, uint32_t n);
static inline uint32_t gram_obj_slots(const gram_obj_plan *plan) { return plan->n_names + plan->n_classes; }
static inline uint32_t gram_obj_words(const gram_obj_plan *plan) { return gram_bit_words(gram_obj_slots(plan) + 1); } /* of seen */
gram_form gram_obj_form(gram_json *j, uint32_t plan, uint32_t layer, uint32_t slot); /* what a layer demands */
uint32_t gram_obj_key_vec(gram_json *j, uint32_t plan);
bool gram_obj_ordered(gram_json *j, uint32_t plan);

uint32_t gram_obj_state_of(gram_json *j, uint32_t plan, const uint32_t *violated, const uint32_t *seen);
gram_form gram_obj_state_form(gram_json *j, uint32_t state, uint32_t slot);

uint32_t gram_obj_view_of(gram_json *j, uint32_t state, uint32_t levels, uint32_t count, const uint32_t *seen);
uint32_t gram_obj_start(gram_json *j, uint32_t plan, uint32_t levels); /* the view of an empty object */
bool gram_obj_viable(gram_json *j, uint32_t view);   /* it can be completed */
bool gram_obj_closable(gram_json *j, uint32_t view); /* it is complete */
bool gram_obj_more(gram_json *j, uint32_t view);     /* another member may come */
bool gram_obj_allows(gram_json *j, uint32_t view, uint32_t slot);
const gram_obj_choice *gram_obj_choose(gram_json *j, uint32_t view, uint32_t slot); /* slot is allowed */
uint32_t gram_obj_add(gram_json *j, uint32_t view, uint32_t slot, uint32_t bits); /* the view behind a member with these bits */
uint32_t gram_obj_result(gram_json *j, uint32_t view);
void gram_obj_prepare_keys(gram_json *j, uint32_t view); /* fills words, classes and open */

/* Some way to complete the object exists; with slot < slots: when a member of this slot is written first, and *out gets its choice. */
bool gram_obj_search(gram_json *j, uint32_t view, uint32_t slot, gram_obj_choice *out);


/* --- gram_arr.c, gram_arr_search.c -------------------------------------------------------------------------------- */

uint32_t gram_arr_plan_of(gram_json *j, gram_form goal, const gram_form *observed, uint32_t n);
gram_form gram_arr_form(gram_json *j, uint32_t view, uint32_t layer, uint32_t index); /* what a layer demands of an item */
uint32_t gram_arr_start(gram_json *j, uint32_t plan, uint32_t levels);
bool gram_arr_viable(gram_json *j, uint32_t view);
bool gram_arr_closable(gram_json *j, uint32_t view);
const gram_arr_choice *gram_arr_choose(gram_json *j, uint32_t view); /* of the next item, if one is allowed */
/* The view behind an item with these bits; `value` is the formula of exactly this value where the plan is about unique items. */
uint32_t gram_arr_add(gram_json *j, uint32_t view, uint32_t bits, gram_form value);
uint32_t gram_arr_result(gram_json *j, uint32_t view);

/* As gram_obj_search: with `next` another item is written first. */
bool gram_arr_search(gram_json *j, uint32_t view, bool next, gram_arr_choice *out);

/* The values of a formula as formulas, pushed to `out`, when there are at most `cap` and they can be listed. */
bool gram_list_values(gram_json *j, gram_form form, uint32_t cap, gram_stack *out);

/* --- gram_frame.c ------------------------------------------------------------------------------------------------- */

uint32_t gram_frame_of(gram_json *j, const gram_frame *frame);
static inline uint32_t gram_frame_levels(const gram_json *j, uint32_t depth)
{
    const uint32_t left = depth < j->max_depth ? j->max_depth - depth : 0;
    return left < GRAM_MAX_LOOK ? left : GRAM_MAX_LOOK;
}

#endif
