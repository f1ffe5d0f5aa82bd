/* json_lists.c: see json_lists.h. */
#include "text/json_lists.h"

#include <string.h>

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
    return at;
}

/* The end of the string that begins here; NULL: it has none. */
static const char *skip_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && ++at == end) return NULL;
    return at < end ? at + 1 : NULL;
}

/* The end of the value that begins here, if its brackets are in pairs; NULL: it has none. */
static const char *skip_value(const char *at, const char *end) {
    int64_t depth = 0;
    while (at && at < end) {
        bool inside = depth > 0;
        if (*at == '"') {
            at = skip_string(at, end);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            if (!inside) return at;
            depth--;
            at++;
        } else if (!inside && (*at == ',' || skip_blanks(at, end) > at)) {
            return at;
        } else {
            at++;
            continue; /* of a number or a word */
        }
        if (!depth) return at;
    }
    return NULL;
}

lz_json_range lz_json_member(lz_json_range object, const char *name) {
    const lz_json_range none = {NULL, NULL};
    const char *at = skip_blanks(object.begin, object.end), *end = object.end;
    if (at == end || *at != '{') return none;
    for (at = skip_blanks(at + 1, end); at < end && *at == '"'; at = skip_blanks(at + 1, end)) {
        const char *stop = skip_string(at, end);
        if (!stop) return none;
        size_t n = (size_t)(stop - at) - 2;
        bool same = n == strlen(name) && memcmp(at + 1, name, n) == 0, escapes = memchr(at, '\\', n + 1);
        at = skip_blanks(stop, end);
        if (at == end || *at != ':' || escapes) return none;
        lz_json_range value = {.begin = skip_blanks(at + 1, end)};
        value.end = skip_value(value.begin, end);
        if (!value.end) return none;
        if (same) return value;
        at = skip_blanks(value.end, end);
        if (at == end || *at != ',') return none;
    }
    return none;
}

bool lz_json_sign(lz_json_reader *r, char sign) {
    r->at = skip_blanks(r->at, r->end);
    if (r->at == r->end || *r->at != sign) return false;
    r->at++;
    return true;
}

bool lz_json_ends(const lz_json_reader *r) { return skip_blanks(r->at, r->end) == r->end; }

/* A character of four hexadecimal digits, as UTF-8; 0 bytes: it is none, or zero, or a half of a pair. */
static size_t read_escape(const char *at, const char *end, char *to) {
    uint32_t c = 0;
    if (end - at < 4) return 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        const char *digit = at[i] ? strchr(digits, at[i]) : NULL;
        if (!digit) return 0;
        size_t value = (size_t)(digit - digits);
        c = 16 * c + (uint32_t)(value < 16 ? value : value - 6);
    }
    if (c == 0 || (c >= 0xd800 && c <= 0xdfff)) return 0;
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(n == 1 ? c : first[n] | c);
    return n;
}

/* From the first backslash, at `at`, of the string whose begin r has. */
static bool read_escapes(lz_json_reader *r, const char *at) {
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t n = (size_t)(at - r->at);
    if (n + 4 > sizeof r->copy) return false;
    memcpy(r->copy, r->at, n);
    while (n + 4 <= sizeof r->copy && at < r->end && *at != '"') {
        if ((unsigned char)*at < 0x20) return false;
        if (*at != '\\') {
            r->copy[n++] = *at++;
            continue;
        }
        if (++at == r->end) return false;
        const char *escape = *at ? strchr(escapes, *at) : NULL;
        size_t bytes = escape ? 1 : *at == 'u' ? read_escape(at + 1, r->end, r->copy + n) : 0;
        if (!bytes) return false;
        if (escape) r->copy[n] = meanings[escape - escapes];
        n += bytes;
        at += escape ? 1 : 5;
    }
    if (n + 4 > sizeof r->copy || at == r->end) return false;
    r->text = r->copy;
    r->n = n;
    r->at = at + 1;
    return true;
}

bool lz_json_string(lz_json_reader *r) {
    if (!lz_json_sign(r, '"')) return false;
    const char *at = r->at;
    while (at < r->end && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20) at++;
    if (at < r->end && *at == '\\') return read_escapes(r, at);
    if (at == r->end || *at != '"') return false;
    r->text = r->at;
    r->n = (size_t)(at - r->at);
    r->at = at + 1;
    return true;
}

bool lz_json_id(lz_json_reader *r, int32_t *id) {
    const char *first = r->at = skip_blanks(r->at, r->end);
    int32_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && r->at < first + 9; r->at++)
        value = 10 * value + (*r->at - '0');
    bool leading = r->at > first + 1 && *first == '0', ends = r->at < r->end && strchr(",} \n\t\r", *r->at);
    *id = value;
    return r->at > first && !leading && ends && *r->at;
}
