/* rows.c: softmax, rms_norm, layer_norm over the last axis, and rope. The device half is kernels/rows.cu. */
#include "backend/cuda/own.h"

enum { V = 8, LONGEST_ROPE = 8192 }; /* elements of a chunk; of a row whose half fits into shared memory */

/* Threads for a row and chunks for a thread: by the length alone, since the order of sums hangs on it. */
typedef struct division {
    int lanes, chunks;
} division;

static division divide(int64_t n) {
    static const struct {
        int64_t most; /* chunks in a row */
        int lanes;
    } table[] = {{1, 1},    {2, 2},     {4, 4},      {8, 8},      {16, 16},
                 {128, 32}, {512, 128}, {1024, 256}, {2048, 512}, {4096, 1024}};
    int64_t chunks = (n + V - 1) / V;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (chunks <= table[i].most)
            return (division){table[i].lanes, (int)((chunks + table[i].lanes - 1) / table[i].lanes)};
    return (division){1024, 0};
}

typedef struct rows_job {
    lz_tensor tensors[LZ_OPERANDS]; /* output, inputs of the op, arguments of the epilogue */
    int n, n_core;                  /* n_core: output and inputs of the op */
    lz_axes axes;                   /* over rows */
    lz_rows_params p;
} rows_job;

static lz_lie lie_of(const rows_job *j, int k, int width) {
    return lz_cuda_lie(&j->tensors[k], j->p.steps[k], j->axes.strides[k], j->axes.rank, width);
}

static rows_job make_job(const lz_call *call) {
    rows_job j = {.n = call->n_in + 1, .n_core = call->n_core + 1};
    int last = call->out.dims.n - 1;
    j.tensors[0] = call->out;
    for (int i = 0; i < call->n_in; i++) j.tensors[i + 1] = call->in[i];
    j.axes = lz_axes_of(j.tensors, j.n, 0, last);
    lz_axes_sort(&j.axes, call->op == LZ_OP_ROPE ? 2 : 0); /* rows that are turned by the same angles go together */
    lz_axes_merge(&j.axes);
    j.p.walk = lz_walk_of(&j.axes, j.tensors);
    j.p.n = call->out.dims.at[last];
    j.p.inverse = (float)(1.0 / (double)j.p.n);
    for (int k = 0; k < j.n; k++) j.p.steps[k] = j.tensors[k].dims.at[last] > 1 ? j.tensors[k].strides[last] : 1;
    return j;
}

static void add_operand(lz_text *text, const rows_job *j, const char *name, int k, lz_lie lie) {
    lz_text_add(text, "#define %s_TYPE %s\n#define %s_KIND %d\n", name, lz_cuda_type_name(j->tensors[k].dtype), name,
                lie);
}

/* Arguments are read before the sums, to be there when they are needed, unless that takes too many registers. */
static bool read_early(const rows_job *j, division d) {
    int64_t registers = 0;
    for (int k = j->n_core; k < j->n; k++) registers += d.chunks * lz_dtype_size(j->tensors[k].dtype) * V / 4;
    return d.chunks && d.lanes <= 512 && registers <= 32;
}

static void add_arguments(lz_text *text, const rows_job *j) {
    lz_text_add(text, "#define EACH_ARGUMENT(X)");
    for (int k = j->n_core; k < j->n; k++)
        lz_text_add(text, " X(%d, %s, %d)", k, lz_cuda_type_name(j->tensors[k].dtype), lie_of(j, k, V));
    lz_text_add(text, "\n#define VALUES(j)");
    for (int k = j->n_core; k < j->n; k++) lz_text_add(text, ", as_float(a.a%d.at[j])", k);
    lz_text_add(text, "\n");
}

static bool launch(const lz_call *call, rows_job *j, const char *op, lz_text *text) {
    division d = divide(j->p.n);
    lz_text_add(text, "#define ROW_OP %s\n#define RANK %d\n#define LANES %d\n#define CHUNKS %d\n#define WHOLE %d\n", op,
                j->axes.rank, d.lanes, d.chunks, j->p.n % V == 0);
    lz_text_add(text, "#define EARLY %d\ntypedef %s index_type;\n", read_early(j, d),
                lz_axes_narrow(&j->axes) ? "u32" : "i64");
    add_operand(text, j, "OUT", 0, lie_of(j, 0, V));
    add_operand(text, j, "X", 1, lie_of(j, 1, V));
    add_arguments(text, j);
    lz_cuda_add_expression(text, "epilogue", call->expr);
    lz_text_add(text, "#include \"rows.cu\"\n");
    int threads = d.lanes < 128 ? 128 : d.lanes, rows = threads / d.lanes;
    return lz_cuda_run_text(call, "rows", text, (j->p.walk.size + rows - 1) / rows, threads, &j->p);
}

static bool run_norm(const lz_call *call, const char *op) {
    rows_job j = make_job(call);
    lz_text text = {.ctx = call->device->ctx};
    j.p.eps = call->op == LZ_OP_SOFTMAX ? 0.0f : (float)call->params->norm.eps;
    return launch(call, &j, op, &text);
}

static bool run_softmax(const lz_call *call) { return run_norm(call, "SOFTMAX"); }
static bool run_rms_norm(const lz_call *call) { return run_norm(call, "RMS_NORM"); }
static bool run_layer_norm(const lz_call *call) { return run_norm(call, "LAYER_NORM"); }

static bool run_rope(const lz_call *call) {
    rows_job j = make_job(call);
    bool half_split = call->params->rope.half_split;
    /* A chunk of angles lies together where pairs are neighbours, or where chunks do not cross the middle. */
    int width = half_split ? V : V / 2;
    bool together = !half_split || j.p.n % (2 * V) == 0;
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define HALF_SPLIT %d\n#define NORM %d\n#define WEIGHTED %d\n", half_split,
                call->params->rope.norm, call->n_core > 3);
    add_operand(&text, &j, "COS", 2, together ? lie_of(&j, 2, width) : LZ_SCALAR);
    add_operand(&text, &j, "SIN", 3, together ? lie_of(&j, 3, width) : LZ_SCALAR);
    if (call->n_core > 3) add_operand(&text, &j, "WEIGHT", 4, lie_of(&j, 4, V));
    j.p.eps = (float)call->params->rope.eps;
    return launch(call, &j, "ROPE", &text);
}

static bool can_rows(const lz_call *call) {
    int64_t rows = 1;
    for (int i = 0; i < call->out.dims.n - 1; i++) rows *= call->out.dims.at[i];
    bool f64 = call->out.dtype == LZ_F64;
    for (int i = 0; i < call->n_in; i++) f64 = f64 || call->in[i].dtype == LZ_F64;
    return !f64 && rows <= INT32_MAX && call->n_in < LZ_OPERANDS && call->out.dims.n > 0;
}

static bool can_rope(const lz_call *call) {
    return can_rows(call) && call->out.dims.at[call->out.dims.n - 1] <= LONGEST_ROPE;
}

const lz_kernel lz_cuda_softmax = {.name = "cuda.softmax", .run = run_softmax, .can = can_rows};
const lz_kernel lz_cuda_rms_norm = {.name = "cuda.rms_norm", .run = run_rms_norm, .can = can_rows};
const lz_kernel lz_cuda_layer_norm = {.name = "cuda.layer_norm", .run = run_layer_norm, .can = can_rows};
const lz_kernel lz_cuda_rope = {.name = "cuda.rope", .run = run_rope, .can = can_rope};
