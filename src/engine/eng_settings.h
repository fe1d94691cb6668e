/* eng_settings.h - checked copies of di_sampling. */
#ifndef ENGINE_ENG_SETTINGS_H
#define ENGINE_ENG_SETTINGS_H

#include <deepinfer/engine.h>

/* Copies `in` with its arrays after checking every field against the vocabulary. Errors: DI_E_ARGUMENT (names field, value and
 * range), DI_E_MEMORY. */
di_status eng_settings_init(di_sampling *out, const di_sampling *in, int32_t vocab, di_error *err);
void eng_settings_fini(di_sampling *settings);

#endif
