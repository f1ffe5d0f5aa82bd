/* module.h: the contents of a compiled module, which libnvrtc writes and libcuda reads. Included by C, and by the C++
 * of kernels, which has no headers: built-in types only. */
#ifndef LZ_SIM_MODULE_H
#define LZ_SIM_MODULE_H

enum {
    LZ_SIM_MAX_THREADS = 1024,      /* of a block, or of a cluster of them */
    LZ_SIM_MAX_CLUSTER = 2,         /* blocks of a cluster */
    LZ_SIM_MAX_SHARED = 227 * 1024, /* bytes of shared memory of a block */
    LZ_SIM_STACK = 128 * 1024 + 64, /* bytes of stack of a thread; odd in cache lines, so that stacks share the cache */
};

typedef struct lz_sim_kernel {
    const char *name;
    void (*run)(void **params); /* one thread */
    const unsigned *sizes;      /* bytes of each parameter */
    int n_params;
    int max_threads; /* of __launch_bounds__, or LZ_SIM_MAX_THREADS */
    int cluster;     /* blocks, along x */
} lz_sim_kernel;

typedef struct lz_sim_launch {
    const lz_sim_kernel *kernel;
    unsigned grid[3], block[3], shared_bytes;
    void **params;
    char *stacks;         /* LZ_SIM_MAX_THREADS times LZ_SIM_STACK bytes */
    unsigned long serial; /* of the launch: the order of threads changes with it */
} lz_sim_launch;

/* What a tensor map holds here: sizes in elements, strides in bytes, the first of the second axis. */
typedef struct lz_sim_tensor_map {
    unsigned long long address, dims[5], strides[4];
    unsigned short box[5];
    unsigned char rank, size, swizzle;
} lz_sim_tensor_map;

/* A module has one symbol, lz_sim_here: this. */
typedef struct lz_sim_module {
    const lz_sim_kernel *kernels;
    int n_kernels;
    void (*launch)(const lz_sim_launch *launch);
    void (*tell)(const char *what); /* says on stderr what went wrong, and where the running kernel is */
} lz_sim_module;

/* A "cubin" is this, then as many bytes of a shared library. */
typedef struct lz_sim_image {
    char magic[8];
    unsigned long long bytes;
} lz_sim_image;
#define LZ_SIM_MAGIC "LZ-SIM1"

#endif
