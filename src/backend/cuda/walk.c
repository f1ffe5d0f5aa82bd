/* walk.c: the axes of a call as parameters of kernels. */
#include <string.h>

#include "backend/cuda/own.h"

/* Division by multiplication (Granlund and Montgomery 1994), exact for n < 2^31. */
static lz_divisor divisor_of(int64_t of) {
    lz_divisor d = {.of = (unsigned)of};
    if (of < 1 || of > INT32_MAX) return d; /* not needed, or too large: kernels divide in 64 bits then */
    while ((UINT64_C(1) << d.shift) < (uint64_t)of) d.shift++;
    d.multiply = (unsigned)((UINT64_C(1) << 32) * ((UINT64_C(1) << d.shift) - (uint64_t)of) / (uint64_t)of + 1);
    return d;
}

lz_walk lz_walk_of(const lz_axes *s, const lz_tensor *tensors) {
    lz_walk w;
    memset(&w, 0, sizeof w);
    w.size = lz_axes_size(s);
    for (int i = 0; i < s->rank; i++) {
        w.dims[i] = s->dims[i];
        w.divisors[i] = divisor_of(s->dims[i]);
    }
    for (int k = 0; k < s->n; k++) {
        w.at[k].data = tensors[k].data;
        for (int i = 0; i < s->rank; i++) w.at[k].strides[i] = s->strides[k][i];
    }
    return w;
}

lz_access lz_cuda_access(const lz_tensor *t, int64_t step, const int64_t *outer, int n_outer, int width) {
    if (step == 0) return LZ_SAME;
    int64_t size = lz_dtype_size(t->dtype), align = size * width < 16 ? size * width : 16;
    bool aligned = step == 1 && (intptr_t)t->data % align == 0;
    for (int i = 0; i < n_outer; i++) aligned = aligned && outer[i] * size % align == 0;
    return aligned ? LZ_VECTOR : LZ_SCALAR;
}
