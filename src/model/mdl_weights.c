/* mdl_weights.c - see mdl_weights.h. Two walks over the inventory: the first compares every tensor with the checkpoint and adds up
 * what has to be copied, so that nothing is allocated for a checkpoint that does not fit; the second stores the pointers.
 * Everything owned is one block: arrays of structs, then fp32 values. */
#include "model/mdl_weights.h"

#include "core/arith.h"
#include "core/err.h"
#include "model/mdl_inventory.h"

#include <stdio.h>
#include <string.h>

#define NAMES_SHOWN 4

/* Names for a message: the first few and how many there are. */
typedef struct name_list {
    size_t count;
    char text[NAMES_SHOWN * (MDL_MAX_NAME + 2) + 1];
} name_list;

typedef struct checker {
    const mdl_checkpoint *checkpoint;
    uint8_t *used; /* one byte for each tensor of the checkpoint */
    size_t n_floats;
    name_list missing;
} checker;

typedef struct binder {
    const mdl_checkpoint *checkpoint;
    mdl_weights *weights;
    float *next; /* free part of the copied values */
} binder;

typedef struct placer {
    mdl_weights *weights;
    const float *next; /* place of the next vector */
} placer;

static void list_add(name_list *list, const char *name)
{
    const size_t used = strlen(list->text);
    if (list->count < NAMES_SHOWN) {
        snprintf(list->text + used, sizeof list->text - used, "%s%.*s", used > 0 ? ", " : "", MDL_MAX_NAME, name);
    }
    list->count++;
}

static const char *list_more(const name_list *list)
{
    return list->count > NAMES_SHOWN ? ", ..." : "";
}

static bool same_shape(const st_tensor *found, const mdl_tensor *wanted)
{
    bool same = found->dtype == wanted->dtype && found->n_dims == wanted->n_dims;
    for (int i = 0; same && i < wanted->n_dims; i++) {
        same = found->dims[i] == wanted->dims[i];
    }
    return same;
}

static di_status check_tensor(void *arg, const mdl_tensor *wanted, di_error *err)
{
    checker *const c = arg;
    const size_t at = mdl_checkpoint_index(c->checkpoint, wanted->name);
    const st_tensor *const found = mdl_checkpoint_at(c->checkpoint, at);
    if (found == NULL) {
        list_add(&c->missing, wanted->name);
        return DI_OK;
    }
    c->used[at] = 1;
    if (!same_shape(found, wanted)) {
        char expected[96];
        char actual[256];
        mdl_shape_text(wanted->dtype, wanted->n_dims, wanted->dims, expected, sizeof expected);
        mdl_shape_text(found->dtype, found->n_dims, found->dims, actual, sizeof actual);
        return err_set(err, DI_E_FORMAT, "%s (%s): expected %s, found %s", wanted->name,
                       mdl_checkpoint_shard_of(c->checkpoint, at), expected, actual);
    }
    if (wanted->role == MDL_VECTOR) {
        c->n_floats += (size_t)(wanted->n_out * wanted->n_in); /* lies in a mapped file: no overflow */
    }
    return DI_OK;
}

static di_status check_extra(const checker *c, di_error *err)
{
    name_list extra = {.count = 0};
    for (size_t i = 0; i < mdl_checkpoint_count(c->checkpoint); i++) {
        const char *const name = mdl_checkpoint_at(c->checkpoint, i)->name;
        if (c->used[i] == 0 && strcmp(name, "image_pad") != 0) { /* model.md 2.2: tolerated */
            list_add(&extra, name);
        }
    }
    if (extra.count == 0) {
        return DI_OK;
    }
    return err_set(err, DI_E_FORMAT, "%s has %zu tensor%s that config.json does not know: %s%s",
                   mdl_checkpoint_list_name(c->checkpoint), extra.count, extra.count == 1 ? "" : "s", extra.text, list_more(&extra));
}

di_status mdl_weights_check(const mdl_config *config, const mdl_checkpoint *checkpoint, size_t *n_floats, di_error *err)
{
    checker c = {.checkpoint = checkpoint};
    const size_t n = mdl_checkpoint_count(checkpoint);
    c.used = ar_calloc(n, 1);
    if (c.used == NULL) {
        return err_memory(err, "tensor table", n);
    }
    di_status status = mdl_inventory_walk(config, check_tensor, &c, err);
    if (status == DI_OK && c.missing.count > 0) {
        status = err_set(err, DI_E_FORMAT, "%s lacks %zu tensor%s that config.json needs: %s%s",
                         mdl_checkpoint_list_name(checkpoint), c.missing.count, c.missing.count == 1 ? "" : "s", c.missing.text,
                         list_more(&c.missing));
    }
    if (status == DI_OK) {
        status = check_extra(&c, err);
    }
    free(c.used);
    *n_floats = c.n_floats;
    return status;
}

/* The struct that a tensor belongs to. */
static char *scope_base(mdl_weights *w, const mdl_tensor *t)
{
    switch (t->scope) {
    case MDL_IN_LAYER:
        return (char *)&w->layers[t->layer];
    case MDL_IN_LAYER_EXPERT:
        return (char *)&w->layers[t->layer].experts[t->expert];
    case MDL_IN_DRAFT:
        return (char *)&w->draft;
    case MDL_IN_STAGE:
        return (char *)&w->draft.stages[t->layer];
    case MDL_IN_STAGE_EXPERT:
        return (char *)&w->draft.stages[t->layer].experts[t->expert];
    case MDL_IN_VISION:
        return (char *)&w->vision;
    case MDL_IN_VISION_BLOCK:
        return (char *)&w->vision.blocks[t->layer];
    default:
        return (char *)w;
    }
}

/* Little-endian bf16 or fp32 at any alignment. A bf16 is the upper half of an fp32, so widening is exact. */
static void widen(const st_tensor *from, float *to)
{
    const size_t each = st_dtype_bytes(from->dtype);
    const size_t n = from->size / each;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *const p = from->data + i * each;
        uint32_t bits = 0;
        for (size_t j = 0; j < each; j++) {
            bits |= (uint32_t)p[j] << 8 * (4 - each + j);
        }
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static di_status bind_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    (void)err;
    binder *const b = arg;
    const st_tensor *const found = mdl_checkpoint_find(b->checkpoint, t->name);
    char *const place = scope_base(b->weights, t) + t->offset;
    if (t->role == MDL_VECTOR) {
        const float *const values = b->next;
        if (found->data != NULL) {
            widen(found, b->next);
        }
        b->next += t->n_out * t->n_in;
        memcpy(place, &values, sizeof values);
        return DI_OK;
    }
    ops_matrix *const m = (ops_matrix *)(void *)place;
    if (t->role == MDL_SCALE) {
        m->scale = found->data;
        return DI_OK;
    }
    *m = (ops_matrix){.format = t->format, .n_out = t->n_out, .n_in = t->n_in, .data = found->data};
    return DI_OK;
}

/* Carves the owned block: layers, stages, experts of both, vision blocks; returns the place of the values. */
static float *carve(const mdl_config *config, mdl_weights *w)
{
    mdl_layer_weights *layer = w->owned;
    w->layers = layer;
    layer += config->n_layers;
    w->draft.stages = config->draft.n_stages > 0 ? layer : NULL;
    layer += config->draft.n_stages;
    mdl_expert_weights *expert = (mdl_expert_weights *)layer;
    for (int32_t i = 0; i < config->n_layers + config->draft.n_stages; i++) {
        const int32_t n = i < config->n_layers ? config->n_experts : config->draft.n_experts;
        w->layers[i].n_experts = n;
        w->layers[i].experts = expert;
        expert += n;
    }
    mdl_vision_block_weights *const blocks = (mdl_vision_block_weights *)expert;
    w->vision.blocks = config->vision.present ? blocks : NULL;
    return (float *)(blocks + config->vision.n_layers);
}

di_status mdl_weights_bind(const mdl_config *config, const mdl_checkpoint *checkpoint, mdl_weights *out, di_error *err)
{
    size_t n_floats = 0;
    const di_status status = mdl_weights_check(config, checkpoint, &n_floats, err);
    if (status != DI_OK) {
        return status;
    }
    /* Inside the limits of mdl_config.c these products stay far below 2^40. */
    const size_t n_layers = (size_t)config->n_layers + (size_t)config->draft.n_stages;
    const size_t n_experts = (size_t)config->n_layers * (size_t)config->n_experts +
                             (size_t)config->draft.n_stages * (size_t)config->draft.n_experts;
    const size_t bytes = n_layers * sizeof(mdl_layer_weights) + n_experts * sizeof(mdl_expert_weights) +
                         (size_t)config->vision.n_layers * sizeof(mdl_vision_block_weights) + n_floats * sizeof(float);
    mdl_weights w;
    memset(&w, 0, sizeof w);
    w.owned = ar_calloc(bytes, 1);
    if (w.owned == NULL) {
        return err_memory(err, "weights", bytes);
    }
    binder b = {.checkpoint = checkpoint, .weights = &w, .next = carve(config, &w)};
    w.values = b.next;
    w.n_values = n_floats;
    mdl_inventory_walk(config, bind_tensor, &b, NULL);
    *out = w;
    return DI_OK;
}

/* Vectors follow each other in the order of the walk, as in bind_tensor. */
static di_status place_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    (void)err;
    placer *const p = arg;
    if (t->role == MDL_VECTOR) {
        memcpy(scope_base(p->weights, t) + t->offset, &p->next, sizeof p->next);
        p->next += t->n_out * t->n_in;
    }
    return DI_OK;
}

void mdl_weights_place(const mdl_config *config, mdl_weights *weights, const float *values)
{
    placer p = {.weights = weights, .next = values};
    mdl_inventory_walk(config, place_tensor, &p, NULL);
}

void mdl_weights_free(mdl_weights *weights)
{
    if (weights == NULL) {
        return;
    }
    free(weights->owned);
    memset(weights, 0, sizeof *weights);
}
