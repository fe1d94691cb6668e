/* tok_support.h - what the tokenizer tests share: finding the files, opening tokenizers, a reproducible random source. */
#ifndef TESTS_TOKENIZER_TOK_SUPPORT_H
#define TESTS_TOKENIZER_TOK_SUPPORT_H

#include "tokenizer/tok_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The bundled demo model's tokenizer; always there. */
di_tokenizer *sup_demo(void);
/* Its tokenizer.json as text, NUL-terminated, malloc'ed. */
char *sup_demo_json(void);
/* "v4", "v41" or "v41_recipe" from DI_TOKENIZERS, else build/tokenizers; NULL when the file is not there, which with CI=true
 * fails the test. */
di_tokenizer *sup_real(const char *name);
/* A file of the tokenizer test data, malloc'ed; NULL when it is not there. */
char *sup_data(const char *name, size_t *size);

/* Encodes into a malloc'ed array. */
int32_t *sup_encode(const di_tokenizer *tok, const void *text, size_t n, unsigned flags, size_t *n_ids);
/* Asserts that text encodes to exactly the ids given as "1 2 3". */
void sup_expect_ids(const di_tokenizer *tok, const char *text, size_t n, unsigned flags, const char *ids);
/* Decodes into a malloc'ed text with a NUL behind it. */
char *sup_decode(const di_tokenizer *tok, const int32_t *ids, size_t n, unsigned flags, size_t *n_text);

/* splitmix64. */
uint64_t sup_random(uint64_t *state);
/* Random valid UTF-8 of up to `max` bytes out of characters that meet every class and boundary. Returns the length. */
size_t sup_random_text(uint64_t *state, size_t max, uint8_t *out);

#endif
