/* qwen_image.h: the Qwen-Image transformer: from noisy latent tokens, text features and time to a velocity. */
#ifndef LZ_QWEN_IMAGE_H
#define LZ_QWEN_IMAGE_H

#include "models/patch.h"
#include "models/rope.h"

typedef struct lz_qwen_image lz_qwen_image;

lz_qwen_image *lz_qwen_image_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_qwen_image_close(lz_qwen_image *m);
lz_targets *lz_qwen_image_targets(lz_qwen_image *m); /* for LoRAs */
/* Builds patches that wait for the values of what modulates, which is not open otherwise. */
lz_status lz_qwen_image_build(const lz_qwen_image *m, lz_error *err);
int64_t lz_qwen_image_channels(const lz_qwen_image *m);   /* of a latent token */
int64_t lz_qwen_image_text_width(const lz_qwen_image *m); /* of a text feature */
bool lz_qwen_image_still(const lz_qwen_image *m);         /* reference images are modulated as at time 0 */
/* Models of layers: a vector for pictures with opacity is added to that of the time; the reference has the place -1. */
bool lz_qwen_image_kinds(const lz_qwen_image *m);
bool lz_qwen_image_layered(const lz_qwen_image *m);

/* Modulation vectors, which depend on time alone; computed for all steps before the first. Their weights are a third of
 * the model, and only these arrays have references to them: evaluating the arrays releases the weights. Row i is for
 * step i; B is the number of blocks. */
typedef struct lz_qwen_image_time {
    lz_array *image, *text, *out; /* [n, B 6D], [n, B 6D], [n, 2D] */
    lz_array *still;              /* [1, B 6D] for references; NULL: the same as for the picture */
} lz_qwen_image_time;
lz_qwen_image_time lz_qwen_image_modulation(const lz_qwen_image *m, lz_array *sigmas); /* [n] f32 */

/* Rope tables, which depend on the size alone. A token's place: image, row, column; of a word three times its
 * position. */
void lz_qwen_image_rope(const lz_qwen_image *m, const lz_place *places, int64_t n, lz_array **cos,
                        lz_array **sin); /* [n, d/2] */

/* The context, which depends on the prompt alone: [t, text width] -> [t, D] */
lz_array *lz_qwen_image_context(const lz_qwen_image *m, lz_array *features);

typedef struct lz_qwen_image_tables {
    lz_array *text_cos, *text_sin, *cos, *sin; /* [t or more, d/2], [l, d/2] */
} lz_qwen_image_tables;
/* x [l, channels], context [t, D] -> velocity [rows, channels] of the first rows of x; the others are references */
lz_array *lz_qwen_image_velocity(const lz_qwen_image *m, lz_array *x, lz_array *context, lz_qwen_image_time time,
                                 lz_qwen_image_tables tables, int64_t rows);

#endif
