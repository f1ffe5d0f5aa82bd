/* test_cuda.c: what is special about a device with memory of its own: values here and there, recordings, errors, whole
 * pictures. The kernels themselves are tested by test_random_shapes and test_random_graphs with LZ_TEST_DEVICE=cuda.
 * Runs on a real GPU or, with LAZULI_CUDA_PATH naming its libraries, on the simulated one (tests/cuda-sim). */
#include "check.h"

static lz_context *open_cuda(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open_with(&(lz_context_options){.device = "cuda", .cache_limit = -1, .threads = 2}, &err);
    CHECK(ctx, "%s", err.text);
    return ctx;
}

static void names(void) {
    lz_error err = {0};
    static const char *const wrong[] = {"cuda:", "cuda:x", "cuda:1x", "cuda:99999", "cudax"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!lz_open_with(&(lz_context_options){.device = wrong[i]}, &err), "%s", wrong[i]);
        CHECK_TEXT(err.text, "there is no device");
    }
    CHECK(!lz_open_with(&(lz_context_options){.device = "cuda:999"}, &err));
    CHECK_TEXT(err.text, "there is no GPU 999");
    lz_context *ctx = open_cuda();
    if (!ctx) return;
    CHECK_TEXT(lz_device_name(ctx), "cuda (");
    CHECK_I64(lz_compute_type(ctx), LZ_BF16);
    lz_close(ctx);
    ctx = lz_open(.device = "cuda", .compute = LZ_F32);
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

/* The same picture in f32, and one very like it in bf16; twice, so that programs are kept. least: dB of each */
static void paint_here_and_there(const char *folder, const lz_picture_options *o, const double least[2]) {
    lz_error err = {0};
    lz_context *cpu = lz_open();
    lz_model *model = lz_model_open(cpu, folder, &err);
    lz_picture p;
    if (!CHECK(model && !lz_generate_with(model, o, &p, &err), "%s", err.text)) return;
    static const lz_dtype types[2] = {LZ_F32, LZ_BF16};
    for (int i = 0; i < 2; i++) {
        lz_context *ctx = lz_open(.device = "cuda", .compute = (int)types[i]);
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
    paint_here_and_there(
        LZ_SOURCE_DIR "/models/demo",
        &(lz_picture_options){.prompt = "a red apple", .seed = 5, .width = 64, .height = 48, .steps = 3},
        (double[]){70, 38});
    paint_here_and_there(LZ_SOURCE_DIR "/tests/data/qwen/Q",
                         &(lz_picture_options){.prompt = "a red fox", .width = 48, .height = 48, .steps = 2},
                         (double[]){70, 25});
}

TEST_MAIN({"names", names}, {"here_and_there", here_and_there}, {"borrowed", borrowed}, {"replays", replays},
          {"on_the_host", on_the_host}, {"out_of_memory", out_of_memory}, {"profiled", profiled}, {"paints", paints})
