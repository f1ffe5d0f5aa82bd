/* qwen25_vision.h: the vision tower of Qwen2.5-VL: an image as rows that its language model reads like word
 * embeddings. */
#ifndef LZ_QWEN25_VISION_H
#define LZ_QWEN25_VISION_H

#include "models/qwen25_processor.h"

typedef struct lz_qwen25_vision lz_qwen25_vision;

lz_qwen25_vision *lz_qwen25_vision_open(lz_context *ctx, const char *folder, const lz_qwen25_processor *processor,
                                        lz_error *err);
void lz_qwen25_vision_close(lz_qwen25_vision *m);

#define LZ_QWEN25_UNIT 28 /* side, in pixels, of the part of the image that one row stands for: 2 x 2 patches of 14 */

/* [h, w, 3] u8, of whole units -> [h/28 w/28, width], row by row */
lz_array *lz_qwen25_vision_rows(const lz_qwen25_vision *m, lz_array *picture);

#endif
