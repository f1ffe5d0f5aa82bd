/* front.c: the event loop of the server. One thread does everything: HTTP, messages of the worker, signals, timers. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"
#include "store.h"

void say_line(front *f, const char *format, ...) {
    char text[600], when[32];
    time_t now = time(NULL);
    struct tm utc;
    va_list list;
    (void)f;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fprintf(stderr, "%s %s\n", when, lz_printable(text));
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

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
    if (s >= 0 && bind(s, (struct sockaddr *)&address, sizeof address) == 0 && listen(s, 128) == 0) return s;
    snprintf(why, size, "%s: cannot be listened on: %s", path, strerror(errno));
    if (s >= 0) close(s);
    return -1;
}

static bool is_loopback(const struct sockaddr *address) {
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    if (address->sa_family == AF_INET) return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int port_of(int s) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(s, (struct sockaddr *)&address, &size) != 0) return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* ADDRESS:PORT or [ADDRESS]:PORT */
static int listen_tcp(front *f, const char *where, char *why, size_t size) {
    char host[256];
    const char *colon = strrchr(where, ':');
    bool brackets = *where == '[';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - where) - 2 * brackets : 0, where + brackets);
    if (!colon || getaddrinfo(*host ? host : NULL, colon + 1, &hints, &found) != 0) {
        snprintf(why, size, "--listen takes ADDRESS:PORT or unix:PATH, not '%s'", where);
        return -1;
    }
    int s = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    f->loopback = is_loopback(found->ai_addr);
    bool good = s >= 0 && bind(s, found->ai_addr, found->ai_addrlen) == 0 && listen(s, 128) == 0;
    if (!good) snprintf(why, size, "%s: cannot be listened on: %s", where, strerror(errno));
    freeaddrinfo(found);
    if (!good && s >= 0) close(s);
    if (!good) return -1;
    snprintf(f->listening, sizeof f->listening, "http://%s%.80s%s:%d", brackets ? "[" : "", *host ? host : "0.0.0.0",
             brackets ? "]" : "", port_of(s));
    return s;
}

static bool start_listening(front *f, char *why, size_t size) {
    const serve_options *o = f->options;
    bool local = strncmp(o->listen, "unix:", 5) == 0;
    f->loopback = local;
    f->listener = local ? listen_unix(o->listen + 5, why, size) : listen_tcp(f, o->listen, why, size);
    if (local) snprintf(f->listening, sizeof f->listening, "%.120s", o->listen);
    if (f->listener < 0) return false;
    if (!f->loopback && !o->key_file && !o->no_auth) {
        snprintf(
            why, size,
            "%s can be reached from other machines, so a key is needed: --key-file FILE; --no-auth serves everybody",
            o->listen);
        return false;
    }
    f->guard = guard_new(f, local ? 0 : port_of(f->listener), why, size);
    return f->guard;
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static void read_keys_again(front *f) {
    char why[300];
    if (!f->options->key_file) return;
    if (guard_read_keys(f->guard, f->options->key_file, why, sizeof why))
        say_line(f, "the keys were read again");
    else
        say_line(f, "the keys stay as they were: %s", why);
}

/* Takes no more jobs, answers those who wait, and lets the running picture end. */
static void drain(front *f) {
    f->draining = true;
    f->drain_until = steady_seconds() + f->options->drain_timeout;
    say_line(f, f->child.job ? "ending; the running picture is finished first" : "ending");
    http_quiesce(f);
    for (job *j = f->jobs, *next; j; j = next) {
        next = j->next;
        if (j->attended && f->child.job != j) job_cancel(f, j, BY_DRAIN, "draining", "the server is ending");
    }
    for (stream *s = f->streams; s; s = s->next)
        if (s->native) stream_end(s);
}

static void read_signals(front *f) {
    struct signalfd_siginfo info;
    while (read(f->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP)
            read_keys_again(f);
        else if (f->draining)
            f->ended = true; /* the second signal */
        else
            drain(f);
    }
}

/* Is everything done that a drain waits for? */
static bool is_drained(front *f) {
    if (!f->draining) return false;
    double now = steady_seconds();
    if (f->child.job && now < f->drain_until) return false;
    for (job *j = f->jobs, *next; j; j = next) { /* the picture was not finished in time, or was one of several */
        next = j->next;
        if (j->attended) job_cancel(f, j, BY_DRAIN, "draining", "the server is ending");
    }
    bool answering = false; /* a request that has not come whole will get no answer */
    for (const request *r = f->requests; r; r = r->next) answering = answering || r->called;
    return !answering || now > f->drain_until + 2;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* A client whose request is suspended has gone. */
static void client_gone(request *r) {
    r->gone = true;
    job_leave(r);
    *r->ask = 0;
    wake(r);
}

static void turn_once(front *f) {
    struct epoll_event events[64];
    int timeout = f->woken ? 0 : http_timeout(f);
    int n = epoll_wait(f->epoll, events, 64, timeout < 0 || timeout > 500 ? 500 : timeout);
    /* Requests are freed by http_turn only, so every pointer in events is valid until then. */
    for (int i = 0; i < n; i++) {
        void *what = events[i].data.ptr;
        if (what == &f->signals)
            read_signals(f);
        else if (what == &f->child) {
            if (events[i].events & EPOLLOUT && f->child.pid) child_write(f);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) child_read(f);
        } else if (what != f)
            client_gone(what);
    }
    child_tick(f);
    jobs_sweep(f);
    streams_tick(f);
    slow_tick(f);
    f->woken = false;
    http_turn(f);
    jobs_start(f);
}

static bool start_loop(front *f, char *why, size_t size) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!http_start(f, f->listener, why, size)) return false;
    struct epoll_event signals = {.events = EPOLLIN, .data.ptr = &f->signals},
                       http = {.events = EPOLLIN, .data.ptr = f};
    if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->signals, &signals) == 0 &&
        epoll_ctl(f->epoll, EPOLL_CTL_ADD, http_socket(f), &http) == 0)
        return true;
    snprintf(why, size, "the event loop cannot be started: %s", strerror(errno));
    return false;
}

static void stop(front *f) {
    job *j = f->child.job;
    f->child.job = NULL;
    if (j && j->over)
        job_free(j);
    else if (j) { /* the picture is begun anew after the next start */
        j->state = QUEUED;
        j->painting = false;
        store_save_job(f->store, j);
    }
    child_end(f);
    if (f->daemon) http_stop(f);
    while ((j = f->jobs)) { /* those that wait are in the store */
        f->jobs = j->next;
        job_free(j);
    }
    for (int i = 0; i < KEPT_EVENTS; i++) free(f->events[i].text);
    if (f->epoll > 0) close(f->epoll);
    if (f->signals > 0) close(f->signals);
    guard_free(f->guard);
    store_close(f->store);
    if (strncmp(f->options->listen, "unix:", 5) == 0 && f->listener >= 0) unlink(f->options->listen + 5);
    free(f->state);
    free(f);
}

int serve_run(const serve_options *options, char *why, size_t size) {
    front *f = calloc(1, sizeof *f);
    if (!f) return 1;
    snprintf(why, size, "out of memory");
    *f = (front){.options = options, .listener = -1, .n_models = options->n_models, .begun = wall_seconds()};
    f->jobs_end = &f->jobs;
    f->child.socket = f->child.loaded = -1;
    for (int i = 0; i < f->n_models; i++) f->models[i].id = options->models[i];
    bool good = start_listening(f, why, size) && files_open(f, why, size) && start_loop(f, why, size);
    if (good && !jobs_load(f)) {
        snprintf(why, size, "%s: the jobs cannot be read", options->state);
        good = false;
    }
    if (good) {
        if (options->no_auth && !f->loopback)
            fprintf(stderr, "lazuli: --no-auth: everybody who reaches this address can use the server\n");
        fprintf(stderr, "lazuli: listening on %s\n", f->listening);
    }
    while (good && !f->ended && !is_drained(f)) turn_once(f);
    if (f->no_model) {
        snprintf(why, size, "no model can be opened, so there is nothing to serve");
        good = false;
    }
    stop(f);
    return good ? 0 : 1;
}
