/* gemm.c: the packed matrix product engine. Compile with -ffp-contract=fast: the inner products should use
 * fused multiply-adds. That affects sums of products only; epilogues run in finish_row (expr.c), which is compiled
 * without it.
 *
 * C is cut into tiles. A task computes one tile in an f32 buffer of its thread, in a loop over blocks of K; after the
 * last block, finished rows go to finish_row while they are in the cache. For each block of K, the rows of A and B that
 * the tile needs are packed into panels (pack.c). Usually one side (activations of a linear layer, weights of a
 * convolution) is small enough to be packed once for all tasks; the other side is packed by each task into a block that
 * stays in the L2 cache.
 *
 * Every element of C is the sum of its blocks of K in order, and within a block the sum in the order of k. Neither
 * depends on the tile, so results have the same bits for any number of threads, with or without an epilogue, and for
 * any M and N. matmul.c has one exception. */
#include <assert.h>

#include "backend/cpu/isa/tiles.h"

/* ---- the engine ------------------------------------------------------------------------------------------------- */

#define BLOCK_K 384           /* a panel of A, MR x BLOCK_K, stays in L1 */
#define BLOCK_N 256           /* a block of B, BLOCK_N x BLOCK_K, stays in L2 */
#define SHARED_BYTES 48000000 /* a shared side that is larger is packed in several chunks */
#define TILES_PER_THREAD 4    /* at least, if C is large enough, so that threads finish at about the same time */

typedef void panel_kernel(int64_t depth, const float *a, const float *b, float *c, int64_t ldc, bool add);
#define KERNEL_OF(name, pairs, rows)                                                                                   \
    static void name##_##rows(int64_t depth, const float *a, const float *b, float *c, int64_t ldc, bool add) {        \
        vf acc[MR][NV];                                                                                                \
        for (int r = 0; r < (rows); r++)                                                                               \
            for (int v = 0; v < NV; v++) __builtin_prefetch(c + r * ldc + v * LANES, 1);                               \
        clear(rows, acc);                                                                                              \
        add_products(pairs, rows, depth, a, 1, MR, b, acc);                                                            \
        put(rows, acc, c, ldc, add);                                                                                   \
    }
#define CODE_KERNEL(rows)                                                                                              \
    static void multiply_codes_##rows(int64_t depth, const float *a, const float *b, float *c, int64_t ldc,            \
                                      bool add) {                                                                      \
        add_code_products(rows, depth, a, b, c, ldc, add);                                                             \
    }
/* c[rows][ldc] = or += the products of panels of codes. */
INLINE void add_code_products(int rows, int64_t depth, const float *a, const float *b, float *c, int64_t ldc,
                              bool add) {
    vi acc[MR][NV];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < NV; v++) {
            __builtin_prefetch(c + r * ldc + v * LANES, 1);
            acc[r][v] = (vi){0};
        }
#pragma GCC unroll 1
    for (int64_t k = 0; k < depth; k++, a += MR, b += NR) {
        vi column[NV];
        for (int v = 0; v < NV; v++) column[v] = (vi)load(b + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < NV; v++) acc[r][v] = add_codes(acc[r][v], ((const code_at *)a)[r], column[v]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < NV; v++) {
            float *to = c + r * ldc + v * LANES;
            store(to, (vf)(add ? (vi)load(to) + acc[r][v] : acc[r][v]));
        }
}
#define KERNEL(rows)                                                                                                   \
    KERNEL_OF(multiply, false, rows) WITH_PAIRS(KERNEL_OF(multiply_pairs, true, rows)) CODE_KERNEL(rows)
ROW_COUNTS(KERNEL)
#define NAME(rows) multiply_##rows,
#define PAIRS_NAME(rows) multiply_pairs_##rows,
#define CODES_NAME(rows) multiply_codes_##rows,
static panel_kernel *const kernels[2][MR] = {{ROW_COUNTS(NAME)},
                                             WITH_PAIRS({ROW_COUNTS(PAIRS_NAME)})}; /* by gemm.pairs */
static panel_kernel *const code_kernels[MR] = {ROW_COUNTS(CODES_NAME)};

/* A product while it is computed; read by all threads. Sizes are in rows of A (m) and of B (n). */
typedef struct gemm_run {
    const gemm *g;
    int64_t k; /* all of K; it is processed block_k at a time */
    int64_t block_k;
    int64_t tile_m, tile_n;          /* multiples of panels */
    int64_t chunk_m, chunk_n;        /* C is computed in chunks, one after another; a chunk is a multiple of tiles */
    int64_t batch, first_m, first_n; /* start of the current chunk (batch: only if a side is shared) */
    int64_t tiles_m, tiles_n;        /* number of tiles in the current chunk */
    int64_t own_floats;              /* of one thread: its panels of A and of B, and its tile of C */
    float *shared;                   /* [block of k][panel][block_k][MR or NR] */
    float *own;
    code_row *code_rows; /* of gemm.codes: one for each row of A */
} gemm_run;

static const gemm_side *shared_side(const gemm *g) { return g->shared == SHARE_A ? &g->a : &g->b; }
static int64_t panel_rows(const gemm *g) { return g->pairs ? PAIR_ROWS : MR; } /* rows of A */
static int64_t panel_width(const gemm *g) { return g->shared == SHARE_A ? panel_rows(g) : NR; }

/* Makes tiles smaller until there are enough for all threads. */
static void cut_tiles(gemm_run *run, int threads) {
    const gemm *g = run->g;
    int64_t mr = panel_rows(g), wanted = (int64_t)threads * TILES_PER_THREAD;
    run->tile_m = smaller(run->tile_m, round_up(larger(1, g->a.rows), mr));
    run->tile_n = smaller(run->tile_n, round_up(larger(1, g->b.rows), NR));
    int64_t batch = g->shared == SHARE_NEITHER ? g->batch : 1;
    while (batch * parts_of(larger(1, g->a.rows), run->tile_m) * parts_of(larger(1, g->b.rows), run->tile_n) < wanted) {
        if (run->tile_m > run->tile_n && run->tile_m > 4 * mr)
            run->tile_m = round_up(run->tile_m / 2, mr);
        else if (run->tile_n > 2 * NR)
            run->tile_n = round_up(run->tile_n / 2, NR);
        else if (run->tile_m > 4 * mr)
            run->tile_m = round_up(run->tile_m / 2, mr);
        else
            break;
    }
}

/* Numbers of a row while it is quantised, and the words of a panel. */
static int64_t code_floats(const gemm_run *run) {
    return round_up(run->k * WORD_CODES, LANES) + MR * run->k + WORD_CODES * LANES;
}

static gemm_run plan_run(const gemm *g) {
    gemm_run run = {.g = g, .k = g->segments * g->segment_length};
    run.block_k = larger(1, round_up(parts_of(run.k, larger(1, parts_of(run.k, BLOCK_K))), LANES));
    /* The tile is longer on the shared side, because the other side is packed again for every tile. */
    run.tile_m = (g->shared == SHARE_A ? 3 : 1) * (264 / panel_rows(g)) * panel_rows(g);
    run.tile_n = (g->shared == SHARE_B ? 3 : 1) * BLOCK_N;
    cut_tiles(&run, lz_pool_threads(g->call->pool));

    run.chunk_m = round_up(g->a.rows, run.tile_m);
    run.chunk_n = round_up(g->b.rows, run.tile_n);
    int64_t most = SHARED_BYTES / (int64_t)sizeof(float) / larger(1, run.k);
    if (g->shared == SHARE_A) run.chunk_m = smaller(run.chunk_m, larger(1, most / run.tile_m) * run.tile_m);
    if (g->shared == SHARE_B) run.chunk_n = smaller(run.chunk_n, larger(1, most / run.tile_n) * run.tile_n);
    run.own_floats = (run.tile_m + run.tile_n) * run.block_k + run.tile_m * run.tile_n;
    if (g->codes) run.own_floats = larger(run.own_floats + run.tile_n, code_floats(&run));
    return run;
}

static int64_t shared_floats(const gemm_run *run) {
    if (run->g->shared == SHARE_NEITHER) return 0;
    return round_up(run->g->shared == SHARE_A ? run->chunk_m : run->chunk_n, panel_width(run->g)) * run->k;
}

int64_t gemm_scratch(const gemm *g) {
    gemm_run run = plan_run(g);
    int64_t floats = round_up(shared_floats(&run), LANES) + lz_pool_threads(g->call->pool) * run.own_floats;
    return floats * (int64_t)sizeof(float) + (g->codes ? g->a.rows * (int64_t)sizeof(code_row) : 0);
}

/* Rows of the current chunk of the shared side, rounded up to whole panels. */
static int64_t chunk_rows(const gemm_run *run) {
    bool is_a = run->g->shared == SHARE_A;
    int64_t left = is_a ? run->g->a.rows - run->first_m : run->g->b.rows - run->first_n;
    return round_up(smaller(left, is_a ? run->chunk_m : run->chunk_n), panel_width(run->g));
}
static float *shared_block(const gemm_run *run, int64_t row, int64_t k, int64_t depth) {
    return run->shared + k * chunk_rows(run) + row * depth;
}

/* Packs one panel of either side. */
static void pack_block(const gemm *g, const gemm_side *side, int64_t batch, int64_t row, int64_t width, int64_t k,
                       int64_t depth, float *to) {
    if (HAS_TILES && g->pairs && side == &g->a)
        copy_rows(g, batch, row, k, depth, to);
    else
        pack_side(g, side, batch, row, width, k, depth, to);
}

/* Quantises the rows of a panel of A, and packs their words. */
static void pack_code_panel(const gemm_run *run, int64_t row, int thread) {
    const gemm *g = run->g;
    const char *rows[MR] = {NULL}, *at[MR];
    float *numbers = run->own + thread * run->own_floats, *words = numbers + round_up(run->k * WORD_CODES, LANES);
    for (int64_t i = 0; i < smaller(MR, g->a.rows - run->first_m - row); i++) {
        int64_t of = run->first_m + row + i;
        const char *from = g->a.locate(g->a.source, 0, of, 0);
        run->code_rows[of] = quantise_row(from, g->a.dtype, g->a.stride, g->b.packed->columns,
                                          g->b.packed->params->unpack.rotate, numbers, words + i * run->k);
        rows[i] = (const char *)(words + i * run->k);
    }
    for (int64_t k = 0; k < run->k; k += run->block_k) {
        int64_t depth = smaller(run->block_k, run->k - k);
        for (int i = 0; i < MR; i++) at[i] = rows[i] ? rows[i] + 4 * k : NULL;
        pack_panel(shared_block(run, row, k, depth), MR, at, LZ_F32, 1, depth);
    }
}

static void pack_shared_panel(void *arg, int64_t panel, int thread) {
    const gemm_run *run = arg;
    int64_t width = panel_width(run->g), row = panel * width;
    if (run->g->codes) {
        pack_code_panel(run, row, thread);
        return;
    }
    int64_t first = run->g->shared == SHARE_A ? run->first_m : run->first_n;
    for (int64_t k = 0; k < run->k; k += run->block_k) {
        int64_t depth = smaller(run->block_k, run->k - k);
        pack_block(run->g, shared_side(run->g), run->batch, first + row, width, k, depth,
                   shared_block(run, row, k, depth));
    }
}

static void pack_own(const gemm_run *run, const gemm_side *side, int64_t batch, int64_t row, int64_t rows,
                     int64_t width, int64_t k, int64_t depth, float *to) {
    for (int64_t i = 0; i < rows; i += width) pack_block(run->g, side, batch, row + i, width, k, depth, to + i * depth);
}

/* A tile of C: its rows and columns inside the output, and their position there. */
typedef struct c_tile {
    const gemm_run *run;
    const lz_call *call;
    float *c;
    int64_t ldc, row, col, m, n;
    const float *scales; /* of gemm.codes: the scales of the columns */
} c_tile;

/* The scales of the weights of n columns, followed by zeros up to a whole panel. */
static void read_scales(const gemm *g, int64_t col, int64_t n, float *to) {
    const packed_rows *w = g->b.packed;
    const lz_tensor *t = &w->in[1];
    for (int64_t j = 0; j < round_up(n, NR); j++) {
        to[j] = j < n ? w->params->unpack.factor : 0;
        if (w->n_in < 2 || j >= n) continue;
        int64_t at = (col + j) / w->params->unpack.row_group * t->strides[0];
        lz_scale_row scale = {t->data + at * lz_dtype_size(t->dtype), t->dtype, 1};
        to[j] *= lz_scale_at(&scale, 0);
    }
}

/* Makes numbers of the sums of products of codes. */
static void scale_sums(const c_tile *t, int64_t i, int64_t rows, int64_t piece, int64_t end) {
    for (; rows > 0; rows--, i++) {
        code_row row = t->run->code_rows[t->row + i];
        float *c = t->c + i * t->ldc;
        for (int64_t j = piece; j < end; j += LANES)
            store(c + j, __builtin_convertvector((vi)load(c + j) - row.offset, vf) * row.scale * load(t->scales + j));
    }
}

/* c (+)= a b for packed blocks, BLOCK_N columns at a time, so that these columns of B stay in L2 during the loop over
 * A. last: this is the last block of K; rows are finished while they are in the cache. */
static void multiply_blocks(const float *a, const float *b, const c_tile *t, int64_t depth, bool add, bool last) {
    bool pairs = t->run->g->pairs, codes = t->run->g->codes;
    int64_t rows = pairs ? PAIR_ROWS : MR;
#if HAS_TILES
    if (pairs) tiles_begin();
#endif
    for (int64_t piece = 0; piece < t->n; piece += BLOCK_N) {
        int64_t end = smaller(t->n, piece + BLOCK_N);
        for (int64_t i = 0; i < t->m; i += rows) {
            int64_t some = smaller(rows, t->m - i);
            float *c = t->c + i * t->ldc;
            const char *out = last ? output_at(t->call, t->row + i, t->col) : NULL;
            for (int64_t j = piece; j < end; j += NR) {
                if (last) expect_stores(t->call, out, some, j);
#if HAS_TILES
                if (pairs) {
                    multiply_tiles(depth, a + i * depth, depth, b + j * depth, c + j, t->ldc, add);
                    continue;
                }
#endif
                panel_kernel *kernel = codes ? code_kernels[some - 1] : kernels[pairs][some - 1];
                assert(kernel); /* pairs are only used where there is a micro-kernel of pairs (use_pairs) */
                kernel(depth, a + i * depth, b + j * depth, c + j, t->ldc, add);
            }
            if (last && codes) scale_sums(t, i, some, piece, end);
            if (last) finish_rows(t->call, t->row + i, some, t->col + piece, end - piece, c + piece, t->ldc);
        }
    }
#if HAS_TILES
    if (pairs) tiles_end();
#endif
}

void finish_rows(const lz_call *call, int64_t row, int64_t rows, int64_t col, int64_t n, float *c, int64_t ldc) {
    const lz_tensor *out = &call->out;
    int64_t stride = out->strides[out->dims.n - 1];
    bool plain = !call->expr && out->dtype == LZ_F32 && stride == 1;
    for (int64_t i = 0; i < rows; i++, c += ldc) {
        if (plain)
            memcpy((float *)out->data + row_offset(out, row + i) + col, c, (size_t)n * sizeof(float));
        else
            finish_row(call, row + i, col, c, n);
    }
}

static void compute_tile(void *arg, int64_t tile, int thread) {
    const gemm_run *run = arg;
    const gemm *g = run->g;
    int64_t j = tile % run->tiles_n, i = tile / run->tiles_n % run->tiles_m;
    int64_t batch = run->batch + tile / run->tiles_n / run->tiles_m;
    int64_t row = run->first_m + i * run->tile_m, col = run->first_n + j * run->tile_n;
    int64_t m = smaller(run->tile_m, g->a.rows - row), n = smaller(run->tile_n, g->b.rows - col);
    float *own_a = run->own + thread * run->own_floats;
    float *own_b = own_a + run->tile_m * run->block_k;
    float *own_c = own_b + run->tile_n * run->block_k, *scales = own_c + run->tile_m * run->tile_n;
    const c_tile t = {run, g->call, own_c, run->tile_n, batch * g->a.rows + row, col, m, n, scales};
    if (g->codes) read_scales(g, col, n, scales);

    for (int64_t k = 0; k < run->k; k += run->block_k) {
        int64_t depth = smaller(run->block_k, run->k - k);
        const float *a = own_a, *b = own_b;
        if (g->shared == SHARE_A)
            a = shared_block(run, row - run->first_m, k, depth);
        else
            pack_own(run, &g->a, batch, row, m, panel_rows(g), k, depth, own_a);
        if (g->shared == SHARE_B)
            b = shared_block(run, col - run->first_n, k, depth);
        else
            pack_own(run, &g->b, batch, col, n, NR, k, depth, own_b);
        multiply_blocks(a, b, &t, depth, k > 0, k + depth == run->k);
    }
    if (run->k > 0) return;
    memset(t.c, 0, (size_t)(m * run->tile_n) * sizeof(float));
    finish_rows(t.call, t.row, m, col, n, t.c, run->tile_n);
}

static void run_chunk(gemm_run *run, int64_t batches) {
    const gemm *g = run->g;
    run->tiles_m = parts_of(smaller(run->chunk_m, g->a.rows - run->first_m), run->tile_m);
    run->tiles_n = parts_of(smaller(run->chunk_n, g->b.rows - run->first_n), run->tile_n);
    if (g->shared != SHARE_NEITHER)
        lz_parallel(g->call->pool, chunk_rows(run) / panel_width(g), pack_shared_panel, run);
    lz_parallel(g->call->pool, batches * run->tiles_m * run->tiles_n, compute_tile, run);
}

void run_gemm(const gemm *g) {
    gemm_run run = plan_run(g);
    run.shared = (float *)g->call->scratch;
    run.own = run.shared + round_up(shared_floats(&run), LANES);
    run.code_rows = (code_row *)(run.own + lz_pool_threads(g->call->pool) * run.own_floats);
    int64_t batches = g->shared == SHARE_NEITHER ? g->batch : 1; /* batches at a time */
    for (run.batch = 0; run.batch < g->batch; run.batch += batches)
        for (run.first_m = 0; run.first_m < g->a.rows; run.first_m += run.chunk_m)
            for (run.first_n = 0; run.first_n < g->b.rows; run.first_n += run.chunk_n) run_chunk(&run, batches);
}
