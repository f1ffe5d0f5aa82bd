/* test_qwen.c: Qwen-Image against diffusers (diffusers.h). */
#include "diffusers.h"

#define DATA LZ_SOURCE_DIR "/tests/data/qwen"

static void against_diffusers(void) { check_cases(DATA, 12); }

/* ---- what is taken and what is not ------------------------------------------------------------------------------- */

static void options(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0};
    lz_picture p;
    lz_model *painter = lz_model_open(ctx, DATA "/Q", &err), *editor = lz_model_open(ctx, DATA "/P", &err),
             *lightning = lz_model_open(ctx, DATA "/L", &err);
    if (!CHECK(painter && editor && lightning, "%s", err.text)) return;
    CHECK_OK(lz_image_read(ctx, DATA "/ref1.png", &image, &err), &err);
    lz_model_facts facts = lz_model_about(painter);
    CHECK(!strcmp(facts.family, "Qwen-Image"), "%s", facts.family);
    CHECK_I64(facts.steps, 50);
    CHECK_I64(facts.token_pixels, 16);
    CHECK(!facts.distilled && facts.guidance == 4, "guidance %g", facts.guidance);
    facts = lz_model_about(lightning);
    CHECK(facts.distilled && facts.guidance == 1 && facts.steps == 8, "%d steps", facts.steps);
    facts = lz_model_about(editor);
    CHECK(facts.steps == 40 && facts.least_images == 1 && facts.most_images == LZ_MAX_IMAGES, "%d steps", facts.steps);

    CHECK_STATUS(lz_generate(painter, &p, &err, .images = &image, .n_images = 1), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(editor, &p, &err, .prompt = "nothing to change"), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(painter, &p, &err, .width = 48, .height = 48, .prompt = "bad \xff"), LZ_BAD_ARGUMENT,
                 &err);
    CHECK_STATUS(lz_generate(painter, &p, &err, .width = 48, .height = 48,
                             .noise = lz_full(ctx, LZ_DIMS(1, 4, 3, 3), LZ_F32, 1)),
                 LZ_BAD_SHAPE, &err);

    /* To start from an image is another matter; a single step is allowed. */
    CHECK_OK(lz_generate(painter, &p, &err, .images = &image, .n_images = 1, .strength = 0.5, .steps = 2), &err);
    CHECK_I64(p.image.width, 64);
    lz_picture_free(&p);
    CHECK_OK(lz_generate(painter, &p, &err, .width = 48, .height = 48, .steps = 1, .guidance = 1), &err);
    lz_picture_free(&p);

    /* By default a changed picture has the shape of the last image and an area of a megapixel. */
    lz_picture_options o = LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1);
    CHECK_OK(lz_fill_options(editor, &o, &err), &err);
    CHECK(o.width == 1056 && o.height == 992, "%lld x %lld", (long long)o.width, (long long)o.height);
    lz_picture_plan plan;
    o.width = 48;
    o.height = 64;
    CHECK_OK(lz_plan_picture(editor, &o, &plan, &err), &err);
    CHECK_I64(plan.n_stages, 4);

    lz_image_free(ctx, &image);
    lz_model_close(painter);
    lz_model_close(editor);
    lz_model_close(lightning);
    lz_close(ctx);
}

/* A picture to latents and back. */
static void codec(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0}, back = {0};
    lz_model *model = lz_model_open(ctx, DATA "/Q", &err);
    CHECK_OK(lz_image_read(ctx, DATA "/ref1.png", &image, &err), &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(ctx, "codec");
    lz_array *latents = lz_encode_image(model, &image);
    lz_dims d = lz_shape(latents);
    CHECK(d.n == 4 && d.at[1] == 4 && d.at[2] == 8 && d.at[3] == 8, "%d dims", d.n);
    CHECK_OK(lz_decode_latents(model, latents, &back, &err), &err);
    CHECK(back.width == 64 && back.height == 64);
    lz_image_free(ctx, &back);
    CHECK_STATUS(lz_decode_latents(model, lz_slice(latents, 2, 0, 7, 1), &back, &err), LZ_BAD_SHAPE, &err);
    lz_image_free(ctx, &image);
    lz_scope_end(scope);
    lz_model_close(model);
    lz_close(ctx);
}

TEST_MAIN({"against_diffusers", against_diffusers}, {"options", options}, {"codec", codec})
