/* eval.c: evaluating arrays on the calling thread, and reading their values. */
#define LZ_NO_SUGAR
#include <string.h>

#include "graph/eval.h"

/* ---- evaluations: a program with its arena and output buffers ---------------------------------------------------- */

void lz_evaluation_free(lz_evaluation *e) {
    if (!e) return;
    lz_context *ctx = e->ctx;
    if (e->outputs)
        for (int i = 0; i < e->program->n_outputs; i++) lz_buffer_release(e->outputs[i]);
    lz_buffer_release(e->arena);
    lz_program_free(e->program);
    lz_host_free(ctx, e->outputs);
    lz_host_free(ctx, e);
}

bool lz_evaluation_allocate(lz_evaluation *e, lz_error *err) {
    lz_program *p = e->program;
    e->outputs = lz_host_alloc(e->ctx, (size_t)(p->n_outputs + 1) * sizeof(lz_buffer *));
    if (!e->outputs) {
        lz_out_of_memory(err, p->n_outputs);
        return false;
    }
    for (int i = 0; i < p->n_outputs; i++)
        if (!(e->outputs[i] = lz_buffer_new(e->ctx, p->output_bytes[i], err))) return false;
    if (p->arena_bytes) e->arena = lz_buffer_new(e->ctx, p->arena_bytes, err);
    return !p->arena_bytes || e->arena;
}

/* The inputs of a function that is being compiled are placeholders: they have no values to compute with. */
static bool needs_arguments(const lz_program *p, lz_error *err) {
    for (int i = 0; i < p->n_stores; i++)
        if (p->stores[i].argument) {
            lz_fail(err, LZ_BAD_ARGUMENT, "an argument of a function being compiled has no value yet");
            return true;
        }
    return false;
}

lz_evaluation *lz_evaluation_new(lz_context *ctx, lz_array *const *arrays, int n, lz_error *err) {
    lz_evaluation *e = lz_host_alloc(ctx, sizeof *e);
    if (!e) {
        lz_out_of_memory(err, sizeof *e);
        return NULL;
    }
    e->ctx = ctx;
    e->program = lz_program_new(ctx, arrays, n, false, err);
    if (e->program) e->program->once = true;
    if (e->program && !needs_arguments(e->program, err)) return e;
    lz_evaluation_free(e);
    return NULL;
}

lz_status lz_evaluation_estimate(lz_evaluation *e, lz_plan_info *info, lz_error *err) {
    if (!lz_offload_estimate(e->program)) return lz_out_of_memory(err, 0);
    *info = e->program->info;
    return LZ_OK;
}

bool lz_evaluation_preload(lz_evaluation *e) { return !e || lz_preload_program(e->program); }

lz_status lz_evaluation_run(lz_evaluation *e, const lz_watch *watch, lz_error *err) {
    return lz_program_run(e->program, NULL, e->arena, e->outputs, watch, err);
}

void lz_evaluation_commit(lz_evaluation *e, lz_array *const *arrays, lz_event *event) {
    lz_program *p = e->program;
    for (int i = 0; i < p->n_results; i++) {
        lz_result *r = &p->results[i];
        lz_store *s = &p->stores[r->operand.store];
        if (arrays[i]->buffer) continue; /* another thread has evaluated it, or it is listed twice */
        lz_buffer *buffer = s->kind == LZ_STORE_OUTPUT ? e->outputs[s->output] : s->buffer;
        lz_node_set_value(arrays[i], buffer, r->operand.offset / lz_dtype_size(r->dtype), r->strides, event);
    }
}

/* ---- evaluating -------------------------------------------------------------------------------------------------- */

/* Returns the first error among the arrays. */
lz_status lz_check_all(lz_array *const *arrays, int n, lz_error *err) {
    if (n < 0 || (n && !arrays)) return lz_fail(err, LZ_BAD_ARGUMENT, "there are no arrays to evaluate");
    for (int i = 0; i < n; i++) {
        lz_status status = lz_check(arrays[i], err);
        if (status) return status;
        if (arrays[i]->ctx != arrays[0]->ctx)
            return lz_fail(err, LZ_BAD_ARGUMENT, "arrays of two contexts cannot be evaluated together");
    }
    return LZ_OK;
}

static bool any_pending(lz_array *const *arrays, int n) {
    bool pending = false;
    if (n) LZ_LOCK(arrays[0]->ctx);
    for (int i = 0; i < n; i++) pending = pending || !arrays[i]->buffer;
    if (n) LZ_UNLOCK(arrays[0]->ctx);
    return pending;
}

/* If a stream computes the array, waits until that run is over (on a device: until its kernels are queued). */
static lz_status wait_event(lz_array *a, lz_error *err) {
    LZ_LOCK(a->ctx);
    lz_event *event = a->event;
    if (event) event->refs++;
    LZ_UNLOCK(a->ctx);
    lz_status status = lz_event_wait(a->ctx, event, err);
    lz_event_release(a->ctx, event);
    return status;
}

lz_status lz_eval_planned(lz_evaluation *e, lz_array *const *arrays, const lz_watch *watch, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    if (lz_evaluation_allocate(e, &local)) lz_evaluation_run(e, watch, &local);
    LZ_LOCK(e->ctx);
    if (!local.status) lz_evaluation_commit(e, arrays, NULL);
    LZ_UNLOCK(e->ctx);
    lz_evaluation_free(e);
    if (local.status && err) *err = local;
    return local.status;
}

lz_status lz_eval_watched(lz_array *const *arrays, int n, const lz_watch *watch, lz_error *err) {
    lz_status status = lz_check_all(arrays, n, err);
    if (!status && any_pending(arrays, n)) {
        lz_error local = {.status = LZ_OK};
        lz_context *ctx = arrays[0]->ctx;
        lz_evaluation *e = lz_evaluation_new(ctx, arrays, n, &local);
        status = e ? lz_eval_planned(e, arrays, watch, &local) : local.status;
        if (status && err) *err = local;
    }
    for (int i = 0; i < n && !status; i++) status = wait_event(arrays[i], err);
    return status;
}

lz_status lz_eval_all(lz_array *const *arrays, int n, lz_error *err) { return lz_eval_watched(arrays, n, NULL, err); }
lz_status lz_eval(lz_array *a, lz_error *err) { return lz_eval_all(&a, 1, err); }

lz_status lz_wait(lz_array *a, lz_error *err) {
    lz_status status = lz_check(a, err);
    if (!status) status = wait_event(a, err);
    if (status || !a->ctx->device) return status;
    lz_error local = {.status = LZ_OK};
    pthread_mutex_lock(&a->ctx->run_lock);
    a->ctx->backend->device->finish(a->ctx->device, &local);
    pthread_mutex_unlock(&a->ctx->run_lock);
    if (local.status && err) *err = local;
    return local.status;
}

lz_status lz_plan(lz_array *const *arrays, int n, lz_plan_info *info, lz_error *err) {
    if (!info) return lz_fail(err, LZ_BAD_ARGUMENT, "plan: info is NULL");
    memset(info, 0, sizeof *info);
    lz_status status = lz_check_all(arrays, n, err);
    if (status || n == 0) return status;
    lz_error local = {.status = LZ_OK};
    lz_program *p = lz_program_new(arrays[0]->ctx, arrays, n, false, &local);
    if (p && !lz_offload_estimate(p)) lz_out_of_memory(&local, 0);
    if (p && !local.status) *info = p->info;
    lz_program_free(p);
    if (local.status && err) *err = local;
    return local.status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The buffer of an evaluated array, retained. NULL: the value is not in row-major order. */
static lz_buffer *dense_buffer(const lz_array *a, int64_t *offset) {
    LZ_LOCK(a->ctx);
    lz_buffer *buffer = lz_is_dense(a->dims, a->strides) ? lz_buffer_retain(a->buffer) : NULL;
    *offset = a->offset * lz_dtype_size(a->dtype);
    LZ_UNLOCK(a->ctx);
    return buffer;
}

/* Replaces a strided value by a row-major copy. */
static lz_status make_dense(lz_array *a, lz_error *err) {
    lz_scope *scope = lz_scope_begin(a->ctx, "data");
    lz_array *copy = lz_contiguous(a);
    lz_status status = lz_eval(copy, err);
    LZ_LOCK(a->ctx);
    bool still = !lz_is_dense(a->dims,
                              a->strides); /* another thread may have done it and returned a pointer into its copy */
    if (!status && still) lz_node_set_value(a, copy->buffer, copy->offset, copy->strides, NULL);
    LZ_UNLOCK(a->ctx);
    lz_scope_end(scope);
    return status;
}

/* Evaluates a and returns its row-major buffer, retained. NULL: err has the reason. */
static lz_buffer *evaluate_dense(lz_array *a, int64_t *offset, lz_error *err) {
    if (lz_eval(a, err)) return NULL;
    lz_buffer *buffer = dense_buffer(a, offset);
    return buffer || make_dense(a, err) ? buffer : dense_buffer(a, offset);
}

const void *lz_data(lz_array *a, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    int64_t offset = 0;
    lz_buffer *buffer = evaluate_dense(a, &offset, &local);
    const char *data = buffer ? lz_buffer_host(buffer, &local) : NULL;
    lz_buffer_release(buffer); /* the array keeps its own reference */
    if (local.status && err) *err = local;
    return data ? data + offset : NULL;
}

lz_status lz_copy(lz_array *a, void *out, int64_t bytes, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    int64_t offset = 0, own = 0;
    lz_buffer *buffer = evaluate_dense(a, &offset, &local);
    if (buffer) own = lz_size(a) * lz_dtype_size(a->dtype);
    if (buffer && bytes != own)
        lz_fail(&local, LZ_BAD_ARGUMENT, "copy: the array has %lld bytes, not %lld", (long long)own, (long long)bytes);
    else if (own && !out)
        lz_fail(&local, LZ_BAD_ARGUMENT, "copy: out is NULL, and the array has %lld bytes", (long long)own);
    else if (own)
        lz_buffer_read(buffer, offset, out, own, &local);
    lz_buffer_release(buffer);
    if (local.status && err) *err = local;
    return local.status;
}

double lz_item(lz_array *a, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    double value = 0;
    if (!lz_check(a, &local) && lz_size(a) != 1)
        lz_fail(&local, LZ_BAD_SHAPE, "item: %s is not one element", LZ_SHOW(a->dims));
    lz_scope *scope = a ? lz_scope_begin(a->ctx, "item") : NULL;
    if (!local.status) lz_copy(lz_cast(a, LZ_F64), &value, sizeof value, &local);
    lz_scope_end(scope);
    if (local.status && err) *err = local;
    return value;
}
