/* paste.c: the pixels of a repainted picture (repaint.h): sides, the box around a mask, and blending. Sizes and
 * roundings are those of VaeImageProcessor of diffusers (get_crop_region, _resize_and_fill, _resize_and_crop). */
#include <string.h>

#include "base/base.h"
#include "pipeline/repaint.h"

static lz_status new_image(lz_context *ctx, int64_t width, int64_t height, lz_image *to, lz_error *err) {
    *to = (lz_image){.width = width, .height = height, .channels = 3};
    to->pixels = lz_host_alloc(ctx, (size_t)(3 * width * height));
    return to->pixels ? LZ_OK : lz_out_of_memory(err, 3 * width * height);
}

static uint8_t *pixel(const lz_image *image, int64_t x, int64_t y) {
    return image->pixels + 3 * (y * image->width + x);
}

static int64_t clamp(int64_t at, int64_t n) { return at < 0 ? 0 : at < n ? at : n - 1; }

void lz_make_grey(lz_image *image) {
    for (int64_t i = 0; i < image->width * image->height; i++) {
        uint8_t *p = image->pixels + 3 * i;
        p[0] = p[1] = p[2] = (uint8_t)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) >> 16);
    }
}

lz_status lz_extend_image(lz_context *ctx, const lz_image *image, lz_sides s, lz_image *to, lz_error *err) {
    lz_status status = new_image(ctx, image->width + s.left + s.right, image->height + s.top + s.bottom, to, err);
    if (status) return status;
    for (int64_t y = 0; y < to->height; y++)
        for (int64_t x = 0; x < to->width; x++)
            memcpy(pixel(to, x, y), pixel(image, clamp(x - s.left, image->width), clamp(y - s.top, image->height)), 3);
    return LZ_OK;
}

/* ---- the box around a mask --------------------------------------------------------------------------------------- */

static bool row_is_black(const lz_image *mask, int64_t y) {
    for (int64_t x = 0; x < mask->width; x++)
        if (*pixel(mask, x, y)) return false;
    return true;
}

static bool column_is_black(const lz_image *mask, int64_t x) {
    for (int64_t y = 0; y < mask->height; y++)
        if (*pixel(mask, x, y)) return false;
    return true;
}

/* Grows the range by `more`, evenly where there is room up to `size`. */
static void grow(int64_t *begin, int64_t *end, int64_t more, int64_t size) {
    *begin -= more / 2;
    *end += more - more / 2;
    if (*end >= size) {
        *begin -= *end - size;
        *end = size;
    }
    if (*begin < 0) {
        *end -= *begin;
        *begin = 0;
    }
    if (*end > size) *end = size;
}

lz_crop lz_mask_box(const lz_image *mask, int64_t width, int64_t height, int64_t padding) {
    int64_t x1 = 0, y1 = 0, x2 = mask->width, y2 = mask->height;
    while (x1 < x2 - 1 && column_is_black(mask, x1)) x1++;
    while (x2 > x1 + 1 && column_is_black(mask, x2 - 1)) x2--;
    while (y1 < y2 - 1 && row_is_black(mask, y1)) y1++;
    while (y2 > y1 + 1 && row_is_black(mask, y2 - 1)) y2--;
    x1 = x1 > padding ? x1 - padding : 0;
    y1 = y1 > padding ? y1 - padding : 0;
    x2 = x2 + padding < mask->width ? x2 + padding : mask->width;
    y2 = y2 + padding < mask->height ? y2 + padding : mask->height;
    double ratio = (double)width / (double)height, w = (double)(x2 - x1), h = (double)(y2 - y1);
    if (w / h > ratio)
        grow(&y1, &y2, (int64_t)(w / ratio - h), mask->height);
    else
        grow(&x1, &x2, (int64_t)(h * ratio - w), mask->width);
    return (lz_crop){.left = x1, .top = y1, .width = x2 - x1, .height = y2 - y1};
}

static lz_status cut(lz_context *ctx, const lz_image *image, lz_crop box, lz_image *to, lz_error *err) {
    lz_status status = new_image(ctx, box.width, box.height, to, err);
    for (int64_t y = 0; y < box.height && !status; y++)
        memcpy(pixel(to, 0, y), pixel(image, box.left, box.top + y), (size_t)(3 * box.width));
    return status;
}

/* Fills n rows (or columns) with an extrapolation of the two nearest ones: what Pillow's bicubic filter gives for a box
 * without height. 9/8 of the nearest, less 1/8 of the next, in steps of a byte. */
static void fill_bar(const lz_image *inner, bool rows, bool end, int64_t n, int64_t at, lz_image *to) {
    int64_t size = rows ? inner->height : inner->width, across = rows ? to->width : to->height;
    int64_t near = end ? size - 1 : 0, next = size < 2 ? near : end ? size - 2 : 1;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < across; i++) {
            if (at + k >= (rows ? to->height : to->width)) return;
            const uint8_t *a = rows ? pixel(inner, i, near) : pixel(inner, near, i);
            const uint8_t *b = rows ? pixel(inner, i, next) : pixel(inner, next, i);
            uint8_t *p = rows ? pixel(to, i, at + k) : pixel(to, at + k, i);
            for (int c = 0; c < 3; c++) {
                int value = (9 * a[c] - b[c] + 4) >> 3;
                p[c] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
            }
        }
}

/* Puts an image into another at this place, as far as it fits. */
static void place(const lz_image *from, int64_t left, int64_t top, lz_image *to) {
    for (int64_t y = 0; y < from->height; y++)
        for (int64_t x = 0; x < from->width; x++)
            if (left + x >= 0 && left + x < to->width && top + y >= 0 && top + y < to->height)
                memcpy(pixel(to, left + x, top + y), pixel(from, x, y), 3);
}

/* Resizes an image to w x h and puts it into the middle of a new one. With bars, what is left is filled. */
static lz_status place_in_middle(lz_context *ctx, const lz_image *image, int64_t w, int64_t h, int64_t width,
                                 int64_t height, bool bars, lz_image *to, lz_error *err) {
    lz_image inner = {0};
    int64_t left = width / 2 - w / 2, top = height / 2 - h / 2;
    lz_status status = lz_image_resize(ctx, image, w, h, &inner, err);
    if (!status) status = new_image(ctx, width, height, to, err);
    if (!status) {
        place(&inner, left, top, to);
        if (bars && top > 0) {
            fill_bar(&inner, true, false, top, 0, to);
            fill_bar(&inner, true, true, top, top + h, to);
        } else if (bars && left > 0) {
            fill_bar(&inner, false, false, left, 0, to);
            fill_bar(&inner, false, true, left, left + w, to);
        }
    }
    lz_image_free(ctx, &inner);
    return status;
}

lz_status lz_fit_box(lz_context *ctx, const lz_image *image, lz_crop box, int64_t width, int64_t height, lz_image *to,
                     lz_error *err) {
    lz_image part = {0};
    bool high = (double)width / (double)height < (double)box.width / (double)box.height; /* bars above and below */
    int64_t w = high ? width : box.width * height / box.height, h = high ? box.height * width / box.width : height;
    lz_status status = cut(ctx, image, box, &part, err);
    if (!status) status = place_in_middle(ctx, &part, w > 0 ? w : 1, h > 0 ? h : 1, width, height, true, to, err);
    lz_image_free(ctx, &part);
    return status;
}

lz_status lz_cover(lz_context *ctx, const lz_image *image, int64_t width, int64_t height, lz_image *to, lz_error *err) {
    bool wide = (double)width / (double)height > (double)image->width / (double)image->height;
    int64_t w = wide ? width : image->width * height / image->height,
            h = wide ? image->height * width / image->width : height;
    return place_in_middle(ctx, image, w, h, width, height, false, to, err);
}

/* ---- blending ---------------------------------------------------------------------------------------------------- */

/* Distances are in thirds of a pixel: 3 to a neighbour, 4 to a diagonal one (a chamfer distance, which is within 8 % of
 * the Euclidean one). far: the largest one that is told apart. */
enum { STRAIGHT = 3, DIAGONAL = 4 };

static void lower(uint16_t *d, const uint16_t *from, int by) {
    if (*from + by < *d) *d = (uint16_t)(*from + by);
}

/* One pass over the image in reading order, or backwards: step is 1 or -1. */
static void spread(uint16_t *d, int64_t width, int64_t height, int64_t step) {
    for (int64_t row = 0; row < height; row++)
        for (int64_t column = 0; column < width; column++) {
            int64_t y = step > 0 ? row : height - 1 - row, x = step > 0 ? column : width - 1 - column;
            uint16_t *here = d + y * width + x, *above = here - step * width;
            if (column) lower(here, here - step, STRAIGHT);
            if (!row) continue;
            lower(here, above, STRAIGHT);
            if (column) lower(here, above - step, DIAGONAL);
            if (column + 1 < width) lower(here, above + step, DIAGONAL);
        }
}

lz_status lz_feather(lz_context *ctx, const lz_image *mask, int64_t feather, uint8_t *share, lz_error *err) {
    int64_t n = mask->width * mask->height, ramp = STRAIGHT * (feather + 1);
    uint16_t *d = lz_host_alloc(ctx, (size_t)n * sizeof *d);
    if (!d) return lz_out_of_memory(err, n * (int64_t)sizeof *d);
    for (int64_t i = 0; i < n; i++) d[i] = mask->pixels[3 * i] < 128 ? 0 : UINT16_MAX;
    spread(d, mask->width, mask->height, 1);
    spread(d, mask->width, mask->height, -1);
    for (int64_t i = 0; i < n; i++) share[i] = (uint8_t)(d[i] >= ramp ? 255 : (255 * d[i] + ramp / 2) / ramp);
    lz_host_free(ctx, d);
    return LZ_OK;
}

void lz_blend(lz_image *canvas, const lz_image *picture, lz_crop box, const uint8_t *share) {
    for (int64_t y = 0; y < box.height; y++)
        for (int64_t x = 0; x < box.width; x++) {
            int s = share[(box.top + y) * canvas->width + box.left + x];
            uint8_t *to = pixel(canvas, box.left + x, box.top + y);
            const uint8_t *from = pixel(picture, x, y);
            for (int c = 0; c < 3; c++) to[c] = (uint8_t)((to[c] * (255 - s) + from[c] * s + 127) / 255);
        }
}
