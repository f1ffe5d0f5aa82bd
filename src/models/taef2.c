/* taef2.c: encoder and decoder are sequences of layers; the tables below are the whole architecture. There is no
 * configuration: widths are read from the tensors. */
#include "models/taef2.h"

#include <stdio.h>

#include "models/loader.h"

enum { ONE = 1, THREE, COLOURS, LATENT, WIDTH, HIDDEN }; /* indices of sizes in lz_weight.dims */

/* The weights of a layer of any kind. */
typedef struct layer {
    lz_affine conv[3];   /* a layer with one convolution uses conv[0] */
    lz_param *pool_in;   /* [hidden, width, 1, 1] */
    lz_affine pool_norm; /* [hidden] */
    lz_param *pool_out;  /* [width, hidden, 1, 1] */
} layer;

typedef struct kind {
    const lz_weight *rows;
    int n;
    lz_array *(*run)(const layer *l, lz_array *x);
} kind;

/* ---- kinds of layers --------------------------------------------------------------------------------------------- */

static lz_array *conv(lz_array *x, const lz_param *weight, const lz_param *bias, int stride) {
    lz_array *w = lz_permute(lz_dense(weight), LZ_DIMS(0, 2, 3, 1));
    int pad = lz_shape(w).at[1] == 3;
    return lz_conv2d(x, w, bias ? lz_dense(bias) : NULL, .stride = stride, .top = pad, .bottom = pad, .left = pad,
                     .right = pad);
}

static lz_array *conv3(const layer *l, lz_array *x) { return conv(x, l->conv[0].weight, l->conv[0].bias, 1); }
static lz_array *halve(const layer *l, lz_array *x) { return conv(x, l->conv[0].weight, l->conv[0].bias, 2); }
static lz_array *relu_of(lz_array *x) { return lz_maximum(x, 0.0); }

static lz_array *block(const layer *l, lz_array *x) {
    lz_array *h = x;
    for (int i = 0; i < 2; i++) h = relu_of(conv(h, l->conv[i].weight, l->conv[i].bias, 1));
    return relu_of(lz_add(conv(h, l->conv[2].weight, l->conv[2].bias, 1), x));
}

static lz_array *pooled(const layer *l, lz_array *x) {
    lz_array *h = conv(x, l->pool_in, NULL, 1);
    h = lz_group_norm(h, 4, lz_dense(l->pool_norm.weight), lz_dense(l->pool_norm.bias), 1e-5);
    return block(l, lz_add(x, conv(relu_of(h), l->pool_out, NULL, 1)));
}

static lz_array *clamp(const layer *l, lz_array *x) {
    (void)l;
    return lz_mul(lz_tanh(lz_div(x, 3.0)), 3.0);
}

static lz_array *relu(const layer *l, lz_array *x) {
    (void)l;
    return relu_of(x);
}

static lz_array *twice(const layer *l, lz_array *x) {
    (void)l;
    return lz_upsample_nearest(x, 2);
}

#define CONV(out, in)                                                                                                  \
    {                                                                                                                  \
        {"weight", offsetof(layer, conv[0].weight), {out, in, THREE, THREE}}, {                                        \
            "bias", offsetof(layer, conv[0].bias), { out }                                                             \
        }                                                                                                              \
    }
#define CONV_OF(name, i) LZ_AFFINE(name, layer, conv[i], WIDTH, WIDTH, THREE, THREE)

static const lz_weight from_picture_rows[] = CONV(WIDTH, COLOURS), to_latent_rows[] = CONV(LATENT, WIDTH),
                       from_latent_rows[] = CONV(WIDTH, LATENT), to_picture_rows[] = CONV(COLOURS, WIDTH),
                       plain_rows[] = {{"weight", offsetof(layer, conv[0].weight), {WIDTH, WIDTH, THREE, THREE}}};
static const lz_weight block_rows[] = {CONV_OF("conv.0", 0), CONV_OF("conv.2", 1), CONV_OF("conv.4", 2)};
static const lz_weight pooled_rows[] = {
    {"pool.0.weight", offsetof(layer, pool_in), {HIDDEN, WIDTH, ONE, ONE}},
    LZ_AFFINE("pool.1", layer, pool_norm, HIDDEN),
    {"pool.3.weight", offsetof(layer, pool_out), {WIDTH, HIDDEN, ONE, ONE}},
    CONV_OF("conv.0", 0),
    CONV_OF("conv.2", 1),
    CONV_OF("conv.4", 2),
};

static const kind FROM_PICTURE = {LZ_ROWS(from_picture_rows), conv3}, TO_LATENT = {LZ_ROWS(to_latent_rows), conv3},
                  FROM_LATENT = {LZ_ROWS(from_latent_rows), conv3}, TO_PICTURE = {LZ_ROWS(to_picture_rows), conv3},
                  PLAIN = {LZ_ROWS(plain_rows), conv3}, HALVE = {LZ_ROWS(plain_rows), halve},
                  BLOCK = {LZ_ROWS(block_rows), block}, POOLED = {LZ_ROWS(pooled_rows), pooled},
                  CLAMP = {NULL, 0, clamp}, RELU = {NULL, 0, relu}, DOUBLE = {NULL, 0, twice};

/* ---- the two rows of layers -------------------------------------------------------------------------------------- */

enum { MAX_LAYERS = 20 };
typedef struct side {
    const char *name;
    const kind *kinds[MAX_LAYERS]; /* ended by NULL if there are fewer */
} side;
static const side sides[2] = {
    {"encoder",
     {&FROM_PICTURE, &BLOCK, &HALVE, &BLOCK, &BLOCK, &BLOCK, &HALVE, &BLOCK, &BLOCK, &BLOCK, &HALVE, &POOLED, &POOLED,
      &POOLED, &TO_LATENT}},
    {"decoder", {&CLAMP, &FROM_LATENT, &RELU,  &POOLED, &POOLED, &POOLED, &DOUBLE, &PLAIN, &BLOCK, &BLOCK,
                 &BLOCK, &DOUBLE,      &PLAIN, &BLOCK,  &BLOCK,  &BLOCK,  &DOUBLE, &PLAIN, &BLOCK, &TO_PICTURE}},
};

struct lz_taef2 {
    lz_context *ctx;
    layer layers[2][MAX_LAYERS]; /* of the encoder, of the decoder */
};

static lz_array *run(const lz_taef2 *m, int s, lz_array *x) {
    for (int i = 0; i < MAX_LAYERS && sides[s].kinds[i]; i++) x = sides[s].kinds[i]->run(&m->layers[s][i], x);
    return x;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const lz_component names = {
    .name = "TAEF2 autoencoder",
    .stem = "",
    .prefixes = {""},
    .anchors = {"encoder.0.weight", "decoder.19.weight"},
};

/* The size of axis 0 of a tensor; 0 if it is missing, which the loader reports. */
static int64_t rows_of(const lz_loader *l, const char *name) {
    lz_dims d = lz_names_shape(&l->names, name);
    return d.n > 0 ? d.at[0] : 0;
}

lz_taef2 *lz_taef2_open(lz_context *ctx, const char *path, lz_error *err) {
    lz_taef2 *m = lz_host_alloc(ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    m->ctx = ctx;
    int64_t sizes[] = {[ONE] = 1, [THREE] = 3, [COLOURS] = 3, [HIDDEN] = 0};
    lz_loader l;
    lz_status status = lz_loader_open(&l, ctx, path, &names, sizes, err);
    if (!status) {
        sizes[WIDTH] = rows_of(&l, "encoder.0.weight");
        sizes[LATENT] = rows_of(&l, "encoder.14.weight");
        sizes[HIDDEN] = rows_of(&l, "encoder.11.pool.0.weight");
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < MAX_LAYERS && sides[s].kinds[i]; i++) {
                char prefix[32];
                snprintf(prefix, sizeof prefix, "%s.%d.", sides[s].name, i);
                lz_loader_take(&l, prefix, sides[s].kinds[i]->rows, sides[s].kinds[i]->n, &m->layers[s][i]);
            }
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_taef2_close(m);
    return NULL;
}

void lz_taef2_close(lz_taef2 *m) {
    if (!m) return;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < MAX_LAYERS && sides[s].kinds[i]; i++)
            lz_loader_release(sides[s].kinds[i]->rows, sides[s].kinds[i]->n, &m->layers[s][i]);
    lz_host_free(m->ctx, m);
}

/* ---- both ways --------------------------------------------------------------------------------------------------- */

lz_array *lz_taef2_encode(const lz_taef2 *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "taef2");
    lz_dims d = lz_shape(picture);
    return lz_scope_return(scope, run(m, 0, lz_reshape(picture, LZ_DIMS(1, d.at[0], d.at[1], 3))));
}

lz_array *lz_taef2_decode(const lz_taef2 *m, lz_array *latents) {
    lz_scope *scope = lz_scope_begin(m->ctx, "taef2");
    lz_array *x = run(m, 1, latents);
    lz_dims d = lz_shape(x);
    return lz_scope_return(scope, lz_reshape(x, LZ_DIMS(d.at[1], d.at[2], 3)));
}
