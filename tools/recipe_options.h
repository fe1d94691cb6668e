/* recipe_options.h - what commands with a recipe share: its options, opening it, and the ids of a request.
 *
 * The tokenizer is the one that the options name, else the default model's; where there is none at all the recipe has none
 * either, and works with text alone. */
#ifndef TOOLS_RECIPE_OPTIONS_H
#define TOOLS_RECIPE_OPTIONS_H

#include "options.h"

#include <deepinfer/recipe.h>

typedef struct cli_recipe_options {
    const char *api;
    const char *model;
    const char *tokenizer;
    di_recipe_options recipe; /* its flags and image_token; the rest is filled from what follows */
    int64_t max_tokens_bound;
    cli_list aliases; /* "NAME=v41" */
} cli_recipe_options;

typedef struct cli_recipe {
    di_tokenizer *tokenizer; /* owned; NULL = text only */
    di_recipe *recipe;       /* owned */
} cli_recipe;

void cli_add_recipe(cli_parser *p, cli_recipe_options *o);

/* Checks --api and --alias; prints what is wrong and returns CLI_USAGE, else CLI_OK. */
int cli_check_recipe(const cli_parser *p, const cli_recipe_options *o, di_protocol *protocol);

/* Errors: those of di_tokenizer_open for a named tokenizer, and of di_recipe_open. */
di_status cli_open_recipe(const cli_recipe_options *o, cli_recipe *out, di_error *err);
void cli_close_recipe(cli_recipe *recipe);

/* The prompt as malloc'ed ids. Errors: those of di_request_encode. */
di_status cli_request_ids(const di_request *request, int n_threads, int32_t **ids, size_t *n, di_error *err);

#endif
