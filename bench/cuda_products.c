/* cuda_products.c: measures the products of FLUX.2 [klein] 4B on a GPU, through the array runtime: matrix products,
 * attention, convolutions of the autoencoder. It prints one line for each: time, TFLOP/s, and the largest error of some
 * elements against f64 on the host, relative to the root mean square of these elements.
 *
 * Usage: cuda-products [part of a case's name]
 *   LZ_DEVICE=cuda:1        another device
 *   LZ_SHRINK=8             all sizes are divided by this, for a test on a simulated GPU
 *   LAZULI_CUDA_TRACE=1     prints which algorithms were chosen, and what the libraries refused
 *   LAZULI_CUDA_DNN=0       our own kernels instead of cuDNN's */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/environment.h"

typedef enum kind { MATMUL, GATED, BIASED, SDPA, CONV } kind;

typedef struct sizes {
    const char *name;
    kind kind;
    lz_dtype type;
    int64_t a, b, c; /* products: m, n, k; SDPA: rows, heads, head size; CONV: side, channels in and out */
    int64_t groups;  /* SDPA: heads of the keys */
    int64_t stride;  /* CONV */
    bool causal, masked;
} sizes;

#define CASE(what, how, in, x, y, z, ...)                                                                              \
    { .name = what, .kind = how, .type = in, .a = x, .b = y, .c = z, ##__VA_ARGS__ }
#define LAYERS(m)                                                                                                      \
    CASE("matmul", MATMUL, LZ_BF16, m, 3072, 3072), CASE("matmul", MATMUL, LZ_BF16, m, 18432, 3072),                   \
        CASE("matmul", MATMUL, LZ_BF16, m, 27648, 3072), CASE("matmul", MATMUL, LZ_BF16, m, 3072, 12288),              \
        CASE("matmul", MATMUL, LZ_BF16, m, 3072, 9216)

static const sizes cases[] = {
    LAYERS(512),
    LAYERS(1536),
    LAYERS(4608),
    CASE("gated residual", GATED, LZ_BF16, 4608, 3072, 12288),
    CASE("bias", BIASED, LZ_BF16, 4608, 3072, 3072),
    CASE("matmul f16", MATMUL, LZ_F16, 4608, 3072, 3072),
    CASE("matmul f32", MATMUL, LZ_F32, 4608, 3072, 3072),
    CASE("sdpa", SDPA, LZ_BF16, 4608, 24, 128, .groups = 24),
    CASE("sdpa", SDPA, LZ_BF16, 1536, 24, 128, .groups = 24),
    CASE("sdpa causal", SDPA, LZ_BF16, 512, 32, 128, .groups = 8, .causal = true),
    CASE("sdpa masked", SDPA, LZ_BF16, 512, 32, 128, .groups = 8, .causal = true, .masked = true),
    CASE("sdpa masked", SDPA, LZ_BF16, 4608, 24, 128, .groups = 24, .masked = true),
    CASE("sdpa of the vae", SDPA, LZ_BF16, 16384, 1, 512, .groups = 1),
    CASE("sdpa masked", SDPA, LZ_BF16, 4096, 1, 512, .groups = 1, .masked = true),
    CASE("sdpa f32", SDPA, LZ_F32, 4096, 1, 512, .groups = 1),
    CASE("conv", CONV, LZ_BF16, 1024, 128, 128, .stride = 1),
    CASE("conv", CONV, LZ_BF16, 512, 256, 256, .stride = 1),
    CASE("conv", CONV, LZ_BF16, 256, 512, 512, .stride = 1),
    CASE("conv", CONV, LZ_BF16, 128, 512, 512, .stride = 1),
    CASE("conv", CONV, LZ_BF16, 1024, 128, 3, .stride = 1),
    CASE("conv", CONV, LZ_BF16, 512, 256, 256, .stride = 2),
    CASE("conv f32", CONV, LZ_F32, 512, 256, 256, .stride = 1),
};

enum { MAX_IN = 4, SAMPLES = 48, TABLE = 1 << 16 };

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

static uint32_t state = 1;
static uint32_t random_bits(void) { return (state = state * 1664525u + 1013904223u) >> 8; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Random numbers of this type, roughly normal: copies of a table, each from a random place on, which is fast. */
static void *random_numbers(lz_context *ctx, int64_t n, lz_dtype type, double scale) {
    static char table[TABLE * 4];
    float f[TABLE];
    for (int i = 0; i < TABLE; i++) {
        double sum = -6;
        for (int j = 0; j < 12; j++) sum += random_bits() / 16777216.0;
        f[i] = (float)(sum * scale);
    }
    lz_error err = {.status = LZ_OK};
    int64_t size = lz_dtype_size(type);
    lz_array *t = lz_cast(lz_from(ctx, LZ_DIMS(TABLE), LZ_F32, f), type);
    char *to = malloc((size_t)(n * size));
    if (!to || lz_copy(t, table, TABLE * size, &err)) {
        fprintf(stderr, "cuda-products: %s\n", err.status ? err.text : "out of memory");
        exit(1);
    }
    for (int64_t done = 0; done < n;) {
        int64_t from = random_bits() % (TABLE / 2), count = TABLE / 2 < n - done ? TABLE / 2 : n - done;
        memcpy(to + done * size, table + from * size, (size_t)(count * size));
        done += count;
    }
    return to;
}

static double number_at(const void *data, lz_dtype type, int64_t i) {
    if (type == LZ_F32) return ((const float *)data)[i];
    uint16_t bits = ((const uint16_t *)data)[i];
    if (type == LZ_BF16) {
        uint32_t wide = (uint32_t)bits << 16;
        float f;
        memcpy(&f, &wide, sizeof f);
        return f;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double f = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -f : f;
}

/* ---- a case ------------------------------------------------------------------------------------------------------- */

typedef struct work {
    sizes s;
    lz_dims dims[MAX_IN], out;
    int n_in;
    double flops, scale[MAX_IN];
    void *data[MAX_IN];
} work;

static void add_operand(work *w, lz_dims dims, double scale) {
    w->dims[w->n_in] = dims;
    w->scale[w->n_in++] = scale;
}

static work prepare(sizes s) {
    work w = {.s = s};
    switch (s.kind) {
    case MATMUL:
    case GATED:
    case BIASED:
        add_operand(&w, LZ_DIMS(s.a, s.c), 1);
        add_operand(&w, LZ_DIMS(s.b, s.c), 1 / sqrt((double)s.c));
        if (s.kind == GATED) add_operand(&w, LZ_DIMS(1, s.b), 1), add_operand(&w, LZ_DIMS(s.a, s.b), 1);
        if (s.kind == BIASED) add_operand(&w, LZ_DIMS(s.b), 1);
        w.out = LZ_DIMS(s.a, s.b);
        w.flops = 2.0 * (double)s.a * (double)s.b * (double)s.c;
        break;
    case SDPA: /* a row holds all heads of a token, as in models */
        add_operand(&w, LZ_DIMS(1, s.a, s.b, s.c), 1);
        add_operand(&w, LZ_DIMS(1, s.a, s.groups, s.c), 1);
        add_operand(&w, LZ_DIMS(1, s.a, s.groups, s.c), 1);
        if (s.masked) add_operand(&w, LZ_DIMS(1, 1, 1, s.a), 1);
        w.out = LZ_DIMS(1, s.b, s.a, s.c);
        w.flops = (s.causal ? 2.0 : 4.0) * (double)s.a * (double)s.a * (double)s.b * (double)s.c;
        break;
    case CONV: /* weights in the layout of published files: [out, in, 3, 3] */
        add_operand(&w, LZ_DIMS(1, s.a, s.a, s.b), 1);
        add_operand(&w, LZ_DIMS(s.c, s.b, 3, 3), 1 / sqrt(9.0 * (double)s.b));
        add_operand(&w, LZ_DIMS(s.c), 1);
        w.out = LZ_DIMS(1, s.a / s.stride, s.a / s.stride, s.c);
        w.flops = 18.0 * (double)(w.out.at[1] * w.out.at[2]) * (double)s.b * (double)s.c;
        break;
    }
    return w;
}

static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    const work *w = user;
    const lz_dims heads = LZ_DIMS(0, 2, 1, 3);
    (void)ctx;
    switch (w->s.kind) {
    case MATMUL: out[0] = lz_linear(in[0], in[1], NULL); break;
    case BIASED: out[0] = lz_linear(in[0], in[1], in[2]); break;
    case GATED: out[0] = lz_add(in[3], lz_mul(lz_linear(in[0], in[1], NULL), in[2])); break;
    case SDPA:
        out[0] = lz_sdpa(lz_permute(in[0], heads), lz_permute(in[1], heads), lz_permute(in[2], heads),
                         .causal = w->s.causal, .mask = w->s.masked ? in[3] : NULL);
        break;
    case CONV: {
        lz_array *weight = lz_permute(in[1], LZ_DIMS(0, 2, 3, 1));
        int before = w->s.stride == 1; /* a stride of 2 pads on the right and below only */
        out[0] = lz_conv2d(in[0], weight, in[2], .stride = (int)w->s.stride, .top = before, .bottom = 1, .left = before,
                           .right = 1);
    }
    }
}

/* ---- the exact result, element by element ---------------------------------------------------------------------------------- */

static double operand(const work *w, int i, int64_t at) { return number_at(w->data[i], w->s.type, at); }

static double matmul_element(const work *w, int64_t row, int64_t column) {
    double sum = 0;
    int64_t k = w->s.c;
    for (int64_t i = 0; i < k; i++) sum += operand(w, 0, row * k + i) * operand(w, 1, column * k + i);
    if (w->s.kind == BIASED) sum += operand(w, 2, column);
    if (w->s.kind == GATED) sum = sum * operand(w, 2, column) + operand(w, 3, row * w->s.b + column);
    return sum;
}

static double sdpa_element(const work *w, int64_t head, int64_t query, int64_t column) {
    int64_t n = w->s.a, d = w->s.c, group = head / (w->s.b / w->s.groups);
    double most = -INFINITY, sum = 0, total = 0, *scores = malloc((size_t)n * sizeof *scores);
    if (!scores) return NAN;
    int64_t keys = w->s.causal ? query + 1 : n;
    for (int64_t j = 0; j < keys; j++) {
        double dot = 0;
        for (int64_t c = 0; c < d; c++)
            dot += operand(w, 0, (query * w->s.b + head) * d + c) * operand(w, 1, (j * w->s.groups + group) * d + c);
        scores[j] = dot / sqrt((double)d) + (w->s.masked ? operand(w, 3, j) : 0);
        if (scores[j] > most) most = scores[j];
    }
    for (int64_t j = 0; j < keys; j++) {
        double weight = exp(scores[j] - most);
        total += weight;
        sum += weight * operand(w, 2, (j * w->s.groups + group) * d + column);
    }
    free(scores);
    return sum / total;
}

static double conv_element(const work *w, int64_t row, int64_t column, int64_t output) {
    int64_t side = w->s.a, c = w->s.b, before = w->s.stride == 1;
    double sum = operand(w, 2, output);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 3; j++) {
            int64_t y = row * w->s.stride + i - before, x = column * w->s.stride + j - before;
            if (y < 0 || y >= side || x < 0 || x >= side) continue;
            for (int64_t k = 0; k < c; k++)
                sum += operand(w, 0, (y * side + x) * c + k) * operand(w, 1, ((output * c + k) * 3 + i) * 3 + j);
        }
    return sum;
}

/* The largest error of some elements, the last one among them; NaN if an element is NaN. */
static double error_of(const work *w, const void *result, int64_t n) {
    double wrong = 0, all = 0;
    for (int i = 0; i < SAMPLES; i++) {
        int64_t at = i < 4 ? n - 1 - i : (int64_t)(((uint64_t)random_bits() << 24 | random_bits()) % (uint64_t)n);
        const int64_t *d = w->out.at;
        double want = 0, got = number_at(result, w->s.type, at);
        if (w->s.kind == SDPA)
            want = sdpa_element(w, at / (d[2] * d[3]), at / d[3] % d[2], at % d[3]);
        else if (w->s.kind == CONV)
            want = conv_element(w, at / (d[2] * d[3]), at / d[3] % d[2], at % d[3]);
        else
            want = matmul_element(w, at / d[1], at % d[1]);
        wrong += (got - want) * (got - want);
        all += want * want;
    }
    return sqrt(wrong / all);
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

static int64_t count(lz_dims d) {
    int64_t n = 1;
    for (int i = 0; i < d.n; i++) n *= d.at[i];
    return n;
}

/* Seconds of one run: the mean of many. Negative: it failed, and err has the reason. */
static double time_runs(lz_context *ctx, lz_compiled *f, lz_array *const *in, int runs, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, "runs");
    lz_array *out = NULL;
    double start = now();
    lz_status status = LZ_OK;
    for (int i = 0; i < runs && !status; i++) {
        lz_scope *one = lz_scope_begin(ctx, "run");
        status = lz_run(f, in, &out, err);
        if (i == runs - 1 && !status) status = lz_wait(out, err);
        lz_scope_end(one);
    }
    double taken = (now() - start) / runs;
    lz_scope_end(scope);
    return status ? -1 : taken;
}

static void print_name(const sizes *s) {
    char text[80];
    snprintf(text, sizeof text, "%s %lld %lld %lld", s->name, (long long)s->a, (long long)s->b, (long long)s->c);
    printf("%-34s ", text);
    fflush(stdout);
}

static lz_status run_case(lz_context *ctx, sizes s, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, s.name);
    work w = prepare(s);
    lz_array *in[MAX_IN], *out = NULL;
    print_name(&s);
    for (int i = 0; i < w.n_in; i++) {
        w.data[i] = random_numbers(ctx, count(w.dims[i]), s.type, w.scale[i]);
        in[i] = lz_from(ctx, w.dims[i], s.type, w.data[i]);
    }
    lz_compiled *f = lz_compile(ctx, describe, &w, w.n_in, 1, 2, err);
    double first = f ? time_runs(ctx, f, in, 1, err) : -1, once = first < 0 ? -1 : time_runs(ctx, f, in, 3, err);
    int runs = once <= 0 ? 1 : once > 0.15 ? 2 : (int)(0.3 / once) + 2;
    double each = once < 0 ? -1 : time_runs(ctx, f, in, runs, err);
    lz_status status = each < 0 ? err->status : lz_run(f, in, &out, err);
    void *result = malloc((size_t)(count(w.out) * lz_dtype_size(s.type)));
    if (!status && result) status = lz_copy(out, result, count(w.out) * lz_dtype_size(s.type), err);
    if (!status && result)
        printf("%10.1f us %8.1f TFLOP/s   error %.1e   first run %.2f s\n", each * 1e6, w.flops / each * 1e-12,
               error_of(&w, result, count(w.out)), first);
    else
        printf("%s\n", err->text);
    fflush(stdout);
    free(result);
    for (int i = 0; i < w.n_in; i++) free(w.data[i]);
    lz_compiled_free(f);
    lz_scope_end(scope);
    lz_clear_cache(ctx);
    return status;
}

static sizes shrunk(sizes s, int64_t by) {
    int64_t *all[] = {&s.a, &s.b, &s.c};
    for (int i = 0; i < 3; i++) *all[i] = *all[i] / by > 1 ? *all[i] / by : *all[i] < 8 ? *all[i] : 1;
    if (s.groups > s.b) s.groups = s.b;
    if (s.kind == SDPA && s.b % s.groups) s.b = s.groups;
    return s;
}

int main(int n_arguments, char **arguments) {
    const char *device = getenv("LZ_DEVICE"), *shrink = getenv("LZ_SHRINK");
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device ? device : "cuda"), &err);
    if (!ctx) {
        fprintf(stderr, "cuda-products: %s\n", err.text);
        return 1;
    }
    printf("%s\n", lz_device_name(ctx));
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (n_arguments > 1 && !strstr(cases[i].name, arguments[1])) continue;
        sizes s = shrink && atoi(shrink) > 1 ? shrunk(cases[i], atoi(shrink)) : cases[i];
        err.status = LZ_OK;
        failed += run_case(ctx, s, &err) != LZ_OK;
    }
    lz_close(ctx);
    return failed != 0;
}
