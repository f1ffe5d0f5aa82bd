/* qwen_vae.c: AutoencoderKLQwenImage, an autoencoder for films, used for single pictures: the architecture of vae.h,
 * with 1x1 convolutions between encoder or decoder and the latents. The encoder's mean is used. Upsampling layers halve
 * the channels.
 *
 * Its convolutions are causal in time: the last of the three time slices of a kernel is applied to the picture, the
 * others to earlier frames, which do not exist. So each is a 2D convolution with the last slice, and layers that
 * resample time are not used.
 *
 * The norms scale each pixel to unit mean square. The autoencoder of Qwen-Image-Layered has a fourth channel, opacity. */
#include "models/qwen_vae.h"

#include <stdio.h>

#include "models/flux2_vae.h"
#include "models/signature.h"
#include "models/vae.h"

struct lz_qwen_vae {
    lz_context *ctx;
    lz_coder encoder, decoder;
    lz_affine quant, post_quant;
    lz_statistics latents;
    int colours;
};

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static const lz_weight causal3_rows[] = {
    {"weight", offsetof(lz_affine, weight), {LZ_OUT, LZ_IN, LZ_THREE, LZ_THREE, LZ_THREE}},
    {"bias", offsetof(lz_affine, bias), {LZ_OUT}}};
static const lz_weight causal1_rows[] = {
    {"weight", offsetof(lz_affine, weight), {LZ_OUT, LZ_IN, LZ_ONE, LZ_ONE, LZ_ONE}},
    {"bias", offsetof(lz_affine, bias), {LZ_OUT}}};
static const lz_weight resnet_rows[] = {
    {"norm1.gamma", offsetof(lz_resnet, norm1.weight), {LZ_IN, LZ_ONE, LZ_ONE, LZ_ONE}},
    {"norm2.gamma", offsetof(lz_resnet, norm2.weight), {LZ_OUT, LZ_ONE, LZ_ONE, LZ_ONE}},
    LZ_AFFINE("conv1", lz_resnet, conv1, LZ_OUT, LZ_IN, LZ_THREE, LZ_THREE, LZ_THREE),
    LZ_AFFINE("conv2", lz_resnet, conv2, LZ_OUT, LZ_OUT, LZ_THREE, LZ_THREE, LZ_THREE),
};
static const lz_weight attention_rows[] = {
    {"norm.gamma", offsetof(lz_coder, norm.weight), {LZ_OUT, LZ_ONE, LZ_ONE}},
    LZ_AFFINE("to_qkv", lz_coder, qkv[0], LZ_OUT3, LZ_IN, LZ_ONE, LZ_ONE),
    LZ_AFFINE("proj", lz_coder, attention_out, LZ_OUT, LZ_IN, LZ_ONE, LZ_ONE),
};
static const lz_weight norm_out_rows[] = {
    {"norm_out.gamma", offsetof(lz_coder, norm_out.weight), {LZ_OUT, LZ_ONE, LZ_ONE, LZ_ONE}}};
/* Resizing layers are 2D convolutions. */
static const lz_weight resize_rows[] = {
    {"resample.1.weight", offsetof(lz_affine, weight), {LZ_OUT, LZ_IN, LZ_THREE, LZ_THREE}},
    {"resample.1.bias", offsetof(lz_affine, bias), {LZ_OUT}}};

static const lz_vae_kind kind = {
    .norm = lz_vae_pixel_norm,
    .attention = lz_vae_joint_attention,
    .conv3 = {LZ_ROWS(causal3_rows)},
    .conv1 = {LZ_ROWS(causal1_rows)},
    .resnet = {LZ_ROWS(resnet_rows)},
    .attention_rows = {LZ_ROWS(attention_rows)},
    .norm_out = {LZ_ROWS(norm_out_rows)},
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* A resizing layer: a convolution in space, and one in time, which is not used for a single picture. */
static void visit_resize(lz_loader *l, const char *prefix, lz_affine *c, int64_t in, int64_t out) {
    char name[160];
    snprintf(name, sizeof name, "%stime_conv.", prefix);
    lz_vae_visit(l, prefix, "", (lz_table){LZ_ROWS(resize_rows)}, c, in, out);
    if (l) lz_loader_skip(l, name);
}

/* In the files, the encoder's blocks are one flat list. */
static void visit_down(lz_loader *l, lz_coder *c) {
    char prefix[96];
    int64_t in = c->width[0];
    for (int i = 0, at = 0; i < c->levels; i++) {
        for (int j = 0; j < c->n_resnets; j++) {
            snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d.", at++);
            lz_vae_visit_resnet(l, &kind, prefix, &c->resnets[i][j], in, c->width[i]);
            in = c->width[i];
        }
        snprintf(prefix, sizeof prefix, "encoder.down_blocks.%d.", at++);
        if (i < c->levels - 1) visit_resize(l, prefix, &c->resize[i], in, in);
    }
}

static void visit_up(lz_loader *l, lz_coder *c) {
    char prefix[96];
    int64_t in = c->width[0];
    for (int i = 0; i < c->levels; i++) {
        int64_t out = c->width[i];
        for (int j = 0; j < c->n_resnets; j++) {
            snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.resnets.%d.", i, j);
            lz_vae_visit_resnet(l, &kind, prefix, &c->resnets[i][j], j ? out : in, out);
        }
        snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.upsamplers.0.", i);
        if (i < c->levels - 1) visit_resize(l, prefix, &c->resize[i], out, out / 2);
        in = out / 2;
    }
}

static void visit_model(lz_loader *l, lz_qwen_vae *m) {
    int64_t latent = m->latents.channels;
    lz_vae_visit_coder(l, "encoder.", &m->encoder, m->colours, m->encoder.width[m->encoder.levels - 1], 2 * latent);
    visit_down(l, &m->encoder);
    lz_vae_visit(l, "quant_conv.", "", kind.conv1, &m->quant, 2 * latent, 2 * latent);
    lz_vae_visit(l, "post_quant_conv.", "", kind.conv1, &m->post_quant, latent, latent);
    lz_vae_visit_coder(l, "decoder.", &m->decoder, latent, m->decoder.width[0], m->colours);
    visit_up(l, &m->decoder);
}

/* Statistics of the published model, whose configuration has them too. */
static const double published_mean[] = {-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,  -0.1517, 1.5508,
                                        0.4134,  -0.0715, 0.5517,  -0.3632, -0.1922, -0.9497, 0.2503,  -0.2921},
                    published_spread[] = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                                          3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160};
enum { PUBLISHED = sizeof published_mean / sizeof published_mean[0] };

static lz_status read_config(lz_qwen_vae *m, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, &lz_names_qwen_vae, err);
    if (status) return status;
    int64_t times[LZ_MAX_LEVELS], base = lz_config_int(&c, "base_dim", 96, 1, 4096);
    int levels = lz_config_ints(&c, "dim_mult", times, LZ_MAX_LEVELS, 1, 64);
    if (!levels) lz_config_refuse(&c, "'dim_mult' is missing");
    int resnets = (int)lz_config_int(&c, "num_res_blocks", 2, 1, LZ_MAX_RESNETS - 1);
    m->encoder = (lz_coder){.kind = &kind, .levels = levels, .n_resnets = resnets};
    m->decoder = (lz_coder){.kind = &kind, .levels = levels, .n_resnets = resnets + 1};
    for (int i = 0; i < levels; i++) {
        m->encoder.width[i] = base * times[i];
        m->decoder.width[i] = base * times[levels - 1 - i];
        if (i < levels - 1 && m->decoder.width[i] % 2) lz_config_refuse(&c, "channels must be even to be halved");
    }
    m->latents.channels = lz_config_int(&c, "z_dim", 16, 1, LZ_MAX_LATENT);
    m->colours = (int)lz_config_int(&c, "input_channels", 3, 1, 64);
    if (m->colours != 3 && m->colours != 4) lz_config_refuse(&c, "'input_channels' must be 3, or 4 with opacity");
    if (json_array_size(json_object_get(c.root, "attn_scales")))
        lz_config_refuse(&c, "'attn_scales' is not empty: attention outside the middle is not supported");
    lz_vae_read_statistics(&c, published_mean, published_spread, PUBLISHED, &m->latents);
    /* Fields about training and about the time axis. */
    static const char *const harmless[] = {"dropout", "temperal_downsample", "attn_scales", NULL};
    lz_config_refuse_rest(&c, harmless);
    return lz_config_end(&c, err);
}

lz_qwen_vae *lz_qwen_vae_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_qwen_vae *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    lz_loader l;
    lz_status status = m ? read_config(m, folder, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen_vae, NULL, err);
    if (!status) {
        visit_model(&l, m);
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen_vae_close(m);
    return NULL;
}

void lz_qwen_vae_close(lz_qwen_vae *m) {
    if (!m) return;
    if (m->encoder.levels) visit_model(NULL, m); /* 0 levels: the configuration could not be read */
    lz_host_free(m->ctx, m);
}

int64_t lz_qwen_vae_channels(const lz_qwen_vae *m) { return m->latents.channels; }
int lz_qwen_vae_colours(const lz_qwen_vae *m) { return m->colours; }
int64_t lz_qwen_vae_pixels(const lz_qwen_vae *m) { return (int64_t)2 << (m->encoder.levels - 1); }

/* ---- both ways --------------------------------------------------------------------------------------------------- */

lz_array *lz_qwen_vae_encode(const lz_qwen_vae *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "encode");
    lz_array *x = lz_vae_conv1(lz_vae_encode(&m->encoder, lz_vae_opaque(picture, m->colours)), m->quant);
    x = lz_cast(lz_slice(x, 3, 0, m->latents.channels, 1), LZ_F32); /* the mean; the variance is not used */
    return lz_scope_return(scope, lz_flux2_patch(lz_vae_normalise(&m->latents, x)));
}

lz_array *lz_qwen_vae_decode(const lz_qwen_vae *m, lz_array *tokens, int64_t h, int64_t w) {
    lz_scope *scope = lz_scope_begin(m->ctx, "decode");
    lz_array *x = lz_flux2_unpatch(tokens, h, w);
    x = lz_vae_restore(&m->latents, x);
    x = lz_vae_conv1(lz_cast(x, lz_compute_type(m->ctx)), m->post_quant);
    return lz_scope_return(scope, lz_vae_decode(&m->decoder, x));
}
