/* walk.h: going through several strided tensors of one shape at once. Axes that step evenly in all of them are
 * merged first, so that most calls see one or two axes. */
#ifndef LZ_WALK_H
#define LZ_WALK_H

#include "backend/backend.h"

#define WALK_MAX (LZ_EXPR_ARGS + 1)

typedef struct walk {
    int n_axes, n_tensors;
    int64_t dims[LZ_MAX_DIMS];
    int64_t strides[WALK_MAX][LZ_MAX_DIMS]; /* bytes */
    int64_t size;
} walk;

static inline void walk_make(walk *w, const lz_tensor *const *tensors, int n) {
    const lz_dims dims = tensors[0]->dims;
    *w = (walk){.n_tensors = n, .size = 1};
    for (int i = 0; i < dims.n; i++) {
        w->size *= dims.at[i];
        if (dims.at[i] == 1) continue;
        bool merge = w->n_axes > 0;
        for (int t = 0; t < n; t++) {
            int64_t stride = tensors[t]->strides[i] * lz_dtype_size(tensors[t]->dtype);
            merge = merge && w->strides[t][w->n_axes - 1] == stride * dims.at[i];
        }
        int at = merge ? w->n_axes - 1 : w->n_axes++;
        w->dims[at] = merge ? w->dims[at] * dims.at[i] : dims.at[i];
        for (int t = 0; t < n; t++) w->strides[t][at] = tensors[t]->strides[i] * lz_dtype_size(tensors[t]->dtype);
    }
    if (w->n_axes == 0) {
        w->n_axes = 1;
        w->dims[0] = 1;
        for (int t = 0; t < n; t++) w->strides[t][0] = lz_dtype_size(tensors[t]->dtype);
    }
}

/* A place in the walk: an index along each axis, and the byte offset of each tensor there. */
typedef struct walk_place {
    int64_t index[LZ_MAX_DIMS];
    int64_t offset[WALK_MAX];
} walk_place;

static inline void walk_seek(const walk *w, walk_place *p, int64_t at) {
    *p = (walk_place){0};
    for (int i = w->n_axes - 1; i >= 0; i--) {
        p->index[i] = at % w->dims[i];
        at /= w->dims[i];
        for (int t = 0; t < w->n_tensors; t++) p->offset[t] += p->index[i] * w->strides[t][i];
    }
}

/* Elements to the end of the innermost axis. */
static inline int64_t walk_run(const walk *w, const walk_place *p) {
    return w->dims[w->n_axes - 1] - p->index[w->n_axes - 1];
}

/* Moves n elements on; n is at most walk_run. */
static inline void walk_on(const walk *w, walk_place *p, int64_t n) {
    int i = w->n_axes - 1;
    p->index[i] += n;
    for (int t = 0; t < w->n_tensors; t++) p->offset[t] += n * w->strides[t][i];
    while (i > 0 && p->index[i] == w->dims[i]) {
        for (int t = 0; t < w->n_tensors; t++) p->offset[t] += w->strides[t][i - 1] - w->dims[i] * w->strides[t][i];
        p->index[i--] = 0;
        p->index[i]++;
    }
}

#endif
