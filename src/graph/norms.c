/* norms.c: two RMS norms of which the second normalises the result of the first become one RMS_NORM_TWICE, if the backend
 * has a kernel for it. Blocks with a norm before and after each part are full of them:
 *
 *     x = x + norm(attention) * gate      one kernel reads the attention and x, and writes x and h;
 *     h = norm(x) * scale                 two kernels would write x and read it again
 *
 * The store of x has memory for both, and h is a BESIDE view of it: the second result. */
#include <string.h>

#include "graph/graph.h"

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static bool is_view(const lz_value *v) { return lz_op_table[v->op].kind == LZ_KIND_VIEW; }

/* Is the epilogue of a norm a product with one argument, or absent? */
static bool is_scaled(const lz_value *v) {
    const lz_expr *e = v->expr;
    if (!e) return true;
    const lz_expr_step *s = &e->steps[0];
    return e->n_steps == 1 && e->n_args == 2 && s->op == LZ_OP_MUL && !s->number && s->a + s->b == 1;
}

/* Is id an array, or a value that was described before `before`, or a view of one? Then it does not depend on `before`. */
static bool is_earlier(const lz_graph *g, int id, int before) {
    enum { VIEWS = 16 }; /* a limit, since place() is recursive */
    for (int i = 0; i < VIEWS && id > before && is_view(&g->values[id]); i++) id = g->values[id].in[0];
    return id < before || g->values[id].op == LZ_OP_LEAF;
}

static bool joins(const lz_graph *g, const lz_value *second) {
    if (!second->uses || second->op != LZ_OP_RMS_NORM || second->output || !is_scaled(second)) return false;
    int id = second->in[0];
    const lz_value *first = &g->values[id];
    if (first->op != LZ_OP_RMS_NORM || first->output || first->dtype != second->dtype || first->dims.n < 1)
        return false;
    if (first->n_in + 1 >= LZ_MAX_OPERANDS || lz_dims_size(first->dims) > INT32_MAX) return false;
    bool real = first->dtype == LZ_F32 || first->dtype == LZ_BF16 || first->dtype == LZ_F16;
    return real &&
           (!second->expr || (g->values[second->in[1]].dtype == second->dtype && is_earlier(g, second->in[1], id)));
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

/* `first` gets the weight of the second norm, if it has one, as its second input. */
static bool join(lz_graph *g, lz_value *second) {
    lz_value *first = &g->values[second->in[0]];
    int weighted = second->expr != NULL;
    int *in = lz_bump_alloc(&g->memory, (size_t)(first->n_in + 1) * sizeof *in);
    if (!in) return false;
    in[0] = first->in[0];
    if (weighted) in[1] = second->in[1];
    for (int i = 1; i < first->n_in; i++) in[i + weighted] = first->in[i];
    first->op = LZ_OP_RMS_NORM_TWICE;
    first->in = in;
    first->n_in += weighted;
    first->n_core = 1 + weighted;
    first->params.norm.second_eps = second->params.norm.eps;
    second->op = LZ_OP_BESIDE;
    second->n_in = second->n_core = 1;
    second->expr = NULL;
    memset(&second->params, 0, sizeof second->params);
    return true;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Appends a value to the new order, after the views that it reads and that are not in it yet. A value that is not a view
 * only reads views and values that were described before it. */
static void place(const lz_graph *g, int id, int *to, int *n, int *order) {
    if (to[id] >= 0) return;
    for (int i = 0; i < g->values[id].n_in; i++)
        if (to[g->values[id].in[i]] < 0) place(g, g->values[id].in[i], to, n, order);
    order[*n] = id;
    to[id] = (*n)++;
}

/* Renumbers the values, so that inputs have smaller numbers than the values that read them. */
static bool renumber(lz_graph *g) {
    int *to = lz_bump_alloc(&g->memory, (size_t)g->n * sizeof *to), n = 0;
    int *order = lz_bump_alloc(&g->memory, (size_t)g->n * sizeof *order);
    lz_value *values = lz_bump_alloc(&g->memory, (size_t)g->n * sizeof *values);
    if (!to || !order || !values) return false;
    for (int i = 0; i < g->n; i++) to[i] = -1;
    for (int i = 0; i < g->n; i++) place(g, i, to, &n, order);
    for (int i = 0; i < g->n; i++) {
        values[i] = g->values[order[i]];
        int *in = values[i].n_in ? lz_bump_alloc(&g->memory, (size_t)values[i].n_in * sizeof *in) : NULL;
        if (values[i].n_in && !in) return false;
        for (int j = 0; j < values[i].n_in; j++) in[j] = to[values[i].in[j]];
        values[i].in = in;
    }
    for (int i = 0; i < g->n_outputs; i++) g->outputs[i] = to[g->outputs[i]];
    g->values = values;
    g->capacity = g->n;
    return true;
}

bool lz_join_norms(lz_graph *g) {
    const lz_kernel *kernel = g->ctx->backend->kernel(LZ_OP_RMS_NORM_TWICE);
    bool found = false;
    if (!g->ctx->fusion || !kernel || !kernel->run) return true;
    for (int i = 0; i < g->n; i++) {
        if (!joins(g, &g->values[i])) continue;
        if (!join(g, &g->values[i])) return false;
        found = true;
    }
    if (!found) return true;
    if (!renumber(g)) return false;
    lz_count_uses(g);
    return true;
}
