/* op.h: the list of ops, and the numbers that go with some of them. Everything that has to know all ops reads this one
 * table; what an op means is told in lazuli.h. */
#ifndef LZ_OP_H
#define LZ_OP_H

#include "lazuli.h"

typedef enum lz_kind {
    LZ_KIND_LEAF,    /* has a value, or will be given one */
    LZ_KIND_MAKE,    /* made from numbers alone */
    LZ_KIND_ELEMENT, /* out[i] = f(in[i], ...): all inputs have the shape of the output (stride 0 where broadcast) */
    LZ_KIND_VIEW,    /* the same memory with other strides */
    LZ_KIND_REDUCE,  /* in [kept..., reduced...] -> out [kept...] */
    LZ_KIND_KERNEL,  /* everything with a shape rule of its own */
} lz_kind;

/* X(enum, name, kind, number of inputs or -1) */
#define LZ_OPS(X)                                                                                                      \
    X(LEAF, "leaf", LEAF, 0)                                                                                           \
    X(FULL, "full", MAKE, 0)                                                                                           \
    X(ARANGE, "arange", MAKE, 0)                                                                                       \
    X(RANDN, "randn", MAKE, 0)                                                                                         \
    X(COPY, "copy", ELEMENT, 1)                                                                                        \
    X(CAST, "cast", ELEMENT, 1)                                                                                        \
    X(NEG, "neg", ELEMENT, 1)                                                                                          \
    X(ABS, "abs", ELEMENT, 1)                                                                                          \
    X(NOT, "not", ELEMENT, 1)                                                                                          \
    X(SQUARE, "square", ELEMENT, 1)                                                                                    \
    X(FLOOR, "floor", ELEMENT, 1)                                                                                      \
    X(EXP, "exp", ELEMENT, 1)                                                                                          \
    X(LOG, "log", ELEMENT, 1)                                                                                          \
    X(SQRT, "sqrt", ELEMENT, 1)                                                                                        \
    X(RSQRT, "rsqrt", ELEMENT, 1)                                                                                      \
    X(SIN, "sin", ELEMENT, 1)                                                                                          \
    X(COS, "cos", ELEMENT, 1)                                                                                          \
    X(TANH, "tanh", ELEMENT, 1)                                                                                        \
    X(ERF, "erf", ELEMENT, 1)                                                                                          \
    X(SIGMOID, "sigmoid", ELEMENT, 1)                                                                                  \
    X(SILU, "silu", ELEMENT, 1)                                                                                        \
    X(GELU, "gelu", ELEMENT, 1)                                                                                        \
    X(GELU_TANH, "gelu_tanh", ELEMENT, 1)                                                                              \
    X(CLIP, "clip", ELEMENT, 1)                                                                                        \
    X(ADD, "add", ELEMENT, 2)                                                                                          \
    X(SUB, "sub", ELEMENT, 2)                                                                                          \
    X(MUL, "mul", ELEMENT, 2)                                                                                          \
    X(DIV, "div", ELEMENT, 2)                                                                                          \
    X(POW, "pow", ELEMENT, 2)                                                                                          \
    X(MAXIMUM, "maximum", ELEMENT, 2)                                                                                  \
    X(MINIMUM, "minimum", ELEMENT, 2)                                                                                  \
    X(EQUAL, "equal", ELEMENT, 2)                                                                                      \
    X(NOT_EQUAL, "not_equal", ELEMENT, 2)                                                                              \
    X(LESS, "less", ELEMENT, 2)                                                                                        \
    X(LESS_EQUAL, "less_equal", ELEMENT, 2)                                                                            \
    X(GREATER, "greater", ELEMENT, 2)                                                                                  \
    X(GREATER_EQUAL, "greater_equal", ELEMENT, 2)                                                                      \
    X(AND, "and", ELEMENT, 2)                                                                                          \
    X(OR, "or", ELEMENT, 2)                                                                                            \
    X(WHERE, "where", ELEMENT, 3)                                                                                      \
    X(RESHAPE, "reshape", VIEW, 1)                                                                                     \
    X(PERMUTE, "permute", VIEW, 1)                                                                                     \
    X(SLICE, "slice", VIEW, 1)                                                                                         \
    X(BROADCAST, "broadcast", VIEW, 1)                                                                                 \
    X(SUM, "sum", REDUCE, 1)                                                                                           \
    X(MEAN, "mean", REDUCE, 1)                                                                                         \
    X(VAR, "var", REDUCE, 1)                                                                                           \
    X(MAX, "max", REDUCE, 1)                                                                                           \
    X(MIN, "min", REDUCE, 1)                                                                                           \
    X(ARGMAX, "argmax", REDUCE, 1)                                                                                     \
    X(LOGSUMEXP, "logsumexp", REDUCE, 1)                                                                               \
    X(SOFTMAX, "softmax", KERNEL, 1)                                                                                   \
    X(RMS_NORM, "rms_norm", KERNEL, 1)                                                                                 \
    X(LAYER_NORM, "layer_norm", KERNEL, 1)                                                                             \
    X(GROUP_NORM, "group_norm", KERNEL, 1)                                                                             \
    X(ROPE, "rope", KERNEL, 3)                                                                                         \
    X(MATMUL, "matmul", KERNEL, 2)                                                                                     \
    X(SDPA, "sdpa", KERNEL, -1)                                                                                        \
    X(CONV2D, "conv2d", KERNEL, 2)                                                                                     \
    X(PAD, "pad", KERNEL, 1)                                                                                           \
    X(CONCAT, "concat", KERNEL, -1)                                                                                    \
    X(TAKE, "take", KERNEL, 2)                                                                                         \
    X(GATHER, "gather", KERNEL, 2)                                                                                     \
    X(FUSED, "fused", ELEMENT, -1) /* made by the fusion pass only: an expression over its inputs */

typedef enum lz_op {
#define X(id, name, kind, inputs) LZ_OP_##id,
    LZ_OPS(X)
#undef X
        LZ_OP_COUNT
} lz_op;

typedef struct lz_op_info {
    const char *name;
    lz_kind kind;
    int inputs;
} lz_op_info;
extern const lz_op_info lz_op_table[LZ_OP_COUNT];

/* The numbers of an op. Zeroed before it is filled, so that equal ops compare equal byte for byte. */
/* clang-format off */
typedef union lz_params {
    struct { double value; } full;
    struct { double start, step; } arange;
    struct { uint64_t seed; } randn;
    struct { double low, high; } clip;
    struct { lz_dims axes; } permute;                       /* out axis i is in axis at[i] */
    struct { int axis; int64_t start, step; } slice;        /* the length is in the shape */
    struct { int count; } reduce;                           /* the last count axes of the input go away */
    struct { double eps; int groups; } norm;                /* groups: group_norm only. No affine part here: that is elementwise */
    struct { bool half_split, norm; double eps; } rope;     /* norm: rms_norm x first (made by the fusion pass) */
    struct { double scale; bool causal; } sdpa;
    struct { int stride, top, bottom, left, right; } conv;
    struct { lz_dims before, after; double value; } pad;
    struct { int axis; } at;                                /* concat, take, gather */
} lz_params;
/* clang-format on */

#endif
