/* arena.c: where the stores of a program are in its one arena: by the step that first writes each and the step that last
 * reads it. */
#include <string.h>

#include "graph/graph.h"

enum { ALIGN = 256 }; /* on an H200, matrices that do not begin with a line of the cache cost a fifth more */
static int64_t aligned(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static bool same_place(const lz_tensor *a, const lz_tensor *b) {
    for (int i = 0; i < a->dims.n; i++)
        if (a->dims.at[i] != 1 && a->strides[i] != b->strides[i]) return false;
    return true;
}

/* Does another step of its group touch a store that this one does? */
static bool shared_in_group(const lz_program *p, int first, int n, int step, int store) {
    for (int i = first; i < first + n; i++) {
        const lz_step *other = &p->steps[i];
        if (i == step) continue;
        if (other->out.store == store) return true;
        for (int j = 0; j < other->call.n_in; j++)
            if (other->in[j].store == store) return true;
    }
    return false;
}

/* A step of an op that works in place may write over an operand that no later step reads. */
static void reuse_operands(lz_program *p) {
    if (!p->ctx->backend->fuses) return; /* the reference kernels make no such promise */
    for (int i = 0, first = 0; i < p->n_steps; i++) {
        lz_step *step = &p->steps[i];
        lz_store *out = &p->stores[step->out.store];
        if (step->together) first = i;
        int n = p->steps[first].together;
        bool own = out->first == first && step->out.offset == 0 && /* not a part of a concat */
                   !shared_in_group(p, first, n, i, step->out.store);
        if (!lz_op_table[step->call.op].in_place || out->kind != LZ_STORE_ARENA || !own) continue;
        for (int j = 0; j < step->call.n_in; j++) {
            lz_store *x = &p->stores[step->in[j].store];
            bool fits = x->kind == LZ_STORE_ARENA && x->last == first + n - 1 && x->bytes == out->bytes &&
                        step->in[j].offset == 0 && !shared_in_group(p, first, n, i, step->in[j].store) &&
                        lz_dtype_size(step->call.in[j].dtype) == lz_dtype_size(step->call.out.dtype) &&
                        same_place(&step->call.in[j], &step->call.out);
            for (int k = 0; fits && k < step->call.n_in;
                 k++) /* the same store through another view would see new values */
                fits = step->in[k].store != step->in[j].store ||
                       (step->in[k].offset == 0 && same_place(&step->call.in[k], &step->call.out));
            if (!fits) continue;
            out->same_as = step->in[j].store;
            break;
        }
    }
    for (int i = p->n_stores - 1; i >= 0; i--) { /* users come later than what they reuse: lifetimes join backwards */
        lz_store *s = &p->stores[i];
        if (s->same_as >= 0 && s->last > p->stores[s->same_as].last) p->stores[s->same_as].last = s->last;
    }
}

/* Walks the steps; at each, frees what is dead and puts what is born into the smallest gap that holds it. */
static bool place_in_arena(lz_program *p) {
    int *live = lz_bump_alloc(&p->memory, (size_t)(p->n_stores + 1) * sizeof *live); /* by place, ascending */
    if (!live) return false;
    int n = 0, next = 0;
    for (int step = 0; step < p->n_steps; step++) {
        int kept = 0;
        for (int i = 0; i < n; i++)
            if (p->stores[live[i]].last >= step) live[kept++] = live[i];
        n = kept;
        for (; next < p->n_stores && p->stores[next].first <= step; next++) {
            lz_store *s = &p->stores[next];
            if (s->kind != LZ_STORE_ARENA || s->same_as >= 0 || s->last < 0) continue;
            int64_t need = aligned(s->bytes), end = 0, best = -1, best_gap = INT64_MAX;
            int best_at = n;
            for (int i = 0; i <= n; i++) {
                int64_t gap = i < n ? p->stores[live[i]].place - end : INT64_MAX - 1;
                if (gap >= need && gap < best_gap) {
                    best = end;
                    best_gap = gap;
                    best_at = i;
                }
                if (i < n) end = p->stores[live[i]].place + aligned(p->stores[live[i]].bytes);
            }
            s->place = best;
            if (best + need > p->arena_bytes) p->arena_bytes = best + need;
            memmove(&live[best_at + 1], &live[best_at], (size_t)(n - best_at) * sizeof *live);
            live[best_at] = next;
            n++;
        }
    }
    for (int i = 0; i < p->n_stores; i++)
        if (p->stores[i].same_as >= 0) p->stores[i].place = p->stores[p->stores[i].same_as].place;
    return true;
}

bool lz_plan_arena(lz_program *p) {
    reuse_operands(p);
    return place_in_arena(p);
}
