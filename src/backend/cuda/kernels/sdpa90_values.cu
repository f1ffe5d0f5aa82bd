/* sdpa90_values.cu: rounds the values of an attention to f8 and transposes them, for sdpa90.cu. A thread block has a block of
 * KEYS keys of one head: it finds their largest magnitude, divides by a power of two that brings it just below 448, and
 * stores codes [HEAD, KEYS] and the exponent. Keys beyond the last are 0. If a value is not finite, the exponent is NaN, and so
 * is the result of the attention.
 *
 * The probabilities of 16 keys are in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15 (sdpa90.cu: round_probs), and so are the
 * values.
 *
 * Defined in the head: TYPE, HEAD and KEYS. */

#include "sdpa90.h"

enum { THREADS = 256, V = 8, VECTORS = KEYS * HEAD / V / THREADS };

__shared__ float of_warp[THREADS / 32];
__shared__ __align__(16) u8 codes[KEYS][HEAD];

FN float largest_of_block(float v) {
    v = max_lanes<32>(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    return max_lanes<THREADS / 32>(of_warp[threadIdx.x % (THREADS / 32)]);
}

/* The smallest exponent with largest / 2^exponent <= 448 = 1.75 * 2^8. */
FN float exponent_of(float largest) {
    if (!(largest < INFINITE)) return NOT_A_NUMBER;
    /* Zeros and numbers near them: an exponent below all others, so that they do not raise the reference of other blocks. */
    if (largest < 0x1p-100f) return -108.0f;
    const u32 bits = __float_as_uint(largest);
    return (float)((int)(bits >> 23) - 127 - 8 + ((bits & 0x7fffffu) > 0x600000u));
}

extern "C" __global__ void __launch_bounds__(THREADS) sdpa90_values(const __grid_constant__ lz_sdpa90_values_params p) {
    const int block = (int)blockIdx.x % p.blocks, head = (int)blockIdx.x / p.blocks;
    const TYPE *from = (const TYPE *)p.v + head / p.heads * p.batch + head % p.heads * p.head;
    vec<TYPE, V> raw[VECTORS];
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int at = i * THREADS + (int)threadIdx.x, key = at / (HEAD / V), column = at % (HEAD / V) * V;
        if (block * KEYS + key < p.m) {
            load_words(raw[i], from + (block * KEYS + key) * p.token + column);
        } else {
#pragma unroll
            for (int j = 0; j < V; j++) raw[i].at[j].bits = 0;
        }
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
#pragma unroll
        for (int j = 0; j < V; j++) largest = op_maximum(fabsf(as_float(raw[i].at[j])), largest);
    const float exponent = exponent_of(largest_of_block(largest)), factor = exp2_of(-exponent);
    if (threadIdx.x == 0) p.exponents[blockIdx.x] = exponent;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int at = i * THREADS + (int)threadIdx.x, key = at / (HEAD / V), column = at % (HEAD / V) * V;
        float v[V];
        get_all(v, raw[i]);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] *= factor;
        vec<f8, V> rounded;
        put_all(rounded, v);
        memcpy(&codes[key][column], &rounded, sizeof rounded);
    }
    __syncthreads();
    u8 *to = p.codes + (i64)head * HEAD * p.blocks * KEYS + block * KEYS;
#pragma unroll
    for (int at = (int)threadIdx.x; at < KEYS / 32 * HEAD; at += THREADS) { /* 32 keys of a column */
        const int column = at % HEAD, first = at / HEAD * 32;
        vec<u8, 32> piece;
#pragma unroll
        for (int j = 0; j < 32; j++) {
            const int e = j % 4, lane = j % 16 / 4;
            piece.at[j] = codes[first + j / 16 * 16 + e / 2 * 8 + lane * 2 + e % 2][column];
        }
        store_words(piece, to + (i64)column * p.blocks * KEYS + first);
    }
}
