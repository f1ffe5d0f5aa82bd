/* product.h: shared by matmul.c, blas.c, sdpa.c and conv.c: scratch memory, operands in the layout that the libraries
 * need, epilogues that the libraries support, and the choice of the fastest candidate. */
#ifndef LZ_CUDA_PRODUCT_H
#define LZ_CUDA_PRODUCT_H

#include "backend/cuda/cuda.h"

/* ---- scratch memory ---------------------------------------------------------------------------------------------- */

/* Divides the scratch memory of a call. The same code runs in scratch(), where `at` is NULL and only `used` counts, and
 * in run(). Each part begins at a multiple of 256 bytes, which is enough for every library. */
typedef struct lz_scratch {
    char *at;
    int64_t used;
} lz_scratch;

static inline lz_scratch lz_scratch_at(char *scratch) { return (lz_scratch){scratch, 0}; }
char *lz_scratch_take(lz_scratch *p, int64_t bytes); /* NULL in scratch() */
int64_t lz_scratch_bytes(const lz_scratch *p);       /* the value that scratch() returns */

/* ---- operands ---------------------------------------------------------------------------------------------------- */

bool lz_cuda_is_real(lz_dtype t); /* f8, f16, bf16, f32 */
/* The type of f16, bf16 and f32 that represents both exactly; libraries multiply in it. */
lz_dtype lz_cuda_common_type(lz_dtype a, lz_dtype b);

/* A tensor in scratch for a row-major copy of t in another type. Broadcast axes (stride 0) before the last `kept` axes
 * stay broadcast in the copy. */
lz_tensor lz_cuda_packed(lz_scratch *p, const lz_tensor *t, lz_dtype type, int kept);
/* to = from, elementwise; both have the same dims. */
bool lz_cuda_convert(const lz_call *call, const lz_tensor *from, const lz_tensor *to);

/* ---- endings ----------------------------------------------------------------------------------------------------- */

/* An ending is an epilogue that the libraries support: act(gate * product + bias + residual). gate, bias and residual
 * are indices of inputs of the call, or -1. gate and bias are vectors along the last axis; the residual is a whole
 * matrix. gated_bias: it is gate * (product + bias) + residual, which only products of f8 support. */
typedef struct lz_ending {
    int gate, bias, residual;
    bool gelu_tanh, gated_bias;
} lz_ending;

/* false: the epilogue has another form. Without an epilogue: true, and an empty ending. */
bool lz_cuda_read_ending(const lz_call *call, lz_ending *ending);

/* out = epilogue(products, ...), for products in scratch (two if the call is a pair). Without an epilogue: a copy. */
bool lz_cuda_finish(const lz_call *call, const lz_tensor *products);
/* Does lz_cuda_finish support the types of the call? */
bool lz_cuda_can_finish(const lz_call *call);

static inline int lz_cuda_products(const lz_call *call) { return call->op == LZ_OP_MATMUL_PAIR ? 2 : 1; }

/* By cuBLASLt (blas.c): a MATMUL or a MATMUL_PAIR. */
#define LZ_LARGE_WORK 5e8 /* products with more operations are measured */
bool lz_cuda_blas_run(const lz_call *call);
int64_t lz_cuda_blas_scratch(const lz_call *call);

/* Scales of a product of codes, f8 or i8: rows points to those of the rows of a, f32, contiguous; columns to those of b, any type and
 * stride, one for each column, times factor. rows NULL: no scales, which is the only
 * way for i8, whose products are i32. Rows of a are k bytes apart. */
typedef struct lz_code_scales {
    const char *rows;
    lz_tensor columns; /* data NULL: the factor alone */
    float factor;
} lz_code_scales;
/* The same for a MATMUL of codes. codes NULL: of other types. */
bool lz_cuda_blas_run_codes(const lz_call *call, const lz_code_scales *codes);
int64_t lz_cuda_blas_scratch_codes(const lz_call *call, const lz_code_scales *codes);

/* tensors[0] = tensors[1] * ..., element by element; n tensors in all, at most 4. 1 if there is no other. */
bool lz_cuda_multiply_all(const lz_call *call, const lz_tensor *tensors, int n);

/* out [m, n] = a [m, k] b [k, n] of any types and strides by kernels/conv.cu, for products that cuBLAS refuses. Sums
 * are in f32, or exact if out is of integers. */
bool lz_cuda_multiply_plainly(const lz_call *call, const lz_tensor *a, const lz_tensor *b, const lz_tensor *out);

/* ---- measured choices -------------------------------------------------------------------------------------------- */

/* Runs candidate i, one of several implementations of a call. false: call->err has the reason. */
typedef bool (*lz_cuda_candidate)(const lz_call *call, void *arg, int i);

/* The index of the fastest candidate: the choice of this process or an earlier one, or measured now. -1: no candidate
 * works, or the call is being recorded, so nothing can be measured. */
int lz_cuda_choose(const lz_call *call, lz_choice *c, int n, lz_cuda_candidate candidate, void *arg);

#endif
