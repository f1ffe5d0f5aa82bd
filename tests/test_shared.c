/* test_shared.c: a context holds one copy of weights that several models read from the same files: one mapping, one copy
 * in host memory, one on the device. Runs on the CPU, or on the device that LZ_TEST_DEVICE names. */
#include "cli/environment.h"
#include "loras.h"
#include "models/param.h"

#define MODEL DATA "flux2/B"

static lz_context *open_context(int offload) {
    lz_error err = {0};
    const char *device = getenv("LZ_TEST_DEVICE");
    lz_context *ctx = open_as_asked(
        LZ_CONTEXT_OPTIONS(.device = device ? device : "cpu", .threads = 2, .cache_limit = -1, .offload = offload),
        &err);
    CHECK(ctx, "%s", err.text);
    return ctx;
}

/* How often the process has mapped files whose path contains this text. */
static int count_mapped(const char *part) {
    char line[1024];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, part) != NULL;
    if (f) fclose(f);
    return n;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

enum { ROWS = 48, COLUMNS = 64 };

static void save_matrix(lz_context *ctx, const char *path) {
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "save");
    const lz_named_array all[] = {{"codes", lz_contiguous(lz_full(ctx, LZ_DIMS(ROWS, COLUMNS), LZ_U8, 3))},
                                  {"matrix", lz_randn(ctx, LZ_DIMS(ROWS, COLUMNS), 11)},
                                  {"scales", lz_contiguous(lz_full(ctx, LZ_DIMS(ROWS, 1), LZ_F32, 0.25))}};
    CHECK_OK(lz_weights_save(ctx, path, all, 3, NULL, &err), &err);
    lz_scope_end(scope);
}

static lz_array *dense_of(lz_context *ctx, lz_weights *w, float factor) {
    lz_error err = {0};
    const lz_packed p = {
        .layout = {.packing = LZ_PACKING_I8, .rows = ROWS, .columns = COLUMNS, .group = COLUMNS, .factor = factor},
        .codes = lz_weights_get(w, "codes"),
        .scales = lz_weights_get(w, "scales")};
    lz_array *a = lz_packed_dense(ctx, &p, LZ_DIMS(ROWS, COLUMNS), LZ_F32, &err);
    CHECK(a, "%s", err.text);
    return a;
}

/* Arrays of one file through two names share buffers; arrays of a copy of the file do not. */
static void buffers(void) {
    lz_error err = {0};
    lz_context *ctx = open_context(LZ_OFFLOAD_AUTO);
    if (!ctx) return;
    enter_folder();
    save_matrix(ctx, in_folder("first.safetensors"));
    save_matrix(ctx, in_folder("copy.safetensors"));
    CHECK(symlink(in_folder("first.safetensors"), in_folder("second.safetensors")) == 0);
    static const char *const names[] = {"first.safetensors", "second.safetensors", "copy.safetensors"};
    lz_weights *w[3];
    lz_array *plain[3], *cast[3], *dense[3];
    lz_scope *scope = lz_scope_begin(ctx, "buffers");
    for (int i = 0; i < 3; i++) {
        w[i] = lz_weights_open(ctx, in_folder(names[i]), &err);
        if (!CHECK(w[i], "%s", err.text)) return;
        plain[i] = lz_weights_get(w[i], "matrix");
        cast[i] = lz_recipe_value(ctx, &lz_recipe_cast, LZ_DIMS(ROWS, COLUMNS), LZ_BF16, &plain[i], 1, &err);
        dense[i] = dense_of(ctx, w[i], 2);
        lz_weights_close(w[i]);
    }
    CHECK_I64(count_mapped("/first.safetensors"), 1);
    CHECK_I64(count_mapped("/copy.safetensors"), 1);
    CHECK(plain[0]->buffer == plain[1]->buffer && plain[0]->buffer != plain[2]->buffer);
    CHECK(cast[0]->buffer == cast[1]->buffer && cast[0]->buffer != cast[2]->buffer);
    CHECK(dense[0]->buffer == dense[1]->buffer && dense[0]->buffer != dense[2]->buffer);

    /* Another computation from the same bytes has a buffer of its own. */
    w[0] = lz_weights_open(ctx, in_folder(names[0]), &err);
    CHECK(lz_recipe_value(ctx, &lz_recipe_cast, LZ_DIMS(ROWS, COLUMNS), LZ_F16, plain, 1, &err)->buffer !=
          cast[0]->buffer);
    CHECK(dense_of(ctx, w[0], 4)->buffer != dense[0]->buffer);
    lz_weights_close(w[0]);
    const float *numbers = lz_data(dense[1], &err);
    CHECK(numbers && numbers[0] == 2 * 0.25F * 3, "%s", err.text);

    /* The buffer lasts as long as one of its arrays. Then the file can be read again. */
    lz_scope_end(scope);
    CHECK_I64(count_mapped("/first.safetensors"), 0);
    scope = lz_scope_begin(ctx, "again");
    w[0] = lz_weights_open(ctx, in_folder(names[1]), &err);
    numbers = lz_data(dense_of(ctx, w[0], 2), &err);
    CHECK(numbers && numbers[1] == 2 * 0.25F * 3, "%s", err.text);
    lz_weights_close(w[0]);
    lz_scope_end(scope);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    leave_folder();
    lz_close(ctx);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef uint8_t pixels[32 * 32 * 3];

static void draw(lz_model *model, const char *prompt, pixels to) {
    lz_error err = {0};
    lz_picture p;
    if (!CHECK_OK(lz_generate(model, &p, &err, .prompt = prompt, .width = 32, .height = 32, .steps = 2, .seed = 3),
                  &err))
        return;
    memcpy(to, p.image.pixels, sizeof(pixels));
    lz_picture_free(&p);
}

static lz_model *open_in_folder(lz_context *ctx, const char *name) {
    lz_error err = {0};
    lz_model *m = lz_model_open(ctx, in_folder(name), &err);
    CHECK(m, "%s", err.text);
    return m;
}

/* "linked" has its own transformer, decoder and tokenizer, and the text encoder of MODEL by a link; "copied" has a copy
 * of each. */
static void make_models(void) {
    char line[2048];
    enter_folder();
    snprintf(line, sizeof line,
             "cp -r " MODEL " %s/copied && cp -r " MODEL
             " %s/linked && chmod -R u+w %s && rm -r %s/linked/text_encoder "
             "&& ln -s " MODEL "/text_encoder %s/linked/text_encoder",
             folder, folder, folder, folder, folder);
    CHECK_I64(system(line), 0);
}

static void remove_models(void) {
    char line[512];
    snprintf(line, sizeof line, "rm -r %s", folder);
    CHECK_I64(system(line), 0);
}

/* Bytes in use after MODEL and another model made a picture each. */
static int64_t active_of_two(int offload, const char *other, pixels to[2]) {
    lz_error err = {0};
    lz_context *ctx = open_context(offload);
    lz_model *m[2] = {lz_model_open(ctx, MODEL, &err), open_in_folder(ctx, other)};
    if (!m[0] || !m[1]) return 0;
    for (int i = 0; i < 2; i++) draw(m[i], "a fox", to[i]);
    int64_t active = lz_memory_info(ctx).active;
    for (int i = 0; i < 2; i++) lz_model_close(m[i]);
    CHECK(offload == LZ_OFFLOAD_STREAM || lz_memory_info(ctx).active == 0); /* the ring stays */
    lz_close(ctx);
    return active;
}

/* Bytes of the parameters that a picture reads from the text encoder, in the type that models compute in: the table of
 * tokens and three of its four layers. */
static int64_t encoder_bytes(void) {
    lz_error err = {0};
    lz_context *ctx = open_context(LZ_OFFLOAD_AUTO);
    lz_weights *w = lz_weights_open(ctx, MODEL "/text_encoder", &err);
    int64_t numbers = 0;
    CHECK_I64(lz_weights_count(w), 1 + 4 * 11 + 1);
    for (int64_t i = 0; i < lz_weights_count(w); i++) {
        const char *name = lz_weights_name(w, i);
        bool last = strstr(name, "layers.3.") || !strcmp(name, "model.norm.weight");
        if (!last) numbers += lz_size(lz_weights_get(w, name));
    }
    int64_t bytes = numbers * lz_dtype_size(lz_compute_type(ctx));
    lz_weights_close(w);
    lz_close(ctx);
    return bytes;
}

/* On a device the second model adds everything but the text encoder. On the CPU weights are read from the mapped files,
 * and nothing else stays. */
static void one_copy(void) {
    make_models();
    pixels linked[2], copied[2];
    bool device = getenv("LZ_TEST_DEVICE");
    int64_t text = encoder_bytes(), shared = active_of_two(LZ_OFFLOAD_AUTO, "linked", linked),
            separate = active_of_two(LZ_OFFLOAD_AUTO, "copied", copied);
    CHECK(text > 10000, "%lld bytes", (long long)text);
    CHECK_I64(separate - shared, device ? text : 0);
    CHECK(!memcmp(linked, copied, sizeof linked) && !memcmp(linked[0], linked[1], sizeof(pixels)));
    active_of_two(LZ_OFFLOAD_STREAM, "linked", linked);
    active_of_two(LZ_OFFLOAD_STREAM, "copied", copied);
    CHECK(!memcmp(linked, copied, sizeof linked) && !memcmp(linked[0], linked[1], sizeof(pixels)));
    remove_models();
}

/* Each file of the text encoder is mapped once while two models have it open, and until both are closed. */
static void mapped_once(void) {
    lz_error err = {0};
    make_models();
    lz_context *ctx = open_context(LZ_OFFLOAD_AUTO);
    lz_model *first = lz_model_open(ctx, MODEL, &err);
    int files = count_mapped("flux2/B/text_encoder/");
    lz_model *second = open_in_folder(ctx, "linked");
    CHECK(files > 0 && count_mapped("/linked/transformer/") > 0);
    CHECK_I64(count_mapped("flux2/B/text_encoder/"), files);
    CHECK_I64(count_mapped("/linked/text_encoder/"), 0);
    lz_model_close(first);
    CHECK_I64(count_mapped("flux2/B/text_encoder/"), files);
    lz_model_close(second);
    CHECK_I64(count_mapped("flux2/B/text_encoder/"), 0);
    lz_close(ctx);
    remove_models();
}

/* A LoRA of the text encoder of one model does not change the other, and closing one leaves the other as it is. */
static void loras_and_closing(void) {
    lz_error err = {0};
    static const char *const prompts[] = {"a fox", "a red apple", "the sea at night"};
    pixels right[3], with, alone, now;
    make_models();
    lz_context *ctx = open_context(LZ_OFFLOAD_AUTO);
    lz_model *model = lz_model_open(ctx, MODEL, &err), *other = NULL;
    if (!CHECK(model, "%s", err.text)) return;
    for (int i = 0; i < 3; i++) draw(model, prompts[i], right[i]);
    made_file f = {.ctx = ctx};
    lz_scope *scope = lz_scope_begin(ctx, "LoRA");
    add_pair(&f, "lora_te_model_layers_0_self_attn_q_proj", 32, 4, 32);
    add_pair(&f, "lora_te_layers_1_mlp_up_proj", 80, 4, 32);
    CHECK_OK(try_file(model, &f, false, &err), &err);
    lz_scope_end(scope);
    draw(model, prompts[1], alone);
    lz_model_close(model);
    lz_close(ctx);

    ctx = open_context(LZ_OFFLOAD_AUTO);
    model = lz_model_open(ctx, MODEL, &err);
    other = open_in_folder(ctx, "linked");
    const lz_lora lora = LZ_LORA(.path = in_folder("made.safetensors"), .weight = 1);
    draw(other, prompts[0], now);
    CHECK(!memcmp(now, right[0], sizeof now));
    CHECK_OK(lz_model_set_loras(model, &lora, 1, &err), &err);
    draw(model, prompts[1], with);
    CHECK(!memcmp(with, alone, sizeof with) && memcmp(with, right[1], sizeof with));
    draw(other, prompts[1], now);
    CHECK(!memcmp(now, right[1], sizeof now), "the LoRA of one model changed the other");
    draw(other, prompts[2], now);
    CHECK(!memcmp(now, right[2], sizeof now));
    CHECK_OK(lz_model_set_loras(other, &lora, 1, &err), &err);
    CHECK_OK(lz_model_set_loras(model, NULL, 0, &err), &err);
    draw(model, prompts[1], now);
    CHECK(!memcmp(now, right[1], sizeof now));
    draw(other, prompts[1], now);
    CHECK(!memcmp(now, alone, sizeof now));
    lz_model_close(model);
    draw(other, prompts[1], now);
    CHECK(!memcmp(now, alone, sizeof now));
    CHECK_OK(lz_model_set_loras(other, NULL, 0, &err), &err);
    draw(other, prompts[2], now);
    CHECK(!memcmp(now, right[2], sizeof now));
    lz_model_close(other);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
    remove_models();
}

TEST_MAIN({"buffers", buffers}, {"one_copy", one_copy}, {"mapped_once", mapped_once},
          {"loras_and_closing", loras_and_closing})
