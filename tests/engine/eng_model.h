/* eng_model.h - the checkpoints that tests of the engine open. */
#ifndef ENGINE_ENG_MODEL_H
#define ENGINE_ENG_MODEL_H

#include <deepinfer/model.h>

/* The model in a folder of the source tree ("models/demo"); the test fails with the reason when it can't be opened. */
di_model *eng_model_open(const char *dir);

#endif
