/* params.h: parameters of our kernels, for host and device: C includes it, and jit.c prepends it to every text. It uses
 * only types that have the same size on both. */
#ifndef LZ_CUDA_PARAMS_H
#define LZ_CUDA_PARAMS_H

enum { LZ_AXES = 8, LZ_OPERANDS = 13 };

/* Computes n / of without a division: (high half of n * multiply + n) >> shift, for n < 2^31. */
typedef struct lz_divisor {
    unsigned of, multiply, shift;
} lz_divisor;

/* An operand of a walk: its first element, and its stride along each axis, in elements. */
typedef struct lz_strided {
    char *data;
    long long strides[LZ_AXES];
} lz_strided;

/* All indices over some axes, the last axis fastest, and the operands that are indexed by them. The rank is a constant
 * of the kernel's head; arrays use their first `rank` entries. */
typedef struct lz_walk {
    long long size; /* number of indices */
    long long dims[LZ_AXES];
    lz_divisor divisors[LZ_AXES];
    lz_strided at[LZ_OPERANDS];
} lz_walk;

/* element.cu: the last axis is counted in chunks of WIDTH elements. */
typedef struct lz_element_params {
    lz_walk walk;
    long long last; /* size of the last axis in elements */
    float factor;   /* the first argument of the expression, if the head says so */
} lz_element_params;

/* transpose.cu: axis `across` is contiguous in the argument, axis `along` in the output. */
typedef struct lz_transpose_params {
    lz_walk walk; /* over the other axes; operand 0 is the output, 1 the argument */
    long long along, across, out_stride,
        in_stride; /* sizes; strides of `across` in the output, of `along` in the argument */
    unsigned along_tiles, across_tiles;
} lz_transpose_params;

/* rows.cu: the walk is over rows; steps are the strides along the last axis. The kernel gets an array of these, one for
 * each call of the launch. */
typedef struct lz_rows_params {
    lz_walk walk;
    long long n; /* elements of a row */
    long long steps[LZ_OPERANDS];
    long long second;               /* elements from the first result to the second (TWICE) */
    long long head;                 /* elements of the head of a row (CODES) */
    float *scales;                  /* of the rows (CODES) */
    float inverse, eps, second_eps; /* inverse: 1 / n */
    unsigned first;                 /* index of the call's first block */
    int calls;                      /* in the first entry: number of calls */
} lz_rows_params;

/* reduce.cu: walks over the kept axes (operand 0 is the input, 1 the output) and over the reduced axes of the input. */
typedef struct lz_reduce_params {
    lz_walk kept, reduced;
    long long segment, segments; /* reduced elements of a segment; number of segments */
    char *partial;               /* state of each segment: [segment][kept] */
} lz_reduce_params;

/* group_norm.cu: x [image, pixel, channel]. A block computes a slab of pixels and a tile of whole groups. */
typedef struct lz_group_params {
    lz_walk pixels; /* of one image; operand 0 is x */
    long long image_stride, channel_stride;
    int channels, group_size, groups;
    int tile_groups, tiles, slab, slabs;
    double *partial;     /* mean, and sum of squared differences from it: [image][slab][group][2] */
    float *mean, *scale; /* [image][channel] */
    double eps;
} lz_group_params;

/* An index outside its axis, and the size of the axis: written by kernels, read by the host. */
typedef struct lz_fault {
    long long index, size;
    int found, op;
} lz_fault;

/* take.cu: operands are the output, the source, the indices. */
typedef struct lz_take_params {
    lz_walk walk;
    long long size, stride; /* of the indexed axis */
    lz_fault *fault;
    int op;
} lz_take_params;

/* arange.cu */
typedef struct lz_arange_params {
    char *out;
    long long n, stride;
    double start, step;
} lz_arange_params;

/* unpack.cu: the walk goes over rows and over chunks of a row. Strides in elements. */
typedef struct lz_unpack_params {
    lz_walk walk;
    char *out;
    const char *codes, *scales, *offsets; /* scales, offsets: NULL where there are none */
    long long columns, out_row, out_column, code_row;
    long long scale_row, scale_column, offset_row, offset_column;
    long long group, row_group; /* columns and rows that share a scale */
    float factor;
} lz_unpack_params;

#endif
