/* mdl_slots.c - see mdl_slots.h. */
#include "model/mdl_slots.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

enum { AGE_USES = 16 }; /* counts are halved when so many uses an expert have been counted */

di_status mdl_slots_init(mdl_slots *s, int32_t n_slots, int32_t n_experts, di_error *err)
{
    const size_t n = (size_t)n_experts;
    *s = (mdl_slots){.n_slots = n_slots, .n_experts = n_experts};
    s->slots = ar_calloc((size_t)n_slots, sizeof *s->slots);
    s->where = ar_calloc(n, sizeof *s->where);
    s->count = ar_calloc(n, sizeof *s->count);
    s->sorted = ar_calloc(n, sizeof *s->sorted);
    if (s->slots == NULL || s->where == NULL || s->count == NULL || s->sorted == NULL) {
        mdl_slots_fini(s);
        return err_memory(err, "table of experts", n * sizeof *s->where);
    }
    for (int32_t i = 0; i < n_slots; i++) {
        s->slots[i].expert = -1;
    }
    for (int32_t e = 0; e < n_experts; e++) {
        s->where[e] = -1;
    }
    return DI_OK;
}

void mdl_slots_fini(mdl_slots *s)
{
    free(s->slots);
    free(s->where);
    free(s->count);
    free(s->sorted);
    *s = (mdl_slots){.n_slots = 0};
}

bool mdl_slots_is_hot(const mdl_slots *s, int32_t expert)
{
    return s->hot_from > 0 && s->count[expert] >= s->hot_from;
}

/* The hand goes round. First it leaves out the hot set and gives second chances, then, in need, it takes whatever can be taken. */
static int32_t find_victim(mdl_slots *s, bool guess)
{
    const int32_t most = guess ? s->n_slots : 4 * s->n_slots;
    for (int32_t i = 0; i < most; i++) {
        const int32_t at = s->hand;
        mdl_slot *const slot = &s->slots[at];
        s->hand = at + 1 < s->n_slots ? at + 1 : 0;
        if (slot->state == MDL_SLOT_FREE) {
            return at;
        }
        if (slot->state == MDL_SLOT_READING || slot->needed || (i < 2 * s->n_slots && mdl_slots_is_hot(s, slot->expert))) {
            continue;
        }
        if (!slot->used) {
            return at;
        }
        slot->used = guess; /* a guess takes no second chance away */
    }
    return -1;
}

int32_t mdl_slots_take(mdl_slots *s, int32_t expert, bool guess)
{
    const int32_t at = find_victim(s, guess);
    if (at >= 0) {
        mdl_slots_drop(s, at);
        s->slots[at] = (mdl_slot){.expert = expert, .state = MDL_SLOT_READING, .guessed = guess};
        s->where[expert] = at;
    }
    return at;
}

void mdl_slots_drop(mdl_slots *s, int32_t slot)
{
    if (s->slots[slot].expert >= 0) {
        s->where[s->slots[slot].expert] = -1;
    }
    s->slots[slot] = (mdl_slot){.expert = -1, .state = MDL_SLOT_FREE};
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The hot set is chosen anew. */
static void choose_hot(mdl_slots *s)
{
    const int32_t most = s->n_slots / 2;
    memcpy(s->sorted, s->count, (size_t)s->n_experts * sizeof *s->sorted);
    qsort(s->sorted, (size_t)s->n_experts, sizeof *s->sorted, compare);
    s->hot_from = most > 0 ? s->sorted[most - 1] : 0;
    if (most > 0 && most < s->n_experts && s->sorted[most] == s->hot_from) {
        s->hot_from++; /* no more than half, also when many are equal */
    }
}

void mdl_slots_use(mdl_slots *s, int32_t slot)
{
    mdl_slot *const at = &s->slots[slot];
    at->used = true;
    at->guessed = false;
    s->count[at->expert] += s->count[at->expert] < UINT32_MAX ? 1 : 0;
    s->n_uses++;
    if (s->n_uses % s->n_slots == 0) {
        choose_hot(s);
    }
    if (s->n_uses >= AGE_USES * s->n_experts) {
        for (int32_t e = 0; e < s->n_experts; e++) {
            s->count[e] /= 2;
        }
        s->hot_from /= 2;
        s->n_uses = 0;
    }
}
