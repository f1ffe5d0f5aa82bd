/* integer.c: elementwise ops on integers and bools: blocks of 256 elements as i64, one loop for each op, wrapping
 * around when they are stored. Integers do not join expressions, whose registers are f32. */
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/walk.h"
#include "op/dims.h"

enum { BLOCK = 256, TURN = 64 * BLOCK };

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

/* a op b, into a; unsigned where it may wrap. */
static bool compute(const lz_call *call, int64_t *restrict a, const int64_t *restrict b, const int64_t *restrict c,
                    int n) {
#define EACH(expression)                                                                                               \
    for (int i = 0; i < n; i++) a[i] = (int64_t)(expression);                                                          \
    return true
#define U(x) ((uint64_t)(x))
    int64_t low = 0, high = 0;
    switch (call->op) {
    case LZ_OP_COPY:
    case LZ_OP_CAST: return true;
    case LZ_OP_NEG: EACH(0 - U(a[i]));
    case LZ_OP_ABS: EACH(a[i] < 0 ? 0 - U(a[i]) : U(a[i]));
    case LZ_OP_NOT: EACH(a[i] == 0);
    case LZ_OP_SQUARE: EACH(U(a[i]) * U(a[i]));
    case LZ_OP_ADD: EACH(U(a[i]) + U(b[i]));
    case LZ_OP_SUB: EACH(U(a[i]) - U(b[i]));
    case LZ_OP_MUL: EACH(U(a[i]) * U(b[i]));
    case LZ_OP_POW: EACH(power(a[i], b[i]));
    case LZ_OP_MAXIMUM: EACH(a[i] > b[i] ? a[i] : b[i]);
    case LZ_OP_MINIMUM: EACH(a[i] < b[i] ? a[i] : b[i]);
    case LZ_OP_EQUAL: EACH(a[i] == b[i]);
    case LZ_OP_NOT_EQUAL: EACH(a[i] != b[i]);
    case LZ_OP_LESS: EACH(a[i] < b[i]);
    case LZ_OP_LESS_EQUAL: EACH(a[i] <= b[i]);
    case LZ_OP_GREATER: EACH(a[i] > b[i]);
    case LZ_OP_GREATER_EQUAL: EACH(a[i] >= b[i]);
    case LZ_OP_AND: EACH((a[i] != 0) & (b[i] != 0));
    case LZ_OP_OR: EACH((a[i] != 0) | (b[i] != 0));
    case LZ_OP_WHERE: EACH(a[i] ? b[i] : c[i]);
    case LZ_OP_CLIP: { /* the limits first become numbers of this type */
        static const int64_t least[] = {
            [LZ_BOOL] = 0, [LZ_U8] = 0, [LZ_I8] = INT8_MIN, [LZ_I32] = INT32_MIN, [LZ_I64] = INT64_MIN};
        static const int64_t most[] = {
            [LZ_BOOL] = 1, [LZ_U8] = UINT8_MAX, [LZ_I8] = INT8_MAX, [LZ_I32] = INT32_MAX, [LZ_I64] = INT64_MAX};
        low = lz_saturate(call->params->clip.low, least[call->out.dtype], most[call->out.dtype]);
        high = lz_saturate(call->params->clip.high, least[call->out.dtype], most[call->out.dtype]);
        EACH(a[i] < low ? low : a[i] > high ? high : a[i]);
    }
    default: return false;
    }
#undef U
#undef EACH
}

typedef struct integer_job {
    const lz_call *call;
    walk w; /* tensor 0 is the output */
} integer_job;

static void integer_turn(void *arg, int64_t turn, int thread) {
    (void)thread;
    const integer_job *job = arg;
    const lz_call *c = job->call;
    int64_t at = turn * TURN, end = at + TURN < job->w.size ? at + TURN : job->w.size, r[3][BLOCK];
    int inner = job->w.axes.rank - 1;
    walk_place p;
    walk_seek(&job->w, &p, at);
    while (at < end) {
        int64_t run = walk_run(&job->w, &p) < end - at ? walk_run(&job->w, &p) : end - at;
        int n = (int)(run < BLOCK ? run : BLOCK);
        for (int i = 0; i < c->n_in; i++)
            read_whole(r[i], c->in[i].data + p.offset[i + 1], c->in[i].dtype, job->w.axes.strides[i + 1][inner], n);
        compute(c, r[0], r[1], r[2], n);
        write_whole(c->out.data + p.offset[0], r[0], c->out.dtype, job->w.axes.strides[0][inner], n);
        walk_on(&job->w, &p, n);
        at += n;
    }
}

static bool run_integer(const lz_call *call) {
    integer_job job = {.call = call};
    const lz_tensor *tensors[4] = {&call->out};
    for (int i = 0; i < call->n_in; i++) tensors[i + 1] = &call->in[i];
    walk_make(&job.w, tensors, call->n_in + 1);
    lz_parallel(call->pool, (job.w.size + TURN - 1) / TURN, integer_turn, &job);
    return true;
}

static bool can_integer(const lz_call *call) {
    bool whole = !lz_is_float(call->out.dtype) && !call->expr;
    for (int i = 0; i < call->n_in; i++) whole = whole && !lz_is_float(call->in[i].dtype);
    return whole && compute(call, NULL, NULL, NULL, 0);
}

const lz_kernel ISA(lz_kernel_integer) = {.name = "cpu.integer", .run = run_integer, .can = can_integer};
