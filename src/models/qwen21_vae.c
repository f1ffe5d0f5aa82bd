/* qwen21_vae.c: AutoencoderKLQwenImage21, the autoencoder of Wan 2.2 for single pictures: the architecture of vae.h,
 * with 1x1 convolutions between encoder or decoder and the latents, and a shortcut around each level. The encoder's mean
 * is used. Encoder and decoder have different widths, and pictures have four channels: colours and opacity.
 *
 * A shortcut moves pixels to channels (encoder) or channels to pixels (decoder), and takes means or copies to arrive at
 * the number of channels of the level. It is that of films, whose earlier frames are zero for a single picture, so it
 * depends on whether the level also resizes time. */
#include "models/qwen21_vae.h"

#include <math.h>
#include <stdio.h>

#include "models/flux2_vae.h"
#include "models/signature.h"
#include "models/vae.h"

enum { COLOURS = 4 };

struct lz_qwen21_vae {
    lz_context *ctx;
    lz_coder encoder, decoder;
    lz_affine quant, post_quant;
    lz_statistics latents;
};

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static const lz_weight conv3_rows[] = {{"weight", offsetof(lz_affine, weight), {LZ_OUT, LZ_IN, LZ_THREE, LZ_THREE}},
                                       {"bias", offsetof(lz_affine, bias), {LZ_OUT}}};
static const lz_weight conv1_rows[] = {{"weight", offsetof(lz_affine, weight), {LZ_OUT, LZ_IN, LZ_ONE, LZ_ONE}},
                                       {"bias", offsetof(lz_affine, bias), {LZ_OUT}}};
static const lz_weight resnet_rows[] = {
    {"norm1.gamma", offsetof(lz_resnet, norm1.weight), {LZ_IN, LZ_ONE, LZ_ONE, LZ_ONE}},
    {"norm2.gamma", offsetof(lz_resnet, norm2.weight), {LZ_OUT, LZ_ONE, LZ_ONE, LZ_ONE}},
    LZ_AFFINE("conv1", lz_resnet, conv1, LZ_OUT, LZ_IN, LZ_THREE, LZ_THREE),
    LZ_AFFINE("conv2", lz_resnet, conv2, LZ_OUT, LZ_OUT, LZ_THREE, LZ_THREE),
};
static const lz_weight attention_rows[] = {
    {"norm.gamma", offsetof(lz_coder, norm.weight), {LZ_OUT, LZ_ONE, LZ_ONE}},
    LZ_AFFINE("to_qkv", lz_coder, qkv[0], LZ_OUT3, LZ_IN, LZ_ONE, LZ_ONE),
    LZ_AFFINE("proj", lz_coder, attention_out, LZ_OUT, LZ_IN, LZ_ONE, LZ_ONE),
};
static const lz_weight norm_out_rows[] = {
    {"norm_out.gamma", offsetof(lz_coder, norm_out.weight), {LZ_OUT, LZ_ONE, LZ_ONE, LZ_ONE}}};

/* [1, h, w, in] -> [1, h/2, w/2, out], or of the last level [1, h, w, out]. Output channel o is the mean of channels
 * o g, ..., o g + g - 1 of in x time x row x column. */
static lz_array *down_shortcut(const lz_coder *c, int level, lz_array *x) {
    lz_dims d = lz_shape(x);
    int64_t side = c->resize[level].weight ? 2 : 1, h = d.at[1] / side, w = d.at[2] / side, in = d.at[3];
    x = lz_permute(lz_reshape(x, LZ_DIMS(h, side, w, side, in)), LZ_DIMS(0, 2, 4, 1, 3));
    x = lz_reshape(x, LZ_DIMS(h, w, in, 1, side * side));
    if (c->in_time[level]) x = lz_pad(x, LZ_DIMS(0, 0, 0, 1, 0), LZ_DIMS(0, 0, 0, 0, 0), 0); /* the frame before */
    x = lz_mean(lz_reshape(x, LZ_DIMS(h, w, c->width[level], -1)), LZ_DIMS(3), false);
    return lz_reshape(x, LZ_DIMS(1, h, w, c->width[level]));
}

/* [1, h, w, in] -> [1, 2h, 2w, out]; NULL for the last level, which has none. Channels of out x time x row x column are
 * copies of the input channels, `copies` of each; the last frame is used. */
static lz_array *up_shortcut(const lz_coder *c, int level, lz_array *x) {
    lz_dims d = lz_shape(x);
    if (d.n != 4 || !c->resize[level].weight) return NULL; /* d.n: x is poisoned */
    int64_t h = d.at[1], w = d.at[2], out = c->width[level], times = c->in_time[level] ? 2 : 1;
    int64_t copies = out * times * 4 / d.at[3];
    int64_t *source = lz_host_alloc(x->ctx, (size_t)(4 * out) * sizeof *source);
    if (!source) return lz_poison(x->ctx, LZ_OUT_OF_MEMORY, "shortcut");
    for (int64_t corner = 0; corner < 4; corner++)
        for (int64_t o = 0; o < out; o++) source[corner * out + o] = ((o * times + times - 1) * 4 + corner) / copies;
    x = lz_take(x, lz_from(x->ctx, LZ_DIMS(4 * out), LZ_I64, source), 3); /* [1, h, w, 4 out] */
    lz_host_free(x->ctx, source);
    x = lz_permute(lz_reshape(x, LZ_DIMS(h, w, 2, 2, out)), LZ_DIMS(0, 2, 1, 3, 4));
    return lz_reshape(x, LZ_DIMS(1, 2 * h, 2 * w, out));
}

static const lz_vae_kind kind = {
    .norm = lz_vae_pixel_norm,
    .attention = lz_vae_joint_attention,
    .conv3 = {LZ_ROWS(conv3_rows)},
    .conv1 = {LZ_ROWS(conv1_rows)},
    .resnet = {LZ_ROWS(resnet_rows)},
    .attention_rows = {LZ_ROWS(attention_rows)},
    .norm_out = {LZ_ROWS(norm_out_rows)},
    .encoder_shortcut = down_shortcut,
    .decoder_shortcut = up_shortcut,
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* The levels of a side. list: "encoder.down_blocks", resize: "downsampler". time_conv is for films. */
static void visit_levels(lz_loader *l, lz_coder *c, const char *list, const char *resize) {
    char prefix[96];
    for (int i = 0; i < c->levels; i++) {
        int64_t in = c->width[i ? i - 1 : 0], out = c->width[i];
        for (int j = 0; j < c->n_resnets; j++) {
            snprintf(prefix, sizeof prefix, "%s.%d.resnets.%d.", list, i, j);
            lz_vae_visit_resnet(l, &kind, prefix, &c->resnets[i][j], j ? out : in, out);
        }
        if (i == c->levels - 1) break;
        snprintf(prefix, sizeof prefix, "%s.%d.%s.", list, i, resize);
        lz_vae_visit(l, prefix, "resample.1.", kind.conv3, &c->resize[i], out, out);
        snprintf(prefix, sizeof prefix, "%s.%d.%s.time_conv.", list, i, resize);
        if (l) lz_loader_skip(l, prefix);
    }
}

static void visit_model(lz_loader *l, lz_qwen21_vae *m) {
    int64_t latent = m->latents.channels;
    lz_vae_visit_coder(l, "encoder.", &m->encoder, COLOURS, m->encoder.width[m->encoder.levels - 1], 2 * latent);
    visit_levels(l, &m->encoder, "encoder.down_blocks", "downsampler");
    lz_vae_visit(l, "quant_conv.", "", kind.conv1, &m->quant, 2 * latent, 2 * latent);
    lz_vae_visit(l, "post_quant_conv.", "", kind.conv1, &m->post_quant, latent, latent);
    lz_vae_visit_coder(l, "decoder.", &m->decoder, latent, m->decoder.width[0], COLOURS);
    visit_levels(l, &m->decoder, "decoder.up_blocks", "upsampler");
}

/* Statistics of the published model, for files without a configuration. */
static const double published_mean[] = {
    0.5126,  0.7721,  -0.0631, 1.3506,  -0.7855, -2.1025, -0.3458, 1.3722,  1.8873,  -1.7177, -0.651,  0.2732,  0.7562,
    -0.6163, -1.0277, 3.8363,  2.021,   0.0472,  0.932,   2.0087,  2.4954,  -0.1391, -1.4249, 1.8464,  -0.5236, 1.2826,
    3.7046,  -1.3035, 2.7286,  -1.4518, -1.9036, -1.9955, -0.0342, -1.0265, -0.7636, 3.0555,  0.0746,  -3.0751, -0.1076,
    1.7376,  -1.0914, -1.9435, -0.2784, -1.368,  0.4809,  -0.4433, 0.3764,  0.5729,  -2.0595, 1.096,   -1.326,  -2.0211,
    -5.0179, 0.5275,  4.0162,  1.8505,  0.3026,  1.9373,  1.4937,  0.2632,  0.5547,  -1.7121, -0.1562, 0.0304};
static const double published_spread[] = {
    3.2001, 3.2936, 3.4321, 3.0091, 3.1061, 4.0379, 4.0705, 3.791,  3.0785, 3.65,   3.9308, 3.0904, 2.8778,
    3.7675, 3.732,  5.0756, 3.2864, 4.0397, 3.1317, 4.0443, 2.9249, 3.9454, 3.0988, 4.2489, 3.4896, 3.8513,
    3.9323, 3.4719, 3.7498, 4.283,  3.5694, 4.2467, 3.9037, 3.2947, 5.077,  3.5075, 3.27,   3.4767, 2.8063,
    5.1125, 3.5327, 4.7833, 3.1286, 4.1819, 3.8527, 3.8312, 3.5605, 4.3875, 3.9624, 4.0168, 3.5643, 4.055,
    5.5614, 4.2963, 4.408,  3.4959, 3.8747, 3.7608, 3.5735, 3.149,  3.7662, 3.6746, 3.4563, 3.8161};
enum { PUBLISHED = sizeof published_mean / sizeof published_mean[0] };

/* Which levels of the encoder also halve the time of films; by default all but the first. */
static void read_times(lz_config *c, int levels, bool *to) {
    const json_t *list = json_object_get(c->root, "temperal_downsample");
    bool fine = !list || (json_is_array(list) && json_array_size(list) == (size_t)levels - 1);
    for (int i = 0; i < levels - 1; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        fine = fine && (!list || json_is_boolean(value));
        to[i] = list ? json_is_true(value) : i > 0;
    }
    if (!fine) lz_config_refuse(c, "'temperal_downsample' must be true or false for each level but the last");
}

/* The sums of a shortcut must come out even. */
static void check_shortcuts(lz_config *c, const lz_coder *coder, bool up) {
    for (int i = 0; i < coder->levels - up; i++) { /* the last level of a decoder has none */
        int64_t in = coder->width[i ? i - 1 : 0], out = coder->width[i];
        int64_t factor = (i < coder->levels - 1 ? 4 : 1) * (coder->in_time[i] ? 2 : 1);
        bool fine = up ? out * factor % in == 0 : in * factor % out == 0;
        if (!fine)
            lz_config_refuse(c, "the shortcut of a level cannot turn %lld channels into %lld", (long long)in,
                             (long long)out);
    }
}

static void read_shape(lz_qwen21_vae *m, lz_config *c) {
    int64_t times[LZ_MAX_LEVELS], base = lz_config_int(c, "base_dim", 96, 1, 4096),
                                  decoder_base = lz_config_int(c, "decoder_base_dim", base, 1, 4096);
    int levels = lz_config_ints(c, "dim_mult", times, LZ_MAX_LEVELS, 1, 64);
    int resnets = (int)lz_config_int(c, "num_res_blocks", 2, 1, LZ_MAX_RESNETS - 1);
    if (!levels || times[0] != 1) lz_config_refuse(c, "'dim_mult' must be a list that begins with 1");
    m->encoder = (lz_coder){.kind = &kind, .levels = levels, .n_resnets = resnets};
    m->decoder = (lz_coder){.kind = &kind, .levels = levels, .n_resnets = resnets + 1};
    if (c->err.status) return;
    read_times(c, levels, m->encoder.in_time);
    for (int i = 0; i < levels; i++) {
        m->encoder.width[i] = base * times[i];
        m->decoder.width[i] = decoder_base * times[levels - 1 - i];
        if (i < levels - 1) m->decoder.in_time[i] = m->encoder.in_time[levels - 2 - i];
    }
    check_shortcuts(c, &m->encoder, false);
    check_shortcuts(c, &m->decoder, true);
    if (lz_config_int(c, "scale_factor_spatial", 1 << (levels - 1), 1, 1 << 20) != 1 << (levels - 1))
        lz_config_refuse(c, "'scale_factor_spatial' must be %d, with so many levels", 1 << (levels - 1));
}

static lz_status read_config(lz_qwen21_vae *m, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, &lz_names_qwen21_vae, err);
    if (status) return status;
    read_shape(m, &c);
    m->latents.channels = lz_config_int(&c, "z_dim", 64, 1, LZ_MAX_LATENT);
    if (lz_config_int(&c, "in_channels", COLOURS, 1, 64) != COLOURS ||
        lz_config_int(&c, "out_channels", COLOURS, 1, 64) != COLOURS)
        lz_config_refuse(&c, "'in_channels' and 'out_channels' must be %d", COLOURS);
    if (!lz_config_bool(&c, "is_residual", true))
        lz_config_refuse(&c, "'is_residual' is false, which is not supported");
    if (lz_config_int(&c, "patch_size", 1, 1, 64) != 1) lz_config_refuse(&c, "'patch_size' must be 1");
    const json_t *scales = json_object_get(c.root, "attn_scales");
    if (scales && !json_is_null(scales) && (!json_is_array(scales) || json_array_size(scales)))
        lz_config_refuse(&c, "'attn_scales' is not an empty list: attention outside the middle is not supported");
    lz_vae_read_statistics(&c, published_mean, published_spread, PUBLISHED, &m->latents);
    /* About training and the time of films; the lists are read above. */
    static const char *const harmless[] = {"dropout", "scale_factor_temporal", "temperal_downsample", "attn_scales",
                                           NULL};
    lz_config_refuse_rest(&c, harmless);
    return lz_config_end(&c, err);
}

lz_qwen21_vae *lz_qwen21_vae_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_qwen21_vae *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    lz_loader l;
    lz_status status = m ? read_config(m, folder, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen21_vae, NULL, err);
    if (!status) {
        visit_model(&l, m);
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen21_vae_close(m);
    return NULL;
}

void lz_qwen21_vae_close(lz_qwen21_vae *m) {
    if (!m) return;
    if (m->encoder.levels) visit_model(NULL, m); /* 0 levels: the configuration could not be read */
    lz_host_free(m->ctx, m);
}

int64_t lz_qwen21_vae_channels(const lz_qwen21_vae *m) { return m->latents.channels; }
int64_t lz_qwen21_vae_pixels(const lz_qwen21_vae *m) { return (int64_t)2 << (m->encoder.levels - 1); }

/* ---- both ways --------------------------------------------------------------------------------------------------- */

lz_array *lz_qwen21_vae_encode(const lz_qwen21_vae *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "encode");
    lz_array *x = lz_vae_conv1(lz_vae_encode(&m->encoder, lz_vae_opaque(picture, COLOURS)), m->quant);
    x = lz_cast(lz_slice(x, 3, 0, m->latents.channels, 1), LZ_F32); /* the mean; the variance is not used */
    return lz_scope_return(scope, lz_flux2_patch(lz_vae_normalise(&m->latents, x)));
}

lz_array *lz_qwen21_vae_decode(const lz_qwen21_vae *m, lz_array *tokens, int64_t h, int64_t w) {
    lz_scope *scope = lz_scope_begin(m->ctx, "decode");
    lz_array *x = lz_flux2_unpatch(tokens, h, w);
    x = lz_vae_restore(&m->latents, x);
    x = lz_vae_conv1(lz_cast(x, lz_compute_type(m->ctx)), m->post_quant);
    return lz_scope_return(scope, lz_clip(lz_vae_decode(&m->decoder, x), -1, 1)); /* [h, w, 4] */
}
