/* image.h: image functions inside the library; lz_image, reading, writing and freeing are in lazuli.h.
 *
 * Reading determines the format from the content, not from the name. 16 bits are rounded to 8, CMYK is converted to RGB,
 * and the EXIF orientation of a JPEG is applied. Colour profiles and gamma are ignored. Pixels are allocated with
 * lz_host_alloc.
 *
 * Writing determines the format from the extension: .png, .jpg, .jpeg (quality 95, 4:4:4) or .webp (quality 95). The
 * same image always gives the same bytes. A JPEG has no transparency, so it gets the pixels blended with white. Text is
 * stored in tEXt and iTXt of a PNG, in comments of a JPEG, in the XMP of a WebP. */
#ifndef LZ_IMAGE_H
#define LZ_IMAGE_H

#include "lazuli.h"

#define LZ_IMAGE_MAX_SIDE 65535
#define LZ_IMAGE_MAX_BYTES ((int64_t)512 << 20) /* bytes of the colours of all pixels */
/* A WebP or an arithmetic-coded JPEG can store a uniform area of any size in a few bytes, so a small file may claim a
 * huge picture. Pictures of up to LZ_IMAGE_SMALL_PIXELS are read from files of any size; a larger picture must have at
 * least one byte of file for every LZ_IMAGE_PIXELS_PER_BYTE pixels (a photograph has a hundred times as many bytes). */
#define LZ_IMAGE_SMALL_PIXELS ((int64_t)16 << 20)
#define LZ_IMAGE_PIXELS_PER_BYTE 1024
#define LZ_IMAGE_MAX_TEXT ((int64_t)32 << 20)    /* bytes of the keys and values of a picture */
#define LZ_IMAGE_MAX_XMP (6 * LZ_IMAGE_MAX_TEXT) /* the same as XML, where a character takes up to five bytes */

/* Is it a file that lz_image_read recognises? */
bool lz_is_image_file(lz_context *ctx, const char *path);

/* Checks that an image of the caller has pixels of 3 or 4 channels, and sides from least to LZ_IMAGE_MAX_SIDE. what:
 * its name in errors. */
lz_status lz_image_check(const lz_image *image, const char *what, int64_t least, lz_error *err);

/* The number of bytes of a pixel: 3 or 4. */
static inline int lz_image_channels(const lz_image *image) { return image->channels == 4 ? 4 : 3; }

/* How a file with transparent pixels is read. LZ_ALPHA_OVER_WHITE: its pixels are blended with white. LZ_ALPHA_MASK:
 * transparent pixels become white and opaque ones black. LZ_ALPHA_KEEP: four channels are read. If all pixels are
 * opaque, the three colours are read in all cases. */
typedef enum lz_alpha { LZ_ALPHA_OVER_WHITE, LZ_ALPHA_MASK, LZ_ALPHA_KEEP } lz_alpha;
/* Makes an image of four channels one that is read in this way, in place. */
void lz_image_apply(lz_image *image, lz_alpha alpha);
/* A copy blended with white. */
lz_status lz_image_whiten(lz_context *ctx, const lz_image *image, lz_image *out, lz_error *err);
/* n pixels of RGBA blended with white; rgb may be rgba. */
void lz_image_flatten(const uint8_t *rgba, int64_t n, uint8_t *rgb);

/* lz_image_read from memory; name is used in errors. */
lz_status lz_image_read_memory(lz_context *ctx, const char *name, const void *data, int64_t bytes, lz_alpha alpha,
                               lz_image *out, lz_error *err);
/* lz_image_read_text from memory. */
char *lz_image_text_memory(lz_context *ctx, const char *name, const void *data, int64_t bytes, const char *key,
                           lz_error *err);

/* The same bits as Pillow's Image.resize((width, height), LANCZOS), up to Pillow 11 (see resize.c). The result has the
 * channels of the image. */
lz_status lz_image_resize(lz_context *ctx, const lz_image *in, int64_t width, int64_t height, lz_image *out,
                          lz_error *err);
/* The same with another filter. */
typedef enum lz_filter { LZ_LANCZOS, LZ_BICUBIC } lz_filter;
lz_status lz_image_filter(lz_context *ctx, const lz_image *in, int64_t width, int64_t height, lz_filter filter,
                          lz_image *out, lz_error *err);

#endif
