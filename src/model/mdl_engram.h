/* mdl_engram.h - constants and hash of the n-gram memory (model.md 3.5.1-3.5.3, appendix B). Host only, integers only. */
#ifndef MODEL_MDL_ENGRAM_H
#define MODEL_MDL_ENGRAM_H

#include "model/mdl_config.h"

#include <deepinfer/tokenizer.h>

#define MDL_ENGRAM_DEAD (-1) /* compressed id of a token inside an image span */

typedef struct mdl_engram {
    int32_t n_layers;
    int32_t max_ngram;
    int32_t n_columns; /* (max_ngram - 1) * heads */
    int32_t n_heads;
    int32_t pad;       /* compressed id */
    int32_t *map;      /* [vocab] token id -> compressed id; owned */
    int32_t map_size;
    int64_t multiplier[MDL_MAX_ENGRAM_LAYERS][MDL_MAX_NGRAM]; /* index 0 multiplies the current token */
    int64_t prime[MDL_MAX_ENGRAM_LAYERS][MDL_MAX_ENGRAM_COLUMNS];
    int64_t offset[MDL_MAX_ENGRAM_LAYERS][MDL_MAX_ENGRAM_COLUMNS];
} mdl_engram;

/* Draws `n` multipliers of one layer as numpy's default_rng(10007 * layer) does. */
void mdl_engram_multipliers(int32_t layer, int32_t compressed_vocab, int32_t n, int64_t *out);

/* Fills everything but the map. Errors: DI_E_FORMAT when the table sizes of the configuration do not equal the sums of primes. */
di_status mdl_engram_constants(const mdl_config *c, mdl_engram *out, di_error *err);

/* Constants and map: from DIR/engram_compressed_map.i32 when it exists, else from the tokenizer (may be NULL: then an error when the model
 * has Engram layers). Checks the number of compressed ids against the configuration. */
di_status mdl_engram_init(const mdl_config *c, const char *dir, const di_tokenizer *tokenizer, mdl_engram *out, di_error *err);
void mdl_engram_fini(mdl_engram *e);

/* Compressed id of a token, DEAD inside an image span. */
static inline int32_t mdl_engram_id(const mdl_engram *e, int32_t id, bool in_image)
{
    return in_image ? MDL_ENGRAM_DEAD : e->map[id];
}

/* Table rows of one position: recent[s] = compressed id of the token s places back (0 = current), `n_recent` of them exist.
 * rows[layer * n_columns + column]. */
void mdl_engram_hash(const mdl_engram *e, const int32_t *recent, int32_t n_recent, int64_t *rows);

#endif
