/* packed.h: a packed matrix: its codes, and what turns them into weights (op/packing.h). */
#ifndef LZ_PACKED_H
#define LZ_PACKED_H

#include "array/internal.h"
#include "op/packing.h"

enum { LZ_ROTATE_LIMIT = 4096 };

typedef struct lz_packed_layout {
    lz_packing packing;
    int64_t rows, columns;    /* size of the weight */
    int64_t group, row_group; /* columns and rows that share a scale; 0: all columns of a row, one row */
    float factor;             /* all scales are multiplied by it */
    int rotate;               /* ConvRot: 0, or columns of a group */
} lz_packed_layout;

typedef struct lz_packed {
    lz_packed_layout layout;
    lz_array *codes;            /* u8 [rows, bytes]. A row may have more bytes than its columns need: lz_packed_exact */
    lz_array *scales, *offsets; /* [rows / row_group or 1, columns / group]; or NULL */
    lz_array *gains;            /* f32 [columns]: the columns of the weight are multiplied by them; or NULL */
} lz_packed;

/* Whether two layouts differ in their number of rows at most. */
bool lz_packed_alike(const lz_packed_layout *a, const lz_packed_layout *b);

/* Whether the op unpack can read it; lz_packed_dense can in any case. */
bool lz_packed_exact(const lz_packed *p);

void lz_packed_retain(lz_packed *p); /* both: all arrays of the matrix */
void lz_packed_release(lz_packed *p);

/* Rows first .. first + n - 1 without the gains, in the type that models compute in, by the op unpack. */
lz_array *lz_packed_rows(const lz_packed *p, int64_t first, int64_t n);
/* The rows with the indices ids, with the gains: [ids, columns]. */
lz_array *lz_packed_take(const lz_packed *p, lz_array *ids);
/* x times the gains, which is what a product with the rows needs. */
lz_array *lz_packed_input(const lz_packed *p, lz_array *x);

/* The whole matrix with the gains, as an array of this shape and type (f32, f16 or bf16), whose bytes are made when
 * they are needed. */
lz_array *lz_packed_dense(lz_context *ctx, const lz_packed *p, lz_dims dims, lz_dtype dtype, lz_error *err);

#endif
