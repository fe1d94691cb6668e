/* golden.h - the golden folder of a checkpoint: manifest.json and one safetensors file a case.
 *
 * Format and meaning: tests/data/model/README.md. A golden tensor belongs to a phase of the case: the prefill, decode step i, or
 * the end (caches), and names the value that the engine's trace calls the same. Everything is checked before use, so a broken
 * folder gives an error that names case and tensor, never a wrong verdict. */
#ifndef VERIFY_GOLDEN_H
#define VERIFY_GOLDEN_H

#include "core/core.h"

typedef struct vf_golden {
    char *dir;
    js_doc *manifest;
    const js_value *cases; /* array */
    const char *checkpoint;
} vf_golden;

di_status vf_golden_open(const char *dir, vf_golden *out, di_error *err);
void vf_golden_close(vf_golden *g);

/* Tolerances of one float tensor. */
typedef struct vf_tolerance {
    double max_abs;
    double rel_rms;
    double min_cos;
} vf_tolerance;

typedef struct vf_case {
    const vf_golden *golden;
    const js_value *entry;
    const char *name;
    const char *kind;
    st_file *file;
    int32_t *ids; /* the prompt; owned */
    size_t n_ids;
    uint8_t *in_image;   /* [n_ids] or NULL; owned */
    uint16_t *embed;     /* [n_ids, hidden] or NULL; owned */
    int32_t *steps;      /* golden tokens fed after the prompt; owned */
    size_t n_steps;
    size_t *chunks;      /* tokens of each feed of the prompt; owned */
    size_t n_chunks;
    bool drafts;         /* behind each step the draft model proposes from the token of the next one */
    double swiglu_limit; /* 0 = as configured */
    bool may_move;       /* selection_changes */
    vf_tolerance if_moved;
} vf_case;

const char *vf_case_name(const vf_golden *g, size_t i);

/* Why case i is not for the text backbone of this build ("image encoder ..."), or NULL when it is to be run. */
const char *vf_skip_reason(const vf_golden *g, size_t i);

di_status vf_case_open(const vf_golden *g, size_t i, vf_case *out, di_error *err);
void vf_case_close(vf_case *c);

/* Case of the set whose exactness is judged (README, criterion 3)? */
bool vf_judges_exactness(const vf_case *c);

di_status vf_case_tolerance(const vf_case *c, const char *tensor, vf_tolerance *out, di_error *err);

enum { VF_INPUT = -1, VF_END = 1 << 20 };

/* Phase of a golden tensor: VF_INPUT, 0 = prefill, i + 1 = decode step i, VF_END = after the last. *name = the trace's name for it. */
int vf_phase(const char *tensor, const char **name);

/* Positions of a golden tensor's rows: out[r] for r in [0, dims[0]); `n_prompt` rows were computed in the phase. */
bool vf_rows(const vf_case *c, const st_tensor *t, const char *name, size_t n_phase, size_t *out);

#endif
