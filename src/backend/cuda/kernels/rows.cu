/* rows.cu: kernels whose output row depends on one input row: softmax, rms_norm, layer_norm, rope (with the norm before
 * it), each with its epilogue.
 *
 * LANES neighbouring threads share a row. The row is cut into chunks of V elements, and lane l has chunks l, l + LANES,
 * ... in registers. So a row is read once, and completely before any of it is written, which allows writing in place.
 * The distribution of elements, and so the order of every sum, depends on the length of the row alone.
 *
 * Defined in the head: CALLS, the number of calls that the parameters have space for; ROW_OP; RANK of the walk over
 * rows; LANES; CHUNKS per lane, or 0: any number, read again for each pass; WHOLE: rows are multiples of V; OUT_TYPE,
 * OUT_KIND, X_TYPE, X_KIND; EACH_ARGUMENT(X): X(operand, type, kind) for the arguments of the epilogue; VALUES(j):
 * their values, each after a comma; EARLY: arguments are loaded before the sums; epilogue(); index_type, u32 or i64.
 * For rope also NORM, WEIGHTED, HALF_SPLIT, and types and kinds of COS, SIN, WEIGHT. */
#define SOFTMAX 1
#define RMS_NORM 2
#define LAYER_NORM 3
#define ROPE 4

enum {
    V = 8,
    THREADS = LANES < 128 ? 128 : LANES,
    ROWS = THREADS / LANES, /* of a block */
    WARP_LANES = LANES < 32 ? LANES : 32,
    WARPS = LANES / WARP_LANES, /* of a row */
};

/* ---- a row across its threads ------------------------------------------------------------------------------------ */

#if LANES > 32
__shared__ float of_warp[WARPS];

FN float meet(float v) { /* lane i of every warp gets the value of warp i */
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    return of_warp[threadIdx.x % WARPS];
}
FN float sum_row(float v) { return sum_lanes<WARPS>(meet(sum_lanes<WARP_LANES>(v))); }
FN float max_row(float v) { return max_lanes<WARPS>(meet(max_lanes<WARP_LANES>(v))); }
FN void sync_row() { __syncthreads(); }
#else
FN float sum_row(float v) { return sum_lanes<WARP_LANES>(v); }
FN float max_row(float v) { return max_lanes<WARP_LANES>(v); }
FN void sync_row() { __syncwarp(); }
#endif

FN float sum_chunk(const float (&v)[V]) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }

/* ---- the part of a thread ---------------------------------------------------------------------------------------- */

struct part {
    i64 n; /* elements of the row; 0: the thread has no row */
    index_type at[RANK];
    int lane;
};

FN i64 first_of(const part &r, int k) { return ((i64)k * LANES + r.lane) * V; }
FN int count_of(const part &r, int k) {
    i64 left = r.n - first_of(r, k);
    return left <= 0 ? 0 : WHOLE || left > V ? V : (int)left;
}
/* The first element of the row. */
template <class T> FN T *row_of(const lz_strided &operand, const part &r) {
    return (T *)operand.data + offset<RANK>(operand, r.at);
}

/* Loads elements i .. i + count - 1 of the row of an operand. */
template <int KIND, class T, int N>
FN void fetch(vec<T, N> &to, const lz_rows_params &p, const part &r, int operand, i64 i, int count) {
    const i64 step = KIND == SCALAR ? p.steps[operand] : 1;
    const T *row = row_of<const T>(p.walk.at[operand], r);
    load<KIND>(to, (const char *)row, KIND == SAME ? 0 : i * step, step, WHOLE ? N : count);
}

FN void read_chunk(const lz_rows_params &p, const part &r, int k, float (&v)[V]) {
    vec<X_TYPE, V> raw;
    const int count = count_of(r, k);
    if (count) fetch<X_KIND>(raw, p, r, 1, first_of(r, k), count);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = j < count ? as_float(raw.at[j]) : 0.0f;
}

/* The epilogue's arguments for one chunk. */
struct arguments {
#define DECLARE(operand, type, kind) vec<type, V> a##operand;
    EACH_ARGUMENT(DECLARE)
};
FN void read_arguments(arguments &a, const lz_rows_params &p, const part &r, int k) {
    const int count = count_of(r, k);
    const i64 i = first_of(r, k);
    if (!count) return;
#define FETCH(operand, type, kind) fetch<kind>(a.a##operand, p, r, operand, i, count);
    EACH_ARGUMENT(FETCH)
}

FN void finish_chunk(const lz_rows_params &p, const part &r, int k, const float (&v)[V], const arguments &a) {
    const int count = count_of(r, k);
    if (!count) return;
    float values[V];
#pragma unroll
    for (int j = 0; j < V; j++) values[j] = epilogue(v[j] VALUES(j));
    vec<OUT_TYPE, V> out;
    put_all(out, values);
    const i64 step = OUT_KIND == SCALAR ? p.steps[0] : 1;
    store<OUT_KIND>(out, (char *)row_of<OUT_TYPE>(p.walk.at[0], r), first_of(r, k) * step, step, WHOLE ? V : count);
}

/* ---- rope -------------------------------------------------------------------------------------------------------- */

#if ROW_OP == ROPE
#if HALF_SPLIT
/* The rows before rotation, since the two elements of a pair are in different lanes. */
__shared__ float shared_rows[ROWS][CHUNKS * LANES * V];
#endif

/* Cosines and sines for a chunk, and the weights of the norm before it. */
enum { ANGLES = HALF_SPLIT ? V : V / 2 };
struct rotation {
    vec<COS_TYPE, ANGLES> cosine;
    vec<SIN_TYPE, ANGLES> sine;
#if WEIGHTED
    vec<WEIGHT_TYPE, V> weight;
#endif
};

FN void read_rotation(rotation &t, const lz_rows_params &p, const part &r, int k) {
    const int count = count_of(r, k);
    const i64 i = first_of(r, k);
    if (!count) return;
#if WEIGHTED
    fetch<WEIGHT_KIND>(t.weight, p, r, 4, i, count);
#endif
#if HALF_SPLIT
    const i64 half = r.n / 2;
    if (COS_KIND == VECTOR && SIN_KIND == VECTOR) { /* a chunk is inside one half of the row */
        fetch<COS_KIND>(t.cosine, p, r, 2, i < half ? i : i - half, count);
        fetch<SIN_KIND>(t.sine, p, r, 3, i < half ? i : i - half, count);
    } else {
        const COS_TYPE *c = row_of<const COS_TYPE>(p.walk.at[2], r);
        const SIN_TYPE *s = row_of<const SIN_TYPE>(p.walk.at[3], r);
#pragma unroll
        for (int j = 0; j < V; j++) {
            i64 angle = i + j < half ? i + j : i + j - half;
            if (j < count) t.cosine.at[j] = c[angle * p.steps[2]];
            if (j < count) t.sine.at[j] = s[angle * p.steps[3]];
        }
    }
#else
    fetch<COS_KIND>(t.cosine, p, r, 2, i / 2, count / 2);
    fetch<SIN_KIND>(t.sine, p, r, 3, i / 2, count / 2);
#endif
}

/* Rotates pairs (2i, 2i + 1) or, with HALF_SPLIT, (i, i + n/2). */
FN void rotate_chunk(const rotation &t, const part &r, int k, float (&v)[V]) {
    const int count = count_of(r, k);
#if HALF_SPLIT
    const float *row = shared_rows[threadIdx.x / LANES];
    const int i = (int)first_of(r, k), half = (int)r.n / 2;
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (j >= count) continue;
        float c = as_float(t.cosine.at[j]), s = as_float(t.sine.at[j]);
        v[j] = i + j < half ? v[j] * c - row[i + j + half] * s : v[j] * c + row[i + j - half] * s;
    }
#else
#pragma unroll
    for (int j = 0; j < V / 2; j++) {
        if (2 * j >= count) continue;
        float c = as_float(t.cosine.at[j]), s = as_float(t.sine.at[j]), a = v[2 * j], b = v[2 * j + 1];
        v[2 * j] = a * c - b * s;
        v[2 * j + 1] = b * c + a * s;
    }
#endif
}
#endif

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

#define EACH_ELEMENT _Pragma("unroll") for (int j = 0; j < V; j++)
#if CHUNKS
#define EACH_CHUNK _Pragma("unroll") for (int k = 0; k < CHUNKS; k++)
#define CHUNK(k, v) float(&v)[V] = kept[k];
#if EARLY
#define FINISH(k, v) finish_chunk(p, r, k, v, early[k]);
#endif
#else
#define EACH_CHUNK for (int k = 0; k * (i64)(LANES * V) < p.n; k++)
#define CHUNK(k, v)                                                                                                    \
    float v[V];                                                                                                        \
    read_chunk(p, r, k, v);
#endif

#ifndef FINISH
#define FINISH(k, v)                                                                                                   \
    {                                                                                                                  \
        arguments late;                                                                                                \
        read_arguments(late, p, r, k);                                                                                 \
        finish_chunk(p, r, k, v, late);                                                                                \
    }
#endif

/* name = the sum over the row of `expression`, which may use element v[j]. */
#define SUM_CHUNKS(name, expression)                                                                                   \
    float name = 0.0f;                                                                                                 \
    EACH_CHUNK {                                                                                                       \
        CHUNK(k, v)                                                                                                    \
        float of[V];                                                                                                   \
        const int count = count_of(r, k);                                                                              \
        EACH_ELEMENT of[j] = j < count ? (expression) : 0.0f;                                                          \
        name += sum_chunk(of);                                                                                         \
    }                                                                                                                  \
    name = sum_row(name);

struct several {
    lz_rows_params of[CALLS];
};

extern "C" __global__ void __launch_bounds__(THREADS) rows(const __grid_constant__ several all) {
    int call = 0;
#pragma unroll
    for (int i = 1; i < CALLS; i++) call += i < all.of[0].calls && blockIdx.x >= all.of[i].first;
    const lz_rows_params &p = all.of[call];
    const i64 row = (i64)(blockIdx.x - p.first) * ROWS + threadIdx.x / LANES;
    const bool live = row < p.walk.size; /* threads without a row take part in the sums too */
    part r;
    r.n = live ? p.n : 0;
    r.lane = threadIdx.x % LANES;
    coordinates<RANK>(p.walk, (index_type)(live ? row : 0), r.at);
#if CHUNKS
    float kept[CHUNKS][V];
    EACH_CHUNK read_chunk(p, r, k, kept[k]);
#if EARLY
    arguments early[CHUNKS];
    EACH_CHUNK read_arguments(early[k], p, r, k);
#endif
#endif

#if ROW_OP == SOFTMAX
    float top = -INFINITE;
    EACH_CHUNK {
        CHUNK(k, v)
        const int count = count_of(r, k);
        EACH_ELEMENT top = j < count ? op_maximum(v[j], top) : top;
    }
    top = max_row(top);
#if CHUNKS
    EACH_CHUNK EACH_ELEMENT kept[k][j] = expf(kept[k][j] - top);
    SUM_CHUNKS(sum, v[j])
#else
    SUM_CHUNKS(sum, expf(v[j] - top))
#endif
    const float inverse = 1.0f / sum;
    EACH_CHUNK {
        CHUNK(k, v)
        EACH_ELEMENT v[j] = (CHUNKS ? v[j] : expf(v[j] - top)) * inverse;
        FINISH(k, v)
    }
#endif

#if ROW_OP == RMS_NORM
    SUM_CHUNKS(square, v[j] * v[j])
    const float scale = __frsqrt_rn(square * p.inverse + p.eps);
    EACH_CHUNK {
        CHUNK(k, v)
        EACH_ELEMENT v[j] *= scale;
        FINISH(k, v)
    }
#endif

#if ROW_OP == LAYER_NORM
    SUM_CHUNKS(sum, v[j])
    const float mean = sum * p.inverse;
    SUM_CHUNKS(spread, (v[j] - mean) * (v[j] - mean))
    const float scale = __frsqrt_rn(spread * p.inverse + p.eps);
    EACH_CHUNK {
        CHUNK(k, v)
        EACH_ELEMENT v[j] = (v[j] - mean) * scale;
        FINISH(k, v)
    }
#endif

#if ROW_OP == ROPE
    rotation rotations[CHUNKS];
    EACH_CHUNK read_rotation(rotations[k], p, r, k);
#if NORM
    SUM_CHUNKS(square, v[j] * v[j])
    const float scale = __frsqrt_rn(square * p.inverse + p.eps);
    EACH_CHUNK EACH_ELEMENT kept[k][j] *= scale;
#if WEIGHTED
    EACH_CHUNK EACH_ELEMENT kept[k][j] *= as_float(rotations[k].weight.at[j]);
#endif
#endif
#if HALF_SPLIT
    EACH_CHUNK EACH_ELEMENT shared_rows[threadIdx.x / LANES][first_of(r, k) + j] = kept[k][j];
#endif
    sync_row(); /* the whole row is read before any of it is written */
    EACH_CHUNK {
        rotate_chunk(rotations[k], r, k, kept[k]);
        FINISH(k, kept[k])
    }
#endif
}
