/* eng_verify.h - which drafts of a sampled request stay, as pure functions over the laws that drafts and tokens are drawn from.
 *
 * A law is what the sampler's settings leave of a row: ids and the integer masses of eng_gumbel.h. A draft is drawn from exactly the masses
 * that its verification divides by. Two rules (dspark.md 2.2), both of which leave the law of the text as it is without drafts:
 *
 *   rejection  a draft stays with probability min(1, p / q); the first that does not is replaced from max(p - q, 0)
 *              (Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", ICML 2023)
 *   block      drafts stay or go together, which keeps at least as many (Sun et al., "Block verification accelerates speculative
 *              decoding", arXiv 2403.10444)
 *
 * They hold when the number of drafts is chosen such that whether draft j is verified depends on drafts before it only.
 *
 * Noise is a function of (seed, position, stream, place of the draft in its proposal): a position is drafted several times, and rejected
 * drafts have had a say in what became of their block, so each time it takes noise that was never used. */
#ifndef ENGINE_ENG_VERIFY_H
#define ENGINE_ENG_VERIFY_H

#include <deepinfer/scheduler.h>

#include <stdbool.h>
#include <stdint.h>

/* Owner: a choice for those of its drafts, else who verifies. All zero = no id. */
typedef struct eng_law {
    int32_t *ids;  /* [n] ascending */
    float *mass;   /* [n] integers, above 0 */
    int32_t n;
    int32_t capacity;
    uint64_t total;
} eng_law;

void eng_law_fini(eng_law *law);
/* Room for n ids. False: no memory, nothing has changed. */
bool eng_law_reserve(eng_law *law, int32_t n);
/* Adds an id above those that are there, within what was reserved; without mass it is left out. */
void eng_law_add(eng_law *law, int32_t id, uint64_t mass);
double eng_law_chance(const eng_law *law, int32_t id);
/* The id at a fraction (of 2^64) of the whole mass. The law has one. */
int32_t eng_law_draw(const eng_law *law, uint64_t fraction);

/* Noise of the token at a position: place 0, or of a draft there: its place in the proposal, from 1 on. stream: eng_noise.h. */
uint64_t eng_verify_noise(uint64_t seed, int64_t position, uint32_t stream, int32_t place);

/* One block under verification, row after row. */
typedef struct eng_block {
    di_verify rule;
    uint64_t seed;
    int64_t position; /* of the token behind the first row */
    int32_t n_drafts;
    int32_t row;      /* the next one */
    double weight;    /* block rule: P of dspark.md 2.2 */
    int32_t n_right;  /* as of the rows so far: drafts that stay */
    int32_t next;     /* and the token behind them; -1 = none was drawn */
} eng_block;

/* rule: DI_VERIFY_BLOCK or DI_VERIFY_REJECTION. */
void eng_block_start(eng_block *b, di_verify rule, uint64_t seed, int64_t position, int32_t n_drafts);
/* Takes the law p of the token behind the next row; for each row but the last `draft`, which follows it, and the law q it was drawn from.
 * True: another row can change the outcome, and is wanted, if there is one. */
bool eng_block_row(eng_block *b, const eng_law *p, const eng_law *q, int32_t draft);
/* In place of the last row, when no token can follow the last draft. */
void eng_block_end(eng_block *b);

#endif
