/* flux2_vae.c: AutoencoderKLFlux2.
 *
 *   encoder: conv, down blocks (resnets, then halve), middle (resnet, attention, resnet), norm, conv, 1x1 -> mean of the latents
 *   decoder: 1x1, conv, middle, up blocks (resnets, then double), norm, conv
 *
 * Channels last throughout: x [1, h, w, c]. Group norms have eps 1e-6; the statistics of the tokens have an eps of their own. */
#include "models/flux2_vae.h"

#include <stddef.h>
#include <stdio.h>

#include "models/config.h"
#include "models/loader.h"

enum { MAX_LEVELS = 8, MAX_RESNETS = 8 };
enum { NONE, ONE, THREE, IN, OUT, TOKEN, SIZES };

typedef struct norm {
    lz_array *weight, *bias;
} norm;

typedef struct conv {
    lz_array *weight, *bias; /* [out, in, kh, kw] as stored */
} conv;

typedef struct resnet {
    norm norm1, norm2;
    conv conv1, conv2, shortcut; /* shortcut: where the channels change */
} resnet;

typedef struct middle {
    resnet before, behind;
    norm norm;
    lz_array *q, *q_bias, *k, *k_bias, *v, *v_bias, *out, *out_bias;
} middle;

typedef struct level {
    resnet resnets[MAX_RESNETS];
    conv resize; /* none at the last level */
} level;

typedef struct coder {
    conv in, out;
    norm norm_out;
    middle middle;
    level levels[MAX_LEVELS];
    int64_t width[MAX_LEVELS]; /* channels of each level, in the order they run */
    int resnets;               /* per level */
} coder;

struct lz_flux2_vae {
    lz_context *ctx;
    int64_t latent;
    int levels, groups;
    double bn_eps;
    coder encoder, decoder;
    conv quant, post_quant;
    lz_array *mean, *var; /* [4 latent] */
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const lz_weight norm_rows[] = {{"weight", offsetof(norm, weight), {OUT}}, {"bias", offsetof(norm, bias), {OUT}}};
static const lz_weight conv3_rows[] = {{"weight", offsetof(conv, weight), {OUT, IN, THREE, THREE}},
                                       {"bias", offsetof(conv, bias), {OUT}}};
static const lz_weight conv1_rows[] = {{"weight", offsetof(conv, weight), {OUT, IN, ONE, ONE}},
                                       {"bias", offsetof(conv, bias), {OUT}}};
static const lz_weight attention_rows[] = {
    {"to_q.weight", offsetof(middle, q), {OUT, IN}},       {"to_q.bias", offsetof(middle, q_bias), {OUT}},
    {"to_k.weight", offsetof(middle, k), {OUT, IN}},       {"to_k.bias", offsetof(middle, k_bias), {OUT}},
    {"to_v.weight", offsetof(middle, v), {OUT, IN}},       {"to_v.bias", offsetof(middle, v_bias), {OUT}},
    {"to_out.0.weight", offsetof(middle, out), {OUT, IN}}, {"to_out.0.bias", offsetof(middle, out_bias), {OUT}},
};
static const lz_weight statistics_rows[] = {
    {"running_mean", offsetof(lz_flux2_vae, mean), {TOKEN}},
    {"running_var", offsetof(lz_flux2_vae, var), {TOKEN}},
};

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
    lz_loader_take(v->loader, whole, rows, n, into);
}

static void visit_resnet(visitor *v, const char *prefix, resnet *r, int64_t in, int64_t out) {
    visit(v, prefix, "norm1.", LZ_ROWS(norm_rows), &r->norm1, in, in);
    visit(v, prefix, "conv1.", LZ_ROWS(conv3_rows), &r->conv1, in, out);
    visit(v, prefix, "norm2.", LZ_ROWS(norm_rows), &r->norm2, out, out);
    visit(v, prefix, "conv2.", LZ_ROWS(conv3_rows), &r->conv2, out, out);
    if (in != out) visit(v, prefix, "conv_shortcut.", LZ_ROWS(conv1_rows), &r->shortcut, in, out);
}

static void visit_middle(visitor *v, const char *side, middle *m, int64_t width) {
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%smid_block.resnets.0.", side);
    visit_resnet(v, prefix, &m->before, width, width);
    snprintf(prefix, sizeof prefix, "%smid_block.resnets.1.", side);
    visit_resnet(v, prefix, &m->behind, width, width);
    snprintf(prefix, sizeof prefix, "%smid_block.attentions.0.", side);
    visit(v, prefix, "group_norm.", LZ_ROWS(norm_rows), &m->norm, width, width);
    visit(v, prefix, "", LZ_ROWS(attention_rows), m, width, width);
}

/* block: "down_blocks" or "up_blocks"; first: channels that come in; sampler: what follows the resnets */
static void visit_levels(visitor *v, const char *side, const char *block, const char *sampler, coder *c, int levels,
                         int64_t first) {
    char prefix[96];
    int64_t in = first;
    for (int i = 0; i < levels; i++) {
        for (int j = 0; j < c->resnets; j++) {
            snprintf(prefix, sizeof prefix, "%s%s.%d.resnets.%d.", side, block, i, j);
            visit_resnet(v, prefix, &c->levels[i].resnets[j], in, c->width[i]);
            in = c->width[i];
        }
        snprintf(prefix, sizeof prefix, "%s%s.%d.%s.0.conv.", side, block, i, sampler);
        if (i < levels - 1) visit(v, prefix, "", LZ_ROWS(conv3_rows), &c->levels[i].resize, in, in);
    }
}

static void visit_model(visitor *v, lz_flux2_vae *m) {
    int last = m->levels - 1;
    int64_t deep = m->encoder.width[last], shallow = m->decoder.width[last], latent = m->latent;
    visit(v, "encoder.", "conv_in.", LZ_ROWS(conv3_rows), &m->encoder.in, 3, m->encoder.width[0]);
    visit_levels(v, "encoder.", "down_blocks", "downsamplers", &m->encoder, m->levels, m->encoder.width[0]);
    visit_middle(v, "encoder.", &m->encoder.middle, deep);
    visit(v, "encoder.", "conv_norm_out.", LZ_ROWS(norm_rows), &m->encoder.norm_out, deep, deep);
    visit(v, "encoder.", "conv_out.", LZ_ROWS(conv3_rows), &m->encoder.out, deep, 2 * latent);
    visit(v, "", "quant_conv.", LZ_ROWS(conv1_rows), &m->quant, 2 * latent, 2 * latent);
    visit(v, "", "post_quant_conv.", LZ_ROWS(conv1_rows), &m->post_quant, latent, latent);
    visit(v, "decoder.", "conv_in.", LZ_ROWS(conv3_rows), &m->decoder.in, latent, m->decoder.width[0]);
    visit_middle(v, "decoder.", &m->decoder.middle, m->decoder.width[0]);
    visit_levels(v, "decoder.", "up_blocks", "upsamplers", &m->decoder, m->levels, m->decoder.width[0]);
    visit(v, "decoder.", "conv_norm_out.", LZ_ROWS(norm_rows), &m->decoder.norm_out, shallow, shallow);
    visit(v, "decoder.", "conv_out.", LZ_ROWS(conv3_rows), &m->decoder.out, shallow, 3);
    visit(v, "bn.", "", LZ_ROWS(statistics_rows), m, 1, 1);
}

static lz_status read_config(lz_flux2_vae *m, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_config_open(&c, m->ctx, folder, "config.json", err);
    if (status) return status;
    int64_t narrow[MAX_LEVELS], patch[2] = {2, 2};
    m->levels = lz_config_ints(&c, "block_out_channels", m->encoder.width, MAX_LEVELS, 1, 65536);
    if (!m->levels) lz_config_refuse(&c, "'block_out_channels' is missing");
    int own = lz_config_ints(&c, "decoder_block_out_channels", narrow, MAX_LEVELS, 1, 65536); /* the small decoder */
    if (own && own != m->levels) lz_config_refuse(&c, "encoder and decoder must have as many levels");
    for (int i = 0; i < m->levels; i++)
        m->decoder.width[i] = (own == m->levels ? narrow : m->encoder.width)[m->levels - 1 - i];
    m->encoder.resnets = (int)lz_config_int(&c, "layers_per_block", 2, 1, MAX_RESNETS - 1);
    m->decoder.resnets = m->encoder.resnets + 1;
    m->latent = lz_config_int(&c, "latent_channels", LZ_REQUIRED, 1, 4096);
    m->groups = (int)lz_config_int(&c, "norm_num_groups", 32, 1, 4096);
    m->bn_eps = lz_config_real(&c, "batch_norm_eps", 1e-4);
    for (int i = 0; i < m->levels; i++)
        if (m->encoder.width[i] % m->groups || m->decoder.width[i] % m->groups)
            lz_config_refuse(&c, "channels must part in %d groups", m->groups);
    lz_config_ints(&c, "patch_size", patch, 2, 1, 64);
    if (patch[0] != 2 || patch[1] != 2) lz_config_refuse(&c, "'patch_size' must be [2, 2]");
    if (!lz_config_bool(&c, "mid_block_add_attention", true) || !lz_config_bool(&c, "use_quant_conv", true) ||
        !lz_config_bool(&c, "use_post_quant_conv", true))
        lz_config_refuse(&c, "autoencoders without attention or quantising convolutions are not supported");
    if (c.err.status && err) *err = c.err;
    status = c.err.status;
    lz_config_close(&c);
    return status;
}

lz_flux2_vae *lz_flux2_vae_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_flux2_vae *m = lz_host_alloc(ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    m->ctx = ctx;
    lz_loader l;
    lz_status status = read_config(m, folder, err);
    int64_t sizes[SIZES] = {[ONE] = 1, [THREE] = 3, [TOKEN] = 4 * m->latent};
    if (!status) status = lz_loader_open(&l, ctx, folder, sizes, err);
    if (!status) {
        visit_model(&(visitor){&l, sizes}, m);
        lz_loader_skip(&l, "bn.num_batches_tracked");
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_flux2_vae_close(m);
    return NULL;
}

void lz_flux2_vae_close(lz_flux2_vae *m) {
    if (!m) return;
    if (m->levels) visit_model(&(visitor){NULL, NULL}, m); /* none: its configuration could not be read */
    lz_host_free(m->ctx, m);
}

int64_t lz_flux2_vae_channels(const lz_flux2_vae *m) { return 4 * m->latent; }
int64_t lz_flux2_vae_pixels(const lz_flux2_vae *m) { return (int64_t)2 << (m->levels - 1); }

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static lz_array *channels_last(lz_array *weight) { return lz_permute(weight, LZ_DIMS(0, 2, 3, 1)); }

static lz_array *conv3(lz_array *x, conv c) {
    return lz_conv2d(x, channels_last(c.weight), c.bias, .top = 1, .bottom = 1, .left = 1, .right = 1);
}
static lz_array *conv1(lz_array *x, conv c) { return lz_conv2d(x, channels_last(c.weight), c.bias); }

static lz_array *group_norm(const lz_flux2_vae *m, lz_array *x, norm n) {
    return lz_group_norm(x, m->groups, n.weight, n.bias, 1e-6);
}

static lz_array *run_resnet(const lz_flux2_vae *m, const resnet *r, lz_array *x) {
    lz_array *h = conv3(lz_silu(group_norm(m, x, r->norm1)), r->conv1);
    h = conv3(lz_silu(group_norm(m, h, r->norm2)), r->conv2);
    return lz_add(r->shortcut.weight ? conv1(x, r->shortcut) : x, h);
}

/* One head as wide as the channels, over all pixels. */
static lz_array *run_attention(const lz_flux2_vae *m, const middle *p, lz_array *x) {
    lz_dims d = lz_shape(x); /* [1, h, w, c] */
    lz_array *rows = lz_reshape(group_norm(m, x, p->norm), LZ_DIMS(1, 1, d.at[1] * d.at[2], d.at[3]));
    lz_array *q = lz_linear(rows, p->q, p->q_bias), *k = lz_linear(rows, p->k, p->k_bias),
             *v = lz_linear(rows, p->v, p->v_bias);
    return lz_add(x, lz_reshape(lz_linear(lz_sdpa(q, k, v), p->out, p->out_bias), d));
}

static lz_array *run_middle(const lz_flux2_vae *m, const middle *p, lz_array *x) {
    return run_resnet(m, &p->behind, run_attention(m, p, run_resnet(m, &p->before, x)));
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

lz_array *lz_flux2_unpatch(lz_array *tokens, int64_t h, int64_t w) {
    int64_t c = lz_shape(tokens).at[1] / 4;
    lz_array *x = lz_reshape(tokens, LZ_DIMS(h, w, c, 2, 2)); /* row, column, channel, row parity, column parity */
    return lz_reshape(lz_permute(x, LZ_DIMS(0, 3, 1, 4, 2)), LZ_DIMS(1, 2 * h, 2 * w, c));
}

lz_array *lz_flux2_patch(lz_array *latents) {
    lz_dims d = lz_shape(latents); /* [1, 2h, 2w, c] */
    lz_array *x = lz_reshape(latents, LZ_DIMS(d.at[1] / 2, 2, d.at[2] / 2, 2, d.at[3]));
    return lz_reshape(lz_permute(x, LZ_DIMS(0, 2, 4, 1, 3)), LZ_DIMS(d.at[1] / 2 * (d.at[2] / 2), 4 * d.at[3]));
}

static lz_array *spread(const lz_flux2_vae *m) { return lz_sqrt(lz_add(lz_cast(m->var, LZ_F32), m->bn_eps)); }

/* ---- both ways --------------------------------------------------------------------------------------------------- */

lz_array *lz_flux2_vae_encode(const lz_flux2_vae *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "encode");
    lz_dims d = lz_shape(picture);
    lz_array *x = lz_cast(lz_reshape(picture, LZ_DIMS(1, d.at[0], d.at[1], 3)), lz_compute_type(m->ctx));
    x = conv3(x, m->encoder.in);
    for (int i = 0; i < m->levels; i++) {
        const level *p = &m->encoder.levels[i];
        for (int j = 0; j < m->encoder.resnets; j++) x = run_resnet(m, &p->resnets[j], x);
        /* Halving pads on the right and below only, so that pixel 0 stays the middle of the first window. */
        if (p->resize.weight)
            x = lz_conv2d(x, channels_last(p->resize.weight), p->resize.bias, .stride = 2, .bottom = 1, .right = 1);
    }
    x = run_middle(m, &m->encoder.middle, x);
    x = conv1(conv3(lz_silu(group_norm(m, x, m->encoder.norm_out)), m->encoder.out), m->quant);
    x = lz_flux2_patch(lz_cast(lz_slice(x, 3, 0, m->latent, 1), LZ_F32)); /* the mean; the spread is not used */
    return lz_scope_return(scope, lz_div(lz_sub(x, lz_cast(m->mean, LZ_F32)), spread(m)));
}

lz_array *lz_flux2_vae_decode(const lz_flux2_vae *m, lz_array *tokens, int64_t h, int64_t w) {
    lz_scope *scope = lz_scope_begin(m->ctx, "decode");
    lz_array *x = lz_flux2_unpatch(lz_add(lz_mul(tokens, spread(m)), lz_cast(m->mean, LZ_F32)), h, w);
    x = conv3(conv1(lz_cast(x, lz_compute_type(m->ctx)), m->post_quant), m->decoder.in);
    x = run_middle(m, &m->decoder.middle, x);
    for (int i = 0; i < m->levels; i++) {
        const level *p = &m->decoder.levels[i];
        for (int j = 0; j < m->decoder.resnets; j++) x = run_resnet(m, &p->resnets[j], x);
        if (p->resize.weight) x = conv3(lz_upsample_nearest(x, 2), p->resize);
    }
    x = conv3(lz_silu(group_norm(m, x, m->decoder.norm_out)), m->decoder.out);
    lz_dims d = lz_shape(x);
    return lz_scope_return(scope, lz_cast(lz_reshape(x, LZ_DIMS(d.at[1], d.at[2], 3)), LZ_F32));
}
