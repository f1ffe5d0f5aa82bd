/* test_stages.c: each stage of a picture by itself against diffusers, for every case of diffusers.h: the input of a
 * stage is the output of diffusers' previous stage, so that an error is found in the stage that makes it. Whole
 * pictures are tested in test_flux2.c, test_flux3.c, test_qwen.c, test_qwen21.c and test_z_image.c. */
#include "diffusers.h"
#include "pipeline/generate.h"

static const char *const compared[] = {"ids",        "text",   "text_empty", "noise",
                                       "references", "sigmas", "latents",    "image"};

static lz_array *features_of(lz_model *model, const char *prompt, lz_array **ids) {
    lz_error err = {0};
    lz_prompt read = {.n = 0};
    CHECK_OK(model->family->tokens(model->state, prompt, NULL, 0, &read, &err), &err);
    *ids = read.in[0];
    void *text = model->family->open_text(model->state, false, &err);
    if (!CHECK(text, "%s", err.text)) return NULL;
    lz_array *features = model->family->features(text, read);
    CHECK_OK(lz_eval(features, &err), &err);
    model->family->close_text(text);
    return features;
}

/* Prompt to ids, and ids to features: of cases without images, which Qwen's prompts would show. */
static void check_prompt(lz_model *model, const test_case *c, lz_weights *golden) {
    lz_array *ids, *text = features_of(model, c->prompt, &ids), *want = lz_weights_get(golden, "text");
    int64_t kept = lz_shape(want).at[1], all = text ? lz_shape(text).at[0] : 0;
    if (!CHECK(all >= kept, "%s: %lld rows of text", c->name, (long long)all)) return;
    double error = relative_error(lz_slice(text, 0, all - kept, all, 1), want);
    CHECK(error < 1e-4, "%s: text %g", c->name, error);
    if (lz_weights_has(golden, "ids")) {
        lz_error err = {0};
        lz_array *golden_ids = lz_cast(lz_weights_get(golden, "ids"), LZ_I64);
        const int64_t *a = lz_data(ids, &err), *b = lz_data(golden_ids, &err);
        CHECK(a && b && lz_size(ids) == lz_size(golden_ids) && same_bits(a, b, 8 * lz_size(ids)), "%s: ids", c->name);
    }
    if (lz_weights_has(golden, "text_empty")) {
        error = relative_error(features_of(model, "", &ids), lz_weights_get(golden, "text_empty"));
        CHECK(error < 1e-4, "%s: features of the empty prompt %g", c->name, error);
    }
}

static void check_references(lz_model *model, const test_case *c, lz_weights *golden, const lz_image *images, int n) {
    lz_array *tokens[4], *want = lz_weights_get(golden, "references");
    for (int i = 0; i < n; i++) {
        lz_array *latents = lz_encode_image(model, &images[i]); /* [1, c, h, w] */
        tokens[i] = lz_reshape(lz_permute(latents, LZ_DIMS(0, 2, 3, 1)), LZ_DIMS(-1, lz_shape(want).at[2]));
    }
    double error = relative_error(lz_concat(tokens, n, 0), want);
    CHECK(error < 1e-4, "%s: references %g", c->name, error);
}

static void check_sigmas(lz_model *model, const test_case *c, lz_weights *golden) {
    lz_error err = {0};
    float sigmas[64];
    int64_t patch = model->family->patch;
    lz_dims latents = lz_shape(lz_weights_get(golden, "latents"));
    int64_t tokens = latents.at[2] / patch * (latents.at[3] / patch);
    double mu = model->family->mu(model->state, &model->schedule, tokens, c->steps);
    CHECK(c->steps < 64 && lz_schedule_sigmas(&model->schedule, mu, c->steps, sigmas));
    lz_array *want = lz_weights_get(golden, "sigmas");
    const float *data = lz_data(want, &err);
    CHECK(data && lz_size(want) == c->steps + 1 && same_bits(sigmas, data, 4 * lz_size(want)), "%s: sigmas", c->name);
}

/* The last latents to the picture. */
static void check_decode(lz_model *model, const test_case *c, lz_weights *golden) {
    lz_error err = {0};
    lz_image image = {0};
    lz_dims size = lz_shape(lz_weights_get(golden, "image")), latents = lz_shape(lz_weights_get(golden, "latents"));
    int64_t n = 0, off = 0, width = size.at[3], plane = width * size.at[2];
    int64_t side = model->family->token_pixels(model->state) / model->family->patch;
    if (width != side * latents.at[3] || size.at[2] != side * latents.at[2]) return; /* it was cropped to its image */
    const float *want = floats(lz_weights_get(golden, "image"), &n);
    if (!CHECK_OK(lz_decode_latents(model, lz_weights_get(golden, "latents"), &image, &err), &err)) return;
    int channels = image.channels;
    CHECK(image.width == width && image.height == size.at[2] && n == channels * plane);
    for (int64_t i = 0; i < plane && n == channels * plane; i++)
        for (int k = 0; k < channels; k++)
            off += abs((int)image.pixels[channels * i + k] - (int)rintf(want[k * plane + i] * 255)) > 1;
    CHECK(off == 0, "%s: %lld levels are off by more than 1", c->name, (long long)off);
    lz_image_free(lz_context_of(lz_weights_get(golden, "image")), &image);
}

static void check_stages(lz_context *ctx, const char *data, const test_case *c) {
    char path[512];
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, c->name);
    snprintf(path, sizeof path, "%s/%s", data, c->model);
    lz_model *model = lz_model_open(ctx, path, &err);
    snprintf(path, sizeof path, "%s/cases/%s.safetensors", data, c->name);
    lz_weights *golden = lz_weights_open(ctx, path, &err);
    if (!CHECK(model && golden, "%s: %s", c->name, err.text)) return;
    lz_image images[4] = {{0}};
    int n_images = read_references(ctx, data, c->references, images);
    if (!model->family->view || !n_images) check_prompt(model, c, golden);
    if (lz_weights_has(golden, "references")) check_references(model, c, golden, images, n_images);
    check_sigmas(model, c, golden);
    check_decode(model, c, golden);
    for (int64_t i = 0; i < lz_weights_count(golden); i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof compared / sizeof *compared; k++)
            known = known || !strcmp(compared[k], lz_weights_name(golden, i));
        CHECK(known, "%s: %s is compared with nothing", c->name, lz_weights_name(golden, i));
    }
    for (int i = 0; i < 4; i++) lz_image_free(ctx, &images[i]);
    lz_weights_close(golden);
    lz_model_close(model);
    lz_scope_end(scope);
}

static void flux2(void) { each_case(LZ_SOURCE_DIR "/tests/data/flux2", 14, check_stages); }
static void flux3(void) { each_case(LZ_SOURCE_DIR "/tests/data/flux3", 14, check_stages); }
static void qwen21(void) { each_case(LZ_SOURCE_DIR "/tests/data/qwen21", 11, check_stages); }
static void qwen(void) { each_case(LZ_SOURCE_DIR "/tests/data/qwen", 12, check_stages); }
static void z_image(void) { each_case(LZ_SOURCE_DIR "/tests/data/zimage", 14, check_stages); }

TEST_MAIN({"flux2", flux2}, {"flux3", flux3}, {"qwen", qwen}, {"qwen21", qwen21}, {"z_image", z_image})
