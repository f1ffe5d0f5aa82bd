/* norm.c: kernels that work on one row at a time: rms_norm, layer_norm, softmax, rope (with the norm before it), and
 * group_norm, whose statistics cross rows. A row is read once from memory; what follows happens in the first-level
 * cache, and the row leaves through finish_row, with the affine part or modulation as its epilogue. Sums run in 64
 * lanes, added up in a fixed order. */
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

/* The row of x as floats: in place where it is f32, else converted into room. */
static const float *row_of(const lz_tensor *x, int64_t row, float *room) {
    int last = x->dims.n - 1;
    const char *data = x->data + row_offset(x, row) * lz_dtype_size(x->dtype);
    if (x->dtype == LZ_F32 && (x->strides[last] == 1 || x->dims.at[last] == 1)) return (const float *)data;
    read_floats(room, data, x->dtype, x->strides[last], x->dims.at[last]);
    return room;
}

/* Asks for a row ahead of time: it arrives while the row before it is being worked on. */
static void prefetch_row(const lz_tensor *x, int64_t row) {
    const char *data = x->data + row_offset(x, row) * lz_dtype_size(x->dtype);
    int last = x->dims.n - 1;
    int64_t bytes = x->strides[last] == 1 ? x->dims.at[last] * lz_dtype_size(x->dtype) : 0;
    for (int64_t i = 0; i < bytes && i < 65536; i += 64) __builtin_prefetch(data + i, 0, 2);
}

/* (x - mean) * scale, in pieces that stay in the first-level cache until they are stored. */
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

static void rms_row(const lz_call *c, int64_t row, const float *x, float *room, int64_t n) {
    (void)room;
    finish_normalised(c, row, x, n, 0, 1.0f / sqrtf(sum_square(x, n, 0) / (float)n + (float)c->params->norm.eps));
}

static void layer_row(const lz_call *c, int64_t row, const float *x, float *room, int64_t n) {
    (void)room;
    float mean = sum_row(x, n, 0) / (float)n;
    finish_normalised(c, row, x, n, mean, 1.0f / sqrtf(sum_spread(x, n, mean) / (float)n + (float)c->params->norm.eps));
}

static void softmax_row(const lz_call *c, int64_t row, const float *x, float *y, int64_t n) {
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top || x[i] != x[i] ? x[i] : top;
    for (int64_t i = 0; i < n; i++) y[i] = exp_f32(x[i] - top); /* all -inf: NaN, as it should be */
    float sum = sum_row(y, n, 0);
    for (int64_t i = 0; i < n; i++) y[i] /= sum;
    finish_row(c, row, 0, y, n);
}

typedef void (*row_work)(const lz_call *call, int64_t row, const float *x, float *room, int64_t n);

typedef struct row_job {
    const lz_call *call;
    row_work work;
    int64_t rows, per_turn;
} row_job;

static int64_t row_room(const lz_call *call) { /* floats; a multiple of a cache line */
    return (call->in[0].dims.at[call->in[0].dims.n - 1] + 15) / 16 * 16;
}

static void row_turn(void *arg, int64_t turn, int thread) {
    const row_job *job = arg;
    const lz_call *c = job->call;
    int64_t n = c->out.dims.at[c->out.dims.n - 1], end = (turn + 1) * job->per_turn;
    float *room = (float *)c->scratch + thread * row_room(c);
    for (int64_t row = turn * job->per_turn; row < end && row < job->rows; row++) {
        if (row + 1 < job->rows) prefetch_row(&c->in[0], row + 1);
        job->work(c, row, row_of(&c->in[0], row, room), room, n);
    }
}

static bool run_rows(const lz_call *call, row_work work) {
    int64_t n = call->out.dims.at[call->out.dims.n - 1];
    row_job job = {.call = call, .work = work, .rows = row_count(&call->out), .per_turn = n >= 16384 ? 1 : 16384 / n};
    lz_parallel(call->pool, (job.rows + job.per_turn - 1) / job.per_turn, row_turn, &job);
    return true;
}

static int64_t row_scratch(const lz_call *call) {
    return row_room(call) * lz_pool_threads(call->pool) * (int64_t)sizeof(float);
}

static bool run_rms_norm(const lz_call *call) { return run_rows(call, rms_row); }
static bool run_layer_norm(const lz_call *call) { return run_rows(call, layer_row); }
static bool run_softmax(const lz_call *call) { return run_rows(call, softmax_row); }

const lz_kernel ISA(lz_kernel_rms_norm) = {.name = "cpu.rms_norm", .run = run_rms_norm, .scratch = row_scratch};
const lz_kernel ISA(lz_kernel_layer_norm) = {.name = "cpu.layer_norm", .run = run_layer_norm, .scratch = row_scratch};
const lz_kernel ISA(lz_kernel_softmax) = {.name = "cpu.softmax", .run = run_softmax, .scratch = row_scratch};

/* ---- rope -------------------------------------------------------------------------------------------------------- */

/* Pairs (2i, 2i+1), or (i, i + d/2), turned by the angle whose cosine and sine are given: d values, d/2 angles. */
static void rotate(float *x, const float *cos, const float *sin, int64_t half, bool half_split) {
    for (int64_t i = 0; i < half; i++) {
        float *a = half_split ? &x[i] : &x[2 * i], *b = half_split ? &x[i + half] : &x[2 * i + 1];
        float p = *a, q = *b;
        *a = p * cos[i] - q * sin[i];
        *b = q * cos[i] + p * sin[i];
    }
}

static void rope_turn(void *arg, int64_t turn, int thread) {
    const row_job *job = arg;
    const lz_call *c = job->call;
    int64_t n = c->out.dims.at[c->out.dims.n - 1], end = (turn + 1) * job->per_turn;
    float *room = (float *)c->scratch + thread * 4 * row_room(c), *weight = room + row_room(c),
          *cos = weight + row_room(c), *sin = cos + row_room(c);
    for (int64_t row = turn * job->per_turn; row < end && row < job->rows; row++) {
        const float *x = row_of(&c->in[0], row, room);
        if (c->params->rope.norm) {
            float scale = 1.0f / sqrtf(sum_square(x, n, 0) / (float)n + (float)c->params->rope.eps);
            for (int64_t i = 0; i < n; i++) room[i] = x[i] * scale;
            const float *w = c->n_core > 3 ? row_of(&c->in[3], row, weight) : NULL;
            for (int64_t i = 0; w && i < n; i++) room[i] *= w[i];
        } else if (x != room)
            memcpy(room, x, (size_t)n * sizeof *room);
        rotate(room, row_of(&c->in[1], row, cos), row_of(&c->in[2], row, sin), n / 2, c->params->rope.half_split);
        finish_row(c, row, 0, room, n);
    }
}

static bool run_rope(const lz_call *call) {
    int64_t n = call->out.dims.at[call->out.dims.n - 1];
    row_job job = {.call = call, .rows = row_count(&call->out), .per_turn = n >= 16384 ? 1 : 16384 / n};
    lz_parallel(call->pool, (job.rows + job.per_turn - 1) / job.per_turn, rope_turn, &job);
    return true;
}

static int64_t rope_scratch(const lz_call *call) { return 4 * row_scratch(call); }

const lz_kernel ISA(lz_kernel_rope) = {.name = "cpu.rope", .run = run_rope, .scratch = rope_scratch};

/* ---- group_norm -------------------------------------------------------------------------------------------------- */

/* x [n, pixels..., c]. Each turn sums, for some pixels, every channel's distance from its first pixel and the square
 * of it: small numbers, so that nothing cancels. Turns have a fixed size and are put together in order, whoever did
 * them. */
enum { PIXELS = 1024, FLUSH = 64 };

typedef struct group_job {
    const lz_call *call;
    int64_t pixels, channels, turns; /* per image */
    double *sums;                    /* [images][turns][2][channels] */
    float *mean, *scale;             /* [images][channels] */
    float *room;                     /* [threads][5][channels] */
} group_job;

static int64_t pad16(int64_t n) { return (n + 15) / 16 * 16; }

static group_job make_group_job(const lz_call *call) {
    group_job j = {.call = call, .pixels = 1, .channels = call->out.dims.at[call->out.dims.n - 1]};
    for (int i = 1; i < call->out.dims.n - 1; i++) j.pixels *= call->out.dims.at[i];
    j.turns = (j.pixels + PIXELS - 1) / PIXELS;
    int64_t images = call->out.dims.at[0], c = pad16(j.channels);
    j.sums = (double *)call->scratch;
    j.mean = (float *)(j.sums + images * j.turns * 2 * c);
    j.scale = j.mean + images * c;
    j.room = j.scale + images * c;
    return j;
}

static int64_t group_scratch(const lz_call *call) {
    lz_call empty = *call;
    empty.scratch = NULL;
    group_job j = make_group_job(&empty);
    int64_t images = call->out.dims.at[0], c = pad16(j.channels);
    return images * j.turns * 2 * c * (int64_t)sizeof(double) +
           (2 * images + 5 * lz_pool_threads(call->pool)) * c * (int64_t)sizeof(float);
}

static void group_sum_turn(void *arg, int64_t turn, int thread) {
    const group_job *j = arg;
    int64_t c = pad16(j->channels), image = turn / j->turns, first = turn % j->turns * PIXELS;
    int64_t end = first + PIXELS < j->pixels ? first + PIXELS : j->pixels;
    float *room = j->room + thread * 5 * c, *pivot = room + c, *sum = pivot + c, *square = sum + c,
          *pivot_room = square + c;
    double *sums = j->sums + turn * 2 * c;
    memset(sums, 0, (size_t)(2 * c) * sizeof *sums);
    memcpy(pivot, row_of(&j->call->in[0], image * j->pixels, pivot_room), (size_t)j->channels * sizeof *pivot);
    for (int64_t at = first; at < end;) {
        int64_t stop = at + FLUSH < end ? at + FLUSH : end;
        memset(sum, 0, (size_t)(2 * c) * sizeof *sum);
        for (; at < stop; at++) {
            const float *x = row_of(&j->call->in[0], image * j->pixels + at, room);
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
    float *pivot_room = j->room, *mean_of = j->mean + image * c, *scale_of = j->scale + image * c;
    double *total = j->sums + image * j->turns * 2 * c;
    for (int64_t t = 1; t < j->turns; t++)
        for (int64_t i = 0; i < 2 * c; i++) total[i] += total[t * 2 * c + i];
    const float *pivot = row_of(&call->in[0], image * j->pixels, pivot_room);
    for (int64_t first = 0; first < j->channels; first += size) {
        double mean = 0, spread = 0;
        for (int64_t i = first; i < first + size; i++) mean += total[i] + (double)pivot[i] * (double)j->pixels;
        mean /= count;
        for (int64_t i = first; i < first + size; i++) { /* sum of (d + p)^2, p the pivot's distance from the mean */
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

static void group_apply_turn(void *arg, int64_t turn, int thread) {
    const group_job *j = arg;
    int64_t c = pad16(j->channels), image = turn / j->turns, first = turn % j->turns * PIXELS;
    int64_t end = first + PIXELS < j->pixels ? first + PIXELS : j->pixels;
    float *room = j->room + thread * 5 * c;
    const float *mean = j->mean + image * c, *scale = j->scale + image * c;
    for (int64_t row = image * j->pixels + first; row < image * j->pixels + end; row++) {
        const float *x = row_of(&j->call->in[0], row, room);
        for (int64_t i = 0; i < j->channels; i++) room[i] = (x[i] - mean[i]) * scale[i];
        finish_row(j->call, row, 0, room, j->channels);
    }
}

static bool run_group_norm(const lz_call *call) {
    group_job job = make_group_job(call);
    int64_t images = call->out.dims.at[0];
    lz_parallel(call->pool, images * job.turns, group_sum_turn, &job);
    for (int64_t i = 0; i < images; i++) group_finish(&job, i);
    lz_parallel(call->pool, images * job.turns, group_apply_turn, &job);
    return true;
}

const lz_kernel ISA(lz_kernel_group_norm) = {.name = "cpu.group_norm", .run = run_group_norm, .scratch = group_scratch};
