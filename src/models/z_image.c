/* z_image.c: the Z-Image transformer.
 *
 *   L image tokens, T caption tokens, both padded to multiples of 32 with learned tokens, S = L + T
 *   D width = H heads x d, F feed-forward width, C = 4 latent channels, E text features, A time features
 *
 *   time ----> four vectors for each block of the noise refiner and of the layers
 *   latents ---------> [L, D] -> noise refiner   \
 *                                                  [S, D] -> layers -> norm -> velocity [L, C]
 *   caption -> norm -> [T, D] -> context refiner /
 *
 * A block is x += g1 norm(attention(s1 norm(x))); x += g2 norm(mlp(s2 norm(x))), with RMS norms that have weights. Time
 * gives s1, g1, s2 and g2; in the context refiner they are 1. A norm's weight times its vector is one vector, computed
 * before the first step. Padding is attended to like any other token. Values of f16 would overflow. */
#include "models/z_image.h"

#include <math.h>

#include "models/loader.h"
#include "models/signature.h"

enum { NONE, ONE, D, D4, F, C, E, A, WAVE, HIDDEN, HEAD, SIZES };
enum { AXES = 3, TIME_CHANNELS = 256, TIME_HIDDEN = 1024, PAD = 32, NORMS = 4 };
static const double qk_eps = 1e-5, out_eps = 1e-6; /* constants of diffusers' code */

typedef struct block {
    lz_param *q, *k, *v, *q_norm, *k_norm, *out, *gate, *up, *down;
    lz_param *norms[NORMS]; /* before and after the attention, before and after the feed-forward */
    lz_affine modulation;   /* not in the context refiner */
} block;

struct lz_z_image {
    lz_context *ctx;
    int64_t width, heads, head_size, mlp, channels, text_width, n_layers, n_refiners;
    int64_t rope_axes[AXES + 1]; /* ended by 0 */
    double theta, eps, time_scale;
    lz_param *text_norm, *image_pad, *text_pad;
    lz_affine image_in, text_in, time_in, time_out, norm_out, proj_out;
    block *noise_refiner, *context_refiner, *layers;
    lz_targets *targets; /* owned */
};

static const lz_weight model_rows[] = {
    LZ_AFFINE("all_x_embedder.2-1", lz_z_image, image_in, D, C),
    {"x_pad_token", offsetof(lz_z_image, image_pad), {ONE, D}},
    {"cap_embedder.0.weight", offsetof(lz_z_image, text_norm), {E}},
    LZ_AFFINE("cap_embedder.1", lz_z_image, text_in, D, E),
    {"cap_pad_token", offsetof(lz_z_image, text_pad), {ONE, D}},
    LZ_AFFINE("t_embedder.mlp.0", lz_z_image, time_in, HIDDEN, WAVE),
    LZ_AFFINE("t_embedder.mlp.2", lz_z_image, time_out, A, HIDDEN),
    LZ_AFFINE("all_final_layer.2-1.adaLN_modulation.1", lz_z_image, norm_out, D, A),
    LZ_AFFINE("all_final_layer.2-1.linear", lz_z_image, proj_out, C, D),
};

#define BLOCK_ROWS                                                                                                     \
    {"attention_norm1.weight", offsetof(block, norms[0]), {D}}, {"attention.to_q.weight", offsetof(block, q), {D, D}}, \
        {"attention.to_k.weight", offsetof(block, k), {D, D}}, {"attention.to_v.weight", offsetof(block, v), {D, D}},  \
        {"attention.norm_q.weight", offsetof(block, q_norm), {HEAD}},                                                  \
        {"attention.norm_k.weight", offsetof(block, k_norm), {HEAD}},                                                  \
        {"attention.to_out.0.weight", offsetof(block, out), {D, D}},                                                   \
        {"attention_norm2.weight", offsetof(block, norms[1]), {D}},                                                    \
        {"ffn_norm1.weight", offsetof(block, norms[2]), {D}},                                                          \
        {"feed_forward.w1.weight", offsetof(block, gate), {F, D}},                                                     \
        {"feed_forward.w3.weight", offsetof(block, up), {F, D}},                                                       \
        {"feed_forward.w2.weight", offsetof(block, down), {D, F}}, {                                                   \
        "ffn_norm2.weight", offsetof(block, norms[3]), { D }                                                           \
    }
static const lz_weight plain_rows[] = {BLOCK_ROWS};
static const lz_weight modulated_rows[] = {BLOCK_ROWS, LZ_AFFINE("adaLN_modulation.0", block, modulation, D4, A)};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Lists of several patch sizes, of which the code of diffusers uses one. */
static void check_patch(lz_config *c, const char *key, int64_t want) {
    int64_t found[2] = {want};
    if (lz_config_ints(c, key, found, 2, 1, 64) > 1 || found[0] != want)
        lz_config_refuse(c, "'%s' must be [%lld]", key, (long long)want);
}

static void read_axes(lz_z_image *m, lz_config *c) {
    int64_t sum = 0;
    int axes = lz_config_ints(c, "axes_dims", m->rope_axes, AXES, 2, 512);
    for (int i = 0; i < axes; i++) {
        sum += m->rope_axes[i];
        if (m->rope_axes[i] % 2) lz_config_refuse(c, "'axes_dims' must be even numbers");
    }
    if (axes != AXES || sum != m->head_size)
        lz_config_refuse(c, "'axes_dims' must be three numbers that add up to the head size");
}

static lz_status read_config(lz_z_image *m, const char *folder, int64_t sizes[SIZES], lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, &lz_names_z_image, err);
    if (status) return status;
    if (lz_config_int(&c, "siglip_feat_dim", 0, 0, 1 << 20))
        lz_config_refuse(&c, "'siglip_feat_dim' is set: it is Z-Image-Omni, which is not supported; Z-Image-Turbo and "
                             "Z-Image are");
    m->width = lz_config_int(&c, "dim", LZ_REQUIRED, 4, 1 << 16);
    m->heads = lz_config_int(&c, "n_heads", LZ_REQUIRED, 1, 4096);
    if (m->width % m->heads) lz_config_refuse(&c, "'dim' must be a multiple of 'n_heads'");
    m->head_size = m->width / m->heads;
    if (m->head_size > 512) lz_config_refuse(&c, "a head size of %lld is above 512", (long long)m->head_size);
    m->mlp = (int64_t)((double)m->width / 3 * 8);
    m->channels = lz_config_int(&c, "in_channels", 16, 1, 4096);
    m->text_width = lz_config_int(&c, "cap_feat_dim", LZ_REQUIRED, 1, 1 << 20);
    m->n_layers = lz_config_int(&c, "n_layers", LZ_REQUIRED, 1, 1024);
    m->n_refiners = lz_config_int(&c, "n_refiner_layers", LZ_REQUIRED, 0, 1024);
    m->theta = lz_config_real(&c, "rope_theta", 256);
    m->eps = lz_config_real(&c, "norm_eps", 1e-5);
    m->time_scale = lz_config_real(&c, "t_scale", 1000);
    if (!(m->theta > 0)) lz_config_refuse(&c, "'rope_theta' must be above 0");
    if (!(m->eps > 0 && m->eps < 1)) lz_config_refuse(&c, "'norm_eps' must be above 0 and below 1");
    if (lz_config_int(&c, "n_kv_heads", m->heads, 1, 4096) != m->heads)
        lz_config_refuse(&c, "'n_kv_heads' must be 'n_heads'");
    if (!lz_config_bool(&c, "qk_norm", true)) lz_config_refuse(&c, "'qk_norm' must be true");
    check_patch(&c, "all_patch_size", 2);
    check_patch(&c, "all_f_patch_size", 1);
    read_axes(m, &c);
    const int64_t all[SIZES] = {[ONE] = 1,
                                [D] = m->width,
                                [D4] = NORMS * m->width,
                                [F] = m->mlp,
                                [C] = 4 * m->channels,
                                [E] = m->text_width,
                                [A] = m->width < TIME_CHANNELS ? m->width : TIME_CHANNELS,
                                [WAVE] = TIME_CHANNELS,
                                [HIDDEN] = TIME_HIDDEN,
                                [HEAD] = m->head_size};
    for (int i = 0; i < SIZES; i++) sizes[i] = all[i];
    static const char *const harmless[] = {"axes_lens", NULL}; /* sizes of diffusers' rope tables */
    lz_config_refuse_rest(&c, harmless);
    return lz_config_end(&c, err);
}

lz_z_image *lz_z_image_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_z_image *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    if (m) m->targets = lz_targets_new(ctx);
    int64_t sizes[SIZES];
    lz_loader l;
    lz_status status = m && m->targets ? read_config(m, folder, sizes, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_z_image, sizes, err);
    if (!status) {
        l.targets = m->targets;
        l.lasting = true;
        lz_loader_take(&l, "", LZ_ROWS(model_rows), m);
        m->noise_refiner = lz_loader_take_blocks(&l, "", "noise_refiner.", m->n_refiners, LZ_ROWS(modulated_rows),
                                                 sizeof(block));
        m->context_refiner = lz_loader_take_blocks(&l, "", "context_refiner.", m->n_refiners, LZ_ROWS(plain_rows),
                                                   sizeof(block));
        m->layers = lz_loader_take_blocks(&l, "", "layers.", m->n_layers, LZ_ROWS(modulated_rows), sizeof(block));
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_z_image_close(m);
    return NULL;
}

void lz_z_image_close(lz_z_image *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release_blocks(m->ctx, m->noise_refiner, m->n_refiners, LZ_ROWS(modulated_rows), sizeof(block));
    lz_loader_release_blocks(m->ctx, m->context_refiner, m->n_refiners, LZ_ROWS(plain_rows), sizeof(block));
    lz_loader_release_blocks(m->ctx, m->layers, m->n_layers, LZ_ROWS(modulated_rows), sizeof(block));
    lz_targets_free(m->targets);
    lz_host_free(m->ctx, m);
}

lz_targets *lz_z_image_targets(lz_z_image *m) { return m->targets; }
int64_t lz_z_image_channels(const lz_z_image *m) { return m->channels; }
int64_t lz_z_image_text_width(const lz_z_image *m) { return m->text_width; }
int64_t lz_z_image_padded(int64_t n) { return (n + PAD - 1) / PAD * PAD; }

/* ---- once per schedule, size, prompt ----------------------------------------------------------------------------- */

/* [n] -> [n, A]. Time goes the other way here: 0 is noise. */
static lz_array *time_features(const lz_z_image *m, lz_array *sigmas) {
    int64_t half = TIME_CHANNELS / 2;
    lz_array *clean = lz_div(lz_add(lz_mul(lz_mul(sigmas, 1000.0), -1.0), 1000.0),
                             1000.0); /* rounded as in diffusers */
    lz_array *time = lz_reshape(lz_mul(clean, m->time_scale), LZ_DIMS(-1, 1));
    /* Angles reach 1000, where the last bit of a frequency changes the angle by 6e-5 of a rotation: rounded as in
     * torch. */
    lz_array *exponent = lz_div(lz_mul(lz_arange(m->ctx, 0, (double)half, 1, LZ_F32), -log(10000)), (double)half);
    lz_array *angle = lz_mul(time, lz_cast(lz_exp(lz_cast(exponent, LZ_F64)), LZ_F32));
    lz_array *wave = lz_concat((lz_array *[]){lz_cos(angle), lz_sin(angle)}, 2, 1); /* [n, 256], cosines first */
    return lz_apply_affine(lz_silu(lz_apply_affine(wave, m->time_in)), m->time_out);
}

/* [n, A] -> [n, 4D] of a block. The modulation has scale, gate, scale, gate; there are no shifts. */
static lz_array *block_vectors(const lz_z_image *m, const block *p, lz_array *c) {
    lz_array *all = lz_apply_affine(c, p->modulation), *vectors[NORMS];
    for (int i = 0; i < NORMS; i++) {
        lz_array *vector = lz_slice(all, 1, i * m->width, (i + 1) * m->width, 1);
        vectors[i] = lz_mul(i % 2 ? lz_tanh(vector) : lz_add(vector, 1.0), lz_cast(lz_dense(p->norms[i]), LZ_F32));
    }
    return lz_cast(lz_concat(vectors, NORMS, 1), lz_compute_type(m->ctx));
}

lz_z_image_time lz_z_image_modulation(const lz_z_image *m, lz_array *sigmas) {
    lz_scope *scope = lz_scope_begin(m->ctx, "modulation");
    int64_t n = m->n_refiners + m->n_layers;
    lz_array **blocks = lz_host_alloc(m->ctx, (size_t)n * sizeof *blocks), *c = time_features(m, sigmas);
    for (int64_t i = 0; blocks && i < n; i++)
        blocks[i] = block_vectors(m, i < m->n_refiners ? &m->noise_refiner[i] : &m->layers[i - m->n_refiners], c);
    lz_z_image_time time = {
        .norms = blocks ? lz_concat(blocks, (int)n, 1) : lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "modulation"),
        .out = lz_cast(lz_apply_affine(lz_silu(c), m->norm_out), lz_compute_type(m->ctx)),
    };
    lz_host_free(m->ctx, blocks);
    lz_scope_keep(scope, time.norms);
    lz_scope_keep(scope, time.out);
    lz_scope_end(scope);
    return time;
}

/* A token's place: position in the text, row, column. A caption begins at 1, and its padding goes on counting. The image
 * comes after it on the first axis; its padding is at 0. */
static void place_caption(int64_t t, lz_place *to) {
    for (int64_t i = 0; i < lz_z_image_padded(t); i++) to[i] = (lz_place){{1 + i, 0, 0}};
}

void lz_z_image_rope(const lz_z_image *m, int64_t h, int64_t w, int64_t t, lz_array **cos, lz_array **sin) {
    int64_t l = lz_z_image_padded(h * w), n = l + lz_z_image_padded(t);
    lz_place *places = lz_host_alloc(m->ctx, (size_t)n * sizeof *places); /* zeros */
    if (places) {
        for (int64_t i = 0; i < h * w; i++) places[i] = (lz_place){{n - l + 1, i / w, i % w}};
        place_caption(t, places + l);
        lz_rope_tables(m->ctx, m->rope_axes, m->theta, places, n, cos, sin);
    } else
        *cos = *sin = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "places");
    lz_host_free(m->ctx, places);
}

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

static lz_array *tokens(lz_array *x, int64_t n) { return lz_slice(x, 0, 0, n, 1); }

/* [n, D] -> [padded n, D] */
static lz_array *pad(const lz_z_image *m, lz_array *x, const lz_param *token) {
    int64_t n = lz_shape(x).at[0], missing = lz_z_image_padded(n) - n;
    if (!missing) return x;
    lz_array *rows = lz_broadcast(lz_cast(lz_dense(token), lz_compute_type(m->ctx)), LZ_DIMS(missing, m->width));
    return lz_concat((lz_array *[]){x, rows}, 2, 0);
}

/* weight: [D] or [1, D] */
static lz_array *normed(const lz_z_image *m, lz_array *x, lz_array *weight) {
    return lz_mul(lz_rms_norm(x, NULL, m->eps), weight);
}

/* [n, D] -> [1, H, n, d]; of queries and keys after norm and rope */
static lz_array *to_heads(const lz_z_image *m, lz_array *x) {
    return lz_permute(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), LZ_DIMS(0, 2, 1, 3));
}
static lz_array *turn(const lz_z_image *m, lz_array *x, const lz_param *norm, lz_array *cos, lz_array *sin) {
    x = lz_rms_norm(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), lz_dense(norm), qk_eps);
    return lz_rope(lz_permute(x, LZ_DIMS(0, 2, 1, 3)), cos, sin);
}

/* x [n, D] -> [asked, D]: only the first rows are computed; the others are keys and values only. */
static lz_array *run_block(const lz_z_image *m, const block *p, lz_array *x, lz_array *const *norms, lz_array *cos,
                           lz_array *sin, int64_t asked) {
    lz_array *h = normed(m, x, norms[0]);
    lz_array *q = turn(m, lz_apply(tokens(h, asked), p->q, NULL), p->q_norm, tokens(cos, asked), tokens(sin, asked)),
             *k = turn(m, lz_apply(h, p->k, NULL), p->k_norm, cos, sin), *v = to_heads(m, lz_apply(h, p->v, NULL));
    lz_array *a = lz_permute(lz_sdpa(q, k, v), LZ_DIMS(0, 2, 1, 3));
    a = lz_apply(lz_reshape(a, LZ_DIMS(-1, m->width)), p->out, NULL);
    x = lz_add(tokens(x, asked), normed(m, a, norms[1]));
    h = normed(m, x, norms[2]);
    h = lz_mul(lz_silu(lz_apply(h, p->gate, NULL)), lz_apply(h, p->up, NULL)); /* [n, F] */
    return lz_add(x, normed(m, lz_apply(h, p->down, NULL), norms[3]));
}

/* Block i of those that time modulates. */
static lz_array *run_modulated(const lz_z_image *m, int64_t i, lz_array *x, lz_z_image_time time, lz_array *cos,
                               lz_array *sin, int64_t asked) {
    const block *p = i < m->n_refiners ? &m->noise_refiner[i] : &m->layers[i - m->n_refiners];
    lz_array *norms[NORMS];
    for (int k = 0; k < NORMS; k++) {
        int64_t at = (i * NORMS + k) * m->width;
        norms[k] = lz_slice(time.norms, 1, at, at + m->width, 1);
    }
    return run_block(m, p, x, norms, cos, sin, asked);
}

lz_array *lz_z_image_context(const lz_z_image *m, lz_array *features) {
    lz_scope *scope = lz_scope_begin(m->ctx, "caption");
    int64_t t = lz_shape(features).at[0], n = lz_z_image_padded(t);
    lz_array *x = lz_cast(features, lz_compute_type(m->ctx)), *cos, *sin;
    x = pad(m, lz_apply_affine(normed(m, x, lz_dense(m->text_norm)), m->text_in), m->text_pad);
    lz_place *places = lz_host_alloc(m->ctx, (size_t)n * sizeof *places);
    if (!places) return lz_scope_return(scope, lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "places"));
    place_caption(t, places);
    lz_rope_tables(m->ctx, m->rope_axes, m->theta, places, n, &cos, &sin);
    lz_host_free(m->ctx, places);
    for (int64_t i = 0; i < m->n_refiners; i++) {
        lz_array *norms[NORMS];
        for (int k = 0; k < NORMS; k++) norms[k] = lz_dense(m->context_refiner[i].norms[k]);
        x = run_block(m, &m->context_refiner[i], x, norms, cos, sin, n);
    }
    return lz_scope_return(scope, x);
}

/* The four latents of a token: channel by channel, or latent by latent as the weights have them. */
static lz_array *by_latent(lz_array *x, int64_t channels) {
    return lz_reshape(lz_permute(lz_reshape(x, LZ_DIMS(-1, channels, 4)), LZ_DIMS(0, 2, 1)), LZ_DIMS(-1, 4 * channels));
}
static lz_array *by_channel(lz_array *x, int64_t channels) {
    return lz_reshape(lz_permute(lz_reshape(x, LZ_DIMS(-1, 4, channels)), LZ_DIMS(0, 2, 1)), LZ_DIMS(-1, 4 * channels));
}

lz_array *lz_z_image_velocity(const lz_z_image *m, lz_array *x, lz_array *context, lz_z_image_time time, lz_array *cos,
                              lz_array *sin) {
    lz_scope *scope = lz_scope_begin(m->ctx, "z-image");
    int64_t n = lz_shape(x).at[0], l = lz_z_image_padded(n), blocks = m->n_refiners + m->n_layers;
    x = lz_apply_affine(lz_cast(by_latent(x, m->channels), lz_compute_type(m->ctx)), m->image_in);
    x = pad(m, x, m->image_pad);
    for (int64_t i = 0; i < m->n_refiners; i++) x = run_modulated(m, i, x, time, tokens(cos, l), tokens(sin, l), l);
    x = lz_concat((lz_array *[]){x, context}, 2, 0); /* [S, D] */
    for (int64_t i = m->n_refiners; i < blocks; i++)
        x = run_modulated(m, i, x, time, cos, sin, i == blocks - 1 ? n : lz_shape(x).at[0]);
    x = lz_apply_affine(lz_modulated_norm(x, time.out, NULL, out_eps), m->proj_out);
    /* The model predicts the opposite direction: from noise to the picture. */
    return lz_scope_return(scope, lz_mul(lz_cast(by_channel(x, m->channels), LZ_F32), -1.0));
}
