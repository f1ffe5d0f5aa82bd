/* gemm90.h: our own matrix product for Hopper (kernels/gemm90.cu), for matmul.c: 16-bit operands whose rows are
 * contiguous along k, any epilogue inside, one or several products in a launch. */
#ifndef LZ_CUDA_OWN_GEMM90_H
#define LZ_CUDA_OWN_GEMM90_H

#include "backend/cuda/own.h"

#include "backend/cuda/kernels/gemm90.h"

/* A call as parameters of the kernel: out [m, n] = expression(a [m, k] b^T [n, k], arguments); a pair has two b. */
typedef struct lz_gemm90 {
    const lz_call *call;
    int64_t m, n, k;
    int64_t a_row, b_row[2], out_row; /* elements from one row to the next */
    int64_t rows[LZ_GEMM_ARGUMENTS];  /* the same for the arguments */
    bool paired;
} lz_gemm90;

/* A tile has `columns` columns, and 64 * `blocks` rows for each of two warpgroups. The warpgroups share one tile or,
 * with pingpong, compute alternate tiles. cluster: number of thread blocks that share their loads of b. group: rows of
 * tiles that are processed together, column by column; 0: chosen by group_of. */
typedef struct lz_gemm90_config {
    int16_t columns, blocks, pingpong, cluster, group;
} lz_gemm90_config;

enum { LZ_GEMM90_CONFIGS = 2 }; /* most configurations that lz_gemm90_configs returns */

/* false: the kernel does not support the call (another GPU, other types or strides). */
bool lz_gemm90_reads(const lz_call *call, lz_gemm90 *g);
/* Can the two products be in one launch? Sizes and alignment of arguments may differ. The caller makes sure that they
 * do not depend on each other. */
bool lz_gemm90_alike(const lz_gemm90 *a, const lz_gemm90 *b);

/* Below, g are n products that are alike, for one launch. Errors are returned in the call of the first one. */

/* The configurations with the least estimated time, best first; at least one. 0: too many products for one launch. */
int lz_gemm90_configs(const lz_gemm90 *g, int n, lz_gemm90_config configs[LZ_GEMM90_CONFIGS]);
/* All configurations, for tests and measurements. */
int lz_gemm90_all(const lz_gemm90_config **configs);
/* Products that are alike suit a config together: it is enough to ask for the first. */
bool lz_gemm90_suits(const lz_gemm90 *g, const lz_gemm90_config *way);
/* The kernel, compiled if it is new; NULL: err has the reason. Finding it takes longer than a small product, so
 * measurements do it once, before they run the call repeatedly. */
lz_cu_function lz_gemm90_function(const lz_gemm90 *g, int n, const lz_gemm90_config *config);
bool lz_gemm90_run(const lz_gemm90 *g, int n, const lz_gemm90_config *config, lz_cu_function f);
/* The kernel's text for lz_cuda_function. The head before #include "gemm90.cu" depends on types, expression,
 * configuration and lz_cuda_group_capacity(n), but not on sizes. */
void lz_gemm90_text(const lz_gemm90 *g, int n, const lz_gemm90_config *config, lz_text *text);

/* ---- also used by sdpa90.c --------------------------------------------------------------------------------------- */

/* Functions around one instruction of the matrix units, sum [64, columns] (+)= a [64, k] b, with 16 numbers of 16 bits or 32
 * of f8 along k. Matrices of f8 are never transposed.
 *   void name(float (&sum)[columns / 2], u64 a, u64 b, int add): both in shared memory, described by matrix_at
 *   void name(float (&sum)[columns / 2], const u32 (&a)[4], u64 b, int add): a in registers; b described by matrix_at
 *   or, if it is transposed, by transposed_matrix_at */
void lz_gemm90_add_multiply(lz_text *text, const char *name, int columns, lz_dtype type);
void lz_gemm90_add_multiply_held(lz_text *text, const char *name, int columns, lz_dtype type, bool transposed);

#endif
