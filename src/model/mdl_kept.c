/* mdl_kept.c - see mdl_kept.h. */
#include "model/mdl_kept.h"

#include "core/core.h"
#include "model/model_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NAME_DIGITS = 16 };

struct mdl_kept {
    char *path;
    file_map map;                  /* the file in use; data NULL = none */
    const mdl_kept_entry *entries; /* [n_entries] in it */
    size_t n_entries;
    size_t at;                     /* of the next matrix */
    mdl_kept_writer *writer;       /* NULL = none is written */
    char why[320];                 /* no file could be used; "" = there was none */
    mdl_weight_stats stats;
};

static void say(mdl_kept *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(mdl_kept *k, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(k->stats.note, sizeof k->stats.note, format, list);
    va_end(list);
}

static double megabytes(int64_t bytes) { return (double)bytes * 1e-6; }

/* --- What a runner needs ------------------------------------------------------------------------------------------------- */

typedef struct needs {
    const mdl_kept *kept; /* NULL = nothing to compare with */
    size_t n;             /* matrices for products */
    size_t bytes;         /* of their forms */
    bool whole;           /* forms are read */
    const char *wrong;    /* with what the file has; NULL = nothing */
} needs;

static di_status count_matrix(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err)
{
    needs *const x = arg;
    if (kind != MDL_DENSE && kind != MDL_EXPERT) {
        return DI_OK;
    }
    const size_t size = (r->ops->kept_bytes(r->dev, m) + MDL_KEPT_ALIGN - 1) / MDL_KEPT_ALIGN * MDL_KEPT_ALIGN;
    x->n++;
    return ar_add(x->bytes, size, &x->bytes) ? DI_OK : err_memory(err, "weights", size);
}

static di_status compare_matrix(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err)
{
    needs *const x = arg;
    const mdl_kept *const k = x->kept;
    (void)err;
    if ((kind != MDL_DENSE && kind != MDL_EXPERT) || x->wrong != NULL) {
        return DI_OK;
    }
    const mdl_kept_entry *const e = &k->entries[x->n++];
    if (x->n > k->n_entries) {
        x->wrong = "it lacks weights of the draft model";
    } else if ((ops_format)e->format != m->format || e->n_out != m->n_out || e->n_in != m->n_in) {
        x->wrong = "it holds matrices of other shapes";
    } else if (e->size != 0 && e->size != r->ops->kept_bytes(r->dev, m)) {
        x->wrong = "a form has the wrong size";
    } else if (!mdl_kept_sound(e, k->map.data + e->offset, x->whole)) {
        x->wrong = "wrong checksum of a matrix";
    }
    return DI_OK;
}

/* --- Opening ---------------------------------------------------------------------------------------------------------------- */

static void close_file(mdl_kept *k)
{
    file_map_close(&k->map);
    k->entries = NULL;
    k->n_entries = 0;
}

/* Maps the file when it can be used. */
static void open_file(mdl_kept *k, mdl_runner *r, const mdl_kept_key *key)
{
    di_error err = {.message = ""};
    needs x = {.kept = k};
    if (!file_exists(k->path)) {
        return;
    }
    di_status status = file_map_open(k->path, &k->map, &err);
    if (status == DI_OK) {
        status = mdl_kept_check(k->map.data, k->map.size, key, k->path, &k->entries, &k->n_entries, &err);
    }
    if (status == DI_OK) {
        x.whole = k->map.size <= MDL_KEPT_WHOLE;
        (void)mdl_each_matrix(r, compare_matrix, &x, NULL);
        if (x.wrong != NULL) {
            status = err_set(&err, DI_E_FORMAT, "%s is not used: %s", k->path, x.wrong);
        }
    }
    if (status != DI_OK) {
        (void)snprintf(k->why, sizeof k->why, "%.300s; ", err.message);
        close_file(k);
        return;
    }
    (void)madvise(k->map.base, k->map.span, MADV_HUGEPAGE); /* a wish: where the system can, it is faster */
}

static void not_written(mdl_kept *k, const di_error *err)
{
    say(k, "%sweights were prepared in memory only: %.300s", k->why, err->message);
}

static void open_writer(mdl_kept *k, mdl_runner *r, const char *dir, const char *name, const mdl_kept_key *key, const io_table *io)
{
    di_error err = {.message = ""};
    needs x = {.kept = NULL};
    di_status status = mdl_each_matrix(r, count_matrix, &x, &err);
    if (status == DI_OK) {
        status = mdl_kept_writer_new(io, dir, name, key, x.n, x.bytes, &k->writer, &err);
    }
    if (status != DI_OK) {
        not_written(k, &err);
    }
}

static mdl_kept *new_kept(di_error *err)
{
    mdl_kept *const k = ar_calloc(1, sizeof *k);
    if (k == NULL) {
        err_memory(err, "weight cache", sizeof *k);
    }
    return k;
}

di_status mdl_kept_without(const char *why, mdl_kept **out, di_error *err)
{
    mdl_kept *const k = new_kept(err);
    if (k == NULL) {
        return DI_E_MEMORY;
    }
    say(k, "the weight cache is not used: %s", why);
    *out = k;
    return DI_OK;
}

di_status mdl_kept_open(mdl_runner *r, const char *dir, const io_table *io, mdl_kept **out, di_error *err)
{
    mdl_kept_key key;
    char hex[DIGEST_HEX_BYTES];
    char name[NAME_DIGITS + MDL_KEPT_FORM_BYTES + sizeof MDL_KEPT_SUFFIX + 2];
    if (r->ops->kept_name == NULL) {
        return mdl_kept_without("this backend computes with weights as they are stored, or has them on its device", out, err);
    }
    if (r->model->dir == NULL) {
        return mdl_kept_without("the model is only in memory", out, err);
    }
    memset(&key, 0, sizeof key);
    (void)snprintf(key.form, sizeof key.form, "%s", r->ops->kept_name(r->dev));
    const di_status status = mdl_kept_digest(r->model->checkpoint, key.checkpoint, err);
    mdl_kept *const k = status == DI_OK ? new_kept(err) : NULL;
    if (k == NULL) {
        return status == DI_OK ? DI_E_MEMORY : status;
    }
    digest_hex(key.checkpoint, hex);
    (void)snprintf(name, sizeof name, "%.*s-%s" MDL_KEPT_SUFFIX, NAME_DIGITS, hex, key.form);
    k->path = file_path_join(dir, name);
    if (k->path == NULL) {
        free(k);
        return err_memory(err, "path", strlen(dir));
    }
    open_file(k, r, &key);
    if (k->entries == NULL) {
        open_writer(k, r, dir, name, &key, io);
    }
    *out = k;
    return DI_OK;
}

/* --- Matrix by matrix ------------------------------------------------------------------------------------------------------- */

di_status mdl_kept_take(mdl_kept *k, mdl_runner *r, ops_matrix *m, di_error *err)
{
    if (k == NULL || k->entries == NULL) {
        return DI_OK;
    }
    const mdl_kept_entry *const e = &k->entries[k->at++]; /* compared by open_file */
    if (e->size == 0) {
        return DI_OK;
    }
    k->stats.mapped_bytes += (int64_t)e->size;
    return r->ops->weight_attach(r->dev, m, k->map.data + e->offset, err);
}

void mdl_kept_add(mdl_kept *k, mdl_runner *r, const ops_matrix *m)
{
    di_error err = {.message = ""};
    if (k == NULL || k->writer == NULL) {
        return;
    }
    const void *const form = r->ops->kept_form(r->dev, m);
    const size_t size = form != NULL ? r->ops->kept_bytes(r->dev, m) : 0;
    if (mdl_kept_writer_add(k->writer, m, form, size, &err) != DI_OK) {
        not_written(k, &err);
        mdl_kept_writer_free(k->writer);
        k->writer = NULL;
    }
}

void mdl_kept_end(mdl_kept *k)
{
    di_error err = {.message = ""};
    uint64_t bytes = 0;
    if (k == NULL) {
        return;
    }
    if (k->entries != NULL) {
        say(k, "weights are mapped from %s: %zu matrices, %.1f MB", k->path, k->at, megabytes(k->stats.mapped_bytes));
    } else if (k->writer != NULL && mdl_kept_writer_finish(k->writer, &bytes, &err) == DI_OK) {
        k->stats.written_bytes = (int64_t)bytes;
        say(k, "%sweights were prepared and written to %s: %.1f MB", k->why, k->path, megabytes(k->stats.written_bytes));
    } else if (k->writer != NULL) {
        not_written(k, &err);
    }
    mdl_kept_writer_free(k->writer);
    k->writer = NULL;
}

void mdl_kept_free(mdl_kept *k)
{
    if (k == NULL) {
        return;
    }
    mdl_kept_writer_free(k->writer);
    close_file(k);
    free(k->path);
    free(k);
}

void mdl_kept_get_stats(const mdl_kept *k, mdl_weight_stats *out)
{
    *out = k != NULL ? k->stats : (mdl_weight_stats){.load_ns = 0};
}
