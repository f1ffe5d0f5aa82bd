/* image_prompt.h: the tokens of a prompt with images inside it, as the vision-language text encoders of Qwen read it. */
#ifndef LZ_IMAGE_PROMPT_H
#define LZ_IMAGE_PROMPT_H

#include "pipeline/kept.h"

/* The size of an image in rows of the text encoder. */
typedef struct lz_units {
    int64_t h, w;
} lz_units;

/* Replaces the first n_images tokens image_pad of ids [n] by as many as each image has rows. Adds to `to`: ids [t] i64,
 * places [t, 3] f32 and, with images, rows [t] i64, which says for each token whether it has its own embedding (below t)
 * or row i of all images (t + i). A word advances the position by 1, an image by the larger of its height and width.
 * At most `most` tokens are kept. */
lz_status lz_image_prompt(lz_context *ctx, const int64_t *ids, int64_t n, int64_t image_pad, const lz_units *images,
                          int n_images, int64_t most, lz_prompt *to, lz_error *err);

#endif
