/* cmd_grammar.c - `deepinfer grammar`: compiles a constraint, tells what was compiled, checks texts against it,
 * makes texts of it.
 *
 * --check says at which byte a text goes wrong. --sample walks at random over the bytes that may follow, and takes
 * what closes things more often than chance would, so that it ends; when it has got long, the shortest end is put
 * behind it. --stats has the work of the compiler and, with a text, the time of its masks. */
#include "open.h"
#include "options.h"
#include "tools.h"

#include "core/core.h"

#include <deepinfer/grammar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUT_BYTES ((size_t)64 << 20)
#define MAX_SAMPLE_BYTES ((size_t)1 << 16)
#define SOFT_SAMPLE_BYTES 200
#define MANY_BYTES 32

typedef struct job {
    const char *schema;
    const char *regex;
    const char *ebnf;
    const char *tags;
    const char *check;
    const char *order;
    const char *root;
    const char *model;
    const char *tokenizer;
    int64_t n_samples;
    int64_t seed;
    bool lenient;
    bool stats;
    bool json;
    di_grammar *grammar;
    buf text; /* to be checked */
} job;

/* The content of the file of this name when there is one, else the name itself. */
static di_status read_check(job *j, di_error *err)
{
    char *data = NULL;
    size_t n = 0;
    di_error ignored;
    bool ok;
    if (file_read(j->check, MAX_INPUT_BYTES, &data, &n, &ignored) == DI_OK) {
        n -= n != 0 && data[n - 1] == '\n';
        ok = buf_append(&j->text, data, n);
        free(data);
    } else {
        ok = buf_puts(&j->text, j->check);
    }
    return ok ? DI_OK : err_memory(err, "text", n);
}

static di_status compile(job *j, di_error *err)
{
    di_grammar_options options = {.lenient = j->lenient};
    char *text = NULL;
    size_t n;
    options.order = strcmp(j->order, "any") == 0 ? DI_ORDER_ANY : strcmp(j->order, "schema") == 0 ? DI_ORDER_SCHEMA : DI_ORDER_AUTO;
    options.root = j->root;
    if (j->regex != NULL) {
        return di_grammar_compile(DI_GRAMMAR_REGEX, j->regex, strlen(j->regex), &options, &j->grammar, NULL, err);
    }
    const di_grammar_kind kind = j->ebnf != NULL ? DI_GRAMMAR_EBNF : j->tags != NULL ? DI_GRAMMAR_TAGS : DI_GRAMMAR_SCHEMA;
    di_status status = file_read(j->ebnf != NULL ? j->ebnf : j->tags != NULL ? j->tags : j->schema, MAX_INPUT_BYTES, &text, &n, err);
    if (status == DI_OK) {
        status = di_grammar_compile(kind, text, n, &options, &j->grammar, NULL, err);
    }
    free(text);
    return status;
}

/* --- Texts --------------------------------------------------------------------------------------------------------- */

static di_status check(const job *j, di_error *err)
{
    di_matcher *m = NULL;
    size_t n_accepted = 0;
    bool complete = false;
    di_status status = di_matcher_new(j->grammar, NULL, &m, err);
    if (status == DI_OK) {
        status = di_matcher_accept_bytes(m, j->text.data != NULL ? j->text.data : "", j->text.size, &n_accepted, err);
    }
    if (status == DI_OK) {
        status = di_matcher_is_complete(m, &complete, err);
    }
    di_matcher_free(m);
    if (status != DI_OK) {
        return status;
    }
    if (n_accepted < j->text.size) {
        return err_set(err, DI_E_FORMAT, "rejected at byte %zu", n_accepted);
    }
    if (!complete) {
        return err_set(err, DI_E_FORMAT, "incomplete: rejected at its end, byte %zu", n_accepted);
    }
    printf("accepted\n");
    return DI_OK;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The bytes that may follow, [256]; a byte is tried and taken back. */
static di_status following(di_matcher *m, uint8_t *bytes, size_t *n, di_error *err)
{
    *n = 0;
    for (int byte = 0; byte < 256; byte++) {
        const char one = (char)byte;
        size_t n_accepted;
        di_status status = di_matcher_accept_bytes(m, &one, 1, &n_accepted, err);
        if (status == DI_OK && n_accepted == 1) {
            bytes[(*n)++] = (uint8_t)byte;
            status = di_matcher_rollback(m, 1, err);
        }
        if (status != DI_OK) {
            return status;
        }
    }
    return DI_OK;
}

static uint8_t choose(const uint8_t *bytes, size_t n, bool closing, uint64_t *random)
{
    const uint64_t coin = next_random(random);
    const bool in_text = n > MANY_BYTES; /* where a bracket closes nothing */
    for (size_t i = 0; i < n; i++) {
        const bool closes = bytes[i] == '"' || (!in_text && (bytes[i] == '}' || bytes[i] == ']'));
        if (closes && (closing || coin % 3 == 0)) {
            return bytes[i];
        }
    }
    uint8_t byte = bytes[next_random(random) % n];
    for (int tries = 0; tries < 4 && (byte <= ' ' || byte > '~'); tries++) { /* what people can read, mostly */
        byte = bytes[next_random(random) % n];
    }
    return byte;
}

/* The shortest end of the text; *done is false when it was not found. */
static di_status finish(di_matcher *m, buf *out, bool *done, di_error *err)
{
    char rest[4096];
    size_t n;
    di_error far;
    const di_status status = di_matcher_completion(m, rest, sizeof rest, &n, NULL, &far);
    *done = status == DI_OK && n <= sizeof rest;
    if (*done && !buf_append(out, rest, n)) {
        return err_memory(err, "sample", out->size + n);
    }
    return DI_OK;
}

static di_status sample(const job *j, uint64_t *random, buf *out, di_error *err)
{
    di_matcher *m = NULL;
    di_status status = di_matcher_new(j->grammar, NULL, &m, err);
    while (status == DI_OK) {
        uint8_t bytes[256];
        size_t n;
        bool complete;
        const bool closing = out->size > SOFT_SAMPLE_BYTES;
        status = di_matcher_is_complete(m, &complete, err);
        if (status == DI_OK) {
            status = following(m, bytes, &n, err);
        }
        if (status != DI_OK || (complete && (n == 0 || closing || next_random(random) % 2 == 0))) {
            break;
        }
        bool done = false;
        if (closing && out->size % SOFT_SAMPLE_BYTES == 1) { /* once, and now and then when it was too far */
            status = finish(m, out, &done, err);
        }
        if (status != DI_OK || done) {
            break;
        }
        if (n == 0 || out->size == MAX_SAMPLE_BYTES) {
            status = err_set(err, DI_E_LIMIT, "no end was found within %zu bytes", out->size);
            break;
        }
        const char byte = (char)choose(bytes, n, closing, random);
        status = di_matcher_accept_bytes(m, &byte, 1, &n, err);
        if (status == DI_OK && !buf_append(out, &byte, 1)) {
            status = err_memory(err, "sample", out->size);
        }
    }
    di_matcher_free(m);
    return status;
}

static di_status samples(const job *j, di_error *err)
{
    uint64_t random = (uint64_t)j->seed;
    buf out;
    buf quoted;
    buf_init(&out, MAX_SAMPLE_BYTES);
    buf_init(&quoted, 8 * MAX_SAMPLE_BYTES);
    di_status status = DI_OK;
    for (int64_t i = 0; status == DI_OK && i < j->n_samples; i++) {
        buf_clear(&out);
        status = sample(j, &random, &out, err);
        if (status == DI_OK && j->json) {
            buf_clear(&quoted);
            (void)buf_json_string(&quoted, out.data != NULL ? out.data : "", out.size);
        }
        if (status == DI_OK) {
            const buf *const line = j->json ? &quoted : &out;
            (void)fwrite(line->data != NULL ? line->data : "", 1, line->size, stdout);
            printf("\n");
        }
    }
    buf_fini(&out);
    buf_fini(&quoted);
    return status;
}

/* --- Figures ------------------------------------------------------------------------------------------------------- */

/* Masks along the tokens of the text. */
static di_status time_masks(const job *j, const di_tokenizer *tokenizer, di_error *err)
{
    const size_t capacity = 3 * j->text.size + 1;
    int32_t *const ids = ar_calloc(capacity, sizeof *ids);
    uint32_t *mask = NULL;
    di_vocabulary *v = NULL;
    di_matcher *m = NULL;
    size_t n_ids = 0;
    size_t n_masks = 0;
    int64_t total = 0;
    bool accepted = true;
    di_status status = ids != NULL ? di_vocabulary_new(tokenizer, NULL, 0, &v, err) : err_memory(err, "token ids", capacity * sizeof *ids);
    if (status == DI_OK) {
        mask = ar_calloc(di_vocabulary_mask_words(v), sizeof *mask);
        status = mask == NULL ? err_memory(err, "mask", di_vocabulary_mask_words(v)) : di_matcher_new(j->grammar, v, &m, err);
    }
    if (status == DI_OK) {
        status = di_tokenizer_encode(tokenizer, j->text.data, j->text.size, 0, ids, capacity, &n_ids, err);
    }
    for (; status == DI_OK && accepted && n_masks < n_ids; n_masks++) {
        const int64_t start = clock_now_ns();
        status = di_matcher_mask(m, mask, NULL, err);
        total += clock_now_ns() - start;
        if (status == DI_OK) {
            status = di_matcher_accept(m, ids[n_masks], &accepted, err);
        }
    }
    if (status == DI_OK && n_masks != 0) {
        printf("masks            %zu, %.1f us on average\n", n_masks, (double)total / 1000 / (double)n_masks);
    }
    di_matcher_free(m);
    di_vocabulary_free(v);
    free(mask);
    free(ids);
    return status;
}

static di_status print_stats(const job *j, di_error *err)
{
    di_grammar_stats s;
    di_status status = DI_OK;
    if (j->text.size != 0) {
        di_tokenizer *tokenizer = NULL;
        status = cli_open_tokenizer(j->model, j->tokenizer, &tokenizer, err);
        if (status == DI_OK) {
            status = time_masks(j, tokenizer, err);
        }
        di_tokenizer_close(tokenizer);
    }
    di_grammar_get_stats(j->grammar, &s);
    printf("compiled in      %.3f ms, %lld units of work\n", (double)s.compile_ns / 1e6, (long long)s.compile_work);
    printf("memory           %zu bytes\n", s.memory_bytes);
    printf("states           %lld, %lld of containers\n", (long long)s.n_states, (long long)s.n_frames);
    printf("slowest mask     %.1f us, %lld of %lld from the cache\n", (double)s.worst_mask_ns / 1000, (long long)s.n_mask_hits,
           (long long)s.n_masks);
    return status;
}

static di_status run(job *j, di_error *err)
{
    di_status status = compile(j, err);
    const char *warning;
    for (size_t i = 0; status == DI_OK && (warning = di_grammar_warning(j->grammar, i)) != NULL; i++) {
        fprintf(stderr, "warning: %s\n", warning);
    }
    if (status == DI_OK && j->check != NULL) {
        status = read_check(j, err);
        status = status == DI_OK ? check(j, err) : status;
    }
    if (status == DI_OK && j->n_samples > 0) {
        status = samples(j, err);
    }
    if (status == DI_OK && j->stats) {
        status = print_stats(j, err);
    }
    return status;
}

int cmd_grammar(int argc, char **argv)
{
    job j = {.order = "auto", .seed = 1};
    cli_parser parser;
    cli_parser_init(&parser, "", 0, 0,
                    "Compile a constraint on generated text; check texts against it, or make some.\v"
                    "What can't be enforced exactly is an error; with --lenient it is left out with a warning. "
                    "--check takes the content "
                    "of a file, when there is one of that name, without the newline at its end. Exit code 1: the constraint is refused, "
                    "or the text.");
    cli_add_string(&parser, "schema", "FILE", &j.schema, "a JSON Schema");
    cli_add_string(&parser, "regex", "REGEX", &j.regex, "a regular expression for the whole text");
    cli_add_string(&parser, "ebnf", "FILE", &j.ebnf, "a grammar, in GBNF when it has ::=, else in Lark");
    cli_add_string(&parser, "root", "RULE", &j.root, "with --ebnf: the rule to start from (root in GBNF, start in Lark)");
    cli_add_string(&parser, "tags", "FILE", &j.tags, "structural tags, as JSON");
    cli_add_string(&parser, "check", "TEXT|FILE", &j.check, "whether the text is allowed, or the byte where it goes wrong");
    cli_add_int(&parser, "sample", "N", &j.n_samples, 0, 1000000, "print N random texts");
    cli_add_flag(&parser, "json", &j.json, "samples as JSON strings, one a line");
    cli_add_int(&parser, "seed", "N", &j.seed, 0, INT32_MAX, "of the samples (1)");
    cli_add_string(&parser, "order", "ORDER", &j.order, "of members: auto, any or schema");
    cli_add_flag(&parser, "lenient", &j.lenient, "leave out what is not supported");
    cli_add_flag(&parser, "stats", &j.stats, "work and memory; with --check the time of masks");
    cli_add_string(&parser, "model", "DIR", &j.model, "for --stats: checkpoint folder with the tokenizer (default: the demo model)");
    cli_add_string(&parser, "tokenizer", "FILE", &j.tokenizer, "for --stats: a tokenizer.json instead of the model's");
    char **args;
    size_t n_args;
    cli_parse(&parser, argc, argv, &args, &n_args);
    if ((j.schema != NULL) + (j.regex != NULL) + (j.ebnf != NULL) + (j.tags != NULL) != 1) {
        return cli_usage(&parser, "give one of --schema, --regex, --ebnf and --tags");
    }
    if (strcmp(j.order, "auto") != 0 && strcmp(j.order, "any") != 0 && strcmp(j.order, "schema") != 0) {
        return cli_usage(&parser, "--order is auto, any or schema");
    }
    buf_init(&j.text, MAX_INPUT_BYTES);
    di_error err;
    const di_status status = run(&j, &err);
    buf_fini(&j.text);
    di_grammar_free(j.grammar);
    return status == DI_OK ? CLI_OK : cli_fail(&err);
}
