/* recipe_options.h - what `render` and `parse` share: the options of a recipe, and opening one.
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

#endif
