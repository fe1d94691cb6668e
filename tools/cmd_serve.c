/* cmd_serve.c - `deepinfer serve`: opens a model, a service over it and a server in front, says where, and waits for a signal.
 *
 * SIGTERM or SIGINT drains: new requests are refused, accepted ones go on for --drain-seconds and are then cancelled, each with the end
 * that its API has for that. A second one of these signals stops at once. SIGHUP opens the access log anew. Signals are blocked in all
 * threads and waited for here, so there is no handler. */
#include "open.h"
#include "options.h"
#include "serve_options.h"
#include "tools.h"

#include "core/core.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LAST_WORDS_MS = 5000 }; /* behind a cancellation, for the ends to be written */

typedef struct serving {
    serve_options options;
    di_model *model;
    di_service *service;
    srv_server *server;
    sigset_t signals;
} serving;

static const char help[] =
    "Serve a model over HTTP: /v1/chat/completions, /v1/responses, /v1/messages, /v1/completions and more.\v"
    "One line on standard output says where it serves once it does. SIGTERM finishes what was accepted (--drain-seconds) and ends with "
    "0; a second one stops at once. SIGHUP opens the access log anew. With keys every route but /health needs one. docs/serving.md has "
    "routes, limits and metrics.";

static di_status open_all(serving *s, di_error *err)
{
    di_service_options service;
    srv_options server;
    serve_get_service(&s->options, &service);
    serve_get_server(&s->options, &server);
    di_status status = cli_open_model(s->options.engine.model, &s->model, err);
    if (status != DI_OK) {
        return status;
    }
    status = cli_find_draft(&s->options.draft, s->model, err);
    if (status != DI_OK) {
        return status;
    }
    const di_tokenizer *const tokenizer = di_model_tokenizer(s->model);
    if (tokenizer == NULL) {
        return err_set(err, DI_E_UNSUPPORTED, "this model has no tokenizer.json, without which there is nothing to serve");
    }
    status = di_service_open(s->model, tokenizer, &service, &s->service, err);
    if (status != DI_OK) {
        return status;
    }
    di_service_stats stats;
    di_service_get_stats(s->service, &stats);
    cli_say_weights(&stats.weights);
    return srv_open(s->service, &server, &s->server, err);
}

static void close_all(serving *s)
{
    srv_close(s->server);
    di_service_close(s->service);
    di_model_close(s->model);
}

/* The first line of standard output; scripts wait for it. */
static di_status say_ready(const serving *s, di_error *err)
{
    const char *const name = di_service_model_name(s->service);
    const char *const url = srv_url(s->server);
    const char *const admin = srv_admin_url(s->server);
    buf line;
    buf_init(&line, SIZE_MAX);
    if (s->options.json) {
        buf_printf(&line, "{\"url\":\"%s\",", url);
        if (admin != NULL) {
            buf_printf(&line, "\"admin_url\":\"%s\",", admin);
        }
        buf_puts(&line, "\"model\":");
        buf_json_string(&line, name, strlen(name));
        buf_puts(&line, "}");
    } else {
        buf_printf(&line, "%s is served at %s%s%s", name, url, admin != NULL ? ", its admin API at " : "", admin != NULL ? admin : "");
    }
    const bool written = !line.failed && printf("%s\n", line.data) > 0 && fflush(stdout) == 0;
    buf_fini(&line);
    return written ? DI_OK : err_set(err, DI_E_IO, "standard output takes no line");
}

/* The next signal within the time, 0 = none; -1 waits without limit. */
static int next_signal(const serving *s, int64_t milliseconds)
{
    const struct timespec time = {.tv_sec = (time_t)(milliseconds / 1000), .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    const int number = milliseconds < 0 ? sigwaitinfo(&s->signals, NULL) : sigtimedwait(&s->signals, NULL, &time);
    if (number == SIGHUP) {
        srv_reopen_log(s->server);
        return 0;
    }
    return number > 0 ? number : 0;
}

/* The exit code. */
static int drain(serving *s)
{
    enum { LOOK_MS = 20 };
    int64_t end = clock_now_ns() + (int64_t)(s->options.drain_seconds * 1e9);
    bool cancelled = false;
    srv_drain(s->server);
    while (!srv_wait_idle(s->server, 0)) {
        const int number = next_signal(s, LOOK_MS);
        if (number != 0) {
            fprintf(stderr, "deepinfer: stopped by a second signal, %lld requests were not finished\n",
                    (long long)di_service_pending(s->service));
            return 128 + number;
        }
        if (clock_now_ns() >= end && cancelled) {
            break;
        }
        if (clock_now_ns() >= end) {
            fprintf(stderr, "deepinfer: %lld requests did not end within %g seconds and are cancelled\n",
                    (long long)di_service_pending(s->service), s->options.drain_seconds);
            di_service_cancel_all(s->service);
            cancelled = true;
            end = clock_now_ns() + (int64_t)LAST_WORDS_MS * 1000000;
        }
    }
    return CLI_OK;
}

/* A connection is a file: as many as the system lets us have. */
static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int cmd_serve(int argc, char **argv)
{
    serving s = {.model = NULL};
    cli_parser p;
    char **args;
    size_t n_args;
    di_error err;
    serve_options_init(&s.options);
    cli_parser_init(&p, "", 0, 0, help);
    serve_add_options(&p, &s.options);
    cli_parse(&p, argc, argv, &args, &n_args);
    int code = serve_check_options(&p, &s.options);
    if (code != CLI_OK) {
        return code;
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe or connection is an error of the next write */
    sigemptyset(&s.signals);
    sigaddset(&s.signals, SIGTERM);
    sigaddset(&s.signals, SIGINT);
    sigaddset(&s.signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &s.signals, NULL);
    raise_file_limit();
    if (open_all(&s, &err) != DI_OK || say_ready(&s, &err) != DI_OK) {
        code = cli_fail(&err);
    } else {
        while (next_signal(&s, -1) == 0) {
        }
        code = drain(&s);
    }
    close_all(&s);
    return code;
}
