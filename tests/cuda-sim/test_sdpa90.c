/* test_sdpa90.c: every configuration of our own attention for Hopper against f64: sizes around the edges of tiles,
 * fewer heads of keys, batches, both orders of heads and tokens, tiles in parts, large scores, products of f8. Runs on a real
 * GPU or, with LAZULI_CUDA_PATH naming its libraries, on the simulated one. */
#include "backend/cuda/product.h"
#include "backend/cuda/sdpa90.h"
#include "hopper.h"

typedef struct problem {
    int64_t batches, heads, groups, n, m, d;
    lz_dtype type;
    bool token_major; /* [batch, token, head, number] in memory */
    double scale;
    int sms;                                                                       /* that are used */
    bool narrow;                                                                   /* q and k are f8 */
    enum { ALIKE, GROWING, SHRINKING, ZEROS_FIRST, ZEROS_LAST, ONE_LARGE } values; /* see size_of_value */
} problem;

enum { Q, K, V, OUT, OPERANDS };

typedef struct operands {
    lz_tensor t[OPERANDS];
    double *values[OPERANDS];
    int64_t bytes[OPERANDS];
} operands;

static uint32_t state = 1;
static double random_number(void) { return ((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0 - 1; }

static uint16_t bits_of(lz_dtype type, double v) {
    return type == LZ_F8 ? lz_to_f8((float)v) : type == LZ_BF16 ? lz_to_bf16((float)v) : lz_to_f16((float)v);
}
static double number_of(lz_dtype type, uint16_t bits) {
    return type == LZ_F8 ? lz_from_f8((uint8_t)bits) : type == LZ_BF16 ? lz_from_bf16(bits) : lz_from_f16(bits);
}

static int64_t offset_of(const lz_tensor *t, int64_t batch, int64_t head, int64_t token) {
    return batch * t->strides[0] + head * t->strides[1] + token * t->strides[2];
}

/* The factor of a value: 1; or it grows or shrinks by 1000 from the first token to the last; or it is 0 in the first or last
 * half; or it is 1, and in column 0 of the last token 64. */
static double size_of_value(const problem *p, int64_t token, int64_t column) {
    double at = (double)token / (double)p->m;
    switch (p->values) {
    case GROWING: return pow(1000, at);
    case SHRINKING: return pow(1000, -at);
    case ZEROS_FIRST: return at >= 0.5;
    case ZEROS_LAST: return at < 0.5;
    case ONE_LARGE: return token == p->m - 1 && column == 0 ? 64 : 1;
    default: return 1;
    }
}

/* 16 bytes after each row of heads or tokens are NaN, and must stay so. */
static void make_operand(lz_device *d, const problem *p, operands *o, int i) {
    lz_error err = {0};
    lz_dtype type = p->narrow && (i == Q || i == K) ? LZ_F8 : p->type;
    int64_t size = lz_dtype_size(type);
    int64_t heads = i == Q || i == OUT ? p->heads : p->groups, tokens = i == Q || i == OUT ? p->n : p->m;
    int64_t inner = p->token_major ? heads : tokens, outer = p->token_major ? tokens : heads,
            row = inner * p->d + 16 / size;
    lz_tensor *t = &o->t[i];
    *t = (lz_tensor){.dtype = type, .dims = LZ_DIMS(p->batches, heads, tokens, p->d)};
    t->strides[0] = outer * row, t->strides[3] = 1;
    t->strides[1] = p->token_major ? p->d : row, t->strides[2] = p->token_major ? row : p->d;
    o->bytes[i] = p->batches * outer * row * size;
    o->values[i] = malloc((size_t)(o->bytes[i] / size) * sizeof(double));
    uint8_t *host = malloc((size_t)o->bytes[i]);
    for (int64_t j = 0; j < o->bytes[i] / size; j++) {
        int64_t token = p->token_major ? j / row % outer : j % row / p->d;
        double factor = i == V ? size_of_value(p, token, j % row % p->d) : 1;
        uint16_t bits = i == OUT || j % row >= inner * p->d ? 0xffff : bits_of(type, random_number() * factor);
        memcpy(host + j * size, &bits, (size_t)size);
        o->values[i][j] = number_of(type, size == 1 ? bits & 0xff : bits);
    }
    t->data = lz_cuda_device_table.allocate(d, o->bytes[i], &err);
    lz_bytes from = {.data = host};
    CHECK(t->data && lz_cuda_device_table.write(d, t->data, from, o->bytes[i], &err), "%s", err.text);
    free(host);
}

/* One row of the output, and of the same sums with the magnitudes of the values. */
static void wanted_row(const problem *p, const operands *o, int64_t batch, int64_t head, int64_t token, double *out,
                       double *magnitudes) {
    int64_t group = head / (p->heads / p->groups);
    const double *q = o->values[Q] + offset_of(&o->t[Q], batch, head, token);
    double *scores = malloc((size_t)p->m * sizeof(double)), most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < p->m; j++) {
        const double *k = o->values[K] + offset_of(&o->t[K], batch, group, j);
        scores[j] = 0;
        for (int64_t i = 0; i < p->d; i++) scores[j] += q[i] * k[i];
        scores[j] *= p->scale;
        if (scores[j] > most) most = scores[j];
    }
    for (int64_t i = 0; i < p->d; i++) out[i] = magnitudes[i] = 0;
    for (int64_t j = 0; j < p->m; j++) {
        const double *v = o->values[V] + offset_of(&o->t[V], batch, group, j);
        double share = exp(scores[j] - most);
        sum += share;
        for (int64_t i = 0; i < p->d; i++) out[i] += share * v[i], magnitudes[i] += share * fabs(v[i]);
    }
    for (int64_t i = 0; i < p->d; i++) out[i] /= sum, magnitudes[i] /= sum;
    free(scores);
}

/* Shares are rounded too, each by half of the last bit: of values up to 1, and evenly spread ones, that is the most. */
static void check_output(const problem *p, const operands *o, const double *wanted, const uint16_t *got,
                         const lz_sdpa90_config *w) {
    double last = p->type == LZ_BF16 ? 0x1p-8 : 0x1p-11, worst = 0;
    int64_t wrong = 0, written = 0;
    for (int64_t j = 0; j < o->bytes[OUT] / 2; j++) {
        double v = number_of(p->type, got[j]), error = fabs(v - wanted[j]);
        if (isnan(wanted[j])) {
            written += !isnan(v);
            continue;
        }
        bool fine = error <= last * fabs(wanted[j]) + last * 0.6 + 2e-5 * p->scale;
        wrong += !fine;
        if (!fine && !(error <= worst)) worst = error;
    }
    CHECK(!wrong && !written,
          "b%lld h%lld g%lld n%lld m%lld d%lld %s scale %g, %d keys, %d queries, in turn %d, %d multiprocessors: "
          "%lld wrong, by up to %g; %lld written beside",
          (long long)p->batches, (long long)p->heads, (long long)p->groups, (long long)p->n, (long long)p->m,
          (long long)p->d, lz_dtype_name(p->type), p->scale, w->keys, w->queries, w->pingpong, p->sms, (long long)wrong,
          worst, (long long)written);
}

/* Checks a result of products of f8. The error of a number is at most that of rounding all shares and values in the same direction, an
 * eighth of the sum of their magnitudes, and far less on average. */
static void check_narrow(const problem *p, const operands *o, const double *wanted, const double *magnitudes,
                         const uint16_t *got, const lz_sdpa90_config *w) {
    double errors = 0, all = 0, worst = 0;
    int64_t written = 0, row = o->t[OUT].strides[p->token_major ? 2 : 1];
    for (int64_t j = 0; j < o->bytes[OUT] / 2; j++) {
        double v = number_of(p->type, got[j]), error = fabs(v - wanted[j]);
        if (isnan(wanted[j])) {
            written += !isnan(v);
            continue;
        }
        if (p->values == ONE_LARGE && j % row % p->d == 0) continue; /* it would hide the errors of the others */
        errors += error * error, all += wanted[j] * wanted[j];
        if (!(error / magnitudes[j] <= worst)) worst = error / magnitudes[j];
    }
    double mean = sqrt(errors / all);
    CHECK(mean < 0.04 && worst < 0.14 && !written,
          "f8 b%lld h%lld g%lld n%lld m%lld d%lld %s scale %g, values %d, %d keys, %d queries, in turn %d, %d "
          "multiprocessors: "
          "error %g, at most %g; %lld written beside",
          (long long)p->batches, (long long)p->heads, (long long)p->groups, (long long)p->n, (long long)p->m,
          (long long)p->d, lz_dtype_name(p->type), p->scale, (int)p->values, w->keys, w->queries, w->pingpong, p->sms,
          mean, worst, (long long)written);
}

static bool run_way(lz_device *d, const lz_sdpa90 *a, const lz_sdpa90_config *w, const operands *o, uint16_t *got) {
    lz_error err = {0};
    int64_t bytes = lz_sdpa90_scratch(a, w);
    char *scratch = bytes ? lz_cuda_device_table.allocate(d, bytes, &err) : NULL;
    lz_cu_function f = lz_sdpa90_function(a, w);
    bool fine = CHECK(!d->api.cu.MemsetD8Async((lz_cu_ptr)(uintptr_t)o->t[OUT].data, 0xff, (size_t)o->bytes[OUT],
                                               d->stream)) &&
                CHECK(f && lz_sdpa90_run(a, w, f, scratch), "%s", a->call->err->text) &&
                CHECK(lz_cuda_device_table.read(d, got, o->t[OUT].data, o->bytes[OUT], &err), "%s", err.text);
    if (scratch) lz_cuda_device_table.release(d, scratch);
    return fine;
}

static void run_problem(lz_device *d, const problem *p, const lz_sdpa90_config *ways, int n) {
    operands o;
    lz_error err = {0};
    lz_params params = {.sdpa.scale = p->scale};
    for (int i = 0; i < OPERANDS; i++) make_operand(d, p, &o, i);
    lz_call call = {.op = LZ_OP_SDPA, .params = &params, .out = o.t[OUT], .in = o.t, .n_core = 3, .n_in = 3};
    call.device = d, call.err = &err;
    double *magnitudes = malloc((size_t)(o.bytes[OUT] / 2) * sizeof(double));
    for (int64_t b = 0; b < p->batches; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n; i++)
                wanted_row(p, &o, b, h, i, o.values[OUT] + offset_of(&o.t[OUT], b, h, i),
                           magnitudes + offset_of(&o.t[OUT], b, h, i));
    uint16_t *got = malloc((size_t)o.bytes[OUT]), *again = malloc((size_t)o.bytes[OUT]);
    int sms = d->sms;
    d->sms = p->sms;
    lz_sdpa90 a;
    if (CHECK(lz_sdpa90_reads(&call, &a), "n %lld is refused", (long long)p->n))
        for (int i = 0; i < n; i++) {
            if (!run_way(d, &a, &ways[i], &o, got)) continue;
            if (p->narrow)
                check_narrow(p, &o, o.values[OUT], magnitudes, got, &ways[i]);
            else
                check_output(p, &o, o.values[OUT], got, &ways[i]);
            if (n > 1 && run_way(d, &a, &ways[i], &o, again))
                CHECK(!memcmp(got, again, (size_t)o.bytes[OUT]), "other bits the second time");
        }
    d->sms = sms;
    for (int i = 0; i < OPERANDS; i++) {
        lz_cuda_device_table.release(d, o.t[i].data);
        free(o.values[i]);
    }
    free(got);
    free(again);
    free(magnitudes);
}

/* Every way, twice; blocks that take several items, the last tile in parts. */
static void ways(void) {
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    run_problem(ctx->device, &(problem){1, 3, 1, 100, 440, 128, LZ_F16, true, 1, 2, false, ALIKE},
                lz_sdpa90_configs(false), LZ_SDPA90_CONFIGS);
    lz_close(ctx);
}

/* Sizes around the edges of tiles, types, strides. */
static void edges(void) {
    static const int64_t sizes[] = {1, 63, 64, 128, 129, 300};
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    for (int i = 0; i < 14; i++) {
        problem p = {.batches = 1 + i % 5 / 4, .heads = 1 + i % 3, .n = sizes[i % 6], .m = sizes[(i + i / 6) % 6]};
        p.groups = i % 2 ? p.heads : 1;
        p.type = i % 4 ? LZ_F16 : LZ_BF16;
        p.d = i % 6 == 4 ? 64 : 128;
        p.token_major = i % 5 < 3;
        p.scale = i % 3 ? 0.3 : 2;
        p.sms = 2 + i % 4 * 3;
        run_problem(ctx->device, &p, &lz_sdpa90_configs(false)[i % 4], 1);
    }
    lz_close(ctx);
}

/* Maxima that grow from block to block, of both signs and far apart. */
static void large_scores(void) {
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    for (int i = 0; i < LZ_SDPA90_CONFIGS; i++)
        run_problem(ctx->device,
                    &(problem){1, 1, 1, 100, 513, 128, i ? LZ_F16 : LZ_BF16, true, 20, 1 + i % 2, false, ALIKE},
                    &lz_sdpa90_configs(false)[i], 1);
    lz_close(ctx);
}

/* Three tiles for five: ranges of keys that reach from one tile into the next. */
static void ranges(void) {
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    run_problem(ctx->device, &(problem){1, 1, 1, 260, 1100, 128, LZ_F16, true, 1, 5, false, ALIKE},
                &lz_sdpa90_configs(false)[2], 1);
    run_problem(ctx->device, &(problem){1, 3, 1, 100, 790, 128, LZ_BF16, false, 1, 5, false, ALIKE},
                &lz_sdpa90_configs(false)[0], 1);
    lz_close(ctx);
}

/* Products of f8: every way twice, sizes around the edges of tiles, values whose size differs from block to block, scores
 * that grow, tiles in parts. */
static void products_of_f8(void) {
    static const int64_t sizes[] = {1, 63, 64, 129, 192, 300};
    const lz_sdpa90_config *configs = lz_sdpa90_configs(true);
    lz_context *ctx = open_hopper();
    if (!ctx) return;
    problem whole = {1, 3, 1, 100, 440, 128, LZ_BF16, true, 1, 2, true, ALIKE};
    run_problem(ctx->device, &whole, configs, LZ_SDPA90_CONFIGS);
    for (int i = 0; i < 12; i++) {
        problem p = {.batches = 1 + i % 5 / 4, .heads = 1 + i % 3, .n = sizes[i % 6], .m = sizes[(i + 1 + i / 6) % 6]};
        p.groups = i % 2 ? p.heads : 1;
        p.type = i % 4 ? LZ_BF16 : LZ_F16;
        p.d = i % 6 == 3 ? 64 : 128;
        p.token_major = i % 5 < 3;
        p.scale = i % 3 ? 0.5 : i % 2 ? 4 : 1;
        p.sms = 2 + i % 4 * 3;
        p.narrow = true;
        p.values = i % 3 == 1 ? GROWING : i % 3 == 2 ? SHRINKING : ALIKE;
        run_problem(ctx->device, &p, &configs[i % 4], 1);
    }
    problem parts = {1, 1, 1, 260, 1100, 128, LZ_BF16, true, 1, 5, true, GROWING};
    run_problem(ctx->device, &parts, &configs[0], 1);
    run_problem(ctx->device, &parts, &configs[2], 1);
    for (int i = ZEROS_FIRST; i <= ONE_LARGE; i++)
        for (int j = 0; j < 2; j++) {
            problem p = {1, 1, 1, 64, 640, 128, LZ_BF16, true, j ? 0.05 : 1, 1, true, i};
            run_problem(ctx->device, &p, &configs[2 * j], 1);
        }
    lz_close(ctx);
}

TEST_MAIN({"ways", ways}, {"edges", edges}, {"large_scores", large_scores}, {"ranges", ranges}, {"f8", products_of_f8})
