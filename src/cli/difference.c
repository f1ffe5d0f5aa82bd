/* difference.c: see difference.h. The window of SSIM is separable: each row is blurred once, the blurred rows of the last
 * 11 rows are kept in a ring, and a row of results combines them. */
#include "difference.h"

#include <math.h>
#include <stdlib.h>

enum { WINDOW = 11, COLOURS = 3, PEAK = 255 };
enum { MEAN_A, MEAN_B, SQUARE_A, SQUARE_B, PRODUCT, MOMENTS };

/* A colour of a pixel, or its opacity. */
static int value_of(const lz_image *image, int64_t pixel, int channel) {
    int n = image->channels == 4 ? 4 : COLOURS;
    return channel < n ? image->pixels[n * pixel + channel] : PEAK;
}

static int channels_of(const lz_image *a, const lz_image *b) {
    return a->channels == 4 || b->channels == 4 ? 4 : COLOURS;
}

static void fill_window(double window[WINDOW]) {
    double sum = 0;
    for (int i = 0; i < WINDOW; i++) {
        int apart = i - WINDOW / 2;
        sum += window[i] = exp(-0.5 / (1.5 * 1.5) * (apart * apart));
    }
    for (int i = 0; i < WINDOW; i++) window[i] /= sum;
}

/* moments: [MOMENTS][width], for the values themselves; blurred: [MOMENTS][width], of which the first width - 10 of each
 * row are written. */
static void blur_row(const lz_image *a, const lz_image *b, int64_t y, int channel, const double *window,
                     double *moments, double *blurred) {
    int64_t width = a->width;
    for (int64_t x = 0; x < width; x++) {
        double p = value_of(a, y * width + x, channel), q = value_of(b, y * width + x, channel);
        const double values[MOMENTS] = {p, q, p * p, q * q, p * q};
        for (int m = 0; m < MOMENTS; m++) moments[m * width + x] = values[m];
    }
    for (int m = 0; m < MOMENTS; m++)
        for (int64_t x = 0; x + WINDOW <= width; x++) {
            double sum = 0;
            for (int i = 0; i < WINDOW; i++) sum += window[i] * moments[m * width + x + i];
            blurred[m * width + x] = sum;
        }
}

/* ring: WINDOW blurred rows; last: the number of the newest. Returns the sum of the similarities of a row. */
static double similarities(const double *ring, int64_t last, int64_t width, const double *window) {
    const double c1 = (0.01 * PEAK) * (0.01 * PEAK), c2 = (0.03 * PEAK) * (0.03 * PEAK);
    double all = 0;
    for (int64_t x = 0; x + WINDOW <= width; x++) {
        double sums[MOMENTS] = {0};
        for (int i = 0; i < WINDOW; i++) {
            const double *row = ring + (last + 1 + i) % WINDOW * MOMENTS * width;
            for (int m = 0; m < MOMENTS; m++) sums[m] += window[i] * row[m * width + x];
        }
        double p = sums[MEAN_A], q = sums[MEAN_B], spread_p = sums[SQUARE_A] - p * p, spread_q = sums[SQUARE_B] - q * q;
        double both = sums[PRODUCT] - p * q;
        all += (2 * p * q + c1) * (2 * both + c2) / ((p * p + q * q + c1) * (spread_p + spread_q + c2));
    }
    return all;
}

static bool measure_ssim(const lz_image *a, const lz_image *b, double *to) {
    int64_t width = a->width, height = a->height;
    double window[WINDOW], sum = 0;
    int channels = channels_of(a, b);
    *to = NAN;
    if (width < WINDOW || height < WINDOW) return true;
    size_t row = (size_t)width * MOMENTS;
    double *moments = calloc(row, sizeof *moments), *ring = calloc(row * WINDOW, sizeof *ring);
    bool good = moments && ring;
    fill_window(window);
    for (int k = 0; k < channels && good; k++)
        for (int64_t y = 0; y < height; y++) {
            blur_row(a, b, y, k, window, moments, ring + (size_t)(y % WINDOW) * row);
            if (y >= WINDOW - 1) sum += similarities(ring, y, width, window);
        }
    if (good) *to = sum / channels / (double)(width - WINDOW + 1) / (double)(height - WINDOW + 1);
    free(moments);
    free(ring);
    return good;
}

bool measure_difference(const lz_image *a, const lz_image *b, difference *d) {
    double squares = 0;
    int channels = channels_of(a, b);
    *d = (difference){.pixels = a->width * a->height, .x = -1, .y = -1, .psnr = INFINITY};
    for (int64_t i = 0; i < d->pixels; i++) {
        int largest = 0;
        for (int k = 0; k < channels; k++) {
            int apart = abs(value_of(a, i, k) - value_of(b, i, k));
            squares += apart * apart;
            if (apart > largest) largest = apart;
        }
        d->differing += largest > 0;
        if (largest <= d->largest) continue;
        d->largest = largest;
        d->x = i % a->width;
        d->y = i / a->width;
    }
    if (d->differing) d->psnr = 10 * log10((double)PEAK * PEAK * channels * (double)d->pixels / squares);
    return measure_ssim(a, b, &d->ssim);
}

int draw_difference(const lz_image *a, const lz_image *b, int largest, const lz_image *to) {
    int times = largest ? PEAK / largest : 1;
    for (int64_t i = 0; i < a->width * a->height; i++) {
        int opacity = abs(value_of(a, i, COLOURS) - value_of(b, i, COLOURS));
        for (int k = 0; k < COLOURS; k++) {
            int apart = abs(value_of(a, i, k) - value_of(b, i, k));
            to->pixels[COLOURS * i + k] = (uint8_t)(times * (apart > opacity ? apart : opacity));
        }
    }
    return times;
}
