/* op.h: the table of ops, and their parameters. Code that must know all ops reads this table; lazuli_array.h says what
 * each op means. */
#ifndef LZ_OP_H
#define LZ_OP_H

#include "lazuli.h"

typedef enum lz_kind {
    LZ_KIND_LEAF, /* has a value, or is a placeholder */
    LZ_KIND_MAKE, /* made from parameters alone */
    /* out[i] = f(in[i], ...): all inputs have the shape of the output (broadcast axes have stride 0). */
    LZ_KIND_ELEMENT,
    LZ_KIND_VIEW,   /* the same memory with other strides */
    LZ_KIND_REDUCE, /* in [kept..., reduced...] -> out [kept...] */
    LZ_KIND_KERNEL, /* ops with a shape rule of their own */
} lz_kind;

/* clang-format off */
/* X(enum, name, kind, number of inputs or -1, facts: see lz_op_info) */
#define LZ_OPS(X) \
    X(LEAF, "leaf", LEAF, 0) \
    X(FULL, "full", MAKE, 0) \
    X(ARANGE, "arange", MAKE, 0) \
    X(RANDN, "randn", MAKE, 0) \
    X(COPY, "copy", ELEMENT, 1, .moves = true, .whole = true) \
    X(CAST, "cast", ELEMENT, 1, .cheap = true, .whole = true) \
    X(NEG, "neg", ELEMENT, 1, .flops = 1, .cheap = true, .whole = true) \
    X(ABS, "abs", ELEMENT, 1, .flops = 1, .whole = true) \
    X(NOT, "not", ELEMENT, 1, .flops = 1, .truth = 1, .whole = true) \
    X(SQUARE, "square", ELEMENT, 1, .flops = 1, .whole = true) \
    X(FLOOR, "floor", ELEMENT, 1, .flops = 1) \
    X(EXP, "exp", ELEMENT, 1, .flops = 1) \
    X(LOG, "log", ELEMENT, 1, .flops = 1) \
    X(SQRT, "sqrt", ELEMENT, 1, .flops = 1) \
    X(RSQRT, "rsqrt", ELEMENT, 1, .flops = 1) \
    X(SIN, "sin", ELEMENT, 1, .flops = 1) \
    X(COS, "cos", ELEMENT, 1, .flops = 1) \
    X(TANH, "tanh", ELEMENT, 1, .flops = 1) \
    X(ERF, "erf", ELEMENT, 1, .flops = 1) \
    X(SIGMOID, "sigmoid", ELEMENT, 1, .flops = 1) \
    X(SILU, "silu", ELEMENT, 1, .flops = 1) \
    X(GELU, "gelu", ELEMENT, 1, .flops = 1) \
    X(GELU_TANH, "gelu_tanh", ELEMENT, 1, .flops = 1) \
    X(CLIP, "clip", ELEMENT, 1, .flops = 1, .whole = true) \
    X(ADD, "add", ELEMENT, 2, .flops = 1, .number = true, .commutes = true, .cheap = true, .whole = true) \
    X(SUB, "sub", ELEMENT, 2, .flops = 1, .number = true, .cheap = true, .whole = true) \
    X(MUL, "mul", ELEMENT, 2, .flops = 1, .number = true, .commutes = true, .cheap = true, .whole = true) \
    X(DIV, "div", ELEMENT, 2, .flops = 1, .number = true) \
    X(POW, "pow", ELEMENT, 2, .flops = 1, .whole = true) \
    X(MAXIMUM, "maximum", ELEMENT, 2, .flops = 1, .number = true, .whole = true) \
    X(MINIMUM, "minimum", ELEMENT, 2, .flops = 1, .number = true, .whole = true) \
    X(EQUAL, "equal", ELEMENT, 2, .flops = 1, .whole = true) \
    X(NOT_EQUAL, "not_equal", ELEMENT, 2, .flops = 1, .whole = true) \
    X(LESS, "less", ELEMENT, 2, .flops = 1, .whole = true) \
    X(LESS_EQUAL, "less_equal", ELEMENT, 2, .flops = 1, .whole = true) \
    X(GREATER, "greater", ELEMENT, 2, .flops = 1, .whole = true) \
    X(GREATER_EQUAL, "greater_equal", ELEMENT, 2, .flops = 1, .whole = true) \
    X(AND, "and", ELEMENT, 2, .flops = 1, .truth = 3, .whole = true) \
    X(OR, "or", ELEMENT, 2, .flops = 1, .truth = 3, .whole = true) \
    X(WHERE, "where", ELEMENT, 3, .flops = 1, .truth = 1, .whole = true) \
    X(RESHAPE, "reshape", VIEW, 1) \
    X(PERMUTE, "permute", VIEW, 1) \
    X(SLICE, "slice", VIEW, 1) \
    X(BROADCAST, "broadcast", VIEW, 1) \
    X(BESIDE, "beside", VIEW, 1) \
    X(SCALES, "scales", VIEW, 1) \
    X(SUM, "sum", REDUCE, 1, .flops = 1, .whole = true) \
    X(MEAN, "mean", REDUCE, 1, .flops = 1) \
    X(VAR, "var", REDUCE, 1, .flops = 1) \
    X(MAX, "max", REDUCE, 1, .flops = 1, .whole = true) \
    X(MIN, "min", REDUCE, 1, .flops = 1, .whole = true) \
    X(ARGMAX, "argmax", REDUCE, 1, .flops = 1, .whole = true) \
    X(LOGSUMEXP, "logsumexp", REDUCE, 1, .flops = 1) \
    X(SOFTMAX, "softmax", KERNEL, 1, .flops = 5, .epilogue = 1, .in_place = true) \
    X(RMS_NORM, "rms_norm", KERNEL, 1, .flops = 3, .epilogue = 1, .in_place = true) \
    X(LAYER_NORM, "layer_norm", KERNEL, 1, .flops = 5, .epilogue = 1, .in_place = true) \
    X(GROUP_NORM, "group_norm", KERNEL, 1, .flops = 5, .epilogue = 1, .in_place = true) \
    X(ROPE, "rope", KERNEL, 3, .flops = 3, .epilogue = 1, .in_place = true) \
    X(MATMUL, "matmul", KERNEL, 2, .flops = 2, .sum = {0, 1, 0}, .epilogue = 1, .product = true) \
    X(SDPA, "sdpa", KERNEL, -1, .flops = 4, .sum = {1, 1, 1}, .heads_inside = true, .any_strides = true) \
    X(CONV2D, "conv2d", KERNEL, 2, .flops = 2, .sum = {1, 3, 0}, .epilogue = 1, .product = true) \
    X(PAD, "pad", KERNEL, 1) \
    X(CONCAT, "concat", KERNEL, -1, .moves = true) \
    X(TAKE, "take", KERNEL, 2) \
    X(GATHER, "gather", KERNEL, 2) \
    X(UNPACK, "unpack", KERNEL, -1, .flops = 1, .again = true) \
    /* Only made by lowering: the product of a with a matrix of codes, scales and offsets that is unpacked on the way; and the \
     * product of a, whose rows are rounded to 8 bits, with a matrix of codes of 8 bits, whose sums are of whole numbers; rows \
     * rounded to codes of f8 or i8, whose scales SCALES is a view of, and the product of such codes with a matrix of codes of \
     * the same type. \
     * Only made by fusion: two products of one a with two different b, with an epilogue over both; an RMS norm with its \
     * epilogue and the RMS norm of the result, which BESIDE is a view of; and an expression over its inputs. */ \
    X(PACKED_MATMUL, "packed_matmul", KERNEL, 2, .flops = 2, .sum = {0, 1, 0}, .epilogue = 1, .product = true) \
    X(INT8_MATMUL, "int8_matmul", KERNEL, 2, .flops = 2, .sum = {0, 1, 0}, .epilogue = 1, .product = true) \
    X(QUANTISE, "quantise", KERNEL, -1, .flops = 3, .scales = true) \
    X(CODES_MATMUL, "codes_matmul", KERNEL, -1, .flops = 2, .sum = {0, 1, 0}, .epilogue = 1, .product = true) \
    X(MATMUL_PAIR, "matmul_pair", KERNEL, 3, .flops = 4, .sum = {0, 1, 0}, .epilogue = 2, .product = true) \
    X(RMS_NORM_TWICE, "rms_norm_twice", KERNEL, -1, .flops = 7, .epilogue = 1, .beside = true) \
    X(FUSED, "fused", ELEMENT, -1, .in_place = true)
/* clang-format on */

typedef enum lz_op {
#define X(id, name, kind, inputs, ...) LZ_OP_##id,
    LZ_OPS(X)
#undef X
        LZ_OP_COUNT
} lz_op;

/* Facts about an op, for passes and backends. A fact that is not given in LZ_OPS is false or 0. */
typedef struct lz_op_info {
    const char *name;
    lz_kind kind;
    int inputs;
    /* Floating point operations, 2 for a multiply-add, for each element of the output and each term of its sum. The
     * number of terms is the product of `axes` sizes of input `input`, whose last `after` axes are not counted. A
     * REDUCE sums over its reduced axes. */
    double flops;
    struct {
        int input, axes, after;
    } sum;
    int epilogue; /* its kernels take an epilogue, whose first so many arguments are their results; 0: they do not */
    /* Its kernels read an element or a row before they write it: the output may have the memory of an input. */
    bool in_place;
    bool product; /* sums of products; input 1 is the weight */
    bool moves;   /* copies elements and computes nothing: the planner may avoid it */
    bool whole;   /* has an exact integer form, in i64 */
    /* Made from few bytes: computed in every run of a program, right before it is read, and not kept between runs. */
    bool again;
    bool heads_inside; /* the output [b, h, n, d] is stored as [b, n, h, d], so that merging its heads is a view */
    bool beside;       /* stores a second result, of the same shape, lz_beside() elements after the first */
    bool scales;       /* stores an f32 for each row, dense, lz_beside() elements after the result */
    /* Its kernels read inputs of any strides as fast as dense ones, if the last axis is contiguous. */
    bool any_strides;
    /* ELEMENT ops only */
    bool number;    /* in an expression, its second operand may be a constant of the step */
    bool commutes;  /* op(a, b) = op(b, a) */
    bool cheap;     /* if its operands are broadcast, it is computed again for each row instead of stored */
    unsigned truth; /* bit i: the op only asks whether input i is zero, so it may be an integer */
} lz_op_info;
extern const lz_op_info lz_op_table[LZ_OP_COUNT];

/* The parameters of an op. Zeroed before it is filled, so that equal parameters are equal byte by byte. */
/* clang-format off */
typedef union lz_params {
    struct { double value; } full;
    struct { double start, step; } arange;
    struct { uint64_t seed; } randn;
    struct { double low, high; } clip;
    struct { lz_dims axes; } permute;                       /* out axis i is in axis at[i] */
    struct { int axis; int64_t start, step; } slice;        /* the length is in the shape */
    struct { int count; } reduce;                           /* the last `count` axes of the input are reduced */
    /* groups: group_norm only. second_eps: of the second norm of rms_norm_twice. The affine part is a separate op. */
    struct { double eps, second_eps; int groups; } norm;
    struct { bool half_split, norm; double eps; } rope;     /* norm: rms_norm x first (set by fusion) */
    struct { double scale; bool causal; } sdpa;
    struct { int stride, top, bottom, left, right; } conv;
    struct { lz_dims before, after; double value; } pad;
    struct { int axis; } along;                             /* concat, take, gather */
    /* rotate: 0, or as in op/packing.h. core: RMS_NORM or LAYER_NORM before the expression, with this eps; otherwise LEAF,
     * which is 0. Set by fusion. */
    struct { double eps; int core, rotate; } quantise;
    /* unpack, packed_matmul, int8_matmul, codes_matmul: see op/packing.h. type: of the weights */
    struct { int packing, rotate; int64_t group, row_group; float factor; lz_dtype type; } unpack;
} lz_params;
/* clang-format on */

#endif
