/* dnn.h: the simulated cuDNN: dnn.c makes programs from descriptors, dnn_run.c runs them. */
#ifndef LZ_SIM_DNN_H
#define LZ_SIM_DNN_H

#include "sim.h"

enum { DIMS = 4, MAX_TENSORS = 48, MAX_OPS = 24 };

typedef struct tensor {
    lz_dnn_type type;
    int64_t dims[DIMS], strides[DIMS], id, alignment;
    bool is_virtual, by_value;
} tensor;

typedef struct operation {
    lz_dnn_kind kind;
    int mode; /* of a pointwise op or a reduction */
    int64_t axis, before[2], behind[2], strides[2];
    int in[3], out; /* tensors; -1: none */
} operation;

typedef struct program {
    tensor tensors[MAX_TENSORS];
    operation ops[MAX_OPS];
    int n_tensors, n_ops, engine;
} program;

/* A program with its operands. */
typedef struct dnn_run {
    program p;
    char *addresses[MAX_TENSORS]; /* by tensor; NULL: virtual, or by value */
    float numbers[MAX_TENSORS];   /* by value */
    char *workspace;
    int64_t workspace_bytes;
    bool right; /* false: the results are NaN */
} dnn_run;

void lz_sim_run_program(void *run);                         /* a dnn_run */
float lz_sim_read_number(lz_dnn_type type, const char *at); /* a 16-bit type or f32 */

#endif
