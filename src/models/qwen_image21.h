/* qwen_image21.h: the Qwen-Image 2.1 transformer: from noisy latents, a prefix (text with reference images inside it)
 * and time to a velocity. The prefix does not depend on the step: its keys and values are computed once. */
#ifndef LZ_QWEN_IMAGE21_H
#define LZ_QWEN_IMAGE21_H

#include "models/patch.h"
#include "models/rope.h"

typedef struct lz_qwen_image21 lz_qwen_image21;

lz_qwen_image21 *lz_qwen_image21_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_qwen_image21_close(lz_qwen_image21 *m);
lz_targets *lz_qwen_image21_targets(lz_qwen_image21 *m);      /* for LoRAs */
int64_t lz_qwen_image21_channels(const lz_qwen_image21 *m);   /* of a latent */
int64_t lz_qwen_image21_text_width(const lz_qwen_image21 *m); /* of a text feature */

/* Of times [n] f32: the vectors that modulate every block, [n, 4D] (scale, gate, scale, gate), and the scale of the
 * last norm, [n, D]. */
void lz_qwen_image21_modulation(const lz_qwen_image21 *m, lz_array *times, lz_array **blocks, lz_array **out);

/* Rope tables. The place of a token: position in the sequence, row, column; of a word three times its position. */
void lz_qwen_image21_rope(const lz_qwen_image21 *m, const lz_place *places, int64_t n, lz_array **cos,
                          lz_array **sin); /* [n, d/2] */

lz_array *lz_qwen_image21_text(const lz_qwen_image21 *m, lz_array *features); /* [t, text width] -> [t, D] */
lz_array *lz_qwen_image21_image(const lz_qwen_image21 *m, lz_array *latents); /* [n, channels] -> [n, D] */

/* A part of the prefix. A word attends to all tokens before it, a token of an image also to its whole image. */
typedef struct lz_qwen_image21_run {
    int64_t tokens;
    bool image;
} lz_qwen_image21_run;
/* The keys and values of all blocks, [2B, H, p, d], of the prefix x [p, D]. zero: the modulation [1, 4D] of time 0. */
lz_array *lz_qwen_image21_prefix(const lz_qwen_image21 *m, lz_array *x, const lz_qwen_image21_run *runs, int n,
                                 lz_array *zero, lz_array *cos, lz_array *sin);

/* latents [l, channels] -> velocity [l, channels] f32. blocks [1, 4D], out [1, D]: modulation of the step. cos, sin:
 * [p + l, d/2], of the prefix too. */
lz_array *lz_qwen_image21_velocity(const lz_qwen_image21 *m, lz_array *latents, lz_array *prefix, lz_array *blocks,
                                   lz_array *out, lz_array *cos, lz_array *sin);

#endif
