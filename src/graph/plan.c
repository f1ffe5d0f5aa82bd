/* plan.c: values to steps. A view becomes strides and an offset into the store of its input, so that only kernels are
 * left. group.c then joins steps into groups, and arena.c gives the stores their offsets. */
#include <string.h>

#include "graph/graph.h"

/* Store, offset and strides of a value. */
typedef struct layout {
    int store;      /* -1: not planned yet */
    int64_t offset; /* elements */
    int64_t strides[LZ_MAX_DIMS];
} layout;

typedef struct planner {
    lz_graph *g;
    lz_program *p;
    layout *layouts; /* of each value */
    int *dense_copy; /* of each value: 1 + store of a row-major copy made for a reshape */
    int *concat; /* of each value: 1 + the concat that is its only user and into whose store it is computed; 0: none */
    int *part;   /* of such a value: the input of that concat, which is the value itself or a chain of views of it */
    int64_t *begin; /* of such a value: index along the axis at which that input begins */
    int *begun;     /* of each concat: 1 + its store; 0: none of its parts is planned yet */
    bool *follows;  /* of each value: its axes are stored in the order of input 0 (find_followers) */
} planner;

/* ---- stores ------------------------------------------------------------------------------------------------------ */

static int add_store(planner *s, lz_store_kind kind, int64_t bytes) {
    lz_program *p = s->p;
    p->stores[p->n_stores] = (lz_store){.kind = kind, .bytes = bytes, .first = p->n_steps, .last = -1, .same_as = -1};
    return p->n_stores++;
}

static int leaf_store(planner *s, const lz_value *v) {
    int id = add_store(s, LZ_STORE_INPUT, 0);
    lz_store *store = &s->p->stores[id];
    const lz_node_facts *from = v->from;
    store->argument = from->placeholder;
    if (store->argument) return id;
    store->buffer = lz_buffer_retain(from->buffer);
    store->bytes = store->buffer->bytes;
    if (from->event) {
        LZ_LOCK(s->p->ctx);
        from->event->refs++;
        LZ_UNLOCK(s->p->ctx);
        s->p->events[s->p->n_events++] = from->event;
    }
    return id;
}

static int const_store(planner *s, const lz_value *v) {
    int id = add_store(s, LZ_STORE_CONST, 0);
    lz_tensor out = {.data = s->p->stores[id].constant, .dtype = v->dtype};
    lz_ref_backend()->kernel(LZ_OP_FULL)->run(&(lz_call){.op = LZ_OP_FULL, .params = &v->params, .out = out});
    return id;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Calls with f64 always run on the reference kernels: no backend has fast ones. */
static bool has_f64(const lz_call *call) {
    bool found = call->out.dtype == LZ_F64;
    for (int i = 0; i < call->n_in; i++) found = found || call->in[i].dtype == LZ_F64;
    return found;
}

static const lz_kernel *able_kernel(const lz_backend *backend, const lz_call *call) {
    const lz_kernel *k = has_f64(call) ? NULL : backend->kernel(call->op);
    return k && k->run && (!k->can || k->can(call)) ? k : NULL;
}

/* The kernel of the context's backend. If a device has none for the call, the CPU's kernel or the reference kernel runs
 * on the host. */
static const lz_kernel *pick_kernel(const lz_context *ctx, const lz_call *call, bool *on_host) {
    const lz_kernel *k = able_kernel(ctx->backend, call);
    *on_host = ctx->device && !k;
    if (*on_host) k = able_kernel(lz_cpu_backend(NULL, NULL), call);
    return k ? k : lz_ref_backend()->kernel(call->op);
}

static lz_tensor tensor_of(const lz_value *v, const layout *l) {
    lz_tensor t = {.dtype = v->dtype, .dims = v->dims};
    memcpy(t.strides, l->strides, sizeof t.strides);
    return t;
}

static lz_operand operand_of(const lz_value *v, const layout *l) {
    return (lz_operand){l->store, l->offset * lz_dtype_size(v->dtype)};
}

static void output_strides(const lz_value *v, int64_t strides[LZ_MAX_DIMS]) {
    lz_dense_strides(v->dims, strides);
    if (!lz_op_table[v->op].heads_inside) return;
    int64_t h = v->dims.at[1], n = v->dims.at[2], d = v->dims.at[3];
    strides[0] = n * h * d;
    strides[1] = d;
    strides[2] = h * d;
}

static void touch(planner *s, int store) {
    if (store >= 0) s->p->stores[store].last = s->p->n_steps;
}

/* Gives a value a new store. like: strides in whose order the axes are stored; NULL: the usual order of the op. */
static void new_layout(planner *s, const lz_value *v, const int64_t *like, layout *out) {
    memset(out, 0, sizeof *out);
    if (like)
        lz_ordered_strides(v->dims, like, out->strides);
    else
        output_strides(v, out->strides);
    const lz_op_info *op = &lz_op_table[v->op];
    int64_t size = lz_dims_size(v->dims), unit = lz_dtype_size(v->dtype), beside = 0;
    if (op->beside || op->scales) beside = lz_beside(v->dims, v->dtype);
    int64_t bytes = (beside + size) * unit;
    lz_dims rows = v->dims;
    rows.n -= op->scales;
    if (op->scales) bytes = beside * unit + lz_dims_size(rows) * (int64_t)sizeof(float);
    out->store = add_store(s, LZ_STORE_ARENA, bytes);
}

/* Adds the step out = op(in...). ids: indices of the input values. */
static bool add_step(planner *s, const lz_value *v, const int *ids, const layout *out) {
    lz_program *p = s->p;
    if (lz_dims_size(v->dims) == 0) return true; /* nothing to compute */

    lz_tensor *in = lz_bump_alloc(&p->memory, (size_t)(v->n_in + 1) * sizeof *in);
    lz_operand *operands = lz_bump_alloc(&p->memory, (size_t)(v->n_in + 1) * sizeof *operands);
    lz_params *params = lz_bump_alloc(&p->memory, sizeof *params);
    lz_expr *expr = v->expr ? lz_bump_alloc(&p->memory, sizeof *expr) : NULL;
    if (!in || !operands || !params || (v->expr && !expr)) return false;
    *params = v->params;
    if (expr) *expr = *v->expr;

    lz_step *step = &p->steps[p->n_steps];
    *step = (lz_step){
        .in = operands, .scratch = -1, .file = v->from ? v->from->file : NULL, .line = v->from ? v->from->line : 0};
    step->out = operand_of(v, out);
    step->call = (lz_call){.op = v->op,
                           .params = params,
                           .expr = expr,
                           .in = in,
                           .n_in = v->n_in,
                           .n_core = v->n_core,
                           .pool = p->ctx->base.pool,
                           .device = p->ctx->device};
    step->call.out = tensor_of(v, out);
    for (int i = 0; i < v->n_in; i++) {
        in[i] = tensor_of(&s->g->values[ids[i]], &s->layouts[ids[i]]);
        operands[i] = operand_of(&s->g->values[ids[i]], &s->layouts[ids[i]]);
        touch(s, s->layouts[ids[i]].store);
    }
    lz_step_cost(step);
    step->kernel = pick_kernel(p->ctx, &step->call, &step->on_host);
    int64_t scratch = step->kernel->scratch ? step->kernel->scratch(&step->call) : 0;
    if (scratch) {
        step->scratch = add_store(s, LZ_STORE_ARENA, scratch);
        touch(s, step->scratch);
    }
    touch(s, out->store);
    p->info.flops += step->flops;
    p->info.bytes += step->bytes;
    p->n_steps++;
    return true;
}

/* A row-major copy of a value; the second call for a value gives the same copy. */
static bool copy_dense(planner *s, int id, layout *out) {
    lz_value copy = {.op = LZ_OP_COPY,
                     .dtype = s->g->values[id].dtype,
                     .dims = s->g->values[id].dims,
                     .in = &id,
                     .n_in = 1,
                     .n_core = 1,
                     .from = s->g->values[id].from};
    memset(&copy.params, 0, sizeof copy.params);
    if (s->dense_copy[id]) {
        memset(out, 0, sizeof *out);
        lz_dense_strides(copy.dims, out->strides);
        out->store = s->dense_copy[id] - 1;
        return true;
    }
    new_layout(s, &copy, NULL, out);
    s->dense_copy[id] = out->store + 1;
    return add_step(s, &copy, &id, out);
}

/* A constant that is an output: one element, read with strides of 0. */
static bool copy_number(planner *s, int id, layout *out) {
    lz_value one = {
        .op = LZ_OP_COPY, .dtype = s->g->values[id].dtype, .dims = LZ_NONE, .in = &id, .n_in = 1, .n_core = 1};
    memset(&one.params, 0, sizeof one.params);
    new_layout(s, &one, NULL, out);
    if (!add_step(s, &one, &id, out)) return false;
    ((lz_tensor *)s->p->steps[s->p->n_steps - 1].call.in)->dims = LZ_NONE;
    return true;
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Computes the layout of v, a view of x, from the layout of x. out has the store and offset of x, and strides of 0.
 * false: no strides can express the view. */
typedef bool (*view_rule)(const lz_value *v, const lz_value *x, const layout *from, layout *out);

static bool see_permuted(const lz_value *v, const lz_value *x, const layout *from, layout *out) {
    (void)x;
    for (int i = 0; i < v->dims.n; i++) out->strides[i] = from->strides[v->params.permute.axes.at[i]];
    return true;
}

static bool see_slice(const lz_value *v, const lz_value *x, const layout *from, layout *out) {
    (void)x;
    memcpy(out->strides, from->strides, sizeof out->strides);
    out->offset += v->params.slice.start * from->strides[v->params.slice.axis];
    out->strides[v->params.slice.axis] *= v->params.slice.step;
    return true;
}

static bool see_broadcast(const lz_value *v, const lz_value *x, const layout *from, layout *out) {
    for (int i = 0, skip = v->dims.n - x->dims.n; i < x->dims.n; i++)
        if (x->dims.at[i] == v->dims.at[i + skip]) out->strides[i + skip] = from->strides[i];
    return true;
}

/* The second result of a kernel, which is stored after the first. */
static bool see_beside(const lz_value *v, const lz_value *x, const layout *from, layout *out) {
    (void)v;
    memcpy(out->strides, from->strides, sizeof out->strides);
    out->offset += lz_beside(x->dims, x->dtype);
    return true;
}

/* The scales of a kernel's rows, which are stored after the rows. */
static bool see_scales(const lz_value *v, const lz_value *x, const layout *from, layout *out) {
    int64_t bytes = (from->offset + lz_beside(x->dims, x->dtype)) * lz_dtype_size(x->dtype);
    lz_dense_strides(v->dims, out->strides);
    out->offset = bytes / lz_dtype_size(v->dtype);
    return true;
}

static bool see_reshaped(const lz_value *v, const lz_value *x, const layout *from, layout *out) {
    return lz_reshape_strides(x->dims, from->strides, v->dims, out->strides);
}

static const view_rule views[LZ_OP_COUNT] = {
    [LZ_OP_PERMUTE] = see_permuted, [LZ_OP_SLICE] = see_slice,   [LZ_OP_BROADCAST] = see_broadcast,
    [LZ_OP_RESHAPE] = see_reshaped, [LZ_OP_BESIDE] = see_beside, [LZ_OP_SCALES] = see_scales,
};

static bool plan_view(planner *s, const lz_value *v, layout *out) {
    int id = v->in[0];
    *out = s->layouts[id];
    memset(out->strides, 0, sizeof out->strides);
    if (views[v->op](v, &s->g->values[id], &s->layouts[id], out)) return true;
    if (!copy_dense(s, id, out)) return false; /* a reshape that needs a copy: it is a view of a row-major copy */
    memset(out->strides, 0, sizeof out->strides);
    lz_dense_strides(v->dims, out->strides);
    return true;
}

/* Replaces the strides that a view of x must have by the strides that x must have; false: no strides can express it. */
static bool undo_view(const lz_value *view, const lz_value *x, int64_t strides[LZ_MAX_DIMS]) {
    int64_t seen[LZ_MAX_DIMS];
    memcpy(seen, strides, sizeof seen);
    if (view->op == LZ_OP_RESHAPE) return lz_reshape_strides(view->dims, seen, x->dims, strides);
    if (view->op != LZ_OP_PERMUTE) return false;
    for (int i = 0; i < view->dims.n; i++) strides[view->params.permute.axes.at[i]] = seen[i];
    return true;
}

/* ---- concat ------------------------------------------------------------------------------------------------------ */

static bool used_once(const lz_value *v) { return v->uses == 1 && !v->output; }

/* The attention value that, through views that only merge its heads, is an input of a concat; -1: none. */
static int attention_behind(const planner *s, const lz_value *concat, int part) {
    int64_t strides[LZ_MAX_DIMS];
    output_strides(concat, strides);
    const lz_value *v = &s->g->values[part];
    while (lz_op_table[v->op].kind == LZ_KIND_VIEW && used_once(v)) {
        if (!undo_view(v, &s->g->values[v->in[0]], strides)) return -1;
        part = v->in[0];
        v = &s->g->values[part];
    }
    return lz_op_table[v->op].heads_inside && used_once(v) && strides[3] == 1 ? part : -1;
}

static bool is_computed(const lz_value *v) {
    const lz_op_info *op = &lz_op_table[v->op];
    bool has_kernel = op->kind == LZ_KIND_ELEMENT || op->kind == LZ_KIND_REDUCE || op->kind == LZ_KIND_KERNEL;
    return has_kernel && !op->moves;
}

/* Finds the values that can be computed directly into their part of a concat's store: those that only the concat reads.
 * The other inputs are copied there. */
static void find_parts(planner *s) {
    for (int i = 0; i < s->g->n; i++) {
        const lz_value *v = &s->g->values[i];
        if (v->op != LZ_OP_CONCAT || !v->uses) continue;
        int64_t end = 0;
        for (int j = 0; j < v->n_in; j++) {
            int part = v->in[j], behind = attention_behind(s, v, part);
            const lz_value *x = &s->g->values[part];
            int64_t begin = end;
            s->p->concat_visits++;
            end += x->dims.at[v->params.along.axis];
            if (is_computed(x) && used_once(x)) behind = part;
            if (behind < 0) continue;
            s->concat[part] = s->concat[behind] = i + 1;
            s->part[behind] = part;
            s->begin[behind] = begin;
        }
    }
}

/* The layout of the part of a concat that begins at index `begin` along the axis. like: see new_layout; only of the
 * part that is planned first. */
static layout part_layout(planner *s, int concat, int64_t begin, const int64_t *like) {
    const lz_value *v = &s->g->values[concat];
    if (!s->begun[concat]) new_layout(s, v, like, &s->layouts[concat]);
    layout at = s->layouts[concat];
    s->begun[concat] = at.store + 1;
    at.offset = begin * at.strides[v->params.along.axis];
    return at;
}

static bool plan_concat(planner *s, int id) {
    const lz_value *v = &s->g->values[id];
    int64_t begin = 0;
    for (int j = 0; j < v->n_in; j++) {
        int part = v->in[j];
        layout to = part_layout(s, id, begin, NULL);
        s->p->concat_visits++;
        begin += s->g->values[part].dims.at[v->params.along.axis];
        if (s->concat[part]) continue; /* was computed there */
        lz_value copy = {.op = LZ_OP_COPY,
                         .dtype = v->dtype,
                         .dims = s->g->values[part].dims,
                         .in = &part,
                         .n_in = 1,
                         .n_core = 1,
                         .from = v->from};
        memset(&copy.params, 0, sizeof copy.params);
        if (!add_step(s, &copy, &part, &to)) return false;
    }
    return true;
}

/* ---- the order of axes ------------------------------------------------------------------------------------------- */

static bool can_follow(const lz_value *v) {
    return lz_op_table[v->op].in_place && lz_op_table[v->op].kind == LZ_KIND_KERNEL && used_once(v);
}

/* Finds the values that only one op with `any_strides` reads, such as the queries and keys of an attention, and whose
 * kernel reads an input of the same shape. If the axes are stored in the order of that input, the kernel reads and
 * writes the same places, mostly in place. A concat follows the input of its first such part. */
static void find_followers(planner *s) {
    const lz_value *all = s->g->values;
    for (int i = 0; i < s->g->n; i++)
        for (int j = 0; all[i].uses && lz_op_table[all[i].op].any_strides && j < all[i].n_in; j++) {
            const lz_value *v = &all[all[i].in[j]];
            bool follows = can_follow(v), concat = v->op == LZ_OP_CONCAT && used_once(v);
            for (int k = 0; concat && k < v->n_in; k++) {
                follows = follows || can_follow(&all[v->in[k]]);
                concat = !s->concat[v->in[k]] || can_follow(&all[v->in[k]]);
            }
            s->follows[all[i].in[j]] = follows && (concat || v->op != LZ_OP_CONCAT);
        }
}

/* The strides of input 0 if a value follows it, or NULL. The last axis must be contiguous there. */
static const int64_t *followed_strides(const planner *s, int id) {
    int stored = s->concat[id] ? s->concat[id] - 1 : id;
    const lz_value *v = &s->g->values[id];
    if (!s->follows[stored] || !can_follow(v)) return NULL;
    const int64_t *strides = s->layouts[v->in[0]].strides;
    bool fine = strides[v->dims.n - 1] == 1;
    for (int i = 0; i < v->dims.n; i++) fine = fine && (v->dims.at[i] == 1 || strides[i] > 0);
    return fine ? strides : NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool plan_kernel(planner *s, int id) {
    const lz_value *v = &s->g->values[id];
    const int64_t *like = followed_strides(s, id);
    int concat = s->concat[id] - 1;
    if (concat >= 0) {
        s->layouts[id] = part_layout(s, concat, s->begin[id], like);
        for (int part = s->part[id]; part != id; part = s->g->values[part].in[0])
            undo_view(&s->g->values[part], &s->g->values[s->g->values[part].in[0]], s->layouts[id].strides);
    } else
        new_layout(s, v, like, &s->layouts[id]);
    return add_step(s, v, v->in, &s->layouts[id]);
}

static bool plan_value(planner *s, int id) {
    lz_value *v = &s->g->values[id];
    layout *out = &s->layouts[id];
    if (v->op == LZ_OP_LEAF) {
        *out = (layout){.store = leaf_store(s, v), .offset = v->from->placeholder ? 0 : v->from->offset};
        memcpy(out->strides, v->from->strides, sizeof out->strides);
        return true;
    }
    if (v->op == LZ_OP_FULL) {
        *out = (layout){.store = const_store(s, v)};
        return true;
    }
    if (lz_op_table[v->op].kind == LZ_KIND_VIEW) return plan_view(s, v, out);
    if (v->op == LZ_OP_COPY && lz_is_dense(v->dims, s->layouts[v->in[0]].strides)) { /* already row-major */
        *out = s->layouts[v->in[0]];
        return true;
    }
    if (v->op == LZ_OP_CONCAT) return plan_concat(s, id);
    return plan_kernel(s, id);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static bool plan_results(planner *s, bool own_outputs) {
    lz_program *p = s->p;
    lz_graph *g = s->g;
    for (int i = 0; i < g->n_outputs; i++) {
        int id = g->outputs[i];
        layout at = s->layouts[id];
        lz_store_kind kind = p->stores[at.store].kind;
        if (kind == LZ_STORE_CONST && !copy_number(s, id, &at)) return false;
        if (kind == LZ_STORE_INPUT && own_outputs && !copy_dense(s, id, &at)) return false;
        lz_store *store = &p->stores[at.store];
        if (store->kind == LZ_STORE_ARENA) {
            store->kind = LZ_STORE_OUTPUT;
            store->output = p->n_outputs;
            p->output_bytes[p->n_outputs++] = store->bytes;
            p->info.output_bytes += store->bytes;
        }
        lz_result *r = &p->results[i];
        *r = (lz_result){
            .operand = operand_of(&g->values[id], &at), .dtype = g->values[id].dtype, .dims = g->values[id].dims};
        memcpy(r->strides, at.strides, sizeof r->strides);
    }
    p->n_results = g->n_outputs;
    return true;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* Adds up the bytes of the inputs. Several inputs may be parts of one buffer, which is counted once. */
static void count_inputs(lz_program *p) {
    LZ_LOCK(p->ctx); /* for buffer->data and list_index */
    for (int i = 0; i < p->n_stores; i++) {
        const lz_store *store = &p->stores[i];
        if (store->kind != LZ_STORE_INPUT || (store->buffer && store->buffer->list_index)) continue;
        p->info.input_bytes += store->bytes;
        if (!store->buffer) continue;
        store->buffer->list_index = 1;
        /* On the host, the bytes of made inputs take memory while the program runs. */
        if (!p->ctx->device && store->buffer->make && store->last >= 0 && !store->buffer->data)
            p->info.arena_bytes += store->bytes;
    }
    for (int i = 0; i < p->n_stores; i++)
        if (p->stores[i].kind == LZ_STORE_INPUT && p->stores[i].buffer) p->stores[i].buffer->list_index = 0;
    LZ_UNLOCK(p->ctx);
}

bool lz_plan_steps(lz_program *p, lz_graph *g, bool own_outputs) {
    if (g->ctx->device)
        g->ctx->backend->device->enter(g->ctx->device); /* the scratch functions of kernels may call the device */
    planner s = {.g = g, .p = p};
    size_t n = (size_t)g->n + (size_t)g->n_outputs + 1;
    for (int i = 0; i < g->n; i++)
        n += g->values[i].op == LZ_OP_CONCAT ? (size_t)g->values[i].n_in : 0; /* one copy for each input */
    s.layouts = lz_bump_alloc(&g->memory, n * sizeof *s.layouts);
    s.dense_copy = lz_bump_alloc(&g->memory, n * sizeof *s.dense_copy);
    s.concat = lz_bump_alloc(&g->memory, n * sizeof *s.concat);
    s.part = lz_bump_alloc(&g->memory, n * sizeof *s.part);
    s.begin = lz_bump_alloc(&g->memory, n * sizeof *s.begin);
    s.begun = lz_bump_alloc(&g->memory, n * sizeof *s.begun);
    s.follows = lz_bump_alloc(&g->memory, n * sizeof *s.follows);
    p->stores = lz_bump_alloc(&p->memory,
                              4 * n * sizeof *p->stores); /* for each value: result, dense copy, and scratch of both */
    p->steps = lz_bump_alloc(&p->memory, 2 * n * sizeof *p->steps);
    p->events = lz_bump_alloc(&p->memory, n * sizeof *p->events);
    p->results = lz_bump_alloc(&p->memory, n * sizeof *p->results);
    p->output_bytes = lz_bump_alloc(&p->memory, n * sizeof *p->output_bytes);
    if (!s.layouts || !s.dense_copy || !s.concat || !s.part || !s.begin || !s.begun || !s.follows || !p->stores ||
        !p->steps || !p->events || !p->results || !p->output_bytes)
        return false;
    find_parts(&s);
    find_followers(&s);
    int *order = lz_order_values(g);
    for (int i = 0; i < g->n; i++)
        if (!order || (g->values[order[i]].uses && !plan_value(&s, order[i]))) return false;
    if (!plan_results(&s, own_outputs) || !lz_plan_groups(p) || !lz_plan_arena(p)) return false;
    p->base = lz_bump_alloc(&p->memory, (size_t)(p->n_stores + 1) * sizeof *p->base);
    if (!p->base) return false;
    p->info.arena_bytes = p->arena_bytes;
    count_inputs(p);
    p->info.nodes = g->n_met;
    return true;
}
