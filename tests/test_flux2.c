/* test_flux2.c: FLUX.2 [klein] against diffusers (diffusers.h). */
#include <pthread.h>
#include <unistd.h>

#include "diffusers.h"
#include "models/flux2.h"
#include "models/taef2.h"
#include "pixels.h"

#define DATA LZ_SOURCE_DIR "/tests/data/flux2"

static void against_diffusers(void) { check_cases(DATA, 14); }

/* ---- TAEF2 ------------------------------------------------------------------------------------------------------- */

static lz_array *channels_last(lz_array *x) { return lz_permute(x, LZ_DIMS(0, 2, 3, 1)); }

static void check_taef2(lz_context *ctx, const char *weights, const char *values, const char *decoded) {
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, "taef2");
    lz_taef2 *m = lz_taef2_open(ctx, weights, &err);
    lz_weights *golden = lz_weights_open(ctx, values, &err);
    CHECK(m && golden, "%s", err.text);
    if (!m || !golden) return;
    lz_array *latent = lz_weights_get(golden, "latent"), *want = lz_weights_get(golden, decoded);
    lz_dims d = lz_shape(latent), w = lz_shape(want);
    if (d.n == 3) latent = lz_reshape(latent, LZ_DIMS(1, d.at[0], d.at[1], d.at[2]));
    if (w.n == 3) want = lz_reshape(want, LZ_DIMS(1, w.at[0], w.at[1], w.at[2]));
    w = lz_shape(want);
    lz_array *picture = lz_taef2_decode(m, channels_last(latent));
    double e = relative_error(lz_contiguous(picture),
                              lz_reshape(lz_contiguous(channels_last(want)), LZ_DIMS(w.at[2], w.at[3], 3)));
    CHECK(e < 1e-4, "decoded: %g", e);
    if (lz_weights_has(golden, "image")) {
        lz_array *image = channels_last(lz_weights_get(golden, "image"));
        lz_dims i = lz_shape(image);
        lz_array *z = lz_taef2_encode(m, lz_reshape(lz_contiguous(image), LZ_DIMS(i.at[1], i.at[2], 3)));
        e = relative_error(lz_contiguous(z), lz_contiguous(channels_last(latent)));
        CHECK(e < 1e-4, "encoded: %g", e);
    }
    lz_weights_close(golden);
    lz_taef2_close(m);
    lz_scope_end(scope);
}

static void taef2(void) {
    lz_context *ctx = lz_open();
    check_taef2(ctx, DATA "/taef2.safetensors", DATA "/taef2_golden.safetensors", "recon");
    lz_error err = {.status = LZ_OK}; /* a file with other tensors is refused when it is opened, with a name */
    CHECK(!lz_taef2_open(ctx, DATA "/taef2_golden.safetensors", &err));
    CHECK(err.status != LZ_OK && strstr(err.text, "encoder.0.weight"));
    FILE *real = fopen(LZ_SOURCE_DIR "/../shared/data/taef2/taef2.safetensors", "r");
    if (real) {
        fclose(real);
        check_taef2(ctx, LZ_SOURCE_DIR "/../shared/data/taef2/taef2.safetensors",
                    LZ_SOURCE_DIR "/../shared/data/taef2/latent.safetensors", "recon");
    } else
        printf("    the published TAEF2 weights are not here: narrow ones were tested\n");
    lz_close(ctx);
}

/* ---- rope -------------------------------------------------------------------------------------------------------- */

/* Each entry by itself: the bits of the tables, whatever they are made of. */
static void rope(void) {
    enum { N = 200 };
    static const int64_t axes[] = {8, 24, 24, 8}; /* axes_dims_rope of the demo model */
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_flux2 *m = lz_flux2_open(ctx, LZ_SOURCE_DIR "/models/demo/transformer", &err);
    if (!CHECK(m, "%s", err.text)) return;
    lz_place places[N];
    for (int i = 0; i < N; i++)
        places[i] = (lz_place){{i % 3 * 10, i * 7 % 64 - 20, i * 11 % 128, i < 40 ? 511 - i : 0}};
    lz_array *cosines, *sines;
    lz_flux2_rope(m, places, N, &cosines, &sines);
    const float *c = lz_data(cosines, &err), *s = lz_data(sines, &err);
    CHECK(lz_dims_equal(lz_shape(cosines), LZ_DIMS(N, 32)) && lz_dims_equal(lz_shape(sines), LZ_DIMS(N, 32)));
    int wrong = 0;
    for (int i = 0; c && s && i < N; i++)
        for (int a = 0; a < 4; a++)
            for (int64_t k = 0; k < axes[a] / 2; k++, c++, s++) {
                double angle = (double)places[i].at[a] * pow(2000, -2.0 * (double)k / (double)axes[a]);
                wrong += *c != (float)cos(angle) || *s != (float)sin(angle);
            }
    CHECK_I64(wrong, 0);
    lz_flux2_close(m);
    lz_close(ctx);
}

/* ---- pixels ------------------------------------------------------------------------------------------------------ */

static void pixels(void) {
    lz_context *contexts[] = {lz_open(), lz_open(.no_fusion = true, .isa = "baseline"), lz_open(.device = "ref")};
    for (int i = 0; i < 3; i++) {
        check_pixels(contexts[i]);
        lz_close(contexts[i]);
    }
}

/* ---- several threads, one model ---------------------------------------------------------------------------------- */

typedef struct painter {
    pthread_t thread;
    lz_model *model;
    int64_t width, height;
    uint8_t want[3 * 32 * 48]; /* what it paints alone */
    bool known;
    int wrong;
} painter;

static void *paint(void *user) {
    painter *w = user;
    lz_error err = {0};
    for (int turn = 0; turn < 2; turn++) {
        lz_picture p;
        lz_status status = lz_generate(w->model, &p, &err, .prompt = "a red fox", .width = w->width,
                                       .height = w->height, .steps = 2, .seed = 3);
        size_t bytes = (size_t)(3 * w->width * w->height);
        if (!status && !w->known) memcpy(w->want, p.image.pixels, bytes);
        w->known = true;
        w->wrong += status || memcmp(w->want, p.image.pixels, bytes) != 0;
        lz_picture_free(&p);
    }
    return NULL;
}

static void threads_take_turns(void) {
    lz_context *ctx = lz_open(.threads = 2);
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DATA "/A", &err);
    if (!CHECK(model, "%s", err.text)) return;
    static painter painters[] = {{.width = 32, .height = 48}, {.width = 16, .height = 48}, {.width = 32, .height = 32}};
    for (int alone = 1; alone >= 0; alone--) {
        for (int i = 0; i < 3; i++) {
            painters[i].model = model;
            CHECK(pthread_create(&painters[i].thread, NULL, paint, &painters[i]) == 0);
            if (alone) pthread_join(painters[i].thread, NULL);
        }
        for (int i = 0; i < 3 && !alone; i++) pthread_join(painters[i].thread, NULL);
    }
    for (int i = 0; i < 3; i++) CHECK_I64(painters[i].wrong, 0);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* Whoever watches may do what it likes, but not paint with the same model. */
static bool paint_another(void *user, const lz_progress *progress) {
    (void)progress;
    lz_picture p;
    lz_error err = {0};
    CHECK_STATUS(lz_generate(user, &p, &err, .width = 32, .height = 32), LZ_BAD_ARGUMENT, &err);
    return false;
}

static void no_picture_inside_another(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DATA "/A", &err);
    lz_picture p;
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 32, .height = 32, .watch = paint_another, .user = model),
                 LZ_CANCELLED, &err);
    CHECK_OK(lz_generate(model, &p, &err, .width = 32, .height = 32), &err);
    lz_picture_free(&p);
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

static long allocations_left; /* until one fails; 0: none does */

static void *allocate(void *user, size_t bytes) {
    (void)user;
    bool fails = allocations_left > 0 && --allocations_left == 0;
    return fails ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}
static void release(void *user, void *memory, size_t bytes) {
    (void)user, (void)bytes;
    free(memory);
}

/* Wherever memory runs out on the way to a picture, that is what is told, and nothing is left behind. */
static void memory_runs_out(void) {
    const lz_allocator allocator = {allocate, release, NULL};
    lz_error err = {0};
    lz_context *ctx = lz_open(.allocator = &allocator, .threads = 1);
    lz_model *model = lz_model_open(ctx, DATA "/A", &err);
    bool failed = true;
    int n = 0;
    for (long at = 1; model && failed && n < 10000; at += 10000 / test_scale(100), n++) {
        lz_picture p;
        allocations_left = at;
        lz_status status = lz_generate(model, &p, &err, .prompt = "fox", .width = 32, .height = 32, .steps = 2);
        failed = allocations_left == 0;
        allocations_left = 0;
        CHECK(status == LZ_OUT_OF_MEMORY || status == LZ_OK, "allocation %ld: %s", at, err.text);
        lz_picture_free(&p);
        bool kept = status == LZ_OK; /* what the prompt became */
        CHECK(kept || lz_memory_info(ctx).active == 0, "allocation %ld: bytes are left", at);
    }
    CHECK(!failed && n > 2);
    lz_model_close(model);
    CHECK(lz_memory_info(ctx).active == 0, "bytes are left");
    lz_close(ctx);
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static void threads_agree(void) {
    uint8_t *first = NULL;
    int64_t bytes = 0;
    for (int threads = 1; threads <= 3; threads++) {
        lz_context *ctx = lz_open(.threads = threads);
        lz_error err = {0};
        lz_model *model = lz_model_open(ctx, DATA "/A", &err);
        lz_picture p;
        CHECK_OK(lz_generate(model, &p, &err, .prompt = "a red fox", .width = 80, .height = 64, .seed = 9), &err);
        bytes = 3 * p.image.width * p.image.height;
        if (!first && (first = malloc((size_t)bytes))) memcpy(first, p.image.pixels, (size_t)bytes);
        CHECK(first && !memcmp(first, p.image.pixels, (size_t)bytes), "%d threads", threads);
        lz_picture_free(&p);
        lz_model_close(model);
        lz_close(ctx);
    }
    free(first);
}

/* The command line makes the picture the library makes. */
static void command_line_agrees(void) {
    char self[400], command[1200], file[64] = "/tmp/lazuli-test-XXXXXX.png";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int fd = mkstemps(file, 4);
    CHECK(n > 0 && fd >= 0);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    snprintf(command, sizeof command, "%s/lazuli -m " DATA "/A -p 'a red fox' -W 80 -H 64 -S 9 -q -o %s", self, file);
    CHECK_I64(system(command), 0);
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DATA "/A", &err);
    lz_picture p;
    lz_image image = {0};
    CHECK_OK(lz_generate(model, &p, &err, .prompt = "a red fox", .width = 80, .height = 64, .seed = 9), &err);
    CHECK_OK(lz_image_read(ctx, file, &image, &err), &err);
    CHECK(image.pixels && !memcmp(image.pixels, p.image.pixels, 3 * 80 * 64));
    lz_image_free(ctx, &image);
    lz_picture_free(&p);
    lz_model_close(model);
    lz_close(ctx);
    close(fd);
    remove(file);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static bool stop_in_second_step(void *user, const lz_progress *p) {
    (void)user;
    return !(p->stage[0] == 'd' && p->step == 1);
}

static void options(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DATA "/A", &err);
    lz_picture p;
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 64, .height = 64, .watch = stop_in_second_step), LZ_CANCELLED,
                 &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 8, .height = 64), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 1 << 20, .height = 64), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 64, .height = 64, .steps = -1), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 64, .height = 64, .guidance = NAN), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 64, .height = 64, .strength = 0.5), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 64, .height = 64, .prompt = "bad \xff\xfe"), LZ_BAD_ARGUMENT,
                 &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 64, .height = 64,
                             .noise = lz_full(ctx, LZ_DIMS(1, 128, 4, 5), LZ_F32, 1)),
                 LZ_BAD_SHAPE, &err);
    CHECK_STATUS(lz_generate(model, &p, &err, .width = 64, .height = 64,
                             .noise = lz_full(ctx, LZ_DIMS(1, 128, 4, 4), LZ_F32, NAN)),
                 LZ_BAD_FILE, &err);
    CHECK_OK(lz_generate(model, &p, &err, .width = 70, .height = 95), &err);
    CHECK_I64(p.image.width, 64); /* whole tokens */
    CHECK_I64(p.image.height, 80);
    lz_picture whole = p, started;
    CHECK_OK(lz_generate(model, &started, &err, .images = &whole.image, .n_images = 1, .strength = 0.3), &err);
    CHECK_I64(started.image.height, 80); /* the size of the image */
    lz_picture_free(&started);
    lz_picture_free(&whole);
    lz_model_close(model);
    lz_close(ctx);
}

/* With little memory the picture is decoded in tiles, says so, and is nearly the same. */
static void tiles(void) {
    lz_picture whole, tiled;
    lz_error err = {0};
    lz_context *ctx = lz_open(), *small = lz_open(.memory_limit = 24 << 20, .cache_limit = -1);
    lz_model *a = lz_model_open(ctx, DATA "/B", &err), *b = lz_model_open(small, DATA "/B", &err);
    CHECK_OK(lz_generate(a, &whole, &err, .width = 640, .height = 512, .steps = 1), &err);
    CHECK_OK(lz_generate(b, &tiled, &err, .width = 640, .height = 512, .steps = 1), &err);
    CHECK_I64(whole.tile, 0);
    CHECK(tiled.tile > 0 && tiled.tile <= 512, "tiles of %lld", (long long)tiled.tile);
    CHECK(lz_memory_info(small).peak <= 24 << 20, "%lld bytes", (long long)lz_memory_info(small).peak);
    double db = psnr(whole.pixels, tiled.pixels);
    printf("    tiles of %lld: %.1f dB against the whole\n", (long long)tiled.tile, db);
    CHECK(db > 25, "%g dB", db);
    lz_picture_free(&whole);
    lz_picture_free(&tiled);
    lz_model_close(a);
    lz_model_close(b);
    lz_close(ctx);
    lz_close(small);
}

/* ---- cached references ------------------------------------------------------------------------------------------- */

static lz_picture_plan plan_with(lz_model *model, const lz_image *image, int n_images, int steps) {
    lz_error err = {0};
    lz_picture_plan plan = {0};
    CHECK_OK(lz_plan_picture(
                 model,
                 &LZ_PICTURE_OPTIONS(.width = 32, .height = 32, .steps = steps, .images = image, .n_images = n_images),
                 &plan, &err),
             &err);
    return plan;
}

/* K has the files of B, and only the index differs. Without references it is an ordinary klein. With references it makes
 * another picture, a step does not compute them, and the plan has room for their keys and values. */
static void cached_references(void) {
    enum { TOKENS = 64, WIDTH = 32, BLOCKS = 3 };
    lz_context *ctx = lz_open();
    lz_error err = {0};
    static uint8_t pixels[3 * 128 * 128];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7 + i / 64);
    lz_image image = {.width = 128, .height = 128, .pixels = pixels};
    lz_model *models[2] = {lz_model_open(ctx, DATA "/B", &err), lz_model_open(ctx, DATA "/K", &err)};
    if (!CHECK(models[0] && models[1], "%s", err.text)) return;
    CHECK(lz_model_about(models[1]).distilled && lz_model_about(models[1]).steps == 4);
    for (int n = 0; n < 2; n++) {
        lz_picture p[2];
        for (int i = 0; i < 2; i++)
            CHECK_OK(lz_generate(models[i], &p[i], &err, .prompt = "fox", .width = 32, .height = 32, .steps = 2,
                                 .images = &image, .n_images = n, .guidance = 4),
                     &err);
        bool same = !memcmp(p[0].image.pixels, p[1].image.pixels, (size_t)3 * 32 * 32);
        CHECK(same == !n, "%d references", n);
        for (int i = 0; i < 2; i++) lz_picture_free(&p[i]);
    }
    double step[2];
    for (int i = 0; i < 2; i++)
        step[i] = plan_with(models[i], &image, 1, 3).flops - plan_with(models[i], &image, 1, 2).flops;
    CHECK(step[1] < 0.7 * step[0], "%g and %g operations of a step", step[1], step[0]);
    lz_picture_plan none = plan_with(models[1], NULL, 0, 2), one = plan_with(models[1], &image, 1, 2);
    CHECK(!strcmp(one.stages[2].stage, "denoise") && !strcmp(none.stages[1].stage, "denoise"));
    int64_t cache = 2 * BLOCKS * TOKENS * WIDTH * (int64_t)sizeof(float);
    CHECK(one.stages[2].bytes >= none.stages[1].bytes + cache, "%lld bytes without references, %lld with them",
          (long long)none.stages[1].bytes, (long long)one.stages[2].bytes);
    CHECK(one.stages[2].weight_bytes <= none.stages[1].weight_bytes);
    lz_model_close(models[0]);
    lz_model_close(models[1]);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

TEST_MAIN({"against_diffusers", against_diffusers}, {"taef2", taef2}, {"rope", rope}, {"pixels", pixels},
          {"threads_take_turns", threads_take_turns}, {"no_picture_inside_another", no_picture_inside_another},
          {"memory_runs_out", memory_runs_out}, {"threads_agree", threads_agree},
          {"command_line_agrees", command_line_agrees}, {"options", options}, {"tiles", tiles},
          {"cached_references", cached_references})
