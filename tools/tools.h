/* tools.h - what the files of the `deepinfer` command share: the commands, their exit codes, and how they report.
 *
 * A command is `int cmd_x(int argc, char **argv)`: argv[0] is "deepinfer x" (for messages), options and arguments follow, the
 * result is the exit code. Results go to standard output, everything else to standard error. Commands use the public API
 * (include/deepinfer) and core; one that needs more shows that the API lacks something. */
#ifndef TOOLS_TOOLS_H
#define TOOLS_TOOLS_H

#include <deepinfer/base.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_INTERRUPTED = 130 /* 128 + SIGINT, as shells count */
};

int cmd_bench(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_grammar(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_parse(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_verify(int argc, char **argv);

/* Prints "deepinfer: <message>" and returns CLI_FAILED (options.c). */
int cli_fail(const di_error *err);

#endif
