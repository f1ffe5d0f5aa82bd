/* dnn_run.c: runs the programs of the simulated cuDNN, one operation after another. Every result is kept in f32, rounded
 * to the type of its tensor. */
#include <math.h>

#include "dnn.h"
#include "op/number.h"

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static int64_t size_of(lz_dnn_type type) {
    return type == LZ_CUDNN_DATA_FLOAT || type == LZ_CUDNN_DATA_INT32 ? 4 : type == LZ_CUDNN_DATA_BOOLEAN ? 1 : 2;
}

float lz_sim_read_number(lz_dnn_type type, const char *at) {
    float value;
    uint16_t bits;
    memcpy(&bits, at, 2);
    if (type == LZ_CUDNN_DATA_HALF) return lz_from_f16(bits);
    if (type == LZ_CUDNN_DATA_BFLOAT16) return lz_from_bf16(bits);
    memcpy(&value, at, 4);
    return value;
}

static void write_number(lz_dnn_type type, char *at, float value) {
    uint16_t bits = type == LZ_CUDNN_DATA_HALF ? lz_to_f16(value) : lz_to_bf16(value);
    if (type == LZ_CUDNN_DATA_FLOAT)
        memcpy(at, &value, 4);
    else
        memcpy(at, &bits, 2);
}

/* As the tensor's type keeps it. */
static float rounded(lz_dnn_type type, float value) {
    if (type == LZ_CUDNN_DATA_HALF) return lz_from_f16(lz_to_f16(value));
    return type == LZ_CUDNN_DATA_BFLOAT16 ? lz_from_bf16(lz_to_bf16(value)) : value;
}

static int64_t count_of(const tensor *t) { return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]; }

/* Where element i, in row-major order, lies in memory. */
static int64_t place_of(const tensor *t, int64_t i) {
    int64_t place = 0;
    for (int axis = DIMS - 1; axis >= 0; axis--) {
        place += i % t->dims[axis] * t->strides[axis];
        i /= t->dims[axis];
    }
    return place;
}

/* The element of t that broadcasting pairs with element i of `of`. */
static int64_t paired(const tensor *t, const tensor *of, int64_t i) {
    int64_t place = 0, stride = 1;
    for (int axis = DIMS - 1; axis >= 0; axis--) {
        if (t->dims[axis] > 1) place += i % of->dims[axis] * stride;
        stride *= t->dims[axis];
        i /= of->dims[axis];
    }
    return place;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct values {
    const dnn_run *r;
    float *of[MAX_TENSORS]; /* dense, all in one block */
    bool known[MAX_TENSORS];
} values;

/* Reads an operand when it is first needed. */
static const float *values_of(values *v, int i) {
    const tensor *t = &v->r->p.tensors[i];
    if (v->known[i]) return v->of[i];
    v->known[i] = true;
    for (int64_t k = 0; k < count_of(t); k++)
        v->of[i][k] = t->by_value ? v->r->numbers[i]
                                  : lz_sim_read_number(t->type, v->r->addresses[i] + place_of(t, k) * size_of(t->type));
    return v->of[i];
}

static float pointwise(int mode, float x, float b, float t) {
    switch (mode) {
    case LZ_CUDNN_POINTWISE_ADD: return x + b;
    case LZ_CUDNN_POINTWISE_MUL: return x * b;
    case LZ_CUDNN_POINTWISE_SUB: return x - b;
    case LZ_CUDNN_POINTWISE_DIV: return x / b;
    case LZ_CUDNN_POINTWISE_EXP: return expf(x);
    case LZ_CUDNN_POINTWISE_LOG: return logf(x);
    case LZ_CUDNN_POINTWISE_CMP_GE: return x >= b;
    case LZ_CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: return NAN;
    }
}

static void run_pointwise(values *v, const operation *o, float *to) {
    const tensor *all = v->r->p.tensors, *y = &all[o->out];
    int64_t inner = 1;
    for (int64_t axis = DIMS - 1; axis > o->axis; axis--) inner *= y->dims[axis];
    const float *from[3] = {NULL};
    for (int k = 0; k < 3; k++)
        if (o->in[k] >= 0) from[k] = values_of(v, o->in[k]);
    for (int64_t i = 0; i < count_of(y); i++) {
        float in[3] = {0};
        for (int k = 0; k < 3; k++)
            if (from[k]) in[k] = from[k][paired(&all[o->in[k]], y, i)];
        to[i] = o->mode == LZ_CUDNN_POINTWISE_GEN_INDEX ? (float)(i / inner % y->dims[o->axis])
                                                        : pointwise(o->mode, in[0], in[1], in[2]);
    }
}

static void run_reduction(values *v, const operation *o, float *to) {
    const tensor *x = &v->r->p.tensors[o->in[0]], *y = &v->r->p.tensors[o->out];
    const float *from = values_of(v, o->in[0]);
    bool most = o->mode == LZ_CUDNN_REDUCE_TENSOR_MAX;
    for (int64_t i = 0; i < count_of(y); i++) to[i] = most ? -INFINITY : 0;
    for (int64_t i = 0; i < count_of(x); i++) {
        float *sum = &to[paired(y, x, i)];
        *sum = most ? fmaxf(*sum, from[i]) : *sum + from[i];
    }
}

/* Several heads of a share one of b. */
static void run_matmul(values *v, const operation *o, float *to) {
    const tensor *a = &v->r->p.tensors[o->in[0]], *b = &v->r->p.tensors[o->in[1]];
    const float *x = values_of(v, o->in[0]), *y = values_of(v, o->in[1]);
    int64_t rows = a->dims[2], inner = a->dims[3], columns = b->dims[3], heads = a->dims[1], groups = b->dims[1];
    for (int64_t i = 0; i < a->dims[0] * heads * rows; i++) {
        int64_t head = i / rows % heads, batch = i / rows / heads;
        const float *right = y + (batch * groups + head / (heads / groups)) * inner * columns;
        float *sums = to + i * columns;
        memset(sums, 0, sizeof *sums * (size_t)columns);
        for (int64_t k = 0; k < inner; k++)
            for (int64_t j = 0; j < columns; j++) sums[j] += x[i * inner + k] * right[k * columns + j];
    }
}

static float sum_window(const operation *o, const tensor *x, const tensor *w, const float *image, const float *window,
                        int64_t row, int64_t column) {
    float sum = 0;
    int64_t height = x->dims[2], width = x->dims[3];
    for (int64_t c = 0; c < x->dims[1]; c++)
        for (int64_t i = 0; i < w->dims[2]; i++)
            for (int64_t j = 0; j < w->dims[3]; j++) {
                int64_t r = row * o->strides[0] - o->before[0] + i, s = column * o->strides[1] - o->before[1] + j;
                bool inside = r >= 0 && r < height && s >= 0 && s < width;
                if (inside) sum += image[(c * height + r) * width + s] * window[(c * w->dims[2] + i) * w->dims[3] + j];
            }
    return sum;
}

static void run_convolution(values *v, const operation *o, float *to) {
    const tensor *x = &v->r->p.tensors[o->in[0]], *w = &v->r->p.tensors[o->in[1]], *y = &v->r->p.tensors[o->out];
    const float *images = values_of(v, o->in[0]), *windows = values_of(v, o->in[1]);
    int64_t image = x->dims[1] * x->dims[2] * x->dims[3], window = w->dims[1] * w->dims[2] * w->dims[3];
    for (int64_t i = 0; i < count_of(y); i++) {
        int64_t column = i % y->dims[3], row = i / y->dims[3] % y->dims[2], plane = i / (y->dims[2] * y->dims[3]);
        to[i] = sum_window(o, x, w, images + plane / y->dims[1] * image, windows + plane % y->dims[1] * window, row,
                           column);
    }
}

void lz_sim_run_program(void *data) {
    const dnn_run *r = data;
    const program *p = &r->p;
    values v = {.r = r};
    int64_t total = 1;
    for (int i = 0; i < p->n_tensors; i++) total += count_of(&p->tensors[i]);
    float *block = calloc((size_t)total, sizeof *block), *next = block;
    if (!block) abort();
    for (int i = 0; i < p->n_tensors; i++, next += count_of(&p->tensors[i - 1])) v.of[i] = next;
    memset(r->workspace, 0xee, (size_t)r->workspace_bytes);
    for (int k = 0; k < p->n_ops; k++) {
        const operation *o = &p->ops[k];
        const tensor *y = &p->tensors[o->out];
        float *to = v.of[o->out];
        v.known[o->out] = true;
        if (o->kind == LZ_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) run_pointwise(&v, o, to);
        if (o->kind == LZ_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) run_reduction(&v, o, to);
        if (o->kind == LZ_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) run_matmul(&v, o, to);
        if (o->kind == LZ_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) run_convolution(&v, o, to);
        for (int64_t i = 0; i < count_of(y); i++) to[i] = rounded(y->type, to[i]);
        for (int64_t i = 0; i < count_of(y) && !y->is_virtual; i++)
            write_number(y->type, r->addresses[o->out] + place_of(y, i) * size_of(y->type), r->right ? to[i] : NAN);
    }
    free(block);
}
