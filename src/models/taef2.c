/* taef2.c: a row of layers each way; the tables below are the whole architecture. Widths are read from the tensors. */
#include "models/taef2.h"

#include <stdio.h>

typedef enum kind { CONV, HALVE, BLOCK, POOLED, CLAMP, RELU, DOUBLE } kind; /* HALVE: convolution with stride 2 */

static const kind encoder_layers[] = {CONV,  BLOCK, HALVE, BLOCK,  BLOCK,  BLOCK,  HALVE, BLOCK,
                                      BLOCK, BLOCK, HALVE, POOLED, POOLED, POOLED, CONV};
static const kind decoder_layers[] = {CLAMP, CONV,   RELU, POOLED, POOLED, POOLED, DOUBLE, CONV, BLOCK, BLOCK,
                                      BLOCK, DOUBLE, CONV, BLOCK,  BLOCK,  BLOCK,  DOUBLE, CONV, BLOCK, CONV};

struct lz_taef2 {
    lz_context *ctx;
    lz_weights *weights;
};

/* A tensor of layer i; NULL when the layer has none of that name. */
static lz_array *tensor(const lz_taef2 *m, const char *side, int i, const char *name) {
    char whole[64];
    snprintf(whole, sizeof whole, "%s.%d.%s", side, i, name);
    return lz_weights_has(m->weights, whole) ? lz_weights_get(m->weights, whole) : NULL;
}

static lz_array *needed(const lz_taef2 *m, const char *side, int i, const char *name) {
    char whole[64];
    snprintf(whole, sizeof whole, "%s.%d.%s", side, i, name);
    return lz_weights_get(m->weights, whole); /* poisoned, and named, when it is missing */
}

static lz_array *conv(const lz_taef2 *m, const char *side, int i, const char *part, lz_array *x, int stride) {
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%sweight", part);
    snprintf(bias, sizeof bias, "%sbias", part);
    lz_array *w = lz_permute(needed(m, side, i, weight), LZ_DIMS(0, 2, 3, 1));
    int pad = lz_shape(w).at[1] == 3;
    return lz_conv2d(x, w, tensor(m, side, i, bias), .stride = stride, .top = pad, .bottom = pad, .left = pad,
                     .right = pad);
}

static lz_array *relu(lz_array *x) { return lz_maximum(x, 0.0); }

static lz_array *block(const lz_taef2 *m, const char *side, int i, lz_array *x, bool pooled) {
    if (pooled) {
        lz_array *h = conv(m, side, i, "pool.0.", x, 1);
        h = lz_group_norm(h, 4, needed(m, side, i, "pool.1.weight"), needed(m, side, i, "pool.1.bias"), 1e-5);
        x = lz_add(x, conv(m, side, i, "pool.3.", relu(h), 1));
    }
    lz_array *h = relu(conv(m, side, i, "conv.0.", x, 1));
    h = relu(conv(m, side, i, "conv.2.", h, 1));
    return relu(lz_add(conv(m, side, i, "conv.4.", h, 1), x));
}

static lz_array *run(const lz_taef2 *m, const char *side, const kind *layers, int n, lz_array *x) {
    for (int i = 0; i < n; i++) switch (layers[i]) {
        case CONV: x = conv(m, side, i, "", x, 1); break;
        case HALVE: x = conv(m, side, i, "", x, 2); break;
        case BLOCK: x = block(m, side, i, x, false); break;
        case POOLED: x = block(m, side, i, x, true); break;
        case CLAMP: x = lz_mul(lz_tanh(lz_div(x, 3.0)), 3.0); break;
        case RELU: x = relu(x); break;
        case DOUBLE: x = lz_upsample_nearest(x, 2); break;
        }
    return x;
}

lz_taef2 *lz_taef2_open(lz_context *ctx, const char *path, lz_error *err) {
    lz_taef2 *m = lz_host_alloc(ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    m->ctx = ctx;
    m->weights = lz_weights_open(ctx, path, err);
    if (m->weights) return m;
    lz_taef2_close(m);
    return NULL;
}

void lz_taef2_close(lz_taef2 *m) {
    if (!m) return;
    lz_weights_close(m->weights);
    lz_host_free(m->ctx, m);
}

#define LAYERS(table) table, (int)(sizeof(table) / sizeof(table)[0])

lz_array *lz_taef2_encode(const lz_taef2 *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "taef2");
    lz_dims d = lz_shape(picture);
    lz_array *x = lz_reshape(picture, LZ_DIMS(1, d.at[0], d.at[1], 3));
    return lz_scope_return(scope, run(m, "encoder", LAYERS(encoder_layers), x));
}

lz_array *lz_taef2_decode(const lz_taef2 *m, lz_array *latents) {
    lz_scope *scope = lz_scope_begin(m->ctx, "taef2");
    lz_array *x = run(m, "decoder", LAYERS(decoder_layers), latents);
    lz_dims d = lz_shape(x);
    return lz_scope_return(scope, lz_reshape(x, LZ_DIMS(d.at[1], d.at[2], 3)));
}
