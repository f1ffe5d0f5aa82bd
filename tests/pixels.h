/* pixels.h: tests that pixels are converted to bytes with the rounding of rintf, and that invalid pixels are errors; on
 * any device. */
#ifndef LZ_TEST_PIXELS_H
#define LZ_TEST_PIXELS_H

#include "check.h"
#include "pipeline/generate.h"

enum { PIXELS_H = 37, PIXELS_W = 29, PIXELS_N = PIXELS_H * PIXELS_W * 3 };

static inline lz_status image_of(lz_context *ctx, const float *pixels, int colours, lz_image *image, lz_error *err) {
    lz_scope *scope = lz_scope_begin(ctx, "pixels");
    lz_decoded d = {.pixels = lz_from(ctx, LZ_DIMS(PIXELS_H, PIXELS_W, colours), LZ_F32, pixels)};
    d.bytes = lz_describe_bytes(d.pixels);
    lz_status status = lz_make_image(ctx, &d, image, err);
    lz_scope_end(scope);
    return status;
}

static inline void check_pixels(lz_context *ctx) {
    static float p[PIXELS_N], flat[PIXELS_N];
    lz_image image = {0};
    lz_error err = {0};
    for (int i = 0; i < PIXELS_N; i++) { /* halves between levels, and the numbers on both sides of them */
        float half = ((float)(i / 3 % 255) + 0.5f) / 255;
        p[i] = i % 3 == 0 ? half : nextafterf(half, i % 3 == 1 ? 0.0f : 1.0f);
        flat[i] = 0.25f * (float)(1 + i % 3);
    }
    for (int i = 3 * 255; i < PIXELS_N; i++) p[i] = (float)(i * 7919 % 10007) / 10006;
    p[0] = -0.0f, p[1] = 1;
    if (CHECK_OK(image_of(ctx, p, 3, &image, &err), &err)) {
        CHECK(image.width == PIXELS_W && image.height == PIXELS_H);
        int wrong = 0;
        for (int i = 0; i < PIXELS_N; i++) wrong += image.pixels[i] != (uint8_t)rintf(p[i] * 255);
        CHECK_I64(wrong, 0);
    }
    lz_image_free(ctx, &image);
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1.0000001f, -1e-30f};
    for (int i = 0; i < 5; i++)
        for (int where = 0; where < 3; where++) {
            int at = where < 2 ? where * 1000 : PIXELS_N - 1;
            float good = p[at];
            p[at] = bad[i];
            CHECK_STATUS(image_of(ctx, p, 3, &image, &err), LZ_BAD_FILE, &err);
            CHECK_TEXT(err.text, "not a number");
            p[at] = good;
            lz_image_free(ctx, &image);
        }
    CHECK_STATUS(image_of(ctx, flat, 3, &image, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "one flat colour");
    lz_image_free(ctx, &image);
    for (int at = 0; at < PIXELS_N; at += 501) { /* one number that is a little different is enough */
        float before = flat[at];
        flat[at] = nextafterf(before, 0);
        CHECK_OK(image_of(ctx, flat, 3, &image, &err), &err);
        flat[at] = before;
        lz_image_free(ctx, &image);
    }
    static float clear[4 * PIXELS_H * PIXELS_W]; /* with opacity: an invisible picture is an error */
    for (int i = 0; i < PIXELS_N; i++) clear[i / 3 * 4 + i % 3] = p[i];
    CHECK_STATUS(image_of(ctx, clear, 4, &image, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "invisible");
    lz_image_free(ctx, &image);
    clear[4 * 500 + 3] = 0.5f;
    CHECK_OK(image_of(ctx, clear, 4, &image, &err), &err);
    clear[4 * 500 + 3] = 0; /* for the next call */
    lz_image_free(ctx, &image);
}

#endif
