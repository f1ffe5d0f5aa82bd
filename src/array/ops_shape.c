/* ops_shape.c: the rules of ops that move elements without changing them. */
#define LZ_NO_SUGAR
#include <string.h>

#include "array/ops.h"

#define NEED(name, a)                                                                                                  \
    lz_array *bad = NULL;                                                                                              \
    if (lz_unusable(name, &(a), 1, &bad)) return bad

lz_array *lz_reshape(lz_array *a, lz_dims dims) {
    NEED("reshape", a);
    if (dims.n < 0 || dims.n > LZ_MAX_DIMS)
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "reshape: %d axes, but arrays have 0 to %d", dims.n, LZ_MAX_DIMS);
    lz_dims to = dims;
    int open = -1;
    for (int i = 0; i < dims.n; i++)
        if (dims.at[i] == -1 && open < 0) {
            open = i;
            to.at[i] = 1;
        }
    int64_t size = lz_dims_size(a->dims), known = lz_dims_size(to);
    if (open >= 0 && known > 0 && size % known == 0) to.at[open] = size / known;
    if (known < 0 || (open >= 0 && known == 0) || lz_dims_size(to) != size)
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "reshape: %s does not have the %lld elements of %s", LZ_SHOW(dims),
                         (long long)size, LZ_SHOW(a->dims));
    if (lz_dims_equal(to, a->dims)) return a;
    return lz_node_new(a->ctx, LZ_OP_RESHAPE, to, a->dtype, &a, 1, NULL);
}

lz_array *lz_as_permuted(lz_array *a, lz_dims axes) {
    lz_params p;
    memset(&p, 0, sizeof p);
    lz_dims to = {.n = axes.n};
    p.permute.axes.n = axes.n;
    bool same = true;
    for (int i = 0; i < axes.n; i++) {
        p.permute.axes.at[i] = axes.at[i];
        to.at[i] = a->dims.at[axes.at[i]];
        same = same && axes.at[i] == i;
    }
    return same ? a : lz_node_new(a->ctx, LZ_OP_PERMUTE, to, a->dtype, &a, 1, &p);
}

lz_array *lz_permute(lz_array *a, lz_dims axes) {
    NEED("permute", a);
    unsigned seen = 0;
    bool fine = axes.n == a->dims.n;
    for (int i = 0; fine && i < axes.n; i++) {
        int axis = lz_axis(axes.at[i], axes.n);
        fine = axis >= 0 && !(seen & 1u << axis);
        if (!fine) break;
        seen |= 1u << axis;
        axes.at[i] = axis;
    }
    if (!fine)
        return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "permute: %s does not name each axis of %s once", LZ_SHOW(axes),
                         LZ_SHOW(a->dims));
    return lz_as_permuted(a, axes);
}

lz_array *lz_transpose(lz_array *a) {
    NEED("transpose", a);
    int n = a->dims.n;
    if (n < 2) return lz_poison(a->ctx, LZ_BAD_SHAPE, "transpose: %s has fewer than two axes", LZ_SHOW(a->dims));
    lz_dims axes = {.n = n};
    for (int i = 0; i < n; i++) axes.at[i] = i;
    axes.at[n - 2] = n - 1;
    axes.at[n - 1] = n - 2;
    return lz_as_permuted(a, axes);
}

lz_array *lz_slice(lz_array *a, int axis, int64_t start, int64_t stop, int64_t step) {
    NEED("slice", a);
    int at = lz_axis(axis, a->dims.n);
    if (at < 0) return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "slice: %s has no axis %d", LZ_SHOW(a->dims), axis);
    if (step < 1) return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "slice: the step %lld is not positive", (long long)step);
    int64_t size = a->dims.at[at];
    if (start < 0) start = start < -size ? 0 : start + size;
    if (stop < 0) stop = stop < -size ? 0 : stop + size;
    if (start > size) start = size;
    if (stop > size) stop = size;
    int64_t length = stop > start ? (stop - start - 1) / step + 1 : 0;
    if (length == size) return a;
    lz_params p;
    memset(&p, 0, sizeof p);
    p.slice.axis = at;
    p.slice.start = length ? start : 0;
    p.slice.step = length > 1 ? step : 1; /* the step of a single element is irrelevant, and may be huge */
    lz_dims to = a->dims;
    to.at[at] = length;
    return lz_node_new(a->ctx, LZ_OP_SLICE, to, a->dtype, &a, 1, &p);
}

void lz_split(lz_array *a, int axis, int parts, lz_array **out) {
    if (!out) return;
    int at = a && !a->error ? lz_axis(axis, a->dims.n) : -1;
    bool fine = at >= 0 && parts > 0 && a->dims.at[at] % parts == 0;
    lz_array *bad = a && !a->error && !fine
                        ? lz_poison(a->ctx, LZ_BAD_SHAPE, "split: axis %d of %s cannot be split into %d parts", axis,
                                    LZ_SHOW(a->dims), parts)
                        : a;
    for (int i = 0; i < parts; i++) {
        int64_t size = fine ? a->dims.at[at] / parts : 0;
        out[i] = fine ? lz_slice(a, at, i * size, (i + 1) * size, 1) : bad;
    }
}

lz_array *lz_broadcast(lz_array *a, lz_dims dims) {
    NEED("broadcast", a);
    lz_dims both;
    if (lz_dims_size(dims) < 0 || !lz_broadcast_dims(a->dims, dims, &both) || !lz_dims_equal(both, dims))
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "broadcast: %s does not broadcast to %s", LZ_SHOW(a->dims),
                         LZ_SHOW(dims));
    return lz_as_dims(a, dims);
}

lz_array *lz_concat(lz_array *const *arrays, int n, int axis) {
    lz_array *bad = NULL;
    if (n < 1 || !arrays || lz_unusable("concat", arrays, n, &bad)) return bad;
    lz_context *ctx = arrays[0]->ctx;
    lz_dims to = arrays[0]->dims;
    int at = lz_axis(axis, to.n);
    if (at < 0) return lz_poison(ctx, LZ_BAD_ARGUMENT, "concat: %s has no axis %d", LZ_SHOW(to), axis);
    lz_dtype type = arrays[0]->dtype;
    for (int i = 1; i < n; i++) {
        lz_dims other = arrays[i]->dims;
        type = lz_promote(type, arrays[i]->dtype);
        int64_t size = other.n == to.n ? other.at[at] : 0;
        if (other.n == to.n) other.at[at] = to.at[at];
        if (!lz_dims_equal(other, to))
            return lz_poison(ctx, LZ_BAD_SHAPE, "concat: %s and %s differ outside axis %d", LZ_SHOW(arrays[0]->dims),
                             LZ_SHOW(arrays[i]->dims), at);
        if (__builtin_add_overflow(to.at[at], size, &to.at[at]))
            return lz_poison(ctx, LZ_BAD_SHAPE, "concat: the result would be too large");
    }
    if (lz_dims_size(to) < 0) return lz_poison(ctx, LZ_BAD_SHAPE, "concat: the result would be too large");
    lz_array **in = lz_host_alloc(ctx, (size_t)n * sizeof *in);
    if (!in) return ctx->no_memory;
    lz_array *out = NULL;
    for (int i = 0; i < n && !out; i++) {
        in[i] = lz_as_type(arrays[i], type);
        if (in[i]->error) out = in[i];
    }
    lz_params p;
    memset(&p, 0, sizeof p);
    p.along.axis = at;
    if (!out) out = n == 1 ? in[0] : lz_node_new(ctx, LZ_OP_CONCAT, to, type, in, n, &p);
    lz_host_free(ctx, in);
    return out;
}

lz_array *lz_pad(lz_array *a, lz_dims before, lz_dims after, double value) {
    NEED("pad", a);
    bool fine = before.n == a->dims.n && after.n == a->dims.n;
    lz_params p;
    memset(&p, 0, sizeof p);
    lz_dims to = {.n = a->dims.n};
    p.pad.before.n = p.pad.after.n = a->dims.n;
    for (int i = 0; fine && i < to.n; i++) {
        p.pad.before.at[i] = before.at[i];
        p.pad.after.at[i] = after.at[i];
        fine = before.at[i] >= 0 && after.at[i] >= 0 &&
               !__builtin_add_overflow(a->dims.at[i], before.at[i], &to.at[i]) &&
               !__builtin_add_overflow(to.at[i], after.at[i], &to.at[i]);
    }
    if (!fine || lz_dims_size(to) < 0)
        return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "pad: %s before and %s after do not fit %s", LZ_SHOW(before),
                         LZ_SHOW(after), LZ_SHOW(a->dims));
    p.pad.value = value;
    return lz_node_new(a->ctx, LZ_OP_PAD, to, a->dtype, &a, 1, &p);
}

/* Each pixel is repeated f x f times: two new axes of stride 0, merged by a reshape. */
lz_array *lz_upsample_nearest(lz_array *x, int factor) {
    NEED("upsample_nearest", x);
    lz_dims d = x->dims;
    if (d.n != 4 || factor < 1)
        return lz_poison(x->ctx, LZ_BAD_SHAPE,
                         "upsample_nearest: needs [n, h, w, c] and a factor of at least 1, not %s and %d", LZ_SHOW(d),
                         factor);
    int64_t n = d.at[0], h = d.at[1], w = d.at[2], c = d.at[3], f = factor;
    if (lz_dims_size(LZ_DIMS(n, h, f, w, f, c)) < 0)
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "upsample_nearest: %s times %d would be too large", LZ_SHOW(d), factor);
    lz_array *wide = lz_broadcast(lz_reshape(x, LZ_DIMS(n, h, 1, w, 1, c)), LZ_DIMS(n, h, f, w, f, c));
    return lz_reshape(wide, LZ_DIMS(n, h * f, w * f, c));
}

/* ---- by index ---------------------------------------------------------------------------------------------------- */

static bool is_index(const lz_array *a) { return a->dtype >= LZ_U8 && a->dtype <= LZ_I64; }

lz_array *lz_take(lz_array *a, lz_array *indices, int axis) {
    lz_array *in[2] = {a, indices}, *bad = NULL;
    if (lz_unusable("take", in, 2, &bad)) return bad;
    int at = lz_axis(axis, a->dims.n);
    if (at < 0) return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "take: %s has no axis %d", LZ_SHOW(a->dims), axis);
    if (!is_index(indices))
        return lz_poison(a->ctx, LZ_BAD_TYPE, "take: indices must be integers, not %s", lz_dtype_name(indices->dtype));
    lz_dims to = {.n = a->dims.n - 1 + indices->dims.n};
    if (to.n > LZ_MAX_DIMS)
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "take: %s by %s has more than %d axes", LZ_SHOW(a->dims),
                         LZ_SHOW(indices->dims), LZ_MAX_DIMS);
    for (int i = 0; i < to.n; i++) /* axes before `axis`, then the axes of the indices, then the axes after `axis` */
        to.at[i] = i < at                     ? a->dims.at[i]
                   : i < at + indices->dims.n ? indices->dims.at[i - at]
                                              : a->dims.at[i - indices->dims.n + 1];
    if (lz_dims_size(to) < 0)
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "take: the result %s would be too large", LZ_SHOW(to));
    lz_params p;
    memset(&p, 0, sizeof p);
    p.along.axis = at;
    in[1] = lz_as_type(indices, LZ_I64);
    return in[1]->error ? in[1] : lz_node_new(a->ctx, LZ_OP_TAKE, to, a->dtype, in, 2, &p);
}

lz_array *lz_gather(lz_array *a, lz_array *indices, int axis) {
    lz_array *in[2] = {a, indices}, *bad = NULL;
    if (lz_unusable("gather", in, 2, &bad)) return bad;
    int at = lz_axis(axis, a->dims.n);
    if (at < 0) return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "gather: %s has no axis %d", LZ_SHOW(a->dims), axis);
    if (!is_index(indices))
        return lz_poison(a->ctx, LZ_BAD_TYPE, "gather: indices must be integers, not %s",
                         lz_dtype_name(indices->dtype));
    bool fits = indices->dims.n == a->dims.n;
    for (int i = 0; fits && i < a->dims.n; i++) fits = i == at || indices->dims.at[i] <= a->dims.at[i];
    if (!fits)
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "gather: indices %s are larger than %s outside axis %d",
                         LZ_SHOW(indices->dims), LZ_SHOW(a->dims), at);
    lz_params p;
    memset(&p, 0, sizeof p);
    p.along.axis = at;
    in[1] = lz_as_type(indices, LZ_I64);
    return in[1]->error ? in[1] : lz_node_new(a->ctx, LZ_OP_GATHER, indices->dims, a->dtype, in, 2, &p);
}
