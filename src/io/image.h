/* image.h: what the library knows of pictures beyond lazuli.h (lz_image, reading, writing, freeing).
 *
 * Reading tells the kind by the content, not by the name. Alpha is composited over white, 16 bits are rounded to 8, CMYK
 * becomes RGB, and the orientation a camera noted in a JPEG is applied. Colour profiles and gamma are ignored. Pixels are
 * from lz_host_alloc.
 *
 * Writing tells the kind by the extension: .png, .jpg, .jpeg (quality 95, 4:4:4) or .webp (quality 95). The bytes are the
 * same every time. Text is kept: in tEXt and iTXt of a PNG, in comments of a JPEG, in the XMP of a WebP. */
#ifndef LZ_IMAGE_H
#define LZ_IMAGE_H

#include "lazuli.h"

#define LZ_IMAGE_MAX_SIDE 65535
#define LZ_IMAGE_MAX_BYTES ((int64_t)512 << 20) /* of pixels */
/* A WebP or an arithmetic-coded JPEG can hold a plain area of any size in a few bytes, so a header proves nothing.
 * Pictures up to the first limit are read from files of any size; a larger one has at least a byte for so many pixels,
 * a hundred times fewer than a photograph has. */
#define LZ_IMAGE_SMALL_PIXELS ((int64_t)16 << 20)
#define LZ_IMAGE_PIXELS_PER_BYTE 1024
#define LZ_IMAGE_MAX_TEXT ((int64_t)32 << 20)    /* bytes of keys and values of a picture, written or read */
#define LZ_IMAGE_MAX_XMP (6 * LZ_IMAGE_MAX_TEXT) /* the same as XML, where a letter may take five */

/* That an image from outside has pixels, and sides from least to LZ_IMAGE_MAX_SIDE; what: names it in errors. */
lz_status lz_image_check(const lz_image *image, const char *what, int64_t least, lz_error *err);

/* As lz_image_read; name stands in errors. */
lz_status lz_image_read_memory(lz_context *ctx, const char *name, const void *data, int64_t bytes, lz_image *out,
                               lz_error *err);
/* As lz_image_read_text. */
char *lz_image_text_memory(lz_context *ctx, const char *name, const void *data, int64_t bytes, const char *key,
                           lz_error *err);

/* What Pillow's Image.resize((width, height), LANCZOS) gives, to the bit (up to Pillow 11; resize.c tells more). */
lz_status lz_image_resize(lz_context *ctx, const lz_image *in, int64_t width, int64_t height, lz_image *out,
                          lz_error *err);
/* The same with another filter. */
typedef enum lz_filter { LZ_LANCZOS, LZ_BICUBIC } lz_filter;
lz_status lz_image_filter(lz_context *ctx, const lz_image *in, int64_t width, int64_t height, lz_filter filter,
                          lz_image *out, lz_error *err);

#endif
