/* options.h - the options of a command: one table feeds the command line (argp), the environment and a YAML file.
 *
 * Option `chunk-tokens` is `--chunk-tokens N` on the command line, DI_CHUNK_TOKENS in the environment, and `chunk-tokens: N` in the file
 * that --config or DI_CONFIG names. The earlier of these wins, for an option given several times as a whole. Values are checked
 * where they are read, in overruled sources too, and a bad one ends the program with CLI_USAGE, so that a command sees only good ones.
 * docs/configuration.md has the rules for users. Strings are borrowed from argv, the environment or the parser, which must live as long
 * as they are used. */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include "config_file.h"

#include "core/buf.h"

#include <deepinfer/engine.h>

#define CLI_MAX_OPTIONS 96
#define CLI_MAX_LIST CONFIG_MAX_VALUES

typedef enum cli_kind { CLI_FLAG, CLI_STRING, CLI_LIST, CLI_INT, CLI_REAL, CLI_BUDGET } cli_kind;

typedef enum cli_source { CLI_DEFAULT, CLI_FILE, CLI_ENVIRONMENT, CLI_COMMAND_LINE } cli_source; /* the later wins */

/* Values of an option that may be given several times. */
typedef struct cli_list {
    const char *items[CLI_MAX_LIST];
    size_t n;
} cli_list;

/* A size, or a share of something whose size is known later. */
typedef struct cli_budget {
    const char *text; /* NULL = not given */
    int64_t bytes;    /* one of the two, the other is 0 */
    int32_t percent;  /* 1..100 */
} cli_budget;

typedef struct cli_option {
    const char *name; /* long option without dashes */
    const char *arg;  /* what the value is called in the help; NULL for a flag */
    const char *help;
    cli_kind kind;
    double min; /* CLI_INT and CLI_REAL: the range, both ends included */
    double max;
    union {
        bool *flag;
        const char **string;
        cli_list *list;
        int64_t *integer;
        double *real;
        cli_budget *budget;
    } value; /* holds the default before parsing */
    bool secret;       /* --print-config does not show it */
    cli_source source; /* whose value it is */
    int line;          /* in the file: where it stands there, 0 = it does not */
} cli_option;

typedef struct cli_parser {
    const char *args; /* what stands behind the options in the usage line: "DIR..." or "" */
    const char *help; /* what the command does; text behind a '\v' is printed below the options */
    size_t min_args;
    size_t max_args;
    cli_option options[CLI_MAX_OPTIONS];
    size_t n_options;
    const char *command;     /* set by cli_parse: "deepinfer generate" */
    const char *config_path; /* the file that was read; NULL = none */
    config_memory memory;    /* what the file says */
} cli_parser;

void cli_parser_init(cli_parser *p, const char *args, size_t min_args, size_t max_args, const char *help);
void cli_add_flag(cli_parser *p, const char *name, bool *value, const char *help);
void cli_add_string(cli_parser *p, const char *name, const char *arg, const char **value, const char *help);
void cli_add_list(cli_parser *p, const char *name, const char *arg, cli_list *value, const char *help);
void cli_add_int(cli_parser *p, const char *name, const char *arg, int64_t *value, int64_t min, int64_t max, const char *help);
void cli_add_real(cli_parser *p, const char *name, const char *arg, double *value, double min, double max, const char *help);

void cli_add_budget(cli_parser *p, const char *name, cli_budget *value, const char *help);

/* "500M": bytes, with K, M, G or T as powers of 1024, up to 1024T. NULL = 0; -1 = not understood. */
int64_t cli_size(const char *text);

/* The option added last is a secret: a password, a key. */
void cli_mark_secret(cli_parser *p);

/* Options of every command that runs a model. */
typedef struct cli_engine_options {
    const char *model; /* NULL = the default place */
    const char *backend;
    const char *cpu_isa;
    int64_t threads;
    int64_t chunk_tokens;
    const char *replay;
    cli_budget ram;
    const char *weight_cache;
    const char *cpu_pin;
} cli_engine_options;

void cli_add_model(cli_parser *p, cli_engine_options *o);  /* --model */
void cli_add_engine(cli_parser *p, cli_engine_options *o); /* --backend --cpu-isa --threads --chunk-tokens --ram-budget
                                                            * --weight-cache --cpu-pin */
/* What they say; everything else of *out is the default. */
void cli_get_engine(const cli_engine_options *o, di_engine_options *out);

/* --replay; the check behind parsing, CLI_OK or CLI_USAGE with a message. */
void cli_add_replay(cli_parser *p, cli_engine_options *o);
int cli_check_replay(const cli_parser *p, const cli_engine_options *o);
di_replay cli_replay(const cli_engine_options *o);

/* Reads argv, the environment and the file. *args are the arguments that are no options, [*n_args], borrowed from argv. Ends the program
 * after --help and --print-config (0) and on a mistake (CLI_USAGE). */
void cli_parse(cli_parser *p, int argc, char **argv, char ***args, size_t *n_args);

/* Prints "<command>: <message>" and a pointer to --help; returns CLI_USAGE. */
int cli_usage(const cli_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads "1,2,3" (blanks and newlines also separate) or "@FILE" with the same content into malloc'ed *ids. Every id must be in
 * [0, 2^31). Errors: DI_E_ARGUMENT, DI_E_IO, DI_E_MEMORY. */
di_status cli_read_ids(const char *text, int32_t **ids, size_t *n, di_error *err);

/* --- The steps of cli_parse (options.c, options_file.c) --------------------------------------------------------------------- */

/* Stores one value unless a source that wins has given one; `text` NULL sets a flag. On a mistake it writes what is wrong to `why`. */
bool cli_store(cli_option *o, const char *text, cli_source source, char *why, size_t capacity);

/* Errors: DI_E_ARGUMENT, with the variable's name. */
di_status cli_read_environment(cli_parser *p, di_error *err);

/* A configuration file, or its text (`name` is for messages and is borrowed). Errors: DI_E_IO and those of config_read. */
di_status cli_read_config(cli_parser *p, const char *path, di_error *err);
di_status cli_read_config_text(cli_parser *p, const char *text, size_t size, const char *name, di_error *err);

/* All options with where their values come from, as a file that can be read back. Secrets are left out unless `all`. */
void cli_print_config(const cli_parser *p, bool all, buf *out);

/* DI_SOME_NAME of an option. */
void cli_environment_name(const cli_option *o, char *out, size_t capacity);

#endif
