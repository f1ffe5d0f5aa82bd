/* axes.h: the common axes of a call's operands, merged into as few as possible: most calls then have one or two. */
#ifndef LZ_AXES_H
#define LZ_AXES_H

#include "backend/backend.h"

/* Axes, with the strides of each operand along them. lz_axes_of fills in strides in elements; a caller may use another
 * unit. */
typedef struct lz_axes {
    int rank, n; /* n operands */
    int64_t dims[LZ_MAX_DIMS];
    int64_t strides[1 + LZ_MAX_OPERANDS][LZ_MAX_DIMS];
} lz_axes;

/* Axes first .. end-1 of n tensors. */
lz_axes lz_axes_of(const lz_tensor *tensors, int n, int first, int end);
/* Sorts the axes by the strides of an operand, the largest first. Allowed if the order of elements does not matter. */
void lz_axes_sort(lz_axes *axes, int operand);
/* Removes axes of size 1, and merges neighbours that are one evenly strided axis in every operand. At least one axis
 * remains. */
void lz_axes_merge(lz_axes *axes);
int64_t lz_axes_size(const lz_axes *axes);
/* Are all indices, and all offsets of all operands, below 2^31? */
bool lz_axes_narrow(const lz_axes *axes);

#endif
