/* gram_compile.c - a constraint to a grammar: options and limits, the kinds, what went wrong. */
#include "grammar/gram_mask.h"

#include "grammar/gram_regex.h"
#include "grammar/gram_schema.h"

#include "core/clock.h"

#include <stdlib.h>

#define MAX_TEXT ((size_t)4 << 20)
#define MAX_MEMORY ((size_t)256 << 20)
#define WORK 4000000
#define COMPILE_MS 2000
#define DEPTH 512
#define MAX_DEPTH 1000
#define MAX_WARNINGS ((size_t)1 << 16)

typedef struct compiler {
    di_grammar *g;
    const char *text;
    size_t n;
    const di_grammar_options *options;
} compiler;

static int64_t or_default(int64_t value, int64_t otherwise) { return value != 0 ? value : otherwise; }

/* --- Kinds -------------------------------------------------------------------------------------------------------- */

static void start_text(di_grammar *g, gram_ex e)
{
    const uint32_t vec = gram_failed(&g->mem) ? 0 : gram_vec_id(&g->lexes, &e, 1, false);
    if (vec == 0) {
        gram_fault(&g->mem, DI_E_FORMAT, "invalid_regex", -1, "no text matches the expression");
    }
    g->machine.start = (gram_pos){0, gram_chars_state(&g->lexes, MODE_RAW, vec, 0), 0};
}

static bool parse_json(compiler *c, const char *name, js_doc **doc)
{
    const js_limits limits = {.max_depth = GRAM_MAX_SCHEMA_DEPTH, .max_bytes = MAX_MEMORY};
    di_error err;
    if (js_parse(c->text, c->n, name, &limits, doc, &err) == DI_OK) {
        return true;
    }
    gram_fault(&c->g->mem, err.code, err.code == DI_E_LIMIT ? "limit_exceeded" : "invalid_schema", -1, "%s", err.message);
    return false;
}

static void compile_schema(compiler *c)
{
    di_grammar *g = c->g;
    js_doc *doc = NULL;
    if (!parse_json(c, "schema", &doc)) {
        return;
    }
    const gram_schema_options options = {c->options->formats, c->options->lenient, c->options->closed};
    const gram_form root = gram_schema(&g->forms, js_root(doc), &options, &g->warnings);
    js_free(doc);
    g->machine.json.root = gram_failed(&g->mem) ? 0 : gram_goal_of(&g->machine.json, root, NULL, 0);
    if (!gram_js_start(&g->machine, &g->machine.start)) {
        gram_fault(&g->mem, DI_E_FORMAT, "unsatisfiable_schema", -1, "no value satisfies the schema");
    }
}

static void compile_object(compiler *c)
{
    di_grammar *g = c->g;
    g->machine.json.root = gram_goal_of(&g->machine.json, gram_form_type(&g->forms, 1u << GRAM_OBJECT), NULL, 0);
    (void)gram_js_start(&g->machine, &g->machine.start);
}

static void compile_choice(compiler *c)
{
    di_grammar *g = c->g;
    js_doc *doc = NULL;
    if (!parse_json(c, "choice", &doc)) {
        return;
    }
    const js_value *list = js_root(doc);
    bool strings = js_kind_of(list) == JS_ARRAY && js_length(list) > 0;
    for (size_t i = 0; strings && i < js_length(list); i++) {
        strings = js_kind_of(js_at(list, i)) == JS_STRING;
    }
    if (!strings) {
        gram_fault(&g->mem, DI_E_FORMAT, "invalid_grammar", -1, "a choice is a list of strings, with at least one");
    } else if (js_length(list) > GRAM_MAX_ENUM) {
        gram_fault(&g->mem, DI_E_LIMIT, "limit_exceeded", -1, "more than %d choices", GRAM_MAX_ENUM);
    } else {
        const uint32_t base = g->lang.work.n;
        for (size_t i = 0; i < js_length(list); i++) {
            size_t n;
            const char *text = js_string(js_at(list, i), &n);
            (void)gram_push(&g->mem, &g->lang.work, gram_ex_text(&g->lang, text, n));
        }
        const gram_ex any = gram_ex_or(&g->lang, g->lang.work.words + base, g->lang.work.n - base);
        g->lang.work.n = base;
        start_text(g, any);
    }
    js_free(doc);
}

static void compile_gap(compiler *c)
{
    di_grammar *g = c->g;
    g->machine.gaps.kind = c->options->whitespace;
    if (c->options->whitespace != DI_WHITESPACE_PATTERN) {
        return;
    }
    const char *pattern = c->options->whitespace_pattern != NULL ? c->options->whitespace_pattern : "";
    const gram_ex e = gram_regex(&g->lang, pattern, strlen(pattern), 0);
    const uint32_t blanks[] = {' ', ' ', '\t', '\n', '\r', '\r'};
    const gram_ex allowed = gram_ex_rep(&g->lang, gram_ex_set(&g->lang, gram_set_of(&g->lang, blanks, 3)), 0, GRAM_INF);
    if (!gram_failed(&g->mem) &&
        (gram_empty(&g->lang, e) || !gram_empty(&g->lang, gram_ex_and2(&g->lang, e, gram_ex_not(&g->lang, allowed))))) {
        gram_fault(&g->mem, DI_E_ARGUMENT, "invalid_regex", -1, "a pattern for white space matches nothing but spaces, tabs and line ends");
    }
    g->machine.gaps.pattern = e;
}

static void compile_kind(compiler *c)
{
    di_grammar *g = c->g;
    switch (g->kind) {
    case DI_GRAMMAR_REGEX:
        start_text(g, gram_regex(&g->lang, c->text, c->n, 0));
        break;
    case DI_GRAMMAR_SCHEMA:
        compile_schema(c);
        break;
    case DI_GRAMMAR_JSON_OBJECT:
        compile_object(c);
        break;
    case DI_GRAMMAR_CHOICE:
        compile_choice(c);
        break;
    default:
        gram_fault(&g->mem, DI_E_UNSUPPORTED, "invalid_grammar", -1, "this kind of grammar is not supported");
        break;
    }
}

/* --- Life --------------------------------------------------------------------------------------------------------- */

static di_grammar *new_grammar(di_grammar_kind kind, const di_grammar_options *o)
{
    di_grammar *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return NULL;
    }
    g->refs = 1;
    g->kind = kind;
    g->step_work = or_default(o->limits.step_work, WORK);
    (void)pthread_mutex_init(&g->lock, NULL);
    gram_mem_init(&g->mem, o->limits.max_memory_bytes != 0 ? o->limits.max_memory_bytes : MAX_MEMORY);
    buf_init(&g->warnings, MAX_WARNINGS);
    g->mem.fuel = or_default(o->limits.compile_work, WORK);
    g->mem.deadline = clock_now_ns() + or_default(o->limits.compile_ms, COMPILE_MS) * 1000000;
    g->mem.cancelled = o->cancelled;
    g->mem.user = o->user;
    if (gram_lang_init(&g->lang, &g->mem) && gram_forms_init(&g->forms, &g->mem, &g->lang) &&
        gram_lexes_init(&g->lexes, &g->mem, &g->lang) && gram_machine_init(&g->machine, &g->mem, &g->forms, &g->lexes)) {
        const int32_t depth = o->limits.max_depth;
        g->machine.json.order = o->order;
        g->machine.json.max_depth = depth <= 0 ? DEPTH : depth > MAX_DEPTH ? MAX_DEPTH : (uint32_t)depth;
        g->machine.json.nums.integers_any = o->integers_any;
        g->lexes.escapes_all = o->escapes_all;
    }
    return g;
}

static void report(const di_grammar *g, di_grammar_fault *fault)
{
    if (fault == NULL) {
        return;
    }
    const char *kind = g->mem.fault;
    if (kind[0] == '\0' && g->mem.failure.code == DI_E_LIMIT) {
        kind = strstr(g->mem.failure.message, "too long") != NULL ? "compile_timeout" : "too_complex";
    }
    *fault = (di_grammar_fault){.offset = g->mem.offset};
    memcpy(fault->kind, kind, strnlen(kind, sizeof fault->kind - 1));
    memcpy(fault->where, g->mem.where, strnlen(g->mem.where, sizeof fault->where - 1));
}

di_status di_grammar_compile(di_grammar_kind kind, const char *text, size_t n, const di_grammar_options *options, di_grammar **out,
                             di_grammar_fault *fault, di_error *err)
{
    static const di_grammar_options none;
    const di_grammar_options *o = options != NULL ? options : &none;
    const int64_t start = clock_now_ns();
    if (fault != NULL) {
        *fault = (di_grammar_fault){.offset = -1};
    }
    const size_t most = o->limits.max_text_bytes != 0 ? o->limits.max_text_bytes : MAX_TEXT;
    if (n > most) {
        if (fault != NULL) {
            memcpy(fault->kind, "limit_exceeded", sizeof "limit_exceeded");
        }
        return err_set(err, DI_E_LIMIT, "the grammar has %zu bytes, at most %zu are taken", n, most);
    }
    di_grammar *g = new_grammar(kind, o);
    if (g == NULL) {
        return err_memory(err, "grammar", sizeof *g);
    }
    compiler c = {g, text, n, o};
    compile_gap(&c);
    if (!gram_failed(&g->mem)) {
        compile_kind(&c);
    }
    if (!gram_failed(&g->mem) && g->warnings.failed && !g->warnings.full) {
        (void)err_memory(&g->mem.failure, "warnings", MAX_WARNINGS);
    }
    if (gram_failed(&g->mem)) {
        report(g, fault);
        const di_status status = gram_status(&g->mem, err);
        di_grammar_free(g);
        return status;
    }
    g->mem.deadline = 0; /* what is left is done step by step */
    g->mem.cancelled = NULL;
    g->stats.compile_work = g->mem.spent;
    g->stats.compile_ns = clock_now_ns() - start;
    for (size_t i = 0; i < g->warnings.size; i++) {
        g->warnings.data[i] = g->warnings.data[i] == '\n' ? '\0' : g->warnings.data[i];
    }
    *out = g;
    return DI_OK;
}

void di_grammar_retain(di_grammar *g) { (void)__atomic_fetch_add(&g->refs, 1, __ATOMIC_RELAXED); }

void di_grammar_free(di_grammar *g)
{
    if (g == NULL || __atomic_fetch_sub(&g->refs, 1, __ATOMIC_ACQ_REL) != 1) {
        return;
    }
    for (int i = 0; i < GRAM_CACHED_MASKS; i++) {
        free(g->cache[i].mask);
    }
    free(g->levels);
    free(g->path);
    free(g->hits);
    free(g->places);
    gram_state_masks_free(&g->state_masks);
    buf_fini(&g->warnings);
    gram_mem_fini(&g->mem);
    (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

const char *di_grammar_warning(const di_grammar *g, size_t i)
{
    for (size_t at = 0; at < g->warnings.size; at += strlen(g->warnings.data + at) + 1) {
        if (i-- == 0) {
            return g->warnings.data + at;
        }
    }
    return NULL;
}

void di_grammar_get_stats(const di_grammar *grammar, di_grammar_stats *out)
{
    di_grammar *g = (di_grammar *)(uintptr_t)grammar; /* for the lock */
    gram_lock(g);
    *out = g->stats;
    out->work = g->mem.spent - g->stats.compile_work;
    out->memory_bytes = g->mem.mem.held + sizeof *g;
    for (int i = 0; i < GRAM_CACHED_MASKS; i++) {
        out->memory_bytes += g->cache[i].mask != NULL ? g->cache[i].words * sizeof(uint32_t) : 0;
    }
    out->n_states = g->lexes.states.n;
    out->n_frames = g->machine.json.frame_keys.n;
    gram_unlock(g);
}

bool gram_begin_step(di_grammar *g)
{
    g->mem.fuel = g->step_work;
    return !gram_failed(&g->mem);
}
