/* group.c: joins neighbouring steps into groups. A group is launched as one: its steps do not depend on each other,
 * have the same kernel, and that kernel's `alike` accepts every two of them. */
#include "graph/graph.h"

/* Does b read what a writes, or write what a reads? Whole stores are compared, but two steps that write parts of the
 * same store do not depend on each other. */
static bool depends(const lz_step *b, const lz_step *a) {
    for (int j = 0; j < b->call.n_in; j++)
        if (b->in[j].store == a->out.store) return true;
    for (int j = 0; j < a->call.n_in; j++)
        if (a->in[j].store == b->out.store) return true;
    return false;
}

/* The number of steps, from `first` on, that can be launched as one. */
static int count_group(const lz_program *p, int first) {
    const lz_step *a = &p->steps[first];
    int n = 1;
    for (; n < LZ_MAX_GROUP && first + n < p->n_steps; n++) {
        const lz_step *b = &p->steps[first + n];
        bool fits = a->kernel->alike && b->kernel == a->kernel && !a->on_host;
        for (int i = first; i < first + n && fits; i++) /* with each of them: `alike` is not transitive */
            fits = a->kernel->alike(&p->steps[i].call, &b->call) && !depends(b, &p->steps[i]);
        if (!fits) break;
    }
    return n;
}

/* Steps of a group run one after another if they use scratch memory, so they share one scratch store, the largest. */
static void share_scratch(lz_program *p, int first, int n) {
    int largest = p->steps[first].scratch;
    for (int i = first; i < first + n; i++) {
        int own = p->steps[i].scratch;
        if (own >= 0 && (largest < 0 || p->stores[own].bytes > p->stores[largest].bytes)) largest = own;
    }
    for (int i = first; i < first + n; i++) {
        if (p->steps[i].scratch >= 0 && p->steps[i].scratch != largest) p->stores[p->steps[i].scratch].last = -1;
        p->steps[i].scratch = largest;
    }
}

/* Steps of a group run in any order, so every store that one of them uses lives from the first step of the group to its
 * last. */
bool lz_plan_groups(lz_program *p) {
    int *starts = lz_bump_alloc(&p->memory, (size_t)(p->n_steps + 1) * sizeof *starts);
    if (!starts) return false;
    for (int i = 0, n; i < p->n_steps; i += n) {
        n = count_group(p, i);
        for (int j = i; j < i + n; j++) starts[j] = i;
        p->steps[i].group_size = n;
        if (n > 1) share_scratch(p, i, n);
        p->info.kernels++;
    }
    for (int i = 0; i < p->n_stores; i++) {
        lz_store *s = &p->stores[i];
        if (s->first < p->n_steps) s->first = starts[s->first];
        if (s->last >= 0) s->last = starts[s->last] + p->steps[starts[s->last]].group_size - 1;
    }
    return true;
}
