/* cpu.c: the CPU backend: one table of kernels for each instruction set, and the choice among them at run time. An op without an
 * entry (integers, f64, gather, argmax, ...) runs on the reference kernel; the profiler shows it by name. */
#include <string.h>

#include "array/internal.h"

#define TABLE(isa)                                                                                                     \
    extern const lz_kernel lz_kernel_element_##isa, lz_kernel_reduce_##isa, lz_kernel_softmax_##isa,                   \
        lz_kernel_rms_norm_##isa, lz_kernel_layer_norm_##isa, lz_kernel_group_norm_##isa, lz_kernel_rope_##isa,        \
        lz_kernel_matmul_##isa, lz_kernel_sdpa_##isa, lz_kernel_conv2d_##isa, lz_kernel_copy_##isa,                    \
        lz_kernel_pad_##isa, lz_kernel_concat_##isa, lz_kernel_take_##isa;                                             \
    static const lz_kernel *const table_##isa[LZ_OP_COUNT] = {                                                         \
        [LZ_OP_FUSED] = &lz_kernel_element_##isa,                                                                      \
        [LZ_OP_SUM] = &lz_kernel_reduce_##isa,                                                                         \
        [LZ_OP_MEAN] = &lz_kernel_reduce_##isa,                                                                        \
        [LZ_OP_VAR] = &lz_kernel_reduce_##isa,                                                                         \
        [LZ_OP_MAX] = &lz_kernel_reduce_##isa,                                                                         \
        [LZ_OP_MIN] = &lz_kernel_reduce_##isa,                                                                         \
        [LZ_OP_LOGSUMEXP] = &lz_kernel_reduce_##isa,                                                                   \
        [LZ_OP_SOFTMAX] = &lz_kernel_softmax_##isa,                                                                    \
        [LZ_OP_RMS_NORM] = &lz_kernel_rms_norm_##isa,                                                                  \
        [LZ_OP_LAYER_NORM] = &lz_kernel_layer_norm_##isa,                                                              \
        [LZ_OP_GROUP_NORM] = &lz_kernel_group_norm_##isa,                                                              \
        [LZ_OP_ROPE] = &lz_kernel_rope_##isa,                                                                          \
        [LZ_OP_MATMUL] = &lz_kernel_matmul_##isa,                                                                      \
        [LZ_OP_SDPA] = &lz_kernel_sdpa_##isa,                                                                          \
        [LZ_OP_CONV2D] = &lz_kernel_conv2d_##isa,                                                                      \
        [LZ_OP_COPY] = &lz_kernel_copy_##isa,                                                                          \
        [LZ_OP_PAD] = &lz_kernel_pad_##isa,                                                                            \
        [LZ_OP_CONCAT] = &lz_kernel_concat_##isa,                                                                      \
        [LZ_OP_TAKE] = &lz_kernel_take_##isa,                                                                          \
    };                                                                                                                 \
    static const lz_kernel *kernel_##isa(lz_op op) { return table_##isa[op]; }

static bool always(void) { return true; }
TABLE(baseline)

#ifdef LZ_HAVE_X86_ISAS
TABLE(avx2)
TABLE(avx512)
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"); }
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd");
}
#endif

/* Best first. */
static const struct {
    const char *isa;
    bool (*runs_here)(void);
    lz_backend backend;
} choices[] = {
#ifdef LZ_HAVE_X86_ISAS
    {"avx512", has_avx512, {"cpu (avx512)", true, kernel_avx512}},
    {"avx2", has_avx2, {"cpu (avx2)", true, kernel_avx2}},
#endif
    {"baseline", always, {"cpu (baseline)", true, kernel_baseline}},
};

const lz_backend *lz_cpu_backend(const char *isa, lz_error *err) {
    bool known = false;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (isa && strcmp(isa, choices[i].isa)) continue;
        known = true;
        if (choices[i].runs_here()) return &choices[i].backend;
    }
    if (known)
        lz_fail(err, LZ_NOT_FOUND, "this machine cannot run the instruction set '%s'", isa);
    else
        lz_fail(err, LZ_NOT_FOUND, "there is no instruction set '%s' in this build: take 'baseline', 'avx2' or 'avx512'", isa);
    return NULL;
}
