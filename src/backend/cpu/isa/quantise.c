/* quantise.c: rows of activations as whole numbers of 8 bits, by the rule of op/pack.h (lz_quantise_row): the same bits. */
#include "backend/cpu/isa/gemm.h"
#include "op/pack.h"

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

#if LANES == 16
/* Steps of 1 and 4 in each row of 16 x 16 numbers. */
INLINE void turn_vectors(vf x[16]) {
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) LZ_TURN(vf, x[i], x[i + 1], x[i + 2], x[i + 3])
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) LZ_TURN(vf, x[i], x[i + 4], x[i + 8], x[i + 12])
}

/* 256 numbers are 16 vectors. The steps of 1 and 4 are between vectors after a transpose, those of 16 and 64 are so
 * after another. */
static void rotate_256(float *x) {
    vf v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) v[i] = load(x + 16 * i);
    transpose(v);
    turn_vectors(v);
    transpose(v);
    turn_vectors(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) store(x + 16 * i, v[i] * 0.0625f);
}
#endif

void rotate_group(float *x, int64_t g) {
    float shrink = 1.0f;
#if LANES == 16
    if (g == 256) {
        rotate_256(x);
        return;
    }
#endif
    for (int64_t step = 1; step < g; step *= 4, shrink *= 0.5f)
        for (float *a = x; a < x + g; a += 4 * step) {
            float *b = a + step, *c = b + step, *d = c + step;
            _Pragma("GCC ivdep") for (int64_t i = 0; i < step; i++) LZ_TURN(float, a[i], b[i], c[i], d[i])
        }
    for (int64_t i = 0; i < g; i++) x[i] *= shrink;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* The bits of the largest magnitude: bits of magnitudes are in the order of the numbers, infinity and NaN come last. */
static uint32_t largest_bits(const float *x, int64_t n) {
    vi most = {0};
    uint32_t all = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        vi bits = (vi)load(x + i) & 0x7fffffff, larger_now = bits > most;
        most = (bits & larger_now) | (most & ~larger_now);
    }
    for (int l = 0; l < LANES; l++) all = (uint32_t)most[l] > all ? (uint32_t)most[l] : all;
    return all;
}

#if WORD_CODES == 4
typedef int8_t code;
#else
typedef int16_t code;
#endif
typedef code codes_at __attribute__((vector_size(sizeof(code) * LANES), aligned(1), may_alias));

INLINE void put_codes(code *to, vi codes) {
#if WORD_CODES == 4
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)codes));
#else
    *(codes_at *)to = __builtin_convertvector(codes, codes_at);
#endif
}

code_row quantise_row(const char *from, lz_dtype dtype, int64_t stride, int64_t n, int64_t rotate, float *numbers,
                      float *words) {
    const float shift = 0x1.8p23f; /* adding it rounds to a whole number, in the low bits */
    int64_t padded = round_up(n, LANES), sum = 0;
    read_floats(numbers, from, dtype, stride, n);
    for (int64_t i = n; i < padded; i++) numbers[i] = 0;
    for (int64_t i = 0; rotate && i < n; i += rotate) rotate_group(numbers + i, rotate);
    code_row row = {.scale = lz_code_scale(LZ_I8, lz_bits_to_float(largest_bits(numbers, padded)))};
    float inverse = row.scale > 0 ? 1 / row.scale : 0;
    vi sums = {0};
    for (int64_t i = 0; i < padded; i += LANES) {
        vi codes = {0};
        if (inverse > 0) codes = (vi)(load(numbers + i) * inverse + shift) - 0x4b400000;
        sums += codes;
        put_codes((code *)words + i, codes);
    }
    for (int l = 0; l < LANES; l++) sum += sums[l];
    row.offset = WORD_CODES == 4 ? (int32_t)(128 * sum) : 0;
    return row;
}
