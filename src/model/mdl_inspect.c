/* mdl_inspect.c - what a checkpoint consists of, from config.json and the headers of its shards. Public API: <deepinfer/model.h>.
 *
 * The inventory (mdl_inventory.h) says which tensors there must be, and they are checked to be there with the right type, shape and
 * extent. No weight is touched, so a checkpoint of any size is inspected at the cost of its headers. */
#include "core/core.h"
#include "model/mdl_inventory.h"
#include "model/model_int.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 16 };

struct di_inspection {
    di_model_info info;
    di_part parts[MAX_PARTS];
    size_t n_parts;
    di_part formats[ST_N_DTYPES];
    size_t n_formats;
    di_layer layers[MDL_MAX_LAYERS];
    size_t n_layers;
};

/* Where a backbone tensor belongs: the first row whose text its name holds. */
static const struct {
    const char *in_name;
    const char *part;
} backbone_parts[] = {
    {".ffn.experts.", "routed experts"},
    {".ffn.shared_experts.", "shared experts"},
    {".ffn.gate.", "routers"},
    {".attn.compressor.", "compressors"},
    {".attn.indexer.", "indexers"},
    {".attn.", "attention"},
    {".engram.embed.", "Engram tables"},
    {".engram.", "Engram"},
    {".hc_", "hyper-connections"},
    {"embed.weight", "embedding"},
    {"head.weight", "output head"},
    {"norm.weight", "norms"},
};

static const char *part_of(const mdl_tensor *t)
{
    switch (t->scope) {
    case MDL_IN_DRAFT:
    case MDL_IN_STAGE:
    case MDL_IN_STAGE_EXPERT:
        return "draft model";
    case MDL_IN_VISION:
    case MDL_IN_VISION_BLOCK:
        return "image encoder";
    case MDL_IN_MODEL:
    case MDL_IN_LAYER:
    case MDL_IN_LAYER_EXPERT:
        break;
    }
    for (size_t i = 0; i < sizeof backbone_parts / sizeof backbone_parts[0]; i++) {
        if (strstr(t->name, backbone_parts[i].in_name) != NULL) {
            return backbone_parts[i].part;
        }
    }
    return "other";
}

/* Number formats by what is stored: packed FP4 lies in bytes of type I8. */
static const char *format_of(const mdl_tensor *t)
{
    if (t->role == MDL_SCALE) {
        return "scales (E8M0)";
    }
    return t->dtype == ST_I8 ? "FP4 (E2M1)" : t->dtype == ST_F8_E4M3 ? "FP8 (E4M3)" : st_dtype_name(t->dtype);
}

static void add(di_part *list, size_t *n, size_t max, const char *name, int64_t n_parameters, int64_t n_bytes)
{
    size_t i = 0;
    while (i < *n && strcmp(list[i].name, name) != 0) {
        i++;
    }
    if (i == max) {
        return; /* the lists hold every name of this file */
    }
    if (i == *n) {
        list[(*n)++] = (di_part){.name = name};
    }
    list[i].n_tensors++;
    list[i].n_parameters += n_parameters;
    list[i].n_bytes += n_bytes;
}

static di_status count_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    di_inspection *o = arg;
    int64_t n_elements = 1;
    (void)err;
    for (int d = 0; d < t->n_dims; d++) {
        n_elements *= t->dims[d];
    }
    const int64_t n_bytes = n_elements * (int64_t)st_dtype_bytes(t->dtype);
    const int64_t n_parameters = t->role == MDL_SCALE ? 0 : t->role == MDL_MATRIX ? t->n_out * t->n_in : n_elements;
    add(o->parts, &o->n_parts, MAX_PARTS, part_of(t), n_parameters, n_bytes);
    add(o->formats, &o->n_formats, ST_N_DTYPES, format_of(t), n_parameters, n_bytes);
    if ((t->scope == MDL_IN_LAYER || t->scope == MDL_IN_LAYER_EXPERT) && t->layer >= 0 && (size_t)t->layer < o->n_layers) {
        o->layers[t->layer].n_parameters += n_parameters;
        o->layers[t->layer].n_bytes += n_bytes;
    }
    return DI_OK;
}

static void describe_layers(const mdl_config *c, di_inspection *o)
{
    o->n_layers = (size_t)c->n_layers;
    for (int32_t i = 0; i < c->n_layers; i++) {
        o->layers[i] = (di_layer){.ratio = c->ratio[i], .kv_source = c->kv_source[i], .index_source = c->index_source[i]};
    }
    for (int32_t i = 0; i < c->engram.n_layers; i++) {
        o->layers[c->engram.layers[i]].has_engram = true;
    }
}

di_status di_inspection_new(const char *dir, di_inspection **out, di_error *err)
{
    di_inspection *o = calloc(1, sizeof *o);
    di_model *m = calloc(1, sizeof *m);
    di_status status = DI_OK;
    if (o == NULL || m == NULL) {
        status = err_memory(err, "inspection", sizeof *o + sizeof *m);
    }
    if (status == DI_OK) {
        status = mdl_config_read(dir, &m->config, err);
    }
    if (status == DI_OK) {
        status = mdl_checkpoint_open(dir, &m->checkpoint, err);
    }
    if (status == DI_OK) {
        size_t n_floats;
        status = mdl_weights_check(&m->config, m->checkpoint, &n_floats, err);
    }
    if (status == DI_OK) {
        di_model_get_info(m, &o->info);
        describe_layers(&m->config, o);
        status = mdl_inventory_walk(&m->config, count_tensor, o, err);
    }
    di_model_close(m);
    if (status != DI_OK) {
        free(o);
        return status;
    }
    *out = o;
    return DI_OK;
}

void di_inspection_free(di_inspection *inspection) { free(inspection); }

const di_model_info *di_inspection_info(const di_inspection *inspection) { return &inspection->info; }

size_t di_inspection_parts(const di_inspection *inspection, const di_part **parts)
{
    *parts = inspection->parts;
    return inspection->n_parts;
}

size_t di_inspection_formats(const di_inspection *inspection, const di_part **formats)
{
    *formats = inspection->formats;
    return inspection->n_formats;
}

size_t di_inspection_layers(const di_inspection *inspection, const di_layer **layers)
{
    *layers = inspection->layers;
    return inspection->n_layers;
}
