/* backend.c: the table of the CUDA backend. A call whose op is not in it, or that the kernel's can() refuses (f64, some
 * mixtures of types), runs on a kernel of the host: graph/remote.c copies its operands to the host and the result
 * back. */
#include "backend/cuda/cuda.h"

static const lz_kernel *find_kernel(lz_op op) {
    static const lz_kernel *const table[LZ_OP_COUNT] = {
        [LZ_OP_ARANGE] = &lz_cuda_arange,
        [LZ_OP_SOFTMAX] = &lz_cuda_softmax,
        [LZ_OP_RMS_NORM] = &lz_cuda_rms_norm,
        [LZ_OP_RMS_NORM_TWICE] = &lz_cuda_rms_norm_twice,
        [LZ_OP_LAYER_NORM] = &lz_cuda_layer_norm,
        [LZ_OP_GROUP_NORM] = &lz_cuda_group_norm,
        [LZ_OP_ROPE] = &lz_cuda_rope,
        [LZ_OP_MATMUL] = &lz_cuda_matmul,
        [LZ_OP_MATMUL_PAIR] = &lz_cuda_matmul,
        [LZ_OP_QUANTISE] = &lz_cuda_quantise,
        [LZ_OP_CODES_MATMUL] = &lz_cuda_codes_matmul,
        [LZ_OP_SDPA] = &lz_cuda_sdpa,
        [LZ_OP_CONV2D] = &lz_cuda_conv2d,
        [LZ_OP_PAD] = &lz_cuda_pad,
        [LZ_OP_TAKE] = &lz_cuda_take,
        [LZ_OP_GATHER] = &lz_cuda_gather,
        [LZ_OP_UNPACK] = &lz_cuda_unpack,
    };
    static const lz_kernel *const of_kind[] = {
        [LZ_KIND_ELEMENT] = &lz_cuda_element, [LZ_KIND_REDUCE] = &lz_cuda_reduce, [LZ_KIND_KERNEL] = NULL};
    return table[op] ? table[op] : of_kind[lz_op_table[op].kind];
}

const lz_backend *lz_cuda_backend(void) {
    static const lz_backend backend = {.name = "cuda",
                                       .fuses = true,
                                       .half = true,
                                       .groups = true,
                                       .kernel = find_kernel,
                                       .device = &lz_cuda_device_table};
    return &backend;
}
