/* test_gemm90.c: every tile of our own matrix product for Hopper, with every kind of epilogue, one or several in a
 * launch, against sums in f64. Runs on a real GPU or, with LAZULI_CUDA_PATH naming its libraries, on the simulated one.
 * LZ_TEST_SCALE=500: groups of every tile with every epilogue. */
#include "backend/cuda/gemm90.h"
#include "hopper.h"

/* ---- operands ---------------------------------------------------------------------------------------------------- */

typedef enum ending { PLAIN, GATED, BIASED_GELU, ODD_ARGUMENTS, SWIGLU, ENDINGS } ending;

typedef struct problem {
    int64_t m, n, k, pad; /* pad: elements between rows, and as many more as make them multiples of 8 */
    lz_dtype type, out;
    ending ending;
} problem;

enum { MAX_IN = 5 };

typedef struct operands {
    lz_tensor t[MAX_IN + 1]; /* the output is the first */
    int n;
    double *values[MAX_IN + 1];
    int64_t bytes[MAX_IN + 1];
} operands;

static uint32_t state = 1;
static double random_number(void) { return ((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0 - 1; }

static double rounded_to(lz_dtype type, double v) {
    if (type == LZ_BF16) return lz_from_bf16(lz_to_bf16((float)v));
    return type == LZ_F16 ? lz_from_f16(lz_to_f16((float)v)) : (double)(float)v;
}

static void put_number(lz_dtype type, char *at, double v) {
    float f = (float)v;
    uint16_t bits = type == LZ_BF16 ? lz_to_bf16(f) : lz_to_f16(f);
    memcpy(at, type == LZ_F32 ? (void *)&f : (void *)&bits, (size_t)lz_dtype_size(type));
}

static double get_number(lz_dtype type, const char *at) {
    float f;
    uint16_t bits;
    memcpy(&f, at, type == LZ_F32 ? 4 : 2);
    memcpy(&bits, at, 2);
    return type == LZ_F32 ? (double)f : type == LZ_BF16 ? lz_from_bf16(bits) : lz_from_f16(bits);
}

/* A matrix on the device with rows `row` apart and columns `column` apart; what lies between is NaN. */
static void add_operand(lz_device *d, operands *o, lz_dims dims, lz_dtype type, int64_t row, int64_t column) {
    int i = o->n++;
    lz_error err = {0};
    int64_t size = lz_dtype_size(type), rows = row ? dims.at[0] : 1, columns = column ? dims.at[1] : 1;
    o->bytes[i] = ((rows - 1) * row + (columns - 1) * column + 1) * size;
    o->values[i] = malloc((size_t)(dims.at[0] * dims.at[1]) * sizeof(double));
    char *host = malloc((size_t)o->bytes[i]);
    memset(host, 0xff, (size_t)o->bytes[i]);
    for (int64_t r = 0; r < dims.at[0]; r++)
        for (int64_t c = 0; c < dims.at[1]; c++) {
            bool again = (r && !row) || (c && !column);
            double *v = &o->values[i][r * dims.at[1] + c];
            *v = again ? o->values[i][(row ? r : 0) * dims.at[1] + (column ? c : 0)]
                       : rounded_to(type, random_number());
            if (i && !again) put_number(type, host + (r * row + c * column) * size, *v);
        }
    o->t[i] = (lz_tensor){.dtype = type, .dims = dims, .strides = {row, column}};
    o->t[i].data = lz_cuda_device_table.allocate(d, o->bytes[i], &err);
    lz_bytes from = {.data = host};
    CHECK(o->t[i].data && lz_cuda_device_table.write(d, o->t[i].data, from, o->bytes[i], &err), "%s", err.text);
    free(host);
}

static void free_operands(lz_device *d, operands *o) {
    for (int i = 0; i < o->n; i++) {
        lz_cuda_device_table.release(d, o->t[i].data);
        free(o->values[i]);
    }
}

static const lz_expr expressions[ENDINGS] = {
    [GATED] = {.n_args = 3, .n_steps = 1, .n_regs = 3, .steps = {{.op = LZ_EXPR_MUL_ADD, .a = 0, .b = 1, .c = 2}}},
    [BIASED_GELU] = {.n_args = 2,
                     .n_steps = 2,
                     .n_regs = 2,
                     .steps = {{.op = LZ_OP_ADD, .a = 0, .b = 1}, {.op = LZ_OP_GELU_TANH, .a = 0}}},
    /* a column, a matrix that lies transposed, and one number */
    [ODD_ARGUMENTS] = {.n_args = 4,
                       .n_steps = 3,
                       .n_regs = 4,
                       .steps = {{.op = LZ_OP_MUL, .a = 0, .b = 1},
                                 {.op = LZ_OP_ADD, .a = 0, .b = 2},
                                 {.op = LZ_OP_SUB, .a = 0, .b = 3}}},
    [SWIGLU] = {.n_args = 2,
                .n_steps = 2,
                .n_regs = 2,
                .steps = {{.op = LZ_OP_SILU, .a = 0}, {.op = LZ_OP_MUL, .a = 0, .b = 1}}},
};

static operands make_operands(lz_device *d, const problem *p) {
    operands o = {0};
    int64_t k = (p->k + p->pad + 7) / 8 * 8, n = (p->n + p->pad + 7) / 8 * 8;
    lz_dims all = LZ_DIMS(p->m, p->n);
    add_operand(d, &o, all, p->out, n, 1);
    add_operand(d, &o, LZ_DIMS(p->m, p->k), p->type, k, 1);
    for (int i = 0; i < (p->ending == SWIGLU ? 2 : 1); i++)
        add_operand(d, &o, LZ_DIMS(p->k, p->n), p->type, 1, k + 8 * i);
    if (p->ending == GATED) add_operand(d, &o, all, p->out, 0, 1), add_operand(d, &o, all, p->out, n, 1);
    if (p->ending == BIASED_GELU) add_operand(d, &o, all, LZ_F32, 0, 1);
    if (p->ending == ODD_ARGUMENTS) {
        add_operand(d, &o, all, p->type, 3, 0);
        add_operand(d, &o, all, LZ_F32, 1, p->m + 1);
        add_operand(d, &o, all, LZ_F32, 0, 0);
    }
    return o;
}

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

static double product_at(const problem *p, const operands *o, int which, int64_t row, int64_t column) {
    double sum = 0;
    for (int64_t i = 0; i < p->k; i++) sum += o->values[1][row * p->k + i] * o->values[2 + which][i * p->n + column];
    return sum;
}

static double wanted_at(const problem *p, const operands *o, int64_t row, int64_t column) {
    double v = product_at(p, o, 0, row, column);
    int64_t at = row * p->n + column;
    switch (p->ending) {
    case GATED: return v * o->values[3][at] + o->values[4][at];
    case BIASED_GELU:
        v += o->values[3][at];
        return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case ODD_ARGUMENTS: return v * o->values[3][at] + o->values[4][at] - o->values[5][at];
    case SWIGLU: return v / (1 + exp(-v)) * product_at(p, o, 1, row, column);
    default: return v;
    }
}

/* All elements of the output; those between its rows must still be NaN. */
static void check_output(lz_device *d, const problem *p, const operands *o, const double *wanted,
                         const lz_gemm90_config *w, const char *what) {
    lz_error err = {0};
    char *got = malloc((size_t)o->bytes[0]);
    CHECK(lz_cuda_device_table.read(d, got, o->t[0].data, o->bytes[0], &err), "%s", err.text);
    int64_t size = lz_dtype_size(p->out), wrong = 0, first = -1, written = 0;
    double room = (p->out == LZ_F32 ? 0 : p->out == LZ_BF16 ? 0x1p-8 : 0x1p-11) * 1.05;
    double least = 3e-6 * sqrt((double)p->k) + 1e-6;
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t c = 0; c < p->n; c++) {
            double v = get_number(p->out, got + (r * o->t[0].strides[0] + c) * size), want = wanted[r * p->n + c];
            bool fine = fabs(v - want) <= room * fabs(want) + least * (1 + fabs(want));
            wrong += !fine;
            if (!fine && first < 0) first = r * p->n + c;
        }
    for (int64_t r = 0; r + 1 < p->m; r++)
        for (int64_t c = p->n; c < o->t[0].strides[0]; c++)
            written += !isnan(get_number(p->out, got + (r * o->t[0].strides[0] + c) * size));
    CHECK(!wrong && !written,
          "%s %lld x %lld x %lld %s -> %s, ending %d, %d columns, %d blocks, in turn %d, cluster %d: %lld wrong, first "
          "at row %lld, column %lld (%g, not %g); %lld written beside",
          what, (long long)p->m, (long long)p->n, (long long)p->k, lz_dtype_name(p->type), lz_dtype_name(p->out),
          (int)p->ending, w->columns, w->blocks, w->pingpong, w->cluster, (long long)wrong,
          (long long)(first < 0 ? 0 : first / p->n), (long long)(first < 0 ? 0 : first % p->n),
          first < 0 ? 0 : get_number(p->out, got + (first / p->n * o->t[0].strides[0] + first % p->n) * size),
          first < 0 ? 0 : wanted[first], (long long)written);
    free(got);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static lz_call call_of(lz_device *d, const problem *p, operands *o, lz_error *err) {
    return (lz_call){.op = p->ending == SWIGLU ? LZ_OP_MATMUL_PAIR : LZ_OP_MATMUL,
                     .expr = p->ending == PLAIN ? NULL : &expressions[p->ending],
                     .out = o->t[0],
                     .in = o->t + 1,
                     .n_core = p->ending == SWIGLU ? 3 : 2,
                     .n_in = o->n - 1,
                     .device = d,
                     .err = err};
}

static void check_refused(lz_device *d, const problem *p) {
    lz_error err = {0};
    operands o = make_operands(d, p);
    lz_call call = call_of(d, p, &o, &err);
    lz_gemm90 g;
    CHECK(!lz_gemm90_reads(&call, &g), "%lld columns would be stored with their neighbours", (long long)p->n);
    free_operands(d, &o);
}

/* Some products that one launch does, and what is wanted of them. */
typedef struct group {
    const problem *problems;
    int n;
    operands operands[LZ_MAX_GROUP];
    lz_call calls[LZ_MAX_GROUP];
    lz_gemm90 read[LZ_MAX_GROUP];
    double *wanted[LZ_MAX_GROUP];
    lz_error err;
} group;

static bool make_group(lz_device *d, group *g, const problem *problems, int n) {
    *g = (group){.problems = problems, .n = n};
    bool fine = true;
    for (int i = 0; i < n; i++) {
        const problem *p = &problems[i];
        g->operands[i] = make_operands(d, p);
        g->calls[i] = call_of(d, p, &g->operands[i], &g->err);
        fine &= CHECK(lz_gemm90_reads(&g->calls[i], &g->read[i]), "%lld x %lld x %lld is refused", (long long)p->m,
                      (long long)p->n, (long long)p->k);
        g->wanted[i] = malloc((size_t)(p->m * p->n) * sizeof(double));
        for (int64_t j = 0; j < p->m * p->n; j++) g->wanted[i][j] = wanted_at(p, &g->operands[i], j / p->n, j % p->n);
        if (fine) fine = CHECK(lz_gemm90_alike(&g->read[0], &g->read[i]));
    }
    return fine;
}

static void free_group(lz_device *d, group *g) {
    for (int i = 0; i < g->n; i++) {
        free_operands(d, &g->operands[i]);
        free(g->wanted[i]);
    }
}

static void run_way(lz_device *d, group *g, const lz_gemm90_config *w) {
    if (!lz_gemm90_suits(g->read, w)) return;
    for (int i = 0; i < g->n; i++) {
        const operands *o = &g->operands[i];
        CHECK(!d->api.cu.MemsetD8Async((lz_cu_ptr)(uintptr_t)o->t[0].data, 0xff, (size_t)o->bytes[0], d->stream));
    }
    lz_cu_function f = lz_gemm90_function(g->read, g->n, w);
    if (!CHECK(f && lz_gemm90_run(g->read, g->n, w, f), "%s", g->err.text)) return;
    char what[32] = "";
    for (int i = 0; i < g->n; i++) {
        if (g->n > 1) snprintf(what, sizeof what, "%d of %d,", i + 1, g->n);
        check_output(d, &g->problems[i], &g->operands[i], g->wanted[i], w, what);
    }
}

/* only: NULL for all ways. */
static void run_problem(lz_device *d, const problem *p, const lz_gemm90_config *only) {
    group g;
    const lz_gemm90_config *all = only;
    if (make_group(d, &g, p, 1))
        for (int i = 0, n = only ? 1 : lz_gemm90_all(&all); i < n; i++) run_way(d, &g, &all[i]);
    free_group(d, &g);
}

/* Every tile, with and without an ending; several tiles for each block where they are small. */
static void tiles(void) {
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    static const problem problems[] = {
        {200, 328, 136, 8, LZ_BF16, LZ_BF16, PLAIN},
        {264, 512, 320, 0, LZ_BF16, LZ_BF16, GATED},
        {130, 264, 72, 8, LZ_F16, LZ_F16, SWIGLU},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) run_problem(ctx->device, &problems[i], NULL);
    lz_close(ctx);
}

/* Sizes around the edges of tiles, types, endings. */
static void edges(void) {
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    static const lz_gemm90_config ways[] = {
        {256, 1, 0, 2, 0}, {176, 1, 0, 2, 0}, {128, 2, 1, 2, 0}, {96, 1, 0, 1, 0}, {256, 1, 1, 1, 0}};
    static const int64_t sizes[] = {1, 7, 8, 64, 65, 127, 129, 255, 257, 300};
    int n = (int)(sizeof sizes / sizeof *sizes);
    for (int i = 0; i < 40; i++) {
        problem p = {.m = sizes[i % n], .n = sizes[(i * 3 + 1) % n], .k = sizes[(i * 7 + 3) % n]};
        p.type = i % 3 ? LZ_BF16 : LZ_F16;
        p.out = i % 4 == 3 ? LZ_F32 : p.type;
        p.ending = (ending)(i % ENDINGS);
        p.pad = i % 2 ? 8 : 0;
        int64_t whole = p.out == LZ_F32 ? 4 : 8; /* in 16 bytes, as which the copy engine stores the ends of rows */
        check_refused(ctx->device, &(problem){p.m, p.n / 8 * 8 + 7, p.k, 8, p.type, p.out, p.ending});
        p.n = (p.n + whole - 1) / whole * whole;
        run_problem(ctx->device, &p, &ways[i % 5]);
    }
    lz_close(ctx);
}

/* More tiles than blocks, so that each takes several: the ring of stages goes on from tile to tile. */
static void many_tiles(void) {
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    static const lz_gemm90_config ways[] = {
        {256, 1, 0, 2, 0}, {128, 2, 1, 2, 0}, {128, 2, 1, 1, 0}, {144, 1, 0, 2, 0}, {256, 1, 1, 2, 0}};
    int sms = ctx->device->sms;
    for (int i = 0; i < 5; i++) {
        problem p = {.m = 700, .n = 1040, .k = 88, .type = LZ_BF16, .out = LZ_BF16, .ending = i % 2 ? PLAIN : GATED};
        ctx->device->sms = 6;
        run_problem(ctx->device, &p, &ways[i]);
        problem deep = {.m = 250, .n = 520, .k = 1160, .type = LZ_BF16, .out = LZ_BF16, .ending = PLAIN};
        ctx->device->sms = 2; /* more steps along k than stages, too */
        run_problem(ctx->device, &deep, &ways[i]);
    }
    ctx->device->sms = sms;
    lz_close(ctx);
}

/* Several products in one launch, of sizes that leave warpgroups and whole blocks without rows, by few blocks, which go
 * from one product to the next. */
static void groups(void) {
    static const int64_t rows[] = {149, 300, 35, 1, 160, 64, 129}, columns[] = {72, 256, 8, 104, 264, 64},
                         depths[] = {72, 200, 8, 64};
    static const int sizes[] = {6, 2, 12, 3}, multiprocessors[] = {5, 2, 12};
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    int sms = ctx->device->sms;
    const lz_gemm90_config *all;
    int n_all = lz_gemm90_all(&all), n = test_scale(n_all);
    for (int i = 0; i < n; i++) {
        problem problems[LZ_MAX_GROUP];
        int size = sizes[(i + i / n_all) % 4];
        ending e = (ending)((i + i / n_all) % ENDINGS);
        const lz_gemm90_config *w = &all[i % n_all];
        if (e == SWIGLU && w->columns % 32) e = BIASED_GELU;
        for (int j = 0; j < size; j++) {
            problem *p = &problems[j];
            *p = (problem){.m = rows[(i + j) % 7], .n = columns[(i + j) % 6], .k = depths[(i + j) % 4], .ending = e};
            p->pad = j % 2 * 8;
            p->type = i % 3 ? LZ_BF16 : LZ_F16;
            p->out = i % 7 == 3 ? LZ_F32 : p->type;
        }
        ctx->device->sms = multiprocessors[i % 3];
        group g;
        if (make_group(ctx->device, &g, problems, size)) run_way(ctx->device, &g, w);
        free_group(ctx->device, &g);
    }
    ctx->device->sms = sms;
    lz_close(ctx);
}

/* What may not share a launch, and how many may. */
static void alike(void) {
    static const problem like = {35, 64, 72, 0, LZ_BF16, LZ_BF16, GATED};
    static const problem others[] = {{35, 64, 72, 0, LZ_F16, LZ_F16, GATED},
                                     {35, 64, 72, 0, LZ_BF16, LZ_F32, GATED},
                                     {35, 64, 72, 0, LZ_BF16, LZ_BF16, PLAIN},
                                     {35, 64, 72, 0, LZ_BF16, LZ_BF16, SWIGLU},
                                     {35, 64, 72, 0, LZ_BF16, LZ_BF16, BIASED_GELU}};
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    lz_device *d = ctx->device;
    group a, b;
    lz_gemm90 many[LZ_MAX_GROUP + 1];
    lz_gemm90_config ways[LZ_GEMM90_CONFIGS];
    if (!make_group(d, &a, &like, 1)) return;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (make_group(d, &b, &others[i], 1))
            CHECK(!lz_gemm90_alike(a.read, b.read) && !lz_gemm90_alike(b.read, a.read), "number %zu", i);
        free_group(d, &b);
    }

    lz_expr expr = expressions[GATED];
    lz_call call = a.calls[0];
    lz_tensor in[MAX_IN];
    memcpy(in, call.in, (size_t)call.n_in * sizeof *in);
    call.in = in, call.expr = &expr;
    CHECK(lz_gemm90_reads(&call, many) && lz_gemm90_alike(a.read, many), "the same expression elsewhere");
    expr.steps[0].b = 0;
    CHECK(!lz_gemm90_alike(a.read, many), "another expression");
    expr.steps[0].b = 1;
    in[3].strides[0] = 0;
    CHECK(lz_gemm90_reads(&call, many) && !lz_gemm90_alike(a.read, many), "an argument whose rows are all the same");
    in[3].strides[0] = like.n, in[3].dtype = LZ_F16;
    CHECK(lz_gemm90_reads(&call, many) && !lz_gemm90_alike(a.read, many), "an argument of another type");

    for (int i = 0; i <= LZ_MAX_GROUP; i++) many[i] = a.read[0];
    CHECK(lz_gemm90_configs(many, LZ_MAX_GROUP, ways) == LZ_GEMM90_CONFIGS);
    CHECK(lz_gemm90_configs(many, LZ_MAX_GROUP + 1, ways) == 0);
    d->large_params = false;
    CHECK(lz_gemm90_configs(many, 4, ways) == LZ_GEMM90_CONFIGS);
    CHECK(lz_gemm90_configs(many, 5, ways) == 0, "its parameters would be too long");
    free_group(d, &a);
    lz_close(ctx);
}

TEST_MAIN({"tiles", tiles}, {"edges", edges}, {"many_tiles", many_tiles}, {"groups", groups}, {"alike", alike})
