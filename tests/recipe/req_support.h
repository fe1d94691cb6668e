/* req_support.h - what the tests of the request readers share: bodies in short form, and what comes of them.
 *
 * A body is written without its braces and its model, with ' for every quote: "'input':'Hello'". The recipe has no tokenizer. */
#ifndef TESTS_RECIPE_REQ_SUPPORT_H
#define TESTS_RECIPE_REQ_SUPPORT_H

#include "support/unit.h"

#include "recipe/rec_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQ_V41 "DeepSeek-V4.1-Flash"
#define REQ_V4 "DeepSeek-V4-Pro"

/* Where requests are read: thinking is off unless `options` says otherwise (NULL: nothing said). */
typedef struct req_place {
    di_protocol protocol;
    const char *model;
    const di_recipe_options *options;
} req_place;

typedef struct req_read { /* a request and the recipe it lives on */
    di_recipe *recipe;
    di_request *request;
} req_read;

/* Pieces of V4.1 prompts without thinking. */
#define USER(text) "<｜User｜>" text
#define SYSTEM(text) "<｜System｜>" text
#define ANSWER(text) "<｜Assistant｜></think>" text "<｜end▁of▁sentence｜>"
#define CALLS(calls) "\n\n<｜DSML｜ calls>\n" calls "\n</｜DSML｜ calls>"
#define CALL(name) "<｜DSML｜ invoke name=\"" name "\">\n\n</｜DSML｜ invoke>"
#define RESULT(text) "<tool_result>" text "</tool_result>"
#define NEWS(schemas) "<｜System｜>\n\n### Updated Tool Schemas\n\n" schemas
#define END "<｜Assistant｜></think>"
#define MUST_CALL END "\n\n<｜DSML｜ calls>\n"
#define SCHEMA(name) "{\"name\": \"" name "\", \"description\": \"\", \"parameters\": {}}"

typedef struct req_case {
    const char *body;
    const char *expected;
} req_case;

/* The whole body as JSON; malloc'ed. */
char *req_body(const req_place *place, const char *body);

di_status req_try(const req_place *place, const char *body, req_read *out, di_error *err);
void req_close(req_read *r);

/* Reads it, or fails the test with the message. */
req_read req_open(const req_place *place, const char *body);

void req_expect_tail(const req_place *place, const char *body, const char *tail);
void req_expect_tails(const req_place *place, const req_case *cases, size_t n);

/* Schema lines of the tool block, "" without one. */
void req_expect_schemas(const req_place *place, const char *body, const char *schemas);

/* The whole message. */
void req_expect_error(const req_place *place, const char *body, di_status code, const char *message);
void req_expect_errors(const req_place *place, const req_case *cases, size_t n);
/* DI_E_FORMAT, and the message names the path. */
void req_expect_bad_forms(const req_place *place, const req_case *cases, size_t n);

/* The constraint's tool names, joined by blanks; a deferred one has a star. */
void req_expect_listed(const req_place *place, const char *body, const char *names);

/* With every budget of memory up to what it needs, the request is either read or refused with DI_E_LIMIT. */
void req_expect_bounded(const req_place *place, const char *body);

#define REQ_N(cases) (sizeof(cases) / sizeof(cases)[0])

#endif
