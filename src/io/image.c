/* image.c: see image.h. The formats themselves are in png.c, jpeg.c and webp.c, resizing is in resize.c. */
#include "io/image.h"

#include <string.h>
#include <strings.h>

#include "io/image_codec.h"

static const lz_image_codec *const codecs[] = {&lz_png_codec, &lz_jpeg_codec, &lz_webp_codec};
enum { CODECS = sizeof codecs / sizeof *codecs };

/* ---- what the formats share -------------------------------------------------------------------------------------- */

lz_status lz_image_make(lz_context *ctx, const char *path, int64_t file_bytes, int64_t width, int64_t height,
                        int channels, lz_image *out, lz_error *err) {
    *out = (lz_image){.width = width, .height = height, .channels = channels};
    if (width < 1 || height < 1) return lz_fail(err, LZ_BAD_FILE, "%s: the picture has no pixels", LZ_SHOW_TEXT(path));
    if (width > LZ_IMAGE_MAX_SIDE || height > LZ_IMAGE_MAX_SIDE || width * height * 3 > LZ_IMAGE_MAX_BYTES)
        return lz_fail(err, LZ_BAD_FILE,
                       "%s: the picture has %lld x %lld pixels; the most is %d a side and %lld in all",
                       LZ_SHOW_TEXT(path), (long long)width, (long long)height, LZ_IMAGE_MAX_SIDE,
                       (long long)(LZ_IMAGE_MAX_BYTES / 3));
    if (width * height > LZ_IMAGE_SMALL_PIXELS && width * height / LZ_IMAGE_PIXELS_PER_BYTE > file_bytes)
        return lz_fail(err, LZ_BAD_FILE,
                       "%s: claims %lld x %lld pixels in %lld bytes; a picture of more than %lld pixels must have a "
                       "byte for every %d",
                       LZ_SHOW_TEXT(path), (long long)width, (long long)height, (long long)file_bytes,
                       (long long)LZ_IMAGE_SMALL_PIXELS, LZ_IMAGE_PIXELS_PER_BYTE);
    out->pixels = lz_host_alloc(ctx, (size_t)(width * height * channels));
    return out->pixels ? LZ_OK : lz_out_of_memory(err, width * height * channels);
}

static bool has_channels(const lz_image *image) {
    return image->channels == 3 || image->channels == 4 || !image->channels;
}

lz_status lz_image_check(const lz_image *image, const char *what, int64_t least, lz_error *err) {
    if (!image || !image->pixels) return lz_fail(err, LZ_BAD_ARGUMENT, "%s has no pixels", what);
    if (!has_channels(image))
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s has %d channels, not 3 or 4", what, image->channels);
    if (image->width >= least && image->height >= least && image->width <= LZ_IMAGE_MAX_SIDE &&
        image->height <= LZ_IMAGE_MAX_SIDE)
        return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "%s is %lld x %lld, and each side must be from %lld to %d", what,
                   (long long)image->width, (long long)image->height, (long long)least, LZ_IMAGE_MAX_SIDE);
}

static bool is_opaque(const uint8_t *rgba, int64_t n) {
    while (n > 0 && rgba[4 * n - 1] == 255) n--;
    return !n;
}

void lz_image_flatten(const uint8_t *rgba, int64_t n, uint8_t *rgb) {
    for (; n > 0; n--, rgba += 4, rgb += 3) {
        int alpha = rgba[3];
        for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)((rgba[c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
}

void lz_image_apply(lz_image *image, lz_alpha how) {
    if (!image->pixels || image->channels != 4) return;
    int64_t n = image->width * image->height;
    bool opaque = is_opaque(image->pixels, n);
    if (how == LZ_ALPHA_KEEP && !opaque) return;
    if (how == LZ_ALPHA_MASK && !opaque)
        for (int64_t i = 0; i < n; i++) memset(image->pixels + 3 * i, 255 - image->pixels[4 * i + 3], 3);
    else
        lz_image_flatten(image->pixels, n, image->pixels);
    image->channels = 3;
}

lz_status lz_image_whiten(lz_context *ctx, const lz_image *image, lz_image *out, lz_error *err) {
    lz_status status = lz_image_make(ctx, "picture", INT64_MAX, image->width, image->height, 3, out, err);
    if (!status) lz_image_flatten(image->pixels, image->width * image->height, out->pixels);
    return status;
}

void lz_image_free(lz_context *ctx, lz_image *image) {
    if (!ctx || !image) return;
    lz_host_free(ctx, image->pixels);
    *image = (lz_image){.width = 0};
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

lz_status lz_image_read_memory(lz_context *ctx, const char *name, const void *data, int64_t bytes, lz_alpha alpha,
                               lz_image *out, lz_error *err) {
    if (!ctx || !name || !out || bytes < 0 || (bytes && !data))
        return lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_read: an argument is NULL");
    *out = (lz_image){.width = 0};
    for (int i = 0; i < CODECS; i++) {
        if (!codecs[i]->recognise(data, (size_t)bytes)) continue;
        lz_status status = codecs[i]->read(ctx, name, data, (size_t)bytes, out, err);
        if (status != LZ_OK) lz_image_free(ctx, out);
        lz_image_apply(out, alpha);
        return status;
    }
    return lz_fail(err, LZ_BAD_FILE, "%s: is neither a PNG nor a JPEG nor a WebP picture", LZ_SHOW_TEXT(name));
}

static lz_status read_file(lz_context *ctx, const char *path, lz_alpha alpha, lz_image *out, lz_error *err) {
    if (!ctx || !path || !out) return lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_read: an argument is NULL");
    *out = (lz_image){.width = 0};
    lz_error why;
    lz_mapping *map = lz_map_file(ctx, path, &why);
    if (!map) {
        if (err) *err = why;
        return why.status;
    }
    lz_status status = lz_image_read_memory(ctx, path, map->data, map->bytes, alpha, out, err);
    lz_mapping_release(map);
    return status;
}

bool lz_is_image_file(lz_context *ctx, const char *path) {
    lz_mapping *map = lz_map_file(ctx, path, NULL);
    bool found = false;
    for (int i = 0; map && i < CODECS; i++)
        found = found || codecs[i]->recognise((const uint8_t *)map->data, (size_t)map->bytes);
    if (map) lz_mapping_release(map);
    return found;
}

lz_status lz_image_read(lz_context *ctx, const char *path, lz_image *out, lz_error *err) {
    return read_file(ctx, path, LZ_ALPHA_OVER_WHITE, out, err);
}

lz_status lz_image_read_alpha(lz_context *ctx, const char *path, lz_image *out, lz_error *err) {
    return read_file(ctx, path, LZ_ALPHA_KEEP, out, err);
}

lz_status lz_image_read_mask(lz_context *ctx, const char *path, lz_image *out, lz_error *err) {
    return read_file(ctx, path, LZ_ALPHA_MASK, out, err);
}

static lz_status decode(lz_context *ctx, const void *data, int64_t bytes, lz_alpha alpha, lz_image *out,
                        lz_error *err) {
    if (!ctx || !out || bytes < 0 || (bytes && !data))
        return lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_decode: an argument is NULL, or the size is negative");
    return lz_image_read_memory(ctx, "the picture", data, bytes, alpha, out, err);
}

lz_status lz_image_decode(lz_context *ctx, const void *data, int64_t bytes, lz_image *out, lz_error *err) {
    return decode(ctx, data, bytes, LZ_ALPHA_OVER_WHITE, out, err);
}

lz_status lz_image_decode_alpha(lz_context *ctx, const void *data, int64_t bytes, lz_image *out, lz_error *err) {
    return decode(ctx, data, bytes, LZ_ALPHA_KEEP, out, err);
}

lz_status lz_image_decode_mask(lz_context *ctx, const void *data, int64_t bytes, lz_image *out, lz_error *err) {
    return decode(ctx, data, bytes, LZ_ALPHA_MASK, out, err);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

lz_status lz_image_too_much_text(lz_error *err, const char *path) {
    return lz_fail(err, LZ_BAD_FILE, "%s: the text of the picture takes more than the %lld bytes that are allowed",
                   LZ_SHOW_TEXT(path), (long long)LZ_IMAGE_MAX_TEXT);
}

char *lz_image_copy_text(lz_context *ctx, const char *text, size_t bytes, bool latin1) {
    char *copy = lz_host_alloc(ctx, 2 * bytes + 1), *end = copy;
    if (!copy) return NULL;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (latin1 && c >= 128) *end++ = (char)(0xc0 | c >> 6);
        *end++ = (char)(latin1 && c >= 128 ? 0x80 | (c & 0x3f) : c);
    }
    *end = 0;
    return copy;
}

char *lz_image_text_memory(lz_context *ctx, const char *name, const void *data, int64_t bytes, const char *key,
                           lz_error *err) {
    for (int i = 0; i < CODECS; i++) {
        if (!codecs[i]->recognise(data, (size_t)bytes)) continue;
        char *text = NULL;
        lz_status status = codecs[i]->text(ctx, name, data, (size_t)bytes, key, &text, err);
        if (status == LZ_OK && !text)
            lz_fail(err, LZ_NOT_FOUND, "%s: the picture has no text under '%s'", LZ_SHOW_TEXT(name), LZ_SHOW_TEXT(key));
        return text;
    }
    lz_fail(err, LZ_BAD_FILE, "%s: is neither a PNG nor a JPEG nor a WebP picture", LZ_SHOW_TEXT(name));
    return NULL;
}

char *lz_image_read_text(lz_context *ctx, const char *path, const char *key, lz_error *err) {
    if (!ctx || !path || !key) {
        lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_read_text: an argument is NULL");
        return NULL;
    }
    lz_mapping *map = lz_map_file(ctx, path, err);
    if (!map) return NULL;
    char *text = lz_image_text_memory(ctx, path, map->data, map->bytes, key, err);
    lz_mapping_release(map);
    return text;
}

char *lz_image_decode_text(lz_context *ctx, const void *data, int64_t bytes, const char *key, lz_error *err) {
    if (!ctx || !key || bytes < 0 || (bytes && !data)) {
        lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_decode_text: an argument is NULL, or the size is negative");
        return NULL;
    }
    return lz_image_text_memory(ctx, "the picture", data, bytes, key, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const lz_image_codec *codec_by_name(const char *path) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    for (int i = 0; dot && i < CODECS; i++)
        for (int k = 0; k < 2 && codecs[i]->extensions[k]; k++)
            if (strcasecmp(dot, codecs[i]->extensions[k]) == 0) return codecs[i];
    return NULL;
}

/* Checks PNG's rules for keys. Whether values are UTF-8 is not checked. */
static lz_status check_text(const char *path, const char *const *text, lz_error *err) {
    int64_t bytes = 0;
    for (; text && text[0]; text += 2) {
        size_t n = strlen(text[0]);
        bool printable = n >= 1 && n <= 79;
        for (const char *c = text[0]; *c; c++) printable = printable && *c >= 32 && *c < 127;
        if (!printable)
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: the key '%s' is not 1 to 79 printable ASCII characters",
                           LZ_SHOW_TEXT(path), LZ_SHOW_TEXT(text[0]));
        if (!text[1])
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: the key '%s' has no value", LZ_SHOW_TEXT(path), text[0]);
        bytes += (int64_t)(n + strlen(text[1]));
    }
    return bytes > LZ_IMAGE_MAX_TEXT ? lz_image_too_much_text(err, path) : LZ_OK;
}

/* The codec by the extension of path; an error if it cannot store this picture or this text. */
static lz_status choose_codec(const char *path, const lz_image *image, const char *const *text,
                              const lz_image_codec **to, lz_error *err) {
    const lz_image_codec *codec = *to = codec_by_name(path);
    if (!has_channels(image))
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s: the image has %d channels, not 3 or 4", LZ_SHOW_TEXT(path),
                       image->channels);
    if (!codec)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s: the name of a picture must end in .png, .jpg or .webp",
                       LZ_SHOW_TEXT(path));
    if (image->width < 1 || image->height < 1 || image->width > codec->max_side || image->height > codec->max_side)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s: %lld x %lld pixels; sides of a picture of this kind are 1 to %lld",
                       LZ_SHOW_TEXT(path), (long long)image->width, (long long)image->height,
                       (long long)codec->max_side);
    return check_text(path, text, err);
}

lz_status lz_image_write(lz_context *ctx, const char *path, const lz_image *image, const char *const *text,
                         lz_error *err) {
    if (!ctx || !path || !image || !image->pixels)
        return lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_write: an argument is NULL");
    const lz_image_codec *codec;
    lz_status status = choose_codec(path, image, text, &codec, err);
    if (status != LZ_OK) return status;
    lz_writer to;
    status = lz_writer_open(&to, ctx, path, err);
    if (status == LZ_OK) status = codec->write(&to, image, text, err);
    if (status == LZ_OK) status = lz_writer_commit(&to, err);
    lz_writer_discard(&to);
    return status;
}

char *lz_image_encode(lz_context *ctx, const char *kind, const lz_image *image, const char *const *text, int quality,
                      int64_t *bytes, lz_error *err) {
    if (!ctx || !kind || !image || !image->pixels || !bytes) {
        lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_encode: an argument is NULL");
        return NULL;
    }
    const lz_image_codec *codec;
    if (choose_codec(kind, image, text, &codec, err) != LZ_OK) return NULL;
    if (quality < 0 || quality > 100) {
        lz_fail(err, LZ_BAD_ARGUMENT, "lz_image_encode: the quality is 1 to 100, or 0 for 95, not %d", quality);
        return NULL;
    }
    lz_writer to;
    lz_status status = lz_writer_open_memory(&to, ctx, "a picture", err);
    to.quality = quality;
    if (status == LZ_OK) status = codec->write(&to, image, text, err);
    char *data = status == LZ_OK ? lz_writer_bytes(&to, err) : NULL;
    *bytes = data ? to.end : 0;
    lz_writer_discard(&to);
    return data;
}
