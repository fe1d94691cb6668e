/* constraint.c - see constraint.h. */
#include "constraint.h"
#include "tools.h"

#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)4 << 20)

void cli_add_constraint(cli_parser *p, cli_constraint *c)
{
    cli_add_string(p, "json-schema", "FILE", &c->schema, "the output is JSON that follows a schema");
    cli_add_string(p, "regex", "REGEX", &c->regex, "the whole output matches an expression");
    cli_add_string(p, "grammar", "FILE", &c->grammar_file, "the output is a text of a grammar, GBNF or Lark");
}

int cli_check_constraint(const cli_parser *p, const cli_constraint *c)
{
    const int n = (c->schema != NULL) + (c->regex != NULL) + (c->grammar_file != NULL);
    return n > 1 ? cli_usage(p, "--json-schema, --regex and --grammar exclude each other") : CLI_OK;
}

static bool is_asked_for(const cli_constraint *c) { return c->schema != NULL || c->regex != NULL || c->grammar_file != NULL; }

static di_status compile(cli_constraint *c, di_error *err)
{
    const char *const file = c->schema != NULL ? c->schema : c->grammar_file;
    char *text = NULL;
    size_t n;
    if (c->regex != NULL) {
        return di_grammar_compile(DI_GRAMMAR_REGEX, c->regex, strlen(c->regex), NULL, &c->grammar, NULL, err);
    }
    di_status status = file_read(file, MAX_FILE_BYTES, &text, &n, err);
    if (status == DI_OK) {
        status = di_grammar_compile(c->schema != NULL ? DI_GRAMMAR_SCHEMA : DI_GRAMMAR_EBNF, text, n, NULL, &c->grammar, NULL, err);
        if (status != DI_OK) {
            err_prefix(err, "%s", file);
        }
    }
    free(text);
    return status;
}

di_status cli_constraint_open(cli_constraint *c, const di_model *model, di_error *err)
{
    const di_tokenizer *const tokenizer = di_model_tokenizer(model);
    di_model_info info;
    if (!is_asked_for(c)) {
        return DI_OK;
    }
    if (tokenizer == NULL) {
        return err_set(err, DI_E_UNSUPPORTED, "a form of the output needs a tokenizer, and the checkpoint has none");
    }
    di_model_get_info(model, &info);
    di_status status = compile(c, err);
    if (status == DI_OK) {
        status = di_vocabulary_new(tokenizer, &info.eos_token_id, 1, &c->vocabulary, err);
    }
    if (status == DI_OK) {
        const size_t n = di_vocabulary_mask_words(c->vocabulary);
        c->mask = ar_calloc(n, sizeof *c->mask);
        status = c->mask != NULL ? DI_OK : err_memory(err, "mask", n * sizeof *c->mask);
    }
    for (size_t i = 0; status == DI_OK && di_grammar_warning(c->grammar, i) != NULL; i++) {
        fprintf(stderr, "warning: %s\n", di_grammar_warning(c->grammar, i));
    }
    return status;
}

void cli_constraint_close(cli_constraint *c)
{
    di_matcher_free(c->matcher);
    di_vocabulary_free(c->vocabulary);
    di_grammar_free(c->grammar);
    free(c->mask);
    c->matcher = NULL;
    c->vocabulary = NULL;
    c->grammar = NULL;
    c->mask = NULL;
}

di_status cli_constraint_begin(cli_constraint *c, di_error *err)
{
    di_matcher_free(c->matcher);
    c->matcher = NULL;
    return c->grammar != NULL ? di_matcher_new(c->grammar, c->vocabulary, &c->matcher, err) : DI_OK;
}

di_status cli_constraint_sample(cli_constraint *c, di_sequence *sequence, di_sample *out, di_error *err)
{
    bool accepted = false;
    if (c->matcher == NULL) {
        return di_sequence_sample(sequence, out, err);
    }
    di_status status = di_matcher_mask(c->matcher, c->mask, NULL, err);
    if (status == DI_OK) {
        status = di_sequence_sample_masked(sequence, c->mask, out, err);
    }
    if (status == DI_OK) {
        status = di_matcher_accept(c->matcher, out->id, &accepted, err);
    }
    if (status == DI_OK && !accepted) {
        status = err_set(err, DI_E_INTERNAL, "token %d was chosen, which the form of the output forbids there", out->id);
    }
    return status;
}
