/* wildcards.c: see wildcards.h. Files come from strangers, so every size is limited. */
#include "wildcards.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3))) static bool refuse_file(char error[TEMPLATE_ERROR], const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(error, TEMPLATE_ERROR, format, list);
    va_end(list);
    return false;
}

static bool is_blank_byte(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

alternative alternative_read(const char *text, size_t length) {
    alternative a = {.weight = 1};
    while (length && is_blank_byte(*text)) text++, length--;
    while (length && is_blank_byte(text[length - 1])) length--;
    size_t digits = 0;
    while (digits < length && digits < 20 && strchr("0123456789.", text[digits])) digits++;
    if (digits && digits + 1 < length && text[digits] == ':' && text[digits + 1] == ':') {
        char number[24] = "", *end = number;
        memcpy(number, text, digits);
        double weight = strtod(number, &end);
        if (end != number && !*end && weight <= 1e6) {
            a.weight = weight;
            text += digits + 2;
            length -= digits + 2;
            while (length && is_blank_byte(*text)) text++, length--;
        }
    }
    a.text = text;
    a.length = length;
    return a;
}

/* Is each part of the name an ordinary one? Neither "..", nor "." nor empty. */
static bool stays_inside(const char *name) {
    for (const char *part = name;; part += strcspn(part, "/") + 1) {
        size_t length = strcspn(part, "/");
        if (!length || *part == '.') return false;
        if (!part[length]) return true;
    }
}

/* The whole file, owned. A link may lead to another file of the folder, but not out of it. */
static char *read_wildcard(const char *in, const char *name, size_t *bytes, char *error) {
    char path[PATH_MAX], real[PATH_MAX], folder[PATH_MAX], *text = NULL;
    struct stat s;
    int n = snprintf(path, sizeof path, "%s/%s.txt", in, name);
    if (!stays_inside(name) || n < 0 || n >= (int)sizeof path) {
        refuse_file(error, "__%.80s__ in the prompt is no name of a file in the folder of wildcards", name);
        return NULL;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
    if (fd < 0) {
        refuse_file(error,
                    "__%.80s__ in the prompt: %.150s: cannot be opened: %s; \\__ is for the characters themselves",
                    name, path, strerror(errno));
        return NULL;
    }
    bool inside = realpath(path, real) && realpath(in, folder) && strncmp(real, folder, strlen(folder)) == 0 &&
                  (real[strlen(folder)] == '/' || strcmp(folder, "/") == 0);
    if (!inside)
        refuse_file(error, "__%.80s__ in the prompt: the file is a link out of the folder of wildcards", name);
    else if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))
        refuse_file(error, "__%.80s__ in the prompt: %.200s is not a file", name, path);
    else if (s.st_size > WILDCARD_BYTES)
        refuse_file(error, "__%.80s__ in the prompt: the file is too large; the limit is %d MiB", name,
                    WILDCARD_BYTES >> 20);
    else if (!(text = malloc((size_t)s.st_size + 1)))
        refuse_file(error, "out of memory");
    ssize_t got = 1;
    for (*bytes = 0; text && got > 0 && (size_t)s.st_size > *bytes; *bytes += got > 0 ? (size_t)got : 0)
        got = read(fd, text + *bytes, (size_t)s.st_size - *bytes);
    close(fd);
    if (text && (got < 0 || memchr(text, 0, *bytes)))
        refuse_file(error, "__%.80s__ in the prompt: the file cannot be read, or is not text", name);
    if (!*error) return text;
    free(text);
    return NULL;
}

/* Splits the text into lines that are neither blank nor comments. */
static bool read_lines(wildcard *w, size_t bytes, char *error) {
    const char *at = w->text, *end = w->text + bytes;
    size_t room = 0;
    if (bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) at += 3; /* byte order mark of UTF-8 */
    for (const char *stop; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (stop - at > WILDCARD_LINE)
            return refuse_file(error, "__%.80s__ in the prompt: a line of the file is too long; the limit is %d KiB",
                               w->name, WILDCARD_LINE >> 10);
        alternative line = alternative_read(at, (size_t)(stop - at));
        if (!line.length || *line.text == '#') continue;
        if (w->n == room) {
            if (w->n > TEMPLATE_OPTIONS)
                return refuse_file(error, "__%.80s__ in the prompt: the file has more than %d lines", w->name,
                                   TEMPLATE_OPTIONS);
            alternative *more = realloc(w->lines, (room = 2 * room + 64) * sizeof *more);
            if (!more) return refuse_file(error, "out of memory");
            w->lines = more;
        }
        w->lines[w->n++] = line;
    }
    return w->n || refuse_file(error, "__%.80s__ in the prompt: the file has no lines", w->name);
}

const wildcard *wildcard_find(wildcard **files, const char *folder, const char *name, size_t length,
                              char error[TEMPLATE_ERROR]) {
    for (const wildcard *w = *files; w; w = w->next)
        if (strlen(w->name) == length && memcmp(w->name, name, length) == 0) return w;
    wildcard *w = calloc(1, sizeof *w);
    size_t bytes = 0;
    if (!w || !(w->name = strndup(name, length))) {
        free(w);
        refuse_file(error, "out of memory");
        return NULL;
    }
    w->next = *files; /* freed with the others, after an error too */
    *files = w;
    w->text = read_wildcard(folder, w->name, &bytes, error);
    return w->text && read_lines(w, bytes, error) ? w : NULL;
}

void wildcards_free(wildcard *files) {
    for (wildcard *w = files, *next; w; w = next) {
        next = w->next;
        free(w->name);
        free(w->text);
        free(w->lines);
        free(w);
    }
}
