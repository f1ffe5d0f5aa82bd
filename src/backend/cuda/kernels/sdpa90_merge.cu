/* sdpa90_merge.cu: merges the parts of tiles that sdpa90.cu computed in parts. The sums of a part are relative to its
 * own maximum; they are rescaled to the largest maximum, added in the order of the parts, and divided. A thread
 * computes 8 columns of a row.
 *
 * Defined in the head: TYPE and HEAD. */

#include "sdpa90.h"

extern "C" __global__ void __launch_bounds__(256) sdpa90_merge(const __grid_constant__ lz_sdpa90_merge_params p) {
    const lz_sdpa90_split &s = p.split;
    const int at = (int)(blockIdx.x * 256 + threadIdx.x), index = at / (HEAD / 8), column = at % (HEAD / 8) * 8;
    if (index >= p.total) return;
    const int tile = index / p.tile_rows, row = index % p.tile_rows, head = (s.whole + tile) / s.row_tiles;
    const int token = (s.whole + tile) % s.row_tiles * p.tile_rows + row;
    if (token >= p.n) return;
    /* The ranges that contain blocks of this tile: first .. end - 1. In the first range, the tile may be the second
     * part. */
    const int begin = tile * s.blocks, behind = begin + s.blocks;
    int first = (int)((u32)(begin * s.ranges) / (u32)s.units), end;
    while (range_start(s, first + 1) <= begin) first++;
    for (end = first + 1; end < s.ranges && range_start(s, end) < behind;) end++;
    const bool second = range_start(s, first) < begin;
    float most = -INFINITE, sum = 0, sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#define PART_ROW(range) ((i64)(2 * (range) + (second && (range) == first)) * p.tile_rows + row)
    for (int i = first; i < end; i++) most = fmaxf(most, ((const float2 *)s.rows)[PART_ROW(i)].x);
#pragma unroll 4
    for (int i = first; i < end; i++) {
        const float2 of_part = ((const float2 *)s.rows)[PART_ROW(i)];
        const float by = exp2_of((of_part.x - most) * p.scale);
        vec<float, 8> v;
        load_words(v, s.sums + PART_ROW(i) * HEAD + column);
        sum = fmaf(of_part.y, by, sum);
#pragma unroll
        for (int j = 0; j < 8; j++) sums[j] = fmaf(v.at[j], by, sums[j]);
    }
    vec<TYPE, 8> v;
#pragma unroll
    for (int j = 0; j < 8; j++) sums[j] /= sum;
    put_all(v, sums);
    store_words(v, (TYPE *)p.out + head / s.heads * p.batch + head % s.heads * p.head + token * p.token + column);
}
