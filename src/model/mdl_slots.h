/* mdl_slots.h - which experts are in memory, and which one makes room: knows numbers, neither weights nor disks.
 *
 * A victim is found as a clock finds it: the hand passes over what was used since it came by last. What is asked for most often stays
 * altogether, up to half of the slots: a pass over all layers would otherwise push out whatever an ordinary recency keeps. Counts are
 * halved from time to time, so that the hot set follows what is talked about. (Second chance: Corbato, 1968; counts that age: LFU of
 * every operating system's textbook.) Thread: its owner's. */
#ifndef MODEL_MDL_SLOTS_H
#define MODEL_MDL_SLOTS_H

#include <deepinfer/base.h>

typedef enum mdl_slot_state {
    MDL_SLOT_FREE,
    MDL_SLOT_READING, /* never a victim: the disk writes into it */
    MDL_SLOT_READ,    /* stored form, complete */
    MDL_SLOT_FORMED   /* the backend's form */
} mdl_slot_state;

typedef struct mdl_slot {
    int32_t expert; /* -1 = none */
    mdl_slot_state state;
    bool used;    /* since the hand passed */
    bool needed;  /* by the stage that runs: no victim */
    bool guessed; /* read because it was likely, not needed yet */
} mdl_slot;

typedef struct mdl_slots {
    mdl_slot *slots; /* [n_slots] */
    int32_t *where;  /* [n_experts] slot; -1 = not in memory */
    uint32_t *count; /* [n_experts] how often it was used, aging */
    uint32_t *sorted; /* [n_experts] scratch */
    int32_t n_slots;
    int32_t n_experts;
    int32_t hand;
    int32_t n_uses;    /* since counts were halved */
    uint32_t hot_from; /* counts from here on are the hot set; 0 = no hot set yet */
} mdl_slots;

/* n_slots 1..n_experts. Errors: DI_E_MEMORY. */
di_status mdl_slots_init(mdl_slots *s, int32_t n_slots, int32_t n_experts, di_error *err);
void mdl_slots_fini(mdl_slots *s);

/* A slot for an expert that is in none, in state READING: free, or that of a victim; -1 when there is none. With `guess` the hot set and
 * what was used since the hand passed are no victims. */
int32_t mdl_slots_take(mdl_slots *s, int32_t expert, bool guess);
/* The slot is free. */
void mdl_slots_drop(mdl_slots *s, int32_t slot);
/* A stage takes the expert of this slot. */
void mdl_slots_use(mdl_slots *s, int32_t slot);
bool mdl_slots_is_hot(const mdl_slots *s, int32_t expert);

#endif
