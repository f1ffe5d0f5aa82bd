/* text.c: growing text, and untrusted text made safe for messages. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* ---- growing ----------------------------------------------------------------------------------------------------- */

static void grow(lz_text *text, size_t bytes) {
    size_t capacity = bytes * 2 + 1024;
    char *grown = lz_host_alloc(text->ctx, capacity);
    text->failed = !grown;
    if (!grown) return;
    if (text->data) memcpy(grown, text->data, text->length);
    lz_host_free(text->ctx, text->data);
    text->data = grown;
    text->capacity = capacity;
}

void lz_text_add(lz_text *text, const char *format, ...) {
    if (text->failed) return;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = text->capacity - text->length;
    size_t n = (size_t)vsnprintf(room ? text->data + text->length : NULL, room, format, args);
    if (n >= room) {
        grow(text, text->length + n + 1);
        if (!text->failed) vsnprintf(text->data + text->length, n + 1, format, again);
    }
    if (!text->failed) text->length += n;
    va_end(again);
    va_end(args);
}

char *lz_text_take(lz_text *text, lz_error *err) {
    if (!text->failed && !text->data) lz_text_add(text, "%s", "");
    if (!text->failed) return text->data;
    lz_host_free(text->ctx, text->data);
    lz_out_of_memory(err, (int64_t)text->capacity);
    return NULL;
}

void lz_free_text(lz_context *ctx, char *text) {
    if (ctx) lz_host_free(ctx, text);
}
void lz_free_ids(lz_context *ctx, int64_t *ids) {
    if (ctx) lz_host_free(ctx, ids);
}

/* ---- showing ----------------------------------------------------------------------------------------------------- */

/* The number of bytes of a UTF-8 character; 0: not valid UTF-8. */
static size_t read_character(const unsigned char *at, uint32_t *point) {
    /* Smaller code points have a shorter form: not UTF-8. */
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *at < 0x80 ? 1 : *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    *point = n == 1 ? *at : *at & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0; /* also stops at the end of the text */
        *point = *point << 6 | (at[i] & 0x3f);
    }
    bool surrogate = *point >= 0xd800 && *point < 0xe000;
    return *at >= 0xf8 || (*at & 0xc0) == 0x80 || *point < least[n] || *point > 0x10ffff || surrogate ? 0 : n;
}

char *lz_printable(char *text) {
    char *to = text;
    for (const char *from = text; from && *from;) {
        uint32_t c = 0;
        size_t n = read_character((const unsigned char *)from, &c);
        bool control = c < 32 || (c >= 127 && c < 160),
             turns = (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
        if (!n || control || turns)
            *to++ = '?';
        else {
            memmove(to, from, n);
            to += n;
        }
        from += n ? n : 1;
    }
    if (to) *to = 0;
    return text;
}

const char *lz_show_text(const char *text, char to[LZ_SHOWN]) {
    size_t n = strlen(text), head = 80, tail = 80;
    if (n <= head + tail)
        memcpy(to, text, n + 1);
    else
        snprintf(to, LZ_SHOWN, "%.*s...%s", (int)head, text, text + n - tail);
    return lz_printable(to);
}

char *lz_path_join(lz_context *ctx, const char *folder, const char *name) {
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = lz_host_alloc(ctx, n);
    if (!path) return NULL;
    bool slash = *folder && folder[strlen(folder) - 1] != '/';
    snprintf(path, n, "%s%s%s", folder, slash ? "/" : "", name);
    return path;
}

uint64_t lz_hash_from(uint64_t start, const void *data, size_t bytes) {
    uint64_t h = start;
    for (const unsigned char *p = data, *end = p + bytes; p < end; p++) h = (h ^ *p) * UINT64_C(0x100000001b3);
    return h;
}
