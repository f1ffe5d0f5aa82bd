/* graph.h: from described arrays to a program.
 *
 *     nodes --lower--> values --fuse--> fewer values --plan--> steps with offsets in one arena --run--> results
 *
 * lower.c   walks the nodes once, from inputs to outputs; folds constants and no-ops, merges equal values
 * fuse.c    gathers elementwise chains into expressions; a chain can become the epilogue of the kernel before it
 * quantise.c joins the rounding of rows to 8 bits with the kernel that computes the rows
 * norms.c   joins a norm of a norm's result with it
 * order.c   decides in which order values are computed
 * plan.c    resolves views into strides, so that only kernels are left; cost.c counts what their steps compute and move
 * group.c   joins steps into groups that are launched as one
 * arena.c   gives every temporary store its offset in one arena
 * program.c runs the steps on the host; remote.c runs them on a device; offload.c uploads or streams the weights;
 *           preload.c sends weights ahead
 * eval.c, compile.c and stream.c are the three callers: evaluate now, keep the program, evaluate in the background
 * print.c   and profile.c show the program and the time of its kernels. */
#ifndef LZ_GRAPH_H
#define LZ_GRAPH_H

#include "array/internal.h"

/* ---- values: the graph while it is being worked on --------------------------------------------------------------- */

/* What planning needs to know of a node beside its op: where it was described and, of a LEAF, where its value is. It is
 * copied from the node while the graph is walked under base.lock (lower.c). All later passes work on the copy, without a
 * lock: meanwhile other threads may evaluate, move or free the node. */
typedef struct lz_node_facts {
    const char *file;
    int line;
    int placeholder;   /* LEAF: as in lz_array; 0: buffer holds the value */
    lz_buffer *buffer; /* LEAF: retained by the graph */
    lz_event *event;   /* LEAF: counted by the graph; NULL: the buffer is filled */
    int64_t offset, strides[LZ_MAX_DIMS];
} lz_node_facts;

typedef struct lz_value {
    lz_op op;
    lz_dtype dtype;
    lz_dims dims;
    lz_params params;
    const lz_expr *expr;       /* of FUSED, or the epilogue of a kernel; else NULL */
    int *in;                   /* indices of values, each smaller than this value's own index */
    int n_in, n_core;          /* the first n_core are inputs of the op; the others are arguments of the epilogue */
    const lz_node_facts *from; /* the node that described it; NULL: a pass made it */
    bool output;
    int uses; /* number of live values that read this one, plus 1 for each output; 0: dead */
} lz_value;

typedef struct lz_graph {
    lz_context *ctx;
    lz_bump memory;
    struct lz_met *met; /* the nodes, inputs before users (lower.c) */
    int n_met;
    lz_value *values;
    int n, capacity;
    int *slots; /* hash table of values; an entry is 1 + the index of a value, 0: empty */
    int n_slots;
    int *outputs; /* index of the value of each requested array */
    int n_outputs;
} lz_graph;

/* These return false if memory ran out. lz_lower holds base.lock while it copies the nodes, and not longer. */
bool lz_lower(lz_graph *g, lz_array *const *arrays, int n);
void lz_graph_free(lz_graph *g);
bool lz_fuse(lz_graph *g);
const bool *lz_find_quantised(lz_graph *g); /* of each value: a QUANTISE reads it; NULL: out of memory */
bool lz_join_quantise(lz_graph *g);
bool lz_join_norms(lz_graph *g);
void lz_count_uses(lz_graph *g);
int *lz_order_values(lz_graph *g); /* indices of all values, inputs before users; NULL: out of memory */

/* ---- programs ---------------------------------------------------------------------------------------------------- */

typedef enum lz_store_kind {
    LZ_STORE_INPUT,  /* a leaf's buffer, or an argument of a compiled function */
    LZ_STORE_CONST,  /* one element, stored in the program */
    LZ_STORE_ARENA,  /* temporary, in the arena from step `first` to step `last` */
    LZ_STORE_OUTPUT, /* a buffer that the caller of lz_program_run gives */
} lz_store_kind;

typedef struct lz_store {
    lz_store_kind kind;
    int64_t bytes;
    int first, last;              /* indices of the steps that first write and last read it */
    int64_t arena_offset;         /* ARENA: bytes from the start of the arena */
    int argument;                 /* INPUT: 1 + index of the compiled function's argument; 0: the store has a buffer */
    int output;                   /* OUTPUT: index of the output buffer */
    int same_as;                  /* index of the store whose memory this one reuses; -1: none */
    lz_buffer *buffer;            /* INPUT: retained until the program is freed */
    bool held;                    /* INPUT with a made buffer, on the host: this program has called lz_buffer_hold */
    _Alignas(8) char constant[8]; /* CONST: an element of any type */
} lz_store;

/* The first element of an operand. */
typedef struct lz_operand {
    int store;
    int64_t offset; /* bytes from the start of the store */
} lz_operand;

typedef struct lz_step {
    const lz_kernel *kernel;
    lz_call call;
    lz_operand out, *in;
    int scratch;    /* index of a store; -1: none */
    int group_size; /* steps launched as one from this step on; 1: this step alone; 0: in an earlier step's group */
    bool on_host; /* in a program for a device: the kernel runs on the host; operands are copied to the host and back */
    const char *file;
    int line;
    double flops, bytes;
} lz_step;

typedef struct lz_result {
    lz_operand operand;
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
    char **base; /* address of each store; valid while ctx->run_lock is held for a run */
    lz_result *results;
    int n_results;
    int n_outputs; /* output buffers */
    int64_t *output_bytes;
    lz_event **events; /* retained events of inputs that a stream had not computed when the program was planned */
    int n_events;
    int64_t arena_bytes;
    int64_t concat_visits; /* inputs of concats that planning visited; a test checks that it visits each twice */
    bool once;             /* made for a single run: host bytes of made inputs are released after their last step */
    lz_plan_info info;
    struct lz_remote *remote;        /* on a device: constants and recordings (remote.c); NULL before the first run */
    struct lz_offload_plan *offload; /* on a device: which weights stay and which are streamed (offload.c) */
} lz_program;

/* Lowers, fuses and plans arrays into a program. Holds no lock except for moments. If own_outputs is set, results never share
 * memory with inputs. */
lz_program *lz_program_new(lz_context *ctx, lz_array *const *arrays, int n, bool own_outputs, lz_error *err);
bool lz_plan_steps(lz_program *p, lz_graph *g, bool own_outputs);
void lz_step_cost(lz_step *step); /* sets flops and bytes from the call (cost.c) */
/* The number of terms that an op sums for one element of its output. summed: the dims of its input op->sum.input;
 * axes: how many of them it sums over, which is op->sum.axes, except for a REDUCE. */
double lz_count_terms(const lz_op_info *op, lz_dims summed, int axes);
bool lz_plan_groups(lz_program *p); /* lz_plan_steps calls these two, in this order, after the last step is added */
bool lz_plan_arena(lz_program *p);
/* Watches one run of a program. Members may be NULL. Neither base.lock nor ctx->run_lock is held
 * while they are called, so begin and end may take and release a lock of the caller. */
typedef struct lz_watch {
    /* Called between kernels with the fraction of the program's work that is done; false stops it with LZ_CANCELLED. */
    bool (*go_on)(void *user, double done);
    /* Called before the first kernel, and after the last one or an error; on a device, after all were submitted. There
     * go_on is called once, after end. */
    void (*begin)(void *user), (*end)(void *user);
    void *user;
} lz_watch;

/* An input of a compiled function: its buffer, offset and strides at the moment the call began. */
typedef struct lz_argument {
    lz_dtype dtype;
    lz_dims dims;
    int64_t strides[LZ_MAX_DIMS], offset; /* in elements */
    lz_buffer *buffer;                    /* retained while the call runs */
} lz_argument;

/* Takes ctx->run_lock for the run; the caller holds neither it nor base.lock. arguments: those of a compiled function,
 * or NULL. watch may be NULL. */
lz_status lz_program_run(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs,
                         const lz_watch *watch, lz_error *err);
void lz_program_free(lz_program *p);

/* Sets the data pointers of a step's call from p->base. */
void lz_bind_operands(lz_program *p, lz_step *step, lz_error *err);
/* On a device with its own memory (remote.c). lz_remote_prepare compiles the kernels that the program needs, before its first
 * run; it takes ctx->run_lock for moments, and compiles without it. arena, outputs and buffers of arguments may be NULL. The caller of lz_remote_run holds ctx->run_lock. */
void lz_remote_prepare(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs);
lz_status lz_remote_run(lz_program *p, const lz_argument *arguments, lz_buffer *arena, lz_buffer *const *outputs,
                        lz_error *err);
void lz_remote_free(lz_program *p);
int64_t lz_remote_constants(const lz_program *p); /* device bytes of the program's constants */

/* Weights of a program on a device (offload.c). The caller holds ctx->run_lock from prepare to end. prepare chooses and
 * uploads the resident weights. For each step in order, before_step sends the step's streamed weights and sets p->base,
 * and after_step marks that the step was launched. end is called whether or not the run succeeded. */
bool lz_offload_prepare(lz_program *p, const lz_argument *arguments, lz_error *err);
bool lz_offload_streams(const lz_program *p); /* true if this run streams weights */
bool lz_offload_before_step(lz_program *p, int step, lz_error *err);
bool lz_offload_after_step(lz_program *p, int step, lz_error *err);
void lz_offload_end(lz_program *p, bool fine);
char *lz_offload_address(const lz_program *p, int store); /* device address of a resident weight; NULL: not resident */
bool lz_offload_estimate(lz_program *p);                  /* fills p->info. false: memory ran out */

/* Weights that are sent to the device ahead of their program (preload.c). lz_preload_program asks for those of a planned
 * program that has not run yet and will run after the programs that were asked for before. It returns at once. true:
 * there is room for all of the program's weights, and those that are not on the device will be sent, unless memory runs
 * out meanwhile. false: none will be sent, because there is no room for all, the program has run, or the context has no
 * device that can do it. lz_preload_drop takes the request back: weights that are not being sent yet are not sent.
 * Borrowed memory of a weight that is being sent is read until its release function is called, even if the program is
 * freed before.
 * lz_preload_wait returns when no weight of the program is on its way. Their callers hold neither ctx->run_lock nor
 * base.lock. */
bool lz_preload_program(lz_program *p);
void lz_preload_drop(const lz_program *p);
void lz_preload_wait(const lz_program *p, const lz_argument *arguments);
void lz_preload_free(lz_context *ctx);

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
