/* chunkings.h - the promise that grouping does not show: every prompt of the golden folder in chunks of 1, 7, 16, 17 and at once,
 * with 1 and 2 threads, with every layer run for every token (traced) and with the decoder's rows skipped (not traced), gives
 * bitwise the same logits, and the traced runs bitwise the same caches. Decode steps follow the prompt, so that caches of
 * untraced runs are judged by what comes out of them. */
#ifndef VERIFY_CHUNKINGS_H
#define VERIFY_CHUNKINGS_H

#include "run.h"

typedef struct vf_chunkings {
    size_t n_cases;
    size_t n_runs;
    size_t n_different;
    char first[VF_TEXT_BYTES]; /* "prompt_033, chunks of 7, 2 threads, traced: L0.window of the caches differs" */
} vf_chunkings;

/* Cases called `only` alone, unless it is NULL. Of the settings, threads and chunks are its own. */
di_status vf_check_chunkings(const di_model *model, const vf_settings *settings, const vf_golden *g, const char *only, vf_chunkings *out,
                             di_error *err);

#endif
