/* out_support.h - what the tests of the output parser share: a recipe, chunks to feed, and the pieces joined. */
#ifndef TESTS_RECIPE_OUT_SUPPORT_H
#define TESTS_RECIPE_OUT_SUPPORT_H

#include "support/unit.h"

#include "core/buf.h"
#include "core/json.h"

#include <deepinfer/recipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_MAX_CALLS = 64 };

/* All pieces of one output, joined by kind and call. */
typedef struct out_result {
    buf reasoning;
    buf text;
    buf names[OUT_MAX_CALLS];
    buf arguments[OUT_MAX_CALLS];
    int n_calls;
    int n_finishes;
    di_finish finish;
    buf stop;
    buf logprobs;        /* "t12 " for an id that came with text, "r12 " with reasoning */
    size_t n_pieces;
    size_t n_arguments;  /* bytes of all arguments */
} out_result;

void out_result_init(out_result *r);
void out_result_fini(out_result *r);

/* Takes the pieces of the last call. Each must be UTF-8, and follow the rules of di_piece. */
void out_take(di_output *output, out_result *r);

/* Two outputs say the same, wherever their pieces were cut. `what` names the case. */
void out_expect_same(const out_result *a, const out_result *b, const char *what);

/* The same as one line of text, for messages and short expectations: "r:..|t:..|name(arguments)|finish". Borrowed
 * until r ends. */
const char *out_line(const out_result *r, buf *line);

const char *out_finish_name(di_finish finish); /* as Chat calls it; "cut" */

/* The tokenizer "v41_recipe" of DI_TOKENIZERS, else build/tokenizers; NULL when it is not there, which with
 * CI=true fails. */
di_tokenizer *out_tokenizer(void);
/* The same for another file: "v4", "v41". */
di_tokenizer *out_tokenizer_named(const char *name);
/* The bundled demo model's; always there. */
di_tokenizer *out_demo(void);
di_recipe *out_recipe(const di_tokenizer *tokenizer); /* tokenizer may be NULL */

/* recipe/NAME of DI_TEST_DATA, else of tests/data; malloc'ed, NULL when it is not there. */
char *out_data(const char *name, size_t *size);

/* The tokenizer and the recipe that a test program works with; set up and taken down by cmocka_run_group_tests. */
typedef struct out_fixture {
    di_tokenizer *tokenizer;
    di_recipe *recipe;
} out_fixture;

extern out_fixture fixture;

int out_set_up_text(void **state); /* no tokenizer */
int out_set_up_demo(void **state);
int out_set_up_real(void **state); /* out_tokenizer, which may be NULL */
int out_tear_down(void **state);

/* Lines of a file of vectors, one JSON value each. */
typedef struct out_lines {
    const char *name;
    char *text;
    size_t size;
    const char *at;
    js_doc *doc; /* of the line being looked at */
} out_lines;

bool out_lines_open(out_lines *lines, const char *name);  /* false when the file is not there */
const js_value *out_lines_next(out_lines *lines);         /* NULL behind the last one, and everything is freed */

/* Parser options of a vector line. `stops` has room for 16. */
di_output_options out_options(const js_value *options, const char **stops, size_t *sizes);

/* Feeds one chunk: a text or an array of ids. */
di_status out_push(di_output *output, const js_value *chunk);
bool out_needs_tokenizer(const js_value *chunks);

#endif
