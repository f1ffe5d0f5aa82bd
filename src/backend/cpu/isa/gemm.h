/* gemm.h: the matrix product engine of matmul and conv2d (gemm.c), and the parts of it that attention uses. pack.c packs
 * its operands.
 *
 * C[m, n] = sum over k of A[m, k] B[n, k]. Both sides are rows of K numbers; a function of the side (gemm_side.locate)
 * finds a row in a strided tensor or in an image under a convolution window. Rows are packed into panels: MR rows of A,
 * or NR rows of B, with k outermost, [k][MR] and [k][NR], in f32 or as pairs of bf16 (see below; for AMX, rows of A are
 * not transposed: tiles.h). The micro-kernel multiplies a panel of A by a panel of B. */
#ifndef LZ_GEMM_H
#define LZ_GEMM_H

#include "backend/cpu/isa/unpack.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#define HAS_BFMMLA 1
#endif
#ifndef HAS_BFMMLA
#define HAS_BFMMLA 0
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef float vf_loose
    __attribute__((vector_size(4 * LANES), aligned(2), may_alias)); /* unaligned; also pairs of bf16 */

/* The micro-kernel keeps a block of C in registers: MR rows of NV vectors. Accumulators, NV vectors of B and one
 * broadcast element of A just fit. */
#if LANES == 16 /* 32 registers */
#define MR 12
#define NV 2
#elif defined(__AVX2__) /* 16 registers */
#define MR 6
#define NV 2
#elif defined(__aarch64__) /* 32 registers */
#define MR 8
#define NV 2
#else
#define MR 4
#define NV 2
#endif
#define NR (NV * LANES)

/* f(1) f(2) ... f(MR): for tables of micro-kernels, one for each number of rows, so that a last panel with few rows
 * costs little. */
#if MR == 12
#define ROW_COUNTS(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12)
#elif MR == 8
#define ROW_COUNTS(f) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8)
#elif MR == 6
#define ROW_COUNTS(f) f(1) f(2) f(3) f(4) f(5) f(6)
#else
#define ROW_COUNTS(f) f(1) f(2) f(3) f(4)
#endif

#define INLINE static inline __attribute__((always_inline))

/* f(0, s), f(1, s), ...: the indices of a shuffle. */
#define FOUR_LANES(f, l, s) f(l, s), f((l) + 1, s), f((l) + 2, s), f((l) + 3, s)
#if LANES == 16
#define EACH_LANE(f, s) FOUR_LANES(f, 0, s), FOUR_LANES(f, 4, s), FOUR_LANES(f, 8, s), FOUR_LANES(f, 12, s)
#elif LANES == 8
#define EACH_LANE(f, s) FOUR_LANES(f, 0, s), FOUR_LANES(f, 4, s)
#else
#define EACH_LANE(f, s) FOUR_LANES(f, 0, s)
#endif

INLINE vf load(const float *p) { return *(const vf_loose *)p; }
INLINE void store(float *p, vf v) { *(vf_loose *)p = v; }

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }
INLINE int64_t round_up(int64_t n, int64_t to) { return parts_of(n, to) * to; }

/* v with lanes l and l ^ s exchanged. Over all s < LANES, every lane meets every other. */
#define PARTNER(l, s) ((l) ^ (s))
#define EXCHANGE(v, s) __builtin_shufflevector(v, v, EACH_LANE(PARTNER, s))

INLINE float sum_of_lanes(vf v) {
#if LANES > 8
    v += EXCHANGE(v, 8);
#endif
#if LANES > 4
    v += EXCHANGE(v, 4);
#endif
    v += EXCHANGE(v, 2);
    v += EXCHANGE(v, 1);
    return v[0];
}

/* One step of a transpose in registers: swaps bit s of the row index with bit s of the lane index. */
#define LOW(l, s) ((l) & (s) ? LANES + (l) - (s) : (l))
#define HIGH(l, s) ((l) & (s) ? LANES + (l) : (l) + (s))
#define SWAP_BIT(x, s)                                                                                                 \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (!(i & (s))) {                                         \
        vf low = __builtin_shufflevector(x[i], x[i + (s)], EACH_LANE(LOW, s));                                         \
        x[i + (s)] = __builtin_shufflevector(x[i], x[i + (s)], EACH_LANE(HIGH, s));                                    \
        x[i] = low;                                                                                                    \
    }

INLINE void transpose(vf x[LANES]) {
#if LANES > 8
    SWAP_BIT(x, 8)
#endif
#if LANES > 4
    SWAP_BIT(x, 4)
#endif
    SWAP_BIT(x, 2)
    SWAP_BIT(x, 1)
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* Some processors have an instruction that multiplies two neighbouring bf16 numbers by two others and adds both
 * products to an f32 sum. Two neighbouring bf16 numbers of a row are one 32-bit word here, a pair. Panels of pairs are
 * packed by the code that packs f32, which only moves words: a row of K bf16 numbers is a row of K / 2 words. Only the
 * micro-kernel differs. The instruction treats subnormal inputs as zero and returns zero for subnormal sums; ARM's also
 * rounds each of its two sums to odd, where the others round to nearest. */
#if defined(__AMX_BF16__) || defined(LZ_TILES_IN_C)
#define HAS_TILES 1 /* AMX: the instruction computes whole blocks of C, see tiles.h */
#else
#define HAS_TILES 0
#endif
#if (defined(__AVX512BF16__) && !HAS_TILES) || HAS_BFMMLA
#define HAS_PAIRS 1
#define WITH_PAIRS(...) __VA_ARGS__ /* micro-kernels with an instruction on vectors */
#else
#define HAS_PAIRS HAS_TILES
#define WITH_PAIRS(...)
#endif
#define PAIR_ROWS (HAS_TILES ? 32 : MR) /* rows of A in a panel of pairs */

/* sum + a[0] b[0] + a[1] b[1] for the two bf16 numbers in each word. */
INLINE vf add_pairs(vf sum, float a, vf b) {
#if defined(__AVX512BF16__)
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(a), (__m512bh)b);
#elif HAS_BFMMLA
    return (vf)vbfdotq_f32((float32x4_t)sum, vreinterpretq_bf16_f32(vdupq_n_f32(a)),
                           vreinterpretq_bf16_f32((float32x4_t)b));
#else
    (void)a, (void)b;
    return sum; /* never called: there is no micro-kernel of pairs (WITH_PAIRS) */
#endif
}

/* Can rows of two tensors be multiplied as pairs? A row has `segments` segments of `length` elements; those of A must
 * be contiguous. AMX takes 32 elements at a time. */
INLINE bool suits_pairs(lz_dtype a, int64_t stride_a, lz_dtype b, int64_t length, int64_t segments) {
    return HAS_PAIRS && a == LZ_BF16 && b == LZ_BF16 && stride_a == 1 && length % 2 == 0 &&
           (!HAS_TILES || length * segments % 32 == 0);
}

#if HAS_BFMMLA
/* acc += a b for a panel of pairs [depth][MR], where a[k] and a[k + 1] are a_k apart. BFMMLA multiplies two rows of
 * four bf16 numbers by two columns of four. It computes a square of four results, in the same order and with the same
 * rounding as two add_pairs each. Zipping two steps of k makes two words of each row neighbours. */
INLINE void add_squares(int64_t depth, const float *a, int64_t a_k, const float *b, vf acc[MR][NV]) {
    float32x4_t square[MR / 2][NR / 2];
    for (int r = 0; r < MR / 2; r++)
        for (int v = 0; v < NV; v++) {
            float32x4_t above = (float32x4_t)acc[2 * r][v], below = (float32x4_t)acc[2 * r + 1][v];
            square[r][2 * v] = vcombine_f32(vget_low_f32(above), vget_low_f32(below));
            square[r][2 * v + 1] = vcombine_f32(vget_high_f32(above), vget_high_f32(below));
        }
    for (int64_t k = 0; k < depth; k += 2, a += 2 * a_k, b += 2 * NR) {
        bfloat16x8_t rows[MR / 2], columns[NR / 2];
        bool both = k + 1 < depth; /* otherwise the second step is zeros */
        for (int i = 0; i < MR / 4; i++) {
            float32x4_t first = vld1q_f32(a + 4 * i), second = both ? vld1q_f32(a + a_k + 4 * i) : vdupq_n_f32(0);
            rows[2 * i] = vreinterpretq_bf16_f32(vzip1q_f32(first, second));
            rows[2 * i + 1] = vreinterpretq_bf16_f32(vzip2q_f32(first, second));
        }
        for (int i = 0; i < NR / 4; i++) {
            float32x4_t first = vld1q_f32(b + 4 * i), second = both ? vld1q_f32(b + NR + 4 * i) : vdupq_n_f32(0);
            columns[2 * i] = vreinterpretq_bf16_f32(vzip1q_f32(first, second));
            columns[2 * i + 1] = vreinterpretq_bf16_f32(vzip2q_f32(first, second));
        }
        for (int r = 0; r < MR / 2; r++)
            for (int c = 0; c < NR / 2; c++) square[r][c] = vbfmmlaq_f32(square[r][c], rows[r], columns[c]);
    }
    for (int r = 0; r < MR / 2; r++)
        for (int v = 0; v < NV; v++) {
            float32x4_t left = square[r][2 * v], right = square[r][2 * v + 1];
            acc[2 * r][v] = (vf)vcombine_f32(vget_low_f32(left), vget_low_f32(right));
            acc[2 * r + 1][v] = (vf)vcombine_f32(vget_high_f32(left), vget_high_f32(right));
        }
}
#endif

/* acc[r][v] += sum over k of a[r, k] b[k, v]. a[r, k] is at a[r a_row + k a_k]; b is a panel [depth][NR]. pairs: each
 * element is a word of two bf16 numbers. pairs, rows and a_row must be compile-time constants of the caller, so that
 * acc stays in registers. */
INLINE void add_products(bool pairs, int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_k,
                         const float *b, vf acc[MR][NV]) {
#if HAS_BFMMLA
    if (pairs && rows == MR && a_row == 1) {
        add_squares(depth, a, a_k, b, acc);
        return;
    }
#endif
#pragma GCC unroll 1
    for (int64_t k = 0; k < depth; k++, a += a_k, b += NR) {
        vf column[NV];
        for (int v = 0; v < NV; v++) column[v] = load(b + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < NV; v++)
                acc[r][v] = pairs ? add_pairs(acc[r][v], a[r * a_row], column[v])
                                  : acc[r][v] + a[r * a_row] * column[v];
    }
}
INLINE void clear(int rows, vf acc[MR][NV]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < NV; v++) acc[r][v] = (vf){0};
}
/* c[rows][ldc] = acc, or c + acc. */
INLINE void put(int rows, vf acc[MR][NV], float *c, int64_t ldc, bool add) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < NV; v++) {
            float *to = c + r * ldc + v * LANES;
            store(to, add ? load(to) + acc[r][v] : acc[r][v]);
        }
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* Products of whole numbers of 8 bits (int8_matmul) have words of several numbers too. With VNNI a word is four bytes.
 * Its instruction multiplies bytes without sign, which are numbers of B plus 128, by bytes with sign, and adds four
 * products to a sum of 32 bits; 128 times the sum of the row of A is subtracted in the end. Without VNNI a word is two
 * numbers of 16 bits. Sums are exact, so all processors have the same bits. */
#if defined(__AVX512VNNI__)
#define WORD_CODES 4
#else
#define WORD_CODES 2
#endif

typedef int32_t code_at __attribute__((may_alias)); /* a word of codes in a panel, which is an array of float */

/* sum + the products of the numbers in each word. */
INLINE vi add_codes(vi sum, int32_t a, vi b) {
#if defined(__AVX512VNNI__)
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)b, _mm512_set1_epi32(a));
#elif defined(__AVX512BW__)
    return sum + (vi)_mm512_madd_epi16(_mm512_set1_epi32(a), (__m512i)b);
#elif defined(__AVX2__)
    return sum + (vi)_mm256_madd_epi16(_mm256_set1_epi32(a), (__m256i)b);
#else
    return sum + (int32_t)(int16_t)a * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

/* Packs one panel: to[k][width] (k < depth) from width rows. A NULL row is all zeros. stride: in elements. */
#define pack_panel ISA(lz_pack_panel)
void pack_panel(float *to, int64_t width, const char *const *rows, lz_dtype dtype, int64_t stride, int64_t depth);
/* The same for bf16 rows, in pairs: to[k][width] words, k < depth, each of two elements that are stride apart. */
#define pack_pairs ISA(lz_pack_pairs)
void pack_pairs(float *to, int64_t width, const char *const *rows, int64_t stride, int64_t depth);
/* As pack_panel, for any multiple of LANES rows, with to[k] ld apart. */
#define pack_strip ISA(lz_pack_strip)
void pack_strip(float *to, int64_t ld, const char *const *rows, int64_t count, lz_dtype dtype, int64_t stride,
                int64_t depth);

/* Stores c[rows][ldc] to out[row + i, col ...] with finish_row, or directly if there is no epilogue and no
 * conversion. */
#define finish_rows ISA(lz_finish_rows)
void finish_rows(const lz_call *call, int64_t row, int64_t rows, int64_t col, int64_t n, float *c, int64_t ldc);

/* output_at is the address of out[row, col]. The hint prefetches NR columns of some rows from there on, which will soon
 * be written, while products are computed. It assumes evenly spaced rows; if they are not, the prefetch is useless but
 * harmless. Only for 8-bit and 16-bit results: large f32 results bypass the caches (expr.c). */
INLINE const char *output_at(const lz_call *call, int64_t row, int64_t col) {
    const lz_tensor *out = &call->out;
    return out->data + (row_offset(out, row) + col * out->strides[out->dims.n - 1]) * lz_dtype_size(out->dtype);
}
INLINE void expect_stores(const lz_call *call, const char *at, int64_t rows, int64_t col) {
    const lz_tensor *out = &call->out;
    int64_t size = lz_dtype_size(out->dtype), axes = out->dims.n;
    int64_t step = axes > 1 ? out->strides[axes - 2] * size : 0;
    if (size > 2) return;
    at += col * out->strides[axes - 1] * size;
    for (int64_t i = 0; i < rows; i++, at += step)
        for (int64_t byte = 0; byte < NR * size; byte += 64) __builtin_prefetch(at + byte, 1);
}

/* One side of a product. K consists of segments of the same length (matmul: one; conv2d: one for each tap of the
 * window); within a segment, the elements of a row are stride apart. */
typedef struct gemm_side {
    int64_t rows;
    lz_dtype dtype;
    int64_t stride;
    const void *source;
    const char *(*locate)(const void *source, int64_t batch, int64_t row, int64_t segment); /* NULL: all zeros */
    const packed_rows
        *packed; /* rows are unpacked instead, from here; of one segment and a stride of 1. NULL: they are not */
} gemm_side;

typedef enum gemm_shared { SHARE_NEITHER, SHARE_A, SHARE_B } gemm_shared;

typedef struct gemm {
    const lz_call *call; /* finish_row stores results to call->out, row = batch * a.rows + row of a */
    int64_t batch;
    int64_t segments, segment_length; /* K = segments * segment_length */
    gemm_side a, b;
    gemm_shared shared; /* the side that is packed once for all tasks */
    bool pairs;         /* elements are words of two bf16 numbers; dtype of both sides is LZ_F32 then */
    /* Elements are words of codes. A is quantised when it is packed, and shared; b.packed has the codes of B. */
    bool codes;
} gemm;

/* Changes the product to pairs, if both sides are bf16 and this processor has the instruction. */
INLINE void use_pairs(gemm *g) {
    if (!suits_pairs(g->a.dtype, g->a.stride, g->b.dtype, g->segment_length, g->segments)) return;
    g->pairs = true;
    g->segment_length /= 2;
    g->a.dtype = g->b.dtype = LZ_F32;
}

/* Packs columns k .. k + depth - 1 of the panel that starts at row. */
#define pack_side ISA(lz_pack_side)
void pack_side(const gemm *g, const gemm_side *side, int64_t batch, int64_t row, int64_t width, int64_t k,
               int64_t depth, float *to);
/* Copies rows of A for AMX (tiles.h), without transposing: one after another, depth words each. */
#define copy_rows ISA(lz_copy_rows)
void copy_rows(const gemm *g, int64_t batch, int64_t row, int64_t k, int64_t depth, float *to);

/* A row of A as words of codes, with what makes the products of the codes those of the numbers: they are
 * (sum - offset) * scale * (the scale of the weights). numbers: room for n floats, and words for n codes, both rounded
 * up to whole vectors. */
typedef struct code_row {
    float scale;
    int32_t offset;
} code_row;
#define quantise_row ISA(lz_quantise_row)
code_row quantise_row(const char *from, lz_dtype dtype, int64_t stride, int64_t n, int64_t rotate, float *numbers,
                      float *words);

#define run_gemm ISA(lz_run_gemm)
#define gemm_scratch ISA(lz_gemm_scratch)
void run_gemm(const gemm *g);
int64_t gemm_scratch(const gemm *g);

#endif
