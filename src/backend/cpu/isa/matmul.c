/* matmul.c: products of matrices, by the engine of gemm.c. There is one exception: if A has few rows, packing B would cost
 * more than the product, so a second variant computes dot products directly from memory, with one partial sum per vector
 * lane. Compile with -ffp-contract=fast, as gemm.c. */
#include "backend/cpu/isa/gemm.h"

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

/* ---- int8_matmul ------------------------------------------------------------------------------------------------- */

static gemm int8_gemm(const lz_call *call, strided_rows *a, packed_rows *weights) {
    gemm g = packed_gemm(call, a, weights);
    g.codes = true;
    g.pairs = false;
    g.a.dtype = call->in[0].dtype;
    g.shared = SHARE_A;
    g.segment_length = parts_of(weights->columns, WORD_CODES);
    return g;
}

static int64_t int8_scratch(const lz_call *call) {
    strided_rows a;
    packed_rows b;
    gemm g = int8_gemm(call, &a, &b);
    return gemm_scratch(&g);
}

static bool int8_matmul(const lz_call *call) {
    strided_rows a;
    packed_rows b;
    gemm g = int8_gemm(call, &a, &b);
    if (g.a.rows > 0 && g.b.rows > 0) run_gemm(&g);
    return true;
}

const lz_kernel ISA(lz_kernel_int8_matmul) = {.name = "cpu.int8_matmul", .run = int8_matmul, .scratch = int8_scratch};
