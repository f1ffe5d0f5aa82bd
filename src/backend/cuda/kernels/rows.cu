/* rows.cu: kernels whose output row depends on one input row: softmax, rms_norm (and the norm of its result), layer_norm,
 * rope (with the norm before it), each with its epilogue; and the rounding of such rows to codes of f8 or i8.
 *
 * LANES neighbouring threads share a row. The row is cut into chunks of V elements, and lane l has chunks l, l + LANES,
 * ... in registers. So a row is read once, and completely before any of it is written, which allows writing in place.
 * The distribution of elements, and so the order of every sum, depends on the length of the row alone.
 *
 * Defined in the head: CALLS, the number of calls that the parameters have space for; ROW_OP; RANK of the walk over
 * rows; LANES; CHUNKS per lane, or 0: any number, read again for each pass; WHOLE: rows are multiples of V; FULL: every
 * lane has CHUNKS whole chunks; OUT_TYPE, OUT_KIND, X_TYPE, X_KIND; EACH_ARGUMENT(X): X(operand, type, kind) for the
 * arguments of the epilogue; VALUES(j): their values, each after a comma; EARLY: arguments are loaded before the sums;
 * epilogue(); index_type, u32 or i64.
 * For rms_norm also TWICE: the norm of the result, times a WEIGHT if WEIGHTED, is a second result.
 * If CODES is defined as 1, the row, which is whole and in registers, is rounded to codes of OUT_TYPE, f8 or i8, and its
 * scale is stored. PLAIN is x itself. With HEAD, the first p.head elements of the row are those of operand 2, without the
 * epilogue. If ROTATE is defined and not 0, each group of ROTATE elements is rotated before it is rounded.
 * For rope also NORM, WEIGHTED, HALF_SPLIT, types and kinds of COS, SIN, WEIGHT, and EACH: LANES threads compute so many
 * rows, neighbours along the last axis of the walk, along which angles and weights do not change. */
#define SOFTMAX 1
#define RMS_NORM 2
#define LAYER_NORM 3
#define ROPE 4
#define PLAIN 5

#if ROW_OP != ROPE
#define EACH 1
#endif
#ifndef TWICE
#define TWICE 0
#endif
#ifndef CODES
#define CODES 0
#define HEAD 0
#endif
#ifndef ROTATE
#define ROTATE 0
#endif

enum {
    V = 8,
    THREADS = LANES < 128 ? 128 : LANES,
    ROWS = THREADS / LANES, /* of a block, times EACH */
    WARP_LANES = LANES < 32 ? LANES : 32,
    WARPS = LANES / WARP_LANES, /* of a row */
};

/* ---- a row across its threads ------------------------------------------------------------------------------------ */

#if LANES > 32
__shared__ float of_warp[WARPS];

enum { MET = WARPS & (WARPS - 1) ? 32 : WARPS }; /* lanes that combine the values of the warps, a power of two */

FN float meet(float v, float none) { /* lane i of every warp gets the value of warp i, or `none` if there is no such warp */
    const int i = threadIdx.x % MET;
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    return i < WARPS ? of_warp[i] : none;
}
FN float sum_row(float v) { return sum_lanes<MET>(meet(sum_lanes<WARP_LANES>(v), 0.0f)); }
FN float max_row(float v) { return max_lanes<MET>(meet(max_lanes<WARP_LANES>(v), -INFINITE)); }
FN void sync_row() { __syncthreads(); }
#else
FN float sum_row(float v) { return sum_lanes<WARP_LANES>(v); }
FN float max_row(float v) { return max_lanes<WARP_LANES>(v); }
FN void sync_row() { __syncwarp(); }
#endif

FN float sum_chunk(const float (&v)[V]) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }

/* ---- the part of a thread ---------------------------------------------------------------------------------------- */

#if CHUNKS
typedef int place; /* of an element in its row */
#else
typedef i64 place;
#endif

/* A thread beyond the last row reads the first row, so that loads need no condition, and stores nothing. */
struct part {
    place n; /* elements of the row */
    int lane;
    bool live;
    const char *rows[LZ_OPERANDS]; /* the row of each operand that the kernel uses */
};

FN place first_of(const part &r, int k) { return ((place)k * LANES + r.lane) * V; }
/* Elements of chunk k. Only the last chunk of a lane may be missing or not whole (rows.c: divide). */
FN int count_of(const part &r, int k) {
    if (FULL || (CHUNKS && k < CHUNKS - 1)) return V;
    place left = r.n - first_of(r, k);
    return left <= 0 ? 0 : WHOLE || left > V ? V : (int)left;
}

template <class T> FN const char *row_at(const lz_rows_params &p, int operand, const index_type *at) {
    return (const char *)((const T *)p.walk.at[operand].data + offset<RANK>(p.walk.at[operand], at));
}

/* Loads elements i .. i + count - 1 of a row. If rows are WHOLE, a missing chunk (count 0) is replaced by the first one:
 * loads without a condition are in flight together. */
template <int KIND, class T, int N>
FN void fetch_row(vec<T, N> &to, const char *row, i64 step, place i, int count) {
    if (WHOLE && !count) i = 0;
    step = KIND == SCALAR ? step : 1;
    if (WHOLE || count) load<KIND>(to, row, KIND == SAME ? 0 : i * step, step, WHOLE ? N : count);
}
template <int KIND, class T, int N>
FN void fetch(vec<T, N> &to, const lz_rows_params &p, const part &r, int operand, place i, int count) {
    fetch_row<KIND>(to, r.rows[operand], p.steps[operand], i, count);
}

/* A chunk as floats; 0 for what is missing. */
template <class T> FN void widen_chunk(float (&v)[V], const vec<T, V> &raw, int count) {
    get_all(v, raw);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = j < count ? v[j] : 0.0f;
}

/* Where a chunk of the row is in x and in the arguments: elements, and the first one. A chunk of the head has none there. */
FN int count_in_x(const lz_rows_params &p, const part &r, int k) {
    return HEAD && first_of(r, k) < (place)p.head ? 0 : count_of(r, k);
}
FN place first_in_x(const lz_rows_params &p, const part &r, int k) {
    return HEAD ? first_of(r, k) - (place)p.head : first_of(r, k);
}

FN void read_chunk(const lz_rows_params &p, const part &r, int k, float (&v)[V]) {
    vec<X_TYPE, V> raw;
    fetch<X_KIND>(raw, p, r, 1, first_in_x(p, r, k), count_in_x(p, r, k));
    widen_chunk(v, raw, count_in_x(p, r, k));
}

/* The epilogue's arguments for one chunk. */
struct arguments {
#define DECLARE(operand, type, kind) vec<type, V> a##operand;
    EACH_ARGUMENT(DECLARE)
};
FN void read_arguments(arguments &a, const lz_rows_params &p, const part &r, int k) {
    const int count = count_in_x(p, r, k);
    const place i = first_in_x(p, r, k);
#define FETCH(operand, type, kind) fetch<kind>(a.a##operand, p, r, operand, i, count);
    EACH_ARGUMENT(FETCH)
}

/* Stores a chunk of the row of the result at `to`. */
FN void store_chunk(const lz_rows_params &p, const part &r, int k, const vec<OUT_TYPE, V> &out, const char *to) {
    const i64 step = OUT_KIND == SCALAR ? p.steps[0] : 1;
    const int count = count_of(r, k);
    if (count && r.live) store<OUT_KIND>(out, (char *)to, first_of(r, k) * step, step, WHOLE ? V : count);
}

/* If there is a second result, v becomes the first, as stored. If codes are stored, v becomes the number. */
FN void finish_chunk(const lz_rows_params &p, const part &r, int k, float (&v)[V], const arguments &a, const char *to) {
    float values[V];
#pragma unroll
    for (int j = 0; j < V; j++) values[j] = epilogue(v[j] VALUES(j));
#if CODES
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = FULL || count_of(r, k) ? values[j] : 0.0f;
    return;
#endif
    vec<OUT_TYPE, V> out;
    put_all(out, values);
    store_chunk(p, r, k, out, to);
    if (TWICE) get_all(v, out);
}

#if CODES
FN float largest_code(f8) { return 448.0f; }
FN float largest_code(i8) { return 127.0f; }

/* Largest magnitude -> scale, as lz_code_scale of op/pack.h. */
FN float scale_of(float largest) {
    return largest < INFINITE ? (largest < 0x1p-100f ? 0.0f : largest / largest_code(OUT_TYPE())) : NOT_A_NUMBER;
}

/* NaN if one of them is. */
FN float larger_magnitude(float a, float b) {
#ifndef LZ_SIM
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(fabsf(a)), "f"(b));
    return most;
#else
    return op_maximum(fabsf(a), b);
#endif
}

/* Only the template for OUT_TYPE is compiled: older GPUs have no instruction for f8. */
template <int N> FN void to_codes(vec<i8, N> &to, const float (&v)[N], float inverse) {
#pragma unroll
    for (int j = 0; j < V; j++) /* the sum is rounded to a whole number, in its low bits */
        to.at[j] = (i8)(u8)__float_as_uint(v[j] * inverse + 0x1.8p23f);
}
template <int N> FN void to_codes(vec<f8, N> &to, const float (&v)[N], float inverse) {
    float scaled[V];
#pragma unroll
    for (int j = 0; j < V; j++) scaled[j] = v[j] * inverse;
    put_all(to, scaled);
}

#if ROTATE
/* Rotates the groups of ROTATE elements that a chunk is part of, as lz_rotate_group of op/packing.h: the same sums in the same
 * order. A group is the chunks of ROTATE / V neighbouring lanes, since rows are whole groups. Each step turns four numbers
 * a, b, c, d (LZ_TURN): in a lane; a and b in an even lane, c and d in the next one; in four lanes. */
FN void rotate_groups(float (&v)[V], int lane) {
#pragma unroll
    for (int j = 0; j < V; j += 4) {
        const float ab = v[j] + v[j + 1], a_b = v[j] - v[j + 1], cd = v[j + 2] + v[j + 3], c_d = v[j + 2] - v[j + 3];
        v[j] = ab + c_d, v[j + 1] = ab - c_d, v[j + 2] = cd + a_b, v[j + 3] = cd - a_b;
    }
#pragma unroll
    for (int j = 0; j < V / 2 && ROTATE > 4; j++) {
        const float sum = v[j] + v[j + V / 2], other = __shfl_xor_sync(0xffffffffu, v[j] - v[j + V / 2], 1);
        v[j] = sum + other, v[j + V / 2] = sum - other;
    }
#pragma unroll
    for (int step = 2; step * 8 < ROTATE; step *= 4) { /* from the lane of a to that of b */
        const bool second = lane & step;
#pragma unroll
        for (int j = 0; j < V; j++) {
            const float partner = __shfl_xor_sync(0xffffffffu, v[j], step), sum = v[j] + partner;
            const float difference = second ? partner - v[j] : v[j] - partner;
            const float other = __shfl_xor_sync(0xffffffffu, difference, 2 * step);
            v[j] = second ? sum - other : sum + other;
        }
    }
    const float shrink = ROTATE == 256 ? 0.0625f : ROTATE == 64 ? 0.125f : ROTATE == 16 ? 0.25f : 0.5f;
#pragma unroll
    for (int j = 0; j < V; j++) v[j] *= shrink;
}
#endif
#endif

#if TWICE
#if WEIGHTED
typedef vec<WEIGHT_TYPE, V> weights;
FN void read_weights(weights &w, const lz_rows_params &p, const part &r, int k) {
    fetch<WEIGHT_KIND>(w, p, r, 2, first_of(r, k), count_of(r, k));
}
FN void multiply(float (&v)[V], const weights &w) {
    float factors[V];
    get_all(factors, w);
#pragma unroll
    for (int j = 0; j < V; j++) v[j] *= factors[j];
}
#else
struct weights {};
FN void read_weights(weights &, const lz_rows_params &, const part &, int) {}
FN void multiply(float (&)[V], const weights &) {}
#endif

/* A chunk of the first result, which this thread has stored. */
FN void read_stored(const lz_rows_params &p, const part &r, int k, float (&v)[V]) {
    vec<OUT_TYPE, V> raw;
    fetch<OUT_KIND>(raw, p, r, 0, first_of(r, k), count_of(r, k));
    widen_chunk(v, raw, count_of(r, k));
}

FN void finish_second(const lz_rows_params &p, const part &r, int k, float (&v)[V], float scale, const weights &w) {
#pragma unroll
    for (int j = 0; j < V; j++) v[j] *= scale;
    multiply(v, w);
    vec<OUT_TYPE, V> out;
    put_all(out, v);
    store_chunk(p, r, k, out, r.rows[0] + p.second * (i64)sizeof(OUT_TYPE));
}
#endif

/* ---- rope -------------------------------------------------------------------------------------------------------- */

#if ROW_OP == ROPE
#if HALF_SPLIT
/* The rows before rotation, since the two elements of a pair are in different lanes. */
__shared__ float shared_rows[ROWS][EACH][CHUNKS * LANES * V];
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
    const place i = first_of(r, k);
#if WEIGHTED
    fetch<WEIGHT_KIND>(t.weight, p, r, 4, i, count);
#endif
#if HALF_SPLIT
    const place half = r.n / 2;
    if (COS_KIND == VECTOR && SIN_KIND == VECTOR) { /* a chunk is inside one half of the row */
        fetch<COS_KIND>(t.cosine, p, r, 2, i < half ? i : i - half, count);
        fetch<SIN_KIND>(t.sine, p, r, 3, i < half ? i : i - half, count);
    } else {
        const COS_TYPE *c = (const COS_TYPE *)r.rows[2];
        const SIN_TYPE *s = (const SIN_TYPE *)r.rows[3];
#pragma unroll
        for (int j = 0; j < V; j++) {
            const i64 angle = i + j < half ? i + j : i + j - half;
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
FN void rotate_chunk(const rotation &t, const part &r, int e, int k, float (&v)[V]) {
    const int count = count_of(r, k);
#if HALF_SPLIT
    const float *row = shared_rows[threadIdx.x / LANES][e];
    const int i = first_of(r, k), half = r.n / 2;
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

#define EACH_ROW _Pragma("unroll") for (int e = 0; e < EACH; e++)
#define EACH_ELEMENT _Pragma("unroll") for (int j = 0; j < V; j++)
#if CHUNKS
#define EACH_CHUNK _Pragma("unroll") for (int k = 0; k < CHUNKS; k++)
#define CHUNK(k, v) float(&v)[V] = kept[k];
#if EARLY
#define FINISH(k, v) finish_chunk(p, r, k, v, early[k], r.rows[0]);
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
        finish_chunk(p, r, k, v, late, r.rows[0]);                                                                     \
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
    const i64 row = ((i64)(blockIdx.x - p.first) * ROWS + threadIdx.x / LANES) * EACH;
    const bool live = row < p.walk.size; /* threads without a row take part in the sums too */
    index_type at[RANK];
    coordinates<RANK>(p.walk, (index_type)(live ? row : 0), at);
    part r;
    r.n = (place)p.n;
    r.lane = threadIdx.x % LANES;
    r.live = live;
    r.rows[0] = row_at<OUT_TYPE>(p, 0, at);
    r.rows[1] = row_at<X_TYPE>(p, 1, at);
#define FIND_ROW(operand, type, kind) r.rows[operand] = row_at<type>(p, operand, at);
    EACH_ARGUMENT(FIND_ROW)
#if ROW_OP == ROPE
    FIND_ROW(2, COS_TYPE, COS_KIND)
    FIND_ROW(3, SIN_TYPE, SIN_KIND)
#if WEIGHTED
    FIND_ROW(4, WEIGHT_TYPE, WEIGHT_KIND)
#endif
#elif TWICE && WEIGHTED
    FIND_ROW(2, WEIGHT_TYPE, WEIGHT_KIND)
#elif HEAD
    FIND_ROW(2, HEAD_TYPE, HEAD_KIND)
#endif
#if CHUNKS && ROW_OP != ROPE
#if EARLY
    arguments early[CHUNKS];
    EACH_CHUNK read_arguments(early[k], p, r, k);
    /* The compiler would load the arguments after the sum, where they are used. It does not move loads across a barrier,
     * so those of the arguments and of x are in flight together. */
    if (LANES > 32) __syncthreads();
#endif
    vec<X_TYPE, V> raw[CHUNKS];
    EACH_CHUNK fetch<X_KIND>(raw[k], p, r, 1, first_in_x(p, r, k), count_in_x(p, r, k));
#if HEAD
    vec<HEAD_TYPE, V> of_head[CHUNKS];
    EACH_CHUNK fetch<HEAD_KIND>(of_head[k], p, r, 2, first_of(r, k), count_of(r, k) - count_in_x(p, r, k));
#endif
    float kept[CHUNKS][V];
    EACH_CHUNK widen_chunk(kept[k], raw[k], count_of(r, k)); /* what the head has is replaced below */
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
#if TWICE
#if !CHUNKS
#undef CHUNK
#define CHUNK(k, v)                                                                                                    \
    float v[V];                                                                                                        \
    read_stored(p, r, k, v);
#endif
#if CHUNKS
    weights second_weights[CHUNKS];
    EACH_CHUNK read_weights(second_weights[k], p, r, k);
#define SECOND_WEIGHTS(k)
#else
#define SECOND_WEIGHTS(k)                                                                                              \
    weights second_weights[1];                                                                                         \
    read_weights(second_weights[0], p, r, k);
#endif
    SUM_CHUNKS(again, v[j] * v[j])
    const float second_scale = __frsqrt_rn(again * p.inverse + p.second_eps);
    EACH_CHUNK {
        CHUNK(k, v)
        SECOND_WEIGHTS(k)
        finish_second(p, r, k, v, second_scale, second_weights[CHUNKS ? k : 0]);
    }
#endif
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

#if ROW_OP == PLAIN
    EACH_CHUNK {
        CHUNK(k, v)
        FINISH(k, v)
    }
#endif

#if CODES
#if HEAD
    EACH_CHUNK if (first_of(r, k) < (place)p.head) get_all(kept[k], of_head[k]);
#endif
#if ROTATE
    EACH_CHUNK rotate_groups(kept[k], r.lane);
#endif
    float largest = 0.0f;
    EACH_CHUNK EACH_ELEMENT largest = larger_magnitude(kept[k][j], largest);
    const float code_scale = scale_of(max_row(largest)), to_code = code_scale > 0.0f ? 1.0f / code_scale : 0.0f;
    EACH_CHUNK {
        vec<OUT_TYPE, V> codes; /* any, if the scale is NaN */
        to_codes(codes, kept[k], to_code);
        store_chunk(p, r, k, codes, r.rows[0]);
    }
    if (live && r.lane == 0) p.scales[row] = code_scale;
#endif

#if ROW_OP == ROPE
    float all_rows[EACH][CHUNKS][V];
    rotation rotations[CHUNKS];
    EACH_CHUNK read_rotation(rotations[k], p, r, k);
    const i64 next_x = p.walk.at[1].strides[RANK - 1] * (i64)sizeof(X_TYPE),
              next_out = p.walk.at[0].strides[RANK - 1] * (i64)sizeof(OUT_TYPE);
    EACH_CHUNK {
        vec<X_TYPE, V> raw[EACH];
        EACH_ROW fetch_row<X_KIND>(raw[e], r.rows[1] + e * next_x, p.steps[1], first_of(r, k), count_of(r, k));
        EACH_ROW widen_chunk(all_rows[e][k], raw[e], count_of(r, k));
    }
#if NORM
    EACH_ROW {
        float(&kept)[CHUNKS][V] = all_rows[e];
        SUM_CHUNKS(square, v[j] * v[j])
        const float scale = __frsqrt_rn(square * p.inverse + p.eps);
        EACH_CHUNK EACH_ELEMENT kept[k][j] *= scale;
    }
#if WEIGHTED
    EACH_CHUNK {
        float factors[V];
        get_all(factors, rotations[k].weight);
        EACH_ROW EACH_ELEMENT all_rows[e][k][j] *= factors[j];
    }
#endif
#endif
#if HALF_SPLIT
    EACH_ROW EACH_CHUNK EACH_ELEMENT shared_rows[threadIdx.x / LANES][e][first_of(r, k) + j] = all_rows[e][k][j];
#endif
    sync_row(); /* the rows are read completely before any of them is written */
    EACH_ROW EACH_CHUNK {
        arguments late;
        part own = r;
#define MOVE_ROW(operand, type, kind) own.rows[operand] += e * p.walk.at[operand].strides[RANK - 1] * (i64)sizeof(type);
        EACH_ARGUMENT(MOVE_ROW)
        read_arguments(late, p, own, k);
        rotate_chunk(rotations[k], r, e, k, all_rows[e][k]);
        finish_chunk(p, r, k, all_rows[e][k], late, r.rows[0] + e * next_out);
    }
#endif
}
