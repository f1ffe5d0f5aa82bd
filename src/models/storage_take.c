/* storage_take.c: the arrays of a stored matrix. Codes stay in the mapped file; scales in another layout are reordered
 * into rows when a kernel needs them. */
#define LZ_NO_SUGAR
#include <string.h>

#include "models/storage.h"
#include "op/number.h"

/* ---- scales in another order ------------------------------------------------------------------------------------- */

/* Owned by the made array [rows, columns]. */
typedef struct reordered {
    lz_context *ctx;
    lz_array *source; /* retained */
    const char *from;
    lz_scale_order order;
    int64_t first, all_rows, columns; /* first: row of the file's matrix */
    int64_t size;                     /* bytes of a scale */
} reordered;

/* The index of a scale in the file. */
static int64_t place_of(const reordered *r, int64_t row, int64_t column) {
    if (r->order == LZ_SCALES_COLUMNS) return column * r->all_rows + row;
    int64_t across = (r->columns + 3) / 4;
    return (row / 128 * across + column / 4) * 512 + row % 32 * 16 + row / 32 % 4 * 4 + column % 4;
}

static void make_reordered(const void *user, int64_t offset, int64_t bytes, char *to) {
    const reordered *r = user;
    for (int64_t i = offset / r->size, end = i + bytes / r->size; i < end; i++, to += r->size)
        memcpy(to, r->from + r->size * place_of(r, r->first + i / r->columns, i % r->columns), (size_t)r->size);
}

static bool same_reordered(const void *user, const void *other) {
    const reordered *a = user, *b = other;
    return a->from == b->from && a->order == b->order && a->first == b->first && a->all_rows == b->all_rows &&
           a->columns == b->columns && a->size == b->size;
}

static void free_reordered(void *user) {
    reordered *r = user;
    lz_release(r->source);
    lz_host_free(r->ctx, r);
}

static lz_array *reorder(lz_weights *w, const lz_stored *s, const lz_weights_tensor *t, lz_dtype dtype, int64_t first,
                         int64_t rows, lz_error *err) {
    int64_t bytes = t->end - t->begin;
    lz_array *all = lz_weights_view(w, t, 0, (lz_dims){1, {bytes}}, LZ_U8);
    if (lz_check(all, err)) return NULL;
    lz_context *ctx = all->ctx;
    reordered *r = lz_host_alloc(ctx, sizeof *r);
    if (!r) {
        lz_out_of_memory(err, sizeof *r);
        return NULL;
    }
    *r = (reordered){ctx,   lz_retain(all), lz_weights_data(w, t), s->order,
                     first, s->scale_rows,  s->scale_columns,      lz_dtype_size(dtype)};
    lz_array *a = lz_array_made(ctx, (lz_dims){2, {rows, s->scale_columns}}, dtype, make_reordered, free_reordered,
                                same_reordered, r);
    return lz_check(a, err) ? NULL : a;
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

/* Gets the scales or offsets of some rows. */
static lz_array *take_scales(lz_weights *w, const lz_stored *s, const lz_weights_tensor *t, int64_t first, int64_t rows,
                             lz_error *err) {
    bool tiled = s->order == LZ_SCALES_TILED;
    /* Tiles of bytes: powers of two are u8, others f8, whatever the file calls them. */
    lz_dtype dtype = !tiled ? (lz_dtype)t->dtype : s->layout.packing == LZ_PACKING_E4M3 ? LZ_U8 : LZ_F8;
    int64_t group = s->layout.row_group ? s->layout.row_group : 1, row = first / group, n = (rows + group - 1) / group;
    if (s->order != LZ_SCALES_ROWS) return reorder(w, s, t, dtype, first, rows, err);
    if (s->scale_rows == 1) row = 0, n = 1;
    if (s->scale_rows > 1 && first % group) {
        lz_fail(err, LZ_BAD_FILE, "%s: tensor '%s' has scales for blocks of %lld rows, and cannot be cut at row %lld",
                LZ_SHOW_TEXT(lz_weights_path_of(w, s->tensor)), LZ_SHOW_TEXT(s->tensor->name), (long long)group,
                (long long)first);
        return NULL;
    }
    lz_array *a = lz_weights_view(w, t, row * s->scale_columns * lz_dtype_size(dtype),
                                  (lz_dims){2, {n, s->scale_columns}}, dtype);
    return lz_check(a, err) ? NULL : a;
}

static lz_array *take_gains(lz_weights *w, const lz_stored *s, lz_error *err) {
    const lz_weights_tensor *t = s->gains;
    bool number = t->dtype < LZ_DTYPE_COUNT && lz_is_float((lz_dtype)t->dtype);
    if (!number || lz_dims_size(t->dims) < s->layout.columns) {
        lz_fail(err, LZ_BAD_FILE, "%s: tensor '%s' is %s %s, not a number for each of %lld columns" LZ_DAMAGED,
                LZ_SHOW_TEXT(lz_weights_path_of(w, t)), LZ_SHOW_TEXT(t->name), LZ_SHOW_TEXT(t->type), LZ_SHOW(t->dims),
                (long long)s->layout.columns);
        return NULL;
    }
    lz_array *a = lz_cast(lz_weights_view(w, t, 0, (lz_dims){1, {s->layout.columns}}, (lz_dtype)t->dtype), LZ_F32);
    return lz_eval(a, err) ? NULL : a; /* evaluated once: a single row */
}

lz_status lz_stored_take(lz_weights *w, const lz_stored *s, int64_t first, int64_t rows, lz_packed *to, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    *to = (lz_packed){.layout = s->layout};
    to->layout.rows = rows;
    to->codes = lz_weights_view(w, s->tensor, first * s->row_bytes, (lz_dims){2, {rows, s->row_bytes}}, LZ_U8);
    lz_check(to->codes, &local);
    if (!local.status && s->scales) to->scales = take_scales(w, s, s->scales, first, rows, &local);
    if (!local.status && s->offsets) to->offsets = take_scales(w, s, s->offsets, first, rows, &local);
    if (!local.status && s->gains) to->gains = take_gains(w, s, &local);
    /* For the op, factor 0 means 1. */
    if (!local.status && s->layout.factor == 0) {
        const float zero = 0;
        to->layout.factor = 1;
        if (!to->scales) to->scales = lz_from(to->codes->ctx, (lz_dims){2, {1, 1}}, LZ_F32, &zero);
        lz_check(to->scales, &local);
    }
    if (local.status && err) *err = local;
    return local.status;
}
