/* axes.h: the axes that the operands of a call have in common, made as few as they can be: most kernels then see one or
 * two axes. */
#ifndef LZ_AXES_H
#define LZ_AXES_H

#include "backend/backend.h"

/* Some axes, with the strides of each operand along them: in elements as lz_axes_of fills them, or in any unit of the
 * caller's. */
typedef struct lz_axes {
    int rank, n; /* n operands */
    int64_t dims[LZ_MAX_DIMS];
    int64_t strides[1 + LZ_MAX_OPERANDS][LZ_MAX_DIMS];
} lz_axes;

/* Axes first .. end-1 of n tensors. */
lz_axes lz_axes_of(const lz_tensor *tensors, int n, int first, int end);
/* Puts the axes in the order of an operand's memory: allowed where the order of elements does not matter. */
void lz_axes_sort(lz_axes *axes, int operand);
/* Fewest axes: those of size 1 go, neighbours that are one axis in every operand are joined. At least one stays. */
void lz_axes_merge(lz_axes *axes);
int64_t lz_axes_size(const lz_axes *axes);
/* Do all indices and all offsets of all operands stay below 2^31? */
bool lz_axes_narrow(const lz_axes *axes);

#endif
