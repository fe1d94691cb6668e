/* tok_open.c - opening and closing a tokenizer, and the look-ups of single tokens. */
#include "tokenizer/tok_int.h"

#include "core/err.h"
#include "core/file.h"

#include <stdlib.h>

static di_status open_file(const char *path, di_tokenizer **out, di_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    file_map map;
    di_status status = file_map_open(path, &map, err);
    if (status != DI_OK) {
        return status;
    }
    tok_source source;
    status = tok_source_read((const char *)map.data, map.size, name, &source, err);
    file_map_close(&map);
    if (status != DI_OK) {
        return status;
    }
    status = tok_build(&source, out, err);
    tok_source_fini(&source);
    if (status != DI_OK) {
        err_prefix(err, "%s", name);
    }
    return status;
}

di_status di_tokenizer_open(const char *path, di_tokenizer **out, di_error *err)
{
    if (!file_is_dir(path)) {
        return open_file(path, out, err);
    }
    char *joined = file_path_join(path, "tokenizer.json");
    if (joined == NULL) {
        return err_memory(err, "path", strlen(path));
    }
    const di_status status = open_file(joined, out, err);
    free(joined);
    return status;
}

void di_tokenizer_close(di_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    while (tokenizer->idle != NULL) {
        tok_scratch *next = tokenizer->idle->next;
        tok_scratch_free(tokenizer->idle);
        tokenizer->idle = next;
    }
    (void)pthread_mutex_destroy(&tokenizer->lock);
    tok_added_fini(&tokenizer->added);
    free(tokenizer->pairs.slots);
    free(tokenizer->pairs.filter);
    free(tokenizer->words.slots);
    free(tokenizer->pieces.slots);
    free(tokenizer->cjk);
    free(tokenizer->byte_pair);
    free(tokenizer->offset);
    free(tokenizer->bytes);
    free(tokenizer->flags);
    free(tokenizer);
}

int32_t di_tokenizer_vocab_size(const di_tokenizer *tokenizer)
{
    return tokenizer->n_ids;
}

const uint8_t *di_tokenizer_bytes(const di_tokenizer *tokenizer, int32_t id, size_t *n)
{
    if (id < 0 || id >= tokenizer->n_ids) {
        *n = 0;
        return NULL;
    }
    return tok_token(tokenizer, id, n);
}

unsigned di_tokenizer_flags(const di_tokenizer *tokenizer, int32_t id)
{
    return id < 0 || id >= tokenizer->n_ids ? 0 : tokenizer->flags[id] & ~TOK_LITERAL;
}

int32_t di_tokenizer_find(const di_tokenizer *tokenizer, const char *bytes, size_t n)
{
    if (n == 0 || n > tokenizer->max_token_bytes) {
        return -1;
    }
    const int32_t id = tok_added_find(&tokenizer->added, (const uint8_t *)bytes, n);
    return id != TOK_NONE ? id : tok_pieces_find(tokenizer, (const uint8_t *)bytes, n);
}
