/* test_cuda.c: devices with their own memory: values on host and device, recordings, errors, whole pictures. The
 * kernels themselves are tested by test_random_shapes and test_random_graphs with LZ_TEST_DEVICE=cuda. Runs on a real
 * GPU or, with LAZULI_CUDA_PATH naming its libraries, on the simulated one (tests/cuda-sim). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "array/internal.h"
#include "backend/cuda/cuda.h"
#include "cli/environment.h"
#include "graph/graph.h"
#include "pixels.h"

static lz_context *open_cuda(void) {
    lz_error err = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .cache_limit = -1, .threads = 2), &err);
    CHECK(ctx, "%s", err.text);
    return ctx;
}

static void names(void) {
    lz_error err = {0};
    static const char *const wrong[] = {"cuda:", "cuda:x", "cuda:1x", "cuda:99999", "cudax"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!open_as_asked(LZ_CONTEXT_OPTIONS(.device = wrong[i]), &err), "%s", wrong[i]);
        CHECK_TEXT(err.text, "there is no device");
    }
    CHECK(!open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda:999"), &err));
    CHECK_TEXT(err.text, "there is no GPU 999");
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    CHECK_TEXT(lz_device_name(ctx), "cuda (");
    CHECK_I64(lz_compute_type(ctx), LZ_BF16);
    lz_close(ctx);
    ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .compute = LZ_F32), NULL);
    CHECK_I64(lz_compute_type(ctx), LZ_F32);
    lz_close(ctx);
}

/* A value goes there and comes back; looking twice gives the same place; views are looked at where they lie. */
static void here_and_there(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "test");
    enum { N = 3 << 20 }; /* longer than one block of staging memory */
    float *numbers = malloc(N * sizeof *numbers);
    for (int i = 0; i < N; i++) numbers[i] = (float)(i % 977) - 400;
    lz_array *a = lz_from(ctx, LZ_DIMS(3, N / 3), LZ_F32, numbers), *twice = lz_mul(a, 2.0);
    const float *back = lz_data(a, &err), *doubled = lz_data(twice, &err);
    CHECK(back && doubled && back == lz_data(a, &err), "%s", err.text);
    int wrong = 0;
    for (int i = 0; i < N && back && doubled; i++) wrong += back[i] != numbers[i] || doubled[i] != 2 * numbers[i];
    CHECK_I64(wrong, 0);
    lz_array *part = lz_slice(twice, 0, 1, 2, 1), *turned = lz_transpose(lz_slice(a, 1, 0, 5, 1));
    const float *row = lz_data(part, &err), *columns = lz_data(turned, &err);
    CHECK(row && row[7] == 2 * numbers[N / 3 + 7]);
    CHECK(columns && columns[4] == numbers[N / 3 + 1]); /* [5, 3]: second row, second column */
    free(numbers);
    lz_scope_end(scope);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* Borrowed memory is sent when it is first used, once, and counted while it is there. */
static void borrowed(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    lz_error err = {0};
    static const float weights[1024] = {[0] = 3, [1023] = 4};
    lz_array *w = lz_retain(lz_borrow(ctx, LZ_DIMS(1024), LZ_F32, weights, NULL, NULL));
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_scope *scope = lz_scope_begin(ctx, "test");
    CHECK(lz_item(lz_sum(w, LZ_NONE, false), &err) == 7, "%s", err.text);
    lz_scope_end(scope);
    CHECK_I64(lz_memory_info(ctx).active, sizeof weights);
    CHECK(lz_data(w, &err) == weights);
    lz_release(w);
    lz_scope_end(lz_scope_begin(ctx, "nothing"));
    lz_close(ctx);
}

static void describe_chain(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_softmax(lz_add(lz_mul(in[0], in[1]), 1.0), 1);
}

/* The first call launches, the second records, later ones replay; outputs alternate while they are held. */
static void replays(void) {
    lz_context *ctx = open_cuda(), *ref = lz_open(.device = "ref");
    if (!ctx) return;
    lz_error err = {0};
    lz_compiled *there = lz_compile(ctx, describe_chain, NULL, 2, 1, 2, &err),
                *here = lz_compile(ref, describe_chain, NULL, 2, 1, 2, &err);
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = (float)i / 7;
    lz_array *held = NULL;
    for (int turn = 0; turn < 9; turn++) {
        lz_scope *a = lz_scope_begin(ctx, "turn"), *b = lz_scope_begin(ref, "turn");
        float factor = 0.1F * (float)turn;
        lz_array *in[2][2] = {{lz_from(ctx, LZ_DIMS(8, 8), LZ_F32, x), lz_from(ctx, LZ_NONE, LZ_F32, &factor)},
                              {lz_from(ref, LZ_DIMS(8, 8), LZ_F32, x), lz_from(ref, LZ_NONE, LZ_F32, &factor)}};
        lz_array *out[2];
        if (CHECK_OK(lz_run(there, in[0], &out[0], &err), &err) && CHECK_OK(lz_run(here, in[1], &out[1], &err), &err)) {
            const float *got = lz_data(out[0], &err), *want = lz_data(out[1], &err);
            double worst = got && want ? 0 : 1;
            for (int i = 0; i < 64 && got && want; i++) worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
            CHECK(worst < 1e-6, "turn %d: %g", turn, worst);
            if (turn % 3 == 0) {
                lz_release(held);
                held = lz_retain(out[0]);
            }
        }
        lz_scope_end(a);
        lz_scope_end(b);
    }
    lz_release(held);
    lz_compiled_free(there);
    lz_compiled_free(here);
    lz_close(ctx);
    lz_close(ref);
}

/* f64 has no kernels there: it is computed here, and the result is the reference's. */
static void on_the_host(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "test");
    lz_array *x = lz_arange(ctx, 0, 100, 1, LZ_F64);
    CHECK(fabs(lz_item(lz_sum(lz_exp(lz_mul(x, -0.5)), LZ_NONE, false), &err) - 1 / (1 - exp(-0.5))) < 1e-14, "%s",
          err.text);
    lz_scope_end(scope);
    lz_close(ctx);
}

/* Random numbers are drawn on the host, with its own bits, and nothing is waited for. */
static void random_numbers(void) {
    lz_context *ctx = open_cuda(), *ref = lz_open(.device = "ref");
    if (!ctx) return;
    lz_error err = {0};
    const float *got = lz_data(lz_randn(ctx, LZ_DIMS(3, 1009), 5), &err),
                *want = lz_data(lz_randn(ref, LZ_DIMS(3, 1009), 5), &err);
    CHECK(got && want && !memcmp(got, want, 3 * 1009 * sizeof *got), "%s", err.text);
    lz_close(ctx);
    lz_close(ref);
}

static void pixels(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    check_pixels(ctx);
    lz_scope_end(lz_scope_begin(ctx, "nothing"));
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* Bytes straight to where they are wanted, of views too; no copy is kept here. */
static void copied(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "test");
    lz_array *x = lz_reshape(lz_mul(lz_arange(ctx, 0, 24, 1, LZ_F32), 0.5), LZ_DIMS(4, 6));
    float all[24], row[6], column[4];
    CHECK_OK(lz_copy(x, all, sizeof all, &err), &err);
    CHECK_OK(lz_copy(lz_slice(x, 0, 2, 3, 1), row, sizeof row, &err), &err);
    CHECK_OK(lz_copy(lz_slice(x, 1, 1, 2, 1), column, sizeof column, &err), &err);
    CHECK(all[23] == 11.5F && row[0] == 6 && row[5] == 8.5F && column[0] == 0.5F && column[3] == 9.5F);
    CHECK_STATUS(lz_copy(x, all, 4, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_copy(x, NULL, sizeof all, &err), LZ_BAD_ARGUMENT, &err);
    const float *kept = lz_data(x, &err); /* from here on there is a copy here, and that is taken */
    CHECK(kept && !lz_copy(x, all, sizeof all, &err) && !memcmp(kept, all, sizeof all));
    lz_scope_end(scope);
    lz_close(ctx);
}

/* More than there is: one sentence, and the context is as good as before. */
static void out_of_memory(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "test");
    lz_array *huge = lz_arange(ctx, 0, (double)((int64_t)1 << 40), 1, LZ_F32);
    CHECK_STATUS(lz_eval(huge, &err), LZ_OUT_OF_MEMORY, &err);
    CHECK_TEXT(err.text, "out of memory on ");
    CHECK(lz_item(lz_sum(lz_contiguous(lz_full(ctx, LZ_DIMS(10), LZ_F32, 2)), LZ_NONE, false), &err) == 20, "%s",
          err.text);
    lz_set_memory_limit(ctx, 1 << 20);
    CHECK_STATUS(lz_eval(lz_arange(ctx, 0, 1 << 20, 1, LZ_F32), &err), LZ_OUT_OF_MEMORY, &err);
    CHECK_TEXT(err.text, "the limit is");
    lz_scope_end(scope);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

static void profiled(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "test");
    lz_profile_start(ctx);
    lz_array *x = lz_contiguous(lz_full(ctx, LZ_DIMS(64, 64), LZ_F32, 0.5));
    CHECK_OK(lz_eval(lz_matmul(x, x), &err), &err);
    lz_profile_stop(ctx);
    char *table = lz_profile_table(ctx, &err);
    CHECK(table, "%s", err.text);
    CHECK_TEXT(table, "cuda.matmul");
    lz_free_text(ctx, table);
    lz_scope_end(scope);
    lz_close(ctx);
}

/* bf16 numbers, the same in every context. */
static lz_array *numbers_of(lz_context *ctx, lz_dims dims, unsigned seed) {
    int64_t n = 1;
    for (int i = 0; i < dims.n; i++) n *= dims.at[i];
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / 8388608.0F - 1;
    lz_array *made = lz_cast(lz_from(ctx, dims, LZ_F32, x), LZ_BF16);
    free(x);
    return lz_contiguous(made);
}

static lz_array *pair_of(lz_context *ctx) {
    lz_array *x = numbers_of(ctx, LZ_DIMS(1, 70, 136), 1), *w = numbers_of(ctx, LZ_DIMS(528, 136), 2);
    lz_array *gate = lz_linear(x, lz_slice(w, 0, 0, 264, 1), NULL),
             *up = lz_linear(x, lz_slice(w, 0, 264, 528, 1), NULL);
    lz_array *y = lz_add(lz_mul(lz_silu(gate), up), numbers_of(ctx, LZ_DIMS(264), 3));
    return lz_cast(y, LZ_F32);
}

/* The same pair with what a LoRA adds to both products: low ranks of one `down` (klein), or of one each (Z-Image). */
static bool two_downs;
static lz_array *patched_pair_of(lz_context *ctx) {
    enum { ROWS = 70, K = 136, N = 264, RANK = 16 };
    lz_array *x = numbers_of(ctx, LZ_DIMS(1, ROWS, K), 1), *w = numbers_of(ctx, LZ_DIMS(2 * N, K), 2),
             *up = numbers_of(ctx, LZ_DIMS(2 * N, RANK), 3), *y[2];
    for (unsigned i = 0; i < 2; i++) {
        lz_array *down = lz_mul(numbers_of(ctx, LZ_DIMS(RANK, K), two_downs ? 4 + i : 4), 0.1);
        lz_array *low = lz_linear(lz_linear(x, down, NULL), lz_slice(up, 0, i * N, (i + 1) * N, 1), NULL);
        y[i] = lz_add(lz_linear(x, lz_slice(w, 0, i * N, (i + 1) * N, 1), NULL), low);
    }
    return lz_cast(lz_mul(lz_silu(y[0]), y[1]), LZ_F32);
}

static lz_array *wide_head_of(lz_context *ctx) {
    lz_array *q = numbers_of(ctx, LZ_DIMS(1, 2, 700, 264), 4), *k = numbers_of(ctx, LZ_DIMS(1, 1, 704, 264), 5);
    return lz_cast(lz_sdpa(q, k, numbers_of(ctx, LZ_DIMS(1, 1, 704, 264), 6)), LZ_F32);
}

/* Heads that are normed and turned by the same angles, beside what else was made with them. */
static lz_array *turned_heads_of(lz_context *ctx) {
    enum { ROWS = 33, HEADS = 12, WIDTH = 128 };
    lz_array *x = numbers_of(ctx, LZ_DIMS(ROWS, 3 * HEADS * WIDTH), 7), *norm = numbers_of(ctx, LZ_DIMS(WIDTH), 8);
    lz_array *angles = lz_cast(numbers_of(ctx, LZ_DIMS(ROWS, WIDTH / 2), 9), LZ_F32);
    lz_array *q = lz_reshape(lz_slice(x, 1, HEADS * WIDTH, 2 * HEADS * WIDTH, 1), LZ_DIMS(1, ROWS, HEADS, WIDTH));
    q = lz_permute(lz_rms_norm(q, norm, 1e-6), LZ_DIMS(0, 2, 1, 3));
    return lz_cast(lz_rope(q, lz_cos(angles), lz_sin(angles)), LZ_F32);
}

/* Two streams that meet in one attention, as in the models: what does not wait for each other is one launch. */
typedef struct streams_case {
    int64_t heads, head;
    bool half_split, biased;
    int most; /* kernels, with those that make the operands */
} streams_case;
static streams_case streams;

static lz_array *turned_of(lz_context *ctx, lz_array *x, unsigned seed, bool turned) {
    int64_t width = streams.heads * streams.head, rows = lz_shape(x).at[0], k = lz_shape(x).at[1];
    lz_array *bias = streams.biased ? numbers_of(ctx, LZ_DIMS(width), seed + 1) : NULL;
    lz_array *y = lz_linear(x, lz_mul(numbers_of(ctx, LZ_DIMS(width, k), seed), 0.2), bias);
    y = lz_reshape(y, LZ_DIMS(1, rows, streams.heads, streams.head));
    if (!turned) return lz_permute(y, LZ_DIMS(0, 2, 1, 3));
    lz_array *angles = lz_cast(numbers_of(ctx, LZ_DIMS(rows, streams.head / 2), seed + 2), LZ_F32);
    y = lz_rms_norm(y, numbers_of(ctx, LZ_DIMS(streams.head), seed + 3), 1e-6);
    return lz_rope(lz_permute(y, LZ_DIMS(0, 2, 1, 3)), lz_cos(angles), lz_sin(angles),
                   .half_split = streams.half_split);
}

static lz_array *streams_of(lz_context *ctx) {
    enum { FIRST = 70, OTHER = 33, K = 72 };
    int64_t width = streams.heads * streams.head;
    lz_array *x[2] = {numbers_of(ctx, LZ_DIMS(FIRST, K), 1), numbers_of(ctx, LZ_DIMS(OTHER, K), 2)}, *q[2], *k[2],
             *v[2];
    for (unsigned i = 0; i < 2; i++) {
        q[i] = turned_of(ctx, x[i], 10 + 100 * i, true);
        k[i] = turned_of(ctx, x[i], 20 + 100 * i, true);
        v[i] = turned_of(ctx, x[i], 30 + 100 * i, false);
    }
    lz_array *a = lz_sdpa(lz_concat(q, 2, 2), lz_concat(k, 2, 2), lz_concat(v, 2, 2));
    a = lz_reshape(lz_permute(a, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(-1, width));
    lz_array *y[2], *gate = numbers_of(ctx, LZ_DIMS(1, K), 5);
    for (unsigned i = 0; i < 2; i++) {
        lz_array *w = lz_mul(numbers_of(ctx, LZ_DIMS(K, width), 40 + i), 0.2);
        lz_array *part = lz_slice(a, 0, i ? FIRST : 0, i ? FIRST + OTHER : FIRST, 1);
        y[i] = lz_layer_norm(lz_add(x[i], lz_mul(lz_linear(part, w, NULL), gate)), NULL, NULL, 1e-6);
    }
    return lz_cast(lz_concat(y, 2, 0), LZ_F32);
}

/* One stream whose queries and keys are turned where they are, with every number of heads per thread. */
static lz_array *lone_stream_of(lz_context *ctx) {
    enum { ROWS = 41, K = 40 };
    lz_array *x = numbers_of(ctx, LZ_DIMS(ROWS, K), 1);
    lz_array *a = lz_sdpa(turned_of(ctx, x, 10, true), turned_of(ctx, x, 20, true), turned_of(ctx, x, 30, false));
    return lz_cast(lz_permute(a, LZ_DIMS(0, 2, 1, 3)), LZ_F32);
}

/* A norm before and after each part, as in Z-Image: x + norm(part) * gate and its norm are one kernel with two results.
 * Rows of these widths are in the registers of 32, 128 or 1024 threads, or too long for registers. */
static int64_t sandwich_width;
static lz_dtype sandwich_type;
static lz_array *sandwich_numbers(lz_context *ctx, int64_t rows, int64_t columns, unsigned seed) {
    return lz_cast(numbers_of(ctx, LZ_DIMS(rows, columns), seed), sandwich_type);
}
static lz_array *sandwich_of(lz_context *ctx) {
    int64_t rows = sandwich_width > 10000 ? 2 : 19, k = 16;
    lz_array *x = sandwich_numbers(ctx, rows, sandwich_width, 1), *vectors[3];
    for (unsigned i = 0; i < 3; i++) vectors[i] = sandwich_numbers(ctx, 1, sandwich_width, 10 + i);
    CHECK(lz_eval_all(vectors, 3, NULL) == LZ_OK);
    lz_array *h = lz_mul(lz_rms_norm(x, NULL, 1e-5), vectors[0]);
    for (unsigned i = 0; i < 2; i++) {
        lz_array *down = lz_mul(sandwich_numbers(ctx, k, sandwich_width, 20 + i), 0.1),
                 *up = sandwich_numbers(ctx, sandwich_width, k, 30 + i);
        lz_array *part = lz_linear(lz_linear(h, down, NULL), up, NULL);
        x = lz_add(x, lz_mul(lz_rms_norm(part, NULL, 1e-5), vectors[1]));
        h = i ? lz_rms_norm(x, NULL, 1e-3) : lz_mul(lz_rms_norm(x, NULL, 1e-3), vectors[2]);
    }
    return lz_cast(lz_concat((lz_array *[]){x, h}, 2, 0), LZ_F32);
}

/* Heads that were turned beside others, along one of the axes. */
static int mixed_axis;
static lz_array *mixed_heads_of(lz_context *ctx) {
    enum { ROWS = 20, K = 32 };
    streams = (streams_case){.heads = 2, .head = 16};
    lz_array *x = numbers_of(ctx, LZ_DIMS(ROWS, K), 1), *plain = numbers_of(ctx, LZ_DIMS(1, 2, ROWS, 16), 2);
    lz_array *three[] = {turned_of(ctx, x, 10, true), plain, turned_of(ctx, x, 20, true)};
    return lz_cast(lz_concat(three, 3, mixed_axis), LZ_F32);
}

/* most: how many kernels it takes at most; 0: any number */
static void check_like_reference(lz_array *(*describe)(lz_context *), int most, double room, const char *what) {
    lz_context *ctx = open_cuda(), *ref = lz_open(.device = "ref");
    if (!ctx) return;
    lz_error err = {0};
    lz_scope *a = lz_scope_begin(ctx, "there"), *b = lz_scope_begin(ref, "here");
    lz_array *got = describe(ctx), *want = describe(ref);
    lz_plan_info info;
    CHECK_OK(lz_plan(&got, 1, &info, &err), &err);
    CHECK(!most || info.kernels <= most, "%s: %lld kernels, more than %d", what, (long long)info.kernels, most);
    const float *x = lz_data(got, &err), *y = lz_data(want, &err);
    double worst = x && y ? 0 : INFINITY;
    for (int64_t i = 0; x && y && i < lz_size(want); i++)
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]) / (1 + fabs((double)y[i])));
    CHECK(worst < room, "%s: %g (%s)", what, worst, err.text);
    lz_scope_end(a);
    lz_scope_end(b);
    lz_close(ctx);
    lz_close(ref);
}

/* Rows of all lengths, also those that 24 warps share: sums and maxima over all threads of a row. */
static int64_t row_length;
static lz_array *long_rows_of(lz_context *ctx) {
    lz_array *x = lz_mul(lz_cast(numbers_of(ctx, LZ_DIMS(3, row_length), 1), LZ_F32), 3.0);
    lz_array *all[] = {lz_softmax(x, -1), lz_rms_norm(x, NULL, 1e-6), lz_layer_norm(x, NULL, NULL, 1e-6)};
    all[0] = lz_mul(all[0], (double)row_length);
    return lz_concat(all, 3, 0);
}

static void long_rows(void) {
    static const int64_t lengths[] = {9000, 11001, 12288, 33000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        row_length = lengths[i];
        check_like_reference(long_rows_of, 0, 1e-4, "long rows");
    }
}

/* In a chain of norms of norms each x and its norm are one kernel. */
static void check_twice(void) {
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "test");
    sandwich_type = LZ_BF16, sandwich_width = 264;
    lz_array *y = sandwich_of(ctx);
    lz_program *p = lz_program_new(ctx, &y, 1, false, &err);
    int twice = 0, once = 0;
    for (int i = 0; p && i < p->n_steps; i++) {
        twice += p->steps[i].call.op == LZ_OP_RMS_NORM_TWICE;
        once += p->steps[i].call.op == LZ_OP_RMS_NORM;
    }
    CHECK(twice == 2 && once == 1, "%d and %d (%s)", twice, once, err.text);
    lz_program_free(p);
    lz_scope_end(scope);
    lz_close(ctx);
}

/* The pair is that of the weights, not of the low ranks. */
static void pairs_of_patched_weights(void) {
    for (int i = 0; i < 2; i++) {
        lz_context *ctx = open_cuda();
        if (!ctx) return;
        lz_error err = {0};
        lz_scope *scope = lz_scope_begin(ctx, "test");
        two_downs = i;
        lz_array *y = patched_pair_of(ctx);
        lz_program *p = lz_program_new(ctx, &y, 1, false, &err);
        int pairs = 0;
        for (int k = 0; p && k < p->n_steps; k++) {
            const lz_call *call = &p->steps[k].call;
            if (call->op != LZ_OP_MATMUL_PAIR) continue;
            CHECK_I64(call->in[0].dims.at[2], 136);
            pairs++;
        }
        CHECK(pairs == 1, "%d pairs (%s)", pairs, err.text);
        lz_program_free(p);
        lz_scope_end(scope);
        lz_close(ctx);
        check_like_reference(patched_pair_of, 0, 0.02, "a patched pair");
    }
}

/* silu(x g) * (x u) + bias is one kernel, whoever does the products (a cast for each operand beside it); one wide head
 * is a product, a softmax and a product, some rows at a time. */
static void together(void) {
    static const char *const wishes[] = {"", "library", "own", "any"};
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        setenv("LAZULI_CUDA_GEMM", wishes[i], 1);
        setenv("LAZULI_CUDA_SDPA", strcmp(wishes[i], "any") ? wishes[i] : "", 1);
        check_like_reference(pair_of, 4, 0.02, wishes[i]);
        static const streams_case cases[] = {
            {2, 64, false, true, 41}, {3, 128, true, false, 35}, {5, 16, false, false, 35}, {2, 48, true, true, 41}};
        for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
            streams = cases[j];
            check_like_reference(streams_of, streams.most, 0.05, wishes[i]);
        }
        for (mixed_axis = 0; mixed_axis < 4; mixed_axis++) check_like_reference(mixed_heads_of, 0, 0.05, wishes[i]);
    }
    unsetenv("LAZULI_CUDA_GEMM");
    unsetenv("LAZULI_CUDA_SDPA");
    check_like_reference(wide_head_of, 0, 0.01, "a wide head");
    check_like_reference(turned_heads_of, 0, 0.01, "turned heads");
    for (int heads = 4; heads <= 7; heads++) { /* of which a thread has 4, 5, 6 and 1 */
        streams = (streams_case){.heads = heads, .head = heads % 2 ? 128 : 64, .half_split = heads > 5};
        check_like_reference(lone_stream_of, 0, 0.02, "a lone stream");
    }
    static const int64_t widths[] = {100, 264, 3840, 40000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        sandwich_width = widths[i];
        for (int narrow = 0; narrow < 2; narrow++) { /* in bf16 each of some twenty roundings is up to 0.004 */
            sandwich_type = narrow ? LZ_BF16 : LZ_F32;
            check_like_reference(sandwich_of, 0, narrow ? 0.1 : 1e-4, "norms of norms");
        }
    }
    check_twice();
}

static void listen_to(void *user, lz_log_level level, const char *text) {
    int *heard = user;
    heard[level == LZ_LOG_DETAIL && strncmp(text, "cuda: ", 6) == 0 ? 0 : 1]++;
}

/* What the options of a context say of GPUs, and what is listed. */
static void options(void) {
    lz_error err = {0};
    char cache[ENVIRONMENT_PATH];
    int heard[2] = {0, 0};
    lz_context_options o = environment_options(LZ_CONTEXT_OPTIONS(.device = "cuda", .threads = 2), cache);
    o.cache_folder = NULL; /* so that something is compiled */
    o.log = listen_to;
    o.log_user = heard;
    lz_context *ctx = lz_open_with(&o, &err);
    if (!CHECK(ctx, "%s", err.text)) return;
    CHECK(lz_item(lz_add(lz_full(ctx, LZ_NONE, LZ_F32, 1), 1.0), &err) == 2, "%s", err.text);
    lz_array *x = lz_arange(ctx, 0, 5, 1, LZ_F32);
    CHECK(lz_item(lz_sum(lz_mul(x, x), LZ_NONE, false), &err) == 30, "%s", err.text);
    lz_close(ctx);
    CHECK(heard[0] > 0 && heard[1] == 0, "%d details, %d others", heard[0], heard[1]);
    o.cuda_gemm = "fast";
    CHECK(!lz_open_with(&o, &err));
    CHECK_I64(err.status, LZ_BAD_ARGUMENT);
    CHECK_TEXT(err.text, "'fast' is neither");
    o.cuda_gemm = NULL;
    o.cuda_sdpa = "any";
    CHECK(!lz_open_with(&o, &err));
    CHECK_TEXT(err.text, "'any' is neither");
    lz_device_info found[64];
    int n = lz_find_devices(&o, found, 64, &err);
    CHECK(n >= 2 && strcmp(found[1].device, "cuda:0") == 0 && found[1].memory > 0 && !*found[1].problem, "%d: %s", n,
          err.text);
    CHECK_I64(lz_find_devices(&o, NULL, 0, &err), n);
}

/* Two passes over the same weights go side by side, so that each weight is sent to the device once for both. */
static void passes_share_weights(void) {
    enum { LAYERS = 6, WIDTH = 64, ROWS = 40 };
    static uint16_t weights[LAYERS][WIDTH * WIDTH];
    lz_error err = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .offload = LZ_OFFLOAD_STREAM), NULL);
    if (!CHECK(ctx, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(ctx, "passes");
    lz_array *x[2] = {numbers_of(ctx, LZ_DIMS(ROWS, WIDTH), 1), numbers_of(ctx, LZ_DIMS(ROWS / 2, WIDTH), 2)};
    lz_array *w[LAYERS];
    for (int i = 0; i < LAYERS; i++) w[i] = lz_borrow(ctx, LZ_DIMS(WIDTH, WIDTH), LZ_BF16, weights[i], NULL, NULL);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < LAYERS; i++) x[pass] = lz_silu(lz_linear(x[pass], w[i], NULL));
    lz_plan_info info;
    CHECK_OK(lz_plan(x, 2, &info, &err), &err);
    CHECK_I64(info.streamed_bytes, (int64_t)sizeof weights);
    lz_scope_end(scope);
    lz_close(ctx);
}

/* Keys that are seen, in two stretches: whole tiles of 32 or 64 are not, or in part. Rows of a mask take turns. */
static const struct {
    int from, to;
} stretches[][2] = {{{0, 99999}},                /* all */
                    {{0, 20}},                   /* padding behind */
                    {{140, 99999}},              /* in front */
                    {{0, 0}},                    /* none */
                    {{0, 64}, {192, 260}},       /* whole tiles */
                    {{63, 64}, {24300, 24575}}}; /* far apart */
enum { STRETCHES = sizeof stretches / sizeof *stretches };

typedef struct masked_case {
    int64_t batches, heads, groups, n, m, d, mask_batches, mask_heads;
    bool causal;
} masked_case;

/* As [b, h, 1, m], or spelled out as [b, h, n, m]. */
static lz_array *mask_of(lz_context *ctx, const masked_case *c, int64_t turn, bool spelled) {
    int64_t n = spelled ? c->n : 1, rows = c->mask_batches * c->mask_heads;
    uint8_t *seen = malloc((size_t)(rows * n * c->m));
    for (int64_t i = 0; i < rows * n * c->m; i++) {
        int64_t key = i % c->m, which = (i / c->m / n + turn) % STRETCHES;
        seen[i] = false;
        for (int s = 0; s < 2; s++) seen[i] |= key >= stretches[which][s].from && key < stretches[which][s].to;
    }
    lz_array *made = lz_from(ctx, LZ_DIMS(c->mask_batches, c->mask_heads, n, c->m), LZ_BOOL, seen);
    free(seen);
    return made;
}

static const float *masked_attention(lz_context *ctx, const masked_case *c, int64_t turn, bool spelled, lz_error *err) {
    lz_array *q = numbers_of(ctx, LZ_DIMS(c->batches, c->heads, c->n, c->d), 10);
    lz_array *k = numbers_of(ctx, LZ_DIMS(c->batches, c->groups, c->m, c->d), 11);
    lz_array *v = numbers_of(ctx, LZ_DIMS(c->batches, c->groups, c->m, c->d), 12);
    lz_array *mask = mask_of(ctx, c, turn, spelled);
    return lz_data(lz_cast(lz_sdpa(q, k, v, .mask = mask, .causal = c->causal), LZ_F32), err);
}

/* Tiles of keys that nobody sees are not looked at: nearly the reference's numbers, and the very bits of the same mask
 * spelled out for each query, which is read score by score. */
static void masks_of_keys(void) {
    static const masked_case cases[] = {
        {1, 6, 2, 66, 270, 128, 1, 6, true}, {2, 3, 1, 20, 300, 64, 2, 3, false},
        {2, 2, 1, 33, 200, 80, 2, 1, true},  {1, 3, 1, 70, 65, 80, 1, 3, true},    /* the first queries see nothing */
        {1, 6, 1, 5, 100, 512, 1, 6, false}, {1, 1, 1, 3, 24576, 8, 1, 1, false}}; /* as many keys as have room */
    lz_context *ctx = open_cuda(), *ref = lz_open(.device = "ref");
    if (!ctx) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const masked_case *c = &cases[i];
        int64_t turn = c->m > 1000 ? STRETCHES - 1 : 0; /* of many keys only those far apart: it takes long */
        for (; turn < STRETCHES; turn += c->mask_batches * c->mask_heads) {
            lz_error err = {0};
            lz_scope *there = lz_scope_begin(ctx, "there"), *here = lz_scope_begin(ref, "here");
            const float *got = masked_attention(ctx, c, turn, false, &err),
                        *same = masked_attention(ctx, c, turn, true, &err),
                        *want = masked_attention(ref, c, turn, false, &err);
            int64_t size = c->batches * c->heads * c->n * c->d;
            double worst = 0;
            for (int64_t e = 0; got && want && e < size; e++)
                worst = fmax(worst, fabs((double)got[e] - (double)want[e]));
            CHECK(got && want && worst < 0.01, "case %d, turn %d: %g (%s)", (int)i, (int)turn, worst, err.text);
            CHECK(got && same && !memcmp(got, same, (size_t)size * sizeof *got), "case %d, turn %d", (int)i, (int)turn);
            lz_scope_end(there);
            lz_scope_end(here);
        }
    }
    lz_close(ctx);
    lz_close(ref);
}

/* The same picture in f32, and one very like it in bf16; twice, so that programs are kept. least: dB of each */
static void paint_here_and_there(const char *folder, const lz_picture_options *o, const double least[2]) {
    lz_error err = {0};
    lz_context *cpu = lz_open();
    lz_model *model = lz_model_open(cpu, folder, &err);
    lz_picture p;
    if (!CHECK(model && !lz_generate_with(model, o, &p, &err), "%s", err.text)) return;
    static const lz_dtype types[2] = {LZ_F32, LZ_BF16};
    for (int i = 0; i < 2; i++) {
        lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .compute = (int)types[i]), NULL);
        lz_model *there = ctx ? lz_model_open(ctx, folder, &err) : NULL;
        for (int turn = 0; turn < 2; turn++) {
            lz_picture q;
            if (!CHECK(there && !lz_generate_with(there, o, &q, &err), "%s", err.text)) break;
            double sum = 0;
            int64_t n = 3 * p.image.width * p.image.height;
            for (int64_t k = 0; k < n; k++) sum += pow((double)p.image.pixels[k] - (double)q.image.pixels[k], 2);
            double dB = sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : 99;
            CHECK(dB >= least[i], "%s, %s, picture %d: %.1f dB", folder, lz_dtype_name(types[i]), turn, dB);
            lz_picture_free(&q);
        }
        lz_model_close(there);
        if (ctx) CHECK_I64(lz_memory_info(ctx).active, 0);
        lz_close(ctx);
    }
    lz_picture_free(&p);
    lz_model_close(model);
    lz_close(cpu);
}

static void paints(void) {
    paint_here_and_there(LZ_SOURCE_DIR "/models/demo",
                         &LZ_PICTURE_OPTIONS(.prompt = "a red apple", .seed = 5, .width = 48, .height = 32, .steps = 2),
                         (double[]){70, 38});
    paint_here_and_there(LZ_SOURCE_DIR "/tests/data/qwen/Q",
                         &LZ_PICTURE_OPTIONS(.prompt = "a red fox", .width = 48, .height = 48, .steps = 2),
                         (double[]){70, 25});
}

/* Pictures that run together are those of the CPU, in f32. Twice, so that programs are kept. */
static void paint_together(const char *folder, lz_picture_options o) {
    enum { MOST = 2 };
    lz_error err = {0}, errors[MOST] = {{0}};
    lz_context *cpu = lz_open(), *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .compute = LZ_F32), NULL);
    lz_model *model = lz_model_open(cpu, folder, &err), *there = ctx ? lz_model_open(ctx, folder, &err) : NULL;
    if (!CHECK(model && there, "%s", err.text)) return;
    for (int turn = 0; turn < 2; turn++) {
        lz_job *jobs[MOST];
        lz_picture all[MOST], p;
        for (int i = 0; i < MOST; i++) {
            o.seed = 10 * (uint64_t)turn + (uint64_t)i;
            jobs[i] = lz_job_new(there, &o, &err);
        }
        if (!CHECK_OK(lz_jobs_run(jobs, MOST, all, errors), &errors[0])) break;
        for (int i = 0; i < MOST; i++) {
            o.seed = 10 * (uint64_t)turn + (uint64_t)i;
            if (!CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) break;
            double sum = 0;
            int64_t size = 3 * p.image.width * p.image.height;
            for (int64_t k = 0; k < size; k++)
                sum += pow((double)p.image.pixels[k] - (double)all[i].image.pixels[k], 2);
            double dB = sum > 0 ? 10 * log10(255.0 * 255.0 * (double)size / sum) : 99;
            CHECK(dB >= 70, "%s, turn %d, picture %d: %.1f dB", folder, turn, i, dB);
            lz_picture_free(&p);
            lz_picture_free(&all[i]);
            lz_job_free(jobs[i]);
        }
    }
    lz_model_close(model);
    lz_model_close(there);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(cpu);
    lz_close(ctx);
}

static void paints_together(void) {
    if (test_scale(100) < 50)
        return; /* its kernels take a minute to compile; random graphs in several sets run always */
    paint_together(LZ_SOURCE_DIR "/models/demo",
                   LZ_PICTURE_OPTIONS(.prompt = "a red apple", .width = 48, .height = 32, .steps = 2));
}

/* Puts a function of the simulated GPU's libraries into *function; NULL on a real one. */
static void find_simulated(const char *library, const char *name, void *function) {
    char path[512];
    const char *folder = getenv("LAZULI_CUDA_PATH");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", library);
    void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *found = handle ? dlsym(handle, name) : NULL;
    memcpy(function, &found, sizeof found);
}

/* How often the simulated driver was called; NULL on a real one. */
typedef long (*call_counter)(const char *name);
static call_counter find_counter(void) {
    call_counter counter = NULL;
    find_simulated("libcuda.so.1", "lz_sim_count", &counter);
    return counter;
}

/* Pictures of one size: once the programs are recorded, nothing is allocated, freed or recorded for another one, and
 * the only wait is for its bytes; whatever the number of steps, and whichever of them are skipped. programs: beside those
 * of the steps, which are one for each step; if work is skipped, one more for each step that evaluates the model. */
static void paint_again(const char *folder, int programs, int of_steps, lz_picture_options o) {
    enum { WARM = 3 };
    const struct {
        const char *name;
        int times;
    } calls[] = {{"cuMemAlloc_v2", 0},
                 {"cuMemFree_v2", 0},
                 {"cuGraphInstantiateWithFlags", 0},
                 {"cuStreamSynchronize", 1},
                 {"cuEventSynchronize", 0},
                 {"cuMemcpyDtoHAsync_v2", 1},
                 {"cuModuleLoadData", 0},
                 {"cuGraphLaunch", programs + of_steps}};
    enum { CALLS = sizeof calls / sizeof *calls };
    lz_error err = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .threads = 2), NULL);
    lz_model *model = ctx ? lz_model_open(ctx, folder, &err) : NULL;
    call_counter count = find_counter();
    if (!CHECK(model, "%s", err.text)) return;
    for (int turn = 0; turn < WARM + 2; turn++) {
        long before[CALLS];
        lz_picture p;
        for (int i = 0; i < CALLS; i++) before[i] = count ? count(calls[i].name) : 0;
        o.prompt = "a red apple";
        o.seed = (uint64_t)turn;
        o.width = o.height = 32;
        if (!CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) break;
        for (int i = 0; count && i < CALLS; i++) {
            long n = count(calls[i].name) - before[i];
            bool early = turn == 0 || (turn < WARM && strncmp(calls[i].name, "cuGraph", 7) == 0);
            CHECK(early || n == calls[i].times, "%s, picture %d: %s was called %ld times, not %d", folder, turn + 1,
                  calls[i].name, n, calls[i].times);
        }
        lz_picture_free(&p);
    }
    if (!count) printf("    skipped: a real driver does not count its calls\n");
    lz_model_close(model);
    lz_close(ctx);
}

/* A program of ten kernels: means, and between them expressions of different lengths. */
static double ten_kernels(lz_context *ctx, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, "test");
    enum { N = 4 };
    lz_array *x = lz_arange(ctx, 0, N, 1, LZ_F32);
    for (int i = 1; i <= 5; i++)
        for (int j = 0; j <= i; j++) x = j ? lz_add(lz_mul(x, 0.5), i) : lz_sub(x, lz_mean(x, LZ_DIMS(0), true));
    const float *data = lz_data(x, err);
    double first = data ? data[0] : NAN;
    lz_scope_end(scope);
    return first;
}

/* Kernels are compiled together before a program runs. When that fails it is told, and later tried again. */
static void compiles_together(void) {
    const char *cache = getenv("LAZULI_CACHE"), *compiler = getenv("CXX");
    char *kept = cache ? strdup(cache) : NULL, *kept_compiler = compiler ? strdup(compiler) : NULL;
    lz_context *ref = lz_open(.device = "ref");
    lz_error err = {0};
    double want = ten_kernels(ref, &err);
    lz_close(ref);
    setenv("LAZULI_CACHE", "", 1);
    lz_context *ctx = open_cuda();
    if (ctx && find_counter()) {
        setenv("CXX", "/bin/false", 1); /* the simulated NVRTC's */
        CHECK(isnan(ten_kernels(ctx, &err)));
        CHECK_I64(err.status, LZ_DEVICE_FAILED);
        CHECK_TEXT(err.text, "does not compile");
        unsetenv("CXX");
    }
    double got = ten_kernels(ctx, &err);
    CHECK(fabs(got - want) < 1e-5, "%g, not %g: %s", got, want, err.text);
    int (*most_compiling)(void) = NULL;
    find_simulated("libnvrtc.so.13", "lz_sim_most_compiling", &most_compiling);
    if (most_compiling) CHECK(most_compiling() > 1); /* there are two threads */
    lz_close(ctx);
    kept ? setenv("LAZULI_CACHE", kept, 1) : unsetenv("LAZULI_CACHE");
    if (kept_compiler) setenv("CXX", kept_compiler, 1);
    free(kept);
    free(kept_compiler);
}

/* ---- while one thread compiles ----------------------------------------------------------------------------------- */

static struct {
    lz_nvrtc_result (*compile)(lz_nvrtc_program program, int n, const char *const *options);
    lz_context *ctx;
    atomic_int compiling, met; /* the compiler was called, or the device is waited for; the other thread is done */
    atomic_bool waited;        /* in vain */
} meeting;

static lz_nvrtc_result compile_slowly(lz_nvrtc_program program, int n, const char *const *options) {
    atomic_store(&meeting.compiling, 1);
    for (int i = 0; i < 60000 && !atomic_load(&meeting.met); i++) usleep(1000);
    if (!atomic_load(&meeting.met)) atomic_store(&meeting.waited, true);
    return meeting.compile(program, n, options);
}

static double three_times(lz_context *ctx, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, "three times");
    const float numbers[4] = {1, 2, 3, 4};
    double sum = lz_item(lz_sum(lz_mul(lz_from(ctx, LZ_DIMS(4), LZ_F32, numbers), 3.0), LZ_NONE, false), err);
    lz_scope_end(scope);
    return sum;
}

/* Its kernels are known. It sends numbers, plans, runs and looks, on this thread and on a stream. */
static void *run_beside(void *arg) {
    (void)arg;
    lz_error err = {0};
    while (!atomic_load(&meeting.compiling)) usleep(100);
    CHECK(three_times(meeting.ctx, &err) == 30, "%s", err.text);
    CHECK(lz_memory_info(meeting.ctx).active >= 0);
    atomic_store(&meeting.met, 1);
    return NULL;
}

static void runs_while_another_compiles(void) {
    const char *cache = getenv("LAZULI_CACHE");
    char *kept = cache ? strdup(cache) : NULL;
    setenv("LAZULI_CACHE", "", 1);
    meeting.ctx = open_cuda();
    lz_error err = {0};
    if (meeting.ctx) {
        lz_device *d = meeting.ctx->device;
        CHECK(three_times(meeting.ctx, &err) == 30, "%s", err.text);
        meeting.compile = d->api.nvrtc.CompileProgram;
        d->api.nvrtc.CompileProgram = compile_slowly;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, run_beside, NULL) == 0);
        lz_array *x = lz_full(meeting.ctx, LZ_DIMS(2, 8), LZ_F32, 1);
        CHECK(lz_item(lz_mean(lz_softmax(lz_contiguous(x), -1), LZ_NONE, false), &err) == 0.125, "%s", err.text);
        pthread_join(thread, NULL);
        CHECK(atomic_load(&meeting.compiling) && !atomic_load(&meeting.waited));
        d->api.nvrtc.CompileProgram = meeting.compile;
        lz_close(meeting.ctx);
    }
    kept ? setenv("LAZULI_CACHE", kept, 1) : unsetenv("LAZULI_CACHE");
    free(kept);
}

/* ---- while one thread waits for the device ----------------------------------------------------------------------- */

static lz_cu_result (*wait_for_event)(lz_cu_event event);

static lz_cu_result wait_slowly(lz_cu_event event) {
    atomic_store(&meeting.compiling, 1);
    for (int i = 0; i < 60000 && !atomic_load(&meeting.met); i++) usleep(1000);
    if (!atomic_load(&meeting.met)) atomic_store(&meeting.waited, true);
    return wait_for_event(event);
}

static bool count_call(void *user, double done) {
    *(int *)user += done == 1;
    return true;
}

static void runs_while_another_waits(void) {
    int calls = 0;
    lz_error err = {0};
    const lz_watch watch = {.go_on = count_call, .user = &calls};
    meeting.ctx = open_cuda();
    if (!meeting.ctx) return;
    lz_device *d = meeting.ctx->device;
    CHECK(three_times(meeting.ctx, &err) == 30, "%s", err.text);
    atomic_store(&meeting.compiling, 0);
    atomic_store(&meeting.met, 0);
    atomic_store(&meeting.waited, false);
    wait_for_event = d->api.cu.EventSynchronize;
    d->api.cu.EventSynchronize = wait_slowly;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run_beside, NULL) == 0);
    lz_array *x = lz_mul(lz_full(meeting.ctx, LZ_DIMS(8), LZ_F32, 2), 3.0);
    CHECK_OK(lz_eval_watched(&x, 1, &watch, &err), &err);
    pthread_join(thread, NULL);
    d->api.cu.EventSynchronize = wait_for_event;
    CHECK(!atomic_load(&meeting.waited) && calls == 1);
    CHECK(lz_item(lz_sum(x, LZ_NONE, false), &err) == 48, "%s", err.text);
    lz_close(meeting.ctx);
}

/* ---- code of libraries that is loaded ahead ---------------------------------------------------------------------- */

enum { NONE_FAILS, CAPTURE_FAILS, END_FAILS, READY_FAILS, LAUNCH_FAILS, FAILURES };

static struct {
    lz_cuda_api real;
    lz_cu_stream stream; /* of the kernels */
    int fails;
    atomic_int relaxed, others, beside, ready; /* captures, and launches outside the stream; recordings made ready */
} loading;

static lz_cu_result begin_capture(lz_cu_stream stream, lz_cu_capture_mode mode) {
    bool relaxed = mode == LZ_CU_STREAM_CAPTURE_MODE_RELAXED && stream != loading.stream;
    atomic_fetch_add(relaxed ? &loading.relaxed : &loading.others, 1);
    return relaxed && loading.fails == CAPTURE_FAILS ? LZ_CUDA_ERROR_NOT_SUPPORTED
                                                     : loading.real.cu.StreamBeginCapture(stream, mode);
}

static lz_cu_result end_capture(lz_cu_stream stream, lz_cu_graph *graph) {
    lz_cu_result result = loading.real.cu.StreamEndCapture(stream, graph);
    if (stream == loading.stream || loading.fails != END_FAILS || result) return result;
    loading.real.cu.GraphDestroy(*graph);
    *graph = NULL;
    return LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

static lz_cu_result make_ready(lz_cu_graph_exec *exec, lz_cu_graph graph, unsigned long long flags) {
    atomic_fetch_add(&loading.ready, 1);
    return loading.fails == READY_FAILS ? LZ_CUDA_ERROR_OUT_OF_MEMORY
                                        : loading.real.cu.GraphInstantiateWithFlags(exec, graph, flags);
}

static lz_lt_status multiply(lz_lt_handle handle, lz_lt_matmul_desc desc, const void *alpha, const void *a,
                             lz_lt_layout a_layout, const void *b, lz_lt_layout b_layout, const void *beta,
                             const void *c, lz_lt_layout c_layout, void *d, lz_lt_layout d_layout,
                             const lz_lt_algo *algo, void *workspace, size_t bytes, lz_cu_stream stream) {
    if (stream != loading.stream) atomic_fetch_add(&loading.beside, 1);
    if (stream != loading.stream && loading.fails == LAUNCH_FAILS) return LZ_CUBLAS_STATUS_EXECUTION_FAILED;
    return loading.real.lt.Matmul(handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algo,
                                  workspace, bytes, stream);
}

static double sum_of_products(lz_context *ctx, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, "products");
    lz_array *x = lz_randn(ctx, LZ_DIMS(8, 16), 1), *sum = lz_full(ctx, LZ_DIMS(8), LZ_F32, 0);
    for (int n = 3; n < 9; n++) { /* six kinds of product, each of which is there twice */
        lz_array *w = lz_contiguous(lz_randn(ctx, LZ_DIMS(16, n), (uint64_t)n));
        for (int twice = 1; twice <= 2; twice++)
            sum = lz_add(sum, lz_sum(lz_matmul(lz_mul(x, (double)twice), w), LZ_DIMS(1), false));
    }
    double got = lz_item(lz_sum(sum, LZ_NONE, false), err);
    lz_scope_end(scope);
    return got;
}

/* The code of each product is loaded once, before the program runs, whichever call fails there. */
static void loads_products(void) {
    enum { KINDS = 6 };
    lz_error err = {0};
    lz_context *ref = lz_open(.device = "ref");
    double want = sum_of_products(ref, &err);
    lz_close(ref);
    for (int fails = 0; fails < FAILURES; fails++) {
        lz_context *ctx = open_cuda();
        if (!ctx) return;
        lz_device *d = ctx->device;
        loading.real = d->api;
        loading.stream = d->stream;
        loading.fails = fails;
        atomic_store(&loading.relaxed, 0);
        atomic_store(&loading.beside, 0);
        atomic_store(&loading.ready, 0);
        d->api.cu.StreamBeginCapture = begin_capture;
        d->api.cu.StreamEndCapture = end_capture;
        d->api.cu.GraphInstantiateWithFlags = make_ready;
        d->api.lt.Matmul = multiply;
        for (int turn = 0; turn < 2; turn++) {
            double got = sum_of_products(ctx, &err);
            CHECK(fabs(got - want) < 1e-3, "failure %d: %g, not %g: %s", fails, got, want, err.text);
            int relaxed = atomic_load(&loading.relaxed);
            CHECK(relaxed == KINDS || (fails && relaxed > 0 && relaxed < KINDS), "%d", relaxed);
            CHECK_I64(atomic_load(&loading.beside), fails == CAPTURE_FAILS ? 0 : relaxed);
            if (!fails) CHECK_I64(atomic_load(&loading.ready), KINDS);
        }
        d->api = loading.real;
        lz_close(ctx);
    }
}

static void nothing_but_work(void) {
    static const char klein[] = LZ_SOURCE_DIR "/tests/data/flux2/B", qwen[] = LZ_SOURCE_DIR "/tests/data/qwen/Q";
    paint_again(klein, 3, 5, LZ_PICTURE_OPTIONS(.steps = 5)); /* text, begin, decode */
    paint_again(qwen, 4, 5, LZ_PICTURE_OPTIONS(.steps = 5));  /* guided: two texts */
    paint_again(klein, 3, 8 + 4, LZ_PICTURE_OPTIONS(.steps = 8, .cache = 0.5));
    paint_again(qwen, 4, 6 + 4, LZ_PICTURE_OPTIONS(.steps = 6, .cache = 0.3, .guidance_to = 0.8, .guidance_every = 2));
}

TEST_MAIN({"long_rows", long_rows}, {"names", names}, {"here_and_there", here_and_there}, {"borrowed", borrowed},
          {"replays", replays}, {"on_the_host", on_the_host}, {"random_numbers", random_numbers}, {"pixels", pixels},
          {"copied", copied}, {"out_of_memory", out_of_memory}, {"profiled", profiled}, {"options", options},
          {"together", together}, {"pairs_of_patched_weights", pairs_of_patched_weights},
          {"passes_share_weights", passes_share_weights}, {"masks_of_keys", masks_of_keys}, {"paints", paints},
          {"paints_together", paints_together}, {"compiles_together", compiles_together},
          {"runs_while_another_compiles", runs_while_another_compiles},
          {"runs_while_another_waits", runs_while_another_waits}, {"loads_products", loads_products},
          {"nothing_but_work", nothing_but_work})
