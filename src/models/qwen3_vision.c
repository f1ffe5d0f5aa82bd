/* qwen3_vision.c: the vision tower of Qwen3-VL.
 *
 *   P patches of 16 x 16 pixels, E width, H heads of d, F feed-forward width; a unit is 2 x 2 patches, U = P/4 of them;
 *   W width of the language model
 *
 *   pixels -> patches [P, E] + learned positions -> blocks -> units [U, 4E] -> [U, W]
 *                                       after some blocks -> units [U, 4E] -> [U, W], each with weights of its own
 *
 * The patches of a unit stay together; units are in row order. The learned positions are a square grid, which is
 * stretched to the image. */
#include "models/qwen3_vision.h"

#include <math.h>

#include "models/loader.h"
#include "models/signature.h"

enum { NONE, E, E3, E4, F, W, POSITIONS, THREE, FRAMES, SIDE, SIZES };
enum { PATCH = LZ_QWEN3_PATCH, MERGE = 2, PER_UNIT = MERGE * MERGE, MAX_DEEP = 16, CORNERS = 4 };
static const double eps = 1e-6;

typedef struct block {
    lz_affine norm1, norm2, qkv, out, up, down;
} block;

typedef struct merger {
    lz_affine norm, in, out;
} merger;

struct lz_qwen3_vision {
    lz_context *ctx;
    int64_t width, heads, head_size, n_blocks, grid; /* grid: side of the grid of positions */
    int64_t deep[MAX_DEEP];                          /* blocks whose output is merged too */
    int n_deep;
    lz_qwen25_processor processor;
    lz_affine patch_embed;
    lz_param *positions;
    merger merge, *deep_merges; /* [n_deep] */
    block *blocks;
};

static const lz_weight model_rows[] = {
    LZ_AFFINE("patch_embed.proj", lz_qwen3_vision, patch_embed, E, THREE, FRAMES, SIDE, SIDE),
    {"pos_embed.weight", offsetof(lz_qwen3_vision, positions), {POSITIONS, E}},
    LZ_AFFINE("merger.norm", lz_qwen3_vision, merge.norm, E),
    LZ_AFFINE("merger.linear_fc1", lz_qwen3_vision, merge.in, E4, E4),
    LZ_AFFINE("merger.linear_fc2", lz_qwen3_vision, merge.out, W, E4),
};

static const lz_weight deep_rows[] = {
    LZ_AFFINE("norm", merger, norm, E4),
    LZ_AFFINE("linear_fc1", merger, in, E4, E4),
    LZ_AFFINE("linear_fc2", merger, out, W, E4),
};

static const lz_weight block_rows[] = {
    LZ_AFFINE("norm1", block, norm1, E),          LZ_AFFINE("norm2", block, norm2, E),
    LZ_AFFINE("attn.qkv", block, qkv, E3, E),     LZ_AFFINE("attn.proj", block, out, E, E),
    LZ_AFFINE("mlp.linear_fc1", block, up, F, E), LZ_AFFINE("mlp.linear_fc2", block, down, E, F),
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Refuses values that are not implemented. */
static void check_kind(lz_config *c) {
    static const char *const acts[] = {"gelu_pytorch_tanh", NULL}, *const types[] = {"default", "axial", NULL};
    lz_config rope = lz_config_inside(c, "rope_parameters");
    lz_config_choice(&rope, "rope_type", types);
    if (lz_config_real(&rope, "rope_theta", 10000) != 10000) lz_config_refuse(&rope, "'rope_theta' must be 10000");
    lz_config_refuse_rest(&rope, NULL);
    if (!c->err.status) c->err = rope.err;
    lz_config_choice(c, "hidden_act", acts);
    if (lz_config_int(c, "patch_size", PATCH, 1, 1024) != PATCH ||
        lz_config_int(c, "spatial_merge_size", MERGE, 1, 64) != MERGE ||
        lz_config_int(c, "temporal_patch_size", 2, 1, 64) != 2 || lz_config_int(c, "in_channels", 3, 1, 64) != 3)
        lz_config_refuse(c, "patches must be of 16 x 16 pixels in three colours and two frames, 2 x 2 of them a unit");
    static const char *const harmless[] = {"model_type",  "initializer_range",    "dtype",
                                           "torch_dtype", "transformers_version", NULL};
    lz_config_refuse_rest(c, harmless);
}

static lz_status read_config(lz_qwen3_vision *m, const char *folder, int64_t sizes[SIZES], lz_error *err) {
    lz_config whole;
    lz_status status = lz_component_config(&whole, m->ctx, folder, &lz_names_qwen3_vision, err);
    if (status) return status;
    lz_config c = lz_config_inside(&whole, "vision_config");
    m->width = lz_config_int(&c, "hidden_size", LZ_REQUIRED, 1, 1 << 20);
    m->heads = lz_config_int(&c, "num_heads", LZ_REQUIRED, 1, 4096);
    m->n_blocks = lz_config_int(&c, "depth", LZ_REQUIRED, 1, 4096);
    m->head_size = m->width / m->heads;
    if (m->width % m->heads || m->head_size % 4)
        lz_config_refuse(&c, "%lld heads do not share a width of %lld in parts of 4", (long long)m->heads,
                         (long long)m->width);
    int64_t positions = lz_config_int(&c, "num_position_embeddings", LZ_REQUIRED, 4, 1 << 20);
    m->grid = (int64_t)llrint(sqrt((double)positions));
    if (m->grid * m->grid != positions) lz_config_refuse(&c, "'num_position_embeddings' must be a square");
    m->n_deep = lz_config_ints(&c, "deepstack_visual_indexes", m->deep, MAX_DEEP, 0, m->n_blocks - 1);
    for (int i = 1; i < m->n_deep; i++)
        if (m->deep[i] <= m->deep[i - 1]) lz_config_refuse(&c, "'deepstack_visual_indexes' must ascend");
    int64_t f = lz_config_int(&c, "intermediate_size", LZ_REQUIRED, 1, 1 << 24),
            out = lz_config_int(&c, "out_hidden_size", LZ_REQUIRED, 1, 1 << 20);
    check_kind(&c);
    const int64_t all[SIZES] = {[E] = m->width, [E3] = 3 * m->width, [E4] = PER_UNIT * m->width,
                                [F] = f,        [W] = out,           [POSITIONS] = positions,
                                [THREE] = 3,    [FRAMES] = 2,        [SIDE] = PATCH};
    for (int i = 0; i < SIZES; i++) sizes[i] = all[i];
    whole.err = c.err;
    return lz_config_end(&whole, err);
}

lz_qwen3_vision *lz_qwen3_vision_open(lz_context *ctx, const char *folder, const lz_qwen25_processor *processor,
                                      lz_error *err) {
    lz_qwen3_vision *m = lz_host_alloc(ctx, sizeof *m);
    if (m) *m = (lz_qwen3_vision){.ctx = ctx, .processor = *processor};
    int64_t sizes[SIZES];
    lz_loader l;
    lz_status status = m ? read_config(m, folder, sizes, err) : lz_out_of_memory(err, sizeof *m);
    if (!status) status = lz_loader_open(&l, ctx, folder, &lz_names_qwen3_vision, sizes, err);
    if (!status) {
        lz_loader_take(&l, "visual.", LZ_ROWS(model_rows), m);
        if (m->n_deep)
            m->deep_merges = lz_loader_take_blocks(&l, "visual.", "deepstack_merger_list.", m->n_deep,
                                                   LZ_ROWS(deep_rows), sizeof *m->deep_merges);
        m->blocks = lz_loader_take_blocks(&l, "visual.", "blocks.", m->n_blocks, LZ_ROWS(block_rows),
                                          sizeof *m->blocks);
        lz_loader_skip(&l, ""); /* the language model */
        status = lz_loader_close(&l, err);
    }
    if (!status) return m;
    lz_qwen3_vision_close(m);
    return NULL;
}

void lz_qwen3_vision_close(lz_qwen3_vision *m) {
    if (!m) return;
    lz_loader_release(LZ_ROWS(model_rows), m);
    lz_loader_release_blocks(m->ctx, m->deep_merges, m->n_deep, LZ_ROWS(deep_rows), sizeof *m->deep_merges);
    lz_loader_release_blocks(m->ctx, m->blocks, m->n_blocks, LZ_ROWS(block_rows), sizeof *m->blocks);
    lz_host_free(m->ctx, m);
}

/* ---- places of patches ------------------------------------------------------------------------------------------- */

typedef struct places {
    int64_t h, w;               /* units */
    lz_array *corners, *shares; /* [4 P] i64, [4, P, 1]: of the four positions of the grid around a patch */
    lz_array *cos, *sin;        /* [P, d/2] */
} places;

/* The position on the grid of coordinate `at` of n: the one before, the one after, and how far it is from the first. */
static double on_grid(int64_t grid, int64_t at, int64_t n, int64_t to[2]) {
    double position = n > 1 ? (double)at * (double)(grid - 1) / (double)(n - 1) : 0;
    to[0] = (int64_t)position;
    to[1] = to[0] + 1 < grid ? to[0] + 1 : grid - 1;
    return position - (double)to[0];
}

/* The first half of a patch's pairs is rotated by its row, the second half by its column. */
static void turn_by(const lz_qwen3_vision *m, int64_t row, int64_t column, float *cos_row, float *sin_row) {
    int64_t quarter = m->head_size / 4;
    for (int64_t k = 0; k < 2 * quarter; k++) {
        double omega = pow(10000, -(double)(k % quarter) / (double)quarter);
        double angle = (double)(k < quarter ? row : column) * omega;
        cos_row[k] = (float)cos(angle);
        sin_row[k] = (float)sin(angle);
    }
}

static places place_patches(const lz_qwen3_vision *m, int64_t h, int64_t w) {
    places to = {.h = h, .w = w};
    int64_t n = h * w * PER_UNIT, half = m->head_size / 2;
    int64_t *corners = lz_host_alloc(m->ctx, (size_t)(CORNERS * n) * sizeof *corners);
    float *numbers = lz_host_alloc(m->ctx, (size_t)((CORNERS + 2 * half) * n) * sizeof *numbers);
    if (corners && numbers) {
        float *cos_table = numbers + CORNERS * n, *sin_table = cos_table + n * half;
        for (int64_t i = 0; i < n; i++) {
            int64_t unit = i / PER_UNIT, k = i % PER_UNIT, rows[2], columns[2];
            int64_t row = unit / w * MERGE + k / MERGE, column = unit % w * MERGE + k % MERGE;
            double down = on_grid(m->grid, row, h * MERGE, rows), across = on_grid(m->grid, column, w * MERGE, columns);
            for (int c = 0; c < CORNERS; c++) {
                corners[c * n + i] = rows[c / 2] * m->grid + columns[c % 2];
                numbers[c * n + i] = (float)((c / 2 ? down : 1 - down) * (c % 2 ? across : 1 - across));
            }
            turn_by(m, row, column, cos_table + i * half, sin_table + i * half);
        }
        to.corners = lz_from(m->ctx, LZ_DIMS(CORNERS * n), LZ_I64, corners);
        to.shares = lz_from(m->ctx, LZ_DIMS(CORNERS, n, 1), LZ_F32, numbers);
        to.cos = lz_from(m->ctx, LZ_DIMS(n, half), LZ_F32, cos_table);
        to.sin = lz_from(m->ctx, LZ_DIMS(n, half), LZ_F32, sin_table);
    } else
        to.corners = to.shares = to.cos = to.sin = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "patches");
    lz_host_free(m->ctx, corners);
    lz_host_free(m->ctx, numbers);
    return to;
}

/* ---- the forward pass -------------------------------------------------------------------------------------------- */

/* [h, w, 3] u8 -> [P, 768]: unit by unit its patches in row order, for each patch its channels, for each channel its
 * rows */
static lz_array *patches(const lz_qwen3_vision *m, lz_array *picture, const places *at) {
    lz_array *mean = lz_from(m->ctx, LZ_DIMS(3), LZ_F32, m->processor.mean),
             *spread = lz_from(m->ctx, LZ_DIMS(3), LZ_F32, m->processor.spread);
    lz_array *x = lz_div(lz_sub(lz_div(lz_cast(picture, LZ_F32), 255.0), mean), spread);
    x = lz_reshape(x, LZ_DIMS(at->h, MERGE, PATCH, at->w, MERGE, PATCH, 3));
    return lz_reshape(lz_permute(x, LZ_DIMS(0, 3, 1, 4, 6, 2, 5)), LZ_DIMS(PER_UNIT * at->h * at->w, -1));
}

/* [P, E]. A still image is both frames of a patch, so the kernels of the frames are added. */
static lz_array *embed_patches(const lz_qwen3_vision *m, lz_array *picture, const places *at) {
    lz_dtype type = lz_compute_type(m->ctx);
    lz_array *w = lz_cast(lz_dense(m->patch_embed.weight), LZ_F32); /* [E, 3, 2, 16, 16] */
    w = lz_add(lz_slice(w, 2, 0, 1, 1), lz_slice(w, 2, 1, 2, 1));
    w = lz_cast(lz_reshape(w, LZ_DIMS(m->width, -1)), type);
    lz_array *x = lz_linear(lz_cast(patches(m, picture, at), type), w, lz_dense(m->patch_embed.bias));
    lz_array *four = lz_reshape(lz_param_take(m->positions, at->corners), LZ_DIMS(CORNERS, -1, m->width));
    lz_array *position = lz_sum(lz_mul(lz_cast(four, LZ_F32), at->shares), LZ_DIMS(0), false);
    return lz_cast(lz_add(x, position), type);
}

static lz_array *norm(lz_array *x, lz_affine n) { return lz_layer_norm(x, lz_dense(n.weight), lz_dense(n.bias), eps); }

/* [P, E] -> [1, H, P, d] */
static lz_array *to_heads(const lz_qwen3_vision *m, lz_array *x) {
    return lz_permute(lz_reshape(x, LZ_DIMS(1, -1, m->heads, m->head_size)), LZ_DIMS(0, 2, 1, 3));
}

static lz_array *run_block(const lz_qwen3_vision *m, const block *p, lz_array *x, const places *at) {
    lz_array *qkv[3];
    lz_split(lz_apply_affine(norm(x, p->norm1), p->qkv), 1, 3, qkv);
    for (int i = 0; i < 3; i++) qkv[i] = to_heads(m, qkv[i]);
    for (int i = 0; i < 2; i++) qkv[i] = lz_rope(qkv[i], at->cos, at->sin, .half_split = true);
    lz_array *a = lz_permute(lz_sdpa(qkv[0], qkv[1], qkv[2]), LZ_DIMS(0, 2, 1, 3));
    x = lz_add(x, lz_apply_affine(lz_reshape(a, LZ_DIMS(-1, m->width)), p->out));
    return lz_add(x, lz_apply_affine(lz_gelu_tanh(lz_apply_affine(norm(x, p->norm2), p->up)), p->down));
}

/* [U, 4E] -> [U, W] */
static lz_array *merge_units(const merger *p, lz_array *x) {
    return lz_apply_affine(lz_gelu(lz_apply_affine(x, p->in)), p->out);
}

lz_array *lz_qwen3_vision_rows(const lz_qwen3_vision *m, lz_array *picture) {
    lz_scope *scope = lz_scope_begin(m->ctx, "vision");
    lz_dims d = lz_shape(picture), units = LZ_DIMS(-1, PER_UNIT * m->width);
    places at = place_patches(m, d.at[0] / LZ_QWEN3_UNIT, d.at[1] / LZ_QWEN3_UNIT);
    lz_array *parts[1 + MAX_DEEP], *x = embed_patches(m, picture, &at);
    int n = 1;
    for (int64_t b = 0; b < m->n_blocks; b++) {
        x = run_block(m, &m->blocks[b], x, &at);
        if (n - 1 == m->n_deep || m->deep[n - 1] != b) continue;
        const merger *deep = &m->deep_merges[n - 1]; /* its norm is over the whole unit */
        parts[n++] = merge_units(deep, norm(lz_reshape(x, units), deep->norm));
    }
    parts[0] = merge_units(&m->merge, lz_reshape(norm(x, m->merge.norm), units));
    return lz_scope_return(scope, n > 1 ? lz_concat(parts, n, 1) : parts[0]);
}
