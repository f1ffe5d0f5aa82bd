/* gemm90.h: what kernels/gemm90.cu is handed, for both sides. */
#ifndef LZ_CUDA_GEMM90_H
#define LZ_CUDA_GEMM90_H

#ifdef __cplusplus
#define LZ_GEMM_ALIGN alignas(64)
#else
#define LZ_GEMM_ALIGN _Alignas(64)
#endif

/* A tensor map, as the driver encodes it. */
typedef struct lz_gemm_map {
    LZ_GEMM_ALIGN unsigned long long opaque[16];
} lz_gemm_map;

/* An argument of the epilogue, as large as the output; strides in elements. */
typedef struct lz_gemm_argument {
    char *data;
    long long row, column;
} lz_gemm_argument;

enum { LZ_GEMM_ARGUMENTS = 8 };

/* One product of a launch. The launch has room for a certain number of them; those behind the last have no tiles. */
typedef struct lz_gemm_problem {
    lz_gemm_map a, b, other, out;                  /* other: of a pair, the second b */
    lz_gemm_argument arguments[LZ_GEMM_ARGUMENTS]; /* numbered as in the expression */
    int m, n;                                      /* of the output */
    int steps;                                     /* k in steps of 64, the last one filled up with zeros */
    int row_tiles, column_tiles;                   /* row_tiles: of a whole cluster */
    int group;                                     /* rows of tiles that are walked side by side, for the L2 cache */
    int first, end;                                /* tiles, counted over all products: its first, the next one's */
} lz_gemm_problem;

#endif
