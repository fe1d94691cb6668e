/* Fuzzes tokenizer.json (tokenizer/tok_json.c, tok_build.c). A file that is accepted must work: every byte encodes, and what is
 * encoded decodes to itself. */
#include "core/arith.h"
#include "tokenizer/tok_int.h"

#include <stdlib.h>
#include <string.h>

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

static void check_round_trip(const di_tokenizer *tok, const char *text, size_t n, unsigned flags)
{
    size_t n_ids = 0;
    size_t n_text = 0;
    int32_t *const ids = ar_calloc(n, sizeof *ids);
    char *const back = ar_calloc(n, 1);
    require(ids != NULL && back != NULL);
    require(di_tokenizer_encode(tok, text, n, flags, ids, n, &n_ids, NULL) == DI_OK && n_ids <= n);
    for (size_t i = 0; i < n_ids; i++) {
        require(ids[i] >= 0 && ids[i] < di_tokenizer_vocab_size(tok));
    }
    require(di_tokenizer_decode(tok, ids, n_ids, 0, back, n, &n_text, NULL) == DI_OK);
    require(n_text == n && memcmp(back, text, n) == 0);
    free(ids);
    free(back);
}

static void check_tokenizer(const di_tokenizer *tok)
{
    static const char text[] = "Hello, world! 12345  \r\n\tthe   therein \xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82 "
                               "\xF0\x9F\x91\xA9\xE2\x80\x8D<\xEF\xBD\x9C""a\xEF\xBD\x9C> \xC3\xA9""e\xCC\x81 x_y-z";
    check_round_trip(tok, text, sizeof text - 1, 0);
    check_round_trip(tok, text, sizeof text - 1, DI_ENCODE_SPECIAL);
    for (int32_t id = 0; id < di_tokenizer_vocab_size(tok); id++) {
        size_t n;
        const uint8_t *const bytes = di_tokenizer_bytes(tok, id, &n);
        require(bytes != NULL && n <= tok->max_token_bytes);
        if ((di_tokenizer_flags(tok, id) & DI_TOKEN_FRAGMENT) == 0) {
            check_round_trip(tok, (const char *)bytes, n, DI_ENCODE_SPECIAL);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tok_source source;
    di_tokenizer *tok = NULL;
    di_error err = {.message = ""};
    if (tok_source_read((const char *)data, size, "fuzz", &source, &err) != DI_OK) {
        require(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
        return 0;
    }
    if (tok_build(&source, &tok, &err) == DI_OK) {
        check_tokenizer(tok);
        di_tokenizer_close(tok);
    } else {
        require(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
    }
    tok_source_fini(&source);
    return 0;
}
