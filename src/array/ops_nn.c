/* ops_nn.c: the rules of matrix products, attention, norms, rope and convolution. Their elementwise parts
 * (bias, affine, modulation) are separate elementwise ops; fusion (graph/fuse.c) makes them epilogues again. */
#define LZ_NO_SUGAR
#include <math.h>
#include <string.h>

#include "array/ops.h"

static lz_array *need_float(const char *op, lz_array *const *arrays, int n, bool storage) {
    for (int i = 0; i < n; i++) {
        if (!lz_is_float(arrays[i]->dtype))
            return lz_poison(arrays[i]->ctx, LZ_BAD_TYPE, "%s: argument %d is %s, and must be a float type", op, i + 1,
                             lz_dtype_name(arrays[i]->dtype));
        if (arrays[i]->dtype == LZ_F8 && !storage)
            return lz_poison(arrays[i]->ctx, LZ_BAD_TYPE, "%s: f8 is for storage only; cast argument %d first", op,
                             i + 1);
    }
    return NULL;
}

/* The product of two f8 operands is f32, since there is no f8 arithmetic. */
static lz_dtype product_type(lz_dtype a, lz_dtype b) {
    lz_dtype type = lz_promote(a, b);
    return type == LZ_F8 ? LZ_F32 : type;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

lz_array *lz_matmul(lz_array *a, lz_array *b) {
    lz_array *in[2] = {a, b}, *bad = NULL;
    if (lz_unusable("matmul", in, 2, &bad) || (bad = need_float("matmul", in, 2, true))) return bad;
    lz_dims x = a->dims, y = b->dims, batch;
    if (x.n < 2 || y.n < 2 || x.at[x.n - 1] != y.at[y.n - 2])
        return lz_poison(a->ctx, LZ_BAD_SHAPE,
                         "matmul: %s x %s: the last size of the first must be the last but one of the second",
                         LZ_SHOW(x), LZ_SHOW(y));
    int64_t m = x.at[x.n - 2], k = x.at[x.n - 1], n = y.at[y.n - 1];
    x.n -= 2;
    y.n -= 2;
    if (!lz_broadcast_dims(x, y, &batch))
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "matmul: the leading axes of %s and %s do not broadcast together",
                         LZ_SHOW(a->dims), LZ_SHOW(b->dims));
    lz_dims to = batch, whole_a = batch, whole_b = batch;
    to.n = whole_a.n = whole_b.n = batch.n + 2;
    to.at[batch.n] = whole_a.at[batch.n] = m;
    to.at[batch.n + 1] = whole_b.at[batch.n + 1] = n;
    whole_a.at[batch.n + 1] = whole_b.at[batch.n] = k;
    if (lz_dims_size(to) < 0 || lz_dims_size(whole_a) < 0 || lz_dims_size(whole_b) < 0)
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "matmul: %s x %s would be too large", LZ_SHOW(a->dims),
                         LZ_SHOW(b->dims));
    in[0] = lz_as_dims(a, whole_a);
    in[1] = lz_as_dims(b, whole_b);
    for (int i = 0; i < 2; i++)
        if (in[i]->error) return in[i];
    return lz_node_new(a->ctx, LZ_OP_MATMUL, to, product_type(a->dtype, b->dtype), in, 2, NULL);
}

lz_array *lz_linear(lz_array *x, lz_array *w, lz_array *bias) {
    lz_array *in[3] = {x, w, bias}, *bad = NULL;
    if (lz_unusable("linear", in, bias ? 3 : 2, &bad)) return bad;
    if (x->dims.n < 1 || w->dims.n != 2 || x->dims.at[x->dims.n - 1] != w->dims.at[1])
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "linear: x %s needs a weight [out, %lld], not %s", LZ_SHOW(x->dims),
                         (long long)(x->dims.n ? x->dims.at[x->dims.n - 1] : 1), LZ_SHOW(w->dims));
    if (bias && (bias->dims.n != 1 || bias->dims.at[0] != w->dims.at[0]))
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "linear: a weight %s needs a bias [%lld], not %s", LZ_SHOW(w->dims),
                         (long long)w->dims.at[0], LZ_SHOW(bias->dims));
    bool vector = x->dims.n == 1;
    if (vector) x = lz_reshape(x, LZ_DIMS(1, x->dims.at[0]));
    lz_array *y = lz_matmul(x, lz_transpose(w));
    if (bias) y = lz_add(y, bias);
    return vector && !y->error ? lz_reshape(y, LZ_DIMS(w->dims.at[0])) : y;
}

lz_array *lz_addmm_with(lz_array *c, lz_array *a, lz_array *b, lz_addmm_options o) {
    lz_array *in[3] = {c, a, b}, *bad = NULL;
    if (lz_unusable("addmm", in, 3, &bad)) return bad;
    lz_array *product = lz_matmul(a, b);
    if (o.alpha != 0 && o.alpha != 1) product = lz_mul_number(product, o.alpha);
    if (o.beta != 0 && o.beta != 1) c = lz_mul_number(c, o.beta);
    return lz_add(c, product);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

lz_array *lz_sdpa_with(lz_array *q, lz_array *k, lz_array *v, lz_sdpa_options o) {
    lz_array *in[4] = {q, k, v, o.mask}, *bad = NULL;
    int n = o.mask ? 4 : 3;
    if (lz_unusable("sdpa", in, n, &bad) || (bad = need_float("sdpa", in, 3, false))) return bad;
    lz_dims a = q->dims, b = k->dims;
    bool fine = a.n == 4 && b.n == 4 && lz_dims_equal(b, v->dims) && a.at[0] == b.at[0] && a.at[3] == b.at[3];
    fine = fine && a.at[3] >= 1 && (b.at[1] ? a.at[1] % b.at[1] == 0 : a.at[1] == 0);
    if (!fine)
        return lz_poison(q->ctx, LZ_BAD_SHAPE,
                         "sdpa: q %s, k %s, v %s: needs q [b, h, n, d] and k, v [b, g, m, d], h a multiple of g",
                         LZ_SHOW(a), LZ_SHOW(b), LZ_SHOW(v->dims));
    if (a.at[3] > 512)
        return lz_poison(q->ctx, LZ_BAD_SHAPE, "sdpa: a head size of %lld is above 512", (long long)a.at[3]);
    lz_params p;
    memset(&p, 0, sizeof p);
    p.sdpa.scale = o.scale != 0 ? o.scale : 1 / sqrt((double)a.at[3]);
    p.sdpa.causal = o.causal;
    lz_dtype type = lz_promote(q->dtype, lz_promote(k->dtype, v->dtype));
    if (o.mask) {
        lz_dims scores = LZ_DIMS(a.at[0], a.at[1], a.at[2], b.at[2]), both;
        if (o.mask->dtype != LZ_BOOL && !lz_is_float(o.mask->dtype))
            return lz_poison(q->ctx, LZ_BAD_TYPE, "sdpa: a mask is bool or float, not %s",
                             lz_dtype_name(o.mask->dtype));
        if (lz_dims_size(scores) < 0 || !lz_broadcast_dims(o.mask->dims, scores, &both) || !lz_dims_equal(both, scores))
            return lz_poison(q->ctx, LZ_BAD_SHAPE, "sdpa: a mask %s does not broadcast to %s", LZ_SHOW(o.mask->dims),
                             LZ_SHOW(scores));
        in[3] = lz_as_dims(o.mask->dtype == LZ_F64 ? lz_as_type(o.mask, type) : o.mask, scores);
        if (in[3]->error) return in[3];
    }
    return lz_node_new(q->ctx, LZ_OP_SDPA, a, type, in, n, &p);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static lz_array *norm(lz_op op, lz_array *x, int groups, double eps) {
    const char *name = lz_op_table[op].name;
    lz_array *bad = NULL;
    if (lz_unusable(name, &x, 1, &bad) || (bad = need_float(name, &x, 1, false))) return bad;
    if (x->dims.n < 1) return lz_poison(x->ctx, LZ_BAD_SHAPE, "%s: a scalar has no last axis", name);
    lz_params p;
    memset(&p, 0, sizeof p);
    p.norm.eps = eps;
    p.norm.groups = groups;
    return lz_node_new(x->ctx, op, x->dims, x->dtype, &x, 1, &p);
}

/* y * weight + bias along the last axis. Each may be NULL. */
static lz_array *affine(const char *name, lz_array *y, lz_array *weight, lz_array *bias) {
    for (int i = 0; i < 2; i++) {
        lz_array *part = i ? bias : weight;
        if (!part || !y || y->error) continue;
        if (!part->error && (part->dims.n != 1 || part->dims.at[0] != y->dims.at[y->dims.n - 1]))
            return lz_poison(y->ctx, LZ_BAD_SHAPE,
                             "%s: x %s needs a weight or bias of one size for each element of its last axis, not %s",
                             name, LZ_SHOW(y->dims), LZ_SHOW(part->dims));
        y = i ? lz_add(y, part) : lz_mul(y, part);
    }
    return y;
}

lz_array *lz_rms_norm(lz_array *x, lz_array *weight, double eps) {
    return affine("rms_norm", norm(LZ_OP_RMS_NORM, x, 0, eps), weight, NULL);
}

lz_array *lz_layer_norm(lz_array *x, lz_array *weight, lz_array *bias, double eps) {
    return affine("layer_norm", norm(LZ_OP_LAYER_NORM, x, 0, eps), weight, bias);
}

lz_array *lz_modulated_norm(lz_array *x, lz_array *scale, lz_array *shift, double eps) {
    lz_array *y = norm(LZ_OP_LAYER_NORM, x, 0, eps);
    if (scale) y = lz_mul(y, lz_add_number(scale, 1));
    return shift ? lz_add(y, shift) : y;
}

lz_array *lz_group_norm(lz_array *x, int groups, lz_array *weight, lz_array *bias, double eps) {
    if (x && !x->error && (x->dims.n < 2 || groups < 1 || x->dims.at[x->dims.n - 1] % groups))
        return lz_poison(x->ctx, LZ_BAD_SHAPE,
                         "group_norm: x %s [n, ..., c] cannot be split into %d groups of channels", LZ_SHOW(x->dims),
                         groups);
    return affine("group_norm", norm(LZ_OP_GROUP_NORM, x, groups, eps), weight, bias);
}

/* ---- rope and convolution ---------------------------------------------------------------------------------------- */

lz_array *lz_rope_with(lz_array *x, lz_array *cos, lz_array *sin, lz_rope_options o) {
    lz_array *in[3] = {x, cos, sin}, *bad = NULL;
    if (lz_unusable("rope", in, 3, &bad) || (bad = need_float("rope", in, 3, false))) return bad;
    lz_dims d = x->dims, both;
    if (d.n < 2 || d.at[d.n - 1] % 2)
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "rope: x %s must be [..., n, d] with d even", LZ_SHOW(d));
    d.at[d.n - 1] /= 2;
    for (int i = 1; i < 3; i++) {
        if (!lz_broadcast_dims(in[i]->dims, d, &both) || !lz_dims_equal(both, d))
            return lz_poison(x->ctx, LZ_BAD_SHAPE, "rope: a table %s does not broadcast to %s", LZ_SHOW(in[i]->dims),
                             LZ_SHOW(d));
        in[i] = lz_as_dims(in[i]->dtype == LZ_F64 ? lz_as_type(in[i], x->dtype) : in[i], d);
        if (in[i]->error) return in[i];
    }
    lz_params p;
    memset(&p, 0, sizeof p);
    p.rope.half_split = o.half_split;
    return lz_node_new(x->ctx, LZ_OP_ROPE, x->dims, x->dtype, in, 3, &p);
}

lz_array *lz_conv2d_with(lz_array *x, lz_array *w, lz_array *bias, lz_conv2d_options o) {
    lz_array *in[3] = {x, w, bias}, *bad = NULL;
    if (lz_unusable("conv2d", in, bias ? 3 : 2, &bad) || (bad = need_float("conv2d", in, 2, false))) return bad;
    lz_dims a = x->dims, b = w->dims;
    int64_t stride = o.stride ? o.stride : 1;
    if (a.n != 4 || b.n != 4 || a.at[3] != b.at[3])
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "conv2d: x %s and w %s: needs [n, h, w, c] and [out, kh, kw, c]",
                         LZ_SHOW(a), LZ_SHOW(b));
    if (bias && (bias->dims.n != 1 || bias->dims.at[0] != b.at[0]))
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "conv2d: w %s needs a bias [%lld], not %s", LZ_SHOW(b),
                         (long long)b.at[0], LZ_SHOW(bias->dims));
    if (stride < 1 || o.top < 0 || o.bottom < 0 || o.left < 0 || o.right < 0)
        return lz_poison(x->ctx, LZ_BAD_ARGUMENT, "conv2d: stride and padding cannot be negative");
    int64_t h = a.at[1] + o.top + o.bottom - b.at[1], width = a.at[2] + o.left + o.right - b.at[2];
    if (h < 0 || width < 0 || b.at[1] < 1 || b.at[2] < 1)
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "conv2d: a kernel %s does not fit into %s with its padding", LZ_SHOW(b),
                         LZ_SHOW(a));
    lz_dims to = LZ_DIMS(a.at[0], h / stride + 1, width / stride + 1, b.at[0]);
    if (lz_dims_size(to) < 0)
        return lz_poison(x->ctx, LZ_BAD_SHAPE, "conv2d: the result %s would be too large", LZ_SHOW(to));
    lz_params p;
    memset(&p, 0, sizeof p);
    p.conv.stride = (int)stride;
    p.conv.top = o.top;
    p.conv.bottom = o.bottom;
    p.conv.left = o.left;
    p.conv.right = o.right;
    lz_array *y = lz_node_new(x->ctx, LZ_OP_CONV2D, to, product_type(x->dtype, w->dtype), in, 2, &p);
    return bias ? lz_add(y, bias) : y;
}
