/* options.c - see options.h. argp does the parsing, the help and the spelling mistakes of the command line; this file turns the table
 * into argp's form, converts values for every source alike, and checks ranges. The idea of one table that feeds every source of
 * options is curl's. */
#include "options.h"

#include "tools.h"

#include "core/core.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FIRST_KEY 0x1000 /* beyond every character, so that no option has a short form by accident */
#define CONFIG_KEY (FIRST_KEY + CLI_MAX_OPTIONS)
#define PRINT_KEY (CONFIG_KEY + 1)
#define MAX_PRINT_BYTES (1u << 20)
#define MAX_IDS_BYTES (256u << 20)

void cli_parser_init(cli_parser *p, const char *args, size_t min_args, size_t max_args, const char *help)
{
    memset(p, 0, sizeof *p);
    p->args = args;
    p->help = help;
    p->min_args = min_args;
    p->max_args = max_args;
}

static cli_option *add(cli_parser *p, cli_kind kind, const char *name, const char *arg, const char *help)
{
    if (p->n_options == CLI_MAX_OPTIONS) {
        abort(); /* the table of a command is a constant: raise CLI_MAX_OPTIONS */
    }
    cli_option *o = &p->options[p->n_options++];
    o->kind = kind;
    o->name = name;
    o->arg = arg;
    o->help = help;
    return o;
}

void cli_add_flag(cli_parser *p, const char *name, bool *value, const char *help)
{
    add(p, CLI_FLAG, name, NULL, help)->value.flag = value;
}

void cli_add_string(cli_parser *p, const char *name, const char *arg, const char **value, const char *help)
{
    add(p, CLI_STRING, name, arg, help)->value.string = value;
}

void cli_add_list(cli_parser *p, const char *name, const char *arg, cli_list *value, const char *help)
{
    add(p, CLI_LIST, name, arg, help)->value.list = value;
}

void cli_add_int(cli_parser *p, const char *name, const char *arg, int64_t *value, int64_t min, int64_t max, const char *help)
{
    cli_option *o = add(p, CLI_INT, name, arg, help);
    o->value.integer = value;
    o->min = (double)min;
    o->max = (double)max;
}

void cli_add_real(cli_parser *p, const char *name, const char *arg, double *value, double min, double max, const char *help)
{
    cli_option *o = add(p, CLI_REAL, name, arg, help);
    o->value.real = value;
    o->min = min;
    o->max = max;
}

void cli_add_budget(cli_parser *p, const char *name, cli_budget *value, const char *help)
{
    add(p, CLI_BUDGET, name, "SIZE|PERCENT%", help)->value.budget = value;
}

void cli_mark_secret(cli_parser *p)
{
    p->options[p->n_options - 1].secret = true;
}

void cli_add_model(cli_parser *p, cli_engine_options *o)
{
    cli_add_string(p, "model", "DIR", &o->model, "checkpoint folder (default: the demo model)");
}

void cli_add_engine(cli_parser *p, cli_engine_options *o)
{
    cli_add_string(p, "backend", "NAME", &o->backend, "auto, or a backend by name");
    cli_add_string(p, "cpu-isa", "NAME", &o->cpu_isa, "instructions of backend cpu: auto, avx2, avx512 or avx512vnni; same results");
    cli_add_string(p, "cpu-pin", "WHEN", &o->cpu_pin, "pin threads of backend cpu: on, off or auto (with several memory nodes)");
    cli_add_int(p, "threads", "N", &o->threads, 0, 1024, "worker threads; 0 = all processors");
    cli_add_int(p, "chunk-tokens", "N", &o->chunk_tokens, 0, 1 << 20, "most tokens of one forward pass; 0 = default");
    cli_add_budget(p, "ram-budget", &o->ram, "memory for weights, as in 20G or 30% of the checkpoint; the rest is read when needed (all)");
    cli_add_string(p, "weight-cache", "DIR", &o->weight_cache, "folder that keeps weights in the form of backend cpu");
}

void cli_get_engine(const cli_engine_options *o, di_engine_options *out)
{
    di_engine_options_default(out);
    out->backend = o->backend;
    out->cpu_isa = o->cpu_isa;
    out->n_threads = (int32_t)o->threads;
    out->chunk_tokens = (int32_t)o->chunk_tokens;
    out->replay = cli_replay(o);
    out->ram_budget = o->ram.bytes;
    out->ram_percent = o->ram.percent;
    out->weight_cache = o->weight_cache;
    out->cpu_pin = o->cpu_pin;
}

/* In the order of di_replay. */
static const char *const replays[] = {"off", "encoder", "decoder", "both"};

void cli_add_replay(cli_parser *p, cli_engine_options *o)
{
    cli_add_string(p, "replay", "WHAT", &o->replay,
                   "approximations of the last window: off, encoder (behind prefix hits), decoder (of prompts) or both (off)");
}

/* Place in the list; -1 = in none. */
static int replay_of(const cli_engine_options *o)
{
    int i = (int)(sizeof replays / sizeof replays[0]) - 1;
    while (i >= 0 && o->replay != NULL && strcmp(o->replay, replays[i]) != 0) {
        i--;
    }
    return o->replay != NULL ? i : (int)DI_REPLAY_OFF;
}

int cli_check_replay(const cli_parser *p, const cli_engine_options *o)
{
    return replay_of(o) >= 0 ? CLI_OK : cli_usage(p, "--replay: '%s' is neither off, encoder, decoder nor both", o->replay);
}

di_replay cli_replay(const cli_engine_options *o) { return (di_replay)replay_of(o); }

/* --- Values ----------------------------------------------------------------------------------------------------------- */

static bool read_flag(const char *text, bool *out)
{
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool store_in_list(cli_option *o, const char *text, cli_source source, char *why, size_t capacity)
{
    cli_list *const list = o->value.list;
    if (source < o->source) {
        return true;
    }
    if (source > o->source) {
        list->n = 0;
    }
    if (list->n == CLI_MAX_LIST) {
        snprintf(why, capacity, "given more than %d times", CLI_MAX_LIST);
        return false;
    }
    list->items[list->n++] = text;
    return true;
}

static bool read_int(const cli_option *o, const char *text, int64_t *out, char *why, size_t capacity)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || (double)value < o->min || (double)value > o->max) {
        snprintf(why, capacity, "'%s' is not a whole number from %.0f to %.0f", text, o->min, o->max);
        return false;
    }
    *out = value;
    return true;
}

static bool read_real(const cli_option *o, const char *text, double *out, char *why, size_t capacity)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= o->min && value <= o->max)) {
        snprintf(why, capacity, "'%s' is not a number from %g to %g", text, o->min, o->max);
        return false;
    }
    *out = value;
    return true;
}

int64_t cli_size(const char *text)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    if (text == NULL) {
        return 0;
    }
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    const char *const unit = *end != '\0' ? strchr(units, *end) : NULL;
    const int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 0;
    const bool read = end != text && *(unit != NULL ? end + 1 : end) == '\0' && errno == 0 && text[0] >= '0' && text[0] <= '9';
    return read && n <= (INT64_C(1) << 50) >> shift ? (int64_t)n << shift : -1;
}

static bool read_budget(const char *text, cli_budget *out, char *why, size_t capacity)
{
    char *end = NULL;
    const long percent = strtol(text, &end, 10);
    *out = (cli_budget){.text = text};
    if (strcmp(end, "%") == 0 && percent >= 1 && percent <= 100) {
        out->percent = (int32_t)percent;
        return true;
    }
    out->bytes = cli_size(text);
    if (out->bytes <= 0) {
        snprintf(why, capacity, "'%s' is neither a size, as in 500M or 20G, nor a share from 1%% to 100%%", text);
        return false;
    }
    return true;
}

bool cli_store(cli_option *o, const char *text, cli_source source, char *why, size_t capacity)
{
    const bool wins = source >= o->source;
    bool flag = true;
    int64_t integer = 0;
    double real = 0;
    cli_budget budget;
    bool good = true;
    switch (o->kind) {
    case CLI_FLAG:
        good = text == NULL || read_flag(text, &flag);
        if (!good) {
            snprintf(why, capacity, "'%s' is neither on nor off", text);
        } else if (wins) {
            *o->value.flag = flag;
        }
        break;
    case CLI_STRING:
        if (wins) {
            *o->value.string = text;
        }
        break;
    case CLI_LIST:
        good = store_in_list(o, text, source, why, capacity);
        break;
    case CLI_INT:
        good = read_int(o, text, &integer, why, capacity);
        if (good && wins) {
            *o->value.integer = integer;
        }
        break;
    case CLI_REAL:
        good = read_real(o, text, &real, why, capacity);
        if (good && wins) {
            *o->value.real = real;
        }
        break;
    case CLI_BUDGET:
        good = read_budget(text, &budget, why, capacity);
        if (good && wins) {
            *o->value.budget = budget;
        }
        break;
    }
    if (good && wins) {
        o->source = source;
    }
    return good;
}

void cli_environment_name(const cli_option *o, char *out, size_t capacity)
{
    const size_t n = (size_t)snprintf(out, capacity, "DI_%s", o->name);
    for (size_t i = 3; i < n && i < capacity; i++) {
        out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
    }
}

di_status cli_read_environment(cli_parser *p, di_error *err)
{
    for (size_t i = 0; i < p->n_options; i++) {
        char name[64];
        char why[256];
        cli_environment_name(&p->options[i], name, sizeof name);
        const char *const text = getenv(name);
        if (text != NULL && text[0] != '\0' && !cli_store(&p->options[i], text, CLI_ENVIRONMENT, why, sizeof why)) {
            return err_set(err, DI_E_ARGUMENT, "environment variable %s: %s", name, why);
        }
    }
    return DI_OK;
}

/* --- Command line ----------------------------------------------------------------------------------------------------- */

typedef struct parse_state {
    cli_parser *parser;
    char **args;
    size_t n_args;
    const char *config;
    const char *print; /* NULL = no --print-config, "" = without a value */
} parse_state;

static void on_option(parse_state *s, int key, char *arg, const struct argp_state *state)
{
    if (key == CONFIG_KEY) {
        if (s->config != NULL) {
            argp_error(state, "--config: given twice");
        }
        s->config = arg;
    } else if (key == PRINT_KEY) {
        if (arg != NULL && strcmp(arg, "all") != 0) {
            argp_error(state, "--print-config: '%s' is not 'all'", arg);
        }
        s->print = arg != NULL ? arg : "";
    } else {
        cli_option *const o = &s->parser->options[key - FIRST_KEY];
        char why[256];
        if (!cli_store(o, arg, CLI_COMMAND_LINE, why, sizeof why)) {
            argp_error(state, "--%s: %s", o->name, why);
        }
    }
}

static error_t on_key(int key, char *arg, struct argp_state *state)
{
    parse_state *s = state->input;
    if (key >= FIRST_KEY && key <= PRINT_KEY) {
        on_option(s, key, arg, state);
        return 0;
    }
    switch (key) {
    case ARGP_KEY_ARGS:
        s->args = state->argv + state->next;
        s->n_args = (size_t)(state->argc - state->next);
        return 0;
    case ARGP_KEY_END:
        if (s->n_args < s->parser->min_args && s->print == NULL) {
            argp_error(state, "missing argument: %s", s->parser->args);
        }
        if (s->n_args > s->parser->max_args) {
            argp_error(state, "unexpected argument: %s", s->args[s->parser->max_args]);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void read_command_line(parse_state *s, int argc, char **argv)
{
    const cli_parser *const p = s->parser;
    struct argp_option table[CLI_MAX_OPTIONS + 3];
    memset(table, 0, sizeof table);
    for (size_t i = 0; i < p->n_options; i++) {
        const cli_option *o = &p->options[i];
        table[i] = (struct argp_option){.name = o->name, .key = FIRST_KEY + (int)i, .arg = o->arg, .doc = o->help};
    }
    table[p->n_options] = (struct argp_option){
        .name = "config", .key = CONFIG_KEY, .arg = "FILE", .doc = "YAML file with options (default: what DI_CONFIG names, if anything)"};
    table[p->n_options + 1] = (struct argp_option){
        .name = "print-config", .key = PRINT_KEY, .arg = "all", .flags = OPTION_ARG_OPTIONAL,
        .doc = "print the options that hold, and whence, as such a file, and end; =all: secrets too"};
    const struct argp argp = {.options = table, .parser = on_key, .args_doc = p->args, .doc = p->help};
    argp_err_exit_status = CLI_USAGE; /* argp's own variable, its only way to choose the exit code */
    argp_parse(&argp, argc, argv, 0, NULL, s);
}

static _Noreturn void print_and_exit(const cli_parser *p, bool all)
{
    buf out;
    buf_init(&out, MAX_PRINT_BYTES);
    cli_print_config(p, all, &out);
    const bool good = !out.failed && fwrite(out.data, 1, out.size, stdout) == out.size && fflush(stdout) == 0;
    buf_fini(&out);
    if (!good) {
        fprintf(stderr, "%s: the options could not be printed\n", p->command);
    }
    exit(good ? CLI_OK : CLI_FAILED);
}

void cli_parse(cli_parser *p, int argc, char **argv, char ***args, size_t *n_args)
{
    parse_state s = {.parser = p};
    di_error err;
    p->command = argv[0];
    read_command_line(&s, argc, argv);
    di_status status = cli_read_environment(p, &err);
    const char *config = s.config != NULL ? s.config : getenv("DI_CONFIG");
    if (status == DI_OK && config != NULL && config[0] != '\0') {
        status = cli_read_config(p, config, &err);
    }
    if (status != DI_OK) {
        exit(cli_usage(p, "%s", err.message));
    }
    if (s.print != NULL) {
        print_and_exit(p, s.print[0] != '\0');
    }
    *args = s.args;
    *n_args = s.n_args;
}

int cli_usage(const cli_parser *p, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "%s: ", p->command);
    vfprintf(stderr, format, list);
    fprintf(stderr, "\nTry `%s --help' for more information.\n", p->command);
    va_end(list);
    return CLI_USAGE;
}

int cli_fail(const di_error *err)
{
    fprintf(stderr, "deepinfer: %s\n", err->message);
    return CLI_FAILED;
}

/* --- Lists of ids ----------------------------------------------------------------------------------------------------- */

static di_status parse_ids(const char *text, size_t size, const char *name, int32_t *ids, size_t *n, di_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < size;) {
        const unsigned char c = (unsigned char)text[i];
        if (isspace(c) || c == ',' || c == '[' || c == ']') {
            i++;
            continue;
        }
        int64_t id = 0;
        const size_t start = i;
        while (i < size && isdigit((unsigned char)text[i]) && id <= INT32_MAX) {
            id = id * 10 + (text[i++] - '0');
        }
        if (i == start || id > INT32_MAX || (i < size && !isspace((unsigned char)text[i]) && strchr(",]", text[i]) == NULL)) {
            return err_set(err, DI_E_ARGUMENT, "%s: token id %zu is not a number below 2^31", name, count + 1);
        }
        ids[count++] = (int32_t)id;
    }
    *n = count;
    return DI_OK;
}

di_status cli_read_ids(const char *text, int32_t **ids, size_t *n, di_error *err)
{
    const char *name = "list of ids";
    char *file = NULL;
    size_t size = strlen(text);
    di_status status = DI_OK;
    if (text[0] == '@') {
        name = text + 1;
        status = file_read(name, MAX_IDS_BYTES, &file, &size, err);
        if (status != DI_OK) {
            return status;
        }
        text = file;
    }
    int32_t *out = ar_calloc(size / 2 + 1, sizeof *out); /* every id takes a digit and a separator */
    if (out == NULL) {
        status = err_memory(err, "token ids", size);
        goto out;
    }
    status = parse_ids(text, size, name, out, n, err);
    if (status == DI_OK) {
        *ids = out;
        out = NULL;
    }
out:
    free(out);
    free(file);
    return status;
}
