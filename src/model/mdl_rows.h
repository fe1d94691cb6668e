/* mdl_rows.h - rows of Engram tables from the disk: asked for when the tokens of a pass are known, awaited when their layer comes.
 *
 * A table has hundreds of millions of rows of which a token looks up some twenty. What a pass looks up is gathered into a small table of
 * the same format, whose rows the stage then asks for; so it computes the same bits as with the whole one. Owner and thread: the runner. */
#ifndef MODEL_MDL_ROWS_H
#define MODEL_MDL_ROWS_H

#include "model/mdl_reader.h"
#include "ops/ops_types.h"

typedef struct mdl_rows mdl_rows;

/* tables [n_tables], FP8R, in the mapping of a shard; passes of at most max_rows tokens with n_columns rows each. The reader is borrowed.
 * Errors: DI_E_MEMORY. */
di_status mdl_rows_new(const ops_matrix *tables, int32_t n_tables, int32_t n_columns, int32_t max_rows, mdl_reader *reader, mdl_rows **out,
                       di_error *err);
void mdl_rows_free(mdl_rows *r); /* reads must be over, or the reader freed */
size_t mdl_rows_bytes(const ops_matrix *tables, int32_t n_tables, int32_t n_columns, int32_t max_rows);

/* Begins a pass: what an earlier one still awaits is given up. rows: those of all tables, as add takes them; both stay until the last table
 * was waited for. */
void mdl_rows_begin(mdl_rows *r);
/* n_rows tokens look up rows [n_rows, n_columns] of table i. Starts reading. rows is overwritten with the places in the gathered table. */
void mdl_rows_ask(mdl_rows *r, int32_t i, int64_t *rows, int32_t n_rows);
/* Waits for the rows of table i; *table is what the stage looks up in. */
di_status mdl_rows_wait(mdl_rows *r, int32_t i, const ops_matrix **table, di_error *err);

int64_t mdl_rows_count(const mdl_rows *r); /* read so far */

#endif
