/* qwen25_vision.c: the vision tower of Qwen2.5-VL.
 *
 *   P patches of 14 x 14 pixels, E width, H heads of d, F feed-forward width; a unit is 2 x 2 patches, U = P/4 of them
 *
 *   pixels -> patches [P, E] -> blocks, most with attention inside windows of 4 x 4 units -> units [U, 4E] -> [U, W]
 *
 * The patches of a unit stay together, and units are sorted by window before the first block. Windows of one shape are
 * consecutive (full ones, those at the right edge, at the bottom edge, in the corner), so that each kind is one batch
 * of attention. The order of windows does not affect the result; at the end the units are put back into row order. */
#include "models/qwen25_vision.h"

#include <math.h>
#include <string.h>

#include "models/loader.h"
#include "models/signature.h"

enum { NONE, E, E3, E4, F, W, THREE, FRAMES, SIDE, SIZES };
enum { PATCH = 14, MERGE = 2, PER_UNIT = MERGE * MERGE, MAX_WHOLE = 64, KINDS = 4 };
static const double eps = 1e-6;

typedef struct block {
    lz_param *norm1, *norm2;
    lz_affine qkv, out, gate, up, down;
} block;

struct lz_qwen25_vision {
    lz_context *ctx;
    int64_t width, heads, head_size, n_blocks, window; /* window: side of a window, in units */
    int64_t whole[MAX_WHOLE];                          /* indices of the blocks with attention over the whole image */
    int n_whole;
    lz_qwen25_processor processor;
    lz_param *patch_embed, *norm;
    lz_affine merge_in, merge_out;
    block *blocks;
};

static const lz_weight model_rows[] = {
    {"patch_embed.proj.weight", offsetof(lz_qwen25_vision, patch_embed), {E, THREE, FRAMES, SIDE, SIDE}},
    {"merger.ln_q.weight", offsetof(lz_qwen25_vision, norm), {E}},
    LZ_AFFINE("merger.mlp.0", lz_qwen25_vision, merge_in, E4, E4),
    LZ_AFFINE("merger.mlp.2", lz_qwen25_vision, merge_out, W, E4),
};

static const lz_weight block_rows[] = {
    {"norm1.weight", offsetof(block, norm1), {E}}, {"norm2.weight", offsetof(block, norm2), {E}},
    LZ_AFFINE("attn.qkv", block, qkv, E3, E),      LZ_AFFINE("attn.proj", block, out, E, E),
    LZ_AFFINE("mlp.gate_proj", block, gate, F, E), LZ_AFFINE("mlp.up_proj", block, up, F, E),
    LZ_AFFINE("mlp.down_proj", block, down, E, F),
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Refuses values that are not implemented. */
static void check_kind(lz_config *c) {
    static const char *const types[] = {"default", "axial", NULL};
    lz_config rope = lz_config_inside(c, "rope_parameters");
    lz_config_choice(&rope, "rope_type", types);
    lz_config_choice(&rope, "type", types);
    if (lz_config_real(&rope, "rope_theta", 10000) != 10000) lz_config_refuse(&rope, "'rope_theta' must be 10000");
    lz_config_refuse_rest(&rope, NULL);
    if (!c->err.status) c->err = rope.err;
    if (lz_config_int(c, "in_chans", 3, 1, 64) != 3 || lz_config_int(c, "spatial_patch_size", PATCH, 1, 1024) != PATCH)
        lz_config_refuse(c, "'in_chans' and 'spatial_patch_size' must be 3 and %d", PATCH);
    lz_config_real(c, "tokens_per_second", 2); /* for films only */
    lz_config_refuse_rest_of_transformers(c);
}

static lz_status read_config(lz_qwen25_vision *m, const char *folder, int64_t sizes[SIZES], lz_error *err) {
    lz_config whole;
    lz_status status = lz_component_config(&whole, m->ctx, folder, &lz_names_qwen25_vision, err);
    if (status) return status;
    lz_config c = lz_config_inside(&whole, "vision_config");
    m->width = lz_config_int(&c, "hidden_size", LZ_REQUIRED, 1, 1 << 20);
    m->heads = lz_config_int(&c, "num_heads", LZ_REQUIRED, 1, 4096);
    m->n_blocks = lz_config_int(&c, "depth", LZ_REQUIRED, 1, 4096);
    m->head_size = m->width / m->heads;
    if (m->width % m->heads || m->head_size % 4)
        lz_config_refuse(&c, "%lld heads do not share a width of %lld in parts of 4", (long long)m->heads,
                         (long long)m->width);
    m->n_whole = lz_config_ints(&c, "fullatt_block_indexes", m->whole, MAX_WHOLE, 0, 4096);
    m->window = lz_config_int(&c, "window_size", 112, LZ_QWEN25_UNIT, 1 << 20) / LZ_QWEN25_UNIT;
    int64_t f = lz_config_int(&c, "intermediate_size", LZ_REQUIRED, 1, 1 << 24),
            out = lz_config_int(&c, "out_hidden_size", LZ_REQUIRED, 1, 1 << 20);
    if (lz_config_int(&c, "patch_size", PATCH, 1, 1024) != PATCH ||
        lz_config_int(&c, "spatial_merge_size", MERGE, 1, 64) != MERGE ||
        lz_config_int(&c, "temporal_patch_size", 2, 1, 64) != 2 || lz_config_int(&c, "in_channels", 3, 1, 64) != 3)
        lz_config_refuse(&c, "patches must be of 14 x 14 pixels in three colours and two frames, 2 x 2 of them a unit");
    check_kind(&c);
    const int64_t all[SIZES] = {
        [E] = m->width, [E3] = 3 * m->width, [E4] = PER_UNIT * m->width, [F] = f, [W] = out, [THREE] = 3,
        [FRAMES] = 2,   [SIDE] = PATCH};
    for (int i = 0; i < SIZES; i++) sizes[i] = all[i];
    whole.err = c.err;
    return lz_config_end(&whole, err);
}

lz_qwen25_vision *lz_qwen25_vision_open(lz_context *ctx, const char *folder, const lz_qwen25_processor *processor,
                                        lz_error *err) {
    lz_qwen25_vision *m = lz_host_alloc(ctx, sizeof *m);
    if (m) *m = (lz_qwen25_vision){.ctx = ctx, .processor = *processor};
    int64_t sizes[SIZES];
    lz_loader l;
    lz_status status = m ? read_config(m, folder, sizes, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen25_vision, sizes, err);
    if (!status) {
        lz_loader_take(&l, "visual.", LZ_ROWS(model_rows), m);
        m->blocks = lz_loader_take_blocks(&l, "visual.", "blocks.", m->n_blocks, LZ_ROWS(block_rows),
                                          sizeof *m->blocks);
        lz_loader_skip(&l, ""); /* the language model */
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen25_vision_close(m);
    return NULL;
}

void lz_qwen25_vision_close(lz_qwen25_vision *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release_blocks(m->ctx, m->blocks, m->n_blocks, LZ_ROWS(block_rows), sizeof *m->blocks);
    lz_host_free(m->ctx, m);
}

/* ---- the order of windows ---------------------------------------------------------------------------------------- */

typedef struct order {
    int64_t h, w;                       /* units */
    int64_t count[KINDS], units[KINDS]; /* windows of each kind, and units of such a window */
    lz_array *there, *back;             /* [U] i64: the unit at each position of the window order; its inverse */
    lz_array *cos, *sin;                /* [P, d/2], in that order */
} order;

/* The first half of a patch's pairs is rotated by its row, the second half by its column. */
static void turn_by(const lz_qwen25_vision *m, int64_t row, int64_t column, float *cos_row, float *sin_row) {
    int64_t quarter = m->head_size / 4;
    for (int64_t k = 0; k < quarter; k++) {
        double omega = pow(10000, -(double)k / (double)quarter);
        cos_row[k] = (float)cos((double)row * omega);
        sin_row[k] = (float)sin((double)row * omega);
        cos_row[quarter + k] = (float)cos((double)column * omega);
        sin_row[quarter + k] = (float)sin((double)column * omega);
    }
}

/* Writes the indices of the units, window by window. */
static void walk_windows(const lz_qwen25_vision *m, order *o, int64_t *there) {
    int64_t s = m->window, rest_h = o->h % s, rest_w = o->w % s, n = 0;
    for (int kind = 0; kind < KINDS; kind++) { /* full, right edge, bottom edge, corner */
        bool bottom = kind >= 2, right = kind % 2;
        int64_t wh = bottom ? rest_h : s, ww = right ? rest_w : s;
        int64_t rows = bottom ? rest_h > 0 : o->h / s, columns = right ? rest_w > 0 : o->w / s;
        o->count[kind] = rows * columns;
        o->units[kind] = wh * ww;
        for (int64_t i = 0; i < rows * columns; i++) {
            int64_t top = bottom ? o->h - rest_h : i / columns * s, left = right ? o->w - rest_w : i % columns * s;
            for (int64_t u = 0; u < wh * ww; u++) there[n++] = (top + u / ww) * o->w + left + u % ww;
        }
    }
}

static order order_windows(const lz_qwen25_vision *m, int64_t h, int64_t w) {
    order o = {.h = h, .w = w};
    int64_t n = h * w, half = m->head_size / 2, patches = n * PER_UNIT;
    int64_t *there = lz_host_alloc(m->ctx, (size_t)(2 * n) * sizeof *there);
    float *table = lz_host_alloc(m->ctx, (size_t)(2 * patches * half) * sizeof *table);
    if (there && table) {
        walk_windows(m, &o, there);
        for (int64_t i = 0; i < n; i++) {
            there[n + there[i]] = i;
            for (int64_t k = 0; k < PER_UNIT; k++) {
                int64_t at = (i * PER_UNIT + k) * half;
                turn_by(m, there[i] / w * MERGE + k / MERGE, there[i] % w * MERGE + k % MERGE, table + at,
                        table + patches * half + at);
            }
        }
        o.there = lz_from(m->ctx, LZ_DIMS(n), LZ_I64, there);
        o.back = lz_from(m->ctx, LZ_DIMS(n), LZ_I64, there + n);
        o.cos = lz_from(m->ctx, LZ_DIMS(patches, half), LZ_F32, table);
        o.sin = lz_from(m->ctx, LZ_DIMS(patches, half), LZ_F32, table + patches * half);
    } else
        o.there = o.back = o.cos = o.sin = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "windows");
    lz_host_free(m->ctx, there);
    lz_host_free(m->ctx, table);
    return o;
}

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

/* [h, w, 3] u8 -> [U, 4 * 588]: for each unit its patches in row order, for each patch its channels, for each channel
 * its rows. */
static lz_array *patches(const lz_qwen25_vision *m, lz_array *picture, const order *o) {
    lz_array *mean = lz_from(m->ctx, LZ_DIMS(3), LZ_F32, m->processor.mean),
             *spread = lz_from(m->ctx, LZ_DIMS(3), LZ_F32, m->processor.spread);
    lz_array *x = lz_div(lz_sub(lz_div(lz_cast(picture, LZ_F32), 255.0), mean), spread);
    x = lz_reshape(x, LZ_DIMS(o->h, MERGE, PATCH, o->w, MERGE, PATCH, 3));
    return lz_reshape(lz_permute(x, LZ_DIMS(0, 3, 1, 4, 6, 2, 5)), LZ_DIMS(o->h * o->w, -1));
}

/* A still image is both frames of a patch, so the kernels of the frames are added: [E, 3, 2, 14, 14] -> [E, 588] */
static lz_array *patch_kernel(const lz_qwen25_vision *m) {
    lz_array *w = lz_cast(lz_dense(m->patch_embed), LZ_F32);
    lz_array *sum = lz_add(lz_slice(w, 2, 0, 1, 1), lz_slice(w, 2, 1, 2, 1));
    return lz_cast(lz_reshape(sum, LZ_DIMS(m->width, -1)), lz_compute_type(m->ctx));
}

/* Rows [n s, E] from `first` on, as n sequences of s: [n, H, s, d] */
static lz_array *sequences(const lz_qwen25_vision *m, lz_array *x, int64_t first, int64_t n, int64_t s) {
    x = lz_reshape(lz_slice(x, 0, first, first + n * s, 1), LZ_DIMS(n, s, m->heads, m->head_size));
    return lz_permute(x, LZ_DIMS(0, 2, 1, 3));
}

/* Attention inside each window, or over the whole image: q, k, v [P, E] -> [P, E] */
static lz_array *look_around(const lz_qwen25_vision *m, const order *o, bool whole, lz_array *const qkv[3]) {
    lz_array *parts[KINDS];
    int n = 0;
    int64_t first = 0, all = PER_UNIT * o->h * o->w;
    for (int kind = 0; kind < (whole ? 1 : KINDS); kind++) {
        int64_t count = whole ? 1 : o->count[kind], size = whole ? all : PER_UNIT * o->units[kind];
        if (!count) continue;
        lz_array *a = lz_sdpa(sequences(m, qkv[0], first, count, size), sequences(m, qkv[1], first, count, size),
                              sequences(m, qkv[2], first, count, size));
        parts[n] = lz_reshape(lz_permute(a, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(count * size, m->width));
        n++;
        first += count * size;
    }
    return n > 1 ? lz_concat(parts, n, 0) : parts[0];
}

/* Rope for each head: [P, E] -> [P, E] */
static lz_array *turn(const lz_qwen25_vision *m, lz_array *x, const order *o) {
    lz_array *heads = lz_permute(lz_reshape(x, LZ_DIMS(-1, m->heads, m->head_size)), LZ_DIMS(1, 0, 2));
    heads = lz_rope(heads, o->cos, o->sin, .half_split = true);
    return lz_reshape(lz_permute(heads, LZ_DIMS(1, 0, 2)), LZ_DIMS(-1, m->width));
}

static lz_array *run_block(const lz_qwen25_vision *m, int64_t b, lz_array *x, const order *o) {
    const block *p = &m->blocks[b];
    bool whole = false;
    for (int i = 0; i < m->n_whole; i++) whole = whole || m->whole[i] == b;
    lz_array *qkv[3];
    lz_split(lz_apply_affine(lz_rms_norm(x, lz_dense(p->norm1), eps), p->qkv), 1, 3, qkv);
    for (int i = 0; i < 2; i++) qkv[i] = turn(m, qkv[i], o);
    x = lz_add(x, lz_apply_affine(look_around(m, o, whole, qkv), p->out));
    lz_array *h = lz_rms_norm(x, lz_dense(p->norm2), eps);
    return lz_add(x, lz_apply_affine(lz_mul(lz_silu(lz_apply_affine(h, p->gate)), lz_apply_affine(h, p->up)), p->down));
}

lz_array *lz_qwen25_vision_rows(const lz_qwen25_vision *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "vision");
    lz_dims d = lz_shape(picture);
    order o = order_windows(m, d.at[0] / LZ_QWEN25_UNIT, d.at[1] / LZ_QWEN25_UNIT);
    int64_t units = o.h * o.w;
    lz_array *x = lz_cast(lz_take(patches(m, picture, &o), o.there, 0), lz_compute_type(m->ctx));
    x = lz_linear(lz_reshape(x, LZ_DIMS(PER_UNIT * units, -1)), patch_kernel(m), NULL); /* [P, E] */
    for (int64_t b = 0; b < m->n_blocks; b++) x = run_block(m, b, x, &o);
    x = lz_reshape(lz_rms_norm(x, lz_dense(m->norm), eps), LZ_DIMS(units, PER_UNIT * m->width)); /* [U, 4E] */
    x = lz_apply_affine(lz_gelu(lz_apply_affine(x, m->merge_in)), m->merge_out);                 /* [U, W] */
    return lz_scope_return(scope, lz_take(x, o.back, 0));
}
