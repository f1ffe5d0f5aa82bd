/* matmul.c: matrix products: by cuBLASLt (blas.c), or on Hopper by a kernel of our own (gemm90.c) where that is faster.
 *
 * Ours competes where the library would need a pass of its own for what comes after the product, and where several
 * products that do not wait for each other can be one launch. All ways of some calls are measured once and the choice
 * is kept on disk. lz_context_options.cuda_gemm (lz_gemm_choice) decides without measuring. */
#include <limits.h>
#include <string.h>

#include "backend/cuda/gemm90.h"
#include "backend/cuda/product.h"

#define HUGE_WORK 3e10

/* ---- our own kernel against the library --------------------------------------------------------------------------- */

/* Some calls, and ways to do them: by one launch of our kernel, or behind those ways: otherwise. */
typedef struct contestants {
    lz_gemm90 own[LZ_MAX_GROUP];
    int n_calls;
    lz_gemm90_way ways[LZ_GEMM90_WAYS];
    lz_cu_function functions[LZ_GEMM90_WAYS]; /* NULL: not asked for yet */
    int n_ways;
} contestants;

static bool run_group(const lz_call *const *calls, int n);

/* Not by one launch of our kernel: each for itself, whichever way is best for it; and one alone by the library. */
static bool run_otherwise(const lz_call *const *calls, int n) {
    if (n == 1) return lz_cuda_blas_run(calls[0]);
    for (int i = 0; i < n; i++)
        if (!run_group(&calls[i], 1)) return false;
    return true;
}

/* call: says where errors go. */
static bool run_contestant(const lz_call *call, void *arg, int i) {
    contestants *c = arg;
    lz_call copies[LZ_MAX_GROUP];
    const lz_call *calls[LZ_MAX_GROUP];
    lz_gemm90 own[LZ_MAX_GROUP];
    for (int j = 0; j < c->n_calls; j++) {
        copies[j] = *c->own[j].call;
        copies[j].err = call->err;
        own[j] = c->own[j];
        own[j].call = calls[j] = &copies[j];
    }
    if (i >= c->n_ways) return run_otherwise(calls, c->n_calls);
    if (!c->functions[i]) c->functions[i] = lz_gemm90_function(own, c->n_calls, &c->ways[i]);
    return c->functions[i] && lz_gemm90_run(own, c->n_calls, &c->ways[i], c->functions[i]);
}

/* Everything the fastest way of some calls depends on. Zeroed before it is filled. */
typedef struct contest_key {
    struct {
        int64_t m, n, k, a_row, b_row[2], out_row;
    } of[LZ_MAX_GROUP];
    uint64_t text; /* a hash: types, expression, how its arguments lie */
    lz_gemm90_way ways[LZ_GEMM90_WAYS];
} contest_key;

static bool make_key(const contestants *c, contest_key *k) {
    lz_text text = {.ctx = c->own[0].call->device->ctx};
    lz_gemm90_text(c->own, c->n_calls, &c->ways[0], &text);
    char *whole = lz_text_take(&text, c->own[0].call->err);
    if (!whole) return false;
    memset(k, 0, sizeof *k);
    for (int i = 0; i < c->n_calls; i++) {
        const lz_gemm90 *g = &c->own[i];
        k->of[i].m = g->m, k->of[i].n = g->n, k->of[i].k = g->k;
        k->of[i].a_row = g->a_row, k->of[i].out_row = g->out_row;
        memcpy(k->of[i].b_row, g->b_row, sizeof g->b_row);
    }
    k->text = lz_hash(whole, strlen(whole));
    memcpy(k->ways, c->ways, (size_t)c->n_ways * sizeof *c->ways);
    lz_host_free(text.ctx, whole);
    return true;
}

static void tell_contest(const contestants *c, int chosen) {
    const lz_gemm90 *g = &c->own[0];
    const lz_device *d = g->call->device;
    const lz_gemm90_way *w = &c->ways[chosen < c->n_ways ? chosen : 0];
    lz_cuda_trace(d, "matmul m %lld n %lld k %lld%s: %s", (long long)g->m, (long long)g->n, (long long)g->k,
                  c->n_calls > 1 ? " and others" : "", chosen < c->n_ways ? "by our own kernel" : "otherwise");
    if (chosen < c->n_ways)
        lz_cuda_trace(d, "  %d columns, %d x 64 rows, in turn %d, cluster %d", w->columns, w->blocks, w->in_turn,
                      w->cluster);
}

/* The number of the fastest. Not known and not to be measured now: none of ours. false: err says why. */
static bool choose_contestant(contestants *c, int *chosen) {
    const lz_call *call = c->own[0].call;
    contest_key k;
    if (!make_key(c, &k)) return false;
    lz_choice choice = {
        .what = "way of a product", .library = call->device->api.lt.GetVersion(), .key = &k, .key_bytes = sizeof k};
    int found = lz_cuda_choose(call, &choice, c->n_ways + 1, run_contestant, c); /* may hold contests of single calls */
    *chosen = found < 0 ? c->n_ways : found;
    if (choice.measured) tell_contest(c, *chosen);
    return true;
}

/* Some way for calls of these sizes; other sizes get others. */
static bool run_any_way(const lz_gemm90 *g, int n) {
    const lz_gemm90_way *all;
    int n_all = lz_gemm90_all(&all), first = (int)((g->m + 3 * g->n + 5 * g->k) % n_all);
    while (!lz_gemm90_suits(g, &all[first])) first = (first + 1) % n_all; /* the smallest do */
    lz_cu_function f = lz_gemm90_function(g, n, &all[first]);
    return f && lz_gemm90_run(g, n, &all[first], f);
}

/* Does the library's own product end as the call does? Then it is hardly ever much slower, and a third of a second that
 * NVRTC takes for each of our tiles is saved, unless it is a large one. It knows gates too, but on an H200 refuses
 * them. */
static bool library_ends(const lz_call *call, double work) {
    lz_ending e;
    return work < HUGE_WORK && lz_cuda_read_ending(call, &e) && e.gate < 0;
}

/* ---- the kernel --------------------------------------------------------------------------------------------------- */

static bool run_group(const lz_call *const *calls, int n) {
    lz_gemm_choice wish = calls[0]->device->gemm;
    contestants c = {.n_calls = n};
    bool ours = wish != LZ_GEMM_LIBRARY;
    double work = 0;
    for (int i = 0; i < n && ours; i++) {
        lz_gemm90 *g = &c.own[i];
        ours = lz_gemm90_reads(calls[i], g);
        work += 2.0 * lz_cuda_products(calls[i]) * (double)g->m * (double)g->n * (double)g->k;
    }
    if (n > 1 && wish == LZ_GEMM_SINGLE) ours = false;
    if (!ours) return run_otherwise(calls, n);
    if (wish == LZ_GEMM_ANY) return run_any_way(c.own, n);
    c.n_ways = lz_gemm90_ways(c.own, n, c.ways);
    int chosen = c.n_ways;
    bool measured = c.n_ways && work >= LZ_LARGE_WORK && (n > 1 || !library_ends(calls[0], work));
    if (wish == LZ_GEMM_OWN)
        chosen = 0;
    else if (measured && !choose_contestant(&c, &chosen))
        return false;
    return run_contestant(calls[0], &c, chosen);
}

static bool run_matmul(const lz_call *call) { return run_group(&call, 1); }

static bool can_matmul(const lz_call *call) {
    const lz_tensor *a = &call->in[0], *b = &call->in[1];
    int rank = call->out.dims.n;
    bool fits = a->dims.at[rank - 1] <= INT_MAX && call->out.dims.at[rank - 1] <= INT_MAX;
    return fits && lz_cuda_is_real(a->dtype) && lz_cuda_is_real(b->dtype) && lz_cuda_can_finish(call);
}

static bool alike(const lz_call *a, const lz_call *b) {
    lz_gemm90 first, second;
    return lz_gemm90_reads(a, &first) && lz_gemm90_reads(b, &second) && lz_gemm90_alike(&first, &second);
}

const lz_kernel lz_cuda_matmul = {.name = "cuda.matmul",
                                  .run = run_matmul,
                                  .scratch = lz_cuda_blas_scratch,
                                  .can = can_matmul,
                                  .alike = alike,
                                  .run_group = run_group};
