/* webp.c: WebP, with libwebp, and its container, RIFF: "RIFF", the number of bytes that follow, "WEBP", chunks. A chunk
 * is a name of four letters, the number of its bytes, the bytes, and a zero byte if the number is odd.
 *
 * Text is stored as XMP, which is XML. A picture with text has the chunks VP8X (flags and size), the chunks that
 * libwebp encodes, and "XMP ". Every key is an XML element in our own namespace; exiftool and others show them. */
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

/* Decodes into our own memory. */
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

    lz_status status = lz_image_make(ctx, path, (int64_t)bytes, config.input.width, config.input.height,
                                     config.input.has_alpha ? 4 : 3, out, err);
    if (status != LZ_OK) return status;
    code = decode(&config, data, bytes, out->pixels, out->channels);
    return code == VP8_STATUS_OK ? LZ_OK : fail(err, path, code);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

#define XMP_BEGIN                                                                                                      \
    "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">"        \
    "<rdf:Description rdf:about=\"\" xmlns:lz=\"urn:lazuli:text\">\n"
#define XMP_END "</rdf:Description></rdf:RDF></x:xmpmeta>\n"

static const struct {
    const char *text;
    char letter;
} entities[] = {{"&amp;", '&'},   {"&lt;", '<'},   {"&gt;", '>'},  {"&quot;", '"'},
                {"&apos;", '\''}, {"&#13;", '\r'}, {"&#xD;", '\r'}}; /* XML parsers read a bare \r as \n */
enum { ENTITIES = sizeof entities / sizeof *entities };

/* Adds the name of a key's element: letters and digits are kept, other bytes become _ and two hexadecimal digits. */
static void add_name(lz_text *to, const char *key) {
    for (const char *c = key; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        bool plain = letter || (c > key && *c >= '0' && *c <= '9'); /* a name must not begin with a digit */
        lz_text_add(to, plain ? "%c" : "_%02x", (unsigned char)*c);
    }
}

/* XML allows no control characters except tab and line ends: others become U+FFFD. */
static void add_value(lz_text *to, const char *value) {
    static const char special[] = "&<>\r\1\2\3\4\5\6\7\b\v\f\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37";
    for (;;) {
        size_t plain = strcspn(value, special);
        lz_text_add(to, "%.*s", (int)plain, value);
        value += plain;
        if (!*value) return;
        const char *entity = "\ufffd";
        for (int i = ENTITIES; i-- > 0;)
            if (entities[i].letter == *value) entity = entities[i].text;
        lz_text_add(to, "%s", entity);
        value++;
    }
}

static char *make_xmp(lz_context *ctx, const char *const *text, lz_error *err) {
    lz_text to = {.ctx = ctx};
    lz_text_add(&to, XMP_BEGIN);
    for (; text[0]; text += 2) {
        lz_text_add(&to, "<lz:");
        add_name(&to, text[0]);
        lz_text_add(&to, ">");
        add_value(&to, text[1]);
        lz_text_add(&to, "</lz:");
        add_name(&to, text[0]);
        lz_text_add(&to, ">\n");
    }
    lz_text_add(&to, XMP_END);
    return lz_text_take(&to, err);
}

static uint32_t number_at(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* NULL: there is no such chunk. */
static const uint8_t *find_chunk(const uint8_t *data, size_t bytes, const char *name, size_t *size) {
    for (size_t at = 12; at < bytes && bytes - at >= 8; at += 8 + *size + *size % 2) {
        *size = number_at(data + at + 4);
        if (*size > bytes - at - 8) return NULL;
        if (memcmp(data + at, name, 4) == 0) return data + at + 8;
    }
    return NULL;
}

/* The text between <lz:key> and </lz:key>, with entities (of add_value, or other ones that programs use) replaced. */
static lz_status text_of_webp(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, const char *key,
                              char **to, lz_error *err) {
    size_t size = 0;
    const uint8_t *xmp = find_chunk(data, bytes, "XMP ", &size);
    if (!xmp) return LZ_OK;
    if (size > (size_t)LZ_IMAGE_MAX_XMP) return lz_image_too_much_text(err, path);

    lz_text name = {.ctx = ctx};
    lz_text_add(&name, "</lz:");
    add_name(&name, key);
    lz_text_add(&name, ">");
    char *tag = lz_text_take(&name, err), *end;
    if (!tag) return LZ_OUT_OF_MEMORY;
    size_t n = strlen(tag);
    const char *stop = memmem(xmp, size, tag, n);
    memmove(tag + 1, tag + 2, n - 1); /* now the start tag */
    const char *at = stop ? memmem(xmp, (size_t)(stop - (const char *)xmp), tag, n - 1) : NULL;
    lz_host_free(ctx, tag);
    if (!at) return LZ_OK;

    at += n - 1;
    end = *to = lz_host_alloc(ctx, (size_t)(stop - at) + 1);
    if (!end) return lz_out_of_memory(err, stop - at);
    while (at < stop) {
        int i = ENTITIES;
        while (*at == '&' && i-- > 0) {
            size_t length = strlen(entities[i].text);
            if ((size_t)(stop - at) >= length && memcmp(at, entities[i].text, length) == 0) break;
        }
        bool entity = *at == '&' && i >= 0;
        *end++ = entity ? entities[i].letter : *at;
        at += entity ? strlen(entities[i].text) : 1;
    }
    return LZ_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static lz_status add_chunk(lz_writer *to, const char *name, const void *data, size_t bytes, lz_error *err) {
    uint8_t head[8] = {0};
    memcpy(head, name, 4);
    for (int i = 0; i < 4; i++) head[4 + i] = (uint8_t)(bytes >> 8 * i);
    lz_status status = lz_writer_add(to, head, 8, err);
    if (status == LZ_OK) status = lz_writer_add(to, data, (int64_t)bytes, err);
    if (status == LZ_OK) status = lz_writer_add(to, "", (int64_t)bytes % 2, err);
    return status;
}

/* libwebp's output is a complete container, whose chunks are copied into ours. If it has a VP8X, because of its
 * transparency, ours replaces that. */
static lz_status write_with_text(lz_writer *to, const lz_image *image, const WebPMemoryWriter *picture, const char *xmp,
                                 lz_error *err) {
    enum { HEAD = 12, HAS_XMP = 4, FEATURES = 10 };
    uint8_t head[HEAD] = "RIFF....WEBP", features[FEATURES] = {HAS_XMP};
    size_t skip = HEAD;
    if (picture->size > HEAD + 8 + FEATURES && memcmp(picture->mem + HEAD, "VP8X", 4) == 0) {
        features[0] |= picture->mem[HEAD + 8];
        skip += 8 + FEATURES;
    }
    size_t xmp_bytes = strlen(xmp), body = picture->size - skip;
    size_t bytes = HEAD - 8 + 8 + sizeof features + body + 8 + xmp_bytes + xmp_bytes % 2;
    for (int i = 0; i < 4; i++) head[4 + i] = (uint8_t)(bytes >> 8 * i);
    for (int i = 0; i < 3; i++) {
        features[4 + i] = (uint8_t)((image->width - 1) >> 8 * i);
        features[7 + i] = (uint8_t)((image->height - 1) >> 8 * i);
    }
    lz_status status = lz_writer_add(to, head, HEAD, err);
    if (status == LZ_OK) status = add_chunk(to, "VP8X", features, sizeof features, err);
    if (status == LZ_OK) status = lz_writer_add(to, picture->mem + skip, (int64_t)body, err);
    if (status == LZ_OK) status = add_chunk(to, "XMP ", xmp, xmp_bytes, err);
    return status;
}

static lz_status encode(const lz_image *image, int quality, WebPMemoryWriter *to, const char *path, lz_error *err) {
    WebPConfig config;
    WebPPicture picture;
    if (!WebPConfigPreset(&config, WEBP_PRESET_DEFAULT, quality ? (float)quality : 95.0f) || !WebPPictureInit(&picture))
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s: this libwebp is not the one Lazuli was built for",
                       LZ_SHOW_TEXT(path));
    picture.width = (int)image->width;
    picture.height = (int)image->height;
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = to;
    int channels = lz_image_channels(image), row = (int)image->width * channels;
    bool good = channels == 4 ? WebPPictureImportRGBA(&picture, image->pixels, row)
                              : WebPPictureImportRGB(&picture, image->pixels, row);
    good = good && WebPEncode(&config, &picture);
    WebPEncodingError why = picture.error_code;
    WebPPictureFree(&picture);
    if (good) return LZ_OK;
    if (why == VP8_ENC_ERROR_OUT_OF_MEMORY || why == VP8_ENC_ERROR_BITSTREAM_OUT_OF_MEMORY)
        return lz_out_of_memory(err, image->height * row);
    return lz_fail(err, LZ_BAD_ARGUMENT, "%s: cannot be encoded as WebP (error %d)", LZ_SHOW_TEXT(path), (int)why);
}

static lz_status write_webp(lz_writer *to, const lz_image *image, const char *const *text, lz_error *err) {
    char *xmp = text && text[0] ? make_xmp(to->ctx, text, err) : NULL;
    if (text && text[0] && !xmp) return LZ_OUT_OF_MEMORY;
    WebPMemoryWriter picture;
    WebPMemoryWriterInit(&picture);
    lz_status status = encode(image, to->quality, &picture, to->path, err);
    if (status == LZ_OK)
        status = xmp ? write_with_text(to, image, &picture, xmp, err)
                     : lz_writer_add(to, picture.mem, (int64_t)picture.size, err);
    WebPMemoryWriterClear(&picture);
    lz_host_free(to->ctx, xmp);
    return status;
}

const lz_image_codec lz_webp_codec = {{".webp"}, WEBP_MAX_DIMENSION, recognise, read_webp, write_webp, text_of_webp};
