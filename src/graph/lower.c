/* lower.c: nodes to values. Every node that an output needs is visited once, inputs before users, and copied; only this is
 * done under base.lock. Then the copies become values: a no-op is replaced by its input, an op over constants alone by a
 * constant (FULL), and a value that equals an earlier one by that value. */
#include <math.h>
#include <string.h>

#include "graph/graph.h"
#include "op/packing.h"

/* ---- growing arrays ---------------------------------------------------------------------------------------------- */

static bool grow(lz_bump *memory, void **data, int *capacity, int need, size_t size) {
    if (need <= *capacity) return true;
    int larger = *capacity < 128 ? 256 : *capacity * 2;
    void *copy = lz_bump_alloc(memory, (size_t)larger * size);
    if (!copy) return false;
    if (*capacity > 0) memcpy(copy, *data, (size_t)*capacity * size);
    *data = copy;
    *capacity = larger;
    return true;
}

/* ---- merging equal values ---------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_value(const lz_value *v) {
    uint64_t h = 0xcbf29ce484222325u;
    h = mix(h, &v->op, sizeof v->op);
    h = mix(h, &v->dtype, sizeof v->dtype);
    h = mix(h, v->dims.at, (size_t)v->dims.n * sizeof v->dims.at[0]);
    h = mix(h, &v->params, sizeof v->params);
    h = mix(h, v->in, (size_t)v->n_in * sizeof v->in[0]);
    if (v->op == LZ_OP_LEAF) h = mix(h, &v->from, sizeof v->from);
    return h ^ h >> 29;
}

static bool same_value(const lz_value *a, const lz_value *b) {
    return a->op == b->op && a->dtype == b->dtype && lz_dims_equal(a->dims, b->dims) && a->n_in == b->n_in &&
           (a->n_in == 0 || memcmp(a->in, b->in, (size_t)a->n_in * sizeof a->in[0]) == 0) &&
           memcmp(&a->params, &b->params, sizeof a->params) == 0 && (a->op != LZ_OP_LEAF || a->from == b->from);
}

static bool grow_slots(lz_graph *g) {
    if (g->n_slots >= 2 * (g->n + 1)) return true;
    int n = g->n_slots ? g->n_slots * 4 : 1024;
    int *slots = lz_bump_alloc(&g->memory, (size_t)n * sizeof *slots);
    if (!slots) return false;
    for (int i = 0; i < g->n; i++) {
        uint64_t at = hash_value(&g->values[i]) & (uint64_t)(n - 1);
        while (slots[at]) at = (at + 1) & (uint64_t)(n - 1);
        slots[at] = i + 1;
    }
    g->slots = slots;
    g->n_slots = n;
    return true;
}

/* The index of the value: a new one, or that of an equal value. -1: out of memory. */
static int add_value(lz_graph *g, const lz_value *v) {
    if (!grow_slots(g) || !grow(&g->memory, (void **)&g->values, &g->capacity, g->n + 1, sizeof *g->values)) return -1;
    uint64_t at = hash_value(v) & (uint64_t)(g->n_slots - 1);
    for (; g->slots[at]; at = (at + 1) & (uint64_t)(g->n_slots - 1))
        if (same_value(&g->values[g->slots[at] - 1], v)) return g->slots[at] - 1;
    lz_value *new = &g->values[g->n];
    *new = *v;
    new->in = NULL;
    if (v->n_in) {
        new->in = lz_bump_alloc(&g->memory, (size_t)v->n_in * sizeof *new->in);
        if (!new->in) return -1;
        memcpy(new->in, v->in, (size_t)v->n_in * sizeof *new->in);
    }
    g->slots[at] = g->n + 1;
    return g->n++;
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

static bool is_full(const lz_graph *g, int id, double value) {
    const lz_value *v = &g->values[id];
    return v->op == LZ_OP_FULL && v->params.full.value == value && !(value == 0 && signbit(v->params.full.value));
}

/* value rounded to dtype. */
static double rounded(lz_dtype dtype, double value) {
    int64_t cells = 0;
    double result = value;
    lz_tensor one = {.data = (char *)&cells, .dtype = dtype}, wide = {.data = (char *)&result, .dtype = LZ_F64};
    const lz_params full = {.full.value = value}, none = {.full.value = 0};
    lz_ref_backend()->kernel(LZ_OP_FULL)->run(&(lz_call){.op = LZ_OP_FULL, .params = &full, .out = one});
    lz_ref_backend()
        ->kernel(LZ_OP_CAST)
        ->run(&(lz_call){.op = LZ_OP_CAST, .params = &none, .in = &one, .n_in = 1, .n_core = 1, .out = wide});
    return result;
}

/* Runs the reference kernel of an elementwise op over constants. false: not folded (an i64 that a double cannot
 * represent). */
static bool fold_numbers(const lz_graph *g, const lz_value *v, double *result) {
    lz_tensor in[3];
    int64_t cells[4] = {0};
    for (int i = 0; i < v->n_in; i++) {
        const lz_value *x = &g->values[v->in[i]];
        in[i] = (lz_tensor){.data = (char *)&cells[i], .dtype = x->dtype};
        lz_call make = {.op = LZ_OP_FULL, .params = &x->params, .out = in[i]};
        if (!lz_ref_backend()->kernel(LZ_OP_FULL)->run(&make)) return false;
    }
    lz_tensor out = {.data = (char *)&cells[3], .dtype = v->dtype};
    lz_call compute = {.op = v->op, .params = &v->params, .in = in, .n_in = v->n_in, .n_core = v->n_in, .out = out};
    if (!lz_ref_backend()->kernel(v->op)->run(&compute)) return false;
    lz_tensor wide = {.data = (char *)result, .dtype = LZ_F64};
    lz_call read = {.op = LZ_OP_CAST, .params = &v->params, .in = &out, .n_in = 1, .n_core = 1, .out = wide};
    return lz_ref_backend()->kernel(LZ_OP_CAST)->run(&read) && !(v->dtype == LZ_I64 && fabs(*result) >= 0x1p53);
}

static int emit(lz_graph *g, lz_value *v);

static int emit_full(lz_graph *g, const lz_value *like, double value) {
    lz_value full = {.op = LZ_OP_FULL, .dtype = like->dtype, .dims = like->dims, .from = like->from};
    memset(&full.params, 0, sizeof full.params);
    full.params.full.value = value;
    return add_value(g, &full);
}

static int emit_view(lz_graph *g, lz_op op, int of, lz_dims dims, const lz_params *params, const lz_node_facts *from) {
    lz_value v = {
        .op = op, .dtype = g->values[of].dtype, .dims = dims, .in = &of, .n_in = 1, .n_core = 1, .from = from};
    if (params)
        v.params = *params;
    else
        memset(&v.params, 0, sizeof v.params);
    return emit(g, &v);
}

/* A view of a constant is a constant; a view that changes nothing is its input; two views of one kind are joined. */
static int emit_simple_view(lz_graph *g, lz_value *v) {
    lz_value *x = &g->values[v->in[0]];
    if (x->op == LZ_OP_FULL) return emit_full(g, v, x->params.full.value);
    if (v->op != LZ_OP_PERMUTE && v->op != LZ_OP_SLICE && lz_dims_equal(v->dims, x->dims)) return v->in[0];
    if (v->op == LZ_OP_PERMUTE && x->op == LZ_OP_PERMUTE) {
        bool identity = true;
        for (int i = 0; i < v->dims.n; i++) {
            v->params.permute.axes.at[i] = x->params.permute.axes.at[v->params.permute.axes.at[i]];
            identity = identity && v->params.permute.axes.at[i] == i;
        }
        if (identity) return x->in[0];
        v->in[0] = x->in[0];
    } else if (v->op == x->op && (v->op == LZ_OP_RESHAPE || v->op == LZ_OP_BROADCAST))
        v->in[0] = x->in[0];
    return add_value(g, v);
}

/* The operand broadcast(1 + scale) becomes 1 + broadcast(scale), which can be fused into the chain that reads it. */
static int through_broadcast(lz_graph *g, int id) {
    lz_value view = g->values[id];
    if (view.op != LZ_OP_BROADCAST) return id;
    lz_value inner = g->values[view.in[0]];
    bool cheap = lz_op_table[inner.op].cheap;
    for (int i = 0; i < inner.n_in; i++) { /* only types that can be in an expression */
        lz_dtype t = g->values[inner.in[i]].dtype;
        cheap = cheap && t != LZ_F64 && (inner.op == LZ_OP_CAST || (t >= LZ_F16 && t <= LZ_F32));
    }
    if (!cheap || inner.dtype < LZ_F16 || inner.dtype > LZ_F32) return id;
    int in[3], arrays = 0;
    for (int i = 0; i < inner.n_in; i++) arrays += g->values[inner.in[i]].op != LZ_OP_FULL;
    if (arrays != 1) return id;
    for (int i = 0; i < inner.n_in; i++) {
        in[i] = emit_view(g, LZ_OP_BROADCAST, inner.in[i], view.dims, NULL, view.from);
        if (in[i] < 0) return -1;
    }
    inner.in = in;
    inner.dims = view.dims;
    return emit(g, &inner);
}

static int emit_element(lz_graph *g, lz_value *v) {
    bool numbers = true;
    for (int i = 0; i < v->n_in; i++) {
        numbers = numbers && g->values[v->in[i]].op == LZ_OP_FULL;
        if (g->ctx->fusion && (v->in[i] = through_broadcast(g, v->in[i])) < 0) return -1;
    }
    double value;
    if (numbers && fold_numbers(g, v, &value)) return emit_full(g, v, value);
    /* x * 1, x / 1, x - 0: the same bits for every x, NaN and -0 included */
    if (v->n_in == 2 && g->values[v->in[0]].dtype == v->dtype) {
        bool one = v->op == LZ_OP_MUL || v->op == LZ_OP_DIV;
        if ((one && is_full(g, v->in[1], 1)) || (v->op == LZ_OP_SUB && is_full(g, v->in[1], 0))) return v->in[0];
        if (v->op == LZ_OP_MUL && is_full(g, v->in[0], 1)) return v->in[1];
    }
    if (v->op == LZ_OP_CAST && g->values[v->in[0]].dtype == v->dtype) return v->in[0];
    return add_value(g, v);
}

/* rope(permute(rms_norm(x) * w)) becomes one op if the permutation keeps the last axis last. */
static int emit_rope(lz_graph *g, lz_value *v) {
    lz_value x = g->values[v->in[0]], permute = {.op = LZ_OP_LEAF};
    if (x.op == LZ_OP_PERMUTE && x.params.permute.axes.at[x.dims.n - 1] == x.dims.n - 1) {
        permute = x;
        x = g->values[x.in[0]];
    }
    int weight = -1;
    if (x.op == LZ_OP_MUL) {
        int side = g->values[x.in[0]].op == LZ_OP_RMS_NORM ? 0 : 1;
        weight = x.in[1 - side];
        x = g->values[x.in[side]];
    }
    if (x.op != LZ_OP_RMS_NORM || x.dtype != v->dtype) return add_value(g, v);
    int in[4] = {x.in[0], v->in[1], v->in[2], weight};
    for (int i = 0; i < 4 && permute.op == LZ_OP_PERMUTE; i += 3)
        if (in[i] >= 0 && (in[i] = emit_view(g, LZ_OP_PERMUTE, in[i], permute.dims, &permute.params, v->from)) < 0)
            return -1;
    lz_value fused = *v;
    fused.in = in;
    fused.n_in = fused.n_core = weight < 0 ? 3 : 4;
    fused.params.rope.norm = true;
    fused.params.rope.eps = x.params.norm.eps;
    return add_value(g, &fused);
}

/* Do the bytes of a row lie side by side? Sure of arrays and of slices of them. */
static bool has_dense_rows(const lz_graph *g, const lz_value *v) {
    int last = v->dims.n - 1;
    while (v->op == LZ_OP_SLICE && (v->params.slice.axis != last || v->params.slice.step == 1))
        v = &g->values[v->in[0]];
    return v->op == LZ_OP_LEAF && v->from->strides[last] == 1;
}

static bool has_kernel(const lz_graph *g, lz_op op) {
    const lz_kernel *kernel = g->ctx->backend->kernel(op);
    return kernel && kernel->run;
}

/* Can weights be multiplied as they are by INT8_MATMUL? They have one scale for each row, and sums of 32 bits are exact. */
static bool has_int8_rows(const lz_graph *g, const lz_value *packed) {
    enum { MOST_COLUMNS = 1 << 16 };
    int64_t columns = packed->dims.at[1];
    return g->ctx->int8 && has_kernel(g, LZ_OP_INT8_MATMUL) && packed->params.unpack.packing == LZ_PACKING_I8 &&
           packed->n_in < 3 && columns > 0 && columns <= MOST_COLUMNS &&
           (packed->n_in == 1 || packed->params.unpack.group >= columns);
}

/* Can weights be multiplied as they are by CODES_MATMUL? They have one scale for each row, or for all. */
static bool has_code_rows(const lz_graph *g, const lz_value *packed) {
    enum { MOST_COLUMNS = 1 << 15, UNIT = 16 }; /* of kernels of devices */
    int64_t rows = packed->dims.at[0], columns = packed->dims.at[1];
    bool f8 = g->ctx->fp8 && packed->params.unpack.packing == LZ_PACKING_E4M3 && !packed->params.unpack.rotate;
    bool i8 = g->ctx->int8 && packed->params.unpack.packing == LZ_PACKING_I8;
    const lz_value *scales = packed->n_in > 1 ? &g->values[packed->in[1]] : NULL;
    bool shared = !scales || (packed->params.unpack.group >= columns && lz_is_float(scales->dtype) &&
                              (packed->params.unpack.row_group == 1 || scales->dims.at[0] == 1));
    return (f8 || i8) && has_kernel(g, LZ_OP_CODES_MATMUL) && packed->n_in < 3 && shared && columns > 0 &&
           columns <= MOST_COLUMNS && columns % UNIT == 0 && rows > 0 && rows % UNIT == 0;
}

/* The codes of rows x, and in *scales their scales. Those of neighbouring rows of an array are neighbouring rows of the
 * codes of that array, which are made once for all. -1: out of memory. */
static int emit_quantise(lz_graph *g, int x, lz_dtype type, int rotate, const lz_node_facts *from, int *scales) {
    const lz_value v = g->values[x];
    if (v.op == LZ_OP_SLICE && v.params.slice.axis != v.dims.n - 1 && v.params.slice.step == 1) {
        int all_scales, all = emit_quantise(g, v.in[0], type, rotate, from, &all_scales);
        lz_dims rows = v.dims;
        rows.at[rows.n - 1] = 1;
        if (all < 0) return -1;
        *scales = emit_view(g, LZ_OP_SLICE, all_scales, rows, &v.params, from);
        return *scales < 0 ? -1 : emit_view(g, LZ_OP_SLICE, all, v.dims, &v.params, from);
    }
    lz_value codes = {
        .op = LZ_OP_QUANTISE, .dtype = type, .dims = v.dims, .in = &x, .n_in = 1, .n_core = 1, .from = from};
    memset(&codes.params, 0, sizeof codes.params);
    codes.params.quantise.rotate = rotate;
    int made = add_value(g, &codes);
    lz_value view = {
        .op = LZ_OP_SCALES, .dtype = LZ_F32, .dims = v.dims, .in = &made, .n_in = 1, .n_core = 1, .from = from};
    view.dims.at[v.dims.n - 1] = 1;
    memset(&view.params, 0, sizeof view.params);
    *scales = made < 0 ? -1 : add_value(g, &view);
    return *scales < 0 ? -1 : made;
}

static int emit_codes_matmul(lz_graph *g, lz_value *v, const lz_value *packed) {
    const lz_value weight = *packed; /* adding values moves them */
    int in[4] = {-1, weight.in[0], -1, weight.n_in > 1 ? weight.in[1] : -1};
    lz_dtype type = weight.params.unpack.packing == LZ_PACKING_E4M3 ? LZ_F8 : LZ_I8;
    in[0] = emit_quantise(g, v->in[0], type, weight.params.unpack.rotate, v->from, &in[2]);
    if (in[0] < 0) return -1;
    lz_value product = *v;
    product.op = LZ_OP_CODES_MATMUL;
    product.params = weight.params;
    product.in = in;
    product.n_in = product.n_core = 2 + weight.n_in;
    return add_value(g, &product);
}

/* matmul(x, transpose(unpack(codes, ...))) becomes one op, if the backend has a kernel for it. */
static int emit_matmul(lz_graph *g, lz_value *v) {
    const lz_value *w = &g->values[v->in[1]];
    if (w->op == LZ_OP_BROADCAST) w = &g->values[w->in[0]];
    bool turned = w->op == LZ_OP_PERMUTE && w->dims.n == 2 && w->params.permute.axes.at[0] == 1;
    const lz_value *packed = turned ? &g->values[w->in[0]] : w;
    if (!turned || packed->op != LZ_OP_UNPACK || g->values[v->in[0]].dtype == LZ_F64 ||
        !has_dense_rows(g, &g->values[packed->in[0]]))
        return add_value(g, v);
    lz_op op = has_int8_rows(g, packed) ? LZ_OP_INT8_MATMUL : LZ_OP_PACKED_MATMUL;
    if (op != LZ_OP_INT8_MATMUL && has_code_rows(g, packed)) return emit_codes_matmul(g, v, packed);
    if (op == LZ_OP_PACKED_MATMUL && (!g->ctx->fusion || !has_kernel(g, op))) return add_value(g, v);
    int in[4] = {v->in[0]};
    for (int i = 0; i < packed->n_in; i++) in[1 + i] = packed->in[i];
    lz_value fused = *v;
    fused.op = op;
    fused.params = packed->params;
    fused.in = in;
    fused.n_in = fused.n_core = 1 + packed->n_in;
    return add_value(g, &fused);
}

static int emit(lz_graph *g, lz_value *v) {
    lz_kind kind = lz_op_table[v->op].kind;
    if (kind == LZ_KIND_VIEW) return emit_simple_view(g, v);
    if (kind == LZ_KIND_ELEMENT) return emit_element(g, v);
    if (v->op == LZ_OP_ROPE && g->ctx->fusion) return emit_rope(g, v);
    if (v->op == LZ_OP_MATMUL) return emit_matmul(g, v);
    return add_value(g, v);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* A node as it was when the graph was walked. */
typedef struct lz_met {
    lz_op op;
    lz_dtype dtype;
    lz_dims dims;
    lz_params params;
    int *in; /* nodes that were met before */
    int n_in;
    int value;
    lz_node_facts from;
} met;

/* Copies a node whose inputs were met. The caller holds base.lock. */
static bool meet(lz_graph *g, int *capacity, const lz_array *a) {
    if (!grow(&g->memory, (void **)&g->met, capacity, g->n_met + 1, sizeof *g->met)) return false;
    bool leaf = a->buffer || a->op == LZ_OP_LEAF;
    met *m = &g->met[g->n_met];
    *m = (met){.op = leaf ? LZ_OP_LEAF : a->op, .dtype = a->dtype, .dims = a->dims};
    memset(&m->params, 0, sizeof m->params);
    m->from = (lz_node_facts){.file = a->file, .line = a->line};
    if (leaf) {
        m->from.placeholder = a->placeholder;
        m->from.offset = a->offset;
        memcpy(m->from.strides, a->strides, sizeof m->from.strides);
        if (a->buffer) m->from.buffer = lz_buffer_retain(a->buffer);
        bool pending = a->event && (!a->event->done || a->event->err.status); /* still to come, or never */
        if (pending) a->event->refs++;
        m->from.event = pending ? a->event : NULL;
    } else {
        m->params = a->params;
        m->n_in = a->n_in;
        m->in = a->n_in ? lz_bump_alloc(&g->memory, (size_t)a->n_in * sizeof *m->in) : NULL;
        if (a->n_in && !m->in) return false;
        for (int i = 0; i < a->n_in; i++) m->in[i] = a->in[i]->mark_id;
    }
    g->n_met++;
    return true;
}

typedef struct visit {
    lz_array *node;
    int next;
} visit;

/* Every node that the arrays need, inputs before users; g->outputs gets the numbers of the arrays. The caller holds
 * base.lock. */
static bool walk(lz_graph *g, lz_array *const *arrays, int n) {
    uint64_t mark = ++g->ctx->mark;
    visit *stack = NULL;
    int depth = 0, room = 0, capacity = 0;
    for (int i = 0; i < n; i++) {
        if (!grow(&g->memory, (void **)&stack, &room, 1, sizeof *stack)) return false;
        stack[depth++] = (visit){arrays[i], 0};
        while (depth) {
            visit *top = &stack[depth - 1];
            lz_array *a = top->node;
            if (a->mark == mark) {
                depth--;
            } else if (!a->buffer && top->next < a->n_in) {
                lz_array *input = a->in[top->next++];
                if (input->mark == mark) continue;
                if (!grow(&g->memory, (void **)&stack, &room, depth + 1, sizeof *stack)) return false;
                stack[depth++] = (visit){input, 0};
            } else {
                if (!meet(g, &capacity, a)) return false;
                a->mark = mark;
                a->mark_id = g->n_met - 1;
                depth--;
            }
        }
        g->outputs[i] = arrays[i]->mark_id;
    }
    return true;
}

static int lower_node(lz_graph *g, const met *m) {
    lz_value v = {.op = m->op, .dtype = m->dtype, .dims = m->dims, .params = m->params, .from = &m->from};
    if (m->op == LZ_OP_LEAF) return add_value(g, &v);
    if (m->op == LZ_OP_FULL) return emit_full(g, &v, rounded(m->dtype, m->params.full.value));
    int few[LZ_INLINE_INPUTS];
    v.in = m->n_in <= LZ_INLINE_INPUTS ? few : lz_bump_alloc(&g->memory, (size_t)m->n_in * sizeof *v.in);
    if (!v.in) return -1;
    v.n_in = v.n_core = m->n_in;
    for (int i = 0; i < m->n_in; i++) v.in[i] = g->met[m->in[i]].value;
    return emit(g, &v);
}

bool lz_lower(lz_graph *g, lz_array *const *arrays, int n) {
    g->outputs = lz_bump_alloc(&g->memory, (size_t)n * sizeof *g->outputs);
    if (!g->outputs) return false;
    LZ_LOCK(g->ctx);
    bool fine = walk(g, arrays, n);
    LZ_UNLOCK(g->ctx);
    for (int i = 0; i < g->n_met && fine; i++) fine = (g->met[i].value = lower_node(g, &g->met[i])) >= 0;
    for (int i = 0; i < n && fine; i++) {
        g->outputs[i] = g->met[g->outputs[i]].value;
        g->values[g->outputs[i]].output = true;
    }
    g->n_outputs = n;
    return fine;
}

void lz_graph_free(lz_graph *g) {
    LZ_LOCK(g->ctx);
    for (int i = 0; i < g->n_met; i++) {
        lz_buffer_release(g->met[i].from.buffer);
        lz_event_release(g->ctx, g->met[i].from.event);
    }
    LZ_UNLOCK(g->ctx);
    lz_bump_free(&g->memory);
}

/* Sets `uses` of all values. */
void lz_count_uses(lz_graph *g) {
    for (int i = 0; i < g->n; i++) g->values[i].uses = 0;
    for (int i = 0; i < g->n_outputs; i++) g->values[g->outputs[i]].uses++;
    for (int i = g->n - 1; i >= 0; i--)
        if (g->values[i].uses)
            for (int j = 0; j < g->values[i].n_in; j++) g->values[g->values[i].in[j]].uses++;
}
