/* images.c: prepares input images for the model: resized, cropped or extended to whole tokens, encoded. */
#include <math.h>
#include <string.h>

#include "pipeline/job.h"

static int64_t fit(int64_t size, int64_t unit) { return size / unit * unit; }

enum { REFERENCE_AREA = 1024 * 1024, SMALL = 16 }; /* SMALL: a side that is reflected with its edge */

lz_reference_size lz_middle(const lz_image *image, int64_t unit) {
    lz_reference_size s = {.small_width = image->width, .small_height = image->height};
    if (image->width * image->height > REFERENCE_AREA) {
        double scale = sqrt((double)REFERENCE_AREA / (double)(image->width * image->height));
        s.small_width = (int64_t)((double)image->width * scale);
        s.small_height = (int64_t)((double)image->height * scale);
    }
    s.width = fit(s.small_width, unit);
    s.height = fit(s.small_height, unit);
    return s;
}

lz_reference_size lz_size_reference(const lz_model *m, const lz_image *image, int n) {
    return m->family->reference_size ? m->family->reference_size(m->state, image, n)
                                     : lz_middle(image, m->family->token_pixels(m->state));
}

bool lz_job_trained_size(const lz_job *job, const lz_image *image, int64_t size[2]) {
    const lz_picture_options *o = &job->options;
    const lz_trained *t = &job->model->trained;
    if (!t->n_sizes || job->repaint.on || o->layers) return false;
    int64_t unit = job->model->family->token_pixels(job->model->state);
    const int64_t asked[2] = {fit(o->width, unit), fit(o->height, unit)};
    memcpy(size, asked[0] && asked[1] ? asked : lz_trained_size(t, image->width, image->height), sizeof asked);
    return true;
}

/* The whole image in a picture of that size, as large as possible; its edges are continued. */
static lz_reference_size contain(const lz_image *image, int64_t width, int64_t height) {
    double scale = fmin((double)width / (double)image->width, (double)height / (double)image->height);
    int64_t w = llround((double)image->width * scale), h = llround((double)image->height * scale);
    return (lz_reference_size){
        .small_width = w > 0 ? w : 1, .small_height = h > 0 ? h : 1, .width = width, .height = height, .edges = true};
}

lz_reference_size lz_job_reference_size(const lz_job *job, const lz_image *image, int n) {
    const lz_picture_options *o = &job->options;
    int64_t size[2];
    if (lz_job_trained_size(job, image, size)) return contain(image, size[0], size[1]);
    if (!o->layers) return lz_size_reference(job->model, image, n);
    return (lz_reference_size){o->width, o->height, o->width, o->height, false};
}

/* The pixel of n that is seen at a place outside of them, as in a row of mirrors. edge: the outermost pixel is seen in
 * the mirror too. */
static int64_t reflect(int64_t at, int64_t n, bool edge) {
    int64_t period = edge ? 2 * n : n > 1 ? 2 * n - 2 : 1;
    at = (at % period + period) % period;
    return at < n ? at : period - at - edge;
}

static int64_t inside(int64_t at, int64_t n) { return at < 0 ? 0 : at < n ? at : n - 1; }

/* The middle of an image, or the image in the middle of its continued edges or of its reflection; numpy.pad of diffusers. */
static void copy_middle(const lz_image *from, bool edges, lz_image *to) {
    int64_t left = (from->width - to->width) / 2, top = (from->height - to->height) / 2, n = to->channels;
    bool edge = from->width <= SMALL || from->height <= SMALL;
    for (int64_t y = 0; y < to->height; y++)
        for (int64_t x = 0; x < to->width; x++) {
            int64_t row = edges ? inside(top + y, from->height) : reflect(top + y, from->height, edge),
                    column = edges ? inside(left + x, from->width) : reflect(left + x, from->width, edge);
            memcpy(to->pixels + n * (y * to->width + x), from->pixels + n * (row * from->width + column), (size_t)n);
        }
}

lz_status lz_crop_image(lz_context *ctx, const lz_image *image, lz_reference_size s, lz_image *to, lz_error *err) {
    lz_image small = *image;
    if (!s.width || !s.height)
        return lz_fail(err, LZ_BAD_ARGUMENT, "an image of %lld x %lld is too narrow to be looked at",
                       (long long)image->width, (long long)image->height);
    lz_status status = LZ_OK;
    if (s.small_width != image->width || s.small_height != image->height)
        status = lz_image_resize(ctx, image, s.small_width, s.small_height, &small, err);
    if (status) return status;
    *to = (lz_image){.width = s.width, .height = s.height, .channels = lz_image_channels(image)};
    to->pixels = lz_host_alloc(ctx, (size_t)(to->channels * s.width * s.height));
    if (!to->pixels) status = lz_out_of_memory(err, to->channels * s.width * s.height);
    if (to->pixels) copy_middle(&small, s.edges, to);
    if (small.pixels != image->pixels) lz_image_free(ctx, &small);
    return status;
}

/* u8 -> in -1..1 */
static lz_array *to_unit(lz_array *bytes) { return lz_sub(lz_mul(lz_div(lz_cast(bytes, LZ_F32), 255.0), 2.0), 1.0); }

lz_array *lz_image_bytes(lz_context *ctx, const lz_image *image) {
    return lz_from(ctx, LZ_DIMS(image->height, image->width, lz_image_channels(image)), LZ_U8, image->pixels);
}

lz_array *lz_picture_array(lz_context *ctx, const lz_image *image) { return to_unit(lz_image_bytes(ctx, image)); }

/* [f, c, p h, p w] <-> [f h w, c p p] */
lz_array *lz_to_tokens(lz_array *x, int64_t patch) {
    lz_dims d = lz_shape(x);
    int64_t f = d.at[0], h = d.at[2] / patch, w = d.at[3] / patch;
    x = lz_permute(lz_reshape(x, LZ_DIMS(f, d.at[1], h, patch, w, patch)), LZ_DIMS(0, 2, 4, 1, 3, 5));
    return lz_reshape(x, LZ_DIMS(f * h * w, d.at[1] * patch * patch));
}
lz_array *lz_to_planes(lz_array *tokens, int64_t h, int64_t w, int64_t patch) {
    lz_dims d = lz_shape(tokens);
    int64_t f = d.at[0] / (h * w), c = d.at[1] / (patch * patch);
    tokens = lz_permute(lz_reshape(tokens, LZ_DIMS(f, h, w, c, patch, patch)), LZ_DIMS(0, 3, 1, 4, 2, 5));
    return lz_reshape(tokens, LZ_DIMS(f, c, h * patch, w * patch));
}

static void describe_tokens(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const lz_model *m = user;
    out[0] = m->family->encode(m->state, to_unit(in[0]));
}

lz_status lz_job_image_encoder(lz_job *job, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    if (!job->image_encoder)
        job->image_encoder = lz_compile(job->model->ctx, describe_tokens, job->model, 1, 1, LZ_MAX_IMAGES, &local);
    if (local.status && err) *err = local;
    return local.status;
}

/* Encodes one image and evaluates the tokens, [h w, c]. */
static lz_status encode_picture(lz_job *job, const lz_image *image, lz_array **tokens, lz_error *err) {
    lz_status status = lz_job_begin(job, "encode", 0, err);
    if (!status) status = lz_job_image_encoder(job, err);
    if (status) return status;
    lz_array *pixels = lz_image_bytes(job->model->ctx, image);
    return lz_run_watched(job->image_encoder, &pixels, tokens, &job->watch, err);
}

static lz_status encode_start(lz_job *job, lz_error *err) {
    const lz_picture_options *o = &job->options;
    if (job->repaint.on) return encode_picture(job, &job->repaint.start, &job->slots.start, err);
    lz_image image = {0};
    lz_status status = lz_image_resize(job->model->ctx, &o->images[0], o->width, o->height, &image, err);
    if (!status) status = encode_picture(job, &image, &job->slots.start, err);
    lz_image_free(job->model->ctx, &image);
    return status;
}

lz_status lz_job_images(lz_job *job, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    lz_array *tokens[LZ_MAX_IMAGES];
    int n;
    const lz_image *images = lz_job_references(job, &n);
    lz_status status = job->options.strength > 0 ? encode_start(job, err) : LZ_OK;
    if (n && job->repaint.shown) tokens[0] = job->slots.start;
    for (int i = job->repaint.shown; i < n && !status; i++) {
        lz_image image = {0};
        status = lz_crop_image(ctx, &images[i], lz_job_reference_size(job, &images[i], n), &image, err);
        if (!status) status = encode_picture(job, &image, &tokens[i], err);
        lz_image_free(ctx, &image);
    }
    if (!status && n) {
        job->slots.references = lz_concat(tokens, n, 0);
        status = lz_eval(job->slots.references, err);
    }
    lz_compiled_free(job->image_encoder);
    job->image_encoder = NULL;
    return status;
}
