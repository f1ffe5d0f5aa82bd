/* ref_element.c: elementwise ops. Two tables have a function of each op for real and for whole numbers; an op without
 * one for whole numbers computes integers as reals. */
#include "backend/ref/ref.h"

#include <math.h>

/* ---- one argument ----------------------------------------------------------------------------------------------- */

static double neg_real(double x) { return -x; }
static double not_real(double x) { return x == 0; }
static double square_real(double x) { return x * x; }
static double rsqrt_real(double x) { return 1 / sqrt(x); }
static double sigmoid_real(double x) { return 1 / (1 + exp(-x)); }
static double silu_real(double x) { return x / (1 + exp(-x)); }

/* x (1 + erf(x / sqrt 2)) / 2, with 1 + erf(t) = erfc(-t), which loses no digits if erf is near -1. */
static double gelu_real(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752440); }

/* x (1 + tanh(t)) / 2, with (1 + tanh(t)) / 2 = sigmoid(2t) for the same reason; sqrt(2/pi) = 0.797... */
static double gelu_tanh_real(double x) {
    double t = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * t));
}

static int64_t neg_whole(int64_t x) { return (int64_t)(0 - (uint64_t)x); }
static int64_t abs_whole(int64_t x) { return x < 0 ? neg_whole(x) : x; }
static int64_t not_whole(int64_t x) { return x == 0; }
static int64_t square_whole(int64_t x) { return wrapping_mul(x, x); }

static const struct {
    double (*real)(double);
    int64_t (*whole)(int64_t);
} unary[LZ_OP_COUNT] = {
    [LZ_OP_NEG] = {neg_real, neg_whole},
    [LZ_OP_ABS] = {fabs, abs_whole},
    [LZ_OP_NOT] = {not_real, not_whole},
    [LZ_OP_SQUARE] = {square_real, square_whole},
    [LZ_OP_FLOOR] = {floor, NULL},
    [LZ_OP_EXP] = {exp, NULL},
    [LZ_OP_LOG] = {log, NULL},
    [LZ_OP_SQRT] = {sqrt, NULL},
    [LZ_OP_RSQRT] = {rsqrt_real, NULL},
    [LZ_OP_SIN] = {sin, NULL},
    [LZ_OP_COS] = {cos, NULL},
    [LZ_OP_TANH] = {tanh, NULL},
    [LZ_OP_ERF] = {erf, NULL},
    [LZ_OP_SIGMOID] = {sigmoid_real, NULL},
    [LZ_OP_SILU] = {silu_real, NULL},
    [LZ_OP_GELU] = {gelu_real, NULL},
    [LZ_OP_GELU_TANH] = {gelu_tanh_real, NULL},
};

bool lz_ref_unary(const lz_call *call) {
    const lz_tensor *x = call->in;
    if (unary[call->op].whole && !lz_is_float(x->dtype)) {
        FOR_EACH(i, call->out.dims) set_whole(&call->out, i, unary[call->op].whole(get_whole(x, i)));
    } else {
        FOR_EACH(i, call->out.dims) set_real(&call->out, i, unary[call->op].real(get_real(x, i)));
    }
    return true;
}

/* ---- two arguments ---------------------------------------------------------------------------------------------- */

#define BINARY(name, type, kind, value)                                                                                \
    static type name##_##kind(type a, type b) { return value; }
#define COMPARISON(name, value) BINARY(name, double, real, value) BINARY(name, int64_t, whole, value)

COMPARISON(equal, a == b)
COMPARISON(not_equal, a != b)
COMPARISON(less, a < b)
COMPARISON(less_equal, a <= b)
COMPARISON(greater, a > b)
COMPARISON(greater_equal, a >= b)
COMPARISON(and, a != 0 && b != 0)
COMPARISON(or, a != 0 || b != 0)

BINARY(add, double, real, a + b)
BINARY(sub, double, real, a - b)
BINARY(mul, double, real, (a * b))
BINARY(div, double, real, a / b)

BINARY(sub, int64_t, whole, (int64_t)((uint64_t)a - (uint64_t)b))
BINARY(maximum, int64_t, whole, a > b ? a : b)
BINARY(minimum, int64_t, whole, a < b ? a : b)

static int64_t pow_whole(int64_t base, int64_t exponent) {
    if (exponent < 0) { /* 1 / base^|exponent|, toward zero; 1/0 gives 0 as in torch */
        if (base == -1) return exponent % 2 == 0 ? 1 : -1;
        return base == 1;
    }
    int64_t power = 1;
    for (; exponent > 0; exponent /= 2) { /* invariant: base^exponent * power */
        if (exponent % 2 == 1) power = wrapping_mul(power, base);
        base = wrapping_mul(base, base);
    }
    return power;
}

static const struct {
    double (*real)(double, double);
    int64_t (*whole)(int64_t, int64_t);
} binary[LZ_OP_COUNT] = {
    [LZ_OP_ADD] = {add_real, wrapping_add},
    [LZ_OP_SUB] = {sub_real, sub_whole},
    [LZ_OP_MUL] = {mul_real, wrapping_mul},
    [LZ_OP_DIV] = {div_real, NULL},
    [LZ_OP_POW] = {pow, pow_whole},
    [LZ_OP_MAXIMUM] = {bigger, maximum_whole},
    [LZ_OP_MINIMUM] = {smaller, minimum_whole},
    [LZ_OP_EQUAL] = {equal_real, equal_whole},
    [LZ_OP_NOT_EQUAL] = {not_equal_real, not_equal_whole},
    [LZ_OP_LESS] = {less_real, less_whole},
    [LZ_OP_LESS_EQUAL] = {less_equal_real, less_equal_whole},
    [LZ_OP_GREATER] = {greater_real, greater_whole},
    [LZ_OP_GREATER_EQUAL] = {greater_equal_real, greater_equal_whole},
    [LZ_OP_AND] = {and_real, and_whole},
    [LZ_OP_OR] = {or_real, or_whole},
};

bool lz_ref_binary(const lz_call *call) {
    const lz_tensor *a = &call->in[0], *b = &call->in[1];
    if (binary[call->op].whole && !lz_is_float(a->dtype) && !lz_is_float(b->dtype)) {
        FOR_EACH(i, call->out.dims) {
            set_whole(&call->out, i, binary[call->op].whole(get_whole(a, i), get_whole(b, i)));
        }
    } else {
        FOR_EACH(i, call->out.dims) set_real(&call->out, i, binary[call->op].real(get_real(a, i), get_real(b, i)));
    }
    return true;
}

/* ---- the others ------------------------------------------------------------------------------------------------- */

bool lz_ref_copy(const lz_call *call) {
    FOR_EACH(i, call->out.dims) lz_ref_move(&call->out, i, call->in, i);
    return true;
}

/* The limits are converted to the type of x first: an integer is clipped to integers of its type. */
bool lz_ref_clip(const lz_call *call) {
    const lz_tensor *x = call->in;
    double low = call->params->clip.low, high = call->params->clip.high;
    if (lz_is_float(x->dtype)) {
        FOR_EACH(i, call->out.dims) set_real(&call->out, i, smaller(bigger(get_real(x, i), low), high));
        return true;
    }
    int64_t whole_low = lz_ref_to_whole(x->dtype, low), whole_high = lz_ref_to_whole(x->dtype, high);
    FOR_EACH(i, call->out.dims) {
        set_whole(&call->out, i, minimum_whole(maximum_whole(get_whole(x, i), whole_low), whole_high));
    }
    return true;
}

bool lz_ref_where(const lz_call *call) {
    const lz_tensor *condition = &call->in[0];
    FOR_EACH(i, call->out.dims) {
        bool yes = get_real(condition, i) != 0;
        lz_ref_move(&call->out, i, &call->in[yes ? 1 : 2], i);
    }
    return true;
}
