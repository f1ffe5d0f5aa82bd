/* move.c: kernels that move elements: pad, take, gather; and arange. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/own.h"

enum { THREADS = 256 };

/* A type of the same size whose elements are copied as bits. */
static lz_dtype bits_type(lz_dtype t) {
    static const lz_dtype same_size[] = {[1] = LZ_U8, [2] = LZ_BF16, [4] = LZ_I32, [8] = LZ_I64};
    return same_size[lz_dtype_size(t)];
}

/* ---- pad: everything is filled, then the source is copied into its place ----------------------------------------- */

static bool fill(const lz_call *call, const lz_tensor *out) {
    uint64_t value = 0; /* one element of the output's type */
    const lz_params full = {.full.value = call->params->pad.value};
    lz_tensor one = {.data = (char *)&value, .dtype = call->out.dtype};
    lz_ref_backend()->kernel(LZ_OP_FULL)->run(&(lz_call){.op = LZ_OP_FULL, .params = &full, .out = one});
    const char *type = lz_cuda_type_name(out->dtype);
    char expression[100];
    snprintf(expression, sizeof expression,
             out->dtype == LZ_BF16 ? "FN %s expression() { return %s{0x%llx}; }\n"
                                   : "FN %s expression() { return (%s)0x%llxull; }\n",
             type, type, (unsigned long long)value);
    return lz_cuda_map(call, out, 1, type, expression);
}

static bool run_pad(const lz_call *call) {
    lz_tensor out = call->out, in[2] = {call->out, call->in[0]};
    out.dtype = in[0].dtype = in[1].dtype = bits_type(call->out.dtype);
    in[0].dims = in[1].dims;
    for (int i = 0; i < out.dims.n; i++)
        in[0].data += call->params->pad.before.at[i] * out.strides[i] * lz_dtype_size(out.dtype);
    const char *type = lz_cuda_type_name(out.dtype);
    char expression[100];
    snprintf(expression, sizeof expression, "FN %s expression(%s r0) { return r0; }\n", type, type);
    bool empty = lz_dims_size(in[1].dims) == 0;
    return fill(call, &out) && (empty || lz_cuda_map(call, in, 2, type, expression));
}

/* ---- take, gather ------------------------------------------------------------------------------------------------ */

/* Output, source and indices with the axes of the output. The source has stride 0 along the indexed axes. */
static void take_operands(const lz_call *call, lz_tensor t[3]) {
    const lz_tensor *x = &call->in[0], *index = &call->in[1];
    int axis = call->params->along.axis, middle = index->dims.n;
    bool gather = call->op == LZ_OP_GATHER;
    t[0] = t[1] = t[2] = call->out;
    t[1].data = x->data;
    t[2].data = index->data;
    for (int i = 0; i < call->out.dims.n; i++) {
        bool indexed = gather ? i == axis : i >= axis && i < axis + middle;
        int from = gather || i < axis ? i : i + 1 - middle; /* axis of the source */
        t[1].strides[i] = indexed ? 0 : x->strides[from];
        t[2].strides[i] = gather ? index->strides[i] : indexed ? index->strides[i - axis] : 0;
    }
}

/* The number of elements that one thread moves: contiguous in source and output, and with one index. */
static int take_width(const lz_tensor t[3], const lz_axes *s, int64_t axis_stride) {
    int64_t size = lz_dtype_size(t[0].dtype), outer[LZ_AXES];
    int inner = s->rank - 1, width = (int)(16 / size);
    if (s->strides[2][inner] != 0) return 1;
    for (; width > 1; width /= 2) {
        bool fits = s->dims[inner] % width == 0;
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < inner; i++) outer[i] = s->strides[k][i];
            outer[inner] = k ? axis_stride : 0;
            fits = fits && lz_cuda_access(&t[k], s->strides[k][inner], outer, s->rank, width) == LZ_VECTOR;
        }
        if (fits) break;
    }
    return width;
}

static bool run_take(const lz_call *call) {
    lz_tensor t[3];
    take_operands(call, t);
    for (int k = 0; k < 2; k++) t[k].dtype = bits_type(call->out.dtype);
    int axis = call->params->along.axis;
    lz_take_params p = {.size = call->in[0].dims.at[axis],
                        .stride = call->in[0].strides[axis],
                        .fault = lz_cuda_fault(call->device),
                        .op = call->op};
    lz_axes s = lz_axes_of(t, 3, 0, call->out.dims.n);
    lz_axes_merge(&s);
    int width = take_width(t, &s, p.stride), inner = s.rank - 1;
    bool narrow = lz_axes_narrow(&s);
    s.dims[inner] /= width;
    for (int k = 0; k < 3; k++) s.strides[k][inner] *= width;
    p.walk = lz_walk_of(&s, t);
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text,
                "#define RANK %d\n#define WIDTH %d\n#define TYPE %s\ntypedef %s index_type;\n#include \"take.cu\"\n",
                s.rank, width, lz_cuda_type_name(t[0].dtype), narrow ? "u32" : "i64");
    return lz_cuda_run_text(call, "take", &text, (p.walk.size + THREADS - 1) / THREADS, THREADS, &p);
}

/* ---- arange ------------------------------------------------------------------------------------------------------ */

static bool run_arange(const lz_call *call) {
    lz_arange_params p = {.out = call->out.data,
                          .n = call->out.dims.at[0],
                          .stride = call->out.strides[0],
                          .start = call->params->arange.start,
                          .step = call->params->arange.step};
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define OUT_TYPE %s\n#include \"arange.cu\"\n", lz_cuda_type_name(call->out.dtype));
    return lz_cuda_run_text(call, "arange", &text, (p.n + THREADS - 1) / THREADS, THREADS, &p);
}

static bool can_arange(const lz_call *call) { return call->out.dims.n == 1 && call->out.dtype != LZ_F64; }

/* Elements are copied as bits, so f64 works too. Indices of take and gather are i64. */
static bool can_pad(const lz_call *call) { return call->in[0].dtype == call->out.dtype; }
static bool can_take(const lz_call *call) {
    return call->in[0].dtype == call->out.dtype && call->in[1].dtype == LZ_I64;
}

const lz_kernel lz_cuda_pad = {.name = "cuda.pad", .run = run_pad, .can = can_pad};
const lz_kernel lz_cuda_take = {.name = "cuda.take", .run = run_take, .can = can_take};
const lz_kernel lz_cuda_gather = {.name = "cuda.gather", .run = run_take, .can = can_take};
const lz_kernel lz_cuda_arange = {.name = "cuda.arange", .run = run_arange, .can = can_arange};
