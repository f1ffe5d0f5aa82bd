/* products.h: parameters of kernels/sdpa.cu and kernels/conv.cu, for host and device. */
#ifndef LZ_CUDA_PRODUCTS_H
#define LZ_CUDA_PRODUCTS_H

/* Strides of [batch, head, row, column]; the mask's rows are queries, its columns keys. */
typedef struct lz_sdpa_params {
    lz_strided q, k, v, out, mask;
    int heads, heads_per_group; /* heads of the queries; number of them that share a head of keys */
    int n, m, d;                /* queries, keys, head size */
    float scale;
} lz_sdpa_params;

/* Strides of x [n, h, w, c], w [o, kh, kw, c], out [n, oh, ow, o]. */
typedef struct lz_conv_params {
    lz_strided x, w, out;
    long long pixels, outputs; /* output pixels of all images; channels of out */
    int height, width, channels, window_height, window_width, out_height, out_width;
    int stride, top, left;
} lz_conv_params;

#endif
