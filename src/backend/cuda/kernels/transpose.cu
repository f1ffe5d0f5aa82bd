/* transpose.cu: out = expression(argument), where output and argument are contiguous along different axes. A tile is
 * read along the contiguous axis of the argument, transposed in shared memory, and written along that of the output.
 * The rows in shared memory have one element of padding, which avoids bank conflicts.
 *
 * Defined in the head: RANK of the walk over the other axes; TILE; number; OUT_TYPE and IN_TYPE. */
enum { THREADS = 256, LINES = THREADS / TILE };

extern "C" __global__ void __launch_bounds__(THREADS) transpose(const __grid_constant__ lz_transpose_params p) {
    __shared__ number tile[TILE][TILE + 1];
    const lz_walk &w = p.walk;
    const u32 per_batch = p.along_tiles * p.across_tiles;
    const u32 batch = blockIdx.x / per_batch, rest = blockIdx.x - batch * per_batch;
    const i64 along = (i64)(rest % p.along_tiles) * TILE, across = (i64)(rest / p.along_tiles) * TILE;
    const int lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
    u32 at[RANK];
    coordinates<RANK>(w, batch, at);
    i64 out_at = 0, in_at = 0;
#pragma unroll
    for (int i = 0; i < RANK; i++) {
        out_at += at[i] * w.at[0].strides[i];
        in_at += at[i] * w.at[1].strides[i];
    }
    const IN_TYPE *from = (const IN_TYPE *)w.at[1].data + in_at;
    OUT_TYPE *to = (OUT_TYPE *)w.at[0].data + out_at;
#pragma unroll
    for (int i = line; i < TILE; i += LINES)
        if (along + i < p.along && across + lane < p.across)
            get(tile[i][lane], from[(along + i) * p.in_stride + across + lane]);
    __syncthreads();
#pragma unroll
    for (int i = line; i < TILE; i += LINES)
        if (across + i < p.across && along + lane < p.along)
            put(to[(across + i) * p.out_stride + along + lane], expression(tile[lane][i]));
}
