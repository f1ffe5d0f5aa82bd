/* dnn.h: cuDNN graphs, as far as sdpa.c and conv.c need them. A graph is described once per shape; cuDNN turns it into
 * plans, which are kept; running one binds addresses to the numbers that its tensors were given. */
#ifndef LZ_CUDA_DNN_H
#define LZ_CUDA_DNN_H

#include "backend/cuda/product.h"

/* ---- describing --------------------------------------------------------------------------------------------------- */

enum { LZ_DNN_DIMS = 4, LZ_DNN_DESCRIPTORS = 96, LZ_DNN_OPS = 24 };

/* What goes wrong sticks: later calls do nothing, and no plan comes of it. */
typedef struct lz_dnn_graph {
    lz_device *d;
    lz_dnn_descriptor all[LZ_DNN_DESCRIPTORS]; /* to be destroyed */
    int n_all;
    lz_dnn_descriptor ops[LZ_DNN_OPS];
    int n_ops;
    int64_t virtuals; /* numbers given to what never reaches memory */
    bool failed;
} lz_dnn_graph;

typedef struct lz_dnn_tensor {
    lz_dnn_type type;
    int64_t dims[LZ_DNN_DIMS], strides[LZ_DNN_DIMS];
    int64_t number; /* 1, 2, ...: an operand; 0: between two ops, never in memory */
    bool by_value;  /* one number, in the host's memory */
} lz_dnn_tensor;

lz_dnn_type lz_dnn_type_of(lz_dtype t);

lz_dnn_descriptor lz_dnn_add_tensor(lz_dnn_graph *g, const lz_dnn_tensor *t);
/* y = op(x, b, t); what an op does not take is NULL. axis: of GEN_INDEX, otherwise -1. */
void lz_dnn_add_pointwise(lz_dnn_graph *g, lz_dnn_pointwise op, lz_dnn_descriptor x, lz_dnn_descriptor b,
                          lz_dnn_descriptor t, lz_dnn_descriptor y, int64_t axis);
void lz_dnn_add_matmul(lz_dnn_graph *g, lz_dnn_descriptor a, lz_dnn_descriptor b, lz_dnn_descriptor c);
void lz_dnn_add_reduction(lz_dnn_graph *g, lz_dnn_reduce op, lz_dnn_descriptor x, lz_dnn_descriptor y);
/* x [n, c, h, w], w [o, c, kh, kw], y [n, o, oh, ow], whatever their strides. */
void lz_dnn_add_convolution(lz_dnn_graph *g, lz_dnn_descriptor x, lz_dnn_descriptor w, lz_dnn_descriptor y,
                            int64_t stride, const int64_t before[2], const int64_t behind[2]);

/* ---- plans -------------------------------------------------------------------------------------------------------- */

typedef struct lz_dnn_plan lz_dnn_plan;

typedef struct lz_dnn_key {
    char what[16]; /* so that two kinds of graphs never meet */
    int64_t numbers[48];
} lz_dnn_key; /* zeroed before it is filled */

typedef struct lz_dnn_order {
    const char *what; /* for traces */
    bool exact;       /* f32: no tensor cores, which would round the operands */
    bool thorough;    /* enough work that several ways are worth measuring */
} lz_dnn_order;

/* The plan known by this key; false: none was looked for yet. *plan is NULL when there is none to be had. */
bool lz_dnn_find(lz_device *d, const lz_dnn_key *key, lz_dnn_plan **plan);
/* Asks cuDNN for plans of the graph, keeps them under the key, frees the graph. NULL: it cannot. */
lz_dnn_plan *lz_dnn_make(lz_dnn_graph *g, const lz_dnn_key *key, const lz_dnn_order *order);
int64_t lz_dnn_workspace(const lz_dnn_plan *plan);

/* Addresses of tensors 1 .. n: on the device, but for those by value. */
bool lz_dnn_run(const lz_call *call, lz_dnn_plan *plan, void *const *addresses, int n, void *workspace);

#endif
