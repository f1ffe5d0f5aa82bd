/* test_inpaint.c: repainting a part of a picture: against the pipelines of diffusers (tools/oracle/inpaint.py), what is
 * kept, cropping, added sides, and what is refused. */
#include "diffusers.h"
#include "folder.h"
#include "pipeline/repaint.h"

#define TESTS LZ_SOURCE_DIR "/tests/data"
#define DATA TESTS "/inpaint"

static lz_image read_image(lz_context *ctx, const char *name, bool mask) {
    char path[512];
    lz_image image = {0};
    lz_error err = {0};
    snprintf(path, sizeof path, TESTS "/%s", name);
    CHECK_OK((mask ? lz_image_read_mask : lz_image_read)(ctx, path, &image, &err), &err);
    return image;
}

/* ---- against diffusers ------------------------------------------------------------------------------------------- */

static void compare(const test_case *c, const lz_picture *p, lz_weights *golden) {
    double latents = relative_error(p->latents, lz_weights_get(golden, "latents")), picture = 0;
    CHECK(latents < 1e-4, "%s: latents %g", c->name, latents);
    if (lz_weights_has(golden, "image")) {
        picture = psnr(p->pixels, lz_weights_get(golden, "image"));
        CHECK(picture >= 60, "%s: %g dB", c->name, picture);
    }
    if (lz_weights_has(golden, "pasted")) { /* Pillow blends in steps of a byte, and only at the edge of the mask */
        lz_array *pasted = lz_weights_get(golden, "pasted");
        const uint8_t *want = lz_data(pasted, NULL);
        lz_dims d = lz_shape(pasted);
        CHECK(p->image.width == d.at[1] && p->image.height == d.at[0], "%s: the size", c->name);
        int64_t off = 0, n = 3 * p->image.width * p->image.height;
        for (int64_t i = 0; i < n && want; i++) off += abs((int)p->image.pixels[i] - (int)want[i]) > 1;
        CHECK(want && off == 0, "%s: %lld of %lld levels are off", c->name, (long long)off, (long long)n);
    }
    printf("    %-20s latents %.1e  %.1f dB\n", c->name, latents, picture);
}

static void run_masked(lz_context *ctx, const char *data, const test_case *c) {
    char path[512];
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, c->name);
    snprintf(path, sizeof path, TESTS "/%s", c->model);
    lz_model *model = lz_model_open(ctx, path, &err);
    snprintf(path, sizeof path, "%s/cases/%s.safetensors", data, c->name);
    lz_weights *golden = lz_weights_open(ctx, path, &err);
    if (!CHECK(model && golden, "%s: %s", c->name, err.text)) return;
    bool sized = !strncmp(c->model, "qwen", 4); /* the size of others is that of the picture */
    lz_image images[4] = {{0}}, mask = {0};
    snprintf(path, sizeof path, "inpaint/%s", c->mask);
    if (*c->mask) mask = read_image(ctx, path, true);
    lz_picture_options o =
        LZ_PICTURE_OPTIONS(.prompt = c->prompt, .negative = strstr(c->model, "flux2") ? NULL : c->negative,
                           .width = sized ? c->width : 0, .height = sized ? c->height : 0, .steps = c->steps,
                           .guidance = c->guidance, .seed = c->seed, .strength = c->strength, .images = images,
                           .n_images = read_references(ctx, TESTS, c->references, images),
                           .mask = *c->mask ? &mask : NULL, .change_outside = true, .crop_to_mask = c->crop >= 0,
                           .crop_padding = c->crop >= 0 ? c->crop : 0, .feather = -1);
    lz_picture p;
    if (CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) {
        lz_dims d = lz_shape(p.pixels);
        CHECK(d.at[2] == c->height && d.at[3] == c->width, "%s: %lld x %lld", c->name, (long long)d.at[3],
              (long long)d.at[2]);
        compare(c, &p, golden);
        lz_picture_free(&p);
    }
    for (int i = 0; i < 4; i++) lz_image_free(ctx, &images[i]);
    lz_image_free(ctx, &mask);
    lz_weights_close(golden);
    lz_model_close(model);
    lz_scope_end(scope);
}

static void against_diffusers(void) { each_case(DATA, 13, run_masked); }

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

typedef struct bench {
    lz_context *ctx;
    lz_model *model;
    lz_image image, mask;
} bench;

static bench set_up(const char *path, const char *image, const char *mask) {
    lz_error err = {0};
    bench b = {.ctx = lz_open()};
    b.model = lz_model_open(b.ctx, path, &err);
    CHECK(b.model, "%s", err.text);
    b.image = read_image(b.ctx, image, false);
    if (mask) b.mask = read_image(b.ctx, mask, true);
    return b;
}

static void put_away(bench *b) {
    lz_image_free(b->ctx, &b->image);
    lz_image_free(b->ctx, &b->mask);
    lz_model_close(b->model);
    CHECK_I64(lz_memory_info(b->ctx).active, 0);
    lz_close(b->ctx);
}

/* Number of pixels outside (or inside) of the mask that differ from the image; in: of those inside. */
static int64_t count_changed(const lz_image *got, const lz_image *image, const lz_image *mask, bool inside) {
    int64_t n = 0;
    for (int64_t i = 0; i < image->width * image->height; i++)
        n += (mask->pixels[3 * i] >= 128) == inside && memcmp(got->pixels + 3 * i, image->pixels + 3 * i, 3) != 0;
    return n;
}

/* The default pastes the image, so that its bytes outside of the mask are the same, in any size. */
static void outside_is_kept(void) {
    static const char *const models[] = {TESTS "/flux2/B", TESTS "/qwen/Q", TESTS "/zimage/T"};
    for (size_t i = 0; i < 3; i++)
        for (int crop = 0; crop < 2; crop++) {
            bench b = set_up(models[i], "flux2/ref3.png", "inpaint/small.png");
            lz_error err = {0};
            lz_picture p;
            lz_status status = lz_generate(b.model, &p, &err, .images = &b.image, .n_images = 1, .mask = &b.mask,
                                           .steps = 2, .seed = 1, .crop_to_mask = crop, .crop_padding = 5);
            if (!CHECK_OK(status, &err)) return;
            CHECK(p.image.width == b.image.width && p.image.height == b.image.height);
            CHECK_I64(count_changed(&p.image, &b.image, &b.mask, false), 0);
            CHECK(count_changed(&p.image, &b.image, &b.mask, true) > 400);
            lz_picture_free(&p);
            put_away(&b);
        }
}

/* With a requested size the canvas has that size. */
static void size_is_asked_for(void) {
    bench b = set_up(TESTS "/flux2/B", "flux2/ref3.png", "inpaint/small.png");
    lz_error err = {0};
    lz_picture p;
    lz_image small = {0}, mask = {0};
    CHECK_OK(lz_image_resize(b.ctx, &b.image, 48, 64, &small, &err), &err);
    CHECK_OK(lz_image_resize(b.ctx, &b.mask, 48, 64, &mask, &err), &err);
    CHECK_OK(lz_generate(b.model, &p, &err, .images = &b.image, .n_images = 1, .mask = &b.mask, .width = 48,
                         .height = 64, .steps = 2),
             &err);
    CHECK(p.image.width == 48 && p.image.height == 64);
    if (p.image.pixels) CHECK_I64(count_changed(&p.image, &small, &mask, false), 0);
    lz_picture_free(&p);
    lz_image_free(b.ctx, &small);
    lz_image_free(b.ctx, &mask);
    put_away(&b);
}

/* Whatever the sampler, tokens outside of the mask end as those of the image, bit for bit; the others do not. */
static void samplers_keep(void) {
    bench b = set_up(TESTS "/flux2/B", "flux2/ref2.png", "inpaint/soft.png");
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(b.ctx, "samplers");
    lz_array *start = lz_encode_image(b.model, &b.image); /* [1, 32, 4, 6] */
    int64_t n = 0, m = 0;
    const float *want = floats(start, &n);
    for (int i = 0; lz_sampler_name(i); i++) {
        lz_picture p;
        lz_status status = lz_generate(b.model, &p, &err, .images = &b.image, .n_images = 1, .mask = &b.mask,
                                       .steps = 4, .strength = 0.8, .sampler = lz_sampler_name(i));
        if (!CHECK_OK(status, &err)) continue;
        const float *got = floats(p.latents, &m);
        bool corner = true, middle = true;
        CHECK_I64(n, m);
        for (int64_t c = 0; c < 32 && n == m; c++) {
            corner = corner && got[c * 24] == want[c * 24];
            middle = middle && got[c * 24 + 9] == want[c * 24 + 9];
        }
        CHECK(corner && !middle, "%s", lz_sampler_name(i));
        lz_picture_free(&p);
    }
    lz_scope_end(scope);
    put_away(&b);
}

/* A preview of the last step is the picture, with what is pasted. */
static bool keep_preview(void *user, const lz_progress *progress) {
    lz_image *last = user;
    if (!progress->preview) return true;
    free(last->pixels);
    *last = *progress->preview;
    size_t bytes = (size_t)(3 * last->width * last->height);
    last->pixels = malloc(bytes);
    memcpy(last->pixels, progress->preview->pixels, bytes);
    return true;
}

static void last_preview(void) {
    bench b = set_up(TESTS "/flux2/B", "flux2/ref3.png", "inpaint/small.png");
    lz_error err = {0};
    lz_picture p;
    lz_image last = {0};
    CHECK_OK(lz_generate(b.model, &p, &err, .images = &b.image, .n_images = 1, .mask = &b.mask, .steps = 2,
                         .watch = keep_preview, .user = &last, .preview = LZ_PREVIEW_FULL),
             &err);
    CHECK(last.width == p.image.width && last.height == p.image.height &&
          !memcmp(last.pixels, p.image.pixels, (size_t)(3 * last.width * last.height)));
    free(last.pixels);
    lz_picture_free(&p);
    put_away(&b);
}

/* ---- added sides ------------------------------------------------------------------------------------------------- */

static void sides(void) {
    bench b = set_up(TESTS "/flux2/B", "flux2/ref2.png", NULL); /* 96 x 64 */
    lz_error err = {0};
    lz_picture p;
    lz_job *job = lz_job_new(
        b.model,
        &LZ_PICTURE_OPTIONS(.images = &b.image, .n_images = 1, .steps = 2, .extend = {.left = 20, .bottom = 16}), &err);
    if (!CHECK(job, "%s", err.text)) return;
    const lz_picture_options *o = lz_job_settled(job);
    CHECK(o->extend.left == 32 && o->extend.right == 0 && o->extend.bottom == 16 && o->strength == 1);
    CHECK_OK(lz_job_run(job, &p, &err), &err);
    CHECK(p.image.width == 128 && p.image.height == 80);
    int64_t kept = 0, painted = 0;
    for (int64_t y = 0; y < 80; y++)
        for (int64_t x = 0; x < 128; x++) {
            int64_t from = (y < 64 ? y : 63) * 96 + (x < 32 ? 0 : x - 32);
            bool same = !memcmp(p.image.pixels + 3 * (y * 128 + x), b.image.pixels + 3 * from, 3);
            if (x >= 32 + 24 && y < 64 - 16) kept += !same; /* a quarter of each side may be repainted */
            if (x < 32 || y >= 64) painted += same;
        }
    CHECK_I64(kept, 0);
    CHECK(painted < 300, "%lld pixels are those of the edge", (long long)painted);
    lz_picture_free(&p);
    lz_job_free(job);
    put_away(&b);
}

/* ---- pixels ------------------------------------------------------------------------------------------------------ */

static void feather(void) {
    enum { W = 12, H = 9 };
    lz_context *ctx = lz_open();
    lz_error err = {0};
    uint8_t pixels[3 * W * H] = {0}, share[W * H];
    lz_image mask = {.width = W, .height = H, .pixels = pixels};
    for (int y = 0; y < H; y++)
        for (int x = 3; x < W; x++) memset(pixels + 3 * (y * W + x), 255, 3);
    CHECK_OK(lz_feather(ctx, &mask, 3, share, &err), &err);
    static const uint8_t want[W] = {0, 0, 0, 64, 128, 191, 255, 255, 255, 255, 255, 255}; /* 255 d / 4 */
    for (int y = 0; y < H; y++) CHECK(!memcmp(share + y * W, want, W), "row %d", y);
    CHECK_OK(lz_feather(ctx, &mask, 0, share, &err), &err);
    CHECK(share[2] == 0 && share[3] == 255);
    pixels[3 * (4 * W + 8)] = 127; /* a black pixel among white ones */
    CHECK_OK(lz_feather(ctx, &mask, 3, share, &err), &err);
    CHECK(share[4 * W + 8] == 0 && share[4 * W + 9] == 64 && share[3 * W + 9] == 85 && share[2 * W + 8] == 128);
    lz_close(ctx);
}

/* get_crop_region of diffusers: the box is enlarged to the aspect ratio, and moved where the picture ends. */
static void boxes(void) {
    uint8_t pixels[3 * 40 * 30] = {0};
    lz_image mask = {.width = 40, .height = 30, .pixels = pixels};
    for (int y = 10; y < 14; y++)
        for (int x = 30; x < 38; x++) memset(pixels + 3 * (y * 40 + x), 1, 3);
    static const struct {
        int64_t width, height, padding;
        lz_crop want;
    } cases[] = {
        {64, 64, 0, {30, 8, 8, 8}},   {64, 64, 4, {26, 5, 14, 14}}, {128, 32, 2, {8, 8, 32, 8}},
        {32, 64, 1, {29, 2, 10, 20}}, {16, 160, 0, {30, 0, 8, 30}}, {64, 48, 100, {0, 0, 40, 30}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lz_crop box = lz_mask_box(&mask, cases[i].width, cases[i].height, cases[i].padding);
        CHECK(!memcmp(&box, &cases[i].want, sizeof box), "case %zu: %lld %lld %lld %lld", i, (long long)box.left,
              (long long)box.top, (long long)box.width, (long long)box.height);
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* get_timesteps of diffusers: int(max(n - min(n s, n), 0)) in double precision. */
static void strengths(void) {
    static const struct {
        int steps;
        double strength;
        int run;
    } cases[] = {{50, 0.6, 30}, {4, 0.8, 4}, {5, 0.6, 3}, {4, 0.95, 4}, {8, 0.5, 4}, {25, 0.56, 15}, {4, 1, 4}};
    static const char *const models[] = {TESTS "/flux2/B", TESTS "/qwen/Q", TESTS "/zimage/T"};
    for (size_t m = 0; m < 3; m++) {
        bench b = set_up(models[m], "flux2/ref3.png", "inpaint/half.png");
        lz_error err = {0};
        for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
            lz_picture_plan plan;
            lz_picture_options o = LZ_PICTURE_OPTIONS(.images = &b.image, .n_images = 1, .mask = i % 2 ? &b.mask : NULL,
                                                      .steps = cases[i / 2].steps, .strength = cases[i / 2].strength,
                                                      .width = 16, .height = 32);
            CHECK_OK(lz_plan_picture(b.model, &o, &plan, &err), &err);
            CHECK_I64(plan.steps, cases[i / 2].run);
        }
        put_away(&b);
    }
}

/* ---- refusals and remarks ---------------------------------------------------------------------------------------- */

static void refuse(const bench *b, lz_picture_options o, const char *words) {
    lz_error err = {0};
    lz_picture_plan plan;
    CHECK_STATUS(lz_plan_picture(b->model, &o, &plan, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_TEXT(err.text, words);
}

static void refused(void) {
    bench b = set_up(TESTS "/flux2/B", "flux2/ref3.png", "inpaint/small.png");
    uint8_t black[3 * 67 * 85] = {0}, white[3 * 67 * 85];
    lz_image empty = {.width = 67, .height = 85, .pixels = black}, full = empty, wide = empty, none = {0};
    memset(white, 255, sizeof white);
    full.pixels = white;
    wide.width = 85;
    wide.height = 67;
    const lz_picture_options good = LZ_PICTURE_OPTIONS(.images = &b.image, .n_images = 1, .mask = &b.mask);
#define REFUSE(words, ...)                                                                                             \
    {                                                                                                                  \
        lz_picture_options o = good;                                                                                   \
        __VA_ARGS__;                                                                                                   \
        refuse(&b, o, words);                                                                                          \
    }
    REFUSE("a mask was given, but no image to change", o.n_images = 0)
    REFUSE("sides to extend were given, but no image", (o.mask = NULL, o.n_images = 0, o.extend.left = 9))
    REFUSE("the mask has no white", o.mask = &empty)
    REFUSE("a mask must have the shape of its image", o.mask = &wide)
    REFUSE("the mask has no pixels", o.mask = &none)
    REFUSE("no mask to crop to", (o.mask = NULL, o.crop_to_mask = true, o.strength = 1))
    REFUSE("a padding of -1 pixels", o.crop_padding = -1)
    REFUSE("a feather of 2000 pixels", o.feather = 2000)
    REFUSE("cannot be extended by -1 pixels", o.extend.top = -1)
    REFUSE("cannot be extended by 9223372036854775807 pixels", o.extend.right = INT64_MAX)
    REFUSE("a strength of -1", o.strength = -1)
    memset(black + 3 * (40 * 67 + 20), 255, 3);
    REFUSE("smaller than what this model can repaint", o.mask = &empty)

    lz_error err = {0};
    lz_remarks remarks;
    lz_picture_options o = good;
    o.mask = &full;
    CHECK_OK(lz_remark(b.model, &o, &remarks, &err), &err);
    CHECK_TEXT(remarks.images, "the mask is white everywhere");
    lz_image other = read_image(b.ctx, "inpaint/small.png", true), large = {0};
    CHECK_OK(lz_image_resize(b.ctx, &other, 134, 170, &large, &err), &err);
    o.mask = &large;
    CHECK_OK(lz_remark(b.model, &o, &remarks, &err), &err);
    CHECK_TEXT(remarks.images, "the mask is 134 x 170, and is stretched to the 67 x 85 of the image");
    lz_image_free(b.ctx, &other);
    lz_image_free(b.ctx, &large);
    put_away(&b);

    b = set_up(TESTS "/qwen21/B", "flux2/ref3.png", "inpaint/small.png");
    o = good;
    o.images = &b.image;
    o.mask = &b.mask;
    refuse(&b, o, "Qwen-Image 2.1 cannot repaint a part of a picture");
    put_away(&b);
}

/* Wherever memory runs out, that is what is told, and nothing is left behind. */
static void memory_runs_out(void) {
    failing memory = {0};
    const lz_allocator allocator = {failing_allocate, failing_release, &memory};
    lz_error err = {0};
    lz_context *ctx = lz_open(.allocator = &allocator, .threads = 1);
    lz_model *model = lz_model_open(ctx, TESTS "/flux2/B", &err);
    lz_image image = read_image(ctx, "flux2/ref3.png", false), mask = read_image(ctx, "inpaint/small.png", true);
    bool failed = true;
    int n = 0;
    for (long long at = 1; model && failed && n < 10000; at += at < 60 ? 1 : 6000 / test_scale(100), n++) {
        lz_picture p;
        lz_scope *scope = lz_scope_begin(ctx, "attempt");
        memory.asked = 0;
        memory.fail_at = at;
        lz_status status = lz_generate(model, &p, &err, .images = &image, .n_images = 1, .mask = &mask, .steps = 2,
                                       .crop_to_mask = n % 2, .extend = {.left = n % 3 ? 16 : 0});
        failed = memory.asked >= at;
        memory.fail_at = 0;
        CHECK(status == LZ_OUT_OF_MEMORY || status == LZ_OK, "allocation %lld: %s", at, err.text);
        lz_picture_free(&p);
        lz_scope_end(scope);
    }
    CHECK(!failed && n > 60);
    lz_image_free(ctx, &image);
    lz_image_free(ctx, &mask);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
    CHECK_I64(memory.live, 0);
}

TEST_MAIN({"against_diffusers", against_diffusers}, {"outside_is_kept", outside_is_kept},
          {"size_is_asked_for", size_is_asked_for}, {"samplers_keep", samplers_keep}, {"last_preview", last_preview},
          {"sides", sides}, {"feather", feather}, {"boxes", boxes}, {"strengths", strengths}, {"refused", refused},
          {"memory_runs_out", memory_runs_out})
