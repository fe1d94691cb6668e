/* options.h - the options of a command: one table feeds the command line (argp) and the environment.
 *
 * Option `chunk-tokens` is `--chunk-tokens N` on the command line and DI_CHUNK_TOKENS in the environment; the command line wins.
 * A flag in the environment is 1/0, true/false, yes/no or on/off; an empty variable counts as not set. Values are checked
 * where they are read, and a bad one ends the program with CLI_USAGE, so that a command sees only good ones.
 * Strings are borrowed from argv or the environment. */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include <deepinfer/base.h>

#define CLI_MAX_OPTIONS 48

#define CLI_MAX_LIST 64

typedef enum cli_kind { CLI_FLAG, CLI_STRING, CLI_LIST, CLI_INT, CLI_REAL } cli_kind;

/* Values of an option that may be given several times; the command line, when it has any, replaces the environment's one. */
typedef struct cli_list {
    const char *items[CLI_MAX_LIST];
    size_t n;
    bool from_environment;
} cli_list;

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
    } value; /* holds the default before parsing */
} cli_option;

typedef struct cli_parser {
    const char *args; /* what stands behind the options in the usage line: "DIR..." or "" */
    const char *help; /* what the command does; text behind a '\v' is printed below the options */
    size_t min_args;
    size_t max_args;
    cli_option options[CLI_MAX_OPTIONS];
    size_t n_options;
    const char *command; /* set by cli_parse: "deepinfer generate" */
} cli_parser;

void cli_parser_init(cli_parser *p, const char *args, size_t min_args, size_t max_args, const char *help);
void cli_add_flag(cli_parser *p, const char *name, bool *value, const char *help);
void cli_add_string(cli_parser *p, const char *name, const char *arg, const char **value, const char *help);
void cli_add_list(cli_parser *p, const char *name, const char *arg, cli_list *value, const char *help);
void cli_add_int(cli_parser *p, const char *name, const char *arg, int64_t *value, int64_t min, int64_t max, const char *help);
void cli_add_real(cli_parser *p, const char *name, const char *arg, double *value, double min, double max, const char *help);

/* Options of every command that runs a model. */
typedef struct cli_engine_options {
    const char *model; /* NULL = the default place */
    const char *backend;
    int64_t threads;
    int64_t chunk_tokens;
} cli_engine_options;

void cli_add_model(cli_parser *p, cli_engine_options *o);  /* --model */
void cli_add_engine(cli_parser *p, cli_engine_options *o); /* --backend --threads --chunk-tokens */

/* Reads the environment, then argv. *args are the arguments that are no options, [*n_args], borrowed from argv. Ends the program
 * after --help (0) and on a mistake (CLI_USAGE). */
void cli_parse(cli_parser *p, int argc, char **argv, char ***args, size_t *n_args);

/* Prints "<command>: <message>" and a pointer to --help; returns CLI_USAGE. */
int cli_usage(const cli_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads "1,2,3" (blanks and newlines also separate) or "@FILE" with the same content into malloc'ed *ids. Every id must be in
 * [0, 2^31). Errors: DI_E_ARGUMENT, DI_E_IO, DI_E_MEMORY. */
di_status cli_read_ids(const char *text, int32_t **ids, size_t *n, di_error *err);

#endif
