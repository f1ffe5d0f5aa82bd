/* sdpa90.h: our own attention for Hopper (kernels/sdpa90.cu), as sdpa.c sees it: 16-bit, no mask, heads of 64 or 128
 * numbers. */
#ifndef LZ_CUDA_OWN_SDPA90_H
#define LZ_CUDA_OWN_SDPA90_H

#include "backend/cuda/own.h"

/* A call as the kernel sees it. */
typedef struct lz_sdpa90 {
    const lz_call *call;
    int64_t batches, heads, groups, n, m, d; /* q [batches, heads, n, d], k and v [batches, groups, m, d] */
    float scale;
} lz_sdpa90;

/* keys: of a block; queries: of a tile, 128 or 192; in_turn: warpgroups take turns at the matrix units. */
typedef struct lz_sdpa90_way {
    int16_t keys, queries, in_turn;
} lz_sdpa90_way;

enum { LZ_SDPA90_WAYS = 4 };
extern const lz_sdpa90_way lz_sdpa90_ways[LZ_SDPA90_WAYS]; /* each does every call, and some fastest */

/* false: not for this kernel (another GPU, other types or strides). Addresses are not looked at: multiples of 16. */
bool lz_sdpa90_reads(const lz_call *call, lz_sdpa90 *a);
int64_t lz_sdpa90_scratch(const lz_sdpa90 *a, const lz_sdpa90_way *way);
/* The kernel, compiled where it is new; NULL: err says why. */
lz_cu_function lz_sdpa90_function(const lz_sdpa90 *a, const lz_sdpa90_way *way);
/* scratch: as many bytes as lz_sdpa90_scratch says, at a multiple of 16. */
bool lz_sdpa90_run(const lz_sdpa90 *a, const lz_sdpa90_way *way, lz_cu_function f, char *scratch);

#endif
