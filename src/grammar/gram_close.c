/* gram_close.c - ending in time. */
#include "grammar/gram_grammar.h"

di_status di_matcher_completion(di_matcher *matcher, char *bytes, size_t capacity, size_t *n, size_t *n_tokens, di_error *err)
{
    (void)matcher;
    (void)bytes;
    (void)capacity;
    (void)n_tokens;
    *n = 0;
    return err_set(err, DI_E_UNSUPPORTED, "completions are not there yet");
}

di_status di_matcher_mask_within(di_matcher *matcher, size_t n_left, uint32_t *mask, bool *restricts, bool *closing, di_error *err)
{
    (void)n_left;
    if (closing != NULL) {
        *closing = false;
    }
    return di_matcher_mask(matcher, mask, restricts, err);
}
