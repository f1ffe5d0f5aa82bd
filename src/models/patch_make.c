/* patch_make.c: the matrices of a patch, row by row from the terms' tensors, in f32 and rounded once. */
#define LZ_NO_SUGAR
#include <string.h>

#include "models/patch.h"
#include "op/number.h"

enum { PIECE = 512 }; /* columns that are computed at a time */

typedef struct made_matrix { /* belongs to the buffer of the matrix */
    lz_context *ctx;
    int what;
    int64_t columns;
    lz_dtype dtype;
    int n;
    lz_made_term terms[];
} made_matrix;

/* Elements first .. first + n - 1 of source k. lora.c accepts only float types. */
static void read_floats(const lz_term *t, int k, int64_t first, int64_t n, float *to) {
    const char *data = t->data[k];
    switch (t->from[k]->dtype) {
    case LZ_F32: memcpy(to, data + first * 4, (size_t)n * 4); break;
    case LZ_BF16:
        for (int64_t i = 0; i < n; i++) to[i] = lz_from_bf16(((const uint16_t *)data)[first + i]);
        break;
    case LZ_F16:
        for (int64_t i = 0; i < n; i++) to[i] = lz_from_f16(((const uint16_t *)data)[first + i]);
        break;
    case LZ_F8:
        for (int64_t i = 0; i < n; i++) to[i] = lz_from_f8(((const uint8_t *)data)[first + i]);
        break;
    default:
        for (int64_t i = 0; i < n; i++) to[i] = (float)((const double *)data)[first + i];
    }
}

int64_t lz_term_rank(const lz_term *term) { return term->from[0]->dims.at[0]; }

/* The row of the term for row `row` of the target; -1: the term does not change that row. */
static int64_t source_row(const lz_term *t, int64_t row) {
    int64_t i = row - t->first;
    if (i < 0 || i >= t->rows) return -1;
    return t->source_first + (i + t->rotate) % t->rows;
}

static void multiply(float *x, const float *gains, int64_t first, int64_t n) {
    for (int64_t i = 0; gains && i < n; i++) x[i] *= gains[first + i];
}

/* The factor of a row of a term. */
static double scale_of(const lz_made_term *t, int64_t row) {
    double scale = t->term.kind == LZ_TERM_REPLACE ? 1 : t->term.strength * t->term.unit;
    return t->row_gain ? scale * (double)t->row_gain[row - t->term.first] : scale;
}

/* Columns of row `row` of all A, one below the other. */
static void piece_of_down(const made_matrix *m, int64_t row, int64_t column, int64_t n, float *to) {
    for (int k = 0; k < m->n; k++) {
        const lz_made_term *t = &m->terms[k];
        int64_t rank = lz_term_rank(&t->term);
        if (row < rank) {
            read_floats(&t->term, 0, row * m->columns + column, n, to);
            multiply(to, t->column_gain, column, n);
            return;
        }
        row -= rank;
    }
}

/* Columns of row `row` of all B, side by side, times their factors. */
static void piece_of_up(const made_matrix *m, int64_t row, int64_t column, int64_t n, float *to) {
    memset(to, 0, (size_t)n * sizeof *to);
    int64_t begin = 0; /* the first column of this B */
    for (int k = 0; k < m->n; k++) {
        const lz_made_term *t = &m->terms[k];
        int64_t rank = lz_term_rank(&t->term), source = source_row(&t->term, row);
        int64_t low = column > begin ? column : begin, high = column + n < begin + rank ? column + n : begin + rank;
        if (source >= 0 && low < high) {
            float *part = to + (low - column);
            double scale = scale_of(t, row);
            read_floats(&t->term, 1, source * rank + (low - begin), high - low, part);
            for (int64_t i = 0; i < high - low; i++) part[i] = (float)((double)part[i] * scale);
        }
        begin += rank;
    }
}

/* Columns of a row of the product of sources k [.., r] and k + 1 [r, width]. */
static void row_of_product(const lz_term *t, int k, int64_t row, int64_t column, int64_t n, float *to) {
    float part[PIECE], factor;
    int64_t rank = t->from[k + 1]->dims.at[0], width = t->from[k + 1]->dims.at[1];
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t r = 0; r < rank; r++) {
        read_floats(t, k, row * rank + r, 1, &factor);
        read_floats(t, k + 1, r * width + column, n, part);
        for (int64_t i = 0; i < n; i++) to[i] += factor * part[i];
    }
}

static void piece_of_dense(const made_matrix *m, int64_t row, int64_t column, int64_t n, float *to) {
    float part[PIECE], other[PIECE];
    memset(to, 0, (size_t)n * sizeof *to);
    for (int k = 0; k < m->n; k++) {
        const lz_made_term *t = &m->terms[k];
        int64_t source = source_row(&t->term, row);
        if (source < 0) continue;
        double scale = scale_of(t, row);
        if (t->term.kind == LZ_TERM_HADAMARD) {
            row_of_product(&t->term, 0, source, column, n, part);
            row_of_product(&t->term, 2, source, column, n, other);
            for (int64_t i = 0; i < n; i++) part[i] *= other[i];
        } else
            read_floats(&t->term, 0, source * m->columns + column, n, part);
        multiply(part, t->column_gain, column, n);
        for (int64_t i = 0; i < n; i++) to[i] = (float)((double)to[i] + scale * (double)part[i]);
    }
}

static void write_floats(const float *from, int64_t n, lz_dtype dtype, char *to) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t narrow = dtype == LZ_BF16 ? lz_to_bf16(from[i]) : lz_to_f16(from[i]);
        memcpy(to + 2 * i, &narrow, 2);
    }
}

static void make_matrix(const void *user, int64_t offset, int64_t bytes, char *to) {
    static void (*const pieces[])(const made_matrix *m, int64_t row, int64_t column, int64_t n,
                                  float *to) = {piece_of_down, piece_of_up, piece_of_dense};
    const made_matrix *m = user;
    int64_t size = lz_dtype_size(m->dtype), at = offset / size, end = (offset + bytes) / size;
    while (at < end) {
        float piece[PIECE];
        int64_t column = at % m->columns, n = m->columns - column;
        if (n > PIECE) n = PIECE;
        if (n > end - at) n = end - at;
        pieces[m->what](m, at / m->columns, column, n, piece);
        if (m->dtype == LZ_F32)
            memcpy(to, piece, (size_t)(n * size));
        else
            write_floats(piece, n, m->dtype, to);
        to += n * size;
        at += n;
    }
}

static void free_matrix(void *user) {
    made_matrix *m = user;
    for (int k = 0; k < m->n; k++) {
        for (int i = 0; i < LZ_TERM_SOURCES; i++) lz_release(m->terms[k].term.from[i]);
        lz_release(m->terms[k].row_array);
        lz_release(m->terms[k].column_array);
    }
    lz_host_free(m->ctx, m);
}

lz_array *lz_patch_matrix(lz_context *ctx, int what, const lz_made_term *terms, int n, int64_t rows, int64_t columns,
                          lz_dtype dtype) {
    made_matrix *m = lz_host_alloc(ctx, sizeof *m + (size_t)n * sizeof *terms);
    if (!m) return lz_poison(ctx, LZ_OUT_OF_MEMORY, "LoRA");
    *m = (made_matrix){.ctx = ctx, .what = what, .columns = columns, .dtype = dtype, .n = n};
    for (int k = 0; k < n; k++) {
        m->terms[k] = terms[k];
        for (int i = 0; i < LZ_TERM_SOURCES; i++) lz_retain(terms[k].term.from[i]);
        lz_retain(terms[k].row_array);
        lz_retain(terms[k].column_array);
    }
    return lz_array_made(ctx, LZ_DIMS(rows, columns), dtype, make_matrix, free_matrix, NULL, m);
}
