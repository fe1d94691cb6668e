/* tok_cjk.c - pieces of the CJK set start merging from characters instead of bytes, and are cut at closed seams.
 *
 * A character c of the CJK set that is a token may stand for its three bytes from the start when nothing can part them, that is
 * when every product that joins a part of c with something outside it has a higher id than c: then c is made before such a
 * product could be. A piece of the CJK set holds nothing else (the region rule of tok_pre.c), so only products that can occur
 * between such characters count. Characters that fail the test, or are no tokens, start as bytes; so the ids are the same.
 *
 * A seam is the place between two characters. Between two that stand for their bytes from the start, only a token that holds both side by
 * side can be made across it. Where no token does, the seam is closed: what is left of it never meets what is right of it, and a
 * piece may be cut there. Long runs of ideographs so become short ones, which come again and are found in the cache. The pairs
 * that tokens hold are bits of a filter; two pairs with the same bit only make a seam look open that is closed. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"

/* What a product looks like from its ends: bytes of a character cut on the left, of one cut on the right. */
typedef struct ends {
    size_t n_left;
    size_t n_right;
    bool in_cjk; /* all whole characters are in the CJK set */
} ends;

static ends look_at_ends(const uint8_t *s, size_t n)
{
    ends e = {.in_cjk = true};
    while (e.n_left < n && (s[e.n_left] & 0xC0) == 0x80) {
        e.n_left++;
    }
    size_t i = e.n_left;
    while (i < n && n - i >= TOK_CJK_BYTES && s[i] >= 0xE0 && s[i] < 0xF0 && (s[i + 1] & 0xC0) == 0x80 && (s[i + 2] & 0xC0) == 0x80) {
        size_t length;
        e.in_cjk = e.in_cjk && (tok_kind_at(s, n, i, &length) & TOK_CJK) != 0;
        i += TOK_CJK_BYTES;
    }
    e.n_right = n - i;
    /* A remainder that does not look like the beginning of a CJK character can't stand in such a piece. */
    e.in_cjk = e.in_cjk && e.n_left < TOK_CJK_BYTES && e.n_right < TOK_CJK_BYTES;
    for (size_t k = 0; e.in_cjk && k < e.n_right; k++) {
        e.in_cjk = k == 0 ? s[i] >= 0xE3 && s[i] <= 0xE9 : (s[i + k] & 0xC0) == 0x80;
    }
    return e;
}

/* Strikes out the characters with a higher id than `product` that end in its left remainder or begin with its right one. */
static void strike(di_tokenizer *tok, int32_t product, const uint8_t *s, size_t n, ends e)
{
    for (size_t i = 0; i < TOK_N_CJK; i++) {
        if (tok->cjk[i] <= product) {
            continue; /* no token, or made earlier */
        }
        size_t length;
        const uint8_t *c = tok_token(tok, tok->cjk[i], &length);
        const bool left = e.n_left != 0 && memcmp(c + TOK_CJK_BYTES - e.n_left, s, e.n_left) == 0;
        const bool right = e.n_right != 0 && memcmp(c, s + n - e.n_right, e.n_right) == 0;
        if (left || right) {
            tok->cjk[i] = TOK_NONE;
        }
    }
}

di_status tok_cjk_init(di_tokenizer *tok, di_error *err)
{
    tok->cjk = ar_calloc(TOK_N_CJK, sizeof *tok->cjk);
    if (tok->cjk == NULL) {
        return err_memory(err, "CJK characters", TOK_N_CJK * sizeof *tok->cjk);
    }
    for (size_t i = 0; i < TOK_N_CJK; i++) {
        tok->cjk[i] = TOK_NONE;
    }
    tok->seams = ar_calloc(((size_t)1 << TOK_SEAMS_LOG2) / 64, sizeof *tok->seams);
    return tok->seams != NULL ? DI_OK : err_memory(err, "CJK seams", ((size_t)1 << TOK_SEAMS_LOG2) / 8);
}

static void find_characters(di_tokenizer *tok)
{
    for (uint32_t cp = TOK_FIRST_CJK; cp < TOK_FIRST_CJK + TOK_N_CJK; cp++) {
        const uint8_t c[TOK_CJK_BYTES] = {
            (uint8_t)(0xE0 | cp >> 12),
            (uint8_t)(0x80 | (cp >> 6 & 63)),
            (uint8_t)(0x80 | (cp & 63)),
        };
        if ((tok_kind(cp) & TOK_CJK) != 0) {
            tok->cjk[cp - TOK_FIRST_CJK] = tok_pieces_find(tok, c, TOK_CJK_BYTES);
        }
    }
}

/* Marks the pairs of characters that stand side by side in a token. */
static void open_seams(di_tokenizer *tok, const uint8_t *s, size_t n)
{
    for (size_t i = 0; i + 2 * TOK_CJK_BYTES <= n; i++) {
        const uint32_t left = tok_cjk_index(s + i);
        const uint32_t right = tok_cjk_index(s + i + TOK_CJK_BYTES);
        if (left < TOK_N_CJK && right < TOK_N_CJK) {
            const uint32_t bit = tok_seam(left, right);
            tok->seams[bit / 64] |= (uint64_t)1 << bit % 64;
        }
    }
}

void tok_cjk_fill(di_tokenizer *tok, const uint8_t *reachable)
{
    if (tok->whole_pieces) {
        find_characters(tok);
    }
    for (int32_t id = 0; id < tok->n_ids; id++) {
        if (reachable[id] == 0) {
            continue;
        }
        size_t n;
        const uint8_t *s = tok_token(tok, id, &n);
        open_seams(tok, s, n);
        if ((tok->flags[id] & DI_TOKEN_FRAGMENT) != 0) {
            const ends e = look_at_ends(s, n);
            /* Without a seam between two characters nothing is parted: such a product lies within one character. */
            if (e.in_cjk && n > e.n_left && n > e.n_right) {
                strike(tok, id, s, n, e);
            }
        }
    }
}
