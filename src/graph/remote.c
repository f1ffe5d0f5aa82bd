/* remote.c: running a program on a device with its own memory. Before its first run the program is rehearsed: its kernels list
 * what they must compile, and all of it is compiled at once, without a lock. The first run launches kernel by kernel. From
 * the second run on, the launches are recorded once for each set of addresses, and the recording is replayed as one
 * submission. A program that streams weights (offload.c) is launched kernel by kernel every time. The host waits for the
 * device only if a step has no kernel there: its operands are copied to the host and the result back. */
#include <string.h>

#include "graph/graph.h"

enum { MAX_RECORDINGS = 8 };

typedef struct recording {
    lz_recording *work;
    char **base; /* value of p->base when it was recorded; a recording is replayed only with equal addresses */
} recording;

struct lz_remote {
    lz_buffer *constants;
    recording recordings[MAX_RECORDINGS]; /* most recently made first */
    int n_recordings;
    int64_t runs;
    bool rehearsed;
};

static const lz_device_table *table_of(const lz_program *p) { return p->ctx->backend->device; }

void lz_remote_free(lz_program *p) {
    struct lz_remote *r = p->remote;
    if (!r) return;
    for (int i = 0; i < r->n_recordings; i++) {
        table_of(p)->forget(p->ctx->device, r->recordings[i].work);
        lz_host_free(p->ctx, r->recordings[i].base);
    }
    lz_buffer_release(r->constants);
    lz_host_free(p->ctx, r);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* Bytes of one constant on the device. Constants are uploaded once, at index * EACH. */
enum { EACH = sizeof((lz_store *)0)->constant };

int64_t lz_remote_constants(const lz_program *p) { return lz_buffer_size((int64_t)p->n_stores * EACH); }

static bool send_constants(lz_program *p, lz_error *err) {
    char *all = lz_host_alloc(p->ctx, (size_t)p->n_stores * EACH + 1);
    lz_buffer *there = all ? lz_buffer_new(p->ctx, (int64_t)p->n_stores * EACH, err) : NULL;
    if (!all) lz_out_of_memory(err, (int64_t)p->n_stores * EACH);
    for (int i = 0; there && i < p->n_stores; i++) memcpy(all + (size_t)i * EACH, p->stores[i].constant, EACH);
    bool fine = there && table_of(p)->write(p->ctx->device, there->remote, (lz_bytes){.data = all},
                                            (int64_t)p->n_stores * EACH, err);
    lz_host_free(p->ctx, all);
    if (fine) p->remote->constants = there;
    if (!fine) lz_buffer_release(there);
    return fine;
}

static bool prepare(lz_program *p, lz_error *err) {
    if (!p->remote) p->remote = lz_host_alloc(p->ctx, sizeof *p->remote);
    if (!p->remote) {
        lz_out_of_memory(err, sizeof *p->remote);
        return false;
    }
    return p->remote->constants || send_constants(p, err);
}

/* The device address of a store. NULL without an error: nothing reads the store, or it is a streamed weight, whose
 * address lz_offload_before_step sets. */
static char *device_address(lz_program *p, int i, const lz_argument *arguments, lz_buffer *arena,
                            lz_buffer *const *outputs, lz_error *err) {
    const lz_store *s = &p->stores[i];
    switch (s->kind) {
    case LZ_STORE_CONST: return p->remote->constants->remote + (size_t)i * sizeof s->constant;
    case LZ_STORE_ARENA:
        return arena ? arena->remote + s->arena_offset
                     : p->remote->constants->remote; /* the arena has no bytes: any valid address */
    case LZ_STORE_OUTPUT: lz_buffer_stale(outputs[s->output]); return outputs[s->output]->remote;
    default: break;
    }
    lz_buffer *b = s->argument ? arguments[s->argument - 1].buffer : s->buffer;
    char *start = b->borrowed ? lz_offload_address(p, i) : lz_buffer_upload(b, err);
    return start ? start + lz_store_offset(p, i, arguments) : NULL;
}

/* ---- steps without a kernel on the device ------------------------------------------------------------------------ */

/* Bytes from the first element to the end of the last. */
static int64_t span(const lz_tensor *t) {
    int64_t last = 0;
    if (lz_dims_size(t->dims) == 0) return 0;
    for (int i = 0; i < t->dims.n; i++) last += (t->dims.at[i] - 1) * t->strides[i];
    return (last + 1) * lz_dtype_size(t->dtype);
}

/* Allocates host memory for an operand and points t->data to it; copies the operand there if `filled` is set. */
static char *fetch(lz_program *p, lz_tensor *t, bool filled, lz_error *err) {
    char *here = lz_host_alloc(p->ctx, (size_t)span(t));
    if (!here) lz_out_of_memory(err, span(t));
    if (here && filled && span(t) && !table_of(p)->read(p->ctx->device, here, t->data, span(t), err)) {
        lz_host_free(p->ctx, here);
        here = NULL;
    }
    t->data = here;
    return here;
}

static bool run_step_on_host(lz_program *p, const lz_step *step, lz_error *err) {
    lz_call call = step->call;
    lz_tensor in[LZ_MAX_OPERANDS];
    bool gaps = !lz_is_dense(call.out.dims, call.out.strides); /* bytes between the elements must be kept */
    char *there = call.out.data, *out = fetch(p, &call.out, gaps, err), *scratch = NULL;
    bool fine = out;
    int n = 0;
    for (; fine && n < call.n_in; n++) {
        in[n] = step->call.in[n];
        fine = fetch(p, &in[n], true, err);
    }
    call.in = in;
    int64_t bytes = fine && step->kernel->scratch ? step->kernel->scratch(&call) : 0;
    if (bytes && !(scratch = lz_host_alloc(p->ctx, (size_t)bytes))) fine = lz_out_of_memory(err, bytes) == LZ_OK;
    call.scratch = scratch;
    fine = fine && step->kernel->run(&call) &&
           table_of(p)->write(p->ctx->device, there, (lz_bytes){.data = out}, span(&call.out), err);
    for (int i = 0; i < n; i++) lz_host_free(p->ctx, in[i].data);
    lz_host_free(p->ctx, out);
    lz_host_free(p->ctx, scratch);
    return fine;
}

/* ---- launching --------------------------------------------------------------------------------------------------- */

static bool launch_one(lz_program *p, int i, lz_error *err) {
    lz_step *step = &p->steps[i];
    if (!lz_offload_before_step(p, i, err)) return false;
    lz_bind_operands(p, step, err);
    return (step->on_host ? run_step_on_host(p, step, err) : step->kernel->run(&step->call)) &&
           lz_offload_after_step(p, i, err);
}

static bool launch_group(lz_program *p, int first, int n, lz_error *err) {
    const lz_call *calls[LZ_MAX_GROUP];
    for (int i = 0; i < n; i++) {
        lz_bind_operands(p, &p->steps[first + i], err);
        calls[i] = &p->steps[first + i].call;
    }
    return p->steps[first].kernel->run_group(calls, n);
}

/* The number of steps, from i on, that are one launch. A program that streams weights launches each step alone, as soon
 * as the weights of that step have arrived. */
static int launched_with(const lz_program *p, int i) {
    return lz_offload_streams(p) || p->steps[i].group_size < 2 ? 1 : p->steps[i].group_size;
}

static bool launch_all(lz_program *p, bool timed, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    bool fine = !timed || table_of(p)->stamp(p->ctx->device, 0, &local);
    for (int i = 0, n; i < p->n_steps && fine; i += n) {
        const lz_step *step = &p->steps[i];
        n = launched_with(p, i);
        fine = n > 1 ? launch_group(p, i, n, &local) : launch_one(p, i, &local);
        for (int j = 1; j <= n && fine && timed; j++) fine = table_of(p)->stamp(p->ctx->device, i + j, &local);
        if (!fine) lz_fail(err, local.status, step->file ? "%s at %s:%d" : "%s", local.text, step->file, step->line);
    }
    return fine;
}

/* Launches every kernel between two time stamps of the device, waits, and records the times in the profile. */
static bool launch_timed(lz_program *p, lz_error *err) {
    if (!launch_all(p, true, err) || !table_of(p)->finish(p->ctx->device, err)) return false;
    double end = lz_now(), all = table_of(p)->seconds(p->ctx->device, 0, p->n_steps);
    for (int i = 0; i < p->n_steps; i++) {
        double from = table_of(p)->seconds(p->ctx->device, 0, i), to = table_of(p)->seconds(p->ctx->device, 0, i + 1);
        lz_profile_record(p->ctx, &p->steps[i], end - all + from, end - all + to);
    }
    return true;
}

static recording *find_recording(lz_program *p) {
    struct lz_remote *r = p->remote;
    for (int i = 0; i < r->n_recordings; i++)
        if (!memcmp(r->recordings[i].base, p->base, (size_t)p->n_stores * sizeof *p->base)) return &r->recordings[i];
    return NULL;
}

static void forget_oldest(lz_program *p) {
    struct lz_remote *r = p->remote;
    if (r->n_recordings < MAX_RECORDINGS) return;
    recording *old = &r->recordings[--r->n_recordings];
    table_of(p)->forget(p->ctx->device, old->work);
    lz_host_free(p->ctx, old->base);
}

static recording *record(lz_program *p, lz_error *err) {
    struct lz_remote *r = p->remote;
    size_t bytes = (size_t)p->n_stores * sizeof *p->base;
    char **base = lz_host_alloc(p->ctx, bytes + 1);
    if (!base) {
        lz_out_of_memory(err, (int64_t)bytes);
        return NULL;
    }
    memcpy(base, p->base, bytes);
    forget_oldest(p);
    lz_recording *work = NULL;
    if (table_of(p)->record(p->ctx->device, err)) {
        lz_error ignored = {.status = LZ_OK};
        bool fine = launch_all(p, false, err);
        work = table_of(p)->end_record(p->ctx->device, fine ? err : &ignored); /* must be called after an error too */
        if (!fine && work) {
            table_of(p)->forget(p->ctx->device, work);
            work = NULL;
        }
    }
    if (!work) {
        lz_host_free(p->ctx, base);
        return NULL;
    }
    memmove(&r->recordings[1], &r->recordings[0], (size_t)r->n_recordings * sizeof *r->recordings);
    r->recordings[0] = (recording){work, base};
    r->n_recordings++;
    return &r->recordings[0];
}

static bool all_on_device(const lz_program *p) {
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].on_host) return false;
    return true;
}

static bool run_or_replay(lz_program *p, lz_error *err) {
    if (lz_profile_on(p->ctx)) return launch_timed(p, err);
    if (!p->remote->runs || p->n_steps < 2 || lz_offload_streams(p) || !all_on_device(p))
        return launch_all(p, false, err);
    recording *known = find_recording(p);
    if (known) return table_of(p)->replay(p->ctx->device, known->work, err);
    lz_error local = {.status = LZ_OK};
    known = record(p, &local);
    if (known) return table_of(p)->replay(p->ctx->device, known->work, err);
    if (local.status != LZ_OUT_OF_MEMORY)
        return launch_all(p, false, err); /* a kernel was not compiled yet, which cannot be recorded */
    if (err) *err = local;
    return false;
}

/* ---- rehearsing -------------------------------------------------------------------------------------------------- */

/* Addresses that are as good as the real ones: kernels choose by their alignment, and nothing is read or written. A weight
 * that is not there yet will lie at an address as aligned as that of the constants. */
static void bind_stand_ins(lz_program *p, const lz_argument *arguments, const lz_buffer *arena,
                           lz_buffer *const *outputs) {
    char *any = p->remote->constants->remote;
    LZ_LOCK(p->ctx);
    for (int i = 0; i < p->n_stores; i++) {
        const lz_store *s = &p->stores[i];
        const lz_buffer *b = s->kind == LZ_STORE_ARENA ? arena : NULL;
        if (s->kind == LZ_STORE_OUTPUT && outputs) b = outputs[s->output];
        if (s->kind == LZ_STORE_INPUT) b = s->argument ? arguments[s->argument - 1].buffer : s->buffer;
        p->base[i] = b && b->remote ? b->remote : any;
        if (s->kind == LZ_STORE_ARENA) p->base[i] += s->arena_offset;
        if (s->kind == LZ_STORE_INPUT) p->base[i] += lz_store_offset(p, i, arguments);
    }
    LZ_UNLOCK(p->ctx);
}

/* What the kernels of the program have to prepare. Errors are told when it runs. The caller holds ctx->run_lock. */
static lz_preparation *rehearse(lz_program *p, const lz_argument *arguments, const lz_buffer *arena,
                                lz_buffer *const *outputs) {
    lz_error unused = {.status = LZ_OK};
    lz_device *d = p->ctx->device;
    table_of(p)->enter(d);
    if (!prepare(p, &unused)) return NULL;
    bind_stand_ins(p, arguments, arena, outputs);
    table_of(p)->rehearse(d);
    for (int i = 0, n; i < p->n_steps; i += n) {
        lz_step *step = &p->steps[i];
        unused.status = LZ_OK;
        n = launched_with(p, i);
        if (n > 1) {
            launch_group(p, i, n, &unused);
        } else if (!step->on_host) {
            lz_bind_operands(p, step, &unused);
            step->kernel->run(&step->call);
        }
    }
    return table_of(p)->end_rehearsal(d);
}

void lz_remote_prepare(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs) {
    if (!p->n_steps || (p->remote && p->remote->rehearsed) || !lz_offload_estimate(p)) return;
    pthread_mutex_lock(&p->ctx->run_lock);
    lz_preparation *list = rehearse(p, arguments, arena, outputs);
    pthread_mutex_unlock(&p->ctx->run_lock);
    if (list) {
        table_of(p)->prepare(p->ctx->device, list);
        pthread_mutex_lock(&p->ctx->run_lock);
        table_of(p)->enter(p->ctx->device);
        table_of(p)->use_prepared(p->ctx->device, list);
        pthread_mutex_unlock(&p->ctx->run_lock);
    }
    if (p->remote) p->remote->rehearsed = true;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

lz_status lz_remote_run(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs,
                        lz_error *err) {
    lz_error local = {.status = LZ_OK};
    if (!p->n_steps) return LZ_OK; /* all results are views of evaluated values */
    table_of(p)->enter(p->ctx->device);
    lz_device_run_begin(p->ctx);
    bool fine = prepare(p, &local) && lz_offload_prepare(p, arguments, &local);
    for (int i = 0; i < p->n_stores && fine; i++) {
        p->base[i] = device_address(p, i, arguments, arena, outputs, &local);
        fine = !local.status;
    }
    fine = fine && run_or_replay(p, &local);
    lz_offload_end(p, fine);
    lz_device_run_end(p->ctx);
    if (fine) p->remote->runs++;
    if (!fine && err) *err = local;
    return fine ? LZ_OK : local.status;
}
