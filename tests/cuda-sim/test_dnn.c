/* test_dnn.c: cuDNN's part of the backend, on the simulated library (dnn.c): which convolutions and attentions become
 * its graphs, which of its engines are accepted, plans that are read from disk, and the results, which must be those of
 * the CPU. Engines that must not be used compute NaN. */
#include <dlfcn.h>

#include "array/internal.h"
#include "backend/cuda/cuda.h"
#include "check.h"
#include "cli/environment.h"
#include "folder.h"

static long (*sim_count)(const char *name), (*products_asked)(void);

static lz_context *open_device(bool no_cudnn) {
    lz_error err = {0};
    char cache[ENVIRONMENT_PATH];
    lz_context_options o = environment_options(LZ_CONTEXT_OPTIONS(.device = "cuda", .threads = 2, .cache_limit = -1),
                                               cache);
    o.cache_folder = folder;
    o.cuda_sdpa = "library";
    o.no_cudnn = no_cudnn;
    lz_context *ctx = lz_open_with(&o, &err);
    CHECK(ctx, "%s", err.text);
    return ctx;
}

static void find_function(const char *library, const char *name, void *function) {
    char path[1024];
    const char *list = getenv("LAZULI_CUDA_PATH"), *last = list ? strrchr(list, ':') : NULL;
    snprintf(path, sizeof path, "%s/%s", last ? last + 1 : list ? list : "", library);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found = handle ? dlsym(handle, name) : NULL;
    memcpy(function, &found, sizeof found);
}

/* What the library did since the last call of this function. */
typedef struct done {
    long plans, written, read, refused, launches, runs;
} done;

static done since(void) {
    static done before;
    done now = {sim_count("plans"),   sim_count("written"),  sim_count("read"),
                sim_count("refused"), sim_count("launches"), sim_count("runs")};
    done change = {now.plans - before.plans,     now.written - before.written,   now.read - before.read,
                   now.refused - before.refused, now.launches - before.launches, now.runs - before.runs};
    before = now;
    return change;
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

typedef struct shape {
    lz_dtype type;
    int64_t height, width, channels, outputs, window;
    int stride;
    bool bias, residual;
    bool wide; /* the same program casts the result to f32 */
} shape;

/* Random numbers that the type can hold, so that both devices read the same ones. */
static lz_array *numbers(lz_context *ctx, lz_dims dims, lz_dtype type, uint64_t seed, double scale) {
    return lz_cast(lz_mul(lz_randn(ctx, dims, seed), scale), type);
}

static lz_array *convolve(lz_context *ctx, const shape *s, bool exact) {
    int pad = (int)s->window / 2;
    lz_array *x = numbers(ctx, LZ_DIMS(1, s->height, s->width, s->channels), s->type, 1, 1);
    lz_array *w = numbers(ctx, LZ_DIMS(s->outputs, s->window, s->window, s->channels), s->type, 2, 0.05);
    lz_array *b = s->bias ? numbers(ctx, LZ_DIMS(s->outputs), s->type, 3, 1) : NULL;
    lz_array *all[] = {x, w, b};
    lz_error err = {0};
    CHECK_OK(lz_eval_all(all, b ? 3 : 2, &err), &err);
    for (int i = 0; exact && i < 3; i++) all[i] = all[i] ? lz_cast(all[i], LZ_F32) : NULL;
    lz_array *y = lz_conv2d(all[0], all[1], all[2], .stride = s->stride, .top = pad, .bottom = pad, .left = pad,
                            .right = pad);
    lz_array *more = s->residual ? numbers(ctx, lz_shape(y), s->type, 4, 1) : NULL;
    if (more) CHECK_OK(lz_eval(more, &err), &err);
    if (more) y = lz_add(y, exact ? lz_cast(more, LZ_F32) : more);
    if (!s->wide) CHECK_OK(lz_eval(y, &err), &err);
    return lz_cast(y, LZ_F32);
}

/* The largest difference of both devices, as a share of the largest number. */
static double difference(lz_array *got, lz_array *want) {
    lz_error err = {0};
    const float *a = lz_data(got, &err), *b = a ? lz_data(want, &err) : NULL;
    return CHECK(b && lz_size(got) == lz_size(want), "%s", err.text) ? max_relative_error(a, b, lz_size(want))
                                                                     : INFINITY;
}

static double try_convolution(const shape *s, bool no_cudnn) {
    lz_context *there = open_device(no_cudnn), *here = lz_open(.threads = 2);
    if (!there || !here) return INFINITY;
    lz_scope *scopes[2] = {lz_scope_begin(there, "there"), lz_scope_begin(here, "here")};
    double worst = difference(convolve(there, s, false), convolve(here, s, true));
    lz_scope_end(scopes[0]);
    lz_scope_end(scopes[1]);
    lz_close(there);
    lz_close(here);
    return worst;
}

static void convolutions(void) {
    /* Of the first engines one asks for too much workspace, and two have notes that are not accepted. Products of f32
     * must not use tensor cores. A plan is finalised before its workspace is known, so there are two. */
    static const struct {
        shape shape;
        double limit;
        done done;
    } cases[] = {
        {{LZ_BF16, 24, 24, 96, 104, 3, 1, false, false, false}, 1.0 / 128, {.plans = 2, .runs = 1}},
        {{LZ_BF16, 24, 25, 96, 104, 3, 1, true, false, true}, 1.0 / 128, {.plans = 2, .runs = 1}},
        {{LZ_F16, 20, 29, 96, 104, 3, 1, true, false, false}, 1.0 / 1024, {.plans = 2, .runs = 1}},
        {{LZ_BF16, 24, 24, 96, 104, 3, 1, true, true, false}, 1.0 / 128, {.plans = 2, .runs = 1}},
        {{LZ_F32, 24, 24, 96, 104, 3, 1, true, true, false}, 1e-5, {.plans = 2, .runs = 1}},
        {{LZ_BF16, 48, 48, 96, 104, 3, 2, true, false, false},
         1.0 / 128,
         {.plans = 1, .runs = 1}},                                                          /* by the fallback list */
        {{LZ_BF16, 16, 16, 80, 104, 5, 1, false, false, false}, 1.0 / 128, {.refused = 1}}, /* by our own kernel */
        {{LZ_BF16, 8, 8, 16, 16, 3, 1, true, false, false}, 1.0 / 128, {.runs = 0}},        /* too small for a plan */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        since();
        double worst = try_convolution(&cases[i].shape, false);
        CHECK(worst < cases[i].limit, "case %zu: %g", i, worst);
        done d = since();
        CHECK(d.plans == cases[i].done.plans && d.refused == cases[i].done.refused && d.runs == cases[i].done.runs,
              "case %zu: %ld plans, %ld refused, %ld runs", i, d.plans, d.refused, d.runs);
        CHECK_I64(d.launches, 2 * d.runs); /* once before, to load its code */
        CHECK_I64(sim_count("descriptors"), 0);
        if (!d.runs) continue;
        CHECK(try_convolution(&cases[i].shape, false) == worst, "case %zu", i);
        d = since();
        CHECK(d.plans == 0 && d.read == 1 && d.runs == 1, "case %zu from disk: %ld plans, %ld read, %ld runs", i,
              d.plans, d.read, d.runs);
    }
    since();
    CHECK(try_convolution(&cases[0].shape, true) < cases[0].limit);
    CHECK_I64(since().runs, 0);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

enum { HEADS = 4, GROUPS = 2, ROWS = 320, HEAD = 64 };

static lz_array *attend(lz_context *ctx, bool causal, bool exact) {
    lz_error err = {0};
    lz_array *all[3] = {numbers(ctx, LZ_DIMS(1, HEADS, ROWS, HEAD), LZ_BF16, 5, 1),
                        numbers(ctx, LZ_DIMS(1, GROUPS, ROWS, HEAD), LZ_BF16, 6, 1),
                        numbers(ctx, LZ_DIMS(1, GROUPS, ROWS, HEAD), LZ_BF16, 7, 1)};
    CHECK_OK(lz_eval_all(all, 3, &err), &err);
    for (int i = 0; exact && i < 3; i++) all[i] = lz_cast(all[i], LZ_F32);
    return lz_cast(lz_sdpa(all[0], all[1], all[2], .causal = causal), LZ_F32);
}

/* The engine compiles its plan, which is written to disk; the next context reads it. */
static void attention(void) {
    for (int causal = 0; causal < 2; causal++)
        for (int turn = 0; turn < 2; turn++) {
            lz_context *there = open_device(false), *here = lz_open(.threads = 2);
            if (!there || !here) return;
            lz_scope *scopes[2] = {lz_scope_begin(there, "there"), lz_scope_begin(here, "here")};
            since();
            double worst = difference(attend(there, causal, false), attend(here, causal, true));
            CHECK(worst < 1.0 / 64, "causal %d: %g", causal, worst);
            done d = since();
            CHECK(d.plans == !turn && d.written == !turn && d.read == turn && d.runs == 1,
                  "causal %d, turn %d: %ld plans, %ld written, %ld read, %ld runs", causal, turn, d.plans, d.written,
                  d.read, d.runs);
            lz_scope_end(scopes[0]);
            lz_scope_end(scopes[1]);
            lz_close(there);
            lz_close(here);
            CHECK_I64(sim_count("descriptors"), 0);
        }
}

/* A recorded program replays the plan, and every run reads the inputs of that run. */
static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_sdpa(in[0], in[0], in[0]);
}

static void recordings(void) {
    lz_error err = {0};
    lz_context *there = open_device(false), *here = lz_open(.threads = 2);
    lz_compiled *f = there ? lz_compile(there, describe, NULL, 1, 1, 1, &err) : NULL;
    if (!CHECK(f && here, "%s", err.text)) return;
    for (uint64_t i = 0; i < 4; i++) {
        lz_scope *scopes[2] = {lz_scope_begin(there, "there"), lz_scope_begin(here, "here")};
        lz_array *x = numbers(there, LZ_DIMS(1, HEADS, ROWS, HEAD), LZ_BF16, i, 0.5), *y = NULL;
        lz_array *same = lz_cast(numbers(here, LZ_DIMS(1, HEADS, ROWS, HEAD), LZ_BF16, i, 0.5), LZ_F32);
        CHECK_OK(lz_run(f, &x, &y, &err), &err);
        double worst = difference(lz_cast(y, LZ_F32), lz_sdpa(same, same, same));
        CHECK(worst < 1.0 / 64, "run %d: %g", (int)i, worst);
        lz_scope_end(scopes[0]);
        lz_scope_end(scopes[1]);
    }
    lz_compiled_free(f);
    lz_close(there);
    lz_close(here);
}

/* ---- code that is loaded ahead ----------------------------------------------------------------------------------- */

static lz_dnn_status (*set_stream)(lz_dnn_handle handle, lz_cu_stream stream);
static int streams_set, refuse_stream; /* how often; which of them fails, from 1 on */

static lz_dnn_status set_or_refuse(lz_dnn_handle handle, lz_cu_stream stream) {
    return ++streams_set == refuse_stream ? LZ_CUDNN_STATUS_BAD_PARAM : set_stream(handle, stream);
}

/* A plan is launched into another queue before it first runs. If the queue of the handle cannot be changed, or not be
 * changed back, the results are the same. */
static void loads(void) {
    for (refuse_stream = 0; refuse_stream <= 2; refuse_stream++) {
        lz_context *there = open_device(false), *here = lz_open(.threads = 2);
        if (!there || !here) return;
        lz_device *d = there->device;
        set_stream = d->api.dnn.SetStream;
        d->api.dnn.SetStream = set_or_refuse;
        streams_set = 0;
        since();
        for (int turn = 0; turn < 2; turn++) {
            lz_scope *scopes[2] = {lz_scope_begin(there, "there"), lz_scope_begin(here, "here")};
            double worst = difference(attend(there, true, false), attend(here, true, true));
            CHECK(worst < 1.0 / 64, "call %d refused: %g", refuse_stream, worst);
            done got = since();
            CHECK_I64(got.runs, 1);
            CHECK_I64(got.launches - got.runs, !turn && refuse_stream != 1);
            lz_scope_end(scopes[0]);
            lz_scope_end(scopes[1]);
        }
        CHECK_I64(streams_set, refuse_stream == 2 ? 3 : 2);
        lz_close(there);
        lz_close(here);
        CHECK_I64(sim_count("descriptors"), 0);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The algorithms of a product are asked for once; the next context reads them from disk. */
static void products(void) {
    float first = 0;
    for (int turn = 0; turn < 2; turn++) {
        lz_error err = {0};
        lz_context *ctx = open_device(true);
        lz_scope *scope = ctx ? lz_scope_begin(ctx, "products") : NULL;
        if (!scope) return;
        if (!products_asked) find_function("../libcublasLt.so.13", "lz_sim_lt_asked", &products_asked);
        if (!CHECK(products_asked, "the simulated cuBLASLt is not beside cuDNN's folder")) return;
        long before = products_asked();
        lz_array *y = lz_matmul(lz_randn(ctx, LZ_DIMS(33, 40), 1), lz_randn(ctx, LZ_DIMS(40, 24), 2));
        const float *data = lz_data(y, &err);
        CHECK(data, "%s", err.text);
        if (data && turn) CHECK(data[100] == first, "%g and %g", (double)data[100], (double)first);
        if (data) first = data[100];
        CHECK_I64(products_asked() - before, !turn);
        lz_scope_end(scope);
        lz_close(ctx);
    }
}

static void with_simulated_library(void (*test)(void)) {
    find_function("libcudnn.so.9", "lz_sim_dnn_count", &sim_count);
    if (!CHECK(sim_count, "LAZULI_CUDA_PATH does not end with the folder of the simulated cuDNN")) return;
    enter_folder();
    test();
    char line[512];
    snprintf(line, sizeof line, "rm -r %s", folder);
    CHECK_I64(system(line), 0);
}

static void run_convolutions(void) { with_simulated_library(convolutions); }
static void run_attention(void) { with_simulated_library(attention); }
static void run_recordings(void) { with_simulated_library(recordings); }
static void run_loads(void) { with_simulated_library(loads); }
static void run_products(void) { with_simulated_library(products); }

TEST_MAIN({"convolutions", run_convolutions}, {"attention", run_attention}, {"recordings", run_recordings},
          {"loads", run_loads}, {"products", run_products})
