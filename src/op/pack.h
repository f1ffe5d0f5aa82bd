/* pack.h: packs weights from f32, the inverse of packing.h, for converting files. */
#ifndef LZ_PACK_H
#define LZ_PACK_H

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

#endif
