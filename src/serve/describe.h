/* describe.h: the texts that a picture carries: its settings, so that `lazuli --from` can make it again, and the
 * "parameters" that other programs read. They contain ids of images, never paths. */
#ifndef LZ_SERVE_DESCRIBE_H
#define LZ_SERVE_DESCRIBE_H

#include <jansson.h>

#include "serve.h"

typedef struct description {
    const char *pairs[40]; /* key, value, ..., NULL; for lz_image_write */
    char *settings, *parameters, *numbers[8];
} description;
/* asked: the settings of the job; settled: those of the library; picture: as it was made; layer: which of its layers, or 0;
 * version: of the model, or "". false: out of memory. Call description_free in any case. */
bool description_make(description *d, const json_t *asked, const lz_picture_options *settled, const lz_picture *picture,
                      int layer, const worker_engine *engine, const char *version, const char *precision);
void description_free(description *d);

#endif
