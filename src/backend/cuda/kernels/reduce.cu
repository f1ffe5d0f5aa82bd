/* reduce.cu: sum, mean, variance, maximum, minimum, argmax and logsumexp over the reduced axes.
 *
 * LANES threads compute one output. Each takes V elements at a time into a state; states are merged in a tree, so that
 * the order of every sum depends on sizes alone. If there are few outputs, each reduction is cut into segments: the
 * first launch stores the state of each segment (PARTIAL), a second launch merges them (FINISH).
 *
 * Defined in the head: REDUCE_OP; number, float or i64; IN_TYPE, OUT_TYPE; LANES; ACROSS: neighbouring threads compute
 * neighbouring outputs, otherwise they read neighbouring elements of one output; KEPT_RANK, REDUCED_RANK; KIND of
 * access to the elements of one output (VECTOR only if REDUCED_RANK is 1); FINISH; PARTIAL. */
#define SUM 1
#define MEAN 2
#define VAR 3
#define MAX 4
#define MIN 5
#define ARGMAX 6
#define LOGSUMEXP 7

enum { THREADS = 256, OUTS = THREADS / LANES, V = 8 };

/* ---- states ------------------------------------------------------------------------------------------------------ */

FN float total(const float (&v)[V]) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }
FN i64 total(const i64 (&v)[V]) {
    u64 sum = 0;
#pragma unroll
    for (int j = 0; j < V; j++) sum += (u64)v[j];
    return (i64)sum;
}

#if REDUCE_OP == SUM || REDUCE_OP == MEAN
struct state {
    number sum;
};
FN state nothing() { return state{0}; }
FN state merge(state a, state b) { return state{op_add(a.sum, b.sum)}; }
FN state take(state s, number (&v)[V], int count, i64 first, i64 step) {
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = j < count ? v[j] : 0;
    return state{op_add(s.sum, total(v))};
}
FN number result(state s, i64 count) { return REDUCE_OP == MEAN ? s.sum / (number)count : s.sum; }
#endif

#if REDUCE_OP == VAR /* count, mean, and sum of squared differences from the mean */
struct state {
    float n, mean, spread;
};
FN state nothing() { return state{0.0f, 0.0f, 0.0f}; }
FN state merge(state a, state b) {
    if (b.n == 0.0f) return a;
    if (a.n == 0.0f) return b;
    const float n = a.n + b.n, d = b.mean - a.mean, share = b.n / n;
    return state{n, a.mean + d * share, a.spread + b.spread + d * d * (a.n * share)};
}
FN state take(state s, number (&v)[V], int count, i64 first, i64 step) {
    if (!count) return s;
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = j < count ? v[j] : 0.0f;
    const float mean = total(v) / (float)count;
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = j < count ? (v[j] - mean) * (v[j] - mean) : 0.0f;
    return merge(s, state{(float)count, mean, total(v)});
}
FN number result(state s, i64 count) { return s.spread / (float)count; }
#endif

#if REDUCE_OP == MAX || REDUCE_OP == MIN
struct state {
    number best;
    int any;
};
FN number better(number a, number b) { return REDUCE_OP == MAX ? op_maximum(a, b) : op_minimum(a, b); }
FN state nothing() { return state{0, 0}; }
FN state merge(state a, state b) { return !b.any ? a : !a.any ? b : state{better(a.best, b.best), 1}; }
FN state take(state s, number (&v)[V], int count, i64 first, i64 step) {
#pragma unroll
    for (int j = 0; j < V; j++)
        if (j < count) s = merge(s, state{v[j], 1});
    return s;
}
FN number result(state s, i64 count) { return s.best; }
#endif

#if REDUCE_OP == ARGMAX /* index of the first maximum; a NaN counts as larger than any number */
struct state {
    number best;
    i64 index; /* -1: nothing yet */
};
FN state nothing() { return state{0, -1}; }
FN state merge(state a, state b) {
    if (b.index < 0) return a;
    if (a.index < 0) return b;
    const bool a_nan = a.best != a.best, b_nan = b.best != b.best;
    const bool equal = a_nan ? b_nan : a.best == b.best;
    if (equal) return a.index < b.index ? a : b;
    return a_nan || (!b_nan && a.best > b.best) ? a : b;
}
FN state take(state s, number (&v)[V], int count, i64 first, i64 step) {
#pragma unroll
    for (int j = 0; j < V; j++)
        if (j < count) s = merge(s, state{v[j], first + j * step});
    return s;
}
FN i64 result(state s, i64 count) { return s.index; }
#endif

#if REDUCE_OP == LOGSUMEXP /* the maximum, and the sum of exp(x - maximum) */
struct state {
    float top, sum;
};
FN float shrink(float from, float to) { return from == to ? 1.0f : expf(from - to); } /* inf - inf would be NaN */
FN state nothing() { return state{-INFINITE, 0.0f}; }
FN state merge(state a, state b) {
    const float top = op_maximum(a.top, b.top);
    return state{top, a.sum * shrink(a.top, top) + b.sum * shrink(b.top, top)};
}
FN state take(state s, number (&v)[V], int count, i64 first, i64 step) {
    float top = -INFINITE;
#pragma unroll
    for (int j = 0; j < V; j++)
        if (j < count) top = op_maximum(v[j], top);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = j < count ? shrink(v[j], top) : 0.0f;
    return merge(s, state{top, total(v)});
}
FN number result(state s, i64 count) { return s.top == INFINITE || s.top == -INFINITE ? s.top : s.top + logf(s.sum); }
#endif

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

FN i64 wide_offset(const lz_strided &operand, const u32 *at, int rank) {
    i64 sum = 0;
#pragma unroll
    for (int i = 0; i < LZ_AXES; i++)
        if (i < rank) sum += at[i] * operand.strides[i];
    return sum;
}

/* Reads elements first + j * LANES or, if KIND is VECTOR, first + j. Returns their number. */
FN int read_some(const lz_reduce_params &p, i64 from, i64 first, i64 end, number (&v)[V]) {
    const IN_TYPE *data = (const IN_TYPE *)p.kept.at[0].data + from;
    const i64 step = KIND == VECTOR ? 1 : LANES;
    const i64 left = end - first;
    const int count = left <= 0 ? 0 : left > (V - 1) * step ? V : (int)((left + step - 1) / step);
    if (KIND == VECTOR && count == V) {
        vec<IN_TYPE, V> raw;
        load_words(raw, data + first);
#pragma unroll
        for (int j = 0; j < V; j++) get(v[j], raw.at[j]);
        return count;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (j >= count) continue;
        u32 at[LZ_AXES];
        coordinates<REDUCED_RANK>(p.reduced, (u32)(first + j * step), at);
        get(v[j], data[wide_offset(p.reduced.at[0], at, REDUCED_RANK)]);
    }
    return count;
}

extern "C" __global__ void __launch_bounds__(THREADS) reduce(const __grid_constant__ lz_reduce_params p) {
    __shared__ state states[THREADS];
    const i64 segments = FINISH ? 1 : p.segments;
    const int lane = ACROSS ? threadIdx.x / OUTS : threadIdx.x % LANES;
    const int column = ACROSS ? threadIdx.x % OUTS : threadIdx.x / LANES;
    const i64 segment = blockIdx.x % segments, out = blockIdx.x / segments * OUTS + column;
    const bool live = out < p.kept.size;
    u32 at[LZ_AXES];
    coordinates<KEPT_RANK>(p.kept, live ? (u32)out : 0u, at);

    state s = nothing();
#if FINISH
    for (i64 i = lane; live && i < p.segments; i += LANES)
        s = merge(s, ((const state *)p.partial)[i * p.kept.size + out]);
#else
    const i64 from = wide_offset(p.kept.at[0], at, KEPT_RANK), begin = segment * p.segment;
    const i64 end = min(begin + p.segment, p.reduced.size);
    for (i64 i = begin; live && i < end; i += LANES * V) {
        number v[V];
        const i64 first = i + (KIND == VECTOR ? lane * V : lane);
        const int count = read_some(p, from, first, end, v);
        s = take(s, v, count, first, KIND == VECTOR ? 1 : LANES);
    }
#endif
    const int mine = column * LANES + lane;
    states[mine] = s;
    __syncthreads();
#pragma unroll
    for (int half = LANES / 2; half; half /= 2) {
        if (lane < half) states[mine] = s = merge(s, states[mine + half]);
        __syncthreads();
    }
    if (lane || !live) return;
#if PARTIAL
    ((state *)p.partial)[segment * p.kept.size + out] = s;
#else
    put(((OUT_TYPE *)p.kept.at[1].data)[wide_offset(p.kept.at[1], at, KEPT_RANK)], result(s, p.reduced.size));
#endif
}
