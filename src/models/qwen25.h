/* qwen25.h: Qwen2.5-VL as a text encoder: what its language model says about a prompt, with or without pictures in it.
 * The pictures come as rows of its vision tower (qwen25_vision.h). */
#ifndef LZ_QWEN25_H
#define LZ_QWEN25_H

#include "models/patch.h"

typedef struct lz_qwen25 lz_qwen25;

/* targets: for LoRAs, as long as the model; NULL: none. */
lz_qwen25 *lz_qwen25_open(lz_context *ctx, const char *folder, lz_targets *targets, lz_error *err);
void lz_qwen25_close(lz_qwen25 *m);
int64_t lz_qwen25_width(const lz_qwen25 *m); /* of a hidden state */

/* ids [t] i64 and where each stands, [t, 3] f32: words in a line (three times the same number), parts of a picture in time,
 * row and column -> the normed states behind the last layer, [t, width]. With pictures: from which row each token comes,
 * [t] i64 (below t its own, then those of the pictures), and their rows [p, width]; else NULL. */
lz_array *lz_qwen25_features(const lz_qwen25 *m, lz_array *ids, lz_array *places, lz_array *rows, lz_array *pictures);

#endif
