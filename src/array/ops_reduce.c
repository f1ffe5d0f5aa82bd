/* ops_reduce.c: the rules of reductions and softmax. A permute moves the reduced axes to the end, so that kernels have
 * one form only: in [kept..., reduced...] -> out [kept...]. */
#define LZ_NO_SUGAR
#include <string.h>

#include "array/ops.h"

typedef struct order {
    lz_dims axes; /* kept axes, then reduced ones */
    int kept;
    lz_dims result; /* the shape with keepdims applied */
} order;

static bool make_order(lz_dims dims, lz_dims axes, bool keepdims, order *o) {
    unsigned reduced = 0;
    for (int i = 0; i < axes.n; i++) {
        int axis = lz_axis(axes.at[i], dims.n);
        if (axis < 0 || reduced & 1u << axis) return false;
        reduced |= 1u << axis;
    }
    if (axes.n == 0) reduced = (1u << dims.n) - 1;
    *o = (order){.axes.n = dims.n};
    int back = 0;
    for (int i = 0; i < dims.n; i++) {
        if (!(reduced & 1u << i)) o->axes.at[o->kept++] = i;
        if (!(reduced & 1u << i) || keepdims) o->result.at[o->result.n++] = reduced & 1u << i ? 1 : dims.at[i];
    }
    for (int i = 0; i < dims.n; i++)
        if (reduced & 1u << i) o->axes.at[o->kept + back++] = i;
    return true;
}

static lz_array *reduce(lz_op op, lz_array *a, lz_dims axes, bool keepdims) {
    const char *name = lz_op_table[op].name;
    lz_array *bad = NULL;
    if (lz_unusable(name, &a, 1, &bad)) return bad;
    order o;
    if (axes.n < 0 || axes.n > LZ_MAX_DIMS || !make_order(a->dims, axes, keepdims, &o))
        return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "%s: the axes %s are not different axes of %s", name, LZ_SHOW(axes),
                         LZ_SHOW(a->dims));
    if (a->dtype == LZ_F8) return lz_poison(a->ctx, LZ_BAD_TYPE, "%s: f8 is for storage only; cast it first", name);

    int64_t count = 1;
    for (int i = o.kept; i < a->dims.n; i++) count *= a->dims.at[o.axes.at[i]];
    bool picks = op == LZ_OP_MAX || op == LZ_OP_MIN || op == LZ_OP_ARGMAX;
    if (picks && count == 0)
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "%s: the axes %s of %s are empty", name, LZ_SHOW(axes),
                         LZ_SHOW(a->dims));

    if (!picks && op != LZ_OP_SUM && !lz_is_float(a->dtype)) a = lz_as_type(a, LZ_F32); /* mean, var, logsumexp */
    lz_dtype type = op == LZ_OP_ARGMAX || (op == LZ_OP_SUM && !lz_is_float(a->dtype)) ? LZ_I64 : a->dtype;
    lz_array *x = a->error ? a : lz_as_permuted(a, o.axes);
    if (x->error) return x;

    lz_params p;
    memset(&p, 0, sizeof p);
    p.reduce.count = a->dims.n - o.kept;
    lz_dims kept = {.n = o.kept};
    for (int i = 0; i < o.kept; i++) kept.at[i] = a->dims.at[o.axes.at[i]];
    lz_array *y = lz_node_new(a->ctx, op, kept, type, &x, 1, &p);
    return lz_reshape(y, o.result);
}

lz_array *lz_sum(lz_array *a, lz_dims axes, bool keepdims) { return reduce(LZ_OP_SUM, a, axes, keepdims); }
lz_array *lz_mean(lz_array *a, lz_dims axes, bool keepdims) { return reduce(LZ_OP_MEAN, a, axes, keepdims); }
lz_array *lz_var(lz_array *a, lz_dims axes, bool keepdims) { return reduce(LZ_OP_VAR, a, axes, keepdims); }
lz_array *lz_max(lz_array *a, lz_dims axes, bool keepdims) { return reduce(LZ_OP_MAX, a, axes, keepdims); }
lz_array *lz_min(lz_array *a, lz_dims axes, bool keepdims) { return reduce(LZ_OP_MIN, a, axes, keepdims); }
lz_array *lz_argmax(lz_array *a, int axis, bool keepdims) { return reduce(LZ_OP_ARGMAX, a, LZ_DIMS(axis), keepdims); }
lz_array *lz_logsumexp(lz_array *a, lz_dims axes, bool keepdims) { return reduce(LZ_OP_LOGSUMEXP, a, axes, keepdims); }

lz_array *lz_softmax(lz_array *a, int axis) {
    lz_array *bad = NULL;
    if (lz_unusable("softmax", &a, 1, &bad)) return bad;
    int n = a->dims.n, at = lz_axis(axis, n);
    if (at < 0) return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "softmax: %s has no axis %d", LZ_SHOW(a->dims), axis);
    if (a->dtype == LZ_F8) return lz_poison(a->ctx, LZ_BAD_TYPE, "softmax: f8 is for storage only; cast it first");
    if (!lz_is_float(a->dtype)) a = lz_as_type(a, LZ_F32);
    if (a->error) return a;
    lz_dims swap = {.n = n}; /* the permutation is its own inverse */
    for (int i = 0; i < n; i++) swap.at[i] = i;
    swap.at[at] = n - 1;
    swap.at[n - 1] = at;
    lz_array *x = lz_as_permuted(a, swap);
    if (x->error) return x;
    lz_array *y = lz_node_new(a->ctx, LZ_OP_SOFTMAX, x->dims, x->dtype, &x, 1, NULL);
    return y->error ? y : lz_as_permuted(y, swap);
}
