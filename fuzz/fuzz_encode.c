/* Fuzzes encoding and decoding with the demo model's tokenizer (tokenizer/tok_encode.c, tok_pre.c, tok_bpe.c, tok_long.c, tok_cut.c,
 * tok_decode.c). The first byte of an input chooses the flags and how often the rest is repeated, so that long pieces are met.
 *
 * Ids decode to the text (with U+FFFD for what is not UTF-8), streamed or at once; both merge loops agree on every piece;
 * the text may be parted wherever tok_is_cut says. */
#include "core/arith.h"
#include "core/utf8.h"
#include "tokenizer/tok_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES 4096u

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

/* Opened by the first input and kept: the only state, and never changed. */
static const di_tokenizer *demo(void)
{
    static di_tokenizer *tok;
    if (tok == NULL) {
        const char *const source = getenv("DI_SOURCE_DIR");
        char path[4096];
        di_error err;
        (void)snprintf(path, sizeof path, "%s/models/demo", source != NULL ? source : ".");
        if (di_tokenizer_open(path, &tok, &err) != DI_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
    }
    return tok;
}

static int32_t *encode(const di_tokenizer *tok, const char *text, size_t n, unsigned flags, size_t *n_ids)
{
    int32_t *const ids = ar_calloc(3 * n, sizeof *ids);
    require(ids != NULL && di_tokenizer_encode(tok, text, n, flags, ids, 3 * n, n_ids, NULL) == DI_OK && *n_ids <= 3 * n);
    return ids;
}

static void check_stream(const di_tokenizer *tok, const int32_t *ids, size_t n_ids, const char *text, size_t n)
{
    di_detokenizer *stream = NULL;
    size_t at = 0;
    require(di_detokenizer_new(tok, 0, &stream, NULL) == DI_OK);
    for (size_t i = 0; i <= n_ids; i++) {
        const char *part;
        size_t size;
        const di_status status = i < n_ids ? di_detokenizer_push(stream, ids[i], &part, &size, NULL)
                                           : di_detokenizer_finish(stream, &part, &size, NULL);
        require(status == DI_OK && size <= n - at && memcmp(part, text + at, size) == 0);
        at += size;
    }
    require(at == n);
    di_detokenizer_free(stream);
}

static void check_cuts(const di_tokenizer *tok, const char *text, size_t n, const int32_t *ids, size_t n_ids)
{
    const size_t step = n < 64 ? 1 : n / 16;
    for (size_t i = 0; i < n; i += step) {
        if (((uint8_t)text[i] & 0xC0) == 0x80 || !tok_is_cut((const uint8_t *)text, n, i)) {
            continue;
        }
        size_t n_left;
        size_t n_right;
        int32_t *const left = encode(tok, text, i, 0, &n_left);
        int32_t *const right = encode(tok, text + i, n - i, 0, &n_right);
        require(n_left + n_right == n_ids && memcmp(left, ids, n_left * sizeof *ids) == 0);
        require(memcmp(right, ids + n_left, n_right * sizeof *ids) == 0);
        free(left);
        free(right);
    }
}

static void check_pieces(const di_tokenizer *tok, const uint8_t *s, size_t n)
{
    tok_scratch *const scratch = tok_scratch_take(tok);
    require(scratch != NULL);
    for (size_t i = 0; i < n;) {
        const size_t end = tok_piece_end(s, n, i);
        int32_t ids[TOK_SHORT_BYTES];
        int32_t again[TOK_SHORT_BYTES];
        require(end > i && end <= n);
        if (end - i <= TOK_SHORT_BYTES) {
            tok_out out = {.ids = again, .capacity = TOK_SHORT_BYTES};
            const size_t count = tok_short_merge(tok, s + i, end - i, ids);
            require(tok_long_merge(tok, scratch, s + i, end - i, &out) && out.n == count);
            require(memcmp(ids, again, count * sizeof *ids) == 0);
        }
        i = end;
    }
    tok_scratch_give(tok, scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const di_tokenizer *const tok = demo();
    const unsigned flags = data[0] % 2 != 0 ? DI_ENCODE_SPECIAL : 0;
    const size_t unit = size - 1 < MAX_BYTES ? size - 1 : MAX_BYTES;
    const size_t times = (size_t)(data[0] / 2u) + 1;
    const size_t n = unit * times <= MAX_BYTES ? unit * times : unit;
    char text[MAX_BYTES];
    char back[3 * MAX_BYTES];
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)data[1 + i % unit];
    }
    size_t n_ids;
    size_t n_back;
    int32_t *const ids = encode(tok, text, n, flags, &n_ids);
    require(di_tokenizer_decode(tok, ids, n_ids, 0, back, sizeof back, &n_back, NULL) == DI_OK && n_back <= sizeof back);
    require(utf8_valid_prefix((const uint8_t *)back, n_back) == n_back);
    if (utf8_valid_prefix((const uint8_t *)text, n) == n) {
        require(n_back == n && memcmp(back, text, n) == 0 && n_ids <= n);
        check_pieces(tok, (const uint8_t *)text, n);
        if (flags == 0) {
            check_cuts(tok, text, n, ids, n_ids);
        }
    }
    check_stream(tok, ids, n_ids, back, n_back);
    free(ids);
    return 0;
}
