/* gemm90.h: our own matrix product for Hopper (kernels/gemm90.cu), as matmul.c sees it: 16-bit operands whose rows lie
 * along k, any epilogue inside; one or several products with each launch. */
#ifndef LZ_CUDA_OWN_GEMM90_H
#define LZ_CUDA_OWN_GEMM90_H

#include "backend/cuda/own.h"

#include "backend/cuda/kernels/gemm90.h"

/* A call as the kernel sees it: out [m, n] = expression(a [m, k] b^T [n, k], arguments); of a pair, with two b. */
typedef struct lz_gemm90 {
    const lz_call *call;
    int64_t m, n, k;
    int64_t a_row, b_row[2], out_row; /* elements from one row to the next */
    int64_t rows[LZ_GEMM_ARGUMENTS];  /* the same of the arguments */
    bool paired;
} lz_gemm90;

/* A tile: `columns` of b by 64 times `blocks` rows of a for each of two warpgroups, which work on one tile together or,
 * in_turn, each on its own. cluster: blocks that share what they load of b. group: rows of clusters' tiles that are
 * walked side by side, 0: as many as make what runs at one time about square. */
typedef struct lz_gemm90_way {
    int16_t columns, blocks, in_turn, cluster, group;
} lz_gemm90_way;

enum { LZ_GEMM90_WAYS = 2 }; /* that are offered, at most */

/* false: not for this kernel (another GPU, other types or strides). */
bool lz_gemm90_reads(const lz_call *call, lz_gemm90 *g);
/* May these two be parts of one launch? Sizes do not matter, nor how arguments are aligned; none may read what another
 * writes, which is not looked at here. */
bool lz_gemm90_alike(const lz_gemm90 *a, const lz_gemm90 *b);

/* Below, g are n products that are alike, for one launch. What goes wrong is said to the first one's call. */

/* The most promising ways, best first, as far as counting tells; at least one. 0: these are more than fit. */
int lz_gemm90_ways(const lz_gemm90 *g, int n, lz_gemm90_way ways[LZ_GEMM90_WAYS]);
/* All there are, for tests and measurements. */
int lz_gemm90_all(const lz_gemm90_way **ways);
bool lz_gemm90_suits(const lz_gemm90 *g, const lz_gemm90_way *way); /* the first suits: all do */
/* The kernel, compiled where it is new; NULL: err says why. It takes longer than a small product, so who runs a call
 * again and again, to measure it, does this once. */
lz_cu_function lz_gemm90_function(const lz_gemm90 *g, int n, const lz_gemm90_way *way);
bool lz_gemm90_run(const lz_gemm90 *g, int n, const lz_gemm90_way *way, lz_cu_function f);
/* The kernel's text, to be given to lz_cuda_function; what is before #include "gemm90.cu" depends on types, expression,
 * way, and roughly on how many there are, not on sizes. */
void lz_gemm90_text(const lz_gemm90 *g, int n, const lz_gemm90_way *way, lz_text *text);

/* ---- what sdpa90.c uses too -------------------------------------------------------------------------------------- */

/* Functions around one instruction of the matrix units, sum [64, columns] (+)= a [64, 16] b; TYPE is defined before.
 *   void name(float (&sum)[columns / 2], u64 a, u64 b, int add): both in shared memory, as matrix_at says
 *   void name(float (&sum)[columns / 2], const u32 (&a)[4], u64 b, int add): a held in registers; b as matrix_at or, if
 *   it is turned, as turned_matrix_at says */
void lz_gemm90_add_multiply(lz_text *text, const char *name, int columns, lz_dtype type);
void lz_gemm90_add_multiply_held(lz_text *text, const char *name, int columns, lz_dtype type, bool turned);

#endif
