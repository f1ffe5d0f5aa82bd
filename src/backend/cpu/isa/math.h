/* math.h: f32 functions without branches or calls, so that a loop over them becomes vector code on every instruction
 * set. Each is within a few units in the last place of the true value; NaN and infinities give the same results as C's
 * functions. */
#ifndef LZ_MATH_H
#define LZ_MATH_H

#include <math.h>

#include "op/number.h"

#define FN static inline __attribute__((always_inline)) float

/* Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum. */
#define ROUND_MAGIC 12582912.0f

/* e^x = 2^n e^r, |r| <= ln(2)/2; 2^n is two factors, so that results below 2^-126 are right too. */
FN exp_f32(float x) {
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504f + ROUND_MAGIC, n = t - ROUND_MAGIC;
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts; the first is exact in the product */
    float p = 1.98756912e-4f;                              /* Cephes expf */
    p = p * r + 1.39819994e-3f;
    p = p * r + 8.33345158e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 5.00000012e-1f;
    p = p * (r * r) + r + 1.0f;
    int32_t k = (int32_t)(lz_float_to_bits(t) - lz_float_to_bits(ROUND_MAGIC)), half = k >> 1;
    return p * lz_bits_to_float((uint32_t)(half + 127) << 23) * lz_bits_to_float((uint32_t)(k - half + 127) << 23);
}

/* x = 2^e m with m in [sqrt(1/2), sqrt(2)). */
FN log_f32(float x) {
    float tiny = x < 0x1p-126f ? 0x1p25f : 1.0f; /* subnormals are scaled up first */
    uint32_t u = lz_float_to_bits(x * tiny);
    uint32_t shifted = u - 0x3f3504f3u; /* bits of sqrt(1/2) */
    float e = (float)((int32_t)shifted >> 23) - (x < 0x1p-126f ? 25.0f : 0.0f);
    float m = lz_bits_to_float(u - (shifted & 0xff800000u)) - 1.0f, z = m * m;
    float p = 7.0376836292e-2f; /* Cephes logf */
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = p * m * z + e * -2.12194440e-4f - 0.5f * z;
    y = m + y + e * 0.693359375f;
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x < 0.0f || x != x ? NAN : y;
}

/* x minus the nearest multiple of pi/2, in f64: exact enough up to TRIG_LIMIT. quadrant gets the multiple. */
#define TRIG_LIMIT 1e8f
FN trig_reduce(float x, int32_t *quadrant) {
    double t = (double)x * 0.63661977236758134 + 6755399441055744.0; /* 1.5 * 2^52 */
    double n = t - 6755399441055744.0;
    uint64_t bits;
    memcpy(&bits, &t, 8);
    *quadrant = (int32_t)(uint32_t)bits;
    return (float)(((double)x - n * 1.5707963267341256) - n * 6.077100506506192e-11);
}
FN trig_value(float r, int32_t quadrant) { /* sin of r + quadrant * pi/2, |r| <= pi/4 */
    float z = r * r;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r; /* Cephes sinf, cosf */
    float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z +
              1.0f;
    float v = quadrant & 1 ? c : s;
    return quadrant & 2 ? -v : v;
}
FN sin_f32(float x) {
    int32_t q;
    float r = trig_reduce(x, &q);
    return trig_value(r, q);
}
FN cos_f32(float x) {
    int32_t q;
    float r = trig_reduce(x, &q);
    return trig_value(r, q + 1);
}

FN tanh_f32(float x) {
    float a = fabsf(x), z = x * x;
    float small = ((((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z + 1.33314422036e-1f) *
                       z -
                   3.33332819422e-1f) *
                      z * x +
                  x;
    float large = 1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f);
    large = x < 0.0f ? -large : large;
    return a < 0.625f ? small : x != x ? x : large;
}

/* Below 1 a polynomial; above, 1 - e^(p(x) - x^2), with p fitted to log(erfc x) + x^2 (largest error 1.3e-9). */
FN erf_f32(float x) {
    float a = fabsf(x), z = x * x, b = a > 4.0f ? 4.0f : a;
    float small = 1.12635156e-4f + -9.67012966e-6f * z;
    small = small * z - 8.48316995e-4f;
    small = small * z + 5.22092078e-3f;
    small = small * z - 2.68653687e-2f;
    small = small * z + 1.12837806e-1f;
    small = small * z - 3.76126379e-1f;
    small = (small * z + 1.12837923f) * x;
    float p = 1.62836977e-6f;
    p = p * b - 4.58593131e-5f;
    p = p * b + 5.94910292e-4f;
    p = p * b - 4.7496492e-3f;
    p = p * b + 2.63897441e-2f;
    p = p * b - 1.10019155e-1f;
    p = p * b + 3.68103027e-1f;
    p = p * b - 1.13018823f;
    p = p * b + 3.08056187e-4f;
    float large = 1.0f - exp_f32(p - b * b);
    large = x < 0.0f ? -large : large;
    return a < 1.0f ? small : x != x ? x : large;
}

FN sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }
FN silu_f32(float x) { return x / (1.0f + exp_f32(-x)); }
FN gelu_f32(float x) { return 0.5f * x * (1.0f + erf_f32(x * 0.707106781f)); }
FN gelu_tanh_f32(float x) { return 0.5f * x * (1.0f + tanh_f32(0.797884561f * (x + 0.044715f * x * x * x))); }

#undef FN
#endif
