/* isa.h: the files of this folder are compiled once for each instruction set, with LZ_ISA set to its name
 * (CMakeLists.txt lists them). They are plain C that the compiler vectorises; only the vector width and the instruction
 * that multiplies bf16 (gemm.h, tiles.h) differ. Every exported name is made with ISA(), and shared functions are
 * declared here. */
#ifndef LZ_ISA_H
#define LZ_ISA_H

#include "backend/backend.h"
#include "op/number.h"

#ifndef LZ_ISA
#define LZ_ISA baseline
#endif
#define ISA_JOIN2(a, b) a##_##b
#define ISA_JOIN(a, b) ISA_JOIN2(a, b)
#define ISA(name) ISA_JOIN(name, LZ_ISA)

/* Vector width in floats. */
#if defined(__AVX512F__) || defined(LZ_TILES_IN_C) /* the test of AMX in C uses the width of AVX-512 */
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define cpu_kernel ISA(lz_cpu_kernel)
#define read_floats ISA(lz_read_floats)
#define write_floats ISA(lz_write_floats)
#define finish_row ISA(lz_finish_row)
#define begin_row ISA(lz_begin_row)
#define finish_piece ISA(lz_finish_piece)

/* Convert n elements, stride apart, of any type except f64, to f32 and back. Large integers are rounded. */
void read_floats(float *to, const void *from, lz_dtype dtype, int64_t stride, int64_t n);
void write_floats(void *to, const float *from, lz_dtype dtype, int64_t stride, int64_t n);

/* Every kernel that makes rows ends with this: runs the epilogue, if there is one, on values[0 .. n-1] and stores them
 * to out[row, col .. col+n-1], where row counts over all axes except the last. values is overwritten. */
void finish_row(const lz_call *call, int64_t row, int64_t col, float *values, int64_t n);

/* The same in pieces, for kernels that make a row piece by piece: the addresses of the row's operands are computed
 * once. */
typedef struct row_end {
    const lz_call *call;
    char *to;
    const char *from[LZ_EXPR_ARGS]; /* addresses of the epilogue's arguments 1 .. */
    bool direct, stream;            /* the output is contiguous f32; it is written with non-temporal stores */
} row_end;
void begin_row(row_end *e, const lz_call *call, int64_t row); /* not returned by value: the copy was slow */
void finish_piece(const row_end *e, int64_t col, float *values, int64_t n);

/* The offset of a row in elements; rows are counted over all axes except the last. */
static inline int64_t row_offset(const lz_tensor *t, int64_t row) {
    int64_t offset = 0;
    for (int i = t->dims.n - 2; i > 0; i--) { /* no axis has size 0: such tensors have no rows */
        offset += row % t->dims.at[i] * t->strides[i];
        row /= t->dims.at[i];
    }
    return t->dims.n > 1 ? offset + row * t->strides[0] : offset;
}
static inline int64_t row_count(const lz_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->dims.n - 1; i++) n *= t->dims.at[i];
    return n;
}

/* The kernels of this instruction set, and the table of them. */
const lz_kernel *cpu_kernel(lz_op op);
#define LZ_CPU_KERNELS(X)                                                                                              \
    X(element)                                                                                                         \
    X(integer)                                                                                                         \
    X(reduce)                                                                                                          \
    X(argmax)                                                                                                          \
    X(softmax)                                                                                                         \
    X(rms_norm)                                                                                                        \
    X(layer_norm)                                                                                                      \
    X(group_norm)                                                                                                      \
    X(rope)                                                                                                            \
    X(matmul)                                                                                                          \
    X(sdpa)                                                                                                            \
    X(conv2d)                                                                                                          \
    X(copy)                                                                                                            \
    X(pad)                                                                                                             \
    X(take)                                                                                                            \
    X(gather)                                                                                                          \
    X(unpack)                                                                                                          \
    X(packed_matmul)                                                                                                   \
    X(int8_matmul)                                                                                                     \
    X(randn)
#define X(name) extern const lz_kernel ISA(lz_kernel_##name);
LZ_CPU_KERNELS(X)
#undef X

#endif
