/* answer.c: the answers of requests: JSON, bytes, errors, files and parts of files. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sse.h"

void add_header(request *r, const char *name, const char *value) {
    if (r->response && value) MHD_add_response_header(r->response, name, value);
}

void set_response(request *r, int status, struct MHD_Response *response) {
    if (r->response) MHD_destroy_response(r->response);
    r->response = response;
    r->answer_bytes = 0;
    r->status = status;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

bool answers_have_room(const front *f, int64_t bytes) {
    int64_t held = 0;
    for (const request *r = f->requests; r; r = r->next)
        held += r->answer_bytes + (r->stream && !r->stream->native ? (int64_t)r->stream->out.size : 0);
    return !held || held + bytes <= MOST_ANSWERS;
}

bool pictures_have_room(request *r, const job *j) {
    int64_t bytes = 0;
    for (int i = 0; i < j->made; i++) bytes += (j->pictures[i].bytes + 2) / 3 * 4;
    if (answers_have_room(r->front, bytes)) return true;
    reply_error(r, 429, "queue_full", "", "too many large answers are being sent");
    return false;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void reply_bytes(request *r, int status, const char *type, buffer *data) {
    set_response(r, status, MHD_create_response_from_buffer(data->size, data->data, MHD_RESPMEM_MUST_FREE));
    r->answer_bytes = (int64_t)data->size;
    *data = (buffer){.data = NULL};
    add_header(r, "content-type", type);
}

void reply_json(request *r, int status, json_t *body) {
    buffer text = {.data = NULL};
    char *dump = body ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(body);
    if (!dump) status = 500;
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
        bool soon = strcmp(p->code, "too_many_failures") == 0;
        snprintf(seconds, sizeof seconds, "%d", soon ? 1 : retry_seconds(r->front));
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

void reply_constant(request *r, int status, const char *type, const void *data, size_t size) {
    set_response(r, status, MHD_create_response_from_buffer(size, (void *)data, MHD_RESPMEM_PERSISTENT));
    add_header(r, "content-type", type);
}

void reply_empty(request *r, int status) {
    set_response(r, status, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

/* Reads "bytes=FIRST-LAST", "bytes=FIRST-" or "bytes=-COUNT". 206: the range is in the file; 416: it is not; 200: send the
 * whole file, because there is no range, or one that is not understood. */
static int read_range(const char *text, int64_t size, int64_t *first, int64_t *last) {
    long long from = -1, to = -1;
    int end = 0;
    *first = 0;
    *last = size - 1;
    if (!text || strncasecmp(text, "bytes=", 6) != 0 || strspn(text + 6, "0123456789-") != strlen(text + 6)) return 200;
    text += 6;
    if (sscanf(text, "%18lld-%18lld%n", &from, &to, &end) == 2 && from >= 0 && to >= from && !text[end])
        *last = to < size ? to : size - 1;
    else if (end = 0, sscanf(text, "%18lld-%n", &from, &end) == 1 && from >= 0 && end && !text[end])
        *last = size - 1;
    else if (end = 0, sscanf(text, "-%18lld%n", &to, &end) == 1 && to >= 0 && end && !text[end])
        from = to == 0 ? size : to < size ? size - to : 0;
    else
        return 200;
    *first = from;
    return from < size ? 206 : 416;
}

void reply_missing(request *r, const char *path) {
    if (path)
        reply_error(r, 410, "gone", "", "the picture has been removed");
    else
        reply_error(r, 503, "not_ready", "", "the store of the pictures cannot be reached now");
}

void reply_file(request *r, const char *path, const char *type, const char *tag) {
    struct stat s;
    const char *known = header_of(r, "if-none-match"), *whole_unless = header_of(r, "if-range");
    if (tag && known && strcmp(known, tag) == 0) {
        reply_empty(r, 304);
        add_header(r, "etag", tag);
        return;
    }
    int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (file < 0 || fstat(file, &s) != 0) {
        if (file >= 0) close(file);
        reply_missing(r, path);
        return;
    }
    const char *range = tag && whole_unless && strcmp(whole_unless, tag) != 0 ? NULL : header_of(r, "range");
    int64_t first, last;
    char content[96];
    int status = read_range(range, s.st_size, &first, &last);
    snprintf(content, sizeof content, "bytes %lld-%lld/%lld", (long long)first, (long long)last, (long long)s.st_size);
    if (status == 416) {
        close(file);
        snprintf(content, sizeof content, "bytes */%lld", (long long)s.st_size);
        reply_error(r, 416, "invalid_range", "", "the file has %lld bytes", (long long)s.st_size);
        add_header(r, "content-range", content);
        return;
    }
    set_response(r, status,
                 MHD_create_response_from_fd_at_offset64((uint64_t)(last - first + 1), file, (uint64_t)first));
    if (status == 206) add_header(r, "content-range", content);
    add_header(r, "accept-ranges", "bytes");
    add_header(r, "etag", tag);
    add_header(r, "content-type", type);
    add_header(r, "content-security-policy", "sandbox; default-src 'none'");
    add_header(r, "content-disposition", "inline");
    add_header(r, "cache-control", tag ? "private, max-age=31536000, immutable" : "private, no-store");
}

void note_ignored(request *r, const char *field) {
    size_t used = strlen(r->ignored), n = strlen(field);
    bool plain = strspn(field, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.[]") == n;
    if (used + n + 3 < sizeof r->ignored && plain)
        snprintf(r->ignored + used, sizeof r->ignored - used, "%s%s", used ? ", " : "", field);
}
