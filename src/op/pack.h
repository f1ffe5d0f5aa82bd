/* pack.h: from weights in f32 to packings: the other direction of packing.h, for converting files. */
#ifndef LZ_PACK_H
#define LZ_PACK_H

#include "op/packing.h"

/* Can lz_pack_row write this packing? */
bool lz_can_pack(lz_packing packing);

/* A row of weights as blocks of GGUF. columns is a multiple of the elements of a block. Q4_0 to Q8_0 are the bytes that
 * ggml's reference writes; the K packings minimise the squared error of each run of 16 or 32 weights. Weights that are not
 * finite count as 0. */
void lz_pack_row(lz_packing packing, const float *x, int64_t columns, uint8_t *to);

/* Codes with one scale, chosen so that the largest magnitude is the largest code. Returns the scale; all zeros: 1. */
float lz_pack_scale(lz_packing packing, float largest); /* E4M3 or I8 */
void lz_pack_codes(lz_packing packing, const float *x, int64_t n, float scale, uint8_t *to);

#endif
