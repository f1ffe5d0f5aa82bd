/* table.c: the kernel of each op, once for each instruction set. Ops without an entry, and calls that the kernel
 * refuses (f64, sums of integers, ...), run on the reference kernel; the profiler shows its name. */
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
    X(UNPACK, unpack)                                                                                                  \
    X(PACKED_MATMUL, packed_matmul)                                                                                    \
    X(INT8_MATMUL, int8_matmul)                                                                                        \
    X(RANDN, randn)

static const lz_kernel *const table[LZ_OP_COUNT] = {
#define X(op, kernel) [LZ_OP_##op] = &ISA(lz_kernel_##kernel),
    KERNEL_OF(X)
#undef X
};

/* Elementwise ops on floats arrive as FUSED; the others are for integers. */
const lz_kernel *cpu_kernel(lz_op op) {
    const lz_op_info *info = &lz_op_table[op];
    bool integer = info->kind == LZ_KIND_ELEMENT && info->whole;
    return table[op] || !integer ? table[op] : &ISA(lz_kernel_integer);
}
