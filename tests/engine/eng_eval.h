/* eng_eval.h - the demo model and its evaluation set, for tests of drafts. */
#ifndef ENGINE_ENG_EVAL_H
#define ENGINE_ENG_EVAL_H

#include "core/json.h"

#include <deepinfer/scheduler.h>

/* One line of the set: the root is an object, good for the call. */
typedef void (*eng_eval_fn)(void *user, const js_value *line);

/* Ids of an array, to be freed. */
int32_t *eng_eval_ids(const js_value *list, size_t *n);

/* A scheduler over the demo model with its draft model, and the text of the set. */
typedef struct eng_eval_setup {
    char *text; /* [size] */
    size_t size;
    di_model *model;
    di_engine *engine;
    di_scheduler *scheduler;
} eng_eval_setup;

/* The test is skipped, with a line that says so, when the set is not there, and fails with the reason when the rest can't be opened. */
eng_eval_setup eng_eval_open(const di_scheduler_options *options);
void eng_eval_close(eng_eval_setup *setup);

/* Calls for the lines first, first + stride ... (from 0). */
void eng_eval_each(const eng_eval_setup *setup, int first, int stride, eng_eval_fn fn, void *user);

/* Greedy, without the prefix cache, until the end of the sentence. */
void eng_eval_submit(di_scheduler *s, const int32_t *prompt, size_t n);

#endif
