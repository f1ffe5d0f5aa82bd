/* qwen3.h: the Qwen3 language model as a text encoder, alone or as the language model of Qwen3-VL: its hidden states
 * after some of its layers. */
#ifndef LZ_QWEN3_H
#define LZ_QWEN3_H

#include "models/patch.h"

#define LZ_QWEN3_MAX_TAPS 8
#define LZ_QWEN3_LAST (-1)        /* a tap: after the last layer, without the norm that follows it */
#define LZ_QWEN3_BEFORE_LAST (-2) /* a tap: before the last layer of the complete model */

typedef struct lz_qwen3 lz_qwen3;

/* taps: indices of the hidden states to return, as in transformers (0: the embedding, k: after layer k-1), ascending.
 * Layers after the last tap are not loaded. targets: for LoRAs, as long as the model; NULL: none. */
lz_qwen3 *lz_qwen3_open(lz_context *ctx, const char *folder, const int64_t *taps, int n_taps, lz_targets *targets,
                        lz_error *err);
void lz_qwen3_close(lz_qwen3 *m);
int64_t lz_qwen3_width(const lz_qwen3 *m); /* size of one hidden state */
int64_t lz_qwen3_vocabulary(const lz_qwen3 *m);
bool lz_qwen3_has_places(const lz_qwen3 *m); /* it is of Qwen3-VL: tokens have three coordinates */

/* ids [t] i64, real [t] bool (false: padding; NULL: there is none) -> [t, taps * width] f32 */
lz_array *lz_qwen3_features(const lz_qwen3 *m, lz_array *ids, lz_array *real);

/* Tokens of Qwen3-VL: ids [t] i64, real as above or NULL, places [t, 3] f32 (time, row, column). With images: rows [t] i64 says for each token
 * which row it has, its own embedding (below t) or a row t + i of an image; pictures [p, n width] are the rows i, and
 * behind them n - 1 more that are added after the first n - 1 layers (qwen3_vision.h). Otherwise both are NULL. */
lz_array *lz_qwen3_vl_features(const lz_qwen3 *m, lz_array *ids, lz_array *real, lz_array *places, lz_array *rows,
                               lz_array *pictures);

#endif
