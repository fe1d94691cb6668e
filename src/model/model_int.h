/* model_int.h - inside the model room: the opened model and the runner. */
#ifndef MODEL_MODEL_INT_H
#define MODEL_MODEL_INT_H

#include "model/mdl_checkpoint.h"
#include "model/mdl_engram.h"
#include "model/mdl_kept.h"
#include "model/mdl_rows.h"
#include "model/mdl_stream.h"
#include "model/mdl_weights.h"
#include "model/model.h"

/* Immutable after di_model_open. */
struct di_model {
    mdl_config config;
    mdl_checkpoint *checkpoint;
    mdl_weights weights; /* bound at opening, so that every fault of a file shows then; runners bind their own */
    di_tokenizer *tokenizer;
    mdl_engram engram;
    char *dir;
    void *values; /* of a checkpoint in memory (mdl_synthetic.c); owned */
};

/* Buffers of one forward pass, all on the device, for max_rows rows. Names follow model.md 3. */
typedef struct mdl_buffers {
    int32_t *ids;       /* [rows] */
    int64_t *pos;       /* [rows] */
    uint8_t *is_text;   /* [rows] */
    uint8_t *row_given; /* [rows] */
    bf16 *given;        /* [rows, hidden] embedding rows of image spans; allocated at first use */
    int64_t *hash;      /* [engram layer][rows, columns] */
    bf16 *x;            /* [rows, hc, hidden] residual streams */
    float *pre;         /* [rows, hc] handed from site to site */
    float *site_pre;    /* [rows, hc] of the site being run */
    float *post;        /* [rows, hc] */
    float *comb;        /* [rows, hc, hc] */
    bf16 *u;            /* [rows, hidden] site input */
    bf16 *y;            /* [rows, hidden] site output */
    bf16 *qr;           /* [rows, q_lora] */
    bf16 *q;            /* [rows, heads, head_dim] */
    uint8_t *kv;        /* [rows, window row bytes] */
    bf16 *o;            /* [rows, heads, head_dim] */
    bf16 *low;          /* [rows, o_groups * o_lora] */
    int32_t *list;      /* [rows, topk] */
    uint8_t *candidates; /* [rows, cand_stride] */
    float *score;       /* [rows, score_stride]; only when tracing */
    int32_t *expert_ids; /* [rows, active] */
    float *expert_weights; /* [rows, active] */
    float *logits;      /* [rows, vocab]; grown to what is asked for */
    /* With experts from the disk: what the next layer's router would choose. */
    int32_t *guess_ids;   /* [rows, active] */
    float *guess_weights; /* [rows, active] */
    /* With a draft model. */
    bf16 *taps;          /* [rows, n_taps * hidden] */
    bf16 *main_x;        /* [rows, hidden] */
    bf16 *head_hidden;   /* [rows, hidden] */
    int32_t *previous;   /* [rows] */
    float *confidence;   /* [rows] */
    float *draft_logits; /* [rows / block, vocab] */
} mdl_buffers;

struct mdl_runner {
    const di_model *model;
    const mdl_config *c;
    const ops_backend *ops;
    ops_device *dev;
    mdl_weights w;
    float *values;        /* the vectors of w, on the device */
    ops_expert **experts; /* [n_layers][n_experts] as the stages take them, then [n_stages][draft.n_experts]; NULL with a stream */
    /* With a budget that the weights do not fit (mdl_load.c); else NULL. */
    mdl_reader *reader;
    mdl_stream *stream;
    mdl_rows *rows;       /* NULL without Engram layers */
    void **copies;        /* [n_copies] weights that the backend reads as they are stored */
    size_t n_copies;
    size_t resident;      /* bytes of weights that stay */
    size_t budget;
    di_error read_error;  /* of the running pass; code DI_OK = none */
    int32_t n_blocks;     /* of the running proposal */
    bool draft;
    mdl_layout layout;
    float *rope_plain;    /* [rope_dim / 2] ratio 0 */
    float *rope_yarn;     /* [rope_dim / 2] ratio > 0 */
    mdl_buffers b;
    int32_t max_rows;
    int64_t max_tokens;
    int32_t cand_stride;
    int32_t score_stride;
    int32_t logits_rows;
    int32_t decoder_start; /* last KV source: layers behind it own windows only (model.md 4.1) */
    di_trace_fn trace;
    void *trace_user;
    /* Host arrays of the running pass. */
    ops_seq *seqs;    /* [max_rows] rows going on */
    ops_seq *kv_seqs; /* [max_rows] rows with window KV in this layer */
    ops_move *moves;  /* [max_rows] */
    uint8_t *scratch_page;   /* device; where rows go that are not to be written; allocated at first use */
    uint8_t **scratch_pages; /* as many as the longest sequence has, all the same */
    int32_t *host_ids;
    int64_t *host_pos;
    uint8_t *host_text;
    uint8_t *host_given;
    int64_t *host_hash;
    bool failed;      /* an allocation inside the pass failed */
    bool draft_rests; /* the pass writes no draft context */
    mdl_kept *kept;   /* NULL without a weight cache */
    int64_t load_ns;  /* weights were prepared in */
};

/* Stages of a block over the rows in the runner's buffers, for layers of the backbone and stages of the draft (mdl_block.c). Names and
 * sections: model.md 3.3-3.10. */

/* (pre, post, comb) = mhc_coeffs(X); u = rmsnorm(collapse(X, pre_in)). hc == NULL: the collapse alone; norm == NULL: without the norm. */
void mdl_block_seam_open(mdl_runner *r, int32_t n_rows, const mdl_mhc_weights *hc, const float *norm, const float *pre_in, float *pre,
                         bf16 *u);
/* X = mhc_expand(y, X, post, comb). */
void mdl_block_seam_close(mdl_runner *r, int32_t n_rows);
/* qr = rmsnorm(GEMM_q(u, wq_a)); kv = Q8(rope(rmsnorm(GEMM_q(u, wkv)))). */
void mdl_block_attn_in(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, const float *rope);
/* q = rope(GEMM_q(qr, wq_b)). */
void mdl_block_query(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, const float *rope);
/* y = the output projection of o. */
void mdl_block_attn_out(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w);
/* Which experts, and how much of each. */
void mdl_block_router(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, int32_t n_active);
/* y = the chosen experts and the shared one of u. layer: of the backbone, then stages of the draft. */
void mdl_block_experts(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, int32_t layer, int32_t n_active);
/* Tells the stream which experts the router of `layer` would choose for u, which is the input of the layer before. */
void mdl_block_guess(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, int32_t layer, int32_t n_active);

/* Binds and prepares all weights within options->ram_budget (mdl_load.c). Errors: as of mdl_runner_new. */
di_status mdl_load(mdl_runner *r, const mdl_runner_options *options, di_error *err);
void mdl_unload(mdl_runner *r);

typedef enum mdl_matrix_kind {
    MDL_DENSE,  /* in products of every token */
    MDL_LOOKUP, /* few rows of it are copied out */
    MDL_TABLE,  /* the same, too large to be in memory */
    MDL_EXPERT
} mdl_matrix_kind;

typedef di_status (*mdl_matrix_fn)(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err);

/* Every matrix that is used, in an order that follows from the configuration; those of the draft come last. Ends at the first error. */
di_status mdl_each_matrix(mdl_runner *r, mdl_matrix_fn fn, void *arg, di_error *err);

/* Takes a tap where layer `layer` has one, and behind the last makes the draft's context of the rows that are in the batch. */
void mdl_draft_tap(mdl_runner *r, int32_t layer, int32_t n_rows, int32_t n_items);
/* Sends the draft's rings to the trace. */
void mdl_trace_draft(mdl_seq *seq, const uint8_t *state);
/* Memory of the stages of the largest pass, at once (ops_backend.plan); failures come out of the device's sync. */
void mdl_plan_pass(mdl_runner *r);
/* Buffers for `rows` rows of logits. */
di_status mdl_reserve_logits(mdl_runner *r, int32_t rows, di_error *err);

/* The compressed id of the token that is fed next (3.5.3). */
void mdl_seq_push_recent(mdl_seq *seq, int32_t id, int32_t max_ngram);

/* Sends one tensor to the trace. `data` is device memory; dims beyond n_dims are ignored. */
void mdl_trace_send(mdl_runner *r, int32_t layer, const char *name, di_dtype dtype, const void *data, int32_t n_dims, int64_t d0,
                    int64_t d1, int64_t d2);

/* The rest of the trace; each does nothing when tracing is off. */
void mdl_trace_embed(mdl_runner *r, int32_t rows);
void mdl_trace_hc(mdl_runner *r, int32_t layer, const char *name, int32_t rows, const float *pre);
void mdl_trace_reserve_scores(mdl_runner *r, int32_t rows, int32_t ratio);
void mdl_trace_index(mdl_runner *r, int32_t layer, int32_t rows);

#endif
