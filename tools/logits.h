/* logits.h - collects rows of logits and writes them as a safetensors file (--dump-logits):
 *   ids       I32 [n]          the prompt and the tokens generated
 *   positions I32 [m]          ascending; row r of `logits` belongs to token positions[r], it predicts the one behind it
 *   logits    F32 [m, vocab]   */
#ifndef TOOLS_LOGITS_H
#define TOOLS_LOGITS_H

#include <deepinfer/base.h>

typedef struct cli_logits {
    int32_t vocab;
    int32_t *ids; /* owned, as all */
    size_t n_ids;
    size_t ids_capacity;
    int32_t *positions;
    float *rows;
    size_t n_rows;
    size_t rows_capacity;
} cli_logits;

void cli_logits_init(cli_logits *l, int32_t vocab);
void cli_logits_fini(cli_logits *l);
di_status cli_logits_add_ids(cli_logits *l, const int32_t *ids, size_t n, di_error *err);

/* n rows that belong to the last n ids added. */
di_status cli_logits_add_rows(cli_logits *l, const float *rows, size_t n, di_error *err);
di_status cli_logits_write(const cli_logits *l, const char *path, di_error *err);

#endif
