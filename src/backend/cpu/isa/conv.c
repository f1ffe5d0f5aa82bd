/* conv.c: conv2d, channels last, as a matrix product that is never written down: row m of A is the window of the image
 * under output pixel m, K = kh * kw * c. The engine packs A block by block, and while it does, each place of the window is
 * one segment of K: c neighbouring numbers of the image, or zeros where the window hangs over the edge. Weights are the
 * shared side, packed once. */
#include "backend/cpu/isa/gemm.h"

typedef struct window {
    const lz_tensor *x, *w; /* x [n, h, w, c], w [o, kh, kw, c] */
    int64_t size_x, size_w; /* of an element */
    int64_t out_height, out_width, step, top, left;
} window;

static const char *locate_pixel(const void *source, int64_t batch, int64_t pixel, int64_t place) {
    (void)batch;
    const window *s = source;
    const int64_t *dims = s->x->dims.at, *strides = s->x->strides, kernel_width = s->w->dims.at[2];
    int64_t column = pixel % s->out_width, row = pixel / s->out_width % s->out_height;
    int64_t image = pixel / s->out_width / s->out_height;
    int64_t y = row * s->step - s->top + place / kernel_width;
    int64_t x = column * s->step - s->left + place % kernel_width;
    if (y < 0 || y >= dims[1] || x < 0 || x >= dims[2]) return NULL;
    return s->x->data + (image * strides[0] + y * strides[1] + x * strides[2]) * s->size_x;
}

static const char *locate_weight(const void *source, int64_t batch, int64_t out_channel, int64_t place) {
    (void)batch;
    const window *s = source;
    const int64_t *strides = s->w->strides, kernel_width = s->w->dims.at[2];
    int64_t y = place / kernel_width, x = place % kernel_width;
    return s->w->data + (out_channel * strides[0] + y * strides[1] + x * strides[2]) * s->size_w;
}

/* s holds what the sides of the product point to. */
static gemm conv_gemm(const lz_call *call, window *s) {
    const lz_tensor *x = &call->in[0], *w = &call->in[1];
    const int64_t *out = call->out.dims.at;
    *s = (window){.x = x, .w = w, .size_x = lz_dtype_size(x->dtype), .size_w = lz_dtype_size(w->dtype)};
    s->out_height = out[1], s->out_width = out[2];
    s->step = call->params->conv.stride, s->top = call->params->conv.top, s->left = call->params->conv.left;
    return (gemm){.call = call,
                  .batch = 1,
                  .segments = w->dims.at[1] * w->dims.at[2],
                  .segment_length = w->dims.at[3],
                  .a = {out[0] * out[1] * out[2], x->dtype, x->strides[3], s, locate_pixel},
                  .b = {w->dims.at[0], w->dtype, w->strides[3], s, locate_weight},
                  .shared = SHARE_B};
}

static int64_t conv2d_scratch(const lz_call *call) {
    window s;
    gemm g = conv_gemm(call, &s);
    return gemm_scratch(&g);
}

static bool conv2d(const lz_call *call) {
    window s;
    gemm g = conv_gemm(call, &s);
    run_gemm(&g);
    return true;
}

const lz_kernel ISA(lz_kernel_conv2d) = {.name = "cpu.conv2d", .run = conv2d, .scratch = conv2d_scratch};
