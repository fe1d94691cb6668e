/* command.h - runs the built command (DI_BIN) and keeps what it prints. */
#ifndef TOOLS_TESTS_COMMAND_H
#define TOOLS_TESTS_COMMAND_H

#include <stddef.h>

/* argv without the program, ended by NULL. Returns the exit code; *out is malloc'ed standard output. Fails the test when the command
 * can't be started. */
int command_run(const char *const *argv, char **out, size_t *size);

/* DI_TEST_DATA, else tests/data of the source tree, and a name below it. malloc'ed. */
char *command_data(const char *name);

/* A path below the source tree. malloc'ed. */
char *command_source(const char *name);

#endif
