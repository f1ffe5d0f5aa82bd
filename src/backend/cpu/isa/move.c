/* move.c: kernels that move elements unchanged: copy, pad, take, gather. All are copies between strided tensors of
 * one shape; if both are contiguous along the innermost axis, whole runs are copied at a time. */
#include <string.h>

#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/walk.h"

enum { TASK = 1 << 16 }; /* elements of a task */

#define COPY_STRIDED(type)                                                                                             \
    for (int64_t i = 0; i < n; i++) *(type *)(to + i * to_step) = *(const type *)(from + i * from_step)

static void copy_run(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t size, int64_t n) {
    if (to_step == size && from_step == size)
        memcpy(to, from, (size_t)(n * size));
    else if (size == 1)
        COPY_STRIDED(uint8_t);
    else if (size == 2)
        COPY_STRIDED(uint16_t);
    else if (size == 4)
        COPY_STRIDED(uint32_t);
    else
        COPY_STRIDED(uint64_t);
}

typedef struct copy_job {
    walk w;
    char *to;
    const char *from;
    int64_t size; /* bytes of an element */
} copy_job;

static void copy_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const copy_job *job = arg;
    int inner = job->w.axes.rank - 1;
    int64_t at = task * TASK, end = at + TASK < job->w.size ? at + TASK : job->w.size;
    walk_position p;
    walk_seek(&job->w, &p, at);
    while (at < end) {
        int64_t n = walk_run(&job->w, &p) < end - at ? walk_run(&job->w, &p) : end - at;
        copy_run(job->to + p.offset[0], job->w.axes.strides[0][inner], job->from + p.offset[1],
                 job->w.axes.strides[1][inner], job->size, n);
        walk_on(&job->w, &p, n);
        at += n;
    }
}

static void copy_tensor(const lz_call *call, const lz_tensor *to, const lz_tensor *from) {
    copy_job job = {.to = to->data, .from = from->data, .size = lz_dtype_size(to->dtype)};
    walk_make(&job.w, (const lz_tensor *[]){to, from}, 2);
    lz_parallel(call->pool, (job.w.size + TASK - 1) / TASK, copy_task, &job);
}

static bool run_copy(const lz_call *call) {
    copy_tensor(call, &call->out, &call->in[0]);
    return true;
}

/* The part of the output that begins at index `first` of an axis. */
static lz_tensor part_of(const lz_tensor *out, int axis, int64_t first, int64_t size) {
    lz_tensor part = *out;
    part.dims.at[axis] = size;
    part.data += first * out->strides[axis] * lz_dtype_size(out->dtype);
    return part;
}

static bool run_pad(const lz_call *call) {
    int64_t value = 0; /* one element of the output's type, read with stride 0 */
    const lz_params full = {.full.value = call->params->pad.value};
    lz_tensor one = {.data = (char *)&value, .dtype = call->out.dtype}, everywhere = call->out, inside = call->out;
    lz_ref_backend()->kernel(LZ_OP_FULL)->run(&(lz_call){.op = LZ_OP_FULL, .params = &full, .out = one});
    everywhere.data = one.data;
    memset(everywhere.strides, 0, sizeof everywhere.strides);
    copy_tensor(call, &call->out, &everywhere);
    for (int i = 0; i < inside.dims.n; i++)
        inside = part_of(&inside, i, call->params->pad.before.at[i], call->in[0].dims.at[i]);
    copy_tensor(call, &inside, &call->in[0]);
    return true;
}

/* out [axes before, axes of the indices, axes after]: for each index, a slab of x is copied. */
static bool run_take(const lz_call *call) {
    const lz_tensor *x = &call->in[0], *index = &call->in[1];
    int axis = call->params->along.axis;
    int64_t count = 1, limit = x->dims.at[axis];
    for (int i = 0; i < index->dims.n; i++) count *= index->dims.at[i];
    lz_tensor from = *x, to = {.dtype = x->dtype}; /* a slab: x and out without the axis */
    from.dims.n = to.dims.n = x->dims.n - 1;
    for (int i = 0; i < from.dims.n; i++) {
        int out_axis = i < axis ? i : i + index->dims.n;
        from.dims.at[i] = to.dims.at[i] = x->dims.at[i < axis ? i : i + 1];
        from.strides[i] = x->strides[i < axis ? i : i + 1];
        to.strides[i] = call->out.strides[out_axis];
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, position = 0, target = 0;
        for (int i = index->dims.n - 1; i >= 0; i--) {
            position += rest % index->dims.at[i] * index->strides[i];
            target += rest % index->dims.at[i] * call->out.strides[axis + i];
            rest /= index->dims.at[i];
        }
        int64_t at = ((const int64_t *)index->data)[position];
        if (at < 0 || at >= limit) {
            lz_fail(call->err, LZ_BAD_INDEX, "take: index %lld is outside an axis of %lld", (long long)at,
                    (long long)limit);
            return false;
        }
        from.data = x->data + at * x->strides[axis] * lz_dtype_size(x->dtype);
        to.data = call->out.data + target * lz_dtype_size(x->dtype);
        copy_tensor(call, &to, &from);
    }
    return true;
}

typedef struct gather_job {
    const lz_call *call;
    int64_t row_length;
    int64_t wrong; /* an index outside the axis, if any */
    bool failed;
} gather_job;

/* One row of the output: out[..., j] = x[..., indices[..., j], ...], where the index replaces that of the axis. */
static void gather_task(void *arg, int64_t row, int thread) {
    (void)thread;
    gather_job *job = arg;
    const lz_call *c = job->call;
    const lz_tensor *x = &c->in[0], *index = &c->in[1];
    int axis = c->params->along.axis, last = c->out.dims.n - 1;
    int64_t size = lz_dtype_size(x->dtype), limit = x->dims.at[axis], rest = row, base = 0;
    for (int i = last - 1; i >= 0; i--) {
        if (i != axis) base += rest % c->out.dims.at[i] * x->strides[i];
        rest /= c->out.dims.at[i];
    }
    const char *indices = index->data + row_offset(index, row) * (int64_t)sizeof(int64_t);
    char *to = c->out.data + row_offset(&c->out, row) * size;
    for (int64_t j = 0; j < job->row_length; j++) {
        int64_t at = *(const int64_t *)(indices + j * index->strides[last] * (int64_t)sizeof(int64_t));
        if (at < 0 || at >= limit) {
            __atomic_store_n(&job->wrong, at, __ATOMIC_RELAXED);
            __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
            return;
        }
        int64_t from = base + at * x->strides[axis] + (axis == last ? 0 : j * x->strides[last]);
        copy_run(to + j * c->out.strides[last] * size, size, x->data + from * size, size, size, 1);
    }
}

static bool run_gather(const lz_call *call) {
    gather_job job = {.call = call, .row_length = call->out.dims.at[call->out.dims.n - 1]};
    lz_parallel(call->pool, row_count(&call->out), gather_task, &job);
    if (job.failed)
        lz_fail(call->err, LZ_BAD_INDEX, "gather: index %lld is outside an axis of %lld", (long long)job.wrong,
                (long long)call->in[0].dims.at[call->params->along.axis]);
    return !job.failed;
}

const lz_kernel ISA(lz_kernel_gather) = {.name = "cpu.gather", .run = run_gather};
const lz_kernel ISA(lz_kernel_copy) = {.name = "cpu.copy", .run = run_copy};
const lz_kernel ISA(lz_kernel_pad) = {.name = "cpu.pad", .run = run_pad};
const lz_kernel ISA(lz_kernel_take) = {.name = "cpu.take", .run = run_take};
