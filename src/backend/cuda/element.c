/* element.c: elementwise ops: expressions, copies, casts, integers. The device side is kernels/element.cu, or
 * kernels/transpose.cu for a single argument that is dense along another axis than the output. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/own.h"
#include "backend/cuda/product.h"
#include "op/number.h"

enum { THREADS = 256 };

/* ---- what the kernel is made for --------------------------------------------------------------------------------- */

typedef struct element_job {
    const lz_tensor *tensors; /* [0] is the output */
    int n;
    lz_axes axes;
    int width, unroll;
    /* The chunks of a thread are in one column of several rows, because some arguments are the same for all rows. */
    bool down;
    lz_access access[LZ_OPERANDS];
} element_job;

static int64_t inner_step(const element_job *j, int k) { return j->axes.strides[k][j->axes.rank - 1]; }

/* Elements of a chunk: as many as fill 16 bytes of the dense operand with the smallest type. A row must be a multiple
 * of the chunk, except that the last chunk of a one-dimensional walk may be shorter. */
static int pick_width(const element_job *j) {
    int64_t least = 16, most = 0, inner = j->axes.dims[j->axes.rank - 1];
    for (int k = 0; k < j->n; k++) {
        int64_t size = lz_dtype_size(j->tensors[k].dtype);
        if (inner_step(j, k) == 1 && size < least) least = size;
        if (size > most) most = size;
    }
    int width = (int)(16 / least);
    if (width > 8 && most > 1) width = 8;
    while (width > 1 && j->axes.rank > 1 && inner % width) width /= 2;
    return width;
}

/* Is the argument the same for all chunks of a thread? */
static bool repeats(const element_job *j, int k) { return j->down && !j->axes.strides[k][j->axes.rank - 2]; }

/* Chooses the number of chunks per thread: more if there are few operands to load. If a matrix is combined with a
 * vector (the weight of a norm, a gate, a bias), the chunks of a thread are in consecutive rows, and the vector is read
 * once. */
static void pick_chunks(element_job *j) {
    static const int unroll[] = {4, 4, 2, 2};
    int vectors = 0, same = 0;
    j->down = j->axes.rank > 1 && j->width > 1;
    for (int k = 1; k < j->n; k++)
        if (j->access[k] == LZ_VECTOR) repeats(j, k) ? same++ : vectors++;
    j->unroll = vectors < 4 ? unroll[vectors] : 1;
    int64_t rows = j->down ? j->axes.dims[j->axes.rank - 2] : 1;
    if (rows % 4 && j->unroll == 4) j->unroll = 2;
    j->down = j->down && same && j->unroll > 1 && rows % j->unroll == 0;
    if (j->down) return;
    vectors += same;
    j->unroll = vectors < 4 && j->width > 1 ? unroll[vectors] : j->width > 1 ? 1 : 4;
}

static element_job make_job(const lz_tensor *tensors, int n) {
    element_job j = {.tensors = tensors, .n = n, .axes = lz_axes_of(tensors, n, 0, tensors[0].dims.n)};
    lz_axes_sort(&j.axes, 0);
    lz_axes_merge(&j.axes);
    j.width = pick_width(&j);
    for (int k = 0; k < n; k++) {
        j.access[k] = lz_cuda_access(&tensors[k], inner_step(&j, k), j.axes.strides[k], j.axes.rank - 1, j.width);
        if (k == 0 && j.access[k] == LZ_SAME) j.access[k] = LZ_SCALAR; /* the output is a single element */
    }
    pick_chunks(&j);
    return j;
}

static void add_head(lz_text *text, const element_job *j, bool narrow, const char *number) {
    lz_text_add(text, "#define RANK %d\n#define WIDTH %d\n#define UNROLL %d\n#define DOWN %d\n#define THREADS %d\n",
                j->axes.rank, j->width, j->unroll, j->down, THREADS);
    lz_text_add(text, "typedef %s index_type;\ntypedef %s number;\n#define OUT_TYPE %s\n#define OUT_KIND %d\n",
                narrow ? "u32" : "i64", number, lz_cuda_type_name(j->tensors[0].dtype), j->access[0]);
    lz_text_add(text, "#define EACH_ARGUMENT(X)");
    for (int k = 1; k < j->n; k++)
        lz_text_add(text, " X(%d, %s, %d, %d)", k, lz_cuda_type_name(j->tensors[k].dtype), j->access[k],
                    repeats(j, k) ? 1 : j->unroll);
    lz_text_add(text, "\n#define VALUES(u, j)");
    for (int k = 1; k < j->n; k++)
        lz_text_add(text, "%s number_of<%s, number>(a%d[%s].at[j])", k > 1 ? "," : "",
                    lz_cuda_type_name(j->tensors[k].dtype), k, repeats(j, k) ? "0" : "u");
    lz_text_add(text, "\n");
}

/* factor: NULL, or the first argument of the expression. */
static bool run_chunks(const lz_call *call, element_job *j, const char *number, const float *factor,
                       const char *expression) {
    int inner = j->axes.rank - 1;
    bool narrow = lz_axes_narrow(&j->axes), whole = j->axes.dims[inner] % j->width == 0;
    lz_element_params p = {.last = j->axes.dims[inner], .factor = factor ? *factor : 0};
    j->axes.dims[inner] = (j->axes.dims[inner] + j->width - 1) / j->width;
    for (int k = 0; k < j->n; k++) {
        j->axes.strides[k][inner] *= j->width;
        if (j->down) j->axes.strides[k][inner - 1] *= j->unroll;
    }
    if (j->down) j->axes.dims[inner - 1] /= j->unroll;
    p.walk = lz_walk_of(&j->axes, j->tensors);
    lz_text text = {.ctx = call->device->ctx};
    add_head(&text, j, narrow, number);
    lz_text_add(&text, "#define FACTOR %s\n", factor ? "p.factor," : "");
    lz_text_add(&text, "#define WHOLE %d\n%s#include \"element.cu\"\n", whole, expression);
    int64_t per_block = (int64_t)THREADS * (j->down ? 1 : j->unroll);
    return lz_cuda_run_text(call, "element", &text, (p.walk.size + per_block - 1) / per_block, THREADS, &p);
}

/* ---- transposition ----------------------------------------------------------------------------------------------- */

/* The axis along which the argument is dense, if it is not the last and both axes are long enough; otherwise -1. */
static int transposed_axis(const element_job *j) {
    int inner = j->axes.rank - 1;
    if (j->n != 2 || inner_step(j, 0) != 1 || inner_step(j, 1) <= 1 || j->axes.dims[inner] < 16) return -1;
    for (int i = 0; i < inner; i++)
        if (j->axes.strides[1][i] == 1 && j->axes.dims[i] >= 16) return i;
    return -1;
}

static bool run_transposed(const lz_call *call, const element_job *j, int axis, const char *number,
                           const char *expression) {
    int inner = j->axes.rank - 1, tile = lz_dtype_size(j->tensors[1].dtype) > 2 ? 32 : 64;
    lz_transpose_params p = {.along = j->axes.dims[inner],
                             .across = j->axes.dims[axis],
                             .out_stride = j->axes.strides[0][axis],
                             .in_stride = j->axes.strides[1][inner]};
    int64_t along_tiles = (p.along + tile - 1) / tile, across_tiles = (p.across + tile - 1) / tile;
    lz_axes others = j->axes;
    others.dims[axis] = others.dims[inner] = 1;
    lz_axes_merge(&others);
    p.walk = lz_walk_of(&others, j->tensors);
    p.along_tiles = (unsigned)along_tiles;
    p.across_tiles = (unsigned)across_tiles;
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define RANK %d\n#define TILE %d\ntypedef %s number;\n", others.rank, tile, number);
    lz_text_add(&text, "#define OUT_TYPE %s\n#define IN_TYPE %s\n", lz_cuda_type_name(j->tensors[0].dtype),
                lz_cuda_type_name(j->tensors[1].dtype));
    lz_text_add(&text, "%s#include \"transpose.cu\"\n", expression);
    return lz_cuda_run_text(call, "transpose", &text, along_tiles * across_tiles * p.walk.size, THREADS, &p);
}

bool lz_cuda_map(const lz_call *call, const lz_tensor *tensors, int n, const char *number, const char *expression) {
    element_job j = make_job(tensors, n);
    int axis = transposed_axis(&j);
    if (axis >= 0 && lz_axes_size(&j.axes) <= INT32_MAX) return run_transposed(call, &j, axis, number, expression);
    return run_chunks(call, &j, number, NULL, expression);
}

bool lz_cuda_map_with(const lz_call *call, const lz_tensor *tensors, int n, float factor, const char *expression) {
    element_job j = make_job(tensors, n);
    return run_chunks(call, &j, "float", &factor, expression);
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static bool run_expression(const lz_call *call, const lz_expr *e, const lz_tensor *tensors, int n) {
    lz_text text = {.ctx = call->device->ctx};
    lz_cuda_add_expression(&text, "expression", e);
    char *expression = lz_text_take(&text, call->err);
    bool fine = expression && lz_cuda_map(call, tensors, n, "float", expression);
    lz_host_free(call->device->ctx, expression);
    return fine;
}

bool lz_cuda_epilogue(const lz_call *call) {
    lz_tensor tensors[2 + LZ_EXPR_ARGS] = {call->out, call->out};
    int n = 2;
    for (int i = call->n_core; i < call->n_in; i++) tensors[n++] = call->in[i];
    return run_expression(call, call->expr, tensors, n);
}

bool lz_cuda_multiply_all(const lz_call *call, const lz_tensor *tensors, int n) {
    static const char *const texts[] = {"FN float expression() { return 1.0f; }\n",
                                        "FN float expression(float r0) { return r0; }\n",
                                        "FN float expression(float r0, float r1) { return r0 * r1; }\n",
                                        "FN float expression(float r0, float r1, float r2) { return r0 * r1 * r2; }\n"};
    return lz_cuda_map(call, tensors, n, "float", texts[n - 1]);
}

/* ---- single ops -------------------------------------------------------------------------------------------------- */

/* The arithmetic of an op that is not an expression. */
typedef enum manner {
    BITS,   /* bits are copied */
    WHOLE,  /* in i64 */
    REAL,   /* in f32 */
    UNABLE, /* left to the reference kernel */
} manner;

static manner manner_of(const lz_call *call) {
    bool whole = lz_op_table[call->op].whole, f64 = call->out.dtype == LZ_F64, mixed = false;
    for (int i = 0; i < call->n_in; i++) {
        whole = whole && !lz_is_float(call->in[i].dtype);
        f64 = f64 || call->in[i].dtype == LZ_F64;
        mixed = mixed || lz_is_float(call->in[i].dtype) != lz_is_float(call->out.dtype);
    }
    if ((call->op == LZ_OP_COPY || call->op == LZ_OP_CAST) && call->in[0].dtype == call->out.dtype) return BITS;
    if (f64) return UNABLE;
    if (whole) return WHOLE;
    /* An f32 does not represent integers above 2^24. That is no loss only for conditions and casts. */
    bool converts = call->op == LZ_OP_CAST || call->op == LZ_OP_WHERE || call->out.dtype == LZ_BOOL;
    return mixed && !converts ? UNABLE : REAL;
}

/* A limit of clip for an integer type, rounded as the reference kernel rounds it. */
static int64_t whole_limit(lz_dtype t, double limit) {
    static const int64_t least[] = {[LZ_BOOL] = 0, [LZ_I8] = INT8_MIN, [LZ_I32] = INT32_MIN, [LZ_I64] = INT64_MIN};
    static const int64_t most[] = {
        [LZ_BOOL] = 1, [LZ_U8] = UINT8_MAX, [LZ_I8] = INT8_MAX, [LZ_I32] = INT32_MAX, [LZ_I64] = INT64_MAX};
    return lz_saturate(limit, least[t], most[t]);
}

static bool run_whole(const lz_call *call, const lz_tensor *tensors) {
    char expression[400], last[100] = "";
    const char *name = call->op == LZ_OP_CAST ? "copy" : lz_op_table[call->op].name;
    static const char *const given[] = {"", "r0", "r0, r1", "r0, r1, r2"};
    static const char *const taken[] = {"", "i64 r0", "i64 r0, i64 r1", "i64 r0, i64 r1, i64 r2"};
    if (call->op == LZ_OP_CLIP)
        snprintf(last, sizeof last, ", (i64)0x%llxull, (i64)0x%llxull",
                 (unsigned long long)whole_limit(call->in[0].dtype, call->params->clip.low),
                 (unsigned long long)whole_limit(call->in[0].dtype, call->params->clip.high));
    snprintf(expression, sizeof expression, "FN i64 expression(%s) { return op_%s(%s%s); }\n", taken[call->n_in], name,
             given[call->n_in], last);
    return lz_cuda_map(call, tensors, call->n_in + 1, "i64", expression);
}

static bool run_real(const lz_call *call, const lz_tensor *tensors) {
    lz_expr one = {.n_args = call->n_in, .n_regs = call->n_in + 1, .result = call->n_in, .n_steps = 1};
    one.steps[0] = (lz_expr_step){.op = (uint8_t)call->op, .dst = (uint8_t)call->n_in, .b = 1, .c = 2};
    if (call->op == LZ_OP_CAST) one.steps[0].b = LZ_F32; /* the store converts to the type of the output */
    if (call->op == LZ_OP_CLIP) {
        one.steps[0].k0 = (float)call->params->clip.low;
        one.steps[0].k1 = (float)call->params->clip.high;
    }
    return run_expression(call, &one, tensors, call->n_in + 1);
}

/* Copies the bits of elements, as a type of the same size. */
static bool run_bits(const lz_call *call, lz_tensor *tensors) {
    static const char *const number[] = {[1] = "u8", [4] = "i32", [8] = "i64"};
    static const lz_dtype same_size[] = {[1] = LZ_U8, [2] = LZ_BF16, [4] = LZ_I32, [8] = LZ_I64};
    int64_t size = lz_dtype_size(call->out.dtype);
    char expression[100];
    const char *name = size == 2 ? "bf16" : number[size];
    tensors[0].dtype = tensors[1].dtype = same_size[size];
    snprintf(expression, sizeof expression, "FN %s expression(%s r0) { return r0; }\n", name, name);
    return lz_cuda_map(call, tensors, 2, name, expression);
}

static bool run_element(const lz_call *call) {
    lz_tensor tensors[1 + LZ_EXPR_ARGS] = {call->out};
    for (int i = 0; i < call->n_in; i++) tensors[i + 1] = call->in[i];
    if (call->expr) return run_expression(call, call->expr, tensors, call->n_in + 1);
    switch (manner_of(call)) {
    case BITS: return run_bits(call, tensors);
    case WHOLE: return run_whole(call, tensors);
    default: return run_real(call, tensors);
    }
}

static bool can_element(const lz_call *call) { return call->expr || manner_of(call) != UNABLE; }

const lz_kernel lz_cuda_element = {.name = "cuda.element", .run = run_element, .can = can_element};
