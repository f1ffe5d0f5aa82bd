/* order.c: the order in which values are computed. There are two.
 *
 * In the described order one branch is finished before the next begins, which needs the least memory. In the order of
 * depth, values that need the same number of kernels before them are neighbours, for example the text and image streams
 * of a block, or the two passes of a guided step. They do not depend on each other, so similar kernels can be launched
 * as one group, and a weight that both passes use is read (or streamed to the device) once.
 *
 * Depth is used if the backend launches groups, unless it needs far more memory. */
#include <limits.h>
#include <stdlib.h>

#include "graph/graph.h"

#define SLACK ((int64_t)64 << 20) /* up to this many bytes more are always accepted */

typedef struct sort_key {
    int depth, kind, rank, value;
    int first; /* depth of the first value that reads it */
} sort_key;

static bool is_view(const lz_value *v) { return lz_op_table[v->op].kind == LZ_KIND_VIEW; }
static bool is_given(const lz_value *v) { return v->op == LZ_OP_LEAF || v->op == LZ_OP_FULL; }

/* A value that is computed again in every run, or a view of one. */
static bool is_again(const lz_graph *g, const lz_value *v) {
    while (is_view(v)) v = &g->values[v->in[0]];
    return lz_op_table[v->op].again;
}

/* depth is the number of kernels on the longest path to a value. Within one depth, values are sorted by op, views last,
 * and products by their right operand, so that products with the same weight are neighbours. A value that is computed
 * again in every run (lz_op_info.again) gets the depth of its first reader and comes first in it, so that few of them are
 * in memory at one time. */
static void make_keys(const lz_graph *g, sort_key *keys) {
    for (int i = 0; i < g->n; i++) {
        const lz_value *v = &g->values[i];
        bool again = is_again(g, v);
        int depth = 0;
        for (int j = 0; j < v->n_in; j++)
            if (keys[v->in[j]].depth > depth) depth = keys[v->in[j]].depth;
        keys[i] = (sort_key){.depth = depth + !(is_view(v) || is_given(v) || again),
                             .kind = again        ? -1
                                     : is_view(v) ? LZ_OP_COUNT
                                                  : (int)v->op,
                             .rank = lz_op_table[v->op].product && !again ? v->in[1] : i,
                             .value = i,
                             .first = INT_MAX};
    }
    for (int i = g->n - 1; i >= 0; i--) {
        const lz_value *v = &g->values[i];
        /* If no value reads it, it is an output, and comes after the kernels of its depth. */
        if (keys[i].kind == -1) keys[i].depth = keys[i].first < INT_MAX ? keys[i].first : keys[i].depth + 1;
        for (int j = 0; v->uses && j < v->n_in; j++)
            if (keys[i].depth < keys[v->in[j]].first) keys[v->in[j]].first = keys[i].depth;
    }
}

static int by_depth(const void *a, const void *b) {
    const sort_key *x = a, *y = b;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->value < y->value ? -1 : 1;
}

/* Peak of the bytes that are alive at one time; an estimate, since a concat is counted in addition to its parts. root
 * and last are temporary arrays of g->n elements. */
static int64_t most_alive(const lz_graph *g, const int *order, int *root, int *last) {
    int64_t now = 0, most = 0;
    for (int i = 0; i < g->n; i++) root[i] = is_view(&g->values[i]) ? root[g->values[i].in[0]] : i;
    for (int i = 0; i < g->n; i++) { /* outputs live until the end */
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
            last[of] = -1; /* subtracted only once, even if v reads it twice */
        }
    }
    return most;
}

int *lz_order_values(lz_graph *g) {
    size_t n = (size_t)g->n + 1;
    int *described = lz_bump_alloc(&g->memory, n * sizeof *described);
    for (int i = 0; described && i < g->n; i++) described[i] = i;
    if (!described || !g->ctx->backend->groups || !g->ctx->fusion) return described;
    int *deep = lz_bump_alloc(&g->memory, n * sizeof *deep), *root = lz_bump_alloc(&g->memory, n * sizeof *root),
        *last = lz_bump_alloc(&g->memory, n * sizeof *last);
    sort_key *keys = lz_bump_alloc(&g->memory, n * sizeof *keys);
    if (!deep || !root || !last || !keys) return NULL;
    make_keys(g, keys);
    qsort(keys, (size_t)g->n, sizeof *keys, by_depth);
    for (int i = 0; i < g->n; i++) deep[i] = keys[i].value;
    int64_t least = most_alive(g, described, root, last), now = most_alive(g, deep, root, last);
    return now - SLACK > 2 * least ? described : deep;
}
