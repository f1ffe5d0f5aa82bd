/* cpu.c: the CPU backend. The kernels of isa/ are compiled once for each instruction set; one of them is chosen at run
 * time. */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"

const lz_kernel *lz_cpu_kernel_baseline(lz_op op);
static bool always(void) { return true; }

#ifdef LZ_HAVE_X86_ISAS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

const lz_kernel *lz_cpu_kernel_avx2(lz_op op);
const lz_kernel *lz_cpu_kernel_avx512(lz_op op);
const lz_kernel *lz_cpu_kernel_avx512bf16(lz_op op);
const lz_kernel *lz_cpu_kernel_amx(lz_op op);

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd");
}
static bool has_avx512bf16(void) {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}
/* On the Xeons that were measured, the AVX512-BF16 instruction has half the rate of f32 (docs/performance.md). */
static bool is_amd(void) { return __builtin_cpu_is("amd"); }
/* Linux allows AMX tiles, which are large registers, only to processes that request them. */
static bool has_amx(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* of arch_prctl(2) */
    unsigned a, b, c, d;
    if (!has_avx512bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    bool bf16 = d >> 22 & 1, tiles = d >> 24 & 1;
    return bf16 && tiles && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

#ifdef LZ_HAVE_ARM_ISAS
#include <sys/auxv.h>

const lz_kernel *lz_cpu_kernel_armbf16(lz_op op);
/* Used on every processor that has it: by Arm's optimisation guides, a BFMMLA does four times as many multiplications
 * as an f32 multiply-add in the same time. We have not measured it. */
static bool has_armbf16(void) {
    enum { BF16 = 1 << 14 }; /* HWCAP2_BF16 of Linux */
    return getauxval(AT_HWCAP2) & BF16;
}
#endif

/* Fastest first. */
static const struct {
    const char *isa;
    bool (*runs_here)(void);
    bool (*is_fast)(void); /* false: used only if options name it */
    lz_backend backend;
} choices[] = {
#ifdef LZ_HAVE_X86_ISAS
    {"amx", has_amx, always, {.name = "cpu (amx)", .fuses = true, .half = true, .kernel = lz_cpu_kernel_amx}},
    {"avx512bf16",
     has_avx512bf16,
     is_amd,
     {.name = "cpu (avx512bf16)", .fuses = true, .half = true, .kernel = lz_cpu_kernel_avx512bf16}},
    {"avx512", has_avx512, always, {.name = "cpu (avx512)", .fuses = true, .kernel = lz_cpu_kernel_avx512}},
    {"avx2", has_avx2, always, {.name = "cpu (avx2)", .fuses = true, .kernel = lz_cpu_kernel_avx2}},
#endif
#ifdef LZ_HAVE_ARM_ISAS
    {"armbf16",
     has_armbf16,
     always,
     {.name = "cpu (armbf16)", .fuses = true, .half = true, .kernel = lz_cpu_kernel_armbf16}},
#endif
    {"baseline", always, always, {.name = "cpu (baseline)", .fuses = true, .kernel = lz_cpu_kernel_baseline}},
};

const lz_backend *lz_cpu_backend(const char *isa, lz_error *err) {
    bool known = false;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (isa && strcmp(isa, choices[i].isa)) continue;
        known = true;
        if (choices[i].runs_here() && (isa || choices[i].is_fast())) return &choices[i].backend;
    }
    if (known) {
        lz_fail(err, LZ_NOT_FOUND, "this machine cannot run the instruction set '%s'", isa);
        return NULL;
    }
    char names[200] = "";
    for (size_t i = 0, at = 0; i < sizeof choices / sizeof choices[0]; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s'%s'", i ? ", " : "", choices[i].isa);
    lz_fail(err, LZ_NOT_FOUND, "there is no instruction set '%s' in this build; use one of %s", isa, names);
    return NULL;
}
