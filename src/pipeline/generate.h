/* generate.h: pieces that the stages of a job, planning and the functions of lazuli.h share: decoding, the colours of
 * previews, and images as the model takes them. */
#ifndef LZ_GENERATE_H
#define LZ_GENERATE_H

#include "io/image.h"
#include "pipeline/family.h"

/* [h, w, 3] in 0..1 */
lz_array *lz_describe_pixels(const lz_model *model, lz_array *x, int64_t h, int64_t w);
/* What lz_make_image reads: [h w 3] bytes, then six that tell about the pixels: whether each colour lies in 0..1, and
 * whether it is the same everywhere. */
lz_array *lz_describe_bytes(lz_array *pixels);
/* What decoding a picture at once takes. */
lz_status lz_decoder_plan(lz_decoder *decoder, lz_plan_info *info, lz_error *err);
/* The side of the tiles, in tokens, in which a picture must be decoded for lack of memory; 0: none. whole: what decoding it
 * at once takes. */
int64_t lz_choose_tile(const lz_model *model, int64_t h, int64_t w, const lz_plan_info *whole);
/* From tokens [h w, c] to pixels and bytes, as a function to be compiled; user: an lz_decoder. */
void lz_describe_whole(lz_context *ctx, lz_array *const *in, lz_array **out, void *user);
/* Evaluated. */
typedef struct lz_decoded {
    lz_array *pixels, *bytes;
    int64_t tile; /* side of the tiles in pixels, or 0 when it was done at once */
} lz_decoded;
/* Tokens x of the decoder's size. The decoder, from lz_decoder_take, is put back. */
lz_status lz_decode_pixels(lz_model *model, lz_decoder *decoder, lz_array *x, const lz_watch *watch, lz_decoded *to,
                           lz_error *err);
lz_status lz_make_image(lz_context *ctx, const lz_decoded *decoded, lz_image *image, lz_error *err);

/* The card whose latents the colours of previews are fitted to: [side, side, 3]; and it in n x n means, in 0..1. */
void lz_paint_card(uint8_t *pixels, int64_t side);
void lz_shrink_card(const uint8_t *pixels, int64_t side, int64_t n, double *colours);
/* The linear map [3, c + 1] that takes latents [n, c], and a 1, closest to colours [n, 3]. */
lz_status lz_fit_colours(lz_context *ctx, const float *latents, const double *colours, int64_t n, int64_t c, float *map,
                         lz_error *err);

lz_reference_size lz_size_reference(const lz_model *model, const lz_image *image);
lz_reference_size lz_middle(const lz_image *image, int64_t unit); /* of a megapixel at most, in whole tokens */
lz_status lz_crop_image(lz_context *ctx, const lz_image *image, lz_reference_size size, lz_image *to, lz_error *err);
lz_array *lz_picture_array(lz_context *ctx, const lz_image *image);
/* [1, c, p h, p w] -> [h w, c p p], channel by channel, of each its rows; and back */
lz_array *lz_to_tokens(lz_array *planes, int64_t patch);
lz_array *lz_to_planes(lz_array *tokens, int64_t h, int64_t w, int64_t patch);

#endif
