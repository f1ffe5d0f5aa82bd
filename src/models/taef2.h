/* taef2.h: TAEF2, a tiny autoencoder for the latents of FLUX.2: less exact, in a fraction of the time and memory. It
 * works on the transformer's tokens (without statistics) and on pictures in 0..1. */
#ifndef LZ_TAEF2_H
#define LZ_TAEF2_H

#include "array/internal.h"

typedef struct lz_taef2 lz_taef2;

lz_taef2 *lz_taef2_open(lz_context *ctx, const char *path,
                        lz_error *err); /* a safetensors file, or a folder with one */
void lz_taef2_close(lz_taef2 *m);
lz_array *lz_taef2_encode(const lz_taef2 *m, lz_array *picture); /* [h, w, 3] -> [1, h/8, w/8, latent] */
lz_array *lz_taef2_decode(const lz_taef2 *m, lz_array *latents); /* [1, h, w, latent] -> [8 h, 8 w, 3], not clamped */

#endif
