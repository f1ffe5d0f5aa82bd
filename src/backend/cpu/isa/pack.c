/* pack.c: packs rows of matrices into the panels that the products read (gemm.h). Packing converts bf16, f16, fp8 and
 * packed weights (unpack.h) to f32 and makes transposed matrices and image windows contiguous, so the inner loop of a
 * product has one form. */
#include "backend/cpu/isa/tiles.h"

typedef uint16_t vu16 __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* Loads LANES neighbouring elements. Only f32 and bf16, the common types; others are converted in a buffer
 * (transpose_staged). */
INLINE vf load_as(lz_dtype dtype, const char *row, int64_t k) {
    if (dtype == LZ_F32) return load((const float *)row + k);
    return (vf)(__builtin_convertvector(*(const vu16 *)(row + 2 * k), vi) << 16);
}

/* to[k ld + i] = rows[i][k] for i < present <= LANES. If present is less than LANES, it must equal ld: a full store
 * then writes into the elements of the next k, which are stored afterwards; the last store of a square stays inside. */
INLINE void transpose_rows(float *to, int64_t ld, const char *const *rows, int64_t present, bool no_null,
                           lz_dtype dtype, int64_t depth) {
    int64_t k = 0;
    for (; k + LANES <= depth; k += LANES) {
        vf x[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            x[i] = i < present && (no_null || rows[i]) ? load_as(dtype, rows[i], k) : (vf){0};
        transpose(x);
#pragma GCC unroll 16
        for (int i = 0; i < LANES - 1; i++) store(to + (k + i) * ld, x[i]);
        memcpy(to + (k + LANES - 1) * ld, &x[LANES - 1], (size_t)present * sizeof(float));
    }
    int64_t size = lz_dtype_size(dtype);
    for (; k < depth; k++)
        for (int64_t i = 0; i < present; i++) {
            to[k * ld + i] = 0;
            if (rows[i] && dtype == LZ_F32) /* memcpy: pairs may be aligned to 2 bytes only. */
                memcpy(to + k * ld + i, rows[i] + k * size, sizeof *to);
            else if (rows[i])
                read_floats(to + k * ld + i, rows[i] + k * size, dtype, 1, 1);
        }
}

#define STAGE 64 /* elements of a row converted at a time, on the stack */

/* Rows of any type and stride: STAGE elements of each are converted to f32, then transposed. */
INLINE void transpose_staged(float *to, int64_t ld, const char *const *rows, int64_t present, lz_dtype dtype,
                             int64_t stride, int64_t depth) {
    float staged[LANES][STAGE];
    const char *from[LANES];
    int64_t step = stride * lz_dtype_size(dtype);
    for (int64_t k = 0; k < depth; k += STAGE) {
        int64_t n = smaller(STAGE, depth - k);
        for (int64_t i = 0; i < present; i++) {
            from[i] = rows[i] ? (const char *)staged[i] : NULL;
            if (rows[i] && dtype == LZ_F32 && stride == 1) /* memcpy: pairs may be aligned to 2 bytes only */
                memcpy(staged[i], rows[i] + k * step, (size_t)n * sizeof(float));
            else if (rows[i])
                read_floats(staged[i], rows[i] + k * step, dtype, stride, n);
        }
        transpose_rows(to + k * ld, ld, from, present, false, LZ_F32, n);
    }
}

INLINE void pack_by_transposing(float *to, int64_t ld, int64_t width, const char *const *rows, lz_dtype dtype,
                                int64_t stride, int64_t depth) {
    for (int64_t at = 0; at < width; at += LANES, rows += LANES, to += LANES) {
        int64_t present = smaller(LANES, width - at), found = 0;
        for (int64_t i = 0; i < present; i++) found += rows[i] != NULL;
        bool direct = stride == 1 && found == present;
        if (direct && dtype == LZ_F32)
            transpose_rows(to, ld, rows, present, true, LZ_F32, depth);
        else if (direct && dtype == LZ_BF16)
            transpose_rows(to, ld, rows, present, true, LZ_BF16, depth);
        else
            transpose_staged(to, ld, rows, present, dtype, stride, depth);
    }
}

/* Rows that are neighbours in memory (consecutive k are stride apart): copies width elements at a time. */
INLINE void pack_by_copying(float *to, int64_t ld, int64_t width, const char *first, int64_t present, lz_dtype dtype,
                            int64_t stride, int64_t depth) {
    int64_t step = stride * lz_dtype_size(dtype);
    for (int64_t k = 0; k < depth; k++, first += step, to += ld) {
        if (dtype != LZ_F32)
            read_floats(to, first, dtype, 1, present);
        else if (present == width)
            memcpy(to, first, (size_t)width * sizeof(float));
        else
            memcpy(to, first, (size_t)present * sizeof(float));
        for (int64_t i = present; i < width; i++) to[i] = 0;
    }
}

/* The number of rows, if they are neighbours in memory; otherwise 0. */
static int64_t neighbours(int64_t width, const char *const *rows, int64_t size) {
    int64_t present = 0;
    while (present < width && rows[present] && rows[present] == rows[0] + present * size) present++;
    for (int64_t i = present; i < width; i++)
        if (rows[i]) return 0;
    return present;
}

INLINE void pack_rows(float *to, int64_t ld, int64_t width, const char *const *rows, lz_dtype dtype, int64_t stride,
                      int64_t depth) {
    int64_t present = neighbours(width, rows, lz_dtype_size(dtype));
    if (present > 1)
        pack_by_copying(to, ld, width, rows[0], present, dtype, stride, depth);
    else
        pack_by_transposing(to, ld, width, rows, dtype, stride, depth);
}

void pack_panel(float *to, int64_t width, const char *const *rows, lz_dtype dtype, int64_t stride, int64_t depth) {
    if (width == NR)
        pack_rows(to, NR, NR, rows, dtype, stride, depth);
    else
        pack_rows(to, MR, MR, rows, dtype, stride, depth);
}

/* If the two elements of a pair are neighbours in memory, rows of pairs are rows of words. Otherwise (the stored
 * weights of a convolution) words are assembled first, a few of each row at a time. */
void pack_pairs(float *to, int64_t width, const char *const *rows, int64_t stride, int64_t depth) {
    enum { WORDS = 32 };
    uint32_t words[NR][WORDS];
    const char *from[NR];
    if (stride == 1) {
        pack_panel(to, width, rows, LZ_F32, 1, depth);
        return;
    }
    for (int64_t k = 0; k < depth; k += WORDS, to += WORDS * width) {
        int64_t n = smaller(WORDS, depth - k);
        for (int64_t i = 0; i < width; i++) {
            from[i] = NULL;
            if (!rows[i]) continue;
            const uint16_t *element = (const uint16_t *)rows[i] + 2 * k * stride;
            for (int64_t j = 0; j < n; j++, element += 2 * stride)
                words[i][j] = element[0] | (uint32_t)element[stride] << 16;
            from[i] = (const char *)words[i];
        }
        pack_panel(to, width, from, LZ_F32, 1, n);
    }
}

void pack_strip(float *to, int64_t ld, const char *const *rows, int64_t count, lz_dtype dtype, int64_t stride,
                int64_t depth) {
    for (int64_t i = 0; i < count; i += LANES) pack_rows(to + i, ld, LANES, rows + i, dtype, stride, depth);
}

/* As pack_side, of packed weights: a part of each row is unpacked, in f32 or as pairs of bf16, then transposed. */
static void pack_unpacked(const gemm *g, const gemm_side *side, int64_t row, int64_t width, int64_t k, int64_t depth,
                          float *to) {
    enum { WORDS = 128 };
    float staged[NR][WORDS];
    const char *rows[NR];
    for (int64_t end = k + depth, n; k < end; k += n, to += n * width) {
        n = smaller(WORDS - k % WORDS, end - k);
        for (int64_t i = 0; i < width; i++) {
            rows[i] = row + i < side->rows ? (const char *)staged[i] : NULL;
            if (!rows[i]) continue;
            if (g->pairs)
                unpack_bf16(side->packed, row + i, 2 * k, 2 * n, (uint16_t *)staged[i]);
            else
                unpack_floats(side->packed, row + i, k, n, staged[i]);
        }
        pack_panel(to, width, rows, LZ_F32, 1, n);
    }
}

/* Words of codes (gemm.h): word w of a row of n numbers of 8 bits, with zeros beyond the row. */
INLINE int32_t code_word(const uint8_t *row, int64_t w, int64_t n) {
    uint32_t word = 0;
    for (int64_t i = 0; i < WORD_CODES && w * WORD_CODES + i < n; i++) {
        uint32_t code = row[w * WORD_CODES + i];
        word |= WORD_CODES == 4 ? (code ^ 0x80) << 8 * i : (uint32_t)(uint16_t)(int16_t)(int8_t)code << 16 * i;
    }
    return (int32_t)word;
}

typedef uint8_t code_bytes __attribute__((vector_size(WORD_CODES * LANES), aligned(1), may_alias));
INLINE vf code_words(const uint8_t *row) {
#if WORD_CODES == 4
    return (vf)(*(const code_bytes *)row ^ 0x80);
#elif defined(__AVX512BW__)
    return (vf)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)row));
#elif defined(__AVX2__)
    return (vf)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)row));
#else
    vi words;
    for (int l = 0; l < LANES; l++) words[l] = code_word(row + WORD_CODES * l, 0, WORD_CODES);
    return (vf)words;
#endif
}

/* As pack_side, of the codes of int8_matmul: to[k][NR] words. Rows beyond the last repeat it. */
static void pack_codes(const gemm *g, int64_t row, int64_t k, int64_t depth, float *to) {
    const packed_rows *weights = g->b.packed;
    const uint8_t *data = (const uint8_t *)weights->in[0].data;
    int64_t n = weights->columns, whole = smaller(depth, n / WORD_CODES - k);
    for (int64_t at = 0; at < NR; at += LANES, to += LANES) {
        const uint8_t *rows[LANES];
        for (int64_t i = 0; i < LANES; i++)
            rows[i] = data + row_offset(&weights->in[0], smaller(row + at + i, g->b.rows - 1));
        int64_t done = 0;
        for (; done + LANES <= whole; done += LANES) {
            vf x[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) x[i] = code_words(rows[i] + (k + done) * WORD_CODES);
            transpose(x);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) store(to + (done + i) * NR, x[i]);
        }
        for (; done < depth; done++)
            for (int64_t i = 0; i < LANES; i++) {
                int32_t word = code_word(rows[i], k + done, n);
                memcpy(to + done * NR + i, &word, sizeof word);
            }
    }
}

void pack_side(const gemm *g, const gemm_side *side, int64_t batch, int64_t row, int64_t width, int64_t k,
               int64_t depth, float *to) {
    int64_t length = g->segment_length, size = lz_dtype_size(side->dtype);
    if (g->codes) {
        pack_codes(g, row, k, depth, to);
        return;
    }
    if (side->packed) {
        pack_unpacked(g, side, row, width, k, depth, to);
        return;
    }
    while (depth > 0) {
        int64_t segment = k / length, start = k % length, n = smaller(depth, length - start);
        const char *rows[NR];
        for (int64_t i = 0; i < width; i++) {
            const char *at = row + i < side->rows ? side->locate(side->source, batch, row + i, segment) : NULL;
            rows[i] = at ? at + start * side->stride * size : NULL;
        }
        if (g->pairs)
            pack_pairs(to, width, rows, side->stride, n);
        else
            pack_panel(to, width, rows, side->dtype, side->stride, n);
        to += n * width, k += n, depth -= n;
    }
}

void copy_rows(const gemm *g, int64_t batch, int64_t row, int64_t k, int64_t depth, float *to) {
    const gemm_side *side = &g->a;
    for (int64_t i = 0; i < PAIR_ROWS; i++, to += depth)
        for (int64_t at = 0, n; at < depth; at += n) {
            int64_t segment = (k + at) / g->segment_length, start = (k + at) % g->segment_length;
            n = smaller(depth - at, g->segment_length - start);
            const char *from = row + i < side->rows ? side->locate(side->source, batch, row + i, segment) : NULL;
            if (from)
                memcpy(to + at, from + 4 * start, (size_t)n * sizeof *to);
            else
                memset(to + at, 0, (size_t)n * sizeof *to);
        }
}
