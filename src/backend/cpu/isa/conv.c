/* conv.c: conv2d, channels last, as a matrix product that is never written down: row m of A is the window of the image
 * under output pixel m, K = kh * kw * c. Two ways, both on the pieces of gemm.h; bias and the like are epilogues.
 *
 * In general the engine of gemm.c packs A block by block; each place of the window is one segment of K: c neighbouring
 * numbers of the image, or zeros where the window hangs over the edge. Weights are the shared side, packed once.
 *
 * That packs each pixel kh * kw times, which took 7 % of the time when measured. Where the window moves by
 * one pixel there is a better way: lay out strips of the image as [c][pixels of a row], zeros at the edges included.
 * The MR pixels that the micro-kernel wants side by side are then side by side for every place of the window: the same
 * strip, shifted by one pixel. So a strip is packed once and serves kh * kw places. The price: panels end where the row
 * ends. */
#include "backend/cpu/isa/gemm.h"

typedef struct window {
    const lz_call *call;
    const lz_tensor *x, *w; /* x [n, h, w, c], w [o, kh, kw, c] */
    int64_t size_x, size_w; /* of an element */
    bool pairs;             /* channels are counted in pairs of bf16 numbers, and packed as words */
    lz_dtype type_x, type_w;
    int64_t stride_x, stride_w, step_x, step_w; /* from a channel to the next: in elements; in bytes */
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

/* Channel 0 of a pixel of the image; NULL outside. */
static const char *image_at(const window *s, int64_t image, int64_t y, int64_t x) {
    const int64_t *dims = s->x->dims.at, *strides = s->x->strides;
    if (y < 0 || y >= dims[1] || x < 0 || x >= dims[2]) return NULL;
    return s->x->data + (image * strides[0] + y * strides[1] + x * strides[2]) * s->size_x;
}

static const char *locate_weight(const void *source, int64_t batch, int64_t out_channel, int64_t place) {
    (void)batch;
    const window *s = source;
    const int64_t *strides = s->w->strides;
    int64_t y = place / s->kernel_width, x = place % s->kernel_width;
    return s->w->data + (out_channel * strides[0] + y * strides[1] + x * strides[2]) * s->size_w;
}

/* ---- in general: the engine ------------------------------------------------------------------------------------ */

static const char *locate_pixel(const void *source, int64_t batch, int64_t pixel, int64_t place) {
    (void)batch;
    const window *s = source;
    int64_t column = pixel % s->out_width, row = pixel / s->out_width % s->out_height;
    int64_t image = pixel / s->out_width / s->out_height;
    return image_at(s, image, row * s->step - s->top + place / s->kernel_width,
                    column * s->step - s->left + place % s->kernel_width);
}

static gemm conv_gemm(const window *s) {
    return (gemm){.call = s->call,
                  .batch = 1,
                  .segments = s->kernel_height * s->kernel_width,
                  .segment_length = s->channels,
                  .a = {s->images * s->out_height * s->out_width, s->type_x, s->stride_x, s, locate_pixel},
                  .b = {s->out_channels, s->type_w, s->stride_w, s, locate_weight},
                  .shared = SHARE_B,
                  .pairs = s->pairs};
}

/* ---- windows that move by one: strips -------------------------------------------------------------------------- */

#define STRIP 80           /* pixels in a strip, a multiple of LANES */
#define BLOCK_DEPTH 576    /* of K at a time: the strips of so many channels, and a panel of weights, stay in L2 */
#define TILE_ROWS 8        /* rows of the image in a tile, at most; more of them share more strips */
#define TILE_FLOATS 160000 /* of a tile's results, at most, unless four rows are more: they should stay in L2 */
#define TILE_CHANNELS 512  /* output channels in a tile */
#define WEIGHT_BYTES 48000000
#define TILES_PER_THREAD 4

typedef struct strips {
    window s;
    int64_t places, block;                     /* kh * kw; channels at a time */
    int64_t tile_height, tile_width, tile_out; /* of a tile: rows, pixels in a row, output channels */
    int64_t tiles_y, tiles_x, tiles_out;
    int64_t weight_floats, strip_floats, own_floats; /* all weights; the strips of a tile; all that a thread has */
    float *weights;                                  /* [panel of NR][block of channels][place][channel][NR] */
    float *own;
} strips;

static bool suits_strips(const window *s) {
    int64_t places = s->kernel_height * s->kernel_width;
    int64_t bytes = round_up(s->out_channels, NR) * places * s->channels * (int64_t)sizeof(float);
    if (HAS_TILES && s->pairs) return false; /* tiles want rows of A as they are */
    return s->step == 1 && places > 1 && s->kernel_width <= STRIP - 4 * MR && s->channels >= LANES &&
           s->out_width >= MR && bytes <= WEIGHT_BYTES;
}

static strips plan_strips(window s) {
    strips p = {.s = s, .places = s.kernel_height * s.kernel_width};
    p.block = smaller(s.channels, round_up(parts_of(BLOCK_DEPTH, p.places), LANES));
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
    p.weight_floats = round_up(s.out_channels, NR) * p.places * s.channels;
    p.strip_floats = (p.tile_height + s.kernel_height - 1) * p.block * STRIP;
    p.own_floats = p.strip_floats + p.tile_height * p.tile_width * p.tile_out;
    return p;
}

static void pack_weight_panel(void *arg, int64_t panel, int thread) {
    (void)thread;
    const strips *p = arg;
    const window *s = &p->s;
    float *to = p->weights + panel * NR * p->places * s->channels;
    for (int64_t c = 0; c < s->channels; c += p->block) {
        int64_t depth = smaller(p->block, s->channels - c);
        for (int64_t place = 0; place < p->places; place++, to += depth * NR) {
            const char *rows[NR];
            for (int64_t i = 0; i < NR; i++) {
                bool exists = panel * NR + i < s->out_channels;
                rows[i] = exists ? locate_weight(s, 0, panel * NR + i, place) + c * s->step_w : NULL;
            }
            if (s->pairs)
                pack_pairs(to, NR, rows, s->stride_w, depth);
            else
                pack_panel(to, NR, rows, s->type_w, s->stride_w, depth);
        }
    }
}

/* Strips [row][channel][STRIP] of the image for so many pixels of the output, from pixel (y, x) on, channels c .. c + depth. */
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

/* c[pixels][ldc] (+)= windows times weights, for pixels that begin at strip; all places of the window. */
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

    int64_t first = (image * s->out_height + y) * s->out_width + x; /* its first row of the output */
    for (int64_t c = 0; c < s->channels; c += p->block) {
        int64_t depth = smaller(p->block, s->channels - c);
        bool last = c + depth == s->channels;
        pack_strips(p, image, y - s->top, x - s->left, height + s->kernel_height - 1, width, c, depth, strip);
        for (int64_t j = 0; j < outs; j += NR) {
            const float *weights = p->weights + ((out + j) * s->channels + c * NR) * p->places;
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

/* ---- the kernel ------------------------------------------------------------------------------------------------ */

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
