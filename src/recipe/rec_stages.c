/* rec_stages.c - see rec_stages.h. The table `rules` is recipe.md 4.2; its order is the priority within a stage.
 *
 * Both prompt versions are read by the same table: behind the opening marker only `invoke name="` counts. A
 * parameter's name ends at its closing quote, so that it may hold blanks. */
#include "recipe/rec_stages.h"

#include "core/arith.h"
#include "core/utf8.h"

#include <stdlib.h>

/* In spellings of the table. */
#define DSML "\x01"
#define END_THINK "\x02"

enum { SYMBOL_MARKER = 256 }; /* + rec_marker */

enum { ALWAYS = 0, TOOLS = 1, JSON = 2, NOT_JSON = 4, IDS = 8 };

typedef struct rule {
    unsigned stages; /* set of rec_stage_id */
    unsigned when;   /* all of these */
    rec_pattern_kind kind;
    const char *text; /* NULL: each stop string */
    rec_stage_id next;
    rec_action action;
    const char *label;
} rule;

#define IN(stage) (1u << (stage))
#define IN_CONTENT (IN(REC_S_CONTENT_START) | IN(REC_S_CONTENT))
#define IN_REASONING (IN(REC_S_REASONING_START) | IN(REC_S_REASONING))
#define IN_VALUE (IN(REC_S_VALUE_STRING) | IN(REC_S_VALUE_RAW))

static const rule rules[] = {
    {IN_CONTENT, NOT_JSON, REC_LITERAL, NULL, REC_S_FINISHED, REC_A_STOP, NULL},
    {IN_CONTENT, JSON, REC_LITERAL, "```json\n", REC_S_JSON, REC_A_SKIP, NULL},
    {IN_CONTENT, JSON, REC_LITERAL, "```\n", REC_S_JSON, REC_A_SKIP, NULL},
    {IN_CONTENT, JSON, REC_LITERAL, "{", REC_S_JSON, REC_A_TEXT, NULL},
    {IN_CONTENT, JSON, REC_LITERAL, "[", REC_S_JSON, REC_A_TEXT, NULL},
    {IN_CONTENT, TOOLS, REC_AFTER_NEWLINES, "<" DSML, REC_S_TOOL_CALLS, REC_A_SKIP, NULL},
    {IN(REC_S_CONTENT_START), ALWAYS, REC_FIRST_NEWLINE, "\n", REC_S_CONTENT_START, REC_A_SKIP, NULL},
    {IN_CONTENT, ALWAYS, REC_LITERAL, END_THINK, REC_S_CONTENT, REC_A_SKIP, NULL},

    {IN(REC_S_JSON), ALWAYS, REC_LITERAL, NULL, REC_S_FINISHED, REC_A_STOP, NULL},
    {IN(REC_S_JSON), ALWAYS, REC_LITERAL, "\n```", REC_S_AFTER_JSON, REC_A_SKIP, NULL},
    {IN(REC_S_AFTER_JSON), TOOLS, REC_AFTER_NEWLINES, "<" DSML, REC_S_TOOL_CALLS, REC_A_SKIP, NULL},

    {IN(REC_S_TOOL_CALLS), ALWAYS, REC_LITERAL, "invoke name=\"", REC_S_TOOL_NAME, REC_A_CALL_BEGIN, NULL},
    {IN(REC_S_TOOL_CALLS), ALWAYS, REC_LITERAL, "</" DSML "tool_calls>", REC_S_FINISHED, REC_A_SKIP, NULL},
    {IN(REC_S_TOOL_CALLS), ALWAYS, REC_LITERAL, "</" DSML " calls>", REC_S_FINISHED, REC_A_SKIP, NULL},
    {IN(REC_S_TOOL_NAME), ALWAYS, REC_LITERAL, "\"", REC_S_ARGS_FIRST, REC_A_NAME_END, NULL},
    {IN(REC_S_ARGS_FIRST), ALWAYS, REC_LITERAL, "parameter name=\"", REC_S_PARAM_NAME, REC_A_LABEL, "{\""},
    {IN(REC_S_ARGS_FIRST), ALWAYS, REC_LITERAL, "</" DSML, REC_S_TOOL_CALLS, REC_A_LABEL, "{}"},
    {IN(REC_S_ARGS), ALWAYS, REC_LITERAL, "parameter name=\"", REC_S_PARAM_NAME, REC_A_LABEL, ", \""},
    {IN(REC_S_ARGS), ALWAYS, REC_LITERAL, "</" DSML, REC_S_TOOL_CALLS, REC_A_LABEL, "}"},
    {IN(REC_S_PARAM_NAME), ALWAYS, REC_LITERAL, "\"", REC_S_PARAM_TYPE, REC_A_LABEL, "\": "},
    {IN(REC_S_PARAM_TYPE), ALWAYS, REC_LITERAL, "true\">", REC_S_VALUE_STRING, REC_A_LABEL, "\""},
    {IN(REC_S_PARAM_TYPE), ALWAYS, REC_LITERAL, "false\">", REC_S_VALUE_RAW, REC_A_SKIP, NULL},
    {IN(REC_S_VALUE_STRING), ALWAYS, REC_LITERAL, "</" DSML, REC_S_ARGS, REC_A_LABEL, "\""},
    {IN(REC_S_VALUE_RAW), ALWAYS, REC_LITERAL, "</" DSML, REC_S_ARGS, REC_A_SKIP, NULL},
    /* A closing marker that the end of the output cuts off is no part of the value, even spelled by ordinary ids. */
    {IN_VALUE, IDS, REC_HOLD_ONLY, "</" DSML, REC_S_FINISHED, REC_A_SKIP, NULL},

    {IN_REASONING, TOOLS, REC_AFTER_NEWLINES, "<" DSML, REC_S_TOOL_CALLS, REC_A_SKIP, NULL},
    {IN(REC_S_REASONING_START), ALWAYS, REC_FIRST_NEWLINE, "\n", REC_S_REASONING_START, REC_A_SKIP, NULL},
    {IN_REASONING, ALWAYS, REC_AFTER_NEWLINES, END_THINK, REC_S_CONTENT_START, REC_A_SKIP, NULL},
};

enum { N_RULES = sizeof rules / sizeof *rules };

static rec_action idle_action(rec_stage_id stage, bool json)
{
    switch (stage) {
    case REC_S_CONTENT_START:
    case REC_S_CONTENT:
        return json ? REC_A_SPACE : REC_A_TEXT;
    case REC_S_JSON:
        return REC_A_TEXT;
    case REC_S_AFTER_JSON:
        return REC_A_SPACE;
    case REC_S_TOOL_NAME:
        return REC_A_NAME;
    case REC_S_PARAM_NAME:
    case REC_S_VALUE_RAW:
        return REC_A_RAW;
    case REC_S_VALUE_STRING:
        return REC_A_ESCAPED;
    case REC_S_REASONING_START:
    case REC_S_REASONING:
        return REC_A_REASONING;
    default:
        return REC_A_SKIP;
    }
}

static rec_str spelling_of(const di_recipe *recipe, char c)
{
    return recipe->spelling[c == *DSML ? REC_DSML : REC_END_THINK];
}

static bool is_marker(char c)
{
    return c == *DSML || c == *END_THINK;
}

/* Symbols of the rule's text when every marker is spelled out: the most it ever needs. */
static size_t longest(const di_recipe *recipe, const rule *r)
{
    size_t n = 0;
    for (const char *c = r->text; *c != '\0'; c++) {
        n += is_marker(*c) ? spelling_of(recipe, *c).size : 1;
    }
    return n;
}

static rec_str stop_string(const di_output_options *options, size_t i)
{
    const char *const text = options->stops[i];
    return (rec_str){text, options->stop_sizes != NULL ? options->stop_sizes[i] : strlen(text)};
}

static di_status check_stops(const di_output_options *options, size_t *total, di_error *err)
{
    if (options->n_stops > REC_MAX_STOPS) {
        return err_set(err, DI_E_ARGUMENT, "%zu stop strings, the most is %d", options->n_stops, REC_MAX_STOPS);
    }
    *total = 0;
    for (size_t i = 0; i < options->n_stops; i++) {
        const rec_str stop = stop_string(options, i);
        if (stop.size == 0 || utf8_valid_prefix((const uint8_t *)stop.data, stop.size) != stop.size) {
            return err_set(err, DI_E_ARGUMENT, "stop string %zu is %s", i, stop.size == 0 ? "empty" : "not UTF-8");
        }
        if (stop.size > UINT32_MAX / 2 - *total) {
            return err_set(err, DI_E_LIMIT, "the stop strings are larger than %u bytes", UINT32_MAX / 2);
        }
        *total += stop.size;
    }
    return DI_OK;
}

di_status rec_machine_init(rec_machine *m, const di_recipe *recipe, const di_output_options *options, di_error *err)
{
    memset(m, 0, sizeof *m);
    size_t n_stop_bytes = 0;
    di_status status = check_stops(options, &n_stop_bytes, err);
    if (status != DI_OK) {
        return status;
    }
    size_t n_symbols = 2 * n_stop_bytes; /* the two rules about stop strings */
    for (size_t i = 0; i < N_RULES; i++) {
        n_symbols += rules[i].text != NULL ? longest(recipe, &rules[i]) : 0;
    }
    const size_t n_patterns = N_RULES + 2 * options->n_stops;
    m->stages = ar_calloc(REC_N_STAGES, sizeof *m->stages);
    m->patterns = ar_calloc(n_patterns, sizeof *m->patterns);
    m->symbols = ar_calloc(n_symbols, sizeof *m->symbols);
    m->fails = ar_calloc(n_symbols + n_patterns, sizeof *m->fails);
    m->stop_text = ar_calloc(n_stop_bytes, 1);
    if (m->stages == NULL || m->patterns == NULL || m->symbols == NULL || m->fails == NULL || m->stop_text == NULL) {
        rec_machine_fini(m);
        return err_memory(err, "output parser", n_symbols * (sizeof *m->symbols + sizeof *m->fails));
    }
    char *at = m->stop_text;
    for (size_t i = 0; i < options->n_stops; i++) {
        const rec_str stop = stop_string(options, i);
        memcpy(at, stop.data, stop.size);
        m->stops[i] = (rec_str){at, stop.size};
        at += stop.size;
    }
    m->n_stops = options->n_stops;
    m->tools = options->tools;
    m->json = options->json;
    return DI_OK;
}

void rec_machine_fini(rec_machine *m)
{
    free(m->stages);
    free(m->patterns);
    free(m->symbols);
    free(m->fails);
    free(m->stop_text);
    memset(m, 0, sizeof *m);
}

/* ---- spelling the patterns ---- */

/* Where the next pattern's arrays begin. */
typedef struct writer {
    rec_machine *m;
    const di_recipe *recipe;
    bool ids;
    size_t n_symbols;
    size_t n_fails;
} writer;

static void put_text(rec_pattern *p, rec_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        p->symbols[p->n++] = (uint8_t)text.data[i];
    }
}

static void put_rule_text(writer *w, rec_pattern *p, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (is_marker(*c) && w->ids && p->kind != REC_HOLD_ONLY) {
            p->marker_at = p->n;
            p->marker_extra = (uint32_t)spelling_of(w->recipe, *c).size - 1;
            p->symbols[p->n++] = (uint16_t)(SYMBOL_MARKER + (*c == *DSML ? REC_DSML : REC_END_THINK));
        } else {
            put_text(p, is_marker(*c) ? spelling_of(w->recipe, *c) : (rec_str){c, 1});
        }
    }
}

static void fill_fail(rec_pattern *p)
{
    uint32_t k = 0;
    p->fail[0] = 0;
    p->fail[1] = 0;
    for (uint32_t i = 1; i < p->n; i++) {
        while (k > 0 && p->symbols[k] != p->symbols[i]) {
            k = p->fail[k];
        }
        k += p->symbols[k] == p->symbols[i] ? 1 : 0;
        p->fail[i + 1] = k;
    }
}

static void add_branch(rec_machine *m, unsigned stages, const rec_pattern *p)
{
    for (unsigned s = 0; s < REC_N_STAGES; s++) {
        if ((stages & IN(s)) == 0) {
            continue;
        }
        rec_stage *const stage = &m->stages[s];
        stage->branches[stage->n++] = p;
        if (p->symbols[0] < SYMBOL_MARKER) {
            stage->starts[p->symbols[0]] = true;
        }
        if (p->kind == REC_AFTER_NEWLINES) {
            stage->starts['\n'] = true;
        }
    }
}

static void add_pattern(writer *w, const rule *r, rec_str stop)
{
    rec_machine *const m = w->m;
    rec_pattern *const p = &m->patterns[m->n_patterns++];
    *p = (rec_pattern){.kind = r->kind, .next = r->next, .action = r->action, .label = r->label, .stop = stop};
    p->symbols = m->symbols + w->n_symbols;
    p->fail = m->fails + w->n_fails;
    p->marker_at = UINT32_MAX;
    if (r->text != NULL) {
        put_rule_text(w, p, r->text);
    } else {
        put_text(p, stop);
    }
    w->n_symbols += p->n;
    w->n_fails += p->n + 1;
    fill_fail(p);
    add_branch(m, r->stages, p);
}

void rec_machine_spell(rec_machine *m, const di_recipe *recipe, bool ids)
{
    const unsigned have = (m->tools ? TOOLS : 0u) | (m->json ? JSON : NOT_JSON) | (ids ? IDS : 0u);
    writer w = {.m = m, .recipe = recipe, .ids = ids};
    for (unsigned s = 0; s < REC_N_STAGES; s++) {
        m->stages[s].idle = idle_action((rec_stage_id)s, m->json);
    }
    for (size_t i = 0; i < N_RULES; i++) {
        const rule *const r = &rules[i];
        if ((r->when & ~have) != 0) {
            continue;
        }
        if (r->text != NULL) {
            add_pattern(&w, r, (rec_str){"", 0});
            continue;
        }
        for (size_t j = 0; j < m->n_stops; j++) {
            add_pattern(&w, r, m->stops[j]);
        }
    }
}

/* ---- running ---- */

void rec_machine_enter(rec_machine *m, rec_stage_id stage)
{
    m->at = stage;
    m->fresh = true;
    m->hold = 0;
    memset(m->branches, 0, m->stages[stage].n * sizeof *m->branches);
}

static inline size_t bytes_of(const rec_pattern *p, uint32_t k)
{
    return k + (k > p->marker_at ? p->marker_extra : 0);
}

static inline uint32_t advance(const rec_pattern *p, uint32_t k, unsigned symbol)
{
    while (k > 0 && p->symbols[k] != symbol) {
        k = p->fail[k];
    }
    return k + (p->symbols[k] == symbol ? 1 : 0);
}

/* The symbol on one branch: bytes that are matched now. *whole: that is a match. */
static size_t step_branch(const rec_machine *m, const rec_pattern *p, rec_branch *b, unsigned symbol, bool *whole)
{
    *whole = false;
    if (p->kind == REC_FIRST_NEWLINE) {
        *whole = m->fresh && symbol == '\n';
        return *whole ? 1 : 0;
    }
    if (p->kind == REC_AFTER_NEWLINES && b->k == 0 && symbol == '\n') {
        b->newlines++;
        return b->newlines;
    }
    const uint32_t before = b->k;
    b->k = advance(p, before, symbol);
    if (b->k <= before) {
        b->newlines = 0; /* what is matched begins behind them */
    }
    if (b->k == p->n) {
        *whole = p->kind != REC_HOLD_ONLY;
        if (!*whole) {
            b->k = p->fail[b->k];
        }
    }
    return bytes_of(p, b->k) + b->newlines;
}

static void step(rec_machine *m, unsigned symbol, rec_match *match)
{
    const rec_stage *const stage = &m->stages[m->at];
    size_t hold = 0;
    for (uint32_t i = 0; i < stage->n; i++) {
        bool whole;
        const size_t size = step_branch(m, stage->branches[i], &m->branches[i], symbol, &whole);
        if (whole) {
            *match = (rec_match){stage->branches[i], size};
            return;
        }
        hold = size > hold ? size : hold;
    }
    m->hold = hold;
    m->fresh = false;
}

size_t rec_machine_bytes(rec_machine *m, const char *text, size_t n, rec_match *match)
{
    const rec_stage *const stage = &m->stages[m->at];
    const uint8_t *const s = (const uint8_t *)text;
    match->pattern = NULL;
    for (size_t i = 0; i < n;) {
        if (m->hold == 0 && !stage->starts[s[i]]) {
            do {
                i++;
            } while (i < n && !stage->starts[s[i]]);
            m->fresh = false;
            continue;
        }
        step(m, s[i++], match);
        if (match->pattern != NULL) {
            return i;
        }
    }
    return n;
}

void rec_machine_marker(rec_machine *m, rec_marker marker, rec_match *match)
{
    match->pattern = NULL;
    step(m, SYMBOL_MARKER + (unsigned)marker, match);
}
