/* expr.c: the elementwise engine. An expression runs over blocks of 512 elements: every step is a loop over registers
 * that stay in the L1 cache, so a chain reads and writes memory once, however long it is. The same steps run whether an
 * op is alone, in a chain, or in an epilogue, so fused and unfused programs give the same bits. */
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/math.h"
#include "backend/cpu/isa/walk.h"

enum { BLOCK = 512, TASK = 32 * BLOCK }; /* elements of a register; of a task */

/* ---- memory to registers and back -------------------------------------------------------------------------------- */

#define READ(type, expression)                                                                                         \
    do {                                                                                                               \
        const type *restrict p = from;                                                                                 \
        if (stride == 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const type v = p[i];                                                                                   \
                to[i] = expression;                                                                                    \
            }                                                                                                          \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const type v = p[i * stride];                                                                          \
                to[i] = expression;                                                                                    \
            }                                                                                                          \
    } while (0)

void read_floats(float *restrict to, const void *from, lz_dtype dtype, int64_t stride, int64_t n) {
    if (stride == 0 && n > 1) {
        read_floats(to, from, dtype, 1, 1);
        for (int64_t i = 1; i < n; i++) to[i] = to[0];
        return;
    }
    switch (dtype) {
    case LZ_F32: READ(float, v); break;
    case LZ_BF16: READ(uint16_t, lz_from_bf16(v)); break;
    case LZ_F16: READ(uint16_t, lz_from_f16(v)); break;
    case LZ_F8: READ(uint8_t, lz_from_f8(v)); break;
    case LZ_BOOL:
    case LZ_U8: READ(uint8_t, (float)v); break;
    case LZ_I8: READ(int8_t, (float)v); break;
    case LZ_I32: READ(int32_t, (float)v); break;
    case LZ_I64: READ(int64_t, (float)v); break;
    case LZ_F64: READ(double, (float)v); break;
    default: break;
    }
}

#define WRITE(type, expression)                                                                                        \
    do {                                                                                                               \
        type *restrict p = to;                                                                                         \
        if (stride == 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const float v = from[i];                                                                               \
                p[i] = (type)(expression);                                                                             \
            }                                                                                                          \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                const float v = from[i];                                                                               \
                p[i * stride] = (type)(expression);                                                                    \
            }                                                                                                          \
    } while (0)

void write_floats(void *to, const float *restrict from, lz_dtype dtype, int64_t stride, int64_t n) {
    switch (dtype) {
    case LZ_F32: WRITE(float, v); break;
    case LZ_BF16: WRITE(uint16_t, lz_to_bf16(v)); break;
    case LZ_F16: WRITE(uint16_t, lz_to_f16(v)); break;
    case LZ_F8: WRITE(uint8_t, lz_to_f8(v)); break;
    case LZ_BOOL: WRITE(uint8_t, v != 0); break;
    case LZ_U8: WRITE(uint8_t, lz_saturate((double)v, 0, UINT8_MAX)); break;
    case LZ_I8: WRITE(int8_t, lz_saturate((double)v, INT8_MIN, INT8_MAX)); break;
    case LZ_I32: WRITE(int32_t, lz_saturate((double)v, INT32_MIN, INT32_MAX)); break;
    case LZ_I64: WRITE(int64_t, lz_saturate((double)v, INT64_MIN, INT64_MAX)); break;
    case LZ_F64: WRITE(double, (double)v); break;
    default: break;
    }
}

/* A result that is larger than the last-level cache will not be in it when it is read. Non-temporal stores bypass the
 * caches, which saves loading every line before it is overwritten. No fence is needed: the locked instructions at the
 * end of a thread's part of the loop (base/pool.c) drain such stores. (Measured: layer_norm + modulate of 4608 x 3072
 * gets 1.5 times the bandwidth.) */
#define STREAM_BYTES (32 << 20)

static bool streams(const lz_tensor *out) {
    int64_t bytes = lz_dtype_size(out->dtype);
    for (int i = 0; i < out->dims.n; i++) bytes *= out->dims.at[i];
    return bytes >= STREAM_BYTES;
}

static void stream_floats(float *to, const float *from, int n) {
    int i = 0;
#ifdef __x86_64__
    for (; i < n && (uintptr_t)(to + i) % 64; i++) to[i] = from[i];
    for (; i + 16 <= n; i += 16)
#ifdef __AVX512F__
        _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
#else
        for (int j = 0; j < 16; j += 4) _mm_stream_ps(to + i + j, _mm_loadu_ps(from + i + j));
#endif
#endif
    for (; i < n; i++) to[i] = from[i];
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

typedef void (*step_fn)(float *d, const float *a, const float *b, const float *c, int n, const lz_expr_step *s);

/* d may have the memory of a, b or c: element i of d depends only on element i of the operands. */
#define STEP(name, expression)                                                                                         \
    static void step_##name(float *d, const float *a, const float *b, const float *c, int n, const lz_expr_step *s) {  \
        (void)b, (void)c, (void)s;                                                                                     \
        _Pragma("GCC ivdep") for (int i = 0; i < n; i++) {                                                             \
            const float x = a[i];                                                                                      \
            d[i] = expression;                                                                                         \
        }                                                                                                              \
    }

STEP(copy, x)
STEP(neg, -x)
STEP(abs, fabsf(x))
STEP(not, x == 0.0f ? 1.0f : 0.0f)
STEP(square, x *x)
STEP(floor, floorf(x))
STEP(exp, exp_f32(x))
STEP(log, log_f32(x))
STEP(sqrt, sqrtf(x))
STEP(rsqrt, 1.0f / sqrtf(x))
STEP(tanh, tanh_f32(x))
STEP(erf, erf_f32(x))
STEP(sigmoid, sigmoid_f32(x))
STEP(silu, silu_f32(x))
STEP(gelu, gelu_f32(x))
STEP(gelu_tanh, gelu_tanh_f32(x))
STEP(clip, x<s->k0 ? s->k0 : x> s->k1 ? s->k1 : x)
STEP(add, x + b[i])
STEP(sub, x - b[i])
STEP(mul, x *b[i])
STEP(div, x / b[i])
STEP(pow, powf(x, b[i]))
STEP(maximum, x > b[i] || x != x ? x : b[i])
STEP(minimum, x < b[i] || x != x ? x : b[i])
STEP(equal, x == b[i] ? 1.0f : 0.0f)
STEP(not_equal, x != b[i] ? 1.0f : 0.0f)
STEP(less, x < b[i] ? 1.0f : 0.0f)
STEP(less_equal, x <= b[i] ? 1.0f : 0.0f)
STEP(greater, x > b[i] ? 1.0f : 0.0f)
STEP(greater_equal, x >= b[i] ? 1.0f : 0.0f)
STEP(and, ((x != 0.0f) & (b[i] != 0.0f)) ? 1.0f : 0.0f)
STEP(or, ((x != 0.0f) | (b[i] != 0.0f)) ? 1.0f : 0.0f)
STEP(where, x != 0.0f ? b[i] : c[i])
STEP(mul_add, x *b[i] + c[i])
STEP(add_number, x + s->k0)
STEP(sub_number, x - s->k0)
STEP(mul_number, x * s->k0)
STEP(div_number, x / s->k0)
STEP(maximum_number, x > s->k0 || x != x ? x : s->k0)
STEP(minimum_number, x < s->k0 || x != x ? x : s->k0)
STEP(to_bf16, lz_from_bf16(lz_to_bf16(x)))
STEP(to_f16, lz_from_f16(lz_to_f16(x)))
STEP(to_f8, lz_from_f8(lz_to_f8(x)))
STEP(to_bool, x != 0.0f ? 1.0f : 0.0f)

static void step_full(float *d, const float *a, const float *b, const float *c, int n, const lz_expr_step *s) {
    (void)a, (void)b, (void)c;
    for (int i = 0; i < n; i++) d[i] = s->k0;
}

/* The fast reduction of an angle fails far from zero. Such angles are rare and go to the C library. */
#define TRIG_STEP(name)                                                                                                \
    static void step_##name(float *d, const float *a, const float *b, const float *c, int n, const lz_expr_step *s) {  \
        (void)b, (void)c, (void)s;                                                                                     \
        float far[BLOCK];                                                                                              \
        int any = 0;                                                                                                   \
        for (int i = 0; i < n; i++) {                                                                                  \
            far[i] = a[i];                                                                                             \
            any |= !(fabsf(a[i]) < TRIG_LIMIT);                                                                        \
        }                                                                                                              \
        for (int i = 0; i < n; i++) d[i] = name##_f32(far[i]);                                                         \
        for (int i = 0; any && i < n; i++)                                                                             \
            if (!(fabsf(far[i]) < TRIG_LIMIT)) d[i] = name##f(far[i]);                                                 \
    }
TRIG_STEP(sin)
TRIG_STEP(cos)

static const step_fn steps[LZ_OP_COUNT + 1] = {
    [LZ_OP_COPY] = step_copy,
    [LZ_OP_FULL] = step_full,
    [LZ_OP_NEG] = step_neg,
    [LZ_OP_ABS] = step_abs,
    [LZ_OP_NOT] = step_not,
    [LZ_OP_SQUARE] = step_square,
    [LZ_OP_FLOOR] = step_floor,
    [LZ_OP_EXP] = step_exp,
    [LZ_OP_LOG] = step_log,
    [LZ_OP_SQRT] = step_sqrt,
    [LZ_OP_RSQRT] = step_rsqrt,
    [LZ_OP_SIN] = step_sin,
    [LZ_OP_COS] = step_cos,
    [LZ_OP_TANH] = step_tanh,
    [LZ_OP_ERF] = step_erf,
    [LZ_OP_SIGMOID] = step_sigmoid,
    [LZ_OP_SILU] = step_silu,
    [LZ_OP_GELU] = step_gelu,
    [LZ_OP_GELU_TANH] = step_gelu_tanh,
    [LZ_OP_CLIP] = step_clip,
    [LZ_OP_ADD] = step_add,
    [LZ_OP_SUB] = step_sub,
    [LZ_OP_MUL] = step_mul,
    [LZ_OP_DIV] = step_div,
    [LZ_OP_POW] = step_pow,
    [LZ_OP_MAXIMUM] = step_maximum,
    [LZ_OP_MINIMUM] = step_minimum,
    [LZ_OP_EQUAL] = step_equal,
    [LZ_OP_NOT_EQUAL] = step_not_equal,
    [LZ_OP_LESS] = step_less,
    [LZ_OP_LESS_EQUAL] = step_less_equal,
    [LZ_OP_GREATER] = step_greater,
    [LZ_OP_GREATER_EQUAL] = step_greater_equal,
    [LZ_OP_AND] = step_and,
    [LZ_OP_OR] = step_or,
    [LZ_OP_WHERE] = step_where,
    [LZ_EXPR_MUL_ADD] = step_mul_add,
};
static const step_fn with_number[LZ_OP_COUNT] = {
    [LZ_OP_ADD] = step_add_number, [LZ_OP_SUB] = step_sub_number,         [LZ_OP_MUL] = step_mul_number,
    [LZ_OP_DIV] = step_div_number, [LZ_OP_MAXIMUM] = step_maximum_number, [LZ_OP_MINIMUM] = step_minimum_number,
};
static const step_fn casts[LZ_DTYPE_COUNT] = {
    [LZ_BF16] = step_to_bf16,
    [LZ_F16] = step_to_f16,
    [LZ_F8] = step_to_f8,
    [LZ_BOOL] = step_to_bool,
};

/* Registers. at[i] points to storage[i], or directly to the memory of an argument. */
typedef struct block {
    float storage[LZ_EXPR_REGS][BLOCK] __attribute__((aligned(64)));
    const float *at[LZ_EXPR_REGS];
} block;

/* Runs the steps on n elements and returns the address of the result, in f32, which the caller stores as dtype. If out
 * is not NULL, the last step writes to it. A last step that rounds to dtype, a type of 8 or 16 bits, is skipped,
 * because storing rounds in the same way. (A 32-bit result may be stored over the argument itself, so it is copied
 * first.) */
static const float *run_steps(const lz_expr *e, block *r, int n, float *out, lz_dtype dtype) {
    for (int i = 0; i < e->n_steps; i++) {
        const lz_expr_step *s = &e->steps[i];
        bool last = i == e->n_steps - 1;
        if (last && !out && s->op == LZ_OP_CAST && s->b == (int)dtype && lz_dtype_size(dtype) <= 2) return r->at[s->a];
        float *d = last && out ? out : r->storage[s->dst];
        step_fn fn = s->number ? with_number[s->op] : s->op == LZ_OP_CAST ? casts[s->b] : steps[s->op];
        if (s->op == LZ_OP_CAST && !fn) fn = step_copy; /* to f32: no change; to an integer: the store converts */
        fn(d, r->at[s->a], r->at[s->b], r->at[s->c], n, s);
        r->at[s->dst] = d;
    }
    return r->at[e->result];
}

static void clear(block *r) {
    for (int i = 0; i < LZ_EXPR_REGS; i++) r->at[i] = r->storage[i];
}

/* Loads n elements of an argument into register i, or lets the register point to them. */
static void load(block *r, int i, int at, const char *data, lz_dtype dtype, int64_t stride, int n, bool whole) {
    if (whole && dtype == LZ_F32 && stride == 1) {
        r->at[i] = (const float *)data;
        return;
    }
    r->at[i] = r->storage[i];
    read_floats(r->storage[i] + at, data, dtype, stride, n);
}

/* ---- the end of a row -------------------------------------------------------------------------------------------- */

void begin_row(row_end *e, const lz_call *call, int64_t row) {
    /* Argument i >= 1 of the epilogue is arg[i]. */
    const lz_tensor *out = &call->out, *arg = call->in + call->n_core - 1;
    e->call = call;
    e->to = out->data + row_offset(out, row) * lz_dtype_size(out->dtype);
    e->direct = out->dtype == LZ_F32 && out->strides[out->dims.n - 1] == 1;
    e->stream = e->direct && streams(out);
    for (int i = 1; call->expr && i < call->expr->n_args; i++)
        e->from[i] = arg[i].data + row_offset(&arg[i], row) * lz_dtype_size(arg[i].dtype);
}

void finish_piece(const row_end *e, int64_t col, float *values, int64_t n) {
    const lz_call *call = e->call;
    const lz_tensor *out = &call->out, *arg = call->in + call->n_core - 1;
    int last = out->dims.n - 1;
    block r;
    clear(&r);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int m = (int)(n - at < BLOCK ? n - at : BLOCK);
        char *to = e->to + (col + at) * out->strides[last] * lz_dtype_size(out->dtype);
        const float *result = r.at[0] = values + at;
        for (int i = 1; call->expr && i < call->expr->n_args; i++) {
            int64_t step = arg[i].strides[last];
            load(&r, i, 0, e->from[i] + (col + at) * step * lz_dtype_size(arg[i].dtype), arg[i].dtype, step, m, true);
        }
        if (call->expr) result = run_steps(call->expr, &r, m, e->direct && !e->stream ? (float *)to : NULL, out->dtype);
        if (e->stream)
            stream_floats((float *)to, result, m);
        else if (result != (float *)to)
            write_floats(to, result, out->dtype, out->strides[last], m);
    }
}

void finish_row(const lz_call *call, int64_t row, int64_t col, float *values, int64_t n) {
    row_end e;
    begin_row(&e, call, row);
    finish_piece(&e, col, values, n);
}

/* ---- elementwise ops --------------------------------------------------------------------------------------------- */

typedef struct element_job {
    const lz_call *call;
    walk w; /* tensor 0 is the output */
    bool stream;
} element_job;

/* A block inside the innermost axis. */
static void run_straight(const element_job *job, const walk_position *p, block *r, int n) {
    const lz_call *c = job->call;
    int inner = job->w.axes.rank - 1;
    for (int i = 0; i < c->n_in; i++) {
        int64_t stride = job->w.axes.strides[i + 1][inner] / lz_dtype_size(c->in[i].dtype);
        load(r, i, 0, c->in[i].data + p->offset[i + 1], c->in[i].dtype, stride, n, true);
    }
    int64_t step = job->w.axes.strides[0][inner] / lz_dtype_size(c->out.dtype);
    float *to = (float *)(c->out.data + p->offset[0]),
          *target = c->out.dtype == LZ_F32 && step == 1 && !job->stream ? to : NULL;
    const float *result = run_steps(c->expr, r, n, target, c->out.dtype);
    if (job->stream && step == 1)
        stream_floats(to, result, n);
    else if (result != target)
        write_floats(c->out.data + p->offset[0], result, c->out.dtype, step, n);
}

/* A block of several short runs along the innermost axis. */
static void run_pieces(const element_job *job, walk_position *p, block *r, int n) {
    const lz_call *c = job->call;
    int inner = job->w.axes.rank - 1;
    walk_position start = *p;
    for (int at = 0; at < n;) {
        int run = (int)(walk_run(&job->w, p) < n - at ? walk_run(&job->w, p) : n - at);
        for (int i = 0; i < c->n_in; i++) {
            int64_t stride = job->w.axes.strides[i + 1][inner] / lz_dtype_size(c->in[i].dtype);
            load(r, i, at, c->in[i].data + p->offset[i + 1], c->in[i].dtype, stride, run, false);
        }
        walk_on(&job->w, p, run);
        at += run;
    }
    const float *result = run_steps(c->expr, r, n, NULL, c->out.dtype);
    int64_t step = job->w.axes.strides[0][inner] / lz_dtype_size(c->out.dtype);
    for (int at = 0; at < n;) {
        int run = (int)(walk_run(&job->w, &start) < n - at ? walk_run(&job->w, &start) : n - at);
        write_floats(c->out.data + start.offset[0], result + at, c->out.dtype, step, run);
        walk_on(&job->w, &start, run);
        at += run;
    }
}

static void element_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const element_job *job = arg;
    int64_t at = task * TASK, end = at + TASK < job->w.size ? at + TASK : job->w.size;
    walk_position p;
    block r;
    clear(&r);
    walk_seek(&job->w, &p, at);
    bool long_rows = job->w.axes.dims[job->w.axes.rank - 1] >= BLOCK / 2;
    while (at < end) {
        int n = (int)(end - at < BLOCK ? end - at : BLOCK);
        if (long_rows || walk_run(&job->w, &p) >= n) {
            if (walk_run(&job->w, &p) < n) n = (int)walk_run(&job->w, &p);
            run_straight(job, &p, &r, n);
            walk_on(&job->w, &p, n);
        } else
            run_pieces(job, &p, &r, n);
        at += n;
    }
}

static bool run_element(const lz_call *call) {
    element_job job = {.call = call, .stream = call->out.dtype == LZ_F32 && streams(&call->out)};
    const lz_tensor *tensors[WALK_MAX] = {&call->out};
    for (int i = 0; i < call->n_in; i++) tensors[i + 1] = &call->in[i];
    walk_make(&job.w, tensors, call->n_in + 1);
    lz_parallel(call->pool, (job.w.size + TASK - 1) / TASK, element_task, &job);
    return true;
}

const lz_kernel ISA(lz_kernel_element) = {.name = "cpu.element", .run = run_element};
