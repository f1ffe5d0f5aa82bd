/* backend.h: a backend is a table of kernels, one for each op, and optionally a device. The planner has resolved every
 * view, so a kernel gets strided tensors; it computes one of them from the others and allocates nothing.
 *
 * Shapes that a kernel can rely on (array/ops_*.c has checked them):
 *   ELEMENT  every input has the dims of the output; broadcast axes have stride 0.
 *   REDUCE   in = [kept..., reduced...], params.reduce.count reduced axes; out = [kept...].
 *   softmax, rms_norm, layer_norm: over the last axis. group_norm: x [n, ..., c].
 *   rms_norm_twice: x, optional in[1] weight with the dims of x. The first result is rms_norm(x) with the epilogue, as
 *            rounded to the type of out. The second result, rms_norm of the first times the weight, is stored
 *            lz_beside() elements after it; out is dense. Fusion makes it only for backends that have a kernel for it.
 *   rope     x [..., n, d], cos and sin [..., n, d/2] with the same leading axes. If params.rope.norm is set, x is
 *            first divided by its root mean square over d, and multiplied by in[3] ([d] broadcast to x) if given.
 *   matmul   a [..., m, k], b [..., k, n], out [..., m, n], the same leading axes in all three.
 *   matmul_pair: a [..., m, k], b and another b [..., k, n] of one 16-bit type, with an epilogue over both products.
 *            Fusion makes it only for backends that have a kernel for it.
 *   sdpa     q [b, h, n, d], k and v [b, g, m, d], optional in[3] mask [b, h, n, m]; out [b, h, n, d]. If q and k are f8, a
 *            kernel may round the probabilities and v, with scales of its own, to f8. graph/quantise.c makes such calls.
 *   conv2d   x [n, h, w, c], w [o, kh, kw, c], out [n, oh, ow, o].
 *   unpack   codes [..., rows, bytes] of 8 bits, optional in[1] scales and in[2] offsets [..., rows / row_group,
 *            columns / group], both rounded up; out [..., rows, columns].
 *   packed_matmul: a [..., m, k], then the inputs of an unpack of [n, k], of two axes each; out [..., m, n]. The bytes
 *            of a row of codes are contiguous. Lowering makes it only for backends that have a kernel for it.
 *   int8_matmul: as packed_matmul, with codes of the packing i8, one scale for each row or none, and no offsets. Each row
 *            of a is rounded to codes by lz_quantise_row (op/pack.h). The result is the exact sum of the products of codes,
 *            rounded to f32, times the scale of the row of a, times (factor * scale) of the row of the weight. Lowering
 *            makes it in contexts that compute in LZ_I8, for backends that have it.
 *   quantise: x [..., m, k], k a multiple of 16; out f8 or i8 [..., m, k], dense, and the scales of the rows, f32, dense,
 *            lz_beside() elements after it. Row and scale are those of lz_quantise_row (op/pack.h). Lowering makes it,
 *            with codes_matmul, in contexts that compute in LZ_F8, or in LZ_I8 without int8_matmul. For backends that fuse,
 *            graph/quantise.c puts more into it: the rows are expr(core(x)), with core of params.quantise; and if n_core is
 *            2, the first columns of out are those of in[1], the head, and x and the arguments of expr have the others.
 *   codes_matmul: codes of rows [..., m, k], of a quantise, k contiguous; codes of the packing e4m3 or i8 [n, k]; the scales
 *            of the rows [..., m, 1]; optional scales of the weight [n, 1], of which row_group rows share one. The result is
 *            the sum of the products of codes, in f32 (of i8: the exact sum, rounded to f32), times the scale of the row,
 *            times (factor * scale) of the weight.
 *   pad, take, gather: as in lazuli_array.h; indices are i64. There is no concat: the planner replaces it by copies.
 * Types: element inputs share one type except where and cast; matmul, sdpa, conv2d and rope inputs may differ. */
#ifndef LZ_BACKEND_H
#define LZ_BACKEND_H

#include "base/base.h"
#include "base/file.h"
#include "op/op.h"

typedef struct lz_tensor {
    char *data;
    lz_dtype dtype;
    lz_dims dims;
    int64_t strides[LZ_MAX_DIMS]; /* in elements, never negative */
} lz_tensor;

/* ---- expressions: elementwise chains as a small program over registers ------------------------------------------ */

#define LZ_EXPR_ARGS 8
#define LZ_EXPR_REGS 16
#define LZ_EXPR_STEPS 32
#define LZ_MAX_OPERANDS (4 + LZ_EXPR_ARGS) /* inputs of a call */

/* dst = op(a, b, c), all f32. FULL loads k0; CLIP clips to k0..k1; CAST rounds to the type in b (bool: to 0 or 1);
 * LZ_EXPR_MUL_ADD is a * b + c, rounded twice. If number is set, k0 is used instead of b. */
#define LZ_EXPR_MUL_ADD LZ_OP_COUNT
typedef struct lz_expr_step {
    uint8_t op, dst, a, b, c;
    bool number;
    float k0, k1;
} lz_expr_step;

/* Registers 0 .. n_args-1 have the arguments at the start. In an epilogue, argument 0 is the result of the kernel, and
 * the following arguments are the tensors in[n_core], in[n_core + 1], ... In the epilogue of a MATMUL_PAIR, arguments 0
 * and 1 are its two products. */
typedef struct lz_expr {
    int n_args, n_steps, n_regs, result;
    lz_expr_step steps[LZ_EXPR_STEPS];
} lz_expr;

/* ---- calls ------------------------------------------------------------------------------------------------------ */

typedef struct lz_device lz_device;

typedef struct lz_call {
    lz_op op;
    const lz_params *params;
    const lz_expr *expr; /* of FUSED: the chain; of other ops: the epilogue, or NULL */
    lz_tensor out;
    const lz_tensor *in; /* n_core inputs of the op, then the arguments of the epilogue (with the dims of out) */
    int n_core, n_in;
    char *scratch; /* of the size that kernel->scratch returned, aligned to 64 */
    lz_pool *pool;
    lz_device *device; /* of a backend with its own memory; NULL: data is in host memory */
    lz_error *err;     /* set by a kernel that returns false */
} lz_call;

typedef struct lz_kernel {
    const char *name;                        /* for the profiler, such as "cpu.matmul" */
    bool (*run)(const lz_call *call);        /* false: call->err has the reason */
    int64_t (*scratch)(const lz_call *call); /* bytes; called before data pointers are set. NULL: none */
    /* Does the kernel support the types and strides of the call? NULL: always. Must be true if the call has an
     * epilogue. */
    bool (*can)(const lz_call *call);
    /* run_group runs up to LZ_MAX_GROUP calls that do not depend on each other in one launch. alike says whether two
     * calls can be in one group; it is called while planning, before data pointers are set. The calls share one scratch
     * buffer. NULL: each call is run alone. */
    bool (*alike)(const lz_call *a, const lz_call *b);
    bool (*run_group)(const lz_call *const *calls, int n);
} lz_kernel;

enum { LZ_MAX_GROUP = 12 }; /* calls in one launch */

/* Bytes to upload: at data or, if data is NULL, written by make(user, offset, bytes, to). make writes the bytes from
 * `offset` to `offset + bytes` of the whole to `to`; both numbers are multiples of the element's size. Several threads
 * may call it at the same time. If data is in a mapped file, file is its mapping, and lz_mapping_read reads the bytes;
 * otherwise file is NULL. */
typedef void (*lz_maker)(const void *user, int64_t offset, int64_t bytes, char *to);
typedef struct lz_bytes {
    const void *data;
    lz_maker make;
    const void *user;
    const lz_mapping *file;
} lz_bytes;

/* A device with its own memory. Kernels and write put work into one queue, which runs in order, and return before the
 * work is done; read and finish wait until the queue is empty. When write returns, it has read `from`. allocate,
 * release, available, name, enter, reach and forget may be called by any thread at any time; the others only by a thread that
 * holds ctx->run_lock. */
typedef struct lz_recording lz_recording;
typedef struct lz_moment lz_moment;
typedef struct lz_preparation lz_preparation;
typedef struct lz_sending lz_sending;
typedef enum lz_queue { LZ_QUEUE_KERNELS, LZ_QUEUE_COPIES } lz_queue;
typedef struct lz_device_table {
    lz_device *(*open)(lz_context *ctx, int number, const lz_context_options *options, lz_error *err);
    /* Fills up to n entries; returns the number of devices. Opens nothing. */
    int (*list)(const lz_context_options *options, lz_device_info *devices, int n);
    void (*close)(lz_device *d);
    const char *(*name)(const lz_device *d);                /* such as "NVIDIA H200" */
    bool (*multiplies)(const lz_device *d, lz_dtype codes); /* has it CODES_MATMUL of f8, or of i8? */
    /* Is an SDPA of these queries and keys faster if they are f8? NULL: never. */
    bool (*attends_f8)(const lz_device *d, lz_dims q, lz_dims k);
    void (*enter)(lz_device *d); /* makes it the current device of this thread, for kernels */
    void *(*allocate)(lz_device *d, int64_t bytes, lz_error *err);
    void (*release)(lz_device *d, void *memory);
    int64_t (*available)(lz_device *d); /* free bytes */
    bool (*write)(lz_device *d, void *to, lz_bytes from, int64_t bytes, lz_error *err);
    /* Between the two, writes may be delayed until end_writes, and read `from` then. */
    void (*gather_writes)(lz_device *d);
    bool (*end_writes)(lz_device *d, lz_error *err);
    /* A sending uploads beside all other work, by a queue and threads of its own. The thread that starts it needs no
     * ctx->run_lock, and calls add and end too. add begins an upload; false: it is not part of the sending. end waits until
     * all bytes are on the device, and frees the sending; false: some are not. A device has one sending at a time.
     * close_sendings frees the page-locked memory that sendings share; the next sending allocates it again. NULL: the
     * backend has none. */
    lz_sending *(*start_sending)(lz_device *d, lz_error *err);
    bool (*add_sending)(lz_sending *s, void *to, lz_bytes from, int64_t bytes);
    bool (*end_sending)(lz_sending *s, lz_error *err);
    void (*close_sendings)(lz_device *d);
    bool (*read)(lz_device *d, void *to, const void *from, int64_t bytes, lz_error *err);
    bool (*finish)(lz_device *d, lz_error *err); /* waits; returns errors of earlier launches */
    /* moment notes what is in the queue now. reach waits until that is done, and frees the moment. check returns errors
     * that kernels have found in their inputs. */
    lz_moment *(*moment)(lz_device *d, lz_error *err);
    bool (*reach)(lz_device *d, lz_moment *m, lz_error *err);
    bool (*check)(lz_device *d, lz_error *err);
    /* A rehearsal: kernels run between rehearse and end_rehearsal launch nothing, but list what they must prepare, such as
     * code to compile or to load. end_rehearsal returns the list, or NULL if it is empty. prepare does the work of the list; any thread
     * may call it at any time. use_prepared gives the results to the kernels and frees the list. */
    void (*rehearse)(lz_device *d);
    lz_preparation *(*end_rehearsal)(lz_device *d);
    void (*prepare)(lz_device *d, lz_preparation *list);
    void (*use_prepared)(lz_device *d, lz_preparation *list);
    /* Kernels launched between record and end_record do not run, but are recorded. replay runs a recording as one
     * submission. The caller owns the recording until forget. */
    bool (*record)(lz_device *d, lz_error *err);
    lz_recording *(*end_record)(lz_device *d, lz_error *err);
    bool (*replay)(lz_device *d, lz_recording *r, lz_error *err);
    void (*forget)(lz_device *d, lz_recording *r);
    /* stamp(i) puts a time stamp into the queue; after finish, seconds(a, b) is the time between stamps a and b. */
    bool (*stamp)(lz_device *d, int i, lz_error *err);
    double (*seconds)(lz_device *d, int a, int b);
    /* A second queue runs copies while the first runs kernels. mark(queue, i) puts mark i into a queue. Work that is
     * put into a queue after await(queue, i) begins after the other queue has reached mark i. */
    bool (*send)(lz_device *d, void *to, lz_bytes from, int64_t bytes, lz_error *err); /* write, in that queue */
    bool (*mark)(lz_device *d, lz_queue queue, int i, lz_error *err);
    bool (*await)(lz_device *d, lz_queue queue, int i, lz_error *err);
} lz_device_table;

typedef struct lz_backend {
    const char *name;
    bool fuses;                           /* its kernels take expressions and epilogues; otherwise plain ops only */
    bool half;                            /* multiplies bf16 faster than f32 */
    bool groups;                          /* has kernels with run_group */
    const lz_kernel *(*kernel)(lz_op op); /* NULL, or a kernel without run: the backend does not have the op */
    const lz_device_table *device;        /* NULL: kernels use host memory, and are done when they return */
} lz_backend;

/* The reference kernels: every op and type, in f64 (integers in i64), one element at a time. */
const lz_backend *lz_ref_backend(void);
/* isa: name of an instruction set, or NULL: the best that this machine has. Returns NULL, and err has the reason, if
 * this machine does not have it. */
const lz_backend *lz_cpu_backend(const char *isa, lz_error *err);
const lz_backend *lz_cuda_backend(void);

#endif
