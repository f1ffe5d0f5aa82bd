/* qwen_vae.h: the autoencoder of Qwen-Image, for single pictures in -1..1, [h, w, k], to latent tokens and back; k is 3,
 * or 4 with opacity. It also has the statistics that normalise latents. */
#ifndef LZ_QWEN_VAE_H
#define LZ_QWEN_VAE_H

#include "array/internal.h"

typedef struct lz_qwen_vae lz_qwen_vae;

lz_qwen_vae *lz_qwen_vae_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_qwen_vae_close(lz_qwen_vae *m);
int64_t lz_qwen_vae_channels(const lz_qwen_vae *m); /* channels of the latents; a token is 2 x 2 latents */
int64_t lz_qwen_vae_pixels(const lz_qwen_vae *m);   /* side of a token in pixels */
int lz_qwen_vae_colours(const lz_qwen_vae *m);      /* k */

lz_array *lz_qwen_vae_encode(const lz_qwen_vae *m, lz_array *picture); /* [h, w, 3 or k] -> [tokens, 4 channels] */
lz_array *lz_qwen_vae_decode(const lz_qwen_vae *m, lz_array *tokens, int64_t h,
                             int64_t w); /* h, w in tokens -> [16 h, 16 w, k] */

#endif
