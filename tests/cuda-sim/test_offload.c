/* test_offload.c: models that do not fit on the device. Weights that fit are resident, the others are streamed. Results
 * have the same bits, the plan predicts memory and streamed bytes, the limit is never exceeded, and the context works
 * after every error. Runs on a real GPU or on the simulated one (tests/cuda-sim), there with queues that run
 * immediately, as late as possible, and as far ahead of each other as possible. */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "cli/environment.h"
#include "graph/eval.h"

static lz_context *open_with(int offload, int64_t limit) {
    lz_error err = {0};
    lz_context_options o = LZ_CONTEXT_OPTIONS(.device = "cuda", .cache_limit = -1, .threads = 2, .offload = offload,
                                              .memory_limit = limit, .compute = LZ_F32);
    lz_context *ctx = open_as_asked(o, &err);
    CHECK(ctx, "%s", err.text);
    return ctx;
}

static void set_option(const char *name, long value) {
    char text[24];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

/* A figure that the simulated driver keeps; -1: this one is real. */
static long simulator_count(const char *name) {
    char path[1024];
    const char *folder = getenv("LAZULI_CUDA_PATH");
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder ? folder : "");
    void *driver = folder ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    long (*count)(void) = NULL;
    if (driver) *(void **)&count = dlsym(driver, name);
    long n = count ? count() : -1;
    if (driver) dlclose(driver);
    return n;
}

/* How often a function of the simulated driver was called; -1: this one is real. */
static long driver_calls(const char *name) {
    char path[1024];
    const char *folder = getenv("LAZULI_CUDA_PATH");
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder ? folder : "");
    void *driver = folder ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    long (*count)(const char *) = NULL;
    if (driver) *(void **)&count = dlsym(driver, "lz_sim_count");
    long n = count ? count(name) : -1;
    if (driver) dlclose(driver);
    return n;
}

/* ---- a small model ----------------------------------------------------------------------------------------------- */

enum { LAYERS = 7, WIDTH = 96, ROWS = 5, WEIGHTS = 3 * LAYERS + 1 };

typedef struct small_model {
    lz_context *ctx;
    int layers, passes; /* of these is made use */
    float *numbers[WEIGHTS];
    lz_array *weights[WEIGHTS]; /* retained */
    int64_t bytes;
} small_model;

static int64_t wide(int layer) { return WIDTH + 32 * (layer % 3); } /* layers differ in size */

static lz_dims dims_of(int i) {
    if (i == WEIGHTS - 1) return LZ_DIMS(WIDTH); /* one that every layer reads */
    int64_t n = wide(i / 3);
    return i % 3 == 0 ? LZ_DIMS(n, WIDTH) : i % 3 == 1 ? LZ_DIMS(n) : LZ_DIMS(WIDTH, n);
}

static small_model make_model(lz_context *ctx, bool few) {
    small_model m = {.ctx = ctx, .layers = few ? 3 : LAYERS, .passes = few ? 1 : 2};
    test_random random = {7};
    lz_scope *scope = lz_scope_begin(ctx, "model");
    for (int i = 0; i < WEIGHTS; i++) {
        lz_dims d = dims_of(i);
        int64_t n = d.at[0] * (d.n > 1 ? d.at[1] : 1);
        m.numbers[i] = malloc((size_t)n * sizeof(float));
        for (int64_t k = 0; k < n; k++) m.numbers[i][k] = (float)random_normal(&random) / 10;
        m.weights[i] = lz_retain(lz_borrow(ctx, d, LZ_F32, m.numbers[i], NULL, NULL));
        m.bytes += n * (int64_t)sizeof(float);
    }
    lz_scope_end(scope);
    return m;
}

static void release_weights(small_model *m) {
    for (int i = 0; i < WEIGHTS; i++) lz_release(m->weights[i]);
}

static void free_numbers(small_model *m) {
    for (int i = 0; i < WEIGHTS; i++) free(m->numbers[i]);
}

static void free_model(small_model *m) {
    release_weights(m);
    free_numbers(m);
}

/* x [ROWS, WIDTH] goes twice through all layers, as with guidance: the second time some are still there. */
static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const small_model *m = user;
    lz_array *x = in[0];
    for (int pass = 0; pass < m->passes; pass++)
        for (int i = 0; i < m->layers; i++) {
            lz_array *h = lz_linear(lz_rms_norm(x, m->weights[WEIGHTS - 1], 1e-6), m->weights[3 * i],
                                    m->weights[3 * i + 1]);
            x = lz_add(x, lz_linear(lz_silu(h), m->weights[3 * i + 2], NULL));
        }
    out[0] = x;
}

static lz_array *input(lz_context *ctx, int turn) {
    float x[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)((i * 37 + turn * 11) % 101) / 50 - 1;
    return lz_from(ctx, LZ_DIMS(ROWS, WIDTH), LZ_F32, x);
}

/* The result of a turn with room for everything; few: of three layers, once. */
static const float *right(int turn, bool few) {
    static float known[2][3][ROWS * WIDTH];
    static bool done[2][3];
    float *to = known[few][turn];
    if (done[few][turn]) return to;
    lz_error err = {0};
    lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, 0);
    if (!ctx) return to;
    small_model m = make_model(ctx, few);
    lz_scope *scope = lz_scope_begin(ctx, "right");
    lz_array *x = input(ctx, turn), *y = NULL;
    describe(ctx, &x, &y, &m);
    done[few][turn] = CHECK_OK(lz_copy(y, to, sizeof known[few][turn], &err), &err);
    CHECK_I64(lz_memory_info(ctx).streamed, 0);
    lz_scope_end(scope);
    free_model(&m);
    lz_close(ctx);
    return to;
}

static bool is_right(const float *got, int turn, bool few) {
    return got && same_bits(got, right(turn, few), ROWS * WIDTH * sizeof *got);
}

/* ---- what is planned is what happens ----------------------------------------------------------------------------- */

typedef struct seen {
    lz_status status;
    lz_plan_info plan;
    int64_t peak, streamed; /* of the run alone */
} seen;

/* Plans it, runs it, compares the bits. */
static seen run_once(small_model *m, int turn) {
    lz_context *ctx = m->ctx;
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "run");
    lz_array *x = input(ctx, turn), *y = NULL;
    seen s = {.status = LZ_OK};
    describe(ctx, &x, &y, m);
    CHECK_OK(lz_plan(&y, 1, &s.plan, &err), &err);
    lz_reset_peak(ctx);
    lz_memory before = lz_memory_info(ctx);
    s.status = lz_eval(y, &err);
    lz_memory after = lz_memory_info(ctx);
    s.peak = after.peak - before.active;
    s.streamed = after.streamed - before.streamed;
    const float *got = s.status ? NULL : lz_data(y, &err);
    if (!s.status) CHECK(is_right(got, turn, false), "limit %lld", (long long)after.limit);
    if (s.status) CHECK(err.text[0]);
    lz_scope_end(scope);
    return s;
}

enum { LARGEST = (WIDTH + 64) * WIDTH * 4 };

/* From room for everything down to too little for anything: the same bits, planned as it happens, until it says no. */
static void every_limit(void) {
    int64_t most = 0;
    int rises = 0, refused = 0;
    for (int64_t limit = 1200000; limit > 40000; limit -= 29000) {
        lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, limit);
        if (!ctx) return;
        small_model m = make_model(ctx, false);
        seen s = run_once(&m, 0);
        CHECK_I64(s.plan.weight_bytes, m.bytes);
        if (s.status) {
            CHECK_I64(s.status, LZ_OUT_OF_MEMORY);
            CHECK(s.plan.device_bytes > limit - 4096, "%lld", (long long)limit);
            refused++;
        } else {
            CHECK_I64(s.peak, s.plan.device_bytes);
            CHECK_I64(s.streamed, s.plan.streamed_bytes);
            CHECK(s.peak <= limit);
            CHECK(s.streamed + LARGEST >= most, "limit %lld: %lld", (long long)limit, (long long)s.streamed);
            rises += s.streamed > most;
            if (s.streamed > most) most = s.streamed;
        }
        free_model(&m);
        lz_memory left = lz_memory_info(ctx); /* the ring, which the next run may want */
        CHECK(s.streamed ? left.active <= s.plan.resident_bytes : left.active == 0);
        lz_close(ctx);
    }
    CHECK(rises > 10 && refused > 0 && most > 0, "%d, %d", rises, refused);
}

/* The three ways to deal with a model that does not fit, and with one that does. */
static void modes(void) {
    enum { LITTLE = 400000, ENOUGH = 1200000 };
    for (int fits = 0; fits < 2; fits++)
        for (int mode = LZ_OFFLOAD_AUTO; mode <= LZ_OFFLOAD_STREAM; mode++) {
            lz_context *ctx = open_with(mode, fits ? ENOUGH : LITTLE);
            if (!ctx) return;
            small_model m = make_model(ctx, false);
            for (int turn = 0; turn < 3; turn++) {
                seen s = run_once(&m, turn);
                CHECK_I64(s.status, mode == LZ_OFFLOAD_NONE && !fits ? LZ_OUT_OF_MEMORY : LZ_OK);
                bool streams = mode == LZ_OFFLOAD_STREAM || (mode == LZ_OFFLOAD_AUTO && !fits);
                CHECK(streams ? s.streamed > 0 : s.streamed == 0, "mode %d", mode);
                if (mode == LZ_OFFLOAD_STREAM) CHECK(s.streamed >= m.bytes && s.plan.resident_bytes < 3 * LARGEST);
            }
            free_model(&m);
            lz_close(ctx);
        }
    lz_error err = {0};
    CHECK(!open_as_asked(LZ_CONTEXT_OPTIONS(.offload = 3), &err));
    CHECK_TEXT(err.text, "offload is auto, none or stream");
}

/* One sentence, and the context is as good as before: smaller things run, and the same one when there is room. */
static void refuses(void) {
    lz_context *ctx = open_with(LZ_OFFLOAD_NONE, 400000);
    if (!ctx) return;
    small_model m = make_model(ctx, false);
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "test");
    lz_array *x = input(ctx, 0), *y = NULL, *z = NULL;
    describe(ctx, &x, &y, &m);
    int64_t active = lz_memory_info(ctx).active;
    CHECK_STATUS(lz_eval(y, &err), LZ_OUT_OF_MEMORY, &err);
    CHECK_TEXT(err.text, "bytes of weights are needed there at once");
    CHECK_TEXT(err.text, "offload 'auto'");
    CHECK_I64(lz_memory_info(ctx).active, active);
    z = lz_sum(lz_linear(x, m.weights[0], NULL), LZ_NONE, false);
    CHECK_OK(lz_eval(z, &err), &err);
    lz_set_memory_limit(ctx, 1200000);
    const float *got = lz_data(y, &err);
    CHECK(is_right(got, 0, false), "%s", err.text);
    lz_scope_end(scope);
    lz_set_memory_limit(ctx, 70000); /* not one layer */
    scope = lz_scope_begin(ctx, "test");
    x = input(ctx, 0);
    describe(ctx, &x, &y, &m);
    CHECK_STATUS(lz_eval(y, &err), LZ_OUT_OF_MEMORY, &err);
    lz_scope_end(scope);
    free_model(&m);
    lz_close(ctx);

    ctx = open_with(LZ_OFFLOAD_AUTO, 70000);
    m = make_model(ctx, false);
    scope = lz_scope_begin(ctx, "test");
    x = input(ctx, 0);
    describe(ctx, &x, &y, &m);
    CHECK_STATUS(lz_eval(y, &err), LZ_OUT_OF_MEMORY, &err);
    CHECK_TEXT(err.text, "cannot be streamed either");
    lz_scope_end(scope);
    free_model(&m);
    lz_close(ctx);
}

/* ---- compiled functions ------------------------------------------------------------------------------------------ */

/* Streamed again and again; then there is room, and it is recorded and replayed; then there is none again. */
static void compiled(void) {
    lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, 500000);
    if (!ctx) return;
    small_model m = make_model(ctx, false);
    lz_error err = {0};
    lz_compiled *f = lz_compile(ctx, describe, &m, 1, 1, 1, &err);
    static const int64_t limits[] = {500000, 500000, 500000, 1200000, 1200000, 1200000, 300000, 300000, 600000};
    int64_t sent[sizeof limits / sizeof *limits];
    for (int i = 0; i < (int)(sizeof limits / sizeof *limits); i++) {
        lz_scope *scope = lz_scope_begin(ctx, "turn");
        lz_set_memory_limit(ctx, limits[i]);
        lz_array *x = input(ctx, i % 3), *y = NULL;
        int64_t before = lz_memory_info(ctx).streamed;
        lz_reset_peak(ctx);
        const float *got = lz_run(f, &x, &y, &err) ? NULL : lz_data(y, &err);
        CHECK(is_right(got, i % 3, false), "turn %d: %s", i, err.text);
        sent[i] = lz_memory_info(ctx).streamed - before;
        if (i && limits[i] <= limits[i - 1]) CHECK(lz_memory_info(ctx).peak <= limits[i], "turn %d", i);
        lz_scope_end(scope);
    }
    CHECK(sent[0] > 0 && sent[1] == sent[0] && sent[2] == sent[0], "%lld, %lld", (long long)sent[1],
          (long long)sent[2]);
    CHECK(sent[3] == 0 && sent[4] == 0 && sent[5] == 0);
    CHECK(sent[6] > sent[0] && sent[7] == sent[6] && sent[8] > 0 && sent[8] < sent[0]);
    CHECK_I64(lz_compiled_stats(f).compiles, 1);
    lz_compiled_free(f);
    free_model(&m);
    lz_close(ctx);
}

/* One run after the other, and nobody looks until all are under way: each uses the ring that the one before still
 * reads. */
static void without_waiting(void) {
    lz_context *ctx = open_with(LZ_OFFLOAD_STREAM, 0);
    if (!ctx) return;
    small_model m = make_model(ctx, false);
    lz_error err = {0};
    lz_compiled *f = lz_compile(ctx, describe, &m, 1, 1, 1, &err);
    for (int round = 0; round < 2; round++) { /* kernels may wait when they run first */
        lz_scope *scope = lz_scope_begin(ctx, "round");
        lz_array *y[3];
        for (int turn = 0; turn < 3; turn++) {
            lz_array *x = input(ctx, turn);
            CHECK_OK(lz_run(f, &x, &y[turn], &err), &err);
        }
        for (int turn = 0; turn < 3; turn++) CHECK(is_right(lz_data(y[turn], &err), turn, false), "turn %d", turn);
        lz_scope_end(scope);
    }
    lz_compiled_free(f);
    free_model(&m);
    lz_close(ctx);
}

/* Weights that come as arguments: parts of one piece of memory, other ones every time. */
static void describe_arguments(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    lz_array *x = in[0];
    for (int i = 1; i < 5; i++) x = lz_matmul(x, in[i]);
    out[0] = x;
}

static void arguments(void) {
    enum { N = 100 };
    static float numbers[6][N][N], want[2][N];
    test_random random = {3};
    for (int i = 0; i < 6 * N * N; i++) (&numbers[0][0][0])[i] = (float)random_normal(&random) / 10;
    for (int limited = 0; limited < 2; limited++) {
        lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, limited ? 180000 : 0);
        if (!ctx) return;
        lz_error err = {0};
        lz_compiled *f = lz_compile(ctx, describe_arguments, NULL, 5, 1, 1, &err);
        for (int turn = 0; turn < 6; turn++) {
            lz_scope *scope = lz_scope_begin(ctx, "turn");
            int first = turn % 2;
            lz_array *both = lz_borrow(ctx, LZ_DIMS(2, N, N), LZ_F32, numbers[first], NULL, NULL), *y = NULL;
            lz_array *x = lz_slice(lz_borrow(ctx, LZ_DIMS(N, N), LZ_F32, numbers[5], NULL, NULL), 0, 3, 4, 1);
            lz_array *in[] = {x, lz_reshape(lz_slice(both, 0, 1, 2, 1), LZ_DIMS(N, N)),
                              lz_borrow(ctx, LZ_DIMS(N, N), LZ_F32, numbers[2 + first], NULL, NULL),
                              lz_reshape(lz_slice(both, 0, 0, 1, 1), LZ_DIMS(N, N)),
                              turn > 3 ? lz_from(ctx, LZ_DIMS(N, N), LZ_F32, numbers[4])
                                       : lz_borrow(ctx, LZ_DIMS(N, N), LZ_F32, numbers[4], NULL, NULL)};
            const float *got = lz_run(f, in, &y, &err) ? NULL : lz_data(y, &err);
            if (!limited && turn < 2 && got) memcpy(want[turn], got, sizeof want[turn]);
            CHECK(got && same_bits(got, want[first], sizeof want[first]), "turn %d: %s", turn, err.text);
            lz_scope_end(scope);
        }
        CHECK(!limited == !lz_memory_info(ctx).streamed);
        lz_compiled_free(f);
        lz_close(ctx);
    }
}

/* ---- odd weights ------------------------------------------------------------------------------------------------- */

/* One element, none, odd numbers of bytes, several in one step, f64 (which is computed here), indices, and a result
 * that is a view of a weight, which nothing reads there. */
static void odd_weights(void) {
    enum { N = 4001 };
    static float a[N], b[N], c[N], d[1] = {0.5F};
    static double e[N];
    static uint8_t bytes[N];
    static const int64_t indices[3] = {5, 0, N - 1};
    for (int i = 0; i < N; i++) a[i] = (float)i, b[i] = 2, c[i] = (float)(i % 7), e[i] = i * 1e-3, bytes[i] = i % 251;
    float want[3] = {0};
    for (int mode = LZ_OFFLOAD_AUTO; mode <= LZ_OFFLOAD_STREAM; mode++) {
        lz_context *ctx = open_with(mode, 0);
        if (!ctx) return;
        lz_error err = {0};
        lz_scope *scope = lz_scope_begin(ctx, "odd");
#define BORROW(type, array) lz_borrow(ctx, LZ_DIMS(sizeof(array) / sizeof *(array)), type, array, NULL, NULL)
        lz_array *wa = BORROW(LZ_F32, a), *none = lz_borrow(ctx, LZ_DIMS(0), LZ_F32, a, NULL, NULL);
        lz_array *sum = lz_add(lz_mul(wa, BORROW(LZ_F32, b)), lz_mul(BORROW(LZ_F32, c), BORROW(LZ_F32, d)));
        sum = lz_add(sum, lz_cast(BORROW(LZ_U8, bytes), LZ_F32));
        lz_array *exact = lz_sum(lz_mul(BORROW(LZ_F64, e), BORROW(LZ_F64, e)), LZ_NONE, false);
        sum = lz_add(lz_add(sum, lz_cast(exact, LZ_F32)), lz_sum(none, LZ_NONE, false));
        lz_array *out[2] = {lz_take(sum, BORROW(LZ_I64, indices), 0), lz_slice(wa, 0, 7, 9, 1)};
        CHECK_OK(lz_eval_all(out, 2, &err), &err);
        const float *got = lz_data(out[0], &err), *part = lz_data(out[1], &err);
        if (mode == LZ_OFFLOAD_AUTO && got) memcpy(want, got, sizeof want);
        CHECK(got && same_bits(got, want, sizeof want) && fabsf(want[1] - want[0] + 12.5F + 5) < 20, "%s", err.text);
        CHECK(part && part[0] == 7 && part[1] == 8);
        CHECK((mode == LZ_OFFLOAD_STREAM) == (lz_memory_info(ctx).streamed > 0));
        lz_scope_end(scope);
        lz_close(ctx);
    }
}

/* ---- making room ------------------------------------------------------------------------------------------------- */

static void describe_half(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    lz_array *const *weights = user;
    lz_array *x = in[0];
    for (int i = 0; i < LAYERS / 2; i++)
        x = lz_linear(lz_silu(lz_linear(x, weights[3 * i], NULL)), weights[3 * i + 2], NULL);
    out[0] = x;
}

/* Two functions whose weights fit one at a time: those of the other go, the longest unused first, and nothing is
 * streamed. What others ask for makes them go as well, and kept arenas too. */
static void makes_room(void) {
    lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, 380000);
    if (!ctx) return;
    small_model m = make_model(ctx, false);
    lz_error err = {0};
    lz_compiled *f[2] = {lz_compile(ctx, describe_half, m.weights, 1, 1, 1, &err),
                         lz_compile(ctx, describe_half, m.weights + 9, 1, 1, 1, &err)};
    float first[2][ROWS * WIDTH];
    for (int turn = 0; turn < 8; turn++) {
        lz_scope *scope = lz_scope_begin(ctx, "turn");
        lz_array *x = input(ctx, 0), *y = NULL;
        int which = turn < 6 ? turn % 2 : 0;
        const float *got = lz_run(f[which], &x, &y, &err) ? NULL : lz_data(y, &err);
        if (turn < 2 && got) memcpy(first[which], got, sizeof first[which]);
        CHECK(got && same_bits(got, first[which], sizeof first[which]), "turn %d: %s", turn, err.text);
        lz_scope_end(scope);
        CHECK(lz_memory_info(ctx).peak <= 380000);
        if (turn == 4) { /* nearly all of the memory, for something else */
            scope = lz_scope_begin(ctx, "other");
            CHECK_OK(lz_eval(lz_arange(ctx, 0, 93000, 1, LZ_F32), &err), &err);
            lz_scope_end(scope);
        }
    }
    CHECK_I64(lz_memory_info(ctx).streamed, 0);
    lz_compiled_free(f[0]);
    lz_compiled_free(f[1]);
    free_model(&m);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* The same without a limit, on a device that has no more: the driver itself says no. */
static void small_device(void) {
    for (long bytes = 1200000; bytes > 200000; bytes -= 100000) {
        set_option("LAZULI_SIM_MEMORY", bytes);
        lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, 0);
        unsetenv("LAZULI_SIM_MEMORY");
        if (!ctx) return;
        small_model m = make_model(ctx, false);
        for (int turn = 0; turn < 3; turn++) {
            seen s = run_once(&m, turn);
            CHECK_I64(s.status, LZ_OK);
        }
        free_model(&m);
        lz_close(ctx);
    }
}

static void *work(void *user) {
    lz_context *ctx = user;
    small_model m = make_model(ctx, false);
    lz_error err = {0};
    lz_compiled *f = lz_compile(ctx, describe, &m, 1, 1, 1, &err);
    for (int i = 0; i < 9; i++) {
        lz_scope *scope = lz_scope_begin(ctx, "work");
        lz_array *x = input(ctx, i % 3), *y = NULL;
        const float *got = lz_run(f, &x, &y, &err) ? NULL : lz_data(y, &err);
        CHECK(is_right(got, i % 3, false), "turn %d: %s", i, err.text);
        lz_scope_end(scope);
    }
    lz_compiled_free(f);
    free_model(&m);
    return NULL;
}

/* Two threads, each with a model of its own, take the memory from each other. */
static void threads(void) {
    for (int turn = 0; turn < 3; turn++) right(turn, false);
    lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, 450000);
    if (!ctx) return;
    pthread_t other;
    if (CHECK(pthread_create(&other, NULL, work, ctx) == 0)) {
        work(ctx);
        pthread_join(other, NULL);
    }
    CHECK(lz_memory_info(ctx).streamed > 0 && lz_memory_info(ctx).peak <= 450000);
    lz_close(ctx);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Any call of the driver may fail: in planning, sending, waiting, computing. Then there is an error, or all is well
 * nevertheless; the next run is right, and in the end everything has been given back. */
static void fail_each_call(int mode) {
    long before = simulator_count("lz_sim_live"), failed = 0;
    bool through = false;
    for (long call = 1; !through && call < 100000; call++) {
        lz_error err = {0};
        set_option("LAZULI_SIM_FAIL", call);
        lz_context_options o = LZ_CONTEXT_OPTIONS(.device = "cuda", .cache_limit = -1, .threads = 1,
                                                  .memory_limit = 230000, .offload = mode, .compute = LZ_F32);
        lz_context *ctx = open_as_asked(o, &err);
        if (!ctx) CHECK(err.text[0]);
        if (ctx) {
            small_model m = make_model(ctx, true);
            lz_compiled *f = lz_compile(ctx, describe, &m, 1, 1, 1, &err);
            int good = 0;
            for (int turn = 0; turn < 2 || (turn == 2 && good < 2); turn++) {
                lz_scope *scope = lz_scope_begin(ctx, "turn");
                lz_array *x = input(ctx, turn), *y = NULL;
                err = (lz_error){0};
                const float *got = lz_run(f, &x, &y, &err) ? NULL : lz_data(y, &err);
                CHECK(got ? is_right(got, turn, true) : err.text[0] != 0, "call %ld, turn %d", call, turn);
                good += got != NULL;
                failed += !got;
                lz_scope_end(scope);
            }
            CHECK(good >= 2, "call %ld: %s", call, err.text);
            CHECK(lz_memory_info(ctx).streamed > 0);
            through = simulator_count("lz_sim_calls") < call;
            lz_compiled_free(f);
            free_model(&m);
        }
        lz_close(ctx);
        CHECK_I64(simulator_count("lz_sim_live"), before);
    }
    unsetenv("LAZULI_SIM_FAIL");
    CHECK(through && failed > 50, "%ld", failed);
}

static void failing_calls(void) {
    if (simulator_count("lz_sim_calls") < 0) return;
    for (int turn = 0; turn < 3; turn++) right(turn, true);
    fail_each_call(LZ_OFFLOAD_AUTO);
    fail_each_call(LZ_OFFLOAD_STREAM);
}

/* The same for the host's own memory. */
typedef struct failing {
    atomic_llong asked, outstanding;
    long long fail_at;
} failing;

static void *failing_allocate(void *user, size_t bytes) {
    failing *f = user;
    if (atomic_fetch_add(&f->asked, 1) + 1 == f->fail_at) return NULL;
    atomic_fetch_add(&f->outstanding, (long long)bytes);
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void failing_release(void *user, void *memory, size_t bytes) {
    atomic_fetch_sub(&((failing *)user)->outstanding, (long long)bytes);
    free(memory);
}

static void failing_allocations(void) {
    right(0, true);
    bool through = false;
    for (long long number = 1; !through && number < 100000; number++) {
        failing f = {.fail_at = number};
        lz_allocator allocator = {failing_allocate, failing_release, &f};
        lz_error err = {0};
        lz_context_options o = LZ_CONTEXT_OPTIONS(.device = "cuda", .cache_limit = -1, .threads = 1,
                                                  .memory_limit = 230000, .allocator = &allocator, .compute = LZ_F32);
        lz_context *ctx = open_as_asked(o, &err);
        if (ctx) {
            small_model m = make_model(ctx, true);
            lz_compiled *c = lz_compile(ctx, describe, &m, 1, 1, 1, &err);
            lz_scope *scope = lz_scope_begin(ctx, "turn");
            lz_array *x = input(ctx, 0), *y = NULL;
            const float *got = c && !lz_run(c, &x, &y, &err) ? lz_data(y, &err) : NULL;
            CHECK(got ? is_right(got, 0, true) : err.text[0] != 0, "allocation %lld", number);
            lz_scope_end(scope);
            lz_compiled_free(c);
            free_model(&m);
            through = f.asked < number;
        }
        lz_close(ctx);
        CHECK_I64(f.outstanding, 0);
    }
    CHECK(through);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static lz_picture_options apple(int64_t width) {
    return LZ_PICTURE_OPTIONS(.prompt = "a red apple", .seed = 5, .width = width, .height = 32, .steps = 1);
}

static bool paint(lz_model *model, int64_t width, lz_picture *p) {
    lz_error err = {0};
    lz_picture_options o = apple(width);
    return CHECK_OK(lz_generate_with(model, &o, p, &err), &err);
}

static bool same_picture(const lz_picture *a, const lz_picture *b) {
    return same_bits(a->image.pixels, b->image.pixels, 3 * a->image.width * a->image.height);
}

/* In less memory than its weights take: the same picture, twice, then a larger one; and what the plan says a step sends
 * is about what it sends. */
static void paint_with_less(int mode, int64_t limit, const lz_picture *want) {
    lz_error err = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .memory_limit = limit, .offload = mode), NULL);
    lz_model *model = lz_model_open(ctx, LZ_SOURCE_DIR "/models/demo", &err);
    lz_picture_plan plan;
    lz_picture_options o = apple(32);
    CHECK_OK(lz_plan_picture(model, &o, &plan, &err), &err);
    CHECK(plan.device_bytes <= limit && plan.streamed_bytes > 5 << 20);
    for (int turn = 0; turn < (mode == LZ_OFFLOAD_AUTO ? 3 : 1); turn++) {
        lz_picture p;
        if (!paint(model, turn < 2 ? 32 : 48, &p)) break;
        if (turn < 2) CHECK(same_picture(&p, want), "turn %d", turn);
        double ratio = (double)p.streamed_bytes / (double)plan.streamed_bytes;
        CHECK(turn == 2 || (ratio > 0.9 && ratio < 1.15), "%lld, planned %lld", (long long)p.streamed_bytes,
              (long long)plan.streamed_bytes);
        lz_picture_free(&p);
    }
    CHECK(lz_memory_info(ctx).peak <= limit);
    lz_model_close(model);
    lz_close(ctx);
}

/* An error where nothing may be streamed; with room, the same context paints. */
static void paint_or_refuse(int64_t limit, const lz_picture *want) {
    lz_error err = {0};
    lz_picture p;
    lz_context *ctx = open_as_asked(
        LZ_CONTEXT_OPTIONS(.device = "cuda", .memory_limit = limit, .offload = LZ_OFFLOAD_NONE), NULL);
    lz_model *model = lz_model_open(ctx, LZ_SOURCE_DIR "/models/demo", &err);
    lz_picture_options o = apple(32);
    CHECK_STATUS(lz_generate_with(model, &o, &p, &err), LZ_OUT_OF_MEMORY, &err);
    CHECK_TEXT(err.text, "offload 'auto'");
    lz_set_memory_limit(ctx, 0);
    if (paint(model, 32, &p)) CHECK(same_picture(&p, want));
    lz_picture_free(&p);
    lz_model_close(model);
    lz_close(ctx);
}

/* The demo model, with room for half of the weights of a step. */
static void paints(void) {
    lz_error err = {0};
    lz_picture want;
    lz_picture_plan plan;
    lz_picture_options o = apple(32);
    unsetenv("LAZULI_SIM_STRICT"); /* whole pictures take long with it, and the tests before had it */
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda"), NULL);
    lz_model *model = ctx ? lz_model_open(ctx, LZ_SOURCE_DIR "/models/demo", &err) : NULL;
    if (CHECK(model, "%s", err.text) && CHECK_OK(lz_plan_picture(model, &o, &plan, &err), &err) &&
        paint(model, 32, &want)) {
        int64_t limit = plan.stages[1].device_bytes - (10 << 20), decode = plan.stages[2].device_bytes;
        CHECK(want.streamed_bytes == 0 && plan.streamed_bytes == 0 && lz_memory_info(ctx).peak > limit);
        if (limit > decode) { /* if not, convolutions here want more than that to work in */
            paint_with_less(LZ_OFFLOAD_AUTO, limit, &want);
            paint_with_less(LZ_OFFLOAD_STREAM, limit, &want);
            paint_or_refuse(limit, &want);
        }
        lz_picture_free(&want);
    }
    lz_model_close(model);
    lz_close(ctx);
}

/* A job that was planned sends its weights and prepares its programs ahead, and makes the same picture. A second job is
 * stopped while that is done. */
typedef struct early {
    lz_context *ctx;
    int64_t bytes; /* of weights */
    bool stops, seen;
} early;

static bool await_bytes(lz_context *ctx, int64_t bytes) {
    for (int i = 0; i < 5000 && lz_memory_info(ctx).active < bytes; i++) usleep(1000);
    return lz_memory_info(ctx).active >= bytes;
}

/* While the text is encoded, the weights of all stages arrive. */
static bool watch_early(void *user, const lz_progress *now) {
    early *e = user;
    if (!strcmp(now->stage, "text") && !e->seen) e->seen = await_bytes(e->ctx, e->bytes);
    return !e->stops;
}

static int64_t all_weights(const lz_picture_plan *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->n_stages; i++) bytes += plan->stages[i].weight_bytes;
    return bytes;
}

static void paints_ahead(void) {
    lz_error err = {0};
    lz_picture want, got = {.ctx = NULL};
    lz_picture_plan plan;
    lz_picture_options o = apple(32);
    unsetenv("LAZULI_SIM_STRICT");
    long before = simulator_count("lz_sim_live");
    for (int i = 0; i < 4; i++) {
        bool stops = i & 1, expected = i & 2;
        early e = {.stops = stops};
        lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda"), NULL);
        lz_model *model = ctx ? lz_model_open(ctx, LZ_SOURCE_DIR "/models/demo", &err) : NULL;
        if (!CHECK(model, "%s", err.text)) return;
        e.ctx = ctx;
        o.watch = watch_early;
        o.user = &e;
        lz_job *job = lz_job_new(model, &o, &err);
        if (expected) lz_job_expect(job);
        if (CHECK(job, "%s", err.text) && CHECK_OK(lz_job_plan(job, &plan, &err), &err)) {
            if (expected) CHECK(await_bytes(ctx, plan.stages[0].weight_bytes * 9 / 10));
            e.bytes = all_weights(&plan) * 9 / 10;
            lz_status status = lz_job_run(job, &got, &err);
            CHECK(status == (stops ? LZ_CANCELLED : LZ_OK), "%s", err.text);
            CHECK(e.seen, "%lld bytes", (long long)e.bytes);
            if (!status && paint(model, 32, &want)) {
                CHECK(!memcmp(want.image.pixels, got.image.pixels, (size_t)(3 * want.image.width * want.image.height)));
                lz_picture_free(&want);
            }
            if (!status) lz_picture_free(&got);
        }
        lz_job_free(job);
        lz_model_close(model);
        lz_close(ctx);
    }
    CHECK_I64(simulator_count("lz_sim_live"), before);
}

/* A planned job that was cancelled before it runs, or that is refused, sends nothing. */
static void ends_early(void) {
    lz_error err = {0};
    lz_picture p;
    lz_picture_plan plan;
    lz_image image = {0};
    unsetenv("LAZULI_SIM_STRICT");
    for (int refused = 0; refused < 2; refused++) {
        lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda"), NULL);
        if (!CHECK(ctx)) return;
        lz_model *model = lz_model_open(
            ctx, refused ? LZ_SOURCE_DIR "/tests/data/layered/Y" : LZ_SOURCE_DIR "/models/demo", &err);
        CHECK_OK(lz_image_read_alpha(ctx, LZ_SOURCE_DIR "/tests/data/layered/wide.png", &image, &err), &err);
        lz_picture_options o = apple(32);
        if (refused) o = LZ_PICTURE_OPTIONS(.prompt = "", .images = &image, .n_images = 1, .steps = 1);
        lz_job *job = lz_job_new(model, &o, &err);
        if (CHECK(job, "%s", err.text) && CHECK_OK(lz_job_plan(job, &plan, &err), &err)) {
            if (!refused) lz_job_cancel(job);
            lz_reset_peak(ctx);
            int64_t active = lz_memory_info(ctx).active;
            CHECK_STATUS(lz_job_run(job, &p, &err), refused ? LZ_BAD_ARGUMENT : LZ_CANCELLED, &err);
            usleep(20000);
            CHECK(lz_memory_info(ctx).peak - active < plan.weight_bytes / 4);
        }
        lz_job_free(job);
        lz_image_free(ctx, &image);
        lz_model_close(model);
        lz_close(ctx);
    }
}

/* Layers are decoded by a program that is prepared ahead. */
static void layers_ahead(void) {
    lz_error err = {0};
    lz_picture p[2] = {{.ctx = NULL}};
    lz_picture_plan plan;
    lz_image image = {0};
    unsetenv("LAZULI_SIM_STRICT");
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda"), NULL);
    lz_model *model = ctx ? lz_model_open(ctx, LZ_SOURCE_DIR "/tests/data/layered/Y", &err) : NULL;
    if (!CHECK(model, "%s", err.text)) return;
    CHECK_OK(lz_image_read_alpha(ctx, LZ_SOURCE_DIR "/tests/data/layered/wide.png", &image, &err), &err);
    lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "a fox", .images = &image, .n_images = 1, .steps = 1,
                                              .layers = 2);
    for (int i = 0; i < 2; i++) {
        lz_job *job = lz_job_new(model, &o, &err);
        if (!i) CHECK_OK(lz_job_plan(job, &plan, &err), &err);
        CHECK_OK(lz_job_run(job, &p[i], &err), &err);
        lz_job_free(job);
    }
    for (int i = 0; i < 2 && p[0].n_layers == 2 && CHECK_I64(p[1].n_layers, 2); i++)
        CHECK(
            same_bits(p[0].layers[i].pixels, p[1].layers[i].pixels, 4 * p[0].layers[i].width * p[0].layers[i].height));
    for (int i = 0; i < 2; i++) lz_picture_free(&p[i]);
    lz_image_free(ctx, &image);
    lz_model_close(model);
    lz_close(ctx);
}

typedef struct painter {
    lz_model *model;
    lz_picture picture;
} painter;

static void *paint_planned(void *user) {
    painter *p = user;
    lz_error err = {0};
    lz_picture_plan plan;
    lz_picture_options o = apple(32);
    lz_job *job = lz_job_new(p->model, &o, &err);
    lz_job_expect(job);
    CHECK_OK(lz_job_plan(job, &plan, &err), &err);
    CHECK_OK(lz_job_run(job, &p->picture, &err), &err);
    lz_job_free(job);
    return NULL;
}

/* Two jobs of one model send the same weights. The first has memory for all, the second for one of the stages. */
static void two_ahead(void) {
    int64_t limit = 0;
    unsetenv("LAZULI_SIM_STRICT");
    for (int little = 0; little < 2; little++) {
        lz_error err = {0};
        lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .memory_limit = limit), NULL);
        lz_model *model = ctx ? lz_model_open(ctx, LZ_SOURCE_DIR "/models/demo", &err) : NULL;
        if (!CHECK(model, "%s", err.text)) return;
        painter painters[2] = {{.model = model}, {.model = model}};
        pthread_t other;
        if (CHECK(pthread_create(&other, NULL, paint_planned, &painters[1]) == 0)) {
            paint_planned(&painters[0]);
            pthread_join(other, NULL);
            if (painters[0].picture.image.pixels && CHECK(painters[1].picture.image.pixels))
                CHECK(same_picture(&painters[0].picture, &painters[1].picture));
        }
        if (limit) CHECK(lz_memory_info(ctx).peak <= limit);
        limit = lz_memory_info(ctx).peak * 3 / 4;
        for (int i = 0; i < 2; i++) lz_picture_free(&painters[i].picture);
        lz_model_close(model);
        lz_close(ctx);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Weights of a file are read through its descriptor. A file that became shorter is an error, for a small and for a large
 * weight, and the context works after it. */
static void shorter_file(void) {
    enum { FEW = 100, MANY = 1 << 20 };
    static float numbers[MANY];
    lz_error err = {0};
    lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, 0);
    if (!ctx) return;
    const char *base = getenv("TMPDIR");
    char path[300];
    snprintf(path, sizeof path, "%s/lazuli-test-%ld.safetensors", base ? base : "/tmp", (long)getpid());
    for (int i = 0; i < MANY; i++) numbers[i] = (float)(i % 7);
    for (int shorter = 0; shorter < 2; shorter++)
        for (int large = 0; large < 2; large++) {
            lz_scope *scope = lz_scope_begin(ctx, "file");
            lz_named_array a = {"a", lz_from(ctx, LZ_DIMS(large ? MANY : FEW), LZ_F32, numbers)};
            CHECK_OK(lz_weights_save(ctx, path, &a, 1, NULL, &err), &err);
            lz_weights *file = lz_weights_open(ctx, path, &err);
            if (CHECK(file, "%s", err.text)) {
                lz_array *y = lz_add(lz_weights_get(file, "a"), 1.0);
                if (shorter) CHECK(truncate(path, large ? 4 * MANY / 2 : 100) == 0);
                err.status = LZ_OK;
                lz_status status = lz_eval(y, &err);
                CHECK(status == (shorter ? LZ_IO : LZ_OK), "%s", err.text);
                if (shorter) CHECK_TEXT(err.text, "the file was changed after it was opened");
                if (!status) CHECK(((const float *)lz_data(y, &err))[FEW - 1] == 1 + numbers[FEW - 1]);
            }
            lz_weights_close(file);
            lz_scope_end(scope);
            remove(path);
        }
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* ---- ahead ------------------------------------------------------------------------------------------------------- */

/* Plans f, and sends its weights ahead. false: there was no room, or an error. */
static bool send_ahead(lz_context *ctx, lz_compiled *f, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, "plan");
    lz_array *x = input(ctx, 0), *y = NULL;
    lz_plan_info info;
    bool sends = !lz_compiled_plan(f, &x, &y, &info, err) && lz_compiled_preload(f);
    lz_scope_end(scope);
    return sends;
}

/* Runs f for a turn. false: there was an error, and a sentence about it. */
static bool run_turn(lz_context *ctx, lz_compiled *f, int turn, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, "turn");
    lz_array *x = input(ctx, turn), *y = NULL;
    *err = (lz_error){0};
    const float *got = lz_run(f, &x, &y, err) ? NULL : lz_data(y, err);
    CHECK(got ? is_right(got, turn, false) : err->text[0] != 0, "turn %d: %s", turn, err->text);
    lz_scope_end(scope);
    return got;
}

/* Weights are sent ahead of the run if all of them fit, and the results are the same. run: the function runs after it, or
 * the context is closed while weights are sent. Returns the number of runs that failed. */
static int run_ahead(int offload, int64_t limit, bool runs) {
    lz_error err = {0};
    int failed = 0;
    lz_context_options o = LZ_CONTEXT_OPTIONS(.device = "cuda", .cache_limit = -1, .threads = 2, .offload = offload,
                                              .memory_limit = limit, .compute = LZ_F32);
    lz_context *ctx = open_as_asked(o, &err);
    if (!ctx) return 1;
    small_model m = make_model(ctx, false);
    lz_compiled *f = lz_compile(ctx, describe, &m, 1, 1, 1, &err);
    bool fits = !limit && offload != LZ_OFFLOAD_STREAM, sends = send_ahead(ctx, f, &err);
    CHECK(sends == fits || getenv("LAZULI_SIM_FAIL"));
    for (int turn = 0; runs && turn < 3; turn++) failed += !run_turn(ctx, f, turn, &err);
    if (runs && !failed) CHECK((lz_memory_info(ctx).streamed == 0) == fits);
    lz_compiled_free(f);
    release_weights(&m);
    lz_close(ctx); /* weights that are being sent are read until then */
    free_numbers(&m);
    return failed;
}

static void ahead(void) {
    long before = simulator_count("lz_sim_live");
    for (int turn = 0; turn < 3; turn++) right(turn, false);
    CHECK_I64(run_ahead(LZ_OFFLOAD_AUTO, 0, true), 0);
    CHECK_I64(run_ahead(LZ_OFFLOAD_AUTO, 500000, true), 0);
    CHECK_I64(run_ahead(LZ_OFFLOAD_STREAM, 0, true), 0);
    CHECK_I64(run_ahead(LZ_OFFLOAD_AUTO, 0, false), 0);
    CHECK_I64(simulator_count("lz_sim_live"), before);
    /* They arrive without a run. */
    lz_error err = {0};
    lz_context *ctx = open_with(LZ_OFFLOAD_AUTO, 0);
    if (!ctx) return;
    small_model m = make_model(ctx, false);
    lz_compiled *f = lz_compile(ctx, describe, &m, 1, 1, 1, &err);
    long freed = driver_calls("cuMemFreeHost");
    CHECK(send_ahead(ctx, f, &err));
    CHECK(await_bytes(ctx, m.bytes));
    for (int i = 0; i < 5000 && freed >= 0 && driver_calls("cuMemFreeHost") == freed; i++) usleep(1000);
    if (freed >= 0) CHECK(driver_calls("cuMemFreeHost") > freed); /* page-locked memory of the threads that send */
    CHECK(run_turn(ctx, f, 0, &err), "%s", err.text);
    lz_compiled_free(f);
    free_model(&m);
    lz_close(ctx);
}

/* A function with a weight of 12 MiB. */
enum { TALL = 1024, BROAD = 3072, MIB = 1 << 20 };

static void describe_heavy(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    out[0] = lz_matmul(in[0], user);
}

static lz_array *heavy_input(lz_context *ctx) {
    static float x[TALL];
    for (int i = 0; i < TALL; i++) x[i] = (float)(i % 5);
    return lz_from(ctx, LZ_DIMS(1, TALL), LZ_F32, x);
}

static bool send_heavy(lz_context *ctx, lz_compiled *f) {
    lz_error err = {0};
    lz_plan_info info;
    lz_scope *scope = lz_scope_begin(ctx, "plan");
    lz_array *x = heavy_input(ctx), *y = NULL;
    bool sends = CHECK_OK(lz_compiled_plan(f, &x, &y, &info, &err), &err) && lz_compiled_preload(f);
    lz_scope_end(scope);
    return sends;
}

/* Computes an array of 8 MiB, which is cached afterwards. */
static void take_memory(lz_context *ctx, const char *when) {
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "other");
    CHECK(lz_eval(lz_arange(ctx, 0, 2 * MIB, 1, LZ_F32), &err) == LZ_OK, "%s: %s", when, err.text);
    lz_scope_end(scope);
}

static void run_heavy(lz_context *ctx, lz_compiled *f) {
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "run");
    lz_array *x = heavy_input(ctx), *y = NULL;
    const float *got = lz_run(f, &x, &y, &err) ? NULL : lz_data(y, &err);
    float want = 0;
    for (int i = 0; i < TALL; i++) want += (float)(i % 5) * (float)(i % 3);
    if (CHECK(got, "%s", err.text)) CHECK(got[0] == want && got[BROAD - 1] == want);
    lz_scope_end(scope);
}

/* Memory for the weights, or for an array, but not for both: the array is computed while the weights are sent, after
 * they have arrived, and while another run uses the device. memory: the limit of the context, or the memory of the simulated
 * device. */
static void heavy_ahead(bool limited, long memory) {
    static float numbers[TALL][BROAD];
    for (int i = 0; i < TALL; i++)
        for (int k = 0; k < BROAD; k++) numbers[i][k] = (float)(i % 3);
    lz_error err = {0};
    if (!limited) set_option("LAZULI_SIM_MEMORY", memory);
    lz_context *ctx = open_as_asked(
        LZ_CONTEXT_OPTIONS(.device = "cuda", .threads = 2, .memory_limit = limited ? memory : 0, .compute = LZ_F32),
        &err);
    unsetenv("LAZULI_SIM_MEMORY");
    if (!CHECK(ctx, "%s", err.text)) return;
    lz_array *w = lz_retain(lz_borrow(ctx, LZ_DIMS(TALL, BROAD), LZ_F32, numbers, NULL, NULL));
    lz_compiled *f[2];
    for (int i = 0; i < 2; i++) f[i] = lz_compile(ctx, describe_heavy, w, 1, 1, 1, &err);
    take_memory(ctx, "before");
    for (int runs = 0; runs < 2; runs++) {
        CHECK(send_heavy(ctx, f[0]));
        if (runs) lz_device_run_begin(ctx); /* a run that does not use the weight */
        double begun = lz_now();
        while (lz_memory_info(ctx).active < 12 * MIB && lz_now() < begun + 5) {}
        lz_buffer *b = lz_buffer_new(ctx, 9 * MIB, &err); /* waits for the weight, and evicts it */
        CHECK(b, "runs %d: %s", runs, err.text);
        lz_buffer_release(b);
        if (runs) lz_device_run_end(ctx);
    }
    CHECK(send_heavy(ctx, f[0]));
    CHECK(send_heavy(ctx, f[1])); /* the same weight */
    take_memory(ctx, "while weights are sent");
    CHECK(send_heavy(ctx, f[1]));
    for (int i = 0; i < 2; i++) run_heavy(ctx, f[i]);
    if (limited) CHECK(lz_memory_info(ctx).peak <= memory, "%lld", (long long)lz_memory_info(ctx).peak);
    for (int i = 0; i < 2; i++) lz_compiled_free(f[i]);
    lz_release(w);
    lz_close(ctx);
}

static void short_of_memory(void) {
    bool simulated = simulator_count("lz_sim_live") >= 0;
    for (int i = 0; i < 8; i++) {
        heavy_ahead(true, 16 * MIB);
        if (simulated) heavy_ahead(false, 17 * MIB);
    }
}

/* The same while one call of the driver fails. Which one that is differs from run to run, because threads call it. */
static void ahead_failing(void) {
    long before = simulator_count("lz_sim_live");
    if (before < 0) return;
    for (int turn = 0; turn < 3; turn++) right(turn, false);
    for (long call = 1; call < 400; call += 3) {
        set_option("LAZULI_SIM_FAIL", call);
        CHECK(run_ahead(LZ_OFFLOAD_AUTO, 0, true) <= 1, "call %ld", call);
        CHECK_I64(simulator_count("lz_sim_live"), before);
    }
    unsetenv("LAZULI_SIM_FAIL");
}

/* ---- queues ------------------------------------------------------------------------------------------------------ */

/* All but the long ones once more, with queues that work at once, and that run ahead of each other. */
static void other_queues(void) {
    const char *given = getenv("LAZULI_SIM_ASYNC");
    char *old = given ? strdup(given) : NULL;
    for (int mode = 0; mode <= 2; mode += 2) {
        set_option("LAZULI_SIM_ASYNC", mode);
        every_limit();
        modes();
        compiled();
        without_waiting();
        arguments();
        odd_weights();
        makes_room();
        ahead();
    }
    if (old)
        setenv("LAZULI_SIM_ASYNC", old, 1);
    else
        unsetenv("LAZULI_SIM_ASYNC");
    free(old);
}

TEST_MAIN({"every_limit", every_limit}, {"modes", modes}, {"refuses", refuses}, {"compiled", compiled},
          {"without_waiting", without_waiting}, {"arguments", arguments}, {"odd_weights", odd_weights},
          {"makes_room", makes_room}, {"small_device", small_device}, {"threads", threads},
          {"other_queues", other_queues}, {"failing_calls", failing_calls},
          {"failing_allocations", failing_allocations}, {"shorter_file", shorter_file}, {"ahead", ahead},
          {"ahead_failing", ahead_failing}, {"short_of_memory", short_of_memory}, {"paints", paints},
          {"paints_ahead", paints_ahead}, {"ends_early", ends_early}, {"layers_ahead", layers_ahead},
          {"two_ahead", two_ahead})
