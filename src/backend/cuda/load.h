/* load.h: the code of library kernels, loaded ahead of their first launch (load.c): for jit.c, which has the list of a
 * rehearsal, and blas.c and dnn.c, which launch. */
#ifndef LZ_CUDA_LOAD_H
#define LZ_CUDA_LOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/cuda/cuda.h"

/* A first launch. It is the first member of a struct with the operands, which are copies or stand-ins. */
typedef struct lz_cuda_load {
    struct lz_cuda_load *next;
    /* Launches into the stream, which records. Any thread may call it, at any time. Errors are ignored. */
    void (*launch)(lz_device *d, struct lz_cuda_load *load, lz_cu_stream stream);
} lz_cuda_load;

/* Adds to d->loads, in a rehearsal. The memory is of lz_host_alloc; the list owns it. */
void lz_cuda_list_load(lz_device *d, lz_cuda_load *load);
void lz_cuda_free_loads(lz_device *d, lz_cuda_load *loads);

enum { LZ_CUDA_LOADERS = 4 }; /* the driver lets few threads load at the same time */

/* Threads that load, from start to end. The caller keeps the list until the end. */
typedef struct lz_cuda_loading {
    lz_device *d;
    _Atomic(lz_cuda_load *) next; /* that no thread has begun */
    pthread_t threads[LZ_CUDA_LOADERS];
    int n;
} lz_cuda_loading;
void lz_cuda_start_loading(lz_cuda_loading *l, lz_device *d, lz_cuda_load *loads);
void lz_cuda_end_loading(lz_cuda_loading *l);

#endif
