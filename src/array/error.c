/* error.c: poisoned arrays. A failed op returns one; its error names the op, the shapes, and the line of the call. */
#include <stdio.h>
#include <string.h>

#include "array/internal.h"

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
