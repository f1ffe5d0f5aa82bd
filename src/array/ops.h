/* ops.h: what the files of ops share: checking inputs, once. */
#ifndef LZ_OPS_H
#define LZ_OPS_H

#include "array/internal.h"

/* The first of n arrays that cannot be used: NULL ones, poisoned ones, ones of another context. When all are fine,
 * *bad is false. Used as: `lz_array *bad = NULL; if (lz_unusable(op, arrays, n, &bad)) return bad;` */
bool lz_unusable(const char *op, lz_array *const *arrays, int n, lz_array **bad);

/* Axis in 0 .. n-1, or -1 when out of range. */
int lz_axis(int64_t axis, int n);

/* NumPy's rule; false when the shapes do not fit. */
bool lz_broadcast_dims(lz_dims a, lz_dims b, lz_dims *out);

/* Without places and macros: op nodes from checked inputs. */
lz_array *lz_as_type(lz_array *a, lz_dtype dtype);
lz_array *lz_as_dims(lz_array *a, lz_dims dims); /* broadcast; a itself when it has them */
lz_array *lz_as_permuted(lz_array *a, lz_dims axes);

#endif
