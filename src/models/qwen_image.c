/* qwen_image.c: the Qwen-Image transformer.
 *
 *   T text tokens, L image tokens (references after the picture), D width = H heads x d, M = 4D feed-forward width,
 *   C latent channels, E text features
 *
 *   time ----> six modulation vectors for each stream of each block
 *   text ----> norm -> [T, D] \
 *                              blocks: two streams, one attention -> norm -> velocity [L, C]
 *   latents ---------> [L, D] /
 *
 * Everything is modulated: a layer norm without weights, times 1 + scale, plus shift; the output of a branch is
 * multiplied by gate. Values of the streams reach 5e7 in the published model, which f16 cannot represent. */
#include "models/qwen_image.h"

#include <math.h>

#include "models/loader.h"
#include "models/signature.h"

enum { NONE, D, D2, D6, M, C, E, TIME, HEAD, KINDS, SIZES };
enum { AXES = 3, TIME_CHANNELS = 256, VECTORS = 6 };
static const double eps = 1e-6;
static const char block_list[] = "transformer_blocks.";

typedef struct stream { /* image or text */
    lz_affine q, k, v, out, mlp_in, mlp_out;
    lz_param *q_norm, *k_norm;
} stream;

typedef struct block {
    stream image, text;
} block;

typedef struct modulation_weights { /* of one block */
    lz_affine image, text;
} modulation_weights;

typedef struct time_weights {
    lz_affine in, out, norm_out;
    lz_param *kinds; /* of models of layers: what is added for pictures with opacity, and for those without */
    modulation_weights *blocks;
} time_weights;

struct lz_qwen_image {
    lz_context *ctx;
    char *folder;
    int64_t width, heads, head_size, channels, text_width, n_blocks, sizes[SIZES];
    int64_t rope_axes[AXES + 1]; /* ended by 0 */
    bool still, kinds, layered;
    lz_targets *targets; /* owned */
    lz_param *text_norm;
    lz_affine image_in, text_in, proj_out;
    block *blocks;
};

static const lz_weight model_rows[] = {
    {"txt_norm.weight", offsetof(lz_qwen_image, text_norm), {E}},
    LZ_AFFINE("img_in", lz_qwen_image, image_in, D, C),
    LZ_AFFINE("txt_in", lz_qwen_image, text_in, D, E),
    LZ_AFFINE("proj_out", lz_qwen_image, proj_out, C, D),
};

static const lz_weight block_rows[] = {
    LZ_AFFINE("attn.to_q", block, image.q, D, D),
    LZ_AFFINE("attn.to_k", block, image.k, D, D),
    LZ_AFFINE("attn.to_v", block, image.v, D, D),
    {"attn.norm_q.weight", offsetof(block, image.q_norm), {HEAD}},
    {"attn.norm_k.weight", offsetof(block, image.k_norm), {HEAD}},
    LZ_AFFINE("attn.to_out.0", block, image.out, D, D),
    LZ_AFFINE("img_mlp.net.0.proj", block, image.mlp_in, M, D),
    LZ_AFFINE("img_mlp.net.2", block, image.mlp_out, D, M),
    LZ_AFFINE("attn.add_q_proj", block, text.q, D, D),
    LZ_AFFINE("attn.add_k_proj", block, text.k, D, D),
    LZ_AFFINE("attn.add_v_proj", block, text.v, D, D),
    {"attn.norm_added_q.weight", offsetof(block, text.q_norm), {HEAD}},
    {"attn.norm_added_k.weight", offsetof(block, text.k_norm), {HEAD}},
    LZ_AFFINE("attn.to_add_out", block, text.out, D, D),
    LZ_AFFINE("txt_mlp.net.0.proj", block, text.mlp_in, M, D),
    LZ_AFFINE("txt_mlp.net.2", block, text.mlp_out, D, M),
};

static const lz_weight time_rows[] = {
    LZ_AFFINE("time_text_embed.timestep_embedder.linear_1", time_weights, in, D, TIME),
    LZ_AFFINE("time_text_embed.timestep_embedder.linear_2", time_weights, out, D, D),
    LZ_AFFINE("norm_out.linear", time_weights, norm_out, D2, D),
};

static const lz_weight kind_rows[] = {
    {"time_text_embed.addition_t_embedding.weight", offsetof(time_weights, kinds), {KINDS, D}},
};

static const lz_weight modulation_rows[] = {
    LZ_AFFINE("img_mod.1", modulation_weights, image, D6, D),
    LZ_AFFINE("txt_mod.1", modulation_weights, text, D6, D),
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static lz_status read_config(lz_qwen_image *m, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, &lz_names_qwen_image, err);
    if (status) return status;
    m->heads = lz_config_int(&c, "num_attention_heads", LZ_REQUIRED, 1, 4096);
    m->head_size = lz_config_int(&c, "attention_head_dim", LZ_REQUIRED, 2, 512);
    m->width = m->heads * m->head_size;
    m->channels = lz_config_int(&c, "in_channels", LZ_REQUIRED, 4, 65536);
    m->text_width = lz_config_int(&c, "joint_attention_dim", LZ_REQUIRED, 1, 1 << 20);
    m->n_blocks = lz_config_int(&c, "num_layers", LZ_REQUIRED, 1, 1024);
    m->still = lz_config_bool(&c, "zero_cond_t", false);
    int64_t sum = 0, axes = lz_config_ints(&c, "axes_dims_rope", m->rope_axes, AXES, 2, 512);
    for (int i = 0; i < axes; i++) sum += m->rope_axes[i];
    if (axes != AXES || sum != m->head_size)
        lz_config_refuse(&c, "'axes_dims_rope' must be three numbers that add up to the head size");
    for (int i = 0; i < axes; i++)
        if (m->rope_axes[i] % 2) lz_config_refuse(&c, "'axes_dims_rope' must be even numbers");
    if (lz_config_bool(&c, "guidance_embeds", false))
        lz_config_refuse(&c, "models with embedded guidance are not supported");
    m->kinds = lz_config_bool(&c, "use_additional_t_cond", false);
    m->layered = lz_config_bool(&c, "use_layer3d_rope", false);
    if (m->still && (m->kinds || m->layered))
        lz_config_refuse(&c, "'zero_cond_t' is not supported together with layers");
    if (lz_config_int(&c, "patch_size", 2, 1, 64) != 2) lz_config_refuse(&c, "'patch_size' must be 2");
    if (4 * lz_config_int(&c, "out_channels", m->channels / 4, 1, 65536) != m->channels)
        lz_config_refuse(&c, "'out_channels' must be a quarter of 'in_channels'");
    const int64_t all[SIZES] = {
        [D] = m->width,      [D2] = 2 * m->width,    [D6] = VECTORS * m->width, [M] = 4 * m->width, [C] = m->channels,
        [E] = m->text_width, [TIME] = TIME_CHANNELS, [HEAD] = m->head_size,     [KINDS] = 2};
    for (int i = 0; i < SIZES; i++) m->sizes[i] = all[i];
    static const char *const harmless[] = {"pooled_projection_dim", NULL}; /* in older files, where it has no effect */
    lz_config_refuse_rest(&c, harmless);
    return lz_config_end(&c, err);
}

/* Loads the modulation weights. A step needs only the vectors of each block, not the weights that make them. */
static lz_status load_modulation(const lz_qwen_image *m, time_weights *t, lz_error *err) {
    lz_loader l;
    lz_status status = lz_loader_open(&l, m->ctx, m->folder, &lz_names_qwen_image, m->sizes, err);
    if (status) return status;
    l.targets = m->targets;
    lz_loader_take(&l, "", LZ_ROWS(time_rows), t);
    if (m->kinds) lz_loader_take(&l, "", LZ_ROWS(kind_rows), t);
    t->blocks = lz_loader_take_blocks(&l, "", block_list, m->n_blocks, LZ_ROWS(modulation_rows), sizeof *t->blocks);
    lz_loader_skip(&l, "");
    return lz_loader_close(&l, err);
}

static void release_modulation(const lz_qwen_image *m, time_weights *t) {
    lz_loader_release(LZ_ROWS(time_rows), t);
    lz_loader_release(LZ_ROWS(kind_rows), t);
    lz_loader_release_blocks(m->ctx, t->blocks, m->n_blocks, LZ_ROWS(modulation_rows), sizeof *t->blocks);
}

/* Errors in the modulation weights are reported on opening, not during the first picture. */
static lz_status check_modulation(const lz_qwen_image *m, lz_error *err) {
    time_weights t = {.blocks = NULL};
    lz_status status = load_modulation(m, &t, err);
    release_modulation(m, &t);
    return status;
}

lz_qwen_image *lz_qwen_image_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_qwen_image *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    if (m) m->folder = lz_host_copy(ctx, folder);
    if (m) m->targets = lz_targets_new(ctx);
    lz_loader l;
    lz_status status = m && m->folder && m->targets ? read_config(m, folder, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen_image, m->sizes, err);
    if (!status) {
        l.targets = m->targets;
        l.lasting = true;
        lz_loader_take(&l, "", LZ_ROWS(model_rows), m);
        lz_loader_skip(&l, "time_text_embed.");
        lz_loader_skip(&l, "norm_out.");
        m->blocks = lz_loader_take_blocks(&l, "", block_list, m->n_blocks, LZ_ROWS(block_rows), sizeof *m->blocks);
        lz_loader_skip_blocks(&l, block_list, 0, m->n_blocks, "img_mod.");
        lz_loader_skip_blocks(&l, block_list, 0, m->n_blocks, "txt_mod.");
        status = lz_loader_close(&l, err);
    }
    if (!status) status = check_modulation(m, err);
    if (!status) return m;
    lz_qwen_image_close(m);
    return NULL;
}

void lz_qwen_image_close(lz_qwen_image *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release_blocks(m->ctx, m->blocks, m->n_blocks, LZ_ROWS(block_rows), sizeof *m->blocks);
    lz_targets_free(m->targets);
    lz_host_free(m->ctx, m->folder);
    lz_host_free(m->ctx, m);
}

lz_targets *lz_qwen_image_targets(lz_qwen_image *m) { return m->targets; }
lz_status lz_qwen_image_build(const lz_qwen_image *m, lz_error *err) { return check_modulation(m, err); }

int64_t lz_qwen_image_channels(const lz_qwen_image *m) { return m->channels; }
int64_t lz_qwen_image_text_width(const lz_qwen_image *m) { return m->text_width; }
bool lz_qwen_image_still(const lz_qwen_image *m) { return m->still; }
bool lz_qwen_image_kinds(const lz_qwen_image *m) { return m->kinds; }
bool lz_qwen_image_layered(const lz_qwen_image *m) { return m->layered; }

/* ---- once per schedule, size, prompt ----------------------------------------------------------------------------- */

/* [n] -> [n, D]: the input of all modulation weights */
static lz_array *time_features(const lz_qwen_image *m, const time_weights *p, lz_array *sigmas) {
    int64_t half = TIME_CHANNELS / 2;
    /* Angles reach 1000, where the last bit of a factor changes the angle by 6e-5 of a rotation: rounded as in
     * torch. */
    lz_array *exponent = lz_mul(lz_arange(m->ctx, 0, (double)half, 1, LZ_F32), -log(10000) / (double)half);
    lz_array *omega = lz_cast(lz_exp(lz_cast(exponent, LZ_F64)), LZ_F32);
    lz_array *time = lz_reshape(lz_div(lz_mul(sigmas, 1000.0), 1000.0), LZ_DIMS(-1, 1));
    lz_array *angle = lz_mul(lz_mul(time, omega), 1000.0);                          /* [n, 128] */
    lz_array *wave = lz_concat((lz_array *[]){lz_cos(angle), lz_sin(angle)}, 2, 1); /* [n, 256], cosines first */
    lz_array *time_vector = lz_apply_affine(lz_silu(lz_apply_affine(wave, p->in)), p->out);
    if (p->kinds) { /* row 0: pictures with opacity */
        lz_array *kind = lz_slice(lz_dense(p->kinds), 0, 0, 1, 1);
        time_vector = lz_add(time_vector, lz_cast(kind, lz_type(time_vector)));
    }
    return lz_silu(time_vector);
}

/* [n, D] -> [n, B 6D] */
static lz_array *all_vectors(const lz_qwen_image *m, const modulation_weights *w, bool text, lz_array *s) {
    lz_array **parts = lz_host_alloc(m->ctx, (size_t)m->n_blocks * sizeof *parts);
    if (!parts) return lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "modulation");
    for (int64_t i = 0; i < m->n_blocks; i++)
        parts[i] = lz_cast(lz_apply_affine(s, text ? w[i].text : w[i].image), lz_compute_type(m->ctx));
    lz_array *all = lz_concat(parts, (int)m->n_blocks, 1);
    lz_host_free(m->ctx, parts);
    return all;
}

lz_qwen_image_time lz_qwen_image_modulation(const lz_qwen_image *m, lz_array *sigmas) {
    lz_scope *scope = lz_scope_begin(m->ctx, "modulation");
    lz_error err = {.status = LZ_OK};
    time_weights t = {.blocks = NULL};
    lz_qwen_image_time time = {.still = NULL};
    if (load_modulation(m, &t, &err))
        time.image = time.text = time.out = lz_poison(m->ctx, err.status, "%s", err.text);
    else {
        lz_array *s = time_features(m, &t, sigmas);
        time.image = all_vectors(m, t.blocks, false, s);
        time.text = all_vectors(m, t.blocks, true, s);
        time.out = lz_cast(lz_apply_affine(s, t.norm_out), lz_compute_type(m->ctx));
        lz_array *zero = lz_full(m->ctx, LZ_DIMS(1), LZ_F32, 0);
        if (m->still) time.still = all_vectors(m, t.blocks, false, time_features(m, &t, zero));
    }
    release_modulation(m, &t); /* the arrays have references to the weights until they are evaluated */
    lz_scope_keep(scope, time.image);
    lz_scope_keep(scope, time.text);
    lz_scope_keep(scope, time.out);
    if (time.still) lz_scope_keep(scope, time.still);
    lz_scope_end(scope);
    return time;
}

void lz_qwen_image_rope(const lz_qwen_image *m, const lz_place *places, int64_t n, lz_array **cos, lz_array **sin) {
    lz_rope_tables(m->ctx, m->rope_axes, 10000, places, n, cos, sin);
}

lz_array *lz_qwen_image_context(const lz_qwen_image *m, lz_array *features) {
    return lz_apply_affine(lz_rms_norm(lz_cast(features, lz_compute_type(m->ctx)), lz_dense(m->text_norm), eps),
                           m->text_in);
}

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

/* Modulation of the rows of a stream: those before `rows` by the current time, the others (references) as at time 0. */
typedef struct modulation {
    lz_array *shift, *scale, *gate, *still_shift, *still_scale, *still_gate;
    int64_t rows; /* 0: all by the current time */
} modulation;

/* Vector i of block b, [1, D]. */
static lz_array *vector(const lz_qwen_image *m, lz_array *row, int64_t b, int i) {
    int64_t at = (b * VECTORS + i) * m->width;
    return row ? lz_slice(row, 1, at, at + m->width, 1) : NULL;
}

static modulation modulation_at(const lz_qwen_image *m, lz_array *row, lz_array *still, int64_t rows, int64_t b,
                                int half) {
    int i = 3 * half;
    return (modulation){vector(m, row, b, i),   vector(m, row, b, i + 1),   vector(m, row, b, i + 2),
                        vector(m, still, b, i), vector(m, still, b, i + 1), vector(m, still, b, i + 2),
                        still ? rows : 0};
}

static lz_array *modulate(lz_array *x, modulation mod) {
    if (!mod.rows) return lz_modulated_norm(x, mod.scale, mod.shift, eps);
    lz_array *now = lz_slice(x, 0, 0, mod.rows, 1), *still = lz_slice(x, 0, mod.rows, lz_shape(x).at[0], 1);
    return lz_concat((lz_array *[]){lz_modulated_norm(now, mod.scale, mod.shift, eps),
                                    lz_modulated_norm(still, mod.still_scale, mod.still_shift, eps)},
                     2, 0);
}

/* x + gate * branch */
static lz_array *add_gated(lz_array *x, lz_array *branch, modulation mod) {
    if (!mod.rows) return lz_add(x, lz_mul(branch, mod.gate));
    int64_t n = lz_shape(x).at[0];
    lz_array *now = lz_mul(lz_slice(branch, 0, 0, mod.rows, 1), mod.gate),
             *still = lz_mul(lz_slice(branch, 0, mod.rows, n, 1), mod.still_gate);
    return lz_concat(
        (lz_array *[]){lz_add(lz_slice(x, 0, 0, mod.rows, 1), now), lz_add(lz_slice(x, 0, mod.rows, n, 1), still)}, 2,
        0);
}

/* [n, D] -> [1, H, n, d] */
static lz_array *to_heads(const lz_qwen_image *m, lz_array *x) {
    return lz_permute(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), LZ_DIMS(0, 2, 1, 3));
}

/* Norm and rope: [n, D] -> [1, H, n, d] */
static lz_array *turn(const lz_qwen_image *m, lz_array *x, const lz_param *norm, lz_array *cos, lz_array *sin) {
    x = lz_rms_norm(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), lz_dense(norm), eps);
    return lz_rope(lz_permute(x, LZ_DIMS(0, 2, 1, 3)), cos, sin);
}

/* The rest of a stream's block, after the joint attention. */
static lz_array *finish_stream(const stream *p, lz_array *x, lz_array *attention, modulation first, modulation second) {
    x = add_gated(x, lz_apply_affine(attention, p->out), first);
    lz_array *h = lz_gelu_tanh(lz_apply_affine(modulate(x, second), p->mlp_in));
    return add_gated(x, lz_apply_affine(h, p->mlp_out), second);
}

/* x [L, D] and y [T, D] share one attention, with the text first. The text of the last block is not used, so not
 * computed. */
static void run_block(const lz_qwen_image *m, int64_t b, lz_array **x, lz_array **y, lz_qwen_image_time time,
                      lz_qwen_image_tables tables, int64_t rows) {
    const block *p = &m->blocks[b];
    bool last = b == m->n_blocks - 1;
    int64_t t = lz_shape(*y).at[0];
    modulation image[2], text[2];
    for (int i = 0; i < 2; i++) {
        image[i] = modulation_at(m, time.image, time.still, rows, b, i);
        text[i] = modulation_at(m, time.text, NULL, 0, b, i);
    }
    lz_array *xn = modulate(*x, image[0]), *yn = modulate(*y, text[0]);
    lz_array *q[2] = {turn(m, lz_apply_affine(yn, p->text.q), p->text.q_norm, tables.text_cos, tables.text_sin),
                      turn(m, lz_apply_affine(xn, p->image.q), p->image.q_norm, tables.cos, tables.sin)};
    lz_array *k[2] = {turn(m, lz_apply_affine(yn, p->text.k), p->text.k_norm, tables.text_cos, tables.text_sin),
                      turn(m, lz_apply_affine(xn, p->image.k), p->image.k_norm, tables.cos, tables.sin)};
    lz_array *v[2] = {lz_apply_affine(yn, p->text.v), lz_apply_affine(xn, p->image.v)};
    lz_array *queries = last ? q[1] : lz_concat(q, 2, 2);
    lz_array *a = lz_sdpa(queries, lz_concat(k, 2, 2), to_heads(m, lz_concat(v, 2, 0))); /* [1, H, T + L, d] */
    a = lz_reshape(lz_permute(a, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(-1, m->width));
    int64_t s = lz_shape(a).at[0], from = last ? 0 : t;
    *x = finish_stream(&p->image, *x, lz_slice(a, 0, from, s, 1), image[0], image[1]);
    if (!last) *y = finish_stream(&p->text, *y, lz_slice(a, 0, 0, t, 1), text[0], text[1]);
}

lz_array *lz_qwen_image_velocity(const lz_qwen_image *m, lz_array *x, lz_array *context, lz_qwen_image_time time,
                                 lz_qwen_image_tables tables, int64_t rows) {
    lz_scope *scope = lz_scope_begin(m->ctx, "qwen-image");
    int64_t t = lz_shape(context).at[0];
    lz_array *y = context;
    tables.text_cos = lz_slice(tables.text_cos, 0, 0, t, 1);
    tables.text_sin = lz_slice(tables.text_sin, 0, 0, t, 1);
    if (lz_shape(x).at[0] == rows) time.still = NULL; /* no references */
    x = lz_apply_affine(lz_cast(x, lz_compute_type(m->ctx)), m->image_in);
    for (int64_t b = 0; b < m->n_blocks; b++) run_block(m, b, &x, &y, time, tables, rows);
    /* The last norm has its vectors in the opposite order: scale, then shift. */
    x = lz_modulated_norm(lz_slice(x, 0, 0, rows, 1), lz_slice(time.out, 1, 0, m->width, 1),
                          lz_slice(time.out, 1, m->width, 2 * m->width, 1), eps);
    return lz_scope_return(scope, lz_cast(lz_apply_affine(x, m->proj_out), LZ_F32));
}
