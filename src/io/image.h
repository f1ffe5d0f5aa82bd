/* image.h: what the library knows of pictures beyond lazuli.h (lz_image, reading, writing, freeing).
 *
 * Reading tells the kind by the content, not by the name. Alpha is composited over white, 16 bits are rounded to 8, CMYK
 * becomes RGB, and the orientation a camera noted in a JPEG is applied. Colour profiles and gamma are ignored. Pixels are
 * from lz_host_alloc.
 *
 * Writing tells the kind by the extension: .png, .jpg, .jpeg (quality 95, 4:4:4) or .webp (quality 95). The bytes are the
 * same every time. Text is kept by PNG (tEXt, iTXt) and JPEG (comments), not by WebP. */
#ifndef LZ_IMAGE_H
#define LZ_IMAGE_H

#include "lazuli.h"

#define LZ_IMAGE_MAX_SIDE 65535
#define LZ_IMAGE_MAX_BYTES ((int64_t)512 << 20) /* of pixels */

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
