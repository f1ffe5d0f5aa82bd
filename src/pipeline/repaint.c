/* repaint.c: see repaint.h. */
#include "pipeline/repaint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job.h"

enum { FEATHER = 4, MOST_FEATHER = 1024, OVERLAP = 2 }; /* OVERLAP: tokens of the image beside an added side */

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bool extends(const lz_picture_options *o) {
    return o->extend.left || o->extend.top || o->extend.right || o->extend.bottom;
}

/* A mask of another size is stretched if its aspect ratio differs by no more than a twentieth. */
static lz_status check_mask(const lz_image *mask, const lz_image *image, lz_error *err) {
    lz_status status = lz_image_check(mask, "the mask", 1, err);
    if (status) return status;
    if (lz_image_channels(mask) == 4)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the mask has 4 channels; lz_image_read_mask makes a mask of opacity");
    double wide = (double)mask->width * (double)image->height, high = (double)image->width * (double)mask->height;
    if (wide <= 1.05 * high && high <= 1.05 * wide) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT,
                   "the mask is %lld x %lld, and the image %lld x %lld; a mask must have the shape of its image",
                   (long long)mask->width, (long long)mask->height, (long long)image->width, (long long)image->height);
}

static lz_status check_sides(const lz_sides *s, const lz_image *image, lz_error *err) {
    const int64_t sides[] = {s->left, s->top, s->right, s->bottom};
    for (int i = 0; i < 4; i++)
        if (sides[i] < 0 || sides[i] > LZ_MAX_SIZE)
            return lz_fail(err, LZ_BAD_ARGUMENT, "an image cannot be extended by %lld pixels; use 0 to %d",
                           (long long)sides[i], LZ_MAX_SIZE);
    int64_t width = image->width + s->left + s->right, height = image->height + s->top + s->bottom;
    if (width <= LZ_IMAGE_MAX_SIDE && height <= LZ_IMAGE_MAX_SIDE && 3 * width * height <= LZ_IMAGE_MAX_BYTES)
        return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "an image of %lld x %lld is too large to be extended", (long long)image->width,
                   (long long)image->height);
}

static lz_status check_choices(const lz_job *job, lz_error *err) {
    const lz_picture_options *o = &job->options;
    const lz_family *f = job->model->family;
    const char *what = o->mask ? "a mask" : "sides to extend";
    if (o->crop_padding < 0 || o->crop_padding > LZ_MAX_SIZE)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a padding of %lld pixels is not possible; use 0 to %d",
                       (long long)o->crop_padding, LZ_MAX_SIZE);
    if (o->feather > MOST_FEATHER)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a feather of %lld pixels is not possible; use up to %d",
                       (long long)o->feather, MOST_FEATHER);
    if (!o->mask && !extends(o))
        return o->crop_to_mask ? lz_fail(err, LZ_BAD_ARGUMENT, "there is no mask to crop to") : LZ_OK;
    if (!(f->mask_strength > 0))
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       "%s cannot repaint a part of a picture; FLUX.2 [klein], Qwen-Image and Z-Image can", f->name);
    if (!o->n_images)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s %s given, but no image to change", what, o->mask ? "was" : "were");
    if (job->model->schedule.inverted)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the schedule of this model is inverted, so it takes no mask");
    return LZ_OK;
}

/* ---- added sides ------------------------------------------------------------------------------------------------- */

/* Enlarges the last added side until `size` is a whole number of tokens. */
static void round_up(int64_t size, int64_t unit, int64_t *before, int64_t *after) {
    int64_t rest = (size + *before + *after) % unit;
    if ((*before || *after) && rest) *(*after ? after : before) += unit - rest;
}

/* Number of pixels of the image that are repainted beside an added side. */
static int64_t overlap(int64_t size, int64_t unit) { return size / 4 < OVERLAP * unit ? size / 4 : OVERLAP * unit; }

/* Paints everything white that is outside of the image, or near an added side. */
static void whiten_sides(lz_image *area, const lz_sides *s, int64_t unit) {
    int64_t w = area->width - s->left - s->right, h = area->height - s->top - s->bottom;
    int64_t left = s->left ? s->left + overlap(w, unit) : 0, top = s->top ? s->top + overlap(h, unit) : 0;
    int64_t right = area->width - (s->right ? s->right + overlap(w, unit) : 0),
            bottom = area->height - (s->bottom ? s->bottom + overlap(h, unit) : 0);
    for (int64_t y = 0; y < area->height; y++)
        for (int64_t x = 0; x < area->width; x++)
            if (x < left || x >= right || y < top || y >= bottom)
                memset(area->pixels + 3 * (y * area->width + x), 255, 3);
}

/* Makes the canvas and the area of an image with added sides. */
static lz_status add_sides(lz_job *job, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    lz_repaint *r = &job->repaint;
    lz_sides *s = &job->options.extend;
    const lz_image *image = &job->options.images[0];
    lz_image mask = {0};
    int64_t unit = job->model->family->token_pixels(job->model->state);
    round_up(image->width, unit, &s->left, &s->right);
    round_up(image->height, unit, &s->top, &s->bottom);
    r->owns_canvas = true;
    lz_status status = lz_extend_image(ctx, image, *s, &r->canvas, err);
    if (!status && job->options.mask)
        status = lz_image_resize(ctx, job->options.mask, image->width, image->height, &mask, err);
    else if (!status) {
        mask = (lz_image){.width = image->width, .height = image->height};
        mask.pixels = lz_host_alloc(ctx, (size_t)(3 * image->width * image->height));
        if (!mask.pixels) status = lz_out_of_memory(err, 3 * image->width * image->height);
    }
    if (!status) status = lz_extend_image(ctx, &mask, *s, &r->area, err);
    lz_image_free(ctx, &mask);
    if (status) return status;
    lz_make_grey(&r->area);
    whiten_sides(&r->area, s, unit);
    memcpy(r->images, job->options.images, (size_t)job->options.n_images * sizeof *r->images);
    r->images[0] = r->canvas;
    job->images = r->images;
    int64_t strip = OVERLAP * unit;
    if (s->left || s->right) strip = overlap(image->width, unit);
    if ((s->top || s->bottom) && overlap(image->height, unit) < strip) strip = overlap(image->height, unit);
    r->feather = strip;
    return LZ_OK;
}

lz_status lz_repaint_begin(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    lz_repaint *r = &job->repaint;
    lz_status status = check_choices(job, err);
    job->images = o->images;
    r->on = o->mask || extends(o);
    if (status || !r->on) return status;
    if (o->mask) status = check_mask(o->mask, &o->images[0], err);
    if (!status) status = check_sides(&o->extend, &o->images[0], err);
    if (status) return status;
    r->sized = o->width || o->height || o->noise;
    r->shown = lz_model_about(job->model).most_images > 0 && !job->model->trained.no_references;
    r->canvas = o->images[0];
    r->feather = FEATHER;
    if (extends(o)) status = add_sides(job, err);
    if (o->feather) r->feather = o->feather > 0 ? o->feather : 0;
    if (o->strength == 0) o->strength = extends(o) ? 1 : job->model->family->mask_strength;
    return status;
}

/* ---- the images of the loop -------------------------------------------------------------------------------------- */

/* Gives the canvas the size that was asked for. With crop_to_mask that is the size of the painted part. */
static lz_status resize_canvas(lz_job *job, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    lz_repaint *r = &job->repaint;
    int64_t width = job->options.width, height = job->options.height;
    lz_image resized = {0};
    if (!r->sized || job->options.crop_to_mask || (r->canvas.width == width && r->canvas.height == height))
        return LZ_OK;
    lz_status status = lz_image_resize(ctx, &r->canvas, width, height, &resized, err);
    if (status) return status;
    if (r->owns_canvas) lz_image_free(ctx, &r->canvas);
    r->canvas = resized;
    r->owns_canvas = true;
    if (job->images == r->images) r->images[0] = resized;
    return LZ_OK;
}

/* Makes the area, or resizes that of an image with added sides. */
static lz_status ready_area(lz_job *job, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    lz_repaint *r = &job->repaint;
    lz_image resized = {0};
    const lz_image *from = r->area.pixels ? &r->area : job->options.mask;
    lz_status status = lz_image_resize(ctx, from, r->canvas.width, r->canvas.height, &resized, err);
    if (status) return status;
    lz_image_free(ctx, &r->area);
    r->area = resized;
    lz_make_grey(&r->area);
    for (int64_t i = 0; i < r->area.width * r->area.height; i++)
        if (r->area.pixels[3 * i] >= 128) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "the mask has no white, so there is nothing to repaint");
}

/* The canvas in the size of the picture. Families that shrink an image to a megapixel do so before. */
static lz_status stretch_canvas(lz_job *job, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    const lz_family *f = job->model->family;
    lz_repaint *r = &job->repaint;
    lz_reference_size small = lz_middle(&r->canvas, f->token_pixels(job->model->state));
    lz_image middle = {0};
    bool shrinks = !r->sized && !f->picture_size &&
                   (small.small_width != r->canvas.width || small.small_height != r->canvas.height);
    lz_status status = shrinks ? lz_image_resize(ctx, &r->canvas, small.small_width, small.small_height, &middle, err)
                               : LZ_OK;
    if (!status)
        status = lz_image_resize(ctx, shrinks ? &middle : &r->canvas, job->options.width, job->options.height,
                                 &r->start, err);
    lz_image_free(ctx, &middle);
    return status;
}

static lz_status make_mask(lz_job *job, const lz_image *grey, lz_error *err) {
    int64_t n = grey->width * grey->height, white = 0;
    uint8_t *mask = job->repaint.mask = lz_host_alloc(job->model->ctx, (size_t)n);
    if (!mask) return lz_out_of_memory(err, n);
    for (int64_t i = 0; i < n; i++) white += mask[i] = grey->pixels[3 * i] >= 128;
    job->repaint.full = white == n;
    return LZ_OK;
}

/* Makes start and mask. */
static lz_status ready_start(lz_job *job, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    lz_repaint *r = &job->repaint;
    const lz_picture_options *o = &job->options;
    lz_image grey = {0};
    lz_status status;
    r->box = (lz_crop){.width = r->canvas.width, .height = r->canvas.height};
    if (o->crop_to_mask) {
        r->box = lz_mask_box(&r->area, o->width, o->height, o->crop_padding);
        status = lz_fit_box(ctx, &r->canvas, r->box, o->width, o->height, &r->start, err);
        if (!status) status = lz_fit_box(ctx, &r->area, r->box, o->width, o->height, &grey, err);
    } else {
        const lz_image *from = o->mask && !extends(o) ? o->mask : &r->area;
        status = stretch_canvas(job, err);
        if (!status) status = lz_image_resize(ctx, from, o->width, o->height, &grey, err);
        if (!status) lz_make_grey(&grey);
    }
    if (!status) status = make_mask(job, &grey, err);
    lz_image_free(ctx, &grey);
    return status;
}

/* The mask in latents: for each token, the mean of its middle four pixels; or for each latent, its first pixel. */
static float latent_mask(const lz_job *job, int64_t y, int64_t x, int64_t pixels, bool middle) {
    const uint8_t *mask = job->repaint.mask + y * pixels * job->options.width + x * pixels;
    int64_t row = job->options.width, half = pixels / 2 - 1;
    if (!middle) return (float)mask[0];
    mask += half * row + half;
    return (float)(mask[0] + mask[1] + mask[row] + mask[row + 1]) / 4;
}

/* Writes the mask of each token: one number, or one for each of its numbers. Returns whether one is not 0. */
static bool fill_tokens(const lz_job *job, float *to) {
    const lz_family *f = job->model->family;
    int64_t patch = f->patch, pixels = f->token_pixels(job->model->state) / patch;
    int64_t channels = f->mask_by_token ? 1 : f->channels(job->model->state);
    bool any = false;
    for (int64_t y = 0; y < job->layout.h; y++)
        for (int64_t x = 0; x < job->layout.w; x++)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t i = 0; i < (f->mask_by_token ? 1 : patch * patch); i++) {
                    float m = f->mask_by_token
                                  ? latent_mask(job, y, x, patch * pixels, true)
                                  : latent_mask(job, y * patch + i / patch, x * patch + i % patch, pixels, false);
                    any = any || m > 0;
                    *to++ = m;
                }
    return any;
}

static lz_dims token_dims(const lz_job *job) {
    int64_t channels = job->model->family->mask_by_token ? 1 : lz_token_channels(job->model);
    return LZ_DIMS(job->layout.h * job->layout.w, channels);
}

static lz_status check_tokens(const lz_job *job, lz_error *err) {
    lz_dims d = token_dims(job);
    size_t bytes = (size_t)(d.at[0] * d.at[1]) * sizeof(float);
    float *room = lz_host_alloc(job->model->ctx, bytes);
    if (!room) return lz_out_of_memory(err, (int64_t)bytes);
    bool any = fill_tokens(job, room);
    lz_host_free(job->model->ctx, room);
    return any ? LZ_OK
               : lz_fail(
                     err, LZ_BAD_ARGUMENT,
                     "the white of the mask is smaller than what this model can repaint; enlarge it, or crop to it");
}

lz_status lz_repaint_prepare(lz_job *job, lz_error *err) {
    lz_repaint *r = &job->repaint;
    if (!r->on) return LZ_OK;
    lz_status status = resize_canvas(job, err);
    if (!status) status = ready_area(job, err);
    if (!status) status = ready_start(job, err);
    if (!status) status = check_tokens(job, err);
    if (status || (job->options.change_outside && !job->options.crop_to_mask)) return status;
    int64_t n = r->canvas.width * r->canvas.height;
    if (!(r->share = lz_host_alloc(job->model->ctx, (size_t)n))) return lz_out_of_memory(err, n);
    status = lz_feather(job->model->ctx, &r->area, r->feather, r->share, err);
    r->faint = !status;
    for (int64_t i = 0; i < n && r->faint; i++) r->faint = r->share[i] < 128;
    return status;
}

void lz_repaint_free(lz_job *job) {
    lz_context *ctx = job->model->ctx;
    lz_repaint *r = &job->repaint;
    if (r->owns_canvas) lz_image_free(ctx, &r->canvas);
    lz_image_free(ctx, &r->area);
    lz_image_free(ctx, &r->start);
    lz_host_free(ctx, r->mask);
    lz_host_free(ctx, r->share);
}

void lz_repaint_remark(const lz_job *job, char *to, size_t size) {
    const lz_repaint *r = &job->repaint;
    const lz_image *mask = job->options.mask, *image = job->options.images;
    if (!r->on || *to) return;
    if (r->full)
        snprintf(to, size, "the mask is white everywhere, so all of the image is repainted");
    else if (r->faint)
        snprintf(
            to, size,
            "the soft edge of %lld pixels is wider than the mask, so hardly anything changes; use a smaller feather",
            (long long)r->feather);
    else if (mask && (mask->width != image->width || mask->height != image->height))
        snprintf(to, size, "the mask is %lld x %lld, and is stretched to the %lld x %lld of the image",
                 (long long)mask->width, (long long)mask->height, (long long)image->width, (long long)image->height);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

lz_array *lz_repaint_tokens(const lz_job *job) {
    lz_context *ctx = job->model->ctx;
    lz_dims d = token_dims(job);
    float *numbers = lz_host_alloc(ctx, (size_t)(d.at[0] * d.at[1]) * sizeof *numbers);
    if (!numbers) return lz_poison(ctx, LZ_OUT_OF_MEMORY, "mask");
    fill_tokens(job, numbers);
    lz_array *mask = lz_from(ctx, d, LZ_F32, numbers);
    lz_host_free(ctx, numbers);
    return mask;
}

lz_array *lz_keep_start(const lz_slots *in, lz_array *x) {
    lz_array *sigma = lz_take(in->sigmas_after, in->step_index, 0), *m = in->mask;
    lz_array *clean = lz_mul(in->kept, lz_add(lz_mul(sigma, -1.0), 1.0));
    lz_array *kept = lz_add(lz_mul(in->kept_noise, sigma), clean);
    lz_array *keep = lz_add(lz_mul(m, -1.0), 1.0);
    return lz_add(lz_mul(keep, kept), lz_mul(m, x));
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static lz_status copy_image(lz_context *ctx, const lz_image *from, lz_image *to, lz_error *err) {
    size_t bytes = (size_t)(3 * from->width * from->height);
    *to = (lz_image){.width = from->width, .height = from->height, .channels = 3, .pixels = lz_host_alloc(ctx, bytes)};
    if (!to->pixels) return lz_out_of_memory(err, (int64_t)bytes);
    memcpy(to->pixels, from->pixels, bytes);
    return LZ_OK;
}

lz_status lz_repaint_paste(const lz_job *job, lz_image *painted, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    const lz_repaint *r = &job->repaint;
    lz_image resized = {0}, result = {0};
    if (!r->on || !r->share) return LZ_OK;
    lz_status status = job->options.crop_to_mask
                           ? lz_cover(ctx, painted, r->box.width, r->box.height, &resized, err)
                           : lz_image_resize(ctx, painted, r->box.width, r->box.height, &resized, err);
    if (!status) status = copy_image(ctx, &r->canvas, &result, err);
    if (!status) {
        lz_blend(&result, &resized, r->box, r->share);
        lz_image_free(ctx, painted);
        *painted = result;
    } else
        lz_image_free(ctx, &result);
    lz_image_free(ctx, &resized);
    return status;
}
