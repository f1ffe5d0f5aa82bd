/* flux2.h: the FLUX.2 picture transformer: from noisy latent tokens, text features and time to a velocity. */
#ifndef LZ_FLUX2_H
#define LZ_FLUX2_H

#include "models/patch.h"
#include "models/rope.h"

typedef struct lz_flux2 lz_flux2;

lz_flux2 *lz_flux2_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_flux2_close(lz_flux2 *m);
lz_targets *lz_flux2_targets(lz_flux2 *m);      /* for LoRAs */
int64_t lz_flux2_channels(const lz_flux2 *m);   /* of a latent token */
int64_t lz_flux2_text_width(const lz_flux2 *m); /* of a text feature */

/* Modulation vectors, which depend on time alone; computed for all steps before the first. Row i is for step i. */
typedef struct lz_flux2_time {
    lz_array *image, *text, *single, *out; /* [n, 6D], [n, 6D], [n, 3D], [n, 2D] */
} lz_flux2_time;
lz_flux2_time lz_flux2_modulation(const lz_flux2 *m, lz_array *sigmas); /* [n] f32 */

/* The modulation of references whose keys and values are cached: as at time 0. [1, 9D] */
lz_array *lz_flux2_clean_row(const lz_flux2 *m);

/* Rope tables, which depend on the size alone. A token's place: image, row, column, text position. */
void lz_flux2_rope(const lz_flux2 *m, const lz_place *places, int64_t n, lz_array **cos, lz_array **sin); /* [n, d/2] */

/* The context, which depends on the prompt alone: [t, text width] -> [t, D] */
lz_array *lz_flux2_context(const lz_flux2 *m, lz_array *features);

/* Keys and values of references x [r, channels] in all blocks, which depend on nothing else: [2 blocks, r, D]. Only for
 * models that were trained for it. */
lz_array *lz_flux2_cache(const lz_flux2 *m, lz_array *x, lz_array *clean_row, lz_array *cos, lz_array *sin);

/* x [l, channels], context [t, D], cos and sin [t + l, d/2], text before image -> velocity [rows, channels] of the
 * first rows of x. cache: of the references, or NULL. */
lz_array *lz_flux2_velocity(const lz_flux2 *m, lz_array *x, lz_array *context, lz_flux2_time time, lz_array *cos,
                            lz_array *sin, int64_t rows, lz_array *cache);

#endif
