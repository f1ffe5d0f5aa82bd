/* qwen25.h: Qwen2.5-VL as a text encoder: hidden states of its language model for a prompt, with or without images.
 * Images are rows of its vision tower (qwen25_vision.h). */
#ifndef LZ_QWEN25_H
#define LZ_QWEN25_H

#include "models/patch.h"

typedef struct lz_qwen25 lz_qwen25;

/* targets: for LoRAs, as long as the model; NULL: none. */
lz_qwen25 *lz_qwen25_open(lz_context *ctx, const char *folder, lz_targets *targets, lz_error *err);
void lz_qwen25_close(lz_qwen25 *m);
int64_t lz_qwen25_width(const lz_qwen25 *m); /* size of a hidden state */

/* ids [t] i64, places [t, 3] f32 (time, row, column; of a word three times its position) -> the normed states after the
 * last layer, [t, width]. With images: pictures [p, width] are their rows, and rows [t] i64 says which row each token
 * has: i < t is the embedding of token i, t + j is pictures[j]. Without images both are NULL. */
lz_array *lz_qwen25_features(const lz_qwen25 *m, lz_array *ids, lz_array *places, lz_array *rows, lz_array *pictures);

#endif
