/* test_z_image.c: Z-Image against diffusers (diffusers.h), and what is taken and what is not. */
#include "diffusers.h"
#include "folder.h"

#define DATA LZ_SOURCE_DIR "/tests/data/zimage"

static void against_diffusers(void) { check_cases(DATA, 14); }

/* ---- what is taken and what is not ------------------------------------------------------------------------------- */

static void options(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0};
    lz_picture p;
    lz_model *turbo = lz_model_open(ctx, DATA "/T", &err), *base = lz_model_open(ctx, DATA "/B", &err);
    if (!CHECK(turbo && base, "%s", err.text)) return;
    CHECK_OK(lz_image_read(ctx, DATA "/start2.png", &image, &err), &err);
    lz_model_facts facts = lz_model_about(turbo);
    CHECK(!strcmp(facts.family, "Z-Image"), "%s", facts.family);
    CHECK(facts.distilled && facts.steps == 8 && facts.guidance == 1 && !facts.guidance_built_in, "%d steps",
          facts.steps);
    CHECK(facts.token_pixels == 16 && facts.channels == 32 && facts.most_images == 0);
    facts = lz_model_about(base);
    CHECK(!facts.distilled && facts.steps == 50 && facts.guidance == 5, "guidance %g", facts.guidance);

    CHECK_STATUS(lz_generate(turbo, &p, &err, .images = &image, .n_images = 1), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(turbo, &p, &err, .width = 48, .height = 48, .prompt = "bad \xff"), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(
        lz_generate(turbo, &p, &err, .width = 48, .height = 48, .noise = lz_full(ctx, LZ_DIMS(1, 32, 3, 3), LZ_F32, 1)),
        LZ_BAD_SHAPE, &err);
    CHECK_OK(lz_generate(base, &p, &err, .images = &image, .n_images = 1, .strength = 0.5, .steps = 2), &err);
    CHECK(p.image.width == 48 && p.image.height == 32); /* whole tokens of the start image */
    lz_picture_free(&p);
    CHECK_OK(lz_generate(turbo, &p, &err, .width = 48, .height = 48, .steps = 1, .guidance = 3), &err);
    lz_picture_free(&p);

    lz_picture_plan plan;
    CHECK_OK(lz_plan_picture(base, &LZ_PICTURE_OPTIONS(.width = 48, .height = 64), &plan, &err), &err);
    CHECK_I64(plan.n_stages, 3);
    lz_image_free(ctx, &image);
    lz_model_close(turbo);
    lz_model_close(base);
    lz_close(ctx);
}

/* A picture to latents and back. */
static void codec(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0}, back = {0};
    lz_model *model = lz_model_open(ctx, DATA "/T", &err);
    CHECK_OK(lz_image_read(ctx, DATA "/start1.png", &image, &err), &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(ctx, "codec");
    lz_array *latents = lz_encode_image(model, &image);
    lz_dims d = lz_shape(latents);
    CHECK(d.n == 4 && d.at[1] == 32 && d.at[2] == 6 && d.at[3] == 8, "%d dims", d.n);
    CHECK_OK(lz_decode_latents(model, latents, &back, &err), &err);
    CHECK(back.width == 64 && back.height == 48);
    lz_image_free(ctx, &back);
    lz_image_free(ctx, &image);
    lz_scope_end(scope);
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- configurations ---------------------------------------------------------------------------------------------- */

/* T with one text of a file replaced; its other files are links. */
static void check_changed(const char *part, const char *file, const char *from, const char *to, const char *words) {
    char command[2000], path[400];
    lz_error err = {0};
    lz_context *ctx = lz_open();
    enter_folder();
    snprintf(command, sizeof command,
             "cp -RL '" DATA "/T/.' '%s/m' && sed -i.old 's/%s/%s/' '%s/m/%s%s' && ! cmp -s '%s/m/%s%s' '" DATA
             "/T/%s%s'",
             folder, from, to, folder, part, file, folder, part, file, part, file);
    CHECK_I64(system(command), 0);
    snprintf(path, sizeof path, "%s/m", folder);
    lz_model *model = lz_model_open(ctx, path, &err);
    CHECK(!model, "%s became %s", from, to);
    if (!model) CHECK_TEXT(err.text, words);
    lz_model_close(model);
    snprintf(command, sizeof command, "rm -r '%s/m'", folder);
    CHECK_I64(system(command), 0);
    leave_folder();
    lz_close(ctx);
}

static void refused(void) {
    static const struct {
        const char *part, *file, *from, *to, *words;
    } cases[] = {
        {"", "model_index.json", "ZImagePipeline", "ZImageOmniPipeline", "'ZImageOmniPipeline' are not supported"},
        {"transformer/", "config.json", "\"siglip_feat_dim\": null", "\"siglip_feat_dim\": 1152", "Z-Image-Omni"},
        {"transformer/", "config.json", "\"qk_norm\": true", "\"qk_norm\": false", "'qk_norm' must be true"},
        {"transformer/", "config.json", "\"n_kv_heads\": 2", "\"n_kv_heads\": 1", "'n_kv_heads' must be 'n_heads'"},
        {"transformer/", "config.json", "\"n_heads\": 2", "\"n_heads\": 3", "'dim' must be a multiple"},
        {"transformer/", "config.json", "\"dim\": 32", "\"dim\": 36", "axes_dims"},
        {"transformer/", "config.json", "\"dim\": 32", "\"unknown\": 1, \"dim\": 32", "unknown"},
        {"transformer/", "config.json", "\"n_layers\": 2", "\"n_layers\": 3", "layers.2."},
        {"transformer/", "config.json", "\"n_layers\": 2", "\"n_layers\": 1", "layers.1."},
        {"transformer/", "config.json", "\"cap_feat_dim\": 24", "\"cap_feat_dim\": 32", "cap_embedder.0.weight"},
        {"transformer/", "config.json", "\"norm_eps\": 1e-05", "\"norm_eps\": -1", "'norm_eps' must be above 0"},
        {"vae/", "config.json", "\"scaling_factor\": 0.3611", "\"scaling_factor\": 0", "scaling_factor"},
        {"vae/", "config.json", "\"use_quant_conv\": false", "\"use_quant_conv\": true", "quant_conv.weight"},
        {"", "model_index.json", "{", "{\"cfg_truncation\": -1,", "cfg_truncation"},
        {"", "model_index.json", "{", "{\"cfg_normalization\": 1e7,", "must be below 1000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_changed(cases[i].part, cases[i].file, cases[i].from, cases[i].to, cases[i].words);
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

/* Wherever memory runs out, on opening or on the way to a picture, that is what is told, and nothing is left behind. */
static void memory_runs_out(void) {
    failing memory = {0};
    const lz_allocator allocator = {failing_allocate, failing_release, &memory};
    bool failed = true;
    for (long long at = 1; failed && at < 1000000; at += 1900 / test_scale(100)) {
        lz_error err = {0};
        lz_context *ctx = lz_open(.allocator = &allocator, .threads = 1);
        memory.asked = 0;
        memory.fail_at = at;
        lz_model *model = lz_model_open(ctx, DATA "/N", &err);
        lz_picture p;
        lz_status status = model ? lz_generate(model, &p, &err, .prompt = "fox", .negative = "dark", .width = 32,
                                               .height = 32, .steps = 2, .guidance = 4)
                                 : err.status;
        failed = memory.asked >= at;
        memory.fail_at = 0;
        CHECK(status == LZ_OUT_OF_MEMORY || status == LZ_OK, "allocation %lld: %s", at, err.text);
        if (model && !status) lz_picture_free(&p);
        lz_model_close(model);
        CHECK(lz_memory_info(ctx).active == 0, "allocation %lld: bytes are left", at);
        lz_close(ctx);
        CHECK(memory.live == 0, "allocation %lld: %lld blocks are left", at, memory.live);
    }
    CHECK(!failed);
}

TEST_MAIN({"against_diffusers", against_diffusers}, {"options", options}, {"codec", codec}, {"refused", refused},
          {"memory_runs_out", memory_runs_out})
