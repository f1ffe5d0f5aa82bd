/* test_preview.c: previews after each step: the linear map against the decoded picture, the decoded preview against the
 * result; and features of prompts that are used again. */
#include <string.h>

#include "check.h"
#include "models/taef2.h"
#include "pipeline/generate.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif
#define DEMO LZ_SOURCE_DIR "/models/demo"
#define TAEF2 LZ_SOURCE_DIR "/../shared/data/taef2"
#define PREVIEW LZ_SOURCE_DIR "/tests/data/preview/taef2_latents.safetensors"

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* Each pixel the mean of a square of the larger picture; in 0..255. */
static double square_mean(const lz_image *large, const lz_image *small, int64_t x, int64_t y, int k) {
    int64_t step = large->width / small->width;
    double sum = 0;
    for (int64_t v = 0; v < step; v++)
        for (int64_t u = 0; u < step; u++) sum += large->pixels[3 * ((y * step + v) * large->width + x * step + u) + k];
    return sum / (double)(step * step);
}

/* Of all values of all colours. */
static double correlation(const lz_image *large, const lz_image *small) {
    double n = (double)(3 * small->width * small->height), a = 0, b = 0, aa = 0, bb = 0, ab = 0;
    for (int64_t i = 0; i < 3 * small->width * small->height; i++) {
        double p = small->pixels[i],
               q = square_mean(large, small, i / 3 % small->width, i / 3 / small->width, (int)(i % 3));
        a += p, b += q, aa += p * p, bb += q * q, ab += p * q;
    }
    return (ab - a * b / n) / sqrt((aa - a * a / n) * (bb - b * b / n) + 1e-9);
}

static double psnr(const lz_image *large, const lz_image *small) {
    double sum = 0, n = (double)(3 * small->width * small->height);
    for (int64_t i = 0; i < 3 * small->width * small->height; i++) {
        double off = small->pixels[i] -
                     square_mean(large, small, i / 3 % small->width, i / 3 / small->width, (int)(i % 3));
        sum += off * off;
    }
    return 10 * log10(255.0 * 255.0 / (sum / n + 1e-9));
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

enum { STEPS = 4 }; /* of the demo model */
typedef struct seen {
    lz_context *ctx;
    lz_image images[STEPS];
    int n, wrong, stop_at;
} seen;

static bool look(void *user, const lz_progress *now) {
    seen *s = user;
    if (!now->preview) return true;
    s->wrong += strcmp(now->stage, "denoise") != 0 || now->step != s->n || now->done != 1 || s->n >= STEPS;
    if (s->n >= STEPS) return false;
    lz_image *to = &s->images[s->n++];
    size_t bytes = (size_t)(3 * now->preview->width * now->preview->height);
    *to = *now->preview;
    to->pixels = malloc(bytes);
    if (to->pixels) memcpy(to->pixels, now->preview->pixels, bytes);
    return s->n != s->stop_at;
}

static void forget(seen *s) {
    for (int i = 0; i < s->n; i++) free(s->images[i].pixels);
    *s = (seen){.ctx = s->ctx};
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void map_is_the_picture(void) {
    static const char *const prompts[] = {"a fox in 3d style on a blue background", "two red apples",
                                          "a castle on a purple background"};
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    seen s = {.ctx = ctx};
    for (int i = 0; i < test_scale(3) && CHECK(model != NULL, "%s", err.text); i++) {
        lz_picture p, plain;
        lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = prompts[i], .seed = 1, .width = 192, .height = 128,
                                                  .watch = look, .user = &s);
        if (!CHECK_OK(lz_generate_with(model, &o, &plain, &err), &err)) break;
        CHECK_I64(s.n, 0); /* nobody asked */
        o.preview = LZ_PREVIEW_SMALL;
        if (!CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) break;
        CHECK(memcmp(p.image.pixels, plain.image.pixels, 3 * 192 * 128) == 0, "looking changed the picture");
        CHECK_I64(s.n, STEPS);
        CHECK_I64(s.wrong, 0);
        CHECK(s.images[0].width == 24 && s.images[0].height == 16);
        double last = correlation(&p.image, &s.images[STEPS - 1]), first = correlation(&p.image, &s.images[0]);
        double level = psnr(&p.image, &s.images[STEPS - 1]);
        printf("    %-40s correlation %.3f, after the first step %.3f; %.1f dB\n", prompts[i], last, first, level);
        CHECK(last > 0.95, "%.3f", last);
        CHECK(first > 0.5, "%.3f", first);
        CHECK(level > 18, "%.1f dB", level);
        forget(&s);
        lz_picture_free(&p);
        lz_picture_free(&plain);
    }
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* The last one is the picture, and those before are on their way to it. */
static void full_ends_in_the_picture(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    seen s = {.ctx = ctx};
    lz_picture p;
    lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "two red apples", .seed = 3, .width = 64, .height = 96,
                                              .steps = 3);
    o.preview = LZ_PREVIEW_FULL;
    CHECK_OK(lz_generate_with(model, &o, &p, &err), &err); /* nobody watches: nothing to show */
    lz_picture_free(&p);
    o.watch = look;
    o.user = &s;
    if (CHECK_OK(lz_generate_with(model, &o, &p, &err), &err) && CHECK_I64(s.n, 3)) {
        CHECK(s.images[2].width == 64 && s.images[2].height == 96);
        CHECK(memcmp(p.image.pixels, s.images[2].pixels, 3 * 64 * 96) == 0, "the last step is another picture");
        CHECK(memcmp(p.image.pixels, s.images[0].pixels, 3 * 64 * 96) != 0);
        lz_picture_free(&p);
    }
    for (int kind = LZ_PREVIEW_SMALL; kind <= LZ_PREVIEW_FULL; kind++) { /* whoever looks may stop it */
        forget(&s);
        s.stop_at = 2;
        o.preview = kind;
        CHECK_STATUS(lz_generate_with(model, &o, &p, &err), LZ_CANCELLED, &err);
        CHECK_I64(s.n, 2);
    }
    forget(&s);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* FLUX.2's own latents, as a real (tiny) encoder makes them, TAEF2; see tests/data/preview/README.md. */
enum { CARD = 96, CARD_LATENTS = CARD / 8, CHANNELS = 32, PHOTO = 256, PHOTO_LATENTS = PHOTO / 8 };

/* The map of the card shows a photo. */
static void card_fits_real_latents(void) {
    static uint8_t card[CARD * CARD * 3], colours[PHOTO_LATENTS * PHOTO_LATENTS * 3];
    static double means[CARD_LATENTS * CARD_LATENTS * 3];
    float map[3 * (CHANNELS + 1)];
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_weights *golden = lz_weights_open(ctx, PREVIEW, &err);
    if (!CHECK(golden, "%s", err.text)) return;
    lz_paint_card(card, CARD);
    lz_shrink_card(card, CARD, CARD_LATENTS, means);
    const float *latents = lz_data(lz_weights_cast(golden, "card", LZ_F32), &err);
    CHECK_OK(lz_fit_colours(ctx, latents, means, (int64_t)CARD_LATENTS * CARD_LATENTS, CHANNELS, map, &err), &err);
    latents = lz_data(lz_weights_cast(golden, "photo", LZ_F32), &err);
    for (int i = 0; i < PHOTO_LATENTS * PHOTO_LATENTS * 3 && CHECK(latents, "%s", err.text); i++) {
        double sum = map[i % 3 * (CHANNELS + 1) + CHANNELS];
        for (int k = 0; k < CHANNELS; k++)
            sum += (double)map[i % 3 * (CHANNELS + 1) + k] * latents[i / 3 * CHANNELS + k];
        colours[i] = (uint8_t)(fmin(fmax(sum, 0), 1) * 255 + 0.5);
    }
    lz_image small = {.width = PHOTO_LATENTS, .height = PHOTO_LATENTS, .pixels = colours}, photo = small;
    lz_array *shrunk = lz_weights_get(golden, "photo_colours");
    photo.pixels = (uint8_t *)lz_data(shrunk, &err);
    if (CHECK(photo.pixels && lz_size(shrunk) == (int64_t)sizeof colours, "%s", err.text)) {
        printf("    correlation %.3f, %.1f dB\n", correlation(&photo, &small), psnr(&photo, &small));
        CHECK(correlation(&photo, &small) > 0.75);
    }
    lz_weights_close(golden);
    lz_close(ctx);
}

/* Where TAEF2's weights are, the committed latents are what it makes of the card. */
static void committed_latents_are_real(void) {
    static uint8_t card[CARD * CARD * 3];
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_taef2 *m = lz_taef2_open(ctx, TAEF2 "/taef2.safetensors", &err);
    lz_weights *golden = lz_weights_open(ctx, PREVIEW, &err);
    if (!m) printf("    TAEF2's weights are not here: latents that it made were tested\n");
    if (m && CHECK(golden, "%s", err.text)) {
        lz_paint_card(card, CARD);
        lz_array *pixels = lz_div(lz_cast(lz_from(ctx, LZ_DIMS(CARD, CARD, 3), LZ_U8, card), LZ_F32), 255.0);
        const float *a = lz_data(lz_contiguous(lz_taef2_encode(m, pixels)), &err),
                    *b = lz_data(lz_weights_cast(golden, "card", LZ_F32), &err);
        if (CHECK(a && b, "%s", err.text)) {
            double error = max_relative_error(a, b, (int64_t)CARD_LATENTS * CARD_LATENTS * CHANNELS);
            CHECK(error < 1e-3, "%g", error); /* they are stored as f16 */
        }
    }
    lz_weights_close(golden);
    lz_taef2_close(m);
    lz_close(ctx);
}

/* A map that is there is found; latents that say nothing give the mean. */
static void fit_finds_a_map(void) {
    enum { N = 200, C = 5 };
    static const float want[3][C + 1] = {
        {0.3f, -0.1f, 0, 0.2f, 0.05f, 0.5f}, {0, 0.4f, -0.3f, 0, 0.1f, 0.25f}, {-0.2f, 0, 0.1f, 0.1f, 0, 0.75f}};
    static double colours[N * 3];
    static const float nothing[N * C];
    float map[3 * (C + 1)];
    lz_context *ctx = lz_open();
    lz_error err = {0};
    const float *latents = lz_data(lz_randn(ctx, LZ_DIMS(N, C), 1), &err);
    for (int i = 0; i < N * 3; i++) {
        colours[i] = (double)want[i % 3][C];
        for (int k = 0; k < C; k++) colours[i] += (double)want[i % 3][k] * latents[i / 3 * C + k];
    }
    CHECK_OK(lz_fit_colours(ctx, latents, colours, N, C, map, &err), &err);
    for (int i = 0; i < 3 * (C + 1); i++) /* damped by a hundredth */
        CHECK(fabsf(map[i] - want[i / (C + 1)][i % (C + 1)]) < 0.02f, "%d: %g", i, (double)map[i]);
    CHECK_OK(lz_fit_colours(ctx, nothing, colours, N, C, map, &err), &err);
    CHECK(map[0] == 0 && fabsf(map[C] - 0.5f) < 0.1f, "%g", (double)map[C]);
    lz_close(ctx);
}

/* ---- prompts again ----------------------------------------------------------------------------------------------- */

static bool same_values(lz_array *a, lz_array *b) {
    const void *p = lz_data(a, NULL), *q = lz_data(b, NULL);
    return p && q && lz_size(a) == lz_size(b) && memcmp(p, q, (size_t)lz_size(a) * sizeof(float)) == 0;
}

/* Seven prompts in a row, some of them known: each gives what a model that never read anything gives. */
static void prompts_are_recalled_exactly(const char *folder, double guidance) {
    static const char *const prompts[] = {"a fox", "a fox", "two apples", "a fox", "a", "b", "c", "d", "two apples"};
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, folder, &err);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts && CHECK(model != NULL, "%s", err.text); i++) {
        lz_model *fresh = lz_model_open(ctx, folder, &err);
        lz_picture a, b;
        lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = prompts[i], .width = 64, .height = 64, .steps = 1,
                                                  .guidance = guidance);
        bool fine = CHECK_OK(lz_generate_with(model, &o, &a, &err), &err);
        if (fine && CHECK_OK(lz_generate_with(fresh, &o, &b, &err), &err)) {
            CHECK(same_values(a.text, b.text), "%s: other features", prompts[i]);
            CHECK(same_values(a.latents, b.latents), "%s: other latents", prompts[i]);
            CHECK(memcmp(a.image.pixels, b.image.pixels, 3 * 64 * 64) == 0, "%s: another picture", prompts[i]);
            lz_picture_free(&b);
        }
        if (fine) lz_picture_free(&a);
        lz_model_close(fresh);
    }
    int64_t clock = model ? model->kept.clock : 0;
    lz_reading kept[LZ_READINGS] = {0};
    if (model) memcpy(kept, model->kept.readings, sizeof kept);
    for (int i = 0; i < LZ_READINGS; i++) CHECK(kept[i].features && kept[i].used <= clock);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

static void repeated_prompts(void) {
    prompts_are_recalled_exactly(DEMO, 0);
    prompts_are_recalled_exactly(LZ_SOURCE_DIR "/tests/data/flux2/C", 4); /* a negative one too */
    prompts_are_recalled_exactly(LZ_SOURCE_DIR "/tests/data/qwen/Q", 0);
}

/* The text encoder does not run for a prompt that is known: the stage is told once, as over. */
static bool count_text(void *user, const lz_progress *now) {
    int *calls = user;
    *calls += strcmp(now->stage, "text") == 0;
    return true;
}

static void known_prompts_are_not_read(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    int calls[2] = {0};
    for (int i = 0; i < 2; i++) {
        lz_picture p;
        lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "a fox", .width = 16, .height = 16, .steps = 1,
                                                  .watch = count_text);
        o.seed = (uint64_t)i;
        o.user = &calls[i];
        if (CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) lz_picture_free(&p);
    }
    CHECK(calls[0] > 1);
    CHECK_I64(calls[1], 1);
    lz_model_close(model);
    lz_close(ctx);
}

TEST_MAIN({"map_is_the_picture", map_is_the_picture}, {"full_ends_in_the_picture", full_ends_in_the_picture},
          {"card_fits_real_latents", card_fits_real_latents},
          {"committed_latents_are_real", committed_latents_are_real}, {"fit_finds_a_map", fit_finds_a_map},
          {"repeated_prompts", repeated_prompts}, {"known_prompts_are_not_read", known_prompts_are_not_read})
