/* generate.h: shared by the stages of a job, planning, and the functions of lazuli.h: decoding, colours of previews,
 * and preparing images. */
#ifndef LZ_GENERATE_H
#define LZ_GENERATE_H

#include "io/image.h"
#include "pipeline/family.h"

/* [h, w, colours] in 0..1 */
lz_array *lz_describe_pixels(const lz_model *model, lz_array *x, int64_t h, int64_t w);
/* The input of lz_make_image: [h w colours] bytes, then two for each colour, which say whether all values are in 0..1,
 * and whether they are all the same. */
lz_array *lz_describe_bytes(lz_array *pixels);
/* The plan of decoding a picture without tiles. */
lz_status lz_decoder_plan(lz_decoder *decoder, lz_plan_info *info, lz_error *err);
/* The side of the tiles, in tokens, in which a picture must be decoded for lack of memory; 0: none. whole: what
 * decoding it at once takes. */
int64_t lz_choose_tile(const lz_model *model, int64_t h, int64_t w, const lz_plan_info *whole);
/* A function for lz_compile: from tokens [h w, c] to pixels and bytes. user: an lz_decoder. */
void lz_describe_whole(lz_context *ctx, lz_array *const *in, lz_array **out, void *user);
/* A decoded picture; the arrays are evaluated. */
typedef struct lz_decoded {
    lz_array *pixels, *bytes;
    int64_t tile; /* side of the tiles in pixels; 0: decoded without tiles */
} lz_decoded;
/* Tokens x of the decoder's size. The decoder, from lz_decoder_take, is put back. */
lz_status lz_decode_pixels(lz_model *model, lz_decoder *decoder, lz_array *x, const lz_watch *watch, lz_decoded *to,
                           lz_error *err);
/* *image has three channels if all pixels are opaque. */
lz_status lz_make_image(lz_context *ctx, const lz_decoded *decoded, lz_image *image, lz_error *err);
/* The same for a layer, which may be in one flat colour, and always has four channels. */
lz_status lz_make_layer(lz_context *ctx, const lz_decoded *decoded, lz_image *image, lz_error *err);

/* lz_paint_card paints the picture [side, side, 3] to whose latents the colours of previews are fitted. lz_shrink_card
 * averages it to n x n colours in 0..1. */
void lz_paint_card(uint8_t *pixels, int64_t side);
void lz_shrink_card(const uint8_t *pixels, int64_t side, int64_t n, double *colours);
/* Fits the linear map [3, c + 1] from latents [n, c], extended by a 1, to colours [n, 3]. */
lz_status lz_fit_colours(lz_context *ctx, const float *latents, const double *colours, int64_t n, int64_t c, float *map,
                         lz_error *err);

lz_reference_size lz_size_reference(const lz_model *model, const lz_image *image, int n); /* one of n */
/* The size to which an image is cropped around its middle: at most a megapixel, in whole tokens. */
lz_reference_size lz_middle(const lz_image *image, int64_t unit);
/* Prepares an image: see lz_reference_size. */
lz_status lz_crop_image(lz_context *ctx, const lz_image *image, lz_reference_size size, lz_image *to, lz_error *err);
lz_array *lz_image_bytes(lz_context *ctx, const lz_image *image);   /* [h, w, channels] u8 */
lz_array *lz_picture_array(lz_context *ctx, const lz_image *image); /* the same in -1..1 */
/* [f, c, p h, p w] -> [f h w, c p p]: a token has its p x p latents channel by channel, each row by row. And back. */
lz_array *lz_to_tokens(lz_array *planes, int64_t patch);
lz_array *lz_to_planes(lz_array *tokens, int64_t h, int64_t w, int64_t patch);

#endif
