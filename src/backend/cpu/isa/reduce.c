/* reduce.c: sums, means, variances, maxima and minima over the trailing axes, in f64. There are two access patterns. If
 * the innermost reduced axis is contiguous, a task reads along it and adds partial sums at the end. If a kept axis is
 * contiguous, a task computes a block of neighbouring outputs (side_by_side). Either way, one thread computes an output
 * in a fixed order. */
#include <math.h>
#include <string.h>

#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/math.h"

enum { BLOCK = 256 };

typedef enum pass { SUM, SPREAD, LARGEST, SMALLEST, EXPONENTIAL } pass;

/* Adds x[i] to acc[i]; m is the mean (SPREAD) or the maximum (EXPONENTIAL). */
static void accumulate(pass p, double *acc, const double *m, const float *x, int n) {
    switch (p) {
    case SUM:
        for (int i = 0; i < n; i++) acc[i] += (double)x[i];
        break;
    case SPREAD:
        for (int i = 0; i < n; i++) acc[i] += ((double)x[i] - m[i]) * ((double)x[i] - m[i]);
        break;
    case LARGEST:
        for (int i = 0; i < n; i++) acc[i] = (double)x[i] > acc[i] || x[i] != x[i] ? (double)x[i] : acc[i];
        break;
    case SMALLEST:
        for (int i = 0; i < n; i++) acc[i] = (double)x[i] < acc[i] || x[i] != x[i] ? (double)x[i] : acc[i];
        break;
    case EXPONENTIAL:
        for (int i = 0; i < n; i++) acc[i] += (double)exp_f32((float)((double)x[i] - m[i]));
        break;
    }
}

static double start_of(pass p) { return p == LARGEST ? -INFINITY : p == SMALLEST ? INFINITY : 0; }

static double join_lanes(pass p, double *acc) {
    for (int width = BLOCK / 2; width; width /= 2)
        for (int i = 0; i < width; i++) {
            double a = acc[i], b = acc[i + width];
            acc[i] = p == LARGEST ? (b > a || b != b ? b : a) : p == SMALLEST ? (b < a || b != b ? b : a) : a + b;
        }
    return acc[0];
}

typedef struct reduce_job {
    const lz_call *call;
    int kept;        /* number of kept axes */
    int64_t count;   /* elements per output */
    int64_t outputs; /* number of outputs */
    int64_t inner;   /* size of the innermost reduced axis */
    bool side_by_side;
} reduce_job;

/* Offset of index r over all reduced axes except the innermost. */
static int64_t reduced_offset(const reduce_job *j, int64_t r) {
    const lz_tensor *x = &j->call->in[0];
    int64_t offset = 0;
    for (int i = x->dims.n - 2; i >= j->kept; i--) {
        offset += r % x->dims.at[i] * x->strides[i];
        r /= x->dims.at[i];
    }
    return offset;
}

static int64_t kept_offset(const reduce_job *j, int64_t at, const int64_t *strides) {
    int64_t offset = 0;
    for (int i = j->kept - 1; i >= 0; i--) {
        offset += at % j->call->in[0].dims.at[i] * strides[i];
        at /= j->call->in[0].dims.at[i];
    }
    return offset;
}

/* One pass over the elements of n neighbouring outputs (side_by_side), or of one, with partial sums in acc. m: see
 * accumulate. */
static void run_pass(const reduce_job *j, pass p, const char *data, int n, double *acc, const double *m) {
    const lz_tensor *x = &j->call->in[0];
    int64_t size = lz_dtype_size(x->dtype), rows = j->inner ? j->count / j->inner : 0;
    int64_t step = x->dims.n > j->kept ? x->strides[x->dims.n - 1] : 0;
    float values[BLOCK];
    for (int i = 0; i < BLOCK; i++) acc[i] = start_of(p);
    for (int64_t r = 0; r < rows; r++) {
        const char *row = data + reduced_offset(j, r) * size;
        if (j->side_by_side)
            for (int64_t k = 0; k < j->inner; k++) {
                read_floats(values, row + k * step * size, x->dtype, 1, n);
                accumulate(p, acc, m, values, n);
            }
        else
            for (int64_t k = 0; k < j->inner; k += BLOCK) {
                int some = (int)(j->inner - k < BLOCK ? j->inner - k : BLOCK);
                read_floats(values, row + k * step * size, x->dtype, step, some);
                accumulate(p, acc, m, values, some);
            }
    }
    if (!j->side_by_side) acc[0] = join_lanes(p, acc);
}

static void spread_first(double *m, double value) {
    for (int i = 0; i < BLOCK; i++) m[i] = value;
}

/* The passes of an op: a first one, whose result may be divided by the count (mean); then, if twice, one relative to it. */
static const struct {
    pass first, second;
    bool mean, twice;
} passes[LZ_OP_COUNT] = {
    [LZ_OP_SUM] = {.first = SUM},
    [LZ_OP_MEAN] = {.first = SUM, .mean = true},
    [LZ_OP_VAR] = {.first = SUM, .mean = true, .twice = true, .second = SPREAD},
    [LZ_OP_MIN] = {.first = SMALLEST},
    [LZ_OP_MAX] = {.first = LARGEST},
    [LZ_OP_LOGSUMEXP] = {.first = LARGEST, .twice = true, .second = EXPONENTIAL},
};

static void reduce_some(const reduce_job *j, const char *data, int n, double *acc) {
    lz_op op = j->call->op;
    double count = (double)j->count;
    run_pass(j, passes[op].first, data, n, acc, NULL);
    for (int i = 0; i < n && passes[op].mean; i++) acc[i] /= count;
    if (!passes[op].twice) return;
    double m[BLOCK] = {0};
    bool logarithm = passes[op].second == EXPONENTIAL;
    for (int i = 0; i < n; i++) m[i] = logarithm && isinf(acc[i]) ? 0 : acc[i]; /* inf - inf would be NaN */
    if (!j->side_by_side) spread_first(m, m[0]);
    run_pass(j, passes[op].second, data, n, acc, m);
    for (int i = 0; i < n; i++) acc[i] = logarithm ? log(acc[i]) + m[i] : acc[i] / count;
}

static void reduce_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const reduce_job *j = arg;
    const lz_tensor *x = &j->call->in[0], *out = &j->call->out;
    double acc[BLOCK];
    float result[BLOCK];
    int64_t line = j->kept ? x->dims.at[j->kept - 1] : 1; /* side_by_side: a block is inside the innermost kept axis */
    int64_t per_line = (line + BLOCK - 1) / BLOCK;
    int64_t first = j->side_by_side ? task / per_line * line + task % per_line * BLOCK : task;
    int n = 1;
    if (j->side_by_side) n = (int)(line - task % per_line * BLOCK < BLOCK ? line - task % per_line * BLOCK : BLOCK);
    reduce_some(j, x->data + kept_offset(j, first, x->strides) * lz_dtype_size(x->dtype), n, acc);
    for (int i = 0; i < n; i++) result[i] = (float)acc[i];
    char *to = out->data + kept_offset(j, first, out->strides) * lz_dtype_size(out->dtype);
    write_floats(to, result, out->dtype, j->kept ? out->strides[j->kept - 1] : 1, n);
}

static bool run_reduce(const lz_call *call) {
    reduce_job j = {.call = call, .kept = call->out.dims.n, .count = 1, .outputs = 1};
    const lz_tensor *x = &call->in[0];
    for (int i = 0; i < j.kept; i++) j.outputs *= x->dims.at[i];
    for (int i = j.kept; i < x->dims.n; i++) j.count *= x->dims.at[i];
    j.inner = x->dims.n > j.kept ? x->dims.at[x->dims.n - 1] : 1;
    bool dense_kept = j.kept && x->strides[j.kept - 1] == 1 && x->dims.at[j.kept - 1] >= 8;
    j.side_by_side = dense_kept && (j.inner < 8 || x->strides[x->dims.n - 1] != 1);
    int64_t line = j.kept ? x->dims.at[j.kept - 1] : 1;
    lz_parallel(call->pool, j.side_by_side ? j.outputs / line * ((line + BLOCK - 1) / BLOCK) : j.outputs, reduce_task,
                &j);
    return true;
}

/* Integers are left to the reference kernel, which sums exactly. */
static bool can_reduce(const lz_call *call) { return call->in[0].dtype >= LZ_F16 && call->in[0].dtype <= LZ_F32; }

const lz_kernel ISA(lz_kernel_reduce) = {.name = "cpu.reduce", .run = run_reduce, .can = can_reduce};

/* ---- argmax ------------------------------------------------------------------------------------------------------ */

/* The index of the first maximum, or of the first NaN. */
static int64_t argmax_row(const float *x, int64_t n, float *best, int64_t first, int64_t found) {
    for (int64_t i = 0; i < n; i++)
        if (found < 0 || x[i] > *best || (x[i] != x[i] && *best == *best)) {
            *best = x[i];
            found = first + i;
        }
    return found;
}

static void argmax_task(void *arg, int64_t at, int thread) {
    (void)thread;
    const reduce_job *j = arg;
    const lz_tensor *x = &j->call->in[0], *out = &j->call->out;
    int64_t step = x->strides[x->dims.n - 1], size = lz_dtype_size(x->dtype), found = -1;
    const char *data = x->data + kept_offset(j, at, x->strides) * size;
    float values[BLOCK], best = 0;
    for (int64_t k = 0; k < j->inner; k += BLOCK) {
        int some = (int)(j->inner - k < BLOCK ? j->inner - k : BLOCK);
        read_floats(values, data + k * step * size, x->dtype, step, some);
        found = argmax_row(values, some, &best, k, found);
    }
    ((int64_t *)out->data)[kept_offset(j, at, out->strides)] = found;
}

static bool run_argmax(const lz_call *call) {
    const lz_tensor *x = &call->in[0];
    reduce_job j = {.call = call, .kept = call->out.dims.n, .outputs = 1, .inner = x->dims.at[x->dims.n - 1]};
    for (int i = 0; i < j.kept; i++) j.outputs *= x->dims.at[i];
    lz_parallel(call->pool, j.outputs, argmax_task, &j);
    return true;
}

const lz_kernel ISA(lz_kernel_argmax) = {.name = "cpu.argmax", .run = run_argmax, .can = can_reduce};
