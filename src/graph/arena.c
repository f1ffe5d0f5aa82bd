/* arena.c: gives each temporary store of a program its offset in the arena. Two stores may share memory if the steps
 * from first write to last read do not overlap. */
#include <string.h>

#include "graph/graph.h"

enum { ALIGN = 256 }; /* on an H200, products of matrices that do not begin on a cache line take a fifth longer */
static int64_t aligned(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static bool same_strides(const lz_tensor *a, const lz_tensor *b) {
    for (int i = 0; i < a->dims.n; i++)
        if (a->dims.at[i] != 1 && a->strides[i] != b->strides[i]) return false;
    return true;
}

/* Does a step of the group, other than this one, read or write the store? */
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

/* A step whose op may work in place writes over an operand that no later step reads. */
static void reuse_operands(lz_program *p) {
    if (!p->ctx->backend->fuses) return; /* the reference kernels do not allow writing in place */
    for (int i = 0, first = 0; i < p->n_steps; i++) {
        lz_step *step = &p->steps[i];
        lz_store *out = &p->stores[step->out.store];
        if (step->group_size) first = i;
        int n = p->steps[first].group_size;
        bool own = out->first == first && step->out.offset == 0 && /* not a part of a concat */
                   !shared_in_group(p, first, n, i, step->out.store);
        if (!lz_op_table[step->call.op].in_place || out->kind != LZ_STORE_ARENA || !own) continue;
        for (int j = 0; j < step->call.n_in; j++) {
            lz_store *x = &p->stores[step->in[j].store];
            bool fits = x->kind == LZ_STORE_ARENA && x->last == first + n - 1 && x->bytes == out->bytes &&
                        step->in[j].offset == 0 && !shared_in_group(p, first, n, i, step->in[j].store) &&
                        lz_dtype_size(step->call.in[j].dtype) == lz_dtype_size(step->call.out.dtype) &&
                        same_strides(&step->call.in[j], &step->call.out);
            /* Another view of the same store would read overwritten values. */
            for (int k = 0; fits && k < step->call.n_in; k++)
                fits = step->in[k].store != step->in[j].store ||
                       (step->in[k].offset == 0 && same_strides(&step->call.in[k], &step->call.out));
            if (!fits) continue;
            out->same_as = step->in[j].store;
            break;
        }
    }
    /* A store has a larger index than the one it reuses, so lifetimes are extended from the last store to the first. */
    for (int i = p->n_stores - 1; i >= 0; i--) {
        lz_store *s = &p->stores[i];
        if (s->same_as >= 0 && s->last > p->stores[s->same_as].last) p->stores[s->same_as].last = s->last;
    }
}

/* At each step, removes stores whose last step is over, and puts each new store into the smallest gap that is large
 * enough. */
static bool assign_offsets(lz_program *p) {
    int *live = lz_bump_alloc(&p->memory, (size_t)(p->n_stores + 1) * sizeof *live); /* by offset, ascending */
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
                int64_t gap = i < n ? p->stores[live[i]].arena_offset - end : INT64_MAX - 1;
                if (gap >= need && gap < best_gap) {
                    best = end;
                    best_gap = gap;
                    best_at = i;
                }
                if (i < n) end = p->stores[live[i]].arena_offset + aligned(p->stores[live[i]].bytes);
            }
            s->arena_offset = best;
            if (best + need > p->arena_bytes) p->arena_bytes = best + need;
            memmove(&live[best_at + 1], &live[best_at], (size_t)(n - best_at) * sizeof *live);
            live[best_at] = next;
            n++;
        }
    }
    for (int i = 0; i < p->n_stores; i++)
        if (p->stores[i].same_as >= 0) p->stores[i].arena_offset = p->stores[p->stores[i].same_as].arena_offset;
    return true;
}

bool lz_plan_arena(lz_program *p) {
    reuse_operands(p);
    return assign_offsets(p);
}
