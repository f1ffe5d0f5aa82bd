/* error.c: one way to say what went wrong: a status for programs, one sentence for people. */
#include <stdio.h>
#include <string.h>

#include "array/internal.h"

const char *lz_version(void) { return LZ_VERSION; }
int lz_version_number(void) { return LZ_VERSION_NUMBER; }

const char *lz_status_name(lz_status status) {
    static const char *const names[LZ_STATUS_COUNT] = {
        [LZ_OK] = "ok",
        [LZ_BAD_ARGUMENT] = "bad argument",
        [LZ_BAD_SHAPE] = "bad shape",
        [LZ_BAD_TYPE] = "bad type",
        [LZ_BAD_INDEX] = "bad index",
        [LZ_OUT_OF_MEMORY] = "out of memory",
        [LZ_BAD_FILE] = "bad file",
        [LZ_IO] = "input/output",
        [LZ_NOT_FOUND] = "not found",
        [LZ_CANCELLED] = "cancelled",
        [LZ_DEVICE_FAILED] = "device failed",
    };
    return status >= 0 && status < LZ_STATUS_COUNT ? names[status] : "unknown status";
}

/* The bytes of a UTF-8 character, or 0 if there is none. */
static size_t read_character(const unsigned char *at, uint32_t *point) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* a shorter form would do: not UTF-8 */
    size_t n = *at < 0x80 ? 1 : *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    *point = n == 1 ? *at : *at & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0; /* the end of the text too */
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

lz_status lz_fail(lz_error *err, lz_status status, const char *format, ...) {
    if (!err) return status;
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

/* " (in outer/inner)" for the scopes this thread has open, outermost first. */
static void add_scopes(const lz_scope *scope, char *text, size_t size) {
    const lz_scope *path[8];
    int n = 0;
    for (; scope && scope->parent && n < 8; scope = scope->parent) path[n++] = scope;
    size_t used = strlen(text);
    for (int i = n - 1; i >= 0 && used < size; i--)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i == n - 1 ? " (in " : "/", path[i]->name);
    if (n && used < size) snprintf(text + used, size - used, ")");
}

lz_array *lz_poison(lz_context *ctx, lz_status status, const char *format, ...) {
    if (status == LZ_OUT_OF_MEMORY) return ctx->no_memory;
    lz_error *error = lz_host_alloc(ctx, sizeof *error);
    lz_array *a = error ? lz_node_new(ctx, LZ_OP_LEAF, LZ_NONE, LZ_F32, NULL, 0, NULL) : NULL;
    if (!a || a == ctx->no_memory) {
        lz_host_free(ctx, error);
        return ctx->no_memory;
    }
    va_list args;
    va_start(args, format);
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    LZ_LOCK(ctx);
    add_scopes(a->scope, error->text, sizeof error->text);
    LZ_UNLOCK(ctx);
    a->error = error;
    return a;
}

lz_array *lz_at(lz_array *a, const char *file, int line) {
    if (!a || !file || a->file || a == a->ctx->no_memory) return a;
    a->file = file;
    a->line = line;
    if (a->error) {
        size_t used = strlen(a->error->text);
        snprintf(a->error->text + used, sizeof a->error->text - used, " at %s:%d", file, line);
    }
    return a;
}

lz_status lz_check(const lz_array *a, lz_error *err) {
    if (!a) return lz_fail(err, LZ_BAD_ARGUMENT, "an array is NULL: the context or an earlier array could not be made");
    lz_status status = LZ_OK;
    LZ_LOCK(a->ctx);
    const lz_error *error = a->error                                             ? a->error
                            : a->event && a->event->done && a->event->err.status ? &a->event->err
                                                                                 : NULL;
    if (error) {
        status = error->status;
        if (err) *err = *error;
    }
    LZ_UNLOCK(a->ctx);
    return status;
}
