/* conv.cu: convolution of any types and strides, as an implicit matrix product: row i of the left matrix is the window
 * of output pixel i, and is never stored; the right matrix is the weights. A thread block computes 64 pixels and 64
 * output channels, a thread 4 of each. Sums are in f32, in the order of the taps, or of whole numbers.
 *
 * Defined in the head: X_TYPE, W_TYPE, OUT_TYPE, and number: float or i64. */
#include "products.h"
enum { THREADS = 256, TILE = 64, DEPTH = 16, PITCH = TILE + 4 };
typedef vec<number, 4> four;

FN float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
FN i64 multiply_add(i64 a, i64 b, i64 c) { return a * b + c; }

extern "C" __global__ void __launch_bounds__(THREADS) conv(const __grid_constant__ lz_conv_params p) {
    __shared__ __align__(16) number windows[DEPTH * PITCH], weights[DEPTH * PITCH]; /* [tap][pixel], [tap][output] */
    const i64 tiles = (p.outputs + TILE - 1) / TILE, first_pixel = blockIdx.x / tiles * TILE,
              first_output = blockIdx.x % tiles * TILE;
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    const int row = threadIdx.x / 4, part = threadIdx.x % 4 * 4; /* this thread loads taps part .. part + 3 of a row */

    const i64 pixel = first_pixel + row, output = first_output + row;
    const i64 image = pixel / ((i64)p.out_height * p.out_width), rest = pixel % ((i64)p.out_height * p.out_width);
    const i64 top = rest / p.out_width * p.stride - p.top, left = rest % p.out_width * p.stride - p.left;
    const X_TYPE *from = (const X_TYPE *)p.x.data + image * p.x.strides[0];
    const W_TYPE *weight = (const W_TYPE *)p.w.data + output * p.w.strides[0];
    const i64 taps = (i64)p.window_height * p.window_width * p.channels;

    number sums[4][4] = {};
    for (i64 start = 0; start < taps; start += DEPTH) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const i64 tap = start + part + e, column = tap / p.channels % p.window_width;
            const i64 line = tap / p.channels / p.window_width, channel = tap % p.channels;
            const i64 v = top + line, u = left + column;
            const bool inside = tap < taps && pixel < p.pixels && v >= 0 && v < p.height && u >= 0 && u < p.width;
            windows[(part + e) * PITCH + row] =
                inside ? number_of<X_TYPE, number>(
                             from[v * p.x.strides[1] + u * p.x.strides[2] + channel * p.x.strides[3]])
                       : 0;
            weights[(part + e) * PITCH + row] =
                tap < taps && output < p.outputs
                    ? number_of<W_TYPE, number>(
                          weight[line * p.w.strides[1] + column * p.w.strides[2] + channel * p.w.strides[3]])
                    : 0;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            const four a = *(const four *)(windows + k * PITCH + y * 4), b = *(const four *)(weights + k * PITCH + x * 4);
#pragma unroll
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sums[i][j] = multiply_add(a.at[i], b.at[j], sums[i][j]);
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const i64 at = first_pixel + y * 4 + i;
        if (at >= p.pixels) continue;
        const i64 in_image = at % ((i64)p.out_height * p.out_width);
        OUT_TYPE *to = (OUT_TYPE *)p.out.data + at / ((i64)p.out_height * p.out_width) * p.out.strides[0] +
                       in_image / p.out_width * p.out.strides[1] + in_image % p.out_width * p.out.strides[2];
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (first_output + x * 4 + j < p.outputs)
                put(to[(first_output + x * 4 + j) * p.out.strides[3]], sums[i][j]);
    }
}
