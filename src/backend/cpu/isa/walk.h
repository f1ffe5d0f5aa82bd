/* walk.h: iterates over several strided tensors of one shape, along as few axes as possible (backend/common/axes.h). */
#ifndef LZ_WALK_H
#define LZ_WALK_H

#include "backend/common/axes.h"

#define WALK_MAX (LZ_EXPR_ARGS + 1)

typedef struct walk {
    lz_axes axes; /* strides in bytes */
    int64_t size;
} walk;

static inline void walk_make(walk *w, const lz_tensor *const *tensors, int n) {
    const lz_dims dims = tensors[0]->dims;
    w->axes = (lz_axes){.rank = dims.n, .n = n};
    for (int i = 0; i < dims.n; i++) w->axes.dims[i] = dims.at[i];
    for (int t = 0; t < n; t++)
        for (int i = 0; i < dims.n; i++)
            w->axes.strides[t][i] = tensors[t]->strides[i] * lz_dtype_size(tensors[t]->dtype);
    lz_axes_merge(&w->axes);
    w->size = lz_axes_size(&w->axes);
    for (int t = 0; t < n && w->size == 1; t++) w->axes.strides[t][0] = lz_dtype_size(tensors[t]->dtype); /* dense */
}

/* A position of the walk: the index along each axis, and the byte offset in each tensor. */
typedef struct walk_position {
    int64_t index[LZ_MAX_DIMS];
    int64_t offset[WALK_MAX];
} walk_position;

static inline void walk_seek(const walk *w, walk_position *p, int64_t at) {
    *p = (walk_position){0};
    for (int i = w->axes.rank - 1; i >= 0; i--) {
        p->index[i] = at % w->axes.dims[i];
        at /= w->axes.dims[i];
        for (int t = 0; t < w->axes.n; t++) p->offset[t] += p->index[i] * w->axes.strides[t][i];
    }
}

/* The number of elements to the end of the innermost axis. */
static inline int64_t walk_run(const walk *w, const walk_position *p) {
    return w->axes.dims[w->axes.rank - 1] - p->index[w->axes.rank - 1];
}

/* Advances by n elements; n is at most walk_run. */
static inline void walk_on(const walk *w, walk_position *p, int64_t n) {
    int i = w->axes.rank - 1;
    p->index[i] += n;
    for (int t = 0; t < w->axes.n; t++) p->offset[t] += n * w->axes.strides[t][i];
    while (i > 0 && p->index[i] == w->axes.dims[i]) {
        for (int t = 0; t < w->axes.n; t++)
            p->offset[t] += w->axes.strides[t][i - 1] - w->axes.dims[i] * w->axes.strides[t][i];
        p->index[i--] = 0;
        p->index[i]++;
    }
}

#endif
