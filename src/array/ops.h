/* ops.h: shared by ops_*.c: checks of inputs, and ops on checked inputs. */
#ifndef LZ_OPS_H
#define LZ_OPS_H

#include "array/internal.h"

/* Is one of n arrays NULL, poisoned, or of another context? Then *bad is the poisoned array to return. Used as:
 * `lz_array *bad = NULL; if (lz_unusable(op, arrays, n, &bad)) return bad;` */
bool lz_unusable(const char *op, lz_array *const *arrays, int n, lz_array **bad);

/* The axis in 0 .. n-1 (negative ones count from the end); -1: out of range. */
int lz_axis(int64_t axis, int n);

/* NumPy's rule; false: the shapes do not broadcast. */
bool lz_broadcast_dims(lz_dims a, lz_dims b, lz_dims *out);

/* Nodes from checked inputs, without file and line. */
lz_array *lz_as_type(lz_array *a, lz_dtype dtype);
lz_array *lz_as_dims(lz_array *a, lz_dims dims); /* broadcast; a itself if it has these dims */
lz_array *lz_as_permuted(lz_array *a, lz_dims axes);

#endif
