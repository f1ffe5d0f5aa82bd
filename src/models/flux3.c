/* flux3.c: the FLUX.3 transformer.
 *
 *   T text tokens, L tokens of the picture, R tokens of the references, S = T + L + R
 *   D width = H heads x d, M feed-forward width, C latent channels, E text features
 *
 *   text -------> [T, D] -> blocks of the text       \
 *   latents ----> [L, D] -> blocks of the picture     > [S, D] -> single blocks -> rows of the picture -> velocity [L, C]
 *   references -> [R, D] -> blocks of the references /
 *
 * All blocks are alike: attention and feed-forward in parallel, of one modulated input. In its own blocks a stream
 * attends only to itself. The picture is modulated by the time of the step, text and references as at time 0; a flow
 * map adds the time after the step to both. */
#include "models/flux3.h"

#include <math.h>

#include "models/loader.h"
#include "models/signature.h"

enum { NONE, D, D2, D3, M, M2, C, E, TIME, HEAD, SIZES };
enum { MAX_AXES = LZ_ROPE_AXES };
enum { TEXT, PICTURE, REFERENCES, STREAMS }; /* in the order of their tokens */

typedef struct block {
    lz_param *q, *k, *v, *q_norm, *k_norm, *out, *mlp_in, *mlp_out;
} block;

typedef struct time_weights {
    lz_param *in, *out;
} time_weights;

struct lz_flux3 {
    lz_context *ctx;
    int64_t width, heads, head_size, mlp, channels, text_width, n_own, n_single, time_channels;
    int64_t rope_axes[MAX_AXES];
    double theta, eps;
    bool flow_map;
    lz_param *picture_in, *references_in, *text_in, *norm_out, *proj_out;
    time_weights time, target;
    lz_param *own_modulation[STREAMS], *single_modulation[STREAMS];
    block *own[STREAMS], *singles;
    lz_targets *targets; /* owned */
};

static const lz_weight model_rows[] = {
    {"x_embedders.image.weight", offsetof(lz_flux3, picture_in), {D, C}},
    {"x_embedders.image_cond.weight", offsetof(lz_flux3, references_in), {D, C}},
    {"context_embedder.weight", offsetof(lz_flux3, text_in), {D, E}},
    {"timestep_embedder.linear_1.weight", offsetof(lz_flux3, time.in), {D, TIME}},
    {"timestep_embedder.linear_2.weight", offsetof(lz_flux3, time.out), {D, D}},
    {"early_stream_modulations.txt.linear.weight", offsetof(lz_flux3, own_modulation[TEXT]), {D3, D}},
    {"early_stream_modulations.image.linear.weight", offsetof(lz_flux3, own_modulation[PICTURE]), {D3, D}},
    {"early_stream_modulations.image_cond.linear.weight", offsetof(lz_flux3, own_modulation[REFERENCES]), {D3, D}},
    {"single_stream_modulations.txt.linear.weight", offsetof(lz_flux3, single_modulation[TEXT]), {D3, D}},
    {"single_stream_modulations.image.linear.weight", offsetof(lz_flux3, single_modulation[PICTURE]), {D3, D}},
    {"single_stream_modulations.image_cond.linear.weight", offsetof(lz_flux3, single_modulation[REFERENCES]), {D3, D}},
    {"norm_out.linear.weight", offsetof(lz_flux3, norm_out), {D2, D}},
    {"proj_out.weight", offsetof(lz_flux3, proj_out), {C, D}},
};

static const lz_weight target_rows[] = {
    {"target_timestep_embedder.linear_1.weight", offsetof(lz_flux3, target.in), {D, TIME}},
    {"target_timestep_embedder.linear_2.weight", offsetof(lz_flux3, target.out), {D, D}},
};

static const lz_weight block_rows[] = {
    {"attn.to_q.weight", offsetof(block, q), {D, D}},
    {"attn.to_k.weight", offsetof(block, k), {D, D}},
    {"attn.to_v.weight", offsetof(block, v), {D, D}},
    {"attn.norm_q.weight", offsetof(block, q_norm), {HEAD}},
    {"attn.norm_k.weight", offsetof(block, k_norm), {HEAD}},
    {"attn.to_out.0.weight", offsetof(block, out), {D, D}},
    {"ff.linear_in.weight", offsetof(block, mlp_in), {M2, D}},
    {"ff.linear_out.weight", offsetof(block, mlp_out), {D, M}},
};

static const char *const own_lists[STREAMS] = {"txt_mode_blocks.", "mode_blocks.image.", "mode_blocks.image_cond."};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void read_rope(lz_flux3 *m, lz_config *c) {
    int64_t sum = 0, axes = lz_config_ints(c, "axes_dims_rope", m->rope_axes, MAX_AXES, 2, 512);
    for (int i = 0; i < axes; i++) sum += m->rope_axes[i];
    if (axes != MAX_AXES || sum != m->head_size)
        lz_config_refuse(c, "'axes_dims_rope' must be four numbers that add up to the head size");
    for (int i = 0; i < axes; i++)
        if (m->rope_axes[i] % 2) lz_config_refuse(c, "'axes_dims_rope' must be even numbers");
    m->theta = lz_config_real(c, "rope_theta", 10000);
    if (!(m->theta > 0)) lz_config_refuse(c, "'rope_theta' must be above 0");
}

static lz_status read_config(lz_flux3 *m, const char *folder, int64_t sizes[SIZES], lz_error *err) {
    lz_config c;
    lz_status status = lz_component_config(&c, m->ctx, folder, &lz_names_flux3, err);
    if (status) return status;
    m->heads = lz_config_int(&c, "num_attention_heads", LZ_REQUIRED, 1, 4096);
    m->head_size = lz_config_int(&c, "attention_head_dim", LZ_REQUIRED, 2, 512);
    m->width = m->heads * m->head_size;
    double ratio = lz_config_real(&c, "mlp_ratio", 3);
    if (!(ratio > 0 && ratio <= 64)) lz_config_refuse(&c, "'mlp_ratio' must lie between 0 and 64");
    m->mlp = c.err.status ? 1 : (int64_t)((double)m->width * ratio);
    if (!m->mlp) lz_config_refuse(&c, "'mlp_ratio' is too small for a width of %lld", (long long)m->width);
    m->channels = lz_config_int(&c, "in_channels", LZ_REQUIRED, 1, 65536);
    m->text_width = lz_config_int(&c, "joint_attention_dim", LZ_REQUIRED, 1, 1 << 20);
    m->n_own = lz_config_int(&c, "num_layers", LZ_REQUIRED, 0, 1024);
    m->n_single = lz_config_int(&c, "num_single_layers", LZ_REQUIRED, 0, 1024);
    m->time_channels = lz_config_int(&c, "timestep_channels", 256, 2, 65536);
    m->eps = lz_config_real(&c, "eps", 1e-6);
    m->flow_map = lz_config_bool(&c, "flow_map", false);
    read_rope(m, &c);
    if (!(m->eps > 0 && m->eps < 1)) lz_config_refuse(&c, "'eps' must be above 0 and below 1");
    if (m->time_channels % 2) lz_config_refuse(&c, "'timestep_channels' must be even");
    if (lz_config_int(&c, "cond_in_channels", m->channels, 1, 65536) != m->channels)
        lz_config_refuse(&c, "'cond_in_channels' must be 'in_channels'");
    const int64_t all[SIZES] = {
        [D] = m->width,    [D2] = 2 * m->width, [D3] = 3 * m->width,       [M] = m->mlp,         [M2] = 2 * m->mlp,
        [C] = m->channels, [E] = m->text_width, [TIME] = m->time_channels, [HEAD] = m->head_size};
    for (int i = 0; i < SIZES; i++) sizes[i] = all[i];
    lz_config_refuse_rest(&c, NULL);
    return lz_config_end(&c, err);
}

lz_flux3 *lz_flux3_open(lz_context *ctx, const char *folder, lz_error *err) {
    lz_flux3 *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    if (m) m->targets = lz_targets_new(ctx);
    int64_t sizes[SIZES];
    lz_loader l;
    lz_status status = m && m->targets ? read_config(m, folder, sizes, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_flux3, sizes, err);
    if (!status) {
        l.targets = m->targets;
        l.lasting = true;
        lz_loader_take(&l, "", LZ_ROWS(model_rows), m);
        if (m->flow_map) lz_loader_take(&l, "", LZ_ROWS(target_rows), m);
        for (int i = 0; i < STREAMS; i++)
            m->own[i] = lz_loader_take_blocks(&l, "", own_lists[i], m->n_own, LZ_ROWS(block_rows), sizeof(block));
        m->singles = lz_loader_take_blocks(&l, "", "single_transformer_blocks.", m->n_single, LZ_ROWS(block_rows),
                                           sizeof(block));
        lz_loader_skip(&l, "repa_projectors."); /* of training; in the makers' files */
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_flux3_close(m);
    return NULL;
}

void lz_flux3_close(lz_flux3 *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release(LZ_ROWS(target_rows), m);
    for (int i = 0; i < STREAMS; i++)
        lz_loader_release_blocks(m->ctx, m->own[i], m->n_own, LZ_ROWS(block_rows), sizeof(block));
    lz_loader_release_blocks(m->ctx, m->singles, m->n_single, LZ_ROWS(block_rows), sizeof(block));
    lz_targets_free(m->targets);
    lz_host_free(m->ctx, m);
}

lz_targets *lz_flux3_targets(lz_flux3 *m) { return m->targets; }
int64_t lz_flux3_channels(const lz_flux3 *m) { return m->channels; }
int64_t lz_flux3_text_width(const lz_flux3 *m) { return m->text_width; }
bool lz_flux3_flow_map(const lz_flux3 *m) { return m->flow_map; }

/* ---- once per schedule, size, prompt ----------------------------------------------------------------------------- */

/* [n] -> [n, D] */
static lz_array *embed_time(const lz_flux3 *m, const time_weights *p, lz_array *sigmas) {
    int64_t half = m->time_channels / 2;
    lz_array *tau = lz_reshape(lz_mul(sigmas, 1000.0), LZ_DIMS(-1, 1));
    /* Angles reach 1000, where the last bit of a frequency changes the angle by 6e-5 of a rotation: frequencies must be
     * rounded as in torch. */
    lz_array *exponent = lz_mul(lz_arange(m->ctx, 0, (double)half, 1, LZ_F32), -log(10000) / (double)half);
    lz_array *omega = lz_cast(lz_exp(lz_cast(exponent, LZ_F64)), LZ_F32);
    lz_array *angle = lz_mul(tau, omega);                                           /* [n, half] */
    lz_array *wave = lz_concat((lz_array *[]){lz_cos(angle), lz_sin(angle)}, 2, 1); /* cosines first */
    return lz_apply(lz_silu(lz_apply(wave, p->in, NULL)), p->out, NULL);
}

/* The vectors of a stream: 3D of its own blocks, 3D of the single blocks. s [n, D]. */
static void add_vectors(const lz_flux3 *m, int stream, lz_array *s, lz_array *to[2]) {
    to[0] = lz_apply(s, m->own_modulation[stream], NULL);
    to[1] = lz_apply(s, m->single_modulation[stream], NULL);
}

lz_flux3_time lz_flux3_modulation(const lz_flux3 *m, lz_array *sigmas) {
    lz_scope *scope = lz_scope_begin(m->ctx, "modulation");
    int64_t steps = lz_shape(sigmas).at[0];
    lz_array *zero = lz_full(m->ctx, LZ_DIMS(1), LZ_F32, 0), *vectors[4];
    lz_array *now = embed_time(m, &m->time, sigmas), *still = embed_time(m, &m->time, zero);
    if (m->flow_map) {
        lz_array *next = lz_concat((lz_array *[]){lz_slice(sigmas, 0, 1, steps, 1), zero}, 2, 0);
        lz_array *target = embed_time(m, &m->target, next);
        now = lz_add(now, target);
        still = lz_add(still, target);
    }
    now = lz_silu(now);
    still = lz_silu(still);
    lz_dtype type = lz_compute_type(m->ctx);
    add_vectors(m, PICTURE, now, vectors);
    lz_flux3_time time = {.image = lz_cast(lz_concat(vectors, 2, 1), type),
                          .out = lz_cast(lz_apply(now, m->norm_out, NULL), type)};
    add_vectors(m, TEXT, still, vectors);
    add_vectors(m, REFERENCES, still, vectors + 2);
    time.still = lz_cast(lz_concat(vectors, 4, 1), type);
    lz_scope_keep(scope, time.image);
    lz_scope_keep(scope, time.still);
    lz_scope_keep(scope, time.out);
    lz_scope_end(scope);
    return time;
}

void lz_flux3_rope(const lz_flux3 *m, const lz_place *places, int64_t n, lz_array **cos, lz_array **sin) {
    lz_rope_tables_in(m->ctx, m->rope_axes, m->theta, 0.5, places, n, cos, sin);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

typedef struct range { /* of tokens */
    int64_t first, end;
} range;

static lz_array *tokens(lz_array *x, range r) { return lz_slice(x, 0, r.first, r.end, 1); }

typedef struct modulation {
    lz_array *shift, *scale, *gate;
} modulation;

/* Vector i of a row of modulation vectors, [1, D]. */
static lz_array *vector(const lz_flux3 *m, lz_array *row, int i) {
    return lz_slice(row, 1, i * m->width, (i + 1) * m->width, 1);
}

/* The modulation of a stream: in the blocks of that stream alone, or in the single blocks. */
static modulation modulation_of(const lz_flux3 *m, lz_flux3_time time, int stream, bool single) {
    lz_array *row = stream == PICTURE ? time.image : time.still;
    int i = (stream == REFERENCES ? 6 : 0) + (single ? 3 : 0);
    return (modulation){vector(m, row, i), vector(m, row, i + 1), vector(m, row, i + 2)};
}

/* [n, D] -> [1, H, n, d] */
static lz_array *to_heads(const lz_flux3 *m, lz_array *x) {
    return lz_permute(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), LZ_DIMS(0, 2, 1, 3));
}

/* Norm and rope: [n, D] -> [1, H, n, d] */
static lz_array *turn(const lz_flux3 *m, lz_array *x, const lz_param *norm, lz_array *cos, lz_array *sin) {
    x = lz_rms_norm(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), lz_dense(norm), m->eps);
    return lz_rope(lz_permute(x, LZ_DIMS(0, 2, 1, 3)), cos, sin);
}

/* Attention plus feed-forward of x [n, D], which is modulated. Only the rows `asked` are computed; the others are keys
 * and values only. */
static lz_array *run_block(const lz_flux3 *m, const block *p, lz_array *x, lz_array *cos, lz_array *sin, range asked) {
    lz_array *some = tokens(x, asked);
    lz_array *q = turn(m, lz_apply(some, p->q, NULL), p->q_norm, tokens(cos, asked), tokens(sin, asked)),
             *k = turn(m, lz_apply(x, p->k, NULL), p->k_norm, cos, sin);
    lz_array *a = lz_sdpa(q, k, to_heads(m, lz_apply(x, p->v, NULL)));
    a = lz_reshape(lz_permute(a, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(-1, m->width));
    lz_array *gate = lz_apply_rows(some, p->mlp_in, 0, m->mlp), *up = lz_apply_rows(some, p->mlp_in, m->mlp, m->mlp);
    lz_array *b = lz_mul(lz_silu(gate), up); /* [n, M] */
    return lz_add(lz_apply(a, p->out, NULL), lz_apply(b, p->mlp_out, NULL));
}

/* The blocks of one stream, which attends only to itself. h [n, D]; at: its rows in the tables. */
static lz_array *run_own(const lz_flux3 *m, int stream, lz_array *h, lz_flux3_time time, lz_array *cos, lz_array *sin,
                         range at) {
    modulation mod = modulation_of(m, time, stream, false);
    range all = {0, at.end - at.first};
    for (int64_t i = 0; i < m->n_own; i++) {
        lz_array *x = lz_modulated_norm(h, mod.scale, mod.shift, m->eps);
        x = run_block(m, &m->own[stream][i], x, tokens(cos, at), tokens(sin, at), all);
        h = lz_add(h, lz_mul(x, mod.gate));
    }
    return h;
}

static range rows_of(lz_flux3_tokens n, int stream) {
    int64_t ends[STREAMS] = {n.text, n.text + n.picture, n.text + n.picture + n.references};
    return (range){stream ? ends[stream - 1] : 0, ends[stream]};
}

/* One block over all streams h, each of which has its modulation. The last one computes the picture alone. */
static void run_single(const lz_flux3 *m, const block *p, lz_array *h[STREAMS], lz_flux3_time time, lz_array *cos,
                       lz_array *sin, lz_flux3_tokens n, bool last) {
    lz_array *parts[STREAMS];
    modulation mod[STREAMS];
    int streams = n.references ? STREAMS : REFERENCES;
    for (int i = 0; i < streams; i++) {
        mod[i] = modulation_of(m, time, i, true);
        parts[i] = lz_modulated_norm(h[i], mod[i].scale, mod[i].shift, m->eps);
    }
    range all = {0, n.text + n.picture + n.references}, asked = last ? rows_of(n, PICTURE) : all;
    lz_array *x = run_block(m, p, lz_concat(parts, streams, 0), cos, sin, asked);
    for (int i = last ? PICTURE : 0; i < (last ? REFERENCES : streams); i++) {
        lz_array *change = last ? x : tokens(x, rows_of(n, i));
        h[i] = lz_add(h[i], lz_mul(change, mod[i].gate));
    }
}

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

/* Text and references through their own blocks. h [t + r, D] */
static lz_array *run_still(const lz_flux3 *m, lz_array *h, lz_array *still, lz_array *cos, lz_array *sin,
                           lz_flux3_tokens n) {
    lz_flux3_time time = {.still = still};
    lz_array *parts[2] = {run_own(m, TEXT, tokens(h, (range){0, n.text}), time, cos, sin, rows_of(n, TEXT)), NULL};
    if (!n.references) return parts[0];
    parts[1] = run_own(m, REFERENCES, tokens(h, (range){n.text, n.text + n.references}), time, cos, sin,
                       rows_of(n, REFERENCES));
    return lz_concat(parts, 2, 0);
}

lz_array *lz_flux3_context(const lz_flux3 *m, lz_array *features, lz_array *references, lz_array *still, lz_array *cos,
                           lz_array *sin, lz_flux3_tokens n) {
    lz_scope *scope = lz_scope_begin(m->ctx, "context");
    lz_dtype type = lz_compute_type(m->ctx);
    lz_array *h = lz_apply(lz_cast(features, type), m->text_in, NULL);
    if (references) h = lz_concat((lz_array *[]){h, lz_apply(lz_cast(references, type), m->references_in, NULL)}, 2, 0);
    return lz_scope_return(scope, m->flow_map ? h : run_still(m, h, still, cos, sin, n));
}

lz_array *lz_flux3_velocity(const lz_flux3 *m, lz_array *x, lz_array *context, lz_flux3_time time, lz_array *cos,
                            lz_array *sin, lz_flux3_tokens n) {
    lz_scope *scope = lz_scope_begin(m->ctx, "flux3");
    if (m->flow_map) context = run_still(m, context, time.still, cos, sin, n);
    lz_array *h[STREAMS] = {tokens(context, (range){0, n.text}),
                            lz_apply(lz_cast(x, lz_compute_type(m->ctx)), m->picture_in, NULL), NULL};
    if (n.references) h[REFERENCES] = tokens(context, (range){n.text, n.text + n.references});
    h[PICTURE] = run_own(m, PICTURE, h[PICTURE], time, cos, sin, rows_of(n, PICTURE));
    for (int64_t i = 0; i < m->n_single; i++) run_single(m, &m->singles[i], h, time, cos, sin, n, i == m->n_single - 1);
    /* The last norm has its vectors in the opposite order: scale, then shift. */
    lz_array *z = lz_modulated_norm(h[PICTURE], vector(m, time.out, 0), vector(m, time.out, 1), m->eps);
    return lz_scope_return(scope, lz_cast(lz_apply(z, m->proj_out, NULL), LZ_F32));
}
