/* qwen3.c: Qwen3, layer by layer; also as the language model of Qwen3-VL.
 *
 *   T tokens, W width, H query heads, G key heads, d head size, F feed-forward width
 *
 * A decoder layer: x += attention(norm(x)); x += mlp(norm(x)). Queries and keys are normed per head and rotated in
 * half-split pairs; attention is causal and ignores padding. Padding rows are computed like any other: the transformer
 * reads them. In Qwen3-VL each pair is rotated by one of the three coordinates of a token's place. */
#include "models/qwen3.h"

#include <math.h>

#include "models/loader.h"
#include "models/rope.h"
#include "models/signature.h"

enum { NONE, V, W, Q, K, D, F, SIZES };
enum { AXES = 3 };

typedef struct layer {
    lz_param *input_norm, *q, *k, *v, *q_norm, *k_norm, *o, *post_norm, *gate, *up, *down;
} layer;

struct lz_qwen3 {
    lz_context *ctx;
    int64_t width, heads, groups, head_size, layers, vocabulary;
    int64_t sections[AXES]; /* of Qwen3-VL: pairs that are rotated by time, row, column */
    double eps, theta;
    int64_t taps[LZ_QWEN3_MAX_TAPS];
    int n_taps;
    bool last_is_normed;    /* the state behind the last layer, as transformers counts it */
    lz_param *embed, *norm; /* norm: only if the state after the last layer is read */
    layer *layer;           /* [layers], up to the last tap */
};

static const lz_weight model_rows[] = {{"embed_tokens.weight", offsetof(lz_qwen3, embed), {V, W}}};

static const lz_weight norm_rows[] = {{"norm.weight", offsetof(lz_qwen3, norm), {W}}};

static const lz_weight layer_rows[] = {
    {"input_layernorm.weight", offsetof(layer, input_norm), {W}},
    {"self_attn.q_proj.weight", offsetof(layer, q), {Q, W}},
    {"self_attn.k_proj.weight", offsetof(layer, k), {K, W}},
    {"self_attn.v_proj.weight", offsetof(layer, v), {K, W}},
    {"self_attn.q_norm.weight", offsetof(layer, q_norm), {D}},
    {"self_attn.k_norm.weight", offsetof(layer, k_norm), {D}},
    {"self_attn.o_proj.weight", offsetof(layer, o), {W, Q}},
    {"post_attention_layernorm.weight", offsetof(layer, post_norm), {W}},
    {"mlp.gate_proj.weight", offsetof(layer, gate), {F, W}},
    {"mlp.up_proj.weight", offsetof(layer, up), {F, W}},
    {"mlp.down_proj.weight", offsetof(layer, down), {W, F}},
};

/* Pairs take turns: time, row, column, time, ... until an axis has its number. The others are of time. */
static void read_rope(lz_qwen3 *m, lz_config *c) {
    bool interleaved = false;
    m->theta = lz_rope_read(c, 10000, m->sections, &interleaved);
    int64_t sum = m->sections[0] + m->sections[1] + m->sections[2];
    if (sum && (!interleaved || 2 * sum != m->head_size))
        lz_config_refuse(c, "'mrope_section' must add up to half the head size, and 'mrope_interleaved' be true");
}

static lz_status read_config(lz_qwen3 *m, const char *folder, int64_t sizes[SIZES], lz_error *err) {
    lz_config whole, c;
    lz_status status = lz_component_config(&whole, m->ctx, folder, &lz_names_qwen3, err);
    if (status) return status;
    c = lz_config_inside(&whole, "text_config"); /* of Qwen3-VL */
    if (!c.root) c = whole;
    m->width = lz_config_int(&c, "hidden_size", LZ_REQUIRED, 1, 1 << 20);
    m->heads = lz_config_int(&c, "num_attention_heads", LZ_REQUIRED, 1, 4096);
    m->groups = lz_config_int(&c, "num_key_value_heads", m->heads, 1, 4096);
    m->head_size = lz_config_int(&c, "head_dim", 128, 2, 512);
    m->layers = lz_config_int(&c, "num_hidden_layers", LZ_REQUIRED, 1, 4096);
    m->vocabulary = lz_config_int(&c, "vocab_size", LZ_REQUIRED, 1, 1 << 24);
    m->eps = lz_config_real(&c, "rms_norm_eps", 1e-6);
    m->last_is_normed = lz_config_bool(&c, "_last_is_normed", true); /* of files that were cut: signature.c */
    read_rope(m, &c);
    int64_t published = lz_config_int(&c, "_published_layers", m->layers, 1, 4096); /* before it was cut */
    for (int i = 0; i < m->n_taps; i++) {
        if (m->taps[i] == LZ_QWEN3_LAST) {
            m->taps[i] = m->layers;
            m->last_is_normed = false;
        }
        if (m->taps[i] == LZ_QWEN3_BEFORE_LAST) m->taps[i] = published - 1;
    }
    int64_t f = lz_config_int(&c, "intermediate_size", LZ_REQUIRED, 1, 1 << 24);
    if (m->heads % m->groups)
        lz_config_refuse(&c, "%lld query heads do not share %lld key heads", (long long)m->heads, (long long)m->groups);
    if (m->head_size % 2) lz_config_refuse(&c, "a head size of %lld is odd", (long long)m->head_size);
    if (m->taps[m->n_taps - 1] > m->layers)
        lz_config_refuse(&c, "the picture model reads the state after layer %lld, but there are %lld",
                         (long long)m->taps[m->n_taps - 1], (long long)m->layers);
    int64_t all[SIZES] = {0, m->vocabulary, m->width, m->heads * m->head_size, m->groups * m->head_size, m->head_size,
                          f};
    for (int i = 0; i < SIZES; i++) sizes[i] = all[i];
    lz_config_refuse_rest_of_transformers(&c);
    if (c.root != whole.root) lz_config_refuse_rest_beside(&whole, &c);
    if (c.err.status) whole.err = c.err;
    return lz_config_end(&whole, err);
}

lz_qwen3 *lz_qwen3_open(lz_context *ctx, const char *folder, const int64_t *taps, int n_taps, lz_targets *targets,
                        lz_error *err) {
    lz_qwen3 *m = lz_host_alloc(ctx, sizeof *m);
    if (m) *m = (lz_qwen3){.ctx = ctx, .n_taps = n_taps};
    for (int i = 0; m && i < n_taps; i++) m->taps[i] = taps[i];
    int64_t sizes[SIZES];
    lz_loader l;
    lz_status status = m ? read_config(m, folder, sizes, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen3, sizes, err);
    if (!status) {
        int64_t needed = m->taps[n_taps - 1];
        l.targets = targets;
        lz_loader_take(&l, "model.", LZ_ROWS(model_rows), m);
        m->layer = lz_loader_take_blocks(&l, "model.", "layers.", needed, LZ_ROWS(layer_rows), sizeof *m->layer);
        lz_loader_skip_blocks(&l, "model.layers.", needed, m->layers, "");
        if (needed == m->layers && m->last_is_normed)
            lz_loader_take(&l, "model.", LZ_ROWS(norm_rows), m);
        else
            lz_loader_skip(&l, "model.norm.weight");
        lz_loader_skip(&l, "lm_head.weight");
        lz_loader_skip(&l, "model.visual.");
        lz_loader_skip(&l, "output.weight"); /* of GGUF */
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen3_close(m);
    return NULL;
}

void lz_qwen3_close(lz_qwen3 *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release(LZ_ROWS(norm_rows), m);
    int64_t needed = m->taps[m->n_taps - 1];
    lz_loader_release_blocks(m->ctx, m->layer, needed > 0 ? needed : 0, LZ_ROWS(layer_rows), sizeof *m->layer);
    lz_host_free(m->ctx, m);
}

int64_t lz_qwen3_width(const lz_qwen3 *m) { return m->width; }
int64_t lz_qwen3_vocabulary(const lz_qwen3 *m) { return m->vocabulary; }
bool lz_qwen3_has_places(const lz_qwen3 *m) { return m->sections[0]; }

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

/* [t, heads * d] -> [1, heads, t, d] */
static lz_array *to_heads(lz_array *x, int64_t heads, int64_t head_size) {
    lz_array *split = lz_reshape(x, LZ_DIMS(1, -1, heads, head_size));
    return lz_permute(split, LZ_DIMS(0, 2, 1, 3));
}

static lz_array *attention(const lz_qwen3 *m, const layer *p, lz_array *x, lz_array *cos, lz_array *sin,
                           lz_array *real) {
    lz_array *q = lz_reshape(lz_apply(x, p->q, NULL), LZ_DIMS(1, -1, m->heads, m->head_size));
    lz_array *k = lz_reshape(lz_apply(x, p->k, NULL), LZ_DIMS(1, -1, m->groups, m->head_size));
    lz_array *v = to_heads(lz_apply(x, p->v, NULL), m->groups, m->head_size);
    q = lz_permute(lz_rms_norm(q, lz_dense(p->q_norm), m->eps), LZ_DIMS(0, 2, 1, 3));
    k = lz_permute(lz_rms_norm(k, lz_dense(p->k_norm), m->eps), LZ_DIMS(0, 2, 1, 3));
    q = lz_rope(q, cos, sin, .half_split = true); /* [1, H, T, d] */
    k = lz_rope(k, cos, sin, .half_split = true); /* [1, G, T, d] */
    lz_array *a = lz_sdpa(q, k, v, .causal = true, .mask = real);
    a = lz_reshape(lz_permute(a, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(-1, m->heads * m->head_size));
    return lz_apply(a, p->o, NULL); /* [T, W] */
}

static lz_array *mlp(const layer *p, lz_array *x) {
    lz_array *gate = lz_silu(lz_apply(x, p->gate, NULL)); /* [T, F] */
    return lz_apply(lz_mul(gate, lz_apply(x, p->up, NULL)), p->down, NULL);
}

/* Angles p * theta^(-2j/d), in f64, as [t, d/2]. */
static void rope_tables(const lz_qwen3 *m, int64_t t, lz_array **cos_table, lz_array **sin_table) {
    lz_array *position = lz_reshape(lz_arange(m->ctx, 0, (double)t, 1, LZ_F64), LZ_DIMS(t, 1));
    int64_t pairs = m->head_size / 2;
    lz_array *pair = lz_arange(m->ctx, 0, (double)pairs, 1, LZ_F64);
    lz_array *angle = lz_mul(position, lz_exp(lz_mul(pair, -2 * log(m->theta) / (double)m->head_size)));
    *cos_table = lz_cast(lz_cos(angle), LZ_F32);
    *sin_table = lz_cast(lz_sin(angle), LZ_F32);
}

/* The same of places [t, 3]. */
static void place_tables(const lz_qwen3 *m, lz_array *places, lz_array **cos_table, lz_array **sin_table) {
    int64_t pairs = m->head_size / 2, *axis = lz_host_alloc(m->ctx, (size_t)pairs * sizeof *axis);
    if (!axis) {
        *cos_table = *sin_table = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "rope");
        return;
    }
    for (int64_t i = 0; i < pairs; i++) axis[i] = i < AXES * m->sections[i % AXES] ? i % AXES : 0;
    lz_array *pair = lz_arange(m->ctx, 0, (double)pairs, 1, LZ_F64);
    lz_array *omega = lz_exp(lz_mul(pair, -2 * log(m->theta) / (double)m->head_size));
    lz_array *place = lz_take(places, lz_from(m->ctx, LZ_DIMS(pairs), LZ_I64, axis), 1); /* [t, d/2] */
    lz_array *angle = lz_mul(place, lz_cast(omega, LZ_F32));
    lz_host_free(m->ctx, axis);
    *cos_table = lz_cos(angle);
    *sin_table = lz_sin(angle);
}

/* What images add to the residual stream x after a layer: [t, width]; NULL: nothing. */
static lz_array *deep_rows(const lz_qwen3 *m, lz_array *x, int64_t index, lz_array *rows, lz_array *pictures) {
    int64_t first = (index + 1) * m->width;
    if (!pictures || first + m->width > lz_shape(pictures).at[1]) return NULL;
    lz_array *none = lz_full(m->ctx, lz_shape(x), lz_type(x), 0);
    lz_array *seen = lz_cast(lz_slice(pictures, 1, first, first + m->width, 1), lz_type(x));
    return lz_take(lz_concat((lz_array *[]){none, seen}, 2, 0), rows, 0);
}

/* The states of all taps, side by side. x [T, W]: embeddings. real: [1, 1, 1, t] or NULL. */
static lz_array *run_layers(const lz_qwen3 *m, lz_array *x, lz_array *cos, lz_array *sin, lz_array *real,
                            lz_array *rows, lz_array *pictures) {
    lz_array *taps[LZ_QWEN3_MAX_TAPS];
    for (int64_t i = 0, tap = 0; tap < m->n_taps; i++) {
        for (; tap < m->n_taps && m->taps[tap] == i; tap++)
            taps[tap] = i == m->layers && m->last_is_normed ? lz_rms_norm(x, lz_dense(m->norm), m->eps) : x;
        if (tap == m->n_taps) break;
        const layer *p = &m->layer[i];
        x = lz_add(x, attention(m, p, lz_rms_norm(x, lz_dense(p->input_norm), m->eps), cos, sin, real));
        x = lz_add(x, mlp(p, lz_rms_norm(x, lz_dense(p->post_norm), m->eps)));
        lz_array *deep = deep_rows(m, x, i, rows, pictures);
        if (deep) x = lz_add(x, deep);
    }
    return m->n_taps > 1 ? lz_concat(taps, m->n_taps, 1) : taps[0];
}

lz_array *lz_qwen3_features(const lz_qwen3 *m, lz_array *ids, lz_array *real) {
    lz_scope *scope = lz_scope_begin(m->ctx, "qwen3");
    int64_t t = lz_size(ids);
    lz_array *cos, *sin;
    rope_tables(m, t, &cos, &sin);
    if (real) real = lz_reshape(real, LZ_DIMS(1, 1, 1, t));
    lz_array *x = lz_cast(lz_param_take(m->embed, ids), lz_compute_type(m->ctx)); /* [T, W] */
    return lz_scope_return(scope, run_layers(m, x, cos, sin, real, NULL, NULL));
}

lz_array *lz_qwen3_vl_features(const lz_qwen3 *m, lz_array *ids, lz_array *real, lz_array *places, lz_array *rows,
                               lz_array *pictures) {
    lz_scope *scope = lz_scope_begin(m->ctx, "qwen3-vl");
    lz_dtype type = lz_compute_type(m->ctx);
    lz_array *cos, *sin;
    place_tables(m, places, &cos, &sin);
    if (real) real = lz_reshape(real, LZ_DIMS(1, 1, 1, lz_size(ids)));
    lz_array *x = lz_cast(lz_param_take(m->embed, ids), type); /* [T, W] */
    if (pictures) {
        lz_array *seen = lz_cast(lz_slice(pictures, 1, 0, m->width, 1), type);
        x = lz_take(lz_concat((lz_array *[]){x, seen}, 2, 0), rows, 0);
    }
    return lz_scope_return(scope, run_layers(m, x, cos, sin, real, rows, pictures));
}
