/* model.h - what other rooms may use of the model room, beyond the public <deepinfer/model.h>.
 *
 *   di_model    an opened checkpoint, immutable, shared
 *   mdl_runner  one device with the model's weights prepared for it and the buffers of a forward pass; one thread at a time
 *   mdl_seq     the caches of one sequence on a runner's device
 *
 * mdl_forward runs one batch of rows through the backbone (model.md 3). */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "core/io.h"
#include "model/mdl_config.h"
#include "model/mdl_layout.h"
#include "ops/ops.h"

#include <deepinfer/model.h>

const mdl_config *mdl_config_of(const di_model *model);

typedef struct mdl_runner mdl_runner;

typedef struct mdl_runner_options {
    const ops_backend *backend;
    ops_device_options device;
    int32_t max_rows;   /* rows of one forward pass */
    int64_t max_tokens; /* longest sequence */
    bool draft;         /* load the draft model too, and keep its context (mdl_draft.h) */
    di_trace_fn trace;  /* NULL = off */
    void *trace_user;
    int64_t ram_budget; /* bytes of weights in memory; 0 = all. What does not fit is read from the checkpoint's files when it is needed */
    const io_table *io; /* for these reads; NULL = the best one */
    const char *weight_cache; /* folder with weights in the backend's form (mdl_kept.h); NULL = none. Borrowed while the runner is made */
} mdl_runner_options;

/* Errors: DI_E_MEMORY, DI_E_DEVICE, DI_E_UNSUPPORTED; with a budget also DI_E_LIMIT (too small), DI_E_IO. */
di_status mdl_runner_new(const di_model *model, const mdl_runner_options *options, mdl_runner **out, di_error *err);
void mdl_runner_free(mdl_runner *r);
const mdl_layout *mdl_runner_layout(const mdl_runner *r);
int32_t mdl_runner_threads(const mdl_runner *r);
/* di_engine_measure_copy. */
di_status mdl_runner_measure_copy(mdl_runner *r, size_t bytes, double *rate, di_error *err);

/* Weights that are read when they are needed; sums since the runner was made. */
typedef struct mdl_stream_stats {
    int64_t budget_bytes;   /* 0 = everything is in memory */
    int64_t resident_bytes; /* of weights that stay */
    int64_t cache_bytes;    /* of slots for experts */
    int64_t experts;        /* routed ones of the model */
    int64_t slots;
    int64_t hits;           /* experts that a layer needed and that were in memory, or on their way by a guess */
    int64_t misses;
    int64_t guessed;        /* read because they were likely */
    int64_t guessed_right;  /* and then needed */
    int64_t engram_rows;
    int64_t read_bytes;
    int64_t wait_ns;        /* in which a stage had to wait for the disk */
} mdl_stream_stats;

void mdl_runner_get_stream_stats(const mdl_runner *r, mdl_stream_stats *out);

/* How weights were prepared. */
typedef struct mdl_weight_stats {
    int64_t load_ns;       /* time that it took */
    int64_t mapped_bytes;  /* in forms that the weight cache had */
    int64_t written_bytes; /* of the file that was added to it */
    char note[640];        /* one line for people: where weights came from; "" without a weight cache */
    char placement[160];   /* where threads and weights are; "" = wherever the system puts them */
} mdl_weight_stats;

void mdl_runner_get_weight_stats(const mdl_runner *r, mdl_weight_stats *out);

/* Device memory is the caller's: one state (layout.state_bytes) and pages (layout.page_bytes) in order, whatever they held before. */
typedef struct mdl_seq {
    mdl_runner *runner;
    int64_t n_tokens;   /* tokens whose effect is in the caches */
    int64_t n_frozen;   /* rows of tokens before this are in the pages already and are not written again */
    int64_t window_from; /* window rows before this position are missing, and do without (bounded replay); else 0 */
    uint8_t *state;     /* device: fixed part */
    uint8_t **pages;    /* device pages; host array, owned */
    int32_t n_pages;
    int32_t page_capacity;
    int32_t recent[MDL_MAX_NGRAM + OPS_REWIND]; /* compressed Engram ids of the last tokens, newest first */
    int32_t n_recent;
    int64_t decoder_from; /* decoder layers run for tokens from here on, and see no window row before (bounded replay); else 0 */
    int64_t draft_from;   /* blocks of drafts see no row before: there are some that mdl_draft_rest left out; else 0 */
} mdl_seq;

void mdl_seq_init(mdl_runner *r, mdl_seq *seq, uint8_t *state);
void mdl_seq_fini(mdl_seq *seq);
/* Room in the list of pages. Errors: DI_E_MEMORY. */
di_status mdl_seq_reserve(mdl_seq *seq, int32_t n_pages, di_error *err);
void mdl_seq_add_page(mdl_seq *seq, uint8_t *page); /* within what was reserved */

/* An empty sequence goes on behind `start` tokens that others have computed: pages hold the rows of n_frozen >= start tokens; the state
 * is a copy of what a sequence has behind `start` tokens, or anything when at least mdl_halo tokens lie between. ids[n_frozen] are
 * the tokens, text only. Passes must end at n_frozen. With window_from = start no halo is needed either;
 * results are approximate then. */
void mdl_seq_resume(mdl_seq *seq, const int32_t *ids, int64_t start, int64_t n_frozen);

/* An empty sequence takes over where another one stands whose state and pages its own are copies of. */
void mdl_seq_continue(mdl_seq *seq, const mdl_seq *from);

/* Takes the last n tokens back, at most OPS_REWIND of those that the last pass ran: the sequence is as if they had not been fed. */
void mdl_seq_rewind(mdl_seq *seq, int32_t n);

/* Copies a state, or a page, within the device. */
void mdl_copy_state(mdl_runner *r, void *dst, const void *src);
void mdl_copy_page(mdl_runner *r, void *dst, const void *src);
void *mdl_alloc(mdl_runner *r, size_t bytes); /* device memory, zeroed, NULL when there is none */
void mdl_free(mdl_runner *r, void *memory);

/* Caches as flat bytes on the host, for tiers that outlive the process (mdl_flat.c). A page holds a whole unit of tokens. A state is that
 * behind `at` tokens, at most OPS_REWIND - 1 before where its sequence stands; without `whole` its decoder windows are left out, so that
 * it serves only prompts that go on for mdl_decoder_reach. What is not written of a state is undefined behind mdl_flat_state_in. */
size_t mdl_flat_page_bytes(const mdl_runner *r);
size_t mdl_flat_state_bytes(const mdl_runner *r, bool whole);
void mdl_flat_page_out(mdl_runner *r, void *out, const void *page);
void mdl_flat_page_in(mdl_runner *r, void *page, const void *bytes);
void mdl_flat_state_out(mdl_runner *r, void *out, const void *state, int64_t at, bool whole);
void mdl_flat_state_in(mdl_runner *r, void *state, const void *bytes, int64_t at, bool whole);

#define MDL_FINGERPRINT_BYTES 32
/* Equal when flat bytes of two runners mean the same. Reads weights: slow for a large checkpoint. Errors: DI_E_IO, DI_E_MEMORY. */
di_status mdl_fingerprint(const mdl_runner *r, uint8_t out[MDL_FINGERPRINT_BYTES], di_error *err);

int64_t mdl_window(const mdl_runner *r); /* tokens */
/* Tokens to recompute so that the windows of all layers are exact (model.md 4.2, 4.4): 5,081 as released. */
int64_t mdl_halo(const mdl_runner *r);
/* The same for what enters the decoder: 2,540 as released. */
int64_t mdl_encoder_halo(const mdl_runner *r);
/* When at least that many tokens follow, the windows that decoder layers had before them do not matter (model.md 4.2): 2,414 as released
 * for one wanted row. */
int64_t mdl_decoder_reach(const mdl_runner *r, int64_t n_logits);

/* Consecutive tokens of one sequence. */
typedef struct mdl_item {
    mdl_seq *seq;             /* reserved for n more tokens */
    const int32_t *ids;       /* [n], checked to be inside the vocabulary */
    const uint8_t *in_image;  /* [n] 1 = inside an image span; NULL = text */
    const bf16 *embed;        /* [n, hidden] rows used where in_image; NULL = from the table */
    int32_t n;
    int64_t n_after;          /* tokens known to follow in later passes: lets decoder layers skip rows exactly (model.md 4.2) */
    int32_t n_logits;         /* logits wanted of the last n_logits rows; only meaningful when n_after < what they reach */
    bool full;                /* skips no row, though nobody asks for it: what the skipping is compared with */
} mdl_item;

/* Runs the items' rows (together at most max_rows) through the model and appends them to the sequences. Logits of the wanted
 * rows are written to `logits` [sum of wanted rows, vocab] (host) in item order; rows that no layer had to finish (n_after > 0)
 * give none. *n_logits = rows written. On error the sequences of the batch must be freed. */
di_status mdl_forward(mdl_runner *r, const mdl_item *items, int32_t n_items, float *logits, int32_t *n_logits, di_error *err);

/* ---- The draft model (dspark.md part 1); runners with `draft` only ---- */

int32_t mdl_draft_block(const mdl_runner *r); /* drafts of a proposal; 0 = no draft model */
int32_t mdl_draft_most(const mdl_runner *r);  /* sequences of one mdl_draft_begin */

/* With `rest`, passes from the next one on leave the draft model's context out, which is a few percent of their time: proposals behind them
 * are of less use until a window of tokens has run without. Nothing else depends on it. */
void mdl_draft_rest(mdl_runner *r, bool rest);

/* Runs one block for each of n sequences behind what they have; anchors[n] are the tokens that come next. Nothing of the sequences
 * changes. Errors: DI_E_MEMORY, DI_E_DEVICE. */
di_status mdl_draft_begin(mdl_runner *r, const mdl_seq *const *seqs, const int32_t *anchors, int32_t n, di_error *err);
/* Step i = 0 .. block - 1 of the same sequences: logits [n, vocab] of draft i behind previous[n] (the anchors, then draft i - 1), and the
 * confidence [n] in it, before the sigmoid; both on the host. */
di_status mdl_draft_step(mdl_runner *r, int32_t i, const int32_t *previous, float *logits, float *confidence, di_error *err);

/* Sends a sequence's caches to the runner's trace, unpacked, under "cache.L<i>.<name>". */
di_status mdl_seq_trace(mdl_seq *seq, di_error *err);

#endif
