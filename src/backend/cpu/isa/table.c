/* table.c: which kernel an op runs on, where that kernel can; once for each instruction set. What has no entry here,
 * or what the kernel refuses (f64, sums of integers, ...), runs on the reference kernel, and the profiler shows it
 * by name. */
#include "backend/cpu/isa/isa.h"

#define KERNEL_OF(X)                                                                                                   \
    X(FUSED, element)                                                                                                  \
    X(SUM, reduce)                                                                                                     \
    X(MEAN, reduce)                                                                                                    \
    X(VAR, reduce)                                                                                                     \
    X(MAX, reduce)                                                                                                     \
    X(MIN, reduce)                                                                                                     \
    X(LOGSUMEXP, reduce)                                                                                               \
    X(ARGMAX, argmax)                                                                                                  \
    X(SOFTMAX, softmax)                                                                                                \
    X(RMS_NORM, rms_norm)                                                                                              \
    X(LAYER_NORM, layer_norm)                                                                                          \
    X(GROUP_NORM, group_norm)                                                                                          \
    X(ROPE, rope)                                                                                                      \
    X(MATMUL, matmul)                                                                                                  \
    X(SDPA, sdpa)                                                                                                      \
    X(CONV2D, conv2d)                                                                                                  \
    X(COPY, copy)                                                                                                      \
    X(PAD, pad)                                                                                                        \
    X(TAKE, take)                                                                                                      \
    X(GATHER, gather)                                                                                                  \
    X(RANDN, randn)                                                                                                    \
    X(CAST, integer)                                                                                                   \
    X(NEG, integer)                                                                                                    \
    X(ABS, integer)                                                                                                    \
    X(NOT, integer)                                                                                                    \
    X(SQUARE, integer)                                                                                                 \
    X(CLIP, integer)                                                                                                   \
    X(ADD, integer)                                                                                                    \
    X(SUB, integer)                                                                                                    \
    X(MUL, integer)                                                                                                    \
    X(POW, integer)                                                                                                    \
    X(MAXIMUM, integer)                                                                                                \
    X(MINIMUM, integer)                                                                                                \
    X(EQUAL, integer)                                                                                                  \
    X(NOT_EQUAL, integer)                                                                                              \
    X(LESS, integer)                                                                                                   \
    X(LESS_EQUAL, integer)                                                                                             \
    X(GREATER, integer)                                                                                                \
    X(GREATER_EQUAL, integer)                                                                                          \
    X(AND, integer)                                                                                                    \
    X(OR, integer)                                                                                                     \
    X(WHERE, integer)

static const lz_kernel *const table[LZ_OP_COUNT] = {
#define X(op, kernel) [LZ_OP_##op] = &ISA(lz_kernel_##kernel),
    KERNEL_OF(X)
#undef X
};

const lz_kernel *cpu_kernel(lz_op op) { return table[op]; }
