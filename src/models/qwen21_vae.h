/* qwen21_vae.h: the autoencoder of Qwen-Image 2.1, for single pictures in -1..1, [h, w, 4], to latents and back. The fourth
 * channel is opacity. */
#ifndef LZ_QWEN21_VAE_H
#define LZ_QWEN21_VAE_H

#include "array/internal.h"

typedef struct lz_qwen21_vae lz_qwen21_vae;

lz_qwen21_vae *lz_qwen21_vae_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_qwen21_vae_close(lz_qwen21_vae *m);
int64_t lz_qwen21_vae_channels(const lz_qwen21_vae *m); /* of the latents */
int64_t lz_qwen21_vae_pixels(const lz_qwen21_vae *m);   /* side of 2 x 2 latents in pixels */

/* Tokens are of 2 x 2 latents. */
/* [h, w, 3 or 4] -> [tokens, 4 channels]; three channels are opaque */
lz_array *lz_qwen21_vae_encode(const lz_qwen21_vae *m, lz_array *picture);
lz_array *lz_qwen21_vae_decode(const lz_qwen21_vae *m, lz_array *tokens, int64_t h,
                               int64_t w); /* h, w in tokens -> [32 h, 32 w, 4] */

#endif
