/* dims.h: shapes, strides and types: arithmetic that cannot overflow. */
#ifndef LZ_DIMS_H
#define LZ_DIMS_H

#include "lazuli.h"

/* Number of elements; -1: a size is negative, or the bytes (of any type) would exceed INT64_MAX / 2. */
int64_t lz_dims_size(lz_dims dims);
bool lz_dims_equal(lz_dims a, lz_dims b);
void lz_dense_strides(lz_dims dims, int64_t strides[LZ_MAX_DIMS]);
/* Strides without gaps. The last axis is contiguous; the others are in the order of `like`, the smallest stride
 * innermost. */
void lz_ordered_strides(lz_dims dims, const int64_t *like, int64_t strides[LZ_MAX_DIMS]);
/* Elements from the first result of an op with two results of these dims to the second, which begins at a multiple of 256
 * bytes (lz_op_info.beside). */
int64_t lz_beside(lz_dims dims, lz_dtype dtype);
/* row-major without gaps; strides of axes of size 1 are ignored. */
bool lz_is_dense(lz_dims dims, const int64_t *strides);
/* Strides of the same elements with other dims; false: a copy is needed. */
bool lz_reshape_strides(lz_dims from, const int64_t *strides, lz_dims to, int64_t *out);
bool lz_is_float(lz_dtype dtype);

/* Writes "[2, 3]" to `to` and returns it. */
#define LZ_DIMS_TEXT 200
const char *lz_dims_text(lz_dims dims, char to[LZ_DIMS_TEXT]);
#define LZ_SHOW(dims) lz_dims_text(dims, (char[LZ_DIMS_TEXT]){0})

#endif
