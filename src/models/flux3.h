/* flux3.h: the FLUX.3 picture transformer: from noisy latent tokens, text features, reference images and time to a
 * velocity. */
#ifndef LZ_FLUX3_H
#define LZ_FLUX3_H

#include "models/patch.h"
#include "models/rope.h"

typedef struct lz_flux3 lz_flux3;

lz_flux3 *lz_flux3_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_flux3_close(lz_flux3 *m);
lz_targets *lz_flux3_targets(lz_flux3 *m);      /* for LoRAs */
int64_t lz_flux3_channels(const lz_flux3 *m);   /* of a latent token */
int64_t lz_flux3_text_width(const lz_flux3 *m); /* of a text feature */
/* The model is distilled: it gets the time after the step too. So the modulation of text and references, which are
 * always at time 0, differs between steps. */
bool lz_flux3_flow_map(const lz_flux3 *m);

/* Modulation vectors, which depend on time alone; computed for all steps before the first. Row i is for step i. */
typedef struct lz_flux3_time {
    lz_array *image; /* [n, 6D] of the picture: in its own blocks, in single blocks */
    lz_array *still; /* [n, 12D] of text, then of references; [1, 12D] if the model is no flow map */
    lz_array *out;   /* [n, 2D] */
} lz_flux3_time;
lz_flux3_time lz_flux3_modulation(const lz_flux3 *m, lz_array *sigmas); /* [n] f32, without the 0 at the end */

/* Rope tables, which depend on the size alone. A token's place, in half steps: image, row, column, text position; they
 * are the numbers of these coordinates, of which 2 are one step of the text or from image to image. */
void lz_flux3_rope(const lz_flux3 *m, const lz_place *places, int64_t n, lz_array **cos, lz_array **sin); /* [n, d/2] */

/* The tokens of one prompt: text, picture and references, in the order of their rows in the tables. */
typedef struct lz_flux3_tokens {
    int64_t text, picture, references;
} lz_flux3_tokens;

/* The part of the sequence that no step changes: features of the text [t, text width] and references [r, channels] (or
 * NULL) -> [t + r, D]. still: one row of the modulation; not read by a flow map. */
lz_array *lz_flux3_context(const lz_flux3 *m, lz_array *features, lz_array *references, lz_array *still, lz_array *cos,
                           lz_array *sin, lz_flux3_tokens n);

/* x [l, channels], context from above, one row of the modulation -> velocity [l, channels] */
lz_array *lz_flux3_velocity(const lz_flux3 *m, lz_array *x, lz_array *context, lz_flux3_time time, lz_array *cos,
                            lz_array *sin, lz_flux3_tokens n);

#endif
