/* sheet.c: a contact sheet: pictures of one size in rows, in the order in which they were made. */
#include <stdlib.h>
#include <string.h>

#include "see.h"

enum { LARGEST = 4096, GAP = 8 };

static int64_t span(int n, int64_t size) { return GAP + n * (size + GAP); }

int sheet_begin(sheet *s, const arguments *args, int n, int64_t width, int64_t height) {
    int rows = 1;
    s->columns = 1;
    while (s->columns * rows < n) { /* about square */
        if (span(s->columns, width) <= span(rows, height))
            s->columns++;
        else
            rows++;
    }
    s->shrink = 0;
    do {
        s->shrink++;
        s->width = width / s->shrink;
        s->height = height / s->shrink;
    } while (s->width > 1 && s->height > 1 &&
             (span(s->columns, s->width) > LARGEST || span(rows, s->height) > LARGEST));
    s->image = (lz_image){.width = span(s->columns, s->width), .height = span(rows, s->height)};
    size_t bytes = (size_t)(3 * s->image.width * s->image.height);
    s->image.pixels = malloc(bytes);
    if (!s->image.pixels) return fail(args, FAILED, "out of memory");
    memset(s->image.pixels, 255, bytes);
    return DONE;
}

/* A colour of a pixel; one that is not opaque is blended with white. */
static int colour_of(const lz_image *image, int64_t x, int64_t y, int k) {
    bool four = image->channels == 4;
    const uint8_t *p = image->pixels + (four ? 4 : 3) * (y * image->width + x);
    return four ? (p[k] * p[3] + 255 * (255 - p[3]) + 127) / 255 : p[k];
}

static uint8_t mean_of(const lz_image *image, int64_t left, int64_t top, int side, int k) {
    int64_t sum = 0;
    for (int64_t y = top; y < top + side; y++)
        for (int64_t x = left; x < left + side; x++) sum += colour_of(image, x, y, k);
    return (uint8_t)((sum + side * side / 2) / (side * side));
}

void paste_shrunk(const lz_image *to, int64_t left, int64_t top, const lz_image *image, int shrink) {
    for (int64_t y = 0; y < image->height / shrink && top + y < to->height; y++)
        for (int64_t x = 0; x < image->width / shrink && left + x < to->width; x++)
            for (int k = 0; k < 3; k++)
                to->pixels[3 * ((top + y) * to->width + left + x) + k] = mean_of(image, x * shrink, y * shrink, shrink,
                                                                                 k);
}

/* A picture that was cropped back to a reference image is smaller than the size that was settled. */
void sheet_add(sheet *s, const lz_image *image) {
    paste_shrunk(&s->image, span(s->n % s->columns, s->width), span(s->n / s->columns, s->height), image, s->shrink);
    s->n++;
}
