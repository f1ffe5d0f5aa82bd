/* number.h: conversions of types that C lacks: f16, bf16, fp8-e4m3fn; and saturating integers. Functions that are used
 * in loops have no branches, so that the loops become vector code. */
#ifndef LZ_NUMBER_H
#define LZ_NUMBER_H

#include <stdint.h>
#include <string.h>

static inline float lz_bits_to_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t lz_float_to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float lz_from_bf16(uint16_t h) { return lz_bits_to_float((uint32_t)h << 16); }

static inline uint16_t lz_to_bf16(float f) { /* nearest even; a NaN stays a quiet NaN */
    uint32_t u = lz_float_to_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float lz_from_f16(uint16_t h) {
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    /* Multiplying by 2^112 moves the exponent bias from 15 to 127, and is exact for subnormals too. */
    uint32_t bits = lz_float_to_bits(lz_bits_to_float(magnitude) * 0x1p112f);
    bits = magnitude >= 0x0f800000u ? (magnitude | 0x7f800000u) : bits; /* inf, NaN */
    return lz_bits_to_float(bits | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t lz_to_f16(float f) { /* nearest even, overflow to inf, subnormals kept */
    uint32_t u = lz_float_to_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    /* Normal: rebias, and round off the last 13 bits. Subnormal: adding 0.5 makes the FPU round at bit 2^-24. */
    uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    uint32_t small = lz_float_to_bits(lz_bits_to_float(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? small : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return (uint16_t)(r | sign);
}

static inline float lz_from_f8(uint8_t h) { /* 1-4-3, bias 7, no infinities, 0x7f is NaN */
    uint32_t magnitude = (uint32_t)(h & 0x7fu) << 20;
    uint32_t bits = lz_float_to_bits(lz_bits_to_float(magnitude) * 0x1p120f);
    bits = (h & 0x7fu) == 0x7fu ? 0x7fc00000u : bits;
    return lz_bits_to_float(bits | (uint32_t)(h & 0x80u) << 24);
}

/* Nearest even; above 448, and infinity, give 448, as in torch (since 2.15). */
static inline uint8_t lz_to_f8(float f) {
    uint32_t u = lz_float_to_bits(f), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
    uint32_t normal = (a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20;
    uint32_t small = lz_float_to_bits(lz_bits_to_float(a) + 0x1p14f) - lz_float_to_bits(0x1p14f);
    uint32_t r = a < 0x3c800000u ? small : normal;
    r = a > 0x43e00000u ? 0x7eu : r;
    r = a > 0x7f800000u ? 0x7fu : r;
    return (uint8_t)(r | sign);
}

static inline int64_t lz_saturate(double v, int64_t low, int64_t high) { /* toward zero; NaN gives 0 */
    if (v != v) return 0;
    if (v <= (double)low) return low;
    if (v >= (double)high) return high;
    return (int64_t)v;
}

#endif
