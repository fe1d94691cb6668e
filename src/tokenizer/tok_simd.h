/* tok_simd.h - cutting text into pieces with the widest vectors that this processor has.
 *
 * A variant is chosen when a tokenizer is made and kept there. All give the same ends. */
#ifndef TOKENIZER_TOK_SIMD_H
#define TOKENIZER_TOK_SIMD_H

#include <deepinfer/tokenizer.h>

#include <stddef.h>
#include <stdint.h>

/* Cuts text from `begin`, a piece boundary, on and stores the ends: those of pieces, and closed seams inside of them (tok_cjk.c).
 * Returns their number, 0 only when begin == n. It stops when fewer than TOK_WINDOW of `max` places are left. */
typedef size_t tok_cut_fn(const di_tokenizer *tok, const uint8_t *s, size_t n, size_t begin, uint32_t *ends, size_t max);

#define TOK_WINDOW 64u

tok_cut_fn tok_cut_plain;
tok_cut_fn tok_cut_avx2;
tok_cut_fn tok_cut_avx512;

/* The variants that run here, best first; NULL behind the last. */
tok_cut_fn *tok_cut_variant(size_t i);

#endif
