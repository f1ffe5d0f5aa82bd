/* element.cu: out = expression(arguments), elementwise.
 *
 * Defined in the head: RANK of the walk; WIDTH, elements of a chunk along the last axis; UNROLL, chunks of a thread;
 * DOWN: the chunks of a thread are in consecutive rows (along the axis before the last, which the walk counts in steps
 * of UNROLL), otherwise THREADS chunks apart; THREADS of a block; WHOLE: no chunk is shorter than WIDTH (only the last
 * chunk of a one-dimensional walk can be); index_type, u32 or i64; number, the type that the expression computes in;
 * OUT_TYPE and OUT_KIND; EACH_ARGUMENT(X): X(i, type, kind, chunks) for arguments 1 .., where chunks is UNROLL, or 1 if
 * the argument is the same for all chunks of a thread; VALUES(u, j): the arguments of the expression for element j of
 * chunk u; FACTOR: nothing, or the argument before these and a comma.
 *
 * A thread loads all its chunks before it stores any, so that several loads are in flight. The output may have the
 * memory of an argument, since each element is read by the thread that writes it. */

#define COUNT(u) (WHOLE ? WIDTH : count[u])
#define ELEMENT_AT(i, u) (offset<RANK>(w.at[i], at) + (DOWN ? u * (index_type)(w.at[i].strides[ROW] / UNROLL) : 0))
enum { ROW = DOWN ? RANK - 2 : 0 };

extern "C" __global__ void __launch_bounds__(THREADS) element(const __grid_constant__ lz_element_params p) {
    const lz_walk &w = p.walk;
    const index_type first = (index_type)blockIdx.x * (THREADS * (DOWN ? 1 : UNROLL)) + threadIdx.x;
    index_type to[UNROLL];
    int count[UNROLL];
#define DECLARE(i, type, kind, chunks) vec<type, WIDTH> a##i[chunks];
    EACH_ARGUMENT(DECLARE)
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        index_type chunk = first + (DOWN ? 0 : u * THREADS), at[RANK];
        count[u] = 0;
        if (chunk >= (index_type)w.size) continue;
        coordinates<RANK>(w, chunk, at);
        count[u] = WIDTH;
        if (!WHOLE && (i64)(at[0] + 1) * WIDTH > p.last) count[u] = (int)(p.last - (i64)at[0] * WIDTH);
        to[u] = ELEMENT_AT(0, u);
#define LOAD(i, type, kind, chunks)                                                                                    \
    if (u < chunks) load<kind>(a##i[u], w.at[i].data, ELEMENT_AT(i, u), w.at[i].strides[RANK - 1] / WIDTH, COUNT(u));
        EACH_ARGUMENT(LOAD)
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (!count[u]) continue;
        number values[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) values[j] = expression(FACTOR VALUES(u, j));
        vec<OUT_TYPE, WIDTH> out;
        put_all(out, values);
        store<OUT_KIND>(out, w.at[0].data, to[u], w.at[0].strides[RANK - 1] / WIDTH, COUNT(u));
    }
}
