/* order.c: in which order values are computed. As they were described, one branch is finished before the next begins:
 * least is in memory at one time. By depth, what waits for the same number of kernels comes together: the streams of a
 * block, the two passes of a guided step. None of it waits for another, so that kernels that are alike can be launched
 * as one, and a weight that two passes share is read (or sent to the device) once for both.
 *
 * By depth it is where the backend launches kernels together, unless that takes far more memory. */
#include <stdlib.h>

#include "graph/graph.h"

#define ROOM ((int64_t)64 << 20) /* less than this is not far more */

typedef struct place {
    int depth, kind, rank, value;
} place;

static bool is_view(const lz_value *v) { return lz_op_table[v->op].kind == LZ_KIND_VIEW; }
static bool is_given(const lz_value *v) { return v->op == LZ_OP_LEAF || v->op == LZ_OP_FULL; }

/* How many kernels must come before each value. Of one depth, kernels of a kind are neighbours, views come last, and
 * products are ranked by their weight. */
static void find_places(const lz_graph *g, place *places) {
    for (int i = 0; i < g->n; i++) {
        const lz_value *v = &g->values[i];
        int depth = 0;
        for (int j = 0; j < v->n_in; j++)
            if (places[v->in[j]].depth > depth) depth = places[v->in[j]].depth;
        places[i] = (place){.depth = depth + !(is_view(v) || is_given(v)),
                            .kind = is_view(v) ? LZ_OP_COUNT : (int)v->op,
                            .rank = lz_op_table[v->op].product ? v->in[1] : i,
                            .value = i};
    }
}

static int by_depth(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->value < y->value ? -1 : 1;
}

/* Most bytes that are alive at one time, roughly: a concat counts beside its parts. root, last: room for the work. */
static int64_t most_alive(const lz_graph *g, const int *order, int *root, int *last) {
    int64_t now = 0, most = 0;
    for (int i = 0; i < g->n; i++) root[i] = is_view(&g->values[i]) ? root[g->values[i].in[0]] : i;
    for (int i = 0; i < g->n; i++) { /* inputs have smaller numbers, and outputs stay */
        const lz_value *v = &g->values[order[i]];
        last[order[i]] = i;
        if (v->output) last[root[order[i]]] = g->n;
        for (int j = 0; v->uses && j < v->n_in; j++) {
            int of = root[v->in[j]];
            if (last[of] < i) last[of] = i;
        }
    }
    for (int i = 0; i < g->n; i++) {
        const lz_value *v = &g->values[order[i]];
        if (!v->uses) continue;
        if (!is_view(v) && !is_given(v)) now += lz_dims_size(v->dims) * lz_dtype_size(v->dtype);
        if (now > most) most = now;
        for (int j = 0; j < v->n_in; j++) {
            int of = root[v->in[j]];
            const lz_value *x = &g->values[of];
            if (last[of] != i || is_given(x)) continue;
            now -= lz_dims_size(x->dims) * lz_dtype_size(x->dtype);
            last[of] = -1; /* read twice, it dies once */
        }
    }
    return most;
}

int *lz_order_values(lz_graph *g) {
    size_t n = (size_t)g->n + 1;
    int *described = lz_bump_alloc(&g->memory, n * sizeof *described);
    for (int i = 0; described && i < g->n; i++) described[i] = i;
    if (!described || !g->ctx->backend->together || !g->ctx->fusion) return described;
    int *deep = lz_bump_alloc(&g->memory, n * sizeof *deep), *root = lz_bump_alloc(&g->memory, n * sizeof *root),
        *last = lz_bump_alloc(&g->memory, n * sizeof *last);
    place *places = lz_bump_alloc(&g->memory, n * sizeof *places);
    if (!deep || !root || !last || !places) return NULL;
    find_places(g, places);
    qsort(places, (size_t)g->n, sizeof *places, by_depth);
    for (int i = 0; i < g->n; i++) deep[i] = places[i].value;
    int64_t least = most_alive(g, described, root, last), now = most_alive(g, deep, root, last);
    return now - ROOM > 2 * least ? described : deep;
}
