/* params.h: what our kernels are handed, for both sides: C includes it, and jit.c puts it before every text. Only types
 * that have one size on both. */
#ifndef LZ_CUDA_PARAMS_H
#define LZ_CUDA_PARAMS_H

enum { LZ_AXES = 8, LZ_OPERANDS = 13 };

/* n / of without a division: (high half of n * multiply + n) >> shift, for n < 2^31. */
typedef struct lz_divisor {
    unsigned of, multiply, shift;
} lz_divisor;

/* One operand as seen from the walk: where its first element is, and how far apart its elements are (in elements). */
typedef struct lz_place {
    char *data;
    long long strides[LZ_AXES];
} lz_place;

/* Indices over some axes, the last one fastest, and the operands that are found by them. Axes of a rank below LZ_AXES
 * are the first ones of the arrays. */
typedef struct lz_walk {
    long long size; /* how many indices */
    long long dims[LZ_AXES];
    lz_divisor divisors[LZ_AXES];
    lz_place at[LZ_OPERANDS];
} lz_walk;

/* element.cu: the last axis is counted in chunks of WIDTH elements. */
typedef struct lz_element_params {
    lz_walk walk;
    long long last; /* size of the last axis in elements */
} lz_element_params;

/* The tile of a transposition: axis `across` is dense in the argument, `along` in the output. */
typedef struct lz_transpose_params {
    lz_walk walk; /* over the other axes; operand 0 is the output, 1 the argument */
    long long along, across, out_stride,
        in_stride; /* sizes; step of `across` in the output, of `along` in the argument */
    unsigned along_tiles, across_tiles;
} lz_transpose_params;

/* rows.cu: the walk goes over rows; steps are those of the last axis. It is handed an array of these: several calls
 * that are one launch. */
typedef struct lz_rows_params {
    lz_walk walk;
    long long n; /* elements of a row */
    long long steps[LZ_OPERANDS];
    float inverse, eps; /* inverse: 1 / n */
    unsigned first;     /* of its blocks */
    int calls;          /* in the first one: how many there are */
} lz_rows_params;

/* reduce.cu: kept axes (operand 0 is the input, 1 the output) and reduced ones (of the input, from a kept place on). */
typedef struct lz_reduce_params {
    lz_walk kept, reduced;
    long long segment, segments; /* reduced elements that a block takes; how many such parts there are */
    char *partial;               /* what each part came to: [segment][kept] */
} lz_reduce_params;

/* group_norm.cu: x [image, pixel, channel]. A block takes a slab of pixels and a tile of whole groups. */
typedef struct lz_group_params {
    lz_walk pixels; /* of one image; operand 0 is x */
    long long image_stride, channel_stride;
    int channels, group_size, groups;
    int tile_groups, tiles, slab, slabs;
    double *partial;     /* mean and sum of squared distances from it: [image][slab][group][2] */
    float *mean, *scale; /* [image][channel] */
    double eps;
} lz_group_params;

/* An index that was outside its axis, and the size of that: written by kernels, read by the host. */
typedef struct lz_fault {
    long long index, size;
    int found, op;
} lz_fault;

/* take.cu: operands are the output, the source, the indices. */
typedef struct lz_take_params {
    lz_walk walk;
    long long size, stride; /* of the axis that is indexed */
    lz_fault *fault;
    int op;
} lz_take_params;

/* arange.cu */
typedef struct lz_arange_params {
    char *out;
    long long n, stride;
    double start, step;
} lz_arange_params;

#endif
