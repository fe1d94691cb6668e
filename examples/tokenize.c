/* tokenize.c - text to token ids and back: tokenize DIR_OR_TOKENIZER_JSON TEXT. Prints one line a token. */
#include <deepinfer/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_tokens(const di_tokenizer *t, const char *text, di_error *err)
{
    size_t n = 0;
    if (di_tokenizer_encode(t, text, strlen(text), DI_ENCODE_SPECIAL, NULL, 0, &n, err) != DI_OK) { /* only counts */
        return 1;
    }
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (ids == NULL || di_tokenizer_encode(t, text, strlen(text), DI_ENCODE_SPECIAL, ids, n, &n, err) != DI_OK) {
        free(ids);
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        const uint8_t *bytes = di_tokenizer_bytes(t, ids[i], &n_bytes);
        const unsigned flags = di_tokenizer_flags(t, ids[i]);
        printf("%d\t%.*s%s\n", ids[i], (int)n_bytes, (const char *)bytes, (flags & DI_TOKEN_ADDED) != 0 ? "\tadded" : "");
    }
    free(ids);
    return 0;
}

int main(int argc, char **argv)
{
    di_error err = {.message = "usage: tokenize DIR_OR_TOKENIZER_JSON TEXT"};
    di_tokenizer *t = NULL;
    int failed = argc != 3 || di_tokenizer_open(argv[1], &t, &err) != DI_OK;
    failed = failed || print_tokens(t, argv[2], &err) != 0;
    di_tokenizer_close(t);
    if (failed) {
        fprintf(stderr, "%s\n", err.message);
    }
    return failed;
}
