/* strict.c: see strict.h.
 *
 * A proxy and this server must agree on where a request ends and what its headers are, or a client can hide a request in
 * another one (request smuggling). libmicrohttpd accepts headers twice, a length beside chunks, lines that end in LF or
 * contain CR, lines that are continued, and bytes of zero. Such requests are refused here. */
#include "strict.h"

#include <string.h>
#include <strings.h>

enum { MOST_HEADER = 16 << 10 };

/* Headers that may be sent once. */
static const char *const single[] = {"host",          "content-length", "transfer-encoding", "content-type", "origin",
                                     "authorization", "cookie"};
enum { SINGLE = sizeof single / sizeof *single, LENGTH = 1, CODING = 2 };
#define TOKEN "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

typedef struct heads { /* what the headers of a request are made of */
    int counts[SINGLE];
    bool odd_name, odd_value, odd_line;
    const char *at; /* where the next part should begin, less the bytes between both */
} heads;

static bool has_control(const char *text) {
    for (; *text; text++)
        if ((*text > 0 && *text < 32 && *text != '\t') || *text == 127) return true;
    return false;
}

/* Up to 0.9.75 the library parses the head where it was read, and replaces the ends of names, values and lines by zeros. So the
 * distance of two parts tells how many bytes are between them: one too few is a line that ends in LF, and one more is
 * a byte of zero, at which the text before it seems to end. Later versions refuse such requests themselves. */
static void pass(heads *h, const char *part, size_t size, ptrdiff_t gap) {
#if MHD_VERSION < 0x00097701
    if ((intptr_t)part - (intptr_t)h->at != gap) h->odd_line = true;
#else
    (void)gap;
#endif
    h->at = part + size;
}

static enum MHD_Result take_argument(void *user, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                     const char *value, size_t value_size) {
    heads *h = user;
    (void)kind;
    pass(h, name, name_size, 1);
    if (value) pass(h, value, value_size, 1);
    return MHD_YES;
}

static enum MHD_Result take_header(void *user, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                   const char *value, size_t value_size) {
    heads *h = user;
    (void)kind;
    pass(h, name, name_size, 2);
    if (!*name || name[strspn(name, TOKEN)]) h->odd_name = true;
    if (value && has_control(value)) h->odd_value = true;
    /* The library has skipped the blanks before the value. */
    if (value) pass(h, value, value_size, h->odd_line ? 0 : 1 + (ptrdiff_t)strspn(name + name_size + 1, " \t"));
    for (int i = 0; i < SINGLE; i++) h->counts[i] += strcasecmp(single[i], name) == 0;
    return MHD_YES;
}

/* Walks over the whole head. */
static void look(const request *r, const request_line *line, heads *h) {
    const union MHD_ConnectionInfo *size = MHD_get_connection_info(r->connection,
                                                                   MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    h->at = line->method + strlen(line->method);
    pass(h, line->url, strlen(line->url), 1);
    MHD_get_connection_values_n(r->connection, MHD_GET_ARGUMENT_KIND, take_argument, h);
    /* A path or an argument may end in a ? or & that nothing follows. */
    pass(h, line->version, strlen(line->version), (intptr_t)line->version - (intptr_t)h->at == 2 ? 2 : 1);
    MHD_get_connection_values_n(r->connection, MHD_HEADER_KIND, take_header, h);
    if (size) pass(h, line->method + size->header_size, 0, 4);
}

bool strict_check(request *r, const request_line *line, problem *p) {
    heads h = {.odd_line = false};
    const union MHD_ConnectionInfo *size = MHD_get_connection_info(r->connection,
                                                                   MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    look(r, line, &h);
    if (size && size->header_size > MOST_HEADER)
        return set_problem(p, 431, "header_too_large", "", "the head of the request has more than 16 KiB");
    for (int i = 0; i < SINGLE; i++)
        if (h.counts[i] > 1)
            return set_problem(p, 400, "invalid_request", "", "the header %s was sent twice", single[i]);
    if (h.odd_name)
        return set_problem(p, 400, "invalid_request", "",
                           "the name of a header contains a character that is not allowed");
    if (h.odd_line || h.odd_value || has_control(r->path) || strchr(r->path, ' '))
        return set_problem(
            p, 400, "invalid_request", "",
            "the lines of the request do not end in CR LF, or contain a zero or another control character");
    if (!h.counts[0] && r->is_http_1_1) return set_problem(p, 400, "invalid_request", "", "the header host is missing");
    if (h.counts[LENGTH] && h.counts[CODING])
        return set_problem(p, 400, "invalid_request", "", "Content-Length and Transfer-Encoding exclude each other");
    const char *length = header_of(r, "content-length"), *coding = header_of(r, "transfer-encoding");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return set_problem(p, 400, "invalid_request", "", "Transfer-Encoding must be chunked");
    if (coding && !r->is_http_1_1)
        return set_problem(p, 400, "invalid_request", "", "HTTP/1.0 has no Transfer-Encoding");
    if (length && (!*length || strspn(length, "0123456789") != strlen(length)))
        return set_problem(p, 400, "invalid_request", "", "Content-Length is not a number");
    if (strstr(r->path, "..") || strchr(r->path, '%') || strchr(r->path, '\\') || strstr(r->path, "//"))
        return set_problem(p, 400, "invalid_request", "", "the path contains '..', '//', '%%' or a backslash");
    return true;
}
