/* sdpa90.h: parameters of kernels/sdpa90.cu, kernels/sdpa90_values.cu and kernels/sdpa90_merge.cu, for host and device. */
#ifndef LZ_CUDA_SDPA90_H
#define LZ_CUDA_SDPA90_H

#include "gemm90.h"

/* Tiles of queries are counted over the rows of a head, then heads, then batches. Each of the first `whole` tiles is
 * one item. The other tiles are split: their blocks of keys, tile after tile, are the units, and the units are cut into
 * ranges of nearly equal length. A range may cross from one tile into the next, so it has two parts, the second of
 * which may be empty. */
typedef struct lz_sdpa90_split {
    float *sums, *rows; /* of parts: sums before the division, [part, row, column]; maximum and sum of each row */
    int blocks;         /* blocks of keys per tile */
    int row_tiles;      /* tiles per head */
    int heads;
    int whole, ranges, units; /* units: blocks of keys of all split tiles */
} lz_sdpa90_split;

typedef struct lz_sdpa90_params {
    lz_gemm_map q, k, v,
        out; /* [batch, head, token, column], the last axis contiguous; v of f8 [batch, head, column, token] */
    lz_sdpa90_split split;
    const float *exponents; /* with f8, of the values of each block of keys, [batch, head of keys, block] */
    float scale;            /* factor of the scores, times log2 e */
    float unscale;          /* 1 / scale */
    int groups;             /* heads of keys */
    int heads_per_group;
    int m;     /* keys */
    int items; /* number of items: whole tiles, first parts, second parts, in this order */
} lz_sdpa90_params;

typedef struct lz_sdpa90_values_params {
    const char *v;
    unsigned char *codes;         /* [batch, head, column, block * KEYS], keys in the order of sdpa90_values.cu */
    float *exponents;             /* [batch, head, block] */
    long long batch, head, token; /* strides of v, in elements */
    int heads, m, blocks;
} lz_sdpa90_values_params;

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
