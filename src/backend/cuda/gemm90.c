/* gemm90.c: our own matrix product for Hopper, host side: which calls it supports, the choice of tile sizes, the
 * launch.
 *
 * Tiles of 128 x 256 load the fewest bytes per product, but 4608 x 3072 has 432 of them: three full waves of 132
 * multiprocessors, and a fourth wave that is a quarter full. So there are many tile widths; an estimate by waves finds
 * the few that are worth measuring. One launch can also compute several independent products, which then share the last
 * wave. */
#include "backend/cuda/gemm90.h"

#include <limits.h>
#include <string.h>

#include "backend/cuda/product.h"

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Can the copy engine (TMA) read the matrix? Rows must begin at multiples of 16 bytes and not overlap. */
static bool suits_copies(const char *data, int64_t rows, int64_t *row, int64_t width, int64_t size) {
    if (rows == 1) *row = (width * size + 15) / 16 * 16 / size; /* a single row: any stride is right */
    return (uintptr_t)data % 16 == 0 && *row >= width && *row * size % 16 == 0 && *row * size < (INT64_C(1) << 40);
}

static bool is_weight(const lz_tensor *b) { /* [..., k, n]: contiguous along k, broadcast over all leading axes */
    int last = b->dims.n - 1;
    for (int i = 0; i < last - 1; i++)
        if (b->strides[i] && b->dims.at[i] != 1) return false;
    return b->strides[last - 1] == 1 || b->dims.at[last - 1] == 1;
}

static int first_argument(const lz_gemm90 *g) { return g->paired ? 2 : 1; }

/* Merges leading axes and rows into one axis of out, a, and the arguments. */
static bool fold_rows(const lz_call *call, lz_gemm90 *g) {
    int n = 2 + call->n_in - call->n_core, last = call->out.dims.n - 1;
    lz_tensor all[2 + LZ_GEMM_ARGUMENTS] = {call->out, call->in[0]};
    for (int i = 2; i < n; i++) all[i] = call->in[call->n_core + i - 2];
    lz_axes axes = lz_axes_of(all, n, 0, last);
    lz_axes_merge(&axes);
    if (axes.rank != 1) return false;
    g->m = axes.dims[0];
    g->out_row = axes.strides[0][0], g->a_row = axes.strides[1][0];
    for (int i = 2; i < n; i++) g->rows[first_argument(g) + i - 2] = g->m == 1 ? 0 : axes.strides[i][0];
    return true;
}

static int n_arguments(const lz_gemm90 *g) { return g->call->expr ? g->call->expr->n_args : 1; }
static const lz_tensor *argument(const lz_gemm90 *g, int i) {
    return &g->call->in[g->call->n_core + i - first_argument(g)];
}

bool lz_gemm90_reads(const lz_call *call, lz_gemm90 *g) {
    const lz_tensor *a = &call->in[0], *b = &call->in[1], *out = &call->out;
    int last = out->dims.n - 1, n_b = lz_cuda_products(call);
    *g = (lz_gemm90){.call = call, .paired = n_b == 2};
    bool half = a->dtype == LZ_BF16 || a->dtype == LZ_F16;
    bool typed = half && (out->dtype == LZ_F32 || out->dtype == a->dtype);
    for (int i = 0; i < n_b; i++) typed = typed && b[i].dtype == a->dtype && is_weight(&b[i]);
    if (call->device->capability != 90 || !typed || call->n_in - call->n_core > LZ_GEMM_ARGUMENTS - 2) return false;
    g->n = out->dims.at[last], g->k = a->dims.at[last];
    bool dense = (a->strides[last] == 1 || g->k == 1) && (out->strides[last] == 1 || g->n == 1);
    if (!dense || !fold_rows(call, g)) return false;
    for (int i = first_argument(g); i < n_arguments(g); i++)
        if (argument(g, i)->dtype == LZ_F64) return false;
    bool fits = g->m > 0 && g->n > 0 && g->k > 0 && g->m <= INT_MAX / 2 && g->n <= INT_MAX / 2 && g->k <= INT_MAX / 2 &&
                lz_over(g->m, 64) * lz_over(g->n, 32) <= INT_MAX / LZ_MAX_GROUP;
    /* The copy engine stores the last 16 bytes of a row whole (seen on an H200), so rows must be multiples of 16
     * bytes. */
    fits = fits && g->n * lz_dtype_size(out->dtype) % 16 == 0;
    for (int i = 0; i < n_b && fits; i++) {
        g->b_row[i] = b[i].strides[last];
        fits = suits_copies(b[i].data, g->n, &g->b_row[i], g->k, 2);
    }
    return fits && suits_copies(a->data, g->m, &g->a_row, g->k, 2) &&
           suits_copies(out->data, g->m, &g->out_row, g->n, lz_dtype_size(out->dtype));
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

bool lz_gemm90_alike(const lz_gemm90 *a, const lz_gemm90 *b) {
    const lz_call *x = a->call, *y = b->call;
    bool alike = x->device == y->device && a->paired == b->paired && x->in[0].dtype == y->in[0].dtype &&
                 x->out.dtype == y->out.dtype && lz_cuda_same_expressions(x->expr, y->expr);
    for (int i = first_argument(a); alike && i < n_arguments(a); i++) {
        /* With one row, the row stride does not matter. */
        bool same_rows = !a->rows[i] == !b->rows[i] || a->m == 1 || b->m == 1;
        alike = argument(a, i)->dtype == argument(b, i)->dtype && same_rows;
    }
    return alike;
}

static_assert(LZ_SMALL_GROUP * sizeof(lz_gemm_problem) <= 4096, "few need no long parameters");
static_assert(LZ_MAX_GROUP * sizeof(lz_gemm_problem) <= 32764, "these are the longest");

/* ---- ways -------------------------------------------------------------------------------------------------------- */

/* {columns, blocks, pingpong, cluster, group}. With pingpong, one warpgroup has a whole tile in registers: 128 sums per
 * thread, as many as fit. */
static const lz_gemm90_config all_configs[] = {
    {256, 1, 0, 2, 0}, {256, 1, 0, 1, 0}, {240, 1, 0, 2, 0}, {224, 1, 0, 2, 0}, {208, 1, 0, 2, 0}, {192, 1, 0, 2, 0},
    {192, 1, 0, 1, 0}, {176, 1, 0, 2, 0}, {160, 1, 0, 2, 0}, {144, 1, 0, 2, 0}, {128, 1, 0, 2, 0}, {128, 1, 0, 1, 0},
    {112, 1, 0, 2, 0}, {96, 1, 0, 2, 0},  {96, 1, 0, 1, 0},  {64, 1, 0, 1, 0},  {128, 2, 1, 2, 0}, {128, 2, 1, 1, 0},
    {112, 2, 1, 2, 0}, {96, 2, 1, 2, 0},  {256, 1, 1, 2, 0}, {256, 1, 1, 1, 0}, {192, 1, 1, 2, 0}, {128, 1, 1, 1, 0},
};

int lz_gemm90_all(const lz_gemm90_config **configs) {
    *configs = all_configs;
    return (int)(sizeof all_configs / sizeof *all_configs);
}

static int tile_rows(const lz_gemm90_config *w) { return 64 * w->blocks * (w->pingpong ? 1 : 2); }
static int out_columns(const lz_gemm90 *g, const lz_gemm90_config *w) {
    return g->paired ? w->columns / 2 : w->columns;
}

/* Columns of a piece, the part of a tile that one store writes: rows of up to 128 bytes that divide a tile. */
static int store_columns(const lz_gemm90 *g, const lz_gemm90_config *w) {
    int columns = 128 / (int)lz_dtype_size(g->call->out.dtype);
    while (out_columns(g, w) % columns) columns /= 2;
    return columns;
}

enum { MAX_STAGES = 8, GROUPS = 2, BUFFERS = 2, BARRIER_BYTES = 8 };

static int stage_bytes(const lz_gemm90_config *w) { return (tile_rows(w) + w->columns) * 128; }
static int piece_bytes(const lz_gemm90 *g, const lz_gemm90_config *w) {
    return GROUPS * BUFFERS * 64 * store_columns(g, w) * (int)lz_dtype_size(g->call->out.dtype);
}
static int stages_of(const lz_gemm90 *g, const lz_gemm90_config *w) {
    int stages = (g->call->device->max_shared - piece_bytes(g, w)) / (stage_bytes(w) + 2 * BARRIER_BYTES);
    return stages < MAX_STAGES ? stages : MAX_STAGES;
}
static int shared_bytes(const lz_gemm90 *g, const lz_gemm90_config *w) {
    return piece_bytes(g, w) + stages_of(g, w) * (stage_bytes(w) + 2 * BARRIER_BYTES);
}

bool lz_gemm90_suits(const lz_gemm90 *g, const lz_gemm90_config *w) {
    return (!g->paired || w->columns % 32 == 0) && stages_of(g, w) >= 2 && g->call->device->sms >= w->cluster;
}

static int64_t tiles_of(const lz_gemm90 *g, const lz_gemm90_config *w) {
    return lz_over(g->m, (int64_t)tile_rows(w) * w->cluster) * lz_over(g->n, out_columns(g, w));
}

/* Estimated cycles of a tile: the longer of multiplying and loading, plus the epilogue during which no product runs.
 * The constants are chosen such that, at the sizes of bench/cuda_gemm, the tiles that were fastest on an H200 rank
 * among the first. */
static double tile_cycles(const lz_gemm90 *g, const lz_gemm90_config *w) {
    /* Operations and loaded bytes of one multiprocessor in a cycle. */
    const double products = w->pingpong ? 3000 : 3400, loads = 56;
    int rows = tile_rows(w);
    double multiply = 2.0 * 64 * rows * w->columns / products;
    double load = 128.0 * (rows + (double)w->columns / w->cluster) / loads;
    double finish = w->pingpong ? 1000 : 800 + 2.0 * w->columns, alone = w->cluster == 1;
    if (g->call->expr) finish *= 1.5;
    return ((double)lz_over(g->k, 64) * (multiply > load ? multiply : load) + finish) * (1 + 0.005 * alone);
}

/* Estimated cycles of the busiest block; tiles are dealt round-robin. Each product gives all clusters some whole rounds
 * of its tiles, and some clusters one tile of the rest. The busiest cluster is one that gets the first rest tile of a
 * product. */
static double cycles_of(const lz_gemm90 *g, int n, const lz_gemm90_config *w) {
    double each[LZ_MAX_GROUP], whole = 0, most = 0;
    int64_t first[LZ_MAX_GROUP], rest[LZ_MAX_GROUP], clusters = g->call->device->sms / w->cluster, all = 0;
    for (int i = 0; i < n; i++) {
        int64_t tiles = tiles_of(&g[i], w), rounds = tiles / clusters;
        each[i] = tile_cycles(&g[i], w);
        whole += (double)rounds * each[i];
        first[i] = all % clusters, rest[i] = tiles % clusters;
        all += tiles;
    }
    for (int i = 0; i < n; i++) {
        double more = 0;
        for (int j = 0; j < n; j++)
            if ((first[i] - first[j] + clusters) % clusters < rest[j]) more += each[j];
        if (more > most) most = more;
    }
    return whole + most;
}

int lz_gemm90_configs(const lz_gemm90 *g, int n_products, lz_gemm90_config configs[LZ_GEMM90_CONFIGS]) {
    double best[LZ_GEMM90_CONFIGS];
    int n = 0;
    if (n_products > (g->call->device->large_params ? LZ_MAX_GROUP : LZ_SMALL_GROUP)) return 0;
    for (size_t i = 0; i < sizeof all_configs / sizeof *all_configs; i++) {
        if (!lz_gemm90_suits(g, &all_configs[i])) continue;
        double cycles = cycles_of(g, n_products, &all_configs[i]);
        int at = n < LZ_GEMM90_CONFIGS ? n : LZ_GEMM90_CONFIGS - 1;
        if (n == LZ_GEMM90_CONFIGS && cycles >= best[at]) continue;
        for (; at > 0 && best[at - 1] > cycles; at--) best[at] = best[at - 1], configs[at] = configs[at - 1];
        best[at] = cycles, configs[at] = all_configs[i];
        if (n < LZ_GEMM90_CONFIGS) n++;
    }
    return n;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* The wgmma instruction lists every register it adds to, so each width has its own text. */
static void add_sums(lz_text *text, int columns, lz_dtype type) {
    const char *name = type == LZ_BF16 ? "bf16" : type == LZ_F16 ? "f16" : "e4m3";
    int n = columns / 2, k = type == LZ_F8 ? 32 : 16;
    lz_text_add(text, "                 \"wgmma.mma_async.sync.aligned.m64n%dk%d.f32.%s.%s {\"\n", columns, k, name,
                name);
    for (int i = 0; i < n; i++)
        lz_text_add(text, "%s%%%d%s", i % 16 ? "" : "                 \"", i,
                    i == n - 1     ? "\"\n"
                    : i % 16 == 15 ? ",\"\n"
                                   : ",");
}

static void add_sum_operands(lz_text *text, int n) {
    lz_text_add(text, "                 :");
    for (int i = 0; i < n; i++)
        lz_text_add(text, "%s\"+f\"(sum[%d])", i ? i % 8 ? ", " : ",\n                 " : " ", i);
    lz_text_add(text, "\n                 : ");
}

void lz_gemm90_add_multiply(lz_text *text, const char *name, int columns, lz_dtype type) {
    int n = columns / 2;
    lz_text_add(text, "#ifndef LZ_SIM\nFN void %s(float (&sum)[%d], u64 a, u64 b, int add) {\n", name, n);
    lz_text_add(text, "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n\"\n", n + 2);
    add_sums(text, columns, type);
    lz_text_add(text, "                 \"}, %%%d, %%%d, p, 1, 1%s;\\n}\"\n", n, n + 1, type == LZ_F8 ? "" : ", 0, 0");
    add_sum_operands(text, n);
    lz_text_add(text, "\"l\"(a), \"l\"(b), \"r\"(add));\n}\n#else\n");
    lz_text_add(text, "FN void %s(float (&sum)[%d], u64 a, u64 b, int add) {\n", name, n);
    lz_text_add(text, "    multiply_spelled_out<%s, %d>(sum, a, b, add);\n}\n#endif\n", lz_cuda_type_name(type),
                columns);
}

void lz_gemm90_add_multiply_held(lz_text *text, const char *name, int columns, lz_dtype type, bool transposed) {
    int n = columns / 2;
    lz_text_add(text, "#ifndef LZ_SIM\nFN void %s(float (&sum)[%d], const u32 (&a)[4], u64 b, int add) {\n", name, n);
    lz_text_add(text, "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n\"\n", n + 5);
    add_sums(text, columns, type);
    lz_text_add(text, "                 \"}, {%%%d, %%%d, %%%d, %%%d}, %%%d, p, 1, 1%s;\\n}\"\n", n, n + 1, n + 2,
                n + 3, n + 4,
                type == LZ_F8 ? ""
                : transposed  ? ", 1"
                              : ", 0");
    add_sum_operands(text, n);
    lz_text_add(text, "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(add));\n}\n#else\n");
    lz_text_add(text, "FN void %s(float (&sum)[%d], const u32 (&a)[4], u64 b, int add) {\n", name, n);
    lz_text_add(text, "    multiply_held_spelled_out<%s, %d, %d>(sum, a, b, add);\n}\n#endif\n",
                lz_cuda_type_name(type), columns, transposed);
}

/* How argument i is accessed in one product. SCALAR works for every argument. */
static lz_access access_of(const lz_gemm90 *g, const lz_gemm90_config *w, int i) {
    const lz_tensor *t = argument(g, i);
    lz_access access = lz_cuda_access(t, t->strides[t->dims.n - 1], &g->rows[i], 1, 2);
    /* A VECTOR access must not cross the end of a row. */
    return access == LZ_VECTOR && g->n % store_columns(g, w) ? LZ_SCALAR : access;
}

/* How argument i is accessed in all products of the launch. */
static const char *kind_of(const lz_gemm90 *g, int n, const lz_gemm90_config *w, int i) {
    lz_access access = access_of(g, w, i);
    for (int j = 1; j < n; j++)
        if (access_of(&g[j], w, i) != access) access = LZ_SCALAR;
    return access == LZ_VECTOR ? "VECTOR" : access == LZ_SAME ? "SAME" : "SCALAR";
}

/* Does argument i have different rows in any of the products? */
static bool has_rows(const lz_gemm90 *g, int n, int i) {
    bool has = false;
    for (int j = 0; j < n; j++) has = has || g[j].rows[i];
    return has;
}

void lz_gemm90_text(const lz_gemm90 *g, int n, const lz_gemm90_config *w, lz_text *text) {
    const lz_call *call = g->call;
    lz_text_add(text, "#define PROBLEMS %d\n#define TYPE %s\n#define OUT_TYPE %s\n", lz_cuda_group_capacity(n),
                lz_cuda_type_name(call->in[0].dtype), lz_cuda_type_name(call->out.dtype));
    lz_text_add(text, "#define COLUMNS %d\n#define BLOCKS %d\n#define PINGPONG %d\n", w->columns, w->blocks,
                w->pingpong);
    lz_text_add(text, "#define CLUSTER %d\n#define STAGES %d\n", w->cluster, stages_of(g, w));
    lz_text_add(text, "#define STORE_COLUMNS %d\n#define PAIRED %d\n", store_columns(g, w), g->paired);
    lz_text_add(text, "#define EACH_ARGUMENT(X)");
    for (int i = first_argument(g); i < n_arguments(g); i++)
        lz_text_add(text, " X(%d, %s, %d, %s)", i, lz_cuda_type_name(argument(g, i)->dtype), has_rows(g, n, i) ? 2 : 1,
                    kind_of(g, n, w, i));
    lz_text_add(text, "\n#define VALUES(h, j, e)");
    for (int i = first_argument(g); i < n_arguments(g); i++)
        lz_text_add(text, ", as_float(with.a%d[%s][j].at[e])", i, has_rows(g, n, i) ? "h" : "0");
    lz_text_add(text, "\n#include \"hopper.cu\"\n");
    lz_cuda_add_expression(text, "expression", call->expr);
    lz_gemm90_add_multiply(text, "multiply", w->columns, call->in[0].dtype);
    lz_text_add(text, "#include \"gemm90.cu\"\n");
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static bool encode(const lz_call *call, lz_gemm_map *map, const lz_tensor *t, int64_t rows, int64_t columns,
                   int64_t row, int box_rows, int box_columns) {
    lz_device *d = call->device;
    int64_t size = lz_dtype_size(t->dtype);
    uint64_t dims[2] = {(uint64_t)columns, (uint64_t)rows}, strides[1] = {(uint64_t)(row * size)};
    uint32_t box[2] = {(uint32_t)box_columns, (uint32_t)box_rows}, steps[2] = {1, 1};
    lz_cu_tensor_map_type type = t->dtype == LZ_BF16  ? LZ_CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                 : t->dtype == LZ_F16 ? LZ_CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                      : LZ_CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    lz_cu_tensor_map_swizzle swizzle = box_columns * size == 128  ? LZ_CU_TENSOR_MAP_SWIZZLE_128B
                                       : box_columns * size == 64 ? LZ_CU_TENSOR_MAP_SWIZZLE_64B
                                                                  : LZ_CU_TENSOR_MAP_SWIZZLE_32B;
    lz_cu_tensor_map made;
    lz_cu_result result = d->api.cu.TensorMapEncodeTiled(
        &made, type, 2, t->data, dims, strides, box, steps, LZ_CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        LZ_CU_TENSOR_MAP_L2_PROMOTION_L2_256B, LZ_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (!lz_cuda_ok(d, result, "a tensor map", call->err)) return false;
    memcpy(map, &made, sizeof *map);
    return true;
}

/* Rows of tiles in a group, which is processed column by column: chosen such that the tiles that run at one time cover
 * about a square of the output, which reads the fewest rows of a and b. */
static int group_of(const lz_gemm90 *g, const lz_gemm90_config *w) {
    int64_t high = (int64_t)tile_rows(w) * w->cluster, all = lz_over(g->m, high), best = 1;
    if (w->group) return w->group < all ? w->group : (int)all;
    int64_t area = (int64_t)g->call->device->sms * tile_rows(w) * out_columns(g, w);
    while ((best + 1) * high * (best + 1) * high <= area) best++;
    return (int)lz_over(all, lz_over(all, best)); /* groups of equal height */
}

lz_cu_function lz_gemm90_function(const lz_gemm90 *g, int n, const lz_gemm90_config *w) {
    lz_device *d = g->call->device;
    lz_text text = {.ctx = d->ctx};
    lz_gemm90_text(g, n, w, &text);
    char *whole = lz_text_take(&text, g->call->err);
    if (!whole) return NULL;
    lz_cu_function f = lz_cuda_function(d, "gemm90", whole, g->call->err);
    lz_host_free(d->ctx, whole);
    return f;
}

/* Fills all but first and end of a problem. call: gets the error. */
static bool fill_problem(const lz_call *call, const lz_gemm90 *g, const lz_gemm90_config *w, lz_gemm_problem *p) {
    const lz_tensor *a = &g->call->in[0], *b = &g->call->in[1];
    int parts = g->paired || w->cluster == 2 ? 2 : 1, store = store_columns(g, w);
    if (!encode(call, &p->a, a, g->m, g->k, g->a_row, tile_rows(w), 64) ||
        !encode(call, &p->b, b, g->n, g->k, g->b_row[0], w->columns / parts, 64) ||
        (g->paired && !encode(call, &p->other, b + 1, g->n, g->k, g->b_row[1], w->columns / parts, 64)) ||
        !encode(call, &p->out, &g->call->out, g->m, g->n, g->out_row, 64, store))
        return false;
    for (int i = first_argument(g); i < n_arguments(g); i++) {
        const lz_tensor *t = argument(g, i);
        p->arguments[i] = (lz_gemm_argument){t->data, g->rows[i], t->strides[t->dims.n - 1]};
    }
    p->m = (int)g->m, p->n = (int)g->n;
    p->steps = (int)lz_over(g->k, 64);
    p->row_tiles = (int)lz_over(g->m, (int64_t)tile_rows(w) * w->cluster);
    p->column_tiles = (int)lz_over(g->n, out_columns(g, w));
    p->group = group_of(g, w);
    return true;
}

bool lz_gemm90_run(const lz_gemm90 *g, int n, const lz_gemm90_config *w, lz_cu_function f) {
    lz_device *d = g->call->device;
    lz_gemm_problem p[LZ_MAX_GROUP];
    int capacity = lz_cuda_group_capacity(n), tiles = 0;
    memset(p, 0, (size_t)capacity * sizeof *p);
    for (int i = 0; i < capacity; i++) {
        if (i < n && !fill_problem(g->call, &g[i], w, &p[i])) return false;
        p[i].first = tiles;
        p[i].end = tiles += p[i].row_tiles * p[i].column_tiles;
    }
    int clusters = d->sms / w->cluster < tiles ? d->sms / w->cluster : tiles;
    return lz_cuda_launch(g->call, f, (int64_t)clusters * w->cluster, 384, shared_bytes(g, w), p);
}
