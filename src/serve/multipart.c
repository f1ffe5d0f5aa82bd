/* multipart.c: see multipart.h. */
#include "multipart.h"

#include <string.h>
#include <strings.h>

/* The value of a parameter such as boundary=x or name="x", copied; false: it is missing, too long or unfinished. A
 * backslash escapes a quote. end: of the header. */
static bool parameter(const char *at, const char *end, const char *name, char *to, size_t size) {
    size_t n = strlen(name), out = 0;
    bool quoted = false;
    for (const char *c = at; c < end; c++) {
        if (*c == '"' && c[-1] != '\\') quoted = !quoted;
        if (quoted || *c != ';') continue;
        do c++;
        while (c < end && (*c == ' ' || *c == '\t'));
        if ((size_t)(end - c) <= n || strncasecmp(c, name, n) != 0 || c[n] != '=') {
            c--;
            continue;
        }
        c += n + 1;
        bool quotes = c < end && *c == '"';
        for (c += quotes; c < end; c++) {
            if (quotes ? *c == '"' : *c == ';' || *c == ' ' || *c == '\t') break;
            if (quotes && *c == '\\' && c + 1 < end && (c[1] == '"' || c[1] == '\\')) c++;
            if (out + 1 >= size || !*c) return false;
            to[out++] = *c;
        }
        to[out] = 0;
        return !quotes || c < end;
    }
    return false;
}

bool multipart_boundary(const char *type, char boundary[BOUNDARY + 1]) {
    static const char kind[] = "multipart/form-data";
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'()+_,-./:=? ";
    if (!type || strncasecmp(type, kind, sizeof kind - 1) != 0) return false;
    const char *rest = type + sizeof kind - 1;
    if (!parameter(rest, rest + strlen(rest), "boundary", boundary, BOUNDARY + 1)) return false;
    size_t n = strlen(boundary);
    return n && boundary[n - 1] != ' ' && strspn(boundary, allowed) == n;
}

/* Where the delimiter begins, from `at` on, with the line end before it; NULL: nowhere. */
static const char *find_delimiter(const char *at, const char *end, const char *delimiter, size_t n) {
    return at < end ? memmem(at, (size_t)(end - at), delimiter, n) : NULL;
}

/* Reads the headers of a part; returns where its data begins, NULL: they are wrong. */
static const char *read_head(const char *at, const char *end, form_part *p, const char **why) {
    static const char disposition[] = "content-disposition:";
    bool found = false;
    for (int lines = 0; at < end; lines++) {
        const char *line = at, *stop = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (!stop || stop - line > 4096 || lines > 16) break;
        at = stop + 2;
        if (stop == line) {
            if (!found) *why = "a part has no name";
            return found ? at : NULL;
        }
        if ((size_t)(stop - line) < sizeof disposition - 1 ||
            strncasecmp(line, disposition, sizeof disposition - 1) != 0)
            continue;
        char file[256];
        const char *rest = line + sizeof disposition - 1;
        const char *star = memmem(rest, (size_t)(stop - rest), "filename*=", 10);
        if (found || !parameter(rest, stop, "name", p->name, sizeof p->name)) {
            *why = "a part has no name, or a name of more than 63 bytes";
            return NULL;
        }
        p->is_file = star || parameter(rest, stop, "filename", file, sizeof file) ||
                     memmem(rest, (size_t)(stop - rest), "filename=", 9);
        found = true;
    }
    *why = "the headers of a part do not end";
    return NULL;
}

int multipart_read(const char *body, size_t size, const char *boundary, form_part parts[PARTS], const char **why) {
    char delimiter[BOUNDARY + 5] = "\r\n--";
    const char *end = body + size, *at = body;
    size_t n = strlen(boundary) + 4;
    int count = 0;
    strncat(delimiter, boundary, BOUNDARY);
    *why = "the boundary of Content-Type is not in the body";
    if (size >= n - 2 && memcmp(body, delimiter + 2, n - 2) == 0)
        at = body + n - 2;
    else if ((at = find_delimiter(body, end, delimiter, n)))
        at += n;
    while (at) {
        *why = "the body ends within a part";
        if (end - at >= 2 && memcmp(at, "--", 2) == 0) return count;
        while (at < end && (*at == ' ' || *at == '\t')) at++;
        if (end - at < 2 || memcmp(at, "\r\n", 2) != 0) return -1;
        if (count == PARTS) *why = "there are more than 40 parts";
        if (count == PARTS) return -1;
        form_part *p = &parts[count++];
        *p = (form_part){.data = NULL};
        p->data = read_head(at + 2, end, p, why);
        if (!p->data) return -1;
        *why = "the body ends within a part";
        at = find_delimiter(p->data, end, delimiter, n);
        if (!at) return -1;
        p->size = (size_t)(at - p->data);
        at += n;
    }
    return -1;
}
