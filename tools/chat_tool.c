/* chat_tool.c - see chat_tool.h. The pipes are served by one poll loop, so that neither side waits for the other however much is
 * written. */
#include "chat_tool.h"

#include "interrupt.h"

#include "core/core.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES 65536
#define POLL_MS 20
#define PATIENCE_NS 1000000000

extern char **environ;

typedef struct running {
    pid_t child;            /* and its process group */
    int to;                 /* its standard input; -1 = closed */
    int from;               /* its standard output */
    int64_t interrupted_ns; /* when Ctrl-C came; 0 = it did not */
} running;

/* Bytes of NAME in "NAME=COMMAND"; 0 when there is none. */
static size_t name_size(const char *entry)
{
    size_t n = 0;
    while (isalnum((unsigned char)entry[n]) || entry[n] == '_' || entry[n] == '-') {
        n++;
    }
    return entry[n] == '=' ? n : 0;
}

const char *chat_tool_command(const cli_list *commands, const char *name)
{
    const char *general = NULL;
    for (size_t i = 0; i < commands->n; i++) {
        const char *entry = commands->items[i];
        const size_t n = name_size(entry);
        if (n == 0) {
            general = entry;
        } else if (n == strlen(name) && memcmp(entry, name, n) == 0) {
            return entry + n + 1;
        }
    }
    return general;
}

/* The environment with DI_TOOL in front; the array is malloc'ed, its strings are not. */
static char **make_environment(char *di_tool)
{
    size_t n = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **out = ar_calloc(n + 2, sizeof *out);
    if (out != NULL) {
        out[0] = di_tool;
        size_t k = 1;
        for (size_t i = 0; i < n; i++) {
            if (strncmp(environ[i], "DI_TOOL=", 8) != 0) {
                out[k++] = environ[i];
            }
        }
    }
    return out;
}

/* The command gets ordinary signals again: this program blocks SIGINT and ignores SIGPIPE. */
static int spawn(const char *command, char **environment, int in, int out, pid_t *child)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setpgroup(&attributes, 0);
    char *const argv[] = {(char *)(uintptr_t)"sh", (char *)(uintptr_t)"-c", (char *)(uintptr_t)command, NULL};
    const int error = posix_spawn(child, "/bin/sh", &files, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static void close_end(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

/* Takes a Ctrl-C, which reaches this program alone, to the command's group; later, or at the next one, makes sure that it ends.
 * True when it was killed. */
static bool pass_interrupt(running *r)
{
    const bool again = cli_take_interrupt();
    if (r->interrupted_ns == 0 && !again) {
        return false;
    }
    if (r->interrupted_ns == 0) {
        kill(-r->child, SIGINT);
        r->interrupted_ns = clock_now_ns();
        return false;
    }
    const bool late = again || clock_now_ns() - r->interrupted_ns > PATIENCE_NS;
    if (late) {
        kill(-r->child, SIGKILL);
    }
    return late;
}

/* Writes the arguments and reads the result until the command has closed its output. */
static di_status exchange(running *r, const buf *arguments, buf *result, di_error *err)
{
    size_t written = 0;
    while (r->from >= 0) {
        if (written == arguments->size) {
            close_end(&r->to);
        }
        struct pollfd fds[2] = {{.fd = r->from, .events = POLLIN}, {.fd = r->to, .events = POLLOUT}};
        if (poll(fds, 2, POLL_MS) < 0 && errno != EINTR) {
            return err_set_errno(err, errno, "tool command");
        }
        if (pass_interrupt(r)) {
            return DI_OK; /* what has left its group may hold the pipe for ever */
        }
        if (fds[1].revents != 0) {
            const ssize_t n = write(r->to, arguments->data + written, arguments->size - written);
            written = n >= 0 ? written + (size_t)n : errno == EAGAIN ? written : arguments->size; /* it may not want to read them */
        }
        if (fds[0].revents != 0) {
            char bytes[READ_BYTES];
            const ssize_t n = read(r->from, bytes, sizeof bytes);
            if (n <= 0) {
                close_end(&r->from);
            } else if (!buf_append(result, bytes, (size_t)n)) {
                return err_memory(err, "result of a tool", result->size);
            }
        }
    }
    return DI_OK;
}

/* How the command ended. It may go on after it has closed its output, so that Ctrl-C counts here too: what is waited for is the end of
 * the process or the time to look for one (where the kernel has no pidfd, that alone). */
static int wait_for(running *r)
{
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, r->child, 0), .events = POLLIN};
    int how = 0;
    for (;;) {
        const pid_t ended = waitpid(r->child, &how, WNOHANG);
        if (ended == r->child || (ended < 0 && errno != EINTR)) {
            break;
        }
        (void)pass_interrupt(r);
        (void)poll(&end, 1, POLL_MS);
    }
    close_end(&end.fd);
    return how;
}

static void put_end(buf *result, const char *name, int how)
{
    if (result->size > 0 && result->data[result->size - 1] == '\n') {
        result->data[--result->size] = '\0';
    }
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) {
        return;
    }
    buf_printf(result, "%serror: %s ended with %s %d", result->size > 0 ? "\n" : "", name, WIFEXITED(how) ? "exit code" : "signal",
               WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
}

/* Starts the command with its pipes. */
static di_status start(running *r, const char *command, char **environment, di_error *err)
{
    int in[2] = {-1, -1};
    int out[2] = {-1, -1};
    di_status status = DI_OK;
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || fcntl(in[1], F_SETFL, O_NONBLOCK) != 0) {
        status = err_set_errno(err, errno, "tool command");
    } else {
        const int error = spawn(command, environment, in[0], out[1], &r->child);
        status = error != 0 ? err_set_errno(err, error, "tool command /bin/sh") : DI_OK;
    }
    close_end(&in[0]);
    close_end(&out[1]);
    r->to = in[1];
    r->from = out[0];
    return status;
}

di_status chat_tool_run(const char *command, const char *name, const buf *arguments, buf *result, bool *interrupted, di_error *err)
{
    char *di_tool = NULL;
    char **environment = NULL;
    running r = {.to = -1, .from = -1};
    di_status status;
    *interrupted = false;
    buf_clear(result);
    if (asprintf(&di_tool, "DI_TOOL=%s", name) < 0) {
        return err_memory(err, "environment", strlen(name));
    }
    environment = make_environment(di_tool);
    status = environment != NULL ? start(&r, command, environment, err) : err_memory(err, "environment", strlen(name));
    if (status == DI_OK) {
        status = exchange(&r, arguments, result, err);
        close_end(&r.to);
        close_end(&r.from);
        const int how = wait_for(&r);
        put_end(result, name, how);
        *interrupted = r.interrupted_ns != 0;
    }
    close_end(&r.to);
    close_end(&r.from);
    free(environment);
    free(di_tool);
    return status;
}
