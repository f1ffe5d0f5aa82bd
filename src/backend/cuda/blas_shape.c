/* blas_shape.c: see blas_shape.h. */
#include "backend/cuda/blas_shape.h"

#include <string.h>

bool lz_blas_as_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column, matrix *out) {
    bool flipped = (column == 1 || columns == 1) && (row >= columns || rows == 1);
    bool straight = (row == 1 || rows == 1) && (column >= rows || columns == 1);
    *out = flipped ? (matrix){true, rows == 1 ? columns : row} : (matrix){false, columns == 1 ? rows : column};
    return flipped || straight;
}

/* Merges the innermost leading axis into m, if b repeats over it and the rows of the other operands continue evenly. */
static bool fold_axis(shape *s, int64_t row[OPERANDS]) {
    int i = s->axes - 1;
    if (s->step[B][i]) return false;
    for (int t = 0; t < OPERANDS; t++)
        if (t != B && s->m != 1 && s->step[t][i] != s->m * row[t]) return false;
    for (int t = 0; t < OPERANDS; t++)
        if (s->m == 1) row[t] = s->step[t][i];
    s->m *= s->size[i];
    s->axes--;
    return true;
}

/* Merges neighbouring axes that are one evenly strided axis in all operands. */
static void join_axes(shape *s) {
    for (int i = s->axes - 2; i >= 0; i--) {
        bool even = true;
        for (int t = 0; t < OPERANDS; t++) even = even && s->step[t][i] == s->size[i + 1] * s->step[t][i + 1];
        if (!even) continue;
        s->size[i] *= s->size[i + 1];
        for (int t = 0; t < OPERANDS; t++) s->step[t][i] = s->step[t][i + 1];
        for (int j = i + 1; j < s->axes - 1; j++) {
            s->size[j] = s->size[j + 1];
            for (int t = 0; t < OPERANDS; t++) s->step[t][j] = s->step[t][j + 1];
        }
        s->axes--;
    }
}

static bool try_shape(const lz_tensor *a, const lz_tensor *b, const lz_tensor *out, const lz_tensor *c, bool fold,
                      shape *s) {
    int rank = out->dims.n, last = rank - 1, second = rank - 2;
    const lz_tensor *all[OPERANDS] = {[A] = a, [B] = b, [D] = out, [C] = c ? c : out};
    int64_t row[OPERANDS];
    memset(s, 0, sizeof *s);
    s->m = out->dims.at[second], s->n = out->dims.at[last], s->k = a->dims.at[last];
    for (int t = 0; t < OPERANDS; t++) row[t] = all[t]->strides[second];
    for (int i = 0; i < second; i++) {
        if (out->dims.at[i] == 1) continue;
        s->size[s->axes] = out->dims.at[i];
        for (int t = 0; t < OPERANDS; t++) s->step[t][s->axes] = all[t]->strides[i];
        s->axes++;
    }
    while (fold && s->axes && fold_axis(s, row)) {}
    join_axes(s);
    return lz_blas_as_matrix(s->m, s->k, row[A], a->strides[last], &s->at[A]) &&
           lz_blas_as_matrix(s->k, s->n, b->strides[second], b->strides[last], &s->at[B]) &&
           lz_blas_as_matrix(s->m, s->n, row[D], out->strides[last], &s->at[D]) && s->at[D].flipped &&
           lz_blas_as_matrix(s->m, s->n, row[C], all[C]->strides[last], &s->at[C]) && s->at[C].flipped;
}

bool lz_blas_find_shape(const lz_tensor *a, const lz_tensor *b, const lz_tensor *out, const lz_tensor *c, shape *s) {
    return try_shape(a, b, out, c, true, s) || try_shape(a, b, out, c, false, s);
}

bool lz_blas_find_dense_shape(const lz_tensor *a, const lz_tensor *b, const lz_tensor *out, const lz_tensor *c,
                              shape *s) {
    bool folded = try_shape(a, b, out, c, true, s) && (s->m == 1 || s->at[A].ld == s->k);
    return folded || try_shape(a, b, out, c, false, s);
}

double lz_blas_work(const shape *s) {
    double work = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    for (int i = 0; i < s->axes; i++) work *= (double)s->size[i];
    return work;
}
