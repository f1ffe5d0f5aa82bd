/* program.c: a program is a flat list of steps. Running it sets the pointers and calls the kernels in order; it
 * allocates nothing, except the bytes of made inputs (lz_buffer_hold). */
#include "graph/graph.h"

lz_program *lz_program_new(lz_context *ctx, lz_array *const *arrays, int n, bool own_outputs, lz_error *err) {
    lz_program *p = lz_host_alloc(ctx, sizeof *p);
    if (!p) {
        lz_out_of_memory(err, sizeof *p);
        return NULL;
    }
    p->ctx = p->memory.ctx = ctx;
    lz_graph g = {.ctx = ctx, .memory.ctx = ctx};
    bool fine = lz_lower(&g, arrays, n) && lz_fuse(&g) && lz_join_quantise(&g) && lz_join_norms(&g) &&
                lz_plan_steps(p, &g, own_outputs);
    lz_graph_free(&g);
    if (fine) return p;
    lz_program_free(p);
    lz_fail(err, LZ_OUT_OF_MEMORY, "out of memory while planning a graph: nothing was run");
    return NULL;
}

void lz_program_free(lz_program *p) {
    if (!p) return;
    lz_preload_drop(p);
    lz_remote_free(p);
    for (int i = 0; i < p->n_stores; i++) {
        if (p->stores[i].held) lz_buffer_let_go(p->stores[i].buffer);
        lz_buffer_release(p->stores[i].buffer);
    }
    for (int i = 0; i < p->n_events; i++) lz_event_release(p->ctx, p->events[i]);
    lz_bump_free(&p->memory);
    lz_host_free(p->ctx, p);
}

static void bind_stores(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs) {
    for (int i = 0; i < p->n_stores; i++) {
        lz_store *s = &p->stores[i];
        if (s->kind == LZ_STORE_CONST)
            p->base[i] = s->constant;
        else if (s->kind == LZ_STORE_OUTPUT)
            p->base[i] = outputs[s->output]->data;
        else if (s->kind == LZ_STORE_ARENA)
            p->base[i] = arena ? arena->data + s->arena_offset : NULL;
        else if (s->argument) {
            const lz_argument *a = &arguments[s->argument - 1];
            if (!a->buffer->make) p->base[i] = a->buffer->data + a->offset * lz_dtype_size(a->dtype);
        } else
            p->base[i] = s->buffer->data;
    }
}

/* Makes the bytes of a step's made inputs (lz_buffer_hold), before the first step that reads them. The program holds
 * them until it is freed or, if it runs only once, until the last step that reads them (release_inputs). */
static bool hold_inputs(lz_program *p, const lz_step *step, const lz_argument *arguments, lz_error *err) {
    for (int j = 0; j < step->call.n_in; j++) {
        int i = step->in[j].store;
        lz_store *s = &p->stores[i];
        if (s->kind != LZ_STORE_INPUT || s->held) continue;
        lz_buffer *b = s->argument ? arguments[s->argument - 1].buffer : s->buffer;
        if (!b->make) continue;
        if (!lz_buffer_hold(b, err)) return false;
        s->held = !s->argument; /* the bytes of an argument are held until its buffer is freed */
        p->base[i] = b->data + lz_store_offset(p, i, arguments);
    }
    return true;
}

static void release_inputs(lz_program *p, int step) {
    for (int j = 0; j < p->steps[step].call.n_in; j++) {
        lz_store *s = &p->stores[p->steps[step].in[j].store];
        if (!s->held || s->last > step) continue;
        s->held = false;
        lz_buffer_let_go(s->buffer);
    }
}

/* Calls go_on without run_lock, so that it may evaluate arrays: no kernel runs meanwhile, and another program does not
 * use this program's pointers. */
static bool ask(lz_context *ctx, const lz_watch *watch, double done) {
    pthread_mutex_unlock(&ctx->run_lock);
    bool go_on = watch->go_on(watch->user, done);
    pthread_mutex_lock(&ctx->run_lock);
    return go_on;
}

void lz_bind_operands(lz_program *p, lz_step *step, lz_error *err) {
    lz_tensor *in = (lz_tensor *)step->call.in;
    for (int j = 0; j < step->call.n_in; j++) in[j].data = p->base[step->in[j].store] + step->in[j].offset;
    step->call.out.data = p->base[step->out.store] + step->out.offset;
    step->call.scratch = step->scratch >= 0 ? p->base[step->scratch] : NULL;
    step->call.err = err;
}

/* Runs the steps in order on the host, and calls go_on between them. */
static lz_status run_on_host(lz_program *p, const lz_argument *arguments, const lz_watch *watch, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    bool fine = true, timed = lz_profile_on(p->ctx);
    double done = 0, all = p->info.flops + p->info.bytes; /* estimates time, for the fraction that go_on gets */
    for (int i = 0; i < p->n_steps && fine; i++) {
        lz_step *step = &p->steps[i];
        fine = hold_inputs(p, step, arguments, &local);
        if (fine) lz_bind_operands(p, step, &local);
        double start = timed ? lz_now() : 0;
        fine = fine && step->kernel->run(&step->call);
        if (p->once) release_inputs(p, i);
        if (timed) lz_profile_record(p->ctx, step, start, lz_now());
        if (!fine) lz_fail(err, local.status, step->file ? "%s at %s:%d" : "%s", local.text, step->file, step->line);
        done += step->flops + step->bytes;
        if (fine && watch && watch->go_on && !ask(p->ctx, watch, done / all)) {
            local.status = lz_fail(err, LZ_CANCELLED, "stopped");
            fine = false;
        }
    }
    return fine ? LZ_OK : local.status;
}

/* A device gets the program as one submission, so go_on is called once, when the device is done. Programs of other
 * threads are submitted meanwhile: the device does not wait for a thread to wake up. */
static lz_status ask_when_done(lz_context *ctx, lz_moment *moment, const lz_watch *watch, lz_error *err) {
    const lz_device_table *table = ctx->backend->device;
    lz_error local = {.status = LZ_OK};
    bool fine = table->reach(ctx->device, moment, &local);
    pthread_mutex_lock(&ctx->run_lock);
    fine = fine && table->check(ctx->device, &local);
    pthread_mutex_unlock(&ctx->run_lock);
    if (fine && !watch->go_on(watch->user, 1)) lz_fail(&local, LZ_CANCELLED, "stopped");
    if (local.status && err) *err = local;
    return local.status;
}

lz_status lz_program_run(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs,
                         const lz_watch *watch, lz_error *err) {
    for (int i = 0; i < p->n_events; i++)
        if (lz_event_wait(p->ctx, p->events[i], err)) return err ? err->status : LZ_BAD_ARGUMENT;
    if (p->ctx->device) {
        lz_remote_prepare(p, arguments, arena, outputs);
        lz_preload_wait(p, arguments);
    }
    if (watch && watch->begin) watch->begin(watch->user);
    pthread_mutex_lock(&p->ctx->run_lock);
    lz_status status;
    lz_moment *moment = NULL;
    if (p->ctx->device) {
        status = lz_remote_run(p, arguments, arena, outputs, err);
        if (!status && watch && watch->go_on && !(moment = p->ctx->backend->device->moment(p->ctx->device, err)))
            status = err ? err->status : LZ_DEVICE_FAILED;
    } else {
        bind_stores(p, arguments, arena, outputs);
        status = run_on_host(p, arguments, watch, err);
    }
    pthread_mutex_unlock(&p->ctx->run_lock);
    if (watch && watch->end) watch->end(watch->user);
    return moment ? ask_when_done(p->ctx, moment, watch, err) : status;
}
