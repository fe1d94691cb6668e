/* tokenizer.h - what other rooms may use of the tokenizer, beyond the public <deepinfer/tokenizer.h>. */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include <deepinfer/tokenizer.h>

/* The Engram map (tokenizer.md 10): out[id] = compressed id for id in [0, vocab_size). *n_compressed = number of distinct ids.
 * `out` has di_tokenizer_vocab_size entries. Computed on each call; a model computes it once when it is opened. */
di_status tok_engram_map(const di_tokenizer *tokenizer, int32_t *out, int32_t *n_compressed, di_error *err);

#endif
