/* tiles.h: products of bf16 with AMX, Intel's unit for small matrices. It has eight registers, the tiles, of 16 rows of
 * 64 bytes. One instruction multiplies 16 x 32 bf16 numbers by 32 x 16 others and adds the products to a tile of 16 x
 * 16 sums in f32.
 *
 * A block of C is 32 x 32: four tiles of sums, two of A, two of B. B is a panel of gemm.h, [k][32] words of two bf16
 * numbers, which is the layout that the instruction needs. A is not transposed: rows of words, one after another. The
 * depth is a multiple of TILE_WORDS. All 32 rows and columns are computed, so A and B must have zeros beyond the
 * matrix, and C must have space there.
 *
 * Each thread has its own tiles. tiles_begin configures them and tiles_end releases them, around the products of one
 * block of K and, for the last block, the epilogue of its rows. With LZ_TILES_IN_C the instructions are emulated in C,
 * for tests on processors without AMX. */
#ifndef LZ_TILES_H
#define LZ_TILES_H

#include "backend/cpu/isa/gemm.h"

#define TILE_WORDS 16 /* of a row of a tile */

#if HAS_TILES
#if defined(LZ_TILES_IN_C)

static _Thread_local struct { uint32_t word[16][TILE_WORDS]; } tiles[8];

#define tile_clear(t) memset(&tiles[t], 0, sizeof tiles[t])
INLINE void tile_read(int t, const float *from, int64_t ld) {
    for (int i = 0; i < 16; i++) memcpy(tiles[t].word[i], from + i * ld, sizeof tiles[t].word[i]);
}
INLINE void tile_write(int t, float *to, int64_t ld) {
    for (int i = 0; i < 16; i++) memcpy(to + i * ld, tiles[t].word[i], sizeof tiles[t].word[i]);
}
INLINE void tile_multiply(int c, int a, int b) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float sum = lz_bits_to_float(tiles[c].word[i][j]);
            for (int k = 0; k < TILE_WORDS; k++)
                for (int half = 0; half < 32; half += 16)
                    sum += lz_from_bf16((uint16_t)(tiles[a].word[i][k] >> half)) *
                           lz_from_bf16((uint16_t)(tiles[b].word[k][j] >> half));
            tiles[c].word[i][j] = lz_float_to_bits(sum);
        }
}
INLINE void tiles_begin(void) {}
INLINE void tiles_end(void) {}

#else

#define tile_clear(t) _tile_zero(t)
#define tile_read(t, from, ld) _tile_loadd(t, from, (ld)*4)
#define tile_write(t, to, ld) _tile_stored(t, to, (ld)*4)
#define tile_multiply(c, a, b) _tile_dpbf16ps(c, a, b)

INLINE void tiles_begin(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++) shape.row_bytes[i] = 64, shape.rows[i] = 16;
    __asm__ volatile("" ::: "memory"); /* GCC 12 does not know that shape is read, nor which memory tiles access */
    _tile_loadconfig(&shape);
}
INLINE void tiles_end(void) {
    _tile_release();
    __asm__ volatile("" ::: "memory");
}

#endif /* LZ_TILES_IN_C */

/* c[32][ldc] (+)= a b; a[32][lda] words, b[depth][NR] words. */
INLINE void multiply_tiles(int64_t depth, const float *a, int64_t lda, const float *b, float *c, int64_t ldc,
                           bool add) {
    if (add) {
        tile_read(0, c, ldc);
        tile_read(1, c + 16, ldc);
        tile_read(2, c + 16 * ldc, ldc);
        tile_read(3, c + 16 * ldc + 16, ldc);
    } else {
        tile_clear(0);
        tile_clear(1);
        tile_clear(2);
        tile_clear(3);
    }
    for (int64_t k = 0; k < depth; k += TILE_WORDS) {
        tile_read(6, b + k * NR, NR);
        tile_read(4, a + k, lda);
        tile_multiply(0, 4, 6);
        tile_read(7, b + k * NR + 16, NR);
        tile_multiply(1, 4, 7);
        tile_read(5, a + 16 * lda + k, lda);
        tile_multiply(2, 5, 6);
        tile_multiply(3, 5, 7);
    }
    tile_write(0, c, ldc);
    tile_write(1, c + 16, ldc);
    tile_write(2, c + 16 * ldc, ldc);
    tile_write(3, c + 16 * ldc + 16, ldc);
}

#endif /* HAS_TILES */
#endif
