/* packing_blocks.h: the formulas of packings: element_NAME is element i of a block at b. packing.c has them for the CPU,
 * and kernels/unpack.cu for GPUs. The text of kernels is C++ and is compiled where it runs, so this file includes nothing.
 * In C, op/number.h comes before it. In C++, kernels/prelude.cu defines FN and the types, and kernels/unpack.cu the first
 * four functions. */
#ifndef LZ_PACKING_BLOCKS_H
#define LZ_PACKING_BLOCKS_H

#ifdef __cplusplus
#define LZ_FN FN
#else
#define LZ_FN static inline
typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
LZ_FN u32 word(const u8 *p) { return p[0] | (u32)p[1] << 8; } /* two bytes at an even offset of a block */
LZ_FN float from_half(u16 bits) { return lz_from_f16(bits); }
LZ_FN float from_e4m3(u8 bits) { return lz_from_f8(bits); }
LZ_FN float from_bits(u32 bits) { return lz_bits_to_float(bits); }
#endif

LZ_FN float half(const u8 *p) { return from_half((u16)word(p)); }

LZ_FN float iq4_value(int n) { /* -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113 */
    u64 values = n < 8 ? 0xf6eaddcfbfad9881ull : 0x7159453526190d01ull;
    return (float)(i8)(u8)(values >> 8 * (n & 7));
}
LZ_FN float e2m1_value(int n) { /* 0 .5 1 1.5 2 3 4 6, bit 3 is the sign */
    float v = (n & 7) < 2 ? 0.5f * (float)(n & 1) : from_bits((u32)((n & 7) + 252) << 22);
    return n & 8 ? -v : v;
}
LZ_FN float e2m1_twice(int n) { return n & 7 ? 2.0f * e2m1_value(n) : 0.0f; } /* without a negative zero */

/* ---- blocks of 32 in two halves: byte j has elements j (low nibble) and j + 16 ------------------------------------- */

LZ_FN int nibble_of_halves(const u8 *q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

LZ_FN float element_Q4_0(const u8 *b, int i) { return half(b) * (float)(nibble_of_halves(b + 2, i) - 8); }
LZ_FN float element_Q4_1(const u8 *b, int i) { return half(b) * (float)nibble_of_halves(b + 4, i) + half(b + 2); }
LZ_FN float element_Q5_0(const u8 *b, int i) {
    return half(b) * (float)(nibble_of_halves(b + 6, i) + 16 * (b[2 + i / 8] >> i % 8 & 1) - 16);
}
LZ_FN float element_Q5_1(const u8 *b, int i) {
    return half(b) * (float)(nibble_of_halves(b + 8, i) + 16 * (b[4 + i / 8] >> i % 8 & 1)) + half(b + 2);
}
LZ_FN float element_Q8_0(const u8 *b, int i) { return half(b) * (float)(i8)b[2 + i]; }
LZ_FN float element_IQ4_NL(const u8 *b, int i) { return half(b) * iq4_value(nibble_of_halves(b + 2, i)); }
LZ_FN float element_MXFP4(const u8 *b, int i) { /* 2^(e - 128); the other factor of two is in e2m1_twice */
    float scale = from_bits(b[0] < 2 ? 0x00200000u << b[0] : (u32)(b[0] - 1) << 23);
    return scale * e2m1_twice(nibble_of_halves(b + 1, i));
}
LZ_FN float element_NVFP4(const u8 *b, int i) {
    u8 e = b[i / 16] & 0x7f, q = b[4 + 8 * (i / 16) + i % 8];
    float scale = e == 0x7f ? 0.0f : from_e4m3(e) * 0.5f;
    return scale * e2m1_twice(i % 16 >= 8 ? q >> 4 : q & 15);
}

/* ---- blocks of 256 ------------------------------------------------------------------------------------------------- */

/* Q2_K and Q3_K: two bits of four runs of 32 in each half of the block. */
LZ_FN int crumb(const u8 *q, int i) { return q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3; }

LZ_FN float element_Q2_K(const u8 *b, int i) {
    int s = b[i / 16];
    return half(b + 80) * (float)(s & 15) * (float)crumb(b + 16, i) - half(b + 82) * (float)(s >> 4);
}
LZ_FN float element_Q3_K(const u8 *b, int i) {
    const u8 *s = b + 96;
    int j = i / 16, scale = (s[j % 8] >> 4 * (j / 8) & 15) + 16 * (s[8 + j % 4] >> 2 * (j / 4) & 3) - 32;
    return half(b + 108) * (float)scale * (float)(crumb(b + 32, i) + 4 * (b[i % 32] >> i / 32 & 1) - 4);
}

/* Q4_K and Q5_K: the scale and the minimum of run j of 32, of six bits each; s: the bytes of all runs. */
LZ_FN void scale_and_minimum(const u8 *s, int j, int *scale, int *minimum) {
    /* Loaded without a condition, so that a compiler loads them once for all elements of a run. */
    int a = s[j % 4], b = s[4 + j % 4], c = s[8 + j % 4];
    *scale = j < 4 ? a & 63 : (c & 15) + 16 * (a >> 6);
    *minimum = j < 4 ? b & 63 : (c >> 4) + 16 * (b >> 6);
}
/* Runs of 32, two of them in the same bytes. */
LZ_FN int nibble_of_pairs(const u8 *q, int i) { return q[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15; }

LZ_FN float q4_or_5_k(const u8 *b, int j, int code) {
    int scale, minimum;
    scale_and_minimum(b + 4, j, &scale, &minimum);
    return half(b) * (float)scale * (float)code - half(b + 2) * (float)minimum;
}
LZ_FN float element_Q4_K(const u8 *b, int i) { return q4_or_5_k(b, i / 32, nibble_of_pairs(b + 16, i)); }
LZ_FN float element_Q5_K(const u8 *b, int i) {
    return q4_or_5_k(b, i / 32, nibble_of_pairs(b + 48, i) + 16 * (b[16 + i % 32] >> i / 32 & 1));
}
LZ_FN float element_Q6_K(const u8 *b, int i) {
    int g = i / 128, t = i % 128 / 32, r = i % 32;
    int low = b[64 * g + 32 * (t % 2) + r] >> 4 * (t / 2) & 15, high = b[128 + 32 * g + r] >> 2 * t & 3;
    return half(b + 208) * (float)(i8)b[192 + i / 16] * (float)(low + 16 * high - 32);
}
LZ_FN float element_IQ4_XS(const u8 *b, int i) {
    int j = i / 32, byte = b[8 + 16 * j + i % 16];
    int scale = (b[4 + j / 2] >> 4 * (j % 2) & 15) + 16 * (int)(word(b + 2) >> 2 * j & 3) - 32;
    return half(b) * (float)scale * iq4_value(i % 32 >= 16 ? byte >> 4 : byte & 15);
}

/* ---- codes --------------------------------------------------------------------------------------------------------- */

LZ_FN float element_E4M3(const u8 *b, int i) { return from_e4m3(b[i]); }
LZ_FN float element_E5M2(const u8 *b, int i) { return from_half((u16)(b[i] << 8)); }
LZ_FN float element_I8(const u8 *b, int i) { return (float)(i8)b[i]; }
LZ_FN float element_U8(const u8 *b, int i) { return (float)b[i]; }
LZ_FN float element_E2M1(const u8 *b, int i) { return e2m1_value(i ? *b & 15 : *b >> 4); }
LZ_FN float element_I4(const u8 *b, int i) { return (float)((i ? *b >> 4 : *b & 15) - 8); }
LZ_FN float element_S4(const u8 *b, int i) { return (float)(((i ? *b >> 4 : *b & 15) ^ 8) - 8); }

LZ_FN float number_of_bits(const u8 *b, int i, int width) { /* in a stream of bits */
    int at = i * width, shift = at % 8;
    u32 two = b[at / 8] | (shift + width > 8 ? (u32)b[at / 8 + 1] << 8 : 0u);
    return (float)(two >> shift & ((1u << width) - 1u));
}
LZ_FN float element_U2(const u8 *b, int i) { return number_of_bits(b, i, 2); }
LZ_FN float element_U3(const u8 *b, int i) { return number_of_bits(b, i, 3); }
LZ_FN float element_U4(const u8 *b, int i) { return number_of_bits(b, i, 4); }
LZ_FN float element_U5(const u8 *b, int i) { return number_of_bits(b, i, 5); }
LZ_FN float element_U6(const u8 *b, int i) { return number_of_bits(b, i, 6); }

#endif
