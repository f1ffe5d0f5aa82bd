/* blas_shape.h: a product of strided tensors as products of matrices that cuBLAS can read, for blas.c. Leading axes over
 * which b repeats (b is a weight) become more rows of a; the other leading axes become a batch. */
#ifndef LZ_CUDA_BLAS_SHAPE_H
#define LZ_CUDA_BLAS_SHAPE_H

#include "backend/backend.h"

enum { A, B, D, C, OPERANDS }; /* out = a b (+ c) */

/* A matrix for cuBLAS. flipped: our rows are its columns, ld elements apart; otherwise our columns are. */
typedef struct matrix {
    bool flipped;
    int64_t ld;
} matrix;

/* m x k times k x n, for each index of up to LZ_MAX_DIMS leading axes, the last of which is cuBLAS's batch. */
typedef struct shape {
    int64_t m, n, k;
    matrix at[OPERANDS];
    int axes;
    int64_t size[LZ_MAX_DIMS], step[OPERANDS][LZ_MAX_DIMS]; /* steps in elements */
} shape;

/* false: cuBLAS cannot read a matrix with these distances between rows and between columns. */
bool lz_blas_as_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column, matrix *out);
/* false: cuBLAS cannot read an operand with these strides. c may be NULL. */
bool lz_blas_find_shape(const lz_tensor *a, const lz_tensor *b, const lz_tensor *out, const lz_tensor *c, shape *s);
/* The same, for rows of a that are k apart, in products of several rows too. */
bool lz_blas_find_dense_shape(const lz_tensor *a, const lz_tensor *b, const lz_tensor *out, const lz_tensor *c,
                              shape *s);
double lz_blas_work(const shape *s); /* number of operations */

#endif
