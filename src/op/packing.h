/* packing.h: the memory layout of quantised weights. A packed matrix [rows, columns] is an array of bytes, its codes:
 * each row is whole blocks, each block has `elements` numbers in `bytes` bytes. Blocks of GGUF contain their scales;
 * other codes become weights with separate scales and offsets:
 *
 *     W[o][i] = (factor * scale) * code + offset,    scale and offset at [o / row_group][i / group]
 *
 * All arithmetic is in f32 and each operation is rounded once, so every kernel gives the same bits. The formulas of
 * blocks have products that are exact in f32, and at most one sum. */
#ifndef LZ_PACKING_H
#define LZ_PACKING_H

#include "op/op.h"

/* clang-format off */
/* X(enum, name, elements of a block, bytes of a block, facts: see lz_packing_info) */
#define LZ_PACKINGS(X) \
    /* Blocks of GGUF. */ \
    X(Q4_0, "q4_0", 32, 18, .whole = true) \
    X(Q4_1, "q4_1", 32, 20, .whole = true) \
    X(Q5_0, "q5_0", 32, 22, .whole = true) \
    X(Q5_1, "q5_1", 32, 24, .whole = true) \
    X(Q8_0, "q8_0", 32, 34, .whole = true) \
    X(Q2_K, "q2_k", 256, 84, .whole = true) \
    X(Q3_K, "q3_k", 256, 110, .whole = true) \
    X(Q4_K, "q4_k", 256, 144, .whole = true) \
    X(Q5_K, "q5_k", 256, 176, .whole = true) \
    X(Q6_K, "q6_k", 256, 210, .whole = true) \
    X(IQ4_NL, "iq4_nl", 32, 18, .whole = true) \
    X(IQ4_XS, "iq4_xs", 256, 136, .whole = true) \
    X(MXFP4, "mxfp4", 32, 17, .whole = true) \
    X(NVFP4, "nvfp4", 64, 36, .whole = true) \
    /* Codes with separate scales. */ \
    X(E4M3, "e4m3", 1, 1) \
    X(E5M2, "e5m2", 1, 1) \
    X(I8, "i8", 1, 1) \
    X(E2M1, "e2m1", 2, 1) /* the high nibble is the even element */ \
    X(I4, "i4", 2, 1)     /* the low nibble is the even element; its value is q - 8 */ \
    X(S4, "s4", 2, 1)     /* the low nibble is the even element; two's complement */ \
    /* Unsigned numbers in a stream of bits, the lowest bit of the first byte first. */ \
    X(U2, "u2", 4, 1) \
    X(U3, "u3", 8, 3) \
    X(U4, "u4", 2, 1) \
    X(U5, "u5", 8, 5) \
    X(U6, "u6", 4, 3) \
    X(U8, "u8", 1, 1)
/* clang-format on */

typedef enum lz_packing {
#define X(id, name, elements, bytes, ...) LZ_PACKING_##id,
    LZ_PACKINGS(X)
#undef X
        LZ_PACKING_COUNT
} lz_packing;

typedef struct lz_packing_info {
    const char *name;
    int elements, bytes; /* of a block */
    bool whole;          /* blocks contain their scales: there are no separate ones, but there may be a factor */
} lz_packing_info;
extern const lz_packing_info lz_packing_table[LZ_PACKING_COUNT];

#define LZ_PACKING_MAX_ELEMENTS 256 /* of a block, which has fewer bytes */
#define LZ_PACKING_MAX_ROTATE 256   /* of the op unpack */

/* A row of scales or offsets: element i of a row of codes has number i / group of it. dtype: f32, f16, bf16 or f8; u8
 * is E8M0, a power of two, where 0 means 0.0 (it marks a block of zeros). data NULL: none. */
typedef struct lz_scale_row {
    const void *data;
    lz_dtype dtype;
    int64_t stride; /* in elements */
} lz_scale_row;

float lz_scale_at(const lz_scale_row *row, int64_t i);

/* The value of element i of a row of codes, without separate scales. */
float lz_unpack_element(lz_packing packing, const uint8_t *row, int64_t i);

/* A row of weights in f32. rotate: 0, or the power of four g of ConvRot; then each group of g columns is multiplied by
 * the symmetric matrix H = H4 x H4 x ... / sqrt(g), and columns is a multiple of g. group 0: one scale for the row. */
void lz_unpack_row(lz_packing packing, const uint8_t *row, int64_t columns, const lz_scale_row *scales,
                   const lz_scale_row *offsets, int64_t group, float factor, int64_t rotate, float *out);

/* x times H, in place; g numbers. */
void lz_rotate_group(float *x, int64_t g);
/* A step of it: turns four numbers, or vectors of them, by H4. */
#define LZ_TURN(type, a, b, c, d)                                                                                      \
    {                                                                                                                  \
        type ab = (a) + (b), a_b = (a) - (b), cd = (c) + (d), c_d = (c) - (d);                                         \
        (a) = ab + c_d, (b) = ab - c_d, (c) = cd + a_b, (d) = cd - a_b;                                                \
    }

/* -1: no packing has this name. */
int lz_packing_by_name(const char *name);

/* Bytes of a row of so many columns, with the last block padded; -1: more than int64_t can represent. */
int64_t lz_packing_row_bytes(lz_packing packing, int64_t columns);

#endif
