/* gemm.c: the packed matrix product engine, and matmul. Compile with -ffp-contract=fast: the inner products should use
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
 * any M and N. There is one exception: if A has few rows, packing B would cost more than the product, so a second
 * variant computes dot products directly from memory, with one partial sum per vector lane. */
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
#define KERNEL(rows) KERNEL_OF(multiply, false, rows) WITH_PAIRS(KERNEL_OF(multiply_pairs, true, rows))
ROW_COUNTS(KERNEL)
#define NAME(rows) multiply_##rows,
#define PAIRS_NAME(rows) multiply_pairs_##rows,
static panel_kernel *const kernels[2][MR] = {{ROW_COUNTS(NAME)},
                                             WITH_PAIRS({ROW_COUNTS(PAIRS_NAME)})}; /* by gemm.pairs */

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
    return run;
}

static int64_t shared_floats(const gemm_run *run) {
    if (run->g->shared == SHARE_NEITHER) return 0;
    return round_up(run->g->shared == SHARE_A ? run->chunk_m : run->chunk_n, panel_width(run->g)) * run->k;
}

int64_t gemm_scratch(const gemm *g) {
    gemm_run run = plan_run(g);
    int64_t floats = round_up(shared_floats(&run), LANES) + lz_pool_threads(g->call->pool) * run.own_floats;
    return floats * (int64_t)sizeof(float);
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

static void pack_shared_panel(void *arg, int64_t panel, int thread) {
    (void)thread;
    const gemm_run *run = arg;
    int64_t width = panel_width(run->g), row = panel * width;
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
    const lz_call *call;
    float *c;
    int64_t ldc, row, col, m, n;
} c_tile;

/* c (+)= a b for packed blocks, BLOCK_N columns at a time, so that these columns of B stay in L2 during the loop over
 * A. last: this is the last block of K; rows are finished while they are in the cache. */
static void multiply_blocks(bool pairs, const float *a, const float *b, const c_tile *t, int64_t depth, bool add,
                            bool last) {
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
                panel_kernel *kernel = kernels[pairs][some - 1];
                assert(kernel); /* pairs are only used where there is a micro-kernel of pairs (use_pairs) */
                kernel(depth, a + i * depth, b + j * depth, c + j, t->ldc, add);
            }
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
    const c_tile t = {
        g->call, own_b + run->tile_n * run->block_k, run->tile_n, batch * g->a.rows + row, col, m, n,
    };

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
        multiply_blocks(g->pairs, a, b, &t, depth, k > 0, k + depth == run->k);
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
    int64_t batches = g->shared == SHARE_NEITHER ? g->batch : 1; /* batches at a time */
    for (run.batch = 0; run.batch < g->batch; run.batch += batches)
        for (run.first_m = 0; run.first_m < g->a.rows; run.first_m += run.chunk_m)
            for (run.first_n = 0; run.first_n < g->b.rows; run.first_n += run.chunk_n) run_chunk(&run, batches);
}

/* ---- few rows: dot products straight from memory ---------------------------------------------------------------- */

#define FEW_ROWS 8
#define DOT_COLUMNS 4
#define DOT_DEPTH 256
#define DOT_TASK 64 /* columns of C per task */

static bool has_few_rows(const gemm *g) { return g->a.rows <= FEW_ROWS && g->b.stride == 1 && g->segments == 1; }

static int64_t padded_k(const gemm *g) { return round_up(g->segment_length, LANES); }

/* Converts a row of a to f32: [batch * rows][K, padded with zeros to a multiple of LANES]. */
static void read_row(void *arg, int64_t i, int thread) {
    (void)thread;
    const gemm *g = arg;
    float *to = (float *)g->call->scratch + i * padded_k(g);
    const char *from = g->a.locate(g->a.source, i / g->a.rows, i % g->a.rows, 0);
    read_floats(to, from, g->a.dtype, g->a.stride, g->segment_length);
    for (int64_t k = g->segment_length; k < padded_k(g); k++) to[k] = 0;
}

INLINE void add_dots(int rows, const float *a, int64_t lda, const float *const *b, int64_t depth,
                     vf sums[][DOT_COLUMNS]) {
    vf acc[4][DOT_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < DOT_COLUMNS; c++) acc[r][c] = sums[r][c];
    for (int64_t k = 0; k < depth; k += LANES)
        for (int c = 0; c < DOT_COLUMNS; c++) {
            vf column = load(b[c] + k);
            for (int r = 0; r < rows; r++) acc[r][c] += load(a + r * lda + k) * column;
        }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < DOT_COLUMNS; c++) sums[r][c] = acc[r][c];
}

/* Computes values[r][0 .. DOT_COLUMNS - 1] for columns col, col + 1, ... Columns beyond the last repeat the last
 * one. */
static void dot_columns(const gemm *g, int64_t batch, int64_t col, const float *a, float (*values)[DOT_TASK]) {
    float staged[DOT_COLUMNS][DOT_DEPTH];
    vf sums[FEW_ROWS][DOT_COLUMNS] = {0};
    const char *columns[DOT_COLUMNS] = {0};
    const float *b[DOT_COLUMNS];
    int64_t size = lz_dtype_size(g->b.dtype), lda = padded_k(g);
    for (int c = 0; c < DOT_COLUMNS && !g->b.packed; c++)
        columns[c] = g->b.locate(g->b.source, batch, smaller(col + c, g->b.rows - 1), 0);

    for (int64_t k = 0; k < g->segment_length; k += DOT_DEPTH) {
        int64_t n = smaller(DOT_DEPTH, g->segment_length - k), padded = round_up(n, LANES);
        for (int c = 0; c < DOT_COLUMNS; c++) {
            b[c] = (const float *)columns[c] + k;
            if (g->b.packed)
                unpack_floats(g->b.packed, smaller(col + c, g->b.rows - 1), k, n, staged[c]);
            else if (g->b.dtype == LZ_F32 && n == padded)
                continue;
            else
                read_floats(staged[c], columns[c] + k * size, g->b.dtype, 1, n);
            for (int64_t i = n; i < padded; i++) staged[c][i] = 0;
            b[c] = staged[c];
        }
        for (int64_t r = 0; r < g->a.rows; r += 4) {
            const float *from = a + r * lda + k;
            switch (smaller(4, g->a.rows - r)) {
            case 1: add_dots(1, from, lda, b, padded, sums + r); break;
            case 2: add_dots(2, from, lda, b, padded, sums + r); break;
            case 3: add_dots(3, from, lda, b, padded, sums + r); break;
            default: add_dots(4, from, lda, b, padded, sums + r); break;
            }
        }
    }
    for (int64_t r = 0; r < g->a.rows; r++)
        for (int c = 0; c < DOT_COLUMNS; c++) values[r][c] = sum_of_lanes(sums[r][c]);
}

static void dot_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const gemm *g = arg;
    float values[FEW_ROWS][DOT_TASK];
    int64_t tasks = parts_of(g->b.rows, DOT_TASK), batch = task / tasks, first = task % tasks * DOT_TASK;
    int64_t n = smaller(DOT_TASK, g->b.rows - first), row = batch * g->a.rows;
    const float *a = (const float *)g->call->scratch + row * padded_k(g);
    for (int64_t j = 0; j < n; j += DOT_COLUMNS)
        dot_columns(g, batch, first + j, a, (float(*)[DOT_TASK])(values[0] + j));
    finish_rows(g->call, row, g->a.rows, first, n, values[0], DOT_TASK);
}

static void run_dots(gemm *g) {
    lz_parallel(g->call->pool, g->batch * g->a.rows, read_row, g);
    lz_parallel(g->call->pool, g->batch * parts_of(g->b.rows, DOT_TASK), dot_task, g);
}

/* ---- matmul ------------------------------------------------------------------------------------------------------ */

/* The axes of a [batch..., rows...] or b [batch..., columns]; K is not among them. Trailing batch axes over which b is
 * broadcast count as rows of a, so that b is packed once for all of them. */
typedef struct strided_rows {
    const char *data;
    int64_t size; /* bytes of an element */
    int n_batch, n_axes;
    int64_t dims[LZ_MAX_DIMS], strides[LZ_MAX_DIMS];
} strided_rows;

static const char *locate_strided(const void *source, int64_t batch, int64_t row, int64_t segment) {
    (void)segment;
    const strided_rows *s = source;
    int64_t offset = 0;
    for (int d = s->n_axes - 1; d > s->n_batch; row /= s->dims[d--]) offset += row % s->dims[d] * s->strides[d];
    offset += row * s->strides[s->n_batch];
    for (int d = s->n_batch - 1; d >= 0 && batch; batch /= s->dims[d--]) offset += batch % s->dims[d] * s->strides[d];
    return s->data + offset * s->size;
}

static strided_rows rows_of(const lz_tensor *t, int n_batch) {
    strided_rows s = {.data = t->data, .size = lz_dtype_size(t->dtype), .n_batch = n_batch, .n_axes = t->dims.n - 1};
    for (int d = 0; d < s.n_axes; d++) s.dims[d] = t->dims.at[d], s.strides[d] = t->strides[d];
    return s;
}

/* a and b are the sources of the two sides, and must outlive the result. */
static gemm matmul_gemm(const lz_call *call, strided_rows *a, strided_rows *b) {
    const lz_tensor *x = &call->in[0], *w = &call->in[1];
    int axes = x->dims.n, n_batch = axes - 2;
    while (n_batch > 0 && (w->dims.at[n_batch - 1] == 1 || w->strides[n_batch - 1] == 0)) n_batch--;
    gemm g = {.call = call, .batch = 1, .segments = 1, .segment_length = x->dims.at[axes - 1]};
    for (int d = 0; d < n_batch; d++) g.batch *= x->dims.at[d];
    *a = rows_of(x, n_batch), *b = rows_of(w, n_batch);
    b->n_axes = n_batch + 1, b->dims[n_batch] = w->dims.at[axes - 1], b->strides[n_batch] = w->strides[axes - 1];

    g.a = (gemm_side){1, x->dtype, x->strides[axes - 1], a, locate_strided, NULL};
    for (int d = n_batch; d < axes - 1; d++) g.a.rows *= x->dims.at[d];
    g.b = (gemm_side){w->dims.at[axes - 1], w->dtype, w->strides[axes - 2], b, locate_strided, NULL};
    g.shared = g.a.rows <= g.b.rows ? SHARE_A : SHARE_B;
    /* Many small products give all threads work without sharing, which avoids waiting for each other. */
    if (g.batch > 1 && g.a.rows * g.b.rows < 1024 * 1024) g.shared = SHARE_NEITHER;
    if (!has_few_rows(&g)) use_pairs(&g);
    return g;
}

static int64_t product_scratch(const gemm *g) {
    if (has_few_rows(g)) return g->batch * g->a.rows * padded_k(g) * (int64_t)sizeof(float);
    return gemm_scratch(g);
}

static bool run_product(gemm *g) {
    if (g->batch == 0 || g->a.rows == 0 || g->b.rows == 0) return true;
    if (has_few_rows(g))
        run_dots(g);
    else
        run_gemm(g);
    return true;
}

static int64_t matmul_scratch(const lz_call *call) {
    strided_rows a, b;
    gemm g = matmul_gemm(call, &a, &b);
    return product_scratch(&g);
}

static bool matmul(const lz_call *call) {
    strided_rows a, b;
    gemm g = matmul_gemm(call, &a, &b);
    return run_product(&g);
}

const lz_kernel ISA(lz_kernel_matmul) = {.name = "cpu.matmul", .run = matmul, .scratch = matmul_scratch};

/* ---- packed_matmul ----------------------------------------------------------------------------------------------- */

/* The product that matmul computes with the unpacked weights, in the same order: the same bits. */
static gemm packed_gemm(const lz_call *call, strided_rows *a, packed_rows *packed) {
    const lz_tensor *x = &call->in[0], *codes = &call->in[1];
    int axes = x->dims.n;
    *a = rows_of(x, 0);
    *packed = (packed_rows){call->params, codes, call->n_core - 1, x->dims.at[axes - 1]};
    gemm g = {.call = call, .batch = 1, .segments = 1, .segment_length = x->dims.at[axes - 1]};
    g.a = (gemm_side){1, x->dtype, x->strides[axes - 1], a, locate_strided, NULL};
    for (int d = 0; d < axes - 1; d++) g.a.rows *= x->dims.at[d];
    g.b = (gemm_side){codes->dims.at[0], call->params->unpack.type, 1, NULL, NULL, packed};
    g.shared = g.a.rows <= g.b.rows ? SHARE_A : SHARE_B;
    if (!has_few_rows(&g)) use_pairs(&g);
    return g;
}

static int64_t packed_scratch(const lz_call *call) {
    strided_rows a;
    packed_rows b;
    gemm g = packed_gemm(call, &a, &b);
    return product_scratch(&g);
}

static bool packed_matmul(const lz_call *call) {
    strided_rows a;
    packed_rows b;
    gemm g = packed_gemm(call, &a, &b);
    return run_product(&g);
}

const lz_kernel ISA(lz_kernel_packed_matmul) = {
    .name = "cpu.packed_matmul", .run = packed_matmul, .scratch = packed_scratch};
