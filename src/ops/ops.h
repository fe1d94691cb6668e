/* ops.h - what a device can be asked to do: one argument struct per stage of the forward pass, and the backend table.
 *
 * A stage is big enough to be fused on a GPU and small enough to be tested against its plain C reference (src/ops/ref_*.c),
 * which is always built and is the oracle of every faster backend. Numerics are part of the interface: each stage states
 * its rounding points (model.md 3.11), and the reduction order of an output is a function of its row alone, so that results do not
 * change with batch, chunking or thread count.
 *
 * Pointers in argument structs are device memory (host memory for CPU backends) unless marked "host". Every struct gives shape and type
 * beside each pointer; n_rows is the number of tokens of the batch. Stages run in the order of the calls; a failure is kept
 * by the device and reported by sync(). One thread at a time per device.
 *
 * Rows of a batch belong to sequences: ops_seq says which rows, at which positions, and where the sequence's caches are. */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "ops/ops_feed.h"
#include "ops/ops_types.h"

/* So many tokens can be taken back from a sequence: what they overwrote is not needed for what was before them (dspark.md 2.6). */
#define OPS_REWIND 8
#define OPS_OPEN_GROUPS (OPS_REWIND / 2)

/* One sequence's part of a batch. Rows row0 .. row0 + n_rows - 1 hold positions pos0, pos0 + 1, ... */
typedef struct ops_seq {
    int32_t row0;
    int32_t n_rows;
    int64_t pos0;
    int64_t window_from;   /* window rows before this position do not exist (bounded replay, dspark.md 4.1); else 0. At most pos0 */
    uint8_t *state;        /* fixed part: window rings and open groups at per-layer offsets */
    uint8_t *const *pages; /* growing part: units of page_tokens tokens, each holding the rows of every KV source */
} ops_seq;

/* Rows of one cache inside the pages: entry j is at pages[j / per_page] + offset + (j % per_page) * row_bytes. */
typedef struct ops_paged {
    size_t offset;
    int32_t per_page;
    int32_t row_bytes;
} ops_paged;

/* --- Residual streams ------------------------------------------------------------------------------------------------- */

/* Token embedding into all streams; pre = one-hot on stream 0 (model.md 3.1). */
typedef struct ops_embed_args {
    int32_t n_rows;
    int32_t hc;
    int32_t hidden;
    const ops_matrix *embed; /* [vocab, hidden] BF16 */
    const int32_t *ids;      /* [n_rows] */
    const bf16 *rows;        /* [n_rows, hidden] used instead of the table where row_given; NULL = none (image spans) */
    const uint8_t *row_given; /* [n_rows]; NULL with rows */
    bf16 *x;                 /* out [n_rows, hc, hidden] */
    float *pre;              /* out [n_rows, hc] */
} ops_embed_args;

/* Entry of a site (attention or FFN): hyper-connection coefficients of X, collapse of X with the PREVIOUS site's `pre_in`, and
 * the site's RMSNorm (model.md 3.3, 3.4). */
typedef struct ops_seam_open_args {
    int32_t n_rows;
    int32_t hc;
    int32_t hidden;
    int32_t iters; /* Sinkhorn */
    float hc_eps;
    float norm_eps;
    const bf16 *x;        /* [n_rows, hc, hidden] */
    const float *pre_in;  /* [n_rows, hc] */
    const ops_matrix *fn; /* [(2 + hc) * hc, hc * hidden] F32; NULL = no coefficients (the head's collapse) */
    const float *base;    /* [(2 + hc) * hc] */
    const float *scale;   /* [3] */
    const float *norm;    /* [hidden]; NULL = no norm: u is the collapse itself */
    float *pre;           /* out [n_rows, hc]; may not alias pre_in */
    float *post;          /* out [n_rows, hc] */
    float *comb;          /* out [n_rows, hc, hc], row = old stream */
    bf16 *u;              /* out [n_rows, hidden] */
} ops_seam_open_args;

/* Exit of a site: X'[k] = bf16(post[k] y + sum_j comb[j][k] X[j]) (model.md 3.4). In place. */
typedef struct ops_seam_close_args {
    int32_t n_rows;
    int32_t hc;
    int32_t hidden;
    const bf16 *y;     /* [n_rows, hidden] */
    const float *post; /* [n_rows, hc] */
    const float *comb; /* [n_rows, hc, hc] */
    bf16 *x;           /* in/out [n_rows, hc, hidden] */
} ops_seam_close_args;

/* Engram: look-up, projection, gate and write-back into the streams (model.md 3.5.4). */
typedef struct ops_engram_args {
    int32_t n_rows;
    int32_t hc;
    int32_t hidden;
    int32_t n_columns;
    int32_t head_dim;
    float norm_eps;
    const int64_t *rows;      /* [n_rows, n_columns] table rows */
    const uint8_t *is_text;   /* [n_rows]; 0 = inside an image span: gate 0 */
    const ops_matrix *table;  /* [table rows, head_dim] FP8R */
    const ops_matrix *wkv;    /* [(hc + 1) * hidden, n_columns * head_dim] FP8 */
    const float *q_weight;    /* [hc, hidden] */
    const float *k_weight;    /* [hc, hidden] */
    bf16 *x;                  /* in/out [n_rows, hc, hidden] */
} ops_engram_args;

/* --- Attention -------------------------------------------------------------------------------------------------------- */

/* Low-rank query and window KV of each row (model.md 3.7):
 * qr = rmsnorm(GEMM_q(u, wq_a)); kv = Q8(rope(rmsnorm(GEMM_q(u, wkv)))). Either of the two is left out when its matrix
 * is NULL; then nothing else of it is read. */
typedef struct ops_attn_in_args {
    int32_t n_rows;
    int32_t hidden;
    int32_t q_lora;
    int32_t head_dim;
    int32_t rope_dim;
    float norm_eps;
    const bf16 *u;          /* [n_rows, hidden] */
    const int64_t *pos;     /* [n_rows] */
    const float *rope;      /* [rope_dim / 2] frequencies of this layer */
    const ops_matrix *wq_a; /* [q_lora, hidden] FP8 */
    const float *q_norm;    /* [q_lora] */
    const ops_matrix *wkv;  /* [head_dim, hidden] FP8 */
    const float *kv_norm;   /* [head_dim] */
    bf16 *qr;               /* out [n_rows, q_lora] */
    uint8_t *kv;            /* out [n_rows, fmt_q8_bytes(head_dim)] packed rows */
} ops_attn_in_args;

/* Latents of the groups that this batch completes: index keys and compressed KV appended to the pages, the open group kept in
 * the state (model.md 3.7.1), a few before it too, so that the last OPS_REWIND tokens can be taken back. Every row of each sequence since
 * its last call must be given, in order. */
typedef struct ops_compress_args {
    int32_t n_rows;
    int32_t n_seqs;
    const ops_seq *seqs; /* host [n_seqs] */
    int32_t ratio;       /* 1 or 2 */
    int32_t hidden;
    int32_t head_dim;
    int32_t rope_dim;
    int32_t index_dim;
    float norm_eps;
    const bf16 *u;                /* [n_rows, hidden] */
    const float *rope;            /* [rope_dim / 2] */
    const ops_matrix *wkv;        /* [head_dim, hidden] BF16 */
    const ops_matrix *wgate;      /* [head_dim, hidden] BF16; ratio 2 only */
    const float *norm;            /* [head_dim] */
    const ops_matrix *index_wk;   /* [index_dim, head_dim] BF16 */
    const float *index_k_norm;    /* [index_dim] */
    ops_paged compressed;         /* rows of fmt_q4n_bytes(head_dim) */
    ops_paged index_keys;         /* rows of fmt_q4e_bytes(index_dim) */
    size_t open_offset;           /* in the state: [OPS_OPEN_GROUPS] of fp32 kv [head_dim], fp32 gate [head_dim]; the group that begins at
                                   * position p (even) is number p / 2 mod OPS_OPEN_GROUPS; ratio 2 only */
    bf16 *latents;                /* out [completed groups, head_dim] before rotation, for tests; NULL = not wanted */
} ops_compress_args;

/* q = rope(GEMM_q(qr, wq_b)) at the row's position. */
typedef struct ops_query_args {
    int32_t n_rows;
    int32_t q_lora;
    int32_t n_heads;
    int32_t head_dim;
    int32_t rope_dim;
    const bf16 *qr;         /* [n_rows, q_lora] */
    const int64_t *pos;     /* [n_rows] */
    const float *rope;      /* [rope_dim / 2] */
    const ops_matrix *wq_b; /* [n_heads * head_dim, q_lora] FP8 */
    bf16 *q;                /* out [n_rows, n_heads, head_dim] */
} ops_query_args;

/* Index scores, candidate blocks and top-k selection (model.md 3.7.2). Scores are BF16 values; ties go to the lower index. */
typedef struct ops_index_args {
    int32_t n_rows;
    int32_t n_seqs;
    const ops_seq *seqs; /* host [n_seqs] */
    int32_t ratio;
    int32_t hidden;
    int32_t q_lora;
    int32_t rope_dim;
    int32_t n_heads;
    int32_t index_dim;
    int32_t topk;
    int32_t n_blocks;    /* candidate blocks to keep */
    int32_t block_size;
    int32_t cand_stride; /* bytes a row of `candidates`: one bit a block, lowest bit first */
    bool make_candidates;      /* this is the candidate source layer: fill `candidates` */
    bool use_candidates;       /* a later index source: entries outside `candidates` do not count */
    const bf16 *u;             /* [n_rows, hidden] */
    const bf16 *qr;            /* [n_rows, q_lora] */
    const int64_t *pos;        /* [n_rows] */
    const float *rope;         /* [rope_dim / 2] */
    const ops_matrix *wq_b;    /* [n_heads * index_dim, q_lora] FP8 */
    const ops_matrix *weights_proj; /* [n_heads, hidden] BF16 */
    ops_paged index_keys;
    uint8_t *candidates; /* in/out [n_rows, cand_stride] */
    int32_t *list;       /* out [n_rows, topk] ascending entries, then -1 */
    float *score;        /* out [n_rows, score_stride] for traces; NULL = not wanted. -inf = not visible or not a candidate */
    int32_t score_stride;
} ops_index_args;

/* Attention of each row over its window and its list of compressed entries, with the sink, then the inverse rotation
 * (model.md 3.8). Slots: the min(pos + 1 - window_from, window) window rows from the oldest on, then the list; online softmax over tiles of
 * 64 slots. Window positions before a sequence's first row of `kv` come from its ring. */
typedef struct ops_attend_args {
    int32_t n_rows;
    int32_t n_seqs;
    const ops_seq *seqs;    /* host [n_seqs]: the query rows */
    const ops_seq *kv_seqs; /* host [n_seqs]: the same sequences' rows in `kv`; pos0 <= that of seqs, same last position */
    int32_t n_heads;
    int32_t head_dim;
    int32_t rope_dim;
    int32_t window;
    int32_t topk;  /* width of list; 0 = no compressed part */
    int32_t ratio; /* tokens a compressed entry; with topk > 0 */
    float scale;  /* head_dim^-0.5 */
    const bf16 *q;       /* [n_rows, n_heads, head_dim] */
    const uint8_t *kv;   /* packed window rows of this batch */
    int32_t ring_slots;  /* at least window + OPS_REWIND */
    size_t ring_offset;  /* in the state: [ring_slots, fmt_q8_bytes(head_dim)], slot = position mod ring_slots */
    ops_paged compressed;
    const int32_t *list; /* [n_rows, topk] */
    const float *sink;   /* [n_heads] */
    const float *rope;   /* [rope_dim / 2] */
    bf16 *o;             /* out [n_rows, n_heads, head_dim] */
} ops_attend_args;

/* Stores the last min(n_rows, ring_slots) packed rows of each sequence into its ring. After ops_attend of the same layer. */
typedef struct ops_window_store_args {
    int32_t n_seqs;
    const ops_seq *seqs; /* host [n_seqs]: rows of kv */
    int32_t ring_slots;
    int32_t row_bytes;
    size_t ring_offset;
    const uint8_t *kv;
} ops_window_store_args;

/* y = GEMM_q(flatten(GEMM_bf16 per group (o, wo_a)), wo_b) (model.md 3.8). */
typedef struct ops_attn_out_args {
    int32_t n_rows;
    int32_t n_groups;
    int32_t group_in; /* n_heads * head_dim / n_groups */
    int32_t o_lora;
    int32_t hidden;
    const bf16 *o;          /* [n_rows, n_groups, group_in] */
    const ops_matrix *wo_a; /* [n_groups * o_lora, group_in] FP8, used as BF16 without activation rounding */
    const ops_matrix *wo_b; /* [hidden, n_groups * o_lora] FP8 */
    bf16 *low;              /* out [n_rows, n_groups * o_lora]: input of wo_b */
    bf16 *y;                /* out [n_rows, hidden] */
} ops_attn_out_args;

/* --- Mixture of experts ----------------------------------------------------------------------------------------------- */

/* sqrt(softplus) router (model.md 3.9). */
typedef struct ops_router_args {
    int32_t n_rows;
    int32_t hidden;
    int32_t n_experts;
    int32_t n_active;
    float routed_scale;
    const bf16 *u;           /* [n_rows, hidden] */
    const uint8_t *is_text;  /* [n_rows]; 0 = bias_vl */
    const ops_matrix *gate;  /* [n_experts, hidden] BF16 */
    const float *bias;       /* [n_experts] */
    const float *bias_vl;    /* [n_experts] */
    int32_t *ids;            /* out [n_rows, n_active] ascending */
    float *weights;          /* out [n_rows, n_active] */
} ops_router_args;

/* Routed experts in ascending id, then the shared one; fp32 sum of BF16 contributions, one rounding (model.md 3.10). */
typedef struct ops_experts_args {
    int32_t n_rows;
    int32_t hidden;
    int32_t inter;
    int32_t n_experts;
    int32_t n_active;
    float swiglu_limit;
    const bf16 *u;             /* [n_rows, hidden] */
    const int32_t *ids;        /* [n_rows, n_active] ascending */
    const float *weights;      /* [n_rows, n_active] */
    const ops_expert *experts; /* host [n_experts] FP4; NULL with a feed */
    ops_feed *feed;            /* host; NULL = all experts are in memory. Backends with form_bytes only */
    ops_expert shared;         /* FP8 */
    bf16 *y;                   /* out [n_rows, hidden] */
} ops_experts_args;

/* --- Head ------------------------------------------------------------------------------------------------------------- */

/* logits = GEMM_f32(h, head) (model.md 3.1). */
typedef struct ops_head_args {
    int32_t n_rows;
    int32_t hidden;
    const ops_matrix *head; /* [vocab, hidden] BF16 */
    const bf16 *h;          /* [n_rows, hidden] */
    float *logits;          /* out [n_rows, vocab] */
} ops_head_args;

/* --- Draft (dspark.md part 1) ------------------------------------------------------------------------------------------------ */

/* out[t] = bf16(mean of the streams of X[t]), rows `ld` values apart: one tap among those of a row (1.3). */
typedef struct ops_tap_args {
    int32_t n_rows;
    int32_t hc;
    int32_t hidden;
    int64_t ld;
    const bf16 *x; /* [n_rows, hc, hidden] */
    bf16 *out;
} ops_tap_args;

/* Attention inside a draft block (1.6): every row of a sequence sees the last `window` rows of its draft ring before pos0, or as many as
 * there are from window_from on, and all rows of its own block. Slots: ring rows in ascending position mod window, then the block. */
typedef struct ops_draft_attend_args {
    int32_t n_seqs;
    const ops_seq *seqs; /* host [n_seqs]: a block each, n_rows alike; pos0 is the anchor's position */
    int32_t n_heads;
    int32_t head_dim;
    int32_t rope_dim;
    int32_t window;
    int32_t ring_slots;
    float scale;
    const bf16 *q;      /* [rows, n_heads, head_dim] */
    const uint8_t *kv;  /* packed rows of the blocks */
    size_t ring_offset; /* of the stage's ring in the state; as in ops_attend_args */
    const float *sink;  /* [n_heads] */
    const float *rope;  /* [rope_dim / 2] */
    bf16 *o;            /* out [rows, n_heads, head_dim] */
} ops_draft_attend_args;

/* One step of the Markov head (1.7, 1.8), a row for each sequence: logits = base + markov_head . markov_embed[previous];
 * confidence = proj . (hidden, markov_embed[previous]), raw. */
typedef struct ops_markov_args {
    int32_t n_rows;
    int32_t hidden;
    int32_t rank;
    int64_t vocab;
    int64_t ld_base;           /* rows of base and hidden that a sequence is apart: the block size */
    const int32_t *previous;   /* [n_rows] ids */
    const bf16 *h;             /* rows of [hidden], one each ld_base rows: head_hidden, not normalised */
    const float *base;         /* rows of [vocab], one each ld_base rows */
    const ops_matrix *embed;   /* [vocab, rank] BF16, looked up */
    const ops_matrix *head;    /* [vocab, rank] BF16 */
    const ops_matrix *proj;    /* [1, hidden + rank] BF16 */
    float *logits;             /* out [n_rows, vocab] */
    float *confidence;         /* out [n_rows] */
} ops_markov_args;

/* --- Rows ------------------------------------------------------------------------------------------------------------- */

/* Moves rows inside each buffer: dst rows of move i become its src rows. Moves have rising, non-overlapping targets with
 * dst <= src. Used when a layer goes on with fewer rows than it started with (model.md 4.2). */
typedef struct ops_move {
    int32_t src;
    int32_t dst;
    int32_t n_rows;
} ops_move;

typedef struct ops_keep_rows_args {
    int32_t n_moves;
    const ops_move *moves;   /* host [n_moves] */
    int32_t n_buffers;
    void *const *buffers;    /* host [n_buffers] of device pointers; NULL entries are skipped */
    const size_t *row_bytes; /* host [n_buffers] */
} ops_keep_rows_args;

/* --- Passes that repeat ------------------------------------------------------------------------------------------------- */

/* A pass whose stages, their order and their arguments follow from these values and from what lies at the same places of device memory
 * as before: every row goes through every layer. Sequences may be others than last time, further on, and in other memory. */
typedef struct ops_step {
    int32_t n_rows;
    int32_t n_seqs;
    const ops_seq *seqs;  /* host [n_seqs]: what every stage of the pass is given, with pages or without */
    int32_t page_tokens;  /* tokens a page */
    const void *key;      /* a pass with another one is another pass */
} ops_step;

/* --- Backends --------------------------------------------------------------------------------------------------------- */

typedef struct ops_device ops_device; /* each backend's own */

typedef struct ops_device_options {
    int32_t n_threads; /* CPU backends; 0 = all CPUs of this process */
    int32_t ordinal;   /* GPU backends */
    const char *isa;   /* backend "cpu": instruction set, NULL or "auto" = the widest; borrowed while it opens */
    const char *pin;   /* backend "cpu": "on", "off", NULL or "auto" = where there are several memory nodes; borrowed likewise */
} ops_device_options;

typedef enum ops_weight_use {
    OPS_USE_PRODUCT, /* in matrix products */
    OPS_USE_LOOKUP   /* rows are copied out: embedding, Engram table */
} ops_weight_use;

/* Sizes of a model that stages may refuse. */
typedef struct ops_sizes {
    int32_t hidden;
    int32_t hc; /* residual streams */
    int32_t head_dim;
    int32_t rope_dim;
    int32_t o_lora;      /* outputs of a group */
    int32_t index_heads; /* 0 = no index */
    int32_t index_dim;
    int32_t moe_inter;
    int32_t n_experts; /* the most of a layer, drafts included */
    int32_t n_active;
    int32_t engram_dim; /* of a table's row; 0 = no Engram */
} ops_sizes;

typedef struct ops_backend {
    const char *name;        /* "ref", "cpu", "cuda" */
    const char *description; /* one line for people */
    const char *numerics;    /* backends with the same one give the same bits; NULL = like no other */
    /* Can this machine run it? Never fails; open() says why not. */
    bool (*available)(void);
    di_status (*open)(const ops_device_options *options, ops_device **out, di_error *err);
    void (*close)(ops_device *dev);
    int32_t (*n_threads)(const ops_device *dev); /* host threads that work on a stage */
    /* Waits for everything asked so far; reports and clears the first failure. */
    di_status (*sync)(ops_device *dev, di_error *err);

    /* Device memory, zeroed, aligned to 256 bytes. NULL when there is none left. */
    void *(*mem_alloc)(ops_device *dev, size_t bytes);
    void (*mem_free)(ops_device *dev, void *memory);
    void (*upload)(ops_device *dev, void *dst, const void *src_host, size_t bytes);
    void (*download)(ops_device *dev, void *dst_host, const void *src, size_t bytes);
    void (*copy)(ops_device *dev, void *dst, const void *src, size_t bytes); /* within the device, not overlapping */
    /* Prepares a weight for the stages (may set packed). Called once a matrix, before any stage uses it. */
    di_status (*weight_load)(ops_device *dev, ops_matrix *matrix, ops_weight_use use, di_error *err);
    void (*weight_free)(ops_device *dev, ops_matrix *matrix);

    /* For weights that are not in memory all the time; both NULL: the backend wants all of them through weight_load. */
    /* Bytes of the form that it keeps of such a matrix for products, without data and scale; 0 = it reads the stored one. */
    size_t (*form_bytes)(const ops_device *dev, const ops_matrix *shape);
    /* Sets `packed` of n FP4 matrices to forms made in memory[i], form_bytes long and aligned to 64 bytes. data and scale of a matrix may
     * lie in it, scale before data, when data ends where the form does or behind it; they are gone then. A matrix that cannot have a
     * form keeps both, and packed NULL. */
    void (*form)(ops_device *dev, ops_matrix *const *matrices, void *const *memory, size_t n);

    void (*embed)(ops_device *dev, const ops_embed_args *a);
    void (*seam_open)(ops_device *dev, const ops_seam_open_args *a);
    void (*seam_close)(ops_device *dev, const ops_seam_close_args *a);
    void (*engram)(ops_device *dev, const ops_engram_args *a);
    void (*attn_in)(ops_device *dev, const ops_attn_in_args *a);
    void (*compress)(ops_device *dev, const ops_compress_args *a);
    void (*query)(ops_device *dev, const ops_query_args *a);
    void (*index)(ops_device *dev, const ops_index_args *a);
    void (*attend)(ops_device *dev, const ops_attend_args *a);
    void (*window_store)(ops_device *dev, const ops_window_store_args *a);
    void (*attn_out)(ops_device *dev, const ops_attn_out_args *a);
    void (*router)(ops_device *dev, const ops_router_args *a);
    void (*experts)(ops_device *dev, const ops_experts_args *a);
    void (*head)(ops_device *dev, const ops_head_args *a);
    void (*tap)(ops_device *dev, const ops_tap_args *a);
    void (*draft_attend)(ops_device *dev, const ops_draft_attend_args *a);
    void (*markov)(ops_device *dev, const ops_markov_args *a);
    void (*keep_rows)(ops_device *dev, const ops_keep_rows_args *a);

    /* Whether the stages take a model of these sizes, before anything is opened. NULL = they take all.
     * Errors: DI_E_UNSUPPORTED with the size in question. */
    di_status (*suits)(const ops_sizes *sizes, di_error *err);

    /* Between plan(dev, true) and plan(dev, false) stages do nothing but find out how much memory they need; then it is taken, so that
     * no later stage of that many rows takes any. NULL = stages need none. A failure is kept for sync(). */
    void (*plan)(ops_device *dev, bool begin);
    /* Both NULL: the backend has no use for repetition. True = the device does the whole pass again as it did one like it: no stage is
     * to be asked for, nor step_end called. Else the stages follow, then step_end; when that is false nothing of it has been done, and the
     * stages must be asked for once more, without either. */
    bool (*step_begin)(ops_device *dev, const ops_step *step);
    bool (*step_end)(ops_device *dev);

    /* Forms that are kept in files, so that a later start need not make them; all four NULL: there are none. */
    /* Devices with the same name understand each other's forms: at most 31 letters, digits and '-', with a version. Static string. */
    const char *(*kept_name)(const ops_device *dev);
    /* Bytes of the form of such a matrix; 0 = it never has one. */
    size_t (*kept_bytes)(const ops_device *dev, const ops_matrix *shape);
    /* The form that weight_load has made, kept_bytes long, borrowed until weight_free; NULL = it made none. */
    const void *(*kept_form)(const ops_device *dev, const ops_matrix *matrix);
    /* In place of weight_load: sets packed to a form that lies in `form`, aligned to 64 bytes and borrowed until weight_free. Whatever
     * its bytes are, stages stay inside of it. */
    di_status (*weight_attach)(ops_device *dev, ops_matrix *matrix, const void *form, di_error *err);

    /* One line for people: where threads and weights are, or why not where they should be; "" = wherever the system puts them. Owned by
     * the device. NULL = the backend places nothing. */
    const char *(*placement)(const ops_device *dev);
} ops_backend;

/* All backends of this build, fastest first; "ref" is last and always available. NULL-terminated, static. */
const ops_backend *const *ops_backends(void);

/* Backend by name; NULL or "auto" = the first available. Errors: DI_E_ARGUMENT, DI_E_UNSUPPORTED (message lists the names). */
di_status ops_backend_find(const char *name, const ops_backend **out, di_error *err);

#endif
