/* take.cu: take and gather: out[i] = source[i with one axis replaced by an index]. An index outside its axis is stored
 * in p.fault for the host, and element 0 is used instead.
 *
 * Defined in the head: RANK; WIDTH, the number of elements that are contiguous in source and output and have one index;
 * TYPE; index_type, u32 or i64. */
enum { THREADS = 256 };

extern "C" __global__ void __launch_bounds__(THREADS) take(const __grid_constant__ lz_take_params p) {
    const lz_walk &w = p.walk;
    const index_type chunk = (index_type)blockIdx.x * THREADS + threadIdx.x;
    index_type at[RANK];
    if (chunk >= (index_type)w.size) return;
    coordinates<RANK>(w, chunk, at);
    i64 i = ((const i64 *)w.at[2].data)[offset<RANK>(w.at[2], at)];
    if (i < 0 || i >= p.size) {
        volatile lz_fault *fault = p.fault;
        if (!fault->found) {
            fault->index = i;
            fault->size = p.size;
            fault->op = p.op;
            fault->found = 1;
        }
        i = 0;
        if (!p.size) return;
    }
    vec<TYPE, WIDTH> v;
    load<VECTOR>(v, w.at[1].data, offset<RANK>(w.at[1], at) + i * p.stride, 1, WIDTH);
    store<VECTOR>(v, w.at[0].data, offset<RANK>(w.at[0], at), 1, WIDTH);
}
