/* sdpa.cu: softmax(q k^T scale + mask) v; the scores are never stored in memory. A thread block computes some queries
 * of one head, and loops over the keys with an online softmax (Milakov and Gimelshein 2018; FlashAttention): each query
 * keeps its largest score so far, and if a larger one occurs, the sums so far are scaled down. Sums are in f32, in the
 * order of the keys.
 *
 * Defined in the head: NUMBER, the type in which products are computed (f16 or bf16: on the matrix units; float: PLAIN
 * is defined too, and products use ordinary arithmetic); Q_TYPE, K_TYPE, V_TYPE as stored, OUT_TYPE; HEAD, the head
 * size rounded up to a multiple of 16 (of 32 above 256); ALIGNED: q, k and v have type NUMBER, and their rows are
 * contiguous and at multiples of 16 bytes; ALIGNED_OUT: the same for the rows of out, of any type; MASK_TYPE, if there
 * is a mask, and MASK_ADDS unless it is boolean; MASK_OF_KEYS: the mask is boolean and the same for all queries, there
 * are at most 128 * 192 keys, and PLAIN is not defined; CAUSAL. */
#include "products.h"

typedef lz_sdpa_params params;

/* ---- used by both variants -------------------------------------------------------------------------------------- */

struct query_tile {
    i64 batch, head, group; /* group: the head of keys and values */
    int first;              /* first query */
};

FN query_tile find_tile(const params &p, int queries) {
    const u32 tiles = (p.n + queries - 1) / queries;
#ifdef CAUSAL /* late queries have most keys: they start first */
    const u32 others = gridDim.x / tiles, tile = tiles - 1 - blockIdx.x / others, rest = blockIdx.x % others;
#else
    const u32 tile = blockIdx.x % tiles, rest = blockIdx.x / tiles;
#endif
    query_tile at;
    at.batch = rest / p.heads;
    at.head = rest % p.heads;
    at.group = at.head / p.heads_per_group;
    at.first = (int)tile * queries;
    return at;
}

template <class T> FN T *start_of(const lz_strided &t, i64 batch, i64 head) {
    return (T *)t.data + batch * t.strides[0] + head * t.strides[1];
}

/* One past the last key that any of these queries may attend to. */
FN int last_key(const params &p, int first, int queries) {
#ifdef CAUSAL
    const int last = min(first + queries, p.n) - 1, end = last + (p.m - p.n) + 1;
    return min(p.m, max(end, 0));
#else
    return p.m;
#endif
}

/* Applies the causal and the general mask (not MASK_OF_KEYS) to a score; masked scores are minus infinity. unit: factor
 * of an added mask. */
FN float masked(const params &p, const query_tile &at, float score, int query, int key, float unit) {
    if (key >= p.m) return -INFINITE;
#ifdef CAUSAL
    if (key > query + (p.m - p.n)) return -INFINITE;
#endif
#if defined MASK_TYPE && !defined MASK_OF_KEYS
    if (query >= p.n) return score;
    const MASK_TYPE m =
        start_of<MASK_TYPE>(p.mask, at.batch, at.head)[query * p.mask.strides[2] + key * p.mask.strides[3]];
#ifdef MASK_ADDS
    score += as_float(m) * unit;
#else
    if (as_float(m) == 0.0f) return -INFINITE;
#endif
#endif
    return score;
}

extern __shared__ __align__(16) char shared[];

#ifndef PLAIN
#include "matrix.cu"

/* ---- matrix units ------------------------------------------------------------------------------------------------ */

/* A warp computes 16 queries. Above a head size of 256 their sums do not fit into its registers: then two warps share
 * the same queries; each sums half of the columns, and both compute all scores. */
enum {
    SPLIT = HEAD > 256 ? 2 : 1,
    THREADS = 128 * SPLIT,
    QUERIES = 64,
    KEYS = HEAD > 128 ? 32 : 64,
    PITCH = HEAD + 8, /* padding, so that rows of a column are in different banks */
    COLUMNS = HEAD / SPLIT,
    KEPT = HEAD <= 128, /* queries stay in registers */
    UNROLL = KEPT ? HEAD / 16 : 4
};
#define ALL_SEEN (~0ull >> (64 - KEYS))

/* Loads rows first .. first + ROWS - 1 of [rows, d] to [ROWS][PITCH]; zeros beyond the edges. */
template <int ROWS, class T>
FN void load_rows(NUMBER *to, const T *from, i64 row_stride, i64 step, int first, int rows, int d) {
#if ALIGNED
    enum { WIDTH = HEAD / 8, STEP = THREADS / WIDTH }; /* threads per row, rows at a time */
    const int top = threadIdx.x / WIDTH, column = threadIdx.x % WIDTH * 8;
    const T *source = from + (first + top) * row_stride + column;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP) {
        const bool there = first + top + i < rows && column < d;
        if ((THREADS % WIDTH == 0 || top < STEP) && (ROWS % STEP == 0 || top + i < ROWS))
            start_copy(to + (top + i) * PITCH + column, there ? source : from, there);
        source += STEP * row_stride;
    }
#else
    for (int i = threadIdx.x; i < ROWS * HEAD; i += THREADS) {
        const int row = i / HEAD, column = i % HEAD;
        const bool there = first + row < rows && column < d;
        from_float(to[row * PITCH + column],
                   there ? as_float(from[(first + row) * row_stride + column * step]) : 0.0f);
    }
#endif
}

FN void load_keys(const params &p, const query_tile &at, NUMBER *keys, NUMBER *values, int first) {
    load_rows<KEYS>(keys, start_of<const K_TYPE>(p.k, at.batch, at.group), p.k.strides[2], p.k.strides[3], first, p.m,
                    p.d);
    load_rows<KEYS>(values, start_of<const V_TYPE>(p.v, at.batch, at.group), p.v.strides[2], p.v.strides[3], first,
                    p.m, p.d);
}

/* ---- masks of keys ----------------------------------------------------------------------------------------------- */

/* One bit per key, set if it is not masked. The 16 bytes of padding after a row in shared memory have the bits of 128
 * keys. */
FN u32 *seen_at(int key) { return (u32 *)((NUMBER *)shared + key / 128 * PITCH + HEAD) + key % 128 / 32; }

/* The bits of the keys of a tile. */
FN u64 seen_in(int tile) {
#ifdef MASK_OF_KEYS
    const u32 *words = seen_at(tile * KEYS);
    return KEYS > 32 ? (u64)words[1] << 32 | words[0] : words[0];
#else
    return ALL_SEEN;
#endif
}

/* Reads the mask of all keys before `end` and sets their bits. */
FN void read_mask(const params &p, const query_tile &at, int end) {
#ifdef MASK_OF_KEYS
    const MASK_TYPE *mask = start_of<const MASK_TYPE>(p.mask, at.batch, at.head);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int first = warp * 128; first < end; first += THREADS * 4) {
        bool seen[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* all loads are issued before the first result is needed */
            const int key = first + i * 32 + lane;
            seen[i] = key < p.m && as_float(mask[key * p.mask.strides[3]]) != 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 word = __ballot_sync(0xffffffffu, seen[i]);
            if (lane == 0) seen_at(first)[i] = word;
        }
    }
#endif
}

/* The first tile, from this one on, that has a key that is not masked. */
FN int next_seen(int tile, int tiles) {
#ifdef MASK_OF_KEYS
    for (; tile < tiles; tile += 32) {
        const int own = tile + (int)threadIdx.x % 32;
        const u32 seen = __ballot_sync(0xffffffffu, own < tiles && seen_in(own) != 0);
        if (seen) return tile + __ffs((int)seen) - 1;
    }
#endif
    return tile;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* The address of this lane's row of the four 8 x 8 matrices of a 16 x 16 block, which are counted from left to right
 * first, or from top to bottom first. */
FN const NUMBER *across_first(const NUMBER *block) {
    const int lane = threadIdx.x % 32;
    return block + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8;
}
FN const NUMBER *down_first(const NUMBER *block) {
    const int lane = threadIdx.x % 32;
    return block + lane % 16 * PITCH + lane / 16 * 8;
}

extern "C" __global__ void __launch_bounds__(THREADS) sdpa(const __grid_constant__ params p) {
    NUMBER *const queries = (NUMBER *)shared, *const keys = queries + QUERIES * PITCH,
                  *const values = keys + 2 * KEYS * PITCH;
    const query_tile at = find_tile(p, QUERIES);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = warp % 4 * 16, left = warp / 4 * COLUMNS;
    const int query = at.first + rows + lane / 4; /* and query + 8 */
    const float unit = 1.44269504f, scale = p.scale * unit; /* exp2 is cheaper than exp */
    const int end = last_key(p, at.first, QUERIES), tiles = (end + KEYS - 1) / KEYS;

    load_rows<QUERIES>(queries, start_of<const Q_TYPE>(p.q, at.batch, at.head), p.q.strides[2], p.q.strides[3],
                       at.first, p.n, p.d);
    if (tiles) load_keys(p, at, keys, values, 0);
    read_mask(p, at, end);

    float sums[COLUMNS / 8][4], largest[2] = {-INFINITE, -INFINITE}, total[2] = {0, 0};
    u32 kept[KEPT ? HEAD / 16 : 1][4];
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;

    for (int tile = 0, next, now = 0; tile < tiles; tile = next, now = 1 - now) {
        const int first = tile * KEYS;
        wait_for_copies();
        __syncthreads();
        if (KEPT && tile == 0)
#pragma unroll
            for (int c = 0; c < HEAD / 16; c++)
                load_blocks(kept[KEPT ? c : 0], down_first(queries + rows * PITCH + c * 16));
        next = next_seen(tile + 1, tiles);
        if (next < tiles) /* loaded while this tile is computed */
            load_keys(p, at, keys + (1 - now) * KEYS * PITCH, values + (1 - now) * KEYS * PITCH, next * KEYS);
        const u64 seen = seen_in(tile), own = seen >> lane % 4 * 2;
        if (!seen) continue; /* only the first tile: it is loaded before the mask is known */

        float scores[KEYS / 8][4];
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) scores[i][0] = scores[i][1] = scores[i][2] = scores[i][3] = 0;
#pragma unroll UNROLL
        for (int c = 0; c < HEAD / 16; c++) {
            u32 a[4], b[4];
            if (!KEPT) load_blocks(a, down_first(queries + rows * PITCH + c * 16));
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) {
                load_blocks(b, across_first(keys + (now * KEYS + i * 16) * PITCH + c * 16));
                multiply(scores[2 * i], KEPT ? kept[KEPT ? c : 0] : a, b[0], b[1], NUMBER());
                multiply(scores[2 * i + 1], KEPT ? kept[KEPT ? c : 0] : a, b[2], b[3], NUMBER());
            }
        }

        bool plain = seen == ALL_SEEN && first + KEYS <= p.m;
#ifdef CAUSAL
        plain = plain && first + KEYS - 1 <= at.first + rows + (p.m - p.n);
#endif
#if defined MASK_TYPE && !defined MASK_OF_KEYS
        plain = false;
#endif
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) scores[i][e] *= scale;
        if (!plain)
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int key = i * 8 + e % 2; /* relative to this lane's first key */
                    const float s = masked(p, at, scores[i][e], query + e / 2 * 8, first + lane % 4 * 2 + key, unit);
                    scores[i][e] = own >> key & 1 ? s : -INFINITE;
                }
        float most[2] = {largest[0], largest[1]}, base[2];
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) most[e / 2] = fmaxf(most[e / 2], scores[i][e]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
            most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
            base[r] = most[r] == -INFINITE ? 0.0f : most[r]; /* all keys so far are masked */
            const float shrink = exp2_of(largest[r] - base[r]);
            largest[r] = most[r];
            total[r] *= shrink;
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; i++) sums[i][2 * r] *= shrink, sums[i][2 * r + 1] *= shrink;
        }

#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                scores[i][e] = exp2_of(scores[i][e] - base[e / 2]);
                total[e / 2] += scores[i][e];
            }
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            const u32 a[4] = {pair(scores[2 * k][0], scores[2 * k][1], NUMBER()),
                              pair(scores[2 * k][2], scores[2 * k][3], NUMBER()),
                              pair(scores[2 * k + 1][0], scores[2 * k + 1][1], NUMBER()),
                              pair(scores[2 * k + 1][2], scores[2 * k + 1][3], NUMBER())};
#pragma unroll
            for (int i = 0; i < COLUMNS / 16; i++) {
                u32 b[4];
                load_transposed(b, down_first(values + (now * KEYS + k * 16) * PITCH + left + i * 16));
                multiply(sums[2 * i], a, b[0], b[1], NUMBER());
                multiply(sums[2 * i + 1], a, b[2], b[3], NUMBER());
            }
        }
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
        const float by = total[r] == 0.0f ? 0.0f : 1.0f / total[r]; /* zeros if all keys are masked */
        const int row = query + r * 8;
        if (row >= p.n) continue;
        OUT_TYPE *out = start_of<OUT_TYPE>(p.out, at.batch, at.head) + row * p.out.strides[2];
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++) {
            const int column = left + i * 8 + lane % 4 * 2;
            const float two[2] = {sums[i][2 * r] * by, sums[i][2 * r + 1] * by};
#if ALIGNED_OUT
            vec<OUT_TYPE, 2> stored;
            put_all(stored, two);
            if (column < p.d) store_words(stored, out + column);
#else
            if (column < p.d) from_float(out[column * p.out.strides[3]], two[0]);
            if (column + 1 < p.d) from_float(out[(column + 1) * p.out.strides[3]], two[1]);
#endif
        }
    }
}

#else

/* ---- plain arithmetic -------------------------------------------------------------------------------------------- */

/* Thread (y, x) of 16 x 16 has queries y and y + 16: their scores for keys x and x + 16, and columns 4x .. 4x + 3 of
 * their sums, and those 64, 128, ... further on. */
enum { THREADS = 256, QUERIES = 32, KEYS = 32, PITCH = HEAD + 4, SCORES = KEYS + 4, GROUPS = (HEAD + 63) / 64 };
typedef vec<float, 4> four;

template <class T> FN void load_rows(float *to, const T *from, i64 row_stride, i64 step, int first, int rows, int d) {
    for (int i = threadIdx.x; i < 32 * HEAD; i += THREADS) {
        const int row = i / HEAD, column = i % HEAD;
        const bool there = first + row < rows && column < d;
        to[row * PITCH + column] = there ? as_float(from[(first + row) * row_stride + column * step]) : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) sdpa(const __grid_constant__ params p) {
    float *const queries = (float *)shared, *const rows = queries + QUERIES * PITCH, /* keys, then values */
        *const scores = rows + KEYS * PITCH, *const shrinks = scores + QUERIES * SCORES, *const totals = shrinks + 32;
    const query_tile at = find_tile(p, QUERIES);
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    const int own = threadIdx.x / 8, part = threadIdx.x % 8; /* eight threads compute the softmax of one query */
    const int end = last_key(p, at.first, QUERIES);
    float largest = -INFINITE, total = 0;
    four sums[2][GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        for (int r = 0; r < 2; r++)
            for (int e = 0; e < 4; e++) sums[r][g].at[e] = 0;

    load_rows(queries, start_of<const Q_TYPE>(p.q, at.batch, at.head), p.q.strides[2], p.q.strides[3], at.first, p.n,
              p.d);
    for (int first = 0; first < end; first += KEYS) {
        load_rows(rows, start_of<const K_TYPE>(p.k, at.batch, at.group), p.k.strides[2], p.k.strides[3], first, p.m,
                  p.d);
        __syncthreads();
        float dot[2][2] = {{0, 0}, {0, 0}};
        for (int c = 0; c < HEAD; c += 4) {
            four q[2], k[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                q[r] = *(const four *)(queries + (y + 16 * r) * PITCH + c);
                k[r] = *(const four *)(rows + (x + 16 * r) * PITCH + c);
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                for (int i = 0; i < 2; i++)
                    for (int j = 0; j < 2; j++) dot[i][j] = fmaf(q[i].at[e], k[j].at[e], dot[i][j]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                scores[(y + 16 * i) * SCORES + x + 16 * j] =
                    masked(p, at, dot[i][j] * p.scale, at.first + y + 16 * i, first + x + 16 * j, 1.0f);
        __syncthreads();

        load_rows(rows, start_of<const V_TYPE>(p.v, at.batch, at.group), p.v.strides[2], p.v.strides[3], first, p.m,
                  p.d);
        four s = *(const four *)(scores + own * SCORES + part * 4);
        float most = largest, sum = 0;
#pragma unroll
        for (int e = 0; e < 4; e++) most = fmaxf(most, s.at[e]);
#pragma unroll
        for (int step = 1; step < 8; step *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        const float base = most == -INFINITE ? 0.0f : most; /* all keys so far are masked */
#pragma unroll
        for (int e = 0; e < 4; e++) s.at[e] = expf(s.at[e] - base), sum += s.at[e];
#pragma unroll
        for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        const float shrink = expf(largest - base);
        largest = most;
        total = total * shrink + sum;
        *(four *)(scores + own * SCORES + part * 4) = s;
        if (part == 0) shrinks[own] = shrink;
        __syncthreads();

        const float shrink0 = shrinks[y], shrink1 = shrinks[y + 16];
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            for (int e = 0; e < 4; e++) sums[0][g].at[e] *= shrink0, sums[1][g].at[e] *= shrink1;
        for (int k = 0; k < min(KEYS, p.m - first); k++) {
            const float w0 = scores[y * SCORES + k], w1 = scores[(y + 16) * SCORES + k];
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                if (g * 64 + x * 4 >= HEAD) continue;
                const four v = *(const four *)(rows + k * PITCH + g * 64 + x * 4);
#pragma unroll
                for (int e = 0; e < 4; e++) { /* masked values are ignored, even NaN */
                    sums[0][g].at[e] = w0 == 0.0f ? sums[0][g].at[e] : fmaf(w0, v.at[e], sums[0][g].at[e]);
                    sums[1][g].at[e] = w1 == 0.0f ? sums[1][g].at[e] : fmaf(w1, v.at[e], sums[1][g].at[e]);
                }
            }
        }
        __syncthreads();
    }

    if (part == 0) totals[own] = total;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = at.first + y + 16 * r;
        const float all = totals[y + 16 * r], by = all == 0.0f ? 0.0f : 1.0f / all; /* zeros if all keys are masked */
        if (row >= p.n) continue;
        OUT_TYPE *out = start_of<OUT_TYPE>(p.out, at.batch, at.head) + row * p.out.strides[2];
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            for (int e = 0; e < 4; e++)
                if (g * 64 + x * 4 + e < p.d)
                    from_float(out[(g * 64 + x * 4 + e) * p.out.strides[3]], sums[r][g].at[e] * by);
    }
}

#endif
