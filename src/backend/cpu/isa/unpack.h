/* unpack.h: rows of packed weights (op/packing.h) as numbers: for the op unpack, and for products that read packed
 * weights. */
#ifndef LZ_UNPACK_H
#define LZ_UNPACK_H

#include "backend/cpu/isa/isa.h"
#include "op/packing.h"

/* The inputs of an unpack: codes, and optional scales and offsets. backend.h describes them. */
typedef struct packed_rows {
    const lz_params *params;
    const lz_tensor *in;
    int n_in;
    int64_t columns;
} packed_rows;

/* Columns from .. from + n - 1 of a row (counting over all axes but the last), rounded to the type of the weights. */
#define unpack_floats ISA(lz_unpack_floats)
#define unpack_bf16 ISA(lz_unpack_bf16)
void unpack_floats(const packed_rows *p, int64_t row, int64_t from, int64_t n, float *to);
void unpack_bf16(const packed_rows *p, int64_t row, int64_t from, int64_t n, uint16_t *to); /* of weights in bf16 */

/* lz_rotate_group, in vectors: the same bits. */
#define rotate_group ISA(lz_rotate_vectors)
void rotate_group(float *x, int64_t g);

#endif
