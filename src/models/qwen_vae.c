/* qwen_vae.c: AutoencoderKLQwenImage, which is made for films, with a single picture.
 *
 *   encoder: conv, down blocks (resnets, then halve), middle (resnet, attention, resnet), norm, conv, 1x1 -> mean of the latents
 *   decoder: 1x1, conv, middle, up blocks (resnets, then double and halve the channels), norm, conv
 *
 * Its convolutions look back in time: of the three slices of a kernel the last one meets the picture, the others only what
 * would be before it, nothing. So each is a plain convolution with the last slice, and what resamples time is not used.
 *
 * Channels last throughout: x [1, h, w, c]. The norms bring each pixel to unit mean square. */
#include "models/qwen_vae.h"

#include <stddef.h>
#include <stdio.h>

#include "models/config.h"
#include "models/flux2_vae.h"
#include "models/loader.h"

enum { MAX_LEVELS = 8, MAX_RESNETS = 8, MAX_LATENT = 256 };
enum { NONE, ONE, THREE, IN, OUT, OUT3, SIZES };

typedef struct conv {
    lz_array *weight, *bias; /* [out, in, kt, kh, kw] as stored, or [out, in, kh, kw] */
} conv;

typedef struct resnet {
    lz_array *norm1, *norm2;
    conv conv1, conv2, shortcut; /* shortcut: where the channels change */
} resnet;

typedef struct middle {
    resnet before, behind;
    lz_array *norm;
    conv qkv, out;
} middle;

typedef struct level {
    resnet resnets[MAX_RESNETS];
    conv resize; /* none at the last level */
} level;

typedef struct coder {
    conv in, out;
    lz_array *norm_out;
    middle middle;
    level levels[MAX_LEVELS];
    int64_t width[MAX_LEVELS]; /* channels of each level, in the order they run */
    int resnets;               /* per level */
} coder;

struct lz_qwen_vae {
    lz_context *ctx;
    int64_t latent;
    int levels;
    coder encoder, decoder;
    conv quant, post_quant;
    float mean[MAX_LATENT], spread[MAX_LATENT]; /* of the latents */
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const lz_weight causal3_rows[] = {{"weight", offsetof(conv, weight), {OUT, IN, THREE, THREE, THREE}},
                                         {"bias", offsetof(conv, bias), {OUT}}};
static const lz_weight causal1_rows[] = {{"weight", offsetof(conv, weight), {OUT, IN, ONE, ONE, ONE}},
                                         {"bias", offsetof(conv, bias), {OUT}}};
static const lz_weight conv3_rows[] = {{"weight", offsetof(conv, weight), {OUT, IN, THREE, THREE}},
                                       {"bias", offsetof(conv, bias), {OUT}}};
static const lz_weight resnet_norm_rows[] = {{"norm1.gamma", offsetof(resnet, norm1), {IN, ONE, ONE, ONE}},
                                             {"norm2.gamma", offsetof(resnet, norm2), {OUT, ONE, ONE, ONE}}};
static const lz_weight attention_rows[] = {
    {"norm.gamma", offsetof(middle, norm), {OUT, ONE, ONE}},
    {"to_qkv.weight", offsetof(middle, qkv.weight), {OUT3, IN, ONE, ONE}},
    {"to_qkv.bias", offsetof(middle, qkv.bias), {OUT3}},
    {"proj.weight", offsetof(middle, out.weight), {OUT, IN, ONE, ONE}},
    {"proj.bias", offsetof(middle, out.bias), {OUT}},
};
static const lz_weight norm_out_rows[] = {{"norm_out.gamma", offsetof(coder, norm_out), {OUT, ONE, ONE, ONE}}};

/* One pass over all parts of the model, whether to load or to release them. */
typedef struct visitor {
    lz_loader *loader; /* NULL: release */
    int64_t *sizes;
} visitor;

static void visit(visitor *v, const char *prefix, const char *name, const lz_weight *rows, int n, void *into,
                  int64_t in, int64_t out) {
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    if (!v->loader) {
        lz_loader_release(rows, n, into);
        return;
    }
    v->sizes[IN] = in;
    v->sizes[OUT] = out;
    v->sizes[OUT3] = 3 * out;
    lz_loader_take(v->loader, whole, rows, n, into);
}

static void visit_resnet(visitor *v, const char *prefix, resnet *r, int64_t in, int64_t out) {
    visit(v, prefix, "", LZ_ROWS(resnet_norm_rows), r, in, out);
    visit(v, prefix, "conv1.", LZ_ROWS(causal3_rows), &r->conv1, in, out);
    visit(v, prefix, "conv2.", LZ_ROWS(causal3_rows), &r->conv2, out, out);
    if (in != out) visit(v, prefix, "conv_shortcut.", LZ_ROWS(causal1_rows), &r->shortcut, in, out);
}

static void visit_middle(visitor *v, const char *side, middle *m, int64_t width) {
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%smid_block.resnets.0.", side);
    visit_resnet(v, prefix, &m->before, width, width);
    snprintf(prefix, sizeof prefix, "%smid_block.resnets.1.", side);
    visit_resnet(v, prefix, &m->behind, width, width);
    snprintf(prefix, sizeof prefix, "%smid_block.attentions.0.", side);
    visit(v, prefix, "", LZ_ROWS(attention_rows), m, width, width);
}

/* What resizes: a convolution in space, and one in time that a single picture does not meet. */
static void visit_resize(visitor *v, const char *prefix, conv *c, int64_t in, int64_t out) {
    char name[160];
    snprintf(name, sizeof name, "%stime_conv.", prefix);
    visit(v, prefix, "resample.1.", LZ_ROWS(conv3_rows), c, in, out);
    if (v->loader) lz_loader_skip(v->loader, name);
}

/* The encoder's blocks are one flat list. */
static void visit_down(visitor *v, coder *c, int levels) {
    char prefix[96];
    int64_t in = c->width[0];
    for (int i = 0, at = 0; i < levels; i++) {
        for (int j = 0; j < c->resnets; j++) {
            snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d.", at++);
            visit_resnet(v, prefix, &c->levels[i].resnets[j], in, c->width[i]);
            in = c->width[i];
        }
        snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d.", at++);
        if (i < levels - 1) visit_resize(v, prefix, &c->levels[i].resize, in, in);
    }
}

static void visit_up(visitor *v, coder *c, int levels) {
    char prefix[96];
    int64_t in = c->width[0];
    for (int i = 0; i < levels; i++) {
        int64_t out = c->width[i];
        for (int j = 0; j < c->resnets; j++) {
            snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.resnets.%d.", i, j);
            visit_resnet(v, prefix, &c->levels[i].resnets[j], j ? out : in, out);
        }
        snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.upsamplers.0.", i);
        if (i < levels - 1) visit_resize(v, prefix, &c->levels[i].resize, out, out / 2);
        in = out / 2;
    }
}

static void visit_model(visitor *v, lz_qwen_vae *m) {
    int last = m->levels - 1;
    int64_t deep = m->encoder.width[last], shallow = m->decoder.width[last], latent = m->latent;
    visit(v, "encoder.", "conv_in.", LZ_ROWS(causal3_rows), &m->encoder.in, 3, m->encoder.width[0]);
    visit_down(v, &m->encoder, m->levels);
    visit_middle(v, "encoder.", &m->encoder.middle, deep);
    visit(v, "encoder.", "", LZ_ROWS(norm_out_rows), &m->encoder, deep, deep);
    visit(v, "encoder.", "conv_out.", LZ_ROWS(causal3_rows), &m->encoder.out, deep, 2 * latent);
    visit(v, "", "quant_conv.", LZ_ROWS(causal1_rows), &m->quant, 2 * latent, 2 * latent);
    visit(v, "", "post_quant_conv.", LZ_ROWS(causal1_rows), &m->post_quant, latent, latent);
    visit(v, "decoder.", "conv_in.", LZ_ROWS(causal3_rows), &m->decoder.in, latent, m->decoder.width[0]);
    visit_middle(v, "decoder.", &m->decoder.middle, m->decoder.width[0]);
    visit_up(v, &m->decoder, m->levels);
    visit(v, "decoder.", "", LZ_ROWS(norm_out_rows), &m->decoder, shallow, shallow);
    visit(v, "decoder.", "conv_out.", LZ_ROWS(causal3_rows), &m->decoder.out, shallow, 3);
}

/* Of the published model, whose file has them too. */
static const double published_mean[] = {-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,  -0.1517, 1.5508,
                                        0.4134,  -0.0715, 0.5517,  -0.3632, -0.1922, -0.9497, 0.2503,  -0.2921},
                    published_spread[] = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                                          3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160};
enum { PUBLISHED = sizeof published_mean / sizeof published_mean[0] };

static void read_statistics(lz_config *c, const char *key, int64_t latent, const double *published, float *to) {
    double found[MAX_LATENT];
    int n = lz_config_reals(c, key, found, MAX_LATENT);
    if (n ? n != latent : latent != PUBLISHED) lz_config_refuse(c, "'%s' must be %lld numbers", key, (long long)latent);
    for (int i = 0; i < (n ? n : PUBLISHED); i++) to[i] = (float)(n ? found : published)[i];
}

static lz_status read_config(lz_qwen_vae *m, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_config_open(&c, m->ctx, folder, "config.json", err);
    if (status) return status;
    int64_t times[MAX_LEVELS], base = lz_config_int(&c, "base_dim", 96, 1, 4096);
    int levels = lz_config_ints(&c, "dim_mult", times, MAX_LEVELS, 1, 64);
    if (!levels) lz_config_refuse(&c, "'dim_mult' is missing");
    for (int i = 0; i < levels; i++) {
        m->encoder.width[i] = base * times[i];
        m->decoder.width[i] = base * times[levels - 1 - i];
        if (i < levels - 1 && m->decoder.width[i] % 2) lz_config_refuse(&c, "channels must be even to be halved");
    }
    m->encoder.resnets = (int)lz_config_int(&c, "num_res_blocks", 2, 1, MAX_RESNETS - 1);
    m->decoder.resnets = m->encoder.resnets + 1;
    m->latent = lz_config_int(&c, "z_dim", 16, 1, MAX_LATENT);
    if (lz_config_int(&c, "input_channels", 3, 1, 64) != 3)
        lz_config_refuse(&c, "'input_channels' must be 3: pictures with layers are not supported");
    if (json_array_size(json_object_get(c.root, "attn_scales")))
        lz_config_refuse(&c, "autoencoders with attention outside the middle are not supported");
    read_statistics(&c, "latents_mean", m->latent, published_mean, m->mean);
    read_statistics(&c, "latents_std", m->latent, published_spread, m->spread);
    if (c.err.status && err) *err = c.err;
    status = c.err.status;
    if (!status) m->levels = levels;
    lz_config_close(&c);
    return status;
}

lz_qwen_vae *lz_qwen_vae_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_qwen_vae *m = lz_host_alloc(ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    m->ctx = ctx;
    lz_loader l;
    lz_status status = read_config(m, folder, err);
    int64_t sizes[SIZES] = {[ONE] = 1, [THREE] = 3};
    if (!status) status = lz_loader_open(&l, ctx, folder, sizes, err);
    if (!status) {
        visit_model(&(visitor){&l, sizes}, m);
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen_vae_close(m);
    return NULL;
}

void lz_qwen_vae_close(lz_qwen_vae *m) {
    if (!m) return;
    if (m->levels) visit_model(&(visitor){NULL, NULL}, m); /* none: its configuration could not be read */
    lz_host_free(m->ctx, m);
}

int64_t lz_qwen_vae_channels(const lz_qwen_vae *m) { return m->latent; }
int64_t lz_qwen_vae_pixels(const lz_qwen_vae *m) { return (int64_t)2 << (m->levels - 1); }

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* What meets the picture, channels last: [out, in, kt, kh, kw] or [out, in, kh, kw] -> [out, kh, kw, in] */
static lz_array *kernel(lz_array *weight) {
    lz_dims d = lz_shape(weight);
    if (d.n == 5) {
        lz_array *now = lz_slice(weight, 2, d.at[2] - 1, d.at[2], 1);
        weight = lz_reshape(now, LZ_DIMS(d.at[0], d.at[1], d.at[3], d.at[4]));
    }
    return lz_permute(weight, LZ_DIMS(0, 2, 3, 1));
}

static lz_array *conv3(lz_array *x, conv c) {
    return lz_conv2d(x, kernel(c.weight), c.bias, .top = 1, .bottom = 1, .left = 1, .right = 1);
}
static lz_array *conv1(lz_array *x, conv c) { return lz_conv2d(x, kernel(c.weight), c.bias); }

/* x sqrt(c) / |x| times gamma; the eps is for pixels that are all 0. */
static lz_array *norm(lz_array *x, lz_array *gamma) { return lz_rms_norm(x, lz_reshape(gamma, LZ_DIMS(-1)), 1e-24); }

static lz_array *run_resnet(const resnet *r, lz_array *x) {
    lz_array *h = conv3(lz_silu(norm(x, r->norm1)), r->conv1);
    h = conv3(lz_silu(norm(h, r->norm2)), r->conv2);
    return lz_add(r->shortcut.weight ? conv1(x, r->shortcut) : x, h);
}

/* One head as wide as the channels, over all pixels. */
static lz_array *run_attention(const middle *p, lz_array *x) {
    lz_dims d = lz_shape(x); /* [1, h, w, c] */
    int64_t c = d.at[3];
    lz_array *rows = lz_reshape(norm(x, p->norm), LZ_DIMS(1, 1, d.at[1] * d.at[2], c)), *part[3];
    lz_array *qkv = lz_linear(rows, lz_reshape(p->qkv.weight, LZ_DIMS(3 * c, c)), p->qkv.bias);
    lz_split(qkv, 3, 3, part);
    lz_array *a = lz_linear(lz_sdpa(part[0], part[1], part[2]), lz_reshape(p->out.weight, LZ_DIMS(c, c)), p->out.bias);
    return lz_add(x, lz_reshape(a, d));
}

static lz_array *run_middle(const middle *p, lz_array *x) {
    return run_resnet(&p->behind, run_attention(p, run_resnet(&p->before, x)));
}

static lz_array *statistics(const lz_qwen_vae *m, const float *values) {
    return lz_from(m->ctx, LZ_DIMS(m->latent), LZ_F32, values);
}

/* ---- both ways --------------------------------------------------------------------------------------------------- */

lz_array *lz_qwen_vae_encode(const lz_qwen_vae *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "encode");
    lz_dims d = lz_shape(picture);
    lz_array *x = lz_cast(lz_reshape(picture, LZ_DIMS(1, d.at[0], d.at[1], 3)), lz_compute_type(m->ctx));
    x = conv3(x, m->encoder.in);
    for (int i = 0; i < m->levels; i++) {
        const level *p = &m->encoder.levels[i];
        for (int j = 0; j < m->encoder.resnets; j++) x = run_resnet(&p->resnets[j], x);
        /* Halving pads on the right and below only, so that pixel 0 stays the middle of the first window. */
        if (p->resize.weight)
            x = lz_conv2d(x, kernel(p->resize.weight), p->resize.bias, .stride = 2, .bottom = 1, .right = 1);
    }
    x = run_middle(&m->encoder.middle, x);
    x = conv1(conv3(lz_silu(norm(x, m->encoder.norm_out)), m->encoder.out), m->quant);
    x = lz_cast(lz_slice(x, 3, 0, m->latent, 1), LZ_F32); /* the mean; the spread is not used */
    x = lz_div(lz_sub(x, statistics(m, m->mean)), statistics(m, m->spread));
    return lz_scope_return(scope, lz_flux2_patch(x));
}

lz_array *lz_qwen_vae_decode(const lz_qwen_vae *m, lz_array *tokens, int64_t h, int64_t w) {
    lz_scope *scope = lz_scope_begin(m->ctx, "decode");
    lz_array *x = lz_flux2_unpatch(tokens, h, w);
    x = lz_add(lz_mul(x, statistics(m, m->spread)), statistics(m, m->mean));
    x = conv3(conv1(lz_cast(x, lz_compute_type(m->ctx)), m->post_quant), m->decoder.in);
    x = run_middle(&m->decoder.middle, x);
    for (int i = 0; i < m->levels; i++) {
        const level *p = &m->decoder.levels[i];
        for (int j = 0; j < m->decoder.resnets; j++) x = run_resnet(&p->resnets[j], x);
        if (p->resize.weight) x = conv3(lz_upsample_nearest(x, 2), p->resize);
    }
    x = conv3(lz_silu(norm(x, m->decoder.norm_out)), m->decoder.out);
    lz_dims d = lz_shape(x);
    return lz_scope_return(scope, lz_cast(lz_reshape(x, LZ_DIMS(d.at[1], d.at[2], 3)), LZ_F32));
}
