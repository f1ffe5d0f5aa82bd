/* cuda.h: what the files of the CUDA backend share.
 *
 *   api.c      NVIDIA's libraries, found at run time
 *   device.c   the device of a context: memory, queues, recordings
 *   jit.c      our kernels: CUDA C++ text, made to measure, compiled once and kept on disk
 *   expr.c     elementwise expressions as CUDA C++
 *   walk.c     the axes of a call, made few and handed to kernels
 *   element.c, rows.c, reduce.c, move.c, group_norm.c   kernels of our own (their device halves are kernels/NAME.cu)
 *   matmul.c   products: by the library or, on Hopper, by our own kernel, whichever is faster
 *   blas.c     the library, cuBLASLt
 *   gemm90.c   that product (kernels/gemm90.cu): its tiles and its launch
 *   sdpa90.c   our own attention for Hopper (kernels/sdpa90.cu)
 *   dnn.c, sdpa.c, conv.c   cuDNN, with kernels of our own where it is absent or cannot
 *   backend.c  the table
 *
 * A kernel's run() only puts work into d->stream. Whatever takes time or memory the first time (compiling, measuring,
 * building plans) must happen on the first run of a call or in its scratch(), never while d->recording; and while
 * d->rehearsing it puts nothing there. */
#ifndef LZ_CUDA_H
#define LZ_CUDA_H

#include "backend/backend.h"
#include "backend/common/choices.h"
#include "backend/cuda/api.h"
#include "op/dims.h"

struct lz_cuda_events {
    lz_cu_event *at;
    int n;
};

/* Who multiplies, and who attends: lz_context_options.cuda_gemm and .cuda_sdpa. */
typedef enum lz_gemm_choice {
    LZ_GEMM_FASTEST, /* as measured */
    LZ_GEMM_LIBRARY, /* cuBLASLt */
    LZ_GEMM_OWN,     /* our own kernel where it suits, with the tile that is estimated to be fastest */
    LZ_GEMM_ANY,     /* our own kernel where it suits, with some tile: for tests */
    LZ_GEMM_SINGLE,  /* as measured, but no product shares a launch with others */
} lz_gemm_choice;
typedef enum lz_sdpa_choice { LZ_SDPA_FASTEST, LZ_SDPA_LIBRARY, LZ_SDPA_OWN } lz_sdpa_choice;

struct lz_device {
    lz_context *ctx; /* for host memory (lz_host_alloc) and texts */
    lz_cuda_api api;
    lz_cu_device number;
    lz_cu_context context; /* current while any function of the backend runs */
    lz_cu_stream stream;
    lz_cu_stream copies; /* the second queue; NULL until it is needed */
    char name[128];
    int capability; /* 90 on Hopper */
    int sms;        /* multiprocessors */
    int max_shared; /* bytes a block can have */
    int64_t cache_bytes;
    bool large_params; /* kernels may have more than 4096 bytes of parameters */
    bool recording;    /* launches are being recorded, not done */
    bool rehearsing;   /* nothing is launched or measured; what it would take is noted */
    lz_gemm_choice gemm;
    lz_sdpa_choice sdpa;
    struct lz_cuda_jit *jit;
    struct lz_cuda_blas *blas;
    lz_disk disk;        /* what earlier processes compiled and measured */
    lz_choices *choices; /* what was measured */
    struct lz_cuda_dnn *dnn;
    struct lz_cuda_staging *staging[2]; /* of each queue */
    struct lz_cuda_events stamps, marks;
};

/* Says what failed, in the driver's words. true: nothing did. */
bool lz_cuda_ok(const lz_device *d, lz_cu_result result, const char *what, lz_error *err);

/* ---- kernels of our own (jit.c) ---------------------------------------------------------------------------------- */

/* folder: where compiled code is kept for later processes; NULL: nowhere. */
bool lz_cuda_jit_open(lz_device *d, const char *folder, lz_error *err);
void lz_cuda_jit_close(lz_device *d);

/* The kernel called name in this CUDA C++ text (kernels/prelude.cu goes before it). Known texts are not compiled again:
 * neither by this device (found by the text itself) nor by a later process (found on disk). NULL: err says why. */
lz_cu_function lz_cuda_function(lz_device *d, const char *name, const char *text, lz_error *err);
/* In between, functions that are not there are only noted, and not to be launched; when it is over, all of them are
 * compiled. What fails fails again, and is told, when the function is asked for in earnest. */
void lz_cuda_rehearse(lz_device *d, bool on);

/* The files of kernels/, carried in the library (cmake/embed.cmake). A line #include "NAME" of a text stands for one. */
typedef struct lz_cuda_source {
    const char *name, *text;
} lz_cuda_source;
extern const lz_cuda_source lz_cuda_sources[]; /* the last one has no name */

/* Kernels cannot fail, but they can note what was wrong with what they were given (an index outside its axis). Call
 * after waiting for the queue. true: nothing was. */
bool lz_cuda_check_faults(lz_device *d, lz_error *err);

/* Every kernel of ours takes one struct by value. */
bool lz_cuda_launch(const lz_call *call, lz_cu_function f, int64_t blocks, int threads, int shared_bytes,
                    const void *params);

/* ---- expressions (expr.c, element.c) ----------------------------------------------------------------------------- */

/* out = expr(out, in[n_core] ...), elementwise and in place: the epilogue of kernels that cannot do it themselves. */
bool lz_cuda_epilogue(const lz_call *call);

/* ---- the others -------------------------------------------------------------------------------------------------- */

bool lz_cuda_blas_open(lz_device *d, lz_error *err);
void lz_cuda_blas_close(lz_device *d);
bool lz_cuda_dnn_open(lz_device *d, lz_error *err); /* true and d->dnn NULL when there is no cuDNN */
void lz_cuda_dnn_close(lz_device *d);

/* ELEMENT ops of every kind (FUSED, COPY, CAST and single ones). */
extern const lz_kernel lz_cuda_element;
extern const lz_kernel lz_cuda_reduce, lz_cuda_softmax, lz_cuda_rms_norm, lz_cuda_layer_norm, lz_cuda_group_norm,
    lz_cuda_rope, lz_cuda_matmul, lz_cuda_sdpa, lz_cuda_conv2d, lz_cuda_pad, lz_cuda_take, lz_cuda_gather,
    lz_cuda_arange;
extern const lz_device_table lz_cuda_device_table; /* device.c */

/* ---- traces ------------------------------------------------------------------------------------------------------- */

/* Choices, refusals and compilations, for the context's log. */
#define lz_cuda_trace(d, ...) lz_tell((d)->ctx, LZ_LOG_DETAIL, "cuda: " __VA_ARGS__)

#endif
