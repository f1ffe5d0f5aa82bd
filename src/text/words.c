/* words.c: see words.h. */
#include "text/words.h"

#include <string.h>

char lz_ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool in_word(char c) {
    return (unsigned char)c >= 0x80 || (c >= '0' && c <= '9') ||
           (lz_ascii_lower(c) >= 'a' && lz_ascii_lower(c) <= 'z') || c == '-' || c == '\'';
}

static bool begins_with(const char *at, const char *end, const char *bytes) {
    size_t n = strlen(bytes);
    return (size_t)(end - at) >= n && memcmp(at, bytes, n) == 0;
}

/* Bytes of a mark that only changes how the emoji before it looks; 0: there is none. */
static int mark_bytes(const char *at, const char *end) {
    if (begins_with(at, end, "\xef\xb8\x8f") || begins_with(at, end, "\xef\xb8\x8e")) return 3; /* U+FE0F, U+FE0E */
    return begins_with(at, end, "\xf0\x9f\x8f") && end - at > 3 && (unsigned char)at[3] >= 0xbb ? 4 : 0; /* a tone */
}

int lz_sign_bytes(const char *at, const char *end) {
    if (begins_with(at, end, "\xf0\x9f") && end - at > 3) return 4;
    return end - at > 2 && at[0] == '\xe2' && (unsigned char)at[1] >= 0x86 && (unsigned char)at[1] <= 0xaf ? 3 : 0;
}

/* The end of the emoji that begins with a sign of n bytes: marks, U+20E3, and signs that U+200D joins to it. */
static const char *end_of_sign(const char *at, int n, const char *end) {
    for (at += n;; at += n) {
        static const char joiner[] = "\xe2\x80\x8d", key[] = "\xe2\x83\xa3";
        n = begins_with(at, end, key) ? 3 : mark_bytes(at, end);
        if (!n && begins_with(at, end, joiner) && (n = lz_sign_bytes(at + 3, end))) n += 3;
        if (!n) return at;
    }
}

/* Bytes of a blank or a sign of punctuation that is not ASCII: U+00A0, U+2010 to U+2027 (dashes, quotes); 0: it is none. */
static int dash_bytes(const char *at, const char *end) {
    if (begins_with(at, end, "\xc2\xa0")) return 2;
    return begins_with(at, end, "\xe2\x80") && end - at > 2 && (unsigned char)at[2] >= 0x90 &&
                   (unsigned char)at[2] <= 0xa7
               ? 3
               : 0;
}

int lz_inner_bytes(const char *at, const char *end) {
    if (at < end && (*at == '\'' || *at == '-')) return 1;
    return begins_with(at, end, "\xe2\x80\x99") ? 3 : 0; /* U+2019 */
}

int lz_weight_bytes(const char *at, const char *end) {
    const char *c = at + 1;
    if (at == end || *at != ':') return 0;
    while (c < end && c < at + 12 && ((*c >= '0' && *c <= '9') || *c == '.')) c++;
    return c > at + 1 && c < end && *c == ')' ? (int)(c - at) : 0;
}

/* The next emoji or run of letters, digits, apostrophes and hyphens. A word does not begin with a mark. */
lz_span lz_next_word(const char *at, const char *end) {
    for (int n; at < end && ((n = mark_bytes(at, end)) || (n = dash_bytes(at, end)) || (n = lz_inner_bytes(at, end)) ||
                             (n = lz_weight_bytes(at, end)) || !in_word(*at));)
        at += n ? n : 1;
    int sign = lz_sign_bytes(at, end);
    lz_span w = {at, sign ? end_of_sign(at, sign, end) : at};
    for (const char *c = at; !sign && c < end && in_word(*c) && !lz_sign_bytes(c, end);) {
        int inner = lz_inner_bytes(c, end);
        if (!inner && dash_bytes(c, end)) break;
        c += inner ? inner : 1;
        if (!inner) w.end = c; /* so that it does not end with an apostrophe */
    }
    return w;
}

char *lz_normal_word(lz_span word, char *to) {
    for (const char *c = word.begin; c < word.end;) {
        int mark = mark_bytes(c, word.end);
        if (!mark) *to++ = lz_ascii_lower(*c);
        c += mark ? mark : 1;
    }
    return to;
}

bool lz_only_spaces(const char *at, const char *end) {
    while (at < end && strchr(" \t\n\r", *at)) at++;
    return at == end;
}

bool lz_only_quotes(const char *at, const char *end) {
    while (at < end &&
           (strchr(" \t\n\r", *at) || begins_with(at, end, "\xe2\x80\x9c") || begins_with(at, end, "\xe2\x80\x9d")))
        at += (unsigned char)*at >= 0x80 ? 3 : 1;
    return at == end;
}

bool lz_only_apostrophes(const char *at, const char *end) {
    while (at < end && strchr(" \t\n\r'", *at)) at++;
    return at == end;
}
