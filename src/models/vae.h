/* vae.h: the common architecture of the autoencoders. Channels last throughout: x [1, h, w, c].
 *
 *   encoder: conv, levels (resnets, then downsample), middle (resnet, attention, resnet), norm, conv
 *   decoder: conv, middle, levels (resnets, then upsample), norm, conv
 *
 * Norms, attention and most names of tensors differ between models; they are in an lz_vae_kind. */
#ifndef LZ_VAE_H
#define LZ_VAE_H

#include "models/loader.h"

enum { LZ_MAX_LEVELS = 8, LZ_MAX_RESNETS = 8 };
enum { LZ_ONE = 1, LZ_THREE, LZ_IN, LZ_OUT, LZ_OUT3 }; /* indices of sizes in lz_weight.dims; OUT3 = 3 OUT */

typedef struct lz_resnet {
    lz_affine norm1, norm2, conv1, conv2, shortcut; /* shortcut: only if the number of channels changes */
} lz_resnet;

typedef struct lz_coder {
    const struct lz_vae_kind *kind;
    int groups; /* of group norms; not used otherwise */
    lz_affine in, out, norm_out;
    lz_resnet before, behind;              /* the two resnets of the middle */
    lz_affine norm, qkv[3], attention_out; /* of the attention of the middle; qkv[0] may be all three */
    lz_resnet resnets[LZ_MAX_LEVELS][LZ_MAX_RESNETS];
    lz_affine resize[LZ_MAX_LEVELS]; /* down- or upsampling; none at the last level */
    int64_t width[LZ_MAX_LEVELS];    /* channels of each level, in the order in which they run */
    int levels, n_resnets;           /* n_resnets: per level */
    bool in_time[LZ_MAX_LEVELS];     /* of shortcuts: in films the level also resizes time */
} lz_coder;

typedef struct lz_table {
    const lz_weight *rows;
    int n;
} lz_table;

typedef struct lz_vae_kind {
    lz_array *(*norm)(const lz_coder *c, lz_array *x, lz_affine weights);
    lz_array *(*attention)(const lz_coder *c, lz_array *x); /* [1, 1, h w, c], one head as wide as the channels */
    lz_table conv3, conv1;                                  /* rows of an lz_affine */
    lz_table resnet;                                        /* rows of an lz_resnet, without its shortcut */
    lz_table attention_rows, norm_out;                      /* rows of an lz_coder */
    /* What is added to the output of a level, made from its input; NULL: nothing. */
    lz_array *(*encoder_shortcut)(const lz_coder *c, int level, lz_array *x);
    lz_array *(*decoder_shortcut)(const lz_coder *c, int level, lz_array *x);
} lz_vae_kind;

/* Loads the weights of a layer or, if l is NULL, releases them. in and out: the sizes LZ_IN and LZ_OUT of the rows. */
void lz_vae_visit(lz_loader *l, const char *prefix, const char *name, lz_table table, void *into, int64_t in,
                  int64_t out);
void lz_vae_visit_resnet(lz_loader *l, const lz_vae_kind *kind, const char *prefix, lz_resnet *r, int64_t in,
                         int64_t out);
/* All layers except the levels; in, middle and out: channels of the input, the middle and the output. */
void lz_vae_visit_coder(lz_loader *l, const char *side, lz_coder *c, int64_t in, int64_t middle, int64_t out);

/* Mean and spread of each latent channel, which the transformer does not see. */
enum { LZ_MAX_LATENT = 256 };
typedef struct lz_statistics {
    int64_t channels;
    float mean[LZ_MAX_LATENT], spread[LZ_MAX_LATENT];
} lz_statistics;
/* Reads latents_mean and latents_std; to->channels is set. If the keys are absent, the published numbers apply. */
void lz_vae_read_statistics(lz_config *c, const double *mean, const double *spread, int n_published, lz_statistics *to);
lz_array *lz_vae_normalise(const lz_statistics *s, lz_array *x); /* (x - mean) / spread, for [..., channels] */
lz_array *lz_vae_restore(const lz_statistics *s, lz_array *x);   /* x spread + mean */

/* For kinds with pixel norms: x sqrt(c) / |x| times gamma, and attention whose qkv[0] makes queries, keys and values. */
lz_array *lz_vae_pixel_norm(const lz_coder *c, lz_array *x, lz_affine gamma);
lz_array *lz_vae_joint_attention(const lz_coder *c, lz_array *x);
lz_array *lz_vae_wide_attention(lz_array *q, lz_array *k, lz_array *v); /* lz_sdpa for any head size */

/* [h, w, 3] -> [h, w, colours]: an opaque picture with opacity; one that has these colours is returned as it is. */
lz_array *lz_vae_opaque(lz_array *picture, int64_t colours);
lz_array *lz_vae_conv1(lz_array *x, lz_affine c); /* 1 x 1 */
/* k: colours, 3 or 4 with opacity */
lz_array *lz_vae_encode(const lz_coder *c, lz_array *picture); /* [h, w, k] -> [1, h', w', out] */
lz_array *lz_vae_decode(const lz_coder *c, lz_array *x);       /* [1, h', w', in] -> [h, w, k] f32 */

#endif
