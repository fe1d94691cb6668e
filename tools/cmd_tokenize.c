/* cmd_tokenize.c - `deepinfer tokenize`: text to token ids and back, as the model's tokenizer does it.
 *
 * One run has one input (--text, a file, or standard input) and one form of output: ids, a table of tokens, a number, text, or
 * JSON. --lines is the form for other programs: one JSON value a line in, one a line out, and the tokenizer is loaded once. */
#include "open.h"
#include "options.h"
#include "tools.h"

#include "core/core.h"

#include <deepinfer/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUT_BYTES ((size_t)1 << 30)
#define MAX_OUTPUT_BYTES ((size_t)16 << 30)
#define FLUSH_BYTES ((size_t)1 << 20)

typedef struct job {
    const char *model;
    const char *tokenizer;
    const char *text;
    bool special;
    bool skip_special;
    bool decode;
    bool count;
    bool pieces;
    bool json;
    bool lines;
    di_tokenizer *tok;
    buf out; /* collected output */
} job;

/* Writes what was collected to standard output. */
static di_status flush(job *j, di_error *err)
{
    if (j->out.failed) {
        return err_memory(err, "output", j->out.size);
    }
    if (j->out.size != 0 && fwrite(j->out.data, 1, j->out.size, stdout) != j->out.size) {
        return err_set(err, DI_E_IO, "standard output: write failed");
    }
    buf_clear(&j->out);
    return DI_OK;
}

/* Ids of a text, malloc'ed. */
static di_status encode(const job *j, const char *text, size_t n, int32_t **ids, size_t *n_ids, di_error *err)
{
    const unsigned flags = j->special ? DI_ENCODE_SPECIAL : 0;
    size_t capacity = n + 1;
    for (;;) {
        int32_t *array = ar_calloc(capacity, sizeof *array);
        if (array == NULL) {
            return err_memory(err, "token ids", capacity * sizeof *array);
        }
        const di_status status = di_tokenizer_encode(j->tok, text, n, flags, array, capacity, n_ids, err);
        if (status == DI_OK && *n_ids <= capacity) {
            *ids = array;
            return DI_OK;
        }
        free(array);
        if (status != DI_OK) {
            return status;
        }
        capacity = *n_ids; /* invalid UTF-8 may need more ids than it has bytes */
    }
}

/* Text of ids, malloc'ed. */
static di_status decode(const job *j, const int32_t *ids, size_t n, char **text, size_t *n_text, di_error *err)
{
    const unsigned flags = j->skip_special ? DI_DECODE_SKIP_SPECIAL : 0;
    di_status status = di_tokenizer_decode(j->tok, ids, n, flags, NULL, 0, n_text, err);
    if (status != DI_OK) {
        return status;
    }
    char *out = malloc(*n_text + 1);
    if (out == NULL) {
        return err_memory(err, "text", *n_text);
    }
    status = di_tokenizer_decode(j->tok, ids, n, flags, out, *n_text, n_text, err);
    if (status != DI_OK) {
        free(out);
        return status;
    }
    *text = out;
    return DI_OK;
}

/* snprintf is too slow for millions of ids. */
static void put_id(buf *out, int32_t id)
{
    char digits[12];
    size_t at = sizeof digits;
    uint32_t rest = (uint32_t)id;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    (void)buf_append(out, digits + at, sizeof digits - at);
}

static void put_ids(buf *out, const int32_t *ids, size_t n, const char *separator)
{
    for (size_t i = 0; i < n; i++) {
        if (i != 0) {
            (void)buf_puts(out, separator);
        }
        put_id(out, ids[i]);
    }
}

static const char *kind_of(unsigned flags)
{
    if ((flags & DI_TOKEN_SPECIAL) != 0) {
        return "special";
    }
    if ((flags & DI_TOKEN_ADDED) != 0) {
        return "added";
    }
    return (flags & DI_TOKEN_FRAGMENT) != 0 ? "fragment" : "";
}

static void put_table(job *j, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t size;
        const uint8_t *bytes = di_tokenizer_bytes(j->tok, ids[i], &size);
        (void)buf_printf(&j->out, "%8d  %-8s  ", ids[i], kind_of(di_tokenizer_flags(j->tok, ids[i])));
        (void)buf_json_string(&j->out, (const char *)bytes, size);
        for (size_t k = 0; (di_tokenizer_flags(j->tok, ids[i]) & DI_TOKEN_FRAGMENT) != 0 && k < size; k++) {
            (void)buf_printf(&j->out, " %02x", bytes[k]);
        }
        (void)buf_puts(&j->out, "\n");
    }
}

static void put_object(job *j, const int32_t *ids, size_t n)
{
    (void)buf_printf(&j->out, "{\"n_tokens\":%zu", n);
    if (!j->count) {
        (void)buf_puts(&j->out, ",\"ids\":[");
        put_ids(&j->out, ids, n, ",");
        (void)buf_puts(&j->out, "]");
    }
    for (size_t i = 0; j->pieces && i < n; i++) {
        size_t size;
        const uint8_t *bytes = di_tokenizer_bytes(j->tok, ids[i], &size);
        (void)buf_puts(&j->out, i == 0 ? ",\"pieces\":[{\"text\":" : ",{\"text\":");
        (void)buf_json_string(&j->out, (const char *)bytes, size);
        (void)buf_puts(&j->out, ",\"bytes\":[");
        for (size_t k = 0; k < size; k++) {
            (void)buf_printf(&j->out, k == 0 ? "%u" : ",%u", bytes[k]);
        }
        (void)buf_printf(&j->out, "],\"kind\":\"%s\"}%s", kind_of(di_tokenizer_flags(j->tok, ids[i])), i + 1 == n ? "]" : "");
    }
    (void)buf_puts(&j->out, "}\n");
}

static di_status run_encode(job *j, const char *text, size_t n, di_error *err)
{
    int32_t *ids = NULL;
    size_t n_ids;
    const di_status status = encode(j, text, n, &ids, &n_ids, err);
    if (status != DI_OK) {
        return status;
    }
    if (j->json) {
        put_object(j, ids, n_ids);
    } else if (j->count) {
        (void)buf_printf(&j->out, "%zu\n", n_ids);
    } else if (j->pieces) {
        put_table(j, ids, n_ids);
    } else {
        put_ids(&j->out, ids, n_ids, " ");
        (void)buf_puts(&j->out, "\n");
    }
    free(ids);
    return DI_OK;
}

static di_status put_decoded(job *j, const int32_t *ids, size_t n, bool as_json, di_error *err)
{
    char *text = NULL;
    size_t n_text;
    const di_status status = decode(j, ids, n, &text, &n_text, err);
    if (status != DI_OK) {
        return status;
    }
    if (as_json) {
        (void)buf_json_string(&j->out, text, n_text);
    } else {
        (void)buf_append(&j->out, text, n_text);
    }
    free(text);
    return DI_OK;
}

static di_status run_decode(job *j, const char *text, di_error *err)
{
    int32_t *ids = NULL;
    size_t n_ids;
    di_status status = cli_read_ids(text, &ids, &n_ids, err);
    if (status != DI_OK) {
        return status;
    }
    (void)buf_puts(&j->out, j->json ? "{\"text\":" : "");
    status = put_decoded(j, ids, n_ids, j->json, err);
    (void)buf_puts(&j->out, j->json ? "}\n" : "");
    free(ids);
    return status;
}

/* A JSON array of ids -> a JSON string. */
static di_status decode_line(job *j, const js_value *value, di_error *err)
{
    if (js_kind_of(value) != JS_ARRAY) {
        return err_set(err, DI_E_FORMAT, "expected an array of ids");
    }
    const size_t n = js_length(value);
    int32_t *ids = ar_calloc(n, sizeof *ids);
    if (ids == NULL) {
        return err_memory(err, "token ids", n * sizeof *ids);
    }
    for (size_t i = 0; i < n; i++) {
        const int64_t id = js_int(js_at(value, i));
        ids[i] = id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
    }
    const di_status status = put_decoded(j, ids, n, true, err);
    free(ids);
    return status;
}

/* A JSON string -> a JSON array of ids. */
static di_status encode_line(job *j, const js_value *value, di_error *err)
{
    if (js_kind_of(value) != JS_STRING) {
        return err_set(err, DI_E_FORMAT, "expected a string");
    }
    size_t n;
    size_t n_ids;
    int32_t *ids = NULL;
    const char *text = js_string(value, &n);
    const di_status status = encode(j, text, n, &ids, &n_ids, err);
    if (status == DI_OK) {
        (void)buf_puts(&j->out, "[");
        put_ids(&j->out, ids, n_ids, ",");
        (void)buf_puts(&j->out, "]");
        free(ids);
    }
    return status;
}

static di_status run_lines(job *j, const char *text, size_t n, di_error *err)
{
    size_t line = 0;
    for (const char *at = text; at < text + n;) {
        const char *end = memchr(at, '\n', (size_t)(text + n - at));
        end = end != NULL ? end : text + n;
        line++;
        js_doc *doc = NULL;
        di_status status = js_parse(at, (size_t)(end - at), "input", NULL, &doc, err);
        if (status == DI_OK) {
            status = (j->decode ? decode_line : encode_line)(j, js_root(doc), err);
            js_free(doc);
        }
        (void)buf_puts(&j->out, "\n");
        if (status == DI_OK && j->out.size >= FLUSH_BYTES) {
            status = flush(j, err);
        }
        if (status != DI_OK) {
            err_prefix(err, "line %zu", line);
            return status;
        }
        at = end + 1;
    }
    return DI_OK;
}

/* The input as a malloc'ed text. Ids on standard input or in a file may end in a newline; so may text, which then counts. */
static di_status read_input(const job *j, const char *path, char **text, size_t *n, di_error *err)
{
    if (j->text != NULL) {
        *n = strlen(j->text);
        *text = strdup(j->text);
        return *text != NULL ? DI_OK : err_memory(err, "text", *n);
    }
    if (path != NULL) {
        return file_read(path, MAX_INPUT_BYTES, text, n, err);
    }
    return file_read_stream(STDIN_FILENO, "standard input", MAX_INPUT_BYTES, text, n, err);
}

static di_status run(job *j, const char *path, di_error *err)
{
    char *text = NULL;
    size_t n = 0;
    di_status status = cli_open_tokenizer(j->model, j->tokenizer, &j->tok, err);
    if (status == DI_OK) {
        status = read_input(j, path, &text, &n, err);
    }
    if (status == DI_OK && j->lines) {
        status = run_lines(j, text, n, err);
    } else if (status == DI_OK) {
        status = j->decode ? run_decode(j, text, err) : run_encode(j, text, n, err);
    }
    free(text);
    di_tokenizer_close(j->tok);
    return status == DI_OK ? flush(j, err) : status;
}

int cmd_tokenize(int argc, char **argv)
{
    job j = {.tok = NULL};
    cli_parser parser;
    cli_parser_init(&parser, "[FILE]", 0, 1,
                    "Print the token ids of a text (--text, FILE, or standard input), or the text of ids.\v"
                    "Text is taken as it is, a newline at its end included. Role and think markers written out in it are plain text "
                    "unless --special is given. With --lines each line of the input is a JSON string and each line of the output "
                    "a JSON array of ids; with --decode the other way round.");
    cli_add_string(&parser, "model", "DIR", &j.model, "checkpoint folder (default: the demo model)");
    cli_add_string(&parser, "tokenizer", "FILE", &j.tokenizer, "a tokenizer.json instead of the model's");
    cli_add_string(&parser, "text", "TEXT", &j.text, "the text (with --decode: the ids) itself");
    cli_add_flag(&parser, "special", &j.special, "recognise added tokens written out in the text");
    cli_add_flag(&parser, "pieces", &j.pieces, "a table of tokens");
    cli_add_flag(&parser, "count", &j.count, "only the number of tokens");
    cli_add_flag(&parser, "decode", &j.decode, "the input is ids, the output text");
    cli_add_flag(&parser, "skip-special", &j.skip_special, "with --decode: leave out special tokens");
    cli_add_flag(&parser, "json", &j.json, "one JSON object");
    cli_add_flag(&parser, "lines", &j.lines, "one JSON value a line, in and out");
    char **args;
    size_t n_args;
    cli_parse(&parser, argc, argv, &args, &n_args);
    if (j.text != NULL && n_args != 0) {
        return cli_usage(&parser, "--text and a file exclude each other");
    }
    if (j.decode && (j.count || j.pieces)) {
        return cli_usage(&parser, "--decode gives text; --count and --pieces describe tokens");
    }
    if (j.lines && (j.json || j.count || j.pieces)) {
        return cli_usage(&parser, "--lines has one form of output");
    }
    buf_init(&j.out, MAX_OUTPUT_BYTES);
    di_error err;
    const di_status status = run(&j, n_args != 0 ? args[0] : NULL, &err);
    buf_fini(&j.out);
    return status == DI_OK ? CLI_OK : cli_fail(&err);
}
