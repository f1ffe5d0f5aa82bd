/* http.c: requests and answers, on libmicrohttpd.
 *
 * The library runs in the loop of front.c (MHD_run), so its callbacks never run beside anything else. A request that
 * waits is suspended. The library does not notice that the client of a suspended request has gone, so its socket is
 * watched by front.c (EPOLLRDHUP) as long as the request is suspended. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
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

enum { CONNECTIONS = 1000, CONNECTIONS_EACH = 64, HEADER_BYTES = 32 << 10 };

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

typedef struct counted {
    const char *name; /* "": names with a blank, which some readers ignore */
    int n;
} counted;

static enum MHD_Result count_header(void *user, enum MHD_ValueKind kind, const char *name, const char *value) {
    (void)kind, (void)value;
    for (counted *c = user; c->name; c++)
        c->n += *c->name ? strcasecmp(c->name, name) == 0 : name[strcspn(name, " \t")] != 0;
    return MHD_YES;
}

/* libmicrohttpd accepts headers twice, and a length beside chunks. Two readers of such a request may disagree on where
 * it ends, so it is refused. */
static bool check_headers(request *r, problem *p) {
    counted all[] = {{"host", 0},
                     {"content-length", 0},
                     {"transfer-encoding", 0},
                     {"content-type", 0},
                     {"origin", 0},
                     {"authorization", 0},
                     {"cookie", 0},
                     {"", 0},
                     {NULL, 0}};
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_header, all);
    for (const counted *c = all; c->name; c++)
        if (c->n > 1) return set_problem(p, 400, "invalid_request", "", "the header %s was sent twice", c->name);
    if (all[sizeof all / sizeof *all - 2].n)
        return set_problem(p, 400, "invalid_request", "", "the name of a header contains a blank");
    if (all[1].n && all[2].n)
        return set_problem(p, 400, "invalid_request", "", "Content-Length and Transfer-Encoding exclude each other");
    const char *length = header_of(r, "content-length"), *coding = header_of(r, "transfer-encoding");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return set_problem(p, 400, "invalid_request", "", "Transfer-Encoding must be chunked");
    if (length && (!*length || strspn(length, "0123456789") != strlen(length)))
        return set_problem(p, 400, "invalid_request", "", "Content-Length is not a number");
    if (strstr(r->path, "..") || strchr(r->path, '%') || strchr(r->path, '\\') || strstr(r->path, "//"))
        return set_problem(p, 400, "invalid_request", "", "the path contains '..', '//', '%%' or a backslash");
    return true;
}

static bool begins_with(const char *text, const char *begin) {
    size_t n = strlen(begin);
    return text && strncasecmp(text, begin, n) == 0 && (!text[n] || text[n] == ';' || text[n] == ' ');
}

static bool check_body_head(request *r, problem *p) {
    const char *length = header_of(r, "content-length"), *type = header_of(r, "content-type");
    int64_t most = r->front->options->max_body;
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

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void add_header(request *r, const char *name, const char *value) {
    if (r->response && value) MHD_add_response_header(r->response, name, value);
}

static void set_response(request *r, int status, struct MHD_Response *response) {
    if (r->response) MHD_destroy_response(r->response);
    r->response = response;
    r->status = status;
}

void reply_bytes(request *r, int status, const char *type, buffer *data) {
    set_response(r, status, MHD_create_response_from_buffer(data->size, data->data, MHD_RESPMEM_MUST_FREE));
    *data = (buffer){.data = NULL};
    add_header(r, "content-type", type);
}

void reply_json(request *r, int status, json_t *body) {
    buffer text = {.data = NULL};
    char *dump = body ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(body);
    if (!dump)
        dump = strdup("{\"error\":{\"message\":\"out of "
                      "memory\",\"type\":\"server_error\",\"param\":null,\"code\":\"out_of_memory\"}}");
    text.data = dump;
    text.size = dump ? strlen(dump) : 0;
    reply_bytes(r, status, "application/json", &text);
    add_header(r, "cache-control", "no-store");
}

static int retry_seconds(front *f) {
    double left = f->jobs ? queue_seconds(f, f->jobs) : -1;
    return left < 0 ? 5 : left < 1 ? 1 : left > 120 ? 120 : (int)(left + 1);
}

void reply_problem(request *r, const problem *p) {
    char seconds[16];
    bool sdapi = strncmp(r->path, "/sdapi/", 7) == 0, field = sdapi && p->status == 400 && *p->param;
    reply_json(r, field ? 422 : p->status, sdapi ? problem_detail(p) : problem_json(p));
    if (p->status == 429 || p->status == 503) {
        snprintf(seconds, sizeof seconds, "%d", retry_seconds(r->front));
        add_header(r, "retry-after", seconds);
    }
    if (p->status == 401) add_header(r, "www-authenticate", sdapi ? "Basic realm=\"lazuli\"" : "Bearer");
    if (p->status >= 500 && !may_help_again(p->code)) add_header(r, "x-should-retry", "false");
    if (p->status == 405) add_header(r, "allow", p->param);
}

void reply_error(request *r, int status, const char *code, const char *param, const char *format, ...) {
    problem p;
    char text[sizeof p.text];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    set_problem(&p, status, code, param, "%s", text);
    reply_problem(r, &p);
}

void reply_empty(request *r, int status) {
    set_response(r, status, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

void reply_file(request *r, const char *path, const char *type, bool immutable) {
    struct stat s;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (file < 0 || fstat(file, &s) != 0) {
        if (file >= 0) close(file);
        reply_error(r, 410, "gone", "", "the picture has been removed");
        return;
    }
    set_response(r, 200, MHD_create_response_from_fd64((uint64_t)s.st_size, file));
    add_header(r, "content-type", type);
    add_header(r, "content-security-policy", "sandbox; default-src 'none'");
    add_header(r, "content-disposition", "inline");
    add_header(r, "cache-control", immutable ? "private, max-age=31536000, immutable" : "private, no-store");
}

static ssize_t read_stream(void *user, uint64_t at, char *to, size_t most);

void reply_stream(request *r, stream *s) {
    r->stream = s;
    set_response(r, 200, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 64 << 10, read_stream, r, NULL));
    add_header(r, "content-type", "text/event-stream");
    add_header(r, "cache-control", "no-cache");
    add_header(r, "x-accel-buffering", "no");
}

void note_ignored(request *r, const char *field) {
    size_t used = strlen(r->ignored), n = strlen(field);
    bool plain = strspn(field, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.[]") == n;
    if (used + n + 3 < sizeof r->ignored && plain)
        snprintf(r->ignored + used, sizeof r->ignored - used, "%s%s", used ? ", " : "", field);
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
    if (!s->out.size && s->preview.size) {
        buffer_add(&s->out, s->preview.data, s->preview.size);
        s->preview.size = 0;
        s->spoke = steady_seconds();
    }
    if (s->out.size) {
        size_t left = s->out.size - s->sent, n = left < most ? left : most;
        memcpy(to, s->out.data + s->sent, n);
        s->sent += n;
        if (s->sent == s->out.size) s->sent = s->out.size = 0;
        return (ssize_t)n;
    }
    if (s->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    suspend(r);
    return 0;
}

/* ---- a request's life -------------------------------------------------------------------------------------------- */

static void read_addresses(request *r) {
    const union MHD_ConnectionInfo *socket = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_storage ends[2] = {{.ss_family = AF_UNSPEC}};
    socklen_t sizes[2] = {sizeof ends[0], sizeof ends[1]};
    r->socket = socket ? socket->connect_fd : -1;
    getpeername(r->socket, (struct sockaddr *)&ends[0], &sizes[0]);
    getsockname(r->socket, (struct sockaddr *)&ends[1], &sizes[1]);
    char *to[2] = {r->address, r->local}, text[INET6_ADDRSTRLEN] = "";
    for (int i = 0; i < 2; i++) {
        const void *address = ends[i].ss_family == AF_INET    ? (void *)&((struct sockaddr_in *)&ends[i])->sin_addr
                              : ends[i].ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&ends[i])->sin6_addr
                                                              : NULL;
        if (!address || !inet_ntop(ends[i].ss_family, address, text, sizeof text)) {
            if (i == 0) snprintf(to[i], 64, "local");
            continue;
        }
        const char *v4 = strncmp(text, "::ffff:", 7) == 0 ? text + 7 : text;
        bool brackets = i == 1 && v4 == text && ends[i].ss_family == AF_INET6;
        snprintf(to[i], 64, "%s%s%s", brackets ? "[" : "", v4, brackets ? "]" : "");
    }
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
    stream_free(f, r->stream);
    f->metrics.requests++;
    f->metrics.codes[r->status >= 100 && r->status < 600 ? r->status / 100 : 0]++;
    if (!f->options->quiet)
        say_line(f, "%s %s %s %s %d %lld bytes %.3f s%s", r->id, *r->who.owner ? r->who.owner : r->address, r->method,
                 r->route ? r->route->path : "-", r->status, (long long)r->received, steady_seconds() - r->begun,
                 r->gone ? " gone" : "");
    f->bodies -= r->counted;
    if (r->next) r->next->before = r->before;
    if (r->before)
        r->before->next = r->next;
    else
        f->requests = r->next;
    if (r->response) MHD_destroy_response(r->response);
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
static bool begin(request *r) {
    problem p = {.status = 0}, missing = {.status = 0};
    bool good = check_headers(r, &p);
    if (good) r->route = find_route(r, &missing);
    good = good && guard_check(r, &p);
    if (good && reply_preflight(r)) return false;
    if (good && !r->route) {
        p = missing;
        good = false;
    }
    if (good && r->route->flags & ADMIN && !r->who.admin)
        good = set_problem(&p, 403, "admin_only", "", "this needs the key of an administrator");
    if (good && r->route->flags & EVENTS && strcmp(r->method, "HEAD") == 0)
        good = set_problem(&p, 405, "method_not_allowed", "GET", "this path takes GET");
    good = good && check_body_head(r, &p);
    if (good) return true;
    reply_problem(r, &p);
    if (p.status == 400 || p.status == 413) add_header(r, "connection", "close");
    return false;
}

static enum MHD_Result take_body(request *r, const char *data, size_t *size) {
    int64_t most = r->front->options->max_body;
    if ((int64_t)(r->body.size + *size) > most || r->front->bodies + (int64_t)*size > MOST_BODIES ||
        !buffer_add(&r->body, data, *size))
        return MHD_NO; /* a body without a length that is too long: the connection is closed */
    r->counted += (int64_t)*size;
    r->received += (int64_t)*size;
    r->front->bodies += (int64_t)*size;
    *size = 0;
    return MHD_YES;
}

/* A request may wait long for its picture. Its body has been read by then. */
static void forget_body(request *r) {
    r->front->bodies -= r->counted;
    r->counted = 0;
    buffer_free(&r->body);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **mine) {
    request *r = *mine;
    (void)version;
    if (!r) {
        r = request_new(user, c, url, method);
        if (!r) return MHD_NO;
        *mine = r;
        if (begin(r)) return MHD_YES;
        return r->response ? queue_answer(r) : MHD_NO;
    }
    if (*size) return take_body(r, data, size);
    if (r->gone) return MHD_NO;
    if (!r->called) {
        r->called = true;
        r->route->handle(r);
        forget_body(r);
    }
    if (r->response) return queue_answer(r);
    if (!r->job && !*r->ask) return MHD_NO; /* out of memory */
    suspend(r);
    return MHD_YES;
}

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

static void on_log(void *user, const char *format, va_list list) { (void)user, (void)format, (void)list; }

bool http_start(front *f, int listener, char *why, size_t size) {
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, f},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)slow_connection, f},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escapes, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, f->loopback ? 0 : CONNECTIONS_EACH, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, SECONDS_TO_SEND, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADER_BYTES, NULL},
        {MHD_OPTION_LISTEN_SOCKET, listener, NULL},
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    f->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                                 on_request, f, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_ARRAY, options,
                                 MHD_OPTION_END);
    if (!f->daemon) snprintf(why, size, "libmicrohttpd cannot be started");
    return f->daemon;
}

void http_turn(front *f) { MHD_run(f->daemon); }

int http_timeout(front *f) {
    MHD_UNSIGNED_LONG_LONG milliseconds;
    if (MHD_get_timeout(f->daemon, &milliseconds) != MHD_YES) return -1;
    return milliseconds > 1000 ? 1000 : (int)milliseconds;
}

int http_socket(front *f) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(f->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    return info ? info->epoll_fd : -1;
}

void http_quiesce(front *f) {
    int listener = MHD_quiesce_daemon(f->daemon);
    if (listener >= 0) close(listener);
}

void http_stop(front *f) {
    for (request *r = f->requests; r; r = r->next) {
        r->gone = true;
        wake(r);
    }
    MHD_run(f->daemon);
    MHD_stop_daemon(f->daemon);
    f->daemon = NULL;
}
