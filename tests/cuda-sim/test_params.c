/* test_params.c: parameters on a device. A weight that must be converted takes as much memory as one of the right type:
 * one copy on the device for all programs, which is planned, streamed and evicted. Runs on a real GPU or on the
 * simulated one. */
#include "check.h"
#include "cli/environment.h"
#include "folder.h"
#include "models/param.h"
#include "op/number.h"

static lz_context *open_device(int offload) {
    lz_error err = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .cache_limit = -1, .offload = offload), &err);
    CHECK(ctx, "%s", err.text);
    return ctx;
}

static lz_picture_options apple(int64_t width, int steps) {
    return LZ_PICTURE_OPTIONS(.prompt = "a red apple", .seed = 5, .width = width, .height = 32, .steps = steps);
}

/* ---- weights in a wider type than the model computes in ---------------------------------------------------------- */

/* A copy of a model whose weights are F32. They were BF16, so narrowing them gives what was there. */
static void widen_part(lz_context *ctx, const char *from, const char *part, const char *file) {
    enum { MOST = 1024 };
    static lz_named_array all[MOST];
    char path[1024];
    lz_error err = {0};
    snprintf(path, sizeof path, "%s/%s", from, part);
    lz_weights *w = lz_weights_open(ctx, path, &err);
    if (!CHECK(w && lz_weights_count(w) < MOST, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(ctx, "widen");
    int64_t n = lz_weights_count(w);
    for (int64_t i = 0; i < n; i++) {
        lz_array *a = lz_weights_get(w, lz_weights_name(w, i));
        all[i] = (lz_named_array){lz_weights_name(w, i), lz_type(a) == LZ_BF16 ? lz_cast(a, LZ_F32) : a};
    }
    snprintf(path, sizeof path, "rm %s/%s/*.safetensors*", folder, part);
    CHECK_I64(system(path), 0);
    CHECK_OK(lz_weights_save(ctx, in_folder(file), all, n, NULL, &err), &err);
    lz_scope_end(scope);
    lz_weights_close(w);
}

static void widen_model(const char *from) {
    char line[1024];
    enter_folder();
    snprintf(line, sizeof line, "cp -r %s/. %s && chmod -R u+w %s", from, folder, folder);
    CHECK_I64(system(line), 0);
    lz_context *ctx = lz_open(.threads = 1);
    widen_part(ctx, from, "text_encoder", "text_encoder/model.safetensors");
    widen_part(ctx, from, "transformer", "transformer/diffusion_pytorch_model.safetensors");
    widen_part(ctx, from, "vae", "vae/diffusion_pytorch_model.safetensors");
    lz_close(ctx);
}

/* Pictures of three sizes, and of another number of steps, by a model of bf16 and by the same one in F32. Both take the
 * same memory, plan it alike, and send as much: the device holds one bf16 copy, whatever the number of programs.
 *
 * Before parameters were objects, every program that was traced evaluated its own copy of each converted weight. A
 * change of the size freed the old program and its copies; another number of steps added a program with copies of all
 * weights of a step. The copies were neither streamed (with offload 'stream' the F32 weights were sent when a program was
 * traced, and nothing in its steps) nor evicted, and the F32 weights stayed beside them. With tests/data/flux2/A that was
 * 10.8 MB on the device after one picture, with bf16 7.7 MB, and 0.7 MB more for another number of steps, with bf16 0.01
 * MB. The plan of its text encoder asked for 4.6 MB, with bf16 1.0 MB. */
static void wide_weights(int offload) {
    static const char narrow[] = LZ_SOURCE_DIR "/tests/data/flux3/D";
    lz_error err = {0};
    lz_context *ctx[2];
    lz_model *model[2];
    for (int k = 0; k < 2; k++) {
        ctx[k] = open_device(offload);
        model[k] = ctx[k] ? lz_model_open(ctx[k], k ? folder : narrow, &err) : NULL;
    }
    if (!CHECK(model[0] && model[1], "%s", err.text)) return;
    for (int i = 0; i < 4; i++) {
        lz_picture_plan plan[2];
        lz_picture p[2];
        lz_memory memory[2];
        for (int k = 0; k < 2; k++) {
            lz_picture_options o = apple(i < 3 ? 32 + 16 * i : 64, 1 + i);
            CHECK_OK(lz_plan_picture(model[k], &o, &plan[k], &err), &err);
            lz_reset_peak(ctx[k]);
            CHECK_OK(lz_generate_with(model[k], &o, &p[k], &err), &err);
            memory[k] = lz_memory_info(ctx[k]);
        }
        CHECK(same_bits(p[0].image.pixels, p[1].image.pixels, 3 * p[0].image.width * p[0].image.height), "picture %d",
              i);
        CHECK_I64(memory[1].active, memory[0].active);
        CHECK_I64(memory[1].peak, memory[0].peak);
        CHECK_I64(memory[1].streamed, memory[0].streamed);
        CHECK(offload == LZ_OFFLOAD_STREAM ? memory[1].streamed > 0 : memory[1].streamed == 0);
        CHECK_I64(plan[1].n_stages, plan[0].n_stages);
        for (int k = 0; k < plan[0].n_stages; k++) {
            CHECK_I64(plan[1].stages[k].device_bytes, plan[0].stages[k].device_bytes);
            CHECK_I64(plan[1].stages[k].weight_bytes, plan[0].stages[k].weight_bytes);
            CHECK_I64(plan[1].stages[k].streamed_bytes, plan[0].stages[k].streamed_bytes);
        }
        for (int k = 0; k < 2; k++) lz_picture_free(&p[k]);
    }
    for (int k = 0; k < 2; k++) {
        lz_model_close(model[k]);
        CHECK(offload == LZ_OFFLOAD_STREAM || lz_memory_info(ctx[k]).active == 0); /* the ring stays */
        lz_close(ctx[k]);
    }
}

static void converts(void) {
    char line[1024];
    unsetenv("LAZULI_SIM_STRICT"); /* whole pictures take long with it, and the test before had it */
    widen_model(LZ_SOURCE_DIR "/tests/data/flux3/D");
    wide_weights(LZ_OFFLOAD_AUTO);
    wide_weights(LZ_OFFLOAD_STREAM);
    snprintf(line, sizeof line, "rm -r %s", folder);
    CHECK_I64(system(line), 0);
}

/* ---- a type of another's: 8 bits and a scale --------------------------------------------------------------------- */

/* value[r][c] = packed[r][c] * scale[r], in bf16 */
static void make_scaled(const lz_recipe_work *work, int64_t first, int64_t n, char *to) {
    const int8_t *packed = (const int8_t *)work->from[0].data;
    const float *scale = (const float *)work->from[1].data;
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)to)[i] = lz_to_bf16((float)packed[first + i] * scale[(first + i) / work->dims.at[1]]);
}

static const lz_recipe scaled = {"scaled", make_scaled};

enum { LAYERS = 5, WIDTH = 160, ROWS = 4 };
static int8_t packed[LAYERS][WIDTH][WIDTH];
static float scales[LAYERS][WIDTH];
static uint16_t unpacked[LAYERS][WIDTH][WIDTH];

typedef struct toy {
    lz_param *layer[LAYERS];
} toy;

static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const toy *t = user;
    lz_array *x = in[0];
    for (int i = 0; i < LAYERS; i++) x = lz_tanh(lz_apply(x, t->layer[i], NULL));
    out[0] = x;
}

/* kept: the weights as they would be in a file of bf16. Two programs read them, of ROWS and of 2 ROWS. */
static lz_memory run_toy(bool kept, int offload, uint16_t *to) {
    lz_error err = {0};
    toy t;
    lz_memory memory = {0};
    lz_context *ctx = open_device(offload);
    if (!CHECK(ctx)) return memory;
    lz_scope *scope = lz_scope_begin(ctx, "load");
    lz_dims dims = LZ_DIMS(WIDTH, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        lz_array *from[2] = {lz_borrow(ctx, dims, LZ_I8, packed[i], NULL, NULL),
                             lz_borrow(ctx, LZ_DIMS(WIDTH), LZ_F32, scales[i], NULL, NULL)};
        lz_array *plain = lz_borrow(ctx, dims, LZ_BF16, unpacked[i], NULL, NULL);
        t.layer[i] = kept ? lz_param_new(ctx, "plain", NULL, dims, LZ_BF16, &plain, 1, &err)
                          : lz_param_new(ctx, "packed", &scaled, dims, LZ_BF16, from, 2, &err);
        if (!CHECK(t.layer[i], "%s", err.text)) return memory;
    }
    lz_scope_end(scope);
    lz_compiled *f = lz_compile(ctx, describe, &t, 1, 1, 2, &err);
    for (int turn = 0; turn < 6; turn++) {
        lz_scope *each = lz_scope_begin(ctx, "turn");
        int rows = turn % 2 ? 2 * ROWS : ROWS;
        lz_array *x = lz_cast(lz_randn(ctx, LZ_DIMS(rows, WIDTH), 3), LZ_BF16), *y = NULL;
        CHECK_OK(lz_run(f, &x, &y, &err), &err);
        CHECK_OK(lz_copy(y, to, (int64_t)(rows * WIDTH * 2), &err), &err);
        to += rows * WIDTH;
        lz_scope_end(each);
    }
    CHECK_I64(lz_compiled_stats(f).compiles, 2);
    memory = lz_memory_info(ctx);
    lz_compiled_free(f);
    for (int i = 0; i < LAYERS; i++) lz_param_free(t.layer[i]);
    CHECK(offload == LZ_OFFLOAD_STREAM || lz_memory_info(ctx).active == 0);
    lz_close(ctx);
    return memory;
}

static void scaled_weights(void) {
    enum { ALL = 3 * (ROWS + 2 * ROWS) * WIDTH };
    static uint16_t got[2][ALL];
    test_random random = {7};
    for (int i = 0; i < LAYERS; i++)
        for (int r = 0; r < WIDTH; r++) {
            scales[i][r] = (float)(1 + r % 7) / 2048;
            for (int c = 0; c < WIDTH; c++) {
                packed[i][r][c] = (int8_t)(random_normal(&random) * 40);
                unpacked[i][r][c] = lz_to_bf16((float)packed[i][r][c] * scales[i][r]);
            }
        }
    for (int offload = LZ_OFFLOAD_AUTO; offload <= LZ_OFFLOAD_STREAM; offload++) {
        lz_memory kept = run_toy(true, offload, got[0]), made = run_toy(false, offload, got[1]);
        CHECK(same_bits(got[0], got[1], sizeof got[0]), "offload %d", offload);
        CHECK_I64(made.peak, kept.peak);
        CHECK_I64(made.active, kept.active);
        CHECK_I64(made.streamed, kept.streamed);
    }
}

/* ---- LoRAs -------------------------------------------------------------------------------------------------------- */

static void paint(lz_model *model, uint8_t pixels[32 * 32 * 3]) {
    lz_error err = {0};
    lz_picture p;
    lz_picture_options options = apple(32, 2);
    if (!CHECK_OK(lz_generate_with(model, &options, &p, &err), &err)) return;
    memcpy(pixels, p.image.pixels, 32 * 32 * 3);
    lz_picture_free(&p);
}

/* LoRAs change between pictures while weights stay on the device and programs are kept: the picture with them is the CPU's, the
 * one after them is the one before them. */
static void change_loras(lz_context *ctx, uint8_t with[32 * 32 * 3]) {
    static const char dora[] = LZ_SOURCE_DIR "/tests/data/lora/klein-dora.safetensors",
                      plain[] = LZ_SOURCE_DIR "/tests/data/lora/klein-peft.safetensors";
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, LZ_SOURCE_DIR "/tests/data/flux2/B", &err);
    if (!CHECK(model, "%s", err.text)) return;
    uint8_t before[32 * 32 * 3] = {0}, after[32 * 32 * 3] = {1};
    const lz_lora both[] = {LZ_LORA(.path = dora, .weight = 0.7), LZ_LORA(.path = plain, .weight = -0.5)};
    paint(model, before);
    CHECK_OK(lz_model_set_loras(model, both, 2, &err), &err);
    paint(model, with);
    paint(model, with); /* a recorded program */
    CHECK(memcmp(before, with, sizeof before) != 0, "the LoRAs change nothing");
    CHECK_OK(lz_model_set_loras(model, NULL, 0, &err), &err);
    paint(model, after);
    CHECK(memcmp(before, after, sizeof before) == 0, "the LoRAs are still there");
    lz_model_close(model);
}

static void loras(void) {
    static uint8_t here[32 * 32 * 3], there[32 * 32 * 3];
    lz_context *ctx = lz_open();
    change_loras(ctx, here);
    lz_close(ctx);
    for (int offload = LZ_OFFLOAD_AUTO; offload <= LZ_OFFLOAD_STREAM; offload += LZ_OFFLOAD_STREAM) {
        lz_error err = {0};
        ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda", .compute = LZ_F32, .offload = offload), &err);
        if (!CHECK(ctx, "%s", err.text)) return;
        change_loras(ctx, there);
        int off = 0;
        for (int i = 0; i < 32 * 32 * 3; i++) off += abs(here[i] - there[i]) > 1;
        CHECK(off == 0, "%d values differ from the CPU's", off);
        lz_close(ctx);
    }
}

TEST_MAIN({"loras", loras}, {"scaled_weights", scaled_weights}, {"converts", converts})
