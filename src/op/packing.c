/* packing.c: the table of packings and their formulas, one element at a time. */
#include "op/packing.h"

#include <string.h>

#include "op/number.h"

const lz_packing_info lz_packing_table[LZ_PACKING_COUNT] = {
#define X(id, text, n, size, ...) [LZ_PACKING_##id] = {.name = text, .elements = n, .bytes = size, __VA_ARGS__},
    LZ_PACKINGS(X)
#undef X
};

int lz_packing_by_name(const char *name) {
    for (int p = 0; name && p < LZ_PACKING_COUNT; p++)
        if (!strcmp(lz_packing_table[p].name, name)) return p;
    return -1;
}

int64_t lz_packing_row_bytes(lz_packing packing, int64_t columns) {
    const lz_packing_info *info = &lz_packing_table[packing];
    int64_t blocks = columns / info->elements + (columns % info->elements != 0), bytes;
    return columns < 0 || __builtin_mul_overflow(blocks, info->bytes, &bytes) ? -1 : bytes;
}

static uint16_t word(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float half(const uint8_t *p) { return lz_from_f16(word(p)); }

static float power_of_two(uint8_t e) { /* E8M0; 2^-127 is subnormal */
    return e == 255 ? lz_bits_to_float(0x7fc00000u) : lz_bits_to_float(e ? (uint32_t)e << 23 : 0x00400000u);
}

/* ---- blocks: element i of one block ------------------------------------------------------------------------------ */

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Blocks of 32 in two halves: byte j has elements j (low nibble) and j + 16. */
static int nibble_of_halves(const uint8_t *q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

static float q4_0(const uint8_t *b, int i) { return half(b) * (float)(nibble_of_halves(b + 2, i) - 8); }
static float q4_1(const uint8_t *b, int i) { return half(b) * (float)nibble_of_halves(b + 4, i) + half(b + 2); }
static float q5_0(const uint8_t *b, int i) {
    int high = b[2 + i / 8] >> i % 8 & 1;
    return half(b) * (float)(nibble_of_halves(b + 6, i) + 16 * high - 16);
}
static float q5_1(const uint8_t *b, int i) {
    int high = b[4 + i / 8] >> i % 8 & 1;
    return half(b) * (float)(nibble_of_halves(b + 8, i) + 16 * high) + half(b + 2);
}
static float q8_0(const uint8_t *b, int i) { return half(b) * (float)(int8_t)b[2 + i]; }
static float iq4_nl(const uint8_t *b, int i) { return half(b) * (float)iq4_values[nibble_of_halves(b + 2, i)]; }
static float mxfp4(const uint8_t *b, int i) { /* 2^(e - 128), of which half a step is in the table */
    float scale = b[0] < 2 ? lz_bits_to_float(0x00200000u << b[0]) : lz_bits_to_float((uint32_t)(b[0] - 1) << 23);
    return scale * (float)e2m1_twice[nibble_of_halves(b + 1, i)];
}
static float nvfp4(const uint8_t *b, int i) {
    int k = i / 16;
    uint8_t e = b[k] & 0x7f, q = b[4 + 8 * k + i % 8];
    float scale = e == 0x7f ? 0.0f : lz_from_f8(e) * 0.5f;
    return scale * (float)e2m1_twice[i % 16 >= 8 ? q >> 4 : q & 15];
}

/* Q2_K and Q3_K: two bits of four runs of 32 in each half of the block. */
static int crumb(const uint8_t *q, int i) { return q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3; }

static float q2_k(const uint8_t *b, int i) {
    int s = b[i / 16];
    return half(b + 80) * (float)(s & 15) * (float)crumb(b + 16, i) - half(b + 82) * (float)(s >> 4);
}
static float q3_k(const uint8_t *b, int i) {
    const uint8_t *s = b + 96;
    int j = i / 16, scale = (s[j % 8] >> 4 * (j / 8) & 15) + 16 * (s[8 + j % 4] >> 2 * (j / 4) & 3) - 32;
    int high = b[i % 32] >> i / 32 & 1;
    return half(b + 108) * (float)scale * (float)(crumb(b + 32, i) - 4 * (1 - high));
}

/* Q4_K and Q5_K: the scale and the minimum of run j, of six bits each. */
static void scale_and_minimum(const uint8_t *s, int j, float *scale, float *minimum) {
    int a = j < 4 ? s[j] & 63 : (s[j + 4] & 15) + 16 * (s[j - 4] >> 6);
    int m = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) + 16 * (s[j] >> 6);
    *scale = (float)a, *minimum = (float)m;
}
static int nibble_of_pairs(const uint8_t *q, int i) { /* runs of 32, two of them in the same bytes */
    int j = i / 32, byte = q[32 * (j / 2) + i % 32];
    return j % 2 ? byte >> 4 : byte & 15;
}
static float q4_k(const uint8_t *b, int i) {
    float scale, minimum;
    scale_and_minimum(b + 4, i / 32, &scale, &minimum);
    return half(b) * scale * (float)nibble_of_pairs(b + 16, i) - half(b + 2) * minimum;
}
static float q5_k(const uint8_t *b, int i) {
    float scale, minimum;
    scale_and_minimum(b + 4, i / 32, &scale, &minimum);
    int high = b[16 + i % 32] >> i / 32 & 1;
    return half(b) * scale * (float)(nibble_of_pairs(b + 48, i) + 16 * high) - half(b + 2) * minimum;
}
static float q6_k(const uint8_t *b, int i) {
    int g = i / 128, t = i % 128 / 32, r = i % 32;
    int low = b[64 * g + 32 * (t % 2) + r] >> 4 * (t / 2) & 15, high = b[128 + 32 * g + r] >> 2 * t & 3;
    return half(b + 208) * (float)(int8_t)b[192 + i / 16] * (float)(low + 16 * high - 32);
}
static float iq4_xs(const uint8_t *b, int i) {
    int j = i / 32, byte = b[8 + 16 * j + i % 16];
    int scale = (b[4 + j / 2] >> 4 * (j % 2) & 15) + 16 * (word(b + 2) >> 2 * j & 3) - 32;
    return half(b) * (float)scale * (float)iq4_values[i % 32 >= 16 ? byte >> 4 : byte & 15];
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

static float e4m3(const uint8_t *b, int i) { return lz_from_f8(b[i]); }
static float e5m2(const uint8_t *b, int i) { return lz_from_f16((uint16_t)(b[i] << 8)); }
static float i8(const uint8_t *b, int i) { return (float)(int8_t)b[i]; }
static float e2m1(const uint8_t *b, int i) {
    int code = i ? *b & 15 : *b >> 4;
    float magnitude = 0.5f * (float)e2m1_twice[code & 7];
    return code & 8 ? -magnitude : magnitude;
}
static float i4(const uint8_t *b, int i) { return (float)((i ? *b >> 4 : *b & 15) - 8); }
static float s4(const uint8_t *b, int i) { return (float)(((i ? *b >> 4 : *b & 15) ^ 8) - 8); }

static float bits(const uint8_t *b, int i, int width) {
    int at = i * width, byte = at / 8, shift = at % 8;
    unsigned two = b[byte] | (shift + width > 8 ? (unsigned)b[byte + 1] << 8 : 0);
    return (float)(two >> shift & ((1u << width) - 1));
}
static float u2(const uint8_t *b, int i) { return bits(b, i, 2); }
static float u3(const uint8_t *b, int i) { return bits(b, i, 3); }
static float u4(const uint8_t *b, int i) { return bits(b, i, 4); }
static float u5(const uint8_t *b, int i) { return bits(b, i, 5); }
static float u6(const uint8_t *b, int i) { return bits(b, i, 6); }
static float u8(const uint8_t *b, int i) { return (float)b[i]; }

static float (*const element_of_block[LZ_PACKING_COUNT])(const uint8_t *, int) = {
    [LZ_PACKING_Q4_0] = q4_0,   [LZ_PACKING_Q4_1] = q4_1,   [LZ_PACKING_Q5_0] = q5_0,     [LZ_PACKING_Q5_1] = q5_1,
    [LZ_PACKING_Q8_0] = q8_0,   [LZ_PACKING_Q2_K] = q2_k,   [LZ_PACKING_Q3_K] = q3_k,     [LZ_PACKING_Q4_K] = q4_k,
    [LZ_PACKING_Q5_K] = q5_k,   [LZ_PACKING_Q6_K] = q6_k,   [LZ_PACKING_IQ4_NL] = iq4_nl, [LZ_PACKING_IQ4_XS] = iq4_xs,
    [LZ_PACKING_MXFP4] = mxfp4, [LZ_PACKING_NVFP4] = nvfp4, [LZ_PACKING_E4M3] = e4m3,     [LZ_PACKING_E5M2] = e5m2,
    [LZ_PACKING_I8] = i8,       [LZ_PACKING_E2M1] = e2m1,   [LZ_PACKING_I4] = i4,         [LZ_PACKING_S4] = s4,
    [LZ_PACKING_U2] = u2,       [LZ_PACKING_U3] = u3,       [LZ_PACKING_U4] = u4,         [LZ_PACKING_U5] = u5,
    [LZ_PACKING_U6] = u6,       [LZ_PACKING_U8] = u8,
};

float lz_unpack_element(lz_packing packing, const uint8_t *row, int64_t i) {
    const lz_packing_info *info = &lz_packing_table[packing];
    return element_of_block[packing](row + i / info->elements * info->bytes, (int)(i % info->elements));
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

float lz_scale_at(const lz_scale_row *row, int64_t i) {
    const char *at = (const char *)row->data + i * row->stride * lz_dtype_size(row->dtype);
    uint16_t h;
    float f;
    switch (row->dtype) {
    case LZ_U8: return *(const uint8_t *)at ? power_of_two(*(const uint8_t *)at) : 0.0f;
    case LZ_F8: return lz_from_f8(*(const uint8_t *)at);
    case LZ_F16: memcpy(&h, at, 2); return lz_from_f16(h);
    case LZ_BF16: memcpy(&h, at, 2); return lz_from_bf16(h);
    default: memcpy(&f, at, 4); return f;
    }
}

void lz_rotate_group(float *x, int64_t g) {
    float shrink = 1.0f;
    for (int64_t step = 1; step < g; step *= 4, shrink *= 0.5f)
        for (int64_t i = 0; i < g; i++) {
            if (i / step % 4) continue;
            float *a = x + i, *b = a + step, *c = b + step, *d = c + step;
            float ab = *a + *b, a_b = *a - *b, cd = *c + *d, c_d = *c - *d;
            *a = ab + c_d, *b = ab - c_d, *c = cd + a_b, *d = cd - a_b;
        }
    for (int64_t i = 0; i < g; i++) x[i] *= shrink;
}

void lz_unpack_row(lz_packing packing, const uint8_t *row, int64_t columns, const lz_scale_row *scales,
                   const lz_scale_row *offsets, int64_t group, float factor, int64_t rotate, float *out) {
    bool scaled = scales && scales->data, shifted = offsets && offsets->data;
    for (int64_t i = 0; i < columns; i++) {
        int64_t j = group ? i / group : 0;
        float scale = scaled ? factor * lz_scale_at(scales, j) : factor;
        out[i] = scale * lz_unpack_element(packing, row, i);
        if (shifted) out[i] += lz_scale_at(offsets, j);
    }
    if (rotate)
        for (int64_t i = 0; i + rotate <= columns; i += rotate) lz_rotate_group(out + i, rotate);
}
