/* unpack.cu: packed weights as numbers, by the formulas of op/packing.c; every operation is rounded as it is there.
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
FN float half(const u8 *p) {
    f16 h;
    h.bits = (u16)word(p);
    return as_float(h);
}
FN float from_e4m3(u8 bits) {
    f8 v;
    v.bits = bits;
    return as_float(v);
}
FN int nibble_of_halves(const u8 *q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }
FN int nibble_of_pairs(const u8 *q, int i) { return q[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15; }
FN int crumb(const u8 *q, int i) { return q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3; }
FN float iq4_value(int n) { /* -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113 */
    u64 values = n < 8 ? 0xf6eaddcfbfad9881ull : 0x7159453526190d01ull;
    return (float)(i8)(u8)(values >> 8 * (n & 7));
}
FN float e2m1_value(int n) { /* 0 .5 1 1.5 2 3 4 6, bit 3 is the sign */
    float v = (n & 7) < 2 ? 0.5f * (float)(n & 1) : __uint_as_float((u32)((n & 7) + 252) << 22);
    return n & 8 ? -v : v;
}
FN float e2m1_twice(int n) { return n & 7 ? 2.0f * e2m1_value(n) : 0.0f; }

FN float q4_0(const u8 *b, int i) { return half(b) * (float)(nibble_of_halves(b + 2, i) - 8); }
FN float q4_1(const u8 *b, int i) { return half(b) * (float)nibble_of_halves(b + 4, i) + half(b + 2); }
FN float q5_0(const u8 *b, int i) {
    return half(b) * (float)(nibble_of_halves(b + 6, i) + 16 * (b[2 + i / 8] >> i % 8 & 1) - 16);
}
FN float q5_1(const u8 *b, int i) {
    return half(b) * (float)(nibble_of_halves(b + 8, i) + 16 * (b[4 + i / 8] >> i % 8 & 1)) + half(b + 2);
}
FN float q8_0(const u8 *b, int i) { return half(b) * (float)(i8)b[2 + i]; }
FN float iq4_nl(const u8 *b, int i) { return half(b) * iq4_value(nibble_of_halves(b + 2, i)); }
FN float mxfp4(const u8 *b, int i) {
    float d = __uint_as_float(b[0] < 2 ? 0x00200000u << b[0] : (u32)(b[0] - 1) << 23);
    return d * e2m1_twice(nibble_of_halves(b + 1, i));
}
FN float nvfp4(const u8 *b, int i) {
    u8 e = b[i / 16] & 0x7f, q = b[4 + 8 * (i / 16) + i % 8];
    float d = e == 0x7f ? 0.0f : from_e4m3(e) * 0.5f;
    return d * e2m1_twice(i % 16 >= 8 ? q >> 4 : q & 15);
}
FN float q2_k(const u8 *b, int i) {
    int s = b[i / 16];
    return half(b + 80) * (float)(s & 15) * (float)crumb(b + 16, i) - half(b + 82) * (float)(s >> 4);
}
FN float q3_k(const u8 *b, int i) {
    const u8 *s = b + 96;
    int j = i / 16, scale = (s[j % 8] >> 4 * (j / 8) & 15) + 16 * (s[8 + j % 4] >> 2 * (j / 4) & 3) - 32;
    return half(b + 108) * (float)scale * (float)(crumb(b + 32, i) + 4 * (b[i % 32] >> i / 32 & 1) - 4);
}
FN float q4_or_5_k(const u8 *b, int j, int code) { /* code of run j, with its scale and minimum of six bits each */
    const u8 *s = b + 4;
    int a = j < 4 ? s[j] & 63 : (s[j + 4] & 15) + 16 * (s[j - 4] >> 6);
    int m = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) + 16 * (s[j] >> 6);
    return half(b) * (float)a * (float)code - half(b + 2) * (float)m;
}
FN float q4_k(const u8 *b, int i) { return q4_or_5_k(b, i / 32, nibble_of_pairs(b + 16, i)); }
FN float q5_k(const u8 *b, int i) {
    return q4_or_5_k(b, i / 32, nibble_of_pairs(b + 48, i) + 16 * (b[16 + i % 32] >> i / 32 & 1));
}
FN float q6_k(const u8 *b, int i) {
    int g = i / 128, t = i % 128 / 32, r = i % 32;
    int low = b[64 * g + 32 * (t % 2) + r] >> 4 * (t / 2) & 15, high = b[128 + 32 * g + r] >> 2 * t & 3;
    return half(b + 208) * (float)(i8)b[192 + i / 16] * (float)(low + 16 * high - 32);
}
FN float iq4_xs(const u8 *b, int i) {
    int j = i / 32, byte = b[8 + 16 * j + i % 16];
    int scale = (b[4 + j / 2] >> 4 * (j % 2) & 15) + 16 * (int)(word(b + 2) >> 2 * j & 3) - 32;
    return half(b) * (float)scale * iq4_value(i % 32 >= 16 ? byte >> 4 : byte & 15);
}

FN float e4m3(const u8 *b, int i) { return from_e4m3(b[i]); }
FN float e5m2(const u8 *b, int i) {
    f16 h;
    h.bits = (u16)(b[i] << 8);
    return as_float(h);
}
FN float i8_(const u8 *b, int i) { return (float)(i8)b[i]; }
FN float u8_(const u8 *b, int i) { return (float)b[i]; }
FN float e2m1(const u8 *b, int i) { return e2m1_value(i ? *b & 15 : *b >> 4); }
FN float i4(const u8 *b, int i) { return (float)((i ? *b >> 4 : *b & 15) - 8); }
FN float s4(const u8 *b, int i) { return (float)(((i ? *b >> 4 : *b & 15) ^ 8) - 8); }
template <int BITS> FN float stream(const u8 *b, int i) {
    int at = i * BITS, shift = at % 8;
    u32 two = b[at / 8] | (shift + BITS > 8 ? (u32)b[at / 8 + 1] << 8 : 0u);
    return (float)(two >> shift & ((1u << BITS) - 1u));
}
FN float u2(const u8 *b, int i) { return stream<2>(b, i); }
FN float u3(const u8 *b, int i) { return stream<3>(b, i); }
FN float u4(const u8 *b, int i) { return stream<4>(b, i); }
FN float u5(const u8 *b, int i) { return stream<5>(b, i); }
FN float u6(const u8 *b, int i) { return stream<6>(b, i); }

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
