/* test_flux3.c: FLUX.3 [klein] against diffusers (diffusers.h), and what is taken and what is not. */
#include "diffusers.h"
#include "folder.h"

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
    bool ready = CHECK(model && pixels, "%s", err.text);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && ready; i++) {
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

/* ---- configurations ---------------------------------------------------------------------------------------------- */

/* D with one text of a file replaced. */
static void check_changed(const char *file, const char *from, const char *to, const char *words) {
    char command[2000], path[400];
    lz_error err = {0};
    lz_context *ctx = lz_open();
    enter_folder();
    snprintf(command, sizeof command,
             "cp -RL '" DATA "/D/.' '%s/m' && sed -i.old 's/%s/%s/' '%s/m/%s' && ! cmp -s '%s/m/%s' '" DATA "/D/%s'",
             folder, from, to, folder, file, folder, file, file);
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

/* Prompts are filled up with pad_token, or with <|endoftext|> if there is none; without both, opening fails. */
static void no_pad(void) {
    char command[1000], path[400];
    lz_error err = {0};
    lz_context *ctx = lz_open();
    enter_folder();
    snprintf(path, sizeof path, "%s/m", folder);
    snprintf(command, sizeof command,
             "cp -RL '" DATA "/D/.' '%s' && cd '%s/tokenizer' && sed -i.old '/pad_token/d' tokenizer_config.json && "
             "sed -i.old 's/<|endoftext|>/<|other|>/g' tokenizer.json",
             path, path);
    CHECK_I64(system(command), 0);
    lz_model *model = lz_model_open(ctx, path, &err);
    CHECK(!model);
    CHECK_TEXT(err.text, "the tokenizer has no pad_token");
    lz_model_close(model);
    snprintf(command, sizeof command, "rm -r '%s'", path);
    CHECK_I64(system(command), 0);
    leave_folder();
    lz_close(ctx);
}

static void refused(void) {
    static const char transformer[] = "transformer/config.json", index[] = "modular_model_index.json";
    check_changed(index, "Flux3DistilledModularPipeline", "Flux3VideoPipeline",
                  "'Flux3VideoPipeline' are not supported");
    check_changed(index, "{", "{\"text_encoder_out_layers\": [4, 2],", "must ascend");
    check_changed(transformer, "\"flow_map\": true", "\"flow_map\": false", "target_timestep_embedder");
    check_changed(transformer, "\"cond_in_channels\": 32", "\"cond_in_channels\": 16", "'cond_in_channels' must be");
    check_changed(transformer, "\"attention_head_dim\": 8", "\"attention_head_dim\": 12", "axes_dims_rope");
    check_changed(transformer, "\"num_layers\": 2", "\"num_layers\": 3", "_blocks.2.");
    check_changed(transformer, "\"num_single_layers\": 2", "\"num_single_layers\": 1", "single_transformer_blocks.1.");
    check_changed(transformer, "\"rope_theta\": 10000", "\"rope_theta\": 0", "'rope_theta' must be above 0");
    check_changed(transformer, "\"eps\": 1e-06", "\"eps\": -1", "'eps' must be above 0");
    check_changed(transformer, "\"mlp_ratio\": 3.0", "\"mlp_ratio\": 0.001", "'mlp_ratio' is too small");
    check_changed(transformer, "\"mlp_ratio\": 3.0", "\"mlp_ratio\": 3.0, \"unknown\": 1", "unknown");
    check_changed("text_encoder/config.json", "\"num_hidden_layers\": 33", "\"num_hidden_layers\": 31",
                  "reads the state after layer 32");
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

/* Wherever memory runs out, on opening or on the way to a picture, that is what is told, and nothing is left behind. */
static void memory_runs_out(void) {
    failing memory = {0};
    const lz_allocator allocator = {failing_allocate, failing_release, &memory};
    uint8_t pixels[3 * 20 * 30] = {0};
    lz_image image = {.width = 20, .height = 30, .pixels = pixels};
    bool failed = true;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 37);
    for (long long at = 1; failed && at < 1000000; at += 5900 / test_scale(100)) {
        lz_error err = {0};
        lz_context *ctx = lz_open(.allocator = &allocator, .threads = 1);
        memory.asked = 0;
        memory.fail_at = at;
        lz_model *model = lz_model_open(ctx, DATA "/B", &err);
        lz_picture p;
        lz_status status = model ? lz_generate(model, &p, &err, .prompt = "fox", .negative = "dark", .steps = 2,
                                               .guidance = 4, .images = &image, .n_images = 1)
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

TEST_MAIN({"against_diffusers", against_diffusers}, {"options", options}, {"canvas", canvas}, {"refused", refused},
          {"no_pad", no_pad}, {"memory_runs_out", memory_runs_out}, {"single_file", single_file})
