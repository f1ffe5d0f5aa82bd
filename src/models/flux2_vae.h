/* flux2_vae.h: the autoencoders of FLUX.2 and FLUX.1: pictures in -1..1, [h, w, 3], to latent tokens and back. They also
 * normalise tokens: FLUX.2 by statistics of each channel, FLUX.1 by one shift and one factor. */
#ifndef LZ_FLUX2_VAE_H
#define LZ_FLUX2_VAE_H

#include "array/internal.h"

typedef struct lz_flux2_vae lz_flux2_vae;

lz_flux2_vae *lz_flux2_vae_open(lz_context *ctx, const char *folder, lz_error *err);
lz_flux2_vae *lz_flux1_vae_open(lz_context *ctx, const char *folder, lz_error *err); /* AutoencoderKL */
void lz_flux2_vae_close(lz_flux2_vae *m);
int64_t lz_flux2_vae_channels(const lz_flux2_vae *m); /* channels of a token */
int64_t lz_flux2_vae_pixels(const lz_flux2_vae *m);   /* side of a token in pixels */

lz_array *lz_flux2_vae_encode(const lz_flux2_vae *m, lz_array *picture); /* [h, w, 3] -> [tokens, channels] */
lz_array *lz_flux2_vae_decode(const lz_flux2_vae *m, lz_array *tokens, int64_t h,
                              int64_t w); /* h, w in tokens -> [16 h, 16 w, 3] */

/* Tokens [h w, 4c] to pixels of latents [1, 2h, 2w, c] and back: token channel = c 4 + row parity 2 + column parity. */
lz_array *lz_flux2_unpatch(lz_array *tokens, int64_t h, int64_t w);
lz_array *lz_flux2_patch(lz_array *latents);

#endif
