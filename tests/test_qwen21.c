/* test_qwen21.c: Qwen-Image 2.1 against diffusers (diffusers.h). */
#include <unistd.h>

#include "diffusers.h"
#include "folder.h"
#include "models/vae.h"

#define DATA LZ_SOURCE_DIR "/tests/data/qwen21"

static void against_diffusers(void) { check_cases(DATA, 11); }

/* ---- what is taken and what is not ------------------------------------------------------------------------------- */

static void options(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0};
    lz_picture p;
    lz_model *base = lz_model_open(ctx, DATA "/B", &err), *turbo = lz_model_open(ctx, DATA "/T", &err);
    if (!CHECK(base && turbo, "%s", err.text)) return;
    CHECK_OK(lz_image_read(ctx, DATA "/ref2.png", &image, &err), &err);
    lz_model_facts facts = lz_model_about(base);
    CHECK(!strcmp(facts.family, "Qwen-Image 2.1"), "%s", facts.family);
    CHECK_I64(facts.steps, 40);
    CHECK_I64(facts.token_pixels, 32);
    CHECK_I64(facts.most_images, 10);
    CHECK(!facts.distilled && facts.guidance == 1, "guidance %g", facts.guidance);
    facts = lz_model_about(turbo);
    CHECK(facts.distilled && facts.guidance == 1 && facts.steps == 8, "%d steps", facts.steps);
    CHECK(facts.transparent);

    /* Turbo has sigmas of its own, and so a number of steps; sizes are multiples of 32. */
    lz_picture_options o = LZ_PICTURE_OPTIONS(.steps = 3, .width = 70, .height = 100);
    CHECK_OK(lz_fill_options(turbo, &o, &err), &err);
    CHECK(o.steps == 8 && o.width == 64 && o.height == 96, "%d steps, %lld x %lld", o.steps, (long long)o.width,
          (long long)o.height);

    /* By default a picture has the shape of the last image. */
    o = (lz_picture_options)LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1);
    CHECK_OK(lz_fill_options(base, &o, &err), &err);
    CHECK(o.width == 128 && o.height == 64, "%lld x %lld", (long long)o.width, (long long)o.height);
    lz_picture_plan plan;
    CHECK_OK(lz_plan_picture(base, &o, &plan, &err), &err);
    CHECK_I64(plan.n_stages, 4);

    lz_image many[11];
    for (int i = 0; i < 11; i++) many[i] = image;
    CHECK_STATUS(lz_generate(base, &p, &err, .images = many, .n_images = 11), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(base, &p, &err, .width = 32, .height = 32, .prompt = "bad \xff"), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(
        lz_generate(base, &p, &err, .width = 32, .height = 32, .noise = lz_full(ctx, LZ_DIMS(1, 4, 3, 3), LZ_F32, 1)),
        LZ_BAD_SHAPE, &err);
    char *words = malloc(40001);
    for (int i = 0; words && i < 40000; i++) words[i] = i % 2 ? ' ' : '7';
    if (words) words[40000] = 0;
    CHECK_STATUS(lz_generate(base, &p, &err, .width = 32, .height = 32, .prompt = words), LZ_BAD_ARGUMENT, &err);
    CHECK(strstr(err.text, "tokens") != NULL, "%s", err.text);
    free(words);

    /* An image to start from; all ten references. */
    CHECK_OK(lz_generate(base, &p, &err, .images = &image, .n_images = 1, .strength = 0.5, .steps = 2), &err);
    CHECK_I64(p.image.width, 128);
    lz_picture_free(&p);
    CHECK_OK(lz_generate(base, &p, &err, .images = many, .n_images = 10, .steps = 1, .width = 32, .height = 32), &err);
    lz_picture_free(&p);

    lz_image_free(ctx, &image);
    lz_model_close(base);
    lz_model_close(turbo);
    lz_close(ctx);
}

/* Opacity comes out as the model makes it, or not at all. */
static void backgrounds(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *base = lz_model_open(ctx, DATA "/B", &err),
             *klein = lz_model_open(ctx, LZ_SOURCE_DIR "/models/demo", &err);
    lz_picture pictures[3], p;
    if (!CHECK(base && klein, "%s", err.text)) return;
    for (int i = 0; i < 3; i++)
        CHECK_OK(lz_generate(base, &pictures[i], &err, .prompt = "a fox", .seed = 1, .steps = 1, .width = 64,
                             .height = 32, .background = i),
                 &err);
    const lz_image *as_is = &pictures[LZ_BACKGROUND_AUTO].image, *white = &pictures[LZ_BACKGROUND_OPAQUE].image,
                   *clear = &pictures[LZ_BACKGROUND_TRANSPARENT].image;
    CHECK(as_is->channels == 4 && white->channels == 3 && clear->channels == 4);
    CHECK(same_bits(as_is->pixels, clear->pixels, 64 * 32 * 4));
    int off = 0;
    for (int i = 0; i < 64 * 32 && as_is->channels == 4; i++)
        for (int k = 0; k < 3; k++) {
            double alpha = as_is->pixels[4 * i + 3] / 255.0,
                   want = as_is->pixels[4 * i + k] * alpha + 255 * (1 - alpha);
            off += fabs(white->pixels[3 * i + k] - want) > 0.5001;
        }
    CHECK_I64(off, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_I64(lz_shape(pictures[i].pixels).at[1], 4);
        lz_picture_free(&pictures[i]);
    }
    CHECK_STATUS(lz_generate(base, &p, &err, .background = 3), LZ_BAD_ARGUMENT, &err);

    /* Another family makes no transparency, and gets an image blended with white. */
    CHECK(!lz_model_about(klein).transparent);
    CHECK_STATUS(lz_generate(klein, &p, &err, .prompt = "a fox", .background = LZ_BACKGROUND_TRANSPARENT),
                 LZ_BAD_ARGUMENT, &err);
    CHECK_TEXT(err.text, "makes no transparent pictures");
    lz_image images[2] = {{0}};
    CHECK_OK(lz_image_read_alpha(ctx, DATA "/clear.png", &images[0], &err), &err);
    CHECK_OK(lz_image_read(ctx, DATA "/clear.png", &images[1], &err), &err);
    CHECK(images[0].channels == 4 && images[1].channels == 3);
    for (int i = 0; i < 2; i++)
        CHECK_OK(lz_generate(klein, &pictures[i], &err, .prompt = "a fox", .images = &images[i], .n_images = 1,
                             .strength = 0.5, .steps = 2, .width = 32, .height = 32),
                 &err);
    CHECK(same_bits(pictures[0].image.pixels, pictures[1].image.pixels, 32 * 32 * 3));
    lz_scope *scope = lz_scope_begin(ctx, "encode");
    lz_array *two[2] = {lz_encode_image(klein, &images[0]), lz_encode_image(klein, &images[1])};
    CHECK(relative_error(two[0], two[1]) == 0);
    lz_scope_end(scope);
    /* The options of the caller keep its images. */
    lz_picture_options o = LZ_PICTURE_OPTIONS(.images = images, .n_images = 1, .strength = 0.5);
    CHECK_OK(lz_fill_options(klein, &o, &err), &err);
    CHECK(o.images == images);
    /* A mask has no opacity of its own. */
    CHECK_STATUS(lz_generate(klein, &p, &err, .images = images, .n_images = 1, .mask = &images[0]), LZ_BAD_ARGUMENT,
                 &err);
    CHECK_TEXT(err.text, "4 channels");
    for (int i = 0; i < 2; i++) {
        lz_picture_free(&pictures[i]);
        lz_image_free(ctx, &images[i]);
    }
    lz_model_close(base);
    lz_model_close(klein);
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

/* A tokenizer that joins <|image_pad|> with the text after it, so that images are not where the chat template has
 * them. */
static void joined_pads(void) {
    static const char list[] = "\"added_tokens\": [",
                      joined[] =
                          "{\"id\": 603, \"content\": \"<|image_pad|><|vision_end|> <image\", \"special\": true},";
    static char text[1 << 18];
    FILE *from = fopen(DATA "/B/processor/tokenizer.json", "re");
    size_t n = from ? fread(text, 1, sizeof text - 1, from) : 0;
    if (from) fclose(from);
    text[n] = 0;
    char *at = strstr(text, list);
    if (!CHECK(at != NULL, "tokenizer.json of %zu bytes has no added tokens", n)) return;
    at += sizeof list - 1;
    enter_folder();
    FILE *to = fopen(in_folder("tokenizer.json"), "we");
    fprintf(to, "%.*s%s%s", (int)(at - text), text, joined, at);
    fclose(to);

    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0};
    lz_picture p;
    lz_model *m = lz_model_open_with(
        ctx, &LZ_MODEL_OPTIONS(.model = DATA "/B", .tokenizer = in_folder("tokenizer.json")), &err);
    CHECK_OK(lz_image_read(ctx, DATA "/ref2.png", &image, &err), &err);
    if (CHECK(m != NULL, "%s", err.text)) {
        CHECK_STATUS(lz_generate(m, &p, &err, .images = &image, .n_images = 1, .steps = 1, .width = 32, .height = 32),
                     LZ_BAD_FILE, &err);
        CHECK(strstr(err.text, "tokenizer") != NULL, "%s", err.text);
        CHECK_OK(lz_generate(m, &p, &err, .steps = 1, .width = 32, .height = 32), &err); /* without images it fits */
        lz_picture_free(&p);
    }
    lz_image_free(ctx, &image);
    lz_model_close(m);
    lz_close(ctx);
    leave_folder();
}

/* B with one text of the configuration of its autoencoder replaced. */
static void check_changed(const char *from, const char *to, const char *words) {
    char command[1500];
    lz_error err = {0};
    lz_context *ctx = lz_open();
    enter_folder();
    snprintf(command, sizeof command, "cp -RL '" DATA "/B/vae' '%s/vae' && sed -i.old 's/%s/%s/' '%s/vae/config.json'",
             folder, from, to, folder);
    CHECK_I64(system(command), 0);
    lz_model *m = lz_model_open_with(ctx, &LZ_MODEL_OPTIONS(.model = DATA "/B", .vae = in_folder("vae")), &err);
    CHECK(!m, "%s became %s", from, to);
    if (!m) CHECK_TEXT(err.text, words);
    lz_model_close(m);
    snprintf(command, sizeof command, "rm -r '%s/vae'", folder);
    CHECK_I64(system(command), 0);
    leave_folder();
    lz_close(ctx);
}

static void refused(void) {
    check_changed("^    2.2,", "    0,", "the numbers of 'latents_std' must be above 0");
    check_changed("^    2.2,", "    1e300,", "the numbers of 'latents_std' must be above 0");
    check_changed("\"attn_scales\": \\[\\]", "\"attn_scales\": 2", "'attn_scales' is not an empty list");
}

/* A picture to latents and back. */
static void codec(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0}, back = {0};
    lz_model *model = lz_model_open(ctx, DATA "/B", &err);
    CHECK_OK(lz_image_read(ctx, DATA "/ref1.png", &image, &err), &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(ctx, "codec");
    lz_array *latents = lz_encode_image(model, &image);
    lz_dims d = lz_shape(latents);
    CHECK(d.n == 4 && d.at[1] == 4 && d.at[2] == 4 && d.at[3] == 4, "%d dims", d.n);
    CHECK_OK(lz_decode_latents(model, latents, &back, &err), &err);
    CHECK(back.width == 64 && back.height == 64);
    lz_image_free(ctx, &back);
    CHECK_STATUS(lz_decode_latents(model, lz_slice(latents, 2, 0, 3, 1), &back, &err), LZ_BAD_SHAPE, &err);
    lz_image_free(ctx, &image);
    lz_scope_end(scope);
    lz_model_close(model);
    lz_close(ctx);
}

/* Heads that are too wide for lz_sdpa are computed in another way, in parts of 1024 rows. */
static void wide_attention(void) {
    lz_context *ctx = lz_open();
    lz_scope *scope = lz_scope_begin(ctx, "attention");
    lz_array *part[3];
    for (int i = 0; i < 3; i++) part[i] = lz_randn(ctx, LZ_DIMS(1, 1, 2500, 24), (uint64_t)i);
    double error = relative_error(lz_vae_wide_attention(part[0], part[1], part[2]), lz_sdpa(part[0], part[1], part[2]));
    CHECK(error < 1e-6, "%g", error);
    lz_scope_end(scope);
    lz_close(ctx);
}

/* ---- previews ---------------------------------------------------------------------------------------------------- */

static bool count_previews(void *user, const lz_progress *progress) {
    int *n = user;
    if (progress->preview) CHECK(progress->preview->width == 4 && progress->preview->height == 6);
    *n += progress->preview != NULL;
    return true;
}

/* A token of 32 pixels is 2 x 2 pixels of a small preview. */
static void previews(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_picture p;
    int n = 0;
    lz_model *model = lz_model_open(ctx, DATA "/T", &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    lz_status status = lz_generate(model, &p, &err, .prompt = "a fox", .width = 64, .height = 96,
                                   .preview = LZ_PREVIEW_SMALL, .watch = count_previews, .user = &n);
    CHECK_OK(status, &err);
    CHECK_I64(n, 8);
    if (!status) lz_picture_free(&p);
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- LoRAs ------------------------------------------------------------------------------------------------------- */

/* The name of a module in the files of diffusers and of ComfyUI. */
static void write_lora(lz_context *ctx, const char *path, const char *prefix) {
    static const char *const modules[] = {"attn.to_q", "attn.to_out.0", "img_mlp.gate_layer"};
    static const int64_t outputs[] = {32, 32, 96};
    char names[6][120];
    lz_named_array arrays[6];
    lz_error err = {0};
    for (int i = 0; i < 3; i++) {
        snprintf(names[2 * i], sizeof names[0], "%stransformer_blocks.1.%s.lora_A.weight", prefix, modules[i]);
        snprintf(names[2 * i + 1], sizeof names[0], "%stransformer_blocks.1.%s.lora_B.weight", prefix, modules[i]);
        arrays[2 * i] = (lz_named_array){names[2 * i], lz_randn(ctx, LZ_DIMS(2, 32), 1)};
        arrays[2 * i + 1] = (lz_named_array){names[2 * i + 1], lz_randn(ctx, LZ_DIMS(outputs[i], 2), 2)};
    }
    CHECK_OK(lz_weights_save(ctx, path, arrays, 6, NULL, &err), &err);
}

/* A LoRA changes the picture, by the same amount under both names; its prefix is computed with it too. */
static void loras(void) {
    lz_context *ctx = lz_open();
    lz_scope *scope = lz_scope_begin(ctx, "loras");
    lz_error err = {0};
    char path[2][64];
    lz_picture p[3];
    memset(p, 0, sizeof p);
    lz_model *model = lz_model_open(ctx, DATA "/T", &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    for (int i = 0; i < 3; i++) {
        if (i) {
            snprintf(path[i - 1], sizeof path[0], "/tmp/lazuli-qwen21-%d-%d.safetensors", (int)getpid(), i);
            write_lora(ctx, path[i - 1], i == 1 ? "transformer." : "diffusion_model.");
            lz_lora lora = {.size = sizeof lora, .path = path[i - 1], .weight = 0.1};
            CHECK_OK(lz_model_set_loras(model, &lora, 1, &err), &err);
        }
        CHECK_OK(lz_generate(model, &p[i], &err, .prompt = "a fox", .width = 64, .height = 32, .seed = 4), &err);
    }
    double change = psnr(p[0].pixels, p[1].pixels), same = psnr(p[1].pixels, p[2].pixels);
    CHECK(change < 60 && same > 200, "%g dB, %g dB", change, same);
    for (int i = 0; i < 3; i++) lz_picture_free(&p[i]);
    for (int i = 0; i < 2; i++) unlink(path[i]);
    lz_model_close(model);
    lz_scope_end(scope);
    lz_close(ctx);
}

TEST_MAIN({"against_diffusers", against_diffusers}, {"options", options}, {"backgrounds", backgrounds},
          {"joined_pads", joined_pads}, {"refused", refused}, {"codec", codec}, {"wide_attention", wide_attention},
          {"previews", previews}, {"loras", loras})
