/* srv_server.c - opens and closes a server; see server.h. The order of the end: no new calls, nothing left to write, connections cut, the
 * watch's thread, the ports, and then what they all used. */
#include "server/srv_int.h"

#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MIB (INT64_C(1) << 20)
enum {
    DEFAULT_CONNECTIONS = 16384,
    SPARE_FILES = 128, /* of the process: model, logs, listening sockets, the admin API */
    MOST_CONNECTIONS = 1 << 20
};

/* --- Options --------------------------------------------------------------------------------------------------------------- */

static void set_default(int32_t *value, int32_t fallback)
{
    if (*value == 0) {
        *value = fallback;
    }
}

static di_status check_connections(srv_options *o, di_error *err)
{
    struct rlimit files;
    const int32_t asked = o->max_connections;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return err_set_errno(err, errno, "the limit of open files");
    }
    const int64_t room = files.rlim_cur == RLIM_INFINITY || files.rlim_cur > MOST_CONNECTIONS
                             ? MOST_CONNECTIONS
                             : (int64_t)files.rlim_cur - SPARE_FILES;
    if (room < 1 || asked > room) {
        return err_set(err, DI_E_ARGUMENT, "max_connections %d: the limit of open files leaves %lld (see `ulimit -n`)", asked,
                       (long long)(room > 0 ? room : 0));
    }
    o->max_connections = asked > 0 ? asked : room < DEFAULT_CONNECTIONS ? (int32_t)room : DEFAULT_CONNECTIONS;
    return DI_OK;
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

static di_status check_options(srv_options *o, di_error *err)
{
    o->host = o->host != NULL ? o->host : "127.0.0.1";
    o->admin_host = o->admin_host != NULL ? o->admin_host : "127.0.0.1";
    o->max_body_bytes = o->max_body_bytes > 0 ? o->max_body_bytes : 32 * MIB;
    o->max_body_memory = o->max_body_memory > 0 ? o->max_body_memory : 1024 * MIB;
    set_default(&o->threads, 16);
    set_default(&o->max_header_bytes, 16384);
    set_default(&o->header_timeout, 60000);
    set_default(&o->body_timeout, 120000);
    set_default(&o->idle_timeout, 60000);
    set_default(&o->keep_alive, 15000);
    if (o->port < 0 || o->port > 65535 || o->admin_port < 0 || o->admin_port > 65535) {
        return err_set(err, DI_E_ARGUMENT, "a port is a number from 0 to 65535");
    }
    if (o->threads < 1 || o->threads > 256 || o->max_header_bytes < 1024 || o->max_header_bytes > 1 << 20 || o->header_timeout < 1 ||
        o->body_timeout < 1 || o->idle_timeout < 1 || o->keep_alive < 1 || o->max_connections < 0 ||
        o->max_connections_per_address < 0 || o->rate_limit < 0 || o->concurrency_limit < 0) {
        return err_set(err, DI_E_ARGUMENT, "a number of the server's options is out of its range");
    }
    if ((o->tls_cert != NULL) != (o->tls_key != NULL)) {
        return err_set(err, DI_E_ARGUMENT, "TLS needs both a certificate and its key");
    }
    if (o->admin && o->admin_key == NULL && !is_loopback(o->admin_host)) {
        return err_set(err, DI_E_ARGUMENT, "the admin API on %s needs a key: only on a loopback address it may go without", o->admin_host);
    }
    return check_connections(o, err);
}

/* --- Open -------------------------------------------------------------------------------------------------------------------- */

static di_status init(srv_server *server, di_service *service, const srv_options *options, di_error *err)
{
    pthread_condattr_t monotonic;
    server->service = service;
    server->options = *options;
    server->started_at = (int64_t)time(NULL);
    server->watch.epoll_fd = -1;
    server->watch.wake_fd = -1;
    server->api.server = server;
    server->admin.server = server;
    server->admin.is_admin = true;
    server->api.routes = srv_api_routes(&server->api.n_routes);
    server->admin.routes = srv_admin_routes(&server->admin.n_routes);
    pthread_mutex_init(&server->watch.lock, NULL);
    pthread_mutex_init(&server->active_lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->active_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    server->options.cors_origin = NULL;
    const di_status status = check_options(&server->options, err);
    if (status != DI_OK || options->cors_origin == NULL) {
        return status;
    }
    server->options.cors_origin = strdup(options->cors_origin);
    return server->options.cors_origin != NULL ? DI_OK : err_memory(err, "an origin", strlen(options->cors_origin) + 1);
}

static di_status open_keys(srv_server *server, di_error *err)
{
    const srv_options *const o = &server->options;
    const srv_key_defaults limits = {.rate = o->rate_limit, .concurrency = o->concurrency_limit};
    server->everybody.rate = limits.rate;
    server->everybody.concurrency = limits.concurrency;
    di_status status = srv_keys_open(&server->keys, o->api_keys, o->n_api_keys, o->api_keys_file, limits, err);
    if (status == DI_OK && o->admin_key != NULL) {
        status = srv_keys_open(&server->admin_keys, &o->admin_key, 1, NULL, (srv_key_defaults){.rate = 0}, err);
    }
    return status;
}

static di_status open_log(srv_server *server, di_error *err)
{
    const char *const path = server->options.access_log;
    if (path == NULL) {
        return DI_OK;
    }
    const bool to_stderr = strcmp(path, "-") == 0;
    const log_options log = {.path = to_stderr ? NULL : path, .fd = STDERR_FILENO, .level = LOG_LEVEL_INFO};
    return log_open(&log, &server->log, err);
}

/* Strings of the caller are not kept behind srv_open. */
static void forget_strings(srv_options *o)
{
    o->host = o->admin_host = o->tls_key = o->admin_key = o->api_keys_file = o->access_log = o->otlp_endpoint = NULL;
    o->api_keys = NULL;
    o->tls_cert = o->tls_cert != NULL ? "" : NULL; /* still says whether there is TLS */
}

di_status srv_open(di_service *service, const srv_options *options, srv_server **out, di_error *err)
{
    enum { ADMIN_SLOTS = 256 };
    srv_server *const server = ar_calloc(1, sizeof *server);
    if (server == NULL) {
        return err_memory(err, "a server", sizeof *server);
    }
    di_status status = init(server, service, options, err);
    if (status == DI_OK) {
        server->out_of_memory = srv_answer_out_of_memory();
        status = server->out_of_memory != NULL ? srv_metrics_open(&server->metrics, err) : err_memory(err, "a server", 1024);
    }
    if (status == DI_OK) {
        status = open_keys(server, err);
    }
    if (status == DI_OK) {
        status = open_log(server, err);
    }
    if (status == DI_OK && options->otlp_endpoint != NULL) {
        status = srv_otlp_open(options->otlp_endpoint, &server->otlp, err);
    }
    if (status == DI_OK) {
        status = srv_watch_open(server, (uint32_t)server->options.max_connections + ADMIN_SLOTS, err);
    }
    if (status == DI_OK && options->admin) {
        status = srv_listen(&server->admin, &server->options, err);
    }
    if (status == DI_OK) {
        status = srv_listen(&server->api, &server->options, err);
    }
    forget_strings(&server->options);
    if (status != DI_OK) {
        srv_close(server);
        return status;
    }
    *out = server;
    return DI_OK;
}

const char *srv_url(const srv_server *server)
{
    return server->api.url;
}

const char *srv_admin_url(const srv_server *server)
{
    return server->admin.daemon != NULL ? server->admin.url : NULL;
}

/* --- End ----------------------------------------------------------------------------------------------------------------------- */

void srv_drain(srv_server *server)
{
    atomic_store(&server->draining, true);
    di_service_drain(server->service);
}

bool srv_draining(const srv_server *server)
{
    return atomic_load(&server->draining);
}

bool srv_wait_idle(srv_server *server, int64_t timeout_ms)
{
    const int64_t end = clock_now_ns() + timeout_ms * 1000000;
    const struct timespec until = {.tv_sec = (time_t)(end / 1000000000), .tv_nsec = (long)(end % 1000000000)};
    int waited = 0;
    pthread_mutex_lock(&server->active_lock);
    while (server->n_active > 0 && waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&server->active_changed, &server->active_lock, &until);
    }
    const bool idle = server->n_active == 0;
    pthread_mutex_unlock(&server->active_lock);
    return idle && di_service_pending(server->service) == 0;
}

void srv_reopen_log(srv_server *server)
{
    if (server->log != NULL) {
        log_reopen(server->log);
    }
}

/* No connection may sleep when the library stops: once `stopping` is set none goes to sleep any more. */
static void end_calls(srv_server *server)
{
    atomic_store(&server->stopping, true);
    srv_watch_cut_all(server);
    pthread_mutex_lock(&server->active_lock);
    while (server->n_active > 0) {
        pthread_cond_wait(&server->active_changed, &server->active_lock);
    }
    pthread_mutex_unlock(&server->active_lock);
}

void srv_close(srv_server *server)
{
    if (server == NULL) {
        return;
    }
    if (server->api.daemon != NULL || server->admin.daemon != NULL) {
        end_calls(server);
    }
    if (server->watch.running) {
        srv_watch_stop(server);
    }
    srv_http_stop(&server->api);
    srv_http_stop(&server->admin);
    srv_watch_fini(server);
    srv_otlp_close(server->otlp);
    log_close(server->log);
    srv_metrics_close(server->metrics);
    srv_keys_fini(&server->keys);
    srv_keys_fini(&server->admin_keys);
    srv_answer_free(server->out_of_memory);
    pthread_mutex_destroy(&server->watch.lock);
    pthread_mutex_destroy(&server->active_lock);
    pthread_cond_destroy(&server->active_changed);
    free((void *)(uintptr_t)server->options.cors_origin);
    free(server);
}
