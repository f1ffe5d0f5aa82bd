/* offload.c: uploads the weights of a program to a device, and streams those for which it has too little memory.
 *
 * Weights are borrowed buffers: their bytes are in host memory (mostly mapped files), or are made from host memory
 * while they are sent. So they can be sent again at any time. As many weights as fit are resident on the device. The
 * others are streamed through a ring of device memory (ctx->ring) by a second queue, while kernels run:
 *
 *     copies   w1 w2 w3 ... w4 .....      a copy waits until the kernels are done with the bytes it overwrites
 *     kernels     k1 k2 .. k3 .. k4 ...   a kernel waits until its weights have arrived
 *
 * The plan is made before the run: which weights are resident, which weight is copied before which step, to which
 * offset of the ring, and for which earlier step the copy must wait. A run puts copies and kernels into their queues in
 * the order of the program. The host never waits for a kernel, so it runs ahead of the copies as far as its page-locked
 * memory allows, and the copies run ahead of the kernels as far as the ring allows. The ring can hold the weights of
 * any two consecutive steps.
 *
 * The plan belongs to its program. Whoever plans or runs holds ctx->run_lock, or base.lock for lz_offload_estimate. */
#include "graph/graph.h"

enum {
    ALIGN = 256,    /* of a weight in the ring: some kernels need aligned operands */
    SMALL = 1 << 16 /* bytes: for a smaller weight the fixed cost of a copy dominates, so it becomes resident first */
};

typedef struct weight {
    lz_buffer *buffer;
    int64_t bytes;
    bool on_device;      /* when the plan was made */
    bool resident;       /* stays on the device, in its own buffer->remote */
    int64_t ring_offset; /* while planning and running; -1: not in the ring */
    int last_step;       /* in the ring: the last step that reads it */
} weight;

/* A copy of a weight into the ring. */
typedef struct load {
    int weight;
    int step;      /* the step that needs it; the copy is queued before this step */
    int waits_for; /* the step that must be done first, because it reads overwritten bytes; -1: none */
    int64_t ring_offset;
} load;

struct lz_offload_plan {
    weight *weights; /* in the order in which steps need them */
    int n;
    int *of_store; /* of each store: 1 + index of its weight; 0: not a weight */
    load *loads;   /* in the order in which they are sent */
    int n_loads;
    int64_t weight_bytes, resident_bytes, ring_bytes, streamed_bytes;

    const lz_argument *arguments; /* of this run */
    bool borrowed_arguments;      /* some weights are arguments, which may differ in the next run */
    int next_load, awaited;       /* of this run: index of the next load; latest step that a copy waited for */
};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int64_t add(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t ring_bytes_of(const weight *w) { return add(w->bytes, ALIGN - 1) / ALIGN * ALIGN; }

/* ---- the list of weights ----------------------------------------------------------------------------------------- */

static lz_buffer *input_buffer(const lz_program *p, int store, const lz_argument *arguments) {
    const lz_store *s = &p->stores[store];
    if (s->kind != LZ_STORE_INPUT) return NULL;
    if (!s->argument) return s->buffer;
    return arguments ? arguments[s->argument - 1].buffer : NULL;
}

static void list_weights(lz_program *p, const lz_argument *arguments) {
    struct lz_offload_plan *plan = p->offload;
    plan->n = 0;
    plan->weight_bytes = 0;
    plan->borrowed_arguments = false;
    LZ_LOCK(p->ctx);
    for (int i = 0; i < p->n_stores; i++) plan->of_store[i] = 0;
    for (int i = 0; i < p->n_steps; i++)
        for (int j = 0; j < p->steps[i].call.n_in; j++) {
            int store = p->steps[i].in[j].store;
            lz_buffer *b = input_buffer(p, store, arguments);
            if (!b || !b->borrowed || !b->bytes) continue;
            if (!b->list_index) {
                plan->weights[plan->n++] = (weight){.buffer = b, .bytes = b->bytes, .on_device = b->remote};
                plan->weight_bytes = add(plan->weight_bytes, b->bytes);
                b->list_index = plan->n;
            }
            plan->of_store[store] = b->list_index;
            plan->borrowed_arguments = plan->borrowed_arguments || p->stores[store].argument;
        }
    for (int i = 0; i < plan->n; i++) plan->weights[i].buffer->list_index = 0;
    LZ_UNLOCK(p->ctx);
}

static bool make_plan_memory(lz_program *p) {
    size_t uses = 1, stores = (size_t)p->n_stores + 1;
    for (int i = 0; i < p->n_steps; i++) uses += (size_t)p->steps[i].call.n_in;
    struct lz_offload_plan *plan = lz_bump_alloc(&p->memory, sizeof *plan);
    if (!plan) return false;
    plan->weights = lz_bump_alloc(&p->memory, stores * sizeof *plan->weights);
    plan->of_store = lz_bump_alloc(&p->memory, stores * sizeof *plan->of_store);
    plan->loads = lz_bump_alloc(&p->memory, uses * sizeof *plan->loads);
    if (!plan->weights || !plan->of_store || !plan->loads) return false;
    p->offload = plan;
    return true;
}

/* Lists the weights that a step reads, each once: all of them, or only the streamed ones. */
static int weights_of_step(const lz_program *p, int step, bool all, int to[LZ_MAX_OPERANDS]) {
    const struct lz_offload_plan *plan = p->offload;
    int n = 0;
    for (int j = 0; j < p->steps[step].call.n_in; j++) {
        int w = plan->of_store[p->steps[step].in[j].store] - 1, k = 0;
        if (w < 0 || (!all && plan->weights[w].resident)) continue;
        while (k < n && to[k] != w) k++;
        if (k == n) to[n++] = w;
    }
    return n;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* Bytes of the ring: least holds the weights of any one step; good holds those of any two consecutive steps, which
 * keeps both queues busy. Resident weights are counted too, since they are chosen later. */
static void measure_ring(const lz_program *p, int64_t *least, int64_t *good) {
    int64_t before = 0;
    *least = *good = 0;
    for (int i = 0; i < p->n_steps; i++) {
        int ids[LZ_MAX_OPERANDS], n = weights_of_step(p, i, true, ids);
        int64_t now = 0;
        for (int k = 0; k < n; k++) now = add(now, ring_bytes_of(&p->offload->weights[ids[k]]));
        if (!now) continue;
        if (now > *least) *least = now;
        if (add(before, now) > *good) *good = add(before, now);
        before = now;
    }
}

static void make_resident(weight *w, int64_t *left) {
    if (w->resident || w->bytes > *left) return;
    w->resident = true;
    *left -= w->bytes;
}

/* Chooses resident weights: first those already on the device, then small ones, then as many as fit in `left` bytes,
 * spread evenly over the program, so that kernels with resident weights run while others are copied. */
static void choose_resident(struct lz_offload_plan *plan, int64_t left) {
    for (int i = 0; i < plan->n; i++)
        if (plan->weights[i].on_device) make_resident(&plan->weights[i], &left);
    for (int i = 0; i < plan->n; i++)
        if (plan->weights[i].bytes <= SMALL) make_resident(&plan->weights[i], &left);
    double share = (double)left, rest = 0, seen = 0;
    for (int i = 0; i < plan->n; i++) rest += plan->weights[i].resident ? 0 : (double)plan->weights[i].bytes;
    for (int i = 0; i < plan->n; i++) {
        weight *w = &plan->weights[i];
        if (w->resident) continue;
        seen += (double)w->bytes;
        if (share - (double)left + (double)w->bytes <= share * (seen / rest)) make_resident(w, &left);
    }
    for (int i = 0; i < plan->n; i++) make_resident(&plan->weights[i], &left);
}

/* Plans the copies of a step's weights that are not in the ring. They get one contiguous range: at `head`, after the
 * previous copy, or at the start of the ring if they do not fit there. Weights in that range are overwritten, and are
 * copied again if a later step, or this one, needs them. Returns the new head. */
static int64_t plan_step(lz_program *p, int step, int64_t head) {
    struct lz_offload_plan *plan = p->offload;
    int ids[LZ_MAX_OPERANDS], n = weights_of_step(p, step, false, ids), waits_for = -1;
    int64_t bytes = 0, start = head;
    for (bool changed = n > 0; changed;) {
        bytes = 0;
        for (int k = 0; k < n; k++)
            if (plan->weights[ids[k]].ring_offset < 0) bytes += ring_bytes_of(&plan->weights[ids[k]]);
        start = head + bytes <= plan->ring_bytes ? head : 0;
        changed = false;
        for (int i = 0; i < plan->n && bytes; i++) {
            weight *w = &plan->weights[i];
            if (w->ring_offset < 0 || w->ring_offset >= start + bytes || w->ring_offset + ring_bytes_of(w) <= start)
                continue;
            w->ring_offset = -1;
            if (w->last_step > waits_for) waits_for = w->last_step;
            for (int k = 0; k < n; k++) changed = changed || ids[k] == i;
        }
    }
    for (int k = 0; k < n; k++) {
        weight *w = &plan->weights[ids[k]];
        w->last_step = step;
        if (w->ring_offset >= 0) continue;
        w->ring_offset = start;
        plan->loads[plan->n_loads++] = (load){
            .weight = ids[k], .step = step, .waits_for = waits_for, .ring_offset = start};
        plan->streamed_bytes = add(plan->streamed_bytes, w->bytes);
        start += ring_bytes_of(w);
    }
    return bytes ? start : head;
}

static void plan_loads(lz_program *p) {
    struct lz_offload_plan *plan = p->offload;
    int64_t head = 0;
    plan->n_loads = 0;
    plan->streamed_bytes = plan->resident_bytes = 0;
    for (int i = 0; i < plan->n; i++) {
        plan->weights[i].ring_offset = -1;
        if (plan->weights[i].resident) plan->resident_bytes = add(plan->resident_bytes, plan->weights[i].bytes);
    }
    for (int i = 0; i < p->n_steps; i++) head = plan_step(p, i, head);
    if (!plan->n_loads) plan->ring_bytes = 0;
}

/* available: device bytes for all weights of this program. tight: an upload has failed, so some weights must be
 * streamed. */
static bool make_plan(lz_program *p, int64_t available, bool tight, lz_error *err) {
    struct lz_offload_plan *plan = p->offload;
    lz_offload mode = p->ctx->offload;
    const char *device = p->ctx->backend->device->name(p->ctx->device);
    bool all = mode != LZ_OFFLOAD_STREAM && !tight && plan->weight_bytes <= available;
    int64_t least, good;
    measure_ring(p, &least, &good);
    plan->ring_bytes = all ? 0 : good <= available ? good : available / ALIGN * ALIGN;
    for (int i = 0; i < plan->n; i++) plan->weights[i].resident = all;
    if (!all && mode == LZ_OFFLOAD_NONE) {
        lz_fail(err, LZ_OUT_OF_MEMORY,
                "out of memory on %s: %lld bytes of weights are needed there at once, and there is room for %lld; "
                "offload 'auto' would stream the rest",
                device, (long long)plan->weight_bytes, (long long)(available > 0 ? available : 0));
        return false;
    }
    if (!all && available < least) {
        lz_fail(err, LZ_OUT_OF_MEMORY,
                "out of memory on %s: one step reads %lld bytes of weights, and there is room for %lld, so that they "
                "cannot be streamed either",
                device, (long long)least, (long long)(available > 0 ? available : 0));
        return false;
    }
    if (!all) choose_resident(plan, mode == LZ_OFFLOAD_STREAM ? 0 : available - plan->ring_bytes);
    plan_loads(p);
    return true;
}

bool lz_offload_estimate(lz_program *p) {
    lz_plan_info *info = &p->info;
    if (!p->ctx->device) return true;
    if (!p->offload && !make_plan_memory(p)) return false;
    list_weights(p, NULL);
    struct lz_offload_plan *plan = p->offload;
    int64_t others = lz_remote_constants(p);
    if (p->arena_bytes) others = add(others, lz_buffer_size(p->arena_bytes));
    for (int i = 0; i < p->n_outputs; i++) others = add(others, lz_buffer_size(p->output_bytes[i]));
    int64_t available = lz_memory_available(p->ctx) - others;
    if (!make_plan(p, available, false, NULL)) { /* does not fit: report the least that it would need */
        int64_t good;
        measure_ring(p, &plan->ring_bytes, &good);
        plan->resident_bytes = p->ctx->offload == LZ_OFFLOAD_NONE ? plan->weight_bytes : 0;
        plan->streamed_bytes = plan->weight_bytes - plan->resident_bytes;
        if (plan->resident_bytes) plan->ring_bytes = 0;
    }
    info->weight_bytes = plan->weight_bytes;
    info->resident_bytes = add(plan->resident_bytes, plan->ring_bytes);
    info->streamed_bytes = plan->streamed_bytes;
    info->device_bytes = add(others, info->resident_bytes);
    return true;
}

/* ---- before a run ------------------------------------------------------------------------------------------------ */

static bool ensure_ring(lz_context *ctx, int64_t bytes, lz_error *err) {
    lz_buffer_claim(ctx, &ctx->ring);
    if (ctx->ring && ctx->ring->bytes == lz_buffer_size(bytes)) return true;
    lz_buffer_release(ctx->ring);
    lz_clear_cache(ctx); /* memory is scarce: no cached buffer that is larger than needed */
    ctx->ring = lz_buffer_new(ctx, bytes, err);
    return ctx->ring;
}

/* Streams all weights from index `first` on that are not on the device. Also streams the previous resident weight, as
 * headroom for the driver. */
static void stream_rest(lz_program *p, int first) {
    struct lz_offload_plan *plan = p->offload;
    int last = first - 1;
    while (last >= 0 && !plan->weights[last].resident) last--;
    for (int i = last < 0 ? first : last; i < plan->n; i++)
        if (i == last || !plan->weights[i].buffer->remote) {
            lz_buffer_evict(plan->weights[i].buffer);
            plan->weights[i].resident = false;
        }
    plan_loads(p);
}

/* Sends the gathered uploads. If that fails, all weights of the program are evicted, since some are incomplete. */
static bool end_uploads(lz_program *p, lz_error *err) {
    struct lz_offload_plan *plan = p->offload;
    if (p->ctx->backend->device->end_writes(p->ctx->device, err)) return true;
    for (int i = 0; i < plan->n; i++) lz_buffer_evict(plan->weights[i].buffer);
    return false;
}

/* Uploads the resident weights as planned. If memory runs out, streams the rest. */
static bool upload_resident(lz_program *p, lz_error *err) {
    struct lz_offload_plan *plan = p->offload;
    for (int i = 0; i < plan->n; i++)
        if (!plan->weights[i].resident) lz_buffer_evict(plan->weights[i].buffer);
    if (plan->ring_bytes && !ensure_ring(p->ctx, plan->ring_bytes, err)) return false;
    lz_error local = {.status = LZ_OK};
    p->ctx->backend->device->gather_writes(p->ctx->device);
    for (int i = 0; i < plan->n && !local.status; i++) {
        if (!plan->weights[i].resident || lz_buffer_upload(plan->weights[i].buffer, &local)) continue;
        if (!plan->ring_bytes || local.status != LZ_OUT_OF_MEMORY) break;
        if (!end_uploads(p, err)) return false;
        local.status = LZ_OK;
        stream_rest(p, i);
    }
    bool sent = end_uploads(p, local.status ? NULL : err);
    if (local.status && err) *err = local;
    return sent && !local.status;
}

/* Bytes of this program's weights that are on the device. They are marked as used by this run, so they are not
 * evicted. */
static int64_t count_present(struct lz_offload_plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->n; i++)
        if ((plan->weights[i].on_device = lz_buffer_use(plan->weights[i].buffer)))
            bytes = add(bytes, plan->weights[i].bytes);
    return bytes;
}

/* Lists the weights: before the first run, and before each run if some are arguments. */
static bool refresh_weights(lz_program *p, const lz_argument *arguments, lz_error *err) {
    bool known = p->offload;
    if (!known && !make_plan_memory(p)) {
        lz_out_of_memory(err, (int64_t)sizeof(struct lz_offload_plan));
        return false;
    }
    bool others = !known || p->offload->borrowed_arguments;
    for (int i = 0; i < p->n_stores && !others; i++)
        others = p->stores[i].argument && input_buffer(p, i, arguments)->borrowed;
    if (others) list_weights(p, arguments);
    p->offload->arguments = arguments;
    return true;
}

/* The device had less memory than it reported: evicts all weights of this program and plans again with 7/8 of what is
 * free. */
static bool replan_smaller(lz_program *p, lz_error *err) {
    lz_context *ctx = p->ctx;
    for (int i = 0; i < p->offload->n; i++) {
        lz_buffer_evict(p->offload->weights[i].buffer);
        p->offload->weights[i].on_device = false;
    }
    lz_buffer_claim(ctx, &ctx->ring);
    lz_buffer_release(ctx->ring);
    ctx->ring = NULL;
    int64_t available = lz_memory_available(ctx);
    return make_plan(p, available - available / 8, true, err) && upload_resident(p, err);
}

bool lz_offload_prepare(lz_program *p, const lz_argument *arguments, lz_error *err) {
    if (!refresh_weights(p, arguments, err)) return false;
    struct lz_offload_plan *plan = p->offload;
    lz_context *ctx = p->ctx;
    plan->next_load = plan->n_loads = 0;
    plan->awaited = -1;
    plan->ring_bytes = 0;
    int64_t present = count_present(plan);
    if (!plan->n ||
        (present == plan->weight_bytes && ctx->offload != LZ_OFFLOAD_STREAM)) { /* all weights are on the device */
        for (int i = 0; i < plan->n; i++) plan->weights[i].resident = true;
        return true;
    }
    lz_error local = {.status = LZ_OK};
    bool fine = make_plan(p, add(lz_memory_available(ctx), present), false, &local) && upload_resident(p, &local);
    if (!fine && local.status == LZ_OUT_OF_MEMORY && ctx->offload == LZ_OFFLOAD_AUTO) fine = replan_smaller(p, &local);
    const lz_device_table *device = ctx->backend->device;
    if (fine && plan->n_loads) /* queued kernels may still use the ring's memory */
        fine = device->mark(ctx->device, LZ_QUEUE_KERNELS, 0, &local) &&
               device->await(ctx->device, LZ_QUEUE_COPIES, 0, &local);
    if (!fine && err) *err = local;
    return fine;
}

/* ---- while it runs ----------------------------------------------------------------------------------------------- */

/* Numbers of the marks in the queues. Mark 0 is set when the run begins. */
static int launched(int step) { return 1 + 2 * step; }
static int arrived(int step) { return 2 + 2 * step; }

bool lz_offload_streams(const lz_program *p) { return p->offload->n_loads; }

static bool send_loads(lz_program *p, int step, lz_error *err) {
    struct lz_offload_plan *plan = p->offload;
    lz_context *ctx = p->ctx;
    const lz_device_table *device = ctx->backend->device;
    int64_t bytes = 0;
    int waits_for = plan->loads[plan->next_load].waits_for;
    bool fine = waits_for <= plan->awaited || device->await(ctx->device, LZ_QUEUE_COPIES, launched(waits_for), err);
    if (fine && waits_for > plan->awaited) plan->awaited = waits_for;
    for (; fine && plan->next_load < plan->n_loads && plan->loads[plan->next_load].step == step; plan->next_load++) {
        const load *l = &plan->loads[plan->next_load];
        weight *w = &plan->weights[l->weight];
        w->ring_offset = l->ring_offset;
        fine = device->send(ctx->device, ctx->ring->remote + l->ring_offset, lz_buffer_bytes(w->buffer), w->bytes, err);
        bytes += w->bytes;
    }
    LZ_LOCK(ctx);
    ctx->memory.streamed = add(ctx->memory.streamed, bytes);
    LZ_UNLOCK(ctx);
    return fine && device->mark(ctx->device, LZ_QUEUE_COPIES, arrived(step), err) &&
           device->await(ctx->device, LZ_QUEUE_KERNELS, arrived(step), err);
}

bool lz_offload_before_step(lz_program *p, int step, lz_error *err) {
    struct lz_offload_plan *plan = p->offload;
    if (!plan->n_loads) return true;
    if (plan->next_load < plan->n_loads && plan->loads[plan->next_load].step == step && !send_loads(p, step, err))
        return false;
    for (int j = 0; j < p->steps[step].call.n_in; j++) {
        int store = p->steps[step].in[j].store, w = plan->of_store[store] - 1;
        if (w < 0 || plan->weights[w].resident) continue;
        p->base[store] = p->ctx->ring->remote + plan->weights[w].ring_offset +
                         lz_store_offset(p, store, plan->arguments);
    }
    return true;
}

bool lz_offload_after_step(lz_program *p, int step, lz_error *err) {
    int ids[LZ_MAX_OPERANDS];
    lz_context *ctx = p->ctx;
    if (!p->offload->n_loads || !weights_of_step(p, step, false, ids)) return true;
    return ctx->backend->device->mark(ctx->device, LZ_QUEUE_KERNELS, launched(step), err);
}

char *lz_offload_address(const lz_program *p, int store) {
    const struct lz_offload_plan *plan = p->offload;
    int w = plan->of_store[store] - 1;
    return w < 0 || !plan->weights[w].resident ? NULL : plan->weights[w].buffer->remote;
}

void lz_offload_end(lz_program *p, bool fine) {
    lz_context *ctx = p->ctx;
    if (!p->offload || !p->offload->ring_bytes) return;
    lz_error ignored;
    if (!fine)
        ctx->backend->device->finish(ctx->device,
                                     &ignored); /* no copy may still write into a ring that can be evicted */
    lz_buffer_set_evictable(ctx, &ctx->ring);
}
