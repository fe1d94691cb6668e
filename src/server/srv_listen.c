/* srv_listen.c - opens a port: our own socket, so that "address in use" is said in words, then the library on it. */
#include "server/srv_int.h"

#include "core/err.h"
#include "core/file.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 4096, MAX_PEM_BYTES = 1 << 20, ADMIN_CONNECTIONS = 64, BUFFER_BYTES = 16384, SEND_BUFFER_BYTES = 1 << 17 };

static di_status find_address(const char *host, int32_t port, struct addrinfo **out, di_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE};
    char service[8];
    snprintf(service, sizeof service, "%u", (unsigned int)(uint16_t)port);
    const int failed = getaddrinfo(host, service, &hints, out);
    if (failed != 0) {
        return err_set(err, DI_E_ARGUMENT, "\"%s\" is no address to bind: give a number as in 127.0.0.1, 0.0.0.0 or ::1 (%s)", host,
                       gai_strerror(failed));
    }
    return DI_OK;
}

/* Accepted connections inherit these: a client that vanishes without a word is given up after a while, also in the middle of a wait in
 * which nothing is written to it; and what the kernel holds for one that does not read stays small (it would grow to megabytes). */
static bool set_up_connections(int fd, int32_t idle_timeout_ms)
{
    const struct {
        int level;
        int name;
        int value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60}, /* seconds */
        {IPPROTO_TCP, TCP_KEEPINTVL, 15},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, idle_timeout_ms},
        {SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value) != 0) {
            return false;
        }
    }
    return true;
}

static di_status bind_socket(const char *host, int32_t port, int32_t idle_timeout_ms, int *out, di_error *err)
{
    struct addrinfo *address = NULL;
    di_status status = find_address(host, port, &address, err);
    if (status != DI_OK) {
        return status;
    }
    const int yes = 1;
    const int no = 0;
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        (address->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0) ||
        !set_up_connections(fd, idle_timeout_ms) || bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        status = err_set_errno(err, errno, "%s port %d", host, port);
    }
    freeaddrinfo(address);
    if (status != DI_OK) {
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    *out = fd;
    return DI_OK;
}

static di_status write_url(srv_listener *listener, int fd, bool tls, di_error *err)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[INET6_ADDRSTRLEN + 32];
    char port[8];
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        return err_set_errno(err, errno, "the address of a socket");
    }
    if (getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return err_set(err, DI_E_IO, "the address of a socket has no name");
    }
    const bool v6 = address.ss_family == AF_INET6;
    snprintf(listener->url, sizeof listener->url, "%s://%s%s%s:%s", tls ? "https" : "http", v6 ? "[" : "", host, v6 ? "]" : "", port);
    return DI_OK;
}

/* The library may or may not have closed the socket when it did not start: it is still ours if it is still that socket. */
static void close_if_same(int fd, ino_t inode)
{
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == inode) {
        close(fd);
    }
}

static di_status start(srv_listener *listener, int fd, const srv_http_options *http, di_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        const int why = errno;
        close(fd);
        return err_set_errno(err, why, "a socket");
    }
    if (srv_http_start(listener, fd, http)) {
        return DI_OK;
    }
    close_if_same(fd, info.st_ino);
    listener->trouble[strcspn(listener->trouble, "\r\n")] = '\0';
    return err_set(err, http->cert != NULL ? DI_E_FORMAT : DI_E_IO, "the HTTP server does not start%s%s%s",
                   http->cert != NULL ? " with this certificate and key" : "", listener->trouble[0] != '\0' ? ": " : "",
                   listener->trouble);
}

di_status srv_listen(srv_listener *listener, const srv_options *o, di_error *err)
{
    const bool tls = !listener->is_admin && o->tls_cert != NULL;
    char *cert = NULL;
    char *key = NULL;
    size_t size = 0;
    int fd = -1;
    di_status status = DI_OK;
    if (tls) {
        status = file_read(o->tls_cert, MAX_PEM_BYTES, &cert, &size, err);
        if (status == DI_OK) {
            status = file_read(o->tls_key, MAX_PEM_BYTES, &key, &size, err);
        }
    }
    if (status == DI_OK) {
        status = bind_socket(listener->is_admin ? o->admin_host : o->host, listener->is_admin ? o->admin_port : o->port,
                             o->idle_timeout, &fd, err);
    }
    if (status == DI_OK) {
        status = write_url(listener, fd, tls, err);
        if (status != DI_OK) {
            close(fd);
        }
    }
    if (status == DI_OK) {
        const srv_http_options http = {
            .threads = listener->is_admin ? 1 : o->threads,
            .max_connections = listener->is_admin ? ADMIN_CONNECTIONS : o->max_connections,
            .per_address = listener->is_admin ? 0 : o->max_connections_per_address,
            .idle_timeout_s = (o->idle_timeout + 999) / 1000,
            .memory = 2 * (size_t)o->max_header_bytes + BUFFER_BYTES,
            .cert = cert,
            .key = key,
        };
        status = start(listener, fd, &http, err);
    }
    if (key != NULL) {
        explicit_bzero(key, size);
    }
    free(key);
    free(cert);
    return status;
}
