/* webp.c: WebP, by libwebp. */
#include <string.h>
#include <webp/decode.h>
#include <webp/encode.h>

#include "io/image_codec.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool recognise(const uint8_t *data, size_t bytes) {
    return bytes >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
}

static lz_status fail(lz_error *err, const char *path, VP8StatusCode code) {
    static const char *const reasons[] = {
        [VP8_STATUS_INVALID_PARAM] = "its size makes no sense",
        [VP8_STATUS_BITSTREAM_ERROR] = "its data make no sense",
        [VP8_STATUS_UNSUPPORTED_FEATURE] = "it is of a kind that libwebp does not know",
        [VP8_STATUS_SUSPENDED] = "it ends too early",
        [VP8_STATUS_USER_ABORT] = "it was given up",
        [VP8_STATUS_NOT_ENOUGH_DATA] = "it ends too early",
    };
    if (code == VP8_STATUS_OUT_OF_MEMORY) return lz_out_of_memory(err, 0);
    return lz_fail(err, LZ_BAD_FILE, "%s: " LZ_IMAGE_DAMAGED ": %s", LZ_SHOW_TEXT(path), reasons[code]);
}

/* Straight into memory of ours. */
static VP8StatusCode decode(WebPDecoderConfig *config, const uint8_t *data, size_t bytes, uint8_t *to, int channels) {
    int stride = config->input.width * channels;
    config->output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
    config->output.is_external_memory = 1;
    config->output.u.RGBA = (WebPRGBABuffer){to, stride, (size_t)stride * (size_t)config->input.height};
    return WebPDecode(data, bytes, config);
}

static lz_status read_webp(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, lz_image *out,
                           lz_error *err) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return lz_fail(err, LZ_BAD_FILE, "%s: this libwebp is not the one Lazuli was built for", LZ_SHOW_TEXT(path));
    VP8StatusCode code = WebPGetFeatures(data, bytes, &config.input);
    if (code != VP8_STATUS_OK) return fail(err, path, code);
    if (config.input.has_animation)
        return lz_fail(err, LZ_BAD_FILE, "%s: is an animation, not a picture", LZ_SHOW_TEXT(path));

    int64_t width = config.input.width, height = config.input.height;
    lz_status status = lz_image_make(ctx, path, width, height, out, err);
    if (status != LZ_OK) return status;
    uint8_t *rgba = NULL;
    if (config.input.has_alpha) {
        rgba = lz_host_alloc(ctx, (size_t)(width * height * 4));
        if (!rgba) return lz_out_of_memory(err, width * height * 4);
    }
    code = decode(&config, data, bytes, rgba ? rgba : out->pixels, rgba ? 4 : 3);
    if (code == VP8_STATUS_OK && rgba) lz_image_over_white(rgba, width * height, out->pixels);
    lz_host_free(ctx, rgba);
    return code == VP8_STATUS_OK ? LZ_OK : fail(err, path, code);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct sink {
    lz_writer *to;
    lz_error *err;
    lz_status status;
} sink;

static int write_bytes(const uint8_t *data, size_t bytes, const WebPPicture *picture) {
    sink *s = picture->custom_ptr;
    s->status = lz_writer_add(s->to, data, (int64_t)bytes, s->err);
    return s->status == LZ_OK;
}

/* Text would need the extended container; there is none. */
static lz_status write_webp(lz_writer *to, const lz_image *image, const char *const *text, lz_error *err) {
    (void)text;
    sink s = {.to = to, .err = err, .status = LZ_OK};
    WebPConfig config;
    WebPPicture picture;
    if (!WebPConfigPreset(&config, WEBP_PRESET_DEFAULT, 95.0f) || !WebPPictureInit(&picture))
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s: this libwebp is not the one Lazuli was built for",
                       LZ_SHOW_TEXT(to->path));
    picture.width = (int)image->width;
    picture.height = (int)image->height;
    picture.writer = write_bytes;
    picture.custom_ptr = &s;
    bool good = WebPPictureImportRGB(&picture, image->pixels, (int)image->width * 3) && WebPEncode(&config, &picture);
    WebPEncodingError why = picture.error_code;
    WebPPictureFree(&picture);
    if (good) return LZ_OK;
    if (s.status != LZ_OK) return s.status;
    if (why == VP8_ENC_ERROR_OUT_OF_MEMORY || why == VP8_ENC_ERROR_BITSTREAM_OUT_OF_MEMORY)
        return lz_out_of_memory(err, image->width * image->height * 3);
    return lz_fail(err, LZ_BAD_ARGUMENT, "%s: cannot be made a WebP (error %d)", LZ_SHOW_TEXT(to->path), (int)why);
}

const lz_image_codec lz_webp_codec = {{".webp"}, WEBP_MAX_DIMENSION, recognise, read_webp, write_webp, NULL};
