/* srv_watch.c - one thread that sees what libmicrohttpd does not: clients that leave while their connection sleeps, streams on which
 * nothing comes, heads and bodies that take too long.
 *
 * Each connection is in an epoll set of ours, asked for nothing but its end (EPOLLRDHUP, once). A client that closes only its sending
 * side has left as well: none that speaks these APIs does that. An event names a slot and the generation of its connection, so one that
 * was under way while the connection went is recognised. A call is cancelled at once; a connection without one is the library's to close,
 * but it overlooks an end that comes together with data, so the walk sees to it. That walk over all slots, some times a second, also
 * finds what is due, so that no list has to be kept in order. With many connections it goes in small steps: a burst of signs of life
 * would hold up the tokens of those who are served. */
#include "server/srv_int.h"

#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define NO_SLOT UINT32_MAX
#define WAKE_EVENT UINT64_MAX
enum { MAX_EVENTS = 256, MIN_TICK_MS = 10, MAX_TICK_MS = 250, MIN_STEP_MS = 2, SLOTS_A_STEP = 64, MIN_SIGNS_A_STEP = 2, STUCK_MS = 1000 };

/* --- Connections and their requests ---------------------------------------------------------------------------------------- */

srv_conn *srv_watch_add(srv_server *server, int fd, const char *address)
{
    srv_watch *const w = &server->watch;
    srv_conn *const conn = ar_calloc(1, sizeof *conn);
    if (conn == NULL) {
        return NULL;
    }
    conn->fd = fd;
    conn->idle_since = clock_now_ns();
    snprintf(conn->address, sizeof conn->address, "%s", address);
    pthread_mutex_lock(&w->lock);
    const uint32_t slot = w->first_free != NO_SLOT ? w->first_free : w->n_used < w->n_slots ? w->n_used : NO_SLOT;
    if (slot != NO_SLOT) {
        if (slot == w->first_free) {
            w->first_free = w->slots[slot].next_free;
        } else {
            w->n_used++;
        }
        conn->slot = slot;
        w->slots[slot].conn = conn;
        w->slots[slot].generation++;
        struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT,
                                    .data.u64 = (uint64_t)w->slots[slot].generation << 32 | slot};
        conn->in_set = epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
    }
    pthread_mutex_unlock(&w->lock);
    if (slot == NO_SLOT) {
        free(conn);
        return NULL;
    }
    return conn;
}

void srv_watch_remove(srv_server *server, srv_conn *conn)
{
    srv_watch *const w = &server->watch;
    pthread_mutex_lock(&w->lock);
    if (conn->in_set) {
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    }
    w->slots[conn->slot].conn = NULL;
    w->slots[conn->slot].next_free = w->first_free;
    w->first_free = conn->slot;
    pthread_mutex_unlock(&w->lock);
    free(conn);
}

void srv_watch_begin(srv_request *r)
{
    pthread_mutex_lock(&r->server->watch.lock);
    r->conn->request = r;
    pthread_mutex_unlock(&r->server->watch.lock);
}

void srv_watch_end(srv_request *r)
{
    pthread_mutex_lock(&r->server->watch.lock);
    r->conn->request = NULL;
    r->conn->idle_since = clock_now_ns();
    pthread_mutex_unlock(&r->server->watch.lock);
}

/* --- Leaving ------------------------------------------------------------------------------------------------------------------ */

/* A sleeping connection is woken and finds that its client is gone. One that is awake may be stuck in a write that nobody will ever
 * read: its socket is shut down, so that the library's next look at it fails. */
static void end_connection(srv_request *r)
{
    atomic_store(&r->gone, true);
    pthread_mutex_lock(&r->lock);
    const bool asleep = r->asleep;
    pthread_mutex_unlock(&r->lock);
    if (!asleep) {
        shutdown(r->conn->fd, SHUT_RDWR);
    }
    srv_http_wake(r);
}

void srv_cut(srv_request *r)
{
    /* What the kernel still holds for this reader is given up too. */
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(r->conn->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    end_connection(r);
}

static void leave_locked(srv_request *r)
{
    if (r->call != NULL && !r->has_left) {
        di_call_info info;
        di_call_get(r->call, &info);
        r->has_left = true;
        r->left_in = info.phase;
        di_call_cancel(r->call);
    }
    end_connection(r);
}

void srv_watch_call(srv_request *r, di_call *call)
{
    pthread_mutex_lock(&r->server->watch.lock);
    r->call = call;
    if (r->conn->hung_up) {
        leave_locked(r);
    }
    pthread_mutex_unlock(&r->server->watch.lock);
}

static void on_hang_up(srv_server *server, uint64_t data)
{
    srv_watch *const w = &server->watch;
    const uint32_t slot = (uint32_t)data;
    pthread_mutex_lock(&w->lock);
    srv_conn *const conn = slot < w->n_used && w->slots[slot].generation == data >> 32 ? w->slots[slot].conn : NULL;
    if (conn != NULL) {
        conn->hung_up = true;
        if (conn->request != NULL && conn->request->call != NULL) {
            leave_locked(conn->request);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

void srv_watch_cut_all(srv_server *server)
{
    srv_watch *const w = &server->watch;
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < w->n_used; i++) {
        srv_conn *const conn = w->slots[i].conn;
        if (conn != NULL && conn->request != NULL) {
            leave_locked(conn->request);
        } else if (conn != NULL) {
            shutdown(conn->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

/* --- Deadlines ---------------------------------------------------------------------------------------------------------------- */

/* A body that does not come: nothing has been answered on a plain connection, so the answer can be written past the library. */
static void time_out(srv_server *server, srv_request *r)
{
    if (!atomic_exchange(&r->reading, false)) {
        return; /* it has just come */
    }
    r->status = 408;
    srv_metrics_event(server->metrics, SRV_E_TIMED_OUT);
    if (server->options.tls_cert == NULL || r->listener->is_admin) {
        char text[512];
        char body[256];
        const size_t n = di_recipe_error_body(r->route->errors, 408, "The request's body took too long.", body, sizeof body);
        const int size = snprintf(text, sizeof text,
                                  "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
                                  "x-request-id: %s\r\nContent-Length: %zu\r\n\r\n%s",
                                  r->id, n, body);
        if (size > 0 && (size_t)size < sizeof text) {
            (void)send(r->conn->fd, text, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
    }
    shutdown(r->conn->fd, SHUT_RDWR);
}

static bool is_older(int64_t now, int64_t since, int64_t milliseconds)
{
    return now - since > milliseconds * 1000000;
}

/* True when the stream of a sleeping connection was silent for long enough. */
static bool is_silent(srv_server *server, srv_request *r, int64_t now)
{
    if (!atomic_load(&r->streaming) || !is_older(now, atomic_load(&r->last_sent), server->options.keep_alive)) {
        return false;
    }
    pthread_mutex_lock(&r->lock);
    r->sign_of_life = r->asleep;
    const bool silent = r->asleep;
    pthread_mutex_unlock(&r->lock);
    return silent;
}

/* True when the service has given a stream up and its reader takes nothing of what is left. */
static bool is_stuck(srv_request *r, int64_t now)
{
    di_call_info info;
    if (!atomic_load(&r->streaming) || !is_older(now, atomic_load(&r->last_sent), STUCK_MS)) {
        return false;
    }
    pthread_mutex_lock(&r->lock);
    const bool awake = !r->asleep;
    pthread_mutex_unlock(&r->lock);
    if (!awake) {
        return false;
    }
    di_call_get(r->call, &info);
    return info.cancelled;
}

static void look_at(srv_server *server, const srv_conn *conn, int64_t now, uint32_t *signs_left)
{
    srv_request *const r = conn->request;
    if (r == NULL) {
        if (conn->hung_up || is_older(now, conn->idle_since, server->options.header_timeout)) {
            shutdown(conn->fd, SHUT_RDWR);
        }
    } else if (atomic_load(&r->reading)) {
        if (conn->hung_up) {
            shutdown(conn->fd, SHUT_RDWR);
        } else if (is_older(now, r->started_at, server->options.body_timeout)) {
            time_out(server, r);
        }
    } else if (*signs_left > 0 && is_silent(server, r, now)) {
        (*signs_left)--;
        srv_http_wake(r);
    } else if (is_stuck(r, now)) {
        srv_metrics_event(server->metrics, SRV_E_DROPPED_SLOW);
        srv_cut(r);
    }
}

/* The walk takes a tick, in so many steps of as many slots. */
static int steps_of(const srv_watch *w)
{
    const int wanted = 1 + (int)(w->n_used / SLOTS_A_STEP);
    const int most = w->tick_ms / MIN_STEP_MS;
    return wanted < most ? wanted : most;
}

/* One step of the walk; milliseconds to the next. No more signs of life than twice what keeps all streams alive: those that began
 * together are apart after a while, and the rest is found by the next walk. */
static int look_at_some(srv_server *server)
{
    srv_watch *const w = &server->watch;
    const int64_t now = clock_now_ns();
    pthread_mutex_lock(&w->lock);
    const uint32_t n = w->n_used;
    const int n_steps = steps_of(w);
    const int pause = w->tick_ms / n_steps;
    const uint32_t share = (uint32_t)((int64_t)n * 2 * pause / server->options.keep_alive);
    uint32_t signs_left = share > MIN_SIGNS_A_STEP ? share : MIN_SIGNS_A_STEP;
    for (uint32_t left = (n + (uint32_t)n_steps - 1) / (uint32_t)n_steps; left > 0; left--) {
        w->next_scan = w->next_scan < n ? w->next_scan : 0;
        if (w->slots[w->next_scan].conn != NULL) {
            look_at(server, w->slots[w->next_scan].conn, now, &signs_left);
        }
        w->next_scan++;
    }
    pthread_mutex_unlock(&w->lock);
    return pause;
}

/* --- The thread --------------------------------------------------------------------------------------------------------------- */

static bool must_stop(srv_watch *w)
{
    pthread_mutex_lock(&w->lock);
    const bool stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return stop;
}

static void *run(void *arg)
{
    srv_server *const server = arg;
    srv_watch *const w = &server->watch;
    int64_t last_look = clock_now_ns();
    int pause = w->tick_ms;
    while (!must_stop(w)) {
        struct epoll_event events[MAX_EVENTS];
        const int n = epoll_wait(w->epoll_fd, events, MAX_EVENTS, pause);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 != WAKE_EVENT) {
                on_hang_up(server, events[i].data.u64);
            }
        }
        if (is_older(clock_now_ns(), last_look, pause - 1)) {
            last_look = clock_now_ns();
            pause = look_at_some(server);
        }
    }
    return NULL;
}

static int tick_of(const srv_options *o)
{
    int32_t shortest = o->keep_alive < o->header_timeout ? o->keep_alive : o->header_timeout;
    shortest = (shortest < o->body_timeout ? shortest : o->body_timeout) / 8;
    return shortest < MIN_TICK_MS ? MIN_TICK_MS : shortest > MAX_TICK_MS ? MAX_TICK_MS : shortest;
}

di_status srv_watch_open(srv_server *server, uint32_t max_conns, di_error *err)
{
    srv_watch *const w = &server->watch;
    w->slots = ar_calloc(max_conns, sizeof *w->slots);
    if (w->slots == NULL) {
        return err_memory(err, "connections", max_conns * sizeof *w->slots);
    }
    w->n_slots = max_conns;
    w->first_free = NO_SLOT;
    w->tick_ms = tick_of(&server->options);
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE_EVENT};
    if (w->epoll_fd < 0 || w->wake_fd < 0 || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &event) != 0) {
        return err_set_errno(err, errno, "the set of watched connections");
    }
    const int failed = pthread_create(&w->thread, NULL, run, server);
    if (failed != 0) {
        return err_set_errno(err, failed, "a thread that watches connections");
    }
    w->running = true;
    return DI_OK;
}

void srv_watch_stop(srv_server *server)
{
    srv_watch *const w = &server->watch;
    if (w->running) {
        const uint64_t one = 1;
        pthread_mutex_lock(&w->lock);
        w->stop = true;
        pthread_mutex_unlock(&w->lock);
        const ssize_t n = write(w->wake_fd, &one, sizeof one);
        (void)n; /* without it the thread stops at its next tick */
        pthread_join(w->thread, NULL);
        w->running = false;
    }
}

void srv_watch_fini(srv_server *server)
{
    srv_watch *const w = &server->watch;
    if (w->epoll_fd >= 0) {
        close(w->epoll_fd);
    }
    if (w->wake_fd >= 0) {
        close(w->wake_fd);
    }
    free(w->slots);
}
