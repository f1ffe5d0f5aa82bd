/* eval.h: an evaluation is a program together with its arena and output buffers. lz_eval runs it immediately, a stream
 * runs it on its thread. */
#ifndef LZ_EVAL_H
#define LZ_EVAL_H

#include "graph/graph.h"

typedef struct lz_evaluation {
    lz_context *ctx;
    lz_program *program;
    lz_buffer *arena, **outputs;
    lz_event *event; /* of a stream: set to done after the run; owned until then */
    struct lz_evaluation *next;
} lz_evaluation;

lz_status lz_check_all(lz_array *const *arrays, int n, lz_error *err);
/* Plans the arrays, of which there is at least one. Allocates no array data. */
lz_evaluation *lz_evaluation_new(lz_context *ctx, lz_array *const *arrays, int n, lz_error *err);
lz_status lz_evaluation_estimate(lz_evaluation *e, lz_plan_info *info, lz_error *err); /* as lz_plan */
bool lz_evaluation_allocate(lz_evaluation *e, lz_error *err);
lz_status lz_evaluation_run(lz_evaluation *e, const lz_watch *watch, lz_error *err);
void lz_evaluation_commit(lz_evaluation *e, lz_array *const *arrays, lz_event *event); /* the caller holds base.lock */
void lz_evaluation_free(lz_evaluation *e);

/* Allocates, runs and commits an evaluation that was planned for these arrays, and frees it. watch may be NULL. */
lz_status lz_eval_planned(lz_evaluation *e, lz_array *const *arrays, const lz_watch *watch, lz_error *err);
/* lz_eval_all and lz_run with progress and cancellation. watch may be NULL. */
lz_status lz_eval_watched(lz_array *const *arrays, int n, const lz_watch *watch, lz_error *err);
lz_status lz_run_watched(lz_compiled *compiled, lz_array *const *in, lz_array **out, const lz_watch *watch,
                         lz_error *err);
/* Plans a call of a compiled function, as lz_plan. Only types, shapes and strides of the inputs matter. The program is kept,
 * so that the call does not plan again. out receives placeholders of the outputs. */
lz_status lz_compiled_plan(lz_compiled *compiled, lz_array *const *in, lz_array **out, lz_plan_info *info,
                           lz_error *err);
/* Asks that the weights of a function that was planned, or of an evaluation, are sent to the device while other programs
 * run (lz_preload_program). true: there was room for all of them, or the argument is NULL. false: of a program of the
 * function, no weights will be sent. drop takes the request back: weights that are not being sent yet are not sent. */
bool lz_compiled_preload(lz_compiled *compiled);
bool lz_evaluation_preload(lz_evaluation *e);
void lz_compiled_drop(lz_compiled *compiled);
/* Compiles and loads the kernels of a function that was planned, before its first call. compiled may be NULL. */
void lz_compiled_prepare(lz_compiled *compiled);
/* A placeholder of the same type and shape, without a value. It can be planned with, but not evaluated. */
lz_array *lz_stand_in(lz_array *a);

#endif
