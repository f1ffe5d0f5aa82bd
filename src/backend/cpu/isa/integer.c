/* integer.c: elementwise ops on integers and bools: blocks of 256 elements as i64, one loop for each op, wrapping
 * around when they are stored. Integers do not join expressions, whose registers are f32. */
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/walk.h"
#include "op/dims.h"

enum { BLOCK = 256, TASK = 64 * BLOCK };

#define READ(type)                                                                                                     \
    for (int i = 0; i < n; i++) to[i] = *(const type *)(from + i * step)
#define WRITE(type, expression)                                                                                        \
    for (int i = 0; i < n; i++) *(type *)(to + i * step) = (type)(expression)

static void read_whole(int64_t *to, const char *from, lz_dtype dtype, int64_t step, int n) { /* step in bytes */
    switch (dtype) {
    case LZ_BOOL:
    case LZ_U8: READ(uint8_t); break;
    case LZ_I8: READ(int8_t); break;
    case LZ_I32: READ(int32_t); break;
    default: READ(int64_t); break;
    }
}

static void write_whole(char *to, const int64_t *from, lz_dtype dtype, int64_t step, int n) {
    switch (dtype) {
    case LZ_BOOL: WRITE(uint8_t, from[i] != 0); break;
    case LZ_U8: WRITE(uint8_t, from[i]); break;
    case LZ_I8: WRITE(int8_t, from[i]); break;
    case LZ_I32: WRITE(int32_t, from[i]); break;
    default: WRITE(int64_t, from[i]); break;
    }
}

static int64_t power(int64_t base, int64_t exponent) { /* a negative power of anything but 1 and -1 is 0, as in torch */
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t result = 1, b = (uint64_t)base;
    for (; exponent; exponent /= 2, b *= b)
        if (exponent % 2) result *= b;
    return (int64_t)result;
}

/* A limit of clip, converted to the type that is clipped. */
static int64_t clip_limit(const lz_call *call, double limit) {
    static const int64_t least[] = {
        [LZ_BOOL] = 0, [LZ_U8] = 0, [LZ_I8] = INT8_MIN, [LZ_I32] = INT32_MIN, [LZ_I64] = INT64_MIN};
    static const int64_t most[] = {
        [LZ_BOOL] = 1, [LZ_U8] = UINT8_MAX, [LZ_I8] = INT8_MAX, [LZ_I32] = INT32_MAX, [LZ_I64] = INT64_MAX};
    return lz_saturate(limit, least[call->out.dtype], most[call->out.dtype]);
}

/* One function for each op: a = op(a, b, c); unsigned if it may wrap around. */
#define U(x) ((uint64_t)(x))
#define OPS(X)                                                                                                         \
    X(COPY, a[i])                                                                                                      \
    X(CAST, a[i])                                                                                                      \
    X(NEG, 0 - U(a[i]))                                                                                                \
    X(ABS, a[i] < 0 ? 0 - U(a[i]) : U(a[i]))                                                                           \
    X(NOT, a[i] == 0)                                                                                                  \
    X(SQUARE, U(a[i]) * U(a[i]))                                                                                       \
    X(ADD, U(a[i]) + U(b[i]))                                                                                          \
    X(SUB, U(a[i]) - U(b[i]))                                                                                          \
    X(MUL, U(a[i]) * U(b[i]))                                                                                          \
    X(POW, power(a[i], b[i]))                                                                                          \
    X(MAXIMUM, a[i] > b[i] ? a[i] : b[i])                                                                              \
    X(MINIMUM, a[i] < b[i] ? a[i] : b[i])                                                                              \
    X(EQUAL, a[i] == b[i])                                                                                             \
    X(NOT_EQUAL, a[i] != b[i])                                                                                         \
    X(LESS, a[i] < b[i])                                                                                               \
    X(LESS_EQUAL, a[i] <= b[i])                                                                                        \
    X(GREATER, a[i] > b[i])                                                                                            \
    X(GREATER_EQUAL, a[i] >= b[i])                                                                                     \
    X(AND, (a[i] != 0) & (b[i] != 0))                                                                                  \
    X(OR, (a[i] != 0) | (b[i] != 0))                                                                                   \
    X(WHERE, a[i] ? b[i] : c[i])                                                                                       \
    X(CLIP, a[i]<low ? low : a[i]> high ? high : a[i])

typedef void compute(int64_t *restrict a, const int64_t *restrict b, const int64_t *restrict c, int64_t low,
                     int64_t high, int n);
#define X(op, expression)                                                                                              \
    static void compute_##op(int64_t *restrict a, const int64_t *restrict b, const int64_t *restrict c, int64_t low,   \
                             int64_t high, int n) {                                                                    \
        (void)b, (void)c, (void)low, (void)high;                                                                       \
        for (int i = 0; i < n; i++) a[i] = (int64_t)(expression);                                                      \
    }
OPS(X)
#undef X
#define X(op, expression) [LZ_OP_##op] = compute_##op,
static compute *const computes[LZ_OP_COUNT] = {OPS(X)};
#undef X
#undef OPS
#undef U

typedef struct integer_job {
    const lz_call *call;
    walk w;            /* tensor 0 is the output */
    int64_t low, high; /* of clip */
} integer_job;

static void integer_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const integer_job *job = arg;
    const lz_call *c = job->call;
    int64_t at = task * TASK, end = at + TASK < job->w.size ? at + TASK : job->w.size, r[3][BLOCK];
    int inner = job->w.axes.rank - 1;
    walk_position p;
    walk_seek(&job->w, &p, at);
    while (at < end) {
        int64_t run = walk_run(&job->w, &p) < end - at ? walk_run(&job->w, &p) : end - at;
        int n = (int)(run < BLOCK ? run : BLOCK);
        for (int i = 0; i < c->n_in; i++)
            read_whole(r[i], c->in[i].data + p.offset[i + 1], c->in[i].dtype, job->w.axes.strides[i + 1][inner], n);
        computes[c->op](r[0], r[1], r[2], job->low, job->high, n);
        write_whole(c->out.data + p.offset[0], r[0], c->out.dtype, job->w.axes.strides[0][inner], n);
        walk_on(&job->w, &p, n);
        at += n;
    }
}

static bool run_integer(const lz_call *call) {
    integer_job job = {.call = call};
    if (call->op == LZ_OP_CLIP) {
        job.low = clip_limit(call, call->params->clip.low);
        job.high = clip_limit(call, call->params->clip.high);
    }
    const lz_tensor *tensors[4] = {&call->out};
    for (int i = 0; i < call->n_in; i++) tensors[i + 1] = &call->in[i];
    walk_make(&job.w, tensors, call->n_in + 1);
    lz_parallel(call->pool, (job.w.size + TASK - 1) / TASK, integer_task, &job);
    return true;
}

static bool can_integer(const lz_call *call) {
    bool whole = !lz_is_float(call->out.dtype) && !call->expr;
    for (int i = 0; i < call->n_in; i++) whole = whole && !lz_is_float(call->in[i].dtype);
    return whole && computes[call->op];
}

const lz_kernel ISA(lz_kernel_integer) = {.name = "cpu.integer", .run = run_integer, .can = can_integer};
