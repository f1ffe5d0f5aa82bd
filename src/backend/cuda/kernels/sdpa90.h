/* sdpa90.h: what kernels/sdpa90.cu and kernels/sdpa90_merge.cu are handed, for both sides. */
#ifndef LZ_CUDA_SDPA90_H
#define LZ_CUDA_SDPA90_H

#include "gemm90.h"

/* Tiles are counted over rows of a head, then heads, then batches. The first `whole` of them are done at once. What the
 * others have, block of keys after block of keys and tile after tile, is cut into ranges of nearly the same length. A
 * range may reach from one tile into the next: it has two parts, one of which may be empty. */
typedef struct lz_sdpa90_split {
    float *sums, *rows; /* of parts: not yet divided, [part, row, number]; maximum and sum of each row */
    int blocks;         /* of keys, of a tile */
    int row_tiles;      /* of a head */
    int heads;
    int whole, ranges, units; /* units: blocks of all tiles that are split */
} lz_sdpa90_split;

typedef struct lz_sdpa90_params {
    lz_gemm_map q, k, v, out; /* [batch, head, token, number], the last innermost */
    lz_sdpa90_split split;
    float scale; /* of scores, times log2 e */
    int heads_per_group;
    int m;     /* keys */
    int items; /* whole tiles, first parts, second parts */
} lz_sdpa90_params;

typedef struct lz_sdpa90_merge_params {
    lz_sdpa90_split split;
    char *out;
    long long batch, head, token; /* strides of out, in elements */
    float scale;
    int n, tile_rows;
    int total; /* rows to merge */
} lz_sdpa90_merge_params;

#ifdef __cplusplus
/* The first unit of a range. ranges * units is below 2^31. */
FN int range_start(const lz_sdpa90_split &s, int range) { return (int)((u32)(range * s.units) / (u32)s.ranges); }
#endif

#endif
