/* vae.h: what autoencoders of pictures have in common. Channels last throughout: x [1, h, w, c].
 *
 *   encoder: conv, levels (resnets, then halve), middle (resnet, attention, resnet), norm, conv
 *   decoder: conv, middle, levels (resnets, then double), norm, conv
 *
 * How norms and attention are made and what most tensors are called is a model's own, its kind. */
#ifndef LZ_VAE_H
#define LZ_VAE_H

#include "models/loader.h"

enum { LZ_MAX_LEVELS = 8, LZ_MAX_RESNETS = 8 };
enum { LZ_ONE = 1, LZ_THREE, LZ_IN, LZ_OUT, LZ_OUT3 }; /* what rows are made of; OUT3 = 3 OUT */

typedef struct lz_resnet {
    lz_affine norm1, norm2, conv1, conv2, shortcut; /* shortcut: where the channels change */
} lz_resnet;

typedef struct lz_coder {
    const struct lz_vae_kind *kind;
    int groups; /* of its norms, where they have any */
    lz_affine in, out, norm_out;
    lz_resnet before, behind;              /* of the middle */
    lz_affine norm, qkv[3], attention_out; /* of its attention; qkv[0] may hold all three */
    lz_resnet resnets[LZ_MAX_LEVELS][LZ_MAX_RESNETS];
    lz_affine resize[LZ_MAX_LEVELS]; /* none at the last level */
    int64_t width[LZ_MAX_LEVELS];    /* channels of each level, in the order they run */
    int levels, n_resnets;           /* per level */
} lz_coder;

typedef struct lz_table {
    const lz_weight *rows;
    int n;
} lz_table;

typedef struct lz_vae_kind {
    lz_array *(*norm)(const lz_coder *c, lz_array *x, lz_affine weights);
    lz_array *(*attention)(const lz_coder *c, lz_array *x); /* [1, 1, h w, c], one head as wide as the channels */
    lz_table conv3, conv1;                                  /* of an lz_affine */
    lz_table resnet;                                        /* without its shortcut */
    lz_table attention_rows, norm_out;                      /* of an lz_coder */
} lz_vae_kind;

/* One pass over all parts of a model, whether to load or (loader: NULL) to release them. in and out: what rows mean by it. */
void lz_vae_visit(lz_loader *l, const char *prefix, const char *name, lz_table table, void *into, int64_t in,
                  int64_t out);
void lz_vae_visit_resnet(lz_loader *l, const lz_vae_kind *kind, const char *prefix, lz_resnet *r, int64_t in,
                         int64_t out);
/* All but the levels, of channels in -> width of the middle -> out. */
void lz_vae_visit_coder(lz_loader *l, const char *side, lz_coder *c, int64_t in, int64_t middle, int64_t out);

lz_array *lz_vae_conv1(lz_array *x, lz_affine c);              /* 1 x 1 */
lz_array *lz_vae_encode(const lz_coder *c, lz_array *picture); /* [h, w, 3] -> [1, h', w', out] */
lz_array *lz_vae_decode(const lz_coder *c, lz_array *x);       /* [1, h', w', in] -> [h, w, 3] f32 */

#endif
