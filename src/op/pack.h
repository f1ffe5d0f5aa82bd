/* pack.h: packs weights from f32, the inverse of packing.h, for converting files. */
#ifndef LZ_PACK_H
#define LZ_PACK_H

#include <math.h>

#include "op/packing.h"

/* Can lz_pack_row write this packing? */
bool lz_can_pack(lz_packing packing);

/* Packs a row of weights into blocks of GGUF. columns must be a multiple of the elements of a block. Q4_0 to Q8_0 give
 * the same bytes as ggml's reference; the K packings minimise the squared error of each run of 16 or 32 weights.
 * Weights that are not finite count as 0. */
void lz_pack_row(lz_packing packing, const float *x, int64_t columns, uint8_t *to);

/* The scale for which the largest magnitude becomes the largest code; 1 if largest is 0. */
float lz_pack_scale(lz_packing packing, float largest); /* E4M3 or I8 */
void lz_pack_codes(lz_packing packing, const float *x, int64_t n, float scale, uint8_t *to);

/* The scale of a row of weights for codes of f8 (e4m3): of 16 scales, from the smallest for which no code saturates to nearly twice
 * that, the one with the least squared error, which is 2 to 3 % below that of the smallest. */
float lz_fit_f8_scale(const float *x, int64_t n);

/* The scale of a row of activations whose largest magnitude is this, for codes of LZ_I8 or LZ_F8 (e4m3): its codes are the
 * numbers divided by the scale, rounded to even. NaN if a number is not finite, and 0 if all are nearly 0; then all codes
 * are 0. */
static inline float lz_code_scale(lz_dtype dtype, float largest) {
    if (!(largest < INFINITY)) return NAN;
    return largest < 0x1p-100f ? 0 : largest / (dtype == LZ_F8 ? 448.0f : 127.0f);
}

/* Rotates a row of n activations by lz_rotate_group (rotate 0: not), and rounds it to n codes of LZ_I8 or LZ_F8. Returns
 * the scale. x is overwritten. */
float lz_quantise_row(lz_dtype dtype, float *x, int64_t n, int64_t rotate, void *codes);

#endif
