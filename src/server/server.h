/* server.h - a service (deepinfer/chat.h) over HTTP: routes of three APIs, keys and limits, a watch over connections, drain.
 *
 *   srv_open(service, options) -> it serves until srv_close
 *   at the end: srv_drain, srv_wait_idle with a deadline, di_service_cancel_all if it passed, srv_close
 *
 * Threads: a few of libmicrohttpd that read and write (options.threads), one of the admin API, one that watches over all connections
 * (clients that leave, deadlines, signs of life), one that sends traces if they are asked for. The service's own threads only tell a
 * connection that there is something to write. Design: docs/serving.md; sockets of suspended connections are watched in an epoll set
 * of our own because libmicrohttpd looks at none of them. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <deepinfer/chat.h>

/* Opaque; owner: who opened it. All functions may be called from any thread, srv_close by one of them at the end. */
typedef struct srv_server srv_server;

/* All zero is the default; strings and arrays are copied. Times are milliseconds. */
typedef struct srv_options {
    const char *host;       /* numeric address to bind; NULL = "127.0.0.1" */
    int32_t port;           /* 0 = a free one */
    int32_t threads;        /* that read and write connections; 0 = 16: one that wakes costs a walk over all that its thread lets sleep */
    const char *tls_cert;   /* PEM files, both or none; the admin API speaks plain HTTP */
    const char *tls_key;
    bool admin;             /* the admin API is served, on a port of its own */
    const char *admin_host; /* NULL = "127.0.0.1"; another address than loopback needs a key */
    int32_t admin_port;
    const char *admin_key;  /* NULL = none: then requests that come from web pages are refused */

    const char *const *api_keys; /* [n_api_keys]; the i-th has the tenant "key-<i>", counted from 1 */
    size_t n_api_keys;
    const char *api_keys_file;   /* lines `KEY TENANT [rate=N] [concurrency=N] [priority=N]` */
    bool trust_tenant_header;    /* without keys: the header x-tenant names the tenant, as a gateway in front knows it */
    int32_t rate_limit;          /* requests a minute of a key (without keys: of all); 0 = no limit */
    int32_t concurrency_limit;   /* requests of a key at a time; 0 = no limit */
    const char *cors_origin;     /* a web page's origin that may use the API, or "*"; NULL = none */

    int64_t max_body_bytes;   /* of a request; 0 = 32 MiB */
    int64_t max_body_memory;  /* of all bodies that are being read; 0 = 1 GiB */
    int32_t max_header_bytes; /* 0 = 16 KiB */
    int32_t max_connections;  /* 0 = 16,384, or what the limit of open files allows */
    int32_t max_connections_per_address; /* 0 = no limit */
    int32_t header_timeout;   /* from the accept, or the last response, to the end of a request's head; 0 = 60 s */
    int32_t body_timeout;     /* from there to the end of its body; 0 = 120 s */
    int32_t idle_timeout;     /* a connection on which nothing moves; 0 = 60 s */
    int64_t queue_timeout;    /* a call that has not begun (503); 0 = no limit */
    int64_t call_timeout;     /* a call that has not ended (504, or an error event); 0 = no limit */
    int32_t keep_alive;       /* between signs of life in a stream on which nothing comes; 0 = 15 s, as the HTML standard advises */

    const char *access_log;    /* file, or "-" = standard error; NULL = none. A line of JSON for each request */
    const char *otlp_endpoint; /* "http://host:4318/v1/traces"; NULL = no traces */
} srv_options;

/* The service must outlive the server, which takes its calls; nobody else may drain it. `model` is told on /v1/models. Errors:
 * DI_E_ARGUMENT (an option), DI_E_IO (address in use, a file), DI_E_FORMAT (keys, certificate), DI_E_MEMORY. */
di_status srv_open(di_service *service, const srv_options *options, srv_server **out, di_error *err);

/* "http://127.0.0.1:8000", the port as it was bound; NULL for the admin API when it is off. */
const char *srv_url(const srv_server *server);
const char *srv_admin_url(const srv_server *server);

/* From now on /ready is 503 and new calls are refused with 503; what was accepted goes on. */
void srv_drain(srv_server *server);
bool srv_draining(const srv_server *server); /* srv_drain, or the admin API, was asked for it */

/* Waits until no call is left and every answer is written; false when timeout_ms passed before. */
bool srv_wait_idle(srv_server *server, int64_t timeout_ms);

/* The access log's file is opened anew (rotation). */
void srv_reopen_log(srv_server *server);

/* Cuts what is left and ends all threads. NULL is ignored. */
void srv_close(srv_server *server);

#endif
