/* ops_element.c: the rules of elementwise ops: promote, broadcast, make one node. All of them use element(). */
#define LZ_NO_SUGAR
#include <math.h>
#include <string.h>

#include "array/ops.h"

/* What an op does to types. */
typedef enum rule {
    ARITHMETIC, /* the promoted type */
    REAL,       /* the promoted type; integers become f32 */
    COMPARE,    /* operands promoted, result bool */
    LOGICAL,    /* operands as they are, result bool */
} rule;

bool lz_unusable(const char *op, lz_array *const *arrays, int n, lz_array **bad) {
    for (int i = 0; i < n; i++) {
        if (!arrays[i]) {
            for (int j = 0; j < n; j++)
                if (arrays[j]) {
                    *bad = lz_poison(arrays[j]->ctx, LZ_BAD_ARGUMENT, "%s: argument %d is NULL", op, i + 1);
                    return true;
                }
            *bad = NULL;
            return true;
        }
        if (arrays[i]->error) {
            *bad = arrays[i];
            return true;
        }
        if (arrays[i]->ctx != arrays[0]->ctx) {
            *bad = lz_poison(arrays[0]->ctx, LZ_BAD_ARGUMENT, "%s: argument %d belongs to another context", op, i + 1);
            return true;
        }
    }
    return false;
}

int lz_axis(int64_t axis, int n) {
    if (axis < -(int64_t)n || axis >= n) return -1;
    return (int)(axis < 0 ? axis + n : axis);
}

bool lz_broadcast_dims(lz_dims a, lz_dims b, lz_dims *out) {
    lz_dims r = {.n = a.n > b.n ? a.n : b.n};
    for (int i = 1; i <= r.n; i++) { /* from the back */
        int64_t x = i <= a.n ? a.at[a.n - i] : 1, y = i <= b.n ? b.at[b.n - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        r.at[r.n - i] = x == 1 ? y : x;
    }
    *out = r;
    return true;
}

/* ---- making inputs fit ------------------------------------------------------------------------------------------- */

/* Can an array of this type have the element v? A C number has no type of its own. */
static bool number_fits(double v, lz_dtype dtype) {
    static const double low[] = {
        [LZ_BOOL] = 0, [LZ_U8] = 0, [LZ_I8] = -128, [LZ_I32] = -2147483648.0, [LZ_I64] = -0x1p63};
    static const double high[] = {
        [LZ_BOOL] = 1, [LZ_U8] = 255, [LZ_I8] = 127, [LZ_I32] = 2147483647.0, [LZ_I64] = 0x1p63};
    if (lz_is_float(dtype)) return true;
    return v == floor(v) && v >= low[dtype] && v <= high[dtype] && v != 0x1p63;
}

static lz_array *full_of(lz_context *ctx, lz_dims dims, lz_dtype dtype, double value) {
    lz_params p;
    memset(&p, 0, sizeof p);
    p.full.value = value;
    return lz_node_new(ctx, LZ_OP_FULL, dims, dtype, NULL, 0, &p);
}

lz_array *lz_as_type(lz_array *a, lz_dtype dtype) {
    if (a->error || a->dtype == dtype) return a;
    if (a->weak) return full_of(a->ctx, a->dims, dtype, a->params.full.value);
    return lz_node_new(a->ctx, LZ_OP_CAST, a->dims, dtype, &a, 1, NULL);
}

lz_array *lz_as_dims(lz_array *a, lz_dims dims) {
    if (a->error || lz_dims_equal(a->dims, dims)) return a;
    if (a->op == LZ_OP_FULL && !a->buffer) return full_of(a->ctx, dims, a->dtype, a->params.full.value);
    return lz_node_new(a->ctx, LZ_OP_BROADCAST, dims, a->dtype, &a, 1, NULL);
}

/* ---- the one function -------------------------------------------------------------------------------------------- */

/* The promoted type of operands first .. n-1. Weak operands take the type of the others. */
static bool common_type(lz_array *const *in, int first, int n, lz_dtype *type) {
    bool found = false;
    for (int i = first; i < n; i++)
        if (!in[i]->weak) {
            *type = found ? lz_promote(*type, in[i]->dtype) : in[i]->dtype;
            found = true;
        }
    return found;
}

static lz_array *element(lz_op op, rule types, lz_array *const *arrays, int n, const lz_params *params) {
    const char *name = lz_op_table[op].name;
    lz_array *in[3], *bad = NULL;
    if (lz_unusable(name, arrays, n, &bad)) return bad;
    lz_context *ctx = arrays[0]->ctx;
    int first = op == LZ_OP_WHERE; /* the condition keeps its own type */

    lz_dims dims = arrays[0]->dims;
    for (int i = 1; i < n; i++)
        if (!lz_broadcast_dims(dims, arrays[i]->dims, &dims))
            return lz_poison(ctx, LZ_BAD_SHAPE, "%s: shapes %s and %s do not broadcast together", name, LZ_SHOW(dims),
                             LZ_SHOW(arrays[i]->dims));
    if (lz_dims_size(dims) < 0)
        return lz_poison(ctx, LZ_BAD_SHAPE, "%s: the result %s would be too large", name, LZ_SHOW(dims));

    lz_dtype type = LZ_F32;
    common_type(arrays, first, n, &type);
    for (int i = 0; i < n; i++) {
        if (arrays[i]->dtype == LZ_F8 && !arrays[i]->weak)
            return lz_poison(ctx, LZ_BAD_TYPE, "%s: f8 is for storage only; cast it to f16, bf16 or f32 first", name);
        if (arrays[i]->weak && i >= first &&
            !number_fits(arrays[i]->params.full.value, types == REAL && !lz_is_float(type) ? LZ_F32 : type))
            return lz_poison(ctx, LZ_BAD_TYPE,
                             "%s: the number %g does not fit into an array of %s; cast the array first", name,
                             arrays[i]->params.full.value, lz_dtype_name(type));
    }
    if (types == REAL && !lz_is_float(type)) type = LZ_F32;

    for (int i = 0; i < n; i++) {
        in[i] = arrays[i];
        if (i >= first && (types != LOGICAL || in[i]->weak)) in[i] = lz_as_type(in[i], type);
        in[i] = lz_as_dims(in[i], dims);
        if (in[i]->error) return in[i];
    }
    return lz_node_new(ctx, op, dims, types == COMPARE || types == LOGICAL ? LZ_BOOL : type, in, n, params);
}

#define UNARY(name, op, rule)                                                                                          \
    lz_array *name(lz_array *a) { return element(op, rule, &a, 1, NULL); }
#define BINARY(name, op, rule)                                                                                         \
    lz_array *name(lz_array *a, lz_array *b) { return element(op, rule, (lz_array *[]){a, b}, 2, NULL); }
#define BINARY_NUMBER(name, op, rule)                                                                                  \
    BINARY(name, op, rule)                                                                                             \
    lz_array *name##_number(lz_array *a, double b) { return a ? name(a, lz_number(a->ctx, b)) : NULL; }

BINARY_NUMBER(lz_add, LZ_OP_ADD, ARITHMETIC)
BINARY_NUMBER(lz_sub, LZ_OP_SUB, ARITHMETIC)
BINARY_NUMBER(lz_mul, LZ_OP_MUL, ARITHMETIC)
BINARY_NUMBER(lz_div, LZ_OP_DIV, REAL)
BINARY_NUMBER(lz_pow, LZ_OP_POW, ARITHMETIC)
BINARY_NUMBER(lz_maximum, LZ_OP_MAXIMUM, ARITHMETIC)
BINARY_NUMBER(lz_minimum, LZ_OP_MINIMUM, ARITHMETIC)
BINARY_NUMBER(lz_equal, LZ_OP_EQUAL, COMPARE)
BINARY_NUMBER(lz_not_equal, LZ_OP_NOT_EQUAL, COMPARE)
BINARY_NUMBER(lz_less, LZ_OP_LESS, COMPARE)
BINARY_NUMBER(lz_less_equal, LZ_OP_LESS_EQUAL, COMPARE)
BINARY_NUMBER(lz_greater, LZ_OP_GREATER, COMPARE)
BINARY_NUMBER(lz_greater_equal, LZ_OP_GREATER_EQUAL, COMPARE)
BINARY(lz_and, LZ_OP_AND, LOGICAL)
BINARY(lz_or, LZ_OP_OR, LOGICAL)
UNARY(lz_not, LZ_OP_NOT, LOGICAL)
UNARY(lz_neg, LZ_OP_NEG, ARITHMETIC)
UNARY(lz_abs, LZ_OP_ABS, ARITHMETIC)
UNARY(lz_square, LZ_OP_SQUARE, ARITHMETIC)
UNARY(lz_exp, LZ_OP_EXP, REAL)
UNARY(lz_log, LZ_OP_LOG, REAL)
UNARY(lz_sqrt, LZ_OP_SQRT, REAL)
UNARY(lz_rsqrt, LZ_OP_RSQRT, REAL)
UNARY(lz_sin, LZ_OP_SIN, REAL)
UNARY(lz_cos, LZ_OP_COS, REAL)
UNARY(lz_tanh, LZ_OP_TANH, REAL)
UNARY(lz_erf, LZ_OP_ERF, REAL)
UNARY(lz_sigmoid, LZ_OP_SIGMOID, REAL)
UNARY(lz_silu, LZ_OP_SILU, REAL)
UNARY(lz_gelu, LZ_OP_GELU, REAL)
UNARY(lz_gelu_tanh, LZ_OP_GELU_TANH, REAL)

lz_array *lz_floor(lz_array *a) {
    bool whole = a && !a->error && !lz_is_float(a->dtype);
    return whole ? a : element(LZ_OP_FLOOR, REAL, &a, 1, NULL);
}

lz_array *lz_where(lz_array *condition, lz_array *a, lz_array *b) {
    return element(LZ_OP_WHERE, ARITHMETIC, (lz_array *[]){condition, a, b}, 3, NULL);
}

lz_array *lz_clip(lz_array *a, double low, double high) {
    lz_array *bad = NULL;
    if (lz_unusable("clip", &a, 1, &bad)) return bad;
    if (!(low <= high))
        return lz_poison(a->ctx, LZ_BAD_ARGUMENT, "clip: the lower bound %g is above the upper bound %g", low, high);
    lz_params p;
    memset(&p, 0, sizeof p);
    p.clip.low = low;
    p.clip.high = high;
    return element(LZ_OP_CLIP, ARITHMETIC, &a, 1, &p);
}

lz_array *lz_cast(lz_array *a, lz_dtype dtype) {
    lz_array *bad = NULL;
    if (lz_unusable("cast", &a, 1, &bad)) return bad;
    if (!lz_dtype_size(dtype)) return lz_poison(a->ctx, LZ_BAD_TYPE, "cast: %d is not a type", (int)dtype);
    return lz_as_type(a, dtype);
}

lz_array *lz_contiguous(lz_array *a) {
    lz_array *bad = NULL;
    if (lz_unusable("contiguous", &a, 1, &bad)) return bad;
    return lz_node_new(a->ctx, LZ_OP_COPY, a->dims, a->dtype, &a, 1, NULL);
}

/* ---- arrays from numbers ----------------------------------------------------------------------------------------- */

static lz_array *bad_dims(lz_context *ctx, const char *op, lz_dims dims) {
    if (dims.n < 0 || dims.n > LZ_MAX_DIMS)
        return lz_poison(ctx, LZ_BAD_SHAPE, "%s: %d axes, but arrays have 0 to %d", op, dims.n, LZ_MAX_DIMS);
    return lz_poison(ctx, LZ_BAD_SHAPE, "%s: the shape %s has a negative size or is too large", op, LZ_SHOW(dims));
}

lz_array *lz_full(lz_context *ctx, lz_dims dims, lz_dtype dtype, double value) {
    if (!ctx) return NULL;
    if (lz_dims_size(dims) < 0) return bad_dims(ctx, "full", dims);
    if (!lz_dtype_size(dtype)) return lz_poison(ctx, LZ_BAD_TYPE, "full: %d is not a type", (int)dtype);
    return full_of(ctx, dims, dtype, value);
}

lz_array *lz_number(lz_context *ctx, double value) {
    if (!ctx) return NULL;
    lz_array *a = full_of(ctx, LZ_NONE, LZ_F32, value);
    if (!a->error) a->weak = true;
    return a;
}

lz_array *lz_arange(lz_context *ctx, double start, double stop, double step, lz_dtype dtype) {
    if (!ctx) return NULL;
    double count = ceil((stop - start) / step);
    if (!lz_dtype_size(dtype)) return lz_poison(ctx, LZ_BAD_TYPE, "arange: %d is not a type", (int)dtype);
    if (!(step != 0) || !isfinite(count) || count >= 0x1p58)
        return lz_poison(ctx, LZ_BAD_ARGUMENT, "arange: %g to %g by %g is not a valid range", start, stop, step);
    lz_params p;
    memset(&p, 0, sizeof p);
    p.arange.start = start;
    p.arange.step = step;
    return lz_node_new(ctx, LZ_OP_ARANGE, LZ_DIMS(count > 0 ? (int64_t)count : 0), dtype, NULL, 0, &p);
}

lz_array *lz_randn(lz_context *ctx, lz_dims dims, uint64_t seed) {
    if (!ctx) return NULL;
    if (lz_dims_size(dims) < 0) return bad_dims(ctx, "randn", dims);
    lz_params p;
    memset(&p, 0, sizeof p);
    p.randn.seed = seed;
    return lz_node_new(ctx, LZ_OP_RANDN, dims, LZ_F32, NULL, 0, &p);
}

/* ---- arrays from memory ------------------------------------------------------------------------------------------ */

static lz_array *leaf(lz_context *ctx, lz_dims dims, lz_dtype dtype, lz_buffer *buffer) {
    lz_array *a = lz_node_new(ctx, LZ_OP_LEAF, dims, dtype, NULL, 0, NULL);
    if (!a->error) {
        int64_t strides[LZ_MAX_DIMS] = {0};
        lz_dense_strides(dims, strides);
        lz_node_set_value(a, buffer, 0, strides, NULL);
    }
    return a;
}

lz_array *lz_from(lz_context *ctx, lz_dims dims, lz_dtype dtype, const void *data) {
    if (!ctx) return NULL;
    int64_t n = lz_dims_size(dims), bytes = n * lz_dtype_size(dtype);
    if (n < 0) return bad_dims(ctx, "from", dims);
    if (!lz_dtype_size(dtype)) return lz_poison(ctx, LZ_BAD_TYPE, "from: %d is not a type", (int)dtype);
    if (n && !data) return lz_poison(ctx, LZ_BAD_ARGUMENT, "from: no data for %s", LZ_SHOW(dims));
    lz_buffer *buffer = lz_buffer_new(ctx, bytes, NULL);
    if (!buffer) return ctx->no_memory;
    lz_error err = {.status = LZ_OK};
    lz_array *a = n && !lz_buffer_fill(buffer, data, bytes, &err) ? lz_poison(ctx, err.status, "from: %s", err.text)
                                                                  : leaf(ctx, dims, dtype, buffer);
    lz_buffer_release(buffer);
    return a;
}

lz_array *lz_borrow_as(lz_context *ctx, lz_dims dims, lz_dtype dtype, const void *data, void (*release)(void *),
                       void *user, bool shared) {
    if (!ctx) return NULL;
    int64_t n = lz_dims_size(dims), size = lz_dtype_size(dtype);
    lz_array *a;
    if (n < 0)
        a = bad_dims(ctx, "borrow", dims);
    else if (!size)
        a = lz_poison(ctx, LZ_BAD_TYPE, "borrow: %d is not a type", (int)dtype);
    else if (n && (!data || (uintptr_t)data % (uintptr_t)size))
        a = lz_poison(ctx, LZ_BAD_ARGUMENT, "borrow: the data must be aligned to %lld bytes", (long long)size);
    else {
        lz_buffer *buffer = lz_buffer_borrow(ctx, data, n * size, release, user);
        if (!buffer) {
            if (release) release(user);
            return ctx->no_memory;
        }
        if (shared) buffer = lz_buffer_share(buffer);
        a = leaf(ctx, dims, dtype, buffer);
        lz_buffer_release(buffer);
        return a;
    }
    if (release) release(user); /* release is called even if the array could not be made */
    return a;
}

lz_array *lz_borrow(lz_context *ctx, lz_dims dims, lz_dtype dtype, const void *data, void (*release)(void *),
                    void *user) {
    return lz_borrow_as(ctx, dims, dtype, data, release, user, false);
}

lz_array *lz_array_made(lz_context *ctx, lz_dims dims, lz_dtype dtype, lz_maker make, void (*release)(void *),
                        bool (*same)(const void *user, const void *other), void *user) {
    int64_t n = lz_dims_size(dims);
    lz_buffer *buffer = n < 0 ? NULL : lz_buffer_made(ctx, n * lz_dtype_size(dtype), make, release, user);
    if (!buffer && release) release(user);
    if (!buffer) return n < 0 ? bad_dims(ctx, "made", dims) : ctx->no_memory;
    buffer->same = same;
    buffer = lz_buffer_share(buffer);
    lz_array *a = leaf(ctx, dims, dtype, buffer);
    lz_buffer_release(buffer);
    return a;
}
