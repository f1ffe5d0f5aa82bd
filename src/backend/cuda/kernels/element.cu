/* element.cu: out = expression(arguments), element by element.
 *
 * Before it, in the head: RANK of the walk; WIDTH, elements of a chunk, which lie along the last axis; UNROLL,
 * chunks of a thread; THREADS of a block; WHOLE: no chunk is cut short (only the last of a flat walk can be);
 * index_type, u32 or i64; number, what the expression computes with; OUT_TYPE and OUT_KIND; EACH_ARGUMENT(X): X(i,
 * type, kind) for arguments 1 ..; VALUES(u, j): their numbers for the expression.
 *
 * A thread reads all its chunks before it writes any, so that several loads are under way at once; chunks of a block
 * lie side by side. The output may be the memory of an argument: an element is read by the thread that writes it. */

#define COUNT(u) (WHOLE ? WIDTH : count[u])

extern "C" __global__ void __launch_bounds__(THREADS) element(const __grid_constant__ lz_element_params p) {
    const lz_walk &w = p.walk;
    const index_type first = (index_type)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    index_type to[UNROLL];
    int count[UNROLL];
#define DECLARE(i, type, kind) vec<type, WIDTH> a##i[UNROLL];
    EACH_ARGUMENT(DECLARE)
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        index_type chunk = first + u * THREADS, at[RANK];
        count[u] = 0;
        if (chunk >= (index_type)w.size) continue;
        coordinates<RANK>(w, chunk, at);
        count[u] = WIDTH;
        if (!WHOLE && (i64)(at[0] + 1) * WIDTH > p.last) count[u] = (int)(p.last - (i64)at[0] * WIDTH);
        to[u] = offset<RANK>(w.at[0], at);
#define LOAD(i, type, kind)                                                                                            \
    load<kind>(a##i[u], w.at[i].data, offset<RANK>(w.at[i], at), w.at[i].strides[RANK - 1] / WIDTH, COUNT(u));
        EACH_ARGUMENT(LOAD)
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (!count[u]) continue;
        number values[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) values[j] = expression(VALUES(u, j));
        vec<OUT_TYPE, WIDTH> out;
        put_all(out, values);
        store<OUT_KIND>(out, w.at[0].data, to[u], w.at[0].strides[RANK - 1] / WIDTH, COUNT(u));
    }
}
