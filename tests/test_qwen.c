/* test_qwen.c: Qwen-Image against diffusers (diffusers.h). */
#include "diffusers.h"
#include "folder.h"

#define DATA LZ_SOURCE_DIR "/tests/data/qwen"

#define LAYERED LZ_SOURCE_DIR "/tests/data/layered"

static void against_diffusers(void) { check_cases(DATA, 12); }
static void layers_against_diffusers(void) { check_cases(LAYERED, 3); }

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

/* ---- layers ------------------------------------------------------------------------------------------------------ */

typedef struct watched {
    int decoded, previews;
    int64_t width;
} watched;

static bool watch_layers(void *user, const lz_progress *now) {
    watched *w = user;
    w->decoded += !strcmp(now->stage, "decode") && now->done == 1;
    if (now->preview) w->previews++, w->width = now->preview->width;
    return true;
}

/* The layers, one after another, over transparent black. */
static void check_together(const lz_picture *p) {
    int off = 0;
    const lz_image *all = &p->image;
    for (int64_t i = 0; i < all->width * all->height; i++) {
        double alpha = 0, colours[3] = {0};
        for (int l = 0; l < p->n_layers; l++) {
            const uint8_t *over = p->layers[l].pixels + 4 * i;
            double a = over[3] / 255.0, sum = a + alpha * (1 - a);
            for (int k = 0; k < 3 && sum > 0; k++) colours[k] = (over[k] * a + colours[k] * alpha * (1 - a)) / sum;
            alpha = sum;
        }
        const uint8_t *got = all->pixels + all->channels * i;
        off += all->channels == 4 && fabs(got[3] - 255 * alpha) > 3;
        for (int k = 0; k < 3; k++) off += alpha > 0.2 && fabs(got[k] - colours[k]) > 12; /* each layer rounds */
    }
    CHECK_I64(off, 0);
}

static void layers(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0}, plain = {0};
    lz_picture p;
    lz_model *m = lz_model_open(ctx, LAYERED "/Y", &err), *painter = lz_model_open(ctx, DATA "/Q", &err);
    if (!CHECK(m && painter, "%s", err.text)) return;
    lz_model_facts facts = lz_model_about(m);
    CHECK(facts.layers == 4 && facts.transparent && facts.least_images == 1 && facts.most_images == 1 &&
              facts.steps == 50 && facts.guidance == 4,
          "%d layers", facts.layers);
    CHECK_I64(lz_model_about(painter).layers, 0);
    CHECK_OK(lz_image_read_alpha(ctx, LAYERED "/wide.png", &image, &err), &err);
    CHECK_OK(lz_image_read_alpha(ctx, DATA "/ref1.png", &plain, &err), &err);
    CHECK(image.channels == 4 && plain.channels == 3);

    /* Four by default, in the shape of the image; the settled options give the same again. */
    lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "a fox", .images = &image, .n_images = 1, .steps = 1);
    CHECK_OK(lz_fill_options(m, &o, &err), &err);
    CHECK(o.layers == 4 && o.width == 64 && o.height == 64, "%d layers, %lld x %lld", o.layers, (long long)o.width,
          (long long)o.height);
    lz_picture_plan plan, more;
    CHECK_OK(lz_plan_picture(m, &o, &plan, &err), &err);
    CHECK_I64(plan.n_stages, 4);
    watched w = {0};
    o.watch = watch_layers;
    o.user = &w;
    o.preview = LZ_PREVIEW_SMALL;
    CHECK_OK(lz_generate_with(m, &o, &p, &err), &err);
    CHECK(p.n_layers == 4 && w.decoded == 4 && w.previews == 1 && w.width == 8, "%d layers, %d decoded, %d previews",
          p.n_layers, w.decoded, w.previews);
    for (int i = 0; i < p.n_layers; i++) CHECK(p.layers[i].channels == 4 && p.layers[i].width == 64);
    lz_dims d = lz_shape(p.pixels), l = lz_shape(p.latents);
    CHECK(d.at[0] == 4 && d.at[1] == 4 && d.at[2] == 64 && l.at[0] == 5 && l.at[1] == 6 && l.at[2] == 8);
    check_together(&p);
    o.noise = p.noise;
    lz_picture again;
    w.previews = 0;
    o.preview = LZ_PREVIEW_FULL;
    CHECK_OK(lz_generate_with(m, &o, &again, &err), &err);
    CHECK(w.previews == 1 && w.width == 64 && psnr(p.pixels, again.pixels) > 200);
    lz_picture_free(&again);
    o.noise = NULL;
    lz_picture_free(&p);

    /* A larger picture; on white; from an image without opacity; with another sampler, and fewer evaluations. */
    o = (lz_picture_options)LZ_PICTURE_OPTIONS(.prompt = "a fox", .images = &plain, .n_images = 1, .steps = 2,
                                               .layers = 1, .resolution = 1024, .background = LZ_BACKGROUND_OPAQUE,
                                               .sampler = "euler_a");
    CHECK_OK(lz_plan_picture(m, &o, &more, &err), &err);
    CHECK_OK(lz_generate_with(m, &o, &p, &err), &err);
    CHECK(p.n_layers == 1 && p.image.width == 96 && p.image.channels == 3 && p.layers[0].channels == 3, "%lld wide",
          (long long)p.image.width);
    lz_picture_free(&p);
    CHECK_OK(lz_generate(m, &p, &err, .prompt = "a fox", .images = &image, .n_images = 1, .steps = 5, .layers = 1,
                         .cache = 0.4, .guidance_to = 0.5),
             &err);
    lz_picture_free(&p);

    static const struct {
        lz_picture_options options;
        const char *words;
    } bad[] = {
        {{.prompt = NULL}, "needs a prompt"},
        {{.prompt = " "}, "needs a prompt"},
        {{.prompt = "a", .layers = 65}, "65 layers are not possible"},
        {{.prompt = "a", .layers = -1}, "-1 layers are not possible"},
        {{.prompt = "a", .resolution = 800}, "a resolution of 800 is not possible"},
        {{.prompt = "a", .strength = 0.5}, "takes no strength"},
        {{.prompt = "a", .extend = {.left = 16}}, "takes no strength"},
        {{.prompt = "a", .width = 128}, "layers of this image are 64 x 64"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lz_picture_options wrong = bad[i].options;
        wrong.size = sizeof wrong;
        wrong.images = &image;
        wrong.n_images = 1;
        wrong.steps = 1;
        CHECK_STATUS(lz_generate_with(m, &wrong, &p, &err), LZ_BAD_ARGUMENT, &err);
        CHECK_TEXT(err.text, bad[i].words);
    }
    CHECK_STATUS(lz_generate(m, &p, &err, .prompt = "a fox"), LZ_BAD_ARGUMENT, &err);
    CHECK_TEXT(err.text, "give it one");
    CHECK_STATUS(lz_generate(m, &p, &err, .prompt = "a fox", .images = &image, .n_images = 1,
                             .noise = lz_full(ctx, LZ_DIMS(1, 6, 8, 8), LZ_F32, 1)),
                 LZ_BAD_SHAPE, &err);
    CHECK_STATUS(lz_generate(painter, &p, &err, .prompt = "a fox", .layers = 2), LZ_BAD_ARGUMENT, &err);
    CHECK_TEXT(err.text, "Qwen-Image makes no layers");
    lz_image_free(ctx, &image);
    lz_image_free(ctx, &plain);
    lz_model_close(m);
    lz_model_close(painter);
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

/* Configurations and files of Qwen-Image-Layered that do not fit together are refused, and the error names the field. */
static void refused_layers(void) {
    static const struct {
        const char *model, *edit, *words;
    } bad[] = {
        {"Y", "s/\"use_layer3d_rope\": true/\"use_layer3d_rope\": false/' transformer/config.json", "use_layer3d_rope"},
        {"Y", "s/true,$/false,/' transformer/config.json", "use_additional_t_cond"},
        {"Y", "s/\"zero_cond_t\": false/\"zero_cond_t\": true/' transformer/config.json", "'zero_cond_t'"},
        {"Y", "s/Layered//' model_index.json", "use_additional_t_cond"},
        {"Y", "s/Layered//' model_index.json && sed -i.old 's/true/false/' transformer/config.json", "has opacity"},
        {"Y", "s/\"input_channels\": 4/\"input_channels\": 5/' vae/config.json", "'input_channels' must be 3, or 4"},
    };
    char command[1200];
    lz_error err = {0};
    lz_context *ctx = lz_open();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enter_folder();
        snprintf(command, sizeof command, "cp -RL '" LAYERED "/%s/.' '%s' && cd '%s' && sed -i.old '%s", bad[i].model,
                 folder, folder, bad[i].edit);
        CHECK_I64(system(command), 0);
        lz_model *m = lz_model_open(ctx, folder, &err);
        CHECK(!m, "%s", bad[i].edit);
        if (!m) CHECK_TEXT(err.text, bad[i].words);
        lz_model_close(m);
        snprintf(command, sizeof command, "rm -r '%s'/*", folder);
        CHECK_I64(system(command), 0);
        leave_folder();
    }
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

TEST_MAIN({"against_diffusers", against_diffusers}, {"layers_against_diffusers", layers_against_diffusers},
          {"options", options}, {"layers", layers}, {"refused_layers", refused_layers}, {"codec", codec})
