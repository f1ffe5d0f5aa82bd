/* qwen25.c: the language model of Qwen2.5-VL, layer by layer.
 *
 *   T tokens, W width, H query heads, G key heads, d head size, F feed-forward width
 *
 * A decoder layer: x += attention(norm(x)); x += mlp(norm(x)). Queries and keys are rotated in half-split pairs, each
 * pair by one of the three coordinates of a token's place; attention is causal. The output matrix is not used, and not
 * loaded. */
#include "models/qwen25.h"

#include <math.h>

#include "models/loader.h"
#include "models/rope.h"
#include "models/signature.h"

enum { NONE, V, W, Q, K, F, SIZES };
enum { AXES = 3 };

typedef struct layer {
    lz_param *input_norm, *q, *q_bias, *k, *k_bias, *v, *v_bias, *o, *post_norm, *gate, *up, *down;
} layer;

struct lz_qwen25 {
    lz_context *ctx;
    int64_t width, heads, groups, head_size, layers;
    int64_t sections[AXES]; /* pairs that are rotated by time, row, column */
    double eps, theta;
    lz_param *embed, *norm;
    layer *layer; /* [layers] */
};

static const lz_weight model_rows[] = {
    {"embed_tokens.weight", offsetof(lz_qwen25, embed), {V, W}},
    {"norm.weight", offsetof(lz_qwen25, norm), {W}},
};

static const lz_weight layer_rows[] = {
    {"input_layernorm.weight", offsetof(layer, input_norm), {W}},
    {"self_attn.q_proj.weight", offsetof(layer, q), {Q, W}},
    {"self_attn.q_proj.bias", offsetof(layer, q_bias), {Q}},
    {"self_attn.k_proj.weight", offsetof(layer, k), {K, W}},
    {"self_attn.k_proj.bias", offsetof(layer, k_bias), {K}},
    {"self_attn.v_proj.weight", offsetof(layer, v), {K, W}},
    {"self_attn.v_proj.bias", offsetof(layer, v_bias), {K}},
    {"self_attn.o_proj.weight", offsetof(layer, o), {W, Q}},
    {"post_attention_layernorm.weight", offsetof(layer, post_norm), {W}},
    {"mlp.gate_proj.weight", offsetof(layer, gate), {F, W}},
    {"mlp.up_proj.weight", offsetof(layer, up), {F, W}},
    {"mlp.down_proj.weight", offsetof(layer, down), {W, F}},
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static lz_status read_config(lz_qwen25 *m, const char *folder, int64_t sizes[SIZES], lz_error *err) {
    lz_config whole, c;
    lz_status status = lz_component_config(&whole, m->ctx, folder, &lz_names_qwen25, err);
    if (status) return status;
    c = lz_config_inside(&whole, "text_config"); /* newer files have the language model in a section */
    if (!c.root) c = whole;
    m->width = lz_config_int(&c, "hidden_size", LZ_REQUIRED, 1, 1 << 20);
    m->heads = lz_config_int(&c, "num_attention_heads", LZ_REQUIRED, 1, 4096);
    m->groups = lz_config_int(&c, "num_key_value_heads", m->heads, 1, 4096);
    m->head_size = m->width / m->heads;
    m->layers = lz_config_int(&c, "num_hidden_layers", LZ_REQUIRED, 1, 4096);
    m->eps = lz_config_real(&c, "rms_norm_eps", 1e-6);
    int64_t f = lz_config_int(&c, "intermediate_size", LZ_REQUIRED, 1, 1 << 24);
    int64_t v = lz_config_int(&c, "vocab_size", LZ_REQUIRED, 1, 1 << 24);
    if (m->heads % m->groups || m->width % m->heads)
        lz_config_refuse(&c, "%lld query heads do not share %lld key heads and a width of %lld", (long long)m->heads,
                         (long long)m->groups, (long long)m->width);
    m->theta = lz_rope_read(&c, 1e6, m->sections, NULL);
    if (2 * (m->sections[0] + m->sections[1] + m->sections[2]) != m->head_size)
        lz_config_refuse(&c, "'mrope_section' must be three numbers that add up to half the head size");
    lz_config_refuse_rest_of_transformers(&c);
    if (c.root != whole.root) lz_config_refuse_rest_beside(&whole, &c);
    int64_t all[SIZES] = {0, v, m->width, m->heads * m->head_size, m->groups * m->head_size, f};
    for (int i = 0; i < SIZES; i++) sizes[i] = all[i];
    if (c.err.status) whole.err = c.err;
    return lz_config_end(&whole, err);
}

lz_qwen25 *lz_qwen25_open(lz_context *ctx, const char *folder, lz_targets *targets, lz_error *err) {
    lz_qwen25 *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx;
    int64_t sizes[SIZES];
    lz_loader l;
    lz_status status = m ? read_config(m, folder, sizes, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen25, sizes, err);
    if (!status) {
        l.targets = targets;
        lz_loader_take(&l, "model.", LZ_ROWS(model_rows), m);
        m->layer = lz_loader_take_blocks(&l, "model.", "layers.", m->layers, LZ_ROWS(layer_rows), sizeof *m->layer);
        lz_loader_skip(&l, "lm_head.");
        lz_loader_skip(&l, "output.weight"); /* of GGUF */
        lz_loader_skip(&l, "visual.");
        lz_loader_skip(&l, "model.visual.");
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen25_close(m);
    return NULL;
}

void lz_qwen25_close(lz_qwen25 *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release_blocks(m->ctx, m->layer, m->layers, LZ_ROWS(layer_rows), sizeof *m->layer);
    lz_host_free(m->ctx, m);
}

int64_t lz_qwen25_width(const lz_qwen25 *m) { return m->width; }

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

/* [t, heads * d] -> [1, heads, t, d] */
static lz_array *to_heads(const lz_qwen25 *m, lz_array *x, int64_t heads) {
    return lz_permute(lz_reshape(x, LZ_DIMS(1, -1, heads, m->head_size)), LZ_DIMS(0, 2, 1, 3));
}

static lz_array *attention(const lz_qwen25 *m, const layer *p, lz_array *x, lz_array *cos, lz_array *sin) {
    lz_array *q = to_heads(m, lz_apply(x, p->q, p->q_bias), m->heads);
    lz_array *k = to_heads(m, lz_apply(x, p->k, p->k_bias), m->groups);
    lz_array *v = to_heads(m, lz_apply(x, p->v, p->v_bias), m->groups);
    q = lz_rope(q, cos, sin, .half_split = true); /* [1, H, T, d] */
    k = lz_rope(k, cos, sin, .half_split = true); /* [1, G, T, d] */
    lz_array *a = lz_sdpa(q, k, v, .causal = true);
    a = lz_reshape(lz_permute(a, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(-1, m->heads * m->head_size));
    return lz_apply(a, p->o, NULL); /* [T, W] */
}

static lz_array *mlp(const layer *p, lz_array *x) {
    lz_array *gate = lz_silu(lz_apply(x, p->gate, NULL)); /* [T, F] */
    return lz_apply(lz_mul(gate, lz_apply(x, p->up, NULL)), p->down, NULL);
}

/* The angle of pair j is place * theta^(-2j/d), [t, d/2]: the first pairs use the time, the next the row, the last the
 * column. In f32, as in the model's own code. */
static lz_array *angles(const lz_qwen25 *m, lz_array *places) {
    lz_array *parts[AXES];
    int n = 0;
    int64_t first = 0;
    for (int axis = 0; axis < AXES; first += m->sections[axis++]) {
        if (!m->sections[axis]) continue;
        lz_array *pair = lz_arange(m->ctx, (double)first, (double)(first + m->sections[axis]), 1, LZ_F64);
        lz_array *omega = lz_exp(lz_mul(pair, -2 * log(m->theta) / (double)m->head_size));
        parts[n++] = lz_mul(lz_slice(places, 1, axis, axis + 1, 1), lz_cast(omega, LZ_F32));
    }
    return lz_concat(parts, n, 1);
}

lz_array *lz_qwen25_features(const lz_qwen25 *m, lz_array *ids, lz_array *places, lz_array *rows, lz_array *pictures) {
    lz_scope *scope = lz_scope_begin(m->ctx, "qwen2.5");
    lz_dtype type = lz_compute_type(m->ctx);
    lz_array *angle = angles(m, places), *cos = lz_cos(angle), *sin = lz_sin(angle);
    lz_array *x = lz_cast(lz_param_take(m->embed, ids), type); /* [T, W] */
    if (pictures) x = lz_take(lz_concat((lz_array *[]){x, lz_cast(pictures, type)}, 2, 0), rows, 0);
    for (int64_t i = 0; i < m->layers; i++) {
        const layer *p = &m->layer[i];
        x = lz_add(x, attention(m, p, lz_rms_norm(x, lz_dense(p->input_norm), m->eps), cos, sin));
        x = lz_add(x, mlp(p, lz_rms_norm(x, lz_dense(p->post_norm), m->eps)));
    }
    return lz_scope_return(scope, lz_rms_norm(x, lz_dense(m->norm), m->eps));
}
