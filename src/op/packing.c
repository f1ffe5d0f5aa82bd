/* packing.c: the table of packings, and rows of packed weights, one element at a time. */
#include "op/packing.h"

#include <string.h>

#include "op/number.h"

#include "op/packing_blocks.h"

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

static float power_of_two(uint8_t e) { /* E8M0; 2^-127 is subnormal */
    return e == 255 ? lz_bits_to_float(0x7fc00000u) : lz_bits_to_float(e ? (uint32_t)e << 23 : 0x00400000u);
}

static float (*const element_of_block[LZ_PACKING_COUNT])(const uint8_t *, int) = {
#define X(id, ...) [LZ_PACKING_##id] = element_##id,
    LZ_PACKINGS(X)
#undef X
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

/* One vector of four numbers at a time if the step allows it. */
void lz_rotate_group(float *x, int64_t g) {
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    float shrink = g > 1 ? 0.5f : 1.0f;
    for (float *a = x; g > 1 && a < x + g; a += 4) LZ_TURN(float, a[0], a[1], a[2], a[3])
    for (int64_t step = 4; step < g; step *= 4, shrink *= 0.5f)
        for (float *a = x; a < x + g; a += 4 * step)
            for (float *at = a; at < a + step; at += 4) {
                four *b = (four *)(at + step), *c = (four *)(at + 2 * step), *d = (four *)(at + 3 * step);
                LZ_TURN(four, *(four *)at, *b, *c, *d)
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
