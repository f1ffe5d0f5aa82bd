/* image_codec.h: shared by image.c and the formats (png.c, jpeg.c, webp.c). A format is one lz_image_codec. image.c has
 * the list of them and checks the arguments before it calls them. */
#ifndef LZ_IMAGE_CODEC_H
#define LZ_IMAGE_CODEC_H

#include "base/file.h"
#include "io/image.h"

typedef struct lz_image_codec {
    const char *extensions[2];
    int64_t max_side; /* of pictures to write */
    bool (*recognise)(const uint8_t *data, size_t bytes);
    /* *out has four channels if the file has transparency. After an error it may have pixels, which the caller frees. */
    lz_status (*read)(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, lz_image *out,
                      lz_error *err);
    lz_status (*write)(lz_writer *to, const lz_image *image, const char *const *text, lz_error *err);
    /* *to: the text of a key, which the caller frees with lz_host_free; NULL if there is none. */
    lz_status (*text)(lz_context *ctx, const char *path, const uint8_t *data, size_t bytes, const char *key, char **to,
                      lz_error *err);
} lz_image_codec;

/* Adds the pixels of a PNG and its end to a file that has everything before them (png_pixels.c). */
lz_status lz_png_write_pixels(lz_writer *to, const lz_image *image, lz_error *err);

extern const lz_image_codec lz_png_codec, lz_jpeg_codec, lz_webp_codec;

/* Allocates pixels; an error if the size is zero or exceeds the limits of image.h. path: for the error; file_bytes:
 * size of the file that claims this picture size. */
lz_status lz_image_make(lz_context *ctx, const char *path, int64_t file_bytes, int64_t width, int64_t height,
                        int channels, lz_image *out, lz_error *err);
lz_status lz_image_too_much_text(lz_error *err, const char *path); /* sets the error */

/* A copy of the text, converted from Latin-1 to UTF-8 if latin1 is set. NULL: out of memory. */
char *lz_image_copy_text(lz_context *ctx, const char *text, size_t bytes, bool latin1);

#define LZ_IMAGE_DAMAGED "the picture is damaged"

#endif
