/* command.c - see command.h. */
#include "command.h"

#include "support/unit.h"

#include "core/core.h"

#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGS 64
#define MAX_OUTPUT_BYTES ((size_t)64 << 20)

extern char **environ;

int command_run(const char *const *argv, char **out, size_t *size)
{
    const char *const program = getenv("DI_BIN");
    char *args[MAX_ARGS + 2] = {NULL};
    int ends[2];
    pid_t child;
    int state;
    di_error err;
    assert_non_null(program);
    args[0] = strdup(program);
    size_t n = 1;
    for (; argv[n - 1] != NULL; n++) {
        assert_true(n <= MAX_ARGS);
        args[n] = strdup(argv[n - 1]);
    }
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    assert_int_equal(posix_spawn(&child, program, &actions, NULL, args, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (file_read_stream(ends[0], "output", MAX_OUTPUT_BYTES, out, size, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    close(ends[0]);
    assert_int_equal(waitpid(child, &state, 0), child);
    for (size_t i = 0; i < n; i++) {
        free(args[i]);
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static char *joined(const char *dir, const char *name)
{
    char *const path = file_path_join(dir, name);
    assert_non_null(path);
    return path;
}

char *command_source(const char *name)
{
    const char *const source = getenv("DI_SOURCE_DIR");
    assert_non_null(source);
    return joined(source, name);
}

char *command_data(const char *name)
{
    const char *const data = getenv("DI_TEST_DATA");
    char *const own = command_source("tests/data");
    char *const path = joined(data != NULL && data[0] != '\0' ? data : own, name);
    free(own);
    return path;
}
