/* rows.c: softmax, rms_norm, rms_norm_twice, layer_norm and quantise over the last axis, and rope. The device side is
 * kernels/rows.cu. */
#include <string.h>

#include "backend/cuda/own.h"

enum { V = 8, LONGEST_ROPE = 8192 }; /* elements of a chunk; of the longest row that fits into shared memory */

/* Threads per row and chunks per thread. They depend on the length alone, since the order of sums depends on them. */
typedef struct division {
    int lanes, chunks;
} division;

static division divide(int64_t n) {
    static const struct {
        int64_t most; /* chunks in a row */
        int lanes;
    } table[] = {{1, 1},     {2, 2},      {4, 4},      {8, 8},      {16, 16},    {128, 32},
                 {512, 128}, {1024, 256}, {1280, 512}, {1536, 768}, {2048, 512}, {4096, 1024}};
    int64_t chunks = (n + V - 1) / V;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (chunks <= table[i].most)
            return (division){table[i].lanes, (int)((chunks + table[i].lanes - 1) / table[i].lanes)};
    return (division){1024, 0};
}

static int threads_of(int64_t n) { return divide(n).lanes < 128 ? 128 : divide(n).lanes; } /* of a block */

typedef struct rows_job {
    lz_tensor tensors[LZ_OPERANDS]; /* output, inputs of the op, arguments of the epilogue */
    int n, n_core;                  /* n_core counts the output and the inputs of the op */
    lz_axes axes;                   /* over rows */
    int each;                       /* see rows_each */
    lz_rows_params p;
} rows_job;

static lz_access access_of(const rows_job *j, int k, int width) {
    return lz_cuda_access(&j->tensors[k], j->p.steps[k], j->axes.strides[k], j->axes.rank, width);
}

static rows_job make_job(const lz_call *call) {
    rows_job j = {.n = call->n_in + 1, .n_core = call->n_core + 1};
    int last = call->out.dims.n - 1;
    j.tensors[0] = call->out;
    for (int i = 0; i < call->n_in; i++) j.tensors[i + 1] = call->in[i];
    j.axes = lz_axes_of(j.tensors, j.n, 0, last);
    lz_axes_sort(&j.axes, call->op == LZ_OP_ROPE ? 2 : 0); /* rows with the same angles become neighbours */
    lz_axes_merge(&j.axes);
    j.p.walk = lz_walk_of(&j.axes, j.tensors);
    j.p.n = call->out.dims.at[last];
    j.p.inverse = (float)(1.0 / (double)j.p.n);
    for (int k = 0; k < j.n; k++) j.p.steps[k] = j.tensors[k].dims.at[last] > 1 ? j.tensors[k].strides[last] : 1;
    return j;
}

static void add_operand(lz_text *text, const rows_job *j, const char *name, int k, lz_access access) {
    lz_text_add(text, "#define %s_TYPE %s\n#define %s_KIND %d\n", name, lz_cuda_type_name(j->tensors[k].dtype), name,
                access);
}

/* Are the epilogue's arguments loaded before the sums, so that the loads overlap with them? Not if that needs too many
 * registers. */
static bool read_early(const rows_job *j, division d) {
    int64_t registers = 0;
    for (int k = j->n_core; k < j->n; k++) registers += d.chunks * lz_dtype_size(j->tensors[k].dtype) * V / 4;
    return d.chunks && d.lanes <= 512 && registers <= 32; /* rope always loads them late */
}

static void add_arguments(lz_text *text, const rows_job *j) {
    lz_text_add(text, "#define EACH_ARGUMENT(X)");
    for (int k = j->n_core; k < j->n; k++)
        lz_text_add(text, " X(%d, %s, %d)", k, lz_cuda_type_name(j->tensors[k].dtype), access_of(j, k, V));
    lz_text_add(text, "\n#define VALUES(j)");
    for (int k = j->n_core; k < j->n; k++) lz_text_add(text, ", as_float(a.a%d.at[j])", k);
    lz_text_add(text, "\n");
}

static void add_rows(lz_text *text, const lz_call *call, const rows_job *j, const char *op) {
    division d = divide(j->p.n);
    lz_text_add(text, "#define ROW_OP %s\n#define RANK %d\n#define LANES %d\n#define CHUNKS %d\n#define WHOLE %d\n", op,
                j->axes.rank, d.lanes, d.chunks, j->p.n % V == 0);
    lz_text_add(text, "#define FULL %d\n", j->p.n == (int64_t)d.lanes * d.chunks * V);
    lz_text_add(text, "#define EARLY %d\ntypedef %s index_type;\n", read_early(j, d),
                lz_axes_narrow(&j->axes) ? "u32" : "i64");
    add_operand(text, j, "OUT", 0, access_of(j, 0, V));
    add_operand(text, j, "X", 1, access_of(j, 1, V));
    add_arguments(text, j);
    lz_cuda_add_expression(text, "epilogue", call->expr);
    lz_text_add(text, "#include \"rows.cu\"\n");
}

/* Rows that a group of threads computes one after another, so that angles and weights are read once for all of them. They
 * must be the same along the last axis of the walk, mostly the heads of a token, whose size is a multiple of the
 * result. */
static int rows_each(const lz_call *call, const rows_job *j) {
    int axis = j->axes.rank - 1, most = 6;
    bool same = call->op == LZ_OP_ROPE && divide(j->p.n).chunks == 1;
    for (int k = 2; k < j->n_core && same; k++) same = j->axes.strides[k][axis] == 0;
    while (most > 1 && j->axes.dims[axis] % most) most--;
    return same ? most : 1;
}

static void add_rope(lz_text *text, const lz_call *call, const rows_job *j) {
    bool half_split = call->params->rope.half_split;
    /* The angles of a chunk are contiguous if pairs are neighbours, or if no chunk crosses the middle of the row. */
    int width = half_split ? V : V / 2;
    bool together = !half_split || j->p.n % (2 * V) == 0;
    lz_text_add(text, "#define HALF_SPLIT %d\n#define NORM %d\n#define WEIGHTED %d\n#define EACH %d\n", half_split,
                call->params->rope.norm, call->n_core > 3, j->each);
    add_operand(text, j, "COS", 2, together ? access_of(j, 2, width) : LZ_SCALAR);
    add_operand(text, j, "SIN", 3, together ? access_of(j, 3, width) : LZ_SCALAR);
    if (call->n_core > 3) add_operand(text, j, "WEIGHT", 4, access_of(j, 4, V));
    add_rows(text, call, j, "ROPE");
}

static void add_norm(lz_text *text, const lz_call *call, const rows_job *j) {
    bool twice = call->op == LZ_OP_RMS_NORM_TWICE, weighted = twice && call->n_core > 1;
    lz_text_add(text, "#define TWICE %d\n#define WEIGHTED %d\n", twice, weighted);
    if (weighted) add_operand(text, j, "WEIGHT", 2, access_of(j, 2, V));
    add_rows(text, call, j, "RMS_NORM");
}

/* Codes of rows, or of their norms; rotated or not; with or without a head. */
static void add_quantise(lz_text *text, const lz_call *call, const rows_job *j) {
    lz_op core = (lz_op)call->params->quantise.core;
    bool head = call->n_core > 1;
    lz_text_add(text, "#define CODES 1\n#define ROTATE %d\n#define HEAD %d\n", call->params->quantise.rotate, head);
    if (head) add_operand(text, j, "HEAD", 2, access_of(j, 2, V));
    add_rows(text, call, j, core == LZ_OP_RMS_NORM ? "RMS_NORM" : core == LZ_OP_LAYER_NORM ? "LAYER_NORM" : "PLAIN");
}

/* Fills the parameters and the number of blocks, and returns the text of a kernel for `capacity` calls. NULL: err has the
 * reason. */
static char *describe(const lz_call *call, int capacity, lz_rows_params *p, int64_t *blocks) {
    rows_job j = make_job(call);
    j.each = rows_each(call, &j);
    *blocks = lz_over(j.p.walk.size, (int64_t)threads_of(j.p.n) / divide(j.p.n).lanes * j.each);
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define CALLS %d\n", capacity);
    if (call->op == LZ_OP_ROPE)
        add_rope(&text, call, &j);
    else if (call->op == LZ_OP_RMS_NORM || call->op == LZ_OP_RMS_NORM_TWICE)
        add_norm(&text, call, &j);
    else if (call->op == LZ_OP_QUANTISE)
        add_quantise(&text, call, &j);
    else
        add_rows(&text, call, &j, call->op == LZ_OP_SOFTMAX ? "SOFTMAX" : "LAYER_NORM");
    if (call->op != LZ_OP_SOFTMAX)
        j.p.eps = (float)(call->op == LZ_OP_ROPE       ? call->params->rope.eps
                          : call->op == LZ_OP_QUANTISE ? call->params->quantise.eps
                                                       : call->params->norm.eps);
    if (call->op == LZ_OP_QUANTISE) {
        j.p.head = call->n_core > 1 ? call->in[1].dims.at[call->in[1].dims.n - 1] : 0;
        j.p.scales = (float *)(call->out.data + lz_beside(call->out.dims, call->out.dtype));
    }
    if (call->op == LZ_OP_RMS_NORM_TWICE) {
        j.p.second = lz_beside(call->out.dims, call->out.dtype);
        j.p.second_eps = (float)call->params->norm.second_eps;
    }
    *p = j.p;
    return lz_text_take(&text, call->err);
}

/* Runs all calls in one launch if their texts are the same; otherwise one by one. */
static bool run_group(const lz_call *const *calls, int n) {
    lz_context *ctx = calls[0]->device->ctx;
    lz_rows_params all[LZ_MAX_GROUP];
    memset(all, 0, (size_t)lz_cuda_group_capacity(n) * sizeof *all);
    int64_t of_call[LZ_MAX_GROUP], blocks = 0;
    char *text = describe(calls[0], lz_cuda_group_capacity(n), &all[0], &of_call[0]);
    bool fine = text, same = n == 1 || calls[0]->device->large_params;
    for (int i = 1; i < n && fine && same; i++) {
        char *own = describe(calls[i], lz_cuda_group_capacity(n), &all[i], &of_call[i]);
        fine = own;
        same = fine && !strcmp(own, text);
        lz_host_free(ctx, own);
    }
    for (int i = 0; i < n && same; i++) {
        all[i].first = (unsigned)blocks;
        blocks += of_call[i];
        same = n == 1 || blocks <= INT32_MAX;
    }
    all[0].calls = n;
    lz_cu_function f = fine && same ? lz_cuda_function(calls[0]->device, "rows", text, calls[0]->err) : NULL;
    lz_host_free(ctx, text);
    for (int i = 0; i < n && fine && !same; i++) fine = run_group(&calls[i], 1);
    return same ? f && lz_cuda_launch(calls[0], f, blocks, threads_of(all[0].n), 0, all) : fine;
}

static bool run_rows(const lz_call *call) { return run_group(&call, 1); }

static bool alike(const lz_call *a, const lz_call *b) {
    bool same = a->device->large_params && a->op == b->op && a->n_in == b->n_in && a->n_core == b->n_core &&
                !memcmp(a->params, b->params, sizeof *a->params) && a->out.dtype == b->out.dtype &&
                a->out.dims.at[a->out.dims.n - 1] == b->out.dims.at[b->out.dims.n - 1];
    for (int i = 0; i < a->n_in && same; i++) same = a->in[i].dtype == b->in[i].dtype;
    return same && lz_cuda_same_expressions(a->expr, b->expr);
}

static bool can_rows(const lz_call *call) {
    int64_t rows = 1;
    for (int i = 0; i < call->out.dims.n - 1; i++) rows *= call->out.dims.at[i];
    bool f64 = call->out.dtype == LZ_F64;
    for (int i = 0; i < call->n_in; i++) f64 = f64 || call->in[i].dtype == LZ_F64;
    return !f64 && rows <= INT32_MAX && call->n_in < LZ_OPERANDS && call->out.dims.n > 0;
}

/* A row is in registers, in whole chunks. */
static bool can_quantise(const lz_call *call) {
    int64_t n = call->out.dims.at[call->out.dims.n - 1];
    return can_rows(call) && n % V == 0 && divide(n).chunks > 0;
}

static bool can_rope(const lz_call *call) {
    return can_rows(call) && call->out.dims.at[call->out.dims.n - 1] <= LONGEST_ROPE;
}

const lz_kernel lz_cuda_softmax = {
    .name = "cuda.softmax", .run = run_rows, .can = can_rows, .alike = alike, .run_group = run_group};
const lz_kernel lz_cuda_rms_norm = {
    .name = "cuda.rms_norm", .run = run_rows, .can = can_rows, .alike = alike, .run_group = run_group};
const lz_kernel lz_cuda_rms_norm_twice = {
    .name = "cuda.rms_norm_twice", .run = run_rows, .can = can_rows, .alike = alike, .run_group = run_group};
const lz_kernel lz_cuda_layer_norm = {
    .name = "cuda.layer_norm", .run = run_rows, .can = can_rows, .alike = alike, .run_group = run_group};
const lz_kernel lz_cuda_quantise = {
    .name = "cuda.quantise", .run = run_rows, .can = can_quantise, .alike = alike, .run_group = run_group};
const lz_kernel lz_cuda_rope = {
    .name = "cuda.rope", .run = run_rows, .can = can_rope, .alike = alike, .run_group = run_group};
