/* cuda_gemm.c: compares our own matrix product for Hopper (kernels/gemm90.cu) with cuBLASLt, at sizes of FLUX.2 [klein]
 * 4B. It measures every tile of our kernel: without an epilogue, with gate and residual, and as a swiglu, for which the
 * library needs a second pass. For each size it prints the time of the library, our three fastest tiles, whether the
 * cost estimate would have offered the fastest one for measurement, and the largest error of some elements against f64.
 * Then it measures groups of products, such as q, k, v of two streams: one launch of our kernel (* after a tile: it is
 * offered for measurement) against single launches, by the library and by our kernel.
 *
 * Usage: cuda_gemm [rows, such as 4608 [ending: plain, gated, swiglu]]; cuda_gemm groups
 *   LZ_DEVICE=cuda:1   another device
 *   LZ_SHRINK=32       all sizes are divided by this, for a test on a simulated GPU
 *   LZ_ALL=1           prints a line for each tile
 *
 * Each launch reads weights at another address, as the layers of a model do, so they are not in the GPU's cache. Kernels
 * are compiled before the measurement, by as many processes as there are cores, into the cache that all programs use. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "array/internal.h"
#include "backend/cuda/gemm90.h"
#include "cli/environment.h"

typedef enum ending { PLAIN, GATED, SWIGLU, ALONE_ENDINGS, BIAS = ALONE_ENDINGS, GELU, ENDINGS } ending;
static const char *const ending_names[ENDINGS] = {"plain", "gated", "swiglu", "bias", "gelu"};

enum {
    PERIOD = 8388593,
    SAMPLES = 24,
    MAX_WAYS = 64
}; /* PERIOD: after so many numbers the random numbers repeat; a prime */
#define POOL_BYTES ((int64_t)640 << 20)
#define BATCH_SECONDS 3e-3

static const int64_t all_rows[] = {512, 1024, 1536, 4608};
static const int64_t all_weights[][2] = {{3072, 3072}, {18432, 3072}, {27648, 3072}, {3072, 12288}, {3072, 9216}};

typedef struct group_case {
    const char *name;
    ending ending;
    struct {
        int64_t m, n, k;
    } products[LZ_MAX_GROUP]; /* the first with 0 rows ends the list */
} group_case;

static const group_case all_groups[] = {
    {"q, k, v of 4096 + 149 rows",
     BIAS,
     {{4096, 3072, 3072},
      {4096, 3072, 3072},
      {4096, 3072, 3072},
      {149, 3072, 3072},
      {149, 3072, 3072},
      {149, 3072, 3072}}},
    {"q, k, v of 1024 + 149 rows",
     BIAS,
     {{1024, 3072, 3072},
      {1024, 3072, 3072},
      {1024, 3072, 3072},
      {149, 3072, 3072},
      {149, 3072, 3072},
      {149, 3072, 3072}}},
    {"q, k, v of 512 + 256 rows, twice",
     BIAS,
     {{512, 3072, 3072},
      {512, 3072, 3072},
      {512, 3072, 3072},
      {256, 3072, 3072},
      {256, 3072, 3072},
      {256, 3072, 3072},
      {512, 3072, 3072},
      {512, 3072, 3072},
      {512, 3072, 3072},
      {256, 3072, 3072},
      {256, 3072, 3072},
      {256, 3072, 3072}}},
    {"q, k, v of the text encoder", PLAIN, {{512, 4096, 2560}, {512, 1024, 2560}, {512, 1024, 2560}}},
    {"first of the MLP, 4096 + 149 rows", GELU, {{4096, 12288, 3072}, {149, 12288, 3072}}},
};

static const lz_expr expressions[ENDINGS] = {
    [GATED] = {.n_args = 3, .n_steps = 1, .n_regs = 3, .steps = {{.op = LZ_EXPR_MUL_ADD, .a = 0, .b = 1, .c = 2}}},
    [SWIGLU] = {.n_args = 2,
                .n_steps = 2,
                .n_regs = 2,
                .steps = {{.op = LZ_OP_SILU, .a = 0}, {.op = LZ_OP_MUL, .a = 0, .b = 1}}},
    [BIAS] = {.n_args = 2, .n_steps = 1, .n_regs = 2, .steps = {{.op = LZ_OP_ADD, .a = 0, .b = 1}}},
    [GELU] = {.n_args = 2,
              .n_steps = 2,
              .n_regs = 2,
              .steps = {{.op = LZ_OP_ADD, .a = 0, .b = 1}, {.op = LZ_OP_GELU_TANH, .a = 0}}},
};

/* ---- one size ---------------------------------------------------------------------------------------------------- */

typedef struct bench {
    lz_device *d;
    lz_error err;
    char *pool, *a, *out, *wide, *scratch; /* wide: the library's product of a swiglu, before its second pass */
    int64_t pool_bytes, scratch_bytes;
    uint16_t *
        numbers; /* one period of the random numbers; the pool, a and the other operands each begin at another number */
    lz_cu_event begin, end;
} bench;

typedef struct work {
    bench *b;
    int64_t m, n, k; /* n: columns of the product; the output of a swiglu has half as many */
    ending ending;
    lz_tensor in[4];
    lz_call call, wide, narrow; /* our call; the two calls of the library for a swiglu */
    lz_tensor both[2], halves[2];
    lz_params none;
    int64_t turn, weights; /* number of the current copy of the weight in the pool; number of copies */
    int64_t first, next;   /* place of the first copy; distance of two copies; in numbers */
    lz_gemm90_config way;
    lz_cu_function function;
} work;

/* Runs a product, or a group of products, once; false: it failed. */
typedef bool runner(void *arg);

static double number_at(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}

/* The first number of operand i, counted from the start of the period. */
static int64_t start_of(int i) { return (int64_t)i * 1000003 % (PERIOD / 2) / 8 * 8; }

static lz_tensor matrix(char *data, int64_t rows, int64_t columns, int64_t row, int64_t column) {
    return (lz_tensor){.data = data, .dtype = LZ_BF16, .dims = LZ_DIMS(rows, columns), .strides = {row, column}};
}

static void prepare(work *w) {
    bench *b = w->b;
    int64_t columns = w->ending == SWIGLU ? w->n / 2 : w->n;
    w->next = w->n * w->k;
    w->weights = b->pool_bytes / 2 / w->next;
    if (w->weights > 16) w->weights = 16;
    w->in[0] = matrix(b->a, w->m, w->k, w->k, 1);
    w->in[1] = matrix(b->pool, w->k, columns, 1, w->k);
    w->in[2] = w->ending == SWIGLU ? w->in[1] : matrix(b->a + 2 * start_of(2), w->m, w->n, 0, 1); /* gate or bias */
    w->in[3] = matrix(b->pool + 2 * start_of(3), w->m, w->n, w->n, 1);
    w->call = (lz_call){.op = w->ending == SWIGLU ? LZ_OP_MATMUL_PAIR : LZ_OP_MATMUL,
                        .params = &w->none,
                        .expr = w->ending == PLAIN ? NULL : &expressions[w->ending],
                        .out = matrix(b->out, w->m, columns, columns, 1),
                        .in = w->in,
                        .n_core = w->ending == SWIGLU ? 3 : 2,
                        .n_in = w->ending == GATED   ? 4
                                : w->ending == PLAIN ? 2
                                                     : 3,
                        .scratch = b->scratch,
                        .device = b->d,
                        .err = &b->err};
    w->wide = w->narrow = w->call;
    w->both[0] = w->in[0];
    w->both[1] = matrix(b->pool, w->k, w->n, 1, w->k);
    w->wide.expr = NULL;
    w->wide.op = LZ_OP_MATMUL, w->wide.in = w->both, w->wide.n_core = w->wide.n_in = 2;
    w->wide.out = matrix(b->wide, w->m, w->n, w->n, 1);
    w->halves[0] = matrix(b->wide, w->m, columns, w->n, 1);
    w->halves[1] = matrix(b->wide + 2 * columns, w->m, columns, w->n, 1);
    w->narrow.op = LZ_OP_FUSED, w->narrow.in = w->halves, w->narrow.n_core = w->narrow.n_in = 2;
}

/* Switches to the next copy of the weight, which begins at another number of the period. */
static void next_weight(work *w) {
    w->in[1].data = w->both[1].data = w->b->pool + 2 * (w->first + w->turn++ % w->weights * w->next);
    if (w->ending == SWIGLU) w->in[2].data = w->in[1].data + w->n * w->k; /* n k / 2 numbers of two bytes */
}

static bool run_library(void *arg) {
    work *w = arg;
    next_weight(w);
    setenv("LAZULI_CUDA_GEMM", "library", 1);
    if (w->ending != SWIGLU) return lz_cuda_matmul.run(&w->call);
    return lz_cuda_matmul.run(&w->wide) && lz_cuda_element.run(&w->narrow);
}

static bool run_own(void *arg) {
    work *w = arg;
    lz_gemm90 g;
    next_weight(w);
    return w->function && lz_gemm90_reads(&w->call, &g) && lz_gemm90_run(&g, 1, &w->way, w->function);
}

/* ---- the exact result, element by element --------------------------------------------------------------------------------- */

static double product_at(const work *w, int64_t row, int64_t column) {
    const uint16_t *numbers = w->b->numbers;
    double sum = 0;
    for (int64_t i = 0; i < w->k; i++)
        sum += number_at(numbers[(start_of(1) + row * w->k + i) % PERIOD]) *
               number_at(numbers[(w->first + column * w->k + i) % PERIOD]);
    return sum;
}

static double gelu(double v) { return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); }

static double wanted_at(const work *w, int64_t row, int64_t column) {
    double v = product_at(w, row, column);
    const uint16_t *numbers = w->b->numbers;
    if (w->ending == SWIGLU) return v / (1 + exp(-v)) * product_at(w, row, column + w->n / 2);
    if (w->ending == PLAIN) return v;
    double gate = number_at(numbers[(start_of(1) + start_of(2) + column) % PERIOD]);
    if (w->ending == BIAS) return v + gate;
    if (w->ending == GELU) return gelu(v + gate);
    return v * gate + number_at(numbers[(start_of(3) + row * w->n + column) % PERIOD]);
}

typedef struct samples {
    int64_t row[SAMPLES], column[SAMPLES];
    double wanted[SAMPLES];
} samples;

static samples choose_samples(const work *w) {
    samples s;
    int64_t m = w->call.out.dims.at[0], n = w->call.out.dims.at[1];
    uint32_t state = (uint32_t)(m + n + w->k);
    for (int i = 0; i < SAMPLES; i++) {
        state = state * 1664525u + 1013904223u;
        s.row[i] = i < 4 ? i / 2 * (m - 1) : (int64_t)(state >> 8) % m;
        state = state * 1664525u + 1013904223u;
        s.column[i] = i < 4 ? i % 2 * (n - 1) : (int64_t)(state >> 8) % n;
        s.wanted[i] = wanted_at(w, s.row[i], s.column[i]);
    }
    return s;
}

/* Fills the output with NaN, and goes back to the first copy of the weight. */
static bool clear(work *w) {
    int64_t bytes = w->call.out.dims.at[0] * w->call.out.strides[0] * 2;
    w->turn = 0;
    return !w->b->d->api.cu.MemsetD8Async((lz_cu_ptr)(uintptr_t)w->call.out.data, 0xff, (size_t)bytes, w->b->d->stream);
}

/* The largest error of the result for the first copy of the weight; NaN if an element is NaN. */
static double error_now(work *w, const samples *s) {
    bench *b = w->b;
    double wrong = 0, all = 0;
    int64_t row = w->call.out.strides[0];
    for (int i = 0; i < SAMPLES; i++) {
        uint16_t bits;
        const char *at = (const char *)w->call.out.data + 2 * (s->row[i] * row + s->column[i]);
        if (!lz_cuda_device_table.read(b->d, &bits, at, 2, &b->err)) return NAN;
        wrong += pow(number_at(bits) - s->wanted[i], 2);
        all += pow(s->wanted[i], 2);
    }
    return sqrt(wrong / all);
}

static double error_of(work *w, runner *run, const samples *s) { return clear(w) && run(w) ? error_now(w, s) : NAN; }

/* ---- time -------------------------------------------------------------------------------------------------------- */

static double time_batch(bench *b, runner *run, void *arg, int runs) {
    float milliseconds = 0;
    if (b->d->api.cu.EventRecord(b->begin, b->d->stream)) return INFINITY;
    for (int i = 0; i < runs; i++)
        if (!run(arg)) return INFINITY;
    if (b->d->api.cu.EventRecord(b->end, b->d->stream) || b->d->api.cu.EventSynchronize(b->end) ||
        b->d->api.cu.EventElapsedTime(&milliseconds, b->begin, b->end))
        return INFINITY;
    return milliseconds * 1e-3 / runs;
}

/* Seconds of one run: the mean of many runs, the smaller of two such means. */
static double time_of(bench *b, runner *run, void *arg) {
    double once = time_batch(b, run, arg, 2);
    if (!isfinite(once)) return once;
    int runs = (int)(BATCH_SECONDS / once) + 2;
    if (runs > 200) runs = 200;
    double first = time_batch(b, run, arg, runs), second = time_batch(b, run, arg, runs);
    return first < second ? first : second;
}

typedef struct result {
    lz_gemm90_config way;
    double seconds, error;
} result;

static int faster(const void *a, const void *b) {
    double x = ((const result *)a)->seconds, y = ((const result *)b)->seconds;
    return (x > y) - (x < y);
}

static void way_text(char *text, size_t bytes, const lz_gemm90_config *w) {
    char group[8] = "";
    if (w->group) snprintf(group, sizeof group, "g%d", w->group);
    snprintf(text, bytes, "%dx%d%s%s%s", 64 * w->blocks * (w->pingpong ? 1 : 2), w->columns, w->pingpong ? "t" : "",
             w->cluster == 2 ? "c" : "", group);
}

static double rate(const work *w, double seconds) {
    return 2.0 * (double)w->m * (double)w->n * (double)w->k / seconds * 1e-12;
}

static result measure_way(work *w, const lz_gemm90_config *way, const samples *s) {
    result r = {.way = *way};
    lz_gemm90 g;
    w->way = *way;
    w->function = lz_gemm90_reads(&w->call, &g) ? lz_gemm90_function(&g, 1, way) : NULL;
    r.error = error_of(w, run_own, s);
    r.seconds = isnan(r.error) ? INFINITY : time_of(w->b, run_own, w);
    return r;
}

/* true: all results were correct. */
static bool run_work(work *w) {
    lz_gemm90 g;
    prepare(w);
    if (!lz_gemm90_reads(&w->call, &g)) {
        printf("%s %lld %lld %lld: our kernel cannot compute it\n", ending_names[w->ending], (long long)w->m,
               (long long)w->n, (long long)w->k);
        return false;
    }
    samples s = choose_samples(w);
    double library_error = error_of(w, run_library, &s), library = time_of(w->b, run_library, w), worst = 0;
    const lz_gemm90_config *all;
    lz_gemm90_config offered[LZ_GEMM90_CONFIGS];
    result results[MAX_WAYS];
    int n = 0, n_all = lz_gemm90_all(&all), n_offered = lz_gemm90_configs(&g, 1, offered);
    for (int i = 0; i < n_all; i++)
        if (lz_gemm90_suits(&g, &all[i])) results[n++] = measure_way(w, &all[i], &s);
    qsort(results, (size_t)n, sizeof *results, faster);
    lz_gemm90_config best = results[0].way;
    for (int group = 2; group <= 16; group *= 2) { /* the order of the tiles is varied for the fastest tile only */
        best.group = (int16_t)group;
        results[n++] = measure_way(w, &best, &s);
    }
    qsort(results, (size_t)n, sizeof *results, faster);
    printf("%-6s %5lld %6lld %6lld  library %8.1f us %6.1f (%.0e) ", ending_names[w->ending], (long long)w->m,
           (long long)w->n, (long long)w->k, library * 1e6, rate(w, library), library_error);
    for (int i = 0; i < 3; i++) {
        char text[32];
        way_text(text, sizeof text, &results[i].way);
        printf(" %s %.1f us %.1f;", text, results[i].seconds * 1e6, rate(w, results[i].seconds));
    }
    bool was_offered = false, fine = true;
    for (int i = 0; i < n_offered; i++)
        was_offered |= !memcmp(&offered[i], &results[0].way, offsetof(lz_gemm90_config, group));
    for (int i = 0; i < n; i++) {
        if (!(results[i].error <= 0.01)) fine = false;
        if (results[i].error > worst || isnan(results[i].error)) worst = results[i].error;
    }
    printf(" x%.3f%s  error %.0e%s\n", library / results[0].seconds, was_offered ? "" : " NOT OFFERED", worst,
           fine ? "" : " WRONG");
    for (int i = 0; (getenv("LZ_ALL") || !fine) && i < n; i++) {
        char text[32];
        way_text(text, sizeof text, &results[i].way);
        printf("    %-12s %8.1f us %6.1f   error %.0e\n", text, results[i].seconds * 1e6, rate(w, results[i].seconds),
               results[i].error);
    }
    if (!fine && w->b->err.status) printf("    %s\n", w->b->err.text);
    fflush(stdout);
    return fine;
}

/* ---- several in one launch --------------------------------------------------------------------------------------- */

typedef struct group {
    bench *b;
    int n;
    work works[LZ_MAX_GROUP];
    lz_gemm90 read[LZ_MAX_GROUP];
    lz_gemm90_config way;
    lz_cu_function function;
} group;

/* false: our kernel cannot compute it. */
static bool prepare_group(group *g, bench *b, const group_case *c, int64_t shrink) {
    int64_t first = 0, out = 0;
    bool fine = true;
    *g = (group){.b = b};
    for (; g->n < LZ_MAX_GROUP && c->products[g->n].m; g->n++) {
        work *w = &g->works[g->n];
        *w = (work){.b = b, .ending = c->ending, .first = first};
        w->m = c->products[g->n].m / shrink, w->n = c->products[g->n].n / shrink, w->k = c->products[g->n].k / shrink;
        first += w->n * w->k;
    }
    for (int i = 0; i < g->n; i++) {
        work *w = &g->works[i];
        prepare(w);
        w->next = first; /* after those of the other products */
        w->weights = b->pool_bytes / 2 / first;
        w->call.out.data = b->out + 2 * out;
        out += (w->m * w->n + 7) / 8 * 8;
        fine = fine && w->weights && lz_gemm90_reads(&w->call, &g->read[i]) && lz_gemm90_alike(g->read, &g->read[i]);
    }
    return fine;
}

static bool run_one_by_one(group *g, runner *run) {
    for (int i = 0; i < g->n; i++)
        if (!run(&g->works[i])) return false;
    return true;
}
static bool run_group_library(void *arg) { return run_one_by_one(arg, run_library); }
static bool run_group_singly(void *arg) { return run_one_by_one(arg, run_own); }

static bool run_group(void *arg) {
    group *g = arg;
    for (int i = 0; i < g->n; i++) {
        next_weight(&g->works[i]);
        if (!lz_gemm90_reads(&g->works[i].call, &g->read[i])) return false;
    }
    return g->function && lz_gemm90_run(g->read, g->n, &g->way, g->function);
}

/* The largest error of the products of a group. */
static double group_error(group *g, runner *run, const samples *s) {
    double worst = 0;
    for (int i = 0; i < g->n; i++)
        if (!clear(&g->works[i])) return NAN;
    if (!run(g)) return NAN;
    for (int i = 0; i < g->n; i++) {
        double error = error_now(&g->works[i], &s[i]);
        if (!(error <= worst)) worst = error;
        if (isnan(worst)) break;
    }
    return worst;
}

/* For each product, the fastest tile of those that are offered for measurement. */
static void choose_singles(group *g, const samples *s) {
    for (int i = 0; i < g->n; i++) {
        work *w = &g->works[i], *before = w - 1;
        if (i && before->m == w->m && before->n == w->n && before->k == w->k) {
            w->way = before->way, w->function = before->function;
            continue;
        }
        lz_gemm90_config offered[LZ_GEMM90_CONFIGS];
        result best = {.seconds = INFINITY};
        for (int j = 0, n = lz_gemm90_configs(&g->read[i], 1, offered); j < n; j++) {
            result r = measure_way(w, &offered[j], &s[i]);
            if (r.seconds < best.seconds) best = r;
        }
        w->way = best.way;
        w->function = isfinite(best.seconds) ? lz_gemm90_function(&g->read[i], 1, &best.way) : NULL;
    }
}

static bool run_group_case(bench *b, const group_case *c, int64_t shrink) {
    group g;
    samples s[LZ_MAX_GROUP];
    result results[MAX_WAYS];
    lz_gemm90_config offered[LZ_GEMM90_CONFIGS];
    const lz_gemm90_config *all;
    if (!prepare_group(&g, b, c, shrink)) {
        printf("%s: our kernel cannot compute it\n", c->name);
        return false;
    }
    double work_done = 0;
    for (int i = 0; i < g.n; i++) {
        s[i] = choose_samples(&g.works[i]);
        work_done += 2.0 * (double)g.works[i].m * (double)g.works[i].n * (double)g.works[i].k * 1e-12;
    }
    double library_error = group_error(&g, run_group_library, s), library = time_of(b, run_group_library, &g);
    choose_singles(&g, s);
    double singly_error = group_error(&g, run_group_singly, s), singly = time_of(b, run_group_singly, &g);
    int n = 0, n_all = lz_gemm90_all(&all), n_offered = lz_gemm90_configs(g.read, g.n, offered);
    bool fine = library_error <= 0.01 && singly_error <= 0.01;
    for (int i = 0; i < n_all; i++) {
        if (!lz_gemm90_suits(g.read, &all[i])) continue;
        result *r = &results[n++];
        g.way = r->way = all[i];
        g.function = lz_gemm90_function(g.read, g.n, &g.way);
        r->error = group_error(&g, run_group, s);
        r->seconds = isnan(r->error) ? INFINITY : time_of(b, run_group, &g);
        fine = fine && r->error <= 0.01;
    }
    qsort(results, (size_t)n, sizeof *results, faster);
    printf("%-34s library %8.1f us %6.1f  singly %8.1f us %6.1f  together", c->name, library * 1e6, work_done / library,
           singly * 1e6, work_done / singly);
    bool best_offered = false;
    for (int i = 0; i < n; i++) {
        char text[32];
        bool was_offered = false;
        for (int j = 0; j < n_offered; j++)
            was_offered |= !memcmp(&offered[j], &results[i].way, offsetof(lz_gemm90_config, group));
        if (!i) best_offered = was_offered;
        if (i >= 3 && !was_offered) continue; /* prints the three fastest, and those that are offered */
        way_text(text, sizeof text, &results[i].way);
        printf(" %s%s %.1f us %.1f;", text, was_offered ? "*" : "", results[i].seconds * 1e6,
               work_done / results[i].seconds);
    }
    printf(" x%.3f of the library, x%.3f of singly%s%s\n", library / results[0].seconds, singly / results[0].seconds,
           best_offered ? "" : " NOT OFFERED", fine ? "" : " WRONG");
    for (int i = 0; (getenv("LZ_ALL") || !fine) && i < n; i++) {
        char text[32];
        way_text(text, sizeof text, &results[i].way);
        printf("    %-12s %8.1f us %6.1f   error %.0e\n", text, results[i].seconds * 1e6,
               work_done / results[i].seconds, results[i].error);
    }
    if (!fine) printf("    library's error %.0e, singly %.0e; %s\n", library_error, singly_error, b->err.text);
    fflush(stdout);
    return fine;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Fills memory with a period of random numbers, roughly normal, repeated. */
static bool fill(bench *b, char *to, int64_t start, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
        int64_t at = (start + done / 2) % PERIOD,
                n = 2 * (PERIOD - at) < bytes - done ? 2 * (PERIOD - at) : bytes - done;
        if (!lz_cuda_device_table.write(b->d, to + done, (lz_bytes){.data = b->numbers + at}, n, &b->err)) return false;
        done += n;
    }
    return true;
}

static bool open_bench(bench *b, int64_t most_rows, int64_t shrink) {
    int64_t k = 12288 / shrink, n = 27648 / shrink, pool = POOL_BYTES / shrink / shrink + 2 * PERIOD;
    const lz_device_table *t = &lz_cuda_device_table;
    b->numbers = malloc(PERIOD * sizeof *b->numbers);
    uint32_t state = 1;
    for (int64_t i = 0; b->numbers && i < PERIOD; i++) {
        int sum = 0;
        for (int j = 0; j < 4; j++) sum += (int)((state = state * 1664525u + 1013904223u) >> 24) - 128;
        float f = (float)sum / 128 * 0.0625f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        b->numbers[i] = (uint16_t)(bits >> 16);
    }
    b->scratch_bytes = (int64_t)256 << 20;
    b->pool_bytes = pool;
    b->pool = t->allocate(b->d, pool, &b->err);
    b->a = b->pool ? t->allocate(b->d, 2 * most_rows * k + 16 * PERIOD, &b->err) : NULL;
    b->out = b->a ? t->allocate(b->d, 2 * most_rows * n, &b->err) : NULL;
    b->wide = b->out ? t->allocate(b->d, 2 * most_rows * n, &b->err) : NULL;
    b->scratch = b->wide ? t->allocate(b->d, b->scratch_bytes, &b->err) : NULL;
    return b->numbers && b->scratch && fill(b, b->pool, 0, pool) &&
           fill(b, b->a, start_of(1), 2 * most_rows * k + 16 * PERIOD) &&
           !b->d->api.cu.EventCreate(&b->begin, LZ_CU_EVENT_DEFAULT) &&
           !b->d->api.cu.EventCreate(&b->end, LZ_CU_EVENT_DEFAULT);
}

static int number_of(const char *text, int otherwise) { return text && atoi(text) > 0 ? atoi(text) : otherwise; }

static lz_context *open_device(void) {
    const char *device = getenv("LZ_DEVICE");
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device ? device : "cuda"), &err);
    if (!ctx) fprintf(stderr, "cuda_gemm: %s\n", err.text);
    if (ctx) lz_cuda_device_table.enter(ctx->device);
    return ctx;
}

/* Compiles every `of`th kernel into the cache on disk. */
static int compile_some(int first, int of) {
    lz_context *ctx = open_device();
    if (!ctx) return 1;
    bench b = {.d = ctx->device};
    b.pool_bytes = POOL_BYTES;
    b.pool = b.a = b.out = b.wide = (char *)4096; /* an aligned address that is not used: nothing is launched */
    int count = 0, failed = 0;
    for (int e = 0; e < ALONE_ENDINGS; e++) {
        work w = {.b = &b, .m = 512, .n = 18432, .k = 3072, .ending = (ending)e};
        const lz_gemm90_config *all;
        lz_gemm90 g;
        prepare(&w);
        if (!lz_gemm90_reads(&w.call, &g)) break;
        int n = lz_gemm90_all(&all);
        for (int i = 0; i < n; i++) {
            if (!lz_gemm90_suits(&g, &all[i]) || count++ % of != first) continue;
            if (lz_gemm90_function(&g, 1, &all[i])) continue;
            fprintf(stderr, "cuda_gemm: %s\n", b.err.text);
            failed = 1;
        }
    }
    for (size_t c = 0; c < sizeof all_groups / sizeof *all_groups; c++) {
        const lz_gemm90_config *all;
        group g;
        if (!prepare_group(&g, &b, &all_groups[c], 1)) break;
        int n = lz_gemm90_all(&all);
        for (int i = 0; i < n; i++) {
            if (!lz_gemm90_suits(g.read, &all[i]) || count++ % of != first) continue;
            failed |= !lz_gemm90_function(g.read, g.n, &all[i]);
        }
    }
    lz_close(ctx);
    return failed;
}

/* Starts processes, because a device compiles one kernel at a time. Called before this process uses the GPU. */
static bool compile_all(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = cores < 2 ? 1 : cores > 15 ? 14 : (int)cores - 1, failed = 0;
    fflush(stdout);
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0) _exit(compile_some(i, n));
        if (child < 0) failed = 1;
    }
    for (int status; wait(&status) > 0;) failed |= status != 0;
    return !failed;
}

int main(int n_arguments, char **arguments) {
    int64_t only = n_arguments > 1 ? number_of(arguments[1], 0) : 0, shrink = number_of(getenv("LZ_SHRINK"), 1);
    const char *ending_name = n_arguments > 2 ? arguments[2] : NULL;
    bool only_groups = n_arguments > 1 && !strcmp(arguments[1], "groups");
    if (!compile_all()) return 1;
    lz_context *ctx = open_device();
    if (!ctx) return 1;
    bench b = {.d = ctx->device};
    if (!open_bench(&b, 4608 / shrink, shrink)) {
        fprintf(stderr, "cuda_gemm: %s\n", b.err.status ? b.err.text : "out of memory");
        return 1;
    }
    printf("%s; TFLOP/s after each time; tiles: rows x columns, t: two groups of warps alternate, c: clusters of two, "
           "g: rows of tiles in a group\n",
           lz_device_name(ctx));
    int wrong = 0;
    for (size_t i = 0; i < sizeof all_rows / sizeof *all_rows; i++)
        for (size_t j = 0; j < sizeof all_weights / sizeof *all_weights; j++)
            for (int e = 0; e < ALONE_ENDINGS && !only_groups; e++) {
                work w = {.b = &b, .m = all_rows[i] / shrink, .n = all_weights[j][0] / shrink, .ending = (ending)e};
                w.k = all_weights[j][1] / shrink;
                bool wanted = (!only || only == all_rows[i]) && (!ending_name || !strcmp(ending_name, ending_names[e]));
                if (!wanted || (e == SWIGLU && all_weights[j][0] != 18432)) continue;
                if (e == GATED && all_weights[j][0] != 3072)
                    continue; /* only products that are added to the residual stream have a gate */
                wrong += !run_work(&w);
            }
    for (size_t i = 0; i < sizeof all_groups / sizeof *all_groups && !only && !ending_name; i++)
        wrong += !run_group_case(&b, &all_groups[i], shrink);
    printf(wrong ? "%d of the sizes WRONG\n" : "all right\n", wrong);
    return wrong != 0;
}
