/* cuda_sdpa.c: compares our own attention for Hopper (kernels/sdpa90.cu) with cuDNN, at sizes of FLUX.2 [klein] 4B and
 * Qwen-Image: 24 heads of 128, rows of tokens, bf16, and with queries and keys of f8. For each length and each configuration
 * it prints microseconds and TFLOP/s, cold (the median of many runs, with an empty cache before each) and warm (a recording
 * that is replayed until the GPU reaches its power limit), and the largest error of some rows against f64.
 *
 * Usage: cuda_sdpa [queries [keys]], such as cuda_sdpa 4245; without arguments it measures all lengths
 *   LZ_DEVICE=cuda:1   another device
 *   LZ_HEADS=2         number of heads instead of 24, for a test on a simulated GPU
 *   LZ_SECONDS=0.05    duration of the warm runs */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/internal.h"
#include "backend/cuda/sdpa90.h"
#include "cli/environment.h"
#include "op/number.h"

enum { HEAD = 128, COLD_RUNS = 31, WARM_RUNS = 30, SAMPLES = 6 };

static const int64_t all_lengths[][2] = {{768, 768},   {1024, 1536}, {1173, 1173}, {1536, 1536},
                                         {4096, 4608}, {4245, 4245}, {4608, 4608}};

typedef struct bench {
    lz_device *d;
    lz_error err;
    int64_t heads, n, m;
    lz_tensor in[3], out;
    lz_tensor narrow[2]; /* q and k as f8 */
    uint16_t *host[3];   /* the numbers of q, k, v */
    lz_params params;
    lz_call call;
    char *flush;
    lz_cu_event begin, end;
    lz_sdpa90_config way; /* keys 0: the library */
    lz_cu_function function;
} bench;

static float number_at(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}

/* A random number, roughly normal. */
static uint16_t random_bits(uint32_t *state) {
    int sum = 0;
    for (int j = 0; j < 4; j++) sum += (int)((*state = *state * 1664525u + 1013904223u) >> 24) - 128;
    float f = (float)sum / 148;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static lz_tensor tensor_of(bench *b, int64_t tokens) {
    return (lz_tensor){.dtype = LZ_BF16,
                       .dims = LZ_DIMS(1, b->heads, tokens, HEAD),
                       .strides = {tokens * b->heads * HEAD, HEAD, b->heads * HEAD, 1}};
}

static bool run(bench *b) {
    lz_sdpa90 a;
    if (!b->way.keys) return lz_cuda_sdpa.run(&b->call);
    return lz_sdpa90_reads(&b->call, &a) && lz_sdpa90_run(&a, &b->way, b->function, b->call.scratch);
}

/* ---- the exact result, row by row ----------------------------------------------------------------------------------------- */

static double row_error(bench *b, int64_t head, int64_t token) {
    int64_t row = b->heads * HEAD;
    const uint16_t *q = b->host[0] + token * row + head * HEAD;
    double *shares = malloc((size_t)b->m * sizeof *shares), most = -INFINITY, sum = 0, wrong = 0, all = 0;
    for (int64_t j = 0; j < b->m; j++) {
        const uint16_t *k = b->host[1] + j * row + head * HEAD;
        shares[j] = 0;
        for (int i = 0; i < HEAD; i++) shares[j] += (double)number_at(q[i]) * (double)number_at(k[i]);
        shares[j] *= b->params.sdpa.scale;
        most = fmax(most, shares[j]);
    }
    for (int64_t j = 0; j < b->m; j++) sum += shares[j] = exp(shares[j] - most);
    uint16_t got[HEAD];
    char *at = b->out.data + (token * row + head * HEAD) * 2;
    bool read = lz_cuda_device_table.read(b->d, got, at, sizeof got, &b->err);
    for (int i = 0; i < HEAD; i++) {
        double want = 0;
        for (int64_t j = 0; j < b->m; j++) want += shares[j] * (double)number_at(b->host[2][j * row + head * HEAD + i]);
        wrong += pow((double)number_at(got[i]) - want / sum, 2), all += pow(want / sum, 2);
    }
    free(shares);
    return read ? sqrt(wrong / all) : NAN;
}

/* The largest error of some rows, the last one among them; NaN if an element is NaN. */
static double error_of(bench *b) {
    double worst = 0;
    size_t bytes = (size_t)(b->n * b->heads * HEAD * 2);
    if (b->d->api.cu.MemsetD8Async((lz_cu_ptr)(uintptr_t)b->out.data, 0xff, bytes, b->d->stream) || !run(b)) return NAN;
    for (int i = 0; i < SAMPLES; i++) {
        int64_t token = i == 0 ? b->n - 1 : (int64_t)i * 7919 % b->n, head = i == 0 ? b->heads - 1 : i * 5 % b->heads;
        double error = row_error(b, head, token);
        if (!(error <= worst)) worst = error;
        if (isnan(worst)) break;
    }
    return worst;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double cold_seconds(bench *b) {
    const lz_device *d = b->d;
    float times[COLD_RUNS];
    for (int i = 0; i < COLD_RUNS; i++)
        if (d->api.cu.MemsetD8Async((lz_cu_ptr)(uintptr_t)b->flush, 0, 2 * (size_t)d->cache_bytes, d->stream) ||
            d->api.cu.EventRecord(b->begin, d->stream) || !run(b) || d->api.cu.EventRecord(b->end, d->stream) ||
            d->api.cu.EventSynchronize(b->end) || d->api.cu.EventElapsedTime(&times[i], b->begin, b->end))
            return INFINITY;
    qsort(times, COLD_RUNS, sizeof *times, by_size);
    return times[COLD_RUNS / 2] * 1e-3;
}

/* A recording of 30 launches, as in a model, replayed many times. */
static double warm_seconds(bench *b, double once) {
    const lz_device_table *t = &lz_cuda_device_table;
    const char *wish = getenv("LZ_SECONDS");
    int turns = (int)((wish ? atof(wish) : 0.05) / (WARM_RUNS * once)) + 1;
    float milliseconds = 0;
    bool fine = t->record(b->d, &b->err);
    for (int i = 0; i < WARM_RUNS && fine; i++) fine = run(b);
    lz_recording *r = fine ? t->end_record(b->d, &b->err) : NULL;
    fine = r && t->replay(b->d, r, &b->err) && !b->d->api.cu.EventRecord(b->begin, b->d->stream);
    for (int i = 0; i < turns && fine; i++) fine = t->replay(b->d, r, &b->err);
    fine = fine && !b->d->api.cu.EventRecord(b->end, b->d->stream) && !b->d->api.cu.EventSynchronize(b->end) &&
           !b->d->api.cu.EventElapsedTime(&milliseconds, b->begin, b->end);
    if (r) t->forget(b->d, r);
    return fine ? milliseconds * 1e-3 / turns / WARM_RUNS : INFINITY;
}

/* ---- one length -------------------------------------------------------------------------------------------------- */

/* true: the result is correct. */
static bool measure(bench *b, const char *name) {
    double error = error_of(b), cold = isnan(error) ? INFINITY : cold_seconds(b);
    double warm = isfinite(cold) ? warm_seconds(b, cold) : INFINITY;
    double work = 4.0 * (double)b->heads * (double)b->n * (double)b->m * HEAD * 1e-12;
    bool fine = error <= (b->in[0].dtype == LZ_F8 ? 0.1 : 0.01);
    printf("  %-18s cold %8.1f us %6.1f   warm %8.1f us %6.1f   error %.1e%s\n", name, cold * 1e6, work / cold,
           warm * 1e6, work / warm, error, fine ? "" : " WRONG");
    if (!fine && b->err.status) printf("    %s\n", b->err.text);
    fflush(stdout);
    return fine;
}

static bool prepare(bench *b) {
    const lz_device_table *t = &lz_cuda_device_table;
    uint32_t state = 1;
    bool fine = true;
    for (int i = 0; i < 3; i++) {
        b->in[i] = tensor_of(b, i ? b->m : b->n);
        int64_t numbers = b->in[i].dims.at[2] * b->heads * HEAD;
        b->host[i] = malloc((size_t)numbers * 2);
        for (int64_t j = 0; b->host[i] && j < numbers; j++) b->host[i][j] = random_bits(&state);
        b->in[i].data = t->allocate(b->d, numbers * 2, &b->err);
        fine = fine && b->host[i] && b->in[i].data &&
               t->write(b->d, b->in[i].data, (lz_bytes){.data = b->host[i]}, numbers * 2, &b->err);
    }
    for (int i = 0; i < 2 && fine; i++) {
        b->narrow[i] = b->in[i];
        int64_t numbers = b->in[i].dims.at[2] * b->heads * HEAD;
        uint8_t *codes = malloc((size_t)numbers);
        for (int64_t j = 0; codes && j < numbers; j++) codes[j] = lz_to_f8(number_at(b->host[i][j]));
        b->narrow[i].dtype = LZ_F8, b->narrow[i].data = t->allocate(b->d, numbers, &b->err);
        fine = codes && b->narrow[i].data &&
               t->write(b->d, b->narrow[i].data, (lz_bytes){.data = codes}, numbers, &b->err);
        free(codes);
    }
    b->out = tensor_of(b, b->n);
    b->out.data = t->allocate(b->d, b->n * b->heads * HEAD * 2, &b->err);
    memset(&b->params, 0, sizeof b->params);
    b->params.sdpa.scale = 1 / sqrt(HEAD);
    b->call = (lz_call){.op = LZ_OP_SDPA, .params = &b->params, .out = b->out, .in = b->in, .n_core = 3, .n_in = 3};
    b->call.device = b->d, b->call.err = &b->err;
    return fine && b->out.data;
}

static void forget(bench *b) {
    for (int i = 0; i < 3; i++) {
        if (b->in[i].data) lz_cuda_device_table.release(b->d, b->in[i].data);
        free(b->host[i]);
        if (i < 2 && b->narrow[i].data) lz_cuda_device_table.release(b->d, b->narrow[i].data);
    }
    if (b->out.data) lz_cuda_device_table.release(b->d, b->out.data);
}

static bool with_scratch(bench *b, const char *name, int64_t bytes) {
    b->call.scratch = bytes ? lz_cuda_device_table.allocate(b->d, bytes, &b->err) : NULL;
    bool fine = (!bytes || b->call.scratch) && measure(b, name);
    if (b->call.scratch) lz_cuda_device_table.release(b->d, b->call.scratch);
    return fine;
}

/* true: all results were correct. */
static bool run_length(bench *b) {
    lz_sdpa90 a;
    printf("%lld heads, %lld queries, %lld keys\n", (long long)b->heads, (long long)b->n, (long long)b->m);
    if (!prepare(b) || !lz_sdpa90_reads(&b->call, &a)) {
        printf("  our kernel cannot compute it %s\n", b->err.status ? b->err.text : "");
        return false;
    }
    setenv("LAZULI_CUDA_SDPA", "library", 1);
    b->way.keys = 0;
    bool fine = with_scratch(b, b->d->dnn ? "cuDNN" : "no cuDNN", lz_cuda_sdpa.scratch(&b->call));
    for (int i = 0; i < 2 * LZ_SDPA90_CONFIGS; i++) {
        char text[32];
        bool narrow = i >= LZ_SDPA90_CONFIGS;
        for (int j = 0; j < 2 && i == LZ_SDPA90_CONFIGS; j++) { /* from here on f8 */
            lz_tensor wide = b->in[j];
            b->in[j] = b->narrow[j], b->narrow[j] = wide;
        }
        if (!lz_sdpa90_reads(&b->call, &a)) return false;
        b->way = lz_sdpa90_configs(narrow)[i % LZ_SDPA90_CONFIGS];
        snprintf(text, sizeof text, "%s%dx%d%s", narrow ? "f8 " : "", b->way.queries, b->way.keys,
                 b->way.pingpong ? " in turn" : "");
        b->function = lz_sdpa90_function(&a, &b->way);
        if (!b->function) printf("  %s: %s\n", text, b->err.text);
        fine = b->function && with_scratch(b, text, lz_sdpa90_scratch(&a, &b->way)) && fine;
    }
    return fine;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int number_of(const char *text, int otherwise) { return text && atoi(text) > 0 ? atoi(text) : otherwise; }

static lz_context *open_device(void) {
    const char *device = getenv("LZ_DEVICE");
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device ? device : "cuda"), &err);
    if (!ctx) fprintf(stderr, "cuda_sdpa: %s\n", err.text);
    if (ctx) lz_cuda_device_table.enter(ctx->device);
    return ctx;
}

int main(int n_arguments, char **arguments) {
    int64_t n = n_arguments > 1 ? number_of(arguments[1], 0) : 0;
    int64_t m = n_arguments > 2 ? number_of(arguments[2], 0) : n;
    lz_context *ctx = open_device();
    if (!ctx) return 1;
    lz_device *d = ctx->device;
    bench b = {.d = d};
    b.flush = lz_cuda_device_table.allocate(d, 2 * d->cache_bytes, &b.err);
    if (!b.flush || d->api.cu.EventCreate(&b.begin, LZ_CU_EVENT_DEFAULT) ||
        d->api.cu.EventCreate(&b.end, LZ_CU_EVENT_DEFAULT)) {
        fprintf(stderr, "cuda_sdpa: %s\n", b.err.text);
        return 1;
    }
    printf("%s; TFLOP/s after each time; configurations: queries x keys\n", lz_device_name(ctx));
    int wrong = 0;
    for (size_t i = 0; i < (n ? 1 : sizeof all_lengths / sizeof *all_lengths); i++) {
        b.heads = number_of(getenv("LZ_HEADS"), 24);
        b.n = n ? n : all_lengths[i][0], b.m = n ? m : all_lengths[i][1];
        wrong += !run_length(&b);
        forget(&b);
    }
    printf(wrong ? "%d of the lengths WRONG\n" : "all right\n", wrong);
    return wrong != 0;
}
