/* backend.h: what a backend is: for each op, a kernel. The planner has resolved every view, so a kernel sees plain
 * strided tensors; it computes one of them from the others and allocates nothing.
 *
 * Shapes a kernel may rely on (checked when the op was called):
 *   ELEMENT  every input has the dims of the output; broadcast axes have stride 0.
 *   REDUCE   in = [kept..., reduced...], params.reduce.count reduced axes; out = [kept...].
 *   softmax, rms_norm, layer_norm: over the last axis. group_norm: x [n, ..., c].
 *   rope     x [..., n, d], cos and sin [..., n, d/2] with the same leading axes. When params.rope.norm is set, x is first
 *            divided by its root mean square over d and in[3], if present, is multiplied on ([d] broadcast to x).
 *   matmul   a [..., m, k], b [..., k, n], out [..., m, n], the same leading axes in all three.
 *   matmul_pair: a [..., m, k], b and another b [..., k, n] of one 16-bit type, with an epilogue over both products. Only
 *            backends that have a kernel for it get any.
 *   sdpa     q [b, h, n, d], k and v [b, g, m, d], optional in[3] mask [b, h, n, m]; out [b, h, n, d].
 *   conv2d   x [n, h, w, c], w [o, kh, kw, c], out [n, oh, ow, o].
 *   pad, take, gather: as in lazuli.h; indices are i64. concat never arrives: the planner makes it of copies.
 * Types: element inputs share one type except where and cast; matmul, sdpa, conv2d and rope inputs may differ. */
#ifndef LZ_BACKEND_H
#define LZ_BACKEND_H

#include "base/base.h"
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
 * LZ_EXPR_MUL_ADD is a * b + c, rounded twice. With number set, k0 stands in for b. */
#define LZ_EXPR_MUL_ADD LZ_OP_COUNT
typedef struct lz_expr_step {
    uint8_t op, dst, a, b, c;
    bool number;
    float k0, k1;
} lz_expr_step;

/* Registers 0 .. n_args-1 hold the arguments at the start. Of a kernel with an epilogue, argument 0 is the kernel's own
 * result, and arguments 1.. are the tensors after the kernel's own inputs. Of a MATMUL_PAIR, arguments 0 and 1 are its two
 * results. */
typedef struct lz_expr {
    int n_args, n_steps, n_regs, result;
    lz_expr_step steps[LZ_EXPR_STEPS];
} lz_expr;

/* ---- calls ------------------------------------------------------------------------------------------------------ */

typedef struct lz_device lz_device;

typedef struct lz_call {
    lz_op op;
    const lz_params *params;
    const lz_expr *expr; /* FUSED: the chain; a kernel: its epilogue, or NULL */
    lz_tensor out;
    const lz_tensor *in; /* n_core inputs of the op, then the arguments of the epilogue (with the dims of out) */
    int n_core, n_in;
    char *scratch; /* of the size the kernel asked for, aligned to 64 */
    lz_pool *pool;
    lz_device *device; /* of a backend with memory of its own; NULL: data is in the host's */
    lz_error *err;     /* set by a kernel that returns false */
} lz_call;

typedef struct lz_kernel {
    const char *name;                        /* for the profiler, such as "cpu.matmul" */
    bool (*run)(const lz_call *call);        /* false: call->err says why */
    int64_t (*scratch)(const lz_call *call); /* bytes; data pointers are not valid here. NULL: none */
    bool (*can)(const lz_call *call);        /* takes these types and strides? NULL: always. With an epilogue: must */
    /* Calls that do not depend on each other, as one launch. They were found alike before, when nobody had addresses yet.
     * Each has the same scratch. NULL: one after the other. */
    bool (*alike)(const lz_call *a, const lz_call *b);
    bool (*run_together)(const lz_call *const *calls, int n);
} lz_kernel;

enum { LZ_TOGETHER = 12 }; /* calls at most */

/* Bytes that a device is sent: those at data or, if data is NULL, those that make writes. make writes `bytes` bytes of the
 * whole, from `offset` on, to `to`; both numbers are multiples of the element's size. Several threads may call it at once. */
typedef void (*lz_maker)(const void *user, int64_t offset, int64_t bytes, char *to);
typedef struct lz_bytes {
    const void *data;
    lz_maker make;
    const void *user;
} lz_bytes;

/* What a device with memory of its own can do beside running kernels. Its kernels only put work into one queue, which
 * is done in order; write and launches return before it is done, read and finish after. Calls come one at a time, but
 * for allocate, release and room. */
typedef struct lz_recording lz_recording;
typedef enum lz_queue { LZ_QUEUE_KERNELS, LZ_QUEUE_COPIES } lz_queue;
typedef struct lz_device_table {
    lz_device *(*open)(lz_context *ctx, int number, const lz_context_options *options, lz_error *err);
    /* Fills up to n entries; returns how many there are. No context is opened. */
    int (*list)(const lz_context_options *options, lz_device_info *devices, int n);
    void (*close)(lz_device *d);
    const char *(*name)(const lz_device *d); /* such as "NVIDIA H200" */
    void (*enter)(lz_device *d);             /* before kernels: makes it the device of this thread */
    void *(*allocate)(lz_device *d, int64_t bytes, lz_error *err);
    void (*release)(lz_device *d, void *memory);
    int64_t (*room)(lz_device *d);                                                      /* bytes still free */
    bool (*write)(lz_device *d, void *to, lz_bytes from, int64_t bytes, lz_error *err); /* from may go at once */
    bool (*read)(lz_device *d, void *to, const void *from, int64_t bytes, lz_error *err);
    bool (*finish)(lz_device *d, lz_error *err); /* waits; errors of earlier launches are told here */
    /* What is run between on and off is not done: kernels note what they would need to prepare, and off prepares it all
     * at once. */
    void (*rehearse)(lz_device *d, bool on);
    /* What is launched between begin and end is not done but recorded, and replayed as one submission. */
    bool (*record)(lz_device *d, lz_error *err);
    lz_recording *(*end_record)(lz_device *d, lz_error *err);
    bool (*replay)(lz_device *d, lz_recording *r, lz_error *err);
    void (*forget)(lz_device *d, lz_recording *r);
    /* Moments in the queue: stamp notes one, seconds tells how much later stamp b was than stamp a, after finish. */
    bool (*stamp)(lz_device *d, int i, lz_error *err);
    double (*seconds)(lz_device *d, int a, int b);
    /* A second queue, whose copies run beside the kernels. mark notes moment i in one queue; what is put into a queue
     * after await begins when that moment has come. */
    bool (*send)(lz_device *d, void *to, lz_bytes from, int64_t bytes, lz_error *err); /* write, by that queue */
    bool (*mark)(lz_device *d, lz_queue queue, int i, lz_error *err);
    bool (*await)(lz_device *d, lz_queue queue, int i, lz_error *err);
} lz_device_table;

typedef struct lz_backend {
    const char *name;
    bool fuses;                           /* wants expressions; otherwise plain ops only */
    bool half;                            /* multiplies bf16 faster than f32 */
    bool together;                        /* has kernels that do several calls in one launch */
    const lz_kernel *(*kernel)(lz_op op); /* NULL, or one without run: none */
    const lz_device_table *device;        /* NULL: kernels work on host memory, and are done when they return */
} lz_backend;

/* The reference: every op, every type, in f64 (integers in i64), one element at a time. */
const lz_backend *lz_ref_backend(void);
/* NULL, with the reason, when isa names none that this machine can run. */
const lz_backend *lz_cpu_backend(const char *isa, lz_error *err);
const lz_backend *lz_cuda_backend(void);

#endif
