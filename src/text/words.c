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

/* The next emoji or run of letters, digits, apostrophes and hyphens. A word does not begin with a mark. */
lz_span lz_next_word(const char *at, const char *end) {
    for (int n; at < end && ((n = mark_bytes(at, end)) || (n = dash_bytes(at, end)) || (n = lz_inner_bytes(at, end)) ||
                             !in_word(*at));)
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
        int mark = mark_bytes(c, word.end), inner = lz_inner_bytes(c, word.end);
        if (!mark) *to++ = inner > 1 ? '\'' : lz_ascii_lower(*c);
        c += mark ? mark : inner ? inner : 1;
    }
    return to;
}

bool lz_is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* The bytes of the first of `signs` that is at `at`; 0: none is. */
static int sign_of(const char *const *signs, const char *at, const char *end) {
    for (; *signs; signs++)
        if (begins_with(at, end, *signs)) return (int)strlen(*signs);
    return 0;
}

int lz_space_bytes(const char *at, const char *end) {
    static const char *const quotes[] = {"\"", "“", "”", "„", NULL};
    return at < end && lz_is_blank(*at) ? 1 : sign_of(quotes, at, end);
}

int lz_divider_bytes(const char *at, const char *end) {
    static const char *const signs[] = {",", "&", "+", "/", "|", ";", "-", "–", "—", NULL};
    return sign_of(signs, at, end);
}

bool lz_only_spaces(const char *at, const char *end) {
    for (int n; (n = lz_space_bytes(at, end));) at += n;
    return at == end;
}

bool lz_only_apostrophes(const char *at, const char *end) {
    for (int n; (n = lz_space_bytes(at, end)) || ((n = lz_inner_bytes(at, end)) && *at != '-');) at += n;
    return at == end;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Bytes of a weight: ":1.2" after a word, up to a bracket, a blank, a comma or the end; 0: there is none. */
static int weight_bytes(const char *prompt, const char *at) {
    const char *c = at + 1;
    if (*at != ':' || at == prompt || is_digit(at[-1])) return 0; /* 7:30 */
    while (lz_is_blank(*c)) c++;
    if (*c == '-' || *c == '+') c++;
    const char *digits = c;
    while (is_digit(*c) || (*c == '.' && is_digit(c[1]))) c++;
    bool closed = *c && strchr(")]}", *c), ends = !*c || *c == ',' || lz_is_blank(*c);
    return c > digits && (closed || (ends && !lz_is_blank(at[1]))) ? (int)(c - at) : 0;
}

char *lz_plain_prompt(const char *prompt, char *to) {
    char *begin = to;
    bool gap = false;
    for (const char *at = prompt; *at;) {
        bool escaped = *at == '\\' && at[1] && strchr("()[]{}", at[1]);
        int n = escaped ? 2 : strchr("()[]{}", *at) ? 1 : weight_bytes(prompt, at);
        if (!n) {
            bool joins = to > begin && !lz_is_blank(to[-1]);
            if (gap && joins && !lz_is_blank(*at) && !strchr(",.;:!?", *at)) *to++ = ' ';
            if (!gap || joins || !lz_is_blank(*at)) *to++ = *at;
            gap = false;
        }
        gap = gap || n;
        at += n ? n : 1;
    }
    while (gap && to > begin && (lz_is_blank(to[-1]) || strchr(",:;", to[-1]))) to--; /* of "a cat :)" */
    return to;
}
