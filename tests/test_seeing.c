/* test_seeing.c: files of the command line that need no model: how much pictures differ, against tools/oracle/seeing.py. */
#include <jansson.h>

#include "check.h"
#include "cli/difference.c" /* NOLINT(bugprone-suspicious-include): these are not in the library */

static json_t *rows(const char *key) { /* to be freed */
    json_t *all = json_load_file(test_data("seeing/values.json"), 0, NULL),
           *list = json_incref(json_object_get(all, key));
    CHECK(json_array_size(list) >= 5, "%s", key);
    json_decref(all);
    return list;
}

static int64_t whole(const json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }
static double real(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

/* The pictures of tools/oracle/seeing.py. */
static void fill_pictures(lz_image *a, lz_image *b, int apart) {
    int64_t n = 3 * a->width * a->height;
    uint32_t state = (uint32_t)(a->width * 1000 + a->height);
    a->pixels = malloc((size_t)n);
    b->pixels = malloc((size_t)n);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            state = state * 1664525 + 1013904223;
            int noise = (int)(state >> 24), x = (int)(i / 3 % a->width), y = (int)(i / 3 / a->width);
            if (pass == 0) {
                a->pixels[i] = (uint8_t)((noise / 4 + 3 * x + 2 * y + 20 * (int)(i % 3)) % 256);
                continue;
            }
            int changed = a->pixels[i] + noise % (2 * apart + 1) - apart;
            b->pixels[i] = (uint8_t)(changed < 0 ? 0 : changed > 255 ? 255 : changed);
        }
}

static void differences(void) {
    size_t i;
    json_t *all = rows("pictures"), *row;
    json_array_foreach(all, i, row) {
        lz_image a = {.width = whole(row, "width"), .height = whole(row, "height")}, b = a;
        difference d;
        fill_pictures(&a, &b, (int)whole(row, "apart"));
        CHECK(measure_difference(&a, &b, &d));
        CHECK(fabs(d.ssim - real(row, "ssim")) < 1e-9, "case %zu: SSIM %.9f, not %.9f", i, d.ssim, real(row, "ssim"));
        CHECK(fabs(d.psnr - real(row, "psnr")) < 1e-9, "case %zu: PSNR %.9f, not %.9f", i, d.psnr, real(row, "psnr"));
        CHECK_I64(d.differing, whole(row, "differing"));
        CHECK_I64(d.largest, whole(row, "largest"));
        CHECK(d.x == whole(row, "x") && d.y == whole(row, "y"), "case %zu: at %lld, %lld", i, (long long)d.x,
              (long long)d.y);
        lz_image drawn = {.width = a.width, .height = a.height, .pixels = malloc((size_t)(3 * d.pixels))};
        int times = draw_difference(&a, &b, d.largest, &drawn), most = 0;
        CHECK_I64(times, 255 / d.largest);
        for (int64_t k = 0; k < 3 * d.pixels; k++) {
            int wanted = times * abs(a.pixels[k] - b.pixels[k]);
            if (!CHECK(drawn.pixels[k] == wanted)) break;
            most = wanted > most ? wanted : most;
        }
        CHECK_I64(most, times * d.largest);
        CHECK(measure_difference(&a, &a, &d));
        CHECK(d.differing == 0 && d.largest == 0 && d.x == -1 && d.psnr == INFINITY && fabs(d.ssim - 1) < 1e-12);
        CHECK_I64(draw_difference(&a, &a, 0, &drawn), 1);
        CHECK(drawn.pixels[0] == 0);
        a.width = b.width = 10; /* smaller than the window */
        a.height = b.height = 9;
        CHECK(measure_difference(&a, &b, &d) && isnan(d.ssim) && d.pixels == 90);
        free(a.pixels);
        free(b.pixels);
        free(drawn.pixels);
    }
    json_decref(all);
}

TEST_MAIN({"differences", differences})
