/* vae.c: see vae.h. */
#include "models/vae.h"

#include <math.h>
#include <stdio.h>

/* ---- loading ----------------------------------------------------------------------------------------------------- */

void lz_vae_visit(lz_loader *l, const char *prefix, const char *name, lz_table table, void *into, int64_t in,
                  int64_t out) {
    const int64_t sizes[] = {[LZ_ONE] = 1, [LZ_THREE] = 3, [LZ_IN] = in, [LZ_OUT] = out, [LZ_OUT3] = 3 * out};
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    if (!l) {
        lz_loader_release(table.rows, table.n, into);
        return;
    }
    l->sizes = sizes;
    lz_loader_take(l, whole, table.rows, table.n, into);
    l->sizes = NULL;
}

void lz_vae_visit_resnet(lz_loader *l, const lz_vae_kind *kind, const char *prefix, lz_resnet *r, int64_t in,
                         int64_t out) {
    lz_vae_visit(l, prefix, "", kind->resnet, r, in, out);
    if (in != out) lz_vae_visit(l, prefix, "conv_shortcut.", kind->conv1, &r->shortcut, in, out);
}

void lz_vae_visit_coder(lz_loader *l, const char *side, lz_coder *c, int64_t in, int64_t middle, int64_t out) {
    char prefix[96];
    int64_t last = c->width[c->levels - 1];
    lz_vae_visit(l, side, "conv_in.", c->kind->conv3, &c->in, in, c->width[0]);
    snprintf(prefix, sizeof prefix, "%smid_block.resnets.0.", side);
    lz_vae_visit_resnet(l, c->kind, prefix, &c->before, middle, middle);
    snprintf(prefix, sizeof prefix, "%smid_block.resnets.1.", side);
    lz_vae_visit_resnet(l, c->kind, prefix, &c->behind, middle, middle);
    lz_vae_visit(l, side, "mid_block.attentions.0.", c->kind->attention_rows, c, middle, middle);
    lz_vae_visit(l, side, "", c->kind->norm_out, c, last, last);
    lz_vae_visit(l, side, "conv_out.", c->kind->conv3, &c->out, last, out);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* eps avoids a division by zero. */
lz_array *lz_vae_pixel_norm(const lz_coder *c, lz_array *x, lz_affine n) {
    (void)c;
    return lz_rms_norm(x, lz_reshape(lz_dense(n.weight), LZ_DIMS(-1)), 1e-24);
}

/* Some rows of queries at a time, so that memory grows with the pixels, not with their square. Scores are f32. */
lz_array *lz_vae_wide_attention(lz_array *q, lz_array *k, lz_array *v) {
    enum { ROWS = 1024, MAX_PARTS = 4096 };
    lz_dims d = lz_shape(q);
    int64_t n = d.n == 4 ? d.at[2] : 0, parts = (n + ROWS - 1) / ROWS;
    if (!parts) return q; /* poisoned */
    if (parts > MAX_PARTS) return lz_poison(q->ctx, LZ_BAD_SHAPE, "attention: %lld rows are too many", (long long)n);
    lz_array **all = lz_host_alloc(q->ctx, (size_t)parts * sizeof(lz_array *));
    if (!all) return lz_poison(q->ctx, LZ_OUT_OF_MEMORY, "attention");
    lz_array *keys = lz_permute(k, LZ_DIMS(0, 1, 3, 2));
    for (int64_t i = 0; i < parts; i++) {
        int64_t end = (i + 1) * ROWS < n ? (i + 1) * ROWS : n;
        lz_array *some = lz_mul(lz_cast(lz_slice(q, 2, i * ROWS, end, 1), LZ_F32), 1 / sqrt((double)d.at[3]));
        all[i] = lz_cast(lz_matmul(lz_softmax(lz_matmul(some, keys), 3), v), lz_type(v));
    }
    lz_array *joined = parts > 1 ? lz_concat(all, (int)parts, 2) : all[0];
    lz_host_free(q->ctx, all);
    return joined;
}

lz_array *lz_vae_joint_attention(const lz_coder *p, lz_array *x) {
    enum { WIDEST = 512 }; /* of lz_sdpa */
    lz_array *part[3];
    lz_split(lz_apply_affine(x, p->qkv[0]), 3, 3, part);
    lz_array *a = lz_shape(part[0]).at[3] > WIDEST ? lz_vae_wide_attention(part[0], part[1], part[2])
                                                   : lz_sdpa(part[0], part[1], part[2]);
    return lz_apply_affine(a, p->attention_out);
}

static void read_numbers(lz_config *c, const char *key, int64_t channels, const double *published, int n_published,
                         float *to) {
    double found[LZ_MAX_LATENT];
    int n = lz_config_reals(c, key, found, LZ_MAX_LATENT);
    if (n ? n != channels : channels != n_published)
        lz_config_refuse(c, "'%s' must be %lld numbers", key, (long long)channels);
    for (int i = 0; i < (n ? n : n_published); i++) to[i] = (float)(n ? found : published)[i];
}

void lz_vae_read_statistics(lz_config *c, const double *mean, const double *spread, int n_published,
                            lz_statistics *to) {
    read_numbers(c, "latents_mean", to->channels, mean, n_published, to->mean);
    read_numbers(c, "latents_std", to->channels, spread, n_published, to->spread);
    lz_config_check_divisors(c, "latents_std", to->spread, to->channels);
}

static lz_array *per_channel(const lz_statistics *s, const lz_array *x, const float *values) {
    return lz_from(x->ctx, LZ_DIMS(s->channels), LZ_F32, values);
}

lz_array *lz_vae_normalise(const lz_statistics *s, lz_array *x) {
    return lz_div(lz_sub(x, per_channel(s, x, s->mean)), per_channel(s, x, s->spread));
}

lz_array *lz_vae_restore(const lz_statistics *s, lz_array *x) {
    return lz_add(lz_mul(x, per_channel(s, x, s->spread)), per_channel(s, x, s->mean));
}

lz_array *lz_vae_opaque(lz_array *picture, int64_t colours) {
    lz_dims d = lz_shape(picture);
    if (d.n != 3 || d.at[2] == colours) return picture; /* d.n: picture is poisoned */
    return lz_pad(picture, LZ_DIMS(0, 0, 0), LZ_DIMS(0, 0, colours - d.at[2]), 1);
}

/* [out, in, kh, kw] -> [out, kh, kw, in]. Of a kernel for films, [out, in, kt, kh, kw], only the last time slice is
 * used: the others are for earlier frames, which a single picture does not have. */
static lz_array *kernel(const lz_param *p) {
    lz_array *weight = lz_dense(p);
    lz_dims d = lz_shape(weight);
    if (d.n == 5) {
        lz_array *now = lz_slice(weight, 2, d.at[2] - 1, d.at[2], 1);
        weight = lz_reshape(now, LZ_DIMS(d.at[0], d.at[1], d.at[3], d.at[4]));
    }
    return lz_permute(weight, LZ_DIMS(0, 2, 3, 1));
}

static lz_array *conv3(lz_array *x, lz_affine c) {
    return lz_conv2d(x, kernel(c.weight), lz_dense(c.bias), .top = 1, .bottom = 1, .left = 1, .right = 1);
}
lz_array *lz_vae_conv1(lz_array *x, lz_affine c) { return lz_conv2d(x, kernel(c.weight), lz_dense(c.bias)); }

static lz_array *norm_conv(const lz_coder *c, lz_array *x, lz_affine norm, lz_affine conv) {
    return conv3(lz_silu(c->kind->norm(c, x, norm)), conv);
}

static lz_array *run_resnet(const lz_coder *c, const lz_resnet *r, lz_array *x) {
    lz_array *h = norm_conv(c, norm_conv(c, x, r->norm1, r->conv1), r->norm2, r->conv2);
    return lz_add(r->shortcut.weight ? lz_vae_conv1(x, r->shortcut) : x, h);
}

static lz_array *run_middle(const lz_coder *c, lz_array *x) {
    x = run_resnet(c, &c->before, x);
    lz_dims d = lz_shape(x); /* [1, h, w, c] */
    lz_array *rows = lz_reshape(c->kind->norm(c, x, c->norm), LZ_DIMS(1, 1, d.at[1] * d.at[2], d.at[3]));
    x = lz_add(x, lz_reshape(c->kind->attention(c, rows), d));
    return run_resnet(c, &c->behind, x);
}

/* ---- both ways --------------------------------------------------------------------------------------------------- */

lz_array *lz_vae_encode(const lz_coder *c, lz_array *picture) {
    lz_dims d = lz_shape(picture);
    lz_array *x = lz_reshape(picture, LZ_DIMS(1, d.at[0], d.at[1], d.at[2]));
    x = conv3(lz_cast(x, lz_compute_type(picture->ctx)), c->in);
    for (int i = 0; i < c->levels; i++) {
        lz_array *shortcut = c->kind->encoder_shortcut ? c->kind->encoder_shortcut(c, i, x) : NULL;
        for (int j = 0; j < c->n_resnets; j++) x = run_resnet(c, &c->resnets[i][j], x);
        /* Downsampling pads only on the right and at the bottom, as in the model's own code. */
        if (c->resize[i].weight)
            x = lz_conv2d(x, kernel(c->resize[i].weight), lz_dense(c->resize[i].bias), .stride = 2, .bottom = 1,
                          .right = 1);
        if (shortcut) x = lz_add(x, shortcut);
    }
    return norm_conv(c, run_middle(c, x), c->norm_out, c->out);
}

lz_array *lz_vae_decode(const lz_coder *c, lz_array *x) {
    x = run_middle(c, conv3(x, c->in));
    for (int i = 0; i < c->levels; i++) {
        lz_array *shortcut = c->kind->decoder_shortcut ? c->kind->decoder_shortcut(c, i, x) : NULL;
        for (int j = 0; j < c->n_resnets; j++) x = run_resnet(c, &c->resnets[i][j], x);
        if (c->resize[i].weight) x = conv3(lz_upsample_nearest(x, 2), c->resize[i]);
        if (shortcut) x = lz_add(x, shortcut);
    }
    x = norm_conv(c, x, c->norm_out, c->out);
    lz_dims d = lz_shape(x);
    return lz_cast(lz_reshape(x, LZ_DIMS(d.at[1], d.at[2], d.at[3])), LZ_F32);
}
