/* measure.h: what an image in memory is, from its headers. */
#ifndef LZ_SERVE_MEASURE_H
#define LZ_SERVE_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Width and height of a PNG, JPEG or WebP, before its orientation is applied. false: it is none of these, or its header
 * is damaged. */
bool measure_image(const void *data, size_t size, int64_t *width, int64_t *height);
/* Is its end there? false also if it is no picture. A picture that is whole may be damaged all the same. */
bool image_is_whole(const void *data, size_t size);

#endif
