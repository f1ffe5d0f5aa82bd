/* many.c: arrays that were described for one set of inputs, described again for n sets at once. Every array that depends
 * on these inputs gets a new first axis of n; the others, such as weights, stay as they are and are read by all. So a
 * function that describes one picture describes n of them, and one program computes all.
 *
 * The values are those of n separate descriptions: no op here sums over the new axis. Kernels must not sum in another
 * order if there are more rows, too. Those of products do, if there are few rows; such products are described one by
 * one. (In 16-bit types a fused chain keeps f32 between its steps. A chain that began with such a product, or that reads
 * a vector which is the same for all rows but not for all sets, is fused less, and rounds once more.) */
#define LZ_NO_SUGAR
#include <assert.h>
#include <string.h>

#include "array/ops.h"

enum { FEW_ROWS = 8 }; /* kernels of products may have another order of sums for up to so many rows */

typedef struct many {
    lz_context *ctx;
    int64_t n;
    uint64_t mark; /* of visited nodes. Their mark_id is 1 + an index of `made`; 0: the node has no new axis */
    lz_array **made;
    int n_made, room;
} many;

/* Makes room for one more array. */
static bool grow(lz_context *ctx, lz_array ***arrays, int n, int *room) {
    if (n < *room) return true;
    int more = *room * 2 + 256;
    lz_array **copy = lz_host_alloc(ctx, (size_t)more * sizeof *copy);
    if (!copy) return false;
    if (n) memcpy(copy, *arrays, (size_t)n * sizeof *copy);
    lz_host_free(ctx, *arrays);
    *arrays = copy;
    *room = more;
    return true;
}

static lz_array *found(const many *m, const lz_array *a) {
    return m->made && a->mark_id ? m->made[a->mark_id - 1] : NULL;
}

static bool add_axis(int64_t n, lz_dims dims, lz_dims *to) {
    if (dims.n == LZ_MAX_DIMS) return false;
    *to = (lz_dims){.n = dims.n + 1, .at = {n}};
    memcpy(to->at + 1, dims.at, (size_t)dims.n * sizeof dims.at[0]);
    return lz_dims_size(*to) >= 0;
}

/* An input of an op, with the new axis; one that is the same for all is repeated along it. */
static lz_array *with_axis(const many *m, lz_array *a) {
    lz_array *own = found(m, a);
    lz_dims dims;
    if (own || a->error) return own ? own : a;
    if (!add_axis(m->n, a->dims, &dims))
        return lz_poison(m->ctx, LZ_BAD_SHAPE, "%s for %lld pictures has too many axes or elements", LZ_SHOW(a->dims),
                         (long long)m->n);
    return lz_as_dims(a, dims);
}

/* [n, b, ...] -> [n b, ...] */
static lz_array *merged(lz_array *a) {
    lz_dims to = {.n = a->dims.n - 1, .at = {a->dims.at[0] * a->dims.at[1]}};
    memcpy(to.at + 1, a->dims.at + 2, (size_t)(to.n - 1) * sizeof to.at[0]);
    return lz_reshape(a, to);
}

/* ---- rules of ops ------------------------------------------------------------------------------------------------ */

typedef lz_array *rule(const many *m, const lz_array *a, lz_dims dims);

static lz_array *make(const many *m, const lz_array *a, lz_dims dims, lz_array **in, int n_in,
                      const lz_params *params) {
    for (int i = 0; i < n_in; i++)
        if (in[i]->error) return in[i];
    lz_array *made = lz_node_new(m->ctx, a->op, dims, a->dtype, in, n_in, params);
    if (made->error) return made;
    made->file = a->file;
    made->line = a->line;
    return made;
}

/* The op with these parameters, on inputs that all have the new axis. */
static lz_array *make_wide(const many *m, const lz_array *a, lz_dims dims, const lz_params *params) {
    lz_array *few[LZ_INLINE_INPUTS],
        **in = a->n_in <= LZ_INLINE_INPUTS ? few : lz_host_alloc(m->ctx, (size_t)a->n_in * sizeof *in);
    if (!in) return m->ctx->no_memory;
    for (int i = 0; i < a->n_in; i++) in[i] = with_axis(m, a->in[i]);
    lz_array *made = make(m, a, dims, in, a->n_in, params);
    if (in != few) lz_host_free(m->ctx, in);
    return made;
}

/* Ops whose parameters name no axis, or count axes from the last. */
static lz_array *same(const many *m, const lz_array *a, lz_dims dims) { return make_wide(m, a, dims, &a->params); }

static lz_array *permute(const many *m, const lz_array *a, lz_dims dims) {
    lz_params p = a->params;
    p.permute.axes.n = dims.n;
    for (int i = 1; i < dims.n; i++) p.permute.axes.at[i] = a->params.permute.axes.at[i - 1] + 1;
    p.permute.axes.at[0] = 0;
    return make_wide(m, a, dims, &p);
}

static lz_array *slice(const many *m, const lz_array *a, lz_dims dims) {
    lz_params p = a->params;
    p.slice.axis++;
    return make_wide(m, a, dims, &p);
}

static lz_array *along(const many *m, const lz_array *a, lz_dims dims) {
    lz_params p = a->params;
    p.along.axis++;
    return make_wide(m, a, dims, &p);
}

/* Missing axes are inserted after the new one. */
static lz_array *broadcast(const many *m, const lz_array *a, lz_dims dims) {
    lz_array *x = with_axis(m, a->in[0]);
    if (x->error) return x;
    lz_dims full = {.n = dims.n, .at = {m->n}};
    int missing = dims.n - x->dims.n;
    for (int i = 1; i < dims.n; i++) full.at[i] = i <= missing ? 1 : x->dims.at[i - missing];
    x = lz_reshape(x, full);
    return x->error ? x : lz_as_dims(x, dims);
}

static lz_array *pad(const many *m, const lz_array *a, lz_dims dims) {
    lz_params p = a->params;
    for (int i = 0; i < dims.n; i++) {
        p.pad.before.at[i] = i ? a->params.pad.before.at[i - 1] : 0;
        p.pad.after.at[i] = i ? a->params.pad.after.at[i - 1] : 0;
    }
    p.pad.before.n = p.pad.after.n = dims.n;
    return make_wide(m, a, dims, &p);
}

static lz_array *refuse(const many *m, const lz_array *a, lz_dims dims) {
    (void)dims;
    return lz_poison(m->ctx, LZ_BAD_ARGUMENT, "%s cannot be computed for several pictures at once",
                     lz_op_table[a->op].name);
}

/* The indices are the same for all. */
static lz_array *take(const many *m, const lz_array *a, lz_dims dims) {
    lz_params p = a->params;
    p.along.axis++;
    assert(a->n_in == 2);
    if (found(m, a->in[1])) return refuse(m, a, dims);
    return make(m, a, dims, (lz_array *[]){with_axis(m, a->in[0]), a->in[1]}, 2, &p);
}

/* Ops whose inputs have an axis of that kind already: [n, b, ...] becomes [n b, ...], and back. */
static lz_array *merge(const many *m, const lz_array *a, lz_dims dims) {
    lz_array *in[LZ_INLINE_INPUTS];
    int wide = lz_op_table[a->op].product ? 1 : a->n_in; /* the weight has no such axis */
    assert(a->n_in <= LZ_INLINE_INPUTS);
    for (int i = 0; i < a->n_in; i++) {
        if (i >= wide && found(m, a->in[i])) return refuse(m, a, dims);
        in[i] = i < wide ? with_axis(m, a->in[i]) : a->in[i];
        if (i < wide && !in[i]->error) in[i] = merged(in[i]);
    }
    lz_dims flat = a->dims;
    flat.at[0] *= m->n;
    lz_array *made = make(m, a, flat, in, a->n_in, &a->params);
    return made->error ? made : lz_reshape(made, dims);
}

/* The product of each set of rows by itself. */
static lz_array *one_by_one(const many *m, const lz_array *a, lz_dims dims) {
    lz_array **each = lz_host_alloc(m->ctx, (size_t)m->n * sizeof *each), *rows = with_axis(m, a->in[0]);
    if (!each) return m->ctx->no_memory;
    lz_dims one = dims;
    one.at[0] = 1;
    assert(a->n_in == 2);
    for (int64_t i = 0; i < m->n; i++) {
        lz_array *x = lz_reshape(lz_slice(rows, 0, i, i + 1, 1), a->in[0]->dims);
        each[i] = lz_reshape(make(m, a, a->dims, (lz_array *[]){x, a->in[1]}, 2, &a->params), one);
    }
    lz_array *all = lz_concat(each, (int)m->n, 0);
    lz_host_free(m->ctx, each);
    return all;
}

static lz_array *product(const many *m, const lz_array *a, lz_dims dims) {
    lz_dims x = a->in[0]->dims;
    int64_t depth = x.at[x.n - 1], rows = depth ? lz_dims_size(x) / depth : 0;
    bool few = rows <= FEW_ROWS && !found(m, a->in[1]);
    return few ? one_by_one(m, a, dims) : same(m, a, dims);
}

static rule *rule_of(lz_op op) {
    static rule *const kinds[] = {
        [LZ_KIND_LEAF] = refuse, [LZ_KIND_MAKE] = refuse, [LZ_KIND_ELEMENT] = same,
        [LZ_KIND_VIEW] = refuse, [LZ_KIND_REDUCE] = same, [LZ_KIND_KERNEL] = refuse,
    };
    static rule *const ops[LZ_OP_COUNT] = {
        [LZ_OP_RESHAPE] = same, [LZ_OP_PERMUTE] = permute, [LZ_OP_SLICE] = slice,     [LZ_OP_BROADCAST] = broadcast,
        [LZ_OP_SOFTMAX] = same, [LZ_OP_RMS_NORM] = same,   [LZ_OP_LAYER_NORM] = same, [LZ_OP_GROUP_NORM] = merge,
        [LZ_OP_ROPE] = same,    [LZ_OP_MATMUL] = product,  [LZ_OP_SDPA] = merge,      [LZ_OP_CONV2D] = merge,
        [LZ_OP_PAD] = pad,      [LZ_OP_CONCAT] = along,    [LZ_OP_TAKE] = take,       [LZ_OP_GATHER] = along,
    };
    return ops[op] ? ops[op] : kinds[lz_op_table[op].kind];
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* Records what an array becomes, whose inputs were visited. False: out of memory. */
static bool visit(many *m, lz_array *a) {
    bool depends = false;
    for (int i = 0; i < a->n_in && !a->buffer; i++) depends = depends || a->in[i]->mark_id;
    a->mark = m->mark;
    a->mark_id = 0;
    if (!depends || a->error) return true;
    lz_dims dims;
    lz_array *made = add_axis(m->n, a->dims, &dims)
                         ? rule_of(a->op)(m, a, dims)
                         : lz_poison(m->ctx, LZ_BAD_SHAPE, "%s: %s for %lld pictures has too many axes or elements",
                                     lz_op_table[a->op].name, LZ_SHOW(a->dims), (long long)m->n);
    if (!grow(m->ctx, &m->made, m->n_made, &m->room)) return false;
    m->made[m->n_made++] = made;
    a->mark_id = m->n_made;
    return true;
}

/* Visits what `a` needs, inputs before users. */
static bool visit_all(many *m, lz_array *a) {
    lz_array **stack = NULL;
    int depth = 0, room = 0;
    bool fine = grow(m->ctx, &stack, depth, &room);
    uint64_t open = ++m->ctx->mark; /* mark of nodes whose inputs are not all visited */
    if (fine) stack[depth++] = a;
    while (depth && fine) {
        lz_array *top = stack[depth - 1];
        if (top->mark == m->mark)
            depth--;
        else if (top->mark == open) {
            fine = visit(m, top);
            depth--;
        } else {
            top->mark = open;
            for (int i = 0; i < top->n_in && fine && !top->buffer; i++)
                if (top->in[i]->mark != m->mark && (fine = grow(m->ctx, &stack, depth, &room)))
                    stack[depth++] = top->in[i];
        }
    }
    lz_host_free(m->ctx, stack);
    return fine;
}

void lz_describe_many(lz_context *ctx, int64_t n, lz_array *const *one, lz_array *const *all, int n_in, lz_array **out,
                      int n_out) {
    many m = {.ctx = ctx, .n = n};
    bool fine = true;
    LZ_LOCK(ctx); /* for the marks of nodes */
    m.mark = ++ctx->mark;
    for (int i = 0; i < n_in && fine; i++)
        if ((fine = grow(ctx, &m.made, m.n_made, &m.room))) {
            m.made[m.n_made++] = all[i];
            one[i]->mark = m.mark;
            one[i]->mark_id = m.n_made;
        }
    for (int i = 0; i < n_out && fine; i++)
        if (out[i]) fine = visit_all(&m, out[i]);
    for (int i = 0; i < n_out; i++) {
        if (!out[i]) continue;
        lz_array *made = fine ? found(&m, out[i]) : ctx->no_memory;
        if (made) out[i] = made;
    }
    LZ_UNLOCK(ctx);
    lz_host_free(ctx, m.made);
}
