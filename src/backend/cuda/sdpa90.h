/* sdpa90.h: our own attention for Hopper (kernels/sdpa90.cu), for sdpa.c: no mask, head size 64 or 128, 16-bit types. q and k
 * may both be f8; then v and the probabilities are rounded to f8, too. */
#ifndef LZ_CUDA_OWN_SDPA90_H
#define LZ_CUDA_OWN_SDPA90_H

#include "backend/cuda/own.h"

/* A call as parameters of the kernel. */
typedef struct lz_sdpa90 {
    const lz_call *call;
    int64_t batches, heads, groups, n, m, d; /* q [batches, heads, n, d], k and v [batches, groups, m, d] */
    float scale;
    bool narrow; /* q and k are f8 */
} lz_sdpa90;

/* keys: of a block; queries: of a tile, 128 or 192; pingpong: warpgroups use the matrix units alternately. */
typedef struct lz_sdpa90_config {
    int16_t keys, queries, pingpong;
} lz_sdpa90_config;

enum { LZ_SDPA90_CONFIGS = 4 };
/* The configurations for calls in 16 bits, or for those with f8. Each supports every such call. */
const lz_sdpa90_config *lz_sdpa90_configs(bool narrow);

/* Does the kernel take such queries and keys as f8, and is it worth it? */
bool lz_sdpa90_takes_f8(const lz_device *d, lz_dims q, lz_dims k);
/* false: the kernel does not support the call (another GPU, other types or strides). The caller makes sure that
 * addresses are multiples of 16. */
bool lz_sdpa90_reads(const lz_call *call, lz_sdpa90 *a);
int64_t lz_sdpa90_scratch(const lz_sdpa90 *a, const lz_sdpa90_config *config);
/* The kernel, compiled if it is new; NULL: err has the reason. */
lz_cu_function lz_sdpa90_function(const lz_sdpa90 *a, const lz_sdpa90_config *config);
/* scratch: lz_sdpa90_scratch() bytes, at a multiple of 16. */
bool lz_sdpa90_run(const lz_sdpa90 *a, const lz_sdpa90_config *config, lz_cu_function f, char *scratch);

#endif
