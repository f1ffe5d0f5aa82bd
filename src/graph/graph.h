/* graph.h: from described arrays to a program.
 *
 *     nodes --lower--> values --fuse--> fewer values --plan--> steps with a place in memory --run--> results
 *
 * lower.c   walks the nodes once, from inputs to outputs; folds what is constant or does nothing, merges what is the same
 * fuse.c    gathers elementwise chains into expressions, and hangs them on the kernel before them where it can take them
 * order.c   decides what is computed first
 * plan.c    resolves views into strides, so that only kernels are left
 * group.c   joins steps that can be launched as one
 * arena.c   gives every buffer its place in one arena
 * program.c runs the launches; remote.c does it on a device, offload.c brings the weights there
 * eval.c, compile.c, stream.c are the three ways to get there; print.c and profile.c show what happened. */
#ifndef LZ_GRAPH_H
#define LZ_GRAPH_H

#include "array/internal.h"

/* ---- values: the graph while it is being worked on --------------------------------------------------------------- */

typedef struct lz_value {
    lz_op op;
    lz_dtype dtype;
    lz_dims dims;
    lz_params params;
    const lz_expr *expr; /* FUSED, or a kernel with an epilogue */
    int *in;             /* values; always with smaller numbers */
    int n_in, n_core;    /* n_core: inputs of the op itself; the rest belong to the epilogue */
    lz_array *node;      /* LEAF: where the value is. Others: where it was described */
    bool output;
    int uses; /* by live values; 0: dead */
} lz_value;

typedef struct lz_graph {
    lz_context *ctx;
    lz_bump memory;
    lz_value *values;
    int n, capacity;
    int *slots; /* hash table: value + 1, by what it computes */
    int n_slots;
    int *outputs; /* value of each array asked for */
    int n_outputs;
    int64_t nodes; /* met on the way */
} lz_graph;

/* These return false when memory ran out. */
bool lz_lower(lz_graph *g, lz_array *const *arrays, int n);
bool lz_fuse(lz_graph *g);
void lz_count_uses(lz_graph *g);
int *lz_order_values(lz_graph *g); /* all values, inputs before users; NULL: no memory */

/* ---- programs ---------------------------------------------------------------------------------------------------- */

typedef enum lz_store_kind {
    LZ_STORE_INPUT,  /* a leaf's buffer, or an argument of a compiled function */
    LZ_STORE_CONST,  /* one element, in the program */
    LZ_STORE_ARENA,  /* lives from one step to another */
    LZ_STORE_OUTPUT, /* a buffer of its own */
} lz_store_kind;

typedef struct lz_store {
    lz_store_kind kind;
    int64_t bytes;
    int first, last;              /* steps */
    int64_t place;                /* ARENA: offset */
    int argument;                 /* INPUT: 1 + index of the function's argument; 0: buffer */
    int output;                   /* OUTPUT: index of the buffer */
    int same_as;                  /* -1, or the store whose memory this one takes over */
    lz_buffer *buffer;            /* INPUT: retained */
    bool held;                    /* INPUT, of a made buffer, on the host: this program holds its bytes */
    _Alignas(8) char constant[8]; /* CONST: an element of any type */
} lz_store;

/* Where an operand's first element is. */
typedef struct lz_operand {
    int store;
    int64_t offset; /* bytes */
} lz_operand;

typedef struct lz_step {
    const lz_kernel *kernel;
    lz_call call;
    lz_operand out, *in;
    int scratch;  /* store, or -1 */
    int together; /* this and the following steps, launched as one; 1: alone, 0: launched with one before */
    bool on_host; /* a kernel of the host, on a device with memory of its own: operands are brought here and back */
    const char *file;
    int line;
    double flops, bytes;
} lz_step;

typedef struct lz_result {
    lz_operand at;
    lz_dtype dtype;
    lz_dims dims;
    int64_t strides[LZ_MAX_DIMS];
} lz_result;

typedef struct lz_program {
    lz_context *ctx;
    lz_bump memory;
    lz_step *steps;
    int n_steps;
    lz_store *stores;
    int n_stores;
    char **base; /* of each store, while running */
    lz_result *results;
    int n_results;
    int n_outputs; /* output buffers */
    int64_t *output_bytes;
    lz_event **events; /* of inputs that are still being computed */
    int n_events;
    int64_t arena_bytes;
    int64_t concat_visits; /* inputs of concats that planning looked at: twice each, so that it takes linear time */
    bool once;             /* it will run one time */
    lz_plan_info info;
    struct lz_remote *remote;   /* on a device with memory of its own: constants and recordings (remote.c) ... */
    struct lz_freight *freight; /* ... and how its weights get there (offload.c) */
} lz_program;

/* The whole way from arrays to a program. Call with the context locked. own_outputs: results never share memory with
 * inputs. */
lz_program *lz_program_new(lz_context *ctx, lz_array *const *arrays, int n, bool own_outputs, lz_error *err);
bool lz_plan_steps(lz_program *p, lz_graph *g, bool own_outputs);
bool lz_plan_groups(lz_program *p); /* called by lz_plan_steps, once all steps are there; then lz_plan_arena */
bool lz_plan_arena(lz_program *p);
/* Watches one run of a program. Members may be NULL. They are called without base.lock and ctx->run; begin and end may
 * take and drop a lock of their owner. */
typedef struct lz_watch {
    /* Asked between kernels, with the share of the program's work that is done; false stops it with LZ_CANCELLED. */
    bool (*go_on)(void *user, double done);
    void (*begin)(void *user), (*end)(void *user); /* before the first kernel, and after the last or an error */
    void *user;
} lz_watch;

/* What a compiled function is called with: where an input lies, as it was when the call began. */
typedef struct lz_argument {
    lz_dtype dtype;
    lz_dims dims;
    int64_t strides[LZ_MAX_DIMS], offset; /* in elements */
    lz_buffer *buffer;                    /* retained while the call runs */
} lz_argument;

/* Takes ctx->run. arguments: of a compiled function, or NULL. watch may be NULL. */
lz_status lz_program_run(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs,
                         const lz_watch *watch, lz_error *err);
void lz_program_free(lz_program *p);

/* Sets the pointers of a step's call from p->base. */
void lz_bind_operands(lz_program *p, lz_step *step, lz_error *err);
/* Running on a device with memory of its own (remote.c). Wants ctx->run. */
lz_status lz_remote_run(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs,
                        lz_error *err);
void lz_remote_free(lz_program *p);
int64_t lz_remote_constants(const lz_program *p); /* bytes of its numbers there */

/* Weights on their way to the device (offload.c). load: brings there what stays, or says why not. Then, for each step
 * in order, before: sends what it needs of the rest, and sets p->base; after: notes that it was launched. end: in any
 * case. All want ctx->run. */
bool lz_freight_load(lz_program *p, const lz_argument *arguments, lz_error *err);
bool lz_freight_streams(const lz_program *p); /* something is sent in this run */
bool lz_freight_before(lz_program *p, int step, lz_error *err);
bool lz_freight_after(lz_program *p, int step, lz_error *err);
void lz_freight_end(lz_program *p, bool fine);
char *lz_freight_place(const lz_program *p, int store); /* of a weight that stays; else NULL */
bool lz_freight_foresee(lz_program *p); /* fills p->info as of now. Wants the lock. false: memory ran out */

/* Bytes from the start of an input's buffer to its first element. */
static inline int64_t lz_store_offset(const lz_program *p, int store, const lz_argument *arguments) {
    const lz_argument *a = p->stores[store].argument ? &arguments[p->stores[store].argument - 1] : NULL;
    return a ? a->offset * lz_dtype_size(a->dtype) : 0;
}

/* ---- profile ----------------------------------------------------------------------------------------------------- */

bool lz_profile_new(lz_context *ctx);
bool lz_profile_on(lz_context *ctx);
void lz_profile_record(lz_context *ctx, const lz_step *step, double start, double end);
void lz_profile_free(lz_context *ctx);

#endif
