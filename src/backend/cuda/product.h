/* product.h: what matmul.c, sdpa.c and conv.c share: operands as the libraries want them, endings that the libraries
 * know, and taking the fastest of several ways. */
#ifndef LZ_CUDA_PRODUCT_H
#define LZ_CUDA_PRODUCT_H

#include "backend/cuda/cuda.h"

/* ---- pieces of scratch -------------------------------------------------------------------------------------------- */

/* Parts of a call's scratch are measured the same way when it is asked for (data pointers are NULL then) and when it is
 * used. Each begins at a multiple of 256 bytes, which satisfies every library. */
typedef struct lz_pieces {
    char *at;
    int64_t used;
} lz_pieces;

static inline lz_pieces lz_pieces_of(char *scratch) { return (lz_pieces){scratch, 0}; }
char *lz_take_piece(lz_pieces *p, int64_t bytes); /* NULL while only measuring */
int64_t lz_pieces_bytes(const lz_pieces *p);      /* what scratch() must return */

/* ---- operands ----------------------------------------------------------------------------------------------------- */

bool lz_cuda_is_real(lz_dtype t); /* f8, f16, bf16, f32 */
/* The type that holds both exactly, out of f16, bf16 and f32: what a library multiplies them in. */
lz_dtype lz_cuda_common_type(lz_dtype a, lz_dtype b);

/* A row-major copy of t in another type, in a piece of scratch. Axes that t repeats (stride 0) and that lie before the
 * last `kept` ones are not written out but repeat in the copy too. */
lz_tensor lz_cuda_packed(lz_pieces *p, const lz_tensor *t, lz_dtype type, int kept);
/* to = from, element by element; they have the same dims. */
bool lz_cuda_convert(const lz_call *call, const lz_tensor *from, const lz_tensor *to);

/* ---- endings ------------------------------------------------------------------------------------------------------ */

/* An epilogue that libraries know: act(gate * product + bias + residual). Each is the number of an input of the call,
 * or -1; gate and bias are vectors along the last axis, the residual is a whole matrix. */
typedef struct lz_ending {
    int gate, bias, residual;
    bool gelu_tanh;
} lz_ending;

/* false: it is something else. Without an epilogue: true, and nothing in it. */
bool lz_cuda_read_ending(const lz_call *call, lz_ending *ending);

/* out = epilogue(product, ...), where the product does not lie in out. Without an epilogue: a copy. Of a pair: two. */
bool lz_cuda_finish(const lz_call *call, const lz_tensor *products);
/* Can that be done? */
bool lz_cuda_can_finish(const lz_call *call);

static inline int lz_cuda_products(const lz_call *call) { return call->op == LZ_OP_MATMUL_PAIR ? 2 : 1; }

/* By the library (blas.c): a call of a plain product, or a pair. */
#define LZ_LARGE_WORK 5e8 /* operations from which on measuring pays */
bool lz_cuda_blas_run(const lz_call *call);
int64_t lz_cuda_blas_scratch(const lz_call *call);

/* out [m, n] = a [m, k] b [k, n] of any types and strides by the kernel that also does convolutions: for what cuBLAS
 * refuses. */
bool lz_cuda_multiply_plainly(const lz_call *call, const lz_tensor *a, const lz_tensor *b, const lz_tensor *out);

/* ---- the fastest -------------------------------------------------------------------------------------------------- */

/* One of several ways to do a call; what goes wrong it tells through the call it is handed. */
typedef bool (*lz_cuda_way)(const lz_call *call, void *arg, int i);

/* What was chosen before, by this process or an earlier one, or by measuring now. -1: none works, or the call is being
 * recorded and cannot wait. */
int lz_cuda_choose(const lz_call *call, lz_choice *c, int n, lz_cuda_way way, void *arg);

#endif
