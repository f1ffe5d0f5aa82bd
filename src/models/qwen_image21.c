/* qwen_image21.c: the Qwen-Image 2.1 transformer.
 *
 *   P prefix tokens (text, with reference images inside it), L latents of the picture, D width = H heads x d,
 *   M feed-forward width, C latent channels, E text features, B blocks
 *
 *   time 0 ----> four modulation vectors for all blocks
 *   prefix ----> blocks -> keys and values [2B, H, P, d], once per prompt
 *
 *   time ------> four modulation vectors for all blocks
 *   latents ---> [L, D] -> blocks, which also attend to the prefix -> norm -> velocity [L, C]
 *
 * A block: x += tanh(gate) attention(norm(x) (1 + scale)); x += tanh(gate) mlp(norm(x) (1 + scale)). Norms have no
 * weights, layers no biases. Tokens of the prefix do not attend to the picture. */
#include "models/qwen_image21.h"

#include <math.h>

#include "models/loader.h"
#include "models/signature.h"

enum { NONE, D, D4, M, C, E, TIME, HEAD, SIZES };
enum { AXES = 3, TIME_CHANNELS = 256 };
enum { SCALE1, GATE1, SCALE2, GATE2, VECTORS };

typedef struct block {
    lz_param *q, *k, *v, *q_norm, *k_norm, *out, *gate, *up, *down;
} block;

struct lz_qwen_image21 {
    lz_context *ctx;
    int64_t width, heads, head_size, channels, text_width, n_blocks, sizes[SIZES];
    int64_t rope_axes[AXES + 1]; /* ended by 0 */
    double eps;
    lz_targets *targets; /* owned */
    lz_param *image_in, *text_norm, *text_in, *text_out, *time_in, *time_out, *modulation, *norm_out, *proj_out;
    block *blocks;
};

#define ROW(name, field, ...)                                                                                          \
    {                                                                                                                  \
        name ".weight", offsetof(lz_qwen_image21, field), { __VA_ARGS__ }                                              \
    }
static const lz_weight model_rows[] = {
    ROW("img_in", image_in, D, C),
    ROW("txt_in.text_norm", text_norm, E),
    ROW("txt_in.in_layer", text_in, D, E),
    ROW("txt_in.out_layer", text_out, D, D),
    ROW("time_text_embed.timestep_embedder.linear_1", time_in, D, TIME),
    ROW("time_text_embed.timestep_embedder.linear_2", time_out, D, D),
    ROW("modulation.1", modulation, D4, D),
    ROW("norm_out.linear", norm_out, D, D),
    ROW("proj_out", proj_out, C, D),
};

static const lz_weight block_rows[] = {
    {"attn.to_q.weight", offsetof(block, q), {D, D}},
    {"attn.to_k.weight", offsetof(block, k), {D, D}},
    {"attn.to_v.weight", offsetof(block, v), {D, D}},
    {"attn.norm_q.weight", offsetof(block, q_norm), {HEAD}},
    {"attn.norm_k.weight", offsetof(block, k_norm), {HEAD}},
    {"attn.to_out.0.weight", offsetof(block, out), {D, D}},
    {"img_mlp.gate_layer.weight", offsetof(block, gate), {M, D}},
    {"img_mlp.proj.weight", offsetof(block, up), {M, D}},
    {"img_mlp.out.weight", offsetof(block, down), {D, M}},
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static lz_status read_config(lz_qwen_image21 *m, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, &lz_names_qwen_image21, err);
    if (status) return status;
    m->heads = lz_config_int(&c, "num_attention_heads", 32, 1, 4096);
    m->head_size = lz_config_int(&c, "attention_head_dim", 128, 2, 512);
    m->width = m->heads * m->head_size;
    m->channels = lz_config_int(&c, "in_channels", 64, 1, 65536);
    m->text_width = lz_config_int(&c, "context_in_dim", 4096, 1, 1 << 20);
    m->n_blocks = lz_config_int(&c, "num_layers", 32, 1, 1024);
    m->eps = lz_config_real(&c, "eps", 1e-6);
    int64_t ratio = lz_config_int(&c, "mlp_ratio", 3, 1, 64);
    int64_t sum = 0, axes = lz_config_ints(&c, "axes_dims_rope", m->rope_axes, AXES, 2, 512);
    for (int i = 0; i < axes; i++) sum += m->rope_axes[i];
    if (axes != AXES || sum != m->head_size)
        lz_config_refuse(&c, "'axes_dims_rope' must be three numbers that add up to the head size");
    for (int i = 0; i < axes; i++)
        if (m->rope_axes[i] % 2) lz_config_refuse(&c, "'axes_dims_rope' must be even numbers");
    if (lz_config_int(&c, "patch_size", 1, 1, 64) != 1) lz_config_refuse(&c, "'patch_size' must be 1");
    if (lz_config_int(&c, "out_channels", m->channels, 1, 65536) != m->channels)
        lz_config_refuse(&c, "'out_channels' must be 'in_channels'");
    if (!lz_config_bool(&c, "causal_condition", true))
        lz_config_refuse(&c, "'causal_condition' is false, which is not supported");
    if (!(m->eps > 0 && m->eps < 1)) lz_config_refuse(&c, "'eps' must be above 0 and below 1");
    const int64_t all[SIZES] = {
        [D] = m->width,      [D4] = VECTORS * m->width, [M] = ratio * m->width, [C] = m->channels,
        [E] = m->text_width, [TIME] = TIME_CHANNELS,    [HEAD] = m->head_size};
    for (int i = 0; i < SIZES; i++) m->sizes[i] = all[i];
    lz_config_refuse_rest(&c, NULL);
    return lz_config_end(&c, err);
}

lz_qwen_image21 *lz_qwen_image21_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_qwen_image21 *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    if (m) m->targets = lz_targets_new(ctx);
    lz_loader l;
    lz_status status = m && m->targets ? read_config(m, folder, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen_image21, m->sizes, err);
    if (!status) {
        l.targets = m->targets;
        l.lasting = true;
        lz_loader_take(&l, "", LZ_ROWS(model_rows), m);
        m->blocks = lz_loader_take_blocks(&l, "", "transformer_blocks.", m->n_blocks, LZ_ROWS(block_rows),
                                          sizeof *m->blocks);
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen_image21_close(m);
    return NULL;
}

void lz_qwen_image21_close(lz_qwen_image21 *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release_blocks(m->ctx, m->blocks, m->n_blocks, LZ_ROWS(block_rows), sizeof *m->blocks);
    lz_targets_free(m->targets);
    lz_host_free(m->ctx, m);
}

lz_targets *lz_qwen_image21_targets(lz_qwen_image21 *m) { return m->targets; }
int64_t lz_qwen_image21_channels(const lz_qwen_image21 *m) { return m->channels; }
int64_t lz_qwen_image21_text_width(const lz_qwen_image21 *m) { return m->text_width; }

/* ---- once per schedule, size, prompt ----------------------------------------------------------------------------- */

/* [n] -> [n, D]: the input of the modulation weights */
static lz_array *time_features(const lz_qwen_image21 *m, lz_array *times) {
    int64_t half = TIME_CHANNELS / 2;
    /* Angles reach 1000, where the last bit of a factor changes the angle by 6e-5 of a rotation: rounded as in
     * torch. */
    lz_array *exponent = lz_mul(lz_arange(m->ctx, 0, (double)half, 1, LZ_F32), -log(10000) / (double)half);
    lz_array *omega = lz_cast(lz_exp(lz_cast(exponent, LZ_F64)), LZ_F32);
    lz_array *time = lz_reshape(lz_div(lz_mul(times, 1000.0), 1000.0), LZ_DIMS(-1, 1));
    lz_array *angle = lz_mul(lz_mul(time, 1000.0), omega);                          /* [n, 128] */
    lz_array *wave = lz_concat((lz_array *[]){lz_cos(angle), lz_sin(angle)}, 2, 1); /* [n, 256], cosines first */
    return lz_silu(lz_apply(lz_silu(lz_apply(wave, m->time_in, NULL)), m->time_out, NULL));
}

void lz_qwen_image21_modulation(const lz_qwen_image21 *m, lz_array *times, lz_array **blocks, lz_array **out) {
    lz_scope *scope = lz_scope_begin(m->ctx, "modulation");
    lz_dtype type = lz_compute_type(m->ctx);
    lz_array *s = time_features(m, times), *part[VECTORS];
    lz_split(lz_apply(s, m->modulation, NULL), 1, VECTORS, part);
    part[GATE1] = lz_tanh(part[GATE1]);
    part[GATE2] = lz_tanh(part[GATE2]);
    *blocks = lz_cast(lz_concat(part, VECTORS, 1), type);
    *out = lz_cast(lz_apply(s, m->norm_out, NULL), type);
    lz_scope_keep(scope, *blocks);
    lz_scope_keep(scope, *out);
    lz_scope_end(scope);
}

void lz_qwen_image21_rope(const lz_qwen_image21 *m, const lz_place *places, int64_t n, lz_array **cos, lz_array **sin) {
    lz_rope_tables(m->ctx, m->rope_axes, 10000, places, n, cos, sin);
}

/* The file has the weight of the norm minus 1. */
lz_array *lz_qwen_image21_text(const lz_qwen_image21 *m, lz_array *features) {
    lz_array *weight = lz_add(lz_cast(lz_dense(m->text_norm), LZ_F32), 1.0);
    lz_array *x = lz_cast(lz_rms_norm(lz_cast(features, LZ_F32), weight, m->eps), lz_compute_type(m->ctx));
    return lz_apply(lz_gelu_tanh(lz_apply(x, m->text_in, NULL)), m->text_out, NULL);
}

lz_array *lz_qwen_image21_image(const lz_qwen_image21 *m, lz_array *latents) {
    return lz_apply(lz_cast(latents, lz_compute_type(m->ctx)), m->image_in, NULL);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Vector i of the modulation, [1, D]. */
static lz_array *vector(const lz_qwen_image21 *m, lz_array *row, int i) {
    return lz_slice(row, 1, i * m->width, (i + 1) * m->width, 1);
}

/* [n, D] -> [1, H, n, d] */
static lz_array *to_heads(const lz_qwen_image21 *m, lz_array *x) {
    return lz_permute(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), LZ_DIMS(0, 2, 1, 3));
}

/* Norm and rope: [n, D] -> [1, H, n, d] */
static lz_array *turn(const lz_qwen_image21 *m, lz_array *x, const lz_param *norm, lz_array *cos, lz_array *sin) {
    x = lz_rms_norm(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), lz_dense(norm), m->eps);
    return lz_rope(lz_permute(x, LZ_DIMS(0, 2, 1, 3)), cos, sin);
}

/* Queries, keys and values of a block, [1, H, n, d] each; queries NULL: not wanted. */
static void project(const lz_qwen_image21 *m, const block *p, lz_array *x, lz_array *row, lz_array *cos, lz_array *sin,
                    lz_array **q, lz_array **k, lz_array **v) {
    lz_array *z = lz_modulated_norm(x, vector(m, row, SCALE1), NULL, m->eps);
    if (q) *q = turn(m, lz_apply(z, p->q, NULL), p->q_norm, cos, sin);
    *k = turn(m, lz_apply(z, p->k, NULL), p->k_norm, cos, sin);
    *v = to_heads(m, lz_apply(z, p->v, NULL));
}

/* The rest of a block, after the attention [1, H, n, d]. */
static lz_array *finish(const lz_qwen_image21 *m, const block *p, lz_array *x, lz_array *attention, lz_array *row) {
    lz_array *a = lz_reshape(lz_permute(attention, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(-1, m->width));
    x = lz_add(x, lz_mul(lz_apply(a, p->out, NULL), vector(m, row, GATE1)));
    lz_array *z = lz_modulated_norm(x, vector(m, row, SCALE2), NULL, m->eps);
    lz_array *h = lz_mul(lz_silu(lz_apply(z, p->gate, NULL)), lz_apply(z, p->up, NULL)); /* [n, M] */
    return lz_add(x, lz_mul(lz_apply(h, p->down, NULL), vector(m, row, GATE2)));
}

/* Tokens first .. end - 1 of [1, H, n, d]. */
static lz_array *tokens(lz_array *x, int64_t first, int64_t end) { return lz_slice(x, 2, first, end, 1); }

/* Attention of the prefix, run by run: [1, H, p, d] */
static lz_array *attend_runs(lz_array *q, lz_array *k, lz_array *v, const lz_qwen_image21_run *runs, int n,
                             lz_array **parts) {
    int64_t first = 0;
    for (int i = 0; i < n; i++) {
        int64_t end = first + runs[i].tokens;
        parts[i] = lz_sdpa(tokens(q, first, end), tokens(k, 0, end), tokens(v, 0, end), .causal = !runs[i].image);
        first = end;
    }
    return n > 1 ? lz_concat(parts, n, 2) : parts[0];
}

lz_array *lz_qwen_image21_prefix(const lz_qwen_image21 *m, lz_array *x, const lz_qwen_image21_run *runs, int n,
                                 lz_array *zero, lz_array *cos, lz_array *sin) {
    lz_scope *scope = lz_scope_begin(m->ctx, "prefix");
    lz_array **kept = lz_host_alloc(m->ctx, (size_t)(2 * m->n_blocks + n) * sizeof *kept);
    if (!kept) return lz_scope_return(scope, lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "prefix"));
    int64_t p = lz_shape(x).at[0];
    cos = lz_slice(cos, 0, 0, p, 1);
    sin = lz_slice(sin, 0, 0, p, 1);
    for (int64_t b = 0; b < m->n_blocks; b++) {
        bool last = b == m->n_blocks - 1; /* nothing reads its output */
        lz_array *q = NULL, **k = &kept[2 * b], **v = &kept[2 * b + 1];
        project(m, &m->blocks[b], x, zero, cos, sin, last ? NULL : &q, k, v);
        if (last) break;
        lz_array *a = attend_runs(q, *k, *v, runs, n, kept + 2 * m->n_blocks);
        x = finish(m, &m->blocks[b], x, a, zero);
    }
    lz_array *all = lz_concat(kept, (int)(2 * m->n_blocks), 0);
    lz_host_free(m->ctx, kept);
    return lz_scope_return(scope, all);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

lz_array *lz_qwen_image21_velocity(const lz_qwen_image21 *m, lz_array *latents, lz_array *prefix, lz_array *blocks,
                                   lz_array *out, lz_array *cos, lz_array *sin) {
    lz_scope *scope = lz_scope_begin(m->ctx, "qwen-image-2.1");
    int64_t p = lz_shape(prefix).at[2], l = lz_shape(latents).at[0];
    cos = lz_slice(cos, 0, p, p + l, 1);
    sin = lz_slice(sin, 0, p, p + l, 1);
    lz_array *x = lz_qwen_image21_image(m, latents); /* [L, D] */
    for (int64_t b = 0; b < m->n_blocks; b++) {
        lz_array *q, *k, *v;
        project(m, &m->blocks[b], x, blocks, cos, sin, &q, &k, &v);
        lz_array *old_k = lz_slice(prefix, 0, 2 * b, 2 * b + 1, 1),
                 *old_v = lz_slice(prefix, 0, 2 * b + 1, 2 * b + 2, 1);
        lz_array *a = lz_sdpa(q, lz_concat((lz_array *[]){old_k, k}, 2, 2), lz_concat((lz_array *[]){old_v, v}, 2, 2));
        x = finish(m, &m->blocks[b], x, a, blocks);
    }
    x = lz_modulated_norm(x, out, NULL, m->eps);
    return lz_scope_return(scope, lz_cast(lz_apply(x, m->proj_out, NULL), LZ_F32));
}
