/* flux2.c: the FLUX.2 transformer.
 *
 *   T text tokens, L image tokens (references after the picture), S = T + L
 *   D width = H heads x d, M feed-forward width, C latent channels, E text features
 *
 *   time ----> modulation vectors, shared by all blocks of a kind
 *   text ----> [T, D] \
 *                      double blocks: two streams, one attention   -> [S, D] -> single blocks -> norm -> velocity [L, C]
 *   latents -> [L, D] /
 *
 * Everything is modulated: a layer norm without weights, times 1 + scale, plus shift; the output of a branch is
 * multiplied by gate.
 *
 * References are tokens after the picture. In a model for cached references (klein KV) they are a sequence of their own
 * instead: it goes through the blocks once, modulated as at time 0, and attends to itself only. The other tokens attend
 * to its keys and values, block by block. */
#include "models/flux2.h"

#include <math.h>

#include "models/loader.h"
#include "models/signature.h"

enum { NONE, D, D2, D3, D6, M, M2, DM, IN1, C, E, TIME, HEAD, SIZES }; /* IN1 = 3D + 2M, DM = D + M */
enum { MAX_AXES = LZ_ROPE_AXES };

enum { TEXT, IMAGE, STREAMS }; /* in the order of their tokens */

typedef struct stream { /* of a double block: the text or the image stream */
    lz_param *q, *k, *v, *q_norm, *k_norm, *out, *mlp_in, *mlp_out;
} stream;

typedef struct double_block {
    stream of[STREAMS];
} double_block;

typedef struct single_block {
    lz_param *in, *q_norm, *k_norm, *out;
} single_block;

struct lz_flux2 {
    lz_context *ctx;
    int64_t width, heads, head_size, mlp, channels, text_width, n_double, n_single, time_channels;
    int64_t rope_axes[MAX_AXES];
    double theta, eps;
    lz_param *x_embed, *context_embed, *time_in, *time_out, *mod_image, *mod_text, *mod_single, *norm_out, *proj_out;
    double_block *doubles;
    single_block *singles;
    lz_targets *targets; /* owned */
};

static const lz_weight model_rows[] = {
    {"x_embedder.weight", offsetof(lz_flux2, x_embed), {D, C}},
    {"context_embedder.weight", offsetof(lz_flux2, context_embed), {D, E}},
    {"time_guidance_embed.timestep_embedder.linear_1.weight", offsetof(lz_flux2, time_in), {D, TIME}},
    {"time_guidance_embed.timestep_embedder.linear_2.weight", offsetof(lz_flux2, time_out), {D, D}},
    {"double_stream_modulation_img.linear.weight", offsetof(lz_flux2, mod_image), {D6, D}},
    {"double_stream_modulation_txt.linear.weight", offsetof(lz_flux2, mod_text), {D6, D}},
    {"single_stream_modulation.linear.weight", offsetof(lz_flux2, mod_single), {D3, D}},
    {"norm_out.linear.weight", offsetof(lz_flux2, norm_out), {D2, D}},
    {"proj_out.weight", offsetof(lz_flux2, proj_out), {C, D}},
};

static const lz_weight double_rows[] = {
    {"attn.to_q.weight", offsetof(double_block, of[IMAGE].q), {D, D}},
    {"attn.to_k.weight", offsetof(double_block, of[IMAGE].k), {D, D}},
    {"attn.to_v.weight", offsetof(double_block, of[IMAGE].v), {D, D}},
    {"attn.norm_q.weight", offsetof(double_block, of[IMAGE].q_norm), {HEAD}},
    {"attn.norm_k.weight", offsetof(double_block, of[IMAGE].k_norm), {HEAD}},
    {"attn.to_out.0.weight", offsetof(double_block, of[IMAGE].out), {D, D}},
    {"ff.linear_in.weight", offsetof(double_block, of[IMAGE].mlp_in), {M2, D}},
    {"ff.linear_out.weight", offsetof(double_block, of[IMAGE].mlp_out), {D, M}},
    {"attn.add_q_proj.weight", offsetof(double_block, of[TEXT].q), {D, D}},
    {"attn.add_k_proj.weight", offsetof(double_block, of[TEXT].k), {D, D}},
    {"attn.add_v_proj.weight", offsetof(double_block, of[TEXT].v), {D, D}},
    {"attn.norm_added_q.weight", offsetof(double_block, of[TEXT].q_norm), {HEAD}},
    {"attn.norm_added_k.weight", offsetof(double_block, of[TEXT].k_norm), {HEAD}},
    {"attn.to_add_out.weight", offsetof(double_block, of[TEXT].out), {D, D}},
    {"ff_context.linear_in.weight", offsetof(double_block, of[TEXT].mlp_in), {M2, D}},
    {"ff_context.linear_out.weight", offsetof(double_block, of[TEXT].mlp_out), {D, M}},
};

static const lz_weight single_rows[] = {
    {"attn.to_qkv_mlp_proj.weight", offsetof(single_block, in), {IN1, D}},
    {"attn.norm_q.weight", offsetof(single_block, q_norm), {HEAD}},
    {"attn.norm_k.weight", offsetof(single_block, k_norm), {HEAD}},
    {"attn.to_out.weight", offsetof(single_block, out), {D, DM}},
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static lz_status read_config(lz_flux2 *m, const char *folder, int64_t sizes[SIZES], lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, &lz_names_flux2, err);
    if (status) return status;
    m->heads = lz_config_int(&c, "num_attention_heads", LZ_REQUIRED, 1, 4096);
    m->head_size = lz_config_int(&c, "attention_head_dim", LZ_REQUIRED, 2, 512);
    m->width = m->heads * m->head_size;
    double ratio = lz_config_real(&c, "mlp_ratio", 3);
    if (!(ratio > 0 && ratio <= 64)) lz_config_refuse(&c, "'mlp_ratio' must lie between 0 and 64");
    m->mlp = c.err.status ? 1 : (int64_t)((double)m->width * ratio);
    m->channels = lz_config_int(&c, "in_channels", LZ_REQUIRED, 1, 65536);
    m->text_width = lz_config_int(&c, "joint_attention_dim", LZ_REQUIRED, 1, 1 << 20);
    m->n_double = lz_config_int(&c, "num_layers", LZ_REQUIRED, 0, 1024);
    m->n_single = lz_config_int(&c, "num_single_layers", LZ_REQUIRED, 0, 1024);
    m->time_channels = lz_config_int(&c, "timestep_guidance_channels", 256, 2, 65536);
    m->theta = lz_config_real(&c, "rope_theta", 2000);
    m->eps = lz_config_real(&c, "eps", 1e-6);
    int64_t sum = 0, axes = lz_config_ints(&c, "axes_dims_rope", m->rope_axes, MAX_AXES, 2, 512);
    for (int i = 0; i < axes; i++) sum += m->rope_axes[i];
    if (axes != MAX_AXES || sum != m->head_size)
        lz_config_refuse(&c, "'axes_dims_rope' must be four numbers that add up to the head size");
    for (int i = 0; i < axes; i++)
        if (m->rope_axes[i] % 2) lz_config_refuse(&c, "'axes_dims_rope' must be even numbers");
    if (m->time_channels % 2) lz_config_refuse(&c, "'timestep_guidance_channels' must be even");
    if (lz_config_bool(&c, "guidance_embeds", false))
        lz_config_refuse(&c, "models with embedded guidance (FLUX.2-dev) are not supported");
    if (lz_config_int(&c, "patch_size", 1, 1, 64) != 1) lz_config_refuse(&c, "'patch_size' must be 1");
    if (lz_config_int(&c, "out_channels", m->channels, 1, 65536) != m->channels)
        lz_config_refuse(&c, "'out_channels' must be 'in_channels'");
    const int64_t all[SIZES] = {
        [D] = m->width,    [D2] = 2 * m->width, [D3] = 3 * m->width,       [D6] = 6 * m->width,
        [M] = m->mlp,      [M2] = 2 * m->mlp,   [DM] = m->width + m->mlp,  [IN1] = 3 * m->width + 2 * m->mlp,
        [C] = m->channels, [E] = m->text_width, [TIME] = m->time_channels, [HEAD] = m->head_size};
    for (int i = 0; i < SIZES; i++) sizes[i] = all[i];
    lz_config_refuse_rest(&c, NULL);
    return lz_config_end(&c, err);
}

lz_flux2 *lz_flux2_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_flux2 *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    if (m) m->targets = lz_targets_new(ctx);
    int64_t sizes[SIZES];
    lz_loader l;
    lz_status status = m && m->targets ? read_config(m, folder, sizes, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_flux2, sizes, err);
    if (!status) {
        l.targets = m->targets;
        l.lasting = true;
        lz_loader_take(&l, "", LZ_ROWS(model_rows), m);
        m->doubles = lz_loader_take_blocks(&l, "", "transformer_blocks.", m->n_double, LZ_ROWS(double_rows),
                                           sizeof *m->doubles);
        m->singles = lz_loader_take_blocks(&l, "", "single_transformer_blocks.", m->n_single, LZ_ROWS(single_rows),
                                           sizeof *m->singles);
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_flux2_close(m);
    return NULL;
}

void lz_flux2_close(lz_flux2 *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release_blocks(m->ctx, m->doubles, m->n_double, LZ_ROWS(double_rows), sizeof *m->doubles);
    lz_loader_release_blocks(m->ctx, m->singles, m->n_single, LZ_ROWS(single_rows), sizeof *m->singles);
    lz_targets_free(m->targets);
    lz_host_free(m->ctx, m);
}

lz_targets *lz_flux2_targets(lz_flux2 *m) { return m->targets; }
int64_t lz_flux2_channels(const lz_flux2 *m) { return m->channels; }
int64_t lz_flux2_text_width(const lz_flux2 *m) { return m->text_width; }

/* ---- once per schedule, size, prompt ----------------------------------------------------------------------------- */

lz_flux2_time lz_flux2_modulation(const lz_flux2 *m, lz_array *sigmas) {
    lz_scope *scope = lz_scope_begin(m->ctx, "modulation");
    int64_t half = m->time_channels / 2;
    lz_array *tau = lz_reshape(lz_mul(sigmas, 1000.0), LZ_DIMS(-1, 1));
    /* Angles reach 1000, where the last bit of a frequency changes the angle by 6e-5 of a rotation: frequencies must be
     * rounded as in torch. */
    lz_array *exponent = lz_mul(lz_arange(m->ctx, 0, (double)half, 1, LZ_F32), -log(10000) / (double)half);
    lz_array *omega = lz_cast(lz_exp(lz_cast(exponent, LZ_F64)), LZ_F32);
    lz_array *angle = lz_mul(tau, omega); /* [n, half] */
    lz_array *wave = lz_concat((lz_array *[]){lz_cos(angle), lz_sin(angle)}, 2,
                               1); /* [n, time_channels], cosines first */
    lz_array *c = lz_apply(lz_silu(lz_apply(wave, m->time_in, NULL)), m->time_out, NULL); /* [n, D] */
    lz_array *s = lz_silu(c);
    lz_dtype type = lz_compute_type(m->ctx);
    lz_flux2_time time = {
        .image = lz_cast(lz_apply(s, m->mod_image, NULL), type),
        .text = lz_cast(lz_apply(s, m->mod_text, NULL), type),
        .single = lz_cast(lz_apply(s, m->mod_single, NULL), type),
        .out = lz_cast(lz_apply(s, m->norm_out, NULL), type),
    };
    lz_scope_keep(scope, time.image);
    lz_scope_keep(scope, time.text);
    lz_scope_keep(scope, time.single);
    lz_scope_keep(scope, time.out);
    lz_scope_end(scope);
    return time;
}

lz_array *lz_flux2_clean_row(const lz_flux2 *m) {
    lz_flux2_time time = lz_flux2_modulation(m, lz_full(m->ctx, LZ_DIMS(1), LZ_F32, 0));
    return lz_concat((lz_array *[]){time.image, time.single}, 2, 1);
}

void lz_flux2_rope(const lz_flux2 *m, const lz_place *places, int64_t n, lz_array **cos, lz_array **sin) {
    lz_rope_tables(m->ctx, m->rope_axes, m->theta, places, n, cos, sin);
}

lz_array *lz_flux2_context(const lz_flux2 *m, lz_array *features) {
    return lz_apply(lz_cast(features, lz_compute_type(m->ctx)), m->context_embed, NULL);
}

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

/* Vector i of a row of modulation vectors, [1, D]. */
static lz_array *vector(const lz_flux2 *m, lz_array *row, int i) {
    return lz_slice(row, 1, i * m->width, (i + 1) * m->width, 1);
}

typedef struct modulation {
    lz_array *shift, *scale, *gate;
} modulation;

static modulation modulation_at(const lz_flux2 *m, lz_array *row, int i) {
    return (modulation){vector(m, row, 3 * i), vector(m, row, 3 * i + 1), vector(m, row, 3 * i + 2)};
}

static lz_array *modulate(const lz_flux2 *m, lz_array *x, modulation mod) {
    return lz_modulated_norm(x, mod.scale, mod.shift, m->eps);
}

typedef struct range { /* of tokens */
    int64_t first, end;
} range;

static lz_array *tokens(lz_array *x, range r) { return lz_slice(x, 0, r.first, r.end, 1); }

/* Arrays and numbers that all blocks of a pass share. Blocks are numbered from 0, first the double blocks. */
typedef struct pass {
    lz_flux2_time time;
    lz_array *cos, *sin; /* [S, d/2] */
    lz_array *cache;     /* keys and values of the references, [2 blocks, R, D], keys first; NULL: none */
    lz_array **made;     /* receives the keys and values of this pass, [1, S, D] each; NULL: not wanted */
} pass;

/* [n, D] -> [1, n, H, d] */
static lz_array *split_heads(const lz_flux2 *m, lz_array *x) {
    return lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size));
}

/* [1, n, H, d] -> [1, H, n, d], and back */
static lz_array *swap_heads(lz_array *x) { return lz_permute(x, LZ_DIMS(0, 2, 1, 3)); }

/* Norm and rope: [n, D] -> [1, H, n, d]. at: the rows of these tokens in the tables. */
static lz_array *turn(const lz_flux2 *m, lz_array *x, const lz_param *norm, const pass *p, range at) {
    x = lz_rms_norm(split_heads(m, x), lz_dense(norm), m->eps);
    return lz_rope(swap_heads(x), tokens(p->cos, at), tokens(p->sin, at));
}

/* softmax(q k) v with merged heads: [n, D]. Keys [1, H, *, d] and values [*, D] come in n_parts parts, with a place for
 * those of the references. */
static lz_array *attend(const lz_flux2 *m, const pass *p, int64_t block, lz_array *q, lz_array **k, lz_array **v,
                        int n_parts) {
    if (p->cache) {
        lz_array *at[2];
        for (int i = 0; i < 2; i++)
            at[i] = lz_reshape(lz_slice(p->cache, 0, 2 * block + i, 2 * block + i + 1, 1), LZ_DIMS(-1, m->width));
        k[n_parts] = swap_heads(split_heads(m, at[0]));
        v[n_parts++] = at[1];
    }
    lz_array *keys = n_parts > 1 ? lz_concat(k, n_parts, 2) : k[0];
    lz_array *values = n_parts > 1 ? lz_concat(v, n_parts, 0) : v[0];
    if (p->made) {
        p->made[2 * block] = lz_reshape(swap_heads(keys), LZ_DIMS(1, -1, m->width));
        p->made[2 * block + 1] = lz_reshape(values, LZ_DIMS(1, -1, m->width));
    }
    lz_array *a = lz_sdpa(q, keys, swap_heads(split_heads(m, values)));
    return lz_reshape(swap_heads(a), LZ_DIMS(-1, m->width));
}

/* [n, D] -> [n, M] with rows `first` .. of weight: M rows of the gate, then M of up. */
static lz_array *swiglu(const lz_flux2 *m, lz_array *x, const lz_param *weight, int64_t first) {
    lz_array *gate = lz_apply_rows(x, weight, first, m->mlp), *up = lz_apply_rows(x, weight, first + m->mlp, m->mlp);
    return lz_mul(lz_silu(gate), up);
}

/* The rest of a stream's block, after the joint attention. */
static lz_array *finish_stream(const lz_flux2 *m, const stream *w, lz_array *x, lz_array *attention, lz_array *row) {
    modulation first = modulation_at(m, row, 0), second = modulation_at(m, row, 1);
    x = lz_add(x, lz_mul(lz_apply(attention, w->out, NULL), first.gate));
    lz_array *h = swiglu(m, modulate(m, x, second), w->mlp_in, 0);
    return lz_add(x, lz_mul(lz_apply(h, w->mlp_out, NULL), second.gate));
}

/* The streams h share one attention, with the text first. The references alone have no text. */
static void run_double(const lz_flux2 *m, const pass *p, int64_t block, lz_array *h[STREAMS]) {
    const double_block *b = &m->doubles[block];
    lz_array *const rows[STREAMS] = {p->time.text, p->time.image};
    lz_array *q[STREAMS], *k[STREAMS + 1], *v[STREAMS + 1];
    range at[STREAMS];
    int64_t end = 0;
    int n = 0;
    for (int i = h[TEXT] ? TEXT : IMAGE; i < STREAMS; i++, n++) {
        const stream *w = &b->of[i];
        lz_array *x = modulate(m, h[i], modulation_at(m, rows[i], 0));
        at[i] = (range){end, end + lz_shape(h[i]).at[0]};
        end = at[i].end;
        q[n] = turn(m, lz_apply(x, w->q, NULL), w->q_norm, p, at[i]);
        k[n] = turn(m, lz_apply(x, w->k, NULL), w->k_norm, p, at[i]);
        v[n] = lz_apply(x, w->v, NULL);
    }
    lz_array *a = attend(m, p, block, n > 1 ? lz_concat(q, n, 2) : q[0], k, v, n);
    for (int i = IMAGE; i >= (h[TEXT] ? TEXT : IMAGE); i--)
        h[i] = finish_stream(m, &b->of[i], h[i], tokens(a, at[i]), rows[i]);
}

/* Attention and feed-forward in parallel, with one input and one output weight. z [S, D]. Only the rows `asked` are
 * computed; the others are keys and values only. */
static lz_array *run_single(const lz_flux2 *m, const pass *p, int64_t i, lz_array *z, range asked) {
    const single_block *b = &m->singles[i];
    modulation mod = modulation_at(m, p->time.single, 0);
    range all = {0, lz_shape(z).at[0]};
    lz_array *x = modulate(m, z, mod), *h = lz_apply_rows(x, b->in, 0, 3 * m->width); /* [S, 3D] */
    lz_array *q = turn(m, tokens(vector(m, h, 0), asked), b->q_norm, p, asked);
    lz_array *k[2] = {turn(m, vector(m, h, 1), b->k_norm, p, all)}, *v[2] = {vector(m, h, 2)};
    lz_array *both[2] = {attend(m, p, m->n_double + i, q, k, v, 1), swiglu(m, tokens(x, asked), b->in, 3 * m->width)};
    return lz_add(tokens(z, asked), lz_mul(lz_apply(lz_concat(both, 2, 1), b->out, NULL), mod.gate));
}

/* All blocks. Of the result, only the rows `asked` are computed. */
static lz_array *run_blocks(const lz_flux2 *m, const pass *p, lz_array *text, lz_array *image, range asked) {
    lz_array *h[STREAMS] = {text, image};
    for (int64_t i = 0; i < m->n_double; i++) run_double(m, p, i, h);
    lz_array *z = text ? lz_concat(h, STREAMS, 0) : h[IMAGE];
    range all = {0, lz_shape(z).at[0]};
    for (int64_t i = 0; i < m->n_single; i++) z = run_single(m, p, i, z, i == m->n_single - 1 ? asked : all);
    return m->n_single ? z : tokens(z, asked);
}

static lz_array *embed(const lz_flux2 *m, lz_array *x) {
    return lz_apply(lz_cast(x, lz_compute_type(m->ctx)), m->x_embed, NULL);
}

lz_array *lz_flux2_cache(const lz_flux2 *m, lz_array *x, lz_array *clean_row, lz_array *cos, lz_array *sin) {
    int64_t n = 2 * (m->n_double + m->n_single), d = m->width;
    if (!n) return x; /* nothing attends to them */
    lz_array **made = lz_host_alloc(m->ctx, (size_t)n * sizeof *made);
    if (!made) return lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "keys and values of references");
    lz_scope *scope = lz_scope_begin(m->ctx, "references");
    pass p = {.time = {.image = lz_slice(clean_row, 1, 0, 6 * d, 1), .single = lz_slice(clean_row, 1, 6 * d, 9 * d, 1)},
              .cos = cos,
              .sin = sin,
              .made = made};
    /* Nothing reads the result of the last block, so it is not computed. */
    run_blocks(m, &p, NULL, embed(m, x), (range){0, lz_shape(x).at[0]});
    lz_array *all = lz_concat(made, (int)n, 0);
    lz_host_free(m->ctx, made);
    return lz_scope_return(scope, all);
}

lz_array *lz_flux2_velocity(const lz_flux2 *m, lz_array *x, lz_array *context, lz_flux2_time time, lz_array *cos,
                            lz_array *sin, int64_t rows, lz_array *cache) {
    lz_scope *scope = lz_scope_begin(m->ctx, "flux2");
    int64_t t = lz_shape(context).at[0];
    pass p = {.time = time, .cos = cos, .sin = sin, .cache = cache};
    lz_array *z = run_blocks(m, &p, context, embed(m, x), (range){t, t + rows});
    /* The last norm has its vectors in the opposite order: scale, then shift. */
    z = lz_modulated_norm(z, vector(m, time.out, 0), vector(m, time.out, 1), m->eps);
    return lz_scope_return(scope, lz_cast(lz_apply(z, m->proj_out, NULL), LZ_F32));
}
