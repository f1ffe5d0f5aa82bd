/* matmul.c: matrix products: by cuBLASLt (blas.c) or, on Hopper, by our own kernel (gemm90.c) if that is faster.
 *
 * Our kernel is a candidate if the library would need a second launch for the epilogue, or if several independent
 * products can be one launch. The candidates are measured once, and the choice is kept on disk.
 * lz_context_options.cuda_gemm (lz_gemm_choice) chooses without measuring. */
#include <limits.h>
#include <string.h>

#include "backend/cuda/gemm90.h"
#include "backend/cuda/product.h"

#define HUGE_WORK 3e10

/* ---- our own kernel or the library ------------------------------------------------------------------------------- */

/* Calls and their candidates: candidate i < n_configs is one launch of our kernel with configs[i]; candidate n_configs
 * is run_otherwise. */
typedef struct candidates {
    lz_gemm90 own[LZ_MAX_GROUP];
    int n_calls;
    lz_gemm90_config configs[LZ_GEMM90_CONFIGS];
    lz_cu_function functions[LZ_GEMM90_CONFIGS]; /* NULL: not compiled yet */
    int n_configs;
} candidates;

static bool run_group(const lz_call *const *calls, int n);

/* Runs several calls one by one, each with its own fastest candidate; a single call by the library. */
static bool run_otherwise(const lz_call *const *calls, int n) {
    if (n == 1) return lz_cuda_blas_run(calls[0]);
    for (int i = 0; i < n; i++)
        if (!run_group(&calls[i], 1)) return false;
    return true;
}

/* call: gets the error. */
static bool run_candidate(const lz_call *call, void *arg, int i) {
    candidates *c = arg;
    lz_call copies[LZ_MAX_GROUP];
    const lz_call *calls[LZ_MAX_GROUP];
    lz_gemm90 own[LZ_MAX_GROUP];
    for (int j = 0; j < c->n_calls; j++) {
        copies[j] = *c->own[j].call;
        copies[j].err = call->err;
        own[j] = c->own[j];
        own[j].call = calls[j] = &copies[j];
    }
    if (i >= c->n_configs) return run_otherwise(calls, c->n_calls);
    if (!c->functions[i]) c->functions[i] = lz_gemm90_function(own, c->n_calls, &c->configs[i]);
    return c->functions[i] && lz_gemm90_run(own, c->n_calls, &c->configs[i], c->functions[i]);
}

/* All that the fastest candidate depends on. Zeroed before it is filled, since keys are compared byte by byte. */
typedef struct choice_key {
    struct {
        int64_t m, n, k, a_row, b_row[2], out_row;
    } of[LZ_MAX_GROUP];
    uint64_t text; /* hash of the kernel's head: types, expression, access of its arguments */
    lz_gemm90_config configs[LZ_GEMM90_CONFIGS];
} choice_key;

static bool make_key(const candidates *c, choice_key *k) {
    lz_text text = {.ctx = c->own[0].call->device->ctx};
    lz_gemm90_text(c->own, c->n_calls, &c->configs[0], &text);
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
    memcpy(k->configs, c->configs, (size_t)c->n_configs * sizeof *c->configs);
    lz_host_free(text.ctx, whole);
    return true;
}

static void log_choice(const candidates *c, int chosen) {
    const lz_gemm90 *g = &c->own[0];
    const lz_device *d = g->call->device;
    const lz_gemm90_config *w = &c->configs[chosen < c->n_configs ? chosen : 0];
    lz_cuda_trace(d, "matmul m %lld n %lld k %lld%s: %s", (long long)g->m, (long long)g->n, (long long)g->k,
                  c->n_calls > 1 ? " and others" : "", chosen < c->n_configs ? "by our own kernel" : "otherwise");
    if (chosen < c->n_configs)
        lz_cuda_trace(d, "  %d columns, %d x 64 rows, in turn %d, cluster %d", w->columns, w->blocks, w->pingpong,
                      w->cluster);
}

/* Sets *chosen to the fastest candidate, or to run_otherwise if it is unknown and cannot be measured now. false: err
 * has the reason. */
static bool choose_candidate(candidates *c, int *chosen) {
    const lz_call *call = c->own[0].call;
    choice_key k;
    if (!make_key(c, &k)) return false;
    lz_choice choice = {
        .what = "way of a product", .library = call->device->api.lt.GetVersion(), .key = &k, .key_bytes = sizeof k};
    /* Measuring run_otherwise may measure the single calls in turn. */
    int found = lz_cuda_choose(call, &choice, c->n_configs + 1, run_candidate, c);
    *chosen = found < 0 ? c->n_configs : found;
    if (choice.measured) log_choice(c, *chosen);
    return true;
}

/* Runs our kernel with a configuration that depends on the sizes, so that tests try many. */
static bool run_any_config(const lz_gemm90 *g, int n) {
    const lz_gemm90_config *all;
    int n_all = lz_gemm90_all(&all), first = (int)((g->m + 3 * g->n + 5 * g->k) % n_all);
    while (!lz_gemm90_suits(g, &all[first])) first = (first + 1) % n_all; /* the smallest tiles always suit */
    lz_cu_function f = lz_gemm90_function(g, n, &all[first]);
    return f && lz_gemm90_run(g, n, &all[first], f);
}

/* Can the library do the epilogue inside its product? Then it is rarely much slower than our kernel, and not measuring
 * saves the third of a second that NVRTC needs for each tile; very large products are measured all the same. The
 * library's interface has gates too, but on an H200 it refuses them. */
static bool library_ends(const lz_call *call, double work) {
    lz_ending e;
    return work < HUGE_WORK && lz_cuda_read_ending(call, &e) && e.gate < 0;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static bool run_group(const lz_call *const *calls, int n) {
    lz_gemm_choice wish = calls[0]->device->gemm;
    candidates c = {.n_calls = n};
    bool ours = wish != LZ_GEMM_LIBRARY;
    double work = 0;
    for (int i = 0; i < n && ours; i++) {
        lz_gemm90 *g = &c.own[i];
        ours = lz_gemm90_reads(calls[i], g);
        work += 2.0 * lz_cuda_products(calls[i]) * (double)g->m * (double)g->n * (double)g->k;
    }
    if (n > 1 && wish == LZ_GEMM_SINGLE) ours = false;
    if (!ours) return run_otherwise(calls, n);
    if (wish == LZ_GEMM_ANY) return run_any_config(c.own, n);
    c.n_configs = lz_gemm90_configs(c.own, n, c.configs);
    int chosen = c.n_configs;
    bool measured = c.n_configs && work >= LZ_LARGE_WORK && (n > 1 || !library_ends(calls[0], work));
    if (wish == LZ_GEMM_OWN)
        chosen = 0;
    else if (measured && !choose_candidate(&c, &chosen))
        return false;
    return run_candidate(calls[0], &c, chosen);
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
