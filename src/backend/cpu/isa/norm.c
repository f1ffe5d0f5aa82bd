/* norm.c: kernels over rows: rms_norm, layer_norm, softmax, rope (with the norm before it), and group_norm, whose
 * statistics cross rows. A row is read once from memory; the other passes over it are in the L1 cache, and finish_row
 * stores it, with the affine part or modulation as its epilogue. Sums have 64 partial sums, added in a fixed order. */
#include <math.h>
#include <string.h>

#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/math.h"

enum { SUM_LANES = 64 };

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static float add_lanes(float lanes[SUM_LANES]) {
    for (int width = SUM_LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
}

#define SUM_ROW(name, expression)                                                                                      \
    static float name(const float *x, int64_t n, float m) {                                                            \
        (void)m;                                                                                                       \
        float lanes[SUM_LANES] = {0};                                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + SUM_LANES <= n; i += SUM_LANES)                                                                     \
            for (int j = 0; j < SUM_LANES; j++) {                                                                      \
                const float v = x[i + j];                                                                              \
                lanes[j] += expression;                                                                                \
            }                                                                                                          \
        for (int j = 0; i + j < n; j++) {                                                                              \
            const float v = x[i + j];                                                                                  \
            lanes[j] += expression;                                                                                    \
        }                                                                                                              \
        return add_lanes(lanes);                                                                                       \
    }
SUM_ROW(sum_row, v)
SUM_ROW(sum_square, v *v)
SUM_ROW(sum_spread, (v - m) * (v - m))

/* The row of x as floats: its own memory if it is contiguous f32, otherwise a copy in buffer. */
static const float *row_of(const lz_tensor *x, int64_t row, float *buffer) {
    int last = x->dims.n - 1;
    const char *data = x->data + row_offset(x, row) * lz_dtype_size(x->dtype);
    if (x->dtype == LZ_F32 && (x->strides[last] == 1 || x->dims.at[last] == 1)) return (const float *)data;
    read_floats(buffer, data, x->dtype, x->strides[last], x->dims.at[last]);
    return buffer;
}

/* Prefetches a row while the row before it is processed. */
static void prefetch_row(const lz_tensor *x, int64_t row) {
    const char *data = x->data + row_offset(x, row) * lz_dtype_size(x->dtype);
    int last = x->dims.n - 1;
    int64_t bytes = x->strides[last] == 1 ? x->dims.at[last] * lz_dtype_size(x->dtype) : 0;
    for (int64_t i = 0; i < bytes && i < 65536; i += 64) __builtin_prefetch(data + i, 0, 2);
}

/* (x - mean) * scale, in pieces that stay in the L1 cache until they are stored. */
static void finish_normalised(const lz_call *c, int64_t row, const float *x, int64_t n, float mean, float scale) {
    enum { PIECE = 512 };
    float y[PIECE];
    row_end end;
    begin_row(&end, c, row);
    for (int64_t at = 0; at < n; at += PIECE) {
        int m = (int)(n - at < PIECE ? n - at : PIECE);
        for (int i = 0; i < m; i++) y[i] = (x[at + i] - mean) * scale;
        finish_piece(&end, at, y, m);
    }
}

static void rms_row(const lz_call *c, int64_t row, const float *x, float *buffer, int64_t n) {
    (void)buffer;
    finish_normalised(c, row, x, n, 0, 1.0f / sqrtf(sum_square(x, n, 0) / (float)n + (float)c->params->norm.eps));
}

static void layer_row(const lz_call *c, int64_t row, const float *x, float *buffer, int64_t n) {
    (void)buffer;
    float mean = sum_row(x, n, 0) / (float)n;
    finish_normalised(c, row, x, n, mean, 1.0f / sqrtf(sum_spread(x, n, mean) / (float)n + (float)c->params->norm.eps));
}

static void softmax_row(const lz_call *c, int64_t row, const float *x, float *y, int64_t n) {
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top || x[i] != x[i] ? x[i] : top;
    for (int64_t i = 0; i < n; i++) y[i] = exp_f32(x[i] - top); /* if all are -inf: NaN, as in torch */
    float sum = sum_row(y, n, 0);
    for (int64_t i = 0; i < n; i++) y[i] /= sum;
    finish_row(c, row, 0, y, n);
}

typedef void (*row_work)(const lz_call *call, int64_t row, const float *x, float *buffer, int64_t n);

typedef struct row_job {
    const lz_call *call;
    row_work work;
    int64_t rows, rows_per_task;
} row_job;

static int64_t row_floats(const lz_call *call) { /* floats; a multiple of a cache line */
    return (call->in[0].dims.at[call->in[0].dims.n - 1] + 15) / 16 * 16;
}

static void row_task(void *arg, int64_t task, int thread) {
    const row_job *job = arg;
    const lz_call *c = job->call;
    int64_t n = c->out.dims.at[c->out.dims.n - 1], end = (task + 1) * job->rows_per_task;
    float *buffer = (float *)c->scratch + thread * row_floats(c);
    for (int64_t row = task * job->rows_per_task; row < end && row < job->rows; row++) {
        if (row + 1 < job->rows) prefetch_row(&c->in[0], row + 1);
        job->work(c, row, row_of(&c->in[0], row, buffer), buffer, n);
    }
}

static bool run_rows(const lz_call *call, row_work work) {
    int64_t n = call->out.dims.at[call->out.dims.n - 1];
    row_job job = {
        .call = call, .work = work, .rows = row_count(&call->out), .rows_per_task = n >= 16384 ? 1 : 16384 / n};
    lz_parallel(call->pool, (job.rows + job.rows_per_task - 1) / job.rows_per_task, row_task, &job);
    return true;
}

static int64_t row_scratch(const lz_call *call) {
    return row_floats(call) * lz_pool_threads(call->pool) * (int64_t)sizeof(float);
}

static bool run_rms_norm(const lz_call *call) { return run_rows(call, rms_row); }
static bool run_layer_norm(const lz_call *call) { return run_rows(call, layer_row); }
static bool run_softmax(const lz_call *call) { return run_rows(call, softmax_row); }

const lz_kernel ISA(lz_kernel_rms_norm) = {.name = "cpu.rms_norm", .run = run_rms_norm, .scratch = row_scratch};
const lz_kernel ISA(lz_kernel_layer_norm) = {.name = "cpu.layer_norm", .run = run_layer_norm, .scratch = row_scratch};
const lz_kernel ISA(lz_kernel_softmax) = {.name = "cpu.softmax", .run = run_softmax, .scratch = row_scratch};

/* ---- rope -------------------------------------------------------------------------------------------------------- */

/* Rotates pairs (2i, 2i+1) or, with half_split, (i, i + d/2): d values, d/2 cosines and sines. */
static void rotate(float *x, const float *cos, const float *sin, int64_t half, bool half_split) {
    for (int64_t i = 0; i < half; i++) {
        float *a = half_split ? &x[i] : &x[2 * i], *b = half_split ? &x[i + half] : &x[2 * i + 1];
        float p = *a, q = *b;
        *a = p * cos[i] - q * sin[i];
        *b = q * cos[i] + p * sin[i];
    }
}

static void rope_task(void *arg, int64_t task, int thread) {
    const row_job *job = arg;
    const lz_call *c = job->call;
    int64_t n = c->out.dims.at[c->out.dims.n - 1], end = (task + 1) * job->rows_per_task;
    float *buffer = (float *)c->scratch + thread * 4 * row_floats(c), *weight = buffer + row_floats(c),
          *cos = weight + row_floats(c), *sin = cos + row_floats(c);
    for (int64_t row = task * job->rows_per_task; row < end && row < job->rows; row++) {
        const float *x = row_of(&c->in[0], row, buffer);
        if (c->params->rope.norm) {
            float scale = 1.0f / sqrtf(sum_square(x, n, 0) / (float)n + (float)c->params->rope.eps);
            for (int64_t i = 0; i < n; i++) buffer[i] = x[i] * scale;
            const float *w = c->n_core > 3 ? row_of(&c->in[3], row, weight) : NULL;
            for (int64_t i = 0; w && i < n; i++) buffer[i] *= w[i];
        } else if (x != buffer)
            memcpy(buffer, x, (size_t)n * sizeof *buffer);
        rotate(buffer, row_of(&c->in[1], row, cos), row_of(&c->in[2], row, sin), n / 2, c->params->rope.half_split);
        finish_row(c, row, 0, buffer, n);
    }
}

static bool run_rope(const lz_call *call) {
    int64_t n = call->out.dims.at[call->out.dims.n - 1];
    row_job job = {.call = call, .rows = row_count(&call->out), .rows_per_task = n >= 16384 ? 1 : 16384 / n};
    lz_parallel(call->pool, (job.rows + job.rows_per_task - 1) / job.rows_per_task, rope_task, &job);
    return true;
}

static int64_t rope_scratch(const lz_call *call) { return 4 * row_scratch(call); }

const lz_kernel ISA(lz_kernel_rope) = {.name = "cpu.rope", .run = run_rope, .scratch = rope_scratch};

/* ---- group_norm -------------------------------------------------------------------------------------------------- */

/* x [n, pixels..., c]. Each task sums, for PIXELS pixels, the difference of every channel from the image's first pixel
 * and its square: small numbers, so that no digits are lost by cancellation. Tasks have a fixed size and are merged in
 * order, so results do not depend on threads. */
enum { PIXELS = 1024, FLUSH = 64 };

typedef struct group_job {
    const lz_call *call;
    int64_t pixels, channels, tasks; /* per image */
    double *sums;                    /* [images][turns][2][channels] */
    float *mean, *scale;             /* [images][channels] */
    float *buffer;                   /* [threads][5][channels] */
} group_job;

static int64_t pad16(int64_t n) { return (n + 15) / 16 * 16; }

static group_job make_group_job(const lz_call *call) {
    group_job j = {.call = call, .pixels = 1, .channels = call->out.dims.at[call->out.dims.n - 1]};
    for (int i = 1; i < call->out.dims.n - 1; i++) j.pixels *= call->out.dims.at[i];
    j.tasks = (j.pixels + PIXELS - 1) / PIXELS;
    int64_t images = call->out.dims.at[0], c = pad16(j.channels);
    j.sums = (double *)call->scratch;
    j.mean = (float *)(j.sums + images * j.tasks * 2 * c);
    j.scale = j.mean + images * c;
    j.buffer = j.scale + images * c;
    return j;
}

static int64_t group_scratch(const lz_call *call) {
    lz_call empty = *call;
    empty.scratch = NULL;
    group_job j = make_group_job(&empty);
    int64_t images = call->out.dims.at[0], c = pad16(j.channels);
    return images * j.tasks * 2 * c * (int64_t)sizeof(double) +
           (2 * images + 5 * lz_pool_threads(call->pool)) * c * (int64_t)sizeof(float);
}

static void group_sum_task(void *arg, int64_t task, int thread) {
    const group_job *j = arg;
    int64_t c = pad16(j->channels), image = task / j->tasks, first = task % j->tasks * PIXELS;
    int64_t end = first + PIXELS < j->pixels ? first + PIXELS : j->pixels;
    float *buffer = j->buffer + thread * 5 * c, *pivot = buffer + c, *sum = pivot + c, *square = sum + c,
          *pivot_buffer = square + c;
    double *sums = j->sums + task * 2 * c;
    memset(sums, 0, (size_t)(2 * c) * sizeof *sums);
    memcpy(pivot, row_of(&j->call->in[0], image * j->pixels, pivot_buffer), (size_t)j->channels * sizeof *pivot);
    for (int64_t at = first; at < end;) {
        int64_t stop = at + FLUSH < end ? at + FLUSH : end;
        memset(sum, 0, (size_t)(2 * c) * sizeof *sum);
        for (; at < stop; at++) {
            const float *x = row_of(&j->call->in[0], image * j->pixels + at, buffer);
            for (int64_t i = 0; i < j->channels; i++) {
                float d = x[i] - pivot[i];
                sum[i] += d;
                square[i] += d * d;
            }
        }
        for (int64_t i = 0; i < j->channels; i++) {
            sums[i] += (double)sum[i];
            sums[c + i] += (double)square[i];
        }
    }
}

/* Mean and scale of each channel's group. */
static void group_finish(const group_job *j, int64_t image) {
    const lz_call *call = j->call;
    int64_t c = pad16(j->channels), size = j->channels / call->params->norm.groups;
    double count = (double)j->pixels * (double)size;
    float *pivot_buffer = j->buffer, *mean_of = j->mean + image * c, *scale_of = j->scale + image * c;
    double *total = j->sums + image * j->tasks * 2 * c;
    for (int64_t t = 1; t < j->tasks; t++)
        for (int64_t i = 0; i < 2 * c; i++) total[i] += total[t * 2 * c + i];
    const float *pivot = row_of(&call->in[0], image * j->pixels, pivot_buffer);
    for (int64_t first = 0; first < j->channels; first += size) {
        double mean = 0, spread = 0;
        for (int64_t i = first; i < first + size; i++) mean += total[i] + (double)pivot[i] * (double)j->pixels;
        mean /= count;
        for (int64_t i = first; i < first + size; i++) { /* sum of (d + p)^2, where p = pivot - mean */
            double p = (double)pivot[i] - mean;
            spread += total[c + i] + 2 * p * total[i] + p * p * (double)j->pixels;
        }
        for (int64_t i = first; i < first + size; i++) {
            mean_of[i] = (float)mean;
            scale_of[i] = (float)(1 / sqrt((spread > 0         ? spread
                                            : spread == spread ? 0
                                                               : spread) /
                                               count +
                                           call->params->norm.eps));
        }
    }
}

static void group_apply_task(void *arg, int64_t task, int thread) {
    const group_job *j = arg;
    int64_t c = pad16(j->channels), image = task / j->tasks, first = task % j->tasks * PIXELS;
    int64_t end = first + PIXELS < j->pixels ? first + PIXELS : j->pixels;
    float *buffer = j->buffer + thread * 5 * c;
    const float *mean = j->mean + image * c, *scale = j->scale + image * c;
    for (int64_t row = image * j->pixels + first; row < image * j->pixels + end; row++) {
        const float *x = row_of(&j->call->in[0], row, buffer);
        for (int64_t i = 0; i < j->channels; i++) buffer[i] = (x[i] - mean[i]) * scale[i];
        finish_row(j->call, row, 0, buffer, j->channels);
    }
}

static bool run_group_norm(const lz_call *call) {
    group_job job = make_group_job(call);
    int64_t images = call->out.dims.at[0];
    lz_parallel(call->pool, images * job.tasks, group_sum_task, &job);
    for (int64_t i = 0; i < images; i++) group_finish(&job, i);
    lz_parallel(call->pool, images * job.tasks, group_apply_task, &job);
    return true;
}

const lz_kernel ISA(lz_kernel_group_norm) = {.name = "cpu.group_norm", .run = run_group_norm, .scratch = group_scratch};
