/* group.c: which neighbouring steps are launched as one: those that do not depend on each other and that their kernel
 * calls alike. */
#include "graph/graph.h"

/* Does b read what a writes, or write what a reads? By stores: parts of one may be written by both. */
static bool depends(const lz_step *b, const lz_step *a) {
    for (int j = 0; j < b->call.n_in; j++)
        if (b->in[j].store == a->out.store) return true;
    for (int j = 0; j < a->call.n_in; j++)
        if (a->in[j].store == b->out.store) return true;
    return false;
}

/* How many steps from here on can be launched as one. */
static int count_together(const lz_program *p, int first) {
    const lz_step *a = &p->steps[first];
    int n = 1;
    for (; n < LZ_TOGETHER && first + n < p->n_steps; n++) {
        const lz_step *b = &p->steps[first + n];
        bool fits = a->kernel->alike && b->kernel == a->kernel && !a->on_host;
        for (int i = first; i < first + n && fits; i++) /* with each: being alike is not handed on */
            fits = a->kernel->alike(&p->steps[i].call, &b->call) && !depends(b, &p->steps[i]);
        if (!fits) break;
    }
    return n;
}

/* The steps of a group use their scratch one after another, if at all, so they share one piece, the largest. */
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

/* The steps of a group run in any order, so every store that one of them uses lives as long as the whole group runs. */
bool lz_plan_groups(lz_program *p) {
    int *starts = lz_bump_alloc(&p->memory, (size_t)(p->n_steps + 1) * sizeof *starts);
    if (!starts) return false;
    for (int i = 0, n; i < p->n_steps; i += n) {
        n = count_together(p, i);
        for (int j = i; j < i + n; j++) starts[j] = i;
        p->steps[i].together = n;
        if (n > 1) share_scratch(p, i, n);
        p->info.kernels++;
    }
    for (int i = 0; i < p->n_stores; i++) {
        lz_store *s = &p->stores[i];
        if (s->first < p->n_steps) s->first = starts[s->first];
        if (s->last >= 0) s->last = starts[s->last] + p->steps[starts[s->last]].together - 1;
    }
    return true;
}
