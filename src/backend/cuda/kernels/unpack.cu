/* unpack.cu: packed weights as numbers, by the formulas of op/packing_blocks.h.
 *
 * Before it, in the head: PACKING, the name of one of the functions below; ELEMENTS and BYTES of its blocks; EVEN: blocks
 * begin at even addresses; OUT_TYPE;
 * OUT_KIND, VECTOR or SCALAR; HAS_SCALES and SCALE_TYPE, HAS_OFFSETS and OFFSET_TYPE; ROW_GROUPED: rows share scales;
 * GROUPED: 0 if a row has one scale, 1 if WIDTH divides the groups of columns, else 2; ROTATE, columns that are rotated
 * together, or 0; index_type, u32 or i64. A thread makes WIDTH neighbours of a row. */
enum { THREADS = 256, WIDTH = 16 };

/* ---- element i of a block ------------------------------------------------------------------------------------------ */

/* Reads two bytes at an even offset of a block. */
FN u32 word(const u8 *p) { return EVEN ? *(const u16 *)p : p[0] | (u32)p[1] << 8; }
FN float from_half(u16 bits) {
    f16 h;
    h.bits = bits;
    return as_float(h);
}
FN float from_e4m3(u8 bits) {
    f8 v;
    v.bits = bits;
    return as_float(v);
}
FN float from_bits(u32 bits) { return __uint_as_float(bits); }
#include "packing_blocks.h"

/* ---- scales and offsets --------------------------------------------------------------------------------------------- */

FN float scale_value(const void *, i64) { return 1.0f; }
template <class T> FN float scale_value(const T *data, i64 at) { return as_float(data[at]); }
/* E8M0: a power of two; 0 marks a block of zeros. */
FN float scale_value(const u8 *data, i64 at) {
    u8 e = data[at];
    return e == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((u32)e << 23);
}

/* What an element at a column of this row is multiplied by, and what is added. */
struct scaling {
    float scale, offset;
};
FN scaling scaling_of(const lz_unpack_params &p, u32 row, u32 column) {
    const i64 o = ROW_GROUPED ? row / (u32)p.row_group : row, g = GROUPED ? column / (u32)p.group : 0;
    scaling s;
    s.scale = p.factor;
    if (HAS_SCALES) s.scale *= scale_value((const SCALE_TYPE *)p.scales, o * p.scale_row + g * p.scale_column);
    s.offset = HAS_OFFSETS ? scale_value((const OFFSET_TYPE *)p.offsets, o * p.offset_row + g * p.offset_column) : 0.0f;
    return s;
}

/* ---- rotation --------------------------------------------------------------------------------------------------------- */

#if ROTATE
/* The numbers of a block of threads: each ROTATE of them are multiplied by H, in log4 steps. */
FN void rotate(float *x) {
    float shrink = 1.0f;
    for (int step = 1; step < ROTATE; step *= 4, shrink *= 0.5f) {
        __syncthreads();
        for (int quad = threadIdx.x; quad < THREADS * WIDTH / 4; quad += THREADS) {
            float *a = x + quad / step * 4 * step + quad % step, *b = a + step, *c = b + step, *d = c + step;
            float ab = *a + *b, a_b = *a - *b, cd = *c + *d, c_d = *c - *d;
            *a = ab + c_d, *b = ab - c_d, *c = cd + a_b, *d = cd - a_b;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < THREADS * WIDTH; i += THREADS) x[i] *= shrink;
    __syncthreads();
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) unpack(const __grid_constant__ lz_unpack_params p) {
    const index_type chunk = (index_type)blockIdx.x * THREADS + threadIdx.x;
    const bool inside = chunk < (index_type)p.walk.size;
    if (!ROTATE && !inside) return;
    index_type at[2] = {0, 0}; /* row, chunk of it */
    if (inside) coordinates<2>(p.walk, chunk, at);
    const u32 row = (u32)at[0], column = (u32)at[1] * WIDTH, left = (u32)p.columns - column;
    const int n = !inside ? 0 : left < WIDTH ? (int)left : WIDTH;
    const u8 *codes = (const u8 *)p.codes + row * p.code_row;
    /* A block of at least WIDTH elements is found once, and may be read to its end. */
    const bool large = ELEMENTS >= WIDTH;
    if (large) codes += (i64)(column / ELEMENTS) * BYTES;
    const u32 first = large ? column % ELEMENTS : column;
    float values[WIDTH];
    scaling s = {1.0f, 0.0f};
    if (inside) s = scaling_of(p, row, column);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        values[j] = 0.0f;
        if (large ? !inside : j >= n) continue;
        const u32 i = first | j; /* first is a multiple of WIDTH: what neighbours share is computed once */
        if (GROUPED == 2 && j && (column + j) % (u32)p.group == 0) s = scaling_of(p, row, column + j);
        values[j] = s.scale * PACKING(large ? codes : codes + (i64)(i / ELEMENTS) * BYTES, (int)(i % ELEMENTS));
        if (HAS_OFFSETS) values[j] += s.offset;
    }
#if ROTATE
    __shared__ float all[THREADS * WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) all[threadIdx.x * WIDTH + j] = values[j];
    rotate(all);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) values[j] = all[threadIdx.x * WIDTH + j];
#endif
    vec<OUT_TYPE, WIDTH> out;
    put_all(out, values);
    if (n) store<OUT_KIND>(out, p.out, (i64)row * p.out_row + column * p.out_column, p.out_column, n);
}
