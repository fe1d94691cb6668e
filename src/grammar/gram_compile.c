/* gram_compile.c - a constraint to a grammar: options and limits, the kinds, what went wrong. */
#include "grammar/gram_compile.h"
#include "grammar/gram_mask.h"

#include "grammar/gram_regex.h"

#include "core/clock.h"

#include <stdlib.h>

#define MAX_TEXT ((size_t)4 << 20)
#define MAX_MEMORY ((size_t)256 << 20)
#define WORK 4000000
#define COMPILE_MS 2000
#define DEPTH 512
#define MAX_DEPTH 1000
#define MAX_WARNINGS ((size_t)1 << 16)

static int64_t or_default(int64_t value, int64_t otherwise) { return value != 0 ? value : otherwise; }

static void compile_gap(gram_compiler *c)
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

/* Compiles what `make` makes of `user`, of n bytes of text. */
static di_status compile(di_grammar_kind kind, size_t n, const di_grammar_options *options,
                         void (*make)(gram_compiler *c, const void *user), const void *user, di_grammar **out,
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
    gram_compiler c = {g, o};
    compile_gap(&c);
    if (!gram_failed(&g->mem)) {
        make(&c, user);
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

static void make_text(gram_compiler *c, const void *user)
{
    const gram_constraint *text = user;
    gram_compile_text(c, text);
}

di_status di_grammar_compile(di_grammar_kind kind, const char *text, size_t n, const di_grammar_options *options, di_grammar **out,
                             di_grammar_fault *fault, di_error *err)
{
    const gram_constraint constraint = {kind, text, n};
    return compile(kind, n, options, make_text, &constraint, out, fault, err);
}

static void make_tools(gram_compiler *c, const void *user) { gram_compile_tools(c, user); }

/* What a caller must not do, and the bytes of it all. */
static di_status check_tools(const di_grammar_tools *t, size_t *n, di_error *err)
{
    const char *const parts[] = {t->marker, t->block, t->call, t->parameter};
    *n = t->has_answer_kind && t->answer != NULL ? t->n_answer : 0;
    for (size_t i = 0; i < 4; i++) {
        if (parts[i] == NULL && t->choice != DI_TOOL_CHOICE_NONE) {
            return err_set(err, DI_E_ARGUMENT, "tool calls need a marker and the names of three tags");
        }
    }
    if (t->n_tools == 0 && t->choice != DI_TOOL_CHOICE_NONE) {
        return err_set(err, DI_E_ARGUMENT, "tool calls need a tool");
    }
    if (t->n_tools > GRAM_MAX_TOOLS) {
        return err_set(err, DI_E_LIMIT, "%zu tools, at most %d are taken", t->n_tools, GRAM_MAX_TOOLS);
    }
    for (size_t i = 0; i < t->n_tools; i++) {
        if (t->tools[i].name == NULL || t->tools[i].name[0] == '\0') {
            return err_set(err, DI_E_ARGUMENT, "tool %zu has no name", i);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(t->tools[i].name, t->tools[k].name) == 0) {
                return err_set(err, DI_E_ARGUMENT, "tools %zu and %zu have one name", k, i);
            }
        }
        *n += t->tools[i].parameters != NULL ? t->tools[i].n_parameters : 0;
    }
    return DI_OK;
}

di_status di_grammar_compile_tools(const di_grammar_tools *tools, const di_grammar_options *options, di_grammar **out,
                                   di_grammar_fault *fault, di_error *err)
{
    size_t n;
    const di_status status = check_tools(tools, &n, err);
    if (status != DI_OK) {
        if (fault != NULL) {
            *fault = (di_grammar_fault){.offset = -1};
        }
        return status;
    }
    return compile(DI_GRAMMAR_TOOLS, n, options, make_tools, tools, out, fault, err);
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
    free(g->ways);
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
