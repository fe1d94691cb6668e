/* mdl_engram.c - see mdl_engram.h. The multipliers are numpy's SeedSequence + PCG64 + Lemire draw, written from the
 * algorithm's description in model.md appendix B, so that test configurations work too. */
#include "model/mdl_engram.h"

#include "core/core.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned __int128 u128;

/* --- Multipliers (appendix B) ----------------------------------------------------------------------------------------- */

static uint32_t hash_mix(uint32_t value, uint32_t *constant, uint32_t multiplier)
{
    value ^= *constant;
    *constant *= multiplier;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t pool_mix(uint32_t x, uint32_t y)
{
    uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ r >> 16;
}

/* Four 64-bit words from the entropy 10007 * layer, which always fits one or two 32-bit words. */
static void seed_words(uint64_t entropy, uint64_t out[4])
{
    uint32_t words[4] = {(uint32_t)entropy, (uint32_t)(entropy >> 32), 0, 0};
    uint32_t mixed[4];
    uint32_t constant = 0x43b0d7e5u;
    for (int i = 0; i < 4; i++) {
        mixed[i] = hash_mix(words[i], &constant, 0x931e8875u);
    }
    for (int s = 0; s < 4; s++) {
        for (int d = 0; d < 4; d++) {
            if (s != d) {
                mixed[d] = pool_mix(mixed[d], hash_mix(mixed[s], &constant, 0x931e8875u));
            }
        }
    }
    constant = 0x8b51f9ddu;
    uint32_t half[8];
    for (int i = 0; i < 8; i++) {
        half[i] = hash_mix(mixed[i % 4], &constant, 0x58f38dedu);
    }
    for (int k = 0; k < 4; k++) {
        out[k] = half[2 * k] | (uint64_t)half[2 * k + 1] << 32;
    }
}

typedef struct pcg64 {
    u128 state;
    u128 increment;
} pcg64;

static const u128 PCG_MULTIPLIER = (u128)0x2360ED051FC65DA4u << 64 | 0x4385DF649FCCF645u;

static uint64_t pcg64_next(pcg64 *g)
{
    g->state = g->state * PCG_MULTIPLIER + g->increment;
    uint64_t x = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    unsigned r = (unsigned)(g->state >> 122);
    return x >> r | x << (-r & 63);
}

static uint64_t pcg64_below(pcg64 *g, uint64_t n)
{
    u128 m = (u128)pcg64_next(g) * n;
    if ((uint64_t)m < n) {
        uint64_t threshold = (0 - n) % n;
        while ((uint64_t)m < threshold) {
            m = (u128)pcg64_next(g) * n;
        }
    }
    return (uint64_t)(m >> 64);
}

void mdl_engram_multipliers(int32_t layer, int32_t compressed_vocab, int32_t n, int64_t *out)
{
    uint64_t w[4];
    seed_words((uint64_t)layer * 10007u, w);
    pcg64 g = {.state = 0, .increment = ((u128)w[2] << 64 | w[3]) << 1 | 1};
    g.state = g.state * PCG_MULTIPLIER + g.increment;
    g.state += (u128)w[0] << 64 | w[1];
    g.state = g.state * PCG_MULTIPLIER + g.increment;
    uint64_t bound = (uint64_t)INT64_MAX / (uint64_t)compressed_vocab / 2;
    for (int32_t i = 0; i < n; i++) {
        out[i] = (int64_t)(2 * pcg64_below(&g, bound > 0 ? bound : 1) + 1);
    }
}

/* --- Primes ----------------------------------------------------------------------------------------------------------- */

static bool is_prime(int64_t n)
{
    for (int64_t d = 2; d * d <= n; d++) {
        if (n % d == 0) {
            return false;
        }
    }
    return n >= 2;
}

typedef struct prime_set {
    int64_t used[MDL_MAX_ENGRAM_LAYERS * MDL_MAX_ENGRAM_COLUMNS];
    int32_t n;
} prime_set;

static bool is_used(const prime_set *set, int64_t p)
{
    for (int32_t i = 0; i < set->n; i++) {
        if (set->used[i] == p) {
            return true;
        }
    }
    return false;
}

/* Next prime above `after` that no earlier slot of any layer uses. */
static int64_t next_prime(prime_set *set, int64_t after)
{
    int64_t p = after + 1;
    while (is_used(set, p) || !is_prime(p)) {
        p++;
    }
    set->used[set->n++] = p;
    return p;
}

di_status mdl_engram_constants(const mdl_config *c, mdl_engram *out, di_error *err)
{
    const mdl_engram_config *g = &c->engram;
    prime_set *set = calloc(1, sizeof *set);
    if (set == NULL) {
        return err_memory(err, "Engram primes", sizeof *set);
    }
    di_status status = DI_OK;
    out->n_layers = g->n_layers;
    out->max_ngram = g->max_ngram;
    out->n_heads = g->n_heads;
    out->n_columns = (g->max_ngram - 1) * g->n_heads;
    for (int32_t l = 0; l < g->n_layers && status == DI_OK; l++) {
        int64_t sum = 0;
        mdl_engram_multipliers(g->layers[l], g->compressed_vocab, g->max_ngram, out->multiplier[l]);
        for (int32_t column = 0; column < out->n_columns; column++) {
            /* The search starts again for every n-gram size; the set of used primes does not. */
            int64_t after = column % g->n_heads == 0 ? g->vocab_start - 1 : out->prime[l][column - 1];
            out->prime[l][column] = next_prime(set, after);
            out->offset[l][column] = sum;
            sum += out->prime[l][column];
        }
        if (sum != g->n_rows[l]) {
            status = err_set(err, DI_E_FORMAT,
                             "config.json: text_config.engram_num_embeddings[%d] is %lld: the primes of this table sum to %lld", l,
                             (long long)g->n_rows[l], (long long)sum);
        }
    }
    free(set);
    return status;
}

/* --- Map -------------------------------------------------------------------------------------------------------------- */

static di_status map_from_file(const mdl_config *c, const char *path, mdl_engram *e, int32_t *n_compressed, di_error *err)
{
    char *data = NULL;
    size_t size = 0;
    size_t want = (size_t)c->vocab * sizeof(int32_t);
    di_status status = file_read(path, want, &data, &size, err);
    if (status != DI_OK) {
        return status;
    }
    if (size != want) {
        status = err_set(err, DI_E_FORMAT, "engram_compressed_map.i32: %zu bytes, expected %zu (vocab_size int32)", size, want);
        goto out;
    }
    int32_t top = -1;
    for (int32_t i = 0; i < c->vocab; i++) {
        const uint8_t *p = (const uint8_t *)data + 4 * (size_t)i;
        uint32_t v = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        if (v >= (uint32_t)c->engram.compressed_vocab) {
            status = err_set(err, DI_E_FORMAT, "engram_compressed_map.i32: entry %d is %u, not below engram_compressed_vocab_size %d", i, v,
                             c->engram.compressed_vocab);
            goto out;
        }
        e->map[i] = (int32_t)v;
        top = e->map[i] > top ? e->map[i] : top;
    }
    *n_compressed = top + 1;
out:
    free(data);
    return status;
}

static di_status map_from_tokenizer(const mdl_config *c, const di_tokenizer *t, mdl_engram *e, int32_t *n_compressed, di_error *err)
{
    if (t == NULL) {
        return err_set(err, DI_E_FORMAT, "the model has Engram layers but neither tokenizer.json nor engram_compressed_map.i32");
    }
    int32_t n = di_tokenizer_vocab_size(t);
    if (n != c->vocab) {
        return err_set(err, DI_E_FORMAT, "tokenizer.json has %d ids, config.json: text_config.vocab_size is %d", n, c->vocab);
    }
    return tok_engram_map(t, e->map, n_compressed, err);
}

di_status mdl_engram_init(const mdl_config *c, const char *dir, const di_tokenizer *tokenizer, mdl_engram *out, di_error *err)
{
    *out = (mdl_engram){0};
    if (c->engram.n_layers == 0) {
        return DI_OK;
    }
    int32_t n_compressed = 0;
    char *path = file_path_join(dir, "engram_compressed_map.i32");
    out->map = ar_calloc((size_t)c->vocab, sizeof *out->map);
    out->map_size = c->vocab;
    di_status status = DI_OK;
    if (path == NULL || out->map == NULL) {
        status = err_memory(err, "Engram map", (size_t)c->vocab * sizeof *out->map);
    }
    if (status == DI_OK) {
        status = mdl_engram_constants(c, out, err);
    }
    if (status == DI_OK) {
        status = file_exists(path) ? map_from_file(c, path, out, &n_compressed, err)
                                   : map_from_tokenizer(c, tokenizer, out, &n_compressed, err);
    }
    if (status == DI_OK && n_compressed != c->engram.compressed_vocab) {
        /* A different map would silently re-hash every look-up. */
        status = err_set(err, DI_E_FORMAT,
                         "the tokenizer gives %d compressed ids, text_config.engram_compressed_vocab_size is %d: "
                         "wrong tokenizer.json?",
                         n_compressed, c->engram.compressed_vocab);
    }
    if (status == DI_OK) {
        out->pad = out->map[c->engram.pad_token_id];
    } else {
        mdl_engram_fini(out);
    }
    free(path);
    return status;
}

void mdl_engram_fini(mdl_engram *e)
{
    free(e->map);
    e->map = NULL;
}

/* --- Hash (3.5.3) ----------------------------------------------------------------------------------------------------- */

void mdl_engram_hash(const mdl_engram *e, const int32_t *recent, int32_t n_recent, int64_t *rows)
{
    int64_t t[MDL_MAX_NGRAM];
    bool blocked = false;
    for (int32_t s = 0; s < e->max_ngram; s++) {
        blocked = blocked || s >= n_recent || recent[s] == MDL_ENGRAM_DEAD;
        t[s] = blocked ? e->pad : recent[s];
    }
    for (int32_t l = 0; l < e->n_layers; l++) {
        int64_t roll = t[0] * e->multiplier[l][0];
        for (int32_t i = 1; i < e->max_ngram; i++) {
            roll ^= t[i] * e->multiplier[l][i];
            for (int32_t h = 0; h < e->n_heads; h++) {
                int32_t column = (i - 1) * e->n_heads + h;
                rows[l * e->n_columns + column] = roll % e->prime[l][column] + e->offset[l][column];
            }
        }
    }
}
