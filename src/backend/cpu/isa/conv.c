/* conv.c: conv2d, channels last, as an implicit matrix product: row m of A is the window of the image for output pixel
 * m, with K = kh * kw * c. There are two variants, both built on gemm.h; a bias is part of the epilogue.
 *
 * The general one lets gemm.c pack A block by block. Each tap (position in the window) is one segment of K: c
 * neighbouring numbers of the image, or zeros if the tap is outside the image. Weights are the shared side, which is
 * packed once.
 *
 * It packs each pixel kh * kw times, which took 7 % of the time when measured. If the stride is 1, the second variant
 * packs strips of the image as [c][pixels of a row], with zeros at the edges. The MR pixels that the micro-kernel needs
 * are neighbours in the strip for every tap; the next tap is the same strip, shifted by one pixel. So a strip is packed
 * once for all kh * kw taps. The disadvantage is that panels end at the end of a row. */
#include "backend/cpu/isa/gemm.h"

typedef struct window {
    const lz_call *call;
    const lz_tensor *x, *w; /* x [n, h, w, c], w [o, kh, kw, c] */
    int64_t size_x, size_w; /* bytes of an element */
    bool pairs;             /* channels are counted in pairs of bf16 numbers, and packed as words */
    lz_dtype type_x, type_w;
    int64_t stride_x, stride_w, step_x, step_w; /* from one channel to the next: in elements; in bytes */
    int64_t kernel_height, kernel_width, channels, out_channels, images, out_height, out_width, step, top, left;
} window;

static window window_of(const lz_call *call) {
    const lz_tensor *x = &call->in[0], *w = &call->in[1];
    const int64_t *out = call->out.dims.at;
    window s = {.call = call, .x = x, .w = w, .size_x = lz_dtype_size(x->dtype), .size_w = lz_dtype_size(w->dtype)};
    s.out_channels = w->dims.at[0], s.channels = w->dims.at[3];
    s.kernel_height = w->dims.at[1], s.kernel_width = w->dims.at[2];
    s.images = out[0], s.out_height = out[1], s.out_width = out[2];
    s.step = call->params->conv.stride, s.top = call->params->conv.top, s.left = call->params->conv.left;
    s.type_x = x->dtype, s.type_w = w->dtype, s.stride_x = x->strides[3], s.stride_w = w->strides[3];
    s.pairs = suits_pairs(s.type_x, s.stride_x, s.type_w, s.channels, s.kernel_height * s.kernel_width);
    if (s.pairs) s.type_x = s.type_w = LZ_F32, s.channels /= 2;
    s.step_x = s.stride_x * lz_dtype_size(s.type_x), s.step_w = s.stride_w * lz_dtype_size(s.type_w);
    return s;
}

/* Channel 0 of a pixel of the image; NULL: outside of the image. */
static const char *image_at(const window *s, int64_t image, int64_t y, int64_t x) {
    const int64_t *dims = s->x->dims.at, *strides = s->x->strides;
    if (y < 0 || y >= dims[1] || x < 0 || x >= dims[2]) return NULL;
    return s->x->data + (image * strides[0] + y * strides[1] + x * strides[2]) * s->size_x;
}

static const char *locate_weight(const void *source, int64_t batch, int64_t out_channel, int64_t tap) {
    (void)batch;
    const window *s = source;
    const int64_t *strides = s->w->strides;
    int64_t y = tap / s->kernel_width, x = tap % s->kernel_width;
    return s->w->data + (out_channel * strides[0] + y * strides[1] + x * strides[2]) * s->size_w;
}

/* ---- in general: the engine -------------------------------------------------------------------------------------- */

static const char *locate_pixel(const void *source, int64_t batch, int64_t pixel, int64_t tap) {
    (void)batch;
    const window *s = source;
    int64_t column = pixel % s->out_width, row = pixel / s->out_width % s->out_height;
    int64_t image = pixel / s->out_width / s->out_height;
    return image_at(s, image, row * s->step - s->top + tap / s->kernel_width,
                    column * s->step - s->left + tap % s->kernel_width);
}

static gemm conv_gemm(const window *s) {
    return (gemm){.call = s->call,
                  .batch = 1,
                  .segments = s->kernel_height * s->kernel_width,
                  .segment_length = s->channels,
                  .a = {s->images * s->out_height * s->out_width, s->type_x, s->stride_x, s, locate_pixel, NULL},
                  .b = {s->out_channels, s->type_w, s->stride_w, s, locate_weight, NULL},
                  .shared = SHARE_B,
                  .pairs = s->pairs};
}

/* ---- windows that move by one: strips ---------------------------------------------------------------------------- */

#define STRIP 80           /* pixels of a strip, a multiple of LANES */
#define BLOCK_DEPTH 576    /* of K at a time: the strips of the channels, and a panel of weights, stay in L2 */
#define TILE_ROWS 8        /* most rows of the image in a tile; more rows share more strips */
#define TILE_FLOATS 160000 /* most results of a tile, so that they stay in L2; but a tile has at least four rows */
#define TILE_CHANNELS 512  /* output channels of a tile */
#define WEIGHT_BYTES 48000000
#define TILES_PER_THREAD 4

typedef struct strips {
    window s;
    int64_t taps, block;                       /* kh * kw; channels of a block */
    int64_t tile_height, tile_width, tile_out; /* of a tile: rows, pixels of a row, output channels */
    int64_t tiles_y, tiles_x, tiles_out;
    /* Sizes in floats: all packed weights, the strips of one tile, the memory of one thread. */
    int64_t weight_floats, strip_floats, own_floats;
    float *weights; /* [panel of NR][block of channels][tap][channel][NR] */
    float *own;
} strips;

static bool suits_strips(const window *s) {
    int64_t taps = s->kernel_height * s->kernel_width;
    int64_t bytes = round_up(s->out_channels, NR) * taps * s->channels * (int64_t)sizeof(float);
    if (HAS_TILES && s->pairs) return false; /* AMX tiles need rows of A that are not transposed */
    return s->step == 1 && taps > 1 && s->kernel_width <= STRIP - 4 * MR && s->channels >= LANES &&
           s->out_width >= MR && bytes <= WEIGHT_BYTES;
}

static strips plan_strips(window s) {
    strips p = {.s = s, .taps = s.kernel_height * s.kernel_width};
    p.block = smaller(s.channels, round_up(parts_of(BLOCK_DEPTH, p.taps), LANES));
    int64_t widest = (STRIP - s.kernel_width + 1) / MR * MR;
    p.tile_width = smaller(widest, round_up(parts_of(s.out_width, parts_of(s.out_width, widest)), MR));
    p.tile_out = smaller(TILE_CHANNELS, round_up(s.out_channels, NR));
    p.tiles_x = parts_of(s.out_width, p.tile_width), p.tiles_out = parts_of(s.out_channels, p.tile_out);
    int64_t wanted = (int64_t)lz_pool_threads(s.call->pool) * TILES_PER_THREAD;
    p.tile_height = TILE_ROWS;
    while (p.tile_height > 4 && p.tile_height * p.tile_width * p.tile_out > TILE_FLOATS) p.tile_height /= 2;
    while (p.tile_height > 1 && s.images * parts_of(s.out_height, p.tile_height) * p.tiles_x * p.tiles_out < wanted)
        p.tile_height /= 2;
    p.tiles_y = parts_of(s.out_height, p.tile_height);
    p.weight_floats = round_up(s.out_channels, NR) * p.taps * s.channels;
    p.strip_floats = (p.tile_height + s.kernel_height - 1) * p.block * STRIP;
    p.own_floats = p.strip_floats + p.tile_height * p.tile_width * p.tile_out;
    return p;
}

static void pack_weight_panel(void *arg, int64_t panel, int thread) {
    (void)thread;
    const strips *p = arg;
    const window *s = &p->s;
    float *to = p->weights + panel * NR * p->taps * s->channels;
    for (int64_t c = 0; c < s->channels; c += p->block) {
        int64_t depth = smaller(p->block, s->channels - c);
        for (int64_t tap = 0; tap < p->taps; tap++, to += depth * NR) {
            const char *rows[NR];
            for (int64_t i = 0; i < NR; i++) {
                bool exists = panel * NR + i < s->out_channels;
                rows[i] = exists ? locate_weight(s, 0, panel * NR + i, tap) + c * s->step_w : NULL;
            }
            if (s->pairs)
                pack_pairs(to, NR, rows, s->stride_w, depth);
            else
                pack_panel(to, NR, rows, s->type_w, s->stride_w, depth);
        }
    }
}

/* Packs strips [row][channel][STRIP] of the image for height x pixels output pixels from (y, x) on, channels c .. c +
 * depth - 1. */
static void pack_strips(const strips *p, int64_t image, int64_t y, int64_t x, int64_t height, int64_t pixels, int64_t c,
                        int64_t depth, float *to) {
    const window *s = &p->s;
    int64_t width = round_up(pixels + s->kernel_width - 1, LANES);
    for (int64_t i = 0; i < height; i++, to += depth * STRIP) {
        const char *rows[STRIP];
        for (int64_t j = 0; j < width; j++) {
            const char *pixel = image_at(s, image, y + i, x + j);
            rows[j] = pixel ? pixel + c * s->step_x : NULL;
        }
        pack_strip(to, STRIP, rows, width, s->type_x, s->stride_x, depth);
    }
}

/* c[pixels][ldc] (+)= windows times weights, over all taps, for the pixels from `strip` on. */
typedef void window_kernel(const strips *p, int64_t depth, const float *strip, const float *weights, float *c,
                           bool add);
#define WINDOW_OF(name, pairs, rows)                                                                                   \
    static void name##_##rows(const strips *p, int64_t depth, const float *strip, const float *weights, float *c,      \
                              bool add) {                                                                              \
        vf acc[MR][NV];                                                                                                \
        clear(rows, acc);                                                                                              \
        for (int64_t y = 0; y < p->s.kernel_height; y++, strip += depth * STRIP)                                       \
            for (int64_t x = 0; x < p->s.kernel_width; x++, weights += depth * NR)                                     \
                add_products(pairs, rows, depth, strip + x, 1, STRIP, weights, acc);                                   \
        put(rows, acc, c, p->tile_out, add);                                                                           \
    }
#define WINDOW(rows) WINDOW_OF(window, false, rows) WITH_PAIRS(WINDOW_OF(window_pairs, true, rows))
ROW_COUNTS(WINDOW)
#define WINDOW_NAME(rows) window_##rows,
#define WINDOW_PAIRS_NAME(rows) window_pairs_##rows,
static window_kernel *const window_kernels[2][MR] = {{ROW_COUNTS(WINDOW_NAME)},
                                                     WITH_PAIRS({ROW_COUNTS(WINDOW_PAIRS_NAME)})};

static void compute_tile(void *arg, int64_t tile, int thread) {
    const strips *p = arg;
    const window *s = &p->s;
    int64_t out = tile % p->tiles_out * p->tile_out, rest = tile / p->tiles_out;
    int64_t x = rest % p->tiles_x * p->tile_width, y = rest / p->tiles_x % p->tiles_y * p->tile_height;
    int64_t image = rest / p->tiles_x / p->tiles_y;
    int64_t width = smaller(p->tile_width, s->out_width - x), height = smaller(p->tile_height, s->out_height - y);
    int64_t outs = smaller(p->tile_out, s->out_channels - out);
    float *strip = p->own + thread * p->own_floats, *result = strip + p->strip_floats;

    int64_t first = (image * s->out_height + y) * s->out_width + x; /* the tile's first row of the output, a pixel */
    for (int64_t c = 0; c < s->channels; c += p->block) {
        int64_t depth = smaller(p->block, s->channels - c);
        bool last = c + depth == s->channels;
        pack_strips(p, image, y - s->top, x - s->left, height + s->kernel_height - 1, width, c, depth, strip);
        for (int64_t j = 0; j < outs; j += NR) {
            const float *weights = p->weights + ((out + j) * s->channels + c * NR) * p->taps;
            for (int64_t i = 0; i < height; i++)
                for (int64_t k = 0; k < width; k += MR) {
                    int64_t some = smaller(MR, width - k);
                    if (last) expect_stores(s->call, output_at(s->call, first + i * s->out_width + k, out), some, j);
                    window_kernels[s->pairs][some - 1](p, depth, strip + i * depth * STRIP + k, weights,
                                                       result + (i * p->tile_width + k) * p->tile_out + j, c > 0);
                }
        }
    }
    for (int64_t i = 0; i < height; i++)
        finish_rows(s->call, first + i * s->out_width, width, out, outs, result + i * p->tile_width * p->tile_out,
                    p->tile_out);
}

static void run_strips(strips *p) {
    lz_pool *pool = p->s.call->pool;
    p->weights = (float *)p->s.call->scratch;
    p->own = p->weights + p->weight_floats;
    lz_parallel(pool, parts_of(p->s.out_channels, NR), pack_weight_panel, p);
    lz_parallel(pool, p->s.images * p->tiles_y * p->tiles_x * p->tiles_out, compute_tile, p);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static int64_t conv2d_scratch(const lz_call *call) {
    window s = window_of(call);
    if (suits_strips(&s)) {
        strips p = plan_strips(s);
        return (p.weight_floats + lz_pool_threads(call->pool) * p.own_floats) * (int64_t)sizeof(float);
    }
    gemm g = conv_gemm(&s);
    return gemm_scratch(&g);
}

static bool conv2d(const lz_call *call) {
    window s = window_of(call);
    if (suits_strips(&s)) {
        strips p = plan_strips(s);
        run_strips(&p);
    } else {
        gemm g = conv_gemm(&s);
        run_gemm(&g);
    }
    return true;
}

const lz_kernel ISA(lz_kernel_conv2d) = {.name = "cpu.conv2d", .run = conv2d, .scratch = conv2d_scratch};
