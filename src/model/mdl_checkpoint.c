/* mdl_checkpoint.c - see mdl_checkpoint.h. The index is not needed to find a tensor (every shard lists its own), so it serves as a
 * cross-check: the set of shard names comes from it, and then each of its entries must be found in exactly the shard it names,
 * and the counts must agree. A missing shard, a stale index and a tensor stored twice all show up there. */
#include "model/mdl_checkpoint.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/file.h"
#include "core/json.h"
#include "core/name_index.h"

#include <string.h>

#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define MAX_INDEX_BYTES ((size_t)256 << 20)
#define MAX_SHARDS 4096

typedef struct entry {
    const st_tensor *tensor;
    uint32_t shard;
} entry;

struct mdl_checkpoint {
    st_file **shards; /* by name */
    size_t n_shards;
    entry *entries;
    uint32_t *order; /* of entries, by tensor name */
    size_t count;
};

/* The shard names of an index, each once, sorted. Borrowed from the document. */
typedef struct shard_list {
    const char **names;
    size_t count;
} shard_list;

static const char *tensor_name(const void *entries, size_t i, size_t *size)
{
    const st_tensor *const t = ((const entry *)entries)[i].tensor;
    *size = t->name_size;
    return t->name;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A shard must lie in the checkpoint's own folder. */
static bool plain_file_name(const char *name, size_t size)
{
    if (size == 0 || size > 255 || strlen(name) != size || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        if (name[i] == '/' || name[i] == '\\' || (unsigned char)name[i] < 0x20) {
            return false;
        }
    }
    return true;
}

/* Shard name of the i-th entry of the weight map. */
static di_status shard_name_at(const js_value *map, size_t i, const char **name, di_error *err)
{
    const char *tensor;
    const js_value *const value = js_member(map, i, &tensor);
    size_t size;
    *name = js_string(value, &size);
    if (js_kind_of(value) != JS_STRING || !plain_file_name(*name, size)) {
        return err_set(err, DI_E_FORMAT, INDEX_NAME ": weight_map entry %zu does not name a file of the checkpoint's folder", i);
    }
    return DI_OK;
}

static di_status list_shards(const js_value *root, shard_list *out, di_error *err)
{
    const js_value *const map = js_get(root, "weight_map");
    const size_t n = js_length(map);
    if (js_kind_of(map) != JS_OBJECT || n == 0) {
        return err_set(err, DI_E_FORMAT, INDEX_NAME ": weight_map must be an object that lists tensors");
    }
    const char **const names = ar_calloc(n, sizeof *names);
    if (names == NULL) {
        return err_memory(err, INDEX_NAME, n * sizeof *names);
    }
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const di_status status = shard_name_at(map, i, &names[count], err);
        if (status != DI_OK) {
            free(names);
            return status;
        }
        /* Neighbours mostly share a shard: this keeps the list short before it is sorted. */
        count += count == 0 || strcmp(names[count - 1], names[count]) != 0 ? 1 : 0;
    }
    qsort(names, count, sizeof *names, compare_text);
    out->count = 1;
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[out->count - 1], names[i]) != 0) {
            names[out->count++] = names[i];
        }
    }
    if (out->count > MAX_SHARDS) {
        free(names);
        return err_set(err, DI_E_LIMIT, INDEX_NAME ": names %zu shards: at most %d are supported", out->count, MAX_SHARDS);
    }
    out->names = names;
    return DI_OK;
}

/* Gathers the tensors of all shards and sorts them by name; a name in two shards is an error. */
static di_status index_tensors(mdl_checkpoint *c, di_error *err)
{
    for (size_t i = 0; i < c->n_shards; i++) {
        c->count += st_count(c->shards[i]);
    }
    if (c->count > UINT32_MAX) {
        return err_set(err, DI_E_LIMIT, "the checkpoint lists more than 2^32 tensors");
    }
    c->entries = ar_calloc(c->count, sizeof *c->entries);
    c->order = ar_calloc(c->count, sizeof *c->order);
    uint32_t *const scratch = ar_calloc(c->count, sizeof *scratch);
    if (c->entries == NULL || c->order == NULL || scratch == NULL) {
        free(scratch);
        return err_memory(err, "tensor table", c->count * sizeof *c->entries);
    }
    size_t n = 0;
    for (size_t i = 0; i < c->n_shards; i++) {
        for (size_t j = 0; j < st_count(c->shards[i]); j++) {
            c->entries[n++] = (entry){.tensor = st_at(c->shards[i], j), .shard = (uint32_t)i};
        }
    }
    nix_sort(c->entries, tensor_name, c->order, scratch, c->count);
    free(scratch);
    const size_t k = nix_duplicate(c->entries, tensor_name, c->order, c->count);
    if (k != 0) {
        const entry *const a = &c->entries[c->order[k - 1]];
        const entry *const b = &c->entries[c->order[k]];
        return err_set(err, DI_E_FORMAT, "tensor \"%.160s\" is stored twice: in %s and in %s", a->tensor->name,
                       st_label(c->shards[a->shard]), st_label(c->shards[b->shard]));
    }
    return DI_OK;
}

/* Every entry of the index must lie in the shard that it names, and no shard may hold more. */
static di_status check_against_index(const mdl_checkpoint *c, const js_value *map, di_error *err)
{
    for (size_t i = 0; i < js_length(map); i++) {
        const char *name;
        const char *const shard = js_string(js_member(map, i, &name), NULL);
        const size_t at = mdl_checkpoint_index(c, name);
        if (at == c->count) {
            return err_set(err, DI_E_FORMAT, "tensor \"%.160s\" is missing: " INDEX_NAME " places it in %s", name, shard);
        }
        if (strcmp(mdl_checkpoint_shard_of(c, at), shard) != 0) {
            return err_set(err, DI_E_FORMAT, "tensor \"%.160s\": " INDEX_NAME " places it in %s, but it is in %s", name, shard,
                           mdl_checkpoint_shard_of(c, at));
        }
    }
    for (size_t i = 0; i < c->count; i++) {
        if (js_get(map, c->entries[i].tensor->name) == NULL) {
            return err_set(err, DI_E_FORMAT, "tensor \"%.160s\" of %s is not listed in " INDEX_NAME, c->entries[i].tensor->name,
                           mdl_checkpoint_shard_of(c, i));
        }
    }
    return DI_OK;
}

static di_status open_shard(mdl_checkpoint *c, const char *dir, const char *name, di_error *err)
{
    char *const path = file_path_join(dir, name);
    if (path == NULL) {
        return err_memory(err, name, strlen(dir));
    }
    const di_status status = st_open(path, &c->shards[c->n_shards], err);
    free(path);
    if (status == DI_OK) {
        c->n_shards++;
    }
    return status;
}

static di_status open_indexed(mdl_checkpoint *c, const char *dir, const char *index_path, di_error *err)
{
    char *text = NULL;
    js_doc *doc = NULL;
    shard_list list = {.names = NULL};
    size_t size;
    di_status status = file_read(index_path, MAX_INDEX_BYTES, &text, &size, err);
    if (status == DI_OK) {
        status = js_parse(text, size, INDEX_NAME, NULL, &doc, err);
    }
    if (status == DI_OK) {
        status = list_shards(js_root(doc), &list, err);
    }
    if (status != DI_OK) {
        goto out;
    }
    c->shards = ar_calloc(list.count, sizeof(st_file *));
    if (c->shards == NULL) {
        status = err_memory(err, INDEX_NAME, list.count * sizeof(st_file *));
        goto out;
    }
    for (size_t i = 0; status == DI_OK && i < list.count; i++) {
        status = open_shard(c, dir, list.names[i], err);
    }
    if (status == DI_OK) {
        status = index_tensors(c, err);
    }
    if (status == DI_OK) {
        status = check_against_index(c, js_get(js_root(doc), "weight_map"), err);
    }

out:
    free(list.names);
    js_free(doc);
    free(text);
    return status;
}

static di_status open_single(mdl_checkpoint *c, const char *dir, di_error *err)
{
    c->shards = ar_calloc(1, sizeof(st_file *));
    if (c->shards == NULL) {
        return err_memory(err, SINGLE_NAME, sizeof(st_file *));
    }
    const di_status status = open_shard(c, dir, SINGLE_NAME, err);
    return status == DI_OK ? index_tensors(c, err) : status;
}

di_status mdl_checkpoint_open(const char *dir, mdl_checkpoint **out, di_error *err)
{
    mdl_checkpoint *const c = ar_calloc(1, sizeof *c);
    char *const index_path = file_path_join(dir, INDEX_NAME);
    char *const single_path = file_path_join(dir, SINGLE_NAME);
    di_status status;
    if (c == NULL || index_path == NULL || single_path == NULL) {
        status = err_memory(err, dir, sizeof *c);
    } else if (!file_exists(index_path) && file_exists(single_path)) {
        status = open_single(c, dir, err);
    } else {
        status = open_indexed(c, dir, index_path, err);
    }
    free(index_path);
    free(single_path);
    if (status != DI_OK) {
        mdl_checkpoint_close(c);
        return status;
    }
    *out = c;
    return DI_OK;
}

di_status mdl_checkpoint_of_file(st_file *file, mdl_checkpoint **out, di_error *err)
{
    mdl_checkpoint *const c = ar_calloc(1, sizeof *c);
    st_file **const shards = ar_calloc(1, sizeof(st_file *));
    if (c == NULL || shards == NULL) {
        free(c);
        free(shards);
        return err_memory(err, st_label(file), sizeof *c);
    }
    shards[0] = file;
    c->shards = shards;
    c->n_shards = 1;
    const di_status status = index_tensors(c, err);
    if (status != DI_OK) {
        c->n_shards = 0; /* the file stays the caller's */
        mdl_checkpoint_close(c);
        return status;
    }
    *out = c;
    return DI_OK;
}

void mdl_checkpoint_close(mdl_checkpoint *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n_shards; i++) {
        st_close(c->shards[i]);
    }
    free(c->shards);
    free(c->entries);
    free(c->order);
    free(c);
}

size_t mdl_checkpoint_count(const mdl_checkpoint *c)
{
    return c->count;
}

const st_tensor *mdl_checkpoint_at(const mdl_checkpoint *c, size_t i)
{
    return i < c->count ? c->entries[i].tensor : NULL;
}

size_t mdl_checkpoint_index(const mdl_checkpoint *c, const char *name)
{
    return nix_find(c->entries, tensor_name, c->order, c->count, name, strlen(name));
}

const st_tensor *mdl_checkpoint_find(const mdl_checkpoint *c, const char *name)
{
    return mdl_checkpoint_at(c, mdl_checkpoint_index(c, name));
}

const char *mdl_checkpoint_shard_of(const mdl_checkpoint *c, size_t i)
{
    return st_label(c->shards[c->entries[i].shard]);
}

size_t mdl_checkpoint_n_shards(const mdl_checkpoint *c)
{
    return c->n_shards;
}

const st_file *mdl_checkpoint_shard(const mdl_checkpoint *c, size_t i)
{
    return i < c->n_shards ? c->shards[i] : NULL;
}

const char *mdl_checkpoint_list_name(const mdl_checkpoint *c)
{
    return c->n_shards == 1 ? st_label(c->shards[0]) : INDEX_NAME;
}

uint64_t mdl_checkpoint_bytes(const mdl_checkpoint *c)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->count; i++) {
        bytes += c->entries[i].tensor->size;
    }
    return bytes;
}

di_status mdl_checkpoint_check_index(const char *text, size_t size, size_t *n_tensors, di_error *err)
{
    js_doc *doc;
    di_status status = js_parse(text, size, INDEX_NAME, NULL, &doc, err);
    if (status != DI_OK) {
        return status;
    }
    shard_list list = {.names = NULL};
    status = list_shards(js_root(doc), &list, err);
    if (status == DI_OK) {
        *n_tensors = js_length(js_get(js_root(doc), "weight_map"));
    }
    free(list.names);
    js_free(doc);
    return status;
}
