/* test_packed.c: packed weights on a device. There they take what they take in the file, resident or streamed; they are unpacked
 * right before the product that reads them, and the result has the bits of one with weights unpacked before. Runs on a real
 * GPU or on the simulated one. */
#include "check.h"
#include "cli/environment.h"
#include "op/packing.h"

enum { LAYERS = 6, WIDTH = 256, ROWS = 8, BYTES = WIDTH / 32 * 34, MATRIX = WIDTH * WIDTH * 2 };
static uint8_t packed[LAYERS][WIDTH][BYTES]; /* Q8_0 */
static uint16_t unpacked[LAYERS][WIDTH][WIDTH];

static void fill(void) {
    test_random random = {7};
    for (int i = 0; i < LAYERS; i++)
        for (int r = 0; r < WIDTH; r++) {
            float row[WIDTH];
            for (int c = 0; c < BYTES; c++) packed[i][r][c] = (uint8_t)random_bits(&random);
            for (int c = 0; c < BYTES; c += 34) {
                uint16_t d = lz_to_f16((float)random_normal(&random) / 1024);
                memcpy(&packed[i][r][c], &d, 2);
            }
            lz_unpack_row(LZ_PACKING_Q8_0, packed[i][r], WIDTH, NULL, NULL, 0, 1.0f, 0, row);
            for (int c = 0; c < WIDTH; c++) unpacked[i][r][c] = lz_to_bf16(row[c]);
        }
}

static lz_context *open_device(int offload) {
    lz_error err = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .cache_limit = -1, .offload = offload), &err);
    CHECK(ctx, "%s", err.text);
    return ctx;
}

typedef struct toy {
    bool is_packed;
    lz_array *weight[LAYERS];
} toy;

static toy make_toy(lz_context *ctx, bool is_packed) {
    toy t = {.is_packed = is_packed};
    for (int i = 0; i < LAYERS; i++)
        t.weight[i] = is_packed ? lz_borrow(ctx, LZ_DIMS(WIDTH, BYTES), LZ_U8, packed[i], NULL, NULL)
                                : lz_borrow(ctx, LZ_DIMS(WIDTH, WIDTH), LZ_BF16, unpacked[i], NULL, NULL);
    return t;
}

static lz_array *layer(const toy *t, int i, lz_array *x) {
    lz_array *w = t->weight[i];
    return lz_linear(x, t->is_packed ? lz_unpack(w, NULL, NULL, .packing = "q8_0", .dtype = LZ_BF16) : w, NULL);
}

static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    lz_array *x = in[0];
    for (int i = 0; i < LAYERS; i++) x = lz_tanh(layer(user, i, x));
    out[0] = x;
}

static lz_memory run_toy(bool is_packed, int offload, uint16_t *to) {
    lz_error err = {0};
    lz_memory memory = {0};
    lz_context *ctx = open_device(offload);
    if (!CHECK(ctx)) return memory;
    toy t = make_toy(ctx, is_packed);
    lz_compiled *f = lz_compile(ctx, describe, &t, 1, 1, 2, &err);
    for (int i = 0; i < 3; i++) {
        lz_scope *scope = lz_scope_begin(ctx, "run");
        lz_array *x = lz_cast(lz_randn(ctx, LZ_DIMS(ROWS, WIDTH), 3), LZ_BF16), *y = NULL;
        CHECK_OK(lz_run(f, &x, &y, &err), &err);
        CHECK_OK(lz_copy(y, to, ROWS * WIDTH * 2, &err), &err);
        lz_scope_end(scope);
    }
    memory = lz_memory_info(ctx);
    lz_compiled_free(f);
    lz_close(ctx);
    return memory;
}

static void resident_and_streamed(void) {
    static uint16_t got[2][ROWS * WIDTH];
    for (int offload = LZ_OFFLOAD_AUTO; offload <= LZ_OFFLOAD_STREAM; offload++) {
        lz_memory plain = run_toy(false, offload, got[0]), few = run_toy(true, offload, got[1]);
        CHECK(same_bits(got[0], got[1], sizeof got[0]), "offload %d", offload);
        if (offload == LZ_OFFLOAD_STREAM)
            CHECK(few.streamed > 0 && few.streamed * 2 * 32 == plain.streamed * 34, "%lld, not %lld * 17 / 32",
                  (long long)few.streamed, (long long)plain.streamed);
        else /* all of the packed weights, and room to unpack one after the other */
            CHECK(few.peak < plain.peak - LAYERS * (MATRIX - WIDTH * BYTES) + 3 * MATRIX, "%lld of %lld",
                  (long long)few.peak, (long long)plain.peak);
    }
}

/* Two branches, which are ordered by depth: at no time are more than the weights of one depth unpacked, and what both read is
 * unpacked once. */
static void unpacked_late(void) {
    lz_error err = {0};
    lz_context *ctx = open_device(LZ_OFFLOAD_AUTO);
    if (!CHECK(ctx)) return;
    toy t = make_toy(ctx, true);
    lz_array *x = lz_cast(lz_randn(ctx, LZ_DIMS(ROWS, WIDTH), 3), LZ_BF16), *y = lz_neg(x);
    for (int i = 0; i < LAYERS; i++) x = lz_tanh(layer(&t, i, x)), y = lz_tanh(layer(&t, i, y));
    lz_array *both[] = {x, y};
    lz_plan_info info;
    CHECK_OK(lz_plan(both, 2, &info, &err), &err);
    CHECK(info.arena_bytes < 3 * MATRIX, "%lld, and a matrix has %d", (long long)info.arena_bytes, MATRIX);
    CHECK_I64(info.weight_bytes, sizeof packed);
    char *text = lz_graph_text(both, 2, LZ_GRAPH_PROGRAM, &err);
    int count = 0;
    for (const char *at = text; at && (at = strstr(at, "cuda.unpack")); at++) count++;
    CHECK_I64(count, LAYERS);
    lz_free_text(ctx, text);
    lz_close(ctx);
}

/* Two products of the same rows are one launch still, and epilogues stay inside. */
static void pairs(void) {
    lz_error err = {0};
    lz_context *ctx = open_device(LZ_OFFLOAD_AUTO);
    if (!CHECK(ctx)) return;
    toy few = make_toy(ctx, true), plain = make_toy(ctx, false), *toys[] = {&plain, &few};
    lz_array *x = lz_cast(lz_randn(ctx, LZ_DIMS(ROWS, WIDTH), 3), LZ_BF16), *y[2];
    CHECK_OK(lz_eval(x, &err), &err);
    lz_plan_info info[2];
    for (int k = 0; k < 2; k++) {
        y[k] = lz_mul(lz_silu(layer(toys[k], 0, x)), layer(toys[k], 1, x));
        CHECK_OK(lz_plan(&y[k], 1, &info[k], &err), &err);
    }
    CHECK_I64(info[1].kernels, info[0].kernels + 2);
    CHECK_I64(info[0].kernels, 1);
    CHECK(same_bits(lz_data(y[0], &err), lz_data(y[1], &err), ROWS * WIDTH * 2));
    lz_close(ctx);
}

static void test_all(void) {
    fill();
    resident_and_streamed();
    unpacked_late();
    pairs();
}

TEST_MAIN({"packed", test_all})
