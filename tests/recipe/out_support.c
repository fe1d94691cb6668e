/* out_support.c - see out_support.h. */
#include "out_support.h"

#include "core/file.h"
#include "core/utf8.h"

void out_result_init(out_result *r)
{
    memset(r, 0, sizeof *r);
    buf_init(&r->reasoning, SIZE_MAX);
    buf_init(&r->text, SIZE_MAX);
    buf_init(&r->stop, SIZE_MAX);
    buf_init(&r->logprobs, SIZE_MAX);
    for (int i = 0; i < OUT_MAX_CALLS; i++) {
        buf_init(&r->names[i], SIZE_MAX);
        buf_init(&r->arguments[i], SIZE_MAX);
    }
}

void out_result_fini(out_result *r)
{
    buf_fini(&r->reasoning);
    buf_fini(&r->text);
    buf_fini(&r->stop);
    buf_fini(&r->logprobs);
    for (int i = 0; i < OUT_MAX_CALLS; i++) {
        buf_fini(&r->names[i]);
        buf_fini(&r->arguments[i]);
    }
}

static void take_piece(const di_piece *p, out_result *r)
{
    assert_int_equal(utf8_valid_prefix((const uint8_t *)p->text, p->size), p->size);
    assert_int_equal(r->n_finishes, 0);
    assert_true(p->size != 0 || p->kind == DI_PIECE_CALL || p->kind == DI_PIECE_FINISH);
    assert_true(p->n_logprobs == 0 || p->kind == DI_PIECE_REASONING || p->kind == DI_PIECE_TEXT);
    switch (p->kind) {
    case DI_PIECE_REASONING:
        buf_append(&r->reasoning, p->text, p->size);
        break;
    case DI_PIECE_TEXT:
        buf_append(&r->text, p->text, p->size);
        break;
    case DI_PIECE_CALL:
        assert_int_equal(p->call, r->n_calls);
        assert_true(r->n_calls < OUT_MAX_CALLS);
        buf_append(&r->names[r->n_calls], p->text, p->size);
        buf_append(&r->arguments[r->n_calls++], "", 0);
        break;
    case DI_PIECE_ARGUMENTS:
        assert_int_equal(p->call, r->n_calls - 1);
        buf_append(&r->arguments[p->call], p->text, p->size);
        r->n_arguments += p->size;
        break;
    case DI_PIECE_FINISH:
        r->n_finishes++;
        r->finish = p->finish;
        buf_append(&r->stop, p->stop != NULL ? p->stop : "", p->stop_size);
        assert_int_equal(p->stop != NULL, p->finish == DI_FINISH_STOP_STRING);
        break;
    }
    for (size_t i = 0; i < p->n_logprobs; i++) {
        buf_printf(&r->logprobs, "%c%d ", p->kind == DI_PIECE_TEXT ? 't' : 'r', p->logprobs[i].id);
    }
    r->n_pieces++;
}

void out_take(di_output *output, out_result *r)
{
    di_piece p;
    while (di_output_next(output, &p)) {
        take_piece(&p, r);
    }
    assert_int_equal(di_output_finished(output), r->finish);
}

static bool same(const buf *a, const buf *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

void out_expect_same(const out_result *a, const out_result *b, const char *what)
{
    bool equal = same(&a->reasoning, &b->reasoning) && same(&a->text, &b->text) && same(&a->stop, &b->stop) &&
                 same(&a->logprobs, &b->logprobs) && a->n_calls == b->n_calls && a->finish == b->finish &&
                 a->n_finishes == b->n_finishes;
    for (int i = 0; equal && i < a->n_calls; i++) {
        equal = same(&a->names[i], &b->names[i]) && same(&a->arguments[i], &b->arguments[i]);
    }
    if (!equal) {
        buf one;
        buf two;
        buf_init(&one, SIZE_MAX);
        buf_init(&two, SIZE_MAX);
        fail_msg("%s:\n  %s %s\n  %s %s", what, out_line(a, &one), a->logprobs.size != 0 ? a->logprobs.data : "",
                 out_line(b, &two), b->logprobs.size != 0 ? b->logprobs.data : "");
    }
}

const char *out_finish_name(di_finish finish)
{
    switch (finish) {
    case DI_FINISH_NONE: return "none";
    case DI_FINISH_STOP:
    case DI_FINISH_STOP_STRING: return "stop";
    case DI_FINISH_LENGTH: return "length";
    case DI_FINISH_FILTER: return "content_filter";
    case DI_FINISH_TOOL_CALLS: return "tool_calls";
    case DI_FINISH_CUT: return "cut";
    }
    return "?";
}

const char *out_line(const out_result *r, buf *line)
{
    buf_clear(line);
    if (r->reasoning.size != 0) {
        buf_puts(line, "r:");
        buf_append(line, r->reasoning.data, r->reasoning.size);
        buf_puts(line, "|");
    }
    if (r->text.size != 0) {
        buf_puts(line, "t:");
        buf_append(line, r->text.data, r->text.size);
        buf_puts(line, "|");
    }
    for (int i = 0; i < r->n_calls; i++) {
        buf_append(line, r->names[i].data, r->names[i].size);
        buf_puts(line, "(");
        buf_append(line, r->arguments[i].data, r->arguments[i].size);
        buf_puts(line, ")|");
    }
    buf_puts(line, out_finish_name(r->finish));
    if (r->finish == DI_FINISH_STOP_STRING) {
        buf_puts(line, "=");
        buf_append(line, r->stop.data, r->stop.size);
    }
    return line->data;
}

/* ---- files ---- */

static char *path_in(const char *variable, const char *folder, const char *name)
{
    char path[4096];
    const char *const base = getenv(variable);
    const char *const source = getenv("DI_SOURCE_DIR");
    if (base != NULL && *base != '\0') {
        (void)snprintf(path, sizeof path, "%s/%s", base, name);
    } else {
        (void)snprintf(path, sizeof path, "%s/%s/%s", source != NULL ? source : ".", folder, name);
    }
    char *const copy = strdup(path);
    assert_non_null(copy);
    return copy;
}

static di_tokenizer *open_at(const char *path)
{
    const di_tokenizer_options uncached = {.cache_dir = ""};
    di_tokenizer *tokenizer = NULL;
    di_error err;
    if (di_tokenizer_open_with(path, &uncached, &tokenizer, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return tokenizer;
}

di_tokenizer *out_tokenizer_named(const char *name)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s.json", name);
    char *const path = path_in("DI_TOKENIZERS", "build/tokenizers", file);
    const char *const ci = getenv("CI");
    di_tokenizer *tokenizer = NULL;
    if (file_exists(path)) {
        tokenizer = open_at(path);
    } else if (ci != NULL && strcmp(ci, "true") == 0) {
        fail_msg("%s is not there; tools/tokenizer/setup_tokenizers.py makes it", file);
    }
    free(path);
    return tokenizer;
}

di_tokenizer *out_tokenizer(void)
{
    return out_tokenizer_named("v41_recipe");
}

di_tokenizer *out_demo(void)
{
    char *const path = path_in("", "models", "demo");
    di_tokenizer *const tokenizer = open_at(path);
    free(path);
    return tokenizer;
}

di_recipe *out_recipe(const di_tokenizer *tokenizer)
{
    di_recipe *recipe = NULL;
    di_error err;
    if (di_recipe_open(tokenizer, NULL, &recipe, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return recipe;
}

char *out_data(const char *name, size_t *size)
{
    char file[128];
    (void)snprintf(file, sizeof file, "recipe/%s", name);
    char *const path = path_in("DI_TEST_DATA", "tests/data", file);
    char *text = NULL;
    di_error err;
    if (file_exists(path) && file_read(path, SIZE_MAX / 2, &text, size, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    free(path);
    return text;
}

/* ---- fixture ---- */

out_fixture fixture;

static int set_up(di_tokenizer *tokenizer)
{
    fixture = (out_fixture){.tokenizer = tokenizer, .recipe = out_recipe(tokenizer)};
    return 0;
}

int out_set_up_text(void **state)
{
    (void)state;
    return set_up(NULL);
}

int out_set_up_demo(void **state)
{
    (void)state;
    return set_up(out_demo());
}

int out_set_up_real(void **state)
{
    (void)state;
    return set_up(out_tokenizer());
}

int out_tear_down(void **state)
{
    (void)state;
    di_recipe_close(fixture.recipe);
    di_tokenizer_close(fixture.tokenizer);
    return 0;
}

/* ---- vector lines ---- */

bool out_lines_open(out_lines *lines, const char *name)
{
    *lines = (out_lines){.name = name};
    lines->text = out_data(name, &lines->size);
    lines->at = lines->text;
    return lines->text != NULL;
}

const js_value *out_lines_next(out_lines *lines)
{
    const char *const stop = lines->text + lines->size;
    js_free(lines->doc);
    lines->doc = NULL;
    if (lines->at >= stop) {
        free(lines->text);
        return NULL;
    }
    const char *end = memchr(lines->at, '\n', (size_t)(stop - lines->at));
    end = end != NULL ? end : stop;
    di_error err;
    if (js_parse(lines->at, (size_t)(end - lines->at), lines->name, NULL, &lines->doc, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    lines->at = end + 1;
    return js_root(lines->doc);
}

di_output_options out_options(const js_value *options, const char **stops, size_t *sizes)
{
    static const char *const stages[] = {"", "reasoning_start", "reasoning", "content"};
    di_output_options o = {.tools = js_bool(js_get(options, "tools")), .in_tools = js_bool(js_get(options, "in_tools")),
                           .json = js_bool(js_get(options, "json")), .stops = stops, .stop_sizes = sizes};
    const char *const stage = js_string(js_get(options, "stage"), NULL);
    while (strcmp(stages[o.stage], stage) != 0) {
        o.stage++;
        assert_true(o.stage <= DI_STAGE_CONTENT);
    }
    const js_value *const list = js_get(options, "stop");
    o.n_stops = js_length(list);
    assert_true(o.n_stops <= 16);
    for (size_t i = 0; i < o.n_stops; i++) {
        stops[i] = js_string(js_at(list, i), &sizes[i]);
    }
    return o;
}

di_status out_push(di_output *output, const js_value *chunk)
{
    if (js_kind_of(chunk) == JS_STRING) {
        size_t n;
        const char *const text = js_string(chunk, &n);
        return di_output_push_text(output, text, n, 1, NULL);
    }
    const size_t n = js_length(chunk);
    int32_t *const ids = malloc((n + 1) * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)js_int(js_at(chunk, i));
    }
    const di_status status = di_output_push_ids(output, ids, n, NULL, NULL);
    free(ids);
    return status;
}

bool out_needs_tokenizer(const js_value *chunks)
{
    for (size_t i = 0; i < js_length(chunks); i++) {
        if (js_kind_of(js_at(chunks, i)) != JS_STRING) {
            return true;
        }
    }
    return false;
}
