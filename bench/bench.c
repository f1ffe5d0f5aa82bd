/* bench.c: measures the ops of image models in Lazuli, OpenBLAS and oneDNN, in one process. It uses the public header
 * only. It prints one line for each case and engine, with fields separated by tabs, of which bench/run makes a table:
 *
 *     case   engine   unit (GF or GB)   work in that unit   best seconds   median seconds   target
 *
 * The engines run alternately, with a pause before each. So another program that slows the machine down slows all of
 * them, and the threads of one engine are not spinning while another is measured. Compiled functions and oneDNN
 * primitives are made before the measurement. Weights are packed during it, except for oneDNN's convolution, which
 * chooses the layout of its weights. */
#include <lazuli.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef LZ_HAVE_OPENBLAS
#include <cblas.h>
#endif
#ifdef LZ_HAVE_DNNL
#include <dnnl.h>
#if DNNL_VERSION_MAJOR >= 3 /* a different API */
#undef LZ_HAVE_DNNL
#endif
#endif

#define MAX_REPEATS 64
#define MAX_ENGINES 4

static int threads, repeats;
static const char *only; /* only cases whose name contains this text are run */

static void die(const char *what) {
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

/* LZ_CLOCK=cpu counts the processor time of this process only. With one thread, that is fair while other programs use
 * the machine. */
static double seconds(void) {
    const char *wanted = getenv("LZ_CLOCK");
    clockid_t clock = wanted && strcmp(wanted, "cpu") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- engines, run alternately -------------------------------------------------------------------------------------- */

typedef struct engine {
    const char *name;
    void (*run)(void *state);
    void *state;
} engine;

typedef struct contest {
    char name[64];
    const char *unit, *target;
    double work;
    int n;
    engine engines[MAX_ENGINES];
} contest;

static void enter(contest *c, const char *name, void (*run)(void *), void *state) {
    c->engines[c->n++] = (engine){name, run, state};
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void hold(contest *c) {
    double times[MAX_ENGINES][MAX_REPEATS];
    for (int i = 0; i < c->n; i++)
        c->engines[i].run(c->engines[i].state); /* touches the memory and compiles; not measured */
    for (int r = 0; r < repeats; r++)
        for (int i = 0; i < c->n; i++) {
            usleep(40000);
            double start = seconds();
            c->engines[i].run(c->engines[i].state);
            times[i][r] = seconds() - start;
        }
    for (int i = 0; i < c->n; i++) {
        qsort(times[i], (size_t)repeats, sizeof(double), by_value);
        printf("%s\t%s\t%s\t%.6g\t%.6g\t%.6g\t%s\n", c->name, c->engines[i].name, c->unit, c->work, times[i][0],
               times[i][repeats / 2], c->target);
    }
    fflush(stdout);
}

/* ---- ours ------------------------------------------------------------------------------------------------------ */

typedef struct ours {
    lz_context *ctx;
    lz_compiled *compiled;
    lz_array *in[3];
} ours;

static void run_ours(void *state) {
    ours *o = state;
    lz_error err;
    lz_array *out;
    lz_scope *scope = lz_scope_begin(o->ctx, "bench");
    if (lz_run(o->compiled, o->in, &out, &err) != LZ_OK || !lz_data(out, &err)) die(err.text);
    lz_scope_end(scope);
}

static ours make_ours_with(lz_context *ctx, lz_function f, void *user, int n_in) {
    lz_error err;
    ours o = {.ctx = ctx, .compiled = lz_compile(ctx, f, user, n_in, 1, 2, &err)};
    if (!o.compiled) die(err.text);
    return o;
}
static ours make_ours(lz_context *ctx, lz_function f, int n_in) { return make_ours_with(ctx, f, NULL, n_in); }

static float *random_floats(int64_t n) {
    float *p = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    if (!p) die("out of memory");
    uint32_t u = 1;
    for (int64_t i = 0; i < n; i++) p[i] = (float)((u = u * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f;
    return p;
}

static lz_array *borrow(lz_context *ctx, lz_dims dims, const float *data) {
    return lz_borrow(ctx, dims, LZ_F32, data, NULL, NULL);
}

/* ---- linear layers: x [m, k] times w [n, k] transposed --------------------------------------------------------- */

typedef struct product {
    int64_t m, k, n;
    const float *x, *w;
    float *out;
} product;

static void describe_linear(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_linear(in[0], in[1], NULL);
}

#ifdef LZ_HAVE_OPENBLAS
static void run_openblas(void *state) {
    product *p = state;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)p->m, (int)p->n, (int)p->k, 1, p->x, (int)p->k, p->w,
                (int)p->k, 0, p->out, (int)p->n);
}
#endif

#ifdef LZ_HAVE_DNNL
static dnnl_engine_t dnnl_cpu_engine;
static dnnl_stream_t dnnl_cpu_stream;

typedef struct primitive {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[3];
    dnnl_memory_t weights_plain; /* in the layout of the caller; oneDNN reorders them */
} primitive;

static void check(dnnl_status_t status) {
    if (status != dnnl_success) die("oneDNN said no");
}

static void start_dnnl(void) {
    check(dnnl_engine_create(&dnnl_cpu_engine, dnnl_cpu, 0));
    check(dnnl_stream_create(&dnnl_cpu_stream, dnnl_cpu_engine, dnnl_stream_default_flags));
}

static void run_dnnl(void *state) {
    primitive *p = state;
    check(dnnl_primitive_execute(p->primitive, dnnl_cpu_stream, 3, p->args));
    check(dnnl_stream_wait(dnnl_cpu_stream));
}

static dnnl_memory_desc_t describe(int n, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t d;
    check(dnnl_memory_desc_init_by_tag(&d, n, dims, type, tag));
    return d;
}

static dnnl_memory_t memory(const dnnl_memory_desc_t *desc, const void *data) {
    dnnl_memory_t m;
    check(dnnl_memory_create(&m, desc, dnnl_cpu_engine, data ? (void *)data : DNNL_MEMORY_ALLOCATE));
    return m;
}

static void reorder(dnnl_memory_t from, dnnl_memory_t to) {
    const dnnl_memory_desc_t *a, *b;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t p;
    check(dnnl_memory_get_memory_desc(from, &a));
    check(dnnl_memory_get_memory_desc(to, &b));
    check(dnnl_reorder_primitive_desc_create(&pd, a, dnnl_cpu_engine, b, dnnl_cpu_engine, NULL));
    check(dnnl_primitive_create(&p, pd));
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    check(dnnl_primitive_execute(p, dnnl_cpu_stream, 2, args));
    check(dnnl_stream_wait(dnnl_cpu_stream));
    dnnl_primitive_destroy(p);
    dnnl_primitive_desc_destroy(pd);
}

static void free_primitive(primitive *p) {
    for (int i = 0; i < 3; i++) dnnl_memory_destroy(p->args[i].memory);
    if (p->weights_plain) dnnl_memory_destroy(p->weights_plain);
    dnnl_primitive_destroy(p->primitive);
}

/* All tensors in f32, or all in bf16: oneDNN 2 has no product of f32 and bf16. */
static bool dnnl_product(const product *p, bool bf16, primitive *to) {
    dnnl_memory_desc_t x32 = describe(2, (dnnl_dims_t){p->m, p->k}, dnnl_f32, dnnl_ab);
    dnnl_memory_desc_t w32 = describe(2, (dnnl_dims_t){p->k, p->n}, dnnl_f32, dnnl_ba);
    dnnl_memory_desc_t x = describe(2, (dnnl_dims_t){p->m, p->k}, bf16 ? dnnl_bf16 : dnnl_f32, dnnl_ab);
    dnnl_memory_desc_t w = describe(2, (dnnl_dims_t){p->k, p->n}, bf16 ? dnnl_bf16 : dnnl_f32, dnnl_ba);
    dnnl_memory_desc_t out = describe(2, (dnnl_dims_t){p->m, p->n}, bf16 ? dnnl_bf16 : dnnl_f32, dnnl_ab);
    dnnl_matmul_desc_t d;
    dnnl_primitive_desc_t pd;
    check(dnnl_matmul_desc_init(&d, &x, &w, NULL, &out));
    if (dnnl_primitive_desc_create(&pd, &d, NULL, dnnl_cpu_engine, NULL) != dnnl_success) return false;
    *to = (primitive){.args = {{DNNL_ARG_SRC, memory(&x, bf16 ? NULL : p->x)},
                               {DNNL_ARG_WEIGHTS, memory(&w, bf16 ? NULL : p->w)},
                               {DNNL_ARG_DST, memory(&out, p->out)}}};
    if (bf16) {
        dnnl_memory_t plain_x = memory(&x32, p->x), plain_w = memory(&w32, p->w);
        reorder(plain_x, to->args[0].memory);
        reorder(plain_w, to->args[1].memory);
        dnnl_memory_destroy(plain_x);
        dnnl_memory_destroy(plain_w);
    }
    check(dnnl_primitive_create(&to->primitive, pd));
    dnnl_primitive_desc_destroy(pd);
    return true;
}
#endif

/* All tensors in f32; only the weights in bf16; or all in bf16. */
typedef enum precision { F32, BF16_WEIGHTS, BF16 } precision;
static const char *const kind_names[] = {"f32", "bf16 weights", "bf16"};

static lz_array *as_bf16(lz_array *a) {
    lz_error err;
    a = lz_cast(a, LZ_BF16);
    if (lz_eval(a, &err) != LZ_OK) die(err.text);
    return a;
}

static void bench_linear(lz_context *ctx, int64_t m, int64_t k, int64_t n, precision kind) {
    static const char *const targets[] = {"0.95 peers", "0.90 f32", "1.00 peers"};
    contest c = {.unit = "GF", .work = 2e-9 * (double)m * (double)k * (double)n, .target = targets[kind]};
    snprintf(c.name, sizeof c.name, "linear %lldx%lld->%lld %s", (long long)m, (long long)k, (long long)n,
             kind_names[kind]);
    if (only && !strstr(c.name, only)) return;
    lz_scope *scope = lz_scope_begin(ctx, "linear");
    float *x = random_floats(m * k), *w = random_floats(n * k), *out = random_floats(m * n);
    product p = {m, k, n, x, w, out};
    ours o = make_ours(ctx, describe_linear, 2);
    o.in[0] = borrow(ctx, LZ_DIMS(m, k), x), o.in[1] = borrow(ctx, LZ_DIMS(n, k), w);
    if (kind != F32) o.in[1] = as_bf16(o.in[1]);
    if (kind == BF16) o.in[0] = as_bf16(o.in[0]);
    enter(&c, "lazuli", run_ours, &o);
#ifdef LZ_HAVE_OPENBLAS
    if (kind == F32) enter(&c, "openblas", run_openblas, &p);
#endif
#ifdef LZ_HAVE_DNNL
    primitive peer;
    bool entered = kind != BF16_WEIGHTS && dnnl_product(&p, kind == BF16, &peer);
    if (entered) enter(&c, "onednn", run_dnnl, &peer);
#endif
    hold(&c);
#ifdef LZ_HAVE_DNNL
    if (entered) free_primitive(&peer);
#endif
    (void)p;
    lz_compiled_free(o.compiled);
    lz_scope_end(scope);
    free(x), free(w), free(out);
}

/* ---- packed weights, beside the same layer with weights in bf16 --------------------------------------------------- */

typedef struct packing {
    const char *name;
    int elements, bytes; /* of a block */
    bool scale;          /* the tensor has one separate scale */
} packing;

static void describe_packed(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    const packing *p = user;
    lz_array *scale = p->scale ? lz_full(ctx, LZ_NONE, LZ_F32, 0.01) : NULL;
    out[0] = lz_linear(in[0], lz_unpack(in[1], scale, NULL, .packing = p->name, .dtype = LZ_BF16), NULL);
}

static void bench_packed(lz_context *ctx, int64_t m, int64_t k, int64_t n, const packing *p) {
    contest c = {.unit = "GF", .work = 2e-9 * (double)m * (double)k * (double)n, .target = "0.91 plain"};
    snprintf(c.name, sizeof c.name, "packed %lldx%lld->%lld %s", (long long)m, (long long)k, (long long)n, p->name);
    if (only && !strstr(c.name, only)) return;
    lz_scope *scope = lz_scope_begin(ctx, "packed");
    int64_t bytes = k / p->elements * p->bytes;
    float *x = random_floats(m * k), *w = random_floats(n * k);
    uint8_t *codes = (uint8_t *)random_floats(n * bytes / 4 + 1);
    for (int64_t i = 0; i < n * bytes; i++) codes[i] &= 0x3f; /* so that no scale of a block is infinite */
    ours packed = make_ours_with(ctx, describe_packed, (void *)p, 2), plain = make_ours(ctx, describe_linear, 2);
    packed.in[0] = plain.in[0] = as_bf16(borrow(ctx, LZ_DIMS(m, k), x));
    packed.in[1] = lz_borrow(ctx, LZ_DIMS(n, bytes), LZ_U8, codes, NULL, NULL);
    plain.in[1] = as_bf16(borrow(ctx, LZ_DIMS(n, k), w));
    enter(&c, "lazuli", run_ours, &packed);
    enter(&c, "plain", run_ours, &plain);
    hold(&c);
    lz_compiled_free(packed.compiled);
    lz_compiled_free(plain.compiled);
    lz_scope_end(scope);
    free(x), free(w), free(codes);
}

/* ---- 3x3 convolutions ------------------------------------------------------------------------------------------ */

static void describe_conv(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    lz_array *w = lz_permute(in[1], LZ_DIMS(0, 2, 3, 1)); /* stored [out, c, kh, kw] */
    out[0] = lz_conv2d(in[0], w, NULL, .top = 1, .bottom = 1, .left = 1, .right = 1);
}

#ifdef LZ_HAVE_DNNL
static bool dnnl_conv(int64_t size, int64_t channels, bool bf16, const float *x, const float *w, primitive *to) {
    dnnl_dims_t image = {1, channels, size, size}, filter = {channels, channels, 3, 3}, one = {1, 1};
    dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_memory_desc_t in = describe(4, image, type, dnnl_nhwc), plain_in = describe(4, image, dnnl_f32, dnnl_nhwc);
    dnnl_memory_desc_t plain = describe(4, filter, dnnl_f32, dnnl_oihw);
    dnnl_memory_desc_t any = describe(4, filter, type, dnnl_format_tag_any);
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t pd;
    check(dnnl_convolution_forward_desc_init(&d, dnnl_forward_inference, dnnl_convolution_direct, &in, &any, NULL, &in,
                                             one, one, one));
    if (dnnl_primitive_desc_create(&pd, &d, NULL, dnnl_cpu_engine, NULL) != dnnl_success) return false;
    const dnnl_memory_desc_t *chosen = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    *to = (primitive){.args = {{DNNL_ARG_SRC, memory(&in, NULL)},
                               {DNNL_ARG_WEIGHTS, memory(chosen, NULL)},
                               {DNNL_ARG_DST, memory(&in, NULL)}},
                      .weights_plain = memory(&plain, w)};
    dnnl_memory_t plain_x = memory(&plain_in, x);
    reorder(plain_x, to->args[0].memory);
    dnnl_memory_destroy(plain_x);
    reorder(to->weights_plain, to->args[1].memory);
    check(dnnl_primitive_create(&to->primitive, pd));
    dnnl_primitive_desc_destroy(pd);
    return true;
}
#endif

static void bench_conv(lz_context *ctx, int64_t size, int64_t channels, precision kind) {
    contest c = {.unit = "GF", .target = kind == BF16 ? "0.95 onednn" : "1.00 peers"};
    c.work = 2e-9 * 9 * (double)(size * size) * (double)(channels * channels);
    snprintf(c.name, sizeof c.name, "conv 3x3 %lld->%lld at %lldx%lld %s", (long long)channels, (long long)channels,
             (long long)size, (long long)size, kind_names[kind]);
    if (only && !strstr(c.name, only)) return;
    lz_scope *scope = lz_scope_begin(ctx, "conv");
    float *x = random_floats(size * size * channels), *w = random_floats(channels * channels * 9);
    ours o = make_ours(ctx, describe_conv, 2);
    o.in[0] = borrow(ctx, LZ_DIMS(1, size, size, channels), x);
    o.in[1] = borrow(ctx, LZ_DIMS(channels, channels, 3, 3), w);
    for (int i = 0; i < 2 && kind == BF16; i++) o.in[i] = as_bf16(o.in[i]);
    enter(&c, "lazuli", run_ours, &o);
#ifdef LZ_HAVE_DNNL
    primitive peer;
    bool entered = dnnl_conv(size, channels, kind == BF16, x, w, &peer);
    if (entered) enter(&c, "onednn", run_dnnl, &peer);
#endif
    hold(&c);
#ifdef LZ_HAVE_DNNL
    if (entered) free_primitive(&peer);
#endif
    lz_compiled_free(o.compiled);
    lz_scope_end(scope);
    free(x), free(w);
}

/* ---- attention: 24 heads of 128 -------------------------------------------------------------------------------- */

static void describe_attention(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_sdpa(in[0], in[1], in[2]);
}

static void bench_attention(lz_context *ctx, int64_t length, precision kind) {
    contest c = {.unit = "GF", .work = 4e-9 * (double)(length * length) * 24 * 128};
    c.target = kind == BF16 ? "1.20 torch" : "1.30 torch";
    snprintf(c.name, sizeof c.name, "attention 24x128 at %lld %s", (long long)length, kind_names[kind]);
    if (only && !strstr(c.name, only)) return;
    lz_scope *scope = lz_scope_begin(ctx, "attention");
    ours o = make_ours(ctx, describe_attention, 3);
    float *data[3];
    for (int i = 0; i < 3; i++) {
        data[i] = random_floats(24 * length * 128);
        o.in[i] = borrow(ctx, LZ_DIMS(1, 24, length, 128), data[i]);
        if (kind == BF16) o.in[i] = as_bf16(o.in[i]);
    }
    enter(&c, "lazuli", run_ours, &o);
    hold(&c);
    lz_compiled_free(o.compiled);
    lz_scope_end(scope);
    for (int i = 0; i < 3; i++) free(data[i]);
}

/* ---- memory: a fused norm beside a copy of as many bytes ------------------------------------------------------- */

static void describe_norm(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_modulated_norm(in[0], in[1], in[2], 1e-6);
}

typedef struct copy {
    char *to;
    const char *from;
    size_t bytes;
} copy;

static void *copy_part(void *arg) {
    copy *c = arg;
    memcpy(c->to, c->from, c->bytes);
    return NULL;
}

/* Copies with as many threads as the engines have. */
static void run_copy(void *state) {
    copy *c = state, parts[64];
    pthread_t ids[64];
    int n = threads < 64 ? threads : 64;
    for (int i = 0; i < n; i++) {
        size_t start = c->bytes * (size_t)i / (size_t)n, end = c->bytes * (size_t)(i + 1) / (size_t)n;
        parts[i] = (copy){c->to + start, c->from + start, end - start};
        if (pthread_create(&ids[i], NULL, copy_part, &parts[i]) != 0) die("no thread");
    }
    for (int i = 0; i < n; i++) pthread_join(ids[i], NULL);
}

static void bench_norm(lz_context *ctx, int64_t rows, int64_t width) {
    contest c = {.unit = "GB", .work = 2e-9 * 4 * (double)(rows * width), .target = "0.80 copy"};
    snprintf(c.name, sizeof c.name, "modulated norm %lldx%lld", (long long)rows, (long long)width);
    if (only && !strstr(c.name, only)) return;
    lz_scope *scope = lz_scope_begin(ctx, "norm");
    float *x = random_floats(rows * width), *scale = random_floats(width), *out = random_floats(rows * width);
    ours o = make_ours(ctx, describe_norm, 3);
    o.in[0] = borrow(ctx, LZ_DIMS(rows, width), x);
    o.in[1] = borrow(ctx, LZ_DIMS(width), scale), o.in[2] = o.in[1];
    copy all = {(char *)out, (const char *)x, (size_t)(rows * width) * sizeof(float)};
    enter(&c, "lazuli", run_ours, &o);
    enter(&c, "copy", run_copy, &all);
    hold(&c);
    lz_compiled_free(o.compiled);
    lz_scope_end(scope);
    free(x), free(scale), free(out);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? (int)strtol(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    threads = setting("LZ_THREADS", (int)sysconf(_SC_NPROCESSORS_ONLN));
    repeats = setting("LZ_REPEATS", 7);
    if (threads < 1) threads = 1;
    if (repeats < 1 || repeats > MAX_REPEATS) die("LZ_REPEATS must be 1 .. 64");
    only = argc > 1 ? argv[1] : NULL;
    /* Freed memory stays with the process. The other engines write results to memory that they keep; for Lazuli the
     * operating system would clear new pages in every run. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
    lz_error err;
    lz_context *ctx = lz_open(.threads = threads, .isa = getenv("LZ_ISA"), .error = &err);
    if (!ctx) die(err.text);
    fprintf(stderr, "lazuli %s on %s, %d repeats\n", lz_version(), lz_device_name(ctx), repeats);
#ifdef LZ_HAVE_OPENBLAS
    openblas_set_num_threads(threads);
#endif
#ifdef LZ_HAVE_DNNL
    start_dnnl(); /* reads the number of threads from OMP_NUM_THREADS, which bench/run sets */
#endif
    static const int64_t layers[][3] = {
        {2048, 2048, 2048}, {768, 3072, 27648}, {768, 12288, 3072}, {512, 2560, 9728}, {1536, 3072, 27648}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (precision kind = F32; kind <= BF16; kind++)
            bench_linear(ctx, layers[i][0], layers[i][1], layers[i][2], kind);
    static const packing packings[] = {
        {"q8_0", 32, 34, false}, {"q4_k", 256, 144, false}, {"q6_k", 256, 210, false}, {"e4m3", 1, 1, true}};
    for (int i = 1; i < 3; i++)
        for (size_t j = 0; j < sizeof packings / sizeof *packings; j++)
            bench_packed(ctx, layers[i][0], layers[i][1], layers[i][2], &packings[j]);
    for (int i = 0; i < 2; i++) {
        precision kind = i ? BF16 : F32;
        bench_attention(ctx, 768, kind);
        bench_attention(ctx, 1536, kind);
        bench_attention(ctx, 4608, kind);
        bench_conv(ctx, 64, 512, kind);
        bench_conv(ctx, 512, 128, kind);
    }
    bench_norm(ctx, 4608, 3072);
    lz_close(ctx);
    return 0;
}
