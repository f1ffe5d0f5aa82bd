/* test_flux3.c: FLUX.3 [klein] against diffusers (diffusers.h). */
#include "diffusers.h"

#define DATA LZ_SOURCE_DIR "/tests/data/flux3"

static void against_diffusers(void) { check_cases(DATA, 14); }

/* ---- what is taken and what is not ------------------------------------------------------------------------------- */

static void options(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image images[11] = {{0}};
    lz_model *base = lz_model_open(ctx, DATA "/B", &err), *distilled = lz_model_open(ctx, DATA "/D", &err);
    if (!CHECK(base && distilled, "%s", err.text)) return;
    lz_model_facts facts = lz_model_about(base);
    CHECK(!strcmp(facts.family, "FLUX.3 [klein]"), "%s", facts.family);
    CHECK(!facts.distilled && facts.steps == 50 && facts.guidance == 3.5, "%d steps", facts.steps);
    CHECK_I64(facts.token_pixels, 16);
    CHECK_I64(facts.most_images, 10);
    facts = lz_model_about(distilled);
    CHECK(facts.distilled && facts.guidance_built_in && facts.steps == 16, "%d steps", facts.steps);

    for (int i = 0; i < 11; i++) CHECK_OK(lz_image_read(ctx, DATA "/ref1.png", &images[i], &err), &err);
    lz_picture_options o = LZ_PICTURE_OPTIONS(.images = images, .n_images = 11);
    CHECK_STATUS(lz_fill_options(base, &o, &err), LZ_BAD_ARGUMENT, &err);
    o = LZ_PICTURE_OPTIONS(.images = images, .n_images = 10);
    CHECK_OK(lz_fill_options(base, &o, &err), &err);
    CHECK(o.width == 64 && o.height == 16, "%lld x %lld", (long long)o.width, (long long)o.height);
    for (int i = 0; i < 11; i++) lz_image_free(ctx, &images[i]);

    /* The model wants long captions. */
    lz_remarks remarks;
    CHECK_OK(lz_remark(base, &LZ_PICTURE_OPTIONS(.prompt = "a red fox"), &remarks, &err), &err);
    CHECK(strstr(remarks.prompt, "trained on long captions") != NULL, "'%s'", remarks.prompt);
    char caption[201] = "";
    memset(caption, 'a', sizeof caption - 1);
    CHECK_OK(lz_remark(base, &LZ_PICTURE_OPTIONS(.prompt = caption), &remarks, &err), &err);
    CHECK(!*remarks.prompt, "'%s'", remarks.prompt);
    lz_model_close(base);
    lz_model_close(distilled);
    lz_close(ctx);
}

/* The canvas of a single reference; sizes from diffusers' Flux3ImageProcessor. */
static void canvas(void) {
    static const int64_t sizes[][4] = {{90, 61, 96, 64},         {1024, 1024, 1024, 1024}, {2048, 2048, 2048, 2048},
                                       {2049, 2047, 2048, 2048}, {3000, 2000, 2496, 1664}, {5000, 700, 4096, 576},
                                       {16, 700, 64, 704},       {4000, 1048, 3968, 1040}, {2047, 2049, 2048, 2048}};
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DATA "/D", &err);
    uint8_t *pixels = calloc(5000, 3000);
    if (!CHECK(model && pixels, "%s", err.text)) return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        lz_image image = {.width = sizes[i][0], .height = sizes[i][1], .pixels = pixels};
        lz_picture_options o = LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1);
        CHECK_OK(lz_fill_options(model, &o, &err), &err);
        CHECK(o.width == sizes[i][2] && o.height == sizes[i][3], "%lld x %lld: %lld x %lld", (long long)sizes[i][0],
              (long long)sizes[i][1], (long long)o.width, (long long)o.height);
    }
    free(pixels);
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- from files -------------------------------------------------------------------------------------------------- */

/* A transformer in the makers' names is recognised, as the distilled one, and makes the same picture. */
static void single_file(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_file_facts facts;
    CHECK_OK(lz_file_about(ctx, DATA "/original.safetensors", &facts, &err), &err);
    CHECK(!strcmp(facts.what, "a FLUX.3 [klein] transformer") && !*facts.refused, "%s %s", facts.what, facts.refused);
    lz_model *model = lz_model_open_with(ctx,
                                         &LZ_MODEL_OPTIONS(.model = DATA "/original.safetensors",
                                                           .text_encoder = DATA "/D/text_encoder", .vae = DATA "/D/vae",
                                                           .tokenizer = DATA "/D/tokenizer"),
                                         &err);
    lz_weights *golden = lz_weights_open(ctx, DATA "/cases/d_plain.safetensors", &err);
    lz_picture p;
    if (!CHECK(model && golden, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(ctx, "single file");
    CHECK(lz_model_about(model).distilled);
    CHECK_OK(lz_generate(model, &p, &err, .prompt = "A cat holding a sign that says hello world", .width = 48,
                         .height = 32, .seed = 42),
             &err);
    double latents = relative_error(p.latents, lz_weights_get(golden, "latents"));
    CHECK(latents < 1e-4, "latents %g", latents);
    CHECK(psnr(p.pixels, lz_weights_get(golden, "image")) >= 60);
    lz_picture_free(&p);
    lz_scope_end(scope);
    lz_weights_close(golden);
    lz_model_close(model);
    lz_close(ctx);
}

TEST_MAIN({"against_diffusers", against_diffusers}, {"options", options}, {"canvas", canvas},
          {"single_file", single_file})
