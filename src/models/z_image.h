/* z_image.h: the Z-Image transformer: from noisy latent tokens, text features and time to a velocity. */
#ifndef LZ_Z_IMAGE_H
#define LZ_Z_IMAGE_H

#include "models/patch.h"
#include "models/rope.h"

typedef struct lz_z_image lz_z_image;

lz_z_image *lz_z_image_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_z_image_close(lz_z_image *m);
lz_targets *lz_z_image_targets(lz_z_image *m);      /* for LoRAs */
int64_t lz_z_image_channels(const lz_z_image *m);   /* of a latent */
int64_t lz_z_image_text_width(const lz_z_image *m); /* of a text feature */

/* The number of tokens that stand for n: both sequences are padded to multiples of 32. */
int64_t lz_z_image_padded(int64_t n);

/* Vectors of all blocks, which depend on time alone; computed for all steps before the first. Row i is for step i; B is
 * the number of blocks that time modulates. */
typedef struct lz_z_image_time {
    lz_array *norms; /* [n, B 4D]: what the results of the four norms of a block are multiplied with */
    lz_array *out;   /* [n, D] */
} lz_z_image_time;
lz_z_image_time lz_z_image_modulation(const lz_z_image *m, lz_array *sigmas); /* [n] f32 */

/* Rope tables [padded l + padded t, d/2] of a picture of h x w tokens and a caption of t tokens. */
void lz_z_image_rope(const lz_z_image *m, int64_t h, int64_t w, int64_t t, lz_array **cos, lz_array **sin);

/* The context, which depends on the prompt alone: [t, text width] -> [padded t, D] */
lz_array *lz_z_image_context(const lz_z_image *m, lz_array *features);

/* x [l, 4 channels], channel by channel; context [padded t, D] -> velocity [l, 4 channels] */
lz_array *lz_z_image_velocity(const lz_z_image *m, lz_array *x, lz_array *context, lz_z_image_time time, lz_array *cos,
                              lz_array *sin);

#endif
