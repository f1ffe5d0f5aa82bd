/* quantise.c: rounding to 8 bits is part of the kernels that compute the numbers, in contexts that compute in LZ_F8 or LZ_I8.
 *
 * Rows that only a QUANTISE reads are computed by it, so that no launch only rounds. It takes in
 *
 *     quantise(norm(x) * (1 + scale) + shift)      the norm before a layer, with its epilogue;
 *     quantise(silu(gate) * up)                    a chain of elementwise ops, which is not the epilogue of a product then
 *                                                  (lz_find_quantised), since a product knows no whole row;
 *     quantise(concat(a, silu(gate) * up))         such a chain beside another array, the head.
 *
 * Only backends that fuse get such calls (backend.h).
 *
 * With LZ_F8, queries and keys of an attention are stored as f8 by the ROPE that computes them, if an RMS norm comes before it.
 * Then they have no scale. With heads of 128 and weights w of the norm they are at most 11.3 w, and f8 has normal numbers
 * from 2^-6 to 448. Weights between 2^-4 and 39 keep most of them in that range; larger queries and keys become 448. */
#include <string.h>

#include "graph/graph.h"

enum { CHUNK = 8 }; /* columns of the head are a multiple of it */

static bool joins_last_axis(const lz_value *v) {
    return v->op == LZ_OP_CONCAT && v->params.along.axis == v->dims.n - 1;
}

static bool used_once(const lz_value *v) { return v->uses == 1 && !v->output; }

const bool *lz_find_quantised(lz_graph *g) {
    bool *found = lz_bump_alloc(&g->memory, (size_t)(g->n + 1) * sizeof *found);
    if (!found) return NULL;
    memset(found, 0, (size_t)(g->n + 1) * sizeof *found);
    for (int i = 0; i < g->n; i++) {
        const lz_value *v = &g->values[i];
        if (v->op != LZ_OP_QUANTISE || !v->uses) continue;
        const lz_value *x = &g->values[v->in[0]];
        found[v->in[0]] = true;
        for (int j = 0; used_once(x) && joins_last_axis(x) && j < x->n_in; j++) found[x->in[j]] = true;
    }
    return found;
}

static bool is_chain(const lz_value *v) { return v->op == LZ_OP_FUSED && v->n_in > 0 && v->n_in + 1 < LZ_MAX_OPERANDS; }

static bool is_norm(const lz_value *v) {
    return (v->op == LZ_OP_RMS_NORM || v->op == LZ_OP_LAYER_NORM) && v->n_in + 1 < LZ_MAX_OPERANDS;
}

static bool has_f64(const lz_graph *g, const lz_value *v) {
    bool found = false;
    for (int i = 0; i < v->n_in; i++) found = found || g->values[v->in[i]].dtype == LZ_F64;
    return found;
}

/* q computes rows, with the head before them if head is not -1. */
static bool take(lz_graph *g, lz_value *q, const lz_value *rows, int head) {
    int heads = head >= 0;
    int *in = lz_bump_alloc(&g->memory, (size_t)(rows->n_in + heads) * sizeof *in);
    if (!in) return false;
    in[0] = rows->in[0];
    if (heads) in[1] = head;
    for (int i = 1; i < rows->n_in; i++) in[i + heads] = rows->in[i];
    q->in = in;
    q->n_in = rows->n_in + heads;
    q->n_core = 1 + heads;
    q->expr = rows->expr;
    if (!is_norm(rows)) return true;
    q->params.quantise.core = (int)rows->op;
    q->params.quantise.eps = rows->params.norm.eps;
    return true;
}

static bool join(lz_graph *g, lz_value *q) {
    const lz_value *x = &g->values[q->in[0]];
    if (!used_once(x) || x->dtype == LZ_F64) return true;
    if (is_norm(x) || is_chain(x)) return has_f64(g, x) || take(g, q, x, -1);
    if (!joins_last_axis(x) || x->n_in != 2) return true;
    const lz_value *head = &g->values[x->in[0]], *rows = &g->values[x->in[1]];
    bool fits = is_chain(rows) && used_once(rows) && !has_f64(g, rows) && head->dtype != LZ_F64 &&
                head->dims.at[head->dims.n - 1] % CHUNK == 0;
    return !fits || take(g, q, rows, x->in[0]);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static bool joins_or_views(const lz_value *v) {
    return v->n_in > 0 && (v->op == LZ_OP_CONCAT || lz_op_table[v->op].kind == LZ_KIND_VIEW);
}

/* Is x only read here, and computed by ropes with norms, directly or through views and joins? */
static bool is_normed(const lz_graph *g, int x) {
    const lz_value *v = &g->values[x];
    if (!used_once(v) || (v->dtype != LZ_BF16 && v->dtype != LZ_F16)) return false;
    if (v->op == LZ_OP_ROPE) return v->params.rope.norm;
    bool fine = joins_or_views(v);
    for (int i = 0; fine && i < v->n_in; i++) fine = is_normed(g, v->in[i]);
    return fine;
}

/* Stores x, and all that it is a view or a join of, as f8. */
static void store_f8(lz_graph *g, int x) {
    lz_value *v = &g->values[x];
    v->dtype = LZ_F8;
    for (int i = 0; v->op != LZ_OP_ROPE && i < v->n_in; i++) store_f8(g, v->in[i]);
}

static void narrow_attentions(lz_graph *g) {
    const lz_device_table *table = g->ctx->backend->device;
    for (int i = 0; i < g->n && table && table->attends_f8; i++) {
        const lz_value *v = &g->values[i];
        if (v->op != LZ_OP_SDPA || !v->uses || v->n_in != 3 || v->params.sdpa.causal) continue;
        const lz_value *q = &g->values[v->in[0]], *k = &g->values[v->in[1]], *values = &g->values[v->in[2]];
        if (values->dtype != v->dtype || !table->attends_f8(g->ctx->device, q->dims, k->dims) ||
            !is_normed(g, v->in[0]) || !is_normed(g, v->in[1]))
            continue;
        store_f8(g, v->in[0]);
        store_f8(g, v->in[1]);
    }
}

bool lz_join_quantise(lz_graph *g) {
    bool found = false;
    if (!g->ctx->fusion || !(g->ctx->int8 || g->ctx->fp8)) return true;
    if (g->ctx->fp8) narrow_attentions(g);
    for (int i = 0; i < g->n; i++) {
        if (g->values[i].op != LZ_OP_QUANTISE || !g->values[i].uses) continue;
        if (!join(g, &g->values[i])) return false;
        found = true;
    }
    if (found) lz_count_uses(g);
    return true;
}
