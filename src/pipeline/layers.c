/* layers.c: pictures of several layers (Qwen-Image-Layered). An image is taken apart: the picture as a whole and its
 * layers are frames that are denoised together, with the image as reference. The first frame, the whole picture, is not
 * decoded; each other frame is decoded alone, to a picture with opacity. */
#include "pipeline/job.h"

static bool extends(const lz_sides *s) { return s->left || s->top || s->right || s->bottom; }

lz_status lz_settle_layers(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    int usual = lz_layers(job->model);
    if (!usual && (o->layers || o->resolution))
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s makes no layers; Qwen-Image-Layered does", job->model->family->name);
    if (!usual) return LZ_OK;
    if (o->layers < 0 || o->layers > LZ_MAX_LAYERS)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%d layers are not possible; use 1 to %d", o->layers, LZ_MAX_LAYERS);
    if (!o->layers) o->layers = usual;
    if (o->strength > 0 || o->mask || extends(&o->extend))
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       "this model takes an image apart into layers; it takes no strength, mask or sides to extend");
    return LZ_OK;
}

/* diffusers would describe the image with the language model. */
lz_status lz_check_layers_prompt(const lz_job *job, lz_error *err) {
    const char *prompt = job->options.prompt;
    while (prompt && *prompt == ' ') prompt++;
    if (prompt && *prompt) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT,
                   "this model needs a prompt that describes the whole image, with what is hidden");
}

/* ---- putting layers together ------------------------------------------------------------------------------------- */

/* Puts a pixel on top of another, both RGBA. */
static void cover(uint8_t *under, const uint8_t *over) {
    int shown = under[3] * (255 - over[3]), all = 255 * over[3] + shown; /* 255 times 255 is opaque */
    for (int k = 0; k < 3 && all; k++)
        under[k] = (uint8_t)((over[k] * 255 * over[3] + under[k] * shown + all / 2) / all);
    under[3] = (uint8_t)((all + 127) / 255);
}

static lz_status put_together(lz_context *ctx, const lz_image *layers, int n, lz_image *to, lz_error *err) {
    int64_t pixels = layers[0].width * layers[0].height;
    *to = (lz_image){.width = layers[0].width, .height = layers[0].height, .channels = 4};
    to->pixels = lz_host_alloc(ctx, (size_t)(4 * pixels)); /* transparent */
    if (!to->pixels) return lz_out_of_memory(err, 4 * pixels);
    for (int i = 0; i < n; i++)
        for (int64_t p = 0; p < pixels; p++) cover(to->pixels + 4 * p, layers[i].pixels + 4 * p);
    lz_image_apply(to, LZ_ALPHA_KEEP);
    return LZ_OK;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static lz_status decode_layer(lz_job *job, int layer, lz_decoded *to, lz_error *err) {
    const lz_layout *l = &job->layout;
    int64_t tokens = l->h * l->w;
    lz_error local = {.status = LZ_OK};
    lz_array *x = lz_contiguous(lz_slice(job->slots.x, 0, (layer + 1) * tokens, (layer + 2) * tokens, 1));
    lz_status status = lz_job_begin(job, "decode", 0, err);
    if (!status) status = lz_eval(x, err);
    if (status) return status;
    lz_decoder *decoder = job->decoder ? job->decoder : lz_decoder_take(job->model, l->h, l->w, &local);
    job->decoder = NULL;
    status = decoder ? lz_decode_pixels(job->model, decoder, x, &job->watch, to, &local) : local.status;
    if (status && err) *err = local;
    return status;
}

lz_status lz_decode_layers(lz_job *job, lz_array **pixels, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    lz_picture *p = job->picture;
    lz_array *each[LZ_MAX_LAYERS];
    int n = job->options.layers;
    lz_status status = LZ_OK;
    p->layers = lz_host_alloc(ctx, (size_t)n * sizeof *p->layers);
    if (!p->layers) return lz_out_of_memory(err, n * (int64_t)sizeof *p->layers);
    for (int i = 0; i < n && !status; i++) {
        lz_decoded decoded = {0};
        status = decode_layer(job, i, &decoded, err);
        if (status) break;
        p->tile = decoded.tile;
        status = lz_make_layer(ctx, &decoded, &p->layers[p->n_layers++], err);
        lz_dims d = lz_shape(decoded.pixels);
        each[i] = lz_reshape(decoded.pixels, LZ_DIMS(1, d.at[0], d.at[1], d.at[2]));
    }
    if (!status) status = put_together(ctx, p->layers, n, &p->image, err);
    if (status) return status;
    bool opaque = job->options.background == LZ_BACKGROUND_OPAQUE;
    if (opaque) lz_image_apply(&p->image, LZ_ALPHA_OVER_WHITE);
    for (int i = 0; i < n && opaque; i++) lz_image_apply(&p->layers[i], LZ_ALPHA_OVER_WHITE);
    *pixels = lz_concat(each, n, 0);
    return LZ_OK;
}
