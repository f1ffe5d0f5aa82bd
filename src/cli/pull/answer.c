/* answer.c: see answer.h. */
#include "pull/answer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Copies the value of a header line, without surrounding blanks. false: another header, or the value is too long. */
static bool take_value(const char *line, size_t n, const char *name, char *to, size_t size) {
    size_t m = strlen(name);
    if (n <= m || strncasecmp(line, name, m) != 0 || line[m] != ':') return false;
    const char *begin = line + m + 1, *end = line + n;
    while (begin < end && (*begin == ' ' || *begin == '\t')) begin++;
    while (end > begin && (unsigned char)end[-1] <= 32) end--;
    size_t length = (size_t)(end - begin);
    if (length >= size) return false;
    memcpy(to, begin, length);
    to[length] = 0;
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

void answer_line(answer_head *h, const char *line, size_t n) {
    char text[1200] = "", seconds[8] = "";
    if (take_value(line, n, "content-range", text, sizeof text) && strncasecmp(text, "bytes ", 6) == 0)
        h->range_begin = is_digit(text[6]) ? strtoll(text + 6, NULL, 10) : -1;
    if (take_value(line, n, "retry-after", seconds, sizeof seconds) && is_digit(*seconds))
        h->retry_after = atoi(seconds);
    if (take_value(line, n, "link", text, sizeof text) && *text == '<') { /* <address>; rel="next" */
        char *end = strchr(text, '>');
        if (end && strstr(end, "rel=\"next\"") && end - text <= (long)sizeof h->next)
            snprintf(h->next, sizeof h->next, "%.*s", (int)(end - text - 1), text + 1);
    }
}
