/* plan.c: values to steps. Views become strides and offsets into the store of what they look at, so that only
 * kernels are left. group.c then joins steps into launches, and arena.c gives the stores their places. */
#include <string.h>

#include "graph/graph.h"

/* Where a value lies. */
typedef struct layout {
    int store;      /* -1: not planned yet */
    int64_t offset; /* elements */
    int64_t strides[LZ_MAX_DIMS];
} layout;

typedef struct planner {
    lz_graph *g;
    lz_program *p;
    layout *at;      /* of each value */
    int *dense_copy; /* of each value: 1 + store of a row-major copy made for a reshape */
    int *concat;     /* of each value: 1 + the concat that is its only user, into whose memory it is computed */
    int *part;       /* of such a value: the input of the concat that it is, itself or behind views */
    int64_t *begin;  /* of such a value: where that input begins along the axis */
    int *begun;      /* of each concat: 1 + its store, from the first of its parts on */
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
    store->argument = v->node->placeholder;
    if (!store->argument) {
        store->buffer = lz_buffer_retain(v->node->buffer);
        store->bytes = store->buffer->bytes;
        if (v->node->event && (!v->node->event->done || v->node->event->err.status)) { /* still to come, or never */
            v->node->event->refs++;
            s->p->events[s->p->n_events++] = v->node->event;
        }
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

static double dims_product(lz_dims d, int from, int to) {
    double n = 1;
    for (int i = from; i < to; i++) n *= (double)d.at[i];
    return n;
}

/* Terms of the sum that each element of the output is; 1: it is none. */
static double count_terms(const lz_call *c) {
    const lz_op_info *op = &lz_op_table[c->op];
    if (c->n_core == 0) return 1;
    lz_dims d = c->in[op->sum.input].dims;
    int axes = op->kind == LZ_KIND_REDUCE ? c->params->reduce.count : op->sum.axes, end = d.n - op->sum.after;
    double n = dims_product(d, end - axes, end);
    return c->op == LZ_OP_SDPA && c->params->sdpa.causal ? n / 2 : n;
}

/* Operations, as peers count them; each step of an expression is one. */
static double count_flops(const lz_call *c) {
    double each = lz_op_table[c->op].flops * count_terms(c);
    if (c->expr) each += c->expr->n_steps;
    return dims_product(c->out.dims, 0, c->out.dims.n) * each;
}

/* Every element of every operand once; what is broadcast is read once. */
static double count_bytes(const lz_tensor *t) {
    double n = (double)lz_dtype_size(t->dtype);
    for (int i = 0; i < t->dims.n; i++)
        if (t->strides[i]) n *= (double)t->dims.at[i];
    return n;
}

/* f64 is exact and slow everywhere: it always runs on the reference kernels. */
static bool has_f64(const lz_call *call) {
    bool found = call->out.dtype == LZ_F64;
    for (int i = 0; i < call->n_in; i++) found = found || call->in[i].dtype == LZ_F64;
    return found;
}

static const lz_kernel *able_kernel(const lz_backend *backend, const lz_call *call) {
    const lz_kernel *k = has_f64(call) ? NULL : backend->kernel(call->op);
    return k && k->run && (!k->can || k->can(call)) ? k : NULL;
}

/* What a device cannot do is done on the host: by the CPU's kernel, or by the reference. */
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

/* A store of its own for a value. */
static void new_layout(planner *s, const lz_value *v, layout *out) {
    memset(out, 0, sizeof *out);
    output_strides(v, out->strides);
    out->store = add_store(s, LZ_STORE_ARENA, lz_dims_size(v->dims) * lz_dtype_size(v->dtype));
}

/* One launch: out = op(in...). ids: values of the inputs. */
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
        .in = operands, .scratch = -1, .file = v->node ? v->node->file : NULL, .line = v->node ? v->node->line : 0};
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
        in[i] = tensor_of(&s->g->values[ids[i]], &s->at[ids[i]]);
        operands[i] = operand_of(&s->g->values[ids[i]], &s->at[ids[i]]);
        step->bytes += count_bytes(&in[i]);
        touch(s, s->at[ids[i]].store);
    }
    step->bytes += count_bytes(&step->call.out);
    step->flops = count_flops(&step->call);
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

/* A row-major copy of a value, made once. */
static bool copy_dense(planner *s, int id, layout *out) {
    lz_value copy = {.op = LZ_OP_COPY,
                     .dtype = s->g->values[id].dtype,
                     .dims = s->g->values[id].dims,
                     .in = &id,
                     .n_in = 1,
                     .n_core = 1,
                     .node = s->g->values[id].node};
    memset(&copy.params, 0, sizeof copy.params);
    if (s->dense_copy[id]) {
        memset(out, 0, sizeof *out);
        lz_dense_strides(copy.dims, out->strides);
        out->store = s->dense_copy[id] - 1;
        return true;
    }
    new_layout(s, &copy, out);
    s->dense_copy[id] = out->store + 1;
    return add_step(s, &copy, &id, out);
}

/* A number that is asked for: one element, seen with strides of 0. */
static bool copy_number(planner *s, int id, layout *out) {
    lz_value one = {
        .op = LZ_OP_COPY, .dtype = s->g->values[id].dtype, .dims = LZ_NONE, .in = &id, .n_in = 1, .n_core = 1};
    memset(&one.params, 0, sizeof one.params);
    new_layout(s, &one, out);
    if (!add_step(s, &one, &id, out)) return false;
    ((lz_tensor *)s->p->steps[s->p->n_steps - 1].call.in)->dims = LZ_NONE;
    return true;
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Each sees x through the view v: from where x lies to where v does, with strides of 0 to begin with. false: no strides
 * do that. */
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

static bool see_reshaped(const lz_value *v, const lz_value *x, const layout *from, layout *out) {
    return lz_reshape_strides(x->dims, from->strides, v->dims, out->strides);
}

static const view_rule views[LZ_OP_COUNT] = {
    [LZ_OP_PERMUTE] = see_permuted,
    [LZ_OP_SLICE] = see_slice,
    [LZ_OP_BROADCAST] = see_broadcast,
    [LZ_OP_RESHAPE] = see_reshaped,
};

static bool place_view(planner *s, const lz_value *v, layout *out) {
    int id = v->in[0];
    *out = s->at[id];
    memset(out->strides, 0, sizeof out->strides);
    if (views[v->op](v, &s->g->values[id], &s->at[id], out)) return true;
    if (!copy_dense(s, id, out)) return false; /* a reshape: of a row-major copy it is a view */
    memset(out->strides, 0, sizeof out->strides);
    lz_dense_strides(v->dims, out->strides);
    return true;
}

/* From how a view of a value is to lie to how the value must lie; false: no strides do that. */
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

/* The attention behind a part of a concat, whose heads are only put together there, or -1. */
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

/* What only a concat reads is computed straight into its part of the result; the rest is copied there. */
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
            end += x->dims.at[v->params.at.axis];
            if (is_computed(x) && used_once(x)) behind = part;
            if (behind < 0) continue;
            s->concat[part] = s->concat[behind] = i + 1;
            s->part[behind] = part;
            s->begin[behind] = begin;
        }
    }
}

/* Where the part of a concat lies that begins there along the axis. */
static layout part_layout(planner *s, int concat, int64_t begin) {
    const lz_value *v = &s->g->values[concat];
    layout at;
    if (s->begun[concat]) {
        at = (layout){.store = s->begun[concat] - 1};
        output_strides(v, at.strides);
    } else
        new_layout(s, v, &at);
    s->begun[concat] = at.store + 1;
    at.offset = begin * at.strides[v->params.at.axis];
    return at;
}

static bool place_concat(planner *s, int id) {
    const lz_value *v = &s->g->values[id];
    int64_t begin = 0;
    for (int j = 0; j < v->n_in; j++) {
        int part = v->in[j];
        layout to = part_layout(s, id, begin);
        s->p->concat_visits++;
        begin += s->g->values[part].dims.at[v->params.at.axis];
        if (s->concat[part]) continue; /* is there already */
        lz_value copy = {.op = LZ_OP_COPY,
                         .dtype = v->dtype,
                         .dims = s->g->values[part].dims,
                         .in = &part,
                         .n_in = 1,
                         .n_core = 1,
                         .node = v->node};
        memset(&copy.params, 0, sizeof copy.params);
        if (!add_step(s, &copy, &part, &to)) return false;
    }
    s->at[id] = part_layout(s, id, 0);
    return true;
}

static bool place_kernel(planner *s, int id) {
    const lz_value *v = &s->g->values[id];
    int concat = s->concat[id] - 1;
    if (concat >= 0) {
        s->at[id] = part_layout(s, concat, s->begin[id]);
        for (int part = s->part[id]; part != id; part = s->g->values[part].in[0])
            undo_view(&s->g->values[part], &s->g->values[s->g->values[part].in[0]], s->at[id].strides);
    } else
        new_layout(s, v, &s->at[id]);
    return add_step(s, v, v->in, &s->at[id]);
}

static bool place_value(planner *s, int id) {
    lz_value *v = &s->g->values[id];
    layout *out = &s->at[id];
    if (v->op == LZ_OP_LEAF) {
        *out = (layout){.store = leaf_store(s, v), .offset = v->node->placeholder ? 0 : v->node->offset};
        memcpy(out->strides, v->node->strides, sizeof out->strides);
        return true;
    }
    if (v->op == LZ_OP_FULL) {
        *out = (layout){.store = const_store(s, v)};
        return true;
    }
    if (lz_op_table[v->op].kind == LZ_KIND_VIEW) return place_view(s, v, out);
    if (v->op == LZ_OP_COPY && lz_is_dense(v->dims, s->at[v->in[0]].strides)) { /* is row-major already */
        *out = s->at[v->in[0]];
        return true;
    }
    if (v->op == LZ_OP_CONCAT) return place_concat(s, id);
    return place_kernel(s, id);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static bool place_results(planner *s, bool own_outputs) {
    lz_program *p = s->p;
    lz_graph *g = s->g;
    for (int i = 0; i < g->n_outputs; i++) {
        int id = g->outputs[i];
        layout at = s->at[id];
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
            .at = operand_of(&g->values[id], &at), .dtype = g->values[id].dtype, .dims = g->values[id].dims};
        memcpy(r->strides, at.strides, sizeof r->strides);
    }
    p->n_results = g->n_outputs;
    return true;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

bool lz_plan_steps(lz_program *p, lz_graph *g, bool own_outputs) {
    if (g->ctx->device) g->ctx->backend->device->enter(g->ctx->device); /* kernels may ask it how much they need */
    planner s = {.g = g, .p = p};
    size_t n = (size_t)g->n + (size_t)g->n_outputs + 1;
    for (int i = 0; i < g->n; i++)
        n += g->values[i].op == LZ_OP_CONCAT ? (size_t)g->values[i].n_in : 0; /* a copy for each part */
    s.at = lz_bump_alloc(&g->memory, n * sizeof *s.at);
    s.dense_copy = lz_bump_alloc(&g->memory, n * sizeof *s.dense_copy);
    s.concat = lz_bump_alloc(&g->memory, n * sizeof *s.concat);
    s.part = lz_bump_alloc(&g->memory, n * sizeof *s.part);
    s.begin = lz_bump_alloc(&g->memory, n * sizeof *s.begin);
    s.begun = lz_bump_alloc(&g->memory, n * sizeof *s.begun);
    p->stores = lz_bump_alloc(&p->memory, 4 * n * sizeof *p->stores); /* result, dense copy, scratch of both */
    p->steps = lz_bump_alloc(&p->memory, 2 * n * sizeof *p->steps);
    p->events = lz_bump_alloc(&p->memory, n * sizeof *p->events);
    p->results = lz_bump_alloc(&p->memory, n * sizeof *p->results);
    p->output_bytes = lz_bump_alloc(&p->memory, n * sizeof *p->output_bytes);
    if (!s.at || !s.dense_copy || !s.concat || !s.part || !s.begin || !s.begun || !p->stores || !p->steps ||
        !p->events || !p->results || !p->output_bytes)
        return false;
    find_parts(&s);
    int *order = lz_order_values(g);
    for (int i = 0; i < g->n; i++)
        if (!order || (g->values[order[i]].uses && !place_value(&s, order[i]))) return false;
    if (!place_results(&s, own_outputs) || !lz_plan_groups(p) || !lz_plan_arena(p)) return false;
    p->base = lz_bump_alloc(&p->memory, (size_t)(p->n_stores + 1) * sizeof *p->base);
    if (!p->base) return false;
    p->info.arena_bytes = p->arena_bytes;
    for (int i = 0; i < p->n_stores; i++) {
        const lz_store *store = &p->stores[i];
        if (store->kind != LZ_STORE_INPUT) continue;
        p->info.input_bytes += store->bytes;
        /* On the host, weights that must be made take memory too. */
        if (!p->ctx->device && store->buffer && store->buffer->make && store->last >= 0 && !store->buffer->data)
            p->info.arena_bytes += store->bytes;
    }
    p->info.nodes = g->nodes;
    return true;
}
