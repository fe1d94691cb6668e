/* open.h - opening what the options name: a model, or only its tokenizer; the demo model when they name none. */
#ifndef TOOLS_OPEN_H
#define TOOLS_OPEN_H

#include <deepinfer/engine.h>
#include <deepinfer/model.h>

/* `dir` NULL = the default place. Errors: those of di_model_default_path and di_model_open. */
di_status cli_open_model(const char *dir, di_model **out, di_error *err);

/* tokenizer.json of `file`, else of the folder `dir`, else of the default model. */
di_status cli_open_tokenizer(const char *dir, const char *file, di_tokenizer **out, di_error *err);

/* Where weights came from and where threads are, as lines on standard error; nothing where there is nothing to say. */
void cli_say_weights(const di_weight_stats *weights);
void cli_say_engine_weights(const di_engine *engine);

#endif
