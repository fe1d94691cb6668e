/* tok_build.c - makes a di_tokenizer out of what tokenizer.json says, and checks what the fast paths rely on.
 *
 * Of the three properties of tokenizer.md 1:
 *  1  products rise with the merge index and lie above all byte tokens. Required: priority is then the product's id, and no
 *     rank table exists. Another file is refused.
 *  2  every product encodes to itself. Checked; where it does not hold, pieces are not looked up as whole tokens.
 *  3  needs no check here, because merges are keyed by pair of ids. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/utf8.h"

#include <stdlib.h>

/* Where the spelling of each id comes from: 0 = nowhere, else index + 1 into vocab or added. */
typedef struct origin {
    uint32_t vocab;
    uint32_t added;
} origin;

typedef struct build {
    const tok_source *source;
    di_tokenizer *tok;
    origin *origins; /* [n_ids] */
    uint8_t *reachable; /* [n_ids] a byte token or a product */
} build;

static const uint8_t *spelling(const build *b, tok_slice slice)
{
    return (const uint8_t *)b->source->text + slice.offset;
}

static int32_t highest_id(const tok_source *source)
{
    int32_t highest = TOK_NONE;
    for (size_t i = 0; i < source->n_vocab; i++) {
        highest = source->vocab[i].id > highest ? source->vocab[i].id : highest;
    }
    for (size_t i = 0; i < source->n_added; i++) {
        highest = source->added[i].id > highest ? source->added[i].id : highest;
    }
    return highest;
}

static di_status note_origins(build *b, di_error *err)
{
    const tok_source *source = b->source;
    for (size_t i = 0; i < source->n_vocab; i++) {
        origin *o = &b->origins[source->vocab[i].id];
        if (o->vocab != 0) {
            return err_set(err, DI_E_FORMAT, "model.vocab: id %d is given to two entries", source->vocab[i].id);
        }
        o->vocab = (uint32_t)i + 1;
    }
    for (size_t i = 0; i < source->n_added; i++) {
        const tok_source_entry *entry = &source->added[i];
        origin *o = &b->origins[entry->id];
        if (o->added != 0) {
            return err_set(err, DI_E_FORMAT, "added_tokens: id %d is given to two entries", entry->id);
        }
        if (entry->spelling.size == 0) {
            return err_set(err, DI_E_FORMAT, "added_tokens: id %d has an empty content", entry->id);
        }
        o->added = (uint32_t)i + 1;
        if (o->vocab == 0) {
            continue;
        }
        const tok_slice base = source->vocab[o->vocab - 1].spelling;
        if (base.size != entry->spelling.size || memcmp(spelling(b, base), spelling(b, entry->spelling), base.size) != 0) {
            return err_set(err, DI_E_FORMAT, "added_tokens: id %d has another spelling in model.vocab", entry->id);
        }
    }
    for (int32_t id = 0; id < b->tok->n_ids; id++) {
        if (b->origins[id].vocab == 0 && b->origins[id].added == 0) {
            return err_set(err, DI_E_UNSUPPORTED, "model.vocab: id %d is missing; ids must be without gaps", id);
        }
    }
    return DI_OK;
}

/* Spelling, bytes and flags of one id. */
static di_status fill_token(build *b, int32_t id, di_error *err)
{
    di_tokenizer *tok = b->tok;
    const origin o = b->origins[id];
    uint8_t *out = tok->bytes + tok->offset[id];
    size_t size;
    unsigned flags = 0;
    if (o.added != 0) {
        const tok_source_entry *entry = &b->source->added[o.added - 1];
        size = entry->spelling.size;
        memcpy(out, spelling(b, entry->spelling), size);
        flags = TOK_LITERAL | DI_TOKEN_ADDED | (entry->special ? DI_TOKEN_SPECIAL : 0u);
    } else {
        const tok_slice slice = b->source->vocab[o.vocab - 1].spelling;
        if (!tok_alphabet_decode(spelling(b, slice), slice.size, out, &size)) {
            size = slice.size;
            memcpy(out, spelling(b, slice), size);
            flags = TOK_LITERAL;
        }
    }
    if (size == 0 || size > TOK_MAX_TOKEN_BYTES) {
        return err_set(err, DI_E_UNSUPPORTED, "model.vocab: the spelling of id %d has %zu bytes; 1 to %u are implemented", id,
                       size, TOK_MAX_TOKEN_BYTES);
    }
    tok->offset[id + 1] = tok->offset[id] + (uint32_t)size;
    flags |= utf8_valid_prefix(out, size) == size ? 0u : DI_TOKEN_FRAGMENT;
    tok->flags[id] = (uint8_t)flags;
    tok->max_token_bytes = size > tok->max_token_bytes ? size : tok->max_token_bytes;
    return DI_OK;
}

static di_status fill_tokens(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    const size_t n = (size_t)tok->n_ids;
    tok->offset = ar_calloc(n + 1, sizeof *tok->offset);
    tok->flags = ar_calloc(n, sizeof *tok->flags);
    /* Bytes are never longer than their spelling. */
    tok->bytes = ar_calloc(b->source->text_size + TOK_PAD, 1);
    if (tok->offset == NULL || tok->flags == NULL || tok->bytes == NULL) {
        return err_memory(err, "token table", b->source->text_size + 5 * n);
    }
    for (int32_t id = 0; id < tok->n_ids; id++) {
        const di_status status = fill_token(b, id, err);
        if (status != DI_OK) {
            return status;
        }
    }
    return DI_OK;
}

static di_status fill_bytes(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    for (int byte = 0; byte < 256; byte++) {
        tok->byte_id[byte] = TOK_NONE;
    }
    for (int32_t id = 0; id < tok->n_ids; id++) {
        size_t size;
        const uint8_t *bytes = tok_token(tok, id, &size);
        if (size == 1 && (tok->flags[id] & TOK_LITERAL) == 0) {
            tok->byte_id[bytes[0]] = id;
            b->reachable[id] = 1;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        if (tok->byte_id[byte] == TOK_NONE) {
            return err_set(err, DI_E_UNSUPPORTED, "model.vocab: no token for the single byte 0x%02X", byte);
        }
    }
    return DI_OK;
}

static bool in_alphabet(const di_tokenizer *tok, int32_t id)
{
    return (tok->flags[id] & TOK_LITERAL) == 0;
}

/* The piece table first holds all base tokens in the alphabet, by which merges are resolved. A base token that is an added
 * token too is literal, so that a merge that makes one is refused below: plain text must not give it. */
static di_status fill_vocab_pieces(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    const di_status status = tok_pieces_init(&tok->pieces, (size_t)tok->n_ids, err);
    if (status != DI_OK) {
        return status;
    }
    for (int32_t id = 0; id < tok->n_ids; id++) {
        if (in_alphabet(tok, id) && !tok_pieces_add(tok, id)) {
            return err_set(err, DI_E_FORMAT, "model.vocab: id %d has the spelling of another entry", id);
        }
    }
    return DI_OK;
}

/* Id of one half of a merge; its bytes are appended to `bytes`. */
static int32_t resolve(const build *b, tok_slice slice, uint8_t *bytes, size_t *size)
{
    if (slice.size > 2 * TOK_MAX_TOKEN_BYTES || !tok_alphabet_decode(spelling(b, slice), slice.size, bytes, size)) {
        return TOK_NONE;
    }
    return tok_pieces_find(b->tok, bytes, *size);
}

/* The token with these bytes; nearly always the one after the product before. */
static int32_t find_product(const di_tokenizer *tok, int32_t last, const uint8_t *s, size_t n)
{
    if (last + 1 < tok->n_ids && in_alphabet(tok, last + 1)) {
        size_t size;
        const uint8_t *bytes = tok_token(tok, last + 1, &size);
        if (size == n && memcmp(bytes, s, n) == 0) {
            return last + 1;
        }
    }
    return tok_pieces_find(tok, s, n);
}

static di_status fill_merges(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    di_status status = tok_pairs_init(&tok->pairs, b->source->n_merges, err);
    uint8_t *bytes = malloc(4 * (size_t)TOK_MAX_TOKEN_BYTES);
    if (status == DI_OK && bytes == NULL) {
        status = err_memory(err, "merge", 4 * (size_t)TOK_MAX_TOKEN_BYTES);
    }
    int32_t last = TOK_NONE;
    for (int byte = 0; byte < 256; byte++) {
        last = tok->byte_id[byte] > last ? tok->byte_id[byte] : last;
    }
    for (size_t i = 0; status == DI_OK && i < b->source->n_merges; i++) {
        size_t left_size = 0;
        size_t right_size = 0;
        const int32_t left = resolve(b, b->source->merges[i].left, bytes, &left_size);
        const int32_t right = resolve(b, b->source->merges[i].right, bytes + left_size, &right_size);
        const int32_t product =
            left == TOK_NONE || right == TOK_NONE ? TOK_NONE : find_product(tok, last, bytes, left_size + right_size);
        if (product == TOK_NONE) {
            status = err_set(err, DI_E_FORMAT, "model.merges: a part or the product of merge %zu is not in model.vocab", i);
        } else if (product <= last) {
            status = err_set(err, DI_E_UNSUPPORTED,
                             "model.merges: merge %zu makes id %d after id %d; ids must rise with the merges", i, product, last);
        } else if (!tok_pairs_add(&tok->pairs, left, right, product)) {
            status = err_set(err, DI_E_FORMAT, "model.merges: merge %zu repeats an earlier pair", i);
        } else {
            b->reachable[product] = 1;
            last = product;
        }
    }
    free(bytes);
    return status;
}

/* Encoding a piece may only find what merging can reach: entries that no merge makes leave the table. The released files have
 * none, so that the table mostly stays as it is. */
static di_status keep_reachable(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    bool all = true;
    for (int32_t id = 0; all && id < tok->n_ids; id++) {
        all = b->reachable[id] != 0 || !in_alphabet(tok, id);
    }
    if (!all) {
        memset(tok->pieces.slots, 0, sizeof *tok->pieces.slots << (64 - tok->pieces.shift));
    }
    for (int32_t id = 0; !all && id < tok->n_ids; id++) {
        if (b->reachable[id] != 0 && !tok_pieces_add(tok, id)) {
            return err_set(err, DI_E_INTERNAL, "token %d twice in the piece table", id);
        }
    }
    return DI_OK;
}

static di_status fill_words(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    const di_status status = tok_words_init(&tok->words, (size_t)tok->n_ids, err);
    for (int32_t id = 0; status == DI_OK && id < tok->n_ids; id++) {
        size_t n;
        const uint8_t *s = tok_token(tok, id, &n);
        if (b->reachable[id] != 0 && n <= TOK_WORD_BYTES) {
            tok_words_add(&tok->words, s, n, id);
        }
    }
    return status;
}

static di_status fill_byte_pairs(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    tok->byte_pair = malloc(256 * 256 * sizeof *tok->byte_pair);
    if (tok->byte_pair == NULL) {
        return err_memory(err, "byte pairs", 256 * 256 * sizeof *tok->byte_pair);
    }
    for (size_t i = 0; i < 256 * 256; i++) {
        tok->byte_pair[i] = tok_pairs_find(&tok->pairs, tok->byte_id[i >> 8], tok->byte_id[i & 255]);
    }
    return DI_OK;
}

/* Before the products are checked no character stands for its bytes. */
static di_status clear_cjk(build *b, di_error *err)
{
    return tok_cjk_init(b->tok, err);
}

static di_status fill_cjk(build *b, di_error *err)
{
    (void)err;
    tok_cjk_fill(b->tok, b->reachable);
    return DI_OK;
}

/* Property 2. Merges of short tokens take the array loop; a longer token takes the other one. */
static di_status check_products(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    tok_scratch *scratch = NULL;
    di_status status = DI_OK;
    tok->whole_pieces = true;
    for (int32_t id = 0; tok->whole_pieces && id < tok->n_ids; id++) {
        if (b->reachable[id] == 0) {
            continue;
        }
        size_t size;
        const uint8_t *bytes = tok_token(tok, id, &size);
        int32_t ids[TOK_SHORT_BYTES];
        tok_out out = {.ids = ids, .capacity = 1};
        if (size <= TOK_SHORT_BYTES) {
            out.n = tok_short_merge(tok, bytes, size, ids);
        } else {
            scratch = scratch != NULL ? scratch : tok_scratch_new();
            if (scratch == NULL || !tok_long_merge(tok, scratch, bytes, size, &out)) {
                status = err_memory(err, "merge", size);
                break;
            }
        }
        tok->whole_pieces = out.n == 1 && ids[0] == id;
    }
    tok_scratch_free(scratch);
    return status;
}

static di_status fill_added(build *b, di_error *err)
{
    di_tokenizer *tok = b->tok;
    di_status status = tok_added_init(&tok->added, err);
    for (size_t i = 0; status == DI_OK && i < b->source->n_added; i++) {
        const tok_source_entry *entry = &b->source->added[i];
        status = tok_added_add(&tok->added, spelling(b, entry->spelling), entry->spelling.size, entry->id,
                               entry->normalized ? 1 : 0, err);
    }
    return status;
}

di_status tok_build(const tok_source *source, di_tokenizer **out, di_error *err)
{
    build b = {.source = source};
    di_status status = DI_OK;
    b.tok = calloc(1, sizeof *b.tok);
    if (b.tok == NULL) {
        return err_memory(err, "tokenizer", sizeof *b.tok);
    }
    (void)pthread_mutex_init(&b.tok->lock, NULL);
    b.tok->cut = tok_cut_variant(0);
    b.tok->n_ids = highest_id(source) + 1;
    b.tok->n_base = (int32_t)source->n_vocab;
    b.origins = ar_calloc((size_t)b.tok->n_ids, sizeof *b.origins);
    b.reachable = ar_calloc((size_t)b.tok->n_ids, sizeof *b.reachable);
    if (b.origins == NULL || b.reachable == NULL) {
        status = err_memory(err, "token table", (size_t)b.tok->n_ids * sizeof *b.origins);
        goto out;
    }
    di_status (*const steps[])(build *, di_error *) = {
        note_origins,    fill_tokens,     fill_bytes,      fill_vocab_pieces, fill_merges,
        keep_reachable,  fill_words,      fill_byte_pairs, clear_cjk,       check_products,
        fill_cjk,        fill_added,
    };
    for (size_t i = 0; status == DI_OK && i < sizeof steps / sizeof *steps; i++) {
        status = steps[i](&b, err);
    }
out:
    free(b.origins);
    free(b.reachable);
    if (status == DI_OK) {
        *out = b.tok;
    } else {
        di_tokenizer_close(b.tok);
    }
    return status;
}
