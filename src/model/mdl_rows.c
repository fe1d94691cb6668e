/* mdl_rows.c - see mdl_rows.h. Codes and scale of a row lie in two tensors: two reads of a block each, through a fixed number of
 * small buffers. The next row is asked for when a buffer comes back. */
#include "model/mdl_rows.h"

#include "core/core.h"
#include "model/mdl_config.h"

#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>

enum { BUFFERS = 32 };

typedef struct row_buffer { /* one row on its way */
    mdl_rows *owner;
    mdl_read codes;
    mdl_read scale;
    int n_left;
    int32_t table;
    size_t place; /* in the gathered table */
    uint64_t pass;
    struct row_buffer *link;
} row_buffer;

typedef struct gathered { /* of one table */
    ops_matrix whole;
    ops_matrix part; /* over codes and scales */
    uint8_t *codes;
    uint8_t *scales;
    int64_t *wanted; /* [max_rows * n_columns] row of each place */
    size_t n;        /* of this pass */
    size_t n_asked;
    size_t n_there;
} gathered;

struct mdl_rows { /* owner and thread: the runner */
    mdl_reader *reader;
    gathered tables[MDL_MAX_ENGRAM_LAYERS];
    int32_t n_tables;
    int32_t n_columns;
    int32_t max_rows;
    row_buffer buffers[BUFFERS];
    row_buffer *idle;
    uint8_t *memory; /* of the buffers */
    uint64_t pass;
    bool failed; /* in this pass */
    _Atomic int64_t count; /* read by others while a pass runs */
};

static size_t row_codes(const ops_matrix *m) { return (size_t)m->n_in; }
static size_t row_scales(const ops_matrix *m) { return (size_t)m->n_in / 32; }

static size_t widest_row(const ops_matrix *tables, int32_t n)
{
    size_t most = 1;
    for (int32_t i = 0; i < n; i++) {
        most = row_codes(&tables[i]) > most ? row_codes(&tables[i]) : most;
    }
    return most;
}

static size_t buffer_bytes(const ops_matrix *tables, int32_t n) { return 2 * mdl_read_span(widest_row(tables, n)); }

size_t mdl_rows_bytes(const ops_matrix *tables, int32_t n_tables, int32_t n_columns, int32_t max_rows)
{
    const size_t places = (size_t)n_columns * (size_t)max_rows;
    size_t bytes = n_tables > 0 ? BUFFERS * buffer_bytes(tables, n_tables) : 0;
    for (int32_t i = 0; i < n_tables; i++) {
        bytes += places * (row_codes(&tables[i]) + row_scales(&tables[i]) + sizeof(int64_t));
    }
    return bytes;
}

static bool take_table(gathered *g, const ops_matrix *whole, size_t places)
{
    g->whole = *whole;
    g->codes = ar_calloc(places, row_codes(whole));
    g->scales = ar_calloc(places, row_scales(whole));
    g->wanted = ar_calloc(places, sizeof *g->wanted);
    g->part = (ops_matrix){.format = whole->format, .n_out = (int64_t)places, .n_in = whole->n_in, .data = g->codes, .scale = g->scales};
    return g->codes != NULL && g->scales != NULL && g->wanted != NULL;
}

di_status mdl_rows_new(const ops_matrix *tables, int32_t n_tables, int32_t n_columns, int32_t max_rows, mdl_reader *reader, mdl_rows **out,
                       di_error *err)
{
    mdl_rows *const r = ar_calloc(1, sizeof *r);
    if (r == NULL) {
        free(r);
        return err_memory(err, "Engram rows", sizeof *r);
    }
    const size_t one = buffer_bytes(tables, n_tables);
    *r = (mdl_rows){.reader = reader, .n_tables = n_tables, .n_columns = n_columns, .max_rows = max_rows};
    r->memory = ar_calloc_aligned(BUFFERS, one, MDL_READ_ALIGN);
    bool there = r->memory != NULL;
    for (int32_t i = 0; i < n_tables; i++) {
        there = take_table(&r->tables[i], &tables[i], (size_t)n_columns * (size_t)max_rows) && there;
    }
    if (!there) {
        mdl_rows_free(r);
        return err_memory(err, "Engram rows", mdl_rows_bytes(tables, n_tables, n_columns, max_rows));
    }
    for (size_t b = 0; b < BUFFERS; b++) {
        r->buffers[b] = (row_buffer){.owner = r, .link = r->idle};
        r->buffers[b].codes.memory = r->memory + b * one;
        r->buffers[b].scale.memory = r->memory + b * one + one / 2;
        r->idle = &r->buffers[b];
    }
    *out = r;
    return DI_OK;
}

void mdl_rows_free(mdl_rows *r)
{
    if (r == NULL) {
        return;
    }
    for (int32_t i = 0; i < r->n_tables; i++) {
        free(r->tables[i].codes);
        free(r->tables[i].scales);
        free(r->tables[i].wanted);
    }
    free(r->memory);
    free(r);
}

/* ---- a pass ---- */

static void ask_more(mdl_rows *r);

static void row_is_over(mdl_read *read)
{
    row_buffer *const b = read->user;
    mdl_rows *const r = b->owner;
    if (--b->n_left > 0) {
        return;
    }
    gathered *const g = &r->tables[b->table];
    if (b->pass == r->pass) {
        r->failed = r->failed || b->codes.result == NULL || b->scale.result == NULL;
        g->n_there++;
    }
    if (b->pass == r->pass && !r->failed) {
        memcpy(g->codes + b->place * row_codes(&g->whole), b->codes.result, row_codes(&g->whole));
        memcpy(g->scales + b->place * row_scales(&g->whole), b->scale.result, row_scales(&g->whole));
    }
    b->link = r->idle;
    r->idle = b;
    ask_more(r);
}

static void ask_row(mdl_rows *r, int32_t i)
{
    row_buffer *const b = r->idle;
    gathered *const g = &r->tables[i];
    const size_t row = (size_t)g->wanted[g->n_asked];
    r->idle = b->link;
    b->table = i;
    b->place = g->n_asked++;
    b->pass = r->pass;
    b->n_left = 2;
    b->codes = (mdl_read){.data = g->whole.data + row * row_codes(&g->whole),
                          .size = row_codes(&g->whole),
                          .memory = b->codes.memory,
                          .over = row_is_over,
                          .user = b};
    b->scale = (mdl_read){.data = g->whole.scale + row * row_scales(&g->whole),
                          .size = row_scales(&g->whole),
                          .memory = b->scale.memory,
                          .over = row_is_over,
                          .user = b};
    atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
    mdl_reader_ask(r->reader, &b->codes, true);
    mdl_reader_ask(r->reader, &b->scale, true);
}

/* In the order of the tables: the first one is needed first. */
static void ask_more(mdl_rows *r)
{
    for (int32_t i = 0; i < r->n_tables && !r->failed; i++) {
        while (r->idle != NULL && r->tables[i].n_asked < r->tables[i].n) {
            ask_row(r, i);
        }
    }
}

void mdl_rows_begin(mdl_rows *r)
{
    r->pass++;
    r->failed = false;
    for (int32_t i = 0; i < r->n_tables; i++) {
        r->tables[i].n = 0;
        r->tables[i].n_asked = 0;
        r->tables[i].n_there = 0;
    }
}

void mdl_rows_ask(mdl_rows *r, int32_t i, int64_t *rows, int32_t n_rows)
{
    gathered *const g = &r->tables[i];
    g->n = (size_t)n_rows * (size_t)r->n_columns;
    memcpy(g->wanted, rows, g->n * sizeof *rows);
    for (size_t p = 0; p < g->n; p++) {
        rows[p] = (int64_t)p;
    }
    ask_more(r);
    mdl_reader_poll(r->reader, false);
}

di_status mdl_rows_wait(mdl_rows *r, int32_t i, const ops_matrix **table, di_error *err)
{
    gathered *const g = &r->tables[i];
    while (g->n_there < g->n && !r->failed) {
        mdl_reader_poll(r->reader, true);
    }
    *table = &g->part;
    if (!r->failed) {
        return DI_OK;
    }
    const di_status status = mdl_reader_failure(r->reader, err);
    return status != DI_OK ? status : err_set(err, DI_E_IO, "rows of an Engram table could not be read");
}

int64_t mdl_rows_count(const mdl_rows *r) { return atomic_load_explicit(&r->count, memory_order_relaxed); }
