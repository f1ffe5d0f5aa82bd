/* packed.c: see packed.h. */
#define LZ_NO_SUGAR
#include "models/packed.h"

#include <string.h>

#include "op/number.h"

bool lz_packed_alike(const lz_packed_layout *a, const lz_packed_layout *b) {
    return a->packing == b->packing && a->columns == b->columns && a->group == b->group &&
           a->row_group == b->row_group && a->factor == b->factor && a->rotate == b->rotate;
}

void lz_packed_retain(lz_packed *p) {
    lz_array *all[] = {p->codes, p->scales, p->offsets, p->gains};
    for (int i = 0; i < 4; i++)
        if (all[i]) lz_retain(all[i]);
}

void lz_packed_release(lz_packed *p) {
    lz_array *all[] = {p->codes, p->scales, p->offsets, p->gains};
    for (int i = 0; i < 4; i++) lz_release(all[i]);
}

/* ---- by the op --------------------------------------------------------------------------------------------------- */

bool lz_packed_exact(const lz_packed *p) {
    lz_dims d = lz_shape(p->codes);
    return d.n == 2 && d.at[1] == lz_packing_row_bytes(p->layout.packing, p->layout.columns) &&
           p->layout.rotate <= LZ_PACKING_MAX_ROTATE;
}

static lz_array *unpack(const lz_packed *p, lz_array *codes, lz_array *scales, lz_array *offsets) {
    const lz_packed_layout *l = &p->layout;
    return lz_unpack_with(codes, scales, offsets,
                          (lz_unpack_options){.packing = lz_packing_table[l->packing].name,
                                              .columns = l->columns,
                                              .group = l->group,
                                              .row_group = l->row_group,
                                              .factor = (double)l->factor,
                                              .rotate = l->rotate});
}

/* The scales or offsets of rows first .. first + n - 1 of the matrix. */
static lz_array *rows_of(lz_array *a, int64_t row_group, int64_t first, int64_t n) {
    if (!a || lz_shape(a).at[0] == 1) return a;
    int64_t g = row_group ? row_group : 1;
    return lz_slice(a, 0, first / g, (first + n + g - 1) / g, 1);
}

lz_array *lz_packed_rows(const lz_packed *p, int64_t first, int64_t n) {
    int64_t g = p->layout.row_group;
    if (first == 0 && n == p->layout.rows) return unpack(p, p->codes, p->scales, p->offsets);
    if (g > 1 && first % g) return lz_slice(unpack(p, p->codes, p->scales, p->offsets), 0, first, first + n, 1);
    return unpack(p, lz_slice(p->codes, 0, first, first + n, 1), rows_of(p->scales, g, first, n),
                  rows_of(p->offsets, g, first, n));
}

lz_array *lz_packed_input(const lz_packed *p, lz_array *x) {
    return p->gains ? lz_mul(x, lz_cast(p->gains, lz_type(x))) : x;
}

lz_array *lz_packed_take(const lz_packed *p, lz_array *ids) {
    lz_array *all[] = {p->scales, p->offsets};
    if (p->layout.row_group > 1) return lz_packed_input(p, lz_take(lz_packed_rows(p, 0, p->layout.rows), ids, 0));
    for (int i = 0; i < 2; i++)
        if (all[i] && lz_shape(all[i]).at[0] != 1) all[i] = lz_take(all[i], ids, 0);
    return lz_packed_input(p, unpack(p, lz_take(p->codes, ids, 0), all[0], all[1]));
}

/* ---- by a recipe ------------------------------------------------------------------------------------------------- */

/* The sources of a dense array; owned by the buffer of that array. */
typedef struct dense {
    lz_context *ctx;
    lz_packed packed; /* retained */
    const uint8_t *codes;
    int64_t row_bytes;
    lz_scale_row scales, offsets;           /* of the first row */
    int64_t scale_rows, scale_row_elements; /* scale_rows 1: all rows have the same scales */
    const float *gains;
    lz_dtype dtype;
} dense;

static lz_scale_row scales_at(const dense *d, lz_scale_row all, int64_t row) {
    int64_t group = d->packed.layout.row_group ? d->packed.layout.row_group : 1;
    if (all.data && d->scale_rows > 1)
        all.data = (const char *)all.data + row / group * d->scale_row_elements * lz_dtype_size(all.dtype);
    return all;
}

/* Unpacks n columns of a row; the first is a multiple of the columns that are rotated together. */
static void unpack_columns(const dense *d, int64_t row, int64_t first, int64_t n, float *to) {
    const lz_packed_layout *l = &d->packed.layout;
    const uint8_t *codes = d->codes + row * d->row_bytes;
    lz_scale_row scales = scales_at(d, d->scales, row), offsets = scales_at(d, d->offsets, row);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = first + k, share = l->group ? i / l->group : 0;
        float scale = scales.data ? l->factor * lz_scale_at(&scales, share) : l->factor;
        to[k] = scale * lz_unpack_element(l->packing, codes, i);
        if (offsets.data) to[k] += lz_scale_at(&offsets, share);
    }
    for (int64_t k = 0; l->rotate && k < n; k += l->rotate) lz_rotate_group(to + k, l->rotate);
    for (int64_t k = 0; d->gains && k < n; k++) to[k] *= d->gains[first + k];
}

static void write_numbers(const float *from, int64_t n, lz_dtype dtype, char *to) {
    if (dtype == LZ_F32) memcpy(to, from, (size_t)n * 4);
    for (int64_t i = 0; dtype == LZ_BF16 && i < n; i++) ((uint16_t *)to)[i] = lz_to_bf16(from[i]);
    for (int64_t i = 0; dtype == LZ_F16 && i < n; i++) ((uint16_t *)to)[i] = lz_to_f16(from[i]);
}

static void make_dense(const void *user, int64_t offset, int64_t bytes, char *to) {
    const dense *d = user;
    float numbers[LZ_ROTATE_LIMIT];
    int64_t size = lz_dtype_size(d->dtype), columns = d->packed.layout.columns, step = d->packed.layout.rotate;
    if (!step) step = LZ_PACKING_MAX_ELEMENTS;
    for (int64_t at = offset / size, end = at + bytes / size; at < end;) {
        int64_t column = at % columns, first = column / step * step,
                n = columns - first < step ? columns - first : step;
        unpack_columns(d, at / columns, first, n, numbers);
        int64_t some = first + n - column < end - at ? first + n - column : end - at;
        write_numbers(numbers + (column - first), some, d->dtype, to);
        to += some * size;
        at += some;
    }
}

static bool same_scales(const lz_scale_row *a, const lz_scale_row *b) {
    return a->data == b->data && a->dtype == b->dtype;
}

static bool same_dense(const void *user, const void *other) {
    const dense *a = user, *b = other;
    return lz_packed_alike(&a->packed.layout, &b->packed.layout) && a->codes == b->codes &&
           a->row_bytes == b->row_bytes && same_scales(&a->scales, &b->scales) &&
           same_scales(&a->offsets, &b->offsets) && a->scale_rows == b->scale_rows &&
           a->scale_row_elements == b->scale_row_elements && a->gains == b->gains && a->dtype == b->dtype;
}

static void free_dense(void *user) {
    dense *d = user;
    lz_packed_release(&d->packed);
    lz_host_free(d->ctx, d);
}

/* The numbers of an array in host memory; NULL if a is NULL or an error occurred. */
static const void *numbers_of(lz_array *a, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    const void *data = a ? lz_data(a, &local) : NULL;
    if (local.status && err) *err = local;
    return data;
}

static lz_scale_row scale_row(lz_array *a, lz_error *err) {
    return (lz_scale_row){.data = numbers_of(a, err), .dtype = a ? lz_type(a) : LZ_F32, .stride = 1};
}

lz_array *lz_packed_dense(lz_context *ctx, const lz_packed *p, lz_dims dims, lz_dtype dtype, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    dense *d = lz_host_alloc(ctx, sizeof *d);
    if (!d) {
        lz_out_of_memory(err, sizeof *d);
        return NULL;
    }
    *d = (dense){.ctx = ctx, .packed = *p, .row_bytes = lz_shape(p->codes).at[1], .dtype = dtype};
    lz_packed_retain(&d->packed);
    d->codes = numbers_of(p->codes, &local);
    d->scales = scale_row(p->scales, &local);
    d->offsets = scale_row(p->offsets, &local);
    d->gains = numbers_of(p->gains, &local);
    if (p->scales) {
        d->scale_rows = lz_shape(p->scales).at[0];
        d->scale_row_elements = lz_shape(p->scales).at[1];
    }
    lz_array *a = local.status ? NULL : lz_array_made(ctx, dims, dtype, make_dense, free_dense, same_dense, d);
    if (!a) free_dense(d);
    if (a) lz_check(a, &local);
    if (local.status && err) *err = local;
    return local.status ? NULL : a;
}
