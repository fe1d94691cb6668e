/* deepinfer/tokenizer.h - bytes <-> token ids, exactly as the released tokenizer.json does (spec: tokenizer.md).
 *
 * A di_tokenizer is immutable after opening: any number of threads may use one at once. A di_detokenizer belongs to one thread
 * at a time; the tokenizer must outlive it. */
#ifndef DEEPINFER_TOKENIZER_H
#define DEEPINFER_TOKENIZER_H

#include <deepinfer/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_tokenizer di_tokenizer;
typedef struct di_detokenizer di_detokenizer;

/* Opens a tokenizer.json file, or the one inside a directory. Pipelines that are not implemented exactly are refused with an
 * error that names the field. Errors: DI_E_IO, DI_E_FORMAT, DI_E_UNSUPPORTED, DI_E_MEMORY. */
DI_API di_status di_tokenizer_open(const char *path, di_tokenizer **out, di_error *err);

typedef struct di_tokenizer_options {
    /* Folder of the compiled cache, which makes opening a large tokenizer.json again take milliseconds. NULL is the default,
     * which files of less than 1 MiB do not use: $DI_CACHE_DIR, else $XDG_CACHE_HOME/deepinfer, else ~/.cache/deepinfer.
     * "" is no cache. A cache that can't be read or written is never an error. */
    const char *cache_dir;
} di_tokenizer_options;

/* The same with options, which may be NULL. */
DI_API di_status di_tokenizer_open_with(const char *path, const di_tokenizer_options *options, di_tokenizer **out, di_error *err);
DI_API void di_tokenizer_close(di_tokenizer *tokenizer);

/* Number of ids, added tokens included: valid ids are 0..n-1. */
DI_API int32_t di_tokenizer_vocab_size(const di_tokenizer *tokenizer);

enum {
    DI_ENCODE_SPECIAL = 1 /* recognise added tokens (role markers, think markers ...) written out in the text */
};

/* Encodes n bytes. Invalid UTF-8 is read as U+FFFD per maximal invalid subpart. Writes at most `capacity` ids and stores the number
 * that the whole text needs in *n_ids, which may exceed capacity (ids may be NULL when capacity is 0; n never needs more than
 * n ids for valid UTF-8, 3n in general). Places behind the last id written, up to capacity, may be overwritten.
 * Errors: DI_E_MEMORY, DI_E_LIMIT (over 1 GiB of text). */
DI_API di_status di_tokenizer_encode(const di_tokenizer *tokenizer, const char *text, size_t n, unsigned flags, int32_t *ids,
                                     size_t capacity, size_t *n_ids, di_error *err);

/* The same ids by up to n_threads threads (0 = one for each processor, at most 64), started and ended within the call. Pays from
 * about a megabyte on; below, and for text that is not valid UTF-8, the calling thread works alone. */
DI_API di_status di_tokenizer_encode_parallel(const di_tokenizer *tokenizer, const char *text, size_t n, unsigned flags,
                                              int n_threads, int32_t *ids, size_t capacity, size_t *n_ids, di_error *err);

enum {
    DI_DECODE_SKIP_SPECIAL = 1 /* leave out tokens whose `special` flag is set */
};

/* Decodes to UTF-8 (invalid sequences become U+FFFD; ids outside the table give nothing). Writes at most `capacity` bytes, no NUL,
 * and stores the full length in *n_text. Bytes behind the text, up to capacity, may be overwritten. */
DI_API di_status di_tokenizer_decode(const di_tokenizer *tokenizer, const int32_t *ids, size_t n, unsigned flags, char *text,
                                     size_t capacity, size_t *n_text, di_error *err);

/* The raw bytes of one id (not necessarily whole characters). NULL and 0 for an id outside the table. */
DI_API const uint8_t *di_tokenizer_bytes(const di_tokenizer *tokenizer, int32_t id, size_t *n);

enum {
    DI_TOKEN_ADDED = 1,   /* listed in added_tokens */
    DI_TOKEN_SPECIAL = 2, /* its `special` flag is set */
    DI_TOKEN_FRAGMENT = 4 /* its bytes alone are not valid UTF-8 */
};
DI_API unsigned di_tokenizer_flags(const di_tokenizer *tokenizer, int32_t id);

/* Id of an added token by its spelling, or of a base token by its bytes; -1 when there is none. */
DI_API int32_t di_tokenizer_find(const di_tokenizer *tokenizer, const char *bytes, size_t n);

/* Streaming decode: what is pushed out is never revised and never ends inside a character. */
DI_API di_status di_detokenizer_new(const di_tokenizer *tokenizer, unsigned flags, di_detokenizer **out, di_error *err);
DI_API void di_detokenizer_free(di_detokenizer *stream);

/* Adds one id; *text is borrowed until the next call and may be empty. */
DI_API di_status di_detokenizer_push(di_detokenizer *stream, int32_t id, const char **text, size_t *n, di_error *err);

/* Ends the stream: an incomplete character becomes one U+FFFD. The stream may then be used for another text. */
DI_API di_status di_detokenizer_finish(di_detokenizer *stream, const char **text, size_t *n, di_error *err);

#ifdef __cplusplus
}
#endif
#endif
