/* dnn.h: cuDNN graphs for sdpa.c and conv.c. A graph is described once per shape; cuDNN makes plans from it, which are
 * kept. A run binds addresses to the tensors by their numbers. */
#ifndef LZ_CUDA_DNN_H
#define LZ_CUDA_DNN_H

#include "backend/cuda/product.h"

/* ---- describing (dnn_graph.c) -------------------------------------------------------------------------------------------------- */

enum { LZ_DNN_DIMS = 4, LZ_DNN_DESCRIPTORS = 96, LZ_DNN_OPS = 24 };

/* After an error, `failed` is set: later calls do nothing, and no plan is made. */
typedef struct lz_dnn_graph {
    lz_device *d;
    lz_dnn_descriptor all[LZ_DNN_DESCRIPTORS]; /* destroyed with the graph */
    int n_all;
    lz_dnn_descriptor ops[LZ_DNN_OPS];
    int n_ops;
    int64_t virtuals; /* number of virtual tensors, which are never stored in memory */
    bool failed;
} lz_dnn_graph;

typedef struct lz_dnn_tensor {
    lz_dnn_type type;
    int64_t dims[LZ_DNN_DIMS], strides[LZ_DNN_DIMS];
    int64_t number; /* 1, 2, ...: an operand; 0: virtual, an intermediate result */
    bool by_value;  /* one number, in host memory */
} lz_dnn_tensor;

lz_dnn_type lz_dnn_type_of(lz_dtype t);

lz_dnn_descriptor lz_dnn_add_tensor(lz_dnn_graph *g, const lz_dnn_tensor *t);
/* y = op(x, b, t). Operands that the op does not have are NULL. axis: of GEN_INDEX; otherwise -1. */
void lz_dnn_add_pointwise(lz_dnn_graph *g, lz_dnn_pointwise op, lz_dnn_descriptor x, lz_dnn_descriptor b,
                          lz_dnn_descriptor t, lz_dnn_descriptor y, int64_t axis);
void lz_dnn_add_matmul(lz_dnn_graph *g, lz_dnn_descriptor a, lz_dnn_descriptor b, lz_dnn_descriptor c);
void lz_dnn_add_reduction(lz_dnn_graph *g, lz_dnn_reduce op, lz_dnn_descriptor x, lz_dnn_descriptor y);
/* x [n, c, h, w], w [o, c, kh, kw], y [n, o, oh, ow], of any strides. */
void lz_dnn_add_convolution(lz_dnn_graph *g, lz_dnn_descriptor x, lz_dnn_descriptor w, lz_dnn_descriptor y,
                            int64_t stride, const int64_t before[2], const int64_t behind[2]);

/* ---- descriptors: for dnn.c and dnn_graph.c ---------------------------------------------------------------------- */

/* `what` names the descriptor or attribute in the log if cuDNN refuses it; the graph has failed then. */
lz_dnn_descriptor lz_dnn_new(lz_dnn_graph *g, lz_dnn_kind kind, const char *what); /* destroyed with the graph */
void lz_dnn_set(lz_dnn_graph *g, lz_dnn_descriptor at, lz_dnn_attribute attribute, lz_dnn_attribute_type type,
                int64_t count, const void *elements, const char *what);
void lz_dnn_set_link(lz_dnn_graph *g, lz_dnn_descriptor at, lz_dnn_attribute attribute, lz_dnn_descriptor to,
                     const char *what); /* to NULL: does nothing */
void lz_dnn_finalise(lz_dnn_graph *g, lz_dnn_descriptor at, const char *what);
bool lz_dnn_check(lz_dnn_graph *g, lz_dnn_status status, const char *what);
void lz_dnn_tell_refusal(const lz_device *d, lz_dnn_status status, const char *what); /* to the log */

/* ---- plans ------------------------------------------------------------------------------------------------------- */

typedef struct lz_dnn_plan lz_dnn_plan;

typedef struct lz_dnn_key {
    char what[16]; /* the kind of graph, so that keys of different kinds differ */
    int64_t numbers[48];
} lz_dnn_key; /* zeroed before it is filled */

typedef struct lz_dnn_order {
    const char *what; /* for the log */
    bool exact;       /* f32: excludes tensor cores, which would round the operands */
    bool thorough;    /* makes several plans and measures them: for large work */
} lz_dnn_order;

/* Looks up the plan of a key. false: lz_dnn_make was not called for it yet. *plan is NULL if cuDNN has no plan. */
bool lz_dnn_find(lz_device *d, const lz_dnn_key *key, lz_dnn_plan **plan);
/* Makes plans for the graph, keeps them under the key (the device owns them), and frees the graph. NULL: cuDNN
 * refuses. */
lz_dnn_plan *lz_dnn_make(lz_dnn_graph *g, const lz_dnn_key *key, const lz_dnn_order *order);
int64_t lz_dnn_workspace(const lz_dnn_plan *plan);

/* Addresses of tensors 1 .. n, in device memory; those of the last n_values, which are of f32 by value, in host memory. */
typedef struct lz_dnn_operands {
    void *const *addresses;
    int n, n_values;
    void *workspace;
} lz_dnn_operands;
/* A rehearsal only lists the plan, if it was never run (load.h). */
bool lz_dnn_run(const lz_call *call, lz_dnn_plan *plan, const lz_dnn_operands *operands);

#endif
