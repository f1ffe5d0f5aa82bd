/* flux2_vae.c: AutoencoderKLFlux2: the architecture of vae.h, with 1x1 convolutions between encoder or decoder and the
 * latents. The encoder's mean is used. Group norms have eps 1e-6; the token statistics have a different eps, from the
 * configuration. FLUX.1's AutoencoderKL is the same without statistics and, as published, without these convolutions. */
#include "models/flux2_vae.h"

#include <math.h>
#include <stdio.h>

#include "models/signature.h"
#include "models/vae.h"

struct lz_flux2_vae {
    lz_context *ctx;
    int64_t latent;
    const lz_component *component;
    double bn_eps;        /* of FLUX.2 */
    double shift, factor; /* of FLUX.1: a token is (latent - shift) factor */
    bool has_quant, has_post_quant;
    lz_coder encoder, decoder;
    lz_affine quant, post_quant;
    lz_param *mean, *var; /* [4 latent]; of FLUX.2 */
};

static bool is_flux1(const lz_flux2_vae *m) { return m->component == &lz_names_flux1_vae; }

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static const lz_weight conv3_rows[] = {{"weight", offsetof(lz_affine, weight), {LZ_OUT, LZ_IN, LZ_THREE, LZ_THREE}},
                                       {"bias", offsetof(lz_affine, bias), {LZ_OUT}}};
static const lz_weight conv1_rows[] = {{"weight", offsetof(lz_affine, weight), {LZ_OUT, LZ_IN, LZ_ONE, LZ_ONE}},
                                       {"bias", offsetof(lz_affine, bias), {LZ_OUT}}};
static const lz_weight resnet_rows[] = {
    LZ_AFFINE("norm1", lz_resnet, norm1, LZ_IN),
    LZ_AFFINE("conv1", lz_resnet, conv1, LZ_OUT, LZ_IN, LZ_THREE, LZ_THREE),
    LZ_AFFINE("norm2", lz_resnet, norm2, LZ_OUT),
    LZ_AFFINE("conv2", lz_resnet, conv2, LZ_OUT, LZ_OUT, LZ_THREE, LZ_THREE),
};
static const lz_weight attention_rows[] = {
    LZ_AFFINE("group_norm", lz_coder, norm, LZ_OUT),
    LZ_AFFINE("to_q", lz_coder, qkv[0], LZ_OUT, LZ_IN),
    LZ_AFFINE("to_k", lz_coder, qkv[1], LZ_OUT, LZ_IN),
    LZ_AFFINE("to_v", lz_coder, qkv[2], LZ_OUT, LZ_IN),
    LZ_AFFINE("to_out.0", lz_coder, attention_out, LZ_OUT, LZ_IN),
};
static const lz_weight norm_out_rows[] = {LZ_AFFINE("conv_norm_out", lz_coder, norm_out, LZ_OUT)};
static const lz_weight statistics_rows[] = {
    {"running_mean", offsetof(lz_flux2_vae, mean), {LZ_OUT}},
    {"running_var", offsetof(lz_flux2_vae, var), {LZ_OUT}},
};

static lz_array *group_norm(const lz_coder *c, lz_array *x, lz_affine n) {
    return lz_group_norm(x, c->groups, lz_dense(n.weight), lz_dense(n.bias), 1e-6);
}

static lz_array *attention(const lz_coder *c, lz_array *x) {
    lz_array *qkv[3];
    for (int i = 0; i < 3; i++) qkv[i] = lz_apply_affine(x, c->qkv[i]);
    return lz_apply_affine(lz_sdpa(qkv[0], qkv[1], qkv[2]), c->attention_out);
}

static const lz_vae_kind kind = {
    .norm = group_norm,
    .attention = attention,
    .conv3 = {LZ_ROWS(conv3_rows)},
    .conv1 = {LZ_ROWS(conv1_rows)},
    .resnet = {LZ_ROWS(resnet_rows)},
    .attention_rows = {LZ_ROWS(attention_rows)},
    .norm_out = {LZ_ROWS(norm_out_rows)},
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* block: "down_blocks" or "up_blocks"; sampler: the name of the layer after the resnets */
static void visit_levels(lz_loader *l, const char *side, const char *block, const char *sampler, lz_coder *c) {
    char prefix[96];
    int64_t in = c->width[0];
    for (int i = 0; i < c->levels; i++) {
        for (int j = 0; j < c->n_resnets; j++) {
            snprintf(prefix, sizeof prefix, "%s%s.%d.resnets.%d.", side, block, i, j);
            lz_vae_visit_resnet(l, &kind, prefix, &c->resnets[i][j], in, c->width[i]);
            in = c->width[i];
        }
        snprintf(prefix, sizeof prefix, "%s%s.%d.%s.0.conv.", side, block, i, sampler);
        if (i < c->levels - 1) lz_vae_visit(l, prefix, "", kind.conv3, &c->resize[i], in, in);
    }
}

static void visit_model(lz_loader *l, lz_flux2_vae *m) {
    int64_t latent = m->latent;
    lz_vae_visit_coder(l, "encoder.", &m->encoder, 3, m->encoder.width[m->encoder.levels - 1], 2 * latent);
    visit_levels(l, "encoder.", "down_blocks", "downsamplers", &m->encoder);
    if (m->has_quant) lz_vae_visit(l, "quant_conv.", "", kind.conv1, &m->quant, 2 * latent, 2 * latent);
    if (m->has_post_quant) lz_vae_visit(l, "post_quant_conv.", "", kind.conv1, &m->post_quant, latent, latent);
    lz_vae_visit_coder(l, "decoder.", &m->decoder, latent, m->decoder.width[0], 3);
    visit_levels(l, "decoder.", "up_blocks", "upsamplers", &m->decoder);
    if (!is_flux1(m)) lz_vae_visit(l, "bn.", "", (lz_table){LZ_ROWS(statistics_rows)}, m, 1, 4 * latent);
}

/* Fields about training. */
static const char *const harmless[] = {"batch_norm_momentum", "force_upcast", "sample_size", NULL};

/* Refuses values that are not implemented. */
static void check_kind(const lz_flux2_vae *m, lz_config *c) {
    static const char *const acts[] = {"silu", "swish", NULL}, *const down[] = {"DownEncoderBlock2D", NULL},
                             *const up[] = {"UpDecoderBlock2D", NULL};
    lz_config_choice(c, "act_fn", acts);
    lz_config_choice(c, "down_block_types", down);
    lz_config_choice(c, "up_block_types", up);
    if (lz_config_int(c, "in_channels", 3, 1, 64) != 3 || lz_config_int(c, "out_channels", 3, 1, 64) != 3)
        lz_config_refuse(c, "'in_channels' and 'out_channels' must be 3");
    if (!lz_config_bool(c, "mid_block_add_attention", true) || (!is_flux1(m) && !(m->has_quant && m->has_post_quant)))
        lz_config_refuse(c, "autoencoders without attention or quantising convolutions are not supported");
    lz_config_refuse_rest(c, harmless);
}

static lz_status read_config(lz_flux2_vae *m, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, m->component, err);
    if (status) return status;
    int64_t wide[LZ_MAX_LEVELS], narrow[LZ_MAX_LEVELS], patch[2] = {2, 2};
    int levels = lz_config_ints(&c, "block_out_channels", wide, LZ_MAX_LEVELS, 1, 65536);
    if (!levels) lz_config_refuse(&c, "'block_out_channels' is missing");
    int own = lz_config_ints(&c, "decoder_block_out_channels", narrow, LZ_MAX_LEVELS, 1, 65536); /* the small decoder */
    if (own && own != levels) lz_config_refuse(&c, "encoder and decoder must have as many levels");
    int resnets = (int)lz_config_int(&c, "layers_per_block", 2, 1, LZ_MAX_RESNETS - 1);
    int groups = (int)lz_config_int(&c, "norm_num_groups", 32, 1, 4096);
    m->encoder = (lz_coder){.kind = &kind, .groups = groups, .levels = levels, .n_resnets = resnets};
    m->decoder = (lz_coder){.kind = &kind, .groups = groups, .levels = levels, .n_resnets = resnets + 1};
    for (int i = 0; i < levels; i++) {
        m->encoder.width[i] = wide[i];
        m->decoder.width[i] = (own == levels ? narrow : wide)[levels - 1 - i];
        if (m->encoder.width[i] % groups || m->decoder.width[i] % groups)
            lz_config_refuse(&c, "channels must part in %d groups", groups);
    }
    m->latent = lz_config_int(&c, "latent_channels", LZ_REQUIRED, 1, 4096);
    m->has_quant = lz_config_bool(&c, "use_quant_conv", true);
    m->has_post_quant = lz_config_bool(&c, "use_post_quant_conv", true);
    if (is_flux1(m)) {
        m->factor = lz_config_real(&c, "scaling_factor", 0.18215); /* the defaults of diffusers */
        m->shift = lz_config_real(&c, "shift_factor", 0);
        if (!(fabs(m->factor) > 1e-6 && fabs(m->factor) < 1e6 && fabs(m->shift) < 1e6))
            lz_config_refuse(&c, "'scaling_factor' must not be 0, and it and 'shift_factor' must be below 1000000");
    } else {
        m->bn_eps = lz_config_real(&c, "batch_norm_eps", 1e-4);
        lz_config_ints(&c, "patch_size", patch, 2, 1, 64);
        if (patch[0] != 2 || patch[1] != 2) lz_config_refuse(&c, "'patch_size' must be [2, 2]");
    }
    check_kind(m, &c);
    return lz_config_end(&c, err);
}

static lz_flux2_vae *open_as(lz_context *ctx, const char *folder, const lz_component *component, lz_error *err) {
    lz_flux2_vae *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    if (m) m->component = component;
    lz_loader l;
    lz_status status = m ? read_config(m, folder, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, component, NULL, err);
    if (!status) {
        visit_model(&l, m);
        lz_loader_skip(&l, "bn.num_batches_tracked");
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_flux2_vae_close(m);
    return NULL;
}

lz_flux2_vae *lz_flux2_vae_open(lz_context *ctx, const char *folder, lz_error *err) {
    return open_as(ctx, folder, &lz_names_flux2_vae, err);
}
lz_flux2_vae *lz_flux1_vae_open(lz_context *ctx, const char *folder, lz_error *err) {
    return open_as(ctx, folder, &lz_names_flux1_vae, err);
}

void lz_flux2_vae_close(lz_flux2_vae *m) {
    if (!m) return;
    if (m->encoder.levels) visit_model(NULL, m); /* 0 levels: the configuration could not be read */
    lz_host_free(m->ctx, m);
}

int64_t lz_flux2_vae_channels(const lz_flux2_vae *m) { return 4 * m->latent; }
int64_t lz_flux2_vae_pixels(const lz_flux2_vae *m) { return (int64_t)2 << (m->encoder.levels - 1); }

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

static lz_array *spread(const lz_flux2_vae *m) { return lz_sqrt(lz_add(lz_cast(lz_dense(m->var), LZ_F32), m->bn_eps)); }

static lz_array *normalise(const lz_flux2_vae *m, lz_array *x) {
    if (is_flux1(m)) return lz_mul(lz_sub(x, m->shift), m->factor);
    return lz_div(lz_sub(x, lz_cast(lz_dense(m->mean), LZ_F32)), spread(m));
}

static lz_array *undo_normalise(const lz_flux2_vae *m, lz_array *x) {
    if (is_flux1(m)) return lz_add(lz_div(x, m->factor), m->shift);
    return lz_add(lz_mul(x, spread(m)), lz_cast(lz_dense(m->mean), LZ_F32));
}

/* ---- both ways --------------------------------------------------------------------------------------------------- */

lz_array *lz_flux2_vae_encode(const lz_flux2_vae *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "encode");
    lz_array *x = lz_vae_encode(&m->encoder, picture);
    if (m->has_quant) x = lz_vae_conv1(x, m->quant);
    x = lz_flux2_patch(lz_cast(lz_slice(x, 3, 0, m->latent, 1), LZ_F32)); /* the mean; the variance is not used */
    return lz_scope_return(scope, normalise(m, x));
}

lz_array *lz_flux2_vae_decode(const lz_flux2_vae *m, lz_array *tokens, int64_t h, int64_t w) {
    lz_scope *scope = lz_scope_begin(m->ctx, "decode");
    lz_array *x = lz_cast(lz_flux2_unpatch(undo_normalise(m, tokens), h, w), lz_compute_type(m->ctx));
    if (m->has_post_quant) x = lz_vae_conv1(x, m->post_quant);
    return lz_scope_return(scope, lz_vae_decode(&m->decoder, x));
}
