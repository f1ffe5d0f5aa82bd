/* resize.c: Lanczos and bicubic resizing with the arithmetic of Pillow (src/libImaging/Resample.c), so that images have
 * the same bits as in the models' own code. Weights are computed in double and rounded to fixed point with 22 bits.
 * First the width is resized and rounded to 8 bits, then the height. Colours of pixels with transparency are multiplied by
 * their opacity before, and divided by it after, each time rounded to 8 bits.
 *
 * The order matters, because of the rounding and clipping in between. Pillow 11.3 always uses this order. Pillow 13.0
 * begins with the height if it shrinks by more than twice as many pixels as the width (height > new height and
 * height - new height > 2 (width - new width)); its results differ in that case. */
#include <math.h>
#include <string.h>

#include "io/image_codec.h"

/* Leaves 8 bits for a pixel, and 2 for sums outside 0 .. 255, since Lanczos has negative weights. */
enum { BITS = 32 - 8 - 2 };

/* For each position of the output: first and number of the input positions that it depends on, and their weights. */
typedef struct kernel {
    int64_t room; /* most weights of one position */
    int32_t *first, *count, *weights;
} kernel;

static double sinc(double x) { return x == 0.0 ? 1.0 : sin(x * M_PI) / (x * M_PI); }

static double lanczos(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0; }

static double bicubic(double x) { /* Keys, with a = -0.5 */
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

typedef struct filter {
    double (*weight)(double x);
    double support;
} filter;
static const filter filters[] = {[LZ_LANCZOS] = {lanczos, 3.0}, [LZ_BICUBIC] = {bicubic, 2.0}};

/* The weights of one output position, in double. Returns their number. */
static int32_t weigh(const filter *f, int64_t from, double scale, int64_t place, int32_t *first, double *weights) {
    double stretch = scale < 1.0 ? 1.0 : scale, support = f->support * stretch, inverse = 1.0 / stretch;
    double center = ((double)place + 0.5) * scale;
    int64_t begin = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
    if (begin < 0) begin = 0;
    if (end > from) end = from;
    double sum = 0.0;
    for (int64_t i = begin; i < end; i++) {
        weights[i - begin] = f->weight(((double)i - center + 0.5) * inverse);
        sum += weights[i - begin];
    }
    for (int64_t i = 0; i < end - begin; i++)
        if (sum != 0.0) weights[i] /= sum;
    *first = (int32_t)begin;
    return (int32_t)(end - begin);
}

static void kernel_free(lz_context *ctx, kernel *k) {
    lz_host_free(ctx, k->first);
    lz_host_free(ctx, k->count);
    lz_host_free(ctx, k->weights);
}

static bool kernel_make(lz_context *ctx, const filter *f, kernel *k, int64_t from, int64_t to) {
    double scale = (double)from / (double)to;
    k->room = (int64_t)ceil(f->support * (scale < 1.0 ? 1.0 : scale)) * 2 + 1;
    k->first = lz_host_alloc(ctx, (size_t)to * sizeof *k->first);
    k->count = lz_host_alloc(ctx, (size_t)to * sizeof *k->count);
    k->weights = lz_host_alloc(ctx, (size_t)(to * k->room) * sizeof *k->weights);
    double *exact = lz_host_alloc(ctx, (size_t)k->room * sizeof *exact);
    bool good = k->first && k->count && k->weights && exact;
    for (int64_t place = 0; good && place < to; place++) {
        k->count[place] = weigh(f, from, scale, place, &k->first[place], exact);
        for (int32_t i = 0; i < k->count[place]; i++)
            k->weights[place * k->room + i] = (int32_t)(exact[i] * (1 << BITS) + (exact[i] < 0 ? -0.5 : 0.5));
    }
    lz_host_free(ctx, exact);
    return good;
}

static uint8_t round_to_byte(int32_t sum) {
    int32_t value = sum >> BITS; /* sums start at 0.5, for rounding */
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void resize_row(const kernel *k, const uint8_t *in, uint8_t *out, int64_t width, int channels) {
    bool four = channels == 4;
    for (int64_t x = 0; x < width; x++, out += channels) {
        const int32_t *weight = k->weights + x * k->room;
        const uint8_t *pixel = in + (int64_t)k->first[x] * channels;
        int32_t r = 1 << (BITS - 1), g = r, b = r, a = r;
        for (int32_t i = 0; i < k->count[x]; i++, pixel += channels) {
            r += pixel[0] * weight[i];
            g += pixel[1] * weight[i];
            b += pixel[2] * weight[i];
            if (four) a += pixel[3] * weight[i];
        }
        out[0] = round_to_byte(r);
        out[1] = round_to_byte(g);
        out[2] = round_to_byte(b);
        if (four) out[3] = round_to_byte(a);
    }
}

/* in: the first row with a weight; sums: memory for one row. */
static void mix_rows(const int32_t *weights, int32_t n, const uint8_t *in, uint8_t *out, int64_t row, int32_t *sums) {
    for (int64_t x = 0; x < row; x++) sums[x] = 1 << (BITS - 1);
    for (int32_t i = 0; i < n; i++, in += row)
        for (int64_t x = 0; x < row; x++) sums[x] += in[x] * weights[i];
    for (int64_t x = 0; x < row; x++) out[x] = round_to_byte(sums[x]);
}

static lz_status make_wide(lz_context *ctx, const filter *f, const lz_image *in, lz_image *out, lz_error *err) {
    kernel k = {.room = 0};
    bool good = kernel_make(ctx, f, &k, in->width, out->width);
    int n = out->channels;
    for (int64_t y = 0; good && y < in->height; y++)
        resize_row(&k, in->pixels + y * in->width * n, out->pixels + y * out->width * n, out->width, n);
    kernel_free(ctx, &k);
    return good ? LZ_OK : lz_out_of_memory(err, out->width);
}

static lz_status make_high(lz_context *ctx, const filter *f, const lz_image *in, lz_image *out, lz_error *err) {
    int64_t row = in->width * out->channels;
    kernel k = {.room = 0};
    int32_t *sums = lz_host_alloc(ctx, (size_t)row * sizeof *sums);
    bool good = sums && kernel_make(ctx, f, &k, in->height, out->height);
    for (int64_t y = 0; good && y < out->height; y++)
        mix_rows(k.weights + y * k.room, k.count[y], in->pixels + k.first[y] * row, out->pixels + y * row, row, sums);
    kernel_free(ctx, &k);
    lz_host_free(ctx, sums);
    return good ? LZ_OK : lz_out_of_memory(err, row * (int64_t)sizeof *sums);
}

/* A copy whose colours are multiplied by the opacity; and the inverse, in place. */
static lz_status multiply(lz_context *ctx, const lz_image *in, lz_image *out, lz_error *err) {
    lz_status status = lz_image_make(ctx, "picture to resize", INT64_MAX, in->width, in->height, 4, out, err);
    for (int64_t i = 0; i < 4 * in->width * in->height && !status; i++) {
        int product = in->pixels[i] * in->pixels[i | 3] + 128;
        out->pixels[i] = i % 4 == 3 ? in->pixels[i] : (uint8_t)((product + (product >> 8)) >> 8);
    }
    return status;
}

static void divide(const lz_image *image) {
    uint8_t *p = image->pixels;
    for (int64_t i = 0; i < image->width * image->height; i++, p += 4)
        for (int k = 0; k < 3 && p[3] > 0 && p[3] < 255; k++) p[k] = (uint8_t)(p[k] >= p[3] ? 255 : 255 * p[k] / p[3]);
}

lz_status lz_image_resize(lz_context *ctx, const lz_image *in, int64_t width, int64_t height, lz_image *out,
                          lz_error *err) {
    return lz_image_filter(ctx, in, width, height, LZ_LANCZOS, out, err);
}

/* The sizes are checked, and the colours are multiplied. */
static lz_status resize(lz_context *ctx, const lz_image *in, int64_t width, int64_t height, const filter *f,
                        lz_image *out, lz_error *err) {
    lz_image wide = {.width = 0};
    int channels = lz_image_channels(in);
    lz_status status = lz_image_make(ctx, "resized picture", INT64_MAX, width, in->height, channels, &wide, err);
    if (status == LZ_OK && width == in->width)
        memcpy(wide.pixels, in->pixels, (size_t)(width * in->height * channels));
    else if (status == LZ_OK)
        status = make_wide(ctx, f, in, &wide, err);
    if (status == LZ_OK && height == in->height) {
        *out = wide;
        return LZ_OK;
    }
    if (status == LZ_OK) status = lz_image_make(ctx, "resized picture", INT64_MAX, width, height, channels, out, err);
    if (status == LZ_OK) status = make_high(ctx, f, &wide, out, err);
    lz_image_free(ctx, &wide);
    if (status != LZ_OK) lz_image_free(ctx, out);
    return status;
}

lz_status lz_image_filter(lz_context *ctx, const lz_image *in, int64_t width, int64_t height, lz_filter kind,
                          lz_image *out, lz_error *err) {
    const filter *f = &filters[kind];
    if (!ctx || !in || !in->pixels || !out)
        return lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_resize: an argument is NULL");
    *out = (lz_image){.width = 0};
    bool fits = in->width > 0 && in->width <= LZ_IMAGE_MAX_SIDE && in->height > 0 && in->height <= LZ_IMAGE_MAX_SIDE &&
                width > 0 && width <= LZ_IMAGE_MAX_SIDE && height > 0 && height <= LZ_IMAGE_MAX_SIDE &&
                width * height * 3 <= LZ_IMAGE_MAX_BYTES &&
                width * in->height * 3 <= LZ_IMAGE_MAX_BYTES; /* the image between the two passes */
    if (!fits)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a picture of %lld x %lld pixels cannot be resized to %lld x %lld",
                       (long long)in->width, (long long)in->height, (long long)width, (long long)height);
    if (lz_image_channels(in) == 3 || (width == in->width && height == in->height))
        return resize(ctx, in, width, height, f, out, err);
    lz_image multiplied = {.width = 0};
    lz_status status = multiply(ctx, in, &multiplied, err);
    if (status == LZ_OK) status = resize(ctx, &multiplied, width, height, f, out, err);
    if (status == LZ_OK) divide(out);
    lz_image_free(ctx, &multiplied);
    return status;
}
