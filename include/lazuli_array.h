/* lazuli_array.h: lazy arrays, on which the models of lazuli.h run. This header is their manual, in order of need.
 * lazuli.h includes it. A program may include either header.
 *
 *     lz_error err;
 *     lz_context *ctx = lz_open(.threads = 2, .error = &err); // NULL if it failed; err.text says why
 *     lz_array *x = lz_full(ctx, LZ_DIMS(2, 3), LZ_F32, 1.5);
 *     lz_array *y = lz_add(lz_mul(x, x), 1.0);              // computes nothing
 *     const float *p = lz_data(y, &err);                    // computes everything, as one program
 *     lz_close(ctx);
 *
 * The rules of lazuli.h hold here too. There are three more:
 *   1. An op describes a computation. It checks shapes and types when it is called, and computes nothing.
 *   2. Programs do not free intermediate arrays. An array belongs to the innermost scope that the calling thread has
 *      open, or to the context if the thread has no open scope. The array is freed when that scope ends, or with the
 *      context, unless the program retains it.
 *   3. Errors are kept. A failed op returns a poisoned array, and an op on a poisoned array returns a poisoned array.
 *      The function that evaluates it returns the first error, with its op, shapes and place. NULL counts as a poisoned
 *      array; an op returns NULL only if there is no context to make an array in.
 *
 * Options of ops are passed by value, so they change only when LZ_VERSION_MINOR does.
 */
#ifndef LAZULI_ARRAY_H
#define LAZULI_ARRAY_H

#include "lazuli.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. Types and shapes -------------------------------------------------------------------------------------- */

const char *lz_dtype_name(lz_dtype dtype); /* "f32" */
int64_t lz_dtype_size(lz_dtype dtype);     /* bytes */

/* The type of the result of an op on two arrays. bool < integers < floats; u8 with i8 gives i32, f16 with bf16 f32. */
lz_dtype lz_promote(lz_dtype a, lz_dtype b);

/* The type that models compute in on this context. Sums are always in f32. */
lz_dtype lz_compute_type(const lz_context *ctx);

#define LZ_MAX_DIMS 8

/* Sizes, axes or any other short list of integers. Negative axes count from the end. */
typedef struct lz_dims {
    int n;
    int64_t at[LZ_MAX_DIMS];
} lz_dims;

#ifdef __cplusplus
} /* templates have no C linkage */
template <class... Sizes> lz_dims lz_dims_of(Sizes... sizes) {
    return lz_dims{static_cast<int>(sizeof...(sizes)), {static_cast<int64_t>(sizes)...}};
}
#define LZ_DIMS(...) lz_dims_of(__VA_ARGS__)
#define LZ_NONE lz_dims_of()
extern "C" {
#else
#define LZ_DIMS(...) ((lz_dims){.n = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .at = {__VA_ARGS__}})
#define LZ_NONE ((lz_dims){.n = 0}) /* the shape of a scalar; as axes it means all axes */
#endif

/* ---- 2. Arrays ------------------------------------------------------------------------------------------------ */

/* An array from memory. lz_from copies the data. lz_borrow uses the data in place until it calls release(user), on any
 * thread. release may be called after the array was freed, and is called at the latest by lz_close. */
lz_array *lz_from(lz_context *ctx, lz_dims dims, lz_dtype dtype, const void *data);
lz_array *lz_borrow(lz_context *ctx, lz_dims dims, lz_dtype dtype, const void *data, void (*release)(void *),
                    void *user);

lz_array *lz_full(lz_context *ctx, lz_dims dims, lz_dtype dtype, double value); /* any shape; one element in memory */
lz_array *lz_number(lz_context *ctx, double value); /* weak: takes the type of the other operand */
lz_array *lz_arange(lz_context *ctx, double start, double stop, double step, lz_dtype dtype);

/* The result of torch.randn(dims, generator=torch.Generator("cpu").manual_seed(seed)) in f32, to 2 ulp. Lazuli gives
 * the same bits on every machine. */
lz_array *lz_randn(lz_context *ctx, lz_dims dims, uint64_t seed);

lz_context *lz_context_of(const lz_array *a);
lz_dims lz_shape(const lz_array *a);
lz_dtype lz_type(const lz_array *a);
int64_t lz_size(const lz_array *a);                   /* number of elements; 0 for a poisoned array */
lz_status lz_check(const lz_array *a, lz_error *err); /* LZ_OK, or the error of a poisoned array */

/* These functions compute the array if needed; on a GPU they also wait and copy. The data is row-major, and valid as
 * long as the array. */
const void *lz_data(lz_array *a, lz_error *err);
lz_status lz_copy(lz_array *a, void *out, int64_t bytes, lz_error *err); /* bytes must equal the array's */
double lz_item(lz_array *a, lz_error *err);                              /* of an array of one element */

/* A retained array outlives its scope. The program calls lz_release once for each lz_retain, before lz_close, and does
 * not release an array that it did not retain. */
lz_array *lz_retain(lz_array *a);
void lz_release(lz_array *a);

/* ---- 3. Scopes ------------------------------------------------------------------------------------------------ */

/* A scope belongs to the thread that begins it, and is ended by that thread, inner scopes first. Arrays made outside
 * any scope live until lz_close, so a program that runs for long makes its arrays in scopes. Error messages contain the
 * names of the open scopes. */
typedef struct lz_scope lz_scope;
lz_scope *lz_scope_begin(lz_context *ctx, const char *name); /* NULL if out of memory; the outer scope is then used */
lz_array *lz_scope_keep(lz_scope *scope, lz_array *a);       /* moves the array to the outer scope */
void lz_scope_end(lz_scope *scope);                          /* releases the arrays that belong to it */
lz_array *lz_scope_return(lz_scope *scope, lz_array *a);     /* keeps a, ends the scope, returns a */

/* ---- 4. Ops: elementwise -------------------------------------------------------------------------------------- */

/* Shapes broadcast as in NumPy, and types promote by lz_promote. A C number, as in lz_add(a, 2.0), never changes the
 * type of the array. Ops without a meaning for integers (lz_exp, lz_div, ...) convert integers to f32. */
lz_array *lz_add(lz_array *a, lz_array *b);
lz_array *lz_sub(lz_array *a, lz_array *b);
lz_array *lz_mul(lz_array *a, lz_array *b);
lz_array *lz_div(lz_array *a, lz_array *b);
lz_array *lz_pow(lz_array *a, lz_array *b);
lz_array *lz_maximum(lz_array *a, lz_array *b); /* NaN if either is NaN */
lz_array *lz_minimum(lz_array *a, lz_array *b);
lz_array *lz_equal(lz_array *a, lz_array *b); /* comparisons return bool */
lz_array *lz_not_equal(lz_array *a, lz_array *b);
lz_array *lz_less(lz_array *a, lz_array *b);
lz_array *lz_less_equal(lz_array *a, lz_array *b);
lz_array *lz_greater(lz_array *a, lz_array *b);
lz_array *lz_greater_equal(lz_array *a, lz_array *b);
lz_array *lz_and(lz_array *a, lz_array *b); /* logical; nonzero is true */
lz_array *lz_or(lz_array *a, lz_array *b);

lz_array *lz_neg(lz_array *a);
lz_array *lz_abs(lz_array *a);
lz_array *lz_not(lz_array *a);
lz_array *lz_square(lz_array *a);
lz_array *lz_floor(lz_array *a);
lz_array *lz_exp(lz_array *a);
lz_array *lz_log(lz_array *a);
lz_array *lz_sqrt(lz_array *a);
lz_array *lz_rsqrt(lz_array *a);
lz_array *lz_sin(lz_array *a);
lz_array *lz_cos(lz_array *a);
lz_array *lz_tanh(lz_array *a);
lz_array *lz_erf(lz_array *a);
lz_array *lz_sigmoid(lz_array *a);
lz_array *lz_silu(lz_array *a);
lz_array *lz_gelu(lz_array *a);      /* x Φ(x), with erf */
lz_array *lz_gelu_tanh(lz_array *a); /* the tanh approximation */

lz_array *lz_where(lz_array *condition, lz_array *a, lz_array *b);
lz_array *lz_clip(lz_array *a, double low, double high);
/* Floats round to nearest even. Float to integer rounds toward zero and saturates; NaN becomes 0. Integer to integer
 * wraps. */
lz_array *lz_cast(lz_array *a, lz_dtype dtype);

/* ---- 5. Ops: reductions --------------------------------------------------------------------------------------- */

lz_array *lz_sum(lz_array *a, lz_dims axes, bool keepdims); /* integers sum to i64 */
lz_array *lz_mean(lz_array *a, lz_dims axes, bool keepdims);
lz_array *lz_var(lz_array *a, lz_dims axes, bool keepdims); /* of the population, divided by n */
lz_array *lz_max(lz_array *a, lz_dims axes, bool keepdims); /* NaN if any is NaN; an empty axis is an error */
lz_array *lz_min(lz_array *a, lz_dims axes, bool keepdims);
lz_array *lz_argmax(lz_array *a, int axis, bool keepdims); /* i64; the first of equal values, or the first NaN */
lz_array *lz_logsumexp(lz_array *a, lz_dims axes, bool keepdims);
lz_array *lz_softmax(lz_array *a, int axis); /* a row of -inf only gives NaN, as in torch */

/* ---- 6. Ops: matrices and attention --------------------------------------------------------------------------- */

/* The two operands may differ in type. Each is read as it is stored, sums are in f32, and the result has the promoted
 * type. */
lz_array *lz_matmul(lz_array *a, lz_array *b);                 /* [..., m, k] x [..., k, n], batches broadcast */
lz_array *lz_linear(lz_array *x, lz_array *w, lz_array *bias); /* x [..., k], w [n, k], bias [n] or NULL */

typedef struct lz_addmm_options {
    int reserved;
    double alpha, beta; /* 0 means 1 */
} lz_addmm_options;
lz_array *lz_addmm_with(lz_array *c, lz_array *a, lz_array *b, lz_addmm_options options); /* beta c + alpha a b */

typedef struct lz_sdpa_options {
    int reserved;
    double scale;   /* 0 means 1/sqrt(head size) */
    bool causal;    /* query i attends to keys 0 .. i + (keys - queries) */
    lz_array *mask; /* broadcasts to [b, heads, queries, keys]; bool (true if the query attends to the key) or float
                       (added to the scores). A key-padding mask is bool [b, 1, 1, keys]. */
} lz_sdpa_options;
/* q [b, h, n, d], k and v [b, g, m, d] with h a multiple of g (grouped queries), d up to 512. Memory grows with n + m,
 * not with n times m. A query that attends to no key gives zeros. */
lz_array *lz_sdpa_with(lz_array *q, lz_array *k, lz_array *v, lz_sdpa_options options);

typedef struct lz_unpack_options {
    int reserved;
    /* How the codes are stored. Blocks of GGUF: "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k",
     * "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "nvfp4". Numbers of a byte: "e4m3", "e5m2", "i8". Two in a byte: "e2m1" (the
     * high half is the even element), "i4" (the low half is; its value is q - 8), "s4" (the same, two's complement). A
     * stream of bits, the lowest first: "u2", "u3", "u4", "u5", "u6", "u8". */
    const char *packing;
    lz_dtype dtype;           /* of the result: f16, bf16 or f32; 0 means the type that models compute in */
    int64_t columns;          /* 0 means all columns of the codes. The last block of a row may be used in part */
    int64_t group, row_group; /* columns and rows that share a scale; 0 means all columns of a row, and one row */
    double factor;            /* of all scales; 0 means 1 */
    int rotate;               /* ConvRot: groups of 4, 16, 64 or 256 columns that are multiplied by a Hadamard matrix */
} lz_unpack_options;
/* Weights [..., rows, columns] from codes [..., rows, bytes] of 8 bits: (factor scale) code + offset, in f32, rounded
 * once. scales (NULL: 1) and offsets (NULL: none; they need scales) broadcast to [..., rows / row_group, columns /
 * group], rounded up. Scales are f32, f16, bf16, f8 or u8 (powers of two, E8M0); offsets are any of these except u8.
 * Blocks of GGUF contain their scales. The result is computed each time it is needed, and not kept. As the weight of
 * lz_linear it is unpacked piece by piece. */
lz_array *lz_unpack_with(lz_array *codes, lz_array *scales, lz_array *offsets, lz_unpack_options options);

/* ---- 7. Ops: norms, rope, convolution -------------------------------------------------------------------------- */

/* Over the last axis, with statistics in f32. weight and bias may be NULL. */
lz_array *lz_rms_norm(lz_array *x, lz_array *weight, double eps);
lz_array *lz_layer_norm(lz_array *x, lz_array *weight, lz_array *bias, double eps);
lz_array *lz_modulated_norm(lz_array *x, lz_array *scale, lz_array *shift, double eps); /* LN(x) (1 + scale) + shift */
lz_array *lz_group_norm(lz_array *x, int groups, lz_array *weight, lz_array *bias, double eps); /* x [n, ..., c] */

typedef struct lz_rope_options {
    int reserved;
    bool half_split; /* pairs (i, i + d/2) as in Qwen; otherwise adjacent pairs (2i, 2i + 1) as in FLUX */
} lz_rope_options;
/* x [..., n, d]; cos and sin [n, d/2], or anything that broadcasts to [..., n, d/2]. */
lz_array *lz_rope_with(lz_array *x, lz_array *cos, lz_array *sin, lz_rope_options options);

typedef struct lz_conv2d_options {
    int reserved;
    int stride;                   /* 0 means 1 */
    int top, bottom, left, right; /* zero padding of each side */
} lz_conv2d_options;
/* Channels last: x [n, h, w, c], w [out, kh, kw, c], bias [out] or NULL. Permute weights stored [out, c, kh, kw]. */
lz_array *lz_conv2d_with(lz_array *x, lz_array *w, lz_array *bias, lz_conv2d_options options);
lz_array *lz_upsample_nearest(lz_array *x, int factor); /* [n, h, w, c] -> [n, h f, w f, c] */
lz_array *lz_pad(lz_array *a, lz_dims before, lz_dims after, double value);

/* ---- 8. Ops: shapes ------------------------------------------------------------------------------------------- */

/* These are views if strides can express the result; a view copies nothing. */
lz_array *lz_reshape(lz_array *a, lz_dims dims); /* one size may be -1 */
lz_array *lz_permute(lz_array *a, lz_dims axes);
lz_array *lz_transpose(lz_array *a); /* the last two axes */
/* As a[start:stop:step] along one axis, with step > 0. */
lz_array *lz_slice(lz_array *a, int axis, int64_t start, int64_t stop, int64_t step);
void lz_split(lz_array *a, int axis, int parts, lz_array **out); /* out has room for `parts` arrays */
lz_array *lz_broadcast(lz_array *a, lz_dims dims);
lz_array *lz_concat(lz_array *const *arrays, int n, int axis);
/* lz_take is a[:, indices, :], with indices of any shape. lz_gather is torch.gather, with indices of the rank of a.
 * Each index must be in 0 .. size-1, otherwise evaluation fails. */
lz_array *lz_take(lz_array *a, lz_array *indices, int axis);
lz_array *lz_gather(lz_array *a, lz_array *indices, int axis);
lz_array *lz_contiguous(lz_array *a); /* row-major in memory */

/* ---- 9. Evaluating -------------------------------------------------------------------------------------------- */

/* Plans everything that the arrays depend on as one program, and runs it. Only the given arrays keep their values;
 * intermediates are in one arena while the program runs. On a GPU these functions return when the work is queued.
 * lz_data, lz_copy, lz_item and lz_wait wait for it, and return errors that occurred meanwhile. */
lz_status lz_eval(lz_array *a, lz_error *err);
lz_status lz_eval_all(lz_array *const *arrays, int n, lz_error *err);

/* The memory and work of a graph, without running it. */
typedef struct lz_plan_info {
    int64_t arena_bytes;  /* of intermediates and, on the host, converted weights; exactly what the run allocates */
    int64_t output_bytes; /* of the given arrays */
    int64_t input_bytes;  /* of arrays that have their values already */
    int64_t nodes;        /* that the outputs depend on */
    int64_t kernels;      /* launches after fusion */
    double flops, bytes;  /* operations and memory traffic of one run */
    /* For a device with memory of its own, by its free memory now; otherwise 0. Borrowed inputs count as weights. */
    int64_t weight_bytes;   /* that kernels read */
    int64_t resident_bytes; /* of weights that stay on the device, and of the ring through which others are streamed */
    int64_t streamed_bytes; /* of weights that are sent in every run, because they do not fit */
    int64_t device_bytes;   /* that must be on the device at once: arena, outputs, resident_bytes */
} lz_plan_info;
lz_status lz_plan(lz_array *const *arrays, int n, lz_plan_info *info, lz_error *err);

/* A stream is a thread that runs programs in the background, in order. Arrays given to lz_async_eval may be used in
 * further ops at once; lz_data, lz_copy and lz_item wait for them. Several threads may give work to one stream. */
typedef struct lz_stream lz_stream;
lz_stream *lz_stream_new(lz_context *ctx, lz_error *err);
lz_status lz_async_eval(lz_stream *stream, lz_array *const *arrays, int n, lz_error *err);
lz_status lz_wait(lz_array *a, lz_error *err); /* waits until this array has its value */
void lz_stream_wait(lz_stream *stream);        /* waits until the stream has no work left */
void lz_stream_free(lz_stream *stream);        /* waits first */

/* ---- 10. Compiling -------------------------------------------------------------------------------------------- */

/* A function that describes outputs from inputs. lz_run calls it once for each new signature (types, shapes and strides
 * of the inputs), on its own thread, in a scope of its own. The function must depend only on its arguments and on
 * arrays that stay the same, so numbers that vary are passed as arrays. The inputs have no values yet: evaluating them,
 * or arrays made from them, fails with LZ_BAD_ARGUMENT. Other arrays may be evaluated, and must live as long as the
 * compiled function. */
typedef void (*lz_function)(lz_context *ctx, lz_array *const *in, lz_array **out, void *user);
typedef struct lz_compiled lz_compiled;

typedef struct lz_compile_stats {
    int64_t calls;
    int64_t compiles;  /* programs that were planned; a call with a known signature plans nothing */
    int64_t evictions; /* programs that were dropped because the cache was full */
    int cached;
} lz_compile_stats;

/* n_in is 0 to 65536, n_out 1 to 65536. cache_size is the number of programs to keep; the least recently used is
 * dropped first. 0 means 8. */
lz_compiled *lz_compile(lz_context *ctx, lz_function function, void *user, int n_in, int n_out, int cache_size,
                        lz_error *err);
/* When lz_run returns, the outputs are computed (on a GPU they are queued, as by lz_eval). They belong to the innermost
 * scope of the calling thread, as any array; lz_retain keeps them longer. Arrays of the function that do not depend on
 * its inputs are computed once and kept. A run of a known signature allocates nothing if the outputs of earlier runs
 * have been freed. Threads that run one compiled function wait for each other. */
lz_status lz_run(lz_compiled *compiled, lz_array *const *in, lz_array **out, lz_error *err);
lz_compile_stats lz_compiled_stats(const lz_compiled *compiled);
void lz_compiled_free(lz_compiled *compiled); /* outputs of earlier runs stay valid */

/* ---- 11. Seeing inside ---------------------------------------------------------------------------------------- */

typedef enum lz_graph_format {
    LZ_GRAPH_TEXT,   /* the nodes, as described */
    LZ_GRAPH_DOT,    /* the same for graphviz */
    LZ_GRAPH_PROGRAM /* the steps that will run, after all passes, with their places in memory */
} lz_graph_format;
/* Free the text with lz_free_text. */
char *lz_graph_text(lz_array *const *arrays, int n, lz_graph_format format, lz_error *err);

/* Between start and stop every kernel is timed. The table gives time, bytes, operations, and their share of the rate
 * that was measured on this machine for a matrix product and a copy. Free the table with lz_free_text. */
void lz_profile_start(lz_context *ctx);
void lz_profile_stop(lz_context *ctx);
char *lz_profile_table(lz_context *ctx, lz_error *err);
lz_status lz_profile_trace(lz_context *ctx, const char *path, lz_error *err); /* for chrome://tracing or Perfetto */

/* ---- 12. Weights ---------------------------------------------------------------------------------------------- */

/* Weights of a safetensors or GGUF file, of a model.safetensors.index.json, or of a folder with one of these. The first
 * bytes of a file tell its format. One part of a split GGUF model stands for all parts. Files are mapped, not read, so
 * a tensor takes memory when it is first used. lz_weights_open checks every offset, size and name. A tensor of an
 * unknown type is listed, and is an error only in lz_weights_get. */
typedef struct lz_weights lz_weights;
lz_weights *lz_weights_open(lz_context *ctx, const char *path, lz_error *err);
/* The file names that lz_weights_open looks for in a folder, in this order; NULL after the last. */
const char *lz_weights_file_name(int i);
/* For programs that download: how many bytes at the start of a weight file describe its tensors. data are the first
 * bytes of the file. A result above bytes means that at least so many are needed; -1: it is no such file. A file with
 * these bytes, and as long as the whole one, can be described (lz_file_about) without its weights. */
int64_t lz_weights_head(const void *data, int64_t bytes);
int64_t lz_weights_count(const lz_weights *weights);
const char *lz_weights_name(const lz_weights *weights, int64_t i);
bool lz_weights_has(const lz_weights *weights, const char *name);
lz_array *lz_weights_get(lz_weights *weights, const char *name); /* as stored; not copied */
/* How a tensor is stored that is not plain numbers, such as "q4_k", "e5m2" or "u32". NULL for plain numbers and for
 * unknown types. Shape and bytes are known for every tensor. */
const char *lz_weights_packing(const lz_weights *weights, const char *name);
lz_dims lz_weights_shape(const lz_weights *weights, const char *name); /* in elements */
int64_t lz_weights_bytes(const lz_weights *weights, const char *name); /* in the file */
/* Converts the tensor now, and returns the pages of the original to the system. */
lz_array *lz_weights_cast(lz_weights *weights, const char *name, lz_dtype dtype);
const char *lz_weights_metadata(const lz_weights *weights, const char *key); /* NULL if there is none */
const char *lz_weights_metadata_key(const lz_weights *weights, int64_t i);   /* the keys; NULL after the last */
void lz_weights_close(lz_weights *weights);                                  /* arrays of its tensors stay valid */

typedef struct lz_named_array {
    const char *name;
    lz_array *array;
} lz_named_array;
/* Writes the file whole or not at all. metadata is a list of keys and values ended by NULL, or NULL. */
lz_status lz_weights_save(lz_context *ctx, const char *path, const lz_named_array *arrays, int64_t n,
                          const char *const *metadata, lz_error *err);

/* lz_convert writes the weights of a file in another type, tensor by tensor, with about 100 MB of memory. */
typedef struct lz_converted { /* a tensor that was written */
    const char *name;
    const char *from_type, *to_type; /* such as "bf16", "q4_k" */
    int64_t from_bytes, to_bytes;
    double error; /* root mean square of the change, divided by that of the weights; 0 if nothing changed */
    double done;  /* the share of the whole file that is done, 0 to 1 */
} lz_converted;
typedef struct lz_convert_options {
    size_t size;      /* sizeof(lz_convert_options) */
    const char *type; /* see lz_convert_type */
    /* Called after each tensor, on the thread that converts. If it returns false, lz_convert ends with LZ_CANCELLED.
     * NULL is allowed. */
    bool (*watch)(void *user, const lz_converted *tensor);
    void *user;
} lz_convert_options;
/* The types, from 0; NULL after the last. "f32", "f16" and "bf16" are for all float tensors and both kinds of files.
 * "fp8" (e4m3 with one scale a matrix) and "int8" (ConvRot, one scale a row) are for safetensors, as ComfyUI stores
 * them. "q8_0", "q4_k" and so on are for GGUF. The last two groups convert matrices inside the blocks of a model;
 * embeddings, modulation, norms, biases and the last layers keep their type. A matrix whose rows are not whole blocks
 * of 256 becomes q8_0. */
const char *lz_convert_type(int i);
/* path is a file or folder, as for lz_weights_open. to is a file that ends in .gguf or .safetensors; it is written
 * whole or not at all. */
lz_status lz_convert(lz_context *ctx, const char *path, const char *to, const lz_convert_options *options,
                     lz_error *err);
#ifdef __cplusplus
#define LZ_CONVERT_OPTIONS() lz_options_of<lz_convert_options>()
#else
#define LZ_CONVERT_OPTIONS(...) ((lz_convert_options){.size = sizeof(lz_convert_options), __VA_ARGS__})
#endif

/* ---- 13. Pictures as arrays ----------------------------------------------------------------------------------- */

/* The autoencoder: an image to latents [1, c, h, w], and latents to an image. lz_encode_image uses the middle of the
 * image, in whole tokens. A token is one latent in FLUX.2, and 2 x 2 latents in Qwen-Image and Z-Image. */
lz_array *lz_encode_image(lz_model *model, const lz_image *image);
lz_status lz_decode_latents(lz_model *model, lz_array *latents, lz_image *image, lz_error *err);

/* ---- 14. Macros ----------------------------------------------------------------------------------------------- */

/* The macros below need C11. In C++, call the functions: lz_sdpa_with, lz_add_number, ... */

/* A number as the second argument of a binary op. */
lz_array *lz_add_number(lz_array *a, double b);
lz_array *lz_sub_number(lz_array *a, double b);
lz_array *lz_mul_number(lz_array *a, double b);
lz_array *lz_div_number(lz_array *a, double b);
lz_array *lz_pow_number(lz_array *a, double b);
lz_array *lz_maximum_number(lz_array *a, double b);
lz_array *lz_minimum_number(lz_array *a, double b);
lz_array *lz_equal_number(lz_array *a, double b);
lz_array *lz_not_equal_number(lz_array *a, double b);
lz_array *lz_less_number(lz_array *a, double b);
lz_array *lz_less_equal_number(lz_array *a, double b);
lz_array *lz_greater_number(lz_array *a, double b);
lz_array *lz_greater_equal_number(lz_array *a, double b);

/* Records the file and line of the call of an op, for its error message. The macros below do so for every op. A file
 * that wants the plain functions defines LZ_NO_SUGAR before it includes this header. */
lz_array *lz_at(lz_array *a, const char *file, int line);

#if !defined(__cplusplus) && !defined(LZ_NO_SUGAR)
#define LZ_HERE(call) lz_at(call, __FILE__, __LINE__)
#define LZ_BINARY(name, a, b) LZ_HERE(_Generic((b), lz_array * : name, default : name##_number)(a, b))

#define lz_add(a, b) LZ_BINARY(lz_add, a, b)
#define lz_sub(a, b) LZ_BINARY(lz_sub, a, b)
#define lz_mul(a, b) LZ_BINARY(lz_mul, a, b)
#define lz_div(a, b) LZ_BINARY(lz_div, a, b)
#define lz_pow(a, b) LZ_BINARY(lz_pow, a, b)
#define lz_maximum(a, b) LZ_BINARY(lz_maximum, a, b)
#define lz_minimum(a, b) LZ_BINARY(lz_minimum, a, b)
#define lz_equal(a, b) LZ_BINARY(lz_equal, a, b)
#define lz_not_equal(a, b) LZ_BINARY(lz_not_equal, a, b)
#define lz_less(a, b) LZ_BINARY(lz_less, a, b)
#define lz_less_equal(a, b) LZ_BINARY(lz_less_equal, a, b)
#define lz_greater(a, b) LZ_BINARY(lz_greater, a, b)
#define lz_greater_equal(a, b) LZ_BINARY(lz_greater_equal, a, b)
#define lz_and(...) LZ_HERE(lz_and(__VA_ARGS__))
#define lz_or(...) LZ_HERE(lz_or(__VA_ARGS__))
#define lz_neg(a) LZ_HERE(lz_neg(a))
#define lz_abs(a) LZ_HERE(lz_abs(a))
#define lz_not(a) LZ_HERE(lz_not(a))
#define lz_square(a) LZ_HERE(lz_square(a))
#define lz_floor(a) LZ_HERE(lz_floor(a))
#define lz_exp(a) LZ_HERE(lz_exp(a))
#define lz_log(a) LZ_HERE(lz_log(a))
#define lz_sqrt(a) LZ_HERE(lz_sqrt(a))
#define lz_rsqrt(a) LZ_HERE(lz_rsqrt(a))
#define lz_sin(a) LZ_HERE(lz_sin(a))
#define lz_cos(a) LZ_HERE(lz_cos(a))
#define lz_tanh(a) LZ_HERE(lz_tanh(a))
#define lz_erf(a) LZ_HERE(lz_erf(a))
#define lz_sigmoid(a) LZ_HERE(lz_sigmoid(a))
#define lz_silu(a) LZ_HERE(lz_silu(a))
#define lz_gelu(a) LZ_HERE(lz_gelu(a))
#define lz_gelu_tanh(a) LZ_HERE(lz_gelu_tanh(a))
#define lz_where(...) LZ_HERE(lz_where(__VA_ARGS__))
#define lz_clip(...) LZ_HERE(lz_clip(__VA_ARGS__))
#define lz_cast(...) LZ_HERE(lz_cast(__VA_ARGS__))
#define lz_sum(...) LZ_HERE(lz_sum(__VA_ARGS__))
#define lz_mean(...) LZ_HERE(lz_mean(__VA_ARGS__))
#define lz_var(...) LZ_HERE(lz_var(__VA_ARGS__))
#define lz_max(...) LZ_HERE(lz_max(__VA_ARGS__))
#define lz_min(...) LZ_HERE(lz_min(__VA_ARGS__))
#define lz_argmax(...) LZ_HERE(lz_argmax(__VA_ARGS__))
#define lz_logsumexp(...) LZ_HERE(lz_logsumexp(__VA_ARGS__))
#define lz_softmax(...) LZ_HERE(lz_softmax(__VA_ARGS__))
#define lz_matmul(...) LZ_HERE(lz_matmul(__VA_ARGS__))
#define lz_linear(...) LZ_HERE(lz_linear(__VA_ARGS__))
#define lz_addmm(c, a, b, ...) LZ_HERE(lz_addmm_with(c, a, b, (lz_addmm_options){.reserved = 0, __VA_ARGS__}))
#define lz_sdpa(q, k, v, ...) LZ_HERE(lz_sdpa_with(q, k, v, (lz_sdpa_options){.reserved = 0, __VA_ARGS__}))
#define lz_unpack(codes, scales, offsets, ...)                                                                         \
    LZ_HERE(lz_unpack_with(codes, scales, offsets, (lz_unpack_options){.reserved = 0, __VA_ARGS__}))
#define lz_rms_norm(...) LZ_HERE(lz_rms_norm(__VA_ARGS__))
#define lz_layer_norm(...) LZ_HERE(lz_layer_norm(__VA_ARGS__))
#define lz_modulated_norm(...) LZ_HERE(lz_modulated_norm(__VA_ARGS__))
#define lz_group_norm(...) LZ_HERE(lz_group_norm(__VA_ARGS__))
#define lz_rope(x, cos, sin, ...) LZ_HERE(lz_rope_with(x, cos, sin, (lz_rope_options){.reserved = 0, __VA_ARGS__}))
#define lz_conv2d(x, w, bias, ...) LZ_HERE(lz_conv2d_with(x, w, bias, (lz_conv2d_options){.reserved = 0, __VA_ARGS__}))
#define lz_upsample_nearest(...) LZ_HERE(lz_upsample_nearest(__VA_ARGS__))
#define lz_pad(...) LZ_HERE(lz_pad(__VA_ARGS__))
#define lz_reshape(...) LZ_HERE(lz_reshape(__VA_ARGS__))
#define lz_permute(...) LZ_HERE(lz_permute(__VA_ARGS__))
#define lz_transpose(...) LZ_HERE(lz_transpose(__VA_ARGS__))
#define lz_slice(...) LZ_HERE(lz_slice(__VA_ARGS__))
#define lz_broadcast(...) LZ_HERE(lz_broadcast(__VA_ARGS__))
#define lz_concat(...) LZ_HERE(lz_concat(__VA_ARGS__))
#define lz_from(...) LZ_HERE(lz_from(__VA_ARGS__))
#define lz_borrow(...) LZ_HERE(lz_borrow(__VA_ARGS__))
#define lz_full(...) LZ_HERE(lz_full(__VA_ARGS__))
#define lz_arange(...) LZ_HERE(lz_arange(__VA_ARGS__))
#define lz_randn(...) LZ_HERE(lz_randn(__VA_ARGS__))
#define lz_contiguous(...) LZ_HERE(lz_contiguous(__VA_ARGS__))
#define lz_take(...) LZ_HERE(lz_take(__VA_ARGS__))
#define lz_gather(...) LZ_HERE(lz_gather(__VA_ARGS__))
#define lz_weights_get(...) LZ_HERE(lz_weights_get(__VA_ARGS__))
#define lz_weights_cast(...) LZ_HERE(lz_weights_cast(__VA_ARGS__))
#endif

#ifdef __cplusplus
}
#endif
#endif
