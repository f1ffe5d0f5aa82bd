/* codec.c: the autoencoder alone: pictures to latents and back. */
#include "pipeline/generate.h"

lz_array *lz_encode_image(lz_model *model, const lz_image *image) {
    if (!model) return NULL;
    lz_context *ctx = model->ctx;
    lz_error err = {.status = LZ_OK};
    lz_image middle = {0};
    int64_t unit = model->family->token_pixels(model->state);
    if (lz_image_check(image, "encode: the image", unit, &err) ||
        lz_crop_image(ctx, image, lz_middle(image, unit), &middle, &err))
        return lz_poison(ctx, err.status, "%s", err.text);
    if (lz_colours(model) == 3) lz_image_apply(&middle, LZ_ALPHA_OVER_WHITE);
    lz_array *tokens = model->family->encode(model->state, lz_picture_array(ctx, &middle));
    lz_array *latents = lz_contiguous(
        lz_to_planes(tokens, middle.height / unit, middle.width / unit, model->family->patch));
    lz_image_free(ctx, &middle);
    return latents;
}

lz_status lz_decode_latents(lz_model *model, lz_array *latents, lz_image *image, lz_error *err) {
    if (image) *image = (lz_image){0};
    if (!model || !image)
        return lz_fail(err, LZ_BAD_ARGUMENT, "decode: the %s is NULL", model ? "place for the image" : "model");
    lz_status status = lz_check(latents, err);
    if (status) return status;
    if (lz_context_of(latents) != model->ctx)
        return lz_fail(err, LZ_BAD_ARGUMENT, "decode: the latents belong to another context than the model");
    lz_dims d = lz_shape(latents);
    int64_t channels = model->family->channels(model->state), patch = model->family->patch;
    if (d.n != 4 || d.at[0] != 1 || d.at[1] != channels || d.at[2] < 1 || d.at[3] < 1 || d.at[2] % patch ||
        d.at[3] % patch)
        return lz_fail(err, LZ_BAD_SHAPE, "decode: latents are [1, %lld, h, w]%s, not %s", (long long)channels,
                       patch > 1 ? " with even h and w" : "", LZ_SHOW(d));
    status = lz_model_enter(model, NULL, err);
    if (status) return status;
    lz_scope *scope = lz_scope_begin(model->ctx, "decode");
    lz_array *tokens = lz_contiguous(lz_to_tokens(lz_cast(latents, LZ_F32), patch));
    lz_decoded decoded = {0};
    lz_error local = {.status = LZ_OK};
    status = lz_eval(tokens, err);
    lz_decoder *decoder = status ? NULL : lz_decoder_take(model, d.at[2] / patch, d.at[3] / patch, &local);
    if (!status) status = decoder ? lz_decode_pixels(model, decoder, tokens, NULL, &decoded, &local) : local.status;
    if (local.status && err) *err = local;
    if (!status) status = lz_make_image(model->ctx, &decoded, image, err);
    if (status) lz_image_free(model->ctx, image);
    lz_scope_end(scope);
    return status;
}
