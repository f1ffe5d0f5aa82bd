/* qwen25_processor.h: the settings for preparing images for the vision towers of Qwen2.5-VL and Qwen3-VL, from the
 * folder processor/. */
#ifndef LZ_QWEN25_PROCESSOR_H
#define LZ_QWEN25_PROCESSOR_H

#include "array/internal.h"

typedef struct lz_qwen25_processor {
    float mean[3], spread[3];       /* pixels of 0 to 1 become (pixel - mean) / spread */
    int64_t min_pixels, max_pixels; /* limits of the resized image */
    int patch;                      /* side in pixels; 2 x 2 patches are a unit */
} lz_qwen25_processor;

/* From preprocessor_config.json, or, as transformers 5 writes it, from image_processor in processor_config.json. folder
 * NULL: as published. patch: the side that the vision tower needs, 14 (Qwen2.5-VL) or 16 (Qwen3-VL). */
lz_status lz_qwen25_processor_read(lz_qwen25_processor *p, lz_context *ctx, const char *folder, int patch,
                                   lz_error *err);

/* Replaces the size of an image by the size to which it is resized: about the same aspect ratio, whole units,
 * within the limits. */
void lz_qwen25_fit(const lz_qwen25_processor *p, int64_t *width, int64_t *height);

#endif
