/* blas_product.h: products as cuBLASLt describes them, and the algorithms that it offers for each, for blas.c. They are made
 * once for each kind of product. */
#ifndef LZ_CUDA_BLAS_PRODUCT_H
#define LZ_CUDA_BLAS_PRODUCT_H

#include "backend/cuda/blas_shape.h"
#include "backend/cuda/cuda.h"

/* All that the choice of an algorithm depends on. Zeroed before it is filled, since keys are compared byte by byte. */
typedef struct lz_blas_key {
    int64_t m, n, k, batch;
    int64_t ld[OPERANDS], step[OPERANDS];
    int64_t workspace;
    int32_t align[OPERANDS];
    int32_t flipped_a, flipped_b;
    int32_t type, out_type;
    int32_t epilogue, gate, residual;
    int32_t scaled; /* f8: with scales of rows and columns */
} lz_blas_key;

enum { LZ_BLAS_ALGORITHMS = 8 };

typedef struct lz_blas_product {
    struct lz_blas_product *next;
    lz_blas_key key;
    lz_lt_matmul_desc desc;
    lz_lt_layout layout[OPERANDS];
    lz_lt_heuristic algorithms[LZ_BLAS_ALGORITHMS];
    int n, chosen; /* n is 0 if cuBLAS has no algorithm */
    bool measured; /* chosen is final: measured, or too small to be measured */
    bool loaded;   /* it was launched, or its load is listed (load.h) */
} lz_blas_product;

/* Vectors of a product, in device memory; NULL: none. */
typedef struct lz_blas_vectors {
    const void *bias, *row_scales, *column_scales;
} lz_blas_vectors;

enum { LZ_BLAS_BUCKETS = 256 };
struct lz_cuda_blas {
    lz_lt_handle handle;
    lz_blas_product *buckets[LZ_BLAS_BUCKETS];
    int count;
};

/* false, with the library's word for it in call->err, if status is an error. */
bool lz_blas_ok(const lz_call *call, lz_lt_status status, const char *what);
/* The product of a key, made if it is new. NULL: call->err has the reason. */
lz_blas_product *lz_blas_find(const lz_call *call, const lz_blas_key *k, const lz_blas_vectors *v);
/* Makes desc and layout of a product with a key, and frees them. false: call->err has the reason; some may be made. */
bool lz_blas_describe(const lz_call *call, lz_blas_product *p, const lz_blas_vectors *v);
void lz_blas_end_description(lz_device *d, lz_blas_product *p);
/* Sets the addresses of vectors, before each launch. */
bool lz_blas_set_vectors(const lz_call *call, lz_blas_product *p, const lz_blas_vectors *v);

#endif
