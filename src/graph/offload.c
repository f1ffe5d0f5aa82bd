/* offload.c: bringing the weights of a program to a device that may have too little memory for all of them.
 *
 * Weights are borrowed memory: they are here (mostly mapped files), or are made from what is here while they are sent. So
 * they can be sent again at any time. As many as fit stay on the device; the others pass through a ring of memory, sent by a
 * queue of their own while kernels run:
 *
 *     copies   w1 w2 w3 ... w4 .....      a copy waits until the kernels are done with what it overwrites
 *     kernels     k1 k2 .. k3 .. k4 ...   a kernel waits until its weights have arrived
 *
 * All of it is planned before the run: which weights stay, what is sent before which step, where it goes, and which step
 * must be over by then. Running is putting copies and kernels into their queues in the order of the program. Nobody here
 * waits for a kernel, so the host runs ahead of the copies as far as its page-locked memory reaches, and the copies run
 * ahead of the kernels as far as the ring reaches. The ring holds any two steps' weights that follow each other. */
#include "graph/graph.h"

enum {
    ALIGN = 256,    /* of a weight in the ring: kernels choose their way by it */
    SMALL = 1 << 16 /* sending one takes longer than its bytes do: these stay before others */
};

typedef struct weight {
    lz_buffer *buffer;
    int64_t bytes;
    bool stays;    /* on the device, in memory of its own */
    int64_t place; /* in the ring; -1: it is not there */
    int last;      /* in the ring: the step that read it last */
} weight;

/* One copy into the ring. */
typedef struct load {
    int weight;
    int step;  /* before which it is sent */
    int after; /* the step that must be over first; -1: none of this run */
    int64_t place;
} load;

struct lz_freight {
    weight *weights; /* in the order in which steps need them */
    int n;
    int *of_store; /* 1 + the weight that a store of the program is; 0: none */
    load *loads;   /* in the order in which they are sent */
    int n_loads;
    int64_t weight_bytes, resident_bytes, ring_bytes, streamed_bytes;

    const lz_argument *arguments; /* of this run */
    bool borrowed_arguments;      /* weights came as arguments: next time it may be others */
    int next_load, awaited;       /* how far the run is: the load that is next, the last step a copy waited for */
};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int64_t add(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t in_ring(const weight *w) { return add(w->bytes, ALIGN - 1) / ALIGN * ALIGN; }

/* ---- which weights there are ------------------------------------------------------------------------------------- */

static lz_buffer *input_buffer(const lz_program *p, int store, const lz_argument *arguments) {
    const lz_store *s = &p->stores[store];
    if (s->kind != LZ_STORE_INPUT) return NULL;
    if (!s->argument) return s->buffer;
    return arguments ? arguments[s->argument - 1].buffer : NULL;
}

static void list_weights(lz_program *p, const lz_argument *arguments) {
    struct lz_freight *f = p->freight;
    f->n = 0;
    f->weight_bytes = 0;
    f->borrowed_arguments = false;
    LZ_LOCK(p->ctx);
    for (int i = 0; i < p->n_stores; i++) f->of_store[i] = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int j = 0; j < p->steps[i].call.n_in; j++) {
            int store = p->steps[i].in[j].store;
            lz_buffer *b = input_buffer(p, store, arguments);
            if (!b || !b->borrowed || !b->bytes) continue;
            if (!b->number) {
                f->weights[f->n++] = (weight){.buffer = b, .bytes = b->bytes};
                f->weight_bytes = add(f->weight_bytes, b->bytes);
                b->number = f->n;
            }
            f->of_store[store] = b->number;
            f->borrowed_arguments = f->borrowed_arguments || p->stores[store].argument;
        }
    for (int i = 0; i < f->n; i++) f->weights[i].buffer->number = 0;
    LZ_UNLOCK(p->ctx);
}

static bool make_freight(lz_program *p) {
    size_t uses = 1, stores = (size_t)p->n_stores + 1;
    for (int i = 0; i < p->n_steps; i++) uses += (size_t)p->steps[i].call.n_in;
    struct lz_freight *f = lz_bump_alloc(&p->memory, sizeof *f);
    if (!f) return false;
    f->weights = lz_bump_alloc(&p->memory, stores * sizeof *f->weights);
    f->of_store = lz_bump_alloc(&p->memory, stores * sizeof *f->of_store);
    f->loads = lz_bump_alloc(&p->memory, uses * sizeof *f->loads);
    if (!f->weights || !f->of_store || !f->loads) return false;
    p->freight = f;
    return true;
}

/* The weights a step reads, each once; only those that travel, or all. */
static int needs_of(const lz_program *p, int step, bool all, int to[LZ_MAX_OPERANDS]) {
    const struct lz_freight *f = p->freight;
    int n = 0;
    for (int j = 0; j < p->steps[step].call.n_in; j++) {
        int w = f->of_store[p->steps[step].in[j].store] - 1, k = 0;
        if (w < 0 || (!all && f->weights[w].stays)) continue;
        while (k < n && to[k] != w) k++;
        if (k == n) to[n++] = w;
    }
    return n;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* What a ring must hold at least, for one step, and to keep both queues busy, for two that follow each other; whichever
 * weights stay. */
static void measure_ring(const lz_program *p, int64_t *least, int64_t *good) {
    int64_t before = 0;
    *least = *good = 0;
    for (int i = 0; i < p->n_steps; i++) {
        int ids[LZ_MAX_OPERANDS], n = needs_of(p, i, true, ids);
        int64_t now = 0;
        for (int k = 0; k < n; k++) now = add(now, in_ring(&p->freight->weights[ids[k]]));
        if (!now) continue;
        if (now > *least) *least = now;
        if (add(before, now) > *good) *good = add(before, now);
        before = now;
    }
}

static void take(weight *w, int64_t *left) {
    if (w->stays || w->bytes > *left) return;
    w->stays = true;
    *left -= w->bytes;
}

/* Those that are there stay, then the small ones, then as many as fit: spread over the program, so that there is always
 * something to compute while others travel. */
static void choose(struct lz_freight *f, int64_t left) {
    for (int i = 0; i < f->n; i++)
        if (f->weights[i].buffer->remote) take(&f->weights[i], &left);
    for (int i = 0; i < f->n; i++)
        if (f->weights[i].bytes <= SMALL) take(&f->weights[i], &left);
    double share = (double)left, rest = 0, seen = 0;
    for (int i = 0; i < f->n; i++) rest += f->weights[i].stays ? 0 : (double)f->weights[i].bytes;
    for (int i = 0; i < f->n; i++) {
        weight *w = &f->weights[i];
        if (w->stays) continue;
        seen += (double)w->bytes;
        if (share - (double)left + (double)w->bytes <= share * (seen / rest)) take(w, &left);
    }
    for (int i = 0; i < f->n; i++) take(&f->weights[i], &left);
}

/* Where a step's weights go that are not in the ring: side by side, behind the last ones or at the start again. What they
 * overwrite must have been read, and is sent again when another step needs it, or this one. Returns where they end. */
static int64_t plan_step(lz_program *p, int step, int64_t head) {
    struct lz_freight *f = p->freight;
    int ids[LZ_MAX_OPERANDS], n = needs_of(p, step, false, ids), after = -1;
    int64_t bytes = 0, start = head;
    for (bool changed = n > 0; changed;) {
        bytes = 0;
        for (int k = 0; k < n; k++)
            if (f->weights[ids[k]].place < 0) bytes += in_ring(&f->weights[ids[k]]);
        start = head + bytes <= f->ring_bytes ? head : 0;
        changed = false;
        for (int i = 0; i < f->n && bytes; i++) {
            weight *w = &f->weights[i];
            if (w->place < 0 || w->place >= start + bytes || w->place + in_ring(w) <= start) continue;
            w->place = -1;
            if (w->last > after) after = w->last;
            for (int k = 0; k < n; k++) changed = changed || ids[k] == i;
        }
    }
    for (int k = 0; k < n; k++) {
        weight *w = &f->weights[ids[k]];
        w->last = step;
        if (w->place >= 0) continue;
        w->place = start;
        f->loads[f->n_loads++] = (load){.weight = ids[k], .step = step, .after = after, .place = start};
        f->streamed_bytes = add(f->streamed_bytes, w->bytes);
        start += in_ring(w);
    }
    return bytes ? start : head;
}

static void plan_loads(lz_program *p) {
    struct lz_freight *f = p->freight;
    int64_t head = 0;
    f->n_loads = 0;
    f->streamed_bytes = f->resident_bytes = 0;
    for (int i = 0; i < f->n; i++) {
        f->weights[i].place = -1;
        if (f->weights[i].stays) f->resident_bytes = add(f->resident_bytes, f->weights[i].bytes);
    }
    for (int i = 0; i < p->n_steps; i++) head = plan_step(p, i, head);
    if (!f->n_loads) f->ring_bytes = 0;
}

/* room: for all weights of this program. tight: it proved to be less than it seemed. */
static bool make_plan(lz_program *p, int64_t room, bool tight, lz_error *err) {
    struct lz_freight *f = p->freight;
    lz_offload mode = p->ctx->offload;
    const char *device = p->ctx->backend->device->name(p->ctx->device);
    bool all = mode != LZ_OFFLOAD_STREAM && !tight && f->weight_bytes <= room;
    int64_t least, good;
    measure_ring(p, &least, &good);
    f->ring_bytes = all ? 0 : good <= room ? good : room / ALIGN * ALIGN;
    for (int i = 0; i < f->n; i++) f->weights[i].stays = all;
    if (!all && mode == LZ_OFFLOAD_NONE) {
        lz_fail(err, LZ_OUT_OF_MEMORY,
                "out of memory on %s: %lld bytes of weights are needed there at once, and there is room for %lld; "
                "offload 'auto' would stream the rest",
                device, (long long)f->weight_bytes, (long long)(room > 0 ? room : 0));
        return false;
    }
    if (!all && room < least) {
        lz_fail(err, LZ_OUT_OF_MEMORY,
                "out of memory on %s: one step reads %lld bytes of weights, and there is room for %lld, so that they "
                "cannot be streamed either",
                device, (long long)least, (long long)(room > 0 ? room : 0));
        return false;
    }
    if (!all) choose(f, mode == LZ_OFFLOAD_STREAM ? 0 : room - f->ring_bytes);
    plan_loads(p);
    return true;
}

bool lz_freight_foresee(lz_program *p) {
    lz_plan_info *info = &p->info;
    if (!p->ctx->device) return true;
    if (!p->freight && !make_freight(p)) return false;
    list_weights(p, NULL);
    struct lz_freight *f = p->freight;
    int64_t others = lz_remote_constants(p);
    if (p->arena_bytes) others = add(others, lz_buffer_size(p->arena_bytes));
    for (int i = 0; i < p->n_outputs; i++) others = add(others, lz_buffer_size(p->output_bytes[i]));
    int64_t room = lz_memory_room(p->ctx) - others;
    if (!make_plan(p, room, false, NULL)) { /* what it would take then, at least */
        int64_t good;
        measure_ring(p, &f->ring_bytes, &good);
        f->resident_bytes = p->ctx->offload == LZ_OFFLOAD_NONE ? f->weight_bytes : 0;
        f->streamed_bytes = f->weight_bytes - f->resident_bytes;
        if (f->resident_bytes) f->ring_bytes = 0;
    }
    info->weight_bytes = f->weight_bytes;
    info->resident_bytes = add(f->resident_bytes, f->ring_bytes);
    info->streamed_bytes = f->streamed_bytes;
    info->device_bytes = add(others, info->resident_bytes);
    return true;
}

/* ---- before a run ------------------------------------------------------------------------------------------------ */

static bool ready_ring(lz_context *ctx, int64_t bytes, lz_error *err) {
    lz_buffer_claim(ctx, &ctx->ring);
    if (ctx->ring && ctx->ring->bytes == lz_buffer_size(bytes)) return true;
    lz_buffer_release(ctx->ring);
    lz_clear_cache(ctx); /* memory is short: one of just this size */
    ctx->ring = lz_buffer_new(ctx, bytes, err);
    return ctx->ring;
}

/* From this one on, what is not there travels; and so does the one before, to leave the driver some air. */
static void give_up(lz_program *p, int first) {
    struct lz_freight *f = p->freight;
    int last = first - 1;
    while (last >= 0 && !f->weights[last].stays) last--;
    for (int i = last < 0 ? first : last; i < f->n; i++)
        if (i == last || !f->weights[i].buffer->remote) {
            lz_buffer_unplace(f->weights[i].buffer);
            f->weights[i].stays = false;
        }
    plan_loads(p);
}

/* Does as planned. Where memory runs out all the same, less stays. */
static bool bring(lz_program *p, lz_error *err) {
    struct lz_freight *f = p->freight;
    for (int i = 0; i < f->n; i++)
        if (!f->weights[i].stays) lz_buffer_unplace(f->weights[i].buffer);
    if (f->ring_bytes && !ready_ring(p->ctx, f->ring_bytes, err)) return false;
    for (int i = 0; i < f->n; i++) {
        lz_error local = {.status = LZ_OK};
        if (!f->weights[i].stays || lz_buffer_place(f->weights[i].buffer, &local)) continue;
        if (f->ring_bytes && local.status == LZ_OUT_OF_MEMORY) {
            give_up(p, i);
            continue;
        }
        if (err) *err = local;
        return false;
    }
    return true;
}

/* Of the weights of this program, those that are there. */
static int64_t count_present(struct lz_freight *f) {
    int64_t bytes = 0;
    for (int i = 0; i < f->n; i++)
        if (lz_buffer_use(f->weights[i].buffer)) bytes = add(bytes, f->weights[i].bytes);
    return bytes;
}

/* Which weights there are, once, or each time when they are arguments. */
static bool know_weights(lz_program *p, const lz_argument *arguments, lz_error *err) {
    bool known = p->freight;
    if (!known && !make_freight(p)) {
        lz_out_of_memory(err, (int64_t)sizeof(struct lz_freight));
        return false;
    }
    bool others = !known || p->freight->borrowed_arguments;
    for (int i = 0; i < p->n_stores && !others; i++)
        others = p->stores[i].argument && input_buffer(p, i, arguments)->borrowed;
    if (others) list_weights(p, arguments);
    p->freight->arguments = arguments;
    return true;
}

/* There was less room than it seemed: everything of ours goes, and a part of what then is free is left alone. */
static bool bring_less(lz_program *p, lz_error *err) {
    lz_context *ctx = p->ctx;
    for (int i = 0; i < p->freight->n; i++) lz_buffer_unplace(p->freight->weights[i].buffer);
    lz_buffer_claim(ctx, &ctx->ring);
    lz_buffer_release(ctx->ring);
    ctx->ring = NULL;
    int64_t room = lz_memory_room(ctx);
    return make_plan(p, room - room / 8, true, err) && bring(p, err);
}

bool lz_freight_load(lz_program *p, const lz_argument *arguments, lz_error *err) {
    if (!know_weights(p, arguments, err)) return false;
    struct lz_freight *f = p->freight;
    lz_context *ctx = p->ctx;
    f->next_load = f->n_loads = 0;
    f->awaited = -1;
    f->ring_bytes = 0;
    int64_t present = count_present(f);
    if (!f->n || (present == f->weight_bytes && ctx->offload != LZ_OFFLOAD_STREAM)) { /* as ever, once all are there */
        for (int i = 0; i < f->n; i++) f->weights[i].stays = true;
        return true;
    }
    lz_error local = {.status = LZ_OK};
    bool fine = make_plan(p, add(lz_memory_room(ctx), present), false, &local) && bring(p, &local);
    if (!fine && local.status == LZ_OUT_OF_MEMORY && ctx->offload == LZ_OFFLOAD_AUTO) fine = bring_less(p, &local);
    const lz_device_table *device = ctx->backend->device;
    if (fine && f->n_loads) /* the ring may have been other memory until now */
        fine = device->mark(ctx->device, LZ_QUEUE_KERNELS, 0, &local) &&
               device->await(ctx->device, LZ_QUEUE_COPIES, 0, &local);
    if (!fine && err) *err = local;
    return fine;
}

/* ---- while it runs ----------------------------------------------------------------------------------------------- */

/* Moments in the queues: 0 when the run begins. */
static int launched(int step) { return 1 + 2 * step; }
static int arrived(int step) { return 2 + 2 * step; }

bool lz_freight_streams(const lz_program *p) { return p->freight->n_loads; }

static bool send_loads(lz_program *p, int step, lz_error *err) {
    struct lz_freight *f = p->freight;
    lz_context *ctx = p->ctx;
    const lz_device_table *device = ctx->backend->device;
    int64_t bytes = 0;
    int after = f->loads[f->next_load].after;
    bool fine = after <= f->awaited || device->await(ctx->device, LZ_QUEUE_COPIES, launched(after), err);
    if (fine && after > f->awaited) f->awaited = after;
    for (; fine && f->next_load < f->n_loads && f->loads[f->next_load].step == step; f->next_load++) {
        const load *l = &f->loads[f->next_load];
        weight *w = &f->weights[l->weight];
        w->place = l->place;
        fine = device->send(ctx->device, ctx->ring->remote + l->place, lz_buffer_bytes(w->buffer), w->bytes, err);
        bytes += w->bytes;
    }
    LZ_LOCK(ctx);
    ctx->memory.streamed = add(ctx->memory.streamed, bytes);
    LZ_UNLOCK(ctx);
    return fine && device->mark(ctx->device, LZ_QUEUE_COPIES, arrived(step), err) &&
           device->await(ctx->device, LZ_QUEUE_KERNELS, arrived(step), err);
}

bool lz_freight_before(lz_program *p, int step, lz_error *err) {
    struct lz_freight *f = p->freight;
    if (!f->n_loads) return true;
    if (f->next_load < f->n_loads && f->loads[f->next_load].step == step && !send_loads(p, step, err)) return false;
    for (int j = 0; j < p->steps[step].call.n_in; j++) {
        int store = p->steps[step].in[j].store, w = f->of_store[store] - 1;
        if (w < 0 || f->weights[w].stays) continue;
        p->base[store] = p->ctx->ring->remote + f->weights[w].place + lz_store_offset(p, store, f->arguments);
    }
    return true;
}

bool lz_freight_after(lz_program *p, int step, lz_error *err) {
    int ids[LZ_MAX_OPERANDS];
    lz_context *ctx = p->ctx;
    if (!p->freight->n_loads || !needs_of(p, step, false, ids)) return true;
    return ctx->backend->device->mark(ctx->device, LZ_QUEUE_KERNELS, launched(step), err);
}

char *lz_freight_place(const lz_program *p, int store) {
    const struct lz_freight *f = p->freight;
    int w = f->of_store[store] - 1;
    return w < 0 || !f->weights[w].stays ? NULL : f->weights[w].buffer->remote;
}

void lz_freight_end(lz_program *p, bool fine) {
    lz_context *ctx = p->ctx;
    if (!p->freight || !p->freight->ring_bytes) return;
    lz_error ignored;
    if (!fine) ctx->backend->device->finish(ctx->device, &ignored); /* no copy is on its way into memory that goes */
    lz_buffer_keep(ctx, &ctx->ring);
}
