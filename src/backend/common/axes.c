/* axes.c: see axes.h. */
#include "backend/common/axes.h"

lz_axes lz_axes_of(const lz_tensor *tensors, int n, int first, int end) {
    lz_axes s = {.rank = end - first, .n = n};
    for (int i = first; i < end; i++) {
        s.dims[i - first] = tensors[0].dims.at[i];
        for (int k = 0; k < n; k++) s.strides[k][i - first] = tensors[k].strides[i];
    }
    return s;
}

static void move_axis(lz_axes *s, int to, int from) {
    s->dims[to] = s->dims[from];
    for (int k = 0; k < s->n; k++) s->strides[k][to] = s->strides[k][from];
}

static void swap_axes(lz_axes *s, int a, int b) {
    int64_t dim = s->dims[a];
    s->dims[a] = s->dims[b];
    s->dims[b] = dim;
    for (int k = 0; k < s->n; k++) {
        int64_t stride = s->strides[k][a];
        s->strides[k][a] = s->strides[k][b];
        s->strides[k][b] = stride;
    }
}

/* Does axis a belong before axis b? It does if its stride is larger: in this operand or, if equal, in the first that
 * differs. */
static bool is_outer(const lz_axes *s, int operand, int a, int b) {
    if (s->strides[operand][a] != s->strides[operand][b]) return s->strides[operand][a] > s->strides[operand][b];
    for (int k = 0; k < s->n; k++)
        if (s->strides[k][a] != s->strides[k][b]) return s->strides[k][a] > s->strides[k][b];
    return false;
}

void lz_axes_sort(lz_axes *s, int operand) {
    for (int i = 1; i < s->rank; i++)
        for (int j = i; j > 0 && is_outer(s, operand, j, j - 1); j--) swap_axes(s, j, j - 1);
}

static bool joins(const lz_axes *s, int outer, int inner) {
    for (int k = 0; k < s->n; k++)
        if (s->strides[k][outer] != s->strides[k][inner] * s->dims[inner]) return false;
    return true;
}

void lz_axes_merge(lz_axes *s) {
    int kept = 0;
    for (int i = 0; i < s->rank; i++) {
        if (s->dims[i] == 1) continue;
        bool join = kept && joins(s, kept - 1, i);
        int64_t dim = join ? s->dims[kept - 1] : 1;
        move_axis(s, join ? kept - 1 : kept, i);
        s->dims[join ? kept - 1 : kept] *= dim;
        kept += !join;
    }
    if (!kept) {
        s->dims[kept++] = 1;
        for (int k = 0; k < s->n; k++) s->strides[k][0] = 0;
    }
    s->rank = kept;
}

int64_t lz_axes_size(const lz_axes *s) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dims[i];
    return n;
}

bool lz_axes_narrow(const lz_axes *s) {
    const int64_t limit = INT32_MAX - (1 << 20); /* threads of the last block may count beyond the size */
    if (lz_axes_size(s) > limit) return false;
    for (int k = 0; k < s->n; k++) {
        int64_t last = 0;
        for (int i = 0; i < s->rank; i++) last += (s->dims[i] - 1) * s->strides[k][i];
        if (last > limit) return false;
    }
    return true;
}
