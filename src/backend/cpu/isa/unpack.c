/* unpack.c: packed weights as numbers, 32 at a time: the formulas of op/packing_blocks.h written so that a run of 32 elements, all
 * of one block or of whole small blocks, becomes vector code. Every operation is rounded as it is there, so results are
 * the same bits. */
#include "backend/cpu/isa/unpack.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "op/packing_blocks.h"

#define RUN 32
#define STAGE 256 /* elements unpacked at a time; at least LZ_PACKING_MAX_ROTATE */

/* ---- runs of each packing ------------------------------------------------------------------------------------------ */

/* Runs first .. first + n - 1 of a row. */
typedef void run_reader(const uint8_t *row, int64_t first, int64_t n, float *to);

#define RUNS(name, ...)                                                                                                \
    static void runs_##name(const uint8_t *row, int64_t first, int64_t n, float *to) {                                 \
        for (int64_t run = first; run < first + n; run++, to += RUN) {                                                 \
            __asm__ volatile(""); /* vectors are along a run; across runs they would be kilobytes of shuffles */       \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef float vf_loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint8_t vu8 __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef int8_t vi8 __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef uint16_t vu16 __attribute__((vector_size(2 * LANES)));
typedef int16_t vi16 __attribute__((vector_size(2 * LANES)));

/* A vector of a run at i, and the numbers at i: codes of a byte, with and without sign. */
#define EACH_VECTOR for (int i = 0; i < RUN; i += LANES)
#define AT(x, i) (*(vf_loose *)((x) + (i)))
#if defined(__AVX512F__) /* GCC 12 takes three to six instructions for this one */
#define CODES(q, i) ((vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)((q) + (i)))))
#define SIGNED_CODES(q, i) ((vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)((q) + (i)))))
#elif defined(__AVX2__)
#define CODES(q, i) ((vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)((q) + (i)))))
#define SIGNED_CODES(q, i) ((vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)((q) + (i)))))
#else
#define CODES(q, i) WIDEN(*(const vu8 *)((q) + (i)), vu16)
#define SIGNED_CODES(q, i) WIDEN(*(const vi8 *)((q) + (i)), vi16)
#define WIDEN(bytes, by) (__builtin_convertvector(__builtin_convertvector(bytes, by), vi))
#endif
#define FLOATS(codes) (__builtin_convertvector(codes, vf))
/* One number at a time, where that is hard to say of vectors; the compiler may find a way. */
#define EACH(count) _Pragma("GCC ivdep") for (int i = 0; i < (count); i++)

/* Some bits of each of 32 bytes, and the halves of 16 bytes: first all low ones, then all high ones. */
typedef uint16_t words16 __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint8_t bytes16 __attribute__((vector_size(16), aligned(1), may_alias));
#define BITS(q, shift, mask) (*(const words16 *)(q) >> (uint16_t)(shift) & (uint16_t)((mask)*0x101))
static inline void split_apart(const uint8_t *q, uint8_t codes[RUN]) {
    bytes16 both = *(const bytes16 *)q;
    *(bytes16 *)codes = both & 15;
    *(bytes16 *)(codes + 16) = both >> 4;
}

static inline uint32_t bits_of(const uint8_t *p) { return word(p) | word(p + 2) << 16; }

static const float iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const float e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* twice the values */

/* Blocks of 32: byte i of q holds elements i and i + 16. */
RUNS(Q4_0, {
    const uint8_t *b = row + run * 18;
    uint8_t c[RUN];
    float d = half(b);
    split_apart(b + 2, c);
    EACH_VECTOR AT(to, i) = d * FLOATS(CODES(c, i) - 8);
})
RUNS(Q4_1, {
    const uint8_t *b = row + run * 20;
    uint8_t c[RUN];
    float d = half(b), m = half(b + 2);
    split_apart(b + 4, c);
    EACH_VECTOR AT(to, i) = d * FLOATS(CODES(c, i)) + m;
})
RUNS(Q5_0, {
    const uint8_t *b = row + run * 22, *q = b + 6;
    float d = half(b);
    uint32_t h = bits_of(b + 2);
    EACH(16) to[i] = d * (float)((int)((q[i] & 15u) | (h >> i & 1u) << 4) - 16);
    EACH(16) to[i + 16] = d * (float)((int)((uint32_t)(q[i] >> 4) | (h >> (i + 16) & 1u) << 4) - 16);
})
RUNS(Q5_1, {
    const uint8_t *b = row + run * 24, *q = b + 8;
    float d = half(b), m = half(b + 2);
    uint32_t h = bits_of(b + 4);
    EACH(16) to[i] = d * (float)(int)((q[i] & 15u) | (h >> i & 1u) << 4) + m;
    EACH(16) to[i + 16] = d * (float)(int)((uint32_t)(q[i] >> 4) | (h >> (i + 16) & 1u) << 4) + m;
})
RUNS(Q8_0, {
    const uint8_t *b = row + run * 34;
    float d = half(b);
    EACH_VECTOR AT(to, i) = d * FLOATS(SIGNED_CODES(b + 2, i));
})
RUNS(IQ4_NL, {
    const uint8_t *b = row + run * 18, *q = b + 2;
    float d = half(b);
    EACH(16) to[i] = d * iq4_values[q[i] & 15];
    EACH(16) to[i + 16] = d * iq4_values[q[i] >> 4];
})
RUNS(MXFP4, {
    const uint8_t *b = row + run * 17, *q = b + 1;
    float d = b[0] < 2 ? lz_bits_to_float(0x00200000u << b[0]) : lz_bits_to_float((uint32_t)(b[0] - 1) << 23);
    EACH(16) to[i] = d * e2m1_values[q[i] & 15];
    EACH(16) to[i + 16] = d * e2m1_values[q[i] >> 4];
})
RUNS(NVFP4, {
    const uint8_t *b = row + run / 2 * 36;
    for (int k = 0; k < 2; k++) {
        int64_t of = run % 2 * 2 + k; /* sixteen of the block */
        const uint8_t *q = b + 4 + 8 * of;
        uint8_t e = b[of] & 0x7f;
        float d = e == 0x7f ? 0.0f : lz_from_f8(e) * 0.5f;
        EACH(8) to[16 * k + i] = d * e2m1_values[q[i] & 15];
        EACH(8) to[16 * k + i + 8] = d * e2m1_values[q[i] >> 4];
    }
})

/* Blocks of 256: run j of eight. */
RUNS(Q2_K, {
    const uint8_t *b = row + run / 8 * 84;
    uint8_t c[RUN];
    int j = (int)(run % 8);
    float d = half(b + 80), m = half(b + 82);
    *(words16 *)c = BITS(b + 16 + 32 * (j / 4), 2 * (j % 4), 3);
    EACH_VECTOR {
        int s = b[2 * j + i / 16];
        AT(to, i) = d * (float)(s & 15) * FLOATS(CODES(c, i)) - m * (float)(s >> 4);
    }
})
RUNS(Q3_K, {
    const uint8_t *b = row + run / 8 * 110, *s = b + 96;
    uint8_t c[RUN];
    int j = (int)(run % 8);
    float d = half(b + 108);
    *(words16 *)c = BITS(b + 32 + 32 * (j / 4), 2 * (j % 4), 3) + BITS(b, j, 1) * 4;
    EACH_VECTOR {
        int of = 2 * j + i / 16, scale = (s[of % 8] >> 4 * (of / 8) & 15) + 16 * (s[8 + of % 4] >> 2 * (of / 4) & 3);
        AT(to, i) = d * (float)(scale - 32) * FLOATS(CODES(c, i) - 4);
    }
})
RUNS(Q4_K, {
    const uint8_t *b = row + run / 8 * 144;
    uint8_t c[RUN];
    int j = (int)(run % 8);
    int six[2];
    scale_and_minimum(b + 4, j, &six[0], &six[1]);
    float scale = half(b) * (float)six[0], minimum = half(b + 2) * (float)six[1];
    *(words16 *)c = BITS(b + 16 + 32 * (j / 2), 4 * (j % 2), 15);
    EACH_VECTOR AT(to, i) = scale * FLOATS(CODES(c, i)) - minimum;
})
RUNS(Q5_K, {
    const uint8_t *b = row + run / 8 * 176;
    uint8_t c[RUN];
    int j = (int)(run % 8);
    int six[2];
    scale_and_minimum(b + 4, j, &six[0], &six[1]);
    float scale = half(b) * (float)six[0], minimum = half(b + 2) * (float)six[1];
    *(words16 *)c = BITS(b + 48 + 32 * (j / 2), 4 * (j % 2), 15) + BITS(b + 16, j, 1) * 16;
    EACH_VECTOR AT(to, i) = scale * FLOATS(CODES(c, i)) - minimum;
})
RUNS(Q6_K, {
    const uint8_t *b = row + run / 8 * 210;
    uint8_t c[RUN];
    int j = (int)(run % 8), g = j / 4, t = j % 4;
    float d = half(b + 208);
    *(words16 *)c = BITS(b + 64 * g + 32 * (t % 2), 4 * (t / 2), 15) + BITS(b + 128 + 32 * g, 2 * t, 3) * 16;
    EACH_VECTOR AT(to, i) = d * (float)(int8_t)b[192 + 2 * j + i / 16] * FLOATS(CODES(c, i) - 32);
})
RUNS(IQ4_XS, {
    const uint8_t *b = row + run / 8 * 136;
    int j = (int)(run % 8), scale = (b[4 + j / 2] >> 4 * (j % 2) & 15) + 16 * (int)(word(b + 2) >> 2 * j & 3) - 32;
    const uint8_t *q = b + 8 + 16 * j;
    float d = half(b) * (float)scale;
    EACH(16) to[i] = d * iq4_values[q[i] & 15];
    EACH(16) to[i + 16] = d * iq4_values[q[i] >> 4];
})

/* Codes without scales. Multiplying by a power of two moves the bias of an exponent, and is exact for subnormals too. */
RUNS(E4M3, {
    const uint8_t *b = row + run * RUN;
    EACH_VECTOR {
        vi x = CODES(b, i), size = x & 0x7f, nan = size == 0x7f, sign = (vi)((vu)(x & 0x80) << 24);
        AT(to, i) = (vf)(((vi)((vf)(size << 20) * 0x1p120f) | (nan & 0x7fc00000)) | sign);
    }
})
RUNS(E5M2, {
    const uint8_t *b = row + run * RUN;
    EACH_VECTOR {
        vi x = CODES(b, i), size = x & 0x7f, infinite = size > 0x7b, sign = (vi)((vu)(x & 0x80) << 24);
        AT(to, i) = (vf)(((vi)((vf)(size << 21) * 0x1p112f) | (infinite & 0x7f800000)) | sign);
    }
})
RUNS(I8, { EACH_VECTOR AT(to, i) = FLOATS(SIGNED_CODES(row + run * RUN, i)); })
RUNS(U8, { EACH_VECTOR AT(to, i) = FLOATS(CODES(row + run * RUN, i)); })

/* Sixteen bytes are 32 codes, the halves of each one after the other. */
static inline void split_halves(const uint8_t *b, bool high_first, uint8_t codes[RUN]) {
    bytes16 both = *(const bytes16 *)b, low = both & 15, high = both >> 4;
    bytes16 even = high_first ? high : low, odd = high_first ? low : high;
    *(bytes16 *)codes = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *(bytes16 *)(codes + 16) = __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                                       15, 31);
}
#define HALVES(name, high_first, ...)                                                                                  \
    RUNS(name, {                                                                                                       \
        uint8_t c[RUN];                                                                                                \
        split_halves(row + run * 16, high_first, c);                                                                   \
        EACH_VECTOR { __VA_ARGS__ }                                                                                    \
    })
/* 0 .5 1 1.5 2 3 4 6, the fourth bit is the sign: from 1 on, two bits of exponent and one of mantissa. */
HALVES(E2M1, true, {
    vi x = CODES(c, i), size = x & 7, sign = (vi)((vu)(x & 8) << 28), small = size < 2;
    AT(to, i) = (vf)((small & -size & 0x3f000000) | (~small & (size + 252) << 22) | sign);
})
HALVES(I4, false, { AT(to, i) = FLOATS(CODES(c, i) - 8); })
HALVES(S4, false, { AT(to, i) = FLOATS((CODES(c, i) ^ 8) - 8); })
HALVES(U4, false, { AT(to, i) = FLOATS(CODES(c, i)); })

RUNS(U2, {
    const uint8_t *b = row + run * 8;
    EACH(RUN) to[i] = (float)(b[i / 4] >> 2 * (i % 4) & 3);
})
RUNS(U3, {
    const uint8_t *b = row + run * 12;
    EACH(RUN) to[i] = (float)((word(b + i / 8 * 3) | (uint32_t)b[i / 8 * 3 + 2] << 16) >> 3 * (i % 8) & 7);
})
RUNS(U5, {
    const uint8_t *b = row + run * 20;
    EACH(RUN) to[i] = (float)((bits_of(b + i / 8 * 5) | (uint64_t)b[i / 8 * 5 + 4] << 32) >> 5 * (i % 8) & 31);
})
RUNS(U6, {
    const uint8_t *b = row + run * 24;
    EACH(RUN) to[i] = (float)((word(b + i / 4 * 3) | (uint32_t)b[i / 4 * 3 + 2] << 16) >> 6 * (i % 4) & 63);
})

static run_reader *const readers[LZ_PACKING_COUNT] = {
#define X(id, ...) [LZ_PACKING_##id] = runs_##id,
    LZ_PACKINGS(X)
#undef X
};

/* ---- scales -------------------------------------------------------------------------------------------------------- */

/* The scales of a row of codes. */
static lz_scale_row scales_of(const packed_rows *p, int i, int64_t row) {
    if (i >= p->n_in) return (lz_scale_row){0};
    const lz_tensor *t = &p->in[i], *codes = &p->in[0];
    int64_t rows = codes->dims.at[codes->dims.n - 2], shared = t->dims.at[t->dims.n - 2];
    int64_t at = row / rows * shared + row % rows / p->params->unpack.row_group;
    return (lz_scale_row){t->data + row_offset(t, at) * lz_dtype_size(t->dtype), t->dtype, t->strides[t->dims.n - 1]};
}

static void apply_scales(const packed_rows *p, int64_t row, int64_t from, int64_t n, float *x) {
    float factor = p->params->unpack.factor;
    int64_t group = p->params->unpack.group;
    lz_scale_row scales = scales_of(p, 1, row), offsets = scales_of(p, 2, row);
    if (!scales.data) {
        if (factor == 1.0f) return;
        for (int64_t i = 0; i < n; i++) x[i] *= factor;
        return;
    }
    for (int64_t at = 0, length; at < n; at += length, x += length) {
        int64_t j = (from + at) / group, left = (j + 1) * group - (from + at);
        length = left < n - at ? left : n - at;
        float scale = factor * lz_scale_at(&scales, j);
        for (int64_t i = 0; i < length; i++) x[i] *= scale;
        if (!offsets.data) continue;
        float offset = lz_scale_at(&offsets, j);
        for (int64_t i = 0; i < length; i++) x[i] += offset;
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

/* Columns from .. from + n - 1, unrounded. from is a multiple of RUN and of the rotation, n too or it ends the row. Room is
 * for n in whole runs. */
static void unpack_runs(const packed_rows *p, int64_t row, int64_t from, int64_t n, float *to) {
    lz_packing packing = (lz_packing)p->params->unpack.packing;
    const lz_packing_info *info = &lz_packing_table[packing];
    const uint8_t *codes = (const uint8_t *)p->in[0].data + row_offset(&p->in[0], row);
    /* Blocks of many elements are there to their end; of others no byte is read beyond the row. */
    int64_t runs = info->elements >= RUN ? (n + RUN - 1) / RUN : n / RUN;
    /* Products go on with the same columns of other rows: what comes next in this one is fetched meanwhile. */
    const uint8_t *next = codes + (from + n) / info->elements * info->bytes;
    for (int64_t byte = 0; byte < n * info->bytes / info->elements; byte += 64) __builtin_prefetch(next + byte);
    readers[packing](codes, from / RUN, runs, to);
    for (int64_t i = runs * RUN; i < n; i++) to[i] = lz_unpack_element(packing, codes, from + i);
    apply_scales(p, row, from, n, to);
    int64_t g = p->params->unpack.rotate;
    for (int64_t i = 0; g && i < n; i += g) rotate_group(to + i, g);
}

/* The next columns of a row: unpacks up to STAGE of them around `from`. *values: where `from` is. Returns how many of n are
 * there. */
static int64_t stage(const packed_rows *p, int64_t row, int64_t from, int64_t n, float *staged, const float **values) {
    int64_t unit = p->params->unpack.rotate > RUN ? p->params->unpack.rotate : RUN, first = from / unit * unit;
    int64_t end = (from + n + unit - 1) / unit * unit;
    if (end > first + STAGE) end = first + STAGE;
    if (end > p->columns) end = p->columns;
    unpack_runs(p, row, first, end - first, staged);
    *values = staged + (from - first);
    return end - from < n ? end - from : n;
}

void unpack_floats(const packed_rows *p, int64_t row, int64_t from, int64_t n, float *to) {
    float staged[STAGE];
    const float *values;
    for (int64_t some; n > 0; from += some, to += some, n -= some) {
        some = stage(p, row, from, n, staged, &values);
        if (p->params->unpack.type == LZ_BF16)
            for (int64_t i = 0; i < some; i++) to[i] = lz_from_bf16(lz_to_bf16(values[i]));
        else if (p->params->unpack.type == LZ_F16)
            for (int64_t i = 0; i < some; i++) to[i] = lz_from_f16(lz_to_f16(values[i]));
        else
            memcpy(to, values, (size_t)some * sizeof *to);
    }
}

void unpack_bf16(const packed_rows *p, int64_t row, int64_t from, int64_t n, uint16_t *to) {
    float staged[STAGE];
    const float *values;
    for (int64_t some; n > 0; from += some, to += some, n -= some) {
        some = stage(p, row, from, n, staged, &values);
        for (int64_t i = 0; i < some; i++) to[i] = lz_to_bf16(values[i]);
    }
}

/* ---- the op -------------------------------------------------------------------------------------------------------- */

static void unpack_row(void *arg, int64_t row, int thread) {
    (void)thread;
    const lz_call *call = arg;
    const lz_tensor *out = &call->out;
    int last = out->dims.n - 1;
    packed_rows p = {call->params, call->in, call->n_core, out->dims.at[last]};
    char *to = out->data + row_offset(out, row) * lz_dtype_size(out->dtype);
    int64_t step = out->strides[last] * lz_dtype_size(out->dtype);
    float staged[STAGE];
    const float *values;
    for (int64_t from = 0, n; from < p.columns; from += n, to += n * step) {
        n = stage(&p, row, from, p.columns - from, staged, &values);
        write_floats(to, values, out->dtype, out->strides[last], n);
    }
}

static bool unpack(const lz_call *call) {
    lz_parallel(call->pool, row_count(&call->out), unpack_row, (void *)call);
    return true;
}

static bool can_unpack(const lz_call *call) {
    const lz_tensor *codes = &call->in[0];
    int last = codes->dims.n - 1;
    return codes->strides[last] == 1 || codes->dims.at[last] == 1;
}

const lz_kernel ISA(lz_kernel_unpack) = {.name = "cpu.unpack", .run = unpack, .can = can_unpack};
