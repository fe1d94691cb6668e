/* srv_int.h - what the files of the room share: a server, its connections, one request. Private.
 *
 * The way of a request, all of it on the thread of its connection:
 *   srv_request_new -> srv_request_head (key, route, method, sizes) -> srv_request_body* -> srv_request_run -> srv_request_end
 * A page is answered in srv_request_run. A call goes to the service there, and the connection sleeps; srv_http_wake, from a thread of the
 * service or of the watch, lets srv_request_run look again, and once there is a status the answer is sent: read by read (srv_call_read)
 * from the call's output, asleep in between.
 *
 * Locks, in this order: the watch's (which connection has which request), a request's (asleep or not), libmicrohttpd's own. di_call_free
 * is called with none of them, because it waits for a running srv_http_wake. */
#ifndef SERVER_SRV_INT_H
#define SERVER_SRV_INT_H

#include "core/buf.h"
#include "core/log.h"
#include "server/server.h"
#include "server/srv_auth.h"
#include "server/srv_trace.h"

#include <pthread.h>

struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;

typedef struct srv_request srv_request;
typedef struct srv_otlp srv_otlp;
typedef struct srv_metrics srv_metrics;

#define SRV_MAX_ID_BYTES 128
#define SRV_MAX_WHY_BYTES 256
#define SRV_RETRY_AFTER_S 1 /* when nobody knows better */

/* So much of a body that is not wanted is read to its end, so that its sender sees the answer and not a reset connection. */
#define SRV_MAX_SKIPPED_BYTES (INT64_C(256) << 20)

/* --- Routes (srv_route.c, srv_admin.c) -------------------------------------------------------------------------------------- */

enum { SRV_GET = 1, SRV_HEAD = 2, SRV_POST = 4, SRV_OPTIONS = 8 }; /* bits; GET implies HEAD, everything has OPTIONS */

typedef struct srv_route {
    const char *path;
    const char *label; /* in the log, metrics and traces */
    int methods;
    bool (*page)(srv_request *r); /* answers at once; NULL = a call of the service */
    di_route call;
    di_protocol errors; /* in whose words it refuses */
    bool open;          /* needs no key */
    bool rest;          /* everything that begins with the path */
} srv_route;

/* NULL when there is none; *rest is what stands behind the path. */
const srv_route *srv_route_find(const srv_route *routes, size_t n, const char *path, const char **rest);
const srv_route *srv_api_routes(size_t *n);
const srv_route *srv_admin_routes(size_t *n);
extern const srv_route srv_no_route; /* of requests for a path that is not there */

/* --- A server ------------------------------------------------------------------------------------------------------------------ */

/* One port. */
typedef struct srv_listener {
    struct srv_server *server;
    struct MHD_Daemon *daemon; /* NULL = not served */
    const srv_route *routes;
    size_t n_routes;
    bool is_admin;
    atomic_bool starting; /* trouble is told to who starts it */
    char trouble[256];
    char url[96];
} srv_listener;

/* One TCP connection. Owner: the watch; made and freed on the connection's thread. */
typedef struct srv_conn {
    int fd;
    uint32_t slot;
    char address[64];
    /* under the watch's lock */
    bool in_set;          /* of the watch's epoll */
    bool hung_up;         /* the client has closed at least its side */
    srv_request *request; /* the one that is being read or answered */
    int64_t idle_since;   /* without a request */
} srv_conn;

typedef struct srv_slot {
    srv_conn *conn;
    uint32_t generation; /* an event of an earlier connection in the same place is told by it */
    uint32_t next_free;
} srv_slot;

typedef struct srv_watch {
    pthread_t thread;
    bool running;
    int epoll_fd;
    int wake_fd;
    int tick_ms;
    pthread_mutex_t lock;
    /* under the lock */
    bool stop;
    srv_slot *slots; /* [n_slots], those below n_used were used at some time */
    uint32_t n_slots;
    uint32_t n_used;
    uint32_t first_free;
    uint32_t next_scan; /* slot where the next step of the walk begins */
} srv_watch;

struct srv_server {
    di_service *service;
    srv_options options; /* defaults filled in; of the strings only cors_origin, owned, is kept */
    srv_keys keys;
    srv_keys admin_keys; /* one or none */
    srv_limit everybody; /* without keys */
    srv_listener api;
    srv_listener admin;
    srv_watch watch;
    srv_metrics *metrics;
    log_sink *log;
    srv_otlp *otlp;
    struct MHD_Response *out_of_memory; /* ready made, for when nothing can be made */
    int64_t started_at;                 /* Unix seconds */
    atomic_bool draining;
    atomic_bool stopping;
    _Atomic int64_t body_memory;
    pthread_mutex_t active_lock;
    pthread_cond_t active_changed;
    int64_t n_active; /* calls that are not answered to the end; under active_lock */
};

/* --- A request ------------------------------------------------------------------------------------------------------------------ */

/* Owner: its connection's thread, which alone touches what has no other note. */
struct srv_request {
    srv_server *server;
    const srv_listener *listener;
    struct MHD_Connection *connection;
    srv_conn *conn;
    const srv_route *route; /* never NULL */
    const char *rest;       /* of the path, behind the route's; borrowed from the connection */
    int method;             /* a bit, 0 = any other */
    char id[SRV_MAX_ID_BYTES + 1];
    char tenant[SRV_MAX_TENANT_BYTES + 1];
    int32_t priority;
    srv_limit *limit; /* that holds for it; NULL once it has left it */
    srv_trace trace;

    int refusal;             /* HTTP status, 0 = none so far */
    const char *refusal_why; /* for metrics, static */
    char why[SRV_MAX_WHY_BYTES];
    int32_t retry_after_s;

    buf body;
    size_t body_counted; /* of it in server->body_memory */
    uint64_t n_received;
    bool needs_host; /* HTTP/1.1 */
    bool has_body;
    bool must_close; /* what follows is not read: the answer comes at once and ends the connection */

    di_call *call;       /* also read by the watch, under its lock */
    bool has_left;       /* the watch saw the client leave; under its lock, as the next one */
    di_call_phase left_in;
    int status;          /* of the answer, 0 = none was begun; 408 is set by the watch, which won `reading` */
    bool out_of_flight;  /* not counted any more as one that is read or answered */
    bool complete;       /* a stream was read to its end */
    uint64_t n_sent;     /* bytes of the answer's body */
    int64_t started_at;  /* CLOCK_MONOTONIC ns: head read */
    int64_t body_at;     /* body read */
    int64_t answered_at; /* status known */

    atomic_bool reading;   /* the body comes */
    atomic_bool streaming; /* server-sent events go out */
    atomic_bool gone;      /* the client left, or was cut */
    _Atomic int64_t last_sent;
    pthread_mutex_t lock;
    /* under the lock */
    bool asleep;     /* its connection is suspended */
    bool signalled;  /* something came since the last look */
    bool sign_of_life; /* is due */
};

/* srv_request.c. The handlers return false when the connection is to be cut. */
srv_request *srv_request_new(const srv_listener *listener, struct MHD_Connection *connection, srv_conn *conn, const char *path,
                             const char *method);
void srv_request_head(srv_request *r, const char *path);
bool srv_request_refused_early(const srv_request *r); /* answer now: the body is not worth reading */
bool srv_request_body(srv_request *r, const char *data, size_t n);
bool srv_request_run(srv_request *r);
void srv_request_end(srv_request *r, bool cut); /* and frees it; `cut`: the answer did not get through */

/* The first refusal of a request counts. `reason` is a static word for the metrics. */
void srv_refuse(srv_request *r, int status, const char *reason, const char *format, ...) __attribute__((format(printf, 4, 5)));

bool srv_request_gone(const srv_request *r);

/* srv_head.c: what is checked before the body is read. */
void srv_check_key(srv_request *r);
void srv_check_head(srv_request *r, const char *path);

/* --- HTTP (srv_http.c and srv_answer.c wrap libmicrohttpd, srv_listen.c opens ports) ------------------------------------------------ */

const char *srv_http_header(const srv_request *r, const char *name);
bool srv_http_basic_password(const srv_request *r, char *out, size_t capacity);
size_t srv_http_count_header(const srv_request *r, const char *name);
size_t srv_http_head_bytes(const srv_request *r);

/* Puts the connection to sleep unless something has come since r->signalled was cleared; false then. On its thread. */
bool srv_http_sleep(srv_request *r);
/* Any thread, while the request is attached to its connection or its call. */
void srv_http_wake(srv_request *r);

typedef struct srv_http_options {
    int32_t threads;
    int32_t max_connections;
    int32_t per_address; /* 0 = no limit */
    int32_t idle_timeout_s;
    size_t memory;       /* of a connection: head, and what is being sent */
    const char *cert;    /* PEM text; NULL = plain HTTP */
    const char *key;
} srv_http_options;

/* Serves a listening socket, which it takes. False: listener->trouble may say why. */
bool srv_http_start(srv_listener *listener, int fd, const srv_http_options *options);
void srv_http_stop(srv_listener *listener);

di_status srv_listen(srv_listener *listener, const srv_options *options, di_error *err);

typedef enum srv_storage { SRV_STATIC, SRV_COPIED, SRV_OWNED } srv_storage; /* SRV_OWNED: malloc'ed, freed in any case */

/* False when the connection is to be cut. */
bool srv_http_answer(srv_request *r, int status, const char *type, const char *body, size_t n, srv_storage storage);
/* The body comes from srv_call_read; n = its length, or SRV_UNKNOWN. */
#define SRV_UNKNOWN UINT64_MAX
bool srv_http_answer_call(srv_request *r, int status, const char *type, uint64_t n);
bool srv_http_out_of_memory(srv_request *r);
struct MHD_Response *srv_answer_out_of_memory(void);
void srv_answer_free(struct MHD_Response *response);

/* --- Answers (srv_reply.c) ------------------------------------------------------------------------------------------------------- */

bool srv_reply_error(srv_request *r, int status, const char *message);
bool srv_reply_json(srv_request *r, buf *json); /* takes its memory */
bool srv_reply_options(srv_request *r);
size_t srv_methods_text(int methods, char *out, size_t capacity); /* "GET, HEAD, OPTIONS" */

/* --- Calls (srv_call.c) ------------------------------------------------------------------------------------------------------------ */

bool srv_call_start(srv_request *r);
bool srv_call_look(srv_request *r); /* woken: answer if the status is known, else sleep again */

enum { SRV_READ_ASLEEP = 0, SRV_READ_END = -1, SRV_READ_CUT = -2 };
ptrdiff_t srv_call_read(srv_request *r, char *out, size_t capacity);

/* --- The watch (srv_watch.c) --------------------------------------------------------------------------------------------------------- */

di_status srv_watch_open(srv_server *server, uint32_t max_conns, di_error *err);
void srv_watch_stop(srv_server *server); /* its thread; connections may still end */
void srv_watch_fini(srv_server *server);
srv_conn *srv_watch_add(srv_server *server, int fd, const char *address); /* NULL: no memory */
void srv_watch_remove(srv_server *server, srv_conn *conn);
void srv_watch_begin(srv_request *r);
void srv_watch_call(srv_request *r, di_call *call); /* from now on a leaving client cancels it */
void srv_watch_end(srv_request *r);
void srv_watch_cut_all(srv_server *server);
void srv_cut(srv_request *r); /* ends a connection that is stuck in writing; any thread, while the request is attached */

/* --- Figures and traces --------------------------------------------------------------------------------------------------------------- */

typedef enum srv_event {
    SRV_E_CONNECTION,       /* accepted */
    SRV_E_CONNECTION_ENDED,
    SRV_E_CONNECTION_REFUSED,
    SRV_E_MALFORMED,        /* libmicrohttpd answered by itself */
    SRV_E_SIGN_OF_LIFE,
    SRV_E_DROPPED_SLOW,     /* a reader that was too slow */
    SRV_E_TIMED_OUT         /* head or body took too long */
} srv_event;

di_status srv_metrics_open(srv_metrics **out, di_error *err);
void srv_metrics_close(srv_metrics *m);
void srv_metrics_event(srv_metrics *m, srv_event event);
void srv_metrics_refused(srv_metrics *m, const char *reason);
void srv_metrics_left(srv_metrics *m, const char *phase);
void srv_metrics_begun(srv_metrics *m, int change); /* requests in flight */
void srv_metrics_ended(srv_metrics *m, const srv_request *r, int64_t now);
void srv_metrics_write(srv_server *server, buf *page);

void srv_log_request(srv_request *r, const di_call_info *info, const char *left, int64_t now);

di_status srv_otlp_open(const char *endpoint, srv_otlp **out, di_error *err);
void srv_otlp_close(srv_otlp *otlp);
void srv_otlp_request(srv_otlp *otlp, const srv_request *r, const di_call_info *info, int64_t now);
uint64_t srv_otlp_dropped(const srv_otlp *otlp); /* spans; 0 for NULL */
uint64_t srv_otlp_sent(const srv_otlp *otlp);

/* --- Pages (srv_pages.c, srv_admin.c) ----------------------------------------------------------------------------------------------- */

bool srv_page_models(srv_request *r);
bool srv_page_model(srv_request *r);
bool srv_page_health(srv_request *r);
bool srv_page_ready(srv_request *r);
bool srv_page_metrics(srv_request *r);
bool srv_page_openapi(srv_request *r);
bool srv_page_console(srv_request *r);

/* Texts that cmake/embed.cmake makes of docs/openapi.json and console/index.html. */
extern const char srv_openapi_text[];
extern const size_t srv_openapi_size;
extern const char srv_console_text[];
extern const size_t srv_console_size;

#endif
