/* srv_http.c - requests out of libmicrohttpd and answers into it; with srv_answer.c the only file that knows the
 * library.
 *
 * Invariant: a connection that sleeps (is suspended) is woken exactly once, by whoever takes r->asleep away under r->lock. While it
 * sleeps the library touches neither it nor the request, so a waker may use both until it has resumed it. */
#include "server/srv_int.h"

#include <microhttpd.h>

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *srv_http_header(const srv_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

typedef struct name_count {
    const char *name;
    size_t n;
} name_count;

static enum MHD_Result count_name(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    name_count *const count = cls;
    (void)kind;
    (void)value;
    count->n += strcasecmp(name, count->name) == 0;
    return MHD_YES;
}

size_t srv_http_count_header(const srv_request *r, const char *name)
{
    name_count count = {.name = name};
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_name, &count);
    return count.n;
}

size_t srv_http_head_bytes(const srv_request *r)
{
    const union MHD_ConnectionInfo *const info = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info != NULL ? info->header_size : 0;
}

bool srv_http_basic_password(const srv_request *r, char *out, size_t capacity)
{
    char *password = NULL;
    char *const user = MHD_basic_auth_get_username_password(r->connection, &password);
    const bool found = user != NULL && password != NULL && strlen(password) < capacity;
    if (found) {
        snprintf(out, capacity, "%s", password);
    }
    MHD_free(user);
    MHD_free(password);
    return found;
}

/* --- Sleep ------------------------------------------------------------------------------------------------------------------ */

bool srv_http_sleep(srv_request *r)
{
    pthread_mutex_lock(&r->lock);
    const bool sleeps = !r->signalled && !srv_request_gone(r);
    if (sleeps) {
        r->asleep = true;
        MHD_suspend_connection(r->connection);
    }
    pthread_mutex_unlock(&r->lock);
    return sleeps;
}

void srv_http_wake(srv_request *r)
{
    struct MHD_Connection *const connection = r->connection;
    pthread_mutex_lock(&r->lock);
    const bool was_asleep = r->asleep;
    r->asleep = false;
    r->signalled = true;
    pthread_mutex_unlock(&r->lock);
    if (was_asleep) {
        MHD_resume_connection(connection);
    }
}

/* --- Requests --------------------------------------------------------------------------------------------------------------- */

static srv_conn *conn_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

static enum MHD_Result result(bool goes_on)
{
    return goes_on ? MHD_YES : MHD_NO;
}

/* A request to a proxy names its server too (`GET http://host/path`), and must be understood: RFC 9112, 3.2.2. */
static const char *path_of(const char *target)
{
    const char *const authority = strncasecmp(target, "http://", 7) == 0    ? target + 7
                                  : strncasecmp(target, "https://", 8) == 0 ? target + 8
                                                                            : NULL;
    if (authority == NULL) {
        return target;
    }
    const char *const path = strchr(authority, '/');
    return path != NULL ? path : "/";
}

static enum MHD_Result begin(const srv_listener *listener, struct MHD_Connection *connection, const char *path, const char *method,
                             const char *version, void **state)
{
    srv_conn *const conn = conn_of(connection);
    srv_request *const r = conn != NULL ? srv_request_new(listener, connection, conn, path, method) : NULL;
    if (r == NULL) {
        srv_metrics_refused(listener->server->metrics, "memory");
        return MHD_queue_response(connection, MHD_HTTP_SERVICE_UNAVAILABLE, listener->server->out_of_memory);
    }
    *state = r;
    r->needs_host = strcmp(version, MHD_HTTP_VERSION_1_1) == 0;
    srv_request_head(r, path);
    return result(!srv_request_refused_early(r) || srv_request_run(r));
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *connection, const char *path, const char *method,
                                 const char *version, const char *data, size_t *n, void **state)
{
    srv_request *const r = *state;
    if (r == NULL) {
        return begin(cls, connection, path_of(path), method, version, state);
    }
    if (*n > 0) {
        const size_t size = *n;
        *n = 0;
        return result(srv_request_body(r, data, size));
    }
    return result(srv_request_run(r));
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode how)
{
    (void)cls;
    (void)connection;
    srv_request *const r = *state;
    *state = NULL;
    if (r != NULL) {
        srv_request_end(r, how != MHD_REQUEST_TERMINATED_COMPLETED_OK);
    }
}

/* --- Connections --------------------------------------------------------------------------------------------------------------- */

static void write_address(const struct sockaddr *address, char *out, size_t capacity)
{
    const socklen_t size = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    char port[8];
    if (getnameinfo(address, size, out, (socklen_t)capacity, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, capacity, "unknown");
    }
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **context, enum MHD_ConnectionNotificationCode what)
{
    const srv_listener *const listener = cls;
    srv_server *const server = listener->server;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        srv_metrics_event(server->metrics, SRV_E_CONNECTION_ENDED);
        if (*context != NULL) {
            srv_watch_remove(server, *context);
        }
        return;
    }
    srv_metrics_event(server->metrics, SRV_E_CONNECTION);
    const union MHD_ConnectionInfo *const socket = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int fd = socket != NULL ? socket->connect_fd : -1;
    const union MHD_ConnectionInfo *const client = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char address[64] = "unknown";
    if (client != NULL) {
        write_address(client->client_addr, address, sizeof address);
    }
    *context = srv_watch_add(server, fd, address);
}

/* The library tells by its log alone what it answers or refuses by itself. */
static void on_log(void *cls, const char *format, va_list list)
{
    srv_listener *const listener = cls;
    if (listener->starting) {
        vsnprintf(listener->trouble, sizeof listener->trouble, format, list);
    } else if (strncmp(format, "Error processing request", 24) == 0) {
        srv_metrics_event(listener->server->metrics, SRV_E_MALFORMED);
    } else if (strncmp(format, "Server reached connection limit", 31) == 0) {
        srv_metrics_event(listener->server->metrics, SRV_E_CONNECTION_REFUSED);
    }
}

bool srv_http_start(srv_listener *listener, int fd, const srv_http_options *o)
{
    struct MHD_OptionItem more[8];
    size_t n = 0;
    if (o->threads > 1) {
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, o->threads, NULL};
    }
    if (o->per_address > 0) {
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_PER_IP_CONNECTION_LIMIT, o->per_address, NULL};
    }
    if (o->cert != NULL) {
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)o->cert};
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)o->key};
    }
    more[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    listener->starting = true;
    listener->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (o->cert != NULL ? MHD_USE_TLS : 0), 0, NULL,
        NULL, on_access, listener, MHD_OPTION_EXTERNAL_LOGGER, on_log, listener, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned int)o->max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->memory,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)o->idle_timeout_s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, listener,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, listener, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
    listener->starting = false;
    return listener->daemon != NULL;
}

void srv_http_stop(srv_listener *listener)
{
    if (listener->daemon != NULL) {
        MHD_stop_daemon(listener->daemon);
        listener->daemon = NULL;
    }
}
