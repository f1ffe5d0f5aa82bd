/* listen.c: the sockets that clients connect to, and how many connections there may be.
 *
 * The front accepts connections itself and hands them to libmicrohttpd, so that several addresses are served by one
 * loop. Each address of another machine may have CONNECTIONS_EACH connections. When all but SPARE connections are in
 * use, only health checks are answered; when all are in use, a new connection is closed at once. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "guard.h"

enum {
    CONNECTIONS = 4096,
    CONNECTIONS_EACH = 64,
    SPARE = 32,
    OTHER_FILES = 128, /* descriptors for everything else */
    AT_ONCE = 64,
    BACKLOG = 1024,
};

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr_storage *address) {
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    const uint8_t *bytes = v6->sin6_addr.s6_addr;
    if (address->ss_family == AF_INET) return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    if (address->ss_family != AF_INET6) return true; /* a socket in a folder */
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) || (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && bytes[12] == 127);
}

void address_text(const struct sockaddr_storage *from, bool brackets, char to[64]) {
    char text[INET6_ADDRSTRLEN] = "";
    const void *bytes = from->ss_family == AF_INET    ? (const void *)&((const struct sockaddr_in *)from)->sin_addr
                        : from->ss_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)from)->sin6_addr
                                                      : NULL;
    *to = 0;
    if (!bytes || !inet_ntop(from->ss_family, bytes, text, sizeof text)) return;
    const char *v4 = strncmp(text, "::ffff:", 7) == 0 ? text + 7 : text;
    brackets = brackets && v4 == text && from->ss_family == AF_INET6;
    snprintf(to, 64, "%s%s%s", brackets ? "[" : "", v4, brackets ? "]" : "");
}

int address_port(const struct sockaddr_storage *from) {
    return from->ss_family == AF_INET    ? ntohs(((const struct sockaddr_in *)from)->sin_port)
           : from->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)from)->sin6_port)
                                         : 0;
}

/* Fills `where`, `loopback` and `secure` from the address that the socket has. */
static bool learn_address(listener *l, bool secure) {
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof address;
    char text[64];
    if (getsockname(l->socket, (struct sockaddr *)&address, &size) != 0) return false;
    l->loopback = is_loopback(&address);
    address_text(&address, true, text);
    l->secure = secure && *text;
    if (*text)
        snprintf(l->where, sizeof l->where, "http%s://%s:%d", secure ? "s" : "", text, address_port(&address));
    else
        snprintf(l->where, sizeof l->where, "unix:%.100s", ((struct sockaddr_un *)&address)->sun_path);
    return true;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int listen_unix(const char *path, char *why, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(why, size, "%s: is too long for the path of a socket", path);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path));
    struct stat old;
    bool is_socket = lstat(path, &old) == 0 && S_ISSOCK(old.st_mode);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* A socket that nobody listens on was left by a server that was killed. */
    if (is_socket && connect(other, (struct sockaddr *)&address, sizeof address) != 0 && errno == ECONNREFUSED)
        unlink(path);
    close(other);
    if (s >= 0 && bind(s, (struct sockaddr *)&address, sizeof address) == 0 && listen(s, BACKLOG) == 0) return s;
    snprintf(why, size, "%s: cannot be listened on: %s", path, strerror(errno));
    if (s >= 0) close(s);
    return -1;
}

/* ADDRESS:PORT or [ADDRESS]:PORT */
static int listen_tcp(const char *where, char *why, size_t size) {
    char host[256];
    const char *colon = strrchr(where, ':');
    bool brackets = *where == '[';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - where) - 2 * brackets : 0, where + brackets);
    int code = colon ? getaddrinfo(*host ? host : NULL, colon + 1, &hints, &found) : EAI_NONAME;
    if (code != 0) {
        snprintf(why, size, "%s: cannot be listened on: there is no such address (%s)", where, gai_strerror(code));
        return -1;
    }
    int s = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    bool good = s >= 0 && bind(s, found->ai_addr, found->ai_addrlen) == 0 && listen(s, BACKLOG) == 0;
    if (!good)
        snprintf(why, size, "%s: cannot be listened on: %s%s", where, strerror(errno),
                 errno == EADDRINUSE ? "; another server runs there, or choose another port with --listen" : "");
    freeaddrinfo(found);
    if (good) return s;
    if (s >= 0) close(s);
    return -1;
}

static bool add_listener(front *f, int s, const char *path, char *why, size_t size) {
    listener *l = &f->listeners[f->n_listeners];
    *l = (listener){.socket = s, .path = path};
    f->n_listeners++;
    if (learn_address(l, f->options->cert)) return true;
    snprintf(why, size, "the address of a socket cannot be read: %s", strerror(errno));
    return false;
}

/* Sockets that were open when the program was started, as systemd's socket units give them. */
static bool take_inherited(front *f, char *why, size_t size) {
    for (int i = 0; i < f->options->inherited; i++) {
        int s = FIRST_INHERITED + i, is_listening = 0;
        socklen_t length = sizeof is_listening;
        bool good = getsockopt(s, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length) == 0 && is_listening;
        if (!good || fcntl(s, F_SETFD, FD_CLOEXEC) != 0 || fcntl(s, F_SETFL, O_NONBLOCK) != 0) {
            snprintf(why, size, "LISTEN_FDS: descriptor %d is not a socket that listens", s);
            return false;
        }
        if (!add_listener(f, s, NULL, why, size)) return false;
    }
    return true;
}

static bool open_address(front *f, const char *where, char *why, size_t size) {
    bool local = strncmp(where, "unix:", 5) == 0;
    int s = local ? listen_unix(where + 5, why, size) : listen_tcp(where, why, size);
    return s >= 0 && add_listener(f, s, local ? where + 5 : NULL, why, size);
}

bool listen_open(front *f, char *why, size_t size) {
    const serve_options *o = f->options;
    if (!take_inherited(f, why, size)) return false;
    for (int i = 0; o->listen[i]; i++)
        if (!open_address(f, o->listen[i], why, size)) return false;
    if (o->metrics && !open_address(f, o->metrics, why, size)) return false;
    if (o->metrics) f->listeners[f->n_listeners - 1].metrics = true;
    f->loopback = true;
    for (int i = 0; i < f->n_listeners; i++) {
        const listener *l = &f->listeners[i];
        f->loopback = f->loopback && (l->loopback || l->metrics);
        if (l->loopback || l->metrics || o->key_file || o->keys || o->no_auth) continue;
        snprintf(
            why, size,
            "%s can be reached from other machines, so a key is needed: --key-file FILE; --no-auth serves everybody",
            l->where);
        return false;
    }
    return true;
}

/* A connection takes a descriptor, and another one while a file is sent. Raises the limit of this process if it may. */
static void choose_limit(front *f) {
    struct rlimit limit = {.rlim_cur = 1024};
    rlim_t wanted = OTHER_FILES + 2 * CONNECTIONS;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        struct rlimit more = {.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted,
                              .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
    }
    rlim_t n = limit.rlim_cur > OTHER_FILES + 4 * SPARE ? (limit.rlim_cur - OTHER_FILES) / 2 : 2 * SPARE;
    f->most_connections = n < CONNECTIONS ? (int)n : CONNECTIONS;
}

static bool watch_listeners(front *f, int operation, uint32_t events) {
    bool good = true;
    for (int i = 0; i < f->n_listeners; i++) {
        struct epoll_event event = {.events = events, .data.ptr = &f->listeners[i]};
        good = epoll_ctl(f->epoll, operation, f->listeners[i].socket, &event) == 0 && good;
    }
    return good;
}

bool listen_start(front *f) {
    choose_limit(f);
    return watch_listeners(f, EPOLL_CTL_ADD, EPOLLIN);
}

void listen_stop(front *f) {
    for (int i = 0; i < f->n_listeners; i++) {
        if (f->listeners[i].path) unlink(f->listeners[i].path);
        close(f->listeners[i].socket); /* which also ends its watch */
    }
    f->n_listeners = 0;
}

/* ---- accepting --------------------------------------------------------------------------------------------------- */

bool listen_is_crowded(const front *f) { return f->n_connections > f->most_connections - SPARE; }

bool listen_is_ours(const front *f, const void *what) {
    return (const listener *)what >= f->listeners && (const listener *)what < f->listeners + LISTENERS;
}

void listen_accept(front *f, const listener *l) {
    if (l - f->listeners >= f->n_listeners) return; /* it was closed while its event was waiting */
    for (int i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
        socklen_t size = sizeof address;
        int s = accept4(l->socket, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (s < 0 && errno != EAGAIN) { /* descriptors or memory ran out: try again soon, not at once */
            watch_listeners(f, EPOLL_CTL_MOD, 0);
            f->deaf_until = steady_seconds() + 0.2;
        }
        if (s < 0) return;
        char text[64] = "";
        bool local = is_loopback(&address);
        if (!local) address_text(&address, false, text);
        if (f->n_connections >= f->most_connections || (!local && slow_count(f, text) >= CONNECTIONS_EACH))
            close(s);
        else
            http_take(f, s, (struct sockaddr *)&address, size, l);
    }
}

void listen_tick(front *f) {
    if (!(f->deaf_until > 0) || steady_seconds() < f->deaf_until) return;
    f->deaf_until = 0;
    watch_listeners(f, EPOLL_CTL_MOD, EPOLLIN);
}
