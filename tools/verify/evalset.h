/* evalset.h - a trained model against an evaluation set with reference outputs (demo_model: eval.jsonl, reference_logits.safetensors).
 *
 * Greedy outputs from `prompt_ids` are compared token by token with `reference_output_ids`, up to the first difference. Two correct
 * engines may part where two tokens are about equally likely, so at least 99 % of the prompts must agree, and where one does not
 * our own lead of the best over the second logit must be small. Reference logits: the same likeliest token wherever the golden
 * lead exceeds VF_EVAL_LEAD, and the bounds below on the relative RMS. Reference drafts of the same file, of models with a
 * draft model: the drafts behind the same anchor, of which, as there is no lead to look at, one block may part; and a
 * block's confidences up to the first that hangs on another draft, which come of the same rows as its logits and have
 * their bound on the relative RMS. Several prompts share each forward pass. */
#ifndef VERIFY_EVALSET_H
#define VERIFY_EVALSET_H

#include "run.h"

#define VF_EVAL_SHARE 0.99
#define VF_EVAL_LEAD 0.5
#define VF_EVAL_REL_RMS 0.15
#define VF_EVAL_MEAN_REL_RMS 0.05
#define VF_EVAL_DRAFT_PARTINGS 1

typedef struct vf_parting {
    char id[64];
    size_t position; /* of the output token */
    int32_t ours;
    int32_t reference;
    double lead;        /* ours */
    double golden_lead; /* smallest of the whole reference output */
} vf_parting;

#define VF_MAX_PARTINGS 64

typedef struct vf_eval {
    size_t n_prompts;
    size_t n_equal;
    size_t n_wide; /* parted although our lead was VF_EVAL_LEAD or more */
    size_t n_partings;
    vf_parting partings[VF_MAX_PARTINGS];
    size_t n_logits; /* prompts with reference logits */
    size_t n_argmax;
    double mean_rel_rms;
    double max_rel_rms;
    char max_id[64];
    int64_t n_tokens; /* through the model */
    double seconds;
    size_t n_drafts;  /* blocks with reference drafts */
    size_t n_drafts_equal;
    double max_confidence; /* relative RMS of a block's confidences */
} vf_eval;

typedef void (*vf_progress_fn)(size_t done, size_t total);

/* Runs what `dir` holds of the two files; one must be there. */
di_status vf_run_eval(const di_model *model, const vf_settings *settings, const char *dir, vf_progress_fn progress, vf_eval *out,
                      di_error *err);

/* True when the bars of the head comment are met. */
bool vf_eval_passed(const vf_eval *e);

#endif
