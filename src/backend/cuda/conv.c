/* conv.c: convolution, channels last. A 1 x 1 convolution is a matrix product. Large other ones run on cuDNN; small
 * ones, and those that cuDNN refuses, run on kernels/conv.cu, which takes every type and stride.
 *
 * cuDNN needs both operands in one type, with the channels contiguous. Weights in another layout (published ones have
 * channels before rows and columns) are copied into scratch on each run, which is cheap: they are small compared with
 * the pixels. In 16-bit types, a bias and a residual image (of a block of an autoencoder) become part of the
 * convolution. */
#include <limits.h>
#include <string.h>

#include "backend/cuda/dnn.h"
#include "backend/cuda/own.h"

#include "backend/cuda/kernels/products.h"

#define WORTH_A_PLAN 1e8
#define WORTH_MEASURING 5e9

/* ---- 1 x 1 convolutions ------------------------------------------------------------------------------------------ */

static bool is_product(const lz_call *call) {
    const lz_tensor *w = &call->in[1];
    bool padded = call->params->conv.top || call->params->conv.bottom || call->params->conv.left ||
                  call->params->conv.right;
    return w->dims.at[1] == 1 && w->dims.at[2] == 1 && call->params->conv.stride == 1 && !padded;
}

enum { MAX_IN = 2 + LZ_EXPR_ARGS };

/* The call as a matrix product: x [n, h, w, c] times w [c, o], broadcast over n and h. */
static lz_call as_product(const lz_call *call, lz_tensor in[MAX_IN]) {
    lz_call product = *call;
    const lz_tensor *x = &call->in[0], *w = &call->in[1];
    memcpy(in, call->in, (size_t)call->n_in * sizeof *in);
    in[1].dims = LZ_DIMS(x->dims.at[0], x->dims.at[1], w->dims.at[3], w->dims.at[0]);
    in[1].strides[0] = in[1].strides[1] = 0;
    in[1].strides[2] = w->strides[3];
    in[1].strides[3] = w->strides[0];
    product.op = LZ_OP_MATMUL;
    product.in = in;
    return product;
}

/* ---- the plan of a call ------------------------------------------------------------------------------------------ */

typedef struct method {
    lz_dtype type;           /* type in which x and w are multiplied */
    lz_tensor x, w, product; /* tensors of the call, or copies in scratch */
    bool copy_x, copy_w;     /* only if cuDNN is used */
    bool indirect;           /* the result is stored in scratch, and the epilogue writes out */
    lz_dnn_plan *plan;       /* NULL: kernels/conv.cu is used */
    bool ends;               /* the plan includes the epilogue */
    lz_ending ending;
    char *workspace;
    int64_t bytes; /* of scratch */
} method;

static double work_of(const lz_call *call) {
    double work = 2.0 * (double)lz_dims_size(call->out.dims);
    for (int i = 1; i < 4; i++) work *= (double)call->in[1].dims.at[i];
    return work;
}

/* Are channels contiguous, and all strides of longer axes nonzero? */
static bool channels_last(const lz_tensor *t) {
    bool fine = t->strides[3] == 1 || t->dims.at[3] == 1;
    for (int i = 0; i < 3; i++) fine = fine && (t->strides[i] || t->dims.at[i] == 1);
    return fine;
}

static bool is_half_or_f32(lz_dtype t) { return t == LZ_F16 || t == LZ_BF16 || t == LZ_F32; }

/* ---- cuDNN ------------------------------------------------------------------------------------------------------- */

enum { X = 1, W, OUT, BIAS, RESIDUAL };

static lz_dnn_tensor operand(const lz_tensor *t, int64_t number) { /* [n, h, w, c] as [n, c, h, w] */
    lz_dnn_tensor made = {.type = lz_dnn_type_of(t->dtype), .number = number};
    static const int axis[] = {0, 3, 1, 2};
    int64_t strides[4], dense = 1;
    for (int i = 3; i >= 0; i--) { /* an axis of size 1 may have any stride except 0 */
        strides[i] = t->dims.at[i] == 1 ? dense : t->strides[i];
        dense = strides[i] * t->dims.at[i];
    }
    for (int i = 0; i < 4; i++) {
        made.dims[i] = t->dims.at[axis[i]];
        made.strides[i] = strides[axis[i]];
    }
    return made;
}

static void add_numbers(int64_t **to, const lz_tensor *t) {
    for (int i = 0; i < 4; i++) {
        *(*to)++ = t->dims.at[i];
        *(*to)++ = t->strides[i];
    }
}

static lz_dnn_key key_of(const lz_call *call, const method *w, bool ends) {
    lz_dnn_key key;
    memset(&key, 0, sizeof key);
    memcpy(key.what, ends ? "conv, ended" : "conv", ends ? 12 : 5);
    int64_t *to = key.numbers;
    add_numbers(&to, &w->x);
    add_numbers(&to, &w->w);
    add_numbers(&to, &w->product);
    const int64_t others[] = {w->type,
                              call->params->conv.stride,
                              call->params->conv.top,
                              call->params->conv.bottom,
                              call->params->conv.left,
                              call->params->conv.right,
                              ends && w->ending.residual >= 0};
    memcpy(to, others, sizeof others);
    to += sizeof others / sizeof *others;
    if (ends && w->ending.residual >= 0)
        for (int i = 0; i < 4; i++) *to++ = call->in[w->ending.residual].strides[i];
    return key;
}

/* Adds residual and bias in this order: cuDNN has precompiled kernels for convolution + residual + bias. */
static void add_ending(lz_dnn_graph *g, const lz_call *call, const method *w, lz_dnn_descriptor sums,
                       lz_dnn_descriptor out) {
    int64_t o = call->out.dims.at[3];
    lz_dnn_tensor bias = {
        .type = lz_dnn_type_of(w->type), .dims = {1, o, 1, 1}, .strides = {o, 1, o, o}, .number = BIAS};
    if (w->ending.residual >= 0) {
        lz_dnn_tensor more = operand(&w->product, 0), residual = operand(&call->in[w->ending.residual], RESIDUAL);
        more.type = LZ_CUDNN_DATA_FLOAT;
        lz_dnn_descriptor both = lz_dnn_add_tensor(g, &more);
        lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_ADD, sums, lz_dnn_add_tensor(g, &residual), NULL, both, -1);
        sums = both;
    }
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_ADD, sums, lz_dnn_add_tensor(g, &bias), NULL, out, -1);
}

static lz_dnn_plan *make_plan(const lz_call *call, const method *w, const lz_dnn_key *key, bool ends) {
    lz_dnn_graph g = {.d = call->device};
    const int64_t before[2] = {call->params->conv.top, call->params->conv.left};
    const int64_t behind[2] = {call->params->conv.bottom, call->params->conv.right};
    lz_dnn_tensor x = operand(&w->x, X), weights = operand(&w->w, W), out = operand(&w->product, OUT), sums = out;
    sums.number = 0;
    sums.type = LZ_CUDNN_DATA_FLOAT;
    lz_dnn_descriptor result = lz_dnn_add_tensor(&g, &out), first = ends ? lz_dnn_add_tensor(&g, &sums) : result;
    lz_dnn_add_convolution(&g, lz_dnn_add_tensor(&g, &x), lz_dnn_add_tensor(&g, &weights), first,
                           call->params->conv.stride, before, behind);
    if (ends) add_ending(&g, call, w, first, result);
    return lz_dnn_make(&g, key,
                       &(lz_dnn_order){.what = ends ? "convolution with an ending" : "convolution",
                                       .exact = w->type == LZ_F32,
                                       .thorough = w->type != LZ_F32 && work_of(call) >= WORTH_MEASURING});
}

/* make: scratch() makes the plan; run() only finds it. */
static lz_dnn_plan *find_plan(const lz_call *call, const method *w, bool ends, bool make) {
    lz_dnn_key key = key_of(call, w, ends);
    lz_dnn_plan *plan = NULL;
    if (!lz_dnn_find(call->device, &key, &plan) && make) plan = make_plan(call, w, &key, ends);
    return plan;
}

static bool suits_dnn(const lz_call *call, lz_dtype type) {
    return call->device->dnn && is_half_or_f32(type) && call->in[1].dims.at[3] > 0 && work_of(call) >= WORTH_A_PLAN;
}

/* Can cuDNN do the epilogue? It must be a bias, and optionally a residual with the strides of the result. */
static bool suits_ending(const lz_call *call, const method *w) {
    const lz_ending *e = &w->ending;
    if (e->bias < 0 || e->gate >= 0 || e->gelu_tanh) return false;
    return e->residual < 0 || channels_last(&call->in[e->residual]);
}

static void plan_dnn(const lz_call *call, method *w, lz_scratch *p, bool make) {
    w->copy_x = w->x.dtype != w->type || !channels_last(&w->x);
    w->copy_w = w->w.dtype != w->type || !lz_is_dense(w->w.dims, w->w.strides);
    if (w->copy_x) w->x = lz_cuda_packed(p, &w->x, w->type, 4);
    if (w->copy_w) w->w = lz_cuda_packed(p, &w->w, w->type, 4);
    if (w->indirect) w->product.dtype = w->type;
    bool known = call->expr && !w->indirect && w->type != LZ_F32 && lz_cuda_read_ending(call, &w->ending);
    if (known && suits_ending(call, w)) w->plan = find_plan(call, w, true, make);
    w->ends = w->plan;
    if (!w->plan) w->plan = find_plan(call, w, false, make);
    if (w->plan) w->workspace = lz_scratch_take(p, lz_dnn_workspace(w->plan));
}

/* scratch() (with make) and run() call this, and get the same plan. */
static method plan_method(const lz_call *call, bool make) {
    method w;
    memset(&w, 0, sizeof w);
    lz_scratch p = lz_scratch_at(make ? NULL : call->scratch);
    w.type = lz_cuda_common_type(call->in[0].dtype, call->in[1].dtype);
    w.x = call->in[0], w.w = call->in[1], w.product = call->out;
    bool dnn = suits_dnn(call, w.type);
    w.indirect = call->expr && (!is_half_or_f32(call->out.dtype) || (dnn && call->out.dtype != w.type));
    if (dnn && !channels_last(&call->out)) w.indirect = true;
    if (w.indirect) w.product = lz_cuda_packed(&p, &call->out, LZ_F32, 4);
    if (dnn) plan_dnn(call, &w, &p, make);
    w.bytes = lz_scratch_bytes(&p);
    return w;
}

static bool run_plan(const lz_call *call, const method *w) {
    if (w->copy_x && !lz_cuda_convert(call, &call->in[0], &w->x)) return false;
    if (w->copy_w && !lz_cuda_convert(call, &call->in[1], &w->w)) return false;
    void *addresses[RESIDUAL] = {w->x.data, w->w.data, w->product.data};
    int n = OUT;
    if (w->ends) addresses[n++] = call->in[w->ending.bias].data;
    if (w->ends && w->ending.residual >= 0) addresses[n++] = call->in[w->ending.residual].data;
    return lz_dnn_run(call, w->plan, &(lz_dnn_operands){.addresses = addresses, .n = n, .workspace = w->workspace});
}

/* Can the plan be used with these addresses? Plans are made for operands that are aligned to 16 bytes. */
static bool usable(const lz_call *call, const method *w) {
    if (!w->plan || (lz_dnn_workspace(w->plan) && !call->scratch)) return false;
    uintptr_t bits = (uintptr_t)w->x.data | (uintptr_t)w->w.data | (uintptr_t)w->product.data;
    if (w->ends) bits |= (uintptr_t)call->in[w->ending.bias].data;
    if (w->ends && w->ending.residual >= 0) bits |= (uintptr_t)call->in[w->ending.residual].data;
    return bits % 16 == 0;
}

/* ---- conv.cu ----------------------------------------------------------------------------------------------------- */

static lz_strided strided_of(const lz_tensor *t) {
    lz_strided made = {.data = t->data};
    for (int i = 0; i < 4; i++) made.strides[i] = t->strides[i];
    return made;
}

static bool run_own(const lz_call *call, const lz_tensor *x, const lz_tensor *w, const lz_tensor *out, int stride,
                    int top, int left) {
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define X_TYPE %s\n#define W_TYPE %s\n#define OUT_TYPE %s\n", lz_cuda_type_name(x->dtype),
                lz_cuda_type_name(w->dtype), lz_cuda_type_name(out->dtype));
    lz_text_add(&text, "typedef %s number;\n#include \"conv.cu\"\n", lz_is_float(out->dtype) ? "float" : "i64");
    lz_conv_params p = {.x = strided_of(x),
                        .w = strided_of(w),
                        .out = strided_of(out),
                        .pixels = out->dims.at[0] * out->dims.at[1] * out->dims.at[2],
                        .outputs = out->dims.at[3],
                        .height = (int)x->dims.at[1],
                        .width = (int)x->dims.at[2],
                        .channels = (int)x->dims.at[3],
                        .window_height = (int)w->dims.at[1],
                        .window_width = (int)w->dims.at[2],
                        .out_height = (int)out->dims.at[1],
                        .out_width = (int)out->dims.at[2],
                        .stride = stride,
                        .top = top,
                        .left = left};
    enum { TILE = 64, THREADS = 256 }; /* the same as in conv.cu */
    int64_t blocks = (p.pixels + TILE - 1) / TILE * ((p.outputs + TILE - 1) / TILE);
    return lz_cuda_run_text(call, "conv", &text, blocks, THREADS, &p);
}

/* a [m, k] is an image of one row, b [k, n] the weights of a 1 x 1 convolution. */
bool lz_cuda_multiply_plainly(const lz_call *call, const lz_tensor *a, const lz_tensor *b, const lz_tensor *out) {
    lz_tensor x = {.data = a->data, .dtype = a->dtype, .dims = LZ_DIMS(1, 1, a->dims.at[0], a->dims.at[1])};
    lz_tensor w = {.data = b->data, .dtype = b->dtype, .dims = LZ_DIMS(b->dims.at[1], 1, 1, b->dims.at[0])};
    lz_tensor y = {.data = out->data, .dtype = out->dtype, .dims = LZ_DIMS(1, 1, out->dims.at[0], out->dims.at[1])};
    x.strides[2] = a->strides[0], x.strides[3] = a->strides[1];
    w.strides[0] = b->strides[1], w.strides[3] = b->strides[0];
    y.strides[2] = out->strides[0], y.strides[3] = out->strides[1];
    return run_own(call, &x, &w, &y, 1, 0, 0);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static bool can_conv(const lz_call *call) {
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            if (call->in[i].dims.at[j] > INT_MAX) return false;
    return lz_cuda_is_real(call->in[0].dtype) && lz_cuda_is_real(call->in[1].dtype) && lz_cuda_can_finish(call);
}

static int64_t conv_scratch(const lz_call *call) {
    lz_tensor in[MAX_IN];
    if (!is_product(call)) return plan_method(call, true).bytes;
    lz_call product = as_product(call, in);
    return lz_cuda_matmul.scratch(&product);
}

static bool run_conv(const lz_call *call) {
    if (is_product(call)) {
        lz_tensor in[MAX_IN];
        lz_call product = as_product(call, in);
        return lz_cuda_matmul.run(&product);
    }
    method w = plan_method(call, false);
    bool planned = usable(call, &w);
    bool done = planned ? run_plan(call, &w)
                        : run_own(call, &call->in[0], &call->in[1], &w.product, call->params->conv.stride,
                                  call->params->conv.top, call->params->conv.left);
    if (!done || (planned && w.ends)) return done;
    if (w.indirect) return lz_cuda_finish(call, &w.product);
    return !call->expr || lz_cuda_epilogue(call);
}

const lz_kernel lz_cuda_conv2d = {.name = "cuda.conv2d", .run = run_conv, .scratch = conv_scratch, .can = can_conv};
