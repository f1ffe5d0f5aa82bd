/* gemm90.h: parameters of kernels/gemm90.cu, for host and device. */
#ifndef LZ_CUDA_GEMM90_H
#define LZ_CUDA_GEMM90_H

#ifdef __cplusplus
#define LZ_GEMM_ALIGN alignas(64)
#else
#define LZ_GEMM_ALIGN _Alignas(64)
#endif

/* A tensor map of the copy engine (TMA), encoded by the driver. */
typedef struct lz_gemm_map {
    LZ_GEMM_ALIGN unsigned long long opaque[16];
} lz_gemm_map;

/* An argument of the epilogue, as large as the output; strides in elements. */
typedef struct lz_gemm_argument {
    char *data;
    long long row, column;
} lz_gemm_argument;

enum { LZ_GEMM_ARGUMENTS = 8 };

/* One product of a launch. Unused entries after the last product have no tiles. */
typedef struct lz_gemm_problem {
    lz_gemm_map a, b, other, out;                  /* other: the second b of a pair */
    lz_gemm_argument arguments[LZ_GEMM_ARGUMENTS]; /* indexed as in the expression */
    int m, n;                                      /* of the output */
    int steps;                                     /* k / 64, rounded up; the last step is padded with zeros */
    int row_tiles, column_tiles;                   /* a row tile has the rows of all blocks of a cluster */
    int group;                                     /* rows of tiles that are processed together, for the L2 cache */
    int first, end;                                /* range of its tiles, counted over all products */
} lz_gemm_problem;

#endif
