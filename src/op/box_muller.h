/* box_muller.h: makes two normal numbers from two uniform ones, in f32, with torch's roundings (random.c says why). It
 * has no branches, so a loop over it becomes vector code, with the same bits for every vector width.
 *
 * log, sin and cos are Cephes' by S. Moshier, as in ATen's avx_mathfun.h. */
#ifndef LZ_BOX_MULLER_H
#define LZ_BOX_MULLER_H

#include <math.h>

#include "op/number.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

/* a b + c. Torch's compiler uses FMA instructions; in f64 the product is exact, so the result nearly always has the
 * same bits. */
static inline float lz_nearly_fma(float a, float b, float c) { return (float)((double)a * (double)b + (double)c); }

static inline float lz_torch_log(float x) { /* normal x > 0 */
    uint32_t bits = lz_float_to_bits(x);
    float e = (float)((int)(bits >> 23) - 126);
    x = lz_bits_to_float((bits & 0x7fffffu) | 0x3f000000u); /* [0.5, 1) */
    float less = x < 0.707106781f ? 1.0f : 0.0f;
    e -= less;
    x += x * less;
    x -= 1;
    float z = x * x, y = 7.0376836292E-2f;
    y = lz_nearly_fma(y, x, -1.1514610310E-1f);
    y = lz_nearly_fma(y, x, 1.1676998740E-1f);
    y = lz_nearly_fma(y, x, -1.2420140846E-1f);
    y = lz_nearly_fma(y, x, 1.4249322787E-1f);
    y = lz_nearly_fma(y, x, -1.6668057665E-1f);
    y = lz_nearly_fma(y, x, 2.0000714765E-1f);
    y = lz_nearly_fma(y, x, -2.4999993993E-1f);
    y = lz_nearly_fma(y, x, 3.3333331174E-1f);
    y = lz_nearly_fma(y * x, z, e * -2.12194440e-4f); /* log 2 as a sum of two numbers */
    y = y - z * 0.5f;
    return lz_nearly_fma(e, 0.693359375f, x + y);
}

static inline void lz_torch_sin_cos(float x, float *sine, float *cosine) { /* 0 <= x < 7 */
    int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
    float q = (float)octant; /* x - q pi/4, with pi/4 as a sum of three numbers */
    x = lz_nearly_fma(q, -0.78515625f, x);
    x = lz_nearly_fma(q, -2.4187564849853515625e-4f, x);
    x = lz_nearly_fma(q, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = lz_nearly_fma(2.443315711809948E-005f, z, -1.388731625493765E-003f);
    c = lz_nearly_fma(c, z, 4.166664568298827E-002f);
    c = lz_nearly_fma(c * z, z, -0.5f * z) + 1;
    float s = lz_nearly_fma(-1.9515295891E-4f, z, 8.3321608736E-3f);
    s = lz_nearly_fma(s, z, -1.6666654611E-1f);
    s = lz_nearly_fma(s * z, x, x);
    /* By octant 0, 2, 4, 6: (s, c), (c, -s), (-s, -c), (-c, s). */
    uint32_t o = (uint32_t)octant, sine_bits = lz_float_to_bits(s), cosine_bits = lz_float_to_bits(c);
    uint32_t swap = (sine_bits ^ cosine_bits) & -(o >> 1 & 1);
    *sine = lz_bits_to_float(sine_bits ^ swap ^ (o & 4) << 29);
    *cosine = lz_bits_to_float(cosine_bits ^ swap ^ ((o + 2) & 4) << 29);
}

/* u and v in [0, 1) */
static inline void lz_box_muller(float u, float v, float *a, float *b) {
    float radius = sqrtf(-2 * lz_torch_log(1 - u)), sine, cosine;
    lz_torch_sin_cos(6.2831855f * v, &sine, &cosine);
    *a = radius * cosine;
    *b = radius * sine;
}

#endif
