/* http.c: requests and answers, on libmicrohttpd.
 *
 * The library runs in the loop of front.c (MHD_run), so its callbacks never run beside anything else. A request that
 * waits is suspended. The library does not notice that the client of a suspended request has gone, so its socket is
 * watched by front.c (EPOLLRDHUP) as long as the request is suspended. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guard.h"
#include "sse.h"
#include "store.h"
#include "strict.h"

enum { HEADER_BYTES = 32 << 10, STREAM_BYTES = 16 << 10 };

/* ---- looking at requests ----------------------------------------------------------------------------------------- */

const char *header_of(const request *r, const char *name) {
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

char *query_of(const request *r, const char *name) {
    const char *value = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
    char *copy = value && *value ? strdup(value) : NULL;
    if (copy && unescape(copy) && is_utf8(copy, strlen(copy))) return copy;
    free(copy);
    return NULL;
}

/* The path and the query stay as they were sent: no name in them needs escapes, and a decoded %00 would cut them. */
static size_t keep_escapes(void *user, struct MHD_Connection *c, char *text) {
    (void)user, (void)c;
    return strlen(text);
}

static bool begins_with(const char *text, const char *begin) {
    size_t n = strlen(begin);
    return text && strncasecmp(text, begin, n) == 0 && (!text[n] || text[n] == ';' || text[n] == ' ');
}

/* Bytes that the body of a request may have. Who has no key can send very little. */
static int64_t most_body(const request *r) {
    int flags = r->route->flags;
    int64_t most = !(flags & (JSON_BODY | FORM_BODY | RAW_BODY)) || flags & (OPEN | FILES | PAGE) ? MOST_OPEN
                   : flags & SMALL_BODY                                                           ? MOST_SMALL
                                                                                                  : INT64_MAX;
    return most < r->front->options->max_body ? most : r->front->options->max_body;
}

static bool check_body_head(request *r, problem *p) {
    const char *length = header_of(r, "content-length"), *type = header_of(r, "content-type");
    int64_t most = r->most_body = most_body(r);
    bool has_body = (length && strcmp(length, "0") != 0) || header_of(r, "transfer-encoding");
    int takes = r->route->flags & (JSON_BODY | FORM_BODY | RAW_BODY);
    if (length && (strlen(length) > 15 || strtoll(length, NULL, 10) > most))
        return set_problem(p, 413, "request_too_large", "", "the request has more than %lld bytes", (long long)most);
    if (has_body && r->front->bodies + (length ? strtoll(length, NULL, 10) : 0) > MOST_BODIES)
        return set_problem(p, 429, "queue_full", "", "too many large requests are under way");
    if (!takes || !has_body) return true;
    if (begins_with(type, "application/x-www-form-urlencoded") || begins_with(type, "text/plain") ||
        !((takes & JSON_BODY && begins_with(type, "application/json")) ||
          (takes & FORM_BODY && begins_with(type, "multipart/form-data")) ||
          (takes & RAW_BODY &&
           (begins_with(type, "application/octet-stream") || (type && strncasecmp(type, "image/", 6) == 0)))))
        return set_problem(p, 415, "unsupported_media_type", "", "Content-Type must be %s",
                           takes & FORM_BODY  ? "multipart/form-data or application/json"
                           : takes & RAW_BODY ? "image/png, image/jpeg, image/webp or application/octet-stream"
                                              : "application/json");
    return true;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static void suspend(request *r) {
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = r};
    MHD_suspend_connection(r->connection);
    r->suspended = true;
    if (epoll_ctl(r->front->epoll, EPOLL_CTL_ADD, r->socket, &event) != 0) r->gone = true;
}

void wake(request *r) {
    if (!r->suspended) return;
    epoll_ctl(r->front->epoll, EPOLL_CTL_DEL, r->socket, NULL);
    r->suspended = false;
    r->front->woken = true;
    MHD_resume_connection(r->connection);
}

static ssize_t read_stream(void *user, uint64_t at, char *to, size_t most) {
    request *r = user;
    stream *s = r->stream;
    (void)at;
    if (r->gone || !s) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = stream_read(s, to, most);
    if (n) return (ssize_t)n;
    if (s->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    suspend(r);
    return 0;
}

void reply_stream(request *r, stream *s) {
    r->stream = s;
    set_response(r, 200, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, read_stream, r, NULL));
    add_header(r, "content-type", "text/event-stream");
    add_header(r, "cache-control", "no-cache");
    add_header(r, "x-accel-buffering", "no");
}

/* ---- a request's life -------------------------------------------------------------------------------------------- */

static void read_addresses(request *r) {
    const union MHD_ConnectionInfo *socket = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_storage ends[2] = {{.ss_family = AF_UNSPEC}};
    socklen_t sizes[2] = {sizeof ends[0], sizeof ends[1]};
    r->socket = socket ? socket->connect_fd : -1;
    getpeername(r->socket, (struct sockaddr *)&ends[0], &sizes[0]);
    getsockname(r->socket, (struct sockaddr *)&ends[1], &sizes[1]);
    address_text(&ends[0], false, r->address);
    address_text(&ends[1], true, r->local);
    r->port = address_port(&ends[1]);
    if (!*r->address) snprintf(r->address, sizeof r->address, "local");
}

static void choose_id(request *r) {
    const char *given = header_of(r, "x-request-id");
    size_t n = given ? strspn(given, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") : 0;
    char own[ID_BYTES];
    make_id(own, "req_");
    snprintf(r->id, sizeof r->id, "%s", n && n <= 64 && !given[n] ? given : own);
}

static request *request_new(front *f, struct MHD_Connection *c, const char *url, const char *method) {
    request *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(url))) {
        free(r);
        return NULL;
    }
    r->front = f;
    r->connection = c;
    r->begun = steady_seconds();
    const union MHD_ConnectionInfo *tls = MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    r->secure = tls && tls->tls_session;
    snprintf(r->method, sizeof r->method, "%s", method);
    read_addresses(r);
    choose_id(r);
    r->next = f->requests;
    if (r->next) r->next->before = r;
    f->requests = r;
    slow_request(r, true);
    return r;
}

static void on_completed(void *user, struct MHD_Connection *c, void **mine, enum MHD_RequestTerminationCode why) {
    request *r = *mine;
    front *f = user;
    (void)c, (void)why;
    if (!r) return;
    *mine = NULL;
    slow_request(r, false);
    if (r->suspended) epoll_ctl(f->epoll, EPOLL_CTL_DEL, r->socket, NULL);
    r->suspended = false;
    job_leave(r);
    plan_forget(r);
    stream_free(f, r->stream);
    f->metrics.requests[route_number(r->route)][r->status >= 100 && r->status < 600 ? r->status / 100 : 0]++;
    log_request(r);
    f->bodies -= r->counted;
    if (r->next) r->next->before = r->before;
    if (r->before)
        r->before->next = r->next;
    else
        f->requests = r->next;
    if (r->response) MHD_destroy_response(r->response);
    json_decref(r->settings);
    buffer_free(&r->body);
    free(r->path);
    free(r);
}

static void add_common_headers(request *r) {
    const char *origin = header_of(r, "origin");
    add_header(r, "x-request-id", r->id);
    add_header(r, "x-content-type-options", "nosniff");
    add_header(r, "referrer-policy", "no-referrer");
    add_header(r, "cross-origin-resource-policy", r->cross_origin ? "cross-origin" : "same-origin");
    if (*r->ignored) add_header(r, "x-lazuli-ignored", r->ignored);
    if (*r->note) add_header(r, "x-lazuli-note", r->note);
    if (!guard_origin_is_allowed(r->front->guard, origin)) return;
    add_header(r, "access-control-allow-origin", origin);
    add_header(r, "vary", "origin");
}

static enum MHD_Result queue_answer(request *r) {
    add_common_headers(r);
    enum MHD_Result queued = MHD_queue_response(r->connection, (unsigned)r->status, r->response);
    MHD_destroy_response(r->response);
    r->response = NULL;
    return queued;
}

/* OPTIONS, which browsers send before a request of another site's page. */
static bool reply_preflight(request *r) {
    if (strcmp(r->method, "OPTIONS") != 0) return false;
    reply_empty(r, 204);
    if (guard_origin_is_allowed(r->front->guard, header_of(r, "origin"))) {
        add_header(r, "access-control-allow-methods", "GET, POST, PUT, DELETE");
        /* OpenAI's client sends headers of its own. The * does not stand for authorization. */
        add_header(r, "access-control-allow-headers", "authorization, *");
        add_header(r, "access-control-max-age", "600");
    }
    return true;
}

/* Checks everything that can be known before the body comes. false: the answer is set, and there will be no more. */
static bool begin(request *r, const request_line *line) {
    problem p = {.status = 0}, missing = {.status = 0};
    bool good = strict_check(r, line, &p);
    if (good) r->route = find_route(r, &missing);
    if (good && r->metrics && !(r->route && r->route->flags & HEALTH)) {
        set_problem(&missing, 404, "not_found", "", "this address has /metrics, /healthz and /readyz only");
        r->route = NULL;
    }
    good = good && guard_check(r, &p);
    if (good && reply_preflight(r)) return false;
    if (good && !r->route) {
        p = missing;
        good = false;
    }
    if (good && !(r->route->flags & OPEN) && listen_is_crowded(r->front))
        good = set_problem(&p, 503, "too_many_connections", "", "the server has too many connections");
    if (good && r->route->flags & ADMIN && !r->who.admin)
        good = set_problem(&p, 403, "admin_only", "", "this needs the key of an administrator");
    if (good && r->route->flags & EVENTS && strcmp(r->method, "HEAD") == 0)
        good = set_problem(&p, 405, "method_not_allowed", "GET", "this path takes GET");
    good = good && check_body_head(r, &p);
    if (good) return true;
    reply_problem(r, &p);
    if (p.status == 400 || p.status == 413 || listen_is_crowded(r->front)) add_header(r, "connection", "close");
    return false;
}

/* A request may wait long for its picture. Its body has been read by then. */
static void forget_body(request *r) {
    r->front->bodies -= r->counted;
    r->counted = 0;
    buffer_free(&r->body);
}

static enum MHD_Result take_body(request *r, const char *data, size_t *size) {
    int64_t most = r->most_body;
    r->received += (int64_t)*size;
    if (r->received > most)
        r->refused = 413;
    else if (!r->refused && r->front->bodies + (int64_t)*size > MOST_BODIES)
        r->refused = 429;
    if (r->refused)
        forget_body(r);
    else if (buffer_add(&r->body, data, *size)) {
        r->counted += (int64_t)*size;
        r->front->bodies += (int64_t)*size;
    } else
        return MHD_NO;
    *size = 0;
    /* An answer is possible at the end of the body only. A client that goes on for long is not waited for. */
    return r->received > 2 * most + (1 << 20) ? MHD_NO : MHD_YES;
}

/* The body is refused, though the head of the request was not: it has no length. */
static void reply_refused(request *r) {
    if (r->refused == 413)
        reply_error(r, 413, "request_too_large", "", "the request has more than %lld bytes", (long long)r->most_body);
    else
        reply_error(r, 429, "queue_full", "", "too many large requests are under way");
    add_header(r, "connection", "close");
}

/* The store of a fleet cannot be reached, or no worker has named a model. true: the answer is set. */
static bool is_unserved(request *r) {
    front *f = r->front;
    bool there = store_is_there(f);
    if ((there && f->n_models) || r->route->flags & (OPEN | PAGE)) return false;
    reply_error(r, 503, "not_ready", "", "%s",
                there ? "no worker has joined the fleet yet" : "the store of the fleet cannot be reached now");
    return true;
}

/* An answer is sent when the commits before it are on the disk, so that nothing that a client was told can be lost. Health
 * checks and the page do not depend on them. false: http_flushed goes on with the request. */
static bool is_safe(request *r) {
    const store *s = r->front->store;
    if (r->route->flags & (OPEN | PAGE)) return true;
    if (!r->held) r->commits = store_writes(s);
    r->held = !store_has_flushed(s, r->commits);
    return !r->held;
}

void http_flushed(front *f) {
    uint64_t n;
    while (read(f->flushed, &n, sizeof n) == sizeof n) continue;
    for (request *r = f->requests; r; r = r->next)
        if (r->held && store_has_flushed(f->store, r->commits)) wake(r);
    if (!store_has_failed(f->store)) return;
    say_line(f, "the disk does not keep what is written to the state folder");
    f->broken = f->ended = true;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **mine) {
    request *r = *mine;
    if (!r) {
        r = request_new(user, c, url, method);
        if (!r) return MHD_NO;
        r->is_http_1_1 = strcmp(version, "HTTP/1.0") != 0;
        *mine = r;
        if (begin(r, &(request_line){method, url, version})) return MHD_YES;
        return r->response ? queue_answer(r) : MHD_NO;
    }
    if (*size) return take_body(r, data, size);
    if (r->gone) return MHD_NO;
    if (!r->called) {
        r->called = true;
        if (r->refused)
            reply_refused(r);
        else if (!is_unserved(r)) {
            r->route->handle(r);
            if (r->response && r->status >= 400) is_unserved(r); /* the store went away meanwhile */
        }
        forget_body(r);
    }
    if (r->response && !r->loading && is_safe(r)) return queue_answer(r);
    if (!r->response && !r->job && !*r->ask) return MHD_NO; /* out of memory */
    suspend(r);
    return MHD_YES;
}

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

static void on_log(void *user, const char *format, va_list list) { (void)user, (void)format, (void)list; }

/* cert, key: texts in PEM for TLS, or NULL. */
static struct MHD_Daemon *start_daemon(front *f, const char *cert, const char *key) {
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, f},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)slow_connection, f},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escapes, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, 1 << 20, NULL},                /* listen.c has the true limit */
        {MHD_OPTION_CONNECTION_TIMEOUT, SECONDS_TO_SEND + 10, NULL}, /* slow.c is earlier */
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADER_BYTES, NULL},
#if MHD_VERSION >= 0x00097701
        {MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL}, /* see strict.c */
#endif
        {cert ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, (void *)cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET;
    struct MHD_Daemon *daemon = MHD_start_daemon(flags | (cert ? MHD_USE_TLS : 0), 0, NULL, NULL, on_request, f,
                                                 MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_ARRAY, options,
                                                 MHD_OPTION_END);
    const union MHD_DaemonInfo *info = daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = f};
    if (!daemon || (info && epoll_ctl(f->epoll, EPOLL_CTL_ADD, info->epoll_fd, &event) == 0)) return daemon;
    MHD_stop_daemon(daemon);
    return NULL;
}

/* A certificate belongs to a daemon for its life, so a new one gets a new daemon. The connections of the old one stay
 * with it. */
bool http_renew(front *f, char *why, size_t size) {
    const serve_options *o = f->options;
    struct MHD_Daemon *fresh = NULL;
    char *cert = NULL, *key = NULL;
    if (f->daemons[DAEMONS - 1])
        snprintf(why, size, "connections with three earlier certificates are still open");
    else if ((cert = file_text(o->cert, why, size)) && (key = file_text(o->cert_key, why, size)) &&
             !(fresh = start_daemon(f, cert, key)))
        snprintf(why, size, "%s and %s: are not a certificate and its key", o->cert, o->cert_key);
    free(cert);
    if (key) explicit_bzero(key, strlen(key));
    free(key);
    if (!fresh) return false;
    memmove(&f->daemons[SECURE + 1], &f->daemons[SECURE], (DAEMONS - SECURE - 1) * sizeof *f->daemons);
    f->daemons[SECURE] = fresh;
    return true;
}

bool http_start(front *f, char *why, size_t size) {
    f->daemons[PLAIN] = start_daemon(f, NULL, NULL);
    if (!f->daemons[PLAIN]) snprintf(why, size, "libmicrohttpd cannot be started");
    if (!f->daemons[PLAIN] || !f->options->cert) return f->daemons[PLAIN];
    return http_renew(f, why, size);
}

void http_take(front *f, int socket, const struct sockaddr *address, socklen_t size, const listener *from) {
    f->accepted = from; /* slow_connection is called meanwhile */
    MHD_add_connection(f->daemons[from->secure ? SECURE : PLAIN], socket, address, size); /* closes it on failure */
}

void http_turn(front *f) {
    for (int i = 0; i < DAEMONS; i++)
        if (f->daemons[i]) MHD_run(f->daemons[i]);
    for (int i = SECURE + 1; i < DAEMONS; i++) { /* with an earlier certificate */
        const union MHD_DaemonInfo *info = f->daemons[i]
                                               ? MHD_get_daemon_info(f->daemons[i], MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
                                               : NULL;
        if (!info || info->num_connections) continue;
        MHD_stop_daemon(f->daemons[i]);
        f->daemons[i] = NULL;
    }
}

int http_timeout(front *f) {
    int least = -1;
    for (int i = 0; i < DAEMONS; i++) {
        MHD_UNSIGNED_LONG_LONG milliseconds;
        if (!f->daemons[i] || MHD_get_timeout(f->daemons[i], &milliseconds) != MHD_YES) continue;
        int mine = milliseconds > 1000 ? 1000 : (int)milliseconds;
        if (least < 0 || mine < least) least = mine;
    }
    return least;
}

void http_stop(front *f) {
    for (request *r = f->requests; r; r = r->next) {
        r->gone = true;
        wake(r);
    }
    for (int i = 0; i < DAEMONS; i++) {
        if (!f->daemons[i]) continue;
        MHD_run(f->daemons[i]);
        MHD_stop_daemon(f->daemons[i]);
        f->daemons[i] = NULL;
    }
}
