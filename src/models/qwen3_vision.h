/* qwen3_vision.h: the vision tower of Qwen3-VL: an image as rows that its language model reads like word embeddings, and
 * more rows that it adds after its first layers. */
#ifndef LZ_QWEN3_VISION_H
#define LZ_QWEN3_VISION_H

#include "models/qwen25_processor.h"

typedef struct lz_qwen3_vision lz_qwen3_vision;

lz_qwen3_vision *lz_qwen3_vision_open(lz_context *ctx, const char *folder, const lz_qwen25_processor *processor,
                                      lz_error *err);
void lz_qwen3_vision_close(lz_qwen3_vision *m);

enum { LZ_QWEN3_PATCH = 16, LZ_QWEN3_UNIT = 32 }; /* pixels; a row stands for a unit, which is 2 x 2 patches */

/* [h, w, 3] u8, of whole units -> [h/32 w/32, n width], row by row: embeddings, then the rows that are added after
 * layer 0, 1, ... */
lz_array *lz_qwen3_vision_rows(const lz_qwen3_vision *m, lz_array *picture);

#endif
