/* cuda.h: declarations shared by the files of the CUDA backend.
 *
 *   api.c      opens NVIDIA's libraries at run time
 *   device.c   the device of a context: memory, queues, recordings
 *   upload.c   copies from the host to the device
 *   jit.c      compiles our own kernels from CUDA C++ text, and keeps the code on disk
 *   load.c     loads the code of library kernels ahead of their first launch
 *   expr.c     elementwise expressions as CUDA C++
 *   walk.c     the axes of a call as kernel parameters
 *   element.c, rows.c, reduce.c, move.c, unpack.c, group_norm.c   our own kernels, host side; device side: kernels/NAME.cu
 *   matmul.c   matrix products: cuBLASLt or, on Hopper, our own kernel, whichever is faster
 *   blas.c, blas_product.c, blas_shape.c   cuBLASLt
 *   f8.c       products of codes of f8, by cuBLASLt
 *   gemm90.c   our own product for Hopper (kernels/gemm90.cu): tile sizes and launch
 *   sdpa90.c   our own attention for Hopper (kernels/sdpa90.cu)
 *   dnn.c, dnn_graph.c, sdpa.c, conv.c   cuDNN, and our own kernels if cuDNN is absent or refuses
 *   backend.c  the table of kernels
 *
 * A kernel's run() only puts work into d->stream. Work that is done once per kind of call (compiling, measuring,
 * building plans) happens in the first run() or in scratch(), never while d->recording is set. While d->rehearsing is
 * set, run() puts nothing into the stream. */
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

/* Which implementation of products and attention is used: lz_context_options.cuda_gemm and .cuda_sdpa. */
typedef enum lz_gemm_choice {
    LZ_GEMM_FASTEST, /* the fastest, by measurement */
    LZ_GEMM_LIBRARY, /* cuBLASLt */
    LZ_GEMM_OWN,     /* our own kernel if it supports the call, with the tile that is estimated to be fastest */
    LZ_GEMM_ANY,     /* our own kernel if it supports the call, with varying tiles: for tests */
    LZ_GEMM_SINGLE,  /* the fastest, but each product is a launch of its own */
} lz_gemm_choice;
typedef enum lz_sdpa_choice { LZ_SDPA_FASTEST, LZ_SDPA_LIBRARY, LZ_SDPA_OWN } lz_sdpa_choice;

struct lz_device {
    lz_context *ctx; /* for host memory (lz_host_alloc), text and the log */
    lz_cuda_api api;
    lz_cu_device number;
    lz_cu_context context; /* made current by every function of the device table */
    lz_cu_stream stream;
    lz_cu_stream copies; /* the second queue (LZ_QUEUE_COPIES); NULL until it is first used */
    char name[128];
    int capability; /* 90 on Hopper */
    int sms;        /* multiprocessors */
    int max_shared; /* most bytes of shared memory per block */
    int64_t cache_bytes;
    int64_t most_sums; /* of products of codes, in scratch at a time (codes.c) */
    bool large_params; /* kernels may have more than 4096 bytes of parameters */
    bool recording;    /* launches are recorded and do not run */
    bool rehearsing;   /* nothing is launched or measured; missing kernels are listed (lz_cuda_rehearse) */
    lz_gemm_choice gemm;
    lz_sdpa_choice sdpa;
    struct lz_cuda_jit *jit;
    struct lz_cuda_load *loads; /* first launches of libraries that the rehearsal has listed so far (load.h) */
    struct lz_cuda_blas *blas;
    lz_disk disk;        /* cache folder with compiled code and measured choices of earlier processes */
    lz_choices *choices; /* measured choices */
    struct lz_cuda_dnn *dnn;
    struct lz_cuda_staging *staging[2]; /* of each queue (lz_queue); upload.c */
    struct lz_cuda_staging *sends;      /* of sendings; NULL before the first, and after close_sendings */
    lz_cu_stream sends_stream;
    struct lz_cuda_events stamps, marks;
};

/* false, with the driver's message in err, if result is an error. what: the object of the failed call, for the
 * message. */
bool lz_cuda_ok(const lz_device *d, lz_cu_result result, const char *what, lz_error *err);

/* ---- our own kernels (jit.c) ------------------------------------------------------------------------------------- */

/* folder: where compiled code is kept for later processes; NULL: it is not kept. */
bool lz_cuda_jit_open(lz_device *d, const char *folder, lz_error *err);
void lz_cuda_jit_close(lz_device *d);

/* The kernel `name` of a CUDA C++ text, to which kernels/prelude.cu is prepended. A text is compiled once: this device
 * finds it in a table by the text, a later process finds the code on disk. NULL: err has the reason. */
lz_cu_function lz_cuda_function(lz_device *d, const char *name, const char *text, lz_error *err);
/* Between lz_cuda_rehearse and lz_cuda_end_rehearsal, lz_cuda_function only lists functions that are not compiled, and what
 * it returns must not be launched. lz_cuda_prepare compiles the list, and loads the code of library kernels that were listed
 * (load.c); lz_cuda_use_prepared loads the compiled code (lz_device_table). Errors are ignored: the next lz_cuda_function for the same text reports them. */
void lz_cuda_rehearse(lz_device *d);
lz_preparation *lz_cuda_end_rehearsal(lz_device *d);
void lz_cuda_prepare(lz_device *d, lz_preparation *list);
void lz_cuda_use_prepared(lz_device *d, lz_preparation *list);

/* The files of kernels/, embedded in the library (cmake/embed.cmake). A line #include "NAME" of a text is replaced by
 * one. */
typedef struct lz_cuda_source {
    const char *name, *text;
} lz_cuda_source;
extern const lz_cuda_source lz_cuda_sources[]; /* ends with an entry whose name is NULL */

/* A kernel cannot return an error, but it can store one in lz_fault (an index outside its axis). Called after waiting
 * for the queue. false: a kernel stored an error, which err describes. */
bool lz_cuda_check_faults(lz_device *d, lz_error *err);

/* params: the one struct that each of our kernels takes by value. */
bool lz_cuda_launch(const lz_call *call, lz_cu_function f, int64_t blocks, int threads, int shared_bytes,
                    const void *params);

/* ---- expressions (expr.c, element.c) ----------------------------------------------------------------------------- */

/* out = expr(out, in[n_core] ...), elementwise and in place: a separate launch for kernels that have no epilogue
 * inside. */
bool lz_cuda_epilogue(const lz_call *call);

/* ---- the others -------------------------------------------------------------------------------------------------- */

bool lz_cuda_blas_open(lz_device *d, lz_error *err);
void lz_cuda_blas_close(lz_device *d);
bool lz_cuda_dnn_open(lz_device *d, lz_error *err); /* if there is no cuDNN, returns true and leaves d->dnn NULL */
void lz_cuda_dnn_close(lz_device *d);

bool lz_cuda_multiplies(const lz_device *d, lz_dtype codes); /* lz_device_table */

/* All ELEMENT ops (FUSED, COPY, CAST and single ops). */
extern const lz_kernel lz_cuda_element;
extern const lz_kernel lz_cuda_reduce, lz_cuda_softmax, lz_cuda_rms_norm, lz_cuda_rms_norm_twice, lz_cuda_layer_norm,
    lz_cuda_group_norm, lz_cuda_rope, lz_cuda_quantise, lz_cuda_matmul, lz_cuda_codes_matmul, lz_cuda_sdpa,
    lz_cuda_conv2d, lz_cuda_pad, lz_cuda_take, lz_cuda_gather, lz_cuda_arange, lz_cuda_unpack;
/* upload.c. to is device memory. The upload is put into the queue; when lz_cuda_upload returns, it has read `from`. */
struct lz_cuda_staging *lz_cuda_open_staging(lz_device *d, lz_error *err);
void lz_cuda_close_staging(lz_device *d, struct lz_cuda_staging *s);
bool lz_cuda_upload(lz_device *d, struct lz_cuda_staging *s, lz_cu_stream stream, void *to, lz_bytes from,
                    int64_t bytes, lz_error *err);
void lz_cuda_gather_uploads(struct lz_cuda_staging *s);
bool lz_cuda_send_gathered(lz_device *d, struct lz_cuda_staging *s, lz_cu_stream stream, lz_error *err);
/* lz_device_table */
lz_sending *lz_cuda_start_sending(lz_device *d, lz_error *err);
bool lz_cuda_add_sending(lz_sending *s, void *to, lz_bytes from, int64_t bytes);
bool lz_cuda_end_sending(lz_sending *s, lz_error *err);
void lz_cuda_close_sendings(lz_device *d);
extern const lz_device_table lz_cuda_device_table; /* device.c */

/* ---- traces ------------------------------------------------------------------------------------------------------ */

/* Writes to the context's log: choices, refusals and compilations. */
#define lz_cuda_trace(d, ...) lz_tell((d)->ctx, LZ_LOG_DETAIL, "cuda: " __VA_ARGS__)

#endif
